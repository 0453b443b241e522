/* Slots of a card and who has them: what the policy wants, the device does, a few moves at a time.
 *
 * Moves share the link with what kernels read over it, so a step's moves may cost a share of what its misses
 * did: a cold start moves fast, a warm one hardly at all. */
#include "run/tiers.h"

#include "base/clock.h"
#include "base/mem.h"
#include "store/policy.h"
#include "store/profile.h"

#include <assert.h>
#include <stdatomic.h>

enum { MOVES_SHARE = 4 }; // of the bytes that the last step read over the link

struct expert_tiers {
    tiers_config cfg;
    dev *d;                               // borrowed; NULL: no slots to look after
    policy *p;                            // owned
    profile *learned;                     // owned; NULL: nothing is learned
    uint64_t now;                         // rows so far
    uint64_t link_bytes;                  // at the last step
    policy_swap moving[EXPERT_MOVES_MAX]; // [n_moving]
    uint32_t n_moving;
    _Atomic uint64_t n_row, n_use, n_hit, link_total; // for tiers_totals
};

mica_status tiers_new(expert_tiers **out, const tiers_config *cfg, mica_error *err) {
    *out = mem_calloc(1, sizeof **out);
    if (!*out) return fail(err, MICA_E_NOMEM, "experts: out of memory");
    expert_tiers *t = *out;
    t->cfg = *cfg;
    profile_key key = {cfg->fingerprint, cfg->n_layer, cfg->n_expert, cfg->n_used};
    if (cfg->n_layer > 0 && (cfg->profile_path || !plan_all_resident(cfg->p)))
        t->learned = profile_open(cfg->profile_path, &key);
    return MICA_OK;
}

void tiers_free(expert_tiers *t) {
    if (!t) return;
    profile_close(t->learned);
    policy_free(t->p);
    mem_free(t);
}

/* ---- start ---- */

static void slabs_of(const plan *p, dev_expert_slabs *s) {
    *s = (dev_expert_slabs){.n_slab = p->n_slab, .ring_bytes = p->ring_bytes};
    s->ram = p->experts_ram == PLAN_RAM_COMPLEMENT ? EXPERT_RAM_COMPLEMENT
             : p->experts_ram == PLAN_RAM_MMAP     ? EXPERT_RAM_MMAP
                                                   : EXPERT_RAM_ALL;
    for (uint32_t il = 0; il < EXPERT_LAYERS_MAX; il++) {
        bool none = il >= PLAN_LAYER_MAX || p->slab_of[il] == PLAN_NO_SLAB;
        s->slab_of[il] = none ? EXPERT_NOBODY : p->slab_of[il];
        if (!none) s->n_layer = il + 1;
    }
    for (uint32_t k = 0; k < p->n_slab; k++) {
        s->blob_bytes[k] = p->slab[k].blob_bytes;
        s->n_slot[k] = p->slab[k].n_slot;
    }
}

/* What earlier runs learned; else every layer gets an equal share, which the first uses overrule. */
static mica_status seed(expert_tiers *t, uint32_t n_layer, mica_error *err) {
    uint32_t n = t->cfg.n_expert;
    if (t->learned && profile_tokens(t->learned) > 0) {
        policy_seed(t->p, profile_use(t->learned), profile_tokens(t->learned));
        return MICA_OK;
    }
    float *use = mem_calloc((size_t)n_layer * n, sizeof *use);
    if (!use) return fail(err, MICA_E_NOMEM, "experts: out of memory");
    for (size_t i = 0; i < (size_t)n_layer * n; i++) use[i] = 1e-6f * (float)(n - i % n);
    policy_seed(t->p, use, 1);
    mem_free(use);
    return MICA_OK;
}

static dev_expert_move move_of(const policy_swap *w) {
    return (dev_expert_move){.layer = w->in.layer,
                             .expert = w->in.expert,
                             .out_layer = w->out.layer == POLICY_NONE ? EXPERT_NOBODY : w->out.layer,
                             .out_expert = w->out.expert,
                             .slab = w->slab,
                             .slot = w->slot};
}

static mica_status first_filling(expert_tiers *t, dev *d, uint32_t n_slot, mica_error *err) {
    mica_status st = MICA_OK;
    policy_swap *swaps = mem_calloc(n_slot, sizeof *swaps);
    dev_expert_move *moves = mem_calloc(n_slot, sizeof *moves);
    if (!swaps || !moves) {
        st = fail(err, MICA_E_NOMEM, "experts: out of memory");
        goto done;
    }
    uint32_t n = policy_swaps(t->p, 0, UINT64_MAX, swaps, n_slot);
    for (uint32_t i = 0; i < n; i++) moves[i] = move_of(&swaps[i]);
    TRY_GOTO(dev_experts_fill(d, moves, n, err), done);
    for (uint32_t i = 0; i < n; i++) policy_done(t->p, &swaps[i], true);
done:
    mem_free(swaps);
    mem_free(moves);
    return st;
}

mica_status tiers_fill(expert_tiers *t, dev *d, mica_error *err) {
    dev_expert_slabs s;
    uint64_t blob_bytes[EXPERT_SLABS_MAX];
    uint32_t n_slot = 0;
    slabs_of(t->cfg.p, &s);
    if (s.n_slab == 0 || !t->cfg.p->card[0]) return MICA_OK;
    TRY(dev_experts_take(d, &s, err));
    for (uint32_t k = 0; k < s.n_slab; k++) {
        blob_bytes[k] = s.blob_bytes[k];
        n_slot += s.n_slot[k];
    }
    policy_config c = {.n_layer = s.n_layer,
                       .n_expert = t->cfg.n_expert,
                       .n_used = t->cfg.n_used,
                       .slab_of = s.slab_of,
                       .n_slab = s.n_slab,
                       .n_slot = s.n_slot,
                       .blob_bytes = blob_bytes};
    TRY(policy_new(&t->p, &c, err));
    TRY(seed(t, s.n_layer, err));
    TRY(first_filling(t, d, n_slot, err));
    if (!plan_all_resident(t->cfg.p) && n_slot > 0) t->d = d;
    return MICA_OK;
}

const float *tiers_learned(const expert_tiers *t, double *tokens) {
    *tokens = t->learned ? profile_tokens(t->learned) : 0;
    return *tokens > 0 ? profile_use(t->learned) : NULL;
}

/* ---- steps ---- */

void tiers_routed(expert_tiers *t, uint32_t layer, const int32_t *ids, uint32_t n) {
    if (t->learned) profile_note(t->learned, layer, ids, n / t->cfg.n_used);
    if (t->d) policy_note(t->p, t->now, layer, ids, n / t->cfg.n_used);
}

/* Moves that have arrived are the policy's again. */
static void settle_moves(expert_tiers *t) {
    dev_expert_move m[EXPERT_MOVES_MAX];
    uint32_t n = dev_experts_moved(t->d, m, EXPERT_MOVES_MAX);
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < t->n_moving; k++) {
            if (t->moving[k].slab != m[i].slab || t->moving[k].slot != m[i].slot) continue;
            policy_done(t->p, &t->moving[k], true);
            t->moving[k] = t->moving[--t->n_moving];
            break;
        }
    }
}

void tiers_step(expert_tiers *t, uint32_t n_row) {
    dev_expert_stats s;
    dev_expert_move m[EXPERT_MOVES_MAX];
    if (t->learned) profile_tick(t->learned, clock_ns());
    if (!t->d) return;
    t->now += n_row;
    settle_moves(t);
    dev_experts_stats(t->d, &s);
    uint64_t budget = (s.link_bytes - t->link_bytes) / MOVES_SHARE;
    t->link_bytes = s.link_bytes;
    atomic_store(&t->n_row, t->now);
    atomic_store(&t->n_use, s.n_use);
    atomic_store(&t->n_hit, s.n_hit);
    atomic_store(&t->link_total, s.link_bytes);
    policy_swap *swaps = t->moving + t->n_moving;
    uint32_t n = policy_swaps(t->p, t->now, budget, swaps, EXPERT_MOVES_MAX - t->n_moving);
    for (uint32_t i = 0; i < n; i++) m[i] = move_of(&swaps[i]);
    uint32_t begun = dev_experts_move(t->d, m, n);
    assert(begun == n);
    t->n_moving += begun;
}

void tiers_totals(const expert_tiers *t, tiers_total *out) {
    *out = (tiers_total){atomic_load(&t->n_row), atomic_load(&t->n_use), atomic_load(&t->n_hit),
                         atomic_load(&t->link_total)};
}
