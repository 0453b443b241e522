/* Slots of experts in memory, in front of the file. store/policy.h says who has one; store/reader.h fills it.
 *
 * A slot that the policy gave to a newcomer belongs to its reader until the lease that needs it has waited
 * for it. What a call will need is remembered as a list, and read in its order with at most AHEAD reads in
 * flight: the next ones begin as leases are released. An expert that could not be read leaves its slot empty.
 */
#include "base/clock.h"
#include "base/mem.h"
#include "store/policy.h"
#include "store/reader.h"
#include "store/store_int.h"

#include <string.h>

enum { READERS = 16, AHEAD = 32 };

typedef struct slot_room {
    reader_job job;
    policy_swap swap;
    bool open; // read, or being read, and not yet told to the policy
} slot_room;

struct slots {
    const store *s; // borrowed
    policy *p;      // owned
    reader *r;      // owned
    uint32_t n_layer, n_slab;
    uint8_t slab_of[PLAN_LAYER_MAX];
    char *pages[PLAN_SLAB_MAX];      // owned
    char *bytes[PLAN_SLAB_MAX];      // in them, aligned
    slot_room *rooms[PLAN_SLAB_MAX]; // owned, [n_slot]
    uint64_t blob_bytes[PLAN_SLAB_MAX];
    uint32_t n_slot[PLAN_SLAB_MAX];
    int32_t *list; // owned, [n_expert]: of the call at hand
    uint32_t list_layer, n_list, at_list, n_open;
    uint64_t now; // calls so far of the first layer
    uint32_t last_layer;
    uint64_t n_use, n_hit, wait_ns;
};

uint64_t store_blob_room(const dev_expert_shape *e) {
    return reader_room(e->gate_bytes) + reader_room(e->up_bytes) + reader_room(e->down_bytes);
}

/* ---- reads ------------------------------------------------------------------------------------ */

static slot_room *room_of(slots *k, policy_id id) {
    uint32_t slot = policy_slot(k->p, id);
    return slot == POLICY_NONE ? NULL : &k->rooms[k->slab_of[id.layer]][slot];
}

static void piece_of(reader_piece *p, const stack *st, uint32_t expert, char *room) {
    *p = (reader_piece){.shard = st->shard, .room = room};
    p->off_bytes = st->off_bytes + (uint64_t)expert * st->expert_bytes;
    p->n_bytes = st->expert_bytes;
}

static void begin_read(slots *k, const policy_swap *w) {
    slot_room *m = &k->rooms[w->slab][w->slot];
    const layer_stacks *l = &k->s->layers[w->in.layer];
    char *room = k->bytes[w->slab] + w->slot * k->blob_bytes[w->slab];
    m->swap = *w;
    m->open = true;
    k->n_open++;
    piece_of(&m->job.piece[0], &l->gate, w->in.expert, room);
    room += reader_room(l->gate.expert_bytes);
    m->job.n_piece = l->up.half_bytes ? 2 : 3; // fused: the first piece has both
    if (!l->up.half_bytes) {
        piece_of(&m->job.piece[1], &l->up, w->in.expert, room);
        room += reader_room(l->up.expert_bytes);
    }
    piece_of(&m->job.piece[m->job.n_piece - 1], &l->down, w->in.expert, room);
    reader_submit(k->r, &m->job);
}

/* Waits for the slot's read and tells the policy. */
static mica_status settle(slots *k, slot_room *m, mica_error *err) {
    if (!m->open) return MICA_OK;
    uint64_t start = reader_done(&m->job) ? 0 : clock_ns();
    mica_status st = reader_wait(k->r, &m->job, err);
    if (start) k->wait_ns += clock_ns() - start;
    m->open = false;
    k->n_open--;
    policy_done(k->p, &m->swap, st == MICA_OK);
    return st;
}

/* Waits for all reads in flight; the first error. */
static mica_status settle_all(slots *k, mica_error *err) {
    mica_status first = MICA_OK;
    for (uint32_t is = 0; is < k->n_slab && k->n_open > 0; is++) {
        for (uint32_t i = 0; i < k->n_slot[is]; i++) {
            mica_status st = settle(k, &k->rooms[is][i], first == MICA_OK ? err : NULL);
            if (first == MICA_OK) first = st;
        }
    }
    return first;
}

/* What is in slots and on the list does not leave for what is on the list. */
static void read_ahead(slots *k) {
    policy_swap w;
    while (k->at_list < k->n_list && k->n_open < AHEAD) {
        policy_id id = {k->list_layer, (uint32_t)k->list[k->at_list]};
        if (policy_slot(k->p, id) == POLICY_NONE) {
            if (!policy_admit(k->p, k->now, id, true, &w)) return;
            begin_read(k, &w);
        }
        k->at_list++;
    }
}

static void pin_list(slots *k, void (*pin)(policy *p, policy_id id), const bool *there) {
    for (uint32_t i = 0; i < k->n_list; i++)
        if (there[i]) pin(k->p, (policy_id){k->list_layer, (uint32_t)k->list[i]});
}

void slots_will_need(slots *k, uint32_t layer, const int32_t *experts, uint32_t n) {
    bool there[512] = {0};
    if (n > k->s->n_expert || k->slab_of[layer] == PLAN_NO_SLAB) return;
    if (layer <= k->last_layer) k->now++;
    k->last_layer = layer;
    k->list_layer = layer;
    k->n_list = n;
    k->at_list = 0;
    for (uint32_t i = 0; i < n; i++) {
        k->list[i] = experts[i];
        bool hit = policy_resident(k->p, (policy_id){layer, (uint32_t)experts[i]});
        if (i < 512) there[i] = hit;
        k->n_hit += hit;
    }
    k->n_use += n;
    policy_note(k->p, k->now, layer, experts, n);
    if (k->n_list > 512) k->n_list = 512; // the rest is read when it is asked for
    pin_list(k, policy_pin, there);
    read_ahead(k);
    pin_list(k, policy_unpin, there);
}

/* ---- leases ----------------------------------------------------------------------------------- */

/* The expert gets a slot and its read begins. */
static mica_status admit(slots *k, policy_id id, mica_error *err) {
    policy_swap w;
    if (!policy_admit(k->p, k->now, id, true, &w)) {
        settle_all(k, NULL); // somebody has to leave, and only who has arrived can; who failed has left
        if (policy_slot(k->p, id) == POLICY_NONE && !policy_admit(k->p, k->now, id, true, &w))
            return fail(err, MICA_E_NOMEM, "expert %u of layer %u: all %u slots are in use", id.expert,
                        id.layer, k->n_slot[k->slab_of[id.layer]]);
    }
    begin_read(k, &w);
    return MICA_OK;
}

mica_status slots_acquire(slots *k, uint32_t layer, uint32_t expert, expert_lease *out, mica_error *err) {
    policy_id id = {layer, expert};
    if (policy_slot(k->p, id) == POLICY_NONE) TRY(admit(k, id, err));
    slot_room *m = room_of(k, id);
    TRY(settle(k, m, err));
    policy_pin(k->p, id);
    const reader_job *j = &m->job;
    out->gate = j->piece[0].at;
    out->up = j->n_piece == 3 ? j->piece[1].at : j->piece[0].at + k->s->layers[layer].up.half_bytes;
    out->down = j->piece[j->n_piece - 1].at;
    return MICA_OK;
}

void slots_release(slots *k, uint32_t layer, uint32_t expert) {
    policy_unpin(k->p, (policy_id){layer, expert});
    if (layer == k->list_layer) read_ahead(k);
}

store_stats slots_stats(const slots *k) {
    store_stats s = {.n_use = k->n_use, .n_hit = k->n_hit, .wait_ns = k->wait_ns};
    s.ssd_bytes = reader_bytes(k->r);
    s.direct = reader_is_direct(k->r);
    for (uint32_t is = 0; is < k->n_slab; is++) s.n_slot += k->n_slot[is];
    return s;
}

/* ---- life ------------------------------------------------------------------------------------- */

static mica_status take_rooms(slots *k, const plan *p, mica_error *err) {
    for (uint32_t is = 0; is < k->n_slab; is++) {
        k->n_slot[is] = p->slab[is].n_slot;
        k->blob_bytes[is] = p->slab[is].blob_bytes;
        size_t n_bytes = (size_t)(k->n_slot[is] * k->blob_bytes[is] + 2 * READER_ALIGN);
        k->pages[is] = mem_pages_alloc(n_bytes); // touched by the readers that fill them
        k->rooms[is] = mem_calloc(k->n_slot[is], sizeof *k->rooms[is]);
        if (!k->pages[is] || !k->rooms[is])
            return fail(err, MICA_E_NOMEM, "experts: %zu bytes of slots: out of memory", n_bytes);
        k->bytes[is] = k->pages[is] + (READER_ALIGN - (uintptr_t)k->pages[is] % READER_ALIGN);
    }
    return MICA_OK;
}

static mica_status make_policy(slots *k, const slots_config *cfg, mica_error *err) {
    uint32_t slab_of[PLAN_LAYER_MAX];
    for (uint32_t il = 0; il < k->n_layer; il++)
        slab_of[il] = k->slab_of[il] == PLAN_NO_SLAB ? POLICY_NONE : k->slab_of[il];
    policy_config c = {.n_layer = k->n_layer, .n_expert = cfg->s->n_expert, .n_used = 1};
    c.slab_of = slab_of;
    c.n_slab = k->n_slab;
    c.n_slot = k->n_slot;
    c.blob_bytes = k->blob_bytes;
    TRY(policy_new(&k->p, &c, err));
    if (cfg->use && cfg->tokens > 0) policy_seed(k->p, cfg->use, cfg->tokens);
    return MICA_OK;
}

/* Known use is worth the wait of the start: it is read in one go, in the order of its worth, AHEAD at a time:
 * each waits for the one that many before it. */
static mica_status first_filling(slots *k, mica_error *err) {
    slot_room *flight[AHEAD] = {0};
    policy_swap w[AHEAD];
    uint32_t n;
    while ((n = policy_swaps(k->p, 0, UINT64_MAX, w, AHEAD)) > 0) {
        for (uint32_t i = 0; i < n; i++) {
            if (flight[i]) TRY(settle(k, flight[i], err));
            flight[i] = &k->rooms[w[i].slab][w[i].slot];
            begin_read(k, &w[i]);
        }
    }
    return settle_all(k, err);
}

mica_status slots_new(slots **out, const slots_config *cfg, mica_error *err) {
    mica_status st = MICA_OK;
    *out = NULL;
    slots *k = mem_calloc(1, sizeof *k);
    if (!k) return fail(err, MICA_E_NOMEM, "experts: out of memory");
    k->s = cfg->s;
    k->n_slab = cfg->p->n_slab;
    memcpy(k->slab_of, cfg->p->slab_of, sizeof k->slab_of);
    for (uint32_t il = 0; il < PLAN_LAYER_MAX; il++)
        if (k->slab_of[il] != PLAN_NO_SLAB) k->n_layer = il + 1; // as learned use is laid out
    k->list = mem_calloc(cfg->s->n_expert, sizeof *k->list);
    if (!k->list) {
        st = fail(err, MICA_E_NOMEM, "experts: out of memory");
        goto done;
    }
    TRY_GOTO(take_rooms(k, cfg->p, err), done);
    TRY_GOTO(make_policy(k, cfg, err), done);
    TRY_GOTO(reader_open(&k->r, cfg->s->g, READERS, err), done);
    if (cfg->use && cfg->tokens > 0) TRY_GOTO(first_filling(k, err), done);
    *out = k;
    k = NULL;
done:
    slots_free(k);
    return st;
}

void slots_free(slots *k) {
    if (!k) return;
    if (k->p && k->r) settle_all(k, NULL);
    reader_close(k->r);
    policy_free(k->p);
    for (uint32_t is = 0; is < k->n_slab; is++) {
        mem_pages_free(k->pages[is]);
        mem_free(k->rooms[is]);
    }
    mem_free(k->list);
    mem_free(k);
}
