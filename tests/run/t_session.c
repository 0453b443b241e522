/* Sessions: prefixes kept and re-read, refusals, cancelling, no allocation in a step, allocations that fail.
 */
#include "check.h"

#include "base/mem.h"
#include "run/session.h"

typedef struct world {
    gguf_file *g;
    engine *e;
    session *s;
} world;

static const char *const g_path = "tests/fixtures/llama.q4_k_m.gguf";

static world open_world(uint32_t n_ctx, uint32_t n_ubatch) {
    world w;
    mica_error err;
    CHECK_OK(gguf_open(&w.g, g_path, &err));
    engine_config c = {
        .g = w.g, .dev = DEV_CPU, .isa = cpu_isa_best(), .n_thread = 2, .n_ctx = n_ctx, .n_seq = 1};
    c.n_ubatch = n_ubatch;
    CHECK_OK(engine_open(&w.e, &c, &err));
    CHECK_OK(session_new(&w.s, w.e, 0, &err));
    return w;
}

static void close_world(world *w) {
    session_free(w->s);
    engine_close(w->e);
    gguf_close(w->g);
}

static void ids_fill(int32_t *ids, size_t n, int seed) {
    for (size_t i = 0; i < n; i++) ids[i] = (int32_t)((i * 7919u + (size_t)seed) % 4000);
}

static size_t sync_ok(world *w, const int32_t *ids, size_t n) {
    mica_error err;
    size_t cached;
    CHECK_OK(session_sync(w->s, &(session_sync_args){.ids = ids, .n = n}, &cached, &err));
    CHECK(session_length(w->s) == n && memcmp(session_ids(w->s), ids, n * sizeof *ids) == 0);
    return cached;
}

static void test_sync_keeps_what_is_shared(void **state) {
    (void)state;
    world w = open_world(1024, 64);
    mica_error err;
    int32_t ids[200];
    ids_fill(ids, 200, 1);
    CHECK(sync_ok(&w, ids, 100) == 0);
    CHECK(sync_ok(&w, ids, 100) == 99); // the last is read again for its logits
    CHECK(sync_ok(&w, ids, 150) == 100);
    CHECK(sync_ok(&w, ids, 40) == 39);
    CHECK(sync_ok(&w, ids, 60) == 40);
    ids[30]++;
    CHECK(sync_ok(&w, ids, 60) == 30);
    for (int i = 0; i < 5; i++) CHECK_OK(session_append(w.s, ids[60 + i], &err));
    CHECK(session_length(w.s) == 65);
    CHECK(sync_ok(&w, ids, 70) == 60); // generated rows are read again
    for (int i = 0; i < 5; i++) CHECK_OK(session_append(w.s, ids[70 + i], &err));
    size_t cached;
    session_sync_args a = {.ids = ids, .n = 80, .reuse_generated = true};
    CHECK_OK(session_sync(w.s, &a, &cached, &err));
    CHECK(cached == 75);
    close_world(&w);
}

static void test_logits_do_not_depend_on_history(void **state) {
    (void)state;
    world w = open_world(1024, 512), fresh = open_world(1024, 512);
    mica_error err;
    uint64_t seed = 99;
    int32_t ids[300], other[300];
    ids_fill(ids, 300, 5);
    for (int round = 0; round < 25; round++) {
        size_t n = 1 + test_rand(&seed) % 250, keep = test_rand(&seed) % n;
        memcpy(other, ids, sizeof ids);
        for (size_t i = keep; i < 300; i++) other[i] = (int32_t)(test_rand(&seed) % 4000);
        memcpy(ids, other, sizeof ids);
        sync_ok(&w, ids, n);
        session_clear(fresh.s);
        sync_ok(&fresh, ids, n);
        CHECK(memcmp(session_logits(w.s), session_logits(fresh.s),
                     engine_shape(w.e)->n_vocab * sizeof(float)) == 0);
        for (uint64_t k = test_rand(&seed) % 4; k > 0; k--)
            CHECK_OK(session_append(w.s, (int32_t)(k * 31), &err));
    }
    close_world(&w);
    close_world(&fresh);
}

static void test_refusals_name_the_numbers(void **state) {
    (void)state;
    world w = open_world(64, 512);
    mica_error err;
    int32_t ids[80];
    ids_fill(ids, 80, 1);
    session_sync_args a = {.ids = ids, .n = 80};
    CHECK(session_sync(w.s, &a, NULL, &err) == MICA_E_ARG && strstr(err.text, "80") &&
          strstr(err.text, "64"));
    a.n = 0;
    CHECK(session_sync(w.s, &a, NULL, &err) == MICA_E_ARG && strstr(err.text, "empty"));
    CHECK(session_logits(w.s) == NULL);
    a.n = 10;
    ids[4] = 4096;
    CHECK(session_sync(w.s, &a, NULL, &err) == MICA_E_ARG && strstr(err.text, "4096") &&
          strstr(err.text, "token 4"));
    ids[4] = -1;
    CHECK(session_sync(w.s, &a, NULL, &err) == MICA_E_ARG);
    ids[4] = 3;
    a.n = 64;
    CHECK_OK(session_sync(w.s, &a, NULL, &err));
    CHECK(session_append(w.s, 5, &err) == MICA_E_ARG && strstr(err.text, "64"));
    session *twice[2] = {w.s, w.s};
    a.n = 10;
    CHECK_OK(session_sync(w.s, &a, NULL, &err));
    CHECK(session_append_batch(twice, ids, 2, &err) == MICA_E_ARG);
    CHECK(session_append(w.s, 4096, &err) == MICA_E_ARG);
    close_world(&w);
}

static void stop_halfway(void *user, const char *what, uint64_t done, uint64_t total) {
    CHECK(strcmp(what, "prompt") == 0);
    if (done * 2 >= total) ((mica_cancel_flag *)user)->set = 1;
}

static void test_cancel_leaves_a_whole_prefix(void **state) {
    (void)state;
    world w = open_world(512, 16);
    mica_error err;
    int32_t ids[160];
    mica_cancel_flag flag = {0};
    ids_fill(ids, 160, 3);
    session_sync_args a = {
        .ids = ids, .n = 160, .cancel = &flag, .progress = stop_halfway, .progress_user = &flag};
    CHECK(session_sync(w.s, &a, NULL, &err) == MICA_E_CANCELLED);
    size_t n = session_length(w.s);
    CHECK(n > 0 && n < 160 && n % 16 == 0 && session_logits(w.s) == NULL);
    CHECK(sync_ok(&w, ids, 160) == n);
    close_world(&w);
}

static void test_a_step_allocates_nothing(void **state) {
    (void)state;
    world w = open_world(512, 32);
    mica_error err;
    int32_t ids[100];
    ids_fill(ids, 100, 2);
    sync_ok(&w, ids, 50);
    uint64_t before = mem_count();
    for (int i = 0; i < 10; i++) CHECK_OK(session_append(w.s, i, &err));
    sync_ok(&w, ids, 100);
    CHECK(mem_count() == before);
    close_world(&w);
}

/* Every allocation on the way to a session fails once: a clean status and no leak (the sanitizers watch). */
static void test_failing_allocations(void **state) {
    (void)state;
    mica_error err;
    for (int64_t n = 0;; n++) {
        gguf_file *g = NULL;
        engine *e = NULL;
        session *s = NULL;
        mem_fail_after(n);
        mica_status st = gguf_open(&g, g_path, &err);
        engine_config c = {.g = g,
                           .dev = DEV_CPU,
                           .isa = cpu_isa_best(),
                           .n_thread = 1,
                           .n_ctx = 256,
                           .n_seq = 1,
                           .n_ubatch = 8};
        if (st == MICA_OK) st = engine_open(&e, &c, &err);
        if (st == MICA_OK) st = session_new(&s, e, 0, &err);
        mem_fail_after(-1);
        session_free(s);
        engine_close(e);
        gguf_close(g);
        if (st == MICA_OK) break;
        CHECK(st == MICA_E_NOMEM && err.text[0]);
        CHECK(n < 100000);
    }
}

static void test_what_does_not_fit_is_refused(void **state) {
    (void)state;
    mica_error err;
    gguf_file *g;
    engine *e;
    CHECK_OK(gguf_open(&g, g_path, &err));
    engine_config c = {.g = g,
                       .dev = DEV_CPU,
                       .isa = cpu_isa_best(),
                       .n_thread = 1,
                       .n_ctx = 1u << 24,
                       .n_seq = 1,
                       .n_ubatch = 8};
    c.ram_bytes = 64u << 20;
    CHECK(engine_open(&e, &c, &err) == MICA_E_FIT && !e);
    CHECK(strstr(err.text, "--context") && strstr(err.text, "MiB"));
    c.ram_bytes = 1u << 16;
    CHECK(engine_open(&e, &c, &err) == MICA_E_FIT && strstr(err.text, "no context fits"));
    c.ram_bytes = 0;
    c.n_ctx = 512;
    plan p;
    CHECK_OK(engine_plan(&p, &c, &err));
    CHECK(p.fits && p.n_ctx == 512 && p.item[PLAN_RAM][PLAN_KV].n_bytes == 512 * 6 * 2 * 2 * 64 * 2);
    gguf_close(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sync_keeps_what_is_shared),
        cmocka_unit_test(test_logits_do_not_depend_on_history),
        cmocka_unit_test(test_refusals_name_the_numbers),
        cmocka_unit_test(test_cancel_leaves_a_whole_prefix),
        cmocka_unit_test(test_a_step_allocates_nothing),
        cmocka_unit_test(test_failing_allocations),
        cmocka_unit_test(test_what_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
