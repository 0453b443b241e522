/* Server-sent events: text in pieces of any size becomes whole events.
 *
 * Only what a fetch body needs of the format (HTML standard, section 9.2.6): `data`, `event` and `id` lines,
 * comments, the three line ends, a byte-order mark, an event left open at the end is dropped. EventSource
 * itself cannot be used here, since it sends neither a body nor an Authorization header. */

export class EventParser {
    #rest = "";
    #started = false;
    #data = [];
    #event = "";
    #id = "";
    #comments = 0;

    /** How many comment lines were seen: a server that is only reading a prompt sends these. */
    get comments() {
        return this.#comments;
    }

    /** Takes the next piece, returns the events it completed: [{event, data, id}]. */
    push(text) {
        if (!this.#started && text) {
            this.#started = true;
            if (text.startsWith("\uFEFF")) text = text.slice(1);
        }
        const events = [];
        let all = this.#rest + text;
        // A carriage return at the very end may be the first half of \r\n: it waits for the next piece.
        const held = all.endsWith("\r") ? "\r" : "";
        if (held) all = all.slice(0, -1);
        const lines = all.split(/\r\n|\n|\r/);
        this.#rest = lines.pop() + held;
        for (const line of lines) {
            const event = this.#line(line);
            if (event) events.push(event);
        }
        return events;
    }

    #line(line) {
        if (line === "") return this.#dispatch();
        if (line.startsWith(":")) {
            this.#comments += 1;
            return null;
        }
        const colon = line.indexOf(":");
        const field = colon < 0 ? line : line.slice(0, colon);
        let value = colon < 0 ? "" : line.slice(colon + 1);
        if (value.startsWith(" ")) value = value.slice(1);
        if (field === "data") this.#data.push(value);
        else if (field === "event") this.#event = value;
        else if (field === "id") this.#id = value;
        return null;
    }

    #dispatch() {
        const event = { event: this.#event || "message", data: this.#data.join("\n"), id: this.#id };
        const some = this.#data.length > 0;
        this.#data = [];
        this.#event = "";
        return some ? event : null;
    }
}

/** The events of a response body, as an async generator. Returns when the body ends; throws what reading
 *  throws. */
export async function* readEvents(body, parser = new EventParser()) {
    const reader = body.getReader();
    const decoder = new TextDecoder();
    try {
        for (;;) {
            const { done, value } = await reader.read();
            if (done) return;
            yield* parser.push(decoder.decode(value, { stream: true }));
        }
    } finally {
        // Leaving early (an error, `return`) closes the connection, and so ends the work behind it.
        reader.cancel().catch(() => {});
    }
}
