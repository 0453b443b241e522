/* Elements, made without any HTML text: the page's content-security policy forbids innerHTML altogether. */

const SVG = "http://www.w3.org/2000/svg";
const MATHML = "http://www.w3.org/1998/Math/MathML";

/** An element. props: attributes by name; `class`, `text`, `on: {event: handler}`, `props: {property:
 *  value}`. A false, null or undefined attribute is left out, true is an empty one. Children: nodes, strings,
 *  falsy: none. */
export function h(tag, props = {}, ...kids) {
    return fill(document.createElement(tag), props, kids);
}

/** The same in SVG. */
export function svg(tag, props = {}, ...kids) {
    return fill(document.createElementNS(SVG, tag), props, kids);
}

/** The same in MathML. */
export function math(tag, props = {}, ...kids) {
    return fill(document.createElementNS(MATHML, tag), props, kids);
}

function fill(element, props, kids) {
    for (const [name, value] of Object.entries(props)) {
        if (value === false || value === null || value === undefined) continue;
        if (name === "text") element.textContent = value;
        else if (name === "on")
            for (const [type, handler] of Object.entries(value)) element.addEventListener(type, handler);
        else if (name === "props") Object.assign(element, value);
        else element.setAttribute(name, value === true ? "" : String(value));
    }
    append(element, kids);
    return element;
}

export function append(element, kids) {
    for (const kid of kids.flat(Infinity))
        if (kid !== null && kid !== undefined && kid !== false) element.append(kid);
}

/** Replaces all children. */
export function refill(element, ...kids) {
    element.replaceChildren();
    append(element, kids);
    return element;
}

/** Sets the text only when it differs: a selection in it survives, a screen reader is not told twice. */
export function setText(element, text) {
    if (element.textContent !== text) element.textContent = text;
}

export function byId(id) {
    return document.getElementById(id);
}

const ICONS = {
    plus: ["M12 5v14", "M5 12h14"],
    send: ["M12 19V5", "M6 11l6-6 6 6"],
    stop: ["M7 7h10v10H7z"],
    copy: ["M9 9h10v11H9z", "M5 15V4h10"],
    check: ["M5 12.5l4.5 4.5L19 7"],
    edit: ["M4 20h4L19 9l-4-4L4 16z", "M13 7l4 4"],
    retry: ["M19 12a7 7 0 1 1-2.2-5.1", "M19 4v4h-4"],
    left: ["M14 6l-6 6 6 6"],
    right: ["M10 6l6 6-6 6"],
    down: ["M12 5v14", "M6 13l6 6 6-6"],
    close: ["M6 6l12 12", "M18 6L6 18"],
    menu: ["M4 7h16", "M4 12h16", "M4 17h16"],
    more: ["M6 12h.01", "M12 12h.01", "M18 12h.01"],
    sliders: ["M4 8h9", "M17 8h3", "M15 6v4", "M4 16h3", "M11 16h9", "M9 14v4"],
    chart: ["M4 20V4", "M4 20h16", "M8 15l4-5 3 3 5-7"],
    attach: [
        "M19 11.5l-7.2 7.2a4.2 4.2 0 0 1-6-6L13 5.5a2.8 2.8 0 0 1 4 4l-7.2 7.2a1.4 1.4 0 0 1-2-2l6.4-6.4",
    ],
    file: ["M7 3h7l4 4v14H7z", "M14 3v4h4"],
    trash: ["M5 7h14", "M10 7V4h4v3", "M7 7l1 13h8l1-13"],
    download: ["M12 4v11", "M7 11l5 5 5-5", "M5 20h14"],
    upload: ["M12 16V5", "M7 9l5-5 5 5", "M5 20h14"],
    search: ["M11 18a7 7 0 1 1 0-14 7 7 0 0 1 0 14z", "M16 16l4 4"],
    chat: ["M4 5h16v11H10l-4 4v-4H4z"],
    key: ["M8 16a4 4 0 1 1 3.5-6H20v4h-3v2h-3v-2h-2.5A4 4 0 0 1 8 16z"],
    warn: ["M12 4l9 16H3z", "M12 10v4", "M12 17h.01"],
    wrap: ["M4 6h16", "M4 12h13a3 3 0 0 1 0 6h-4", "M15 15l-3 3 3 3", "M4 18h4"],
    side: ["M4 5h16v14H4z", "M10 5v14"],
    cut: ["M4 12h3", "M10.5 12h3", "M17 12h3", "M12 4v3", "M12 17v3"],
    keyboard: ["M3 7h18v11H3z", "M7 11h.01", "M11 11h.01", "M15 11h.01", "M8 15h8"],
};

/** A picture of 20 px from the table above; it says nothing to a screen reader, its button does. */
export function icon(name) {
    const paths = ICONS[name].map((d) => svg("path", { d }));
    return svg(
        "svg",
        { class: `icon icon-${name}`, viewBox: "0 0 24 24", "aria-hidden": "true", focusable: "false" },
        paths,
    );
}

/** A button with a picture and a name that is read out and shown on hover. */
export function iconButton(name, label, onclick, props = {}) {
    const all = { type: "button", class: "icon-button", title: label, "aria-label": label, ...props };
    return h("button", { ...all, on: { click: onclick } }, icon(name));
}

/** Copies text, also where the page came over plain HTTP and the browser has no clipboard for it. */
export async function copyText(text) {
    if (navigator.clipboard && window.isSecureContext) {
        try {
            await navigator.clipboard.writeText(text);
            return true;
        } catch {
            // not allowed: the old way below
        }
    }
    const area = h("textarea", { class: "unseen", "aria-hidden": "true", props: { value: text } });
    const focused = document.activeElement;
    (document.querySelector("dialog[open]") ?? document.body).append(area);
    area.select();
    const good = document.execCommand("copy");
    area.remove();
    focused?.focus?.();
    return good;
}

/** A button that copies what `text()` gives and shows for a moment that it did. */
export function copyButton(text, label = "Copy") {
    const button = iconButton("copy", label, async () => {
        const good = await copyText(text());
        refill(button, icon(good ? "check" : "warn"));
        button.setAttribute("aria-label", good ? "Copied" : "Copying is not allowed here");
        setTimeout(() => {
            refill(button, icon("copy"));
            button.setAttribute("aria-label", label);
        }, 1500);
    });
    return button;
}

/** Offers a text as a file. */
export function download(name, text, type) {
    const url = URL.createObjectURL(new Blob([text], { type }));
    h("a", { href: url, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
}
