/* Scalar reductions of docs/ARITHMETIC.md rules 6 and 8: the definition that vector code must equal. */
#ifndef MICA_REF_MATH_H
#define MICA_REF_MATH_H

#include "base/exactf.h"

#include <math.h>
#include <stdint.h>

/* Adds p[0..n) pairwise at distance 1, 2, 4, ...; n a power of two. Overwrites p. */
static inline float ref_tree(float *p, uint32_t n) {
    for (uint32_t dist = 1; dist < n; dist *= 2) {
        for (uint32_t i = 0; i < n; i += 2 * dist) p[i] = p[i] + p[i + dist];
    }
    return p[0];
}

/* Rule 8: 64 partial sums (i mod 64), left to right, then the tree. */
static inline float ref_sum_squares(const float *x, uint32_t n) {
    float p[64] = {0};
    for (uint32_t i = 0; i < n; i++) p[i % 64] = fmaf(x[i], x[i], p[i % 64]);
    return ref_tree(p, 64);
}

/* y = x / sqrt(mean(x^2) + eps) * w; w NULL: no weight. y may be x. */
static inline void ref_rms(float *y, const float *x, const float *w, uint32_t n, float eps) {
    float r = 1.0f / sqrtf(ref_sum_squares(x, n) / (float)n + eps);
    for (uint32_t i = 0; i < n; i++) y[i] = w ? (x[i] * r) * w[i] : x[i] * r;
}

/* Rule 6: 32 partial sums (i mod 32), then the tree. */
static inline float ref_dot(const float *q, const float *k, uint32_t n) {
    float p[32] = {0};
    for (uint32_t i = 0; i < n; i++) p[i % 32] = fmaf(q[i], k[i], p[i % 32]);
    return ref_tree(p, 32);
}

/* Rule 15: sqrt(max(|z|, 1e-6)) with the sign of z, 0 for 0. */
static inline float signed_root(float z) {
    float q = fabsf(z) > 1e-6f ? sqrtf(fabsf(z)) : sqrtf(1e-6f);
    return z > 0.0f ? q : z < 0.0f ? -q : 0.0f;
}

#endif
