/* POST /v1/responses, and GET, DELETE and input_items of stored ones.
 *
 * A stream is: created, in_progress; for each item of the output (reasoning, message, function_call) added,
 * its deltas, its ends, done; completed or incomplete. Every event has the next sequence_number, every event
 * of an item the item's id. With a state folder responses are stored unless `store` is false, together with
 * the conversation they end: `previous_response_id` goes on from there.
 * https://platform.openai.com/docs/api-reference/responses-streaming */
#include "serve/carry.h"
#include "serve/responses_in.h"
#include "serve/responses_tools.h"
#include "serve/server_int.h"
#include "serve/sse.h"

#include "base/log.h"

#include <stdio.h>

static const char *const g_max_names[] = {"max_output_tokens", NULL};

enum { OPEN_NONE, OPEN_THINK, OPEN_TEXT, OPEN_CALL };

/* own of an outcome: {"request": what the response repeats, "messages": [...], "items": [...], "store": bool,
 * "names": of tools in namespaces, "carry": thinking is wrapped for the way back (carry.h), "output":
 * [finished items]}; the item at hand has its id in "item". */

/* ---- The response object ---- */

static json_t *usage_json(const outcome *o) {
    const uint64_t n_made = outcome_n_made(o), n_prompt = o->begin.n_prompt;
    return json_pack("{s:o, s:{s:o}, s:o, s:{s:o}, s:o}", "input_tokens", json_u64(n_prompt),
                     "input_tokens_details", "cached_tokens", json_u64(o->begin.n_cached), "output_tokens",
                     json_u64(n_made), "output_tokens_details", "reasoning_tokens",
                     json_u64(outcome_n_thought(o)), "total_tokens", json_u64(n_prompt + n_made));
}

static bool is_cut(const choice *c) {
    return c->ended && (c->end.finish == FINISH_LENGTH || c->end.finish == FINISH_CONTEXT);
}

/* status NULL: as it ended. */
static json_t *response_json(const outcome *o, const char *status) {
    const choice *c = &o->choices[0];
    const bool ended = !status;
    if (ended) status = is_cut(c) ? "incomplete" : "completed";
    json_t *v = json_pack("{s:s, s:s, s:I, s:s, s:s, s:n, s:O}", "id", o->id, "object", "response",
                          "created_at", (json_int_t)o->created_s, "status", status, "model", o->name, "error",
                          "output", json_object_get(o->own, "output"));
    json_object_update(v, json_object_get(o->own, "request"));
    json_object_set_new(v, "incomplete_details",
                        ended && is_cut(c) ? json_pack("{s:s}", "reason", "max_output_tokens") : json_null());
    json_object_set_new(v, "usage", ended ? usage_json(o) : json_null());
    return v;
}

/* ---- Items ---- */

static const char *item_id(const outcome *o) {
    return json_string_value(json_object_get(o->own, "item"));
}

static int output_index(const outcome *o) {
    return (int)json_array_size(json_object_get(o->own, "output"));
}

static json_t *text_part(const strbuf *text) {
    return json_pack("{s:s, s:o, s:[], s:[]}", "type", "output_text", "text", json_buffer(text),
                     "annotations", "logprobs");
}

/* The item that is open, as far as it has come; done: it is complete. */
static json_t *item_json(const outcome *o, const choice *c, bool done) {
    static const strbuf empty;
    const char *status = done ? "completed" : "in_progress";
    if (c->open == OPEN_THINK) {
        json_t *content =
            done ? json_pack("[{s:s, s:o}]", "type", "reasoning_text", "text", json_buffer(&c->think))
                 : json_array();
        json_t *v = json_pack("{s:s, s:s, s:[], s:o, s:s}", "id", item_id(o), "type", "reasoning", "summary",
                              "content", content, "status", status);
        if (done && json_is_true(json_object_get(o->own, "carry"))) {
            strbuf wrapped = {0};
            carry_wrap(&wrapped, (slice){c->think.p, c->think.n});
            json_object_set_new(v, "encrypted_content", json_buffer(&wrapped));
            strbuf_fini(&wrapped);
        }
        return v;
    }
    if (c->open == OPEN_TEXT) {
        json_t *content = done ? json_pack("[o]", text_part(&c->text)) : json_array();
        return json_pack("{s:s, s:s, s:s, s:s, s:o}", "id", item_id(o), "type", "message", "role",
                         "assistant", "status", status, "content", content);
    }
    const tool_call *t = &c->calls[c->n_part];
    json_t *call = json_pack("{s:s, s:s, s:s, s:o, s:o, s:s}", "id", item_id(o), "type", "function_call",
                             "call_id", t->id, "name", json_buffer(&t->name), "arguments",
                             json_buffer(done ? &t->args : &empty), "status", status);
    responses_tool_name(call, json_object_get(o->own, "names"));
    return call;
}

/* ---- Stream ---- */

/* Takes v; out NULL: nobody listens. */
static void tell(outcome *o, const char *type, json_t *v, strbuf *out) {
    json_object_set_new(v, "type", json_string(type));
    json_object_set_new(v, "sequence_number", json_integer((json_int_t)o->sequence++));
    if (out)
        sse_event(out, type, v);
    else
        json_decref(v);
}

/* An event of the open item; takes the value (NULL: none). */
static void tell_item(outcome *o, const char *type, const char *name, json_t *value, strbuf *out) {
    json_t *v = json_pack("{s:i, s:s}", "output_index", output_index(o), "item_id", item_id(o));
    if (value) json_object_set_new(v, name, value);
    if (strstr(type, "_text") || strstr(type, "content_part"))
        json_object_set_new(v, "content_index", json_integer(0));
    if (strstr(type, "output_text")) json_object_set_new(v, "logprobs", json_array());
    tell(o, type, v, out);
}

static void close_item(outcome *o, choice *c, strbuf *out) {
    if (c->open == OPEN_NONE) return;
    json_t *item = item_json(o, c, true);
    if (c->open == OPEN_THINK)
        tell_item(o, "response.reasoning_text.done", "text", json_buffer(&c->think), out);
    if (c->open == OPEN_TEXT) {
        tell_item(o, "response.output_text.done", "text", json_buffer(&c->text), out);
        tell_item(o, "response.content_part.done", "part", text_part(&c->text), out);
    }
    if (c->open == OPEN_CALL) {
        json_t *v =
            json_pack("{s:i, s:s, s:O, s:o}", "output_index", output_index(o), "item_id", item_id(o), "name",
                      json_object_get(item, "name"), "arguments", json_buffer(&c->calls[c->n_part].args));
        tell(o, "response.function_call_arguments.done", v, out);
    }
    tell(o, "response.output_item.done",
         json_pack("{s:i, s:O}", "output_index", output_index(o), "item", item), out);
    json_array_append_new(json_object_get(o->own, "output"), item);
    c->open = OPEN_NONE;
}

static void open_item(outcome *o, choice *c, int kind, strbuf *out) {
    static const char *const prefixes[] = {"", "rs_", "msg_", "fc_"};
    static const strbuf empty;
    char id[40];
    close_item(o, c, out);
    outcome_new_id(id, prefixes[kind]);
    json_object_set_new(o->own, "item", json_string(id));
    c->open = kind;
    if (kind == OPEN_CALL) c->n_part = (int)c->n_call - 1;
    tell(o, "response.output_item.added",
         json_pack("{s:i, s:o}", "output_index", output_index(o), "item", item_json(o, c, false)), out);
    if (kind == OPEN_TEXT) tell_item(o, "response.content_part.added", "part", text_part(&empty), out);
}

static void response_begin(outcome *o, strbuf *out) {
    tell(o, "response.created", json_pack("{s:o}", "response", response_json(o, "in_progress")), out);
    tell(o, "response.in_progress", json_pack("{s:o}", "response", response_json(o, "in_progress")), out);
}

static void response_piece(outcome *o, choice *c, const event *e, strbuf *out) {
    if (e->kind == EVENT_THINK) {
        if (c->open != OPEN_THINK) open_item(o, c, OPEN_THINK, out);
        tell_item(o, "response.reasoning_text.delta", "delta", json_slice(e->body), out);
    } else if (e->kind == EVENT_TEXT) {
        if (c->open != OPEN_TEXT) open_item(o, c, OPEN_TEXT, out);
        tell_item(o, "response.output_text.delta", "delta", json_slice(e->body), out);
    } else if (e->kind == EVENT_CALL) {
        open_item(o, c, OPEN_CALL, out);
    } else if (e->kind == EVENT_ARGS) {
        tell_item(o, "response.function_call_arguments.delta", "delta", json_slice(e->body), out);
    }
}

static void response_close(outcome *o, choice *c, strbuf *out) {
    close_item(o, c, out);
}

static void response_end(outcome *o, strbuf *out) {
    const char *type = is_cut(&o->choices[0]) ? "response.incomplete" : "response.completed";
    tell(o, type, json_pack("{s:o}", "response", response_json(o, NULL)), out);
}

static void response_fail(outcome *o, const problem *p, strbuf *out) {
    json_t *v = response_json(o, "failed");
    json_object_set_new(v, "error", json_pack("{s:s, s:s}", "code", "server_error", "message", p->text));
    tell(o, "response.failed", json_pack("{s:o}", "response", v), out);
}

static void response_ping(outcome *o, strbuf *out) {
    sse_comment(out, o->begun ? "reading the prompt" : "waiting");
}

static json_t *response_pick(outcome *o, choice *c, const event_pick *top, size_t n) {
    (void)o;
    (void)c;
    (void)top;
    (void)n;
    return json_null();
}

/* ---- Whole, and kept ---- */

/* Without a stream the items are made at the end: thinking, text, calls, the order in which models write. */
static void make_items(outcome *o) {
    choice *c = &o->choices[0];
    if (c->think.n > 0) open_item(o, c, OPEN_THINK, NULL);
    if (c->text.n > 0) open_item(o, c, OPEN_TEXT, NULL);
    close_item(o, c, NULL);
    const size_t n = c->n_call;
    for (size_t i = 0; i < n; i++) {
        c->n_call = i + 1;
        open_item(o, c, OPEN_CALL, NULL);
    }
    close_item(o, c, NULL);
}

static json_t *response_whole(outcome *o) {
    return response_json(o, NULL);
}

static void response_kept(outcome *o) {
    mica_server *s = o->server;
    mica_error err = {0};
    if (!o->job->ask.stream) make_items(o);
    if (!json_is_true(json_object_get(o->own, "store"))) return;
    json_t *messages = json_object_get(o->own, "messages");
    const responses_in in = {.messages = messages, .names = json_object_get(o->own, "names")};
    responses_in_output(&in, json_object_get(o->own, "output"));
    archive_entry e = {.response = response_json(o, NULL),
                       .messages = json_incref(messages),
                       .input = json_incref(json_object_get(o->own, "items"))};
    snprintf(e.id, sizeof e.id, "%s", o->id);
    if (archive_put(s->archive, &e, &err) != MICA_OK) log_warn("serve", "%s", err.text);
    archive_entry_fini(&e);
}

static const shape g_responses = {.id_prefix = "resp_",
                                  .call_prefix = "call_",
                                  .begin = response_begin,
                                  .piece = response_piece,
                                  .close = response_close,
                                  .end = response_end,
                                  .fail = response_fail,
                                  .ping = response_ping,
                                  .pick = response_pick,
                                  .whole = response_whole,
                                  .kept = response_kept};

/* ---- Requests ---- */

static mica_status fail_archive(mica_server *s, const char *id, problem *p) {
    if (!s->archive)
        return problem_set(p, 400, "previous_response_id",
                           "responses are stored with --state-dir only: send the whole "
                           "conversation as input");
    return problem_set(p, 404, "previous_response_id", "response \"%.60s\": not stored here", id);
}

/* The conversation before this request. */
static mica_status take_previous(mica_server *s, json_t *messages, const json_t *body, problem *p) {
    const char *id = NULL;
    archive_entry e = {0};
    mica_error err = {0};
    bool found = false;
    TRY(field_text(&id, body, "previous_response_id", p));
    if (!id) return MICA_OK;
    if (!s->archive) return fail_archive(s, id, p);
    const mica_status st = archive_get(s->archive, id, &e, &found, &err);
    if (st != MICA_OK) return problem_of(p, st, &err, "previous_response_id");
    if (!found) return fail_archive(s, id, p);
    json_array_extend(messages, e.messages);
    archive_entry_fini(&e);
    return MICA_OK;
}

/* What a response says about its request. */
static json_t *request_json(const mica_server *s, const job *j, const json_t *body) {
    static const char *const kept[] = {
        "instructions", "max_output_tokens", "metadata", "previous_response_id", "tools", "tool_choice",
        "text",         "reasoning",         "user",     "truncation",           NULL};
    json_t *v = json_pack("{s:n, s:n, s:{}, s:n, s:[], s:s, s:{s:{s:s}}, s:{s:n, s:n}, s:n, s:s}",
                          "instructions", "max_output_tokens", "metadata", "previous_response_id", "tools",
                          "tool_choice", "auto", "text", "format", "type", "text", "reasoning", "effort",
                          "summary", "user", "truncation", "disabled");
    for (int i = 0; kept[i]; i++) {
        json_t *given = json_object_get(body, kept[i]);
        if (given && !json_is_null(given)) json_object_set(v, kept[i], given);
    }
    json_object_set_new(v, "temperature", json_real((double)j->ask.sampling.temperature));
    json_object_set_new(v, "top_p", json_real((double)j->ask.sampling.top_p));
    json_object_set_new(v, "parallel_tool_calls", json_boolean(!j->one_call));
    json_object_set_new(v, "store",
                        json_boolean(s->archive && !json_is_false(json_object_get(body, "store"))));
    json_object_set_new(v, "background", json_false());
    return v;
}

/* Agents ask for their reasoning in a form that they can send back. */
static mica_status check_include(const json_t *include, problem *p) {
    size_t i;
    const json_t *v;
    if (!include || json_is_null(include)) return MICA_OK;
    if (!json_is_array(include)) return problem_set(p, 400, "include", "include: not a list");
    json_array_foreach(include, i, v) {
        const char *what = json_string_value(v);
        if (!what || strcmp(what, "reasoning.encrypted_content") != 0)
            return problem_set(p, 400, "include", "include: %.60s: not supported",
                               what ? what : "not a string");
    }
    return MICA_OK;
}

static mica_status check_supported(const json_t *body, problem *p) {
    bool background = false;
    const json_t *conversation = json_object_get(body, "conversation");
    TRY(field_bool(&background, body, "background", p));
    if (background) return problem_set(p, 400, "background", "background: not supported");
    if (conversation && !json_is_null(conversation))
        return problem_set(p, 400, "conversation", "conversation: not supported: previous_response_id is");
    const json_t *truncation = json_object_get(body, "truncation"),
                 *top = json_object_get(body, "top_logprobs");
    const char *how = json_string_value(truncation);
    if (truncation && !json_is_null(truncation) && !(how && strcmp(how, "disabled") == 0))
        return problem_set(p, 400, "truncation", "truncation: only \"disabled\" is supported");
    const json_t *calls = json_object_get(body, "max_tool_calls");
    if (calls && !json_is_null(calls))
        return problem_set(p, 400, "max_tool_calls", "max_tool_calls: not supported");
    if (top && !json_is_null(top) && !(json_is_integer(top) && json_integer_value(top) == 0))
        return problem_set(p, 400, "top_logprobs", "top_logprobs: not supported: chat completions have them");
    return check_include(json_object_get(body, "include"), p);
}

/* The messages of the prompt: instructions are of this request alone, and stay out of what is stored. */
static json_t *with_instructions(const json_t *messages, const char *instructions) {
    json_t *all = json_array();
    if (instructions && *instructions)
        json_array_append_new(all, json_pack("{s:s, s:s}", "role", "system", "content", instructions));
    json_array_extend(all, (json_t *)messages);
    return all;
}

static mica_status parse_tools(json_t **tools, json_t *names, const json_t *body, problem *p) {
    json_t *flat;
    TRY(responses_tools_flat(&flat, names, json_object_get(body, "tools"), p));
    if (!flat) return prompt_tools(tools, body, p);
    json_t *asked = json_pack("{s:o}", "tools", flat);
    const mica_status st = prompt_tools(tools, asked, p);
    json_decref(asked);
    return st;
}

static mica_status parse_chat(chat_ask *c, mica_server *s, const json_t *names, const json_t *body,
                              problem *p) {
    json_t *kwargs = NULL;
    const json_t *named = json_object_get(body, "tool_choice");
    TRY(prompt_tool_choice(c, body, p));
    if (c->choice == TOOLS_NAMED)
        c->tool = responses_tool_seen(names, json_string_value(json_object_get(named, "namespace")), c->tool);
    TRY(field_object(&kwargs, body, "chat_template_kwargs", p));
    c->kwargs = kwargs;
    return responses_in_form(c, body, s->think, p);
}

static mica_status read_input(json_t *own, mica_server *s, const json_t *body, problem *p) {
    json_t *messages = json_object_get(own, "messages");
    const responses_in in = {messages, json_object_get(own, "items"), json_object_get(own, "names")};
    TRY(take_previous(s, messages, body, p));
    TRY(responses_in_items(&in, json_object_get(body, "input"), p));
    // A probe of agents: nothing to answer, one token wanted.
    if (json_array_size(messages) == 0)
        json_array_append_new(messages, json_pack("{s:s, s:s}", "role", "user", "content", ""));
    return MICA_OK;
}

static mica_status prepare(job *j, json_t *own, mica_server *s, const json_t *body, problem *p) {
    const ask_rules rules = {s->model, &s->sampling, g_max_names, "stop"};
    const char *instructions = NULL;
    chat_ask c = {0};
    json_t *tools = NULL;
    TRY(check_supported(body, p));
    TRY(ask_parse(&j->ask, body, &rules, p));
    j->ask.n_choice = 1;
    TRY(field_text(&instructions, body, "instructions", p));
    mica_status st = parse_tools(&tools, json_object_get(own, "names"), body, p);
    if (st == MICA_OK) st = read_input(own, s, body, p);
    json_t *all = with_instructions(json_object_get(own, "messages"), instructions);
    c.messages = all;
    c.tools = tools;
    if (st == MICA_OK) st = parse_chat(&c, s, json_object_get(own, "names"), body, p);
    if (st == MICA_OK) st = prompt_chat(j, s->model, &c, NULL, p);
    if (st == MICA_OK) st = ask_check_room(&j->ask, j->prompt.n, s->info.n_ctx, p);
    json_decref(all);
    json_decref(tools);
    if (st != MICA_OK) return st;
    json_t *request = request_json(s, j, body);
    json_object_set(own, "store", json_object_get(request, "store"));
    json_object_set_new(own, "request", request);
    json_object_set_new(own, "carry", json_boolean(json_array_size(json_object_get(body, "include")) > 0));
    return MICA_OK;
}

void route_responses(mica_server *s, exchange *x) {
    problem p = {0};
    json_t *body = server_body(s, x);
    if (!body) return;
    job *j = job_new(JOB_TEXT);
    json_t *own = json_pack("{s:[], s:[], s:[], s:{}}", "messages", "items", "output", "names");
    const mica_status st =
        j && own ? prepare(j, own, s, body, &p) : problem_set(&p, 500, NULL, "out of memory");
    json_decref(body);
    if (st == MICA_OK) {
        server_follow(s, x, &g_responses, j, own);
        return;
    }
    json_decref(own);
    job_drop(j);
    exchange_problem(x, &p);
}

/* ---- Stored ones ---- */

typedef enum wanted { WANT_RESPONSE, WANT_ITEMS } wanted;

static void answer_stored(mica_server *s, exchange *x, wanted what) {
    archive_entry e = {0};
    problem p = {0};
    mica_error err = {0};
    bool found = false;
    mica_status st = s->archive ? archive_get(s->archive, x->tail, &e, &found, &err) : MICA_OK;
    if (st != MICA_OK) {
        problem_of(&p, st, &err, NULL);
    } else if (!found) {
        st = problem_set(&p, 404, NULL, "response \"%.60s\": not stored here", x->tail);
    }
    if (st != MICA_OK)
        exchange_problem(x, &p);
    else if (what == WANT_RESPONSE)
        exchange_json(x, 200, json_incref(e.response));
    else
        exchange_json(x, 200, json_pack("{s:s, s:O, s:b}", "object", "list", "data", e.input, "has_more", 0));
    archive_entry_fini(&e);
}

void route_response_get(mica_server *s, exchange *x) {
    answer_stored(s, x, WANT_RESPONSE);
}

void route_response_items(mica_server *s, exchange *x) {
    answer_stored(s, x, WANT_ITEMS);
}

void route_response_delete(mica_server *s, exchange *x) {
    problem p = {0};
    mica_error err = {0};
    bool found = false;
    mica_status st = s->archive ? archive_delete(s->archive, x->tail, &found, &err) : MICA_OK;
    if (st != MICA_OK)
        problem_of(&p, st, &err, NULL);
    else if (!found)
        st = problem_set(&p, 404, NULL, "response \"%.60s\": not stored here", x->tail);
    if (st != MICA_OK)
        exchange_problem(x, &p);
    else
        exchange_json(x, 200,
                      json_pack("{s:s, s:s, s:b}", "id", x->tail, "object", "response", "deleted", 1));
}

void route_response_cancel(mica_server *s, exchange *x) {
    problem p;
    (void)s;
    problem_set(&p, 400, NULL,
                "cancel: only background responses can be cancelled: close the connection instead");
    exchange_problem(x, &p);
}
