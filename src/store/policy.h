/* Which experts are worth a slot: counts of use that fade, and what follows from them. Pure: no clock of its
 * own, no I/O, nothing allocated after policy_new; moving bytes is the caller's.
 *
 *     policy *p;  TRY(policy_new(&p, &cfg, err));
 *     policy_seed(p, use, tokens);                            // learned use of earlier runs, if there is any
 *     n = policy_swaps(p, 0, UINT64_MAX, swaps, max);         // the first filling: all slots are empty
 *     for each: copy, then policy_done(p, &swaps[i], true);   // false: the copy failed, the slot is empty
 *     policy_note(p, now, il, ids, n_row);                    // after the router of layer il, every step
 *     if (policy_admit(p, now, id, false, &swap)) ...         // a miss whose bytes come anyway: keep them?
 *     n = policy_swaps(p, now, budget_bytes, swaps, max);     // what an idle link should move
 *
 * Time is `now`, a count of tokens (rows) that never falls, so that a test is a table and a slow machine
 * forgets no faster than a quick one. Layers whose experts have equal bytes share the slots of a slab; who
 * has how many follows from one ranking over all of them: expected uses a token times what a miss of that
 * layer costs (policy_cost_set), which is the division with the least total cost.
 *
 * Slots: numbers [0, n_slot) of a slab. A slot that a swap names belongs to its newcomer from then on (never
 * named again, not a hit) until policy_done. Pinned experts are never named as leaving.
 * Threads: worker only. */
#ifndef MICA_POLICY_H
#define MICA_POLICY_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

#define POLICY_NONE UINT32_MAX

typedef struct policy_config {
    uint32_t n_layer, n_expert, n_used; // n_used: experts of a row in a layer
    const uint32_t *slab_of;            // [n_layer]; POLICY_NONE: a layer without experts
    uint32_t n_slab;
    const uint32_t *n_slot;     // [n_slab]
    const uint64_t *blob_bytes; // [n_slab] of one expert
    /* 0: the default, found on recorded traffic (docs/MEASURED.md). */
    double quick_tokens, slow_tokens; // uses count half after so many tokens
    double quick_share;               // of the estimate, the rest is the slow count's
    double margin;                    // a swap's newcomer must be worth so many times what leaves
} policy_config;

typedef struct policy_id {
    uint32_t layer, expert;
} policy_id;

typedef struct policy_swap {
    policy_id in;
    policy_id out; // layer POLICY_NONE: the slot was empty
    uint32_t slab, slot;
    uint64_t n_bytes;
    float gain; // uses a token that become hits, weighted by cost
} policy_swap;

typedef struct policy policy;

mica_status policy_new(policy **out, const policy_config *cfg, mica_error *err);
void policy_free(policy *p); // accepts NULL

/* n_row rows chose these: ids [n_row, n_used], as the router wrote them. */
void policy_note(policy *p, uint64_t now, uint32_t layer, const int32_t *ids, uint32_t n_row);
/* What a miss of this layer costs against the others; 1 until said. Measured by who pays it. */
void policy_cost_set(policy *p, uint32_t layer, float cost);
/* Uses a token of every expert [n_layer, n_expert], as policy_use gave them, counted like so many tokens of
 * this run. Before the first note. */
void policy_seed(policy *p, const float *use, double tokens);
void policy_use(const policy *p, uint64_t now, float *use); // [n_layer, n_expert]

bool policy_resident(const policy *p, policy_id id); // READY in a slot
uint32_t policy_slot(const policy *p, policy_id id); // POLICY_NONE: neither there nor coming
void policy_pin(policy *p, policy_id id);            // counts
void policy_unpin(policy *p, policy_id id);
/* Slots that a layer's experts have now: its share of the slab. */
uint32_t policy_quota(const policy *p, uint32_t layer);

/* The best swaps, dearest first: at most max, at most budget_bytes together. It looks at every expert (some
 * 50 us for 25,000): once a step, not once a layer. */
uint32_t policy_swaps(policy *p, uint64_t now, uint64_t budget_bytes, policy_swap *out, uint32_t max);
/* The bytes of `id` are being read for this step. True: it should stay, in out->slot. `must`: it has no other
 * place to be, so it is refused only when every slot of the slab is pinned or coming. */
bool policy_admit(policy *p, uint64_t now, policy_id id, bool must, policy_swap *out);
void policy_done(policy *p, const policy_swap *s, bool ok);
/* The bytes in the slot of `id` are gone (lent to a prompt's ring, an error): the slot is empty. */
void policy_drop(policy *p, policy_id id);
/* Slots [n_slot, the slab's all) are lent: no swap names them until given back. Their experts are dropped;
 * pinned ones must not be among them. */
void policy_slots_limit(policy *p, uint32_t slab, uint32_t n_slot);
#endif
