/* Values: widening access, and the helpers that turn "missing" and "wrong" into one line. */
#include "gguf/gguf_int.h"

#include "base/num.h"

#include <inttypes.h>
#include <math.h>

static const struct {
    const char *name;
    uint8_t bytes;
} g_kind[GGUF_KIND_N] = {
    [GGUF_KIND_U8] = {"u8", 1},       [GGUF_KIND_I8] = {"i8", 1},     [GGUF_KIND_U16] = {"u16", 2},
    [GGUF_KIND_I16] = {"i16", 2},     [GGUF_KIND_U32] = {"u32", 4},   [GGUF_KIND_I32] = {"i32", 4},
    [GGUF_KIND_F32] = {"f32", 4},     [GGUF_KIND_BOOL] = {"bool", 1}, [GGUF_KIND_STR] = {"str", 0},
    [GGUF_KIND_ARRAY] = {"array", 0}, [GGUF_KIND_U64] = {"u64", 8},   [GGUF_KIND_I64] = {"i64", 8},
    [GGUF_KIND_F64] = {"f64", 8},
};

const char *gguf_kind_name(gguf_kind kind) {
    return g_kind[kind].name;
}
size_t gguf_kind_bytes(gguf_kind kind) {
    return g_kind[kind].bytes;
}
gguf_kind gguf_value_kind(const gguf_value *v) {
    return v->kind;
}
gguf_kind gguf_value_elem_kind(const gguf_value *v) {
    return v->elem;
}
uint64_t gguf_value_count(const gguf_value *v) {
    return v ? v->n : 0;
}

const gguf_value *gguf_find(const gguf_file *g, const char *key) {
    return kv_set_find(&g->kv, slice_of(key));
}
size_t gguf_kv_count(const gguf_file *g) {
    return g->kv.n;
}
slice gguf_kv_key(const gguf_file *g, size_t i) {
    return g->kv.v[i].key;
}
const gguf_value *gguf_kv_value(const gguf_file *g, size_t i) {
    return &g->kv.v[i];
}

/* ---- elements ---- */

static const uint8_t *element(const gguf_value *v, uint64_t i) {
    return v && i < v->n ? v->p + i * g_kind[v->elem].bytes : NULL;
}

/* Any integer or bool as 64 bits and whether they hold a negative number. */
static bool integer(const gguf_value *v, uint64_t i, uint64_t *bits, bool *negative) {
    const uint8_t *p = element(v, i);
    if (!p) return false;
    int64_t s = 0;
    uint64_t u = 0;
    switch (v->elem) {
    case GGUF_KIND_U8:
    case GGUF_KIND_BOOL: u = *p; break;
    case GGUF_KIND_U16: u = load_u16(p); break;
    case GGUF_KIND_U32: u = load_u32(p); break;
    case GGUF_KIND_U64: u = load_u64(p); break;
    case GGUF_KIND_I8: s = (int8_t)*p; break;
    case GGUF_KIND_I16: s = (int16_t)load_u16(p); break;
    case GGUF_KIND_I32: s = (int32_t)load_u32(p); break;
    case GGUF_KIND_I64: s = (int64_t)load_u64(p); break;
    default: return false;
    }
    *negative = s < 0;
    *bits = u | (uint64_t)s; // one of them is 0
    return true;
}

bool gguf_value_at_u64(const gguf_value *v, uint64_t i, uint64_t *out) {
    uint64_t bits;
    bool negative;
    if (!integer(v, i, &bits, &negative) || negative) return false;
    *out = bits;
    return true;
}

bool gguf_value_at_i64(const gguf_value *v, uint64_t i, int64_t *out) {
    uint64_t bits;
    bool negative;
    if (!integer(v, i, &bits, &negative) || (!negative && bits > INT64_MAX)) return false;
    *out = (int64_t)bits;
    return true;
}

bool gguf_value_at_f64(const gguf_value *v, uint64_t i, double *out) {
    const uint8_t *p = element(v, i);
    uint64_t bits;
    bool negative;
    if (!p || v->elem == GGUF_KIND_BOOL) return false;
    if (v->elem == GGUF_KIND_F32)
        *out = (double)bits_f32(load_u32(p));
    else if (v->elem == GGUF_KIND_F64)
        memcpy(out, p, sizeof *out);
    else if (!integer(v, i, &bits, &negative))
        return false;
    else
        *out = negative ? (double)(int64_t)bits : (double)bits;
    return true;
}

bool gguf_value_at_bool(const gguf_value *v, uint64_t i, bool *out) {
    uint64_t bits;
    bool negative;
    if (!integer(v, i, &bits, &negative) || bits > 1) return false;
    *out = bits != 0;
    return true;
}

/* Fewer than GGUF_STEP hops from the nearest remembered start. The lengths were checked when the file was
 * opened; they are checked again because a file that is rewritten in place shows through the mapping. */
bool gguf_value_at_str(const gguf_value *v, uint64_t i, slice *out) {
    if (!v || v->elem != GGUF_KIND_STR || i >= v->n) return false;
    const uint8_t *p = v->step ? v->p + v->step[i / GGUF_STEP] : v->p;
    for (uint64_t hop = i % GGUF_STEP;; hop--) {
        uint64_t room = (uint64_t)(v->end - p);
        if (room < 8) return false;
        uint64_t n = load_u64(p);
        if (n > room - 8) return false;
        if (hop == 0) {
            *out = (slice){(const char *)p + 8, (size_t)n};
            return true;
        }
        p += 8 + n;
    }
}

/* ---- scalars ---- */

static bool is_scalar(const gguf_value *v) {
    return v && v->kind != GGUF_KIND_ARRAY;
}

bool gguf_value_u64(const gguf_value *v, uint64_t *out) {
    return is_scalar(v) && gguf_value_at_u64(v, 0, out);
}
bool gguf_value_i64(const gguf_value *v, int64_t *out) {
    return is_scalar(v) && gguf_value_at_i64(v, 0, out);
}
bool gguf_value_f64(const gguf_value *v, double *out) {
    return is_scalar(v) && gguf_value_at_f64(v, 0, out);
}
bool gguf_value_bool(const gguf_value *v, bool *out) {
    return is_scalar(v) && gguf_value_at_bool(v, 0, out);
}
bool gguf_value_str(const gguf_value *v, slice *out) {
    return is_scalar(v) && gguf_value_at_str(v, 0, out);
}

/* ---- keys that must or may be there ---- */

static mica_status missing(const gguf_file *g, const char *key, mica_error *err) {
    return fail(err, MICA_E_FORMAT, "%s: key '%s': is missing", g->label, key);
}

static mica_status wrong_kind(const gguf_file *g, const char *key, const gguf_value *v, const char *want,
                              mica_error *err) {
    if (v->kind == GGUF_KIND_ARRAY)
        return fail(err, MICA_E_FORMAT, "%s: key '%s': is an array of %" PRIu64 " %s, must be %s", g->label,
                    key, v->n, gguf_kind_name(v->elem), want);
    return fail(err, MICA_E_FORMAT, "%s: key '%s': is of kind %s, must be %s", g->label, key,
                gguf_kind_name(v->kind), want);
}

mica_status gguf_get_u64(const gguf_file *g, const char *key, uint64_t min, uint64_t max, uint64_t *inout,
                         mica_error *err) {
    const gguf_value *v = gguf_find(g, key);
    uint64_t n;
    int64_t below;
    if (!v) return MICA_OK;
    if (gguf_value_u64(v, &n)) {
        if (n < min || n > max)
            return fail(err, MICA_E_FORMAT, "%s: key '%s': %" PRIu64 " is outside %" PRIu64 "..%" PRIu64,
                        g->label, key, n, min, max);
        *inout = n;
        return MICA_OK;
    }
    if (gguf_value_i64(v, &below))
        return fail(err, MICA_E_FORMAT, "%s: key '%s': %" PRId64 " is outside %" PRIu64 "..%" PRIu64,
                    g->label, key, below, min, max);
    return wrong_kind(g, key, v, "an integer", err);
}

mica_status gguf_get_f64(const gguf_file *g, const char *key, double min, double max, double *inout,
                         mica_error *err) {
    const gguf_value *v = gguf_find(g, key);
    double x;
    if (!v) return MICA_OK;
    if (!gguf_value_f64(v, &x)) return wrong_kind(g, key, v, "a number", err);
    if (!isfinite(x) || x < min || x > max)
        return fail(err, MICA_E_FORMAT, "%s: key '%s': %g is outside %g..%g", g->label, key, x, min, max);
    *inout = x;
    return MICA_OK;
}

mica_status gguf_get_str(const gguf_file *g, const char *key, slice *inout, mica_error *err) {
    const gguf_value *v = gguf_find(g, key);
    if (!v || gguf_value_str(v, inout)) return MICA_OK;
    return wrong_kind(g, key, v, "a string", err);
}

mica_status gguf_get_bool(const gguf_file *g, const char *key, bool *inout, mica_error *err) {
    const gguf_value *v = gguf_find(g, key);
    if (!v || gguf_value_bool(v, inout)) return MICA_OK;
    return wrong_kind(g, key, v, "a bool", err);
}

mica_status gguf_need_u64(const gguf_file *g, const char *key, uint64_t min, uint64_t max, uint64_t *out,
                          mica_error *err) {
    *out = 0;
    return gguf_find(g, key) ? gguf_get_u64(g, key, min, max, out, err) : missing(g, key, err);
}

mica_status gguf_need_f64(const gguf_file *g, const char *key, double min, double max, double *out,
                          mica_error *err) {
    *out = 0;
    return gguf_find(g, key) ? gguf_get_f64(g, key, min, max, out, err) : missing(g, key, err);
}

mica_status gguf_need_str(const gguf_file *g, const char *key, slice *out, mica_error *err) {
    *out = SLICE_LIT("");
    return gguf_find(g, key) ? gguf_get_str(g, key, out, err) : missing(g, key, err);
}

static bool kind_is_of(gguf_kind kind, gguf_class of) {
    switch (kind) {
    case GGUF_KIND_STR: return of == GGUF_OF_STR;
    case GGUF_KIND_F32:
    case GGUF_KIND_F64: return of == GGUF_OF_FLOAT;
    case GGUF_KIND_BOOL: return of == GGUF_OF_BOOL;
    default: return of == GGUF_OF_INT;
    }
}

mica_status gguf_get_array(const gguf_file *g, const char *key, gguf_class of, uint64_t n,
                           const gguf_value **out, mica_error *err) {
    static const char *const want[] = {"an array of integers", "an array of floats", "an array of bools",
                                       "an array of strings"};
    const gguf_value *v = gguf_find(g, key);
    *out = NULL;
    if (!v) return MICA_OK;
    if (v->kind != GGUF_KIND_ARRAY || !kind_is_of(v->elem, of)) return wrong_kind(g, key, v, want[of], err);
    if (n != GGUF_ANY_COUNT && v->n != n)
        return fail(err, MICA_E_FORMAT, "%s: key '%s': has %" PRIu64 " elements, must have %" PRIu64,
                    g->label, key, v->n, n);
    *out = v;
    return MICA_OK;
}

mica_status gguf_need_array(const gguf_file *g, const char *key, gguf_class of, uint64_t n,
                            const gguf_value **out, mica_error *err) {
    TRY(gguf_get_array(g, key, of, n, out, err));
    return *out ? MICA_OK : missing(g, key, err);
}

mica_status gguf_need_model(const gguf_file *g, slice *arch, mica_error *err) {
    *arch = SLICE_LIT("");
    if (!gguf_find(g, "general.architecture"))
        return fail(err, MICA_E_FORMAT,
                    "%s: key 'general.architecture': is missing: no model is in this file", g->label);
    TRY(gguf_need_str(g, "general.architecture", arch, err));
    if (g->n_tensor) return MICA_OK;
    return fail(err, MICA_E_FORMAT, "%s: directory: holds no tensors: metadata alone cannot be run",
                g->label);
}
