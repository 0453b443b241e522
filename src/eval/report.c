/* JSON in and out of tools. */
#include "eval/report.h"

#include "base/mem.h"
#include "base/str.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

static int append(const char *p, size_t n, void *user) {
    strbuf *b = user;
    strbuf_put(b, p, n);
    return b->failed ? -1 : 0;
}

mica_status report_text(char **out, json_t *v, mica_error *err) {
    *out = NULL;
    strbuf b = {0};
    bool ok = v && json_dump_callback(v, append, &b, JSON_REAL_PRECISION(9) | JSON_ENCODE_ANY) == 0;
    json_decref(v);
    if (!ok) {
        strbuf_fini(&b);
        return fail(err, MICA_E_NOMEM, "result: out of memory");
    }
    *out = strbuf_take(&b);
    return *out ? MICA_OK : fail(err, MICA_E_NOMEM, "result: out of memory");
}

json_t *report_real(double x) {
    return isfinite(x) ? json_real(x) : json_null();
}

mica_status report_read_gz(json_t **out, const char *path, mica_error *err) {
    *out = NULL;
    strbuf b = {.limit = 512u << 20};
    char chunk[65536];
    int n;
    gzFile f = gzopen(path, "rb");
    if (!f) return fail(err, MICA_E_IO, "%s: open: %s", path, strerror(errno));
    while ((n = gzread(f, chunk, sizeof chunk)) > 0) strbuf_put(&b, chunk, (size_t)n);
    gzclose(f);
    mica_status st = MICA_OK;
    json_error_t je;
    if (n < 0)
        st = fail(err, MICA_E_IO, "%s: read: damaged or not a file", path);
    else if (b.failed)
        st = fail(err, MICA_E_NOMEM, "%s: more than 512 MiB", path);
    else if (!(*out = json_loadb(strbuf_cstr(&b), b.n, JSON_REJECT_DUPLICATES, &je)))
        st = fail(err, MICA_E_FORMAT, "%s: line %d: %s", path, je.line, je.text);
    strbuf_fini(&b);
    return st;
}
