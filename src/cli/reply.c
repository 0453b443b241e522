/* From tokens by way of mica_answer to the sink; in the answer's text stop strings are looked for. */
#include "cli/reply.h"

#include "base/status.h"

#include <string.h>

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

/* ---- Pieces ---- */

static void give(reply *r, reply_part part, const char *p, size_t n) {
    r->n_held -= n;
    if (n > 0) r->sink(r->user, part, p, n);
}

static void give_answer(reply *r, const char *p, size_t n) {
    slice out;
    if (n == 0 || r->stopped) return;
    r->stopped = stopper_put(&r->stop, p, n, &out);
    give(r, PART_ANSWER, out.p, out.n);
    stopper_drop(&r->stop, out.n);
}

static void on_piece(void *user, const mica_answer_piece *p) {
    reply *r = user;
    if (p->kind == MICA_ANSWER_TEXT)
        give_answer(r, p->text, p->n_text);
    else if (!r->stopped)
        give(r, p->kind == MICA_ANSWER_THINK ? PART_THINKING : PART_MARK, p->text, p->n_text);
}

bool reply_put_text(reply *r, const char *text, size_t n) {
    if (r->stopped) return false;
    r->n_held += n;
    if (!r->answer)
        give_answer(r, text, n);
    else if (mica_answer_put(r->answer, text, n, NULL) != MICA_OK)
        r->failed = true;
    return !r->stopped && !r->failed;
}

void reply_flush(reply *r) {
    if (r->stopped) return;
    if (r->answer && mica_answer_end(r->answer, NULL) != MICA_OK) r->failed = true;
    if (r->stopped) return;
    give(r, PART_ANSWER, r->stop.held.p, r->stop.held.n);
    strbuf_clear(&r->stop.held);
}

bool reply_holds_text(const reply *r) {
    return r->n_held > 0;
}

/* ---- From tokens ---- */

mica_status reply_init(reply *r, const reply_options *opt, mica_error *err) {
    *r = (reply){.stop = {.stops = opt->stops, .n_stop = opt->n_stop}, .sink = opt->sink, .user = opt->user};
    mica_model_info info;
    mica_model_get_info(opt->model, &info);
    const bool split = !opt->raw && info.think_begin;
    // The marks may be control tokens, which text leaves out otherwise.
    mica_status st = mica_text_stream_new(&r->text, opt->model, split, err);
    if (st == MICA_OK && split)
        st = mica_answer_new(
            &r->answer, opt->model,
            &(mica_answer_options){.in_think = opt->in_think, .marks = true, .fn = on_piece, .user = r}, err);
    if (st != MICA_OK) reply_fini(r);
    return st;
}

void reply_fini(reply *r) {
    mica_text_stream_free(r->text);
    mica_answer_free(r->answer);
    strbuf_fini(&r->stop.held);
    *r = (reply){0};
}

bool reply_put(reply *r, int32_t id) {
    size_t n;
    const char *text = mica_text_stream_put(r->text, id, &n);
    return reply_put_text(r, text, n);
}

void reply_end(reply *r) {
    size_t n;
    const char *rest = mica_text_stream_end(r->text, &n);
    reply_put_text(r, rest, n);
    reply_flush(r);
}
