/* Random valid blocks of every weight type.
 *
 * Nearly every bit pattern of a block is a valid weight, so a block starts as random bytes. Then three things
 * are made right: bytes that no quantiser writes (-128 in q8_0, a fourth digit in the ternary types) are
 * replaced; scales of sub-blocks with minima are chosen so that the values have a mean of 0; and the block's
 * own scale is set. How large that must be for the wanted deviation is measured, by decoding blocks of scale
 * 1: no table of constants to go wrong. */
#include "base/half.h"
#include "eval/synth_int.h"
#include "quant/quant.h"

#include <xxhash.h>

synth_rng synth_rng_of(uint64_t seed, const char *name) {
    return (synth_rng){XXH3_64bits_withSeed(name, strlen(name), seed)};
}

double synth_rng_gauss(synth_rng *r) {
    double sum = -6; // twelve uniforms: deviation 1, no tails beyond 6, no libm
    for (int i = 0; i < 12; i++) sum += synth_rng_unit(r);
    return sum;
}

static void random_bytes(uint8_t *p, size_t n, synth_rng *r) {
    for (; n >= 8; p += 8, n -= 8) {
        uint64_t x = synth_rng_next(r);
        memcpy(p, &x, 8);
    }
    uint64_t x = synth_rng_next(r);
    memcpy(p, &x, n);
}

static void store_f16(uint8_t *p, double x) {
    uint16_t h = f32_to_f16((float)x);
    memcpy(p, &h, 2);
}

/* ---- the parts of a block that are not free ---- */

/* q4_k and q5_k: eight 6-bit scales, with minima equal to them, so that dmin = d * (middle of q) centres all
 * of them. Scales from 16 to 47 of 63: varied, none of them 0. */
static void shape_k_scales(uint8_t *b, synth_rng *r) {
    uint64_t x = synth_rng_next(r);
    uint8_t sc[8];
    for (int k = 0; k < 8; k++) sc[k] = (uint8_t)(16 + (x >> 8 * k & 31));
    for (int k = 0; k < 4; k++) {
        b[k] = b[k + 4] = (uint8_t)(sc[k] | (sc[k + 4] >> 4) << 6);
        b[k + 8] = (uint8_t)((sc[k + 4] & 15) | (sc[k + 4] & 15) << 4);
    }
}

/* q2_k: a scale and a minimum of 8..15 in each byte, equal to each other. */
static void shape_q2_k(uint8_t *b) {
    for (int k = 0; k < 16; k++) b[k] = (uint8_t)((8 + (b[k] & 7)) * 17);
}

/* q6_k: signed scales of magnitude 16..47. */
static void shape_q6_k(uint8_t *b) {
    for (int k = 192; k < 208; k++) {
        int m = 16 + (b[k] & 31);
        b[k] = (uint8_t)(int8_t)(b[k] & 32 ? -m : m);
    }
}

/* A byte of tq1_0 holds five digits of base 3 as a fraction of 256. */
static uint8_t ternary(unsigned digits) {
    return (uint8_t)((digits * 256 + 242) / 243);
}

static void shape_tq1_0(uint8_t *b) {
    for (int j = 0; j < 48; j++) b[j] = ternary(b[j] % 243u);
    for (int j = 48; j < 52; j++) b[j] = ternary(b[j] % 81u * 3); // four digits, then an unused one
}

static void shape_tq2_0(uint8_t *b) {
    for (int j = 0; j < 64; j++) b[j] = (uint8_t)(b[j] & ~((b[j] & b[j] << 1) & 0xAA)); // 3 becomes 1
}

static void shape_block(uint8_t *b, gguf_type type, synth_rng *r) {
    switch (type) {
    case GGUF_Q8_0:
        for (int j = 2; j < 34; j++)
            if (b[j] == 0x80) b[j] = 0x81;
        break;
    case GGUF_Q2_K: shape_q2_k(b); break;
    case GGUF_Q4_K:
    case GGUF_Q5_K: shape_k_scales(b + 4, r); break;
    case GGUF_Q6_K: shape_q6_k(b); break;
    case GGUF_TQ1_0: shape_tq1_0(b); break;
    case GGUF_TQ2_0: shape_tq2_0(b); break;
    case GGUF_NVFP4:
        for (int j = 0; j < 4; j++) b[j] = (uint8_t)(0x38 | (b[j] & 7)); // 1 to 1.875
        break;
    default: break;
    }
}

/* The block's scale; d may be negative for types whose values lean to one side, so that the lean has no sign.
 */
static void scale_block(uint8_t *b, gguf_type type, double d) {
    switch (type) {
    case GGUF_Q4_1: store_f16(b, d), store_f16(b + 2, d * -7.5); break;
    case GGUF_Q5_1: store_f16(b, d), store_f16(b + 2, d * -15.5); break;
    case GGUF_Q2_K: store_f16(b + 80, d), store_f16(b + 82, d * 1.5); break;
    case GGUF_Q4_K: store_f16(b, d), store_f16(b + 2, d * 7.5); break;
    case GGUF_Q5_K: store_f16(b, d), store_f16(b + 2, d * 15.5); break;
    case GGUF_Q3_K: store_f16(b + 108, d); break;
    case GGUF_Q6_K: store_f16(b + 208, d); break;
    case GGUF_TQ1_0: store_f16(b + 52, d); break;
    case GGUF_TQ2_0: store_f16(b + 64, d); break;
    case GGUF_IQ1_M: { // the scale's bits lie in the high nibbles of four words
        uint16_t h = f32_to_f16((float)d);
        for (int k = 0; k < 4; k++)
            b[49 + 2 * k] = (uint8_t)((b[49 + 2 * k] & 0x0F) | (h >> 4 * k & 15) << 4);
        break;
    }
    case GGUF_MXFP4: { // a power of two
        int e = 128 + (int)lround(log2(d));
        b[0] = (uint8_t)(e < 1 ? 1 : e > 254 ? 254 : e);
        break;
    }
    case GGUF_NVFP4: break; // in a tensor of its own
    default: store_f16(b, d); break;
    }
}

static bool leans(gguf_type type) {
    return type == GGUF_Q4_0 || type == GGUF_Q5_0 || type == GGUF_IQ4_NL || type == GGUF_IQ4_XS ||
           type == GGUF_Q2_0 || type == GGUF_Q3_K;
}

/* ---- deviation ---- */

enum { PROBE_BLOCKS = 1024, BLOCK_MAX = 256, BLOCK_BYTES_MAX = 292 };

double synth_block_rms(gguf_type type) {
    const gguf_type_info *info = gguf_type_get((uint32_t)type);
    if (info->cls == GGUF_CLASS_FLOAT) return 1;
    synth_rng r = {1};
    double sum = 0;
    for (int i = 0; i < PROBE_BLOCKS; i++) {
        uint8_t b[BLOCK_BYTES_MAX];
        float y[BLOCK_MAX];
        random_bytes(b, info->bytes, &r);
        shape_block(b, type, &r);
        scale_block(b, type, 1);
        quant_decode(y, b, type, info->block);
        for (int j = 0; j < info->block; j++) sum += (double)y[j] * (double)y[j];
    }
    return sqrt(sum / PROBE_BLOCKS / info->block);
}

/* f32, f16, bf16: uniform with 16 random bits a weight. */
static void random_floats(uint8_t *dst, gguf_type type, uint64_t n, double scale, synth_rng *r) {
    float step = (float)(scale * sqrt(3.0) / 32768);
    for (uint64_t i = 0; i < n;) {
        uint64_t x = synth_rng_next(r);
        for (int k = 0; k < 4 && i < n; k++, i++, x >>= 16) {
            float f = ((float)(x & 0xFFFF) - 32767.5f) * step;
            uint16_t h = type == GGUF_F16 ? f32_to_f16(f) : f32_to_bf16(f);
            if (type == GGUF_F32)
                memcpy(dst + 4 * i, &f, 4);
            else
                memcpy(dst + 2 * i, &h, 2);
        }
    }
}

void synth_blocks(void *dst, gguf_type type, uint64_t n_block, double scale, synth_rng *r) {
    const gguf_type_info *info = gguf_type_get((uint32_t)type);
    uint8_t *b = dst;
    if (info->cls == GGUF_CLASS_FLOAT) {
        random_floats(b, type, n_block, scale, r);
        return;
    }
    bool signs = leans(type);
    for (uint64_t i = 0; i < n_block; i++, b += info->bytes) {
        uint64_t x = synth_rng_next(r);
        double d = scale * (0.75 + 0.5 * (double)(x >> 40) * 0x1p-24);
        random_bytes(b, info->bytes, r);
        shape_block(b, type, r);
        scale_block(b, type, signs && x & 1 ? -d : d);
    }
}
