/* The C side of the Python comparisons in tests/arith and tests/quant: a shared object around libmica.a
 * (whose own symbols are hidden), loaded with ctypes. Arrays are packed row after row: ld of the activations
 * is passed in. */
#include "base/mem.h"
#include "gguf/type.h"
#include "quant/quant.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT void shim_decode(float *dst, const void *src, int type, size_t n);
EXPORT int shim_type_block(int type, int *block, int *bytes);
EXPORT int shim_act_rows(int isa, const quant_act *a, uint32_t n_row, uint32_t n_col);
/* y is [n_act, n_row]. */
typedef struct shim_dims {
    int isa, type;
    uint32_t n_act, n_row, n_col;
} shim_dims;

EXPORT void shim_token(float *y, const void *w, const quant_act *a, const shim_dims *d);
EXPORT int shim_prompt(float *y, const void *w, const quant_act *a, const shim_dims *d);

void shim_decode(float *dst, const void *src, int type, size_t n) {
    quant_decode(dst, src, (gguf_type)type, n);
}

int shim_type_block(int type, int *block, int *bytes) {
    const gguf_type_info *t = gguf_type_get((uint32_t)type);
    if (!t || (t->cls != GGUF_CLASS_FLOAT && t->cls != GGUF_CLASS_QUANT)) return 0;
    *block = t->block;
    *bytes = t->bytes;
    return 1;
}

int shim_act_rows(int isa, const quant_act *a, uint32_t n_row, uint32_t n_col) {
    return quant_ops_get((cpu_isa)isa)->act_rows(a, 0, n_row, n_col);
}

static size_t row_bytes(const shim_dims *d) {
    return (size_t)gguf_row_bytes(gguf_type_get((uint32_t)d->type), d->n_col);
}

void shim_token(float *y, const void *w, const quant_act *a, const shim_dims *d) {
    const quant_ops *ops = quant_ops_get((cpu_isa)d->isa);
    ops->token[d->type](y, d->n_row, w, row_bytes(d), a, 0, d->n_act, d->n_row, d->n_col);
}

int shim_prompt(float *y, const void *w, const quant_act *a, const shim_dims *d) {
    const quant_ops *ops = quant_ops_get((cpu_isa)d->isa);
    void *scratch = mem_alloc_aligned(64, quant_prompt_scratch_bytes(d->n_col));
    if (!scratch) return 0;
    ops->prompt[d->type](y, d->n_row, w, row_bytes(d), a, 0, d->n_act, d->n_row, d->n_col, scratch);
    mem_free(scratch);
    return 1;
}
