/* `mica template`: what a model reads for given messages. */
#include "cli/command.h"
#include "cli/open.h"
#include "cli/print.h"

#include "base/status.h"

#include <string.h>

/* The file's text, checked here so that the message names the file and the line. */
static mica_status read_array(strbuf *out, const char *path, mica_error *err) {
    json_error_t why;
    TRY(input_read(out, path, err));
    json_t *v = json_loadb(strbuf_cstr(out), out->n, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &why);
    const char *wrong = !v ? why.text : json_is_array(v) ? NULL : "not an array";
    json_decref(v);
    if (!wrong) return MICA_OK;
    return fail(err, MICA_E_ARG, "%s: line %d: %s", path, v ? 1 : why.line, wrong);
}

mica_status cmd_template(const options *o, mica_error *err) {
    mica_status st = MICA_OK;
    opened x = {0};
    strbuf messages = {0}, tools = {0};
    mica_ids ids = {0};
    char *prompt = NULL;
    if (!o->messages) return fail(err, MICA_E_ARG, "--messages: missing: name a JSON file of messages");
    TRY_GOTO(read_array(&messages, o->messages, err), done);
    if (o->tools) TRY_GOTO(read_array(&tools, o->tools, err), done);
    TRY_GOTO(open_text(&x, o, err), done);
    const mica_chat_options chat = {.tools_json = o->tools ? strbuf_cstr(&tools) : NULL,
                                    .kwargs_json = o->kwargs,
                                    .think = o->think,
                                    .no_generation_prompt = o->no_generation_prompt};
    TRY_GOTO(mica_encode_chat(x.model, strbuf_cstr(&messages), &chat, &ids, &prompt, err), done);
    if (o->json) {
        json_t *list = json_array();
        for (size_t i = 0; i < ids.n; i++) json_array_append_new(list, json_integer(ids.ids[i]));
        json_t *v = json_pack("{s:s, s:o}", "prompt", prompt, "ids", list);
        if (!v)
            st = fail(err, MICA_E_NOMEM, "prompt: %zu ids: out of memory", ids.n);
        else
            print_json(v);
        json_decref(v);
    } else {
        fputs(prompt, stdout); // exactly the prompt: a newline more would be another one
    }
done:
    mica_text_free(prompt);
    mica_ids_free(&ids);
    strbuf_fini(&messages);
    strbuf_fini(&tools);
    open_close(&x);
    return st;
}
