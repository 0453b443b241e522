/* libedit's own signal handling is off: it forwards signals to the whole process group, and retries a read
 * that Ctrl-C interrupted. So characters are read here, with the signals blocked except inside ppoll: none
 * can slip in between a look at the flag and the wait. */
#include "cli/line.h"

#include "base/home.h"
#include "base/mem.h"
#include "base/status.h"
#include "cli/complete.h"
#include "cli/exit.h"
#include "cli/term.h"

#include <errno.h>
#include <histedit.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

enum { HISTORY_LINES = 1000 };

struct line_reader {
    EditLine *el;
    History *history;
    FILE *screen;                // standard error, or /dev/tty (owned then)
    char *history_path;          // NULL: in memory only
    sigset_t waiting;            // the signal mask while a key is awaited
    bool continued;              // the prompt is that of a further line
    bool had_text;               // when the last interrupt came
    const char *const *commands; // borrowed, [n_command]
    size_t n_command;
};

static volatile sig_atomic_t g_resized, g_resumed;

static void on_window(int sig) {
    if (sig == SIGWINCH)
        g_resized = 1;
    else
        g_resumed = 1;
}

/* ---- Reading characters ---- */

static line_reader *reader_of(EditLine *el) {
    void *p = NULL;
    el_get(el, EL_CLIENTDATA, &p);
    return p;
}

/* After Ctrl-Z and fg the shell has set the terminal as it likes it. */
static void draw_again(EditLine *el) {
    if (g_resumed) {
        el_set(el, EL_PREP_TERM, 0);
        el_set(el, EL_PREP_TERM, 1);
    }
    if (g_resized) {
        fputs("\r\033[K", reader_of(el)->screen); // el_resize forgets where the cursor stood
        el_resize(el);
    }
    el_set(el, EL_REFRESH);
    g_resumed = g_resized = 0;
}

/* 1 and the byte, 0 at the end, -1 when a signal asks to leave. */
static int read_byte(EditLine *el, line_reader *l, char *c) {
    struct pollfd key = {.fd = STDIN_FILENO, .events = POLLIN};
    for (;;) {
        if (interrupt_signal()) return -1;
        if (g_resized || g_resumed) draw_again(el);
        const int n = ppoll(&key, 1, NULL, &l->waiting);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return -1;
        const ssize_t got = read(STDIN_FILENO, c, 1);
        if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        return got == 1 ? 1 : 0;
    }
}

/* libedit's EL_GETCFN: one character of UTF-8; a byte that is none becomes U+FFFD. */
static int read_char(EditLine *el, wchar_t *out) {
    line_reader *l = reader_of(el);
    const LineInfoW *li = el_wline(el);
    l->had_text = l->continued || li->lastchar > li->buffer;
    char bytes[4];
    for (size_t n = 1;; n++) {
        const int rc = read_byte(el, l, &bytes[n - 1]);
        if (rc != 1) return rc;
        const int len = utf8_len(bytes, n);
        if (len == 0) continue; // a proper prefix, so n < 4
        *out = len > 0 ? (wchar_t)utf8_get(bytes, len) : 0xFFFD;
        return 1;
    }
}

/* Bracketed paste: everything up to the end mark goes into the line as text, newlines too. */
static unsigned char insert_paste(EditLine *el, int key) {
    static const wchar_t end[] = L"\033[201~";
    const size_t n_end = wcslen(end);
    wchar_t *text = NULL;
    size_t n = 0, cap = 0;
    (void)key;
    for (;;) {
        if (n + 1 >= cap) {
            wchar_t *grown = mem_realloc(text, (cap * 2 + 256) * sizeof *text);
            if (!grown) break;
            text = grown;
            cap = cap * 2 + 256;
        }
        if (el_wgetc(el, &text[n]) != 1) break;
        if (text[n] == L'\r') text[n] = L'\n'; // terminals send Enter's character
        n++;
        if (n >= n_end && wmemcmp(text + n - n_end, end, n_end) == 0) {
            n -= n_end;
            break;
        }
    }
    while (n > 0 && text[n - 1] == L'\n') n--; // Enter is the person's to press
    if (n > 0) {
        text[n] = 0;
        el_winsertstr(el, text);
    }
    mem_free(text);
    return CC_REFRESH;
}

/* The line up to the cursor as UTF-8. */
static void line_text(EditLine *el, strbuf *out) {
    const LineInfoW *li = el_wline(el);
    char bytes[MB_LEN_MAX];
    for (const wchar_t *c = li->buffer; c < li->cursor; c++) {
        const int n = wctomb(bytes, *c);
        strbuf_put(out, n > 0 ? bytes : "?", n > 0 ? (size_t)n : 1);
    }
}

/* Tab. Choices are listed below the line. */
static unsigned char complete_here(EditLine *el, int key) {
    const line_reader *l = reader_of(el);
    strbuf text = {0}, insert = {0}, list = {0};
    (void)key;
    line_text(el, &text);
    unsigned char result = CC_REFRESH;
    const bool is_first_line = !l->continued && !text.failed;
    if (!is_first_line || !complete_line(strbuf_cstr(&text), l->commands, l->n_command, &insert, &list)) {
        el_insertstr(el, "\t");
    } else if (insert.n > 0) {
        el_insertstr(el, strbuf_cstr(&insert));
    } else if (list.n > 0) {
        fprintf(l->screen, "\r\n%s\r\n", strbuf_cstr(&list));
        result = CC_REDISPLAY;
    } else {
        result = CC_REFRESH_BEEP;
    }
    strbuf_fini(&text);
    strbuf_fini(&insert);
    strbuf_fini(&list);
    return result;
}

/* ---- Opening ---- */

static char *prompt_of(EditLine *el) {
    static char text[32];
    snprintf(text, sizeof text, "\1%s\1%s\1%s\1", term_bold(), reader_of(el)->continued ? ". " : "> ",
             term_plain());
    return text;
}

static void load_history(line_reader *l) {
    HistEvent ev;
    char *home;
    history(l->history, &ev, H_SETSIZE, HISTORY_LINES);
    history(l->history, &ev, H_SETUNIQUE, 1);
    if (home_create(&home, NULL) != MICA_OK) return;
    strbuf path = {0};
    strbuf_printf(&path, "%s/history", home);
    mem_free(home);
    l->history_path = strbuf_take(&path);
    if (l->history_path) history(l->history, &ev, H_LOAD, l->history_path);
}

static void watch_window(void) {
    struct sigaction act = {.sa_handler = on_window};
    sigemptyset(&act.sa_mask);
    sigaction(SIGWINCH, &act, NULL);
    sigaction(SIGCONT, &act, NULL);
}

mica_status line_open(line_reader **out, const char *const *commands, size_t n_command, mica_error *err) {
    *out = NULL;
    line_reader *l = mem_calloc(1, sizeof *l);
    if (!l) return fail(err, MICA_E_NOMEM, "line editor: out of memory");
    l->commands = commands;
    l->n_command = n_command;
    l->screen = isatty(STDERR_FILENO) ? stderr : fopen("/dev/tty", "w");
    if (!l->screen) l->screen = stderr;
    l->history = history_init();
    l->el = el_init("mica", stdin, l->screen, l->screen);
    if (!l->history || !l->el) {
        line_close(l);
        return fail(err, MICA_E_IO,
                    "line editor: the terminal cannot be set up: -p gives a prompt without it");
    }
    load_history(l);
    el_set(l->el, EL_CLIENTDATA, l);
    el_set(l->el, EL_PROMPT_ESC, prompt_of, '\1');
    el_set(l->el, EL_EDITOR, "emacs");
    el_set(l->el, EL_HIST, history, l->history);
    el_set(l->el, EL_SIGNAL, 0);
    el_set(l->el, EL_GETCFN, read_char);
    // The wide form: the narrow one makes copies of the two texts that libedit never frees.
    el_wset(l->el, EL_ADDFN, L"mica-paste", L"insert pasted text", insert_paste);
    el_set(l->el, EL_BIND, "\\e[200~", "mica-paste", NULL);
    el_wset(l->el, EL_ADDFN, L"mica-complete", L"complete a command or a file", complete_here);
    el_set(l->el, EL_BIND, "^I", "mica-complete", NULL);
    el_set(l->el, EL_BIND, "^R", "em-inc-search-prev", NULL);
    el_source(l->el, NULL); // ~/.editrc: people's own keys win
    watch_window();
    *out = l;
    return MICA_OK;
}

void line_close(line_reader *l) {
    if (!l) return;
    if (l->el) el_end(l->el);
    if (l->history) history_end(l->history);
    if (l->screen && l->screen != stderr) fclose(l->screen);
    mem_free(l->history_path);
    mem_free(l);
}

/* ---- Lines ---- */

static line_result why_no_line(const line_reader *l) {
    const int sig = interrupt_signal();
    if (sig == 0) return LINE_END;
    fputc('\n', l->screen);
    interrupt_reset();
    if (sig == SIGTERM) return LINE_TERMINATED;
    return l->had_text ? LINE_DROPPED : LINE_INTERRUPTED;
}

/* Appends one line without its newline; *more when it ended in a backslash, which is left out. */
static line_result read_one(line_reader *l, strbuf *out, bool *more) {
    int n = 0;
    *more = false;
    // libedit shows the prompt first and leaves the cooked mode then: a Ctrl-D in between would be lost.
    el_set(l->el, EL_PREP_TERM, 1);
    const char *text = el_gets(l->el, &n);
    if (!text || n <= 0) return why_no_line(l);
    size_t len = strlen(text);
    if (len > 0 && text[len - 1] == '\n') len--;
    *more = len > 0 && text[len - 1] == '\\';
    strbuf_put(out, text, len - *more);
    if (*more) strbuf_putc(out, '\n');
    return LINE_OK;
}

line_result line_read(line_reader *l, strbuf *out) {
    sigset_t block;
    sigemptyset(&block);
    sigaddset(&block, SIGINT);
    sigaddset(&block, SIGTERM);
    sigaddset(&block, SIGWINCH);
    sigaddset(&block, SIGCONT);
    strbuf_clear(out);
    l->continued = false;
    sigprocmask(SIG_BLOCK, &block, &l->waiting);
    // The terminal marks pastes only while it is asked to.
    if (term_stderr_is_smart()) fputs("\033[?2004h", l->screen);
    line_result r;
    bool more;
    do {
        r = read_one(l, out, &more);
        l->continued = true;
    } while (r == LINE_OK && more);
    if (term_stderr_is_smart()) fputs("\033[?2004l", l->screen);
    fflush(l->screen);
    sigprocmask(SIG_SETMASK, &l->waiting, NULL);
    return r;
}

void line_remember(line_reader *l, const char *text) {
    HistEvent ev;
    if (!text[0]) return;
    history(l->history, &ev, H_ENTER, text);
    if (l->history_path) history(l->history, &ev, H_SAVE, l->history_path);
}
