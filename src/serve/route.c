/* The table of endpoints, and what holds for all of them: keys, places, methods, kinds of bodies, loading. */
#include "serve/server_int.h"

#include <stdio.h>
#include <strings.h>

enum {
    OPEN = 1,   // without a key
    EARLY = 2,  // while the model is loading
    QUIET = 4,  // no line in the log
    CLAUDE = 8, // errors in Anthropic's shape
    PAGE = 16   // a file of the page, if there is one
};

typedef struct route {
    const char *method, *path; // a path ending in * takes any one more part
    int flags;
    route_fn *serve;
} route;

static const route g_routes[] = {
    {"POST", "/v1/chat/completions", 0, route_chat},
    {"POST", "/chat/completions", 0, route_chat},
    {"POST", "/v1/completions", 0, route_complete},
    {"POST", "/completions", 0, route_complete},
    {"POST", "/v1/responses", 0, route_responses},
    {"POST", "/responses", 0, route_responses},
    {"GET", "/v1/responses/*", 0, route_response_get},
    {"DELETE", "/v1/responses/*", 0, route_response_delete},
    {"GET", "/v1/responses/*/input_items", 0, route_response_items},
    {"POST", "/v1/responses/*/cancel", 0, route_response_cancel},
    {"POST", "/v1/messages", CLAUDE, route_messages},
    {"POST", "/messages", CLAUDE, route_messages},
    {"POST", "/v1/messages/count_tokens", CLAUDE, route_count_tokens},
    {"POST", "/messages/count_tokens", CLAUDE, route_count_tokens},
    {"POST", "/v1/embeddings", 0, route_embeddings},
    {"POST", "/embeddings", 0, route_embeddings},
    {"POST", "/infill", 0, route_infill},
    {"POST", "/tokenize", 0, route_tokenize},
    {"POST", "/detokenize", 0, route_detokenize},
    {"POST", "/apply-template", 0, route_template},
    {"GET", "/v1/models", 0, route_models},
    {"GET", "/models", 0, route_models},
    {"GET", "/v1/models/*", 0, route_model},
    {"GET", "/health", OPEN | EARLY | QUIET, route_health},
    {"GET", "/v1/health", OPEN | EARLY | QUIET, route_health},
    {"GET", "/props", 0, route_props},
    {"GET", "/slots", QUIET, route_slots},
    {"POST", "/slots/*", 0, route_slot},
    {"GET", "/metrics", EARLY | QUIET, route_metrics},
    {"GET", "/", OPEN | EARLY | QUIET | PAGE, route_page},
    {"GET", "/*", OPEN | EARLY | QUIET | PAGE, route_page},
};
#define N_ROUTE (sizeof g_routes / sizeof g_routes[0])

/* Does the pattern take the path? `tail` gets what its * stood for. */
static bool matches(const char *pattern, const char *path, char *tail, size_t size) {
    const char *star = strchr(pattern, '*');
    if (!star) return strcmp(pattern, path) == 0;
    const size_t n_head = (size_t)(star - pattern), n_path = strlen(path), n_rest = strlen(star + 1);
    if (n_path <= n_head + n_rest || strncmp(pattern, path, n_head) != 0) return false;
    const size_t n = n_path - n_head - n_rest;
    if (strcmp(path + n_path - n_rest, star + 1) != 0 || n >= size || memchr(path + n_head, '/', n))
        return false;
    memcpy(tail, path + n_head, n);
    tail[n] = 0;
    return true;
}

static const route *find_route(exchange *x, problem *p) {
    static const char *const known[] = {"GET", "POST", "DELETE", "HEAD", "OPTIONS", NULL};
    const char *method = strcmp(x->method, "HEAD") == 0 ? "GET" : x->method;
    const route *other = NULL;
    for (size_t i = 0; i < N_ROUTE; i++) {
        const route *r = &g_routes[i];
        if (!matches(r->path, x->path, x->tail, sizeof x->tail)) continue;
        if (strcmp(r->method, method) == 0) return r;
        if (!(r->flags & PAGE) || !x->path[1]) other = r;
    }
    if (!other) {
        problem_set(p, 404, NULL, "path: there is nothing at %.100s", x->path);
        return NULL;
    }
    x->allow = other->method;
    for (int i = 0; known[i]; i++)
        if (strcmp(known[i], x->method) == 0) {
            problem_set(p, 405, NULL, "method: %s does not take %s", x->path, x->method);
            return NULL;
        }
    problem_set(p, 405, NULL, "method: not one that is known here");
    return NULL;
}

/* A body that is no JSON could be sent by any web page without asking first. */
static mica_status check_kind(const exchange *x, problem *p) {
    const char *kind = exchange_header(x, "Content-Type");
    if (strcmp(x->method, "POST") != 0) return MICA_OK;
    const char *length = exchange_header(x, "Content-Length");
    if (!kind && length && strcmp(length, "0") == 0) return MICA_OK;
    const size_t n = kind ? strcspn(kind, "; \t") : 0;
    if (n == 16 && strncasecmp(kind, "application/json", n) == 0) return MICA_OK;
    return problem_set(p, 415, "Content-Type", "Content-Type: it has to be application/json");
}

/* A page of another origin asks whether it may ask. */
static mica_status admit_preflight(const mica_server *s, const exchange *x, problem *p) {
    const char *origin = exchange_header(x, "Origin");
    if (guard_allows_origin(&s->guard, origin)) return MICA_OK;
    return problem_set(p, 403, "Origin", "Origin: \"%.80s\" is not allowed: --allow-origin allows it",
                       origin ? origin : "");
}

mica_status server_admit(void *user, exchange *x, problem *p) {
    mica_server *s = user;
    const guard_headers h = {.host = exchange_header(x, "Host"),
                             .origin = exchange_header(x, "Origin"),
                             .authorization = exchange_header(x, "Authorization"),
                             .x_api_key = exchange_header(x, "X-Api-Key")};
    if (strstr(x->path, "/messages") || exchange_header(x, "Anthropic-Version"))
        x->dialect = DIALECT_ANTHROPIC;
    TRY(guard_check_place(&s->guard, &h, p));
    if (strcmp(x->method, "OPTIONS") == 0) return admit_preflight(s, x, p);
    const route *r = find_route(x, p);
    if (!r) return MICA_E_ARG;
    x->route = r;
    x->pattern = r->path;
    x->quiet = (r->flags & QUIET) != 0;
    x->dialect = r->flags & CLAUDE ? DIALECT_ANTHROPIC : DIALECT_OPENAI;
    if (!(r->flags & OPEN)) TRY(guard_check_key(&s->guard, &h, p));
    TRY(check_kind(x, p));
    if (r->flags & EARLY || atomic_load(&s->ready)) return MICA_OK;
    const mica_status st = problem_set(p, 503, NULL, "Loading model");
    p->retry_s = 2;
    return st;
}

void server_serve(void *user, exchange *x) {
    if (strcmp(x->method, "OPTIONS") == 0) {
        exchange_empty(x, 204);
        return;
    }
    const route *r = x->route;
    r->serve(user, x);
    if (x->answered || x->src.flow) return;
    problem p;
    problem_set(&p, 500, NULL, "out of memory");
    exchange_problem(x, &p);
}

json_t *server_body(mica_server *s, exchange *x) {
    problem p;
    json_t *body;
    (void)s;
    if (field_body(&body, (slice){x->body.p, x->body.n}, &p) == MICA_OK) return body;
    exchange_problem(x, &p);
    return NULL;
}

void server_follow(mica_server *s, exchange *x, const shape *sh, job *j, json_t *own) {
    problem p;
    j->client = x->client;
    job_hold(j); // against an end before the exchange has taken it
    outcome *o = outcome_new(
        x, &(outcome_options){
               .shape = sh, .job = j, .own = own, .model = s->model, .name = s->name, .server = s});
    if (!o) {
        problem_set(&p, 500, NULL, "out of memory");
        exchange_problem(x, &p);
    } else if (worker_submit(s->worker, j, &p) != MICA_OK) {
        outcome_free(o);
        exchange_problem(x, &p);
    } else {
        const source src = outcome_source(o);
        exchange_follow(x, &src);
    }
    job_drop(j);
}
