#!/usr/bin/env python3
"""packaging/haproxy.cfg, as it is but for its addresses, before two servers.

    tests/serve/scaling_test.py [BUILD] [WORD]

Without haproxy everything is a skip. Last line: N passed, N failed, N skipped."""

import contextlib
import http.client
import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

from serving import ask, case, Failed, JSON, main, need, PLAIN, QWEN3, ROOT, Server, Skip

CONFIG = ROOT / "packaging" / "haproxy.cfg"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Front:
    """HAProxy before servers that listen on `ports`."""

    def __init__(self, t, ports):
        if not shutil.which("haproxy", path="/usr/sbin:/usr/bin"):
            raise Skip("no haproxy")
        self.port, state, text = free_port(), free_port(), CONFIG.read_text()
        text = text.replace("bind :8000", f"bind 127.0.0.1:{self.port}").replace(":8404", f":{state}")
        socket_path = str(t.tmp / "ha").replace(" ", "\\ ")
        text = text.replace("/run/haproxy/mica.sock", socket_path)
        for i, port in enumerate(ports):
            text, n = re.subn(rf"server m{i + 1} \S+", f"server m{i + 1} 127.0.0.1:{port}", text)
            need(n == 1, "the config has another shape")
        path = t.tmp / "haproxy.cfg"
        path.write_text(text)
        self.process = subprocess.Popen(
            ["haproxy", "-db", "-f", str(path)], env={"PATH": "/usr/sbin:/usr/bin"}, stdout=subprocess.DEVNULL
        )

    def __enter__(self):
        for _ in range(500):
            with contextlib.suppress(OSError):
                if self.ask(1, PLAIN)[0] == 200:
                    return self
            time.sleep(0.02)
        self.__exit__()
        raise Failed("no answer through haproxy")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def open(self, talk, body):
        """The response to a chat request of conversation `talk`, still to be read."""
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        head = {**JSON, "Host": "localhost"} | ({"X-Conversation-Id": f"talk {talk}"} if talk else {})
        c.request("POST", "/v1/chat/completions", json.dumps(body).encode(), head)
        return c.getresponse()

    def ask(self, talk, body):
        """Status, which server, the answer."""
        r = self.open(talk, body)
        data = r.read()
        return r.status, r.headers.get("X-Mica-Server"), json.loads(data) if r.status == 200 else data


@contextlib.contextmanager
def pair(t):
    """Two servers and haproxy before them: front, {name: server}."""
    with contextlib.ExitStack() as all:
        servers = [all.enter_context(Server(t, "--parallel", 8, "-c", 1024, model=QWEN3)) for _ in range(2)]
        front = all.enter_context(Front(t, [s.port for s in servers]))
        yield front, {"m1": servers[0], "m2": servers[1]}


def homes(front, talks, body):
    """Which server each conversation lives on, by a request of each."""
    out = {}
    for talk in talks:
        status, name, _ = front.ask(talk, body)
        need(status == 200, f"status {status}")
        out[talk] = name
    return out


@case
def config_is_valid(t):
    if not shutil.which("haproxy", path="/usr/sbin:/usr/bin"):
        raise Skip("no haproxy")
    p = subprocess.run(["/usr/sbin/haproxy", "-c", "-f", str(CONFIG)], capture_output=True, text=True)
    need(p.returncode == 0 and "WARNING" not in p.stderr, p.stderr)


@case
def conversations_stay(t):
    """A conversation's requests go to one server, which has read what came before; both servers have some."""
    with pair(t) as (front, _):
        first = homes(front, range(1, 17), PLAIN)
        need(set(first.values()) == {"m1", "m2"}, f"{first}")
        need(homes(front, range(1, 17), PLAIN) == first, "conversations moved")
        # Nothing is said of the conversation: its beginning tells.
        names = set()
        for k in range(12):
            # A system prompt of everybody, one of its own, none.
            system = f"{'' if k < 4 else k} You are a helpful assistant. " * 8
            hello = {"role": "user", "content": f"Hi, I am Carlos. {k}"}
            talk = [{"role": "system", "content": system}, hello]
            if k >= 8:
                talk = [{"role": "user", "content": f"{k} {system}"}]
            status, one, v = front.ask(None, {**PLAIN, "messages": talk, "max_tokens": 20})
            need(status == 200, f"{k}: {status} {v}")
            talk += [v["choices"][0]["message"], {"role": "user", "content": "Capital of Cyprus?"}]
            status, two, v = front.ask(None, {**PLAIN, "messages": talk, "max_tokens": 20})
            need(status == 200 and one == two, f"{k}: the second turn went elsewhere: {status}")
            need(v["usage"]["prompt_tokens_details"]["cached_tokens"] > 50, f"{v['usage']}")
            names.add(one)
        need(names == {"m1", "m2"}, f"{names}")


def stream(front, talk, body, out, started):
    """(server, text, came to its end) of a streamed answer."""
    text, whole, r = "", False, front.open(talk, {**body, "stream": True})
    with contextlib.suppress(OSError, http.client.HTTPException):
        while line := r.readline():
            whole |= line == b"data: [DONE]\n"
            if line.startswith(b"data: {") and (choices := json.loads(line[6:]).get("choices")):
                text += choices[0]["delta"].get("content") or ""
                if text:
                    started.release()
    out[talk] = r.headers.get("X-Mica-Server"), text, whole


@case
def a_server_dies_under_load(t):
    """Only its running streams end; the next request of its conversations is answered by the other."""
    body = ask("List 12 countries in Africa with their capitals.", max_tokens=300, ignore_eos=True)
    with pair(t) as (front, servers):
        alone = servers["m1"].chat(body).json()["choices"][0]["message"]["content"]
        home, out, started = homes(front, range(1, 13), PLAIN), {}, threading.Semaphore(0)
        threads = [threading.Thread(target=stream, args=(front, k, body, out, started)) for k in home]
        for th in threads:
            th.start()
        for _ in range(40):
            need(started.acquire(timeout=60), "the streams do not begin")
        servers["m2"].process.kill()
        servers["m2"].process.wait()
        # At once, while haproxy may not know of it yet: conversations of the dead one are answered.
        lost = [k for k in home if home[k] == "m2"]
        need(lost and len(lost) < len(home), f"{home}")
        for k in lost:
            status, name, v = front.ask(k, PLAIN)
            need((status, name) == (200, "m1"), f"{status} by {name}")
            need(v["choices"][0]["message"]["content"] == "Nicosia.", f"{v}")
        for th in threads:
            th.join()
        for k, (name, text, whole) in out.items():
            need(name == home[k], f"conversation {k} was on {name}")
            need(whole == (name == "m1"), f"conversation {k} on {name}: whole {whole}")
            need(text == alone if whole else alone.startswith(text), f"conversation {k}: {text[:80]!r}")


@case
def a_server_ends_in_order(t):
    """SIGTERM: what runs comes to its end, new requests go to the other; then it comes back."""
    body = ask("List 12 countries in Africa with their capitals.", max_tokens=600, ignore_eos=True)
    with pair(t) as (front, servers):
        home, out, started = homes(front, range(1, 13), PLAIN), {}, threading.Semaphore(0)
        mine = [k for k in home if home[k] == "m2"]
        th = threading.Thread(target=stream, args=(front, mine[0], body, out, started))
        th.start()
        need(started.acquire(timeout=60), "the stream does not begin")
        port = servers["m2"].port
        servers["m2"].process.send_signal(signal.SIGTERM)
        servers["m2"].wait_for("ending")
        end = time.time() + 10
        while front.ask(mine[1], PLAIN)[:2] != (200, "m1"):
            need(time.time() < end, "haproxy does not see that it ends")
            time.sleep(0.1)
        need(homes(front, mine, PLAIN) == {k: "m1" for k in mine}, "they did not all move")
        th.join()
        need(out[mine[0]][2], "the running stream was cut off")
        servers["m2"].process.wait(20)
        with Server(t, "--parallel", 8, "-c", 1024, "--port", port, model=QWEN3):
            end = time.time() + 15
            while front.ask(mine[0], PLAIN)[1] != "m2":
                need(time.time() < end, "it does not come back")
                time.sleep(0.2)
            need(homes(front, home, PLAIN) == home, "conversations are not where they were")


if __name__ == "__main__":
    sys.exit(main())
