/* One shard from bytes to directory; then what all shards must agree on.
 *
 *   "GGUF" u32 version u64 n_tensor u64 n_kv | n_kv x (str key, u32 kind, value) | n_tensor x (str name, u32
 * n_dim, u64 ne[n_dim], u32 type, u64 offset) | zeros to the alignment | data; offsets count from the start
 * of data
 *
 * A file may come from anywhere, so the reader below only ever moves forward through `take`, which knows the
 * size of the file; a count is compared with the bytes that follow before anything is allocated for it, and
 * sums and products go through base/num.h. The error text is made here, where file, item, number and byte are
 * known. */
#include "gguf/gguf_int.h"

#include "base/mem.h"
#include "base/num.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct reader {
    const uint8_t *base;
    uint64_t size, at;
    uint64_t mark; // where the field read last starts: what messages name
    char label[GGUF_LABEL_BYTES];
    // The item being read: "key" or "tensor", its number and its name once known (p NULL before). noun NULL:
    // the header.
    const char *noun;
    uint64_t item;
    slice name;
    mica_error *err;
} reader;

enum { KV_BYTES_MIN = 13, TENSOR_BYTES_MIN = 33 };

static void MICA_PRINTF(3, 0) say_at(reader *r, mica_status st, const char *fmt, va_list ap) {
    char what[300], item[GGUF_QUOTE_BYTES + 60] = "header", quoted[GGUF_QUOTE_BYTES];
    vsnprintf(what, sizeof what, fmt, ap);
    if (r->noun && r->name.p)
        snprintf(item, sizeof item, "%s %" PRIu64 " '%s'", r->noun, r->item, gguf_quote(quoted, r->name));
    else if (r->noun)
        snprintf(item, sizeof item, "%s %" PRIu64, r->noun, r->item);
    fail(r->err, st, "%s: %s: byte %" PRIu64 ": %s", r->label, item, r->mark, what);
}

static mica_status MICA_PRINTF(2, 3) bad(reader *r, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    say_at(r, MICA_E_FORMAT, fmt, ap);
    va_end(ap);
    return MICA_E_FORMAT;
}

static mica_status MICA_PRINTF(2, 3) unsupported(reader *r, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    say_at(r, MICA_E_UNSUPPORTED, fmt, ap);
    va_end(ap);
    return MICA_E_UNSUPPORTED;
}

static mica_status no_memory(reader *r, uint64_t n_bytes) {
    return fail(r->err, MICA_E_NOMEM, "%s: directory: allocate %" PRIu64 " bytes: out of memory", r->label,
                n_bytes);
}

static uint64_t left(const reader *r) {
    return r->size - r->at;
}

/* The only way forward: n bytes at *out, or the file ends too early. */
static mica_status take(reader *r, uint64_t n, const char *what, const uint8_t **out) {
    r->mark = r->at;
    *out = NULL;
    if (n > left(r))
        return bad(r, "%s needs %" PRIu64 " bytes, the file has %" PRIu64 " more", what, n, left(r));
    *out = r->base + r->at;
    r->at += n;
    return MICA_OK;
}

static mica_status take_u32(reader *r, const char *what, uint32_t *out) {
    const uint8_t *p = NULL;
    TRY(take(r, 4, what, &p));
    *out = load_u32(p);
    return MICA_OK;
}

static mica_status take_u64(reader *r, const char *what, uint64_t *out) {
    const uint8_t *p = NULL;
    TRY(take(r, 8, what, &p));
    *out = load_u64(p);
    return MICA_OK;
}

static mica_status take_str(reader *r, const char *what, slice *out) {
    uint64_t n;
    const uint8_t *p = NULL;
    TRY(take_u64(r, what, &n));
    TRY(take(r, n, what, &p));
    *out = (slice){(const char *)p, (size_t)n};
    return MICA_OK;
}

/* A key or a tensor name: it will be printed, compared and used as a C string. */
static mica_status take_name(reader *r, uint64_t n_max, slice *out) {
    uint64_t n;
    const uint8_t *p = NULL;
    r->name = (slice){0};
    TRY(take_u64(r, "the name's length", &n));
    if (n == 0) return bad(r, "the name is empty");
    if (n > left(r)) return bad(r, "a name of %" PRIu64 " bytes, the file has %" PRIu64 " more", n, left(r));
    if (n > n_max) return bad(r, "a name of %" PRIu64 " bytes, at most %" PRIu64 " are allowed", n, n_max);
    TRY(take(r, n, "the name", &p));
    slice s = {(const char *)p, (size_t)n};
    if (memchr(p, 0, (size_t)n)) return bad(r, "the name holds a NUL byte");
    if (!utf8_valid(s.p, s.n)) return bad(r, "the name is not valid UTF-8");
    r->name = *out = s;
    return MICA_OK;
}

/* ---- header ---- */

static mica_status check_version(reader *r, uint32_t version) {
    if (version == 2 || version == 3) return MICA_OK;
    uint32_t swapped = __builtin_bswap32(version);
    if (swapped >= 1 && swapped <= 3)
        return bad(r, "version word %" PRIu32 ": wrong byte order, this is a big-endian file", version);
    if (version == 1) return bad(r, "version 1 with 32-bit counts is not read: convert the model again");
    return bad(r, "version %" PRIu32 ": versions 2 and 3 are known", version);
}

static mica_status check_magic(reader *r, const uint8_t *p) {
    if (memcmp(p, "GGUF", 4) == 0) return MICA_OK;
    if (memcmp(p, "vers", 4) == 0 && left(r) >= 20 && memcmp(p, "version https://git-lfs", 23) == 0)
        return bad(r, "this is a Git LFS pointer, not the model: fetch the real file");
    return bad(r, "not a GGUF file: it starts with %02x %02x %02x %02x", p[0], p[1], p[2], p[3]);
}

static mica_status read_header(reader *r, uint32_t *version, uint64_t *n_tensor, uint64_t *n_kv) {
    const uint8_t *p = NULL;
    if (r->size == 0) return bad(r, "the file is empty");
    TRY(take(r, 4, "the magic", &p));
    TRY(check_magic(r, p));
    TRY(take_u32(r, "the version", version));
    TRY(check_version(r, *version));
    TRY(take_u64(r, "the tensor count", n_tensor));
    uint64_t mark = r->mark;
    TRY(take_u64(r, "the key count", n_kv));
    if (*n_kv > left(r) / KV_BYTES_MIN)
        return bad(r, "%" PRIu64 " keys cannot fit in the %" PRIu64 " bytes that follow", *n_kv, left(r));
    if (*n_kv > GGUF_KEYS_MAX)
        return unsupported(r, "%" PRIu64 " keys, at most %d are read", *n_kv, GGUF_KEYS_MAX);
    r->mark = mark;
    if (*n_tensor > left(r) / TENSOR_BYTES_MIN)
        return bad(r, "%" PRIu64 " tensors cannot fit in the %" PRIu64 " bytes that follow", *n_tensor,
                   left(r));
    if (*n_tensor > GGUF_TENSORS_MAX)
        return unsupported(r, "%" PRIu64 " tensors, at most %d are read", *n_tensor, GGUF_TENSORS_MAX);
    return MICA_OK;
}

/* ---- metadata ---- */

static mica_status check_bools(reader *r, const gguf_value *v) {
    for (uint64_t i = 0; i < v->n; i++)
        if (v->p[i] > 1) {
            r->mark += i;
            return bad(r, "bool %" PRIu64 " is %d, must be 0 or 1", i, v->p[i]);
        }
    return MICA_OK;
}

/* Walks over the strings once: checks every length and remembers where each 8th starts. */
static mica_status read_strings(reader *r, gguf_value *v, uint64_t *n_string) {
    if (v->n > left(r) / 8)
        return bad(r, "an array of %" PRIu64 " strings cannot fit in the %" PRIu64 " bytes that follow", v->n,
                   left(r));
    *n_string += v->n;
    if (*n_string > GGUF_STRINGS_MAX)
        return unsupported(r, "%" PRIu64 " strings in the file's arrays, at most %d are read", *n_string,
                           GGUF_STRINGS_MAX);
    uint64_t n_step = num_ceil_div(v->n, GGUF_STEP), start = r->at;
    v->step = mem_alloc((size_t)n_step * sizeof *v->step);
    if (!v->step) return no_memory(r, n_step * sizeof *v->step);
    for (uint64_t i = 0; i < v->n; i++) {
        slice s;
        if (i % GGUF_STEP == 0) v->step[i / GGUF_STEP] = r->at - start;
        TRY(take_str(r, "a string of the array", &s));
    }
    return MICA_OK;
}

static mica_status read_array(reader *r, gguf_value *v, uint64_t *n_string) {
    uint32_t elem;
    const uint8_t *p = NULL;
    TRY(take_u32(r, "the element kind", &elem));
    if (elem == GGUF_KIND_ARRAY) return bad(r, "arrays of arrays are not read");
    if (elem >= GGUF_KIND_N) return bad(r, "element kind %" PRIu32 " is unknown", elem);
    TRY(take_u64(r, "the element count", &v->n));
    v->elem = (gguf_kind)elem;
    v->p = r->base + r->at;
    if (elem == GGUF_KIND_STR) return read_strings(r, v, n_string);
    uint64_t size = gguf_kind_bytes(v->elem);
    if (v->n > left(r) / size)
        return bad(r, "an array of %" PRIu64 " %s cannot fit in the %" PRIu64 " bytes that follow", v->n,
                   gguf_kind_name(v->elem), left(r));
    return take(r, v->n * size, "the array", &p);
}

static mica_status read_value(reader *r, gguf_value *v, uint64_t *n_string) {
    uint32_t kind;
    slice s;
    const uint8_t *p = NULL;
    TRY(take_u32(r, "the value's kind", &kind));
    if (kind >= GGUF_KIND_N) return bad(r, "value kind %" PRIu32 " is unknown", kind);
    v->kind = v->elem = (gguf_kind)kind;
    v->n = 1;
    v->p = r->base + r->at;
    if (kind == GGUF_KIND_ARRAY)
        TRY(read_array(r, v, n_string));
    else if (kind == GGUF_KIND_STR)
        TRY(take_str(r, "the string", &s));
    else
        TRY(take(r, gguf_kind_bytes(v->kind), "the value", &p));
    v->end = r->base + r->at;
    return v->elem == GGUF_KIND_BOOL ? check_bools(r, v) : MICA_OK;
}

static slice key_of(const void *items, uint32_t i) {
    return ((const gguf_value *)items)[i].key;
}

void kv_set_fini(kv_set *kv) {
    for (uint32_t i = 0; i < kv->n; i++) mem_free(kv->v[i].step);
    mem_free(kv->v);
    name_index_fini(&kv->index);
    *kv = (kv_set){0};
}

const gguf_value *kv_set_find(const kv_set *kv, slice key) {
    uint32_t at = name_index_find(&kv->index, kv->v, key_of, key);
    return at == NAME_NONE ? NULL : &kv->v[at];
}

static mica_status read_kv_set(reader *r, kv_set *kv, uint64_t n) {
    uint64_t n_string = 0;
    kv->v = mem_calloc((size_t)n, sizeof *kv->v);
    if (!kv->v || !name_index_init(&kv->index, (uint32_t)n)) return no_memory(r, n * sizeof *kv->v);
    r->noun = "key";
    for (uint32_t i = 0; i < n; i++) {
        gguf_value *v = &kv->v[i];
        r->item = i;
        TRY(take_name(r, GGUF_KEY_BYTES_MAX, &v->key));
        uint32_t twin = name_index_put(&kv->index, kv->v, key_of, i);
        if (twin != NAME_NONE) return bad(r, "the key stands twice, first as key %" PRIu32, twin);
        kv->n = i + 1; // so that kv_set_fini frees what read_value may leave behind
        TRY(read_value(r, v, &n_string));
    }
    return MICA_OK;
}

/* An optional integer among the keys of this shard; *inout keeps its default when the key is absent. `r` is
 * left pointing at the value, so that the caller can complain about the number too. */
static mica_status kv_u64(reader *r, const kv_set *kv, const char *key, uint64_t *inout) {
    const gguf_value *v = kv_set_find(kv, slice_of(key));
    if (!v) return MICA_OK;
    r->noun = "key";
    r->name = v->key;
    r->item = (uint64_t)(v - kv->v);
    r->mark = (uint64_t)(v->p - r->base);
    return gguf_value_u64(v, inout) ? MICA_OK : bad(r, "must be an integer and not negative");
}

static mica_status read_alignment(reader r, const kv_set *kv, uint64_t *out) {
    *out = GGUF_ALIGN_DEFAULT;
    TRY(kv_u64(&r, kv, "general.alignment", out));
    if (*out < GGUF_ALIGN_MIN || *out > GGUF_ALIGN_MAX || (*out & (*out - 1)))
        return bad(&r, "alignment %" PRIu64 " must be a power of two from %d to %d", *out, GGUF_ALIGN_MIN,
                   GGUF_ALIGN_MAX);
    return MICA_OK;
}

/* ---- tensors ---- */

/* Rows, sizes: everything that the dimensions and the type say. */
static mica_status size_tensor(reader *r, gguf_tensor *t, const uint64_t *ne, const gguf_type_info *type) {
    uint64_t n = 1, bytes;
    for (int d = 0; d < 4; d++)
        if (!num_mul_u64(&n, n, ne[d]) || n > INT64_MAX)
            return bad(r, "dimensions %" PRIu64 " x %" PRIu64 " x %" PRIu64 " x %" PRIu64 " overflow", ne[0],
                       ne[1], ne[2], ne[3]);
    if (ne[0] % type->block)
        return bad(r, "rows of %" PRIu64 " weights are not whole blocks of %s (%d weights)", ne[0],
                   type->name, type->block);
    if (!num_mul_u64(&bytes, n / type->block, type->bytes) || bytes > INT64_MAX)
        return bad(r, "%" PRIu64 " weights of %s overflow in bytes", n, type->name);
    t->size_bytes = bytes;
    for (int d = 0; d < 4; d++)
        t->shape[d] = ne[3 - d]; // GGUF counts from the contiguous axis; we from the slowest
    return MICA_OK;
}

static mica_status read_tensor(reader *r, tensor_slot *slot) {
    gguf_tensor *t = &slot->t;
    uint64_t ne[4] = {1, 1, 1, 1};
    uint32_t n_dim, id;
    slice name;
    TRY(take_name(r, GGUF_NAME_MAX, &name));
    memcpy(slot->name, name.p, name.n);
    TRY(take_u32(r, "the number of dimensions", &n_dim));
    if (n_dim < 1 || n_dim > 4) return bad(r, "%" PRIu32 " dimensions, must be 1 to 4", n_dim);
    t->n_dim = (int)n_dim;
    for (uint32_t d = 0; d < n_dim; d++) {
        TRY(take_u64(r, "a dimension", &ne[d]));
        if (ne[d] == 0) return bad(r, "dimension %" PRIu32 " is 0", d);
    }
    TRY(take_u32(r, "the type", &id));
    const gguf_type_info *type = gguf_type_get(id);
    if (!type) return unsupported(r, "unsupported type %" PRIu32, id);
    t->type = (gguf_type)id;
    TRY(size_tensor(r, t, ne, type));
    slot->entry = r->at;
    return take_u64(r, "the offset",
                    &t->off_bytes); // still from the start of data; place_tensors makes it the file's
}

/* Second look, once the end of the directory says where data starts. */
static mica_status place_tensors(reader *r, tensor_slot *slot, uint32_t n, uint64_t data_off,
                                 uint64_t align) {
    for (uint32_t i = 0; i < n; i++) {
        gguf_tensor *t = &slot[i].t;
        uint64_t off, end;
        r->item = i;
        r->name = slice_of(slot[i].name);
        r->mark = slot[i].entry;
        if (t->off_bytes % align)
            return bad(r, "offset %" PRIu64 " is not a multiple of the alignment %" PRIu64, t->off_bytes,
                       align);
        if (!num_add_u64(&off, data_off, t->off_bytes) || !num_add_u64(&end, off, t->size_bytes) ||
            end > r->size)
            return bad(r,
                       "data of %" PRIu64 " bytes at offset %" PRIu64 " runs past the end of the file: "
                       "%" PRIu64 " bytes with data from %" PRIu64 " (is the download complete?)",
                       t->size_bytes, t->off_bytes, r->size, data_off);
        t->off_bytes = off;
    }
    return MICA_OK;
}

typedef struct span {
    uint64_t off, end;
    uint32_t i;
} span;

static int span_cmp(const void *a, const void *b) {
    uint64_t x = ((const span *)a)->off, y = ((const span *)b)->off;
    return (x > y) - (x < y);
}

static mica_status refuse_overlaps(reader *r, const tensor_slot *slot, uint32_t n) {
    span *s = mem_alloc(n * sizeof *s);
    if (!s) return no_memory(r, n * sizeof *s);
    for (uint32_t i = 0; i < n; i++)
        s[i] = (span){slot[i].t.off_bytes, slot[i].t.off_bytes + slot[i].t.size_bytes, i};
    qsort(s, n, sizeof *s, span_cmp);
    mica_status st = MICA_OK;
    for (uint32_t i = 1; i < n && st == MICA_OK; i++) {
        if (s[i].off >= s[i - 1].end) continue;
        char other[GGUF_QUOTE_BYTES];
        r->item = s[i].i;
        r->name = slice_of(slot[s[i].i].name);
        r->mark = slot[s[i].i].entry;
        st = bad(r, "data overlaps tensor '%s', which ends at %" PRIu64,
                 gguf_quote(other, slice_of(slot[s[i - 1].i].name)), s[i - 1].end);
    }
    mem_free(s);
    return st;
}

static mica_status read_tensors(reader *r, gguf_file *g, uint64_t n, uint64_t align) {
    shard_map *sh = &g->shard[g->n_shard - 1];
    r->noun = "tensor";
    r->name = (slice){0};
    if (g->n_tensor + n > GGUF_TENSORS_MAX)
        return unsupported(r, "more than %d tensors in all shards", GGUF_TENSORS_MAX);
    tensor_slot *grown = mem_realloc(g->tensor, (g->n_tensor + (size_t)n) * sizeof *grown);
    if (!grown) return no_memory(r, (g->n_tensor + n) * sizeof *grown);
    g->tensor = grown;
    tensor_slot *slot = grown + g->n_tensor;
    memset(slot, 0, (size_t)n * sizeof *slot);
    for (uint64_t i = 0; i < n; i++) {
        r->item = i;
        TRY(read_tensor(r, &slot[i]));
        slot[i].t.shard = (int)g->n_shard - 1;
    }
    uint64_t data_off;
    if (!num_align_u64(&data_off, r->at, align)) return bad(r, "the start of data overflows");
    TRY(place_tensors(r, slot, (uint32_t)n, data_off, align));
    TRY(refuse_overlaps(r, slot, (uint32_t)n));
    sh->info.n_tensor = n;
    sh->info.data_off_bytes = data_off < r->size ? data_off : r->size;
    g->n_tensor += (uint32_t)n;
    return MICA_OK;
}

/* ---- shards ---- */

static mica_status read_split(reader r, gguf_file *g, const kv_set *kv) {
    uint64_t no = 0, count = 0, total = 0;
    TRY(kv_u64(&r, kv, "split.tensors.count", &total));
    TRY(kv_u64(&r, kv, "split.count", &count));
    TRY(kv_u64(&r, kv, "split.no", &no));
    if (count > 1 && no >= count)
        return bad(&r, "shard number %" PRIu64 " (from 0) of %" PRIu64 " shards", no, count);
    g->split_no = no;
    g->split_count = count;
    if (no == 0) g->split_tensors = total;
    return MICA_OK;
}

mica_status gguf_shard_parse(gguf_file *g, mica_error *err) {
    mica_status st = MICA_OK;
    shard_map *sh = &g->shard[g->n_shard - 1];
    reader r = {.base = sh->base, .size = sh->info.size_bytes, .err = err};
    kv_set kv = {0};
    uint64_t n_tensor, n_kv, align;
    uint32_t version;
    gguf_path_label(r.label, sh->info.path);
    TRY_GOTO(read_header(&r, &version, &n_tensor, &n_kv), done);
    TRY_GOTO(read_kv_set(&r, &kv, n_kv), done);
    TRY_GOTO(read_alignment(r, &kv, &align), done);
    TRY_GOTO(read_split(r, g, &kv), done);
    TRY_GOTO(read_tensors(&r, g, n_tensor, align), done);
    if (g->n_shard == 1) {
        g->version = version;
        g->kv = kv;
        kv = (kv_set){0};
    }
done:
    kv_set_fini(&kv);
    return st;
}

mica_status gguf_shard_check(const gguf_file *g, uint64_t no, uint64_t n, mica_error *err) {
    char label[GGUF_LABEL_BYTES];
    uint64_t count =
        g->split_count > 1 ? g->split_count : 1; // tools that merge shards leave a count of 0 behind
    if (count == n && (n == 1 || g->split_no == no)) return MICA_OK;
    return fail(
        err, MICA_E_FORMAT, "%s: is shard %" PRIu64 " of %" PRIu64 ", expected %" PRIu64 " of %" PRIu64,
        gguf_path_label(label, g->shard[g->n_shard - 1].info.path), g->split_no + 1, count, no + 1, n);
}

static slice tensor_name_of(const void *items, uint32_t i) {
    return slice_of(((const tensor_slot *)items)[i].name);
}

mica_status gguf_finish(gguf_file *g, mica_error *err) {
    if (g->split_count > 1 && g->split_tensors != g->n_tensor)
        return fail(err, MICA_E_FORMAT,
                    "%s: split.tensors.count is %" PRIu64 ", the %" PRIu32 " shards hold %" PRIu32 " tensors",
                    g->label, g->split_tensors, g->n_shard, g->n_tensor);
    if (!name_index_init(&g->tensor_index, g->n_tensor))
        return fail(err, MICA_E_NOMEM, "%s: index of %" PRIu32 " tensors: out of memory", g->label,
                    g->n_tensor);
    for (uint32_t i = 0; i < g->n_tensor; i++) {
        tensor_slot *s = &g->tensor[i];
        s->t.name = s->name;
        s->t.index = i;
        s->t.data = g->shard[s->t.shard].base + s->t.off_bytes;
        uint32_t twin = name_index_put(&g->tensor_index, g->tensor, tensor_name_of, i);
        if (twin != NAME_NONE)
            return fail(err, MICA_E_FORMAT,
                        "%s: tensor %" PRIu32 " '%s': the name stands twice, first as tensor %" PRIu32,
                        g->label, i, s->name, twin);
    }
    return MICA_OK;
}

const gguf_tensor *gguf_tensor_find(const gguf_file *g, const char *name) {
    uint32_t at = name_index_find(&g->tensor_index, g->tensor, tensor_name_of, slice_of(name));
    return at == NAME_NONE ? NULL : &g->tensor[at].t;
}

mica_status gguf_parse_memory(gguf_file **out, const slice *shards, size_t n_shard, mica_error *err) {
    mica_status st = MICA_OK;
    *out = NULL;
    gguf_file *g = gguf_new("memory");
    if (!g) return fail(err, MICA_E_NOMEM, "memory: out of memory");
    for (size_t i = 0; i < n_shard; i++) {
        TRY_GOTO(gguf_shard_push(g, "memory", err), done);
        shard_map *sh = &g->shard[i];
        sh->base = (const uint8_t *)shards[i].p;
        sh->info.size_bytes = shards[i].n;
        TRY_GOTO(gguf_shard_parse(g, err), done);
        TRY_GOTO(gguf_shard_check(g, i, n_shard, err), done);
    }
    TRY_GOTO(gguf_finish(g, err), done);
    *out = g;
    g = NULL;
done:
    gguf_close(g);
    return st;
}
