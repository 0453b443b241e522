/* The table of AVX-512 products. Activations are quantised as with AVX2: a block of 32 is four registers of
 * those, and the work is a thousandth of a product's. */
#include "quant/act_avx2.h"
#include "quant/kernels.h"

static bool act_rows(const quant_act *a, uint32_t act0, uint32_t n_row, uint32_t n_col) {
    return act_rows_quantise(a, act0, n_row, n_col);
}

#define TOKEN_ENTRY(TYPE, name, n_sub, has_min) [GGUF_##TYPE] = quant_token_avx512_##name,
#define PROMPT_ENTRY(TYPE, name, n_sub, has_min) [GGUF_##TYPE] = quant_prompt_avx512_##name,

const quant_ops quant_ops_avx512 = {
    .name = "avx512",
    .act_rows = act_rows,
    .token = {QUANT_WEIGHT_TYPES(TOKEN_ENTRY)},
    .prompt = {QUANT_WEIGHT_TYPES(PROMPT_ENTRY)},
};
