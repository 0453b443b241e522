/* The prompt role (docs/ARITHMETIC.md rules 2, 4, 5) with AVX2: a panel of 16 weight rows (panel_avx2.h)
 * meets tiles of activation rows. Lanes are weight rows; each output has one accumulator that sees its
 * sub-blocks left to right.
 *
 * Integer sums of a sub-block are exact. Byte products are added in pairs to 16 bits (maddubs), and as many
 * pairs on top of each other as cannot overflow, the "depth", before one step to 32 bits (madd). One factor
 * of maddubs is unsigned, hence three forms:
 * - PLAIN: weights are 0..31 (types with minima): w * x. 8 * 2 * 15 * 127 = 30480, 4 * 2 * 31 * 127 = 31496.
 * - SHIFT: weights are signed and small: (x + 128) * w, and the sum starts at -128 * (sum of w). With |w| <=
 * 8, 16, 32, 64 at depth 8, 4, 2, 1 the sum is at most 2 * 255 * 64 = 32640.
 * - WIDE: weights are whole signed bytes: both factors go to 16 bits, even and odd columns apart, and madd
 * sums those. */
#include "quant/kernels.h"
#include "quant/panel_avx2.h"
#include "quant/unpack_avx2.h"

#include <assert.h>

enum { TILE = 4, FLOAT_TILE = 6 };

typedef enum core_form { FORM_PLAIN, FORM_SHIFT, FORM_WIDE } core_form;

/* The weights of a WIDE panel: for each group of four columns, rows of columns 0 and 2, then of columns 1
 * and 3. */
typedef struct wide_panel {
    _Alignas(64) int16_t q[PANEL_COLS / 4][2][PANEL_ROWS][2];
} wide_panel;

/* Activations of a tile in the form a core reads; the other forms read the caller's. */
typedef union tile_bytes {
    _Alignas(64) uint8_t shift[TILE][PANEL_COLS];       // q + 128
    _Alignas(64) int16_t wide[TILE][2][PANEL_COLS / 2]; // even columns, odd columns
} tile_bytes;

/* A panel and up to TILE rows of activations, at the panel's first column. */
typedef struct tile {
    const quant_panel *w;
    const wide_panel *wide;
    const uint8_t *x[TILE]; // as the form wants them: see tile_bytes
    const float *d[TILE], *s[TILE];
    float *y[TILE]; // 16 outputs, read and written
    int n_block;
} tile;

SIMD __m256i dword_all(const uint8_t *p) {
    return _mm256_set1_epi32((int)load_u32(p));
}
SIMD __m256i load_aligned(const void *p) {
    return _mm256_load_si256((const __m256i *)p);
}

/* The value as it is here: a compiler may reorder integer sums, and does so until their terms fill the stack.
 */
#define KEEP(v) __asm__("" : "+x"(v))

/* A kind of core: constants in every use. */
typedef struct core_kind {
    core_form form;
    int n_sub, depth;
    bool has_min;
} core_kind;

/* ---- integer sums: sum[r][a] of 8 weight rows r and activation row a -------------------------------- */

/* The groups of four columns of sub-block is, in 16 bits for `depth` groups at a time. */
SIMD void sums_bytes(__m256i sum[2][TILE], const tile *t, int is, const core_kind k, int n_act) {
    const __m256i one = _mm256_set1_epi16(1);
    const bool shift = k.form == FORM_SHIFT;
    const int n_group = 8 / k.n_sub;
    UNROLL
    for (int r = 0; r < 2; r++) {
        UNROLL
        for (int a = 0; a < n_act; a++) {
            sum[r][a] = shift ? load_aligned(&t->w->start[is][8 * r]) : _mm256_setzero_si256();
        }
    }
    UNROLL
    for (int g0 = 0; g0 < n_group; g0 += k.depth) {
        __m256i pair[2][TILE];
        UNROLL
        for (int g = 0; g < k.depth; g++) {
            int at = is * n_group + g0 + g;
            __m256i w0 = load_aligned(t->w->q[at][0]), w1 = load_aligned(t->w->q[at][8]);
            UNROLL
            for (int a = 0; a < n_act; a++) {
                __m256i x = dword_all(t->x[a] + 4 * at);
                __m256i p0 = shift ? _mm256_maddubs_epi16(x, w0) : _mm256_maddubs_epi16(w0, x);
                __m256i p1 = shift ? _mm256_maddubs_epi16(x, w1) : _mm256_maddubs_epi16(w1, x);
                pair[0][a] = g == 0 ? p0 : _mm256_add_epi16(pair[0][a], p0);
                pair[1][a] = g == 0 ? p1 : _mm256_add_epi16(pair[1][a], p1);
                KEEP(pair[0][a]);
                KEEP(pair[1][a]);
            }
        }
        UNROLL
        for (int a = 0; a < n_act; a++) {
            sum[0][a] = _mm256_add_epi32(sum[0][a], _mm256_madd_epi16(pair[0][a], one));
            sum[1][a] = _mm256_add_epi32(sum[1][a], _mm256_madd_epi16(pair[1][a], one));
        }
    }
}

SIMD void sums_wide(__m256i sum[2][TILE], const tile *t, int is, int n_act) {
    UNROLL
    for (int i = 0; i < 16; i++) {
        int at = 8 * is + i / 2, odd = i & 1;
        __m256i w0 = load_aligned(t->wide->q[at][odd][0]), w1 = load_aligned(t->wide->q[at][odd][8]);
        UNROLL
        for (int a = 0; a < n_act; a++) {
            __m256i x = dword_all(t->x[a] + 4 * at + PANEL_COLS * odd);
            __m256i p0 = _mm256_madd_epi16(w0, x), p1 = _mm256_madd_epi16(w1, x);
            sum[0][a] = i == 0 ? p0 : _mm256_add_epi32(sum[0][a], p0);
            sum[1][a] = i == 0 ? p1 : _mm256_add_epi32(sum[1][a], p1);
            KEEP(sum[0][a]);
            KEEP(sum[1][a]);
        }
    }
}

/* ---- cores ------------------------------------------------------------------------------------------ */

SIMD void core_run(const tile *t, const core_kind k, int n_act) {
    __m256 y[2][TILE];
    UNROLL
    for (int a = 0; a < n_act; a++) {
        y[0][a] = _mm256_loadu_ps(t->y[a]);
        y[1][a] = _mm256_loadu_ps(t->y[a] + 8);
    }
    for (int is = 0; is < t->n_block * k.n_sub; is++) {
        __m256i sum[2][TILE];
        if (k.form == FORM_WIDE)
            sums_wide(sum, t, is, n_act);
        else
            sums_bytes(sum, t, is, k, n_act);
        __m256 w0 = _mm256_load_ps(t->w->scale[is]), w1 = _mm256_load_ps(t->w->scale[is] + 8);
        UNROLL
        for (int a = 0; a < n_act; a++) {
            __m256 d = _mm256_broadcast_ss(t->d[a] + is / k.n_sub);
            y[0][a] = _mm256_fmadd_ps(_mm256_mul_ps(w0, d), _mm256_cvtepi32_ps(sum[0][a]), y[0][a]);
            y[1][a] = _mm256_fmadd_ps(_mm256_mul_ps(w1, d), _mm256_cvtepi32_ps(sum[1][a]), y[1][a]);
            if (k.has_min) {
                __m256 s = _mm256_broadcast_ss(t->s[a] + is);
                y[0][a] = _mm256_fmadd_ps(_mm256_load_ps(t->w->min[is]), s, y[0][a]);
                y[1][a] = _mm256_fmadd_ps(_mm256_load_ps(t->w->min[is] + 8), s, y[1][a]);
            }
        }
    }
    UNROLL
    for (int a = 0; a < n_act; a++) {
        _mm256_storeu_ps(t->y[a], y[0][a]);
        _mm256_storeu_ps(t->y[a] + 8, y[1][a]);
    }
}

typedef void core_fn(const tile *t);

/* X(name, form, scales in 32 weights, depth, minima, activation rows of a tile) */
#define CORES(X)                                                                                             \
    X(plain_8, FORM_PLAIN, 1, 8, true, 4)                                                                    \
    X(plain_4, FORM_PLAIN, 1, 4, true, 2)                                                                    \
    X(plain_half_4, FORM_PLAIN, 2, 4, true, 4)                                                               \
    X(shift_8, FORM_SHIFT, 1, 8, false, 4)                                                                   \
    X(shift_4, FORM_SHIFT, 1, 4, false, 2)                                                                   \
    X(shift_1, FORM_SHIFT, 1, 1, false, 2)                                                                   \
    X(shift_half_4, FORM_SHIFT, 2, 4, false, 4)                                                              \
    X(shift_half_2, FORM_SHIFT, 2, 2, false, 2)                                                              \
    X(shift_half_1, FORM_SHIFT, 2, 1, false, 2)                                                              \
    X(wide, FORM_WIDE, 1, 0, false, 4)

#define CORE_FN(name, form, n_sub, depth, has_min, n_tile)                                                   \
    static void core_##name##_one(const tile *t) {                                                           \
        core_run(t, (core_kind){form, n_sub, depth, has_min}, 1);                                            \
    }                                                                                                        \
    static void core_##name##_tile(const tile *t) {                                                          \
        core_run(t, (core_kind){form, n_sub, depth, has_min}, n_tile);                                       \
    }
CORES(CORE_FN)

typedef struct core {
    core_form form;
    int n_sub, n_tile;
    core_fn *one, *tile;
} core;

#define CORE_ROW(name, form, n_sub, depth, has_min, n_tile)                                                  \
    static const core core_##name = {form, n_sub, n_tile, core_##name##_one, core_##name##_tile};
CORES(CORE_ROW)

/* ---- panels times activations ----------------------------------------------------------------------- */

typedef struct prompt_job {
    float *y;
    size_t ld_y;
    const uint8_t *w;
    size_t row_bytes;
    const quant_act *a;
    uint32_t act0, n_act, n_row, n_col;
} prompt_job;

typedef struct prompt_scratch {
    quant_panel panel;
    wide_panel wide;
    tile_bytes x;
} prompt_scratch;
static_assert(sizeof(prompt_scratch) <= QUANT_SCRATCH_BYTES, "panel too large");
static_assert(sizeof(float_panel) <= QUANT_SCRATCH_BYTES, "panel too large");

static void wide_fill(wide_panel *o, const quant_panel *p, uint32_t n_col) {
    for (uint32_t g = 0; g < n_col / 4; g++) {
        for (int r = 0; r < PANEL_ROWS; r += 8) {
            __m256i q = load_aligned(p->q[g][r]);
            _mm256_store_si256((__m256i *)(void *)o->q[g][0][r],
                               _mm256_srai_epi16(_mm256_slli_epi16(q, 8), 8));
            _mm256_store_si256((__m256i *)(void *)o->q[g][1][r], _mm256_srai_epi16(q, 8));
        }
    }
}

/* Activation row i of a tile, n_col bytes at q, for the core's form; where the core finds it. */
static const uint8_t *tile_row_fill(tile_bytes *o, int i, core_form form, const int8_t *q, uint32_t n_col) {
    if (form == FORM_PLAIN) return (const uint8_t *)q;
    for (uint32_t c = 0; c < n_col; c += 32) {
        __m256i v = load256(q + c);
        if (form == FORM_SHIFT) {
            _mm256_store_si256((__m256i *)(void *)(o->shift[i] + c), _mm256_xor_si256(v, bytes_all(0x80)));
        } else {
            __m256i even = _mm256_srai_epi16(_mm256_slli_epi16(v, 8), 8), odd = _mm256_srai_epi16(v, 8);
            _mm256_store_si256((__m256i *)(void *)(o->wide[i][0] + c / 2), even);
            _mm256_store_si256((__m256i *)(void *)(o->wide[i][1] + c / 2), odd);
        }
    }
    return form == FORM_SHIFT ? o->shift[i] : (const uint8_t *)o->wide[i];
}

/* The panel in scratch, rows row0.. of the job, columns col0.., times all activations. */
static void panel_run(const prompt_job *b, const core *c, prompt_scratch *scratch, uint32_t row0,
                      uint32_t col0) {
    uint32_t n_col = b->n_col - col0 < PANEL_COLS ? b->n_col - col0 : PANEL_COLS, n_tile = 0;
    uint32_t n_row = b->n_row - row0 < PANEL_ROWS ? b->n_row - row0 : PANEL_ROWS;
    float part[TILE][PANEL_ROWS]; // outputs of a panel with fewer rows
    tile t = {.w = &scratch->panel, .wide = &scratch->wide, .n_block = (int)(n_col / 32)};
    for (uint32_t ia = 0; ia < b->n_act; ia += n_tile) {
        n_tile = b->n_act - ia < (uint32_t)c->n_tile ? 1 : (uint32_t)c->n_tile;
        for (uint32_t i = 0; i < n_tile; i++) {
            size_t at = (size_t)(b->act0 + ia + i) * b->a->ld + col0;
            t.x[i] = tile_row_fill(&scratch->x, (int)i, c->form, b->a->q + at, n_col);
            t.d[i] = b->a->d + at / 32;
            t.s[i] = c->n_sub == 2 ? b->a->s16 + at / 16 : b->a->s + at / 32;
            float *y = b->y + (ia + i) * b->ld_y + row0;
            t.y[i] = n_row < PANEL_ROWS ? part[i] : y;
            if (col0 == 0)
                memset(t.y[i], 0, PANEL_ROWS * sizeof(float));
            else if (n_row < PANEL_ROWS)
                memcpy(part[i], y, n_row * sizeof(float));
        }
        if (n_tile == 1)
            c->one(&t);
        else
            c->tile(&t);
        for (uint32_t i = 0; i < n_tile && n_row < PANEL_ROWS; i++) {
            memcpy(b->y + (ia + i) * b->ld_y + row0, part[i], n_row * sizeof(float));
        }
    }
}

static void prompt_run(const prompt_job *b, gguf_type type, const core *c, void *scratch) {
    prompt_scratch *s = scratch;
    for (uint32_t row0 = 0; row0 < b->n_row; row0 += PANEL_ROWS) {
        uint32_t n_row = b->n_row - row0 < PANEL_ROWS ? b->n_row - row0 : PANEL_ROWS;
        for (uint32_t col0 = 0; col0 < b->n_col; col0 += PANEL_COLS) {
            uint32_t n_col = b->n_col - col0 < PANEL_COLS ? b->n_col - col0 : PANEL_COLS;
            panel_source src = {b->w + row0 * b->row_bytes, b->row_bytes, n_row, col0, n_col};
            quant_panel_fill(&s->panel, type, &src);
            if (c->form == FORM_SHIFT) quant_panel_start_fill(&s->panel, c->n_sub, n_col, 0);
            if (c->form == FORM_WIDE) wide_fill(&s->wide, &s->panel, n_col);
            panel_run(b, c, s, row0, col0);
        }
    }
}

/* The core of each type: see the ranges at the head. */
#define core_of_q4_0 core_shift_8
#define core_of_q4_1 core_plain_8
#define core_of_q5_0 core_shift_4
#define core_of_q5_1 core_plain_4
#define core_of_q8_0 core_wide
#define core_of_q2_k core_plain_half_4
#define core_of_q3_k core_shift_half_4
#define core_of_q4_k core_plain_8
#define core_of_q5_k core_plain_4
#define core_of_q6_k core_shift_half_2
#define core_of_iq2_xxs core_shift_1
#define core_of_iq2_xs core_shift_half_1
#define core_of_iq2_s core_shift_half_1
#define core_of_iq3_xxs core_shift_1
#define core_of_iq3_s core_shift_4
#define core_of_iq1_s core_shift_4
#define core_of_iq1_m core_shift_half_4
#define core_of_iq4_nl core_wide
#define core_of_iq4_xs core_wide
#define core_of_tq1_0 core_shift_8
#define core_of_tq2_0 core_shift_8
#define core_of_mxfp4 core_shift_4
#define core_of_nvfp4 core_shift_half_4
#define core_of_q1_0 core_shift_8
#define core_of_q2_0 core_shift_8

#define PROMPT_KERNEL(TYPE, name, n_sub, has_min)                                                            \
    void quant_prompt_avx2_##name(float *y, size_t ld_y, const void *w, size_t row_bytes,                    \
                                  const quant_act *a, uint32_t act0, uint32_t n_act, uint32_t n_row,         \
                                  uint32_t n_col, void *scratch) {                                           \
        prompt_job job = {y, ld_y, w, row_bytes, a, act0, n_act, n_row, n_col};                              \
        quant_calls_add(CPU_AVX2, true, GGUF_##TYPE);                                                        \
        prompt_run(&job, GGUF_##TYPE, &core_of_##name, scratch);                                             \
    }
QUANT_TYPES(PROMPT_KERNEL)

/* ---- float weights ---------------------------------------------------------------------------------- */

typedef struct float_tile {
    const float_panel *w;
    const float *x[FLOAT_TILE];
    float *y[FLOAT_TILE];
    uint32_t n_col;
} float_tile;

SIMD void float_core_run(const float_tile *t, int n_act) {
    __m256 y[2][FLOAT_TILE];
    UNROLL
    for (int a = 0; a < n_act; a++) {
        y[0][a] = _mm256_loadu_ps(t->y[a]);
        y[1][a] = _mm256_loadu_ps(t->y[a] + 8);
    }
    for (uint32_t c = 0; c < t->n_col; c++) {
        __m256 w0 = _mm256_load_ps(t->w->w[c]), w1 = _mm256_load_ps(t->w->w[c] + 8);
        UNROLL
        for (int a = 0; a < n_act; a++) {
            __m256 x = _mm256_broadcast_ss(t->x[a] + c);
            y[0][a] = _mm256_fmadd_ps(w0, x, y[0][a]);
            y[1][a] = _mm256_fmadd_ps(w1, x, y[1][a]);
        }
    }
    UNROLL
    for (int a = 0; a < n_act; a++) {
        _mm256_storeu_ps(t->y[a], y[0][a]);
        _mm256_storeu_ps(t->y[a] + 8, y[1][a]);
    }
}

static void float_core(const float_tile *t, uint32_t n_act) {
    switch (n_act) {
    case 1: float_core_run(t, 1); break;
    case 2: float_core_run(t, 2); break;
    case 3: float_core_run(t, 3); break;
    case 4: float_core_run(t, 4); break;
    case 5: float_core_run(t, 5); break;
    default: float_core_run(t, 6); break;
    }
}

static void float_panel_run(const prompt_job *b, const float_panel *p, uint32_t row0, uint32_t col0,
                            uint32_t n_col) {
    uint32_t n_tile = 0, n_row = b->n_row - row0 < PANEL_ROWS ? b->n_row - row0 : PANEL_ROWS;
    float part[FLOAT_TILE][PANEL_ROWS];
    float_tile t = {.w = p, .n_col = n_col};
    for (uint32_t ia = 0; ia < b->n_act; ia += n_tile) {
        n_tile = b->n_act - ia < FLOAT_TILE ? b->n_act - ia : FLOAT_TILE;
        for (uint32_t i = 0; i < n_tile; i++) {
            t.x[i] = b->a->x + (size_t)(b->act0 + ia + i) * b->a->ld + col0;
            float *y = b->y + (ia + i) * b->ld_y + row0;
            t.y[i] = n_row < PANEL_ROWS ? part[i] : y;
            if (col0 == 0)
                memset(t.y[i], 0, PANEL_ROWS * sizeof(float));
            else if (n_row < PANEL_ROWS)
                memcpy(part[i], y, n_row * sizeof(float));
        }
        float_core(&t, n_tile);
        for (uint32_t i = 0; i < n_tile && n_row < PANEL_ROWS; i++) {
            memcpy(b->y + (ia + i) * b->ld_y + row0, part[i], n_row * sizeof(float));
        }
    }
}

static void prompt_float_run(const prompt_job *b, gguf_type type, void *scratch) {
    float_panel *p = scratch;
    for (uint32_t row0 = 0; row0 < b->n_row; row0 += PANEL_ROWS) {
        uint32_t n_row = b->n_row - row0 < PANEL_ROWS ? b->n_row - row0 : PANEL_ROWS;
        for (uint32_t col0 = 0; col0 < b->n_col; col0 += FLOAT_PANEL_COLS) {
            uint32_t n_col = b->n_col - col0 < FLOAT_PANEL_COLS ? b->n_col - col0 : FLOAT_PANEL_COLS;
            panel_source src = {b->w + row0 * b->row_bytes, b->row_bytes, n_row, col0, n_col};
            quant_float_panel_fill(p, type, &src);
            float_panel_run(b, p, row0, col0, n_col);
        }
    }
}

#define PROMPT_FLOAT_KERNEL(TYPE, name)                                                                      \
    void quant_prompt_avx2_##name(float *y, size_t ld_y, const void *w, size_t row_bytes,                    \
                                  const quant_act *a, uint32_t act0, uint32_t n_act, uint32_t n_row,         \
                                  uint32_t n_col, void *scratch) {                                           \
        prompt_job job = {y, ld_y, w, row_bytes, a, act0, n_act, n_row, n_col};                              \
        quant_calls_add(CPU_AVX2, true, GGUF_##TYPE);                                                        \
        prompt_float_run(&job, GGUF_##TYPE, scratch);                                                        \
    }
PROMPT_FLOAT_KERNEL(F32, f32)
PROMPT_FLOAT_KERNEL(F16, f16)
PROMPT_FLOAT_KERNEL(BF16, bf16)
