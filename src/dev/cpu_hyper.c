/* Residual streams over threads: the definition is ref_hyper.c, the kernels cpu_hyper_kern.h.
 *
 * No sum crosses columns here but a norm's, so a row of a decoded token is cut into parts of columns (a norm:
 * into its groups). */
#include "dev/cpu_int.h"

#include "base/exactf.h"

#include <string.h>

/* A row is n_part parts of `part` columns, a multiple of 32; the last may be shorter. */
typedef struct part_job {
    const void *a; // argument record
    uint32_t n_col, n_part, part;
} part_job;

typedef struct part_of {
    uint32_t row, col, n;
} part_of;

static part_of part_at(const part_job *j, uint32_t iu) {
    uint32_t col = iu % j->n_part * j->part;
    return (part_of){iu / j->n_part, col, j->n_col - col < j->part ? j->n_col - col : j->part};
}

/* Values that one thread has done before another wakes; `cost` of them count as one. */
enum { ALONE_VALUES = 8192 };

static void run_parts(cpu_dev *c, part_job *j, cpu_unit_fn *fn, uint32_t n_row, uint32_t cost) {
    bool alone = (uint64_t)n_row * j->n_col * cost <= ALONE_VALUES;
    uint32_t n_part = alone || n_row >= CPU_UNITS * c->n_thread ? 1 : 2 * c->n_thread;
    j->part = ((j->n_col + n_part - 1) / n_part + 31) / 32 * 32;
    if (j->part == 0) return;
    j->n_part = (j->n_col + j->part - 1) / j->part;
    cpu_run(c, j, &(cpu_phase){fn, n_row * j->n_part}, 1, alone);
}

static void silu_unit(cpu_dev *c, cpu_scratch *s, const void *job, uint32_t iu) {
    (void)s;
    const part_job *j = job;
    const silu_args *a = j->a;
    part_of p = part_at(j, iu);
    c->f->silu(act_x(&a->h, p.row) + p.col, a->x + (size_t)p.row * a->n_col + p.col, a->div, p.n);
    if (a->want_q) cpu_quantise(c, &a->h, (act_part){p.row, 1, p.col, p.n}, "silu");
}

mica_status cpu_silu(dev *d, const silu_args *a, mica_error *err) {
    (void)err;
    run_parts((cpu_dev *)d, &(part_job){.a = a, .n_col = a->n_col}, silu_unit, a->n_row, 4);
    return MICA_OK;
}

static void hyper_read_unit(cpu_dev *c, cpu_scratch *s, const void *job, uint32_t iu) {
    (void)s;
    const part_job *j = job;
    const hyper_read_args *a = j->a;
    part_of p = part_at(j, iu);
    const float *gate = a->gate + (size_t)p.row * a->n_stream * a->n_col + p.col;
    c->f->hyper_read(act_x(&a->m, p.row) + p.col, a->xn + (size_t)p.row * a->ld_xn + p.col, gate, a->n_col,
                     a->n_stream, p.n);
    if (a->want_q) cpu_quantise(c, &a->m, (act_part){p.row, 1, p.col, p.n}, "streams");
}

mica_status cpu_hyper_read(dev *d, const hyper_read_args *a, mica_error *err) {
    (void)err;
    run_parts((cpu_dev *)d, &(part_job){.a = a, .n_col = a->n_col}, hyper_read_unit, a->n_row,
              4 * a->n_stream);
    return MICA_OK;
}

static void hyper_write_unit(cpu_dev *c, cpu_scratch *s, const void *job, uint32_t iu) {
    (void)s;
    const part_job *j = job;
    const hyper_write_args *a = j->a;
    part_of p = part_at(j, iu);
    for (uint32_t is = 0; is < a->n_stream; is++) {
        size_t at = (size_t)p.row * a->n_stream + is;
        float b = 2.0f * exactf_sigmoid(a->inject[at] / (float)a->n_stream);
        c->f->axpy(a->x + at * a->n_col + p.col, b, a->y + (size_t)p.row * a->n_col + p.col, p.n);
    }
}

mica_status cpu_hyper_write(dev *d, const hyper_write_args *a, mica_error *err) {
    (void)err;
    run_parts((cpu_dev *)d, &(part_job){.a = a, .n_col = a->n_col}, hyper_write_unit, a->n_row, 2);
    return MICA_OK;
}

enum { ADD_UNIT = 4096 };

static void add_unit(cpu_dev *c, cpu_scratch *s, const void *job, uint32_t iu) {
    (void)s;
    const add_args *a = job;
    uint64_t at = (uint64_t)iu * ADD_UNIT, n = a->n - at < ADD_UNIT ? a->n - at : ADD_UNIT;
    c->f->add2(a->x + at, a->a + at, a->b + at, (uint32_t)n);
}

mica_status cpu_add(dev *d, const add_args *a, mica_error *err) {
    (void)err;
    uint32_t n_unit = (uint32_t)((a->n + ADD_UNIT - 1) / ADD_UNIT);
    cpu_run((cpu_dev *)d, a, &(cpu_phase){add_unit, n_unit}, 1, n_unit < 8);
    return MICA_OK;
}

static void spread_unit(cpu_dev *c, cpu_scratch *s, const void *job, uint32_t r) {
    (void)c, (void)s;
    const spread_args *a = job;
    const float *y = a->y + (size_t)(a->row_of ? (uint32_t)a->row_of[r] : r) * a->ld_y;
    for (uint32_t g = 0; g < a->n_group; g++)
        memcpy(a->x + ((size_t)r * a->n_group + g) * a->ld_x, y, a->n_col * sizeof(float));
}

mica_status cpu_spread(dev *d, const spread_args *a, mica_error *err) {
    (void)err;
    bool alone = (uint64_t)a->n_row * a->n_group * a->n_col <= 4 * ALONE_VALUES;
    cpu_run((cpu_dev *)d, a, &(cpu_phase){spread_unit, a->n_row}, 1, alone);
    return MICA_OK;
}

/* Units are some groups of one row; blocks of 32 do not cross them, or a unit is a whole row. */
typedef struct group_job {
    const group_norm_args *a;
    uint32_t n_part; // of a row
} group_job;

static void group_norm_unit(cpu_dev *c, cpu_scratch *s, const void *job, uint32_t iu) {
    (void)s;
    const group_job *j = job;
    const group_norm_args *a = j->a;
    uint32_t r = iu / j->n_part, b, e;
    cpu_range(&b, &e, a->n_group, iu % j->n_part, j->n_part);
    const float *x = a->x + (size_t)(a->row_of ? (uint32_t)a->row_of[r] : r) * a->ld_x;
    for (uint32_t g = b; g < e; g++) {
        size_t at = (size_t)g * a->n_col;
        c->f->rms(act_x(&a->y, r) + (size_t)g * a->ld_group, x + at, a->w + at, a->n_col, a->eps);
    }
    if (a->want_q) cpu_quantise(c, &a->y, (act_part){r, 1, b * a->n_col, (e - b) * a->n_col}, "norm");
}

mica_status cpu_group_norm(dev *d, const group_norm_args *a, mica_error *err) {
    (void)err;
    cpu_dev *c = (cpu_dev *)d;
    bool alone = (uint64_t)a->n_row * a->n_group * a->n_col <= ALONE_VALUES;
    bool whole = alone || a->n_row >= CPU_UNITS * c->n_thread || (a->want_q && a->n_col % 32 != 0);
    group_job j = {a, whole ? 1 : a->n_group};
    cpu_run(c, &j, &(cpu_phase){group_norm_unit, a->n_row * j.n_part}, 1, alone);
    return MICA_OK;
}
