// The official JavaScript clients of OpenAI and Anthropic against the server: sdk_node_test.py starts it.
// Prints one line of JSON for each case: {"case": NAME, "why": null or what is wrong}.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [, , packages, port] = process.argv;
const require = createRequire(pathToFileURL(`${packages}/package.json`));
const load = async (name) => (await import(pathToFileURL(require.resolve(name)).href)).default;
const OpenAI = await load("openai");
const Anthropic = await load("@anthropic-ai/sdk");
const openai = new OpenAI({ baseURL: `http://127.0.0.1:${port}/v1`, apiKey: "none", maxRetries: 0 });
const anthropic = new Anthropic({ baseURL: `http://127.0.0.1:${port}`, apiKey: "none", maxRetries: 0 });

const question = [{ role: "user", content: "Capital of Cyprus?" }];
const weather = [
    { role: "system", content: "You are a helpful assistant." },
    { role: "user", content: "How is the weather in Zagreb?" },
];
const functions = [
    {
        name: "add",
        description: "Add two numbers.",
        parameters: {
            type: "object",
            properties: { a: { type: "number" }, b: { type: "number" } },
            required: ["a", "b"],
        },
    },
    {
        name: "get_weather",
        description: "Get the current weather of a city.",
        parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
    },
];
const plain = { model: "any", temperature: 0, reasoning_effort: "none" };

function need(condition, why) {
    if (!condition) throw new Error(typeof why === "string" ? why : JSON.stringify(why));
}

async function fails(kind, promise) {
    try {
        await promise;
    } catch (why) {
        need(why instanceof kind, `another error: ${why}`);
        return why;
    }
    throw new Error(`no ${kind.name}`);
}

const cases = {
    async chat() {
        const v = await openai.chat.completions.create({ ...plain, messages: question });
        need(v.choices[0].message.content === "Nicosia.", v);
    },
    async stream() {
        const stream = await openai.chat.completions.create({
            ...plain,
            messages: question,
            stream: true,
            stream_options: { include_usage: true },
        });
        let text = "";
        let usage = null;
        for await (const chunk of stream) {
            text += chunk.choices[0]?.delta?.content ?? "";
            usage = chunk.usage ?? usage;
        }
        need(text === "Nicosia." && usage.completion_tokens === 5, { text, usage });
    },
    async tools() {
        const tools = functions.map((f) => ({ type: "function", function: f }));
        const run = openai.chat.completions.stream({ ...plain, messages: weather, tools });
        const final = await run.finalChatCompletion();
        const call = final.choices[0].message.tool_calls[0];
        need(call.function.name === "get_weather", final);
        need(JSON.parse(call.function.arguments).city === "Zagreb", call);
    },
    async forced() {
        const tools = functions.map((f) => ({ type: "function", function: f }));
        const v = await openai.chat.completions.create({
            ...plain,
            messages: question,
            tools,
            tool_choice: "required",
            parallel_tool_calls: false,
            max_tokens: 300,
        });
        need(v.choices[0].message.tool_calls.length === 1, v);
        JSON.parse(v.choices[0].message.tool_calls[0].function.arguments);
    },
    async schema() {
        const schema = {
            type: "object",
            properties: { capital: { enum: ["Nicosia", "Paris"] } },
            required: ["capital"],
            additionalProperties: false,
        };
        const v = await openai.chat.completions.create({
            ...plain,
            messages: question,
            response_format: { type: "json_schema", json_schema: { name: "x", schema, strict: true } },
            max_tokens: 200,
        });
        need(["Nicosia", "Paris"].includes(JSON.parse(v.choices[0].message.content).capital), v);
    },
    async responses() {
        const input = "Capital of Cyprus?";
        const ask = { model: "any", input, temperature: 0, reasoning: { effort: "low" } };
        const v = await openai.responses.create(ask);
        need(v.output_text === "Nicosia.", v);
        let text = "";
        let n = 0;
        for await (const event of await openai.responses.create({ ...ask, stream: true })) {
            need(event.sequence_number === n++, event);
            if (event.type === "response.output_text.delta") text += event.delta;
        }
        need(text === "Nicosia.", text);
    },
    async errors() {
        const empty = openai.chat.completions.create({ ...plain, messages: [] });
        const why = await fails(OpenAI.BadRequestError, empty);
        need(why.param === "messages", why);
        await fails(OpenAI.NotFoundError, openai.models.retrieve("other"));
    },
    async cancel() {
        const stream = await openai.completions.create({
            model: "any",
            prompt: "Once",
            max_tokens: 3000,
            stream: true,
            ignore_eos: true,
        });
        for await (const chunk of stream) {
            need(chunk.choices, chunk);
            break;
        }
        stream.controller.abort();
        await new Promise((done) => setTimeout(done, 300));
        const slots = await (await fetch(`http://127.0.0.1:${port}/slots`)).json();
        need(slots.every((s) => !s.is_processing), slots);
    },
    async messages() {
        const ask = { model: "any", max_tokens: 500, temperature: 0, messages: question };
        const off = { thinking: { type: "disabled" } };
        const v = await anthropic.messages.create({ ...ask, ...off });
        need(v.content[0].text === "Nicosia." && v.stop_reason === "end_turn", v);
        const final = await anthropic.messages.stream({ ...ask, ...off }).finalMessage();
        need(final.content[0].text === "Nicosia.", final);
        const thought = await anthropic.messages
            .stream({ ...ask, max_tokens: 2000, thinking: { type: "enabled", budget_tokens: 1024 } })
            .finalMessage();
        need(thought.content.map((b) => b.type).join() === "thinking,text", thought);
        const n = await anthropic.messages.countTokens({ model: "any", messages: question });
        need(n.input_tokens > 5, n);
    },
    async message_tools() {
        const tools = functions.map((f) => ({ ...f, parameters: undefined, input_schema: f.parameters }));
        const final = await anthropic.messages
            .stream({
                model: "any",
                max_tokens: 500,
                temperature: 0,
                thinking: { type: "disabled" },
                system: weather[0].content,
                messages: [weather[1]],
                tools,
            })
            .finalMessage();
        const use = final.content.at(-1);
        need(use.type === "tool_use" && use.input.city === "Zagreb", final);
        await fails(
            Anthropic.BadRequestError,
            anthropic.messages.create({ model: "any", max_tokens: 5, messages: [] }),
        );
    },
};

for (const [name, run] of Object.entries(cases)) {
    let why = null;
    try {
        await run();
    } catch (error) {
        why = String(error?.message ?? error).slice(0, 400);
    }
    console.log(JSON.stringify({ case: name, why }));
}
