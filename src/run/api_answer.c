/* text/answer.h for callers of the library. A call comes out of there whole; here it is told in three pieces,
 * the shape in which it will come when it is read piece by piece. */
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

static void tell(mica_answer *m, mica_answer_kind kind, const answer_piece *p, slice text) {
    m->fn(m->user, &(mica_answer_piece){.kind = kind,
                                        .text = text.p,
                                        .n_text = text.n,
                                        .name = kind == MICA_ANSWER_CALL ? strbuf_cstr(&m->name) : NULL,
                                        .index = p->index});
}

static void on_piece(void *user, const answer_piece *p) {
    mica_answer *m = user;
    const slice none = {"", 0};
    if (p->kind != ANSWER_CALL) {
        tell(m, p->kind == ANSWER_THINK ? MICA_ANSWER_THINK : MICA_ANSWER_TEXT, p, p->text);
        return;
    }
    strbuf_clear(&m->name);
    strbuf_put(&m->name, p->name.p, p->name.n);
    tell(m, MICA_ANSWER_CALL, p, none);
    tell(m, MICA_ANSWER_ARGUMENTS, p, p->text);
    tell(m, MICA_ANSWER_CALL_END, p, none);
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
