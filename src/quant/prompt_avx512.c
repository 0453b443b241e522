/* The prompt role (docs/ARITHMETIC.md rules 2, 4, 5) with AVX-512 and VNNI: panels of 16 weight rows
 * (panel_avx2.h), two side by side, meet tiles of activation rows. A register holds four columns of 16 weight
 * rows, a lane is a weight row.
 *
 * One core serves every quantised type. Weights are the signed factor of the dot-product instruction,
 * activations the unsigned one, as x + 128; an integer sum therefore starts at -128 * (sum of the sub-block's
 * weights), which the panel keeps. It also starts at 0x4B400000: read as a float that is 1.5 * 2^23, so that
 * one subtraction turns the sum (under 2^22: 32 * 127 * 128) into a float exactly. */
#include "quant/kernels.h"
#include "quant/panel_avx2.h"
#include "quant/unpack_avx2.h"

#include <assert.h>

enum { MAGIC = 0x4B400000, PANELS = 2, TILE = 6, FLOAT_TILE = 8 };

typedef struct prompt_job {
    float *y;
    size_t ld_y;
    const uint8_t *w;
    size_t row_bytes;
    const quant_act *a;
    uint32_t act0, n_act, n_row, n_col;
} prompt_job;

typedef struct prompt_scratch {
    quant_panel panel[PANELS];
    _Alignas(64) uint8_t x[TILE][PANEL_COLS]; // activations of a tile + 128
} prompt_scratch;
static_assert(sizeof(prompt_scratch) <= QUANT_SCRATCH_BYTES, "panels too large");
static_assert(sizeof(float_panel) <= QUANT_SCRATCH_BYTES, "panel too large");

/* Panels and up to TILE rows of activations, at the panels' first column. */
typedef struct tile {
    const quant_panel *w; // PANELS of them
    const uint8_t *x[TILE];
    const float *d[TILE], *s[TILE];
    float *y[TILE]; // 16 outputs for each panel, read and written
    int n_block;
} tile;

/* A kind of core: constants in every use. */
typedef struct core_kind {
    int n_sub;
    bool has_min;
    int n_panel, n_act;
} core_kind;

/* Integer sums of sub-block is. */
SIMD void sums_get(__m512i sum[PANELS][TILE], const tile *t, int is, const core_kind k) {
    const int n_group = 8 / k.n_sub;
    UNROLL
    for (int r = 0; r < k.n_panel; r++) {
        UNROLL
        for (int a = 0; a < k.n_act; a++) sum[r][a] = _mm512_load_si512(t->w[r].start[is]);
    }
    UNROLL
    for (int g = 0; g < n_group; g++) {
        int at = is * n_group + g;
        __m512i w[PANELS];
        UNROLL
        for (int r = 0; r < k.n_panel; r++) w[r] = _mm512_load_si512(t->w[r].q[at]);
        UNROLL
        for (int a = 0; a < k.n_act; a++) {
            __m512i x = _mm512_set1_epi32((int)load_u32(t->x[a] + 4 * at));
            UNROLL
            for (int r = 0; r < k.n_panel; r++) sum[r][a] = _mm512_dpbusd_epi32(sum[r][a], x, w[r]);
        }
    }
}

/* Sub-block is of activation row a, added to its outputs. */
SIMD void sums_add(__m512 y[PANELS][TILE], __m512i sum[PANELS][TILE], const tile *t, int is,
                   const core_kind k, int a) {
    __m512 d = _mm512_set1_ps(t->d[a][is / k.n_sub]);
    UNROLL
    for (int r = 0; r < k.n_panel; r++) {
        __m512 f = _mm512_sub_ps(_mm512_castsi512_ps(sum[r][a]), _mm512_set1_ps(0x1.8p23f));
        y[r][a] = _mm512_fmadd_ps(_mm512_mul_ps(_mm512_load_ps(t->w[r].scale[is]), d), f, y[r][a]);
        if (k.has_min) {
            __m512 s = _mm512_set1_ps(t->s[a][is]);
            y[r][a] = _mm512_fmadd_ps(_mm512_load_ps(t->w[r].min[is]), s, y[r][a]);
        }
    }
}

SIMD void core_run(const tile *t, const core_kind k) {
    __m512 y[PANELS][TILE];
    UNROLL
    for (int r = 0; r < k.n_panel; r++) {
        UNROLL
        for (int a = 0; a < k.n_act; a++) y[r][a] = _mm512_loadu_ps(t->y[a] + PANEL_ROWS * r);
    }
    for (int is = 0; is < t->n_block * k.n_sub; is++) {
        __m512i sum[PANELS][TILE];
        sums_get(sum, t, is, k);
        UNROLL
        for (int a = 0; a < k.n_act; a++) sums_add(y, sum, t, is, k, a);
    }
    UNROLL
    for (int r = 0; r < k.n_panel; r++) {
        UNROLL
        for (int a = 0; a < k.n_act; a++) _mm512_storeu_ps(t->y[a] + PANEL_ROWS * r, y[r][a]);
    }
}

/* Cores by scales in 32 weights, minima, panels and rows of activations. */
typedef void core_fn(const tile *t);

#define CORE_FN(n_sub, min, n_panel, n_act)                                                                  \
    static void core_##n_sub##_##min##_##n_panel##_##n_act(const tile *t) {                                  \
        core_run(t, (core_kind){n_sub, min, n_panel, n_act});                                                \
    }
#define CORE_FNS(n_sub, min)                                                                                 \
    CORE_FN(n_sub, min, 1, 1)                                                                                \
    CORE_FN(n_sub, min, 1, 2)                                                                                \
    CORE_FN(n_sub, min, 1, 6) CORE_FN(n_sub, min, 2, 1) CORE_FN(n_sub, min, 2, 2) CORE_FN(n_sub, min, 2, 6)
CORE_FNS(1, 0)
CORE_FNS(1, 1)
CORE_FNS(2, 0)
CORE_FNS(2, 1)

#define CORE_ROW(n_sub, min, n_panel)                                                                        \
    {                                                                                                        \
        core_##n_sub##_##min##_##n_panel##_1, core_##n_sub##_##min##_##n_panel##_2,                          \
            core_##n_sub##_##min##_##n_panel##_6                                                             \
    }
#define CORE_ROWS(n_sub, min)                                                                                \
    { CORE_ROW(n_sub, min, 1), CORE_ROW(n_sub, min, 2) }
static core_fn *const g_core[2][2][PANELS][3] = {
    {CORE_ROWS(1, 0), CORE_ROWS(1, 1)},
    {CORE_ROWS(2, 0), CORE_ROWS(2, 1)},
};
static const uint32_t g_tile[3] = {1, 2, TILE};

/* ---- panels times activations
 * --------------------------------------------------------------------------------------------- */

/* Rows and columns of a job that meet in one go. */
typedef struct part {
    uint32_t row0, n_row, col0, n_col, n_panel;
} part;

/* Activation rows ia .. ia + n of the job as a tile; outputs of incomplete panels through `ends`. */
static void tile_fill(tile *t, prompt_scratch *s, const prompt_job *b, const part *p, uint32_t ia,
                      uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        size_t at = (size_t)(b->act0 + ia + i) * b->a->ld + p->col0;
        t->x[i] = s->x[i];
        t->d[i] = b->a->d + at / 32;
        for (uint32_t c = 0; c < p->n_col; c += 32) {
            __m256i q = _mm256_xor_si256(load256(b->a->q + at + c), bytes_all(0x80));
            _mm256_store_si256((__m256i *)(void *)(s->x[i] + c), q);
        }
    }
}

static void part_run(const prompt_job *b, const part *p, int n_sub, core_fn *const core[3],
                     prompt_scratch *s) {
    float ends[TILE][PANELS * PANEL_ROWS]; // outputs of incomplete panels
    bool whole = p->n_row == p->n_panel * PANEL_ROWS;
    tile t = {.w = s->panel, .n_block = (int)(p->n_col / 32)};
    for (uint32_t ia = 0, n = 0; ia < b->n_act; ia += n) {
        int size = b->n_act - ia >= TILE ? 2 : b->n_act - ia >= 2 ? 1 : 0;
        n = g_tile[size];
        tile_fill(&t, s, b, p, ia, n);
        for (uint32_t i = 0; i < n; i++) {
            size_t at = (size_t)(b->act0 + ia + i) * b->a->ld + p->col0;
            t.s[i] = n_sub == 2 ? b->a->s16 + at / 16 : b->a->s + at / 32;
            float *y = b->y + (ia + i) * b->ld_y + p->row0;
            t.y[i] = whole ? y : ends[i];
            if (p->col0 == 0)
                memset(t.y[i], 0, p->n_panel * PANEL_ROWS * sizeof(float));
            else if (!whole)
                memcpy(ends[i], y, p->n_row * sizeof(float));
        }
        core[size](&t);
        for (uint32_t i = 0; i < n && !whole; i++) {
            memcpy(b->y + (ia + i) * b->ld_y + p->row0, ends[i], p->n_row * sizeof(float));
        }
    }
}

static uint32_t least(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

static void prompt_run(const prompt_job *b, gguf_type type, int n_sub, bool has_min, void *scratch) {
    prompt_scratch *s = scratch;
    for (uint32_t row0 = 0; row0 < b->n_row; row0 += PANELS * PANEL_ROWS) {
        part p = {.row0 = row0, .n_row = least(b->n_row - row0, PANELS * PANEL_ROWS)};
        p.n_panel = (p.n_row + PANEL_ROWS - 1) / PANEL_ROWS;
        for (p.col0 = 0; p.col0 < b->n_col; p.col0 += PANEL_COLS) {
            p.n_col = least(b->n_col - p.col0, PANEL_COLS);
            for (uint32_t r = 0; r < p.n_panel; r++) {
                uint32_t first = row0 + r * PANEL_ROWS;
                panel_source from = {b->w + first * b->row_bytes, b->row_bytes,
                                     least(b->n_row - first, PANEL_ROWS), p.col0, p.n_col};
                quant_panel_fill(&s->panel[r], type, &from);
                quant_panel_start_fill(&s->panel[r], n_sub, p.n_col, MAGIC);
            }
            part_run(b, &p, n_sub, g_core[n_sub - 1][has_min][p.n_panel - 1], s);
        }
    }
}

#define PROMPT_KERNEL(TYPE, name, n_sub, has_min)                                                            \
    void quant_prompt_avx512_##name(float *y, size_t ld_y, const void *w, size_t row_bytes,                  \
                                    const quant_act *a, uint32_t act0, uint32_t n_act, uint32_t n_row,       \
                                    uint32_t n_col, void *scratch) {                                         \
        prompt_job job = {y, ld_y, w, row_bytes, a, act0, n_act, n_row, n_col};                              \
        quant_calls_add(CPU_AVX512, true, GGUF_##TYPE);                                                      \
        prompt_run(&job, GGUF_##TYPE, n_sub, has_min, scratch);                                              \
    }
QUANT_TYPES(PROMPT_KERNEL)

/* ---- float weights
 * --------------------------------------------------------------------------------------------------
 */

typedef struct float_tile {
    const float_panel *w;
    const float *x[FLOAT_TILE];
    float *y[FLOAT_TILE];
    uint32_t n_col;
} float_tile;

SIMD void float_core_run(const float_tile *t, int n_act) {
    __m512 y[FLOAT_TILE];
    UNROLL
    for (int a = 0; a < n_act; a++) y[a] = _mm512_loadu_ps(t->y[a]);
    for (uint32_t c = 0; c < t->n_col; c++) {
        __m512 w = _mm512_load_ps(t->w->w[c]);
        UNROLL
        for (int a = 0; a < n_act; a++) y[a] = _mm512_fmadd_ps(w, _mm512_set1_ps(t->x[a][c]), y[a]);
    }
    UNROLL
    for (int a = 0; a < n_act; a++) _mm512_storeu_ps(t->y[a], y[a]);
}

static void float_core(const float_tile *t, uint32_t n_act) {
    switch (n_act) {
    case 1: float_core_run(t, 1); break;
    case 2: float_core_run(t, 2); break;
    case 3: float_core_run(t, 3); break;
    case 4: float_core_run(t, 4); break;
    case 5: float_core_run(t, 5); break;
    case 6: float_core_run(t, 6); break;
    case 7: float_core_run(t, 7); break;
    default: float_core_run(t, 8); break;
    }
}

static void float_part_run(const prompt_job *b, const part *p, const float_panel *panel) {
    float ends[FLOAT_TILE][PANEL_ROWS]; // outputs of an incomplete panel
    bool whole = p->n_row == PANEL_ROWS;
    float_tile t = {.w = panel, .n_col = p->n_col};
    for (uint32_t ia = 0, n = 0; ia < b->n_act; ia += n) {
        n = least(b->n_act - ia, FLOAT_TILE);
        for (uint32_t i = 0; i < n; i++) {
            t.x[i] = b->a->x + (size_t)(b->act0 + ia + i) * b->a->ld + p->col0;
            float *y = b->y + (ia + i) * b->ld_y + p->row0;
            t.y[i] = whole ? y : ends[i];
            if (p->col0 == 0)
                memset(t.y[i], 0, PANEL_ROWS * sizeof(float));
            else if (!whole)
                memcpy(ends[i], y, p->n_row * sizeof(float));
        }
        float_core(&t, n);
        for (uint32_t i = 0; i < n && !whole; i++) {
            memcpy(b->y + (ia + i) * b->ld_y + p->row0, ends[i], p->n_row * sizeof(float));
        }
    }
}

static void prompt_float_run(const prompt_job *b, gguf_type type, void *scratch) {
    float_panel *panel = scratch;
    for (uint32_t row0 = 0; row0 < b->n_row; row0 += PANEL_ROWS) {
        part p = {.row0 = row0, .n_row = least(b->n_row - row0, PANEL_ROWS), .n_panel = 1};
        for (p.col0 = 0; p.col0 < b->n_col; p.col0 += FLOAT_PANEL_COLS) {
            p.n_col = least(b->n_col - p.col0, FLOAT_PANEL_COLS);
            panel_source from = {b->w + row0 * b->row_bytes, b->row_bytes, p.n_row, p.col0, p.n_col};
            quant_float_panel_fill(panel, type, &from);
            float_part_run(b, &p, panel);
        }
    }
}

#define PROMPT_FLOAT_KERNEL(TYPE, name)                                                                      \
    void quant_prompt_avx512_##name(float *y, size_t ld_y, const void *w, size_t row_bytes,                  \
                                    const quant_act *a, uint32_t act0, uint32_t n_act, uint32_t n_row,       \
                                    uint32_t n_col, void *scratch) {                                         \
        prompt_job job = {y, ld_y, w, row_bytes, a, act0, n_act, n_row, n_col};                              \
        quant_calls_add(CPU_AVX512, true, GGUF_##TYPE);                                                      \
        prompt_float_run(&job, GGUF_##TYPE, scratch);                                                        \
    }
PROMPT_FLOAT_KERNEL(F32, f32)
PROMPT_FLOAT_KERNEL(F16, f16)
PROMPT_FLOAT_KERNEL(BF16, bf16)
