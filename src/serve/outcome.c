/* Gathering. The callbacks of a source come from the thread of the connection, one at a time. */
#include "serve/outcome.h"

#include "base/clock.h"
#include "base/mem.h"
#include "serve/sse.h"

#include <stdio.h>
#include <sys/random.h>
#include <time.h>

void outcome_new_id(char out[40], const char *prefix) {
    uint64_t r[2] = {clock_ns(), 0};
    const ssize_t got = getrandom(r, sizeof r, 0);
    (void)got;
    snprintf(out, 40, "%s%016llx%08llx", prefix, (unsigned long long)r[0], (unsigned long long)(r[1] >> 32));
}

outcome *outcome_new(const exchange *x, const outcome_options *opt) {
    outcome *o = mem_calloc(1, sizeof *o);
    const size_t n = job_choices(opt->job);
    if (o) o->choices = mem_calloc(n, sizeof *o->choices);
    if (!o || !o->choices) {
        mem_free(o);
        job_drop(opt->job);
        json_decref(opt->own);
        return NULL;
    }
    o->shape = opt->shape;
    o->job = opt->job;
    o->own = opt->own;
    o->model = opt->model;
    o->server = opt->server;
    o->n_choice = n;
    o->dialect = x->dialect;
    o->created_s = time(NULL);
    for (size_t i = 0; i < n; i++) o->choices[i].index = (int)i;
    outcome_new_id(o->id, opt->shape->id_prefix);
    snprintf(o->request_id, sizeof o->request_id, "%s", x->id);
    snprintf(o->name, sizeof o->name, "%s", opt->name);
    return o;
}

static void choice_fini(choice *c) {
    for (size_t i = 0; i < c->n_call; i++) {
        strbuf_fini(&c->calls[i].name);
        strbuf_fini(&c->calls[i].args);
    }
    mem_free(c->calls);
    strbuf_fini(&c->think);
    strbuf_fini(&c->text);
    json_decref(c->picks);
}

void outcome_free(outcome *o) {
    if (!o) return;
    for (size_t i = 0; i < o->n_choice; i++) choice_fini(&o->choices[i]);
    mem_free(o->choices);
    job_drop(o->job);
    json_decref(o->own);
    mem_free(o);
}

/* ---- Gathering ---- */

static bool add_call(outcome *o, choice *c, slice name) {
    if (c->n_call == c->cap_call) {
        const size_t cap = c->cap_call ? c->cap_call * 2 : 4;
        tool_call *calls = mem_realloc(c->calls, cap * sizeof *calls);
        if (!calls) return false;
        c->calls = calls;
        c->cap_call = cap;
    }
    tool_call *t = &c->calls[c->n_call++];
    *t = (tool_call){0};
    outcome_new_id(t->id, o->shape->call_prefix);
    strbuf_put(&t->name, name.p, name.n);
    return true;
}

static void add_pick(outcome *o, choice *c, slice body) {
    event_pick top[1 + ASK_MAX_TOP];
    const size_t n = body.n / sizeof *top;
    if (n == 0 || n > sizeof top / sizeof *top) return;
    memcpy(top, body.p, n * sizeof *top);
    if (!c->picks) c->picks = json_array();
    json_array_append_new(c->picks, o->shape->pick(o, c, top, n));
}

static void gather(outcome *o, choice *c, const event *e) {
    switch (e->kind) {
    case EVENT_BEGIN: memcpy(&o->begin, e->body.p, sizeof o->begin); break;
    case EVENT_THINK: strbuf_put(&c->think, e->body.p, e->body.n); break;
    case EVENT_TEXT: strbuf_put(&c->text, e->body.p, e->body.n); break;
    case EVENT_CALL: add_call(o, c, e->body); break;
    case EVENT_ARGS:
        if (c->n_call > 0) strbuf_put(&c->calls[c->n_call - 1].args, e->body.p, e->body.n);
        break;
    case EVENT_PICK: add_pick(o, c, e->body); break;
    case EVENT_END:
        memcpy(&c->end, e->body.p, sizeof c->end);
        c->ended = true;
        break;
    case EVENT_FAIL: {
        mica_error err = {.status = (mica_status)e->number};
        snprintf(err.text, sizeof err.text, "%.*s", (int)e->body.n, e->body.p);
        problem_of(&o->failed, err.status, &err, NULL);
        break;
    }
    default: break;
    }
}

/* ---- A source ---- */

static void on_event(void *user, const event *e, strbuf *out) {
    outcome *o = user;
    if (e->choice < 0 || (size_t)e->choice >= o->n_choice || o->failed.http) return;
    choice *c = &o->choices[e->choice];
    gather(o, c, e);
    if (!o->job->ask.stream) return;
    if (!o->begun && e->kind != EVENT_FAIL) {
        o->begun = true;
        o->shape->begin(o, out);
    }
    if (e->kind == EVENT_FAIL)
        o->shape->fail(o, &o->failed, out);
    else if (e->kind == EVENT_END)
        o->shape->close(o, c, out);
    else if (e->kind != EVENT_BEGIN && e->kind != EVENT_PICK)
        o->shape->piece(o, c, e, out);
}

static void on_ping(void *user, strbuf *out) {
    outcome *o = user;
    o->shape->ping(o, out);
}

static void on_end(void *user, strbuf *out) {
    outcome *o = user;
    if (o->failed.http) return;
    if (o->shape->kept) o->shape->kept(o);
    o->shape->end(o, out);
}

static int on_whole(void *user, strbuf *out) {
    outcome *o = user;
    if (o->failed.http) {
        json_text(out, problem_json(&o->failed, o->dialect, o->request_id));
        return o->failed.http;
    }
    if (o->shape->kept) o->shape->kept(o);
    json_text(out, o->shape->whole(o));
    return 200;
}

static void on_note(void *user, strbuf *out) {
    const outcome *o = user;
    const event_end *e = &o->choices[0].end;
    if (!o->choices[0].ended) {
        strbuf_printf(out, " prompt=%zu unfinished", o->job->prompt.n);
        return;
    }
    strbuf_printf(out,
                  " prompt=%llu cached=%llu made=%llu finish=%s wait_ms=%.0f prompt_ms=%.0f tokens/s=%.1f",
                  (unsigned long long)e->n_prompt, (unsigned long long)e->n_cached,
                  (unsigned long long)outcome_n_made(o), outcome_finish(&o->choices[0]), e->wait_ms,
                  e->prompt_ms, e->decode_ms > 0 ? (double)e->n_made * 1000.0 / e->decode_ms : 0.0);
}

static void on_free(void *user) {
    outcome_free(user);
}

source outcome_source(outcome *o) {
    return (source){.flow = &o->job->flow,
                    .user = o,
                    .stream = o->job->ask.stream,
                    .event = on_event,
                    .ping = on_ping,
                    .end = on_end,
                    .whole = on_whole,
                    .note = on_note,
                    .free = on_free};
}

/* ---- Words and numbers ---- */

const char *outcome_finish(const choice *c) {
    switch (c->end.finish) {
    case FINISH_LENGTH:
    case FINISH_CONTEXT: return "length";
    case FINISH_CALLS: return "tool_calls";
    default: return "stop";
    }
}

uint64_t outcome_n_made(const outcome *o) {
    uint64_t n = 0;
    for (size_t i = 0; i < o->n_choice; i++) n += o->choices[i].end.n_made;
    return n;
}

uint64_t outcome_n_thought(const outcome *o) {
    uint64_t n = 0;
    for (size_t i = 0; i < o->n_choice; i++) n += o->choices[i].end.n_thought;
    return n;
}

json_t *outcome_usage(const outcome *o) {
    const uint64_t n_made = outcome_n_made(o);
    uint64_t n_prompt = o->begin.n_prompt, n_cached = o->choices[0].end.n_cached;
    const size_t n_each = (size_t)o->job->ask.n_choice;
    // Each prompt counts once, however many choices it has.
    if (o->job->n_more > 0) n_prompt = o->job->prompt.n;
    for (size_t i = 0; i < o->job->n_more; i++) {
        n_prompt += o->job->more[i].n;
        n_cached += o->choices[(i + 1) * n_each].end.n_cached;
    }
    return json_pack("{s:o, s:o, s:o, s:{s:o}, s:{s:o}}", "prompt_tokens", json_u64(n_prompt),
                     "completion_tokens", json_u64(n_made), "total_tokens", json_u64(n_prompt + n_made),
                     "prompt_tokens_details", "cached_tokens", json_u64(n_cached),
                     "completion_tokens_details", "reasoning_tokens", json_u64(outcome_n_thought(o)));
}

static double per_second(uint64_t n, double ms) {
    return ms > 0 ? (double)n * 1000.0 / ms : 0.0;
}

json_t *outcome_timings(const outcome *o) {
    const event_end *e = &o->choices[0].end;
    const uint64_t n_read = e->n_prompt - e->n_cached;
    json_t *t =
        json_pack("{s:o, s:o, s:f, s:f, s:o, s:f, s:f}", "cache_n", json_u64(e->n_cached), "prompt_n",
                  json_u64(n_read), "prompt_ms", e->prompt_ms, "prompt_per_second",
                  per_second(n_read, e->prompt_ms), "predicted_n", json_u64(e->n_made), "predicted_ms",
                  e->decode_ms, "predicted_per_second", per_second(e->n_made, e->decode_ms));
    if (e->n_drafted > 0) {
        json_object_set_new(t, "draft_n", json_u64(e->n_drafted));
        json_object_set_new(t, "draft_n_accepted", json_u64(e->n_accepted));
    }
    return t;
}
