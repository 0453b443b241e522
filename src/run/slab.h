/* Equal chunks of one block of memory, handed out in chains: what is put in is of any size, what is free is
 * never in pieces too small, and nothing is allocated after slab_init.
 *
 *     uint32_t head = slab_take(s, n_bytes);                  // SLAB_NONE: not enough chunks are free
 *     slab_pos at = slab_begin(s, head);
 *     while (n > 0) { void *p; size_t k = slab_span(&at, n, &p); ... k bytes at p ...; n -= k; }
 *     slab_give(s, head);
 *
 * The memory is untouched until it is used. Threads: worker only. */
#ifndef MICA_SLAB_H
#define MICA_SLAB_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

enum { SLAB_CHUNK = 64 << 10 };
#define SLAB_NONE UINT32_MAX

typedef struct slab {
    char *base;     // owned pages, [n_chunk, SLAB_CHUNK]
    uint32_t *next; // owned, [n_chunk] the chunk after this in its chain or among the free
    uint32_t n_chunk, n_free, first_free;
} slab;

mica_status slab_init(slab *s, uint32_t n_chunk, mica_error *err);
void slab_fini(slab *s);
uint32_t slab_chunks(size_t n_bytes); // a chain of so many holds them; at least 1
uint32_t slab_take(slab *s, size_t n_bytes);
void slab_give(slab *s, uint32_t head);

typedef struct slab_pos {
    slab *s;
    uint32_t chunk;
    uint32_t off;
} slab_pos;
static inline slab_pos slab_begin(slab *s, uint32_t head) {
    return (slab_pos){s, head, 0};
}
/* The next bytes of the chain, at most `want`; moves on behind them. */
size_t slab_span(slab_pos *at, size_t want, void **p);
void slab_skip(slab_pos *at, size_t n_bytes);
#endif
