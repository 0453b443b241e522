/* Recurrent networks: histories of cuts, forks, windows and reloads end in the bits of a fresh session that
 * read the same tokens in the same roles; drafts never change a token. */
#include "check.h"
#include "temp_dir.h"

#include "mica.h"
#include "mica_tools.h"
#include "run/state_file.h"

#include <math.h>

enum { N_CTX = 512, MAX_TOK = 200 };

static const char *const g_dense = "tests/fixtures/qwen3_5.q4_k_m.gguf",
                         *const g_sparse = "tests/fixtures/qwen3_5_moe.q4_k_m.gguf",
                         *const g_streams = "tests/fixtures/qwen4_exp.q4_k_m.gguf";

typedef struct world {
    gguf_file *g;
    engine *e;
    session *s, *fresh;
} world;

static world open_world(const char *path, kv_type kv) {
    world w;
    mica_error err;
    CHECK_OK(gguf_open(&w.g, path, &err));
    engine_config c = {
        .g = w.g, .dev = DEV_CPU, .isa = cpu_isa_best(), .n_thread = 2, .n_ctx = N_CTX, .n_seq = 2};
    c.n_ubatch = 48;
    c.kv = kv;
    c.draft = true;
    CHECK_OK(engine_open(&w.e, &c, &err));
    CHECK_OK(session_new(&w.s, w.e, 0, &err));
    CHECK_OK(session_new(&w.fresh, w.e, 1, &err));
    return w;
}

static void close_world(world *w) {
    session_free(w->s);
    session_free(w->fresh);
    engine_close(w->e);
    gguf_close(w->g);
}

/* The timeline under test as tokens: the first n_prompt in the prompt role, the rest generated. */
typedef struct timeline {
    int32_t ids[MAX_TOK + 16];
    size_t n_prompt, n;
    uint32_t n_id; // ids are below
} timeline;

static void expect_fresh(world *w, const timeline *t, const char *what) {
    mica_error err;
    session_clear(w->fresh);
    CHECK_OK(session_sync(w->fresh, &(session_sync_args){.ids = t->ids, .n = t->n_prompt}, NULL, &err));
    for (size_t i = t->n_prompt; i < t->n; i++) CHECK_OK(session_append(w->fresh, t->ids[i], &err));
    size_t n_bytes = engine_shape(w->e)->n_vocab * sizeof(float);
    if (memcmp(session_logits(w->s), session_logits(w->fresh), n_bytes) == 0) return;
    print_error("after %s: %zu prompt tokens, %zu in all: logits differ from a fresh session's\n", what,
                t->n_prompt, t->n);
    _fail(__FILE__, __LINE__);
}

static void do_sync(world *w, timeline *t, uint64_t *seed, mica_cancel_flag *cancel, const char **what) {
    mica_error err;
    size_t keep = t->n ? test_rand(seed) % (t->n + 1) : 0, n = keep + 1 + test_rand(seed) % 60;
    if (n > MAX_TOK) n = MAX_TOK;
    if (keep >= n) keep = n - 1;
    for (size_t i = keep; i < n; i++) t->ids[i] = (int32_t)(test_rand(seed) % t->n_id);
    session_sync_args a = {.ids = t->ids, .n = n, .cancel = cancel};
    mica_status st = session_sync(w->s, &a, NULL, &err);
    t->n = t->n_prompt = n;
    *what = "a sync";
    if (!cancel) {
        CHECK(st == MICA_OK);
        return;
    }
    CHECK(st == MICA_E_CANCELLED || st == MICA_OK);
    a.cancel = NULL;
    CHECK_OK(session_sync(w->s, &a, NULL, &err));
    *what = "a cancelled sync and another";
}

static void do_window(world *w, timeline *t, uint64_t *seed) {
    mica_error err;
    uint32_t n = 2 + (uint32_t)(test_rand(seed) % (WINDOW_MAX - 1)),
             keep = 1 + (uint32_t)(test_rand(seed) % n);
    int32_t ids[WINDOW_MAX];
    for (uint32_t i = 0; i < n; i++) ids[i] = (int32_t)(test_rand(seed) % t->n_id);
    CHECK_OK(session_window(w->s, ids, n, &err));
    CHECK_OK(session_accept(w->s, keep, &err));
    memcpy(t->ids + t->n, ids, keep * sizeof *ids);
    t->n += keep;
}

static void do_reload(world *w, const char *path) {
    mica_error err;
    bool found;
    CHECK_OK(session_save(w->s, path, &err));
    session_clear(w->s);
    CHECK_OK(session_load(w->s, path, &found, &err));
    CHECK(found);
}

/* MICA_TEST_HISTORIES=500: so many of each kind, every one compared. */
static void run_histories(const char *path_gguf, kv_type kv, int rounds) {
    const char *more = getenv("MICA_TEST_HISTORIES");
    int every = more ? 1 : 4;
    if (more) rounds = atoi(more);
    world w = open_world(path_gguf, kv);
    mica_error err;
    uint32_t n_vocab = engine_shape(w.e)->n_vocab;
    timeline t = {.n_id = n_vocab < 4000 ? n_vocab : 4000};
    uint64_t seed = 4711;
    char path[64];
    snprintf(path, sizeof path, "build/state-%d.mica", (int)getpid());
    printf("seed %llu\n", (unsigned long long)seed);
    for (int r = 0; r < rounds; r++) {
        const char *what = "";
        mica_cancel_flag stop = {1};
        switch (t.n == 0 || t.n > MAX_TOK - 10 ? 0 : test_rand(&seed) % 6) {
        case 0:
        case 1: do_sync(&w, &t, &seed, NULL, &what); break;
        case 2: do_sync(&w, &t, &seed, &stop, &what); break;
        case 3:
            what = "an append";
            t.ids[t.n] = (int32_t)(test_rand(&seed) % t.n_id);
            CHECK_OK(session_append(w.s, t.ids[t.n++], &err));
            break;
        case 4:
            what = "a window";
            do_window(&w, &t, &seed);
            break;
        default: what = "a reload"; do_reload(&w, path);
        }
        if (r % every == 0 || r + 1 == rounds) expect_fresh(&w, &t, what);
    }
    unlink(path);
    close_world(&w);
}

static void test_histories_dense(void **state) {
    (void)state;
    run_histories(g_dense, KV_F16, 60);
}

static void test_histories_sparse_i8(void **state) {
    (void)state;
    run_histories(g_sparse, KV_I8, 40);
}

/* Random weights, with a draft block: no trained fixture of this family has one. */
static const char *streams_with_drafts(const temp_dir *d) {
    static const char *const set[] = {"mtp=1", "idx_top=32"};
    mica_synth_options o = {.preset = "tiny-flash-next", .quant = "q4_k_m", .set = set, .n_set = 2};
    const char *path = temp_dir_at(d, "streams.gguf");
    mica_error err;
    char *json;
    CHECK_OK(mica_synth(&json, path, &o, &err));
    mica_text_free(json);
    return path;
}

/* Timelines go beyond what attention with an index may look at. */
static void test_histories_streams(void **state) {
    (void)state;
    temp_dir d;
    temp_dir_make(&d);
    run_histories(g_streams, KV_F16, 30);
    run_histories(streams_with_drafts(&d), KV_I8, 30);
    temp_dir_drop(&d);
}

static void test_saved_files_are_checked(void **state) {
    (void)state;
    world w = open_world(g_dense, KV_F16), other = open_world(g_sparse, KV_F16);
    mica_error err;
    bool found = true;
    int32_t ids[30];
    char path[64];
    snprintf(path, sizeof path, "build/state-%d.mica", (int)getpid());
    for (int i = 0; i < 30; i++) ids[i] = i * 37;
    CHECK_OK(session_load(w.s, path, &found, &err));
    CHECK(!found);
    CHECK(session_save(w.s, path, &err) == MICA_E_ARG);
    CHECK_OK(session_sync(w.s, &(session_sync_args){.ids = ids, .n = 30}, NULL, &err));
    CHECK_OK(session_save(w.s, path, &err));
    CHECK_OK(session_load(other.s, path, &found, &err)); // another model: a miss
    CHECK(!found && session_length(other.s) == 0);
    struct stat sb;
    CHECK(stat(path, &sb) == 0 && (sb.st_mode & 077) == 0);
    for (int k = 0; k < 40; k++) { // one byte changed anywhere is found
        off_t at = k < 20 ? (off_t)(k * 4) : (off_t)((uint64_t)k * 2654435761u % (uint64_t)sb.st_size);
        int fd = open(path, O_RDWR);
        unsigned char c, d;
        CHECK(pread(fd, &c, 1, at) == 1);
        d = c ^ 0x41;
        CHECK(pwrite(fd, &d, 1, at) == 1);
        mica_status st = session_load(w.s, path, &found, &err);
        CHECK(st == MICA_E_FORMAT || (st == MICA_OK && !found));
        CHECK(session_length(w.s) == 30);
        CHECK(pwrite(fd, &c, 1, at) == 1);
        close(fd);
    }
    CHECK(truncate(path, sb.st_size - 1) == 0);
    CHECK(session_load(w.s, path, &found, &err) == MICA_E_FORMAT && strstr(err.text, "damaged"));
    CHECK(truncate(path, 10) == 0);
    CHECK(session_load(w.s, path, &found, &err) == MICA_E_FORMAT);
    unlink(path);
    CHECK(session_save(w.s, "build/no-such-folder/x", &err) == MICA_E_IO);
    close_world(&w);
    close_world(&other);
}

/* ---- drafting ---- */

typedef struct text_made {
    int32_t ids[64];
    int n;
} text_made;

static bool collect(void *user, int32_t id) {
    text_made *t = user;
    t->ids[t->n++] = id;
    return true;
}

static void check_drafting(const char *path, float temperature, bool trained) {
    static const int drafts[] = {0, 1, 2, 4, 7};
    mica_error err;
    mica_model *m;
    mica_session *s;
    text_made want = {.n = 0};
    mica_ids prompt;
    const char *text = "<|im_start|>user\nWhat is the capital of "
                       "Norland?<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";
    CHECK_OK(mica_model_load(&m, &(mica_load_options){.path = path, .n_ctx = N_CTX}, &err));
    CHECK_OK(mica_session_new(&s, m, &err));
    CHECK_OK(mica_tokenize(m, text, strlen(text), true, true, &prompt, &err));
    for (size_t k = 0; k < sizeof drafts / sizeof drafts[0]; k++) {
        mica_sampling p = {.temperature = temperature,
                           .top_k = 40,
                           .top_p = 0.95f,
                           .repeat_penalty = 1.1f,
                           .penalty_last_n = 32};
        p.seed = 11;
        mica_generate_options o = {.sampling = &p, .n_predict = 40, .n_draft = drafts[k], .ignore_end = true};
        text_made got = {.n = 0};
        mica_stats st;
        CHECK_OK(mica_generate(s, prompt.ids, prompt.n, &o, collect, &got, NULL, &st, &err));
        CHECK(got.n == 40);
        if (k == 0) want = got;
        CHECK(memcmp(got.ids, want.ids, sizeof want.ids[0] * 40) == 0);
        printf("%s temperature %.1f draft %d: %d of %d accepted in %d windows\n", path, (double)temperature,
               drafts[k], (int)st.n_accepted, (int)st.n_drafted, (int)st.draft_windows);
        CHECK(drafts[k] == 0 ? st.n_drafted == 0 : st.n_drafted > 0);
        CHECK(drafts[k] == 0 || !trained || st.n_accepted * 2 > st.draft_windows);
    }
    mica_ids_free(&prompt);
    mica_session_free(s);
    mica_model_free(m);
}

static void test_drafts_never_change_a_token(void **state) {
    (void)state;
    check_drafting(g_dense, 0.0f, true);
    check_drafting(g_dense, 0.9f, true);
    check_drafting(g_sparse, 0.9f, true);
    temp_dir d;
    temp_dir_make(&d);
    char path[1024];
    snprintf(path, sizeof path, "%s", streams_with_drafts(&d));
    check_drafting(path, 0.0f, false);
    check_drafting(path, 0.9f, false);
    temp_dir_drop(&d);
}

/* ---- the distribution of what is drawn ---- */

enum { TOP_K = 3, N_DRAW = 400 };

/* The TOP_K likeliest ids and their probabilities among them, at temperature 1. */
static void likeliest(const float *logits, uint32_t n_vocab, int32_t ids[TOP_K], double p[TOP_K]) {
    double sum = 0;
    for (int k = 0; k < TOP_K; k++) {
        int32_t best = -1;
        for (uint32_t i = 0; i < n_vocab; i++) {
            bool taken = false;
            for (int j = 0; j < k; j++) taken |= ids[j] == (int32_t)i;
            if (!taken && (best < 0 || logits[i] > logits[best])) best = (int32_t)i;
        }
        ids[k] = best;
        p[k] = exp((double)logits[best] - (double)logits[ids[0]]);
        sum += p[k];
    }
    for (int k = 0; k < TOP_K; k++) p[k] /= sum;
}

static int place_of(const int32_t ids[TOP_K], int32_t id) {
    for (int k = 0; k < TOP_K; k++) {
        if (ids[k] == id) return k;
    }
    return -1;
}

/* Cells that are rarely met count as one. */
static double chi_square(const double *want, const int *got, int n, int *n_cell) {
    double rare = 0, sum = 0;
    int rare_got = 0;
    *n_cell = 0;
    for (int i = 0; i < n; i++) {
        if (want[i] < 5) {
            rare += want[i];
            rare_got += got[i];
            continue;
        }
        sum += (got[i] - want[i]) * (got[i] - want[i]) / want[i];
        ++*n_cell;
    }
    if (rare < 1) return sum;
    ++*n_cell;
    return sum + (rare_got - rare) * (rare_got - rare) / rare;
}

/* Two tokens, the second drafted, for many seeds: pairs are as frequent as the model's own probabilities say.
 */
static void test_drawn_pairs_have_the_models_distribution(void **state) {
    (void)state;
    static const char text[] = "The value of the expression";
    mica_error err;
    mica_model *m;
    mica_session *s;
    mica_ids prompt;
    mica_model_info info;
    int32_t first[TOP_K], second[TOP_K][TOP_K];
    double p[TOP_K], q[TOP_K], want[TOP_K * TOP_K];
    int got[TOP_K * TOP_K] = {0}, n_cell, n_accepted = 0;
    CHECK_OK(mica_model_load(&m, &(mica_load_options){.path = g_dense, .n_ctx = N_CTX}, &err));
    CHECK_OK(mica_session_new(&s, m, &err));
    mica_model_get_info(m, &info);
    CHECK_OK(mica_tokenize(m, text, strlen(text), true, true, &prompt, &err));
    CHECK_OK(mica_session_sync(s, prompt.ids, prompt.n, NULL, NULL, NULL, NULL, &err));
    likeliest(mica_session_logits(s), info.n_vocab, first, p);
    for (int k = 0; k < TOP_K; k++) {
        CHECK_OK(mica_session_sync(s, prompt.ids, prompt.n, NULL, NULL, NULL, NULL, &err));
        CHECK_OK(mica_session_decode(s, first[k], &err));
        likeliest(mica_session_logits(s), info.n_vocab, second[k], q);
        for (int j = 0; j < TOP_K; j++) want[k * TOP_K + j] = N_DRAW * p[k] * q[j];
    }
    for (int i = 0; i < N_DRAW; i++) {
        mica_sampling how = {.temperature = 1.0f, .top_k = TOP_K, .top_p = 1.0f, .repeat_penalty = 1.0f};
        how.seed = (uint64_t)i * 31 + 7;
        mica_generate_options o = {.sampling = &how, .n_predict = 3, .n_draft = 1, .ignore_end = true};
        text_made made = {.n = 0};
        mica_stats st;
        CHECK_OK(mica_generate(s, prompt.ids, prompt.n, &o, collect, &made, NULL, &st, &err));
        int k = place_of(first, made.ids[0]), j = k < 0 ? -1 : place_of(second[k], made.ids[1]);
        CHECK(k >= 0 && j >= 0);
        got[k * TOP_K + j]++;
        n_accepted += (int)st.n_accepted;
    }
    double chi = chi_square(want, got, TOP_K * TOP_K, &n_cell), df = n_cell - 1;
    double root = sqrt(2.0 / (9.0 * df)),
           most = df * pow(1 - 2.0 / (9.0 * df) + 3.72 * root, 3); // 1 in 10,000
    printf("chi-square %.2f of %d pairs, at most %.2f; %d drafts accepted\n", chi, n_cell, most, n_accepted);
    CHECK(n_cell > 2 && n_accepted > N_DRAW / 2 && chi < most);
    mica_ids_free(&prompt);
    mica_session_free(s);
    mica_model_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_histories_dense),
        cmocka_unit_test(test_histories_sparse_i8),
        cmocka_unit_test(test_histories_streams),
        cmocka_unit_test(test_saved_files_are_checked),
        cmocka_unit_test(test_drafts_never_change_a_token),
        cmocka_unit_test(test_drawn_pairs_have_the_models_distribution),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
