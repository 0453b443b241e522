/* Prompts larger than the slots: the experts of a layer that have none travel through a ring while the
 * layers before it compute.
 *
 * The ring has two halves. While kernels work on a layer with what one half holds, the second stream fills
 * the other for the next layer; a half is filled again when the kernels that read it are done. Experts come
 * in the order of their numbers, as many as a half holds; the rest is read over the link by the kernels, as
 * in a step of few rows. Which experts a layer touches is not waited for: enough rows touch nearly all. */
#include "dev/gpu_tiers.h"

enum { STREAM_SHARE = 2 }; // pairs for every expert of a layer, from which on nearly all are touched

mica_status gpu_stream_new(gpu *g, size_t ring_bytes, mica_error *err) {
    gpu_own *o = g->own;
    tier_stream *s = &o->tiers->ring;
    int rc = 0;
    if (ring_bytes < 2) return MICA_OK;
    for (uint32_t il = 0; il < o->tiers->n_layer; il++) {
        const tier_layer *l = &o->tiers->layer[il];
        if (l->places && l->s.n_expert > s->n_table) s->n_table = l->s.n_expert;
    }
    rc = o->v->pinned_alloc((void **)&s->list, o->tiers->n_expert * sizeof *s->list, 0);
    if (rc) return gpu_fail(g, rc, err, "tables of experts");
    TRY(gpu_take(g, (void **)&s->half[0].at, ring_bytes, "ring of experts", err));
    s->half_bytes = ring_bytes / 2 & ~(size_t)255;
    s->half[1].at = s->half[0].at + s->half_bytes;
    for (int k = 0; k < 2; k++) {
        ring_half *h = &s->half[k];
        TRY(gpu_take(g, (void **)&h->table, s->n_table * sizeof *h->table, "table of experts", err));
        if (rc == 0) rc = o->v->event_new(&h->arrived, GPU_EVENT_UNTIMED);
        if (rc == 0) rc = o->v->event_new(&h->freed, GPU_EVENT_UNTIMED);
    }
    s->there = rc == 0;
    return rc ? gpu_fail(g, rc, err, "ring of experts") : MICA_OK;
}

void gpu_stream_fini(gpu *g) {
    tier_stream *s = &g->own->tiers->ring;
    for (int k = 0; k < 2; k++) {
        if (s->half[k].arrived) g->own->v->event_free(s->half[k].arrived);
        if (s->half[k].freed) g->own->v->event_free(s->half[k].freed);
    }
    if (s->list) g->own->v->pinned_free(s->list);
    s->list = NULL;
}

/* The next layer of this step, from `from` on; EXPERT_NOBODY: none. */
static uint32_t next_layer(const gpu_tiers *t, uint32_t from) {
    for (uint32_t il = from; il < t->n_layer; il++) {
        if (t->layer[il].places && (!t->ring.known || t->layer[il].trunk)) return il;
    }
    return EXPERT_NOBODY;
}

/* Half k is filled for a layer, behind whatever still reads it, and its table with it: a table sent in the
 * stream of the kernels would wait in the copy engine for the next layer's experts. */
static int fill_half(gpu *g, uint32_t k, uint32_t il) {
    const gpu_drv *v = g->own->v;
    gpu_tiers *t = g->own->tiers;
    ring_half *h = &t->ring.half[k];
    h->layer = il;
    h->n = 0;
    if (il == EXPERT_NOBODY) return 0;
    const tier_layer *l = &t->layer[il];
    gpu_expert *list = t->ring.list + l->table; // each layer has its own: the card may be steps behind
    size_t blob = t->slab[l->slab].blob_bytes, room = t->ring.half_bytes / blob;
    int rc = v->stream_wait(t->stream, h->freed, 0);
    for (uint32_t ie = 0; ie < l->s.n_expert && rc == 0; ie++) {
        bool here = l->places[ie].slot == EXPERT_NOBODY && h->n < room;
        char *at = h->at + h->n * blob;
        list[ie] = here ? tier_blob(l, at) : tier_entry(t, l, ie);
        if (!here) continue;
        h->n++;
        rc = gpu_expert_copy(g, l, ie, at);
    }
    t->stats.stream_bytes += h->n * blob;
    if (rc == 0) rc = v->to_device(h->table, list, l->s.n_expert * sizeof *list, t->stream);
    return rc ? rc : v->event_record(h->arrived, t->stream);
}

mica_status gpu_stream_begin(gpu *g, const dev_step *s, mica_error *err) {
    gpu_own *o = g->own;
    gpu_tiers *t = o->tiers;
    tier_stream *r = &t->ring;
    int rc = 0;
    r->known |= r->on;
    r->on = r->there && s->part == 0 &&
            (uint64_t)s->n_prompt * g->limits.n_expert_used >= (uint64_t)STREAM_SHARE * r->n_table;
    r->trunk = s->part == 0;
    if (!r->on) return MICA_OK;
    uint32_t il = next_layer(t, 0);
    for (uint32_t k = 0; k < 2 && rc == 0; k++) {
        rc = o->v->event_sync(r->half[k].arrived); // the lists are the step's before no more
        if (rc == 0) rc = o->v->event_record(r->half[k].freed, o->stream);
        if (rc == 0) rc = fill_half(g, k, il);
        if (il != EXPERT_NOBODY) il = next_layer(t, il + 1);
    }
    return rc ? gpu_fail(g, rc, err, "ring of experts") : MICA_OK;
}

/* The half that was filled for this layer, or NULL. */
static ring_half *half_of(gpu_tiers *t, uint32_t layer) {
    for (int k = 0; t->ring.on && k < 2; k++) {
        if (t->ring.half[k].layer == layer) return &t->ring.half[k];
    }
    return NULL;
}

mica_status gpu_stream_table(gpu *g, uint32_t layer, const gpu_expert **out, mica_error *err) {
    gpu_own *o = g->own;
    gpu_tiers *t = o->tiers;
    tier_layer *l = &t->layer[layer];
    if (t->ring.trunk) l->trunk = true;
    ring_half *h = half_of(t, layer);
    if (!h || h->n == 0) return MICA_OK;
    int rc = o->v->stream_wait(o->stream, h->arrived, 0);
    *out = h->table;
    return rc ? gpu_fail(g, rc, err, "ring of experts") : MICA_OK;
}

mica_status gpu_stream_used(gpu *g, uint32_t layer, mica_error *err) {
    gpu_own *o = g->own;
    gpu_tiers *t = o->tiers;
    ring_half *h = half_of(t, layer);
    if (!h) return MICA_OK;
    const ring_half *other = &t->ring.half[h == &t->ring.half[0]];
    uint32_t from = other->layer == EXPERT_NOBODY ? layer : other->layer, next = next_layer(t, from + 1);
    int rc = o->v->event_record(h->freed, o->stream);
    if (rc == 0) rc = fill_half(g, h != &t->ring.half[0], next);
    return rc ? gpu_fail(g, rc, err, "ring of experts") : MICA_OK;
}
