/* OpenAI-style messages and tools, as clients really send them, into the shape a template takes.
 *
 * Every message is rebuilt: members that are null go, content becomes a string or parts, calls get objects
 * (or text) as arguments, a tool's answer gets its tool's name. Then system messages are put where the
 * template wants them. Members this layer does not know stay, for templates that do. */
#include "text/chat_int.h"

#include "text/json_in.h"

#include <xxhash.h>

typedef struct fitter {
    const chat_abilities *can;
    json_t *out; // owned until done: the messages made so far
    mica_error *err;
    size_t i; // the message in work
} fitter;

static mica_status nomem(fitter *f) {
    return fail(f->err, MICA_E_NOMEM, "messages[%zu]: out of memory", f->i);
}

static mica_status set_new(fitter *f, json_t *object, const char *key, json_t *value) {
    return json_object_set_new(object, key, value) == 0 ? MICA_OK : nomem(f);
}

static bool is_role(const json_t *message, const char *role) {
    const char *r = json_string_value(json_object_get(message, "role"));
    return r && strcmp(r, role) == 0;
}

/* ---- content ---- */

/* The text of one part of a content array; NULL with an error when it has none. */
static const json_t *part_text(fitter *f, const json_t *part, size_t k) {
    static const char *const known[] = {"text", "input_text", "output_text", "refusal"};
    if (json_is_string(part)) return part;
    const char *type = json_string_value(json_object_get(part, "type"));
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (type ? strcmp(type, known[i]) != 0 : i != 0) continue;
        const json_t *text = json_object_get(part, i == 3 ? "refusal" : "text");
        if (json_is_string(text)) return text;
    }
    if (!type)
        fail(f->err, MICA_E_ARG, "messages[%zu].content[%zu]: no text", f->i, k);
    else
        fail(f->err, MICA_E_ARG, "messages[%zu].content[%zu].type: '%.40s' is not supported: text only", f->i,
             k, type);
    return NULL;
}

static mica_status parts_to_text(fitter *f, const json_t *parts, json_t **out) {
    strbuf b = {0};
    for (size_t k = 0; k < json_array_size(parts); k++) {
        const json_t *text = part_text(f, json_array_get(parts, k), k);
        if (!text) {
            strbuf_fini(&b);
            return MICA_E_ARG;
        }
        if (k) strbuf_putc(&b, '\n');
        strbuf_put(&b, json_string_value(text), json_string_length(text));
    }
    *out = b.failed ? NULL : json_stringn(strbuf_cstr(&b), b.n);
    strbuf_fini(&b);
    return *out ? MICA_OK : nomem(f);
}

static mica_status parts_kept(fitter *f, const json_t *parts, json_t **out) {
    *out = json_array();
    for (size_t k = 0; k < json_array_size(parts); k++) {
        const json_t *text = part_text(f, json_array_get(parts, k), k);
        if (!text) {
            json_decref(*out);
            *out = NULL;
            return MICA_E_ARG;
        }
        json_t *part = json_pack("{s:s, s:O}", "type", "text", "text", text);
        if (json_array_append_new(*out, part) == 0) continue;
        json_decref(*out);
        *out = NULL;
        return nomem(f);
    }
    return *out ? MICA_OK : nomem(f);
}

/* Content of any shape to a string, or to parts where the template wants those. *out NULL: no content. */
static mica_status fit_content(fitter *f, const json_t *content, bool as_text, json_t **out) {
    *out = NULL;
    if (!content || json_is_null(content)) return MICA_OK;
    if (json_is_array(content)) {
        bool parts = f->can->parts && !as_text && (json_array_size(content) > 1 || !f->can->strings);
        return parts ? parts_kept(f, content, out) : parts_to_text(f, content, out);
    }
    if (!json_is_string(content))
        return fail(f->err, MICA_E_ARG, "messages[%zu].content: must be a string or an array of parts", f->i);
    if (f->can->strings || as_text)
        *out = json_incref((json_t *)content);
    else
        *out = json_pack("[{s:s, s:O}]", "type", "text", "text", content);
    return *out ? MICA_OK : nomem(f);
}

/* ---- calls ---- */

/* JSON as Python prints it, for templates that want arguments as text. */
static json_t *json_as_text(const json_t *j) {
    jinja_template *t;
    jinja_output out = {0};
    json_t *context = json_pack("{s:O}", "x", j), *text = NULL;
    if (context && jinja_parse(&t, SLICE_LIT("{{ x | tojson }}"), NULL) == MICA_OK) {
        jinja_render(&out, t, context, NULL, NULL);
        jinja_free(t);
    }
    if (out.text) text = json_stringn(out.text, out.n);
    jinja_output_fini(&out);
    json_decref(context);
    return text;
}

/* Arguments arrive as JSON text, an object, or not at all. Text that is no object does not end the
 * conversation: the template gets it as it is, or wrapped in an object. */
static json_t *fit_arguments(const fitter *f, const json_t *given) {
    json_t *object = NULL, *text;
    bool is_text = json_is_string(given) && json_string_length(given) > 0;
    if (json_is_object(given))
        object = json_incref((json_t *)given);
    else if (!given || json_is_null(given) || (json_is_string(given) && !is_text))
        object = json_object();
    if (is_text) {
        slice s = {json_string_value(given), json_string_length(given)};
        json_in_parse(&object, s, &(json_in_options){.what = "arguments", .kind = JSON_IN_OBJECT}, NULL);
        if (!object && f->can->broken_args) return json_incref((json_t *)given);
    }
    bool good = object != NULL;
    if (!good) object = json_pack("{s:O}", "arguments", given);
    if (f->can->object_args || !object) return object;
    text = is_text && good ? json_incref((json_t *)given) : json_as_text(object);
    json_decref(object);
    return text;
}

/* Nine letters and digits out of any id, the same for the same. */
static json_t *short_id(const json_t *id) {
    static const char digit[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    const char *s = json_string_value(id);
    size_t n = json_string_length(id), plain = 0;
    char out[10] = {0};
    for (size_t i = 0; i < n; i++)
        plain += (s[i] >= '0' && s[i] <= '9') || (s[i] >= 'a' && s[i] <= 'z') || (s[i] >= 'A' && s[i] <= 'Z');
    if (n == 9 && plain == 9) return json_incref((json_t *)id);
    uint64_t h = XXH3_64bits(s, n);
    for (int i = 0; i < 9; i++, h /= 36) out[i] = digit[h % 36];
    return json_string(out);
}

static mica_status fit_id(fitter *f, json_t *object, const char *key) {
    const json_t *id = json_object_get(object, key);
    if (!f->can->short_ids || !json_is_string(id)) return MICA_OK;
    return set_new(f, object, key, short_id(id));
}

static mica_status fit_call(fitter *f, const json_t *call, size_t k, json_t *list) {
    const json_t *function = json_object_get(call, "function");
    if (!json_is_object(function)) function = call; // {"name": ..., "arguments": ...} alone
    if (!json_is_string(json_object_get(function, "name")))
        return fail(f->err, MICA_E_ARG, "messages[%zu].tool_calls[%zu].function.name: missing", f->i, k);
    json_t *arguments = fit_arguments(f, json_object_get(function, "arguments"));
    json_t *made = json_pack("{s:s, s:{s:O, s:o}}", "type", "function", "function", "name",
                             json_object_get(function, "name"), "arguments", arguments);
    if (json_array_append_new(list, made) != 0) return nomem(f);
    const json_t *id = json_object_get(call, "id");
    char own[24];
    snprintf(own, sizeof own, "call%05zu", (f->i * 100 + k) % 100000);
    json_t *kept = json_is_string(id) ? json_incref((json_t *)id) : json_string(own);
    TRY(set_new(f, made, "id", kept));
    return fit_id(f, made, "id");
}

static mica_status fit_calls(fitter *f, const json_t *calls, json_t *message) {
    if (!calls || json_is_null(calls)) return MICA_OK;
    if (!json_is_array(calls))
        return fail(f->err, MICA_E_ARG, "messages[%zu].tool_calls: must be an array", f->i);
    if (!json_array_size(calls)) return MICA_OK;
    json_t *list = json_array();
    TRY(set_new(f, message, "tool_calls", list));
    for (size_t k = 0; k < json_array_size(calls); k++) TRY(fit_call(f, json_array_get(calls, k), k, list));
    return MICA_OK;
}

/* The tool an answer belongs to, by the id of its call. */
static json_t *name_of_call(const fitter *f, const json_t *id) {
    if (!json_is_string(id)) return NULL;
    for (size_t i = json_array_size(f->out); i-- > 0;) {
        const json_t *calls = json_object_get(json_array_get(f->out, i), "tool_calls");
        for (size_t k = 0; k < json_array_size(calls); k++) {
            const json_t *call = json_array_get(calls, k);
            if (json_equal(json_object_get(call, "id"), (json_t *)id))
                return json_object_get(json_object_get(call, "function"), "name");
        }
    }
    return NULL;
}

/* ---- one message ---- */

/* Thinking of earlier turns goes by three names; templates read the first two. */
static mica_status fit_reasoning(fitter *f, json_t *message) {
    static const char *const name[] = {"reasoning_content", "thinking", "reasoning"};
    for (int i = 0; i < 3; i++) {
        json_t *text = json_object_get(message, name[i]);
        if (!json_is_string(text)) continue;
        for (int k = 0; k < 2; k++)
            if (k != i && !json_object_get(message, name[k]))
                TRY(set_new(f, message, name[k], json_incref(text)));
        return MICA_OK;
    }
    return MICA_OK;
}

static bool rebuilt(const char *key) {
    static const char *const name[] = {"role", "content", "tool_calls"};
    for (size_t i = 0; i < sizeof name / sizeof *name; i++)
        if (strcmp(key, name[i]) == 0) return true;
    return false;
}

static mica_status fit_rest(fitter *f, const json_t *message, json_t *made) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)message, key, value) {
        if (rebuilt(key) || json_is_null(value)) continue;
        TRY(set_new(f, made, key, json_incref(value)));
    }
    TRY(fit_reasoning(f, made));
    if (!is_role(made, "tool")) return MICA_OK;
    TRY(fit_id(f, made, "tool_call_id"));
    json_t *name =
        json_object_get(made, "name") ? NULL : name_of_call(f, json_object_get(made, "tool_call_id"));
    return name ? set_new(f, made, "name", json_incref(name)) : MICA_OK;
}

static mica_status fit_message(fitter *f, const json_t *message) {
    json_t *content;
    const char *role = json_string_value(json_object_get(message, "role"));
    if (!json_is_object(message)) return fail(f->err, MICA_E_ARG, "messages[%zu]: must be an object", f->i);
    if (!role) return fail(f->err, MICA_E_ARG, "messages[%zu].role: missing", f->i);
    if (strcmp(role, "developer") == 0 && !f->can->developer) role = "system";
    json_t *made = json_pack("{s:s}", "role", role);
    if (!made || json_array_append_new(f->out, made) != 0) return nomem(f);
    bool system = strcmp(role, "system") == 0 || strcmp(role, "developer") == 0;
    bool as_text = f->can->strings && (system ? !f->can->system_parts : strcmp(role, "user") != 0);
    as_text = as_text || strcmp(role, "tool") == 0;
    TRY(fit_content(f, json_object_get(message, "content"), as_text, &content));
    if (content) TRY(set_new(f, made, "content", content));
    TRY(fit_calls(f, json_object_get(message, "tool_calls"), made));
    bool calls = json_object_get(made, "tool_calls") != NULL;
    if (!content && !(calls && f->can->no_content)) TRY(set_new(f, made, "content", json_string("")));
    const json_t *shown = json_object_get(made, "content");
    bool nothing = json_is_string(shown) && json_string_length(shown) == 0 && !calls;
    if (nothing && strcmp(role, "assistant") == 0 &&
        !f->can->empty_answer) // some raise at it; clients send it
        TRY(set_new(f, made, "content", json_string(" ")));
    return fit_rest(f, message, made);
}

/* ---- system messages ---- */

static mica_status content_as_text(fitter *f, const json_t *message, json_t **out) {
    const json_t *content = json_object_get(message, "content");
    if (json_is_array(content)) return parts_to_text(f, content, out);
    *out = json_incref((json_t *)content);
    return MICA_OK;
}

/* All system messages as one text, a blank line between them; they leave the list. */
static mica_status take_system(fitter *f, strbuf *text) {
    for (size_t i = 0; i < json_array_size(f->out);) {
        json_t *one, *m = json_array_get(f->out, i);
        if (!is_role(m, "system") && !is_role(m, "developer")) {
            i++;
            continue;
        }
        TRY(content_as_text(f, m, &one));
        if (text->n) strbuf_puts(text, "\n\n");
        strbuf_put(text, json_string_value(one), json_string_length(one));
        json_decref(one);
        json_array_remove(f->out, i);
    }
    return text->failed ? nomem(f) : MICA_OK;
}

/* A text in front of the first user message, for templates without a system role. */
static mica_status put_before_user(fitter *f, strbuf *text) {
    json_t *user = NULL, *old = NULL, *made;
    for (size_t i = 0; !user && i < json_array_size(f->out); i++)
        if (is_role(json_array_get(f->out, i), "user")) user = json_array_get(f->out, i);
    if (user) {
        TRY(content_as_text(f, user, &old));
        strbuf_puts(text, "\n\n");
        strbuf_put(text, json_string_value(old), json_string_length(old));
        json_decref(old);
    }
    json_t *whole = text->failed ? NULL : json_stringn(strbuf_cstr(text), text->n);
    mica_status st = whole ? fit_content(f, whole, false, &made) : nomem(f);
    json_decref(whole);
    if (st != MICA_OK) return st;
    if (user) return set_new(f, user, "content", made);
    return json_array_insert_new(f->out, 0, json_pack("{s:s, s:o}", "role", "user", "content", made)) == 0
               ? MICA_OK
               : nomem(f);
}

static mica_status put_in_front(fitter *f, const strbuf *text) {
    json_t *made, *whole = json_stringn(strbuf_cstr(text), text->n);
    mica_status st = whole ? fit_content(f, whole, false, &made) : nomem(f);
    json_decref(whole);
    if (st != MICA_OK) return st;
    return json_array_insert_new(f->out, 0, json_pack("{s:s, s:o}", "role", "system", "content", made)) == 0
               ? MICA_OK
               : nomem(f);
}

static mica_status fit_system(fitter *f) {
    size_t n = 0, last = 0;
    for (size_t i = 0; i < json_array_size(f->out); i++) {
        const json_t *m = json_array_get(f->out, i);
        if (!is_role(m, "system") && !is_role(m, "developer")) continue;
        n++;
        last = i;
    }
    bool plain = n == 0 || (n == 1 && last == 0);
    if (plain ? n == 0 || f->can->system : f->can->more_system) return MICA_OK;
    strbuf text = {0};
    mica_status st;
    TRY_GOTO(take_system(f, &text), done);
    TRY_GOTO(f->can->system ? put_in_front(f, &text) : put_before_user(f, &text), done);
done:
    strbuf_fini(&text);
    return st;
}

mica_status chat_messages_fit(json_t **out, const chat_abilities *can, const json_t *messages,
                              mica_error *err) {
    mica_status st;
    fitter f = {.can = can, .err = err, .out = json_array()};
    *out = NULL;
    if (!f.out) return nomem(&f);
    if (!json_is_array(messages)) {
        st = fail(err, MICA_E_ARG, "messages: must be an array");
        goto done;
    }
    for (f.i = 0; f.i < json_array_size(messages); f.i++)
        TRY_GOTO(fit_message(&f, json_array_get(messages, f.i)), done);
    TRY_GOTO(fit_system(&f), done);
    *out = f.out;
    f.out = NULL;
done:
    json_decref(f.out);
    return st;
}

/* ---- tools ---- */

/* One function, from {"type": "function", "function": {...}} or the flat form; kinds that are no functions
 * are dropped, as clients send them to every server. */
static mica_status fit_tool(json_t *list, const json_t *tool, size_t i, mica_error *err) {
    const char *type = json_string_value(json_object_get(tool, "type"));
    const json_t *function = json_object_get(tool, "function");
    if (!json_is_object(tool)) return fail(err, MICA_E_ARG, "tools[%zu]: must be an object", i);
    if (type && strcmp(type, "function") != 0) return MICA_OK;
    if (!json_is_object(function)) function = tool;
    if (!json_is_string(json_object_get(function, "name")))
        return fail(err, MICA_E_ARG, "tools[%zu].function.name: missing", i);
    json_t *copy = json_object(), *made = json_pack("{s:s, s:o}", "type", "function", "function", copy);
    const char *key;
    json_t *value;
    bool good = made && json_array_append_new(list, made) == 0;
    json_object_foreach((json_t *)function, key, value) {
        bool ours = function == tool && strcmp(key, "type") == 0;
        if (good && !ours && !json_is_null(value)) good = json_object_set(copy, key, value) == 0;
    }
    if (good && !json_is_object(json_object_get(copy, "parameters")))
        good = json_object_set_new(copy, "parameters",
                                   json_pack("{s:s, s:{}}", "type", "object", "properties")) == 0;
    return good ? MICA_OK : fail(err, MICA_E_NOMEM, "tools[%zu]: out of memory", i);
}

mica_status chat_tools_fit(json_t **out, const json_t *tools, mica_error *err) {
    mica_status st = MICA_OK;
    *out = NULL;
    if (!tools || json_is_null(tools)) return MICA_OK;
    if (!json_is_array(tools)) return fail(err, MICA_E_ARG, "tools: must be an array");
    json_t *list = json_array();
    if (!list) return fail(err, MICA_E_NOMEM, "tools: out of memory");
    for (size_t i = 0; st == MICA_OK && i < json_array_size(tools); i++)
        st = fit_tool(list, json_array_get(tools, i), i, err);
    if (st == MICA_OK && json_array_size(list))
        *out = list;
    else
        json_decref(list);
    return st;
}
