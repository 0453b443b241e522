/* How many rows of a prompt to read before looking up again: for progress, and for somebody who wants to
 * stop. Bits do not depend on it, so it may follow the clock. Threads: one owner. */
#ifndef MICA_CHUNK_H
#define MICA_CHUNK_H

#include <stddef.h>
#include <stdint.h>

typedef struct chunk_pace {
    double row_ms; // of the last chunk; 0: nothing is known yet
} chunk_pace;

/* Rows of the next chunk of `pending` (> 0), between 1 and `most`: what takes about CHUNK_MS, in whole
 * CHUNK_ROWS. The first chunk of all is CHUNK_ROWS, to find out. */
enum { CHUNK_MS = 700, CHUNK_ROWS = 32 };
uint32_t chunk_rows(const chunk_pace *p, size_t pending, uint32_t most);
void chunk_took(chunk_pace *p, uint32_t n_row, double ms);
#endif
