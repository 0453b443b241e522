/* The life of an exchange over the callbacks of libmicrohttpd. */
#include "serve/http.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    N_THREAD = 4,
    HEAD_BYTES = 32 << 10,    // of a connection: its headers have to fit
    THROWN_BYTES = 512 << 20, // of a refused body that are read before the connection is cut
    ALL_BODIES = 256 << 20,   // of all requests that are coming or being read
    SEND_BYTES = 128 << 10,   // of answers that the system holds for a client that reads slowly
};

struct http {
    struct MHD_Daemon *daemon; // owned
    watch *watch;              // owned
    const guard *guard;        // borrowed
    http_limits limits;
    http_routes routes;
    atomic_size_t n_exchange, n_body; // exchanges; bytes of their bodies
};

/* ---- Answers ---- */

const char *exchange_header(const exchange *x, const char *name) {
    return MHD_lookup_connection_value(x->conn, MHD_HEADER_KIND, name);
}

const char *exchange_query(const exchange *x, const char *name) {
    return MHD_lookup_connection_value(x->conn, MHD_GET_ARGUMENT_KIND, name);
}

static void put_header(struct MHD_Response *r, const char *name, const char *value) {
    MHD_add_response_header(r, name, value);
}

static void send_response(exchange *x, int status, struct MHD_Response *r) {
    const char *origin = exchange_header(x, "Origin");
    x->answered = true;
    x->status = status;
    if (!r) return;
    put_header(r, x->dialect == DIALECT_ANTHROPIC ? "request-id" : "x-request-id", x->id);
    put_header(r, "X-Content-Type-Options", "nosniff");
    if (x->h->guard->n_origin > 0) put_header(r, "Vary", "Origin");
    if (guard_allows_origin(x->h->guard, origin)) {
        put_header(r, "Access-Control-Allow-Origin", origin);
        put_header(r, "Access-Control-Expose-Headers", "x-request-id, request-id, retry-after");
    }
    if (x->page) {
        put_header(r, "Cache-Control", "no-cache");
        put_header(r, "X-Frame-Options", "DENY");
        put_header(r, "Referrer-Policy", "no-referrer");
        put_header(r, "Content-Security-Policy",
                   "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
                   "connect-src 'self'; base-uri 'none'; form-action 'none'; "
                   "require-trusted-types-for 'script'; trusted-types 'none'; frame-ancestors 'none'");
    }
    if (x->allow) put_header(r, "Allow", x->allow);
    if (status == 401) put_header(r, "WWW-Authenticate", "Bearer");
    if (x->refused.retry_s > 0) {
        char seconds[16];
        snprintf(seconds, sizeof seconds, "%d", x->refused.retry_s);
        put_header(r, "Retry-After", seconds);
    }
    if (status == 413 || status == 408) put_header(r, "Connection", "close");
    if (MHD_queue_response(x->conn, (unsigned)status, r) == MHD_NO) x->answered = false;
    MHD_destroy_response(r);
}

/* Takes the text. */
static void send_text(exchange *x, int status, const char *type, strbuf *b) {
    const size_t n = b->n;
    char *text = strbuf_take(b);
    struct MHD_Response *r =
        text ? MHD_create_response_from_buffer_with_free_callback(n, text, mem_free) : NULL;
    if (r) put_header(r, "Content-Type", type);
    send_response(x, status, r);
}

void exchange_bytes(exchange *x, int status, const char *type, const void *p, size_t n) {
    strbuf b = {0};
    strbuf_puts(&b, ""); // an empty body is a text too
    strbuf_put(&b, p, n);
    send_text(x, status, type, &b);
}

void exchange_json(exchange *x, int status, json_t *v) {
    char *text = v ? json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    json_decref(v);
    if (text)
        exchange_bytes(x, status, "application/json", text, strlen(text));
    else
        exchange_bytes(x, 500, "application/json", "{}", 2);
    free(text); // jansson's
}

void exchange_problem(exchange *x, const problem *p) {
    x->refused = *p;
    exchange_json(x, p->http, problem_json(p, x->dialect, x->id));
}

void exchange_empty(exchange *x, int status) {
    struct MHD_Response *r = MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
    if (r && status == 204) {
        put_header(r, "Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS");
        put_header(r, "Access-Control-Allow-Headers",
                   "authorization, content-type, x-api-key, anthropic-version, anthropic-beta, x-request-id");
        put_header(r, "Access-Control-Max-Age", "600");
    }
    send_response(x, status, r);
}

/* ---- Answers out of a flow ---- */

static void to_sleep(void *user) {
    exchange *x = user;
    MHD_suspend_connection(x->conn);
}

static void wake_up(void *user) {
    exchange *x = user;
    MHD_resume_connection(x->conn);
}

static void hand_out(exchange *x) {
    event e;
    size_t pos = 0;
    while (flow_next(&x->events, &pos, &e)) x->src.event(x->src.user, &e, &x->out);
}

/* More bytes in x->out. */
static flow_state refill(exchange *x) {
    const flow_state state = flow_take(x->src.flow, &x->events);
    if (state == FLOW_SOME) hand_out(x);
    if (state == FLOW_PING) x->src.ping(x->src.user, &x->out);
    if (state == FLOW_ENDED && !x->last) {
        x->src.end(x->src.user, &x->out);
        x->last = true;
    }
    return state;
}

static ssize_t on_read(void *cls, uint64_t pos, char *buf, size_t max) {
    exchange *x = cls;
    (void)pos;
    while (x->n_sent == x->out.n) {
        strbuf_clear(&x->out);
        x->n_sent = 0;
        if (x->last) return MHD_CONTENT_READER_END_OF_STREAM;
        const flow_state state = refill(x);
        if (state == FLOW_SLEEP) return 0;
        if (state == FLOW_GONE || x->out.failed) return MHD_CONTENT_READER_END_WITH_ERROR;
    }
    size_t n = x->out.n - x->n_sent;
    if (n > max) n = max;
    memcpy(buf, x->out.p + x->n_sent, n);
    x->n_sent += n;
    return (ssize_t)n;
}

static void begin_stream(exchange *x) {
    struct MHD_Response *r = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 16 << 10, on_read, x, NULL);
    if (r) {
        put_header(r, "Content-Type", "text/event-stream");
        put_header(r, "Cache-Control", "no-cache");
        put_header(r, "X-Accel-Buffering", "no");
    }
    send_response(x, 200, r);
}

/* Not a stream: asleep until all is there. */
static enum MHD_Result gather_whole(exchange *x) {
    for (;;) {
        strbuf_clear(&x->out);
        switch (flow_take(x->src.flow, &x->events)) {
        case FLOW_SOME: hand_out(x); break;
        case FLOW_PING: break;
        case FLOW_SLEEP: return MHD_YES;
        case FLOW_GONE: return MHD_NO;
        case FLOW_ENDED: {
            strbuf body = {0};
            const int status = x->src.whole(x->src.user, &body);
            send_text(x, status, "application/json", &body);
            return x->answered ? MHD_YES : MHD_NO;
        }
        }
    }
}

void exchange_follow(exchange *x, const source *src) {
    flow *f = src->flow;
    x->src = *src;
    pthread_mutex_lock(&f->lock);
    f->sleep = to_sleep;
    f->wake = wake_up;
    f->user = x;
    pthread_mutex_unlock(&f->lock);
    watch_flow(x->h->watch, x->fd, f);
    if (src->stream) begin_stream(x);
}

/* ---- Requests ---- */

static void new_id(char out[48], const char *given) {
    const size_t n = given ? strlen(given) : 0;
    if (n > 0 && n < 48 &&
        strspn(given, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") == n) {
        memcpy(out, given, n + 1);
        return;
    }
    uint64_t r[2] = {clock_ns(), 0};
    const ssize_t got = getrandom(r, sizeof r, 0);
    (void)got;
    snprintf(out, 48, "req_%016llx%08llx", (unsigned long long)r[0], (unsigned long long)(r[1] >> 32));
}

/* "//v1//models/" is "/v1/models". false when it is too long. */
static bool tidy_path(char *out, size_t size, const char *url) {
    size_t n = 0;
    for (const char *p = url; *p; p++) {
        if (*p == '/' && n > 0 && out[n - 1] == '/') continue;
        if (n + 1 >= size) return false;
        out[n++] = *p;
    }
    if (n > 1 && out[n - 1] == '/') n--;
    out[n] = 0;
    return true;
}

static uint64_t mix(uint64_t h, const void *p, size_t n) {
    const unsigned char *b = p;
    for (size_t i = 0; i < n; i++) h = (h ^ b[i]) * UINT64_C(0x100000001b3); // FNV-1a
    return h;
}

static uint64_t client_of(const exchange *x) {
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(x->conn, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    if (info && info->client_addr) {
        const struct sockaddr *a = info->client_addr;
        if (a->sa_family == AF_INET) h = mix(h, &((const struct sockaddr_in *)(const void *)a)->sin_addr, 4);
        if (a->sa_family == AF_INET6)
            h = mix(h, &((const struct sockaddr_in6 *)(const void *)a)->sin6_addr, 16);
    }
    if (x->h->guard->n_key == 0) return h; // anybody may then write any key, and be many clients
    const char *key = exchange_header(x, "Authorization");
    if (!key) key = exchange_header(x, "X-Api-Key");
    return key ? mix(h, key, strlen(key)) : h;
}

static exchange *exchange_new(http *h, struct MHD_Connection *conn, const char *url, const char *method) {
    exchange *x = mem_calloc(1, sizeof *x);
    if (!x) return NULL;
    x->h = h;
    x->conn = conn;
    x->begun_ns = clock_ns();
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CONNECTION_FD);
    x->fd = info ? info->connect_fd : -1;
    snprintf(x->method, sizeof x->method, "%s", method);
    if (!tidy_path(x->path, sizeof x->path, url)) x->path[0] = 0;
    new_id(x->id, exchange_header(x, "X-Request-Id"));
    x->client = client_of(x);
    atomic_fetch_add(&h->n_exchange, 1);
    watch_begun(h->watch, x->fd);
    return x;
}

typedef struct length_headers {
    int n_length, n_coding;
} length_headers;

static enum MHD_Result count_lengths(void *cls, enum MHD_ValueKind kind, const char *key, const char *value) {
    length_headers *l = cls;
    (void)kind;
    (void)value;
    l->n_length += strcasecmp(key, "Content-Length") == 0;
    l->n_coding += strcasecmp(key, "Transfer-Encoding") == 0;
    return MHD_YES;
}

/* Two lengths are how one request is smuggled inside another. */
static mica_status check_length(exchange *x, problem *p) {
    length_headers l = {0, 0};
    MHD_get_connection_values(x->conn, MHD_HEADER_KIND, count_lengths, &l);
    if (l.n_length > 1 || l.n_coding > 1 || (l.n_length > 0 && l.n_coding > 0))
        return problem_set(p, 400, "Content-Length", "Content-Length: more than one length of the body");
    const char *length = exchange_header(x, "Content-Length");
    if (length && strtoull(length, NULL, 10) > x->h->limits.body_bytes)
        return problem_set(p, 413, NULL, "body: %.20s bytes: at most %llu are read", length,
                           (unsigned long long)x->h->limits.body_bytes);
    return MICA_OK;
}

static enum MHD_Result begin_request(exchange *x) {
    http *h = x->h;
    problem p = {0};
    mica_status st = x->path[0] ? MICA_OK : problem_set(&p, 404, NULL, "path: unknown");
    if (st == MICA_OK) st = h->routes.admit(h->routes.user, x, &p);
    if (st == MICA_OK) st = check_length(x, &p);
    if (st != MICA_OK) x->refused = p;
    // A client that asks first is told at once; others are told when they have said what they wanted.
    const bool asks = exchange_header(x, "Expect") != NULL;
    if (x->refused.http == 0 || !asks) return MHD_YES;
    watch_received(h->watch, x->fd);
    x->complete = true;
    exchange_problem(x, &p);
    return x->answered ? MHD_YES : MHD_NO;
}

static void drop_body(exchange *x) {
    atomic_fetch_sub(&x->h->n_body, x->body.n);
    strbuf_fini(&x->body);
}

/* What one request may have is not what a thousand may have together. */
static void check_space(exchange *x, size_t n) {
    const http *h = x->h;
    if (x->body.n + n > h->limits.body_bytes) {
        problem_set(&x->refused, 413, NULL, "body: more than %llu bytes",
                    (unsigned long long)h->limits.body_bytes);
    } else if (atomic_load(&h->n_body) + n > ALL_BODIES) {
        problem_set(&x->refused, 503, NULL, "too many large requests at the same time: try again later");
        x->refused.retry_s = 2;
    }
}

static enum MHD_Result take_body(exchange *x, const char *p, size_t n) {
    if (x->refused.http == 0) check_space(x, n);
    if (x->refused.http == 0) {
        strbuf_put(&x->body, p, n);
        if (x->body.failed) return MHD_NO;
        atomic_fetch_add(&x->h->n_body, n);
        return MHD_YES;
    }
    drop_body(x);
    x->n_thrown += n;
    return x->n_thrown > THROWN_BYTES ? MHD_NO : MHD_YES;
}

static enum MHD_Result serve_request(exchange *x) {
    http *h = x->h;
    x->complete = true;
    if (!watch_received(h->watch, x->fd)) return MHD_NO; // it came too late and was told so
    if (x->refused.http != 0) {
        const problem p = x->refused;
        exchange_problem(x, &p);
    } else {
        h->routes.serve(h->routes.user, x);
    }
    drop_body(x);
    if (x->src.flow && !x->src.stream) return gather_whole(x);
    return x->answered ? MHD_YES : MHD_NO;
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *conn, const char *url, const char *method,
                                  const char *version, const char *upload, size_t *n_upload, void **con_cls) {
    exchange *x = *con_cls;
    (void)version;
    if (!x) {
        *con_cls = x = exchange_new(cls, conn, url, method);
        return x ? begin_request(x) : MHD_NO;
    }
    if (*n_upload > 0) {
        const size_t n = *n_upload;
        *n_upload = 0;
        return take_body(x, upload, n);
    }
    if (!x->complete) return serve_request(x);
    return gather_whole(x); // awake again
}

/* What a client wrote stays out of the log: methods are letters, paths those of the routes. */
static void log_end(exchange *x, enum MHD_RequestTerminationCode how) {
    const log_level level = x->quiet && x->status < 400 ? LOG_DEBUG : LOG_INFO;
    const bool whole = how == MHD_REQUEST_TERMINATED_COMPLETED_OK;
    strbuf note = {0};
    if (x->src.note) x->src.note(x->src.user, &note);
    const bool plain = x->method[strspn(x->method, "ABCDEFGHIJKLMNOPQRSTUVWXYZ")] == 0;
    log_put(level, "serve", "%s %s %d%s in %.0f ms id=%s%s", plain ? x->method : "(unknown method)",
            x->pattern ? x->pattern : "(unknown path)", x->status, whole ? "" : " client gone",
            clock_ms_since(x->begun_ns), x->id, strbuf_cstr(&note));
    strbuf_fini(&note);
}

static void on_completed(void *cls, struct MHD_Connection *conn, void **con_cls,
                         enum MHD_RequestTerminationCode how) {
    http *h = cls;
    exchange *x = *con_cls;
    (void)conn;
    if (!x) return;
    *con_cls = NULL;
    watch_answered(h->watch, x->fd);
    if (x->src.flow) flow_leave(x->src.flow); // it may still be at work for a client that went
    log_end(x, how);
    if (x->src.free) x->src.free(x->src.user);
    drop_body(x);
    strbuf_fini(&x->events);
    strbuf_fini(&x->out);
    mem_free(x);
    atomic_fetch_sub(&h->n_exchange, 1);
}

static void on_connection(void *cls, struct MHD_Connection *conn, void **socket_cls,
                          enum MHD_ConnectionNotificationCode what) {
    http *h = cls;
    (void)socket_cls;
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (!info) return;
    if (what != MHD_CONNECTION_NOTIFY_STARTED) {
        watch_closed(h->watch, info->connect_fd);
        return;
    }
    const int n_send = SEND_BYTES;
    setsockopt(info->connect_fd, SOL_SOCKET, SO_SNDBUF, &n_send, sizeof n_send);
    watch_opened(h->watch, info->connect_fd);
}

/* ---- Start and end ---- */

static void on_library_log(void *cls, const char *fmt, va_list args) {
    char line[300];
    (void)cls;
    vsnprintf(line, sizeof line, fmt, args);
    line[strcspn(line, "\r\n")] = 0;
    log_debug("serve", "http library: %s", line);
}

/* What the system allows, less what the program itself has open. */
static unsigned connection_limit(uint32_t wanted) {
    struct rlimit r;
    unsigned n = wanted ? wanted : 2048;
    if (getrlimit(RLIMIT_NOFILE, &r) != 0) return n;
    const rlim_t soft = r.rlim_cur;
    r.rlim_cur = r.rlim_max;
    if (soft < n + 128 && setrlimit(RLIMIT_NOFILE, &r) != 0) r.rlim_cur = soft;
    if (r.rlim_cur != RLIM_INFINITY && n + 128 > r.rlim_cur)
        n = r.rlim_cur > 192 ? (unsigned)r.rlim_cur - 128 : 64;
    return n;
}

static mica_status start(http *h, const http_options *opt, mica_error *err) {
    const unsigned n_connection = connection_limit(opt->limits.n_connection);
    h->daemon = MHD_start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0, NULL, NULL,
        on_request, h, MHD_OPTION_EXTERNAL_LOGGER, on_library_log, NULL, MHD_OPTION_LISTEN_SOCKET,
        opt->listener, MHD_OPTION_THREAD_POOL_SIZE, (unsigned)N_THREAD, MHD_OPTION_CONNECTION_LIMIT,
        n_connection, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HEAD_BYTES, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)opt->limits.stall_s, MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_NOTIFY_COMPLETED,
        on_completed, h, MHD_OPTION_NOTIFY_CONNECTION, on_connection, h, MHD_OPTION_END);
    return h->daemon ? MICA_OK
                     : fail(err, MICA_E_IO, "server: the HTTP library did not start: %s", strerror(errno));
}

mica_status http_new(http **out, const http_options *opt, mica_error *err) {
    mica_status st = MICA_OK;
    *out = NULL;
    http *h = mem_calloc(1, sizeof *h);
    if (!h) return fail(err, MICA_E_NOMEM, "server: out of memory");
    h->guard = opt->guard;
    h->limits = opt->limits;
    h->routes = opt->routes;
    TRY_GOTO(watch_new(&h->watch, opt->limits.receive_s, opt->limits.ping_s, err), done);
    TRY_GOTO(start(h, opt, err), done);
    *out = h;
    h = NULL;
done:
    if (h) {
        watch_free(h->watch);
        mem_free(h);
    }
    return st;
}

void http_free(http *h) {
    if (!h) return;
    MHD_stop_daemon(h->daemon); // closes the listening socket too
    watch_free(h->watch);
    mem_free(h);
}

watch *http_watch(http *h) {
    return h->watch;
}

size_t http_at_work(http *h) {
    return atomic_load(&h->n_exchange);
}

/* ---- Listening ---- */

static mica_status fail_bind(const char *host, int port, int why, mica_error *err) {
    if (why == EADDRINUSE)
        return fail(err, MICA_E_BUSY,
                    "port %d: in use on %s: another program listens there: --port takes another", port, host);
    if (why == EACCES)
        return fail(err, MICA_E_BUSY, "port %d: not allowed: ports below 1024 need rights", port);
    if (why == EADDRNOTAVAIL)
        return fail(err, MICA_E_ARG, "--host: %s: not an address of this machine", host);
    return fail(err, MICA_E_IO, "port %d: listen on %s: %s", port, host, strerror(why));
}

static int open_listener(const struct addrinfo *a) {
    const int one = 1;
    const int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, 1024) == 0) return fd;
    const int why = errno;
    close(fd);
    errno = why;
    return -1;
}

static int port_of(int fd) {
    struct sockaddr_storage a;
    socklen_t n = sizeof a;
    if (getsockname(fd, (struct sockaddr *)&a, &n) != 0) return 0;
    if (a.ss_family == AF_INET6) return ntohs(((struct sockaddr_in6 *)&a)->sin6_port);
    return ntohs(((struct sockaddr_in *)&a)->sin_port);
}

mica_status http_listen(int *fd, int *port, const char *host, mica_error *err) {
    struct addrinfo *list = NULL;
    const struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    char service[16];
    snprintf(service, sizeof service, "%d", *port);
    const int rc = getaddrinfo(host, service, &hints, &list);
    if (rc != 0) return fail(err, MICA_E_ARG, "--host: %s: %s", host, gai_strerror(rc));
    int why = 0;
    *fd = -1;
    for (const struct addrinfo *a = list; a && *fd < 0; a = a->ai_next) {
        *fd = open_listener(a);
        if (*fd < 0) why = errno;
    }
    freeaddrinfo(list);
    if (*fd < 0) return fail_bind(host, *port, why, err);
    *port = port_of(*fd);
    return MICA_OK;
}
