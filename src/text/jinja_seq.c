/* Filters over sequences. map, select, reject and unique are lazy: they give a generator, and what fails in
 * an item fails when somebody reaches it. */
#include "text/jinja_seq.h"

static mica_status iter_value(jr *r, jiter_kind kind, jv src, jv *out, jiter **it) {
    *it = jr_take(r, sizeof **it);
    if (!*it) return jr_nomem(r);
    (*it)->kind = kind;
    *out = (jv){.kind = JV_ITER, .iter = *it};
    return src.kind == JV_MISSING ? MICA_OK : jiter_of(r, src, &(*it)->src);
}

/* A generator whose body has an error in its very beginning raises at the first step; ours raise at once,
 * which only differs for templates that never look at the result. */
static mica_status stage_new(jr *r, jiter_kind kind, jv src, jv *out, jstage **stage) {
    jiter *it;
    *stage = jr_take(r, sizeof **stage);
    if (!*stage) return jr_nomem(r);
    if (!jv_truth(src)) return iter_value(r, JITER_EMPTY, (jv){0}, out, &it); // `if value:` guards the body
    TRY(iter_value(r, kind, src, out, &it));
    it->stage = *stage;
    return MICA_OK;
}

/* The call's arguments outlive the call. */
static mica_status keep_args(jr *r, jcall *c, size_t skip, jstage *s) {
    size_t n = c->n_arg > skip ? c->n_arg - skip : 0;
    jv *arg = jr_take(r, (n + 1) * sizeof *arg);
    jkw *kw = jr_take(r, (c->n_kw + 1) * sizeof *kw);
    if (!arg || !kw) return jr_nomem(r);
    if (n) memcpy(arg, c->arg + skip, n * sizeof *arg);
    if (c->n_kw) memcpy(kw, c->kw, c->n_kw * sizeof *kw);
    s->arg = arg;
    s->n_arg = n;
    s->kw = kw;
    s->n_kw = c->n_kw;
    return MICA_OK;
}

static mica_status named(jr *r, jv name, const char *what, const jbuiltin *(*find)(slice),
                         const jbuiltin **out) {
    if (name.kind != JV_STR) return jr_fail(r, "No %s named a %s.", what, jv_type(name));
    slice s = jstr_slice(name.s);
    *out = find(s);
    if (!*out) return jr_fail(r, "No %s named '%.*s'.", what, (int)(s.n > 40 ? 40 : s.n), s.p);
    return (*out)->fn ? MICA_OK : jr_unsupported(r, "the %s '%s'", what, (*out)->name);
}

mica_status jfilter_map(jr *r, jv self, jcall *c, jv *out) {
    jstage *s;
    TRY(stage_new(r, JITER_MAP, self, out, &s));
    if (out->iter->kind == JITER_EMPTY) return MICA_OK;
    s->attr = (jv){0};
    if (c->n_arg) {
        TRY(named(r, c->arg[0], "filter", jfilter_find, &s->fn));
        return keep_args(r, c, 1, s);
    }
    for (size_t i = 0; i < c->n_kw; i++) {
        if (jv_is_text(c->kw[i].name, "attribute")) {
            s->by_attr = true;
            s->attr = c->kw[i].value;
        } else if (jv_is_text(c->kw[i].name, "default")) {
            s->fallback = c->kw[i].value;
        } else {
            return jr_fail(r, "Unexpected keyword argument");
        }
    }
    return s->by_attr ? MICA_OK : jr_fail(r, "map requires a filter argument");
}

static mica_status select_items(jr *r, jv self, jcall *c, bool negate, bool by_attr, jv *out) {
    jstage *s;
    TRY(stage_new(r, JITER_SELECT, self, out, &s));
    if (out->iter->kind == JITER_EMPTY) return MICA_OK;
    if (by_attr && !c->n_arg) return jr_fail(r, "Missing parameter for attribute name");
    s->negate = negate;
    s->by_attr = by_attr;
    if (by_attr) s->attr = c->arg[0];
    if (c->n_arg > by_attr) TRY(named(r, c->arg[by_attr], "test", jtest_find, &s->fn));
    return keep_args(r, c, 1 + by_attr, s);
}

mica_status jfilter_select(jr *r, jv self, jcall *c, jv *out) {
    return select_items(r, self, c, false, false, out);
}
mica_status jfilter_reject(jr *r, jv self, jcall *c, jv *out) {
    return select_items(r, self, c, true, false, out);
}
mica_status jfilter_selectattr(jr *r, jv self, jcall *c, jv *out) {
    return select_items(r, self, c, false, true, out);
}
mica_status jfilter_rejectattr(jr *r, jv self, jcall *c, jv *out) {
    return select_items(r, self, c, true, true, out);
}

mica_status jfilter_unique(jr *r, jv self, jcall *c, jv *out) {
    jiter *it;
    jstage *s = jr_take(r, sizeof *s);
    if (!s) return jr_nomem(r);
    TRY(iter_value(r, JITER_UNIQUE, self, out, &it));
    it->stage = s;
    s->case_sensitive = jv_truth(c->slot[0]);
    s->by_attr = jcall_has(c, 1);
    s->attr = c->slot[1];
    return jdict_new(r, &s->seen, 8);
}

mica_status jfilter_items(jr *r, jv self, jcall *c, jv *out) {
    jiter *it;
    (void)c;
    if (self.kind == JV_UNDEF) return iter_value(r, JITER_EMPTY, (jv){0}, out, &it);
    if (self.kind != JV_DICT) return jr_fail(r, "Can only get item pairs from a mapping.");
    TRY(iter_value(r, JITER_DICT, (jv){0}, out, &it));
    it->dict = self.dict;
    it->view = JVIEW_ITEMS;
    return MICA_OK;
}

/* ---- ends, lists, order ---- */

mica_status jfilter_first(jr *r, jv self, jcall *c, jv *out) {
    jiter *it;
    bool more;
    (void)c;
    TRY(jiter_of(r, self, &it));
    TRY(jiter_next(r, it, out, &more));
    return more ? MICA_OK : jv_undef_hint(r, out, "No first item, sequence was empty.");
}

static bool reversible(jv v) {
    return jv_iterable(v) && v.kind != JV_ITER && v.kind != JV_UNDEF && v.kind != JV_LOOP;
}

mica_status jfilter_last(jr *r, jv self, jcall *c, jv *out) {
    jlist *l;
    (void)c;
    if (self.kind != JV_UNDEF && !reversible(self))
        return jr_fail(r, "'%s' object is not reversible", jv_type(self));
    TRY(jlist_of(r, self, &l));
    if (!l->n) return jv_undef_hint(r, out, "No last item, sequence was empty.");
    *out = l->v[l->n - 1];
    return MICA_OK;
}

static mica_status list_copy_of(jr *r, jv v, jlist **out) {
    jlist *l;
    TRY(jlist_of(r, v, &l));
    TRY(jlist_new(r, out, l->n));
    if (l->n) memcpy((*out)->v, l->v, l->n * sizeof *l->v);
    (*out)->n = l->n;
    return jr_charge(r, l->n);
}

mica_status jfilter_list(jr *r, jv self, jcall *c, jv *out) {
    (void)c;
    out->kind = JV_LIST;
    return list_copy_of(r, self, &out->list);
}

mica_status jfilter_reverse(jr *r, jv self, jcall *c, jv *out) {
    jiter *it;
    jlist *l;
    (void)c;
    if (self.kind == JV_STR) {
        jv bound[3] = {jv_none(), jv_none(), jv_int(-1)};
        return jv_getslice(r, self, bound, out);
    }
    if (self.kind == JV_UNDEF) { // reversed() finds __len__ and __getitem__, and no item
        return iter_value(r, JITER_EMPTY, (jv){0}, out, &it);
    }
    if (!jv_iterable(self)) return jr_fail(r, "argument must be iterable");
    TRY(list_copy_of(r, self, &l));
    if (!reversible(self)) { // a generator comes back as a list
        for (size_t i = 0; i < l->n / 2; i++) {
            jv v = l->v[i];
            l->v[i] = l->v[l->n - 1 - i];
            l->v[l->n - 1 - i] = v;
        }
        *out = jv_list(l);
        return MICA_OK;
    }
    TRY(iter_value(r, JITER_REVERSED, (jv){0}, out, &it));
    it->list = l;
    return MICA_OK;
}

static mica_status folded(jr *r, jv v, bool case_sensitive, jv *out) {
    *out = v;
    return v.kind == JV_STR && !case_sensitive ? jstr_lower(r, out, v.s) : MICA_OK;
}

/* make_multi_attrgetter: "a,b.c" gives a list of two values. */
static mica_status sort_key(jr *r, jv item, jv attr, bool case_sensitive, jv *out) {
    jlist *l;
    jv part = attr, v;
    TRY(jlist_new(r, &l, 1));
    size_t n = attr.kind == JV_STR ? attr.s->n : 0;
    for (size_t begin = 0, end; begin <= n; begin = end + 1) {
        for (end = begin; end < n && attr.s->p[end] != ','; end++) {
        }
        if (attr.kind == JV_STR) TRY(jstr_sub(r, &part, attr.s, begin, end));
        TRY(jattr_path(r, item, part, (jv){0}, &v));
        TRY(folded(r, v, case_sensitive, &v));
        TRY(jlist_push(r, l, v));
    }
    *out = jv_list(l); // also of one: lists ask for == before <, which undefined values allow
    return MICA_OK;
}

mica_status jfilter_sort(jr *r, jv self, jcall *c, jv *out) {
    jlist *item, *key;
    TRY(list_copy_of(r, self, &item));
    TRY(jlist_new(r, &key, item->n));
    for (size_t i = 0; i < item->n; i++)
        TRY(sort_key(r, item->v[i], c->slot[2], jv_truth(c->slot[1]), &key->v[i]));
    key->n = item->n;
    *out = jv_list(item);
    return jlist_sort(r, item, key, jv_truth(c->slot[0]));
}

mica_status jfilter_dictsort(jr *r, jv self, jcall *c, jv *out) {
    jlist *item, *key;
    bool by_value = jv_is_text(c->slot[1], "value");
    if (c->slot[1].kind != JV_MISSING && !by_value && !jv_is_text(c->slot[1], "key"))
        return jr_fail(r, "You can only sort by either \"key\" or \"value\"");
    if (self.kind == JV_UNDEF) return jv_undef_raise(r, self);
    if (self.kind != JV_DICT) return jr_fail(r, "'%s object' has no attribute 'items'", jv_type(self));
    TRY(jlist_new(r, &item, self.dict->n));
    TRY(jlist_new(r, &key, self.dict->n));
    for (size_t i = 0; i < self.dict->n; i++) {
        const jentry *e = &self.dict->e[i];
        TRY(jv_pair(r, &item->v[i], e->k, e->v));
        TRY(folded(r, by_value ? e->v : e->k, jv_truth(c->slot[0]), &key->v[i]));
    }
    item->n = key->n = self.dict->n;
    *out = jv_list(item);
    return jlist_sort(r, item, key, jv_truth(c->slot[2]));
}

static mica_status extreme(jr *r, jv self, jcall *c, bool largest, jv *out) {
    jlist *l;
    jv best = {0}, key;
    TRY(jlist_of(r, self, &l));
    if (!l->n) return jv_undef_hint(r, out, "No aggregated item, sequence was empty.");
    for (size_t i = 0; i < l->n; i++) {
        bool better = i == 0;
        TRY(jattr_path(r, l->v[i], c->slot[1], (jv){0}, &key));
        TRY(folded(r, key, jv_truth(c->slot[0]), &key));
        if (i && largest) TRY(jv_less(r, best, key, ">", false, &better));
        if (i && !largest) TRY(jv_less(r, key, best, "<", false, &better));
        if (!better) continue;
        best = key;
        *out = l->v[i];
    }
    return jr_charge(r, l->n);
}

mica_status jfilter_max(jr *r, jv self, jcall *c, jv *out) {
    return extreme(r, self, c, true, out);
}
mica_status jfilter_min(jr *r, jv self, jcall *c, jv *out) {
    return extreme(r, self, c, false, out);
}

/* ---- reductions and groups ---- */

mica_status jfilter_join(jr *r, jv self, jcall *c, jv *out) {
    jlist *l, *text;
    jv sep;
    if (c->slot[0].kind == JV_MISSING)
        TRY(jstr_new(r, &sep, SLICE_LIT(""), false));
    else
        TRY(jv_to_str(r, c->slot[0], &sep));
    TRY(jlist_of(r, self, &l));
    TRY(jlist_new(r, &text, l->n));
    for (size_t i = 0; i < l->n; i++) {
        jv v = l->v[i];
        if (jcall_has(c, 1)) TRY(jattr_path(r, v, c->slot[1], (jv){0}, &v));
        TRY(jv_to_str(r, v, &text->v[i]));
    }
    text->n = l->n;
    return jstr_join(r, out, sep.s, text);
}

mica_status jfilter_sum(jr *r, jv self, jcall *c, jv *out) {
    jiter *it;
    bool more;
    jv v, total = c->slot[1].kind == JV_MISSING ? jv_int(0) : c->slot[1];
    TRY(jiter_of(r, self, &it));
    if (total.kind == JV_STR) return jr_fail(r, "sum() can't sum strings [use ''.join(seq) instead]");
    for (;;) {
        TRY(jiter_next(r, it, &v, &more));
        if (!more) break;
        if (jcall_has(c, 0)) TRY(jattr_path(r, v, c->slot[0], (jv){0}, &v));
        TRY(jv_math(r, JOP_ADD, total, v, &total));
    }
    *out = total;
    return MICA_OK;
}

mica_status jfilter_attr(jr *r, jv self, jcall *c, jv *out) {
    if (c->slot[0].kind != JV_STR)
        return jr_fail(r, "attribute name must be string, not '%s'", jv_type(c->slot[0]));
    if (self.kind == JV_DICT && !jdict_method_find(jstr_slice(c->slot[0].s)))
        return jv_undef(r, out, self, c->slot[0]); // attributes only, no items
    return jv_getattr(r, self, c->slot[0], out);
}

static mica_status as_iter(jr *r, jlist *l, jv *out) {
    jiter *it;
    TRY(iter_value(r, JITER_LIST, (jv){0}, out, &it));
    it->list = l;
    return MICA_OK;
}

mica_status jfilter_batch(jr *r, jv self, jcall *c, jv *out) {
    jlist *l, *all, *row = NULL;
    int64_t n;
    TRY(jcall_int(r, c, 0, 0, &n));
    TRY(jlist_of(r, self, &l));
    TRY(jlist_new(r, &all, 4));
    if (n < 1) return jr_unsupported(r, "batch of %lld", (long long)n);
    for (size_t i = 0; i < l->n; i++) {
        if (i % (size_t)n == 0) {
            TRY(jlist_new(r, &row, 4));
            TRY(jlist_push(r, all, jv_list(row)));
        }
        TRY(jlist_push(r, row, l->v[i]));
    }
    while (row && jcall_has(c, 1) && (int64_t)row->n < n) {
        TRY(jlist_push(r, row, c->slot[1]));
        TRY(jr_charge(r, 64));
    }
    return as_iter(r, all, out);
}

mica_status jfilter_slice(jr *r, jv self, jcall *c, jv *out) {
    jlist *l, *all, *part;
    int64_t n;
    size_t at = 0;
    TRY(jcall_int(r, c, 0, 0, &n));
    TRY(jlist_of(r, self, &l));
    TRY(jlist_new(r, &all, 4));
    if (n == 0) return jr_fail(r, "integer division or modulo by zero");
    for (int64_t i = 0; i < n; i++) {
        size_t extra = i < (int64_t)(l->n % (size_t)n), len = l->n / (size_t)n + extra;
        TRY(jr_charge(r, 64));
        TRY(jlist_new(r, &part, len + 1));
        if (len) memcpy(part->v, l->v + at, len * sizeof *l->v);
        part->n = len;
        at += len;
        if (!extra && jcall_has(c, 1)) TRY(jlist_push(r, part, c->slot[1]));
        TRY(jlist_push(r, all, jv_list(part)));
    }
    return as_iter(r, all, out);
}

mica_status jfilter_groupby(jr *r, jv self, jcall *c, jv *out) {
    jlist *item, *key, *groups, *members = NULL;
    bool case_sensitive = jv_truth(c->slot[2]), same = false;
    TRY(list_copy_of(r, self, &item));
    TRY(jlist_new(r, &key, item->n));
    for (size_t i = 0; i < item->n; i++) {
        TRY(jattr_path(r, item->v[i], c->slot[0], c->slot[1], &key->v[i]));
        TRY(folded(r, key->v[i], case_sensitive, &key->v[i]));
    }
    key->n = item->n;
    TRY(jlist_sort(r, item, key, false));
    TRY(jlist_new(r, &groups, 4));
    for (size_t i = 0; i < item->n; i++) {
        jv pair, shown = key->v[i];
        if (i) TRY(jv_equal(r, key->v[i - 1], key->v[i], &same));
        if (!same) {
            if (!case_sensitive) TRY(jattr_path(r, item->v[i], c->slot[0], c->slot[1], &shown));
            TRY(jlist_new(r, &members, 4));
            TRY(jv_pair(r, &pair, shown, jv_list(members)));
            TRY(jlist_push(r, groups, pair));
        }
        TRY(jlist_push(r, members, item->v[i]));
    }
    *out = jv_list(groups);
    return MICA_OK;
}
