"""What the tests of the net room share: a server on loopback that misbehaves when told to, a cache folder,
cases and how they are counted."""

import concurrent.futures
import hashlib
import http.server
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(ROOT, sys.argv[1] if len(sys.argv) > 1 else "build")
WORD = sys.argv[2] if len(sys.argv) > 2 else ""
MAIN = os.path.join(BUILD, "tests", "net", "net_main")
# mica_status, in the order of mica_status.h
OK, ARG, IO, FORMAT, UNSUPPORTED, FIT, NOMEM, DEVICE, NETWORK, BUSY, CANCELLED, INTERNAL = range(12)
CASES = []


def case(fn):
    CASES.append(fn)
    return fn


class Skip(Exception):
    pass


def model(n=300_000, seed=1):
    """Bytes that look like a GGUF file from outside and repeat nowhere."""
    out = b"GGUF" + b"".join(hashlib.sha256(b"%d.%d" % (seed, i)).digest() for i in range(n // 32 + 1))
    return out[:n]


class Server:
    """Loopback server. routes: path -> function(handler) or bytes. Requests are kept for the checks."""

    def __init__(self, host="127.0.0.1"):
        self.routes, self.requests = {}, []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                path = self.path.split("?")[0]
                outer.requests.append((self.path, dict(self.headers)))
                self.close_connection = True
                what = outer.routes.get(path)
                try:
                    if what is None:
                        self.reply(404, b"no such thing")
                    elif isinstance(what, bytes):
                        self.serve(what)
                    else:
                        what(self)
                except (BrokenPipeError, ConnectionResetError):
                    pass

            def log_message(self, *args):
                pass

            def reply(self, code, body=b"", headers=(), length=None):
                self.send_response(code)
                for k, v in headers:
                    self.send_header(k, v)
                if length is not False:
                    self.send_header("Content-Length", str(len(body) if length is None else length))
                self.send_header("Connection", "close")
                self.end_headers()
                self.wfile.write(body)

            def start(self):
                """Where the asked range starts, 0 without one."""
                m = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
                return int(m.group(1)) if m else 0

            def serve(self, data, etag='"v1"', stop=None, ranges=True, delay=0.0, headers=()):
                """A good server: ranges, If-Range. stop: closes when so many bytes of the file were sent."""
                at = self.start()
                if self.headers.get("If-Range") not in (None, etag) or not ranges:
                    at = 0
                if at >= len(data):
                    self.reply(416, b"", [("Content-Range", f"bytes */{len(data)}")])
                    return
                head = [("ETag", etag)] if etag else []
                if at:
                    head.append(("Content-Range", f"bytes {at}-{len(data) - 1}/{len(data)}"))
                self.reply(206 if at else 200, b"", head + list(headers), length=len(data) - at)
                end = len(data) if stop is None else min(stop, len(data))
                while at < end:
                    n = min(16384, end - at)
                    self.wfile.write(data[at : at + n])
                    self.wfile.flush()
                    at += n
                    if delay:
                        time.sleep(delay)

        class Http(http.server.ThreadingHTTPServer):
            address_family = socket.AF_INET
            daemon_threads = True

        self.http = Http((host, 0), Handler)
        self.port = self.http.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def close(self):
        self.http.shutdown()
        self.http.server_close()

    def gets(self, path):
        return [h for p, h in self.requests if p.split("?")[0] == path]


class World:
    """One case: a cache folder, servers, and ways to call the program."""

    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="net test \u00fc ")
        self.home = os.path.join(self.dir, "home")
        self.servers = []
        self.token = None

    def server(self):
        self.servers.append(Server())
        return self.servers[-1]

    def close(self):
        for s in self.servers:
            s.close()
        subprocess.run(["chmod", "-R", "u+rwx", self.dir], check=False)
        shutil.rmtree(self.dir)

    def env(self, **more):
        e = {"PATH": os.environ["PATH"], "MICA_HOME": self.home, "no_proxy": "*"}
        if self.servers:
            e["HF_ENDPOINT"] = self.servers[0].url
        if self.token:
            e["HF_TOKEN"] = self.token
        e.update(more)
        return {k: v for k, v in e.items() if v is not None}

    def start(self, *args, env=None, uid=None):
        """uid: as another user, for whom permissions count."""
        become = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"] if uid else []
        return subprocess.Popen(
            [*become, MAIN, *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            stdin=subprocess.DEVNULL,
            env=env or self.env(),
        )

    def run(self, *args, env=None, **kw):
        p = self.start(*args, env=env, **kw)
        try:
            out, errors = p.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            p.kill()
            raise AssertionError(f"{args}: still running after 60 s")
        lines = [x for x in errors.splitlines() if x.startswith("error: ")]
        assert len(lines) == (p.returncode != 0), f"{args}: exit {p.returncode}, stderr {errors!r}"
        return p.returncode, out.strip(), errors

    def good(self, *args, **kw):
        rc, out, errors = self.run(*args, **kw)
        assert rc == OK, f"{args}: status {rc}: {errors}"
        return out

    def bad(self, want, text, *args, **kw):
        """Must fail with this status and these words."""
        rc, out, errors = self.run(*args, **kw)
        assert rc == want, f"{args}: status {rc}, wanted {want}: {errors}"
        assert re.search(text, errors), f"{args}: {text!r} is not in {errors!r}"
        assert out == "", f"{args}: printed {out!r}"
        return errors

    def has(self, path, data):
        with open(path, "rb") as f:
            assert f.read() == data, f"{path} has other bytes"
        assert not os.path.exists(path + ".partial"), "a partial file is left"

    def files(self):
        """Every file under the case's folder but locks and manifests."""
        out = []
        for folder, _, names in os.walk(self.dir):
            out += [os.path.relpath(os.path.join(folder, n), self.home) for n in names]
        return sorted(
            n for n in out if not os.path.basename(n).startswith(".lock-") and not n.endswith("pull.json")
        )

    def hub(self, files, repo="Org/Repo-GGUF", sha=True):
        """A hub with this repository: {path: bytes}. Returns the server."""
        s = self.server()
        rows = [{"type": "directory", "path": "sub", "size": 0}]
        for path, data in files.items():
            row = {"type": "file", "path": path, "size": len(data), "oid": "0" * 40}
            if sha:
                row["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
            rows.append(row)
            s.routes[f"/{repo}/resolve/main/{path}"] = data
        s.rows = rows
        s.routes[f"/api/models/{repo}/tree/main"] = lambda h: h.reply(200, json.dumps(rows).encode())
        return s


def wait_until(cond, what, seconds=20):
    end = time.monotonic() + seconds
    while not cond():
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.01)


def partial_bytes(w):
    names = [n for n in w.files() if n.endswith(".partial")]
    return os.path.getsize(os.path.join(w.home, names[0])) if names else 0


def run_case(fn):
    w = World()
    try:
        fn(w)
        return "ok", fn.__name__
    except Skip as s:
        return "skip", f"{fn.__name__}: {s}"
    except Exception as e:  # a case's failure is a result, whatever it is
        return "FAILED", f"{fn.__name__}: {type(e).__name__}: {e}"
    finally:
        w.close()


def main():
    counts = {"ok": 0, "FAILED": 0, "skip": 0}
    if not os.access(MAIN, os.X_OK):
        print(f"FAILED {MAIN} is not built")
        print("0 passed, 1 failed, 0 skipped")
        return 1
    # Most of a case is waiting: for retries, slow servers, the end of a program.
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for word, rest in pool.map(run_case, [fn for fn in CASES if WORD in fn.__name__]):
            print(word + ":" * (word == "skip"), rest)
            counts[word] += 1
    print("{ok} passed, {FAILED} failed, {skip} skipped".format(**counts))
    return 1 if counts["FAILED"] or not counts["ok"] else 0
