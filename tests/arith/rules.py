"""Rules 1 and 3 to 11 of docs/ARITHMETIC.md on numpy arrays, made from that page alone."""

import numpy as np

import f32
from f32 import F, f, fma, tree

# ---- rules 1, 3, 4, 5


def activations(x):
    """x [n, K] -> q [n, K/32, 32], d, s [n, K/32], s16 [n, K/32, 2]"""
    b = f(x).reshape(len(x), -1, 32)
    d = np.abs(b).max(2) / F(127)
    d = np.where(d < F(2.0**-126), F(0), d)
    inv = np.where(d > 0, F(1) / d, F(0))
    q = np.clip(np.rint(b * inv[..., None]), -127, 127).astype(np.int64)
    half = q.reshape(*q.shape[:2], 2, 16).sum(3)
    return q, d, d * half.sum(2).astype(np.float32), d[..., None] * half.astype(np.float32)


def segments(n_col):
    unit, n = -(-n_col // 256), -(-n_col // 4096)
    return [(i * unit // n * 256, min((i + 1) * unit // n * 256, n_col)) for i in range(n)]


def products(form, act, at, group):
    """scale * d and integer sums of groups of weights (of 4, 16 or 32), [n_row, n_act, blocks, 32/group]"""
    (qw, scale, _), (qa, d) = form, act[:2]
    qw, qa = qw[:, at], qa[:, at]
    n = qw.shape[1]
    isum = np.einsum("rbgi,abgi->rabg", qw.reshape(len(qw), n, -1, group), qa.reshape(len(qa), n, -1, group))
    wide = np.repeat(scale[:, at], 32 // group // scale.shape[2], 2)
    return wide[:, None] * d[None, :, at, None], isum.astype(np.float32)


def min_sums(form, act, at):
    """min and the sum it multiplies, [n_row, n_act, blocks, n_sub]"""
    low = form[2][:, None, at]
    s = act[3][None, :, at] if low.shape[3] == 2 else act[2][None, :, at, None]
    return np.broadcast_arrays(low, s)


def token(form, act, n_col):
    """[n_act, n_row]"""
    n_row, n_act = len(form[0]), len(act[0])
    total = np.zeros((n_row, n_act), np.float32)
    for begin, end in segments(n_col):
        acc = np.zeros((n_row, n_act, 8, 8), np.float32)
        low = np.zeros((n_row, n_act, 8), np.float32)
        for first in range(begin // 32, end // 32, 8):  # eight blocks touch eight different accumulators
            at = slice(first, min(first + 8, end // 32))
            n = at.stop - at.start
            scale, isum = products(form, act, at, 4)
            acc[:, :, :n] = fma(scale, isum, acc[:, :, :n])
            if form[2] is not None:
                m, s = min_sums(form, act, at)
                for sub in range(m.shape[3]):
                    low[:, :, :n] = fma(m[..., sub], s[..., sub], low[:, :, :n])
        u = tree(acc[:, :, 0::2] + acc[:, :, 1::2], 8)
        total = total + (tree(u, 4) - tree(low[:, :, 0::2] + low[:, :, 1::2], 4))
    return total.T


def prompt(form, act, n_col):
    n_sub = form[1].shape[2]
    acc = np.zeros((len(form[0]), len(act[0])), np.float32)
    for b in range(n_col // 32):
        at = slice(b, b + 1)
        scale, isum = products(form, act, at, 32 // n_sub)
        for sub in range(n_sub):
            acc = fma(scale[:, :, 0, sub], isum[:, :, 0, sub], acc)
            if form[2] is not None:
                m, s = min_sums(form, act, at)
                acc = fma(-m[:, :, 0, sub], s[:, :, 0, sub], acc)
    return acc.T


def token_float(w, x, n_col):
    total = np.zeros((len(w), len(x)), np.float32)
    for begin, end in segments(n_col):
        acc = np.zeros((len(w), len(x), 64), np.float32)
        for c in range(begin, end, 64):
            n = min(64, end - c)
            acc[:, :, :n] = fma(w[:, None, c : c + n], x[None, :, c : c + n], acc[:, :, :n])
        total = total + tree(acc, 64)
    return total.T


def prompt_float(w, x, n_col):
    acc = np.zeros((len(w), len(x)), np.float32)
    for c in range(n_col):
        acc = fma(w[:, None, c], x[None, :, c], acc)
    return acc.T


# ---- rule 8


def partial_sums(a, b, n_part):
    """Sum of a b over the last axis in n_part partial sums, then the tree."""
    a, b = np.broadcast_arrays(a, b)
    part = np.zeros(a.shape[:-1] + (n_part,), np.float32)
    for i in range(0, a.shape[-1], n_part):
        n = min(n_part, a.shape[-1] - i)
        part[..., :n] = fma(a[..., i : i + n], b[..., i : i + n], part[..., :n])
    return tree(part, n_part)


def rms(x, w, eps):
    r = F(1) / np.sqrt(partial_sums(x, x, 64) / F(x.shape[-1]) + F(eps))
    y = x * r[..., None]
    return y if w is None else y * w


def router(logits, n_used, scale):
    ids = np.argsort(-logits, axis=1, kind="stable")[:, :n_used]
    top = np.take_along_axis(logits, ids, 1)
    e = f32.exp(top - top[:, :1])
    total = np.zeros(len(e), np.float32)
    for k in range(n_used):
        total = total + e[:, k]
    w = e / total[:, None]
    return ids, w * F(scale) if scale not in (0, 1) else w


# ---- rules 6 and 9: rope, cache, attention


def rope_table(pos, inv_freq, mscale):
    cs = np.empty((len(pos), len(inv_freq), 2), np.float32)
    for r, p in enumerate(pos):
        for i, w in enumerate(inv_freq):
            s, c = f32.sincos64(float(p) * float(w))
            cs[r, i] = F(c) * F(mscale), F(s) * F(mscale)
    return cs


def rotate(x, cs, pairs):
    """x [n, heads, d]; pairs: two index lists; cs [n, pair, 2]"""
    y = x.copy()
    ia, ib = pairs
    a, b, c, s = x[..., ia], x[..., ib], cs[:, None, :, 0], cs[:, None, :, 1]
    y[..., ia] = fma(a, c, -(b * s))
    y[..., ib] = fma(a, s, b * c)
    return y


def to_cache(x, kind):
    """What the cache holds of x [..., d]: values as float, and the scale of i8 (else None)."""
    if kind == "f32":
        return x, None
    if kind == "f16":
        return np.clip(x, F(-65504), F(65504)).astype(np.float16).astype(np.float32), None
    d = np.abs(x).max(-1) / F(127)
    d = np.where(d < F(2.0**-126), F(0), d)
    inv = np.where(d > 0, F(1) / d, F(0))
    return np.clip(np.rint(x * inv[..., None]), -127, 127).astype(np.float32), d


def attend(q, k, v, positions, scale):
    """One row and head: q [d_k]; k and v are (values [n, d], scale [n] or None); positions ascending."""
    big = None
    for block in sorted({int(p) // 256 for p in positions}):
        at = np.array([p for p in positions if p // 256 == block])
        s = partial_sums(q[None], k[0][at], 32)
        if k[1] is not None:
            s = s * k[1][at]
        s = s * F(scale)
        m = s.max()
        p = f32.exp(s - m)
        total, o = F(0), np.zeros(v[0].shape[1], np.float32)
        w = p if v[1] is None else p * v[1][at]
        for j in range(len(at)):
            total = total + p[j]
            o = fma(w[j], v[0][at[j]], o)
        if big is None:
            big, total_all, out = m, total, o
            continue
        top = max(big, m)
        a, b = f32.exp(big - top), f32.exp(m - top)
        total_all, out, big = total_all * a + total * b, out * a + o * b, top
    return out * (F(1) / total_all)


# ---- rule 7: one token of DeltaNet


def conv(history, u, taps):
    """history [3, n] oldest first, u [n], taps [n, 4] -> silu of the convolution, and the next history"""
    y = np.zeros_like(u)
    for j, x in enumerate([*history, u]):
        y = fma(taps[:, j], x, y)
    return f32.silu(y), np.stack([history[1], history[2], u])


def unit(x):
    """Heads x [n, d] by their length."""
    return x * (F(1) / np.sqrt(partial_sums(x, x, 64) + F(1e-6)))[:, None]


def four_sums(a, b):
    """Sum over the first axis of a [d_k, d_v] times b [d_k] in four partial sums."""
    part = np.zeros((4, a.shape[1]), np.float32)
    for i in range(len(a)):
        part[i % 4] = fma(a[i], b[i], part[i % 4])
    return (part[0] + part[1]) + (part[2] + part[3])


def delta_step(state, q, k, v, decay, beta):
    """One value head: state [d_k, d_v] -> o [d_v], the next state. q, k: unit vectors, q also scaled."""
    s = state * decay
    delta = (v - four_sums(s, k)) * beta
    state = fma(k[:, None], delta[None], s)
    return four_sums(state, q), state


# ---- rules 10 and 11


def philox(seed, pos, draw=0):
    """First word of Philox4x32-10, all in whole numbers."""
    mask = 0xFFFFFFFF
    key = [seed & mask, seed >> 32]
    c = [pos & mask, pos >> 32, draw, 0]
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ key[0], b & mask, (a >> 32) ^ c[3] ^ key[1], a & mask]
        key = [(key[0] + 0x9E3779B9) & mask, (key[1] + 0xBB67AE85) & mask]
    return c[0]


def uniform(seed, pos):
    return F(philox(seed, pos) >> 8) * F(2.0**-24)


def running_sums(z):
    out, done = np.empty_like(z), F(0)
    for i in range(0, len(z), 1024):
        inner = F(0)
        for j in range(i, min(i + 1024, len(z))):
            inner = inner + z[j]
            out[j] = done + inner
        done = done + inner
    return out


def sample(logits, o, history, pos, allowed=None):
    """o: a dictionary of options; the token, or None when nothing may come."""
    l = f(logits).copy()
    for i, bias in o.get("bias", []):
        l[i] = l[i] + F(bias)
    rep, pres, freq = (F(o.get(n, d)) for n, d in (("repeat", 1), ("presence", 0), ("frequency", 0)))
    n = o.get("last_n", 64)
    window = history if n < 0 else history[len(history) - min(n, len(history)) :]
    if rep != 1 or pres != 0 or freq != 0:
        for i in set(window):
            c = F(min(window.count(i), 65535))
            v = l[i] / rep if l[i] > 0 else l[i] * rep
            l[i] = v - fma(c, freq, pres)
    if allowed is not None:
        l = np.where(allowed, l, F(-np.inf))
    order = np.argsort(-l, kind="stable")
    order = order[l[order] > -np.inf]
    if len(order) == 0:
        return None
    t = F(o.get("temperature", 1))
    if t == 0:
        return int(order[0])
    k = o.get("top_k", 0)
    order = order[:k] if k > 0 else order
    z = f32.exp((l[order] - l[order[0]]) / t)
    if F(o.get("top_p", 1)) < 1:
        sums = running_sums(z)
        past = np.nonzero(sums >= F(o["top_p"]) * sums[-1])[0]
        z = z[: past[0] + 1] if len(past) else z
    keep = len(z)
    while keep > 1 and z[keep - 1] < F(o.get("min_p", 0)):
        keep -= 1
    sums = running_sums(z[:keep])
    past = np.nonzero(sums > uniform(o.get("seed", 0), pos) * sums[-1])[0]
    return int(order[past[0] if len(past) else keep - 1])
