/* Simple quantisers for synthetic files and tests: the scale of a group from its extremes, then every weight
 * to the nearest step. No search and no importance, so a real model is better quantised elsewhere. Scales are
 * rounded to the form the file keeps before weights are divided by them. Magnitudes are expected below f16's
 * range; a NaN becomes the lowest step. */
#include "base/half.h"
#include "quant/codebook.h"
#include "quant/quant.h"

#include <assert.h>
#include <math.h>

static int round_clip(float x, int lo, int hi) {
    float r = rintf(x);
    return r > (float)lo ? r < (float)hi ? (int)r : hi : lo;
}

static float inverse(float d) {
    return d != 0 ? 1.0f / d : 0;
}

/* The value of largest magnitude, with its sign. */
static float extreme(const float *x, int n) {
    float best = 0;
    for (int i = 0; i < n; i++) best = fabsf(x[i]) > fabsf(best) ? x[i] : best;
    return best;
}

static void range(float *lo, float *hi, const float *x, int n) {
    *lo = *hi = x[0];
    for (int i = 1; i < n; i++) {
        *lo = x[i] < *lo ? x[i] : *lo;
        *hi = x[i] > *hi ? x[i] : *hi;
    }
}

/* Stores an f16 and gives back what it became. */
static float put_f16(uint8_t *p, float f) {
    uint16_t h = f32_to_f16(f);
    memcpy(p, &h, sizeof h);
    return f16_to_f32(h);
}

/* 32 numbers of 4 bits: the first 16 in low halves. */
static void put_nibbles(uint8_t *qs, const int *q) {
    for (int j = 0; j < 16; j++) qs[j] = (uint8_t)((q[j] & 15) | (q[j + 16] & 15) << 4);
}

/* The 16-entry value nearest to x, the lower index of two as near. */
static int nearest(const int8_t *value, float x) {
    int best = 0;
    for (int i = 1; i < 16; i++) {
        if (fabsf(x - (float)value[i]) < fabsf(x - (float)value[best])) best = i;
    }
    return best;
}

/* ---- floats and blocks of 32 ---- */

static void encode_f32(uint8_t *dst, const float *x) {
    memcpy(dst, x, sizeof *x);
}

static void encode_f16(uint8_t *dst, const float *x) {
    put_f16(dst, *x);
}

static void encode_bf16(uint8_t *dst, const float *x) {
    uint16_t h = f32_to_bf16(*x);
    memcpy(dst, &h, sizeof h);
}

/* Signed steps of n_bit bits: the extreme becomes the most negative step exactly. */
static void encode_signed(int *q, uint8_t *d_at, const float *x, int n_bit) {
    int half = 1 << (n_bit - 1);
    float inv = inverse(put_f16(d_at, extreme(x, 32) / (float)-half));
    for (int j = 0; j < 32; j++) q[j] = round_clip(x[j] * inv, -half, half - 1) + half;
}

/* Steps 0 .. 2^n_bit - 1 from the lowest value up. */
static void encode_ranged(int *q, uint8_t *d_at, uint8_t *m_at, const float *x, int n_bit) {
    float lo, hi;
    int top = (1 << n_bit) - 1;
    range(&lo, &hi, x, 32);
    float m = put_f16(m_at, lo), inv = inverse(put_f16(d_at, (hi - lo) / (float)top));
    for (int j = 0; j < 32; j++) q[j] = round_clip((x[j] - m) * inv, 0, top);
}

static void put_fifth_bits(uint8_t *qh, const int *q) {
    uint32_t bits = 0;
    for (int j = 0; j < 32; j++) bits |= (uint32_t)(q[j] >> 4 & 1) << j;
    memcpy(qh, &bits, sizeof bits);
}

static void encode_q4_0(uint8_t *dst, const float *x) {
    int q[32];
    encode_signed(q, dst, x, 4);
    put_nibbles(dst + 2, q);
}

static void encode_q4_1(uint8_t *dst, const float *x) {
    int q[32];
    encode_ranged(q, dst, dst + 2, x, 4);
    put_nibbles(dst + 4, q);
}

static void encode_q5_0(uint8_t *dst, const float *x) {
    int q[32];
    encode_signed(q, dst, x, 5);
    put_fifth_bits(dst + 2, q);
    put_nibbles(dst + 6, q);
}

static void encode_q5_1(uint8_t *dst, const float *x) {
    int q[32];
    encode_ranged(q, dst, dst + 2, x, 5);
    put_fifth_bits(dst + 4, q);
    put_nibbles(dst + 8, q);
}

static void encode_q8_0(uint8_t *dst, const float *x) {
    float inv = inverse(put_f16(dst, fabsf(extreme(x, 32)) / 127.0f));
    for (int j = 0; j < 32; j++) dst[2 + j] = (uint8_t)round_clip(x[j] * inv, -127, 127);
}

static void encode_iq4_nl(uint8_t *dst, const float *x) {
    int q[32];
    float inv = inverse(put_f16(dst, extreme(x, 32) / -127.0f));
    for (int j = 0; j < 32; j++) q[j] = nearest(quant_value_iq4, x[j] * inv);
    put_nibbles(dst + 2, q);
}

/* The exponent puts the largest magnitude into 4 .. 8 (of values up to 6): what is above 6 is clipped. */
static void encode_mxfp4(uint8_t *dst, const float *x) {
    float amax = fabsf(extreme(x, 32));
    int e = 0, q[32];
    if (amax > 0) frexpf(amax, &e); // amax = m 2^e, 1/2 <= m < 1
    e = amax > 0 ? e - 3 + 127 : 0;
    e = e < 0 ? 0 : e > 254 ? 254 : e;
    dst[0] = (uint8_t)e;
    for (int j = 0; j < 32; j++) q[j] = nearest(quant_value_fp4, ldexpf(x[j], 128 - e));
    put_nibbles(dst + 1, q);
}

/* ---- blocks of 256 ---- */

/* Up to 16 groups of a block: scale and minimum as the file says them, and as the whole numbers it keeps. */
typedef struct groups {
    float scale[16], min[16];
    int sc[16], mn[16];
} groups;

/* n groups of 256 / n weights for steps 0 .. top: values are scale * q - min with min >= 0, both kept as
 * n_bit bits times an f16 (d at d_at, the minima's after it). */
static void groups_ranged(groups *g, uint8_t *d_at, const float *x, int n, int top, int n_bit) {
    float max_scale = 0, max_min = 0;
    int last = (1 << n_bit) - 1;
    for (int i = 0; i < n; i++) {
        float lo, hi;
        range(&lo, &hi, x + i * (256 / n), 256 / n);
        lo = lo < 0 ? lo : 0;
        g->scale[i] = (hi > lo ? hi - lo : 0) / (float)top;
        g->min[i] = -lo;
        max_scale = fmaxf(max_scale, g->scale[i]);
        max_min = fmaxf(max_min, g->min[i]);
    }
    float d = put_f16(d_at, max_scale / (float)last), m = put_f16(d_at + 2, max_min / (float)last);
    for (int i = 0; i < n; i++) {
        g->sc[i] = round_clip(g->scale[i] * inverse(d), 0, last);
        g->mn[i] = round_clip(g->min[i] * inverse(m), 0, last);
        g->scale[i] = d * (float)g->sc[i];
        g->min[i] = m * (float)g->mn[i];
    }
}

/* n groups for steps -half and up (the extreme becomes -half): scales kept as -last .. last times an f16. */
static void groups_signed(groups *g, uint8_t *d_at, const float *x, int n, int half, int last) {
    float max_scale = 0;
    for (int i = 0; i < n; i++) {
        g->scale[i] = extreme(x + i * (256 / n), 256 / n) / (float)-half;
        max_scale = fmaxf(max_scale, fabsf(g->scale[i]));
    }
    float d = put_f16(d_at, max_scale / (float)last);
    for (int i = 0; i < n; i++) {
        g->sc[i] = round_clip(g->scale[i] * inverse(d), -last, last);
        g->scale[i] = d * (float)g->sc[i];
    }
}

/* Bit planes shared by Q2_K, Q3_K and the high bits of Q6_K: weight e has two bits in byte 32 (e / 128) + e
 * % 32. */
static void put_plane2(uint8_t *qs, int e, int two_bits) {
    qs[32 * (e / 128) + e % 32] |= (uint8_t)((two_bits & 3) << 2 * (e / 32 % 4));
}

static void encode_q2_k(uint8_t *dst, const float *x) {
    groups g;
    memset(dst, 0, 84);
    groups_ranged(&g, dst + 80, x, 16, 3, 4);
    for (int i = 0; i < 16; i++) dst[i] = (uint8_t)(g.sc[i] | g.mn[i] << 4);
    for (int e = 0; e < 256; e++) {
        put_plane2(dst + 16, e, round_clip((x[e] + g.min[e / 16]) * inverse(g.scale[e / 16]), 0, 3));
    }
}

static void encode_q3_k(uint8_t *dst, const float *x) {
    groups g;
    memset(dst, 0, 110);
    groups_signed(&g, dst + 108, x, 16, 4, 31);
    for (int i = 0; i < 16; i++) {
        int v = g.sc[i] + 32;
        dst[96 + i % 8] |= (uint8_t)((v & 15) << (i < 8 ? 0 : 4));
        dst[104 + i % 4] |= (uint8_t)((v >> 4) << 2 * (i / 4));
    }
    for (int e = 0; e < 256; e++) {
        int q = round_clip(x[e] * inverse(g.scale[e / 16]), -4, 3) + 4;
        put_plane2(dst + 32, e, q);
        dst[e % 32] |= (uint8_t)((q >> 2) << e / 32);
    }
}

/* The twelve bytes of eight 6-bit scales and eight 6-bit minima. */
static void put_scales_k(uint8_t *b, const int *sc, const int *mn) {
    for (int k = 0; k < 4; k++) {
        b[k] = (uint8_t)(sc[k] | (sc[k + 4] >> 4) << 6);
        b[k + 4] = (uint8_t)(mn[k] | (mn[k + 4] >> 4) << 6);
        b[k + 8] = (uint8_t)((sc[k + 4] & 15) | (mn[k + 4] & 15) << 4);
    }
}

/* Q4_K and Q5_K differ in where the bits go. */
static void encode_k_ranged(int *q, uint8_t *dst, const float *x, int top) {
    groups g;
    groups_ranged(&g, dst, x, 8, top, 6);
    put_scales_k(dst + 4, g.sc, g.mn);
    for (int e = 0; e < 256; e++)
        q[e] = round_clip((x[e] + g.min[e / 32]) * inverse(g.scale[e / 32]), 0, top);
}

static void put_nibbles_k(uint8_t *qs, const int *q) {
    for (int j = 0; j < 128; j++) {
        int e = j / 32 * 64 + j % 32;
        qs[j] = (uint8_t)((q[e] & 15) | (q[e + 32] & 15) << 4);
    }
}

static void encode_q4_k(uint8_t *dst, const float *x) {
    int q[256];
    encode_k_ranged(q, dst, x, 15);
    put_nibbles_k(dst + 16, q);
}

static void encode_q5_k(uint8_t *dst, const float *x) {
    int q[256];
    encode_k_ranged(q, dst, x, 31);
    put_nibbles_k(dst + 48, q);
    memset(dst + 16, 0, 32);
    for (int e = 0; e < 256; e++) dst[16 + e % 32] |= (uint8_t)((q[e] >> 4) << e / 32);
}

static void encode_q6_k(uint8_t *dst, const float *x) {
    groups g;
    memset(dst, 0, 210);
    groups_signed(&g, dst + 208, x, 16, 32, 127);
    for (int i = 0; i < 16; i++) dst[192 + i] = (uint8_t)g.sc[i];
    for (int e = 0; e < 256; e++) {
        int q = round_clip(x[e] * inverse(g.scale[e / 16]), -32, 31) + 32, n = e / 32 % 4;
        dst[64 * (e / 128) + 32 * (n % 2) + e % 32] |= (uint8_t)((q & 15) << (n < 2 ? 0 : 4));
        put_plane2(dst + 128, e, q >> 4);
    }
}

static void encode_iq4_xs(uint8_t *dst, const float *x) {
    groups g;
    int q[32];
    memset(dst, 0, 136);
    groups_signed(&g, dst, x, 8, 127, 31);
    for (int k = 0; k < 8; k++) {
        int v = g.sc[k] + 32;
        dst[4 + k / 2] |= (uint8_t)((v & 15) << 4 * (k % 2));
        dst[2 + k / 4] |= (uint8_t)((v >> 4) << 2 * (k % 4));
        for (int j = 0; j < 32; j++) q[j] = nearest(quant_value_iq4, x[32 * k + j] * inverse(g.scale[k]));
        put_nibbles(dst + 8 + 16 * k, q);
    }
}

/* ---- the table ---- */

typedef void encode_fn(uint8_t *dst, const float *x);

static encode_fn *const g_encode[GGUF_TYPE_N] = {
    [GGUF_F32] = encode_f32,     [GGUF_F16] = encode_f16,       [GGUF_BF16] = encode_bf16,
    [GGUF_Q4_0] = encode_q4_0,   [GGUF_Q4_1] = encode_q4_1,     [GGUF_Q5_0] = encode_q5_0,
    [GGUF_Q5_1] = encode_q5_1,   [GGUF_Q8_0] = encode_q8_0,     [GGUF_Q2_K] = encode_q2_k,
    [GGUF_Q3_K] = encode_q3_k,   [GGUF_Q4_K] = encode_q4_k,     [GGUF_Q5_K] = encode_q5_k,
    [GGUF_Q6_K] = encode_q6_k,   [GGUF_IQ4_NL] = encode_iq4_nl, [GGUF_IQ4_XS] = encode_iq4_xs,
    [GGUF_MXFP4] = encode_mxfp4,
};

bool quant_encode(void *dst, const float *src, gguf_type type, size_t n) {
    const gguf_type_info *info = gguf_type_get((uint32_t)type);
    if (!info || !g_encode[type]) return false;
    assert(n % info->block == 0);
    for (size_t ib = 0; ib < n / info->block; ib++) {
        g_encode[type]((uint8_t *)dst + ib * info->bytes, src + ib * info->block);
    }
    return true;
}
