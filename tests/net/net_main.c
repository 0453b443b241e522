/* Drives the net room for net_test.py: one call a run, its result on stdout, the error text on stderr.
 *
 *     net_main pull WHAT | resolve NAME | list | rm NAME | env
 * Exit code: the mica_status. SIGINT and SIGTERM cancel. With NET_PROGRESS=1 progress calls are lines on
 * stderr. A limit on file sizes (ulimit -f) acts as a full disk: SIGXFSZ is ignored, the write fails. */
#include "base/mem.h"
#include "mica_tools.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static mica_cancel_flag g_cancel;

static void on_signal(int sig) {
    (void)sig;
    mica_cancel(&g_cancel);
}

static void on_progress(void *user, const char *what, uint64_t done, uint64_t total) {
    fprintf((FILE *)user, "progress %s %" PRIu64 " %" PRIu64 "\n", what, done, total);
}

int main(int argc, char **argv) {
    const char *verb = argc > 1 ? argv[1] : "", *what = argc > 2 ? argv[2] : "";
    char *text = NULL;
    mica_error err = {0};
    uint64_t freed = 0;
    mica_status st = MICA_E_ARG;
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);
    signal(SIGXFSZ, SIG_IGN);
    if (!strcmp(verb, "pull")) {
        const mica_pull_options opt = {.what = what,
                                       .cancel = &g_cancel,
                                       .progress = getenv("NET_PROGRESS") ? on_progress : NULL,
                                       .progress_user = stderr};
        st = mica_pull(&text, &opt, &err);
    } else if (!strcmp(verb, "resolve")) {
        st = mica_resolve(&text, what, &err);
    } else if (!strcmp(verb, "list")) {
        st = mica_list(&text, &err);
    } else if (!strcmp(verb, "rm")) {
        st = mica_remove(what, &freed, &err);
        if (st == MICA_OK) printf("%" PRIu64 "\n", freed);
    } else if (!strcmp(verb, "env")) {
        st = mica_environment(&text, &err);
    }
    if (text) printf("%s\n", text);
    if (st != MICA_OK) fprintf(stderr, "error: %s\n", err.text);
    mem_free(text);
    return (int)st;
}
