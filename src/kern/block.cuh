/* The integer form of weights on a card: quant/block.h as it is, over this side's loads and tables. */
#ifndef MICA_KERN_BLOCK_CUH
#define MICA_KERN_BLOCK_CUH

#include "kern/prelude.cuh"

#ifdef MICA_DEVICE_SOURCE
#include "quant/codebook_table.h"
#endif
#include "quant/block.h"

DEV float weight_f32(const u8 *row, u32 c) {
    return bits_f32(load_u32(row + (u64)c * 4));
}
DEV float weight_f16(const u8 *row, u32 c) {
    return f16_to_f32(load_u16(row + (u64)c * 2));
}
DEV float weight_bf16(const u8 *row, u32 c) {
    return bf16_to_f32(load_u16(row + (u64)c * 2));
}

/* Weight j of a block: rule 2's decode. */
DEV float block_decode(const quant_block *b, u32 j) {
    i32 q = (i8)(b->q[j / 4] >> 8 * (j % 4) & 255);
    return b->scale[j / 16] * (float)q - b->min[j / 16];
}

#endif
