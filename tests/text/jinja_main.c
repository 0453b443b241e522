/* Renders templates in batch for jinja_oracle.py. One JSON object per input line:
 *     {"template": "...", "context": {...}, "now": 1700000000, "trusted": ["bos_token"], "role": ["user"]}
 * and one per output line: {"text": "...", "spans": [[begin, end, trusted], ...]} or {"status": "...",
 * "error": "..."}. A template that is the same as on the line before is parsed once. */
#include "base/mem.h"
#include "text/jinja.h"

#include <stdio.h>
#include <stdlib.h>

static size_t words_of(const json_t *array, const char *out[16]) {
    size_t n = json_array_size(array);
    if (n > 16) n = 16;
    for (size_t i = 0; i < n; i++) out[i] = json_string_value(json_array_get(array, i));
    return n;
}

static json_t *failure(mica_status st, const mica_error *err) {
    return json_pack("{s:s, s:s}", "status", mica_status_name(st), "error", err->text);
}

static json_t *answer(jinja_template **t, char **source, const json_t *job) {
    mica_error err = {0};
    jinja_output out;
    const char *trusted[16], *role[16];
    slice text = {json_string_value(json_object_get(job, "template")),
                  json_string_length(json_object_get(job, "template"))};
    if (!*source || !slice_is(text, *source)) {
        jinja_free(*t);
        free(*source);
        *source = NULL;
        mica_status st = jinja_parse(t, text, &err);
        if (st != MICA_OK) return failure(st, &err);
        *source = strdup(text.p);
    }
    jinja_options opt = {
        .trusted = trusted, .role = role, .now_s = json_integer_value(json_object_get(job, "now"))};
    opt.n_trusted = words_of(json_object_get(job, "trusted"), trusted);
    opt.n_role = words_of(json_object_get(job, "role"), role);
    mica_status st = jinja_render(&out, *t, json_object_get(job, "context"), &opt, &err);
    if (st != MICA_OK) return failure(st, &err);
    json_t *spans = json_array();
    for (size_t i = 0; i < out.n_span; i++)
        json_array_append_new(spans, json_pack("[I, I, b]", (json_int_t)out.span[i].begin,
                                               (json_int_t)out.span[i].end, out.span[i].trusted));
    json_t *made = json_pack("{s:o, s:o}", "text", json_stringn(out.text, out.n), "spans", spans);
    jinja_output_fini(&out);
    return made;
}

int main(void) {
    jinja_template *t = NULL;
    char *source = NULL, *line = NULL;
    size_t cap = 0;
    for (ssize_t n; (n = getline(&line, &cap, stdin)) > 0;) {
        json_error_t e;
        json_t *job = json_loadb(line, (size_t)n, JSON_ALLOW_NUL, &e);
        if (!job) {
            fprintf(stderr, "jinja_main: %s\n", e.text);
            return 2;
        }
        json_t *made = answer(&t, &source, job);
        json_dumpf(made, stdout, JSON_COMPACT);
        putchar('\n');
        json_decref(made);
        json_decref(job);
    }
    jinja_free(t);
    free(source);
    free(line);
    return 0;
}
