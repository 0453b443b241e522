/* Pre-tokenizers: the regular expressions that cut a text into the pieces merging never crosses.
 *
 * A split is one or more passes. A pass cuts what the pass before it left: every match is a piece and so is
 * every stretch between matches; a piece is the whole subject of the next pass. The patterns are the
 * published ones, with their \s written out (PCRE2's has U+180E, Unicode's White_Space has not).
 *
 * Text must be well-formed UTF-8: the caller cuts at invalid bytes. Cost is linear in the text for every
 * pattern of the table (each alternative consumes what it scanned, or one of its neighbours does). Threads: a
 * split is read-only after creation; a text_pretok_run belongs to one call. */
#ifndef MICA_TEXT_PRETOK_H
#define MICA_TEXT_PRETOK_H

#include "base/status.h"
#include "base/str.h"

typedef struct text_pretok text_pretok;
typedef struct text_pretok_run text_pretok_run;

/* What a name of tokenizer.ggml.pre says besides its patterns. */
typedef struct text_pretok_info {
    const char *name;   // the split's own name: several names of files share one, "default" for unknown ones
    bool known;         // false: the name was not found and the default split is used
    bool ignore_merges; // a piece that is a token is that token, whatever the merges say
    bool add_bos;       // what holds when the file does not say
} text_pretok_info;

/* name n == 0: the default split, known is false then. */
mica_status text_pretok_new(text_pretok **out, slice name, text_pretok_info *info, mica_error *err);
void text_pretok_free(text_pretok *p); // NULL allowed

/* Working memory for one caller. */
mica_status text_pretok_run_new(text_pretok_run **out, const text_pretok *p, mica_error *err);
void text_pretok_run_free(text_pretok_run *r); // NULL allowed

/* Calls fn for each piece of text, in order; together they are the text. fn's failure ends it and is
 * returned. */
typedef mica_status text_piece_fn(void *arg, slice piece, mica_error *err);
mica_status text_pretok_split(text_pretok_run *r, slice text, text_piece_fn *fn, void *arg, mica_error *err);

#endif
