/* Kernels of the recurrent mixers, on the vectors of cpu_vec.h: docs/ARITHMETIC.md rule 7, ref_delta.c. */
#ifndef MICA_CPU_DELTA_KERN_H
#define MICA_CPU_DELTA_KERN_H

#include "dev/cpu_row.h"

/* Channels [0, n) of one row; x[j] is the input of tap j, oldest first, or NULL before position 0. */
static void row_conv(float *y, const float *const *x, const float *w, uint32_t n_tap, uint32_t n) {
    for (uint32_t c = 0; c < n; c += VW) {
        uint32_t k = n - c < VW ? n - c : VW;
        float t[VW] = {0};
        for (uint32_t j = 0; j < n_tap; j++) {
            for (uint32_t i = 0; i < k; i++) t[i] = fmaf(w[(size_t)(c + i) * n_tap + j], x[j] ? x[j][c + i] : 0.0f, t[i]);
        }
        v_store(t, v_silu(v_load(t)));
        memcpy(y + c, t, k * sizeof(float));
    }
}

/* x = x / sqrt(sum of squares + 1e-6) (* scale when it is not 1) */
static void row_l2(float *x, uint32_t n, float scale) {
    float r = 1.0f / sqrtf(sum_squares(x, n) + 1e-6f);
    row_scale(x, r, n);
    if (scale != 1.0f) row_scale(x, scale, n);
}

/* One head and row. A strip of VW columns goes through all of d_k twice: first for the old state's answer to k, then to
 * advance it and answer q; the strip is still in L1 the second time. */
static void delta_step(float *s, const delta_row_args *a) {
    vf g = v_set(a->g), beta = v_set(a->beta);
    for (uint32_t c = 0; c < a->d_v; c += VW) {
        uint32_t k = a->d_v - c < VW ? a->d_v - c : VW;
        vf p[4] = {v_zero(), v_zero(), v_zero(), v_zero()}, o[4] = {v_zero(), v_zero(), v_zero(), v_zero()};
        for (uint32_t i = 0; i < a->d_k; i++) {
            vf t = v_mul(v_load_n(s + (size_t)i * a->d_v + c, k), g);
            p[i & 3] = v_fma(t, v_set(a->k[i]), p[i & 3]);
        }
        vf kv = v_add(v_add(p[0], p[1]), v_add(p[2], p[3]));
        vf delta = v_mul(v_sub(v_load_n(a->v + c, k), kv), beta);
        v_store_n(a->delta + c, delta, k);
        for (uint32_t i = 0; i < a->d_k; i++) {
            float *at = s + (size_t)i * a->d_v + c;
            vf t = v_fma(v_set(a->k[i]), delta, v_mul(v_load_n(at, k), g));
            v_store_n(at, t, k);
            o[i & 3] = v_fma(t, v_set(a->q[i]), o[i & 3]);
        }
        v_store_n(a->o + c, v_add(v_add(o[0], o[1]), v_add(o[2], o[3])), k);
    }
}

/* S = S g + k delta^T */
static void delta_advance(float *s, const float *k, float g, const float *delta, uint32_t d_k, uint32_t d_v) {
    for (uint32_t i = 0; i < d_k; i++) {
        for (uint32_t c = 0; c < d_v; c += VW) {
            uint32_t n = d_v - c < VW ? d_v - c : VW;
            float *at = s + (size_t)i * d_v + c;
            vf t = v_fma(v_set(k[i]), v_load_n(delta + c, n), v_mul(v_load_n(at, n), v_set(g)));
            v_store_n(at, t, n);
        }
    }
}

/* y = RMS(o) w, times silu(z) or sigmoid(z) */
static void row_gate_norm(float *y, const float *o, const float *z, const gate_norm_args *a) {
    row_rms(y, o, a->w, a->n_col, a->eps);
    for (uint32_t i = 0; i < a->n_col; i += VW) {
        uint32_t k = a->n_col - i < VW ? a->n_col - i : VW;
        vf t = v_load_n(z + i, k);
        v_store_n(y + i, v_mul(v_load_n(y + i, k), a->sigmoid ? v_sigmoid(t) : v_silu(t)), k);
    }
}

#endif
