/* mica_tune: threads, the size of a prompt's chunk and the number of drafted tokens, each measured on the
 * model itself and kept for the next start (tuned.h).
 *
 * One after the other, each with the best of those before it: all pairs would take the product of the times
 * for little, since the three hardly touch each other. A value beats the default only when it is faster by
 * more than measurements differ from themselves, so that a second run does not choose another one by chance.
 */
#include "mica_tools.h"

#include "base/clock.h"
#include "base/cpu.h"
#include "base/mem.h"
#include "eval/bench.h"
#include "eval/report.h"
#include "eval/tuned.h"

#include <math.h>
#include <string.h>

enum {
    REPEATS = 3,
    PROMPT_MAX = 1024, // tokens of the prompts that are timed, at most
    PROMPT_MIN = 256,  // below that there are no chunks to choose between
    PROMPT_MS = 4000,  // a single one takes no longer than about this
    DECODE_MS = 700,   // the same for generated tokens
    DECODE_MAX = 64,
    ROOM = 64, // in the context, for what is generated
    UBATCH_DEFAULT = 512,
    DRAFT_TOKENS = 32,
    CTX_MIN = 256, // holds what is timed at any length: 128 tokens, and an answer
    CANDIDATE_MAX = 8
};
static const double MARGIN = 1.03; // how much faster than the default a value must be

typedef struct tuner {
    const mica_load_options *opt;
    mica_load_options lo; // what is tried
    tuned_key key;
    json_t *measured; // owned
    uint32_t n_done, n_all;
} tuner;

typedef struct tried {
    uint32_t value;
    double score;
} tried;

/* ---- Candidates ---- */

static size_t add_candidate(uint32_t *list, size_t n, int value) {
    if (value < 1 || n == CANDIDATE_MAX) return n;
    for (size_t i = 0; i < n; i++)
        if (list[i] == (uint32_t)value) return n;
    list[n] = (uint32_t)value;
    return n + 1;
}

/* The default first; then fewer, for memory that some cores already fill, and more, for cores that wait. */
static size_t thread_candidates(uint32_t list[CANDIDATE_MAX]) {
    cpu_topology topo;
    cpu_topology_get(&topo);
    const int d = topo.n_default;
    size_t n = add_candidate(list, 0, d);
    n = add_candidate(list, n, d / 2);
    n = add_candidate(list, n, d * 3 / 4);
    n = add_candidate(list, n, d - 1);
    n = add_candidate(list, n, topo.n_physical);
    return add_candidate(list, n, topo.n_logical);
}

static size_t ubatch_candidates(uint32_t list[CANDIDATE_MAX], uint32_t n_prompt) {
    size_t n = add_candidate(list, 0, UBATCH_DEFAULT);
    for (int v = 64; v <= PROMPT_MAX && (uint32_t)v <= n_prompt; v *= 2) n = add_candidate(list, n, v);
    return n;
}

/* The best; the first one (the default) unless another is clearly better. */
static uint32_t choose(const tried *list, size_t n) {
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (list[i].score > list[best].score * (best == 0 ? MARGIN : 1.0)) best = i;
    return list[best].value;
}

/* ---- Measuring ---- */

static mica_status check_cancel(const tuner *t, mica_error *err) {
    if (!t->opt->cancel || !t->opt->cancel->set) return MICA_OK;
    return fail(err, MICA_E_CANCELLED, "tune: cancelled");
}

static void step_done(tuner *t) {
    t->n_done++;
    if (t->opt->progress) t->opt->progress(t->opt->progress_user, "tune", t->n_done, t->n_all);
}

static mica_status note(tuner *t, const char *what, uint32_t value, double prompt, double decode,
                        mica_error *err) {
    json_t *v = json_pack("{s:s, s:I, s:o, s:o}", "what", what, "value", (json_int_t)value, "prompt_tps",
                          prompt > 0 ? report_real(prompt) : json_null(), "decode_tps",
                          decode > 0 ? report_real(decode) : json_null());
    if (!v || json_array_append_new(t->measured, v) != 0)
        return fail(err, MICA_E_NOMEM, "tune: out of memory");
    step_done(t);
    return MICA_OK;
}

typedef struct loaded {
    mica_model *m;
    mica_session *s;
    bench_rig rig;
} loaded;

static void unload(loaded *x) {
    mem_free(x->rig.ids);
    mica_session_free(x->s);
    mica_model_free(x->m);
    *x = (loaded){0};
}

static mica_status load(loaded *x, const tuner *t, mica_error *err) {
    *x = (loaded){0};
    TRY(check_cancel(t, err));
    mica_status st = mica_model_load(&x->m, &t->lo, err);
    if (st == MICA_OK) st = mica_session_new(&x->s, x->m, err);
    if (st == MICA_OK) {
        x->rig =
            (bench_rig){.s = x->s, .ids = mem_alloc(x->m->info.n_ctx * sizeof(int32_t)), .seed = clock_ns()};
        if (!x->rig.ids) st = fail(err, MICA_E_NOMEM, "tune: out of memory");
    }
    if (st != MICA_OK) unload(x);
    return st;
}

/* The fastest of REPEATS runs (what other programs take away only makes one slower), as long as DECODE_MS or
 * PROMPT_MS allows and of at least `least` tokens. A first, short one warms up and says how fast it is. */
static mica_status time_case(loaded *x, const tuner *t, bench_case c, uint32_t least, double *tps,
                             mica_error *err) {
    const double most_ms = c.prompt ? PROMPT_MS : DECODE_MS;
    double run, probe;
    bench_case first = c;
    first.n = c.prompt ? ROOM : 4;
    if (first.n > c.n) first.n = c.n;
    TRY(bench_run_once(&x->rig, &first, &probe, err));
    while (c.n > least && c.n * 1000.0 / probe > most_ms) c.n /= 2;
    if (c.n < least) c.n = least;
    for (int i = 0; i < REPEATS; i++) {
        TRY(check_cancel(t, err));
        TRY(bench_run_once(&x->rig, &c, &run, err));
        *tps = fmax(*tps, run);
    }
    return MICA_OK;
}

static mica_status tune_threads(tuner *t, mica_error *err) {
    uint32_t list[CANDIDATE_MAX];
    tried tries[CANDIDATE_MAX];
    const size_t n = thread_candidates(list);
    for (size_t i = 0; i < n; i++) {
        loaded x;
        double prompt = 0, decode = 0;
        t->lo.n_thread = (int)list[i];
        TRY(load(&x, t, err));
        mica_status st = time_case(&x, t, (bench_case){.n = DECODE_MAX}, 4, &decode, err);
        if (st == MICA_OK) st = time_case(&x, t, (bench_case){.n = 128, .prompt = true}, 16, &prompt, err);
        unload(&x);
        if (st == MICA_OK) st = note(t, "threads", list[i], prompt, decode, err);
        if (st != MICA_OK) return st;
        tries[i] = (tried){list[i], sqrt(prompt * decode)}; // both count alike
    }
    t->lo.n_thread = (int)choose(tries, n);
    return MICA_OK;
}

/* The longest prompt that is worth the wait, in tokens; 0 when none is. */
static mica_status prompt_length(tuner *t, uint32_t *out, mica_error *err) {
    loaded x;
    double tps = 0;
    *out = 0;
    TRY(load(&x, t, err));
    const uint32_t room = x.m->info.n_ctx > ROOM ? x.m->info.n_ctx - ROOM : 0;
    mica_status st = bench_run_once(&x.rig, &(bench_case){.n = ROOM / 2, .prompt = true}, &tps, err);
    unload(&x);
    for (uint32_t n = PROMPT_MAX; st == MICA_OK && n >= PROMPT_MIN && *out == 0; n /= 2)
        if (n <= room && n * 1000.0 / tps <= PROMPT_MS) *out = n;
    return st;
}

static mica_status tune_ubatch(tuner *t, mica_error *err) {
    uint32_t list[CANDIDATE_MAX], n_prompt;
    tried tries[CANDIDATE_MAX];
    TRY(prompt_length(t, &n_prompt, err));
    const size_t n = n_prompt ? ubatch_candidates(list, n_prompt) : 0;
    t->n_all = t->n_done + (uint32_t)n;
    for (size_t i = 0; i < n; i++) {
        loaded x;
        double prompt = 0;
        t->lo.n_ubatch = list[i];
        TRY(load(&x, t, err));
        const bench_case c = {.n = n_prompt, .prompt = true};
        mica_status st = time_case(&x, t, c, n_prompt, &prompt, err);
        unload(&x);
        if (st == MICA_OK) st = note(t, "ubatch", list[i], prompt, 0, err);
        if (st != MICA_OK) return st;
        tries[i] = (tried){list[i], prompt};
    }
    t->lo.n_ubatch = n ? choose(tries, n) : 0;
    return MICA_OK;
}

/* ---- Drafts: what they are worth depends on the text, so this is an answer of the model's own ---- */

static bool ignore_token(void *user, int32_t id) {
    (void)user, (void)id;
    return true;
}

static mica_status draft_prompt(mica_ids *out, const mica_model *m, mica_error *err) {
    static const char text[] = "Explain step by step how bread is made, then list what is needed for it.";
    static const char chat[] =
        "[{\"role\":\"user\",\"content\":\"Explain step by step how bread is made, then "
        "list what is needed for it.\"}]";
    if (m->info.has_template) return mica_encode_chat(m, chat, NULL, out, NULL, err);
    return mica_tokenize(m, text, strlen(text), false, true, out, err);
}

static mica_status time_drafts(loaded *x, const tuner *t, const mica_ids *prompt, int32_t n_draft,
                               double *tps, mica_error *err) {
    mica_sampling greedy = x->m->info.sampling;
    greedy.temperature = 0;
    const mica_generate_options g = {.sampling = &greedy,
                                     .n_predict = DRAFT_TOKENS,
                                     .n_draft = n_draft,
                                     .ignore_end = true,
                                     .cancel = t->opt->cancel};
    for (int i = 0; i < 2; i++) {
        mica_stats s;
        TRY(mica_generate(x->s, prompt->ids, prompt->n, &g, ignore_token, NULL, NULL, &s, err));
        TRY(check_cancel(t, err));
        if (s.decode_ms > 0) *tps = fmax(*tps, (double)s.n_generated * 1000 / s.decode_ms);
    }
    return MICA_OK;
}

/* *out: -1 for a model without a draft block. */
static mica_status tune_draft(tuner *t, int32_t *out, mica_error *err) {
    static const int32_t list[] = {MICA_DRAFT_DEFAULT, 0, 1, 2, 3, 5, MICA_DRAFT_MAX};
    enum { N = sizeof list / sizeof list[0] };
    tried tries[N];
    loaded x;
    mica_ids prompt = {0};
    *out = -1;
    TRY(load(&x, t, err));
    mica_status st = x.m->info.has_draft ? draft_prompt(&prompt, x.m, err) : MICA_OK;
    if (st == MICA_OK && x.m->info.has_draft) {
        t->n_all += N;
        for (size_t i = 0; i < N && st == MICA_OK; i++) {
            double tps = 0;
            st = time_drafts(&x, t, &prompt, list[i], &tps, err);
            tries[i] = (tried){(uint32_t)list[i], tps};
            if (st == MICA_OK) st = note(t, "draft", (uint32_t)list[i], 0, tps, err);
        }
        if (st == MICA_OK) *out = (int32_t)choose(tries, N);
    }
    mica_ids_free(&prompt);
    unload(&x);
    return st;
}

/* ---- All of it ---- */

static json_t *number_or_null(int64_t n, bool is_null) {
    return is_null ? json_null() : json_integer(n);
}

static mica_status measure(tuner *t, int32_t *n_draft, mica_error *err) {
    uint32_t ignored[CANDIDATE_MAX];
    t->n_all = (uint32_t)ubatch_candidates(ignored, PROMPT_MAX); // corrected when more is known
    if (t->key.on_cpu && !t->opt->n_thread) t->n_all += (uint32_t)thread_candidates(ignored);
    if (t->key.on_cpu && !t->opt->n_thread) TRY(tune_threads(t, err));
    if (!t->opt->n_ubatch) TRY(tune_ubatch(t, err));
    return tune_draft(t, n_draft, err);
}

mica_status mica_tune(char **json, const mica_load_options *opt, mica_error *err) {
    mica_status st = MICA_OK;
    tuner t = {.opt = opt, .lo = *opt, .measured = json_array()};
    int32_t n_draft = -1;
    char *path = NULL;
    json_t *result = NULL;
    *json = NULL;
    TRY_GOTO(tuned_key_make(&t.key, opt, err), done);
    t.lo.progress = NULL; // loads are short beside what is told here
    if (t.lo.n_ctx == 0) t.lo.n_ctx = PROMPT_MAX + ROOM;
    if (t.key.n_ctx_train && t.lo.n_ctx > t.key.n_ctx_train) t.lo.n_ctx = (uint32_t)t.key.n_ctx_train;
    if (t.lo.n_ctx < CTX_MIN)
        TRY_GOTO(fail(err, MICA_E_ARG, "tune: a context of %u: at least %d tokens are needed to measure",
                      t.lo.n_ctx, (int)CTX_MIN),
                 done);
    TRY_GOTO(measure(&t, &n_draft, err), done);
    result = json_pack("{s:{s:o, s:o, s:o}, s:O}", "best", "threads",
                       number_or_null(t.lo.n_thread, opt->n_thread || t.lo.n_thread == 0), "ubatch",
                       number_or_null(t.lo.n_ubatch, opt->n_ubatch || t.lo.n_ubatch == 0), "draft",
                       number_or_null(n_draft, n_draft < 0), "measured", t.measured);
    if (!result) TRY_GOTO(fail(err, MICA_E_NOMEM, "tune: out of memory"), done);
    TRY_GOTO(tuned_save(&path, &t.key, result, err), done);
    json_object_set_new(result, "path", json_string(path));
    st = report_text(json, json_incref(result), err);
done:
    json_decref(result);
    json_decref(t.measured);
    mica_text_free(path);
    return st;
}
