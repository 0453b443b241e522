/* system, messages of content blocks, tools with input_schema, thinking.
 * https://docs.anthropic.com/en/api/messages
 *
 * A client's first system block may be a line of accounting that changes with every request
 * ("x-anthropic-billing-header: ..."). It says nothing to the model, and at the head of the prompt it would
 * make every request a new text, so it is left out. */
#include "serve/anthropic_in.h"

#include "serve/sse.h"

static const char g_billing[] = "x-anthropic-billing-header";

static bool is_type(const json_t *block, const char *type) {
    const char *t = json_string_value(json_object_get(block, "type"));
    return t && strcmp(t, type) == 0;
}

static void append_text(strbuf *b, const json_t *text) {
    strbuf_put(b, json_string_value(text), json_string_length(text));
}

/* ---- system ---- */

static bool is_billing(const json_t *text) {
    const char *s = json_string_value(text);
    return s && strncmp(s, g_billing, sizeof g_billing - 1) == 0;
}

static mica_status parse_system(json_t *messages, const json_t *body, problem *p) {
    json_t *system = json_object_get(body, "system"), *block;
    strbuf b = {0};
    size_t i;
    if (!system || json_is_null(system)) return MICA_OK;
    if (!json_is_string(system) && !json_is_array(system))
        return problem_set(p, 400, "system", "system: it has to be a string or an array of blocks");
    if (json_is_string(system)) append_text(&b, system);
    json_array_foreach(system, i, block) {
        const json_t *text = json_object_get(block, "text");
        if (!json_is_string(text)) {
            strbuf_fini(&b);
            return problem_set(p, 400, "system", "system: block %zu has no text", i);
        }
        if (is_billing(text)) continue;
        if (b.n > 0) strbuf_puts(&b, "\n\n");
        append_text(&b, text);
    }
    if (b.n > 0)
        json_array_append_new(messages,
                              json_pack("{s:s, s:o}", "role", "system", "content", json_buffer(&b)));
    strbuf_fini(&b);
    return MICA_OK;
}

/* ---- messages ---- */

/* The message being made of one turn's blocks. */
typedef struct turn {
    json_t *messages; // borrowed: where it goes
    const char *role;
    strbuf text, think;
    json_t *calls; // owned; NULL: none
    size_t n_text;
} turn;

/* What has gathered becomes a message. */
static void flush_turn(turn *t) {
    if (t->n_text == 0 && t->think.n == 0 && !t->calls) return;
    json_t *m = json_pack("{s:s, s:o}", "role", t->role, "content",
                          t->n_text == 0 && t->calls ? json_null() : json_buffer(&t->text));
    if (t->think.n > 0) json_object_set_new(m, "reasoning_content", json_buffer(&t->think));
    if (t->calls) json_object_set_new(m, "tool_calls", t->calls);
    json_array_append_new(t->messages, m);
    strbuf_clear(&t->text);
    strbuf_clear(&t->think);
    t->calls = NULL;
    t->n_text = 0;
}

static mica_status fail_block(problem *p, const char *why) {
    return problem_set(p, 400, "messages", "messages: %s", why);
}

/* The text of a tool_result: a string, or blocks of text. */
static mica_status result_text(strbuf *b, json_t *content, problem *p) {
    json_t *block;
    size_t i;
    if (json_is_string(content)) append_text(b, content);
    json_array_foreach(content, i, block) {
        if (is_type(block, "image") || is_type(block, "document"))
            return fail_block(p, "an image or a document in a tool_result: this model reads text only");
        if (b->n > 0) strbuf_puts(b, "\n");
        append_text(b, json_object_get(block, "text"));
    }
    return MICA_OK;
}

static mica_status put_result(turn *t, const json_t *block, problem *p) {
    strbuf b = {0};
    flush_turn(t); // results come before what the user says beside them, as they stand
    mica_status st = result_text(&b, json_object_get(block, "content"), p);
    if (st == MICA_OK) {
        json_t *m = json_pack("{s:s, s:o}", "role", "tool", "content", json_buffer(&b));
        json_object_set(m, "tool_call_id", json_object_get(block, "tool_use_id"));
        json_array_append_new(t->messages, m);
    }
    strbuf_fini(&b);
    return st;
}

static mica_status put_use(turn *t, const json_t *block, problem *p) {
    json_t *input = json_object_get(block, "input");
    const char *name = json_string_value(json_object_get(block, "name"));
    const char *id = json_string_value(json_object_get(block, "id"));
    if (!name) return fail_block(p, "a tool_use without a name");
    strbuf args = {0};
    json_text(&args, json_is_object(input) ? json_incref(input) : json_object());
    if (!t->calls) t->calls = json_array();
    json_array_append_new(t->calls,
                          json_pack("{s:s, s:s, s:{s:s, s:o}}", "id", id ? id : "", "type", "function",
                                    "function", "name", name, "arguments", json_buffer(&args)));
    strbuf_fini(&args);
    return MICA_OK;
}

static mica_status put_block(turn *t, const json_t *block, problem *p) {
    if (!json_is_object(block)) return fail_block(p, "a block that is no object");
    if (is_type(block, "text")) {
        const json_t *text = json_object_get(block, "text");
        if (!json_is_string(text)) return fail_block(p, "a text block without text");
        if (t->n_text++ > 0) strbuf_puts(&t->text, "\n\n");
        append_text(&t->text, text);
        return MICA_OK;
    }
    if (is_type(block, "thinking")) {
        append_text(&t->think, json_object_get(block, "thinking"));
        return MICA_OK;
    }
    if (is_type(block, "tool_use")) return put_use(t, block, p);
    if (is_type(block, "tool_result")) return put_result(t, block, p);
    if (is_type(block, "image") || is_type(block, "document"))
        return fail_block(p, "an image or a document: this model reads text only");
    return MICA_OK; // redacted_thinking, server tools and what is yet to come: nothing the model could read
}

static mica_status parse_message(json_t *messages, const json_t *m, problem *p) {
    const char *role = json_string_value(json_object_get(m, "role"));
    json_t *content = json_object_get(m, "content"), *block;
    turn t = {.messages = messages, .role = role};
    size_t i;
    mica_status st = MICA_OK;
    if (!role || (strcmp(role, "user") != 0 && strcmp(role, "assistant") != 0 && strcmp(role, "system") != 0))
        return fail_block(p, "each role has to be user or assistant");
    if (json_is_string(content)) {
        json_array_append_new(messages, json_pack("{s:s, s:O}", "role", role, "content", content));
        return MICA_OK;
    }
    if (!json_is_array(content))
        return fail_block(p, "each content has to be a string or an array of blocks");
    json_array_foreach(content, i, block) if (st == MICA_OK) st = put_block(&t, block, p);
    if (st == MICA_OK) flush_turn(&t);
    strbuf_fini(&t.text);
    strbuf_fini(&t.think);
    json_decref(t.calls);
    return st;
}

static mica_status parse_messages(json_t *messages, const json_t *body, problem *p) {
    json_t *list = NULL, *m;
    size_t i;
    TRY(parse_system(messages, body, p));
    TRY(field_array(&list, body, "messages", p));
    if (json_array_size(list) == 0) return fail_block(p, "missing or empty");
    json_array_foreach(list, i, m) TRY(parse_message(messages, m, p));
    return MICA_OK;
}

/* ---- tools ---- */

static mica_status parse_tools(json_t **tools, const json_t *body, problem *p) {
    json_t *list = NULL, *one;
    size_t i;
    TRY(field_array(&list, body, "tools", p));
    json_array_foreach(list, i, one) {
        const char *type = json_string_value(json_object_get(one, "type"));
        const char *name = json_string_value(json_object_get(one, "name"));
        json_t *schema = json_object_get(one, "input_schema"),
               *description = json_object_get(one, "description");
        if (type && strcmp(type, "custom") != 0) continue; // tools that Anthropic's servers run themselves
        if (!name || !*name) return problem_set(p, 400, "tools", "tools: one without a name");
        json_t *f = json_pack("{s:s}", "name", name);
        if (json_is_string(description)) json_object_set(f, "description", description);
        if (json_is_object(schema))
            json_object_set(f, "parameters", schema);
        else
            json_object_set_new(f, "parameters", json_pack("{s:s, s:{}}", "type", "object", "properties"));
        if (!*tools) *tools = json_array();
        json_array_append_new(*tools, json_pack("{s:s, s:o}", "type", "function", "function", f));
    }
    return MICA_OK;
}

static mica_status parse_choice(chat_ask *c, const json_t *body, problem *p) {
    static const char *const words[] = {"auto", "none", "any", "tool", NULL};
    static const tool_choice choices[] = {TOOLS_AUTO, TOOLS_NONE, TOOLS_REQUIRED, TOOLS_NAMED};
    json_t *v = NULL;
    int word = 0;
    TRY(field_object(&v, body, "tool_choice", p));
    TRY(field_bool(&c->one_call, v, "disable_parallel_tool_use", p));
    TRY(field_word(&word, v, "type", words, p));
    c->choice = choices[word];
    if (c->choice == TOOLS_NAMED) {
        TRY(field_text(&c->tool, v, "name", p));
        if (!c->tool) return problem_set(p, 400, "tool_choice", "tool_choice: the tool's name is missing");
    }
    if ((c->choice == TOOLS_REQUIRED || c->choice == TOOLS_NAMED) && !c->tools)
        return problem_set(p, 400, "tool_choice", "tool_choice: there are no tools to choose");
    return MICA_OK;
}

/* ---- thinking ---- */

static mica_status parse_think(anthropic_in *in, const json_t *body, const char *fallback, problem *p) {
    static const char *const words[] = {"disabled", "enabled", "adaptive", NULL};
    json_t *thinking = NULL, *config = NULL;
    int word = -1;
    in->n_think = -1;
    in->chat.think = fallback;
    in->chat.think_name = "output_config.effort";
    TRY(field_object(&thinking, body, "thinking", p));
    TRY(field_object(&config, body, "output_config", p));
    TRY(field_word(&word, thinking, "type", words, p));
    TRY(field_int(&in->n_think, thinking, "budget_tokens", (field_range){0, INT32_MAX}, p));
    if (word == 1) in->chat.think = "on";
    TRY(field_text(&in->chat.think, config, "effort", p));
    if (word == 0) in->chat.think = "off"; // an effort says how much to think, and this says not to
    return MICA_OK;
}

static mica_status parse(anthropic_in *in, const json_t *body, const char *think, problem *p) {
    json_t *kwargs = NULL, *format = NULL, *config = NULL;
    TRY(parse_messages(in->messages, body, p));
    TRY(parse_tools(&in->tools, body, p));
    in->chat.messages = in->messages;
    in->chat.tools = in->tools;
    TRY(parse_choice(&in->chat, body, p));
    TRY(field_object(&kwargs, body, "chat_template_kwargs", p));
    in->chat.kwargs = kwargs;
    TRY(field_object(&config, body, "output_config", p));
    TRY(field_object(&format, config, "format", p));
    if (format) {
        json_t *schema = NULL;
        TRY(field_object(&schema, format, "schema", p));
        if (!schema)
            return problem_set(p, 400, "output_config.format", "output_config.format: the schema is missing");
        in->chat.schema = schema;
    }
    return parse_think(in, body, think, p);
}

mica_status anthropic_in_parse(anthropic_in *in, const json_t *body, const char *think, problem *p) {
    *in = (anthropic_in){.messages = json_array()};
    const mica_status st = parse(in, body, think, p);
    if (st != MICA_OK) anthropic_in_fini(in);
    return st;
}

void anthropic_in_fini(anthropic_in *in) {
    json_decref(in->messages);
    json_decref(in->tools);
    *in = (anthropic_in){0};
}
