"""What the tests of the server share: starting and ending it, raw HTTP, event streams, cases and their count.

Every server listens on a port that the system chose, on loopback. A case that needs no flags of its own gets
the one server of the run (`t.server`), which has to answer a plain request the same as before afterwards."""

import contextlib
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "tests" / "fixtures"
QWEN3 = FIXTURES / "qwen3.q4_k_m.gguf"
HYBRID = FIXTURES / "qwen3_5.q4_k_m.gguf"
LLAMA = FIXTURES / "llama.q4_k_m.gguf"
GEMMA = FIXTURES / "gemma4.q4_k_m.gguf"
JSON = {"Content-Type": "application/json"}
PLAIN = {
    "messages": [{"role": "user", "content": "Capital of Cyprus?"}],
    "temperature": 0,
    "enable_thinking": False,
}

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


def ask(text, **more):
    """A chat request at temperature 0, without thinking."""
    return {
        "messages": [{"role": "user", "content": text}],
        "temperature": 0,
        "enable_thinking": False,
        **more,
    }


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body
        self.text = body.decode("utf-8", "strict")

    def json(self, status=200):
        need(self.status == status, f"status {self.status} instead of {status}: {self.text[:300]}")
        return json.loads(self.text)

    def error(self, status, *words):
        """This status, and an error object of either shape with these words in it."""
        v = self.json(status)
        need(
            isinstance(v.get("error"), dict) and v["error"].get("message"),
            f"no error object: {self.text[:200]}",
        )
        for w in words:
            need(w in self.text, f'no "{w}" in {self.text[:300]}')
        return v["error"]

    def events(self):
        """[(event name or None, data)] of a stream; data parsed, but for [DONE]."""
        need(self.status == 200, f"status {self.status}: {self.text[:300]}")
        return parse_events(self.text)


def parse_events(text):
    out = []
    for block in text.split("\n\n"):
        name = data = None
        for line in block.split("\n"):
            if line.startswith("event: "):
                name = line[7:]
            elif line.startswith("data: "):
                data = line[6:]
            else:
                need(line == "" or line.startswith(":"), f"odd line in the stream: {line[:100]}")
        if data is not None:
            out.append((name, data if data == "[DONE]" else json.loads(data)))
    return out


class Server:
    def __init__(self, bench, *flags, model=QWEN3, wait=True, env=None):
        self.log = tempfile.TemporaryFile()
        argv = [bench.mica, "serve", "-m", str(model), "--port", "0", *map(str, flags)]
        self.process = subprocess.Popen(
            argv, stdout=subprocess.DEVNULL, stderr=self.log, stdin=subprocess.DEVNULL, env=env or bench.env
        )
        self.port = None
        if wait:
            self.wait()

    def lines(self):
        self.log.seek(0)
        return self.log.read().decode("utf-8", "replace").splitlines()

    def wait_for(self, pattern, seconds=60):
        end = time.time() + seconds
        while time.time() < end:
            for line in self.lines():
                m = re.search(pattern, line)
                if m:
                    return m
            need(self.process.poll() is None, f"the server ended: {self.lines()[-3:]}")
            time.sleep(0.02)
        raise Failed(f"no {pattern} in {self.lines()[-5:]}")

    def wait(self):
        self.port = int(self.wait_for(r"listening on http://\S+:(\d+)").group(1))
        self.wait_for(r"ready: ")
        return self

    def request(self, method, path, body=None, headers=None, timeout=60):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        if isinstance(body, (dict, list)):
            body = json.dumps(body).encode()
        h = dict(JSON) if body is not None else {}
        h.update(headers or {})
        try:
            c.request(method, path, body=body, headers=h)
            r = c.getresponse()
            return Answer(r.status, r.headers, r.read())
        finally:
            c.close()

    def get(self, path, **kw):
        return self.request("GET", path, **kw)

    def post(self, path, body, **kw):
        return self.request("POST", path, body, **kw)

    def chat(self, body, **kw):
        return self.post("/v1/chat/completions", body, **kw)

    def raw(self, data, timeout=20, wait=True):
        """Bytes on a socket; what comes back until the other side closes or is silent for a second."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout) as s:
            with contextlib.suppress(OSError):
                s.sendall(data)
            out = b""
            s.settimeout(timeout if wait else 1)
            with contextlib.suppress(OSError):
                while chunk := s.recv(65536):
                    out += chunk
                    if re.search(rb"\r\n\r\n", out) and not wait:
                        s.settimeout(0.3)
            return out

    def metric(self, name):
        for line in self.get("/metrics").text.splitlines():
            if line.startswith(name + " "):
                return float(line.split()[-1])
        raise Failed(f"no metric {name}")

    def busy(self):
        return sum(s["is_processing"] for s in self.get("/slots").json())

    def wait_idle(self, seconds=10):
        end = time.time() + seconds
        while time.time() < end:
            h = self.get("/health").json()
            if h["slots_processing"] == 0 and h["requests_waiting"] == 0:
                return
            time.sleep(0.01)
        raise Failed("slots are still at work")

    def plain(self):
        return self.chat(PLAIN).json()["choices"][0]["message"]["content"]

    def rss(self):
        text = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", text).group(1)) * 1024

    def end(self, how=signal.SIGTERM, seconds=20):
        if self.process.poll() is None:
            self.process.send_signal(how)
            try:
                self.process.wait(seconds)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise Failed(f"the server did not end on {how}") from None
        return self.process.returncode

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.log.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Bench:
    def __init__(self, build, tmp):
        self.mica, self.build, self.tmp = str(build / "mica"), build, tmp
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp),
            "MICA_HOME": str(tmp / "cache"),
            "LC_ALL": "C.UTF-8",
        }
        for k in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS", "TSAN_OPTIONS"):
            if k in os.environ:
                self.env[k] = os.environ[k]
        self.shared = None

    @property
    def server(self):
        if self.shared is None or self.shared.process.poll() is not None:
            self.shared = Server(self, "--state-dir", self.tmp / "state")
            self.before = self.shared.plain()
        return self.shared

    def start(self, *flags, **kw):
        return Server(self, *flags, **kw)


def together(n, fn):
    """fn(0) .. fn(n-1) at the same time; their results, or the first failure."""
    out, errors = [None] * n, []

    def one(i):
        try:
            out[i] = fn(i)
        except Exception as why:
            errors.append(why)

    threads = [threading.Thread(target=one, args=(i,)) for i in range(n)]
    for th in threads:
        th.start()
    for th in threads:
        th.join()
    if errors:
        raise errors[0]
    return out


def attempt(fn, t):
    try:
        fn(t)
        if t.shared is not None:
            need(t.shared.process.poll() is None, f"the server died: {t.shared.lines()[-3:]}")
            t.shared.wait_idle()
            need(t.shared.plain() == t.before, "a plain request gets another answer than before")
        return None
    except Skip as why:
        return f"skip: {fn.__name__}: {why}"
    except Failed as why:
        return f"FAILED {fn.__name__}: {why}"
    except Exception as why:  # a result of another shape than expected
        return f"FAILED {fn.__name__}: {type(why).__name__}: {str(why)[:300]}"


def main():
    """SCRIPT [BUILD] [WORD]: BUILD holds the program, WORD picks the cases that hold it."""
    build = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build").resolve()
    word = sys.argv[2] if len(sys.argv) > 2 else ""
    count = {"ok": 0, "FAILED": 0, "skip:": 0}
    with tempfile.TemporaryDirectory(prefix="mica serve ") as tmp:
        t = Bench(build, pathlib.Path(tmp))
        for fn in CASES:
            if word not in fn.__name__:
                continue
            start = time.time()
            line = attempt(fn, t) or f"ok {fn.__name__} ({time.time() - start:.1f} s)"
            count[line.split()[0]] += 1
            print(line, flush=True)
        if t.shared is not None:
            t.shared.close()
    print(f"{count['ok']} passed, {count['FAILED']} failed, {count['skip:']} skipped")
    return 1 if count["FAILED"] or not count["ok"] else 0
