/* mica: the program. Reads the command line, runs one command, and turns its status into one line and an exit
 * code. */
#include "cli/exit.h"
#include "cli/help.h"
#include "cli/print.h"
#include "cli/term.h"

#include "base/status.h"

#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <signal.h>
#include <string.h>

/* What could not be written to standard output, as a status. A reader that went away is no error of ours. */
static mica_status check_output(mica_error *err) {
    const int why = term_flush() ? 0 : term_output_error();
    if (why == 0 || why == EPIPE) return MICA_OK;
    return fail(err, write_status(why), "standard output: write: %s", strerror(why));
}

/* With --json a failure is a value too: a result that came before it (a plan that does not fit) stays the
 * only one, but the lines of an answer end with it. */
static void print_failure(mica_status st, const mica_error *err, int argc, char **argv) {
    if (!options_want_json(argc, argv)) return;
    if (print_json_began() && strcmp(argv[1], "run") != 0) return;
    print_json_error(exit_code(st), err->text);
    term_flush();
}

static mica_status dispatch(int argc, char **argv, mica_error *err) {
    options o;
    TRY(options_parse(&o, argc, argv, err));
    mica_status st = MICA_OK;
    if (o.help && o.command->id != CMD_HELP)
        help_page(stdout, o.command);
    else
        st = o.command->run(&o, err);
    options_fini(&o);
    return st;
}

int main(int argc, char **argv) {
    interrupt_install();
    // Character classes only: numbers are always written with a point.
    if (!setlocale(LC_CTYPE, "") || strcmp(nl_langinfo(CODESET), "UTF-8") != 0)
        setlocale(LC_CTYPE, "C.UTF-8");
    term_init();
    mica_guard_files(NULL); // refused: a cut model file ends the program, as before
    mica_error err = {0};
    mica_status st = dispatch(argc, argv, &err);
    if (st == MICA_OK) st = check_output(&err);
    if (term_output_error() == EPIPE) { // end as any filter whose reader left
        signal(SIGPIPE, SIG_DFL);
        raise(SIGPIPE);
    }
    if (argc < 2) help_first_steps(stderr);
    if (st != MICA_OK && st != MICA_E_CANCELLED) {
        print_failure(st, &err, argc, argv);
        term_error(&err);
    }
    return exit_code(st);
}
