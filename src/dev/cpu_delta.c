/* Recurrent mixers of the fast CPU device: convolution, delta rule, their output norm. The definition is ref_delta.c.
 *
 * The convolution is spread over rows, then (after a barrier, for the ring is read until then) the ring is brought up to
 * date. The delta rule is spread over (run, value head): a head's rows follow one another, heads do not meet. */
#include "dev/cpu_int.h"

#include "base/exactf.h"

#include <math.h>
#include <string.h>

/* ---- convolution ---- */

/* The run that holds row ir; runs are in row order. */
static const row_run *run_of(const row_run *runs, uint32_t n_run, uint32_t ir) {
    uint32_t i = 0;
    while (i + 1 < n_run && runs[i + 1].row0 <= ir) i++;
    return &runs[i];
}

static float *conv_ring(const conv_args *a, int32_t seq, uint32_t pos) {
    return a->ring + (uint64_t)(uint32_t)seq * a->ld_seq + (size_t)(pos % CONV_RING) * a->n_col;
}

typedef struct conv_job {
    const conv_args *a;
    uint32_t n_part, part; // a row is n_part parts of `part` channels
} conv_job;

static void conv_unit(cpu_dev *c, cpu_scratch *s, const void *job, uint32_t iu) {
    (void)s;
    const conv_job *j = job;
    const conv_args *a = j->a;
    uint32_t ir = iu / j->n_part, col = iu % j->n_part * j->part;
    uint32_t n = a->n_col - col < j->part ? a->n_col - col : j->part;
    const row_run *run = run_of(a->runs, a->n_run, ir);
    const float *x[8];
    for (uint32_t k = 0; k < a->n_tap; k++) {
        uint32_t back = a->n_tap - 1 - k;
        int32_t pos = a->rows[ir].pos - (int32_t)back;
        if (pos < 0) x[k] = NULL;
        else if (ir - run->row0 >= back) x[k] = a->u + (size_t)(ir - back) * a->n_col + col;
        else x[k] = conv_ring(a, run->seq, (uint32_t)pos) + col;
    }
    c->f->conv(a->y + (size_t)ir * a->n_col + col, x, a->w + (size_t)col * a->n_tap, a->n_tap, n);
}

static void ring_unit(cpu_dev *c, cpu_scratch *s, const void *job, uint32_t iu) {
    (void)c, (void)s;
    const conv_args *a = ((const conv_job *)job)->a;
    const row_run *run = &a->runs[iu];
    uint32_t skip = run->n_row > CONV_RING ? run->n_row - CONV_RING : 0;
    for (uint32_t r = run->row0 + skip; r < run->row0 + run->n_row; r++) {
        memcpy(conv_ring(a, run->seq, (uint32_t)a->rows[r].pos), a->u + (size_t)r * a->n_col, a->n_col * sizeof(float));
    }
}

mica_status cpu_conv(dev *d, const conv_args *a, mica_error *err) {
    (void)err;
    cpu_dev *c = (cpu_dev *)d;
    conv_job j = {.a = a, .n_part = 1, .part = a->n_col};
    if (a->n_row < CPU_UNITS * c->n_thread) {
        j.part = (a->n_col / (2 * c->n_thread) + 63u) & ~63u;
        j.n_part = (a->n_col + j.part - 1) / j.part;
    }
    cpu_phase p[2] = {{conv_unit, a->n_row * j.n_part}, {ring_unit, a->n_run}};
    cpu_run(c, &j, p, 2, (uint64_t)a->n_row * a->n_col < 2048);
    return MICA_OK;
}

/* ---- delta rule ---- */

static size_t delta_ld(const delta_args *a) { return 2 * (size_t)a->n_k * a->d_k + (size_t)a->n_v * a->d_v; }

static void l2_unit(cpu_dev *c, cpu_scratch *s, const void *job, uint32_t iu) {
    (void)s;
    const delta_args *a = job;
    float *q = a->qkv + (size_t)iu * delta_ld(a), scale = 1.0f / sqrtf((float)a->d_k);
    for (uint32_t ih = 0; ih < 2 * a->n_k; ih++) c->f->l2(q + (size_t)ih * a->d_k, a->d_k, ih < a->n_k ? scale : 1.0f);
}

typedef struct delta_log {
    float *k, *g, *delta; // [n_k, d_k], [n_v], [n_v, d_v]
} delta_log;

static delta_log log_of(const delta_args *a, float *state, uint32_t bank, uint32_t i) {
    uint64_t n_row = delta_log_row(a->n_k, a->n_v, a->d_k, a->d_v);
    float *p = state + (uint64_t)a->n_v * a->d_k * a->d_v + ((uint64_t)bank * WINDOW_MAX + i) * n_row;
    return (delta_log){p, p + (size_t)a->n_k * a->d_k, p + (size_t)a->n_k * a->d_k + a->n_v};
}

static void delta_unit(cpu_dev *c, cpu_scratch *sc, const void *job, uint32_t iu) {
    const delta_args *a = job;
    const row_run *run = &a->runs[iu / a->n_v];
    uint32_t h = iu % a->n_v, ik = h % a->n_k;
    size_t n_state = (size_t)a->d_k * a->d_v;
    float *state = a->state + (uint64_t)(uint32_t)run->seq * a->ld_seq, *s = state + h * n_state;
    for (uint32_t i = 0; i < run->n_commit; i++) {
        delta_log l = log_of(a, state, run->bank ^ 1u, i);
        c->f->delta_advance(s, l.k + (size_t)ik * a->d_k, l.g[h], l.delta + (size_t)h * a->d_v, a->d_k, a->d_v);
    }
    if (run->window) s = memcpy(sc->state, s, n_state * sizeof(float));
    for (uint32_t i = 0; i < run->n_row; i++) {
        size_t ir = (size_t)run->row0 + i;
        const float *q = a->qkv + ir * delta_ld(a) + (size_t)ik * a->d_k, *k = q + (size_t)a->n_k * a->d_k;
        delta_row_args r = {.o = a->o + (ir * a->n_v + h) * a->d_v, .delta = sc->row, .q = q, .k = k};
        r.v = a->qkv + ir * delta_ld(a) + 2 * (size_t)a->n_k * a->d_k + (size_t)h * a->d_v;
        r.g = exactf_exp(a->a[h] * exactf_softplus(a->alpha[ir * a->n_v + h] + a->dt_bias[h]));
        r.beta = exactf_sigmoid(a->beta[ir * a->n_v + h]);
        r.d_k = a->d_k;
        r.d_v = a->d_v;
        delta_log l = log_of(a, state, run->bank, i);
        if (run->window) r.delta = l.delta + (size_t)h * a->d_v;
        c->f->delta_step(s, &r);
        if (!run->window) continue;
        l.g[h] = r.g;
        if (h < a->n_k) memcpy(l.k + (size_t)ik * a->d_k, k, a->d_k * sizeof(float));
    }
}

mica_status cpu_delta(dev *d, const delta_args *a, mica_error *err) {
    (void)err;
    cpu_phase p[2] = {{l2_unit, a->n_row}, {delta_unit, a->n_run * a->n_v}};
    cpu_run((cpu_dev *)d, a, p, 2, false);
    return MICA_OK;
}

/* ---- output norm, shared expert's gate ---- */

static void gate_norm_unit(cpu_dev *c, cpu_scratch *s, const void *job, uint32_t iu) {
    (void)s;
    const gate_norm_args *a = job;
    for (uint32_t g = 0; g < a->n_group; g++) {
        size_t at = ((size_t)iu * a->n_group + g) * a->n_col;
        c->f->gate_norm(act_x(&a->y, iu) + (size_t)g * a->n_col, a->o + at, a->z + at, a);
    }
    if (a->want_q) cpu_quantise(c, &a->y, (act_part){iu, 1, 0, a->n_group * a->n_col}, "delta rule");
}

mica_status cpu_gate_norm(dev *d, const gate_norm_args *a, mica_error *err) {
    (void)err;
    cpu_run((cpu_dev *)d, a, &(cpu_phase){gate_norm_unit, a->n_row}, 1, a->n_row < 2);
    return MICA_OK;
}

static void gated_add_unit(cpu_dev *c, cpu_scratch *s, const void *job, uint32_t iu) {
    (void)s;
    const gated_add_args *a = job;
    c->f->axpy(a->y + (size_t)iu * a->n_col, exactf_sigmoid(a->g[iu]), a->x + (size_t)iu * a->n_col, a->n_col);
}

mica_status cpu_gated_add(dev *d, const gated_add_args *a, mica_error *err) {
    (void)err;
    cpu_run((cpu_dev *)d, a, &(cpu_phase){gated_add_unit, a->n_row}, 1, a->n_row < 4);
    return MICA_OK;
}

static void quantise_unit(cpu_dev *c, cpu_scratch *s, const void *job, uint32_t iu) {
    (void)s;
    const quantise_args *a = job;
    cpu_quantise(c, &a->a, (act_part){iu, 1, 0, a->n_col}, "activations");
}

mica_status cpu_quantise_rows(dev *d, const quantise_args *a, mica_error *err) {
    (void)err;
    cpu_run((cpu_dev *)d, a, &(cpu_phase){quantise_unit, a->n_row}, 1, a->n_row < 2);
    return MICA_OK;
}
