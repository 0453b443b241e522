/* The tables of codebook.h, made of the codes of codebook_data.h at compile time: one constant expression an
 * entry. codebook.c is this for the host; device source includes it with TABLE as the words a constant table
 * needs on a card. */
#ifndef MICA_QUANT_CODEBOOK_TABLE_H
#define MICA_QUANT_CODEBOOK_TABLE_H

#include "quant/codebook_data.h"

#ifndef TABLE
#include "quant/codebook.h"
#define TABLE const
#endif

// Element i of a code with eight 2-bit slots, and of one with four 4-bit slots; VALUE maps a slot to a byte.
#define SLOT2(c, i) (((uint64_t)(c) >> (2 * (i))) & 3)
#define SLOT4(c, i) (((uint32_t)(c) >> (4 * (i))) & 15)
#define EIGHT(VALUE, c)                                                                                      \
    (VALUE(SLOT2(c, 0)) | VALUE(SLOT2(c, 1)) << 8 | VALUE(SLOT2(c, 2)) << 16 | VALUE(SLOT2(c, 3)) << 24 |    \
     VALUE(SLOT2(c, 4)) << 32 | VALUE(SLOT2(c, 5)) << 40 | VALUE(SLOT2(c, 6)) << 48 |                        \
     VALUE(SLOT2(c, 7)) << 56)
#define FOUR(VALUE, c)                                                                                       \
    (VALUE(SLOT4(c, 0)) | VALUE(SLOT4(c, 1)) << 8 | VALUE(SLOT4(c, 2)) << 16 | VALUE(SLOT4(c, 3)) << 24)

#define VALUE_IQ2(s) ((s)*17 + 8 + ((s) >> 1))               // 8 25 43
#define VALUE_IQ3XXS(s) (4 + 8 * (s) + ((s) == 7 ? 2u : 0u)) // 4 12 20 28 36 44 52 62
#define VALUE_IQ3S(s) (2 * (s) + 1)                          // 1 3 5 7 9 11 13 15
#define VALUE_IQ1(s) (((s) + 255) & 255)                     // -1 0 1

#define ENTRY(c) EIGHT(VALUE_IQ2, c),
TABLE uint64_t quant_grid_iq2xxs[256] = {QUANT_CODES_IQ2XXS(ENTRY)};
TABLE uint64_t quant_grid_iq2xs[512] = {QUANT_CODES_IQ2XS(ENTRY)};
TABLE uint64_t quant_grid_iq2s[1024] = {QUANT_CODES_IQ2S(ENTRY)};
#undef ENTRY
#define ENTRY(c) EIGHT(VALUE_IQ1, c),
TABLE uint64_t quant_grid_iq1s[2048] = {QUANT_CODES_IQ1S(ENTRY)};
#undef ENTRY
#define ENTRY(c) FOUR(VALUE_IQ3XXS, c),
TABLE uint32_t quant_grid_iq3xxs[256] = {QUANT_CODES_IQ3XXS(ENTRY)};
#undef ENTRY
#define ENTRY(c) FOUR(VALUE_IQ3S, c),
TABLE uint32_t quant_grid_iq3s[512] = {QUANT_CODES_IQ3S(ENTRY)};
#undef ENTRY

TABLE int8_t quant_value_iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
TABLE int8_t quant_value_fp4[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

#endif
