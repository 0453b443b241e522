/* mica_environment: the table of base/env.h as JSON. A secret's value is not told, only that it is set. */
#include "base/env.h"
#include "base/mem.h"
#include "base/status.h"
#include "base/str.h"
#include "mica_tools.h"

#include <jansson.h>

static int on_text(const char *p, size_t n, void *user) {
    strbuf_put(user, p, n);
    return 0;
}

static json_t *variable_json(const env_var *v) {
    const char *value = env_get(v->name);
    if (value && strstr(v->name, "TOKEN")) value = "(set)";
    json_t *text = value ? json_string(value) : NULL; // NULL also when it is no UTF-8
    return json_pack("{s:s, s:s, s:s, s:o?}", "name", v->name, "meaning", v->meaning, "default", v->fallback,
                     "value", text);
}

mica_status mica_environment(char **json, mica_error *err) {
    strbuf text = {0};
    json_t *rows = json_array();
    bool good = rows != NULL;
    for (size_t i = 0; good && i < env_count(); i++)
        good = json_array_append_new(rows, variable_json(env_at(i))) == 0;
    if (good) json_dump_callback(rows, on_text, &text, JSON_COMPACT);
    json_decref(rows);
    *json = good ? strbuf_take(&text) : NULL;
    strbuf_fini(&text);
    return *json ? MICA_OK : fail(err, MICA_E_NOMEM, "environment: out of memory");
}
