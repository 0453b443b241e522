/* Text calls: any thread, any time. */
#include "run/api_int.h"

#include "base/mem.h"
#include "text/detok.h"
#include "text/json_in.h"
#include "text/tokenize.h"

void mica_ids_free(mica_ids *ids) {
    if (!ids) return;
    mem_free(ids->ids);
    *ids = (mica_ids){0};
}

void mica_text_free(char *text) {
    mem_free(text);
}

static mica_status encode(mica_ids *out, const mica_model *m, const text_input *in, mica_error *err) {
    text_ids ids = {0};
    mica_status st = text_encode(&ids, m->vocab, in, err);
    if (st != MICA_OK) {
        text_ids_fini(&ids);
        return st;
    }
    *out = (mica_ids){.ids = ids.id, .n = ids.n};
    return MICA_OK;
}

mica_status mica_tokenize(const mica_model *m, const char *text, size_t n, bool special, bool add_bos,
                          mica_ids *out, mica_error *err) {
    *out = (mica_ids){0};
    text_input in = {.text = {text, n}};
    if (special) in.flags |= TEXT_TRUSTED;
    if (add_bos) in.flags |= TEXT_ADD_BOS | TEXT_ADD_EOS;
    return encode(out, m, &in, err);
}

mica_status mica_detokenize(const mica_model *m, const int32_t *ids, size_t n, bool special, char **out,
                            mica_error *err) {
    *out = NULL;
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= text_vocab_n(m->vocab))
            return fail(err, MICA_E_ARG, "detokenize: id %d: the vocabulary has %d", ids[i],
                        text_vocab_n(m->vocab));
    }
    strbuf b = {0};
    text_decode(&b, m->vocab, ids, n, special ? TEXT_SHOW_CONTROL : 0);
    *out = strbuf_take(&b);
    return *out ? MICA_OK : fail(err, MICA_E_NOMEM, "detokenize: out of memory");
}

const char *mica_token_bytes(const mica_model *m, int32_t id, size_t *n_bytes) {
    slice s = text_vocab_bytes(m->vocab, id);
    *n_bytes = s.n;
    return s.p;
}

bool mica_token_ends_turn(const mica_model *m, int32_t id) {
    return text_vocab_ends(m->vocab, id);
}

/* ---- streams ---- */

struct mica_text_stream {
    text_stream ts;
    strbuf out;
};

mica_status mica_text_stream_new(mica_text_stream **out, const mica_model *m, bool special, mica_error *err) {
    *out = mem_calloc(1, sizeof **out);
    if (!*out) return fail(err, MICA_E_NOMEM, "text stream: out of memory");
    text_stream_init(&(*out)->ts, m->vocab, special ? TEXT_SHOW_CONTROL : 0);
    return MICA_OK;
}

static const char *given(mica_text_stream *ts, size_t *n_bytes) {
    if (n_bytes) *n_bytes = ts->out.n;
    return strbuf_cstr(&ts->out);
}

const char *mica_text_stream_put(mica_text_stream *ts, int32_t id, size_t *n_bytes) {
    strbuf_clear(&ts->out);
    text_stream_put(&ts->ts, id, &ts->out);
    return given(ts, n_bytes);
}

const char *mica_text_stream_end(mica_text_stream *ts, size_t *n_bytes) {
    strbuf_clear(&ts->out);
    text_stream_end(&ts->ts, &ts->out);
    return given(ts, n_bytes);
}

void mica_text_stream_free(mica_text_stream *ts) {
    if (!ts) return;
    strbuf_fini(&ts->out);
    mem_free(ts);
}

/* ---- chat ---- */

/* The request's JSON, parsed: owned by whoever holds it. */
typedef struct chat_json {
    json_t *messages, *tools, *kwargs;
} chat_json;

static void chat_json_fini(chat_json *j) {
    json_decref(j->messages);
    json_decref(j->tools);
    json_decref(j->kwargs);
}

static mica_status parse_optional(json_t **out, json_in_options what, const char *text, mica_error *err) {
    return text ? json_in_parse(out, slice_of(text), &what, err) : MICA_OK;
}

static mica_status render(chat_prompt *p, const mica_model *m, const char *messages,
                          const mica_chat_options *o, mica_error *err) {
    chat_json j = {0};
    mica_status st = MICA_OK;
    TRY_GOTO(parse_optional(&j.messages, (json_in_options){"messages", JSON_IN_ARRAY, 0}, messages, err),
             done);
    TRY_GOTO(parse_optional(&j.tools, (json_in_options){"tools", JSON_IN_ARRAY, 0}, o->tools_json, err),
             done);
    TRY_GOTO(parse_optional(&j.kwargs, (json_in_options){"chat_template_kwargs", JSON_IN_OBJECT, 0},
                            o->kwargs_json, err),
             done);
    TRY_GOTO(chat_render(p, m->chat,
                         &(chat_request){.messages = j.messages,
                                         .tools = j.tools,
                                         .kwargs = j.kwargs,
                                         .think = o->think,
                                         .no_generation_prompt = o->no_generation_prompt},
                         err),
             done);
done:
    chat_json_fini(&j);
    return st;
}

mica_status mica_encode_chat(const mica_model *m, const char *messages_json, const mica_chat_options *opt,
                             mica_ids *out, char **prompt_text, mica_error *err) {
    static const mica_chat_options none;
    *out = (mica_ids){0};
    if (prompt_text) *prompt_text = NULL;
    chat_prompt p = {0};
    mica_status st = MICA_OK;
    TRY(chat_template_check(m->chat, err));
    TRY_GOTO(render(&p, m, messages_json ? messages_json : "[]", opt ? opt : &none, err), done);
    text_input in = {.text = {p.text, p.n}, .span = p.span, .n_span = p.n_span, .flags = TEXT_ADD_BOS};
    TRY_GOTO(encode(out, m, &in, err), done);
    if (opt && opt->in_think) *opt->in_think = p.in_think;
    if (prompt_text && !(*prompt_text = mem_strdup(p.text))) {
        mica_ids_free(out);
        st = fail(err, MICA_E_NOMEM, "chat: out of memory");
    }
done:
    chat_prompt_fini(&p);
    return st;
}
