/* Streams, index keys and n-gram gates (docs/ARITHMETIC.md rules 13 to 15) on the vectors of cpu_vec.h. */
#ifndef MICA_CPU_HYPER_KERN_H
#define MICA_CPU_HYPER_KERN_H

#include "dev/cpu_exactf.h"
#include "dev/cpu_fns.h"

static void row_silu(float *h, const float *x, float div, uint32_t n) {
    for (uint32_t i = 0; i < n; i += VW) {
        uint32_t m = n - i < VW ? n - i : VW;
        v_store_n(h + i, v_silu(v_div(v_load_n(x + i, m), v_set(div))), m);
    }
}

static void row_add2(float *x, const float *a, const float *b, uint32_t n) {
    for (uint32_t i = 0; i < n; i += VW) {
        uint32_t m = n - i < VW ? n - i : VW;
        v_store_n(x + i, v_add(v_load_n(x + i, m), v_add(v_load_n(a + i, m), v_load_n(b + i, m))), m);
    }
}

static void hyper_read(float *y, const float *xn, const float *gate, uint32_t ld, uint32_t n_stream,
                       uint32_t n) {
    for (uint32_t i = 0; i < n; i += VW) {
        uint32_t m = n - i < VW ? n - i : VW;
        vf t = v_zero();
        for (uint32_t s = 0; s < n_stream; s++) {
            size_t at = (size_t)s * ld + i;
            t = v_fma(v_sigmoid(v_load_n(gate + at, m)), v_load_n(xn + at, m), t);
        }
        v_store_n(y + i, v_div(t, v_set((float)n_stream)), m);
    }
}

/* Rule 8's 64 partial sums of x * y. */
static float row_dot64(const float *x, const float *y, uint32_t n) {
    vf acc[V_SUM];
    UNROLL for (int j = 0; j < V_SUM; j++) acc[j] = v_zero();
    uint32_t i = 0;
    for (; i + 64 <= n; i += 64) {
        UNROLL for (uint32_t j = 0; j < V_SUM; j++) acc[j] =
            v_fma(v_load(x + i + j * VW), v_load(y + i + j * VW), acc[j]);
    }
    for (uint32_t j = 0; i < n; i += VW, j++) {
        uint32_t m = n - i < VW ? n - i : VW;
        acc[j] = v_fma(v_load_n(x + i, m), v_load_n(y + i, m), acc[j]);
    }
    return v_tree64(acc);
}

enum { INDEX_STEP = VW / 8 }; // keys whose sums make one v_red4

/* The dots (rule 6) of one query and VW keys, a lane each. */
INLINE vf index_dots(const float *q, const float *const *key, uint32_t d) {
    vf t[8];
    for (uint32_t k = 0; k < 8; k++) {
        vf acc[4];
        UNROLL for (uint32_t x = 0; x < 4; x++) acc[x] = v_zero();
        uint32_t i = 0;
        for (; i + 32 <= d; i += 32) {
            UNROLL for (uint32_t x = 0; x < 4; x++) {
                uint32_t j = i + x % V_DOT * VW;
                acc[x] = v_fma(v_load(q + j), v_load(key[k * INDEX_STEP + x / V_DOT] + j), acc[x]);
            }
        }
        for (uint32_t x = 0; i < d && x < 4; x++) {
            uint32_t j = i + x % V_DOT * VW;
            if (j >= d) continue;
            uint32_t m = d - j < VW ? d - j : VW;
            acc[x] = v_fma(v_load_n(q + j, m), v_load_n(key[k * INDEX_STEP + x / V_DOT] + j, m), acc[x]);
        }
        t[k] = v_red4(acc[0], acc[1], acc[2], acc[3]);
    }
    return v_fold8(t);
}

static void index_scores(float *score, const float *q, const float *keys, uint32_t n, uint32_t n_head,
                         uint32_t d) {
    for (uint32_t b = 0; b < n; b += VW) {
        uint32_t m = n - b < VW ? n - b : VW;
        const float *key[VW];
        for (uint32_t k = 0; k < VW; k++) key[k] = keys + (size_t)(b + (k < m ? k : m - 1)) * d;
        vf s = v_zero();
        for (uint32_t ih = 0; ih < n_head; ih++)
            s = v_add(s, v_max(index_dots(q + (size_t)ih * d, key, d), v_zero()));
        v_store_n(score + b, s, m);
    }
}

#endif
