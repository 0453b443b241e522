/* `mica env`: the environment variables that are read, and what they say now. */
#include "cli/command.h"
#include "cli/print.h"

#include "mica_tools.h"

mica_status cmd_env(const options *o, mica_error *err) {
    mica_status st = MICA_OK;
    char *text = NULL;
    json_t *list = NULL;
    table t = {.n_col = 3};
    TRY_GOTO(mica_environment(&text, err), done);
    if (o->json) {
        print_json_text(text);
        goto done;
    }
    TRY_GOTO(print_parse(&list, text, err), done);
    size_t i;
    json_t *v;
    table_put(&t, "variable");
    table_put(&t, "value");
    table_put(&t, "meaning");
    json_array_foreach(list, i, v) {
        const bool is_set = !json_is_null(json_object_get(v, "value"));
        table_put(&t, "%s", member_text(v, "name"));
        if (is_set)
            table_put(&t, "%s", member_text(v, "value"));
        else
            table_put(&t, "(%s)", member_text(v, "default"));
        table_put(&t, "%s", member_text(v, "meaning"));
    }
    st = table_print(stdout, &t, err);
done:
    table_fini(&t);
    json_decref(list);
    mica_text_free(text);
    return st;
}
