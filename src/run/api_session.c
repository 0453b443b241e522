/* Sessions, as the public header promises them. Steps and generation are in api_step.c. */
#include "run/api_int.h"

#include "base/mem.h"

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
    s->draft_hit = 2.0; // a guess, soon forgotten
    s->draft_miss = 1.0;
    mica_status st = session_new(&s->s, m->e, slot, err);
    if (st != MICA_OK) {
        mem_free(s);
        return st;
    }
    session_cache(s->s, m->cache);
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

void api_session_restart(mica_session *s) {
    s->has_next = false;
    s->n_made = 0;
    s->finish = MICA_FINISH_NONE;
}

mica_status mica_session_sync(mica_session *s, const int32_t *ids, size_t n, size_t *n_cached,
                              mica_cancel_flag *cancel, mica_progress_fn *progress, void *user,
                              mica_error *err) {
    session_sync_args a = {.ids = ids, .n = n, .cancel = cancel, .progress = progress, .progress_user = user};
    if (n_cached) *n_cached = 0;
    TRY(api_check_media(s->m, ids, n, err));
    api_session_restart(s);
    return session_sync(s->s, &a, n_cached, err);
}

mica_status mica_session_decode(mica_session *s, int32_t id, mica_error *err) {
    api_session_restart(s);
    return session_append(s->s, id, err);
}

mica_status mica_decode_batch(mica_session *const *s, const int32_t *id, size_t n, mica_error *err) {
    if (n == 0) return MICA_OK;
    mica_model *m = s[0]->m;
    if (n > m->info.n_seq)
        return fail(err, MICA_E_ARG, "batch: %zu sessions: the model has %u", n, m->info.n_seq);
    for (size_t i = 0; i < n; i++) {
        api_session_restart(s[i]);
        m->batch[i] = s[i]->s;
    }
    return session_append_batch(m->batch, id, n, err);
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
