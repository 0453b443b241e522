/* From tokens by way of mica_answer to the sink; in the answer's text stop strings are looked for. */
#include "cli/reply.h"

/* ---- Pieces ---- */

static void give(reply *r, reply_part part, const char *p, size_t n) {
    r->n_held -= n;
    if (n > 0) r->sink(r->user, part, p, n);
}

static void give_answer(reply *r, const char *p, size_t n) {
    slice out;
    if (n == 0 || r->stopped) return;
    r->stopped = stops_put(&r->stops, (slice){p, n}, &out) >= 0;
    give(r, PART_ANSWER, out.p, out.n);
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
    const slice rest = stops_end(&r->stops);
    give(r, PART_ANSWER, rest.p, rest.n);
}

bool reply_holds_text(const reply *r) {
    return r->n_held > 0;
}

/* ---- From tokens ---- */

mica_status reply_init(reply *r, const reply_options *opt, mica_error *err) {
    *r = (reply){.sink = opt->sink, .user = opt->user};
    stops_init(&r->stops, opt->stops, opt->n_stop);
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
    stops_fini(&r->stops);
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
