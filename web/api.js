/* The server, as the page sees it: requests with the key, streams, and errors told apart.
 *
 * Everything a request can end in is a ServerError whose `kind` says what the page does about it:
 *
 *     "away"      no answer, or the connection ended in the middle: wait until it is back
 *     "loading"   503: the same, with other words          "busy"  429: again after `retryAfter` seconds
 *     "key"       401: ask for the key                     "refused"  403: Host or Origin
 *     "too-long"  400 context_length_exceeded, with `prompt` and `context` in tokens
 *     "too-large" 413    "request" any other 4xx    "server" any other 5xx, or an error event in a stream
 *
 * The key stays in this browser and goes nowhere but into the Authorization header of this server. */

import { readEvents } from "./sse.js";

export class ServerError extends Error {
    constructor(kind, message, more = {}) {
        super(message);
        this.kind = kind;
        Object.assign(this, more);
    }

    /** As plain data, for the store. */
    plain() {
        const { kind, message, status, prompt, context, param } = this;
        return JSON.parse(JSON.stringify({ kind, message, status, prompt, context, param }));
    }
}

const KINDS = { 401: "key", 403: "refused", 413: "too-large", 429: "busy", 503: "loading" };

/** Seconds of a Retry-After header: a number or a date; null when there is none. */
export function retrySeconds(header, now = Date.now()) {
    if (!header) return null;
    if (/^\d+$/.test(header.trim())) return Number(header);
    const date = Date.parse(header);
    return Number.isNaN(date) ? null : Math.max(0, Math.ceil((date - now) / 1000));
}

/** The error that an answer's status and body mean. */
export function errorOf(status, body, retryAfter = null) {
    let said = null;
    try {
        said = JSON.parse(body)?.error ?? null;
    } catch {
        said = null;
    }
    const text = typeof said?.message === "string" ? said.message : `the server answered ${status}`;
    if (said?.code === "context_length_exceeded") return tooLong(said, text, status);
    const kind = KINDS[status] ?? (status >= 500 ? "server" : "request");
    return new ServerError(kind, text, { status, retryAfter, param: said?.param ?? undefined });
}

/** Both numbers come as fields, or else stand in the sentence. */
function tooLong(said, text, status) {
    const numbers = (text.match(/\d[\d,]*/g) ?? []).map((x) => Number(x.replaceAll(",", "")));
    const prompt = said.n_prompt_tokens ?? numbers[0];
    const context = said.n_ctx ?? numbers[1];
    return new ServerError("too-long", text, { status, prompt, context, param: said.param ?? undefined });
}

/** What one chunk of a chat stream adds: {text, thinking, finish, usage, timings, progress, model, calls}. */
export function readChunk(chunk) {
    const choice = chunk.choices?.[0];
    const delta = choice?.delta ?? {};
    return {
        text: delta.content ?? "",
        thinking: delta.reasoning_content ?? delta.reasoning ?? "",
        calls: delta.tool_calls ?? [],
        finish: choice?.finish_reason ?? null,
        usage: chunk.usage ?? null,
        timings: chunk.timings ?? null,
        progress: chunk.prompt_progress ?? null,
        model: chunk.model ?? null,
    };
}

/** The fields of a request that the settings set; what is empty is left to the server. */
export function requestFields(settings) {
    const out = {};
    const numbers = [
        ["temperature", "temperature"],
        ["topK", "top_k"],
        ["topP", "top_p"],
        ["minP", "min_p"],
        ["repeatPenalty", "repeat_penalty"],
        ["presencePenalty", "presence_penalty"],
        ["frequencyPenalty", "frequency_penalty"],
        ["seed", "seed"],
        ["maxTokens", "max_tokens"],
    ];
    for (const [key, field] of numbers) if (Number.isFinite(settings[key])) out[field] = settings[key];
    const stop = (settings.stop ?? "").split("\n").filter((x) => x !== "");
    if (stop.length > 0) out.stop = stop;
    if (settings.model) out.model = settings.model;
    const { thinking } = settings;
    if (thinking === "off") out.chat_template_kwargs = { enable_thinking: false };
    else if (thinking === "on") out.chat_template_kwargs = { enable_thinking: true };
    else if (thinking) out.reasoning_effort = thinking;
    return out;
}

export class Api {
    /** keys: {get()} gives the key or "". base: where the server is, "" for where the page came from. */
    constructor(keys, base = "", fetcher = (...x) => globalThis.fetch(...x)) {
        this.keys = keys;
        this.base = base;
        this.fetcher = fetcher;
    }

    async #send(path, options = {}) {
        const headers = { ...options.headers };
        const key = this.keys.get();
        if (key) headers.Authorization = `Bearer ${key}`;
        let answer;
        try {
            answer = await this.fetcher(this.base + path, { cache: "no-store", ...options, headers });
        } catch (error) {
            if (error.name === "AbortError") throw error;
            throw new ServerError("away", "no answer from the server");
        }
        if (answer.ok) return answer;
        const body = await answer.text().catch(() => "");
        throw errorOf(answer.status, body, retrySeconds(answer.headers.get("Retry-After")));
    }

    async #json(path, options) {
        const answer = await this.#send(path, options);
        return answer.json().catch((error) => {
            if (error.name === "AbortError") throw error;
            throw new ServerError("server", `${path} gave no JSON`);
        });
    }

    #post(path, value, signal) {
        return this.#json(path, { ...jsonBody(value), signal });
    }

    health(signal) {
        return this.#json("health", { signal });
    }

    props(signal) {
        return this.#json("props", { signal });
    }

    models(signal) {
        return this.#json("v1/models", { signal });
    }

    slots(signal) {
        return this.#json("slots", { signal });
    }

    async metrics(signal) {
        return (await this.#send("metrics", { signal })).text();
    }

    /** How many tokens a text is. */
    async countTokens(text, signal) {
        return (await this.#post("tokenize", { content: text }, signal)).tokens?.length ?? null;
    }

    /** Streams an answer: yields what readChunk gives. Returns after the end mark; a stream that ends without
     *  it throws "away", an error event "server". An aborted signal throws AbortError. */
    async *chat(messages, settings, signal) {
        const body = {
            messages,
            stream: true,
            stream_options: { include_usage: true },
            timings_per_token: false,
            return_progress: true,
            ...requestFields(settings),
        };
        const answer = await this.#send("v1/chat/completions", { ...jsonBody(body), signal });
        try {
            for await (const { data } of readEvents(answer.body)) {
                if (data === "[DONE]") return;
                const chunk = parseChunk(data);
                if (chunk.error) throw streamError(chunk.error);
                yield readChunk(chunk);
            }
        } catch (error) {
            if (error instanceof ServerError || error.name === "AbortError") throw error;
            throw new ServerError("away", "the connection ended in the middle of the answer");
        }
        throw new ServerError("away", "the answer ended without its end mark");
    }
}

function jsonBody(value) {
    return { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(value) };
}

function parseChunk(data) {
    try {
        return JSON.parse(data) ?? {};
    } catch {
        throw new ServerError("server", "the stream held something that is no JSON");
    }
}

function streamError(said) {
    const text = typeof said.message === "string" ? said.message : "the server reported an error";
    return said.code === "context_length_exceeded"
        ? tooLong(said, text, 200)
        : new ServerError("server", text);
}
