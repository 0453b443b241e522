/* Out of namespaces and back. */
#include "serve/responses_tools.h"

#include "base/str.h"
#include "serve/field.h"

#include <string.h>

static bool is_namespace(const json_t *tool) {
    const char *type = field_peek(tool, "type");
    return type && strcmp(type, "namespace") == 0;
}

typedef struct flattening {
    json_t *flat, *names; // what comes out
    json_t *taken;        // names that the model sees, as keys
} flattening;

static mica_status put_tool(const flattening *f, json_t *tool, const char *name, problem *p) {
    if (json_array_size(f->flat) == RESPONSES_TOOLS_MAX)
        return problem_set(p, 400, "tools", "tools: at most %d", RESPONSES_TOOLS_MAX);
    if (name) json_object_set_new(f->taken, name, json_true());
    json_array_append(f->flat, tool);
    return MICA_OK;
}

/* The key under which names has this function; NULL: it is another's, or nobody's. */
static const char *key_of(const json_t *names, const char *key, const char *namespace, const char *name) {
    const json_t *v = json_object_get(names, key);
    if (!v || strcmp(field_peek(v, "namespace"), namespace) != 0 || strcmp(field_peek(v, "name"), name) != 0)
        return NULL;
    return json_object_iter_key(json_object_iter_at((json_t *)names, key));
}

static mica_status put_function(const flattening *f, const json_t *tool, const char *namespace, problem *p) {
    const char *name = field_peek(tool, "name"), *type = field_peek(tool, "type");
    strbuf seen = {0};
    mica_status st;
    if (!name || !*name || (type && strcmp(type, "function") != 0)) return MICA_OK;
    const bool twice = key_of(f->names, name, namespace, name) != NULL;
    if (json_object_get(f->taken, name)) strbuf_printf(&seen, "%s__", namespace);
    strbuf_puts(&seen, name);
    json_t *copy = json_copy((json_t *)tool);
    json_object_set_new(copy, "name", json_string(strbuf_cstr(&seen)));
    if (twice || json_object_get(f->taken, strbuf_cstr(&seen)))
        st = problem_set(p, 400, "tools", "tools: \"%.60s\" of namespace \"%.60s\": there are two", name,
                         namespace);
    else
        st = put_tool(f, copy, strbuf_cstr(&seen), p);
    if (st == MICA_OK)
        json_object_set_new(f->names, strbuf_cstr(&seen),
                            json_pack("{s:s, s:s}", "namespace", namespace, "name", name));
    json_decref(copy);
    strbuf_fini(&seen);
    return st;
}

static mica_status flatten(const flattening *f, const json_t *given, problem *p) {
    size_t i, k;
    json_t *tool, *one;
    json_array_foreach((json_t *)given, i, tool) {
        const json_t *inner = json_object_get(tool, "function");
        if (!is_namespace(tool)) TRY(put_tool(f, tool, field_peek(inner ? inner : tool, "name"), p));
    }
    json_array_foreach((json_t *)given, i, tool) {
        const char *namespace = field_peek(tool, "name");
        if (!is_namespace(tool) || !namespace) continue;
        json_array_foreach(json_object_get(tool, "tools"), k, one) TRY(put_function(f, one, namespace, p));
    }
    return MICA_OK;
}

mica_status responses_tools_flat(json_t **out, json_t *names, const json_t *given, problem *p) {
    const flattening f = {json_array(), names, json_object()};
    *out = NULL;
    const mica_status st = json_is_array(given) ? flatten(&f, given, p) : MICA_OK;
    if (st == MICA_OK && json_is_array(given)) *out = json_incref(f.flat);
    json_decref(f.flat);
    json_decref(f.taken);
    return st;
}

const char *responses_tool_seen(const json_t *names, const char *namespace, const char *name) {
    strbuf longer = {0};
    if (!namespace) return name;
    const char *seen = key_of(names, name, namespace, name);
    strbuf_printf(&longer, "%s__%s", namespace, name);
    if (!seen) seen = key_of(names, strbuf_cstr(&longer), namespace, name);
    strbuf_fini(&longer);
    return seen ? seen : name;
}

void responses_tool_name(json_t *item, const json_t *names) {
    const json_t *v = json_object_get(names, field_peek(item, "name"));
    if (v) json_object_update(item, (json_t *)v);
}
