/* Constant tables of the block formats: the codebooks of the i-quants and the two 16-entry value tables.
 *
 * An entry of a grid is its 8 (iq2*, iq1s) or 4 (iq3*) values as bytes of one word, the first value in the
 * lowest byte; iq2* and iq3* hold magnitudes (1..62), iq1s holds -1, 0, 1 as signed bytes. Source of the
 * data: tools/codebook.py. Read-only, from any thread. Device source brings its own copies under the same
 * names. */
#ifndef MICA_QUANT_CODEBOOK_H
#define MICA_QUANT_CODEBOOK_H

#ifndef MICA_DEVICE_SOURCE
#include <stdint.h>

extern const uint64_t quant_grid_iq2xxs[256];
extern const uint64_t quant_grid_iq2xs[512];
extern const uint64_t quant_grid_iq2s[1024];
extern const uint32_t quant_grid_iq3xxs[256];
extern const uint32_t quant_grid_iq3s[512];
extern const uint64_t quant_grid_iq1s[2048];
extern const uint64_t quant_grid_iq1s_8[2048]; // times 8
extern const uint64_t quant_delta_iq1[16][4];  // 32 bytes of 1, or -1 in groups of eight whose bit is set

extern const int8_t quant_value_iq4[16]; // IQ4_NL, IQ4_XS
extern const int8_t quant_value_fp4[16]; // E2M1 times two: MXFP4, NVFP4
#endif
#endif
