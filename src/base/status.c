/* Error text: made once, bounded, safe to print. */
#include "base/status.h"

#include "base/str.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *mica_status_name(mica_status status) {
    switch (status) {
    case MICA_OK: return "ok";
    case MICA_E_ARG: return "bad argument";
    case MICA_E_IO: return "input/output";
    case MICA_E_FORMAT: return "malformed";
    case MICA_E_UNSUPPORTED: return "unsupported";
    case MICA_E_FIT: return "does not fit";
    case MICA_E_NOMEM: return "out of memory";
    case MICA_E_DEVICE: return "device";
    case MICA_E_NETWORK: return "network";
    case MICA_E_BUSY: return "busy";
    case MICA_E_CANCELLED: return "cancelled";
    case MICA_E_INTERNAL: return "internal";
    }
    return "unknown";
}

mica_status write_status(int why) {
    return why == ENOSPC || why == EDQUOT || why == EFBIG ? MICA_E_NETWORK : MICA_E_IO;
}

/* A name from a file may hold escape sequences, also the two-byte ones, or bytes that are no UTF-8. A
 * character cut by our own bound stays for drop_cut_utf8. */
static void make_printable(char *s) {
    while (*s) {
        const unsigned char c = (unsigned char)s[0], next = (unsigned char)s[1];
        const int n = utf8_len(s, strlen(s));
        if (n < 0 || c < 0x20 || c == 0x7f || (c == 0xC2 && next < 0xA0)) *s = '?';
        s += n > 1 && *s != '?' ? n : 1;
    }
}

/* snprintf may cut inside a UTF-8 sequence: drop an incomplete tail. */
static void drop_cut_utf8(char *s) {
    size_t n = strlen(s), k = n;
    while (k > 0 && ((unsigned char)s[k - 1] & 0xC0) == 0x80) k--;
    if (k == 0) return;
    unsigned char lead = (unsigned char)s[k - 1];
    size_t need = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
    if (n - (k - 1) < need) s[k - 1] = 0;
}

static void write_text(mica_error *err, mica_status st, const char *fmt, va_list ap) {
    err->status = st;
    vsnprintf(err->text, sizeof err->text, fmt, ap);
    make_printable(err->text);
    drop_cut_utf8(err->text);
}

mica_status fail(mica_error *err, mica_status st, const char *fmt, ...) {
    if (!err) return st;
    va_list ap;
    va_start(ap, fmt);
    write_text(err, st, fmt, ap);
    va_end(ap);
    return st;
}

mica_status fail_within(mica_error *err, mica_status st, const char *fmt, ...) {
    if (!err) return st;
    mica_error inner = *err;
    va_list ap;
    va_start(ap, fmt);
    write_text(err, st, fmt, ap);
    va_end(ap);
    size_t n = strlen(err->text);
    snprintf(err->text + n, sizeof err->text - n, ": %s", inner.text);
    drop_cut_utf8(err->text);
    return st;
}
