/* Tokens to events. */
#include "serve/voice.h"

#include "base/mem.h"

/* ---- Probabilities ---- */

typedef struct pick_head {
    uint32_t n_bytes, n_pick; // of the token's text; of the event_picks that follow
} pick_head;

static void hold_pick(voice *v, int32_t id, const mica_logprob *top) {
    size_t n_bytes = 0;
    const char *bytes = mica_token_bytes(v->model, id, &n_bytes);
    const pick_head h = {bytes ? (uint32_t)n_bytes : 0, (uint32_t)v->j->ask.n_top + 1};
    strbuf_put(&v->picks, &h, sizeof h);
    for (uint32_t i = 0; i < h.n_pick; i++)
        strbuf_put(&v->picks, &(event_pick){top[i].id, top[i].logprob}, sizeof(event_pick));
    strbuf_put(&v->pick_bytes, bytes, h.n_bytes);
}

/* Takes the oldest pick away; gives it out when asked. */
static void release_pick(voice *v, bool give) {
    pick_head h;
    memcpy(&h, v->picks.p, sizeof h);
    const size_t n_body = h.n_pick * sizeof(event_pick), n = sizeof h + n_body;
    if (give)
        flow_put(&v->j->flow,
                 &(event){.kind = EVENT_PICK, .choice = v->choice, .body = {v->picks.p + sizeof h, n_body}});
    memmove(v->picks.p, v->picks.p + n, v->picks.n - n);
    strbuf_cut(&v->picks, v->picks.n - n);
    memmove(v->pick_bytes.p, v->pick_bytes.p + h.n_bytes, v->pick_bytes.n - h.n_bytes);
    strbuf_cut(&v->pick_bytes, v->pick_bytes.n - h.n_bytes);
}

static bool goes_on_as(const voice *v, slice text) {
    const size_t n = v->pick_bytes.n < text.n ? v->pick_bytes.n : text.n;
    return n == 0 || memcmp(v->pick_bytes.p, text.p, n) == 0;
}

/* The picks of the tokens that made `text`. What was held before them is of marks and blanks between the
 * thinking, calls and text: it is no part of the content, and neither are they. */
static void give_picks(voice *v, slice text) {
    size_t n_out = 0;
    while (v->picks.n > 0 && !goes_on_as(v, text)) release_pick(v, false);
    while (v->picks.n > 0 && n_out < text.n) {
        pick_head h;
        memcpy(&h, v->picks.p, sizeof h);
        n_out += h.n_bytes;
        release_pick(v, true);
    }
}

static void forget_picks(voice *v) {
    strbuf_clear(&v->picks);
    strbuf_clear(&v->pick_bytes);
}

/* ---- Text ---- */

static void give(voice *v, event_kind kind, int64_t number, slice body) {
    flow_put(&v->j->flow, &(event){.kind = kind, .choice = v->choice, .number = number, .body = body});
}

static void give_text(voice *v, slice text) {
    if (text.n == 0) return;
    if (v->j->ask.n_top >= 0) give_picks(v, text);
    give(v, EVENT_TEXT, 0, text);
}

static void put_text(voice *v, slice text) {
    slice out;
    if (v->over) return;
    v->stopped = stops_put(&v->stop, text, &out);
    v->over = v->stopped >= 0;
    give_text(v, out);
}

static void on_piece(void *user, const mica_answer_piece *p) {
    voice *v = user;
    if (v->over) return;
    if (p->kind != MICA_ANSWER_THINK) v->thinking = false;
    switch (p->kind) {
    case MICA_ANSWER_THINK: give(v, EVENT_THINK, 0, (slice){p->text, p->n_text}); break;
    case MICA_ANSWER_TEXT: put_text(v, (slice){p->text, p->n_text}); break;
    case MICA_ANSWER_CALL:
        give_text(v, stops_end(&v->stop)); // what stood before the call is not held any longer
        forget_picks(v);
        v->n_call = p->index + 1;
        give(v, EVENT_CALL, p->index, slice_of(p->name));
        break;
    case MICA_ANSWER_ARGUMENTS: give(v, EVENT_ARGS, p->index, (slice){p->text, p->n_text}); break;
    case MICA_ANSWER_CALL_END: v->over = v->j->one_call; break;
    case MICA_ANSWER_MARK: break; // not asked for
    }
}

/* ---- A choice ---- */

static slice trimmed(const char *text) {
    slice s = text ? slice_of(text) : (slice){"", 0};
    while (s.n > 0 && strchr(" \t\r\n", s.p[s.n - 1])) s.n--;
    return s;
}

/* The mark is a token of its own in every vocabulary that knows it: with it, thinking is over, although the
 * text after it is not there yet. */
static bool ends_thinking(const voice *v, int32_t id) {
    slice token;
    token.p = mica_token_bytes(v->model, id, &token.n);
    return v->think_end.n > 0 && token.p && slice_eq(token, v->think_end);
}

mica_status voice_init(voice *v, job *j, int choice, const mica_model *m, mica_error *err) {
    mica_status st = MICA_OK;
    mica_model_info info;
    mica_model_get_info(m, &info);
    *v = (voice){.j = j, .choice = choice, .model = m, .stopped = -1, .thinking = j->in_think};
    v->think_end = trimmed(info.think_end);
    stops_init(&v->stop, (const char *const *)j->ask.stop, j->ask.n_stop);
    TRY_GOTO(mica_text_stream_new(&v->text, m, j->chat, err), done);
    if (j->chat)
        TRY_GOTO(
            mica_answer_new(&v->answer, m,
                            &(mica_answer_options){
                                .in_think = j->in_think, .tools_json = j->tools, .fn = on_piece, .user = v},
                            err),
            done);
done:
    if (st != MICA_OK) voice_fini(v);
    return st;
}

void voice_fini(voice *v) {
    mica_text_stream_free(v->text);
    mica_answer_free(v->answer);
    stops_fini(&v->stop);
    strbuf_fini(&v->picks);
    strbuf_fini(&v->pick_bytes);
    *v = (voice){0};
}

static mica_status take(voice *v, const char *text, size_t n, mica_error *err) {
    if (n == 0) return MICA_OK;
    if (v->answer) return mica_answer_put(v->answer, text, n, err);
    put_text(v, (slice){text, n});
    return MICA_OK;
}

mica_status voice_put(voice *v, int32_t id, const mica_logprob *top, mica_error *err) {
    size_t n;
    v->n_made++;
    if (v->thinking) {
        v->n_thought++;
        v->thinking = !ends_thinking(v, id);
    }
    if (top) hold_pick(v, id, top);
    const char *text = mica_text_stream_put(v->text, id, &n);
    return take(v, text, n, err);
}

mica_status voice_end(voice *v, mica_error *err) {
    size_t n;
    if (v->over) return MICA_OK;
    const char *text = mica_text_stream_end(v->text, &n);
    TRY(take(v, text, n, err));
    if (v->answer) TRY(mica_answer_end(v->answer, err));
    if (!v->over) give_text(v, stops_end(&v->stop));
    return MICA_OK;
}
