/* N-gram rows over threads: the definition is ref_ngram.c. A row of a batch is cut into some of its heads, so
 * that reading rows of the table that are not in memory waits for several at once. */
#include "dev/cpu_int.h"
#include "dev/ngram.h"

#include "base/exactf.h"
#include "dev/ref_math.h"

#include <string.h>

enum { HEAD_MAX = 256 };

typedef struct ngram_job {
    const ngram_args *a;
    uint32_t n_part; // of a row's heads
} ngram_job;

/* Heads [b, e) of row r. */
static void read_heads(cpu_dev *c, const ngram_args *a, uint32_t r, const uint64_t *row, uint32_t b,
                       uint32_t e) {
    const weight_ref *t = &a->table;
    size_t row_bytes = weight_row_bytes(t);
    for (uint32_t ih = b; ih < e; ih++) {
        const char *at = (const char *)t->w + row[ih] * row_bytes;
        quant_decode(act_x(&a->e, r) + (size_t)ih * t->n_col, at, (gguf_type)t->type, t->n_col);
    }
    if (a->want_q) cpu_quantise(c, &a->e, (act_part){r, 1, b * t->n_col, (e - b) * t->n_col}, "n-gram rows");
}

static void ngram_unit(cpu_dev *c, cpu_scratch *s, const void *job, uint32_t iu) {
    (void)s;
    const ngram_job *j = job;
    const ngram_args *a = j->a;
    uint64_t row[HEAD_MAX];
    uint32_t r = iu / j->n_part, b, e, first, last;
    cpu_range(&b, &e, a->n_head, iu % j->n_part, j->n_part);
    for (uint32_t i = 0; i < a->n_run; i++) {
        if (!cpu_run_rows(&first, &last, &a->runs[i], r, r + 1)) continue;
        ngram_rows(row, a, &a->runs[i], r);
        read_heads(c, a, r, row, b, e);
    }
}

static void remember_unit(cpu_dev *c, cpu_scratch *s, const void *job, uint32_t i) {
    (void)c, (void)s;
    const ngram_args *a = ((const ngram_job *)job)->a;
    ngram_remember(a, &a->runs[i]);
}

mica_status cpu_ngram(dev *d, const ngram_args *a, mica_error *err) {
    cpu_dev *c = (cpu_dev *)d;
    if (a->n_head > HEAD_MAX)
        return fail(err, MICA_E_UNSUPPORTED, "n-gram rows: %u heads: at most %d", a->n_head, HEAD_MAX);
    bool whole = a->n_row >= CPU_UNITS * c->n_thread || (a->want_q && a->table.n_col % 32 != 0);
    uint32_t few = 2 * c->n_thread;
    ngram_job j = {a, whole ? 1 : a->n_head < few ? a->n_head : few};
    cpu_phase ph[2] = {{ngram_unit, a->n_row * j.n_part}, {remember_unit, a->n_run}};
    cpu_run(c, &j, ph, 2, false);
    return MICA_OK;
}

static void ngram_gate_unit(cpu_dev *c, cpu_scratch *s, const void *job, uint32_t iu) {
    (void)s;
    const ngram_gate_args *a = job;
    uint32_t r = iu / a->n_stream;
    size_t at = (size_t)r * a->ld + (size_t)(iu % a->n_stream) * a->n_col;
    float *gv = a->gv + (size_t)iu * a->n_col;
    float z = c->f->dot64(a->key + at, a->query + at, a->n_col) / sqrtf((float)a->n_col);
    memcpy(gv, a->v + (size_t)r * a->n_col, a->n_col * sizeof(float));
    c->f->scale(gv, exactf_sigmoid(signed_root(z)), a->n_col);
}

mica_status cpu_ngram_gate(dev *d, const ngram_gate_args *a, mica_error *err) {
    (void)err;
    uint32_t n_unit = a->n_row * a->n_stream;
    cpu_run((cpu_dev *)d, a, &(cpu_phase){ngram_gate_unit, n_unit}, 1, (uint64_t)n_unit * a->n_col <= 8192);
    return MICA_OK;
}
