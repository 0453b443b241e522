#!/usr/bin/env python3
"""A mixture larger than the card: the same tokens, how fast, and what bounds it.

    bench/tiers_bench.py -m FILE [--mica build/mica] [--link build/bench/link_bench] [--device cuda:0]
                         [--caps 0,8G] [--how all] [-n 128] [--prompt 40] [--pp 512,8192] [--ubatch 512,4096]

For each cap of --vram (0: none) an answer of `mica run` (greedy, of N tokens), another one that starts with
what the first learned of the use of experts where there is a cap, and `mica bench`. The bound is
the time a token would take if the link did nothing but bring what had no slot, its rate measured in the same
run by link_bench. Give a short prompt: its bytes are counted in.
"""
import argparse
import json
import re
import subprocess
import sys
import tempfile

WORDS = "the tide of a river turns twice a day and the boats lie on the mud until it is back again while "


def run(cmd):
    r = subprocess.run(cmd, capture_output=True, text=True)
    if r.returncode != 0:
        sys.exit(f"{' '.join(cmd)}: exit code {r.returncode}: {r.stderr.strip()[-400:]}")
    return r.stdout


def link_rate(a):
    if not a.link:
        return 0.0
    kind, _, card = a.device.partition(":")
    text = run([a.link, kind, card or "0"])
    print(text.strip(), flush=True)
    return float(re.search(r"([\d.]+) GB/s to the card", text).group(1))


def common(a, cap, ubatch):
    args = ["-m", a.model, "--device", a.device, "-c", str(a.context), "--ubatch", str(ubatch)]
    return args + (["--vram", cap, "--experts-ram", a.how] if cap != "0" else [])


def answer(a, cap, prompt):
    args = ["run", *common(a, cap, a.ubatch[0]), "-f", prompt, "--raw", "--temp", "0", "-n", str(a.predict)]
    out = run([a.mica, *args, "--ignore-eos", "--draft", "off", "--json"])
    return json.loads(out.strip().splitlines()[-1])


def speeds(a, cap, ubatch):
    args = ["bench", *common(a, cap, ubatch), "-p", a.pp, "-n", str(a.predict), "-r", "2", "-o", "json"]
    out = run([a.mica, *args])
    return {row["test"]: row["tps"]["median"] for row in json.loads(out)}


def report(name, d, first, gbps):
    x, t = d["experts"], d["timings"]
    same = "equal" if d["ids"] == first else "DIFFER"
    print(f"{name}: tokens {same}, {t['decode_tps']:.1f} tokens/s, prompt of {d['prompt_tokens']} "
          f"at {t['prompt_tps']:.0f}, hit rate {x['hit_rate']:.3f}, load {t['load_ms'] / 1000:.1f} s")
    if gbps and x["link_bytes"]:
        mb = x["link_bytes"] / len(d["ids"]) / 1e6
        ms, bound = 1000 / t["decode_tps"], mb / gbps
        print(f"  {mb:.0f} MB a token over the link: {bound:.2f} ms at its rate, took {ms:.2f} ms, "
              f"{ms / bound:.2f} of the bound", flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("-m", "--model", required=True)
    p.add_argument("--mica", default="build/mica")
    p.add_argument("--link", default="build/bench/link_bench")
    p.add_argument("--device", default="cuda:0")
    p.add_argument("--caps", default="0,8G")
    p.add_argument("--how", default="all")
    p.add_argument("-n", "--predict", type=int, default=128)
    p.add_argument("--prompt", type=int, default=40, help="characters")
    p.add_argument("-c", "--context", type=int, default=10240)
    p.add_argument("--pp", default="512,8192")
    p.add_argument("--ubatch", default="512,4096")
    a = p.parse_args()
    a.ubatch = [int(u) for u in a.ubatch.split(",")]
    gbps = link_rate(a)
    first = None
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as f:
        f.write((WORDS * (a.prompt // len(WORDS) + 1))[: a.prompt])
        f.flush()
        for cap in a.caps.split(","):
            for turn in range(1 if cap == "0" else 2):
                d = answer(a, cap, f.name)
                first = first or d["ids"]
                report(f"cap {cap}{', again' if turn else ''}", d, first, gbps)
            for ubatch in a.ubatch:
                s = speeds(a, cap, ubatch)
                print(f"  ubatch {ubatch}: " + ", ".join(f"{k} {v:.1f}" for k, v in s.items()), flush=True)
    if gbps:
        print(f"link: {gbps:.1f} GB/s")


if __name__ == "__main__":
    main()
