/* Steps and beginnings that fail, are cancelled or given up at any place leave nothing behind: every later
 * answer of the same sessions is its lone run's, with and without a prefix cache, drafts, grammars. */
#include "check.h"

#include "base/mem.h"
#include "mica.h"

#include <stdlib.h>

enum { N_SEQ = 3, N_JOB = 24, N_MAKE = 12, N_CTX = 640, PROMPT_MAX = 220, N_ROUND = 200 };

typedef struct job {
    int32_t prompt[PROMPT_MAX];
    size_t n;
    mica_sampling sampling;
    bool grammar;
    int32_t want[N_MAKE];
} job;

typedef struct seat {
    mica_session *s;
    const job *job; // NULL: idle
    mica_grammar *g;
    mica_sampling sampling;
    int32_t n_got;
} seat;

typedef struct hall {
    mica_model *m;
    mica_grammar *g; // at its beginning
    job jobs[N_JOB];
    seat seats[N_SEQ];
    uint64_t seed;
    int n_whole, n_failed, n_given_up;
} hall;

static void load(mica_model **m, const char *name, uint64_t cache_bytes) {
    char path[256];
    mica_error err;
    snprintf(path, sizeof path, "tests/fixtures/%s.q4_k_m.gguf", name);
    CHECK_OK(mica_model_load(m,
                             &(mica_load_options){.path = path,
                                                  .n_ctx = N_CTX,
                                                  .n_seq = N_SEQ,
                                                  .n_ubatch = 64,
                                                  .n_thread = 1,
                                                  .cache_bytes = cache_bytes},
                             &err));
}

/* Texts that share beginnings with earlier ones, of one token and more; some repeat themselves, which is
 * drafted well. */
static void fill_jobs(hall *h, uint32_t n_vocab) {
    for (int j = 0; j < N_JOB; j++) {
        job *b = &h->jobs[j];
        const job *like = &h->jobs[j ? test_rand(&h->seed) % (uint64_t)j : 0];
        *b = (job){.n = test_rand(&h->seed) % 4 ? 1 + test_rand(&h->seed) % (PROMPT_MAX - 1)
                                                : 1 + test_rand(&h->seed) % 3};
        size_t period = 3 + test_rand(&h->seed) % 30, same = j ? test_rand(&h->seed) % (like->n + 1) : 0;
        for (size_t i = 0; i < b->n; i++) {
            const int32_t any = (int32_t)(test_rand(&h->seed) % n_vocab);
            b->prompt[i] = i < same ? like->prompt[i] : i < period ? any : b->prompt[i - period];
        }
        b->sampling = (mica_sampling){.top_k = 40, .top_p = 0.95f, .repeat_penalty = 1.0f};
        b->sampling.seed = test_rand(&h->seed);
        if (j % 2) b->sampling.temperature = 0.7f;
        b->grammar = j % 3 == 2;
    }
}

static void leave(seat *x) {
    mica_grammar_free(x->g);
    x->g = NULL;
    x->job = NULL;
}

/* MICA_OK: the job has begun. */
static mica_status begin(hall *h, seat *x, const job *b, mica_error *err) {
    x->n_got = 0;
    x->sampling = b->sampling;
    if (b->grammar) TRY(mica_grammar_clone(&x->g, h->g, err));
    x->sampling.grammar = x->g;
    TRY(mica_session_begin(x->s, b->prompt, b->n, NULL, NULL, err));
    x->job = b;
    return MICA_OK;
}

static mica_step_item item_of(const seat *x) {
    return (mica_step_item){.session = x->s,
                            .sampling = &x->sampling,
                            .n_prompt = 1000,
                            .n_predict = N_MAKE,
                            .ignore_end = !x->job->grammar};
}

static void run_alone(hall *h) {
    mica_error err;
    seat *x = &h->seats[0];
    for (int j = 0; j < N_JOB; j++) {
        mica_session_erase(x->s);
        CHECK_OK(begin(h, x, &h->jobs[j], &err));
        for (mica_step_item it = item_of(x); it.finish == MICA_FINISH_NONE;) {
            CHECK_OK(mica_step(&it, 1, &err));
            CHECK_OK(it.status);
            memcpy(h->jobs[j].want + x->n_got, it.ids, it.n_id * sizeof *it.ids);
            x->n_got += (int32_t)it.n_id;
        }
        leave(x);
    }
}

/* What a step brought to one seat has to be what the lone run says, also where the step failed later. */
static void take(hall *h, seat *x, const mica_step_item *it, mica_status st) {
    CHECK(x->n_got + (int32_t)it->n_id <= N_MAKE);
    for (uint32_t i = 0; i < it->n_id; i++, x->n_got++) {
        if (it->ids[i] == x->job->want[x->n_got]) continue;
        printf("job %d, token %d: %d instead of %d\n", (int)(x->job - h->jobs), x->n_got, it->ids[i],
               x->job->want[x->n_got]);
        check_failed(__FILE__, __LINE__, "equal to the lone run", "");
    }
    if (st != MICA_OK || it->status != MICA_OK) {
        // Nothing but memory fails here.
        if (it->status != MICA_OK && it->status != MICA_E_NOMEM)
            check_failed(__FILE__, __LINE__, "item", it->error.text);
        h->n_failed++;
        leave(x);
    } else if (it->finish != MICA_FINISH_NONE) {
        h->n_whole += it->finish != MICA_FINISH_CANCELLED;
        leave(x);
    }
}

static void one_round(hall *h) {
    mica_step_item items[N_SEQ];
    seat *at[N_SEQ];
    size_t n = 0;
    mica_error err = {0};
    mica_cancel_flag cancel = {0};
    const bool faulty = test_rand(&h->seed) % 2 == 0;
    if (test_rand(&h->seed) % 20 == 0) cancel.set = 1;
    for (int q = 0; q < N_SEQ; q++) {
        seat *x = &h->seats[q];
        if (x->job && test_rand(&h->seed) % 50 == 0) leave(x), h->n_given_up++;
        if (!x->job) {
            if (faulty) mem_fail_after((int64_t)(test_rand(&h->seed) % 3));
            const mica_status st = begin(h, x, &h->jobs[test_rand(&h->seed) % N_JOB], &err);
            mem_fail_after(-1);
            if (st != MICA_OK) leave(x), h->n_failed++;
        }
        if (!x->job || test_rand(&h->seed) % 5 == 0) continue;
        items[n] = item_of(x);
        items[n].n_prompt = (uint32_t)(test_rand(&h->seed) % 70);
        items[n].n_draft = (int32_t)(test_rand(&h->seed) % 4);
        if (test_rand(&h->seed) % 4 == 0) items[n].cancel = &cancel;
        at[n++] = x;
    }
    if (faulty) mem_fail_after((int64_t)(test_rand(&h->seed) % 3));
    const mica_status st = mica_step(items, n, &err);
    mem_fail_after(-1);
    CHECK_OK(st == MICA_E_NOMEM ? MICA_OK : st);
    for (size_t i = 0; i < n; i++) take(h, at[i], &items[i], st);
}

static void check(const char *name, uint64_t cache_bytes) {
    hall *h = calloc(1, sizeof *h);
    const char *given = getenv("T_SEED");
    mica_error err;
    mica_model_info info;
    h->seed = given ? strtoull(given, NULL, 10) : 20261130;
    printf("%s, cache of %llu, T_SEED=%llu\n", name, (unsigned long long)cache_bytes,
           (unsigned long long)h->seed);
    load(&h->m, name, cache_bytes);
    mica_model_get_info(h->m, &info);
    CHECK_OK(mica_grammar_new_gbnf(&h->g, h->m, "root ::= [a-zA-Z0-9 ,.]*", &err));
    for (int q = 0; q < N_SEQ; q++) CHECK_OK(mica_session_new(&h->seats[q].s, h->m, &err));
    fill_jobs(h, info.n_vocab);
    run_alone(h);
    for (int r = 0; r < N_ROUND; r++) one_round(h);
    printf("%d whole, %d failed, %d given up\n", h->n_whole, h->n_failed, h->n_given_up);
    CHECK(h->n_whole > 10 && h->n_given_up > 5);
    for (int q = 0; q < N_SEQ; q++) {
        leave(&h->seats[q]);
        mica_session_free(h->seats[q].s);
    }
    mica_grammar_free(h->g);
    mica_model_free(h->m);
    free(h);
}

/* An answer whose last window kept drafts, then a text of one token that needs no reading at all: no row of
 * the old answer may count as one of the new. */
static void test_short_text_after_kept_drafts(void **state) {
    (void)state;
    mica_model *m;
    mica_error err;
    mica_session *s;
    mica_reuse reuse;
    mica_sampling greedy = {.repeat_penalty = 1.0f, .top_p = 1.0f};
    int32_t again[40], want[N_MAKE], got[N_MAKE];
    load(&m, "qwen3_5", 8 << 20);
    CHECK_OK(mica_session_new(&s, m, &err));
    for (int i = 0; i < 40; i++) again[i] = 100 + i % 4;
    uint32_t n_kept = 0;
    for (int round = 0; round < 8; round++) {
        const int32_t one = 300 + round / 2;
        int32_t *out = round % 2 ? got : want;
        mica_step_item it = {.session = s, .sampling = &greedy, .n_prompt = 100, .n_predict = N_MAKE};
        it.ignore_end = true;
        CHECK_OK(mica_session_begin(s, &one, 1, NULL, &reuse, &err));
        CHECK(reuse.n_cached == (size_t)(round % 2));
        it.n_draft = round % 2 ? 3 : 0;
        for (int n = 0; it.finish == MICA_FINISH_NONE; n += (int)it.n_id) {
            CHECK_OK(mica_step(&it, 1, &err));
            CHECK_OK(it.status);
            memcpy(out + n, it.ids, it.n_id * sizeof *it.ids);
        }
        if (round % 2) assert_memory_equal(got, want, sizeof got);
        if (round % 2) continue;
        it = (mica_step_item){.session = s, .sampling = &greedy, .n_prompt = 100, .n_draft = 3};
        it.ignore_end = true;
        it.n_predict = 40 + round;
        CHECK_OK(mica_session_begin(s, again, 40, NULL, NULL, &err));
        while (it.finish == MICA_FINISH_NONE) CHECK_OK(mica_step(&it, 1, &err));
        n_kept += it.n_accepted;
    }
    printf("%u drafts kept in last windows\n", n_kept);
    CHECK(n_kept > 2);
    mica_session_free(s);
    mica_model_free(m);
}

static void test_hybrid(void **state) {
    (void)state;
    check("qwen3_5", 0);
    check("qwen3_5", 8 << 20);
}

static void test_sliding_windows(void **state) {
    (void)state;
    check("gemma4", 0);
    check("gemma4", 8 << 20);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_short_text_after_kept_drafts),
        cmocka_unit_test(test_hybrid),
        cmocka_unit_test(test_sliding_windows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
