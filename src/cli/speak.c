/* A token's JSON line is printed at once unless some of its text is still held back (a cut character, the
 * beginning of a stop string): then it waits for the next token or the end, so that the texts of the lines
 * joined are the whole text. */
#include "cli/speak.h"

#include "base/mem.h"
#include "base/status.h"
#include "cli/print.h"

#include <jansson.h>

static void leave_thinking(speaker *s) {
    if (!s->in_thinking) return;
    s->in_thinking = false;
    fprintf(stderr, "%s\n\n", term_plain());
}

static void say_thinking(speaker *s, const char *text, size_t n) {
    if (!s->in_thinking) fputs(term_dim(), stderr);
    s->in_thinking = true;
    fwrite(text, 1, n, stderr);
}

static void take_piece(void *user, reply_part part, const char *text, size_t n) {
    speaker *s = user;
    strbuf_put(&s->all, text, n);
    if (part == PART_ANSWER) strbuf_put(&s->answer, text, n);
    if (part == PART_THINKING) strbuf_put(&s->thinking, text, n);
    if (s->json) {
        strbuf_put(&s->line, text, n);
        return;
    }
    if (part == PART_THINKING) say_thinking(s, text, n);
    if (part != PART_ANSWER) return;
    leave_thinking(s);
    fwrite(text, 1, n, stdout);
    s->last = text[n - 1];
}

static void put_line(speaker *s) {
    json_t *v = json_pack("{s:s, s:i, s:s%}", "type", "token", "id", (int)s->line_id, "text",
                          strbuf_cstr(&s->line), s->line.n);
    if (!v)
        s->failed = true;
    else
        print_json(v);
    json_decref(v);
    strbuf_clear(&s->line);
    s->line_waits = false;
}

static void keep_id(speaker *s, int32_t id) {
    if (s->n_ids == s->cap_ids) {
        const size_t cap = s->cap_ids ? s->cap_ids * 2 : 256;
        int32_t *grown = mem_realloc(s->ids, cap * sizeof *grown);
        if (!grown) {
            s->failed = true;
            return;
        }
        s->ids = grown;
        s->cap_ids = cap;
    }
    s->ids[s->n_ids++] = id;
}

mica_status speaker_init(speaker *s, const reply_options *opt, bool json, mica_error *err) {
    reply_options to_me = *opt;
    *s = (speaker){.json = json, .last = '\n'};
    to_me.sink = take_piece;
    to_me.user = s;
    return reply_init(&s->reply, &to_me, err);
}

void speaker_fini(speaker *s) {
    reply_fini(&s->reply);
    strbuf_fini(&s->answer);
    strbuf_fini(&s->thinking);
    strbuf_fini(&s->all);
    strbuf_fini(&s->line);
    mem_free(s->ids);
    *s = (speaker){0};
}

bool speaker_token(void *user, int32_t id) {
    speaker *s = user;
    progress_end(&s->bar);
    if (s->json && s->line_waits) put_line(s);
    keep_id(s, id);
    const bool more = reply_put(&s->reply, id);
    if (s->json) {
        s->line_id = id;
        s->line_waits = true;
        if (s->line.n > 0 && !reply_holds_text(&s->reply)) put_line(s);
    }
    if (!term_flush()) s->failed = true;
    return more && !s->failed;
}

void speaker_end(speaker *s) {
    progress_end(&s->bar);
    reply_end(&s->reply);
    if (s->reply.failed) s->failed = true;
    if (s->json && s->line_waits) put_line(s);
    if (!s->json) {
        leave_thinking(s);
        if (term_stdout_is_tty() && s->last != '\n') putchar('\n');
        if (!term_stdout_is_tty() && s->last != '\n' && term_flush() && term_streams_meet())
            fputc('\n', stderr);
    }
    if (!term_flush()) s->failed = true;
}
