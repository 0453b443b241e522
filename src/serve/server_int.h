/* The server's parts, and what routes may call. Everything of a request happens on the thread of its
 * connection, until worker_submit. */
#ifndef MICA_SERVE_SERVER_INT_H
#define MICA_SERVE_SERVER_INT_H

#include "mica_server.h"
#include "serve/archive.h"
#include "serve/guard.h"
#include "serve/http.h"
#include "serve/metrics.h"
#include "serve/outcome.h"
#include "serve/worker.h"

struct mica_server {
    guard guard;
    http *http;       // owned
    worker *worker;   // owned
    archive *archive; // owned; NULL: no state_dir
    metrics metrics;
    int listener, port;
    char url[160], host[64], name[128]; // name: of the model, to clients
    char *alias, *state_dir, *web_dir;  // owned; NULL: not given
    const char *think;                  // borrowed while it runs; NULL: as the template likes
    worker_options worker_options;
    http_limits limits;
    mica_sampling sampling; // defaults of requests
    int64_t begun_s;
    // Set once, before `ready`: after that read-only.
    const mica_model *model; // borrowed
    mica_model_info info;
    atomic_bool ready;
};

typedef void route_fn(mica_server *s, exchange *x);

/* Endpoints, one file for each API. */
route_fn route_chat, route_complete, route_infill, route_messages, route_count_tokens, route_responses,
    route_response_get, route_response_delete, route_response_items, route_response_cancel, route_embeddings,
    route_models, route_model, route_health, route_props, route_metrics, route_tokenize, route_detokenize,
    route_template, route_slots, route_slot, route_page;

mica_status server_admit(void *user, exchange *x, problem *p);
void server_serve(void *user, exchange *x);

/* The body as an object; on failure x is answered and NULL is returned. */
json_t *server_body(mica_server *s, exchange *x);

/* Token ids of a request, each in the vocabulary; mica_ids_free frees them. */
mica_status basics_ids(mica_ids *out, const json_t *list, const mica_model_info *info, const char *name,
                       problem *p);

/* Submits the job and lets the exchange follow what becomes of it; answers x when the queue is full. Takes
 * the job's hold and `own`. */
void server_follow(mica_server *s, exchange *x, const shape *sh, job *j, json_t *own);

#endif
