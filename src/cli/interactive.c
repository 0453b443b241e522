/* The loop of the conversation and its commands. */
#include "cli/interactive.h"

#include "base/mem.h"
#include "base/near.h"
#include "base/status.h"
#include "cli/exit.h"
#include "cli/line.h"
#include "cli/term.h"

#include <ctype.h>
#include <signal.h>
#include <string.h>

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

static slash_fn do_help, do_clear, do_exit, do_regen, do_system, do_think, do_read;

static const slash g_slashes[] = {
    {"/help", "", "this list", do_help},
    {"/clear", "", "forget the conversation; the system message stays", do_clear},
    {"/regen", "", "answer the last question once more", do_regen},
    {"/system", " [TEXT]", "set the system message, without TEXT: take it away", do_system},
    {"/think", " on|off|EFFORT", "thinking before the answer", do_think},
    {"/read", " FILE", "send the text of a file", do_read},
    {"/exit", "", "leave; so do /quit, /bye and Ctrl-D", do_exit},
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
        if (st == MICA_E_ARG) say_dim("(/clear forgets the conversation so far)");
        return;
    }
    if (a->finish == MICA_FINISH_CANCELLED) {
        say_dim("(stopped)");
        return;
    }
    talk_times(times, sizeof times, a);
    fprintf(stderr, "%s(%s)%s\n", term_dim(), times, term_plain());
    if (a->is_full)
        term_note("the context of %u tokens is full: /clear starts over, -c gives a longer one",
                  c->t->model->info.n_ctx);
}

static void ask(chat_loop *c, const char *text, size_t n) {
    mica_error err = {0};
    answer a;
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
    fputs("  A line that ends in \\ goes on. Ctrl-C stops an answer; at an empty prompt, twice, it leaves.\n"
          "  Begin with a blank to send a message that starts with a slash.\n",
          stderr);
}

static void do_clear(chat_loop *c, const char *rest) {
    (void)rest;
    talk_clear(c->t);
    say_dim("(forgotten)");
}

static void do_exit(chat_loop *c, const char *rest) {
    (void)rest;
    c->leave = true;
}

static void do_regen(chat_loop *c, const char *rest) {
    (void)rest;
    mica_error err = {0};
    answer a;
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
    else if (talk_set_think(c->t, rest, &err) != MICA_OK)
        term_error(&err);
    else
        say_dim("(from the next answer on)");
}

static void do_read(chat_loop *c, const char *rest) {
    mica_error err = {0};
    strbuf text = {0};
    if (!rest[0])
        term_note("/read: name a file");
    else if (input_read(&text, rest, &err) != MICA_OK)
        term_error(&err);
    else
        ask(c, strbuf_cstr(&text), text.n);
    strbuf_fini(&text);
}

/* A slash and small letters, then the end or a blank: "/usr/bin" is a message. */
static bool is_slash(const char *text, size_t *n_name) {
    size_t n = 1;
    if (text[0] != '/') return false;
    while (islower((unsigned char)text[n])) n++;
    *n_name = n;
    return n > 1 && (text[n] == 0 || text[n] == ' ');
}

static void run_slash(chat_loop *c, const char *text, size_t n_name) {
    const char *names[N_SLASH], *rest = text + n_name + strspn(text + n_name, " ");
    char name[32];
    snprintf(name, sizeof name, "%.*s", (int)n_name, text);
    for (size_t i = 0; i < N_SLASH; i++) {
        names[i] = g_slashes[i].name;
        if (strcmp(name, names[i]) != 0) continue;
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

static void take_message(chat_loop *c, const strbuf *message) {
    const char *text = strbuf_cstr(message);
    size_t n_name;
    line_remember(c->line, text);
    if (is_slash(text, &n_name))
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
    TRY(line_open(&c.line, err));
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
