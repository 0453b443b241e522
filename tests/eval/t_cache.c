/* `mica eval cache` against answers found another way: the best of all decisions by trying them, a table for
 * the simple caches, and what must hold for any record. */
#include "check.h"

#include "mica_tools.h"
#include "store/trace.h"
#include "temp_dir.h"

#include <jansson.h>

static temp_dir dir;

static int set_up(void **state) {
    (void)state;
    temp_dir_make(&dir);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    temp_dir_drop(&dir);
    return 0;
}

/* One layer, one expert a token. */
static const char *record(const int32_t *ids, uint32_t n, uint32_t n_expert) {
    static const uint64_t blob_bytes = 9;
    const trace_head head = {.n_layer = 1, .n_expert = n_expert, .n_used = 1};
    const char *path = temp_dir_at(&dir, "t.trace");
    mica_error err;
    trace *t;
    CHECK_OK(trace_create(&t, path, &head, &blob_bytes, &err));
    for (uint32_t i = 0; i < n; i++) trace_add(t, 0, &ids[i], 1);
    trace_close(t);
    return path;
}

/* Of the first capacity: hits over uses of the tokens that count. */
static double rate(const char *path, uint32_t percent, const char *who) {
    mica_error err;
    char *text;
    CHECK_OK(mica_eval_cache(&text, path, &percent, 1, &err));
    json_t *v = json_loads(text, 0, NULL), *one = json_array_get(json_object_get(v, "capacity"), 0);
    double r = json_number_value(json_object_get(json_object_get(one, who), "hit_rate"));
    json_decref(v);
    mica_text_free(text);
    return r;
}

enum { EXPERTS = 5, TOKENS = 540, WARM_UP = 500 };

static void after_miss(int *next, int s, int bit, int n_slot, int h) {
    if (__builtin_popcount((unsigned)s) < n_slot && h > next[s | bit]) next[s | bit] = h;
    for (int e = 0; e < EXPERTS; e++)
        if ((s >> e & 1) && h > next[(s & ~(1 << e)) | bit]) next[(s & ~(1 << e)) | bit] = h;
}

/* The most hits after the warm-up when after every miss anybody may leave, or nobody: over all sets of
 * residents. */
static int best_hits(const int32_t *ids, int n, int n_slot) {
    int hits[1 << EXPERTS], next[1 << EXPERTS], best = 0;
    for (int s = 0; s < 1 << EXPERTS; s++) hits[s] = s ? -1000000 : 0;
    for (int i = 0; i < n; i++) {
        for (int s = 0; s < 1 << EXPERTS; s++) next[s] = -1000000;
        for (int s = 0; s < 1 << EXPERTS; s++) {
            int bit = 1 << ids[i], h = hits[s] + ((s & bit) && i >= WARM_UP);
            if (h > next[s]) next[s] = h;
            if (!(s & bit)) after_miss(next, s, bit, n_slot, h);
        }
        memcpy(hits, next, sizeof hits);
    }
    for (int s = 0; s < 1 << EXPERTS; s++)
        if (hits[s] > best) best = hits[s];
    return best;
}

static void test_nothing_beats_the_bound(void **state) {
    (void)state;
    uint64_t seed = 4;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int round = 0; round < 40; round++) {
        int32_t ids[TOKENS];
        int n_slot = 1 + round % 4;
        for (int i = 0; i < TOKENS; i++) ids[i] = (int32_t)(test_rand(&seed) % (2 + test_rand(&seed) % 4));
        const char *path = record(ids, TOKENS, EXPERTS);
        double bound = rate(path, (uint32_t)(20 * n_slot), "belady");
        // The bound is over the whole run, the best is of the counted part alone: it may be ahead by what the
        // slots hold.
        double best = (double)best_hits(ids, TOKENS, n_slot) / (TOKENS - WARM_UP);
        CHECK(bound <= best + 1e-9 && bound >= best - (double)n_slot / (TOKENS - WARM_UP) - 1e-9);
        CHECK(rate(path, (uint32_t)(20 * n_slot), "policy") <= best + 1e-9);
        CHECK(rate(path, (uint32_t)(20 * n_slot), "lru") <= best + 1e-9);
        CHECK(rate(path, (uint32_t)(20 * n_slot), "lfu") <= best + 1e-9);
    }
}

/* Going round in a circle that is one too long: the oldest is always the next. */
static void test_simple_caches(void **state) {
    (void)state;
    int32_t ids[800];
    for (int i = 0; i < 800; i++) ids[i] = i % 3;
    const char *path = record(ids, 800, 5);
    CHECK(rate(path, 40, "lru") == 0 && rate(path, 60, "lru") == 1);
    CHECK(rate(path, 40, "belady") > 0.66 && rate(path, 60, "belady") == 1);
    for (int i = 0; i < 800; i++) ids[i] = i % 4 == 3 ? 1 + i / 4 % 4 : 0; // 0 three times of four
    path = record(ids, 800, 5);
    CHECK(rate(path, 20, "lfu") > 0.49 && rate(path, 20, "lfu") <= 0.75);
    CHECK(rate(path, 20, "policy") > 0.74 && rate(path, 20, "learned") > 0.74);
}

static void test_arguments(void **state) {
    (void)state;
    const int32_t ids[2] = {0, 1};
    const uint32_t none = 0, much = 101;
    mica_error err;
    char *text;
    const char *path = record(ids, 2, 5);
    CHECK(mica_eval_cache(&text, path, &none, 1, &err) == MICA_E_ARG && text == NULL);
    CHECK(mica_eval_cache(&text, path, &much, 1, &err) == MICA_E_ARG);
    CHECK(mica_eval_cache(&text, temp_dir_at(&dir, "none"), &much, 1, &err) == MICA_E_IO);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_beats_the_bound),
        cmocka_unit_test(test_simple_caches),
        cmocka_unit_test(test_arguments),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
