/* `mica run`: one answer to a prompt from a flag, a file or a pipe, or a conversation. Input is read before
 * the model is loaded: a missing file should not cost the wait. */
#include "cli/command.h"
#include "cli/exit.h"
#include "cli/interactive.h"
#include "cli/talk.h"
#include "cli/term.h"

#include <string.h>

/* *has is false when there is neither a prompt nor a pipe to read one from. */
static mica_status take_prompt(strbuf *text, bool *has, const options *o, mica_error *err) {
    *has = true;
    if (o->prompt && o->file) return fail(err, MICA_E_ARG, "-f: given beside -p: one of them is the prompt");
    if (o->prompt) {
        strbuf_puts(text, o->prompt);
        return text->failed ? fail(err, MICA_E_NOMEM, "-p: out of memory") : MICA_OK;
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
    // The newline that ends a text file or an echo is no part of the question.
    if (!o->raw && text->n > 0 && text->p[text->n - 1] == '\n') text->p[--text->n] = 0;
    if (!o->raw && text->n > 0 && text->p[text->n - 1] == '\r') text->p[--text->n] = 0;
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
    if (!o->model && !o->hf) return fail(err, MICA_E_ARG, "-m: missing: name a GGUF file or a pulled model");
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
