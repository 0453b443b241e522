/* Recurrent mixers, defined: docs/ARITHMETIC.md rule 7. */
#include "dev/dev_ref.h"
#include "dev/ref_math.h"

#include <string.h>

/* Input of channel c at position p of the run's sequence: from the batch when the run holds it, else from the
 * ring. */
static float conv_input(const conv_args *a, const row_run *run, int32_t p, uint32_t c) {
    if (p < 0) return 0.0f;
    int32_t first = a->rows[run->row0].pos;
    if (p >= first) return a->u[((size_t)run->row0 + (uint32_t)(p - first)) * a->n_col + c];
    return a
        ->ring[(uint64_t)(uint32_t)run->seq * a->ld_seq + (size_t)((uint32_t)p % CONV_RING) * a->n_col + c];
}

static void conv_row(const conv_args *a, const row_run *run, uint32_t r) {
    for (uint32_t c = 0; c < a->n_col; c++) {
        float y = 0.0f;
        for (uint32_t j = 0; j < a->n_tap; j++) {
            int32_t p = a->rows[r].pos - (int32_t)((a->n_tap - 1 - j) * a->step);
            y = fmaf(a->w[(size_t)c * a->n_tap + j], conv_input(a, run, p, c), y);
        }
        a->y[(size_t)r * a->n_col + c] = exactf_silu(y);
    }
}

mica_status ref_conv(dev *d, const conv_args *a, mica_error *err) {
    (void)d, (void)err;
    for (uint32_t i = 0; i < a->n_run; i++) {
        const row_run *run = &a->runs[i];
        float *ring = a->ring + (uint64_t)(uint32_t)run->seq * a->ld_seq;
        for (uint32_t r = run->row0; r < run->row0 + run->n_row; r++) conv_row(a, run, r);
        for (uint32_t r = run->row0; r < run->row0 + run->n_row; r++) {
            size_t slot = (uint32_t)a->rows[r].pos % CONV_RING;
            memcpy(ring + slot * a->n_col, a->u + (size_t)r * a->n_col, a->n_col * sizeof(float));
        }
    }
    return MICA_OK;
}

static void l2_normalise(float *x, uint32_t n, float scale) {
    float r = 1.0f / sqrtf(ref_sum_squares(x, n) + 1e-6f);
    for (uint32_t i = 0; i < n; i++) x[i] = scale == 1.0f ? x[i] * r : (x[i] * r) * scale;
}

/* Four partial sums of S[.][c] * x[.]. */
static float column_dot(const float *s, const float *x, uint32_t d_k, uint32_t d_v, uint32_t c) {
    float p[4] = {0};
    for (uint32_t i = 0; i < d_k; i++) p[i % 4] = fmaf(s[(size_t)i * d_v + c], x[i], p[i % 4]);
    return (p[0] + p[1]) + (p[2] + p[3]);
}

/* S = S g + k delta^T */
static void advance(float *s, const float *k, float g, const float *delta, const delta_args *a) {
    for (uint32_t i = 0; i < a->d_k; i++) {
        for (uint32_t c = 0; c < a->d_v; c++) {
            float *at = s + (size_t)i * a->d_v + c;
            *at = fmaf(k[i], delta[c], *at * g);
        }
    }
}

typedef struct log_row {
    float *k, *g, *delta; // [n_k, d_k], [n_v], [n_v, d_v]
} log_row;

static log_row log_at(const delta_args *a, float *state, uint32_t bank, uint32_t i) {
    uint64_t n_row = delta_log_row(a->n_k, a->n_v, a->d_k, a->d_v);
    float *p = state + (uint64_t)a->n_v * a->d_k * a->d_v + ((uint64_t)bank * WINDOW_MAX + i) * n_row;
    return (log_row){p, p + (size_t)a->n_k * a->d_k, p + (size_t)a->n_k * a->d_k + a->n_v};
}

/* One row of one head: delta into `delta`, S advanced, o read from it. */
static void delta_row(const delta_args *a, float *s, uint32_t r, uint32_t h, float *g_out, float *delta) {
    uint32_t n_key = a->n_k * a->d_k;
    const float *q = a->qkv + (size_t)r * (2 * n_key + a->n_v * a->d_v) + (size_t)(h % a->n_k) * a->d_k;
    const float *k = q + n_key, *v = q - (size_t)(h % a->n_k) * a->d_k + 2 * n_key + (size_t)h * a->d_v;
    float beta = exactf_sigmoid(a->beta[(size_t)r * a->n_v + h]);
    float g = exactf_exp(a->a[h] * exactf_softplus(a->alpha[(size_t)r * a->n_v + h] + a->dt_bias[h]));
    for (size_t i = 0; i < (size_t)a->d_k * a->d_v; i++) s[i] = s[i] * g;
    for (uint32_t c = 0; c < a->d_v; c++) delta[c] = (v[c] - column_dot(s, k, a->d_k, a->d_v, c)) * beta;
    for (uint32_t i = 0; i < a->d_k; i++) {
        for (uint32_t c = 0; c < a->d_v; c++)
            s[(size_t)i * a->d_v + c] = fmaf(k[i], delta[c], s[(size_t)i * a->d_v + c]);
    }
    float *o = a->o + ((size_t)r * a->n_v + h) * a->d_v;
    for (uint32_t c = 0; c < a->d_v; c++) o[c] = column_dot(s, q, a->d_k, a->d_v, c);
    *g_out = g;
}

static void delta_run(ref_dev *d, const delta_args *a, const row_run *run, uint32_t h) {
    float *state = a->state + (uint64_t)(uint32_t)run->seq * a->ld_seq,
          *s = state + (size_t)h * a->d_k * a->d_v;
    float *delta = d->scratch, *work = d->scratch + a->d_v, g;
    uint32_t ik = h % a->n_k;
    for (uint32_t i = 0; i < run->n_commit; i++) {
        log_row l = log_at(a, state, run->bank ^ 1u, i);
        advance(s, l.k + (size_t)ik * a->d_k, l.g[h], l.delta + (size_t)h * a->d_v, a);
    }
    if (run->window) s = memcpy(work, s, (size_t)a->d_k * a->d_v * sizeof(float));
    for (uint32_t i = 0; i < run->n_row; i++) {
        delta_row(a, s, run->row0 + i, h, &g, delta);
        if (!run->window) continue;
        log_row l = log_at(a, state, run->bank, i);
        const float *k = a->qkv + (size_t)(run->row0 + i) * (2 * a->n_k * a->d_k + a->n_v * a->d_v) +
                         (a->n_k + ik) * a->d_k;
        memcpy(l.k + (size_t)ik * a->d_k, k, a->d_k * sizeof(float));
        memcpy(l.delta + (size_t)h * a->d_v, delta, a->d_v * sizeof(float));
        l.g[h] = g;
    }
}

mica_status ref_delta(dev *d, const delta_args *a, mica_error *err) {
    (void)err;
    float scale = 1.0f / sqrtf((float)a->d_k);
    for (uint32_t r = 0; r < a->n_row; r++) {
        float *q = a->qkv + (size_t)r * (2 * a->n_k * a->d_k + a->n_v * a->d_v);
        for (uint32_t ih = 0; ih < a->n_k; ih++) l2_normalise(q + (size_t)ih * a->d_k, a->d_k, scale);
        for (uint32_t ih = 0; ih < a->n_k; ih++)
            l2_normalise(q + (size_t)(a->n_k + ih) * a->d_k, a->d_k, 1.0f);
    }
    for (uint32_t i = 0; i < a->n_run; i++) {
        for (uint32_t h = 0; h < a->n_v; h++) delta_run((ref_dev *)d, a, &a->runs[i], h);
    }
    return MICA_OK;
}

mica_status ref_gate_norm(dev *d, const gate_norm_args *a, mica_error *err) {
    (void)err;
    for (uint32_t r = 0; r < a->n_row; r++) {
        for (uint32_t g = 0; g < a->n_group; g++) {
            size_t at = ((size_t)r * a->n_group + g) * a->n_col;
            float *y = act_x(&a->y, r) + (size_t)g * a->n_col;
            ref_rms(y, a->o + at, a->w, a->n_col, a->eps);
            for (uint32_t i = 0; i < a->n_col; i++) {
                float z = a->z[at + i];
                y[i] = y[i] * (a->sigmoid ? exactf_sigmoid(z) : exactf_silu(z));
            }
        }
    }
    if (a->want_q) ref_quantise((ref_dev *)d, &a->y, a->n_row, a->n_group * a->n_col, "delta rule");
    return MICA_OK;
}

mica_status ref_gated_add(dev *d, const gated_add_args *a, mica_error *err) {
    (void)d, (void)err;
    for (uint32_t r = 0; r < a->n_row; r++) {
        float g = exactf_sigmoid(a->g[r]);
        for (uint32_t i = 0; i < a->n_col; i++) {
            float *y = &a->y[(size_t)r * a->n_col + i];
            *y = fmaf(g, a->x[(size_t)r * a->n_col + i], *y);
        }
    }
    return MICA_OK;
}
