/* Walking over Jinja values: iterators over sequences, the lazy stages of map, select and unique, and
 * sorting. A generator (JV_ITER) is one iterator that everybody shares, so it can be walked once, as in
 * Python. */
#include "text/jinja_int.h"

bool jv_iterable(jv v) {
    switch (v.kind) {
    case JV_UNDEF:
    case JV_STR:
    case JV_LIST:
    case JV_TUPLE:
    case JV_DICT:
    case JV_RANGE:
    case JV_VIEW:
    case JV_ITER:
    case JV_LOOP: return true;
    default: return false;
    }
}

mica_status jiter_of(jr *r, jv v, jiter **out) {
    if (v.kind == JV_ITER) {
        *out = v.iter;
        return MICA_OK;
    }
    jiter *it = *out = jr_take(r, sizeof *it);
    if (!it) return jr_nomem(r);
    switch (v.kind) {
    case JV_UNDEF: it->kind = JITER_EMPTY; return MICA_OK;
    case JV_STR:
        it->kind = JITER_STR;
        it->str = v.s;
        return MICA_OK;
    case JV_LIST:
    case JV_TUPLE:
        it->kind = JITER_LIST;
        it->list = v.list;
        return MICA_OK;
    case JV_DICT:
        it->kind = JITER_DICT;
        it->dict = v.dict;
        return MICA_OK;
    case JV_VIEW:
        it->kind = JITER_DICT;
        it->dict = v.dict;
        it->view = (jview_kind)v.aux;
        return MICA_OK;
    case JV_RANGE:
        it->kind = JITER_RANGE;
        it->range = v.range;
        return MICA_OK;
    case JV_LOOP: return jr_unsupported(r, "iteration over the loop variable");
    default: return jr_fail(r, "'%s' object is not iterable", jv_type(v));
    }
}

static mica_status dict_item(jr *r, const jiter *it, jv *out) {
    const jentry *e = &it->dict->e[it->pos];
    if (it->view == JVIEW_ITEMS) return jv_pair(r, out, e->k, e->v);
    *out = it->view == JVIEW_KEYS ? e->k : e->v;
    return MICA_OK;
}

static mica_status stage_value(jr *r, const jstage *s, jv item, jv *out) {
    if (s->by_attr) return jattr_path(r, item, s->attr, s->fallback, out);
    *out = item;
    return MICA_OK;
}

static mica_status stage_call(jr *r, const jstage *s, jv item, jv *out) {
    if (!s->fn) {
        *out = item;
        return MICA_OK;
    }
    // a builtin may shift the arguments it is given, and every item needs them afresh
    jv arg[8];
    if (s->n_arg > 8) return jr_fail(r, "%s expected at most 7 arguments", s->fn->name);
    for (size_t i = 0; i < s->n_arg; i++) arg[i] = s->arg[i];
    jcall c = {.arg = arg, .n_arg = s->n_arg, .kw = (jkw *)s->kw, .n_kw = s->n_kw};
    return jcall_builtin(r, s->fn, item, &c, out);
}

static mica_status next_selected(jr *r, jiter *it, jv *out, bool *more) {
    jv v, answer;
    for (;;) {
        TRY(jiter_next(r, it->src, out, more));
        if (!*more) return MICA_OK;
        TRY(stage_value(r, it->stage, *out, &v));
        TRY(stage_call(r, it->stage, v, &answer));
        if (jv_truth(answer) != it->stage->negate) return MICA_OK;
    }
}

static mica_status next_unique(jr *r, jiter *it, jv *out, bool *more) {
    jv v, *seen;
    for (;;) {
        TRY(jiter_next(r, it->src, out, more));
        if (!*more) return MICA_OK;
        TRY(stage_value(r, it->stage, *out, &v));
        if (v.kind == JV_STR && !it->stage->case_sensitive) TRY(jstr_lower(r, &v, v.s));
        TRY(jdict_find(r, it->stage->seen, v, &seen));
        if (!seen) return jdict_set(r, it->stage->seen, v, jv_none());
    }
}

static mica_status next_mapped(jr *r, jiter *it, jv *out, bool *more) {
    jv v, item;
    TRY(jiter_next(r, it->src, &item, more));
    if (!*more) return MICA_OK;
    TRY(stage_value(r, it->stage, item, &v));
    return stage_call(r, it->stage, v, out);
}

static mica_status next_char(jr *r, jiter *it, jv *out, bool *more) {
    size_t end;
    *more = it->pos < it->str->n;
    if (!*more) return MICA_OK;
    jstr_cp(it->str, it->pos, &end);
    TRY(jstr_sub(r, out, it->str, it->pos, end));
    if (it->str->markup) ((jstr *)out->s)->markup = false; // a Markup gives plain characters
    it->pos = end;
    return MICA_OK;
}

static mica_status next_of_stage(jr *r, jiter *it, jv *out, bool *more) {
    mica_status st = jr_enter(r);
    if (st == MICA_OK)
        st = it->kind == JITER_MAP      ? next_mapped(r, it, out, more)
             : it->kind == JITER_SELECT ? next_selected(r, it, out, more)
                                        : next_unique(r, it, out, more);
    r->depth--;
    return st;
}

mica_status jiter_next(jr *r, jiter *it, jv *out, bool *more) {
    *more = false;
    *out = (jv){0};
    r->steps++;
    switch (it->kind) {
    case JITER_EMPTY: return MICA_OK;
    case JITER_LIST:
    case JITER_REVERSED:
        *more = it->pos < it->list->n;
        if (*more) *out = it->list->v[it->kind == JITER_LIST ? it->pos : it->list->n - 1 - it->pos];
        it->pos++;
        return jr_charge(r, 0);
    case JITER_STR: return next_char(r, it, out, more);
    case JITER_DICT:
        *more = it->pos < it->dict->n;
        if (*more) TRY(dict_item(r, it, out));
        it->pos++;
        return jr_charge(r, 0);
    case JITER_RANGE:
        *more = (int64_t)it->pos < it->range->n;
        if (*more) *out = jv_int(it->range->start + (int64_t)it->pos * it->range->step);
        it->pos++;
        return jr_charge(r, 0);
    default: return next_of_stage(r, it, out, more);
    }
}

mica_status jlist_of(jr *r, jv v, jlist **out) {
    jiter *it;
    bool more;
    jv item;
    if (v.kind == JV_LIST || v.kind == JV_TUPLE) {
        *out = v.list;
        return MICA_OK;
    }
    TRY(jiter_of(r, v, &it));
    TRY(jlist_new(r, out, 8));
    for (;;) {
        TRY(jiter_next(r, it, &item, &more));
        if (!more) return MICA_OK;
        TRY(jlist_push(r, *out, item));
    }
}

/* ---- sorting: a merge sort, as comparisons may fail and the order must be stable ---- */

typedef struct sorter {
    jr *r;
    jv *item, *key, *item2, *key2;
} sorter;

static mica_status merge(sorter *s, size_t a, size_t m, size_t b) {
    size_t i = a, j = m;
    for (size_t k = a; k < b; k++) {
        bool right = i == m;
        if (i < m && j < b) TRY(jv_less(s->r, s->key[j], s->key[i], "<", false, &right));
        size_t from = right ? j++ : i++;
        s->item2[k] = s->item[from];
        s->key2[k] = s->key[from];
    }
    memcpy(s->item + a, s->item2 + a, (b - a) * sizeof *s->item);
    memcpy(s->key + a, s->key2 + a, (b - a) * sizeof *s->key);
    s->r->steps += b - a;
    return jr_charge(s->r, 0);
}

static void reverse_list(jv *v, size_t n) {
    for (size_t i = 0; i < n / 2; i++) {
        jv t = v[i];
        v[i] = v[n - 1 - i];
        v[n - 1 - i] = t;
    }
}

mica_status jlist_sort(jr *r, jlist *item, jlist *key, bool reverse) {
    size_t n = item->n;
    sorter s = {r, item->v, key->v, NULL, NULL};
    if (n < 2) return MICA_OK;
    s.item2 = jr_take(r, n * sizeof(jv));
    s.key2 = jr_take(r, n * sizeof(jv));
    if (!s.item2 || !s.key2) return jr_nomem(r);
    if (reverse) { // equal elements keep their order also downwards
        reverse_list(s.item, n);
        reverse_list(s.key, n);
    }
    for (size_t width = 1; width < n; width *= 2)
        for (size_t a = 0; a + width < n; a += 2 * width)
            TRY(merge(&s, a, a + width, a + 2 * width < n ? a + 2 * width : n));
    if (reverse) {
        reverse_list(s.item, n);
        reverse_list(s.key, n);
    }
    return MICA_OK;
}
