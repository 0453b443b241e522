/* `mica eval cache`: recorded routing against caches of experts.
 *
 * A cache has slots for a share of the experts of each slab and is empty at first. A visit of a layer by a
 * row hits for each chosen expert that is there; the others are read and may stay. Compared on the same
 * visits: policy   store/policy.h, admission alone (no swaps ahead) learned  the same, begun with the use
 * that a first run over the record left lru lfu  what leaves is the longest unused, the least used so far;
 * all that is read stays belady   the bound: what is used again furthest ahead leaves, or does not come in
 * (L. A. Belady, IBM Systems Journal 5(2), 1966, with bypass) */
#include "base/mem.h"
#include "eval/report.h"
#include "mica_tools.h"
#include "store/policy.h"
#include "store/trace.h"

#include <string.h>

enum { WARM_UP = 500, SLABS = 64 };
typedef enum rival { POLICY, LEARNED, LRU, LFU, BELADY, RIVAL_N } rival;
static const char *const g_rival[RIVAL_N] = {"policy", "learned", "lru", "lfu", "belady"};

typedef struct score {
    uint64_t n_use, n_hit;
} score;

typedef struct replay {
    trace_visits v;
    uint32_t *slab_of; // owned, [n_layer]
    uint32_t n_slab, n_slot[SLABS], n_expert[SLABS];
    uint64_t blob_bytes[SLABS];
    uint32_t *next; // owned, [n * n_used]: the use at which the same expert is used again, UINT32_MAX: never
    float *learned; // owned, [n_layer * n_expert]
    uint64_t n_tok;
    uint32_t warm_up;
    /* The simple caches': */
    uint64_t *rank;  // owned, [n_layer * n_expert]: who is lowest leaves
    uint32_t *slots; // owned, [all slots]: who is there
    bool *there;     // owned, [n_layer * n_expert]
} replay;

/* ---- slabs and the future --------------------------------------------------------------------- */

static mica_status find_slabs(replay *r, mica_error *err) {
    const trace_head *h = &r->v.head;
    for (uint32_t il = 0; il < h->n_layer; il++) {
        uint32_t is = 0;
        r->slab_of[il] = POLICY_NONE;
        if (r->v.blob_bytes[il] == 0) continue;
        while (is < r->n_slab && r->blob_bytes[is] != r->v.blob_bytes[il]) is++;
        if (is == SLABS) return fail(err, MICA_E_FORMAT, "trace: experts of more than %d sizes", SLABS);
        if (is == r->n_slab) r->blob_bytes[r->n_slab++] = r->v.blob_bytes[il];
        r->slab_of[il] = is;
        r->n_expert[is] += h->n_expert;
    }
    for (size_t i = 0; i < r->v.n; i++)
        if (r->slab_of[r->v.layers[i]] == POLICY_NONE)
            return fail(err, MICA_E_FORMAT, "trace: layer %u has uses but no experts", r->v.layers[i]);
    return MICA_OK;
}

static void look_ahead(replay *r) {
    const trace_head *h = &r->v.head;
    uint64_t *seen = r->rank; // borrowed for the while
    memset(seen, 0xff, (size_t)h->n_layer * h->n_expert * sizeof *seen);
    for (size_t i = r->v.n * h->n_used; i-- > 0;) {
        size_t at = (size_t)r->v.layers[i / h->n_used] * h->n_expert + r->v.ids[i];
        r->next[i] = (uint32_t)seen[at];
        seen[at] = i;
    }
}

/* ---- the policy ------------------------------------------------------------------------------- */

static void count(const replay *r, score *s, uint64_t now, bool hit) {
    if (now <= r->warm_up) return;
    s->n_use++;
    s->n_hit += hit;
}

/* One visit: what is there stays while the row needs it. */
static void policy_visit(const replay *r, policy *p, uint64_t now, size_t iv, score *s) {
    uint32_t n = r->v.head.n_used, layer = r->v.layers[iv];
    int32_t ids[256] = {0};
    bool hit[256];
    for (uint32_t k = 0; k < n; k++) {
        ids[k] = r->v.ids[iv * n + k];
        policy_id id = {layer, (uint32_t)ids[k]};
        hit[k] = policy_resident(p, id);
        count(r, s, now, hit[k]);
        if (hit[k]) policy_pin(p, id);
    }
    policy_note(p, now, layer, ids, 1);
    for (uint32_t k = 0; k < n; k++) {
        policy_swap w;
        policy_id id = {layer, (uint32_t)ids[k]};
        if (!hit[k] && policy_admit(p, now, id, false, &w)) policy_done(p, &w, true);
    }
    for (uint32_t k = 0; k < n; k++)
        if (hit[k]) policy_unpin(p, (policy_id){layer, (uint32_t)ids[k]});
}

static mica_status run_policy(replay *r, score *s, bool learned, mica_error *err) {
    const trace_head *h = &r->v.head;
    policy_config c = {.n_layer = h->n_layer, .n_expert = h->n_expert, .n_used = h->n_used};
    c.slab_of = r->slab_of;
    c.n_slab = r->n_slab;
    c.n_slot = r->n_slot;
    c.blob_bytes = r->blob_bytes;
    policy *p;
    policy_swap w;
    uint64_t now = 0;
    TRY(policy_new(&p, &c, err));
    if (learned) policy_seed(p, r->learned, (double)r->n_tok);
    while (learned && policy_swaps(p, 0, UINT64_MAX, &w, 1)) policy_done(p, &w, true);
    for (size_t i = 0; i < r->v.n; i++) {
        now += r->v.layers[i] == r->v.first;
        policy_visit(r, p, now, i, s);
    }
    if (!learned) policy_use(p, now, r->learned);
    policy_free(p);
    return MICA_OK;
}

/* ---- the others ------------------------------------------------------------------------------- */

/* The rank of a use: the lowest leaves. */
static uint64_t rank_of(const replay *r, rival who, size_t iu, uint64_t was) {
    if (who == LRU) return iu + 1;
    if (who == LFU) return was + 1;
    return UINT32_MAX - r->next[iu]; // used again furthest ahead
}

/* `at` was read. */
static void simple_admit(replay *r, rival who, uint32_t at, uint32_t *slots, uint32_t *n_full,
                         uint32_t n_slot) {
    uint32_t low = 0;
    if (*n_full < n_slot) {
        slots[(*n_full)++] = at;
        r->there[at] = true;
        return;
    }
    for (uint32_t i = 1; i < n_slot; i++)
        if (r->rank[slots[i]] < r->rank[slots[low]]) low = i;
    if (n_slot == 0 || (who == BELADY && r->rank[slots[low]] >= r->rank[at])) return;
    r->there[slots[low]] = false;
    r->there[at] = true;
    slots[low] = at;
}

static void run_simple(replay *r, rival who, score *s) {
    const trace_head *h = &r->v.head;
    uint32_t n_full[SLABS] = {0}, first[SLABS] = {0};
    uint64_t now = 0;
    for (uint32_t is = 1; is < r->n_slab; is++) first[is] = first[is - 1] + r->n_slot[is - 1];
    memset(r->rank, 0, (size_t)h->n_layer * h->n_expert * sizeof *r->rank);
    memset(r->there, 0, (size_t)h->n_layer * h->n_expert * sizeof *r->there);
    for (size_t i = 0; i < r->v.n * h->n_used; i++) {
        uint32_t layer = r->v.layers[i / h->n_used], at = layer * h->n_expert + r->v.ids[i];
        uint32_t is = r->slab_of[layer];
        now += i % h->n_used == 0 && layer == r->v.first;
        count(r, s, now, r->there[at]);
        r->rank[at] = rank_of(r, who, i, r->rank[at]);
        if (!r->there[at]) simple_admit(r, who, at, r->slots + first[is], &n_full[is], r->n_slot[is]);
    }
}

/* ---- the report ------------------------------------------------------------------------------- */

static double rate(const score *s) {
    return s->n_use ? (double)s->n_hit / (double)s->n_use : 0;
}

static mica_status run_capacity(replay *r, uint32_t percent, json_t *list, mica_error *err) {
    score s[RIVAL_N] = {0};
    uint32_t n_slot = 0;
    for (uint32_t is = 0; is < r->n_slab; is++) {
        r->n_slot[is] = (uint32_t)(((uint64_t)r->n_expert[is] * percent + 50) / 100);
        if (r->n_slot[is] == 0) r->n_slot[is] = 1;
        n_slot += r->n_slot[is];
    }
    r->warm_up = WARM_UP;
    TRY(run_policy(r, &s[POLICY], false, err));
    for (int who = LRU; who < RIVAL_N; who++) run_simple(r, (rival)who, &s[who]);
    score bound = {0};
    r->warm_up = 0;
    TRY(run_policy(r, &s[LEARNED], true, err));
    run_simple(r, BELADY, &bound);
    json_t *one = json_pack("{s:i, s:i}", "percent", (int)percent, "slots", (int)n_slot);
    for (int who = 0; who < RIVAL_N; who++) {
        double of = rate(who == LEARNED ? &bound : &s[BELADY]), hit = rate(&s[who]);
        json_object_set_new(
            one, g_rival[who],
            json_pack("{s:f, s:o}", "hit_rate", hit, "of_bound", of > 0 ? json_real(hit / of) : json_null()));
    }
    json_array_append_new(list, one);
    return MICA_OK;
}

static void replay_free(replay *r) {
    trace_free(&r->v);
    mem_free(r->slab_of);
    mem_free(r->next);
    mem_free(r->learned);
    mem_free(r->rank);
    mem_free(r->slots);
    mem_free(r->there);
}

static mica_status replay_init(replay *r, const char *path, mica_error *err) {
    TRY(trace_read(&r->v, path, err));
    const trace_head *h = &r->v.head;
    size_t n = (size_t)h->n_layer * h->n_expert;
    if (h->n_used > 256 || r->v.n * h->n_used >= UINT32_MAX)
        return fail(err, MICA_E_UNSUPPORTED, "%s: %zu visits of %u experts: too many", path, r->v.n,
                    h->n_used);
    r->slab_of = mem_calloc(h->n_layer, sizeof *r->slab_of);
    r->next = mem_calloc(r->v.n * h->n_used, sizeof *r->next);
    r->learned = mem_calloc(n, sizeof *r->learned);
    r->rank = mem_calloc(n, sizeof *r->rank);
    r->slots = mem_calloc(n, sizeof *r->slots);
    r->there = mem_calloc(n, sizeof *r->there);
    if (!r->slab_of || !r->next || !r->learned || !r->rank || !r->slots || !r->there)
        return fail(err, MICA_E_NOMEM, "%s: out of memory", path);
    TRY(find_slabs(r, err));
    look_ahead(r);
    for (size_t i = 0; i < r->v.n; i++) r->n_tok += r->v.layers[i] == r->v.first;
    return MICA_OK;
}

mica_status mica_eval_cache(char **json, const char *trace_path, const uint32_t *percent, size_t n_percent,
                            mica_error *err) {
    mica_status st = MICA_OK;
    replay r = {0};
    json_t *list = json_array();
    *json = NULL;
    TRY_GOTO(replay_init(&r, trace_path, err), done);
    for (size_t i = 0; i < n_percent; i++) {
        if (percent[i] < 1 || percent[i] > 100) {
            st = fail(err, MICA_E_ARG, "capacity: %u: a share of the experts in percent, 1 to 100",
                      percent[i]);
            goto done;
        }
        TRY_GOTO(run_capacity(&r, percent[i], list, err), done);
    }
    st = report_text(json,
                     json_pack("{s:I, s:i, s:i, s:i, s:i, s:O}", "tokens", (json_int_t)r.n_tok, "experts",
                               (int)r.v.head.n_expert, "used", (int)r.v.head.n_used, "slabs", (int)r.n_slab,
                               "warm_up", WARM_UP, "capacity", list),
                     err);
done:
    json_decref(list);
    replay_free(&r);
    return st;
}
