/* The integer form of a quantised row: what every product of docs/ARITHMETIC.md rule 2 starts from.
 *
 *     quant_block b;
 *     quant_unpack_q4_k(&b, row, ib);   // weights 32 ib .. 32 ib + 31 of the row
 *
 * weight j of the 32 is scale[j / 16] * q[j] - min[j / 16], with q a signed byte. For every type, whatever
 * its own block length. A scale is d times integers and powers of two, and exact in f32 (11 bits of d, at
 * most 8 of a sub-scale), so it does not matter in which order it was made. What a codebook adds to its
 * values (the deltas of IQ1, the half steps of FP4) is inside q, and the power of two it costs is inside
 * scale.
 *
 * Bytes of a row start anywhere, so loads go through load_u16, load_u32 and load_words. The layouts in the
 * comments give byte offsets
 * (@) in a type's own block; f16 means IEEE half, little-endian. This text is also device source: there the
 * including file brings load_u16, load_u32, load_words, bits_f32, f16_to_f32 and the tables of codebook.h,
 * and defines DEV. */
#ifndef MICA_QUANT_BLOCK_H
#define MICA_QUANT_BLOCK_H

#ifndef MICA_DEVICE_SOURCE
#include "base/half.h"
#include "base/num.h"
#include "quant/codebook.h"
#ifndef DEV
#define DEV static inline
#endif
/* n words from p, whose address is a multiple of `align` for certain: a card needs to know. */
DEV void load_words(uint32_t *o, const void *p, uint32_t n, uint32_t align) {
    (void)align;
    memcpy(o, p, (size_t)n * 4);
}
#endif

typedef struct quant_block {
    uint32_t q[8];  // 32 signed bytes, four to a word, the first in the lowest byte
    float scale[2]; // of weights 0..15 and 16..31; equal when the type has one scale for 32
    float min[2];   // likewise; zero when the type has no minima
} quant_block;

/* ---- four bytes at a time ---- */

/* Per byte: a - b for a in 0..127, b in 0..128. */
DEV uint32_t quad_sub(uint32_t a, uint32_t b) {
    return ((a | 0x80808080u) - b) ^ 0x80808080u;
}
/* Per byte: a + b, wrapping. */
DEV uint32_t quad_add(uint32_t a, uint32_t b) {
    return ((a & 0x7F7F7F7Fu) + (b & 0x7F7F7F7Fu)) ^ ((a ^ b) & 0x80808080u);
}
/* The same byte four times. */
DEV uint32_t quad_set(uint32_t byte) {
    return byte * 0x01010101u;
}
/* Four bits to four bytes of 0 or 1, lowest first. */
DEV uint32_t quad_bits(uint32_t bits) {
    return ((bits & 15) * 0x00204081u) & 0x01010101u;
}
/* Four 2-bit numbers of a byte to four bytes, lowest first. */
DEV uint32_t quad_pairs(uint32_t byte) {
    return (byte | byte << 6 | byte << 12 | byte << 18) & 0x03030303u;
}
/* Per byte: -v where the sign bit is set; v has no zero byte. */
DEV uint32_t quad_negate(uint32_t v, uint32_t sign_bits) {
    uint32_t s = quad_bits(sign_bits);
    return (v ^ s * 255) + s;
}
/* Four nibbles, one in the low half of each byte, looked up. */
DEV uint32_t quad_lookup(const int8_t *table, uint32_t nibbles) {
    uint32_t r = 0;
    for (uint32_t i = 0; i < 4; i++) r |= (uint32_t)(uint8_t)table[nibbles >> 8 * i & 15] << 8 * i;
    return r;
}

/* Half i (0: low) of a byte. */
DEV uint32_t quant_nibble(uint32_t byte, uint32_t i) {
    return byte >> 4 * i & 15;
}

DEV float quant_f16_at(const uint8_t *p) {
    return f16_to_f32(load_u16(p));
}

DEV void quant_scale_set(quant_block *o, float s0, float s1) {
    o->scale[0] = s0;
    o->scale[1] = s1;
    o->min[0] = o->min[1] = 0;
}
DEV void quant_min_set(quant_block *o, float m0, float m1) {
    o->min[0] = m0;
    o->min[1] = m1;
}

/* 16 bytes to 32 nibbles: the low halves are weights 0..15, the high halves 16..31. */
DEV void quant_nibbles(quant_block *o, const uint8_t *qs, uint32_t align) {
    uint32_t w[4];
    load_words(w, qs, 4, align);
    for (int g = 0; g < 4; g++) {
        o->q[g] = w[g] & 0x0F0F0F0Fu;
        o->q[g + 4] = w[g] >> 4 & 0x0F0F0F0Fu;
    }
}

/* ---- blocks of 32 ---- */

/* Q4_0, 18 bytes: @0 f16 d; @2 qs[16] */
DEV void quant_unpack_q4_0(quant_block *o, const uint8_t *row, uint32_t ib) {
    const uint8_t *p = row + (size_t)ib * 18;
    quant_nibbles(o, p + 2, 2);
    for (int g = 0; g < 8; g++) o->q[g] = quad_sub(o->q[g], 0x08080808u);
    float d = quant_f16_at(p);
    quant_scale_set(o, d, d);
}

/* Q4_1, 20 bytes: @0 f16 d; @2 f16 m; @4 qs[16]. The file adds m; our minimum is subtracted. */
DEV void quant_unpack_q4_1(quant_block *o, const uint8_t *row, uint32_t ib) {
    const uint8_t *p = row + (size_t)ib * 20;
    quant_nibbles(o, p + 4, 4);
    float d = quant_f16_at(p), m = -quant_f16_at(p + 2);
    quant_scale_set(o, d, d);
    quant_min_set(o, m, m);
}

/* The fifth bits of a Q5_0 or Q5_1 block: bit j of qh belongs to weight j. */
DEV void quant_fifth_bits(quant_block *o, uint32_t qh) {
    for (int g = 0; g < 8; g++) o->q[g] |= quad_bits(qh >> 4 * g) << 4;
}

/* Q5_0, 22 bytes: @0 f16 d; @2 u32 qh; @6 qs[16] */
DEV void quant_unpack_q5_0(quant_block *o, const uint8_t *row, uint32_t ib) {
    const uint8_t *p = row + (size_t)ib * 22;
    quant_nibbles(o, p + 6, 2);
    quant_fifth_bits(o, load_u32(p + 2));
    for (int g = 0; g < 8; g++) o->q[g] = quad_sub(o->q[g], 0x10101010u);
    float d = quant_f16_at(p);
    quant_scale_set(o, d, d);
}

/* Q5_1, 24 bytes: @0 f16 d; @2 f16 m; @4 u32 qh; @8 qs[16] */
DEV void quant_unpack_q5_1(quant_block *o, const uint8_t *row, uint32_t ib) {
    const uint8_t *p = row + (size_t)ib * 24;
    quant_nibbles(o, p + 8, 4);
    quant_fifth_bits(o, load_u32(p + 4));
    float d = quant_f16_at(p), m = -quant_f16_at(p + 2);
    quant_scale_set(o, d, d);
    quant_min_set(o, m, m);
}

/* Q8_0, 34 bytes: @0 f16 d; @2 i8 qs[32] */
DEV void quant_unpack_q8_0(quant_block *o, const uint8_t *row, uint32_t ib) {
    const uint8_t *p = row + (size_t)ib * 34;
    load_words(o->q, p + 2, 8, 2);
    float d = quant_f16_at(p);
    quant_scale_set(o, d, d);
}

/* IQ4_NL, 18 bytes: @0 f16 d; @2 qs[16] */
DEV void quant_unpack_iq4_nl(quant_block *o, const uint8_t *row, uint32_t ib) {
    const uint8_t *p = row + (size_t)ib * 18;
    quant_nibbles(o, p + 2, 2);
    for (int g = 0; g < 8; g++) o->q[g] = quad_lookup(quant_value_iq4, o->q[g]);
    float d = quant_f16_at(p);
    quant_scale_set(o, d, d);
}

/* MXFP4, 17 bytes: @0 e; @1 qs[16]. scale = 2^(e - 128) over the doubled values: denormal for e < 2, 2^127
 * for e = 255. */
DEV void quant_unpack_mxfp4(quant_block *o, const uint8_t *row, uint32_t ib) {
    const uint8_t *p = row + (size_t)ib * 17;
    quant_nibbles(o, p + 1, 1);
    for (int g = 0; g < 8; g++) o->q[g] = quad_lookup(quant_value_fp4, o->q[g]);
    uint32_t e = p[0];
    float d = bits_f32(e < 2 ? 0x200000u << e : (e - 1) << 23);
    quant_scale_set(o, d, d);
}

/* ---- NVFP4, Q1_0, Q2_0 ---- */

/* Half of an unsigned E4M3 number (the values it scales are doubled). 0x7F is zero; the top bit is not read
 * otherwise. */
DEV float quant_ue4m3_half(uint32_t b) {
    uint32_t e = b >> 3 & 15, m = b & 7;
    if (b == 0x7F) return 0;
    if (e == 0) return (float)m * 0x1p-10f;
    return bits_f32((e + 119) << 23 | m << 20); // (1 + m / 8) * 2^(e - 8)
}

/* NVFP4, 64 weights in 36 bytes: @0 scale[4]; @4 qs[32]. A scale for 16 weights: 8 bytes, low halves first.
 */
DEV void quant_unpack_nvfp4(quant_block *o, const uint8_t *row, uint32_t ib) {
    const uint8_t *p = row + (size_t)(ib / 2) * 36, *qs = p + 4 + 16 * (ib & 1), *sc = p + 2 * (ib & 1);
    for (int h = 0; h < 2; h++) {
        for (int i = 0; i < 2; i++) {
            uint32_t w = load_u32(qs + 8 * h + 4 * i);
            o->q[4 * h + i] = quad_lookup(quant_value_fp4, w & 0x0F0F0F0Fu);
            o->q[4 * h + i + 2] = quad_lookup(quant_value_fp4, w >> 4 & 0x0F0F0F0Fu);
        }
    }
    quant_scale_set(o, quant_ue4m3_half(sc[0]), quant_ue4m3_half(sc[1]));
}

/* Q1_0, 128 weights in 18 bytes: @0 f16 d; @2 qs[16]. A bit a weight, lowest first: 1 is +d, 0 is -d. */
DEV void quant_unpack_q1_0(quant_block *o, const uint8_t *row, uint32_t ib) {
    const uint8_t *p = row + (size_t)(ib / 4) * 18;
    uint32_t w = load_u32(p + 2 + 4 * (ib & 3));
    for (int g = 0; g < 8; g++) o->q[g] = quad_sub(quad_bits(w >> 4 * g) << 1, 0x01010101u);
    float d = quant_f16_at(p);
    quant_scale_set(o, d, d);
}

/* Q2_0, 64 weights in 18 bytes: @0 f16 d; @2 qs[16]. Two bits a weight, lowest first, minus 1. */
DEV void quant_unpack_q2_0(quant_block *o, const uint8_t *row, uint32_t ib) {
    const uint8_t *p = row + (size_t)(ib / 2) * 18, *qs = p + 2 + 8 * (ib & 1);
    for (int g = 0; g < 8; g++) o->q[g] = quad_sub(quad_pairs(qs[g]), 0x01010101u);
    float d = quant_f16_at(p);
    quant_scale_set(o, d, d);
}

/* ---- K-quants: 256 weights a block, k = ib % 8 is the block of 32 within ---- */

/* The 2-bit plane that Q2_K, Q3_K, Q6_K and TQ2_0 share: 32 bytes hold four blocks of 32, two bits each. */
DEV void quant_plane2(uint32_t o[8], const uint8_t *qs, uint32_t k, uint32_t align) {
    load_words(o, qs + 32 * (k / 4), 8, align);
    for (int g = 0; g < 8; g++) o[g] = o[g] >> 2 * (k & 3) & 0x03030303u;
}

/* Q2_K, 84 bytes: @0 scales[16]; @16 qs[64]; @80 f16 d; @82 f16 dmin. A scale and a minimum for 16 weights.
 */
DEV void quant_unpack_q2_k(quant_block *o, const uint8_t *row, uint32_t ib) {
    const uint8_t *p = row + (size_t)(ib / 8) * 84;
    uint32_t k = ib & 7, c0 = p[2 * k], c1 = p[2 * k + 1];
    quant_plane2(o->q, p + 16, k, 4);
    float d = quant_f16_at(p + 80), m = quant_f16_at(p + 82);
    quant_scale_set(o, d * (float)(c0 & 15), d * (float)(c1 & 15));
    quant_min_set(o, m * (float)(c0 >> 4), m * (float)(c1 >> 4));
}

/* 6-bit scale number i of 16: four low bits in bytes 0..7, two high bits in bytes 8..11. */
DEV float quant_q3_k_scale(const uint8_t *sc, uint32_t i) {
    uint32_t lo = sc[i & 7] >> (i < 8 ? 0 : 4) & 15, hi = sc[8 + (i & 3)] >> 2 * (i / 4) & 3;
    return (float)((int)(lo | hi << 4) - 32);
}

/* Q3_K, 110 bytes: @0 hmask[32]; @32 qs[64]; @96 scales[12]; @108 f16 d. A clear high bit means minus 4. */
DEV void quant_unpack_q3_k(quant_block *o, const uint8_t *row, uint32_t ib) {
    const uint8_t *p = row + (size_t)(ib / 8) * 110;
    uint32_t k = ib & 7, high[8];
    load_words(high, p, 8, 2);
    quant_plane2(o->q, p + 32, k, 2);
    for (int g = 0; g < 8; g++) o->q[g] = quad_sub(o->q[g] | (high[g] >> k & 0x01010101u) << 2, 0x04040404u);
    float d = quant_f16_at(p + 108);
    quant_scale_set(o, d * quant_q3_k_scale(p + 96, 2 * k), d * quant_q3_k_scale(p + 96, 2 * k + 1));
}

/* d and the minimum of block k of Q4_K and Q5_K: @0 f16 d; @2 f16 dmin; @4 scales[12], 6 bits each. */
DEV void quant_scale_q4_k(quant_block *o, const uint8_t *p, uint32_t k) {
    uint32_t w[4], at = 8 * (k & 3), sc, mn;
    load_words(w, p, 4, 16);
    uint32_t b0 = w[1] >> at & 255, b4 = w[2] >> at & 255, b8 = w[3] >> at & 255; // bytes k & 3, + 4, + 8
    if (k < 4) {
        sc = b0 & 63;
        mn = b4 & 63;
    } else {
        sc = (b8 & 15) | b0 >> 6 << 4;
        mn = b8 >> 4 | b4 >> 6 << 4;
    }
    float s = f16_to_f32((uint16_t)(w[0] & 0xFFFF)) * (float)sc,
          m = f16_to_f32((uint16_t)(w[0] >> 16)) * (float)mn;
    quant_scale_set(o, s, s);
    quant_min_set(o, m, m);
}

/* Q4_K, 144 bytes: @0 d, dmin, scales; @16 qs[128]. 32 bytes hold two blocks of 32: low halves, high halves.
 */
DEV void quant_unpack_q4_k(quant_block *o, const uint8_t *row, uint32_t ib) {
    const uint8_t *p = row + (size_t)(ib / 8) * 144;
    uint32_t k = ib & 7;
    load_words(o->q, p + 16 + 32 * (k / 2), 8, 16);
    for (int g = 0; g < 8; g++) o->q[g] = o->q[g] >> 4 * (k & 1) & 0x0F0F0F0Fu;
    quant_scale_q4_k(o, p, k);
}

/* Q5_K, 176 bytes: @0 d, dmin, scales; @16 qh[32]; @48 qs[128]. Bit k of qh[j] is the fifth bit of weight j
 * of block k. */
DEV void quant_unpack_q5_k(quant_block *o, const uint8_t *row, uint32_t ib) {
    const uint8_t *p = row + (size_t)(ib / 8) * 176;
    uint32_t k = ib & 7, high[8];
    load_words(o->q, p + 48 + 32 * (k / 2), 8, 16);
    load_words(high, p + 16, 8, 16);
    for (int g = 0; g < 8; g++)
        o->q[g] = (o->q[g] >> 4 * (k & 1) & 0x0F0F0F0Fu) | (high[g] >> k & 0x01010101u) << 4;
    quant_scale_q4_k(o, p, k);
}

/* Q6_K, 210 bytes: @0 ql[128]; @128 qh[64]; @192 i8 scales[16]; @208 f16 d. A scale for 16 weights.
 * In each half of 128: block n takes ql bytes 32 (n & 1).., low halves for n < 2, and bits 2n of the 32 qh
 * bytes. */
DEV void quant_unpack_q6_k(quant_block *o, const uint8_t *row, uint32_t ib) {
    const uint8_t *p = row + (size_t)(ib / 8) * 210;
    uint32_t k = ib & 7, half = k / 4, n = k & 3;
    uint32_t high[8];
    load_words(o->q, p + 64 * half + 32 * (n & 1), 8, 2);
    quant_plane2(high, p + 128, k, 2);
    for (int g = 0; g < 8; g++) {
        uint32_t low = o->q[g] >> (n < 2 ? 0 : 4) & 0x0F0F0F0Fu;
        o->q[g] = quad_sub(low | high[g] << 4, 0x20202020u);
    }
    float d = quant_f16_at(p + 208);
    quant_scale_set(o, d * (float)(int8_t)p[192 + 2 * k], d * (float)(int8_t)p[192 + 2 * k + 1]);
}

/* ---- ternary, 256 weights a block ---- */

/* Digit n (0 is the first) of four bytes that each hold five ternary digits as a fraction of 256, minus 1. */
DEV uint32_t quant_trits(uint32_t bytes, uint32_t n) {
    uint32_t pow3 = n == 0 ? 1 : n == 1 ? 3 : n == 2 ? 9 : n == 3 ? 27 : 81, r = 0;
    for (uint32_t i = 0; i < 4; i++) r |= (((bytes >> 8 * i) * pow3 & 255) * 3 >> 8) << 8 * i;
    return quad_sub(r, 0x01010101u);
}

/* TQ1_0, 54 bytes: @0 qs[48]; @48 qh[4]; @52 f16 d. Digit n of qs[m], m < 32, is weight 32 n + m; of qs[32 +
 * m], m < 16, weight 160 + 16 n + m; of qh[m] (four digits only) weight 240 + 4 n + m. */
DEV void quant_unpack_tq1_0(quant_block *o, const uint8_t *row, uint32_t ib) {
    const uint8_t *p = row + (size_t)(ib / 8) * 54;
    uint32_t k = ib & 7;
    for (uint32_t g = 0; g < 8; g++) {
        uint32_t at = 32 * k + 4 * g; // the first weight of the quad
        if (at < 160) {
            o->q[g] = quant_trits(load_u32(p + 4 * g), k);
        } else if (at < 240) {
            o->q[g] = quant_trits(load_u32(p + 32 + (at & 15)), (at - 160) / 16);
        } else {
            o->q[g] = quant_trits(load_u32(p + 48), (at - 240) / 4);
        }
    }
    float d = quant_f16_at(p + 52);
    quant_scale_set(o, d, d);
}

/* TQ2_0, 66 bytes: @0 qs[64]; @64 f16 d */
DEV void quant_unpack_tq2_0(quant_block *o, const uint8_t *row, uint32_t ib) {
    const uint8_t *p = row + (size_t)(ib / 8) * 66;
    quant_plane2(o->q, p, ib & 7, 2);
    for (int g = 0; g < 8; g++) o->q[g] = quad_sub(o->q[g], 0x01010101u);
    float d = quant_f16_at(p + 64);
    quant_scale_set(o, d, d);
}

/* ---- i-quants: 256 weights a block, k = ib % 8, four groups of 8 in a block of 32 ---- */

/* Seven sign bits and the eighth that makes their number even. */
DEV uint32_t quant_signs_even(uint32_t idx) {
    uint32_t p = idx ^ idx >> 4;
    p ^= p >> 2;
    p ^= p >> 1;
    return idx | (p & 1) << 7;
}

/* Group l of 8: magnitudes, negated where the bit of signs is set. */
DEV void quant_group_set(quant_block *o, uint32_t l, uint32_t low, uint32_t high, uint32_t signs) {
    o->q[2 * l] = quad_negate(low, signs);
    o->q[2 * l + 1] = quad_negate(high, signs >> 4);
}

/* IQ2_XXS, 66 bytes: @0 f16 d; @2 per block of 32 two u32: four grid numbers of 8 bits; four signs of 7 bits,
 * a scale of 4. scale = d (2 n + 1) / 8 */
DEV void quant_unpack_iq2_xxs(quant_block *o, const uint8_t *row, uint32_t ib) {
    const uint8_t *p = row + (size_t)(ib / 8) * 66, *qs = p + 2 + 8 * (ib & 7);
    uint32_t w = load_u32(qs + 4);
    for (uint32_t l = 0; l < 4; l++) {
        uint64_t e = quant_grid_iq2xxs[qs[l]];
        quant_group_set(o, l, (uint32_t)e, (uint32_t)(e >> 32), quant_signs_even(w >> 7 * l & 127));
    }
    float s = quant_f16_at(p) * 0.125f * (float)(2 * (w >> 28) + 1);
    quant_scale_set(o, s, s);
}

/* The two 4-bit scales in a byte of IQ2_XS and IQ2_S, each for 16 weights: d (2 n + 1) / 8 */
DEV void quant_scale_iq2(quant_block *o, float d, uint32_t byte) {
    quant_scale_set(o, d * 0.125f * (float)(2 * (byte & 15) + 1), d * 0.125f * (float)(2 * (byte >> 4) + 1));
}

/* IQ2_XS, 74 bytes: @0 f16 d; @2 u16 qs[32]: grid number of 9 bits, signs of 7; @66 scales[8] */
DEV void quant_unpack_iq2_xs(quant_block *o, const uint8_t *row, uint32_t ib) {
    const uint8_t *p = row + (size_t)(ib / 8) * 74;
    uint32_t k = ib & 7;
    for (uint32_t l = 0; l < 4; l++) {
        uint32_t w = load_u16(p + 2 + 8 * k + 2 * l);
        uint64_t e = quant_grid_iq2xs[w & 511];
        quant_group_set(o, l, (uint32_t)e, (uint32_t)(e >> 32), quant_signs_even(w >> 9));
    }
    quant_scale_iq2(o, quant_f16_at(p), p[66 + k]);
}

/* IQ2_S, 82 bytes: @0 f16 d; @2 qs[32]; @34 signs[32]; @66 qh[8]: bits 8, 9 of four grid numbers; @74
 * scales[8] */
DEV void quant_unpack_iq2_s(quant_block *o, const uint8_t *row, uint32_t ib) {
    const uint8_t *p = row + (size_t)(ib / 8) * 82;
    uint32_t k = ib & 7, qh = p[66 + k];
    for (uint32_t l = 0; l < 4; l++) {
        uint64_t e = quant_grid_iq2s[p[2 + 4 * k + l] | (qh >> 2 * l & 3) << 8];
        quant_group_set(o, l, (uint32_t)e, (uint32_t)(e >> 32), p[34 + 4 * k + l]);
    }
    quant_scale_iq2(o, quant_f16_at(p), p[74 + k]);
}

/* IQ3_XXS, 98 bytes: @0 f16 d; @2 qs[64]: grid numbers of 4 weights; @66 u32[8]: four signs of 7 bits, a
 * scale of 4. scale = d (2 n + 1) / 4 */
DEV void quant_unpack_iq3_xxs(quant_block *o, const uint8_t *row, uint32_t ib) {
    const uint8_t *p = row + (size_t)(ib / 8) * 98, *qs = p + 2 + 8 * (ib & 7);
    uint32_t w = load_u32(p + 66 + 4 * (ib & 7));
    for (uint32_t l = 0; l < 4; l++) {
        uint32_t low = quant_grid_iq3xxs[qs[2 * l]], high = quant_grid_iq3xxs[qs[2 * l + 1]];
        quant_group_set(o, l, low, high, quant_signs_even(w >> 7 * l & 127));
    }
    float s = quant_f16_at(p) * 0.25f * (float)(2 * (w >> 28) + 1);
    quant_scale_set(o, s, s);
}

/* IQ3_S, 110 bytes: @0 f16 d; @2 qs[64]; @66 qh[8]: ninth bits; @74 signs[32]; @106 scales[4], 4 bits for 32
 * weights. scale = d (2 n + 1) */
DEV void quant_unpack_iq3_s(quant_block *o, const uint8_t *row, uint32_t ib) {
    const uint8_t *p = row + (size_t)(ib / 8) * 110;
    uint32_t k = ib & 7, qh = p[66 + k];
    for (uint32_t l = 0; l < 4; l++) {
        uint32_t low = quant_grid_iq3s[p[2 + 8 * k + 2 * l] | (qh >> 2 * l & 1) << 8];
        uint32_t high = quant_grid_iq3s[p[3 + 8 * k + 2 * l] | (qh >> (2 * l + 1) & 1) << 8];
        quant_group_set(o, l, low, high, p[74 + 4 * k + l]);
    }
    float s = quant_f16_at(p) * (float)(2 * (quant_nibble(p[106 + k / 2], k & 1)) + 1);
    quant_scale_set(o, s, s);
}

/* Group l of IQ1: eight values -1, 0, 1 plus 1/8 or minus 1/8, times 8. */
DEV void quant_group_iq1(quant_block *o, uint32_t l, uint32_t idx, uint32_t minus) {
    uint64_t e = quant_grid_iq1s[idx] << 3;
    uint32_t delta = quad_set(minus ? 0xFF : 1);
    o->q[2 * l] = quad_add((uint32_t)e & 0xF8F8F8F8u, delta);
    o->q[2 * l + 1] = quad_add((uint32_t)(e >> 32) & 0xF8F8F8F8u, delta);
}

/* IQ1_S, 50 bytes: @0 f16 d; @2 qs[32]; @34 u16 qh[8]: three high bits of four grid numbers, a scale of 3,
 * the delta's sign. scale = d (2 n + 1) / 8 */
DEV void quant_unpack_iq1_s(quant_block *o, const uint8_t *row, uint32_t ib) {
    const uint8_t *p = row + (size_t)(ib / 8) * 50;
    uint32_t k = ib & 7, qh = load_u16(p + 34 + 2 * k);
    for (uint32_t l = 0; l < 4; l++) {
        quant_group_iq1(o, l, p[2 + 4 * k + l] | (qh >> 3 * l & 7) << 8, qh >> 15);
    }
    float s = quant_f16_at(p) * 0.125f * (float)(2 * (qh >> 12 & 7) + 1);
    quant_scale_set(o, s, s);
}

/* IQ1_M, 56 bytes: @0 qs[32]; @32 qh[16]: per group of 8 three high bits and the delta's sign; @48 u16 sc[4]:
 * in each 12 bits of four scales of 3 (16 weights) below 4 bits of the f16 d. scale = d (2 n + 1) / 8 */
DEV void quant_unpack_iq1_m(quant_block *o, const uint8_t *row, uint32_t ib) {
    const uint8_t *p = row + (size_t)(ib / 8) * 56;
    uint32_t k = ib & 7, h = 0;
    for (uint32_t i = 0; i < 4; i++) h |= (uint32_t)(load_u16(p + 48 + 2 * i) >> 12) << 4 * i;
    for (uint32_t l = 0; l < 4; l++) {
        uint32_t n = quant_nibble(p[32 + 2 * k + l / 2], l & 1);
        quant_group_iq1(o, l, p[4 * k + l] | (n & 7) << 8, n >> 3);
    }
    float d = f16_to_f32((uint16_t)h) * 0.125f;
    uint32_t sc = (uint32_t)load_u16(p + 48 + 2 * (k / 2)) >> 6 * (k & 1);
    quant_scale_set(o, d * (float)(2 * (sc & 7) + 1), d * (float)(2 * (sc >> 3 & 7) + 1));
}

/* IQ4_XS, 136 bytes: @0 f16 d; @2 u16 scales_h; @4 scales_l[4]; @8 qs[128]. scale = d (6-bit number - 32) */
DEV void quant_unpack_iq4_xs(quant_block *o, const uint8_t *row, uint32_t ib) {
    const uint8_t *p = row + (size_t)(ib / 8) * 136;
    uint32_t k = ib & 7;
    quant_nibbles(o, p + 8 + 16 * k, 4);
    for (int g = 0; g < 8; g++) o->q[g] = quad_lookup(quant_value_iq4, o->q[g]);
    uint32_t lo = quant_nibble(p[4 + k / 2], k & 1), hi = (uint32_t)load_u16(p + 2) >> 2 * k & 3;
    float s = quant_f16_at(p) * (float)((int)(lo | hi << 4) - 32);
    quant_scale_set(o, s, s);
}

/* ---- the list ---- */

/* X(TYPE, name, n_sub, has_min): every quantised weight type, the number of scales in 32 weights, whether it
 * has minima. Those of the pair list have bytes that each hold weights of two blocks. */
#define QUANT_PAIR_TYPES(X) X(Q4_K, q4_k, 1, 1) X(Q5_K, q5_k, 1, 1) X(Q6_K, q6_k, 2, 0)
#define QUANT_BLOCK_TYPES(X)                                                                                 \
    X(Q4_0, q4_0, 1, 0)                                                                                      \
    X(Q4_1, q4_1, 1, 1)                                                                                      \
    X(Q5_0, q5_0, 1, 0)                                                                                      \
    X(Q5_1, q5_1, 1, 1)                                                                                      \
    X(Q8_0, q8_0, 1, 0) X(Q2_K, q2_k, 2, 1) X(Q3_K, q3_k, 2, 0) X(IQ2_XXS, iq2_xxs, 1, 0)                    \
        X(IQ2_XS, iq2_xs, 2, 0) X(IQ3_XXS, iq3_xxs, 1, 0) X(IQ1_S, iq1_s, 1, 0) X(IQ4_NL, iq4_nl, 1, 0)      \
            X(IQ3_S, iq3_s, 1, 0) X(IQ2_S, iq2_s, 2, 0) X(IQ4_XS, iq4_xs, 1, 0) X(IQ1_M, iq1_m, 2, 0)        \
                X(TQ1_0, tq1_0, 1, 0) X(TQ2_0, tq2_0, 1, 0) X(MXFP4, mxfp4, 1, 0) X(NVFP4, nvfp4, 2, 0)      \
                    X(Q1_0, q1_0, 1, 0) X(Q2_0, q2_0, 1, 0)
#define QUANT_TYPES(X) QUANT_BLOCK_TYPES(X) QUANT_PAIR_TYPES(X)
#endif
