/* The recurrent mixers (docs/ARITHMETIC.md rule 7) on the vectors of cpu_vec.h: a lane is a channel of the
 * convolution, or a column of the delta rule's state. Columns never meet, so a lane's sums are the
 * definition's.
 *
 * A row of the delta rule reads the state twice (what it remembers of k, then o after the update) and writes
 * it once. Here the second reading of one row is the first of the next: one pass a row, over columns that lie
 * side by side in L1. */
#ifndef MICA_CPU_DELTA_KERN_H
#define MICA_CPU_DELTA_KERN_H

#include "dev/cpu_exactf.h"
#include "dev/cpu_fns.h"

/* wt[j * n + c] = w[c * n_tap + j] */
static void conv_taps(float *wt, const float *w, uint32_t n, uint32_t n_tap) {
    uint32_t c = 0;
    for (; n_tap == 4 && c + VW <= n; c += VW) {
        vf even[2], odd[2], t[4];
        for (uint32_t h = 0; h < 2; h++) v_unzip(&even[h], &odd[h], w + 4 * (size_t)c + 2 * VW * h);
        v_unzip2(&t[0], &t[2], even[0], even[1]);
        v_unzip2(&t[1], &t[3], odd[0], odd[1]);
        for (uint32_t j = 0; j < 4; j++) v_store(wt + (size_t)j * n + c, t[j]);
    }
    for (; c < n; c++) {
        for (uint32_t j = 0; j < n_tap; j++) wt[(size_t)j * n + c] = w[(size_t)c * n_tap + j];
    }
}

static void conv_row(float *y, const float *const *u, const float *wt, uint32_t n, uint32_t n_tap) {
    for (uint32_t c = 0; c < n; c += VW) {
        uint32_t m = n - c < VW ? n - c : VW;
        vf t = v_zero();
        for (uint32_t j = 0; j < n_tap; j++) {
            vf x = u[j] ? v_load_n(u[j] + c, m) : v_zero();
            t = v_fma(v_load_n(wt + (size_t)j * n + c, m), x, t);
        }
        v_store_n(y + c, v_silu(t), m);
    }
}

/* S = S g + k delta^T on DELTA_COLS columns. */
static void delta_advance(float *s, const float *k, float g, const float *delta, uint32_t d_k) {
    for (uint32_t x = 0; x < DELTA_COLS; x += VW) {
        vf d = v_load(delta + x);
        for (uint32_t i = 0; i < d_k; i++) {
            float *at = s + (size_t)i * DELTA_COLS + x;
            v_store(at, v_fma(v_set(k[i]), d, v_mul(v_load(at), v_set(g))));
        }
    }
}

INLINE vf delta_sum(const vf p[4]) {
    return v_add(v_add(p[0], p[1]), v_add(p[2], p[3]));
}

/* What columns x .. x + VW of S g remember of k. */
INLINE vf delta_recall(const float *s, const float *k, float g, uint32_t d_k) {
    vf p[4];
    UNROLL for (uint32_t j = 0; j < 4; j++) p[j] = v_zero();
    uint32_t i = 0;
    for (; i + 4 <= d_k; i += 4) {
        UNROLL for (uint32_t j = 0; j < 4; j++) {
            p[j] = v_fma(v_mul(v_load(s + (size_t)(i + j) * DELTA_COLS), v_set(g)), v_set(k[i + j]), p[j]);
        }
    }
    for (; i < d_k; i++) {
        p[i % 4] = v_fma(v_mul(v_load(s + (size_t)i * DELTA_COLS), v_set(g)), v_set(k[i]), p[i % 4]);
    }
    return delta_sum(p);
}

typedef struct delta_pass {
    vf o, recall;
} delta_pass;

/* The pass of one row: S = S g + k delta^T, o = S^T q; and for the row after it (k1, g1) what S g1 remembers
 * of k1. */
INLINE delta_pass delta_step(float *s, const delta_row *a, const delta_row *b, vf delta, uint32_t d_k) {
    vf p[4], r[4];
    UNROLL for (uint32_t j = 0; j < 4; j++) p[j] = r[j] = v_zero();
    uint32_t i = 0;
    for (; i + 4 <= d_k; i += 4) {
        UNROLL for (uint32_t j = 0; j < 4; j++) {
            float *at = s + (size_t)(i + j) * DELTA_COLS;
            vf t = v_fma(v_set(a->k[i + j]), delta, v_mul(v_load(at), v_set(a->g)));
            v_store(at, t);
            p[j] = v_fma(t, v_set(a->q[i + j]), p[j]);
            r[j] = v_fma(v_mul(t, v_set(b->g)), v_set(b->k[i + j]), r[j]);
        }
    }
    for (; i < d_k; i++) {
        float *at = s + (size_t)i * DELTA_COLS;
        vf t = v_fma(v_set(a->k[i]), delta, v_mul(v_load(at), v_set(a->g)));
        v_store(at, t);
        p[i % 4] = v_fma(t, v_set(a->q[i]), p[i % 4]);
        r[i % 4] = v_fma(v_mul(t, v_set(b->g)), v_set(b->k[i]), r[i % 4]);
    }
    return (delta_pass){delta_sum(p), delta_sum(r)};
}

static void delta_rows(float *s, const delta_row *rows, uint32_t n_row, uint32_t d_k, delta_span g) {
    for (uint32_t x = 0; x < g.n_col && n_row > 0; x += VW) {
        uint32_t m = g.n_col - x < VW ? g.n_col - x : VW, at = g.col + x;
        vf recall = delta_recall(s + x, rows[0].k, rows[0].g, d_k);
        for (uint32_t r = 0; r < n_row; r++) {
            const delta_row *a = &rows[r], *b = r + 1 < n_row ? a + 1 : a;
            vf delta = v_mul(v_sub(v_load_n(a->v + at, m), recall), v_set(a->beta));
            if (a->delta) v_store_n(a->delta + at, delta, m);
            delta_pass t = delta_step(s + x, a, b, delta, d_k);
            v_store_n(a->o + at, t.o, m);
            recall = t.recall;
        }
    }
}
#endif
