#!/usr/bin/env python3
"""docs/CONTRACT.md against the program: the shape of every JSON result member for member, and every flag: in
both directions, so that neither can promise or hide what the other does not know.

    tests/cli/contract_test.py [BUILD] [WORD]    BUILD: folder with the program; WORD: only cases that hold it
Prints ok, FAILED or skip for each case; last line: N passed, N failed, N skipped."""

import contextlib
import gzip
import json
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request

from harness import FIXTURES, LLAMA, MOE, ROOT, Failed, case, main, need

CONTRACT = (ROOT / "docs" / "CONTRACT.md").read_text()
MTP = FIXTURES / "qwen3_5.q4_k_m.gguf"

# ---- Shapes: {"name":N,"other"?:null|"a|b","list":[1.0,…]} ----

TOKEN = re.compile(r'\s*("[^"]*"|[{}\[\]:,|?]|[A-Za-z…][\w.…]*|-?\d[\d.]*)')


class Shape:
    """A parsed shape. match() gives None, or where and how a value differs."""

    def __init__(self, text):
        self.tokens, self.at = TOKEN.findall(text), 0
        self.root = self.alternatives()
        rest = self.tokens[self.at : self.at + 4]
        need(not rest, f"not a shape from {rest}: {text[:80]}")

    def next(self):
        self.at += 1
        return self.tokens[self.at - 1]

    def peek(self):
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def alternatives(self):
        found = [self.value()]
        while self.peek() == "|":
            self.next()
            found.append(self.value())
        return ("or", found)

    def value(self):
        t = self.next()
        if t == "{":
            return self.members()
        if t == "[":
            return self.items()
        if t.startswith('"'):
            return ("text", None if t == '"…"' else t[1:-1].split("|"))
        kinds = {"N": "whole", "…": "any", "null": "null", "true": "bool"}
        need(t in kinds or re.fullmatch(r"\d+(\.\d+)?", t), f"not a value: {t}")
        return (kinds.get(t, "real" if "." in t else "whole"), t)

    def members(self):
        found = {}
        if self.peek() == "…":
            self.next()
            need(self.next() == "}", "{…} holds more")
            return ("object", None)
        while self.peek() != "}":
            name, optional = json.loads(self.next()), self.peek() == "?"
            if optional:
                self.next()
            need(self.next() == ":", f"no : after {name}")
            found[name] = (optional, self.alternatives())
            if self.peek() == ",":
                self.next()
        self.next()
        return ("object", found)

    def items(self):
        found, repeats = [], False
        while self.peek() != "]":
            if self.peek() == "…":
                self.next()
                repeats = True
            else:
                found.append(self.alternatives())
            if self.peek() == ",":
                self.next()
        self.next()
        return ("list", found, repeats)

    def match(self, v, seen=None):
        return self.differs(self.root, v, "$", set() if seen is None else seen)

    def differs(self, s, v, where, seen):
        kind = s[0]
        if kind == "or":
            reasons = [self.differs(x, v, where, seen) for x in s[1]]
            return None if None in reasons else reasons[0] if len(reasons) == 1 else "; or ".join(reasons)
        if kind == "object":
            return self.object_differs(s[1], v, where, seen)
        if kind == "list":
            return self.list_differs(s, v, where, seen)
        number = isinstance(v, (int, float)) and not isinstance(v, bool)
        right = {
            "any": True,
            "null": v is None,
            "bool": isinstance(v, bool),
            "whole": number and isinstance(v, int),
            "real": number,
            "text": isinstance(v, str) and (kind != "text" or s[1] is None or v in s[1]),
        }[kind]
        return None if right else f"{where}: {v!r} is not {s[1] or kind}"

    def object_differs(self, members, v, where, seen):
        if not isinstance(v, dict):
            return f"{where}: {v!r} is no object"
        if members is None:
            return None
        if set(v) - set(members):
            return f"{where}: not in the contract: {sorted(set(v) - set(members))}"
        for name, (optional, s) in members.items():
            if name in v:
                seen.add(f"{where}.{name}")
                why = self.differs(s, v[name], f"{where}.{name}", seen)
                if why:
                    return why
            elif not optional:
                return f"{where}: {name} is missing"
        return None

    def list_differs(self, s, v, where, seen):
        _, found, repeats = s
        if not isinstance(v, list):
            return f"{where}: {v!r} is no list"
        if not found:
            return None
        if not repeats and len(v) != len(found):
            return f"{where}: {len(v)} items"
        for i, x in enumerate(v):
            why = self.differs(found[0] if repeats else found[i], x, f"{where}[]", seen)
            if why:
                return why
        return None

    def optional_paths(self):
        """Where members stand that need not be there."""

        def walk(s, where):
            if s[0] == "or":
                for x in s[1]:
                    yield from walk(x, where)
            elif s[0] == "object" and s[1]:
                for name, (optional, x) in s[1].items():
                    if optional:
                        yield f"{where}.{name}"
                    yield from walk(x, f"{where}.{name}")
            elif s[0] == "list":
                for x in s[1]:
                    yield from walk(x, f"{where}[]")

        return set(walk(self.root, "$"))


def shapes():
    """{"run": [Shape, Shape], "eval logits": [...], ...}: the spans of the JSON section by command."""
    found = {}
    for line in re.split(r"\n- ", CONTRACT.split("\n## JSON")[1].split("\n## ")[0])[1:]:
        name = None
        for span in re.findall(r"`([^`]+)`", line.replace("\n", " ")):
            command = re.match(r"((?:eval )?[a-z]+)((?: --(?:presets|list|erase)\b)?)(?= |$)", span)
            if span[0] in "{[" and name:
                found.setdefault(name, []).append(Shape(span))
            elif command and "--json" in span:
                name = command.group(1) + command.group(2)
    return found


def small_inputs(t):
    tasks = json.loads(gzip.open(FIXTURES / "tasks.json.gz").read())[:2]
    ref = json.loads(gzip.open(FIXTURES / "qwen3_5.ref.json.gz").read())
    ref["prompts"] = [p for p in ref["prompts"] if p["name"] == "short_raw"]
    for name, v in (("two.tasks.json.gz", tasks), ("one.ref.json.gz", ref)):
        with gzip.open(t.tmp / name, "wb") as f:
            f.write(json.dumps(v).encode())
    many = ["-p", "Tell me.", "-n", "600", "--ignore-eos", "--raw", "-c", "1024"]
    t.run(*many, "--trace", t.tmp / "moe.trace", model=MOE).ok()
    t.file("words.txt", "The capital of Cyprus is Nicosia. " * 4)
    t.file("messages.json", '[{"role":"user","content":"hi"}]')


def results(t):
    """(command, argv, exit codes, which shape): every command that takes --json, and all it can show."""
    tmp = t.tmp
    return [
        ("eval logits", ["--tokens", "1,2", "-m", LLAMA], {0}, 0),
        ("eval logits", ["--tokens", "1,2", "-m", LLAMA, "--top", "3", "--positions", "all"], {0}, 0),
        ("eval ref", ["-m", MTP, "--ref", tmp / "one.ref.json.gz"], {0, 1}, 0),
        ("eval tasks", ["-m", LLAMA, "--tasks", tmp / "two.tasks.json.gz"], {0}, 0),
        ("eval ppl", ["-m", LLAMA, "-f", tmp / "words.txt", "-c", "32"], {0}, 0),
        ("eval kld", ["-m", LLAMA, "--base", LLAMA, "-f", tmp / "words.txt", "-c", "32"], {0}, 0),
        ("eval cache", ["--trace", tmp / "moe.trace", "--capacity", "50"], {0}, 0),
        ("bench", ["-m", LLAMA, "-p", "4", "-n", "2", "-r", "1"], {0}, 0),
        ("plan", ["-m", LLAMA], {0}, 0),
        ("plan", ["-m", LLAMA, "--ram", "12M", "-c", "65536"], {6}, 0),
        ("plan", ["-m", FIXTURES / "qwen3_5_moe.q4_k_m.gguf", "--device", "sim:0"], {0}, 0),
        ("devices", [], {0}, 0),
        ("devices", ["--selftest"], {0}, 0),
        ("tune", ["-m", MTP, "-t", "1", "-ub", "64"], {0}, 0),
        ("tune --list", [], {0}, None),
        ("tune --erase", [], {0}, 0),
        ("tokenize", ["-m", LLAMA, "two words"], {0}, 0),
        ("detokenize", ["-m", LLAMA, "100"], {0}, 0),
        ("template", ["-m", LLAMA, "--messages", tmp / "messages.json"], {0}, 0),
        ("inspect", [LLAMA], {0}, 0),
        ("list", [], {0}, 0),
        ("synth", ["--preset", "llama-1b", "--dry-run"], {0}, 0),
        ("synth --presets", [], {0}, 0),
        ("env", [], {0}, 0),
        ("version", [], {0}, 0),
    ]


def names_of_commands(t):
    """Commands as the overview lists them."""
    listed = t("help").ok().out.split("Often used")[0]
    return re.findall(r"^  ([a-z]+(?: [a-z]+)?)  +\S", listed, re.M)


@case
def json_results_have_their_shapes(t):
    found, seen, done = shapes(), {}, set()
    env = {**t.env, "MICA_SIM": "vram=256M"}
    small_inputs(t)
    t.pulled("here")
    for command, argv, codes, which in results(t):
        r = t(*command.split(), *argv, "--json", env=env, timeout=120)
        need(r.rc in codes, f"{command}: exit {r.rc}: {r.err[-300:]}")
        need(command in found or which is None, f"{command}: no shape in docs/CONTRACT.md")
        value, done = json.loads(r.out), done | {command}
        for v in [value] if which is not None else value:
            shape = found[command][which] if which is not None else found["tune"][0]
            why = shape.match(v, seen.setdefault(command, set()))
            need(not why, f"{command}: {why}")
    need(r.out.count("\n") == 1, "more than one line")
    optional = {(c, p) for c in seen if c in found for s in found[c] for p in s.optional_paths()}
    never = {f"{c} {p}" for c, p in optional if p not in seen[c]}
    need(not never, f"in the contract and never seen: {never}")
    missing = {c for c in found if c not in done} - {"run", "pull"}
    need(not missing, f"in the contract and not tried here: {missing}")
    with_json = {c for c in names_of_commands(t) if "  --json" in t("help", *c.split()).ok().out}
    need(with_json <= set(found), f"--json without a shape: {with_json - set(found)}")


@case
def json_lines_of_run(t):
    token, done = shapes()["run"]
    for argv in (["-n", "4"], ["-n", "4", "--draft", "3", "-m", MTP], ["-n", "0"], ["--stop", "sia"]):
        model = [] if "-m" in argv else ["-m", LLAMA]
        lines = t("run", *model, "-p", "Capital of Cyprus?", "--temp", "0", *argv, "--json").lines()
        for v in lines[:-1]:
            need(not token.match(v), f"{argv}: {token.match(v)}")
        need(not done.match(lines[-1]), f"{argv}: {done.match(lines[-1])}")


@case
def shapes_can_fail(t):
    """The reader of shapes is no rubber stamp."""
    s = Shape('{"a":N,"b"?:"x|y","c":[{"d":1.0|null},…],"e":[N,"…"],"f":true,"g":{…}}')
    good = {"a": 1, "c": [{"d": 0.5}, {"d": None}], "e": [1, "z"], "f": False, "g": {"any": 1}}
    need(s.match(good) is None and s.match({**good, "b": "y"}) is None, f"{s.match(good)}")
    for wrong in (
        {"a": 1.5},
        {"a": True},
        {"b": "z"},
        {"c": [{"d": "1"}]},
        {"c": [{}]},
        {"e": [1]},
        {"e": [1, 2]},
        {"f": 0},
        {"g": []},
        {"h": 1},
    ):
        need(s.match({**good, **wrong}), f"{wrong} passes")
    need(s.match({k: v for k, v in good.items() if k != "a"}), "a missing member passes")
    need(s.optional_paths() == {"$.b"}, f"{s.optional_paths()}")


# ---- Commands and flags ----


@case
def contract_lists_what_there_is(t):
    """Every command of docs/CONTRACT.md is one, or stands in its table of what is not built yet."""
    missing = set(re.findall(r"`mica ([a-z]+)`", CONTRACT.split("## Not built yet")[1]))
    listed = CONTRACT.split("## Commands")[1].split("Common options")[0]
    promised = set()
    for words in re.findall(r"^    mica ([a-z]+(?:(?:\|| \| )[a-z]+)*)", listed, re.M):
        promised |= set(re.split(r" ?\| ?", words))
    there = set(re.findall(r"^  ([a-z]+)", t("help").ok().out.split("Often used")[0], re.M))
    need(promised - there == missing, f"promised {promised - there}, said to be missing {missing}")


def flags_of(page):
    """The spellings of a help page: {"-c": "--context", "--context": "--context", ...}."""
    found = {}
    for words in re.findall(r"^  ((?:-[\w-]+, )?-{1,2}[a-z][\w-]*)", page, re.M):
        spellings = words.split(", ")
        for s in spellings:
            found[s] = spellings[-1]
    return found


@case
def flags_are_those_of_the_contract(t):
    """What the contract names is a flag, or refused and said to be missing; and the other way."""
    head, table = CONTRACT.split("## Not built yet")
    body = head.split("\n## Commands")[1].split("\n## Server")[0]
    common = " ".join(re.findall(r"`([^`]+)`", body.split("Common options")[1].split("\n## JSON")[0]))
    promised = set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", common))
    missing = set(re.findall(r"`(--[\w-]+)", table)) - {"--device"}
    there = {}
    for c in names_of_commands(t):
        for s, name in flags_of(t("help", *c.split()).ok().out).items():
            there.setdefault(name, set()).add(s)
    spellings = set().union(*there.values())
    lost = {s for s in promised - spellings - missing if not accepted(t, s)}
    need(not lost, f"promised, and neither there nor said to be missing: {sorted(lost)}")
    for s in missing:
        need(s not in spellings, f"{s}: there, and said to be missing")
        t.run("-p", "x", s, "1").fails(7, s, "not in this version")
    t.run("-p", "x", "--device", "cpu,ref").fails(2, "one device")
    named = set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", body)) | {"--help", "--man"}
    silent = {name for name, all_of_it in there.items() if not all_of_it & named}
    need(not silent, f"flags that the contract does not name: {sorted(silent)}")


def accepted(t, flag):
    """Another spelling of a flag is not on the page; an unknown one is told so."""
    r = t.run(flag)
    return "unknown flag" not in r.err and "no flag of mica" not in r.err


# ---- Flags that no other test holds ----


def models_of(url):
    return json.loads(urllib.request.urlopen(url + "/v1/models", timeout=20).read())["data"][0]["id"]


def complete(url, text):
    body = {"prompt": text, "temperature": 0, "max_tokens": 24}
    head = {"Content-Type": "application/json"}
    request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(), head)
    return json.loads(urllib.request.urlopen(request, timeout=60).read())


def cached(v):
    return v["usage"]["prompt_tokens_details"]["cached_tokens"]


def wait_for_model(url):
    end = time.time() + 20
    while time.time() < end:
        with contextlib.suppress(urllib.error.HTTPError):
            return urllib.request.urlopen(url + "/health", timeout=20).read()
        time.sleep(0.02)
    raise Failed("the model does not come")


@contextlib.contextmanager
def server(t, *argv):
    """The address of a server with these flags, once its model is there."""
    argv = [t.mica, "serve", LLAMA, "--port", "0", "-c", "1024", "--parallel", "1", *map(str, argv)]
    p = subprocess.Popen(argv, env=t.env, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        for line in p.stderr:
            ready = re.search(r"ready: (http://[\d.:]+)", line)
            if ready:
                wait_for_model(ready.group(1))
                yield ready.group(1)
                return
        raise Failed(f"the server ended: {p.wait()}")
    finally:
        p.kill()
        p.communicate()


@case
def serve_flags_make_a_difference(t):
    folder = t.tmp / "pages"
    folder.mkdir()
    (folder / "index.html").write_text("<!doctype html><title>another page</title>")
    long = "one two three four five six seven eight nine ten " * 12

    def host(url, name):
        try:
            request = urllib.request.Request(url + "/v1/models", headers={"Host": name})
            return urllib.request.urlopen(request).status
        except urllib.error.HTTPError as e:
            return e.code

    def replay(url):
        complete(url, long)
        complete(url, "Another one. " * 40)
        again = cached(complete(url, long))
        made = complete(url, "It was a day")["choices"][0]["text"]
        return again, cached(complete(url, "It was a day" + made + " and then"))

    with server(t) as url:
        plain = models_of(url), host(url, "friend.example"), urllib.request.urlopen(url).read(), replay(url)
    flags = ["--alias", "my-name", "--allow-host", "friend.example", "--web-dir", folder]
    with server(t, *flags, "--cache-ram", "1", "--reuse-generated") as url:
        other = models_of(url), host(url, "friend.example"), urllib.request.urlopen(url).read(), replay(url)
    need(other[0] == "my-name" != plain[0], f"--alias: {plain[0]} {other[0]}")
    need((plain[1], other[1]) == (403, 200), f"--allow-host: {plain[1]} {other[1]}")
    need(b"another page" in other[2] and b"another page" not in plain[2], "--web-dir")
    need(plain[3][0] > other[3][0], f"--cache-ram: {plain[3]} {other[3]}")
    need(plain[3][1] < other[3][1], f"--reuse-generated: {plain[3]} {other[3]}")


@case
def card_flags_make_a_difference(t):
    sim = {**t.env, "MICA_SIM": "vram=256M"}

    def card(*argv):
        tiers = t("plan", LLAMA, "--device", "sim:0", *argv, "--json", env=sim).json()["tiers"]
        return next(x for x in tiers if x["device"] == "sim:0")

    base, less, reserve = card(), card("--vram", "128M"), card("--vram-reserve", "100M")
    limits = [x["free"] - x["reserve"] for x in (base, less)]
    need(limits[0] > limits[1] == 128 << 20, f"--vram: {base} {less}")
    need(base["reserve"] != reserve["reserve"] == 100 << 20, f"--vram-reserve: {base} {reserve}")


@case
def draft_model_is_read(t):
    t.run("-p", "x", "--draft-model", t.tmp / "none.gguf").fails(3, "none.gguf")
    r = t.run("-p", "x", "--draft-model", LLAMA)
    need(r.rc in (2, 4, 5) and LLAMA.name in r.err, f"a file without a draft block: exit {r.rc}: {r.err}")


@case
def flags_are_tested(t):
    """Every long flag of every command stands in a test of the command line or of the server."""
    tests = "".join(p.read_text() for d in ("cli", "serve") for p in (ROOT / "tests" / d).glob("*.py"))
    lost = set()
    for c in names_of_commands(t):
        pairs = flags_of(t("help", *c.split()).ok().out)
        for name in set(pairs.values()):
            spellings = [s for s, n in pairs.items() if n == name]
            if not any(re.search(rf'["\' ]{re.escape(s)}["\'= ]', tests) for s in spellings):
                lost.add(name)
    need(not lost, f"no test names {sorted(lost)}")


if __name__ == "__main__":
    sys.exit(main())
