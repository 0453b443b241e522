/* Written through stdio: some kilobytes a token, so a step waits for no disk. A write that fails ends the
 * record, not the run. */
#include "store/trace.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/num.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static const char MAGIC[8] = {'M', 'I', 'C', 'A', 'T', 'R', 'C', '1'};

struct trace {
    FILE *f;
    char *path; // owned
    trace_head head;
    bool failed;
};

typedef struct record {
    uint16_t layer, zero;
    uint32_t n_row;
} record;

/* ---- writing ---------------------------------------------------------------------------------- */

mica_status trace_create(trace **out, const char *path, const trace_head *head, const uint64_t *blob_bytes,
                         mica_error *err) {
    *out = NULL;
    trace *t = mem_calloc(1, sizeof *t);
    if (t) t->path = mem_strdup(path);
    if (!t || !t->path) {
        trace_close(t);
        return fail(err, MICA_E_NOMEM, "%s: trace: out of memory", path);
    }
    t->head = *head;
    memcpy(t->head.magic, MAGIC, sizeof MAGIC);
    t->f = fopen(path, "wbe");
    if (!t->f || fwrite(&t->head, sizeof t->head, 1, t->f) != 1 ||
        fwrite(blob_bytes, sizeof *blob_bytes, head->n_layer, t->f) != head->n_layer) {
        mica_status st = fail(err, write_status(errno), "%s: trace: write: %s", path, strerror(errno));
        t->failed = true;
        trace_close(t);
        return st;
    }
    *out = t;
    return MICA_OK;
}

static void give_up(trace *t) {
    log_warn("trace", "%s: write: %s: the record ends here", t->path, strerror(errno));
    t->failed = true;
}

void trace_add(trace *t, uint32_t layer, const int32_t *ids, uint32_t n_row) {
    uint16_t some[256];
    record r = {.layer = (uint16_t)layer, .n_row = n_row};
    size_t n = (size_t)n_row * t->head.n_used;
    if (t->failed) return;
    bool ok = fwrite(&r, sizeof r, 1, t->f) == 1;
    for (size_t i = 0; ok && i < n;) {
        size_t k = 0;
        for (; k < 256 && i < n; i++) some[k++] = (uint16_t)ids[i];
        ok = fwrite(some, sizeof *some, k, t->f) == k;
    }
    if (!ok) give_up(t);
}

void trace_close(trace *t) {
    if (!t) return;
    if (t->f && fclose(t->f) != 0 && !t->failed) give_up(t);
    mem_free(t->path);
    mem_free(t);
}

/* ---- reading ---------------------------------------------------------------------------------- */

typedef struct reading {
    const char *path;
    const uint8_t *data; // the whole file
    size_t n, at;
    const trace_head *h;
} reading;

static mica_status malformed(const reading *r, const char *what, mica_error *err) {
    return fail(err, MICA_E_FORMAT, "%s: offset %zu: %s", r->path, r->at, what);
}

/* The record at r->at, its ids at *ids; *end when it is cut short. */
static mica_status next_record(reading *r, record *rec, const uint8_t **ids, bool *end, mica_error *err) {
    *end = r->n - r->at < sizeof *rec;
    if (*end) return MICA_OK;
    memcpy(rec, r->data + r->at, sizeof *rec);
    if (rec->layer >= r->h->n_layer || rec->zero != 0 || rec->n_row == 0)
        return malformed(r, "no record of a layer", err);
    uint64_t n = (uint64_t)rec->n_row * r->h->n_used * sizeof(uint16_t);
    *end = n > r->n - r->at - sizeof *rec;
    if (*end) return MICA_OK;
    *ids = r->data + r->at + sizeof *rec;
    for (uint64_t i = 0; i < n; i += 2)
        if (load_u16(*ids + i) >= r->h->n_expert) return malformed(r, "no such expert", err);
    r->at += sizeof *rec + n;
    return MICA_OK;
}

/* Records of a step, to be turned row by row. */
typedef struct step {
    record rec[1024];
    const uint8_t *ids[1024];
    uint32_t n, n_row; // n_row: of the longest
} step;

static void put_step(trace_visits *v, const step *s) {
    uint32_t n_used = v->head.n_used;
    for (uint32_t ir = 0; ir < s->n_row; ir++) {
        for (uint32_t k = 0; k < s->n; k++) {
            if (ir >= s->rec[k].n_row) continue;
            v->layers[v->n] = s->rec[k].layer;
            memcpy(v->ids + v->n * n_used, s->ids[k] + (size_t)ir * n_used * 2, n_used * 2);
            v->n++;
        }
    }
}

static mica_status take_steps(trace_visits *v, reading *r, mica_error *err) {
    mica_status st = MICA_OK;
    record rec;
    bool end;
    step *s = mem_calloc(1, sizeof *s);
    if (!s) return fail(err, MICA_E_NOMEM, "%s: out of memory", r->path);
    for (;;) {
        const uint8_t *ids = NULL;
        TRY_GOTO(next_record(r, &rec, &ids, &end, err), done);
        if (end) break; // the step at hand may be incomplete
        if (s->n > 0 && rec.layer <= s->rec[s->n - 1].layer) {
            put_step(v, s);
            s->n = s->n_row = 0;
        }
        s->rec[s->n] = rec;
        s->ids[s->n++] = ids;
        if (rec.n_row > s->n_row) s->n_row = rec.n_row;
        if (rec.layer < v->first) v->first = rec.layer;
    }
    if (r->at == r->n) put_step(v, s);
done:
    mem_free(s);
    return st;
}

static mica_status parse(trace_visits *v, reading *r, mica_error *err) {
    trace_head *h = &v->head;
    if (r->n < sizeof *h || memcmp(r->data, MAGIC, sizeof MAGIC) != 0)
        return malformed(r, "no record of routing", err);
    memcpy(h, r->data, sizeof *h);
    if (h->n_layer == 0 || h->n_layer > 1024 || h->n_expert == 0 || h->n_expert > 1u << 16 ||
        h->n_used == 0 || h->n_used > h->n_expert || r->n - sizeof *h < h->n_layer * sizeof(uint64_t))
        return malformed(r, "a record of routing with a damaged head", err);
    r->at = sizeof *h;
    r->h = h;
    size_t n = r->n / (h->n_used * sizeof(uint16_t)); // no more visits than that
    v->first = UINT32_MAX;
    v->blob_bytes = mem_calloc(h->n_layer, sizeof *v->blob_bytes);
    v->layers = mem_alloc(n * sizeof *v->layers);
    v->ids = mem_alloc(r->n);
    if (!v->blob_bytes || !v->layers || !v->ids) return fail(err, MICA_E_NOMEM, "%s: out of memory", r->path);
    memcpy(v->blob_bytes, r->data + r->at, h->n_layer * sizeof *v->blob_bytes);
    r->at += h->n_layer * sizeof *v->blob_bytes;
    return take_steps(v, r, err);
}

mica_status trace_read(trace_visits *out, const char *path, mica_error *err) {
    mica_status st = MICA_OK;
    struct stat sb;
    *out = (trace_visits){0};
    uint8_t *data = NULL;
    FILE *f = fopen(path, "rbe");
    if (!f || fstat(fileno(f), &sb) != 0) {
        st = fail(err, MICA_E_IO, "%s: open: %s", path, strerror(errno));
        goto done;
    }
    reading r = {.path = path, .n = (size_t)sb.st_size};
    data = mem_alloc(r.n);
    if (!data) {
        st = fail(err, MICA_E_NOMEM, "%s: %zu bytes: out of memory", path, r.n);
        goto done;
    }
    if (fread(data, 1, r.n, f) != r.n) {
        st = fail(err, MICA_E_IO, "%s: read: %s", path, ferror(f) ? strerror(errno) : "shorter than it was");
        goto done;
    }
    r.data = data;
    st = parse(out, &r, err);
done:
    if (f) fclose(f);
    mem_free(data);
    if (st != MICA_OK) trace_free(out);
    return st;
}

void trace_free(trace_visits *t) {
    mem_free(t->blob_bytes);
    mem_free(t->layers);
    mem_free(t->ids);
    *t = (trace_visits){0};
}
