/* The loop of the conversation and its commands. */
#include "cli/interactive.h"

#include "base/mem.h"
#include "base/near.h"
#include "base/status.h"
#include "cli/complete.h"
#include "cli/exit.h"
#include "cli/line.h"
#include "cli/term.h"

#include <ctype.h>
#include <signal.h>
#include <string.h>
#include <strings.h>

typedef struct chat_loop {
    talk *t;
    line_reader *line;
    bool leave;
} chat_loop;

typedef void slash_fn(chat_loop *c, const char *rest);

typedef struct slash {
    const char *name, *argument, *help;
    slash_fn *run;
} slash;

static slash_fn do_help, do_clear, do_exit, do_regen, do_system, do_think, do_read, do_undo, do_trim;

static const slash g_slashes[] = {
    {"/help", "", "this list", do_help},
    {"/clear", "", "forget the conversation; the system message stays", do_clear},
    {"/regen", "", "answer the last question once more", do_regen},
    {"/undo", "", "take back the last question and its answer", do_undo},
    {"/trim", "", "forget the oldest question and its answer", do_trim},
    {"/system", " [TEXT]", "set the system message, without TEXT: take it away", do_system},
    {"/think", " on|off|EFFORT", "thinking before the answer", do_think},
    {"/read", " FILE", "send the text of a file", do_read},
    {"/exit", "", "leave; so do /quit, /bye, Ctrl-D, and these words alone", do_exit},
    {"/quit", NULL, NULL, do_exit},
    {"/bye", NULL, NULL, do_exit},
};
enum { N_SLASH = sizeof g_slashes / sizeof g_slashes[0] };

static void say_dim(const char *text) {
    fprintf(stderr, "%s%s%s\n", term_dim(), text, term_plain());
}

/* ---- Answers ---- */

/* What stands under an answer; an error is one line, and the question can be asked again. */
static void after_answer(chat_loop *c, mica_status st, const answer *a, const mica_error *err) {
    char times[256];
    interrupt_reset(); // also a Ctrl-C that came when the answer was done
    if (st != MICA_OK) {
        term_error(err);
        if (a->is_too_long && json_array_size(c->t->messages) > 0)
            say_dim("(/trim forgets the oldest question and its answer, /undo the last, /clear all)");
        return;
    }
    talk_times(times, sizeof times, a);
    const char *stopped = a->finish != MICA_FINISH_CANCELLED ? ""
                          : c->t->raw                        ? "stopped; "
                          : a->is_dropped                    ? "stopped, the question is taken back; "
                                                             : "stopped, the answer so far is kept; ";
    fprintf(stderr, "%s(%s%s)%s\n", term_dim(), stopped, times, term_plain());
    if (a->is_full)
        term_note(
            "the context of %u tokens is full: /trim forgets the oldest question and its answer, /clear "
            "all, -c N gives a longer one",
            c->t->model->info.n_ctx);
}

static void ask(chat_loop *c, const char *text, size_t n) {
    mica_error err = {0};
    answer a = {0};
    const mica_status st = talk_ask(c->t, text, n, &a, &err);
    after_answer(c, st, &a, &err);
}

/* ---- Commands ---- */

static void do_help(chat_loop *c, const char *rest) {
    (void)c;
    (void)rest;
    for (size_t i = 0; i < N_SLASH; i++) {
        char name[40];
        if (!g_slashes[i].help) continue;
        snprintf(name, sizeof name, "%s%s", g_slashes[i].name, g_slashes[i].argument);
        fprintf(stderr, "  %-24s%s\n", name, g_slashes[i].help);
    }
    fputs("  A line that ends in \\ goes on. Tab completes. Ctrl-C stops an answer; at an\n"
          "  empty prompt, twice, it leaves.\n"
          "  Begin with a blank to send one of these words, or a message that starts with\n"
          "  a slash.\n",
          stderr);
}

static void do_clear(chat_loop *c, const char *rest) {
    (void)rest;
    talk_clear(c->t);
    say_dim("(forgotten)");
}

static void do_undo(chat_loop *c, const char *rest) {
    (void)rest;
    say_dim(talk_undo(c->t) ? "(taken back)" : "(there is nothing to take back)");
}

static void do_trim(chat_loop *c, const char *rest) {
    (void)rest;
    say_dim(talk_trim(c->t) ? "(the oldest question and its answer are forgotten)"
                            : "(there is nothing to forget)");
}

static void do_exit(chat_loop *c, const char *rest) {
    (void)rest;
    c->leave = true;
}

static void do_regen(chat_loop *c, const char *rest) {
    (void)rest;
    mica_error err = {0};
    answer a = {0};
    const mica_status st = talk_again(c->t, &a, &err);
    if (st == MICA_E_ARG && !json_array_size(c->t->messages))
        term_error(&err);
    else
        after_answer(c, st, &a, &err);
}

static void do_system(chat_loop *c, const char *rest) {
    mica_error err = {0};
    if (c->t->raw)
        term_note("/system: --raw has no chat template to hand it to");
    else if (talk_set_system(c->t, rest, &err) != MICA_OK)
        term_error(&err);
    else
        say_dim(rest[0] ? "(system message set)" : "(no system message)");
}

static void do_think(chat_loop *c, const char *rest) {
    mica_error err = {0};
    if (!rest[0])
        term_note("/think: say on, off or an effort");
    else if (c->t->raw)
        term_note("/think: --raw has no chat template to hand it to");
    else if (talk_set_think(c->t, rest, &err) != MICA_OK)
        term_error(&err);
    else
        say_dim("(from the next answer on)");
}

static void do_read(chat_loop *c, const char *rest) {
    mica_error err = {0};
    strbuf text = {0}, path = {0};
    complete_path(rest, &path);
    if (path.n == 0)
        term_note("/read: name a file");
    else if (input_read(&text, strbuf_cstr(&path), &err) != MICA_OK)
        term_error(&err);
    else
        ask(c, strbuf_cstr(&text), text.n);
    strbuf_fini(&text);
    strbuf_fini(&path);
}

/* A slash and letters, then the end or a blank: "/usr/bin" is a message. */
static bool is_slash(const char *text, size_t *n_name) {
    size_t n = 1;
    if (text[0] != '/') return false;
    while (isalpha((unsigned char)text[n])) n++;
    *n_name = n;
    return n > 1 && (text[n] == 0 || text[n] == ' ');
}

static void run_slash(chat_loop *c, const char *text, size_t n_name) {
    const char *names[N_SLASH], *rest = text + n_name + strspn(text + n_name, " ");
    char name[32];
    snprintf(name, sizeof name, "%.*s", (int)n_name, text);
    for (size_t i = 0; i < N_SLASH; i++) {
        names[i] = g_slashes[i].name;
        if (strcasecmp(name, names[i]) != 0) continue;
        g_slashes[i].run(c, rest);
        return;
    }
    const char *near = near_word(name, names, N_SLASH);
    if (near)
        term_note("%s: unknown command: did you mean %s?", name, near);
    else
        term_note("%s: unknown command: /help lists them", name);
}

/* ---- The loop ---- */

static void greet(const talk *t) {
    const mica_model_info *i = &t->model->info;
    fprintf(stderr, "%s%s%s, %u tokens of context, %s\n", term_bold(),
            i->name && i->name[0] ? i->name : i->arch, term_plain(), i->n_ctx, i->device);
    say_dim(t->raw ? "each line is a prompt of its own; /help lists the commands"
                   : "/help lists the commands");
}

/* "exit" alone: what people type, and no question. */
static bool is_leaving_word(const char *text) {
    static const char *const words[] = {"exit", "quit", "bye"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        const size_t n = strlen(words[i]);
        if (strncasecmp(text, words[i], n) == 0 && text[n + strspn(text + n, " ")] == 0) return true;
    }
    return false;
}

static void take_message(chat_loop *c, const strbuf *message) {
    const char *text = strbuf_cstr(message);
    size_t n_name;
    line_remember(c->line, text);
    if (is_leaving_word(text))
        c->leave = true;
    else if (is_slash(text, &n_name))
        run_slash(c, text, n_name);
    else
        ask(c, text, message->n);
}

static bool is_blank(const char *s) {
    return s[strspn(s, " \t\n")] == 0;
}

mica_status interactive_run(talk *t, mica_error *err) {
    mica_status st = MICA_OK;
    chat_loop c = {.t = t};
    strbuf message = {0};
    bool asked_to_leave = false;
    const char *names[N_SLASH];
    for (size_t i = 0; i < N_SLASH; i++) names[i] = g_slashes[i].name;
    TRY(line_open(&c.line, names, N_SLASH, err));
    greet(t);
    while (!c.leave && st == MICA_OK) {
        const line_result r = line_read(c.line, &message);
        const bool again = asked_to_leave;
        asked_to_leave = r == LINE_INTERRUPTED;
        if (r == LINE_END) {
            fputc('\n', stderr);
            break;
        }
        if (r == LINE_TERMINATED || (r == LINE_INTERRUPTED && again))
            st = fail(err, MICA_E_CANCELLED, "conversation: ended by a signal");
        else if (r == LINE_INTERRUPTED)
            say_dim("(Ctrl-C again leaves)");
        else if (r == LINE_OK && message.failed)
            st = fail(err, MICA_E_NOMEM, "message: out of memory");
        else if (r == LINE_OK && !is_blank(strbuf_cstr(&message)))
            take_message(&c, &message);
        if (interrupt_signal() == SIGTERM)
            st = fail(err, MICA_E_CANCELLED, "conversation: ended by a signal");
        if (term_output_error()) break; // nobody can read the answers
    }
    strbuf_fini(&message);
    line_close(c.line);
    return st;
}
