/* Statuses of HTTP to the words of each API. */
#include "serve/problem.h"

#include "base/str.h"

#include <stdio.h>
#include <string.h>

typedef struct kind {
    int http;
    const char *openai, *code, *anthropic;
} kind;

/* https://platform.openai.com/docs/guides/error-codes and https://docs.anthropic.com/en/api/errors */
static const kind g_kinds[] = {
    {400, "invalid_request_error", NULL, "invalid_request_error"},
    {401, "authentication_error", "invalid_api_key", "authentication_error"},
    {403, "permission_error", NULL, "permission_error"},
    {404, "not_found_error", "not_found", "not_found_error"},
    {405, "invalid_request_error", "method_not_allowed", "invalid_request_error"},
    {408, "timeout_error", NULL, "timeout_error"},
    {409, "conflict_error", NULL, "invalid_request_error"},
    {413, "invalid_request_error", "request_too_large", "request_too_large"},
    {415, "invalid_request_error", "unsupported_media_type", "invalid_request_error"},
    {429, "rate_limit_error", "queue_full", "rate_limit_error"},
    {500, "server_error", NULL, "api_error"},
    {501, "not_supported_error", "not_supported", "api_error"},
    {503, "unavailable_error", "unavailable", "overloaded_error"},
};

static const kind *kind_of(int http) {
    for (size_t i = 0; i < sizeof g_kinds / sizeof g_kinds[0]; i++)
        if (g_kinds[i].http == http) return &g_kinds[i];
    return http < 500 ? &g_kinds[0] : kind_of(500);
}

/* Names and values of clients come into the text: what is cut must stay UTF-8, and one line. */
static void tidy(char *text) {
    size_t n = strlen(text), i = 0;
    while (i < n) {
        const int len = utf8_len(text + i, n - i);
        if (len == 0) break;
        if (len < 0 || (unsigned char)text[i] < 0x20 || text[i] == 0x7f) text[i] = '?';
        i += len > 0 ? (size_t)len : 1;
    }
    text[i] = 0;
}

mica_status problem_set(problem *p, int http, const char *param, const char *fmt, ...) {
    va_list args;
    *p = (problem){.http = http, .code = kind_of(http)->code};
    if (param) snprintf(p->param, sizeof p->param, "%s", param);
    va_start(args, fmt);
    vsnprintf(p->text, sizeof p->text, fmt, args);
    va_end(args);
    tidy(p->param);
    tidy(p->text);
    return http < 500 ? MICA_E_ARG : http == 503 ? MICA_E_BUSY : MICA_E_INTERNAL;
}

mica_status problem_of(problem *p, mica_status st, const mica_error *err, const char *param) {
    const char *why = err && err->text[0] ? err->text : mica_status_name(st);
    int http = 500;
    if (st == MICA_E_ARG || st == MICA_E_FORMAT || st == MICA_E_UNSUPPORTED) http = 400;
    if (st == MICA_E_BUSY) http = 503;
    problem_set(p, http, param, "%s", why);
    return st;
}

mica_status problem_too_long(problem *p, uint64_t n_prompt, uint64_t n_more, uint64_t n_ctx) {
    if (n_prompt >= n_ctx || n_more == 0)
        problem_set(p, 400, "messages", "the prompt has %llu tokens, and the context holds %llu: shorten it",
                    (unsigned long long)n_prompt, (unsigned long long)n_ctx);
    else
        problem_set(
            p, 400, "max_tokens",
            "the prompt has %llu tokens and the answer may have %llu, but the context holds %llu: ask "
            "for at most %llu",
            (unsigned long long)n_prompt, (unsigned long long)n_more, (unsigned long long)n_ctx,
            (unsigned long long)(n_ctx - n_prompt));
    p->code = "context_length_exceeded";
    p->n_prompt = n_prompt;
    p->n_ctx = n_ctx;
    return MICA_E_ARG;
}

json_t *problem_json(const problem *p, dialect d, const char *request_id) {
    const kind *k = kind_of(p->http);
    if (d == DIALECT_ANTHROPIC) {
        json_t *v = json_pack("{s:s, s:{s:s, s:s}}", "type", "error", "error", "type", k->anthropic,
                              "message", p->text);
        if (v && request_id) json_object_set_new(v, "request_id", json_string(request_id));
        return v;
    }
    json_t *v = json_pack("{s:{s:s, s:s, s:s?, s:s?}}", "error", "message", p->text, "type", k->openai,
                          "param", p->param[0] ? p->param : NULL, "code", p->code);
    if (v && p->n_ctx) {
        json_t *e = json_object_get(v, "error");
        json_object_set_new(e, "n_prompt_tokens", json_integer((json_int_t)p->n_prompt));
        json_object_set_new(e, "n_ctx", json_integer((json_int_t)p->n_ctx));
    }
    return v;
}
