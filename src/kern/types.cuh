/* The list of weight types, for the kernels that exist once a type. */
#ifndef MICA_KERN_TYPES_CUH
#define MICA_KERN_TYPES_CUH

#include "kern/block.cuh"
#include "kern/shape.h"

/* Bytes of a row: blocks of so many weights in so many bytes. */
#define ROW_BYTES(name, block, bytes)                                                                        \
    DEV u64 name##_row_bytes(u32 n_col) {                                                                    \
        return (u64)(n_col / block) * bytes;                                                                 \
    }
ROW_BYTES(f32, 1, 4)
ROW_BYTES(f16, 1, 2)
ROW_BYTES(bf16, 1, 2)
ROW_BYTES(q4_0, 32, 18)
ROW_BYTES(q4_1, 32, 20)
ROW_BYTES(q5_0, 32, 22)
ROW_BYTES(q5_1, 32, 24)
ROW_BYTES(q8_0, 32, 34)
ROW_BYTES(q2_k, 256, 84)
ROW_BYTES(q3_k, 256, 110)
ROW_BYTES(q4_k, 256, 144)
ROW_BYTES(q5_k, 256, 176)
ROW_BYTES(q6_k, 256, 210)
ROW_BYTES(iq2_xxs, 256, 66)
ROW_BYTES(iq2_xs, 256, 74)
ROW_BYTES(iq3_xxs, 256, 98)
ROW_BYTES(iq1_s, 256, 50)
ROW_BYTES(iq4_nl, 32, 18)
ROW_BYTES(iq3_s, 256, 110)
ROW_BYTES(iq2_s, 256, 82)
ROW_BYTES(iq4_xs, 256, 136)
ROW_BYTES(iq1_m, 256, 56)
ROW_BYTES(tq1_0, 256, 54)
ROW_BYTES(tq2_0, 256, 66)
ROW_BYTES(mxfp4, 32, 17)
ROW_BYTES(nvfp4, 64, 36)
ROW_BYTES(q1_0, 128, 18)
ROW_BYTES(q2_0, 64, 18)
#undef ROW_BYTES

/* Segment i of a row of n_col weights begins at column segment_begin(i), the last ends at n_col. */
DEV u32 segment_begin(u32 i, u32 n_segment, u32 n_col) {
    const u64 n_unit = (n_col + UNIT_COLS - 1) / UNIT_COLS;
    return u32_min((u32)(i * n_unit / n_segment) * UNIT_COLS, n_col);
}

#endif
