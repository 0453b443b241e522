/* Questions, menus and short messages. Dialogs are <dialog>: the browser keeps the focus inside and Esc
 * closes. */

import { append, byId, h, icon } from "./dom.js";

/** Shows a dialog with these children; kept with what `close(value)` was given, null for Esc. */
function ask(title, build) {
    return new Promise((resolve) => {
        const titleId = `title-${Math.random().toString(36).slice(2)}`;
        const dialog = h("dialog", { class: "dialog", "aria-labelledby": titleId });
        let result = null;
        const close = (value) => {
            result = value;
            dialog.close();
        };
        dialog.append(h("h2", { id: titleId, text: title }));
        append(dialog, build(close));
        dialog.addEventListener("close", () => {
            dialog.remove();
            resolve(result);
        });
        dialog.addEventListener("click", (event) => {
            if (event.target === dialog) dialog.close();
        });
        document.body.append(dialog);
        dialog.showModal();
    });
}

/** A form whose `field` is answered with its text, or null. */
function askText(title, { label, value = "", hint = "", type = "text", button, extra = null }) {
    return ask(title, (close) => {
        const field = h("input", {
            type,
            autocomplete: "off",
            spellcheck: "false",
            autofocus: true,
            props: { value },
        });
        const form = h(
            "form",
            { method: "dialog" },
            hint ? h("p", { class: "muted", text: hint }) : null,
            h("label", { class: "field" }, h("span", { text: label }), field),
            extra,
            h(
                "div",
                { class: "row end" },
                h("button", {
                    type: "button",
                    class: "button",
                    text: "Cancel",
                    on: { click: () => close(null) },
                }),
                h("button", { type: "submit", class: "button primary", text: button }),
            ),
        );
        form.addEventListener("submit", (event) => {
            event.preventDefault();
            close(field.value);
        });
        return [form];
    });
}

export function askTitle(value) {
    return askText("Rename conversation", { label: "Title", value, button: "Rename" });
}

/** {key, keep} or null. `wrong`: a key was tried and refused. */
export async function askKey(wrong, kept) {
    const keep = h("input", { type: "checkbox", props: { checked: kept } });
    const hint = wrong
        ? "The server did not accept the key."
        : "This server was started with a key. It stays in this browser and is sent to this server only.";
    const key = await askText("API key", {
        label: "Key",
        hint,
        type: "password",
        button: "Use",
        extra: h("label", { class: "check" }, keep, "Keep it in this browser"),
    });
    return key === null ? null : { key: key.trim(), keep: keep.checked };
}

/** true when the question was answered with `button`. */
export async function confirmed(title, text, button) {
    const yes = await ask(title, (close) => [
        h("p", { text }),
        h(
            "div",
            { class: "row end" },
            h("button", {
                type: "button",
                class: "button",
                text: "Cancel",
                on: { click: () => close(false) },
            }),
            h("button", {
                type: "button",
                class: "button danger",
                autofocus: true,
                text: button,
                on: { click: () => close(true) },
            }),
        ),
    ]);
    return yes === true;
}

const SHORTCUTS = [
    ["Enter", "send"],
    ["Shift + Enter", "new line"],
    ["Esc", "stop the answer, close a panel"],
    ["↑ in the empty field", "edit your last message"],
    ["Ctrl + Shift + O", "new conversation"],
    ["Ctrl + K", "find a conversation"],
    ["Ctrl + ,", "settings"],
    ["Ctrl + Shift + M", "monitor"],
    ["?", "this list"],
];

export function showShortcuts() {
    return ask("Keyboard", (close) => [
        h(
            "dl",
            { class: "rows" },
            SHORTCUTS.map(([keys, what]) =>
                h("div", {}, h("dt", {}, h("kbd", { text: keys })), h("dd", { text: what })),
            ),
        ),
        h(
            "div",
            { class: "row end" },
            h("button", {
                type: "button",
                class: "button",
                autofocus: true,
                text: "Close",
                on: { click: () => close(null) },
            }),
        ),
    ]);
}

/** A menu below a button. items: {label, icon, run, danger}; arrows walk, Esc and a click elsewhere close. */
export function openMenu(button, items) {
    const menu = h("ul", { class: "menu", role: "menu" });
    const close = (focus) => {
        menu.remove();
        button.setAttribute("aria-expanded", "false");
        document.removeEventListener("pointerdown", outside, true);
        if (focus) button.focus();
    };
    const outside = (event) => {
        if (!menu.contains(event.target)) close(false);
    };
    for (const item of items) {
        const run = () => {
            close(true);
            item.run();
        };
        menu.append(
            h(
                "li",
                { role: "none" },
                h(
                    "button",
                    {
                        type: "button",
                        role: "menuitem",
                        class: item.danger ? "danger" : null,
                        on: { click: run },
                    },
                    icon(item.icon),
                    item.label,
                ),
            ),
        );
    }
    menu.addEventListener("keydown", (event) => walkMenu(event, menu, close));
    document.body.append(menu);
    const box = button.getBoundingClientRect();
    const left = Math.min(box.left, document.documentElement.clientWidth - menu.offsetWidth - 8);
    const below = box.bottom + menu.offsetHeight + 8 < document.documentElement.clientHeight;
    menu.style.left = `${Math.max(8, left)}px`;
    menu.style.top = `${below ? box.bottom + 4 : Math.max(8, box.top - menu.offsetHeight - 4)}px`;
    button.setAttribute("aria-expanded", "true");
    document.addEventListener("pointerdown", outside, true);
    menu.querySelector("button").focus();
}

function walkMenu(event, menu, close) {
    const all = [...menu.querySelectorAll("button")];
    const at = all.indexOf(document.activeElement);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1 + all.length, Home: 0, End: all.length - 1 }[event.key];
    if (to !== undefined) all[to % all.length].focus();
    else if (event.key === "Escape" || event.key === "Tab") close(event.key === "Escape");
    else return;
    event.stopPropagation();
    event.preventDefault();
}

/** A line that goes away by itself; with an action it stays longer. */
export function toast(text, action = null) {
    const line = h("div", { class: "toast" }, h("span", { text }));
    if (action) {
        line.append(
            h("button", {
                type: "button",
                class: "link-button",
                text: action.label,
                on: { click: () => (line.remove(), action.run()) },
            }),
        );
    }
    byId("toasts").append(line);
    setTimeout(() => line.remove(), action ? 8000 : 4000);
}

/** Tells a screen reader, and nobody else. */
export function announce(text) {
    byId("announce").textContent = text;
}
