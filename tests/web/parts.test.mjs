// The parts of the page that need no browser: events, requests and errors, conversations, the store, the
// monitor's readings, numbers, files.
import assert from "node:assert/strict";
import { webcrypto } from "node:crypto";
import test from "node:test";
import { runAnswer } from "../../web/answer.js";
import { Api, errorOf, requestFields, retrySeconds, ServerError } from "../../web/api.js";
import { textOf } from "../../web/attach.js";
import { chartPaths, niceTop } from "../../web/chart.js";
import * as talks from "../../web/conversation.js";
import { fileName, fromJson, toJson, toMarkdown } from "../../web/export.js";
import * as format from "../../web/format.js";
import { parseMetrics, rateBetween, readMetrics, Series } from "../../web/prometheus.js";
import { endedBetween, progressBetween, readSlots, RequestLog } from "../../web/slots.js";
import { EventParser } from "../../web/sse.js";
import { MemoryBackend, Store } from "../../web/store.js";

globalThis.crypto ??= webcrypto; // node 18 has it there only

// ---- Server-sent events ----

const STREAM =
    ": ping\r\n\r\ndata: one\n\ndata: two\rdata: lines\r\rid: 7\n" +
    "event: error\ndata:  x\n\ndata\n\nevent: none\n\n: c\ndata: ü€𝄞\r\n\r\n";
const EVENTS = [
    { event: "message", data: "one", id: "" },
    { event: "message", data: "two\nlines", id: "" },
    { event: "error", data: " x", id: "7" },
    { event: "message", data: "", id: "7" },
    { event: "message", data: "ü€𝄞", id: "7" },
];

test("events are the same however the text is cut", () => {
    assert.deepEqual(new EventParser().push(STREAM), EVENTS);
    for (let size = 1; size < STREAM.length; size++) {
        const parser = new EventParser();
        const got = [];
        for (let at = 0; at < STREAM.length; at += size)
            got.push(...parser.push(STREAM.slice(at, at + size)));
        assert.deepEqual(got, EVENTS, `pieces of ${size}`);
        assert.equal(parser.comments, 2);
    }
    assert.deepEqual(new EventParser().push("\uFEFFdata: a\n\n")[0].data, "a");
    assert.deepEqual(new EventParser().push("data: never ended\n"), []);
});

// ---- Requests and errors ----

test("errors are told apart", () => {
    const body = (fields) => JSON.stringify({ error: { message: "m", ...fields } });
    const kinds = {
        401: "key",
        403: "refused",
        413: "too-large",
        429: "busy",
        503: "loading",
        500: "server",
        404: "request",
        502: "server",
    };
    for (const [status, kind] of Object.entries(kinds))
        assert.equal(errorOf(Number(status), body({})).kind, kind);
    const long = errorOf(400, body({ code: "context_length_exceeded", n_prompt_tokens: 5000, n_ctx: 4096 }));
    assert.deepEqual([long.kind, long.prompt, long.context], ["too-long", 5000, 4096]);
    const said = errorOf(
        400,
        body({
            code: "context_length_exceeded",
            message: "the prompt has 5,210 tokens, and the context holds 4096",
        }),
    );
    assert.deepEqual([said.prompt, said.context], [5210, 4096]);
    assert.match(errorOf(502, "<html>").message, /502/);
    assert.match(errorOf(500, '{"error":"text"}').message, /500/);
    assert.deepEqual(long.plain(), {
        kind: "too-long",
        message: "m",
        status: 400,
        prompt: 5000,
        context: 4096,
    });
    assert.equal(retrySeconds("7"), 7);
    assert.equal(retrySeconds("Thu, 01 Jan 1970 00:01:00 GMT", 30000), 30);
    assert.equal(retrySeconds(null), null);
    assert.equal(retrySeconds("soon"), null);
});

test("only what was set is sent", () => {
    assert.deepEqual(requestFields({ temperature: null, stop: "", thinking: "", seed: null }), {});
    const all = requestFields({
        temperature: 0,
        topK: 5,
        maxTokens: 9,
        seed: 0,
        stop: "a\n\nb",
        thinking: "off",
        model: "m",
    });
    assert.deepEqual(all, {
        temperature: 0,
        top_k: 5,
        seed: 0,
        max_tokens: 9,
        stop: ["a", "b"],
        model: "m",
        chat_template_kwargs: { enable_thinking: false },
    });
    assert.deepEqual(requestFields({ thinking: "high" }), { reasoning_effort: "high" });
});

/** An Api whose server is a list of answers. */
function scripted(answers, key = "") {
    const seen = [];
    const fetcher = async (url, options) => {
        seen.push({ url, ...options });
        const answer = answers.shift();
        if (answer instanceof Error) throw answer;
        return answer;
    };
    return { api: new Api({ get: () => key }, "", fetcher), seen };
}

const data = (...values) =>
    values.map((v) => `data: ${typeof v === "string" ? v : JSON.stringify(v)}\n\n`).join("");
const delta = (fields, finish = null) => ({
    model: "real",
    choices: [{ index: 0, delta: fields, finish_reason: finish }],
});

function streamOf(text, { breaks = false } = {}) {
    const bytes = new TextEncoder().encode(text);
    let at = 0;
    const body = new ReadableStream({
        pull(control) {
            if (at < bytes.length) control.enqueue(bytes.slice(at, (at += 7)));
            else if (breaks) control.error(new TypeError("network error"));
            else control.close();
        },
    });
    return new Response(body, { status: 200 });
}

async function collect(generator) {
    const parts = [];
    for await (const part of generator) parts.push(part);
    return parts;
}

test("a stream is read to its end mark, whatever its pieces", async () => {
    const usage = { choices: [], usage: { prompt_tokens: 3, completion_tokens: 2 } };
    const { api, seen } = scripted(
        [
            streamOf(
                data(
                    delta({ role: "assistant", content: null }),
                    delta({ content: "ü€" }),
                    delta({}, "stop"),
                    usage,
                    "[DONE]",
                ),
            ),
        ],
        "secret",
    );
    const parts = await collect(api.chat([{ role: "user", content: "x" }], { temperature: 0 }, undefined));
    assert.equal(parts.map((p) => p.text).join(""), "ü€");
    assert.equal(parts.find((p) => p.finish).finish, "stop");
    assert.equal(parts[3].usage.prompt_tokens, 3);
    assert.equal(seen[0].headers.Authorization, "Bearer secret");
    assert.equal(seen[0].headers["Content-Type"], "application/json");
    const body = JSON.parse(seen[0].body);
    assert.deepEqual([body.stream, body.stream_options.include_usage, body.temperature], [true, true, 0]);
});

test("a stream that breaks, ends early or tells an error is not an answer", async () => {
    const fails = async (answer) => {
        const { api } = scripted([answer]);
        return collect(api.chat([], {}, undefined)).then(
            () => assert.fail("no error"),
            (error) => error,
        );
    };
    assert.equal((await fails(streamOf(data(delta({ content: "a" })), { breaks: true }))).kind, "away");
    assert.equal((await fails(streamOf(data(delta({ content: "a" }))))).kind, "away");
    const told = await fails(streamOf(data({ error: { message: "the device was lost" } })));
    assert.deepEqual([told.kind, told.message], ["server", "the device was lost"]);
    assert.equal((await fails(streamOf("data: {no json\n\n"))).kind, "server");
    assert.equal((await fails(new TypeError("refused"))).kind, "away");
    assert.equal(
        (
            await fails(
                new Response('{"error":{"message":"m"}}', { status: 429, headers: { "Retry-After": "4" } }),
            )
        ).retryAfter,
        4,
    );
});

// ---- One answer through all that can happen ----

function answering(answers, more = {}) {
    const { api, seen } = scripted(answers);
    let clock = 1000;
    const slept = [];
    const world = {
        api,
        now: () => (clock += 10),
        sleep: async (ms) => void slept.push(ms),
        whenBack: async () => void slept.push("back"),
        askKey: async () => true,
        ...more,
    };
    const talk = talks.newConversation("be brief");
    const question = talks.addMessage(talk, "", { text: "hello" });
    const node = talks.addMessage(talk, question.id, { role: "assistant", state: "live" });
    const abort = new AbortController();
    const phases = new Set();
    const changed = () => node.phase && phases.add(node.phase.kind);
    const run = () => runAnswer(world, talk, node, { settings: {}, signal: abort.signal, changed });
    return { run, node, seen, slept, phases, abort };
}

const GOOD = () =>
    streamOf(
        data(
            delta({ reasoning_content: "hm" }),
            delta({ content: "hi" }),
            delta({}, "stop"),
            {
                choices: [],
                usage: {
                    prompt_tokens: 5,
                    completion_tokens: 2,
                    prompt_tokens_details: { cached_tokens: 3 },
                },
            },
            "[DONE]",
        ),
    );
const refuse = (status, fields = {}, headers = {}) =>
    new Response(JSON.stringify({ error: { message: "no", ...fields } }), { status, headers });

test("an answer waits for what can be waited for, and is sent again", async () => {
    const a = answering([
        refuse(429, {}, { "Retry-After": "2" }),
        refuse(503),
        new TypeError("gone"),
        refuse(401),
        GOOD(),
    ]);
    await a.run();
    assert.deepEqual([a.node.state, a.node.text, a.node.thinking], ["done", "hi", "hm"]);
    assert.deepEqual(a.slept, [2000, "back", "back"]);
    assert.deepEqual([...a.phases], ["sent", "busy", "loading", "away", "key", "thinking", "writing"]);
    assert.deepEqual([a.node.stats.prompt_tokens, a.node.stats.cached_tokens], [5, 3]);
    assert.ok(a.node.thoughtMs > 0 && a.node.phase === undefined && a.node.error === undefined);
    assert.equal(a.seen.length, 5);
    assert.deepEqual(JSON.parse(a.seen[4].body).messages, [
        { role: "system", content: "be brief" },
        { role: "user", content: "hello" },
    ]);
});

test("what came before the server went away is kept, and not asked for again", async () => {
    const a = answering([streamOf(data(delta({ content: "half an" })), { breaks: true }), GOOD()]);
    await a.run();
    assert.deepEqual(
        [a.node.state, a.node.text, a.seen.length, a.node.error.kind],
        ["cut", "half an", 1, "away"],
    );
});

test("an answer that cannot be waited for ends with its reason", async () => {
    const long = answering([refuse(400, { code: "context_length_exceeded", n_prompt_tokens: 9, n_ctx: 8 })]);
    await long.run();
    assert.deepEqual(
        [long.node.state, long.node.error.kind, long.node.error.prompt, long.node.error.context],
        ["error", "too-long", 9, 8],
    );
    const key = answering([refuse(401)], { askKey: async () => false });
    await key.run();
    assert.deepEqual([key.node.state, key.node.error.kind], ["error", "key"]);
    const length = answering([streamOf(data(delta({ content: "a" }), delta({}, "length"), "[DONE]"))]);
    await length.run();
    assert.equal(length.node.state, "length");
    const never = answering(Array.from({ length: 40 }, () => refuse(429)));
    await never.run();
    assert.deepEqual([never.node.state, never.node.error.kind, never.seen.length], ["error", "busy", 21]);
});

test("a stop ends an answer, also one that waits", async () => {
    const waiting = answering([refuse(429)], {
        sleep: () => (
            queueMicrotask(() => waiting.abort.abort()),
            new Promise((_, no) => waiting.abort.signal.addEventListener("abort", no))
        ),
    });
    await waiting.run();
    assert.equal(waiting.node.state, "stopped");
    const a = answering([]);
    a.abort.abort();
    await a.run();
    assert.equal(a.node.state, "stopped");
});

// ---- Conversations ----

function example() {
    const talk = talks.newConversation("sys", 1);
    const q1 = talks.addMessage(talk, "", { text: "# First question\nmore" });
    const a1 = talks.addMessage(talk, q1.id, { role: "assistant", text: "one", thinking: "t" });
    const q2 = talks.addMessage(talk, a1.id, {
        text: "second",
        files: [{ name: "a.txt", text: "x\n```\ny" }],
    });
    const a2 = talks.addMessage(talk, q2.id, { role: "assistant", text: "two" });
    return { talk, q1, a1, q2, a2 };
}

test("an edit is a branch, and both can be shown", () => {
    const { talk, q1, a1, q2 } = example();
    assert.equal(talk.title, "First question");
    const edited = talks.addMessage(talk, a1.id, { text: "other" });
    assert.deepEqual(
        talks.shownPath(talk).map((n) => n.text.split("\n")[0]),
        ["# First question", "one", "other"],
    );
    assert.deepEqual([talks.siblings(talk, edited).index, talks.siblings(talk, edited).total], [1, 2]);
    assert.ok(talks.pickSibling(talk, edited, -1));
    assert.equal(talks.shownPath(talk).length, 4);
    assert.ok(!talks.pickSibling(talk, q2, -1));
    talks.removeMessage(talk, q2);
    assert.deepEqual(
        talks.shownPath(talk).map((n) => n.id),
        [q1.id, a1.id, edited.id],
    );
    assert.equal(Object.keys(talk.nodes).length, 3);
});

test("what is sent: system, thinking, files in a fence they cannot close", () => {
    const { talk, q2 } = example();
    const sent = talks.requestMessages(talk, q2);
    assert.deepEqual(
        sent.map((m) => m.role),
        ["system", "user", "assistant", "user"],
    );
    assert.equal(sent[2].reasoning_content, "t");
    assert.equal(sent[3].content, "File a.txt:\n````\nx\n```\ny\n````\n\nsecond");
});

test("a failed answer leaves no gap of roles", () => {
    const talk = talks.newConversation();
    const q = talks.addMessage(talk, "", { text: "a" });
    const failed = talks.addMessage(talk, q.id, { role: "assistant", state: "error" });
    const again = talks.addMessage(talk, failed.id, { text: "b" });
    assert.deepEqual(talks.requestMessages(talk, again), [{ role: "user", content: "a\n\nb" }]);
});

test("leaving out the oldest starts at a question and is kept", () => {
    const talk = talks.newConversation();
    let parent = "";
    for (let i = 0; i < 6; i++) {
        parent = talks.addMessage(talk, parent, { text: `q${i} ${"x".repeat(100)}` }).id;
        if (i < 5)
            parent = talks.addMessage(talk, parent, {
                role: "assistant",
                text: `a${i} ${"y".repeat(100)}`,
            }).id;
    }
    const later = talks.laterStart(talk, talk.nodes[parent], 0.5);
    assert.match(later.text, /^q3/);
    talk.from = later.id;
    assert.equal(talks.requestMessages(talk, talk.nodes[parent])[0].content, later.text);
    assert.match(talks.laterStart(talk, talk.nodes[parent], 0.001).text, /^q5/);
    const single = talks.newConversation();
    assert.equal(talks.laterStart(single, talks.addMessage(single, "", { text: "q" }), 0.1), null);
});

test("a stored conversation is made whole, a broken one is refused", () => {
    const { talk, a2 } = example();
    a2.state = "live";
    a2.phase = { kind: "writing" };
    a2.evil = "x";
    const back = talks.checkConversation(JSON.parse(JSON.stringify(talk)));
    assert.equal(back.nodes[a2.id].state, "cut");
    assert.ok(!("phase" in back.nodes[a2.id]) && !("evil" in back.nodes[a2.id]));
    assert.deepEqual(
        talks.shownPath(back).map((n) => n.text),
        talks.shownPath(talk).map((n) => n.text),
    );
    for (const bad of [null, 3, [], {}, { nodes: [] }]) assert.throws(() => talks.checkConversation(bad));
    // A ring of parents, a child that is not there, a child twice: nothing hangs, nothing is shown twice.
    const id = (n) => String(n).repeat(16);
    const ring = {
        nodes: { [id(1)]: {}, [id(2)]: {} },
        kids: { "": [id(1), id(9)], [id(1)]: [id(2), id(1)], [id(2)]: [id(1), id(2)] },
        picked: { "": "no" },
    };
    assert.deepEqual(
        talks.shownPath(talks.checkConversation(ring)).map((n) => n.id),
        [id(1), id(2)],
    );
    const proto = JSON.parse('{"nodes": {"__proto__": {"text": "x"}}, "kids": {"": ["__proto__"]}}');
    assert.deepEqual(talks.shownPath(talks.checkConversation(proto)), []);
});

test("titles", () => {
    assert.equal(talks.titleOf({ text: "\n  > quoted   words\nmore" }), "quoted words");
    assert.equal(Array.from(talks.titleOf({ text: "😀".repeat(100) })).length, 59);
    assert.equal(talks.titleOf({ text: "", files: [{ name: "a.c" }] }), "a.c");
});

// ---- The store ----

test("the store keeps what it was given, in order, joined while it waits", async () => {
    const backend = new MemoryBackend();
    let writes = 0;
    const put = backend.put.bind(backend);
    backend.put = (...x) => ((writes += 1), put(...x));
    const told = [];
    const store = new Store(backend, assert.ifError, (id) => told.push(id));
    const { talk, a2 } = example();
    for (let i = 0; i < 50; i++) {
        a2.text += ".";
        store.later(talk);
    }
    assert.equal(writes, 0);
    await store.flush();
    assert.equal(writes, 1);
    a2.text = "changed afterwards";
    assert.ok((await store.get(talk.id)).nodes[a2.id].text.endsWith("."));
    const second = talks.newConversation("", talk.updated + 5);
    await store.save(second);
    assert.deepEqual(
        (await store.list()).map((l) => l.id),
        [second.id, talk.id],
    );
    await store.remove(second.id);
    assert.equal(await store.get(second.id), null);
    assert.deepEqual(told, [talk.id, second.id, second.id]);
});

test("a write that fails is told, and the next one is tried", async () => {
    const backend = new MemoryBackend();
    const errors = [];
    const store = new Store(backend, (error) => errors.push(error.message));
    const put = backend.put.bind(backend);
    backend.put = async () => {
        throw new Error("full");
    };
    const { talk } = example();
    await store.save(talk);
    assert.deepEqual(errors, ["full"]);
    backend.put = put;
    await store.save(talk);
    assert.equal((await store.list()).length, 1);
});

test("conversations go to a file and come back", () => {
    const { talk } = example();
    const [back] = fromJson(toJson([talk], 0));
    assert.deepEqual(back, talks.checkConversation(JSON.parse(JSON.stringify(talk))));
    assert.throws(() => fromJson("x"), /no JSON/);
    assert.throws(() => fromJson("{}"), /no conversations/);
    const text = toMarkdown(talk);
    for (const part of ["# First question", "> sys", "## You", "File a.txt", "<summary>Thoughts"])
        assert.ok(text.includes(part), part);
    assert.equal(
        fileName("Où est/../le *café*?", "md"),
        "Où-est-le-café".normalize("NFKD").replace(/\p{M}/gu, "") + ".md",
    );
    assert.equal(fileName("???", "json"), "conversation.json");
});

// ---- The monitor ----

const METRICS = `# HELP llamacpp:tokens_predicted_total x
llamacpp:tokens_predicted_total 120
llamacpp:prompt_tokens_total 1.5e3
vllm:request_success_total{finished_reason="stop",model_name="a \\"b\\" {c}"} 3
vllm:request_success_total{finished_reason="abort"} 1
mica_expert_hit_ratio 0.93
mica_vram_bytes{device="hip:0",what="experts"} 8e9
mica_vram_bytes{device="hip:0",what="kv"} 1e9
mica_vram_total_bytes{device="hip:0"} 16e9
mica_ram_bytes{what="experts"} 2e10
mica_device_temperature_celsius{device="hip:0"} 61
broken line
bad NaN
`;

test("metrics are read, and what is absent stays absent", () => {
    const samples = parseMetrics(METRICS);
    assert.equal(samples.find((s) => s.labels.model_name).labels.model_name, 'a "b" {c}');
    assert.ok(!samples.some((s) => s.name === "bad"));
    const now = readMetrics(METRICS, 5000);
    assert.deepEqual([now.tokens, now.promptTokens, now.expertHits, now.running], [120, 1500, 0.93, null]);
    assert.deepEqual(
        now.requests,
        new Map([
            ["stop", 3],
            ["abort", 1],
        ]),
    );
    assert.deepEqual(now.memory, [
        {
            place: "hip:0",
            items: [
                { what: "experts", bytes: 8e9 },
                { what: "kv", bytes: 1e9 },
            ],
            total: 16e9,
            free: null,
        },
        { place: "RAM", items: [{ what: "experts", bytes: 2e10 }], total: null, free: null },
    ]);
    assert.deepEqual(now.devices, [{ device: "hip:0", temperature: 61, power: null }]);
    assert.equal(rateBetween({ time: 3000, tokens: 100 }, now, "tokens"), 10);
    assert.equal(rateBetween({ time: 3000, tokens: 500 }, now, "tokens"), null);
    assert.equal(rateBetween(null, now, "tokens"), null);
    assert.deepEqual(readMetrics("").memory, []);
});

test("slots: speed, and requests that ended", () => {
    const slot = (id, task, busy, decoded, prompt = 10) => ({
        id,
        id_task: task,
        is_processing: busy,
        n_ctx: 64,
        n_prompt_tokens: prompt,
        n_prompt_tokens_processed: prompt,
        n_prompt_tokens_cache: 4,
        next_token: [{ n_decoded: decoded }],
    });
    const before = readSlots([slot(0, 1, true, 5), slot(1, 2, true, 9)]);
    const after = readSlots([slot(0, 1, true, 8), slot(1, 3, true, 2)]);
    assert.equal(progressBetween(before, after, "decoded"), 5);
    assert.deepEqual(
        endedBetween(before, after).map((s) => s.task),
        [2],
    );
    assert.equal(after[0].used, 18);
    assert.deepEqual(readSlots({ error: 1 }), []);
    assert.equal(readSlots([{ id: 0 }])[0].decoded, null);
    const log = new RequestLog(2);
    log.seen(before[1], 1000);
    log.own(
        { state: "done", stats: { prompt_tokens: 10, completion_tokens: 12, tps: 5, first_ms: 7 } },
        2000,
    );
    assert.deepEqual(
        [log.entries.length, log.entries[0].here, log.entries[0].slot, log.entries[0].tokens],
        [1, true, 1, 12],
    );
    log.own({ state: "done", stats: { prompt_tokens: 11 } }, 9000);
    log.seen(before[0], 20000);
    assert.deepEqual(
        log.entries.map((e) => e.time),
        [20000, 9000],
    );
});

test("charts", () => {
    const series = new Series(3);
    for (const [time, value] of [
        [0, 9],
        [1, 2],
        [2, null],
        [3, 4],
    ])
        series.add(time, value);
    assert.deepEqual(
        series.points.map((p) => p.value),
        [2, null, 4],
    );
    assert.deepEqual([series.last, series.busyMean, series.peak], [4, 3, 4]);
    const { line, area } = chartPaths(series.points, 4, 3);
    assert.equal((line.match(/M/g) ?? []).length, 2);
    assert.ok(!/NaN|Infinity/.test(line + area));
    assert.deepEqual([niceTop(0), niceTop(7), niceTop(34), niceTop(101)], [1, 10, 50, 200]);
});

// ---- Numbers and files ----

test("numbers", () => {
    assert.deepEqual([0, 1023, 1536, 20 * 2 ** 20, 3.5 * 2 ** 30].map(format.bytes), [
        "0 B",
        "1023 B",
        "1.50 KiB",
        "20.0 MiB",
        "3.50 GiB",
    ]);
    assert.deepEqual([0, 999, 1234567].map(format.count), ["0", "999", "1,234,567"]);
    assert.deepEqual([950, 12345, 7241732096, 1.2e12].map(format.short), ["950", "12.3k", "7.24B", "1.20T"]);
    assert.deepEqual([0, 0.421, 34.16, 812.4].map(format.rate), ["0", "0.42", "34.2", "812"]);
    assert.deepEqual([84, 3210, 125000, 11520000].map(format.duration), [
        "84 ms",
        "3.2 s",
        "2 min 05 s",
        "3 h 12 min",
    ]);
    assert.deepEqual([0, 0.931, 1].map(format.percent), ["0 %", "93.1 %", "100 %"]);
    for (const f of [format.bytes, format.count, format.short, format.rate, format.percent, format.duration])
        assert.equal(f(NaN), "–");
    const now = new Date(2026, 5, 15, 12).getTime();
    const day = 86400000;
    assert.deepEqual(
        [now, now - day, now - 3 * day, now - 60 * day].map((t) => format.dayGroup(t, now)),
        ["Today", "Yesterday", "Last 7 days", "April 2026"],
    );
});

test("only text is attached", () => {
    const bytes = (text) => new TextEncoder().encode(text);
    assert.equal(textOf("a", bytes("ü\r\nb")), "ü\nb");
    assert.equal(textOf("a", Uint8Array.of(0xff, 0xfe, 0x41, 0, 0x42, 0)), "AB");
    assert.throws(() => textOf("a.png", Uint8Array.of(0x89, 0x50, 0x4e, 0x47)), /a.png: this is no text/);
    assert.throws(() => textOf("a", bytes("x\0y")), /no text/);
    assert.throws(() => textOf("a", new Uint8Array(3 * 2 ** 20)), /3.00 MiB/);
});

test("an error is a value that can be stored", () => {
    const error = new ServerError("busy", "m", { status: 429, retryAfter: 3 });
    assert.deepEqual(structuredClone(error.plain()), { kind: "busy", message: "m", status: 429 });
});
