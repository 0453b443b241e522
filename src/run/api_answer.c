/* text/answer.h for callers of the library. */
#include "run/api_int.h"

#include "base/mem.h"
#include "text/answer.h"
#include "text/json_in.h"

struct mica_answer {
    answer *a; // owned
    mica_answer_fn *fn;
    void *user;
    strbuf name; // of the call at hand
};

static void on_piece(void *user, const answer_piece *p) {
    static const mica_answer_kind kind[] = {[ANSWER_THINK] = MICA_ANSWER_THINK,
                                            [ANSWER_TEXT] = MICA_ANSWER_TEXT,
                                            [ANSWER_CALL] = MICA_ANSWER_CALL,
                                            [ANSWER_ARGS] = MICA_ANSWER_ARGUMENTS,
                                            [ANSWER_CALL_END] = MICA_ANSWER_CALL_END,
                                            [ANSWER_MARK] = MICA_ANSWER_MARK};
    mica_answer *m = user;
    if (p->kind == ANSWER_CALL) {
        strbuf_clear(&m->name);
        strbuf_put(&m->name, p->name.p, p->name.n);
    }
    m->fn(m->user, &(mica_answer_piece){.kind = kind[p->kind],
                                        .text = p->text.n ? p->text.p : "",
                                        .n_text = p->text.n,
                                        .name = p->kind == ANSWER_CALL ? strbuf_cstr(&m->name) : NULL,
                                        .index = p->index});
}

mica_status mica_answer_new(mica_answer **out, const mica_model *m, const mica_answer_options *opt,
                            mica_error *err) {
    mica_status st = MICA_OK;
    json_t *tools = NULL;
    *out = NULL;
    mica_answer *a = mem_calloc(1, sizeof *a);
    if (!a) return fail(err, MICA_E_NOMEM, "answer: out of memory");
    a->fn = opt->fn;
    a->user = opt->user;
    if (opt->tools_json)
        TRY_GOTO(json_in_parse(&tools, slice_of(opt->tools_json),
                               &(json_in_options){"tools", JSON_IN_ARRAY, 0}, err),
                 done);
    const answer_options o = {.format = chat_template_abilities(m->chat, tools != NULL)->format,
                              .in_think = opt->in_think,
                              .marks = opt->marks,
                              .tools = tools,
                              .fn = on_piece,
                              .user = a};
    TRY_GOTO(answer_new(&a->a, &o, err), done);
    *out = a;
    a = NULL;
done:
    json_decref(tools);
    mica_answer_free(a);
    return st;
}

mica_status mica_answer_put(mica_answer *a, const char *text, size_t n, mica_error *err) {
    return answer_put(a->a, (slice){text, n}, err);
}

mica_status mica_answer_end(mica_answer *a, mica_error *err) {
    return answer_end(a->a, err);
}

void mica_answer_free(mica_answer *a) {
    if (!a) return;
    answer_free(a->a);
    strbuf_fini(&a->name);
    mem_free(a);
}
