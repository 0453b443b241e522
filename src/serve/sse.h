/* Server-sent events. Values are taken. */
#ifndef MICA_SERVE_SSE_H
#define MICA_SERVE_SSE_H

#include "base/str.h"

#include <jansson.h>
#include <stdint.h>

void sse_data(strbuf *out, json_t *v);                    // data: {...}
void sse_event(strbuf *out, const char *name, json_t *v); // event: NAME, data: {...}
void sse_comment(strbuf *out, const char *text);          // : TEXT
void json_text(strbuf *out, json_t *v);                   // compact JSON as it is

/* A JSON string of bytes that are UTF-8; NULs are allowed. */
static inline json_t *json_slice(slice s) {
    return json_stringn(s.n ? s.p : "", s.n);
}
static inline json_t *json_buffer(const strbuf *b) {
    return json_stringn(strbuf_cstr(b), b->n);
}
static inline json_t *json_u64(uint64_t n) {
    return json_integer((json_int_t)n);
}

#endif
