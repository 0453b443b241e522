/* Grammars of the public API: text/grammar.h on a model's vocabulary. */
#include "run/api_int.h"
#include "text/grammar.h"
#include "text/json_in.h"

mica_status mica_grammar_new_gbnf(mica_grammar **out, const mica_model *m, const char *text,
                                  mica_error *err) {
    return grammar_new_gbnf(out, m->vocab, slice_of(text), err);
}

static grammar_start start_of(const mica_model *m, const mica_grammar_options *opt, bool with_tools) {
    const chat_format *f = &chat_template_abilities(m->chat, with_tools)->format;
    return (grammar_start){
        .format = f, .thinking = opt->prompt ? chat_think_after(f, slice_of(opt->prompt)) : CHAT_THINK_OVER};
}

mica_status mica_grammar_new_schema(mica_grammar **out, const mica_model *m, const char *schema_json,
                                    const mica_grammar_options *opt, mica_error *err) {
    static const mica_grammar_options none;
    if (!opt) opt = &none;
    return grammar_new_schema(out, m->vocab, slice_of(schema_json), opt->lenient, start_of(m, opt, false),
                              err);
}

mica_status mica_grammar_new_tools(mica_grammar **out, const mica_model *m, const char *tools_json,
                                   const mica_grammar_options *opt, mica_error *err) {
    static const mica_grammar_options none;
    json_t *tools;
    if (!opt) opt = &none;
    *out = NULL;
    TRY(json_in_parse(&tools, slice_of(tools_json), &(json_in_options){"tools", JSON_IN_ARRAY, 0}, err));
    mica_status st = grammar_new_tools(out, m->vocab,
                                       &(grammar_tools){.tools = tools,
                                                        .only = opt->tool,
                                                        .optional = opt->optional,
                                                        .single = opt->single,
                                                        .start = start_of(m, opt, true)},
                                       err);
    json_decref(tools);
    return st;
}

mica_status mica_grammar_clone(mica_grammar **out, const mica_grammar *g, mica_error *err) {
    return grammar_clone(out, g, err);
}

void mica_grammar_copy(mica_grammar *to, const mica_grammar *from) {
    grammar_copy(to, from);
}

void mica_grammar_reset(mica_grammar *g) {
    grammar_reset(g);
}

void mica_grammar_free(mica_grammar *g) {
    grammar_free(g);
}

mica_status mica_grammar_mask(mica_grammar *g, uint8_t *bits, mica_error *err) {
    return grammar_mask(g, bits, err);
}

mica_status mica_grammar_accept(mica_grammar *g, int32_t id, mica_error *err) {
    return grammar_accept(g, id, err);
}

bool mica_grammar_may_end(const mica_grammar *g) {
    return grammar_may_end(g);
}
