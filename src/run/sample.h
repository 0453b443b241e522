/* Choosing a token from logits: docs/ARITHMETIC.md rules 10 and 11. A pure function of logits, options, the
 * tokens before and the position; drafting, batching and speed cannot change it.
 *
 * Order: bias, penalties, constraint, temperature, top-k, top-p, min-p, draw.
 * Threads: a sampler is scratch for one caller at a time. */
#ifndef MICA_SAMPLE_H
#define MICA_SAMPLE_H

#include "mica.h"

typedef struct sampler sampler;

mica_status sampler_new(sampler **out, uint32_t n_vocab, mica_error *err);
void sampler_free(sampler *s); // accepts NULL
/* ids[0..n), all below n_vocab, borrowed, are never chosen: what a model's file suppresses. */
void sampler_suppress(sampler *s, const int32_t *ids, size_t n);

/* Refuses what has no meaning: a negative temperature, a repeat penalty that is not positive, a bias for an
 * unknown id. */
mica_status sampling_check(const mica_sampling *p, uint32_t n_vocab, mica_error *err);

typedef struct sample_args {
    const float *logits; // [n_vocab], borrowed
    const mica_sampling *p;
    const int32_t *history; // [n_history] tokens before, for the penalties
    size_t n_history;
    uint64_t pos;           // position of the token to choose: keys the draw
    const uint8_t *allowed; // bit i % 8 of byte i / 8: id i may come; NULL: what p->grammar says, or all
} sample_args;

/* MICA_E_INTERNAL when the logits hold NaN or +infinity, MICA_E_ARG when nothing may come. Allocates nothing.
 */
mica_status sampler_pick(sampler *s, const sample_args *a, int32_t *id, mica_error *err);

/* The lowest index of the largest value. */
int32_t sample_argmax(const float *logits, uint32_t n);
/* Uniform in [0, 1) for a position: Philox4x32-10, key = seed, counter = position (Salmon et al., SC'11). */
float sample_uniform(uint64_t seed, uint64_t pos);
#endif
