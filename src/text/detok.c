/* Incremental decoding. */
#include "text/detok.h"
#include "text/vocab_int.h"

static const char replacement[] = "\xEF\xBF\xBD"; // U+FFFD

void text_stream_init(text_stream *s, const text_vocab *v, unsigned flags) {
    bool spaced = v->model == TEXT_MODEL_SPM && v->add_space_prefix;
    *s = (text_stream){.v = v, .flags = flags, .at_start = (flags & TEXT_FROM_START) && spaced};
}

/* How many bytes at p, which begins with no character, are the start of one: 1 for a byte that can start
 * none. */
static size_t bad_len(const char *p, size_t n) {
    size_t k = 1;
    while (k < n && utf8_len(p, k + 1) == 0) k++;
    return k;
}

/* One more byte of text; held is a proper start of a character before and after. */
static void put_byte(text_stream *s, char c, strbuf *out) {
    s->held[s->n_held++] = c;
    while (s->n_held > 0) {
        int n = utf8_len(s->held, s->n_held);
        if (n == 0) return;
        size_t used = n > 0 ? (size_t)n : bad_len(s->held, s->n_held);
        if (n > 0)
            strbuf_put(out, s->held, used);
        else
            strbuf_puts(out, replacement);
        s->n_held = (unsigned char)(s->n_held - used);
        memmove(s->held, s->held + used, s->n_held);
    }
}

static void flush(text_stream *s, strbuf *out) {
    if (s->n_held > 0) strbuf_puts(out, replacement);
    s->n_held = 0;
}

void text_stream_put(text_stream *s, int32_t id, strbuf *out) {
    slice b = text_vocab_bytes(s->v, id);
    if (text_vocab_is_control(s->v, id)) {
        flush(s, out);
        if (!(s->flags & TEXT_SHOW_CONTROL)) return;
    }
    if (b.n == 0) return;
    if (s->at_start && b.p[0] == ' ' && !text_vocab_is_control(s->v, id)) {
        b.p++;
        b.n--;
    }
    s->at_start = false;
    for (size_t i = 0; i < b.n; i++) {
        if (s->n_held == 0) { // the common case: whole characters at once
            size_t end = i;
            int n;
            while (end < b.n && (n = utf8_len(b.p + end, b.n - end)) > 0) end += (size_t)n;
            strbuf_put(out, b.p + i, end - i);
            i = end;
            if (i == b.n) break;
        }
        put_byte(s, b.p[i], out);
    }
}

void text_stream_end(text_stream *s, strbuf *out) {
    flush(s, out);
    text_stream_init(s, s->v, s->flags);
}

void text_decode(strbuf *out, const text_vocab *v, const int32_t *id, size_t n, unsigned flags) {
    text_stream s;
    text_stream_init(&s, v, flags);
    for (size_t i = 0; i < n; i++) text_stream_put(&s, id[i], out);
    text_stream_end(&s, out);
}
