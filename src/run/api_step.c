/* mica_step: one batch for many answers; and mica_generate, which is the same loop for one.
 *
 * An item either reads some of its prompt (prompt role) or appends the token it gave out last, with drafts
 * after it (token role). Tokens are chosen from the step's logits at once, so a step ends with the next token
 * of every item chosen, given out, and not yet appended: whoever stops there has nothing to take back. */
#include "run/api_int.h"

#include "base/clock.h"
#include "base/exactf.h"
#include "run/logprob.h"

/* ---- begin ---- */

enum { MARKS_MAX = SESSION_MARKS, TURN_REACH = 16 };

/* Where turns begin, by the control tokens that open them; those closer together than TURN_REACH tokens (the
 * end of a turn, the role of the next, an empty thought) count as one. The last MARKS_MAX, ascending. */
static size_t find_turns(const mica_model *m, const int32_t *ids, size_t n, size_t *marks) {
    size_t at[MARKS_MAX], n_mark = 0, last = SIZE_MAX;
    for (size_t i = n; i-- > 1;) {
        if (!text_vocab_is_control(m->vocab, ids[i])) continue;
        if (n_mark == 0 || last - i > TURN_REACH) {
            if (n_mark == MARKS_MAX) break;
            last = i;
            n_mark++;
        }
        at[n_mark - 1] = i;
    }
    for (size_t k = 0; k < n_mark; k++) marks[k] = at[n_mark - 1 - k];
    return n_mark;
}

mica_status mica_session_begin(mica_session *s, const int32_t *ids, size_t n, const mica_begin_options *opt,
                               mica_reuse *reuse, mica_error *err) {
    static const mica_begin_options none = {0};
    size_t marks[MARKS_MAX];
    session_reuse r;
    if (!opt) opt = &none;
    if (reuse) *reuse = (mica_reuse){0};
    TRY(api_check_media(s->m, ids, n, err));
    api_session_restart(s);
    session_begin_args a = {.ids = ids, .n = n, .reuse_generated = opt->reuse_generated};
    a.no_cache = opt->no_cache;
    a.cold = opt->cold;
    a.marks = opt->marks ? opt->marks : marks;
    a.n_marks = opt->marks ? opt->n_marks : find_turns(s->m, ids, n, marks);
    TRY(session_begin(s->s, &a, &r, err));
    mica_cache_info *c = &s->m->cache_count;
    size_t n_cached = r.n_own + r.n_ram + r.n_disk;
    c->n_lookup++;
    c->n_hit += n_cached > 0;
    c->n_token_asked += n;
    c->n_token_hit += n_cached;
    if (reuse)
        *reuse = (mica_reuse){.n_cached = n_cached,
                              .n_own = r.n_own,
                              .n_ram = r.n_ram,
                              .n_disk = r.n_disk,
                              .noise_at = r.noise_at,
                              .n_noise = r.n_noise,
                              .n_after = r.n_after};
    return MICA_OK;
}

size_t mica_session_pending(const mica_session *s) {
    return session_pending(s->s);
}

/* ---- choosing ---- */

/* The model's token at position pos from `logits`; the session's ids before pos are its history. */
static mica_status choose(const step_work *w, const float *logits, uint64_t pos, int32_t *id,
                          mica_error *err) {
    const session *s = w->it->session->s;
    sample_args a = {
        .logits = logits, .p = w->sampling, .history = session_ids(s), .n_history = pos, .pos = pos};
    return sampler_pick(w->it->session->m->pick, &a, id, err);
}

/* Gives a token out. When it was the last the session's finish says why. The grammar's own mask let the token
 * through, but going on can fail: nothing is given out then, the answer could not be held to it any more. */
static mica_status emit(step_work *w, int32_t id, const float *logits, mica_error *err) {
    mica_step_item *it = w->it;
    mica_session *s = it->session;
    if (w->sampling->grammar) TRY(mica_grammar_accept(w->sampling->grammar, id, err));
    if (!it->ignore_end && text_vocab_ends(s->m->vocab, id)) {
        s->finish = MICA_FINISH_STOP;
        return MICA_OK;
    }
    if (it->top)
        logprob_top(it->top + (size_t)it->n_id * (1 + it->n_top), it->n_top, id, logits,
                    engine_shape(s->m->e)->n_vocab);
    it->ids[it->n_id++] = id;
    s->n_made++;
    if (it->on_token && !it->on_token(it->user, id))
        s->finish = MICA_FINISH_STOP;
    else if (it->n_predict >= 0 && s->n_made >= (uint64_t)it->n_predict)
        s->finish = MICA_FINISH_LENGTH;
    return MICA_OK;
}

/* Chooses what follows the session's last token, which the next step appends. */
static mica_status choose_next(step_work *w, mica_error *err) {
    mica_session *s = w->it->session;
    const float *logits = session_logits(s->s);
    if (w->it->n_predict == 0) {
        s->finish = MICA_FINISH_LENGTH;
        return MICA_OK;
    }
    TRY(choose(w, logits, session_length(s->s), &s->next, err));
    s->has_next = true;
    return emit(w, s->next, logits, err);
}

/* ---- drafts ---- */

/* A draft is chosen as the model's own token would be, with the same number: it then agrees more often. */
static bool pick_draft(void *user, const float *logits, uint64_t pos, int32_t *id) {
    const step_work *w = user;
    mica_model *m = w->it->session->m;
    mica_sampling p = *w->sampling;
    p.repeat_penalty = 1.0f; // the history holds no drafts
    p.presence_penalty = p.frequency_penalty = 0.0f;
    p.grammar = NULL; // it stands before the first draft
    sample_args a = {.logits = logits, .p = &p, .pos = pos};
    if (sampler_pick(m->pick, &a, id, NULL) != MICA_OK) return false;
    if (w->it->draft_min_p <= 0.0f) return true;
    float sum = 0.0f;
    for (uint32_t i = 0; i < m->info.n_vocab; i++) sum += exactf_exp(logits[i] - logits[*id]);
    return 1.0f / sum >= w->it->draft_min_p;
}

/* How many drafts may follow `next`: what the caller allows, what is left to make, what the context holds. */
static uint32_t draft_room(const step_work *w) {
    const mica_step_item *it = w->it;
    const mica_session *s = it->session;
    int64_t n = it->n_draft < WINDOW_MAX ? it->n_draft : WINDOW_MAX - 1;
    int64_t context = (int64_t)s->m->info.n_ctx - (int64_t)session_length(s->s) - 1;
    int64_t make = it->n_predict < 0 ? n : it->n_predict - (int64_t)s->n_made - 1;
    if (context < n) n = context;
    if (make < n) n = make;
    return n > 0 ? (uint32_t)n : 0;
}

enum { PROBE_EVERY = 64 }; // steps after which a crowd that stopped drafting tries again

/* The most drafts a window: what is asked for when alone; in a crowd what pays, by the costs so far. */
static uint32_t draft_most(mica_model *m, const step_work *work, size_t n) {
    uint32_t n_item = 0;
    double hit = 0.0, miss = 0.0;
    for (size_t i = 0; i < n; i++) {
        const mica_session *s = work[i].it->session;
        if (!s->has_next || s->finish != MICA_FINISH_NONE) continue;
        n_item++;
        hit += s->draft_hit;
        miss += s->draft_miss;
    }
    if (n_item < 2) return WINDOW_MAX - 1;
    uint32_t k = draft_cost_choose(&m->draft_cost, n_item, hit / (hit + miss), WINDOW_MAX - 1);
    return k == 0 && m->n_crowd++ % PROBE_EVERY == 0 ? 1 : k;
}

/* Fills the windows of the items that append: the token given out last and drafts after it. */
static mica_status fill_windows(mica_model *m, step_work *work, size_t n, mica_error *err) {
    size_t n_draft = 0;
    uint32_t most = draft_most(m, work, n);
    for (size_t i = 0; i < n; i++) {
        step_work *w = &work[i];
        mica_session *s = w->it->session;
        w->draft = NULL;
        w->n_draft = 0;
        if (!s->has_next || s->finish != MICA_FINISH_NONE) continue;
        w->window[0] = s->next;
        w->draft = &m->draft[n_draft++];
        *w->draft = (session_draft){
            .s = s->s, .next = s->next, .n_max = draft_room(w), .pick = pick_draft, .user = w};
        if (w->draft->n_max > most) w->draft->n_max = most;
    }
    uint64_t start = clock_ns();
    TRY(session_draft_run(m->draft, n_draft, err));
    uint32_t n_call = 0;
    for (size_t i = 0; i < n_draft; i++) n_call = m->draft[i].n > n_call ? m->draft[i].n : n_call;
    if (n_call > 0) draft_cost_add_call(&m->draft_cost, clock_ms_since(start) / n_call);
    for (size_t i = 0; i < n; i++) {
        step_work *w = &work[i];
        if (!w->draft) continue;
        session_draft *d = w->draft;
        if (d->n == 0) d->n = session_lookup(d->s, d->next, d->n_max, d->ids);
        for (uint32_t k = 0; k < d->n; k++) w->window[1 + k] = d->ids[k];
        w->n_draft = d->n;
        w->n_row = 1 + d->n;
    }
    return MICA_OK;
}

/* ---- the step ---- */

/* Ends an item that failed by itself. */
static void end_item(step_work *w, mica_status st) {
    w->it->status = st;
    w->it->finish = MICA_FINISH_NONE;
    w->n_row = 0;
    w->draft = NULL;
    w->it->session->has_next = false;
}

static void open_item(step_work *w, mica_step_item *it) {
    mica_session *s = it->session;
    *w = (step_work){.it = it, .sampling = it->sampling ? it->sampling : &s->m->info.sampling};
    it->n_id = it->n_read = it->n_drafted = it->n_accepted = 0;
    it->finish = MICA_FINISH_NONE;
    it->status = MICA_OK;
    it->error = (mica_error){0};
    if (s->finish != MICA_FINISH_NONE) return;
    mica_status st = sampling_check(w->sampling, s->m->info.n_vocab, &it->error);
    if (st == MICA_OK && it->n_top > MICA_TOP_MAX)
        st = fail(&it->error, MICA_E_ARG, "logprobs: %u alternatives: at most %d", it->n_top, MICA_TOP_MAX);
    if (st == MICA_OK && it->cancel && it->cancel->set)
        s->finish = MICA_FINISH_CANCELLED;
    else if (st == MICA_OK && session_pending(s->s) == 0 && !s->has_next && !session_logits(s->s))
        st = fail(&it->error, MICA_E_ARG, "step: the session has nothing to go on from: begin it");
    else if (st == MICA_OK && session_pending(s->s) == 0 && !s->has_next)
        st = choose_next(w, &it->error); // all of the prompt was there
    if (st == MICA_OK) return;
    end_item(w, st);
    s->finish = MICA_FINISH_CANCELLED; // no step goes on with it
}

/* Shares the batch out: windows are in it whole, prompts get what is left. Prompt parts come first. */
static size_t fill_parts(mica_model *m, step_work *work, size_t n) {
    uint32_t left = engine_row_max(m->e);
    size_t n_part = 0;
    for (size_t i = 0; i < n; i++) left -= work[i].n_row;
    for (size_t i = 0; i < n; i++) {
        step_work *w = &work[i];
        session *s = w->it->session->s;
        if (w->draft || w->it->session->finish != MICA_FINISH_NONE || session_pending(s) == 0) continue;
        uint32_t most = w->it->n_prompt < left ? w->it->n_prompt : left;
        if (most == 0) continue;
        w->n_row = session_chunk(s, most);
        left -= w->n_row;
        m->parts[n_part++] = (session_part){.s = s, .n = w->n_row};
    }
    for (size_t i = 0; i < n; i++) {
        step_work *w = &work[i];
        if (!w->draft) continue;
        m->parts[n_part++] = (session_part){.s = w->it->session->s, .ids = w->window, .n = w->n_row};
    }
    return n_part;
}

/* Chooses after each row of the window while the drafts agree, and keeps the rows that happened. */
static mica_status take_window(step_work *w, mica_error *err) {
    mica_session *s = w->it->session;
    uint64_t base = session_length(s->s) - w->n_row;
    uint32_t n_keep = 0;
    mica_status st = MICA_OK;
    s->has_next = false;
    for (bool agreed = true; agreed && st == MICA_OK; n_keep++) {
        const float *logits = session_window_logits(s->s, n_keep);
        agreed = false;
        st = choose(w, logits, base + n_keep + 1, &s->next, err);
        if (st == MICA_OK) st = emit(w, s->next, logits, err);
        if (st == MICA_OK)
            agreed = s->finish == MICA_FINISH_NONE && n_keep < w->n_draft && s->next == w->window[n_keep + 1];
    }
    s->has_next = st == MICA_OK;
    w->it->n_drafted = w->n_draft;
    w->it->n_accepted = n_keep - 1;
    if (w->n_draft > 0) draft_cost_seen(&s->draft_hit, &s->draft_miss, w->n_draft, n_keep - 1);
    mica_status kept = session_accept(s->s, n_keep, st == MICA_OK ? err : NULL);
    return st == MICA_OK ? kept : st;
}

static void close_item(step_work *w) {
    mica_step_item *it = w->it;
    mica_session *s = it->session;
    mica_status st = MICA_OK;
    if (it->status != MICA_OK) return;
    if (w->draft) {
        st = take_window(w, &it->error);
    } else if (w->n_row > 0) {
        it->n_read = w->n_row;
        if (session_pending(s->s) == 0) st = choose_next(w, &it->error);
    }
    if (st != MICA_OK) {
        end_item(w, st);
        s->finish = MICA_FINISH_CANCELLED;
        return;
    }
    if (s->finish == MICA_FINISH_NONE && s->has_next && session_length(s->s) >= s->m->info.n_ctx)
        s->finish = MICA_FINISH_LENGTH;
    it->finish = s->finish;
}

static mica_status check_items(const mica_step_item *items, size_t n, mica_error *err) {
    const mica_model *m = items[0].session->m;
    if (n > m->info.n_seq)
        return fail(err, MICA_E_ARG, "step: %zu items: the model has %u sequences", n, m->info.n_seq);
    for (size_t i = 0; i < n; i++) {
        if (items[i].session->m != m) return fail(err, MICA_E_ARG, "step: item %zu: of another model", i);
        for (size_t j = 0; j < i; j++) {
            if (items[j].session == items[i].session)
                return fail(err, MICA_E_ARG, "step: item %zu: its session is item %zu's too", i, j);
        }
    }
    return MICA_OK;
}

static void add_cost(mica_model *m, size_t n_part, double ms) {
    uint32_t n_row = 0;
    for (size_t i = 0; i < n_part; i++) n_row += m->parts[i].n;
    draft_cost_add_step(&m->draft_cost, n_row, ms);
}

mica_status mica_step(mica_step_item *items, size_t n, mica_error *err) {
    if (n == 0) return MICA_OK;
    TRY(check_items(items, n, err));
    mica_model *m = items[0].session->m;
    mica_error why = {0};
    for (size_t i = 0; i < n; i++) open_item(&m->work[i], &items[i]);
    mica_status st = fill_windows(m, m->work, n, &why);
    size_t n_part = st == MICA_OK ? fill_parts(m, m->work, n) : 0;
    uint64_t start = clock_ns();
    if (n_part > 0) st = session_step(m->parts, n_part, &why);
    if (n_part > 0 && m->parts[0].ids) add_cost(m, n_part, clock_ms_since(start)); // no prompt is in it
    for (size_t i = 0; i < n; i++) {
        step_work *w = &m->work[i];
        if (st != MICA_OK && (w->n_row > 0 || w->draft)) {
            end_item(w, st);
            items[i].session->finish = MICA_FINISH_CANCELLED;
            items[i].error = why;
        }
        close_item(w);
    }
    if (st != MICA_OK && err) *err = why;
    return st;
}

/* ---- generate ---- */

static void add_stats(mica_stats *t, const mica_step_item *it, bool reading, double ms) {
    if (reading)
        t->prompt_ms += ms;
    else
        t->decode_ms += ms;
    t->n_generated += it->n_id;
    t->draft_windows += it->n_drafted > 0;
    t->n_drafted += it->n_drafted;
    t->n_accepted += it->n_accepted;
}

static mica_status generate(mica_step_item *it, const mica_generate_options *o, mica_stats *t,
                            mica_error *err) {
    const mica_session *s = it->session;
    size_t total = mica_session_pending(s);
    chunk_pace *speed = session_pace(s->s);
    for (bool more = true; more;) {
        size_t left = mica_session_pending(s);
        uint64_t start = clock_ns();
        if (o->progress && left > 0) o->progress(o->progress_user, "prompt", total - left, total);
        if (left > 0 && (o->cancel || o->progress))
            it->n_prompt = chunk_rows(speed, left, s->m->info.n_ubatch);
        TRY(mica_step(it, 1, err));
        chunk_took(speed, it->n_read, clock_ms_since(start));
        if (it->status != MICA_OK) return fail(err, it->status, "%s", it->error.text);
        size_t now = mica_session_pending(s);
        add_stats(t, it, left > 0, clock_ms_since(start));
        if (o->progress && left > 0 && now == 0) o->progress(o->progress_user, "prompt", total, total);
        if (it->finish == MICA_FINISH_CANCELLED && now > 0)
            return fail(err, MICA_E_CANCELLED, "prompt: cancelled after %zu tokens", session_length(s->s));
        more = it->finish == MICA_FINISH_NONE;
    }
    return MICA_OK;
}

/* What a card's experts did since `from`. Without tiers every use is a hit. */
static void count_experts(mica_stats *t, const mica_session *s, const dev_expert_stats *from) {
    dev_expert_stats now;
    engine_experts(s->m->e, &now);
    uint64_t n_use = now.n_use - from->n_use;
    t->expert_hit_rate = n_use ? (double)(now.n_hit - from->n_hit) / (double)n_use : 1.0;
    t->link_bytes = now.link_bytes - from->link_bytes;
    t->cpu_bytes = now.cpu_bytes - from->cpu_bytes;
    t->ssd_bytes = now.ssd_bytes - from->ssd_bytes;
}

mica_status mica_generate(mica_session *s, const int32_t *ids, size_t n, const mica_generate_options *opt,
                          mica_token_fn *on_token, void *user, mica_finish *finish, mica_stats *stats,
                          mica_error *err) {
    static const mica_generate_options none = {.n_predict = -1};
    const mica_generate_options *o = opt ? opt : &none;
    mica_stats t = {.n_prompt = n, .expert_hit_rate = 1.0};
    mica_reuse reuse;
    mica_step_item it = {.session = s,
                         .sampling = o->sampling,
                         .n_prompt = s->m->info.n_ubatch,
                         .n_predict = o->n_predict,
                         .n_draft = o->n_draft,
                         .draft_min_p = o->draft_min_p,
                         .ignore_end = o->ignore_end,
                         .cancel = o->cancel,
                         .on_token = on_token,
                         .user = user};
    if (finish) *finish = MICA_FINISH_NONE;
    if (stats) *stats = t;
    TRY(sampling_check(o->sampling ? o->sampling : &s->m->info.sampling, s->m->info.n_vocab, err));
    dev_expert_stats before;
    engine_experts(s->m->e, &before);
    uint64_t start = clock_ns();
    mica_status st = mica_session_begin(s, ids, n, NULL, &reuse, err);
    t.prompt_ms = clock_ms_since(start);
    t.n_cached = reuse.n_cached;
    if (st == MICA_OK) st = generate(&it, o, &t, err);
    count_experts(&t, s, &before);
    if (finish) *finish = it.finish;
    if (stats) *stats = t;
    return st;
}
