/* What the files of this room share: the tables of products, one an instruction set, and the counters behind
 * quant_calls. */
#ifndef MICA_QUANT_INT_H
#define MICA_QUANT_INT_H

#include "quant/quant.h"

/* 1 once the table exists; until then quant_ops_get gives the scalar one in its place. */
#if defined(__x86_64__)
#define QUANT_HAVE_AVX2 1
#define QUANT_HAVE_AVX512 1
#else
#define QUANT_HAVE_AVX2 0
#define QUANT_HAVE_AVX512 0
#endif

extern const quant_ops quant_ops_scalar;
extern const quant_ops quant_ops_avx2;   // quant_avx2*.c
extern const quant_ops quant_ops_avx512; // quant_avx512*.c

/* What the prompt role of any table needs; each asserts that its own fits. */
enum { QUANT_SCRATCH_BYTES = 64 * 1024 };

/* Every kernel of every table says so once a call. Any thread. */
void quant_calls_add(cpu_isa isa, bool prompt, gguf_type type);

/* Segments of rule 3: segment i of a row of n_col weights covers columns [begin, end) in units of 256. */
static inline uint32_t quant_segment_n(uint32_t n_col) {
    return n_col / 4096 + (n_col % 4096 != 0);
}
static inline void quant_segment_get(uint32_t *begin, uint32_t *end, uint32_t i, uint32_t n_col) {
    uint64_t unit = n_col / 256 + (n_col % 256 != 0), n = quant_segment_n(n_col);
    uint64_t b = i * unit / n * 256, e = (i + 1) * unit / n * 256;
    *begin = (uint32_t)b;
    *end = e < n_col ? (uint32_t)e : n_col;
}
#endif
