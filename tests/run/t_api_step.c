/* Steps of many sessions: whatever stands beside an answer, however its prompt is cut and whatever drafts are
 * tried, its tokens and log-probabilities are those of the session alone; one item's end or failure is its
 * own. */
#include "check.h"
#include "temp_dir.h"

#include "base/mem.h"
#include "mica.h"

#include <math.h>

enum { N_SEQ = 4, N_JOB = 9, N_MAKE = 16, N_CTX = 512, N_TOP = 3, PROMPT_MAX = 80 };

typedef struct job {
    int32_t prompt[PROMPT_MAX];
    size_t n;
    mica_sampling sampling;
    int32_t n_predict, want[N_MAKE], got[N_MAKE];
    mica_logprob want_top[N_MAKE][1 + N_TOP], got_top[N_MAKE][1 + N_TOP];
    int32_t n_want, n_got;
    mica_finish want_finish, got_finish;
} job;

static mica_model *load(const char *name, uint32_t n_seq) {
    char path[256];
    mica_model *m;
    mica_error err;
    snprintf(path, sizeof path, "tests/fixtures/%s.gguf", name);
    mica_load_options o = {.path = path, .n_ctx = N_CTX, .n_seq = n_seq, .n_ubatch = 96, .n_thread = 1};
    CHECK_OK(mica_model_load(&m, &o, &err));
    return m;
}

static void fill_jobs(job *jobs, uint64_t *seed, uint32_t n_vocab) {
    for (int j = 0; j < N_JOB; j++) {
        job *b = &jobs[j];
        *b = (job){.n = 1 + test_rand(seed) % (PROMPT_MAX - 1)};
        size_t period = 3 + test_rand(seed) % 20; // text that repeats is drafted well
        for (size_t i = 0; i < b->n; i++)
            b->prompt[i] = i < period ? (int32_t)(test_rand(seed) % n_vocab) : b->prompt[i - period];
        b->n_predict = 1 + (int32_t)(test_rand(seed) % N_MAKE);
        b->sampling =
            (mica_sampling){.top_k = 40, .top_p = 0.95f, .repeat_penalty = 1.0f, .seed = test_rand(seed)};
        if (j % 2) b->sampling.temperature = 0.7f;
        if (j % 3 == 2) b->sampling.presence_penalty = 0.3f, b->sampling.penalty_last_n = 20;
    }
}

static mica_step_item item_of(mica_session *s, const job *b, mica_logprob *top) {
    return (mica_step_item){.session = s,
                            .sampling = &b->sampling,
                            .n_prompt = 1000,
                            .n_predict = b->n_predict,
                            .ignore_end = true,
                            .top = top,
                            .n_top = N_TOP};
}

static void put(mica_logprob (*out)[1 + N_TOP], int32_t *ids, int32_t *n, const mica_step_item *it) {
    for (uint32_t i = 0; i < it->n_id; i++, ++*n) {
        ids[*n] = it->ids[i];
        memcpy(out[*n], it->top + i * (1 + N_TOP), sizeof out[*n]);
    }
}

/* Each job alone in a model with one sequence, no drafts. */
static void run_alone(mica_model *m, job *jobs) {
    mica_error err;
    mica_session *s;
    mica_logprob top[MICA_STEP_TOKENS * (1 + N_TOP)];
    CHECK_OK(mica_session_new(&s, m, &err));
    for (int j = 0; j < N_JOB; j++) {
        job *b = &jobs[j];
        mica_session_erase(s);
        CHECK_OK(mica_session_begin(s, b->prompt, b->n, NULL, NULL, &err));
        for (mica_step_item it = item_of(s, b, top); it.finish == MICA_FINISH_NONE;) {
            CHECK_OK(mica_step(&it, 1, &err));
            CHECK(it.status == MICA_OK && it.n_drafted == 0);
            put(b->want_top, b->want, &b->n_want, &it);
            b->want_finish = it.finish;
        }
        CHECK(b->n_want == b->n_predict && b->want_finish == MICA_FINISH_LENGTH);
    }
    mica_session_free(s);
}

typedef struct crowd {
    mica_session *s[N_SEQ];
    job *job[N_SEQ]; // NULL: idle
    mica_logprob top[N_SEQ][MICA_STEP_TOKENS * (1 + N_TOP)];
    int started, ended;
    uint64_t n_drafted, n_accepted;
} crowd;

static void start_job(crowd *c, int q, job *jobs) {
    mica_error err;
    mica_reuse reuse;
    c->job[q] = &jobs[c->started++];
    CHECK_OK(mica_session_begin(c->s[q], c->job[q]->prompt, c->job[q]->n, NULL, &reuse, &err));
    CHECK(mica_session_pending(c->s[q]) + reuse.n_cached == c->job[q]->n);
}

/* One step of those that have a job, now and then without one of them, with random pieces and drafts. */
static void step_crowd(crowd *c, uint64_t *seed) {
    mica_step_item items[N_SEQ];
    int at[N_SEQ];
    size_t n = 0;
    mica_error err;
    for (int q = 0; q < N_SEQ; q++) {
        if (!c->job[q] || test_rand(seed) % 8 == 0) continue;
        items[n] = item_of(c->s[q], c->job[q], c->top[q]);
        items[n].n_prompt = (uint32_t)(test_rand(seed) % 60);
        items[n].n_draft = (int32_t)(test_rand(seed) % 8);
        at[n++] = q;
    }
    CHECK_OK(mica_step(items, n, &err));
    for (size_t i = 0; i < n; i++) {
        job *b = c->job[at[i]];
        CHECK(items[i].status == MICA_OK && items[i].n_read <= items[i].n_prompt);
        CHECK(b->n_got + (int32_t)items[i].n_id <= b->n_predict);
        put(b->got_top, b->got, &b->n_got, &items[i]);
        c->n_drafted += items[i].n_drafted;
        c->n_accepted += items[i].n_accepted;
        if (items[i].finish == MICA_FINISH_NONE) continue;
        b->got_finish = items[i].finish;
        c->job[at[i]] = NULL;
        c->ended++;
    }
}

static void check_family(const char *name, bool has_draft) {
    static job jobs[N_JOB];
    uint64_t seed = 20261130;
    mica_error err;
    mica_model *m = load(name, 1);
    mica_model_info info;
    mica_model_get_info(m, &info);
    fill_jobs(jobs, &seed, info.n_vocab);
    run_alone(m, jobs);
    mica_model_free(m);
    m = load(name, N_SEQ);
    crowd c = {.started = 0};
    for (int q = 0; q < N_SEQ; q++) CHECK_OK(mica_session_new(&c.s[q], m, &err));
    uint64_t before = mem_count();
    while (c.ended < N_JOB) {
        for (int q = 0; q < N_SEQ; q++) {
            if (!c.job[q] && c.started < N_JOB) start_job(&c, q, jobs);
        }
        step_crowd(&c, &seed);
    }
    CHECK(mem_count() == before);
    for (int j = 0; j < N_JOB; j++) {
        job *b = &jobs[j];
        bool same = b->n_got == b->n_want && b->got_finish == b->want_finish &&
                    memcmp(b->got, b->want, (size_t)b->n_want * sizeof *b->got) == 0 &&
                    memcmp(b->got_top, b->want_top, (size_t)b->n_want * sizeof *b->got_top) == 0;
        if (!same)
            print_error("%s: job %d of %zu prompt tokens: not the tokens it makes alone\n", name, j, b->n);
        CHECK(same);
    }
    printf("%s: %d answers, %llu of %llu drafts accepted\n", name, N_JOB, (unsigned long long)c.n_accepted,
           (unsigned long long)c.n_drafted);
    CHECK(!has_draft || c.n_drafted > 0);
    for (int q = 0; q < N_SEQ; q++) mica_session_free(c.s[q]);
    mica_model_free(m);
}

static void test_crowds_of_attention_models(void **state) {
    (void)state;
    check_family("llama.q4_k_m", false);
    check_family("qwen3_moe.q4_k_m", false);
}

static void test_crowds_of_hybrids(void **state) {
    (void)state;
    check_family("qwen3_5.q4_k_m", true);
    check_family("qwen3_5_moe.q4_k_m", true);
}

static void test_crowds_of_sliding_windows(void **state) {
    (void)state;
    check_family("gemma4.q4_k_m", false);
    check_family("tiny_gemma3.f32", false);
}

/* ---- ends and failures ---- */

static mica_sampling greedy(void) {
    return (mica_sampling){.repeat_penalty = 1.0f, .top_p = 1.0f};
}

static void begin_ok(mica_session *s, size_t n) {
    int32_t ids[N_CTX];
    mica_error err;
    for (size_t i = 0; i < n; i++) ids[i] = (int32_t)(i * 31 % 4000);
    CHECK_OK(mica_session_begin(s, ids, n, NULL, NULL, &err));
}

static void test_one_end_is_not_the_others(void **state) {
    (void)state;
    mica_error err;
    mica_model *m = load("llama.q4_k_m", 3);
    mica_session *s[3];
    mica_sampling p = greedy(), bad = p;
    mica_cancel_flag flag = {0};
    bad.temperature = -1.0f;
    for (int q = 0; q < 3; q++) CHECK_OK(mica_session_new(&s[q], m, &err));
    begin_ok(s[0], N_CTX - 1);
    begin_ok(s[1], 20);
    begin_ok(s[2], 20);
    mica_step_item it[3];
    for (int q = 0; q < 3; q++)
        it[q] = (mica_step_item){
            .session = s[q], .sampling = &p, .n_prompt = 1000, .n_predict = -1, .ignore_end = true};
    it[0].n_prompt = 70;
    it[1].cancel = &flag;
    it[2].sampling = &bad;
    CHECK_OK(mica_step(it, 3, &err));
    CHECK(it[2].status == MICA_E_ARG && strstr(it[2].error.text, "temperature") && it[2].n_read == 0);
    CHECK(it[1].status == MICA_OK && it[1].n_read == 20 && it[1].n_id == 1);
    CHECK(it[0].n_read == 70);
    it[0].n_prompt = 1000;
    CHECK_OK(mica_step(it, 2, &err));
    CHECK(it[0].n_read == 96 - 1 && it[1].n_id == 1); // what the batch has room for
    while (it[0].n_id == 0) CHECK_OK(mica_step(it, 2, &err));
    mica_cancel(&flag);
    CHECK_OK(mica_step(it, 2, &err));
    CHECK(it[1].finish == MICA_FINISH_CANCELLED && it[1].status == MICA_OK && it[1].n_id == 0);
    CHECK(it[0].finish == MICA_FINISH_LENGTH && mica_session_length(s[0]) == N_CTX); // the context is full
    CHECK_OK(mica_step(it, 1, &err));
    CHECK(it[0].finish == MICA_FINISH_LENGTH && it[0].n_id == 0); // an end stays one
    begin_ok(s[1], 30);                                           // a cancelled session begins again at once
    it[1].cancel = NULL;
    CHECK_OK(mica_step(&it[1], 1, &err));
    CHECK(it[1].n_read == 10 && it[1].n_id == 1);
    for (int q = 0; q < 3; q++) mica_session_free(s[q]);
    mica_model_free(m);
}

static void test_refusals(void **state) {
    (void)state;
    mica_error err;
    mica_model *m = load("llama.q4_k_m", 2);
    mica_session *s[2];
    mica_sampling p = greedy();
    for (int q = 0; q < 2; q++) CHECK_OK(mica_session_new(&s[q], m, &err));
    mica_step_item it[3] = {{.session = s[0], .sampling = &p, .n_predict = -1},
                            {.session = s[0], .sampling = &p, .n_predict = -1},
                            {.session = s[1], .sampling = &p, .n_predict = -1}};
    CHECK_OK(mica_step(it, 0, &err));
    CHECK(mica_step(it, 2, &err) == MICA_E_ARG && strstr(err.text, "item 1"));
    CHECK(mica_step(it, 3, &err) == MICA_E_ARG && strstr(err.text, "2 sequences"));
    CHECK_OK(mica_step(it, 1, &err));
    CHECK(it[0].status == MICA_E_ARG && strstr(it[0].error.text, "begin"));
    CHECK(mica_session_begin(s[0], NULL, 0, NULL, NULL, &err) == MICA_E_ARG);
    begin_ok(s[0], 5);
    CHECK_OK(mica_step(it, 1, &err)); // n_prompt 0: it waits
    CHECK(it[0].status == MICA_OK && it[0].n_read == 0 && mica_session_pending(s[0]) == 5);
    it[0].n_top = MICA_TOP_MAX + 1;
    CHECK_OK(mica_step(it, 1, &err));
    CHECK(it[0].status == MICA_E_ARG && strstr(it[0].error.text, "logprobs"));
    it[0].n_top = 0;
    it[0].n_prompt = 10;
    it[0].n_predict = 0; // the prompt alone
    begin_ok(s[0], 5);
    CHECK_OK(mica_step(it, 1, &err));
    CHECK(it[0].finish == MICA_FINISH_LENGTH && it[0].n_id == 0 && it[0].n_read == 5);
    CHECK(mica_session_logits(s[0]) != NULL);
    for (int q = 0; q < 2; q++) mica_session_free(s[q]);
    mica_model_free(m);
}

/* Thousands of requests that are given up at every stage leave nothing behind. */
static void test_requests_given_up(void **state) {
    (void)state;
    mica_error err;
    mica_model *m = load("qwen3_moe.q4_k_m", 2);
    mica_session *s;
    mica_sampling p = greedy();
    uint64_t seed = 5, before = 0;
    CHECK_OK(mica_session_new(&s, m, &err));
    for (int i = 0; i < 1000; i++) {
        if (i == 10) before = mem_count();
        begin_ok(s, 1 + test_rand(&seed) % 8);
        mica_step_item it = {
            .session = s, .sampling = &p, .n_prompt = 4, .n_predict = -1, .ignore_end = true};
        for (uint64_t k = test_rand(&seed) % 4; k > 0; k--) CHECK_OK(mica_step(&it, 1, &err));
    }
    CHECK(mem_count() == before);
    mica_session_free(s);
    mica_model_free(m);
}

/* ---- grammars ---- */

static const char g_gbnf[] =
    "root ::= \"The \" (\"capital\" | \"river\" | [a-z]+) \" of \" [A-Z] [a-z]+ \".\" \"\\n\" root | "
    "\"end\"";

/* The text of an answer held to the grammar, beside n_beside free ones, with and without drafts. */
static void held_text(char *out, size_t n_out, int n_draft, int n_beside) {
    mica_error err;
    mica_model *m = load("qwen3_5.q4_k_m", 3);
    mica_grammar *g;
    mica_sampling p[3];
    mica_session *s[3];
    mica_step_item it[3];
    mica_ids prompt, answer = {.ids = (int32_t[64]){0}};
    const char *text = "The capital of Norland is";
    CHECK_OK(mica_grammar_new_gbnf(&g, m, g_gbnf, &err));
    CHECK_OK(mica_tokenize(m, text, strlen(text), false, true, &prompt, &err));
    for (int q = 0; q <= n_beside; q++) {
        CHECK_OK(mica_session_new(&s[q], m, &err));
        CHECK_OK(mica_session_begin(s[q], prompt.ids, prompt.n, NULL, NULL, &err));
        p[q] = (mica_sampling){
            .temperature = 0.8f, .top_k = 40, .top_p = 1.0f, .repeat_penalty = 1.0f, .seed = 3};
        if (q == 0) p[q].grammar = g;
        it[q] = (mica_step_item){
            .session = s[q], .sampling = &p[q], .n_prompt = 50, .n_predict = 40, .n_draft = n_draft};
    }
    while (it[0].finish == MICA_FINISH_NONE) {
        CHECK_OK(mica_step(it, 1 + (size_t)n_beside, &err));
        if (it[0].status != MICA_OK) print_error("%s\n", it[0].error.text);
        CHECK(it[0].status == MICA_OK);
        for (uint32_t i = 0; i < it[0].n_id; i++) answer.ids[answer.n++] = it[0].ids[i];
    }
    char *all;
    CHECK_OK(mica_detokenize(m, answer.ids, answer.n, false, &all, &err));
    snprintf(out, n_out, "%s", all);
    mica_text_free(all);
    for (int q = 0; q <= n_beside; q++) mica_session_free(s[q]);
    mica_ids_free(&prompt);
    mica_grammar_free(g);
    mica_model_free(m);
}

static void test_answers_held_to_a_grammar(void **state) {
    (void)state;
    char alone[512], drafted[512], beside[512];
    held_text(alone, sizeof alone, 0, 0);
    held_text(drafted, sizeof drafted, 5, 0);
    held_text(beside, sizeof beside, 5, 2);
    printf("%s\n", alone);
    CHECK(strncmp(alone, "The ", 4) == 0 || strcmp(alone, "end") == 0);
    CHECK(strcmp(alone, drafted) == 0 && strcmp(alone, beside) == 0);
}

/* An answer whose n-th allocation and all later ones fail. true: it came to its end nevertheless. However it
 * ends, the grammar stands behind just what was given out. */
static bool held_without_memory(mica_model *m, mica_session *s, const mica_ids *prompt, int64_t n) {
    mica_error err;
    mica_model_info info;
    mica_grammar *g, *fresh;
    uint8_t stands[1024], should[1024];
    int32_t got[120];
    size_t n_got = 0;
    static const char nested[] =
        "root ::= [a-h] b [A-Z] | \"!\"\nb ::= [i-p] c [0-9]\nc ::= [q-z] root \".\"";
    mica_status st = MICA_OK;
    mica_model_get_info(m, &info);
    CHECK(info.n_vocab <= 8 * sizeof stands);
    CHECK_OK(mica_grammar_new_gbnf(&g, m, nested, &err));
    CHECK_OK(mica_grammar_new_gbnf(&fresh, m, nested, &err));
    CHECK_OK(mica_session_begin(s, prompt->ids, prompt->n, NULL, NULL, &err));
    mica_sampling p = {.top_p = 1.0f, .repeat_penalty = 1.0f, .grammar = g};
    mica_step_item it = {
        .session = s, .sampling = &p, .n_prompt = 50, .n_predict = 100, .n_draft = 3, .ignore_end = true};
    mem_fail_after(n);
    while (st == MICA_OK && it.status == MICA_OK && it.finish == MICA_FINISH_NONE) {
        st = mica_step(&it, 1, &err);
        for (uint32_t i = 0; i < it.n_id; i++) got[n_got++] = it.ids[i];
    }
    mem_fail_after(-1);
    if (st == MICA_OK) st = it.status;
    if (st != MICA_OK && st != MICA_E_NOMEM) check_failed(__FILE__, __LINE__, err.text, it.error.text);
    for (size_t i = 0; i < n_got; i++) CHECK_OK(mica_grammar_accept(fresh, got[i], &err));
    CHECK_OK(mica_grammar_mask(g, stands, &err));
    CHECK_OK(mica_grammar_mask(fresh, should, &err));
    CHECK(memcmp(stands, should, info.n_vocab / 8) == 0);
    mica_grammar_free(g);
    mica_grammar_free(fresh);
    return st == MICA_OK;
}

static void test_grammars_that_cannot_go_on(void **state) {
    (void)state;
    mica_error err;
    mica_model *m = load("llama.q4_k_m", 1);
    mica_session *s;
    mica_ids prompt;
    int64_t n = 0;
    CHECK_OK(mica_tokenize(m, "The capital", 11, false, true, &prompt, &err));
    CHECK_OK(mica_session_new(&s, m, &err));
    while (!held_without_memory(m, s, &prompt, n)) n++;
    CHECK(n > 0);
    mica_session_free(s);
    mica_ids_free(&prompt);
    mica_model_free(m);
}

static void test_sessions_by_name(void **state) {
    (void)state;
    static const char *const bad[] = {"", ".", "..", "a/b", ".x", "a b", "\xc3\xa4"};
    mica_error err;
    temp_dir dir;
    temp_dir_make(&dir);
    mica_load_options o = {.path = "tests/fixtures/llama.q4_k_m.gguf", .n_ctx = N_CTX, .n_thread = 1};
    mica_model *m;
    mica_session *s;
    size_t n_token = 9;
    uint64_t n_bytes = 9;
    CHECK_OK(mica_model_load(&m, &o, &err));
    CHECK_OK(mica_session_new(&s, m, &err));
    begin_ok(s, 5);
    CHECK(mica_session_save(s, "x", NULL, NULL, &err) == MICA_E_ARG && strstr(err.text, "--state-dir"));
    mica_session_free(s);
    mica_model_free(m);
    o.state_dir = temp_dir_at(&dir, "state");
    CHECK_OK(mica_model_load(&m, &o, &err));
    CHECK_OK(mica_session_new(&s, m, &err));
    CHECK(mica_session_save(s, "empty", &n_token, &n_bytes, &err) == MICA_E_ARG && n_token == 0);
    CHECK(mica_session_restore(s, "empty", &n_token, &n_bytes, &err) == MICA_E_ARG &&
          strstr(err.text, "empty"));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK(mica_session_save(s, bad[i], NULL, NULL, &err) == MICA_E_ARG && strstr(err.text, "name"));
    begin_ok(s, 40);
    mica_step_item it = {.session = s, .n_prompt = 40};
    CHECK_OK(mica_step(&it, 1, &err));
    CHECK_OK(mica_session_save(s, "one-1", &n_token, &n_bytes, &err));
    CHECK(n_token == 40 && n_bytes > 40 * 4);
    mica_session_erase(s);
    CHECK(mica_session_length(s) == 0);
    CHECK_OK(mica_session_restore(s, "one-1", &n_token, NULL, &err));
    CHECK(n_token == 40 && mica_session_length(s) == 40);
    begin_ok(s, 60);
    CHECK(mica_session_pending(s) == 20);
    mica_session_free(s);
    mica_model_free(m);
    temp_dir_drop(&dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_crowds_of_attention_models),
        cmocka_unit_test(test_crowds_of_hybrids),
        cmocka_unit_test(test_crowds_of_sliding_windows),
        cmocka_unit_test(test_one_end_is_not_the_others),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_requests_given_up),
        cmocka_unit_test(test_answers_held_to_a_grammar),
        cmocka_unit_test(test_grammars_that_cannot_go_on),
        cmocka_unit_test(test_sessions_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
