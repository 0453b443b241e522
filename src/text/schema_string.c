/* Strings: any, of some length, of a format, of a pattern; and sets of words. */
#include "text/schema_int.h"

#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

gram_expr schema_lit(gram *g, const char *text) {
    return gram_bytes(g, slice_of(text));
}

/* What stands around Gemma 4's strings; nothing inside is escaped. */
#define GEMMA_QUOTE "<|\"|>"

gram_expr schema_text(gram *g, const json_t *string) {
    char *text = g->gemma && json_is_string(string) ? NULL : json_dumps(string, JSON_ENCODE_ANY);
    gram_expr e = 0;
    if (g->gemma && json_is_string(string)) {
        gram_push(g, schema_lit(g, GEMMA_QUOTE));
        gram_push(g, gram_bytes(g, (slice){json_string_value(string), json_string_length(string)}));
        gram_push(g, schema_lit(g, GEMMA_QUOTE));
        e = gram_seq(g, 3);
    } else if (text) {
        e = schema_lit(g, text);
    } else {
        gram_fail(g, MICA_E_NOMEM, "schema: out of memory");
    }
    free(text); // jansson's own
    return e;
}

static gram_expr gemma_string(gram *g) {
    gram_push(g, schema_lit(g, GEMMA_QUOTE));
    gram_push(g, gram_until(g, SLICE_LIT(GEMMA_QUOTE), gram_seq(g, 0), 0));
    return gram_seq(g, 2);
}

static gram_expr quoted(gram *g, gram_expr inside) {
    gram_push(g, schema_lit(g, "\""));
    gram_push(g, inside);
    gram_push(g, schema_lit(g, "\""));
    return gram_seq(g, 3);
}

/* ---- any character ---- */

static gram_expr hex_digits(gram *g, uint32_t n) {
    static const gram_range hex[] = {{'0', '9'}, {'A', 'F'}, {'a', 'f'}};
    return gram_repeat(g, gram_class_of(g, hex, 3, false), n, n);
}

/* \uXXXX that stands for a character: no half of a pair alone. */
static gram_expr code_unit_escapes(gram *g) {
    static const gram_range no_d[] = {{'0', '9'}, {'A', 'C'}, {'E', 'F'}, {'a', 'c'}, {'e', 'f'}};
    static const gram_range d[] = {{'D', 'D'}, {'d', 'd'}}, low[] = {{'0', '7'}};
    static const gram_range first[] = {{'8', '9'}, {'A', 'B'}, {'a', 'b'}};
    static const gram_range second[] = {{'C', 'F'}, {'c', 'f'}};
    gram_push(g, gram_class_of(g, no_d, 5, false));
    gram_push(g, hex_digits(g, 3));
    gram_push(g, gram_seq(g, 2));
    gram_push(g, gram_class_of(g, d, 2, false));
    gram_push(g, gram_class_of(g, low, 1, false));
    gram_push(g, hex_digits(g, 2));
    gram_push(g, gram_seq(g, 3));
    gram_push(g, gram_class_of(g, d, 2, false));
    gram_push(g, gram_class_of(g, first, 3, false));
    gram_push(g, hex_digits(g, 2));
    gram_push(g, schema_lit(g, "\\u"));
    gram_push(g, gram_class_of(g, d, 2, false));
    gram_push(g, gram_class_of(g, second, 2, false));
    gram_push(g, hex_digits(g, 2));
    gram_push(g, gram_seq(g, 7));
    return gram_alt(g, 3);
}

static gram_expr any_char(gram *g) {
    static const gram_range out[] = {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};
    static const gram_range letter[] = {{'"', '"'}, {'\\', '\\'}, {'/', '/'}, {'b', 'b'},
                                        {'f', 'f'}, {'n', 'n'},   {'r', 'r'}, {'t', 't'}};
    gram_push(g, gram_class_of(g, out, 3, true));
    gram_push(g, schema_lit(g, "\\"));
    gram_push(g, gram_class_of(g, letter, 8, false));
    gram_push(g, schema_lit(g, "u"));
    gram_push(g, code_unit_escapes(g));
    gram_push(g, gram_seq(g, 2));
    gram_push(g, gram_alt(g, 2));
    gram_push(g, gram_seq(g, 2));
    return gram_alt(g, 2);
}

/* A rule for each length, so that what its middle allows is learned once for all strings of the schema. */
static gram_expr of_length(gram *g, uint32_t lo, uint32_t hi) {
    char name[48];
    const int n = snprintf(name, sizeof name, "a string of %u to %u", lo, hi);
    const uint32_t rule = gram_rule_named(g, (slice){name, (size_t)n});
    if (g->st == MICA_OK && g->rule[rule].body == GRAM_NONE)
        gram_define(g, rule, g->gemma ? gemma_string(g) : quoted(g, gram_repeat(g, any_char(g), lo, hi)));
    return gram_call(g, rule);
}

gram_expr schema_plain_string(gram *g) {
    return of_length(g, 0, GRAM_NONE);
}

/* ---- formats ---- */

#define MONTH_30 "(0[469]|11)"
#define MONTH_31 "(0[13578]|1[02])"
#define LEAP "([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)"
#define YEAR "([1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])"
#define DAY_28 "(0[1-9]|1[0-9]|2[0-8])"
#define DATE                                                                                                 \
    "(" YEAR "-(" MONTH_31 "-(" DAY_28 "|29|30|31)|" MONTH_30 "-(" DAY_28 "|29|30)|02-" DAY_28 ")|" LEAP     \
    "-02-29)"
#define TIME "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
#define OCTET "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define LABEL "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"

static const struct {
    const char *name, *pattern;
} FORMAT[] = {
    {"date", "^" DATE "$"},
    {"time", "^" TIME "$"},
    {"date-time", "^" DATE "T" TIME "$"},
    {"uuid", "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"},
    {"ipv4", "^(" OCTET "\\.){3}" OCTET "$"},
    {"hostname", "^(" LABEL "\\.){0,3}" LABEL "$"},
    {"email", "^[A-Za-z0-9_+-]+(\\.[A-Za-z0-9_+-]+)*@(" LABEL "\\.){1,3}[A-Za-z]{2,24}$"},
    {"duration", "^P([0-9]{1,6}W|[0-9]{1,6}D|[0-9]{1,6}D?T[0-9]{1,6}S)$"},
};

static const char *format_pattern(const char *name) {
    for (size_t i = 0; i < sizeof FORMAT / sizeof *FORMAT; i++)
        if (strcmp(FORMAT[i].name, name) == 0) return FORMAT[i].pattern;
    return NULL;
}

/* One rule for each pattern. false: it cannot be done, and is left out. */
static bool of_pattern(schema *s, const char *keyword, slice pattern, gram_expr *out) {
    gram *g = s->g;
    const char *why = NULL;
    strbuf name = {0};
    strbuf_puts(&name, "pattern ");
    strbuf_put(&name, pattern.p, pattern.n);
    const uint32_t rule = gram_rule_named(g, (slice){strbuf_cstr(&name), name.n});
    if (name.failed) gram_fail(g, MICA_E_NOMEM, "schema: out of memory");
    strbuf_fini(&name);
    if (g->st != MICA_OK) return false;
    if (g->rule[rule].body == GRAM_NONE) {
        gram_expr e;
        if (!schema_regex(g, pattern, &e, &why)) {
            strbuf text = {0};
            strbuf_printf(&text, "%s: %s", keyword, why ? why : "is too large");
            schema_unsupported(s, strbuf_cstr(&text));
            strbuf_fini(&text);
            return false;
        }
        gram_define(g, rule, quoted(g, e));
    }
    *out = gram_call(g, rule);
    return true;
}

/* ---- all of it ---- */

/* A length. Limits that no writing out could hold are as good as none. */
static uint32_t read_length(schema *s, const json_t *j, const char *key, uint32_t none) {
    const json_t *v = json_object_get(j, key);
    if (!v) return none;
    const double d = json_number_value(v);
    if (!json_is_number(v) || d < 0 || d != floor(d)) {
        schema_refuse(s, key, "is no length");
        return none;
    }
    if (d > GRAM_MAX_REPEAT) {
        if (none == 0) schema_refuse(s, key, "is more than 65536");
        return GRAM_NONE;
    }
    return (uint32_t)d;
}

gram_expr schema_string(schema *s, const json_t *j) {
    const json_t *pattern = json_object_get(j, "pattern"), *format = json_object_get(j, "format");
    const uint32_t lo = read_length(s, j, "minLength", 0), hi = read_length(s, j, "maxLength", GRAM_NONE);
    const bool sized = lo > 0 || hi != GRAM_NONE;
    gram_expr e;
    if (pattern && !json_is_string(pattern)) schema_refuse(s, "pattern", "is no string");
    if (format && !json_is_string(format)) schema_refuse(s, "format", "is no string");
    if (s->g->st != MICA_OK) return 0;
    if (lo > hi) return schema_refuse(s, "minLength", "is more than maxLength"), 0u;
    if (s->g->gemma) return of_length(s->g, 0, GRAM_NONE);
    if (pattern) {
        const slice text = {json_string_value(pattern), json_string_length(pattern)};
        if (of_pattern(s, "pattern", text, &e)) {
            if (sized)
                schema_unsupported(s, lo > 0 ? "minLength beside pattern" : "maxLength beside pattern");
            if (format) schema_unsupported(s, "format beside pattern");
            return e;
        }
    } else if (format) {
        const char *known = format_pattern(json_string_value(format));
        if (!known) schema_unsupported(s, "format");
        if (known && of_pattern(s, "format", slice_of(known), &e)) {
            if (sized) schema_unsupported(s, lo > 0 ? "minLength beside format" : "maxLength beside format");
            return e;
        }
    }
    return of_length(s->g, lo, hi);
}

/* ---- words ---- */

static int by_text(const void *a, const void *b) {
    const slice *x = a, *y = b;
    const int c = memcmp(x->p, y->p, x->n < y->n ? x->n : y->n);
    return c ? c : (x->n > y->n) - (x->n < y->n);
}

/* The sorted words [0, n), all alike in their first `at` bytes. */
static gram_expr words_from(gram *g, const slice *w, size_t n, size_t at, int depth) {
    size_t same = at;
    while (same < w[0].n && same < w[n - 1].n && w[0].p[same] == w[n - 1].p[same]) same++;
    const gram_expr prefix = gram_bytes(g, (slice){w[0].p + at, same - at});
    if (n == 1 || (w[0].n == w[n - 1].n && same == w[0].n)) return prefix;
    gram_push(g, prefix);
    uint32_t n_alt = 0;
    for (size_t i = 0, k; i < n; i = k) {
        for (k = i + 1;
             k < n && depth < 40 && w[i].n > same && w[k].n > same && w[k].p[same] == w[i].p[same];)
            k++;
        gram_push(g, w[i].n == same ? gram_seq(g, 0) : words_from(g, w + i, k - i, same, depth + 1));
        n_alt++;
    }
    gram_push(g, gram_alt(g, n_alt));
    return gram_seq(g, 2);
}

gram_expr schema_words(gram *g, slice *word, size_t n) {
    qsort(word, n, sizeof *word, by_text);
    return words_from(g, word, n, 0, 0);
}
