/* The inside of a paragraph: text -> parts.
 *
 *     {type: "text", text}  {type: "code", text}  {type: "math", text, display}  {type: "break"}
 *     {type: "em" | "strong" | "strike", parts}  {type: "link", href, parts}
 *
 * Emphasis follows the delimiter algorithm of CommonMark 0.31, section 6.2. The scanner walks the text once;
 * what it cannot decide yet (runs of * _ ~, open brackets) lies in two bounded stacks, so that a million
 * stars cost a million steps and not their square. */

const MAX_OPEN = 64; // delimiter runs and brackets that may wait at a time; the depth of the tree follows
const MAX_RUN = 6; // a longer row of stars is no emphasis
const MAX_FORMULA = 2000; // characters

/** The parts of a text. */
export function parseInline(text) {
    return new Scanner(text).run();
}

/** The address when it is one the page may link to, else "". No script, no file, nothing relative to this
 *  page. */
export function safeHref(address) {
    const plain = Array.from(address.trim(), (c) => (c > " " && c !== "\u007f" ? c : "")).join("");
    return /^(https?:\/\/[^/]|mailto:[^/])/i.test(plain) ? plain : "";
}

const ENTITIES = {
    amp: "&",
    lt: "<",
    gt: ">",
    quot: '"',
    apos: "'",
    nbsp: "\u00a0",
    hellip: "…",
    mdash: "—",
    ndash: "–",
};
const PUNCTUATION = /[!-/:-@[-`{-~]/;

function isSpace(c) {
    return c === "" || /\s/u.test(c);
}

function isPunctuation(c) {
    return /[\p{P}\p{S}]/u.test(c);
}

class Scanner {
    constructor(text) {
        this.text = text;
        this.at = 0;
        this.parts = []; // finished parts, and runs {type: "run", ...} that may still become emphasis
        this.brackets = []; // {index in parts, at in text, picture}
        this.ticks = null; // length of a run of backticks -> {starts: where they are, next: one to look at}
    }

    run() {
        while (this.at < this.text.length) {
            const c = this.text[this.at];
            const handler = HANDLERS[c];
            if (!handler || !this[handler](c)) this.plain();
        }
        this.parts = emphasis(this.parts);
        return merge(this.parts);
    }

    say(text) {
        const last = this.parts[this.parts.length - 1];
        if (last?.type === "text") last.text += text;
        else this.parts.push({ type: "text", text });
    }

    /** One character, and all after it that cannot start anything. */
    plain() {
        SPECIAL.lastIndex = this.at + 1;
        const found = SPECIAL.exec(this.text);
        const end = found ? found.index : this.text.length;
        this.say(this.text.slice(this.at, end));
        this.at = end;
    }

    escape() {
        const next = this.text[this.at + 1] ?? "";
        if (next === "(" || next === "[") {
            const end = findNear(this.text, next === "(" ? "\\)" : "\\]", this.at + 2);
            if (end >= 0) {
                const text = this.text.slice(this.at + 2, end).trim();
                this.parts.push({ type: "math", text, display: next === "[" });
                this.at = end + 2;
                return true;
            }
        }
        if (next === "\n") this.parts.push({ type: "break" });
        else if (PUNCTUATION.test(next)) this.say(next);
        else return false;
        this.at += 2;
        return true;
    }

    code() {
        const open = /`+/y;
        open.lastIndex = this.at;
        const { length } = open.exec(this.text)[0];
        this.ticks ??= ticksOf(this.text);
        const runs = this.ticks.get(length);
        while (runs.next < runs.starts.length && runs.starts[runs.next] <= this.at) runs.next += 1;
        if (runs.next === runs.starts.length) {
            this.say("`".repeat(length));
            this.at += length;
            return true;
        }
        const end = runs.starts[runs.next];
        let text = this.text.slice(this.at + length, end).replace(/\n/g, " ");
        if (text.startsWith(" ") && text.endsWith(" ") && text.trim() !== "") text = text.slice(1, -1);
        this.parts.push({ type: "code", text });
        this.at = end + length;
        return true;
    }

    /** $x$ is a formula when neither dollar has a blank inside and no digit follows: prices stay prices. */
    dollar() {
        const display = this.text[this.at + 1] === "$";
        const size = display ? 2 : 1;
        const end = findNear(this.text, display ? "$$" : "$", this.at + size);
        if (end < 0) return false;
        const text = this.text.slice(this.at + size, end);
        const tight = !isSpace(text[0] ?? "") && !isSpace(text[text.length - 1] ?? "");
        if (!display && (!tight || text.includes("\n\n") || /\d/.test(this.text[end + 1] ?? "")))
            return false;
        if (text.trim() === "") return false;
        this.parts.push({ type: "math", text: text.trim(), display });
        this.at = end + size;
        return true;
    }

    newline() {
        const last = this.parts[this.parts.length - 1];
        if (last?.type === "text") last.text = last.text.trimEnd();
        this.parts.push({ type: "break" });
        this.at += 1;
        while (this.text[this.at] === " ") this.at += 1;
        return true;
    }

    angle() {
        const found = /<((?:https?:\/\/|mailto:)[^\s<>]{1,2000})>|<br\s{0,3}\/?>/iy;
        found.lastIndex = this.at;
        const tag = found.exec(this.text);
        if (!tag) return false;
        if (tag[1]) this.link(tag[1].replace(/^mailto:/i, ""), tag[1]);
        else this.parts.push({ type: "break" });
        this.at += tag[0].length;
        return true;
    }

    entity() {
        const found = /&(?:(\w{2,6})|#(\d{1,7})|#x([\da-f]{1,6}));/iy;
        found.lastIndex = this.at;
        const name = found.exec(this.text);
        if (!name) return false;
        const code = name[2] ? Number(name[2]) : parseInt(name[3] ?? "0", 16);
        const valid = code > 31 && code < 0x110000 && !(code >= 0xd800 && code < 0xe000);
        const letter = name[1] ? ENTITIES[name[1]] : valid ? String.fromCodePoint(code) : undefined;
        if (letter === undefined) return false;
        this.say(letter);
        this.at += name[0].length;
        return true;
    }

    /** A bare http(s) address; closing punctuation and a bracket it did not open are not part of it. */
    bare() {
        const before = this.text[this.at - 1] ?? "";
        if (/[\p{L}\p{N}_/]/u.test(before)) return false;
        const found = /https?:\/\/[^\s<>"`|\\^{}]{2,2000}/iy;
        found.lastIndex = this.at;
        const match = found.exec(this.text);
        if (!match) return false;
        let address = match[0].replace(/[.,;:!?'*_~]+$/, "");
        while (address.endsWith(")") && !address.includes("(")) address = address.slice(0, -1);
        address = address.replace(/[.,;:!?'*_~]+$/, "");
        // Brackets end an address inside [text](...), whose own end must stay visible.
        address = address.split("]")[0];
        this.link(address, address);
        this.at += address.length;
        return true;
    }

    link(text, address) {
        const href = safeHref(address);
        if (href) this.parts.push({ type: "link", href, parts: [{ type: "text", text }] });
        else this.say(text);
    }

    delimiters(sign) {
        let end = this.at + 1;
        while (this.text[end] === sign) end += 1;
        const count = end - this.at;
        const before = charBefore(this.text, this.at);
        const after = charAfter(this.text, end);
        const left = !isSpace(after) && (!isPunctuation(after) || isSpace(before) || isPunctuation(before));
        const right = !isSpace(before) && (!isPunctuation(before) || isSpace(after) || isPunctuation(after));
        const word = sign === "_";
        const opens = left && (!word || !right || isPunctuation(before));
        const closes = right && (!word || !left || isPunctuation(after));
        this.at = end;
        if ((!opens && !closes) || count > (sign === "~" ? 2 : MAX_RUN)) this.say(sign.repeat(count));
        else this.parts.push({ type: "run", sign, count, whole: count, opens, closes });
        return true;
    }

    open(sign) {
        const picture = sign === "!";
        if (picture && this.text[this.at + 1] !== "[") return false;
        this.at += picture ? 2 : 1;
        if (this.brackets.length >= MAX_OPEN) {
            this.say(picture ? "![" : "[");
            return true;
        }
        this.brackets.push({ index: this.parts.length, picture });
        // A part of its own: text after it must not be joined to text before it.
        this.parts.push({ type: "mark", text: picture ? "![" : "[" });
        return true;
    }

    close() {
        const open = this.brackets.pop();
        const target = open ? linkTarget(this.text, this.at + 1) : null;
        if (!target) return false;
        const inner = merge(emphasis(this.parts.splice(open.index + 1)));
        this.parts.pop();
        const href = safeHref(target.address);
        const parts = inner.length > 0 ? inner : [{ type: "text", text: target.address }];
        if (href) {
            this.parts.push({
                type: "link",
                href,
                parts: open.picture ? parts : parts.flatMap(withoutLinks),
            });
            this.brackets = []; // no link inside a link
        } else {
            this.parts.push(...parts);
        }
        this.at = target.end;
        return true;
    }
}

const HANDLERS = {
    "\\": "escape",
    "`": "code",
    $: "dollar",
    "\n": "newline",
    "<": "angle",
    "&": "entity",
    h: "bare",
    "*": "delimiters",
    _: "delimiters",
    "~": "delimiters",
    "[": "open",
    "!": "open",
    "]": "close",
};
const SPECIAL = /[\\`$\n<&*_~[\]!]|https?:\/\//g;

function ticksOf(text) {
    const starts = new Map();
    for (const run of text.matchAll(/`+/g)) {
        const { length } = run[0];
        if (!starts.has(length)) starts.set(length, { starts: [], next: 0 });
        starts.get(length).starts.push(run.index);
    }
    return starts;
}

/** Where a formula's end is, at most MAX_FORMULA characters ahead; -1: none. */
function findNear(text, end, from) {
    const at = text.slice(from, from + MAX_FORMULA).indexOf(end);
    return at < 0 ? -1 : from + at;
}

function charBefore(text, at) {
    if (at === 0) return "";
    const low = text.charCodeAt(at - 1);
    return low >= 0xdc00 && low < 0xe000 ? text.slice(Math.max(0, at - 2), at) : text[at - 1];
}

function charAfter(text, at) {
    return at < text.length ? String.fromCodePoint(text.codePointAt(at)) : "";
}

// ( address or <address>, then perhaps "title" or 'title', ). Counts are bounded: no scan to the end.
const TARGET = new RegExp(
    "\\(\\s{0,9}" +
        "(?:<([^<>\\n]{0,2000})>|((?:\\\\.|[^\\s()\\\\]|\\([^\\s()\\\\]{0,500}\\)){0,2000}))" +
        "(?:\\s{1,9}\"[^\"\\n]{0,500}\"|\\s{1,9}'[^'\\n]{0,500}')?" +
        "\\s{0,9}\\)",
    "y",
);

/** (address "title") right after a closing bracket: {address, end}, or null. */
function linkTarget(text, at) {
    TARGET.lastIndex = at;
    const target = TARGET.exec(text);
    if (!target) return null;
    const address = (target[1] ?? target[2]).replace(/\\([!-/:-@[-`{-~])/g, "$1");
    return { address, end: at + target[0].length };
}

function withoutLinks(part) {
    return part.type === "link" ? part.parts : [part];
}

/** Runs of delimiters become emphasis around what lies between them. */
function emphasis(parts) {
    const out = [];
    const openers = []; // indices into out of runs that may open
    for (const part of parts) {
        if (part.type !== "run") {
            out.push(part);
            continue;
        }
        if (part.closes) closeRun(part, out, openers);
        if (part.count === 0) continue;
        out.push(part);
        if (!part.opens) continue;
        openers.push(out.length - 1);
        if (openers.length > MAX_OPEN) openers.shift();
    }
    return out;
}

function closeRun(closer, out, openers) {
    while (closer.count > 0) {
        const found = openers.findLastIndex((i) => matches(out[i], closer));
        if (found < 0) return;
        const at = openers[found];
        const opener = out[at];
        const strike = closer.sign === "~";
        const used = strike ? closer.count : Math.min(2, opener.count, closer.count);
        const inner = merge(out.splice(at + 1));
        opener.count -= used;
        closer.count -= used;
        openers.length = opener.count > 0 ? found + 1 : found;
        if (opener.count === 0) out.pop();
        out.push({ type: strike ? "strike" : used === 2 ? "strong" : "em", parts: inner });
    }
}

function matches(opener, closer) {
    if (opener.sign !== closer.sign || opener.count === 0) return false;
    if (closer.sign === "~") return opener.count === closer.count;
    // CommonMark's rule of three: *foo**bar* must not close inside itself.
    const both = opener.closes || closer.opens;
    const threes = opener.whole % 3 === 0 && closer.whole % 3 === 0;
    return !both || (opener.whole + closer.whole) % 3 !== 0 || threes;
}

/** What is still a run or a mark is text after all; neighbours of text become one. */
function merge(parts) {
    const out = [];
    for (const part of parts) {
        let text = null;
        if (part.type === "run") text = part.sign.repeat(part.count);
        else if (part.type === "text" || part.type === "mark") text = part.text;
        const last = out[out.length - 1];
        if (text === null) out.push(part);
        else if (text !== "" && last?.type === "text") last.text += text;
        else if (text !== "") out.push({ type: "text", text });
    }
    return out;
}
