/* The splitter is a walk through five states, forwards only: a turn thinks at its start or not at all.
 *
 *     START --begin---> LEAD --text--> THINKING --end--> GAP --text--> ANSWER
 *       \----------------------- any other text --------------------------->/
 *
 * Stop strings are looked for in the answer alone: a "\n\n" meant to end the answer must not end it inside
 * the thinking that came before. */
#include "cli/reply.h"

#include "base/status.h"

#include <string.h>

enum { STATE_START, STATE_LEAD, STATE_THINKING, STATE_GAP, STATE_ANSWER };

/* The length of the longest end of text[0..n) that is a proper prefix of `word`. */
static size_t prefix_at_end(const char *text, size_t n, slice word) {
    size_t k = n < word.n - 1 ? n : word.n - 1;
    while (k > 0 && memcmp(text + n - k, word.p, k) != 0) k--;
    return k;
}

/* ---- Stop strings ---- */

bool stopper_put(stopper *s, const char *text, size_t n, slice *out) {
    // What the last call gave is dropped only now, because the caller borrowed it.
    *out = (slice){"", 0};
    strbuf_put(&s->held, text, n);
    if (s->held.n == 0) return false;
    // The one that ends first counts, then the longest: so it comes out the same whatever pieces the text
    // comes in.
    const char *first = NULL, *first_end = NULL;
    size_t keep = 0;
    for (size_t i = 0; i < s->n_stop; i++) {
        const size_t len = strlen(s->stops[i]);
        const char *at = memmem(s->held.p, s->held.n, s->stops[i], len);
        if (at && (!first || at + len < first_end || (at + len == first_end && at < first))) {
            first = at;
            first_end = at + len;
        }
        const size_t k = prefix_at_end(s->held.p, s->held.n, slice_of(s->stops[i]));
        if (k > keep) keep = k;
    }
    *out = (slice){s->held.p, first ? (size_t)(first - s->held.p) : s->held.n - keep};
    return first != NULL;
}

/* Forgets the n bytes that were given. */
static void stopper_drop(stopper *s, size_t n) {
    if (n == 0) return;
    memmove(s->held.p, s->held.p + n, s->held.n - n);
    s->held.n -= n;
}

/* ---- Splitting ---- */

static void give(reply *r, reply_part part, const char *p, size_t n) {
    if (n > 0) r->sink(r->user, part, p, n);
}

static void give_answer(reply *r, const char *p, size_t n) {
    slice out;
    if (n == 0) return;
    r->stopped = stopper_put(&r->stop, p, n, &out);
    give(r, PART_ANSWER, out.p, out.n);
    stopper_drop(&r->stop, out.n);
}

static size_t white_space(const char *p, size_t n) {
    size_t k = 0;
    while (k < n && strchr(" \t\r\n", p[k]) && p[k]) k++;
    return k;
}

static size_t trimmed(const char *p, size_t n) {
    while (n > 0 && strchr(" \t\r\n", p[n - 1]) && p[n - 1]) n--;
    return n;
}

/* In STATE_START: is it the opening mark, any other text, or too early to say? */
static size_t step_start(reply *r, const char *p, size_t n, size_t lead) {
    const slice text = {p + lead, n - lead};
    if (slice_starts(text, r->think_begin)) {
        give(r, PART_MARK, p, lead + r->think_begin.n);
        r->state = STATE_LEAD;
        return lead + r->think_begin.n;
    }
    if (!slice_starts(r->think_begin, text)) r->state = STATE_ANSWER;
    return 0;
}

static size_t step_thinking(reply *r, const char *p, size_t n) {
    const char *close = memmem(p, n, r->think_end.p, r->think_end.n);
    size_t n_text = close ? (size_t)(close - p) : n - prefix_at_end(p, n, r->think_end);
    n_text = trimmed(p, n_text); // white space before the mark belongs to it
    give(r, PART_THINKING, p, n_text);
    if (!close) return n_text;
    const size_t n_all = (size_t)(close - p) + r->think_end.n;
    give(r, PART_MARK, p + n_text, n_all - n_text);
    r->state = STATE_GAP;
    return n_all;
}

/* One step on the bytes held; returns how many it used up. 0: it needs more text. */
static size_t step(reply *r, const char *p, size_t n) {
    const size_t lead = white_space(p, n);
    switch (r->state) {
    case STATE_START: return step_start(r, p, n, lead);
    case STATE_LEAD:
    case STATE_GAP:
        give(r, PART_MARK, p, lead);
        if (lead < n) r->state = r->state == STATE_LEAD ? STATE_THINKING : STATE_ANSWER;
        return lead;
    case STATE_THINKING: return step_thinking(r, p, n);
    default: give_answer(r, p, n); return n;
    }
}

bool reply_put_text(reply *r, const char *text, size_t n) {
    if (r->stopped) return false;
    if (r->state == STATE_ANSWER) {
        give_answer(r, text, n);
        return !r->stopped;
    }
    strbuf_put(&r->held, text, n);
    for (;;) {
        const int before = r->state;
        const size_t used = r->held.n > 0 ? step(r, r->held.p, r->held.n) : 0;
        if (used > 0) {
            memmove(r->held.p, r->held.p + used, r->held.n - used);
            r->held.n -= used;
        }
        if (r->held.n == 0 || (used == 0 && r->state == before) || r->stopped) break;
    }
    return !r->stopped;
}

/* ---- From tokens ---- */

static slice mark_of(const char *text) {
    return text ? (slice){text, trimmed(text, strlen(text))} : (slice){"", 0};
}

mica_status reply_init(reply *r, const reply_options *opt, mica_error *err) {
    mica_model_info info;
    mica_model_get_info(opt->model, &info);
    *r = (reply){.stop = {.stops = opt->stops, .n_stop = opt->n_stop}, .sink = opt->sink, .user = opt->user};
    if (!opt->raw) {
        r->think_begin = mark_of(info.think_begin);
        r->think_end = mark_of(info.think_end);
    }
    // The marks may be control tokens, which text leaves out otherwise.
    return mica_text_stream_new(&r->text, opt->model, r->think_begin.n > 0, err);
}

void reply_fini(reply *r) {
    mica_text_stream_free(r->text);
    strbuf_fini(&r->held);
    strbuf_fini(&r->stop.held);
    *r = (reply){0};
}

static bool ends_with(slice text, slice end) {
    return text.n >= end.n && memcmp(text.p + text.n - end.n, end.p, end.n) == 0;
}

void reply_begin(reply *r, const char *prompt) {
    const bool split = r->think_begin.n > 0 && r->think_end.n > 0;
    strbuf_clear(&r->held);
    strbuf_clear(&r->stop.held);
    r->stopped = false;
    r->state = split ? STATE_START : STATE_ANSWER;
    if (!split || !prompt) return;
    const slice given = {prompt, trimmed(prompt, strlen(prompt))};
    if (ends_with(given, r->think_begin))
        r->state = STATE_LEAD;
    else if (ends_with(given, r->think_end))
        r->state = STATE_GAP;
}

bool reply_put(reply *r, int32_t id) {
    size_t n;
    const char *text = mica_text_stream_put(r->text, id, &n);
    return reply_put_text(r, text, n);
}

void reply_flush(reply *r) {
    if (r->stopped) return;
    // No mark came of what is held: it is plain text of the state it was held in.
    if (r->state == STATE_START)
        give_answer(r, r->held.p, r->held.n);
    else
        give(r, r->state == STATE_THINKING ? PART_THINKING : PART_MARK, r->held.p, r->held.n);
    if (!r->stopped) give(r, PART_ANSWER, r->stop.held.p, r->stop.held.n);
    strbuf_clear(&r->held);
    strbuf_clear(&r->stop.held);
}

void reply_end(reply *r) {
    size_t n;
    const char *rest = mica_text_stream_end(r->text, &n);
    reply_put_text(r, rest, n);
    reply_flush(r);
}

bool reply_holds_text(const reply *r) {
    return r->held.n > 0 || r->stop.held.n > 0;
}
