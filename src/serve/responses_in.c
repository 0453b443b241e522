/* Items to messages. https://platform.openai.com/docs/api-reference/responses
 *
 * An assistant's turn is several items there (reasoning, messages, calls) and one message here, so items of
 * the assistant that follow each other are joined. An item without a type is a message; kinds that mean
 * nothing to a model without their tools are left out, as agents send all they have. */
#include "serve/responses_in.h"

#include "serve/carry.h"
#include "serve/field.h"
#include "serve/responses_tools.h"
#include "serve/sse.h"

#include <string.h>

/* The text of content: a string, or parts with text in them. */
static mica_status content_text(strbuf *b, json_t *content, problem *p) {
    json_t *part;
    size_t i;
    if (json_is_string(content)) strbuf_put(b, json_string_value(content), json_string_length(content));
    json_array_foreach(content, i, part) {
        const char *type = field_peek(part, "type");
        json_t *text = json_object_get(part, "text");
        if (!json_is_string(text)) text = json_object_get(part, "refusal");
        if (json_is_string(text)) {
            strbuf_put(b, json_string_value(text), json_string_length(text));
            continue;
        }
        return problem_set(p, 400, "input", "input: content of type \"%.40s\": this model reads text only",
                           type ? type : "");
    }
    return MICA_OK;
}

/* The last message when it is the assistant's and can take more, else a new one. Borrowed. */
static json_t *assistant(json_t *messages) {
    const size_t n = json_array_size(messages);
    json_t *last = n > 0 ? json_array_get(messages, n - 1) : NULL;
    const char *role = field_peek(last, "role");
    if (role && strcmp(role, "assistant") == 0) return last;
    json_array_append_new(messages, json_pack("{s:s, s:n}", "role", "assistant", "content"));
    return json_array_get(messages, n);
}

/* Adds text to a member that is null, missing or a string. */
static void add_text(json_t *m, const char *name, const strbuf *text) {
    strbuf all = {0};
    json_t *had = json_object_get(m, name);
    if (json_is_string(had)) strbuf_put(&all, json_string_value(had), json_string_length(had));
    strbuf_put(&all, text->p, text->n);
    json_object_set_new(m, name, json_buffer(&all));
    strbuf_fini(&all);
}

static mica_status put_message(json_t *messages, const json_t *item, problem *p) {
    const char *role = field_peek(item, "role");
    strbuf text = {0};
    if (!role) return problem_set(p, 400, "input", "input: a message without a role");
    const mica_status st = content_text(&text, json_object_get(item, "content"), p);
    if (st == MICA_OK && strcmp(role, "assistant") == 0)
        add_text(assistant(messages), "content", &text);
    else if (st == MICA_OK)
        json_array_append_new(messages, json_pack("{s:s, s:o}", "role", role, "content", json_buffer(&text)));
    strbuf_fini(&text);
    return st;
}

static mica_status put_call(const responses_in *in, const json_t *item, problem *p) {
    const char *name = field_peek(item, "name"), *id = field_peek(item, "call_id"),
               *args = field_peek(item, "arguments");
    if (!name) return problem_set(p, 400, "input", "input: a function_call without a name");
    name = responses_tool_seen(in->names, field_peek(item, "namespace"), name);
    json_t *m = assistant(in->messages), *calls = json_object_get(m, "tool_calls");
    if (!calls) {
        calls = json_array();
        json_object_set_new(m, "tool_calls", calls);
    }
    json_array_append_new(calls, json_pack("{s:s, s:s, s:{s:s, s:s}}", "id", id ? id : "", "type", "function",
                                           "function", "name", name, "arguments", args ? args : "{}"));
    return MICA_OK;
}

static mica_status put_result(json_t *messages, const json_t *item, problem *p) {
    const char *id = field_peek(item, "call_id");
    strbuf text = {0};
    const mica_status st = content_text(&text, json_object_get(item, "output"), p);
    if (st == MICA_OK)
        json_array_append_new(messages, json_pack("{s:s, s:s, s:o}", "role", "tool", "tool_call_id",
                                                  id ? id : "", "content", json_buffer(&text)));
    strbuf_fini(&text);
    return st;
}

/* The text of thinking, when there is any: an item may hold a summary only, or what another server encrypted.
 */
static mica_status put_reasoning(json_t *messages, const json_t *item, problem *p) {
    strbuf text = {0};
    const json_t *carried = json_object_get(item, "encrypted_content");
    const mica_status st = content_text(&text, json_object_get(item, "content"), p);
    if (text.n == 0 && json_is_string(carried))
        carry_unwrap(&text, (slice){json_string_value(carried), json_string_length(carried)});
    if (st == MICA_OK && text.n > 0) add_text(assistant(messages), "reasoning_content", &text);
    strbuf_fini(&text);
    return st;
}

static mica_status put_item(const responses_in *in, const json_t *item, problem *p) {
    json_t *messages = in->messages;
    const char *type = field_peek(item, "type");
    if (!json_is_object(item)) return problem_set(p, 400, "input", "input: each item has to be an object");
    if (!type || strcmp(type, "message") == 0) return put_message(messages, item, p);
    if (strcmp(type, "function_call") == 0) return put_call(in, item, p);
    if (strcmp(type, "function_call_output") == 0) return put_result(messages, item, p);
    if (strcmp(type, "reasoning") == 0) return put_reasoning(messages, item, p);
    return MICA_OK;
}

mica_status responses_in_items(const responses_in *in, const json_t *input, problem *p) {
    json_t *item;
    size_t i;
    if (json_is_string(input)) {
        json_array_append_new(in->messages, json_pack("{s:s, s:O}", "role", "user", "content", input));
        json_array_append_new(in->items, json_pack("{s:s, s:s, s:[{s:s, s:O}]}", "type", "message", "role",
                                                   "user", "content", "type", "input_text", "text", input));
        return MICA_OK;
    }
    if (!json_is_array(input))
        return problem_set(p, 400, "input", "input: it has to be a string or an array of items");
    json_array_foreach((json_t *)input, i, item) {
        TRY(put_item(in, item, p));
        json_array_append(in->items, item);
    }
    return MICA_OK;
}

void responses_in_output(const responses_in *in, const json_t *output) {
    problem p;
    json_t *item;
    size_t i;
    // What was said before belongs to the turn before, also when that was the assistant's.
    if (json_array_size(output) > 0)
        json_array_append_new(in->messages, json_pack("{s:s, s:n}", "role", "assistant", "content"));
    json_array_foreach((json_t *)output, i, item) put_item(in, item, &p);
}

static mica_status parse_format(chat_ask *c, const json_t *body, problem *p) {
    static const char *const words[] = {"text", "json_object", "json_schema", NULL};
    json_t *text = NULL, *format = NULL, *schema = NULL;
    int word = 0;
    TRY(field_object(&text, body, "text", p));
    TRY(field_object(&format, text, "format", p));
    TRY(field_word(&word, format, "type", words, p));
    if (word == 1) c->schema = json_true();
    if (word != 2) return MICA_OK;
    TRY(field_object(&schema, format, "schema", p));
    if (!schema) return problem_set(p, 400, "text.format", "text.format: the schema is missing");
    c->schema = schema;
    return MICA_OK;
}

mica_status responses_in_form(chat_ask *c, const json_t *body, const char *think, problem *p) {
    json_t *reasoning = NULL;
    TRY(parse_format(c, body, p));
    TRY(field_object(&reasoning, body, "reasoning", p));
    c->think = think;
    c->think_name = "reasoning.effort";
    return field_text(&c->think, reasoning, "effort", p);
}
