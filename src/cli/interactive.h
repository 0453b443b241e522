/* The conversation in the terminal: reads lines, answers them, and knows a few commands that begin with a
 * slash. */
#ifndef MICA_CLI_INTERACTIVE_H
#define MICA_CLI_INTERACTIVE_H

#include "cli/talk.h"

/* Until /exit, Ctrl-D, a second Ctrl-C at an empty prompt (MICA_E_CANCELLED) or SIGTERM (the same). Errors of
 * single answers are printed and the conversation goes on. */
mica_status interactive_run(talk *t, mica_error *err);
#endif
