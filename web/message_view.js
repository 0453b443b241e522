/* One message on screen. `update` may be called for every token: it touches only what changed. */

import { contentOf, siblings } from "./conversation.js";
import { copyButton, h, icon, iconButton, refill, setText } from "./dom.js";
import { bytes, count, duration, rate } from "./format.js";
import { showMarkdown } from "./markdown_view.js";

const LONG_LINES = 16; // a message of the reader that is longer is folded

/** @param actions {edit, retry, pick, remove, startLater, newChat, settings}, each (node, ...) */
export class MessageView {
    constructor(talk, node, actions, settings) {
        Object.assign(this, { talk, node, actions, settings });
        const user = node.role === "user";
        this.body = h("div", { class: user ? "body plain" : "body prose" });
        this.note = h("div", { class: "note", hidden: true });
        this.foot = h("footer", { class: "message-foot" });
        this.files = h("div", { class: "files" });
        this.element = h(
            "article",
            {
                class: `message ${node.role}`,
                "data-id": node.id,
                tabindex: "-1",
                "aria-label": user ? "You" : "Answer",
            },
            this.files,
            user ? null : this.thinkingFold(),
            this.body,
            this.note,
            this.foot,
        );
        this.update();
    }

    update() {
        const { node } = this;
        const live = node.state === "live";
        this.element.classList.toggle("live", live);
        if (node.role === "user") this.showPlain();
        else {
            this.showThinking(live);
            showMarkdown(this.body, node.text + callsText(node));
        }
        this.showFiles();
        this.showNote();
        // What the buttons depend on; they are not made anew for every token.
        const { index, total } = siblings(this.talk, node);
        const key = `${node.state} ${index} ${total} ${this.settings.get("showStats")}`;
        if (this.footKey !== key) {
            this.footKey = key;
            this.showFoot();
        }
    }

    // ---- The reader's words ----

    showPlain() {
        if (this.plainShown === this.node.text) return;
        this.plainShown = this.node.text;
        const long = this.node.text.split("\n").length > LONG_LINES || this.node.text.length > 2400;
        const text = h("div", { class: "plain-text", text: this.node.text });
        refill(this.body, text);
        if (!long) return;
        text.classList.add("folded");
        const more = h("button", {
            type: "button",
            class: "link-button",
            "aria-expanded": "false",
            text: "Show all",
        });
        more.addEventListener("click", () => {
            const folded = text.classList.toggle("folded");
            more.textContent = folded ? "Show all" : "Show less";
            more.setAttribute("aria-expanded", String(!folded));
        });
        this.body.append(more);
    }

    showFiles() {
        const files = this.node.files ?? [];
        if (files.length === this.files.childElementCount) return;
        refill(
            this.files,
            files.map((file) =>
                h(
                    "details",
                    { class: "file" },
                    h(
                        "summary",
                        {},
                        icon("file"),
                        h("span", { class: "file-name", text: file.name }),
                        h("span", {
                            class: "muted",
                            text: bytes(new TextEncoder().encode(file.text).length),
                        }),
                    ),
                    h("pre", { tabindex: "0", text: file.text }),
                ),
            ),
        );
    }

    /** The text becomes a field; sending it makes a new branch. */
    startEdit() {
        if (this.node.role !== "user" || this.editing) return;
        this.editing = true;
        const area = h("textarea", {
            "aria-label": "Edit the message",
            rows: "1",
            props: { value: this.node.text },
        });
        const close = () => {
            this.editing = false;
            this.element.classList.remove("editing");
            form.remove();
            this.element.focus();
        };
        const send = () => {
            if (area.value.trim() === "" && !(this.node.files?.length > 0)) return;
            close();
            this.actions.edit(this.node, area.value);
        };
        const form = h(
            "form",
            { class: "edit-form" },
            area,
            h(
                "div",
                { class: "row end" },
                h("button", { type: "button", class: "button", text: "Cancel", on: { click: close } }),
                h("button", { type: "submit", class: "button primary", text: "Send" }),
            ),
        );
        form.addEventListener("submit", (event) => {
            event.preventDefault();
            send();
        });
        area.addEventListener("keydown", (event) => {
            if (event.key === "Escape") close();
            if (
                event.key === "Enter" &&
                !event.shiftKey &&
                !event.isComposing &&
                this.settings.get("enterSends")
            )
                send();
            else return;
            event.preventDefault();
        });
        area.addEventListener("input", () => grow(area));
        this.element.classList.add("editing");
        this.body.after(form);
        grow(area);
        area.focus();
        area.setSelectionRange(area.value.length, area.value.length);
    }

    // ---- The answer ----

    thinkingFold() {
        this.thinkTitle = h("span", { class: "think-title" });
        this.thinkLine = h("span", { class: "think-line" });
        this.thinkBody = h("div", { class: "think-body prose" });
        const summary = h("summary", {}, icon("right"), this.thinkTitle, this.thinkLine);
        this.think = h("details", { class: "think", hidden: true }, summary, this.thinkBody);
        this.think.addEventListener("toggle", () => this.update());
        return this.think;
    }

    showThinking(live) {
        const { node, think } = this;
        think.hidden = !node.thinking;
        if (!node.thinking) return;
        const busy = live && node.phase?.kind === "thinking";
        think.classList.toggle("busy", busy);
        if (busy)
            setText(this.thinkTitle, `Thinking, ${duration(Math.max(0, Date.now() - node.phase.since))}`);
        else
            setText(
                this.thinkTitle,
                Number.isFinite(node.thoughtMs) ? `Thought for ${duration(node.thoughtMs)}` : "Thoughts",
            );
        // Folded, the line that is being thought can be seen; it is left out once there is an answer.
        setText(this.thinkLine, busy && !think.open ? lastLine(node.thinking) : "");
        if (think.open) showMarkdown(this.thinkBody, node.thinking);
    }

    showNote() {
        const { node } = this;
        const key =
            node.state === "live" ? phaseText(node.phase) : `${node.state} ${node.error?.message ?? ""}`;
        if (this.noteKey === key) return;
        this.noteKey = key;
        if (node.state === "live") {
            this.note.className = "note waiting";
            refill(
                this.note,
                key ? [h("span", { class: "dots", "aria-hidden": "true" }, h("i"), h("i"), h("i")), key] : [],
            );
            this.note.hidden = key === "";
            return;
        }
        const note = endNote(this.talk, node, this.actions);
        this.note.className = `note ${note?.kind ?? ""}`;
        this.note.hidden = !note;
        if (note) refill(this.note, note.content);
    }

    showFoot() {
        const { node, actions } = this;
        refill(this.foot);
        if (node.state === "live") return;
        const { index, total } = siblings(this.talk, node);
        if (total > 1) {
            this.foot.append(
                h(
                    "span",
                    { class: "branches", role: "group", "aria-label": "Versions" },
                    iconButton("left", "Earlier version", () => actions.pick(node, -1), {
                        disabled: index === 0,
                    }),
                    h("span", { class: "num", text: `${index + 1}/${total}` }),
                    iconButton("right", "Later version", () => actions.pick(node, 1), {
                        disabled: index === total - 1,
                    }),
                ),
            );
        }
        this.foot.append(
            copyButton(() => (node.role === "user" ? contentOf(node) : node.text), "Copy message"),
        );
        if (node.role === "user")
            this.foot.append(iconButton("edit", "Edit and send again", () => this.startEdit()));
        else this.foot.append(iconButton("retry", "Answer again", () => actions.retry(node)));
        this.foot.append(iconButton("trash", "Delete from here on", () => actions.remove(node)));
        const stats = this.settings.get("showStats") ? statsText(node) : "";
        if (stats) this.foot.append(h("span", { class: "stats", text: stats }));
    }
}

export function grow(area) {
    area.style.height = "auto";
    area.style.height = `${area.scrollHeight + 2}px`;
}

function lastLine(text) {
    const lines = text.trimEnd().split("\n");
    return lines[lines.length - 1]
        .replace(/[*_`#]/g, "")
        .trim()
        .slice(-160);
}

/** Calls of tools nobody offered, as a block of code. */
function callsText(node) {
    const calls = (node.calls ?? []).filter(Boolean);
    return calls.map((call) => `\n\n\`\`\`json\n${call.name}(${call.arguments})\n\`\`\``).join("");
}

/** What a living answer is waiting for; "" while its words are to be seen. */
function phaseText(phase) {
    switch (phase?.kind) {
        case "sent":
            return "Waiting for the server";
        case "reading":
            return `Reading the prompt, ${count(phase.read)} of ${count(phase.total)} tokens`;
        case "busy": {
            const seconds = Math.max(1, Math.ceil((phase.until - Date.now()) / 1000));
            return `The server is busy; trying again in ${seconds} s`;
        }
        case "loading":
            return "The model is still loading; the message is sent as soon as it is there";
        case "away":
            return "No connection to the server; the message is sent as soon as it is back";
        case "key":
            return "The server wants its key";
        default:
            return "";
    }
}

function textButton(label, click) {
    return h("button", { type: "button", class: "button small", text: label, on: { click } });
}

/** What stands below an answer that ended in another way than by itself: {kind, content}, or null. */
function endNote(talk, node, actions) {
    const again = () => textButton("Answer again", () => actions.retry(node));
    switch (node.state) {
        case "stopped":
            return {
                kind: "quiet",
                content: [node.text || node.thinking ? "Stopped" : "Stopped before the first word"],
            };
        case "length":
            return { kind: "quiet", content: ["Ended at the limit of tokens"] };
        case "cut":
            return {
                kind: "warn",
                content: [
                    icon("cut"),
                    h("span", {
                        text: "The connection ended in the middle of this answer. What had come is kept.",
                    }),
                    again(),
                ],
            };
        case "error":
            return { kind: "bad", content: errorContent(talk, node, actions) };
        default:
            return null;
    }
}

function errorContent(talk, node, actions) {
    const error = node.error ?? {};
    const text = (title, more) =>
        h("div", { class: "grow" }, h("strong", { text: title }), more ? h("div", { text: more }) : null);
    const row = (...buttons) => h("div", { class: "row" }, buttons);
    const again = textButton("Try again", () => actions.retry(node));
    if (error.kind === "too-long") return tooLongContent(talk, node, actions, { text, row });
    if (error.kind === "refused") {
        return [
            icon("warn"),
            text(
                "The server refused this page",
                `${error.message}. Open it under an address the server knows, or start it with --allow-host.`,
            ),
        ];
    }
    if (error.kind === "too-large")
        return [icon("warn"), text("The message is too large for the server", error.message)];
    if (error.kind === "key")
        return [icon("key"), text("Nothing was sent: the server wants its key"), row(again)];
    if (error.kind === "busy")
        return [icon("warn"), text("The server stayed busy", error.message), row(again)];
    return [icon("warn"), text("No answer", error.message), row(again)];
}

function tooLongContent(talk, node, actions, { text, row }) {
    const { prompt, context, param, message } = node.error;
    if (param === "max_tokens") {
        return [
            icon("warn"),
            text("The answer asked for does not fit", message),
            row(textButton("Open settings", () => actions.settings())),
        ];
    }
    const known = Number.isFinite(prompt) && Number.isFinite(context);
    const numbers = known
        ? `It has ${count(prompt)} tokens; the context holds ${count(context)}. Nothing was cut off.`
        : message;
    const share = known ? (context * 0.6) / prompt : 0.5;
    const later = actions.laterStart(node, share);
    const buttons = [];
    if (later)
        buttons.push(textButton("Leave out the oldest messages", () => actions.startLater(node, later)));
    buttons.push(textButton("Edit the message", () => actions.startEdit(talk.nodes[node.parent])));
    if (later)
        buttons.push(textButton("Ask in a new conversation", () => actions.newChat(talk.nodes[node.parent])));
    return [icon("warn"), text("This conversation is too long", numbers), row(...buttons)];
}

function statsText(node) {
    const { stats } = node;
    if (!stats || node.role === "user") return "";
    const parts = [];
    if (Number.isFinite(stats.completion_tokens)) parts.push(`${count(stats.completion_tokens)} tokens`);
    if (Number.isFinite(stats.tps)) parts.push(`${rate(stats.tps)} t/s`);
    if (Number.isFinite(stats.first_ms)) parts.push(`first after ${duration(stats.first_ms)}`);
    if (Number.isFinite(stats.prompt_tokens)) {
        const cached = stats.cached_tokens > 0 ? `, ${count(stats.cached_tokens)} cached` : "";
        parts.push(`prompt ${count(stats.prompt_tokens)}${cached}`);
    }
    return parts.join(" · ");
}
