/* The AVX-512 intrinsics that the _avx512.c files of src/quant use, made of AVX2 and plain C, so that those
 * files are tested bit for bit on processors without AVX-512: the test is linked with copies compiled with
 * this header in front. Written from the documented meaning of each instruction, lane by lane; aligned
 * accesses are checked. */
#ifndef MICA_TESTS_EMU512_AVX2_H
#define MICA_TESTS_EMU512_AVX2_H

#include <immintrin.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Calls, not inlined: with sanitizers a compiler would need minutes for the kernels otherwise. */
#define EMU static __attribute__((noinline, unused))

typedef union emu_512 {
    __m256i i256[2];
    __m256 f256[2];
    uint8_t u8[64];
    int8_t i8[64];
    uint32_t u32[16];
    int32_t i32[16];
    float f32[16];
} emu_512;

#define __m512i emu_512
#define __m512 emu_512

EMU const void *emu_aligned(const void *p) {
    if ((uintptr_t)p % 64 != 0) abort();
    return p;
}
EMU emu_512 emu_load(const void *p) {
    emu_512 r;
    memcpy(&r, p, sizeof r);
    return r;
}
EMU void emu_store(void *p, emu_512 v) {
    memcpy(p, &v, sizeof v);
}
EMU emu_512 emu_masked_load(uint64_t mask, const void *p, size_t size) {
    emu_512 r = {0};
    for (size_t i = 0; i < 64 / size; i++) {
        if (mask >> i & 1) memcpy(r.u8 + i * size, (const uint8_t *)p + i * size, size);
    }
    return r;
}
EMU __m256i emu_masked_load16(uint32_t mask, const void *p) {
    return emu_masked_load(mask & 0xFFFF, p, 2).i256[0];
}

#define EMU_BOTH(name, field, op)                                                                            \
    EMU emu_512 name(emu_512 a, emu_512 b) {                                                                 \
        return (emu_512){.field = {op(a.field[0], b.field[0]), op(a.field[1], b.field[1])}};                 \
    }
EMU_BOTH(emu_add_epi32, i256, _mm256_add_epi32)
EMU_BOTH(emu_sub_epi32, i256, _mm256_sub_epi32)
EMU_BOTH(emu_xor, i256, _mm256_xor_si256)
EMU_BOTH(emu_sub_ps, f256, _mm256_sub_ps)
EMU_BOTH(emu_mul_ps, f256, _mm256_mul_ps)

EMU emu_512 emu_set1_epi8(char v) {
    return (emu_512){.i256 = {_mm256_set1_epi8(v), _mm256_set1_epi8(v)}};
}
EMU emu_512 emu_set1_epi32(int v) {
    return (emu_512){.i256 = {_mm256_set1_epi32(v), _mm256_set1_epi32(v)}};
}
EMU emu_512 emu_set1_ps(float v) {
    return (emu_512){.f256 = {_mm256_set1_ps(v), _mm256_set1_ps(v)}};
}
EMU emu_512 emu_zero(void) {
    return emu_set1_epi32(0);
}
#define emu_setr_epi32(...) ((emu_512){.i32 = {__VA_ARGS__}})

/* What a cast leaves undefined is filled with noise: nothing may depend on it. */
EMU emu_512 emu_widen_f(__m256 v) {
    return (emu_512){.f256 = {v, _mm256_set1_ps(-1.5e30f)}};
}
EMU emu_512 emu_widen_i(__m256i v) {
    return (emu_512){.i256 = {v, _mm256_set1_epi32(0x5A5A5A5A)}};
}
EMU __m256 emu_low_f(emu_512 v) {
    return v.f256[0];
}
EMU emu_512 emu_same(emu_512 v) {
    return v;
}
EMU __m256 emu_extract_f(emu_512 v, int i) {
    return v.f256[i & 1];
}
EMU emu_512 emu_insert_f(emu_512 v, __m256 h, int i) {
    v.f256[i & 1] = h;
    return v;
}
EMU emu_512 emu_insert_i(emu_512 v, __m256i h, int i) {
    v.i256[i & 1] = h;
    return v;
}

EMU emu_512 emu_dpbusd(emu_512 acc, emu_512 u, emu_512 s) {
    for (int i = 0; i < 64; i++) acc.u32[i / 4] += (uint32_t)((int)u.u8[i] * (int)s.i8[i]);
    return acc;
}
EMU emu_512 emu_fmadd_ps(emu_512 a, emu_512 b, emu_512 c) {
    for (int i = 0; i < 2; i++) c.f256[i] = _mm256_fmadd_ps(a.f256[i], b.f256[i], c.f256[i]);
    return c;
}
EMU emu_512 emu_mask3_fmadd_ps(emu_512 a, emu_512 b, emu_512 c, uint16_t mask) {
    emu_512 r = emu_fmadd_ps(a, b, c);
    for (int i = 0; i < 16; i++) c.u32[i] = mask >> i & 1 ? r.u32[i] : c.u32[i];
    return c;
}
EMU emu_512 emu_mask_sub_epi8(emu_512 src, uint64_t mask, emu_512 a, emu_512 b) {
    for (int i = 0; i < 64; i++) src.u8[i] = mask >> i & 1 ? (uint8_t)(a.u8[i] - b.u8[i]) : src.u8[i];
    return src;
}
EMU emu_512 emu_permutexvar_ps(emu_512 at, emu_512 v) {
    emu_512 r;
    for (int i = 0; i < 16; i++) r.u32[i] = v.u32[at.u32[i] & 15];
    return r;
}
EMU emu_512 emu_slli_epi32(emu_512 v, unsigned n) {
    for (int i = 0; i < 16; i++) v.u32[i] = n < 32 ? v.u32[i] << n : 0;
    return v;
}
EMU emu_512 emu_cvtepu16_epi32(__m256i v) {
    return (emu_512){.i256 = {_mm256_cvtepu16_epi32(_mm256_castsi256_si128(v)),
                              _mm256_cvtepu16_epi32(_mm256_extracti128_si256(v, 1))}};
}
EMU emu_512 emu_cvtph_ps(__m256i v) {
    return (emu_512){.f256 = {_mm256_cvtph_ps(_mm256_castsi256_si128(v)),
                              _mm256_cvtph_ps(_mm256_extracti128_si256(v, 1))}};
}

// Some compilers have macros under these names when they do not optimise.
#undef _mm512_loadu_si512
#undef _mm512_loadu_ps
#undef _mm512_load_si512
#undef _mm512_load_ps
#undef _mm512_storeu_ps
#undef _mm512_maskz_loadu_epi8
#undef _mm512_maskz_loadu_ps
#undef _mm256_maskz_loadu_epi16
#undef _mm512_add_epi32
#undef _mm512_sub_epi32
#undef _mm512_xor_si512
#undef _mm512_sub_ps
#undef _mm512_mul_ps
#undef _mm512_set1_epi8
#undef _mm512_set1_epi32
#undef _mm512_set1_ps
#undef _mm512_setzero_ps
#undef _mm512_setzero_si512
#undef _mm512_setr_epi32
#undef _mm512_castps256_ps512
#undef _mm512_castsi256_si512
#undef _mm512_castps512_ps256
#undef _mm512_castsi512_ps
#undef _mm512_extractf32x8_ps
#undef _mm512_insertf32x8
#undef _mm512_inserti64x4
#undef _mm512_dpbusd_epi32
#undef _mm512_fmadd_ps
#undef _mm512_mask3_fmadd_ps
#undef _mm512_mask_sub_epi8
#undef _mm512_permutexvar_ps
#undef _mm512_slli_epi32
#undef _mm512_cvtepu16_epi32
#undef _mm512_cvtph_ps

#define _mm512_loadu_si512 emu_load
#define _mm512_loadu_ps emu_load
#define _mm512_load_si512(p) emu_load(emu_aligned(p))
#define _mm512_load_ps(p) emu_load(emu_aligned(p))
#define _mm512_storeu_ps emu_store
#define _mm512_maskz_loadu_epi8(m, p) emu_masked_load(m, p, 1)
#define _mm512_maskz_loadu_ps(m, p) emu_masked_load(m, p, 4)
#define _mm256_maskz_loadu_epi16 emu_masked_load16
#define _mm512_add_epi32 emu_add_epi32
#define _mm512_sub_epi32 emu_sub_epi32
#define _mm512_xor_si512 emu_xor
#define _mm512_sub_ps emu_sub_ps
#define _mm512_mul_ps emu_mul_ps
#define _mm512_set1_epi8 emu_set1_epi8
#define _mm512_set1_epi32 emu_set1_epi32
#define _mm512_set1_ps emu_set1_ps
#define _mm512_setzero_ps emu_zero
#define _mm512_setzero_si512 emu_zero
#define _mm512_setr_epi32 emu_setr_epi32
#define _mm512_castps256_ps512 emu_widen_f
#define _mm512_castsi256_si512 emu_widen_i
#define _mm512_castps512_ps256 emu_low_f
#define _mm512_castsi512_ps emu_same
#define _mm512_extractf32x8_ps emu_extract_f
#define _mm512_insertf32x8 emu_insert_f
#define _mm512_inserti64x4 emu_insert_i
#define _mm512_dpbusd_epi32 emu_dpbusd
#define _mm512_fmadd_ps emu_fmadd_ps
#define _mm512_mask3_fmadd_ps emu_mask3_fmadd_ps
#define _mm512_mask_sub_epi8 emu_mask_sub_epi8
#define _mm512_permutexvar_ps emu_permutexvar_ps
#define _mm512_slli_epi32 emu_slli_epi32
#define _mm512_cvtepu16_epi32 emu_cvtepu16_epi32
#define _mm512_cvtph_ps emu_cvtph_ps
#endif
