/* Peaks of AVX-512: see peak.h. */
#include "peak.h"

#include <immintrin.h>

#define REP10(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9)

uint64_t peak_int8_avx512(uint64_t n_turn) {
    __m512i w = _mm512_set1_epi8(3), x = _mm512_set1_epi8(5);
#define ZERO(i) __m512i a##i = _mm512_setzero_si512();
#define STEP(i)                                                                                              \
    __asm__ volatile("" : "+v"(w));                                                                          \
    a##i = _mm512_dpbusd_epi32(a##i, w, x);
#define SUM(i) a0 = _mm512_xor_si512(a0, a##i);
    REP10(ZERO)
    for (uint64_t n = 0; n < n_turn; n++) {
        REP10(STEP)
    }
    REP10(SUM)
    return (uint64_t)_mm_extract_epi64(_mm512_castsi512_si128(a0), 0);
#undef ZERO
#undef STEP
#undef SUM
}

uint64_t peak_f32_avx512(uint64_t n_turn) {
    __m512 w = _mm512_set1_ps(1.0f), x = _mm512_set1_ps(0.5f);
#define ZERO(i) __m512 a##i = _mm512_setzero_ps();
#define STEP(i)                                                                                              \
    __asm__ volatile("" : "+v"(w));                                                                          \
    a##i = _mm512_fmadd_ps(w, x, a##i);
#define SUM(i) a0 = _mm512_add_ps(a0, a##i);
    REP10(ZERO)
    for (uint64_t n = 0; n < n_turn; n++) {
        REP10(STEP)
    }
    REP10(SUM)
    return (uint64_t)_mm_cvtss_f32(_mm512_castps512_ps128(a0));
#undef ZERO
#undef STEP
#undef SUM
}
