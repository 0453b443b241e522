/* Experts on their way between tiers, beside the steps, and what steps say of their use.
 *
 * A move goes through turns; a turn is between two steps, in the stream that steps run in, when nothing is
 * being captured. Asked: the leaving expert's entry is turned to its bytes in host memory, then the second
 * stream, which waits for that, copies the newcomer into the slot; when the copy is found done, the next turn
 * gives the newcomer's entry the slot. Where host memory holds only what no slot holds, the leaving one's
 * bytes go to a spare place of it first, while its slot still serves. So no step ever reads bytes that are
 * being written, and none waits for a copy. */
#include "dev/gpu_tiers.h"

#include "kern/shape.h"

#include <string.h>

mica_status gpu_moves_new(gpu *g, mica_error *err) {
    gpu_own *o = g->own;
    gpu_tiers *t = o->tiers;
    int rc = o->v->stream_new(&t->stream, GPU_STREAM_APART);
    if (rc == 0) rc = o->v->event_new(&t->turned, GPU_EVENT_UNTIMED);
    for (int i = 0; i < EXPERT_MOVES_MAX && rc == 0; i++)
        rc = o->v->event_new(&t->move[i].arrived, GPU_EVENT_UNTIMED);
    return rc ? gpu_fail(g, rc, err, "stream of experts") : MICA_OK;
}

void gpu_moves_fini(gpu *g) {
    gpu_own *o = g->own;
    gpu_tiers *t = o->tiers;
    if (t->stream) o->v->stream_sync(t->stream);
    for (int i = 0; i < EXPERT_MOVES_MAX; i++) {
        if (t->move[i].arrived) o->v->event_free(t->move[i].arrived);
    }
    if (t->turned) o->v->event_free(t->turned);
    if (t->stream) o->v->stream_free(t->stream);
    t->stream = NULL;
}

static tier_place *place_of(gpu_tiers *t, uint32_t layer, uint32_t expert) {
    return &t->layer[layer].places[expert];
}

uint32_t gpu_experts_move(dev *d, const dev_expert_move *m, uint32_t n) {
    gpu_tiers *t = ((gpu *)d)->own->tiers;
    uint32_t i = 0;
    if (!t || !t->stream) return 0;
    for (int k = 0; k < EXPERT_MOVES_MAX && i < n; k++) {
        if (t->move[k].state != MOVE_FREE) continue;
        t->move[k].m = m[i++];
        t->move[k].state = MOVE_ASKED;
    }
    return i;
}

uint32_t gpu_experts_moved(dev *d, dev_expert_move *out, uint32_t max) {
    gpu_tiers *t = ((gpu *)d)->own->tiers;
    uint32_t n = 0;
    for (int k = 0; t && k < EXPERT_MOVES_MAX && n < max; k++) {
        if (t->move[k].state != MOVE_DONE) continue;
        out[n++] = t->move[k].m;
        t->move[k].state = MOVE_FREE;
    }
    return n;
}

/* ---- turns ---- */

/* The entry of an expert as it is now. The bytes of pageable memory are taken at once. */
static int put_entry(gpu *g, uint32_t layer, uint32_t expert) {
    gpu_tiers *t = g->own->tiers;
    gpu_expert e = tier_entry(t, &t->layer[layer], expert);
    return g->own->v->to_device(t->table + t->layer[layer].table + expert, &e, sizeof e, g->own->stream);
}

/* The leaving expert's bytes to a spare place in host memory. */
static int begin_out(gpu *g, tier_move *v) {
    gpu_tiers *t = g->own->tiers;
    tier_slab *s = &t->slab[v->m.slab];
    v->state = MOVE_OUT;
    int rc =
        g->own->v->to_host(tier_ram(s, v->ram, false), tier_slot(s, v->m.slot), s->blob_bytes, t->stream);
    t->stats.moved_bytes += s->blob_bytes;
    return rc ? rc : g->own->v->event_record(v->arrived, t->stream);
}

int gpu_expert_copy(gpu *g, const tier_layer *l, uint32_t expert, char *to) {
    const gpu_drv *v = g->own->v;
    gpu_tiers *t = g->own->tiers;
    const tier_place *p = &l->places[expert];
    const tier_slab *s = &t->slab[l->slab];
    if (p->ram != EXPERT_NOBODY)
        return v->to_device(to, tier_ram(s, p->ram, false), s->blob_bytes, t->stream);
    int rc = v->to_device(to, p->file.gate, l->s.gate_bytes, t->stream);
    if (rc == 0) rc = v->to_device(to + l->up_at, p->file.up, l->s.up_bytes, t->stream);
    if (rc == 0) rc = v->to_device(to + l->down_at, p->file.down, l->s.down_bytes, t->stream);
    return rc;
}

/* The newcomer's bytes into the slot; the second stream has waited for the turn. */
static int begin_in(gpu *g, tier_move *v) {
    gpu_tiers *t = g->own->tiers;
    const tier_slab *s = &t->slab[v->m.slab];
    v->state = MOVE_IN;
    t->stats.moved_bytes += s->blob_bytes;
    int rc = gpu_expert_copy(g, &t->layer[v->m.layer], v->m.expert, tier_slot(s, v->m.slot));
    return rc ? rc : g->own->v->event_record(v->arrived, t->stream);
}

/* The slot is nobody's now: who leaves is read from host memory. */
static int leave(gpu *g, tier_move *v) {
    tier_place *p = place_of(g->own->tiers, v->m.out_layer, v->m.out_expert);
    p->slot = EXPERT_NOBODY;
    if (g->own->tiers->ram == EXPERT_RAM_COMPLEMENT) p->ram = v->ram;
    g->own->tiers->stats.n_slot_full--;
    return put_entry(g, v->m.out_layer, v->m.out_expert);
}

static int arrive(gpu *g, tier_move *v) {
    gpu_tiers *t = g->own->tiers;
    tier_place *p = place_of(t, v->m.layer, v->m.expert);
    tier_slab *s = &t->slab[v->m.slab];
    p->slot = v->m.slot;
    t->stats.n_slot_full++;
    if (t->ram == EXPERT_RAM_COMPLEMENT) {
        s->spare[s->n_spare++] = p->ram;
        p->ram = EXPERT_NOBODY;
    }
    v->state = MOVE_DONE;
    return put_entry(g, v->m.layer, v->m.expert);
}

/* What a move does at this turn; *in: its newcomer's copy is to begin behind the turn. */
static int turn_move(gpu *g, tier_move *v, bool *out, bool *in) {
    gpu_tiers *t = g->own->tiers;
    bool leaves = v->m.out_layer != EXPERT_NOBODY;
    int rc = 0;
    if (v->state == MOVE_OUT || v->state == MOVE_IN) {
        rc = g->own->v->event_query(v->arrived);
        if (rc) return rc == GPU_NOT_READY ? 0 : rc;
    }
    if (v->state == MOVE_IN) return arrive(g, v);
    *out = v->state == MOVE_ASKED && leaves && t->ram == EXPERT_RAM_COMPLEMENT;
    if (*out && t->slab[v->m.slab].n_spare == 0) {
        *out = false; // its turn comes when another's place is free
        return 0;
    }
    if (*out) v->ram = t->slab[v->m.slab].spare[--t->slab[v->m.slab].n_spare];
    *in = !*out && (v->state == MOVE_ASKED || v->state == MOVE_OUT);
    if (*in && leaves) rc = leave(g, v);
    return rc;
}

mica_status gpu_moves_turn(gpu *g, const dev_step *s, mica_error *err) {
    gpu_own *o = g->own;
    gpu_tiers *t = o->tiers;
    bool out[EXPERT_MOVES_MAX] = {false}, in[EXPERT_MOVES_MAX] = {false}, any = false;
    int rc = 0;
    if (!t || !t->taken) return MICA_OK;
    if (s->n_row > t->log_rows) t->log_rows = s->n_row;
    t->log_prompt |= s->n_prompt > 0;
    for (int k = 0; k < EXPERT_MOVES_MAX && rc == 0; k++) {
        if (t->move[k].state == MOVE_FREE || t->move[k].state == MOVE_DONE) continue;
        rc = turn_move(g, &t->move[k], &out[k], &in[k]);
        any |= out[k] || in[k];
    }
    if (rc == 0 && any) rc = o->v->event_record(t->turned, o->stream);
    if (rc == 0 && any) rc = o->v->stream_wait(t->stream, t->turned, 0);
    for (int k = 0; k < EXPERT_MOVES_MAX && rc == 0; k++) {
        if (out[k])
            rc = begin_out(g, &t->move[k]);
        else if (in[k])
            rc = begin_in(g, &t->move[k]);
    }
    return rc ? gpu_fail(g, rc, err, "experts on their way") : gpu_stream_begin(g, s, err);
}

/* ---- use ---- */

/* Token rows read an expert each for itself, tiles of a prompt once for all. */
static void count_use(gpu_tiers *t, const tier_layer *l, const int32_t *ids, uint32_t n) {
    uint32_t seen[ROUTER_EXPERTS_MAX / 32] = {0};
    for (uint32_t i = 0; i < n; i++) {
        uint32_t ie = (uint32_t)ids[i], bit = 1u << ie % 32;
        if (ie >= l->s.n_expert || ie >= ROUTER_EXPERTS_MAX) continue;
        bool hit = l->places[ie].slot != EXPERT_NOBODY, again = t->log_prompt && seen[ie / 32] & bit;
        seen[ie / 32] |= bit;
        t->stats.n_use++;
        t->stats.n_hit += hit;
        if (!hit && !again) t->stats.link_bytes += l->s.gate_bytes + l->s.up_bytes + l->s.down_bytes;
    }
}

void gpu_moves_look(gpu *g) {
    gpu_own *o = g->own;
    gpu_tiers *t = o->tiers;
    if (!t || !t->taken) return;
    size_t row = g->limits.n_expert_used, layer = g->limits.n_row * row, most = t->log_rows * row;
    for (uint32_t il = 0; il < t->n_layer; il++) {
        int32_t *ids = t->log + il * layer;
        uint32_t n = 0;
        if (!t->layer[il].places) continue;
        while (n < most && ids[n] >= 0) n++;
        if (n == 0) continue;
        count_use(t, &t->layer[il], ids, n);
        if (o->routed) o->routed(o->routed_user, il, ids, n);
        memset(ids, 0xFF, n * sizeof *ids);
    }
    t->log_rows = 0;
    t->log_prompt = false;
}

void gpu_experts_stats(dev *d, dev_expert_stats *out) {
    const gpu_tiers *t = ((gpu *)d)->own->tiers;
    *out = t ? t->stats : (dev_expert_stats){0};
}
