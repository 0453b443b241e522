/* The token role (docs/ARITHMETIC.md rules 2, 3, 5) with AVX-512 and VNNI.
 *
 * The 64 accumulators of rule 3 are four registers: pair k holds blocks 2k and 2k + 1, lanes are groups of
 * four, which is what one dot-product instruction sums. Types are unpacked by the AVX2 halves of
 * unpack_avx2.h. Two rows of weights are in flight, so that an activation is loaded once for both and so is
 * what must be taken off it:
 * - The instruction wants one factor unsigned. Signed weights are used as w + 128 (or, small ones, with their
 * offset), and the sum of 128 x, made once for both rows, is where the integer sum starts from.
 * - Integer sums start at 0x4B400000, which read as a float is 1.5 * 2^23: with a sum under 2^22 added they
 * are the float 1.5 * 2^23 + sum, exactly, and a subtraction replaces the conversion. */
#include "quant/kernels.h"
#include "quant/pair_avx512.h"
#include "quant/token_avx2.h"

/* ---- one row of activations ---- */

typedef struct token_sum {
    __m512 acc[4]; // [pair], lanes: blocks 2k, 2k + 1 times group of four
    __m256 min;    // lanes: block mod 8
} token_sum;

SIMD void token_sum_clear(token_sum *t) {
    UNROLL
    for (int k = 0; k < 4; k++) t->acc[k] = _mm512_setzero_ps();
    t->min = _mm256_setzero_ps();
}

SIMD float token_sum_tree(const token_sum *t, bool has_min) {
    __m256 pair[4];
    UNROLL
    for (int k = 0; k < 4; k++) {
        pair[k] = _mm256_add_ps(_mm512_castps512_ps256(t->acc[k]), _mm512_extractf32x8_ps(t->acc[k], 1));
    }
    float sum = pairs_tree(pair);
    return has_min ? sum - mins_tree(t->min) : sum;
}

/* Pair i of a unit of which n blocks exist. */
typedef struct pair_at {
    int i, n;
} pair_at;
SIMD bool pair_whole(pair_at at) {
    return 2 * at.i + 1 < at.n;
}

/* acc + scale * sum; in a pair with one block, its lanes alone. */
SIMD __m512 pair_add(__m512 acc, __m512 scale, __m512i sum, pair_at at) {
    if (pair_whole(at)) return _mm512_fmadd_ps(scale, float_of_magic(sum), acc);
    return _mm512_mask3_fmadd_ps(scale, float_of_magic(sum), acc, 0x00FF);
}

/* Activations of a pair. */
SIMD __m512i pair_load(const int8_t *q, pair_at at) {
    q += 64 * at.i;
    return pair_whole(at) ? load512(q) : _mm512_maskz_loadu_epi8(0xFFFFFFFF, q);
}

/* A unit of a weight row and the numbers of its grid entries. */
typedef struct unit_from {
    const uint8_t *p;
    const uint16_t *index;
} unit_from;

/* Bytes of a pair, unsigned; see the head for what to take off their products. */
SIMD __m512i pair_weights(const unit_kind k, const unit_from *u, pair_at at) {
    __m256i lo = unit_bytes(k, u->p, u->index, 2 * at.i), hi = _mm256_setzero_si256();
    if (pair_whole(at)) hi = unit_bytes(k, u->p, u->index, 2 * at.i + 1);
    __m512i w = join(lo, hi);
    return unit_is_signed(k) ? _mm512_xor_si512(w, _mm512_set1_epi8(-128)) : w;
}

/* Scales of a unit times those of the activations, for pair_scale. */
SIMD __m512 unit_scales(const unit_kind k, const uint8_t *p, const float *dx, int n) {
    if (k.scale) return _mm512_castps256_ps512(_mm256_mul_ps(k.scale(p, n), lanes_load(dx, n)));
    __m256 s[2], d[2];
    k.scale16(s, p, n);
    quads_load(d, dx, n);
    s[0] = _mm256_mul_ps(s[0], d[0]);
    s[1] = _mm256_mul_ps(s[1], d[1]);
    return _mm512_insertf32x8(_mm512_castps256_ps512(s[0]), s[1], 1);
}

SIMD __m256 unit_min_add(__m256 acc, const unit_kind k, const uint8_t *p, act_at a, int n) {
    if (k.min) return min_add(acc, k.min(p, n), a.s, n);
    __m256 m[2];
    k.min16(m, p, n);
    return min16_add(acc, m, a.s16);
}

enum { FLIGHT = 2 };

/* Pair i of a unit, n blocks of it there, of each row; scale is that of the units. */
SIMD void flight_pair_add(token_sum t[FLIGHT], const unit_kind k, const unit_from u[FLIGHT], __m512i x,
                          const __m512 scale[FLIGHT], pair_at at) {
    const int offset = unit_is_signed(k) ? 128 : k.offset;
    __m512i start = _mm512_set1_epi32(MAGIC);
    if (offset) {
        __m512i off = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8((char)offset), x);
        start = _mm512_sub_epi32(start, off);
    }
    UNROLL
    for (int r = 0; r < FLIGHT; r++) {
        __m512i xs = x;
        if (k.sign) xs = _mm512_mask_sub_epi8(x, k.sign(u[r].p, at.i), _mm512_setzero_si512(), x);
        __m512i sum = _mm512_dpbusd_epi32(start, pair_weights(k, &u[r], at), xs);
        t[r].acc[at.i] = pair_add(t[r].acc[at.i], pair_scale(scale[r], at.i, k.scale16 != NULL), sum, at);
    }
}

/* n blocks of a unit of each row. */
SIMD void unit_add(token_sum t[FLIGHT], const unit_kind k, const unit_from u[FLIGHT], act_at a, int n) {
    __m512 scale[FLIGHT];
    UNROLL
    for (int r = 0; r < FLIGHT; r++) scale[r] = unit_scales(k, u[r].p, a.d, n);
    UNROLL
    for (int i = 0; i < 4; i++) {
        pair_at at = {i, n};
        if (2 * i < n) flight_pair_add(t, k, u, pair_load(a.q, at), scale, at);
    }
    UNROLL
    for (int r = 0; r < FLIGHT; r++) {
        if (k.min || k.min16) t[r].min = unit_min_add(t[r].min, k, u[r].p, a, n);
    }
}

/* Adds a segment of each row, row_bytes apart, to y. */
SIMD void segment_add(float *y, const unit_kind k, const uint8_t *w, size_t row_bytes, act_at a,
                      uint32_t n_col) {
    token_sum t[FLIGHT];
    unit_from u[FLIGHT];
    uint16_t index[FLIGHT][SEGMENT_UNITS][UNIT_INDEX_MAX];
    UNROLL
    for (int r = 0; r < FLIGHT; r++) {
        token_sum_clear(&t[r]);
        u[r] = (unit_from){w + (size_t)r * row_bytes, index[r][0]};
        units_index(index[r], k, u[r].p, (int)(n_col / 256));
    }
    for (uint32_t n = n_col / 256; n > 0; n--) {
        UNROLL
        for (int r = 0; r < FLIGHT; r++) prefetch(u[r].p, k.bytes);
        unit_add(t, k, u, a, 8);
        UNROLL
        for (int r = 0; r < FLIGHT; r++) u[r] = (unit_from){u[r].p + k.bytes, u[r].index + UNIT_INDEX_MAX};
        a = act_skip(a, 1);
    }
    if (k.block < 256 && n_col % 256) unit_add(t, k, u, a, (int)(n_col % 256 / 32));
    UNROLL
    for (int r = 0; r < FLIGHT; r++) y[r] += token_sum_tree(&t[r], k.min || k.min16);
}

/* Rows ir and ir + 1; the last row of an odd number keeps itself company. */
SIMD void rows_flight(const unit_kind k, const token_job *b, uint32_t ir) {
    uint32_t n_seg = quant_segment_n(b->n_col);
    bool both = ir + 1 < b->n_row;
    float y[FLIGHT] = {0};
    for (uint32_t is = 0; is < n_seg; is++) {
        uint32_t begin = 0, end = b->n_col;
        if (n_seg > 1) quant_segment_get(&begin, &end, is, b->n_col);
        const uint8_t *w = b->w + ir * b->row_bytes + (size_t)(begin / 256) * (size_t)k.bytes;
        segment_add(y, k, w, both ? b->row_bytes : 0, act_row(b->a, b->act0, begin), end - begin);
    }
    b->y[ir] = y[0];
    if (both) b->y[ir + 1] = y[1];
}

SIMD void rows_one(const unit_kind k, const token_job *b) {
    for (uint32_t ir = 0; ir < b->n_row; ir += FLIGHT) rows_flight(k, b, ir);
}

#define TOKEN_KERNEL(TYPE, name, n_sub, has_min)                                                             \
    void quant_token_avx512_##name(float *y, size_t ld_y, const void *w, size_t row_bytes,                   \
                                   const quant_act *a, uint32_t act0, uint32_t n_act, uint32_t n_row,        \
                                   uint32_t n_col) {                                                         \
        token_job job = {y, ld_y, w, row_bytes, a, act0, n_act, n_row, n_col};                               \
        quant_calls_add(CPU_AVX512, false, GGUF_##TYPE);                                                     \
        if (n_act == 1)                                                                                      \
            rows_one(unit_##name, &job);                                                                     \
        else                                                                                                 \
            token_rows_several_avx512(GGUF_##TYPE, &job);                                                    \
    }
QUANT_TYPES(TOKEN_KERNEL)

/* ---- float weights
 * ----------------------------------------------------------------------------------------------------------
 */

/* 16 weights, or those of the mask and zeros. */
typedef __m512 load16_fn(const uint8_t *w, __mmask16 m);

SIMD __m512 load16_f32(const uint8_t *w, __mmask16 m) {
    return _mm512_maskz_loadu_ps(m, w);
}
SIMD __m512 load16_f16(const uint8_t *w, __mmask16 m) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(m, w));
}
SIMD __m512 load16_bf16(const uint8_t *w, __mmask16 m) {
    __m512i v = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m, w));
    return _mm512_castsi512_ps(_mm512_slli_epi32(v, 16));
}

/* n <= 64 columns. */
SIMD void float_columns_add(__m512 acc[4], load16_fn *load16, int size, const uint8_t *w, const float *x,
                            uint32_t n) {
    UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        if (16 * i < n) {
            uint32_t left = n - 16 * i;
            __mmask16 m = (__mmask16)(left < 16 ? (1u << left) - 1 : 0xFFFF);
            __m512 wv = load16(w + 16 * i * (uint32_t)size, m), xv = _mm512_maskz_loadu_ps(m, x + 16 * i);
            acc[i] = left < 16 ? _mm512_mask3_fmadd_ps(wv, xv, acc[i], m) : _mm512_fmadd_ps(wv, xv, acc[i]);
        }
    }
}

SIMD float float_segment_dot(load16_fn *load16, int size, const uint8_t *w, const float *x, uint32_t n_col) {
    __m512 acc[4];
    UNROLL
    for (int i = 0; i < 4; i++) acc[i] = _mm512_setzero_ps();
    for (; n_col >= 64; n_col -= 64, w += 64 * size, x += 64) {
        prefetch(w, 64 * size);
        float_columns_add(acc, load16, size, w, x, 64);
    }
    if (n_col) float_columns_add(acc, load16, size, w, x, n_col);
    __m256 half[8];
    UNROLL
    for (int i = 0; i < 4; i++) {
        half[2 * i] = _mm512_castps512_ps256(acc[i]);
        half[2 * i + 1] = _mm512_extractf32x8_ps(acc[i], 1);
    }
    return float_tree64(half);
}

SIMD void rows_float(load16_fn *load16, int size, const token_job *b) {
    uint32_t n_seg = quant_segment_n(b->n_col);
    for (uint32_t ir = 0; ir < b->n_row; ir++) {
        float y[QUANT_TOKEN_ROWS_MAX] = {0};
        for (uint32_t is = 0; is < n_seg; is++) {
            uint32_t begin = 0, end = b->n_col;
            if (n_seg > 1) quant_segment_get(&begin, &end, is, b->n_col);
            const uint8_t *w = b->w + ir * b->row_bytes + (size_t)begin * (size_t)size;
            for (uint32_t ia = 0; ia < b->n_act; ia++) {
                const float *x = b->a->x + (size_t)(b->act0 + ia) * b->a->ld + begin;
                y[ia] += float_segment_dot(load16, size, w, x, end - begin);
            }
        }
        for (uint32_t ia = 0; ia < b->n_act; ia++) b->y[ia * b->ld_y + ir] = y[ia];
    }
}

#define TOKEN_FLOAT_KERNEL(TYPE, name, size)                                                                 \
    void quant_token_avx512_##name(float *y, size_t ld_y, const void *w, size_t row_bytes,                   \
                                   const quant_act *a, uint32_t act0, uint32_t n_act, uint32_t n_row,        \
                                   uint32_t n_col) {                                                         \
        token_job job = {y, ld_y, w, row_bytes, a, act0, n_act, n_row, n_col};                               \
        quant_calls_add(CPU_AVX512, false, GGUF_##TYPE);                                                     \
        rows_float(load16_##name, size, &job);                                                               \
    }
TOKEN_FLOAT_KERNEL(F32, f32, 4)
TOKEN_FLOAT_KERNEL(F16, f16, 2)
TOKEN_FLOAT_KERNEL(BF16, bf16, 2)
