/* `mica run`: one answer to a prompt from a flag, a file or a pipe (or a prompt and what a pipe brings to
 * it), or a conversation. Input is read before the model is loaded: a missing file should not cost the wait.
 */
#include "cli/command.h"
#include "cli/exit.h"
#include "cli/interactive.h"
#include "cli/talk.h"
#include "cli/term.h"

#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Is there somebody on standard input who hands something over? A terminal, /dev/null and other devices do
 * not. */
static bool stdin_is_handed_over(void) {
    struct stat sb;
    return fstat(STDIN_FILENO, &sb) == 0 &&
           (S_ISFIFO(sb.st_mode) || S_ISREG(sb.st_mode) || S_ISSOCK(sb.st_mode));
}

/* The newline that ends a text file or an echo is no part of the question. */
static void cut_line_end(strbuf *text) {
    if (text->n > 0 && text->p[text->n - 1] == '\n') text->p[--text->n] = 0;
    if (text->n > 0 && text->p[text->n - 1] == '\r') text->p[--text->n] = 0;
}

/* What stands below a prompt: a file, or what a pipe brings. Who waits for a pipe that nobody writes to is
 * told so; who did not know that a list was being read is told how much of it. */
static mica_status add_data(strbuf *text, const options *o, mica_error *err) {
    enum { PATIENCE_MS = 2000 };
    mica_status st = MICA_OK;
    strbuf data = {0};
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    if (!o->file && poll(&in, 1, PATIENCE_MS) == 0)
        term_note("standard input: waiting for what goes below the prompt; </dev/null when that is nothing");
    TRY_GOTO(input_read(&data, o->file ? o->file : "-", err), done);
    if (!o->raw) cut_line_end(&data);
    if (data.n == 0) goto done;
    if (!o->file) term_note("standard input: %zu bytes go below the prompt", data.n);
    if (text->n > 0) strbuf_puts(text, o->raw ? "" : "\n\n");
    strbuf_put(text, data.p, data.n);
    if (text->failed) st = fail(err, MICA_E_NOMEM, "prompt: %zu bytes: out of memory", data.n);
done:
    strbuf_fini(&data);
    return st;
}

/* *has is false when there is neither a prompt nor a pipe to read one from. */
static mica_status take_prompt(strbuf *text, bool *has, const options *o, mica_error *err) {
    *has = true;
    if (o->prompt && o->args.n > 0)
        return fail(err, MICA_E_ARG, "%s: a prompt beside -p: one of them", o->args.p[0]);
    const char *prompt = o->prompt ? o->prompt : o->args.n > 0 ? o->args.p[0] : NULL;
    if (prompt) {
        strbuf_puts(text, prompt);
        if (text->failed) return fail(err, MICA_E_NOMEM, "-p: out of memory");
        return o->file || stdin_is_handed_over() ? add_data(text, o, err) : MICA_OK;
    }
    if (!o->file && term_stdin_is_tty()) {
        *has = false;
        if (o->json) return fail(err, MICA_E_ARG, "--json: a conversation has no JSON form: give -p or -f");
        return MICA_OK;
    }
    TRY(input_read(text, o->file ? o->file : "-", err));
    if (text->n == 0)
        return fail(err, MICA_E_ARG, "%s: empty: there is nothing to answer",
                    o->file ? o->file : "standard input");
    if (!o->raw) cut_line_end(text);
    return MICA_OK;
}

/* Known before the wait for the model; the library knows the same words (cli_test.py compares them). */
static mica_status check_think(const char *think, mica_error *err) {
    static const char *const words[] = {"on",     "off",  "none",  "minimal", "low",
                                        "medium", "high", "xhigh", "max"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(think, words[i]) == 0) return MICA_OK;
    return fail(err, MICA_E_ARG,
                "--think: \"%s\": not on, off, none, minimal, low, medium, high, xhigh or max", think);
}

static mica_status check_flags(const options *o, mica_error *err) {
    json_error_t why;
    if (o->think) TRY(check_think(o->think, err));
    if (!o->model && !o->hf)
        return fail(err, MICA_E_ARG,
                    "-m: missing: name a GGUF file or a pulled model: `mica list` shows them");
    for (size_t i = 0; i < o->stop.n; i++) // half a character would be looked for inside others
        if (!utf8_valid(o->stop.p[i], strlen(o->stop.p[i])))
            return fail(err, MICA_E_ARG, "--stop: \"%s\": not UTF-8", o->stop.p[i]);
    if (!o->kwargs) return MICA_OK;
    json_t *v = json_loads(o->kwargs, JSON_REJECT_DUPLICATES, &why);
    const char *wrong = !v ? why.text : json_is_object(v) ? NULL : "it is another kind of value";
    json_decref(v);
    return wrong ? fail(err, MICA_E_ARG, "--chat-template-kwargs: not a JSON object: %s", wrong) : MICA_OK;
}

static mica_status answer_once(talk *t, const strbuf *text, mica_error *err) {
    answer a;
    char times[256];
    TRY(talk_ask(t, strbuf_cstr(text), text->n, &a, err));
    talk_times(times, sizeof times, &a);
    term_note("%s; load %.0f ms", times, t->model->load_ms);
    if (a.is_full)
        term_note("the context of %u tokens is full: -c %u gives a longer one", t->model->info.n_ctx,
                  2 * t->model->info.n_ctx);
    if (a.finish == MICA_FINISH_CANCELLED && interrupt_signal())
        return fail(err, MICA_E_CANCELLED, "answer: stopped");
    return MICA_OK;
}

mica_status cmd_run(const options *o, mica_error *err) {
    mica_status st = MICA_OK;
    opened model = {0};
    talk t = {0};
    strbuf text = {0};
    bool has_prompt;
    TRY(check_flags(o, err));
    TRY_GOTO(take_prompt(&text, &has_prompt, o, err), done);
    TRY_GOTO(open_model(&model, o, NULL, err), done);
    // From here on Ctrl-C stops an answer, and what there is of it counts.
    interrupt_set_mode(has_prompt ? INTERRUPT_WINDS_UP : INTERRUPT_STOPS);
    TRY_GOTO(talk_init(&t, &model, o, err), done);
    if (t.seed_is_random && t.sampling.temperature > 0)
        term_note("seed %llu", (unsigned long long)t.sampling.seed);
    st = has_prompt ? answer_once(&t, &text, err) : interactive_run(&t, err);
done:
    strbuf_fini(&text);
    talk_fini(&t);
    open_close(&model);
    return st;
}
