// Markdown: the tree of what models write. Expected trees are CommonMark's and GitHub's, but for the choices
// that web/markdown.js names.
import assert from "node:assert/strict";
import test from "node:test";
import { parseMarkdown } from "../../web/markdown.js";
import { parseInline, safeHref } from "../../web/markdown_inline.js";
import { formulaTree } from "../../web/formula.js";
import { highlight } from "../../web/highlight.js";

/** A short way to write a tree: em(..) as <em>..</em>. Only for reading in a test. */
function show(parts) {
    return parts
        .map((part) => {
            const inner = part.parts ? show(part.parts) : "";
            switch (part.type) {
                case "text":
                    return part.text;
                case "code":
                    return `{code ${part.text}}`;
                case "math":
                    return `{math ${part.text}}`;
                case "break":
                    return "{break}";
                case "link":
                    return `{link ${part.href} ${inner}}`;
                default:
                    return `{${part.type} ${inner}}`;
            }
        })
        .join("");
}

function inlineIs(cases) {
    for (const [text, want] of cases) assert.equal(show(parseInline(text)), want, JSON.stringify(text));
}

const kinds = (text) => parseMarkdown(text).map((b) => b.type);

test("emphasis as CommonMark reads it", () => {
    inlineIs([
        ["*a* _b_ **c** __d__", "{em a} {em b} {strong c} {strong d}"],
        ["***both***", "{em {strong both}}"],
        ["**bold *and em***", "{strong bold {em and em}}"],
        ["*foo**bar**baz*", "{em foo{strong bar}baz}"],
        ["snake_case_name and 2*3*4", "snake_case_name and 2{em 3}4"],
        ["a * b * c", "a * b * c"],
        ["**not closed", "**not closed"],
        ["~~gone~~ ~~~no~~~", "{strike gone} ~~~no~~~"],
        ["*a _b* c_", "{em a _b} c_"],
        ["\\*no\\*", "*no*"],
        ["**日本語**です", "{strong 日本語}です"],
    ]);
});

test("code spans", () => {
    inlineIs([
        ["`a*b*`", "{code a*b*}"],
        ["`` a`b ``", "{code a`b}"],
        ["`open", "`open"],
        ["``x` y", "``x` y"],
        ["`a` `b`", "{code a} {code b}"],
    ]);
});

test("links lead only to http, https and mail", () => {
    inlineIs([
        ["[t](https://a.b/c_d_e)", "{link https://a.b/c_d_e t}"],
        ['[t](https://a.b "title")', "{link https://a.b t}"],
        ["[t](https://a.b/x(y))", "{link https://a.b/x(y) t}"],
        ["[*t*](<https://a.b/c d>)", "{link https://a.b/cd {em t}}"],
        ["[t](javascript:alert(1))", "t"],
        ["[t](JaVa\tscript:alert)", "[t](JaVa\tscript:alert)"],
        ["[t](data:text/html,x)", "t"],
        ["[t](/relative)", "t"],
        ["![alt](https://a.b/p.png)", "{link https://a.b/p.png alt}"],
        [
            "see https://a.b/c_d, and (https://e.f/g).",
            "see {link https://a.b/c_d https://a.b/c_d}, and ({link https://e.f/g https://e.f/g}).",
        ],
        ["<https://a.b>", "{link https://a.b https://a.b}"],
        [
            "[a [b](https://c.d)](https://e.f)",
            "[a {link https://c.d b}](https://e.f)".replace(
                "(https://e.f)",
                "({link https://e.f https://e.f})",
            ),
        ],
        ["a[0] and b[i](x)", "a[0] and bi"],
    ]);
    for (const bad of [
        "javascript:x",
        " javascript:x",
        "java\nscript:x",
        "vbscript:x",
        "file:///etc",
        "//a.b",
        "http:///x",
        "#x",
    ]) {
        assert.equal(safeHref(bad), "", bad);
    }
    assert.equal(safeHref("HTTPS://a.b"), "HTTPS://a.b");
    assert.equal(safeHref("mailto:a@b.c"), "mailto:a@b.c");
});

test("formulas keep their underscores, prices stay prices", () => {
    inlineIs([
        ["\\(a_1 + b_1\\)", "{math a_1 + b_1}"],
        ["$x_1$ and $y_1$", "{math x_1} and {math y_1}"],
        ["from $5 to $10", "from $5 to $10"],
        ["$5-$10", "$5-$10"],
    ]);
    assert.deepEqual(parseMarkdown("$$\na_1\n$$")[0], { type: "math", text: "a_1", source: "$$\na_1\n$$" });
    assert.deepEqual(kinds("\\[ x \\]\n\ntext"), ["math", "para"]);
    assert.deepEqual(kinds("$$ no end\n\ntext"), ["para", "para"]);
});

test("line breaks, entities, HTML as text", () => {
    inlineIs([
        ["a\nb", "a{break}b"],
        ["a  \nb", "a{break}b"],
        ["a<br>b", "a{break}b"],
        ["&lt;b&gt; &amp; &#65; &nope; &#0;", "<b> & A &nope; &#0;"],
        ["<script>x</script>", "<script>x</script>"],
    ]);
});

test("blocks", () => {
    assert.deepEqual(kinds("# a\n\ntext\n***\n> q\n\n- l\n\n```\nc\n```\n    code"), [
        "heading",
        "para",
        "rule",
        "quote",
        "list",
        "code",
        "code",
    ]);
    assert.deepEqual(parseMarkdown("### x ##")[0], {
        type: "heading",
        level: 3,
        inline: [{ type: "text", text: "x" }],
        source: "### x ##",
    });
    assert.equal(kinds("#nospace")[0], "para");
    assert.deepEqual(kinds("text\n---\nmore"), ["para", "rule", "para"]);
    assert.deepEqual(kinds("a\r\n\r\nb\rc"), ["para", "para"]);
    assert.deepEqual(kinds(""), []);
});

test("code blocks, also while they grow", () => {
    assert.deepEqual(parseMarkdown("```js x\na\n\n  b\n```")[0], {
        type: "code",
        lang: "js",
        text: "a\n\n  b",
        open: false,
        source: "```js x\na\n\n  b\n```",
    });
    assert.equal(parseMarkdown("```\nhalf")[0].open, true);
    assert.equal(parseMarkdown("````\n```\n````")[0].text, "```");
    assert.equal(parseMarkdown("~~~\n```\n~~~")[0].text, "```");
    assert.equal(parseMarkdown("  ```\n  a\n    b\n  ```")[0].text, "a\n  b");
});

test("lists", () => {
    const [list] = parseMarkdown("3. a\n   - b\n   - c\n4. d");
    assert.deepEqual([list.ordered, list.start, list.tight, list.items.length], [true, 3, true, 2]);
    assert.deepEqual(
        list.items[0].blocks.map((b) => b.type),
        ["para", "list"],
    );
    // Models indent by two below "1. ".
    assert.equal(parseMarkdown("1. a\n  - b\n  - c")[0].items[0].blocks[1].items.length, 2);
    assert.equal(parseMarkdown("- a\n\n- b")[0].tight, false);
    assert.equal(parseMarkdown("- a\n- b")[0].tight, true);
    assert.deepEqual(
        parseMarkdown("- [x] a\n- [ ] b\n- c")[0].items.map((i) => i.task),
        [true, false, null],
    );
    assert.deepEqual(kinds("- a\n* b"), ["list", "list"]);
    assert.deepEqual(kinds("42."), ["para"]);
    assert.deepEqual(kinds("text 1986.\n1986. x"), ["para"]);
    const code = parseMarkdown("- a\n  ```\n  x\n  ```\n- b")[0];
    assert.deepEqual([code.items.length, code.items[0].blocks[1].text], [2, "x"]);
    assert.deepEqual(kinds("1. a\n```\nx\n```\n2. b"), ["list", "code", "list"]);
    assert.equal(parseMarkdown("1. a\n```\nx\n```\n2. b")[2].start, 2);
});

test("tables", () => {
    const [table] = parseMarkdown("| a | b |\n|:-:|--:|\n| `x|y` | 1\\|2 |\n| only |");
    assert.deepEqual(table.align, ["center", "right"]);
    assert.deepEqual(
        table.rows.map((r) => r.map(show)),
        [
            ["{code x|y}", "1|2"],
            ["only", ""],
        ],
    );
    assert.deepEqual(kinds("a | b\n--- | ---\n1 | 2\n\nend"), ["table", "para"]);
    assert.deepEqual(kinds("a | b\n---\nc"), ["para", "rule", "para"]);
    assert.deepEqual(kinds("intro\n| a | b |\n|---|---|\n| 1 | 2 |"), ["para", "table"]);
});

test("quotes nest and end", () => {
    const [quote] = parseMarkdown("> a\n> > b\n>\n> - c\nlazy");
    assert.deepEqual(
        quote.blocks.map((b) => b.type),
        ["para", "quote", "list"],
    );
    assert.deepEqual(kinds("> a\n\nb"), ["quote", "para"]);
});

test("the sources of blocks are the text", () => {
    const text = "# a\n\np1\np2\n\n- x\n  y\n\n```\nz\n\n```\nend";
    const joined = parseMarkdown(text)
        .map((b) => b.source)
        .join("\n");
    assert.equal(joined.replace(/\n+/g, "\n"), text.replace(/\n+/g, "\n"));
});

/** A prefix of a text never throws, and earlier blocks keep their sources: that is what streaming relies on.
 *  */
test("every prefix of a text can be shown", () => {
    const text =
        "# T\n\n1. **a** `b`\n   - c\n\n| x | y |\n|---|--:|\n| 1 | [l](https://a.b) |\n\n" +
        "```c\nint x;\n```\n\n$$\na\n$$\n\n> q *e*";
    let before = [];
    for (let n = 0; n <= text.length; n++) {
        const sources = parseMarkdown(text.slice(0, n)).map((b) => b.source);
        for (let i = 0; i + 2 < Math.min(before.length, sources.length); i++)
            assert.equal(sources[i], before[i]);
        before = sources;
    }
});

const CRUEL = {
    stars: (n) => "*a ".repeat(n),
    pairs: (n) => "**a** ".repeat(n),
    runs: (n) => `${"*".repeat(n)}a${"*".repeat(n)}`,
    open: (n) => "[".repeat(n),
    links: (n) => "[a](".repeat(n),
    half: (n) => "[a](b".repeat(n),
    ticks: (n) => Array.from({ length: n / 60 }, (_, i) => "`".repeat(i + 1)).join(" "),
    same: (n) => "` ".repeat(n),
    quotes: (n) => ">".repeat(n),
    lists: (n) => Array.from({ length: n / 60 }, (_, i) => `${" ".repeat(i * 2)}- x`).join("\n"),
    angles: (n) => "<".repeat(n),
    dollars: (n) => "$a ".repeat(n),
    formulas: (n) => "\\(".repeat(n),
    bars: (n) => `${"|".repeat(n)}\n${"|-".repeat(n)}`,
    tables: (n) => "a|b\n".repeat(n),
    blanks: (n) => `${" ".repeat(n)}x\n`.repeat(3),
    hashes: (n) => `# ${"#".repeat(n)} x`,
    fences: (n) => "```\n".repeat(n),
    underscores: (n) => "_a_b".repeat(n),
    addresses: (n) => "https://a.b/".repeat(n),
    entities: (n) => "&".repeat(n),
    math: (n) => "$$ a\n".repeat(n),
};

// What takes the square of its length would take minutes; then the runner's limit ends it.
test("texts made to hurt come to an end", { timeout: 120000 }, () => {
    for (const [name, make] of Object.entries(CRUEL)) {
        const text = make(60000);
        const blocks = parseMarkdown(text);
        // The depth of the tree is walked as the view walks it.
        assert.ok(JSON.stringify(blocks).length > 0, name);
        assert.equal(
            blocks
                .map((b) => b.source)
                .join("\n")
                .trim().length > 0,
            true,
            name,
        );
    }
});

test("random texts: nothing throws, no character of a plain word is lost", () => {
    let seed = 12345;
    const next = (n) => (seed = (seed * 1103515245 + 12345) % 2147483648) % n;
    const atoms = [
        "*",
        "**",
        "_",
        "`",
        "```",
        "\n",
        "\n\n",
        "- ",
        "1. ",
        "> ",
        "|",
        "---",
        "[",
        "](",
        ")",
        "$",
        "\\(",
        "\\)",
        "~~",
        "#",
        " ",
        "    ",
        "<",
        "&amp;",
        "!",
        "\t",
    ];
    const words = (parts) => JSON.stringify(parts).match(/word\d+/g) ?? [];
    for (let round = 0; round < 3000; round++) {
        let text = "";
        const said = [];
        for (let i = next(30); i > 0; i--) {
            if (next(3) === 0) {
                said.push(`word${next(1000)}`);
                text += said[said.length - 1];
            } else text += atoms[next(atoms.length)];
        }
        // A word glued to digits of the next one would read as another word.
        const want = text.match(/word\d+/g) ?? [];
        const got = words(parseMarkdown(text).map(({ source, ...block }) => block));
        assert.ok(got.length <= want.length, text);
        // What may hide a word: the address of a link, the info line of a fence, a cell beyond the header's.
        if (!/\]\(|```|~~~|\|/.test(text)) assert.deepEqual(got, want, JSON.stringify(text));
    }
});

/** A formula in short: tag(kids), or the text of a leaf. */
function formula(source) {
    const short = (n) => (n.text !== undefined ? n.text : `${n.tag}(${n.kids.map(short).join(" ")})`);
    const tree = formulaTree(source);
    return tree && short(tree).replace(/^math\((.*)\)$/, "$1");
}

test("formulas become what a browser draws", () => {
    const cases = {
        "a^2+b_{ij}": "mrow(msup(a 2) + msub(b mrow(i j)))",
        "x_i^2": "msubsup(x i 2)",
        "f''(x)": "mrow(msup(f ′′) ( x ))",
        "\\frac{-b \\pm \\sqrt{b^2-4ac}}{2a}":
            "mfrac(mrow(− b ± mrow(√ mrow(mrow(msup(b 2) − 4 a c)))) mrow(2 a))",
        "\\frac12": "mfrac(1 2)",
        "\\sum_{i=1}^n i": "mrow(munderover(∑ mrow(i = 1) n) i)",
        "\\int_0^\\infty": "msubsup(∫ 0 ∞)",
        "\\lim_{x \\to 0} x": "mrow(munder(lim mrow(x → 0)) x)",
        "\\left(\\frac ab\\right]": "mrow(( mfrac(a b) ])",
        "\\sqrt[3]{8}": "mrow(msup( 3) √ mrow(8))",
        "\\begin{pmatrix}1&2\\\\3&4\\end{pmatrix}": "mrow(( mtable(mtr(mtd(1) mtd(2)) mtr(mtd(3) mtd(4))) ))",
        "\\begin{aligned}a&=b\\\\\\end{aligned}": "mrow(mtable(mtr(mtd(a) mtd(mrow(= b)))))",
        "\\text{if } x": "mrow(if  x)",
        "\\mathbb{R}^n \\mathcal{L}": "mrow(msup(ℝ n) ℒ)",
        "\\{1, 50\\%\\}": "mrow({ 1 , 50 % })",
        "\\hat{y} \\vec v": "mrow(mover(y ^) mover(v →))",
        "\\not= \\alpha": "mrow(=\u0338 α)",
    };
    for (const [source, want] of Object.entries(cases)) assert.equal(formula(source), want, source);
});

test("a formula that is not understood is left alone", () => {
    const bad = [
        "\\foo",
        "x^",
        "{",
        "}",
        "a^b^c",
        "\\left(x",
        "\\begin{x}a\\end{x}",
        "\\begin{matrix}a",
        "\\frac{1}",
        "a & b",
        "$",
        "#",
    ];
    for (const source of bad) assert.equal(formulaTree(source), null, source);
    for (const name of ["constructor", "toString", "valueOf", "hasOwnProperty"]) {
        for (const source of [`\\${name}`, `\\begin{${name}}a\\end{${name}}`, `\\mathbb{${name}}`]) {
            assert.equal(formulaTree(source), null, source);
        }
    }
    assert.equal(formulaTree("{".repeat(60) + "x" + "}".repeat(60)), null);
    assert.equal(formulaTree("x".repeat(5000)), null);
    assert.ok(formulaTree("\\sqrt".repeat(700) + "x") !== undefined);
    let seed = 7;
    const next = (n) => (seed = (seed * 1103515245 + 12345) % 2147483648) % n;
    const atoms = [
        "{",
        "}",
        "^",
        "_",
        "\\frac",
        "\\left(",
        "\\right)",
        "x",
        "1",
        " ",
        "\\sum",
        "&",
        "\\\\",
        "\\begin{matrix}",
        "\\end{matrix}",
        "\\text{a}",
        "'",
        "\\sqrt",
        "[",
        "]",
        "\\hat",
        "\\",
    ];
    for (let round = 0; round < 5000; round++) {
        let source = "";
        for (let i = next(25); i > 0; i--) source += atoms[next(atoms.length)];
        formulaTree(source);
    }
});

test("colours leave the text as it is", { timeout: 60000 }, () => {
    const samples = {
        c: '#include <x.h>\nint main(void) { /* c */ return 0x1F + f("a\\"b", \'c\'); } // end',
        python: 'def f(x: int) -> str:\n    """doc"""\n    return f"{x}" # c',
        js: "const a = `t ${x}`; // c\nclass B extends C {}",
        sh: 'for f in *.c; do echo "$f" ${HOME}; done # c',
        json: '{"a": [1, 2.5e3, true, null]}',
        html: '<!-- c --><a href="x">t</a>',
        sql: "SELECT * FROM t WHERE a = 'b''c' -- c",
        diff: "--- a\n+++ b\n@@ -1 +1 @@\n-x\n+y\n z",
        rust: "fn f<'a>(x: &'a str) -> u8 { 'x'; 1_000 }",
        nope: "anything at all",
    };
    for (const [lang, text] of Object.entries(samples)) {
        const pieces = highlight(text, lang);
        assert.equal(pieces.map(([, t]) => t).join(""), text, lang);
        if (lang !== "nope") assert.ok(new Set(pieces.map(([k]) => k)).size > 2, lang);
    }
    for (const c of ['"', "'", "`", "/*", "//", "0", "a", "#", "<", "-", "\\", '"""']) {
        const text = c.repeat(20000);
        for (const lang of ["c", "python", "js", "sql", "xml", "yaml", "rust", "css"]) {
            assert.equal(
                highlight(text, lang)
                    .map(([, t]) => t)
                    .join("").length,
                text.length,
            );
        }
    }
});
