/* Metadata: the keys of docs/MODELS.md for each family, and a vocabulary that works. */
#include "eval/synth_int.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>

typedef struct meta {
    gguf_writer *w;
    const synth_shape *s;
    const char *arch;
    char key[96];
} meta;

static const char *key_of(meta *m, const char *key) {
    snprintf(m->key, sizeof m->key, "%s.%s", m->arch, key);
    return m->key;
}
static void put_u32(meta *m, const char *key, uint32_t x) {
    gguf_writer_u32(m->w, key_of(m, key), x);
}
static void put_f32(meta *m, const char *key, double x) {
    gguf_writer_f32(m->w, key_of(m, key), (float)x);
}

/* An array with one element a layer. */
typedef int32_t layer_fn(const synth_shape *s, uint32_t il);
static mica_status put_layers(meta *m, const char *key, gguf_kind kind, uint32_t n, layer_fn *of) {
    int32_t *x = mem_alloc(n * sizeof *x);
    if (!x) return MICA_E_NOMEM;
    for (uint32_t il = 0; il < n; il++) {
        x[il] = of(m->s, il);
        if (kind == GGUF_KIND_BOOL)
            ((char *)x)[il] = (char)(x[il] != 0); // packed to the front, behind what is read
    }
    gguf_writer_array(m->w, key_of(m, key), kind, x, n);
    mem_free(x);
    return MICA_OK;
}

static int32_t layer_ff(const synth_shape *s, uint32_t il) {
    return (int32_t)synth_shape_ff(s, il);
}
static int32_t layer_slides(const synth_shape *s, uint32_t il) {
    return !synth_shape_is_full(s, il);
}
static int32_t layer_kv(const synth_shape *s, uint32_t il) {
    return (int32_t)(synth_shape_is_full(s, il) ? s->kv_full : s->kv);
}
static int32_t layer_ratio(const synth_shape *s, uint32_t il) {
    return il < s->layers && synth_shape_is_full(s, il) ? (int32_t)s->idx_ratio : 0;
}

static void put_common(meta *m) {
    const synth_shape *s = m->s;
    put_u32(m, "block_count", s->layers + s->mtp);
    put_u32(m, "context_length", s->ctx);
    put_u32(m, "embedding_length", s->embd);
    put_u32(m, "vocab_size", s->vocab);
    put_u32(m, "attention.head_count", s->heads);
    put_u32(m, "attention.key_length", s->hd);
    put_u32(m, "attention.value_length", s->hd);
    put_f32(m, "attention.layer_norm_rms_epsilon", s->eps);
    put_f32(m, "rope.freq_base", s->theta);
    put_u32(m, "rope.dimension_count", s->rope_dim ? s->rope_dim : s->hd);
    if (s->ff && !s->ff_wide) put_u32(m, "feed_forward_length", s->ff);
    if (s->arch != SYNTH_GEMMA4) put_u32(m, "attention.head_count_kv", s->kv);
    if (!s->experts) return;
    put_u32(m, "expert_count", s->experts);
    put_u32(m, "expert_used_count", s->used);
    put_u32(m, "expert_feed_forward_length", s->ff_exp);
    if (s->ff_shexp) put_u32(m, "expert_shared_feed_forward_length", s->ff_shexp);
}

static void put_hybrid(meta *m) {
    const synth_shape *s = m->s;
    uint32_t half =
        s->rope_dim / 2; // dealt out to three position components, as the models do with 32: 11 11 10
    int32_t section[4] = {(int32_t)((half + 2) / 3), (int32_t)((half + 1) / 3), (int32_t)(half / 3), 0};
    gguf_writer_array(m->w, key_of(m, "rope.dimension_sections"), GGUF_KIND_I32, section, 4);
    put_u32(m, "full_attention_interval", s->full_every);
    put_u32(m, "ssm.conv_kernel", s->conv);
    put_u32(m, "ssm.state_size", s->state);
    put_u32(m, "ssm.group_count", s->kh);
    put_u32(m, "ssm.time_step_rank", s->vh);
    put_u32(m, "ssm.inner_size", s->state * s->vh);
    if (s->mtp) put_u32(m, "nextn_predict_layers", s->mtp);
}

static mica_status put_flash(meta *m, uint32_t eos) {
    const synth_shape *s = m->s;
    static const uint64_t factor[8] = {23703573157769, 20109073645365, 8052911324071,  15485863000003,
                                       32452843000007, 49979687000013, 67867967000011, 86028121000019}; // odd
    uint64_t size[SYNTH_TABLE_MAX], off[SYNTH_TABLE_MAX], n = synth_shape_n_table(s), sum = 0;
    synth_shape_table(s, size);
    for (uint64_t h = 0; h < n; h++) {
        off[h] = sum;
        sum += size[h];
    }
    put_u32(m, "hyper_connection.count", s->hc);
    put_u32(m, "hyper_connection.low_rank", s->hc_rank);
    put_u32(m, "attention.indexer.head_count", s->idx_heads);
    put_u32(m, "attention.indexer.key_length", s->idx_dim);
    put_u32(m, "attention.indexer.top_k", s->idx_top);
    gguf_writer_array(m->w, key_of(m, "ple.layers"), GGUF_KIND_U32, &s->ple_layer, 1);
    put_u32(m, "ple.ngram_size", s->ple_ngram);
    put_u32(m, "ple.heads_per_ngram", s->ple_heads);
    put_u32(m, "ple.conv_kernel", s->ple_conv);
    put_u32(m, "ple.eos_token_id", eos);
    put_u32(m, "embedding_length_per_layer_input", s->embd / (uint32_t)n);
    gguf_writer_array(m->w, key_of(m, "ple.layer_multipliers"), GGUF_KIND_U64, factor, s->ple_ngram);
    gguf_writer_array(m->w, key_of(m, "ple.head_offsets"), GGUF_KIND_U64, off, n);
    gguf_writer_array(m->w, key_of(m, "ple.head_vocab_sizes"), GGUF_KIND_U64, size, n);
    return put_layers(m, "attention.compress_ratios", GGUF_KIND_I32, s->layers + s->mtp, layer_ratio);
}

static mica_status put_gemma(meta *m) {
    const synth_shape *s = m->s;
    put_u32(m, "attention.sliding_window", s->window);
    put_f32(m, "rope.freq_base_swa", s->theta_swa);
    TRY(put_layers(m, "attention.sliding_window_pattern", GGUF_KIND_BOOL, s->layers, layer_slides));
    if (s->arch == SYNTH_GEMMA3) return MICA_OK;
    put_u32(m, "rope.dimension_count_swa", s->hd_swa);
    put_u32(m, "attention.key_length_swa", s->hd_swa);
    put_u32(m, "attention.value_length_swa", s->hd_swa);
    put_u32(m, "attention.shared_kv_layers", s->shared_kv);
    put_u32(m, "embedding_length_per_layer_input", s->ple);
    put_f32(m, "final_logit_softcapping", s->softcap);
    if (s->ff_wide) TRY(put_layers(m, "feed_forward_length", GGUF_KIND_I32, s->layers, layer_ff));
    return put_layers(m, "attention.head_count_kv", GGUF_KIND_I32, s->layers, layer_kv);
}

/* ---- vocabulary ---- */

static const char g_template[] =
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' "
    "}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

typedef struct vocab_builder {
    strbuf text; // all tokens, then all merges
    uint32_t n, n_merge;
    uint32_t *end; // owned; where each ends in text: n_vocab + MERGES_MAX
    int32_t *kind; // owned; token types: 1 normal, 3 control, 5 unused
    slice *s;      // owned; of the tokens or of the merges, while they are written
} vocab_builder;

enum { N_BYTE = 256, MERGES_MAX = 27 * 26, N_CONTROL = 3 };

static uint32_t dummy_end_of_text(uint32_t n_vocab) {
    uint32_t room = n_vocab - N_BYTE - N_CONTROL; // n_vocab >= 300
    return N_BYTE + (room < MERGES_MAX ? room : MERGES_MAX);
}

static void push(vocab_builder *v, const char *text, size_t n, int32_t kind) {
    strbuf_put(&v->text, text, n);
    v->kind[v->n] = kind;
    v->end[v->n++] = (uint32_t)v->text.n;
}

/* The character that stands for a byte in byte-level vocabularies: printable bytes for themselves, the others
 * in order from U+0100. */
static void push_bytes(vocab_builder *v) {
    unsigned next = 256;
    for (unsigned b = 0; b < N_BYTE; b++) {
        bool self = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        char c[4];
        push(v, c, (size_t)utf8_put(c, self ? b : next++), 1);
    }
}

/* Pairs of frequent letters, as tokens and as merges; U+0120 is the space. */
static void push_pairs(vocab_builder *v, uint32_t n_vocab, strbuf *merges, uint32_t *merge_end) {
    static const char low[] = "etaoinshrdlucmfwypvbgkjqxz";
    for (unsigned a = 0; a < 27; a++)
        for (unsigned b = 0; b < 26 && v->n + N_CONTROL < n_vocab; b++) {
            char first[4], pair[8];
            size_t n = (size_t)utf8_put(first, a ? (unsigned char)low[a - 1] : 0x120u);
            memcpy(pair, first, n);
            pair[n] = low[b];
            push(v, pair, n + 1, 1);
            strbuf_printf(merges, "%.*s %c", (int)n, first, low[b]);
            merge_end[v->n_merge++] = (uint32_t)merges->n;
        }
}

static const slice *slices(vocab_builder *v, const strbuf *text, const uint32_t *end, uint32_t n) {
    for (uint32_t i = 0, at = 0; i < n; at = end[i++]) v->s[i] = (slice){text->p + at, end[i] - at};
    return v->s;
}

static void put_vocab(gguf_writer *w, vocab_builder *v, uint32_t n_vocab) {
    strbuf merges = {0};
    uint32_t merge_end[MERGES_MAX];
    push_bytes(v);
    push_pairs(v, n_vocab, &merges, merge_end);
    uint32_t end_of_text = dummy_end_of_text(n_vocab);
    push(v, "<|endoftext|>", 13, 3);
    push(v, "<|im_start|>", 12, 3);
    push(v, "<|im_end|>", 10, 3);
    while (v->n < n_vocab) {
        char name[32];
        push(v, name, (size_t)snprintf(name, sizeof name, "[unused%" PRIu32 "]", v->n), 5);
    }
    if (!v->text.failed && !merges.failed) {
        gguf_writer_str(w, "tokenizer.ggml.model", SLICE_LIT("gpt2"));
        gguf_writer_str(w, "tokenizer.ggml.pre", SLICE_LIT("gpt-2"));
        gguf_writer_strings(w, "tokenizer.ggml.tokens", slices(v, &v->text, v->end, v->n), v->n);
        gguf_writer_array(w, "tokenizer.ggml.token_type", GGUF_KIND_I32, v->kind, v->n);
        gguf_writer_strings(w, "tokenizer.ggml.merges", slices(v, &merges, merge_end, v->n_merge),
                            v->n_merge);
        gguf_writer_u32(w, "tokenizer.ggml.bos_token_id", end_of_text);
        gguf_writer_u32(w, "tokenizer.ggml.eos_token_id", end_of_text + 2);
        gguf_writer_u32(w, "tokenizer.ggml.padding_token_id", end_of_text);
        gguf_writer_bool(w, "tokenizer.ggml.add_bos_token", false);
        gguf_writer_str(w, "tokenizer.chat_template", SLICE_LIT(g_template));
    } else
        v->text.failed = true;
    strbuf_fini(&merges);
}

/* A working byte-level BPE of n_vocab >= 300 tokens: bytes, pairs, control tokens, filler. */
static mica_status put_dummy_vocab(gguf_writer *w, uint32_t n_vocab) {
    vocab_builder v = {.end = mem_alloc(n_vocab * sizeof *v.end),
                       .kind = mem_alloc(n_vocab * sizeof *v.kind),
                       .s = mem_alloc((n_vocab + (size_t)MERGES_MAX) * sizeof *v.s)};
    bool failed = !v.end || !v.kind || !v.s;
    if (!failed) put_vocab(w, &v, n_vocab);
    failed = failed || v.text.failed;
    strbuf_fini(&v.text);
    mem_free(v.end);
    mem_free(v.kind);
    mem_free(v.s);
    return failed ? MICA_E_NOMEM : MICA_OK;
}

static void copy_vocab(gguf_writer *w, const gguf_file *g) {
    for (size_t i = 0; i < gguf_kv_count(g); i++)
        if (slice_starts(gguf_kv_key(g, i), SLICE_LIT("tokenizer.")))
            gguf_writer_copy(w, gguf_kv_key(g, i), gguf_kv_value(g, i));
}

/* ---- all ---- */

static mica_status put_all(meta *m, const gguf_file *vocab) {
    const synth_shape *s = m->s;
    uint64_t eos =
        256; // of the dummy vocabulary this is a letter pair: only the n-gram table asks, and any id will do
    put_common(m);
    if (s->full_every) put_hybrid(m);
    // The n-gram table starts afresh behind the token that ends a document; files name it as bos, older ones
    // as eos.
    if (vocab && !gguf_value_u64(gguf_find(vocab, "tokenizer.ggml.bos_token_id"), &eos))
        gguf_value_u64(gguf_find(vocab, "tokenizer.ggml.eos_token_id"), &eos);
    if (s->hc) TRY(put_flash(m, (uint32_t)eos));
    if (s->swa_every) TRY(put_gemma(m));
    if (!vocab) return put_dummy_vocab(m->w, s->vocab);
    copy_vocab(m->w, vocab);
    return MICA_OK;
}

mica_status synth_meta_write(gguf_writer *w, const synth_plan *p, const mica_synth_options *o,
                             const gguf_file *vocab, mica_error *err) {
    char name[160];
    meta m = {.w = w, .s = p->s, .arch = synth_arch_name(p->s->arch)};
    snprintf(name, sizeof name, "synth-%s-%s-seed%" PRIu64, o->preset, p->q->name, o->seed);
    gguf_writer_str(w, "general.architecture", slice_of(m.arch));
    gguf_writer_str(w, "general.type", SLICE_LIT("model"));
    gguf_writer_str(w, "general.name", slice_of(name));
    if (p->q->file_type >= 0) gguf_writer_u32(w, "general.file_type", (uint32_t)p->q->file_type);
    gguf_writer_u32(w, "general.quantization_version", 2);
    if (put_all(&m, vocab) == MICA_OK) return MICA_OK;
    return fail(err, MICA_E_NOMEM, "synth: metadata: out of memory");
}
