/* Uses are counted in units that grow with time instead of fading in place: a use at `now` weighs
 * 2^((now - base) / half), so that noting is one addition and an old count needs no visit. Divided by the
 * weight of all rows seen it is uses a token. Two such counts, a quick and a slow one, make the estimate;
 * when a weight gets large all are scaled down together (every 40 half-lives).
 *
 * Who leaves is found by a heap of the slab's residents, made once for a `now`. An entry at the root that has
 * risen since is put back with its new worth; the root that has not is taken as the least. (A row noted since
 * lowers, a little, those of its layer that it did not choose: that they learn with the next `now`.) */
#include "store/policy.h"

#include "base/mem.h"

#include <assert.h>
#include <math.h>

static const double QUICK_TOKENS = 24, SLOW_TOKENS = 256, QUICK_SHARE = 0.2, MARGIN = 1.25;
enum { GROWTH_MAX = 40 }; // powers of two before all counts are scaled down

typedef enum slot_state { SLOT_EMPTY, SLOT_COMING, SLOT_READY } slot_state;

typedef struct rank {
    float worth;
    uint32_t at; // expert, as an index into all
} rank;

/* Ordered by worth; `up` the dearest at the root, else the cheapest. */
typedef struct heap {
    rank *v; // slot of policy.ranks
    uint32_t n;
    bool up;
} heap;

typedef struct slab {
    uint32_t n_slot, n_limit, n_empty, hint; // hint: no slot below is empty
    uint64_t blob_bytes;
    uint32_t *expert; // slot of policy.slot_expert: who has the slot, unless it is empty
    uint8_t *state;   // slot of policy.slot_states
    heap victims, wanted;
    uint64_t victims_now;
    bool victims_valid;
} slab;

typedef struct layer_book {
    uint32_t slab, n_ready;
    double quick_rows, slow_rows; // weight of the rows seen
    float cost;
} layer_book;

struct policy {
    uint32_t n_layer, n_expert, n_used, n_slab;
    double half[2], share, margin, base; // half: quick, slow
    float *quick, *slow;                 // owned, [n_layer * n_expert]
    uint16_t *pins;                      // owned, [n_layer * n_expert]
    uint32_t *slot_of;                   // owned, [n_layer * n_expert], POLICY_NONE: in none
    layer_book *layers;                  // owned, [n_layer]
    slab *slabs;                         // owned, [n_slab]
    uint32_t *slot_expert;               // owned, all slabs'
    uint8_t *slot_states;                // owned, all slabs'
    rank *ranks;                         // owned, all heaps'
};

/* ---- estimates -------------------------------------------------------------------------------- */

static double growth(const policy *p, uint64_t now, int k) {
    return exp2(((double)now - p->base) / p->half[k]);
}

static float worth(const policy *p, uint32_t at) {
    const layer_book *l = &p->layers[at / p->n_expert];
    double quick = l->quick_rows > 0 ? p->quick[at] / l->quick_rows : 0;
    double slow = l->slow_rows > 0 ? p->slow[at] / l->slow_rows : 0;
    return (float)(p->share * quick + (1 - p->share) * slow) * l->cost;
}

static void scale_counts(policy *p, uint64_t now) {
    double by[2] = {1 / growth(p, now, 0), 1 / growth(p, now, 1)};
    for (size_t i = 0; i < (size_t)p->n_layer * p->n_expert; i++) {
        p->quick[i] *= (float)by[0];
        p->slow[i] *= (float)by[1];
    }
    for (uint32_t il = 0; il < p->n_layer; il++) {
        p->layers[il].quick_rows *= by[0];
        p->layers[il].slow_rows *= by[1];
    }
    p->base = (double)now;
}

void policy_note(policy *p, uint64_t now, uint32_t layer, const int32_t *ids, uint32_t n_row) {
    assert(layer < p->n_layer);
    if ((double)now - p->base > GROWTH_MAX * p->half[0]) scale_counts(p, now);
    double w[2] = {growth(p, now, 0), growth(p, now, 1)};
    layer_book *l = &p->layers[layer];
    for (size_t i = 0; i < (size_t)n_row * p->n_used; i++) {
        if (ids[i] < 0 || (uint32_t)ids[i] >= p->n_expert) continue;
        size_t at = (size_t)layer * p->n_expert + (uint32_t)ids[i];
        p->quick[at] += (float)w[0];
        p->slow[at] += (float)w[1];
    }
    l->quick_rows += w[0] * n_row;
    l->slow_rows += w[1] * n_row;
}

void policy_cost_set(policy *p, uint32_t layer, float cost) {
    p->layers[layer].cost = cost;
}

void policy_seed(policy *p, const float *use, double tokens) {
    double most = p->half[1] / log(2), n = tokens < most ? tokens : most; // what a long run's rows weigh
    for (size_t i = 0; i < (size_t)p->n_layer * p->n_expert; i++) p->slow[i] = use[i] * (float)n;
    for (uint32_t il = 0; il < p->n_layer; il++) p->layers[il].slow_rows = n;
}

void policy_use(const policy *p, uint64_t now, float *use) {
    (void)now; // the slow count of the rows there were; nothing fades when no row comes
    for (uint32_t i = 0; i < p->n_layer * p->n_expert; i++) {
        const layer_book *l = &p->layers[i / p->n_expert];
        use[i] = l->slow_rows > 0 ? (float)(p->slow[i] / l->slow_rows) : 0;
    }
}

/* ---- heaps ------------------------------------------------------------------------------------ */

/* Equals leave and enter by expert, then layer, so that a slab filled without knowledge is spread evenly. */
static bool before(const policy *p, const rank *a, const rank *b, bool up) {
    if (a->worth != b->worth) return up ? a->worth > b->worth : a->worth < b->worth;
    uint32_t ea = a->at % p->n_expert, eb = b->at % p->n_expert;
    if (ea != eb) return (ea < eb) == up;
    return a->at != b->at && (a->at < b->at) == up;
}

static void sift_down(const policy *p, heap *h, uint32_t i) {
    for (;;) {
        uint32_t best = i, left = 2 * i + 1;
        if (left < h->n && before(p, &h->v[left], &h->v[best], h->up)) best = left;
        if (left + 1 < h->n && before(p, &h->v[left + 1], &h->v[best], h->up)) best = left + 1;
        if (best == i) return;
        rank t = h->v[i];
        h->v[i] = h->v[best];
        h->v[best] = t;
        i = best;
    }
}

static void heap_order(const policy *p, heap *h) {
    for (uint32_t i = h->n / 2; i-- > 0;) sift_down(p, h, i);
}

static void heap_pop(const policy *p, heap *h) {
    h->v[0] = h->v[--h->n];
    sift_down(p, h, 0);
}

static bool may_leave(const policy *p, const slab *s, uint32_t at) {
    return p->pins[at] == 0 && p->slot_of[at] != POLICY_NONE && s->state[p->slot_of[at]] == SLOT_READY;
}

static void find_victims(const policy *p, slab *s, uint64_t now) {
    heap *h = &s->victims;
    h->n = 0;
    for (uint32_t i = 0; i < s->n_limit; i++)
        if (s->state[i] == SLOT_READY && p->pins[s->expert[i]] == 0)
            h->v[h->n++] = (rank){worth(p, s->expert[i]), s->expert[i]};
    heap_order(p, h);
    s->victims_now = now;
    s->victims_valid = true;
}

/* The resident that is worth least, NULL when none may leave. */
static const rank *least(const policy *p, slab *s, uint64_t now) {
    heap *h = &s->victims;
    if (!s->victims_valid || s->victims_now != now || h->n == 0) find_victims(p, s, now);
    while (h->n > 0) {
        float w = worth(p, h->v[0].at);
        if (!may_leave(p, s, h->v[0].at))
            heap_pop(p, h);
        else if (w > h->v[0].worth)
            h->v[0].worth = w, sift_down(p, h, 0);
        else
            return &h->v[0];
    }
    return NULL;
}

/* ---- slots ------------------------------------------------------------------------------------ */

static uint32_t index_of(const policy *p, policy_id id) {
    assert(id.layer < p->n_layer && id.expert < p->n_expert);
    return id.layer * p->n_expert + id.expert;
}

static policy_id id_of(const policy *p, uint32_t at) {
    return (policy_id){at / p->n_expert, at % p->n_expert};
}

static void slot_free(policy *p, slab *s, uint32_t slot) {
    p->slot_of[s->expert[slot]] = POLICY_NONE;
    if (s->state[slot] == SLOT_READY) p->layers[s->expert[slot] / p->n_expert].n_ready--;
    s->state[slot] = SLOT_EMPTY;
    if (slot >= s->n_limit) return;
    s->n_empty++;
    if (slot < s->hint) s->hint = slot;
}

static uint32_t slot_find_empty(slab *s) {
    while (s->state[s->hint] != SLOT_EMPTY) s->hint++;
    assert(s->hint < s->n_limit);
    return s->hint;
}

/* `at` gets a slot: an empty one, else that of the victim. */
static policy_swap take_slot(policy *p, uint32_t at, const rank *victim) {
    uint32_t is = p->layers[at / p->n_expert].slab;
    slab *s = &p->slabs[is];
    policy_swap w = {.in = id_of(p, at), .out = {POLICY_NONE, POLICY_NONE}, .slab = is};
    w.n_bytes = s->blob_bytes;
    w.gain = worth(p, at);
    if (s->n_empty == 0) {
        w.out = id_of(p, victim->at);
        w.gain -= victim->worth;
        slot_free(p, s, p->slot_of[victim->at]);
    }
    w.slot = slot_find_empty(s);
    s->n_empty--;
    s->state[w.slot] = SLOT_COMING;
    s->expert[w.slot] = at;
    p->slot_of[at] = w.slot;
    return w;
}

bool policy_admit(policy *p, uint64_t now, policy_id id, bool must, policy_swap *out) {
    uint32_t at = index_of(p, id), is = p->layers[id.layer].slab;
    if (is == POLICY_NONE || p->slot_of[at] != POLICY_NONE) return false;
    slab *s = &p->slabs[is];
    const rank *victim = s->n_empty == 0 ? least(p, s, now) : NULL;
    if (s->n_empty == 0 && (!victim || (!must && victim->worth >= worth(p, at)))) return false;
    *out = take_slot(p, at, victim);
    return true;
}

void policy_done(policy *p, const policy_swap *w, bool ok) {
    slab *s = &p->slabs[w->slab];
    assert(s->state[w->slot] == SLOT_COMING && s->expert[w->slot] == index_of(p, w->in));
    if (!ok) {
        slot_free(p, s, w->slot);
        return;
    }
    s->state[w->slot] = SLOT_READY;
    p->layers[w->in.layer].n_ready++;
}

void policy_drop(policy *p, policy_id id) {
    uint32_t at = index_of(p, id);
    if (p->slot_of[at] != POLICY_NONE) slot_free(p, &p->slabs[p->layers[id.layer].slab], p->slot_of[at]);
}

void policy_slots_limit(policy *p, uint32_t is, uint32_t n_slot) {
    slab *s = &p->slabs[is];
    if (n_slot > s->n_slot) n_slot = s->n_slot;
    for (uint32_t i = n_slot; i < s->n_limit; i++) {
        assert(s->state[i] != SLOT_COMING && (s->state[i] == SLOT_EMPTY || p->pins[s->expert[i]] == 0));
        if (s->state[i] != SLOT_EMPTY) slot_free(p, s, i);
    }
    s->n_limit = n_slot;
    s->n_empty = 0;
    s->hint = 0;
    for (uint32_t i = 0; i < n_slot; i++) s->n_empty += s->state[i] == SLOT_EMPTY;
    s->victims_valid = false;
}

/* ---- swaps ------------------------------------------------------------------------------------ */

/* Experts outside, dearest first. Without an empty slot nobody comes in who was never used. */
static void find_wanted(policy *p) {
    for (uint32_t is = 0; is < p->n_slab; is++) p->slabs[is].wanted.n = 0;
    for (uint32_t at = 0; at < p->n_layer * p->n_expert; at++) {
        uint32_t is = p->layers[at / p->n_expert].slab;
        if (is == POLICY_NONE || p->slot_of[at] != POLICY_NONE) continue;
        float w = worth(p, at);
        slab *s = &p->slabs[is];
        if (w > 0 || s->n_empty > 0) s->wanted.v[s->wanted.n++] = (rank){w, at};
    }
    for (uint32_t is = 0; is < p->n_slab; is++) heap_order(p, &p->slabs[is].wanted);
}

/* What the slab's next swap would win; < 0: it has none. */
static float next_gain(const policy *p, slab *s, uint64_t now) {
    if (s->wanted.n == 0) return -1;
    float in = s->wanted.v[0].worth;
    if (s->n_empty > 0) return in;
    const rank *out = least(p, s, now);
    return out && in > (float)p->margin * out->worth ? in - out->worth : -1;
}

uint32_t policy_swaps(policy *p, uint64_t now, uint64_t budget_bytes, policy_swap *out, uint32_t max) {
    uint32_t n = 0;
    if (max == 0) return 0;
    find_wanted(p);
    for (uint32_t is = 0; is < p->n_slab; is++) p->slabs[is].victims_valid = false;
    while (n < max) {
        slab *best = NULL;
        float best_rate = -1;
        for (uint32_t is = 0; is < p->n_slab; is++) {
            slab *s = &p->slabs[is];
            float gain = s->blob_bytes <= budget_bytes ? next_gain(p, s, now) : -1;
            if (gain < 0 || gain / (float)s->blob_bytes <= best_rate) continue;
            best = s;
            best_rate = gain / (float)s->blob_bytes;
        }
        if (!best) break;
        out[n] = take_slot(p, best->wanted.v[0].at, best->n_empty ? NULL : least(p, best, now));
        budget_bytes -= out[n++].n_bytes;
        heap_pop(p, &best->wanted);
    }
    return n;
}

/* ---- questions and life ------------------------------------------------------------------------ */

bool policy_resident(const policy *p, policy_id id) {
    uint32_t slot = p->slot_of[index_of(p, id)];
    return slot != POLICY_NONE && p->slabs[p->layers[id.layer].slab].state[slot] == SLOT_READY;
}

uint32_t policy_slot(const policy *p, policy_id id) {
    return p->slot_of[index_of(p, id)];
}

void policy_pin(policy *p, policy_id id) {
    assert(p->pins[index_of(p, id)] < UINT16_MAX);
    p->pins[index_of(p, id)]++;
}

void policy_unpin(policy *p, policy_id id) {
    assert(p->pins[index_of(p, id)] > 0);
    p->pins[index_of(p, id)]--;
}

uint32_t policy_quota(const policy *p, uint32_t layer) {
    return p->layers[layer].n_ready;
}

/* Parts of the arrays that all slabs share. */
static void slabs_carve(policy *p, const policy_config *cfg) {
    uint32_t slot = 0, r = 0;
    for (uint32_t is = 0; is < p->n_slab; is++) {
        slab *s = &p->slabs[is];
        *s = (slab){.n_slot = cfg->n_slot[is], .blob_bytes = cfg->blob_bytes[is]};
        s->n_limit = s->n_empty = s->n_slot;
        s->expert = p->slot_expert + slot;
        s->state = p->slot_states + slot;
        s->victims = (heap){p->ranks + r, 0, false};
        r += s->n_slot;
        s->wanted = (heap){p->ranks + r, 0, true};
        for (uint32_t il = 0; il < p->n_layer; il++) r += cfg->slab_of[il] == is ? p->n_expert : 0;
        slot += s->n_slot;
    }
}

mica_status policy_new(policy **out, const policy_config *cfg, mica_error *err) {
    size_t n = (size_t)cfg->n_layer * cfg->n_expert, n_slot = 0;
    *out = NULL;
    policy *p = mem_calloc(1, sizeof *p);
    if (!p) return fail(err, MICA_E_NOMEM, "expert policy: out of memory");
    for (uint32_t is = 0; is < cfg->n_slab; is++) n_slot += cfg->n_slot[is];
    *p = (policy){.n_layer = cfg->n_layer, .n_expert = cfg->n_expert, .n_used = cfg->n_used};
    p->n_slab = cfg->n_slab;
    p->half[0] = cfg->quick_tokens > 0 ? cfg->quick_tokens : QUICK_TOKENS;
    p->half[1] = cfg->slow_tokens > 0 ? cfg->slow_tokens : SLOW_TOKENS;
    p->share = cfg->quick_share > 0 ? cfg->quick_share : QUICK_SHARE;
    p->margin = cfg->margin > 0 ? cfg->margin : MARGIN;
    p->quick = mem_calloc(n, sizeof *p->quick);
    p->slow = mem_calloc(n, sizeof *p->slow);
    p->pins = mem_calloc(n, sizeof *p->pins);
    p->slot_of = mem_calloc(n, sizeof *p->slot_of);
    p->layers = mem_calloc(cfg->n_layer, sizeof *p->layers);
    p->slabs = mem_calloc(cfg->n_slab, sizeof *p->slabs);
    p->slot_expert = mem_calloc(n_slot, sizeof *p->slot_expert);
    p->slot_states = mem_calloc(n_slot, sizeof *p->slot_states);
    p->ranks = mem_calloc(n + n_slot, sizeof *p->ranks);
    if (!p->quick || !p->slow || !p->pins || !p->slot_of || !p->layers || !p->slabs || !p->slot_expert ||
        !p->slot_states || !p->ranks) {
        policy_free(p);
        return fail(err, MICA_E_NOMEM, "expert policy: %zu experts: out of memory", n);
    }
    for (size_t i = 0; i < n; i++) p->slot_of[i] = POLICY_NONE;
    for (uint32_t il = 0; il < cfg->n_layer; il++)
        p->layers[il] = (layer_book){.slab = cfg->slab_of[il], .cost = 1};
    slabs_carve(p, cfg);
    *out = p;
    return MICA_OK;
}

void policy_free(policy *p) {
    if (!p) return;
    mem_free(p->quick);
    mem_free(p->slow);
    mem_free(p->pins);
    mem_free(p->slot_of);
    mem_free(p->layers);
    mem_free(p->slabs);
    mem_free(p->slot_expert);
    mem_free(p->slot_states);
    mem_free(p->ranks);
    mem_free(p);
}
