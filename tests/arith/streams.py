"""Rules 13 to 15 of docs/ARITHMETIC.md on numpy arrays, made from that page alone, and their cases."""

import numpy as np

import f32
import rules
import seam
from f32 import F, fma

RING = 16
MASK = (1 << 64) - 1


def by_stream(x, n_stream):
    return x.reshape(len(x), n_stream, -1)


def group_norm(x, w, n_group, eps):
    y = rules.rms(by_stream(x, n_group), w.reshape(n_group, -1), eps)
    return y.reshape(len(x), -1)


def hyper_read(xn, gate, n_stream):
    xn, g = by_stream(xn, n_stream), f32.sigmoid(by_stream(gate, n_stream))
    total = np.zeros_like(xn[:, 0])
    for s in range(n_stream):
        total = fma(g[:, s], xn[:, s], total)
    return total / F(n_stream)


def hyper_write(x, y, inject):
    n_stream = inject.shape[1]
    b = F(2) * f32.sigmoid(inject / F(n_stream))
    return fma(b[:, :, None], y[:, None], by_stream(x, n_stream)).reshape(len(x), -1)


def block_key(k, w, first, inv_freq, n_rot, eps):
    """The key of the block of positions whose index keys are k [r, d]."""
    total = k[0]
    for row in k[1:]:
        total = total + row
    key = rules.rms((total / F(len(k)))[None], w, eps)
    i = np.arange(n_rot // 2)
    cs = rules.rope_table([first], inv_freq, 1.0)
    return rules.rotate(key[:, None], cs, (i, i + n_rot // 2))[0, 0]


def selection(q, keys, pos, ratio, budget):
    """None: all positions. q [heads, d], keys [blocks, d]."""
    if pos + 1 <= budget + ratio - 1:
        return None
    n_block = (pos + 1) // ratio
    score = np.zeros(n_block, np.float32)
    for head in q:
        d = rules.partial_sums(head[None], keys[:n_block], 32)
        score = score + np.where(d > 0, d, F(0))
    best = np.sort(np.argsort(-score, kind="stable")[: budget // ratio])
    whole = [ratio * b + j for b in best for j in range(ratio)]
    return np.array(whole + list(range(ratio * n_block, pos + 1)), np.int32)


def ngram_rows(text, pos, size, heads, mult, n_of, first, end):
    ids, cut = [text[pos]], False
    for j in range(1, size):
        cut = cut or pos - j < 0 or text[pos - j] == end
        ids.append(end if cut else text[pos - j])
    out = []
    for n in range(2, size + 1):
        mix = 0
        for j in range(n):
            mix ^= ids[j] * mult[j] & MASK
        for h in range((n - 2) * heads, (n - 1) * heads):
            out.append(mix % n_of[h] + first[h])
    return out


def ngram_gate(key, query, v, n_stream):
    key, query = by_stream(key, n_stream), by_stream(query, n_stream)
    z = rules.partial_sums(key, query, 64) / np.sqrt(F(key.shape[2]))
    root = np.sqrt(np.maximum(np.abs(z), F(1e-6)))
    a = np.where(z > 0, root, np.where(z < 0, -root, F(0)))
    return (f32.sigmoid(a)[:, :, None] * v[:, None]).reshape(len(v), -1)


def conv(u, w, step):
    """u [n, c] from position 0 on, w [c, taps]."""
    y, taps = np.zeros_like(u), w.shape[1]
    for j in range(taps):
        back = (taps - 1 - j) * step
        moved = np.concatenate([np.zeros((min(back, len(u)), u.shape[1]), np.float32), u[: len(u) - back]])
        y = fma(w[None, :, j], moved, y)
    return f32.silu(y)


# ---- cases


def step_of(n, pos0=0, toks=None):
    """One run of n rows from position pos0 on; the arrays are to be kept alive."""
    rows = np.zeros((n, 4), np.int32)
    rows[:, 0] = 0 if toks is None else toks
    rows[:, 2] = np.arange(pos0, pos0 + n)
    runs = np.array([[0, n, 0, 0, 0, 0]], np.int32)
    return rows, runs


def streams(run):
    d, n_row, n_stream, n = seam.Device(run.lib), 3, 4, 96
    wide = n_stream * n
    x, w = run.normal(n_row, wide), run.normal(wide)
    y = seam.Acts(np.zeros_like(x))
    shape = dict(n_row=n_row, n_col=n)
    norm = dict(ld_x=wide, ld_group=n, n_group=n_stream, eps=1e-6, want_q=1, **shape)
    assert d.call("group_norm", y=y.act, x=x, w=w, **norm) == 0
    want = group_norm(x, w, n_stream, 1e-6)
    pairs = [(y.x[:, :wide].copy(), want)]
    pairs.append((y.q[:, :wide].astype(np.int64), rules.activations(want)[0].reshape(n_row, wide)))
    t = run.normal(n_row, 40)
    h = seam.Acts(np.zeros_like(t))
    assert d.call("silu", h=h.act, x=t, n_row=n_row, n_col=40, div=4.0) == 0
    pairs.append((h.x[:, :40].copy(), f32.silu(t / F(4))))
    gate = run.normal(n_row, wide) * F(3)
    m = seam.Acts(np.zeros((n_row, n), np.float32))
    assert d.call("hyper_read", m=m.act, xn=want, gate=gate, ld_xn=wide, n_stream=n_stream, **shape) == 0
    pairs.append((m.x[:, :n].copy(), hyper_read(want, gate, n_stream)))
    out, inject = run.normal(n_row, n), run.normal(n_row, n_stream) * F(4)
    got = x.copy()
    assert d.call("hyper_write", x=got, y=out, inject=inject, n_stream=n_stream, **shape) == 0
    pairs.append((got, hyper_write(x, out, inject)))
    sums = x.copy()
    assert d.call("add", x=sums, a=gate, b=want, n=x.size) == 0
    pairs.append((sums, x + (gate + want)))
    run.case("rule 13: hyper-connections", *pairs)
    d.close()


def index(run):
    d, n, size, n_rot, heads, ratio, budget = seam.Device(run.lib, n_index_keep=16), 90, 64, 16, 3, 4, 40
    k, w, q = run.normal(n, size), run.normal(size), run.normal(n, heads, size)
    q[40:] = np.round(q[40:])  # with ties, where keys tie
    k[20:28] = k[12:20]
    inv_freq = np.array([1e4 ** (-2.0 * i / n_rot) for i in range(n_rot // 2)])
    keys = np.zeros((256 // ratio, size), np.float32)
    ring = np.zeros((RING, size), np.float32)
    table = np.zeros(1, np.int32)
    pages = seam.Pages(seam.ptr(table), 1)
    for first, count in ((0, 30), (30, 1), (31, 2), (33, 57)):
        rows, runs = step_of(count, first)
        part = np.ascontiguousarray(k[first : first + count])
        more = dict(pages=pages, runs=runs, rows=rows, n_run=1, n_row=count, d=size, n_rot=n_rot, ratio=ratio)
        more.update(inv_freq=inv_freq, eps=1e-6, mscale=1.0, ld_seq=ring.size)
        assert d.call("index_keys", index=keys, k=part, w=w, ring=ring, **more) == 0
    want = np.zeros_like(keys)
    for b in range(n // ratio):
        want[b] = block_key(k[ratio * b : ratio * b + ratio], w, ratio * b, inv_freq, n_rot, 1e-6)
    run.case("rule 14: index keys", (keys, want))
    keys[5] = keys[3]  # equal scores for every query
    rows, _ = step_of(n)
    ld = budget + ratio
    sel = np.full((n, ld), -7, np.int32)
    more = dict(pages=pages, rows=rows, ld_sel=ld, n_row=n, n_head=heads, d=size, ratio=ratio)
    assert d.call("index_select", sel=sel, q=q, index=keys, n_keep=budget // ratio, **more) == 0
    pairs = []
    for p in range(n):
        chosen = selection(q[p], keys, p, ratio, budget)
        got = sel[p, :1] if chosen is None else sel[p, : 1 + len(chosen)]
        expect = [-1] if chosen is None else [len(chosen), *chosen]
        pairs.append((got.copy(), np.array(expect, np.int32)))
    run.case("rule 14: selected blocks", *pairs)
    d.close()


def ngrams(run):
    rng, d = run.rng, seam.Device(run.lib)
    size, heads, width, n, end = 3, 4, 32, 60, 2
    n_head = (size - 1) * heads
    mult = rng.integers(1 << 62, 1 << 63, size, dtype=np.uint64)
    n_of = rng.integers(5, 40, n_head).astype(np.uint64)
    first = np.concatenate([[0], np.cumsum(n_of)[:-1]]).astype(np.uint64)
    table = run.normal(int(n_of.sum()), width).astype(np.float16)
    text = rng.integers(0, 6, n).astype(np.int32)
    weight = seam.Weight(seam.ptr(table), None, None, 1, len(table), width)
    ring = np.zeros(RING, np.int32)
    got = []
    for at, count in ((0, 1), (1, 25), (26, 1), (27, 33)):
        rows, runs = step_of(count, at, text[at : at + count])
        e = seam.Acts(np.zeros((count, n_head * width), np.float32))
        more = dict(runs=runs, rows=rows, n_run=1, n_row=count, n_gram=size, n_head=n_head, end=end)
        more.update(ring=ring, ld_seq=RING)
        assert d.call("ngram", e=e.act, table=weight, mult=mult, n_of=n_of, first=first, **more) == 0
        got.append(e.x[:, : n_head * width])
    numbers = [[int(v) for v in a] for a in (mult, n_of, first)]
    want = [
        table[ngram_rows(text.tolist(), p, size, heads, *numbers, end)].astype(np.float32).reshape(-1)
        for p in range(n)
    ]
    run.case("rule 15: n-gram rows", (np.concatenate(got), np.array(want)))
    n_stream, n_col = 4, 100
    wide = n_stream * n_col
    key, query, v = run.normal(n, wide), run.normal(n, wide), run.normal(n, n_col)
    key[3] = 0
    gv = np.empty((n, wide), np.float32)
    shape = dict(ld=wide, n_row=n, n_stream=n_stream, n_col=n_col)
    assert d.call("ngram_gate", gv=gv, key=key, query=query, v=v, **shape) == 0
    w, ring = run.normal(wide, 4), np.zeros((RING, wide), np.float32)
    y = np.empty((n, wide), np.float32)
    for at, count in ((0, 2), (2, 40), (42, 1), (43, n - 43)):
        rows, runs = step_of(count, at)
        more = dict(ring=ring, ld_seq=ring.size, runs=runs, rows=rows, n_run=1, n_row=count, n_col=wide)
        part = slice(at, at + count)
        assert d.call("conv", y=y[part], u=gv[part], w=w, n_tap=4, step=size, **more) == 0
    run.case("rule 15: gates, convolution", (gv, ngram_gate(key, query, v, n_stream)), (y, conv(gv, w, size)))
    d.close()


def cases(run):
    streams(run)
    index(run)
    ngrams(run)
