/* Who may speak to the server: keys, and against web pages of others the Host and Origin headers.
 *
 * With keys, a request needs one; compared in a time that tells nothing about them. Without keys a browser
 * must not become the way in: the Host header has to name this machine or a host that was allowed (a name
 * that an attacker points here does neither), and an Origin header has to be our own or an allowed one.
 * Answers carry CORS headers for allowed origins only. docs/SECURITY.md says what is promised. Pure; any
 * thread. */
#ifndef MICA_SERVE_GUARD_H
#define MICA_SERVE_GUARD_H

#include "serve/problem.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct guard {
    char **keys, **origins, **hosts; // owned
    size_t n_key, n_origin, n_host;
    char bound[64]; // the address it listens on
    bool any_host;  // listens on addresses whose names it cannot know
} guard;

void guard_fini(guard *g);
/* Copies; NULL allowed for n = 0. false: out of memory. */
bool guard_list_copy(char ***out, size_t *n_out, const char *const *from, size_t n);

/* Headers, NULL when missing. A key comes as `Authorization: Bearer KEY` or `X-Api-Key: KEY`. */
typedef struct guard_headers {
    const char *host, *origin, *authorization, *x_api_key;
} guard_headers;

mica_status guard_check_place(const guard *g, const guard_headers *h, problem *p); // Host and Origin
mica_status guard_check_key(const guard *g, const guard_headers *h, problem *p);
/* May pages of this origin read answers? */
bool guard_allows_origin(const guard *g, const char *origin);

bool guard_is_loopback(const char *host);           // an address or a name of this machine alone
bool guard_same_text(const char *a, const char *b); // in a time that depends on the length of b alone

#endif
