/* The choice between the tables of products, their counters, and the scratch they share. */
#include "quant/quant_int.h"

#include <stdatomic.h>

static _Atomic uint64_t g_calls[CPU_ISA_N][2][GGUF_TYPE_N];

const quant_ops *quant_ops_get(cpu_isa isa) {
#if QUANT_HAVE_AVX512
    if (isa == CPU_AVX512) return &quant_ops_avx512;
#endif
#if QUANT_HAVE_AVX2
    if (isa >= CPU_AVX2) return &quant_ops_avx2;
#endif
    (void)isa;
    return &quant_ops_scalar;
}

size_t quant_prompt_scratch_bytes(uint32_t n_col) {
    (void)n_col; // panels are stretches of columns: their size is that of a cache, not of a row
    return QUANT_SCRATCH_BYTES;
}

void quant_calls_add(cpu_isa isa, bool prompt, gguf_type type) {
    atomic_fetch_add_explicit(&g_calls[isa][prompt][type], 1, memory_order_relaxed);
}

uint64_t quant_calls(cpu_isa isa, bool prompt, gguf_type type) {
    return atomic_load_explicit(&g_calls[isa][prompt][type], memory_order_relaxed);
}
