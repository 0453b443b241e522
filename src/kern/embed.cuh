/* Embedding rows and rope tables. */
#ifndef MICA_KERN_EMBED_CUH
#define MICA_KERN_EMBED_CUH

#include "kern/types.cuh"
#include "kern/record.h"

/* The bytes of row r's token in a table whose rows are row_bytes long. */
DEV const u8 *embed_row(const embed_args *a, u32 r, u64 row_bytes) {
    return (const u8 *)a->table.w + (u64)(u32)a->rows[r].tok * row_bytes;
}

/* x = decode(table[tok]) * scale, a thread a block of 32.
 *   grid    ceil(n_col / 32 / EMBED_THREADS), n_row; block EMBED_THREADS
 *   shared  none
 *   needs   n_col a multiple of the type's block
 *   order   none */
#define EMBED_QUANT(TYPE, name, n_sub, has_min)                                                              \
    KERNEL(embed_##name, embed_args, EMBED_THREADS) {                                                        \
        const u32 ib = BLOCK_X * EMBED_THREADS + THREAD;                                                     \
        if (ib >= job.table.n_col / 32) return;                                                              \
        quant_block b;                                                                                       \
        quant_unpack_##name(&b, embed_row(&job, BLOCK_Y, name##_row_bytes(job.table.n_col)), ib);            \
        float *x = job.x + (u64)BLOCK_Y * job.table.n_col + 32 * ib;                                         \
        UNROLL                                                                                               \
        for (u32 j = 0; j < 32; j++) x[j] = block_decode(&b, j) * job.scale;                                 \
    }
QUANT_TYPES(EMBED_QUANT)
#undef EMBED_QUANT

/* The same for float tables, a thread a value.
 *   grid    ceil(n_col / EMBED_THREADS), n_row; block EMBED_THREADS
 *   shared  none
 *   needs   nothing
 *   order   none */
#define EMBED_FLOAT(name, bytes)                                                                             \
    KERNEL(embed_##name, embed_args, EMBED_THREADS) {                                                        \
        const u32 i = BLOCK_X * EMBED_THREADS + THREAD, n = job.table.n_col;                                 \
        if (i >= n) return;                                                                                  \
        const u8 *row = embed_row(&job, BLOCK_Y, (u64)n * bytes);                                            \
        job.x[(u64)BLOCK_Y * n + i] = weight_##name(row, i) * job.scale;                                     \
    }
EMBED_FLOAT(f32, 4)
EMBED_FLOAT(f16, 2)
EMBED_FLOAT(bf16, 2)
#undef EMBED_FLOAT

/* cos and sin of position * inv_freq, in f64 until the end (rule 9).
 *   grid    ceil(n_pair / EMBED_THREADS), n_row; block EMBED_THREADS
 *   shared  none
 *   needs   |angle| <= 1e7
 *   order   none */
KERNEL(rope_table_rows, rope_table_args, EMBED_THREADS) {
    const u32 i = BLOCK_X * EMBED_THREADS + THREAD, row = BLOCK_Y;
    if (i >= job.n_pair) return;
    const exactd_sc t = exactd_sincos((double)job.rows[row].pos * job.inv_freq[i]);
    float *cs = job.cs + 2 * ((u64)row * job.n_pair + i);
    cs[0] = (float)t.cos * job.mscale;
    cs[1] = (float)t.sin * job.mscale;
}

#endif
