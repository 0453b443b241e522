/* Borrowed text (`slice`) and a growing byte buffer (`strbuf`).
 * A strbuf remembers an out-of-memory: appends after it do nothing, the owner checks `failed` once at the
 * end. */
#ifndef MICA_BASE_STR_H
#define MICA_BASE_STR_H

#include "mica_status.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

typedef struct slice {
    const char *p; // borrowed, not NUL-terminated
    size_t n;      // bytes
} slice;

#define SLICE_LIT(s) ((slice){(s), sizeof(s) - 1})

static inline slice slice_of(const char *s) {
    return (slice){s, strlen(s)};
}
static inline bool slice_eq(slice a, slice b) {
    return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}
static inline bool slice_is(slice a, const char *s) {
    return slice_eq(a, slice_of(s));
}
static inline bool slice_starts(slice a, slice prefix) {
    return a.n >= prefix.n && memcmp(a.p, prefix.p, prefix.n) == 0;
}

typedef struct strbuf {
    char *p; // owned; always NUL-terminated once anything was appended, else NULL
    size_t n, cap;
    bool failed;  // an allocation failed, or `limit` was reached
    size_t limit; // 0: none; else n never grows past it
} strbuf;

void strbuf_fini(strbuf *b);
void strbuf_clear(strbuf *b);         // keeps the memory and the limit
void strbuf_cut(strbuf *b, size_t n); // drops all but the first n bytes; n must not be more than there are
void strbuf_put(strbuf *b, const void *p, size_t n);
void strbuf_puts(strbuf *b, const char *s);
void strbuf_putc(strbuf *b, char c);
void strbuf_printf(strbuf *b, const char *fmt, ...) MICA_PRINTF(2, 3);
const char *strbuf_cstr(const strbuf *b); // "" when nothing was appended
char *strbuf_take(strbuf *b);             // gives the text (mem_free); NULL when failed

/* The length in bytes of the UTF-8 sequence at p (n bytes left): 1..4 when well-formed; 0 when it is a proper
 * prefix of a well-formed one; -1 when invalid. Overlong forms, surrogates and values over U+10FFFF are
 * invalid. */
int utf8_len(const char *p, size_t n);
bool utf8_valid(const char *p, size_t n);
/* The code point at p, which utf8_len has found well-formed; *len_out gets its bytes. */
unsigned utf8_get(const char *p, int len);
int utf8_put(char out[4], unsigned cp); // bytes written
#endif
