/* Keeping a timeline: what is cached, what must be read. */
#include "run/session.h"

#include "base/mem.h"

#include <string.h>

struct session {
    engine *e;       // borrowed
    int32_t slot;
    int32_t *ids;    // owned, [n_ctx]
    size_t n;        // tokens whose rows are in the cache
    size_t n_prompt; // of these, the leading ones that are all prompt role
    float *logits;   // owned, [n_vocab], after the last token
    row_info *rows;  // owned, [row_max]
    bool has_logits;
};

mica_status session_new(session **out, engine *e, uint32_t slot, mica_error *err) {
    *out = NULL;
    uint32_t n_ctx = engine_plan_of(e)->n_ctx, n_vocab = engine_shape(e)->n_vocab;
    session *s = mem_calloc(1, sizeof *s);
    if (!s) return fail(err, MICA_E_NOMEM, "session: out of memory");
    *s = (session){.e = e, .slot = (int32_t)slot};
    s->ids = mem_calloc(n_ctx, sizeof *s->ids);
    s->logits = mem_alloc(n_vocab * sizeof *s->logits);
    s->rows = mem_calloc(engine_row_max(e), sizeof *s->rows);
    if (!s->ids || !s->logits || !s->rows) {
        session_free(s);
        return fail(err, MICA_E_NOMEM, "session: context of %u tokens: out of memory", n_ctx);
    }
    *out = s;
    return MICA_OK;
}

void session_free(session *s) {
    if (!s) return;
    mem_free(s->ids);
    mem_free(s->logits);
    mem_free(s->rows);
    mem_free(s);
}

static mica_status check_ids(const session *s, const int32_t *ids, size_t n, mica_error *err) {
    uint32_t n_ctx = engine_plan_of(s->e)->n_ctx, n_vocab = engine_shape(s->e)->n_vocab;
    if (n == 0) return fail(err, MICA_E_ARG, "prompt: empty: at least one token is needed");
    if (n > n_ctx)
        return fail(err, MICA_E_ARG, "prompt: %zu tokens: longer than the context of %u tokens (--context)", n, n_ctx);
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0 || (uint32_t)ids[i] >= n_vocab)
            return fail(err, MICA_E_ARG, "prompt: token %zu: id %d: the vocabulary has %u", i, ids[i], n_vocab);
    }
    return MICA_OK;
}

/* How many leading tokens of ids the cache already holds in a role that may be shared. At least one is left to read: its
 * logits are wanted. */
static size_t shared_prefix(const session *s, const session_sync_args *a) {
    size_t most = a->reuse_generated ? s->n : s->n_prompt, k = 0;
    if (most >= a->n) most = a->n - 1;
    while (k < most && s->ids[k] == a->ids[k]) k++;
    return k;
}

/* Reads ids[s->n, s->n + n_row) in one step of the prompt role. */
static mica_status read_chunk(session *s, const session_sync_args *a, uint32_t n_row, mica_error *err) {
    size_t begin = s->n;
    for (uint32_t i = 0; i < n_row; i++) {
        size_t pos = begin + i;
        bool last = pos + 1 == a->n;
        s->rows[i] = (row_info){.tok = a->ids[pos], .seq = s->slot, .pos = (int32_t)pos, .out = -1};
        if (a->on_logits) s->rows[i].out = (int32_t)i;
        else if (last) s->rows[i].out = 0;
    }
    s->has_logits = false;
    TRY(engine_step(s->e, s->rows, n_row, n_row, err));
    memcpy(s->ids + begin, a->ids + begin, n_row * sizeof *s->ids);
    s->n = s->n_prompt = begin + n_row;
    for (uint32_t i = 0; a->on_logits && i < n_row; i++) {
        TRY(a->on_logits(a->logits_user, begin + i, engine_logits(s->e, i), err));
    }
    if (s->n < a->n) return MICA_OK;
    memcpy(s->logits, engine_logits(s->e, a->on_logits ? n_row - 1 : 0), engine_shape(s->e)->n_vocab * sizeof(float));
    s->has_logits = true;
    return MICA_OK;
}

mica_status session_sync(session *s, const session_sync_args *a, size_t *n_cached, mica_error *err) {
    if (n_cached) *n_cached = 0;
    TRY(check_ids(s, a->ids, a->n, err));
    size_t keep = shared_prefix(s, a), chunk = engine_ubatch(s->e);
    if (a->on_logits && chunk > engine_out_max(s->e)) chunk = engine_out_max(s->e);
    if (n_cached) *n_cached = keep;
    s->n = keep;
    if (s->n_prompt > keep) s->n_prompt = keep;
    s->has_logits = false;
    while (s->n < a->n) {
        if (a->cancel && a->cancel->set) return fail(err, MICA_E_CANCELLED, "prompt: cancelled after %zu tokens", s->n);
        size_t left = a->n - s->n;
        if (a->progress) a->progress(a->progress_user, "prompt", s->n - keep, a->n - keep);
        TRY(read_chunk(s, a, (uint32_t)(left < chunk ? left : chunk), err));
    }
    if (a->progress) a->progress(a->progress_user, "prompt", a->n - keep, a->n - keep);
    return MICA_OK;
}

mica_status session_append(session *s, int32_t id, mica_error *err) { return session_append_batch(&s, &id, 1, err); }

mica_status session_append_batch(session *const *s, const int32_t *ids, size_t n, mica_error *err) {
    engine *e = s[0]->e;
    uint32_t n_ctx = engine_plan_of(e)->n_ctx, n_vocab = engine_shape(e)->n_vocab;
    row_info *rows = s[0]->rows;
    if (n > engine_out_max(e)) return fail(err, MICA_E_ARG, "batch: %zu sessions: at most %u", n, engine_out_max(e));
    for (size_t i = 0; i < n; i++) {
        if (s[i]->e != e) return fail(err, MICA_E_ARG, "batch: session %zu: of another model", i);
        if (ids[i] < 0 || (uint32_t)ids[i] >= n_vocab)
            return fail(err, MICA_E_ARG, "batch: id %d: the vocabulary has %u", ids[i], n_vocab);
        if (s[i]->n >= n_ctx) return fail(err, MICA_E_ARG, "context: all %u tokens are used (--context)", n_ctx);
        for (size_t j = 0; j < i; j++) {
            if (s[j] == s[i]) return fail(err, MICA_E_ARG, "batch: session %zu: twice in one step", i);
        }
        rows[i] = (row_info){.tok = ids[i], .seq = s[i]->slot, .pos = (int32_t)s[i]->n, .out = (int32_t)i};
    }
    for (size_t i = 0; i < n; i++) s[i]->has_logits = false;
    TRY(engine_step(e, rows, (uint32_t)n, 0, err));
    for (size_t i = 0; i < n; i++) {
        s[i]->ids[s[i]->n++] = ids[i];
        memcpy(s[i]->logits, engine_logits(e, (uint32_t)i), n_vocab * sizeof(float));
        s[i]->has_logits = true;
    }
    return MICA_OK;
}

void session_clear(session *s) {
    s->n = s->n_prompt = 0;
    s->has_logits = false;
}

size_t session_length(const session *s) { return s->n; }
const int32_t *session_ids(const session *s) { return s->ids; }
const float *session_logits(const session *s) { return s->has_logits ? s->logits : NULL; }
engine *session_engine(const session *s) { return s->e; }
