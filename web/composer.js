/* The field a message is written in: files, sending, stopping, and how full the context is.
 *
 * A draft belongs to its conversation and survives a change to another one (not a reload). */

import { readFiles } from "./attach.js";
import { append, h, icon, iconButton, refill, setText } from "./dom.js";
import { bytes, count } from "./format.js";
import { grow } from "./message_view.js";
import { meter } from "./monitor_view.js";

const COUNT_FROM = 1500; // characters; shorter drafts need no count
const COUNT_AFTER_MS = 400;

export class Composer {
    #drafts = new Map(); // conversation id -> {text, files}
    #id = "";
    #counting = null;

    /** actions: {send(text, files), stop(), editLast()}; tools: {settings, api, say(text)} */
    constructor(form, actions, { settings, api, say }) {
        Object.assign(this, { form, actions, settings, api, say });
        this.files = [];
        this.running = false;
        this.chips = h("div", { class: "chips" });
        this.area = h("textarea", {
            id: "ask",
            rows: "1",
            placeholder: "Write a message",
            "aria-label": "Message",
            enterkeyhint: "send",
            autocomplete: "off",
        });
        this.picker = h("input", {
            type: "file",
            multiple: true,
            hidden: true,
            "aria-label": "Attach text files",
        });
        this.attach = iconButton("attach", "Attach text files", () => this.picker.click());
        this.button = h("button", { type: "submit", class: "send", "aria-label": "Send" });
        this.counted = h("span", { class: "counted num" });
        this.context = h("span", { class: "context" });
        const hint = h("span", { class: "hint", text: "" });
        this.hint = hint;
        append(form, [
            h(
                "div",
                { class: "ask-box" },
                this.chips,
                this.area,
                h(
                    "div",
                    { class: "ask-row" },
                    this.attach,
                    this.counted,
                    h("span", { class: "grow" }),
                    this.context,
                    this.button,
                ),
            ),
            hint,
            this.picker,
        ]);
        this.#listen();
        this.setRunning(false);
        this.refresh();
    }

    #listen() {
        const { form, area, picker } = this;
        form.addEventListener("submit", (event) => {
            event.preventDefault();
            if (this.running) this.actions.stop();
            else this.#send();
        });
        area.addEventListener("input", () => this.#changed());
        area.addEventListener("keydown", (event) => this.#key(event));
        area.addEventListener("paste", (event) => {
            if (event.clipboardData.files.length === 0) return;
            event.preventDefault();
            this.addFiles([...event.clipboardData.files]);
        });
        picker.addEventListener("change", () => {
            this.addFiles([...picker.files]);
            picker.value = "";
        });
    }

    #key(event) {
        if (event.key === "ArrowUp" && this.area.value === "" && this.files.length === 0) {
            this.actions.editLast();
            event.preventDefault();
        }
        if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
        // On a phone Enter breaks the line: there is a button, and no Shift.
        const phone = globalThis.matchMedia("(pointer: coarse)").matches;
        const sends = event.ctrlKey || event.metaKey || (this.settings.get("enterSends") && !phone);
        if (!sends) return;
        event.preventDefault();
        if (!this.running) this.#send();
    }

    #send() {
        const text = this.area.value.trim();
        if (text === "" && this.files.length === 0) return;
        const files = this.files;
        this.clear();
        this.actions.send(text, files);
    }

    clear() {
        this.area.value = "";
        this.files = [];
        this.#changed();
    }

    /** Another conversation: its own draft comes back. */
    use(id) {
        if (id === this.#id) return;
        this.#drafts.set(this.#id, { text: this.area.value, files: this.files });
        const { text, files } = this.#drafts.get(id) ?? { text: "", files: [] };
        this.#id = id;
        this.area.value = text;
        this.files = files;
        this.#changed();
    }

    set(text, files = []) {
        this.area.value = text;
        this.files = files;
        this.#changed();
        this.area.focus();
    }

    /** list: an array; a FileList is emptied with its field. */
    async addFiles(list) {
        const { files, errors } = await readFiles(list);
        this.files = [...this.files, ...files];
        for (const error of errors) this.say(error);
        this.#changed();
        this.area.focus();
    }

    #changed() {
        grow(this.area);
        refill(
            this.chips,
            this.files.map((file) => this.#chip(file)),
        );
        this.chips.hidden = this.files.length === 0;
        this.#showButton();
        clearTimeout(this.#counting);
        const length = this.area.value.length + this.files.reduce((sum, file) => sum + file.text.length, 0);
        setText(this.counted, length < COUNT_FROM ? "" : `about ${count(length / 4)} tokens`);
        if (length >= COUNT_FROM) this.#counting = setTimeout(() => this.#count(), COUNT_AFTER_MS);
    }

    /** The exact number, from the server; the estimate stays where it does not tell. */
    async #count() {
        const text = [...this.files.map((file) => file.text), this.area.value].join("\n");
        const tokens = await this.api.countTokens(text).catch(() => null);
        const same = text === [...this.files.map((file) => file.text), this.area.value].join("\n");
        if (same && tokens !== null) setText(this.counted, `${count(tokens)} tokens`);
    }

    #chip(file) {
        const remove = () => {
            this.files = this.files.filter((x) => x !== file);
            this.#changed();
            this.area.focus();
        };
        return h(
            "span",
            { class: "chip" },
            icon("file"),
            h("span", { class: "file-name", text: file.name }),
            h("span", { class: "muted", text: bytes(new TextEncoder().encode(file.text).length) }),
            iconButton("close", `Remove ${file.name}`, remove),
        );
    }

    setRunning(running) {
        this.running = running;
        this.#showButton();
    }

    #showButton() {
        const name = this.running ? "Stop" : "Send";
        this.button.disabled = !this.running && this.area.value.trim() === "" && this.files.length === 0;
        if (this.button.title === name) return;
        refill(this.button, icon(this.running ? "stop" : "send"));
        this.button.classList.toggle("stopping", this.running);
        this.button.setAttribute("aria-label", name);
        this.button.title = name;
    }

    /** How much of the context the conversation takes. */
    showContext(used, whole) {
        this.context.hidden = used === null || whole === null;
        if (this.context.hidden) return;
        refill(this.context, meter(used / whole, "Context in use", `${count(used)} / ${count(whole)}`));
        this.context.title = `This conversation takes ${count(used)} of ${count(whole)} tokens of context`;
    }

    refresh() {
        setText(
            this.hint,
            this.settings.get("enterSends")
                ? "Enter sends, Shift + Enter starts a new line"
                : "Ctrl + Enter sends",
        );
    }
}
