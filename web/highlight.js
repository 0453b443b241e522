/* Colours for code: text and the name of a language -> [[kind, text]], whose texts joined are the input
 * again.
 *
 * One scanner with a table of languages, not a parser: comments, strings, numbers, words of the language,
 * names before a bracket. An unknown language is one plain piece. Kinds: "" comment string number keyword
 * name tag add remove. Each pattern is sticky and has no nested repetition, so time is linear. */

const MAX_LENGTH = 60000; // characters; beyond that colours cost more than they help

const words = (text) => new Set(text.split(" "));

const C_WORDS =
    "auto bool break case char const continue default do double else enum extern false float for goto if " +
    "inline int long namespace NULL nullptr override private protected public return short signed sizeof " +
    "static struct switch template this true typedef typename union unsigned using virtual void volatile " +
    "while class new delete try catch throw constexpr size_t uint8_t uint16_t uint32_t uint64_t int8_t " +
    "int16_t int32_t int64_t";
const JS_WORDS =
    "async await break case catch class const continue default delete do else export extends false " +
    "finally for from function if import in instanceof interface let new null of return static super " +
    "switch this throw true try type typeof undefined var void while yield enum implements readonly " +
    "private public protected as string number boolean";
const PYTHON_WORDS =
    "and as assert async await break class continue def del elif else except False finally for from " +
    "global if import in is lambda match case None nonlocal not or pass raise return self True try while " +
    "with yield";
const RUST_WORDS =
    "as async await break const continue crate dyn else enum extern false fn for if impl in let loop " +
    "match mod move mut pub ref return self Self static struct super trait true type unsafe use where " +
    "while i8 i16 i32 i64 u8 u16 u32 u64 usize isize f32 f64 bool char str String Vec Option Result";
const GO_WORDS =
    "break case chan const continue default defer else fallthrough for func go goto if import interface " +
    "map package range return select struct switch type var nil true false string int int64 uint64 " +
    "float64 byte rune error bool";
const JAVA_WORDS =
    "abstract boolean break byte case catch char class const continue default do double else enum extends " +
    "final finally float for fun if implements import in instanceof int interface is internal let long " +
    "native new null object open override package private protected public return sealed short static " +
    "string super suspend switch this throw throws true false try val var void volatile when while func " +
    "guard self struct protocol extension namespace using async await foreach get set";
const SHELL_WORDS =
    "if then else elif fi for while until do done case esac in function return exit export local readonly " +
    "set unset shift source trap echo cd sudo test eval exec declare";
const SQL_WORDS =
    "select from where and or not in is null as on join left right inner outer full cross group by order " +
    "having limit offset insert into values update set delete create table index view drop alter add " +
    "primary key foreign references default unique distinct union all exists between like case when then " +
    "else end with asc desc int integer text varchar real boolean true false";
const LUA_WORDS =
    "and break do else elseif end false for function goto if in local nil not or repeat return then true " +
    "until while def class module require begin rescue ensure unless yield self puts attr_accessor";

const SLASH = /\/\/[^\n]*|\/\*[^]*?(?:\*\/|$)/y;
const HASH = /#[^\n]*/y;
const QUOTES = /"(?:\\[^]|[^"\\\n])*"?|'(?:\\[^]|[^'\\\n])*'?/y;
const QUOTES_TICK = /"(?:\\[^]|[^"\\\n])*"?|'(?:\\[^]|[^'\\\n])*'?|`(?:\\[^]|[^`\\])*`?/y;
const QUOTES_PYTHON =
    /[rbfuRBFU]{0,2}(?:"""[^]*?(?:"""|$)|'''[^]*?(?:'''|$)|"(?:\\[^]|[^"\\\n])*"?|'(?:\\[^]|[^'\\\n])*'?)/y;
const QUOTES_RUST = /"(?:\\[^]|[^"\\])*"?|'(?:\\[^']{1,8}|[^'\\\n])'/y;
const QUOTES_SQL = /'(?:''|[^'])*'?|"[^"\n]*"?/y;
const NUMBER = /0[xX][\da-fA-F_]+|0[bB][01_]+|\d[\d_]*(?:\.[\d_]+)?(?:[eE][+-]?\d+)?[a-zA-Z%]{0,4}/y;
const WORD = /[A-Za-z_$][\w$]*/y;
const DIRECTIVE = /#[ \t]*\w+/y;

const LANGUAGES = {
    c: { comment: SLASH, string: QUOTES, words: words(C_WORDS), extra: DIRECTIVE },
    js: { comment: SLASH, string: QUOTES_TICK, words: words(JS_WORDS) },
    python: { comment: HASH, string: QUOTES_PYTHON, words: words(PYTHON_WORDS), extra: /@[\w.]+/y },
    rust: { comment: SLASH, string: QUOTES_RUST, words: words(RUST_WORDS), extra: /#!?\[[^\]\n]*\]/y },
    go: { comment: SLASH, string: QUOTES_TICK, words: words(GO_WORDS) },
    java: { comment: SLASH, string: QUOTES, words: words(JAVA_WORDS), extra: /@\w+/y },
    shell: {
        comment: HASH,
        string: QUOTES,
        words: words(SHELL_WORDS),
        extra: /\$(?:\w+|\{[^}\n]*\}|[@#?*!$])/y,
    },
    sql: {
        comment: /--[^\n]*|\/\*[^]*?(?:\*\/|$)/y,
        string: QUOTES_SQL,
        words: words(SQL_WORDS),
        folded: true,
    },
    lua: { comment: /--[^\n]*|#[^\n]*/y, string: QUOTES, words: words(LUA_WORDS) },
    css: {
        comment: SLASH,
        string: QUOTES,
        words: words("important"),
        extra: /[@.#][A-Za-z_-][\w-]*|--[\w-]+/y,
    },
    json: { string: QUOTES, words: words("true false null") },
    yaml: {
        comment: HASH,
        string: QUOTES,
        words: words("true false null yes no on off"),
        extra: /[\w.-]{1,80}(?=[ \t]{0,4}[:=])/y,
    },
    xml: { comment: /<!--[^]*?(?:-->|$)/y, string: QUOTES, words: new Set(), extra: /<[/!?]?[\w:-]+|\/?>/y },
};

const NAMES = {
    c: "c h cpp c++ cc hpp cu cuda hip glsl opencl objc",
    js: "js javascript jsx mjs ts typescript tsx node",
    python: "py python python3 gd starlark",
    rust: "rust rs",
    go: "go golang",
    java: "java kotlin kt scala swift cs csharp c# dart php groovy zig",
    shell: "sh bash shell zsh fish console terminal dockerfile docker make makefile powershell ps1",
    sql: "sql sqlite postgresql mysql",
    lua: "lua ruby rb elixir haskell hs ada",
    css: "css scss less",
    json: "json json5 jsonc jsonl",
    yaml: "yaml yml toml ini conf properties cfg",
    xml: "html xml svg vue svelte xhtml",
    diff: "diff patch",
};
const BY_NAME = new Map(
    Object.entries(NAMES).flatMap(([key, all]) => all.split(" ").map((name) => [name, key])),
);

/** Whether the language is known. */
export function knowsLanguage(lang) {
    return BY_NAME.has(lang.toLowerCase());
}

/** The pieces of a text of code. */
export function highlight(text, lang) {
    const name = BY_NAME.get(lang.toLowerCase());
    if (!name || text.length > MAX_LENGTH) return [["", text]];
    return name === "diff" ? highlightDiff(text) : scan(text, LANGUAGES[name]);
}

function highlightDiff(text) {
    const pieces = [];
    for (const line of text.split(/(?<=\n)/)) {
        const file = /^(\+\+\+|---|diff |index )/.test(line);
        const kind = file ? "comment" : ({ "+": "add", "-": "remove", "@": "keyword" }[line[0]] ?? "");
        push(pieces, kind, line);
    }
    return pieces;
}

function scan(text, language) {
    const pieces = [];
    const steps = [
        [language.comment, () => "comment"],
        [language.string, () => "string"],
        [language.extra, () => "tag"],
        [WORD, (word, end) => wordKind(word, language, text, end)],
        [NUMBER, () => "number"],
    ].filter(([pattern]) => pattern);
    let at = 0;
    while (at < text.length) {
        const [kind, end] = step(text, at, steps);
        push(pieces, kind, text.slice(at, end));
        at = end;
    }
    return pieces;
}

function step(text, at, steps) {
    for (const [pattern, kindOf] of steps) {
        pattern.lastIndex = at;
        const found = pattern.exec(text);
        if (found && found[0] !== "") return [kindOf(found[0], at + found[0].length), at + found[0].length];
    }
    return ["", at + 1];
}

function wordKind(word, language, text, end) {
    if (language.words.has(language.folded ? word.toLowerCase() : word)) return "keyword";
    return text[end] === "(" ? "name" : "";
}

function push(pieces, kind, text) {
    const last = pieces[pieces.length - 1];
    if (last && last[0] === kind) last[1] += text;
    else pieces.push([kind, text]);
}
