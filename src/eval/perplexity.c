/* mica_eval_ppl and mica_eval_kld: how well a model predicts a text, and how far it is from another.
 *
 * The text is cut into windows of the context; in each, every token but the first is scored. Sums are in
 * double. */
#include "mica_tools.h"

#include "base/mem.h"
#include "eval/report.h"
#include "run/api_int.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* log(sum(exp(l))) */
static double log_sum_exp(const float *l, uint32_t n) {
    double top = -INFINITY, sum = 0;
    for (uint32_t i = 0; i < n; i++) top = l[i] > top ? (double)l[i] : top;
    for (uint32_t i = 0; i < n; i++) sum += exp((double)l[i] - top);
    return top + log(sum);
}

static mica_status read_text(strbuf *b, const char *path, mica_error *err) {
    FILE *f = fopen(path, "re");
    char chunk[65536];
    size_t n;
    if (!f) return fail(err, MICA_E_IO, "%s: open: %s", path, strerror(errno));
    while ((n = fread(chunk, 1, sizeof chunk, f)) > 0) strbuf_put(b, chunk, n);
    bool bad = ferror(f) != 0;
    fclose(f);
    if (bad) return fail(err, MICA_E_IO, "%s: read: %s", path, strerror(errno));
    return b->failed ? fail(err, MICA_E_NOMEM, "%s: out of memory", path) : MICA_OK;
}

static mica_status text_ids_of(mica_ids *ids, const mica_model *m, const char *path, mica_error *err) {
    strbuf b = {0};
    *ids = (mica_ids){0};
    mica_status st = read_text(&b, path, err);
    if (st == MICA_OK) st = mica_tokenize(m, strbuf_cstr(&b), b.n, false, true, ids, err);
    strbuf_fini(&b);
    if (st == MICA_OK && ids->n < 2)
        st = fail(err, MICA_E_ARG, "%s: %zu tokens: at least two are needed", path, ids->n);
    if (st != MICA_OK) mica_ids_free(ids);
    return st;
}

typedef struct ppl_sum {
    const mica_ids *ids;
    size_t begin, n_window; // the window at hand
    uint32_t n_vocab;
    size_t n_scored;
    double nll;
} ppl_sum;

static mica_status score(void *user, size_t pos, const float *l, mica_error *err) {
    ppl_sum *p = user;
    (void)err;
    if (pos + 1 >= p->n_window) return MICA_OK;
    int32_t next = p->ids->ids[p->begin + pos + 1];
    p->nll += log_sum_exp(l, p->n_vocab) - (double)l[next];
    p->n_scored++;
    return MICA_OK;
}

mica_status mica_eval_ppl(char **json, mica_session *s, const char *path, mica_progress_fn *progress,
                          void *user, mica_error *err) {
    mica_ids ids;
    mica_status st = MICA_OK;
    *json = NULL;
    TRY(text_ids_of(&ids, s->m, path, err));
    ppl_sum p = {.ids = &ids, .n_vocab = s->m->info.n_vocab};
    for (; p.begin + 1 < ids.n; p.begin += p.n_window) {
        p.n_window = ids.n - p.begin < s->m->info.n_ctx ? ids.n - p.begin : s->m->info.n_ctx;
        session_clear(s->s);
        session_sync_args a = {
            .ids = ids.ids + p.begin, .n = p.n_window, .on_logits = score, .logits_user = &p};
        TRY_GOTO(session_sync(s->s, &a, NULL, err), done);
        if (progress) progress(user, "perplexity", p.begin + p.n_window, ids.n);
    }
    double mean = p.nll / (double)p.n_scored;
    st = report_text(json,
                     json_pack("{s:I, s:o, s:o}", "tokens", (json_int_t)p.n_scored, "nll", report_real(mean),
                               "ppl", report_real(exp(mean))),
                     err);
done:
    mica_ids_free(&ids);
    return st;
}

/* ---- divergence from a base model ---- */

typedef struct kld_sum {
    float *base;  // owned, [n_chunk, n_vocab]: the base model's logits of a chunk
    size_t begin; // position of base[0]
    uint32_t n_vocab;
    size_t n_scored, n_same;
    double sum, most;
} kld_sum;

static mica_status keep_base(void *user, size_t pos, const float *l, mica_error *err) {
    kld_sum *k = user;
    (void)err;
    memcpy(k->base + (pos - k->begin) * k->n_vocab, l, k->n_vocab * sizeof *l);
    return MICA_OK;
}

static mica_status diverge(void *user, size_t pos, const float *l, mica_error *err) {
    kld_sum *k = user;
    (void)err;
    const float *b = k->base + (pos - k->begin) * k->n_vocab;
    double lb = log_sum_exp(b, k->n_vocab), lo = log_sum_exp(l, k->n_vocab), d = 0;
    for (uint32_t i = 0; i < k->n_vocab; i++) {
        double p = (double)b[i] - lb, q = (double)l[i] - lo;
        if (p > -700.0) d += exp(p) * (p - q);
    }
    k->sum += d;
    k->most = d > k->most ? d : k->most;
    k->n_same += sample_argmax(b, k->n_vocab) == sample_argmax(l, k->n_vocab);
    k->n_scored++;
    return MICA_OK;
}

/* Both models read the window a chunk further, the base first. */
static mica_status step_both(kld_sum *k, mica_session *s, mica_session *base, const int32_t *ids, size_t n,
                             mica_error *err) {
    session_sync_args a = {.ids = ids, .n = n, .on_logits = keep_base, .logits_user = k};
    k->begin = session_length(base->s);
    TRY(session_sync(base->s, &a, NULL, err));
    a.on_logits = diverge;
    return session_sync(s->s, &a, NULL, err);
}

mica_status mica_eval_kld(char **json, mica_session *s, mica_session *base, const char *path,
                          mica_progress_fn *progress, void *user, mica_error *err) {
    const mica_model_info *i = &s->m->info, *ib = &base->m->info;
    mica_ids ids;
    mica_status st = MICA_OK;
    *json = NULL;
    if (i->n_vocab != ib->n_vocab)
        return fail(err, MICA_E_ARG, "kld: vocabularies of %u and %u: the models must share one", i->n_vocab,
                    ib->n_vocab);
    TRY(text_ids_of(&ids, s->m, path, err));
    size_t n_ctx = i->n_ctx < ib->n_ctx ? i->n_ctx : ib->n_ctx, chunk = engine_out_max(base->m->e);
    kld_sum k = {.base = mem_alloc(chunk * i->n_vocab * sizeof(float)), .n_vocab = i->n_vocab};
    if (!k.base) {
        st = fail(err, MICA_E_NOMEM, "kld: out of memory");
        goto done;
    }
    for (size_t begin = 0; begin < ids.n; begin += n_ctx) {
        size_t n = ids.n - begin < n_ctx ? ids.n - begin : n_ctx;
        session_clear(s->s);
        session_clear(base->s);
        for (size_t at = 0; at < n;) {
            at = n - at > chunk ? at + chunk : n;
            TRY_GOTO(step_both(&k, s, base, ids.ids + begin, at, err), done);
            if (progress) progress(user, "divergence", begin + at, ids.n);
        }
    }
    double n = (double)k.n_scored;
    st = report_text(json,
                     json_pack("{s:I, s:o, s:o, s:o}", "tokens", (json_int_t)k.n_scored, "mean",
                               report_real(k.sum / n), "max", report_real(k.most), "same_top",
                               report_real((double)k.n_same / n)),
                     err);
done:
    mem_free(k.base);
    mica_ids_free(&ids);
    return st;
}
