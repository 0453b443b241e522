/* What went wrong with a request, as its client sees it: an HTTP status, a field, a code and a sentence, in
 * the shape of the API the client speaks. A mistake of the client is never a 5xx: client libraries repeat
 * those by themselves. Pure; owned by its caller. */
#ifndef MICA_SERVE_PROBLEM_H
#define MICA_SERVE_PROBLEM_H

#include "base/status.h"

#include <jansson.h>
#include <stdint.h>

typedef enum dialect { DIALECT_OPENAI, DIALECT_ANTHROPIC } dialect;

typedef struct problem {
    int http;                 // 400, 401, ...; 0: none
    const char *code;         // static; "context_length_exceeded", or NULL
    char param[96];           // the field, "" when it is none
    char text[600];           // one line, UTF-8
    uint64_t n_prompt, n_ctx; // of a prompt that is too long, else 0
    int retry_s;              // Retry-After; 0: none
} problem;

/* Fills p and returns the status that goes with it (MICA_E_ARG below 500). param may be NULL. */
mica_status problem_set(problem *p, int http, const char *param, const char *fmt, ...) MICA_PRINTF(4, 5);
/* A failure of the library while it worked on `param` (NULL: nothing in particular); returns st. */
mica_status problem_of(problem *p, mica_status st, const mica_error *err, const char *param);
mica_status problem_too_long(problem *p, uint64_t n_prompt, uint64_t n_more, uint64_t n_ctx);

/* The body of the answer; a new reference. request_id may be NULL. */
json_t *problem_json(const problem *p, dialect d, const char *request_id);

#endif
