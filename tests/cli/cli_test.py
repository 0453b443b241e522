#!/usr/bin/env python3
"""`mica run` and the command line from outside: every flag with two values and the difference it makes,
messages, exit codes, bad files, streams and signals.

    tests/cli/cli_test.py [BUILD] [WORD]    BUILD: folder with the program; WORD: only cases that hold it
Prints ok, FAILED or skip for each case; last line: N passed, N failed, N skipped."""

import json
import math
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import sys
import time

from harness import FIXTURES, LLAMA, MOE, QWEN3, ROOT, case, main, need

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
    t.run("-f", t.tmp / "nothing.txt").fails(3, "nothing.txt", "No such file")
    t.run("-f", t.tmp).fails(3, str(t.tmp), "directory")
    t.run(stdin="").fails(2, "standard input", "empty")


@case
def run_a_prompt_and_data(t):
    """The prompt, an empty line, what a pipe or a file brings; /dev/null and an empty pipe bring nothing."""
    args = ["--temp", "0", "--json"]
    want = t.run("-p", "Capital of:\n\nCyprus\nand", *args).lines()[-1]
    data = t.file("data.txt", "Cyprus\nand\n")
    for same in (
        t.run("-p", "Capital of:", *args, stdin="Cyprus\nand\n"),
        t.run("-p", "Capital of:", "-f", data, *args, stdin="not read"),
        t.run("-p", "Capital of:", "-f", "-", *args, stdin="Cyprus\nand\n"),
        t.run("Capital of:", *args, stdin="Cyprus\nand\n"),
    ):
        d = same.lines()[-1]
        need((d["ids"], d["prompt_tokens"]) == (want["ids"], want["prompt_tokens"]), f"{same.argv}: {d}")
    r = t.run("-p", "Capital of:", "-n", "1", stdin="Cyprus")
    need("standard input: 6 bytes go below the prompt" in r.ok().err, r.err)
    alone = t.run("-p", "Capital of:", *args).lines()[-1]["prompt_tokens"]
    need(t.run("-p", "Capital of:", *args, stdin="").lines()[-1]["prompt_tokens"] == alone, "an empty pipe")
    raw = t.run("--raw", "-p", "one two ", *args, "-n", "0", stdin="three\n").lines()[-1]["prompt_tokens"]
    need(raw == t.run("--raw", "-p", "one two three\n", *args, "-n", "0").lines()[-1]["prompt_tokens"], "raw")
    silent = popen(t, "run", "-m", LLAMA, "-p", "x", "-n", "1", stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    need(b"waiting for what goes below" in silent.stderr.readline(), "who waits is not told")
    silent.communicate(timeout=60)
    need(silent.returncode == 0, f"exit {silent.returncode}")


@case
def model_as_a_plain_word(t):
    """For every command that takes -m; a file that is missing shows that the word was taken for the model."""
    names = re.findall(r"^  ([a-z]+(?: [a-z]+)?)  +\S", t("help").ok().out.split("Often used")[0], re.M)
    some = t.file("some.txt", '[{"role":"user","content":"hi"}]')
    more = {
        "run": ["-p", "x"],
        "eval logits": ["--tokens", "1"],
        "eval ref": ["--ref", some],
        "eval tasks": ["--tasks", some],
        "eval ppl": ["-f", some],
        "eval kld": ["-f", some, "--base", LLAMA],
        "tokenize": ["hello"],
        "detokenize": ["100"],
        "template": ["--messages", some],
    }
    seen = 0
    for c in names:
        if "--model" in t("help", *c.split()).ok().out:
            seen += 1
            t(*c.split(), t.tmp / "none.gguf", *more.get(c, [])).fails(3, "none.gguf")
    need(seen >= 12, f"{seen} commands")
    need(t("tokenize", LLAMA, "a b").ok().out == t("tokenize", "-m", LLAMA, "a b").ok().out, "tokenize")
    need(t("inspect", LLAMA).ok().out == t("inspect", "-m", LLAMA).ok().out, "inspect")
    want = t.answer()["ids"]
    for words in ([LLAMA, "Capital of Cyprus?"], ["Capital of Cyprus?", "-m", LLAMA]):
        got = t("run", *words, "--temp", "0", "--json").lines()[-1]["ids"]
        need(got == want, f"{words}: another answer")
    t("run", LLAMA, "Capital", "of").fails(2, "of", "quotes")
    t("run", LLAMA, "Capital", "-p", "x").fails(2, "Capital", "-p")
    t("bench", LLAMA, QWEN3).fails(2, QWEN3.name, "usage")
    t("inspect", "-m", LLAMA, QWEN3).fails(2, QWEN3.name, "usage")


@case
def first_steps(t):
    r = t().fails(2, "mica help")
    need("mica pull smollm2-135m" in r.err and "mica run smollm2-135m" in r.err and not r.out, r.err)
    folder = t.pulled("here")
    r = t().fails(2, "mica help")
    need("mica run here" in r.err and "pull" not in r.err, r.err)
    shutil.rmtree(folder)


@case
def errors_are_json_too(t):
    """One value on standard output, the line on standard error, the exit code in both."""
    for argv in (
        ["run", "-m", t.tmp / "none.gguf", "-p", "x"],
        ["run", "-m", LLAMA, "-p", "word " * 300, "-c", "256"],
        ["plan", "-m", t.tmp / "none.gguf"],
        ["inspect", t.file("not.gguf", b"GGUF" + bytes(8))],
        ["devices", "--nope"],
        ["eval", "ppl", "-m", LLAMA],
        ["tokenize", "-m", LLAMA, "-f", t.tmp / "none.txt"],
        ["bench", "-m", LLAMA, "-p", "0", "-n", "0"],
        ["synth", "--preset", "no such"],
        ["pull", "no such"],
        ["run", "-m", b"\xff.gguf", "-p", "x"],
        ["nonsense"],
    ):
        r = t(*argv, "--json")
        lines = r.out.splitlines()
        need(r.rc > 1 and len(lines) == 1, f"{argv}: exit {r.rc}: {r.out!r}")
        v = json.loads(lines[0])
        need(set(v) == {"type", "exit_code", "message"} and v["type"] == "error", f"{v}")
        need(v["exit_code"] == r.rc, f"{argv}: exit {r.rc}, {v}")
        need(r.err.splitlines()[-1] == f"mica: {v['message']}", f"{argv}: {v} {r.err}")
    need(t("bench", "-m", t.tmp / "none", "-o", "json").out.startswith('{"type":"error"'), "-o json")
    need(t("plan", "-m", t.tmp / "none").out == "", "JSON that nobody asked for")
    small = t("plan", "-m", LLAMA, "--ram", "1M", "--json")
    need(small.rc == 6 and json.loads(small.out)["fits"] is False, "a plan that does not fit is one value")


@case
def spellings_of_llama_cpp(t):
    def kv_bytes(*argv):
        tiers = t("plan", "-m", LLAMA, "--json", *argv).json()["tiers"]
        return sum(i["bytes"] for tier in tiers for i in tier["items"] if i["what"] == "kv")

    for there, here in (("q8_0", "int8"), ("f32", "f32"), ("f16", "f16")):
        need(kv_bytes("-ctk", there, "-ctv", there) == kv_bytes("--kv", here), f"-ctk {there}")
    need(kv_bytes("--cache-type-k", "f16") == kv_bytes(), "f16 is what the other one is")
    t("plan", "-m", LLAMA, "-ctk", "q8_0").fails(2, "-ctv", "one")
    t("plan", "-m", LLAMA, "-ctk", "f16", "-ctv", "f32").fails(2, "-ctv")
    t("plan", "-m", LLAMA, "-ctk", "f16", "--kv", "f16").fails(2, "--kv")
    t("plan", "-m", LLAMA, "-ctv", "q4_0").fails(2, "q4_0", "f16|f32|int8")
    sim = {**t.env, "MICA_SIM": "vram=1G"}
    on_card = t("plan", "-m", LLAMA, "--device", "sim:0", "--json", env=sim).json()
    for n in ("99", "all", str(len(layers(t)))):
        d = t("plan", "-m", LLAMA, "--device", "sim:0", "-ngl", n, "--json", env=sim).json()
        need([x["device"] for x in d["tiers"]] == [x["device"] for x in on_card["tiers"]], f"-ngl {n}: {d}")
    t("plan", "-m", LLAMA, "--device", "sim:0", "-ngl", "1", env=sim).fails(2, "-ngl", "layers")
    t("plan", "-m", LLAMA, "--device", "sim:0", "-ngl", "0", env=sim).fails(2, "-ngl", "--device")
    t("plan", "-m", LLAMA, "--device", "cpu", "-ngl", "9").fails(2, "-ngl", "--device")


def layers(t):
    names = [x["name"] for x in t("inspect", LLAMA, "--json").json()["tensors"]]
    return {n.split(".")[1] for n in names if n.startswith("blk.")}


@case
def run_times_stand_on_a_line_of_their_own(t):
    path = t.tmp / "both.txt"
    with open(path, "wb") as f:
        argv = [t.mica, "run", "-m", LLAMA, "-p", "Capital of Cyprus?", "--temp", "0", "--think", "off"]
        subprocess.run(argv, stdout=f, stderr=f, stdin=subprocess.DEVNULL, env=t.env, check=True, timeout=60)
    lines = path.read_text().splitlines()
    need(any(l.startswith("mica: prompt ") for l in lines), f"{lines}")


@case
def run_json_shape(t):
    d = t.answer("--think", "off")
    need(
        set(d)
        == {
            "type",
            "prompt_tokens",
            "cached_tokens",
            "ids",
            "text",
            "finish_reason",
            "timings",
            "draft",
            "experts",
        },
        f"members: {sorted(d)}",
    )
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
    (
        "--system",
        ["--system", "Be brief."],
        ["--system", "You are a helpful assistant."],
        "prompt_tokens",
        {},
    ),
    ("--raw", ["--raw", "-n", "1"], ["-n", "1"], "prompt_tokens", {}),
    ("--think", ["--think", "on"], ["--think", "off"], "text", {}),
    (
        "--chat-template-kwargs",
        ["--chat-template-kwargs", '{"enable_thinking":true}'],
        ["--chat-template-kwargs", '{"enable_thinking":false}'],
        "prompt_tokens",
        {},
    ),
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
    (
        "--repeat-last-n",
        ["--repeat-last-n", "1", "--presence-penalty", "50"],
        ["--repeat-last-n", "-1", "--presence-penalty", "50"],
        "ids",
        {"raw": 1},
    ),
    ("--seed", ["--seed", "1"], ["--seed", "2"], "ids", {"temp": "3", "raw": 1}),
]


@case
def run_each_flag_makes_a_difference(t):
    for name, first, second, what, how in FLAGS:
        base = ["--top-k", "0", "--top-p", "1", "--min-p", "0"] if how.get("temp") == "3" else []
        if "seed" in how:
            base += ["--seed", how["seed"]]
        if "raw" in how:
            base += ["--raw", "--ignore-eos", "-n", "12"]
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
    need(t.answer("-n", "-1")["ids"] == t.answer()["ids"], "-1 is not the default")
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
def run_drafts(t):
    """Drafting may never change the tokens; without a block of its own a model drafts by looking back."""
    args = ["--raw", "--ignore-eos", "-n", "24"]
    off = t.answer(*args, "-n", "60", "--draft", "off", prompt="one two one two one two")
    on = t.answer(*args, "-n", "60", "--draft", "7", prompt="one two one two one two")
    need(on["ids"] == off["ids"], "drafting changes the tokens")
    need(off["draft"]["drafted"] == 0 < on["draft"]["drafted"], f"{on['draft']} {off['draft']}")
    mtp = FIXTURES / "qwen3_5.q4_k_m.gguf"
    one, two, low = (
        t.answer("--draft", n, *args, *p, model=mtp)
        for n, p in (("1", []), ("3", []), ("3", ["--draft-min-p", "1"]))
    )
    need(one["ids"] == two["ids"] == low["ids"], "drafting changes the tokens of a model with a block")
    need(one["draft"] != two["draft"] != low["draft"], f"{one['draft']} {two['draft']} {low['draft']}")
    t.run("-p", "x", "--draft-min-p", "0.5").fails(2, "--draft-min-p", "no draft block")
    t.run("-p", "x", "--draft-min-p", "0.5", "--draft", "off", model=mtp).fails(2, "--draft-min-p")
    t.run("-p", "x", "--draft", "some").fails(2, "--draft", "not a whole number")
    t.run("-p", "x", "--draft", "8").fails(2, "--draft", "the most is 7")


@case
def run_context(t):
    long = "word " * 300
    error = t.run("-p", long, "-c", "256").fails(2, "256", "would hold it").err
    t.run("-p", long, "-c", re.search(r"-c (\d+) would", error).group(1), "-n", "1").ok()
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


@case
def device_flags_refuse(t):
    for flag, value in (
        ("--kv-resident", "1"),
        ("--n-cpu-moe", "4"),
    ):
        t.run("-p", "x", flag, value).fails(7, flag, "not in this version")
    if not any(d["usable"] and ":" in d["id"] for d in t("devices", "--json").json()):
        t.run("-p", "x", "-ngl", "99").fails(7, "-ngl", "99", "mica devices")
        t.run("-p", "x", "-ngl", "all").fails(7, "-ngl")
    t.run("-p", "x", "--device", "warp:0").fails(7, "warp:0")
    t.run("-p", "x", "--isa", "mmx").fails(2, "mmx")
    r = t.run("-p", "x", "--device", "cuda:0")
    need(r.rc in (5, 7), f"--device cuda:0: exit {r.rc}: {r.err}")


@case
def bits_do_not_depend_on_flags(t):
    def logits(*argv):
        return (
            t(
                "eval",
                "logits",
                "-m",
                LLAMA,
                "--tokens",
                "1,2,3,4,5,6,7,8,9",
                "--positions",
                "all",
                "--json",
                *argv,
            )
            .ok()
            .out
        )

    base = logits()
    for flags in (
        ["-t", "1"],
        ["-t", "3"],
        ["--device", "ref"],
        ["--isa", "scalar"],
        ["--ubatch", "1"],
        ["--ubatch", "4"],
        ["--split-at", "4"],
        ["--exact"],
        ["-c", "512"],
    ):
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
    t("run").fails(2, "-m", "missing")
    t("plan", "-m", LLAMA, "extra").fails(2, "extra", "usage")
    t("inspect").fails(2, "-m")
    t("rm").fails(2, "usage")
    t("completion", "tcsh").fails(2, "tcsh", "fish")
    t("help", "nothing").fails(2, "nothing")


@case
def bench_forms(t):
    argv = ["bench", "-m", LLAMA, "-p", "8", "-n", "4", "-r", "1"]
    rows = t(*argv, "--json").json()
    need([r["test"] for r in rows] == ["pp8", "tg4"], f"{rows}")
    csv = t(*argv, "-o", "csv").ok().out.splitlines()
    need(csv[1].startswith("pp8,") and csv[1].endswith(",,,"), f"{csv}")
    need(not csv[2].endswith(",,,"), f"{csv}")


@case
def words_of_other_programs(t):
    for flag, word in (("-fa", "attention"), ("-cnv", "-p"), ("--jinja", "template"), ("--mmap", "mapped")):
        t.run(flag).fails(2, flag, word)
    for flag in ("-b", "--mlock", "--no-mmap", "-no-cnv", "--color", "-i", "-e", "-v", "-ot", "--lora", "-r"):
        need("did you mean" not in t.run(flag, "1").fails(2, flag).err, f"{flag}: a wrong guess")
    t("ls").fails(2, "`mica list`")
    t("chat").fails(2, "`mica run`")


@case
def think_is_checked_before_loading(t):
    t("run", "-m", t.tmp / "nothing.gguf", "-p", "x", "--think", "maybe").fails(2, "--think", "maybe")
    for word in ("on", "off", "none", "minimal", "low", "medium", "high", "xhigh", "max"):
        t.run("-p", "x", "-n", "0", "--think", word).ok()


@case
def values_are_checked(t):
    for flag, bad, why in (
        ("-n", "x", "whole number"),
        ("-n", "-2", "least"),
        ("-n", "99999999999", "most"),
        ("-n", "99999999999999999999", "large"),
        ("-n", "", "whole number"),
        ("-n", "3.5", "whole"),
        ("-c", "-1", "least"),
        ("-t", "2000", "most"),
        ("--temp", "-1", "least"),
        ("--temp", "nan", "most"),
        ("--temp", "warm", "number"),
        ("--top-p", "1.5", "most"),
        ("--min-p", "-0.1", "least"),
        ("--kv", "f64", "f16|f32|int8"),
        ("--ram", "much", "size"),
        ("--repeat-penalty", "0", "least"),
        ("--seed", "-2", "least"),
    ):
        t.run("-p", "x", flag, bad).fails(2, flag, f'"{bad}"', why)
        t.run(
            "-p",
            "x",
            f"{flag}={bad}" if flag.startswith("--") else flag,
            *([] if flag.startswith("--") else [bad]),
        ).fails(2, flag)
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
        need(max(len(l) for l in page.splitlines()) <= 80, f"{c}: a line too long")
    need(t("--help").ok().out == names == t("-h").ok().out, "--help differs from help")
    need(max(len(l) for l in names.splitlines()) <= 80, "the overview has a line too long")
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
    text = t("env").ok().out
    need(f"MICA_HOME={t.env['MICA_HOME']}\n" in text and "NO_COLOR is not set: " in text, text)
    need(all(len(l) <= 80 for l in text.splitlines() if "=" not in l.split()[0]), "a line too long")


def complete(t, words, shell="bash"):
    """What bash offers after these words."""
    script = t("completion", "bash").ok().out
    script += (
        f"\nmica() {{ '{t.mica}' \"$@\"; }}\nCOMP_WORDS=({' '.join(repr(w) for w in words)})\n"
        f"COMP_CWORD={len(words) - 1}\ncompopt() {{ :; }}\n_mica\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"\n"
    )
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
    ids = [d["id"] for d in t("devices", "--json").json()]
    need(set(complete(t, ["mica", "run", "--device", ""])) == {"auto", "ref", *ids}, "--device")
    need(complete(t, ["mica", "serve", "--think", "x"]) == ["xhigh"], "--think")
    need(complete(t, ["mica", "bench", "--isa", "avx"]) == ["avx2", "avx512"], "--isa")
    names = re.search(r"one of: (.*)", t("pull", "nothing").err).group(1).split(", ")
    need(set(complete(t, ["mica", "pull", ""])) == {*names, "hf:"}, f"pull: {names}")
    folder = t.pulled("here")
    for words in (["run"], ["run", "-m"], ["plan", "-c", "512", "--model"], ["eval", "ppl"], ["rm"]):
        need(complete(t, ["mica", *words, "he"]) == ["here"], f"models after {words}")
    shutil.rmtree(folder)
    need("--kv-resident" not in complete(t, ["mica", "run", "--"]), "refused flags are offered")


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
    need(whole[at : at + 5] == b"llama", "the fixture has another layout")
    t("run", "-m", t.file("arch.gguf", whole[:at] + b"lxxma" + whole[at + 5 :]), "-p", "x").fails(
        5, "lxxma"
    )
    t("inspect", t.tmp / "nothing.gguf").fails(3, "nothing.gguf")
    t("plan", "-m", t.tmp / "cut.gguf").fails(4, "cut.gguf")
    t("tokenize", "-m", t.tmp / "cut.gguf", "x").fails(4, "cut.gguf")


def values_of(whole):
    """Where the numbers of a GGUF's metadata stand: {key: (kind, offset of the value)}."""
    sizes = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
    n_kv, at, found = struct.unpack_from("<Q", whole, 16)[0], 24, {}

    def text(at):
        n = struct.unpack_from("<Q", whole, at)[0]
        return whole[at + 8 : at + 8 + n], at + 8 + n

    for _ in range(n_kv):
        key, at = text(at)
        kind, at = struct.unpack_from("<I", whole, at)[0], at + 4
        found[key.decode()] = (kind, at)
        if kind == 8:
            at = text(at)[1]
        elif kind == 9:
            of, n = struct.unpack_from("<IQ", whole, at)
            at += 12
            for _ in range(n if of == 8 else 0):
                at = text(at)[1]
            at += 0 if of == 8 else n * sizes[of]
        else:
            at += sizes[kind]
    return found


@case
def metadata_that_is_wrong(t):
    """One number of a real file patched: the key or what does not fit is named, before anything is taken."""
    whole = MOE.read_bytes()
    at = values_of(whole)
    wrong = {
        "qwen3moe.block_count": (0, 513, 2**31),
        "qwen3moe.context_length": (0, 2**31),
        "qwen3moe.embedding_length": (0, 255, 2**31),
        "qwen3moe.attention.head_count": (0, 3, 2**32 - 1),
        "qwen3moe.attention.head_count_kv": (0, 3, 513),
        "qwen3moe.attention.key_length": (0, 63, 2**31),
        "qwen3moe.expert_count": (0, 1, 9),
        "qwen3moe.expert_used_count": (0, 9, 2**32 - 1),
        "qwen3moe.expert_feed_forward_length": (0, 3),
        "qwen3moe.rope.freq_base": (0.0, -1.0, math.nan, math.inf),
        "qwen3moe.attention.layer_norm_rms_epsilon": (-1.0, math.nan),
        "tokenizer.ggml.eos_token_id": (4096, 2**31),
    }
    for key, values in wrong.items():
        kind, place = at[key]
        for v in values:
            patch = struct.pack("<f" if kind == 6 else "<I", v)
            path = t.file("patched.gguf", whole[:place] + patch + whole[place + 4 :])
            t("run", path, "-p", "x", "-n", "1", "-c", "256").fails(4, "patched.gguf")
    gemma = (FIXTURES / "gemma4.q4_k_m.gguf").read_bytes()
    place = values_of(gemma)["gemma4.rope.freq_base_swa"][1]
    path = t.file("patched.gguf", gemma[:place] + struct.pack("<f", 0.0) + gemma[place + 4 :])
    t("run", path, "-p", "x", "-n", "1", "-c", "256").fails(4, "freq_base_swa")
    for key in ("tokenizer.ggml.tokens", "tokenizer.ggml.token_type"):  # arrays of another length
        place = at[key][1] + 4
        path = t.file("patched.gguf", whole[:place] + struct.pack("<Q", 4095) + whole[place + 8 :])
        t("tokenize", path, "x").fails(4, "patched.gguf")


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
def model_file_that_changes_under_it(t):
    """Unlinked or replaced by rename the old bytes stay; cut short it is one line, not SIGBUS."""
    copy = t.tmp / "changing.gguf"
    slow = ["run", copy, "-p", "x", "--raw", "--ignore-eos", "-n", "60", "--temp", "0", "--json"]
    shutil.copy(LLAMA, copy)
    want = t(*slow).lines()[-1]["ids"]

    def changed(how):
        shutil.copy(LLAMA, copy)
        p = popen(t, *slow, "--device", "ref", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        first = p.stdout.readline()
        how()
        rest, err = p.communicate(timeout=60)
        return p.returncode, json.loads((first + rest).splitlines()[-1]), err.decode()

    def replaced():
        (t.tmp / "new.gguf").write_bytes(b"no model")
        (t.tmp / "new.gguf").rename(copy)

    for how in (copy.unlink, replaced):
        code, last, err = changed(how)
        need(code == 0 and last["ids"] == want, f"{how}: exit {code}: {err}")
    code, last, err = changed(lambda: os.truncate(copy, 4096))
    need(code == 3 and "changing.gguf" in err.splitlines()[-1], f"cut short: exit {code}: {err}")
    need(last["type"] == "error" and last["exit_code"] == 3, f"{last}")


@case
def threads_and_processors(t):
    def device(*argv, before=()):
        words = [*before, t.mica, "bench", str(LLAMA), "-p", "1", "-n", "0", "-r", "1", *argv]
        p = subprocess.run(words, env=t.env, capture_output=True, text=True, timeout=60)
        need(p.returncode == 0, f"{argv}: {p.stderr}")
        return p.stderr.splitlines()[0].rsplit(", ", 1)[1]

    need(device("-t", "1") == "1 thread" and device("-t", "5") == "5 threads", "-t is not what runs")
    if shutil.which("taskset"):
        only = str(min(os.sched_getaffinity(0)))
        need(device(before=["taskset", "-c", only]) == "1 thread", "one processor, more threads")
        need(device("-t", "2", before=["taskset", "-c", only]) == "2 threads", "-t does not win")


@case
def nothing_may_be_written_or_locked(t):
    """No locked memory, no home, no folder for temporary files, caches that cannot be made."""
    env = {"PATH": t.env["PATH"], "TMPDIR": "/proc/nowhere", "MICA_HOME": "/proc/nowhere"}
    line = "ulimit -l 64; exec \"$0\" \"$@\""
    argv = ["run", str(LLAMA), "-p", "Capital of Cyprus?", "--temp", "0", "--think", "off"]
    words = ["bash", "-c", line, t.mica, *argv]
    p = subprocess.run(words, env=env, capture_output=True, text=True, timeout=60)
    need(p.returncode == 0 and "Nicosia" in p.stdout, f"exit {p.returncode}: {p.stderr}")
    t("list", env=env).ok()
    t("tune", LLAMA, "-t", "1", "-ub", "8", env=env).fails(3, "/proc/nowhere")
    t("pull", "smollm2-135m", env=env).fails(9, "/proc/nowhere")


@case
def template_that_is_broken(t):
    whole = LLAMA.read_bytes()
    at = whole.rindex(b"{%- endfor %}")
    path = t.file("template.gguf", whole[:at] + b"{%- endxor %}" + whole[at + 13 :])
    t("run", "-m", path, "-p", "x").fails(2, "template")
    t("run", "-m", path, "-p", "x", "--raw", "-n", "1").ok()
    t("template", "-m", path, "--messages", t.file("one.json", "[]")).fails(2, "template")


@case
def template_that_is_missing(t):
    """No template, and no ChatML markers in the vocabulary that could stand in for one."""
    whole = LLAMA.read_bytes().replace(b"tokenizer.chat_template", b"tokenizer.chat_templatx")
    path = t.file("plain.gguf", whole.replace(b"<|im_start|>", b"<|im_starx|>"))
    t("run", "-m", path, "-p", "x").fails(2, "template", "--raw")
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
    for line, want in (
        (f"{base} -p x <&-", 0),
        (f"{base} -p x >&-", 0),
        (f"{base} -p x 2>&-", 0),
        (f"{base} -p x <&- >&- 2>&-", 0),
        (f"{base} <&-", 2),
    ):
        p = subprocess.run(["bash", "-c", line], env=t.env, capture_output=True, timeout=30)
        need(
            p.returncode == want,
            f"{line.split('gguf')[1]}: exit {p.returncode}: {p.stderr.decode()[-200:]}",
        )


@case
def a_reader_that_leaves(t):
    p = subprocess.run(
        [
            "bash",
            "-c",
            f"'{t.mica}' run -m '{LLAMA}' --ignore-eos --raw -p x -n 2000 | head -c 5; "
            "status=${PIPESTATUS[0]}; echo; echo $status",
        ],
        env=t.env,
        capture_output=True,
        timeout=60,
    )
    lines = p.stdout.split(b"\n")
    need(lines[-2] == b"141", f"status {lines[-2]!r}")  # as any filter: ended by SIGPIPE
    need(b"rite" not in p.stderr, f"a message: {p.stderr[-200:]!r}")


@case
def a_disk_that_is_full(t):
    with open("/dev/full", "wb") as full:
        p = popen(
            t,
            "run",
            "-m",
            LLAMA,
            "-p",
            "x",
            "--raw",
            "-n",
            "4",
            stdout=full,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
        )
        err = p.communicate(timeout=60)[1].decode()
    need(p.returncode == 9 and "No space left" in err, f"exit {p.returncode}: {err[-200:]}")


@case
def a_limit_on_files(t):
    """A full disk for who runs into it: one line, exit code 9, nothing half-written under the name."""
    (t.tmp / "limit").mkdir()
    for argv in (
        ["synth", "--preset", "smollm2-135m", "--quant", "q8_0", "-o", t.tmp / "limit" / "m.gguf"],
        ["run", "-m", LLAMA, "-p", "x", "-n", "400", "--ignore-eos", "--raw", "--json"],
    ):
        out = open(t.tmp / "limit" / "out", "wb")
        limit = ["bash", "-c", 'ulimit -f 4; exec "$0" "$@"', t.mica, *map(str, argv)]
        p = subprocess.run(limit, env=t.env, stdout=out, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
        err = p.stderr.decode()
        need(p.returncode == 9 and "File too large" in err, f"{argv[0]}: exit {p.returncode}: {err[-200:]}")
        need(os.listdir(t.tmp / "limit") == ["out"], f"left behind: {os.listdir(t.tmp / 'limit')}")


ENDLESS = ["--raw", "--ignore-eos", "--device", "ref", "-n", "-1"]  # ref is slow: there is time to stop it


def wait_for_handlers(p):
    """Until the program has set its handlers; a signal before that ends it the default way."""
    status = pathlib.Path(f"/proc/{p.pid}/status")
    end = time.time() + 20
    while time.time() < end:
        caught = re.search(r"SigCgt:\s*([0-9a-f]+)", status.read_text())
        if caught and int(caught.group(1), 16) & 1 << (signal.SIGTERM - 1):
            return
        time.sleep(0.002)


@case
def signals_end_it_within_two_seconds(t):
    long = t.file("long.txt", "word " * 1800)  # a chunk of it takes the slow device longer than that
    for sig, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        for prompt, delay in (
            (["-p", "x"], 0.0),
            (["-p", "x"], 0.05),
            (["-p", "x"], 0.6),
            (["-f", long], 0.6),
        ):
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
            p = popen(t, "run", "-m", LLAMA, *ENDLESS, *prompt, **pipes)
            wait_for_handlers(p)
            time.sleep(delay)
            p.send_signal(sig)
            p.communicate(timeout=20)  # left alone it would go on for minutes
            need(p.returncode == code, f"{sig.name} after {delay} s: exit {p.returncode}")


@case
def a_second_signal_does_not_wait(t):
    long = t.file("long.txt", "word " * 1800)
    p = popen(t, "run", "-m", LLAMA, *ENDLESS, "-f", long, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    wait_for_handlers(p)
    time.sleep(0.6)
    p.send_signal(signal.SIGINT)
    time.sleep(0.1)
    p.send_signal(signal.SIGINT)
    p.communicate(timeout=20)
    need(p.returncode == 130, f"exit {p.returncode}")


@case
def ctrl_c_gives_what_there_is(t):
    p = popen(
        t,
        "run",
        "-m",
        LLAMA,
        "--raw",
        "-p",
        "x",
        "--ignore-eos",
        "--device",
        "ref",
        "-n",
        "-1",
        "--json",
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
    )
    first = p.stdout.readline()
    p.send_signal(signal.SIGINT)
    rest = p.communicate(timeout=20)[0]
    done = json.loads((first + rest).splitlines()[-1])
    need(
        p.returncode == 130 and done["finish_reason"] == "cancelled" and done["ids"],
        f"{p.returncode} {done}",
    )


if __name__ == "__main__":
    sys.exit(main())
