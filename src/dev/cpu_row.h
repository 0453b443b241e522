/* Kernels over one row, on the vectors of cpu_vec.h: norms, rope, the cache, activations, selection.
 * dev_ref.c says in which order; where that leaves no sum (one value at a time), any number of lanes gives
 * its bits. */
#ifndef MICA_CPU_ROW_H
#define MICA_CPU_ROW_H

#include "dev/cpu_exactf.h"
#include "dev/cpu_fns.h"

#include <string.h>

/* Rule 8: 64 partial sums. */
static inline float sum_squares(const float *x, uint32_t n) {
    vf acc[V_SUM];
    UNROLL for (int j = 0; j < V_SUM; j++) acc[j] = v_zero();
    uint32_t i = 0;
    for (; i + 64 <= n; i += 64) {
        UNROLL for (uint32_t j = 0; j < V_SUM; j++) {
            vf a = v_load(x + i + j * VW);
            acc[j] = v_fma(a, a, acc[j]);
        }
    }
    for (uint32_t j = 0; i < n; i += VW, j++) {
        vf a = v_load_n(x + i, n - i < VW ? n - i : VW);
        acc[j] = v_fma(a, a, acc[j]);
    }
    return v_tree64(acc);
}

static inline float rms_factor(const float *x, uint32_t n, float eps) {
    return 1.0f / sqrtf(sum_squares(x, n) / (float)n + eps);
}

static void row_rms(float *y, const float *x, const float *w, uint32_t n, float eps) {
    float r = rms_factor(x, n, eps);
    vf vr = v_set(r);
    uint32_t i = 0;
    for (; i + VW <= n; i += VW) {
        vf t = v_mul(v_load(x + i), vr);
        v_store(y + i, w ? v_mul(t, v_load(w + i)) : t);
    }
    for (; i < n; i++) y[i] = w ? (x[i] * r) * w[i] : x[i] * r;
}

static void row_add_rms(float *x, const float *y, const float *w, uint32_t n, float eps) {
    float r = rms_factor(y, n, eps);
    vf vr = v_set(r);
    uint32_t i = 0;
    for (; i + VW <= n; i += VW) {
        vf t = v_mul(v_mul(v_load(y + i), vr), v_load(w + i));
        v_store(x + i, v_add(v_load(x + i), t));
    }
    for (; i < n; i++) x[i] = x[i] + (y[i] * r) * w[i];
}

/* y = x / sqrt(sum(x^2) + 1e-6), then * scale unless that is 1; in place. */
static void row_l2(float *x, uint32_t n, float scale) {
    float r = 1.0f / sqrtf(sum_squares(x, n) + 1e-6f);
    for (uint32_t i = 0; i < n; i += VW) {
        uint32_t m = n - i < VW ? n - i : VW;
        vf t = v_mul(v_load_n(x + i, m), v_set(r));
        v_store_n(x + i, scale == 1.0f ? t : v_mul(t, v_set(scale)), m);
    }
}

static void row_scale(float *x, float s, size_t n) {
    size_t i = 0;
    for (; i + VW <= n; i += VW) v_store(x + i, v_mul(v_load(x + i), v_set(s)));
    for (; i < n; i++) x[i] = x[i] * s;
}

static void row_finish(float *y, const float *v, const float *scale, const float *bias, uint32_t n,
                       bool add) {
    uint32_t i = 0;
    for (; i + VW <= n; i += VW) {
        vf t = v_load(v + i);
        if (scale) t = v_mul(t, v_set(scale[0]));
        if (bias) t = v_add(t, v_load(bias + i));
        v_store(y + i, add ? v_add(v_load(y + i), t) : t);
    }
    for (; i < n; i++) {
        float t = v[i];
        if (scale) t = t * scale[0];
        if (bias) t = t + bias[i];
        y[i] = add ? y[i] + t : t;
    }
}

static void row_axpy(float *y, float a, const float *x, uint32_t n) {
    uint32_t i = 0;
    for (; i + VW <= n; i += VW) v_store(y + i, v_fma(v_set(a), v_load(x + i), v_load(y + i)));
    for (; i < n; i++) y[i] = fmaf(a, x[i], y[i]);
}

/* x - x is 0 for every finite x and NaN for the rest, and a NaN stays one in a sum. */
static bool row_finite(const float *x, uint32_t n) {
    vf t = v_zero();
    uint32_t i = 0;
    for (; i + VW <= n; i += VW) {
        vf a = v_load(x + i);
        t = v_add(t, v_sub(a, a));
    }
    if (i < n) {
        vf a = v_load_n(x + i, n - i);
        t = v_add(t, v_sub(a, a));
    }
    return v_bits(v_eq(t, v_zero())) == (1u << VW) - 1;
}

/* ---- rope ------------------------------------------------------------------------------------- */

/* (a, b) -> (a c - b s, a s + b c): even lanes fma(a, c, b * -s), odd lanes fma(a, s, b c); the table is (c,
 * s) already. */
static inline void rotate_pairs(float *x, const float *cs, uint32_t n_rot) {
    uint32_t i = 0;
    for (; i + VW <= n_rot; i += VW) {
        vf v = v_load(x + i), t = v_load(cs + i), u = v_neg_even(v_pair_swap(t));
        v_store(x + i, v_fma(v_pair_even(v), t, v_mul(v_pair_odd(v), u)));
    }
    for (; i < n_rot; i += 2) {
        float a = x[i], b = x[i + 1], c = cs[i], s = cs[i + 1];
        x[i] = fmaf(a, c, -(b * s));
        x[i + 1] = fmaf(a, s, b * c);
    }
}

static inline void rotate_halves(float *x, const float *cs, uint32_t half) {
    uint32_t i = 0;
    for (; i + VW <= half; i += VW) {
        vf a = v_load(x + i), b = v_load(x + half + i), c, s;
        v_unzip(&c, &s, cs + 2 * i);
        v_store(x + i, v_fma(a, c, v_mul(v_neg(b), s)));
        v_store(x + half + i, v_fma(a, s, v_mul(b, c)));
    }
    for (; i < half; i++) {
        float a = x[i], b = x[half + i], c = cs[2 * i], s = cs[2 * i + 1];
        x[i] = fmaf(a, c, -(b * s));
        x[half + i] = fmaf(a, s, b * c);
    }
}

static void row_rotate(float *x, const float *cs, uint32_t n_rot, rope_kind kind) {
    if (kind == ROPE_NORM)
        rotate_pairs(x, cs, n_rot / 2 * 2);
    else
        rotate_halves(x, cs, n_rot / 2);
}

/* ---- the cache -------------------------------------------------------------------------------- */

#define F16_MAX 65504.0f

static inline void store_f16(uint16_t *dst, const float *x, uint32_t n) {
    uint32_t i = 0;
    for (; i + VW <= n; i += VW) {
        v_to_f16(dst + i, v_max(v_set(-F16_MAX), v_min(v_set(F16_MAX), v_load(x + i))));
    }
    for (; i < n; i++) dst[i] = f32_to_f16(x[i] > F16_MAX ? F16_MAX : x[i] < -F16_MAX ? -F16_MAX : x[i]);
}

static inline void store_i8(int8_t *dst, float *scale, const float *x, uint32_t n) {
    vf top = v_zero();
    uint32_t i = 0;
    for (; i + VW <= n; i += VW) top = v_max(v_abs(v_load(x + i)), top);
    if (i < n) top = v_max(v_abs(v_load_n(x + i, n - i)), top);
    float d = v_hmax(top) / 127.0f;
    if (d < 0x1p-126f) d = 0.0f;
    float inv = d > 0.0f ? 1.0f / d : 0.0f;
    for (i = 0; i + VW <= n; i += VW) {
        vf q = v_rint(v_mul(v_load(x + i), v_set(inv)));
        v_to_i8(dst + i, v_max(v_min(q, v_set(127.0f)), v_set(-127.0f)));
    }
    for (; i < n; i++) {
        float q = rintf(x[i] * inv);
        dst[i] = (int8_t)(q > 127.0f ? 127.0f : q > -127.0f ? q : -127.0f);
    }
    scale[0] = d;
}

static void row_kv_store(void *dst, float *scale, const float *x, uint32_t n, kv_type type) {
    if (type == KV_F32)
        memcpy(dst, x, n * sizeof(float));
    else if (type == KV_F16)
        store_f16(dst, x, n);
    else
        store_i8(dst, scale, x, n);
}

/* ---- activations ------------------------------------------------------------------------------ */

static void row_glu(float *h, const float *gate, const float *up, uint32_t n, glu_kind kind) {
    uint32_t i = 0;
    if (kind == GLU_SILU) {
        for (; i + VW <= n; i += VW) v_store(h + i, v_mul(v_silu(v_load(gate + i)), v_load(up + i)));
    } else {
        for (; i + VW <= n; i += VW) v_store(h + i, v_mul(v_gelu(v_load(gate + i)), v_load(up + i)));
    }
    for (; i < n; i++) h[i] = (kind == GLU_SILU ? exactf_silu(gate[i]) : exactf_gelu(gate[i])) * up[i];
}

/* y *= sigmoid(z) or silu(z) */
static void row_gate(float *y, const float *z, uint32_t n, bool sigmoid) {
    for (uint32_t i = 0; i < n; i += VW) {
        uint32_t m = n - i < VW ? n - i : VW;
        vf v = v_load_n(z + i, m);
        v_store_n(y + i, v_mul(v_load_n(y + i, m), sigmoid ? v_sigmoid(v) : v_silu(v)), m);
    }
}

static void row_softcap(float *y, float cap, size_t n) {
    size_t i = 0;
    for (; i + VW <= n; i += VW) v_store(y + i, v_mul(v_set(cap), v_tanh(v_div(v_load(y + i), v_set(cap)))));
    for (; i < n; i++) y[i] = cap * exactf_tanh(y[i] / cap);
}

/* Once a step for each kind of rope: not worth vectors of doubles. */
static void row_sincos(float *cs, double pos, const double *inv_freq, uint32_t n_pair, float mscale) {
    for (uint32_t i = 0; i < n_pair; i++) {
        exactd_sc t = exactd_sincos(pos * inv_freq[i]);
        cs[2 * i] = (float)t.cos * mscale;
        cs[2 * i + 1] = (float)t.sin * mscale;
    }
}

/* ---- selection -------------------------------------------------------------------------------- */

/* The first index of the largest of l[0..n), all finite or -inf. */
static inline uint32_t arg_max(const float *l, uint32_t n) {
    vf top = v_set(-INFINITY);
    uint32_t i = 0;
    for (; i + VW <= n; i += VW) top = v_max(v_load(l + i), top);
    float m = v_hmax(top);
    for (; i < n; i++) m = l[i] > m ? l[i] : m;
    for (i = 0; i + VW <= n; i += VW) {
        uint32_t hit = v_bits(v_eq(v_load(l + i), v_set(m)));
        if (hit) return i + (uint32_t)__builtin_ctz(hit);
    }
    while (l[i] != m) i++;
    return i;
}

/* The definition's search, for rows with values that are not finite: comparisons with NaN make its order
 * matter. */
static inline uint32_t arg_max_slow(const float *l, const int32_t *ids, uint32_t k, uint32_t n) {
    int64_t best = -1;
    for (uint32_t e = 0; e < n; e++) {
        bool taken = false;
        for (uint32_t j = 0; j < k; j++) taken |= ids[j] == (int32_t)e;
        if (!taken && (best < 0 || l[e] > l[best])) best = e;
    }
    return (uint32_t)best;
}

static bool row_router(int32_t *ids, float *weights, const float *logits, const router_args *a, float *work) {
    bool all_finite = row_finite(logits, a->n_expert), ok = true;
    float sum = 0.0f;
    memcpy(work, logits, a->n_expert * sizeof(float));
    for (uint32_t k = 0; k < a->n_used; k++) {
        uint32_t e = all_finite ? arg_max(work, a->n_expert) : arg_max_slow(logits, ids, k, a->n_expert);
        ids[k] = (int32_t)e;
        work[e] = -INFINITY;
        weights[k] = exactf_exp(logits[e] - logits[ids[0]]);
        sum = sum + weights[k];
        ok &= logits[e] - logits[e] == 0.0f;
    }
    for (uint32_t k = 0; k < a->n_used; k++) {
        weights[k] = weights[k] / sum;
        if (a->scale != 0.0f && a->scale != 1.0f) weights[k] = weights[k] * a->scale;
    }
    return ok;
}
#endif
