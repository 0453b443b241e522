/* Experts of a model on a card: the slots, the memory beside them, and the first filling of both.
 *
 * Slots are taken once, as many as the caller's bytes allow. A slab holds the experts of one size, of all
 * layers that have it; each slab gets its share of the bytes. What is in no slot is in pinned memory that the
 * card reads over its link (or in registered pages of the file); threads fill it from the file, a layer at a
 * time. With a slot for every expert nothing is taken beside the card. */
#include "dev/gpu_tiers.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/pool.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FILL_THREADS_MAX = 16 };
#define PIECE_BYTES ((size_t)256 << 20) // of pinned memory

gpu_expert tier_blob(const tier_layer *l, const char *at) {
    return (gpu_expert){at, at + l->up_at, at + l->down_at};
}

char *tier_slot(const tier_slab *s, uint32_t slot) {
    return s->slots + slot * s->blob_bytes;
}

char *tier_ram(const tier_slab *s, uint32_t ram, bool card) {
    char *const *piece = card ? s->ram_card : s->ram;
    return piece[ram / s->ram_piece] + ram % s->ram_piece * s->blob_bytes;
}

gpu_expert tier_entry(const gpu_tiers *t, const tier_layer *l, uint32_t expert) {
    const tier_place *p = &l->places[expert];
    const tier_slab *s = &t->slab[l->slab];
    if (p->slot != EXPERT_NOBODY) return tier_blob(l, tier_slot(s, p->slot));
    return p->ram != EXPERT_NOBODY ? tier_blob(l, tier_ram(s, p->ram, true)) : p->card;
}

/* ---- what there is ---- */

mica_status gpu_experts_bind(dev *d, const dev_expert_shape *s, mica_error *err) {
    gpu_own *o = ((gpu *)d)->own;
    if (s->layer >= EXPERT_LAYERS_MAX) return fail(err, MICA_E_INTERNAL, "experts of layer %u", s->layer);
    if (!o->tiers) o->tiers = mem_calloc(1, sizeof *o->tiers);
    gpu_tiers *t = o->tiers;
    if (!t) return fail(err, MICA_E_NOMEM, "experts of layer %u: out of memory", s->layer);
    tier_layer *l = &t->layer[s->layer];
    if (t->taken || l->places)
        return fail(err, MICA_E_INTERNAL, "experts of layer %u: bound twice", s->layer);
    *l = (tier_layer){.s = *s, .up_at = dev_expert_room(s->gate_bytes), .table = t->n_expert};
    l->down_at = l->up_at + dev_expert_room(s->up_bytes);
    l->places = mem_calloc(s->n_expert, sizeof *l->places);
    if (!l->places) return fail(err, MICA_E_NOMEM, "experts of layer %u: out of memory", s->layer);
    for (uint32_t i = 0; i < s->n_expert; i++) l->places[i].slot = l->places[i].ram = EXPERT_NOBODY;
    t->n_expert += s->n_expert;
    if (s->layer >= t->n_layer) t->n_layer = s->layer + 1;
    return MICA_OK;
}

/* ---- memory ---- */

static mica_status take_ram(gpu *g, tier_slab *s, mica_error *err) {
    const gpu_drv *v = g->own->v;
    s->ram_piece = PIECE_BYTES > s->blob_bytes ? (uint32_t)(PIECE_BYTES / s->blob_bytes) : 1;
    uint32_t n = (s->n_ram + s->ram_piece - 1) / s->ram_piece;
    s->ram = mem_calloc(n, sizeof *s->ram);
    s->ram_card = mem_calloc(n, sizeof *s->ram_card);
    s->spare = mem_calloc(s->n_ram, sizeof *s->spare);
    if (!s->ram || !s->ram_card || !s->spare) return fail(err, MICA_E_NOMEM, "experts: out of memory");
    for (uint32_t i = 0; i < s->n_ram; i += s->ram_piece) {
        uint32_t left = s->n_ram - i, n_slot = left < s->ram_piece ? left : s->ram_piece;
        size_t n_bytes = n_slot * s->blob_bytes;
        int rc = v->pinned_alloc((void **)&s->ram[s->n_piece], n_bytes, GPU_HOST_MAPPED);
        if (rc)
            return fail(err, v->status_of(rc), "device %s: experts in memory: pin %zu bytes: %s",
                        g->own->card.id, n_bytes, v->error_name(rc));
        rc = v->host_pointer((void **)&s->ram_card[s->n_piece], s->ram[s->n_piece], 0);
        s->n_piece++;
        if (rc) return gpu_fail(g, rc, err, "memory mapped for the card");
    }
    for (uint32_t i = s->n_ram; i-- > 0;) s->spare[s->n_spare++] = i;
    return MICA_OK;
}

static mica_status take_log(gpu *g, mica_error *err) {
    gpu_tiers *t = g->own->tiers;
    const gpu_drv *v = g->own->v;
    size_t n = (size_t)t->n_layer * g->limits.n_row * g->limits.n_expert_used;
    int rc = v->pinned_alloc((void **)&t->log, n * sizeof *t->log, GPU_HOST_MAPPED);
    if (rc == 0) rc = v->host_pointer((void **)&t->log_card, t->log, 0);
    if (rc) return gpu_fail(g, rc, err, "memory mapped for the card");
    memset(t->log, 0xFF, n * sizeof *t->log);
    return MICA_OK;
}

/* Addresses of every expert in the file, for as long as the device lives. */
static mica_status lease_all(gpu *g, mica_error *err) {
    gpu_own *o = g->own;
    gpu_tiers *t = o->tiers;
    t->leases = mem_calloc(t->n_expert, sizeof *t->leases);
    if (!t->leases) return fail(err, MICA_E_NOMEM, "experts: out of memory");
    for (uint32_t il = 0; il < t->n_layer; il++) {
        tier_layer *l = &t->layer[il];
        for (uint32_t ie = 0; l->places && ie < l->s.n_expert; ie++) {
            expert_lease *e = &t->leases[t->n_lease];
            TRY(o->experts->acquire(o->experts, il, ie, e, err));
            t->n_lease++;
            l->places[ie].file = (gpu_expert){e->gate, e->up, e->down};
        }
    }
    return MICA_OK;
}

static int by_address(const void *a, const void *b) {
    const tier_range *x = a, *y = b;
    return (x->host > y->host) - (x->host < y->host);
}

/* Whole pages of the file that hold a layer's matrices; those that touch become one. */
static mica_status find_ranges(gpu_tiers *t, mica_error *err) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    t->ranges = mem_calloc(3 * (size_t)t->n_expert, sizeof *t->ranges);
    if (!t->ranges) return fail(err, MICA_E_NOMEM, "experts: out of memory");
    uint32_t n = 0, last = 0;
    for (uint32_t il = 0; il < t->n_layer; il++) {
        const tier_layer *l = &t->layer[il];
        for (uint32_t i = 0; l->places && i < 3 * l->s.n_expert; i++) {
            const gpu_expert *e = &l->places[i / 3].file;
            const void *at = i % 3 == 0 ? e->gate : i % 3 == 1 ? e->up : e->down;
            size_t bytes = i % 3 == 0 ? l->s.gate_bytes : i % 3 == 1 ? l->s.up_bytes : l->s.down_bytes;
            uintptr_t from = (uintptr_t)at & ~(page - 1),
                      to = ((uintptr_t)at + bytes + page - 1) & ~(page - 1);
            t->ranges[n++] = (tier_range){.host = (char *)from, .n = to - from};
        }
    }
    qsort(t->ranges, n, sizeof *t->ranges, by_address);
    for (uint32_t i = 1; i < n; i++) {
        tier_range *a = &t->ranges[last], *b = &t->ranges[i];
        if (b->host > a->host + a->n)
            t->ranges[++last] = *b;
        else if (b->host + b->n > a->host + a->n)
            a->n = (size_t)(b->host + b->n - a->host);
    }
    t->n_range = n ? last + 1 : 0;
    return MICA_OK;
}

static void unregister_all(gpu *g) {
    gpu_tiers *t = g->own->tiers;
    for (uint32_t i = 0; i < t->n_range; i++) {
        if (t->ranges[i].card) g->own->v->host_unregister(t->ranges[i].host);
    }
    mem_free(t->ranges);
    t->ranges = NULL;
    t->n_range = 0;
}

static const void *card_address(const gpu_tiers *t, const void *host) {
    uint32_t lo = 0, hi = t->n_range;
    while (hi - lo > 1) {
        uint32_t mid = (lo + hi) / 2;
        if (t->ranges[mid].host <= (const char *)host)
            lo = mid;
        else
            hi = mid;
    }
    return t->ranges[lo].card + ((const char *)host - t->ranges[lo].host);
}

/* The file's pages for the card to read; *ok false: the driver does not take them. */
static mica_status map_file(gpu *g, bool *ok, mica_error *err) {
    gpu_tiers *t = g->own->tiers;
    const gpu_drv *v = g->own->v;
    int rc = 0;
    TRY(lease_all(g, err));
    TRY(find_ranges(t, err));
    for (uint32_t i = 0; i < t->n_range && rc == 0; i++) {
        tier_range *r = &t->ranges[i];
        rc = v->host_register(r->host, r->n, GPU_HOST_MAPPED | GPU_HOST_READ_ONLY);
        if (rc == 0 && (rc = v->host_pointer((void **)&r->card, r->host, 0)) != 0)
            v->host_unregister(r->host), r->card = NULL;
    }
    *ok = rc == 0;
    if (rc) {
        unregister_all(g);
        log_info("device", "%s: the file's pages cannot be mapped for the card (%s): experts are copied",
                 g->own->card.id, v->error_name(rc));
        return MICA_OK;
    }
    for (uint32_t il = 0; il < t->n_layer; il++) {
        tier_layer *l = &t->layer[il];
        for (uint32_t ie = 0; l->places && ie < l->s.n_expert; ie++) {
            tier_place *p = &l->places[ie];
            p->card = (gpu_expert){card_address(t, p->file.gate), card_address(t, p->file.up),
                                   card_address(t, p->file.down)};
        }
    }
    return MICA_OK;
}

/* Which slab a layer's experts have slots in. */
static mica_status sort_layers(gpu_tiers *t, const dev_expert_slabs *want, mica_error *err) {
    t->n_slab = want->n_slab;
    for (uint32_t k = 0; k < t->n_slab; k++) t->slab[k] = (tier_slab){.blob_bytes = want->blob_bytes[k]};
    for (uint32_t il = 0; il < t->n_layer; il++) {
        tier_layer *l = &t->layer[il];
        if (!l->places) continue;
        l->slab = il < want->n_layer ? want->slab_of[il] : EXPERT_NOBODY;
        if (l->slab >= t->n_slab ||
            l->down_at + dev_expert_room(l->s.down_bytes) > t->slab[l->slab].blob_bytes)
            return fail(err, MICA_E_INTERNAL, "experts of layer %u: no slots of their size", il);
        t->slab[l->slab].n_expert += l->s.n_expert;
    }
    return MICA_OK;
}

static mica_status take_slots(gpu *g, const dev_expert_slabs *want, mica_error *err) {
    gpu_tiers *t = g->own->tiers;
    t->all_in_slots = true;
    for (uint32_t k = 0; k < t->n_slab; k++) {
        tier_slab *s = &t->slab[k];
        s->n_slot = want->n_slot[k] < s->n_expert ? want->n_slot[k] : s->n_expert;
        t->all_in_slots &= s->n_slot == s->n_expert;
        t->stats.n_slot += s->n_slot;
        if (s->n_slot == 0) continue;
        TRY(gpu_take(g, (void **)&s->slots, s->n_slot * s->blob_bytes, "experts", err));
    }
    return MICA_OK;
}

/* Where the others are: the file's pages, or pinned memory. */
static mica_status take_beside(gpu *g, dev_expert_slabs *want, mica_error *err) {
    gpu_tiers *t = g->own->tiers;
    bool mapped = false;
    TRY(gpu_moves_new(g, err));
    if (want->ram == EXPERT_RAM_MMAP) TRY(map_file(g, &mapped, err));
    if (mapped) return MICA_OK;
    if (want->ram == EXPERT_RAM_MMAP) t->ram = want->ram = EXPERT_RAM_COMPLEMENT; // not more than the pages
    for (uint32_t k = 0; k < t->n_slab; k++) {
        tier_slab *s = &t->slab[k];
        s->n_ram = s->n_expert;
        if (t->ram == EXPERT_RAM_COMPLEMENT) s->n_ram += 1 - s->n_slot; // one to exchange through
        if (s->n_ram > 0) TRY(take_ram(g, s, err));
    }
    return MICA_OK;
}

mica_status gpu_experts_take(dev *d, dev_expert_slabs *want, mica_error *err) {
    gpu *g = (gpu *)d;
    gpu_tiers *t = g->own->tiers;
    if (!t) return MICA_OK;
    TRY(gpu_enter(g, err));
    TRY(sort_layers(t, want, err));
    t->ram = want->ram;
    TRY(gpu_take(g, (void **)&t->table, t->n_expert * sizeof *t->table, "table of experts", err));
    TRY(take_slots(g, want, err));
    TRY(take_log(g, err));
    if (!t->all_in_slots) TRY(take_beside(g, want, err));
    if (!t->all_in_slots) TRY(gpu_stream_new(g, want->ring_bytes, err));
    t->taken = true;
    return MICA_OK;
}

/* ---- the first filling ---- */

typedef struct fill_job {
    const tier_layer *l;
    const gpu_tiers *t;
    const expert_lease *from; // [n_expert]
} fill_job;

static void fill_part(void *arg, int ith, int n_thread) {
    const fill_job *j = arg;
    const dev_expert_shape *s = &j->l->s;
    for (uint32_t ie = (uint32_t)ith; ie < s->n_expert; ie += (uint32_t)n_thread) {
        const tier_place *p = &j->l->places[ie];
        if (p->ram == EXPERT_NOBODY) continue;
        char *at = tier_ram(&j->t->slab[j->l->slab], p->ram, false);
        memcpy(at, j->from[ie].gate, s->gate_bytes);
        memcpy(at + j->l->up_at, j->from[ie].up, s->up_bytes);
        memcpy(at + j->l->down_at, j->from[ie].down, s->down_bytes);
    }
}

/* The layer's share of a slab's slots, out of the file. */
static mica_status fill_slots(gpu *g, const tier_layer *l, const expert_lease *from, mica_error *err) {
    const tier_slab *s = &g->own->tiers->slab[l->slab];
    for (uint32_t ie = 0; ie < l->s.n_expert; ie++) {
        if (l->places[ie].slot == EXPERT_NOBODY) continue;
        char *at = tier_slot(s, l->places[ie].slot);
        TRY(gpu_put_file_bytes(g, at, from[ie].gate, l->s.gate_bytes, err));
        TRY(gpu_put_file_bytes(g, at + l->up_at, from[ie].up, l->s.up_bytes, err));
        TRY(gpu_put_file_bytes(g, at + l->down_at, from[ie].down, l->s.down_bytes, err));
    }
    return MICA_OK;
}

static void give_ram(gpu_tiers *t, tier_layer *l) {
    tier_slab *s = &t->slab[l->slab];
    for (uint32_t ie = 0; s->n_ram > 0 && ie < l->s.n_expert; ie++) {
        if (t->ram == EXPERT_RAM_COMPLEMENT && l->places[ie].slot != EXPERT_NOBODY) continue;
        l->places[ie].ram = s->spare[--s->n_spare];
    }
}

static mica_status fill_layer(gpu *g, uint32_t il, expert_lease *leases, pool *p, mica_error *err) {
    gpu_own *o = g->own;
    gpu_tiers *t = o->tiers;
    tier_layer *l = &t->layer[il];
    mica_status st = MICA_OK;
    uint32_t n = 0;
    for (; n < l->s.n_expert; n++) TRY_GOTO(o->experts->acquire(o->experts, il, n, &leases[n], err), done);
    give_ram(t, l);
    fill_job job = {l, t, leases};
    if (p && t->slab[l->slab].n_ram > 0) {
        pool_run(p, fill_part, &job);
        uint64_t once = 0;
        for (uint32_t ie = 0; ie < n; ie++) // of an expert that has both, the slot counts
            once += l->places[ie].slot == EXPERT_NOBODY;
        o->loaded_bytes += once * (l->s.gate_bytes + l->s.up_bytes + l->s.down_bytes);
        if (o->loaded) o->loaded(o->loaded_user, o->loaded_bytes);
    }
    TRY_GOTO(fill_slots(g, l, leases, err), done);
done:
    while (n-- > 0) o->experts->release(o->experts, &leases[n]);
    return st;
}

static mica_status send_table(gpu *g, mica_error *err) {
    gpu_tiers *t = g->own->tiers;
    gpu_expert *list = mem_calloc(t->n_expert, sizeof *list);
    if (!list) return fail(err, MICA_E_NOMEM, "table of experts: out of memory");
    for (uint32_t il = 0; il < t->n_layer; il++) {
        const tier_layer *l = &t->layer[il];
        for (uint32_t ie = 0; l->places && ie < l->s.n_expert; ie++)
            list[l->table + ie] = tier_entry(t, l, ie);
    }
    int rc = g->own->v->to_device(t->table, list, t->n_expert * sizeof *list, g->own->stream);
    if (rc == 0) rc = g->own->v->stream_sync(g->own->stream);
    mem_free(list);
    return rc ? gpu_fail(g, rc, err, "table of experts") : MICA_OK;
}

mica_status gpu_experts_fill(dev *d, const dev_expert_move *m, uint32_t n, mica_error *err) {
    gpu *g = (gpu *)d;
    gpu_tiers *t = g->own->tiers;
    mica_status st = MICA_OK;
    pool *p = NULL;
    if (!t) return MICA_OK;
    TRY(gpu_enter(g, err));
    uint32_t most = 0;
    for (uint32_t i = 0; i < n; i++) {
        assert(m[i].layer < t->n_layer && t->layer[m[i].layer].places);
        assert(m[i].slot < t->slab[t->layer[m[i].layer].slab].n_slot);
        t->layer[m[i].layer].places[m[i].expert].slot = m[i].slot;
    }
    t->stats.n_slot_full = n;
    for (uint32_t il = 0; il < t->n_layer; il++) {
        if (t->layer[il].places && t->layer[il].s.n_expert > most) most = t->layer[il].s.n_expert;
    }
    expert_lease *leases = mem_calloc(most, sizeof *leases);
    if (!leases) return fail(err, MICA_E_NOMEM, "experts: out of memory");
    int n_thread = g->own->n_thread < FILL_THREADS_MAX ? g->own->n_thread : FILL_THREADS_MAX;
    if (!t->all_in_slots) TRY_GOTO(pool_new(&p, n_thread > 0 ? n_thread : 1, err), done);
    for (uint32_t il = 0; il < t->n_layer; il++) {
        if (t->layer[il].places) TRY_GOTO(fill_layer(g, il, leases, p, err), done);
    }
    TRY_GOTO(send_table(g, err), done);
done:
    pool_free(p);
    mem_free(leases);
    return st;
}

mica_status gpu_experts_of(gpu *g, uint32_t layer, const gpu_expert **out, mica_error *err) {
    const gpu_tiers *t = g->own->tiers;
    bool there = t && t->taken && layer < t->n_layer && t->layer[layer].places;
    *out = there ? t->table + t->layer[layer].table : NULL;
    if (!there)
        return fail(err, MICA_E_INTERNAL, "device %s: experts of layer %u: not bound", g->own->card.id,
                    layer);
    return gpu_stream_table(g, layer, out, err);
}

mica_status gpu_experts_used(gpu *g, uint32_t layer, mica_error *err) {
    return gpu_stream_used(g, layer, err);
}

int32_t *gpu_experts_log(gpu *g, uint32_t layer) {
    const gpu_tiers *t = g->own->tiers;
    return t->log_card + (size_t)layer * g->limits.n_row * g->limits.n_expert_used;
}

/* Device memory is the caller's to give back; the stream is idle. */
void gpu_tiers_fini(gpu *g) {
    gpu_own *o = g->own;
    gpu_tiers *t = o->tiers;
    if (!t) return;
    if (o->opened) {
        gpu_moves_fini(g);
        gpu_stream_fini(g);
        unregister_all(g);
        if (t->log) o->v->pinned_free(t->log);
    }
    for (uint32_t k = 0; k < t->n_slab; k++) {
        tier_slab *s = &t->slab[k];
        while (s->n_piece > 0) o->v->pinned_free(s->ram[--s->n_piece]);
        mem_free(s->ram);
        mem_free(s->ram_card);
        mem_free(s->spare);
    }
    while (t->n_lease > 0) o->experts->release(o->experts, &t->leases[--t->n_lease]);
    for (uint32_t il = 0; il < t->n_layer; il++) mem_free(t->layer[il].places);
    mem_free(t->leases);
    mem_free(t->ranges);
    mem_free(t);
    o->tiers = NULL;
}
