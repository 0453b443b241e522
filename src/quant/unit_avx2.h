/* 256 weights of any quantised type in one plain form, made with AVX2: what kernels read that use a weight
 * more than once (token role with several rows of activations, prompt role), on AVX2 and AVX-512 alike. */
#ifndef MICA_QUANT_UNIT_AVX2_H
#define MICA_QUANT_UNIT_AVX2_H

#include "gguf/type.h"

#include <stdbool.h>

/* Weight i of block j is scale * q[32 j + i] - min. Half order: the scale of half h of block j is
 * scale[8 * (j / 4) + 4 * h + j % 4]; both halves of a type with one scale for 32 weights are there. */
typedef struct quant_unit {
    _Alignas(64) int8_t q[256];
    float scale[16]; // half order
    float min[16];   // half order when the minima are for 16 weights; else min[j] alone; unset without minima
} quant_unit;

/* n blocks of the unit at p; the others are left as they are, their scales hold something finite. */
typedef void quant_unit_fn(quant_unit *o, const uint8_t *p, int n);

typedef struct quant_unit_type {
    quant_unit_fn *unpack; // NULL for a type that is no quantised weight
    int bytes;             // of a unit in the file
    int n_sub;             // scales in 32 weights
    bool has_min;
} quant_unit_type;

extern const quant_unit_type quant_unit_types[GGUF_TYPE_N];
#endif
