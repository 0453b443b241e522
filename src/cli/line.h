/* Lines typed by a person: libedit with history, multi-line paste and signals that come back as results.
 *
 * The terminal is drawn on standard error (standard output is for answers), or on /dev/tty when standard
 * error goes elsewhere. History is the file `history` of the cache folder, readable by its owner alone;
 * without such a folder it lives in memory. One reader at a time. */
#ifndef MICA_CLI_LINE_H
#define MICA_CLI_LINE_H

#include "base/str.h"
#include "mica.h"

#include <stdbool.h>

typedef struct line_reader line_reader;

typedef enum line_result {
    LINE_OK,
    LINE_END,         // Ctrl-D at an empty line, or the terminal is gone
    LINE_DROPPED,     // Ctrl-C: what was typed is gone
    LINE_INTERRUPTED, // Ctrl-C at an empty line
    LINE_TERMINATED   // SIGTERM
} line_result;

/* commands: [n_command] names that Tab completes, borrowed. */
mica_status line_open(line_reader **out, const char *const *commands, size_t n_command, mica_error *err);
void line_close(line_reader *l); // NULL allowed; the terminal is as it was

/* One message into `out` (cleared first): a line, or several joined by newlines where each but the last ended
 * in a backslash or a paste held newlines. */
line_result line_read(line_reader *l, strbuf *out);
void line_remember(line_reader *l, const char *text); // into the history, saved at once
#endif
