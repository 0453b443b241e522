/* 2 to 8 rows of activations in the token role, what AVX2 and AVX-512 share. A segment of a weight row is
 * walked in stretches of at most 2048 weights: what they, their scales and eight rows of activations need
 * stays in a first cache of 32 KiB while the stretch is passed over several times. Scales are multiplied with
 * those of every row and minima are summed here. */
#ifndef MICA_QUANT_SEVERAL_AVX2_H
#define MICA_QUANT_SEVERAL_AVX2_H

#include "quant/block.h"
#include "quant/token_avx2.h"

/* A kind of weights and a number of rows of activations: constants in every use. */
typedef struct several_kind {
    bool is_signed;
    int n_sub, n_act;
} several_kind;

enum { STRETCH_UNITS = 8 };

/* A stretch of a weight row beside all rows of activations, and the sums of its segment. */
typedef struct several {
    _Alignas(64) int8_t q[STRETCH_UNITS][256];
    float scale[STRETCH_UNITS][QUANT_TOKEN_ROWS_MAX][16]; // times d: one a block, or half order
    _Alignas(64) float acc[QUANT_TOKEN_ROWS_MAX][64];     // rule 3's: block mod 8, group
    __m256 min[QUANT_TOKEN_ROWS_MAX];                     // lanes: block mod 8
    act_at a[QUANT_TOKEN_ROWS_MAX];
    uint16_t index[STRETCH_UNITS][UNIT_INDEX_MAX]; // numbers of grid entries
    int n_act, n_unit, n_tail;                     // rows of activations; whole units, blocks after them
} several;

/* Signed bytes of block j of the unit at p (as they are in types with minima). */
SIMD __m256i weights_get(const unit_kind k, const uint8_t *p, const uint16_t *at, int j) {
    __m256i q = unit_bytes(k, p, at, j);
    if (k.sgn) q = _mm256_sign_epi8(q, k.sgn(p, j));
    return k.offset ? _mm256_sub_epi8(q, bytes_all(k.offset)) : q;
}

/* n blocks of the unit at p to the first cache, as unit iu. */
SIMD void unit_unpack(several *s, const unit_kind k, const uint8_t *p, int iu, int n) {
    UNROLL
    for (int j = 0; j < 8; j++) {
        if (j < n)
            _mm256_store_si256((__m256i *)(void *)(s->q[iu] + 32 * j), weights_get(k, p, s->index[iu], j));
    }
}

/* Its scales and minima meet the rows of activations. */
SIMD void unit_meet(several *s, const unit_kind k, const uint8_t *p, int iu, int n) {
    __m256 w[2], m[2], d[2];
    if (k.scale) w[0] = k.scale(p, n);
    if (k.scale16) k.scale16(w, p, n);
    if (k.min) m[0] = k.min(p, n);
    if (k.min16) k.min16(m, p, n);
    for (int a = 0; a < s->n_act; a++) {
        act_at at = act_skip(s->a[a], (size_t)iu);
        float *to = s->scale[iu][a];
        if (k.scale) {
            _mm256_storeu_ps(to, _mm256_mul_ps(w[0], lanes_load(at.d, n)));
        } else {
            quads_load(d, at.d, n);
            _mm256_storeu_ps(to, _mm256_mul_ps(w[0], d[0]));
            _mm256_storeu_ps(to + 8, _mm256_mul_ps(w[1], d[1]));
        }
        if (k.min) s->min[a] = min_add(s->min[a], m[0], at.s, n);
        if (k.min16) s->min[a] = min16_add(s->min[a], m, at.s16);
    }
}

/* The stretch at p. */
SIMD void stretch_meet(several *s, const unit_kind k, const uint8_t *p, uint32_t n_col, bool unpack) {
    s->n_unit = (int)(n_col / 256);
    s->n_tail = (int)(n_col % 256 / 32);
    units_index(s->index, k, p, s->n_unit);
    for (int iu = 0; iu < s->n_unit; iu++, p += k.bytes) {
        prefetch(p, k.bytes);
        if (unpack) unit_unpack(s, k, p, iu, 8);
        unit_meet(s, k, p, iu, 8);
    }
    if (k.block < 256 && s->n_tail) {
        if (unpack) unit_unpack(s, k, p, s->n_unit, s->n_tail);
        unit_meet(s, k, p, s->n_unit, s->n_tail);
    }
}

/* Adds the segment's values to y. */
SIMD void sums_add(float *y, const several *s, bool has_min) {
    for (int a = 0; a < s->n_act; a++) {
        __m256 pair[4];
        UNROLL
        for (int i = 0; i < 4; i++)
            pair[i] =
                _mm256_add_ps(_mm256_load_ps(s->acc[a] + 16 * i), _mm256_load_ps(s->acc[a] + 16 * i + 8));
        float sum = pairs_tree(pair);
        y[a] += has_min ? sum - mins_tree(s->min[a]) : sum;
    }
}

/* Products of a stretch that is unpacked, or of the units at p; added to s->acc. */
typedef void several_fn(several *s);
typedef void several_two_fn(several *s, const unit_kind k, const uint8_t *p);

/* One segment at p. Two rows of activations read the type's own bytes; for more of them a stretch is
 * unpacked: its weights are then used often enough. */
SIMD void several_segment_run(several *s, const unit_kind k, const uint8_t *p, uint32_t n_col,
                              several_two_fn *two, several_fn *more) {
    memset(s->acc, 0, (size_t)s->n_act * sizeof s->acc[0]);
    for (int a = 0; a < s->n_act; a++) s->min[a] = _mm256_setzero_ps();
    for (uint32_t c = 0; c < n_col; c += 256 * STRETCH_UNITS) {
        uint32_t n = n_col - c < 256 * STRETCH_UNITS ? n_col - c : 256 * STRETCH_UNITS;
        stretch_meet(s, k, p, n, s->n_act > 2);
        if (s->n_act == 2)
            two(s, k, p);
        else
            more(s);
        p += STRETCH_UNITS * k.bytes;
        for (int a = 0; a < s->n_act; a++) s->a[a] = act_skip(s->a[a], STRETCH_UNITS);
    }
}

SIMD void several_rows_run(const token_job *b, const unit_kind k, several_two_fn *two, several_fn *more) {
    several s;
    uint32_t n_seg = quant_segment_n(b->n_col);
    s.n_act = (int)b->n_act;
    for (uint32_t ir = 0; ir < b->n_row; ir++) {
        float y[QUANT_TOKEN_ROWS_MAX] = {0};
        for (uint32_t is = 0; is < n_seg; is++) {
            uint32_t begin = 0, end = b->n_col;
            if (n_seg > 1) quant_segment_get(&begin, &end, is, b->n_col);
            for (uint32_t ia = 0; ia < b->n_act; ia++) s.a[ia] = act_row(b->a, b->act0 + ia, begin);
            const uint8_t *p = b->w + ir * b->row_bytes + (size_t)(begin / 256) * (size_t)k.bytes;
            several_segment_run(&s, k, p, end - begin, two, more);
            sums_add(y, &s, k.min || k.min16);
        }
        for (uint32_t ia = 0; ia < b->n_act; ia++) b->y[ia * b->ld_y + ir] = y[ia];
    }
}

/* A function for each kind of weights and number of rows of activations, constants in each so that
 * accumulators are registers, and `entry`, which chooses by type. The file that says it has defined
 * several_run (a stretch that is unpacked) and two_run (two rows, from the type's own bytes). */
#define SEVERAL_FN(is_signed, n_sub, n_act)                                                                  \
    static void several_##is_signed##_##n_sub##_##n_act(several *s) {                                        \
        several_run(s, (several_kind){is_signed, n_sub, n_act});                                             \
    }
#define SEVERAL_FNS(is_signed, n_sub)                                                                        \
    SEVERAL_FN(is_signed, n_sub, 3)                                                                          \
    SEVERAL_FN(is_signed, n_sub, 4)                                                                          \
    SEVERAL_FN(is_signed, n_sub, 5)                                                                          \
    SEVERAL_FN(is_signed, n_sub, 6) SEVERAL_FN(is_signed, n_sub, 7) SEVERAL_FN(is_signed, n_sub, 8)
#define SEVERAL_ROW(is_signed, n_sub)                                                                        \
    {                                                                                                        \
        several_##is_signed##_##n_sub##_3, several_##is_signed##_##n_sub##_4,                                \
            several_##is_signed##_##n_sub##_5, several_##is_signed##_##n_sub##_6,                            \
            several_##is_signed##_##n_sub##_7, several_##is_signed##_##n_sub##_8                             \
    }
#define SEVERAL_KERNEL(TYPE, name, n_sub, has_min)                                                           \
    static void rows_##name(const token_job *b) {                                                            \
        several_rows_run(b, unit_##name, two_run,                                                            \
                         g_several[!has_min][n_sub - 1][b->n_act > 2 ? b->n_act - 3 : 0]);                   \
    }
#define SEVERAL_CASE(TYPE, name, n_sub, has_min)                                                             \
    case GGUF_##TYPE:                                                                                        \
        rows_##name(b);                                                                                      \
        break;
#define SEVERAL_TABLE(entry)                                                                                 \
    SEVERAL_FNS(0, 1)                                                                                        \
    SEVERAL_FNS(0, 2)                                                                                        \
    SEVERAL_FNS(1, 1)                                                                                        \
    SEVERAL_FNS(1, 2)                                                                                        \
    static several_fn *const g_several[2][2][QUANT_TOKEN_ROWS_MAX - 2] = {                                   \
        {SEVERAL_ROW(0, 1), SEVERAL_ROW(0, 2)},                                                              \
        {SEVERAL_ROW(1, 1), SEVERAL_ROW(1, 2)},                                                              \
    };                                                                                                       \
    QUANT_TYPES(SEVERAL_KERNEL)                                                                              \
    void entry(gguf_type type, const token_job *b) {                                                         \
        switch (type) {                                                                                      \
            QUANT_TYPES(SEVERAL_CASE)                                                                        \
        default: break;                                                                                      \
        }                                                                                                    \
    }
#endif
