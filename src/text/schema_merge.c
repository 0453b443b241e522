/* Schemas that must hold together, as one schema: what allOf, a reference with company, and alternatives
 * beside other keywords need. Bounds are narrowed, lists of required names joined, properties of one name
 * merged in turn; keywords that cannot be put together are told. */
#include "text/schema_int.h"

static void same_or_add(schema *s, json_t *to, const char *key, json_t *value) {
    const json_t *have = json_object_get(to, key);
    if (have && !json_equal(have, value))
        schema_unsupported(s, key);
    else
        json_object_set(to, key, value);
}

/* The narrower of two bounds. */
static void narrow(json_t *to, const char *key, json_t *value, bool low) {
    const json_t *have = json_object_get(to, key);
    const double a = json_number_value(have), b = json_number_value(value);
    if (!json_is_number(have) || (low ? b > a : b < a)) json_object_set(to, key, value);
}

static bool in_list(const json_t *list, const json_t *value) {
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_equal(json_array_get(list, i), value)) return true;
    return false;
}

/* Both given: what is in both. integer is a number. */
static void intersect(schema *s, json_t *to, const char *key, json_t *value) {
    json_t *a = json_object_get(to, key), *both = json_array();
    if (!a || json_equal(a, value)) {
        json_decref(both);
        json_object_set(to, key, value);
        return;
    }
    json_t *x = json_is_array(a) ? json_incref(a) : json_pack("[O]", a);
    json_t *y = json_is_array(value) ? json_incref(value) : json_pack("[O]", value);
    json_t *integer = json_string("integer"), *number = json_string("number");
    for (size_t i = 0; i < json_array_size(x); i++) {
        json_t *v = json_array_get(x, i);
        const bool is_type = strcmp(key, "type") == 0;
        if (in_list(y, v) || (is_type && json_equal(v, integer) && in_list(y, number)))
            json_array_append(both, v);
        else if (is_type && json_equal(v, number) && in_list(y, integer))
            json_array_append(both, integer);
    }
    if (json_array_size(both) == 0)
        schema_refuse(s, key, "has nothing in common with another one that holds too");
    json_object_set(to, key, both);
    json_decref(integer);
    json_decref(number);
    json_decref(x);
    json_decref(y);
    json_decref(both);
}

static void join(json_t *to, const char *key, const json_t *list) {
    json_t *all = json_array();
    const json_t *have = json_object_get(to, key);
    for (size_t i = 0; i < json_array_size(have); i++) json_array_append(all, json_array_get(have, i));
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!in_list(all, json_array_get(list, i))) json_array_append(all, json_array_get(list, i));
    json_object_set_new(to, key, all);
}

static void merge_properties(schema *s, json_t *to, const json_t *properties) {
    json_t *all = json_copy(json_object_get(to, "properties"));
    const char *key;
    json_t *value;
    if (!all) all = json_object();
    json_object_foreach((json_t *)properties, key, value) {
        json_t *have = json_object_get(all, key);
        if (have)
            json_object_set_new(all, key, schema_merge(s, have, value));
        else
            json_object_set(all, key, value);
    }
    json_object_set_new(to, "properties", all);
}

static void merge_schema_of(schema *s, json_t *to, const char *key, json_t *value) {
    json_t *have = json_object_get(to, key);
    if (!have || json_is_true(have) || json_equal(have, value))
        json_object_set(to, key, value);
    else if (json_is_false(have) || json_is_false(value))
        json_object_set_new(to, key, json_false());
    else if (json_is_object(have) && json_is_object(value))
        json_object_set_new(to, key, schema_merge(s, have, value));
}

static void merge_alternatives(schema *s, json_t *to, const char *key, json_t *value) {
    if (json_object_get(to, "anyOf") || json_object_get(to, "oneOf"))
        schema_unsupported(s, key);
    else
        json_object_set(to, key, value);
}

typedef enum how { REMARKS, LOWER, UPPER, COMMON, JOINED, ALTERNATIVES, MEMBERS, SUBSCHEMA, SAME } how;

static how how_to_merge(const char *key) {
    static const struct {
        const char *key;
        how how;
    } table[] = {{"minimum", LOWER},      {"exclusiveMinimum", LOWER}, {"minLength", LOWER},
                 {"minItems", LOWER},     {"maximum", UPPER},          {"exclusiveMaximum", UPPER},
                 {"maxLength", UPPER},    {"maxItems", UPPER},         {"type", COMMON},
                 {"enum", COMMON},        {"required", JOINED},        {"anyOf", ALTERNATIVES},
                 {"oneOf", ALTERNATIVES}, {"properties", MEMBERS},     {"additionalProperties", SUBSCHEMA},
                 {"items", SUBSCHEMA},    {"pattern", SAME},           {"format", SAME},
                 {"const", SAME},         {"prefixItems", SAME},       {"allOf", SAME},
                 {"$ref", SAME}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strcmp(table[i].key, key) == 0) return table[i].how;
    return REMARKS;
}

static void merge_one(schema *s, json_t *to, const char *key, json_t *value) {
    switch (how_to_merge(key)) {
    case LOWER:
    case UPPER: narrow(to, key, value, how_to_merge(key) == LOWER); break;
    case COMMON: intersect(s, to, key, value); break;
    case JOINED: join(to, key, value); break;
    case ALTERNATIVES: merge_alternatives(s, to, key, value); break;
    case MEMBERS: merge_properties(s, to, value); break;
    case SUBSCHEMA: merge_schema_of(s, to, key, value); break;
    case SAME: same_or_add(s, to, key, value); break;
    default: // remarks, and what is refused later
        if (!json_object_get(to, key)) json_object_set(to, key, value);
    }
}

/* What one side's additionalProperties say of members that only the other declares. */
static void judge_others(schema *s, json_t *to, const json_t *judge, const json_t *other) {
    const json_t *rule = json_object_get(judge, "additionalProperties");
    const char *key;
    json_t *value;
    if (!rule || json_is_true(rule) || !json_object_get(other, "properties")) return;
    json_t *all = json_copy(json_object_get(to, "properties")); // it may still be a's own
    json_object_set_new(to, "properties", all);
    json_object_foreach(json_object_get(other, "properties"), key, value) {
        if (json_object_get(json_object_get(judge, "properties"), key)) continue;
        json_object_set_new(all, key, schema_merge(s, json_object_get(all, key), rule));
    }
}

json_t *schema_merge(schema *s, const json_t *a, const json_t *b) {
    if (json_is_true(a) || json_is_false(b)) return json_incref((json_t *)b);
    if (json_is_true(b) || json_is_false(a)) return json_incref((json_t *)a);
    json_t *to = json_copy((json_t *)a);
    const char *key;
    json_t *value;
    if (++s->n_seen > SCHEMA_MAX) schema_refuse(s, "allOf", "makes more than 20000 schemas");
    if (++s->depth > SCHEMA_MAX_MERGE) schema_refuse(s, "allOf", "is nested too deep");
    if (!to) gram_fail(s->g, MICA_E_NOMEM, "schema: out of memory");
    json_object_foreach((json_t *)b, key, value) {
        if (to && s->g->st == MICA_OK) merge_one(s, to, key, value);
    }
    if (s->g->st == MICA_OK) judge_others(s, to, a, b);
    if (s->g->st == MICA_OK) judge_others(s, to, b, a);
    s->depth--;
    return to;
}
