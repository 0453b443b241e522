/* Grammars of JSON: a schema, with the thinking that may come before it. */
#include "text/grammar_int.h"
#include "text/json_in.h"
#include "text/schema.h"

enum { SCHEMA_MAX_BYTES = 1 << 20 };

static gram_expr blanks(gram *g) {
    static const gram_range blank[] = {{' ', ' '}, {'\n', '\n'}};
    return gram_repeat(g, gram_class_of(g, blank, 2, false), 0, 4);
}

gram_expr gram_after_thinking(gram *g, grammar_start start, gram_expr body) {
    if (start.thinking == CHAT_THINK_OVER || !start.format) return body;
    const uint32_t rule = gram_rule_named(g, SLICE_LIT("what comes after thinking"));
    gram_define(g, rule, body);
    gram_push(g, blanks(g));
    gram_push(g, gram_call(g, rule));
    const gram_expr thinking =
        gram_until(g, slice_of(start.format->think_end), gram_seq(g, 2), GRAM_CONTROLS);
    if (start.thinking == CHAT_THINK_INSIDE) return thinking;
    gram_push(g, gram_call(g, rule));
    gram_push(g, blanks(g));
    gram_push(g, gram_bytes(g, slice_of(start.format->think_begin)));
    gram_push(g, thinking);
    gram_push(g, gram_seq(g, 3));
    return gram_alt(g, 2);
}

mica_status grammar_new_schema(grammar **out, const text_vocab *v, slice text, bool lenient,
                               grammar_start start, mica_error *err) {
    gram g;
    const token_trie *trie;
    json_t *schema = NULL;
    gram_expr e;
    *out = NULL;
    TRY(text_vocab_trie(&trie, v, err));
    TRY(gram_init(&g, v, trie, err));
    mica_status st = MICA_OK;
    TRY_GOTO(json_in_parse(&schema, text, &(json_in_options){"schema", JSON_IN_ANY, SCHEMA_MAX_BYTES}, err),
             done);
    if (schema_compile(&g, &(schema_request){.schema = schema, .name = "", .lenient = lenient}, &e) ==
        MICA_OK) {
        const uint32_t root = gram_rule_new(&g);
        gram_define(&g, root, gram_after_thinking(&g, start, e));
        if (g.st == MICA_OK) TRY_GOTO(gram_finish(out, &g, root, err), done);
    }
    if (g.st != MICA_OK) st = fail(err, g.st, "%s", g.err.text);
done:
    json_decref(schema);
    gram_fini(&g);
    return st;
}
