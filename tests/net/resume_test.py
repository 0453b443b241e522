#!/usr/bin/env python3
"""Downloads that stop and go on: what is kept, what is asked for again, and that two files never become one.

    tests/net/resume_test.py [BUILD] [WORD]    BUILD: folder with net_main; WORD: only cases that hold it
Prints ok, FAILED or skip for each case; last line: N passed, N failed, N skipped."""

import json
import os
import sys
import time

from loopback import NETWORK, case, main, model, partial_bytes, wait_until


@case
def drop_at_half_goes_on(w):
    s, data = w.server(), model()
    s.routes["/A.gguf"] = lambda h: h.serve(data, stop=150_000 if not h.start() else None)
    w.has(w.good("pull", s.url + "/A.gguf"), data)
    ranges = [(h.get("Range"), h.get("If-Range")) for h in s.gets("/A.gguf")]
    assert ranges == [(None, None), ("bytes=150000-", '"v1"')], ranges


@case
def many_drops_with_progress_arrive(w):
    s, data = w.server(), model(160_000)
    s.routes["/A.gguf"] = lambda h: h.serve(data, stop=h.start() + 20_000)
    w.has(w.good("pull", s.url + "/A.gguf"), data)
    assert len(s.requests) == 8, len(s.requests)


@case
def range_ignored_starts_over(w):
    s, data = w.server(), model()
    s.routes["/A.gguf"] = lambda h: h.serve(data, ranges=False, stop=150_000 if not h.start() else None)
    w.has(w.good("pull", s.url + "/A.gguf"), data)


@case
def range_ignored_and_dropped_for_ever_ends(w):
    s, data = w.server(), model()
    s.routes["/A.gguf"] = lambda h: h.serve(data, ranges=False, stop=150_000)
    w.bad(NETWORK, r"A\.gguf: download: ", "pull", s.url + "/A.gguf")
    assert 4 <= len(s.requests) <= 8, len(s.requests)
    assert [n for n in w.files() if n.endswith(".gguf")] == [], w.files()
    assert json.loads(w.good("list"))[0]["complete"] is False


@case
def wrong_range_is_refused(w):
    s, data = w.server(), model()

    def liar(h):
        if not h.start():
            h.serve(data, stop=150_000)
        else:
            h.reply(206, data[100_000:], [("Content-Range", f"bytes 100000-{len(data) - 1}/{len(data)}")])

    s.routes["/A.gguf"] = liar
    w.bad(NETWORK, "a range from 100000, asked was 150000", "pull", s.url + "/A.gguf")


@case
def announced_longer_than_sent(w):
    s, data = w.server(), model()
    s.routes["/A.gguf"] = lambda h: h.reply(
        206 if h.start() else 200,
        data[h.start() :],
        [("Content-Range", f"bytes {h.start()}-{len(data) + 999}/{len(data) + 1000}")] if h.start() else [],
        length=len(data) - h.start() + 1000,
    )
    w.bad(NETWORK, r"A\.gguf: download: ", "pull", s.url + "/A.gguf")
    assert [n for n in w.files() if n.endswith(".gguf")] == [], w.files()


@case
def changed_between_runs_starts_over(w):
    s, old, new = w.server(), model(seed=1), model(seed=2)
    s.routes["/A.gguf"] = lambda h: h.serve(old, stop=h.start() + (150_000 if not h.start() else 0))
    w.bad(NETWORK, "download: ", "pull", s.url + "/A.gguf")
    assert [n for n in w.files() if n.endswith(".partial")], w.files()
    s.routes["/A.gguf"] = lambda h: h.serve(new, etag='"v2"')
    w.has(w.good("pull", s.url + "/A.gguf"), new)
    assert s.gets("/A.gguf")[-1].get("If-Range") == '"v1"'


def if_range_ignored(data, **head):
    """A server that knows ranges and not If-Range: it sends the rest of whatever it has now. head: etag,
    modified, total (another length than the truth in Content-Range)."""

    def serve(h):
        at, total = h.start(), head.get("total", len(data))
        names = [("ETag", head.get("etag")), ("Last-Modified", head.get("modified"))]
        lines = [(k, v) for k, v in names if v]
        if at >= len(data):
            h.reply(416, b"", [("Content-Range", f"bytes */{len(data)}")])
        elif at:
            h.reply(206, data[at:], lines + [("Content-Range", f"bytes {at}-{len(data) - 1}/{total}")])
        else:
            h.reply(200, data, lines)

    return serve


@case
def if_range_ignored_starts_over(w):
    """Whatever tells the two files apart: another ETag, another date, another length, or nothing at all."""
    day = "Mon, 01 Jan 2024 00:00:0%d GMT"
    old = model(seed=1)
    for i, (first, second, n) in enumerate(
        (
            ({"etag": '"v1"'}, {"etag": '"v2"'}, 300_000),
            ({"modified": day % 1}, {"modified": day % 2}, 300_000),
            ({"etag": '"v1"'}, {"etag": '"v1"'}, 310_000),  # an ETag that does not follow the content
            ({"etag": '"v1"'}, {"modified": day % 1}, 300_000),
            ({"etag": '"v1"'}, {}, 300_000),
            ({"etag": '"v1"'}, {"etag": '"v2"'}, 150_000),  # as long as what is here
            ({"etag": '"v1"'}, {"etag": '"v2"'}, 100_000),  # shorter than what is here
        )
    ):
        s, new, name = w.server(), model(n, seed=2), f"/A{i}.gguf"
        names = (("ETag", first.get("etag")), ("Last-Modified", first.get("modified")))
        head = [(k, v) for k, v in names if v]

        def drops(h):
            if h.start():
                h.reply(503, b"")
            else:
                h.reply(200, old[:150_000], head, length=len(old))

        s.routes[name] = drops
        w.bad(NETWORK, "the server answers 503", "pull", s.url + name)
        s.routes[name] = if_range_ignored(new, **second)
        before = len(s.requests)
        w.has(w.good("pull", s.url + name), new)
        asked = [h.get("Range") for _, h in s.requests[before:]]
        assert asked == ["bytes=150000-", None], f"{first} {second} {n}: {asked}"


@case
def if_range_ignored_goes_on_with_the_same_file(w):
    s, data = w.server(), model()
    s.routes["/A.gguf"] = lambda h: (
        h.reply(503, b"") if h.start() else h.serve(data, etag='"v1"', stop=150_000)
    )
    w.bad(NETWORK, "the server answers 503", "pull", s.url + "/A.gguf")
    s.routes["/A.gguf"] = if_range_ignored(data, etag='"v1"')
    w.has(w.good("pull", s.url + "/A.gguf"), data)
    assert s.gets("/A.gguf")[-1].get("Range") == "bytes=150000-"


@case
def changed_in_one_run_is_fetched_whole(w):
    """Between two tries of one pull, to another length; and a server that never settles ends it."""
    s, old, new = w.server(), model(seed=1), model(310_000, seed=2)
    s.routes["/A.gguf"] = lambda h: (
        h.serve(old, etag='"v1"', stop=150_000)
        if len(s.requests) == 1
        else if_range_ignored(new, etag='"v2"')(h)
    )
    w.has(w.good("pull", s.url + "/A.gguf"), new)
    n = len(s.requests)

    def restless(h):
        data, etag = model(seed=len(s.requests)), f'"v{len(s.requests)}"'
        if h.start():
            if_range_ignored(data, etag=etag)(h)
        else:
            h.serve(data, etag=etag, stop=150_000)

    s.routes["/B.gguf"] = restless
    w.bad(NETWORK, r"B\.gguf: download: ", "pull", s.url + "/B.gguf")
    assert len(s.requests) - n <= 12, len(s.requests)


@case
def killed_pull_goes_on(w):
    """Nothing is saved when a program is killed: what tells the file apart was saved before its bytes."""
    s, data = w.server(), model(600_000)
    s.routes["/A.gguf"] = lambda h: h.serve(data, delay=0.05)
    p = w.start("pull", s.url + "/A.gguf")
    end = time.monotonic() + 20
    while not [n for n in w.files() if n.endswith(".partial")] and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(0.3)
    p.kill()
    p.communicate()
    s.routes["/A.gguf"] = data
    w.has(w.good("pull", s.url + "/A.gguf"), data)
    last = s.gets("/A.gguf")[-1]
    assert last.get("Range") and last.get("If-Range") == '"v1"', last


@case
def without_validator_nothing_is_mixed(w):
    s, old, new = w.server(), model(seed=1), model(seed=2)
    s.routes["/A.gguf"] = lambda h: h.serve(
        old, etag=None, stop=h.start() + (150_000 if not h.start() else 0)
    )
    w.bad(NETWORK, "download: ", "pull", s.url + "/A.gguf")
    s.routes["/A.gguf"] = lambda h: h.serve(new, etag=None)
    w.has(w.good("pull", s.url + "/A.gguf"), new)
    assert s.gets("/A.gguf")[-1].get("Range") is None


@case
def finished_but_not_renamed(w):
    s, data = w.server(), model()
    s.routes["/A.gguf"] = lambda h: h.serve(data, stop=h.start() + (150_000 if not h.start() else 0))
    w.bad(NETWORK, "download: ", "pull", s.url + "/A.gguf")
    partial = os.path.join(w.home, next(n for n in w.files() if n.endswith(".partial")))
    with open(partial, "wb") as f:
        f.write(data)
    s.routes["/A.gguf"] = data
    w.has(w.good("pull", s.url + "/A.gguf"), data)


@case
def partial_longer_than_the_file(w):
    s, data = w.server(), model()
    s.routes["/A.gguf"] = lambda h: h.serve(data, stop=h.start() + (150_000 if not h.start() else 0))
    w.bad(NETWORK, "download: ", "pull", s.url + "/A.gguf")
    partial = os.path.join(w.home, next(n for n in w.files() if n.endswith(".partial")))
    with open(partial, "wb") as f:
        f.write(data + b"more")
    s.routes["/A.gguf"] = data
    w.has(w.good("pull", s.url + "/A.gguf"), data)


@case
def killed_in_the_middle_goes_on(w):
    data = model(3_000_000)
    s = w.hub({"M-Q4_K_M.gguf": data})
    route = "/Org/Repo-GGUF/resolve/main/M-Q4_K_M.gguf"
    s.routes[route] = lambda h: h.serve(data, delay=0.02)
    p = w.start("pull", "hf:Org/Repo-GGUF")
    wait_until(lambda: partial_bytes(w) > 200_000, "some bytes")
    p.kill()
    p.communicate()
    n = partial_bytes(w)
    s.routes[route] = data
    w.has(w.good("pull", "hf:Org/Repo-GGUF"), data)
    assert s.gets(route)[-1]["Range"] == f"bytes={n}-"


if __name__ == "__main__":
    sys.exit(main())
