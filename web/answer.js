/* One answer, from the request to its end, through all that can come between.
 *
 * Words go into `node` (conversation.js) as they come and `changed` is called; the reasons to wait (a full
 * queue, a loading model, a server that is gone before it said a word) are waited for here and the request is
 * sent again; the rest ends the answer with a state and, for an error, its plain data. What was said is never
 * taken back.
 *
 *     node.phase while it lives: {kind: "sent" | "reading" | "thinking" | "writing" | "busy" | "loading" |
 *     "away" | "key", since, until, read, total}; absent afterwards. */

import { requestMessages } from "./conversation.js";
import { ServerError } from "./api.js";

const BUSY_SECONDS = 3; // without a Retry-After
const BUSY_TRIES = 20;

/** @param world {api, whenBack(signal): promise, askKey(): promise of true when there is a new one, now(),
 *  sleep(ms, signal)}. Resolves when the answer has ended, whatever way. */
export async function runAnswer(world, talk, node, { settings, signal, changed }) {
    const messages = requestMessages(talk, talk.nodes[node.parent]);
    node.state = "live";
    let tries = 0;
    for (;;) {
        try {
            await stream(world, node, { messages, settings, signal, changed });
            break;
        } catch (error) {
            const began = node.text !== "" || Boolean(node.thinking);
            if (signal.aborted) {
                node.state = "stopped";
                break;
            }
            tries += 1;
            const again =
                !began && tries <= BUSY_TRIES && (await waitFor(world, error, { node, signal, changed }));
            if (again) continue;
            finishWithError(node, error, signal);
            break;
        }
    }
    delete node.phase;
    closeThinking(world, node);
    changed();
}

function finishWithError(node, error, signal) {
    if (signal.aborted) {
        node.state = "stopped";
        return;
    }
    const known =
        error instanceof ServerError ? error : new ServerError("page", `the page failed: ${error.message}`);
    node.state = known.kind === "away" && (node.text || node.thinking) ? "cut" : "error";
    node.error = known.plain();
}

/** Waits for what an error can be waited for; true: send again. */
async function waitFor(world, error, { node, signal, changed }) {
    const phase = (fields) => {
        node.phase = { since: world.now(), ...fields };
        changed();
    };
    try {
        if (error.kind === "busy") {
            const seconds = Math.min(120, Math.max(1, error.retryAfter ?? BUSY_SECONDS));
            phase({ kind: "busy", until: world.now() + seconds * 1000 });
            await world.sleep(seconds * 1000, signal);
            return true;
        }
        if (error.kind === "away" || error.kind === "loading") {
            phase({ kind: error.kind });
            await world.whenBack(signal);
            return true;
        }
        if (error.kind === "key") {
            phase({ kind: "key" });
            return await Promise.race([world.askKey(error), aborted(signal)]);
        }
    } catch {
        return false; // stopped while it waited
    }
    return false;
}

/** Rejects when the signal fires. */
function aborted(signal) {
    return new Promise((_, reject) =>
        signal.addEventListener("abort", () => reject(signal.reason), { once: true }),
    );
}

async function stream(world, node, { messages, settings, signal, changed }) {
    const started = world.now();
    node.phase = { kind: "sent", since: started };
    delete node.error;
    changed();
    let first = null;
    let finish = null;
    let chunks = 0;
    for await (const part of world.api.chat(messages, settings, signal)) {
        if (part.progress && first === null) readProgress(world, node, part.progress);
        if (part.text || part.thinking) {
            first ??= world.now();
            chunks += 1;
            addWords(world, node, part);
            node.phase.chunks = chunks;
            node.phase.first = first;
        }
        for (const call of part.calls) addCall(node, call);
        if (part.model) node.model = part.model;
        if (part.finish) finish = part.finish;
        if (part.usage || part.timings) node.stats = statsOf(node.stats, part);
        changed();
    }
    node.stats = {
        ...node.stats,
        first_ms: first === null ? null : first - started,
        total_ms: world.now() - started,
    };
    if (!Number.isFinite(node.stats.tps)) node.stats.tps = measuredRate(chunks, first, world.now());
    node.state = finish === "length" ? "length" : "done";
}

function readProgress(world, node, progress) {
    const { total, processed } = progress;
    const since = node.phase.kind === "reading" ? node.phase.since : world.now();
    node.phase = { kind: "reading", since, read: processed, total };
}

function addWords(world, node, part) {
    if (part.thinking) {
        node.thinking = (node.thinking ?? "") + part.thinking;
        node.thinkStart ??= world.now();
        node.phase = { kind: "thinking", since: node.thinkStart };
    }
    if (part.text) {
        closeThinking(world, node);
        node.text += part.text;
        if (node.phase.kind !== "writing") node.phase = { kind: "writing", since: world.now() };
    }
}

/** The time of thinking becomes part of the message; its start was only of use until now. */
function closeThinking(world, node) {
    if (node.thinkStart === undefined) return;
    node.thoughtMs = world.now() - node.thinkStart;
    delete node.thinkStart;
}

/** This page offers no tools; what a model calls all the same is shown as code and not run. */
function addCall(node, call) {
    node.calls ??= [];
    const own = (node.calls[call.index ?? 0] ??= { name: "", arguments: "" });
    own.name += call.function?.name ?? "";
    own.arguments += call.function?.arguments ?? "";
}

function statsOf(before, { usage, timings }) {
    const stats = { ...before };
    if (usage) {
        stats.prompt_tokens = usage.prompt_tokens;
        stats.completion_tokens = usage.completion_tokens;
        stats.cached_tokens = usage.prompt_tokens_details?.cached_tokens ?? stats.cached_tokens ?? null;
    }
    if (timings) {
        stats.tps = timings.predicted_per_second;
        stats.prompt_tps = timings.prompt_per_second;
        stats.prompt_ms = timings.prompt_ms;
        stats.drafted = timings.draft_n ?? null;
        stats.accepted = timings.draft_n_accepted ?? null;
    }
    return stats;
}

function measuredRate(chunks, first, now) {
    return chunks > 1 && now > first ? ((chunks - 1) * 1000) / (now - first) : null;
}
