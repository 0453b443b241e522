"""Conversations, tools and options that chat templates are tried with."""
import itertools

TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "if temp > 10 & h < 50 (user's) \u2014 a/b <b>",
        "parameters": {"type": "object", "properties": {
            "zone": {"type": "string", "description": "where\nit is", "enum": ["north", "south"]},
            "amount": {"type": "number", "default": 1.0, "nullable": True},
            "deep": {"type": "object", "required": ["list"],
                     "properties": {"list": {"type": "array", "items": {"type": "integer"}}}},
            "any": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "multi": {"type": ["string", "null"]}},
            "required": ["zone"]}}},
    {"type": "function", "function": {"name": "no_args", "description": "Nothing \u00e9\U0001f600",
                                      "parameters": {"type": "object", "properties": {}}}},
]


def call(name, args, ident="call_1abcdefg"):
    return {"id": ident, "type": "function", "function": {"name": name, "arguments": args}}


def assistant(content=None, calls=(), **more):
    m = {"role": "assistant", "content": content, **more}
    if calls:
        m["tool_calls"] = list(calls)
    return m


def tool(content, name="get_weather", ident="call_1abcdefg"):
    return {"role": "tool", "name": name, "tool_call_id": ident, "content": content}


def text(t):
    return {"type": "text", "text": t}


def conversations():
    system = {"role": "system", "content": "You are helpful.\n"}
    user = {"role": "user", "content": "Hello \u00e9\U0001f600 <|im_end|>\n</think> 'q' \"dq\" {{ x }}"}
    answer = assistant("Hi there!  ")
    weather = call("get_weather", {"zone": "north", "amount": 2.5})
    odd = call("get_weather", {"zone": "a\"b\\\n\u00e9", "deep": {"list": [1, None, True]}})
    two = assistant("Let me", [call("a", {"x": 1}, "call00001"), call("b", {"y": [1.0, 1e16]}, "call00002")])
    results = [tool("ok\n", "a", "call00001"), tool([text("part")], "b", "call00002")]
    thinks = assistant("<think>\nhmm\n</think>\n\nAnswer", reasoning_content=None)
    reasons = assistant("Answer", reasoning_content="because\nof that")
    parts = {"role": "user", "content": [text(" one "), text("two")]}
    bare = {"role": "assistant", "tool_calls": [odd]}
    return [
        [user], [system, user], [system], [], [answer], [user, answer], [user, answer, user],
        [system, user, answer, user, answer, user], [{"role": "developer", "content": "Be brief."}, user],
        [user, system, user], [system, system, user], [{"role": "user", "content": ""}],
        [{"role": "user", "content": None}], [{"role": "user"}], [parts],
        [{"role": "user", "content": [{"type": "image"}, text("what?")]}], [user, thinks, user],
        [user, reasons, user], [user, reasons], [user, assistant("Answer", thinking="because"), user],
        [user, assistant("", [weather]), tool("{\"t\": 20}"), user],
        [system, user, assistant("", [weather]), tool("{\"t\": 20}")],
        [user, assistant(None, [call("no_args", {})]), tool("1"), answer, user], [user, bare, tool("2")],
        [user, assistant("x", [call("get_weather", "{\"zone\": 1}")]), tool("3")],
        [user, two] + results + [user],
        [user, assistant("Answer", [weather], reasoning_content="so"), tool("4")], [user, user, answer],
        [user, answer, answer], [{"role": "unknown", "content": "x"}], [system, parts, answer, parts],
        [{"role": "system", "content": [text("S")]}, user], [user, assistant(""), user],
        [{"role": "user", "content": "  \n a \t\n"}],
    ]


OPTIONS = [
    {"add_generation_prompt": True}, {"add_generation_prompt": False},
    {"add_generation_prompt": True, "enable_thinking": True},
    {"add_generation_prompt": True, "enable_thinking": False},
    {"add_generation_prompt": True, "reasoning_effort": "low", "thinking": True, "date_string": "1 Jan 2025"},
    {"add_generation_prompt": True, "reasoning_effort": "high", "preserve_thinking": True,
     "tools_in_user_message": False, "custom_tools": [t["function"] for t in TOOLS]},
]


def contexts():
    """What a template is rendered with, for every conversation, option and set of tools."""
    for messages, option, tools in itertools.product(conversations(), OPTIONS, [None, TOOLS, []]):
        if tools == [] and "enable_thinking" in option:
            continue
        yield dict(option, bos_token="<s>", eos_token="</s>", messages=messages, tools=tools, documents=None)
