/* Recurrent mixers over threads: the definition is ref_delta.c, the kernels cpu_delta_kern.h.
 *
 * Rows of a sequence follow each other, but channels and state columns are independent: a unit is some
 * channels (the convolution), or a value head and some columns of its state (the delta rule), for all rows of
 * all runs or of one. The state's columns are copied side by side into the thread's tile, walked row by row
 * there, and written back; a window of drafts is walked the same way and not written back. */
#include "dev/cpu_int.h"

#include "base/exactf.h"

#include <math.h>
#include <string.h>

/* ---- convolution -------------------------------------------------------------------------------- */

enum { CONV_CHANNELS = 512, CONV_TAPS_MAX = CONV_RING }; // channels of a unit

/* Inputs of channels [c, ..) at the positions that row r of the run reaches back to; NULL before position 0.
 */
static void conv_inputs(const float **u, const conv_args *a, const row_run *run, uint32_t r, uint32_t c) {
    const float *ring = a->ring + (uint64_t)(uint32_t)run->seq * a->ld_seq;
    int32_t first = a->rows[run->row0].pos, pos = a->rows[r].pos;
    for (uint32_t j = 0; j < a->n_tap; j++) {
        int32_t p = pos - (int32_t)((a->n_tap - 1 - j) * a->step);
        if (p < 0)
            u[j] = NULL;
        else if (p >= first)
            u[j] = a->u + ((size_t)run->row0 + (uint32_t)(p - first)) * a->n_col + c;
        else
            u[j] = ring + (size_t)((uint32_t)p % CONV_RING) * a->n_col + c;
    }
}

static void conv_unit(cpu_dev *d, cpu_scratch *s, const void *job, uint32_t iu) {
    const conv_args *a = job;
    uint32_t c = iu * CONV_CHANNELS, n = a->n_col - c < CONV_CHANNELS ? a->n_col - c : CONV_CHANNELS;
    const float *u[CONV_TAPS_MAX];
    d->f->conv_taps(s->tile, a->w + (size_t)c * a->n_tap, n, a->n_tap);
    for (uint32_t i = 0; i < a->n_run; i++) {
        const row_run *run = &a->runs[i];
        for (uint32_t r = run->row0; r < run->row0 + run->n_row; r++) {
            conv_inputs(u, a, run, r, c);
            d->f->conv_row(a->y + (size_t)r * a->n_col + c, u, s->tile, n, a->n_tap);
        }
        float *ring = a->ring + (uint64_t)(uint32_t)run->seq * a->ld_seq + c;
        uint32_t skip = run->n_row > CONV_RING ? run->n_row - CONV_RING : 0; // overwritten by later rows
        for (uint32_t r = run->row0 + skip; r < run->row0 + run->n_row; r++) {
            size_t slot = (uint32_t)a->rows[r].pos % CONV_RING;
            memcpy(ring + slot * a->n_col, a->u + (size_t)r * a->n_col + c, n * sizeof(float));
        }
    }
}

mica_status cpu_conv(dev *d, const conv_args *a, mica_error *err) {
    if ((a->n_tap - 1) * a->step + WINDOW_MAX > CONV_RING + 1)
        return fail(err, MICA_E_UNSUPPORTED, "convolution: %u taps %u positions apart: reaches back too far",
                    a->n_tap, a->step);
    uint32_t n_unit = (a->n_col + CONV_CHANNELS - 1) / CONV_CHANNELS;
    bool alone = (uint64_t)a->n_row * a->n_col <= 2048;
    cpu_run((cpu_dev *)d, a, &(cpu_phase){conv_unit, n_unit}, 1, alone);
    return MICA_OK;
}

/* ---- the delta rule ------------------------------------------------------------------------------ */

typedef struct delta_job {
    const delta_args *a;
    uint32_t n_part, part; // the columns of a head are n_part parts of `part`, a multiple of DELTA_COLS
    uint32_t n_norm;       // units of the first phase
} delta_job;

static uint32_t row_floats(const delta_args *a) {
    return 2 * a->n_k * a->d_k + a->n_v * a->d_v;
}

static void norm_unit(cpu_dev *c, cpu_scratch *s, const void *job, uint32_t iu) {
    (void)s;
    const delta_job *j = job;
    const delta_args *a = j->a;
    uint32_t b, e, n_head = 2 * a->n_k;
    float scale = 1.0f / sqrtf((float)a->d_k);
    cpu_range(&b, &e, a->n_row * n_head, iu, j->n_norm);
    for (uint32_t i = b; i < e; i++) {
        float *x = a->qkv + (size_t)(i / n_head) * row_floats(a) + (size_t)(i % n_head) * a->d_k;
        c->f->l2(x, a->d_k, i % n_head < a->n_k ? scale : 1.0f);
    }
}

typedef struct delta_log {
    float *k, *g, *delta; // [n_k, d_k], [n_v], [n_v, d_v]
} delta_log;

static delta_log log_at(const delta_args *a, const row_run *run, uint32_t bank, uint32_t i) {
    float *p = a->state + (uint64_t)(uint32_t)run->seq * a->ld_seq + (uint64_t)a->n_v * a->d_k * a->d_v;
    p += ((uint64_t)bank * WINDOW_MAX + i) * delta_log_row(a->n_k, a->n_v, a->d_k, a->d_v);
    return (delta_log){p, p + (size_t)a->n_k * a->d_k, p + (size_t)a->n_k * a->d_k + a->n_v};
}

/* Row i of the run, for head h. A window's row is logged: `first` says that this unit logs what the head's
 * columns share, and the first head of a key head logs what its heads share. */
static delta_row row_at(const delta_args *a, const row_run *run, uint32_t i, uint32_t h, bool first) {
    uint32_t r = run->row0 + i, n_key = a->n_k * a->d_k, ik = h % a->n_k;
    const float *x = a->qkv + (size_t)r * row_floats(a);
    delta_row w = {.q = x + (size_t)ik * a->d_k, .k = x + n_key + (size_t)ik * a->d_k};
    w.v = x + 2 * n_key + (size_t)h * a->d_v;
    w.o = a->o + ((size_t)r * a->n_v + h) * a->d_v;
    w.beta = exactf_sigmoid(a->beta[(size_t)r * a->n_v + h]);
    w.g = exactf_exp(a->a[h] * exactf_softplus(a->alpha[(size_t)r * a->n_v + h] + a->dt_bias[h]));
    if (!run->window) return w;
    delta_log l = log_at(a, run, run->bank, i);
    w.delta = l.delta + (size_t)h * a->d_v;
    if (first) l.g[h] = w.g;
    if (first && h == ik) memcpy(l.k + (size_t)ik * a->d_k, w.k, a->d_k * sizeof(float));
    return w;
}

/* Columns [col, col + n) of a head's state, n <= DELTA_COLS, and back. */
static void take_columns(float *t, const float *state, const delta_args *a, uint32_t n) {
    if (n < DELTA_COLS) memset(t, 0, (size_t)a->d_k * DELTA_COLS * sizeof(float));
    for (uint32_t i = 0; i < a->d_k; i++)
        memcpy(t + (size_t)i * DELTA_COLS, state + (size_t)i * a->d_v, n * sizeof(float));
}
static void give_columns(float *state, const float *t, const delta_args *a, uint32_t n) {
    for (uint32_t i = 0; i < a->d_k; i++)
        memcpy(state + (size_t)i * a->d_v, t + (size_t)i * DELTA_COLS, n * sizeof(float));
}

static void commit_columns(cpu_dev *c, float *t, const delta_args *a, const row_run *run, delta_span g) {
    for (uint32_t i = 0; i < run->n_commit; i++) {
        delta_log l = log_at(a, run, run->bank ^ 1u, i);
        float delta[DELTA_COLS] = {0};
        memcpy(delta, l.delta + (size_t)g.head * a->d_v + g.col, g.n_col * sizeof(float));
        c->f->delta_advance(t, l.k + (size_t)(g.head % a->n_k) * a->d_k, l.g[g.head], delta, a->d_k);
    }
}

enum { DELTA_ROWS = 64 }; // rows whose scalars are made at a time

static void delta_unit(cpu_dev *c, cpu_scratch *s, const void *job, uint32_t iu) {
    const delta_job *j = job;
    const delta_args *a = j->a;
    const row_run *run = &a->runs[iu / (a->n_v * j->n_part)];
    uint32_t h = iu / j->n_part % a->n_v, begin = iu % j->n_part * j->part;
    uint32_t end = a->d_v - begin < j->part ? a->d_v : begin + j->part;
    float *state = a->state + (uint64_t)(uint32_t)run->seq * a->ld_seq + (size_t)h * a->d_k * a->d_v;
    delta_row rows[DELTA_ROWS];
    for (uint32_t r = 0; r < run->n_row || r == 0; r += DELTA_ROWS) {
        uint32_t n = run->n_row - r < DELTA_ROWS ? run->n_row - r : DELTA_ROWS;
        for (uint32_t i = 0; i < n; i++) rows[i] = row_at(a, run, r + i, h, begin == 0);
        for (uint32_t col = begin; col < end; col += DELTA_COLS) {
            delta_span g = {h, col, end - col < DELTA_COLS ? end - col : DELTA_COLS};
            take_columns(s->tile, state + col, a, g.n_col);
            if (r == 0) commit_columns(c, s->tile, a, run, g);
            if (r == 0 && run->n_commit > 0 && run->window) give_columns(state + col, s->tile, a, g.n_col);
            c->f->delta_rows(s->tile, rows, n, a->d_k, g);
            if (!run->window) give_columns(state + col, s->tile, a, g.n_col);
        }
    }
}

mica_status cpu_delta(dev *d, const delta_args *a, mica_error *err) {
    cpu_dev *c = (cpu_dev *)d;
    if ((uint64_t)a->d_k * DELTA_COLS > CPU_TILE)
        return fail(err, MICA_E_UNSUPPORTED, "delta rule: keys of %u: at most %d", a->d_k,
                    CPU_TILE / DELTA_COLS);
    uint32_t n_part = a->n_run * a->n_v < CPU_UNITS * c->n_thread ? 2 : 1;
    delta_job j = {.a = a, .part = (a->d_v / n_part + DELTA_COLS - 1) / DELTA_COLS * DELTA_COLS};
    j.n_part = (a->d_v + j.part - 1) / j.part;
    uint32_t n_head = a->n_row * 2 * a->n_k, most = CPU_UNITS * c->n_thread;
    j.n_norm = n_head < most ? n_head : most;
    cpu_phase ph[2] = {{norm_unit, j.n_norm}, {delta_unit, a->n_run * a->n_v * j.n_part}};
    cpu_run(c, &j, ph, 2, false);
    return MICA_OK;
}
