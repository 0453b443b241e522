/* What the chat endpoints share on the way in. */
#include "serve/prompt.h"

#include "base/mem.h"

#include <stdlib.h>

/* ---- Tools ---- */

/* The function of a tool in either spelling: {"type": "function", "function": {...}} or, as the Responses API
 * has it, {"type": "function", "name": ..., ...}. NULL: another kind of tool. */
static const json_t *function_of(const json_t *tool) {
    const char *type = json_string_value(json_object_get(tool, "type"));
    const json_t *f = json_object_get(tool, "function");
    if (type && strcmp(type, "function") != 0) return NULL;
    if (json_is_object(f)) return f;
    return json_is_string(json_object_get(tool, "name")) ? tool : NULL;
}

static json_t *tidy_tool(const json_t *f) {
    json_t *out = json_object(), *parameters = json_object_get(f, "parameters");
    json_t *description = json_object_get(f, "description");
    json_object_set(out, "name", json_object_get(f, "name"));
    if (json_is_string(description)) json_object_set(out, "description", description);
    if (json_is_object(parameters))
        json_object_set(out, "parameters", parameters);
    else
        json_object_set_new(out, "parameters", json_pack("{s:s, s:{}}", "type", "object", "properties"));
    return json_pack("{s:s, s:o}", "type", "function", "function", out);
}

mica_status prompt_tools(json_t **tools, const json_t *body, problem *p) {
    json_t *given = NULL, *one;
    size_t i;
    *tools = NULL;
    TRY(field_array(&given, body, "tools", p));
    json_array_foreach(given, i, one) {
        if (!json_is_object(one)) return problem_set(p, 400, "tools", "tools: each has to be an object");
        const json_t *f = function_of(one);
        if (!f) continue;
        const char *name = json_string_value(json_object_get(f, "name"));
        if (!name || !*name) return problem_set(p, 400, "tools", "tools: a function without a name");
        if (!*tools) *tools = json_array();
        json_array_append_new(*tools, tidy_tool(f));
    }
    return MICA_OK;
}

static bool has_tool(const json_t *tools, const char *name) {
    size_t i;
    json_t *one;
    json_array_foreach((json_t *)tools, i, one) {
        const char *n = json_string_value(json_object_get(json_object_get(one, "function"), "name"));
        if (n && strcmp(n, name) == 0) return true;
    }
    return false;
}

mica_status prompt_tool_choice(chat_ask *c, const json_t *body, problem *p) {
    static const char *const words[] = {"auto", "none", "required", NULL};
    const json_t *v = json_object_get(body, "tool_choice");
    bool parallel = true;
    int word = TOOLS_AUTO;
    TRY(field_bool(&parallel, body, "parallel_tool_calls", p));
    c->one_call = !parallel;
    if (json_is_object(v)) {
        const json_t *f = json_object_get(v, "function");
        c->tool = json_string_value(json_object_get(f ? f : v, "name"));
        if (!c->tool || !has_tool(c->tools, c->tool))
            return problem_set(p, 400, "tool_choice", "tool_choice: \"%.60s\" is not one of the tools",
                               c->tool ? c->tool : "");
        c->choice = TOOLS_NAMED;
        return MICA_OK;
    }
    TRY(field_word(&word, body, "tool_choice", words, p));
    c->choice = (tool_choice)word;
    if (c->choice == TOOLS_REQUIRED && !c->tools)
        return problem_set(p, 400, "tool_choice", "tool_choice: required, but there are no tools");
    return MICA_OK;
}

/* ---- Form ---- */

static mica_status format_schema(chat_ask *c, const json_t *format, problem *p) {
    json_t *inner = NULL, *schema = NULL;
    TRY(field_object(&inner, format, "json_schema", p));
    TRY(field_object(&schema, inner ? inner : format, "schema", p));
    if (!schema)
        return problem_set(p, 400, "response_format.json_schema", "response_format: the schema is missing");
    c->schema = schema;
    return MICA_OK;
}

mica_status prompt_format(chat_ask *c, const json_t *body, problem *p) {
    static const char *const words[] = {"text", "json_object", "json_schema", NULL};
    json_t *format = NULL, *schema = NULL;
    int word = 0;
    TRY(field_object(&format, body, "response_format", p));
    TRY(field_object(&schema, body, "json_schema", p));
    TRY(field_text(&c->grammar, body, "grammar", p));
    if (c->grammar && !*c->grammar) c->grammar = NULL;
    c->schema = schema;
    if (format) {
        if (!json_object_get(format, "type"))
            return problem_set(p, 400, "response_format", "response_format: its type is missing");
        TRY(field_word(&word, format, "type", words, p));
        if (word == 2) TRY(format_schema(c, format, p));
        if (word == 1) {
            TRY(field_object(&schema, format, "schema", p));
            c->schema = schema ? schema : json_true();
        }
    }
    if (c->schema && c->grammar)
        return problem_set(p, 400, "grammar",
                           "grammar: given beside a schema: one of them is the form of the answer");
    return MICA_OK;
}

mica_status prompt_think(chat_ask *c, const json_t *body, const char *fallback, problem *p) {
    bool on = false;
    c->think = fallback;
    c->think_name = "reasoning_effort";
    TRY(field_bool(&on, body, "enable_thinking", p));
    if (json_is_boolean(json_object_get(body, "enable_thinking"))) c->think = on ? "on" : "off";
    // kwargs that say so win over the server's default
    if (c->kwargs &&
        (json_object_get(c->kwargs, "enable_thinking") || json_object_get(c->kwargs, "reasoning_effort") ||
         json_object_get(c->kwargs, "thinking")))
        c->think = NULL;
    return field_text(&c->think, body, "reasoning_effort", p);
}

/* ---- Grammars ---- */

/* A schema's grammar. In tools a keyword that no grammar can hold to is left out, in an answer's form
 * refused. */
static mica_status schema_grammar(job *j, const mica_model *m, const chat_ask *c, const char *prompt,
                                  problem *p) {
    mica_error err = {0};
    char *schema = json_is_true(c->schema) ? NULL : json_dumps(c->schema, JSON_COMPACT | JSON_ENCODE_ANY);
    const mica_grammar_options opt = {.prompt = prompt};
    const mica_status st =
        mica_grammar_new_schema(&j->grammar, m, schema ? schema : "{\"type\":\"object\"}", &opt, &err);
    free(schema); // jansson's
    return st == MICA_OK ? MICA_OK : problem_of(p, st, &err, "response_format");
}

static mica_status tools_grammar(job *j, const mica_model *m, const chat_ask *c, const char *prompt,
                                 problem *p) {
    mica_error err = {0};
    const mica_grammar_options opt = {.prompt = prompt, .tool = c->tool, .single = c->one_call};
    const mica_status st = mica_grammar_new_tools(&j->grammar, m, j->tools, &opt, &err);
    return st == MICA_OK ? MICA_OK : problem_of(p, st, &err, "tool_choice");
}

/* prompt: the text that the answer follows, NULL: no template. */
static mica_status make_grammar(job *j, const mica_model *m, const chat_ask *c, const char *prompt,
                                problem *p) {
    mica_error err = {0};
    const bool forced = c->choice == TOOLS_REQUIRED || c->choice == TOOLS_NAMED;
    if (forced && (c->schema || c->grammar))
        return problem_set(p, 400, "tool_choice",
                           "tool_choice: a forced call has no room for another form of answer");
    if (forced) return tools_grammar(j, m, c, prompt, p);
    if (c->schema) return schema_grammar(j, m, c, prompt, p);
    if (!c->grammar) return MICA_OK;
    const mica_status st = mica_grammar_new_gbnf(&j->grammar, m, c->grammar, &err);
    return st == MICA_OK ? MICA_OK : problem_of(p, st, &err, "grammar");
}

mica_status prompt_form(job *j, const mica_model *m, const json_t *body, problem *p) {
    chat_ask c = {0};
    TRY(prompt_format(&c, body, p));
    return make_grammar(j, m, &c, NULL, p);
}

/* ---- The prompt ---- */

/* An empty list of messages has nothing to answer; a template might make something of it all the same. */
static mica_status check_messages(const json_t *messages, problem *p) {
    if (!json_is_array(messages)) return problem_set(p, 400, "messages", "messages: missing");
    if (json_array_size(messages) == 0) return problem_set(p, 400, "messages", "messages: empty");
    return MICA_OK;
}

static char *dump(const json_t *v) {
    return v ? json_dumps(v, JSON_COMPACT) : NULL;
}

static mica_status render(job *j, const mica_model *m, const chat_ask *c, char **text, problem *p) {
    mica_error err = {0};
    const bool with_tools = c->tools && c->choice != TOOLS_NONE;
    char *messages = dump(c->messages), *kwargs = dump(c->kwargs),
         *tools = with_tools ? dump(c->tools) : NULL;
    const mica_chat_options opt = {.tools_json = tools,
                                   .kwargs_json = kwargs,
                                   .think = c->think,
                                   .no_generation_prompt = c->no_generation_prompt,
                                   .in_think = &j->in_think};
    mica_status st = messages ? mica_encode_chat(m, messages, &opt, &j->prompt, text, &err) : MICA_E_NOMEM;
    if (st != MICA_OK) {
        const bool effort = c->think && strstr(err.text, c->think) && !strstr(err.text, "message");
        problem_of(p, st, &err, effort ? c->think_name : "messages");
    }
    if (st == MICA_OK && tools && !(j->tools = mem_strdup(tools)))
        st = problem_set(p, 500, NULL, "out of memory");
    free(messages); // jansson's
    free(kwargs);
    free(tools);
    return st;
}

mica_status prompt_chat(job *j, const mica_model *m, const chat_ask *c, char **text, problem *p) {
    char *prompt = NULL;
    TRY(check_messages(c->messages, p));
    mica_status st = render(j, m, c, &prompt, p);
    if (st == MICA_OK) st = make_grammar(j, m, c, prompt, p);
    j->chat = true;
    j->one_call = c->one_call;
    j->bare_grammar = c->grammar != NULL;
    if (text && st == MICA_OK)
        *text = prompt;
    else
        mica_text_free(prompt);
    return st;
}
