/* The monitor: what the server does, from /metrics, /slots and /props.
 *
 * A card exists once its numbers were sent for the first time; nothing is shown that the server does not
 * tell. It is asked every POLL_MS while somebody looks, or while this page waits for an answer (so that there
 * is a past to look at), and not at all when the page is hidden. */

import { Chart } from "./chart.js";
import { h, refill, setText } from "./dom.js";
import { bytes, clock, count, duration, percent, rate, short } from "./format.js";
import { rateBetween, readMetrics, Series } from "./prometheus.js";
import { endedBetween, progressBetween, readSlots, RequestLog } from "./slots.js";

const POLL_MS = 1000;
const POINTS = 120; // two minutes

const PURPOSES = ["weights", "experts", "kv", "state", "draft", "scratch"]; // the order of colours

class Card {
    constructor(title) {
        this.value = h("span", { class: "card-value num" });
        this.sub = h("p", { class: "card-sub" });
        this.content = h("div", { class: "card-content" });
        this.element = h(
            "section",
            { class: "card", "aria-label": title },
            h("header", {}, h("h3", { text: title }), this.value),
            this.content,
            this.sub,
        );
    }
}

class ChartCard extends Card {
    constructor(title, options) {
        super(title);
        this.series = new Series(POINTS);
        this.chart = new Chart(this.series, { label: title, ...options });
        this.format = options.format;
        this.content.append(this.chart.element);
    }

    add(time, value, sub) {
        this.series.add(time, value);
        this.chart.update();
        setText(this.value, this.format(this.series.last));
        setText(this.sub, sub ?? "");
    }
}

const withUnit = (unit) => (value) => (value === null ? "–" : `${rate(value)} ${unit}`);

export class MonitorView {
    #cards = new Map();
    #before = null;
    #slotsBefore = null;
    #timer = 0;
    #busy = false;
    visible = false;
    active = 0; // answers of this page that are running

    constructor(element, { api, link }) {
        Object.assign(this, { element, api, link });
        this.log = new RequestLog();
        this.notice = h("p", { class: "banner-line", role: "status" });
        // Charts in rows of equal height; what has a height of its own packed into columns; the table below.
        this.groups = ["charts", "details", "tables"].map((name) => h("div", { class: `cards ${name}` }));
        refill(element, h("div", { class: "monitor-inner" }, this.notice, this.groups));
        link.addEventListener("facts", () => this.#showFacts());
        link.addEventListener("change", () => this.poke());
        document.addEventListener("visibilitychange", () => this.poke());
    }

    setVisible(visible) {
        this.visible = visible;
        if (visible) {
            this.#showFacts();
            this.#showRequests();
        }
        this.poke();
    }

    /** Looks now when it should, and goes on from there. */
    poke() {
        clearTimeout(this.#timer);
        const wanted = (this.visible || this.active > 0) && !document.hidden && this.link.state === "ok";
        if (this.link.state === "away")
            this.#say("The server does not answer; the numbers are the last ones seen.");
        if (wanted && !this.#busy) this.#look();
    }

    ended(node) {
        this.log.own(node, Date.now());
        if (this.visible) this.#showRequests();
    }

    async #look() {
        this.#busy = true;
        const signal = AbortSignal.timeout(5000);
        const [metrics, slots] = await Promise.allSettled([this.api.metrics(signal), this.api.slots(signal)]);
        this.#busy = false;
        const wrong = [metrics, slots].filter((x) => x.status === "rejected").map((x) => x.reason);
        if (wrong.some((error) => error.kind === "away")) this.link.lost();
        else if (wrong.length > 0)
            this.#say(
                wrong[0].kind === "key" ? "The server wants its key for these numbers." : wrong[0].message,
            );
        else this.#say("");
        if (slots.status === "fulfilled") this.#takeSlots(readSlots(slots.value));
        if (metrics.status === "fulfilled") this.#takeMetrics(readMetrics(metrics.value));
        this.#timer = setTimeout(() => this.poke(), POLL_MS);
    }

    #say(text) {
        setText(this.notice, text);
        this.notice.hidden = text === "";
    }

    /** The card of this name, made when first asked for. Cards stand in the groups and the order of ORDER. */
    #card(name, make) {
        let card = this.#cards.get(name);
        if (!card) {
            card = make();
            this.#cards.set(name, card);
            const group = ORDER.findIndex((names) => names.some((x) => name.startsWith(x)));
            const place = ORDER[group].findIndex((x) => name.startsWith(x));
            card.element.dataset.place = place;
            const after = [...this.groups[group].children].find((x) => Number(x.dataset.place) > place);
            this.groups[group].insertBefore(card.element, after ?? null);
        }
        return card;
    }

    // ---- Slots ----

    #takeSlots(slots) {
        const time = Date.now();
        const seconds = this.#slotsBefore ? (time - this.#slotsBefore.time) / 1000 : null;
        const perSecond = (key) => {
            const made = seconds ? progressBetween(this.#slotsBefore.slots, slots, key) : null;
            return made === null ? null : made / seconds;
        };
        this.slotRates = { tokens: perSecond("decoded"), prompt: perSecond("read") };
        for (const slot of endedBetween(this.#slotsBefore?.slots, slots)) this.log.seen(slot, time);
        this.#slotsBefore = { time, slots };
        const card = this.#card("slots", () => new Card("Slots"));
        const busy = slots.filter((x) => x.busy).length;
        setText(card.value, `${busy} of ${slots.length} busy`);
        refill(card.content, h("ul", { class: "slot-list" }, slots.map(slotRow)));
        this.#showRequests();
    }

    // ---- Metrics ----

    #takeMetrics(now) {
        const before = this.#before;
        this.#before = now;
        this.#speed(now, before);
        this.#load(now);
        this.#memory(now);
        this.#experts(now);
        this.#savings(now, before);
        for (const device of now.devices) this.#device(now.time, device);
    }

    #speed(now, before) {
        // The counter of made tokens rises with each token, that of read ones with each finished prompt only:
        // there the slots know better.
        const madeRate = rateBetween(before, now, "tokens") ?? this.slotRates?.tokens ?? null;
        const readRate = this.slotRates?.prompt ?? rateBetween(before, now, "promptTokens");
        const tokens = this.#card(
            "tokens",
            () => new ChartCard("Writing", { format: withUnit("t/s"), least: 5 }),
        );
        const made = now.tokens === null ? "" : `${short(now.tokens)} tokens so far`;
        const mean = tokens.series.busyMean === null ? "" : `mean ${rate(tokens.series.busyMean)} t/s`;
        tokens.add(now.time, madeRate, [mean, made].filter(Boolean).join(" · "));
        const prompt = this.#card(
            "prompt",
            () => new ChartCard("Reading prompts", { format: withUnit("t/s"), least: 50 }),
        );
        const overall = now.promptSeconds > 0 ? `mean ${rate(now.promptTokens / now.promptSeconds)} t/s` : "";
        const read = now.promptTokens === null ? "" : `${short(now.promptTokens)} tokens so far`;
        prompt.add(now.time, readRate, [overall, read].filter(Boolean).join(" · "));
    }

    #load(now) {
        if (now.running === null) return;
        const card = this.#card(
            "load",
            () =>
                new ChartCard("Requests", {
                    format: (v) => (v === null ? "–" : `${count(v)} running`),
                    least: 4,
                }),
        );
        const ends = [...now.requests].filter(([, n]) => n > 0).map(([why, n]) => `${count(n)} ${why}`);
        const waiting = now.waiting > 0 ? `${count(now.waiting)} waiting` : "none waiting";
        card.add(now.time, now.running, [waiting, ...ends].join(" · "));
    }

    #memory(now) {
        if (now.memory.length === 0) return;
        const card = this.#card("memory", () => new Card("Memory"));
        const all = now.memory.reduce((sum, place) => sum + placeSum(place), 0);
        setText(card.value, bytes(all));
        const key = JSON.stringify(now.memory);
        if (card.key === key) return;
        card.key = key;
        refill(card.content, now.memory.map(memoryBar));
    }

    #experts(now) {
        // A model without tiers hits always.
        if (now.expertHits === null || (now.expertHits === 1 && now.bytesPerToken.size < 2)) return;
        const card = this.#card("experts", () => new ChartCard("Expert hits", { format: percent, top: 1 }));
        const tiers = [...now.bytesPerToken].map(([tier, n]) => `${tier} ${bytes(n)}`);
        card.add(now.time, now.expertHits, tiers.length > 0 ? `read for a token: ${tiers.join(" · ")}` : "");
    }

    #savings(now, before) {
        if (now.drafted > 0) {
            const card = this.#card(
                "drafts",
                () => new ChartCard("Drafts accepted", { format: percent, top: 1 }),
            );
            const tried = before ? now.drafted - before.drafted : 0;
            const taken = before ? now.accepted - before.accepted : 0;
            card.add(
                now.time,
                tried > 0 ? taken / tried : null,
                `${percent(now.accepted / now.drafted)} of ${short(now.drafted)} so far`,
            );
        }
        if (now.askedTokens > 0) {
            const card = this.#card("cache", () => new Card("Prefix reuse"));
            setText(card.value, percent(now.cachedTokens / now.askedTokens));
            refill(
                card.content,
                meter(now.cachedTokens / now.askedTokens, "Prompt tokens that were already known"),
            );
            setText(
                card.sub,
                `${short(now.cachedTokens)} of ${short(now.askedTokens)} prompt tokens were already known`,
            );
        }
        if (now.cacheUse !== null) {
            const card = this.#card("kv", () => new ChartCard("Context memory", { format: percent, top: 1 }));
            card.add(now.time, now.cacheUse, "of all pages for keys and values");
        }
    }

    #device(time, { device, temperature, power }) {
        if (temperature !== null) {
            const format = (v) => (v === null ? "–" : `${Math.round(v)} °C`);
            this.#card(
                `heat ${device}`,
                () => new ChartCard(`Temperature, ${device}`, { format, top: 110 }),
            ).add(time, temperature);
        }
        if (power !== null) {
            const format = (v) => (v === null ? "–" : `${Math.round(v)} W`);
            this.#card(`power ${device}`, () => new ChartCard(`Power, ${device}`, { format, least: 50 })).add(
                time,
                power,
            );
        }
    }

    // ---- Facts and requests ----

    #showFacts() {
        const { props, models } = this.link;
        if (!props && models.length === 0) return;
        const card = this.#card("facts", () => new Card("Server"));
        const meta = models[0]?.meta ?? {};
        const rows = [
            ["Model", this.link.modelName],
            ["File", props?.model_path?.split("/").pop()],
            ["Parameters", Number.isFinite(meta.n_params) ? short(meta.n_params) : null],
            ["Size", Number.isFinite(meta.size) ? bytes(meta.size) : null],
            ["Context", this.link.context ? `${count(this.link.context)} tokens` : null],
            ["Trained for", Number.isFinite(meta.n_ctx_train) ? `${count(meta.n_ctx_train)} tokens` : null],
            ["Build", props?.build_info],
        ];
        refill(
            card.content,
            h(
                "dl",
                { class: "rows" },
                rows
                    .filter(([, value]) => value)
                    .map(([name, value]) => h("div", {}, h("dt", { text: name }), h("dd", { text: value }))),
            ),
        );
    }

    #showRequests() {
        const card = this.#card("requests", () => new Card("Last requests"));
        if (this.log.entries.length === 0) {
            if (!card.content.firstChild)
                refill(
                    card.content,
                    h("p", {
                        class: "muted",
                        text: "None seen yet. Requests appear here while the monitor is open.",
                    }),
                );
            return;
        }
        const head = ["Ended", "From", "Prompt", "Cached", "Written", "Speed", "First after", "End"];
        const rows = this.log.entries.map((x) => [
            clock(x.time),
            x.here ? "this page" : `slot ${x.slot}`,
            count(x.prompt ?? NaN),
            count(x.cached ?? NaN),
            count(x.tokens ?? NaN),
            x.tps === null ? "–" : `${rate(x.tps)} t/s`,
            duration(x.first ?? NaN),
            ENDS[x.end] ?? (x.end || "–"),
        ]);
        const cells = (list, tag) =>
            h(
                "tr",
                {},
                list.map((text, i) => h(tag, { text, class: i > 1 && i < 7 ? "right" : null })),
            );
        refill(
            card.content,
            h(
                "div",
                { class: "table", tabindex: "0", role: "region", "aria-label": "Last requests" },
                h(
                    "table",
                    {},
                    h("thead", {}, cells(head, "th")),
                    h(
                        "tbody",
                        {},
                        rows.map((r) => cells(r, "td")),
                    ),
                ),
            ),
        );
    }
}

const ENDS = { done: "complete", length: "limit of tokens", cut: "connection lost" };

const ORDER = [
    ["tokens", "prompt", "load", "kv", "experts", "drafts", "heat", "power"],
    ["slots", "cache", "memory", "facts"],
    ["requests"],
];

function slotRow(slot) {
    const parts = [];
    if (slot.prompt > 0) parts.push(`prompt ${count(slot.prompt)}`);
    if (slot.cached > 0) parts.push(`${count(slot.cached)} cached`);
    if (slot.decoded > 0) parts.push(`${count(slot.decoded)} written`);
    const reading = slot.busy && slot.prompt !== null && slot.read !== null && !slot.decoded;
    const state = !slot.busy ? "free" : reading ? "reading" : "writing";
    const share = slot.context && slot.used !== null ? slot.used / slot.context : 0;
    return h(
        "li",
        { class: `slot ${state}` },
        h(
            "div",
            { class: "slot-head" },
            h("span", { class: "num", text: `${slot.id}` }),
            h("span", { class: "slot-state", text: state }),
            h("span", { class: "muted num", text: parts.join(" · ") }),
        ),
        meter(
            share,
            `Context of slot ${slot.id}`,
            slot.context && slot.used !== null ? `${count(slot.used)} / ${count(slot.context)}` : "",
        ),
    );
}

/** A bar of a share, with its number for a screen reader. */
export function meter(share, label, text = "") {
    const bounded = Math.min(1, Math.max(0, Number.isFinite(share) ? share : 0));
    const fillBar = h("i", { class: "meter-fill" });
    fillBar.style.width = `${(bounded * 100).toFixed(2)}%`;
    const bar = h(
        "span",
        {
            class: "meter",
            role: "meter",
            "aria-label": label,
            "aria-valuemin": "0",
            "aria-valuemax": "100",
            "aria-valuenow": (bounded * 100).toFixed(0),
        },
        fillBar,
    );
    bar.classList.toggle("high", bounded > 0.85);
    return h("span", { class: "meter-row" }, bar, text ? h("span", { class: "num", text }) : null);
}

function placeSum(place) {
    return place.items.reduce((sum, item) => sum + item.bytes, 0);
}

/** One place of memory: a bar of its purposes, and each with its number below. */
function memoryBar(place) {
    const used = placeSum(place);
    const whole = Math.max(place.total ?? 0, used);
    const bar = h("div", { class: "stack", "aria-hidden": "true" });
    const colour = (what) => `purpose-${PURPOSES.indexOf(what) + 1}`; // 0: any other
    for (const item of place.items) {
        const part = h("i", { class: colour(item.what) });
        part.style.width = `${((item.bytes / whole) * 100).toFixed(2)}%`;
        bar.append(part);
    }
    const legend = place.items.map((item) =>
        h(
            "li",
            {},
            h("i", { class: `swatch ${colour(item.what)}`, "aria-hidden": "true" }),
            h("span", { text: item.what }),
            h("span", { class: "num", text: bytes(item.bytes) }),
        ),
    );
    const sum = place.total ? `${bytes(used)} of ${bytes(place.total)}` : bytes(used);
    return h(
        "div",
        { class: "place" },
        h(
            "div",
            { class: "place-head" },
            h("span", { text: place.place }),
            h("span", { class: "num", text: sum }),
        ),
        bar,
        h("ul", { class: "legend" }, legend),
    );
}
