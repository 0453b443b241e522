/* Keeping a timeline: what is cached, what must be read. */
#include "run/session_int.h"

#include "base/mem.h"

#include <string.h>

enum { SNAPSHOT_EVERY = 1024 }; // prompt tokens between snapshots, the one at the prompt's end apart

static mica_status take_snapshots(session *s, mica_error *err) {
    size_t n_state = engine_state_bytes(s->e) / sizeof(float), n_vocab = engine_shape(s->e)->n_vocab;
    s->n_snap = engine_snapshots(s->e);
    if (s->n_snap == 0) return MICA_OK;
    s->snap = mem_calloc(s->n_snap, sizeof *s->snap);
    s->pool = mem_pages_alloc(s->n_snap * (n_state + n_vocab) * sizeof(float));
    if (!s->snap || !s->pool) return fail(err, MICA_E_NOMEM, "session: snapshots: out of memory");
    for (uint32_t i = 0; i < s->n_snap; i++) {
        s->snap[i].state = s->pool + i * (n_state + n_vocab);
        s->snap[i].logits = s->snap[i].state + n_state;
    }
    return MICA_OK;
}

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
    mica_status st = take_snapshots(s, err);
    if (st == MICA_OK)
        st = engine_state_load(e, s->slot, NULL, err); // whoever had the slot before is forgotten
    if (st != MICA_OK) {
        session_free(s);
        return st;
    }
    *out = s;
    return MICA_OK;
}

void session_free(session *s) {
    if (!s) return;
    mem_free(s->ids);
    mem_free(s->logits);
    mem_free(s->snap);
    mem_pages_free(s->pool);
    mem_free(s->rows);
    mem_free(s);
}

static mica_status check_ids(const session *s, const int32_t *ids, size_t n, mica_error *err) {
    uint32_t n_ctx = engine_plan_of(s->e)->n_ctx, n_vocab = engine_shape(s->e)->n_vocab;
    if (n == 0) return fail(err, MICA_E_ARG, "prompt: empty: at least one token is needed");
    if (n > n_ctx)
        return fail(err, MICA_E_ARG, "prompt: %zu tokens: longer than the context of %u tokens (--context)",
                    n, n_ctx);
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0 || (uint32_t)ids[i] >= n_vocab)
            return fail(err, MICA_E_ARG, "prompt: token %zu: id %d: the vocabulary has %u", i, ids[i],
                        n_vocab);
    }
    return MICA_OK;
}

/* How many leading tokens of ids the cache already holds in a role that may be shared. */
static size_t shared_prefix(const session *s, const session_sync_args *a) {
    size_t most = a->reuse_generated ? s->n : s->n_prompt, k = 0;
    if (most > a->n) most = a->n;
    while (k < most && s->ids[k] == a->ids[k]) k++;
    return k;
}

/* The snapshot of the longest prefix of at most n tokens that the cache can still be cut to; NULL: none. */
static snapshot *snapshot_find(session *s, size_t n) {
    size_t least = engine_rewind_min(s->e, s->slot);
    snapshot *best = NULL;
    for (uint32_t i = 0; i < s->n_snap; i++) {
        snapshot *p = &s->snap[i];
        if (p->n > 0 && p->n >= least && p->n <= n && (!best || p->n > best->n)) best = p;
    }
    return best;
}

/* The slot to write: a free one, else the one whose loss leaves the smallest hole between its neighbours. */
static snapshot *snapshot_slot(session *s) {
    snapshot *best = NULL;
    size_t best_hole = SIZE_MAX;
    for (uint32_t i = 0; i < s->n_snap; i++) {
        size_t n = s->snap[i].n, below = 0, above = SIZE_MAX;
        if (n == 0) return &s->snap[i];
        for (uint32_t j = 0; j < s->n_snap; j++) {
            size_t m = s->snap[j].n;
            if (m < n && m > below) below = m;
            if (m > n && m < above) above = m;
        }
        size_t hole = above == SIZE_MAX ? SIZE_MAX - 1 : above - below; // the latest is worth most
        if (hole < best_hole) best_hole = hole, best = &s->snap[i];
    }
    return best;
}

/* Remembers the state after the present tokens. */
static mica_status snapshot_put(session *s, mica_error *err) {
    if (s->n_snap == 0 || s->n_prompt != s->n) return MICA_OK; // generated rows are no prefix to come back to
    snapshot *old = snapshot_find(s, s->n), *p = old && old->n == s->n ? old : snapshot_slot(s);
    p->n = 0;
    TRY(engine_state_save(s->e, s->slot, p->state, err));
    p->has_logits = s->has_logits;
    if (s->has_logits) memcpy(p->logits, s->logits, engine_shape(s->e)->n_vocab * sizeof(float));
    p->n = s->n;
    return MICA_OK;
}

/* Brings cache and state to the longest usable prefix of at most `shared` tokens. The last of all n tokens is
 * read again for its logits, unless a snapshot has them. */
static mica_status rewind_to(session *s, size_t shared, size_t n, mica_error *err) {
    size_t keep = shared < n ? shared : n - 1;
    if (keep < engine_rewind_min(s->e, s->slot)) keep = shared = 0;
    snapshot *p = snapshot_find(s, shared);
    s->has_logits = false;
    for (uint32_t i = 0; i < s->n_snap; i++) {
        if (s->snap[i].n > shared) s->snap[i].n = 0; // of another text
    }
    if (engine_has_state(s->e)) {
        bool whole = p && p->n == n && p->has_logits;
        if (p && p->n == n && !whole) p = snapshot_find(s, keep);
        if (whole || s->n_state != keep) {
            keep = p ? p->n : 0;
            s->n_state = NO_STATE;
            TRY(engine_state_load(s->e, s->slot, p ? p->state : NULL, err));
        }
        if (whole) memcpy(s->logits, p->logits, engine_shape(s->e)->n_vocab * sizeof(float));
        s->has_logits = whole;
    }
    s->n = s->n_state = keep;
    if (s->n_prompt > keep) s->n_prompt = keep;
    return MICA_OK;
}

/* Reads ids[s->n, s->n + n_row) in one step of the prompt role. */
static mica_status read_chunk(session *s, const session_sync_args *a, uint32_t n_row, mica_error *err) {
    size_t begin = s->n;
    for (uint32_t i = 0; i < n_row; i++) {
        size_t pos = begin + i;
        bool last = pos + 1 == a->n;
        s->rows[i] = (row_info){.tok = a->ids[pos], .seq = s->slot, .pos = (int32_t)pos, .out = -1};
        if (a->on_logits)
            s->rows[i].out = (int32_t)i;
        else if (last)
            s->rows[i].out = 0;
    }
    s->has_logits = false;
    s->n_state = NO_STATE;
    TRY(engine_step(s->e, s->rows, n_row, n_row, err));
    memcpy(s->ids + begin, a->ids + begin, n_row * sizeof *s->ids);
    if (s->n_prompt == begin) s->n_prompt = begin + n_row;
    s->n = s->n_state = begin + n_row;
    for (uint32_t i = 0; a->on_logits && i < n_row; i++) {
        TRY(a->on_logits(a->logits_user, begin + i, engine_logits(s->e, i), err));
    }
    if (s->n < a->n) return MICA_OK;
    memcpy(s->logits, engine_logits(s->e, a->on_logits ? n_row - 1 : 0),
           engine_shape(s->e)->n_vocab * sizeof(float));
    s->has_logits = true;
    return MICA_OK;
}

mica_status session_sync(session *s, const session_sync_args *a, size_t *n_cached, mica_error *err) {
    if (n_cached) *n_cached = 0;
    TRY(check_ids(s, a->ids, a->n, err));
    size_t chunk = engine_ubatch(s->e);
    if (a->on_logits && chunk > engine_out_max(s->e)) chunk = engine_out_max(s->e);
    TRY(rewind_to(s, shared_prefix(s, a), a->n, err));
    size_t keep = s->n, marked = s->n;
    if (n_cached) *n_cached = keep;
    while (s->n < a->n) {
        if (a->cancel && a->cancel->set)
            return fail(err, MICA_E_CANCELLED, "prompt: cancelled after %zu tokens", s->n);
        size_t left = a->n - s->n;
        if (a->progress) a->progress(a->progress_user, "prompt", s->n - keep, a->n - keep);
        TRY(read_chunk(s, a, (uint32_t)(left < chunk ? left : chunk), err));
        if (s->n - marked < SNAPSHOT_EVERY && s->n < a->n) continue;
        TRY(snapshot_put(s, err));
        marked = s->n;
    }
    if (a->progress) a->progress(a->progress_user, "prompt", a->n - keep, a->n - keep);
    return MICA_OK;
}

mica_status session_append(session *s, int32_t id, mica_error *err) {
    return session_append_batch(&s, &id, 1, err);
}

mica_status session_append_batch(session *const *s, const int32_t *ids, size_t n, mica_error *err) {
    engine *e = s[0]->e;
    uint32_t n_ctx = engine_plan_of(e)->n_ctx, n_vocab = engine_shape(e)->n_vocab;
    row_info *rows = s[0]->rows;
    if (n > engine_out_max(e))
        return fail(err, MICA_E_ARG, "batch: %zu sessions: at most %u", n, engine_out_max(e));
    for (size_t i = 0; i < n; i++) {
        if (s[i]->e != e) return fail(err, MICA_E_ARG, "batch: session %zu: of another model", i);
        if (ids[i] < 0 || (uint32_t)ids[i] >= n_vocab)
            return fail(err, MICA_E_ARG, "batch: id %d: the vocabulary has %u", ids[i], n_vocab);
        if (s[i]->n >= n_ctx)
            return fail(err, MICA_E_ARG, "context: all %u tokens are used (--context)", n_ctx);
        for (size_t j = 0; j < i; j++) {
            if (s[j] == s[i]) return fail(err, MICA_E_ARG, "batch: session %zu: twice in one step", i);
        }
        rows[i] = (row_info){.tok = ids[i], .seq = s[i]->slot, .pos = (int32_t)s[i]->n, .out = (int32_t)i};
    }
    for (size_t i = 0; i < n; i++) {
        s[i]->has_logits = false;
        s[i]->n_state = NO_STATE;
    }
    TRY(engine_step(e, rows, (uint32_t)n, 0, err));
    for (size_t i = 0; i < n; i++) {
        TRY(engine_accept(e, s[i]->slot, 1, err));
        s[i]->n_accepted = 1;
        s[i]->step = engine_step_count(e);
        s[i]->ids[s[i]->n++] = ids[i];
        s[i]->n_state = s[i]->n;
        memcpy(s[i]->logits, engine_logits(e, (uint32_t)i), n_vocab * sizeof(float));
        s[i]->has_logits = true;
    }
    return MICA_OK;
}

/* ---- windows and drafts ---- */

mica_status session_window(session *s, const int32_t *ids, uint32_t n, mica_error *err) {
    uint32_t n_ctx = engine_plan_of(s->e)->n_ctx, n_vocab = engine_shape(s->e)->n_vocab;
    if (n == 0 || n > WINDOW_MAX)
        return fail(err, MICA_E_ARG, "window: %u tokens: between 1 and %d", n, WINDOW_MAX);
    if (s->n + n > n_ctx) return fail(err, MICA_E_ARG, "context: all %u tokens are used (--context)", n_ctx);
    for (uint32_t i = 0; i < n; i++) {
        if (ids[i] < 0 || (uint32_t)ids[i] >= n_vocab)
            return fail(err, MICA_E_ARG, "window: id %d: the vocabulary has %u", ids[i], n_vocab);
        s->rows[i] = (row_info){.tok = ids[i], .seq = s->slot, .pos = (int32_t)(s->n + i), .out = (int32_t)i};
    }
    s->has_logits = false;
    s->n_state = NO_STATE;
    TRY(engine_step(s->e, s->rows, n, 0, err));
    memcpy(s->ids + s->n, ids, n * sizeof *ids);
    s->n += n;
    s->n_window = n;
    return MICA_OK;
}

const float *session_window_logits(const session *s, uint32_t i) {
    return engine_logits(s->e, i);
}

mica_status session_accept(session *s, uint32_t n_keep, mica_error *err) {
    memcpy(s->logits, engine_logits(s->e, n_keep - 1), engine_shape(s->e)->n_vocab * sizeof(float));
    s->n -= s->n_window - n_keep;
    s->n_state = s->n;
    s->n_window = 0;
    s->n_accepted = n_keep;
    s->step = engine_step_count(s->e);
    s->has_logits = true;
    return engine_accept(s->e, s->slot, n_keep, err);
}

/* The pairs that became known with `next`: for every row of the last step that happened, or only the last
 * when the engine has made another step since. */
static uint32_t known_pairs(const session *s, int32_t next, draft_row *rows) {
    bool fresh = s->step == engine_step_count(s->e) && s->n_accepted > 1;
    uint32_t n = fresh ? s->n_accepted : 1;
    for (uint32_t i = 0; i < n; i++) {
        size_t pos = s->n - n + i;
        rows[i] = (draft_row){.tok = i + 1 < n ? s->ids[pos + 1] : next, .seq = s->slot, .pos = (int32_t)pos};
        rows[i].h_row = i + 1 < n ? engine_row_of(s->e, s->slot) + (int32_t)i : DRAFT_KEPT;
        rows[i].want = i + 1 == n;
    }
    return n;
}

mica_status session_draft(session *s, const session_draft_args *a, int32_t *drafts, uint32_t *n_draft,
                          mica_error *err) {
    draft_row rows[WINDOW_MAX];
    uint32_t n_max = a->n_max < WINDOW_MAX ? a->n_max : WINDOW_MAX - 1;
    *n_draft = 0;
    if (!engine_drafts(s->e) || s->n == 0 || n_max == 0) return MICA_OK;
    uint32_t n = known_pairs(s, a->next, rows);
    for (bool chain = false;; chain = true) {
        TRY(engine_draft(s->e, rows, n, chain, err));
        uint64_t pos = s->n + 1 + *n_draft;
        if (!a->pick(a->user, engine_logits(s->e, 0), pos, &drafts[*n_draft])) return MICA_OK;
        if (++*n_draft == n_max) return MICA_OK;
        rows[0] =
            (draft_row){.tok = drafts[*n_draft - 1], .seq = s->slot, .pos = (int32_t)pos - 1, .want = true};
        n = 1;
    }
}

enum { LOOKUP_GRAM = 3, LOOKUP_REACH = 8192 }; // tokens that must agree; how far back is looked

uint32_t session_lookup(const session *s, int32_t next, uint32_t n_max, int32_t *drafts) {
    if (s->n < LOOKUP_GRAM) return 0;
    size_t first = s->n > LOOKUP_REACH ? s->n - LOOKUP_REACH : 0;
    for (size_t at = s->n; at-- > first + LOOKUP_GRAM - 1;) { // at: where `next` stood before
        if (s->ids[at] != next) continue;
        size_t k = 1;
        while (k < LOOKUP_GRAM && s->ids[at - k] == s->ids[s->n - k]) k++;
        if (k < LOOKUP_GRAM) continue;
        uint32_t n = 0;
        while (n < n_max && at + 1 + n < s->n) {
            drafts[n] = s->ids[at + 1 + n];
            n++;
        }
        return n;
    }
    return 0;
}

void session_clear(session *s) {
    s->n = s->n_prompt = 0;
    s->has_logits = false;
    for (uint32_t i = 0; i < s->n_snap; i++) s->snap[i].n = 0;
    s->n_state = NO_STATE;
}

size_t session_length(const session *s) {
    return s->n;
}
const int32_t *session_ids(const session *s) {
    return s->ids;
}
const float *session_logits(const session *s) {
    return s->has_logits ? s->logits : NULL;
}
engine *session_engine(const session *s) {
    return s->e;
}
