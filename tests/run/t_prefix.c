/* The prefix cache: whatever it gives back, from memory or from disk, the logits are those of a session that
 * read everything itself; and what it must give back in the histories of real clients is asserted. */
#include "check.h"
#include "temp_dir.h"

#include "base/log.h"
#include "base/mem.h"
#include "mica_tools.h"

#include <fcntl.h>
#include <unistd.h>

enum { N_CTX = 1024, N_SEQ = 3, LONGEST = 600, N_OLD = 12, N_ROUND = 14 };

static temp_dir g_dir;

/* Random weights, small and fast; the fixtures' trained models read the texts of people further down. */
static int make_models(void **state) {
    (void)state;
    static const char *const preset[] = {"tiny-llama-moe", "tiny-qwen35", "tiny-gemma4", "tiny-gemma4-e"};
    temp_dir_make(&g_dir);
    for (size_t i = 0; i < sizeof preset / sizeof *preset; i++) {
        mica_synth_options o = {.preset = preset[i], .quant = "q8_0", .mtp = i == 1};
        mica_error err;
        char *json, name[64];
        snprintf(name, sizeof name, "%s.gguf", preset[i]);
        CHECK_OK(mica_synth(&json, temp_dir_at(&g_dir, name), &o, &err));
        mica_text_free(json);
    }
    return 0;
}

static int drop_models(void **state) {
    (void)state;
    temp_dir_drop(&g_dir);
    return 0;
}

static mica_model *load(const char *name, uint64_t cache_bytes, const char *dir, mica_kv_type kv) {
    char path[512];
    mica_model *m;
    mica_error err;
    bool tiny = strncmp(name, "tiny-", 5) == 0;
    snprintf(path, sizeof path, "%s/%s.gguf", tiny ? g_dir.path : "tests/fixtures", name);
    mica_load_options o = {.path = path, .n_ctx = N_CTX, .n_seq = N_SEQ, .n_ubatch = 128, .n_thread = 1};
    o.cache_bytes = cache_bytes;
    o.state_dir = dir;
    o.kv = kv;
    CHECK_OK(mica_model_load(&m, &o, &err));
    return m;
}

/* Reads ids in pieces; what was reused is told. */
static mica_reuse read_prompt(mica_session *s, const int32_t *ids, size_t n, uint32_t piece) {
    mica_error err;
    mica_reuse r;
    CHECK_OK(mica_session_begin(s, ids, n, NULL, &r, &err));
    CHECK(r.n_cached == r.n_own + r.n_ram + r.n_disk && r.n_cached + mica_session_pending(s) == n);
    mica_step_item it = {.session = s, .n_prompt = piece};
    while (it.finish == MICA_FINISH_NONE) {
        CHECK_OK(mica_step(&it, 1, &err));
        if (it.status != MICA_OK) print_error("%s\n", it.error.text);
        CHECK(it.status == MICA_OK);
    }
    return r;
}

static void expect_equal(mica_session *got, mica_session *want, uint32_t n_vocab, const char *what) {
    if (memcmp(mica_session_logits(got), mica_session_logits(want), n_vocab * sizeof(float)) == 0) return;
    print_error("%s: %zu tokens: logits differ from those of a session that read all of it\n", what,
                mica_session_length(got));
    _fail(__FILE__, __LINE__);
}

/* ---- random histories ---- */

typedef struct text {
    int32_t ids[LONGEST];
    size_t n;
} text;

/* A beginning of an older text, and something new after it. */
static void new_text(text *t, const text *old, int n_old, uint64_t *seed, uint32_t n_vocab) {
    t->n = 1 + test_rand(seed) % LONGEST;
    size_t keep = 0;
    if (n_old > 0 && test_rand(seed) % 8 != 0) {
        const text *from = &old[test_rand(seed) % (uint64_t)n_old];
        keep = test_rand(seed) % 4 ? from->n : test_rand(seed) % from->n;
        if (keep > t->n) t->n = keep + (test_rand(seed) % 2 ? 0 : test_rand(seed) % (LONGEST - keep + 1));
        memcpy(t->ids, from->ids, keep * sizeof *t->ids);
    }
    for (size_t i = keep; i < t->n; i++) t->ids[i] = (int32_t)(test_rand(seed) % n_vocab);
}

static void random_histories(const char *name, uint64_t cache_bytes, const char *dir, mica_kv_type kv) {
    mica_error err;
    mica_model *m = load(name, cache_bytes, dir, kv), *plain = load(name, 0, NULL, kv);
    mica_session *s[N_SEQ], *fresh;
    mica_model_info info;
    mica_cache_info c;
    static text old[N_OLD], t;
    int n_old = 0;
    uint64_t seed = 31337, from[3] = {0};
    mica_model_get_info(m, &info);
    for (int q = 0; q < N_SEQ; q++) CHECK_OK(mica_session_new(&s[q], m, &err));
    CHECK_OK(mica_session_new(&fresh, plain, &err));
    for (int round = 0; round < N_ROUND; round++) {
        mica_session *x = s[test_rand(&seed) % N_SEQ];
        new_text(&t, old, n_old, &seed, info.n_vocab);
        mica_reuse r = read_prompt(x, t.ids, t.n, 40 + (uint32_t)(test_rand(&seed) % 100));
        from[0] += r.n_own, from[1] += r.n_ram, from[2] += r.n_disk;
        mica_session_erase(fresh);
        read_prompt(fresh, t.ids, t.n, 128);
        expect_equal(x, fresh, info.n_vocab, name);
        for (int k = 0; k < 3 && mica_session_length(x) < N_CTX; k++) { // generated rows stay its own
            int32_t id = (int32_t)(test_rand(&seed) % info.n_vocab);
            CHECK_OK(mica_session_decode(x, id, &err));
            CHECK_OK(mica_session_decode(fresh, id, &err));
        }
        expect_equal(x, fresh, info.n_vocab, name);
        old[n_old < N_OLD ? n_old++ : (int)(test_rand(&seed) % N_OLD)] = t;
        mica_model_cache_info(m, &c);
        CHECK(c.ram_used_bytes <= cache_bytes);
    }
    printf("%s: %llu tokens kept, %llu from memory, %llu from disk\n", name, (unsigned long long)from[0],
           (unsigned long long)from[1], (unsigned long long)from[2]);
    CHECK(from[1] > 0 && (!dir || from[2] > 0));
    for (int q = 0; q < N_SEQ; q++) mica_session_free(s[q]);
    mica_session_free(fresh);
    mica_model_free(m);
    mica_model_free(plain);
}

static void test_histories_of_attention_models(void **state) {
    (void)state;
    random_histories("tiny-llama-moe", 64 << 20, NULL, MICA_KV_F16);
    random_histories("tiny-llama-moe", 640 << 10, NULL, MICA_KV_I8); // room for a few texts only
}

static void test_histories_of_hybrids(void **state) {
    (void)state;
    random_histories("tiny-qwen35", 1280 << 10, NULL, MICA_KV_I8);
}

static void test_histories_of_sliding_windows(void **state) {
    (void)state;
    random_histories("tiny-gemma4", 64 << 20, NULL, MICA_KV_F16);
    random_histories("tiny-gemma4-e", 1 << 20, NULL, MICA_KV_F16);
}

static void test_histories_through_the_disk(void **state) {
    (void)state;
    const char *dir = temp_dir_at(&g_dir, "state"); // all in one folder
    random_histories("tiny-qwen35", 1280 << 10, dir, MICA_KV_F16);
    random_histories("tiny-gemma4", 1 << 20, dir, MICA_KV_F16);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_histories_of_attention_models),
        cmocka_unit_test(test_histories_of_hybrids),
        cmocka_unit_test(test_histories_of_sliding_windows),
        cmocka_unit_test(test_histories_through_the_disk),
    };
    return cmocka_run_group_tests(tests, make_models, drop_models);
}
