/* Sizes from files are hostile: sums and products of them go through here. Little-endian loads that may be
 * unaligned. */
#ifndef MICA_BASE_NUM_H
#define MICA_BASE_NUM_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* false when the result does not fit; *out is then unchanged. */
static inline bool num_add_u64(uint64_t *out, uint64_t a, uint64_t b) {
    uint64_t r;
    if (__builtin_add_overflow(a, b, &r)) return false;
    *out = r;
    return true;
}
static inline bool num_mul_u64(uint64_t *out, uint64_t a, uint64_t b) {
    uint64_t r;
    if (__builtin_mul_overflow(a, b, &r)) return false;
    *out = r;
    return true;
}
/* The smallest multiple of `align` (a power of two) that is >= a; false on overflow. */
static inline bool num_align_u64(uint64_t *out, uint64_t a, uint64_t align) {
    uint64_t r;
    if (!num_add_u64(&r, a, align - 1)) return false;
    *out = r & ~(align - 1);
    return true;
}
static inline uint64_t num_ceil_div(uint64_t a, uint64_t b) {
    return a / b + (a % b != 0);
}

static inline uint16_t load_u16(const void *p) {
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline uint32_t load_u32(const void *p) {
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline uint64_t load_u64(const void *p) {
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline float bits_f32(uint32_t u) {
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}
static inline uint32_t f32_bits(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}
static inline double bits_f64(uint64_t u) {
    double f;
    memcpy(&f, &u, sizeof f);
    return f;
}
static inline uint64_t f64_bits(double f) {
    uint64_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}
#endif
