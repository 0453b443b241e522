/* Statuses to exit codes; signals to a flag. */
#include "cli/exit.h"

#include "cli/term.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

static mica_cancel_flag g_flag;
static volatile sig_atomic_t g_signal, g_mode;
static int g_success;

int exit_code(mica_status status) {
    switch (status) {
    case MICA_OK: return g_success;
    case MICA_E_ARG: return 2;
    case MICA_E_IO: return 3;
    case MICA_E_FORMAT: return 4;
    case MICA_E_UNSUPPORTED: return 5;
    case MICA_E_FIT:
    case MICA_E_NOMEM: return 6;
    case MICA_E_DEVICE: return 7;
    case MICA_E_BUSY: return 8;
    case MICA_E_NETWORK: return 9;
    case MICA_E_CANCELLED: return g_signal == SIGTERM ? 143 : 130;
    case MICA_E_INTERNAL: break;
    }
    return 70;
}

void exit_failed_check(void) {
    g_success = 1;
}

/* Only async-signal-safe calls from here on. The colour reset costs a terminal nothing and saves it from
 * staying dim. */
static void leave_now(int sig) {
    term_loud();
    if (isatty(STDERR_FILENO)) {
        const ssize_t ignored = write(STDERR_FILENO, "\033[0m\n", 5);
        (void)ignored;
    }
    _exit(128 + sig);
}

static void on_deadline(int sig) {
    (void)sig;
    leave_now(g_signal);
}

/* A step cannot be cut short in its middle, and on a slow machine one chunk of a prompt takes longer than
 * anybody who said stop will wait: hence the deadline. */
static void on_signal(int sig) {
    static const struct itimerval deadline = {.it_value = {.tv_sec = 1, .tv_usec = 700000}};
    // Impatience with an answer that is already being stopped must not cost the conversation.
    if (g_mode == INTERRUPT_STOPS && sig == SIGINT && g_signal != SIGTERM && g_flag.set) return;
    if (g_mode == INTERRUPT_ENDS || g_flag.set) leave_now(sig);
    g_signal = sig;
    mica_cancel(&g_flag);
    if (g_mode == INTERRUPT_WINDS_UP || (g_mode != INTERRUPT_DRAINS && sig == SIGTERM))
        setitimer(ITIMER_REAL, &deadline, NULL);
}

void interrupt_install(void) {
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == 0 ? O_RDONLY : O_WRONLY) < 0) _exit(70);
    // No SA_RESTART: a wait must come back when the flag was set.
    struct sigaction act = {.sa_handler = on_signal};
    sigemptyset(&act.sa_mask);
    sigaction(SIGINT, &act, NULL);
    sigaction(SIGTERM, &act, NULL);
    act.sa_handler = on_deadline;
    sigaction(SIGALRM, &act, NULL);
    act.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &act, NULL);
    sigaction(SIGXFSZ, &act, NULL);
}

void interrupt_set_mode(interrupt_mode mode) {
    g_mode = (sig_atomic_t)mode;
}

mica_cancel_flag *interrupt_flag(void) {
    return &g_flag;
}

int interrupt_signal(void) {
    return g_signal;
}

void interrupt_reset(void) {
    if (g_signal == SIGTERM) return;
    g_signal = 0;
    g_flag.set = 0;
}
