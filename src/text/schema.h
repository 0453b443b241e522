/* JSON schemas to grammars.
 *
 *     schema_compile(&g, &(schema_request){.schema = j, .name = ""}, &expr);  // expr: the texts it allows
 *
 * The subset is in docs/GRAMMAR.md. A keyword that is known and cannot be enforced is MICA_E_ARG with the
 * keyword and the JSON pointer of its schema; `lenient` leaves it out instead (for tools, whose schemas come
 * from programs that know nothing of grammars). Keywords nobody knows are remarks and stay without effect.
 *
 * What comes out is compact or neatly indented JSON: between tokens nothing, one space, or a line end with up
 * to 20 blanks. Members come in the order of `properties`, others behind them. Pure; one gram, one thread. */
#ifndef MICA_TEXT_SCHEMA_H
#define MICA_TEXT_SCHEMA_H

#include "text/grammar_int.h"

#include <jansson.h>

typedef struct schema_request {
    const json_t *schema; // what "#" is to its references; borrowed for the call
    const char *name;     // goes before pointers in errors, and tells one schema of a gram from another
    bool lenient;
} schema_request;

mica_status schema_compile(gram *g, const schema_request *r, gram_expr *out);
gram_expr schema_any_object(gram *g); // any JSON object
gram_expr schema_space(gram *g);      // what may stand between tokens

#endif
