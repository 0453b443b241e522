/* Held bytes are those that may be the beginning of a string. */
#include "base/stops.h"

void stops_init(stops *s, const char *const *strings, size_t n) {
    *s = (stops){.strings = strings, .n_string = n};
}

void stops_fini(stops *s) {
    strbuf_fini(&s->held);
}

/* The length of the longest end of text that is a proper prefix of `word`. */
static size_t prefix_at_end(const char *text, size_t n, slice word) {
    size_t k = n < word.n - 1 ? n : word.n - 1;
    while (k > 0 && memcmp(text + n - k, word.p, k) != 0) k--;
    return k;
}

/* What the last call gave was borrowed until now. */
static void drop_given(stops *s) {
    if (s->n_given > 0) memmove(s->held.p, s->held.p + s->n_given, s->held.n - s->n_given);
    strbuf_cut(&s->held, s->held.n - s->n_given);
    s->n_given = 0;
}

int stops_put(stops *s, slice text, slice *out) {
    *out = (slice){"", 0};
    if (s->held.n > 0) drop_given(s);
    strbuf_put(&s->held, text.p, text.n);
    if (s->held.n == 0) return -1;
    const char *first = NULL, *first_end = NULL;
    size_t keep = 0;
    int which = -1;
    for (size_t i = 0; i < s->n_string; i++) {
        const slice word = slice_of(s->strings[i]);
        const char *at = memmem(s->held.p, s->held.n, word.p, word.n);
        if (at && (!first || at + word.n < first_end || (at + word.n == first_end && at < first))) {
            first = at;
            first_end = at + word.n;
            which = (int)i;
        }
        const size_t k = prefix_at_end(s->held.p, s->held.n, word);
        if (k > keep) keep = k;
    }
    *out = (slice){s->held.p, first ? (size_t)(first - s->held.p) : s->held.n - keep};
    // A stop string of bytes could cut a character; strings are UTF-8, so that only whole ones are held.
    s->n_given = first ? s->held.n : out->n;
    return which;
}

slice stops_end(stops *s) {
    if (s->held.n > 0) drop_given(s);
    s->n_given = s->held.n;
    return (slice){strbuf_cstr(&s->held), s->held.n};
}
