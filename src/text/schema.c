/* Schemas: references, alternatives, types. */
#include "text/schema.h"

#include "base/mem.h"
#include "text/schema_int.h"

#include <math.h>

/* ---- where we are ---- */

void schema_refuse(schema *s, const char *keyword, const char *why) {
    gram_fail(s->g, MICA_E_ARG, "schema: %s: '%s' %s", s->where.p, keyword, why);
}

void schema_unsupported(schema *s, const char *keyword) {
    if (!s->lenient) schema_refuse(s, keyword, "is not supported");
}

/* "~" and "/" of a key as JSON pointers (RFC 6901) write them. */
size_t schema_enter(schema *s, const char *key) {
    const size_t mark = s->where.n;
    strbuf_putc(&s->where, '/');
    for (; *key; key++) {
        if (*key == '~' || *key == '/')
            strbuf_puts(&s->where, *key == '~' ? "~0" : "~1");
        else
            strbuf_putc(&s->where, *key);
    }
    if (s->where.failed) gram_fail(s->g, MICA_E_NOMEM, "schema: out of memory");
    return mark;
}

size_t schema_enter_index(schema *s, const char *key, size_t i) {
    const size_t mark = schema_enter(s, key);
    strbuf_printf(&s->where, "/%zu", i);
    return mark;
}

void schema_leave(schema *s, size_t mark) {
    if (!s->where.failed) strbuf_cut(&s->where, mark);
}

/* ---- references ---- */

/* The part of a pointer up to the next '/', unescaped. */
static bool next_key(const char **p, strbuf *key) {
    strbuf_clear(key);
    if (**p != '/') return false;
    for (++*p; **p && **p != '/'; ++*p) {
        char c = **p;
        if (c == '~' && ((*p)[1] == '0' || (*p)[1] == '1')) c = *++*p == '0' ? '~' : '/';
        strbuf_putc(key, c);
    }
    return !key->failed;
}

static const json_t *resolve(const schema *s, const char *ref) {
    const json_t *j = s->root;
    strbuf key = {0};
    const char *p = ref + 1;
    if (ref[0] != '#' || (*p && *p != '/')) return NULL;
    while (j && next_key(&p, &key)) {
        const char *name = strbuf_cstr(&key);
        char *end;
        const unsigned long i = strtoul(name, &end, 10);
        if (json_is_array(j))
            j = name[0] && !*end ? json_array_get(j, i) : NULL;
        else
            j = json_object_get(j, name);
    }
    strbuf_fini(&key);
    return *p ? NULL : j;
}

/* A rule whose body is made later: schemas may refer to what is around them. */
static gram_expr later(schema *s, const char *pointer, const json_t *j) {
    strbuf where = {0};
    strbuf_puts(&where, s->name);
    strbuf_puts(&where, pointer);
    if (where.failed) gram_fail(s->g, MICA_E_NOMEM, "schema: out of memory");
    const uint32_t rule = gram_rule_named(s->g, (slice){strbuf_cstr(&where), where.n});
    bool known = s->g->st != MICA_OK;
    for (uint32_t i = 0; i < s->n_task && !known; i++) known = s->task[i].rule == rule;
    if (known || !gram_grow(s->g, &s->task, &s->cap_task, s->n_task + 1u, sizeof *s->task)) {
        strbuf_fini(&where);
    } else {
        s->task[s->n_task++] =
            (schema_task){.rule = rule, .schema = json_incref((json_t *)j), .where = strbuf_take(&where)};
    }
    return gram_call(s->g, rule);
}

static const json_t *reference(schema *s, const json_t *j) {
    const char *ref = json_string_value(json_object_get(j, "$ref"));
    const json_t *to = ref ? resolve(s, ref) : NULL;
    if (!ref) {
        schema_refuse(s, "$ref", "is no string");
    } else if (!to) {
        strbuf b = {0};
        strbuf_printf(&b, "'%.200s' leads to nothing in this schema", ref);
        schema_refuse(s, "$ref", strbuf_cstr(&b));
        strbuf_fini(&b);
    }
    return to;
}

/* ---- keywords ---- */

static const char *const REMARK[] = {"title",    "description", "default",  "examples",     "example",
                                     "$schema",  "$id",         "id",       "$comment",     "deprecated",
                                     "readOnly", "writeOnly",   "$defs",    "definitions",  "$anchor",
                                     "strict",   "$ref",        "nullable", "discriminator"};
/* Known to JSON Schema, and nothing a grammar could hold to. */
static const char *const CANNOT[] = {"not",
                                     "if",
                                     "then",
                                     "else",
                                     "dependentSchemas",
                                     "dependentRequired",
                                     "dependencies",
                                     "contains",
                                     "minContains",
                                     "maxContains",
                                     "patternProperties",
                                     "propertyNames",
                                     "minProperties",
                                     "uniqueItems",
                                     "$dynamicRef",
                                     "maxProperties",
                                     "unevaluatedProperties",
                                     "unevaluatedItems",
                                     "$recursiveRef"};

static bool in(const char *key, const char *const *list, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(key, list[i]) == 0) return true;
    return false;
}

static void check_keywords(schema *s, const json_t *j) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)j, key, value) {
        if (!in(key, CANNOT, sizeof CANNOT / sizeof *CANNOT)) continue;
        // asking for nothing, or for what holds anyway
        const bool idle = json_is_false(value) && (key[0] == 'u' || strcmp(key, "not") == 0);
        const bool none =
            json_is_integer(value) && json_integer_value(value) == 0 && strncmp(key, "min", 3) == 0;
        if (!idle && !none) schema_unsupported(s, key);
    }
}

/* Whether it says anything but remarks besides `except`. */
static bool has_company(const json_t *j, const char *except) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)j, key, value) {
        if (strcmp(key, except) != 0 && !in(key, REMARK, sizeof REMARK / sizeof *REMARK)) return true;
    }
    return false;
}

static json_t *without(const json_t *j, const char *key) {
    json_t *copy = json_copy((json_t *)j);
    json_object_del(copy, key);
    return copy;
}

/* ---- types ---- */

static const char *inferred_type(const json_t *j) {
    static const struct {
        const char *keyword, *type;
    } hint[] = {{"properties", "object"}, {"required", "object"},         {"additionalProperties", "object"},
                {"items", "array"},       {"prefixItems", "array"},       {"minItems", "array"},
                {"maxItems", "array"},    {"pattern", "string"},          {"minLength", "string"},
                {"maxLength", "string"},  {"format", "string"},           {"minimum", "number"},
                {"maximum", "number"},    {"exclusiveMinimum", "number"}, {"exclusiveMaximum", "number"},
                {"multipleOf", "number"}};
    for (size_t i = 0; i < sizeof hint / sizeof *hint; i++)
        if (json_object_get(j, hint[i].keyword)) return hint[i].type;
    return NULL;
}

static gram_expr of_type(schema *s, const json_t *j, const char *type) {
    if (!type) return schema_value(s->g);
    if (strcmp(type, "object") == 0) return schema_object(s, j);
    if (strcmp(type, "array") == 0) return schema_array(s, j);
    if (strcmp(type, "string") == 0) return schema_string(s, j);
    if (strcmp(type, "number") == 0) return schema_number(s, j, false);
    if (strcmp(type, "integer") == 0) return schema_number(s, j, true);
    if (strcmp(type, "null") == 0) return schema_lit(s->g, "null");
    if (strcmp(type, "boolean") == 0) {
        gram_push(s->g, schema_lit(s->g, "true"));
        gram_push(s->g, schema_lit(s->g, "false"));
        return gram_alt(s->g, 2);
    }
    schema_refuse(s, "type", "is none of JSON's");
    return 0;
}

static gram_expr of_types(schema *s, const json_t *j) {
    const json_t *type = json_object_get(j, "type");
    uint32_t n = 0;
    if (!type) return of_type(s, j, inferred_type(j));
    if (json_is_string(type)) return of_type(s, j, json_string_value(type));
    for (size_t i = 0; i < json_array_size(type) && s->g->st == MICA_OK; i++) {
        const char *name = json_string_value(json_array_get(type, i));
        if (!name) schema_refuse(s, "type", "is none of JSON's");
        if (name) gram_push(s->g, of_type(s, j, name)), n++;
    }
    if (n) return gram_alt(s->g, n);
    schema_refuse(s, "type", "is neither a name nor a list of names");
    return 0;
}

/* ---- one of several values ---- */

static bool type_fits(const json_t *value, const char *type) {
    return (json_is_string(value) && strcmp(type, "string") == 0) ||
           (json_is_object(value) && strcmp(type, "object") == 0) ||
           (json_is_array(value) && strcmp(type, "array") == 0) ||
           (json_is_boolean(value) && strcmp(type, "boolean") == 0) ||
           (json_is_null(value) && strcmp(type, "null") == 0) ||
           (json_is_integer(value) && strcmp(type, "integer") == 0) ||
           (json_is_real(value) && strcmp(type, "integer") == 0 &&
            json_real_value(value) == floor(json_real_value(value))) ||
           (json_is_number(value) && strcmp(type, "number") == 0);
}

static bool fits(const json_t *j, const json_t *value) {
    const json_t *type = json_object_get(j, "type");
    if (json_is_null(value) && json_is_true(json_object_get(j, "nullable"))) return true;
    if (json_is_string(type)) return type_fits(value, json_string_value(type));
    for (size_t i = 0; i < json_array_size(type); i++) {
        const char *name = json_string_value(json_array_get(type, i));
        if (name && type_fits(value, name)) return true;
    }
    return json_array_size(type) == 0;
}

/* Strings share their beginnings; other values stand one beside the other. */
static gram_expr one_of_values(schema *s, const json_t *j, const json_t *list) {
    gram *g = s->g;
    const size_t n = json_array_size(list);
    slice *word = mem_alloc((n + 1) * sizeof *word);
    size_t n_word = 0;
    uint32_t n_alt = 0;
    if (!word) return gram_fail(g, MICA_E_NOMEM, "schema: out of memory"), 0;
    for (size_t i = 0; i < n && g->st == MICA_OK; i++) {
        const json_t *v = json_array_get(list, i);
        if (!fits(j, v)) continue;
        char *text = json_is_string(v) && !g->gemma ? json_dumps(v, JSON_ENCODE_ANY) : NULL;
        if (text) {
            word[n_word++] = slice_of(text);
        } else {
            gram_push(g, schema_const(s, v));
            n_alt++;
        }
    }
    if (n_word) gram_push(g, schema_words(g, word, n_word)), n_alt++;
    for (size_t i = 0; i < n_word; i++) free((char *)word[i].p); // jansson's own
    mem_free(word);
    if (n_alt) return gram_alt(g, n_alt);
    schema_refuse(s, "enum", "has no value of its type");
    return 0;
}

/* ---- schemas made of schemas ---- */

static gram_expr alternatives(schema *s, const json_t *j, const char *key) {
    const json_t *list = json_object_get(j, key);
    uint32_t n = 0;
    if (json_array_size(list) == 0) return schema_refuse(s, key, "is no list of schemas"), 0u;
    json_t *rest = has_company(j, key) ? without(j, key) : NULL;
    for (size_t i = 0; i < json_array_size(list) && s->g->st == MICA_OK; i++) {
        const json_t *one = json_array_get(list, i);
        const size_t mark = schema_enter_index(s, key, i);
        json_t *ref = rest && json_object_get(one, "$ref") ? schema_merge(s, rest, reference(s, one)) : NULL;
        json_t *both = ref ? ref : rest ? schema_merge(s, rest, one) : json_incref((json_t *)one);
        if (s->g->st == MICA_OK && !json_is_false(both)) gram_push(s->g, schema_expr(s, both)), n++;
        json_decref(both);
        schema_leave(s, mark);
    }
    json_decref(rest);
    if (n) return gram_alt(s->g, n);
    schema_refuse(s, key, "allows nothing");
    return 0;
}

static gram_expr all_of(schema *s, const json_t *j) {
    const json_t *list = json_object_get(j, "allOf");
    json_t *all = without(j, "allOf");
    if (!json_is_array(list)) schema_refuse(s, "allOf", "is no list of schemas");
    for (size_t i = 0; i < json_array_size(list) && s->g->st == MICA_OK; i++) {
        const json_t *one = json_array_get(list, i);
        const size_t mark = schema_enter_index(s, "allOf", i);
        if (!json_is_object(one) && !json_is_boolean(one)) schema_refuse(s, "allOf", "has what is no schema");
        int hops = 0;
        while (s->g->st == MICA_OK && json_object_get(one, "$ref") && !has_company(one, "$ref")) {
            if (++hops > SCHEMA_MAX_MERGE) schema_refuse(s, "$ref", "leads nowhere");
            one = reference(s, one);
        }
        json_t *both = s->g->st == MICA_OK ? schema_merge(s, all, one) : NULL;
        json_decref(all);
        all = both;
        schema_leave(s, mark);
    }
    const gram_expr e = s->g->st == MICA_OK ? schema_expr(s, all) : 0;
    json_decref(all);
    return e;
}

static gram_expr with_reference(schema *s, const json_t *j) {
    const json_t *to = reference(s, j);
    if (s->g->st != MICA_OK) return 0;
    if (!has_company(j, "$ref")) {
        return later(s, json_string_value(json_object_get(j, "$ref")), to);
    }
    json_t *rest = without(j, "$ref"), *both = schema_merge(s, rest, to);
    const gram_expr e = s->g->st == MICA_OK ? schema_expr(s, both) : 0;
    json_decref(rest);
    json_decref(both);
    return e;
}

static gram_expr of_object(schema *s, const json_t *j) {
    check_keywords(s, j);
    if (json_object_get(j, "$ref")) return with_reference(s, j);
    if (json_object_get(j, "allOf")) return all_of(s, j);
    if (json_object_get(j, "anyOf")) return alternatives(s, j, "anyOf");
    if (json_object_get(j, "oneOf")) return alternatives(s, j, "oneOf");
    const json_t *one = json_object_get(j, "const"), *list = json_object_get(j, "enum");
    if (one) {
        if (!fits(j, one) || (list && !json_is_array(list))) schema_refuse(s, "const", "is not of its type");
        return schema_const(s, one);
    }
    if (list) return one_of_values(s, j, list);
    return of_types(s, j);
}

gram_expr schema_expr(schema *s, const json_t *j) {
    gram *g = s->g;
    gram_expr e = 0;
    if (g->st != MICA_OK) return 0;
    if (++s->n_seen > SCHEMA_MAX) {
        gram_fail(g, MICA_E_ARG, "schema: more than %d schemas in it", SCHEMA_MAX);
        return 0;
    }
    if (json_is_true(j)) return schema_value(g);
    if (json_is_false(j) || !json_is_object(j)) {
        gram_fail(g, MICA_E_ARG, "schema: %s: %s", s->where.p,
                  json_is_false(j) ? "false: nothing is allowed here" : "is no schema");
        return 0;
    }
    if (++s->depth > GRAM_MAX_DEPTH) {
        gram_fail(g, MICA_E_ARG, "schema: %s: nested deeper than %d", s->where.p, GRAM_MAX_DEPTH);
        return 0;
    }
    e = of_object(s, j);
    if (json_is_true(json_object_get(j, "nullable")) && g->st == MICA_OK) {
        gram_push(g, e);
        gram_push(g, schema_lit(g, "null"));
        e = gram_alt(g, 2);
    }
    s->depth--;
    return e;
}

/* Bodies of rules that were referred to; they may refer to more. */
static void run_tasks(schema *s) {
    for (uint32_t i = 0; i < s->n_task && s->g->st == MICA_OK; i++) {
        strbuf_clear(&s->where);
        strbuf_puts(&s->where, s->task[i].where);
        s->depth = 0;
        const gram_expr e = schema_expr(s, s->task[i].schema);
        gram_define(s->g, s->task[i].rule, e);
    }
}

mica_status schema_compile(gram *g, const schema_request *r, gram_expr *out) {
    schema s = {.g = g, .root = r->schema, .lenient = r->lenient, .name = r->name};
    g->of_schema = true;
    *out = later(&s, "#", r->schema);
    run_tasks(&s);
    for (uint32_t i = 0; i < s.n_task; i++) {
        json_decref(s.task[i].schema);
        mem_free(s.task[i].where);
    }
    mem_free(s.task);
    strbuf_fini(&s.where);
    return g->st;
}
