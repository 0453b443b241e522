/* Strings that know which of their bytes came from the user, and text that grows.
 *
 * Most strings are of one origin and carry a single flag; a mixed one has a mark byte beside each byte, so
 * that slicing is pointer arithmetic on both. A concatenation writes into a growing text with room at its
 * end; appending to the newest piece of such a text continues in place, which keeps a loop of `s = s + x`
 * linear. Bytes once written never change, so strings may share them. */
#include "text/jinja_int.h"

static bool all_ascii(const char *p, size_t n) {
    unsigned char any = 0;
    for (size_t i = 0; i < n; i++) any |= (unsigned char)p[i];
    return any < 0x80;
}

mica_status jstr_new(jr *r, jv *out, slice text, bool user) {
    jstr *s = jr_take(r, sizeof *s);
    if (!s) return jr_nomem(r);
    *s = (jstr){.p = text.p, .n = text.n, .user = user, .ascii = all_ascii(text.p, text.n)};
    *out = jv_str(s);
    return MICA_OK;
}

mica_status jstr_copy(jr *r, jv *out, slice text, bool user) {
    char *p = jr_take(r, text.n + 1);
    if (!p) return jr_nomem(r);
    if (text.n) memcpy(p, text.p, text.n);
    return jstr_new(r, out, (slice){p, text.n}, user);
}

mica_status jstr_sub(jr *r, jv *out, const jstr *s, size_t begin, size_t end) {
    jstr *t = jr_take(r, sizeof *t);
    if (!t) return jr_nomem(r);
    *t = *s;
    t->p += begin;
    t->n = end - begin;
    if (t->mark) t->mark += begin;
    t->ascii = s->ascii || all_ascii(t->p, t->n);
    *out = jv_str(t);
    return jr_charge(r, s->ascii ? 0 : t->n);
}

size_t jstr_n_cp(const jstr *s) {
    if (s->ascii) return s->n;
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++) n += ((unsigned char)s->p[i] & 0xC0) != 0x80;
    return n;
}

size_t jstr_at_cp(const jstr *s, size_t i_cp) {
    if (s->ascii) return i_cp < s->n ? i_cp : s->n;
    size_t at = 0;
    while (at < s->n && i_cp) {
        at++;
        while (at < s->n && ((unsigned char)s->p[at] & 0xC0) == 0x80) at++;
        i_cp--;
    }
    return at;
}

unsigned jstr_cp(const jstr *s, size_t at, size_t *next) {
    int len = utf8_len(s->p + at, s->n - at);
    *next = at + (size_t)len;
    return utf8_get(s->p + at, len);
}

unsigned jstr_cp_before(const jstr *s, size_t at, size_t *begin) {
    size_t b = at - 1, end;
    while (b && ((unsigned char)s->p[b] & 0xC0) == 0x80) b--;
    *begin = b;
    return jstr_cp(s, b, &end);
}

bool jstr_find(const jstr *s, const jstr *sub, size_t from, size_t to, size_t *at) {
    if (from > to || sub->n > to - from) return false;
    const char *p = sub->n ? memmem(s->p + from, to - from, sub->p, sub->n) : s->p + from;
    if (p) *at = (size_t)(p - s->p);
    return p != NULL;
}

/* Quadratic at worst: callers charge for it. */
bool jstr_rfind(const jstr *s, const jstr *sub, size_t from, size_t to, size_t *at) {
    if (from > to || sub->n > to - from) return false;
    for (size_t i = to - sub->n + 1; i-- > from;) {
        if (sub->n && memcmp(s->p + i, sub->p, sub->n) != 0) continue;
        *at = i;
        return true;
    }
    return false;
}

/* ---- text that grows ---- */

static mica_status text_room(jr *r, jtext *t, size_t n) {
    if (n > JINJA_MAX_OUTPUT || t->n + n > JINJA_MAX_OUTPUT)
        return jr_fail(r, "more than %d MiB of text", JINJA_MAX_OUTPUT >> 20);
    if (t->cap - t->n >= n) return MICA_OK;
    size_t cap = t->cap * 2 > t->n + n ? t->cap * 2 : t->n + n + 64;
    char *p = jr_take(r, cap);
    uint8_t *mark = t->mark ? jr_take(r, cap) : NULL;
    if (!p || (t->mark && !mark)) return jr_nomem(r);
    if (t->n) memcpy(p, t->p, t->n);
    if (mark) memcpy(mark, t->mark, t->n);
    t->p = p;
    t->mark = mark;
    t->cap = cap;
    return jr_charge(r, t->n);
}

static mica_status text_mixed(jr *r, jtext *t) {
    if (t->mark) return MICA_OK;
    t->mark = jr_take(r, t->cap);
    if (!t->mark) return jr_nomem(r);
    memset(t->mark, t->user, t->n);
    return MICA_OK;
}

/* Room for n more bytes of one origin, or of several when `mixed`. */
static mica_status text_begin(jr *r, jtext *t, size_t n, bool user, bool mixed) {
    TRY(text_room(r, t, n));
    if (t->n == 0) {
        t->user = user;
        t->ascii = true;
    }
    return mixed || t->user != user ? text_mixed(r, t) : MICA_OK;
}

mica_status jtext_put(jr *r, jtext *t, const char *p, size_t n, bool user) {
    if (!n) return MICA_OK;
    TRY(text_begin(r, t, n, user, false));
    memcpy(t->p + t->n, p, n);
    if (t->mark) memset(t->mark + t->n, user, n);
    t->ascii = t->ascii && all_ascii(p, n);
    t->n += n;
    return jr_charge(r, n);
}

mica_status jtext_puts(jr *r, jtext *t, const char *s) {
    return jtext_put(r, t, s, strlen(s), false);
}

mica_status jtext_sub(jr *r, jtext *t, const jstr *s, size_t begin, size_t end) {
    if (!s->mark) return jtext_put(r, t, s->p + begin, end - begin, s->user);
    if (begin == end) return MICA_OK;
    TRY(text_begin(r, t, end - begin, s->mark[begin], true));
    memcpy(t->p + t->n, s->p + begin, end - begin);
    memcpy(t->mark + t->n, s->mark + begin, end - begin);
    t->ascii = t->ascii && (s->ascii || all_ascii(s->p + begin, end - begin));
    t->n += end - begin;
    return jr_charge(r, end - begin);
}

mica_status jtext_str(jr *r, jtext *t, const jstr *s) {
    return jtext_sub(r, t, s, 0, s->n);
}

mica_status jtext_cp(jr *r, jtext *t, unsigned cp, bool user) {
    char buf[4];
    return jtext_put(r, t, buf, (size_t)utf8_put(buf, cp), user);
}

mica_status jtext_fill(jr *r, jtext *t, const jstr *fill, int64_t n) {
    if (n <= 0 || !fill->n) return MICA_OK;
    if (n > JINJA_MAX_OUTPUT) n = JINJA_MAX_OUTPUT + 1; // one byte each is too much already
    TRY(text_room(r, t, fill->n * (size_t)n));
    for (int64_t i = 0; i < n; i++) TRY(jtext_str(r, t, fill));
    return MICA_OK;
}

mica_status jtext_done(jr *r, jtext *t, jv *out) {
    jstr *s = jr_take(r, sizeof *s);
    if (!s) return jr_nomem(r);
    *s = (jstr){.p = t->n ? t->p : "",
                .n = t->n,
                .mark = t->n ? t->mark : NULL,
                .user = t->user && t->n,
                .ascii = t->ascii || !t->n};
    *out = jv_str(s);
    return MICA_OK;
}

/* ---- joining ---- */

static mica_status concat_text(jr *r, jv *out, const jstr *a, const jstr *b) {
    jtext *t = a->text;
    size_t total = a->n + b->n, begin = 0;
    if (t && a->p + a->n == t->p + t->n && t->cap - t->n >= b->n) {
        begin = (size_t)(a->p - t->p);
    } else {
        t = jr_take(r, sizeof *t);
        if (!t) return jr_nomem(r);
        TRY(text_room(r, t, total + (total > 64 && total < JINJA_MAX_OUTPUT / 2 ? total : 64)));
        TRY(jtext_str(r, t, a));
    }
    TRY(jtext_str(r, t, b));
    jstr *s = jr_take(r, sizeof *s);
    if (!s) return jr_nomem(r);
    *s = (jstr){.p = t->p + begin,
                .n = total,
                .mark = t->mark ? t->mark + begin : NULL,
                .text = t,
                .user = t->user,
                .ascii = a->ascii && b->ascii};
    *out = jv_str(s);
    return MICA_OK;
}

mica_status jstr_concat(jr *r, jv *out, const jstr *a, const jstr *b) {
    jv v;
    if (a->markup != b->markup) { // a Markup escapes what is added to it
        TRY(jstr_escape(r, &v, jv_str(a->markup ? b : a)));
        if (a->markup)
            b = v.s;
        else
            a = v.s;
    }
    if (!a->n || !b->n) {
        *out = jv_str(a->n ? a : b);
        return MICA_OK;
    }
    TRY(concat_text(r, out, a, b));
    if (a->markup) ((jstr *)out->s)->markup = true;
    return MICA_OK;
}

mica_status jstr_repeat(jr *r, jv *out, const jstr *s, int64_t n) {
    jtext t = {0};
    TRY(jtext_fill(r, &t, s, n));
    TRY(jtext_done(r, &t, out));
    if (s->markup) ((jstr *)out->s)->markup = true;
    return MICA_OK;
}

mica_status jstr_soft(jr *r, jv *out, jv v) {
    if (v.kind != JV_STR) return jv_to_str(r, v, out);
    *out = v;
    return MICA_OK;
}

mica_status jstr_escape(jr *r, jv *out, jv v) {
    static const char special[] = "&<>\"'";
    static const char *const entity[] = {"&amp;", "&lt;", "&gt;", "&#34;", "&#39;"};
    jtext t = {0};
    jv text;
    TRY(jstr_soft(r, &text, v));
    const jstr *s = text.s;
    if (s->markup) {
        *out = text;
        return MICA_OK;
    }
    size_t done = 0;
    for (size_t i = 0; i < s->n; i++) {
        const char *c = s->p[i] ? strchr(special, s->p[i]) : NULL;
        if (!c) continue;
        const char *e = entity[c - special];
        TRY(jtext_sub(r, &t, s, done, i));
        TRY(jtext_put(r, &t, e, strlen(e), s->mark ? s->mark[i] : s->user));
        done = i + 1;
    }
    TRY(jtext_sub(r, &t, s, done, s->n));
    TRY(jtext_done(r, &t, out));
    ((jstr *)out->s)->markup = true;
    return MICA_OK;
}
