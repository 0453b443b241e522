/* HTTP by libmicrohttpd: connections, bodies, answers. What is asked and answered is the routes' business.
 *
 * A few threads serve all sockets, so nothing may wait on them: a request whose answer comes from the model
 * is laid aside (suspended) and taken up again when its flow has something; watch.h looks after it meanwhile.
 * An exchange is one request and its answer. It belongs to the one thread that serves its connection.
 *
 *     header    admit()     may refuse; the body is then read and thrown away, so that the refusal arrives
 *     body      kept up to the limit
 *     complete  serve()     has to call exactly one of the exchange_* answers
 *     end       one line in the log, without anything of the content */
#ifndef MICA_SERVE_HTTP_H
#define MICA_SERVE_HTTP_H

#include "base/str.h"
#include "serve/flow.h"
#include "serve/guard.h"
#include "serve/problem.h"
#include "serve/watch.h"

#include <jansson.h>

typedef struct http http;
typedef struct exchange exchange;
struct MHD_Connection;
struct MHD_Response;

/* An answer that comes from a flow. Called on the thread of the connection. */
typedef struct source {
    flow *flow; // of `user`
    void *user; // owned by the exchange from exchange_follow on
    bool stream;
    void (*event)(void *user, const event *e, strbuf *out); // stream: bytes to send go to `out`
    void (*ping)(void *user, strbuf *out);                  // stream: it should say that it lives
    void (*end)(void *user, strbuf *out);                   // stream: the last bytes
    int (*whole)(void *user, strbuf *out);                  // no stream: the body; returns the status
    void (*note)(void *user, strbuf *out);                  // numbers for the log
    void (*free)(void *user);
} source;

struct exchange {
    http *h; // borrowed
    struct MHD_Connection *conn;
    int fd;
    const void *route;   // the server's
    const char *pattern; // static: its path, for the log; NULL: none takes this one
    char method[8], path[200],
        tail[200]; // path without doubled or closing slashes; tail: what a * stands for
    char id[48];   // of the request
    dialect dialect;
    uint64_t client; // who asks: a hash of the address and the key
    uint64_t begun_ns;
    strbuf body;
    uint64_t n_thrown; // bytes of a refused body
    problem refused;   // http != 0: the answer
    bool complete, answered;
    bool quiet; // no line in the log unless it failed
    bool page;  // for a browser to show
    int status;
    const char *allow; // static; of a 405
    source src;        // flow != NULL: the answer comes from it
    strbuf events, out;
    size_t n_sent; // of out
    bool last;     // nothing comes after out
};

typedef struct http_routes {
    void *user;
    mica_status (*admit)(void *user, exchange *x, problem *p);
    void (*serve)(void *user, exchange *x);
} http_routes;

typedef struct http_limits {
    uint64_t body_bytes;
    uint32_t n_connection, receive_s, stall_s, ping_s;
} http_limits;

typedef struct http_options {
    int listener; // owned by http_new's caller, listening
    const guard *guard;
    http_limits limits;
    http_routes routes;
} http_options;

mica_status http_new(http **out, const http_options *opt, mica_error *err);
/* Stops listening; then every exchange has to have ended: flows were left or ended. NULL allowed. */
void http_free(http *h);
watch *http_watch(http *h);
size_t http_at_work(http *h); // exchanges that have not ended

/* A socket that listens; *port gets the port, also when 0 was asked. */
mica_status http_listen(int *fd, int *port, const char *host, mica_error *err);

const char *exchange_header(const exchange *x, const char *name); // NULL: missing
const char *exchange_query(const exchange *x, const char *name);  // NULL: missing

void exchange_json(exchange *x, int status, json_t *v); // takes v; NULL: out of memory
void exchange_bytes(exchange *x, int status, const char *type, const void *p, size_t n); // copies
void exchange_problem(exchange *x, const problem *p);
void exchange_follow(exchange *x, const source *src);
void exchange_empty(exchange *x, int status); // no body

#endif
