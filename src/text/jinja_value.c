/* What a Jinja value is: memory, failures, names of types, truth, undefined, lists, dicts. */
#include "text/jinja_int.h"

#include "base/mem.h"

#include <math.h>
#include <xxhash.h>

/* ---- memory ---- */

typedef struct jchunk {
    struct jchunk *next;
    size_t size_bytes, used_bytes; // of the bytes behind this head
    max_align_t start[];
} jchunk;

static jchunk *chunk_new(jarena *a, size_t need) {
    size_t size = a->chunk ? a->chunk->size_bytes * 2 : 32 << 10;
    if (size > 4 << 20) size = 4 << 20;
    if (size < need) size = need;
    jchunk *c = mem_calloc(1, sizeof *c + size);
    if (!c) return NULL;
    c->size_bytes = size;
    c->next = a->chunk;
    a->chunk = c;
    return c;
}

void *jarena_take(jarena *a, size_t n_bytes) {
    if (n_bytes > a->limit_bytes - a->used_bytes) {
        a->over = true;
        return NULL;
    }
    size_t need = (n_bytes + 15) & ~(size_t)15;
    jchunk *c = a->chunk;
    if (!c || c->size_bytes - c->used_bytes < need) c = chunk_new(a, need);
    if (!c) return NULL;
    void *p = (char *)c->start + c->used_bytes;
    c->used_bytes += need;
    a->used_bytes += need < a->limit_bytes - a->used_bytes ? need : a->limit_bytes - a->used_bytes;
    return p;
}

void jarena_fini(jarena *a) {
    while (a->chunk) {
        jchunk *c = a->chunk;
        a->chunk = c->next;
        mem_free(c);
    }
    a->used_bytes = 0;
}

void *jr_take(jr *r, size_t n_bytes) {
    return jarena_take(&r->arena, n_bytes);
}

/* ---- failures ---- */

mica_status jr_nomem(jr *r) {
    if (r->arena.over) return jr_fail(r, "more than %zu MiB of memory", r->arena.limit_bytes >> 20);
    return fail(r->err, MICA_E_NOMEM, "chat template: out of memory after %zu bytes", r->arena.used_bytes);
}

static mica_status fail_line(jr *r, mica_status st, const char *fmt, va_list ap) {
    char text[512];
    vsnprintf(text, sizeof text, fmt, ap);
    return fail(r->err, st, "chat template: line %d: %s", r->line, text);
}

mica_status jr_fail(jr *r, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    mica_status st = fail_line(r, MICA_E_ARG, fmt, ap);
    va_end(ap);
    return st;
}

mica_status jr_unsupported(jr *r, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    mica_status st = fail_line(r, MICA_E_UNSUPPORTED, fmt, ap);
    va_end(ap);
    return st;
}

mica_status jr_charge(jr *r, size_t n) {
    r->steps += n / 64;
    if (r->steps > r->max_steps) return jr_fail(r, "more than %llu steps", (unsigned long long)r->max_steps);
    return MICA_OK;
}

mica_status jr_enter(jr *r) {
    enum { MAX_DEPTH = 4000 }; // levels of this interpreter's own recursion, of at most 512 bytes of stack
    if (++r->depth > MAX_DEPTH) return jr_fail(r, "maximum recursion depth exceeded");
    r->steps++;
    return jr_charge(r, 0);
}

/* ---- types and truth ---- */

const char *jv_type(jv v) {
    switch (v.kind) {
    case JV_UNDEF: return "Undefined";
    case JV_NONE: return "NoneType";
    case JV_BOOL: return "bool";
    case JV_INT: return "int";
    case JV_FLOAT: return "float";
    case JV_STR: return v.s->markup ? "Markup" : "str";
    case JV_LIST: return "list";
    case JV_TUPLE: return "tuple";
    case JV_DICT: return "dict";
    case JV_NS: return "Namespace";
    case JV_RANGE: return "range";
    case JV_VIEW:
        return v.aux == JVIEW_KEYS ? "dict_keys" : v.aux == JVIEW_VALUES ? "dict_values" : "dict_items";
    case JV_ITER: return "generator";
    case JV_MACRO: return "Macro";
    case JV_FUNC: return "function";
    case JV_METHOD: return "builtin_function_or_method";
    case JV_LOOP: return "LoopContext";
    case JV_CYCLER: return "Cycler";
    case JV_JOINER: return "Joiner";
    default: return "object";
    }
}

bool jv_truth(jv v) {
    switch (v.kind) {
    case JV_MISSING:
    case JV_UNDEF:
    case JV_NONE: return false;
    case JV_BOOL: return v.b;
    case JV_INT: return v.i != 0;
    case JV_FLOAT: return v.f != 0.0;
    case JV_STR: return v.s->n != 0;
    case JV_LIST:
    case JV_TUPLE: return v.list->n != 0;
    case JV_DICT:
    case JV_VIEW: return v.dict->n != 0;
    case JV_RANGE: return v.range->n != 0;
    default: return true;
    }
}

bool jv_same(jv a, jv b) {
    if (a.kind != b.kind) return false;
    switch (a.kind) {
    case JV_NONE: return true;
    case JV_BOOL: return a.b == b.b;
    case JV_INT: return a.i == b.i; // CPython shares small integers only; no template can tell in earnest
    case JV_FLOAT: return false;
    case JV_STR: return a.s == b.s || (a.s->p == b.s->p && a.s->n == b.s->n);
    default: return a.p == b.p;
    }
}

/* ---- undefined ---- */

mica_status jv_undef(jr *r, jv *out, jv obj, jv name) {
    jundef *u = jr_take(r, sizeof *u);
    if (!u) return jr_nomem(r);
    u->obj = obj;
    u->name = name;
    *out = (jv){.kind = JV_UNDEF, .undef = u};
    return MICA_OK;
}

mica_status jv_undef_hint(jr *r, jv *out, const char *hint) {
    TRY(jv_undef(r, out, (jv){0}, jv_none()));
    out->undef->hint = hint;
    return MICA_OK;
}

mica_status jv_undef_raise(jr *r, jv undef) {
    const jundef *u = undef.undef;
    jv name;
    if (u->hint) return jr_fail(r, "%s", u->hint);
    TRY(jv_to_repr(r, u->name, &name));
    int n = name.s->n > 100 ? 100 : (int)name.s->n;
    if (u->obj.kind == JV_MISSING) return jr_fail(r, "%.*s is undefined", n, name.s->p);
    if (u->obj.kind == JV_NONE) return jr_fail(r, "'None' has no attribute %.*s", n, name.s->p);
    bool by_name = u->name.kind == JV_STR;
    return jr_fail(r, by_name ? "'%s object' has no attribute %.*s" : "%s object has no element %.*s",
                   jv_type(u->obj), n, name.s->p);
}

/* ---- lists ---- */

mica_status jlist_new(jr *r, jlist **out, size_t cap) {
    jlist *l = *out = jr_take(r, sizeof *l);
    if (!l || cap > SIZE_MAX / sizeof(jv)) return jr_nomem(r);
    l->cap = cap;
    l->v = cap ? jr_take(r, cap * sizeof *l->v) : NULL;
    return cap && !l->v ? jr_nomem(r) : MICA_OK;
}

mica_status jlist_push(jr *r, jlist *l, jv v) {
    if (l->n == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 8;
        jv *p = jr_take(r, cap * sizeof *p);
        if (!p) return jr_nomem(r);
        if (l->n) memcpy(p, l->v, l->n * sizeof *p);
        l->v = p;
        l->cap = cap;
    }
    l->v[l->n++] = v;
    return MICA_OK;
}

mica_status jv_pair(jr *r, jv *out, jv a, jv b) {
    jlist *l;
    TRY(jlist_new(r, &l, 2));
    l->v[0] = a;
    l->v[1] = b;
    l->n = 2;
    *out = jv_tuple(l);
    return MICA_OK;
}

/* ---- dicts: entries in order, and an index once there are more than a few ---- */

enum { DICT_SCAN = 8 };

bool jv_hashable(jv v) {
    if (v.kind == JV_LIST || v.kind == JV_DICT) return false;
    for (size_t i = 0; v.kind == JV_TUPLE && i < v.list->n; i++)
        if (!jv_hashable(v.list->v[i])) return false;
    return true;
}

/* Equal values have equal hashes, whatever their types: 1, True and 1.0. */
static uint64_t hash_of(const jr *r, jv v) {
    uint64_t h;
    switch (v.kind) {
    case JV_STR: return XXH3_64bits_withSeed(v.s->p, v.s->n, r->seed);
    case JV_BOOL:
    case JV_INT: h = (uint64_t)jv_as_int(v); break;
    case JV_FLOAT:
        if (v.f == rint(v.f) && fabs(v.f) < 9e18)
            h = (uint64_t)(int64_t)v.f;
        else
            memcpy(&h, &v.f, sizeof h);
        break;
    case JV_NONE: h = 1; break;
    case JV_UNDEF: h = 2; break;
    case JV_TUPLE:
        h = v.list->n;
        for (size_t i = 0; i < v.list->n; i++) h = h * 0x9E3779B97F4A7C15u + hash_of(r, v.list->v[i]);
        break;
    default: h = (uint64_t)(uintptr_t)v.p; break;
    }
    return XXH3_64bits_withSeed(&h, sizeof h, r->seed);
}

mica_status jdict_new(jr *r, jdict **out, size_t cap) {
    jdict *d = *out = jr_take(r, sizeof *d);
    if (!d || cap > SIZE_MAX / sizeof(jentry)) return jr_nomem(r);
    d->cap = cap;
    d->e = cap ? jr_take(r, cap * sizeof *d->e) : NULL;
    return cap && !d->e ? jr_nomem(r) : MICA_OK;
}

static void index_put(const jr *r, jdict *d, size_t i_entry) {
    size_t at = hash_of(r, d->e[i_entry].k) & (d->n_index - 1);
    while (d->index[at]) at = (at + 1) & (d->n_index - 1);
    d->index[at] = (uint32_t)i_entry + 1;
}

static mica_status index_grow(jr *r, jdict *d) {
    if (d->n <= DICT_SCAN || d->n * 2 <= d->n_index) return MICA_OK;
    size_t n = 32;
    while (n < d->n * 4) n *= 2;
    d->index = jr_take(r, n * sizeof *d->index);
    if (!d->index) return jr_nomem(r);
    d->n_index = n;
    for (size_t i = 0; i < d->n; i++) index_put(r, d, i);
    return jr_charge(r, d->n);
}

mica_status jdict_find(jr *r, const jdict *d, jv key, jv **out) {
    *out = NULL;
    bool same;
    if (!jv_hashable(key)) return jr_fail(r, "unhashable type: '%s'", jv_type(key));
    if (!d->index) {
        for (size_t i = 0; i < d->n; i++) {
            TRY(jv_equal(r, d->e[i].k, key, &same));
            if (!same) continue;
            *out = &d->e[i].v;
            break;
        }
        return MICA_OK;
    }
    for (size_t at = hash_of(r, key) & (d->n_index - 1); d->index[at]; at = (at + 1) & (d->n_index - 1)) {
        jentry *e = &d->e[d->index[at] - 1];
        TRY(jv_equal(r, e->k, key, &same));
        if (!same) continue;
        *out = &e->v;
        break;
    }
    return MICA_OK;
}

mica_status jdict_set(jr *r, jdict *d, jv key, jv value) {
    jv *old;
    TRY(jdict_find(r, d, key, &old));
    if (old) {
        *old = value;
        return MICA_OK;
    }
    if (d->n == d->cap) {
        size_t cap = d->cap ? d->cap * 2 : 8;
        jentry *e = jr_take(r, cap * sizeof *e);
        if (!e) return jr_nomem(r);
        if (d->n) memcpy(e, d->e, d->n * sizeof *e);
        d->e = e;
        d->cap = cap;
    }
    d->e[d->n++] = (jentry){key, value};
    if (d->index && d->n * 2 <= d->n_index) index_put(r, d, d->n - 1);
    return index_grow(r, d);
}

bool jdict_find_text(const jdict *d, slice key, jv *out) {
    for (size_t i = 0; i < d->n; i++) {
        if (d->e[i].k.kind != JV_STR || !slice_eq(jstr_slice(d->e[i].k.s), key)) continue;
        *out = d->e[i].v;
        return true;
    }
    return false;
}
