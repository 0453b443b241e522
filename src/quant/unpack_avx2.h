/* The integer form of block.h in registers: how every quantised type becomes bytes and scales, 256 weights (a
 * unit) at a time.
 *
 * A type is a unit_kind: functions of a unit's address, all inlined into the kernels that take one, where the
 * kind is a constant. Of block j (32 weights, 0..7) of the unit:
 * - v(p, j): its weights, 32 signed bytes, when the kind has that (a table or the file gives them so).
 * - q(p, j): else unsigned bytes: the weights are q - offset, or q with the signs of sgn(p, j) (bytes 1, -1),
 *   which sign(p, k) has as bits (set: negative) of blocks 2k and 2k + 1.
 * - index(at, p): numbers of the unit's grid entries, for kinds whose numbers have bits in two places: made
 * for all of them at once, each then is one load. grid_q, grid_v(at, p, j) are q and v with these at hand.
 * - scale(p, n): 8 lanes, one a block; scale16 when there is one for 16 weights, as two vectors in half
 * order: v[0] = blocks 0..3: their first halves, then their second halves; v[1] = blocks 4..7.
 * - min, min16: likewise; NULL for types without minima.
 *
 * n is the number of blocks that exist (8 but at the end of a row whose type has blocks under 256): lanes
 * past it hold copies of the last block's, nothing past it is read. Values are those of block.h, to the bit.
 *
 * Bit deposit and extract are not used here: before Zen 3 they take tens of cycles. */
#ifndef MICA_QUANT_UNPACK_AVX2_H
#define MICA_QUANT_UNPACK_AVX2_H

#include "base/num.h"
#include "quant/codebook.h"

#include <immintrin.h>

#define SIMD static inline __attribute__((always_inline))
/* Loops over blocks unroll completely, and what a kind says for block j is then a constant. Sanitizers and
 * emulated instructions make so much of each copy that compilers need minutes: there the loops stay loops. */
#if defined(QUANT_ROLLED) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define UNROLL
#elif defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

enum { UNIT_INDEX_MAX = 64 };

typedef __m256i unit_q_fn(const uint8_t *p, int j);
typedef void unit_index_fn(uint16_t at[UNIT_INDEX_MAX], const uint8_t *p);
typedef __m256i unit_grid_fn(const uint16_t *at, const uint8_t *p, int j);
typedef uint64_t unit_bits_fn(const uint8_t *p, int k);
typedef __m256 unit_lanes_fn(const uint8_t *p, int n);
typedef void unit_halves_fn(__m256 v[2], const uint8_t *p, int n);

typedef struct unit_kind {
    int block; // weights in a block of the type: under 256, a row may end inside a unit
    int bytes; // of a unit
    int offset;
    unit_q_fn *q, *sgn, *v;
    unit_index_fn *index;
    unit_grid_fn *grid_q, *grid_v;
    unit_bits_fn *sign;
    unit_lanes_fn *scale;
    unit_halves_fn *scale16;
    unit_lanes_fn *min;
    unit_halves_fn *min16;
} unit_kind;

SIMD bool unit_is_signed(const unit_kind k) {
    return k.v || k.grid_v;
}
/* Bytes of block j: v when the kind has it, else q. */
SIMD __m256i unit_bytes(const unit_kind k, const uint8_t *p, const uint16_t *at, int j) {
    if (k.grid_q) return k.grid_q(at, p, j);
    if (k.grid_v) return k.grid_v(at, p, j);
    return k.v ? k.v(p, j) : k.q(p, j);
}
SIMD void unit_index(uint16_t at[UNIT_INDEX_MAX], const unit_kind k, const uint8_t *p) {
    if (k.index) k.index(at, p);
}

/* ---- loads and small helpers ------------------------------------------------------------------------ */

SIMD __m256i load256(const void *p) {
    return _mm256_loadu_si256((const __m256i *)p);
}
SIMD __m128i load128(const void *p) {
    return _mm_loadu_si128((const __m128i *)p);
}
SIMD __m256i load128_twice(const void *p) {
    return _mm256_broadcastsi128_si256(load128(p));
}
SIMD __m128i load64(const void *p) {
    return _mm_cvtsi64_si128((long long)load_u64(p));
}
SIMD __m256 f16x8(__m128i h) {
    return _mm256_cvtph_ps(h);
}
SIMD __m256 f16_all(const uint8_t *p) {
    return f16x8(_mm_set1_epi16((short)load_u16(p)));
}
SIMD __m256 f32_of_u8(__m128i b) {
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(b));
}
SIMD __m256 f32_of_i8(__m128i b) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(b));
}
SIMD __m256 negate(__m256 v) {
    return _mm256_xor_ps(v, _mm256_set1_ps(-0.0f));
}
SIMD __m256i bytes_all(int b) {
    return _mm256_set1_epi8((char)b);
}
/* v << n for n > 0, v >> -n below; in words, so the caller masks bits that crossed. */
SIMD __m256i shift_left(__m256i v, int n) {
    return n > 0 ? _mm256_slli_epi16(v, n) : n < 0 ? _mm256_srli_epi16(v, -n) : v;
}
SIMD __m256i bits_at(__m256i v, int shift, int mask) {
    return _mm256_and_si256(shift_left(v, shift), bytes_all(mask));
}

/* 16 bytes to 32 nibbles, low halves first. */
SIMD __m256i nibbles_get(const uint8_t *qs) {
    __m256i v = _mm256_srlv_epi32(load128_twice(qs), _mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4));
    return _mm256_and_si256(v, bytes_all(15));
}
/* Bytes 0xFF where the bit of 32 is set; v holds byte i of the bits in its bytes 8 i .. 8 i + 7. */
SIMD __m256i bits_spread(__m256i v) {
    __m256i sel = _mm256_set1_epi64x((long long)0x8040201008040201ull);
    return _mm256_cmpeq_epi8(_mm256_and_si256(v, sel), sel);
}
SIMD __m256i bits_get(const uint8_t *p) {
    __m256i at = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    return bits_spread(_mm256_shuffle_epi8(_mm256_set1_epi32((int)load_u32(p)), at));
}
SIMD __m256i table_get(const int8_t table[16], __m256i index) {
    return _mm256_shuffle_epi8(load128_twice(table), index);
}

/* The f16 at the start of each of n blocks of `stride` bytes. */
SIMD __m256 f16_gather(const uint8_t *p, int stride, int n) {
    __m128i v = _mm_cvtsi32_si128(load_u16(p));
    if (n > 1) v = _mm_insert_epi16(v, load_u16(p + 1 * stride), 1);
    if (n > 2) v = _mm_insert_epi16(v, load_u16(p + 2 * stride), 2);
    if (n > 3) v = _mm_insert_epi16(v, load_u16(p + 3 * stride), 3);
    if (n > 4) v = _mm_insert_epi16(v, load_u16(p + 4 * stride), 4);
    if (n > 5) v = _mm_insert_epi16(v, load_u16(p + 5 * stride), 5);
    if (n > 6) v = _mm_insert_epi16(v, load_u16(p + 6 * stride), 6);
    if (n > 7) v = _mm_insert_epi16(v, load_u16(p + 7 * stride), 7);
    return f16x8(v);
}
/* The two f16 at the start of each of n blocks: v[0] the first ones, v[1] the second. Blocks 0 1 4 5 meet in
 * one register, 2 3 6 7 in the other, so that one shuffle within lanes puts them in order. */
SIMD void f16_pair_gather(__m256 v[2], const uint8_t *p, int stride, int n) {
    __m128i a = _mm_cvtsi32_si128((int)load_u32(p)), b = _mm_setzero_si128();
    if (n > 1) a = _mm_insert_epi32(a, (int)load_u32(p + 1 * stride), 1);
    if (n > 2) b = _mm_cvtsi32_si128((int)load_u32(p + 2 * stride));
    if (n > 3) b = _mm_insert_epi32(b, (int)load_u32(p + 3 * stride), 1);
    if (n > 4) a = _mm_insert_epi32(a, (int)load_u32(p + 4 * stride), 2);
    if (n > 5) a = _mm_insert_epi32(a, (int)load_u32(p + 5 * stride), 3);
    if (n > 6) b = _mm_insert_epi32(b, (int)load_u32(p + 6 * stride), 2);
    if (n > 7) b = _mm_insert_epi32(b, (int)load_u32(p + 7 * stride), 3);
    v[0] = _mm256_shuffle_ps(f16x8(a), f16x8(b), 0x88);
    v[1] = _mm256_shuffle_ps(f16x8(a), f16x8(b), 0xDD);
}
/* 16 bytes, two a block, to half order. */
SIMD __m128i half_order(__m128i b) {
    return _mm_shuffle_epi8(b, _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15));
}
SIMD void halves_of_u8(__m256 v[2], __m128i b, __m256 d) {
    b = half_order(b);
    v[0] = _mm256_mul_ps(d, f32_of_u8(b));
    v[1] = _mm256_mul_ps(d, f32_of_u8(_mm_srli_si128(b, 8)));
}
SIMD void halves_of_i8(__m256 v[2], __m128i b, __m256 d) {
    b = half_order(b);
    v[0] = _mm256_mul_ps(d, f32_of_i8(b));
    v[1] = _mm256_mul_ps(d, f32_of_i8(_mm_srli_si128(b, 8)));
}

/* ---- blocks of 32 ----------------------------------------------------------------------------------- */

SIMD __m256i q4_0_q(const uint8_t *p, int j) {
    return nibbles_get(p + 18 * j + 2);
}
SIMD __m256 q4_0_scale(const uint8_t *p, int n) {
    return f16_gather(p, 18, n);
}

SIMD __m256i q4_1_q(const uint8_t *p, int j) {
    return nibbles_get(p + 20 * j + 4);
}
SIMD __m256 q4_1_scale(const uint8_t *p, int n) {
    __m256 v[2];
    f16_pair_gather(v, p, 20, n);
    return v[0];
}
SIMD __m256 q4_1_min(const uint8_t *p, int n) {
    __m256 v[2];
    f16_pair_gather(v, p, 20, n);
    return negate(v[1]);
}

SIMD __m256i q5_0_q(const uint8_t *p, int j) {
    p += 22 * j;
    return _mm256_or_si256(nibbles_get(p + 6), _mm256_and_si256(bits_get(p + 2), bytes_all(16)));
}
SIMD __m256 q5_0_scale(const uint8_t *p, int n) {
    return f16_gather(p, 22, n);
}

SIMD __m256i q5_1_q(const uint8_t *p, int j) {
    p += 24 * j;
    return _mm256_or_si256(nibbles_get(p + 8), _mm256_and_si256(bits_get(p + 4), bytes_all(16)));
}
SIMD __m256 q5_1_scale(const uint8_t *p, int n) {
    __m256 v[2];
    f16_pair_gather(v, p, 24, n);
    return v[0];
}
SIMD __m256 q5_1_min(const uint8_t *p, int n) {
    __m256 v[2];
    f16_pair_gather(v, p, 24, n);
    return negate(v[1]);
}

SIMD __m256i q8_0_v(const uint8_t *p, int j) {
    return load256(p + 34 * j + 2);
}
SIMD __m256 q8_0_scale(const uint8_t *p, int n) {
    return f16_gather(p, 34, n);
}

SIMD __m256i iq4_nl_v(const uint8_t *p, int j) {
    return table_get(quant_value_iq4, nibbles_get(p + 18 * j + 2));
}
SIMD __m256 iq4_nl_scale(const uint8_t *p, int n) {
    return f16_gather(p, 18, n);
}

/* 2^(e - 128): the exponent's field is e - 1, or below 1 a denormal. */
SIMD __m256i mxfp4_v(const uint8_t *p, int j) {
    return table_get(quant_value_fp4, nibbles_get(p + 17 * j + 1));
}
SIMD __m256 mxfp4_scale(const uint8_t *p, int n) {
    __m128i b = _mm_cvtsi32_si128(p[0]);
    if (n > 1) b = _mm_insert_epi8(b, p[17], 1);
    if (n > 2) b = _mm_insert_epi8(b, p[2 * 17], 2);
    if (n > 3) b = _mm_insert_epi8(b, p[3 * 17], 3);
    if (n > 4) b = _mm_insert_epi8(b, p[4 * 17], 4);
    if (n > 5) b = _mm_insert_epi8(b, p[5 * 17], 5);
    if (n > 6) b = _mm_insert_epi8(b, p[6 * 17], 6);
    if (n > 7) b = _mm_insert_epi8(b, p[7 * 17], 7);
    __m256i e = _mm256_cvtepu8_epi32(b);
    __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    __m256i denormal = _mm256_sllv_epi32(_mm256_set1_epi32(0x200000), e);
    __m256i small = _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e);
    return _mm256_castsi256_ps(_mm256_blendv_epi8(normal, denormal, small));
}

/* ---- NVFP4, Q1_0, Q2_0 ------------------------------------------------------------------------------ */

SIMD __m256i nvfp4_v(const uint8_t *p, int j) {
    const uint8_t *qs = p + 36 * (j / 2) + 4 + 16 * (j & 1);
    __m256i v = _mm256_permute4x64_epi64(load128_twice(qs), 0x50); // qwords 0 0 1 1
    v = _mm256_srlv_epi64(v, _mm256_setr_epi64x(0, 4, 0, 4));
    return table_get(quant_value_fp4, _mm256_and_si256(v, bytes_all(15)));
}
/* The seven low bits are the upper ones of an f16, 7 binades too low (its conversion takes denormals in its
 * stride). */
SIMD __m256 ue4m3_half(__m128i b) {
    __m128i nan = _mm_cmpeq_epi8(b, _mm_set1_epi8(0x7F));
    __m128i v = _mm_cvtepu8_epi16(_mm_andnot_si128(nan, _mm_and_si128(b, _mm_set1_epi8(0x7F))));
    return _mm256_mul_ps(f16x8(_mm_slli_epi16(v, 7)), _mm256_set1_ps(0x1p7f));
}
SIMD void nvfp4_scale16(__m256 v[2], const uint8_t *p, int n) {
    __m128i b = _mm_cvtsi32_si128((int)load_u32(p));
    if (n > 2) b = _mm_insert_epi32(b, (int)load_u32(p + 36), 1);
    if (n > 4) b = _mm_insert_epi32(b, (int)load_u32(p + 72), 2);
    if (n > 6) b = _mm_insert_epi32(b, (int)load_u32(p + 108), 3);
    b = half_order(b);
    v[0] = ue4m3_half(b);
    v[1] = ue4m3_half(_mm_srli_si128(b, 8));
}

SIMD __m256i q1_0_q(const uint8_t *p, int j) {
    return _mm256_and_si256(bits_get(p + 18 * (j / 4) + 2 + 4 * (j & 3)), bytes_all(2));
}
SIMD __m256 q1_0_scale(const uint8_t *p, int n) {
    __m128i a = _mm_set1_epi16((short)load_u16(p)), b = a;
    if (n > 4) b = _mm_set1_epi16((short)load_u16(p + 18));
    return f16x8(_mm_unpacklo_epi64(a, b));
}

SIMD __m256i q2_0_q(const uint8_t *p, int j) {
    __m256i v = _mm256_cvtepu8_epi32(load64(p + 18 * (j / 2) + 2 + 8 * (j & 1)));
    v = _mm256_or_si256(v, _mm256_slli_epi32(v, 6));
    v = _mm256_or_si256(v, _mm256_slli_epi32(v, 12));
    return _mm256_and_si256(v, bytes_all(3));
}
SIMD __m256 q2_0_scale(const uint8_t *p, int n) {
    __m128i h = _mm_cvtsi32_si128(load_u16(p));
    if (n > 2) h = _mm_insert_epi16(h, load_u16(p + 18), 1);
    if (n > 4) h = _mm_insert_epi16(h, load_u16(p + 36), 2);
    if (n > 6) h = _mm_insert_epi16(h, load_u16(p + 54), 3);
    return f16x8(_mm_unpacklo_epi16(h, h));
}

/* ---- K-quants --------------------------------------------------------------------------------------- */

/* Two bits of 256 weights in 64 bytes. */
SIMD __m256i plane2(const uint8_t *qs, int j) {
    return bits_at(load256(qs + 32 * (j / 4)), -2 * (j & 3), 3);
}

SIMD __m256i q2_k_q(const uint8_t *p, int j) {
    return plane2(p + 16, j);
}
SIMD void q2_k_scale16(__m256 v[2], const uint8_t *p, int n) {
    (void)n;
    halves_of_u8(v, _mm_and_si128(load128(p), _mm_set1_epi8(15)), f16_all(p + 80));
}
SIMD void q2_k_min16(__m256 v[2], const uint8_t *p, int n) {
    (void)n;
    halves_of_u8(v, _mm_and_si128(_mm_srli_epi16(load128(p), 4), _mm_set1_epi8(15)), f16_all(p + 82));
}

SIMD __m256i q3_k_q(const uint8_t *p, int j) {
    return _mm256_or_si256(plane2(p + 32, j), bits_at(load256(p), 2 - j, 4));
}
SIMD void q3_k_scale16(__m256 v[2], const uint8_t *p, int n) {
    (void)n;
    const uint64_t four = 0x0F0F0F0F0F0F0F0F;
    const uint32_t two = 0x30303030;
    uint64_t lo = load_u64(p + 96);
    uint32_t hi = load_u32(p + 104);
    uint64_t a = (lo & four) | (hi << 4 & two) | (uint64_t)(hi << 2 & two) << 32;
    uint64_t b = (lo >> 4 & four) | (hi & two) | (uint64_t)(hi >> 2 & two) << 32;
    __m128i s = _mm_set_epi64x((long long)b, (long long)a);
    halves_of_i8(v, _mm_sub_epi8(s, _mm_set1_epi8(32)), f16_all(p + 108));
}

/* The eight scales (low half) and minima (high half) of Q4_K and Q5_K, 6 bits each, as bytes; p is the unit.
 * Words of the result: scales 0..3 from the six low bits of a, scales 4..7 from the low four bits of c with
 * the two upper ones of a, minima likewise from b and the high four bits of c. */
SIMD __m128i k4_bytes(const uint8_t *p) {
    __m128i v = load128(p), a_c_b_c = _mm_setr_epi8(4, 5, 6, 7, 12, 13, 14, 15, 8, 9, 10, 11, 12, 13, 14, 15),
            a_b = _mm_setr_epi8(-1, -1, -1, -1, 4, 5, 6, 7, -1, -1, -1, -1, 8, 9, 10, 11);
    __m128i low = _mm_srlv_epi32(_mm_shuffle_epi8(v, a_c_b_c), _mm_setr_epi32(0, 0, 0, 4));
    low = _mm_and_si128(low, _mm_setr_epi32(0x3F3F3F3F, 0x0F0F0F0F, 0x3F3F3F3F, 0x0F0F0F0F));
    __m128i high = _mm_srli_epi16(_mm_shuffle_epi8(v, a_b), 2);
    return _mm_or_si128(low, _mm_and_si128(high, _mm_set1_epi8(0x30)));
}
SIMD __m256 k4_scale(const uint8_t *p, int n) {
    (void)n;
    return _mm256_mul_ps(f16_all(p), f32_of_u8(k4_bytes(p)));
}
SIMD __m256 k4_min(const uint8_t *p, int n) {
    (void)n;
    return _mm256_mul_ps(f16_all(p + 2), f32_of_u8(_mm_srli_si128(k4_bytes(p), 8)));
}
SIMD __m256i q4_k_q(const uint8_t *p, int j) {
    return bits_at(load256(p + 16 + 32 * (j / 2)), -4 * (j & 1), 15);
}
SIMD __m256i q5_k_q(const uint8_t *p, int j) {
    __m256i low = bits_at(load256(p + 48 + 32 * (j / 2)), -4 * (j & 1), 15);
    return _mm256_or_si256(low, bits_at(load256(p + 16), 4 - j, 16));
}

SIMD __m256i q6_k_q(const uint8_t *p, int j) {
    int n = j & 3;
    __m256i low = bits_at(load256(p + 64 * (j / 4) + 32 * (n & 1)), n < 2 ? 0 : -4, 15);
    return _mm256_or_si256(low, bits_at(load256(p + 128 + 32 * (j / 4)), 4 - 2 * n, 48));
}
SIMD void q6_k_scale16(__m256 v[2], const uint8_t *p, int n) {
    (void)n;
    halves_of_i8(v, load128(p + 192), f16_all(p + 208));
}

/* ---- ternary ---------------------------------------------------------------------------------------- */

/* Bytes of v times the word of m, mod 256. */
SIMD __m256i bytes_mul(__m256i v, __m256i m) {
    __m256i odd = _mm256_mullo_epi16(_mm256_and_si256(v, _mm256_set1_epi16(-256)), m);
    return _mm256_or_si256(odd, _mm256_and_si256(_mm256_mullo_epi16(v, m), _mm256_set1_epi16(255)));
}
/* The digit is b * 3 >> 8 of the scaled byte: how many of 86 and 171 it reaches. */
SIMD __m256i tq1_0_q(const uint8_t *p, int j) {
    const int pow3[5] = {1, 3, 9, 27, 81};
    __m256i v, m;
    if (j < 5) {
        v = load256(p);
        m = _mm256_set1_epi16((short)pow3[j]);
    } else if (j < 7) {
        v = load128_twice(p + 32);
        m = _mm256_set_m128i(_mm_set1_epi16((short)pow3[2 * j - 9]), _mm_set1_epi16((short)pow3[2 * j - 10]));
    } else {
        v = _mm256_set_m128i(_mm_set1_epi32((int)load_u32(p + 48)), load128(p + 32));
        m = _mm256_setr_epi16(81, 81, 81, 81, 81, 81, 81, 81, 1, 1, 3, 3, 9, 9, 27, 27);
    }
    if (j > 0) v = bytes_mul(v, m);
    __m256i one = _mm256_cmpeq_epi8(_mm256_max_epu8(v, bytes_all(86)), v);
    __m256i two = _mm256_cmpeq_epi8(_mm256_max_epu8(v, bytes_all(171)), v);
    return _mm256_abs_epi8(_mm256_add_epi8(one, two));
}
SIMD __m256 tq1_0_scale(const uint8_t *p, int n) {
    (void)n;
    return f16_all(p + 52);
}
SIMD __m256i tq2_0_q(const uint8_t *p, int j) {
    return plane2(p, j);
}
SIMD __m256 tq2_0_scale(const uint8_t *p, int n) {
    (void)n;
    return f16_all(p + 64);
}

/* ---- i-quants --------------------------------------------------------------------------------------- */

SIMD __m256i grid8_get(const uint64_t *grid, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    return _mm256_setr_epi64x((long long)grid[a], (long long)grid[b], (long long)grid[c], (long long)grid[d]);
}
/* Twice four entries. Spelt out: an insertion from memory is the cheapest way into a register. */
SIMD __m128i grid4_half(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    __m128i lo = _mm_insert_epi32(_mm_cvtsi32_si128((int)a), (int)b, 1);
    return _mm_unpacklo_epi64(lo, _mm_insert_epi32(_mm_cvtsi32_si128((int)c), (int)d, 1));
}
#define GRID4_GET(g, at)                                                                                     \
    _mm256_set_m128i(grid4_half(g[(at)[4]], g[(at)[5]], g[(at)[6]], g[(at)[7]]),                             \
                     grid4_half(g[(at)[0]], g[(at)[1]], g[(at)[2]], g[(at)[3]]))
/* 16 numbers: bytes of `low`, and above them the bits `mask` of lanes of h times the lanes of m. */
SIMD void index16_store(uint16_t *at, const uint8_t *low, __m256i h, __m256i m, int mask) {
    __m256i high = _mm256_and_si256(_mm256_mullo_epi16(h, m), _mm256_set1_epi16((short)mask));
    _mm256_storeu_si256((__m256i *)(void *)at, _mm256_or_si256(_mm256_cvtepu8_epi16(load128(low)), high));
}
/* Lanes of four words: words k .. k + 3 of v, each in the four lanes of a qword. */
SIMD __m256i words_spread(__m128i v, int k) {
    long long one = 0x0101010101010101 * 2, at = 0x0100010001000100 + k * one;
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(v),
                               _mm256_setr_epi64x(at, at + one, at + 2 * one, at + 3 * one));
}

/* 32 bytes of 7 sign bits: the eighth bit makes their number even. */
SIMD __m256i signs_even(__m256i v) {
    const __m256i odd =
        _mm256_setr_epi8(0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0, //
                         0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0);
    __m256i fold = _mm256_and_si256(_mm256_xor_si256(v, _mm256_srli_epi16(v, 4)), bytes_all(15));
    return _mm256_or_si256(v, _mm256_shuffle_epi8(odd, fold));
}
/* 8 words of four times 7 bits (the top 4 bits are something else) to 32 bytes of sign bits. */
SIMD __m256i signs_of_words(__m256i v) {
    __m256i a = _mm256_and_si256(v, _mm256_set1_epi32(0x7F));
    __m256i b = _mm256_and_si256(_mm256_slli_epi32(v, 1), _mm256_set1_epi32(0x7F00));
    __m256i c = _mm256_and_si256(_mm256_slli_epi32(v, 2), _mm256_set1_epi32(0x7F0000));
    __m256i d = _mm256_and_si256(_mm256_slli_epi32(v, 3), _mm256_set1_epi32(0x7F000000));
    return signs_even(_mm256_or_si256(_mm256_or_si256(a, b), _mm256_or_si256(c, d)));
}
/* Signs of block j as bytes 1 and -1, from 32 bytes of sign bits. */
SIMD __m256i sgn_spread(__m256i signs, int j) {
    __m256i v =
        j < 4 ? _mm256_permute2x128_si256(signs, signs, 0x00) : _mm256_permute2x128_si256(signs, signs, 0x11);
    long long at = 0x0404040404040404 * (j & 3), one = 0x0101010101010101;
    v = _mm256_shuffle_epi8(v, _mm256_setr_epi64x(at, at + one, at + 2 * one, at + 3 * one));
    return _mm256_or_si256(bits_spread(v), bytes_all(1));
}
SIMD __m256i sgn_get(const uint8_t *p) {
    return _mm256_or_si256(bits_get(p), bytes_all(1));
}
SIMD uint64_t qword_get(__m256i v, int k) {
    switch (k) {
    case 0: return (uint64_t)_mm256_extract_epi64(v, 0);
    case 1: return (uint64_t)_mm256_extract_epi64(v, 1);
    case 2: return (uint64_t)_mm256_extract_epi64(v, 2);
    default: return (uint64_t)_mm256_extract_epi64(v, 3);
    }
}
/* 2 n + 1 for the top four bits n of each word, times d. */
SIMD __m256 scale_of_top4(__m256i v, __m256 d) {
    __m256i odd = _mm256_or_si256(_mm256_srli_epi32(v, 27), _mm256_set1_epi32(1));
    return _mm256_mul_ps(d, _mm256_cvtepi32_ps(odd));
}
SIMD __m256 eighth(__m256 d) {
    return _mm256_mul_ps(d, _mm256_set1_ps(0.125f));
}

/* The second word of each of the unit's eight pairs. */
SIMD __m256i iq2_xxs_words(const uint8_t *p) {
    __m256 a = _mm256_castsi256_ps(load256(p + 2)), b = _mm256_castsi256_ps(load256(p + 34));
    return _mm256_permute4x64_epi64(_mm256_castps_si256(_mm256_shuffle_ps(a, b, 0xDD)), 0xD8);
}
SIMD __m256i iq2_xxs_q(const uint8_t *p, int j) {
    p += 2 + 8 * j;
    return grid8_get(quant_grid_iq2xxs, p[0], p[1], p[2], p[3]);
}
SIMD __m256i iq2_xxs_signs(const uint8_t *p) {
    return signs_of_words(iq2_xxs_words(p));
}
SIMD __m256i iq2_xxs_sgn(const uint8_t *p, int j) {
    return sgn_spread(iq2_xxs_signs(p), j);
}
SIMD uint64_t iq2_xxs_sign(const uint8_t *p, int k) {
    return qword_get(iq2_xxs_signs(p), k);
}
SIMD __m256 iq2_xxs_scale(const uint8_t *p, int n) {
    (void)n;
    return scale_of_top4(iq2_xxs_words(p), eighth(f16_all(p)));
}

/* d (2 n + 1) / 8 of eight bytes of two n each. */
SIMD void iq2_scale16(__m256 v[2], const uint8_t *sc, const uint8_t *d16) {
    __m256i b = _mm256_cvtepu8_epi32(load64(sc));
    __m256i lo = _mm256_and_si256(_mm256_slli_epi32(b, 1), _mm256_set1_epi32(30));
    __m256i hi = _mm256_and_si256(_mm256_srli_epi32(b, 3), _mm256_set1_epi32(30));
    __m256 d = eighth(f16_all(d16));
    __m256i one = _mm256_set1_epi32(1);
    __m256 l = _mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_or_si256(lo, one)));
    __m256 h = _mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_or_si256(hi, one)));
    v[0] = _mm256_permute2f128_ps(l, h, 0x20);
    v[1] = _mm256_permute2f128_ps(l, h, 0x31);
}
SIMD __m256i iq2_xs_q(const uint8_t *p, int j) {
    uint64_t w = load_u64(p + 2 + 8 * j);
    return grid8_get(quant_grid_iq2xs, w & 511, w >> 16 & 511, w >> 32 & 511, w >> 48 & 511);
}
SIMD __m256i iq2_xs_signs(const uint8_t *p) {
    __m256i a = _mm256_srli_epi16(load256(p + 2), 9), b = _mm256_srli_epi16(load256(p + 34), 9);
    return signs_even(_mm256_permute4x64_epi64(_mm256_packus_epi16(a, b), 0xD8));
}
SIMD __m256i iq2_xs_sgn(const uint8_t *p, int j) {
    return sgn_spread(iq2_xs_signs(p), j);
}
SIMD uint64_t iq2_xs_sign(const uint8_t *p, int k) {
    return qword_get(iq2_xs_signs(p), k);
}
SIMD void iq2_xs_scale16(__m256 v[2], const uint8_t *p, int n) {
    (void)n;
    iq2_scale16(v, p + 66, p);
}

SIMD __m256i iq2_s_q(const uint8_t *p, int j) {
    const uint8_t *qs = p + 2 + 4 * j;
    uint32_t h = p[66 + j];
    return grid8_get(quant_grid_iq2s, qs[0] | (h << 8 & 0x300), qs[1] | (h << 6 & 0x300),
                     qs[2] | (h << 4 & 0x300), qs[3] | (h << 2 & 0x300));
}
SIMD __m256i iq2_s_sgn(const uint8_t *p, int j) {
    return sgn_get(p + 34 + 4 * j);
}
SIMD uint64_t iq2_s_sign(const uint8_t *p, int k) {
    return load_u64(p + 34 + 8 * k);
}
SIMD void iq2_s_scale16(__m256 v[2], const uint8_t *p, int n) {
    (void)n;
    iq2_scale16(v, p + 74, p);
}

SIMD __m256i iq3_xxs_q(const uint8_t *p, int j) {
    const uint8_t *qs = p + 2 + 8 * j;
    return GRID4_GET(quant_grid_iq3xxs, qs);
}
SIMD __m256i iq3_xxs_signs(const uint8_t *p) {
    return signs_of_words(load256(p + 66));
}
SIMD __m256i iq3_xxs_sgn(const uint8_t *p, int j) {
    return sgn_spread(iq3_xxs_signs(p), j);
}
SIMD uint64_t iq3_xxs_sign(const uint8_t *p, int k) {
    return qword_get(iq3_xxs_signs(p), k);
}
SIMD __m256 iq3_xxs_scale(const uint8_t *p, int n) {
    (void)n;
    return scale_of_top4(load256(p + 66), _mm256_mul_ps(f16_all(p), _mm256_set1_ps(0.25f)));
}

SIMD void iq3_s_index(uint16_t *at, const uint8_t *p) {
    __m256i up = _mm256_setr_epi16(256, 128, 64, 32, 16, 8, 4, 2, 256, 128, 64, 32, 16, 8, 4, 2);
    UNROLL
    for (int k = 0; k < 8; k += 2) {
        __m256i h = _mm256_set_m128i(_mm_set1_epi16(p[67 + k]), _mm_set1_epi16(p[66 + k]));
        index16_store(at + 8 * k, p + 2 + 8 * k, h, up, 256);
    }
}
SIMD __m256i iq3_s_q(const uint16_t *at, const uint8_t *p, int j) {
    (void)p;
    return GRID4_GET(quant_grid_iq3s, at + 8 * j);
}
SIMD __m256i iq3_s_sgn(const uint8_t *p, int j) {
    return sgn_get(p + 74 + 4 * j);
}
SIMD uint64_t iq3_s_sign(const uint8_t *p, int k) {
    return load_u64(p + 74 + 8 * k);
}
/* Four bytes to eight nibbles, low ones first, each as a byte. */
SIMD __m128i nibbles8(const uint8_t *p) {
    __m128i v = _mm_cvtsi32_si128((int)load_u32(p)), m = _mm_set1_epi8(15);
    return _mm_unpacklo_epi8(_mm_and_si128(v, m), _mm_and_si128(_mm_srli_epi16(v, 4), m));
}
SIMD __m256 iq3_s_scale(const uint8_t *p, int n) {
    (void)n;
    __m128i s = nibbles8(p + 106);
    return _mm256_mul_ps(f16_all(p), f32_of_u8(_mm_or_si128(_mm_add_epi8(s, s), _mm_set1_epi8(1))));
}

/* Eight times the grid's values plus the delta, 1 or -1 in a group whose bit of n is set. */
SIMD __m256i iq1_values(const uint16_t *at, uint32_t n) {
    return _mm256_add_epi8(grid8_get(quant_grid_iq1s_8, at[0], at[1], at[2], at[3]),
                           load256(quant_delta_iq1[n]));
}
/* Numbers of 16 groups, their three high bits at bit 0, n, 2 n, 3 n of the words of h. */
SIMD void iq1_index16_store(uint16_t *at, const uint8_t *low, __m256i h, int n) {
    __m256i up = _mm256_set1_epi64x(256 | 256LL >> n << 16 | 256LL >> 2 * n << 32);
    __m256i high = _mm256_blend_epi16(_mm256_mullo_epi16(h, up), _mm256_srli_epi16(h, 3 * n - 8), 0x88);
    high = _mm256_and_si256(high, _mm256_set1_epi16(0x700));
    _mm256_storeu_si256((__m256i *)(void *)at, _mm256_or_si256(_mm256_cvtepu8_epi16(load128(low)), high));
}
SIMD void iq1_s_index(uint16_t *at, const uint8_t *p) {
    iq1_index16_store(at, p + 2, words_spread(load128(p + 34), 0), 3);
    iq1_index16_store(at + 16, p + 18, words_spread(load128(p + 34), 4), 3);
}
SIMD __m256i iq1_s_v(const uint16_t *at, const uint8_t *p, int j) {
    return iq1_values(at + 4 * j, p[35 + 2 * j] & 0x80 ? 15 : 0);
}
SIMD __m256 iq1_s_scale(const uint8_t *p, int n) {
    (void)n;
    __m256i h = _mm256_cvtepu16_epi32(load128(p + 34));
    h = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi32(h, 11), _mm256_set1_epi32(14)),
                        _mm256_set1_epi32(1));
    return _mm256_mul_ps(eighth(f16_all(p)), _mm256_cvtepi32_ps(h));
}

SIMD void iq1_m_index(uint16_t *at, const uint8_t *p) {
    iq1_index16_store(at, p, words_spread(load128(p + 32), 0), 4);
    iq1_index16_store(at + 16, p + 16, words_spread(load128(p + 32), 4), 4);
}
SIMD __m256i iq1_m_v(const uint16_t *at, const uint8_t *p, int j) {
    // Bit 4 l + 3 is the sign of group l's delta: the product has it at bit 15 + l.
    uint32_t n = (load_u16(p + 32 + 2 * j) & 0x8888u) * 0x1248u >> 15 & 15;
    return iq1_values(at + 4 * j, n);
}
/* Word i of sc holds the scales of blocks 2 i, 2 i + 1: bits 0, 3, 6, 9. Half order wants 0, 6 of words 0 and
 * 1, then 3, 9. */
SIMD void iq1_m_scale16(__m256 v[2], const uint8_t *p, int n) {
    (void)n;
    uint64_t w = load_u64(p + 48);
    uint32_t d = (uint32_t)(w >> 12 & 0xF) | (uint32_t)(w >> 24 & 0xF0) | (uint32_t)(w >> 36 & 0xF00) |
                 (uint32_t)(w >> 48 & 0xF000);
    __m256 scale = eighth(f16x8(_mm_set1_epi16((short)d)));
    __m256i lo = _mm256_setr_epi32(0, 6, 16, 22, 3, 9, 19, 25), one = _mm256_set1_epi32(1),
            m = _mm256_set1_epi32(7);
    UNROLL
    for (int i = 0; i < 2; i++) {
        __m256i s = _mm256_and_si256(_mm256_srlv_epi32(_mm256_set1_epi32((int)(w >> 32 * i)), lo), m);
        v[i] = _mm256_mul_ps(scale, _mm256_cvtepi32_ps(_mm256_or_si256(_mm256_add_epi32(s, s), one)));
    }
}

SIMD __m256i iq4_xs_v(const uint8_t *p, int j) {
    return table_get(quant_value_iq4, nibbles_get(p + 8 + 16 * j));
}
SIMD __m256 iq4_xs_scale(const uint8_t *p, int n) {
    (void)n;
    __m256i lo = _mm256_cvtepu8_epi32(nibbles8(p + 4));
    __m256i hi =
        _mm256_srlv_epi32(_mm256_set1_epi32(load_u16(p + 2)), _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14));
    hi = _mm256_slli_epi32(_mm256_and_si256(hi, _mm256_set1_epi32(3)), 4);
    __m256i s = _mm256_sub_epi32(_mm256_or_si256(lo, hi), _mm256_set1_epi32(32));
    return _mm256_mul_ps(f16_all(p), _mm256_cvtepi32_ps(s));
}

/* ---- the kinds -------------------------------------------------------------------------------------- */

/* Bytes of a unit. */
enum {
    UNIT_BYTES_q4_0 = 8 * 18,
    UNIT_BYTES_q4_1 = 8 * 20,
    UNIT_BYTES_q5_0 = 8 * 22,
    UNIT_BYTES_q5_1 = 8 * 24,
    UNIT_BYTES_q8_0 = 8 * 34,
    UNIT_BYTES_iq4_nl = 8 * 18,
    UNIT_BYTES_mxfp4 = 8 * 17,
    UNIT_BYTES_nvfp4 = 4 * 36,
    UNIT_BYTES_q1_0 = 2 * 18,
    UNIT_BYTES_q2_0 = 4 * 18,
    UNIT_BYTES_q2_k = 84,
    UNIT_BYTES_q3_k = 110,
    UNIT_BYTES_q4_k = 144,
    UNIT_BYTES_q5_k = 176,
    UNIT_BYTES_q6_k = 210,
    UNIT_BYTES_tq1_0 = 54,
    UNIT_BYTES_tq2_0 = 66,
    UNIT_BYTES_iq2_xxs = 66,
    UNIT_BYTES_iq2_xs = 74,
    UNIT_BYTES_iq2_s = 82,
    UNIT_BYTES_iq3_xxs = 98,
    UNIT_BYTES_iq3_s = 110,
    UNIT_BYTES_iq1_s = 50,
    UNIT_BYTES_iq1_m = 56,
    UNIT_BYTES_iq4_xs = 136
};

#define UNIT_KIND(name, block_, ...)                                                                         \
    static const unit_kind unit_##name = {.block = block_, .bytes = UNIT_BYTES_##name, __VA_ARGS__};
UNIT_KIND(q4_0, 32, .q = q4_0_q, .offset = 8, .scale = q4_0_scale)
UNIT_KIND(q4_1, 32, .q = q4_1_q, .scale = q4_1_scale, .min = q4_1_min)
UNIT_KIND(q5_0, 32, .q = q5_0_q, .offset = 16, .scale = q5_0_scale)
UNIT_KIND(q5_1, 32, .q = q5_1_q, .scale = q5_1_scale, .min = q5_1_min)
UNIT_KIND(q8_0, 32, .v = q8_0_v, .scale = q8_0_scale)
UNIT_KIND(iq4_nl, 32, .v = iq4_nl_v, .scale = iq4_nl_scale)
UNIT_KIND(mxfp4, 32, .v = mxfp4_v, .scale = mxfp4_scale)
UNIT_KIND(nvfp4, 64, .v = nvfp4_v, .scale16 = nvfp4_scale16)
UNIT_KIND(q1_0, 128, .q = q1_0_q, .offset = 1, .scale = q1_0_scale)
UNIT_KIND(q2_0, 64, .q = q2_0_q, .offset = 1, .scale = q2_0_scale)
UNIT_KIND(q2_k, 256, .q = q2_k_q, .scale16 = q2_k_scale16, .min16 = q2_k_min16)
UNIT_KIND(q3_k, 256, .q = q3_k_q, .offset = 4, .scale16 = q3_k_scale16)
UNIT_KIND(q4_k, 256, .q = q4_k_q, .scale = k4_scale, .min = k4_min)
UNIT_KIND(q5_k, 256, .q = q5_k_q, .scale = k4_scale, .min = k4_min)
UNIT_KIND(q6_k, 256, .q = q6_k_q, .offset = 32, .scale16 = q6_k_scale16)
UNIT_KIND(tq1_0, 256, .q = tq1_0_q, .offset = 1, .scale = tq1_0_scale)
UNIT_KIND(tq2_0, 256, .q = tq2_0_q, .offset = 1, .scale = tq2_0_scale)
UNIT_KIND(iq2_xxs, 256, .q = iq2_xxs_q, .sgn = iq2_xxs_sgn, .sign = iq2_xxs_sign, .scale = iq2_xxs_scale)
UNIT_KIND(iq2_xs, 256, .q = iq2_xs_q, .sgn = iq2_xs_sgn, .sign = iq2_xs_sign, .scale16 = iq2_xs_scale16)
UNIT_KIND(iq2_s, 256, .q = iq2_s_q, .sgn = iq2_s_sgn, .sign = iq2_s_sign, .scale16 = iq2_s_scale16)
UNIT_KIND(iq3_xxs, 256, .q = iq3_xxs_q, .sgn = iq3_xxs_sgn, .sign = iq3_xxs_sign, .scale = iq3_xxs_scale)
UNIT_KIND(iq3_s, 256, .index = iq3_s_index, .grid_q = iq3_s_q, .sgn = iq3_s_sgn, .sign = iq3_s_sign,
          .scale = iq3_s_scale)
UNIT_KIND(iq1_s, 256, .index = iq1_s_index, .grid_v = iq1_s_v, .scale = iq1_s_scale)
UNIT_KIND(iq1_m, 256, .index = iq1_m_index, .grid_v = iq1_m_v, .scale16 = iq1_m_scale16)
UNIT_KIND(iq4_xs, 256, .v = iq4_xs_v, .scale = iq4_xs_scale)
#endif
