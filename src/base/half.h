/* f16 and bf16 as 16-bit patterns, and back to f32. No compiler's half type: gcc and clang differ in where
 * they have one. To f32 is exact (denormals included; a NaN stays a NaN and becomes quiet). From f32 rounds
 * to nearest, ties to even; too large becomes infinity. Host only: device source has its own under the same
 * names. */
#ifndef MICA_BASE_HALF_H
#define MICA_BASE_HALF_H

#include "base/num.h"

static inline float f16_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, mag = h & 0x7FFFu;
    if (mag >= 0x7C00)
        return bits_f32(sign | 0x7F800000u | (mag & 0x3FF) << 13 | (mag > 0x7C00 ? 0x400000u : 0));
    if (mag >= 0x400) return bits_f32(sign | ((mag << 13) + (112u << 23)));
    float f = (float)mag * 0x1p-24f; // a denormal counts steps of 2^-24
    return bits_f32(f32_bits(f) | sign);
}

static inline uint16_t f32_to_f16(float f) {
    uint32_t u = f32_bits(f), sign = u >> 16 & 0x8000, mag = u & 0x7FFFFFFFu;
    if (mag > 0x7F800000u) return (uint16_t)(sign | 0x7E00);
    if (mag >= 0x477FF000u) return (uint16_t)(sign | 0x7C00); // 65520 and above round to infinity
    if (mag < 0x38800000u) {
        // Below 2^-14: adding 0.5 leaves the count of 2^-24 steps, rounded by the adder, in the low bits.
        return (uint16_t)(sign | (f32_bits(bits_f32(mag) + 0.5f) - 0x3F000000u));
    }
    mag += 0xFFFu + (mag >> 13 & 1);
    return (uint16_t)(sign | ((mag - (112u << 23)) >> 13));
}

static inline float bf16_to_f32(uint16_t h) {
    return bits_f32((uint32_t)h << 16);
}

static inline uint16_t f32_to_bf16(float f) {
    uint32_t u = f32_bits(f);
    if ((u & 0x7FFFFFFFu) > 0x7F800000u) return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7FFFu + (u >> 16 & 1)) >> 16);
}
#endif
