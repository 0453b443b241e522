/* The C side of the Python comparisons in tests/arith and tests/quant: a shared object around libmica.a (whose own symbols
 * are hidden), loaded with ctypes. Arrays are packed row after row: ld of the activations is passed in. */
#include "gguf/type.h"
#include "quant/quant.h"

#include <stdlib.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT void shim_decode(float *dst, const void *src, int type, size_t n);
EXPORT int shim_type_block(int type, int *block, int *bytes);
EXPORT int shim_act_rows(int isa, const quant_act *a, uint32_t n_row, uint32_t n_col);
EXPORT void shim_token(int isa, int type, float *y, const void *w, const quant_act *a, uint32_t n_act, uint32_t n_row,
                       uint32_t n_col);
EXPORT int shim_prompt(int isa, int type, float *y, const void *w, const quant_act *a, uint32_t n_act, uint32_t n_row,
                       uint32_t n_col);

void shim_decode(float *dst, const void *src, int type, size_t n) { quant_decode(dst, src, (gguf_type)type, n); }

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

/* y is [n_act, n_row]. */
void shim_token(int isa, int type, float *y, const void *w, const quant_act *a, uint32_t n_act, uint32_t n_row,
                uint32_t n_col) {
    size_t row_bytes = (size_t)gguf_row_bytes(gguf_type_get((uint32_t)type), n_col);
    quant_ops_get((cpu_isa)isa)->token[type](y, n_row, w, row_bytes, a, 0, n_act, n_row, n_col);
}

int shim_prompt(int isa, int type, float *y, const void *w, const quant_act *a, uint32_t n_act, uint32_t n_row,
                uint32_t n_col) {
    size_t row_bytes = (size_t)gguf_row_bytes(gguf_type_get((uint32_t)type), n_col);
    void *scratch = aligned_alloc(64, (quant_prompt_scratch_bytes(n_col) + 63) / 64 * 64);
    if (!scratch) return 0;
    quant_ops_get((cpu_isa)isa)->prompt[type](y, n_row, w, row_bytes, a, 0, n_act, n_row, n_col, scratch);
    free(scratch);
    return 1;
}
