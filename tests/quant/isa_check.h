/* A table of products against the scalar definition, bit for bit: every type, both roles, ragged lengths,
 * weights at odd addresses, extremes; guard words around outputs, and counters that prove each type's own
 * kernel ran. */
#ifndef MICA_TESTS_ISA_CHECK_H
#define MICA_TESTS_ISA_CHECK_H

#include "check.h"

#include "base/half.h"
#include "base/mem.h"
#include "gguf/type.h"
#include "quant/quant.h"

#include <math.h>

static const char *g_seed_note = "";
static uint64_t g_seed = 20261130;

static uint32_t rand_below(uint64_t *s, uint32_t n) {
    return (uint32_t)((test_rand(s) >> 33) % n);
}

/* What the bytes of weights and activations are. */
typedef enum fill_kind {
    FILL_RANDOM,
    FILL_WIDE,
    FILL_ALL_ZERO,
    FILL_ALL_ONES,
    FILL_ALL_80,
    FILL_KIND_N
} fill_kind;

/* An f16 scale: ordinary, or (wide) any finite number, denormals and both zeros included. */
static uint16_t rand_f16(fill_kind kind, uint64_t *s) {
    if (kind != FILL_WIDE) return f32_to_f16(0.02f * test_randf(s));
    uint16_t h = (uint16_t)(test_rand(s) >> 40);
    return (h & 0x7C00) == 0x7C00 ? (uint16_t)(h & 0x83FF) : h;
}

/* Where the f16 numbers of a block are; -1 ends the list. */
static const int8_t g_f16_at[GGUF_TYPE_N][3] = {
    [GGUF_Q4_0] = {0, -1},    [GGUF_Q4_1] = {0, 2, -1},   [GGUF_Q5_0] = {0, -1},   [GGUF_Q5_1] = {0, 2, -1},
    [GGUF_Q8_0] = {0, -1},    [GGUF_Q2_K] = {80, 82, -1}, [GGUF_Q3_K] = {108, -1}, [GGUF_Q4_K] = {0, 2, -1},
    [GGUF_Q5_K] = {0, 2, -1}, [GGUF_IQ2_XXS] = {0, -1},   [GGUF_IQ2_XS] = {0, -1}, [GGUF_IQ3_XXS] = {0, -1},
    [GGUF_IQ1_S] = {0, -1},   [GGUF_IQ4_NL] = {0, -1},    [GGUF_IQ3_S] = {0, -1},  [GGUF_IQ2_S] = {0, -1},
    [GGUF_IQ4_XS] = {0, -1},  [GGUF_TQ1_0] = {52, -1},    [GGUF_TQ2_0] = {64, -1}, [GGUF_Q1_0] = {0, -1},
    [GGUF_Q2_0] = {0, -1},    [GGUF_MXFP4] = {-1},        [GGUF_NVFP4] = {-1},     [GGUF_IQ1_M] = {-1},
    [GGUF_F32] = {-1},        [GGUF_F16] = {-1},          [GGUF_BF16] = {-1},      [GGUF_Q6_K] = {-2},
};

static void block_fill(uint8_t *p, const gguf_type_info *t, gguf_type type, fill_kind kind, uint64_t *s) {
    for (int i = 0; i < t->bytes; i++) {
        p[i] = kind == FILL_ALL_ZERO   ? 0
               : kind == FILL_ALL_ONES ? 0xFF
               : kind == FILL_ALL_80   ? 0x80
                                       : (uint8_t)(test_rand(s) >> 24);
    }
    float f = ldexpf(test_randf(s), kind == FILL_WIDE ? (int)rand_below(s, 20) - 14 : 0);
    uint16_t h = rand_f16(kind, s);
    switch (type) {
    case GGUF_F32: memcpy(p, &f, 4); return;
    case GGUF_F16: memcpy(p, &h, 2); return;
    case GGUF_BF16: memcpy(p, &(uint16_t){f32_to_bf16(f)}, 2); return;
    case GGUF_MXFP4: p[0] = kind == FILL_WIDE ? p[0] % 200 : (uint8_t)(118 + p[0] % 8); return;
    case GGUF_NVFP4: return;
    case GGUF_IQ1_M:
        for (int i = 0; i < 4; i++) p[49 + 2 * i] = (uint8_t)((p[49 + 2 * i] & 15) | (h >> 4 * i & 15) << 4);
        return;
    case GGUF_Q6_K: memcpy(p + 208, &h, 2); return;
    default:
        for (const int8_t *at = g_f16_at[type]; *at >= 0; at++) {
            memcpy(p + *at, &h, 2);
            h = rand_f16(kind, s);
        }
    }
}

typedef struct weights {
    uint8_t *base, *w; // w at an odd distance from base, and the last row ends where the memory does
    size_t row_bytes;
} weights;

static weights weights_new(gguf_type type, uint32_t n_row, uint32_t n_col, fill_kind kind, uint64_t *s) {
    const gguf_type_info *t = gguf_type_get(type);
    weights r = {.row_bytes = (size_t)gguf_row_bytes(t, n_col)};
    size_t skip = 1 + 2 * rand_below(s, 16);
    r.base = mem_alloc(skip + n_row * r.row_bytes);
    r.w = r.base + skip;
    for (size_t i = 0; i < n_row * r.row_bytes; i += t->bytes) block_fill(r.w + i, t, type, kind, s);
    return r;
}

static quant_act act_new(uint32_t n_row, uint32_t ld) {
    return (quant_act){mem_calloc((size_t)n_row * ld, 4),      mem_calloc((size_t)n_row * ld, 1),
                       mem_calloc((size_t)n_row * ld / 32, 4), mem_calloc((size_t)n_row * ld / 32, 4),
                       mem_calloc((size_t)n_row * ld / 16, 4), ld};
}

static void act_free(quant_act *a) {
    mem_free(a->x);
    mem_free(a->q);
    mem_free(a->d);
    mem_free(a->s);
    mem_free(a->s16);
}

/* Bytes in -127..127, or all 127, -127, or those in turn; past n_col what must not be used. */
static quant_act act_fill(uint32_t n_row, uint32_t n_col, fill_kind kind, uint64_t *s) {
    uint32_t ld = (n_col + 63) / 64 * 64 + 64 * rand_below(s, 3);
    quant_act a = act_new(n_row, ld);
    uint32_t extreme = rand_below(s, 3);
    for (size_t i = 0; i < (size_t)n_row * ld; i++) {
        int q = (int)rand_below(s, 255) - 127;
        if (kind >= FILL_ALL_ZERO) q = extreme == 0 ? 127 : extreme == 1 ? -127 : (i & 1) ? 127 : -127;
        a.q[i] = (int8_t)q;
        a.x[i] =
            i % ld < n_col ? ldexpf(test_randf(s), kind == FILL_WIDE ? (int)rand_below(s, 40) - 20 : 0) : NAN;
    }
    for (size_t i = 0; i < (size_t)n_row * ld / 32; i++) {
        int sum[2] = {0, 0};
        for (size_t k = 0; k < 32; k++) sum[k / 16] += a.q[32 * i + k];
        bool past = 32 * i % ld >= n_col;
        float d = ldexpf(0.51f + 0.49f * test_randf(s), kind == FILL_WIDE ? (int)rand_below(s, 40) - 30 : -6);
        a.d[i] = past ? NAN : d;
        a.s[i] = a.d[i] * (float)(sum[0] + sum[1]);
        a.s16[2 * i] = a.d[i] * (float)sum[0];
        a.s16[2 * i + 1] = a.d[i] * (float)sum[1];
    }
    return a;
}

typedef struct shape {
    gguf_type type;
    bool prompt;
    uint32_t n_row, n_act, n_col;
    fill_kind kind;
} shape;

static const float GUARD = -7.25e33f;

typedef struct inputs {
    weights w;
    quant_act a;
    uint32_t act0;
    void *scratch;
} inputs;

static void run(const quant_ops *ops, float *y, size_t ld_y, const shape *h, const inputs *in) {
    const weights *w = &in->w;
    if (h->prompt) {
        ops->prompt[h->type](y, ld_y, w->w, w->row_bytes, &in->a, in->act0, h->n_act, h->n_row, h->n_col,
                             in->scratch);
    } else {
        ops->token[h->type](y, ld_y, w->w, w->row_bytes, &in->a, in->act0, h->n_act, h->n_row, h->n_col);
    }
}

/* Outputs and the guards around them; the guards are checked here. */
static bool same(const float *want, const float *got, const shape *h, size_t ld_y, size_t n) {
    for (size_t i = 0; i < n; i++) {
        bool out = i >= 16 && (i - 16) / ld_y < h->n_act && (i - 16) % ld_y < h->n_row;
        float expected = out ? want[i] : GUARD;
        if (memcmp(&expected, &got[i], 4) == 0) continue;
        print_error("%s %s n_col %u n_row %u n_act %u kind %d: %s %zu: want %a, got %a %s\n",
                    gguf_type_get(h->type)->name, h->prompt ? "prompt" : "token", h->n_col, h->n_row,
                    h->n_act, (int)h->kind, out ? "output" : "guard", i - 16, (double)expected,
                    (double)got[i], g_seed_note);
        return false;
    }
    return true;
}

static void compare(cpu_isa isa, const shape *h) {
    uint64_t s = g_seed++ * 0x9E3779B97F4A7C15ull | 1;
    inputs in = {.act0 = rand_below(&s, 3)};
    in.w = weights_new(h->type, h->n_row, h->n_col, h->kind, &s);
    in.a = act_fill(in.act0 + h->n_act, h->n_col, h->kind, &s);
    in.scratch = mem_alloc_aligned(64, quant_prompt_scratch_bytes(h->n_col));
    memset(in.scratch, 0xA5, quant_prompt_scratch_bytes(h->n_col));
    size_t ld_y = h->n_row + rand_below(&s, 5), n = 16 + h->n_act * ld_y + 16;
    float *want = mem_alloc(n * 4), *got = mem_alloc(n * 4);
    for (size_t i = 0; i < n; i++) want[i] = got[i] = GUARD;
    run(quant_ops_get(CPU_SCALAR), want + 16, ld_y, h, &in);
    uint64_t before[CPU_ISA_N];
    for (int i = 0; i < CPU_ISA_N; i++) before[i] = quant_calls((cpu_isa)i, h->prompt, h->type);
    run(quant_ops_get(isa), got + 16, ld_y, h, &in);
    for (int i = 0; i < CPU_ISA_N; i++) {
        CHECK(quant_calls((cpu_isa)i, h->prompt, h->type) == before[i] + (i == (int)isa));
    }
    CHECK(same(want, got, h, ld_y, n));
    mem_free(want);
    mem_free(got);
    mem_free(in.scratch);
    mem_free(in.w.base);
    act_free(&in.a);
}

/* A random length of about 1 to 12 blocks, or a given number of columns rounded to what the type allows. */
static uint32_t col_round(gguf_type type, uint32_t n_col) {
    const gguf_type_info *t = gguf_type_get(type);
    uint32_t unit = t->block > 1 ? t->block : 1;
    return n_col < unit ? unit : n_col / unit * unit;
}

static void compare_type(cpu_isa isa, gguf_type type) {
    static const uint32_t cols[] = {1,   32,   64,   96,   224,  256,  288, 480,
                                    544, 1056, 2048, 4096, 4128, 4608, 8448};
    for (size_t i = 0; i < sizeof cols / sizeof *cols; i++) {
        uint64_t s = g_seed + i;
        fill_kind kind = (fill_kind)(i % 2);
        uint32_t odd = gguf_type_get(type)->block == 1 ? rand_below(&s, 9) : 0,
                 n_col = col_round(type, cols[i] + odd);
        uint32_t few = n_col > 2048 ? 2 : 1;
        compare(isa, &(shape){type, false, 1 + rand_below(&s, 33) / few, 1, n_col, kind});
        compare(isa, &(shape){type, false, 1 + rand_below(&s, 17) / few, 2 + (uint32_t)i % 7, n_col, kind});
        compare(isa, &(shape){type, true, 1 + rand_below(&s, 33) / few, 1 + rand_below(&s, 70) / (few * few),
                              n_col, kind});
        compare(isa, &(shape){type, true, 1 + (uint32_t)i, 1 + (uint32_t)i, n_col, kind});
    }
    for (int kind = FILL_ALL_ZERO; kind < FILL_KIND_N; kind++) {
        for (int i = 0; i < 4; i++) {
            uint32_t n_col = col_round(type, 1120);
            compare(isa, &(shape){type, false, 3, i & 1 ? 5 : 1, n_col, (fill_kind)kind});
            compare(isa, &(shape){type, true, 17, 5, n_col, (fill_kind)kind});
        }
    }
}

static inline void compare_all(cpu_isa isa) {
    char note[64];
    snprintf(note, sizeof note, "(seed %llu)", (unsigned long long)g_seed);
    g_seed_note = note;
    for (int type = 0; type < GGUF_TYPE_N; type++) {
        const gguf_type_info *t = gguf_type_get((uint32_t)type);
        if (t && (t->cls == GGUF_CLASS_FLOAT || t->cls == GGUF_CLASS_QUANT))
            compare_type(isa, (gguf_type)type);
    }
    g_seed_note = "";
}

/* Each table has a kernel of its own for every type and role, and none that another table or type has. */
static inline void tables_are_whole(cpu_isa isa) {
    const quant_ops *ops = quant_ops_get(isa), *def = quant_ops_get(CPU_SCALAR);
    CHECK(strcmp(ops->name, cpu_isa_name(isa)) == 0);
    for (uint32_t i = 0; i < GGUF_TYPE_N; i++) {
        const gguf_type_info *t = gguf_type_get(i);
        bool weight = t && (t->cls == GGUF_CLASS_FLOAT || t->cls == GGUF_CLASS_QUANT);
        CHECK(weight == (ops->token[i] != NULL) && weight == (ops->prompt[i] != NULL));
        CHECK(!weight || (ops->token[i] != def->token[i] && ops->prompt[i] != def->prompt[i]));
        for (uint32_t k = 0; weight && k < i; k++)
            CHECK(ops->token[i] != ops->token[k] && ops->prompt[i] != ops->prompt[k]);
    }
}

/* ---- activations ------------------------------------------------------------------------------------ */

/* A block of one of several characters. */
static void act_block_fill(float x[32], uint32_t character, uint64_t *s) {
    for (int i = 0; i < 32; i++) {
        float r = test_randf(s);
        switch (character) {
        case 0: x[i] = r; break;
        case 1: x[i] = 0; break;
        case 2:
            x[i] = ldexpf(r, -120 - (int)rand_below(s, 30));
            break; // scales near and below the normal ones
        case 3: x[i] = ldexpf(r, 120); break;
        case 4: x[i] = i == 5 ? 127 : (float)((int)rand_below(s, 254) - 127) + 0.5f; break; // ties
        case 5: x[i] = i == 31 ? -3.0e38f : ldexpf(r, (int)rand_below(s, 60) - 30); break;
        case 6: x[i] = i % 2 ? -0.0f : 0x1p-149f; break;
        default: x[i] = ldexpf(r, (int)rand_below(s, 8)); break;
        }
    }
}

static void act_compare(cpu_isa isa, uint32_t n_row, uint32_t n_col, uint64_t *s) {
    uint32_t ld = (n_col + 63) / 64 * 64;
    quant_act want = act_new(n_row + 2, ld), got = act_new(n_row + 2, ld);
    for (size_t i = 0; i < (size_t)(n_row + 2) * ld / 32; i++)
        act_block_fill(want.x + 32 * i, rand_below(s, 8), s);
    memcpy(got.x, want.x, (size_t)(n_row + 2) * ld * 4);
    CHECK(quant_ops_get(CPU_SCALAR)->act_rows(&want, 1, n_row, n_col));
    CHECK(quant_ops_get(isa)->act_rows(&got, 1, n_row, n_col));
    size_t n = (size_t)(n_row + 2) * ld; // the rows around stay zero on both sides
    CHECK(memcmp(want.q, got.q, n) == 0);
    CHECK(memcmp(want.d, got.d, n / 32 * 4) == 0);
    CHECK(memcmp(want.s, got.s, n / 32 * 4) == 0);
    CHECK(memcmp(want.s16, got.s16, n / 16 * 4) == 0);
    act_free(&want);
    act_free(&got);
}

static inline void act_all(cpu_isa isa) {
    uint64_t s = 7;
    for (int i = 0; i < 60; i++) act_compare(isa, 1 + rand_below(&s, 4), 32 * (1 + rand_below(&s, 40)), &s);
    quant_act a = act_new(1, 64);
    static const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 64; i++) {
        a.x[i] = bad[i % 4];
        CHECK(!quant_ops_get(isa)->act_rows(&a, 0, 1, 64));
        a.x[i] = i % 2 ? 3.4028235e38f : -1;
        CHECK(quant_ops_get(isa)->act_rows(&a, 0, 1, 64));
    }
    act_free(&a);
}
#endif
