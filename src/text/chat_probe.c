/* What a chat template can do, found out by rendering small conversations with it and looking for their words
 * in the result. About twenty renders of a few lines each, once per model. */
#include "text/chat_int.h"

#include "base/mem.h"

/* One render; text is NULL when the template raised. */
typedef struct attempt {
    jinja_output out;
} attempt;

static bool shows(const attempt *a, const char *word) {
    return a->out.text && memmem(a->out.text, a->out.n, word, strlen(word)) != NULL;
}

typedef struct prober {
    chat_variant *v;
    const json_t *tokens;
    bool needs_tools; // it raises without any, as templates named tool_use may
} prober;

static json_t *a_tool(void) {
    return json_pack("[{s:s, s:{s:s, s:s, s:{s:s, s:{s:{s:s, s:s}}, s:[s]}}}]", "type", "function",
                     "function", "name", "qztool", "description", "d", "parameters", "type", "object",
                     "properties", "qzarg", "type", "string", "description", "d", "required", "qzarg");
}

/* messages and tools are consumed; tools may be NULL. */
static attempt try_it(const prober *p, json_t *messages, json_t *tools) {
    attempt a = {0};
    if (!tools && p->needs_tools) tools = a_tool();
    json_t *context = json_pack("{s:o, s:b}", "messages", messages, "add_generation_prompt", 1);
    if (!context)
        json_decref(tools);
    else
        json_object_set_new(context, "tools", tools ? tools : json_null());
    chat_variant_render(&a.out, p->v, p->tokens, context, 0, NULL);
    return a;
}

static void done(attempt *a) {
    jinja_output_fini(&a->out);
}

/* ---- content and roles ---- */

static json_t *said(const char *role, const char *content) {
    return json_pack("{s:s, s:s}", "role", role, "content", content);
}

static json_t *said_in_parts(const char *role, const char *one, const char *two) {
    return json_pack("{s:s, s:[{s:s, s:s}, {s:s, s:s}]}", "role", role, "content", "type", "text", "text",
                     one, "type", "text", "text", two);
}

static void probe_content(prober *p) {
    chat_variant *v = p->v;
    attempt s = try_it(p, json_pack("[o]", said("user", "qzuser")), NULL);
    attempt parts = try_it(p, json_pack("[o]", said_in_parts("user", "qzone", "qztwo")), NULL);
    v->can.strings = shows(&s, "qzuser");
    // a template that prints the list itself shows the word `type`
    v->can.parts = shows(&parts, "qzone") && shows(&parts, "qztwo") && !shows(&parts, "'type'") &&
                   !shows(&parts, "\"type\"");
    done(&s);
    done(&parts);
}

/* A message in the shape the template takes. */
static json_t *fit(const chat_variant *v, const char *role, const char *content) {
    if (v->can.strings || !v->can.parts) return said(role, content);
    return json_pack("{s:s, s:[{s:s, s:s}]}", "role", role, "content", "type", "text", "text", content);
}

static void probe_roles(const prober *p) {
    chat_variant *v = p->v;
    attempt one = try_it(p, json_pack("[o, o]", fit(v, "system", "qzsys"), fit(v, "user", "qzuser")), NULL);
    attempt late =
        try_it(p,
               json_pack("[o, o, o, o, o]", fit(v, "system", "qzsys"), fit(v, "user", "a"),
                         fit(v, "assistant", "b"), fit(v, "system", "qzlate"), fit(v, "user", "c")),
               NULL);
    attempt two = try_it(
        p, json_pack("[o, o, o]", fit(v, "system", "qzsys"), fit(v, "system", "qztwo"), fit(v, "user", "c")),
        NULL);
    v->can.system = shows(&one, "qzsys") && shows(&one, "qzuser");
    v->can.more_system =
        shows(&late, "qzsys") && shows(&late, "qzlate") && shows(&two, "qzsys") && shows(&two, "qztwo");
    attempt parts = try_it(
        p, json_pack("[o, o]", said_in_parts("system", "qzone", "qztwo"), fit(v, "user", "qzuser")), NULL);
    attempt empty = try_it(
        p, json_pack("[o, o, o]", fit(v, "user", "a"), said("assistant", ""), fit(v, "user", "c")), NULL);
    attempt dev =
        try_it(p, json_pack("[o, o]", fit(v, "developer", "qzdev"), fit(v, "user", "qzuser")), NULL);
    v->can.system_parts = v->can.parts && shows(&parts, "qzone") && shows(&parts, "qztwo");
    v->can.developer = strstr(v->source, "developer") != NULL && shows(&dev, "qzdev");
    v->can.empty_answer = empty.out.text != NULL;
    done(&parts);
    done(&empty);
    done(&dev);
    done(&one);
    done(&late);
    done(&two);
}

/* ---- tools ---- */

/* user, a call of qztool, its result. arguments is consumed; content NULL: none. */
static attempt try_call(const prober *p, json_t *arguments, const char *content, const char *id) {
    json_t *call = json_pack("{s:s, s:s, s:{s:s, s:o}}", "id", id, "type", "function", "function", "name",
                             "qztool", "arguments", arguments);
    json_t *asked = json_pack("{s:s, s:[o]}", "role", "assistant", "tool_calls", call);
    if (asked && content) json_object_set_new(asked, "content", json_string(content));
    json_t *answer = json_pack("{s:s, s:s, s:s, s:s}", "role", "tool", "name", "qztool", "tool_call_id", id,
                               "content", "qzres");
    return try_it(p, json_pack("[o, o, o]", fit(p->v, "user", "qzuser"), asked, answer), a_tool());
}

static json_t *object_args(void) {
    return json_pack("{s:s}", "qzarg", "qzval");
}

/* Judged by what stands behind the user's words, as the list of tools in front has names and JSON too. */
static bool shows_later(const attempt *a, const char *word) {
    const char *from = a->out.text ? memmem(a->out.text, a->out.n, "qzuser", 6) : NULL;
    return from && memmem(from, a->out.n - (size_t)(from - a->out.text), word, strlen(word));
}

static chat_family family_of(const attempt *a, const char *source) {
    bool tags = shows_later(a, "<tool_call>");
    if (tags && shows_later(a, "<function=qztool>") && shows_later(a, "<parameter=qzarg>"))
        return CHAT_QWEN_XML;
    if (tags && shows_later(a, "\"name\": \"qztool\"")) return CHAT_HERMES;
    if (shows_later(a, "<|tool_call>call:qztool{")) return CHAT_GEMMA4;
    if (shows_later(a, "{\"name\": \"qztool\", \"parameters\":")) return CHAT_LLAMA3;
    if (a->out.text) return CHAT_PLAIN;
    // the conversation did not please it: then by what its instructions show
    if (strstr(source, "<tool_call>") && strstr(source, "<parameter=")) return CHAT_QWEN_XML;
    return strstr(source, "<tool_call>\\n{\"name\"") ? CHAT_HERMES : CHAT_PLAIN;
}

static void probe_calls(const prober *p) {
    chat_variant *v = p->v;
    static const char long_id[] = "call_0123456789abcdef", nine[] = "call12345";
    attempt with_long = try_call(p, object_args(), "", long_id);
    attempt object = try_call(p, object_args(), "", nine);
    attempt text = try_call(p, json_string("{\"qzarg\": \"qzval\"}"), "", nine);
    attempt broken = try_call(p, json_string("{qzbroken"), "", nine);
    attempt bare = try_call(p, object_args(), NULL, nine);
    // an object printed by Python's rules has single quotes; text printed as a JSON string has escaped ones
    bool object_good = shows(&object, "qzval") && !shows(&object, "'qzarg'");
    v->can.string_args = shows(&text, "qzval") && !shows(&text, "\\\"qzarg");
    v->can.broken_args = v->can.string_args && shows(&broken, "{qzbroken");
    v->can.object_args = object_good || !v->can.string_args;
    v->can.no_content = bare.out.text && !shows(&bare, "None");
    v->can.short_ids = !with_long.out.text && object.out.text;
    v->can.format.family = family_of(object_good ? &object : &text, v->source);
    done(&with_long);
    done(&object);
    done(&text);
    done(&broken);
    done(&bare);
}

void chat_probe(chat_variant *v, const json_t *tokens) {
    chat_think_markers(&v->can.format, v->source);
    prober p = {.v = v, .tokens = tokens};
    probe_content(&p);
    if (!v->can.strings && !v->can.parts) {
        p.needs_tools = true;
        probe_content(&p);
    }
    if (!v->can.strings && !v->can.parts) { // it wants something none of these conversations has
        v->can = (chat_abilities){.format = v->can.format,
                                  .strings = true,
                                  .system = true,
                                  .more_system = true,
                                  .tools = true,
                                  .object_args = true,
                                  .no_content = true,
                                  .empty_answer = true};
        return;
    }
    probe_roles(&p);
    attempt t = try_it(&p, json_pack("[o]", fit(v, "user", "qzuser")), a_tool());
    v->can.tools = shows(&t, "qztool");
    done(&t);
    probe_calls(&p);
    json_t *base =
        json_pack("{s:[o], s:b}", "messages", fit(v, "user", "qzuser"), "add_generation_prompt", 1);
    if (base) chat_think_probe(v, tokens, base);
    json_decref(base);
}
