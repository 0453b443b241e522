/* What page_test.py looks at from inside the page: window.probe. Each function that judges returns what is
 * wrong. */
(function () {
    "use strict";

    /** [r, g, b, alpha] of a computed colour. */
    function parse(colour) {
        const m = colour.match(/[\d.]+/g).map(Number);
        const scale = colour.startsWith("color(srgb") ? 255 : 1;
        return [m[0] * scale, m[1] * scale, m[2] * scale, m[3] ?? 1];
    }

    const over = (a, b) => [0, 1, 2].map((i) => a[i] * a[3] + b[i] * (1 - a[3]));

    /** Relative luminance (WCAG 2.1). */
    function light(colour) {
        const [r, g, b] = colour.map((v) =>
            v / 255 <= 0.03928 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4,
        );
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    }

    /** What lies behind an element's text. */
    function ground(element) {
        const stack = [];
        for (let e = element; e; e = e.parentElement)
            stack.unshift(parse(getComputedStyle(e).backgroundColor));
        return stack.reduce((below, colour) => over(colour, below), [255, 255, 255]);
    }

    const seen = (e) => e.checkVisibility({ opacityProperty: true, visibilityProperty: true });

    /** Texts that stand out from their ground by less than 4.5 to 1. */
    function contrast() {
        const bad = new Set();
        const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
        for (let node = walk.nextNode(); node; node = walk.nextNode()) {
            const e = node.parentElement;
            if (!node.data.trim() || !seen(e) || e.closest(":disabled, option, .unseen, .skip, svg"))
                continue;
            const back = ground(e);
            const [a, b] = [light(over(parse(getComputedStyle(e).color), back)), light(back)];
            const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
            if (ratio < 4.5) bad.add(`${node.data.trim().slice(0, 20)}: ${ratio.toFixed(2)}`);
        }
        return [...bad];
    }

    /** What a screen reader could not name, ids that are there twice, references to nothing. */
    function nameless() {
        const bad = [];
        const kinds =
            "button, input:not([hidden]), textarea, select, summary, a, [role=meter], svg[role=img]";
        for (const e of document.querySelectorAll(kinds)) {
            const label =
                e.getAttribute("aria-label") || e.textContent.trim() || e.labels?.[0]?.textContent.trim();
            if (e.checkVisibility() && !label) bad.push(e.outerHTML.slice(0, 80));
        }
        const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
        bad.push(...ids.filter((id, i) => ids.indexOf(id) !== i).map((id) => `id ${id} twice`));
        for (const e of document.querySelectorAll("[aria-controls]")) {
            const id = e.getAttribute("aria-controls");
            if (!ids.includes(id)) bad.push(`aria-controls of ${id}, which is not there`);
        }
        return bad;
    }

    /** Elements that reach beyond the right edge, but for those that scroll by themselves. */
    function wide() {
        const bad = document.documentElement.scrollWidth > innerWidth ? ["the page itself"] : [];
        for (const e of document.querySelectorAll("body *")) {
            const box = e.getBoundingClientRect();
            const allowed = e.closest(".table, pre, .unseen, #side, svg");
            if (box.width > 0 && box.right > innerWidth + 1 && !allowed) bad.push(e.outerHTML.slice(0, 80));
        }
        return bad;
    }

    /** Buttons too small for a finger. */
    function small() {
        const bad = [...document.querySelectorAll("button")].filter((b) => {
            const size = Math.min(b.offsetWidth, b.offsetHeight);
            return size > 0 && size < 28 && !b.closest(".branches");
        });
        return bad.map((b) => b.ariaLabel || b.textContent);
    }

    /** Whether what has the focus is on the screen. */
    function focusSeen() {
        const box = document.activeElement.getBoundingClientRect();
        return document.activeElement === document.body || (box.width > 0 && box.right > 0);
    }

    window.probe = { contrast, nameless, wide, small, focusSeen };
})();
