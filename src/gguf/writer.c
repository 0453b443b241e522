/* The writer: metadata and directory collect in two buffers, because the counts stand in front of them; data
 * streams through a third, of one megabyte. */
#include "gguf/writer.h"

#include "base/mem.h"
#include "base/num.h"
#include "gguf/gguf_int.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BUFFER_BYTES = 1 << 20 };

struct gguf_writer {
    char *path, *part; // owned
    char label[GGUF_LABEL_BYTES];
    int fd; // -1 once the file has its name
    uint32_t align;
    strbuf kv, dir;
    uint64_t n_kv, n_tensor;
    uint64_t *size; // owned; bytes of each tensor
    uint64_t cap_tensor;
    uint64_t end_bytes;   // of the data declared so far, padded but for the last tensor
    bool streaming;       // the header is written
    uint64_t it, it_done; // the tensor that is being written, and how much of it
    char *buf;            // owned; BUFFER_BYTES
    size_t n_buf;
};

static mica_status out_of_memory(const gguf_writer *w, mica_error *err) {
    return fail(err, MICA_E_NOMEM, "%s: write: out of memory", w->label);
}

mica_status gguf_writer_open(gguf_writer **out, const char *path, uint32_t align, mica_error *err) {
    mica_status st = MICA_OK;
    struct stat sb;
    char label[GGUF_LABEL_BYTES];
    strbuf part = {0};
    *out = NULL;
    gguf_path_label(label, path);
    if (align < GGUF_ALIGN_MIN || align > GGUF_ALIGN_MAX || (align & (align - 1)))
        return fail(err, MICA_E_ARG, "%s: alignment %" PRIu32 ": must be a power of two from 8 to 65536",
                    label, align);
    // The rename at the end would replace a device or a directory by a file.
    if (stat(path, &sb) == 0 && !S_ISREG(sb.st_mode))
        return fail(err, MICA_E_ARG, "%s: exists and is not a regular file", label);
    gguf_writer *w = mem_calloc(1, sizeof *w);
    if (!w) return fail(err, MICA_E_NOMEM, "%s: write: out of memory", label);
    memcpy(w->label, label, sizeof label);
    w->fd = -1;
    w->align = align;
    strbuf_printf(&part, "%s.%ld.part", path, (long)getpid());
    w->part = strbuf_take(&part);
    w->path = mem_strdup(path);
    w->buf = mem_alloc(BUFFER_BYTES);
    if (!w->part || !w->path || !w->buf) {
        st = out_of_memory(w, err);
        goto done;
    }
    w->fd = open(w->part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (w->fd < 0) {
        st = fail(err, MICA_E_IO, "%s: create: %s", label, strerror(errno));
        goto done;
    }
    if (align != GGUF_ALIGN_DEFAULT) gguf_writer_u32(w, "general.alignment", align);
    *out = w;
    w = NULL;
done:
    gguf_writer_close(w);
    return st;
}

void gguf_writer_close(gguf_writer *w) {
    if (!w) return;
    if (w->fd >= 0) {
        close(w->fd);
        unlink(w->part);
    }
    strbuf_fini(&w->kv);
    strbuf_fini(&w->dir);
    mem_free(w->size);
    mem_free(w->path);
    mem_free(w->part);
    mem_free(w->buf);
    mem_free(w);
}

/* ---- metadata ---- */

static void put_u32(strbuf *b, uint32_t x) {
    strbuf_put(b, &x, sizeof x);
}
static void put_u64(strbuf *b, uint64_t x) {
    strbuf_put(b, &x, sizeof x);
}
static void put_str(strbuf *b, slice s) {
    put_u64(b, s.n);
    strbuf_put(b, s.p, s.n);
}

static void put_key(gguf_writer *w, slice key, gguf_kind kind) {
    w->n_kv++;
    put_str(&w->kv, key);
    put_u32(&w->kv, (uint32_t)kind);
}

void gguf_writer_u32(gguf_writer *w, const char *key, uint32_t x) {
    put_key(w, slice_of(key), GGUF_KIND_U32);
    put_u32(&w->kv, x);
}

void gguf_writer_f32(gguf_writer *w, const char *key, float x) {
    put_key(w, slice_of(key), GGUF_KIND_F32);
    strbuf_put(&w->kv, &x, sizeof x);
}

void gguf_writer_bool(gguf_writer *w, const char *key, bool x) {
    put_key(w, slice_of(key), GGUF_KIND_BOOL);
    strbuf_putc(&w->kv, x ? 1 : 0);
}

void gguf_writer_str(gguf_writer *w, const char *key, slice s) {
    put_key(w, slice_of(key), GGUF_KIND_STR);
    put_str(&w->kv, s);
}

static void put_array(gguf_writer *w, slice key, gguf_kind elem, uint64_t n) {
    put_key(w, key, GGUF_KIND_ARRAY);
    put_u32(&w->kv, (uint32_t)elem);
    put_u64(&w->kv, n);
}

void gguf_writer_array(gguf_writer *w, const char *key, gguf_kind elem, const void *packed, uint64_t n) {
    put_array(w, slice_of(key), elem, n);
    strbuf_put(&w->kv, packed, (size_t)n * gguf_kind_bytes(elem));
}

void gguf_writer_strings(gguf_writer *w, const char *key, const slice *s, uint64_t n) {
    put_array(w, slice_of(key), GGUF_KIND_STR, n);
    for (uint64_t i = 0; i < n; i++) put_str(&w->kv, s[i]);
}

void gguf_writer_copy(gguf_writer *w, slice key, const gguf_value *v) {
    if (v->kind == GGUF_KIND_ARRAY)
        put_array(w, key, v->elem, v->n);
    else
        put_key(w, key, v->kind);
    strbuf_put(&w->kv, v->p, (size_t)(v->end - v->p));
}

/* ---- directory ---- */

static mica_status tensor_bytes(const gguf_writer *w, const gguf_tensor *t, uint64_t *out, mica_error *err) {
    const gguf_type_info *type = gguf_type_get((uint32_t)t->type);
    uint64_t n = 1;
    size_t len = strlen(t->name);
    bool fits = true;
    if (len == 0 || len > GGUF_NAME_MAX || !utf8_valid(t->name, len))
        return fail(err, MICA_E_ARG, "%s: tensor '%s': a name has 1 to %d bytes of UTF-8", w->label, t->name,
                    GGUF_NAME_MAX);
    if (!type || t->n_dim < 1 || t->n_dim > 4)
        return fail(err, MICA_E_ARG, "%s: tensor '%s': type %d with %d axes", w->label, t->name, (int)t->type,
                    t->n_dim);
    for (int d = 0; d < 4; d++) {
        if (t->shape[d] == 0 || (d < 4 - t->n_dim && t->shape[d] != 1))
            return fail(err, MICA_E_ARG, "%s: tensor '%s': axis %d of %d has %" PRIu64, w->label, t->name, d,
                        t->n_dim, t->shape[d]);
        fits = fits && num_mul_u64(&n, n, t->shape[d]) && n <= INT64_MAX;
    }
    if (t->shape[3] % type->block)
        return fail(err, MICA_E_ARG,
                    "%s: tensor '%s': rows of %" PRIu64 " weights are not whole blocks of %s", w->label,
                    t->name, t->shape[3], type->name);
    if (!fits || !num_mul_u64(out, n / type->block, type->bytes) || *out > INT64_MAX)
        return fail(err, MICA_E_ARG, "%s: tensor '%s': size overflows", w->label, t->name);
    return MICA_OK;
}

mica_status gguf_writer_tensor(gguf_writer *w, const gguf_tensor *t, mica_error *err) {
    uint64_t size = 0, off, end;
    if (w->streaming) return fail(err, MICA_E_ARG, "%s: tensor '%s': comes after data", w->label, t->name);
    TRY(tensor_bytes(w, t, &size, err));
    if (!num_align_u64(&off, w->end_bytes, w->align) || !num_add_u64(&end, off, size) || end > INT64_MAX)
        return fail(err, MICA_E_ARG, "%s: tensor '%s': size overflows", w->label, t->name);
    if (w->n_tensor == w->cap_tensor) {
        uint64_t cap = w->cap_tensor ? 2 * w->cap_tensor : 256;
        uint64_t *grown = mem_realloc(w->size, (size_t)cap * sizeof *grown);
        if (!grown) return out_of_memory(w, err);
        w->size = grown;
        w->cap_tensor = cap;
    }
    w->size[w->n_tensor++] = size;
    w->end_bytes = end;
    put_str(&w->dir, slice_of(t->name));
    put_u32(&w->dir, (uint32_t)t->n_dim);
    for (int d = 3; d >= 4 - t->n_dim; d--)
        put_u64(&w->dir, t->shape[d]); // the file counts from the contiguous axis
    put_u32(&w->dir, (uint32_t)t->type);
    put_u64(&w->dir, off);
    return MICA_OK;
}

/* ---- data ---- */

static uint64_t data_off(const gguf_writer *w) {
    uint64_t off = GGUF_HEADER_BYTES + w->kv.n + w->dir.n;
    return w->n_tensor ? (off + w->align - 1) & ~(uint64_t)(w->align - 1) : off;
}

uint64_t gguf_writer_total_bytes(const gguf_writer *w) {
    return data_off(w) + w->end_bytes;
}

static mica_status write_error(const gguf_writer *w, int error, mica_error *err) {
    return fail(err, write_status(error), "%s: write %" PRIu64 " bytes: %s", w->label,
                gguf_writer_total_bytes(w), strerror(error));
}

static mica_status write_through(gguf_writer *w, const char *p, uint64_t n, mica_error *err) {
    while (n) {
        ssize_t k = write(w->fd, p, n < (1u << 30) ? (size_t)n : 1u << 30);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return write_error(w, k < 0 ? errno : ENOSPC, err);
        p += k;
        n -= (uint64_t)k;
    }
    return MICA_OK;
}

static mica_status flush(gguf_writer *w, mica_error *err) {
    size_t n = w->n_buf;
    w->n_buf = 0;
    return write_through(w, w->buf, n, err);
}

static mica_status put(gguf_writer *w, const void *bytes, uint64_t n, mica_error *err) {
    if (n >= BUFFER_BYTES) {
        TRY(flush(w, err));
        return write_through(w, bytes, n, err);
    }
    if (n > BUFFER_BYTES - w->n_buf) TRY(flush(w, err));
    if (n) memcpy(w->buf + w->n_buf, bytes, (size_t)n);
    w->n_buf += (size_t)n;
    return MICA_OK;
}

static mica_status pad(gguf_writer *w, uint64_t n, mica_error *err) {
    static const char zeros[64];
    for (uint64_t k; n; n -= k) {
        k = n < sizeof zeros ? n : sizeof zeros;
        TRY(put(w, zeros, k, err));
    }
    return MICA_OK;
}

static mica_status start_streaming(gguf_writer *w, mica_error *err) {
    if (w->streaming) return MICA_OK;
    if (w->kv.failed || w->dir.failed) return out_of_memory(w, err);
    // Not every file system can: then a full disk shows up later, as a failed write.
    int full = fallocate(w->fd, 0, 0, (off_t)gguf_writer_total_bytes(w)) == 0 ? 0 : errno;
    if (write_status(full) == MICA_E_NETWORK) return write_error(w, full, err);
    uint32_t version = 3;
    TRY(put(w, "GGUF", 4, err));
    TRY(put(w, &version, 4, err));
    TRY(put(w, &w->n_tensor, 8, err));
    TRY(put(w, &w->n_kv, 8, err));
    TRY(put(w, w->kv.p, w->kv.n, err));
    TRY(put(w, w->dir.p, w->dir.n, err));
    w->streaming = true;
    return pad(w, data_off(w) - GGUF_HEADER_BYTES - w->kv.n - w->dir.n, err);
}

mica_status gguf_writer_data(gguf_writer *w, const void *bytes, uint64_t n, mica_error *err) {
    const char *p = bytes;
    TRY(start_streaming(w, err));
    while (n) {
        if (w->it == w->n_tensor)
            return fail(err, MICA_E_ARG, "%s: %" PRIu64 " bytes more than its %" PRIu64 " tensors have",
                        w->label, n, w->n_tensor);
        uint64_t size = w->size[w->it], left = size - w->it_done, k = n < left ? n : left;
        TRY(put(w, p, k, err));
        p += k;
        n -= k;
        w->it_done += k;
        if (w->it_done < size) continue;
        w->it_done = 0;
        if (++w->it < w->n_tensor) TRY(pad(w, (w->align - size % w->align) % w->align, err));
    }
    return MICA_OK;
}

mica_status gguf_writer_finish(gguf_writer *w, mica_error *err) {
    TRY(start_streaming(w, err));
    if (w->it < w->n_tensor)
        return fail(err, MICA_E_ARG, "%s: data ends in tensor %" PRIu64 " of %" PRIu64, w->label, w->it,
                    w->n_tensor);
    TRY(flush(w, err));
    int fd = w->fd;
    w->fd = -1;
    // Network file systems report a full disk as late as here. No fsync: a model lost in a power cut is made
    // again.
    if (close(fd) == 0 && rename(w->part, w->path) == 0) return MICA_OK;
    mica_status st = write_error(w, errno, err);
    unlink(w->part);
    return st;
}
