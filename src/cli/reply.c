/* The splitter is a walk through five states, forwards only: a turn thinks at its start or not at all.
 *
 *     START --<think>--> LEAD --text--> THINKING --</think>--> GAP --text--> ANSWER
 *       \----------------------- any other text --------------------------->/
 *
 * Stop strings are looked for in the answer alone: a "\n\n" meant to end the answer must not end it inside
 * the thinking that came before. */
#include "cli/reply.h"

#include "base/status.h"

#include <string.h>

enum { STATE_START, STATE_LEAD, STATE_THINKING, STATE_GAP, STATE_ANSWER };

static const char g_open[] = "<think>", g_close[] = "</think>";

/* The length of the longest end of text[0..n) that is a proper prefix of `word`. */
static size_t prefix_at_end(const char *text, size_t n, const char *word) {
    const size_t n_word = strlen(word);
    size_t k = n < n_word - 1 ? n : n_word - 1;
    while (k > 0 && memcmp(text + n - k, word, k) != 0) k--;
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
        const size_t k = prefix_at_end(s->held.p, s->held.n, s->stops[i]);
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

/* One step on the bytes held; returns how many it used up. 0: it needs more text. */
static size_t step(reply *r, const char *p, size_t n) {
    const size_t n_open = sizeof g_open - 1, n_close = sizeof g_close - 1;
    const size_t lead = white_space(p, n);
    const char *close;
    size_t keep;
    switch (r->state) {
    case STATE_START:
        if (n - lead >= n_open && memcmp(p + lead, g_open, n_open) == 0) {
            give(r, PART_MARK, p, lead + n_open);
            r->state = STATE_LEAD;
            return lead + n_open;
        }
        if (n - lead < n_open && memcmp(p + lead, g_open, n - lead) == 0) return 0;
        r->state = STATE_ANSWER;
        return 0;
    case STATE_LEAD:
    case STATE_GAP:
        give(r, PART_MARK, p, lead);
        if (lead < n) r->state = r->state == STATE_LEAD ? STATE_THINKING : STATE_ANSWER;
        return lead;
    case STATE_THINKING:
        close = memmem(p, n, g_close, n_close);
        keep = close ? 0 : prefix_at_end(p, n, g_close);
        n = close ? (size_t)(close - p) : n - keep;
        while (n > 0 && strchr(" \t\r\n", p[n - 1])) n--; // white space before the mark belongs to it
        give(r, PART_THINKING, p, n);
        if (!close) return n;
        give(r, PART_MARK, p + n, (size_t)(close - p) - n + n_close);
        r->state = STATE_GAP;
        return (size_t)(close - p) + n_close;
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

mica_status reply_init(reply *r, const reply_options *opt, mica_error *err) {
    *r = (reply){.split = !opt->raw,
                 .stop = {.stops = opt->stops, .n_stop = opt->n_stop},
                 .sink = opt->sink,
                 .user = opt->user};
    return mica_text_stream_new(&r->text, opt->model, false, err);
}

void reply_fini(reply *r) {
    mica_text_stream_free(r->text);
    strbuf_fini(&r->held);
    strbuf_fini(&r->stop.held);
    *r = (reply){0};
}

void reply_begin(reply *r, const char *prompt) {
    strbuf_clear(&r->held);
    strbuf_clear(&r->stop.held);
    r->stopped = false;
    r->state = r->split ? STATE_START : STATE_ANSWER;
    if (!r->split || !prompt) return;
    size_t n = strlen(prompt);
    while (n > 0 && strchr(" \t\r\n", prompt[n - 1])) n--;
    const size_t n_open = sizeof g_open - 1, n_close = sizeof g_close - 1;
    if (n >= n_open && memcmp(prompt + n - n_open, g_open, n_open) == 0)
        r->state = STATE_LEAD;
    else if (n >= n_close && memcmp(prompt + n - n_close, g_close, n_close) == 0)
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
