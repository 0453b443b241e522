/* The host's copy of the tables, and two that only vectors on the host want. */
#include "quant/codebook_table.h"

/* What vectors read of IQ1: eight times the values, and the delta of four groups by the bits of their signs.
 */
#define VALUE_IQ1_8(s) ((8 * (s) + 248) & 255) // -8 0 8
#define ENTRY(c) EIGHT(VALUE_IQ1_8, c),
const uint64_t quant_grid_iq1s_8[2048] = {QUANT_CODES_IQ1S(ENTRY)};
#undef ENTRY

#define DELTA(n, l) ((n) >> (l)&1 ? 0xFFFFFFFFFFFFFFFFu : 0x0101010101010101u)
#define DELTAS(n)                                                                                            \
    { DELTA(n, 0), DELTA(n, 1), DELTA(n, 2), DELTA(n, 3) }
const uint64_t quant_delta_iq1[16][4] = {
    DELTAS(0), DELTAS(1), DELTAS(2),  DELTAS(3),  DELTAS(4),  DELTAS(5),  DELTAS(6),  DELTAS(7),
    DELTAS(8), DELTAS(9), DELTAS(10), DELTAS(11), DELTAS(12), DELTAS(13), DELTAS(14), DELTAS(15)};
