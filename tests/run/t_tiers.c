/* A mixture larger than the card: whatever share of its experts has slots there, and however the others are
 * held beside it, logits are bit for bit those of the run with everything on the card. */
#include "check.h"
#include "run/logit_trace.h"

#include "dev/gpu_sim.h"
#include "run/engine.h"
#include "temp_dir.h"

enum { N_PROMPT = 12, N_WINDOW = 3, N_ROUND = 3, N_LOGITS = 1 + N_ROUND * (N_WINDOW + 2) };

typedef struct setup {
    const char *name;
    const char *knobs;
    uint64_t vram_bytes;
    plan_experts_ram ram;
    bool draft;
} setup;

static temp_dir g_dir;
static char g_profile[300]; // learned use of experts: none that this machine has

static mica_status open_model(engine **e, gguf_file **g, const setup *u, engine_config *c, mica_error *err) {
    char path[256];
    snprintf(path, sizeof path, "tests/fixtures/%s.q4_k_m.gguf", u->name);
    CHECK(gpu_sim_configure(u->knobs, err) == MICA_OK && gguf_open(g, path, err) == MICA_OK);
    *c = (engine_config){.g = *g, .dev = DEV_SIM, .isa = CPU_SCALAR, .n_thread = 2, .n_ctx = 512};
    c->n_seq = 1;
    c->n_ubatch = 32;
    c->draft = u->draft;
    c->vram_bytes = u->vram_bytes;
    c->experts_ram = u->ram;
    c->profile_path = g_profile;
    remove(g_profile);
    if (!e) return MICA_OK;
    mica_status st = engine_open(e, c, err);
    if (st != MICA_OK) gguf_close(*g);
    return st;
}

static int32_t token_at(int32_t i) {
    return (int32_t)(((uint32_t)i * 2654435761u + (uint32_t)i / 7) % 4000);
}

/* A prompt, then windows (or single tokens) of which some rows are taken back. */
static mica_status steps(trace *t, engine *e, bool windows, mica_error *err) {
    row_info rows[N_PROMPT];
    for (int32_t i = 0; i < N_PROMPT; i++)
        rows[i] = (row_info){.tok = token_at(i), .pos = i, .out = i == N_PROMPT - 1 ? 0 : -1};
    TRY(engine_step(e, rows, N_PROMPT, N_PROMPT, err));
    keep(t, engine_logits(e, 0));
    int32_t pos = N_PROMPT;
    for (uint32_t k = 0; k < N_ROUND; k++) {
        uint32_t n = windows ? N_WINDOW : 1, n_accept = windows ? 1 + (k * 2) % N_WINDOW : 1;
        for (int32_t i = 0; i < (int32_t)n; i++)
            rows[i] = (row_info){.tok = token_at(pos + i), .pos = pos + i, .out = i};
        TRY(engine_step(e, rows, n, 0, err));
        for (uint32_t i = 0; i < n; i++) keep(t, engine_logits(e, i));
        if (windows) TRY(engine_accept(e, 0, n_accept, err));
        pos += (int32_t)n_accept;
        if (engine_drafts(e)) draft(t, e, pos - 1);
    }
    CHECK(t->n <= N_LOGITS);
    return MICA_OK;
}

static dev_expert_stats run(trace *t, const setup *u) {
    mica_error err;
    gguf_file *g;
    engine *e;
    engine_config c;
    CHECK_OK(open_model(&e, &g, u, &c, &err));
    *t = (trace){.n_vocab = engine_shape(e)->n_vocab};
    CHECK_OK(steps(t, e, u->draft, &err));
    dev_expert_stats stats;
    engine_experts(e, &stats);
    engine_close(e);
    gguf_close(g);
    sim_held h = gpu_sim_held(0);
    CHECK(h.vram_bytes == 0 && h.n_block == 0 && h.n_handle == 0);
    return stats;
}

static plan plan_of(const setup *u, uint64_t vram_bytes) {
    mica_error err;
    gguf_file *g;
    engine_config c;
    plan p;
    CHECK_OK(open_model(NULL, &g, u, &c, &err));
    c.vram_bytes = vram_bytes;
    CHECK_OK(engine_plan(&p, &c, &err));
    gguf_close(g);
    return p;
}

/* The card's memory that leaves slots for a share of the experts. */
static uint64_t cap_for(const setup *u, uint32_t percent) {
    plan all = plan_of(u, 0), least = plan_of(u, 1);
    return least.need_bytes + all.item[PLAN_VRAM][PLAN_EXPERTS].n_bytes * percent / 100;
}

static void compare(const setup *u, uint32_t percent, const trace *want, trace *got) {
    CHECK(got->n == want->n && got->n_vocab == want->n_vocab);
    for (size_t i = 0; i < want->n * want->n_vocab; i++) {
        if (memcmp(&got->logits[i], &want->logits[i], sizeof(float)) == 0) continue;
        print_error(
            "%s, %u %% in slots, ram %d, draft %d: logits %zu of %zu, id %zu: %.9g, all in slots %.9g\n",
            u->name, percent, (int)u->ram, u->draft, i / want->n_vocab, want->n, i % want->n_vocab,
            (double)got->logits[i], (double)want->logits[i]);
        _fail(__FILE__, __LINE__);
    }
    free(got->logits);
}

/* draft: windows of drafts, and the draft block of the one family that has it. */
static const struct {
    const char *name;
    bool draft;
} g_mixtures[] = {{"qwen3_moe", true}, {"qwen3_5_moe", true}, {"gemma4_moe", false}};

static void test_any_share_of_slots_gives_the_same_bits(void **state) {
    (void)state;
    static const uint32_t percent[2][2] = {{50, 5}, {20, 5}};
    uint64_t moved_bytes[3] = {0}, stream_bytes = 0;
    for (size_t i = 0; i < sizeof g_mixtures / sizeof *g_mixtures; i++) {
        setup u = {.name = g_mixtures[i].name, .draft = g_mixtures[i].draft};
        u.knobs = i % 2 ? "arch=gfx906" : "arch=gfx1201";
        trace want, got;
        dev_expert_stats s = run(&want, &u);
        CHECK(s.n_use > 0 && s.n_hit == s.n_use && s.link_bytes == 0 && s.moved_bytes == 0);
        for (uint32_t k = 0; k < 2; k++) {
            u.vram_bytes = cap_for(&u, percent[i % 2][k]);
            u.ram = (plan_experts_ram)(PLAN_RAM_ALL + (i + k) % 3);
            s = run(&got, &u);
            if (s.n_hit == s.n_use || s.moved_bytes == 0)
                print_error("%s, %u %%: %u slots, %llu of %llu uses hit\n", u.name, percent[i % 2][k],
                            s.n_slot, (unsigned long long)s.n_hit, (unsigned long long)s.n_use);
            CHECK(s.n_hit < s.n_use && s.link_bytes > 0 && s.n_slot_full <= s.n_slot);
            moved_bytes[(i + k) % 3] += s.moved_bytes;
            stream_bytes += s.stream_bytes;
            compare(&u, percent[i % 2][k], &want, &got);
        }
        free(want.logits);
    }
    CHECK(stream_bytes > 0);
    for (int ram = 0; ram < 3; ram++) CHECK(moved_bytes[ram] > 0); // experts changed places meanwhile
}

static void test_a_driver_that_maps_no_file_gets_copies(void **state) {
    (void)state;
    setup u = {.name = "qwen3_moe", .knobs = "", .ram = PLAN_RAM_MMAP};
    trace want, got;
    run(&want, &u);
    u.vram_bytes = cap_for(&u, 20);
    u.knobs = "no_register=1";
    run(&got, &u);
    compare(&u, 20, &want, &got);
    free(want.logits);
}

/* What start-up takes of the card is what the plan says, and stays below the cap. */
static void test_start_up_takes_what_the_plan_says(void **state) {
    (void)state;
    mica_error err;
    setup u = {.name = "qwen3_5_moe", .knobs = "", .draft = true};
    for (uint32_t percent = 1; percent <= 100; percent += 49) {
        gguf_file *g;
        engine *e;
        engine_config c;
        u.vram_bytes = cap_for(&u, percent);
        CHECK_OK(open_model(&e, &g, &u, &c, &err));
        CHECK(gpu_sim_held(0).vram_bytes <= u.vram_bytes);
        engine_close(e);
        gguf_close(g);
    }
}

/* What has no slot must be in memory: a card's link does not reach the SSD. */
static void test_experts_that_memory_cannot_hold_are_refused(void **state) {
    (void)state;
    mica_error err;
    gguf_file *g;
    engine *e;
    engine_config c;
    setup u = {.name = "qwen3_moe", .knobs = ""};
    u.vram_bytes = cap_for(&u, 20);
    CHECK_OK(open_model(NULL, &g, &u, &c, &err));
    c.ram_bytes = 1 << 20;
    CHECK(engine_open(&e, &c, &err) == MICA_E_FIT);
    CHECK(strstr(err.text, "needed beside the card") && strstr(err.text, "--device cpu"));
    gguf_close(g);
}

/* Every allocation fails once, on the card or beside it: one error, nothing held. */
static void test_every_failed_allocation_is_told(void **state) {
    (void)state;
    setup u = {.name = "qwen3_moe", .knobs = ""};
    for (int ram = PLAN_RAM_ALL; ram <= PLAN_RAM_MMAP; ram++) {
        char knobs[40];
        mica_status st = MICA_E_NOMEM;
        u.ram = (plan_experts_ram)ram;
        u.knobs = "";
        u.vram_bytes = cap_for(&u, 20);
        for (int n = 1; st != MICA_OK; n += n < 4 ? 1 : 29) {
            mica_error err;
            gguf_file *g;
            engine *e;
            engine_config c;
            snprintf(knobs, sizeof knobs, "no_memory=%d", n);
            u.knobs = knobs;
            st = open_model(&e, &g, &u, &c, &err);
            CHECK(st == MICA_OK || (st == MICA_E_NOMEM && strstr(err.text, "out of memory")));
            if (st == MICA_OK) engine_close(e), gguf_close(g);
            sim_held h = gpu_sim_held(0);
            CHECK(h.vram_bytes == 0 && h.n_block == 0 && h.n_handle == 0);
        }
    }
}

/* A fault in the middle of steps whose experts move and stream: one error that says so, nothing held, and the
 * next run on the card is as if nothing had been. */
static void test_faults_of_the_card_are_told(void **state) {
    (void)state;
    static const char *const faults[][2] = {{"lost=%u", "the card is lost"},
                                            {"copy_error=%u", "a copy did not complete"}};
    setup u = {.name = "qwen3_moe", .knobs = "", .ram = PLAN_RAM_COMPLEMENT};
    trace want, got;
    u.vram_bytes = cap_for(&u, 20);
    run(&want, &u);
    for (uint32_t n = 60; n < 300; n += 140) {
        for (int k = 0; k < 2; k++) {
            mica_error err = {0};
            gguf_file *g;
            engine *e;
            engine_config c;
            char knobs[40];
            snprintf(knobs, sizeof knobs, faults[k][0], n);
            u.knobs = knobs;
            mica_status st = open_model(&e, &g, &u, &c, &err);
            if (st == MICA_OK) {
                got = (trace){.n_vocab = engine_shape(e)->n_vocab};
                st = steps(&got, e, false, &err);
                free(got.logits);
                engine_close(e);
                gguf_close(g);
            }
            CHECK(st == MICA_OK || (st == MICA_E_DEVICE && strstr(err.text, faults[k][1])));
            CHECK(st != MICA_OK || n > 40);
            sim_held h = gpu_sim_held(0);
            CHECK(h.vram_bytes == 0 && h.n_block == 0 && h.n_handle == 0);
        }
    }
    u.knobs = "";
    run(&got, &u);
    compare(&u, 20, &want, &got);
    free(want.logits);
}

int main(void) {
    temp_dir_make(&g_dir);
    snprintf(g_profile, sizeof g_profile, "%s/experts.db", g_dir.path);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_share_of_slots_gives_the_same_bits),
        cmocka_unit_test(test_a_driver_that_maps_no_file_gets_copies),
        cmocka_unit_test(test_start_up_takes_what_the_plan_says),
        cmocka_unit_test(test_experts_that_memory_cannot_hold_are_refused),
        cmocka_unit_test(test_every_failed_allocation_is_told),
        cmocka_unit_test(test_faults_of_the_card_are_told),
    };
    int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    temp_dir_drop(&g_dir);
    return n_failed;
}
