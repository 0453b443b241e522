/* What the token role is made of on AVX2 and AVX-512 alike: rows of activations, segments, trees of sums. */
#ifndef MICA_QUANT_TOKEN_AVX2_H
#define MICA_QUANT_TOKEN_AVX2_H

#include "quant/quant_int.h"
#include "quant/unpack_avx2.h"

/* ---- activations ------------------------------------------------------------------------------------ */

/* One row of activations from some block on. */
typedef struct act_at {
    const int8_t *q;
    const float *d, *s, *s16;
} act_at;

SIMD act_at act_row(const quant_act *a, uint32_t row, uint32_t col) {
    size_t at = (size_t)row * a->ld + col;
    return (act_at){a->q + at, a->d + at / 32, a->s + at / 32, a->s16 + at / 16};
}
SIMD act_at act_skip(act_at a, size_t n_unit) {
    return (act_at){a.q + 256 * n_unit, a.d + 8 * n_unit, a.s + 8 * n_unit, a.s16 + 16 * n_unit};
}

/* ---- vectors ---------------------------------------------------------------------------------------- */

/* The bytes that a kernel will want some units from now. A stream of rows is one run of memory to the
 * processor's own prefetcher, but that one stops at each 4 KiB page. */
SIMD void prefetch(const uint8_t *p, int n_bytes) {
    for (int i = 0; i < n_bytes; i += 64) _mm_prefetch((const char *)p + 1024 + i, _MM_HINT_T0);
}

/* Scales of block j, spread over its groups: lanes 0..3 the first half's, lanes 4..7 the second's. */
SIMD __m256 half_scale(const __m256 s[2], int j) {
    switch (j & 3) {
    case 0: return _mm256_permute_ps(s[j / 4], 0x00);
    case 1: return _mm256_permute_ps(s[j / 4], 0x55);
    case 2: return _mm256_permute_ps(s[j / 4], 0xAA);
    default: return _mm256_permute_ps(s[j / 4], 0xFF);
    }
}

SIMD __m256 quad_twice(const float *p) {
    return _mm256_broadcast_ps((const __m128 *)(const void *)p);
}

/* All ones in lanes 0 .. n - 1. */
SIMD __m256 lanes_below(int n) {
    return _mm256_castsi256_ps(
        _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)));
}

/* n floats of eight; what lies past them is not read. */
SIMD __m256 lanes_load(const float *p, int n) {
    return n == 8 ? _mm256_loadu_ps(p) : _mm256_maskload_ps(p, _mm256_castps_si256(lanes_below(n)));
}
/* The same: floats 0..3 twice, 4..7 twice. */
SIMD void quads_load(__m256 v[2], const float *p, int n) {
    if (n == 8) {
        v[0] = quad_twice(p);
        v[1] = quad_twice(p + 4);
    } else {
        __m256 r = lanes_load(p, n);
        v[0] = _mm256_permute2f128_ps(r, r, 0x00);
        v[1] = _mm256_permute2f128_ps(r, r, 0x11);
    }
}

/* Minima over 16 (half order) times sums of activations over 16: first halves of the eight blocks, then
 * second halves. */
SIMD __m256 min16_add(__m256 acc, const __m256 m[2], const float *s16) {
    __m256 a = _mm256_loadu_ps(s16), b = _mm256_loadu_ps(s16 + 8);
    __m256i even = _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0x88));
    __m256i odd = _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0xDD));
    __m256 s_first = _mm256_castsi256_ps(_mm256_permute4x64_epi64(even, 0xD8));
    __m256 s_second = _mm256_castsi256_ps(_mm256_permute4x64_epi64(odd, 0xD8));
    acc = _mm256_fmadd_ps(_mm256_permute2f128_ps(m[0], m[1], 0x20), s_first, acc);
    return _mm256_fmadd_ps(_mm256_permute2f128_ps(m[0], m[1], 0x31), s_second, acc);
}

/* Minima of n blocks times sums of activations; lanes past n stay. */
SIMD __m256 min_add(__m256 acc, __m256 m, const float *s, int n) {
    __m256 r = _mm256_fmadd_ps(m, lanes_load(s, n), acc);
    return n == 8 ? r : _mm256_blendv_ps(acc, r, lanes_below(n));
}

enum { SEGMENT_UNITS = 16 };

/* Numbers of grid entries of n units, before any is used: what a vector has stored can be loaded in pieces
 * only once it has reached the cache. */
SIMD void units_index(uint16_t (*at)[UNIT_INDEX_MAX], const unit_kind k, const uint8_t *p, int n) {
    for (int iu = 0; k.index && iu < n; iu++) k.index(at[iu], p + (size_t)(iu * k.bytes));
}

/* ---- trees ------------------------------------------------------------------------------------------ */

/* (0 + 1) + (2 + 3) */
SIMD float quad_tree(__m128 v) {
    v = _mm_hadd_ps(v, v);
    return _mm_cvtss_f32(_mm_add_ss(v, _mm_movehdup_ps(v)));
}

/* Rule 3, sums of blocks 2k and 2k + 1 in pair[k]: groups at distance 1, 2, 4, then k at distance 1, 2. */
SIMD float pairs_tree(const __m256 pair[4]) {
    __m256 q = _mm256_hadd_ps(_mm256_hadd_ps(pair[0], pair[1]), _mm256_hadd_ps(pair[2], pair[3]));
    return quad_tree(_mm_add_ps(_mm256_castps256_ps128(q), _mm256_extractf128_ps(q, 1)));
}
/* The same for minima, lanes: block mod 8. */
SIMD float mins_tree(__m256 m) {
    return quad_tree(_mm_hadd_ps(_mm256_castps256_ps128(m), _mm256_extractf128_ps(m, 1)));
}

/* The 64 accumulators of rule 5, in order, at distance 1, 2, 4, 8, 16, 32. */
SIMD float float_tree64(const __m256 acc[8]) {
    __m256 a = _mm256_hadd_ps(_mm256_hadd_ps(acc[0], acc[1]), _mm256_hadd_ps(acc[2], acc[3]));
    __m256 b = _mm256_hadd_ps(_mm256_hadd_ps(acc[4], acc[5]), _mm256_hadd_ps(acc[6], acc[7]));
    __m128 lo = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1)); // sums of 8
    __m128 hi = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    return quad_tree(lo) + quad_tree(hi);
}
typedef struct token_job {
    float *y;
    size_t ld_y;
    const uint8_t *w;
    size_t row_bytes;
    const quant_act *a;
    uint32_t act0, n_act, n_row, n_col;
} token_job;

/* A job of 2 to QUANT_TOKEN_ROWS_MAX rows of activations. */
void token_rows_several_avx2(gguf_type type, const token_job *b);
void token_rows_several_avx512(gguf_type type, const token_job *b);

#endif
