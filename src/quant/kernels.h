/* The kernels behind the tables of AVX2 and AVX-512: quant_token_ISA_TYPE and quant_prompt_ISA_TYPE,
 * contracts in quant.h. */
#ifndef MICA_QUANT_KERNELS_H
#define MICA_QUANT_KERNELS_H

#include "quant/block.h"
#include "quant/quant_int.h"

/* X(TYPE, name, n_sub, has_min) for every type that can be a weight; floats have no sub-blocks. */
#define QUANT_WEIGHT_TYPES(X) QUANT_TYPES(X) X(F32, f32, 0, 0) X(F16, f16, 0, 0) X(BF16, bf16, 0, 0)

#define QUANT_KERNEL_DECLARE(TYPE, name, n_sub, has_min)                                                     \
    quant_token_fn quant_token_avx2_##name, quant_token_avx512_##name;                                       \
    quant_prompt_fn quant_prompt_avx2_##name, quant_prompt_avx512_##name;
QUANT_WEIGHT_TYPES(QUANT_KERNEL_DECLARE)
#endif
