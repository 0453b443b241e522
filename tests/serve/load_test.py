#!/usr/bin/env python3
"""Many clients at the same time: every answer is the one of its lone run, nothing is lost, memory stays flat.

    tests/serve/load_test.py [BUILD] [SECONDS] [CLIENTS]

Prompts are short and long, streamed and not, with random cancels in between; the temperature is 0. Prints
percentiles of the time to the first token. Last line: N passed, N failed, N skipped."""

import json
import pathlib
import random
import socket
import sys
import tempfile
import threading
import time

from serving import ask, Bench, Failed, need, parse_events, QWEN3, ROOT

FILLER = "The library keeps many books about stars, plants and machines. "


def prompts():
    out = [
        ask(f"Capital of {c}?", max_tokens=24)
        for c in ("Cyprus", "Iceland", "Romania", "Japan", "Peru", "Oman")
    ]
    out += [ask(f"Count from {n} to {n + 8}.", max_tokens=40) for n in (1, 5, 9, 12)]
    for i in range(6):
        text = (
            FILLER * (4 + 9 * i)
            + f"The secret code of the fox is {2500 + i}.\n\nWhat is the secret code of the fox?"
        )
        out.append(ask(text, max_tokens=24))
    out.append(ask("List 12 countries in Africa with their capitals.", max_tokens=60))
    out.append({**ask("Hi, I am Carlos.", max_tokens=30), "temperature": 1.2, "seed": 4})
    return out


class Load:
    def __init__(self, server, seconds):
        self.s, self.end = server, time.time() + seconds
        self.bodies = prompts()
        self.alone = [self.content(self.s.chat({**b, "cache_prompt": False}).json()) for b in self.bodies]
        self.first, self.errors, self.n, self.n_cancel = [], [], 0, 0
        self.lock = threading.Lock()

    @staticmethod
    def content(v):
        return v["choices"][0]["message"]["content"]

    def stream(self, body, leave):
        """The text of a stream, or None when the client left in its middle."""
        data = json.dumps({**body, "stream": True}).encode()
        start, got = time.time(), b""
        with socket.create_connection(("127.0.0.1", self.s.port), timeout=120) as c:
            c.sendall(
                b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                b"Connection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(data), data)
            )
            first = None
            while chunk := c.recv(65536):
                got += chunk
                if first is None and b'"content":"' in got.replace(b'"content":""', b""):
                    first = time.time() - start
                    if leave:
                        return None
        need(b"200 OK" in got[:30], f"{got[:200]}")
        with self.lock:
            self.first.append(first or time.time() - start)
        body = got.split(b"\r\n\r\n", 1)[1]
        text = b"".join(body.split(b"\r\n")[1::2]).decode()  # the chunks without their sizes
        events = [d for _, d in parse_events(text) if d != "[DONE]"]
        return "".join(e["choices"][0]["delta"].get("content") or "" for e in events)

    def client(self, i):
        rng = random.Random(i)
        while time.time() < self.end and not self.errors:
            k = rng.randrange(len(self.bodies))
            kind = rng.random()
            try:
                if kind < 0.7:
                    got = self.stream(self.bodies[k], leave=kind < 0.1)
                else:
                    got = self.content(self.s.chat(self.bodies[k], timeout=120).json())
                with self.lock:
                    self.n += got is not None
                    self.n_cancel += got is None
                need(got is None or got == self.alone[k], f"prompt {k}: {got!r} instead of {self.alone[k]!r}")
            except Exception as why:
                self.errors.append(f"{type(why).__name__}: {why}")

    def run(self, n):
        threads = [threading.Thread(target=self.client, args=(i,)) for i in range(n)]
        for th in threads:
            th.start()
        memory = []
        while any(th.is_alive() for th in threads):
            time.sleep(0.25)
            memory.append(self.s.rss())
        if self.errors:
            raise Failed(self.errors[0])
        return memory


def main():
    build = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build").resolve()
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 15
    n = int(sys.argv[3]) if len(sys.argv) > 3 else 64
    try:
        with tempfile.TemporaryDirectory(prefix="mica serve ") as tmp:
            with Bench(build, pathlib.Path(tmp)).start("-c", "2048", "--parallel", "8", model=QWEN3) as s:
                load = Load(s, seconds)
                memory = load.run(n)
                s.wait_idle()
                first = sorted(load.first)
                q = {p: first[min(len(first) - 1, int(len(first) * p / 100))] * 1000 for p in (50, 90, 99)}
                half = len(memory) // 2
                grown = max(memory[half:]) - max(memory[: half or 1])
                need(load.n > n, f"only {load.n} answers")
                # Hundreds of answers, each with buffers of more than 64 KiB: kept, they would be far more.
                need(grown < 16 << 20, f"memory grew by {grown} bytes in the second half")
                print(
                    f"ok load ({n} clients, {seconds:.0f} s: {load.n} answers, {load.n_cancel} cancelled, "
                    f"first token p50 {q[50]:.0f} p90 {q[90]:.0f} p99 {q[99]:.0f} ms, "
                    f"memory {max(memory) >> 20} MiB, "
                    f"{grown >> 10:+} KiB in the second half)"
                )
    except (Failed, OSError) as why:
        print(f"FAILED load: {why}")
        print("0 passed, 1 failed, 0 skipped")
        return 1
    print("1 passed, 0 failed, 0 skipped")
    return 0


if __name__ == "__main__":
    sys.exit(main())
