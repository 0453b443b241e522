#!/usr/bin/env python3
"""What serving costs over running, and what a crowd, a kept prefix and a long prompt do to the speed.

    bench/serve_bench.py [--only stream,crowd,prefix,long] [--rounds 5] [--threads 2] [--big FILE]
        [--small FILE]

    stream   tokens a second of a streamed answer, in turns with `mica run` (bar: 97 % of it)
    crowd    tokens a second of 8 clients together, in turns with one (bar: 3 times)
    prefix   first token of 1,000 tokens of which 950 were read before, against none (bar: 15 %)
    long     speed of an answer while a prompt of 3,000 tokens is read, against before (bar: half)

The big file is a synthetic Llama of 1B shape (Q4_K_M, made in --folder), the small one SmolLM2-135M (Q4_1
of mica's cache). Everything is measured by the client, on loopback. Rows are medians of the rounds (smallest
to largest), with the cores that other processes used in the worst of them. Prints a table for MEASURED.md.
Exit 1 when a bar is missed."""

import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / "serve"), str(ROOT / "bench")]
from peers import busy_seconds, default_files, spread  # noqa: E402
from serving import Bench, JSON, Server  # noqa: E402

import http.client  # noqa: E402

TOPICS = "the sea,a town,the night,old books,a long road,bread,winter,a machine,rivers,a garden".split(",")


class Stream:
    """One streamed answer: when each event with text came, and how many tokens there were."""

    def __init__(self, port, body, started=None):
        body = {"temperature": 0, "ignore_eos": True, "stream": True, **body}
        body["stream_options"] = {"include_usage": True}
        c = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
        self.times, self.usage, self.started = [], None, started
        self.start = time.monotonic()
        c.request("POST", "/v1/completions", json.dumps(body).encode(), JSON)
        r = c.getresponse()
        if r.status != 200:
            raise SystemExit(f"status {r.status}: {r.read()[:300]}")
        while line := r.readline():
            if not line.startswith(b"data: {"):
                continue
            v = json.loads(line[6:])
            if v.get("usage"):
                self.usage = v["usage"]
            if v["choices"] and v["choices"][0]["text"]:
                self.times.append(time.monotonic())
                if started and len(self.times) == 1:
                    started.set()
        c.close()
        self.end = time.monotonic()

    @property
    def first(self):
        return self.times[0] - self.start

    @property
    def n(self):
        return self.usage["completion_tokens"]

    @property
    def rate(self):
        """Tokens a second after the first."""
        return (self.n - 1) / (self.times[-1] - self.times[0])

    @property
    def cached(self):
        return self.usage["prompt_tokens_details"]["cached_tokens"]


class Quiet:
    """Cores that neither this program nor its children used."""

    def __init__(self, server):
        self.pid, self.worst = server.process.pid, 0.0
        self.mark()

    def own(self):
        text = pathlib.Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        now = os.times()
        ticks = (int(text[11]) + int(text[12])) / os.sysconf("SC_CLK_TCK")
        return ticks + now.user + now.system + now.children_user + now.children_system

    def mark(self):
        self.then = time.monotonic(), busy_seconds(), self.own()

    def look(self):
        wall, busy, own = (a - b for a, b in zip((time.monotonic(), busy_seconds(), self.own()), self.then))
        self.worst = max(self.worst, (busy - own) / wall)
        self.mark()


def flags(a, *more):
    return ["-t", a.threads, "--draft", "off", *more]


def run_rate(bench, a, path, prompt, n):
    """The same of `mica run`: a line of JSON for each token."""
    argv = [bench.mica, "run", "-m", path, "-p", prompt, "--raw", "--json", "--temp", "0", "--ignore-eos"]
    argv += ["-n", str(n), "-c", "2048", *map(str, flags(a))]
    times = []
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=bench.env) as p:
        for line in p.stdout:
            v = json.loads(line)
            if v["type"] == "token" and v["text"]:
                times.append(time.monotonic())
    return (len(v["ids"]) - 1) / (times[-1] - times[0]), v["text"]


def stream(bench, a):
    prompt, n = "A story about the sea", a.gen
    whole, runs = [], []
    with Server(bench, "-c", 2048, *flags(a), model=a.big) as s:
        quiet = Quiet(s)
        for k in range(a.rounds):
            for kind in ("run", "stream") if k % 2 else ("stream", "run"):
                if kind == "run":
                    runs.append(run_rate(bench, a, a.big, prompt, n)[0])
                else:
                    whole.append(Stream(s.port, {"prompt": prompt, "max_tokens": n}).rate)
            quiet.look()
    ratio = statistics.median(whole) / statistics.median(runs)
    return "streamed against run", spread(whole), spread(runs), ratio, ratio >= 0.97, quiet.worst


def crowd(bench, a):
    def one(i, k, out):
        text = f"{k}. Once upon a time somebody told me about {TOPICS[i]}, and I"
        out.append(Stream(s.port, {"prompt": text, "max_tokens": a.gen}))

    def together(n, k):
        out = []
        threads = [threading.Thread(target=one, args=(i, k, out)) for i in range(n)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        return sum(x.n for x in out) / (max(x.end for x in out) - min(x.start for x in out))

    alone, all8 = [], []
    with Server(bench, "-c", 1024, "--parallel", 8, *flags(a), model=a.small) as s:
        quiet = Quiet(s)
        for k in range(a.rounds):
            alone.append(together(1, 2 * k))
            all8.append(together(8, 2 * k + 1))
            quiet.look()
    ratio = statistics.median(all8) / statistics.median(alone)
    return "8 clients against one", spread(all8), spread(alone), ratio, ratio >= 3, quiet.worst


def prefix(bench, a, own):
    """own: the slot that read the prefix goes on; else it has read another text meanwhile."""
    rng = random.Random(1)

    def ids(n):
        return [rng.randrange(1000, 40000) for _ in range(n)]

    cold, warm = [], []
    with Server(bench, "-c", 2048, "--parallel", 1, *flags(a), model=a.small) as s:
        quiet = Quiet(s)
        for _ in range(a.rounds):
            shared = ids(950)
            before = Stream(s.port, {"prompt": shared + ids(50), "max_tokens": 2})
            if not own:
                Stream(s.port, {"prompt": ids(1000), "max_tokens": 2})
            after = Stream(s.port, {"prompt": shared + ids(50), "max_tokens": 2})
            if before.cached or after.cached != 950:
                raise SystemExit(f"cached: {before.cached} and {after.cached} tokens instead of 0 and 950")
            cold.append(before.first * 1000)
            warm.append(after.first * 1000)
            quiet.look()
    ratio = statistics.median(warm) / statistics.median(cold)
    name = f"950 of 1,000 cached in {'its own slot' if own else 'RAM'}, ms to the first token"
    return name, spread(warm), spread(cold), ratio, ratio < 0.15, quiet.worst


def long(bench, a):
    """Tokens a second of one answer in the seconds before a long prompt comes, and until it is read."""
    rng = random.Random(2)
    before, during = [], []
    with Server(bench, "-c", 8192, "--parallel", 2, *flags(a), model=a.small) as s:
        quiet = Quiet(s)
        for k in range(a.rounds):
            out, started = [], threading.Event()
            body = {"prompt": f"{k}. A very long story about {TOPICS[k % len(TOPICS)]}", "max_tokens": 3500}
            t = threading.Thread(target=lambda: out.append(Cut(s.port, body, started)))
            t.start()
            started.wait(60)
            time.sleep(4)
            prompt = [rng.randrange(1000, 40000) for _ in range(3000)]
            other = Stream(s.port, {"prompt": prompt, "max_tokens": 1})
            Cut.stop = True
            t.join()
            Cut.stop = False
            times = out[0].times
            during.append(per_second(times, other.start, other.times[0]))
            before.append(per_second(times, other.start - 3, other.start))
            s.wait_idle()
            quiet.look()
    ratio = statistics.median(during) / statistics.median(before)
    name = "an answer while 3,000 tokens are read"
    return name, spread(during), spread(before), ratio, ratio >= 0.5, quiet.worst


class Cut:
    """A streamed answer that is left as soon as nobody needs it: when its events came."""

    stop = False

    def __init__(self, port, body, started):
        body = {"temperature": 0, "ignore_eos": True, "stream": True, **body}
        c = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
        c.request("POST", "/v1/completions", json.dumps(body).encode(), JSON)
        r, self.times = c.getresponse(), []
        while not Cut.stop and (line := r.readline()):
            if line.startswith(b"data: {"):
                self.times.append(time.monotonic())
                started.set()
        c.close()


def per_second(times, begin, end):
    return sum(begin < t <= end for t in times) / (end - begin)


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--only", default="stream,crowd,prefix,long")
    ap.add_argument("--folder", default=os.path.join(os.path.expanduser("~"), ".cache", "mica-peers"))
    ap.add_argument("--build", default=str(ROOT / "build"))
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--threads", type=int, default=2)
    ap.add_argument("--gen", type=int, default=128)
    ap.add_argument("--big")
    ap.add_argument("--small")
    a = ap.parse_args()
    if not (a.big and a.small):
        os.makedirs(a.folder, exist_ok=True)
        small, big = default_files(a.folder)
        a.small, a.big = a.small or small, a.big or big
    kinds = {
        "stream": [stream],
        "crowd": [crowd],
        "prefix": [lambda b, a: prefix(b, a, True), lambda b, a: prefix(b, a, False)],
        "long": [long],
    }
    good = True
    print(f"{a.rounds} rounds in turns, {a.threads} threads, medians (smallest-largest), tokens a second\n")
    print("| what | measured | against | ratio | bar | others' cores |")
    print("| --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory(prefix="mica bench ") as tmp:
        bench = Bench(pathlib.Path(a.build).resolve(), pathlib.Path(tmp))
        for kind in a.only.split(","):
            for fn in kinds[kind]:
                name, mine, against, ratio, met, others = fn(bench, a)
                good &= met
                word = "met" if met else "MISSED"
                print(f"| {name} | {mine} | {against} | {ratio:.3f} | {word} | {others:.2f} |", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
