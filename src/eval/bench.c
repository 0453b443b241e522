/* mica_bench: tokens a second of prompts (pp) and of generated tokens (tg) at depths, with the share of the
 * machine's read bandwidth that decoding reached. Every test repeats; medians are what to quote. */
#include "mica_tools.h"

#include "base/clock.h"
#include "base/mem.h"
#include "eval/bandwidth.h"
#include "eval/bench.h"
#include "eval/report.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct bench {
    bench_rig rig; // its ids are owned
    uint32_t repeats;
    double *tps; // owned, [repeats]
    double bound_gbps;
    bool profile;
} bench;

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Ids that no earlier run shares a prefix with, away from the special ones at the ends. */
static void fill_ids(bench_rig *b, size_t n) {
    uint32_t n_vocab = b->s->m->info.n_vocab;
    for (size_t i = 0; i < n; i++) {
        b->seed = b->seed * 6364136223846793005u + 1442695040888963407u;
        b->ids[i] = (int32_t)((b->seed >> 33) % n_vocab);
    }
}

mica_status bench_run_once(bench_rig *b, const bench_case *c, double *tps, mica_error *err) {
    size_t before = c->prompt ? c->depth : c->depth ? c->depth : 1;
    if ((uint64_t)before + c->n > b->s->m->info.n_ctx)
        return fail(err, MICA_E_ARG, "bench: %u tokens at depth %u: the context holds %u (--context)", c->n,
                    c->depth, b->s->m->info.n_ctx);
    fill_ids(b, before + c->n);
    session_clear(b->s->s);
    session_sync_args a = {.ids = b->ids, .n = before};
    if (before) TRY(session_sync(b->s->s, &a, NULL, err));
    if (b->profile) dev_profile_clear(b->profile);
    uint64_t start = clock_ns();
    a.n = before + c->n;
    if (c->prompt) TRY(session_sync(b->s->s, &a, NULL, err));
    for (uint32_t i = 0; !c->prompt && i < c->n; i++) TRY(session_append(b->s->s, b->ids[before + i], err));
    *tps = c->n / (clock_ms_since(start) * 1e-3);
    return MICA_OK;
}

/* Bytes a decoded token reads: weights, and the cache of the tokens before it. */
static double token_bytes(const bench *b, const bench_case *c) {
    const mica_model_info *i = &b->rig.s->m->info;
    double kv = (double)i->kv_bytes / i->n_seq / i->n_ctx;
    return (double)i->bytes_per_token + kv * (c->depth + c->n / 2.0);
}

/* The rows of a profile as the member of a test. */
static json_t *profile_json(const dev_profile *p) {
    dev_profile_row r[DEV_PROFILE_MAX];
    uint32_t n = dev_profile_rows(p, r);
    double step = (double)dev_profile_step_ns(p);
    json_t *list = json_array();
    for (uint32_t i = 0; i < n; i++) {
        double ns = r[i].ns > 0 ? (double)r[i].ns : 1;
        json_t *one = json_pack("{s:s, s:I, s:o, s:o}", "what", r[i].what, "calls", (json_int_t)r[i].n_call,
                                "ms", report_real(ns * 1e-6), "share", report_real(ns / step));
        json_object_set_new(one, "bytes", r[i].bytes ? json_integer((json_int_t)r[i].bytes) : json_null());
        json_object_set_new(one, "gbps", r[i].bytes ? report_real((double)r[i].bytes / ns) : json_null());
        json_object_set_new(one, "gops", r[i].ops ? report_real((double)r[i].ops / ns) : json_null());
        json_array_append_new(list, one);
    }
    return json_pack("{s:o, s:o}", "step_ms", report_real(step * 1e-6), "operations", list);
}

/* One more run of the test, not among the timed ones. */
static mica_status profile_case(bench *b, const bench_case *c, json_t *one, mica_error *err) {
    double ignored;
    TRY(dev_profile_start(&b->rig.profile, engine_dev(b->rig.s->m->e), err));
    mica_status st = bench_run_once(&b->rig, c, &ignored, err);
    if (st == MICA_OK) json_object_set_new(one, "profile", profile_json(b->rig.profile));
    dev_profile_stop(b->rig.profile);
    b->rig.profile = NULL;
    return st;
}

static mica_status run_case(bench *b, const bench_case *c, json_t *list, mica_error *err) {
    double ignored;
    char name[64];
    json_t *runs = json_array();
    mica_status st = bench_run_once(&b->rig, c, &ignored, err); // pages, caches, clock speed
    for (uint32_t r = 0; st == MICA_OK && r < b->repeats; r++) {
        st = bench_run_once(&b->rig, c, &b->tps[r], err);
        json_array_append_new(runs, report_real(b->tps[r]));
    }
    if (st != MICA_OK) {
        json_decref(runs);
        return st;
    }
    qsort(b->tps, b->repeats, sizeof *b->tps, by_value);
    double median = (b->tps[b->repeats / 2] + b->tps[(b->repeats - 1) / 2]) / 2, bytes = token_bytes(b, c);
    snprintf(name, sizeof name, c->depth ? "%s%u@d%u" : "%s%u", c->prompt ? "pp" : "tg", c->n, c->depth);
    json_t *one = json_pack("{s:s, s:i, s:o, s:{s:o, s:o, s:o}}", "test", name, "depth", (int)c->depth,
                            "runs", runs, "tps", "min", report_real(b->tps[0]), "median", report_real(median),
                            "max", report_real(b->tps[b->repeats - 1]));
    if (!c->prompt) {
        double gbps = bytes * median * 1e-9;
        json_object_set_new(one, "bytes_per_token", json_integer((json_int_t)bytes));
        json_object_set_new(one, "gbps", report_real(gbps));
        json_object_set_new(one, "bound_gbps", report_real(b->bound_gbps));
        json_object_set_new(one, "share", report_real(gbps / b->bound_gbps));
    }
    json_array_append_new(list, one);
    return b->profile ? profile_case(b, c, one, err) : MICA_OK;
}

mica_status mica_bench(char **json, mica_session *s, const mica_bench_options *opt,
                       mica_progress_fn *progress, void *user, mica_error *err) {
    static const uint32_t none = 0;
    const uint32_t *depth = opt->n_depth ? opt->depth : &none;
    size_t n_depth = opt->n_depth ? opt->n_depth : 1, n_kind = opt->n_n_prompt + opt->n_n_gen, done_n = 0;
    bench b = {.rig = {.s = s, .seed = clock_ns()},
               .repeats = opt->repeats ? opt->repeats : 5,
               .profile = opt->profile};
    json_t *list = json_array();
    mica_status st = MICA_OK;
    *json = NULL;
    b.rig.ids = mem_alloc(s->m->info.n_ctx * sizeof *b.rig.ids);
    b.tps = mem_alloc(b.repeats * sizeof *b.tps);
    if (!b.rig.ids || !b.tps) {
        st = fail(err, MICA_E_NOMEM, "bench: out of memory");
        goto done;
    }
    b.bound_gbps = bandwidth_read_gbps(s->m->n_thread, 7);
    for (size_t d = 0; d < n_depth; d++) {
        for (size_t k = 0; k < n_kind; k++) {
            bool prompt = k < opt->n_n_prompt;
            bench_case c = {.depth = depth[d], .prompt = prompt};
            c.n = prompt ? opt->n_prompt[k] : opt->n_gen[k - opt->n_n_prompt];
            if (c.n == 0) continue;
            TRY_GOTO(run_case(&b, &c, list, err), done);
            if (progress) progress(user, "bench", ++done_n, n_depth * n_kind);
        }
    }
    st = report_text(json, json_incref(list), err);
done:
    json_decref(list);
    mem_free(b.rig.ids);
    mem_free(b.tps);
    return st;
}
