#!/usr/bin/env python3
"""The server's HTTP: who gets in, what a request may be, how it starts and ends.

    tests/serve/http_test.py [BUILD] [WORD]

The numbers in brackets are rows of docs/BUGS_TRIED.md. Last line: N passed, N failed, N skipped."""

import contextlib
import json
import os
import re
import signal
import socket
import sys
import time

from serving import ask, case, main, need, PLAIN, QWEN3

HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def status_of(reply):
    m = re.match(rb"HTTP/1\.1 (\d+)", reply)
    return int(m.group(1)) if m else None


@case
def health_models_props(t):
    s = t.server
    need(s.get("/health").json()["status"] == "ok", "not ok")
    models = s.get("/v1/models").json()
    need(models["object"] == "list" and models["data"][0]["id"] == "fixture-qwen3", f"models: {models}")
    need(
        s.get("/models").json() == models and s.get("//v1//models/").json() == models,
        "other spellings differ",
    )
    need(s.get("/v1/models/fixture-qwen3").json()["id"] == "fixture-qwen3", "one model")
    s.get("/v1/models/other").error(404)
    props = s.get("/props").json()
    need(props["default_generation_settings"]["n_ctx"] == 4096 and props["total_slots"] == 4, f"{props}")
    need(len(s.get("/slots").json()) == 4, "slots")


@case
def unknown_paths_and_methods(t):
    s = t.server
    s.get("/nothing").error(404)
    s.post("/v1/nothing", {}).error(404)
    r = s.get("/v1/chat/completions")
    r.error(405)
    need(r.headers["Allow"] == "POST", f"Allow: {r.headers['Allow']}")
    s.request("DELETE", "/v1/models").error(405)
    s.request("BREW", "/v1/models").error(405)
    s.request("POST", "/v1/messages", b"x", {"Content-Type": "text/plain"}).error(415)
    s.request(
        "POST", "/v1/chat/completions", json.dumps(PLAIN).encode(), {"Content-Type": "text/plain"}
    ).error(415)
    r = s.request("HEAD", "/health")
    need(r.status == 200 and r.body == b"", "HEAD")
    for path in ("/..", "/../etc/passwd", "/%2e%2e/x", "/a%00b", "/" + "x" * 3000, "/web/../../x"):
        need(s.get(path).status in (400, 404), f"{path[:30]}: {s.get(path).status}")


@case
def malformed_bodies(t):
    """[2, 11] Nothing of these ends the server, and the refusal itself is clean JSON."""
    s = t.server
    deep = json.dumps(PLAIN)[:-1] + ', "tools": ' + "[" * 3000 + "]" * 3000 + "}"
    bad = [
        b"",
        b"{",
        b"[]",
        b"nonsense",
        b'{"messages": [], "messages": []}',
        b'{"prompt":"\xff\xfe"}',
        b'{"prompt":"\xc0\xaf"}',
        b'{"prompt":"\\ud800"}',
        b'{"prompt":"x","n":1e999}',
        b'{"prompt":"x","seed":9223372036854775808}',
        deep.encode(),
    ]
    for body in bad:
        for path in ("/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses", "/tokenize"):
            s.post(path, body).error(400)
    need(
        s.post("/v1/completions", b'{"prompt":"a\\u0000b","max_tokens":1}').status == 200,
        "a NUL is a character",
    )


@case
def big_bodies(t):
    """[11] 413, whether the length is told before or not; the server reads and throws away."""
    with t.start("--max-body", "100K") as s:
        s.post("/v1/completions", json.dumps({"prompt": "x" * 200000}).encode()).error(413)
        chunk = b"186a0\r\n" + b"x" * 100000 + b"\r\n"
        reply = s.raw(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 3 + b"0\r\n\r\n", wait=False)
        need(status_of(reply) == 413, f"chunked: {reply[:100]}")
        big = s.post("/v1/completions", b"x" * 50_000_000)
        big.error(413)
        reply = s.raw(HEAD + b"Content-Length: 300000000\r\nExpect: 100-continue\r\n\r\n", wait=False)
        need(status_of(reply) == 413, f"expect: {reply[:100]}")
        need(s.rss() < 400 << 20, f"memory: {s.rss()}")
        s.plain()


@case
def many_big_bodies(t):
    """Many large bodies at the same time have a bound together; small ones go on; the space comes back."""
    with t.start() as s:
        held = []
        for _ in range(40):
            c = socket.create_connection(("127.0.0.1", s.port), timeout=20)
            c.sendall(HEAD + b"Content-Length: 16000000\r\n\r\n" + b"x" * 10_000_000)
            held.append(c)
        time.sleep(0.5)
        need(s.rss() < 600 << 20, f"memory: {s.rss() >> 20} MiB")
        s.plain()
        held[-1].sendall(b"x" * 6_000_000)
        need(status_of(held[-1].recv(4096)) == 503, "the last one is taken all the same")
        for c in held:
            c.close()
        end = time.time() + 10
        while s.post("/v1/completions", b"x" * 15_000_000).status != 400:
            need(time.time() < end, "the space is not free again")
            time.sleep(0.2)


@case
def chunked_bodies_and_lengths(t):
    """[12] Chunks of any size; two lengths are refused."""
    s = t.server
    body = json.dumps(PLAIN).encode()
    ones = b"".join(b"1\r\n%c\r\n" % b for b in body) + b"0\r\n\r\n"
    good = b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    need(status_of(s.raw(HEAD + good + ones)) == 200, "chunks of one byte")
    extended = b"%x;x=y\r\n%s\r\n0\r\nX-Trailer: 1\r\n\r\n" % (len(body), body)
    need(status_of(s.raw(HEAD + good + extended)) == 200, "an extension and a trailer")
    for size in (b"FFFFFFFFFFFFFFFF", b"-1", b"xyz", b"10000000000000000"):
        got = status_of(s.raw(HEAD + good + size + b"\r\n" + body, wait=False))
        need(got in (400, 413, None), f"size {size}: {got}")  # None: the connection was closed
    both = b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n" % len(body)
    need(status_of(s.raw(HEAD + both + ones, wait=False)) == 400, "both lengths")
    twice = b"Content-Length: %d\r\nContent-Length: 3\r\n\r\n" % len(body)
    need(status_of(s.raw(HEAD + twice + body, wait=False)) == 400, "two lengths")


@case
def odd_heads(t):
    s = t.server
    need(
        status_of(
            s.raw(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 100000 + b"\r\n\r\n", wait=False)
        )
        in (400, 413, 431, 494, None),
        "a long header",
    )
    need(status_of(s.raw(b"NONSENSE\r\n\r\n", wait=False)) in (400, None), "no request line")
    need(status_of(s.raw(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", wait=False)) in (400, None), "TLS")
    two = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2
    need(s.raw(two, wait=False).count(b"HTTP/1.1 200") == 2, "two requests in one piece")


@case
def host_and_origin_without_a_key(t):
    """[13] A page of others cannot use the server, by name or by origin; its own page can."""
    s = t.server
    for host in ("evil.example", "127.0.0.1.evil.example", "localhost@evil.example"):
        s.get("/v1/models", headers={"Host": host}).error(403, "Host")
        s.chat(PLAIN, headers={"Host": host}).error(403)
    for host in ("localhost", "127.0.0.1:1", "[::1]:80", "LocalHost:99"):
        need(s.get("/v1/models", headers={"Host": host}).status == 200, host)
    s.chat(PLAIN, headers={"Origin": "http://evil.example"}).error(403, "Origin")
    r = s.chat(PLAIN, headers={"Origin": f"http://127.0.0.1:{s.port}"})
    need(r.status == 200 and r.headers["Access-Control-Allow-Origin"] is None, "its own page")
    r = s.request("OPTIONS", "/v1/chat/completions", headers={"Origin": "http://evil.example"})
    need(r.status == 403 and r.headers["Access-Control-Allow-Origin"] is None, f"preflight: {r.status}")


@case
def keys_and_cors(t):
    """[13] A key opens it; preflights need none; only listed origins get CORS headers."""
    keys = t.tmp / "keys"
    keys.write_text("# keys\nfrom-a-file\n\n")
    with t.start(
        "--api-key", "sesame", "--api-key-file", keys, "--allow-origin", "https://chat.example"
    ) as s:
        e = s.chat(PLAIN).error(401)
        need(e["code"] == "invalid_api_key", f"{e}")
        s.chat(PLAIN, headers={"Authorization": "Bearer wrong"}).error(401)
        v = s.post("/v1/messages", {}, headers={"X-Api-Key": "wrong"}).json(401)
        need(v["type"] == "error" and v["error"]["type"] == "authentication_error", f"{v}")
        for h in ({"Authorization": "Bearer sesame"}, {"X-Api-Key": "from-a-file"}):
            need(s.chat(PLAIN, headers=h).status == 200, f"{h}")
        need(s.get("/health").status == 200 and s.get("/metrics").status == 401, "open and closed paths")
        listed = {"Origin": "https://chat.example"}
        r = s.request("OPTIONS", "/v1/chat/completions", headers=listed)
        need(
            r.status == 204 and r.headers["Access-Control-Allow-Origin"] == "https://chat.example",
            "preflight",
        )
        need("authorization" in r.headers["Access-Control-Allow-Headers"], "headers")
        r = s.chat(PLAIN, headers={**listed, "Authorization": "Bearer sesame"})
        need(r.status == 200 and r.headers["Access-Control-Allow-Origin"] == "https://chat.example", "answer")
        r = s.chat(PLAIN, headers={"Origin": "http://evil.example", "Authorization": "Bearer sesame"})
        need(r.headers["Access-Control-Allow-Origin"] is None, "another origin may not read")
        need("sesame" not in "\n".join(s.lines()), "a key in the log")


@case
def nothing_private_in_the_log(t):
    with t.start() as s:
        word = "Zanzibarquux"
        s.chat(ask(word))
        s.chat({"messages": [{"role": word, "content": word}]})
        s.post("/v1/completions", b'{"prompt": "' + word.encode() + b'" broken')
        s.get(f"/{word}")
        s.get("/v1/models", headers={"Authorization": f"Bearer {word}"})
        need(word not in "\n".join(s.lines()), "text of a request in the log")
        need(
            any("POST /v1/chat/completions 200" in l for l in s.lines()),
            f"no line of the request: {s.lines()}",
        )


@case
def request_ids(t):
    s = t.server
    r = s.chat(PLAIN, headers={"X-Request-Id": "my-id.7"})
    need(r.headers["x-request-id"] == "my-id.7", "not given back")
    r = s.chat(PLAIN, headers={"X-Request-Id": "two words"})
    need(
        re.fullmatch(r"req_[0-9a-f]{24}", r.headers["x-request-id"]),
        "an id that could break a log is replaced",
    )
    r = s.post("/v1/messages", {})
    need(
        r.headers["request-id"].startswith("req_") and r.json(400)["request_id"] == r.headers["request-id"],
        "id",
    )


@case
def port_in_use(t):
    """[42] Found before the model is loaded, with an exit code of its own."""
    import subprocess

    s = t.server
    p = subprocess.run(
        [t.mica, "serve", "-m", "/nowhere.gguf", "--port", str(s.port)],
        capture_output=True,
        text=True,
        env=t.env,
    )
    need(p.returncode == 8 and str(s.port) in p.stderr, f"{p.returncode}: {p.stderr}")
    p = subprocess.run(
        [t.mica, "serve", "-m", str(QWEN3), "--port", "70000"], capture_output=True, text=True, env=t.env
    )
    need(p.returncode == 2, f"port 70000: {p.returncode}")
    p = subprocess.run(
        [t.mica, "serve", "-m", str(QWEN3), "--host", "192.0.2.1"], capture_output=True, text=True, env=t.env
    )
    need(p.returncode == 2 and "key" in p.stderr, f"no key: {p.stderr}")
    p = subprocess.run(
        [t.mica, "serve", "-m", str(QWEN3), "--host", "192.0.2.1", "--insecure"],
        capture_output=True,
        text=True,
        env=t.env,
    )
    need(p.returncode == 2 and "192.0.2.1" in p.stderr, f"not our address: {p.stderr}")


@case
def slow_senders(t):
    """Half a request has a deadline, whether it stands still or drips; it is told 408."""
    with t.start("--receive-timeout", "2") as s:
        need(status_of(s.raw(HEAD + b"Content-Length: 100\r\n\r\n{", timeout=8)) == 408, "a body that stops")
        got = b""
        with socket.create_connection(("127.0.0.1", s.port), timeout=30) as c:
            with contextlib.suppress(OSError):
                for _ in range(600):  # far beyond the deadline; without one the last byte is sent too
                    if got:
                        break
                    c.sendall(b"G")
                    c.settimeout(0.2)
                    with contextlib.suppress(socket.timeout):
                        got = c.recv(1000)
        need(status_of(got) == 408, "a head that drips is read for ever")
        s.plain()


@case
def thousand_half_requests(t):
    """1,000 connections that send half a request and vanish, or stay: others are served meanwhile."""
    s = t.server
    before, fds = s.rss(), len(os.listdir(f"/proc/{s.process.pid}/fd"))
    held = []
    for i in range(1000):
        c = socket.create_connection(("127.0.0.1", s.port), timeout=10)
        c.sendall(HEAD + b"Content-Length: 500\r\n\r\n" + b"{" * (i % 7))
        held.append(c)
        if i % 2:
            c.close()
    s.plain()  # while they all are open
    for c in held:
        c.close()
    end = time.time() + 10
    while time.time() < end and len(os.listdir(f"/proc/{s.process.pid}/fd")) > fds + 4:
        time.sleep(0.05)
    need(len(os.listdir(f"/proc/{s.process.pid}/fd")) <= fds + 4, "descriptors are left open")
    need(s.rss() < before + (64 << 20), f"memory grew from {before} to {s.rss()}")


@case
def slow_readers(t):
    """A client that asks and does not read holds nothing but its slot, and is left in the end."""
    with t.start("--stall-timeout", "2", "-c", "4096") as s:
        body = json.dumps(
            {"prompt": "Once", "max_tokens": 4000, "stream": True, "ignore_eos": True, "logprobs": 20}
        ).encode()
        c = socket.socket()
        c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        c.connect(("127.0.0.1", s.port))
        c.sendall(
            b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
        )
        time.sleep(0.5)
        need(s.plain(), "others are answered")
        s.wait_idle(30)
        need(
            s.metric('vllm:request_success_total{finished_reason="abort"}') == 1, "it was answered to the end"
        )
        c.close()


@case
def metrics_are_valid(t):
    """[47] Directly after the start, too."""
    with t.start() as s:
        for _ in range(2):
            r = s.get("/metrics")
            need(r.headers["Content-Type"] == "text/plain; version=0.0.4", r.headers["Content-Type"])
            need("nan" not in r.text.lower().replace("finance", ""), "nan")
            for line in r.text.splitlines():
                need(
                    line.startswith("#")
                    or re.fullmatch(r'[a-z0-9_:]+(\{[a-z_]+="[^"]*"\})? [0-9.e+-]+', line),
                    line,
                )
            s.plain()
        need(
            s.metric("llamacpp:tokens_predicted_total") > 0 and s.metric("vllm:prompt_tokens_total") > 0,
            "counts",
        )


@case
def while_loading(t):
    """503 with Retry-After until the model is there; the port answers at once."""
    with t.start("--device", "ref", wait=False) as s:
        s.port = int(s.wait_for(r"listening on http://\S+:(\d+)").group(1))
        seen = set()
        while not any("ready:" in l for l in s.lines()):
            r = s.chat(PLAIN)
            seen.add(r.status)
            if r.status == 503:
                need(r.headers["Retry-After"], "no Retry-After")
                need(s.get("/health").status in (200, 503), "health")
        need(seen <= {200, 503}, f"{seen}")


@case
def drains_and_ends(t):
    """[43] First SIGTERM: what runs comes to its end, new requests get 503. Second: at once. "
    "Idle: at once."""
    with t.start() as s:
        need(s.end() == 143, f"idle: {s.process.returncode}")
    with t.start() as s:
        need(s.end(signal.SIGINT) == 130, "Ctrl-C")
    for twice in (False, True):
        with t.start() as s:
            c = socket.create_connection(("127.0.0.1", s.port), timeout=30)
            body = json.dumps(
                {"prompt": "Once", "max_tokens": 300, "stream": True, "ignore_eos": True}
            ).encode()
            c.sendall(
                b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
            )
            got = c.recv(65536)
            s.process.send_signal(signal.SIGTERM)
            s.wait_for("ending")
            if twice:
                s.process.send_signal(signal.SIGTERM)
                s.process.wait(60)
                need(s.process.returncode == 143, f"second: {s.process.returncode}")
                continue
            s.chat(PLAIN).error(503)
            s.get("/health").error(503, "about to end")
            with contextlib.suppress(OSError):
                while chunk := c.recv(65536):
                    got += chunk
            need(b"[DONE]" in got, "the running answer was cut off")
            s.process.wait(10)
            need(s.process.returncode == 143, f"{s.process.returncode}")


if __name__ == "__main__":
    sys.exit(main())
