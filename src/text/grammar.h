/* Grammars that an answer is held to while it is sampled.
 *
 *     grammar_new_gbnf(&g, vocab, text, &err);
 *     grammar_mask(g, bits, &err);        // one bit for each token id: may it come now?
 *     grammar_accept(g, id, &err);        // it came
 *
 * How it works. A grammar is compiled to a small non-deterministic automaton for each rule, over bytes, with
 * calls between them (grammar_compile.c). Where an answer stands is a set of places in those automata, each
 * under a chain of callers; such sets are made once, kept and numbered, and so is what each byte makes of
 * them (grammar_state.c): after some tokens the grammar is a table that grows no more. A mask is one walk of
 * the vocabulary's tree of bytes through that table, and the dear part of it, the tokens that a place allows
 * whoever called, is kept as well (grammar_mask.c).
 *
 * A place never stands in the middle of nothing: rules that cannot end are refused, so what may begin may
 * also be finished. Characters cut by a token are no special case, since everything is bytes; character
 * classes take well-formed UTF-8 only.
 *
 * Bounds. Text, rules, nesting and size when compiling; the number of places, the memory of the tables and
 * the work of one mask when running. All are in grammar_int.h; going over one is MICA_E_ARG.
 *
 * Ownership: a grammar refers to its vocabulary. Threads: a grammar belongs to one thread at a time; clones
 * share tables behind a lock and may be used by different threads. */
#ifndef MICA_TEXT_GRAMMAR_H
#define MICA_TEXT_GRAMMAR_H

#include "base/status.h"
#include "base/str.h"
#include "text/chat.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct mica_grammar grammar;

/* How an answer begins. */
typedef struct grammar_start {
    const chat_format *format; // NULL: no thinking is known
    chat_thinking thinking;    // what may come before what the grammar asks for
} grammar_start;

mica_status grammar_new_gbnf(grammar **out, const text_vocab *v, slice text, mica_error *err);
/* schema: JSON text of a schema (schema.h has the subset, and what lenient leaves out). */
mica_status grammar_new_schema(grammar **out, const text_vocab *v, slice schema, bool lenient,
                               grammar_start start, mica_error *err);

typedef struct grammar_tools {
    const json_t *tools; // array of OpenAI tool definitions; borrowed for the call
    const char *only;    // the one that may be called; NULL: any
    bool optional;       // text may come instead of a call, and before it
    bool single;         // one call at most
    grammar_start start; // its format says how calls are written
} grammar_tools;
/* Calls as the model's template writes them, with arguments that keep to the tools' schemas as far as a
 * grammar can. MICA_E_UNSUPPORTED: the template knows no calls. */
mica_status grammar_new_tools(grammar **out, const text_vocab *v, const grammar_tools *t, mica_error *err);

mica_status grammar_clone(grammar **out, const grammar *g, mica_error *err); // at the same place
void grammar_copy(grammar *to, const grammar *from); // the place; both are clones of one. Allocates nothing
void grammar_reset(grammar *g);
void grammar_free(grammar *g); // NULL allowed

/* bits: [(n_vocab + 7) / 8], bit i % 8 of byte i / 8 is id i. MICA_E_ARG: the grammar takes too much work. */
mica_status grammar_mask(grammar *g, uint8_t *bits, mica_error *err);
/* MICA_E_ARG: the token may not come; the place stays. */
mica_status grammar_accept(grammar *g, int32_t id, mica_error *err);
bool grammar_may_end(const grammar *g);

#endif
