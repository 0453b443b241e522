/* How the program ends: exit codes of docs/CONTRACT.md, and the signals that ask for it. */
#ifndef MICA_CLI_EXIT_H
#define MICA_CLI_EXIT_H

#include "mica.h"

/* The exit code for a status; a cancelled run gets the code of the signal that asked for it. */
int exit_code(mica_status status);
void exit_failed_check(
    void); // from now on success means 1: the program worked, and what it checked is not right

/* What SIGINT and SIGTERM do. A second one ends the program at once, but for a further SIGINT while
 * INTERRUPT_STOPS is stopping something. */
typedef enum interrupt_mode {
    INTERRUPT_ENDS,     // end the program at once, with their exit codes; from the start on
    INTERRUPT_WINDS_UP, // set the flag, so that an answer or a download can be brought to an end, but only
                        // just under two seconds are given to that
    INTERRUPT_DRAINS,   // set the flag: what is going on may take its time to end
    INTERRUPT_STOPS     // SIGINT only sets the flag: it stops what is going on, and the program goes on
} interrupt_mode;

/* Installs the handlers. SIGPIPE and SIGXFSZ are ignored: a write to a closed pipe, or past a limit on files,
 * fails instead, and the program winds up. Descriptors 0 to 2 that came closed are opened on /dev/null, so
 * that no model file ever lands on them. Call it once, before anything else. */
void interrupt_install(void);
void interrupt_set_mode(interrupt_mode mode);
mica_cancel_flag *interrupt_flag(void);
int interrupt_signal(void); // the signal that came, 0: none
void interrupt_reset(void); // SIGINT is dealt with, the program goes on; SIGTERM stays

#endif
