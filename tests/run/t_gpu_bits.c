/* The promise of one arithmetic on a card: logits of every family are the definition's bits on the simulated
 * card, at both wave widths, through prompt chunks, decode (launched, captured and replayed), batches, draft
 * windows and the draft block; and what fails on a card is told once and leaves nothing behind. */
#include "check.h"
#include "run/logit_trace.h"

#include "base/mem.h"
#include "dev/gpu_sim.h"
#include "run/session.h"

enum { N_PROMPT = 10, N_GEN = 3, N_SEQ = 2, N_WINDOW = 3 };

static const char *const g_fixture[] = {"llama",       "qwen3",  "qwen3_moe", "qwen3_5",
                                        "qwen3_5_moe", "gemma4", "gemma4_moe"};

typedef struct setup {
    const char *name;
    dev_kind dev;
    const char *knobs; // of the simulated card
    uint32_t n_ubatch, n_seq;
    kv_type kv;
    bool draft;
} setup;

static int32_t token_at(uint32_t seq, size_t i) {
    return (int32_t)((i * 2654435761u + seq * 977u + i / 7) % 4000);
}

static mica_status open_engine(engine **e, gguf_file **g, const setup *u, mica_error *err) {
    char path[256];
    snprintf(path, sizeof path, "tests/fixtures/%s.q4_k_m.gguf", u->name);
    *e = NULL;
    if (u->dev == DEV_SIM) CHECK(gpu_sim_configure(u->knobs, err) == MICA_OK);
    CHECK(gguf_open(g, path, err) == MICA_OK);
    engine_config c = {.g = *g, .dev = u->dev, .isa = CPU_SCALAR, .n_thread = 1, .n_ctx = 512, .kv = u->kv};
    c.n_seq = u->n_seq;
    c.n_ubatch = u->n_ubatch;
    c.draft = u->draft;
    mica_status st = engine_open(e, &c, err);
    if (st != MICA_OK) gguf_close(*g);
    return st;
}

static void expect_nothing_held(void) {
    sim_held h = gpu_sim_held(0);
    CHECK(h.vram_bytes == 0 && h.n_block == 0 && h.n_handle == 0);
}

/* A prompt in chunks, then tokens: one sequence, or some that decode together. */
static void run_session(trace *t, const setup *u) {
    mica_error err;
    gguf_file *g;
    engine *e;
    session *s[N_SEQ];
    CHECK_OK(open_engine(&e, &g, u, &err));
    *t = (trace){.n_vocab = engine_shape(e)->n_vocab};
    for (uint32_t q = 0; q < u->n_seq; q++) {
        int32_t ids[N_PROMPT];
        size_t n = q == 0 ? N_PROMPT : 3 + 2 * q;
        for (size_t i = 0; i < n; i++) ids[i] = token_at(q, i);
        CHECK_OK(session_new(&s[q], e, q, &err));
        CHECK_OK(session_sync(s[q], &(session_sync_args){.ids = ids, .n = n}, NULL, &err));
        keep(t, session_logits(s[q]));
    }
    for (size_t k = 0; k < N_GEN; k++) {
        int32_t ids[N_SEQ];
        for (uint32_t q = 0; q < u->n_seq; q++) ids[q] = token_at(q, 1000 + k);
        CHECK_OK(session_append_batch(s, ids, u->n_seq, &err));
        for (uint32_t q = 0; q < u->n_seq; q++) keep(t, session_logits(s[q]));
    }
    for (uint32_t q = 0; q < u->n_seq; q++) session_free(s[q]);
    engine_close(e);
    gguf_close(g);
}

/* A window of drafts at `pos`, of which `n_accept` happened; every row's logits. */
static void window(trace *t, engine *e, int32_t pos, uint32_t n_accept) {
    mica_error err;
    row_info rows[N_WINDOW];
    for (int32_t i = 0; i < N_WINDOW; i++)
        rows[i] = (row_info){.tok = token_at(0, (size_t)(pos + i)), .pos = pos + i, .out = i};
    CHECK_OK(engine_step(e, rows, N_WINDOW, 0, &err));
    for (uint32_t i = 0; i < N_WINDOW; i++) keep(t, engine_logits(e, i));
    CHECK_OK(engine_accept(e, 0, n_accept, &err));
}

static void run_windows(trace *t, const setup *u) {
    mica_error err;
    gguf_file *g;
    engine *e;
    row_info rows[8];
    CHECK_OK(open_engine(&e, &g, u, &err));
    *t = (trace){.n_vocab = engine_shape(e)->n_vocab};
    for (int32_t i = 0; i < 8; i++)
        rows[i] = (row_info){.tok = token_at(0, (size_t)i), .pos = i, .out = i == 7 ? 0 : -1};
    CHECK_OK(engine_step(e, rows, 8, 8, &err));
    keep(t, engine_logits(e, 0));
    int32_t pos = 8;
    for (uint32_t k = 0; k < 3; k++) { // launched, captured, replayed; other numbers of rows accepted
        uint32_t n_accept = 1 + (k * 2) % N_WINDOW;
        window(t, e, pos, n_accept);
        pos += (int32_t)n_accept;
        if (engine_drafts(e)) draft(t, e, pos - 1);
    }
    engine_close(e);
    gguf_close(g);
}

static void compare(const char *what, const setup *u, const trace *want, trace *got) {
    CHECK(got->n == want->n && got->n_vocab == want->n_vocab);
    for (size_t i = 0; i < want->n * want->n_vocab; i++) {
        if (memcmp(&got->logits[i], &want->logits[i], sizeof(float)) == 0) continue;
        print_error("%s %s card %s ubatch %u kv %d: logits %zu of %zu, id %zu: %.9g, definition %.9g\n",
                    u->name, what, u->knobs, u->n_ubatch, (int)u->kv, i / want->n_vocab, want->n,
                    i % want->n_vocab, (double)got->logits[i], (double)want->logits[i]);
        _fail(__FILE__, __LINE__);
    }
    free(got->logits);
}

static const char *const g_waves[2] = {"arch=gfx1100", "arch=gfx906"};

static void test_prompt_and_decode(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof g_fixture / sizeof *g_fixture; i++) {
        setup u = {.name = g_fixture[i], .dev = DEV_REF, .n_ubatch = 16, .n_seq = 1};
        trace want, got;
        run_session(&want, &u);
        for (int k = 0; k < 2; k++) {
            u.dev = DEV_SIM;
            u.knobs = g_waves[k];
            u.n_ubatch = k ? 6 : 32;
            run_session(&got, &u);
            compare("prompt and decode", &u, &want, &got);
            expect_nothing_held();
        }
        free(want.logits);
    }
}

static void test_batches_and_cache_types(void **state) {
    (void)state;
    static const struct {
        const char *name;
        kv_type kv;
    } rows[] = {{"llama", KV_I8}, {"qwen3_moe", KV_F32}, {"qwen3_5", KV_F16}, {"gemma4", KV_I8}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        setup u = {.name = rows[i].name, .dev = DEV_REF, .n_ubatch = 16, .n_seq = N_SEQ, .kv = rows[i].kv};
        trace want, got;
        run_session(&want, &u);
        u.dev = DEV_SIM;
        u.knobs = g_waves[i % 2];
        run_session(&got, &u);
        compare("a batch", &u, &want, &got);
        free(want.logits);
    }
}

static void test_draft_windows(void **state) {
    (void)state;
    static const char *const names[] = {"llama", "qwen3_5", "qwen3_5_moe"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        setup u = {.name = names[i], .dev = DEV_REF, .n_ubatch = 16, .n_seq = 1, .draft = true};
        trace want, got;
        run_windows(&want, &u);
        u.dev = DEV_SIM;
        u.knobs = g_waves[i % 2];
        run_windows(&got, &u);
        compare("windows", &u, &want, &got);
        free(want.logits);
    }
}

/* ---- faults ---- */

static mica_status open_and_step(const char *name, const char *knobs, mica_error *err) {
    setup u = {.name = name, .dev = DEV_SIM, .knobs = knobs, .n_ubatch = 16, .n_seq = 1};
    gguf_file *g;
    engine *e;
    row_info rows[2] = {{.tok = 5, .pos = 0, .out = -1}, {.tok = 6, .pos = 1, .out = 0}};
    mica_status st = open_engine(&e, &g, &u, err);
    if (st != MICA_OK) return st;
    st = engine_step(e, rows, 2, 2, err);
    engine_close(e);
    gguf_close(g);
    return st;
}

static void expect_fault(const char *knobs, mica_status want, const char *text) {
    mica_error err = {0};
    mica_status st = open_and_step("llama", knobs, &err);
    if (st != want || !strstr(err.text, text))
        print_error("%s: %s: %s\n", knobs, mica_status_name(st), err.text);
    CHECK(st == want && strstr(err.text, text) != NULL && strchr(err.text, '\n') == NULL);
    expect_nothing_held();
}

static void test_every_failed_allocation_is_told(void **state) {
    (void)state;
    mica_error err;
    for (int n = 1;; n += n < 4 ? 1 : 17) {
        char knobs[40];
        snprintf(knobs, sizeof knobs, "no_memory=%d", n);
        mica_status st = open_and_step("qwen3_moe", knobs, &err);
        expect_nothing_held();
        if (st == MICA_OK) {
            CHECK(n > 40);
            break;
        }
        CHECK(st == MICA_E_NOMEM && strstr(err.text, "out of memory") != NULL);
    }
}

static void test_faults_of_the_card_are_told(void **state) {
    (void)state;
    expect_fault("lost=1", MICA_E_DEVICE, "the card is lost");
    expect_fault("lost=30", MICA_E_DEVICE, "the card is lost");
    expect_fault("copy_error=3", MICA_E_DEVICE, "a copy did not complete");
    expect_fault("garbage=1", MICA_E_DEVICE, "a value is not finite");
    expect_fault("vram=1M", MICA_E_FIT, "1 MiB of its memory allowed");
}

/* What a step has not got, it does not take: neither on the host nor on the card. */
static void test_decode_allocates_nothing(void **state) {
    (void)state;
    mica_error err;
    gguf_file *g;
    engine *e;
    setup u = {.name = "qwen3_5", .dev = DEV_SIM, .knobs = "", .n_ubatch = 8, .n_seq = 1};
    CHECK_OK(open_engine(&e, &g, &u, &err));
    sim_held before = {0};
    uint64_t n_alloc = 0;
    for (int32_t pos = 0; pos < 6; pos++) {
        row_info row = {.tok = 40 + pos, .pos = pos, .out = 0};
        if (pos == 4) before = gpu_sim_held(0), n_alloc = mem_count();
        CHECK_OK(engine_step(e, &row, 1, pos == 0, &err));
    }
    sim_held after = gpu_sim_held(0);
    CHECK(mem_count() == n_alloc);
    CHECK(after.n_block == before.n_block && after.n_handle == before.n_handle);
    engine_close(e);
    gguf_close(g);
    expect_nothing_held();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prompt_and_decode),
        cmocka_unit_test(test_batches_and_cache_types),
        cmocka_unit_test(test_draft_windows),
        cmocka_unit_test(test_every_failed_allocation_is_told),
        cmocka_unit_test(test_faults_of_the_card_are_told),
        cmocka_unit_test(test_decode_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
