/* Tests: what stands behind `is`. */
#include "text/jinja_int.h"

#define SIMPLE(name, expr)                                                                                   \
    static mica_status t_##name(jr *r, jv v, jcall *c, jv *out) {                                            \
        (void)r;                                                                                             \
        (void)c;                                                                                             \
        *out = jv_bool(expr);                                                                                \
        return MICA_OK;                                                                                      \
    }

static bool is_sequence(jv v) {
    switch (v.kind) { // has a length and items by key or position
    case JV_UNDEF:
    case JV_STR:
    case JV_LIST:
    case JV_TUPLE:
    case JV_DICT:
    case JV_RANGE: return true;
    default: return false;
    }
}

static bool is_callable(jv v) {
    switch (v.kind) {
    case JV_UNDEF: // has __call__, to raise in it
    case JV_MACRO:
    case JV_FUNC:
    case JV_METHOD:
    case JV_LOOP:
    case JV_JOINER: return true;
    default: return false;
    }
}

SIMPLE(defined, v.kind != JV_UNDEF)
SIMPLE(undefined, v.kind == JV_UNDEF)
SIMPLE(none, v.kind == JV_NONE)
SIMPLE(boolean, v.kind == JV_BOOL)
SIMPLE(true, v.kind == JV_BOOL && v.b)
SIMPLE(false, v.kind == JV_BOOL && !v.b)
SIMPLE(integer, v.kind == JV_INT)
SIMPLE(float, v.kind == JV_FLOAT)
SIMPLE(number, jv_is_num(v))
SIMPLE(string, v.kind == JV_STR)
SIMPLE(mapping, v.kind == JV_DICT)
SIMPLE(iterable, jv_iterable(v))
SIMPLE(sequence, is_sequence(v))
SIMPLE(callable, is_callable(v))
SIMPLE(sameas, jv_same(v, c->slot[0]))
SIMPLE(escaped, v.kind == JV_STR && v.s->markup)

static mica_status known(jr *r, jv v, const jbuiltin *(*find)(slice), jv *out) {
    if (!jv_hashable(v)) return jr_fail(r, "unhashable type: '%s'", jv_type(v)); // Python looks into a dict
    *out = jv_bool(v.kind == JV_STR && find(jstr_slice(v.s)));
    return MICA_OK;
}

static mica_status t_filter(jr *r, jv v, jcall *c, jv *out) {
    (void)c;
    return known(r, v, jfilter_find, out);
}
static mica_status t_test(jr *r, jv v, jcall *c, jv *out) {
    (void)c;
    return known(r, v, jtest_find, out);
}

static mica_status remainder_is(jr *r, jv v, jv by, int64_t want, jv *out) {
    jv m;
    bool same;
    TRY(jv_math(r, JOP_MOD, v, by, &m));
    TRY(jv_equal(r, m, jv_int(want), &same));
    *out = jv_bool(same);
    return MICA_OK;
}

static mica_status t_odd(jr *r, jv v, jcall *c, jv *out) {
    (void)c;
    return remainder_is(r, v, jv_int(2), 1, out);
}
static mica_status t_even(jr *r, jv v, jcall *c, jv *out) {
    (void)c;
    return remainder_is(r, v, jv_int(2), 0, out);
}
static mica_status t_divisibleby(jr *r, jv v, jcall *c, jv *out) {
    return remainder_is(r, v, c->slot[0], 0, out);
}

static mica_status has_case(jr *r, jv v, const char *method, jv *out) {
    jv s;
    jcall none = {0};
    TRY(jv_to_str(r, v, &s));
    return jcall_builtin(r, jstr_method_find(slice_of(method)), s, &none, out);
}

static mica_status t_lower(jr *r, jv v, jcall *c, jv *out) {
    (void)c;
    return has_case(r, v, "islower", out);
}
static mica_status t_upper(jr *r, jv v, jcall *c, jv *out) {
    (void)c;
    return has_case(r, v, "isupper", out);
}

#define COMPARE(name, op)                                                                                    \
    static mica_status t_##name(jr *r, jv v, jcall *c, jv *out) {                                            \
        *out = jv_bool(false);                                                                               \
        return jv_compare(r, op, v, c->slot[0], &out->b);                                                    \
    }
COMPARE(eq, JOP_EQ)
COMPARE(ne, JOP_NE)
COMPARE(lt, JOP_LT)
COMPARE(le, JOP_LE)
COMPARE(gt, JOP_GT)
COMPARE(ge, JOP_GE)
COMPARE(in, JOP_IN)

const jbuiltin *jtest_find(slice name) {
    static const jbuiltin table[] = {
        {"odd", t_odd, ""},
        {"even", t_even, ""},
        {"divisibleby", t_divisibleby, "num"},
        {"defined", t_defined, ""},
        {"undefined", t_undefined, ""},
        {"filter", t_filter, ""},
        {"test", t_test, ""},
        {"none", t_none, ""},
        {"boolean", t_boolean, ""},
        {"false", t_false, ""},
        {"true", t_true, ""},
        {"integer", t_integer, ""},
        {"float", t_float, ""},
        {"lower", t_lower, ""},
        {"upper", t_upper, ""},
        {"string", t_string, ""},
        {"mapping", t_mapping, ""},
        {"number", t_number, ""},
        {"sequence", t_sequence, ""},
        {"iterable", t_iterable, ""},
        {"callable", t_callable, "/"},
        {"sameas", t_sameas, "other"},
        {"escaped", t_escaped, ""},
        {"in", t_in, "seq"},
        {"eq", t_eq, "/other"},
        {"equalto", t_eq, "/other"},
        {"==", t_eq, "/other"},
        {"ne", t_ne, "/other"},
        {"!=", t_ne, "/other"},
        {"gt", t_gt, "/other"},
        {"greaterthan", t_gt, "/other"},
        {">", t_gt, "/other"},
        {"ge", t_ge, "/other"},
        {">=", t_ge, "/other"},
        {"lt", t_lt, "/other"},
        {"lessthan", t_lt, "/other"},
        {"<", t_lt, "/other"},
        {"le", t_le, "/other"},
        {"<=", t_le, "/other"},
    };
    return jbuiltin_find(table, sizeof table / sizeof *table, name);
}
