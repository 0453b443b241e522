/* Calls: arguments to parameters, and the builtins that are not text: globals, methods of dicts and lists. */
#include "text/jinja_int.h"

#include <time.h>

/* ---- binding ---- */

bool jcall_has(const jcall *c, int slot) {
    return c->slot[slot].kind != JV_MISSING && c->slot[slot].kind != JV_NONE;
}

mica_status jcall_int(jr *r, jcall *c, int slot, int64_t fallback, int64_t *out) {
    jv v = c->slot[slot];
    *out = fallback;
    if (v.kind == JV_MISSING) return MICA_OK;
    if (v.kind == JV_UNDEF) return jv_undef_raise(r, v);
    if (!jv_is_int(v)) return jr_fail(r, "'%s' object cannot be interpreted as an integer", jv_type(v));
    *out = jv_as_int(v);
    return MICA_OK;
}

/* The next name of a spec; false at its end. */
static bool spec_next(const char **spec, slice *name, bool *optional) {
    const char *p = *spec;
    while (*p == ' ') p++;
    name->p = p;
    while (*p && *p != ' ') p++;
    name->n = (size_t)(p - name->p);
    *spec = p;
    *optional = name->n && name->p[name->n - 1] == '?';
    name->n -= *optional;
    return name->n > 0;
}

mica_status jcall_bind(jr *r, const jbuiltin *fn, jcall *c) {
    const char *spec = fn->spec;
    bool keywords = spec[0] != '/', optional;
    size_t n = 0, used_kw = 0;
    slice name;
    if (!keywords) spec++;
    for (; spec_next(&spec, &name, &optional); n++) {
        c->slot[n] = n < c->n_arg ? c->arg[n] : (jv){0};
        for (size_t i = 0; keywords && i < c->n_kw; i++) {
            if (!slice_eq(jstr_slice(c->kw[i].name.s), name)) continue;
            if (n < c->n_arg)
                return jr_fail(r, "%s() got multiple values for argument '%.*s'", fn->name, (int)name.n,
                               name.p);
            c->slot[n] = c->kw[i].value;
            used_kw++;
        }
        if (c->slot[n].kind == JV_MISSING && !optional)
            return jr_fail(r, "%s() missing a required argument: '%.*s'", fn->name, (int)name.n, name.p);
    }
    if (c->n_arg > n)
        return jr_fail(r, "%s() takes at most %zu arguments (%zu given)", fn->name, n, c->n_arg);
    if (used_kw == c->n_kw) return MICA_OK;
    if (!keywords) return jr_fail(r, "%s() takes no keyword arguments", fn->name);
    return jr_fail(r, "%s() got an unexpected keyword argument", fn->name);
}

/* A method of a Markup gives Markup. */
static mica_status remark(jr *r, jv *v) {
    if (v->kind == JV_STR && !v->s->markup) {
        jstr *s = jr_take(r, sizeof *s);
        if (!s) return jr_nomem(r);
        *s = *v->s;
        s->markup = true;
        *v = jv_str(s);
    }
    for (size_t i = 0; (v->kind == JV_LIST || v->kind == JV_TUPLE) && i < v->list->n; i++)
        TRY(remark(r, &v->list->v[i]));
    return MICA_OK;
}

mica_status jcall_builtin(jr *r, const jbuiltin *fn, jv self, jcall *c, jv *out) {
    if (!fn->fn) return jr_unsupported(r, "'%s'", fn->name);
    if (fn->spec) TRY(jcall_bind(r, fn, c));
    return fn->fn(r, self, c, out);
}

mica_status jcall_value(jr *r, jv fn, jcall *c, jv *out) {
    switch (fn.kind) {
    case JV_FUNC: return jcall_builtin(r, fn.fn, (jv){0}, c, out);
    case JV_METHOD:
        TRY(jcall_builtin(r, fn.method->fn, fn.method->self, c, out));
        return fn.method->self.kind == JV_STR && fn.method->self.s->markup ? remark(r, out) : MICA_OK;
    case JV_MACRO: return jexec_macro(r, fn.macro, c, out);
    case JV_UNDEF: return jv_undef_raise(r, fn);
    case JV_LOOP:
        if (c->n_arg != 1 || c->n_kw) return jr_fail(r, "loop() takes one argument");
        return jexec_loop_again(r, fn.loop, c->arg[0], out);
    case JV_JOINER:
        if (c->n_arg || c->n_kw) return jr_fail(r, "a joiner takes no arguments");
        if (fn.joiner->used)
            *out = fn.joiner->sep;
        else
            TRY(jstr_new(r, out, SLICE_LIT(""), false));
        fn.joiner->used = true;
        return MICA_OK;
    default: return jr_fail(r, "'%s' object is not callable", jv_type(fn));
    }
}

const jbuiltin *jbuiltin_find(const jbuiltin *table, size_t n, slice name) {
    for (size_t i = 0; i < n; i++)
        if (table[i].name[0] == name.p[0] && slice_is(name, table[i].name)) return &table[i];
    return NULL;
}

/* ---- globals ---- */

static mica_status global_range(jr *r, jv self, jcall *c, jv *out) {
    (void)self;
    int64_t a, b, step;
    TRY(jcall_int(r, c, 0, 0, &a));
    TRY(jcall_int(r, c, 1, 0, &b));
    TRY(jcall_int(r, c, 2, 1, &step));
    if (c->slot[1].kind == JV_MISSING) {
        b = a;
        a = 0;
    }
    if (step == 0) return jr_fail(r, "range() arg 3 must not be zero");
    bool any = step > 0 ? a < b : a > b;
    uint64_t span = step > 0 ? (uint64_t)b - (uint64_t)a : (uint64_t)a - (uint64_t)b;
    uint64_t unit = step > 0 ? (uint64_t)step : 0 - (uint64_t)step, n = any ? (span - 1) / unit + 1 : 0;
    if (n > JINJA_MAX_RANGE)
        return jr_fail(r, "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).",
                       JINJA_MAX_RANGE);
    jrange *g = jr_take(r, sizeof *g);
    if (!g) return jr_nomem(r);
    *g = (jrange){a, b, step, (int64_t)n};
    *out = (jv){.kind = JV_RANGE, .range = g};
    return MICA_OK;
}

static mica_status dict_add_pairs(jr *r, jdict *d, jv from) {
    jlist *l, *pair;
    TRY(jlist_of(r, from, &l));
    for (size_t i = 0; i < l->n; i++) {
        TRY(jlist_of(r, l->v[i], &pair));
        if (pair->n != 2)
            return jr_fail(r, "dictionary update sequence element #%zu has length %zu; 2 is required", i,
                           pair->n);
        TRY(jdict_set(r, d, pair->v[0], pair->v[1]));
    }
    return MICA_OK;
}

static mica_status make_dict(jr *r, jcall *c, jdict **out) {
    if (c->n_arg > 1) return jr_fail(r, "dict expected at most 1 argument, got %zu", c->n_arg);
    TRY(jdict_new(r, out, c->n_kw));
    if (c->n_arg && c->arg[0].kind == JV_DICT) {
        const jdict *from = c->arg[0].dict;
        for (size_t i = 0; i < from->n; i++) TRY(jdict_set(r, *out, from->e[i].k, from->e[i].v));
    } else if (c->n_arg && c->arg[0].kind == JV_UNDEF) {
        return jv_undef_raise(r, c->arg[0]);
    } else if (c->n_arg) {
        TRY(dict_add_pairs(r, *out, c->arg[0]));
    }
    for (size_t i = 0; i < c->n_kw; i++) TRY(jdict_set(r, *out, c->kw[i].name, c->kw[i].value));
    return MICA_OK;
}

static mica_status global_dict(jr *r, jv self, jcall *c, jv *out) {
    (void)self;
    out->kind = JV_DICT;
    return make_dict(r, c, &out->dict);
}

static mica_status global_namespace(jr *r, jv self, jcall *c, jv *out) {
    jdict *d;
    (void)self;
    TRY(make_dict(r, c, &d));
    for (size_t i = 0; i < d->n; i++)
        if (d->e[i].k.kind == JV_STR && slice_starts(jstr_slice(d->e[i].k.s), SLICE_LIT("_")))
            return jr_fail(r, "Chat templates cannot store underscore-prefixed attributes on a namespace");
    *out = (jv){.kind = JV_NS, .dict = d};
    return MICA_OK;
}

static mica_status global_raise(jr *r, jv self, jcall *c, jv *out) {
    (void)self;
    (void)out;
    jv text;
    TRY(jv_to_str(r, c->slot[0], &text));
    return jr_fail(r, "%.*s", (int)(text.s->n > 500 ? 500 : text.s->n), text.s->p);
}

static mica_status global_strftime_now(jr *r, jv self, jcall *c, jv *out) {
    (void)self;
    char fmt[256], buf[4096];
    struct tm tm;
    jv f = c->slot[0];
    if (f.kind != JV_STR) return jr_fail(r, "strftime() argument 1 must be str, not %s", jv_type(f));
    if (f.s->n >= sizeof fmt || (f.s->n && memchr(f.s->p, 0, f.s->n)))
        return jr_fail(r, "strftime_now: the format is too long");
    if (f.s->n) memcpy(fmt, f.s->p, f.s->n);
    fmt[f.s->n] = 0;
    time_t now = r->opt && r->opt->now_s ? (time_t)r->opt->now_s : time(NULL);
    if (!localtime_r(&now, &tm)) return jr_fail(r, "strftime_now: the date cannot be told");
    size_t n = f.s->n ? strftime(buf, sizeof buf, fmt, &tm) : 0;
    return jstr_copy(r, out, (slice){buf, n}, f.s->user || f.s->mark);
}

static mica_status global_cycler(jr *r, jv self, jcall *c, jv *out) {
    (void)self;
    if (c->n_kw) return jr_fail(r, "cycler() takes no keyword arguments");
    if (!c->n_arg) return jr_fail(r, "at least one item has to be provided");
    jcycler *y = jr_take(r, sizeof *y);
    if (!y) return jr_nomem(r);
    TRY(jlist_new(r, &y->item, c->n_arg));
    memcpy(y->item->v, c->arg, c->n_arg * sizeof *c->arg);
    y->item->n = c->n_arg;
    *out = (jv){.kind = JV_CYCLER, .cycler = y};
    return MICA_OK;
}

static mica_status global_joiner(jr *r, jv self, jcall *c, jv *out) {
    (void)self;
    jjoiner *j = jr_take(r, sizeof *j);
    if (!j) return jr_nomem(r);
    j->sep = c->slot[0];
    if (j->sep.kind == JV_MISSING) TRY(jstr_new(r, &j->sep, SLICE_LIT(", "), false));
    *out = (jv){.kind = JV_JOINER, .joiner = j};
    return MICA_OK;
}

const jbuiltin *jglobal_find(slice name) {
    static const jbuiltin table[] = {
        {"range", global_range, "/a b? c?"},
        {"dict", global_dict, NULL},
        {"namespace", global_namespace, NULL},
        {"raise_exception", global_raise, "message"},
        {"strftime_now", global_strftime_now, "format"},
        {"cycler", global_cycler, NULL},
        {"joiner", global_joiner, "sep?"},
        {"lipsum", NULL, NULL},
    };
    return jbuiltin_find(table, sizeof table / sizeof *table, name);
}

/* ---- dicts ---- */

static mica_status dict_get(jr *r, jv self, jcall *c, jv *out) {
    jv *v;
    TRY(jdict_find(r, self.dict, c->slot[0], &v));
    *out = v ? *v : c->slot[1].kind == JV_MISSING ? jv_none() : c->slot[1];
    return MICA_OK;
}

static mica_status dict_view(jv self, jview_kind kind, jv *out) {
    *out = (jv){.kind = JV_VIEW, .aux = (uint8_t)kind, .dict = self.dict};
    return MICA_OK;
}

static mica_status dict_keys(jr *r, jv self, jcall *c, jv *out) {
    (void)r;
    (void)c;
    return dict_view(self, JVIEW_KEYS, out);
}

static mica_status dict_values(jr *r, jv self, jcall *c, jv *out) {
    (void)r;
    (void)c;
    return dict_view(self, JVIEW_VALUES, out);
}

static mica_status dict_items(jr *r, jv self, jcall *c, jv *out) {
    (void)r;
    (void)c;
    return dict_view(self, JVIEW_ITEMS, out);
}

static mica_status dict_copy(jr *r, jv self, jcall *c, jv *out) {
    (void)r;
    (void)c;
    *out = self; // nothing can change a dict
    return MICA_OK;
}

const jbuiltin *jdict_method_find(slice name) {
    static const jbuiltin table[] = {
        {"get", dict_get, "/key default?"}, {"items", dict_items, "/"}, {"keys", dict_keys, "/"},
        {"values", dict_values, "/"},       {"copy", dict_copy, "/"},
    };
    return jbuiltin_find(table, sizeof table / sizeof *table, name);
}

/* ---- lists and tuples ---- */

static mica_status list_count(jr *r, jv self, jcall *c, jv *out) {
    int64_t n = 0;
    for (size_t i = 0; i < self.list->n; i++) {
        bool same;
        TRY(jv_equal(r, self.list->v[i], c->slot[0], &same));
        n += same;
    }
    *out = jv_int(n);
    return jr_charge(r, self.list->n);
}

static mica_status list_index(jr *r, jv self, jcall *c, jv *out) {
    int64_t n = (int64_t)self.list->n, begin, end;
    TRY(jcall_int(r, c, 1, 0, &begin));
    TRY(jcall_int(r, c, 2, n, &end));
    begin = begin < -n ? 0 : begin < 0 ? begin + n : begin;
    end = end < -n ? 0 : end < 0 ? end + n : end > n ? n : end;
    for (int64_t i = begin; i < end; i++) {
        bool same;
        TRY(jv_equal(r, self.list->v[i], c->slot[0], &same));
        if (!same) continue;
        *out = jv_int(i);
        return jr_charge(r, self.list->n);
    }
    return jr_fail(r,
                   self.kind == JV_LIST ? "the value is not in the list" : "tuple.index(x): x not in tuple");
}

static mica_status list_copy(jr *r, jv self, jcall *c, jv *out) {
    (void)r;
    (void)c;
    *out = self;
    return MICA_OK;
}

const jbuiltin *jlist_method_find(slice name, bool tuple) {
    static const jbuiltin table[] = {
        {"index", list_index, "/value start? stop?"},
        {"count", list_count, "/value"},
        {"copy", list_copy, "/"},
    };
    return jbuiltin_find(table, tuple ? 2 : 3, name);
}
