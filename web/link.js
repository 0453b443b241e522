/* Whether the server is there. While it is not, it is asked again and again, more slowly each time; what
 * waits for it (an answer that could not be sent) goes on at once when it is back.
 *
 *     state  "unknown" → "ok" ⇄ "away" | "loading"
 *
 * Events: "change" when the state does, "facts" when /props or the models were read again. */

const FIRST_MS = 500;
const SLOWEST_MS = 5000;
const HEARTBEAT_MS = 10000;

export class Link extends EventTarget {
    state = "unknown";
    props = null;
    models = [];
    #timer = 0;
    #delay = FIRST_MS;
    #waiting = [];

    constructor(api) {
        super();
        this.api = api;
        // A page that comes to the front again looks at once.
        document.addEventListener("visibilitychange", () => {
            if (!document.hidden) this.#schedule(0);
        });
        globalThis.addEventListener("online", () => this.#schedule(0));
    }

    start() {
        return this.check();
    }

    /** Something noticed that the server does not answer. */
    lost(state = "away") {
        if (this.state !== state) {
            this.#delay = FIRST_MS;
            this.#enter(state);
        }
        this.#schedule(this.#delay);
    }

    /** Kept when the server answers again; rejects when the signal fires first. */
    whenBack(signal, state = "away") {
        return new Promise((resolve, reject) => {
            const stop = () => reject(signal.reason);
            if (signal.aborted) {
                stop();
                return;
            }
            signal.addEventListener("abort", stop, { once: true });
            this.#waiting.push(() => {
                signal.removeEventListener("abort", stop);
                resolve();
            });
            this.lost(state);
        });
    }

    async check() {
        clearTimeout(this.#timer);
        try {
            await this.api.health(AbortSignal.timeout(8000));
            await this.#found();
        } catch (error) {
            // Any answer but "loading" means that somebody is there.
            if (error.kind === "loading" || error.kind === "away" || error.kind === undefined) {
                this.#enter(error.kind === "loading" ? "loading" : "away");
            } else {
                await this.#found();
            }
        }
        if (this.state === "ok") this.#delay = FIRST_MS;
        else this.#delay = Math.min(SLOWEST_MS, this.#delay * 1.7);
        this.#schedule(this.state === "ok" ? HEARTBEAT_MS : this.#delay);
    }

    async #found() {
        const news = this.state !== "ok";
        this.#enter("ok");
        for (const go of this.#waiting.splice(0)) go();
        if (news) await this.readFacts();
    }

    /** Reads /props and the list of models; an error of the key is for whoever asks next. */
    async readFacts() {
        const [props, models] = await Promise.allSettled([this.api.props(), this.api.models()]);
        this.props = props.status === "fulfilled" ? props.value : this.props;
        this.models = models.status === "fulfilled" ? (models.value.data ?? []) : this.models;
        const wrong = [props, models].find((x) => x.reason?.kind === "key");
        this.dispatchEvent(new CustomEvent("facts", { detail: { needsKey: Boolean(wrong) } }));
    }

    #enter(state) {
        if (this.state === state) return;
        const before = this.state;
        this.state = state;
        this.dispatchEvent(new CustomEvent("change", { detail: { before, state } }));
    }

    #schedule(ms) {
        clearTimeout(this.#timer);
        // A hidden page does not wake a server that is well.
        if (this.state === "ok" && document.hidden) return;
        this.#timer = setTimeout(() => this.check(), ms);
    }

    /** The name of the model in use. */
    get modelName() {
        return this.models[0]?.id ?? this.props?.model_alias ?? "";
    }

    /** Tokens a conversation may have, or null. */
    get context() {
        const n = this.props?.default_generation_settings?.n_ctx ?? this.models[0]?.meta?.n_ctx;
        return Number.isFinite(n) && n > 0 ? n : null;
    }
}
