/* The tree of markdown.js as elements. Text enters through text nodes only, addresses through safeHref.
 *
 * While an answer grows, `showMarkdown` keeps the element of every block whose source did not change and only
 * rewrites the text of a code block that grows: a selection, a scrolled code block and a focused button
 * survive. */

import { copyButton, h, icon, math, refill } from "./dom.js";
import { formulaTree } from "./formula.js";
import { highlight, knowsLanguage } from "./highlight.js";
import { parseMarkdown } from "./markdown.js";

const shown = new WeakMap(); // container -> [{source, element, update}]

/** Makes `container` show `text`. */
export function showMarkdown(container, text) {
    const blocks = parseMarkdown(text);
    const old = shown.get(container) ?? [];
    const now = blocks.map((block, i) => reuse(old[i], block) ?? place(container, old[i], blockView(block)));
    for (const gone of old.slice(blocks.length)) gone.element.remove();
    shown.set(container, now);
}

/** The view that already shows this block, or can be changed to. */
function reuse(view, block) {
    if (!view || view.type !== block.type) return null;
    if (view.source === block.source) return view;
    if (!view.update) return null;
    view.update(block);
    view.source = block.source;
    return view;
}

function place(container, old, view) {
    if (old) old.element.replaceWith(view.element);
    else container.append(view.element);
    return view;
}

function blockView(block) {
    if (block.type === "code") return codeView(block);
    return { type: block.type, source: block.source, element: blockElement(block), update: null };
}

function blockElement(block) {
    switch (block.type) {
        case "heading":
            // The page's own headings are h1 and h2.
            return h(`h${Math.min(6, block.level + 2)}`, { class: `h${block.level}` }, inline(block.inline));
        case "code":
            return codeView(block).element;
        case "math":
            return formula(block.text, true) ?? h("pre", { class: "math", text: block.text });
        case "quote":
            return h("blockquote", {}, block.blocks.map(blockElement));
        case "rule":
            return h("hr");
        case "list":
            return listElement(block);
        case "table":
            return tableElement(block);
        default:
            return h("p", {}, inline(block.inline));
    }
}

/** A formula that the browser draws, or null: its source is shown then. The source is also what is copied. */
function formula(source, display) {
    const tree = formulaTree(source, display);
    if (!tree) return null;
    const drawn = h("span", { class: display ? "formula display" : "formula", title: source }, build(tree));
    return display ? h("div", { class: "formula-frame", tabindex: "0" }, drawn) : drawn;
}

function build({ tag, text, kids, attributes }) {
    return math(tag, attributes ?? {}, text ?? kids.map(build));
}

function listElement(block) {
    const items = block.items.map((item) => {
        const box = { type: "checkbox", disabled: true, checked: item.task };
        const task =
            item.task === null ? null : h("input", { ...box, "aria-label": item.task ? "Done" : "Open" });
        // In a tight list a paragraph is its text.
        const blocks = item.blocks.flatMap((b) =>
            block.tight && b.type === "para" ? inline(b.inline) : blockElement(b),
        );
        return h("li", { class: task ? "task" : null }, task, blocks);
    });
    const start = block.ordered && block.start !== 1 ? block.start : null;
    return h(block.ordered ? "ol" : "ul", { start, class: block.tight ? "tight" : null }, items);
}

function tableElement(block) {
    const row = (cells, tag) =>
        h(
            "tr",
            {},
            cells.map((cell, i) => h(tag, { class: block.align[i] || null }, inline(cell))),
        );
    // The frame scrolls, so it must be reachable by the keyboard.
    return h(
        "div",
        { class: "table", tabindex: "0", role: "region", "aria-label": "Table" },
        h(
            "table",
            {},
            h("thead", {}, row(block.head, "th")),
            h(
                "tbody",
                {},
                block.rows.map((r) => row(r, "td")),
            ),
        ),
    );
}

function codeView(block) {
    const view = { type: "code", source: block.source, text: block.text };
    const code = h("code");
    const name = h("span", { class: "code-name" });
    const pre = h("pre", { tabindex: "0" }, code);
    const wrap = h(
        "button",
        {
            type: "button",
            class: "icon-button",
            "aria-pressed": "false",
            title: "Wrap lines",
            "aria-label": "Wrap lines",
        },
        icon("wrap"),
    );
    wrap.addEventListener("click", () => {
        wrap.setAttribute("aria-pressed", String(pre.classList.toggle("wrapped")));
    });
    const head = h(
        "div",
        { class: "code-head" },
        name,
        wrap,
        copyButton(() => view.text, "Copy code"),
    );
    view.element = h("div", { class: "code" }, head, pre);
    view.update = (next) => {
        view.text = next.text;
        name.textContent = next.lang || "text";
        pre.setAttribute("aria-label", next.lang ? `Code, ${next.lang}` : "Code");
        colour(code, next);
    };
    view.update(block);
    return view;
}

function colour(code, { text, lang }) {
    if (!knowsLanguage(lang)) {
        code.textContent = text;
        return;
    }
    const pieces = highlight(text, lang).map(([kind, piece]) =>
        kind ? h("span", { class: `c-${kind}`, text: piece }) : piece,
    );
    refill(code, pieces);
}

function inline(parts) {
    return parts.map((part) => {
        switch (part.type) {
            case "text":
                return part.text;
            case "code":
                return h("code", { text: part.text });
            case "math":
                return formula(part.text, part.display) ?? h("span", { class: "math", text: part.text });
            case "break":
                return h("br");
            case "em":
                return h("em", {}, inline(part.parts));
            case "strong":
                return h("strong", {}, inline(part.parts));
            case "strike":
                return h("del", {}, inline(part.parts));
            default:
                return h(
                    "a",
                    { href: part.href, target: "_blank", rel: "noopener noreferrer nofollow" },
                    inline(part.parts),
                );
        }
    });
}
