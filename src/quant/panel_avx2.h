/* Panels: 16 rows of weights, a stretch of columns long, unpacked so that a register holds one group of four
 * columns of 8 (AVX2) or 16 (AVX-512) rows. A lane then is a weight row, and the f32 accumulator of an output
 * sees its sub-blocks left to right, as rule 4 wants, with no sum across lanes. Made with AVX2 for both. */
#ifndef MICA_QUANT_PANEL_AVX2_H
#define MICA_QUANT_PANEL_AVX2_H

#include "gguf/type.h"

#include <stddef.h>

enum {
    PANEL_ROWS = 16,
    PANEL_COLS =
        512, // columns of a stretch: the panel stays in a first cache of 32 KiB, beside its activations
    PANEL_SUBS = PANEL_COLS / 16,
    FLOAT_PANEL_COLS = 256
};

typedef struct quant_panel {
    _Alignas(64) int8_t q[PANEL_COLS / 4][PANEL_ROWS][4];
    float scale[PANEL_SUBS][PANEL_ROWS];   // one for each sub-block of 32 or 16 columns
    float min[PANEL_SUBS][PANEL_ROWS];     // negated, so that it is added
    int32_t start[PANEL_SUBS][PANEL_ROWS]; // see quant_panel_start_fill
} quant_panel;

/* Where a panel comes from: columns col0 .. col0 + n_col of n_row <= PANEL_ROWS rows at w, row_bytes apart.
 * Rows of the panel past n_row repeat the last one. */
typedef struct panel_source {
    const uint8_t *w;
    size_t row_bytes;
    uint32_t n_row, col0, n_col;
} panel_source;

/* At most PANEL_COLS columns, from a multiple of 256. */
void quant_panel_fill(quant_panel *o, gguf_type type, const panel_source *from);
/* start = first - 128 * (the sub-block's sum of weights): where an integer sum begins whose activations come
 * as q + 128. */
void quant_panel_start_fill(quant_panel *o, int n_sub, uint32_t n_col, int32_t first);

typedef struct float_panel {
    _Alignas(64) float w[FLOAT_PANEL_COLS][PANEL_ROWS];
} float_panel;

/* F32, F16 or BF16; at most FLOAT_PANEL_COLS columns, from any. */
void quant_float_panel_fill(float_panel *o, gguf_type type, const panel_source *from);
#endif
