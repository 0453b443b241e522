/* The page: puts the parts together and says what happens on a press of anything.
 *
 * State is a conversation that is shown, the answers that are being written (also of other conversations) and
 * the view (chat or monitor). The address says which: #/c/ID, #/monitor, # for a new conversation. A new
 * conversation is stored with its first message. Other tabs are told of every write and read it again. */

import { Api } from "./api.js";
import { runAnswer } from "./answer.js";
import { ChatView } from "./chat_view.js";
import { Composer } from "./composer.js";
import * as talks from "./conversation.js";
import * as dialogs from "./dialogs.js";
import { byId, download, icon, refill, setText } from "./dom.js";
import { fileName, fromJson, toJson, toMarkdown } from "./export.js";
import { rate } from "./format.js";
import { Link } from "./link.js";
import { ListView } from "./list_view.js";
import { MonitorView } from "./monitor_view.js";
import { Keys, Settings } from "./prefs.js";
import { SettingsView } from "./settings_view.js";
import { openStore } from "./store.js";

const SMALL = globalThis.matchMedia("(max-width: 760px)");

class App {
    constructor(store) {
        this.store = store;
        this.settings = new Settings();
        this.keys = new Keys();
        this.api = new Api(this.keys);
        this.link = new Link(this.api);
        this.running = new Map(); // conversation id -> {talk, node, abort}
        this.talk = talks.newConversation(this.settings.get("system"));
        this.view = "chat";
        this.#makeViews();
        this.#listen();
    }

    #makeViews() {
        const { settings, link, api, keys } = this;
        const actions = {
            edit: (node, text) => this.edit(node, text),
            retry: (node) => this.retry(node),
            pick: (node, step) => this.pick(node, step),
            remove: (node) => this.removeMessage(node),
            laterStart: (node, share) => talks.laterStart(this.talk, this.talk.nodes[node.parent], share),
            startLater: (node, later) => this.startLater(node, later),
            startEdit: (node) => this.chat.edit(node),
            newChat: (node) => this.askAnew(node),
            settings: () => this.showPanel(true),
        };
        this.chat = new ChatView(byId("chat"), { actions, settings, link });
        const compose = {
            send: (text, files) => this.send(text, files),
            stop: () => this.stop(),
            editLast: () => this.editLast(),
        };
        this.composer = new Composer(byId("composer"), compose, {
            settings,
            api,
            say: (text) => dialogs.toast(text),
        });
        const note = this.store.lasting
            ? ""
            : "This browser lets pages keep nothing: conversations end with this page.";
        this.list = new ListView(
            { list: byId("talks"), search: byId("search") },
            { menu: (button, line) => this.talkMenu(button, line.id) },
            note,
        );
        this.monitor = new MonitorView(byId("monitor"), { api, link });
        this.panel = new SettingsView(byId("panel"), {
            settings,
            link,
            keys,
            actions: {
                close: () => this.showPanel(false),
                setSystem: (text) => this.setSystem(text),
                saveAll: () => this.saveAll(),
                readFile: (file) => this.readFile(file),
                removeAll: () => this.removeAll(),
                changeKey: () => this.askKey(false),
                shortcuts: () => dialogs.showShortcuts(),
            },
        });
    }

    #listen() {
        const buttons = {
            "new-chat": ["edit", () => this.startNew()],
            "close-side": ["side", () => this.showSide(false)],
            "open-side": ["side", () => this.showSide(true)],
            "open-chat": ["chat", () => this.go(this.talkAddress())],
            "open-monitor": ["chart", () => this.go("#/monitor")],
            "open-settings": ["sliders", () => this.showPanel(byId("panel").hidden)],
            "open-menu": ["more", () => this.talkMenu(byId("open-menu"), this.talk.id)],
        };
        for (const [id, [name, run]] of Object.entries(buttons)) {
            byId(id).append(icon(name));
            byId(id).addEventListener("click", run);
        }
        byId("status").addEventListener("click", () => this.go("#/monitor"));
        byId("shade").addEventListener("click", () => this.closeOverlays());
        byId("skip").addEventListener("click", (event) => {
            event.preventDefault();
            byId("ask").focus();
        });
        globalThis.addEventListener("hashchange", () => this.route());
        globalThis.addEventListener("pagehide", () => this.store.flush());
        document.addEventListener("keydown", (event) => this.#key(event));
        this.settings.addEventListener("change", (event) => this.#settingChanged(event.detail.key));
        this.link.addEventListener("change", (event) => this.#linkChanged(event.detail));
        this.link.addEventListener("facts", (event) => this.#factsRead(event.detail));
        this.#listenForFiles();
        setInterval(() => this.#tick(), 500);
    }

    #listenForFiles() {
        const cover = byId("drop");
        const hasFiles = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");
        document.addEventListener("dragover", (event) => {
            if (!hasFiles(event)) return;
            event.preventDefault();
            cover.hidden = this.view !== "chat";
        });
        document.addEventListener("dragleave", (event) => {
            if (event.relatedTarget === null) cover.hidden = true;
        });
        document.addEventListener("drop", (event) => {
            cover.hidden = true;
            if (!hasFiles(event)) return;
            event.preventDefault();
            if (this.view === "chat") this.composer.addFiles([...event.dataTransfer.files]);
        });
    }

    async start() {
        this.showSide(!SMALL.matches && !this.settings.get("sideClosed"), false);
        await this.drawList();
        await this.route();
        this.link.start();
    }

    // ---- Where we are ----

    go(address) {
        if (location.hash === address) this.route();
        else location.hash = address;
    }

    talkAddress() {
        return Object.keys(this.talk.nodes).length > 0 ? `#/c/${this.talk.id}` : "#/";
    }

    async route() {
        const [, place, id] = location.hash.split("/");
        this.view = place === "monitor" ? "monitor" : "chat";
        if (place === "c" && id !== this.talk.id) {
            const found = this.running.get(id)?.talk ?? (await this.store.get(id));
            if (!found) {
                dialogs.toast("This conversation is not in this browser.");
                this.go("#/");
                return;
            }
            this.talk = found;
        } else if (place !== "c" && place !== "monitor" && Object.keys(this.talk.nodes).length > 0) {
            this.talk = talks.newConversation(this.settings.get("system"));
        }
        this.showTalk();
        if (SMALL.matches) this.showSide(false);
        if (this.view === "chat" && !SMALL.matches) byId("ask").focus();
    }

    showTalk() {
        const chatting = this.view === "chat";
        for (const id of ["chat", "composer"]) byId(id).hidden = !chatting;
        byId("monitor").hidden = chatting;
        byId("open-chat").hidden = chatting;
        byId("open-monitor").hidden = !chatting;
        byId("open-menu").hidden = !chatting;
        const title = chatting ? this.talk.title || "New conversation" : "Monitor";
        setText(byId("title"), title);
        document.title = chatting && !this.talk.title ? "mica" : `${title} · mica`;
        this.composer.use(this.talk.id);
        this.composer.setRunning(this.running.has(this.talk.id));
        this.panel.useSystem(this.talk.system);
        this.chat.show(this.talk);
        this.#showContext();
        this.monitor.setVisible(!chatting);
        this.drawList();
    }

    async drawList() {
        const lines = await this.store.list().catch(() => []);
        const current = this.view === "chat" ? this.talk.id : "";
        this.list.show(lines, current, new Set(this.running.keys()));
    }

    #showContext() {
        this.composer.showContext(talks.contextUsed(this.talk), this.link.context);
    }

    startNew() {
        this.talk = talks.newConversation(this.settings.get("system"));
        this.go("#/");
        if (SMALL.matches) this.showSide(false);
        byId("ask").focus();
    }

    // ---- Talking ----

    send(text, files) {
        const path = talks.shownPath(this.talk);
        this.#ask(path[path.length - 1]?.id ?? "", { text, files });
    }

    edit(node, text) {
        this.#ask(node.parent, { text, files: node.files ?? [] });
    }

    async #ask(parent, { text, files }) {
        const { talk } = this;
        await this.#end(talk.id);
        const fresh = Object.keys(talk.nodes).length === 0;
        const fields = { role: "user", text, ...(files.length > 0 ? { files } : {}) };
        const node = talks.addMessage(talk, parent, fields);
        if (fresh && talk === this.talk) history.replaceState(null, "", this.talkAddress());
        this.#answer(talk, node);
    }

    retry(node) {
        if (!this.running.has(this.talk.id)) this.#answer(this.talk, this.talk.nodes[node.parent]);
    }

    editLast() {
        const node = this.chat.lastUser();
        if (node) this.chat.edit(node);
    }

    /** Stops what is being answered in a conversation, and waits until nothing writes into it any more. */
    async #end(id) {
        const own = this.running.get(id);
        own?.abort.abort();
        await own?.done;
    }

    /** Lets the model answer a message, to the end, whatever conversation is shown meanwhile. */
    #answer(talk, question) {
        // A failed answer without a word is replaced, not kept as a version.
        for (const id of talks.siblings(talk, { parent: question.id, id: "" }).ids) {
            const old = talk.nodes[id];
            if (old?.state === "error" && !old.text && !old.thinking) talks.removeMessage(talk, old);
        }
        const node = talks.addMessage(talk, question.id, { role: "assistant", state: "live" });
        const answer = { talk, node, abort: new AbortController() };
        this.running.set(talk.id, answer);
        answer.done = this.#toItsEnd(answer);
    }

    async #toItsEnd({ talk, node, abort }) {
        this.monitor.active += 1;
        this.monitor.poke();
        await this.store.save(talk);
        this.showTalk();
        this.chat.scrollToEnd(true);
        const changed = () => {
            if (this.talk.id === talk.id) this.chat.changed(node);
            this.store.later(talk);
        };
        await runAnswer(this.#world(), talk, node, {
            settings: { ...this.settings.values },
            signal: abort.signal,
            changed,
        });
        this.running.delete(talk.id);
        this.monitor.active -= 1;
        if (node.stats) this.monitor.ended(node);
        if (node.state === "cut") this.link.lost();
        talk.updated = Date.now();
        await this.store.save(talk);
        this.showTalk();
        dialogs.announce(
            node.state === "error" ? `No answer: ${node.error?.message}` : "The answer is complete.",
        );
    }

    #world() {
        return {
            api: this.api,
            whenBack: (signal, state) => this.link.whenBack(signal, state),
            askKey: (error) => this.askKey(Boolean(this.keys.get()) && error.kind === "key"),
            now: () => Date.now(),
            sleep: (ms, signal) =>
                new Promise((resolve, reject) => {
                    const timer = setTimeout(resolve, ms);
                    signal.addEventListener("abort", () => (clearTimeout(timer), reject(signal.reason)), {
                        once: true,
                    });
                }),
        };
    }

    stop() {
        this.running.get(this.talk.id)?.abort.abort();
    }

    pick(node, step) {
        if (talks.pickSibling(this.talk, node, step)) this.#changed();
    }

    #changed() {
        this.store.save(this.talk);
        this.showTalk();
    }

    async removeMessage(node) {
        const { talk } = this;
        await this.#end(talk.id);
        const before = structuredClone(talk);
        talks.removeMessage(talk, node);
        this.#changed();
        dialogs.toast("Deleted from that message on.", {
            label: "Undo",
            run: () => {
                this.talk = talks.checkConversation(before);
                this.#changed();
            },
        });
    }

    startLater(node, later) {
        this.talk.from = later.id;
        this.retry(node);
    }

    askAnew(question) {
        this.startNew();
        this.composer.set(question.text, question.files ?? []);
    }

    setSystem(text) {
        this.talk.system = text;
        if (Object.keys(this.talk.nodes).length > 0) this.store.save(this.talk);
    }

    // ---- Conversations as a whole ----

    async #byId(id) {
        return id === this.talk.id ? this.talk : (this.running.get(id)?.talk ?? (await this.store.get(id)));
    }

    talkMenu(button, id) {
        const withTalk = (run) => async () => {
            const talk = await this.#byId(id);
            if (talk) run(talk);
        };
        dialogs.openMenu(button, [
            { label: "Rename", icon: "edit", run: withTalk((talk) => this.rename(talk)) },
            {
                label: "Save as Markdown",
                icon: "download",
                run: withTalk((talk) =>
                    download(fileName(talk.title, "md"), toMarkdown(talk), "text/markdown"),
                ),
            },
            {
                label: "Save as JSON",
                icon: "download",
                run: withTalk((talk) =>
                    download(fileName(talk.title, "json"), toJson([talk]), "application/json"),
                ),
            },
            { label: "Delete", icon: "trash", danger: true, run: withTalk((talk) => this.removeTalk(talk)) },
        ]);
    }

    async rename(talk) {
        const title = await dialogs.askTitle(talk.title);
        if (!title?.trim()) return;
        Object.assign(talk, { title: title.trim().slice(0, 200), named: true });
        await this.store.save(talk);
        this.showTalk();
    }

    async removeTalk(talk) {
        await this.#end(talk.id);
        await this.store.remove(talk.id);
        if (talk.id === this.talk.id) this.startNew();
        this.drawList();
        dialogs.toast("Conversation deleted.", {
            label: "Undo",
            run: async () => {
                await this.store.save(talk);
                this.go(`#/c/${talk.id}`);
                this.drawList();
            },
        });
    }

    async saveAll() {
        await this.store.flush();
        download(
            `mica-${new Date().toISOString().slice(0, 10)}.json`,
            toJson(await this.store.all()),
            "application/json",
        );
    }

    async readFile(file) {
        try {
            const found = fromJson(await file.text());
            for (const talk of found) await this.store.save(talk);
            dialogs.toast(
                found.length === 1 ? "One conversation read." : `${found.length} conversations read.`,
            );
        } catch (error) {
            dialogs.toast(`${file.name}: ${error.message}`);
        }
        this.drawList();
    }

    async removeAll() {
        const lines = await this.store.list();
        const text = `All ${lines.length} conversations in this browser will be gone. This cannot be undone.`;
        if (lines.length === 0 || !(await dialogs.confirmed("Delete all conversations?", text, "Delete all")))
            return;
        await Promise.all([...this.running.keys()].map((id) => this.#end(id)));
        for (const { id } of lines) await this.store.remove(id);
        this.startNew();
        this.drawList();
    }

    // ---- The server ----

    /** true when there is a new key to try. Several who ask at once get one dialog. */
    askKey(wrong) {
        this.asking ??= dialogs.askKey(wrong, this.keys.kept).then((answer) => {
            this.asking = null;
            if (answer === null) return false;
            this.keys.set(answer.key, answer.keep);
            this.link.readFacts();
            return true;
        });
        return this.asking;
    }

    #linkChanged({ before, state }) {
        if (state === "away")
            this.#banner("No connection to the server. Trying again; nothing is lost.", "warn");
        else if (state === "loading") this.#banner("The server is loading its model.", "wait");
        else if (before === "away") {
            this.#banner("Connected again.", "good");
            setTimeout(() => this.link.state === "ok" && this.#banner(""), 2500);
        } else this.#banner("");
        this.#showStatus();
    }

    async #factsRead({ needsKey }) {
        this.#showStatus();
        this.#showContext();
        this.chat.refresh();
        // Nobody is asked twice for what they just refused to give.
        if (!needsKey || this.keyAsked) return;
        this.keyAsked = true;
        if (await this.askKey(Boolean(this.keys.get()))) this.keyAsked = false;
    }

    #showStatus() {
        const words = { unknown: "connecting", ok: "ready", away: "no connection", loading: "loading" };
        byId("status").dataset.state =
            this.running.size > 0 && this.link.state === "ok" ? "busy" : this.link.state;
        setText(byId("status-model"), this.link.modelName || "mica");
        const speed = this.#speed();
        setText(byId("status-line"), speed === null ? words[this.link.state] : "answering");
        setText(byId("status-speed"), speed === null ? "" : `${rate(speed)} t/s`);
    }

    /** Tokens a second of the answers that are being written, from their pieces; null when none is. */
    #speed() {
        let sum = null;
        for (const { node } of this.running.values()) {
            const { first, chunks } = node.phase ?? {};
            if (chunks > 4 && Date.now() > first)
                sum = (sum ?? 0) + ((chunks - 1) * 1000) / (Date.now() - first);
        }
        return sum;
    }

    /** Clocks that run while something is waited for. */
    #tick() {
        if (document.hidden) return;
        this.#showStatus();
        const own = this.running.get(this.talk.id);
        if (own) this.chat.changed(own.node);
    }

    #banner(text, kind = "") {
        const banner = byId("banner");
        banner.hidden = text === "";
        banner.className = kind;
        refill(banner, text);
    }

    // ---- The frame ----

    showSide(open, remember = true) {
        document.body.classList.toggle("side-open", open);
        byId("open-side").setAttribute("aria-expanded", String(open));
        // What is off the screen must not take the focus.
        byId("side").inert = !open;
        if (remember && !SMALL.matches) this.settings.set("sideClosed", !open);
        if (open && SMALL.matches) this.showPanel(false);
        this.#showShade();
    }

    showPanel(open) {
        const panel = byId("panel");
        if (panel.hidden === !open) return;
        panel.hidden = !open;
        byId("open-settings").setAttribute("aria-expanded", String(open));
        if (open) {
            if (SMALL.matches) this.showSide(false);
            this.panel.draw();
            panel.querySelector("button").focus();
        } else byId("open-settings").focus();
        this.#showShade();
    }

    #showShade() {
        const over =
            SMALL.matches && (document.body.classList.contains("side-open") || !byId("panel").hidden);
        byId("shade").hidden = !over;
    }

    closeOverlays() {
        if (SMALL.matches) this.showSide(false);
        this.showPanel(false);
    }

    #settingChanged(key) {
        if (key === "theme") {
            const theme = this.settings.get("theme");
            if (theme === "auto") delete document.documentElement.dataset.theme;
            else document.documentElement.dataset.theme = theme;
        }
        if (key === "enterSends") this.composer.refresh();
        if (key === "showStats") this.chat.refresh();
    }

    #key(event) {
        const control = event.ctrlKey || event.metaKey;
        const typing = event.target.matches?.("input, textarea, select");
        if (event.key === "Escape") this.#escape();
        else if (control && event.shiftKey && event.key.toLowerCase() === "o") this.startNew();
        else if (control && event.shiftKey && event.key.toLowerCase() === "m")
            this.go(this.view === "chat" ? "#/monitor" : this.talkAddress());
        else if (control && event.key.toLowerCase() === "k") {
            this.showSide(true);
            byId("search").focus();
        } else if (control && event.key === ",") this.showPanel(byId("panel").hidden);
        else if (event.key === "?" && !typing && !control) dialogs.showShortcuts();
        else return;
        if (event.key !== "Escape") event.preventDefault();
    }

    #escape() {
        if (document.querySelector("dialog[open], .menu")) return;
        if (!byId("panel").hidden) this.showPanel(false);
        else if (SMALL.matches && document.body.classList.contains("side-open")) this.showSide(false);
        else if (this.running.has(this.talk.id) && this.view === "chat") this.stop();
    }

    /** Another tab wrote a conversation. */
    async changedElsewhere(id) {
        if (id === this.talk.id && !this.running.has(id)) {
            const talk = await this.store.get(id);
            if (talk) {
                this.talk = talk;
                this.showTalk();
            }
        }
        this.drawList();
    }
}

async function main() {
    const others = "BroadcastChannel" in globalThis ? new BroadcastChannel("mica") : null;
    // A full disk fails every write of a growing answer; it is said now and then.
    let said = 0;
    const say = (error) => {
        if (Date.now() - said < 30000) return;
        said = Date.now();
        dialogs.toast(`This browser could not keep the conversation: ${error.message}`);
    };
    const store = await openStore(say, (id) => others?.postMessage(id));
    const app = new App(store);
    if (others) others.onmessage = (event) => app.changedElsewhere(event.data);
    await app.start();
}

main();
