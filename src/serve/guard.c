/* Keys in constant time; Host against rebinding, Origin against other people's pages. */
#include "serve/guard.h"

#include "base/mem.h"
#include "base/str.h"

#include <arpa/inet.h>
#include <string.h>
#include <strings.h>

static void list_free(char **list, size_t n) {
    for (size_t i = 0; i < n; i++) mem_free(list[i]);
    mem_free(list);
}

void guard_fini(guard *g) {
    list_free(g->keys, g->n_key);
    list_free(g->origins, g->n_origin);
    list_free(g->hosts, g->n_host);
    *g = (guard){0};
}

bool guard_list_copy(char ***out, size_t *n_out, const char *const *from, size_t n) {
    *out = n ? mem_calloc(n, sizeof **out) : NULL;
    *n_out = 0;
    if (n && !*out) return false;
    for (size_t i = 0; i < n; i++) {
        if (!((*out)[i] = mem_strdup(from[i]))) return false;
        ++*n_out;
    }
    return true;
}

bool guard_same_text(const char *a, const char *b) {
    const size_t na = strlen(a), nb = strlen(b);
    unsigned char differ = na != nb;
    for (size_t i = 0; i < nb; i++) differ |= (unsigned char)(b[i] ^ (i < na ? a[i] : 0));
    return differ == 0;
}

bool guard_is_loopback(const char *host) {
    struct in_addr v4;
    struct in6_addr v6;
    if (strcasecmp(host, "localhost") == 0) return true;
    if (inet_pton(AF_INET, host, &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
    if (inet_pton(AF_INET6, host, &v6) == 1) return IN6_IS_ADDR_LOOPBACK(&v6);
    return false;
}

/* The name in "name:port", "[v6]:port", "name". false when it is none. */
static bool host_name(char *out, size_t size, const char *header) {
    const char *begin = header, *end;
    if (*begin == '[') {
        end = strchr(++begin, ']');
        if (!end) return false;
        if (end[1] != 0 && end[1] != ':') return false;
    } else {
        end = begin + strcspn(begin, ":");
        if (*end == ':' && strchr(end + 1, ':')) return false;
    }
    const size_t n = (size_t)(end - begin);
    if (n == 0 || n >= size || strpbrk(header, "@/\\ \t,")) return false;
    memcpy(out, begin, n);
    out[n] = 0;
    if (n > 1 && out[n - 1] == '.') out[n - 1] = 0; // a name with its root dot
    return true;
}

static bool listed(char *const *list, size_t n, const char *what) {
    for (size_t i = 0; i < n; i++)
        if (strcasecmp(list[i], what) == 0) return true;
    return false;
}

bool guard_allows_origin(const guard *g, const char *origin) {
    return origin && (listed(g->origins, g->n_origin, origin) || listed(g->origins, g->n_origin, "*"));
}

/* The page that the server gave itself: its origin's authority is the Host of the request. */
static bool own_origin(const char *origin, const char *host) {
    const char *authority = strstr(origin, "://");
    return authority && strcasecmp(authority + 3, host) == 0;
}

mica_status guard_check_place(const guard *g, const guard_headers *h, problem *p) {
    char name[256] = "";
    if (g->n_key > 0) return MICA_OK; // a page of others has no key
    if (!h->host || !host_name(name, sizeof name, h->host))
        return problem_set(p, 403, "Host", "Host: missing or malformed: without an API key it is checked");
    const bool known = guard_is_loopback(name) || strcasecmp(name, g->bound) == 0 ||
                       listed(g->hosts, g->n_host, name) || listed(g->hosts, g->n_host, h->host) ||
                       listed(g->hosts, g->n_host, "*");
    // On 0.0.0.0 without a key (--insecure) the machine's own addresses are not known, but an address is no
    // name that somebody could have pointed here.
    struct in_addr v4;
    struct in6_addr v6;
    const bool address = inet_pton(AF_INET, name, &v4) == 1 || inet_pton(AF_INET6, name, &v6) == 1;
    if (!known && !(g->any_host && address))
        return problem_set(p, 403, "Host", "Host: \"%.80s\" is not this server: --allow-host allows a name",
                           name);
    if (h->origin && !own_origin(h->origin, h->host) && !guard_allows_origin(g, h->origin))
        return problem_set(p, 403, "Origin",
                           "Origin: \"%.80s\" may not use this server: --allow-origin allows it", h->origin);
    return MICA_OK;
}

mica_status guard_check_key(const guard *g, const guard_headers *h, problem *p) {
    const char *given = h->x_api_key;
    if (g->n_key == 0) return MICA_OK;
    if (h->authorization && strncasecmp(h->authorization, "Bearer ", 7) == 0) {
        given = h->authorization + 7;
        given += strspn(given, " ");
    }
    if (!given)
        return problem_set(p, 401, NULL, "API key: missing: send it as \"Authorization: Bearer KEY\"");
    bool good = false;
    for (size_t i = 0; i < g->n_key; i++)
        good |= guard_same_text(given, g->keys[i]); // all, whichever matches
    return good ? MICA_OK : problem_set(p, 401, NULL, "API key: not a key of this server");
}
