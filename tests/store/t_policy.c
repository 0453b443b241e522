/* Who gets a slot: tables of uses and what must follow, then a thousand random orders against the rules that
 * always hold. */
#include "check.h"

#include "base/mem.h"
#include "store/policy.h"

#include <math.h>

enum { LAYERS = 3, EXPERTS = 8 };

static policy *make(const uint32_t *slab_of, uint32_t n_slab, const uint32_t *n_slot, const uint64_t *bytes) {
    mica_error err;
    policy *p = NULL;
    policy_config c = {.n_layer = LAYERS, .n_expert = EXPERTS, .n_used = 1, .slab_of = slab_of};
    c.n_slab = n_slab;
    c.n_slot = n_slot;
    c.blob_bytes = bytes;
    CHECK_OK(policy_new(&p, &c, &err));
    return p;
}

static policy *make_one(uint32_t n_slot) {
    static const uint32_t slab_of[LAYERS] = {0, 0, 0};
    static const uint64_t bytes = 100;
    return make(slab_of, 1, &n_slot, &bytes);
}

static void fill(policy *p) {
    policy_swap s[64];
    uint32_t n = policy_swaps(p, 0, UINT64_MAX, s, 64);
    for (uint32_t i = 0; i < n; i++) policy_done(p, &s[i], true);
}

static void use(policy *p, uint64_t now, uint32_t layer, int32_t expert) {
    policy_note(p, now, layer, &expert, 1);
}

static bool in(const policy *p, uint32_t layer, uint32_t expert) {
    return policy_resident(p, (policy_id){layer, expert});
}

static void test_nothing_known_is_spread_evenly(void **state) {
    (void)state;
    policy *p = make_one(7);
    fill(p);
    for (uint32_t il = 0; il < LAYERS; il++) {
        CHECK(in(p, il, 0) && in(p, il, 1) && in(p, il, 2) == (il == 0));
        CHECK(policy_quota(p, il) == 2 + (il == 0));
    }
    policy_free(p);
}

/* Slots of a slab follow use over all layers, and a layer whose misses cost more gets more. */
static void test_quotas_follow_benefit(void **state) {
    (void)state;
    static const struct {
        float cost[LAYERS];
        uint32_t quota[LAYERS];
    } t[] = {{{1, 1, 1}, {1, 4, 1}}, {{5, 1, 1}, {5, 0, 1}}, {{1, 1, 0.1f}, {1, 5, 0}}};
    for (size_t k = 0; k < sizeof t / sizeof *t; k++) {
        policy *p = make_one(6);
        float seed[LAYERS * EXPERTS] = {0};
        for (uint32_t e = 0; e < EXPERTS; e++) {
            seed[e] = e == 0 ? 0.7f : 0.05f; // layer 0: one that is used nearly always
            seed[EXPERTS + e] = e < 5 ? 0.16f + 0.01f * (float)e : 0.03f; // layer 1: five
            seed[2 * EXPERTS + e] = e == 0 ? 0.5f : 0.07f;
        }
        policy_seed(p, seed, 1e9);
        for (uint32_t il = 0; il < LAYERS; il++) policy_cost_set(p, il, t[k].cost[il]);
        fill(p);
        for (uint32_t il = 0; il < LAYERS; il++) CHECK(policy_quota(p, il) == t[k].quota[il]);
        policy_free(p);
    }
}

static void test_swaps_within_bytes_dearest_first(void **state) {
    (void)state;
    policy *p = make_one(6); // experts 0 and 1 of each layer
    policy_swap s[16];
    fill(p);
    CHECK(policy_swaps(p, 1, UINT64_MAX, s, 16) == 0); // nothing was used: nobody moves
    for (uint64_t now = 1; now <= 30; now++) {
        use(p, now, 0, 5);
        use(p, now, 1, now % 2 ? 6 : 0);
        use(p, now, 2, now % 5 ? 0 : 7);
    }
    CHECK(policy_swaps(p, 30, 99, s, 16) == 0);
    CHECK(policy_swaps(p, 30, 250, s, 16) == 2);
    CHECK(s[0].in.layer == 0 && s[0].in.expert == 5 && s[1].in.layer == 1 && s[1].in.expert == 6);
    for (int i = 0; i < 2; i++) {
        CHECK(s[i].n_bytes == 100 && s[i].gain > 0 && !in(p, s[i].out.layer, s[i].out.expert));
        CHECK(!in(p, s[i].in.layer, s[i].in.expert)); // coming is not there
    }
    policy_done(p, &s[0], true);
    policy_done(p, &s[1], false);
    CHECK(in(p, 0, 5) && !in(p, 1, 6) && policy_slot(p, (policy_id){1, 6}) == POLICY_NONE);
    CHECK(policy_swaps(p, 30, UINT64_MAX, s, 16) == 2); // the slot of the failed one, and layer 2's
    CHECK(s[0].in.expert == 6 && s[0].out.layer == POLICY_NONE);
    policy_free(p);
}

/* Two experts of nearly equal use do not change places for ever. */
static void test_equals_stay(void **state) {
    (void)state;
    policy *p = make_one(1);
    policy_swap s[4];
    uint32_t n = 0;
    fill(p);
    for (uint64_t now = 1; now <= 1000; now++) {
        use(p, now, 0, now % 2 ? 3 : 4);
        uint32_t k = policy_swaps(p, now, UINT64_MAX, s, 4);
        for (uint32_t i = 0; i < k; i++) policy_done(p, &s[i], true);
        n += k;
    }
    CHECK(n == 1);
    policy_free(p);
}

static void test_pinned_never_leave(void **state) {
    (void)state;
    policy *p = make_one(2); // expert 0 of layers 0 and 1
    policy_swap s[4];
    fill(p);
    policy_pin(p, (policy_id){0, 0});
    policy_pin(p, (policy_id){0, 0});
    policy_unpin(p, (policy_id){0, 0}); // pins count
    for (uint64_t now = 1; now <= 50; now++) {
        use(p, now, 1, 0);
        use(p, now, 2, 4);
    }
    CHECK(policy_swaps(p, 50, UINT64_MAX, s, 4) == 0); // layer 1's is as good, layer 0's is pinned
    policy_pin(p, (policy_id){1, 0});
    CHECK(!policy_admit(p, 50, (policy_id){2, 4}, true, s)); // must, but cannot
    policy_unpin(p, (policy_id){0, 0});
    CHECK(policy_swaps(p, 50, UINT64_MAX, s, 4) == 1 && s[0].out.layer == 0 && s[0].in.layer == 2);
    policy_free(p);
}

/* A miss whose bytes come anyway stays when it is worth more, or when it must. */
static void test_admission(void **state) {
    (void)state;
    policy *p = make_one(1);
    policy_swap s;
    CHECK(policy_admit(p, 0, (policy_id){1, 1}, false, &s) && s.out.layer == POLICY_NONE);
    CHECK(!policy_admit(p, 0, (policy_id){1, 1}, true, &s)); // it comes already
    CHECK(!policy_admit(p, 0, (policy_id){1, 2}, true, &s)); // the only slot is in use
    policy_done(p, &s, true);
    for (uint64_t now = 1; now < 20; now++) use(p, now, 1, 1);
    CHECK(!policy_admit(p, 20, (policy_id){1, 2}, false, &s));
    CHECK(policy_admit(p, 20, (policy_id){1, 2}, true, &s) && s.out.expert == 1 && s.slot == 0);
    policy_done(p, &s, true);
    policy_drop(p, (policy_id){1, 2});
    CHECK(!in(p, 1, 2) && policy_quota(p, 1) == 0);
    policy_free(p);
}

static void test_slabs_are_apart(void **state) {
    (void)state;
    static const uint32_t slab_of[LAYERS] = {1, POLICY_NONE, 0}, n_slot[2] = {2, 3};
    static const uint64_t bytes[2] = {100, 1000};
    policy *p = make(slab_of, 2, n_slot, bytes);
    policy_swap s[16];
    fill(p);
    CHECK(policy_quota(p, 0) == 3 && policy_quota(p, 1) == 0 && policy_quota(p, 2) == 2);
    for (uint64_t now = 1; now <= 9; now++) {
        use(p, now, 0, 7);
        use(p, now, 2, 6);
    }
    CHECK(policy_swaps(p, 9, 1099, s, 16) == 1); // by gain a byte, then what is left does not do
    CHECK(s[0].slab == 0 && s[0].in.layer == 2);
    CHECK(!policy_admit(p, 9, (policy_id){1, 0}, true, s));
    policy_free(p);
}

/* A prompt borrows slots; what was in them comes back by use, not by itself. */
static void test_lent_slots(void **state) {
    (void)state;
    policy *p = make_one(6);
    policy_swap s[16];
    fill(p);
    policy_slots_limit(p, 0, 2);
    uint32_t n = 0;
    for (uint32_t il = 0; il < LAYERS; il++) n += policy_quota(p, il);
    CHECK(n == 2 && policy_swaps(p, 1, UINT64_MAX, s, 16) == 0);
    policy_slots_limit(p, 0, 100);
    CHECK(policy_swaps(p, 1, UINT64_MAX, s, 16) == 4);
    for (int i = 0; i < 4; i++) CHECK(s[i].slot >= 2);
    policy_free(p);
}

/* What is saved and seeded again ranks the same; a run that goes another way forgets it. */
static void test_learned_use_goes_round(void **state) {
    (void)state;
    policy *a = make_one(4), *b = make_one(4), *c = make_one(4);
    float used[LAYERS * EXPERTS];
    uint64_t rnd = 7;
    for (uint64_t now = 1; now <= 5000; now++)
        for (uint32_t il = 0; il < LAYERS; il++)
            use(a, now, il, (int32_t)(test_rand(&rnd) % EXPERTS * (test_rand(&rnd) % 2)));
    policy_use(a, 5000, used);
    for (uint32_t il = 0; il < LAYERS; il++) {
        double sum = 0;
        for (uint32_t e = 0; e < EXPERTS; e++) sum += used[il * EXPERTS + e];
        CHECK(fabs(sum - 1) < 1e-3 && fabsf(used[il * EXPERTS] - 0.5625f) < 0.05f);
    }
    policy_seed(b, used, 5000);
    fill(b);
    CHECK(in(b, 0, 0) && in(b, 1, 0) && in(b, 2, 0));
    policy_seed(c, used, 5000);
    for (uint64_t now = 1; now <= 20000; now++) use(c, now, 0, 7);
    fill(c);
    CHECK(in(c, 0, 7) && !in(c, 0, 0) && in(c, 1, 0));
    policy_free(a);
    policy_free(b);
    policy_free(c);
}

/* Ids of a broken router do not write elsewhere; a window of rows counts each. */
static void test_rows_and_strays(void **state) {
    (void)state;
    policy *p = make_one(1);
    float used[LAYERS * EXPERTS];
    const int32_t ids[4] = {3, -1, 3, EXPERTS};
    policy_note(p, 1, 2, ids, 4);
    policy_use(p, 1, used);
    for (uint32_t i = 0; i < LAYERS * EXPERTS; i++) CHECK(used[i] == (i == 2 * EXPERTS + 3 ? 0.5f : 0));
    policy_free(p);
}

typedef struct walk {
    policy *p;
    policy_swap open[64]; // taken, not yet done
    uint32_t n_open, n_slot, pins[LAYERS * EXPERTS];
    uint64_t rnd;
} walk;

static void step(walk *w, uint64_t now) {
    uint32_t at = (uint32_t)(test_rand(&w->rnd) % (LAYERS * EXPERTS));
    policy_id id = {at / EXPERTS, at % EXPERTS};
    bool there = policy_resident(w->p, id);
    policy_swap *next = &w->open[w->n_open];
    switch (test_rand(&w->rnd) % 6) {
    case 0: use(w->p, now, id.layer, (int32_t)id.expert); break;
    case 1: w->n_open += policy_admit(w->p, now, id, test_rand(&w->rnd) % 2, next); break;
    case 2: w->n_open += policy_swaps(w->p, now, test_rand(&w->rnd) % 500, next, 4); break;
    case 3:
        if (w->n_open) policy_done(w->p, &w->open[--w->n_open], test_rand(&w->rnd) % 8 > 0);
        break;
    case 4:
        if (there && w->pins[at] < 3)
            policy_pin(w->p, id), w->pins[at]++;
        else if (w->pins[at])
            policy_unpin(w->p, id), w->pins[at]--;
        break;
    default:
        if (there && !w->pins[at]) policy_drop(w->p, id);
    }
}

/* A slot has one owner, what is pinned is there, and quotas add up to who is there. */
static void check_rules(const walk *w, uint32_t n_before) {
    uint32_t taken[16] = {0}, n_quota = 0, n_there = 0;
    for (uint32_t i = n_before; i < w->n_open; i++) {
        const policy_id *out = &w->open[i].out;
        CHECK(w->open[i].slot < w->n_slot);
        CHECK(out->layer == POLICY_NONE || w->pins[out->layer * EXPERTS + out->expert] == 0);
    }
    for (uint32_t k = 0; k < LAYERS * EXPERTS; k++) {
        policy_id x = {k / EXPERTS, k % EXPERTS};
        CHECK(!w->pins[k] || policy_resident(w->p, x));
        n_there += policy_resident(w->p, x);
        if (policy_slot(w->p, x) != POLICY_NONE) CHECK(taken[policy_slot(w->p, x)]++ == 0);
    }
    for (uint32_t il = 0; il < LAYERS; il++) n_quota += policy_quota(w->p, il);
    CHECK(n_quota == n_there && n_there + w->n_open <= w->n_slot);
}

static void test_rules_hold_in_any_order(void **state) {
    (void)state;
    walk w = {.rnd = 20260101};
    print_message("seed %llu\n", (unsigned long long)w.rnd);
    for (int round = 0; round < 200; round++) {
        w = (walk){.rnd = w.rnd, .n_slot = 1 + (uint32_t)(test_rand(&w.rnd) % 10)};
        w.p = make_one(w.n_slot);
        for (uint64_t now = 1; now < 400; now += test_rand(&w.rnd) % 3) {
            uint32_t n_before = w.n_open;
            step(&w, now);
            check_rules(&w, n_before);
        }
        policy_free(w.p);
    }
}

static void test_every_failed_allocation_is_told(void **state) {
    (void)state;
    static const uint32_t slab_of[LAYERS] = {0, 0, 0}, n_slot = 4;
    static const uint64_t bytes = 1;
    policy_config c = {.n_layer = LAYERS, .n_expert = EXPERTS, .n_used = 1, .slab_of = slab_of};
    c.n_slab = 1;
    c.n_slot = &n_slot;
    c.blob_bytes = &bytes;
    mica_error err;
    policy *p = NULL;
    mica_status st = MICA_E_NOMEM;
    for (int64_t n = 0; st != MICA_OK; n++) {
        mem_fail_after(n + 1);
        st = policy_new(&p, &c, &err);
        mem_fail_after(-1);
        CHECK(st == MICA_OK || (st == MICA_E_NOMEM && p == NULL && n < 20));
    }
    policy_free(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_known_is_spread_evenly),
        cmocka_unit_test(test_quotas_follow_benefit),
        cmocka_unit_test(test_swaps_within_bytes_dearest_first),
        cmocka_unit_test(test_equals_stay),
        cmocka_unit_test(test_pinned_never_leave),
        cmocka_unit_test(test_admission),
        cmocka_unit_test(test_slabs_are_apart),
        cmocka_unit_test(test_lent_slots),
        cmocka_unit_test(test_learned_use_goes_round),
        cmocka_unit_test(test_rows_and_strays),
        cmocka_unit_test(test_rules_hold_in_any_order),
        cmocka_unit_test(test_every_failed_allocation_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
