/* Few rows cost more each, since every chunk reads all weights once: hence the floor, and hence no short rest
 * where a slightly longer chunk does as well. */
#include "run/chunk.h"

uint32_t chunk_rows(const chunk_pace *p, size_t pending, uint32_t most) {
    double n = p->row_ms > 0 ? CHUNK_MS / p->row_ms : CHUNK_ROWS;
    if (n >= most) n = most;
    uint32_t rows = (uint32_t)n / CHUNK_ROWS * CHUNK_ROWS;
    if (n >= most || rows > most) rows = most;
    if (rows < CHUNK_ROWS) rows = most < CHUNK_ROWS ? most : CHUNK_ROWS;
    const size_t stretched = rows + rows / 2;
    if (pending <= stretched && pending <= most) return (uint32_t)pending;
    return rows;
}

void chunk_took(chunk_pace *p, uint32_t n_row, double ms) {
    // A handful of rows says little about a full chunk.
    if (n_row >= CHUNK_ROWS / 2 && ms > 0) p->row_ms = ms / n_row;
}
