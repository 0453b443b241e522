#!/usr/bin/env python3
"""The official Python clients of OpenAI and Anthropic against the server, as their users call them.

    tests/serve/sdk_test.py [BUILD] [WORD]

Needs the packages openai and anthropic (tests/requirements.txt); without them every case is a skip."""

import json
import sys

from serving import case, main, need, Failed, Skip

try:
    import anthropic
    import openai
except ImportError as missing:
    MISSING = str(missing)
else:
    MISSING = None

QUESTION = [{"role": "user", "content": "Capital of Cyprus?"}]
JSON_QUESTION = [
    {"role": "user", "content": "Give me a JSON object with the capital and the continent of Romania."}
]
WEATHER_QUESTION = [
    {"role": "system", "content": "You are a helpful assistant."},
    {"role": "user", "content": "How is the weather in Zagreb?"},
]
COLD = {"extra_body": {"temperature": 0}}  # the client has no parameter for it
OFF = {"extra_body": {"enable_thinking": False}}
SCHEMA = {
    "type": "object",
    "properties": {"capital": {"type": "string", "enum": ["Nicosia", "Paris"]}, "size": {"type": "integer"}},
    "required": ["capital", "size"],
    "additionalProperties": False,
}


def function(name, properties):
    return {
        "name": name,
        "description": {"add": "Add two numbers.", "get_weather": "Get the current weather of a city."}[name],
        "parameters": {"type": "object", "properties": properties, "required": list(properties)},
    }


ADD = function("add", {"a": {"type": "number"}, "b": {"type": "number"}})
WEATHER = function("get_weather", {"city": {"type": "string"}})


def openai_client(t, **kw):
    if MISSING:
        raise Skip(MISSING)
    return openai.OpenAI(base_url=f"http://127.0.0.1:{t.server.port}/v1", api_key="none", max_retries=0, **kw)


def anthropic_client(t):
    if MISSING:
        raise Skip(MISSING)
    return anthropic.Anthropic(base_url=f"http://127.0.0.1:{t.server.port}", api_key="none", max_retries=0)


def fails_with(kind, call):
    try:
        call()
    except kind as why:
        return why
    raise Failed(f"no {kind.__name__}")


@case
def openai_models(t):
    need([m.id for m in openai_client(t).models.list()] == ["fixture-qwen3"], "models")


@case
def openai_chat_and_stream(t):
    c = openai_client(t)
    v = c.chat.completions.create(model="any", messages=QUESTION, temperature=0, **OFF)
    need(v.choices[0].message.content == "Nicosia." and v.usage.completion_tokens == 5, f"{v}")
    stream = c.chat.completions.create(
        model="any",
        messages=QUESTION,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
        **OFF,
    )
    chunks = list(stream)
    text = "".join(x.choices[0].delta.content or "" for x in chunks if x.choices)
    need(text == "Nicosia." and chunks[-1].usage.total_tokens > 5, f"{text}")
    need(chunks[-2].choices[0].finish_reason == "stop", "reason")


@case
def openai_thinking(t):
    c = openai_client(t)
    v = c.chat.completions.create(model="any", messages=QUESTION, temperature=0, reasoning_effort="low")
    need(v.choices[0].message.reasoning_content and v.choices[0].message.content == "Nicosia.", f"{v}")


@case
def openai_tools(t):
    c = openai_client(t)
    tools = [{"type": "function", "function": f} for f in (ADD, WEATHER)]
    ask = {"model": "any", "temperature": 0, "tools": tools, **OFF}
    v = c.chat.completions.create(messages=WEATHER_QUESTION, **ask)
    call = v.choices[0].message.tool_calls[0]
    need(v.choices[0].finish_reason == "tool_calls", f"{v}")
    need(
        call.function.name == "get_weather" and json.loads(call.function.arguments) == {"city": "Zagreb"},
        f"{call}",
    )
    more = WEATHER_QUESTION + [
        v.choices[0].message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": "Sunny, 21 degrees."},
    ]
    need(c.chat.completions.create(messages=more, **ask).choices[0].message.content, "after the result")
    with c.chat.completions.stream(messages=WEATHER_QUESTION, **ask) as stream:
        final = stream.get_final_completion()
    streamed = final.choices[0].message.tool_calls[0].function
    need(streamed.name == "get_weather" and json.loads(streamed.arguments) == {"city": "Zagreb"}, f"{final}")


@case
def openai_forced_tools(t):
    """A call that the model would not make by itself; parallel calls and their end."""
    c = openai_client(t)
    tools = [{"type": "function", "function": f} for f in (ADD, WEATHER)]
    for choice, name in (
        ("required", None),
        ({"type": "function", "function": {"name": "add"}}, "add"),
    ):
        v = c.chat.completions.create(
            model="any",
            messages=QUESTION,
            temperature=0,
            tools=tools,
            tool_choice=choice,
            max_tokens=200,
            **OFF,
        )
        calls = v.choices[0].message.tool_calls
        need(calls and v.choices[0].finish_reason == "tool_calls", f"{choice}: {v}")
        for call in calls:
            args = json.loads(call.function.arguments)
            need(name is None or call.function.name == name, f"{call}")
            need(call.function.name != "add" or set(args) == {"a", "b"}, f"{call}")
    v = c.chat.completions.create(
        model="any",
        messages=QUESTION,
        temperature=1,
        seed=5,
        tools=tools,
        tool_choice="required",
        parallel_tool_calls=False,
        max_tokens=200,
        **OFF,
    )
    need(len(v.choices[0].message.tool_calls) == 1, f"{v}")


@case
def openai_json_schema(t):
    """[25] Three spellings of one form; the answer has it even at a high temperature."""
    c = openai_client(t)
    forms = (
        {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA, "strict": True}},
        {"type": "json_schema", "schema": SCHEMA},
        {"type": "json_object", "schema": SCHEMA},
    )
    for form in forms:
        for temperature, thinking in ((0, False), (1.5, False), (0, True)):
            v = c.chat.completions.create(
                model="any",
                messages=QUESTION,
                temperature=temperature,
                seed=2,
                response_format=form,
                max_tokens=300,
                extra_body={"enable_thinking": thinking},
            )
            need(v.choices[0].finish_reason == "stop", f"{form} at {temperature}: {v}")
            got = json.loads(v.choices[0].message.content)
            need(got["capital"] in ("Nicosia", "Paris") and type(got["size"]) is int, f"{form}: {got}")
    v = c.chat.completions.create(
        model="any",
        messages=JSON_QUESTION,
        response_format={"type": "json_object"},
        max_tokens=300,
        temperature=0,
        **OFF,
    )
    need(isinstance(json.loads(v.choices[0].message.content), dict), f"{v}")
    why = fails_with(
        openai.BadRequestError,
        lambda: c.chat.completions.create(model="any", messages=QUESTION, response_format={"type": "yaml"}),
    )
    need("response_format" in str(why) or "type" in str(why), f"{why}")


@case
def openai_completions(t):
    c = openai_client(t)
    v = c.completions.create(model="any", prompt="Once upon a time", max_tokens=5, temperature=0, logprobs=2)
    need(v.usage.completion_tokens == 5 and len(v.choices[0].logprobs.tokens) == 5, f"{v}")
    parts = c.completions.create(
        model="any", prompt="Once upon a time", max_tokens=5, temperature=0, stream=True
    )
    need("".join(p.choices[0].text for p in parts if p.choices) == v.choices[0].text, "stream differs")


@case
def openai_responses(t):
    c = openai_client(t)
    v = c.responses.create(
        model="any", input="Capital of Cyprus?", temperature=0, reasoning={"effort": "none"}
    )
    need(v.output_text == "Nicosia." and v.status == "completed" and v.usage.output_tokens == 5, f"{v}")
    events = list(
        c.responses.create(
            model="any", input="Capital of Cyprus?", temperature=0, reasoning={"effort": "low"}, stream=True
        )
    )
    kinds = [e.type for e in events]
    need(kinds[:2] == ["response.created", "response.in_progress"], f"{kinds}")
    need(kinds[-1] == "response.completed", f"{kinds}")
    need([e.sequence_number for e in events] == list(range(len(events))), "sequence")
    text = "".join(e.delta for e in events if e.type == "response.output_text.delta")
    need(text == "Nicosia." == events[-1].response.output_text, f"{text}")
    need("response.reasoning_text.delta" in kinds, "thinking")
    items = [e.item for e in events if e.type == "response.output_item.done"]
    need([i.type for i in items] == ["reasoning", "message"], f"{items}")
    added = {e.item.id for e in events if e.type == "response.output_item.added"}
    need(added == {i.id for i in items} == {i.id for i in events[-1].response.output}, "ids change")
    cut = c.responses.create(
        model="any", input="Count from 1 to 40.", max_output_tokens=5, reasoning={"effort": "none"}
    )
    need(cut.status == "incomplete" and cut.incomplete_details.reason == "max_output_tokens", f"{cut}")


@case
def openai_responses_with_tools(t):
    """[14] Tools of all kinds, items without a type, a probe with nothing in it, thinking given back."""
    c = openai_client(t)
    tools = [
        {"type": "function", **ADD},
        {"type": "function", **WEATHER},
        {"type": "web_search"},
        {"type": "custom", "name": "x"},
        {"type": "namespace", "name": "n"},
    ]
    ask = {"model": "any", "temperature": 0, "tools": tools, "reasoning": {"effort": "none"}, "store": False}
    ask["instructions"] = "You are a helpful assistant."
    first = [{"role": "user", "content": "How is the weather in Zagreb?"}]
    v = c.responses.create(input=first, **ask)
    call = v.output[-1]
    need(call.type == "function_call" and json.loads(call.arguments) == {"city": "Zagreb"}, f"{v}")
    items = first + [
        {"type": "reasoning", "id": "rs_x", "summary": []},
        call.model_dump(),
        {"type": "function_call_output", "call_id": call.call_id, "output": "Sunny, 21 degrees."},
        {"type": "something_new", "x": 1},
    ]
    need(c.responses.create(input=items, **ask).output_text, "after the result")
    events = list(c.responses.create(input=first, stream=True, **ask))
    args = "".join(e.delta for e in events if e.type == "response.function_call_arguments.delta")
    need(json.loads(args) == {"city": "Zagreb"}, args)
    need(c.responses.create(model="any", input=[], max_output_tokens=1).status == "incomplete", "a probe")
    towns = {"type": "namespace", "name": "towns", "tools": [{"type": "function", **WEATHER}]}
    ask["tools"] = [{"type": "function", **ADD}, towns]
    call = c.responses.create(input=first, **ask).output[-1].model_dump()
    need((call["name"], call["namespace"]) == ("get_weather", "towns"), f"{call}")
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": '{"temperature": 21}'}
    need("21" in c.responses.create(input=[*first, call, result], **ask).output_text, "after the result")
    ask["tools"] = [{"type": "function", **WEATHER}, towns]
    v = t.server.post("/v1/responses", {**ask, "input": first, "tool_choice": {"name": "towns__get_weather"}})
    call = v.json()["output"][-1]
    need((call["name"], call["namespace"]) == ("get_weather", "towns"), f"{call}")
    chosen = {"type": "function", "name": "get_weather", "namespace": "towns"}
    v = t.server.post("/v1/responses", {**ask, "input": first, "tool_choice": chosen})
    need(v.json()["output"][-1].get("namespace") == "towns", f"{v.json()}")
    many = {"type": "namespace", "name": "n", "tools": [{"name": f"f{i}"} for i in range(1025)]}
    twice = {"type": "namespace", "name": "n", "tools": [{"name": "f"}] * 2}
    for bad in many, twice:
        t.server.post("/v1/responses", {**ask, "input": first, "tools": [bad]}).error(400, "tools: ")
    # Thinking comes back with the next request, as text or as what agents carry.
    ask["reasoning"] = {"effort": "high"}
    v = c.responses.create(input=first, include=["reasoning.encrypted_content"], **ask)
    thought = v.output[0].model_dump()
    need(thought["type"] == "reasoning" and thought["encrypted_content"], f"{thought}")
    result = {"type": "function_call_output", "call_id": "x", "output": "{}"}
    call = {"type": "function_call", "call_id": "x", "name": "get_weather", "arguments": "{}"}
    ask["max_output_tokens"] = 1
    n = []
    for kept in ({"content": thought["content"]}, {"encrypted_content": thought["encrypted_content"]}, {}):
        item = {"type": "reasoning", "id": "rs_x", "summary": [], **kept}
        n.append(c.responses.create(input=[*first, item, call, result], **ask).usage.input_tokens)
    need(n[0] == n[1] > n[2], f"prompt tokens with the thinking as text, carried, without: {n}")
    bare = [{"type": "function", "name": "bare"}]
    need(c.responses.create(model="any", input="Hello", tools=bare, max_output_tokens=2).id, "no parameters")
    fails_with(openai.BadRequestError, lambda: c.responses.create(model="any", input="x", background=True))


@case
def openai_responses_stored(t):
    """previous_response_id goes on from a stored conversation, also after a restart; delete deletes."""
    state = t.tmp / "stored"
    if MISSING:
        raise Skip(MISSING)
    ids = []
    for round in range(2):
        with t.start("--state-dir", state) as s:
            c = openai.OpenAI(base_url=f"http://127.0.0.1:{s.port}/v1", api_key="none", max_retries=0)
            ask = {"model": "any", "temperature": 0, "reasoning": {"effort": "none"}}
            if round == 0:
                v = c.responses.create(input="My favourite colour is blue.", **ask)
                ids.append(v.id)
                off = c.responses.create(input="x", store=False, max_output_tokens=1, **ask)
                fails_with(openai.NotFoundError, lambda: c.responses.retrieve(off.id))
                continue
            again = c.responses.retrieve(ids[0])
            need(again.id == ids[0] and again.output_text, f"{again}")
            need(c.responses.input_items.list(ids[0]).data[0].content[0].text.endswith("blue."), "items")
            v = c.responses.create(input="What is my favourite colour?", previous_response_id=ids[0], **ask)
            need("blue" in v.output_text.lower(), f"the conversation is lost: {v.output_text}")
            need(v.usage.input_tokens > again.usage.input_tokens + 10, "input tokens")
            c.responses.delete(ids[0])
            fails_with(openai.NotFoundError, lambda: c.responses.retrieve(ids[0]))
            fails_with(
                openai.NotFoundError,
                lambda: c.responses.create(input="x", previous_response_id=ids[0], **ask),
            )


@case
def openai_errors(t):
    c = openai_client(t)
    why = fails_with(openai.BadRequestError, lambda: c.chat.completions.create(model="any", messages=[]))
    need(why.param == "messages", f"{why}")
    why = fails_with(
        openai.BadRequestError,
        lambda: c.chat.completions.create(model="x", messages=[{"role": "user", "content": "word " * 9000}]),
    )
    need(why.code == "context_length_exceeded", f"{why}")
    fails_with(openai.NotFoundError, lambda: c.models.retrieve("other"))
    fails_with(openai.InternalServerError, lambda: c.embeddings.create(model="any", input="x"))


@case
def openai_cancel(t):
    """A stream that is closed frees its slot."""
    c = openai_client(t)
    stream = c.completions.create(
        model="any", prompt="Once", max_tokens=3000, stream=True, extra_body={"ignore_eos": True}
    )
    next(iter(stream))
    need(t.server.busy() == 1, "not at work")
    stream.close()
    t.server.wait_idle()
    ended = t.server.metric('vllm:request_success_total{finished_reason="abort"}')
    need(ended >= 1, "it was made to its end")


@case
def anthropic_message_and_stream(t):
    c = anthropic_client(t)
    ask = {"model": "any", "max_tokens": 100, "messages": QUESTION, "thinking": {"type": "disabled"}, **COLD}
    v = c.messages.create(**ask)
    need(v.content[0].text == "Nicosia." and v.stop_reason == "end_turn", f"{v}")
    with c.messages.stream(**ask) as stream:
        need("".join(stream.text_stream) == "Nicosia.", "stream differs")
        final = stream.get_final_message()
    need(
        final.usage.output_tokens == v.usage.output_tokens and final.content[0].text == "Nicosia.", f"{final}"
    )
    n = c.messages.count_tokens(model="any", messages=QUESTION, thinking={"type": "disabled"}).input_tokens
    need(n == v.usage.input_tokens + v.usage.cache_read_input_tokens, f"{n}: {v.usage}")


@case
def anthropic_thinking(t):
    c = anthropic_client(t)
    ask = {"model": "any", "max_tokens": 2000, "messages": QUESTION}
    ask["thinking"] = {"type": "enabled", "budget_tokens": 1024}
    v = c.messages.create(**ask)
    need([b.type for b in v.content] == ["thinking", "text"] and v.content[0].thinking, f"{v}")
    with c.messages.stream(**ask) as stream:
        final = stream.get_final_message()
    need([b.type for b in final.content] == ["thinking", "text"] and final.content[0].signature, f"{final}")
    more = QUESTION + [
        {"role": "assistant", "content": [b.model_dump() for b in final.content]},
        {"role": "user", "content": "Capital of Iceland?"},
    ]
    need(c.messages.create(**{**ask, "messages": more}).content, "thinking given back")


@case
def anthropic_tools(t):
    c = anthropic_client(t)
    tools = [
        {"name": f["name"], "description": f["description"], "input_schema": f["parameters"]}
        for f in (ADD, WEATHER)
    ]
    ask = {"model": "any", "max_tokens": 300, "tools": tools, "thinking": {"type": "disabled"}, **COLD}
    ask["system"] = "You are a helpful assistant."
    first = [{"role": "user", "content": "How is the weather in Zagreb?"}]
    with c.messages.stream(messages=first, **ask) as stream:
        v = stream.get_final_message()
    use = v.content[-1]
    need(
        v.stop_reason == "tool_use" and use.name == "get_weather" and use.input == {"city": "Zagreb"}, f"{v}"
    )
    result = {"type": "tool_result", "tool_use_id": use.id, "content": "Sunny, 21 degrees."}
    more = first + [
        {"role": "assistant", "content": [b.model_dump() for b in v.content]},
        {"role": "user", "content": [result]},
    ]
    need(c.messages.create(messages=more, **ask).content, "after the result")
    forced = c.messages.create(messages=QUESTION, tool_choice={"type": "tool", "name": "add"}, **ask)
    need(forced.content[-1].type == "tool_use" and set(forced.content[-1].input) == {"a", "b"}, f"{forced}")


@case
def anthropic_errors(t):
    c = anthropic_client(t)
    why = fails_with(
        anthropic.BadRequestError, lambda: c.messages.create(model="any", max_tokens=5, messages=[])
    )
    need(why.body["error"]["type"] == "invalid_request_error", f"{why.body}")


if __name__ == "__main__":
    sys.exit(main())
