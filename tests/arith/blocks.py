"""The integer form of every weight type (docs/ARITHMETIC.md rule 2), made from that page alone: bytes to
signed numbers, scales and minima, many blocks at a time. The code tables are the one thing shared with the C
(codebook_data.h).
"""

import pathlib
import re

import numpy as np

from f32 import F, f

ROOT = pathlib.Path(__file__).resolve().parents[2]
T = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113])
M = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12])
J = np.arange(32)
K = np.arange(8)[:, None]
L = J // 8  # group of 8
HALF = J // 16


def load_grids():
    text = (ROOT / "src/quant/codebook_data.h").read_text()
    codes = {}
    for name, body in re.findall(r"#define QUANT_CODES_(\w+)\(X\)((?:.*\\\n)*.*\n)", text):
        codes[name] = np.array([int(c, 16) for c in re.findall(r"X\((0x[0-9a-f]+)\)", body)])
    iq2, iq1 = np.array([8, 25, 43]), np.array([-1, 0, 1])
    iq3xxs, iq3s = np.array([4, 12, 20, 28, 36, 44, 52, 62]), 2 * np.arange(8) + 1
    two = lambda c, m: m[(c[:, None] >> 2 * np.arange(8)) & 3]
    four = lambda c, m: m[(c[:, None] >> 4 * np.arange(4)) & 15]
    return {
        "IQ2XXS": two(codes["IQ2XXS"], iq2),
        "IQ2XS": two(codes["IQ2XS"], iq2),
        "IQ2S": two(codes["IQ2S"], iq2),
        "IQ1S": two(codes["IQ1S"], iq1),
        "IQ3XXS": four(codes["IQ3XXS"], iq3xxs),
        "IQ3S": four(codes["IQ3S"], iq3s),
    }


GRID = load_grids()
EVEN = np.array([i | (bin(i).count("1") & 1) << 7 for i in range(128)])


def f16(b, at):
    return b[:, at : at + 2].copy().view(np.float16).astype(np.float32)  # [n, 1]


def uint(b, at, size, n=1):
    return (
        b[:, at : at + size * n].copy().view({2: np.uint16, 4: np.uint32}[size]).astype(np.int64)
    )  # [n, count]


def nibbles(b, at):
    w = b[:, at : at + 16].astype(np.int64)
    return np.concatenate([w & 15, w >> 4], axis=1)


def plane(b, at):
    """[n, 8, 32] of two bits."""
    return (b[:, at + 32 * (K // 4) + J].astype(np.int64) >> 2 * (K & 3)) & 3


def form(q, scale, low=None):
    """q [n, blocks, 32]; scale and min [n, blocks, n_sub]."""
    return q, f(scale), None if low is None else f(low)


def one(q, scale, low=None):
    return form(q[:, None, :], scale[:, :, None], None if low is None else low[:, :, None])


def q4_0(b):
    return one(nibbles(b, 2) - 8, f16(b, 0))


def q4_1(b):
    return one(nibbles(b, 4), f16(b, 0), -f16(b, 2))


def q8_0(b):
    return one(b[:, 2:34].view(np.int8).astype(np.int64), f16(b, 0))


def iq4_nl(b):
    return one(T[nibbles(b, 2)], f16(b, 0))


def q5_0(b):
    return one(nibbles(b, 6) + 16 * (uint(b, 2, 4) >> J & 1) - 16, f16(b, 0))


def q5_1(b):
    return one(nibbles(b, 8) + 16 * (uint(b, 4, 4) >> J & 1), f16(b, 0), -f16(b, 2))


def mxfp4(b):
    return one(M[nibbles(b, 1)], np.ldexp(F(1), b[:, 0:1].astype(np.int32) - 128))


def nvfp4(b):
    qs = b[:, 4:36].astype(np.int64).reshape(-1, 4, 8)
    q = M[np.concatenate([qs & 15, qs >> 4], axis=2)].reshape(-1, 2, 32)
    c = b[:, 0:4].astype(np.int32)
    e, m = c >> 3 & 15, (c & 7).astype(np.float32)
    u = np.where(e > 0, np.ldexp(F(1) + m / F(8), e - 8), np.ldexp(m, -10))
    return form(q, np.where(c == 0x7F, F(0), u).reshape(-1, 2, 2))


def q1_0(b):
    i = np.arange(128)
    q = 2 * (b[:, 2 + i // 8].astype(np.int64) >> (i & 7) & 1) - 1
    return form(q.reshape(-1, 4, 32), np.repeat(f16(b, 0), 4, 1)[:, :, None])


def q2_0(b):
    i = np.arange(64)
    q = (b[:, 2 + i // 4].astype(np.int64) >> 2 * (i & 3) & 3) - 1
    return form(q.reshape(-1, 2, 32), np.repeat(f16(b, 0), 2, 1)[:, :, None])


def times(d, n):
    """d [n, 1] times whole numbers [n, 8 or 16], as [n, 8, n_sub]."""
    s = d * n.astype(np.float32)
    return s.reshape(len(s), 8, -1)


def q2_k(b):
    c = b[:, 0:16].astype(np.int64)
    return form(plane(b, 16), times(f16(b, 80), c & 15), times(f16(b, 82), c >> 4))


def q3_k(b):
    h = b[:, None, J].astype(np.int64) >> K & 1
    n = np.arange(16)
    sc = b[:, 96:108].astype(np.int64)
    low = sc[:, n & 7] >> np.where(n < 8, 0, 4) & 15
    high = sc[:, 8 + (n & 3)] >> 2 * (n // 4) & 3
    return form(plane(b, 32) + 4 * h - 4, times(f16(b, 108), low + 16 * high - 32))


def scales_k(b):
    c = b[:, 4:16].astype(np.int64)
    s = np.concatenate([c[:, 0:4] & 63, (c[:, 8:12] & 15) + 16 * (c[:, 0:4] >> 6)], 1)
    m = np.concatenate([c[:, 4:8] & 63, (c[:, 8:12] >> 4) + 16 * (c[:, 4:8] >> 6)], 1)
    return times(f16(b, 0), s), times(f16(b, 2), m)


def nibbles_k(b, at):
    return b[:, at + 32 * (K // 2) + J].astype(np.int64) >> 4 * (K & 1) & 15


def q4_k(b):
    return form(nibbles_k(b, 16), *scales_k(b))


def q5_k(b):
    return form(nibbles_k(b, 48) + 16 * (b[:, None, 16 + J].astype(np.int64) >> K & 1), *scales_k(b))


def q6_k(b):
    n = K & 3
    low = b[:, 64 * (K // 4) + 32 * (n & 1) + J].astype(np.int64) >> np.where(n < 2, 0, 4) & 15
    sc = b[:, 192:208].copy().view(np.int8)
    return form(low + 16 * plane(b, 128) - 32, times(f16(b, 208), sc))


def tq1_0(b):
    e = np.arange(256)
    at = np.where(e < 160, e % 32, np.where(e < 240, 32 + e % 16, 48 + e % 4))
    digit = np.where(e < 160, e // 32, np.where(e < 240, (e - 160) // 16, (e - 240) // 4))
    q = ((b[:, at].astype(np.int64) * 3**digit % 256) * 3 >> 8) - 1
    return form(q.reshape(-1, 8, 32), np.repeat(f16(b, 52), 8, 1)[:, :, None])


def tq2_0(b):
    return form(plane(b, 0) - 1, np.repeat(f16(b, 64), 8, 1)[:, :, None])


def nibble8(b, at):
    """Nibble k & 1 of byte k / 2: [n, 8]."""
    k = np.arange(8)
    return b[:, at + k // 2].astype(np.int64) >> 4 * (k & 1) & 15


def iq4_xs(b):
    q = np.stack([nibbles(b, 8 + 16 * k) for k in range(8)], 1)
    s = nibble8(b, 4) + 16 * (uint(b, 2, 2) >> 2 * np.arange(8) & 3)
    return form(T[q], times(f16(b, 0), s - 32))


def signed(values, signs):
    """values [n, 8, 4, 8], sign bytes [n, 8, 4] -> [n, 8, 32]"""
    minus = signs[..., None] >> np.arange(8) & 1
    return np.where(minus == 1, -values, values).reshape(len(values), 8, 32)


G4 = 4 * K + np.arange(4)  # [8, 4]: group l of block k among 32


def odd_scale(d, n, divisor):
    return times(d, 2 * n + 1) / F(divisor)


def iq2_xxs(b):
    qs = b[:, 2 + 8 * K + np.arange(4)]
    w = uint(b, 2, 4, 16)[:, 1::2]
    return form(
        signed(GRID["IQ2XXS"][qs], EVEN[w[:, :, None] >> 7 * np.arange(4) & 127]),
        odd_scale(f16(b, 0), w >> 28, 8),
    )


def scale16(b, at):
    c = b[:, at : at + 8].astype(np.int64)
    return np.stack([c & 15, c >> 4], 2).reshape(-1, 16)


def iq2_xs(b):
    w = uint(b, 2, 2, 32)[:, G4]
    return form(signed(GRID["IQ2XS"][w & 511], EVEN[w >> 9]), odd_scale(f16(b, 0), scale16(b, 66), 8))


def iq2_s(b):
    qh = b[:, 66:74].astype(np.int64)[:, :, None]
    i = b[:, 2 + G4] + 256 * (qh >> 2 * np.arange(4) & 3)
    return form(
        signed(GRID["IQ2S"][i], b[:, 34 + G4].astype(np.int64)), odd_scale(f16(b, 0), scale16(b, 74), 8)
    )


def iq3_xxs(b):
    v = GRID["IQ3XXS"][b[:, 2 + 8 * K + np.arange(8)]].reshape(-1, 8, 4, 8)
    w = uint(b, 66, 4, 8)
    return form(signed(v, EVEN[w[:, :, None] >> 7 * np.arange(4) & 127]), odd_scale(f16(b, 0), w >> 28, 4))


def iq3_s(b):
    r = np.arange(8)
    qh = b[:, 66:74].astype(np.int64)[:, :, None]
    v = GRID["IQ3S"][b[:, 2 + 8 * K + r] + 256 * (qh >> r & 1)].reshape(-1, 8, 4, 8)
    return form(signed(v, b[:, 74 + G4].astype(np.int64)), odd_scale(f16(b, 0), nibble8(b, 106), 1))


def iq1(i, minus):
    return (8 * GRID["IQ1S"][i] + np.where(minus, -1, 1)[..., None]).reshape(len(i), 8, 32)


def iq1_s(b):
    qh = uint(b, 34, 2, 8)
    i = b[:, 2 + G4] + 256 * (qh[:, :, None] >> 3 * np.arange(4) & 7)
    minus = np.repeat((qh >> 15 == 1)[:, :, None], 4, 2)
    return form(iq1(i, minus), odd_scale(f16(b, 0), qh >> 12 & 7, 8))


def iq1_m(b):
    n = np.arange(4)
    nib = b[:, 32 + 2 * K + n // 2].astype(np.int64) >> 4 * (n & 1) & 15
    sc = uint(b, 48, 2, 4)
    d = ((sc >> 12) << 4 * n).sum(1).astype(np.uint16).view(np.float16).astype(np.float32)[:, None]
    k, t = np.arange(16) // 2, np.arange(16) % 2
    return form(
        iq1(b[:, G4] + 256 * (nib & 7), nib & 8 != 0),
        odd_scale(d, sc[:, k // 2] >> (6 * (k & 1) + 3 * t) & 7, 8),
    )


# name: (id in the file, weights in a block, bytes of a block, function)
QUANT = {
    "Q4_0": (2, 32, 18, q4_0),
    "Q4_1": (3, 32, 20, q4_1),
    "Q5_0": (6, 32, 22, q5_0),
    "Q5_1": (7, 32, 24, q5_1),
    "Q8_0": (8, 32, 34, q8_0),
    "Q2_K": (10, 256, 84, q2_k),
    "Q3_K": (11, 256, 110, q3_k),
    "Q4_K": (12, 256, 144, q4_k),
    "Q5_K": (13, 256, 176, q5_k),
    "Q6_K": (14, 256, 210, q6_k),
    "IQ2_XXS": (16, 256, 66, iq2_xxs),
    "IQ2_XS": (17, 256, 74, iq2_xs),
    "IQ3_XXS": (18, 256, 98, iq3_xxs),
    "IQ1_S": (19, 256, 50, iq1_s),
    "IQ4_NL": (20, 32, 18, iq4_nl),
    "IQ3_S": (21, 256, 110, iq3_s),
    "IQ2_S": (22, 256, 82, iq2_s),
    "IQ4_XS": (23, 256, 136, iq4_xs),
    "IQ1_M": (29, 256, 56, iq1_m),
    "TQ1_0": (34, 256, 54, tq1_0),
    "TQ2_0": (35, 256, 66, tq2_0),
    "MXFP4": (39, 32, 17, mxfp4),
    "NVFP4": (40, 64, 36, nvfp4),
    "Q1_0": (41, 128, 18, q1_0),
    "Q2_0": (42, 64, 18, q2_0),
}
FLOAT = {"F32": (0, 1, 4), "F16": (1, 1, 2), "BF16": (30, 1, 2)}
# Where a block keeps its f16 numbers: tests make some of them ordinary.
F16_AT = {
    "Q4_1": [0, 2],
    "Q5_1": [0, 2],
    "Q2_K": [80, 82],
    "Q3_K": [108],
    "Q4_K": [0, 2],
    "Q5_K": [0, 2],
    "Q6_K": [208],
    "TQ1_0": [52],
    "TQ2_0": [64],
    "MXFP4": [],
    "NVFP4": [],
    "IQ1_M": [],
}


def integer_form(name, raw):
    """raw [n_row, row bytes] -> q [n_row, K/32, 32], scale and min (or None) [n_row, K/32, n_sub]"""
    _, block, size, fn = QUANT[name]
    q, scale, low = fn(np.ascontiguousarray(raw.reshape(-1, size)))
    rows = lambda a: None if a is None else a.reshape(len(raw), -1, a.shape[2])
    return rows(q), rows(scale), rows(low)


def decode(name, raw):
    q, scale, low = integer_form(name, raw)
    n_sub = scale.shape[2]
    wide = lambda a: np.repeat(a, 32 // n_sub, 2)
    y = wide(scale) * q.astype(np.float32)
    y = y - (wide(low) if low is not None else F(0))
    return y.reshape(len(raw), -1)


def float_weights(name, raw):
    if name == "BF16":
        return (raw.copy().view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return raw.copy().view({"F32": np.float32, "F16": np.float16}[name]).astype(np.float32)
