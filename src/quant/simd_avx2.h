/* Small pieces that the kernels of both instruction sets share: scales in half order (unpack_avx2.h), trees
 * of sums. */
#ifndef MICA_QUANT_SIMD_AVX2_H
#define MICA_QUANT_SIMD_AVX2_H

#include "quant/unpack_avx2.h"

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

/* (0 + 1) + (2 + 3) */
SIMD float quad_tree(__m128 v) {
    v = _mm_hadd_ps(v, v);
    return _mm_cvtss_f32(_mm_add_ss(v, _mm_movehdup_ps(v)));
}

/* The 64 accumulators of rule 5, in order, at distance 1, 2, 4, 8, 16, 32. */
SIMD float float_tree64(const __m256 acc[8]) {
    __m256 a = _mm256_hadd_ps(_mm256_hadd_ps(acc[0], acc[1]), _mm256_hadd_ps(acc[2], acc[3]));
    __m256 b = _mm256_hadd_ps(_mm256_hadd_ps(acc[4], acc[5]), _mm256_hadd_ps(acc[6], acc[7]));
    __m128 lo = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1)); // sums of 8
    __m128 hi = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    return quad_tree(lo) + quad_tree(hi);
}
#endif
