/* Fills panels: a unit of each of eight rows is unpacked to bytes, then 8 x 8 words are transposed. */
#include "quant/panel_avx2.h"
#include "quant/unit_avx2.h"
#include "quant/unpack_avx2.h"

/* Rows and columns of 8 x 8 words change places. */
SIMD void transpose8(__m256 r[8]) {
    __m256 t[8], u[8];
    UNROLL
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    UNROLL
    for (int i = 0; i < 8; i += 4) {
        u[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        u[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xEE);
        u[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        u[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xEE);
    }
    UNROLL
    for (int i = 0; i < 4; i++) {
        r[i] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x20);
        r[i + 4] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x31);
    }
}

/* Eight floats of each of eight units to eight vectors of rows. */
SIMD void units_gather(__m256 r[8], const quant_unit u[8], size_t off_bytes) {
    UNROLL
    for (int i = 0; i < 8; i++)
        r[i] = _mm256_load_ps((const float *)(const void *)((const char *)&u[i] + off_bytes));
    transpose8(r);
}

/* Lanes of half order (or, n_sub 1, of either half) to the panel's sub-blocks. half: blocks 4 half .. 4 half
 * + 3. */
SIMD void halves_store(float (*o)[PANEL_ROWS], const __m256 r[8], int half, int n_sub, int ib0, int n) {
    for (int i = 0; i < 4 && 4 * half + i < n; i++) {
        int at = (ib0 + 4 * half + i) * n_sub;
        _mm256_store_ps(o[at], r[i]);
        if (n_sub == 2) _mm256_store_ps(o[at + 1], r[i + 4]);
    }
}

SIMD const uint8_t *row_get(const panel_source *from, uint32_t ir) {
    return from->w + (ir < from->n_row ? ir : from->n_row - 1) * from->row_bytes;
}

/* n blocks from block ib0 of the panel on; row0 is 0 or 8. */
static void units_store(quant_panel *o, const quant_unit u[8], const quant_unit_type *t, int row0, int ib0,
                        int n) {
    __m256 r[8];
    for (int j = 0; j < n; j++) {
        units_gather(r, u, offsetof(quant_unit, q) + 32 * (size_t)j);
        UNROLL
        for (int g = 0; g < 8; g++) _mm256_store_ps((float *)(void *)o->q[8 * (ib0 + j) + g][row0], r[g]);
    }
    for (int half = 0; half < 2; half++) {
        units_gather(r, u, offsetof(quant_unit, scale) + 32 * (size_t)half);
        halves_store((float(*)[PANEL_ROWS])(void *)&o->scale[0][row0], r, half, t->n_sub, ib0, n);
    }
    for (int half = 0; half < t->n_sub && t->has_min; half++) {
        units_gather(r, u, offsetof(quant_unit, min) + 32 * (size_t)half);
        UNROLL
        for (int i = 0; i < 8; i++) r[i] = negate(r[i]);
        if (t->n_sub == 2) {
            halves_store((float(*)[PANEL_ROWS])(void *)&o->min[0][row0], r, half, 2, ib0, n);
        } else {
            for (int i = 0; i < n; i++) _mm256_store_ps(&o->min[ib0 + i][row0], r[i]);
        }
    }
}

void quant_panel_fill(quant_panel *o, gguf_type type, const panel_source *from) {
    const quant_unit_type *t = &quant_unit_types[type];
    quant_unit u[8];
    for (uint32_t row0 = 0; row0 < PANEL_ROWS; row0 += 8) {
        const uint8_t *p[8];
        for (uint32_t i = 0; i < 8; i++)
            p[i] = row_get(from, row0 + i) + (size_t)(from->col0 / 256) * (size_t)t->bytes;
        for (uint32_t c = 0; c < from->n_col; c += 256) {
            int n = from->n_col - c < 256 ? (int)((from->n_col - c) / 32) : 8;
            for (int i = 0; i < 8; i++) {
                t->unpack(&u[i], p[i], n);
                p[i] += t->bytes;
            }
            units_store(o, u, t, (int)row0, (int)(c / 32), n);
        }
    }
}

void quant_panel_start_fill(quant_panel *o, int n_sub, uint32_t n_col, int32_t first) {
    int n_group = 8 / n_sub;
    __m256i one = _mm256_set1_epi8(1), one16 = _mm256_set1_epi16(1);
    for (uint32_t is = 0; is < n_col / 32 * (uint32_t)n_sub; is++) {
        for (int row0 = 0; row0 < PANEL_ROWS; row0 += 8) {
            __m256i sum = _mm256_setzero_si256();
            for (int g = 0; g < n_group; g++) {
                __m256i q = load256(o->q[is * (uint32_t)n_group + (uint32_t)g][row0]);
                sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(one, q));
            }
            sum = _mm256_slli_epi32(_mm256_madd_epi16(sum, one16), 7);
            _mm256_store_si256((__m256i *)(void *)&o->start[is][row0],
                               _mm256_sub_epi32(_mm256_set1_epi32(first), sum));
        }
    }
}

/* ---- float weights ---------------------------------------------------------------------------------- */

SIMD __m256 float8_get(gguf_type type, const uint8_t *p) {
    if (type == GGUF_F32) return _mm256_castsi256_ps(load256(p));
    if (type == GGUF_F16) return f16x8(load128(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load128(p)), 16));
}

/* n <= 8 columns of eight rows. */
SIMD void float_columns_fill(float (*o)[PANEL_ROWS], gguf_type type, const uint8_t *const p[8],
                             size_t off_bytes, uint32_t n) {
    __m256 r[8];
    size_t size = type == GGUF_F32 ? 4 : 2;
    for (int i = 0; i < 8; i++) {
        uint8_t last[32] = {0};
        if (n < 8) memcpy(last, p[i] + off_bytes, n * size);
        r[i] = float8_get(type, n < 8 ? last : p[i] + off_bytes);
    }
    transpose8(r);
    for (uint32_t i = 0; i < n; i++) _mm256_store_ps(o[i], r[i]);
}

SIMD void float_rows_fill(float_panel *o, gguf_type type, const uint8_t *const p[8], uint32_t row0,
                          uint32_t n_col) {
    float(*out)[PANEL_ROWS] = (float(*)[PANEL_ROWS])(void *)&o->w[0][row0];
    size_t size = type == GGUF_F32 ? 4 : 2;
    uint32_t c = 0;
    for (; c + 8 <= n_col; c += 8) float_columns_fill(out + c, type, p, c * size, 8);
    if (c < n_col) float_columns_fill(out + c, type, p, c * size, n_col - c);
}

void quant_float_panel_fill(float_panel *o, gguf_type type, const panel_source *from) {
    size_t size = type == GGUF_F32 ? 4 : 2;
    for (uint32_t row0 = 0; row0 < PANEL_ROWS; row0 += 8) {
        const uint8_t *p[8];
        for (uint32_t i = 0; i < 8; i++) p[i] = row_get(from, row0 + i) + from->col0 * size;
        if (type == GGUF_F32)
            float_rows_fill(o, GGUF_F32, p, row0, from->n_col);
        else if (type == GGUF_F16)
            float_rows_fill(o, GGUF_F16, p, row0, from->n_col);
        else
            float_rows_fill(o, GGUF_BF16, p, row0, from->n_col);
    }
}
