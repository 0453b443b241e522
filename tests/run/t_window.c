/* Sliding windows: a cache that is a ring may be cut back only as far as it still holds the window, and
 * whatever is cut, the logits are those of a session that never read anything else. */
#include "check.h"
#include "temp_dir.h"

#include "mica_tools.h"
#include "run/state_file.h"

enum { N_CTX = 1536, N_LONG = 1150, N_VOCAB = 300, WINDOW = 64 };
enum { SLOTS = 2 }; // window and batch within two pages

static temp_dir g_dir;
static char g_path[1024];

/* Two layers with a window, one that sees everything; random weights. */
static int make_model(void **state) {
    (void)state;
    static const char *const set[] = {"layers=3", "embd=64",   "heads=2", "kv=1",
                                      "hd=32",    "hd_swa=16", "ff=64",   "vocab=300"};
    mica_synth_options o = {
        .preset = "tiny-gemma4", .quant = "q8_0", .set = set, .n_set = sizeof set / sizeof *set};
    mica_error err;
    char *json;
    temp_dir_make(&g_dir);
    snprintf(g_path, sizeof g_path, "%s", temp_dir_at(&g_dir, "window.gguf"));
    CHECK_OK(mica_synth(&json, g_path, &o, &err));
    mica_text_free(json);
    return 0;
}

static int drop_model(void **state) {
    (void)state;
    temp_dir_drop(&g_dir);
    return 0;
}

typedef struct world {
    gguf_file *g;
    engine *e;
    session *s[2]; // the one under test, and one that is cleared before every use
} world;

static engine_config config_of(const gguf_file *g) {
    engine_config c = {
        .g = g, .dev = DEV_CPU, .isa = cpu_isa_best(), .n_thread = 1, .n_ctx = N_CTX, .n_seq = 2};
    c.n_ubatch = 16;
    return c;
}

static world open_world(void) {
    world w;
    mica_error err;
    CHECK_OK(gguf_open(&w.g, g_path, &err));
    engine_config c = config_of(w.g);
    CHECK_OK(engine_open(&w.e, &c, &err));
    for (uint32_t q = 0; q < 2; q++) CHECK_OK(session_new(&w.s[q], w.e, q, &err));
    CHECK(engine_shape(w.e)->window == WINDOW);
    return w;
}

static void close_world(world *w) {
    for (int q = 0; q < 2; q++) session_free(w->s[q]);
    engine_close(w->e);
    gguf_close(w->g);
}

static size_t sync_ok(session *s, const int32_t *ids, size_t n) {
    mica_error err;
    size_t cached;
    CHECK_OK(session_sync(s, &(session_sync_args){.ids = ids, .n = n}, &cached, &err));
    return cached;
}

/* The session reads ids[0..n), keeping `cached` of them, and ends where one that reads them alone does. */
static void expect_fresh(world *w, const int32_t *ids, size_t n, size_t cached) {
    size_t got = sync_ok(w->s[0], ids, n);
    if (got != cached) print_error("%zu tokens: %zu kept, expected %zu\n", n, got, cached);
    CHECK(got == cached);
    session_clear(w->s[1]);
    CHECK(sync_ok(w->s[1], ids, n) == 0);
    size_t n_bytes = engine_shape(w->e)->n_vocab * sizeof(float);
    CHECK(memcmp(session_logits(w->s[0]), session_logits(w->s[1]), n_bytes) == 0);
}

static void ids_fill(int32_t *ids, size_t from, size_t n, uint64_t seed) {
    for (size_t i = from; i < n; i++) ids[i] = (int32_t)(test_rand(&seed) % N_VOCAB);
}

static void test_cuts_of_a_ring(void **state) {
    (void)state;
    world w = open_world();
    mica_error err;
    int32_t ids[N_LONG];
    ids_fill(ids, 0, N_LONG, 11);
    CHECK(engine_rewind_min(w.e, 0) == 0);
    CHECK(sync_ok(w.s[0], ids, SLOTS * KV_PAGE) == 0);
    CHECK(engine_rewind_min(w.e, 0) == 0); // both pages are there
    expect_fresh(&w, ids, 40, 39);
    CHECK(sync_ok(w.s[0], ids, SLOTS * KV_PAGE + 1) == 40);
    uint32_t least = KV_PAGE + WINDOW - 1; // the first page has gone
    CHECK(engine_rewind_min(w.e, 0) == least);
    ids_fill(ids, least, N_LONG, 12);
    expect_fresh(&w, ids, least + 20, least);
    ids_fill(ids, least - 1, N_LONG, 13);
    expect_fresh(&w, ids, least + 20, 0); // one token further back: read again
    CHECK(engine_rewind_min(w.e, 0) == 0);
    CHECK(sync_ok(w.s[0], ids, 3 * KV_PAGE) == least + 20);
    /* Generated rows move the ring too, and they do not count as prefix. */
    for (int i = 0; i < 300; i++) CHECK_OK(session_append(w.s[0], i % N_VOCAB, &err));
    CHECK(session_length(w.s[0]) == 3 * KV_PAGE + 300);
    CHECK(engine_rewind_min(w.e, 0) == 3 * KV_PAGE + WINDOW - 1);
    ids_fill(ids, 3 * KV_PAGE, N_LONG, 14);
    expect_fresh(&w, ids, 3 * KV_PAGE + 30, 0);
    close_world(&w);
}

/* A window of drafts that is taken back has written the ring. */
static void test_drafts_that_are_taken_back(void **state) {
    (void)state;
    world w = open_world();
    mica_error err;
    int32_t ids[N_LONG], drafts[WINDOW_MAX];
    ids_fill(ids, 0, N_LONG, 21);
    size_t n = SLOTS * KV_PAGE - 2;
    CHECK(sync_ok(w.s[0], ids, n) == 0);
    ids_fill(drafts, 0, WINDOW_MAX, 22);
    CHECK_OK(session_window(w.s[0], drafts, WINDOW_MAX, &err));
    CHECK_OK(session_accept(w.s[0], 1, &err));
    CHECK(session_length(w.s[0]) == n + 1);
    CHECK(engine_rewind_min(w.e, 0) == KV_PAGE + WINDOW - 1);
    expect_fresh(&w, ids, 100, 0);
    close_world(&w);
}

static void test_random_histories(void **state) {
    (void)state;
    world w = open_world();
    mica_error err;
    uint64_t seed = 4242;
    int32_t ids[N_LONG], read_again = 0;
    ids_fill(ids, 0, N_LONG, 31);
    for (int round = 0; round < 25; round++) {
        size_t old = session_length(w.s[0]), keep = old ? test_rand(&seed) % old : 0;
        size_t n = keep + 1 + test_rand(&seed) % 300;
        if (n > N_LONG) n = N_LONG;
        ids_fill(ids, keep, N_LONG, test_rand(&seed));
        size_t got = sync_ok(w.s[0], ids, n);
        read_again += got == 0 && keep > 0;
        session_clear(w.s[1]);
        sync_ok(w.s[1], ids, n);
        size_t n_bytes = engine_shape(w.e)->n_vocab * sizeof(float);
        CHECK(memcmp(session_logits(w.s[0]), session_logits(w.s[1]), n_bytes) == 0);
        if (round % 3 == 0) { // through a file: what was written before it was cut is still known after
            bool found;
            const char *path = temp_dir_at(&g_dir, "session.mica");
            CHECK_OK(session_save(w.s[0], path, &err));
            session_clear(w.s[0]);
            CHECK_OK(session_load(w.s[0], path, &found, &err));
            CHECK(found && session_length(w.s[0]) == n);
        }
        for (uint64_t k = test_rand(&seed) % 200; k > 0; k--)
            CHECK_OK(session_append(w.s[0], (int32_t)(k * 7 % N_VOCAB), &err));
    }
    CHECK(read_again > 0); // the seed must lead there, or the test tests nothing
    close_world(&w);
}

/* A ring of another size holds its pages elsewhere. */
static void test_a_saved_ring_of_another_size_is_a_miss(void **state) {
    (void)state;
    world w = open_world(), other;
    mica_error err;
    int32_t ids[N_LONG];
    bool found = true;
    const char *path = temp_dir_at(&g_dir, "ring.mica");
    ids_fill(ids, 0, N_LONG, 41);
    CHECK(sync_ok(w.s[0], ids, N_LONG) == 0);
    CHECK_OK(session_save(w.s[0], path, &err));
    engine_config c = config_of(w.g);
    c.n_ubatch = 400;
    CHECK_OK(engine_open(&other.e, &c, &err));
    CHECK(engine_ring_slots(w.e) == SLOTS && engine_ring_slots(other.e) == SLOTS + 1);
    CHECK_OK(session_new(&other.s[0], other.e, 0, &err));
    CHECK_OK(session_load(other.s[0], path, &found, &err));
    CHECK(!found && session_length(other.s[0]) == 0);
    session_free(other.s[0]);
    engine_close(other.e);
    close_world(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuts_of_a_ring),
        cmocka_unit_test(test_drafts_that_are_taken_back),
        cmocka_unit_test(test_random_histories),
        cmocka_unit_test(test_a_saved_ring_of_another_size_is_a_miss),
    };
    return cmocka_run_group_tests(tests, make_model, drop_model);
}
