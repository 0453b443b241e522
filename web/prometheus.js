/* The text of /metrics: parsed, and turned into what the monitor shows.
 *
 * Names are llama.cpp's and vLLM's where the meaning is the same, and mica's own (docs/CONTRACT.md,
 * "Server"). What a server does not send is absent from the reading, and the monitor leaves its part out. */

const SAMPLE = /^([A-Za-z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?$/;
const LABEL = /([A-Za-z_]\w*)="((?:\\.|[^"\\])*)"/g;

/** [{name, labels, value}] of a text in the Prometheus format; lines it does not understand are left out. */
export function parseMetrics(text) {
    const samples = [];
    for (const line of text.split("\n")) {
        if (line === "" || line[0] === "#") continue;
        const found = SAMPLE.exec(line.trim());
        if (!found) continue;
        const labels = {};
        for (const [, key, value] of (found[2] ?? "").matchAll(LABEL)) {
            labels[key] = value.replace(/\\(.)/g, (_, c) => (c === "n" ? "\n" : c));
        }
        const value = { "+Inf": Infinity, "-Inf": -Infinity }[found[3]] ?? Number(found[3]);
        if (!Number.isNaN(value)) samples.push({ name: found[1], labels, value });
    }
    return samples;
}

/** The sum over all samples of the first of these names that is there; null when none is. */
export function sumOf(samples, ...names) {
    for (const name of names) {
        const own = samples.filter((s) => s.name === name);
        if (own.length > 0) return own.reduce((sum, s) => sum + s.value, 0);
    }
    return null;
}

/** The first sample of one of these names, or null. */
export function valueOf(samples, ...names) {
    for (const name of names) {
        const own = samples.find((s) => s.name === name);
        if (own) return own.value;
    }
    return null;
}

/** {label value: number} of a metric, by one label. */
export function byLabel(samples, name, label) {
    const out = new Map();
    for (const s of samples) if (s.name === name) out.set(s.labels[label] ?? "", s.value);
    return out;
}

/** Everything the monitor takes from one answer of /metrics; counters stay counters, nulls mean "not sent".
 *  */
export function readMetrics(text, time = Date.now()) {
    const samples = parseMetrics(text);
    const sum = (...names) => sumOf(samples, ...names);
    const value = (...names) => valueOf(samples, ...names);
    return {
        time,
        promptTokens: sum("llamacpp:prompt_tokens_total", "vllm:prompt_tokens_total"),
        promptSeconds: sum("llamacpp:prompt_seconds_total"),
        tokens: sum("llamacpp:tokens_predicted_total", "vllm:generation_tokens_total"),
        tokenSeconds: sum("llamacpp:tokens_predicted_seconds_total"),
        cachedTokens: sum("vllm:prefix_cache_hits_total", "vllm:prefix_cache_hits"),
        askedTokens: sum("vllm:prefix_cache_queries_total", "vllm:prefix_cache_queries"),
        running: value("llamacpp:requests_processing", "vllm:num_requests_running"),
        waiting: value("llamacpp:requests_deferred", "vllm:num_requests_waiting"),
        cacheUse: value("llamacpp:kv_cache_usage_ratio", "vllm:kv_cache_usage_perc"),
        drafted: sum(
            "llamacpp:spec_decode_num_draft_tokens_total",
            "vllm:spec_decode_num_draft_tokens_total",
        ),
        accepted: sum(
            "llamacpp:spec_decode_num_accepted_tokens_total",
            "vllm:spec_decode_num_accepted_tokens_total",
        ),
        requests: byLabel(samples, "vllm:request_success_total", "finished_reason"),
        expertHits: value("mica_expert_hit_ratio"),
        bytesPerToken: byLabel(samples, "mica_bytes_per_token", "tier"),
        memory: memoryOf(samples),
        devices: devicesOf(samples),
    };
}

/** [{place, items: [{what, bytes}], total, free}]: each card, then the machine's memory. */
function memoryOf(samples) {
    const places = new Map();
    const place = (name) => {
        if (!places.has(name)) places.set(name, { place: name, items: [], total: null, free: null });
        return places.get(name);
    };
    for (const s of samples) {
        const vram = /^mica_vram_(total_|free_)?bytes$/.exec(s.name);
        const ram = /^mica_ram_(total_|free_)?bytes$/.exec(s.name);
        if (!vram && !ram) continue;
        const name = vram ? (s.labels.device ?? "GPU") : "RAM";
        const at = place(name === "ram" || name === "cpu" ? "RAM" : name);
        const kind = (vram ?? ram)[1];
        if (kind) at[kind.slice(0, -1)] = s.value;
        else if (s.value > 0) at.items.push({ what: s.labels.what ?? "all", bytes: s.value });
    }
    return [...places.values()].filter((x) => x.items.length > 0 || x.total !== null);
}

/** [{device, temperature, power}] of the cards that tell. */
function devicesOf(samples) {
    const devices = new Map();
    const note = (name, key) => {
        for (const [device, number] of byLabel(samples, name, "device")) {
            devices.set(device, {
                device,
                temperature: null,
                power: null,
                ...devices.get(device),
                [key]: number,
            });
        }
    };
    note("mica_device_temperature_celsius", "temperature");
    note("mica_device_power_watts", "power");
    return [...devices.values()];
}

/** How fast a counter rose from one reading to the next, a second; null when it cannot be told (also: a
 *  restart). */
export function rateBetween(before, after, key) {
    if (!before || before[key] === null || after[key] === null) return null;
    const seconds = (after.time - before.time) / 1000;
    const rise = after[key] - before[key];
    return seconds > 0 && rise >= 0 ? rise / seconds : null;
}

/** The last `size` points of a series, oldest first. */
export class Series {
    constructor(size) {
        this.size = size;
        this.points = [];
    }

    add(time, value) {
        this.points.push({ time, value: Number.isFinite(value) ? value : null });
        if (this.points.length > this.size) this.points.shift();
    }

    get last() {
        return this.points[this.points.length - 1]?.value ?? null;
    }

    /** Mean over the points where something happened; null when nothing did. */
    get busyMean() {
        const busy = this.points.map((p) => p.value).filter((v) => v !== null && v > 0);
        return busy.length > 0 ? busy.reduce((a, b) => a + b, 0) / busy.length : null;
    }

    get peak() {
        return this.points.reduce((top, p) => Math.max(top, p.value ?? 0), 0);
    }
}
