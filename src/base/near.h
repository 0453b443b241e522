/* The word that was probably meant. Threads: pure. */
#ifndef MICA_BASE_NEAR_H
#define MICA_BASE_NEAR_H

#include <stddef.h>

/* The candidate nearest to `word`, or NULL when none is near enough to be what was meant: about one edit for
 * every four letters of the shorter of the two, none below three. Case and leading dashes do not count. */
const char *near_word(const char *word, const char *const *candidates, size_t n);
#endif
