/* Grammars of tool calls: the marks of a model's family around arguments that keep to the tool's schema.
 * answer_call.c reads what these write; t_grammar_tools.c holds the two together. */
#include "text/chat_int.h"
#include "text/grammar_int.h"
#include "text/schema.h"

typedef struct maker {
    gram *g;
    const grammar_tools *t;
    chat_family family;
} maker;

static gram_expr lit(gram *g, const char *text) {
    return gram_bytes(g, slice_of(text));
}

/* Line ends and spaces around marks. */
static gram_expr blanks(gram *g) {
    static const gram_range blank[] = {{' ', ' '}, {'\n', '\n'}};
    return gram_repeat(g, gram_class_of(g, blank, 2, false), 0, 4);
}

static const char *begin_mark(chat_family f) {
    return f == CHAT_GEMMA4 ? "<|tool_call>" : "<tool_call>";
}

/* Arguments by the schema; any object when no grammar can be made of it. A tool's schema comes from a program
 * that expects every server to take it: one that is broken must not fail all requests that carry it. */
static gram_expr arguments(maker *k, const json_t *schema, const char *name) {
    gram *g = k->g;
    const uint32_t n_pile = g->n_pile;
    gram_expr e;
    if (g->st != MICA_OK) return 0;
    const schema_request r = {.schema = schema, .name = name, .lenient = true};
    if (schema_compile(g, &r, &e) == MICA_E_ARG) {
        g->st = MICA_OK;
        g->n_pile = n_pile;
        e = schema_any_object(g);
    }
    return e;
}

static const char *string_of(const json_t *tool, const char *key) {
    return json_string_value(json_object_get(tool, key));
}

static gram_expr json_name(gram *g, const json_t *tool) {
    char *text = json_dumps(json_object_get(tool, "name"), JSON_ENCODE_ANY);
    if (!text) return gram_fail(g, MICA_E_NOMEM, "tools: out of memory"), 0;
    const gram_expr e = lit(g, text);
    free(text); // jansson's own
    return e;
}

/* {"name": NAME, KEY: ARGUMENTS} */
static gram_expr json_call(maker *k, const json_t *tool, const char *key, const char *where) {
    gram *g = k->g;
    gram_push(g, lit(g, "{"));
    gram_push(g, schema_space(g));
    gram_push(g, lit(g, "\"name\":"));
    gram_push(g, schema_space(g));
    gram_push(g, json_name(g, tool));
    gram_push(g, lit(g, ","));
    gram_push(g, schema_space(g));
    gram_push(g, lit(g, key));
    gram_push(g, schema_space(g));
    gram_push(g, arguments(k, json_object_get(tool, "parameters"), where));
    gram_push(g, schema_space(g));
    gram_push(g, lit(g, "}"));
    return gram_seq(g, 12);
}

/* ---- <function=NAME> ---- */

/* A value of the XML style with the tag that ends it: a string stands there as it is, everything else as
 * JSON. */
static gram_expr xml_value(maker *k, const json_t *schema, const char *where) {
    static const char end[] = "\n</parameter>\n";
    gram *g = k->g;
    const char *type = string_of(schema, "type");
    const json_t *list = json_object_get(schema, "enum");
    uint32_t n = 0;
    if (!type || strcmp(type, "string") != 0) {
        gram_push(g, arguments(k, schema, where));
        gram_push(g, lit(g, end));
        return gram_seq(g, 2);
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *word = json_array_get(list, i);
        if (!json_is_string(word)) continue;
        gram_push(g, gram_bytes(g, (slice){json_string_value(word), json_string_length(word)}));
        n++;
    }
    if (n == 0) return gram_until(g, slice_of(end), gram_seq(g, 0), 0);
    gram_push(g, gram_alt(g, n));
    gram_push(g, lit(g, end));
    return gram_seq(g, 2);
}

static bool is_required(const json_t *schema, const char *key) {
    const json_t *list = json_object_get(schema, "required");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        if (name && strcmp(name, key) == 0) return true;
    }
    return false;
}

static gram_expr xml_call(maker *k, const json_t *tool, const char *where) {
    gram *g = k->g;
    const json_t *schema = json_object_get(tool, "parameters");
    const char *key;
    json_t *value;
    uint32_t n = 3;
    gram_push(g, lit(g, "<function="));
    gram_push(g, lit(g, string_of(tool, "name")));
    gram_push(g, lit(g, ">\n"));
    json_object_foreach(json_object_get(schema, "properties"), key, value) {
        strbuf inner = {0};
        strbuf_printf(&inner, "%s.%s", where, key);
        gram_push(g, lit(g, "<parameter="));
        gram_push(g, lit(g, key));
        gram_push(g, lit(g, ">\n"));
        gram_push(g, xml_value(k, value, strbuf_cstr(&inner)));
        gram_push(g, gram_repeat(g, gram_seq(g, 4), is_required(schema, key) ? 1 : 0, 1));
        n++;
        if (inner.failed) gram_fail(g, MICA_E_NOMEM, "tools: out of memory");
        strbuf_fini(&inner);
    }
    gram_push(g, lit(g, "</function>"));
    return gram_seq(g, n + 1);
}

/* ---- one call ---- */

/* Of one tool, behind the mark that begins it. */
static gram_expr call_of(maker *k, const json_t *tool, const char *where) {
    gram *g = k->g;
    if (k->family == CHAT_LLAMA3) return json_call(k, tool, "\"parameters\":", where);
    if (k->family == CHAT_GEMMA4) {
        gram_push(g, lit(g, "call:"));
        gram_push(g, lit(g, string_of(tool, "name")));
        gram_push(g, arguments(k, json_object_get(tool, "parameters"), where));
        gram_push(g, lit(g, "<tool_call|>"));
        return gram_seq(g, 4);
    }
    gram_push(g, blanks(g));
    gram_push(g, k->family == CHAT_HERMES ? json_call(k, tool, "\"arguments\":", where)
                                          : xml_call(k, tool, where));
    gram_push(g, blanks(g));
    gram_push(g, lit(g, "</tool_call>"));
    return gram_seq(g, 4);
}

/* Of any tool, as a rule: GRAM_NONE when there is none that may be called. */
static uint32_t any_call(maker *k, const json_t *tools) {
    uint32_t n = 0;
    for (size_t i = 0; i < json_array_size(tools) && k->g->st == MICA_OK; i++) {
        const json_t *tool = json_object_get(json_array_get(tools, i), "function");
        char where[64];
        if (k->t->only && strcmp(k->t->only, string_of(tool, "name")) != 0) continue;
        snprintf(where, sizeof where, "tools[%zu].function.parameters", i);
        gram_push(k->g, call_of(k, tool, where));
        n++;
    }
    if (n == 0) return GRAM_NONE;
    const uint32_t rule = gram_rule_new(k->g);
    gram_define(k->g, rule, gram_alt(k->g, n));
    return rule;
}

/* ---- the answer ---- */

static gram_expr forced(maker *k, uint32_t call) {
    gram *g = k->g;
    const bool bare = k->family == CHAT_LLAMA3;
    gram_push(g, blanks(g));
    if (!bare) gram_push(g, lit(g, begin_mark(k->family)));
    gram_push(g, gram_call(g, call));
    if (k->t->single) return gram_seq(g, bare ? 2 : 3);
    gram_push(g, bare ? lit(g, ";") : gram_seq(g, 0));
    gram_push(g, blanks(g));
    if (!bare) gram_push(g, lit(g, begin_mark(k->family)));
    gram_push(g, gram_call(g, call));
    gram_push(g, gram_repeat(g, gram_seq(g, bare ? 3 : 4), 0, GRAM_NONE));
    return gram_seq(g, bare ? 3 : 4);
}

/* Text that may go on for ever: up to a byte that no text has. */
static gram_expr any_text(gram *g) {
    return gram_until(g, SLICE_LIT("\xFF"), gram_seq(g, 0), GRAM_MAY_END | GRAM_CONTROLS);
}

/* An answer of CHAT_LLAMA3 is calls when it begins like one. */
static gram_expr bare_or_text(maker *k, uint32_t call) {
    static const gram_range begin[] = {{'{', '{'}, {' ', ' '}, {'\n', '\n'}};
    gram *g = k->g;
    gram_push(g, forced(k, call));
    gram_push(g, blanks(g));
    gram_push(g, gram_class_of(g, begin, 3, true));
    gram_push(g, any_text(g));
    gram_push(g, gram_seq(g, 3));
    gram_push(g, gram_seq(g, 0));
    return gram_alt(g, 3);
}

/* Text, until a call begins; behind it the same again. */
static gram_expr optional(maker *k, uint32_t call) {
    gram *g = k->g;
    if (k->family == CHAT_LLAMA3) return bare_or_text(k, call);
    const uint32_t rule = gram_rule_new(g);
    gram_push(g, gram_call(g, call));
    if (!k->t->single) gram_push(g, gram_call(g, rule));
    const gram_expr then = gram_seq(g, k->t->single ? 1 : 2);
    gram_define(g, rule, gram_until(g, slice_of(begin_mark(k->family)), then, GRAM_MAY_END | GRAM_CONTROLS));
    return gram_call(g, rule);
}

static mica_status make(grammar **out, maker *k, const json_t *tools, mica_error *err) {
    gram *g = k->g;
    const uint32_t call = any_call(k, tools);
    if (g->st == MICA_OK && call == GRAM_NONE)
        return fail(err, MICA_E_ARG, "tools: %s%.100s", k->t->only ? "none is named " : "there are none",
                    k->t->only ? k->t->only : "");
    const uint32_t root = gram_rule_new(g);
    gram_define(g, root,
                gram_after_thinking(g, k->t->start, k->t->optional ? optional(k, call) : forced(k, call)));
    if (g->st != MICA_OK) return fail(err, g->st, "%s", g->err.text);
    return gram_finish(out, g, root, err);
}

mica_status grammar_new_tools(grammar **out, const text_vocab *v, const grammar_tools *t, mica_error *err) {
    gram g;
    const token_trie *trie;
    json_t *tools = NULL;
    *out = NULL;
    const chat_family family = t->start.format ? t->start.format->family : CHAT_PLAIN;
    if (family == CHAT_PLAIN)
        return fail(err, MICA_E_UNSUPPORTED,
                    "tools: calls cannot be asked for: the model's template writes none");
    TRY(text_vocab_trie(&trie, v, err));
    TRY(gram_init(&g, v, trie, err));
    g.gemma = family == CHAT_GEMMA4;
    maker k = {.g = &g, .t = t, .family = family};
    mica_status st = chat_tools_fit(&tools, t->tools, err);
    if (st == MICA_OK) st = make(out, &k, tools, err);
    json_decref(tools);
    gram_fini(&g);
    return st;
}
