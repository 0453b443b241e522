/* Sessions and generation, as the public header promises them. */
#include "run/api_int.h"

#include "base/clock.h"
#include "base/mem.h"

#include <math.h>

mica_status mica_session_new(mica_session **out, mica_model *m, mica_error *err) {
    *out = NULL;
    TRY(api_needs_weights(m, err));
    uint32_t slot = 0;
    while (slot < m->info.n_seq && m->slots[slot]) slot++;
    if (slot == m->info.n_seq)
        return fail(err, MICA_E_BUSY, "session: all %u slots are taken", m->info.n_seq);
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

mica_status mica_session_sync(mica_session *s, const int32_t *ids, size_t n, size_t *n_cached,
                              mica_cancel_flag *cancel, mica_progress_fn *progress, void *user,
                              mica_error *err) {
    session_sync_args a = {.ids = ids, .n = n, .cancel = cancel, .progress = progress, .progress_user = user};
    if (n_cached) *n_cached = 0;
    TRY(api_check_media(s->m, ids, n, err));
    return session_sync(s->s, &a, n_cached, err);
}

mica_status mica_session_decode(mica_session *s, int32_t id, mica_error *err) {
    return session_append(s->s, id, err);
}

mica_status mica_decode_batch(mica_session *const *s, const int32_t *id, size_t n, mica_error *err) {
    session *in[WINDOW_MAX * 16];
    if (n == 0) return MICA_OK;
    if (n > sizeof in / sizeof in[0])
        return fail(err, MICA_E_ARG, "batch: %zu sessions: at most %zu", n, sizeof in / sizeof in[0]);
    for (size_t i = 0; i < n; i++) in[i] = s[i]->s;
    return session_append_batch(in, id, n, err);
}

size_t mica_session_length(const mica_session *s) {
    return session_length(s->s);
}
const int32_t *mica_session_ids(const mica_session *s) {
    return session_ids(s->s);
}
const float *mica_session_logits(mica_session *s) {
    return session_logits(s->s);
}

mica_status mica_session_sample(mica_session *s, const mica_sampling *sampling, int32_t *id,
                                mica_error *err) {
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
    const mica_sampling *sampling;
    mica_token_fn *on_token;
    void *user;
    uint64_t n_made;
    mica_finish finish;
    mica_stats *stats;
} generation;

/* The model's token at position pos from `logits`; the session's ids before pos are its history. */
static mica_status choose(const generation *g, const float *logits, uint64_t pos, int32_t *id,
                          mica_error *err) {
    return sampler_pick(g->s->m->pick,
                        &(sample_args){.logits = logits,
                                       .p = g->sampling,
                                       .history = session_ids(g->s->s),
                                       .n_history = pos,
                                       .pos = pos},
                        id, err);
}

/* Gives a token out. False when it was the last: g->finish says why. */
static bool emit(generation *g, int32_t id) {
    if (!g->opt->ignore_end && text_vocab_ends(g->s->m->vocab, id)) {
        g->finish = MICA_FINISH_STOP;
        return false;
    }
    g->n_made++;
    bool more = !g->on_token || g->on_token(g->user, id);
    bool full = g->opt->n_predict >= 0 && g->n_made >= (uint64_t)g->opt->n_predict;
    if (!more)
        g->finish = MICA_FINISH_STOP;
    else if (full)
        g->finish = MICA_FINISH_LENGTH;
    return g->finish == MICA_FINISH_NONE;
}

/* A draft is chosen as the model's own token would be, with the same number: it then agrees more often. */
static bool pick_draft(void *user, const float *logits, uint64_t pos, int32_t *id) {
    const generation *g = user;
    mica_sampling p = *g->sampling;
    p.repeat_penalty = 1.0f; // the history holds no drafts
    p.presence_penalty = p.frequency_penalty = 0.0f;
    sample_args a = {.logits = logits, .p = &p, .pos = pos};
    if (sampler_pick(g->s->m->pick, &a, id, NULL) != MICA_OK) return false;
    if (g->opt->draft_min_p <= 0.0f) return true;
    float sum = 0.0f;
    for (uint32_t i = 0; i < g->s->m->info.n_vocab; i++) sum += expf(logits[i] - logits[*id]);
    return 1.0f / sum >= g->opt->draft_min_p;
}

/* How many drafts may follow `next`: what the user allows, what is left to make, what the context holds. */
static uint32_t draft_room(const generation *g) {
    int64_t n = g->opt->n_draft < WINDOW_MAX ? g->opt->n_draft : WINDOW_MAX - 1;
    int64_t context = (int64_t)g->s->m->info.n_ctx - (int64_t)session_length(g->s->s) - 1;
    int64_t make = g->opt->n_predict < 0 ? n : g->opt->n_predict - (int64_t)g->n_made - 1;
    if (context < n) n = context;
    if (make < n) n = make;
    return n > 0 ? (uint32_t)n : 0;
}

static mica_status find_drafts(generation *g, int32_t next, int32_t *drafts, uint32_t *n_draft,
                               mica_error *err) {
    uint32_t room = draft_room(g);
    *n_draft = 0;
    if (room == 0) return MICA_OK;
    session_draft_args a = {.next = next, .n_max = room, .pick = pick_draft, .user = g};
    TRY(session_draft(g->s->s, &a, drafts, n_draft, err));
    if (*n_draft == 0) *n_draft = session_lookup(g->s->s, next, room, drafts);
    return MICA_OK;
}

/* Appends `next` and what drafts agree with the model, giving each token out; *next becomes the token after
 * them. */
static mica_status advance(generation *g, int32_t *next, mica_error *err) {
    session *s = g->s->s;
    int32_t window[WINDOW_MAX];
    uint32_t n_draft, n_keep = 0;
    window[0] = *next;
    TRY(find_drafts(g, *next, window + 1, &n_draft, err));
    if (n_draft == 0) {
        TRY(session_append(s, *next, err));
        TRY(choose(g, session_logits(s), session_length(s), next, err));
        emit(g, *next);
        return MICA_OK;
    }
    uint64_t base = session_length(s);
    TRY(session_window(s, window, n_draft + 1, err));
    for (bool agreed = true; agreed; n_keep++) {
        TRY(choose(g, session_window_logits(s, n_keep), base + n_keep + 1, next, err));
        agreed = emit(g, *next) && n_keep < n_draft && *next == window[n_keep + 1];
    }
    g->stats->draft_windows++;
    g->stats->n_drafted += n_draft;
    g->stats->n_accepted += n_keep - 1;
    return session_accept(s, n_keep, err);
}

static mica_status make_tokens(generation *g, mica_error *err) {
    int32_t next;
    if (g->opt->n_predict == 0) {
        g->finish = MICA_FINISH_LENGTH;
        return MICA_OK;
    }
    TRY(choose(g, session_logits(g->s->s), session_length(g->s->s), &next, err));
    emit(g, next);
    while (g->finish == MICA_FINISH_NONE) {
        if (g->opt->cancel && g->opt->cancel->set)
            g->finish = MICA_FINISH_CANCELLED;
        else if (session_length(g->s->s) >= g->s->m->info.n_ctx)
            g->finish = MICA_FINISH_LENGTH;
        else
            TRY(advance(g, &next, err));
    }
    return MICA_OK;
}

mica_status mica_generate(mica_session *s, const int32_t *ids, size_t n, const mica_generate_options *opt,
                          mica_token_fn *on_token, void *user, mica_finish *finish, mica_stats *stats,
                          mica_error *err) {
    static const mica_generate_options none = {.n_predict = -1};
    mica_stats t = {.n_prompt = n, .expert_hit_rate = 1.0};
    generation g = {.s = s, .opt = opt ? opt : &none, .on_token = on_token, .user = user, .stats = &t};
    size_t n_cached = 0;
    if (finish) *finish = MICA_FINISH_NONE;
    if (stats) *stats = t;
    g.sampling = g.opt->sampling ? g.opt->sampling : &s->m->info.sampling;
    TRY(sampling_check(g.sampling, s->m->info.n_vocab, err));
    TRY(api_check_media(s->m, ids, n, err));
    session_sync_args a = {.ids = ids, .n = n, .cancel = g.opt->cancel};
    a.progress = g.opt->progress;
    a.progress_user = g.opt->progress_user;
    uint64_t start = clock_ns();
    mica_status st = session_sync(s->s, &a, &n_cached, err);
    t.n_cached = n_cached;
    t.prompt_ms = clock_ms_since(start);
    start = clock_ns();
    if (st == MICA_OK) st = make_tokens(&g, err);
    t.decode_ms = clock_ms_since(start);
    t.n_generated = g.n_made;
    if (finish) *finish = g.finish;
    if (stats) *stats = t;
    return st;
}
