/* Operators on Jinja values, as Python defines them: equality, order, membership, arithmetic, length. */
#include "text/jinja_int.h"

#include <math.h>

/* ---- equality ---- */

/* long double holds every int64 and every double, so mixed comparisons are exact. */
static long double exact(jv v) {
    return v.kind == JV_FLOAT ? (long double)v.f : (long double)jv_as_int(v);
}

static mica_status equal_lists(jr *r, const jlist *a, const jlist *b, bool *out) {
    *out = a->n == b->n;
    for (size_t i = 0; *out && i < a->n; i++) TRY(jv_equal(r, a->v[i], b->v[i], out));
    return MICA_OK;
}

static mica_status equal_dicts(jr *r, const jdict *a, const jdict *b, bool *out) {
    *out = a->n == b->n;
    for (size_t i = 0; *out && i < a->n; i++) {
        jv *other;
        TRY(jdict_find(r, b, a->e[i].k, &other));
        *out = other != NULL;
        if (other) TRY(jv_equal(r, a->e[i].v, *other, out));
    }
    return MICA_OK;
}

static bool equal_ranges(const jrange *a, const jrange *b) {
    return a->n == b->n && (a->n == 0 || (a->start == b->start && (a->n == 1 || a->step == b->step)));
}

static mica_status equal_deep(jr *r, jv a, jv b, bool *out) {
    mica_status st = jr_enter(r);
    if (st == MICA_OK)
        st = a.kind == JV_DICT ? equal_dicts(r, a.dict, b.dict, out) : equal_lists(r, a.list, b.list, out);
    r->depth--;
    return st;
}

mica_status jv_equal(jr *r, jv a, jv b, bool *out) {
    *out = false;
    if (jv_is_num(a) && jv_is_num(b)) {
        *out = exact(a) == exact(b);
        return MICA_OK;
    }
    if (a.kind != b.kind) return MICA_OK;
    switch (a.kind) {
    case JV_UNDEF:
    case JV_NONE: *out = true; return MICA_OK;
    case JV_STR:
        *out = slice_eq(jstr_slice(a.s), jstr_slice(b.s));
        return *out ? jr_charge(r, a.s->n) : MICA_OK;
    case JV_LIST:
    case JV_TUPLE:
    case JV_DICT: return equal_deep(r, a, b, out);
    case JV_RANGE: *out = equal_ranges(a.range, b.range); return MICA_OK;
    case JV_VIEW: return jr_unsupported(r, "comparison of %s objects", jv_type(a));
    default: *out = a.p == b.p; return MICA_OK;
    }
}

/* ---- order ---- */

static bool text_less(const jstr *a, const jstr *b, bool or_equal) { // UTF-8 sorts as its code points do
    size_t n = a->n < b->n ? a->n : b->n;
    int c = n ? memcmp(a->p, b->p, n) : 0;
    if (c) return c < 0;
    return or_equal ? a->n <= b->n : a->n < b->n;
}

static mica_status lists_less(jr *r, const jlist *a, const jlist *b, const char *op, bool or_equal,
                              bool *out) {
    mica_status st = jr_enter(r);
    size_t n = a->n < b->n ? a->n : b->n, i = 0;
    bool same = true;
    for (; st == MICA_OK && i < n; i++) {
        st = jv_equal(r, a->v[i], b->v[i], &same);
        if (!same) break;
    }
    if (st == MICA_OK && i < n)
        st = jv_less(r, a->v[i], b->v[i], op, or_equal, out);
    else if (st == MICA_OK)
        *out = or_equal ? a->n <= b->n : a->n < b->n;
    r->depth--;
    return st;
}

mica_status jv_less(jr *r, jv a, jv b, const char *op, bool or_equal, bool *out) {
    *out = false;
    if (jv_is_num(a) && jv_is_num(b)) {
        *out = or_equal ? exact(a) <= exact(b) : exact(a) < exact(b);
        return MICA_OK;
    }
    if (a.kind == JV_UNDEF) return jv_undef_raise(r, a);
    if (b.kind == JV_UNDEF) return jv_undef_raise(r, b);
    if (a.kind == JV_STR && b.kind == JV_STR) {
        *out = text_less(a.s, b.s, or_equal);
        return jr_charge(r, a.s->n);
    }
    if (a.kind == b.kind && (a.kind == JV_LIST || a.kind == JV_TUPLE))
        return lists_less(r, a.list, b.list, op, or_equal, out);
    if (a.kind == JV_VIEW && b.kind == JV_VIEW) return jr_unsupported(r, "comparison of dict views");
    return jr_fail(r, "'%s' not supported between instances of '%s' and '%s'", op, jv_type(a), jv_type(b));
}

/* ---- membership ---- */

static mica_status range_contains(jr *r, jv item, const jrange *g, bool *out) {
    for (int64_t i = 0; !*out && i < g->n; i++) TRY(jv_equal(r, item, jv_int(g->start + i * g->step), out));
    return jr_charge(r, (size_t)g->n);
}

static mica_status contains_by_walk(jr *r, jv item, jv in, bool *out) {
    jiter *it;
    bool more;
    jv v;
    TRY(jiter_of(r, in, &it));
    while (!*out) {
        TRY(jiter_next(r, it, &v, &more));
        if (!more) break;
        TRY(jv_equal(r, v, item, out));
    }
    return MICA_OK;
}

mica_status jv_contains(jr *r, jv item, jv in, bool *out) {
    size_t at;
    jv *found;
    *out = false;
    switch (in.kind) {
    case JV_STR:
        if (item.kind != JV_STR)
            return jr_fail(r, "'in <string>' requires string as left operand, not %s", jv_type(item));
        *out = jstr_find(in.s, item.s, 0, in.s->n, &at);
        return jr_charge(r, in.s->n);
    case JV_DICT:
        TRY(jdict_find(r, in.dict, item, &found));
        *out = found != NULL;
        return MICA_OK;
    case JV_RANGE: return range_contains(r, item, in.range, out);
    default:
        if (!jv_iterable(in)) return jr_fail(r, "argument of type '%s' is not iterable", jv_type(in));
        return contains_by_walk(r, item, in, out);
    }
}

mica_status jv_compare(jr *r, jop op, jv a, jv b, bool *out) {
    switch (op) {
    case JOP_EQ: return jv_equal(r, a, b, out);
    case JOP_NE: TRY(jv_equal(r, a, b, out)); break;
    case JOP_LT: return jv_less(r, a, b, "<", false, out);
    case JOP_LE: return jv_less(r, a, b, "<=", true, out);
    case JOP_GT: return jv_less(r, b, a, ">", false, out);
    case JOP_GE: return jv_less(r, b, a, ">=", true, out);
    case JOP_IN: return jv_contains(r, a, b, out);
    default: TRY(jv_contains(r, a, b, out)); break;
    }
    *out = !*out;
    return MICA_OK;
}

/* ---- arithmetic ---- */

static const char *op_text(jop op) {
    static const char *const text[] = {"+", "-", "*", "/", "//", "%", "** or pow()"};
    return text[op];
}

static mica_status overflow(jr *r) {
    return jr_unsupported(r, "an integer of more than 64 bits");
}

static mica_status bad_operands(jr *r, jop op, jv a, jv b) {
    return jr_fail(r, "unsupported operand type(s) for %s: '%s' and '%s'", op_text(op), jv_type(a),
                   jv_type(b));
}

static mica_status int_pow(jr *r, int64_t a, int64_t b, jv *out) {
    int64_t v = 1;
    if (b < 0) {
        if (a == 0) return jr_fail(r, "0.0 cannot be raised to a negative power");
        *out = jv_float(pow((double)a, (double)b));
        return MICA_OK;
    }
    for (int64_t base = a; b; b >>= 1) {
        if ((b & 1) && __builtin_mul_overflow(v, base, &v)) return overflow(r);
        if (b > 1 && __builtin_mul_overflow(base, base, &base)) return overflow(r);
    }
    *out = jv_int(v);
    return MICA_OK;
}

/* Correctly rounded where both sides are doubles already; beyond 53 bits within one unit in the last place.
 */
static double int_ratio(int64_t a, int64_t b) {
    int64_t lim = (int64_t)1 << 53;
    if (a >= -lim && a <= lim && b >= -lim && b <= lim) return (double)a / (double)b;
    return (double)((long double)a / (long double)b);
}

static mica_status int_math(jr *r, jop op, int64_t a, int64_t b, jv *out) {
    int64_t v = 0;
    bool over = false;
    if (b == 0 && (op == JOP_DIV || op == JOP_FLOORDIV || op == JOP_MOD))
        return jr_fail(r, op == JOP_DIV ? "division by zero" : "integer division or modulo by zero");
    switch (op) {
    case JOP_ADD: over = __builtin_add_overflow(a, b, &v); break;
    case JOP_SUB: over = __builtin_sub_overflow(a, b, &v); break;
    case JOP_MUL: over = __builtin_mul_overflow(a, b, &v); break;
    case JOP_DIV: *out = jv_float(int_ratio(a, b)); return MICA_OK;
    case JOP_FLOORDIV:
        over = a == INT64_MIN && b == -1;
        if (!over) v = a / b - (a % b != 0 && (a % b < 0) != (b < 0));
        break;
    case JOP_MOD:
        v = b == -1 ? 0 : a % b;
        if (v && (v < 0) != (b < 0)) v += b;
        break;
    default: return int_pow(r, a, b, out);
    }
    *out = jv_int(v);
    return over ? overflow(r) : MICA_OK;
}

/* float.__divmod__: the quotient is floored, the remainder has the sign of b. */
static void float_divmod(double a, double b, double *quotient, double *rest) {
    double m = fmod(a, b), q = (a - m) / b;
    if (m != 0.0) {
        if ((b < 0) != (m < 0)) {
            m += b;
            q -= 1.0;
        }
    } else {
        m = copysign(0.0, b);
    }
    double f = q != 0.0 ? floor(q) : copysign(0.0, a / b);
    if (q != 0.0 && q - f > 0.5) f += 1.0;
    *quotient = f;
    *rest = m;
}

static mica_status float_math(jr *r, jop op, double a, double b, jv *out) {
    double q, m;
    if (b == 0.0 && (op == JOP_DIV || op == JOP_FLOORDIV || op == JOP_MOD))
        return jr_fail(r, op == JOP_DIV   ? "float division by zero"
                          : op == JOP_MOD ? "float modulo"
                                          : "float floor division by zero");
    switch (op) {
    case JOP_ADD: *out = jv_float(a + b); return MICA_OK;
    case JOP_SUB: *out = jv_float(a - b); return MICA_OK;
    case JOP_MUL: *out = jv_float(a * b); return MICA_OK;
    case JOP_DIV: *out = jv_float(a / b); return MICA_OK;
    case JOP_POW:
        if (a == 0.0 && b < 0) return jr_fail(r, "0.0 cannot be raised to a negative power");
        if (a < 0 && isfinite(a) && isfinite(b) && b != floor(b)) return jr_unsupported(r, "complex numbers");
        q = pow(a, b);
        if (isinf(q) && isfinite(a) && isfinite(b)) return jr_fail(r, "Numerical result out of range");
        *out = jv_float(q);
        return MICA_OK;
    default:
        float_divmod(a, b, &q, &m);
        *out = jv_float(op == JOP_MOD ? m : q);
        return MICA_OK;
    }
}

static mica_status list_repeat(jr *r, jv a, int64_t n, jv *out) {
    jlist *l;
    size_t len = a.list->n;
    if (n < 0 || len == 0) n = 0;
    if (n && len > (size_t)(JINJA_MAX_MEMORY / (int64_t)sizeof(jv)) / (size_t)n) {
        r->arena.over = true;
        return jr_nomem(r);
    }
    TRY(jlist_new(r, &l, len * (size_t)n));
    for (int64_t i = 0; i < n; i++) memcpy(l->v + (size_t)i * len, a.list->v, len * sizeof *l->v);
    l->n = len * (size_t)n;
    *out = a.kind == JV_LIST ? jv_list(l) : jv_tuple(l);
    return jr_charge(r, l->n);
}

static mica_status list_concat(jr *r, jv a, jv b, jv *out) {
    jlist *l;
    TRY(jlist_new(r, &l, a.list->n + b.list->n));
    if (a.list->n) memcpy(l->v, a.list->v, a.list->n * sizeof *l->v);
    if (b.list->n) memcpy(l->v + a.list->n, b.list->v, b.list->n * sizeof *l->v);
    l->n = a.list->n + b.list->n;
    *out = a.kind == JV_LIST ? jv_list(l) : jv_tuple(l);
    return jr_charge(r, l->n);
}

static mica_status repeat(jr *r, jv seq, jv times, jv *out) {
    if (seq.kind == JV_STR) return jstr_repeat(r, out, seq.s, jv_as_int(times));
    return list_repeat(r, seq, jv_as_int(times), out);
}

static bool is_sequence(jv v) {
    return v.kind == JV_STR || v.kind == JV_LIST || v.kind == JV_TUPLE;
}

mica_status jv_math(jr *r, jop op, jv a, jv b, jv *out) {
    if (op == JOP_MOD && a.kind == JV_STR) return jformat_percent(r, a.s, b, out);
    if (jv_is_int(a) && jv_is_int(b)) return int_math(r, op, jv_as_int(a), jv_as_int(b), out);
    if (jv_is_num(a) && jv_is_num(b)) return float_math(r, op, jv_as_float(a), jv_as_float(b), out);
    if (a.kind == JV_UNDEF) return jv_undef_raise(r, a);
    if (b.kind == JV_UNDEF) return jv_undef_raise(r, b);
    if (op == JOP_ADD && a.kind == JV_STR && b.kind == JV_STR) return jstr_concat(r, out, a.s, b.s);
    if (op == JOP_ADD && a.kind == b.kind && is_sequence(a)) return list_concat(r, a, b, out);
    if (op == JOP_ADD && is_sequence(a))
        return jr_fail(r, "can only concatenate %s (not \"%s\") to %s", jv_type(a), jv_type(b), jv_type(a));
    if (op == JOP_MUL && is_sequence(a) && jv_is_int(b)) return repeat(r, a, b, out);
    if (op == JOP_MUL && jv_is_int(a) && is_sequence(b)) return repeat(r, b, a, out);
    if (op == JOP_MUL && (is_sequence(a) || is_sequence(b)))
        return jr_fail(r, "can't multiply sequence by non-int of type '%s'", jv_type(is_sequence(a) ? b : a));
    if (a.kind == JV_VIEW || b.kind == JV_VIEW) return jr_unsupported(r, "arithmetic of dict views");
    return bad_operands(r, op, a, b);
}

mica_status jv_neg(jr *r, jv a, jv *out) {
    if (a.kind == JV_UNDEF) return jv_undef_raise(r, a);
    if (!jv_is_num(a)) return jr_fail(r, "bad operand type for unary -: '%s'", jv_type(a));
    if (a.kind != JV_FLOAT && jv_as_int(a) == INT64_MIN) return overflow(r);
    *out = a.kind == JV_FLOAT ? jv_float(-a.f) : jv_int(-jv_as_int(a));
    return MICA_OK;
}

mica_status jv_length(jr *r, jv v, int64_t *out) {
    switch (v.kind) {
    case JV_UNDEF: *out = 0; return MICA_OK;
    case JV_STR: *out = (int64_t)jstr_n_cp(v.s); return v.s->ascii ? MICA_OK : jr_charge(r, v.s->n);
    case JV_LIST:
    case JV_TUPLE: *out = (int64_t)v.list->n; return MICA_OK;
    case JV_DICT:
    case JV_VIEW: *out = (int64_t)v.dict->n; return MICA_OK;
    case JV_RANGE: *out = v.range->n; return MICA_OK;
    case JV_LOOP: {
        jv length;
        bool found;
        TRY(jloop_attr(r, v.loop, SLICE_LIT("length"), &length, &found));
        *out = length.i;
        return MICA_OK;
    }
    default: return jr_fail(r, "object of type '%s' has no len()", jv_type(v));
    }
}
