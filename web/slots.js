/* The answer of /slots, as the monitor uses it: what each slot does, how fast, and which requests ended.
 *
 * Fields: id, n_ctx, is_processing, n_past, and of the request at work (or the last one) n_prompt, n_cached,
 * n_read (of the prompt, the cached part too), n_decoded; llama.cpp's names for them are taken as well. What
 * is missing is null. Without a task's number a request is known by its prompt and by counts that only rise.
 * */

const number = (...values) => values.find((v) => Number.isFinite(v)) ?? null;

/** [{id, task, busy, context, prompt, read, cached, decoded, used}] */
export function readSlots(value) {
    if (!Array.isArray(value)) return [];
    return value.map((slot) => {
        const next = Array.isArray(slot.next_token) ? slot.next_token[0] : slot.next_token;
        const prompt = number(slot.n_prompt, slot.n_prompt_tokens);
        const decoded = number(slot.n_decoded, next?.n_decoded);
        return {
            id: slot.id,
            task: number(slot.id_task),
            busy: slot.is_processing === true,
            context: number(slot.n_ctx),
            prompt,
            read: number(slot.n_read, slot.n_prompt_tokens_processed),
            cached: number(slot.n_cached, slot.n_prompt_tokens_cache),
            decoded,
            used: number(
                slot.n_past,
                prompt === null && decoded === null ? null : (prompt ?? 0) + (decoded ?? 0),
            ),
        };
    });
}

function sameRequest(before, after) {
    return (
        before.id === after.id &&
        before.task === after.task &&
        before.prompt === after.prompt &&
        (after.decoded ?? 0) >= (before.decoded ?? 0)
    );
}

/** Tokens that were made (`decoded`) or read (`read`) between two looks; null when the slots do not tell. */
export function progressBetween(before, after, key) {
    let sum = null;
    for (const slot of after) {
        if (slot[key] === null) continue;
        const old = before?.find((x) => sameRequest(x, slot));
        // Of a new request nothing is made yet, and what was cached is read without reading.
        const start = old ? (old[key] ?? 0) : key === "read" ? (slot.cached ?? 0) : 0;
        sum = (sum ?? 0) + Math.max(0, slot[key] - start);
    }
    return sum;
}

/** Requests that were running at the first look and are not at the second: what was last seen of them. */
export function endedBetween(before, after) {
    return (before ?? []).filter((old) => {
        const now = after.find((x) => x.id === old.id);
        return old.busy && (!now || !now.busy || !sameRequest(old, now));
    });
}

/** The last requests, newest first: seen on a slot, told by an answer of this page, or both. */
export class RequestLog {
    constructor(size = 30) {
        this.size = size;
        this.entries = [];
    }

    #add(entry) {
        this.entries.unshift(entry);
        this.entries.sort((a, b) => b.time - a.time);
        this.entries.length = Math.min(this.entries.length, this.size);
    }

    seen(slot, time) {
        const { id, prompt, cached, decoded } = slot;
        // Our own answer may have been told before the slot was looked at again.
        const own = this.entries.find((x) => x.here && x.slot === null && isSame(x, prompt, time));
        if (own) own.slot = id;
        else
            this.#add({
                time,
                here: false,
                slot: id,
                prompt,
                cached,
                tokens: decoded,
                tps: null,
                first: null,
                end: "",
            });
    }

    /** An answer of this page (conversation.js) that ended. */
    own(node, time) {
        const stats = node.stats ?? {};
        const prompt = number(stats.prompt_tokens);
        const entry = {
            time,
            here: true,
            slot: null,
            prompt,
            cached: number(stats.cached_tokens),
            tokens: number(stats.completion_tokens),
            tps: number(stats.tps),
            first: number(stats.first_ms),
            end: node.state,
        };
        const seen = this.entries.find((x) => !x.here && isSame(x, prompt, time));
        if (seen) Object.assign(seen, { ...entry, time: seen.time, slot: seen.slot });
        else this.#add(entry);
    }
}

function isSame(entry, prompt, time) {
    return (
        Math.abs(entry.time - time) < 3000 &&
        (entry.prompt === prompt || entry.prompt === null || prompt === null)
    );
}
