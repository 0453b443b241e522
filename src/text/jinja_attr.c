/* a.b, a['b'], a[1:2]: jinja2's getattr and getitem over Python's attributes.
 *
 * `a.b` looks for an attribute first and an item second, `a['b']` the other way round; what neither finds is
 * undefined, never an error. Attributes that would change a list or dict, and every name with an underscore
 * in front, are there but unsafe: they give an undefined that says so. */
#include "text/jinja_int.h"

/* ---- attributes ---- */

static mica_status unsafe(jr *r, jv obj, slice name, jv *out) {
    char *hint = jr_take(r, name.n + 128);
    if (!hint) return jr_nomem(r);
    int n = name.n > 100 ? 100 : (int)name.n;
    snprintf(hint, 256 > name.n + 128 ? name.n + 128 : 256,
             "access to attribute '%.*s' of '%s' object is unsafe.", n, name.p, jv_type(obj));
    return jv_undef_hint(r, out, hint);
}

static bool one_of(slice name, const char *const *list) {
    for (; *list; list++)
        if (slice_is(name, *list)) return true;
    return false;
}

static bool mutates(jv obj, slice name) {
    static const char *const of_list[] = {"append", "clear",  "pop",    "reverse", "insert",
                                          "sort",   "extend", "remove", NULL};
    static const char *const of_dict[] = {"clear", "pop", "popitem", "setdefault", "update", NULL};
    if (obj.kind == JV_LIST) return one_of(name, of_list);
    return obj.kind == JV_DICT && one_of(name, of_dict);
}

/* Attributes Python has and this interpreter does not: better an error than a silent undefined. */
static bool known_elsewhere(jv obj, slice name) {
    static const char *const of_num[] = {
        "real",     "imag",       "numerator",        "denominator", "conjugate", "bit_length", "bit_count",
        "to_bytes", "from_bytes", "as_integer_ratio", "is_integer",  "hex",       "fromhex",    NULL};
    static const char *const of_macro[] = {"arguments", "catch_kwargs",    "catch_varargs",
                                           "caller",    "explicit_caller", NULL};
    static const char *const of_view[] = {"isdisjoint", "mapping", NULL};
    static const char *const of_iter[] = {"close",      "send",    "throw",        "gi_frame",
                                          "gi_running", "gi_code", "gi_yieldfrom", NULL};
    static const char *const of_markup[] = {"escape", "unescape", "striptags", NULL};
    static const char *const of_dict[] = {"fromkeys", NULL};
    static const char *const of_range[] = {"index", "count", NULL};
    switch (obj.kind) {
    case JV_BOOL:
    case JV_INT:
    case JV_FLOAT: return one_of(name, of_num);
    case JV_STR: return obj.s->markup && one_of(name, of_markup);
    case JV_MACRO: return one_of(name, of_macro);
    case JV_VIEW: return one_of(name, of_view);
    case JV_ITER: return one_of(name, of_iter);
    case JV_DICT: return one_of(name, of_dict);
    case JV_RANGE: return one_of(name, of_range);
    default: return false;
    }
}

static mica_status bound(jr *r, jv self, const jbuiltin *fn, jv *out) {
    jmethod *m = jr_take(r, sizeof *m);
    if (!m) return jr_nomem(r);
    *m = (jmethod){self, fn};
    *out = (jv){.kind = JV_METHOD, .method = m};
    return MICA_OK;
}

static mica_status range_attr(const jrange *g, slice name, jv *out, bool *found) {
    *found = true;
    if (slice_is(name, "start"))
        *out = jv_int(g->start);
    else if (slice_is(name, "stop"))
        *out = jv_int(g->stop);
    else if (slice_is(name, "step"))
        *out = jv_int(g->step);
    else
        *found = false;
    return MICA_OK;
}

static mica_status cycler_next(jr *r, jv self, jcall *c, jv *out) {
    (void)r;
    (void)c;
    jcycler *y = self.cycler;
    *out = y->item->v[y->pos];
    y->pos = (y->pos + 1) % y->item->n;
    return MICA_OK;
}

static mica_status cycler_reset(jr *r, jv self, jcall *c, jv *out) {
    (void)r;
    (void)c;
    self.cycler->pos = 0;
    *out = jv_none();
    return MICA_OK;
}

static mica_status cycler_attr(jr *r, jv obj, slice name, jv *out, bool *found) {
    static const jbuiltin next = {"next", cycler_next, ""}, reset = {"reset", cycler_reset, ""};
    *found = true;
    if (slice_is(name, "next")) return bound(r, obj, &next, out);
    if (slice_is(name, "reset")) return bound(r, obj, &reset, out);
    if (slice_is(name, "current"))
        *out = obj.cycler->item->v[obj.cycler->pos];
    else
        *found = false;
    return MICA_OK;
}

static const jbuiltin *method_of(jv obj, slice name) {
    switch (obj.kind) {
    case JV_STR: return jstr_method_find(name);
    case JV_DICT: return jdict_method_find(name);
    case JV_LIST: return jlist_method_find(name, false);
    case JV_TUPLE: return jlist_method_find(name, true);
    default: return NULL;
    }
}

/* Python's getattr(), with the sandbox's eye on it. */
static mica_status attribute(jr *r, jv obj, slice name, jv *out, bool *found) {
    *found = true;
    if (name.n > 2 && slice_starts(name, SLICE_LIT("__"))) return unsafe(r, obj, name, out);
    if (mutates(obj, name)) return unsafe(r, obj, name, out);
    const jbuiltin *fn = method_of(obj, name);
    if (fn && !fn->fn) return jr_unsupported(r, "the method '%s' of %s", fn->name, jv_type(obj));
    if (fn) return bound(r, obj, fn, out);
    if (known_elsewhere(obj, name))
        return jr_unsupported(r, "the attribute '%.*s' of %s", (int)name.n, name.p, jv_type(obj));
    switch (obj.kind) {
    case JV_UNDEF: return jv_undef_raise(r, obj);
    case JV_NS: *found = jdict_find_text(obj.dict, name, out); return MICA_OK;
    case JV_LOOP: return jloop_attr(r, obj.loop, name, out, found);
    case JV_RANGE: return range_attr(obj.range, name, out, found);
    case JV_CYCLER: return cycler_attr(r, obj, name, out, found);
    case JV_MACRO:
        *found = slice_is(name, "name");
        if (*found) *out = obj.macro->sig->name;
        return MICA_OK;
    default: *found = false; return MICA_OK;
    }
}

/* ---- items ---- */

/* A Python index into n things: false when out of range. */
static bool index_in(jv key, int64_t n, int64_t *i) {
    *i = jv_as_int(key);
    if (*i < 0) *i += n;
    return *i >= 0 && *i < n;
}

static mica_status char_at(jr *r, const jstr *s, jv key, jv *out, bool *found) {
    int64_t i;
    *found = index_in(key, (int64_t)jstr_n_cp(s), &i);
    if (!*found) return MICA_OK;
    size_t at = jstr_at_cp(s, (size_t)i), end;
    jstr_cp(s, at, &end);
    if (!s->ascii) TRY(jr_charge(r, s->n));
    return jstr_sub(r, out, s, at, end);
}

/* obj[key], where TypeError and LookupError are *found = false. */
static mica_status item(jr *r, jv obj, jv key, jv *out, bool *found) {
    int64_t i;
    *found = false;
    if (obj.kind == JV_UNDEF) return jv_undef_raise(r, obj);
    if (obj.kind == JV_DICT) {
        jv *v = NULL;
        if (jv_hashable(key)) TRY(jdict_find(r, obj.dict, key, &v));
        *found = v != NULL;
        if (v) *out = *v;
        return MICA_OK;
    }
    if (!jv_is_int(key)) return MICA_OK;
    if (obj.kind == JV_STR) return char_at(r, obj.s, key, out, found);
    if (obj.kind == JV_LIST || obj.kind == JV_TUPLE) {
        *found = index_in(key, (int64_t)obj.list->n, &i);
        if (*found) *out = obj.list->v[i];
    } else if (obj.kind == JV_RANGE) {
        *found = index_in(key, obj.range->n, &i);
        if (*found) *out = jv_int(obj.range->start + i * obj.range->step);
    }
    return MICA_OK;
}

mica_status jv_getattr(jr *r, jv obj, jv name, jv *out) {
    bool found;
    TRY(attribute(r, obj, jstr_slice(name.s), out, &found));
    if (!found) TRY(item(r, obj, name, out, &found));
    return found ? MICA_OK : jv_undef(r, out, obj, name);
}

mica_status jv_getitem(jr *r, jv obj, jv key, jv *out) {
    bool found;
    TRY(item(r, obj, key, out, &found));
    if (!found && key.kind == JV_STR) TRY(attribute(r, obj, jstr_slice(key.s), out, &found));
    return found ? MICA_OK : jv_undef(r, out, obj, key);
}

/* ---- slices ---- */

static mica_status bound_of(jr *r, jv v, int64_t fallback, int64_t *out) {
    *out = fallback;
    if (v.kind == JV_NONE || v.kind == JV_MISSING) return MICA_OK;
    if (!jv_is_int(v))
        return jr_fail(r, "slice indices must be integers or None or have an __index__ method");
    *out = jv_as_int(v);
    return MICA_OK;
}

static int64_t clamp(int64_t i, int64_t n, bool down) {
    int64_t lo = down ? -1 : 0, hi = down ? n - 1 : n;
    if (i < 0) i += n;
    return i < lo ? lo : i > hi ? hi : i;
}

/* slice.indices(): start, step, and how many. */
static mica_status slice_plan(jr *r, const jv b[3], int64_t n, int64_t plan[3]) {
    int64_t start, stop, step;
    TRY(bound_of(r, b[2], 1, &step));
    if (step == 0) return jr_fail(r, "slice step cannot be zero");
    if (step == INT64_MIN) step = -INT64_MAX;
    bool down = step < 0;
    TRY(bound_of(r, b[0], down ? INT64_MAX : 0, &start));
    TRY(bound_of(r, b[1], down ? INT64_MIN : INT64_MAX, &stop));
    start = clamp(start, n, down);
    stop = b[1].kind == JV_NONE || b[1].kind == JV_MISSING ? (down ? -1 : n) : clamp(stop, n, down);
    plan[0] = start;
    plan[1] = step;
    plan[2] = down ? (stop < start ? (start - stop - 1) / -step + 1 : 0)
                   : (start < stop ? (stop - start - 1) / step + 1 : 0);
    return MICA_OK;
}

static mica_status slice_list(jr *r, jv obj, const int64_t plan[3], jv *out) {
    jlist *l;
    TRY(jlist_new(r, &l, (size_t)plan[2]));
    l->n = (size_t)plan[2];
    for (int64_t i = 0; i < plan[2]; i++) l->v[i] = obj.list->v[plan[0] + i * plan[1]];
    *out = obj.kind == JV_LIST ? jv_list(l) : jv_tuple(l);
    return jr_charge(r, l->n);
}

static mica_status slice_str(jr *r, const jstr *s, const int64_t plan[3], jv *out) {
    if (plan[1] == 1) {
        size_t a = jstr_at_cp(s, (size_t)plan[0]), b = jstr_at_cp(s, (size_t)(plan[0] + plan[2]));
        if (!s->ascii) TRY(jr_charge(r, s->n));
        return jstr_sub(r, out, s, a, plan[2] ? b : a);
    }
    jtext t = {0};
    size_t at = jstr_at_cp(s, (size_t)plan[0]), next;
    TRY(jr_charge(r, s->n));
    for (int64_t i = 0; i < plan[2]; i++) {
        jstr_cp(s, at, &next);
        TRY(jtext_sub(r, &t, s, at, next));
        for (int64_t k = 0; i + 1 < plan[2] && k < plan[1]; k++) jstr_cp(s, at, &at);
        for (int64_t k = 0; i + 1 < plan[2] && k > plan[1]; k--) jstr_cp_before(s, at, &at);
    }
    TRY(jtext_done(r, &t, out));
    ((jstr *)out->s)->markup = s->markup;
    return MICA_OK;
}

static mica_status slice_range(jr *r, const jrange *g, const int64_t plan[3], jv *out) {
    jrange *s = jr_take(r, sizeof *s);
    if (!s) return jr_nomem(r);
    *s = (jrange){.start = g->start + plan[0] * g->step, .step = g->step * plan[1], .n = plan[2]};
    s->stop = s->start + s->n * s->step;
    *out = (jv){.kind = JV_RANGE, .range = s};
    return MICA_OK;
}

mica_status jv_getslice(jr *r, jv obj, const jv b[3], jv *out) {
    int64_t n, plan[3] = {0};
    switch (obj.kind) {
    case JV_UNDEF: return jv_undef_raise(r, obj);
    case JV_STR:
    case JV_LIST:
    case JV_TUPLE:
    case JV_RANGE: break;
    case JV_DICT: return jr_fail(r, "unhashable type: 'slice'");
    default: return jr_fail(r, "'%s' object is not subscriptable", jv_type(obj));
    }
    TRY(jv_length(r, obj, &n));
    TRY(slice_plan(r, b, n, plan));
    if (obj.kind == JV_STR) return slice_str(r, obj.s, plan, out);
    return obj.kind == JV_RANGE ? slice_range(r, obj.range, plan, out) : slice_list(r, obj, plan, out);
}

/* ---- attribute paths of filters ---- */

static mica_status path_part(jr *r, const jstr *path, size_t begin, size_t end, jv *out) {
    bool digits = end > begin;
    for (size_t i = begin; i < end; i++) digits = digits && path->p[i] >= '0' && path->p[i] <= '9';
    TRY(jstr_sub(r, out, path, begin, end));
    int64_t i;
    if (digits && jstr_parse_int(out->s, 10, &i) == MICA_OK) *out = jv_int(i);
    return MICA_OK;
}

mica_status jattr_path(jr *r, jv v, jv path, jv fallback, jv *out) {
    *out = v;
    if (path.kind == JV_NONE || path.kind == JV_MISSING) return MICA_OK;
    bool has_fallback = fallback.kind != JV_MISSING && fallback.kind != JV_NONE;
    size_t n = path.kind == JV_STR ? path.s->n : 0;
    for (size_t begin = 0, end; begin <= n; begin = end + 1) {
        jv part = path;
        for (end = begin; end < n && path.s->p[end] != '.'; end++) {
        }
        if (path.kind == JV_STR) TRY(path_part(r, path.s, begin, end, &part));
        TRY(jv_getitem(r, *out, part, out));
        if (has_fallback && out->kind == JV_UNDEF) *out = fallback;
    }
    return MICA_OK;
}
