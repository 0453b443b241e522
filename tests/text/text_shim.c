/* The C side of vocab_oracle.py: a shared object around libmica.a, whose own symbols are hidden, loaded with
 * ctypes. */
#include "base/log.h"
#include "base/mem.h"
#include "gguf/gguf.h"
#include "text/detok.h"
#include "text/tokenize.h"

#include <stdio.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT text_vocab *shim_open(const char *path, char *why, size_t n_why);
EXPORT void shim_close(text_vocab *v);
EXPORT int64_t shim_encode(const text_vocab *v, const char *text, size_t n, unsigned flags, int32_t **ids);
EXPORT int64_t shim_decode(const text_vocab *v, const int32_t *ids, size_t n, unsigned flags, char **text);
EXPORT int32_t shim_count(const text_vocab *v);
EXPORT int shim_ends(const text_vocab *v, int32_t id);
EXPORT int shim_is_marker(const text_vocab *v, int32_t id);
EXPORT const char *shim_pre(const text_vocab *v);
EXPORT void shim_free(void *p);

text_vocab *shim_open(const char *path, char *why, size_t n_why) {
    mica_error err = {0};
    gguf_file *g = NULL;
    text_vocab *v = NULL;
    log_set_level(LOG_ERROR);
    if (gguf_open(&g, path, &err) != MICA_OK || text_vocab_new(&v, g, &err) != MICA_OK)
        snprintf(why, n_why, "%s", err.text);
    gguf_close(g);
    return v;
}

void shim_close(text_vocab *v) {
    text_vocab_free(v);
}

/* The number of ids, or -1. *ids is freed with shim_free. */
int64_t shim_encode(const text_vocab *v, const char *text, size_t n, unsigned flags, int32_t **ids) {
    text_ids out = {0};
    mica_status st = text_encode(&out, v, &(text_input){.text = {text, n}, .flags = flags}, NULL);
    *ids = out.id;
    return st == MICA_OK ? (int64_t)out.n : -1;
}

int64_t shim_decode(const text_vocab *v, const int32_t *ids, size_t n, unsigned flags, char **text) {
    strbuf out = {0};
    text_decode(&out, v, ids, n, flags);
    *text = out.p;
    return out.failed ? -1 : (int64_t)out.n;
}

int32_t shim_count(const text_vocab *v) {
    return text_vocab_n(v);
}

int shim_ends(const text_vocab *v, int32_t id) {
    return text_vocab_ends(v, id);
}

int shim_is_marker(const text_vocab *v, int32_t id) {
    return text_vocab_is_marker(v, id);
}

const char *shim_pre(const text_vocab *v) {
    return text_vocab_pre(v);
}

void shim_free(void *p) {
    mem_free(p);
}
