/* Peaks of AVX2: see peak.h. Ten independent chains hide the latency of one instruction. */
#include "peak.h"

#include <immintrin.h>

#define REP10(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9)

uint64_t peak_int8_avx2(uint64_t n_turn) {
    __m256i w = _mm256_set1_epi8(3), x = _mm256_set1_epi8(5);
#define ZERO(i) __m256i a##i = _mm256_setzero_si256();
#define STEP(i)                                                                                              \
    __asm__ volatile("" : "+x"(w)); /* a new product each time, as far as the compiler knows */              \
    a##i = _mm256_add_epi16(a##i, _mm256_maddubs_epi16(w, x));
#define SUM(i) a0 = _mm256_xor_si256(a0, a##i);
    REP10(ZERO)
    for (uint64_t n = 0; n < n_turn; n++) {
        REP10(STEP)
    }
    REP10(SUM)
    return (uint64_t)_mm256_extract_epi64(a0, 0);
#undef ZERO
#undef STEP
#undef SUM
}

uint64_t peak_f32_avx2(uint64_t n_turn) {
    __m256 w = _mm256_set1_ps(1.0f), x = _mm256_set1_ps(0.5f);
#define ZERO(i) __m256 a##i = _mm256_setzero_ps();
#define STEP(i)                                                                                              \
    __asm__ volatile("" : "+x"(w));                                                                          \
    a##i = _mm256_fmadd_ps(w, x, a##i);
#define SUM(i) a0 = _mm256_add_ps(a0, a##i);
    REP10(ZERO)
    for (uint64_t n = 0; n < n_turn; n++) {
        REP10(STEP)
    }
    REP10(SUM)
    return (uint64_t)_mm256_cvtss_f32(a0);
#undef ZERO
#undef STEP
#undef SUM
}

uint64_t peak_read_avx2(const void *p, size_t n_bytes) {
    const __m256i *b = p;
    __m256i s[8];
    for (int i = 0; i < 8; i++) s[i] = _mm256_setzero_si256();
    for (const __m256i *e = b + n_bytes / 32; b < e; b += 8) {
        _mm_prefetch((const char *)b + 2048, _MM_HINT_T0);
        _mm_prefetch((const char *)b + 2112, _MM_HINT_T0);
        _mm_prefetch((const char *)b + 2176, _MM_HINT_T0);
        _mm_prefetch((const char *)b + 2240, _MM_HINT_T0);
        for (int i = 0; i < 8; i++) s[i] = _mm256_xor_si256(s[i], _mm256_loadu_si256(b + i));
    }
    for (int i = 1; i < 8; i++) s[0] = _mm256_xor_si256(s[0], s[i]);
    return (uint64_t)_mm256_extract_epi64(s[0], 0);
}
