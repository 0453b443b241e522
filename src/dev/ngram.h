/* Which rows of an n-gram table a token names (docs/ARITHMETIC.md rule 15): whole numbers, for every device
 * in host memory. */
#ifndef MICA_NGRAM_H
#define MICA_NGRAM_H

#include "kern/args.h"

/* The id j positions before row r of its run, or the id that ends a text. */
static inline uint64_t ngram_before(const ngram_args *a, const row_run *run, uint32_t r, uint32_t j) {
    int32_t p = a->rows[r].pos - (int32_t)j, first = a->rows[run->row0].pos;
    if (p < 0) return (uint64_t)(uint32_t)a->end;
    if (p >= first) return (uint64_t)(uint32_t)a->rows[run->row0 + (uint32_t)(p - first)].tok;
    return (uint64_t)(uint32_t)a->ring[(uint64_t)(uint32_t)run->seq * a->ld_seq + (uint32_t)p % CONV_RING];
}

/* row[h] of the table for each of n_head heads. */
static inline void ngram_rows(uint64_t *row, const ngram_args *a, const row_run *run, uint32_t r) {
    uint64_t c[NGRAM_MAX], end = (uint64_t)(uint32_t)a->end;
    c[0] = (uint64_t)(uint32_t)a->rows[r].tok;
    for (uint32_t j = 1; j < a->n_gram; j++)
        c[j] = j > 1 && c[j - 1] == end ? end : ngram_before(a, run, r, j);
    uint32_t n_each = a->n_head / (a->n_gram - 1);
    uint64_t mix = c[0] * a->mult[0];
    for (uint32_t j = 1, ih = 0; j < a->n_gram; j++) {
        mix ^= c[j] * a->mult[j];
        for (uint32_t k = 0; k < n_each; k++, ih++) row[ih] = mix % a->n_of[ih] + a->first[ih];
    }
}

/* Remembers the ids of a run, after its rows were read. */
static inline void ngram_remember(const ngram_args *a, const row_run *run) {
    int32_t *ring = a->ring + (uint64_t)(uint32_t)run->seq * a->ld_seq;
    for (uint32_t r = run->row0; r < run->row0 + run->n_row; r++)
        ring[(uint32_t)a->rows[r].pos % CONV_RING] = a->rows[r].tok;
}

#endif
