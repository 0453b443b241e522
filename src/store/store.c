/* Leases into the mapped file: will_need asks the system to read ahead the pages of the experts a call is
 * about to use, in ascending order, so that a cold expert costs one wait and not one for every page.
 *
 * With slots (store_slots.c) the same calls give pointers into them. */
#include "store/store_int.h"

#include "base/mem.h"

static mica_status acquire(expert_source *src, uint32_t layer, uint32_t expert, expert_lease *out,
                           mica_error *err) {
    store *s = (store *)src;
    if (layer >= s->n_layer || expert >= s->n_expert || !s->layers[layer].gate.base)
        return fail(err, MICA_E_INTERNAL, "expert %u of layer %u: no such expert", expert, layer);
    const layer_stacks *l = &s->layers[layer];
    *out = (expert_lease){.layer = layer, .expert = expert};
    if (s->slots) return slots_acquire(s->slots, layer, expert, out, err);
    out->gate = l->gate.base + expert * l->gate.expert_bytes;
    out->up = l->up.base + expert * l->up.expert_bytes + l->up.half_bytes;
    out->down = l->down.base + expert * l->down.expert_bytes;
    return MICA_OK;
}

static void release(expert_source *src, expert_lease *lease) {
    store *s = (store *)src;
    if (s->slots) slots_release(s->slots, lease->layer, lease->expert);
    *lease = (expert_lease){0};
}

static void will_need(expert_source *src, uint32_t layer, const int32_t *experts, uint32_t n) {
    store *s = (store *)src;
    if (layer >= s->n_layer) return;
    if (s->slots) {
        slots_will_need(s->slots, layer, experts, n);
        return;
    }
    const layer_stacks *l = &s->layers[layer];
    const stack *st[3] = {&l->gate, &l->up, &l->down};
    for (int k = 0; k < 3; k++) {
        if (k == 1 && l->up.half_bytes) continue; // the gate's range holds it
        for (uint32_t i = 0; i < n; i++) {
            const char *at = st[k]->base + (size_t)(uint32_t)experts[i] * st[k]->expert_bytes;
            gguf_advise(s->g, at, st[k]->expert_bytes, GGUF_ADVISE_WILLNEED);
        }
    }
}

mica_status store_new(store **out, const gguf_file *g, uint32_t n_layer, uint32_t n_expert, mica_error *err) {
    *out = NULL;
    store *s = mem_calloc(1, sizeof *s);
    layer_stacks *layers = mem_calloc(n_layer, sizeof *layers);
    if (!s || !layers) {
        mem_free(s);
        mem_free(layers);
        return fail(err, MICA_E_NOMEM, "expert store: %u layers: out of memory", n_layer);
    }
    *s = (store){.source = {acquire, release, will_need}, .g = g, .layers = layers};
    s->n_layer = n_layer;
    s->n_expert = n_expert;
    *out = s;
    return MICA_OK;
}

void store_free(store *s) {
    if (!s) return;
    slots_free(s->slots);
    mem_free(s->layers);
    mem_free(s);
}

static stack stack_of(const gguf_tensor *t) {
    return (stack){.base = t->data,
                   .expert_bytes = (size_t)(t->size_bytes / t->shape[1]),
                   .shard = (uint32_t)t->shard,
                   .off_bytes = t->off_bytes};
}

void store_layer_set(store *s, uint32_t layer, const gguf_tensor *gate, const gguf_tensor *up,
                     const gguf_tensor *down) {
    layer_stacks *l = &s->layers[layer];
    l->gate = stack_of(gate);
    l->down = stack_of(down);
    l->up = stack_of(up ? up : gate);
    if (!up) l->up.half_bytes = l->up.expert_bytes / 2;
}

expert_source *store_experts(store *s) {
    return &s->source;
}

mica_status store_slots_take(store *s, const plan *p, const float *use, double tokens, mica_error *err) {
    return slots_new(&s->slots, &(slots_config){s, p, use, tokens}, err);
}

store_stats store_stats_get(const store *s) {
    return s->slots ? slots_stats(s->slots) : (store_stats){0};
}
