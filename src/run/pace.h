/* How many rows of a prompt to read before looking up again: for progress, and for somebody who wants to
 * stop. Bits do not depend on it, so it may follow the clock. Threads: one owner. */
#ifndef MICA_PACE_H
#define MICA_PACE_H

#include <stddef.h>
#include <stdint.h>

typedef struct pace {
    double row_ms; // of the last chunk; 0: nothing is known yet
} pace;

/* Rows of the next chunk of `pending` (> 0), between 1 and `most`: what takes about PACE_MS, in whole
 * PACE_ROWS. The first chunk of all is PACE_ROWS, to find out. */
enum { PACE_MS = 700, PACE_ROWS = 32 };
uint32_t pace_rows(const pace *p, size_t pending, uint32_t most);
void pace_took(pace *p, uint32_t n_row, double ms);
#endif
