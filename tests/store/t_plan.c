/* Plans by table, and rules that hold for any sizes: caps are hard, nothing is counted twice, what is named
 * as nearest does fit. */
#include "check.h"

#include "store/plan.h"

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

enum { LAYERS = 40 };
static uint64_t blobs[LAYERS];

/* The shape of a 35B mixture: 20 GiB, 19 of them 40 x 256 experts in two sizes. */
static plan_request large(void) {
    plan_request r = {.ram_total = 64 * GIB, .ram_free = 60 * GIB, .pin_limit = 32 * GIB};
    for (int il = 0; il < LAYERS; il++) blobs[il] = il % 2 ? 2 * MIB : 1800 * 1024;
    for (int il = 0; il < LAYERS; il++) r.expert_bytes += 256 * blobs[il];
    r.weight_bytes = r.expert_bytes + GIB;
    r.n_expert = 256 * LAYERS;
    r.blob_bytes = blobs;
    r.n_layer = LAYERS;
    r.n_expert_layer = 256;
    r.n_expert_used = 8;
    r.kv_token_bytes = 20480;
    r.scratch_bytes = 200 * MIB;
    r.n_seq = 1;
    r.n_ctx_train = 262144;
    return r;
}

static plan_request on_card(uint64_t vram) {
    plan_request r = large();
    r.card = "hip:0";
    r.vram_total = vram;
    r.vram_free = vram;
    r.vram_fixed_bytes = 64 * MIB;
    r.tiers = true;
    return r;
}

static uint64_t sum(const plan *p, plan_tier tier) {
    uint64_t n = 0;
    for (int w = 0; w < PLAN_WHAT_N; w++) n += p->item[tier][w].n_bytes;
    return n;
}

static uint64_t slots(const plan *p) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < p->n_slab; i++) n += p->slab[i].n_slot * p->slab[i].blob_bytes;
    return n;
}

static void test_all_on_a_large_card(void **state) {
    (void)state;
    plan p;
    plan_request r = on_card(48 * GIB);
    plan_make(&p, &r);
    CHECK(p.fits && plan_all_resident(&p) && p.ring_bytes == 0 && p.n_expert_vram == r.n_expert);
    CHECK(sum(&p, PLAN_RAM) == 0 && p.n_ctx == r.n_ctx_train);
    CHECK(sum(&p, PLAN_VRAM) == p.need_bytes && p.need_bytes <= p.vram_limit);
}

static void test_a_small_card_is_filled(void **state) {
    (void)state;
    plan p;
    plan_request r = on_card(16 * GIB);
    plan_make(&p, &r);
    CHECK(p.fits && !plan_all_resident(&p) && p.n_slab == 2 && p.experts_ram == PLAN_RAM_ALL);
    CHECK(sum(&p, PLAN_VRAM) <= p.vram_limit && sum(&p, PLAN_VRAM) + 4 * MIB > p.vram_limit);
    CHECK(p.item[PLAN_VRAM][PLAN_EXPERTS].n_bytes == slots(&p) && p.ring_bytes >= 16 * 2 * MIB);
    CHECK(p.item[PLAN_RAM][PLAN_EXPERTS].n_bytes == r.expert_bytes);
    double share[2];
    for (int i = 0; i < 2; i++) share[i] = (double)p.slab[i].n_slot / p.slab[i].n_expert;
    CHECK(share[0] - share[1] < 0.001 && share[1] - share[0] < 0.001);
    CHECK(p.slab_of[0] == 0 && p.slab_of[1] == 1 && p.slab_of[LAYERS] == PLAN_NO_SLAB);
    CHECK(p.n_ctx > PLAN_CTX_MIN && p.item[PLAN_VRAM][PLAN_KV].n_bytes < 6 * GIB);
    r.tiers = false; // a device that needs all of them
    plan_make(&p, &r);
    CHECK(!p.fits && p.need_bytes > p.vram_limit);
}

/* What RAM holds, as it gets shorter; and as it was asked for. */
static void test_how_ram_holds_the_rest(void **state) {
    (void)state;
    static const struct {
        uint64_t ram_gib, pin_gib;
        plan_experts_ram asked, got;
        bool fits;
    } t[] = {{60, 60, PLAN_RAM_AUTO, PLAN_RAM_ALL, true},
             {60, 14, PLAN_RAM_AUTO, PLAN_RAM_COMPLEMENT, true},
             {60, 4, PLAN_RAM_AUTO, PLAN_RAM_MMAP, true},
             {60, 4, PLAN_RAM_ALL, PLAN_RAM_ALL, false},
             {60, 4, PLAN_RAM_COMPLEMENT, PLAN_RAM_COMPLEMENT, false},
             {14, 60, PLAN_RAM_AUTO, PLAN_RAM_COMPLEMENT, true},
             {4, 60, PLAN_RAM_AUTO, PLAN_RAM_MMAP, false}, // too little even for the pages
             {60, 60, PLAN_RAM_COMPLEMENT, PLAN_RAM_COMPLEMENT, true},
             {60, 60, PLAN_RAM_MMAP, PLAN_RAM_MMAP, true},
             {14, 60, PLAN_RAM_ALL, PLAN_RAM_ALL, false}};
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        plan p;
        plan_request r = on_card(16 * GIB);
        r.ram_cap = t[i].ram_gib * GIB;
        r.pin_limit = t[i].pin_gib * GIB;
        r.experts_ram = t[i].asked;
        plan_make(&p, &r);
        CHECK(p.experts_ram == t[i].got && p.fits == t[i].fits && (!p.fits || p.pin_need <= p.pin_limit));
        CHECK(!p.fits || sum(&p, PLAN_RAM) <= p.ram_limit + GIB / 1024);
        if (t[i].got == PLAN_RAM_COMPLEMENT)
            CHECK(p.item[PLAN_RAM][PLAN_EXPERTS].n_bytes <= (r.expert_bytes - slots(&p)) * 21 / 20);
        CHECK(p.n_expert_vram + p.n_expert_ram + p.n_expert_ssd == r.n_expert);
        if (t[i].fits) continue;
        mica_error err;
        bool by_pages =
            strstr(plan_check(&p, &err) == MICA_E_FIT ? err.text : "", "--experts-ram mmap would fit");
        CHECK(plan_check(&p, &err) == MICA_E_FIT && by_pages == (t[i].got != PLAN_RAM_MMAP));
    }
}

static void test_screens_desktops_and_apus(void **state) {
    (void)state;
    static const struct {
        bool display, desktop, integrated;
        uint64_t reserve_mib, want_mib;
    } t[] = {{false, false, false, 0, 512},
             {true, false, false, 0, 700},
             {true, true, false, 0, 3072},
             {true, true, false, 100, 100},
             {false, false, true, 0, 512}};
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        plan p;
        plan_request r = on_card(16 * GIB);
        r.display = t[i].display;
        r.desktop = t[i].desktop;
        r.integrated = t[i].integrated;
        r.vram_reserve = t[i].reserve_mib * MIB;
        plan_make(&p, &r);
        CHECK(p.vram_limit == r.vram_free - t[i].want_mib * MIB);
        if (!r.integrated) continue;
        CHECK(p.experts_ram == PLAN_RAM_MMAP); // no second copy in the same memory
        r.ram_free = 10 * GIB;
        plan_make(&p, &r);
        CHECK(p.vram_limit <= 10 * GIB - 10 * GIB / 16);
    }
}

static void test_the_processor(void **state) {
    (void)state;
    plan p;
    plan_request r = large();
    plan_make(&p, &r);
    CHECK(p.fits && p.n_expert_ram == r.n_expert && p.n_slab == 0);
    r.ram_cap = 6 * GIB;
    plan_make(&p, &r);
    CHECK(p.fits && p.n_slab == 2 && p.n_expert_ram + p.n_expert_ssd == r.n_expert);
    CHECK(p.item[PLAN_RAM][PLAN_EXPERTS].n_bytes == slots(&p) && sum(&p, PLAN_RAM) <= 6 * GIB);
    CHECK(sum(&p, PLAN_RAM) + 4 * MIB > 6 * GIB);
    r.experts_ram = PLAN_RAM_MMAP;
    plan_make(&p, &r);
    CHECK(p.fits && p.n_slab == 0);
    r.experts_ram = PLAN_RAM_ALL;
    plan_make(&p, &r);
    CHECK(!p.fits && p.near.experts_ram == PLAN_RAM_MMAP && p.need_bytes > 19 * GIB);
    r.experts_ram = PLAN_RAM_AUTO;
    r.n_ctx = 400000; // longer than it was made for: the nearest may be too
    plan_make(&p, &r);
    CHECK(!p.fits && p.near.n_ctx > r.n_ctx_train && p.near.n_ctx < r.n_ctx);
}

/* More sizes than slabs: all layers have one still, and slots are large enough. */
static void test_many_sizes(void **state) {
    (void)state;
    plan p;
    plan_request r = on_card(16 * GIB);
    for (int il = 0; il < LAYERS; il++) blobs[il] = MIB + (uint64_t)((il * 7) % LAYERS) * 4096;
    plan_make(&p, &r);
    CHECK(p.n_slab == PLAN_SLAB_MAX);
    for (int il = 0; il < LAYERS; il++) CHECK(blobs[il] <= p.slab[p.slab_of[il]].blob_bytes);
}

static void test_rules_hold_for_any_sizes(void **state) {
    (void)state;
    uint64_t seed = 77;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int i = 0; i < 3000; i++) {
        plan p, q;
        plan_request r = on_card((1 + test_rand(&seed) % 40) * GIB / 2);
        if (test_rand(&seed) % 3 == 0) r.card = NULL;
        r.ram_free = test_rand(&seed) % r.ram_total;
        r.ram_cap = test_rand(&seed) % 2 ? test_rand(&seed) % (40 * GIB) : 0;
        r.vram_cap = test_rand(&seed) % 2 ? test_rand(&seed) % (20 * GIB) : 0;
        r.n_ctx = test_rand(&seed) % 2 ? 1 + (uint32_t)(test_rand(&seed) % 500000) : 0;
        r.n_seq = 1 + (uint32_t)(test_rand(&seed) % 8);
        r.cache_bytes = test_rand(&seed) % GIB;
        r.pin_limit = test_rand(&seed) % r.ram_total;
        r.experts_ram = (plan_experts_ram)(test_rand(&seed) % 4);
        r.integrated = test_rand(&seed) % 4 == 0;
        plan_make(&p, &r);
        CHECK(p.n_expert_vram + p.n_expert_ram + p.n_expert_ssd == r.n_expert || !p.fits);
        if (p.fits) {
            CHECK(sum(&p, PLAN_VRAM) <= p.vram_limit && p.near.n_ctx == 0);
            CHECK(!r.vram_cap || p.vram_limit <= r.vram_cap);
            CHECK(!r.ram_cap || r.card || p.need_bytes <= r.ram_cap);
            continue;
        }
        mica_error err;
        CHECK(plan_check(&p, &err) == MICA_E_FIT);
        if (p.near.n_ctx == 0) continue;
        CHECK(p.near.n_ctx < p.n_ctx);
        r.n_ctx = p.near.n_ctx;
        if (p.near.experts_ram) r.experts_ram = p.near.experts_ram;
        plan_make(&q, &r);
        CHECK(r.card ? q.need_bytes <= q.vram_limit : q.fits || r.experts_ram != PLAN_RAM_AUTO);
    }
}

static void test_this_machine(void **state) {
    (void)state;
    uint64_t total = 0, spare = 0;
    plan_machine(&total, &spare);
    CHECK(total > 0 && spare > 0 && spare <= total && plan_pin_limit() > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_on_a_large_card),
        cmocka_unit_test(test_a_small_card_is_filled),
        cmocka_unit_test(test_how_ram_holds_the_rest),
        cmocka_unit_test(test_screens_desktops_and_apus),
        cmocka_unit_test(test_the_processor),
        cmocka_unit_test(test_many_sizes),
        cmocka_unit_test(test_rules_hold_for_any_sizes),
        cmocka_unit_test(test_this_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
