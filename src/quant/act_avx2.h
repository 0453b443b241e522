/* Rule 1: activations to int8, for the tables of AVX2 and AVX-512. */
#ifndef MICA_QUANT_ACT_AVX2_H
#define MICA_QUANT_ACT_AVX2_H

#include "quant/act.h"
#include "quant/unpack_avx2.h"

#include <stdbool.h>

/* false when a value is not finite. x holds 32; so does q, d and s one each, s16 two. */
SIMD bool act_block(int8_t *q, float *d, float *s, float *s16, const float *x) {
    __m256 v[4];
    __m256i mag[4];
    UNROLL
    for (int i = 0; i < 4; i++) {
        v[i] = _mm256_loadu_ps(x + 8 * i);
        mag[i] = _mm256_and_si256(_mm256_castps_si256(v[i]), _mm256_set1_epi32(0x7FFFFFFF));
    }
    // Bits of magnitudes order like the magnitudes, infinity and NaN above all.
    __m256i m8 = _mm256_max_epi32(_mm256_max_epi32(mag[0], mag[1]), _mm256_max_epi32(mag[2], mag[3]));
    __m128i m = _mm_max_epi32(_mm256_castsi256_si128(m8), _mm256_extracti128_si256(m8, 1));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4E));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xB1));
    if (_mm_cvtsi128_si32(m) >= 0x7F800000) return false;
    float scale = _mm_cvtss_f32(_mm_castsi128_ps(m)) / 127.0f;
    if (scale < 0x1p-126f) scale = 0;
    __m256 inv = _mm256_set1_ps(scale > 0 ? 1.0f / scale : 0);
    __m256i r[4];
    UNROLL
    for (int i = 0; i < 4; i++) r[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], inv)); // nearest, ties to even
    // |x| / (amax / 127) is at most 127 (1 + 2^-22): nothing reaches 127.5, the clamp of the rule has no
    // work.
    __m256i b = _mm256_packs_epi16(_mm256_packs_epi32(r[0], r[1]), _mm256_packs_epi32(r[2], r[3]));
    b = _mm256_permutevar8x32_epi32(b, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256((__m256i *)(void *)q, b);
    // Sums of eight bytes + 128.
    __m256i sums = _mm256_sad_epu8(_mm256_xor_si256(b, bytes_all(0x80)), _mm256_setzero_si256());
    __m128i lo = _mm256_castsi256_si128(sums), hi = _mm256_extracti128_si256(sums, 1);
    int a = _mm_cvtsi128_si32(lo) + _mm_extract_epi32(lo, 2) - 2048,
        c = _mm_cvtsi128_si32(hi) + _mm_extract_epi32(hi, 2) - 2048;
    *d = scale;
    *s = scale * (float)(a + c);
    s16[0] = scale * (float)a;
    s16[1] = scale * (float)c;
    return true;
}

SIMD bool act_rows_quantise(const quant_act *a, uint32_t act0, uint32_t n_row, uint32_t n_col) {
    bool finite = true;
    for (uint32_t ir = act0; ir < act0 + n_row; ir++) {
        for (uint32_t c = 0; c < n_col; c += 32) {
            size_t at = (size_t)ir * a->ld + c;
            finite &= act_block(a->q + at, a->d + at / 32, a->s + at / 32, a->s16 + at / 16, a->x + at);
        }
    }
    return finite;
}
#endif
