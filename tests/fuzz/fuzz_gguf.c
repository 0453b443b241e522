/* A GGUF file of arbitrary bytes. An input that starts with 'G' is one file; else its first two bytes say how
 * many of the following are a first shard, and the rest is the second. What opens is read from end to end:
 * values by every accessor, tensors at their first and last byte, each name found again. */
#include "gguf/gguf_int.h"

#include "base/mem.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* Lies are found by the sanitizers; a broken promise of the interface has to be found here. */
static void promise(bool kept) {
    if (!kept) __builtin_trap();
}

static void read_value(const gguf_value *v) {
    uint64_t n = gguf_value_count(v), u;
    int64_t i;
    double f;
    bool x;
    slice s;
    promise(gguf_kind_name(gguf_value_kind(v)) && gguf_kind_name(gguf_value_elem_kind(v)));
    gguf_value_u64(v, &u), gguf_value_i64(v, &i), gguf_value_f64(v, &f), gguf_value_bool(v, &x);
    for (uint64_t k = 0; k < n; k++) {
        bool any = gguf_value_at_u64(v, k, &u);
        any = gguf_value_at_i64(v, k, &i) || any;
        any = gguf_value_at_f64(v, k, &f) || any;
        any = gguf_value_at_bool(v, k, &x) || any;
        bool str = gguf_value_at_str(v, k, &s);
        promise(any != str && str == (gguf_value_elem_kind(v) == GGUF_KIND_STR));
        if (str && s.n) promise(memchr(s.p, s.p[s.n - 1], s.n) != NULL);
    }
    promise(!gguf_value_at_str(v, n, &s) && !gguf_value_at_f64(v, n, &f) &&
            !gguf_value_at_i64(v, UINT64_MAX, &i));
}

static void read_tensor(const gguf_file *g, const gguf_tensor *t) {
    const volatile uint8_t *p = t->data;
    const gguf_type_info *type = gguf_type_get(t->type);
    promise(type && t->n_dim >= 1 && t->n_dim <= 4 && t->size_bytes > 0);
    promise(t->size_bytes == t->shape[0] * t->shape[1] * t->shape[2] * gguf_row_bytes(type, t->shape[3]));
    (void)(p[0] + p[t->size_bytes - 1]);
    promise(gguf_tensor_find(g, t->name) == t);
    promise(t->off_bytes + t->size_bytes <= gguf_shard_at(g, (size_t)t->shard)->size_bytes);
}

static void read_all(const gguf_file *g) {
    mica_error err;
    slice arch;
    uint64_t u = 0;
    double f = 0;
    const gguf_value *v;
    for (size_t i = 0; i < gguf_kv_count(g); i++) {
        slice key = gguf_kv_key(g, i);
        char name[80];
        read_value(gguf_kv_value(g, i));
        if (key.n >= sizeof name) continue;
        memcpy(name, key.p, key.n);
        name[key.n] = 0;
        promise(gguf_find(g, name) == gguf_kv_value(g, i));
        gguf_need_u64(g, name, 1, 100, &u, &err);
        gguf_need_f64(g, name, 0, 1, &f, &err);
        gguf_get_array(g, name, GGUF_OF_STR, 3, &v, &err);
    }
    for (size_t i = 0; i < gguf_tensor_count(g); i++) read_tensor(g, gguf_tensor_at(g, i));
    (void)(gguf_fingerprint(g) + gguf_total_bytes(g));
    gguf_need_model(g, &arch, &err);
    promise(!gguf_changed(g, &err));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    slice s[2];
    size_t n_shard = 1;
    char *copy = NULL;
    s[0] = (slice){(const char *)data, n};
    if (n >= 2 && data[0] != 'G') {
        size_t first = (size_t)(data[0] | data[1] << 8);
        if (first > n - 2) first = n - 2;
        copy = mem_alloc(first); // apart, so that reading past its end is seen
        if (!copy) return 0;
        memcpy(copy, data + 2, first);
        s[0] = (slice){copy, first};
        s[1] = (slice){(const char *)data + 2 + first, n - 2 - first};
        n_shard = 2;
    }
    gguf_file *g;
    mica_error err = {0};
    mica_status st = gguf_parse_memory(&g, s, n_shard, &err);
    promise((st == MICA_OK) == (g != NULL));
    if (g)
        read_all(g);
    else
        promise(err.status == st && err.text[0] && utf8_valid(err.text, strlen(err.text)));
    gguf_close(g);
    mem_free(copy);
    return 0;
}
