/* The definition of rules 1 to 5 of docs/ARITHMETIC.md, one operation a line, from the integer form of
 * block.h. Every other table of products is compared with this one bit for bit; speed is theirs, nothing here
 * is tuned. */
#include "quant/block.h"
#include "quant/quant_int.h"

#include <math.h>

/* ---- rule 1: activations ---- */

/* One block of 32. false when a value is not finite. */
static bool act_block(int8_t *q, float *d, float *s, float *s16, const float *x) {
    float amax = 0;
    for (int i = 0; i < 32; i++) {
        if (!isfinite(x[i])) return false;
        amax = fmaxf(amax, fabsf(x[i]));
    }
    *d = amax / 127.0f;
    if (*d < 0x1p-126f) *d = 0; // a scale that is no normal number: 1 / d could overflow
    float inv = *d > 0 ? 1.0f / *d : 0;
    int sum[2] = {0, 0};
    for (int i = 0; i < 32; i++) {
        float r = rintf(x[i] * inv);
        q[i] = (int8_t)(r > 127 ? 127 : r < -127 ? -127 : r);
        sum[i / 16] += q[i];
    }
    *s = *d * (float)(sum[0] + sum[1]);
    s16[0] = *d * (float)sum[0];
    s16[1] = *d * (float)sum[1];
    return true;
}

static bool act_rows(const quant_act *a, uint32_t act0, uint32_t n_row, uint32_t n_col) {
    bool finite = true;
    for (uint32_t ir = act0; ir < act0 + n_row; ir++) {
        for (uint32_t ib = 0; ib < n_col / 32; ib++) {
            size_t at = (size_t)ir * a->ld + 32 * ib;
            finite &= act_block(a->q + at, a->d + at / 32, a->s + at / 32, a->s16 + at / 16, a->x + at);
        }
    }
    return finite;
}

/* ---- rule 2: one block of weights times one block of activations ---- */

typedef void unpack_fn(quant_block *o, const uint8_t *row, uint32_t ib);

typedef struct block_kind {
    unpack_fn *unpack;
    int n_sub;    // scales in 32 weights
    bool has_min; // has minima
} block_kind;

/* One block of 32 activations. */
typedef struct act_view {
    const int8_t *q;
    float d, s;
    const float *s16;
} act_view;

static act_view act_view_at(const quant_act *a, uint32_t ia, uint32_t ib) {
    size_t at = (size_t)ia * a->ld + 32 * ib;
    return (act_view){a->q + at, a->d[at / 32], a->s[at / 32], a->s16 + at / 16};
}

static int quad_dot(uint32_t w, const int8_t *x) {
    int sum = 0;
    for (int i = 0; i < 4; i++) sum += (int8_t)(w >> 8 * i & 255) * x[i];
    return sum;
}

/* The sum of activations that sub-block h's minimum multiplies. */
static float min_sum(const block_kind *k, const act_view *v, int h) {
    return k->n_sub == 2 ? v->s16[h] : v->s;
}

/* ---- rule 3: token role ---- */

typedef struct token_sum {
    float acc[8][8]; // [block mod 8][group of four]
    float min[8];    // [block mod 8]
} token_sum;

static void token_block_add(token_sum *t, const block_kind *k, const quant_block *b, const act_view *v,
                            uint32_t ib) {
    float *acc = t->acc[ib % 8], *min = &t->min[ib % 8];
    for (int g = 0; g < 8; g++) {
        float scale = b->scale[g / 4] * v->d;
        acc[g] = fmaf(scale, (float)quad_dot(b->q[g], v->q + 4 * g), acc[g]);
    }
    if (!k->has_min) return;
    for (int h = 0; h < k->n_sub; h++) *min = fmaf(b->min[h], min_sum(k, v, h), *min);
}

/* Blocks 2k and 2k + 1, then groups at distance 1, 2, 4, then k at distance 1, 2; minima alike, without
 * groups. */
static float token_sum_tree(const token_sum *t) {
    float u[4], v[4];
    for (int k = 0; k < 4; k++) {
        float p[8];
        for (int g = 0; g < 8; g++) p[g] = t->acc[2 * k][g] + t->acc[2 * k + 1][g];
        u[k] = ((p[0] + p[1]) + (p[2] + p[3])) + ((p[4] + p[5]) + (p[6] + p[7]));
        v[k] = t->min[2 * k] + t->min[2 * k + 1];
    }
    return ((u[0] + u[1]) + (u[2] + u[3])) - ((v[0] + v[1]) + (v[2] + v[3]));
}

/* What all rows of one call share. */
typedef struct product {
    size_t ld_y;
    const quant_act *a;
    uint32_t act0, n_act, n_col;
} product;

/* One row of weights; y is its first output. */
static void token_row(float *y, const product *p, const block_kind *k, const uint8_t *row) {
    for (uint32_t ia = 0; ia < p->n_act; ia++) y[ia * p->ld_y] = 0;
    for (uint32_t is = 0; is < quant_segment_n(p->n_col); is++) {
        token_sum t[QUANT_TOKEN_ROWS_MAX] = {0};
        uint32_t begin, end;
        quant_segment_get(&begin, &end, is, p->n_col);
        for (uint32_t ib = begin / 32; ib < end / 32; ib++) {
            quant_block b;
            k->unpack(&b, row, ib);
            for (uint32_t ia = 0; ia < p->n_act; ia++) {
                act_view v = act_view_at(p->a, p->act0 + ia, ib);
                token_block_add(&t[ia], k, &b, &v, ib);
            }
        }
        for (uint32_t ia = 0; ia < p->n_act; ia++) y[ia * p->ld_y] += token_sum_tree(&t[ia]);
    }
}

/* ---- rule 4: prompt role ---- */

static float prompt_block_add(float acc, const block_kind *k, const quant_block *b, const act_view *v) {
    int group_n = 8 / k->n_sub;
    for (int h = 0; h < k->n_sub; h++) {
        int sum = 0;
        for (int g = h * group_n; g < (h + 1) * group_n; g++) sum += quad_dot(b->q[g], v->q + 4 * g);
        acc = fmaf(b->scale[h] * v->d, (float)sum, acc);
        if (k->has_min) acc = fmaf(-b->min[h], min_sum(k, v, h), acc);
    }
    return acc;
}

static void prompt_row(float *y, const product *p, const block_kind *k, const uint8_t *row) {
    for (uint32_t ia = 0; ia < p->n_act; ia++) y[ia * p->ld_y] = 0;
    for (uint32_t ib = 0; ib < p->n_col / 32; ib++) {
        quant_block b;
        k->unpack(&b, row, ib);
        for (uint32_t ia = 0; ia < p->n_act; ia++) {
            act_view v = act_view_at(p->a, p->act0 + ia, ib);
            y[ia * p->ld_y] = prompt_block_add(y[ia * p->ld_y], k, &b, &v);
        }
    }
}

/* ---- rule 5: float weights ---- */

typedef float load_fn(const uint8_t *row, uint32_t col);

static float load_f32(const uint8_t *row, uint32_t col) {
    return bits_f32(load_u32(row + (size_t)col * 4));
}
static float load_f16(const uint8_t *row, uint32_t col) {
    return f16_to_f32(load_u16(row + (size_t)col * 2));
}
static float load_bf16(const uint8_t *row, uint32_t col) {
    return bf16_to_f32(load_u16(row + (size_t)col * 2));
}

/* 64 accumulators by column mod 64, then the tree at distance 1, 2, 4, 8, 16, 32. */
static float token_float_segment(load_fn *load, const uint8_t *row, const float *x, uint32_t begin,
                                 uint32_t end) {
    float acc[64] = {0};
    for (uint32_t c = begin; c < end; c++) acc[c % 64] = fmaf(load(row, c), x[c], acc[c % 64]);
    for (int n = 1; n < 64; n *= 2) {
        for (int i = 0; i < 64; i += 2 * n) acc[i] += acc[i + n];
    }
    return acc[0];
}

static float token_float_row(load_fn *load, const uint8_t *row, const float *x, uint32_t n_col) {
    float y = 0;
    for (uint32_t is = 0; is < quant_segment_n(n_col); is++) {
        uint32_t begin, end;
        quant_segment_get(&begin, &end, is, n_col);
        y += token_float_segment(load, row, x, begin, end);
    }
    return y;
}

static float prompt_float_row(load_fn *load, const uint8_t *row, const float *x, uint32_t n_col) {
    float y = 0;
    for (uint32_t c = 0; c < n_col; c++) y = fmaf(load(row, c), x[c], y);
    return y;
}

/* ---- the table ---- */

#define TOKEN_ARGS                                                                                           \
    float *y, size_t ld_y, const void *w, size_t row_bytes, const quant_act *a, uint32_t act0,               \
        uint32_t n_act, uint32_t n_row, uint32_t n_col

#define QUANT_ROWS(do_row, kind)                                                                             \
    product p = {ld_y, a, act0, n_act, n_col};                                                               \
    for (uint32_t ir = 0; ir < n_row; ir++) do_row(y + ir, &p, &kind, (const uint8_t *)w + ir * row_bytes)

#define FLOAT_ROWS(do_row, load)                                                                             \
    for (uint32_t ir = 0; ir < n_row; ir++) {                                                                \
        for (uint32_t ia = 0; ia < n_act; ia++) {                                                            \
            const float *x = a->x + (size_t)(act0 + ia) * a->ld;                                             \
            y[ia * ld_y + ir] = do_row(load, (const uint8_t *)w + ir * row_bytes, x, n_col);                 \
        }                                                                                                    \
    }

#define QUANT_KERNELS(TYPE, name, n_sub, has_min)                                                            \
    static const block_kind kind_##name = {quant_unpack_##name, n_sub, has_min};                             \
    static void token_##name(TOKEN_ARGS) {                                                                   \
        quant_calls_add(CPU_SCALAR, false, GGUF_##TYPE);                                                     \
        QUANT_ROWS(token_row, kind_##name);                                                                  \
    }                                                                                                        \
    static void prompt_##name(TOKEN_ARGS, void *scratch) {                                                   \
        (void)scratch;                                                                                       \
        quant_calls_add(CPU_SCALAR, true, GGUF_##TYPE);                                                      \
        QUANT_ROWS(prompt_row, kind_##name);                                                                 \
    }

#define FLOAT_KERNELS(TYPE, name)                                                                            \
    static void token_##name(TOKEN_ARGS) {                                                                   \
        quant_calls_add(CPU_SCALAR, false, GGUF_##TYPE);                                                     \
        FLOAT_ROWS(token_float_row, load_##name);                                                            \
    }                                                                                                        \
    static void prompt_##name(TOKEN_ARGS, void *scratch) {                                                   \
        (void)scratch;                                                                                       \
        quant_calls_add(CPU_SCALAR, true, GGUF_##TYPE);                                                      \
        FLOAT_ROWS(prompt_float_row, load_##name);                                                           \
    }

QUANT_TYPES(QUANT_KERNELS)
FLOAT_KERNELS(F32, f32)
FLOAT_KERNELS(F16, f16)
FLOAT_KERNELS(BF16, bf16)

#define TOKEN_ENTRY(TYPE, name, n_sub, has_min) [GGUF_##TYPE] = token_##name,
#define PROMPT_ENTRY(TYPE, name, n_sub, has_min) [GGUF_##TYPE] = prompt_##name,

const quant_ops quant_ops_scalar = {
    .name = "scalar",
    .act_rows = act_rows,
    .token =
        {[GGUF_F32] = token_f32, [GGUF_F16] = token_f16, [GGUF_BF16] = token_bf16, QUANT_TYPES(TOKEN_ENTRY)},
    .prompt = {[GGUF_F32] = prompt_f32,
               [GGUF_F16] = prompt_f16,
               [GGUF_BF16] = prompt_bf16,
               QUANT_TYPES(PROMPT_ENTRY)},
};
