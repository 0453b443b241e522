/* What store.c and store_slots.c share. */
#ifndef MICA_STORE_INT_H
#define MICA_STORE_INT_H

#include "store/store.h"

typedef struct stack {
    const char *base; // borrowed from the mapping
    size_t expert_bytes;
    size_t half_bytes; // fused gate and up: where the up half begins, else 0
    uint32_t shard;    // and where it is in the file
    uint64_t off_bytes;
} stack;

typedef struct layer_stacks {
    stack gate, up, down;
} layer_stacks;

typedef struct slots slots;

struct store {
    expert_source source; // first: an expert_source * is a store *
    const gguf_file *g;   // borrowed
    layer_stacks *layers; // owned, [n_layer]
    uint32_t n_layer, n_expert;
    slots *slots; // owned; NULL: leases point into the mapping
};

typedef struct slots_config {
    const store *s; // borrowed
    const plan *p;
    const float *use;
    double tokens;
} slots_config;

mica_status slots_new(slots **out, const slots_config *cfg, mica_error *err);
void slots_free(slots *k); // accepts NULL
mica_status slots_acquire(slots *k, uint32_t layer, uint32_t expert, expert_lease *out, mica_error *err);
void slots_release(slots *k, uint32_t layer, uint32_t expert);
void slots_will_need(slots *k, uint32_t layer, const int32_t *experts, uint32_t n);
store_stats slots_stats(const slots *k);
#endif
