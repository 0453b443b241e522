/* Reference decode. A quantised weight is scale * q rounded to f32, then minus its minimum, rounded: the
 * integer form of block.h read back, so that decode and products cannot disagree about a layout. */
#include "quant/block.h"
#include "quant/quant.h"

#include <assert.h>

typedef void unpack_fn(quant_block *o, const uint8_t *row, uint32_t ib);

#define UNPACK_ENTRY(TYPE, name, n_sub, has_min) [GGUF_##TYPE] = quant_unpack_##name,
static unpack_fn *const g_unpack[GGUF_TYPE_N] = {QUANT_TYPES(UNPACK_ENTRY)};

static void decode_block(float *dst, const quant_block *b) {
    for (int j = 0; j < 32; j++) {
        float product = b->scale[j / 16] * (float)(int8_t)(b->q[j / 4] >> 8 * (j % 4) & 255);
        dst[j] = product - b->min[j / 16];
    }
}

void quant_decode(float *dst, const void *src, gguf_type type, size_t n) {
    const uint8_t *p = src;
    if (type == GGUF_F32) {
        memcpy(dst, src, n * sizeof *dst);
    } else if (type == GGUF_F16) {
        for (size_t i = 0; i < n; i++) dst[i] = f16_to_f32(load_u16(p + 2 * i));
    } else if (type == GGUF_BF16) {
        for (size_t i = 0; i < n; i++) dst[i] = bf16_to_f32(load_u16(p + 2 * i));
    } else {
        const gguf_type_info *info = gguf_type_get(type);
        assert(info && g_unpack[type] && n % info->block == 0);
        // Block by block of the type, so that the number of a block of 32 stays small however large n is.
        for (size_t at = 0; at < n; at += info->block, p += info->bytes) {
            for (uint32_t ib = 0; ib < info->block / 32u; ib++) {
                quant_block b;
                g_unpack[type](&b, p, ib);
                decode_block(dst + at + 32 * ib, &b);
            }
        }
    }
}
