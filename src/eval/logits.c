/* mica_eval_logits: raw logits of given ids, for comparing engines, devices and chunk sizes. */
#include "mica_tools.h"

#include "base/mem.h"
#include "eval/report.h"
#include "run/api_int.h"

#include <math.h>

typedef struct collect {
    json_t *positions;
    const mica_eval_logits_options *opt;
    uint32_t n_vocab;
} collect;

/* The `top` best as [id, logit], ties by id. */
static json_t *best_of(const float *l, uint32_t n, uint32_t top) {
    json_t *list = json_array();
    float last = INFINITY;
    int64_t last_id = -1;
    for (uint32_t k = 0; k < top && k < n; k++) {
        int64_t best = -1;
        for (uint32_t i = 0; i < n; i++) {
            bool after = l[i] < last || (l[i] == last && (int64_t)i > last_id);
            if (after && (best < 0 || l[i] > l[best])) best = i;
        }
        if (best < 0) break;
        last = l[best];
        last_id = best;
        json_array_append_new(list, json_pack("[I, o]", (json_int_t)best, report_real(last)));
    }
    return list;
}

static mica_status put(void *user, size_t pos, const float *l, mica_error *err) {
    collect *c = user;
    if (!c->opt->all_positions && pos + 1 != c->opt->n) return MICA_OK;
    json_t *list;
    if (c->opt->top) {
        list = best_of(l, c->n_vocab, c->opt->top);
    } else {
        list = json_array();
        for (uint32_t i = 0; i < c->n_vocab; i++) json_array_append_new(list, report_real((double)l[i]));
    }
    json_t *one = json_pack("{s:I, s:o}", "pos", (json_int_t)pos, c->opt->top ? "top" : "logits", list);
    if (!one || json_array_append_new(c->positions, one) != 0)
        return fail(err, MICA_E_NOMEM, "logits: out of memory");
    return MICA_OK;
}

mica_status mica_eval_logits(char **json, mica_session *s, const mica_eval_logits_options *opt,
                             mica_error *err) {
    *json = NULL;
    collect c = {.positions = json_array(), .opt = opt, .n_vocab = s->m->info.n_vocab};
    session_sync_args a = {.ids = opt->ids, .n = opt->n, .on_logits = put, .logits_user = &c};
    mica_status st = MICA_OK;
    if (opt->split_at >= opt->n && opt->split_at > 0) {
        st = fail(err, MICA_E_ARG, "split-at: %u: the prompt has %zu tokens", opt->split_at, opt->n);
        goto done;
    }
    if (!opt->all_positions) a.on_logits = NULL; // whole chunks, as a prompt is read
    if (opt->split_at) {
        a.n = opt->split_at;
        TRY_GOTO(session_sync(s->s, &a, NULL, err), done);
        a.n = opt->n;
    }
    TRY_GOTO(session_sync(s->s, &a, NULL, err), done);
    if (!opt->all_positions) TRY_GOTO(put(&c, opt->n - 1, session_logits(s->s), err), done);
    return report_text(json, json_pack("{s:o}", "positions", c.positions), err);
done:
    json_decref(c.positions);
    return st;
}
