/* A conversation: a tree of messages, of which one path is shown.
 *
 * Editing a message or asking again adds a sibling instead of overwriting, so nothing that was said is lost;
 * which child of each message is on the path is remembered in `picked`.
 *
 *     nodes   { id: {id, parent, role, text, thinking, thoughtMs, files, calls, state, error, stats, model,
 *     time} }
 *     kids    { parent id or "": [ids, oldest first] }
 *     picked  { parent id or "": id }
 *     from    id of the first message that is still sent, or "" for all (the reader's choice, never silent)
 *
 * A message's `state`: "done", "stopped" (by the reader), "cut" (the server went away), "length" (a limit
 * ended it), "live" (being written), "error". Everything here is plain data and can be stored as it is. */

const VERSION = 1;

/** A random id of 16 hex digits (crypto.randomUUID is missing where the page comes over plain HTTP). */
export function newId() {
    return Array.from(crypto.getRandomValues(new Uint8Array(8)), (b) => b.toString(16).padStart(2, "0")).join(
        "",
    );
}

export function newConversation(system = "", now = Date.now()) {
    return {
        version: VERSION,
        id: newId(),
        title: "",
        named: false,
        created: now,
        updated: now,
        system,
        nodes: {},
        kids: { "": [] },
        picked: {},
        from: "",
    };
}

/** Adds a message below `parent` ("" for the first) and puts it on the path. */
export function addMessage(talk, parent, fields, now = Date.now()) {
    if (parent && !talk.nodes[parent]) throw new Error(`no message ${parent}`);
    const node = { id: newId(), parent, role: "user", text: "", state: "done", time: now, ...fields };
    talk.nodes[node.id] = node;
    (talk.kids[parent] ??= []).push(node.id);
    talk.picked[parent] = node.id;
    talk.updated = now;
    if (!talk.named && node.role === "user" && parent === "") talk.title = titleOf(node);
    return node;
}

/** The messages that are shown, first to last. */
export function shownPath(talk) {
    const path = [];
    for (let id = talk.picked[""]; id && talk.nodes[id]; id = talk.picked[id]) path.push(talk.nodes[id]);
    return path;
}

/** The messages from the first down to `node`, whatever is picked. */
export function pathTo(talk, node) {
    const path = [];
    for (let at = node; at; at = talk.nodes[at.parent]) path.unshift(at);
    return path;
}

/** Which of its siblings a message is: {index, total, ids}. */
export function siblings(talk, node) {
    const ids = talk.kids[node.parent] ?? [node.id];
    return { index: ids.indexOf(node.id), total: ids.length, ids };
}

/** Shows the sibling `step` places further. */
export function pickSibling(talk, node, step) {
    const { index, ids } = siblings(talk, node);
    const next = ids[index + step];
    if (next) talk.picked[node.parent] = next;
    return Boolean(next);
}

/** Takes a message and all below it out of the tree; a sibling takes its place on the path. */
export function removeMessage(talk, node) {
    const doomed = [node.id];
    while (doomed.length > 0) {
        const id = doomed.pop();
        doomed.push(...(talk.kids[id] ?? []));
        delete talk.nodes[id];
        delete talk.kids[id];
        delete talk.picked[id];
    }
    const left = (talk.kids[node.parent] ?? []).filter((id) => id !== node.id);
    talk.kids[node.parent] = left;
    if (talk.picked[node.parent] === node.id) {
        if (left.length > 0) talk.picked[node.parent] = left[left.length - 1];
        else delete talk.picked[node.parent];
    }
    if (talk.from && !talk.nodes[talk.from]) talk.from = "";
}

/** A title of a first message: its first line of words, at most 60 characters. */
export function titleOf(node) {
    const line = (node.text ?? "").split("\n").find((x) => x.trim()) ?? node.files?.[0]?.name ?? "";
    const title = line
        .replace(/^[#>*\s]+/, "")
        .replace(/\s+/g, " ")
        .trim();
    const letters = Array.from(title);
    return letters.length > 60 ? `${letters.slice(0, 58).join("").trimEnd()}…` : title;
}

/** A fence no line of the text can close: one backtick longer than its longest run. */
function fenceFor(text) {
    let longest = 2;
    for (const run of text.match(/`+/g) ?? []) longest = Math.max(longest, run.length);
    return "`".repeat(longest + 1);
}

/** What a message says to the model: its files as fenced blocks, then its words. */
export function contentOf(node) {
    const parts = (node.files ?? []).map((file) => {
        const fence = fenceFor(file.text);
        const end = file.text.endsWith("\n") ? "" : "\n";
        return `File ${file.name}:\n${fence}\n${file.text}${end}${fence}`;
    });
    if (node.text) parts.push(node.text);
    return parts.join("\n\n");
}

/** The `messages` of a request whose answer comes below `leaf`.
 *  An answer that failed before its first word is left out, and the two messages around it become one, since
 *  many templates refuse two of the same role in a row. */
export function requestMessages(talk, leaf) {
    const path = pathTo(talk, leaf);
    const first = Math.max(
        0,
        path.findIndex((node) => node.id === talk.from),
    );
    const out = talk.system.trim() ? [{ role: "system", content: talk.system }] : [];
    for (const node of path.slice(first)) {
        const content = contentOf(node);
        if (node.role === "assistant" && !content && !node.thinking) continue;
        const last = out[out.length - 1];
        if (last && last.role === node.role) {
            last.content += `\n\n${content}`;
            continue;
        }
        const message = { role: node.role, content };
        if (node.role === "assistant" && node.thinking) message.reasoning_content = node.thinking;
        out.push(message);
    }
    return out;
}

/** Where to start so that about `share` of the words before `leaf` remain: a user message, or null when only
 *  the last one is left. Lengths stand for tokens: the server has the last word. */
export function laterStart(talk, leaf, share) {
    const path = pathTo(talk, leaf);
    const first = Math.max(
        0,
        path.findIndex((node) => node.id === talk.from),
    );
    const sent = path.slice(first);
    const length = (node) => contentOf(node).length + 16;
    const total = sent.reduce((sum, node) => sum + length(node), 0);
    let gone = 0;
    let lastUser = null;
    for (let i = 1; i < sent.length; i++) {
        gone += length(sent[i - 1]);
        if (sent[i].role !== "user") continue;
        lastUser = sent[i];
        if (total - gone <= total * share) return sent[i];
    }
    return lastUser;
}

/** Tokens of the context that the last answer of the path ended with, or null when none told. */
export function contextUsed(talk) {
    for (const node of shownPath(talk).reverse()) {
        const used = node.stats?.prompt_tokens;
        if (Number.isFinite(used)) return used + (node.stats.completion_tokens ?? 0);
    }
    return null;
}

/** A conversation read from a file or an older page, made whole; throws when it is none. */
export function checkConversation(value) {
    const plain = (x) => x !== null && typeof x === "object" && !Array.isArray(x);
    if (!plain(value) || !plain(value.nodes)) throw new Error("this is no conversation");
    const talk = newConversation(typeof value.system === "string" ? value.system : "");
    if (/^[0-9a-f]{16}$/.test(value.id)) talk.id = value.id;
    if (typeof value.title === "string") talk.title = value.title.slice(0, 200);
    talk.named = value.named === true;
    for (const key of ["created", "updated"]) if (Number.isFinite(value[key])) talk[key] = value[key];
    const ids = new Set(Object.keys(value.nodes).filter((id) => /^[0-9a-f]{16}$/.test(id)));
    const kids = plain(value.kids) ? value.kids : {};
    const picked = plain(value.picked) ? value.picked : {};
    // From the root down: what hangs on nothing, or on itself, is not reached and left behind.
    const open = [""];
    while (open.length > 0) {
        const parent = open.shift();
        const own = (Array.isArray(kids[parent]) ? kids[parent] : []).filter((id) => ids.delete(id));
        talk.kids[parent] = own;
        for (const id of own) talk.nodes[id] = checkMessage(value.nodes[id], id, parent);
        if (own.length > 0)
            talk.picked[parent] = own.includes(picked[parent]) ? picked[parent] : own[own.length - 1];
        open.push(...own);
    }
    if (talk.nodes[value.from]) talk.from = value.from;
    return talk;
}

const STATES = ["done", "stopped", "cut", "length", "error"];

function checkMessage(value, id, parent) {
    const node = { id, parent, role: "user", text: "", state: "done", time: 0 };
    if (value === null || typeof value !== "object") return node;
    if (value.role === "assistant") node.role = "assistant";
    for (const key of ["text", "thinking", "model"])
        if (typeof value[key] === "string") node[key] = value[key];
    for (const key of ["time", "thoughtMs"]) if (Number.isFinite(value[key])) node[key] = value[key];
    // What was being written when the page went away ended there.
    node.state = STATES.includes(value.state) ? value.state : value.state === "live" ? "cut" : "done";
    const named = (file) => typeof file?.name === "string" && typeof file?.text === "string";
    if (Array.isArray(value.files)) {
        node.files = value.files.filter(named).map(({ name, text }) => ({ name, text }));
    }
    if (Array.isArray(value.calls)) {
        node.calls = value.calls.map((call) => ({ name: `${call?.name}`, arguments: `${call?.arguments}` }));
    }
    for (const key of ["error", "stats"])
        if (value[key] && typeof value[key] === "object") node[key] = value[key];
    return node;
}
