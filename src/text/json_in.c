/* Strict reading of JSON from outside. */
#include "text/json_in.h"

/* The deepest nesting of brackets outside of strings; *at gets where it first passed `limit`. Says nothing
 * about whether the text is well-formed. */
static bool deeper_than(slice s, int limit, size_t *at) {
    int depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        if (c == '"') in_string = !in_string;
        if (in_string) {
            i += c == '\\';
            continue;
        }
        *at = i;
        if (c == ']' || c == '}') depth -= depth > 0;
        if ((c == '[' || c == '{') && ++depth > limit) return true;
    }
    return false;
}

static void position_of(slice s, size_t at, int *line, int *column) {
    *line = 1;
    *column = 1;
    for (size_t i = 0; i < at; i++) {
        ++*column;
        if (s.p[i] != '\n') continue;
        ++*line;
        *column = 1;
    }
}

static mica_status check_kind(json_t **out, const json_in_options *opt, mica_error *err) {
    bool good = opt->kind == JSON_IN_ANY || (opt->kind == JSON_IN_OBJECT && json_is_object(*out)) ||
                (opt->kind == JSON_IN_ARRAY && json_is_array(*out));
    if (good) return MICA_OK;
    json_decref(*out);
    *out = NULL;
    const char *want = opt->kind == JSON_IN_OBJECT ? "an object" : "an array";
    return fail(err, MICA_E_ARG, "%s: JSON that is not %s", opt->what, want);
}

mica_status json_in_parse(json_t **out, slice text, const json_in_options *opt, mica_error *err) {
    json_error_t e;
    size_t at = 0, max = opt->max_bytes ? opt->max_bytes : JSON_IN_MAX_BYTES;
    int line, column;
    *out = NULL;
    if (text.n > max) return fail(err, MICA_E_ARG, "%s: %zu bytes: more than %zu", opt->what, text.n, max);
    if (deeper_than(text, JSON_IN_MAX_DEPTH, &at)) {
        position_of(text, at, &line, &column);
        return fail(err, MICA_E_ARG, "%s: line %d column %d: JSON nested deeper than %d", opt->what, line,
                    column, JSON_IN_MAX_DEPTH);
    }
    size_t flags = JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES | (opt->kind == JSON_IN_ANY ? JSON_DECODE_ANY : 0);
    *out = json_loadb(text.p ? text.p : "", text.n, flags, &e);
    if (*out) return check_kind(out, opt, err);
    if (json_error_code(&e) == json_error_out_of_memory)
        return fail(err, MICA_E_NOMEM, "%s: %zu bytes of JSON: out of memory", opt->what, text.n);
    return fail(err, MICA_E_ARG, "%s: line %d column %d: %s", opt->what, e.line, e.column, e.text);
}
