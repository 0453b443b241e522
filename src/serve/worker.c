/* The loop of the worker. See worker.h for the shape of it, queue.h for who is next. */
#include "serve/worker.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "serve/pace.h"
#include "serve/queue.h"
#include "serve/voice.h"

#include <stdio.h>
#include <time.h>

typedef struct slot {
    mica_session *s; // owned
    job *j;          // held; NULL: free
    int choice;
    voice v;
    mica_sampling sampling;
    const mica_ids *prompt; // of the job
    mica_grammar *grammar;  // owned; a clone of the job's
    mica_reuse reuse;
    strbuf made;       // ids of the answer so far, kept while its thinking has a bound
    uint64_t n_before; // of them, made before the session was begun anew
    bool reading;
    uint64_t begun_ns, first_ns, used_ns; // taken up; first token; last freed
    uint64_t n_drafted, n_accepted;
    mica_logprob top[MICA_STEP_TOKENS * (1 + ASK_MAX_TOP)];
} slot;

struct worker {
    worker_options opt;
    worker_run_options run;
    const mica_model *model; // borrowed while it runs
    mica_model_info info;
    slot *slots; // owned, [n_slot]
    size_t n_slot;
    mica_step_item *items; // owned, [n_slot]
    slot **at_work;        // owned, [n_slot]: whose item each is
    size_t n_making;       // of them, those whose prompt is read
    pace pace;
    // Shared from here on.
    pthread_mutex_t lock;
    pthread_cond_t wake;
    queue q;
    bool ending;
    slot_look *look; // owned, [n_slot]
    size_t n_look;
};

/* ---- Before it runs ---- */

mica_status worker_new(worker **out, const worker_options *opt, mica_error *err) {
    *out = NULL;
    worker *w = mem_calloc(1, sizeof *w);
    if (!w) return fail(err, MICA_E_NOMEM, "worker: out of memory");
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    w->opt = *opt;
    if (!queue_init(&w->q, opt->n_queue)) {
        worker_free(w);
        return fail(err, MICA_E_NOMEM, "queue: %zu places: out of memory", opt->n_queue);
    }
    *out = w;
    return MICA_OK;
}

void worker_free(worker *w) {
    if (!w) return;
    queue_fini(&w->q);
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->lock);
    mem_free(w);
}

mica_status worker_submit(worker *w, job *j, problem *p) {
    queue_entry e[ASK_MAX_CHOICES];
    const size_t n = job_choices(j);
    mica_status st = MICA_OK;
    atomic_store(&j->n_open, (int)n);
    for (size_t i = 0; i < n; i++) {
        e[i] = (queue_entry){j, (int)i, j->client};
        job_hold(j);
    }
    pthread_mutex_lock(&w->lock);
    if (w->ending) {
        st = problem_set(p, 503, NULL, "the server is about to end");
    } else if (!queue_put(&w->q, e, n)) {
        st = problem_set(p, 429, NULL, "%zu requests wait already: try again later", w->q.n);
        p->retry_s = queue_retry_s(w->q.n, w->n_look, metrics_mean_request_s(w->opt.metrics));
    }
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
    for (size_t i = 0; st != MICA_OK && i < n; i++) job_drop(j);
    return st;
}

size_t worker_look(worker *w, slot_look *out, size_t max, size_t *n_waiting) {
    pthread_mutex_lock(&w->lock);
    const size_t n = w->n_look;
    if (n > 0) memcpy(out, w->look, (n < max ? n : max) * sizeof *out);
    *n_waiting = w->q.n;
    pthread_mutex_unlock(&w->lock);
    return n < max ? n : max;
}

bool worker_is_ending(worker *w) {
    pthread_mutex_lock(&w->lock);
    const bool yes = w->ending;
    pthread_mutex_unlock(&w->lock);
    return yes;
}

/* ---- Slots ---- */

static void slot_clear(slot *s) {
    voice_fini(&s->v);
    mica_grammar_free(s->grammar);
    s->grammar = NULL;
    strbuf_clear(&s->made);
    s->n_before = 0;
    job_drop(s->j);
    s->j = NULL;
    s->used_ns = clock_ns();
}

static void give_up(worker *w, slot *s) {
    metrics_end(w->opt.metrics, NULL, 0);
    job_close(s->j);
    slot_clear(s);
}

static void fail_slot(worker *w, slot *s, mica_status st, const mica_error *err) {
    log_warn("serve", "request: %s", err->text);
    metrics_end(w->opt.metrics, NULL, 0);
    job_fail(s->j, st, err->text);
    job_close(s->j);
    slot_clear(s);
}

static size_t common_prefix(const slot *s, const mica_ids *prompt) {
    const int32_t *ids = mica_session_ids(s->s);
    size_t n = mica_session_length(s->s), k = 0;
    if (n > prompt->n) n = prompt->n;
    while (k < n && ids[k] == prompt->ids[k]) k++;
    return k;
}

/* The free slot that shares most with the prompt; among equals the one unused longest. A request that wants
 * nothing of what is there takes that one too: what others may still want is not its to lose. */
static slot *slot_for(worker *w, const job *j, int choice) {
    slot *best = NULL;
    size_t most = 0;
    for (size_t i = 0; i < w->n_slot; i++) {
        slot *s = &w->slots[i];
        if (s->j) continue;
        const size_t k = j->ask.no_cache ? 0 : common_prefix(s, job_prompt(j, choice));
        if (best && (k < most || (k == most && s->used_ns >= best->used_ns))) continue;
        best = s;
        most = k;
    }
    return best;
}

static mica_status slot_begin(worker *w, slot *s, mica_error *err) {
    const job *j = s->j;
    s->sampling = j->ask.sampling;
    s->sampling.seed += (uint64_t)(s->choice % j->ask.n_choice);
    s->reading = true;
    s->begun_ns = clock_ns();
    s->first_ns = 0;
    s->n_drafted = s->n_accepted = 0;
    TRY(voice_init(&s->v, s->j, s->choice, w->model, err));
    if (j->grammar) TRY(mica_grammar_clone(&s->grammar, j->grammar, err));
    const mica_begin_options opt = {
        .no_cache = j->ask.no_cache, .cold = j->ask.no_cache, .reuse_generated = w->opt.reuse_generated};
    return mica_session_begin(s->s, s->prompt->ids, s->prompt->n, &opt, &s->reuse, err);
}

/* ---- What /slots shows ---- */

static void publish(worker *w) {
    pthread_mutex_lock(&w->lock);
    for (size_t i = 0; i < w->n_slot; i++) {
        const slot *s = &w->slots[i];
        slot_look *l = &w->look[i];
        *l = (slot_look){.busy = s->j != NULL, .n_token = mica_session_length(s->s)};
        if (!s->j) continue;
        l->reading = s->reading;
        l->n_prompt = s->prompt->n;
        l->n_cached = s->reuse.n_cached;
        l->n_read = s->n_before ? s->prompt->n : s->prompt->n - mica_session_pending(s->s);
        l->n_made = s->v.n_made;
        l->n_predict = s->j->ask.n_predict;
    }
    pthread_mutex_unlock(&w->lock);
}

/* ---- Saved slots ---- */

static void give_result(job *j, const char *what, uint64_t n_token, uint64_t n_bytes, double ms) {
    char text[320];
    snprintf(text, sizeof text,
             "{\"id_slot\":%u,\"filename\":\"%s\",\"n_%s\":%llu,\"n_bytes\":%llu,\"timings\":{\"ms\":%.3f}}",
             j->slot, j->file, what, (unsigned long long)n_token, (unsigned long long)n_bytes, ms);
    flow_put(&j->flow, &(event){.kind = EVENT_RESULT, .body = slice_of(text)});
}

/* Who has the result of an erase or a restore finds it in /slots: that is brought up to date first. */
static mica_status slot_file(worker *w, job *j, mica_error *err) {
    slot *s = &w->slots[j->slot < w->n_slot ? j->slot : 0];
    size_t n_token = 0;
    uint64_t n_bytes = 0;
    const uint64_t start = clock_ns();
    if (j->slot >= w->n_slot) return fail(err, MICA_E_ARG, "slot %u: there are %zu", j->slot, w->n_slot);
    if (s->j) return fail(err, MICA_E_BUSY, "slot %u: at work: try again when it is done", j->slot);
    if (j->kind == JOB_SLOT_ERASE) {
        n_token = mica_session_length(s->s);
        mica_session_erase(s->s);
        publish(w);
        give_result(j, "erased", n_token, 0, clock_ms_since(start));
        return MICA_OK;
    }
    if (j->kind == JOB_SLOT_SAVE) {
        TRY(mica_session_save(s->s, j->file, &n_token, &n_bytes, err));
        give_result(j, "saved", n_token, n_bytes, clock_ms_since(start));
        return MICA_OK;
    }
    TRY(mica_session_restore(s->s, j->file, &n_token, &n_bytes, err));
    publish(w);
    give_result(j, "restored", n_token, n_bytes, clock_ms_since(start));
    return MICA_OK;
}

static bool is_file_job(const queue_entry *e) {
    return ((const job *)e->job)->kind != JOB_TEXT;
}

static bool is_gone(const queue_entry *e) {
    return flow_is_gone(&((job *)e->job)->flow);
}

/* ---- Taking up ---- */

static void take_up(worker *w, const queue_entry *e) {
    mica_error err = {0};
    job *j = e->job;
    slot *s = slot_for(w, j, e->choice);
    s->j = j; // with the queue's hold
    s->choice = e->choice;
    s->prompt = job_prompt(j, e->choice);
    const mica_status st = slot_begin(w, s, &err);
    if (st != MICA_OK) {
        fail_slot(w, s, st, &err);
        return;
    }
    const event_begin b = {s->prompt->n, s->reuse.n_cached, 0};
    flow_put(&j->flow,
             &(event){.kind = EVENT_BEGIN, .choice = s->choice, .body = {(const char *)&b, sizeof b}});
}

static size_t running_clients(const worker *w, uint64_t *out) {
    size_t n = 0;
    for (size_t i = 0; i < w->n_slot; i++)
        if (w->slots[i].j) out[n++] = w->slots[i].j->client;
    return n;
}

/* One entry out of the queue; false when there is none that can be taken now. */
static bool next_entry(worker *w, queue_entry *e) {
    uint64_t running[1024];
    const size_t n = running_clients(w, running);
    pthread_mutex_lock(&w->lock);
    const bool got = queue_take_if(&w->q, is_gone, e) || queue_take_if(&w->q, is_file_job, e) ||
                     (n < w->n_slot && queue_take(&w->q, running, n, e));
    pthread_mutex_unlock(&w->lock);
    return got;
}

static void take_up_all(worker *w) {
    queue_entry e;
    mica_error err = {0};
    while (next_entry(w, &e)) {
        job *j = e.job;
        if (!flow_is_gone(&j->flow) && j->kind == JOB_TEXT) {
            take_up(w, &e);
            continue;
        }
        if (!flow_is_gone(&j->flow)) {
            const mica_status st = slot_file(w, j, &err);
            if (st != MICA_OK) job_fail(j, st, err.text);
        } else if (j->kind == JOB_TEXT) {
            metrics_end(w->opt.metrics, NULL, 0);
        }
        job_close(j);
        job_drop(j);
    }
}

/* ---- Ends ---- */

static finish_kind finish_of(const worker *w, const slot *s, mica_finish why) {
    if (s->v.stopped >= 0) return FINISH_STOP_STRING;
    if (s->v.n_call > 0 && why != MICA_FINISH_LENGTH) return FINISH_CALLS;
    if (why != MICA_FINISH_LENGTH) return FINISH_STOP;
    const bool asked = s->j->ask.n_predict >= 0 && s->v.n_made >= (uint64_t)s->j->ask.n_predict;
    return !asked && mica_session_length(s->s) + 1 >= w->info.n_ctx ? FINISH_CONTEXT : FINISH_LENGTH;
}

static void end_slot(worker *w, slot *s, mica_finish why) {
    mica_error err = {0};
    const mica_status st = voice_end(&s->v, &err);
    if (st != MICA_OK) {
        fail_slot(w, s, st, &err);
        return;
    }
    const job *j = s->j;
    const uint64_t now = clock_ns(), first = s->first_ns ? s->first_ns : now;
    const event_end e = {
        .finish = finish_of(w, s, why),
        .stop = s->v.stopped,
        .n_prompt = s->prompt->n,
        .n_cached = s->reuse.n_cached,
        .n_made = s->v.n_made,
        .n_thought = s->v.n_thought,
        .n_drafted = s->n_drafted,
        .n_accepted = s->n_accepted,
        .wait_ms = (double)(s->begun_ns - j->begun_ns) * 1e-6,
        .prompt_ms = (double)(first - s->begun_ns) * 1e-6,
        .decode_ms = (double)(now - first) * 1e-6,
    };
    flow_put(&s->j->flow,
             &(event){.kind = EVENT_END, .choice = s->choice, .body = {(const char *)&e, sizeof e}});
    metrics_end(w->opt.metrics, &e, (double)(now - j->begun_ns) * 1e-9);
    job_close(s->j);
    slot_clear(s);
}

/* ---- Steps ---- */

/* Those whose client left are freed; those whose client takes nothing stand still. */
static bool can_go_on(worker *w, slot *s) {
    flow *f = &s->j->flow;
    if (flow_stalled_s(f) > w->opt.stall_s) flow_leave(f);
    if (flow_is_over(f)) {
        give_up(w, s);
        return false;
    }
    return !flow_is_full(f);
}

/* Of an answer with a bound; at least one where a step still takes place. */
static int64_t left_to_make(const slot *s) {
    const int64_t left = s->j->ask.n_predict - (int64_t)s->n_before;
    return s->n_before > 0 && left < 1 ? 1 : left;
}

static mica_step_item item_of(const worker *w, slot *s) {
    const ask *a = &s->j->ask;
    // A client's own grammar is of the answer; its thinking is free, and no draft window may cross the
    // border.
    const bool free_yet = s->grammar && s->j->bare_grammar && s->v.thinking;
    s->sampling.grammar = free_yet ? NULL : s->grammar;
    return (mica_step_item){
        .session = s->s,
        .sampling = &s->sampling,
        .n_predict = a->n_predict < 0 ? -1 : (int32_t)left_to_make(s),
        .n_draft = free_yet ? 0 : w->run.n_draft,
        .draft_min_p = w->run.draft_min_p,
        .ignore_end = a->ignore_end,
        .top = a->n_top >= 0 ? s->top : NULL,
        .n_top = a->n_top >= 0 ? (uint32_t)a->n_top : 0,
    };
}

/* Gathers what can go on; gives the prompts their share of the step. */
static size_t gather_items(worker *w) {
    size_t n = 0, n_reading = 0, n_making = 0;
    for (size_t i = 0; i < w->n_slot; i++) {
        slot *s = &w->slots[i];
        if (!s->j || !can_go_on(w, s)) continue;
        w->at_work[n] = s;
        w->items[n++] = item_of(w, s);
        n_reading += s->reading;
        n_making += !s->reading;
    }
    size_t room = pace_prompt_room(&w->pace, n_making, w->info.n_ubatch), left = n_reading;
    w->n_making = n_making;
    for (size_t i = 0; i < n; i++) {
        slot *s = w->at_work[i];
        if (!s->reading) continue;
        const size_t pending = mica_session_pending(s->s), share = (room + left - 1) / left;
        const size_t k = pending < share ? pending : share;
        w->items[i].n_prompt = (uint32_t)k;
        room -= k;
        left--;
    }
    return n;
}

static bool has_thought_enough(const slot *s) {
    const int64_t most = s->j->ask.n_think;
    return most >= 0 && s->v.thinking && s->v.n_thought >= (uint64_t)most;
}

static mica_status say(slot *s, int32_t id, const mica_logprob *top, mica_error *err) {
    if (s->j->ask.n_think >= 0) strbuf_put(&s->made, &id, sizeof id);
    return voice_put(&s->v, id, top, err);
}

/* The step has moved the grammar past all that it made, and of a draft window the end may be thrown away: the
 * place becomes that of what was said. A client's own grammar knows nothing of thinking: it stands still. */
static void set_grammar_back(slot *s) {
    if (!s->grammar || s->j->bare_grammar) return;
    mica_grammar_reset(s->grammar);
    for (size_t i = 0; i < s->made.n / sizeof(int32_t); i++) {
        int32_t id;
        memcpy(&id, s->made.p + i * sizeof id, sizeof id);
        mica_grammar_accept(s->grammar, id, NULL);
    }
}

/* The model reads what was written so far as it stands, and goes on from there. What a step made may differ
 * in its last bits from what reading makes, and by how it was drafted: none of it counts as read. */
static mica_status read_again(slot *s, mica_error *err) {
    strbuf all = {0};
    const mica_begin_options opt = {.no_cache = true};
    strbuf_put(&all, s->prompt->ids, s->prompt->n * sizeof(int32_t));
    strbuf_put(&all, s->made.p, s->made.n);
    const mica_status st = all.failed ? fail(err, MICA_E_NOMEM, "thinking: out of memory")
                                      : mica_session_begin(s->s, (const int32_t *)(const void *)all.p,
                                                           all.n / sizeof(int32_t), &opt, NULL, err);
    s->reading = true;
    s->n_before = s->made.n / sizeof(int32_t);
    strbuf_fini(&all);
    return st;
}

/* The bound of the thinking is reached: its end is written for the model. `finish` becomes LENGTH where the
 * context has no room for that and a token more. */
static mica_status end_thinking(worker *w, slot *s, mica_finish *finish, mica_error *err) {
    strbuf text = {0};
    mica_ids closing = {0};
    strbuf_printf(&text, "\n%.*s\n\n", (int)s->v.think_end.n, s->v.think_end.p);
    mica_status st = mica_tokenize(w->model, strbuf_cstr(&text), text.n, true, false, &closing, err);
    const size_t n = s->prompt->n + s->made.n / sizeof(int32_t) + closing.n;
    const bool fits = n < w->info.n_ctx;
    for (size_t i = 0; st == MICA_OK && fits && i < closing.n; i++) st = say(s, closing.ids[i], NULL, err);
    if (!fits) *finish = MICA_FINISH_LENGTH;
    if (st == MICA_OK && fits) {
        set_grammar_back(s);
        st = read_again(s, err);
    }
    mica_ids_free(&closing);
    strbuf_fini(&text);
    return st;
}

static mica_status speak(worker *w, slot *s, mica_step_item *it, mica_error *err) {
    for (uint32_t i = 0; i < it->n_id && !s->v.over && !has_thought_enough(s); i++)
        TRY(say(s, it->ids[i], it->top ? it->top + i * (1 + it->n_top) : NULL, err));
    if (has_thought_enough(s) && s->v.think_end.n > 0 && it->finish == MICA_FINISH_NONE)
        TRY(end_thinking(w, s, &it->finish, err));
    if (it->n_drafted > 0) metrics_draft(w->opt.metrics, it->n_drafted, it->n_accepted);
    s->n_drafted += it->n_drafted;
    s->n_accepted += it->n_accepted;
    return MICA_OK;
}

static void tell_progress(slot *s) {
    const size_t n = s->prompt->n - mica_session_pending(s->s);
    if (s->j->ask.progress && s->first_ns == 0)
        flow_put(&s->j->flow, &(event){.kind = EVENT_PROGRESS, .choice = s->choice, .number = (int64_t)n});
}

/* What a step brought to one slot. */
static void take_in(worker *w, slot *s, mica_step_item *it) {
    mica_error err = it->error;
    mica_status st = it->status;
    if (s->reading) tell_progress(s);
    if (s->reading && mica_session_pending(s->s) == 0) {
        s->reading = false;
        if (s->first_ns == 0) {
            s->first_ns = clock_ns();
            metrics_first(w->opt.metrics, (double)(s->first_ns - s->j->begun_ns) * 1e-9);
        }
    }
    if (st == MICA_OK) st = speak(w, s, it, &err);
    if (st != MICA_OK)
        fail_slot(w, s, st, &err);
    else if (it->finish != MICA_FINISH_NONE || s->v.over)
        end_slot(w, s, it->finish);
}

static void step(worker *w, size_t n) {
    mica_error err = {0};
    uint64_t n_made = 0, n_read = 0;
    const uint64_t start = clock_ns();
    const mica_status st = mica_step(w->items, n, &err);
    const double step_s = clock_ms_since(start) / 1000.0;
    for (size_t i = 0; i < n; i++) {
        n_made += w->items[i].n_id;
        n_read += w->items[i].n_read;
        if (st != MICA_OK && w->items[i].status == MICA_OK) {
            w->items[i].status = st;
            w->items[i].error = err;
        }
    }
    pace_learn(&w->pace, w->n_making, n_read, step_s);
    metrics_step(w->opt.metrics, n, n_made, step_s);
    for (size_t i = 0; i < n; i++) take_in(w, w->at_work[i], &w->items[i]);
}

/* ---- The loop ---- */

static bool anything_waits(worker *w) {
    pthread_mutex_lock(&w->lock);
    const bool yes = w->q.n > 0;
    pthread_mutex_unlock(&w->lock);
    return yes;
}

/* Until something comes, or `ms` are over: the flag that ends the server has no condition of its own. */
static void rest(worker *w, long ms) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_nsec += ms * 1000000;
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    pthread_mutex_lock(&w->lock);
    if (w->q.n == 0) pthread_cond_timedwait(&w->wake, &w->lock, &t);
    pthread_mutex_unlock(&w->lock);
}

static bool all_free(const worker *w) {
    for (size_t i = 0; i < w->n_slot; i++)
        if (w->slots[i].j) return false;
    return true;
}

static void close_queue(worker *w) {
    pthread_mutex_lock(&w->lock);
    w->ending = true;
    pthread_mutex_unlock(&w->lock);
}

static void work(worker *w, mica_model *m) {
    for (;;) {
        if (w->run.stop->set && !w->ending) {
            log_info("serve", "ending: no new requests; %s",
                     all_free(w) && !anything_waits(w) ? "nothing is at work"
                                                       : "what is at work is brought to its end");
            close_queue(w);
        }
        take_up_all(w);
        const size_t n = gather_items(w);
        publish(w);
        if (n > 0) {
            step(w, n);
            continue;
        }
        if (w->ending && all_free(w) && !anything_waits(w)) return;
        // Slots that stand because their client does not read are looked at again soon.
        if (!all_free(w))
            rest(w, 5);
        else if (!mica_model_idle(m))
            rest(w, 100);
    }
}

static mica_status prepare(worker *w, mica_model *m, mica_error *err) {
    mica_model_get_info(m, &w->info);
    w->model = m;
    w->n_slot = w->info.n_seq < 1024 ? w->info.n_seq : 1024;
    w->slots = mem_calloc(w->n_slot, sizeof *w->slots);
    w->items = mem_calloc(w->n_slot, sizeof *w->items);
    w->at_work = mem_calloc(w->n_slot, sizeof(slot *));
    w->look = mem_calloc(w->n_slot, sizeof *w->look);
    if (!w->slots || !w->items || !w->at_work || !w->look)
        return fail(err, MICA_E_NOMEM, "worker: %zu slots: out of memory", w->n_slot);
    for (size_t i = 0; i < w->n_slot; i++) TRY(mica_session_new(&w->slots[i].s, m, err));
    pace_init(&w->pace);
    pthread_mutex_lock(&w->lock);
    w->n_look = w->n_slot;
    pthread_mutex_unlock(&w->lock);
    return MICA_OK;
}

static void tidy_up(worker *w) {
    queue_entry e;
    pthread_mutex_lock(&w->lock);
    w->ending = true;
    w->n_look = 0;
    while (queue_take(&w->q, NULL, 0, &e)) {
        job_fail(e.job, MICA_E_BUSY, "the server ends");
        job_close(e.job);
        job_drop(e.job);
    }
    pthread_mutex_unlock(&w->lock);
    for (size_t i = 0; w->slots && i < w->n_slot; i++) {
        mica_session_free(w->slots[i].s);
        strbuf_fini(&w->slots[i].made);
    }
    mem_free(w->slots);
    mem_free(w->items);
    mem_free(w->at_work);
    mem_free(w->look);
}

mica_status worker_run(worker *w, mica_model *m, const worker_run_options *opt, mica_error *err) {
    w->run = *opt;
    const mica_status st = prepare(w, m, err);
    if (st == MICA_OK) work(w, m);
    tidy_up(w);
    return st;
}
