#!/usr/bin/env python3
"""The trained fixtures of docs/FIXTURES.md through `mica eval`: do the networks compute what they should?

    tests/eval/fixtures_test.py [BUILD] [--all]

f16 files, where there is a folder shared/fixtures beside the project: `eval ref` is ok for every prompt, with
a KV cache of f32. q4_k_m files: every tenth task (--all: all 600), at most 1 % of 600 under the score that
other engines reach; of the tenth, three tasks are left to chance.
Prints ok, FAILED or skip for each; last line: N passed, N failed, N skipped."""

import gzip
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HERE = os.path.join(ROOT, "tests", "fixtures")
ARGS = [a for a in sys.argv[1:] if not a.startswith("-")]
ALL = "--all" in sys.argv
MICA = os.path.join(ROOT, ARGS[0] if ARGS else "build", "mica")
# Right answers of 600 that another engine reaches with the q4_k_m file.
SCORES = {
    "llama": 589, "qwen3": 593, "qwen3_moe": 588, "qwen3_5": 590, "qwen3_5_moe": 593, "qwen4_exp": 584,
    "gemma4": 593, "gemma4_moe": 566,
}  # fmt: skip
LARGEST_DIFFERENCE = 1e-3
DRAFTING = {"qwen3_5", "qwen3_5_moe"}  # with a draft block: its drafts are the reference's


def mica(*args):
    p = subprocess.run([MICA, *args], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return p.returncode, json.loads(p.stdout) if p.stdout else None, p.stderr.strip().splitlines()[-1:]


def f16_folder():
    for up in ("..", "../.."):
        folder = os.path.join(ROOT, up, "shared", "fixtures")
        if os.path.isdir(folder):
            return folder
    return None


def check_ref(name, folder):
    """None when the f16 file computes the references, else what differs."""
    path = os.path.join(folder, f"{name}.f16.gguf")
    rc, got, why = mica(
        "eval", "ref", "-m", path, "--ref", os.path.join(HERE, f"{name}.ref.json.gz"), "--json"
    )
    if got is None:
        return f"exit {rc}: {why}"
    worst = max(got["prompts"], key=lambda p: p["median_logit_diff"])
    # With experts a routing tie can flip at single positions: the median and the greedy text count.
    largest = max(p["max_logit_diff"] for p in got["prompts"])
    if rc or not got["ok"]:
        bad = [p["name"] for p in got["prompts"] if p["argmax_misses"] or p["first_divergence"] is not None]
        return f"exit {rc}, not ok: {bad[:5]}, largest difference {largest}"
    if "moe" not in name and largest > LARGEST_DIFFERENCE:
        return f"largest difference of a logit {largest}"
    agreement = [p["draft_agreement"] for p in got["prompts"]]
    if name in DRAFTING and (None in agreement or min(agreement) < 0.98):
        return f"drafts that agree with the reference's: {agreement}"
    if worst["median_logit_diff"] > LARGEST_DIFFERENCE:
        return f"median difference of a logit {worst['median_logit_diff']} in {worst['name']}"
    return None


def check_tasks(name, tasks, n):
    """None when enough answers are right, else the score."""
    rc, got, why = mica(
        "eval", "tasks", "-m", os.path.join(HERE, f"{name}.q4_k_m.gguf"), "--tasks", tasks, "--json"
    )
    if rc or got is None:
        return f"exit {rc}: {why}"
    floor = SCORES[name] - 6 if ALL else SCORES[name] * n // 600 - 3
    return (
        None
        if got["total"] == n and got["right"] >= floor
        else f"{got['right']} of {got['total']}, wanted {floor}"
    )


def main():
    counts = {"ok": 0, "FAILED": 0, "skip": 0}

    def say(name, why, skip=False):
        word = "skip" if skip else "ok" if why is None else "FAILED"
        counts[word] += 1
        print(f"{word}{':' if skip else ''} {name}" + (f": {why}" if why else ""), flush=True)

    folder = f16_folder()
    with tempfile.TemporaryDirectory() as tmp:
        tasks = os.path.join(HERE, "tasks.json.gz")
        with gzip.open(tasks) as f:
            items = json.load(f)
        if not ALL:
            items, tasks = items[::10], os.path.join(tmp, "tasks.json.gz")
            with gzip.open(tasks, "wt") as f:
                json.dump(items, f)
        for name in SCORES:
            say(f"{name} tasks", check_tasks(name, tasks, len(items)))
            if not folder:
                say(
                    f"{name} references", "no shared/fixtures beside the project (the f16 files)", skip=True
                )
            else:
                say(f"{name} references", check_ref(name, folder))
    print("{ok} passed, {FAILED} failed, {skip} skipped".format(**counts))
    return 1 if counts["FAILED"] else 0


if __name__ == "__main__":
    sys.exit(main())
