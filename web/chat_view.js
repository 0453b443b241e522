/* The conversation on screen: its messages, following the end while an answer grows, and the empty page. */

import { shownPath } from "./conversation.js";
import { h, iconButton, refill } from "./dom.js";
import { count, short } from "./format.js";
import { MessageView } from "./message_view.js";

const NEAR_END = 60; // px from the end that still count as being there

export class ChatView {
    #views = new Map(); // message id -> MessageView
    #follow = true;
    #dirty = new Set();
    #frame = 0; // of the draw to come
    #pause = 0; // ms before the next one

    constructor(element, { actions, settings, link }) {
        Object.assign(this, { element, actions, settings, link });
        this.list = h("div", {
            class: "messages",
            role: "log",
            "aria-label": "Conversation",
            "aria-live": "off",
        });
        this.toEnd = iconButton("down", "To the end", () => this.scrollToEnd(true), {
            class: "icon-button to-end",
            hidden: true,
        });
        this.empty = h("div", { class: "empty" });
        this.scroller = h("div", { class: "scroller", tabindex: "-1" }, this.empty, this.list);
        refill(element, this.scroller, this.toEnd);
        this.scroller.addEventListener("scroll", () => this.#scrolled(), { passive: true });
        // Someone who turns the wheel up wants to read, however fast the words come.
        this.scroller.addEventListener("wheel", (event) => event.deltaY < 0 && this.#hold(), {
            passive: true,
        });
        new ResizeObserver(() => {
            this.scrollToEnd();
            this.toEnd.hidden = this.#atEnd();
        }).observe(this.list);
    }

    /** Shows a conversation from scratch, or only what differs when it is the one that is shown. */
    show(talk) {
        const same = this.talk?.id === talk.id;
        this.talk = talk;
        const path = shownPath(talk);
        if (!same) this.#views.clear();
        const ids = new Set(path.map((node) => node.id));
        for (const id of this.#views.keys()) if (!ids.has(id)) this.#views.delete(id);
        const elements = path.map((node) => this.#viewOf(node).element);
        this.#mark(path);
        syncChildren(this.list, elements);
        this.#showEmpty(path.length === 0);
        if (!same) this.scrollToEnd(true);
    }

    #viewOf(node) {
        const old = this.#views.get(node.id);
        if (old?.node === node) {
            old.update();
            return old;
        }
        const view = new MessageView(this.talk, node, this.actions, this.settings);
        this.#views.set(node.id, view);
        return view;
    }

    /** What is no longer sent is dimmed, with a line below it. */
    #mark(path) {
        const first = path.findIndex((node) => node.id === this.talk.from);
        path.forEach((node, i) => {
            const { element } = this.#views.get(node.id);
            element.classList.toggle("left-out", i < first);
            element.classList.toggle("first-sent", first > 0 && i === first);
        });
    }

    /** A message changed: shown with a frame to come. A draw may take a quarter of the time, no more: a long
     *  answer is drawn less often, and the page stays quick. */
    changed(node) {
        this.#dirty.add(node.id);
        if (this.#frame) return;
        const draw = () => {
            const start = performance.now();
            this.#frame = 0;
            for (const id of this.#dirty) this.#views.get(id)?.update();
            this.#dirty.clear();
            this.scrollToEnd(); // also lays the page out, which belongs to the cost
            this.#pause = Math.min(300, (performance.now() - start) * 3);
        };
        // A hidden page gets no frames.
        if (document.hidden) this.#frame = setTimeout(draw, 200);
        else if (this.#pause > 20) this.#frame = setTimeout(() => requestAnimationFrame(draw), this.#pause);
        else this.#frame = requestAnimationFrame(draw);
    }

    /** Everything again, as after a change of settings, and the clocks of what is being waited for. */
    refresh() {
        for (const view of this.#views.values()) view.update();
        this.#showEmpty(this.#views.size === 0);
    }

    edit(node) {
        this.#views.get(node.id)?.startEdit();
    }

    lastUser() {
        return shownPath(this.talk).findLast((node) => node.role === "user") ?? null;
    }

    #showEmpty(empty) {
        this.empty.hidden = !empty;
        if (!empty) return;
        const { link } = this;
        const facts = [
            [link.modelName || "…", "model"],
            link.context ? [`${count(link.context)} tokens`, "context"] : null,
            link.models[0]?.meta?.n_params ? [short(link.models[0].meta.n_params), "parameters"] : null,
            link.props?.total_slots
                ? [count(link.props.total_slots), link.props.total_slots === 1 ? "slot" : "slots"]
                : null,
        ].filter(Boolean);
        refill(
            this.empty,
            h("img", { src: "icon.svg", alt: "", width: "44", height: "44" }),
            h("h2", { text: "What would you like to know?" }),
            h(
                "dl",
                { class: "facts" },
                facts.map(([value, name]) => h("div", {}, h("dt", { text: name }), h("dd", { text: value }))),
            ),
            h("p", {
                class: "muted",
                text: "Conversations stay in this browser. What you write goes to this server only.",
            }),
        );
    }

    // ---- Scrolling ----

    #atEnd() {
        const { scrollHeight, scrollTop, clientHeight } = this.scroller;
        return scrollHeight - scrollTop - clientHeight < NEAR_END;
    }

    #scrolled() {
        if (this.#atEnd()) this.#follow = true;
        else if (this.scroller.scrollTop < this.#lastTop) this.#follow = false;
        this.#lastTop = this.scroller.scrollTop;
        this.toEnd.hidden = this.#atEnd();
    }

    #lastTop = 0;

    #hold() {
        if (!this.#atEnd() || this.scroller.scrollTop > 0) this.#follow = false;
    }

    scrollToEnd(force = false) {
        if (force) this.#follow = true;
        if (this.#follow) this.scroller.scrollTop = this.scroller.scrollHeight;
    }
}

/** Makes the children of a parent these, moving as few as possible. */
function syncChildren(parent, elements) {
    elements.forEach((element, i) => {
        if (parent.children[i] !== element) parent.insertBefore(element, parent.children[i] ?? null);
    });
    while (parent.children.length > elements.length) parent.lastElementChild.remove();
}
