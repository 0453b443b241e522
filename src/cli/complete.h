/* What Tab adds to a line of the conversation: commands, and files after /read. */
#ifndef MICA_CLI_COMPLETE_H
#define MICA_CLI_COMPLETE_H

#include "base/str.h"

#include <stdbool.h>

/* `text`: the line up to the cursor. `commands`: [n] names that begin with a slash. Appends to `insert` what
 * is certain, and to `list` the choices, separated by two blanks, where there are several. False when this is
 * no place for completion: Tab is then a character. */
bool complete_line(const char *text, const char *const *commands, size_t n, strbuf *insert, strbuf *list);

/* A file name as a person wrote it, as a path: blanks at the ends gone, quotes around it too, ~/ the home
 * folder. Appends to out. */
void complete_path(const char *written, strbuf *out);
#endif
