/* Grammars of the public API: text/grammar.h on a model's vocabulary. */
#include "run/api_int.h"
#include "text/grammar.h"

mica_status mica_grammar_new_gbnf(mica_grammar **out, const mica_model *m, const char *text,
                                  mica_error *err) {
    return grammar_new_gbnf(out, m->vocab, slice_of(text), err);
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
