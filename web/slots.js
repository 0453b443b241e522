/* The answer of /slots, as the monitor uses it: what each slot does, how fast, and which requests ended.
 *
 * Fields are llama.cpp's: id, id_task, n_ctx, is_processing, n_prompt_tokens, n_prompt_tokens_processed,
 * n_prompt_tokens_cache, next_token.n_decoded. What is missing is null. */

const number = (...values) => values.find((v) => Number.isFinite(v)) ?? null;

/** [{id, task, busy, context, prompt, read, cached, decoded, used}] */
export function readSlots(value) {
    if (!Array.isArray(value)) return [];
    return value.map((slot) => {
        const next = Array.isArray(slot.next_token) ? slot.next_token[0] : slot.next_token;
        const prompt = number(slot.n_prompt_tokens);
        const decoded = number(next?.n_decoded, slot.n_decoded);
        return {
            id: slot.id,
            task: number(slot.id_task),
            busy: slot.is_processing === true,
            context: number(slot.n_ctx),
            prompt,
            read: number(slot.n_prompt_tokens_processed),
            cached: number(slot.n_prompt_tokens_cache),
            decoded,
            used: number(
                slot.n_past,
                prompt === null && decoded === null ? null : (prompt ?? 0) + (decoded ?? 0),
            ),
        };
    });
}

/** Tokens that were made (`decoded`) or read (`read`) between two looks; null when the slots do not tell. */
export function progressBetween(before, after, key) {
    let sum = null;
    for (const slot of after) {
        if (slot[key] === null) continue;
        const old = before?.find((x) => x.id === slot.id && x.task === slot.task);
        const start = old ? (old[key] ?? 0) : 0;
        sum = (sum ?? 0) + Math.max(0, slot[key] - start);
    }
    return sum;
}

/** Requests that were running at the first look and are not at the second: what was last seen of them. */
export function endedBetween(before, after) {
    return (before ?? []).filter((old) => {
        const now = after.find((x) => x.id === old.id);
        return old.busy && (!now || !now.busy || now.task !== old.task);
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
