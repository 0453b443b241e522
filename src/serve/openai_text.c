/* POST /v1/completions and /infill: text goes on, without a template.
 *
 * The prompt is the caller's own: control tokens in it are recognised, as `mica run --raw` does, unless
 * parse_special is false. /infill puts prefix and suffix between the model's fill-in-the-middle tokens; these
 * texts are never control tokens. https://platform.openai.com/docs/api-reference/completions */
#include "serve/prompt.h"
#include "serve/server_int.h"
#include "serve/sse.h"

#include "base/mem.h"

#include <math.h>

static const char *const g_max_names[] = {"max_tokens", "n_predict", "max_completion_tokens", NULL};

/* ---- Shape ---- */

static json_t *frame(const outcome *o) {
    return json_pack("{s:s, s:s, s:I, s:s}", "id", o->id, "object", "text_completion", "created",
                     (json_int_t)o->created_s, "model", o->name);
}

/* Records of tokens since the last chunk, in the four lists of this API. */
static json_t *new_picks(const outcome *o, choice *c) {
    if (o->job->ask.n_top < 0) return json_null();
    json_t *v =
        json_pack("{s:[], s:[], s:[], s:[]}", "tokens", "token_logprobs", "top_logprobs", "text_offset");
    for (; c->n_pick_told < json_array_size(c->picks); c->n_pick_told++) {
        json_t *one = json_array_get(c->picks, c->n_pick_told);
        json_array_append(json_object_get(v, "tokens"), json_object_get(one, "token"));
        json_array_append(json_object_get(v, "token_logprobs"), json_object_get(one, "logprob"));
        json_array_append(json_object_get(v, "top_logprobs"), json_object_get(one, "top"));
        json_array_append(json_object_get(v, "text_offset"), json_object_get(one, "offset"));
    }
    return v;
}

static json_t *token_text(const outcome *o, int32_t id) {
    char *text = NULL;
    if (mica_detokenize(o->model, &id, 1, true, &text, NULL) != MICA_OK) text = NULL;
    json_t *v = json_string(text ? text : "");
    mica_text_free(text);
    return v;
}

static json_t *text_pick(outcome *o, choice *c, const event_pick *top, size_t n) {
    json_t *likely = json_object();
    for (size_t i = n > 1 ? 1 : 0; i < n; i++) {
        json_t *name = token_text(o, top[i].id);
        json_object_set_new(likely, json_string_value(name), json_real((double)top[i].logprob));
        json_decref(name);
    }
    return json_pack("{s:o, s:f, s:o, s:I}", "token", token_text(o, top[0].id), "logprob",
                     (double)top[0].logprob, "top", likely, "offset", (json_int_t)c->text.n);
}

/* Takes the text. */
static void put_text(outcome *o, choice *c, json_t *text, const char *finish, strbuf *out) {
    json_t *v = frame(o);
    json_object_set_new(v, "choices",
                        json_pack("[{s:i, s:o, s:o, s:s?}]", "index", c->index, "text", text, "logprobs",
                                  new_picks(o, c), "finish_reason", finish));
    if (o->job->ask.include_usage) json_object_set_new(v, "usage", json_null());
    if (finish) json_object_set_new(v, "timings", outcome_timings(o));
    sse_data(out, v);
}

/* The choice's prompt where it is wanted before the answer, else NULL. own: a list of those of the request.
 */
static json_t *echo_of(const outcome *o, const choice *c) {
    return json_array_get(o->own, (size_t)c->index / (size_t)o->job->ask.n_choice);
}

static void text_begin(outcome *o, strbuf *out) {
    for (size_t i = 0; o->own && i < o->n_choice; i++)
        put_text(o, &o->choices[i], json_incref(echo_of(o, &o->choices[i])), NULL, out);
}

static void text_piece(outcome *o, choice *c, const event *e, strbuf *out) {
    if (e->kind == EVENT_TEXT) put_text(o, c, json_slice(e->body), NULL, out);
}

static void text_close(outcome *o, choice *c, strbuf *out) {
    put_text(o, c, json_string(""), outcome_finish(c), out);
}

static void text_end(outcome *o, strbuf *out) {
    if (o->job->ask.include_usage) {
        json_t *v = frame(o);
        json_object_set_new(v, "choices", json_array());
        json_object_set_new(v, "usage", outcome_usage(o));
        json_object_set_new(v, "timings", outcome_timings(o));
        sse_data(out, v);
    }
    strbuf_puts(out, "data: [DONE]\n\n");
}

static void text_fail(outcome *o, const problem *p, strbuf *out) {
    sse_data(out, problem_json(p, DIALECT_OPENAI, o->request_id));
}

static void text_ping(outcome *o, strbuf *out) {
    sse_comment(out, o->begun ? "reading the prompt" : "waiting");
}

static json_t *whole_text(const outcome *o, const choice *c) {
    strbuf b = {0};
    const json_t *echo = echo_of(o, c);
    if (echo) strbuf_put(&b, json_string_value(echo), json_string_length(echo));
    strbuf_put(&b, c->text.p, c->text.n);
    json_t *v = json_buffer(&b);
    strbuf_fini(&b);
    return v;
}

static json_t *text_whole(outcome *o) {
    json_t *v = frame(o), *list = json_array();
    for (size_t i = 0; i < o->n_choice; i++) {
        choice *c = &o->choices[i];
        json_array_append_new(list,
                              json_pack("{s:i, s:o, s:o, s:s}", "index", c->index, "text", whole_text(o, c),
                                        "logprobs", new_picks(o, c), "finish_reason", outcome_finish(c)));
    }
    json_object_set_new(v, "choices", list);
    json_object_set_new(v, "usage", outcome_usage(o));
    json_object_set_new(v, "timings", outcome_timings(o));
    return v;
}

static const shape g_text = {.id_prefix = "cmpl-",
                             .call_prefix = "call_",
                             .begin = text_begin,
                             .piece = text_piece,
                             .close = text_close,
                             .end = text_end,
                             .fail = text_fail,
                             .ping = text_ping,
                             .pick = text_pick,
                             .whole = text_whole};

/* ---- Requests ---- */

static mica_status encode_prompt(mica_ids *out, const mica_server *s, const json_t *v, bool special,
                                 problem *p) {
    mica_error err = {0};
    if (json_is_integer(json_array_get(v, 0))) return basics_ids(out, v, &s->info, "prompt", p);
    if (!json_is_string(v))
        return problem_set(p, 400, "prompt", "prompt: it has to be a string or token ids");
    const mica_status st =
        mica_tokenize(s->model, json_string_value(v), json_string_length(v), special, true, out, &err);
    return st == MICA_OK ? MICA_OK : problem_of(p, st, &err, "prompt");
}

/* A model reads before it writes: an empty prompt becomes the token that begins or ends a text. */
static mica_status check_prompt(mica_ids *ids, const mica_server *s, problem *p) {
    const int32_t first = s->info.bos >= 0 ? s->info.bos : s->info.eos;
    if (ids->n > 0) return MICA_OK;
    if (first < 0)
        return problem_set(p, 400, "prompt", "prompt: empty, and the model has no token to begin with");
    mica_ids_free(ids);
    *ids = (mica_ids){.ids = mem_alloc(sizeof first), .n = 1};
    if (!ids->ids) return problem_set(p, 500, NULL, "out of memory");
    ids->ids[0] = first;
    return MICA_OK;
}

static mica_status parse_text(job *j, const mica_server *s, const json_t *body, problem *p) {
    const ask_rules rules = {s->model, &s->sampling, g_max_names, "stop"};
    int64_t n_top = -1, best_of = 1;
    const char *suffix = NULL;
    TRY(ask_parse(&j->ask, body, &rules, p));
    TRY(field_int(&n_top, body, "logprobs", (field_range){0, ASK_MAX_TOP}, p));
    TRY(field_int(&best_of, body, "best_of", (field_range){1, 1}, p));
    TRY(field_text(&suffix, body, "suffix", p));
    if (suffix && *suffix)
        return problem_set(p, 400, "suffix", "suffix: not supported here: /infill takes one");
    j->ask.n_top = (int)n_top;
    return prompt_form(j, s->model, body, p);
}

/* One prompt out of the request, and its text onto `echo` (NULL: not wanted). */
static mica_status take_prompt(mica_ids *out, json_t *echo, const mica_server *s, const json_t *v,
                               bool special, problem *p) {
    char *text = NULL;
    TRY(encode_prompt(out, s, v, special, p));
    TRY(check_prompt(out, s, p));
    if (!echo) return MICA_OK;
    if (mica_detokenize(s->model, out->ids, out->n, true, &text, NULL) != MICA_OK) text = NULL;
    json_array_append_new(echo, json_string(text ? text : ""));
    mica_text_free(text);
    return MICA_OK;
}

/* `prompt` is one text, one list of ids, or a list of such. */
static mica_status take_prompts(job *j, json_t *echo, const mica_server *s, const json_t *body, problem *p) {
    json_t *v = json_object_get(body, "prompt");
    const bool several = json_array_size(v) > 0 && !json_is_integer(json_array_get(v, 0));
    const size_t n = several ? json_array_size(v) : 1;
    bool special = true;
    TRY(field_bool(&special, body, "parse_special", p));
    if (n * (size_t)j->ask.n_choice > ASK_MAX_CHOICES)
        return problem_set(p, 400, "prompt", "prompt: %zu with n %d each: at most %d answers in one request",
                           n, (int)j->ask.n_choice, ASK_MAX_CHOICES);
    if (n > 1) j->more = mem_calloc(n - 1, sizeof *j->more);
    if (n > 1 && !j->more) return problem_set(p, 500, NULL, "out of memory");
    j->n_more = n - 1;
    for (size_t i = 0; i < n; i++) {
        mica_ids *out = i == 0 ? &j->prompt : &j->more[i - 1];
        TRY(take_prompt(out, echo, s, several ? json_array_get(v, i) : v, special, p));
        TRY(ask_check_room(&j->ask, out->n, s->info.n_ctx, p));
    }
    return MICA_OK;
}

static mica_status prepare_text(job *j, json_t **echo, const mica_server *s, const json_t *body, problem *p) {
    bool wanted = false;
    TRY(parse_text(j, s, body, p));
    TRY(field_bool(&wanted, body, "echo", p));
    if (wanted && j->ask.n_top >= 0)
        return problem_set(p, 400, "echo", "echo: not supported together with logprobs");
    if (wanted) *echo = json_array();
    return take_prompts(j, *echo, s, body, p);
}

/* ---- Fill in the middle ---- */

static const char *const g_fim[][3] = {
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},
    {"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},
    {"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"},
};

/* The token that this text names, -1: it is text. */
static int32_t control_token(const mica_model *m, const char *name) {
    mica_ids ids = {0}, plain = {0};
    int32_t id = -1;
    if (mica_tokenize(m, name, strlen(name), true, false, &ids, NULL) == MICA_OK && ids.n == 1 &&
        mica_tokenize(m, name, strlen(name), false, false, &plain, NULL) == MICA_OK && plain.n > 1)
        id = ids.ids[0];
    mica_ids_free(&ids);
    mica_ids_free(&plain);
    return id;
}

static bool find_fim(int32_t out[3], const mica_model *m) {
    for (size_t i = 0; i < sizeof g_fim / sizeof g_fim[0]; i++) {
        bool all = true;
        for (int k = 0; k < 3; k++) all &= (out[k] = control_token(m, g_fim[i][k])) >= 0;
        if (all) return true;
    }
    return false;
}

/* ids grow by one control token (-1: none) and the tokens of a text. */
static mica_status append(mica_ids *ids, const mica_model *m, int32_t control, slice text, problem *p) {
    mica_ids more = {0};
    mica_error err = {0};
    const mica_status st = mica_tokenize(m, text.p, text.n, false, false, &more, &err);
    if (st != MICA_OK) return problem_of(p, st, &err, NULL);
    const size_t n_control = control >= 0;
    int32_t *grown = mem_realloc(ids->ids, (ids->n + n_control + more.n + 1) * sizeof *grown);
    if (grown) {
        ids->ids = grown;
        if (n_control) grown[ids->n++] = control;
        if (more.n > 0) memcpy(grown + ids->n, more.ids, more.n * sizeof *grown);
        ids->n += more.n;
    }
    mica_ids_free(&more);
    return grown ? MICA_OK : problem_set(p, 500, NULL, "out of memory");
}

static mica_status prepare_infill(job *j, const mica_server *s, const json_t *body, problem *p) {
    const char *prefix = "", *suffix = "", *prompt = "";
    json_t *extra = NULL, *one;
    int32_t fim[3];
    size_t i;
    TRY(parse_text(j, s, body, p));
    TRY(field_text(&prefix, body, "input_prefix", p));
    TRY(field_text(&suffix, body, "input_suffix", p));
    TRY(field_text(&prompt, body, "prompt", p));
    TRY(field_array(&extra, body, "input_extra", p));
    if (!find_fim(fim, s->model)) return problem_set(p, 501, NULL, "infill: the model has no tokens for it");
    json_array_foreach(extra, i, one) {
        const char *text = NULL;
        TRY(field_text(&text, one, "text", p));
        if (text) TRY(append(&j->prompt, s->model, -1, slice_of(text), p));
    }
    TRY(append(&j->prompt, s->model, fim[0], slice_of(prefix), p));
    TRY(append(&j->prompt, s->model, fim[1], slice_of(suffix), p));
    TRY(append(&j->prompt, s->model, fim[2], slice_of(prompt), p));
    return ask_check_room(&j->ask, j->prompt.n, s->info.n_ctx, p);
}

static void answer(mica_server *s, exchange *x, bool infill) {
    problem p = {0};
    json_t *body = server_body(s, x), *echo = NULL;
    if (!body) return;
    job *j = job_new(JOB_TEXT);
    mica_status st = MICA_OK;
    if (!j)
        st = problem_set(&p, 500, NULL, "out of memory");
    else
        st = infill ? prepare_infill(j, s, body, &p) : prepare_text(j, &echo, s, body, &p);
    json_decref(body);
    if (st == MICA_OK) {
        server_follow(s, x, &g_text, j, echo);
        return;
    }
    json_decref(echo);
    job_drop(j);
    exchange_problem(x, &p);
}

void route_complete(mica_server *s, exchange *x) {
    answer(s, x, false);
}

void route_infill(mica_server *s, exchange *x) {
    answer(s, x, true);
}
