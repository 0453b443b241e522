/* Block formats: decode, encode, and the products of docs/ARITHMETIC.md rules 1 to 5 on the CPU.
 *
 *     const quant_ops *q = quant_ops_get(cpu_isa_best());
 *     q->act_rows(&a, 0, n_row, n_col);                    // a.x -> a.q a.d a.s a.s16
 *     q->token[type](y, ld_y, w, row_bytes, &a, 0, 1, n_out, n_col);
 *
 * quant_ops_get(CPU_SCALAR) is the definition; every other table gives the same bits for every type, length
 * and alignment (tests/quant). Weights are borrowed and may be unaligned: blocks start at any byte.
 * Threads: everything here is pure; a caller splits weight rows or activation rows over threads as it
 * likes, no sum crosses a row. */
#ifndef MICA_QUANT_H
#define MICA_QUANT_H

#include "base/cpu.h"
#include "gguf/type.h"
#include "quant/act.h"

#include <stddef.h>

enum { QUANT_TOKEN_ROWS_MAX = 8 };

/* y[ia * ld_y + ir] = W[ir] . a[act0 + ia] for ir < n_row, ia < n_act, in the token role. n_act <=
 * QUANT_TOKEN_ROWS_MAX. W is n_row rows of row_bytes each; n_col is a multiple of the type's block (and of
 * 32 unless the type is a float). */
typedef void quant_token_fn(float *y, size_t ld_y, const void *w, size_t row_bytes, const quant_act *a,
                            uint32_t act0, uint32_t n_act, uint32_t n_row, uint32_t n_col);

/* The same in the prompt role, any n_act. scratch: quant_prompt_scratch_bytes(n_col) bytes, aligned to 64,
 * one per thread. */
typedef void quant_prompt_fn(float *y, size_t ld_y, const void *w, size_t row_bytes, const quant_act *a,
                             uint32_t act0, uint32_t n_act, uint32_t n_row, uint32_t n_col, void *scratch);

typedef struct quant_ops {
    const char *name;
    /* Quantises rows act0 .. act0 + n_row of a->x (n_col % 32 == 0). false: a value is NaN or infinite, and
     * what was written means nothing. */
    bool (*act_rows)(const quant_act *a, uint32_t act0, uint32_t n_row, uint32_t n_col);
    quant_token_fn *token[GGUF_TYPE_N]; // NULL only for types that cannot be weights
    quant_prompt_fn *prompt[GGUF_TYPE_N];
} quant_ops;

/* The table for an instruction set this processor has. */
const quant_ops *quant_ops_get(cpu_isa isa);
size_t quant_prompt_scratch_bytes(uint32_t n_col);

/* How often this process called a type's own kernel of a table; for the test that proves none falls back. */
uint64_t quant_calls(cpu_isa isa, bool prompt, gguf_type type);

/* Reference decode of n weights (a multiple of the block). Never used on the token path but for embedding
 * rows. */
void quant_decode(float *dst, const void *src, gguf_type type, size_t n);
/* Simple round-to-nearest quantiser, for synthetic files and tests. false when this type has none. */
bool quant_encode(void *dst, const float *src, gguf_type type, size_t n);
#endif
