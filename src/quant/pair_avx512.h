/* Pairs of blocks in 512 bits: what the files of the token role with AVX-512 share. */
#ifndef MICA_QUANT_PAIR_AVX512_H
#define MICA_QUANT_PAIR_AVX512_H

#include "quant/token_avx2.h"

enum { MAGIC = 0x4B400000 };

SIMD __m512i load512(const void *p) {
    return _mm512_loadu_si512(p);
}
SIMD __m512i join(__m256i lo, __m256i hi) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(lo), hi, 1);
}
SIMD __m512 float_of_magic(__m512i v) {
    return _mm512_sub_ps(_mm512_castsi512_ps(v), _mm512_set1_ps(0x1.8p23f));
}

/* Lanes of a pair's scales: from 16 scales in half order, or from 8, one a block. */
SIMD __m512 pair_scale(__m512 s, int k, bool halves) {
    __m512i of_halves = _mm512_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4, 1, 1, 1, 1, 5, 5, 5, 5);
    __m512i of_blocks = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    __m512i at = halves ? _mm512_add_epi32(of_halves, _mm512_set1_epi32(8 * (k / 2) + 2 * (k & 1)))
                        : _mm512_add_epi32(of_blocks, _mm512_set1_epi32(2 * k));
    return _mm512_permutexvar_ps(at, s);
}
#endif
