/* The tensor types a GGUF file may hold: id (as stored in the file), name, block length and bytes.
 * Ids that are missing here were removed from the format or belong to one engine alone; gguf_type_get refuses
 * them. */
#ifndef MICA_GGUF_TYPE_H
#define MICA_GGUF_TYPE_H

#include <stdbool.h>
#include <stdint.h>

typedef enum gguf_type {
    GGUF_F32 = 0,
    GGUF_F16 = 1,
    GGUF_Q4_0 = 2,
    GGUF_Q4_1 = 3,
    GGUF_Q5_0 = 6,
    GGUF_Q5_1 = 7,
    GGUF_Q8_0 = 8,
    GGUF_Q8_1 = 9, // activations only: never a weight
    GGUF_Q2_K = 10,
    GGUF_Q3_K = 11,
    GGUF_Q4_K = 12,
    GGUF_Q5_K = 13,
    GGUF_Q6_K = 14,
    GGUF_Q8_K = 15, // activations only: never a weight
    GGUF_IQ2_XXS = 16,
    GGUF_IQ2_XS = 17,
    GGUF_IQ3_XXS = 18,
    GGUF_IQ1_S = 19,
    GGUF_IQ4_NL = 20,
    GGUF_IQ3_S = 21,
    GGUF_IQ2_S = 22,
    GGUF_IQ4_XS = 23,
    GGUF_I8 = 24,
    GGUF_I16 = 25,
    GGUF_I32 = 26,
    GGUF_I64 = 27,
    GGUF_F64 = 28,
    GGUF_IQ1_M = 29,
    GGUF_BF16 = 30,
    GGUF_TQ1_0 = 34,
    GGUF_TQ2_0 = 35,
    GGUF_MXFP4 = 39,
    GGUF_NVFP4 = 40,
    GGUF_Q1_0 = 41,
    GGUF_Q2_0 = 42,
    GGUF_TYPE_N = 43 // one past the largest id
} gguf_type;

typedef enum gguf_type_class {
    GGUF_CLASS_FLOAT,      // F32 F16 BF16: products in float
    GGUF_CLASS_QUANT,      // products as exact integers per group
    GGUF_CLASS_ACTIVATION, // Q8_1, Q8_K: readable in inspect, refused as a weight
    GGUF_CLASS_OTHER       // integers and F64: readable in inspect, refused as a weight
} gguf_type_class;

typedef struct gguf_type_info {
    const char *name; // as in llama.cpp's tools, lower case: "q4_k"
    uint16_t block;   // weights in one block
    uint16_t bytes;   // bytes of one block
    gguf_type_class cls;
} gguf_type_info;

/* NULL for an id that is unknown or removed. */
const gguf_type_info *gguf_type_get(uint32_t id);
bool gguf_type_parse(gguf_type *out, const char *name); // "q4_k", "Q4_K"; false when unknown

/* Bytes of a row of n_col weights; n_col must be a multiple of the block. */
static inline uint64_t gguf_row_bytes(const gguf_type_info *t, uint64_t n_col) {
    return n_col / t->block * t->bytes;
}
#endif
