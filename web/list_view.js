/* The list of conversations, by day, with a field that finds in titles. */

import { h, iconButton, refill } from "./dom.js";
import { dayGroup } from "./format.js";

export class ListView {
    /** actions: {menu(button, line)}; note: a sentence below the list */
    constructor({ list, search }, actions, note = "") {
        Object.assign(this, { list, search, actions, note });
        this.lines = [];
        this.current = "";
        this.running = new Set();
        search.addEventListener("input", () => this.#draw());
        search.addEventListener("keydown", (event) => {
            if (event.key === "Escape") {
                search.value = "";
                this.#draw();
            } else if (event.key === "ArrowDown" || event.key === "Enter") {
                list.querySelector("a")?.focus();
                event.preventDefault();
            }
        });
        list.addEventListener("keydown", (event) => this.#walk(event));
    }

    show(lines, current, running) {
        const key = JSON.stringify([lines, current, [...running]]);
        if (key === this.key) return;
        this.key = key;
        Object.assign(this, { lines, current, running });
        this.#draw();
    }

    #draw() {
        const wanted = this.search.value.trim().toLowerCase();
        const lines = this.lines.filter((line) =>
            (line.title || "new conversation").toLowerCase().includes(wanted),
        );
        const focused = this.list.contains(document.activeElement) ? document.activeElement.dataset.id : null;
        const groups = new Map();
        for (const line of lines) {
            const name = dayGroup(line.updated);
            groups.set(name, [...(groups.get(name) ?? []), line]);
        }
        refill(
            this.list,
            [...groups].map(([name, own]) =>
                h(
                    "section",
                    { "aria-label": name },
                    h("h3", { class: "group", text: name }),
                    h(
                        "ul",
                        {},
                        own.map((line) => this.#row(line)),
                    ),
                ),
            ),
            lines.length === 0
                ? h("p", {
                      class: "muted pad",
                      text: wanted ? "No title holds this." : "No conversations yet.",
                  })
                : null,
            this.note ? h("p", { class: "muted pad", text: this.note }) : null,
        );
        if (focused) this.list.querySelector(`a[data-id="${focused}"]`)?.focus();
    }

    #row(line) {
        const title = line.title || "New conversation";
        const current = line.id === this.current;
        const more = iconButton("more", `More for ${title}`, () => this.actions.menu(more, line), {
            "aria-haspopup": "menu",
            "aria-expanded": "false",
        });
        return h(
            "li",
            { class: current ? "talk current" : "talk" },
            h(
                "a",
                {
                    href: `#/c/${line.id}`,
                    "data-id": line.id,
                    "aria-current": current ? "page" : null,
                    title,
                },
                h("span", { class: "talk-title", text: title }),
                this.running.has(line.id)
                    ? h("span", { class: "pulse", role: "img", "aria-label": "being answered" })
                    : null,
            ),
            more,
        );
    }

    #walk(event) {
        if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
        const all = [...this.list.querySelectorAll("a")];
        const at = all.indexOf(document.activeElement);
        if (at < 0) return;
        const next = all[at + (event.key === "ArrowDown" ? 1 : -1)];
        (next ?? (event.key === "ArrowUp" ? this.search : all[at])).focus();
        event.preventDefault();
    }
}
