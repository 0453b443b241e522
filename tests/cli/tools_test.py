#!/usr/bin/env python3
"""The other commands from outside: their JSON shapes, their flags, their mistakes; and the example program.

    tests/cli/tools_test.py [BUILD] [WORD]    BUILD: folder with the program; WORD: only cases that hold it
Prints ok, FAILED or skip for each case; last line: N passed, N failed, N skipped."""

import gzip
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

from harness import FIXTURES, LLAMA, QWEN3, ROOT, Skip, case, main, need

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
    need(
        t("detokenize", "-m", LLAMA, stdin=json.dumps(plain["ids"])).ok().out == text + "\n", "a JSON list"
    )
    a, b = (
        t("detokenize", "-m", LLAMA, "--json", *f, "4079", *ids[:1]).json()["text"]
        for f in ([], ["--special"])
    )
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
        got = t("tokenize", "-m", LLAMA, "--json", "--special", "-f", "-", stdin=entry["text"]).json()[
            "ids"
        ]
        need(got == entry["ids"], f"{entry['text']!r}")


@case
def template_renders(t):
    messages = t.file("messages.json", json.dumps([{"role": "user", "content": "Hi"}]))
    tools = t.file(
        "tools.json", json.dumps([{"type": "function", "function": {"name": "f", "parameters": {}}}])
    )
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
    need(
        t(*base, "--chat-template-kwargs", '{"enable_thinking":true}').ok().out.endswith("<think>\n"),
        "kwargs",
    )
    need(
        t("template", "-m", LLAMA, "--messages", "-", stdin=messages.read_text()).ok().out == d["prompt"],
        "stdin",
    )
    t("template", "-m", LLAMA).fails(2, "--messages")
    t("template", "-m", LLAMA, "--messages", t.file("bad.json", "[1,")).fails(2, "bad.json", "line 1")
    t("template", "-m", LLAMA, "--messages", t.file("object.json", "{}")).fails(2, "object.json", "array")
    t("template", "-m", LLAMA, "--messages", t.tmp / "none.json").fails(3, "none.json")


@case
def inspect_shows_the_file(t):
    d = t("inspect", LLAMA, "--json").json()
    for key in (
        "path",
        "version",
        "alignment",
        "shards",
        "bytes",
        "arch",
        "name",
        "parameters",
        "metadata",
        "tensors",
    ):
        need(key in d, f"no {key}")
    need(d["arch"] == "llama" and d["bytes"] == LLAMA.stat().st_size and d["version"] == 3, f"{d['arch']}")
    need(len(d["metadata"]["tokenizer.ggml.tokens"]) < 4096, "arrays are cut")
    need(
        len(t("inspect", LLAMA, "--json", "--all").json()["metadata"]["tokenizer.ggml.tokens"]) == 4096,
        "--all",
    )
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
    mtp = FIXTURES / "qwen3_5.q4_k_m.gguf"
    with_block, without = (
        t("plan", "-m", mtp, "--json", "--draft", d).json()["tiers"] for d in ("1", "off")
    )
    need(with_block != without, "--draft off leaves nothing out")
    text = t("plan", "-m", LLAMA).ok().out
    need("weights" in text and "fits" in text and "context:" in text, text)
    small = t("plan", "-m", LLAMA, "--json", "--ram", "1M")
    need(small.rc == 6 and json.loads(small.out)["fits"] is False, f"exit {small.rc}")
    need("does not fit" in small.err, small.err)
    near = t("plan", "-m", LLAMA, "--json", "--ram", "20M", "-c", "100000")
    n = json.loads(near.out)["nearest"]["context"]
    need(near.rc == 6 and f"--context {n} would fit" in near.err and "{" not in near.err, near.err)
    t("plan", "-m", LLAMA, "--ram", "20M", "-c", str(n)).ok()
    need(t("plan", "-m", LLAMA, "--ram", "20M", "-c", str(n + 256)).rc == 6, "it was the nearest")
    picture = t("plan", "-m", FIXTURES / "qwen3_moe.q4_k_m.gguf").ok().out
    need(max(len(x) for x in picture.splitlines()) <= 80, picture)
    need("experts: 24: 24 in memory" in picture and "  [" in picture, picture)


@case
def experts_elsewhere_are_planned_and_learned(t):
    moe = FIXTURES / "qwen3_moe.q4_k_m.gguf"
    sim = {"MICA_SIM": "vram=1G"}
    base = ["plan", "-m", moe, "--device", "sim:0", "--json", "-c", "256", "--ubatch", "64"]
    whole = t(*base, env=sim).json()
    card = whole["tiers"][0]
    need(card["device"] == "sim:0" and whole["experts"]["vram"] == 24, f"{whole}")
    cap = str(sum(i["bytes"] for i in card["items"]) - 500_000)
    for how in ("auto", "all", "complement", "mmap"):
        d = t(*base, "--vram", cap, "--experts-ram", how, env=sim).json()
        e = d["experts"]
        need(d["fits"] and 0 < e["vram"] < 24 and e["vram"] + e["ram"] + e["ssd"] == 24, f"{how}: {d}")
        need(sum(i["bytes"] for i in d["tiers"][0]["items"]) <= int(cap), f"{how}: over the cap")
    db = t.tmp / "learned.db"
    run = ["run", "-m", moe, "-p", "hello", "-n", "20", "--temp", "0", "--profile", db]
    text = t(*run).ok().out
    size = db.stat().st_size
    need(size > 0 and t(*run).ok().out == text, "--profile")
    r = t("run", "-m", moe, "-p", "hello", "-n", "20", "--temp", "0", "--profile", moe)
    need(r.rc == 0 and r.out == text and "learned use of experts is not kept" in r.err, r.err)


@case
def experts_read_from_disk_give_the_same_bits(t):
    for name in ("qwen3_moe", "qwen3_5_moe", "gemma4_moe", "qwen4_exp"):
        moe = FIXTURES / f"{name}.q4_k_m.gguf"
        base = ["-m", moe, "-c", "256", "--device", "cpu"]
        items = t("plan", *base, "--json").json()["tiers"][0]["items"]
        experts = next(i["bytes"] for i in items if i["what"] == "experts")
        ram = ["--ram", str(sum(i["bytes"] for i in items) - experts // 3)]
        e = t("plan", *base, *ram, "--json").json()["experts"]
        need(0 < e["ram"] < e["total"] and e["ram"] + e["ssd"] == e["total"], f"{name}: {e}")
        ask = ["eval", "logits", *base, "--tokens", "4078,100,200,300,400", "--positions", "all", "--json"]
        need(t(*ask).ok().out == t(*ask, *ram).ok().out, f"{name}: other bits")
        said = ["run", *base, "-p", "hello", "-n", "30", "--temp", "0", "--json"]
        whole, some = (json.loads(t(*said, *a).ok().out.splitlines()[-1]) for a in ([], ram))
        need(whole["ids"] == some["ids"], f"{name}: other tokens")
        need(whole["experts"]["ssd_bytes"] == 0 and whole["experts"]["hit_rate"] == 1, f"{whole['experts']}")
        line = t("run", *base, "-p", "hello", "-n", "9", "--temp", "0", *ram).ok().err
        need("of experts in memory" in line and "GB from disk" in line and "card" not in line, line)
        need(some["experts"]["ssd_bytes"] > 0 and some["experts"]["hit_rate"] < 1, f"{some['experts']}")


@case
def devices_are_listed(t):
    d = t("devices", "--json").json()
    for key in (
        "id",
        "name",
        "arch",
        "wave",
        "vram_total",
        "vram_free",
        "driver",
        "library",
        "integrated",
        "display",
        "usable",
        "reason",
    ):
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
    need(
        [p["pos"] for p in d["positions"]] == [2] and len(d["positions"][0]["logits"]) == 4096,
        "last by default",
    )
    d3 = t(*base, "--json", "--positions", "all").json()
    need(
        [p["pos"] for p in d3["positions"]] == [0, 1, 2] and d3["positions"][2] == d["positions"][0],
        "--positions all",
    )
    top = t(*base, "--json", "--top", "5").json()["positions"][0]["top"]
    logits = d["positions"][0]["logits"]
    best = sorted(range(4096), key=lambda i: (-logits[i], i))[:5]
    need([i for i, _ in top] == best and [v for _, v in top] == [logits[i] for i in best], f"--top {top}")
    need(
        t(*base, "--json").out == t(*base, "--json", "--split-at", "1").out, "--split-at changes the logits"
    )
    need("position 2:" in t(*base, "--top", "3").ok().out, "as text")
    t("eval", "logits", "-m", LLAMA).fails(2, "--tokens")
    t(*base, "--split-at", "3").fails(2, "--split-at", "3 ids")
    t("eval", "logits", "-m", LLAMA, "--tokens", "1,,2").fails(2, "--tokens")
    t("eval", "logits", "-m", LLAMA, "--tokens", "4096").fails(2, "4096")


@case
def eval_ref_decides_the_exit_code(t):
    """Quantised logits differ from the f16 reference, so a reference made of the file itself is used."""
    ref = json.loads(gzip.open(FIXTURES / "llama.ref.json.gz").read())
    prompt = next(p for p in ref["prompts"] if p["name"] == "short_raw")
    for run in ("first", "second"):
        prompt[run]["greedy"] = prompt[run]["greedy"][:16]
        ids = prompt[run]["ids"]
        got = t(
            "eval",
            "logits",
            "-m",
            LLAMA,
            "--kv",
            "f32",
            "--json",
            "--positions",
            "all",
            "--tokens",
            ",".join(map(str, ids)),
        ).json()["positions"]
        prompt[run]["last_logits"] = got[-1]["logits"]
        prompt[run]["argmax"] = [max(range(4096), key=lambda i: (p["logits"][i], -i)) for p in got]
        prompt[run]["top20"] = []
        greedy = t(
            "run",
            "-m",
            LLAMA,
            "--raw",
            "--kv",
            "f32",
            "--temp",
            "0",
            "--ignore-eos",
            "--json",
            "-n",
            len(prompt[run]["greedy"]),
            "-f",
            "-",
            stdin=t("detokenize", "-m", LLAMA, "--json", "--special", *ids).json()["text"],
        ).lines()[-1]
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
    for key in (
        "name",
        "run",
        "max_logit_diff",
        "median_logit_diff",
        "argmax_agreement",
        "argmax_misses",
        "first_divergence",
        "gap_at_divergence",
        "draft_agreement",
    ):
        need(key in d["prompts"][0], f"no {key}")
    need(
        d["prompts"][0]["first_divergence"] is None and d["prompts"][0]["max_logit_diff"] < 1e-3,
        f"{d['prompts'][0]}",
    )
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
    need(
        d["total"] == 12 and 10 <= d["right"] <= 12 and set(d["by_task"]) == {x["task"] for x in tasks},
        f"{d}",
    )
    need("12" in t("eval", "tasks", "-m", LLAMA, "--tasks", path).ok().out, "as text")
    t("eval", "tasks", "-m", LLAMA).fails(2, "--tasks")


@case
def eval_ppl_and_kld(t):
    text = t.file("prose.txt", "The capital of Cyprus is Nicosia. " * 20)
    d = t("eval", "ppl", "-m", LLAMA, "-f", text, "-c", "96", "--json").json()
    need(set(d) >= {"tokens", "nll", "ppl"} and d["tokens"] > 100 and d["ppl"] > 1, f"{d}")
    need(d["ppl"] != t("eval", "ppl", "-m", LLAMA, "-f", text, "-c", "48", "--json").json()["ppl"], "-c")
    need("ppl" in t("eval", "ppl", "-m", LLAMA, "-f", text, "-c", "96").ok().out, "as text")
    same = t("eval", "kld", "-m", LLAMA, "--base", LLAMA, "-f", text, "-c", "96", "--json").json()
    other = t("eval", "kld", "-m", LLAMA, "--base", QWEN3, "-f", text, "-c", "96", "--json").json()
    need(same["mean"] == 0 and other["mean"] > 0.001, f"{same} {other}")
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
        bound = {
            "bytes_per_token",
            "gbps",
            "bound_gbps",
            "share",
        }  # a prompt is bound by operations instead
        need("depth" in r and (bound <= set(r) or r["test"].startswith("pp")), f"{sorted(r)}")
    csv = t("bench", "-m", LLAMA, "-p", "0", "-n", "2", "-r", "1", "-o", "csv").ok().out.splitlines()
    need(len(csv) == 2 and csv[0].startswith("test,depth,") and csv[1].startswith("tg2,0,"), f"{csv}")
    md = t("bench", "-m", LLAMA, "-p", "8", "-n", "0", "-r", "1").ok().out.splitlines()
    need(len(md) == 3 and md[2].startswith("| pp8 |"), f"{md}")
    t("bench", "-m", LLAMA, "-p", "0", "-n", "0").fails(2, "-p", "-n")
    v = json.loads(t(*base[:3], "-p", "8", "-n", "2", "-r", "1", "--profile-ops", "--json").ok().out)
    for one in v:
        ops = one["profile"]["operations"]
        need(sum(x["ms"] for x in ops) <= one["profile"]["step_ms"], "operations outlast their steps")
        products = [x for x in ops if x["what"].startswith("linear ")]
        need(products and all(x["bytes"] > 0 and x["gops"] > 0 for x in products), str(ops))
        need(any(x["what"] == "attn" for x in ops), str(ops))
    text = t(*base[:3], "-p", "8", "-n", "0", "-r", "1", "--profile-ops").ok().out
    need("| operation | calls |" in text, "table")
    t(*base[:3], "-p", "8", "--profile-ops", "-o", "csv").fails(2, "--profile-ops", "csv")
    t("bench", "-m", LLAMA, "-o", "xml").fails(2, "md|csv|json")


@case
def synth_flags_make_a_difference(t):
    presets = [line.split()[0] for line in t("synth", "--presets").ok().out.splitlines()]
    need({"tiny-llama", "flash-next"} <= set(presets), f"{presets}")
    need([p["name"] for p in t("synth", "--presets", "--json").json()] == presets, "--presets --json")

    def sizes(*argv, preset="qwen3moe-30b-a3b"):
        return t("synth", "--preset", preset, "--dry-run", "--json", *argv).json()

    base = sizes()
    need({"path", "parameters", "bytes", "bytes_per_token"} <= set(base), f"{base}")
    need(base == sizes("--quant", "q4_k_m"), "q4_k_m is not the default")
    need(sizes("--quant", "q8_0")["bytes"] > base["bytes"], "--quant")
    need(sizes("--layers", "4")["parameters"] < base["parameters"], "--layers")
    need(sizes("--experts", "16")["bytes"] < base["bytes"], "--experts")
    need(sizes("--set", "ff_exp=256")["bytes"] < base["bytes"], "--set")
    dense = sizes(preset="qwen35-4b")
    need(sizes("--mtp", preset="qwen35-4b")["parameters"] > dense["parameters"], "--mtp")
    need(sizes("--vocab", LLAMA)["parameters"] < base["parameters"], "--vocab")
    need("read for each token" in t("synth", "--preset", "llama-1b", "--dry-run").ok().out, "as text")


@case
def synth_writes_models_that_run(t):
    def write(name, *argv):
        t("synth", "--preset", "tiny-qwen3moe", "--quant", "q4_k_m", "-o", t.tmp / name, *argv).ok()
        return (t.tmp / name).read_bytes()

    one = write("one.gguf", "--seed", "1")
    need(one == write("same.gguf"), "the default seed is not 1, or not all that decides")
    need(one != write("other.gguf", "--seed", "2"), "--seed")
    need(one != write("skew.gguf", "--router-skew", "2"), "--router-skew")
    need(t.run("--raw", "-p", "x", "-n", "2", model=t.tmp / "one.gguf").ok().err, "it does not run")
    again = ["synth", "--preset", "tiny-qwen3moe", "--quant", "q8_0", "-o", t.tmp / "one.gguf"]
    t(*again).fails(2, "one.gguf", "exists", "--force")
    need((t.tmp / "one.gguf").read_bytes() == one, "written over unasked")
    need(t(*again, "--dry-run").rc == 0, "--dry-run writes nothing over")
    t(*again, "--force").ok()
    need((t.tmp / "one.gguf").read_bytes() != one, "--force")


@case
def synth_mistakes(t):
    t("synth", "--quant", "q8_0", "-o", "x").fails(2, "--preset")
    t("synth", "--preset", "llama-1b").fails(2, "-o")
    t("synth", "--preset", "nothing", "--dry-run").fails(2, "nothing")
    t("synth", "--preset", "llama-1b", "--quant", "q9", "--dry-run").fails(2, "q9")
    t("synth", "--preset", "llama-1b", "--set", "nothing=1", "--dry-run").fails(2, "nothing")
    t("synth", "--preset", "tiny-llama", "-o", t.tmp / "no" / "folder.gguf").fails(3, "folder.gguf")


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


@case
def tune_measures_and_is_used(t):
    env = {**t.env, "MICA_HOME": str(t.tmp / "tuned home")}
    mtp = FIXTURES / "qwen3_5.q4_k_m.gguf"
    d = t("tune", LLAMA, "-c", "330", "--json", env=env, timeout=120).json()
    tried = {what: [x["value"] for x in d["measured"] if x["what"] == what] for what in ("threads", "ubatch")}
    need(tried["threads"] and set(tried["ubatch"]) == {512, 64, 128, 256}, f"{tried}")
    need(all(d["best"][what] in tried[what] for what in tried) and d["best"]["draft"] is None, f"{d['best']}")
    rates = [x["prompt_tps"] for x in d["measured"]] + [x["decode_tps"] or 1 for x in d["measured"]]
    need(all(r > 0 for r in rates), f"{d['measured']}")
    r = t.run("-p", "x", "-n", "1", env=env).ok()
    need(f"tuned for this machine: -t {d['best']['threads']} -ub {d['best']['ubatch']}" in r.err, r.err)
    need("tuned" not in t.run("-p", "x", "-n", "1").ok().err, "without a record")

    def with_best(**best):
        v = json.loads(pathlib.Path(d["path"]).read_text())
        v["best"] = best
        pathlib.Path(d["path"]).write_text(json.dumps(v))

    def scratch(*argv):
        tiers = t("plan", LLAMA, *argv, "--json", env=env).json()["tiers"]
        return sum(i["bytes"] for x in tiers for i in x["items"] if i["what"] == "scratch")

    with_best(threads=1, ubatch=16)
    need(scratch() == scratch("-ub", "16") < scratch("-ub", "512"), "the chunk is not used")
    one = ["bench", LLAMA, "-p", "1", "-n", "0", "-r", "1"]
    need("1 thread" in t(*one, env=env).ok().err, "the threads are not used")
    need("3 threads" in t(*one, "-t", "3", env=env).ok().err, "-t is not heard")
    need("tuned" not in t(*one, "-t", "3", "-ub", "8", env=env).ok().err, "flags say it all")
    same = ["-p", "Capital of Cyprus?", "--temp", "0", "--json"]
    need(t.run(*same, env=env).lines()[-1]["ids"] == t.run(*same).lines()[-1]["ids"], "another answer")
    with_best(threads=0)
    r = t.run("-p", "x", "-n", "1", env=env).ok()
    need("not used" in r.err and "threads" in r.err and "--erase" in r.err, r.err)
    need("< " not in t("tune", "--list", env=env).ok().out, "a damaged record is listed")
    d = t("tune", mtp, "-t", "1", "-ub", "64", "--json", env=env, timeout=120).json()
    need([x["value"] for x in d["measured"]] == [4, 0, 1, 2, 3, 5, 7], f"{d}")
    need(d["best"]["draft"] is not None, f"{d['best']}")
    need(d["best"]["threads"] is None and d["best"]["ubatch"] is None, f"not measured: {d['best']}")
    with_best(draft=0)
    drafted = lambda *argv: t.answer("-n", "8", *argv, model=mtp, env=env)["draft"]["drafted"]
    need(drafted() == 0, "the drafts are not used")
    need(drafted("--draft", "3") > 0, "--draft is not heard")
    need("draft 0" in t("tune", "--list", env=env).ok().out, "--list")
    need("1 forgotten" in t("tune", "--erase", mtp, env=env).ok().err, "--erase of one")
    need(drafted() > 0, "it is not forgotten")
    need(t("tune", "--erase", "--json", env=env).json() == {"erased": 1}, "--erase of all")
    need(t("tune", "--list", "--json", env=env).json() == [], "something is left")
    t("tune").fails(2, "-m")
    for small in "16", "64", "255":
        t("tune", LLAMA, "-c", small, env=env).fails(2, small, "256")
    t("tune", "--list", "--erase").fails(2, "--list")


# ---- The example ----


@case
def example_chats(t):
    folder = t.build
    chat = folder / "examples" / "chat"
    if not chat.exists():
        raise Skip("examples/chat is not built: make examples")
    lines = (ROOT / "examples" / "chat.c").read_text().splitlines()
    need(len(lines) < 80, f"{len(lines)} lines")
    p = subprocess.run(
        [chat, LLAMA],
        input=b'Capital of "Cyprus"?\nCapital of Iceland?\n',
        capture_output=True,
        timeout=60,
        env=t.env,
    )
    need(p.returncode == 0 and p.stdout.count(b"> ") == 3, f"{p.returncode} {p.stdout!r} {p.stderr!r}")
    p = subprocess.run([chat, "/nonexistent"], capture_output=True, timeout=60, env=t.env)
    need(p.returncode == 1 and b"nonexistent" in p.stderr, f"{p.stderr!r}")


def check_install(t, prefix):
    make = ["make", "-C", ROOT, f"BUILD={t.build}", f"PREFIX={prefix}"]
    p = subprocess.run([*make, "install"], capture_output=True, text=True)
    need(p.returncode == 0, p.stderr[-300:])
    flags = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "mica"],
        capture_output=True,
        text=True,
        env={**t.env, "PKG_CONFIG_PATH": str(prefix / "lib" / "pkgconfig")},
    ).stdout
    need(str(prefix) in flags and "-lmica" in flags, f"pkg-config: {flags!r}")
    for name in (
        "bin/mica",
        "include/mica.h",
        "lib/libmica.so",
        "share/man/man1/mica.1",
        "share/bash-completion/completions/mica",
        "share/zsh/site-functions/_mica",
        "share/fish/vendor_completions.d/mica.fish",
    ):
        need((prefix / name).stat().st_size > 0, f"no {name}")
    version = subprocess.run(
        [prefix / "bin" / "mica", "version"], capture_output=True, text=True, env=t.env
    )
    need(version.stdout == t("version").ok().out, f"{version.stderr}")
    p = subprocess.run([*make, "uninstall"], capture_output=True, text=True)
    left = [f for f in prefix.rglob("*") if not f.is_dir()]
    need(p.returncode == 0 and not left, f"left behind: {left} {p.stderr[-200:]}")


@case
def install_gives_a_library_to_build_on(t):
    if not shutil.which("pkg-config"):
        raise Skip("no pkg-config")
    with tempfile.TemporaryDirectory() as prefix:  # make takes no blanks in a prefix
        check_install(t, pathlib.Path(prefix))


def sanitizers_of(library):
    """What a program must be linked with to load a library that was built with sanitizers."""
    needed = subprocess.run(["ldd", library], capture_output=True, text=True).stdout
    names = {"libasan": "address", "libubsan": "undefined", "libtsan": "thread"}
    return [f"-fsanitize={name}" for lib, name in names.items() if lib in needed]


@case
def example_is_cplusplus_too(t):
    if not shutil.which("g++"):
        raise Skip("no g++")
    out = t.tmp / "chat++"
    folder = t.build
    p = subprocess.run(
        [
            "g++",
            "-std=c++17",
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Werror",
            "-x",
            "c++",
            ROOT / "examples" / "chat.c",
            f"-I{ROOT}/include",
            f"-L{folder}",
            "-lmica",
            f"-Wl,-rpath,{folder}",
            *sanitizers_of(folder / "libmica.so"),
            "-o",
            out,
        ],
        capture_output=True,
        text=True,
    )
    need(p.returncode == 0, p.stderr[:300])
    p = subprocess.run(
        [out, LLAMA], input=b"Capital of Cyprus?\n", capture_output=True, timeout=60, env=t.env
    )
    need(p.returncode == 0, f"{p.stderr!r}")


if __name__ == "__main__":
    sys.exit(main())
