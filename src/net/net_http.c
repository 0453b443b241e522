/* One GET over libcurl.
 *
 * Redirects are followed here and not by libcurl, for two reasons: the access token goes only to the origin
 * (scheme, host and port) of the hub's endpoint, whatever a redirect says, and a hub tells the SHA-256 of a
 * file in the headers of the redirect itself. A redirect from https to http is refused. */
#include "net/net_int.h"

#include "base/env.h"
#include "base/mem.h"

#include <curl/curl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <time.h>

enum { MAX_REDIRECTS = 10, CONNECT_S = 15, SILENCE_S = 60, MAX_ERROR_PAGE = 65536 };

typedef struct transfer {
    CURL *curl;
    net_reply *reply;
    const net_request *rq;
    mica_error *err;
    mica_status st;  // what the body function said
    size_t n_unread; // bytes of a body that nobody wants
} transfer;

static pthread_once_t g_once = PTHREAD_ONCE_INIT;
static CURLcode g_init;

static void init_once(void) {
    g_init = curl_global_init(CURL_GLOBAL_DEFAULT);
}

void net_hub_endpoint(char *out, size_t n_out) {
    const char *own = env_get("HF_ENDPOINT");
    snprintf(out, n_out, "%s", own ? own : "https://huggingface.co");
    for (size_t n = strlen(out); n > 0 && out[n - 1] == '/'; n--) out[n - 1] = 0;
}

/* One part of a URL, "" when it has none or is no URL. */
static void url_part(char *out, size_t n_out, const char *url, CURLUPart part) {
    char *text = NULL;
    out[0] = 0;
    CURLU *u = curl_url();
    const unsigned flags = part == CURLUPART_PORT ? CURLU_DEFAULT_PORT : 0;
    if (u && curl_url_set(u, CURLUPART_URL, url, 0) == CURLUE_OK &&
        curl_url_get(u, part, &text, flags) == CURLUE_OK)
        snprintf(out, n_out, "%s", text);
    curl_free(text);
    curl_url_cleanup(u);
}

void net_url_show(char *out, size_t n_out, const char *url) {
    char scheme[16], host[256], port[16], path[700];
    url_part(scheme, sizeof scheme, url, CURLUPART_SCHEME);
    url_part(host, sizeof host, url, CURLUPART_HOST);
    url_part(port, sizeof port, url, CURLUPART_PORT);
    url_part(path, sizeof path, url, CURLUPART_PATH);
    const bool usual = !strcmp(port, "443") || !strcmp(port, "80");
    if (host[0])
        snprintf(out, n_out, "%s://%s%s%s%s", scheme, host, usual ? "" : ":", usual ? "" : port, path);
    else
        snprintf(out, n_out, "%.*s", (int)strcspn(url, "?#"), url);
}

static bool same_origin(const char *a, const char *b) {
    static const CURLUPart parts[] = {CURLUPART_SCHEME, CURLUPART_HOST, CURLUPART_PORT};
    char x[256], y[256];
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        url_part(x, sizeof x, a, parts[i]);
        url_part(y, sizeof y, b, parts[i]);
        if (!x[0] || strcasecmp(x, y) != 0) return false;
    }
    return true;
}

bool net_is_hub(const char *url) {
    char hub[600];
    net_hub_endpoint(hub, sizeof hub);
    return same_origin(url, hub);
}

static bool is_https_or_loopback(const char *url) {
    char scheme[16], host[256];
    url_part(scheme, sizeof scheme, url, CURLUPART_SCHEME);
    url_part(host, sizeof host, url, CURLUPART_HOST);
    return !strcasecmp(scheme, "https") || !strcmp(host, "127.0.0.1") || !strcasecmp(host, "localhost") ||
           !strcmp(host, "[::1]");
}

/* The token for this URL, or NULL: only the hub sees it, and never in clear text over a network. */
static const char *token_for(const char *url) {
    const char *token = env_get("HF_TOKEN");
    if (!token || !net_is_hub(url) || !is_https_or_loopback(url)) return NULL;
    for (const char *c = token; *c; c++)
        if (*c <= ' ' || *c > '~') return NULL; // a line break would add headers
    return token;
}

/* The value of a header line when it has this name: without blanks, cut to the buffer. */
static bool header_is(slice line, const char *name, char *value, size_t n_value) {
    size_t n = strlen(name);
    if (line.n <= n || strncasecmp(line.p, name, n) != 0 || line.p[n] != ':') return false;
    const char *p = line.p + n + 1, *end = line.p + line.n;
    while (p < end && (*p == ' ' || *p == '\t')) p++;
    while (end > p && (unsigned char)end[-1] <= ' ') end--;
    snprintf(value, n_value, "%.*s", (int)(end - p), p);
    return true;
}

/* "bytes 100-199/200"; the total may be '*'. */
static void parse_content_range(net_reply *r, const char *v) {
    long long from, to, total = -1;
    if (sscanf(v, "bytes */%lld", &total) == 1) r->total_bytes = total;
    if (sscanf(v, "bytes %lld-%lld/%lld", &from, &to, &total) < 2 || from < 0 || to < from) return;
    r->from_bytes = from;
    r->total_bytes = total > to ? total : -1;
}

/* A hub's X-Linked-ETag is the SHA-256 in quotes for large files, a git hash for small ones. */
static void parse_linked_etag(net_reply *r, const char *v) {
    if (*v == '"') v++;
    if (strspn(v, "0123456789abcdef") == NET_SHA256_HEX && (v[NET_SHA256_HEX] == '"' || !v[NET_SHA256_HEX]))
        snprintf(r->sha256, sizeof r->sha256, "%.*s", NET_SHA256_HEX, v);
}

/* Link: <URL>; rel="next" */
static void parse_link(net_reply *r, const char *v) {
    const char *end = v[0] == '<' ? strchr(v, '>') : NULL;
    if (end && strstr(end, "rel=\"next\"") && (size_t)(end - v - 1) < sizeof r->next)
        snprintf(r->next, sizeof r->next, "%.*s", (int)(end - v - 1), v + 1);
}

static void keep_validator(net_reply *r, const char *v) {
    const size_t n = strlen(v);
    if (n < sizeof r->validator) memcpy(r->validator, v, n + 1);
}

static size_t on_header(char *p, size_t size, size_t n, void *user) {
    transfer *t = user;
    net_reply *r = t->reply;
    slice line = {p, size * n};
    char v[1300];
    if (slice_starts(line, SLICE_LIT("HTTP/"))) { // a new answer: what an interim one said is gone
        r->n_body = r->from_bytes = r->total_bytes = -1;
        r->validator[0] = r->next[0] = 0;
        r->retry_after_s = 0;
    } else if (header_is(line, "content-range", v, sizeof v)) {
        parse_content_range(r, v);
    } else if (header_is(line, "content-length", v, sizeof v)) {
        r->n_body = strtoll(v, NULL, 10);
    } else if (header_is(line, "etag", v, sizeof v)) {
        if (v[0] == '"') keep_validator(r, v);
    } else if (header_is(line, "last-modified", v, sizeof v)) {
        if (!r->validator[0]) keep_validator(r, v);
    } else if (header_is(line, "x-linked-etag", v, sizeof v)) {
        parse_linked_etag(r, v);
    } else if (header_is(line, "link", v, sizeof v)) {
        parse_link(r, v);
    } else if (header_is(line, "retry-after", v, sizeof v)) {
        const long s = strtol(v, NULL, 10);
        r->retry_after_s = s > 0 ? (uint32_t)(s < 60 ? s : 60) : 0;
    }
    return size * n;
}

static bool cancelled(const net_request *rq) {
    return rq->cancel && rq->cancel->set;
}

static bool is_wanted(const transfer *t) {
    return t->rq->body && (t->reply->code == 200 || t->reply->code == 206);
}

static size_t on_body(char *p, size_t size, size_t n, void *user) {
    transfer *t = user;
    curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &t->reply->code);
    if (cancelled(t->rq)) return 0;
    if (!is_wanted(t)) return (t->n_unread += size * n) > MAX_ERROR_PAGE ? 0 : size * n;
    t->st = t->rq->body(t->rq->user, t->reply, p, size * n, t->err);
    return t->st == MICA_OK ? size * n : 0;
}

static int on_progress(void *user, curl_off_t dn, curl_off_t d, curl_off_t un, curl_off_t u) {
    (void)dn, (void)d, (void)un, (void)u;
    return cancelled(((transfer *)user)->rq);
}

/* Failures that a later try may not meet again. */
static bool is_passing(CURLcode rc) {
    switch (rc) {
    case CURLE_PARTIAL_FILE:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_COULDNT_CONNECT:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM: return true;
    default: return false;
    }
}

/* The headers of one request; NULL with *failed when out of memory. */
static struct curl_slist *request_headers(const net_request *rq, const char *url, bool *failed) {
    struct curl_slist *list = NULL;
    char line[2200];
    const char *token = token_for(url);
    *failed = false;
    for (int i = 0; i < 3; i++) {
        line[0] = 0;
        if (i == 0 && token) snprintf(line, sizeof line, "Authorization: Bearer %s", token);
        if (i == 1 && rq->from_bytes)
            snprintf(line, sizeof line, "Range: bytes=%llu-", (unsigned long long)rq->from_bytes);
        if (i == 2 && rq->from_bytes && rq->if_range && rq->if_range[0])
            snprintf(line, sizeof line, "If-Range: %s", rq->if_range);
        if (!line[0]) continue;
        struct curl_slist *more = curl_slist_append(list, line);
        if (!more)
            *failed = true;
        else
            list = more;
    }
    return list;
}

/* One request without redirects. */
static mica_status one_request(transfer *t, const char *url, mica_error *err) {
    CURL *c = t->curl;
    char show[400], text[CURL_ERROR_SIZE] = "";
    bool failed;
    net_url_show(show, sizeof show, url);
    struct curl_slist *headers = request_headers(t->rq, url, &failed);
    curl_easy_reset(c);
    curl_easy_setopt(c, CURLOPT_URL, url);
    curl_easy_setopt(c, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(c, CURLOPT_USERAGENT, "mica/" MICA_VERSION);
    curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_S);
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_TIME, (long)SILENCE_S);
    curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(c, CURLOPT_HEADERDATA, t);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, t);
    curl_easy_setopt(c, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(c, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(c, CURLOPT_XFERINFODATA, t);
    curl_easy_setopt(c, CURLOPT_ERRORBUFFER, text);
    t->reply->code = 0;
    t->n_unread = 0;
    CURLcode rc = failed ? CURLE_OUT_OF_MEMORY : curl_easy_perform(c);
    curl_slist_free_all(headers);
    curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &t->reply->code);
    if (rc == CURLE_WRITE_ERROR && t->n_unread > MAX_ERROR_PAGE) rc = CURLE_OK; // the code was all we wanted
    if (t->st != MICA_OK) return t->st;
    if (cancelled(t->rq)) return fail(err, MICA_E_CANCELLED, "%s: download: stopped", show);
    if (rc == CURLE_OUT_OF_MEMORY) return fail(err, MICA_E_NOMEM, "%s: download: out of memory", show);
    t->reply->may_retry = is_passing(rc);
    if (rc == CURLE_COULDNT_RESOLVE_HOST || rc == CURLE_COULDNT_CONNECT) { // not the file
        char *path = strstr(show, "://") ? strchr(strstr(show, "://") + 3, '/') : NULL;
        if (path) *path = 0;
    }
    if (rc != CURLE_OK)
        return fail(err, MICA_E_NETWORK, "%s: download: %s", show, text[0] ? text : curl_easy_strerror(rc));
    t->reply->may_retry = t->reply->code >= 500 || t->reply->code == 429 || t->reply->code == 408;
    return MICA_OK;
}

/* The request and its redirects. */
static mica_status follow(transfer *t, mica_error *err) {
    char *url = mem_strdup(t->rq->url), *next = NULL, show[400];
    mica_status st = url ? MICA_OK : fail(err, MICA_E_NOMEM, "download: URL: out of memory");
    for (int hop = 0; st == MICA_OK; hop++) {
        char scheme[16], next_scheme[16];
        const char *target = NULL;
        net_url_show(show, sizeof show, url);
        url_part(scheme, sizeof scheme, url, CURLUPART_SCHEME);
        if (strcasecmp(scheme, "https") != 0 && strcasecmp(scheme, "http") != 0) {
            st = fail(err, MICA_E_NETWORK, "%s: download: not an http or https URL", show);
            break;
        }
        st = one_request(t, url, err);
        curl_easy_getinfo(t->curl, CURLINFO_REDIRECT_URL, &target);
        if (st != MICA_OK || t->reply->code < 300 || t->reply->code > 399 || !target) break;
        url_part(next_scheme, sizeof next_scheme, target, CURLUPART_SCHEME);
        if (hop == MAX_REDIRECTS) {
            st = fail(err, MICA_E_NETWORK, "%s: download: more than %d redirects", show, MAX_REDIRECTS);
        } else if (!strcasecmp(scheme, "https") && strcasecmp(next_scheme, "https") != 0) {
            st = fail(err, MICA_E_NETWORK, "%s: download: the server redirects from https to %s", show,
                      next_scheme);
        } else if (!(next = mem_strdup(target))) {
            st = fail(err, MICA_E_NOMEM, "%s: download: out of memory", show);
        } else {
            mem_free(url);
            url = next;
        }
    }
    mem_free(url);
    return st;
}

mica_status net_http_get(net_reply *reply, const net_request *rq, mica_error *err) {
    *reply = (net_reply){.n_body = -1, .from_bytes = -1, .total_bytes = -1};
    pthread_once(&g_once, init_once);
    CURL *curl = g_init == CURLE_OK ? curl_easy_init() : NULL;
    if (!curl)
        return fail(err, MICA_E_INTERNAL, "download: libcurl does not start: %s", curl_easy_strerror(g_init));
    // libcurl leaves signals alone (NOSIGNAL), so a TLS write to a closed socket could raise SIGPIPE: held
    // back here.
    sigset_t pipe_set, before, pending;
    sigemptyset(&pipe_set);
    sigaddset(&pipe_set, SIGPIPE);
    sigpending(&pending);
    pthread_sigmask(SIG_BLOCK, &pipe_set, &before);
    transfer t = {.curl = curl, .reply = reply, .rq = rq, .err = err};
    const mica_status st = follow(&t, err);
    curl_easy_cleanup(curl);
    if (!sigismember(&pending, SIGPIPE)) sigtimedwait(&pipe_set, NULL, &(struct timespec){0});
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return st;
}
