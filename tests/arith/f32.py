"""Exact binary32 arithmetic on numpy arrays: + - * / and sqrt are numpy's own (each rounds once, denormals
kept); fma and the elementary functions of docs/ARITHMETIC.md rule 9 are here. Made from that page alone.
"""

import math
from fractions import Fraction

import numpy as np

F = np.float32
np.seterr(all="ignore")


def f(x):
    return np.asarray(x, dtype=np.float32)


def fma(a, b, c):
    """a b + c rounded once. The product of two f32 is exact in f64; the sum is rounded to odd there, so that
    the second rounding (to 24 bits or fewer) is the only one that counts (Boldo and Melquiond, 2005)."""
    p = np.multiply(np.asarray(a, np.float64), np.asarray(b, np.float64))
    c = np.asarray(c, np.float64)
    s = p + c
    v = s - p
    err = (p - (s - v)) + (c - v)
    even = (s.view(np.int64) & 1) == 0
    fix = (err != 0) & even & np.isfinite(s) & np.isfinite(err)
    if np.any(fix):
        s = np.where(fix, np.nextafter(s, np.where(err > 0, np.inf, -np.inf)), s)
    return s.astype(np.float32)


def bits(x):
    return f(x).view(np.uint32)


def unbits(u):
    return np.asarray(u, np.uint32).view(np.float32)


def tree(p, n):
    """p[..., n]: pairwise at distance 1, 2, 4, ..."""
    while n > 1:
        p = p[..., 0:n:2] + p[..., 1:n:2]
        n //= 2
    return p[..., 0]


def h(text):
    return F(float.fromhex(text))


# ---- rule 9, f32


def horner(x, first, *rest):
    q = np.full_like(x, h(first))
    for c in rest:
        q = fma(q, x, h(c))
    return q


def pow2(n):
    """2^n of integers in f32's normal range."""
    return unbits(((n + 127) << 23).astype(np.uint32))


def parts(x, xlo):
    x, xlo = np.broadcast_arrays(f(x), f(xlo))
    x = np.where(x < F(-110), F(-110), x)
    x = np.where(x > F(89), F(89), x)
    t = fma(x, h("0x1.715476p+0"), h("0x1.8p+23"))
    n = t - h("0x1.8p+23")
    ni = (bits(t) - np.uint32(0x4B400000)).view(np.int32)
    hi = fma(n, h("-0x1.62e4p-1"), x)
    lo = fma(n, h("-0x1.7f7d1cp-20"), xlo)
    r = hi + lo
    q = horner(r, "0x1.6ac6e2p-10", "0x1.123de2p-7", "0x1.555858p-5", "0x1.55548cp-3", "0x1.fffffcp-2")
    q = fma(q, r * r, lo)
    g = hi + q
    p = F(1) + g
    plo = g - (p - F(1))
    n1 = ni >> 1
    return p, plo, pow2(n1), pow2(ni - n1)


def exp(x):
    p, _, s1, s2 = parts(x, F(0))
    return p * s1 * s2


def log1p_k(v, k):
    s = v / (F(2) + v)
    z = s * s
    q = horner(z, "0x1.f08cfcp-3", "0x1.b72b5cp-3", "0x1.250512p-2", "0x1.9996d8p-2", "0x1.555558p-1")
    hh = F(0.5) * v * v
    a = fma(z, q, hh)
    b = fma(s, a, k * h("0x1.7f7d1cp-20"))
    return fma(k, h("0x1.62e4p-1"), v - (hh - b))


def log(x):
    x = f(x)
    small = x < h("0x1p-126")
    y = np.where(small, x * h("0x1p+23"), x)
    ki = (bits(y) - np.uint32(0x3F3504F3)).view(np.int32) >> 23
    v = unbits(bits(y) - (ki << 23).astype(np.uint32)) - F(1)
    r = log1p_k(v, ki.astype(np.float32) - np.where(small, F(23), F(0)))
    r = np.where(x == 0, F(-np.inf), r)
    r = np.where(x < 0, F(np.nan), r)
    return np.where((x == np.inf) | np.isnan(x), x, r)


def gate(x, v, vlo):
    x, v, vlo = np.broadcast_arrays(f(x), f(v), f(vlo))
    neg = v < 0
    p, plo, s1, s2 = parts(np.where(neg, v, -v), np.where(neg, vlo, -vlo))
    one, zero = F(1), F(0)
    num, numlo = np.where(neg, p, one), np.where(neg, plo, zero)
    t1, t2 = np.where(neg, s1, one), np.where(neg, s2, one)
    ex = p * s1 * s2
    den = one + ex
    denlo = fma(plo * s1, s2, ex - (den - one))
    inv = one / den
    y = num * inv
    rest = fma(-y, denlo, fma(-y, den, num) + numlo)
    y = fma(rest, inv, y)
    return x * y * t1 * t2


def sigmoid(x):
    return gate(F(1), x, F(0))


def silu(x):
    x = f(x)
    x = np.where(x < F(-110), F(-110), x)
    return gate(x, x, F(0))


def gelu(x):
    x = f(x)
    x = np.where(x < F(-11), F(-11), x)
    y = np.where(x > F(11), F(11), x)
    c1, c2 = h("0x1.988454p+0"), h("0x1.2444f2p-4")
    sq = y * y
    sqlo = fma(y, y, -sq)
    a = c2 * sq
    alo = fma(c2, sq, -a)
    alo = fma(c2, sqlo, alo)
    alo = fma(h("0x1.49b16ap-29"), sq, alo)
    t = c1 + a
    back = t - c1
    tlo = ((c1 - (t - back)) + (a - back)) + (alo - h("0x1.857936p-25"))
    v = y * t
    return gate(x, v, fma(y, tlo, fma(y, t, -v)))


def tanh(x):
    x = f(x)
    a = np.abs(x)
    z = a * a
    q = horner(z, "-0x1.750ce4p-8", "0x1.51f8cep-6", "-0x1.b835a4p-5", "0x1.1106f6p-3", "-0x1.555532p-2")
    near = fma(a * z, q, a)
    p, _, s1, s2 = parts(F(2) * a, F(0))
    far = F(1) - F(2) / (p * s1 * s2 + F(1))
    return np.copysign(np.where(a < F(0.625), near, far), x)


def softplus(x):
    x = f(x)
    return np.where(x > 0, x, F(0)) + log1p_k(exp(-np.abs(x)), F(0))


# ---- rule 9, f64: one number at a time


def fma64(a, b, c):
    if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(c)):
        return a * b + c
    r = Fraction(a) * Fraction(b) + Fraction(c)
    return float(r) if r else a * b + c


def bits64(x):
    return int(np.float64(x).view(np.uint64))


def unbits64(u):
    return float(np.uint64(u).view(np.float64))


def poly64(q, x, consts):
    for c in consts:
        q = fma64(q, x, c)
    return q


def exp64(x):
    x = max(-760.0, min(710.0, x))
    t = fma64(x, float.fromhex("0x1.71547652b82fep+0"), float.fromhex("0x1.8p+52"))
    n = t - float.fromhex("0x1.8p+52")
    ni = bits64(t) - 0x4338000000000000
    hi = fma64(n, float.fromhex("-0x1.62e42fefa3p-1"), x)
    lo = n * float.fromhex("-0x1.3de6af278ece6p-42")
    r = hi + lo
    q = poly64(1 / math.factorial(13), r, [1 / math.factorial(k) for k in range(12, 1, -1)])
    q = fma64(q, r * r, lo)
    n1 = ni >> 1
    return (1.0 + (hi + q)) * 2.0**n1 * 2.0 ** (ni - n1)


def log64(x):
    ki = (bits64(x) - 0x3FE6A09E667F3BCD) >> 52
    v = unbits64((bits64(x) - (ki << 52)) & (2**64 - 1)) - 1.0
    k = float(ki)
    s = v / (2.0 + v)
    z = s * s
    q = poly64(2 / 23, z, [2 / (2 * i + 1) for i in range(10, 0, -1)])
    hh = 0.5 * v * v
    b = fma64(s, fma64(z, q, hh), k * float.fromhex("0x1.3de6af278ece6p-42"))
    return fma64(k, float.fromhex("0x1.62e42fefa3p-1"), v - (hh - b))


def pow64(b, y):
    return exp64(y * log64(b))


def sincos64(x):
    t = fma64(x, float.fromhex("0x1.45f306dc9c883p-1"), float.fromhex("0x1.8p+52"))
    n = t - float.fromhex("0x1.8p+52")
    quadrant = bits64(t) & 3
    r = fma64(n, float.fromhex("-0x1.921fb54p+0"), x)
    r = fma64(n, float.fromhex("-0x1.10b46118p-30"), r)
    r = fma64(n, float.fromhex("-0x1.313198a2e037p-61"), r)
    z = r * r
    fact = math.factorial
    a = poly64(1 / fact(17), z, [(-1) ** (k // 2) / fact(k) for k in range(15, 2, -2)])
    s = fma64(r * z, a, r)
    b = poly64(1 / fact(16), z, [(-1) ** (k // 2) / fact(k) for k in range(14, 3, -2)])
    hh = 0.5 * z
    w = 1.0 - hh
    c = w + fma64(z * z, b, (1.0 - w) - hh)
    if quadrant & 1:
        s, c = c, s
    return (-s if quadrant & 2 else s), (-c if quadrant in (1, 2) else c)
