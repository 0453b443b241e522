/* POST /v1/chat/completions and /apply-template.
 *
 * A stream is: the role; content, reasoning_content and tool_calls as they come; a chunk with an empty delta
 * and the finish_reason for each choice; usage when it was asked for; [DONE]. Every chunk has the same id,
 * created and model. https://platform.openai.com/docs/api-reference/chat */
#include "serve/prompt.h"
#include "serve/server_int.h"
#include "serve/sse.h"

#include "base/mem.h"

static const char *const g_max_names[] = {"max_completion_tokens", "max_tokens", "n_predict", NULL};

/* ---- Chunks ---- */

static json_t *chunk(const outcome *o, const char *object) {
    return json_pack("{s:s, s:s, s:I, s:s}", "id", o->id, "object", object, "created",
                     (json_int_t)o->created_s, "model", o->name);
}

/* The probabilities that came since the last chunk; null when they are not wanted. */
static json_t *new_picks(const outcome *o, choice *c) {
    if (o->job->ask.n_top < 0) return json_null();
    json_t *list = json_array();
    for (; c->n_pick_told < json_array_size(c->picks); c->n_pick_told++)
        json_array_append(list, json_array_get(c->picks, c->n_pick_told));
    return json_pack("{s:o, s:n}", "content", list, "refusal");
}

/* Takes the delta. */
static void put_delta(outcome *o, choice *c, json_t *delta, const char *finish, strbuf *out) {
    json_t *v = chunk(o, "chat.completion.chunk");
    json_t *one = json_pack("{s:i, s:o, s:o, s:s?}", "index", c->index, "delta", delta, "logprobs",
                            new_picks(o, c), "finish_reason", finish);
    json_object_set_new(v, "choices", json_pack("[o]", one));
    if (o->job->ask.include_usage) json_object_set_new(v, "usage", json_null());
    if (finish) json_object_set_new(v, "timings", outcome_timings(o));
    sse_data(out, v);
}

static void chat_begin(outcome *o, strbuf *out) {
    for (size_t i = 0; i < o->n_choice; i++)
        put_delta(o, &o->choices[i], json_pack("{s:s, s:s}", "role", "assistant", "content", ""), NULL, out);
}

static void put_progress(outcome *o, const event *e, strbuf *out) {
    json_t *v = chunk(o, "chat.completion.chunk");
    json_object_set_new(v, "choices", json_array());
    json_object_set_new(v, "prompt_progress",
                        json_pack("{s:I, s:I, s:I}", "total", (json_int_t)o->begin.n_prompt, "cache",
                                  (json_int_t)o->begin.n_cached, "processed", (json_int_t)e->number));
    sse_data(out, v);
}

static void chat_piece(outcome *o, choice *c, const event *e, strbuf *out) {
    const tool_call *t = c->n_call > 0 ? &c->calls[c->n_call - 1] : NULL;
    switch (e->kind) {
    case EVENT_THINK:
        put_delta(o, c, json_pack("{s:o}", "reasoning_content", json_slice(e->body)), NULL, out);
        break;
    case EVENT_TEXT: put_delta(o, c, json_pack("{s:o}", "content", json_slice(e->body)), NULL, out); break;
    case EVENT_CALL:
        put_delta(o, c,
                  json_pack("{s:[{s:I, s:s, s:s, s:{s:o, s:s}}]}", "tool_calls", "index",
                            (json_int_t)e->number, "id", t->id, "type", "function", "function", "name",
                            json_buffer(&t->name), "arguments", ""),
                  NULL, out);
        break;
    case EVENT_ARGS:
        put_delta(o, c,
                  json_pack("{s:[{s:I, s:{s:o}}]}", "tool_calls", "index", (json_int_t)e->number, "function",
                            "arguments", json_slice(e->body)),
                  NULL, out);
        break;
    case EVENT_PROGRESS: put_progress(o, e, out); break;
    default: break;
    }
}

static void chat_close(outcome *o, choice *c, strbuf *out) {
    put_delta(o, c, json_object(), outcome_finish(c), out);
}

static void chat_end(outcome *o, strbuf *out) {
    if (o->job->ask.include_usage) {
        json_t *v = chunk(o, "chat.completion.chunk");
        json_object_set_new(v, "choices", json_array());
        json_object_set_new(v, "usage", outcome_usage(o));
        json_object_set_new(v, "timings", outcome_timings(o));
        sse_data(out, v);
    }
    strbuf_puts(out, "data: [DONE]\n\n");
}

static void chat_fail(outcome *o, const problem *p, strbuf *out) {
    sse_data(out, problem_json(p, DIALECT_OPENAI, o->request_id));
}

static void chat_ping(outcome *o, strbuf *out) {
    sse_comment(out, o->begun ? "reading the prompt" : "waiting");
}

/* ---- Probabilities ---- */

static json_t *token_record(const outcome *o, event_pick pick) {
    size_t n = 0;
    char *text = NULL;
    const char *bytes = mica_token_bytes(o->model, pick.id, &n);
    json_t *list = json_array();
    for (size_t i = 0; bytes && i < n; i++)
        json_array_append_new(list, json_integer((unsigned char)bytes[i]));
    if (mica_detokenize(o->model, &pick.id, 1, true, &text, NULL) != MICA_OK) text = NULL;
    json_t *v = json_pack("{s:s, s:f, s:o}", "token", text ? text : "", "logprob", (double)pick.logprob,
                          "bytes", list);
    mica_text_free(text);
    return v;
}

static json_t *chat_pick(outcome *o, choice *c, const event_pick *top, size_t n) {
    (void)c;
    json_t *v = token_record(o, top[0]), *list = json_array();
    for (size_t i = 1; i < n; i++) json_array_append_new(list, token_record(o, top[i]));
    json_object_set_new(v, "top_logprobs", list);
    return v;
}

/* ---- Whole ---- */

static json_t *calls_json(const choice *c) {
    json_t *list = json_array();
    for (size_t i = 0; i < c->n_call; i++)
        json_array_append_new(list, json_pack("{s:s, s:s, s:{s:o, s:o}}", "id", c->calls[i].id, "type",
                                              "function", "function", "name", json_buffer(&c->calls[i].name),
                                              "arguments", json_buffer(&c->calls[i].args)));
    return list;
}

static json_t *message_json(const choice *c) {
    json_t *m = json_pack("{s:s, s:o, s:n}", "role", "assistant", "content",
                          c->text.n == 0 && c->n_call > 0 ? json_null() : json_buffer(&c->text), "refusal");
    if (c->think.n > 0) json_object_set_new(m, "reasoning_content", json_buffer(&c->think));
    if (c->n_call > 0) json_object_set_new(m, "tool_calls", calls_json(c));
    return m;
}

static json_t *chat_whole(outcome *o) {
    json_t *v = chunk(o, "chat.completion"), *list = json_array();
    for (size_t i = 0; i < o->n_choice; i++) {
        choice *c = &o->choices[i];
        json_array_append_new(list,
                              json_pack("{s:i, s:o, s:o, s:s}", "index", c->index, "message", message_json(c),
                                        "logprobs", new_picks(o, c), "finish_reason", outcome_finish(c)));
    }
    json_object_set_new(v, "choices", list);
    json_object_set_new(v, "usage", outcome_usage(o));
    json_object_set_new(v, "timings", outcome_timings(o));
    return v;
}

static const shape g_chat = {.id_prefix = "chatcmpl-",
                             .call_prefix = "call_",
                             .begin = chat_begin,
                             .piece = chat_piece,
                             .close = chat_close,
                             .end = chat_end,
                             .fail = chat_fail,
                             .ping = chat_ping,
                             .pick = chat_pick,
                             .whole = chat_whole};

/* ---- Requests ---- */

static mica_status parse_probabilities(ask *a, const json_t *body, problem *p) {
    bool wanted = false;
    int64_t n = 0;
    const json_t *top = json_object_get(body, "top_logprobs");
    TRY(field_bool(&wanted, body, "logprobs", p));
    TRY(field_int(&n, body, "top_logprobs", (field_range){0, ASK_MAX_TOP}, p));
    if (!wanted && n > 0 && top)
        return problem_set(p, 400, "top_logprobs", "top_logprobs: it needs logprobs: true");
    a->n_top = wanted ? (int)n : -1;
    return MICA_OK;
}

/* Text in, text out: other kinds are said to be missing, not passed over. */
static mica_status check_modalities(const json_t *body, problem *p) {
    json_t *list = NULL, *one, *audio = NULL;
    size_t i;
    TRY(field_array(&list, body, "modalities", p));
    TRY(field_object(&audio, body, "audio", p));
    json_array_foreach(list, i, one) if (!json_is_string(one) ||
                                         strcmp(json_string_value(one), "text") !=
                                             0) return problem_set(p, 400, "modalities",
                                                                   "modalities: this model makes text only");
    return audio ? problem_set(p, 400, "audio", "audio: this model makes text only") : MICA_OK;
}

static mica_status parse_chat(chat_ask *c, json_t **tools, const mica_server *s, const json_t *body,
                              problem *p) {
    json_t *messages = NULL, *kwargs = NULL;
    TRY(check_modalities(body, p));
    TRY(field_array(&messages, body, "messages", p));
    TRY(field_object(&kwargs, body, "chat_template_kwargs", p));
    TRY(prompt_tools(tools, body, p));
    c->messages = messages;
    c->kwargs = kwargs;
    c->tools = *tools;
    TRY(prompt_tool_choice(c, body, p));
    TRY(prompt_format(c, body, p));
    return prompt_think(c, body, s->think, p);
}

static mica_status prepare_chat(job *j, const mica_server *s, const json_t *body, problem *p) {
    const ask_rules rules = {s->model, &s->sampling, g_max_names, "stop"};
    chat_ask c = {0};
    json_t *tools = NULL;
    mica_status st = ask_parse(&j->ask, body, &rules, p);
    if (st == MICA_OK) st = parse_probabilities(&j->ask, body, p);
    if (st == MICA_OK) st = parse_chat(&c, &tools, s, body, p);
    if (j->ask.n_think == 0) c.think = "off"; // no thinking is a budget that templates know
    if (st == MICA_OK) st = prompt_chat(j, s->model, &c, NULL, p);
    if (st == MICA_OK) st = ask_check_room(&j->ask, j->prompt.n, s->info.n_ctx, p);
    json_decref(tools);
    return st;
}

void route_chat(mica_server *s, exchange *x) {
    problem p = {0};
    json_t *body = server_body(s, x);
    if (!body) return;
    job *j = job_new(JOB_TEXT);
    if (!j) {
        json_decref(body);
        return;
    }
    const mica_status st = prepare_chat(j, s, body, &p);
    json_decref(body);
    if (st == MICA_OK) {
        server_follow(s, x, &g_chat, j, NULL);
        return;
    }
    job_drop(j);
    exchange_problem(x, &p);
}

static mica_status template_json(json_t **out, const mica_server *s, job *j, const json_t *body, problem *p) {
    chat_ask c = {0};
    json_t *tools = NULL;
    char *text = NULL;
    bool generation = true;
    mica_status st = parse_chat(&c, &tools, s, body, p);
    if (st == MICA_OK) st = field_bool(&generation, body, "add_generation_prompt", p);
    c.no_generation_prompt = !generation;
    if (st == MICA_OK) st = prompt_chat(j, s->model, &c, &text, p);
    if (st == MICA_OK) {
        json_t *ids = json_array();
        for (size_t i = 0; i < j->prompt.n; i++) json_array_append_new(ids, json_integer(j->prompt.ids[i]));
        *out = json_pack("{s:s, s:o}", "prompt", text, "tokens", ids);
    }
    mica_text_free(text);
    json_decref(tools);
    return st;
}

void route_template(mica_server *s, exchange *x) {
    problem p = {0};
    json_t *out = NULL, *body = server_body(s, x);
    if (!body) return;
    job *j = job_new(JOB_TEXT);
    const mica_status st =
        j ? template_json(&out, s, j, body, &p) : problem_set(&p, 500, NULL, "out of memory");
    job_drop(j);
    json_decref(body);
    if (st == MICA_OK)
        exchange_json(x, 200, out);
    else
        exchange_problem(x, &p);
}
