#!/usr/bin/env python3
"""The command from outside: every flag with two values and the difference it makes, exit codes, JSON shapes, messages,
signals, and the conversation through a pseudo-terminal.

    tests/cli/cli_test.py [--mica build/mica] [--only WORD]

Prints `ok NAME`, `FAILED NAME: why` or `skip: why` for each case; the last line is N passed, N failed, N skipped."""
import argparse
import gzip
import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "tests" / "fixtures"
LLAMA = FIXTURES / "llama.q4_k_m.gguf"
QWEN3 = FIXTURES / "qwen3.q4_k_m.gguf"
MOE = FIXTURES / "qwen3_moe.q4_k_m.gguf"

CASES = []


class Failed(Exception):
    pass


class Skip(Exception):
    pass


def case(fn):
    CASES.append(fn)
    return fn


def need(condition, why):
    if not condition:
        raise Failed(why)


class Result:
    def __init__(self, rc, out, err, argv):
        self.rc, self.raw, self.err, self.argv = rc, out, err, argv
        self.out = out.decode("utf-8", "replace")

    def ok(self):
        need(self.rc == 0, f"{self.argv}: exit {self.rc}: {self.err.strip()[-300:]}")
        return self

    def fails(self, code, *words):
        """Exit code and one line `mica: thing: what: why` with these words in it, nothing on standard output."""
        need(self.rc == code, f"{self.argv}: exit {self.rc} instead of {code}: {self.err.strip()[-300:]}")
        lines = [l for l in self.err.splitlines() if l]
        need(lines, f"{self.argv}: no message")
        last = lines[-1]
        need(re.match(r"mica: .+: .+", last), f"{self.argv}: not `mica: thing: why`: {last}")
        for w in words:
            need(w in last, f"{self.argv}: no \"{w}\" in: {last}")
        return self

    def json(self):
        self.ok()
        return json.loads(self.out)

    def lines(self):
        self.ok()
        return [json.loads(l) for l in self.out.splitlines()]


class Bench:
    """What the cases share: the program, a folder that goes away, an environment of our own."""

    def __init__(self, mica, tmp):
        self.mica, self.tmp = mica, tmp
        self.env = {"PATH": os.environ["PATH"], "HOME": str(tmp / "home"), "MICA_HOME": str(tmp / "cache"),
                    "TERM": "xterm", "LC_ALL": "C.UTF-8"}
        for k in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS"):
            if k in os.environ:
                self.env[k] = os.environ[k]
        (tmp / "home").mkdir()

    def __call__(self, *argv, stdin=None, env=None, timeout=60, cwd=None):
        argv = [a if isinstance(a, bytes) else str(a) for a in argv]
        given = {"stdin": subprocess.DEVNULL} if stdin is None else {"input": stdin.encode() if isinstance(stdin, str) else stdin}
        p = subprocess.run([self.mica, *argv], capture_output=True, env=self.env if env is None else env,
                           timeout=timeout, cwd=cwd, **given)
        return Result(p.returncode, p.stdout, p.stderr.decode("utf-8", "replace"), " ".join(map(str, argv))[:120])

    def run(self, *argv, model=LLAMA, **kw):
        return self("run", "-m", model, *argv, **kw)

    def answer(self, *argv, model=LLAMA, prompt="Capital of Cyprus?", temp="0", **kw):
        """The last JSON line of an answer."""
        temps = [] if temp is None else ["--temp", temp]
        lines = self.run("-p", prompt, "--json", *temps, *argv, model=model, **kw).lines()
        need(lines[-1]["type"] == "done", "the last line is not done")
        need("".join(l["text"] for l in lines[:-1]) == lines[-1]["text"], "the tokens' texts are not the text")
        need([l["id"] for l in lines[:-1]] == lines[-1]["ids"], "the tokens' ids are not the ids")
        return lines[-1]

    def file(self, name, content):
        path = self.tmp / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path


# ---- run: one answer ----

@case
def run_answers_right(t):
    for model in (LLAMA, QWEN3, MOE):
        r = t.run("-p", "Capital of Cyprus?", "--temp", "0", "--think", "off", model=model).ok()
        need("Nicosia" in r.out, f"{model.name}: {r.out!r}")
        need(r.err.count("mica: prompt ") == 1 and "t/s" in r.err, f"no times: {r.err!r}")


@case
def run_stdout_is_the_answer_alone(t):
    r = t.run("-p", "Capital of Cyprus?", "--temp", "0", "--think", "on").ok()
    need("think" not in r.out and not r.out.startswith("\n"), f"{r.out!r}")
    need("Nicosia" in r.out, f"{r.out!r}")
    need("Nicosia" in r.err, f"thinking is not on standard error: {r.err!r}")
    need("\033" not in r.err and "\r" not in r.err, "escapes without a terminal")


@case
def run_prompt_sources_agree(t):
    want = t.run("-p", "Capital of Cyprus?", "--temp", "0").ok().out
    f = t.file("prompt.txt", "Capital of Cyprus?\n")
    need(t.run("-f", f, "--temp", "0").ok().out == want, "-f differs from -p")
    need(t.run("-f", "-", "--temp", "0", stdin="Capital of Cyprus?\n").ok().out == want, "-f - differs")
    need(t.run("--temp", "0", stdin="Capital of Cyprus?\r\n").ok().out == want, "a pipe differs")
    other = t.file("other.txt", "Capital of Vietnam?")
    need(t.run("-f", other, "--temp", "0").ok().out != want, "another file, the same answer")
    t.run("-p", "x", "-f", f).fails(2, "-f", "-p")
    t.run("-f", t.tmp / "nothing.txt").fails(3, "nothing.txt", "No such file")
    t.run("-f", t.tmp).fails(3, str(t.tmp), "directory")
    t.run(stdin="").fails(2, "standard input", "empty")


@case
def run_json_shape(t):
    d = t.answer("--think", "off")
    need(set(d) == {"type", "prompt_tokens", "cached_tokens", "ids", "text", "finish_reason", "timings", "draft", "experts"},
         f"members: {sorted(d)}")
    need(set(d["timings"]) == {"load_ms", "prompt_ms", "prompt_tps", "decode_ms", "decode_tps"}, "timings")
    need(set(d["draft"]) == {"windows", "drafted", "accepted"}, "draft")
    need(set(d["experts"]) == {"hit_rate", "link_bytes", "cpu_bytes", "ssd_bytes"}, "experts")
    need(d["finish_reason"] == "stop" and d["prompt_tokens"] > 5 and d["cached_tokens"] == 0, f"{d}")
    need("Nicosia" in d["text"] and d["timings"]["load_ms"] > 0 and d["timings"]["decode_tps"] > 0, f"{d}")


@case
def run_json_text_is_whole_utf8(t):
    r = t.run("-p", "Say: 模型 é 😊", "--json", "--temp", "1.5", "--seed", "3", "-n", "80", "--raw").ok()
    for line in r.raw.split(b"\n"):
        line.decode("utf-8")  # raises on half a character


# Flags of run: two values each, and what must differ in the final JSON line.
FLAGS = [
    ("-p", ["-p", "Capital of Vietnam?"], ["-p", "Capital of Iceland?"], "text", {}),
    ("--system", ["--system", "Be brief."], ["--system", "You are a helpful assistant."], "prompt_tokens", {}),
    ("--raw", ["--raw"], [], "prompt_tokens", {}),
    ("--think", ["--think", "on"], ["--think", "off"], "text", {}),
    ("--chat-template-kwargs", ["--chat-template-kwargs", '{"enable_thinking":true}'],
     ["--chat-template-kwargs", '{"enable_thinking":false}'], "prompt_tokens", {}),
    ("-n", ["-n", "2"], ["-n", "3"], "ids", {}),
    ("--stop", ["--stop", "sia"], ["--stop", "ico"], "text", {}),
    ("--ignore-eos", ["--ignore-eos", "-n", "60"], ["-n", "60"], "ids", {}),
    ("--temp", ["--temp", "0"], ["--temp", "3", "--seed", "1"], "ids", {"temp": None, "raw": 1}),
    ("--top-k", ["--top-k", "1"], ["--top-k", "0"], "ids", {"temp": "3", "seed": "1", "raw": 1}),
    ("--top-p", ["--top-p", "0.01"], ["--top-p", "1"], "ids", {"temp": "3", "seed": "1", "raw": 1}),
    ("--min-p", ["--min-p", "1"], ["--min-p", "0"], "ids", {"temp": "3", "seed": "1", "raw": 1}),
    ("--repeat-penalty", ["--repeat-penalty", "1"], ["--repeat-penalty", "8"], "ids", {"raw": 1}),
    ("--presence-penalty", ["--presence-penalty", "0"], ["--presence-penalty", "9"], "ids", {"raw": 1}),
    ("--frequency-penalty", ["--frequency-penalty", "0"], ["--frequency-penalty", "9"], "ids", {"raw": 1}),
    ("--repeat-last-n", ["--repeat-last-n", "1", "--presence-penalty", "50"],
     ["--repeat-last-n", "-1", "--presence-penalty", "50"], "ids", {"raw": 1}),
    ("--seed", ["--seed", "1"], ["--seed", "2"], "ids", {"temp": "3", "raw": 1}),
]


@case
def run_each_flag_makes_a_difference(t):
    for name, first, second, what, how in FLAGS:
        base = ["--top-k", "0", "--top-p", "1", "--min-p", "0"] if how.get("temp") == "3" else []
        if "seed" in how:
            base += ["--seed", how["seed"]]
        if "raw" in how:
            base += ["--raw", "--ignore-eos", "-n", "40"]
        temp = how.get("temp", "0")
        a, b = (t.answer(*base, *flags, temp=temp)[what] for flags in (first, second))
        need(a != b, f"{name}: {first} and {second} give the same {what}: {a!r}")


@case
def run_seed_decides(t):
    args = ["--raw", "--ignore-eos", "-n", "30", "--top-k", "0"]
    one, same = (t.answer(*args, "--seed", "7", temp="2")["ids"] for _ in range(2))
    need(one == same, "the same seed, another answer")
    r = t.run("-p", "x", *args, "--temp", "2").ok()
    seed = re.search(r"mica: seed (\d+)", r.err)
    need(seed, f"a random seed is not printed: {r.err!r}")
    again = t.run("-p", "x", *args, "--temp", "2", "--seed", seed.group(1)).ok()
    need(again.out == r.out, "the printed seed gives another answer")
    need("mica: seed" not in again.err, "a given seed needs no line")


@case
def run_n_0_reads_the_prompt_only(t):
    r = t.run("-p", "hi", "-n", "0").ok()
    need(r.raw == b"", f"{r.raw!r}")
    d = t.answer("-n", "0")
    need(d["ids"] == [] and d["finish_reason"] == "length" and d["prompt_tokens"] > 0, f"{d}")


@case
def run_n_minus_1_ends_with_the_turn(t):
    need(t.answer("-n", "-1") ["ids"] == t.answer()["ids"], "-1 is not the default")
    need(t.answer("-n", "2")["finish_reason"] == "length", "-n 2 is not `length`")


@case
def run_stop_strings(t):
    whole = t.answer("--think", "off")["text"]
    need(whole.startswith("Nicosia") or "Nicosia" in whole, whole)
    at = whole.index("sia")
    d = t.answer("--think", "off", "--stop", "sia", "--stop", "never")
    need(d["text"] == whole[:at] and d["finish_reason"] == "stop", f"{d['text']!r} of {whole!r}")
    r = t.run("-p", "Capital of Cyprus?", "--think", "off", "--temp", "0", "--stop", "sia").ok()
    need(r.out == whole[:at], f"{r.out!r}")
    r = t.run("-p", "Capital of Cyprus?", "--think", "off", "--temp", "0", "--stop", whole[-2:] + "x").ok()
    need(r.out == whole, "the beginning of a stop string at the end was lost")
    t.run("-p", "x", "--stop", "").fails(2, "--stop", "empty")
    t.run("-p", "x", "--stop", b"\xa8").fails(2, "--stop", "UTF-8")


@case
def run_draft_needs_a_block(t):
    t.answer("--draft", "off")
    t.run("-p", "x", "--draft", "4").fails(2, "--draft", "no draft block")
    t.run("-p", "x", "--draft-min-p", "0.5").fails(2, "--draft-min-p")
    t.run("-p", "x", "--draft", "some").fails(2, "--draft", "not a whole number")


@case
def run_context(t):
    long = "word " * 300
    t.run("-p", long, "-c", "256").fails(2, "256")
    t.run("-p", long, "-c", "1024", "-n", "1").ok()
    r = t.run("-p", "Count.", "--ignore-eos", "-c", "256", "-n", "-1", timeout=120).ok()
    need("the context of 256 tokens is full" in r.err, f"{r.err[-300:]!r}")


@case
def run_bytes_of_argv(t):
    t.run("-p", b"\xff\xfe").fails(2, "UTF-8")
    t.run("-p", b"\xff\xfe", "--raw", "-n", "1").ok()
    t.run("-p", "a\u0301 \u200d \U0001f60a", "-n", "1").ok()


@case
def run_control_tokens_in_text_stay_text(t):
    plain = t.answer("-n", "0", prompt="a<|im_end|>b")["prompt_tokens"]
    special = t.answer("-n", "0", "--raw", prompt="a<|im_end|>b")["prompt_tokens"]
    rest = t.answer("-n", "0", prompt="ab")["prompt_tokens"]
    need(plain - rest >= 4, f"the mark became one token: {plain} and {rest}")
    need(special == 3, f"--raw: {special} tokens instead of 3")


# ---- Where it runs ----

def device_line(r):
    return next(l for l in r.err.splitlines() if l.startswith("mica: ") and "parameters" in l)


@case
def device_flags_make_a_difference(t):
    def line(*argv):
        return device_line(t("bench", "-m", LLAMA, "-p", "1", "-n", "0", "-r", "1", *argv).ok())
    need(line("-t", "1") != line("-t", "2"), "-t 1 and -t 2 look the same")
    need(line("--device", "cpu") != line("--device", "ref"), "--device cpu and ref look the same")
    need(line("--isa", "scalar") != line(), "--isa scalar looks like the default")
    need(line("-ngl", "0") == line("--device", "cpu"), "-ngl 0 is not the CPU")


@case
def device_flags_refuse(t):
    for flag, value in (("--vram", "16G"), ("--vram-reserve", "1G"), ("--kv-resident", "1"), ("--n-cpu-moe", "4"),
                        ("--experts-ram", "all"), ("--profile", "x")):
        t.run("-p", "x", flag, value).fails(7, flag, "CPU only")
    t.run("-p", "x", "-ngl", "99").fails(7, "-ngl", "99")
    t.run("-p", "x", "-ngl", "all").fails(7, "-ngl")
    t.run("-p", "x", "--device", "warp:0").fails(2, "warp:0")
    t.run("-p", "x", "--isa", "mmx").fails(2, "mmx")
    r = t.run("-p", "x", "--device", "cuda:0")
    need(r.rc in (5, 7), f"--device cuda:0: exit {r.rc}: {r.err}")


@case
def bits_do_not_depend_on_flags(t):
    def logits(*argv):
        return t("eval", "logits", "-m", LLAMA, "--tokens", "1,2,3,4,5,6,7,8,9", "--positions", "all", "--json",
                 *argv).ok().out
    base = logits()
    for flags in (["-t", "1"], ["--device", "ref"], ["--isa", "scalar"], ["--ubatch", "1"], ["--ubatch", "4"],
                  ["--split-at", "4"], ["--exact"], ["-c", "512"]):
        need(logits(*flags) == base, f"{flags}: other bits")
    need(len({base, logits("--kv", "f32"), logits("--kv", "int8")}) == 3, "--kv changes nothing")


@case
def memory_cap(t):
    t.run("-p", "x", "-n", "1", "--ram", "4G").ok()
    t.run("-p", "x", "-n", "1", "--ram", "1M").fails(6)
    t.run("-p", "x", "--ram", "16GB").fails(2, "--ram", "16GB")
    t.run("-p", "x", "--ram", "-1").fails(2, "--ram")


# ---- The command line ----

@case
def unknown_words(t):
    t.run("--contxt", "3").fails(2, "--contxt", "did you mean --context?")
    t.run("--xyzzy").fails(2, "--xyzzy", "mica help run")
    t.run("--top", "3").fails(2, "--top", "eval logits")
    t("rnu").fails(2, "did you mean `mica run`?")
    t("eval").fails(2, "second word")
    t("eval", "pll").fails(2, "eval")
    t("-m", "x").fails(2, "-m", "command")
    t().fails(2, "mica help")
    t("run").fails(2, "-m", "missing")
    t.run("extra").fails(2, "extra", "usage")
    t("inspect").fails(2, "-m")
    t("rm").fails(2, "usage")
    t("completion", "tcsh").fails(2, "tcsh", "fish")
    t("help", "nothing").fails(2, "nothing")


@case
def values_are_checked(t):
    for flag, bad, why in (("-n", "x", "whole number"), ("-n", "-2", "least"), ("-n", "99999999999", "most"),
                           ("-n", "99999999999999999999", "large"), ("-n", "", "whole number"), ("-n", "3.5", "whole"),
                           ("-c", "-1", "least"), ("-t", "2000", "most"), ("--temp", "-1", "least"),
                           ("--temp", "nan", "most"), ("--temp", "warm", "number"), ("--top-p", "1.5", "most"),
                           ("--min-p", "-0.1", "least"), ("--kv", "f64", "f16|f32|int8"), ("--ram", "much", "size"),
                           ("--repeat-penalty", "0", "least"), ("--seed", "-2", "least")):
        t.run("-p", "x", flag, bad).fails(2, flag, f'"{bad}"', why)
        t.run("-p", "x", f"{flag}={bad}" if flag.startswith("--") else flag,
              *([] if flag.startswith("--") else [bad])).fails(2, flag)
    t.run("-p").fails(2, "-p", "no value")
    t.run("--system", "--raw").fails(2, "--system", "--raw")
    t.run("--json=1", "-p", "x").fails(2, "--json", "no value")
    t.run("-p", "x", "--chat-template-kwargs", "{").fails(2, "--chat-template-kwargs")
    t.run("-p", "x", "--chat-template-kwargs", "[]").fails(2, "--chat-template-kwargs", "object")
    t.run("-p", "x", "--raw", "--system", "s").fails(2, "--system", "template")


@case
def aliases_mean_the_same(t):
    want = t.answer("-n", "4")["ids"]
    for same in (["--predict", "4"], ["--n-predict", "4"], ["--n-predict=4"]):
        need(t.answer(*same)["ids"] == want, f"{same}")
    need(t.answer("--ctx-size", "512", "-n", "4")["ids"] == want, "--ctx-size")
    a, b = (t.answer(flag, "Be brief.", "-n", "0")["prompt_tokens"] for flag in ("-sys", "--system-prompt"))
    need(a == b == t.answer("--system", "Be brief.", "-n", "0")["prompt_tokens"], "-sys")
    need(t.answer("--temperature", "0", "-n", "4", temp=None)["ids"] == want, "--temperature")
    t("run", "--model", LLAMA, "--prompt", "x", "-n", "0").ok()


@case
def help_names_every_flag(t):
    names = t("help").ok().out
    commands = re.findall(r"^  ([a-z]+(?: [a-z]+)?)  +\S", names.split("Often used")[0], re.M)
    need(len(commands) >= 20 and "run" in commands and "eval ppl" in commands, f"{commands}")
    for c in commands:
        page = t("help", *c.split()).ok().out
        need(page == t(*c.split(), "--help").ok().out, f"{c}: --help differs from help")
        need(page.startswith(f"mica {c}: ") and "--help" in page, page[:80])
        need(max(len(l) for l in page.splitlines()) <= 110, f"{c}: a line too long")
    need(t("--help").ok().out == names == t("-h").ok().out, "--help differs from help")
    need("mica eval kld" in t("help", "eval").ok().out == t("eval", "--help").ok().out, "help eval")
    man = t("help", "--man").ok().out
    need(man.startswith(".TH MICA 1") and all(f".SS mica {c}" in man for c in commands), "manual page")
    if shutil.which("groff"):
        p = subprocess.run(["groff", "-man", "-Tutf8", "-ww"], input=man.encode(), capture_output=True)
        need(p.returncode == 0 and not p.stderr, p.stderr.decode()[:200])


@case
def help_needs_no_model(t):
    r = t("run", "--help", "-m", "nothing").ok()
    need("Usage: mica run" in r.out, r.out[:80])


@case
def version_says_itself(t):
    r = t("version").ok()
    need(re.match(r"mica \d+\.\d+\.\d+\n", r.out), r.out)
    need(t("--version").ok().out == r.out == t("-V").ok().out, "--version differs")
    v = t("version", "--json").json()
    need(r.out.startswith(f"mica {v['version']}\n") and v["cpu"]["threads"] >= 1, f"{v}")


@case
def env_lists_variables(t):
    v = {x["name"]: x for x in t("env", "--json").json()}
    need(v["MICA_HOME"]["value"] == t.env["MICA_HOME"] and v["NO_COLOR"]["value"] is None, f"{v}")
    secret = t("env", env={**t.env, "HF_TOKEN": "hf_verysecret"}).ok()
    need("verysecret" not in secret.out and "HF_TOKEN" in secret.out, "the token is printed")


def complete(t, words, shell="bash"):
    """What bash offers after these words."""
    script = t("completion", "bash").ok().out
    script += f"\nmica() {{ '{t.mica}' \"$@\"; }}\nCOMP_WORDS=({' '.join(repr(w) for w in words)})\n" \
              f"COMP_CWORD={len(words) - 1}\ncompopt() {{ :; }}\n_mica\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"\n"
    p = subprocess.run(["bash", "--norc", "-c", script], capture_output=True, text=True, env=t.env)
    need(p.returncode == 0 and not p.stderr, f"bash: {p.stderr}")
    return p.stdout.split()


@case
def completion_works_in_bash(t):
    need("run" in complete(t, ["mica", ""]), "commands")
    need(complete(t, ["mica", "tok"]) == ["tokenize"], "tok")
    need(complete(t, ["mica", "eval", "p"]) == ["ppl"], "eval p")
    need("--context" in complete(t, ["mica", "run", "--con"]), "--con")
    need(complete(t, ["mica", "run", "--kv", ""]) == ["f16", "f32", "int8"], "--kv")
    need(complete(t, ["mica", "eval", "logits", "--positions", "a"]) == ["all"], "--positions")
    need("--vram" not in complete(t, ["mica", "run", "--"]), "refused flags are offered")


@case
def completion_parses_elsewhere(t):
    for shell in ("zsh", "fish"):
        script = t("completion", shell).ok().out
        need(script.count("--context") + script.count("-l context") >= 1, shell)
        if shutil.which(shell):
            p = subprocess.run([shell, "-n"], input=script, capture_output=True, text=True)
            need(p.returncode == 0, f"{shell}: {p.stderr[:200]}")


# ---- Files that are wrong ----

@case
def model_files_that_are_wrong(t):
    whole = LLAMA.read_bytes()
    t("run", "-m", t.tmp / "nothing.gguf", "-p", "x").fails(3, "nothing.gguf")
    t("run", "-m", t.tmp, "-p", "x").fails(3, str(t.tmp))
    t("run", "-m", t.file("empty.gguf", b""), "-p", "x").fails(4, "empty.gguf")
    t("run", "-m", t.file("text.gguf", "no model at all, only words\n"), "-p", "x").fails(4, "text.gguf")
    for n in (24, 5000, len(whole) // 2, len(whole) - 1):
        t("run", "-m", t.file("cut.gguf", whole[:n]), "-p", "x").fails(4, "cut.gguf")
    key = b"general.architecture"
    at = whole.index(key) + len(key) + 4 + 8
    need(whole[at:at + 5] == b"llama", "the fixture has another layout")
    t("run", "-m", t.file("arch.gguf", whole[:at] + b"lxxma" + whole[at + 5:]), "-p", "x").fails(5, "lxxma")
    t("inspect", t.tmp / "nothing.gguf").fails(3, "nothing.gguf")
    t("plan", "-m", t.tmp / "cut.gguf").fails(4, "cut.gguf")
    t("tokenize", "-m", t.tmp / "cut.gguf", "x").fails(4, "cut.gguf")


@case
def model_paths_that_are_odd(t):
    for name in ("Željko Ünï 模型 🙂/a b%20'c\".gguf", " blank at both ends ", "-dash.gguf"):
        path = t.tmp / "paths" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(LLAMA, path)
        t("run", "-m", path, "-p", "x", "-n", "1").ok()
        t("run", "-m", path.name, "-p", "x", "-n", "1", cwd=path.parent).ok()
    link = t.tmp / "paths" / "link.gguf"
    link.symlink_to(LLAMA)
    t("run", "-m", link, "-p", "x", "-n", "1").ok()
    t("run", "-m", "x" * 300, "-p", "x").fails(3)
    t("run", "-m", "/dev/null", "-p", "x", timeout=10)
    fifo = t.tmp / "fifo"
    os.mkfifo(fifo)
    r = t("run", "-m", fifo, "-p", "x", timeout=10)
    need(r.rc in (3, 4), f"a FIFO: exit {r.rc}")


@case
def template_that_is_broken(t):
    whole = LLAMA.read_bytes()
    at = whole.rindex(b"{%- endfor %}")
    path = t.file("template.gguf", whole[:at] + b"{%- endxor %}" + whole[at + 13:])
    t("run", "-m", path, "-p", "x").fails(2, "template")
    t("run", "-m", path, "-p", "x", "--raw", "-n", "1").ok()


@case
def no_home_at_all(t):
    bare = {"PATH": t.env["PATH"]}
    t.run("-p", "x", "-n", "1", env=bare).ok()
    t("list", env=bare)
    home = {"PATH": t.env["PATH"], "HOME": "/nonexistent"}
    t.run("-p", "x", "-n", "1", env=home).ok()
    t("list", "--json", env=home)


@case
def nothing_is_written_beside_the_model(t):
    folder = t.tmp / "still"
    folder.mkdir()
    shutil.copy(LLAMA, folder / "m.gguf")
    folder.chmod(0o555)
    before = sorted(os.listdir(folder))
    t.run("-p", "x", "-n", "1", model=folder / "m.gguf").ok()
    t("inspect", folder / "m.gguf").ok()
    folder.chmod(0o755)
    need(sorted(os.listdir(folder)) == before, "something was written")


# ---- Streams and signals ----

def popen(t, *argv, **kw):
    return subprocess.Popen([t.mica, *[str(a) for a in argv]], env=t.env, **kw)


@case
def streams_may_be_closed(t):
    base = f"'{t.mica}' run -m '{LLAMA}' -n 2 --temp 0"
    for line, want in ((f"{base} -p x <&-", 0), (f"{base} -p x >&-", 0), (f"{base} -p x 2>&-", 0),
                       (f"{base} -p x <&- >&- 2>&-", 0), (f"{base} <&-", 2)):
        p = subprocess.run(["bash", "-c", line], env=t.env, capture_output=True, timeout=30)
        need(p.returncode == want, f"{line.split('gguf')[1]}: exit {p.returncode}: {p.stderr.decode()[-200:]}")


@case
def a_reader_that_leaves(t):
    p = subprocess.run(["bash", "-c", f"'{t.mica}' run -m '{LLAMA}' --ignore-eos --raw -p x -n 2000 | head -c 5; "
                                      "echo; echo ${PIPESTATUS[0]}"], env=t.env, capture_output=True, timeout=60)
    lines = p.stdout.split(b"\n")
    need(lines[-2] == b"141", f"status {lines[-2]!r}")  # as any filter: ended by SIGPIPE
    need(b"rite" not in p.stderr, f"a message: {p.stderr[-200:]!r}")


@case
def a_disk_that_is_full(t):
    with open("/dev/full", "wb") as full:
        p = popen(t, "run", "-m", LLAMA, "-p", "x", "-n", "4", stdout=full, stderr=subprocess.PIPE,
                  stdin=subprocess.DEVNULL)
        err = p.communicate(timeout=60)[1].decode()
    need(p.returncode == 9 and "No space left" in err, f"exit {p.returncode}: {err[-200:]}")


@case
def signals_end_it_within_two_seconds(t):
    for sig, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        for delay in (0.0, 0.02, 0.3, 1.0):
            p = popen(t, "run", "-m", LLAMA, "--raw", "-p", "x", "--ignore-eos", "--device", "ref", "-n", "-1",
                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
            time.sleep(delay)
            start = time.time()
            p.send_signal(sig)
            p.communicate(timeout=20)
            took = time.time() - start
            # A signal before main has set its handlers ends the process the default way.
            early = delay == 0.0 and p.returncode == -sig
            need(p.returncode == code or early, f"{sig.name} after {delay} s: exit {p.returncode}")
            need(took < 2, f"{sig.name} after {delay} s: took {took:.1f} s")


@case
def ctrl_c_gives_what_there_is(t):
    p = popen(t, "run", "-m", LLAMA, "--raw", "-p", "x", "--ignore-eos", "--device", "ref", "-n", "-1", "--json",
              stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    first = p.stdout.readline()
    p.send_signal(signal.SIGINT)
    rest = p.communicate(timeout=20)[0]
    done = json.loads((first + rest).splitlines()[-1])
    need(p.returncode == 130 and done["finish_reason"] == "cancelled" and done["ids"], f"{p.returncode} {done}")


# ---- The other commands ----

@case
def tokenize_and_back(t):
    text = "Hello <|im_end|> 模型 😊\n"
    plain = t("tokenize", "-m", LLAMA, "--json", text).json()
    special = t("tokenize", "-m", LLAMA, "--json", "--special", text).json()
    need(set(plain) == {"ids", "pieces"} and len(plain["ids"]) == len(plain["pieces"]), f"{plain}")
    need(4079 in special["ids"] and 4079 not in plain["ids"], "--special")
    need("<|im_end|>" in special["pieces"], f"{special['pieces']}")
    ids = [str(i) for i in plain["ids"]]
    need(t("detokenize", "-m", LLAMA, "--json", *ids).json() == {"text": text}, "not the same text back")
    need(t("detokenize", "-m", LLAMA, *ids).ok().out == text + "\n", "as text")
    need(t("detokenize", "-m", LLAMA, stdin=json.dumps(plain["ids"])).ok().out == text + "\n", "a JSON list")
    a, b = (t("detokenize", "-m", LLAMA, "--json", *f, "4079", *ids[:1]).json()["text"] for f in ([], ["--special"]))
    need("<|im_end|>" in b and "<|im_end|>" not in a, f"--special: {a!r} {b!r}")
    f = t.file("text.txt", text)
    need(t("tokenize", "-m", LLAMA, "--json", "-f", f).json() == plain, "-f")
    need(t("tokenize", "-m", LLAMA, "--json", stdin=text).json() == plain, "standard input")
    need(len(t("tokenize", "-m", LLAMA, text).ok().out.splitlines()) == len(ids), "one token a line")
    t("tokenize", "-m", LLAMA, "--bos", "x").ok()
    t("detokenize", "-m", LLAMA, "x").fails(2, "x")
    t("detokenize", "-m", LLAMA, "4096").fails(2, "4096")
    t("tokenize", "-m", LLAMA, "x", "-f", f).fails(2, "-f")


@case
def tokenize_equals_the_reference(t):
    for entry in json.loads((FIXTURES / "tokenizer.ref.json").read_text())[:12]:
        got = t("tokenize", "-m", LLAMA, "--json", "--special", "-f", "-", stdin=entry["text"]).json()["ids"]
        need(got == entry["ids"], f"{entry['text']!r}")


@case
def template_renders(t):
    messages = t.file("messages.json", json.dumps([{"role": "user", "content": "Hi"}]))
    tools = t.file("tools.json", json.dumps([{"type": "function", "function": {"name": "f", "parameters": {}}}]))
    base = ["template", "-m", LLAMA, "--messages", messages]
    d = t(*base, "--json").json()
    need(set(d) == {"prompt", "ids"}, f"{d}")
    need(d["prompt"] == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n", d["prompt"])
    need(t(*base).ok().out == d["prompt"], "as text")
    need(d["ids"][0] == 4078, "the template's own marks are control tokens")
    need(t(*base, "--think", "on").ok().out == d["prompt"] + "<think>\n", "--think on")
    need(t(*base, "--think", "off").ok().out == d["prompt"] + "<think>\n\n</think>\n\n", "--think off")
    need("<tools>" in t(*base, "--tools", tools).ok().out, "--tools")
    need(not t(*base, "--no-generation-prompt").ok().out.endswith("assistant\n"), "--no-generation-prompt")
    need(t(*base, "--chat-template-kwargs", '{"enable_thinking":true}').ok().out.endswith("<think>\n"), "kwargs")
    need(t("template", "-m", LLAMA, "--messages", "-", stdin=messages.read_text()).ok().out == d["prompt"], "stdin")
    t("template", "-m", LLAMA).fails(2, "--messages")
    t("template", "-m", LLAMA, "--messages", t.file("bad.json", "[1,")).fails(2, "bad.json", "line 1")
    t("template", "-m", LLAMA, "--messages", t.file("object.json", "{}")).fails(2, "object.json", "array")
    t("template", "-m", LLAMA, "--messages", t.tmp / "none.json").fails(3, "none.json")


@case
def inspect_shows_the_file(t):
    d = t("inspect", LLAMA, "--json").json()
    for key in ("path", "version", "alignment", "shards", "bytes", "arch", "name", "parameters", "metadata", "tensors"):
        need(key in d, f"no {key}")
    need(d["arch"] == "llama" and d["bytes"] == LLAMA.stat().st_size and d["version"] == 3, f"{d['arch']}")
    need(len(d["metadata"]["tokenizer.ggml.tokens"]) < 4096, "arrays are cut")
    need(len(t("inspect", LLAMA, "--json", "--all").json()["metadata"]["tokenizer.ggml.tokens"]) == 4096, "--all")
    tensor = next(x for x in d["tensors"] if x["name"] == "token_embd.weight")
    need(tensor["shape"] == [4096, 256], f"{tensor}")
    text = t("inspect", LLAMA).ok().out
    need("token_embd.weight" in text and "general.architecture" in text and "MiB" in text, text[:200])
    need(t("inspect", "-m", LLAMA).ok().out == text, "-m")


@case
def plan_says_where_bytes_go(t):
    d = t("plan", "-m", LLAMA, "--json").json()
    need(d["fits"] is True and d["nearest"] is None and d["context"] > 0, f"{d}")
    def bytes_of(what, *argv):
        v = t("plan", "-m", LLAMA, "--json", *argv).json()
        return sum(i["bytes"] for tier in v["tiers"] for i in tier["items"] if i["what"] == what)
    need(bytes_of("weights") > 1e6, "weights")
    need(bytes_of("kv", "-c", "512") < bytes_of("kv", "-c", "1024"), "-c")
    need(bytes_of("kv", "--kv", "f16") < bytes_of("kv", "--kv", "f32"), "--kv")
    need(bytes_of("kv", "--parallel", "1") < bytes_of("kv", "--parallel", "4"), "--parallel")
    need(bytes_of("scratch", "--ubatch", "64") < bytes_of("scratch", "--ubatch", "1024"), "--ubatch")
    text = t("plan", "-m", LLAMA).ok().out
    need("weights" in text and "fits" in text and "context:" in text, text)
    small = t("plan", "-m", LLAMA, "--json", "--ram", "1M")
    need(small.rc == 6 and json.loads(small.out)["fits"] is False, f"exit {small.rc}")
    need("does not fit" in small.err, small.err)


@case
def devices_are_listed(t):
    d = t("devices", "--json").json()
    for key in ("id", "name", "arch", "wave", "vram_total", "vram_free", "driver", "library", "integrated", "display",
                "usable", "reason"):
        need(key in d[0], f"no {key}")
    need(any(x["id"] == "cpu" and x["usable"] for x in d), f"{d}")
    need("cpu" in t("devices").ok().out, "as text")


@case
def devices_selftest(t):
    r = t("devices", "--selftest", "--json", timeout=120)
    if r.rc == 5:
        raise Skip("this build has no self-test: " + r.err.strip())
    rows = [row for x in r.json() for row in x.get("selftest", [])]
    need(rows and all(row["mismatches"] == 0 and row["cases"] > 0 for row in rows), f"{rows[:3]}")


@case
def eval_logits_shape(t):
    base = ["eval", "logits", "-m", LLAMA, "--tokens", "4078,100,200"]
    d = t(*base, "--json").json()
    need([p["pos"] for p in d["positions"]] == [2] and len(d["positions"][0]["logits"]) == 4096, "last by default")
    d3 = t(*base, "--json", "--positions", "all").json()
    need([p["pos"] for p in d3["positions"]] == [0, 1, 2] and d3["positions"][2] == d["positions"][0], "--positions all")
    top = t(*base, "--json", "--top", "5").json()["positions"][0]["top"]
    logits = d["positions"][0]["logits"]
    best = sorted(range(4096), key=lambda i: (-logits[i], i))[:5]
    need([i for i, _ in top] == best and [v for _, v in top] == [logits[i] for i in best], f"--top {top}")
    need(t(*base, "--json").out == t(*base, "--json", "--split-at", "1").out, "--split-at changes the logits")
    need("position 2:" in t(*base, "--top", "3").ok().out, "as text")
    t("eval", "logits", "-m", LLAMA).fails(2, "--tokens")
    t(*base, "--split-at", "3").fails(2, "--split-at", "3 ids")
    t("eval", "logits", "-m", LLAMA, "--tokens", "1,,2").fails(2, "--tokens")
    t("eval", "logits", "-m", LLAMA, "--tokens", "4096").fails(2, "4096")


@case
def eval_ref_decides_the_exit_code(t):
    """On quantised weights the logits differ from the reference's f16, so a reference made of the file itself is used."""
    ref = json.loads(gzip.open(FIXTURES / "llama.ref.json.gz").read())
    prompt = next(p for p in ref["prompts"] if p["name"] == "short_raw")
    for run in ("first", "second"):
        ids = prompt[run]["ids"]
        got = t("eval", "logits", "-m", LLAMA, "--kv", "f32", "--json", "--positions", "all", "--tokens",
                ",".join(map(str, ids))).json()["positions"]
        prompt[run]["last_logits"] = got[-1]["logits"]
        prompt[run]["argmax"] = [max(range(4096), key=lambda i: (p["logits"][i], -i)) for p in got]
        prompt[run]["top20"] = []
        greedy = t("run", "-m", LLAMA, "--raw", "--kv", "f32", "--temp", "0", "--ignore-eos", "--json", "-n",
                   len(prompt[run]["greedy"]), "-f", "-",
                   stdin=t("detokenize", "-m", LLAMA, "--json", "--special", *ids).json()["text"]).lines()[-1]
        need(greedy["prompt_tokens"] == len(ids), "the text gives other ids")
        prompt[run]["greedy"] = greedy["ids"]
        prompt[run]["greedy_gap"] = [1.0] * len(greedy["ids"])
    ref["prompts"] = [prompt]
    def write(name):
        path = t.tmp / name
        with gzip.open(path, "wb") as f:
            f.write(json.dumps(ref).encode())
        return path
    d = t("eval", "ref", "-m", LLAMA, "--ref", write("own.ref.json.gz"), "--json").json()
    need(d["ok"] is True and {p["run"] for p in d["prompts"]} == {"first", "second"}, f"{d}")
    for key in ("name", "run", "max_logit_diff", "median_logit_diff", "argmax_agreement", "argmax_misses",
                "first_divergence", "gap_at_divergence", "draft_agreement"):
        need(key in d["prompts"][0], f"no {key}")
    need(d["prompts"][0]["first_divergence"] is None and d["prompts"][0]["max_logit_diff"] < 1e-3, f"{d['prompts'][0]}")
    need("ok" in t("eval", "ref", "-m", LLAMA, "--ref", t.tmp / "own.ref.json.gz").ok().out, "as text")
    prompt["first"]["greedy"][3] = (prompt["first"]["greedy"][3] + 1) % 4096
    r = t("eval", "ref", "-m", LLAMA, "--ref", write("wrong.ref.json.gz"), "--json")
    need(r.rc == 1 and json.loads(r.out)["ok"] is False, f"exit {r.rc}: {r.err[-200:]}")
    t("eval", "ref", "-m", LLAMA).fails(2, "--ref")
    t("eval", "ref", "-m", LLAMA, "--ref", t.tmp / "none").fails(3, "none")


@case
def eval_tasks_counts(t):
    tasks = json.loads(gzip.open(FIXTURES / "tasks.json.gz").read())[:12]
    path = t.tmp / "tasks.json.gz"
    with gzip.open(path, "wb") as f:
        f.write(json.dumps(tasks).encode())
    d = t("eval", "tasks", "-m", LLAMA, "--tasks", path, "--json", timeout=120).json()
    need(d["total"] == 12 and 10 <= d["right"] <= 12 and set(d["by_task"]) == {x["task"] for x in tasks}, f"{d}")
    need("12" in t("eval", "tasks", "-m", LLAMA, "--tasks", path).ok().out, "as text")
    t("eval", "tasks", "-m", LLAMA).fails(2, "--tasks")


@case
def eval_ppl_and_kld(t):
    text = t.file("prose.txt", "The capital of Cyprus is Nicosia. " * 40)
    d = t("eval", "ppl", "-m", LLAMA, "-f", text, "-c", "256", "--json").json()
    need(set(d) >= {"tokens", "nll", "ppl"} and d["tokens"] > 100 and d["ppl"] > 1, f"{d}")
    need(d["ppl"] != t("eval", "ppl", "-m", LLAMA, "-f", text, "-c", "128", "--json").json()["ppl"], "-c")
    need("ppl" in t("eval", "ppl", "-m", LLAMA, "-f", text, "-c", "256").ok().out, "as text")
    same = t("eval", "kld", "-m", LLAMA, "--base", LLAMA, "-f", text, "-c", "256", "--json").json()
    other = t("eval", "kld", "-m", LLAMA, "--base", QWEN3, "-f", text, "-c", "256", "--json").json()
    need(same["kld"] == 0 and other["kld"] > 0.001, f"{same} {other}")
    t("eval", "ppl", "-m", LLAMA).fails(2, "-f")
    t("eval", "kld", "-m", LLAMA, "-f", text).fails(2, "--base")
    t("eval", "ppl", "-m", LLAMA, "-f", t.tmp / "none.txt").fails(3, "none.txt")


@case
def bench_tables(t):
    base = ["bench", "-m", LLAMA, "-p", "8,16", "-n", "4", "-d", "0,32", "-r", "2"]
    rows = t(*base, "-o", "json").json()
    names = [r["test"] for r in rows]
    need(sorted(names) == sorted(["pp8", "pp16", "tg4", "pp8@d32", "pp16@d32", "tg4@d32"]), f"{names}")
    for r in rows:
        need(len(r["runs"]) == 2 and r["tps"]["min"] <= r["tps"]["median"] <= r["tps"]["max"], f"{r}")
        need({"depth", "bytes_per_token", "gbps", "bound_gbps", "share"} <= set(r), f"{sorted(r)}")
    csv = t(*base, "-o", "csv").ok().out.splitlines()
    need(len(csv) == 7 and csv[0].startswith("test,depth,"), f"{csv}")
    md = t("bench", "-m", LLAMA, "-p", "8", "-n", "0", "-r", "1").ok().out.splitlines()
    need(len(md) == 3 and md[2].startswith("| pp8 |"), f"{md}")
    need([r["test"] for r in t("bench", "-m", LLAMA, "-p", "0", "-n", "2", "-r", "1", "-o", "json").json()] == ["tg2"],
         "-p 0")
    t("bench", "-m", LLAMA, "-p", "0", "-n", "0").fails(2, "-p", "-n")
    t("bench", "-m", LLAMA, "-o", "xml").fails(2, "md|csv|json")


@case
def synth_writes_models(t):
    presets = t("synth", "--presets").ok().out.split("\n")
    need(len(presets) > 3, f"{presets}")
    name = presets[0].split()[0]
    dry = t("synth", "--preset", name, "--quant", "q4_k_m", "--dry-run", "--json").json()
    need({"parameters", "bytes", "bytes_per_token"} <= set(dry), f"{dry}")
    fewer = t("synth", "--preset", name, "--quant", "q4_k_m", "--layers", "4", "--dry-run", "--json").json()
    need(fewer["parameters"] < dry["parameters"], "--layers")
    other = t("synth", "--preset", name, "--quant", "q8_0", "--layers", "4", "--dry-run", "--json").json()
    need(other["bytes"] > fewer["bytes"], "--quant")
    t("synth", "--quant", "q8_0", "-o", "x").fails(2, "--preset")
    t("synth", "--preset", name).fails(2, "-o")
    t("synth", "--preset", "nothing", "--dry-run").fails(2, "nothing")
    t("synth", "--preset", name, "--quant", "q9", "--dry-run").fails(2, "q9")


@case
def cache_is_empty_at_first(t):
    need(t("list", "--json").json() == [], "not empty")
    r = t("list").ok()
    need(r.out == "" and "mica pull" in r.err, f"{r.out!r} {r.err!r}")
    t("rm", "nothing").fails(3, "nothing")
    t("pull", "not a name").fails(2, "not a name")
    t("pull").fails(2, "usage")
    t("run", "-m", "smollm2-135m", "-p", "x").fails(3, "smollm2-135m")
    t.run("-hf", "a/b", "-p", "x").fails(2, "-hf", "-m")


# ---- The conversation ----

class Terminal:
    """The program on a pseudo-terminal, as a person sees it."""

    def __init__(self, t, *argv, model=LLAMA, env=None):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(t.mica, [t.mica, "run", "-m", str(model), *map(str, argv)], {**t.env, **(env or {})})
        self.seen = ""

    def read(self, seconds):
        ready, _, _ = select.select([self.fd], [], [], seconds)
        if not ready:
            return False
        try:
            data = os.read(self.fd, 65536)
        except OSError:
            return False
        self.seen += data.decode("utf-8", "replace")
        return bool(data)

    def expect(self, text, seconds=20):
        """Waits until the text was seen; what came up to its end is taken."""
        end = time.time() + seconds
        while text not in self.seen and time.time() < end:
            self.read(0.1)
        need(text in self.seen, f"waited for {text!r}, saw {self.seen[-300:]!r}")
        before, _, self.seen = self.seen.partition(text)
        return before + text

    def send(self, text):
        os.write(self.fd, text.encode())

    def prompt(self):
        return self.expect("> ")

    def ask(self, text):
        self.send(text + "\r")
        return self.expect("t/s)") + self.prompt()

    def end(self, seconds=10):
        """The exit code, after everything was read."""
        end = time.time() + seconds
        while time.time() < end:
            self.read(0.05)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                os.close(self.fd)
                return os.waitstatus_to_exitcode(status)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.fd)
        raise Failed(f"still running: {self.seen[-200:]!r}")


@case
def talk_answers_and_remembers(t):
    x = Terminal(t, "--temp", "0", "--think", "off")
    x.expect("/help lists the commands")
    x.prompt()
    need("Nicosia" in x.ask("Capital of Cyprus?"), "the first answer")
    again = x.ask("Capital of Iceland?")
    need("Reykjavik" in again, f"{again!r}")
    cached = re.search(r"prompt (\d+) tokens \((\d+) cached\)", again)
    need(cached and int(cached.group(2)) >= 10, f"the second turn read everything again: {again!r}")
    x.send("/exit\r")
    need(x.end() == 0, "exit code of /exit")


@case
def talk_commands(t):
    x = Terminal(t, "--temp", "2", "--seed", "5")
    x.prompt()
    x.send("/help\r")
    page = x.prompt()
    for word in ("/clear", "/regen", "/system", "/exit"):
        need(word in page, f"/help has no {word}")
    x.send("/rgen\r")
    need("did you mean /regen?" in x.prompt(), "no suggestion")
    x.send("/regen\r")
    need("no answer yet" in x.prompt(), "/regen without an answer")
    first = x.ask("Tell me a story.")
    second = x.ask("/regen")
    strip = lambda s: re.sub(r"\d", "", s.split("story.")[-1].replace("/regen", ""))
    need(strip(first) != strip(second), "/regen says the same again")
    before = int(re.search(r"prompt (\d+) tokens", second).group(1))
    x.send("/clear\r")
    x.expect("(forgotten)")
    x.prompt()
    after = int(re.search(r"prompt (\d+) tokens", x.ask("Tell me a story.")).group(1))
    need(after == before, f"/clear forgets not all: {before} {after}")
    x.send("/system Be brief and kind.\r")
    x.expect("(system message set)")
    x.prompt()
    x.send("/clear\r")
    x.prompt()
    need(int(re.search(r"prompt (\d+) tokens", x.ask("Tell me a story.")).group(1)) > after, "/system")
    x.send("/think\r")
    need("on, off" in x.prompt(), "/think")
    f = t.file("question.txt", "Capital of Cyprus?")
    need("prompt" in x.ask(f"/read {f}"), "/read")
    x.send("/read /nonexistent\r")
    need("No such file" in x.prompt(), "/read of nothing")
    x.send("\x04")
    need(x.end() == 0, "exit code of Ctrl-D")


@case
def talk_ctrl_c_stops_the_answer_only(t):
    x = Terminal(t, "--raw", "--ignore-eos", "--device", "ref", "-n", "-1", "--temp", "1")
    x.prompt()
    x.send("Tell me everything.\r")
    x.expect("everything.")
    x.read(1)
    x.send("\x03")
    x.expect("(stopped)", 5)
    x.prompt()
    x.send("some words")
    x.expect("some words")
    x.send("\x03")
    x.prompt()
    x.send("\x03")
    x.expect("(Ctrl-C again leaves)")
    x.prompt()
    x.send("\x03")
    need(x.end() == 130, "exit code of the second Ctrl-C")


@case
def talk_sigterm_at_the_prompt(t):
    x = Terminal(t)
    x.prompt()
    start = time.time()
    os.kill(x.pid, signal.SIGTERM)
    need(x.end() == 143 and time.time() - start < 2, "exit code of SIGTERM")


@case
def talk_lines_of_many_lines(t):
    x = Terminal(t, "-n", "1", "--temp", "0")
    x.prompt()
    one = int(re.search(r"prompt (\d+) tokens", x.ask("one two")).group(1))
    x.send("/clear\r")
    x.prompt()
    x.send("one\\\r")
    x.expect(". ")
    joined = int(re.search(r"prompt (\d+) tokens", x.ask("two")).group(1))
    need(joined != one, "a backslash does not join lines")
    x.send("/clear\r")
    x.prompt()
    x.send("\033[200~one\rtwo\r\033[201~")
    pasted = int(re.search(r"prompt (\d+) tokens", x.ask("")).group(1))
    need(pasted == joined, f"a paste of two lines is another message: {pasted} and {joined}")
    x.send("\x04")
    need(x.end() == 0, "exit code")


@case
def talk_history_is_kept(t):
    home = t.tmp / "history home"
    env = {"MICA_HOME": str(home)}
    x = Terminal(t, "-n", "1", env=env)
    x.prompt()
    x.ask("a line to find again é")
    x.send("/exit\r")
    need(x.end() == 0, "first run")
    need((home / "history").stat().st_mode & 0o777 == 0o600, "others may read the history")
    x = Terminal(t, "-n", "1", env=env)
    x.prompt()
    x.send("\033[A\033[A")
    x.expect("a line to find again é")
    x.send("\r")
    x.prompt()
    x.send("\x04")
    need(x.end() == 0, "second run")


@case
def talk_without_a_place_for_history(t):
    x = Terminal(t, "-n", "1", env={"MICA_HOME": "/proc/nowhere"})
    x.prompt()
    x.ask("hello")
    x.send("\x04")
    need(x.end() == 0, "exit code")


@case
def talk_colours_only_where_wanted(t):
    for env, colour in (({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)):
        x = Terminal(t, "--think", "on", "--temp", "0", env=env)
        text = x.expect("/help lists the commands")
        text += x.prompt()
        text += x.ask("Capital of Cyprus?")
        x.send("\x04")
        need(x.end() == 0, "exit code")
        need(("\033[2m" in text) == colour, f"{env}: {text!r}")


@case
def talk_error_goes_on(t):
    x = Terminal(t, "-c", "256", "-n", "4", "--temp", "0")
    x.prompt()
    x.send("word " * 300 + "\r")
    x.expect("256")
    x.expect("/clear")
    x.prompt()
    x.ask("Capital of Cyprus?")
    x.send("\x04")
    need(x.end() == 0, "exit code")


# ---- The example ----

@case
def example_chats(t):
    folder = pathlib.Path(t.mica).resolve().parent
    chat = folder / "examples" / "chat"
    if not chat.exists():
        raise Skip("examples/chat is not built: make examples")
    lines = (ROOT / "examples" / "chat.c").read_text().splitlines()
    need(len(lines) < 80, f"{len(lines)} lines")
    p = subprocess.run([chat, LLAMA], input=b'Capital of "Cyprus"?\nCapital of Iceland?\n', capture_output=True,
                       timeout=60, env=t.env)
    need(p.returncode == 0 and p.stdout.count(b"> ") == 3, f"{p.returncode} {p.stdout!r} {p.stderr!r}")
    p = subprocess.run([chat, "/nonexistent"], capture_output=True, timeout=60, env=t.env)
    need(p.returncode == 1 and b"nonexistent" in p.stderr, f"{p.stderr!r}")


@case
def example_is_cplusplus_too(t):
    if not shutil.which("g++"):
        raise Skip("no g++")
    out = t.tmp / "chat++"
    folder = pathlib.Path(t.mica).resolve().parent
    p = subprocess.run(["g++", "-std=c++17", "-Wall", "-Wextra", "-Wno-missing-field-initializers", "-Werror", "-x",
                        "c++", ROOT / "examples" / "chat.c", f"-I{ROOT}/include", f"-L{folder}", "-lmica",
                        f"-Wl,-rpath,{folder}", "-o", out], capture_output=True, text=True)
    need(p.returncode == 0, p.stderr[:300])
    p = subprocess.run([out, LLAMA], input=b"Capital of Cyprus?\n", capture_output=True, timeout=60, env=t.env)
    need(p.returncode == 0, f"{p.stderr!r}")


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--mica", default=str(ROOT / "build" / "mica"))
    args.add_argument("--only", default="")
    a = args.parse_args()
    passed = failed = skipped = 0
    with tempfile.TemporaryDirectory(prefix="mica cli ") as tmp:
        t = Bench(str(pathlib.Path(a.mica).resolve()), pathlib.Path(tmp))
        for fn in CASES:
            if a.only not in fn.__name__:
                continue
            start = time.time()
            try:
                fn(t)
                print(f"ok {fn.__name__} ({time.time() - start:.1f} s)")
                passed += 1
            except Skip as why:
                print(f"skip: {fn.__name__}: {why}")
                skipped += 1
            except (Failed, subprocess.TimeoutExpired, KeyError, ValueError, AttributeError, StopIteration, OSError) as why:
                print(f"FAILED {fn.__name__}: {type(why).__name__ if not isinstance(why, Failed) else ''} {why}")
                failed += 1
            sys.stdout.flush()
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
