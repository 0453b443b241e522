/* The experts of an engine whose card has no room for all: who has the slots, and what moves between steps.
 *
 *     tiers *t;  TRY(tiers_new(&t, &cfg, err));         // before the device: it tells t what rows choose
 *     TRY(tiers_fill(t, d, err));                       // after all weights are bound
 *     tiers_step(t, n_row);                             // after each step
 *
 * On a device without slots all of it does nothing. Threads: worker only. */
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

typedef struct tiers tiers;

mica_status tiers_new(tiers **out, const tiers_config *cfg, mica_error *err);
void tiers_free(tiers *t); // accepts NULL
mica_status tiers_fill(tiers *t, dev *d, mica_error *err);
void tiers_step(tiers *t, uint32_t n_row);
/* As dev_config.routed. */
void tiers_routed(tiers *t, uint32_t layer, const int32_t *ids, uint32_t n);

#endif
