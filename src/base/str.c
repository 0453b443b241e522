/* Byte buffers and UTF-8. */
#include "base/str.h"
#include "base/mem.h"

#include <stdio.h>

static bool grow(strbuf *b, size_t add) {
    if (b->failed) return false;
    if (add > SIZE_MAX - b->n - 1 || (b->limit && b->n + add > b->limit)) {
        b->failed = true;
        return false;
    }
    size_t need = b->n + add + 1;
    if (need <= b->cap) return true;
    size_t cap = b->cap ? b->cap : 64;
    while (cap < need) cap = cap > SIZE_MAX / 2 ? need : cap * 2;
    char *p = mem_realloc(b->p, cap);
    if (!p) {
        b->failed = true;
        return false;
    }
    b->p = p;
    b->cap = cap;
    return true;
}

void strbuf_fini(strbuf *b) {
    mem_free(b->p);
    *b = (strbuf){0};
}

void strbuf_clear(strbuf *b) {
    b->n = 0;
    b->failed = false;
    if (b->p) b->p[0] = 0;
}

void strbuf_cut(strbuf *b, size_t n) {
    if (!b->p || n > b->n) return;
    b->n = n;
    b->p[n] = 0;
}

void strbuf_put(strbuf *b, const void *p, size_t n) {
    if (n == 0 || !grow(b, n)) return;
    memcpy(b->p + b->n, p, n);
    b->n += n;
    b->p[b->n] = 0;
}

void strbuf_puts(strbuf *b, const char *s) {
    strbuf_put(b, s, strlen(s));
}

void strbuf_putc(strbuf *b, char c) {
    strbuf_put(b, &c, 1);
}

void strbuf_printf(strbuf *b, const char *fmt, ...) {
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n > 0 && grow(b, (size_t)n)) {
        vsnprintf(b->p + b->n, (size_t)n + 1, fmt, again);
        b->n += (size_t)n;
    }
    va_end(again);
}

const char *strbuf_cstr(const strbuf *b) {
    return b->p ? b->p : "";
}

char *strbuf_take(strbuf *b) {
    if (b->failed) {
        strbuf_fini(b);
        return NULL;
    }
    char *p = b->p ? b->p : mem_strdup("");
    *b = (strbuf){0};
    return p;
}

/* Unicode 15.0 table 3-7, well-formed byte sequences: the second byte's range depends on the first. */
int utf8_len(const char *s, size_t n) {
    const unsigned char *p = (const unsigned char *)s;
    if (n == 0) return 0;
    unsigned char c = p[0], lo = 0x80, hi = 0xBF;
    size_t need;
    if (c < 0x80) return 1;
    if (c < 0xC2 || c > 0xF4) return -1;
    if (c < 0xE0)
        need = 2;
    else if (c < 0xF0) {
        need = 3;
        if (c == 0xE0) lo = 0xA0;
        if (c == 0xED) hi = 0x9F;
    } else {
        need = 4;
        if (c == 0xF0) lo = 0x90;
        if (c == 0xF4) hi = 0x8F;
    }
    for (size_t i = 1; i < need; i++) {
        if (i >= n) return 0;
        if (p[i] < lo || p[i] > hi) return -1;
        lo = 0x80;
        hi = 0xBF;
    }
    return (int)need;
}

bool utf8_valid(const char *p, size_t n) {
    for (size_t i = 0; i < n;) {
        int k = utf8_len(p + i, n - i);
        if (k <= 0) return false;
        i += (size_t)k;
    }
    return true;
}

unsigned utf8_get(const char *s, int len) {
    const unsigned char *p = (const unsigned char *)s;
    if (len == 1) return p[0];
    if (len == 2) return (p[0] & 0x1Fu) << 6 | (p[1] & 0x3Fu);
    if (len == 3) return (p[0] & 0x0Fu) << 12 | (p[1] & 0x3Fu) << 6 | (p[2] & 0x3Fu);
    return (p[0] & 0x07u) << 18 | (p[1] & 0x3Fu) << 12 | (p[2] & 0x3Fu) << 6 | (p[3] & 0x3Fu);
}

int utf8_put(char out[4], unsigned cp) {
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xC0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3F));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (char)(0xE0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3F));
        out[2] = (char)(0x80 | (cp & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3F));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3F));
    out[3] = (char)(0x80 | (cp & 0x3F));
    return 4;
}
