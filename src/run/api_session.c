/* Sessions and generation, as the public header promises them. */
#include "run/api_int.h"

#include "base/clock.h"
#include "base/mem.h"

mica_status mica_session_new(mica_session **out, mica_model *m, mica_error *err) {
    *out = NULL;
    TRY(api_needs_weights(m, err));
    uint32_t slot = 0;
    while (slot < m->info.n_seq && m->slots[slot]) slot++;
    if (slot == m->info.n_seq) return fail(err, MICA_E_BUSY, "session: all %u slots are taken", m->info.n_seq);
    mica_session *s = mem_calloc(1, sizeof *s);
    if (!s) return fail(err, MICA_E_NOMEM, "session: out of memory");
    s->m = m;
    s->slot = slot;
    mica_status st = session_new(&s->s, m->e, slot, err);
    if (st != MICA_OK) {
        mem_free(s);
        return st;
    }
    m->slots[slot] = s;
    *out = s;
    return MICA_OK;
}

void mica_session_free(mica_session *s) {
    if (!s) return;
    s->m->slots[s->slot] = NULL;
    session_free(s->s);
    mem_free(s);
}

mica_status mica_session_sync(mica_session *s, const int32_t *ids, size_t n, size_t *n_cached, mica_cancel_flag *cancel,
                              mica_progress_fn *progress, void *user, mica_error *err) {
    session_sync_args a = {.ids = ids, .n = n, .cancel = cancel, .progress = progress, .progress_user = user};
    return session_sync(s->s, &a, n_cached, err);
}

mica_status mica_session_decode(mica_session *s, int32_t id, mica_error *err) { return session_append(s->s, id, err); }

mica_status mica_decode_batch(mica_session *const *s, const int32_t *id, size_t n, mica_error *err) {
    session *in[WINDOW_MAX * 16];
    if (n == 0) return MICA_OK;
    if (n > sizeof in / sizeof in[0])
        return fail(err, MICA_E_ARG, "batch: %zu sessions: at most %zu", n, sizeof in / sizeof in[0]);
    for (size_t i = 0; i < n; i++) in[i] = s[i]->s;
    return session_append_batch(in, id, n, err);
}

size_t mica_session_length(const mica_session *s) { return session_length(s->s); }
const int32_t *mica_session_ids(const mica_session *s) { return session_ids(s->s); }
const float *mica_session_logits(mica_session *s) { return session_logits(s->s); }

mica_status mica_session_sample(mica_session *s, const mica_sampling *sampling, int32_t *id, mica_error *err) {
    const mica_sampling *p = sampling ? sampling : &s->m->info.sampling;
    *id = -1;
    TRY(sampling_check(p, s->m->info.n_vocab, err));
    const float *logits = session_logits(s->s);
    if (!logits) return fail(err, MICA_E_ARG, "sample: the session has no token yet");
    return sampler_pick(s->m->pick,
                        &(sample_args){.logits = logits,
                                       .p = p,
                                       .history = session_ids(s->s),
                                       .n_history = session_length(s->s),
                                       .pos = session_length(s->s)},
                        id, err);
}

/* ---- generate ---- */

typedef struct generation {
    mica_session *s;
    const mica_generate_options *opt;
    mica_token_fn *on_token;
    void *user;
    uint64_t n_made;
} generation;

/* One token; *finish tells when it was the last. */
static mica_status next_token(generation *g, mica_finish *finish, mica_error *err) {
    int32_t id;
    TRY(mica_session_sample(g->s, g->opt->sampling, &id, err));
    if (!g->opt->ignore_end && text_vocab_ends(g->s->m->vocab, id)) {
        *finish = MICA_FINISH_STOP;
        return MICA_OK;
    }
    g->n_made++;
    bool more = !g->on_token || g->on_token(g->user, id);
    bool full = g->opt->n_predict >= 0 && g->n_made >= (uint64_t)g->opt->n_predict;
    if (!more) *finish = MICA_FINISH_STOP;
    else if (full || session_length(g->s->s) + 1 >= g->s->m->info.n_ctx) *finish = MICA_FINISH_LENGTH;
    if (*finish != MICA_FINISH_NONE) return MICA_OK;
    return session_append(g->s->s, id, err);
}

mica_status mica_generate(mica_session *s, const int32_t *ids, size_t n, const mica_generate_options *opt,
                          mica_token_fn *on_token, void *user, mica_finish *finish, mica_stats *stats, mica_error *err) {
    static const mica_generate_options none = {.n_predict = -1};
    generation g = {.s = s, .opt = opt ? opt : &none, .on_token = on_token, .user = user};
    mica_finish how = MICA_FINISH_NONE;
    mica_stats t = {.n_prompt = n, .expert_hit_rate = 1.0};
    size_t n_cached = 0;
    if (finish) *finish = MICA_FINISH_NONE;
    if (stats) *stats = t;
    if (g.opt->sampling) TRY(sampling_check(g.opt->sampling, s->m->info.n_vocab, err));
    session_sync_args a = {.ids = ids, .n = n, .cancel = g.opt->cancel};
    a.progress = g.opt->progress;
    a.progress_user = g.opt->progress_user;
    uint64_t start = clock_ns();
    mica_status st = session_sync(s->s, &a, &n_cached, err);
    t.n_cached = n_cached;
    t.prompt_ms = clock_ms_since(start);
    start = clock_ns();
    if (st == MICA_OK && g.opt->n_predict == 0) how = MICA_FINISH_LENGTH;
    while (st == MICA_OK && how == MICA_FINISH_NONE) {
        if (g.opt->cancel && g.opt->cancel->set) how = MICA_FINISH_CANCELLED;
        else st = next_token(&g, &how, err);
    }
    t.decode_ms = clock_ms_since(start);
    t.n_generated = g.n_made;
    if (finish) *finish = how;
    if (stats) *stats = t;
    return st;
}
