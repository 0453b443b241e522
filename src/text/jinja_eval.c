/* Expressions of a template. One function per kind of node, so that the recursion carries small frames. */
#include "text/jinja_int.h"

/* ---- names ---- */

static mica_status eval_name(jr *r, const jnode *n, jv *out) {
    for (const jscope *s = r->scope; s; s = s->parent)
        for (int i = 0; i < s->n; i++)
            if (s->var[i].id == n->id) {
                *out = s->var[i].v;
                return MICA_OK;
            }
    *out = r->global[n->id];
    if (out->kind != JV_MISSING) return MICA_OK;
    jv name;
    TRY(jstr_new(r, &name, r->t->name[n->id], false));
    return jv_undef(r, out, (jv){0}, name);
}

/* ---- literals ---- */

static mica_status eval_items(jr *r, const jnode *n, jv *out) {
    jlist *l;
    TRY(jlist_new(r, &l, n->n_kid));
    for (size_t i = 0; i < n->n_kid; i++) TRY(jeval(r, n->kid[i], &l->v[i]));
    l->n = n->n_kid;
    *out = n->kind == JN_LIST ? jv_list(l) : jv_tuple(l);
    return MICA_OK;
}

static mica_status eval_dict(jr *r, const jnode *n, jv *out) {
    jdict *d;
    TRY(jdict_new(r, &d, n->n_kid / 2));
    for (size_t i = 0; i < n->n_kid; i += 2) {
        jv k, v;
        TRY(jeval(r, n->kid[i], &k));
        TRY(jeval(r, n->kid[i + 1], &v));
        TRY(jdict_set(r, d, k, v));
    }
    *out = (jv){.kind = JV_DICT, .dict = d};
    return MICA_OK;
}

/* ---- operators ---- */

static mica_status eval_logic(jr *r, const jnode *n, jv *out) {
    for (size_t i = 0; i < n->n_kid; i++) {
        TRY(jeval(r, n->kid[i], out));
        if (jv_truth(*out) == (n->kind == JN_OR)) break;
    }
    return MICA_OK;
}

static mica_status eval_math(jr *r, const jnode *n, jv *out) {
    jv a, b;
    TRY(jeval(r, n->a, &a));
    TRY(jeval(r, n->b, &b));
    r->line = n->line;
    return jv_math(r, (jop)n->op, a, b, out);
}

static mica_status eval_concat(jr *r, const jnode *n, jv *out) {
    jv v;
    TRY(jeval(r, n->kid[0], out));
    TRY(jv_to_str(r, *out, out));
    for (size_t i = 1; i < n->n_kid; i++) {
        TRY(jeval(r, n->kid[i], &v));
        TRY(jv_to_str(r, v, &v));
        TRY(jstr_concat(r, out, out->s, v.s));
    }
    return MICA_OK;
}

static mica_status eval_compare(jr *r, const jnode *n, jv *out) {
    jv a, b;
    TRY(jeval(r, n->a, &a));
    *out = jv_bool(true);
    for (size_t i = 0; out->b && i < n->n_kid; i++) {
        TRY(jeval(r, n->kid[i], &b));
        r->line = n->line;
        TRY(jv_compare(r, (jop)n->ops[i], a, b, &out->b));
        a = b;
    }
    return MICA_OK;
}

static mica_status eval_cond(jr *r, const jnode *n, jv *out) {
    jv test;
    TRY(jeval(r, n->b, &test));
    if (jv_truth(test)) return jeval(r, n->a, out);
    if (n->c) return jeval(r, n->c, out);
    return jv_undef_hint(r, out,
                         "the inline if-expression evaluated to false and no else section was defined.");
}

static mica_status eval_sign(jr *r, const jnode *n, jv *out) {
    TRY(jeval(r, n->a, out));
    r->line = n->line;
    if (n->kind == JN_NEG) return jv_neg(r, *out, out);
    if (out->kind == JV_UNDEF) return jv_undef_raise(r, *out);
    if (!jv_is_num(*out)) return jr_fail(r, "bad operand type for unary +: '%s'", jv_type(*out));
    if (out->kind == JV_BOOL) *out = jv_int(out->b);
    return MICA_OK;
}

/* ---- subscripts ---- */

static mica_status eval_getattr(jr *r, const jnode *n, jv *out) {
    jv obj;
    TRY(jeval(r, n->a, &obj));
    r->line = n->line;
    return jv_getattr(r, obj, n->val, out);
}

static mica_status eval_getitem(jr *r, const jnode *n, jv *out) {
    jv obj, key;
    TRY(jeval(r, n->a, &obj));
    TRY(jeval(r, n->b, &key));
    r->line = n->line;
    return jv_getitem(r, obj, key, out);
}

static mica_status eval_slice(jr *r, const jnode *n, jv *out) {
    jv obj, bound[3] = {{0}};
    const jnode *part[3] = {n->b, n->c, n->d};
    TRY(jeval(r, n->a, &obj));
    for (int i = 0; i < 3; i++)
        if (part[i]) TRY(jeval(r, part[i], &bound[i]));
    r->line = n->line;
    return jv_getslice(r, obj, bound, out);
}

/* ---- calls ---- */

static mica_status push_kw(jr *r, jcall *c, size_t cap, jv name, jv value) {
    for (size_t i = 0; i < c->n_kw; i++)
        if (slice_eq(jstr_slice(c->kw[i].name.s), jstr_slice(name.s)))
            return jr_fail(r, "got multiple values for keyword argument '%.*s'",
                           (int)(name.s->n > 100 ? 100 : name.s->n), name.s->p);
    if (c->n_kw == cap) return jr_fail(r, "more than %zu keyword arguments", cap);
    c->kw[c->n_kw++] = (jkw){name, value};
    return MICA_OK;
}

static mica_status eval_star(jr *r, const jnode *n, jcall *c) {
    jv v;
    jlist *l;
    TRY(jeval(r, n, &v));
    if (!jv_iterable(v)) return jr_fail(r, "argument after * must be an iterable, not %s", jv_type(v));
    TRY(jlist_of(r, v, &l));
    jv *arg = jr_take(r, (c->n_arg + l->n + 1) * sizeof *arg);
    if (!arg) return jr_nomem(r);
    if (c->n_arg) memcpy(arg, c->arg, c->n_arg * sizeof *arg);
    if (l->n) memcpy(arg + c->n_arg, l->v, l->n * sizeof *arg);
    c->arg = arg;
    c->n_arg += l->n;
    return MICA_OK;
}

static mica_status eval_star2(jr *r, const jnode *n, jcall *c, size_t used) {
    jv v;
    TRY(jeval(r, n, &v));
    if (v.kind == JV_UNDEF) return jv_undef_raise(r, v);
    if (v.kind != JV_DICT) return jr_fail(r, "argument after ** must be a mapping, not %s", jv_type(v));
    if (v.dict->n > 1000) return jr_fail(r, "more than 1000 keyword arguments");
    size_t cap = used + v.dict->n;
    jkw *kw = jr_take(r, (cap + 1) * sizeof *kw);
    if (!kw) return jr_nomem(r);
    if (c->n_kw) memcpy(kw, c->kw, c->n_kw * sizeof *kw);
    c->kw = kw;
    for (size_t i = 0; i < v.dict->n; i++) {
        if (v.dict->e[i].k.kind != JV_STR) return jr_fail(r, "keywords must be strings");
        TRY(push_kw(r, c, cap, v.dict->e[i].k, v.dict->e[i].v));
    }
    return MICA_OK;
}

static mica_status eval_args(jr *r, const jargs_node *a, jv caller, jcall *c) {
    *c = (jcall){0};
    bool extra = caller.kind != JV_MISSING;
    size_t n_kw = (a ? a->n_kw : 0) + extra;
    if (a && a->n_pos) {
        c->arg = jr_take(r, a->n_pos * sizeof *c->arg);
        if (!c->arg) return jr_nomem(r);
        for (; c->n_arg < a->n_pos; c->n_arg++) TRY(jeval(r, a->pos[c->n_arg], &c->arg[c->n_arg]));
    }
    if (n_kw) {
        c->kw = jr_take(r, n_kw * sizeof *c->kw);
        if (!c->kw) return jr_nomem(r);
    }
    for (size_t i = 0; a && i < a->n_kw; i++) {
        c->kw[i].name = a->kw[i].name;
        TRY(jeval(r, a->kw[i].value, &c->kw[i].value));
        c->n_kw++;
    }
    if (a && a->star) TRY(eval_star(r, a->star, c));
    if (a && a->star2) TRY(eval_star2(r, a->star2, c, n_kw));
    if (!extra) return MICA_OK;
    jv name;
    TRY(jstr_new(r, &name, SLICE_LIT("caller"), false));
    return push_kw(r, c, SIZE_MAX, name, caller);
}

mica_status jeval_call_with(jr *r, const jnode *n, jv caller, jv *out) {
    jv fn;
    jcall c;
    TRY(jeval(r, n->a, &fn));
    TRY(eval_args(r, n->args, caller, &c));
    r->line = n->line;
    return jcall_value(r, fn, &c, out);
}

/* A filter or test: `a` is what it is applied to. */
static mica_status eval_applied(jr *r, const jnode *n, jv *out) {
    jv self = r->captured;
    jcall c;
    if (n->a) TRY(jeval(r, n->a, &self));
    r->line = n->line;
    slice name = jstr_slice(n->val.s);
    const char *what = n->kind == JN_FILTER ? "filter" : "test";
    if (!n->fn)
        return jr_fail(r, "No %s named '%.*s' found.", what, (int)(name.n > 40 ? 40 : name.n), name.p);
    if (!n->fn->fn) return jr_unsupported(r, "the %s '%s' is not supported", what, n->fn->name);
    TRY(eval_args(r, n->args, (jv){0}, &c));
    r->line = n->line;
    return jcall_builtin(r, n->fn, self, &c, out);
}

static mica_status eval_kind(jr *r, const jnode *n, jv *out) {
    switch (n->kind) {
    case JN_CONST: *out = n->val; return MICA_OK;
    case JN_NAME: return eval_name(r, n, out);
    case JN_LIST:
    case JN_TUPLE: return eval_items(r, n, out);
    case JN_DICT: return eval_dict(r, n, out);
    case JN_NOT:
        TRY(jeval(r, n->a, out));
        *out = jv_bool(!jv_truth(*out));
        return MICA_OK;
    case JN_NEG:
    case JN_POS: return eval_sign(r, n, out);
    case JN_AND:
    case JN_OR: return eval_logic(r, n, out);
    case JN_MATH: return eval_math(r, n, out);
    case JN_CONCAT: return eval_concat(r, n, out);
    case JN_COMPARE: return eval_compare(r, n, out);
    case JN_COND: return eval_cond(r, n, out);
    case JN_GETATTR: return eval_getattr(r, n, out);
    case JN_GETITEM: return eval_getitem(r, n, out);
    case JN_SLICE: return eval_slice(r, n, out);
    case JN_CALL: return jeval_call_with(r, n, (jv){0}, out);
    case JN_FILTER:
    case JN_TEST: return eval_applied(r, n, out);
    default:
        return fail(r->err, MICA_E_INTERNAL, "chat template: line %d: a node of kind %d is no expression",
                    n->line, n->kind);
    }
}

mica_status jeval(jr *r, const jnode *n, jv *out) {
    r->line = n->line;
    TRY(jr_enter(r));
    TRY(eval_kind(r, n, out));
    r->depth--;
    return MICA_OK;
}
