/* An answer of a model, read as a whole and in pieces: both must give the same. The first byte says the
 * family and where to start, the second how the text is cut. */
#include "base/str.h"
#include "text/answer.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct log {
    strbuf b;
    int last; // kind of the piece before, -1: none
} log_;

static void on_piece(void *user, const answer_piece *p) {
    log_ *l = user;
    const bool empty = p->kind == ANSWER_CALL || p->kind == ANSWER_CALL_END;
    const bool of_call = p->kind == ANSWER_ARGS || p->kind == ANSWER_CALL_END;
    if ((p->text.n == 0) != empty) abort();
    if (of_call != (l->last == ANSWER_CALL || l->last == ANSWER_ARGS)) abort();
    if ((int)p->kind != l->last || p->kind == ANSWER_CALL) strbuf_printf(&l->b, "\n%d:", (int)p->kind);
    if (p->kind == ANSWER_CALL) {
        strbuf_printf(&l->b, "%d ", p->index);
        strbuf_put(&l->b, p->name.p, p->name.n);
    }
    strbuf_put(&l->b, p->text.p, p->text.n);
    l->last = (int)p->kind;
}

static void read_it(log_ *l, const answer_options *how, slice text, size_t cut) {
    mica_error err;
    answer *a;
    answer_options opt = *how;
    *l = (log_){.last = -1};
    opt.fn = on_piece;
    opt.user = l;
    if (answer_new(&a, &opt, &err) != MICA_OK) abort();
    for (size_t at = 0, n; at < text.n; at += n) {
        n = text.n - at < cut ? text.n - at : cut;
        answer_put(a, (slice){text.p + at, n}, &err);
    }
    answer_end(a, &err);
    answer_free(a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static json_t *tools;
    static const char *const think[][2] = {{"<think>", "</think>"}, {"<|channel>thought\n", "<channel|>"}};
    if (!tools)
        tools = json_loads(
            "[{\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":{\"s\":{\"type\":\"string\"}}}}}]",
            0, NULL);
    if (size < 2) return 0;
    chat_family family = (chat_family)(data[0] % 5);
    bool gemma = family == CHAT_GEMMA4;
    answer_options how = {
        .format = {family, think[gemma][0], think[gemma][1]}, .in_think = data[0] & 8, .tools = tools};
    slice text = {(const char *)data + 2, size - 2};
    log_ whole, pieces;
    read_it(&whole, &how, text, text.n + 1);
    read_it(&pieces, &how, text, data[1] % 16 + 1u);
    if (whole.b.n != pieces.b.n || (whole.b.n && memcmp(whole.b.p, pieces.b.p, whole.b.n) != 0)) abort();
    strbuf_fini(&whole.b);
    strbuf_fini(&pieces.b);
    return 0;
}
