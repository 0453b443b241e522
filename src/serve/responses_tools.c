/* Out of namespaces and back. */
#include "serve/responses_tools.h"

#include "base/str.h"

#include <string.h>

static const char *text_of(const json_t *o, const char *name) {
    return json_string_value(json_object_get(o, name));
}

static bool is_taken(const json_t *tools, const char *name) {
    size_t i;
    const json_t *one;
    json_array_foreach(tools, i, one) {
        const json_t *f = json_object_get(one, "function");
        const char *other = text_of(f ? f : one, "name");
        if (other && strcmp(other, name) == 0) return true;
    }
    return false;
}

static bool is_namespace(const json_t *tool) {
    const char *type = text_of(tool, "type");
    return type && strcmp(type, "namespace") == 0;
}

static void put_function(json_t *flat, json_t *names, const json_t *tool, const char *namespace) {
    const char *name = text_of(tool, "name"), *type = text_of(tool, "type");
    strbuf seen = {0};
    if (!name || !*name || (type && strcmp(type, "function") != 0)) return;
    if (is_taken(flat, name)) strbuf_printf(&seen, "%s__", namespace);
    strbuf_puts(&seen, name);
    json_t *copy = json_copy((json_t *)tool);
    json_object_set_new(copy, "name", json_string(strbuf_cstr(&seen)));
    json_array_append_new(flat, copy);
    json_object_set_new(names, strbuf_cstr(&seen),
                        json_pack("{s:s, s:s}", "namespace", namespace, "name", name));
    strbuf_fini(&seen);
}

json_t *responses_tools_flat(const json_t *given, json_t *names) {
    size_t i, k;
    json_t *tool, *one;
    if (!json_is_array(given)) return NULL;
    json_t *flat = json_array();
    json_array_foreach((json_t *)given, i, tool) {
        if (!is_namespace(tool)) json_array_append(flat, tool);
    }
    json_array_foreach((json_t *)given, i, tool) {
        const char *namespace = text_of(tool, "name");
        if (!is_namespace(tool) || !namespace) continue;
        json_array_foreach(json_object_get(tool, "tools"), k, one) put_function(flat, names, one, namespace);
    }
    return flat;
}

const char *responses_tool_seen(const json_t *names, const char *namespace, const char *name) {
    const char *seen;
    json_t *v;
    json_object_foreach((json_t *)names, seen, v) {
        if (!namespace || strcmp(text_of(v, "namespace"), namespace) != 0) continue;
        if (strcmp(text_of(v, "name"), name) == 0) return seen;
    }
    return name;
}

void responses_tool_name(json_t *item, const json_t *names) {
    const json_t *v = json_object_get(names, text_of(item, "name"));
    if (v) json_object_update(item, (json_t *)v);
}
