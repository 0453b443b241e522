/* POST /v1/messages and /v1/messages/count_tokens.
 *
 * A stream is: message_start; for each block content_block_start, deltas, content_block_stop, with indices
 * that rise; message_delta with the reason and the usage; message_stop. Blocks are thinking, text, tool_use,
 * opened when there is something to put in: an empty block breaks clients later.
 * https://docs.anthropic.com/en/docs/build-with-claude/streaming */
#include "serve/anthropic_in.h"
#include "serve/server_int.h"
#include "serve/sse.h"

static const char *const g_max_names[] = {"max_tokens", NULL};

enum { OPEN_NONE, OPEN_THINK, OPEN_TEXT, OPEN_TOOL };

// Thinking carries a signature there; ours proves nothing and is not looked at when it comes back.
static const char g_signature[] = "bWljYQ==";

static json_t *usage_json(const outcome *o, uint64_t n_made) {
    const uint64_t n_cached = o->begin.n_cached;
    return json_pack("{s:o, s:o, s:i, s:o}", "input_tokens", json_u64(o->begin.n_prompt - n_cached),
                     "cache_read_input_tokens", json_u64(n_cached), "cache_creation_input_tokens", 0,
                     "output_tokens", json_u64(n_made));
}

static const char *stop_reason(const choice *c) {
    switch (c->end.finish) {
    case FINISH_STOP_STRING: return "stop_sequence";
    case FINISH_LENGTH: return "max_tokens";
    case FINISH_CONTEXT: return "model_context_window_exceeded";
    case FINISH_CALLS: return "tool_use";
    default: return "end_turn";
    }
}

static json_t *stop_sequence(const outcome *o, const choice *c) {
    const int i = c->end.stop;
    return c->end.finish == FINISH_STOP_STRING && i >= 0 ? json_string(o->job->ask.stop[i]) : json_null();
}

/* ---- Stream ---- */

static void message_begin(outcome *o, strbuf *out) {
    sse_event(out, "message_start",
              json_pack("{s:s, s:{s:s, s:s, s:s, s:s, s:[], s:n, s:n, s:o}}", "type", "message_start",
                        "message", "id", o->id, "type", "message", "role", "assistant", "model", o->name,
                        "content", "stop_reason", "stop_sequence", "usage", usage_json(o, 1)));
}

static void close_block(choice *c, strbuf *out) {
    const int index = c->n_part - 1;
    if (c->open == OPEN_NONE) return;
    if (c->open == OPEN_THINK)
        sse_event(out, "content_block_delta",
                  json_pack("{s:s, s:i, s:{s:s, s:s}}", "type", "content_block_delta", "index", index,
                            "delta", "type", "signature_delta", "signature", g_signature));
    sse_event(out, "content_block_stop",
              json_pack("{s:s, s:i}", "type", "content_block_stop", "index", index));
    c->open = OPEN_NONE;
}

/* Takes the block. */
static void open_block(choice *c, int kind, json_t *block, strbuf *out) {
    close_block(c, out);
    c->open = kind;
    sse_event(out, "content_block_start",
              json_pack("{s:s, s:i, s:o}", "type", "content_block_start", "index", c->n_part++,
                        "content_block", block));
}

static void put_delta(const choice *c, const char *type, const char *name, slice text, strbuf *out) {
    sse_event(out, "content_block_delta",
              json_pack("{s:s, s:i, s:{s:s, s:o}}", "type", "content_block_delta", "index", c->n_part - 1,
                        "delta", "type", type, name, json_slice(text)));
}

static void message_piece(outcome *o, choice *c, const event *e, strbuf *out) {
    (void)o;
    if (e->kind == EVENT_THINK) {
        if (c->open != OPEN_THINK)
            open_block(c, OPEN_THINK,
                       json_pack("{s:s, s:s, s:s}", "type", "thinking", "thinking", "", "signature", ""),
                       out);
        put_delta(c, "thinking_delta", "thinking", e->body, out);
    } else if (e->kind == EVENT_TEXT) {
        if (c->open != OPEN_TEXT)
            open_block(c, OPEN_TEXT, json_pack("{s:s, s:s}", "type", "text", "text", ""), out);
        put_delta(c, "text_delta", "text", e->body, out);
    } else if (e->kind == EVENT_CALL) {
        const tool_call *t = &c->calls[c->n_call - 1];
        open_block(c, OPEN_TOOL,
                   json_pack("{s:s, s:s, s:o, s:{}}", "type", "tool_use", "id", t->id, "name",
                             json_buffer(&t->name), "input"),
                   out);
    } else if (e->kind == EVENT_ARGS) {
        put_delta(c, "input_json_delta", "partial_json", e->body, out);
    }
}

static void message_close(outcome *o, choice *c, strbuf *out) {
    close_block(c, out);
    sse_event(out, "message_delta",
              json_pack("{s:s, s:{s:s, s:o}, s:o}", "type", "message_delta", "delta", "stop_reason",
                        stop_reason(c), "stop_sequence", stop_sequence(o, c), "usage",
                        usage_json(o, c->end.n_made)));
}

static void message_end(outcome *o, strbuf *out) {
    (void)o;
    sse_event(out, "message_stop", json_pack("{s:s}", "type", "message_stop"));
}

static void message_fail(outcome *o, const problem *p, strbuf *out) {
    sse_event(out, "error", problem_json(p, DIALECT_ANTHROPIC, o->request_id));
}

static void message_ping(outcome *o, strbuf *out) {
    if (o->begun)
        sse_event(out, "ping", json_pack("{s:s}", "type", "ping"));
    else
        sse_comment(out, "waiting");
}

/* ---- Whole ---- */

static json_t *tool_json(const tool_call *t) {
    json_t *input = json_loadb(strbuf_cstr(&t->args), t->args.n, JSON_ALLOW_NUL, NULL);
    return json_pack("{s:s, s:s, s:o, s:o}", "type", "tool_use", "id", t->id, "name", json_buffer(&t->name),
                     "input", input ? input : json_object());
}

static json_t *message_whole(outcome *o) {
    const choice *c = &o->choices[0];
    json_t *content = json_array();
    if (c->think.n > 0)
        json_array_append_new(content, json_pack("{s:s, s:o, s:s}", "type", "thinking", "thinking",
                                                 json_buffer(&c->think), "signature", g_signature));
    if (c->text.n > 0)
        json_array_append_new(content,
                              json_pack("{s:s, s:o}", "type", "text", "text", json_buffer(&c->text)));
    for (size_t i = 0; i < c->n_call; i++) json_array_append_new(content, tool_json(&c->calls[i]));
    return json_pack("{s:s, s:s, s:s, s:s, s:o, s:s, s:o, s:o}", "id", o->id, "type", "message", "role",
                     "assistant", "model", o->name, "content", content, "stop_reason", stop_reason(c),
                     "stop_sequence", stop_sequence(o, c), "usage", usage_json(o, c->end.n_made));
}

static json_t *no_pick(outcome *o, choice *c, const event_pick *top, size_t n) {
    (void)o;
    (void)c;
    (void)top;
    (void)n;
    return json_null();
}

static const shape g_messages = {.id_prefix = "msg_",
                                 .call_prefix = "toolu_",
                                 .begin = message_begin,
                                 .piece = message_piece,
                                 .close = message_close,
                                 .end = message_end,
                                 .fail = message_fail,
                                 .ping = message_ping,
                                 .pick = no_pick,
                                 .whole = message_whole};

/* ---- Requests ---- */

static mica_status prepare(job *j, const mica_server *s, const json_t *body, bool count_only, problem *p) {
    const ask_rules rules = {s->model, &s->sampling, g_max_names, "stop_sequences"};
    anthropic_in in;
    TRY(ask_parse(&j->ask, body, &rules, p));
    j->ask.fit = true; // max_tokens is required there, and clients send more than a context holds
    j->ask.n_choice = 1;
    TRY(anthropic_in_parse(&in, body, s->think, p));
    if (in.n_think >= 0) j->ask.n_think = in.n_think;
    if (j->ask.n_think == 0) in.chat.think = "off";
    mica_status st = prompt_chat(j, s->model, &in.chat, NULL, p);
    if (st == MICA_OK && !count_only) st = ask_check_room(&j->ask, j->prompt.n, s->info.n_ctx, p);
    anthropic_in_fini(&in);
    return st;
}

static void answer(mica_server *s, exchange *x, bool count_only) {
    problem p = {0};
    json_t *body = server_body(s, x);
    if (!body) return;
    job *j = job_new(JOB_TEXT);
    const mica_status st =
        j ? prepare(j, s, body, count_only, &p) : problem_set(&p, 500, NULL, "out of memory");
    json_decref(body);
    if (st == MICA_OK && !count_only) {
        server_follow(s, x, &g_messages, j, NULL);
        return;
    }
    if (st == MICA_OK)
        exchange_json(x, 200, json_pack("{s:o}", "input_tokens", json_u64(j->prompt.n)));
    else
        exchange_problem(x, &p);
    job_drop(j);
}

void route_messages(mica_server *s, exchange *x) {
    answer(s, x, false);
}

void route_count_tokens(mica_server *s, exchange *x) {
    answer(s, x, true);
}
