/* Reading a vocabulary's parts out of a GGUF's metadata. Meaning and checks of values are vocab.c's. */
#include "base/mem.h"
#include "gguf/gguf.h"
#include "text/vocab.h"

#include <stdlib.h>

/* The arrays of a description, which itself only borrows. */
typedef struct parts {
    text_vocab_desc d;
    slice *token, *merge; // owned
    int32_t *type;        // owned
    float *score;         // owned
    int32_t *suppress;    // owned
} parts;

static mica_status no_memory(const char *key, uint64_t n, mica_error *err) {
    return fail(err, MICA_E_NOMEM, "%s: %llu elements: out of memory", key, (unsigned long long)n);
}

static mica_status read_strings(slice **out, size_t *n, const gguf_file *g, const char *key, bool needed,
                                mica_error *err) {
    const gguf_value *v;
    if (needed)
        TRY(gguf_need_array(g, key, GGUF_OF_STR, GGUF_ANY_COUNT, &v, err));
    else
        TRY(gguf_get_array(g, key, GGUF_OF_STR, GGUF_ANY_COUNT, &v, err));
    uint64_t count = gguf_value_count(v);
    *out = count <= SIZE_MAX / sizeof **out ? mem_alloc((size_t)count * sizeof **out) : NULL;
    if (!*out) return no_memory(key, count, err);
    for (uint64_t i = 0; i < count; i++) gguf_value_at_str(v, i, &(*out)[i]);
    *n = (size_t)count;
    return MICA_OK;
}

/* n as for gguf_get_array; *out is NULL when the key is absent. Values beyond 32 bits become -1, which no id
 * is. */
static mica_status read_ints(int32_t **out, const gguf_file *g, const char *key, uint64_t n,
                             mica_error *err) {
    const gguf_value *v;
    TRY(gguf_get_array(g, key, GGUF_OF_INT, n, &v, err));
    uint64_t count = gguf_value_count(v);
    if (count == 0) return MICA_OK;
    *out = count <= SIZE_MAX / sizeof **out ? mem_alloc((size_t)count * sizeof **out) : NULL;
    if (!*out) return no_memory(key, count, err);
    for (uint64_t i = 0; i < count; i++) {
        int64_t x = -1;
        gguf_value_at_i64(v, i, &x);
        (*out)[i] = x >= INT32_MIN && x <= INT32_MAX ? (int32_t)x : -1;
    }
    return MICA_OK;
}

static mica_status read_scores(float **out, const gguf_file *g, uint64_t n, mica_error *err) {
    static const char key[] = "tokenizer.ggml.scores";
    const gguf_value *v;
    TRY(gguf_get_array(g, key, GGUF_OF_FLOAT, n, &v, err));
    if (!v) return MICA_OK;
    *out = mem_alloc((size_t)n * sizeof **out);
    if (!*out) return no_memory(key, n, err);
    for (uint64_t i = 0; i < n; i++) {
        double x = 0;
        gguf_value_at_f64(v, i, &x);
        (*out)[i] = (float)x;
    }
    return MICA_OK;
}

static mica_status read_tri(text_tri *out, const gguf_file *g, const char *key, mica_error *err) {
    bool yes = false;
    TRY(gguf_get_bool(g, key, &yes, err));
    *out = !gguf_find(g, key) ? TEXT_UNSET : yes ? TEXT_YES : TEXT_NO;
    return MICA_OK;
}

/* Each role's key, and the older one it had. "seperator" is the format's own spelling. */
static const struct id_key {
    text_special role;
    const char *key;
} id_keys[] = {
    {TEXT_BOS, "tokenizer.ggml.bos_token_id"},         {TEXT_EOS, "tokenizer.ggml.eos_token_id"},
    {TEXT_EOT, "tokenizer.ggml.eot_token_id"},         {TEXT_EOM, "tokenizer.ggml.eom_token_id"},
    {TEXT_UNK, "tokenizer.ggml.unknown_token_id"},     {TEXT_SEP, "tokenizer.ggml.seperator_token_id"},
    {TEXT_PAD, "tokenizer.ggml.padding_token_id"},     {TEXT_MASK, "tokenizer.ggml.mask_token_id"},
    {TEXT_FIM_PRE, "tokenizer.ggml.prefix_token_id"},  {TEXT_FIM_SUF, "tokenizer.ggml.suffix_token_id"},
    {TEXT_FIM_MID, "tokenizer.ggml.middle_token_id"},  {TEXT_FIM_PRE, "tokenizer.ggml.fim_pre_token_id"},
    {TEXT_FIM_SUF, "tokenizer.ggml.fim_suf_token_id"}, {TEXT_FIM_MID, "tokenizer.ggml.fim_mid_token_id"},
    {TEXT_FIM_PAD, "tokenizer.ggml.fim_pad_token_id"}, {TEXT_FIM_REP, "tokenizer.ggml.fim_rep_token_id"},
    {TEXT_FIM_SEP, "tokenizer.ggml.fim_sep_token_id"},
};

static mica_status read_ids(text_vocab_desc *d, const gguf_file *g, mica_error *err) {
    for (int role = 0; role < TEXT_SPECIAL_N; role++) d->special[role] = -1;
    for (size_t i = 0; i < sizeof id_keys / sizeof *id_keys; i++) {
        const gguf_value *v = gguf_find(g, id_keys[i].key);
        int64_t id;
        if (!v) continue;
        if (!gguf_value_i64(v, &id))
            return fail(err, MICA_E_FORMAT, "%s: %s: not an integer", gguf_name(g), id_keys[i].key);
        if (id < 0 || id == UINT32_MAX) continue; // how some writers say "none"
        d->special[id_keys[i].role] = id;
    }
    return MICA_OK;
}

static mica_status read_parts(parts *p, const gguf_file *g, mica_error *err) {
    text_vocab_desc *d = &p->d;
    size_t n_suppress = 0;
    TRY(gguf_need_str(g, "tokenizer.ggml.model", &d->model, err));
    TRY(gguf_get_str(g, "tokenizer.ggml.pre", &d->pre, err));
    TRY(gguf_get_str(g, "tokenizer.chat_template", &d->chat_template, err));
    TRY(read_strings(&p->token, &d->n_token, g, "tokenizer.ggml.tokens", true, err));
    if (!slice_is(d->model, "llama")) {
        bool needed = slice_is(d->model, "gpt2") || slice_is(d->model, "gemma4");
        TRY(read_strings(&p->merge, &d->n_merge, g, "tokenizer.ggml.merges", needed, err));
    }
    TRY(read_ints(&p->type, g, "tokenizer.ggml.token_type", d->n_token, err));
    TRY(read_scores(&p->score, g, d->n_token, err));
    TRY(read_ints(&p->suppress, g, "tokenizer.ggml.suppress_tokens", GGUF_ANY_COUNT, err));
    if (p->suppress) n_suppress = (size_t)gguf_value_count(gguf_find(g, "tokenizer.ggml.suppress_tokens"));
    TRY(read_tri(&d->add_bos, g, "tokenizer.ggml.add_bos_token", err));
    TRY(read_tri(&d->add_eos, g, "tokenizer.ggml.add_eos_token", err));
    TRY(read_tri(&d->add_space_prefix, g, "tokenizer.ggml.add_space_prefix", err));
    TRY(read_ids(d, g, err));
    d->token = p->token;
    d->merge = p->merge;
    d->type = p->type;
    d->score = p->score;
    d->suppress = p->suppress;
    d->n_suppress = n_suppress;
    return MICA_OK;
}

mica_status text_vocab_new(text_vocab **out, const gguf_file *g, mica_error *err) {
    parts p = {0};
    *out = NULL;
    mica_status st = read_parts(&p, g, err);
    if (st == MICA_OK) {
        st = text_vocab_build(out, &p.d, err);
        if (st != MICA_OK) fail_within(err, st, "%s", gguf_name(g));
    }
    mem_free(p.token);
    mem_free(p.merge);
    mem_free(p.type);
    mem_free(p.score);
    mem_free(p.suppress);
    return st;
}
