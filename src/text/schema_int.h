/* The inside of schema*.c. */
#ifndef MICA_TEXT_SCHEMA_INT_H
#define MICA_TEXT_SCHEMA_INT_H

#include "text/schema.h"

enum {
    SCHEMA_MAX = 20000,     // subschemas looked at
    SCHEMA_MAX_MERGE = 64,  // allOf and references in each other that are put together
    SCHEMA_MAX_DIGITS = 18, // of an integer, of a number's whole part
};

/* A rule whose body waits to be made. */
typedef struct schema_task {
    uint32_t rule;
    json_t *schema; // owned reference
    char *where;    // owned
} schema_task;

typedef struct schema {
    gram *g;
    const json_t *root;
    bool lenient;
    const char *name; // before all pointers
    strbuf where;     // JSON pointer of the subschema at hand
    uint32_t n_seen;
    int depth;
    schema_task *task; // owned
    uint32_t n_task, cap_task;
} schema;

/* MICA_E_ARG, or nothing when lenient. */
void schema_unsupported(schema *s, const char *keyword);
void schema_refuse(schema *s, const char *keyword, const char *why); // in any case
size_t schema_enter(schema *s, const char *key);                     // appends "/key"; gives what leave takes
size_t schema_enter_index(schema *s, const char *key, size_t i);
void schema_leave(schema *s, size_t mark);

gram_expr schema_expr(schema *s, const json_t *j);  // of a subschema (an object or a boolean)
gram_expr schema_const(schema *s, const json_t *j); // exactly this value
gram_expr schema_value(gram *g);                    // any JSON value

gram_expr schema_object(schema *s, const json_t *j);
gram_expr schema_array(schema *s, const json_t *j);
gram_expr schema_string(schema *s, const json_t *j);
gram_expr schema_number(schema *s, const json_t *j, bool integer);
gram_expr schema_plain_string(gram *g);
gram_expr schema_plain_number(gram *g, bool integer);

/* The texts of a regular expression, as the inside of a JSON string. false: it has what cannot be done, *why
 * says what. */
bool schema_regex(gram *g, slice pattern, gram_expr *out, const char **why);
/* One character out of ranges as JSON writes it: itself or an escape. GRAM_NONE when there is none. */
gram_expr schema_char(gram *g, const gram_range *r, size_t n);

/* Two schemas that both hold, as one. New reference, NULL: they cannot be put together (the schema has
 * failed, or is left as the first). */
json_t *schema_merge(schema *s, const json_t *a, const json_t *b);

/* Words as one expression that shares their beginnings; sorts them. */
gram_expr schema_words(gram *g, slice *word, size_t n);
gram_expr schema_lit(gram *g, const char *text);
gram_expr schema_text(gram *g, const json_t *string); // just this string

#endif
