/* Stop strings in text that comes in pieces: nothing of a string that matches is given out, and what only
 * began like one is given later, in order and in full. Which one counts does not depend on the pieces: the
 * one that ends first, among those the longest. A string may begin and end anywhere, across tokens and
 * characters.
 *
 * Cost: a piece is compared once with each string over the held bytes (at most the longest string) and
 * itself. Threads: one owner. */
#ifndef MICA_BASE_STOPS_H
#define MICA_BASE_STOPS_H

#include "base/str.h"

enum {
    STOPS_MAX = 64,         // strings of a request
    STOPS_MAX_BYTES = 1024, // of one of them
};

typedef struct stops {
    const char *const *strings; // borrowed, none empty
    size_t n_string;
    strbuf held; // bytes not yet given out, then what the last call gave
    size_t n_given;
} stops;

void stops_init(stops *s, const char *const *strings, size_t n);
void stops_fini(stops *s);
/* Gives in *out what may go out, borrowed until the next call. Returns the index of the string that matched
 * (what came before it is in *out, everything after is dropped), -1: none. */
int stops_put(stops *s, slice text, slice *out);
slice stops_end(stops *s); // what was held back

#endif
