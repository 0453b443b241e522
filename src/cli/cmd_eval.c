/* `mica eval`: the library does the work and gives JSON; here are the flags each kind needs and a few lines
 * for people. */
#include "cli/command.h"
#include "cli/exit.h"
#include "cli/open.h"
#include "cli/print.h"
#include "cli/term.h"

#include "base/mem.h"
#include "base/status.h"
#include "mica_tools.h"

#include <math.h>
#include <string.h>

typedef mica_status show_fn(const json_t *v, mica_error *err);

/* Prints the library's text as it is, or through `show`; takes the text. */
static mica_status put_result(char *text, const options *o, show_fn *show, mica_error *err) {
    mica_status st = MICA_OK;
    json_t *v = NULL;
    if (o->json) {
        print_json_text(text);
    } else {
        st = print_parse(&v, text, err);
        if (st == MICA_OK) st = show(v, err);
        json_decref(v);
    }
    mica_text_free(text);
    return st;
}

/* ---- logits ---- */

static mica_status show_logits(const json_t *v, mica_error *err) {
    (void)err;
    size_t i, k;
    json_t *p, *pair;
    json_array_foreach(json_object_get(v, "positions"), i, p) {
        const json_t *top = json_object_get(p, "top"), *all = json_object_get(p, "logits");
        printf("position %llu:", (unsigned long long)member_u64(p, "pos"));
        json_array_foreach((json_t *)(uintptr_t)top, k, pair)
            printf(" %lld:%.9g", (long long)json_integer_value(json_array_get(pair, 0)),
                   json_number_value(json_array_get(pair, 1)));
        json_array_foreach((json_t *)(uintptr_t)all, k, pair)
            printf(" %.9g", json_is_null(pair) ? -(double)INFINITY : json_number_value(pair));
        putchar('\n');
    }
    return MICA_OK;
}

mica_status cmd_eval_logits(const options *o, mica_error *err) {
    mica_status st = MICA_OK;
    opened x = {0};
    char *text;
    const size_t n = o->tokens.n;
    if (n == 0) return fail(err, MICA_E_ARG, "--tokens: missing: give ids such as 1,2,3");
    if ((uint64_t)o->split_at >= n)
        return fail(err, MICA_E_ARG, "--split-at: %lld: there are %zu ids", (long long)o->split_at, n);
    int32_t *ids = mem_alloc(n * sizeof *ids);
    if (!ids) return fail(err, MICA_E_NOMEM, "--tokens: %zu ids: out of memory", n);
    for (size_t i = 0; i < n; i++) ids[i] = (int32_t)o->tokens.p[i];
    TRY_GOTO(open_model(&x, o, NULL, err), done);
    const mica_eval_logits_options e = {.ids = ids,
                                        .n = n,
                                        .all_positions = o->positions == 1,
                                        .top = (uint32_t)o->top,
                                        .split_at = (uint32_t)o->split_at};
    TRY_GOTO(mica_eval_logits(&text, x.session, &e, err), done);
    st = put_result(text, o, show_logits, err);
done:
    mem_free(ids);
    open_close(&x);
    return st;
}

/* ---- ref ---- */

static void put_or_dash(table *t, const char *fmt, const json_t *v) {
    char cell[40];
    snprintf(cell, sizeof cell, fmt, json_number_value(v));
    table_put(t, "%s", json_is_number(v) ? cell : "-");
}

static mica_status show_ref(const json_t *v, mica_error *err) {
    static const char *const heads[] = {"prompt", "run", "max diff", "median", "argmax", "parts at", "gap"};
    table t = {.n_col = 7};
    size_t i;
    json_t *p;
    for (i = 0; i < t.n_col; i++) table_put(&t, "%s", heads[i]);
    json_array_foreach(json_object_get(v, "prompts"), i, p) {
        table_put(&t, "%s", member_text(p, "name"));
        table_put(&t, "%s", member_text(p, "run"));
        put_or_dash(&t, "%.2e", json_object_get(p, "max_logit_diff"));
        put_or_dash(&t, "%.2e", json_object_get(p, "median_logit_diff"));
        put_or_dash(&t, "%.4f", json_object_get(p, "argmax_agreement"));
        put_or_dash(&t, "%.0f", json_object_get(p, "first_divergence"));
        put_or_dash(&t, "%.4f", json_object_get(p, "gap_at_divergence"));
    }
    mica_status st = table_print(stdout, &t, err);
    table_fini(&t);
    printf("%s\n", member_true(v, "ok") ? "ok" : "differs from the reference");
    return st;
}

mica_status cmd_eval_ref(const options *o, mica_error *err) {
    mica_status st = MICA_OK;
    opened x = {0};
    char *path = NULL, *text;
    bool ok = false;
    mica_load_options lo;
    if (!o->ref) return fail(err, MICA_E_ARG, "--ref: missing: name a reference file");
    TRY_GOTO(open_path(&path, o, err), done);
    TRY_GOTO(open_load_options(&lo, o, path, err), done);
    if (!OPTION_SEEN(o, kv)) lo.kv = MICA_KV_F32; // the references are float32
    TRY_GOTO(open_model(&x, o, &lo, err), done);
    TRY_GOTO(mica_eval_ref(&text, &ok, x.session, o->ref, err), done);
    st = put_result(text, o, show_ref, err);
    if (!ok) exit_failed_check();
done:
    open_close(&x);
    mica_text_free(path);
    return st;
}

/* ---- tasks, ppl, kld ---- */

static mica_status show_tasks(const json_t *v, mica_error *err) {
    table t = {.n_col = 3};
    const char *name;
    json_t *one;
    table_put(&t, "task");
    table_put(&t, "right");
    table_put(&t, "total");
    json_object_foreach(json_object_get(v, "by_task"), name, one) {
        // {"right","total"} or [right, total]
        const json_t *right = json_is_array(one) ? json_array_get(one, 0) : json_object_get(one, "right");
        const json_t *total = json_is_array(one) ? json_array_get(one, 1) : json_object_get(one, "total");
        table_put(&t, "%s", name);
        put_or_dash(&t, "%.0f", right);
        put_or_dash(&t, "%.0f", total);
    }
    table_put(&t, "all");
    put_or_dash(&t, "%.0f", json_object_get(v, "right"));
    put_or_dash(&t, "%.0f", json_object_get(v, "total"));
    mica_status st = table_print(stdout, &t, err);
    table_fini(&t);
    return st;
}

/* Every member of a flat object on a line of its own. */
static mica_status show_members(const json_t *v, mica_error *err) {
    table t = {.n_col = 2};
    const char *name;
    json_t *one;
    table_put(&t, "what");
    table_put(&t, "value");
    json_object_foreach((json_t *)(uintptr_t)v, name, one) {
        table_put(&t, "%s", name);
        if (json_is_integer(one))
            table_put(&t, "%lld", (long long)json_integer_value(one));
        else
            put_or_dash(&t, "%.9g", one);
    }
    mica_status st = table_print(stdout, &t, err);
    table_fini(&t);
    return st;
}

typedef mica_status score_fn(char **json, mica_session *s, const char *path, mica_progress_fn *progress,
                             void *user, mica_error *err);

/* What tasks and ppl share: one model, one file, progress. */
static mica_status score(const options *o, const char *path, score_fn *run, show_fn *show, mica_error *err) {
    mica_status st = MICA_OK;
    opened x = {0};
    char *text = NULL;
    progress bar = {0};
    TRY_GOTO(open_model(&x, o, NULL, err), done);
    st = run(&text, x.session, path, progress_show, &bar, err);
    progress_end(&bar);
    if (st == MICA_OK) st = put_result(text, o, show, err);
done:
    open_close(&x);
    return st;
}

mica_status cmd_eval_tasks(const options *o, mica_error *err) {
    if (!o->tasks) return fail(err, MICA_E_ARG, "--tasks: missing: name a file of tasks");
    return score(o, o->tasks, mica_eval_tasks, show_tasks, err);
}

mica_status cmd_eval_ppl(const options *o, mica_error *err) {
    if (!o->file) return fail(err, MICA_E_ARG, "-f: missing: name a text to score");
    return score(o, o->file, mica_eval_ppl, show_members, err);
}

mica_status cmd_eval_kld(const options *o, mica_error *err) {
    mica_status st = MICA_OK;
    opened x = {0}, base = {0};
    char *path = NULL, *text = NULL;
    progress bar = {0};
    mica_load_options lo;
    if (!o->base) return fail(err, MICA_E_ARG, "--base: missing: name the model to compare with");
    if (!o->file) return fail(err, MICA_E_ARG, "-f: missing: name a text to score");
    TRY_GOTO(open_model(&x, o, NULL, err), done);
    TRY_GOTO(mica_resolve(&path, o->base, err), done);
    TRY_GOTO(open_load_options(&lo, o, path, err), done);
    lo.n_ctx = x.info.n_ctx; // the same windows
    TRY_GOTO(open_model(&base, o, &lo, err), done);
    st = mica_eval_kld(&text, x.session, base.session, o->file, progress_show, &bar, err);
    progress_end(&bar);
    if (st == MICA_OK) st = put_result(text, o, show_members, err);
done:
    open_close(&base);
    open_close(&x);
    mica_text_free(path);
    return st;
}

/* ---- cache ---- */

static mica_status show_cache(const json_t *v, mica_error *err) {
    static const char *const heads[] = {"capacity", "slots", "policy", "learned", "lru", "lfu", "belady"};
    enum { HEADS = sizeof heads / sizeof *heads };
    table t = {.n_col = HEADS};
    size_t i;
    json_t *one;
    for (i = 0; i < HEADS; i++) table_put(&t, "%s", heads[i]);
    json_array_foreach(json_object_get(v, "capacity"), i, one) {
        table_put(&t, "%llu %%", (unsigned long long)member_u64(one, "percent"));
        table_put(&t, "%llu", (unsigned long long)member_u64(one, "slots"));
        for (size_t k = 2; k < HEADS; k++)
            table_put(&t, "%.4f", member_real(json_object_get(one, heads[k]), "hit_rate"));
    }
    mica_status st = table_print(stdout, &t, err);
    table_fini(&t);
    printf("hit rates over %llu tokens, the first %llu left out (learned: none)\n",
           (unsigned long long)member_u64(v, "tokens"), (unsigned long long)member_u64(v, "warm_up"));
    return st;
}

mica_status cmd_eval_cache(const options *o, mica_error *err) {
    static const uint32_t usual[] = {10, 25, 50};
    uint32_t percent[16];
    size_t n = o->capacity.n;
    char *text;
    if (!o->trace) return fail(err, MICA_E_ARG, "--trace: missing: name a record of routing");
    if (n > 16) return fail(err, MICA_E_ARG, "--capacity: %zu of them: at most 16", n);
    for (size_t i = 0; i < n; i++) percent[i] = (uint32_t)o->capacity.p[i];
    TRY(mica_eval_cache(&text, o->trace, n ? percent : usual, n ? n : 3, err));
    return put_result(text, o, show_cache, err);
}
