/* The terminal: what it can show, progress, and words on standard error.
 *
 * Standard output belongs to results. Everything for the eyes goes to standard error through here: colour
 * only where it is a terminal, TERM is not "dumb" and NO_COLOR is unset; a bar only on a terminal, else a
 * line each 10 % or 10 s, and neither for what is done within a moment. */
#ifndef MICA_CLI_TERM_H
#define MICA_CLI_TERM_H

#include "mica.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

void term_init(void); // once, after interrupt_install
bool term_stdin_is_tty(void);
bool term_stdout_is_tty(void);
/* Does what goes to standard error show up below standard output: on a terminal, or in the same file? */
bool term_streams_meet(void);
bool term_stderr_is_smart(void); // a terminal that understands escape sequences
int term_width(void);            // of standard error, 80 when unknown

/* Escape sequences for standard error, "" when there is no colour. */
const char *term_dim(void);
const char *term_bold(void);
const char *term_plain(void);

void term_note(const char *fmt, ...) MICA_PRINTF(1, 2); // "mica: ...\n" to standard error
void term_error(const mica_error *err);                 // the one line of a failure

/* Flushes standard output; false once a write to it has failed. term_output_error then says what went wrong:
 * 0, or the errno of the first failure. */
bool term_flush(void);
int term_output_error(void);

/* While text streams, keys that are typed must not show up in it: between the two the terminal on standard
 * input echoes nothing and keeps the keys for whoever reads next. Ctrl-Z and the signals that end the program
 * give the echo back. Nothing happens where standard input is no terminal or belongs to another program. */
void term_quiet(void);
void term_loud(void); // async-signal-safe

/* A mica_progress_fn and its state. Zeroed is ready. */
typedef struct progress {
    char what[24];
    uint64_t start_ns, last_ns; // of this `what`; of the last thing shown
    uint64_t start_done;        // what was there already when it began: no part of the rate
    int last_tenth;
    bool drawn; // a bar stands on the terminal's line
} progress;
void progress_show(void *state, const char *what, uint64_t done, uint64_t total);
void progress_end(progress *p); // wipes the bar; before anything else is written

/* The text of a bar or a line, without "\r" or newline; for a bar `width` is what the terminal gives, for a
 * line 0. */
typedef struct amount {
    uint64_t done, total; // total 0: unknown
    uint64_t now_ns;
} amount;
void progress_format(char *out, size_t size_bytes, const progress *p, amount a, int width);
#endif
