/* Elementary functions that give the same bits everywhere: scalar C, vector units and device source.
 *
 * Only + - * / fused multiply-add, comparisons with selects, and integer operations on the bit pattern, in
 * one fixed order (docs/ARITHMETIC.md rule 9); no tables, no branches that change an operation, no math
 * library. A vector version is the same lines with wider types. Needs round-to-nearest, no flush to zero and
 * no contraction of a * b + c.
 *
 * Largest errors in units of the last place of the result, denormal results included, measured on every float
 * once and held by t_exactf.c on a dense part of them: exp, log and sigmoid 1.0, silu and gelu 1.75,
 * tanh 1.5, softplus 2.0. A NaN gives a NaN (which one is not said). Infinities give the limits. Results
 * below the smallest denormal are 0.
 *
 * Device source defines DEV, bits_f32, f32_bits, bits_f64, f64_bits and MICA_DEVICE_SOURCE before including
 * this. */
#ifndef MICA_BASE_EXACTF_H
#define MICA_BASE_EXACTF_H

#ifndef MICA_DEVICE_SOURCE
#include "base/num.h"
#ifndef DEV
#define DEV static inline
#endif
#endif

/* ---- f32 ---- */

/* e^(x + xlo) = (p + plo) * s1 * s2 with p in about 0.70 to 1.42, plo what p lost in its last rounding, and
 * s1, s2 powers of two whose product may leave f32's range. x outside -110..89 counts as that end. xlo is far
 * below x. */
typedef struct exactf_parts {
    float p, plo, s1, s2;
} exactf_parts;

DEV exactf_parts exactf_exp_parts(float x, float xlo) {
    x = x < -110.0f ? -110.0f : x;
    x = x > 89.0f ? 89.0f : x;
    // n = x / ln 2 to the nearest integer: the sum's last bit is worth 1.
    float t = __builtin_fmaf(x, 0x1.715476p+0f, 0x1.8p+23f);
    float n = t - 0x1.8p+23f;
    uint32_t ni = f32_bits(t) - 0x4B400000u;
    // r = x - n ln 2. The high part of ln 2 has 16 bits, so that hi is exact.
    float hi = __builtin_fmaf(n, -0x1.62e4p-1f, x);
    float lo = __builtin_fmaf(n, -0x1.7f7d1cp-20f, xlo);
    float r = hi + lo;
    // e^r = 1 + (hi + (lo + r^2 q(r)))
    float q = 0x1.6ac6e2p-10f;
    q = __builtin_fmaf(q, r, 0x1.123de2p-7f);
    q = __builtin_fmaf(q, r, 0x1.555858p-5f);
    q = __builtin_fmaf(q, r, 0x1.55548cp-3f);
    q = __builtin_fmaf(q, r, 0x1.fffffcp-2f);
    q = __builtin_fmaf(q, r * r, lo);
    // Half of n rounded down and the rest: an arithmetic shift, written for unsigned numbers.
    uint32_t n1 = (ni + 256) / 2 - 128, n2 = ni - n1;
    exactf_parts e;
    float g = hi + q;
    e.p = 1.0f + g;
    e.plo = g - (e.p - 1.0f);
    e.s1 = bits_f32((n1 + 127) << 23);
    e.s2 = bits_f32((n2 + 127) << 23);
    return e;
}

/* e^x. Above 88.72284: infinity. Below -103.97208: 0. */
DEV float exactf_exp(float x) {
    exactf_parts e = exactf_exp_parts(x, 0.0f);
    return e.p * e.s1 * e.s2;
}

/* log(1 + f) of an f in -0.2929 .. 1, plus k ln 2. */
DEV float exactf_log1p_core(float f, float k) {
    float s = f / (2.0f + f);
    float z = s * s;
    float q = 0x1.f08cfcp-3f;
    q = __builtin_fmaf(q, z, 0x1.b72b5cp-3f);
    q = __builtin_fmaf(q, z, 0x1.250512p-2f);
    q = __builtin_fmaf(q, z, 0x1.9996d8p-2f);
    q = __builtin_fmaf(q, z, 0x1.555558p-1f);
    // log(1 + f) = 2 atanh s = f - (h - s (h + z q)), h = f^2 / 2
    float h = 0.5f * f * f;
    float a = __builtin_fmaf(z, q, h);
    float b = __builtin_fmaf(s, a, k * 0x1.7f7d1cp-20f);
    return __builtin_fmaf(k, 0x1.62e4p-1f, f - (h - b));
}

/* Natural logarithm. 0 and -0 give minus infinity, negative numbers a NaN. */
DEV float exactf_log(float x) {
    float small = x < 0x1p-126f ? 1.0f : 0.0f; // denormals are scaled into the normal range
    float y = small > 0 ? x * 0x1p+23f : x;
    // y = 2^k (1 + f), with 1 + f between sqrt(1/2) and sqrt 2.
    uint32_t u = f32_bits(y) - 0x3F3504F3u;
    uint32_t ki = (u + 0x40000000u) / 0x800000u - 128; // an arithmetic shift by 23
    float f = bits_f32(f32_bits(y) - (ki << 23)) - 1.0f;
    float k = (float)(int32_t)ki - 23.0f * small;
    float r = exactf_log1p_core(f, k);
    r = x == 0 ? -__builtin_inff() : r;
    r = x < 0 ? __builtin_nanf("") : r;
    return x > 0x1.fffffep+127f || x != x ? x : r;
}

/* x * sigmoid(v + vlo). */
DEV float exactf_gate(float x, float v, float vlo) {
    float neg = v < 0 ? 1.0f : 0.0f;
    exactf_parts e = exactf_exp_parts(neg > 0 ? v : -v, neg > 0 ? vlo : -vlo);
    // 1 / (1 + e^-v) for v >= 0, e^v / (1 + e^v) below, both as num / (den + denlo); the powers of two of the
    // latter's numerator come last, so that no denormal is multiplied up again.
    float num = neg > 0 ? e.p : 1.0f, numlo = neg > 0 ? e.plo : 0.0f;
    float s1 = neg > 0 ? e.s1 : 1.0f, s2 = neg > 0 ? e.s2 : 1.0f;
    float ex = e.p * e.s1 * e.s2;
    float den = 1.0f + ex;
    float denlo = __builtin_fmaf(e.plo * e.s1, e.s2, ex - (den - 1.0f));
    // The quotient, then one correction by what it leaves of the numerator.
    float inv = 1.0f / den;
    float y = num * inv;
    float rest = __builtin_fmaf(-y, denlo, __builtin_fmaf(-y, den, num) + numlo);
    y = __builtin_fmaf(rest, inv, y);
    return x * y * s1 * s2;
}

/* 1 / (1 + e^-x) */
DEV float exactf_sigmoid(float x) {
    return exactf_gate(1.0f, x, 0.0f);
}

/* x / (1 + e^-x); also called swish. */
DEV float exactf_silu(float x) {
    x = x < -110.0f ? -110.0f : x;
    return exactf_gate(x, x, 0.0f);
}

/* The tanh form: x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) = x sigmoid(x (c1 + c2 x^2)), the argument in
 * two floats. */
DEV float exactf_gelu(float x) {
    x = x < -11.0f ? -11.0f : x;
    float y = x > 11.0f ? 11.0f : x;
    float sq = y * y, sqlo = __builtin_fmaf(y, y, -sq);
    float a = 0x1.2444f2p-4f * sq;
    float alo = __builtin_fmaf(0x1.2444f2p-4f, sq, -a);
    alo = __builtin_fmaf(0x1.2444f2p-4f, sqlo, alo);
    alo = __builtin_fmaf(0x1.49b16ap-29f, sq, alo);
    // t + tlo = c1 + a + alo: the error of the first sum is kept
    float t = 0x1.988454p+0f + a;
    float back = t - 0x1.988454p+0f;
    float tlo = ((0x1.988454p+0f - (t - back)) + (a - back)) + (alo - 0x1.857936p-25f);
    float v = y * t;
    float vlo = __builtin_fmaf(y, tlo, __builtin_fmaf(y, t, -v));
    return exactf_gate(x, v, vlo);
}

DEV float exactf_tanh(float x) {
    float ax = bits_f32(f32_bits(x) & 0x7FFFFFFFu);
    // Near 0: x + x z q(z).
    float z = ax * ax;
    float q = -0x1.750ce4p-8f;
    q = __builtin_fmaf(q, z, 0x1.51f8cep-6f);
    q = __builtin_fmaf(q, z, -0x1.b835a4p-5f);
    q = __builtin_fmaf(q, z, 0x1.1106f6p-3f);
    q = __builtin_fmaf(q, z, -0x1.555532p-2f);
    float near = __builtin_fmaf(ax * z, q, ax);
    // Elsewhere: 1 - 2 / (e^2x + 1).
    exactf_parts e = exactf_exp_parts(2.0f * ax, 0.0f);
    float far = 1.0f - 2.0f / (e.p * e.s1 * e.s2 + 1.0f);
    float y = ax < 0.625f ? near : far;
    return bits_f32(f32_bits(y) | (f32_bits(x) & 0x80000000u));
}

/* log(1 + e^x) */
DEV float exactf_softplus(float x) {
    float ax = bits_f32(f32_bits(x) & 0x7FFFFFFFu);
    exactf_parts e = exactf_exp_parts(-ax, 0.0f);
    return (x > 0 ? x : 0.0f) + exactf_log1p_core(e.p * e.s1 * e.s2, 0.0f);
}

/* ---- f64, for tables made once (rope): on the host and on devices ---- */

/* e^x, at most 1 ulp. Above 709.79 infinity, below -745.14 zero. Taylor coefficients 1 / k!, rounded. */
DEV double exactd_exp(double x) {
    x = x < -760.0 ? -760.0 : x;
    x = x > 710.0 ? 710.0 : x;
    double t = __builtin_fma(x, 0x1.71547652b82fep+0, 0x1.8p+52);
    double n = t - 0x1.8p+52;
    uint64_t ni = f64_bits(t) - 0x4338000000000000u;
    double hi = __builtin_fma(n, -0x1.62e42fefa3p-1, x);
    double lo = n * -0x1.3de6af278ece6p-42;
    double r = hi + lo;
    double q = 1.0 / 6227020800.0;
    q = __builtin_fma(q, r, 1.0 / 479001600.0);
    q = __builtin_fma(q, r, 1.0 / 39916800.0);
    q = __builtin_fma(q, r, 1.0 / 3628800.0);
    q = __builtin_fma(q, r, 1.0 / 362880.0);
    q = __builtin_fma(q, r, 1.0 / 40320.0);
    q = __builtin_fma(q, r, 1.0 / 5040.0);
    q = __builtin_fma(q, r, 1.0 / 720.0);
    q = __builtin_fma(q, r, 1.0 / 120.0);
    q = __builtin_fma(q, r, 1.0 / 24.0);
    q = __builtin_fma(q, r, 1.0 / 6.0);
    q = __builtin_fma(q, r, 0.5);
    q = __builtin_fma(q, r * r, lo);
    uint64_t n1 = (ni + 2048) / 2 - 1024, n2 = ni - n1;
    return (1.0 + (hi + q)) * bits_f64((n1 + 1023) << 52) * bits_f64((n2 + 1023) << 52);
}

/* Natural logarithm of a normal x > 0, at most 1 ulp. Coefficients 2 / (2 k + 1), rounded. */
DEV double exactd_log(double x) {
    uint64_t u = f64_bits(x) - 0x3FE6A09E667F3BCDu;
    uint64_t ki = (u + 0x4000000000000000u) / 0x10000000000000u - 1024;
    double f = bits_f64(f64_bits(x) - (ki << 52)) - 1.0, k = (double)(int64_t)ki;
    double s = f / (2.0 + f), z = s * s;
    double q = 2.0 / 23.0;
    q = __builtin_fma(q, z, 2.0 / 21.0);
    q = __builtin_fma(q, z, 2.0 / 19.0);
    q = __builtin_fma(q, z, 2.0 / 17.0);
    q = __builtin_fma(q, z, 2.0 / 15.0);
    q = __builtin_fma(q, z, 2.0 / 13.0);
    q = __builtin_fma(q, z, 2.0 / 11.0);
    q = __builtin_fma(q, z, 2.0 / 9.0);
    q = __builtin_fma(q, z, 2.0 / 7.0);
    q = __builtin_fma(q, z, 2.0 / 5.0);
    q = __builtin_fma(q, z, 2.0 / 3.0);
    double h = 0.5 * f * f;
    double b = __builtin_fma(s, __builtin_fma(z, q, h), k * 0x1.3de6af278ece6p-42);
    return __builtin_fma(k, 0x1.62e42fefa3p-1, f - (h - b));
}

/* b^y = e^(y log b) for a normal b > 0. The relative error grows with |y log b| (about 2^-53 times it). */
DEV double exactd_pow(double b, double y) {
    return exactd_exp(y * exactd_log(b));
}

typedef struct exactd_sc {
    double sin, cos;
} exactd_sc;

/* Sine and cosine of |x| <= 1e7 rad, each within 2^-53 of the true value plus half a unit of the last place.
 * The angle is reduced by multiples of pi/2 kept as 30 + 29 + 53 bits: a multiple below 2^23 times either of
 * the first two is exact. Taylor coefficients 1 / k!, rounded. */
DEV exactd_sc exactd_sincos(double x) {
    double t = __builtin_fma(x, 0x1.45f306dc9c883p-1, 0x1.8p+52);
    double n = t - 0x1.8p+52;
    uint64_t quadrant = f64_bits(t) & 3;
    double r = __builtin_fma(n, -0x1.921fb54p+0, x);
    r = __builtin_fma(n, -0x1.10b46118p-30, r);
    r = __builtin_fma(n, -0x1.313198a2e037p-61, r);
    double z = r * r;
    double a = 1.0 / 355687428096000.0;
    a = __builtin_fma(a, z, -1.0 / 1307674368000.0);
    a = __builtin_fma(a, z, 1.0 / 6227020800.0);
    a = __builtin_fma(a, z, -1.0 / 39916800.0);
    a = __builtin_fma(a, z, 1.0 / 362880.0);
    a = __builtin_fma(a, z, -1.0 / 5040.0);
    a = __builtin_fma(a, z, 1.0 / 120.0);
    a = __builtin_fma(a, z, -1.0 / 6.0);
    double s = __builtin_fma(r * z, a, r);
    double b = 1.0 / 20922789888000.0;
    b = __builtin_fma(b, z, -1.0 / 87178291200.0);
    b = __builtin_fma(b, z, 1.0 / 479001600.0);
    b = __builtin_fma(b, z, -1.0 / 3628800.0);
    b = __builtin_fma(b, z, 1.0 / 40320.0);
    b = __builtin_fma(b, z, -1.0 / 720.0);
    b = __builtin_fma(b, z, 1.0 / 24.0);
    double h = 0.5 * z, w = 1.0 - h;
    double c = w + __builtin_fma(z * z, b, (1.0 - w) - h);
    exactd_sc o;
    double u = quadrant & 1 ? c : s, v = quadrant & 1 ? s : c;
    o.sin = quadrant & 2 ? -u : u;
    o.cos = (quadrant + 1) & 2 ? -v : v;
    return o;
}
#endif
