/* Keeping a timeline: what is cached, what must be read. */
#include "run/session_int.h"

#include "base/clock.h"
#include "base/mem.h"

#include <assert.h>
#include <string.h>

/* Prompt tokens between snapshots, those at marks and at the prompt's end apart: as far apart as their bytes
 * are worth in the cache of tokens, within limits. */
enum { SNAPSHOT_EVERY_MIN = 1024, SNAPSHOT_EVERY_MAX = 8192 };

static size_t snapshot_every(const engine *e) {
    size_t page = engine_page_bytes(e, KV_PAGE);
    size_t n = page ? engine_state_bytes(e) / page * KV_PAGE : 0;
    return n < SNAPSHOT_EVERY_MIN ? SNAPSHOT_EVERY_MIN : n > SNAPSHOT_EVERY_MAX ? SNAPSHOT_EVERY_MAX : n;
}

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
    *s = (session){.e = e, .slot = (int32_t)slot, .place = PREFIX_NONE, .n_every = snapshot_every(e)};
    s->ids = mem_calloc(n_ctx, sizeof *s->ids);
    s->logits = mem_alloc(n_vocab * sizeof *s->logits);
    s->rows = mem_calloc(engine_row_max(e), sizeof *s->rows);
    s->n_part = engine_out_max(e) / WINDOW_MAX;
    s->parts = mem_calloc(s->n_part, sizeof *s->parts);
    bool ok = s->ids && s->logits && s->rows && s->parts;
    if (ok && engine_drafts(e)) {
        s->pairs = mem_calloc(engine_out_max(e), sizeof *s->pairs);
        ok = s->pairs != NULL;
    }
    if (!ok) {
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

void session_cache(session *s, prefix *cache) {
    s->cache = cache;
}

/* The session stands nowhere in the cache's tree: it takes nothing from it and gives nothing. */
static void leave_cache(session *s) {
    if (s->cache) prefix_leave(s->cache, s->place);
    s->place = PREFIX_NONE;
}

void session_free(session *s) {
    if (!s) return;
    leave_cache(s);
    mem_free(s->ids);
    mem_free(s->logits);
    mem_free(s->snap);
    mem_pages_free(s->pool);
    mem_free(s->rows);
    mem_free(s->parts);
    mem_free(s->pairs);
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
static size_t shared_prefix(const session *s, const session_begin_args *a) {
    size_t most = a->cold ? 0 : a->reuse_generated ? s->n : s->n_prompt, k = 0;
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

/* The session's own snapshot of the state after the present tokens. */
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

static void set_marks(session *s, const session_begin_args *a) {
    s->n_mark = 0;
    for (size_t i = a->n_marks; i-- > 0 && s->n_mark < SESSION_MARKS;) {
        if (a->marks[i] <= s->n) break;
        if (a->marks[i] < a->n) s->mark[s->n_mark++] = a->marks[i];
    }
}

/* Cache and state come from the prefix cache: n_own rows are the text's already. */
static mica_status restore(session *s, const prefix_match *m, size_t n_own, mica_error *err) {
    s->n = s->n_prompt = 0;
    s->n_state = NO_STATE;
    s->has_logits = false;
    TRY(prefix_restore(s->cache, m, s->slot, n_own, s->logits, err));
    s->n = s->n_prompt = s->n_state = m->n;
    s->has_logits = m->has_logits;
    return MICA_OK;
}

/* How many tokens the session's own rows and state would keep, as rewind_to does it without snapshots. */
static size_t own_reach(const session *s, size_t shared, size_t n) {
    size_t keep = shared < n ? shared : n - 1;
    if (keep < engine_rewind_min(s->e, s->slot)) return 0;
    return engine_has_state(s->e) && s->n_state != keep ? 0 : keep;
}

/* The state becomes the longest prefix that is to be had: the session's own, or the cache's. */
static mica_status rewind_or_restore(session *s, const session_begin_args *a, session_reuse *r,
                                     mica_error *err) {
    size_t shared = shared_prefix(s, a);
    prefix_match m;
    leave_cache(s);
    if (!s->cache || a->no_cache) {
        TRY(rewind_to(s, shared, a->n, err));
        *r = (session_reuse){.n_own = s->n};
        return MICA_OK;
    }
    prefix_find(s->cache, a->ids, a->n, &m);
    *r = (session_reuse){.noise_at = m.noise_at, .n_noise = m.n_noise, .n_after = m.n_after};
    if (m.n > own_reach(s, shared, a->n)) {
        size_t rows = shared < s->n_prompt ? shared : s->n_prompt;
        TRY(restore(s, &m, rows >= engine_rewind_min(s->e, s->slot) ? rows : 0, err));
        r->n_disk = m.n_disk < m.n ? m.n_disk : m.n;
        r->n_ram = m.n - r->n_disk;
    } else {
        TRY(rewind_to(s, shared, a->n, err));
        r->n_own = s->n;
    }
    if (s->n_prompt == s->n)
        s->place = prefix_enter(s->cache, m.page, s->n); // generated rows are never given
    return MICA_OK;
}

mica_status session_begin(session *s, const session_begin_args *a, session_reuse *reuse, mica_error *err) {
    session_reuse r = {0};
    if (reuse) *reuse = r;
    TRY(check_ids(s, a->ids, a->n, err));
    s->n_window = s->n_accepted = 0; // rows of the text before are none of this one's
    s->n_target = 0;
    TRY(rewind_or_restore(s, a, &r, err));
    memmove(s->ids, a->ids, a->n * sizeof *s->ids); // they may be its own
    s->n_target = a->n;
    s->n_marked = s->n;
    set_marks(s, a);
    if (reuse) *reuse = r;
    return MICA_OK;
}

/* Gives the cache what was read: whole pages, and at `stop` (a mark, the prompt's end) the page so far and
 * the state. */
static mica_status give_to_cache(session *s, bool stop, mica_error *err) {
    uint32_t node = PREFIX_NONE;
    while (s->place != PREFIX_NONE) {
        uint32_t page = prefix_pages(s->cache, s->place);
        size_t at = (size_t)page * KV_PAGE, left = s->n - at;
        if (left < KV_PAGE && (!stop || left == 0)) break;
        prefix_piece piece = {.place = s->place, .seq = s->slot, .tokens = s->ids + at};
        piece.n_tok = left < KV_PAGE ? (uint32_t)left : KV_PAGE;
        node = PREFIX_NONE;
        if (engine_page_held(s->e, s->slot, page)) TRY(prefix_put(s->cache, &piece, &node, err));
        if (left >= KV_PAGE || node == PREFIX_NONE) {
            leave_cache(s);
            if (node != PREFIX_NONE) s->place = prefix_enter(s->cache, node, s->n);
        }
        if (left <= KV_PAGE) break;
    }
    if (!stop || !engine_has_state(s->e) || node == PREFIX_NONE) return MICA_OK;
    prefix_state x = {.node = node, .seq = s->slot, .logits = s->has_logits ? s->logits : NULL};
    x.n_tok = (uint32_t)((s->n - 1) % KV_PAGE + 1);
    return prefix_put_state(s->cache, &x, err);
}

size_t session_pending(const session *s) {
    return s->n_target > s->n ? s->n_target - s->n : 0;
}

chunk_pace *session_pace(session *s) {
    return &s->pace;
}

uint32_t session_chunk(const session *s, uint32_t n_max) {
    size_t end = s->n_target > s->n ? s->n_target : s->n;
    for (uint32_t i = 0; engine_has_state(s->e) && i < s->n_mark; i++) {
        if (s->mark[i] > s->n && s->mark[i] < end) end = s->mark[i];
    }
    return end - s->n < n_max ? (uint32_t)(end - s->n) : n_max;
}

/* ---- the step ---- */

static mica_status check_part(const session_part *p, mica_error *err) {
    session *s = p->s;
    uint32_t n_ctx = engine_plan_of(s->e)->n_ctx, n_vocab = engine_shape(s->e)->n_vocab;
    if (s->taken) return fail(err, MICA_E_ARG, "batch: a session stands twice in one step");
    if (!p->ids) {
        assert(p->n > 0 && p->n <= session_pending(s));
        return MICA_OK;
    }
    if (p->n == 0 || p->n > WINDOW_MAX)
        return fail(err, MICA_E_ARG, "window: %u tokens: between 1 and %d", p->n, WINDOW_MAX);
    if (s->n + p->n > n_ctx)
        return fail(err, MICA_E_ARG, "context: all %u tokens are used (--context)", n_ctx);
    for (uint32_t i = 0; i < p->n; i++) {
        if (p->ids[i] < 0 || (uint32_t)p->ids[i] >= n_vocab)
            return fail(err, MICA_E_ARG, "batch: id %d: the vocabulary has %u", p->ids[i], n_vocab);
    }
    return MICA_OK;
}

static mica_status check_parts(session_part *parts, size_t n, mica_error *err) {
    mica_status st = MICA_OK;
    uint32_t n_row = 0, row_max = engine_row_max(parts[0].s->e);
    size_t i = 0;
    for (; i < n; i++) {
        session_part *p = &parts[i];
        n_row += p->n;
        if (p->s->e != parts[0].s->e)
            st = fail(err, MICA_E_ARG, "batch: session %zu: of another model", i);
        else if (n_row > row_max)
            st = fail(err, MICA_E_ARG, "batch: %u rows: at most %u", n_row, row_max);
        else
            st = check_part(p, err);
        if (st != MICA_OK) break;
        p->s->taken = true;
    }
    while (i-- > 0) parts[i].s->taken = false;
    return st;
}

/* Prompt parts come first. Of their rows only the prompt's last has logits, unless all are wanted. */
static uint32_t add_rows(row_info *rows, uint32_t n_row, session_part *p, uint32_t *n_out) {
    session *s = p->s;
    const int32_t *ids = p->ids ? p->ids : s->ids + s->n;
    p->out = *n_out;
    for (uint32_t i = 0; i < p->n; i++) {
        bool want = p->ids || p->all_logits || s->n + i + 1 == s->n_target;
        rows[n_row + i] = (row_info){.tok = ids[i],
                                     .seq = s->slot,
                                     .pos = (int32_t)(s->n + i),
                                     .out = want ? (int32_t)(*n_out)++ : -1};
    }
    return n_row + p->n;
}

/* What the step made of a part. A window stays open until session_accept. */
static mica_status settle(session_part *p, mica_error *err) {
    session *s = p->s;
    if (p->ids) {
        memcpy(s->ids + s->n, p->ids, p->n * sizeof *p->ids);
        s->n += p->n;
        s->n_window = p->n;
        s->out0 = p->out;
        return MICA_OK;
    }
    if (s->n_prompt == s->n) s->n_prompt += p->n;
    s->n += p->n;
    s->n_state = s->n;
    if (s->n == s->n_target) {
        const float *logits = engine_logits(s->e, p->all_logits ? p->out + p->n - 1 : p->out);
        memcpy(s->logits, logits, engine_shape(s->e)->n_vocab * sizeof(float));
        s->has_logits = true;
    }
    bool stop = s->n == s->n_target || (engine_has_state(s->e) && s->n - s->n_marked >= s->n_every);
    for (uint32_t i = 0; i < s->n_mark; i++) stop |= s->mark[i] == s->n;
    if (stop) s->n_marked = s->n;
    if (s->place != PREFIX_NONE) return give_to_cache(s, stop, err);
    return stop ? snapshot_put(s, err) : MICA_OK;
}

mica_status session_step(session_part *parts, size_t n, mica_error *err) {
    engine *e = parts[0].s->e;
    row_info *rows = parts[0].s->rows;
    uint32_t n_row = 0, n_prompt = 0, n_out = 0;
    TRY(check_parts(parts, n, err));
    for (size_t i = 0; i < n; i++) {
        n_row = add_rows(rows, n_row, &parts[i], &n_out);
        if (!parts[i].ids) n_prompt = n_row;
        parts[i].s->has_logits = false;
        parts[i].s->n_state = NO_STATE;
    }
    mica_status st = engine_step(e, rows, n_row, n_prompt, err);
    for (size_t i = 0; i < n && st == MICA_OK; i++) st = settle(&parts[i], err);
    for (size_t i = 0; i < n && st != MICA_OK; i++) parts[i].s->n_target = 0; // what is unread is given up
    return st;
}

mica_status session_accept(session *s, uint32_t n_keep, mica_error *err) {
    memcpy(s->logits, engine_logits(s->e, s->out0 + n_keep - 1), engine_shape(s->e)->n_vocab * sizeof(float));
    s->n -= s->n_window - n_keep;
    s->n_state = s->n_target = s->n;
    s->n_window = 0;
    s->n_accepted = n_keep;
    s->step = engine_step_count(s->e);
    s->has_logits = true;
    return engine_accept(s->e, s->slot, n_keep, err);
}

const float *session_window_logits(const session *s, uint32_t i) {
    return engine_logits(s->e, s->out0 + i);
}

/* ---- one session's steps ---- */

mica_status session_sync(session *s, const session_sync_args *a, size_t *n_cached, mica_error *err) {
    uint32_t chunk = engine_ubatch(s->e);
    if (a->on_logits && chunk > engine_out_max(s->e)) chunk = engine_out_max(s->e);
    session_begin_args b = {.ids = a->ids, .n = a->n, .reuse_generated = a->reuse_generated};
    session_reuse r;
    if (n_cached) *n_cached = 0;
    TRY(session_begin(s, &b, &r, err));
    if (n_cached) *n_cached = s->n;
    size_t keep = s->n, total = session_pending(s);
    while (session_pending(s) > 0) {
        if (a->cancel && a->cancel->set)
            return fail(err, MICA_E_CANCELLED, "prompt: cancelled after %zu tokens", s->n);
        if (a->progress) a->progress(a->progress_user, "prompt", s->n - keep, total);
        uint32_t most = a->cancel || a->progress ? chunk_rows(&s->pace, session_pending(s), chunk) : chunk;
        session_part p = {.s = s, .n = session_chunk(s, most), .all_logits = a->on_logits != NULL};
        size_t pos = s->n;
        uint64_t start = clock_ns();
        TRY(session_step(&p, 1, err));
        chunk_took(&s->pace, p.n, clock_ms_since(start));
        for (uint32_t i = 0; a->on_logits && i < p.n; i++)
            TRY(a->on_logits(a->logits_user, pos + i, engine_logits(s->e, i), err));
    }
    if (a->progress) a->progress(a->progress_user, "prompt", total, total);
    return MICA_OK;
}

mica_status session_window(session *s, const int32_t *ids, uint32_t n, mica_error *err) {
    session_part p = {.s = s, .ids = ids, .n = n};
    return session_step(&p, 1, err);
}

mica_status session_append(session *s, int32_t id, mica_error *err) {
    return session_append_batch(&s, &id, 1, err);
}

mica_status session_append_batch(session *const *s, const int32_t *ids, size_t n, mica_error *err) {
    session_part *parts = s[0]->parts;
    if (n > s[0]->n_part)
        return fail(err, MICA_E_ARG, "batch: %zu sessions: the model has %u", n, s[0]->n_part);
    for (size_t i = 0; i < n; i++) parts[i] = (session_part){.s = s[i], .ids = &ids[i], .n = 1};
    TRY(session_step(parts, n, err));
    for (size_t i = 0; i < n; i++) TRY(session_accept(s[i], 1, err));
    return MICA_OK;
}

void session_clear(session *s) {
    leave_cache(s);
    s->n = s->n_prompt = s->n_target = 0;
    s->n_window = s->n_accepted = 0;
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
