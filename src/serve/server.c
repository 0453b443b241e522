/* Start, run and end of a server. */
#include "serve/server_int.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

static bool copy_text(char **out, const char *from) {
    *out = from ? mem_strdup(from) : NULL;
    return !from || *out;
}

static bool copy_options(mica_server *s, const mica_server_options *o) {
    guard *g = &s->guard;
    return copy_text(&s->alias, o->alias) && copy_text(&s->state_dir, o->state_dir) &&
           copy_text(&s->web_dir, o->web_dir) &&
           guard_list_copy(&g->keys, &g->n_key, o->api_keys, o->n_api_key) &&
           guard_list_copy(&g->origins, &g->n_origin, o->allow_origins, o->n_allow_origin) &&
           guard_list_copy(&g->hosts, &g->n_host, o->allow_hosts, o->n_allow_host);
}

static void take_numbers(mica_server *s, const mica_server_options *o) {
    s->limits = (http_limits){.body_bytes = o->body_bytes ? o->body_bytes : 16 << 20,
                              .n_connection = o->n_connection,
                              .receive_s = o->receive_s ? o->receive_s : 60,
                              .ping_s = o->ping_s ? o->ping_s : 10,
                              .stall_s = o->stall_s ? o->stall_s : 60};
    s->worker_options = (worker_options){.n_queue = o->n_queue ? o->n_queue : 256,
                                         .stall_s = s->limits.stall_s,
                                         .reuse_generated = o->reuse_generated,
                                         .metrics = &s->metrics};
}

/* What others can reach needs a key, or the word that it does not. */
static mica_status check_place(const mica_server *s, const mica_server_options *o, mica_error *err) {
    if (guard_is_loopback(s->host) || s->guard.n_key > 0 || o->insecure) return MICA_OK;
    return fail(
        err, MICA_E_ARG,
        "--host: %s: others can reach it, and there is no --api-key: give one, or --insecure to go without",
        s->host);
}

static mica_status open_parts(mica_server *s, const mica_server_options *o, mica_error *err) {
    const char *host = o->host && *o->host ? o->host : "127.0.0.1";
    s->port = o->port;
    snprintf(s->host, sizeof s->host, "%s", host);
    if (!copy_options(s, o)) return fail(err, MICA_E_NOMEM, "server: out of memory");
    for (size_t i = 0; i < s->guard.n_key; i++)
        if (!s->guard.keys[i][0])
            return fail(err, MICA_E_ARG, "--api-key: empty: it would open the server to all");
    take_numbers(s, o);
    TRY(check_place(s, o, err));
    snprintf(s->guard.bound, sizeof s->guard.bound, "%s", host);
    s->guard.any_host = !guard_is_loopback(host);
    TRY(http_listen(&s->listener, &s->port, host, err));
    const bool v6 = strchr(host, ':') != NULL;
    snprintf(s->url, sizeof s->url, v6 ? "http://[%s]:%d" : "http://%s:%d", host, s->port);
    if (s->state_dir) TRY(archive_open(&s->archive, s->state_dir, err));
    TRY(worker_new(&s->worker, &s->worker_options, err));
    const http_options opt = {.listener = s->listener,
                              .guard = &s->guard,
                              .limits = s->limits,
                              .routes = {.user = s, .admit = server_admit, .serve = server_serve}};
    TRY(http_new(&s->http, &opt, err));
    s->listener = -1; // the HTTP library closes it
    return MICA_OK;
}

mica_status mica_server_open(mica_server **out, const mica_server_options *opt, mica_error *err) {
    *out = NULL;
    mica_server *s = mem_calloc(1, sizeof *s);
    if (!s) return fail(err, MICA_E_NOMEM, "server: out of memory");
    s->listener = -1;
    s->begun_s = time(NULL);
    metrics_init(&s->metrics);
    atomic_init(&s->ready, false);
    const mica_status st = open_parts(s, opt, err);
    if (st != MICA_OK)
        mica_server_free(s);
    else
        *out = s;
    return st;
}

void mica_server_free(mica_server *s) {
    if (!s) return;
    http_free(s->http);
    worker_free(s->worker);
    archive_close(s->archive);
    if (s->listener >= 0) close(s->listener);
    guard_fini(&s->guard);
    metrics_fini(&s->metrics);
    mem_free(s->alias);
    mem_free(s->state_dir);
    mem_free(s->web_dir);
    mem_free(s);
}

int mica_server_port(const mica_server *s) {
    return s->port;
}

const char *mica_server_url(const mica_server *s) {
    return s->url;
}

enum { PENALTY_LAST_N = 64 };

/* The alias, else the name in the file, else its architecture. */
static void take_model(mica_server *s, const mica_model *m, const mica_server_defaults *d) {
    mica_model_get_info(m, &s->info);
    s->model = m;
    s->sampling = d && d->sampling ? *d->sampling : s->info.sampling;
    if (s->sampling.penalty_last_n == 0)
        s->sampling.penalty_last_n = PENALTY_LAST_N; // else a penalty is none
    s->think = d ? d->think : NULL;
    const char *name = s->alias;
    if (!name || !*name) name = s->info.name && *s->info.name ? s->info.name : s->info.arch;
    snprintf(s->name, sizeof s->name, "%s", name);
}

mica_status mica_server_run(mica_server *s, mica_model *m, const mica_server_defaults *d,
                            const mica_cancel_flag *stop, mica_error *err) {
    const worker_run_options run = {
        .n_draft = d ? d->n_draft : 0, .draft_min_p = d ? d->draft_min_p : 0, .stop = stop};
    take_model(s, m, d);
    atomic_store(&s->ready, true);
    const mica_status st = worker_run(s->worker, m, &run, err);
    atomic_store(&s->ready, false);
    // What was answered last is still on its way to the clients' sockets.
    const uint64_t start = clock_ns();
    while (http_at_work(s->http) > 0 && clock_ms_since(start) < 2000.0) usleep(10000);
    return st;
}
