/* Terminal abilities are looked up once; progress decides for itself when it is worth a line. */
#include "cli/term.h"

#include "base/clock.h"
#include "base/env.h"
#include "cli/print.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

static struct {
    bool in_tty, out_tty, err_tty, smart, colour;
    int output_errno;
} g_term;

void term_init(void) {
    const char *term = env_get("TERM");
    g_term.in_tty = isatty(STDIN_FILENO);
    g_term.out_tty = isatty(STDOUT_FILENO);
    g_term.err_tty = isatty(STDERR_FILENO);
    g_term.smart = g_term.err_tty && term && strcmp(term, "dumb") != 0;
    g_term.colour = g_term.smart && !env_get("NO_COLOR");
}

bool term_stdin_is_tty(void) {
    return g_term.in_tty;
}
bool term_stdout_is_tty(void) {
    return g_term.out_tty;
}
bool term_streams_meet(void) {
    struct stat out, err;
    if (g_term.err_tty) return true;
    return fstat(STDOUT_FILENO, &out) == 0 && fstat(STDERR_FILENO, &err) == 0 && out.st_dev == err.st_dev &&
           out.st_ino == err.st_ino;
}
bool term_stderr_is_smart(void) {
    return g_term.smart;
}

int term_width(void) {
    struct winsize w;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 0 ? w.ws_col : 80;
}

const char *term_dim(void) {
    return g_term.colour ? "\033[2m" : "";
}
const char *term_bold(void) {
    return g_term.colour ? "\033[1m" : "";
}
const char *term_plain(void) {
    return g_term.colour ? "\033[0m" : "";
}

void term_note(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    fputs("mica: ", stderr);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
}

void term_error(const mica_error *err) {
    fprintf(stderr, "mica: %s\n", err->text);
}

bool term_flush(void) {
    if (g_term.output_errno) return false;
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout)) return true;
    g_term.output_errno = errno ? errno : EIO;
    return false;
}

int term_output_error(void) {
    return g_term.output_errno;
}

/* ---- Echo ---- */

static const int g_leaving[] = {SIGTSTP, SIGCONT, SIGHUP, SIGQUIT};
enum { N_LEAVING = sizeof g_leaving / sizeof g_leaving[0] };

static struct {
    volatile sig_atomic_t on; // echo is off, or was until a stop
    struct termios kept;      // as it was found
    struct sigaction before[N_LEAVING];
} g_quiet;

static bool is_in_front(void) {
    return tcgetpgrp(STDIN_FILENO) == getpgrp(); // else touching the terminal would stop us
}

static void set_echo(bool on) {
    struct termios t = g_quiet.kept;
    if (!on) t.c_lflag &= (tcflag_t) ~(ECHO | ECHONL);
    if (is_in_front()) tcsetattr(STDIN_FILENO, TCSANOW, &t);
}

/* Gives the echo back, then does what the signal does by itself. */
static void on_leaving(int sig) {
    const int why = errno;
    if (sig == SIGCONT) {
        set_echo(false);
    } else {
        set_echo(true);
        if (sig == SIGTSTP) {
            raise(SIGSTOP);
        } else {
            signal(sig, SIG_DFL);
            raise(sig);
        }
    }
    errno = why;
}

void term_quiet(void) {
    if (g_quiet.on || !g_term.in_tty || !is_in_front() || tcgetattr(STDIN_FILENO, &g_quiet.kept) != 0) return;
    struct sigaction act = {.sa_handler = on_leaving, .sa_flags = SA_RESTART};
    sigemptyset(&act.sa_mask);
    for (int i = 0; i < N_LEAVING; i++) sigaction(g_leaving[i], &act, &g_quiet.before[i]);
    g_quiet.on = 1;
    set_echo(false);
}

void term_loud(void) {
    if (!g_quiet.on) return;
    g_quiet.on = 0;
    for (int i = 0; i < N_LEAVING; i++) sigaction(g_leaving[i], &g_quiet.before[i], NULL);
    set_echo(true);
}

/* ---- Progress ---- */

enum { BAR_AFTER_MS = 300, BAR_EVERY_MS = 80, LINE_AFTER_MS = 1000, LINE_EVERY_MS = 10000 };

static bool counts_bytes(const char *what) {
    static const char *const words[] = {"load", "download", "verify", "write"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(what, words[i]) == 0) return true;
    return false;
}

/* "1.2 of 3.4 GiB  2.1 GiB/s" or "512 of 4096  830/s"; the rate is left out until there is one. */
static void format_amount(char *out, size_t size_bytes, const char *what, amount a, double rate) {
    char d[16], t[16], r[16];
    out[0] = 0;
    if (strcmp(what, "load") == 0 && a.total < 4096) return; // steps, which tell nobody anything
    if (counts_bytes(what)) {
        print_bytes(d, a.done);
        print_bytes(t, a.total);
        print_bytes(r, (uint64_t)rate);
    } else {
        snprintf(d, sizeof d, "%llu", (unsigned long long)(a.done % 10000000000));
        snprintf(t, sizeof t, "%llu", (unsigned long long)(a.total % 10000000000));
        snprintf(r, sizeof r, rate < 10 ? "%.2f" : "%.0f", rate < 1e9 ? rate : 1e9);
    }
    int n = a.total ? snprintf(out, size_bytes, "%s of %s", d, t) : snprintf(out, size_bytes, "%s", d);
    if (rate > 0 && n > 0 && (size_t)n < size_bytes) snprintf(out + n, size_bytes - (size_t)n, "  %s/s", r);
}

/* "  12 s left", "  3 min left", or nothing when unknown or nearly there. */
static void format_left(char *out, size_t size_bytes, amount a, double rate) {
    const double left_s = rate > 0 && a.total > a.done ? (double)(a.total - a.done) / rate : 0;
    out[0] = 0;
    if (left_s >= 90)
        snprintf(out, size_bytes, "  %.0f min left", left_s / 60);
    else if (left_s >= 2)
        snprintf(out, size_bytes, "  %.0f s left", left_s);
}

static void format_bar(char out[48], double share, int room) {
    const int cells = room < 40 ? room - 4 : 36, full = (int)(share * cells);
    out[0] = '[';
    for (int i = 0; i < cells; i++) out[1 + i] = i < full ? '#' : '.';
    memcpy(out + 1 + cells, "]  ", 4);
}

void progress_format(char *out, size_t size_bytes, const progress *p, amount a, int width) {
    if (a.total && a.done > a.total) a.done = a.total;
    const double share = a.total ? (double)a.done / (double)a.total : 0;
    const double seconds = (double)(a.now_ns - p->start_ns) * 1e-9;
    const double rate =
        seconds > 0.2 && a.done > p->start_done ? (double)(a.done - p->start_done) / seconds : 0;
    char text[80], left[32], percent[16] = "", bar[48] = "";
    format_amount(text, sizeof text, p->what, a, rate);
    format_left(left, sizeof left, a, rate);
    if (a.total) snprintf(percent, sizeof percent, width > 0 ? "%3.0f %%  " : "%.0f %%  ", share * 100);
    const size_t used = strlen(p->what) + strlen(percent) + strlen(text) + strlen(left);
    const int room = width - (int)used - 5;
    if (a.total && room >= 12) format_bar(bar, share, room);
    snprintf(out, size_bytes, "%s  %s%s%s%s", p->what, bar, percent, text, left);
    if (width > 0 && strlen(out) >= (size_t)width && (size_t)width < size_bytes) out[width - 1] = 0;
}

static void draw_bar(progress *p, amount a) {
    const bool finished = a.total > 0 && a.done >= a.total;
    if (a.now_ns - p->start_ns < BAR_AFTER_MS * UINT64_C(1000000)) return;
    if (!finished && a.now_ns - p->last_ns < BAR_EVERY_MS * UINT64_C(1000000)) return;
    char text[256];
    progress_format(text, sizeof text, p, a, term_width());
    fprintf(stderr, "\r\033[K%s", text);
    p->last_ns = a.now_ns;
    p->drawn = true;
}

static void put_line(progress *p, amount a) {
    if (a.now_ns - p->start_ns < LINE_AFTER_MS * UINT64_C(1000000)) return;
    const int tenth = a.total ? (int)((double)a.done / (double)a.total * 10) : 0;
    if (tenth == 10 && p->last_tenth == 10) return; // what comes after the last byte has no share
    if (tenth <= p->last_tenth && a.now_ns - p->last_ns < LINE_EVERY_MS * UINT64_C(1000000)) return;
    char text[256];
    progress_format(text, sizeof text, p, a, 0);
    term_note("%s", text);
    p->last_tenth = tenth;
    p->last_ns = a.now_ns;
}

void progress_show(void *state, const char *what, uint64_t done, uint64_t total) {
    progress *p = state;
    const uint64_t now = clock_ns();
    if (strncmp(p->what, what, sizeof p->what - 1) != 0) {
        progress_end(p);
        *p = (progress){.start_ns = now, .last_ns = now, .start_done = done};
        snprintf(p->what, sizeof p->what, "%s", what);
    }
    const amount a = {done, total, now};
    if (g_term.smart)
        draw_bar(p, a);
    else
        put_line(p, a);
}

void progress_end(progress *p) {
    if (p->drawn) fputs("\r\033[K", stderr);
    *p = (progress){0};
}
