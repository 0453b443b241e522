/* Lines of an event stream. JSON on one line holds no newline, so it is one data line. */
#include "serve/sse.h"

static int append(const char *p, size_t n, void *user) {
    strbuf_put(user, p, n);
    return 0;
}

void json_text(strbuf *out, json_t *v) {
    if (!v || json_dump_callback(v, append, out, JSON_COMPACT | JSON_ENCODE_ANY) != 0) out->failed = true;
    json_decref(v);
}

void sse_data(strbuf *out, json_t *v) {
    strbuf_puts(out, "data: ");
    json_text(out, v);
    strbuf_puts(out, "\n\n");
}

void sse_event(strbuf *out, const char *name, json_t *v) {
    strbuf_printf(out, "event: %s\n", name);
    sse_data(out, v);
}

void sse_comment(strbuf *out, const char *text) {
    strbuf_printf(out, ": %s\n\n", text);
}
