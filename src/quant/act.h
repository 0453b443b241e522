/* Rows of activations in the two forms products read them: f32 and int8 blocks (docs/ARITHMETIC.md rule 1).
 * Shared with device source: fixed-width types and plain structs only. */
#ifndef MICA_QUANT_ACT_H
#define MICA_QUANT_ACT_H

#ifndef MICA_DEVICE_SOURCE
#include <stdint.h>
#endif

/* Raised with every change of docs/ARITHMETIC.md that changes a bit: saved sessions belong to one version. */
enum { ARITHMETIC_VERSION = 1 };

/* The pointers are slots of the step's scratch (host or device memory, as the device that filled them says).
 * ld is the row stride in elements, a multiple of 64 and >= n_col; the bytes past n_col are never read. */
typedef struct quant_act {
    float *x;    // [n_row, ld] f32
    int8_t *q;   // [n_row, ld] i8, -127..127
    float *d;    // [n_row, ld / 32] f32: amax / 127 of each block of 32
    float *s;    // [n_row, ld / 32] f32: d * (sum of the block's q), rounded once
    float *s16;  // [n_row, ld / 16] f32: d * (sum of q over each half block), for minima over 16 (Q2_K)
    uint32_t ld; // elements
} quant_act;
#endif
