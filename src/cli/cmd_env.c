/* `mica env`: the environment variables that are read, and what they say now. */
#include "cli/command.h"
#include "cli/help.h"
#include "cli/print.h"

#include "mica_tools.h"

static void put_variable(const json_t *v) {
    if (json_is_null(json_object_get(v, "value")))
        printf("%s is not set: %s\n    ", member_text(v, "name"), member_text(v, "default"));
    else
        printf("%s=%s\n    ", member_text(v, "name"), member_text(v, "value"));
    help_wrapped(stdout, member_text(v, "meaning"), 4);
}

mica_status cmd_env(const options *o, mica_error *err) {
    mica_status st = MICA_OK;
    char *text = NULL;
    json_t *list = NULL, *v;
    size_t i;
    TRY_GOTO(mica_environment(&text, err), done);
    if (o->json) {
        print_json_text(text);
        goto done;
    }
    TRY_GOTO(print_parse(&list, text, err), done);
    json_array_foreach(list, i, v) put_variable(v);
done:
    json_decref(list);
    mica_text_free(text);
    return st;
}
