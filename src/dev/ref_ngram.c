/* N-gram rows, defined: docs/ARITHMETIC.md rule 15. */
#include "dev/dev_ref.h"
#include "dev/ngram.h"
#include "dev/ref_math.h"

enum { HEAD_MAX = 256 };

mica_status ref_ngram(dev *d, const ngram_args *a, mica_error *err) {
    const weight_ref *t = &a->table;
    uint64_t row[HEAD_MAX];
    if (a->n_head > HEAD_MAX)
        return fail(err, MICA_E_UNSUPPORTED, "n-gram rows: %u heads: at most %d", a->n_head, HEAD_MAX);
    for (uint32_t i = 0; i < a->n_run; i++) {
        const row_run *run = &a->runs[i];
        for (uint32_t r = run->row0; r < run->row0 + run->n_row; r++) {
            ngram_rows(row, a, run, r);
            for (uint32_t ih = 0; ih < a->n_head; ih++) {
                const char *at = (const char *)t->w + row[ih] * weight_row_bytes(t);
                quant_decode(act_x(&a->e, r) + (size_t)ih * t->n_col, at, (gguf_type)t->type, t->n_col);
            }
        }
        ngram_remember(a, run);
    }
    if (a->want_q) ref_quantise((ref_dev *)d, &a->e, a->n_row, a->n_head * t->n_col, "n-gram rows");
    return MICA_OK;
}

/* 64 partial sums, then the tree. */
static float sum_products(const float *x, const float *y, uint32_t n) {
    float p[64] = {0};
    for (uint32_t i = 0; i < n; i++) p[i % 64] = fmaf(x[i], y[i], p[i % 64]);
    return ref_tree(p, 64);
}

mica_status ref_ngram_gate(dev *d, const ngram_gate_args *a, mica_error *err) {
    (void)d, (void)err;
    float root = sqrtf((float)a->n_col);
    for (uint32_t r = 0; r < a->n_row; r++) {
        const float *v = a->v + (size_t)r * a->n_col;
        for (uint32_t s = 0; s < a->n_stream; s++) {
            size_t at = (size_t)r * a->ld + (size_t)s * a->n_col;
            float *gv = a->gv + ((size_t)r * a->n_stream + s) * a->n_col;
            float g = exactf_sigmoid(signed_root(sum_products(a->key + at, a->query + at, a->n_col) / root));
            for (uint32_t i = 0; i < a->n_col; i++) gv[i] = g * v[i];
        }
    }
    return MICA_OK;
}
