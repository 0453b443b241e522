/* Markdown as models write it: text -> a tree of plain objects. What the tree looks like on screen is
 * markdown_view.js; no HTML text is made anywhere, so nothing a model writes can become markup.
 *
 * CommonMark with tables, task lists, strike-through and bare links, and these choices: a single line break
 * is a break; HTML is shown as text; `---` below a line is a rule, not a heading; pictures become links,
 * because nothing is loaded from elsewhere; formulas ($$..$$, \[..\], \(..\), $..$) are kept apart, so that
 * their underscores are no emphasis. Every loop is bounded: time is linear in the text but for MAX_DEPTH and
 * MAX_OPEN.
 *
 * Blocks:  {type: "heading", level, inline}  {type: "para", inline}  {type: "code", lang, text, open}
 *          {type: "math", text}  {type: "quote", blocks}  {type: "rule"}
 *          {type: "list", ordered, start, tight, items: [{task, blocks}]}
 *          {type: "table", align: ["left"|"right"|"center"|""], head: [inline], rows: [[inline]]}
 * A top block also has `source`, its lines as written: equal source means an equal block.
 * Inline parts are in markdown_inline.js. */

import { parseInline } from "./markdown_inline.js";

const MAX_DEPTH = 12;

/** The blocks of a text. */
export function parseMarkdown(text) {
    const lines = text.replace(/\r\n?/g, "\n").split("\n");
    return parseBlocks(lines, 0, true);
}

const FENCE = /^( {0,3})(`{3,}|~{3,})[ \t]*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]|$)/;
const RULE = /^ {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$/;
const QUOTE = /^ {0,3}>/;
const MARKER = /^( *)([-*+]|\d{1,9}[.)])( +|$)/;
const MATH = /^ {0,3}(\$\$|\\\[)/;

function isBlank(line) {
    return line.trim() === "";
}

function indentOf(line) {
    return line.length - line.trimStart().length;
}

/** Leading tabs as four spaces, so that columns can be counted. */
function untab(line) {
    return line.replace(/^[ \t]+/, (blank) => blank.replace(/\t/g, "    "));
}

/** Each reader takes (lines, at, depth) and returns {block, next}, or null when no such block starts there.
 *  */
const READERS = [readFence, readMath, readHeading, readRule, readQuote, readList, readTable, readIndented];

function parseBlocks(lines, depth, top = false) {
    const blocks = [];
    let at = 0;
    while (at < lines.length) {
        if (isBlank(lines[at])) {
            at += 1;
            continue;
        }
        const { block, next } = readBlock(lines, at, depth);
        if (top) block.source = lines.slice(at, next).join("\n");
        blocks.push(block);
        at = next;
    }
    return blocks;
}

function readBlock(lines, at, depth) {
    if (depth < MAX_DEPTH) {
        for (const reader of READERS) {
            const found = reader(lines, at, depth);
            if (found) return found;
        }
    }
    return readParagraph(lines, at);
}

function readFence(lines, at) {
    const open = FENCE.exec(untab(lines[at]));
    if (!open) return null;
    const [, indent, fence, info] = open;
    const body = [];
    let next = at + 1;
    let closed = false;
    for (; next < lines.length && !closed; next++) {
        const line = untab(lines[next]);
        const bare = line.trim();
        closed = bare.length >= fence.length && indentOf(line) < 4 && bare === fence[0].repeat(bare.length);
        if (!closed) body.push(lines[next].slice(Math.min(indentOf(lines[next]), indent.length)));
    }
    const lang = info.trim().split(/\s/)[0];
    return { block: { type: "code", lang, text: body.join("\n"), open: !closed }, next };
}

/** $$ .. $$ or \[ .. \] from a line's start to a line's end; without its end before a blank line it is text.
 *  */
function readMath(lines, at) {
    const open = MATH.exec(lines[at]);
    if (!open) return null;
    const close = open[1] === "$$" ? "$$" : "\\]";
    let text = lines[at].slice(open[0].length);
    for (let next = at + 1; ; next++) {
        const end = text.indexOf(close);
        if (end >= 0) {
            if (!isBlank(text.slice(end + 2))) return null;
            return { block: { type: "math", text: text.slice(0, end).trim() }, next };
        }
        if (next - at > 200 || next >= lines.length || isBlank(lines[next])) return null;
        text += `\n${lines[next]}`;
    }
}

function readHeading(lines, at) {
    const open = HEADING.exec(lines[at]);
    if (!open) return null;
    let text = lines[at].slice(open[0].length).trim();
    let end = text.length;
    while (text[end - 1] === "#") end -= 1;
    const bare = text.slice(0, end);
    if (bare === "" || /[ \t]$/.test(bare)) text = bare.trimEnd();
    return { block: { type: "heading", level: open[1].length, inline: parseInline(text) }, next: at + 1 };
}

function readRule(lines, at) {
    return RULE.test(lines[at]) ? { block: { type: "rule" }, next: at + 1 } : null;
}

function readQuote(lines, at, depth) {
    if (!QUOTE.test(lines[at])) return null;
    const inner = [];
    let next = at;
    for (; next < lines.length && !isBlank(lines[next]); next++) {
        const quoted = QUOTE.test(lines[next]);
        if (!quoted && startsBlock(lines, next)) break;
        inner.push(quoted ? lines[next].replace(/^ {0,3}> ?/, "") : lines[next]);
    }
    return { block: { type: "quote", blocks: parseBlocks(inner, depth + 1) }, next };
}

function marker(line) {
    const found = MARKER.exec(untab(line));
    if (!found || RULE.test(line)) return null;
    const [all, blank, sign, gap] = found;
    const ordered = sign.length > 1;
    const wide = gap.length > 4 || gap.length === 0;
    return {
        indent: blank.length,
        ordered,
        kind: ordered ? sign[sign.length - 1] : sign,
        number: ordered ? Number(sign.slice(0, -1)) : 1,
        width: wide ? blank.length + sign.length + 1 : all.length,
        empty: untab(line).slice(all.length) === "",
    };
}

function readList(lines, at, depth) {
    const first = marker(lines[at]);
    if (!first || first.indent > 3) return null;
    // "42." alone is an answer, not an empty list.
    if (first.ordered && first.empty && isBlank(lines[at + 1] ?? "")) return null;
    const list = { type: "list", ordered: first.ordered, start: first.number, tight: true, items: [] };
    let next = at;
    let gap = false;
    for (;;) {
        const mark = next < lines.length ? marker(lines[next]) : null;
        // A marker up to one column further in than the first is the next item, not a child.
        if (!mark || mark.kind !== first.kind || mark.indent > first.indent + 1) break;
        if (gap) list.tight = false;
        const item = readItem(lines, next, mark);
        list.items.push(listItem(item.inner, depth, list));
        next = item.next;
        gap = false;
        while (next < lines.length && isBlank(lines[next])) {
            next += 1;
            gap = true;
        }
    }
    return { block: list, next };
}

/** The lines of one item, without their indent. Children need not stand quite below the item's text: models
 *  indent by two below "1. ". */
function readItem(lines, at, mark) {
    const inner = [untab(lines[at]).slice(mark.width)];
    let next = at + 1;
    let blank = false;
    for (; next < lines.length; next++) {
        const line = untab(lines[next]);
        if (isBlank(line)) {
            blank = true;
            inner.push("");
            continue;
        }
        const indent = indentOf(line);
        const child = marker(line);
        const inside = indent >= mark.width || (child !== null && indent >= mark.indent + 2);
        if (!inside && (blank || child || startsBlock(lines, next))) break;
        inner.push(line.slice(Math.min(indent, mark.width)));
        blank = false;
    }
    while (inner.length > 1 && inner[inner.length - 1] === "") {
        inner.pop();
        next -= 1;
    }
    return { inner, next };
}

function listItem(inner, depth, list) {
    const task = /^\[([ xX])\] +/.exec(inner[0]);
    if (task) inner[0] = inner[0].slice(task[0].length);
    const blocks = parseBlocks(inner, depth + 1);
    // A blank line between two paragraphs makes the list airy; one before a child list does not.
    if (blocks.filter((b) => b.type === "para").length > 1) list.tight = false;
    return { task: task ? task[1] !== " " : null, blocks };
}

const DELIMITER = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;

function readTable(lines, at) {
    if (!lines[at].includes("|") || at + 1 >= lines.length) return null;
    if (!lines[at + 1].includes("-") || !DELIMITER.test(lines[at + 1])) return null;
    const head = cells(lines[at]);
    const align = cells(lines[at + 1]).map(alignment);
    if (head.length !== align.length) return null;
    const table = { type: "table", align, head: head.map((x) => parseInline(x)), rows: [] };
    let next = at + 2;
    for (; next < lines.length && !isBlank(lines[next]); next++) {
        if (!lines[next].includes("|") && startsBlock(lines, next)) break;
        const row = cells(lines[next]).slice(0, align.length);
        while (row.length < align.length) row.push("");
        table.rows.push(row.map((x) => parseInline(x)));
    }
    return { block: table, next };
}

function alignment(cell) {
    const left = cell.startsWith(":");
    const right = cell.endsWith(":");
    return left && right ? "center" : right ? "right" : left ? "left" : "";
}

/** The cells of a row; a bar in a code span or behind a backslash is part of its cell. */
function cells(line) {
    const out = [];
    let cell = "";
    let code = false;
    const row = line.trim().replace(/^\|/, "");
    for (let i = 0; i < row.length; i++) {
        const c = row[i];
        if (c === "\\" && row[i + 1] === "|") {
            cell += "|";
            i += 1;
        } else if (c === "|" && !code) {
            out.push(cell.trim());
            cell = "";
        } else {
            if (c === "`") code = !code && row.includes("`", i + 1);
            cell += c;
        }
    }
    if (cell.trim() !== "" || out.length === 0) out.push(cell.trim());
    return out;
}

function readIndented(lines, at) {
    if (indentOf(untab(lines[at])) < 4) return null;
    const body = [];
    let next = at;
    for (; next < lines.length; next++) {
        const line = untab(lines[next]);
        if (!isBlank(line) && indentOf(line) < 4) break;
        body.push(line.slice(4));
    }
    while (isBlank(body[body.length - 1])) {
        body.pop();
        next -= 1;
    }
    return { block: { type: "code", lang: "", text: body.join("\n"), open: false }, next };
}

/** Whether a line ends the paragraph before it. */
function startsBlock(lines, at) {
    const line = lines[at];
    if (FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line)) return true;
    const mark = marker(line);
    if (mark && mark.indent < 4 && !mark.empty && (!mark.ordered || mark.number === 1)) return true;
    if (MATH.test(line)) return readMath(lines, at) !== null;
    return line.includes("|") && readTable(lines.slice(at, at + 2), 0) !== null;
}

function readParagraph(lines, at) {
    let next = at + 1;
    while (next < lines.length && !isBlank(lines[next]) && !startsBlock(lines, next)) next += 1;
    const text = lines
        .slice(at, next)
        .map((line) => line.trimStart())
        .join("\n");
    return { block: { type: "para", inline: parseInline(text.trimEnd()) }, next };
}
