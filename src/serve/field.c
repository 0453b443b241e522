/* Typed reading of JSON members. */
#include "serve/field.h"

#include <math.h>

/* Before jansson recurses: the deepest nesting of brackets outside of strings. */
static bool too_deep(slice s) {
    int depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < s.n; i++) {
        const char c = s.p[i];
        if (c == '"') in_string = !in_string;
        if (in_string) {
            i += c == '\\';
            continue;
        }
        if (c == ']' || c == '}') depth -= depth > 0;
        if ((c == '[' || c == '{') && ++depth > FIELD_MAX_DEPTH) return true;
    }
    return false;
}

mica_status field_body(json_t **out, slice body, problem *p) {
    json_error_t e;
    *out = NULL;
    if (body.n == 0) return problem_set(p, 400, NULL, "body: empty: it has to be a JSON object");
    if (too_deep(body)) return problem_set(p, 400, NULL, "body: JSON nested deeper than %d", FIELD_MAX_DEPTH);
    *out = json_loadb(body.p, body.n, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &e);
    if (!*out && json_error_code(&e) == json_error_out_of_memory)
        return problem_set(p, 500, NULL, "body: %zu bytes of JSON: out of memory", body.n);
    // The library's text quotes the body, which is nobody else's business; the place is enough.
    if (!*out) {
        const char *why = "is no JSON";
        if (json_error_code(&e) == json_error_invalid_utf8) why = "is no UTF-8";
        if (json_error_code(&e) == json_error_duplicate_key) why = "has a name twice";
        if (json_error_code(&e) == json_error_numeric_overflow) why = "has a number that is too big";
        return problem_set(p, 400, NULL, "body: line %d, column %d: it %s", e.line, e.column, why);
    }
    if (json_is_object(*out)) return MICA_OK;
    json_decref(*out);
    *out = NULL;
    return problem_set(p, 400, NULL, "body: it has to be a JSON object");
}

const char *field_kind(const json_t *v) {
    switch (v ? json_typeof(v) : JSON_NULL) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "an array";
    case JSON_STRING: return "a string";
    case JSON_INTEGER: return "an integer";
    case JSON_REAL: return "a number";
    case JSON_TRUE:
    case JSON_FALSE: return "a boolean";
    default: return "null";
    }
}

static mica_status fail_kind(const json_t *v, const char *name, const char *want, problem *p) {
    return problem_set(p, 400, name, "%s: it has to be %s, not %s", name, want, field_kind(v));
}

static bool absent(const json_t *v) {
    return !v || json_is_null(v);
}

static mica_status fail_range(const char *name, field_range r, problem *p) {
    if (r.hi >= 9e18) return problem_set(p, 400, name, "%s: it has to be at least %.10g", name, r.lo);
    return problem_set(p, 400, name, "%s: it has to be from %.10g to %.10g", name, r.lo, r.hi);
}

mica_status field_int(int64_t *out, const json_t *o, const char *name, field_range r, problem *p) {
    const json_t *v = json_object_get(o, name);
    if (absent(v)) return MICA_OK;
    double real = json_number_value(v);
    // 5.0 is what some languages write for 5.
    if (!json_is_integer(v) && !(json_is_real(v) && real == floor(real) && fabs(real) < 1e15))
        return fail_kind(v, name, "an integer", p);
    const int64_t n = json_is_integer(v) ? json_integer_value(v) : (int64_t)real;
    if ((double)n < r.lo || (double)n > r.hi) return fail_range(name, r, p);
    *out = n;
    return MICA_OK;
}

mica_status field_real(double *out, const json_t *o, const char *name, field_range r, problem *p) {
    const json_t *v = json_object_get(o, name);
    if (absent(v)) return MICA_OK;
    if (!json_is_number(v)) return fail_kind(v, name, "a number", p);
    const double x = json_number_value(v);
    if (!(x >= r.lo && x <= r.hi)) return fail_range(name, r, p);
    *out = x;
    return MICA_OK;
}

mica_status field_bool(bool *out, const json_t *o, const char *name, problem *p) {
    const json_t *v = json_object_get(o, name);
    if (absent(v)) return MICA_OK;
    if (!json_is_boolean(v)) return fail_kind(v, name, "true or false", p);
    *out = json_is_true(v);
    return MICA_OK;
}

mica_status field_text(const char **out, const json_t *o, const char *name, problem *p) {
    const json_t *v = json_object_get(o, name);
    if (absent(v)) return MICA_OK;
    if (!json_is_string(v)) return fail_kind(v, name, "a string", p);
    if (strlen(json_string_value(v)) != json_string_length(v))
        return problem_set(p, 400, name, "%s: it must not hold a NUL", name);
    *out = json_string_value(v);
    return MICA_OK;
}

mica_status field_object(json_t **out, const json_t *o, const char *name, problem *p) {
    json_t *v = json_object_get(o, name);
    if (absent(v)) return MICA_OK;
    if (!json_is_object(v)) return fail_kind(v, name, "an object", p);
    *out = v;
    return MICA_OK;
}

mica_status field_array(json_t **out, const json_t *o, const char *name, problem *p) {
    json_t *v = json_object_get(o, name);
    if (absent(v)) return MICA_OK;
    if (!json_is_array(v)) return fail_kind(v, name, "an array", p);
    *out = v;
    return MICA_OK;
}

mica_status field_word(int *out, const json_t *o, const char *name, const char *const *words, problem *p) {
    const char *text = NULL;
    TRY(field_text(&text, o, name, p));
    if (!text) return MICA_OK;
    for (int i = 0; words[i]; i++) {
        if (strcmp(words[i], text) != 0) continue;
        *out = i;
        return MICA_OK;
    }
    strbuf list = {0};
    for (int i = 0; words[i]; i++) strbuf_printf(&list, "%s\"%s\"", i ? ", " : "", words[i]);
    mica_status st =
        problem_set(p, 400, name, "%s: \"%.60s\" is not known: it can be %s", name, text, strbuf_cstr(&list));
    strbuf_fini(&list);
    return st;
}
