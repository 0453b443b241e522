#!/usr/bin/env python3
"""Two agents as people run them, each with a tool: Codex over /v1/responses with one of an MCP server,
OpenCode over /v1/chat/completions with one of its own.

    tests/serve/agents_test.py [BUILD] [WORD]

The models are trained fixtures that know such tools. Asked for the weather they have to call the tool, once,
with the city; what the tool says has to be in the answer. Then the agent takes the conversation up again in a
new process with another question, and most of it has to come from the cache. Installs the agents below BUILD
once; without npm or a registry everything is a skip. Afterwards the registry that they know of is a closed
port. Last line: N passed, N failed, N skipped."""

import json
import os
import shutil
import subprocess
import sys

from serving import case, HYBRID, main, need, QWEN3, Skip

PACKAGES = ["@openai/codex@0.171.0", "opencode-ai@1.18.33", "zod@4.1.8"]
CODEX_CONFIG = """
model = "fixture"
model_provider = "mica"
model_context_window = 4096
model_instructions_file = "{home}/instructions.md"
approval_policy = "never"
sandbox_mode = "danger-full-access"
web_search = "disabled"
include_permissions_instructions = false
include_environment_context = false
include_apps_instructions = false
include_collaboration_mode_instructions = false
check_for_update_on_startup = false
analytics = {{ enabled = false }}
agents = {{ enabled = false }}
skills = {{ include_instructions = false, bundled = {{ enabled = false }} }}
features = {{ shell_tool = false, unified_exec = false, apps = false, plugins = false, goals = false }}
[model_providers.mica]
name = "mica"
base_url = "http://127.0.0.1:{port}/v1"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
[mcp_servers.town]
command = "{python}"
args = ["{home}/mcp.py"]
"""
MCP = """
import json, sys
TOOL = {"name": "get_weather", "description": "Get the current weather of a city.",
        "inputSchema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}
for line in sys.stdin:
    m = json.loads(line)
    r = {}
    if m.get("method") == "initialize":
        r = {"protocolVersion": m["params"]["protocolVersion"], "capabilities": {"tools": {}},
             "serverInfo": {"name": "town", "version": "1"}}
    elif m.get("method") == "tools/list":
        r = {"tools": [TOOL]}
    elif m.get("method") == "tools/call":
        r = {"content": [{"type": "text", "text": json.dumps({"temperature": 21, "condition": "sunny"})}]}
    if "id" in m:
        print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": r}), flush=True)
"""
WEATHER_SAID = "21 degrees"
OPENCODE_TOOL = """
import {{ z }} from "{modules}/zod/index.js"
export default {{
  description: "Get the current weather of a city.",
  args: {{ city: z.string() }},
  async execute() {{ return JSON.stringify({{ temperature: 21, condition: "sunny" }}) }},
}}
"""


def opencode_config(port):
    model = {"name": "fixture", "tool_call": True, "limit": {"context": 4096, "output": 200}}
    provider = {"npm": "@ai-sdk/openai-compatible", "name": "mica", "models": {"fixture": model}}
    provider["options"] = {"baseURL": f"http://127.0.0.1:{port}/v1", "apiKey": "none"}
    agent = {"prompt": "You are a helpful assistant.", "tools": {"*": False, "get_weather": True}}
    return {
        "autoupdate": False,
        "share": "disabled",
        "model": "mica/fixture",
        "small_model": "mica/fixture",
        "provider": {"mica": provider},
        "agent": {"build": agent, "title": {"disable": True}},
    }


def installed(t):
    """The folder with the programs."""
    folder = t.build / "agents"
    stamp = folder / "installed.txt"
    if not shutil.which("npm"):
        raise Skip("no npm")
    if stamp.exists() and stamp.read_text() == " ".join(PACKAGES):
        return folder / "node_modules"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "package.json").write_text("{}")
    argv = ["npm", "install", "--prefix", str(folder), "--silent", "--no-fund", "--no-audit"]
    argv += ["--ignore-scripts", *PACKAGES]
    p = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=600)
    if p.returncode:
        raise Skip(f"npm install: {(p.stderr or p.stdout).strip()[-200:]}")
    stamp.write_text(" ".join(PACKAGES))
    return folder / "node_modules"


def program(modules, pattern):
    found = sorted(modules.glob(pattern))
    if not found:
        raise Skip(f"no program {pattern} for this machine in the package")
    return str(found[0])


def home_of(t, name):
    """A home of its own, from which no registry is reached."""
    home = t.tmp / name
    (home / "work").mkdir(parents=True)
    (home / ".npmrc").write_text("registry=http://127.0.0.1:9/\nfetch-retries=0\noffline=true\n")
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "LC_ALL": "C.UTF-8"}
    return home, env


def events(argv, home, env):
    """The lines of JSON that an agent prints."""
    how = {"cwd": home / "work", "env": env, "capture_output": True, "text": True, "timeout": 300}
    p = subprocess.run(argv, stdin=subprocess.DEVNULL, **how)
    need(p.returncode == 0, f"exit {p.returncode}: {p.stderr[-300:]} {p.stdout[-300:]}")
    return [json.loads(line) for line in p.stdout.splitlines() if line.startswith("{")]


@case
def codex(t):
    program_path = program(installed(t), "@openai/codex-linux-*/vendor/*/bin/codex")
    home, env = home_of(t, "codex")
    env["CODEX_HOME"] = str(home)
    (home / "instructions.md").write_text("You are a helpful assistant.")
    (home / "mcp.py").write_text(MCP)
    with t.start("-c", 4096, "--temp", 0, model=HYBRID) as s:
        config = CODEX_CONFIG.format(home=home, port=s.port, python=sys.executable)
        (home / "config.toml").write_text(config)
        exec = [program_path, "exec", "--skip-git-repo-check", "--json"]
        got = events([*exec, "How is the weather in Zagreb?"], home, env)
        items = [e["item"] for e in got if e["type"] == "item.completed"]
        calls = [i for i in items if i["type"] == "mcp_tool_call"]
        need(len(calls) == 1 and calls[0]["tool"] == "get_weather", f"{items}")
        need(calls[0]["arguments"] == {"city": "Zagreb"} and calls[0]["status"] == "completed", f"{calls}")
        need(WEATHER_SAID in items[-1].get("text", ""), f"{items}")
        got = events([*exec, "resume", "--last", "Capital of Peru?"], home, env)
        items = [e["item"] for e in got if e["type"] == "item.completed"]
        need("Lima" in items[-1].get("text", ""), f"{items}")
        need(s.metric("vllm:prefix_cache_hits_total") > 1000, "nothing came from the cache")


@case
def opencode(t):
    modules = installed(t)
    program_path = program(modules, "opencode-linux-*-baseline/bin/opencode")
    home, env = home_of(t, "opencode")
    env |= {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"}
    env |= {"OPENCODE_DISABLE_LSP_DOWNLOAD": "1", "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1"}
    folder = home / "work" / ".opencode"
    (folder / "tool").mkdir(parents=True)
    (folder / "tool" / "get_weather.ts").write_text(OPENCODE_TOOL.format(modules=modules))
    with t.start("-c", 4096, "--temp", 0, model=QWEN3) as s:
        (home / "work" / "opencode.json").write_text(json.dumps(opencode_config(s.port)))
        run = [program_path, "run", "--format", "json"]
        got = events([*run, "How is the weather in Zagreb?"], home, env)
        parts = [e["part"] for e in got if "part" in e]
        calls = [p["state"] for p in parts if p["type"] == "tool"]
        need(len(calls) == 1 and calls[0]["status"] == "completed", f"{parts}")
        need(calls[0]["input"] == {"city": "Zagreb"}, f"{calls}")
        said = [p["text"] for p in parts if p["type"] == "text"]
        need(said and WEATHER_SAID in said[-1], f"{said}")
        got = events([*run, "--continue", "Capital of Peru?"], home, env)
        parts = [e["part"] for e in got if "part" in e]
        said = [p["text"] for p in parts if p["type"] == "text"]
        need(said and said[-1], f"{parts}")
        need(s.metric("vllm:prefix_cache_hits_total") > 200, "nothing came from the cache")


if __name__ == "__main__":
    sys.exit(main())
