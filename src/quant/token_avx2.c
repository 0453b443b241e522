/* The token role (docs/ARITHMETIC.md rules 2, 3, 5) with AVX2.
 *
 * The 64 accumulators of rule 3 are eight registers, one a block mod 8, whose lanes are the groups of four.
 * A unit of weights goes from memory through the registers once, nothing is stored. Several rows of
 * activations are several_avx2.c's.
 *
 * Group sums are exact: unsigned bytes times signed bytes add to 16-bit pairs that cannot saturate. The
 * largest cases are 2 * 63 * 127 (Q6_K before its offset), 2 * 128 * 127 (Q8_0 holding -128: the magnitude
 * 128 is an unsigned byte). */
#include "quant/kernels.h"
#include "quant/token_avx2.h"

typedef struct token_sum {
    __m256 acc[8]; // [block mod 8], lanes: group of four
    __m256 min;    // lanes: block mod 8
} token_sum;

SIMD void token_sum_clear(token_sum *t) {
    UNROLL
    for (int j = 0; j < 8; j++) t->acc[j] = _mm256_setzero_ps();
    t->min = _mm256_setzero_ps();
}

SIMD float token_sum_tree(const token_sum *t, bool has_min) {
    __m256 pair[4];
    UNROLL
    for (int k = 0; k < 4; k++) pair[k] = _mm256_add_ps(t->acc[2 * k], t->acc[2 * k + 1]);
    float sum = pairs_tree(pair);
    return has_min ? sum - mins_tree(t->min) : sum;
}

/* ---- one row of activations ------------------------------------------------------------------------- */

/* Sums of pairs of products of block j, its bytes w, in 16 bits. */
SIMD __m256i pairs_dot(const unit_kind k, const uint8_t *p, __m256i w, int j, const int8_t *xq) {
    __m256i x = load256(xq);
    if (unit_is_signed(k)) return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
    if (k.sgn) return _mm256_maddubs_epi16(w, _mm256_sign_epi8(x, k.sgn(p, j)));
    __m256i t = _mm256_maddubs_epi16(w, x);
    if (k.offset) t = _mm256_sub_epi16(t, _mm256_maddubs_epi16(bytes_all(k.offset), x));
    return t;
}

/* Scales of the unit's blocks times those of the activations, in half order. */
SIMD void unit_scales(__m256 s[2], const unit_kind k, const uint8_t *p, const float *dx, int n) {
    if (k.scale) {
        __m256 v = _mm256_mul_ps(k.scale(p, n), lanes_load(dx, n));
        s[0] = _mm256_permute2f128_ps(v, v, 0x00);
        s[1] = _mm256_permute2f128_ps(v, v, 0x11);
    } else {
        __m256 d[2];
        k.scale16(s, p, n);
        quads_load(d, dx, n);
        s[0] = _mm256_mul_ps(s[0], d[0]);
        s[1] = _mm256_mul_ps(s[1], d[1]);
    }
}

/* n blocks of a unit. */
SIMD void unit_add(token_sum *t, const unit_kind k, const uint8_t *p, const uint16_t *at, act_at a, int n) {
    __m256 s[2];
    unit_scales(s, k, p, a.d, n);
    UNROLL
    for (int j = 0; j < 8; j++) {
        if (j < n) {
            __m256i pairs = pairs_dot(k, p, unit_bytes(k, p, at, j), j, a.q + 32 * j);
            __m256i sum = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
            t->acc[j] = _mm256_fmadd_ps(half_scale(s, j), _mm256_cvtepi32_ps(sum), t->acc[j]);
        }
    }
    if (k.min) t->min = min_add(t->min, k.min(p, n), a.s, n);
    if (k.min16) {
        k.min16(s, p, n);
        t->min = min16_add(t->min, s, a.s16);
    }
}

SIMD float segment_dot(const unit_kind k, const uint8_t *p, act_at a, uint32_t n_col) {
    token_sum t;
    uint16_t index[SEGMENT_UNITS][UNIT_INDEX_MAX], *at = index[0];
    token_sum_clear(&t);
    units_index(index, k, p, (int)(n_col / 256));
    for (uint32_t n = n_col / 256; n > 0; n--) {
        prefetch(p, k.bytes);
        unit_add(&t, k, p, at, a, 8);
        p += k.bytes;
        at += UNIT_INDEX_MAX;
        a = act_skip(a, 1);
    }
    // Only types with blocks under 256 can end here; the others never come to this copy of unit_add.
    if (k.block < 256 && n_col % 256) unit_add(&t, k, p, at, a, (int)(n_col % 256 / 32));
    return token_sum_tree(&t, k.min || k.min16);
}

/* ---- rows of weights -------------------------------------------------------------------------------- */

SIMD void rows_one(const unit_kind k, const token_job *b) {
    uint32_t n_seg = quant_segment_n(b->n_col);
    for (uint32_t ir = 0; ir < b->n_row; ir++) {
        float y = 0;
        for (uint32_t is = 0; is < n_seg; is++) {
            uint32_t begin = 0, end = b->n_col;
            if (n_seg > 1)
                quant_segment_get(&begin, &end, is, b->n_col); // it divides, which short rows would feel
            const uint8_t *p = b->w + ir * b->row_bytes + (size_t)(begin / 256) * (size_t)k.bytes;
            y += segment_dot(k, p, act_row(b->a, b->act0, begin), end - begin);
        }
        b->y[ir] = y;
    }
}

#define TOKEN_KERNEL(TYPE, name, n_sub, has_min)                                                             \
    void quant_token_avx2_##name(float *y, size_t ld_y, const void *w, size_t row_bytes, const quant_act *a, \
                                 uint32_t act0, uint32_t n_act, uint32_t n_row, uint32_t n_col) {            \
        token_job job = {y, ld_y, w, row_bytes, a, act0, n_act, n_row, n_col};                               \
        quant_calls_add(CPU_AVX2, false, GGUF_##TYPE);                                                       \
        if (n_act == 1)                                                                                      \
            rows_one(unit_##name, &job);                                                                     \
        else                                                                                                 \
            token_rows_several_avx2(GGUF_##TYPE, &job);                                                      \
    }
QUANT_TYPES(TOKEN_KERNEL)

/* ---- float weights ---------------------------------------------------------------------------------- */

typedef __m256 load8_fn(const uint8_t *w);

SIMD __m256 load8_f32(const uint8_t *w) {
    return _mm256_loadu_ps((const float *)(const void *)w);
}
SIMD __m256 load8_f16(const uint8_t *w) {
    return _mm256_cvtph_ps(load128(w));
}
SIMD __m256 load8_bf16(const uint8_t *w) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load128(w)), 16));
}

/* The last n_col % 64 columns. */
SIMD void float_tail_add(__m256 acc[8], load8_fn *load8, int size, const uint8_t *w, const float *x,
                         uint32_t n) {
    float a[64];
    UNROLL
    for (int i = 0; i < 8; i++) _mm256_storeu_ps(a + 8 * i, acc[i]);
    for (uint32_t c = 0; c < n; c += 8) {
        uint8_t wt[32] = {0};
        float xt[8] = {0};
        int n_lane = n - c < 8 ? (int)(n - c) : 8;
        memcpy(wt, w + c * (uint32_t)size, (size_t)(n_lane * size));
        memcpy(xt, x + c, (size_t)n_lane * sizeof *xt);
        __m256 old = _mm256_loadu_ps(a + c), r = _mm256_fmadd_ps(load8(wt), _mm256_loadu_ps(xt), old);
        _mm256_storeu_ps(a + c, _mm256_blendv_ps(old, r, lanes_below(n_lane)));
    }
    UNROLL
    for (int i = 0; i < 8; i++) acc[i] = _mm256_loadu_ps(a + 8 * i);
}

SIMD float float_segment_dot(load8_fn *load8, int size, const uint8_t *w, const float *x, uint32_t n_col) {
    __m256 acc[8];
    UNROLL
    for (int i = 0; i < 8; i++) acc[i] = _mm256_setzero_ps();
    for (; n_col >= 64; n_col -= 64, w += 64 * size, x += 64) {
        prefetch(w, 64 * size);
        UNROLL
        for (int i = 0; i < 8; i++)
            acc[i] = _mm256_fmadd_ps(load8(w + 8 * i * size), _mm256_loadu_ps(x + 8 * i), acc[i]);
    }
    if (n_col) float_tail_add(acc, load8, size, w, x, n_col);
    return float_tree64(acc);
}

SIMD void rows_float(load8_fn *load8, int size, const token_job *b) {
    uint32_t n_seg = quant_segment_n(b->n_col);
    for (uint32_t ir = 0; ir < b->n_row; ir++) {
        float y[QUANT_TOKEN_ROWS_MAX] = {0};
        for (uint32_t is = 0; is < n_seg; is++) {
            uint32_t begin = 0, end = b->n_col;
            if (n_seg > 1) quant_segment_get(&begin, &end, is, b->n_col);
            const uint8_t *w = b->w + ir * b->row_bytes + (size_t)begin * (size_t)size;
            for (uint32_t ia = 0; ia < b->n_act; ia++) {
                const float *x = b->a->x + (size_t)(b->act0 + ia) * b->a->ld + begin;
                y[ia] += float_segment_dot(load8, size, w, x, end - begin);
            }
        }
        for (uint32_t ia = 0; ia < b->n_act; ia++) b->y[ia * b->ld_y + ir] = y[ia];
    }
}

#define TOKEN_FLOAT_KERNEL(TYPE, name, size)                                                                 \
    void quant_token_avx2_##name(float *y, size_t ld_y, const void *w, size_t row_bytes, const quant_act *a, \
                                 uint32_t act0, uint32_t n_act, uint32_t n_row, uint32_t n_col) {            \
        token_job job = {y, ld_y, w, row_bytes, a, act0, n_act, n_row, n_col};                               \
        quant_calls_add(CPU_AVX2, false, GGUF_##TYPE);                                                       \
        rows_float(load8_##name, size, &job);                                                                \
    }
TOKEN_FLOAT_KERNEL(F32, f32, 4)
TOKEN_FLOAT_KERNEL(F16, f16, 2)
TOKEN_FLOAT_KERNEL(BF16, bf16, 2)
