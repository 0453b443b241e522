/* Vectors of VW floats, as the including file is compiled: 16 lanes of AVX-512, 8 of AVX2, or 8 in plain C.
 *
 * The kernels (cpu_row.h, cpu_attn_kern.h) are written once on this layer and compiled three times, by
 * cpu_fns_avx512.c, cpu_fns_avx2.c and cpu_fns_scalar.c. Every operation here is one IEEE operation a lane,
 * so the bits of a kernel depend on the order of its sums alone; the reductions below follow the trees of
 * docs/ARITHMETIC.md rules 6 and 8 (neighbours first). DEV_VEC_SCALAR forces plain C whatever the compiler's
 * flags. */
#ifndef MICA_CPU_VEC_H
#define MICA_CPU_VEC_H

#include "base/half.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#if defined(DEV_VEC_SCALAR)
#define CPU_FNS(name) name##_scalar
#elif defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define CPU_VEC_512 1
#define CPU_FNS(name) name##_avx512
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define CPU_VEC_256 1
#define CPU_FNS(name) name##_avx2
#else
#define CPU_FNS(name) name##_scalar
#endif

/* Vectors are registers only where calls vanish and loops over arrays of them are unrolled. Plain C has no
 * such registers, and a sanitizer watches every one: there both would only keep the compiler busy for a
 * minute. */
#if (defined(CPU_VEC_512) || defined(CPU_VEC_256)) && !defined(__SANITIZE_ADDRESS__) &&                      \
    !defined(__SANITIZE_THREAD__)
#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")
#else
#define INLINE static inline
#define UNROLL
#endif

#if defined(CPU_VEC_512)
/* ---- AVX-512 ---------------------------------------------------------------------------------- */
#include <immintrin.h>

enum { VW = 16 };
typedef __m512 vf;
typedef __m512i vi;
typedef __mmask16 vm; // one bit a lane

INLINE vf v_zero(void) {
    return _mm512_setzero_ps();
}
INLINE vf v_set(float x) {
    return _mm512_set1_ps(x);
}
INLINE vf v_load(const float *p) {
    return _mm512_loadu_ps(p);
}
INLINE void v_store(float *p, vf a) {
    _mm512_storeu_ps(p, a);
}
INLINE vf v_load_n(const float *p, uint32_t n) {
    return _mm512_maskz_loadu_ps((vm)((1u << n) - 1), p);
}
INLINE void v_store_n(float *p, vf a, uint32_t n) {
    _mm512_mask_storeu_ps(p, (vm)((1u << n) - 1), a);
}
INLINE vf v_add(vf a, vf b) {
    return _mm512_add_ps(a, b);
}
INLINE vf v_sub(vf a, vf b) {
    return _mm512_sub_ps(a, b);
}
INLINE vf v_mul(vf a, vf b) {
    return _mm512_mul_ps(a, b);
}
INLINE vf v_div(vf a, vf b) {
    return _mm512_div_ps(a, b);
}
INLINE vf v_fma(vf a, vf b, vf c) {
    return _mm512_fmadd_ps(a, b, c);
}
INLINE vf v_fnma(vf a, vf b, vf c) {
    return _mm512_fnmadd_ps(a, b, c);
} // fma(-a, b, c)
INLINE vf v_max(vf a, vf b) {
    return _mm512_max_ps(a, b);
} // a > b ? a : b, so b when either is a NaN
INLINE vf v_min(vf a, vf b) {
    return _mm512_min_ps(a, b);
}
INLINE vf v_abs(vf a) {
    return _mm512_abs_ps(a);
}
INLINE vf v_neg(vf a) {
    return _mm512_xor_ps(a, _mm512_set1_ps(-0.0f));
}
INLINE vf v_rint(vf a) {
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
INLINE vm v_lt(vf a, vf b) {
    return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ);
}
INLINE vm v_le(vf a, vf b) {
    return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ);
}
INLINE vm v_eq(vf a, vf b) {
    return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ);
}
INLINE vm v_and(vm a, vm b) {
    return (vm)(a & b);
}
INLINE uint32_t v_bits(vm m) {
    return m;
}
INLINE vf v_sel(vm m, vf a, vf b) {
    return _mm512_mask_blend_ps(m, b, a);
} // m ? a : b
INLINE float v_hmax(vf a) {
    return _mm512_reduce_max_ps(a);
}

INLINE vi v_castf(vf a) {
    return _mm512_castps_si512(a);
}
INLINE vf v_casti(vi a) {
    return _mm512_castsi512_ps(a);
}
INLINE vi vi_set(int32_t x) {
    return _mm512_set1_epi32(x);
}
INLINE vi vi_add(vi a, vi b) {
    return _mm512_add_epi32(a, b);
}
INLINE vi vi_sub(vi a, vi b) {
    return _mm512_sub_epi32(a, b);
}
INLINE vi vi_and(vi a, vi b) {
    return _mm512_and_si512(a, b);
}
INLINE vi vi_or(vi a, vi b) {
    return _mm512_or_si512(a, b);
}
INLINE vi vi_xor(vi a, vi b) {
    return _mm512_xor_si512(a, b);
}
#define vi_shl(a, n) _mm512_slli_epi32(a, n)
#define vi_sra(a, n) _mm512_srai_epi32(a, n)

INLINE vf v_from_f16(const uint16_t *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
INLINE void v_to_f16(uint16_t *p, vf a) {
    _mm256_storeu_si256((__m256i *)(void *)p,
                        _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
INLINE vf v_from_i8(const int8_t *p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)));
}
/* Whole numbers within -128..127. */
INLINE void v_to_i8(int8_t *p, vf a) {
    _mm_storeu_si128((__m128i *)(void *)p, _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(a)));
}

/* Lanes of pairs (2i, 2i + 1): swapped, the even one twice, the odd one twice, the even one negated. */
INLINE vf v_pair_swap(vf a) {
    return _mm512_permute_ps(a, 0xB1);
}
INLINE vf v_pair_even(vf a) {
    return _mm512_moveldup_ps(a);
}
INLINE vf v_pair_odd(vf a) {
    return _mm512_movehdup_ps(a);
}
INLINE vf v_neg_even(vf a) {
    return v_casti(vi_xor(v_castf(a), _mm512_set1_epi64(0x80000000)));
}
/* The even and the odd values of a and then b; of the VW pairs at p. */
INLINE void v_unzip2(vf *even, vf *odd, vf a, vf b) {
    const vi ie = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    *even = _mm512_permutex2var_ps(a, ie, b);
    *odd = _mm512_permutex2var_ps(a, vi_add(ie, vi_set(1)), b);
}
INLINE void v_unzip(vf *even, vf *odd, const float *p) {
    v_unzip2(even, odd, v_load(p), v_load(p + VW));
}

INLINE vf v_shuf_add(vf a, vf b) {
    return v_add(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xDD));
}
INLINE vf v_quad_add(vf a, vf b) {
    return v_add(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xDD));
}
/* Distances 1 and 2 of four vectors: quad L of the result holds the sums of quad L of a, b, c, d. */
INLINE vf v_red4(vf a, vf b, vf c, vf d) {
    return v_shuf_add(v_shuf_add(a, b), v_shuf_add(c, d));
}
/* The rest of the trees of VW sums of 32, from t[k] = v_red4 of positions 2k (two vectors) and 2k + 1 (two).
 */
INLINE vf v_fold8(const vf t[8]) {
    vf u0 = v_quad_add(v_quad_add(t[0], t[2]), v_quad_add(t[4], t[6]));
    vf u1 = v_quad_add(v_quad_add(t[1], t[3]), v_quad_add(t[5], t[7]));
    return v_shuf_add(u0, u1);
}
/* The tree of 64 partial sums, lane i of acc[j] being sum VW j + i. */
INLINE float v_tree64(const vf acc[4]) {
    vf t = v_red4(acc[0], acc[1], acc[2], acc[3]);
    vf u = v_quad_add(t, t);
    __m128 v = _mm512_castps512_ps128(v_quad_add(u, u));
    __m128 w = _mm_add_ps(v, _mm_movehdup_ps(v));
    return _mm_cvtss_f32(_mm_add_ss(w, _mm_movehl_ps(w, w)));
}

#elif defined(CPU_VEC_256)
/* ---- AVX2 ------------------------------------------------------------------------------------- */
#include <immintrin.h>

enum { VW = 8 };
typedef __m256 vf;
typedef __m256i vi;
typedef __m256 vm; // all bits of a lane

INLINE vf v_zero(void) {
    return _mm256_setzero_ps();
}
INLINE vf v_set(float x) {
    return _mm256_set1_ps(x);
}
INLINE vf v_load(const float *p) {
    return _mm256_loadu_ps(p);
}
INLINE void v_store(float *p, vf a) {
    _mm256_storeu_ps(p, a);
}
INLINE vi v_first(uint32_t n) { // lanes below n
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
INLINE vf v_load_n(const float *p, uint32_t n) {
    return _mm256_maskload_ps(p, v_first(n));
}
INLINE void v_store_n(float *p, vf a, uint32_t n) {
    _mm256_maskstore_ps(p, v_first(n), a);
}
INLINE vf v_add(vf a, vf b) {
    return _mm256_add_ps(a, b);
}
INLINE vf v_sub(vf a, vf b) {
    return _mm256_sub_ps(a, b);
}
INLINE vf v_mul(vf a, vf b) {
    return _mm256_mul_ps(a, b);
}
INLINE vf v_div(vf a, vf b) {
    return _mm256_div_ps(a, b);
}
INLINE vf v_fma(vf a, vf b, vf c) {
    return _mm256_fmadd_ps(a, b, c);
}
INLINE vf v_fnma(vf a, vf b, vf c) {
    return _mm256_fnmadd_ps(a, b, c);
} // fma(-a, b, c)
INLINE vf v_max(vf a, vf b) {
    return _mm256_max_ps(a, b);
} // a > b ? a : b, so b when either is a NaN
INLINE vf v_min(vf a, vf b) {
    return _mm256_min_ps(a, b);
}
INLINE vf v_abs(vf a) {
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a);
}
INLINE vf v_neg(vf a) {
    return _mm256_xor_ps(a, _mm256_set1_ps(-0.0f));
}
INLINE vf v_rint(vf a) {
    return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
INLINE vm v_lt(vf a, vf b) {
    return _mm256_cmp_ps(a, b, _CMP_LT_OQ);
}
INLINE vm v_le(vf a, vf b) {
    return _mm256_cmp_ps(a, b, _CMP_LE_OQ);
}
INLINE vm v_eq(vf a, vf b) {
    return _mm256_cmp_ps(a, b, _CMP_EQ_OQ);
}
INLINE vm v_and(vm a, vm b) {
    return _mm256_and_ps(a, b);
}
INLINE uint32_t v_bits(vm m) {
    return (uint32_t)_mm256_movemask_ps(m);
}
INLINE vf v_sel(vm m, vf a, vf b) {
    return _mm256_blendv_ps(b, a, m);
} // m ? a : b
INLINE float v_hmax(vf a) {
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

INLINE vi v_castf(vf a) {
    return _mm256_castps_si256(a);
}
INLINE vf v_casti(vi a) {
    return _mm256_castsi256_ps(a);
}
INLINE vi vi_set(int32_t x) {
    return _mm256_set1_epi32(x);
}
INLINE vi vi_add(vi a, vi b) {
    return _mm256_add_epi32(a, b);
}
INLINE vi vi_sub(vi a, vi b) {
    return _mm256_sub_epi32(a, b);
}
INLINE vi vi_and(vi a, vi b) {
    return _mm256_and_si256(a, b);
}
INLINE vi vi_or(vi a, vi b) {
    return _mm256_or_si256(a, b);
}
INLINE vi vi_xor(vi a, vi b) {
    return _mm256_xor_si256(a, b);
}
#define vi_shl(a, n) _mm256_slli_epi32(a, n)
#define vi_sra(a, n) _mm256_srai_epi32(a, n)

INLINE vf v_from_f16(const uint16_t *p) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}
INLINE void v_to_f16(uint16_t *p, vf a) {
    _mm_storeu_si128((__m128i *)(void *)p, _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
INLINE vf v_from_i8(const int8_t *p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p)));
}
/* Whole numbers within -128..127. */
INLINE void v_to_i8(int8_t *p, vf a) {
    __m256i i = _mm256_cvtps_epi32(a);
    __m128i h = _mm_packs_epi32(_mm256_castsi256_si128(i), _mm256_extracti128_si256(i, 1));
    _mm_storel_epi64((__m128i *)(void *)p, _mm_packs_epi16(h, h));
}

/* Lanes of pairs (2i, 2i + 1): swapped, the even one twice, the odd one twice, the even one negated. */
INLINE vf v_pair_swap(vf a) {
    return _mm256_permute_ps(a, 0xB1);
}
INLINE vf v_pair_even(vf a) {
    return _mm256_moveldup_ps(a);
}
INLINE vf v_pair_odd(vf a) {
    return _mm256_movehdup_ps(a);
}
INLINE vf v_neg_even(vf a) {
    return v_casti(vi_xor(v_castf(a), _mm256_set1_epi64x(0x80000000)));
}
/* The even and the odd values of a and then b; of the VW pairs at p. */
INLINE void v_unzip2(vf *even, vf *odd, vf a, vf b) {
    vf lo = _mm256_permute2f128_ps(a, b, 0x20), hi = _mm256_permute2f128_ps(a, b, 0x31);
    a = _mm256_shuffle_ps(lo, hi, 0x88);
    b = _mm256_shuffle_ps(lo, hi, 0xDD);
    *even = a;
    *odd = b;
}
INLINE void v_unzip(vf *even, vf *odd, const float *p) {
    v_unzip2(even, odd, v_load(p), v_load(p + VW));
}

INLINE vf v_shuf_add(vf a, vf b) {
    return v_add(_mm256_shuffle_ps(a, b, 0x88), _mm256_shuffle_ps(a, b, 0xDD));
}
INLINE vf v_half_add(vf a, vf b) {
    return v_add(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
}
/* Distances 1 and 2 of four vectors: quad L of the result holds the sums of quad L of a, b, c, d. */
INLINE vf v_red4(vf a, vf b, vf c, vf d) {
    return v_shuf_add(v_shuf_add(a, b), v_shuf_add(c, d));
}
/* The rest of the trees of VW sums of 32, from t[k] = v_red4 of the four vectors of position k. */
INLINE vf v_fold8(const vf t[8]) {
    vf w0 = v_half_add(t[0], t[4]), w1 = v_half_add(t[1], t[5]), w2 = v_half_add(t[2], t[6]),
       w3 = v_half_add(t[3], t[7]);
    return v_shuf_add(v_shuf_add(w0, w1), v_shuf_add(w2, w3));
}
/* The tree of 64 partial sums, lane i of acc[j] being sum VW j + i. */
INLINE float v_tree64(const vf acc[8]) {
    vf w = v_half_add(v_red4(acc[0], acc[1], acc[2], acc[3]), v_red4(acc[4], acc[5], acc[6], acc[7]));
    vf x = v_shuf_add(w, w); // 0+1 2+3 .. | 4+5 6+7 ..
    vf y = v_shuf_add(x, x);
    return _mm_cvtss_f32(_mm_add_ss(_mm256_castps256_ps128(y), _mm256_extractf128_ps(y, 1)));
}

#else
/* ---- plain C, shaped as AVX2 ------------------------------------------------------------------ */

enum { VW = 8 };
typedef struct vf {
    float v[VW];
} vf;
typedef struct vi {
    int32_t v[VW];
} vi;
typedef vi vm; // 0 or -1 a lane

#define EACH_LANE for (int i = 0; i < VW; i++)
#define LANES(type, expr)                                                                                    \
    type r;                                                                                                  \
    EACH_LANE r.v[i] = (expr);                                                                               \
    return r

INLINE vf v_set(float x) {
    LANES(vf, x);
}
INLINE vf v_zero(void) {
    return v_set(0.0f);
}
INLINE vf v_load(const float *p) {
    LANES(vf, p[i]);
}
INLINE void v_store(float *p, vf a) {
    EACH_LANE p[i] = a.v[i];
}
INLINE vf v_load_n(const float *p, uint32_t n) {
    LANES(vf, (uint32_t)i < n ? p[i] : 0.0f);
}
INLINE void v_store_n(float *p, vf a, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) p[i] = a.v[i];
}
INLINE vf v_add(vf a, vf b) {
    LANES(vf, a.v[i] + b.v[i]);
}
INLINE vf v_sub(vf a, vf b) {
    LANES(vf, a.v[i] - b.v[i]);
}
INLINE vf v_mul(vf a, vf b) {
    LANES(vf, a.v[i] * b.v[i]);
}
INLINE vf v_div(vf a, vf b) {
    LANES(vf, a.v[i] / b.v[i]);
}
INLINE vf v_fma(vf a, vf b, vf c) {
    LANES(vf, fmaf(a.v[i], b.v[i], c.v[i]));
}
INLINE vf v_fnma(vf a, vf b, vf c) {
    LANES(vf, fmaf(-a.v[i], b.v[i], c.v[i]));
} // fma(-a, b, c)
INLINE vf v_max(vf a, vf b) {
    LANES(vf, a.v[i] > b.v[i] ? a.v[i] : b.v[i]);
}
INLINE vf v_min(vf a, vf b) {
    LANES(vf, a.v[i] < b.v[i] ? a.v[i] : b.v[i]);
}
INLINE vf v_abs(vf a) {
    LANES(vf, fabsf(a.v[i]));
}
INLINE vf v_neg(vf a) {
    LANES(vf, -a.v[i]);
}
INLINE vf v_rint(vf a) {
    LANES(vf, rintf(a.v[i]));
}
INLINE vm v_lt(vf a, vf b) {
    LANES(vm, -(a.v[i] < b.v[i]));
}
INLINE vm v_le(vf a, vf b) {
    LANES(vm, -(a.v[i] <= b.v[i]));
}
INLINE vm v_eq(vf a, vf b) {
    LANES(vm, -(a.v[i] == b.v[i]));
}
INLINE vm v_and(vm a, vm b) {
    LANES(vm, a.v[i] & b.v[i]);
}
INLINE uint32_t v_bits(vm m) {
    uint32_t b = 0;
    EACH_LANE b |= ((uint32_t)m.v[i] & 1u) << i;
    return b;
}
INLINE vf v_sel(vm m, vf a, vf b) {
    LANES(vf, m.v[i] ? a.v[i] : b.v[i]);
} // m ? a : b
INLINE float v_hmax(vf a) {
    float m = a.v[0];
    EACH_LANE m = a.v[i] > m ? a.v[i] : m;
    return m;
}

INLINE vi v_castf(vf a) {
    LANES(vi, (int32_t)f32_bits(a.v[i]));
}
INLINE vf v_casti(vi a) {
    LANES(vf, bits_f32((uint32_t)a.v[i]));
}
INLINE vi vi_set(int32_t x) {
    LANES(vi, x);
}
INLINE vi vi_add(vi a, vi b) {
    LANES(vi, (int32_t)((uint32_t)a.v[i] + (uint32_t)b.v[i]));
}
INLINE vi vi_sub(vi a, vi b) {
    LANES(vi, (int32_t)((uint32_t)a.v[i] - (uint32_t)b.v[i]));
}
INLINE vi vi_and(vi a, vi b) {
    LANES(vi, a.v[i] & b.v[i]);
}
INLINE vi vi_or(vi a, vi b) {
    LANES(vi, a.v[i] | b.v[i]);
}
INLINE vi vi_xor(vi a, vi b) {
    LANES(vi, a.v[i] ^ b.v[i]);
}
INLINE vi vi_shl(vi a, int n) {
    LANES(vi, (int32_t)((uint32_t)a.v[i] << n));
}
INLINE vi vi_sra(vi a, int n) {
    LANES(vi, a.v[i] >> n);
}

INLINE vf v_from_f16(const uint16_t *p) {
    LANES(vf, f16_to_f32(p[i]));
}
INLINE void v_to_f16(uint16_t *p, vf a) {
    EACH_LANE p[i] = f32_to_f16(a.v[i]);
}
INLINE vf v_from_i8(const int8_t *p) {
    LANES(vf, (float)p[i]);
}
/* Whole numbers within -128..127; anything else gives some value. */
INLINE void v_to_i8(int8_t *p, vf a) {
    EACH_LANE p[i] = (int8_t)(fabsf(a.v[i]) <= 128.0f ? (int)a.v[i] : 0);
}

/* Lanes of pairs (2i, 2i + 1): swapped, the even one twice, the odd one twice, the even one negated. */
INLINE vf v_pair_swap(vf a) {
    LANES(vf, a.v[i ^ 1]);
}
INLINE vf v_pair_even(vf a) {
    LANES(vf, a.v[i & ~1]);
}
INLINE vf v_pair_odd(vf a) {
    LANES(vf, a.v[i | 1]);
}
INLINE vf v_neg_even(vf a) {
    LANES(vf, i & 1 ? a.v[i] : -a.v[i]);
}
/* The even and the odd values of a and then b; of the VW pairs at p. */
INLINE void v_unzip2(vf *even, vf *odd, vf a, vf b) {
    EACH_LANE {
        even->v[i] = 2 * i < VW ? a.v[2 * i] : b.v[2 * i - VW];
        odd->v[i] = 2 * i < VW ? a.v[2 * i + 1] : b.v[2 * i + 1 - VW];
    }
}
INLINE void v_unzip(vf *even, vf *odd, const float *p) {
    v_unzip2(even, odd, v_load(p), v_load(p + VW));
}

INLINE float v_quad_sum(const float *q) {
    return (q[0] + q[1]) + (q[2] + q[3]);
}
/* Distances 1 and 2 of four vectors: quad L of the result holds the sums of quad L of a, b, c, d. */
INLINE vf v_red4(vf a, vf b, vf c, vf d) {
    const float *const from[4] = {a.v, b.v, c.v, d.v};
    LANES(vf, v_quad_sum(from[i % 4] + i / 4 * 4));
}
/* The rest of the trees of VW sums of 32, from t[k] = v_red4 of the four vectors of position k. */
INLINE vf v_fold8(const vf t[8]) {
    vf r;
    EACH_LANE {
        const float *q = t[i].v;
        r.v[i] = ((q[0] + q[4]) + (q[1] + q[5])) + ((q[2] + q[6]) + (q[3] + q[7]));
    }
    return r;
}
/* The tree of 64 partial sums, lane i of acc[j] being sum VW j + i. */
INLINE float v_tree64(const vf acc[8]) {
    float s[8];
    EACH_LANE s[i] = v_quad_sum(acc[i].v) + v_quad_sum(acc[i].v + 4);
    return v_quad_sum(s) + v_quad_sum(s + 4);
}
#endif

enum { V_DOT = 32 / VW, V_SUM = 64 / VW }; // vectors of a sum of 32 (rule 6) and of 64 (rule 8)

#endif
