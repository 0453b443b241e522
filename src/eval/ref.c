/* mica_eval_ref: logits, arg-maxima and greedy text against a reference file (docs/FIXTURES.md).
 *
 * A miss counts only where the reference is sure: its gap between the two tokens is above REF_GAP. For
 * positions whose logits the file does not list, our own gap between the two stands in. */
#include "mica_tools.h"

#include "base/mem.h"
#include "eval/report.h"
#include "run/api_int.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define REF_GAP 0.01

typedef struct run_check {
    mica_session *s;
    const json_t *ref; // one run
    const json_t *argmax;
    int32_t *ids; // owned
    size_t n, n_right, n_seen;
    json_t *misses;
    const json_t *drafts; // the reference's draft block, or NULL
    int32_t draft;        // of the token that is chosen next, or -1
    size_t n_draft, n_same, n_accepted;
    bool ok;
} run_check;

/* The reference's gap between its best token and `id` at pos; < 0 when the file does not list it. */
static double listed_gap(const run_check *c, size_t pos, int32_t id) {
    const json_t *list = json_object_get(c->ref, "top20");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *at = json_array_get(list, i), *ids = json_object_get(at, "ids"),
                     *l = json_object_get(at, "logits");
        if ((size_t)json_integer_value(json_object_get(at, "pos")) != pos) continue;
        for (size_t k = 0; k < json_array_size(ids); k++) {
            if (json_integer_value(json_array_get(ids, k)) == id)
                return json_number_value(json_array_get(l, 0)) - json_number_value(json_array_get(l, k));
        }
    }
    return -1.0;
}

static mica_status check_argmax(void *user, size_t pos, const float *l, mica_error *err) {
    run_check *c = user;
    int32_t ours = sample_argmax(l, c->s->m->info.n_vocab);
    const json_t *want = json_array_get(c->argmax, pos);
    if (!json_is_integer(want)) return fail(err, MICA_E_FORMAT, "reference: argmax has no position %zu", pos);
    int32_t theirs = (int32_t)json_integer_value(want);
    c->n_seen++;
    if (ours == theirs) {
        c->n_right++;
        return MICA_OK;
    }
    double gap = listed_gap(c, pos, ours);
    if (gap < 0.0) gap = (double)l[ours] - (double)l[theirs];
    json_array_append_new(c->misses, json_pack("{s:I, s:f}", "pos", (json_int_t)pos, "gap", gap));
    if (gap > REF_GAP) c->ok = false;
    return MICA_OK;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Largest and median difference of the logits after the last id. */
static mica_status compare_last(const run_check *c, json_t *out, mica_error *err) {
    const json_t *want = json_object_get(c->ref, "last_logits");
    const float *l = session_logits(c->s->s);
    size_t n = json_array_size(want);
    if (n == 0 || n > c->s->m->info.n_vocab)
        return fail(err, MICA_E_FORMAT, "reference: last_logits: %zu values for a vocabulary of %u", n,
                    c->s->m->info.n_vocab);
    double *d = mem_alloc(n * sizeof *d);
    if (!d) return fail(err, MICA_E_NOMEM, "reference: out of memory");
    for (size_t i = 0; i < n; i++) d[i] = fabs((double)l[i] - json_number_value(json_array_get(want, i)));
    qsort(d, n, sizeof *d, by_value);
    json_object_set_new(out, "max_logit_diff", report_real(d[n - 1]));
    json_object_set_new(out, "median_logit_diff", report_real(d[n / 2]));
    mem_free(d);
    return MICA_OK;
}

static bool pick_best(void *user, const float *logits, uint64_t pos, int32_t *id) {
    (void)pos;
    *id = sample_argmax(logits, *(const uint32_t *)user);
    return true;
}

/* What the draft block says will follow `id`, which is not appended yet, beside what the reference's says. */
static mica_status draft_one(run_check *c, int32_t id, size_t i, mica_error *err) {
    uint32_t n_vocab = c->s->m->info.n_vocab;
    session_draft d = {.s = c->s->s, .next = id, .n_max = 1, .pick = pick_best, .user = &n_vocab};
    TRY(session_draft_run(&d, 1, err));
    if (d.n == 0) return MICA_OK;
    c->draft = d.ids[0];
    c->n_draft++;
    c->n_same += c->draft == json_integer_value(json_array_get(c->drafts, c->n - 1 + i));
    return MICA_OK;
}

/* Takes the model's next own choice; a draft of it, when there is one, was accepted if it is the same. */
static int32_t next_choice(run_check *c) {
    int32_t id = sample_argmax(session_logits(c->s->s), c->s->m->info.n_vocab);
    c->n_accepted += c->draft == id;
    c->draft = -1;
    return id;
}

/* Greedy text until it parts from the reference's, each token with a draft of the one after it. */
static mica_status compare_greedy(run_check *c, json_t *out, mica_error *err) {
    const json_t *want = json_object_get(c->ref, "greedy"), *gaps = json_object_get(c->ref, "greedy_gap");
    json_object_set_new(out, "first_divergence", json_null());
    json_object_set_new(out, "gap_at_divergence", json_null());
    for (size_t i = 0; i < json_array_size(want); i++) {
        int32_t id = next_choice(c);
        if (id != json_integer_value(json_array_get(want, i))) {
            double gap = json_number_value(json_array_get(gaps, i));
            json_object_set_new(out, "first_divergence", json_integer((json_int_t)i));
            json_object_set_new(out, "gap_at_divergence", json_real(gap));
            if (gap > REF_GAP) c->ok = false;
            return MICA_OK;
        }
        if (c->drafts) TRY(draft_one(c, id, i, err));
        if (i + 1 < json_array_size(want) || c->draft >= 0) TRY(session_append(c->s->s, id, err));
    }
    if (c->draft >= 0) next_choice(c);
    return MICA_OK;
}

/* The share of drafts that are the reference's, and how many the model's own next choice accepted: one less
 * than the reference accepts is a near-tie, two are not. */
static void report_drafts(run_check *c, json_t *out) {
    json_object_set_new(out, "draft_agreement", json_null());
    if (c->n_draft == 0) return;
    const json_t *ref = json_object_get(c->ref, "mtp_accepted");
    json_int_t wanted = json_integer_value(json_array_get(ref, 0));
    json_object_set_new(out, "draft_agreement", json_real((double)c->n_same / (double)c->n_draft));
    json_object_set_new(out, "drafts",
                        json_pack("{s:I, s:I, s:I}", "drafted", (json_int_t)c->n_draft, "accepted",
                                  (json_int_t)c->n_accepted, "reference_accepted", wanted));
    bool whole = json_integer_value(json_array_get(ref, 1)) == (json_int_t)c->n_draft;
    if (whole && (json_int_t)c->n_accepted + 1 < wanted) c->ok = false;
}

static mica_status take_ids(run_check *c, mica_error *err) {
    const json_t *ids = json_object_get(c->ref, "ids");
    c->argmax = json_object_get(c->ref, "argmax");
    c->drafts = json_object_get(c->ref, "mtp_draft");
    c->draft = -1;
    c->n = json_array_size(ids);
    if (c->n == 0) return fail(err, MICA_E_FORMAT, "reference: a run has no ids");
    c->ids = mem_alloc(c->n * sizeof *c->ids);
    if (!c->ids) return fail(err, MICA_E_NOMEM, "reference: out of memory");
    for (size_t i = 0; i < c->n; i++) c->ids[i] = (int32_t)json_integer_value(json_array_get(ids, i));
    return MICA_OK;
}

/* One run of one prompt, from an empty session: what an earlier run left cached would not be compared. */
static mica_status check_run(run_check *c, json_t *out, mica_error *err) {
    mica_status st = MICA_OK;
    TRY_GOTO(take_ids(c, err), done);
    session_clear(c->s->s);
    session_sync_args a = {.ids = c->ids, .n = c->n, .on_logits = check_argmax, .logits_user = c};
    TRY_GOTO(session_sync(c->s->s, &a, NULL, err), done);
    TRY_GOTO(compare_last(c, out, err), done);
    json_object_set_new(out, "argmax_agreement", json_real((double)c->n_right / (double)c->n_seen));
    json_object_set(out, "argmax_misses", c->misses);
    TRY_GOTO(compare_greedy(c, out, err), done);
    report_drafts(c, out);
done:
    mem_free(c->ids);
    return st;
}

mica_status mica_eval_ref(char **json, bool *ok, mica_session *s, const char *ref_path, mica_error *err) {
    static const char *const runs[2] = {"first", "second"};
    *json = NULL;
    *ok = true;
    json_t *ref;
    TRY(report_read_gz(&ref, ref_path, err));
    json_t *list = json_array(), *prompts = json_object_get(ref, "prompts");
    mica_status st = MICA_OK;
    if (json_array_size(prompts) == 0) st = fail(err, MICA_E_FORMAT, "%s: no prompts", ref_path);
    for (size_t i = 0; st == MICA_OK && i < 2 * json_array_size(prompts); i++) {
        const json_t *p = json_array_get(prompts, i / 2);
        run_check c = {.s = s, .ref = json_object_get(p, runs[i % 2]), .misses = json_array(), .ok = true};
        if (c.ref) {
            json_t *one = json_pack("{s:O, s:s}", "name", json_object_get(p, "name"), "run", runs[i % 2]);
            st = one ? check_run(&c, one, err)
                     : fail(err, MICA_E_FORMAT, "%s: prompt %zu: no name", ref_path, i / 2);
            json_array_append_new(list, one);
        }
        *ok = *ok && c.ok;
        json_decref(c.misses);
    }
    json_decref(ref);
    if (st != MICA_OK) {
        json_decref(list);
        return st;
    }
    return report_text(json, json_pack("{s:o, s:b}", "prompts", list, "ok", *ok), err);
}
