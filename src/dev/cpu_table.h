/* The table that each of the three cpu_fns_*.c defines from the kernels it compiled. */
#ifndef MICA_CPU_TABLE_H
#define MICA_CPU_TABLE_H

#include "dev/cpu_attn_kern.h"
#include "dev/cpu_delta_kern.h"
#include "dev/cpu_hyper_kern.h"
#include "dev/cpu_row.h"

#define CPU_TABLE                                                                                            \
    {                                                                                                        \
        .rms = row_rms, .add_rms = row_add_rms, .scale = row_scale, .finish = row_finish, .axpy = row_axpy,  \
        .finite = row_finite, .rotate = row_rotate, .sincos = row_sincos, .kv_store = row_kv_store,          \
        .glu = row_glu, .softcap = row_softcap, .router = row_router, .attn_begin = attn_begin,              \
        .attn_block = attn_block_any, .attn_join = attn_join, .attn_end = attn_end, .conv_taps = conv_taps,  \
        .conv_row = conv_row, .l2 = row_l2, .gate = row_gate, .delta_advance = delta_advance,                \
        .delta_rows = delta_rows, .silu = row_silu, .add2 = row_add2, .dot64 = row_dot64,                    \
        .hyper_read = hyper_read, .index_scores = index_scores,                                              \
    }

#endif
