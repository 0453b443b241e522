/* The experts of an engine whose card has no room for all: who has the slots, and what moves between steps.
 *
 *     expert_tiers *t;  TRY(tiers_new(&t, &cfg, err));  // before the device: it tells t what rows choose
 *     TRY(tiers_fill(t, d, err));                      // after all weights are bound
 *     tiers_step(t, n_row);                            // after each step
 *
 * On a device without slots all of it does nothing. Threads: worker only, but for tiers_totals. */
#ifndef MICA_TIERS_H
#define MICA_TIERS_H

#include "dev/dev.h"
#include "store/plan.h"

typedef struct tiers_config {
    const plan *p;                      // borrowed
    uint32_t n_layer, n_expert, n_used; // n_layer: beyond the last with experts
    uint64_t fingerprint;               // of the model's file
    const char *profile_path;           // NULL: the default, and only when some experts are elsewhere
} tiers_config;

typedef struct expert_tiers expert_tiers;

mica_status tiers_new(expert_tiers **out, const tiers_config *cfg, mica_error *err);
void tiers_free(expert_tiers *t); // accepts NULL
mica_status tiers_fill(expert_tiers *t, dev *d, mica_error *err);
void tiers_step(expert_tiers *t, uint32_t n_row);
/* Uses a token of earlier runs, NULL when nothing is known, and the tokens they are worth; borrowed. */
const float *tiers_learned(const expert_tiers *t, double *tokens);
/* As dev_config.routed. */
void tiers_routed(expert_tiers *t, uint32_t layer, const int32_t *ids, uint32_t n);

/* Since the device was opened, as of the last step. */
typedef struct tiers_total {
    uint64_t n_row, n_use, n_hit, link_bytes;
} tiers_total;
void tiers_totals(const expert_tiers *t, tiers_total *out); // any thread
#endif
