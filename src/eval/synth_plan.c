/* The tensors of a shape, in file order, with their types and how their values are drawn. One function per
 * family; names and shapes follow docs/MODELS.md, and a test holds them against the trained fixtures.
 *
 * Spread. Every embedding has deviation 1 and what all layers add together has about as much, because
 * matrices that write to the residual stream are scaled by 1/sqrt(2 n_layer). So a state depends on its own
 * token as well as on the others, and routers and heads choose as variously as trained ones; with unit gains
 * throughout, the first attention drowns the token in the mean of its predecessors and every position ends in
 * the same few experts. A tied head would still answer each token with itself: its norm has random signs,
 * which make it a head of its own.
 *
 * Router skew. Real routers prefer some experts; random ones do not, and have no bias to give them a taste.
 * So channel 0 of the residual stream is made a constant: every embedding row has the same large value there,
 * large enough that the norm turns it into sqrt(n_embd) whatever the layers add. Norms in front of mixers and
 * of the head weigh it with 0; norms in front of experts weigh it to 1, and column 0 of the router holds each
 * expert's preference. */
#include "eval/synth_int.h"

#include "base/mem.h"
#include "base/num.h"

#include <stdio.h>

typedef enum role {
    ROLE_PLAIN,
    ROLE_SIDE, // outside attention and ffn: other engines know no .scale for it
    ROLE_EMBD,
    ROLE_HEAD,
    ROLE_VALUE, // takes the mixture's wide type in some layers
    ROLE_DOWN,  // likewise, and writes to the residual stream
    ROLE_OUT,   // writes to the residual stream
    ROLE_TABLE
} role;

/* ---- types ---- */

/* Layers whose value and down projections are worth more bits: the first and last eighth and every third
 * between. */
static bool more_bits(uint32_t il, uint32_t n) {
    return il < n / 8 || il >= 7 * n / 8 || (il - n / 8) % 3 == 2;
}

/* Rows that are not a multiple of 256 take the nearest type with blocks of 32, as quantisers do. */
static gguf_type with_short_blocks(gguf_type t) {
    switch (t) {
    case GGUF_Q4_K: return GGUF_Q5_0;
    case GGUF_Q5_K: return GGUF_Q5_1;
    case GGUF_Q6_K: return GGUF_Q8_0;
    case GGUF_TQ1_0:
    case GGUF_TQ2_0: return GGUF_Q4_0;
    default: return GGUF_IQ4_NL;
    }
}

static gguf_type pick_type(const synth_plan *p, role ro, uint64_t n_col) {
    const synth_quant *q = p->q;
    gguf_type t = q->main;
    if (ro == ROLE_HEAD)
        t = q->head;
    else if (ro == ROLE_EMBD)
        t = q->embd;
    else if (ro == ROLE_TABLE && gguf_type_get((uint32_t)t)->cls == GGUF_CLASS_QUANT && t != GGUF_Q8_0)
        t = GGUF_IQ4_NL;
    else if (ro == ROLE_VALUE || ro == ROLE_DOWN)
        t = more_bits(p->il, p->s->layers) ? q->wide : q->main;
    if (t == GGUF_NVFP4 && (ro == ROLE_SIDE || p->in_mtp))
        t = GGUF_IQ4_NL; // as many bits, no scale beside it
    if (n_col % gguf_type_get((uint32_t)t)->block) t = with_short_blocks(t);
    return n_col % gguf_type_get((uint32_t)t)->block ? GGUF_F16 : t;
}

/* ---- one tensor ---- */

double synth_plan_rms(synth_plan *p, gguf_type type) {
    if (p->rms[type] <= 0) p->rms[type] = synth_block_rms(type);
    return p->rms[type];
}

static synth_tensor *add(synth_plan *p, const char *name) {
    if (p->n == p->cap) {
        size_t cap = p->cap ? 2 * p->cap : 512;
        synth_tensor *grown = mem_realloc(p->t, cap * sizeof *grown);
        if (!grown) p->failed = true;
        if (!grown) return &p->sink;
        p->t = grown;
        p->cap = cap;
    }
    synth_tensor *t = &p->t[p->n++];
    *t = (synth_tensor){.shape = {1, 1, 1, 1}, .token_share = p->in_mtp ? 0 : 1};
    if (p->in_block)
        snprintf(t->name, sizeof t->name, "blk.%u.%s", p->il, name);
    else
        snprintf(t->name, sizeof t->name, "%s", name);
    return t;
}

/* A vector of f32: mean and deviation. */
static synth_tensor *vec(synth_plan *p, const char *name, uint64_t n, double mean, double dev) {
    synth_tensor *t = add(p, name);
    t->type = GGUF_F32;
    t->n_dim = 1;
    t->shape[3] = n;
    t->fill = SYNTH_FILL_GAUSS;
    t->a = mean;
    t->b = dev;
    return t;
}

static void norm(synth_plan *p, const char *name, uint64_t n) {
    vec(p, name, n, 1, 0.05);
}

/* The gain of what one of a layer's two parts adds to the stream. */
static double part_gain(const synth_plan *p) {
    return 1 / sqrt(2.0 * p->s->layers);
}

static bool is_gemma(const synth_plan *p) {
    return p->s->arch == SYNTH_GEMMA3 || p->s->arch == SYNTH_GEMMA4;
}

/* The same for the matrix that does it: 1 where a norm comes behind it. */
static double out_gain(const synth_plan *p) {
    return is_gemma(p) ? 1 : part_gain(p);
}

/* A norm whose result is added to the stream. */
static void norm_out(synth_plan *p, const char *name) {
    double gain = part_gain(p);
    vec(p, name, p->s->embd, gain, 0.05 * gain);
}

/* With skew the stream is mostly channel 0, and the others are 16 times too small after a norm
 * (synth_skew_channel): this makes up for it, and for what the layers have added to them. */
static double skew_gain(const synth_plan *p) {
    double depth = p->in_block ? (double)p->il / p->s->layers : 1;
    return 16 / sqrt(1 + 0.5 * depth);
}

/* A norm over the residual stream, in front of a mixer or of experts. */
static synth_tensor *norm_stream(synth_plan *p, const char *name, uint64_t n, bool to_experts) {
    synth_tensor *t = vec(p, name, n, 1, 0.05);
    if (p->skew <= 0) return t;
    t->a = skew_gain(p);
    t->b = 0.05 * t->a;
    t->has_first = true;
    t->first = to_experts ? 1 / sqrt(p->s->embd) : 0;
    if (to_experts && p->s->hc) t->first *= 2; // the mixer's gate halves it
    return t;
}

/* n_expert matrices, or one when it is 0. `name` ends in .weight. */
static synth_tensor *stack(synth_plan *p, const char *name, role ro, uint64_t n_expert, uint64_t n_row,
                           uint64_t n_col) {
    synth_tensor *t = add(p, name);
    t->type = pick_type(p, ro, n_col);
    t->n_dim = n_expert ? 3 : 2;
    t->shape[1] = n_expert ? n_expert : 1;
    t->shape[2] = n_row;
    t->shape[3] = n_col;
    t->fill = SYNTH_FILL_WEIGHT;
    t->a = (ro == ROLE_OUT || ro == ROLE_DOWN ? out_gain(p) : 1) / sqrt((double)n_col);
    if (t->type != GGUF_NVFP4) return t;
    // Its blocks have scales of little range: an f32 for each matrix carries the rest.
    char scale[GGUF_NAME_MAX];
    snprintf(scale, sizeof scale, "%.*s.scale", (int)(strlen(name) - strlen(".weight")), name);
    vec(p, scale, t->shape[1], t->a / synth_plan_rms(p, GGUF_NVFP4), 0);
    return p->failed ? &p->sink : &p->t[p->n - 2];
}

static synth_tensor *mat(synth_plan *p, const char *name, role ro, uint64_t n_row, uint64_t n_col) {
    return stack(p, name, ro, 0, n_row, n_col);
}

/* A matrix that stays f32: convolutions. */
static void mat_f32(synth_plan *p, const char *name, uint64_t n_row, uint64_t n_col) {
    synth_tensor *t = vec(p, name, n_col, 0, 0);
    t->n_dim = 2;
    t->shape[2] = n_row;
    t->fill = SYNTH_FILL_WEIGHT;
    t->a = 1 / sqrt((double)n_col);
}

static void begin_block(synth_plan *p, uint32_t il) {
    p->il = il;
    p->in_block = true;
    p->in_mtp = il >= p->s->layers;
}

static void end_blocks(synth_plan *p) {
    p->in_block = p->in_mtp = false;
}

/* ---- parts ---- */

/* Logits have a deviation of about 1: an untied head has rows of length 1, a tied one those of the
 * embeddings. */
static void plan_output_norm(synth_plan *p, double embd_std) {
    synth_tensor *t = norm_stream(p, "output_norm.weight", p->s->embd, false);
    if (!p->s->tied) return;
    t->flip = true;
    t->a /= embd_std * sqrt(p->s->embd);
    t->b /= embd_std * sqrt(p->s->embd);
}

static void plan_ends(synth_plan *p) {
    const synth_shape *s = p->s;
    synth_tensor *t = mat(p, "token_embd.weight", s->tied ? ROLE_HEAD : ROLE_EMBD, s->vocab, s->embd);
    double std = is_gemma(p) ? 1 / sqrt(s->embd) : 1; // gemma multiplies embeddings by sqrt(n_embd)
    if (!s->tied) t->token_share = 1.0 / s->vocab;
    t->a = std;
    if (p->skew > 0) {
        t->has_first = true;
        t->first = synth_skew_channel(s);
    }
    if (!s->tied) mat(p, "output.weight", ROLE_HEAD, s->vocab, s->embd);
    if (!s->hc) plan_output_norm(p, std);
}

static void plan_ffn(synth_plan *p, uint64_t n_ff) {
    mat(p, "ffn_gate.weight", ROLE_PLAIN, n_ff, p->s->embd);
    mat(p, "ffn_up.weight", ROLE_PLAIN, n_ff, p->s->embd);
    mat(p, "ffn_down.weight", ROLE_DOWN, p->s->embd, n_ff);
}

static void plan_router(synth_plan *p) {
    synth_tensor *t = vec(p, "ffn_gate_inp.weight", p->s->embd, 0, 0);
    t->n_dim = 2;
    t->shape[2] = p->s->experts;
    t->fill = SYNTH_FILL_ROUTER;
    // Logits of spread 1. With skew of 1.6: normal noise of that size over a bias of -ln(rank) chooses its
    // best few about as often as drawing by Zipf's law does (best 4 of 32 experts, two places: 1.03 against
    // 0.98).
    t->a = (p->skew > 0 ? 1.6 : 1) / sqrt(p->s->embd);
}

static gguf_type plan_expert(synth_plan *p, const char *name, role ro, uint64_t n_row, uint64_t n_col) {
    synth_tensor *t = stack(p, name, ro, p->s->experts, n_row, n_col);
    t->token_share *= (double)p->s->used / p->s->experts;
    return t->type;
}

static void plan_moe(synth_plan *p) {
    const synth_shape *s = p->s;
    plan_router(p);
    plan_expert(p, "ffn_gate_exps.weight", ROLE_PLAIN, s->ff_exp, s->embd);
    plan_expert(p, "ffn_up_exps.weight", ROLE_PLAIN, s->ff_exp, s->embd);
    plan_expert(p, "ffn_down_exps.weight", ROLE_DOWN, s->embd, s->ff_exp);
    if (!s->ff_shexp) return;
    vec(p, "ffn_gate_inp_shexp.weight", s->embd, 0, 1 / sqrt(s->embd));
    mat(p, "ffn_gate_shexp.weight", ROLE_PLAIN, s->ff_shexp, s->embd);
    mat(p, "ffn_up_shexp.weight", ROLE_PLAIN, s->ff_shexp, s->embd);
    mat(p, "ffn_down_shexp.weight", ROLE_DOWN, s->embd, s->ff_shexp);
}

static void plan_any_ffn(synth_plan *p) {
    if (p->s->experts)
        plan_moe(p);
    else
        plan_ffn(p, p->s->ff);
}

/* q_width: 2 where each head's queries are followed by its output gate. */
static void plan_attention(synth_plan *p, uint64_t n_kv, uint64_t d_head, int q_width) {
    const synth_shape *s = p->s;
    mat(p, "attn_q.weight", ROLE_PLAIN, s->heads * d_head * (uint64_t)q_width, s->embd);
    mat(p, "attn_k.weight", ROLE_PLAIN, n_kv * d_head, s->embd);
    mat(p, "attn_v.weight", ROLE_VALUE, n_kv * d_head, s->embd);
    mat(p, "attn_output.weight", ROLE_OUT, s->embd, s->heads * d_head);
    if (s->arch == SYNTH_LLAMA) return;
    norm(p, "attn_q_norm.weight", d_head);
    norm(p, "attn_k_norm.weight", d_head);
}

/* ---- llama, qwen3, qwen3moe ---- */

static void plan_llama(synth_plan *p) {
    const synth_shape *s = p->s;
    plan_ends(p);
    if (s->rope_factor) vec(p, "rope_freqs.weight", s->hd / 2, s->rope_factor, 0)->fill = SYNTH_FILL_LLAMA3;
    for (uint32_t il = 0; il < s->layers; il++) {
        begin_block(p, il);
        norm_stream(p, "attn_norm.weight", s->embd, false);
        plan_attention(p, s->kv, s->hd, 1);
        norm_stream(p, "ffn_norm.weight", s->embd, true);
        plan_any_ffn(p);
    }
}

/* ---- qwen35, qwen35moe, qwen4exp ---- */

static void plan_delta_net(synth_plan *p) {
    const synth_shape *s = p->s;
    uint64_t inner = (uint64_t)s->state * s->vh, conv = 2ull * s->state * s->kh + inner;
    mat(p, "attn_qkv.weight", ROLE_VALUE, conv, s->embd);
    mat(p, "attn_gate.weight", ROLE_PLAIN, inner, s->embd);
    mat_f32(p, "ssm_conv1d.weight", conv, s->conv);
    vec(p, "ssm_dt.bias", s->vh, 0.5, 0.5);
    synth_tensor *a = vec(p, "ssm_a", s->vh, -2.0, -0.02); // -exp(A_log): from slow to fast forgetting
    a->fill = SYNTH_FILL_UNIFORM;
    mat(p, "ssm_beta.weight", ROLE_PLAIN, s->vh, s->embd);
    mat(p, "ssm_alpha.weight", ROLE_PLAIN, s->vh, s->embd);
    norm(p, "ssm_norm.weight", s->state);
    mat(p, "ssm_out.weight", ROLE_OUT, s->embd, inner);
}

static void plan_hyper(synth_plan *p, const char *part, bool to_experts, bool inject) {
    const synth_shape *s = p->s;
    uint64_t wide = (uint64_t)s->hc * s->embd;
    char name[GGUF_NAME_MAX];
    snprintf(name, sizeof name, "%s_norm.weight", part);
    norm_stream(p, name, wide, to_experts);
    snprintf(name, sizeof name, "%s_down.weight", part);
    mat(p, name, ROLE_SIDE, s->hc_rank, wide);
    snprintf(name, sizeof name, "%s_up.weight", part);
    mat(p, name, ROLE_SIDE, wide, s->hc_rank);
    snprintf(name, sizeof name, "%s_inject.weight", part);
    if (inject) mat(p, name, ROLE_SIDE, s->hc, wide);
}

static void plan_table(synth_plan *p) {
    const synth_shape *s = p->s;
    uint64_t size[SYNTH_TABLE_MAX], n_row = (synth_shape_table(s, size) + 255) / 256 * 256;
    synth_tensor *t =
        mat(p, "per_layer_token_embd.weight", ROLE_TABLE, n_row, s->embd / synth_shape_n_table(s));
    t->token_share = (double)synth_shape_n_table(s) / (double)n_row;
}

static void plan_ngram_layer(synth_plan *p) {
    const synth_shape *s = p->s;
    uint64_t wide = (uint64_t)s->hc * s->embd;
    mat(p, "ple_key.weight", ROLE_SIDE, wide, s->embd);
    mat(p, "ple_value.weight", ROLE_SIDE, s->embd, s->embd);
    norm(p, "ple_norm_key.weight", wide);
    norm(p, "ple_norm_query.weight", wide);
    norm(p, "ple_norm_conv.weight", wide);
    mat_f32(p, "ple_conv1d.weight", wide, s->ple_conv);
}

static void plan_indexer(synth_plan *p) {
    const synth_shape *s = p->s;
    mat(p, "indexer.q_proj.weight", ROLE_SIDE, (uint64_t)s->idx_heads * s->idx_dim, s->embd);
    mat(p, "indexer.k_proj.weight", ROLE_SIDE, s->idx_dim, s->embd);
    norm(p, "indexer.q_norm.weight", s->idx_dim);
    norm(p, "indexer.k_norm.weight", s->idx_dim);
}

static void plan_mtp(synth_plan *p) {
    const synth_shape *s = p->s;
    mat(p, "nextn.eh_proj.weight", ROLE_SIDE, s->embd, 2ull * s->embd);
    norm_stream(p, "nextn.enorm.weight", s->embd, false);
    norm_stream(p, "nextn.hnorm.weight", (uint64_t)s->embd * (s->hc ? s->hc : 1), false);
    if (s->hc)
        plan_hyper(p, "nextn.hc_head", false, false);
    else
        norm_stream(p, "nextn.shared_head_norm.weight", s->embd, false);
}

static void plan_hybrid(synth_plan *p) {
    const synth_shape *s = p->s;
    plan_ends(p);
    if (s->hc) plan_hyper(p, "output_hc", false, false);
    if (s->hc) plan_table(p);
    for (uint32_t il = 0; il < s->layers + s->mtp; il++) {
        begin_block(p, il);
        if (s->hc) {
            plan_hyper(p, "hc_attn", false, true);
            plan_hyper(p, "hc_ffn", true, true);
            if (il == s->ple_layer) plan_ngram_layer(p);
        } else {
            norm_stream(p, "attn_norm.weight", s->embd, false);
            norm_stream(p, "post_attention_norm.weight", s->embd, true);
        }
        if (synth_shape_is_full(s, il)) {
            plan_attention(p, s->kv, s->hd, 2);
            if (s->hc && il < s->layers) plan_indexer(p);
        } else
            plan_delta_net(p);
        plan_any_ffn(p);
        if (il >= s->layers) plan_mtp(p);
    }
}

/* ---- gemma3, gemma4 ---- */

static void plan_gemma_attention(synth_plan *p) {
    const synth_shape *s = p->s;
    bool full = synth_shape_is_full(s, p->il), own_kv = p->il < s->layers - s->shared_kv;
    uint64_t d_head = full ? s->hd : s->hd_swa, n_kv = full ? s->kv_full : s->kv;
    mat(p, "attn_q.weight", ROLE_PLAIN, s->heads * d_head, s->embd);
    if (own_kv) mat(p, "attn_k.weight", ROLE_PLAIN, n_kv * d_head, s->embd);
    if (own_kv && !(full && s->k_eq_v)) mat(p, "attn_v.weight", ROLE_VALUE, n_kv * d_head, s->embd);
    mat(p, "attn_output.weight", ROLE_OUT, s->embd, s->heads * d_head);
    norm(p, "attn_q_norm.weight", d_head);
    if (own_kv) norm(p, "attn_k_norm.weight", d_head);
}

/* The router reads the stream itself, over sqrt(n_embd) and times .scale: sqrt(n_embd) there gives logits of
 * spread 1. */
static void plan_gemma_moe(synth_plan *p) {
    const synth_shape *s = p->s;
    double root = sqrt(s->embd);
    plan_router(p);
    synth_tensor *t = vec(p, "ffn_gate_inp.scale", s->embd, root, 0.05 * root);
    if (p->skew > 0) {
        t->a *= skew_gain(p);
        t->b *= skew_gain(p);
        t->has_first = true;
        t->first = 1;
    }
    plan_expert(p, "ffn_gate_up_exps.weight", ROLE_SIDE, 2ull * s->ff_exp, s->embd);
    gguf_type down = plan_expert(p, "ffn_down_exps.weight", ROLE_DOWN, s->embd, s->ff_exp);
    if (down != GGUF_NVFP4) vec(p, "ffn_down_exps.scale", s->experts, 1, 0.05); // else it is there already
    norm_stream(p, "pre_ffw_norm_2.weight", s->embd, false);
    norm(p, "post_ffw_norm_1.weight", s->embd);
    norm(p, "post_ffw_norm_2.weight", s->embd);
}

static void plan_gemma_block(synth_plan *p) {
    const synth_shape *s = p->s;
    norm_stream(p, "attn_norm.weight", s->embd, false);
    plan_gemma_attention(p);
    norm_out(p, "post_attention_norm.weight");
    norm_stream(p, "ffn_norm.weight", s->embd, false);
    plan_ffn(p, synth_shape_ff(s, p->il));
    if (s->experts) plan_gemma_moe(p);
    norm_out(p, "post_ffw_norm.weight");
    if (s->arch == SYNTH_GEMMA4) vec(p, "layer_output_scale.weight", 1, 1, 0);
    if (!s->ple) return;
    mat(p, "inp_gate.weight", ROLE_SIDE, s->ple, s->embd);
    mat(p, "proj.weight", ROLE_SIDE, s->embd, s->ple);
    norm_out(p, "post_norm.weight");
}

static void plan_gemma(synth_plan *p) {
    const synth_shape *s = p->s;
    uint64_t wide = (uint64_t)s->ple * s->layers;
    plan_ends(p);
    if (s->ple) {
        synth_tensor *t = mat(p, "per_layer_token_embd.weight", ROLE_EMBD, s->vocab, wide);
        t->token_share = 1.0 / s->vocab;
        t = mat(p, "per_layer_model_proj.weight", ROLE_SIDE, wide, s->embd);
        t->type = p->q->main == GGUF_BF16 || p->q->main == GGUF_F32 ? p->q->main
                                                                    : GGUF_F16; // as converters keep it
        norm(p, "per_layer_proj_norm.weight", s->ple);
    }
    if (s->arch == SYNTH_GEMMA4) vec(p, "rope_freqs.weight", s->hd / 2, 0, 0)->fill = SYNTH_FILL_GEMMA4;
    for (uint32_t il = 0; il < s->layers; il++) {
        begin_block(p, il);
        plan_gemma_block(p);
    }
}

/* ---- all ---- */

void synth_plan_fini(synth_plan *p) {
    mem_free(p->t);
    p->t = NULL;
    p->n = p->cap = 0;
}

mica_status synth_plan_make(synth_plan *p, mica_error *err) {
    switch (p->s->arch) {
    case SYNTH_LLAMA:
    case SYNTH_QWEN3:
    case SYNTH_QWEN3MOE: plan_llama(p); break;
    case SYNTH_QWEN35:
    case SYNTH_QWEN35MOE:
    case SYNTH_QWEN4EXP: plan_hybrid(p); break;
    case SYNTH_GEMMA3:
    case SYNTH_GEMMA4: plan_gemma(p); break;
    }
    end_blocks(p);
    if (p->failed) return fail(err, MICA_E_NOMEM, "synth: plan of tensors: out of memory");
    for (size_t i = 0; i < p->n; i++) {
        synth_tensor *t = &p->t[i];
        const gguf_type_info *type = gguf_type_get((uint32_t)t->type);
        uint64_t n_row, row_bytes = gguf_row_bytes(type, t->shape[3]);
        if (!num_mul_u64(&n_row, t->shape[1], t->shape[2]) ||
            !num_mul_u64(&t->size_bytes, n_row, row_bytes) || t->shape[3] > SIZE_MAX / 8 ||
            t->size_bytes > INT64_MAX)
            return fail(err, MICA_E_ARG, "synth: tensor '%s': too large", t->name);
    }
    return MICA_OK;
}
