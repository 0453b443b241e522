/* How the program ends: exit codes of docs/CONTRACT.md, and the signals that ask for it. */
#ifndef MICA_CLI_EXIT_H
#define MICA_CLI_EXIT_H

#include "mica.h"

#include <stdbool.h>

/* The exit code for a status; a cancelled run gets the code of the signal that asked for it. */
int exit_code(mica_status status);
void exit_failed_check(
    void); // from now on success means 1: the program worked, and what it checked is not right

/* SIGINT and SIGTERM end the program at once, with their exit codes. SIGPIPE is ignored: a write to a closed
 * pipe fails instead, and the program winds up. Descriptors 0 to 2 that came closed are opened on /dev/null,
 * so that no model file ever lands on them. Call it once, before anything else. */
void interrupt_install(void);

/* Where there is something to wind up (an answer, a download): the first signal only sets the flag, the
 * second ends the program at once. */
void interrupt_defer(bool on);
mica_cancel_flag *interrupt_flag(void);
int interrupt_signal(void); // the signal that came, 0: none
void interrupt_reset(void); // the answer was stopped, the program goes on; SIGTERM stays

#endif
