/* The templates of a model file, and rendering a request through them. */
#include "text/chat_int.h"

#include "base/mem.h"
#include "gguf/gguf.h"
#include "text/vocab.h"

/* What a file without a template gets when its vocabulary has the ChatML markers. */
static const char CHATML[] =
    "{%- for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
    "{%- endfor %}{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

/* Roles that templates paste into markers: trusted when a message has exactly one of them. */
static const char *const ROLE[] = {"system",    "user",  "assistant", "tool",
                                   "developer", "model", "function",  "ipython"};

enum { N_ROLE = sizeof ROLE / sizeof *ROLE };

/* ---- templates ---- */

static mica_status variant_init(chat_variant *v, slice source, const json_t *tokens, mica_error *err) {
    if (!source.n) return MICA_OK;
    v->present = true;
    v->source = mem_alloc(source.n + 1);
    if (!v->source) return fail(err, MICA_E_NOMEM, "chat template: %zu bytes: out of memory", source.n);
    memcpy(v->source, source.p, source.n);
    v->source[source.n] = 0;
    mica_status st = jinja_parse(&v->t, source, &v->broken);
    if (st == MICA_E_NOMEM) return fail(err, st, "%s", v->broken.text);
    if (st == MICA_OK) chat_probe(v, tokens);
    return MICA_OK;
}

static bool put_text(json_t *object, const char *key, slice s) {
    return !s.n || json_object_set_new(object, key, json_stringn(s.p, s.n)) == 0;
}

mica_status chat_template_build(chat_template **out, const chat_source *s, mica_error *err) {
    mica_status st = MICA_OK;
    chat_template *t = mem_calloc(1, sizeof *t);
    *out = NULL;
    if (!t) return fail(err, MICA_E_NOMEM, "chat template: out of memory");
    t->tokens = json_object();
    // a token's text that is no UTF-8 is left out: a template could not print it anyway
    if (!t->tokens || (utf8_valid(s->bos.p, s->bos.n) && !put_text(t->tokens, "bos_token", s->bos)) ||
        (utf8_valid(s->eos.p, s->eos.n) && !put_text(t->tokens, "eos_token", s->eos)) ||
        (utf8_valid(s->pad.p, s->pad.n) && !put_text(t->tokens, "pad_token", s->pad)) ||
        (utf8_valid(s->unk.p, s->unk.n) && !put_text(t->tokens, "unk_token", s->unk))) {
        st = fail(err, MICA_E_NOMEM, "chat template: special tokens: out of memory");
        goto done;
    }
    slice source = s->source.n || !s->chatml ? s->source : SLICE_LIT(CHATML);
    TRY_GOTO(variant_init(&t->plain, source, t->tokens, err), done);
    TRY_GOTO(variant_init(&t->tool_use, s->tool_source, t->tokens, err), done);
    *out = t;
    t = NULL;
done:
    chat_template_free(t);
    return st;
}

static slice token_text(const text_vocab *v, text_special which) {
    return text_vocab_bytes(v, text_vocab_special(v, which));
}

mica_status chat_template_new(chat_template **out, const gguf_file *g, const text_vocab *v, mica_error *err) {
    chat_source s = {.bos = token_text(v, TEXT_BOS),
                     .eos = token_text(v, TEXT_EOS),
                     .pad = token_text(v, TEXT_PAD),
                     .unk = token_text(v, TEXT_UNK),
                     .chatml = text_vocab_find(v, SLICE_LIT("<|im_start|>")) >= 0};
    gguf_value_str(gguf_find(g, "tokenizer.chat_template"), &s.source);
    gguf_value_str(gguf_find(g, "tokenizer.chat_template.tool_use"), &s.tool_source);
    if (!s.source.n) gguf_value_str(gguf_find(g, "tokenizer.chat_template.default"), &s.source);
    return chat_template_build(out, &s, err);
}

static void variant_fini(chat_variant *v) {
    jinja_free(v->t);
    mem_free(v->source);
}

void chat_template_free(chat_template *t) {
    if (!t) return;
    variant_fini(&t->plain);
    variant_fini(&t->tool_use);
    json_decref(t->tokens);
    mem_free(t);
}

static const chat_variant *variant_for(const chat_template *t, bool with_tools) {
    return with_tools && t->tool_use.present ? &t->tool_use : &t->plain;
}

static mica_status variant_check(const chat_variant *v, mica_error *err) {
    if (v->t) return MICA_OK;
    if (!v->present)
        return fail(err, MICA_E_ARG,
                    "chat template: none in the model file: give plain text instead (--raw)");
    return fail(err, v->broken.status, "%s", v->broken.text);
}

mica_status chat_template_check(const chat_template *t, mica_error *err) {
    return variant_check(&t->plain, err);
}

const chat_abilities *chat_template_abilities(const chat_template *t, bool with_tools) {
    return &variant_for(t, with_tools)->can;
}

/* ---- rendering ---- */

mica_status chat_variant_render(jinja_output *out, const chat_variant *v, const json_t *tokens,
                                json_t *context, int64_t now_s, mica_error *err) {
    static const char *const trusted[] = {"bos_token", "eos_token", "pad_token", "unk_token"};
    jinja_options opt = {.trusted = trusted, .n_trusted = 4, .role = ROLE, .n_role = N_ROLE, .now_s = now_s};
    *out = (jinja_output){0};
    mica_status st;
    if (!context || json_object_update((json_t *)context, (json_t *)tokens) != 0)
        st = fail(err, MICA_E_NOMEM, "chat template: the conversation: out of memory");
    else
        st = jinja_render(out, v->t, context, &opt, err);
    json_decref(context);
    return st;
}

/* Variables a caller may not set, as they are not his. */
static bool reserved(const char *key) {
    static const char *const name[] = {"messages",  "tools",     "bos_token",
                                       "eos_token", "pad_token", "unk_token"};
    for (size_t i = 0; i < sizeof name / sizeof *name; i++)
        if (strcmp(key, name[i]) == 0) return true;
    return false;
}

static mica_status put_kwargs(json_t *context, const json_t *kwargs, mica_error *err) {
    const char *key;
    json_t *value;
    if (!kwargs) return MICA_OK;
    if (!json_is_object(kwargs)) return fail(err, MICA_E_ARG, "chat_template_kwargs: must be an object");
    json_object_foreach((json_t *)kwargs, key, value) {
        if (reserved(key)) return fail(err, MICA_E_ARG, "chat_template_kwargs: %s: cannot be set here", key);
        if (json_object_set(context, key, value) != 0)
            return fail(err, MICA_E_NOMEM, "chat_template_kwargs: %s: out of memory", key);
    }
    return MICA_OK;
}

static mica_status put_or_fail(json_t *context, const char *key, json_t *value, mica_error *err) {
    if (json_object_set_new(context, key, value) == 0) return MICA_OK;
    return fail(err, MICA_E_NOMEM, "chat template: %s: out of memory", key);
}

/* Closes the block a template opened although thinking is not wanted, where it has no switch for that. */
static mica_status close_think(chat_prompt *p, mica_error *err) {
    const char *end = p->format.think_end;
    size_t n = strlen(end) + 3, total = p->n + n;
    char *text = mem_realloc(p->text, total + 1);
    if (!text) return fail(err, MICA_E_NOMEM, "chat template: %zu bytes of output: out of memory", total);
    p->text = text;
    snprintf(text + p->n, n + 1, "\n%s\n\n", end);
    p->n = total;
    p->span[p->n_span - 1].end = total; // ends_in_think has seen that it is trusted
    p->in_think = false;
    return MICA_OK;
}

/* The prompt ends with the marker that opens a thinking block, blanks aside. */
static bool ends_in_think(const jinja_output *o, const chat_format *f) {
    if (!f->think_begin || !o->n_span || !o->span[o->n_span - 1].trusted) return false;
    slice mark = slice_of(f->think_begin);
    size_t end = o->n, floor = o->span[o->n_span - 1].begin;
    while (mark.n && strchr(" \n\t", mark.p[mark.n - 1])) mark.n--;
    while (end > floor && strchr(" \n\t", o->text[end - 1])) end--;
    return end - floor >= mark.n && memcmp(o->text + end - mark.n, mark.p, mark.n) == 0;
}

mica_status chat_render(chat_prompt *out, const chat_template *t, const chat_request *req, mica_error *err) {
    mica_status st;
    json_t *context = json_object(), *messages = NULL, *tools = NULL;
    jinja_output made = {0};
    *out = (chat_prompt){0};
    if (!context) return fail(err, MICA_E_NOMEM, "chat template: the conversation: out of memory");
    TRY_GOTO(chat_tools_fit(&tools, req->tools, err), done);
    const chat_variant *v = variant_for(t, tools != NULL);
    TRY_GOTO(variant_check(v, err), done);
    if (tools && !v->can.tools) {
        st = fail(err, MICA_E_ARG, "tools: the model's chat template has no place for them");
        goto done;
    }
    TRY_GOTO(chat_messages_fit(&messages, &v->can, req->messages, err), done);
    TRY_GOTO(put_kwargs(context, req->kwargs, err), done);
    TRY_GOTO(put_or_fail(context, "messages", json_incref(messages), err), done);
    TRY_GOTO(put_or_fail(context, "tools", tools ? json_incref(tools) : json_null(), err), done);
    if (!json_object_get(context, "add_generation_prompt"))
        TRY_GOTO(put_or_fail(context, "add_generation_prompt", json_boolean(!req->no_generation_prompt), err),
                 done);
    TRY_GOTO(chat_think_apply(context, v, req->think, err), done);
    st = chat_variant_render(&made, v, t->tokens, json_incref(context), req->now_s, err);
    if (st != MICA_OK) goto done;
    *out = (chat_prompt){.text = made.text, .n = made.n, .span = made.span, .n_span = made.n_span};
    out->format = v->can.format;
    out->in_think = ends_in_think(&made, &v->can.format);
    bool off = req->think && (strcmp(req->think, "off") == 0 || strcmp(req->think, "none") == 0);
    if (off && out->in_think && !v->switches) st = close_think(out, err);
    if (st != MICA_OK) chat_prompt_fini(out);
done:
    json_decref(messages);
    json_decref(tools);
    json_decref(context);
    return st;
}

void chat_prompt_fini(chat_prompt *p) {
    mem_free(p->text);
    mem_free(p->span);
    *p = (chat_prompt){0};
}
