/* Qwen3.5, 3.6 and 3.8: gated DeltaNet layers with gated full attention every fourth; dense and mixture of
 * experts. docs/MODELS.md section 4.
 *
 *     x = embd[tok]
 *     h = RMS(x) attn_norm;            x += W_o mixer(h)
 *     h = RMS(x) post_attention_norm;  x += down(silu(gate h) * up h), or experts + sigmoid(w h) shared
 * expert logits = output RMS(x) output_norm
 *
 * Full attention: q and its output gate stand together per head in attn_q. The linear mixer: u = W_qkv h,
 * causal convolution, delta rule, RMS norm, times silu(z). Value head h reads key head h mod n_k: the file's
 * order, nothing is to be undone. */
#include "model/blocks.h"
#include "model/rope.h"

#include <math.h>
#include <stdio.h>

typedef struct full_weights {
    weight_ref q, k, v; // q: [n_head * 2 * d_head, n_embd]
    const float *q_norm, *k_norm;
} full_weights;

typedef struct linear_weights {
    weight_ref qkv, z, alpha, beta;
    const float *conv;    // [n_channel, n_tap]
    const float *a;       // [n_v]
    const float *dt_bias; // [n_v]
    const float *norm;    // [d_v]
    uint64_t state_off;   // floats into a sequence's state: the ring, then the delta state
} linear_weights;

typedef struct shared_expert {
    weight_ref gate_in; // [1, n_embd]
    ffn_weights ffn;
} shared_expert;

typedef struct hybrid_layer {
    const float *attn_norm, *ffn_norm; // [n_embd]
    bool linear;
    full_weights full;
    linear_weights lin;
    weight_ref out; // attn_output or ssm_out
    ffn_weights ffn;
    moe_weights moe;
    shared_expert shared;
} hybrid_layer;

/* What a draft block has beside a layer (section 4.5). */
typedef struct draft_weights {
    weight_ref eh_proj;                     // [n_embd, 2 n_embd]: embedding half first
    const float *enorm, *hnorm, *head_norm; // [n_embd]; head_norm is output_norm when the block has none
    weight_ref embd, head;                  // the trunk's own when the block has none
} draft_weights;

typedef struct hybrid_net {
    ends ends;
    hybrid_layer *layers;  // owned, [n_main + n_mtp]
    draft_weights *drafts; // owned, [n_mtp]
    rope rope;
    uint32_t n_main, n_mtp; // blocks of the trunk, draft blocks after them
    uint32_t n_head, n_head_kv, d_head;
    uint32_t n_k, n_v, d_state, d_v, n_tap, n_channel;
    uint32_t n_ff, n_ff_expert, n_ff_shared;
    float expert_scale;
    bool linear[MODEL_LAYER_MAX];
    stream b;
    float *q, *k, *v;     // full attention
    float *u, *y, *z, *o; // linear: input, after the convolution, gate, output of the delta rule
    float *alpha, *beta;  // [n_row, n_v]
    quant_act mixed;      // [n_row, n_head * d_head] or [n_row, n_v * d_v]
    ffn_buffers fb;
    moe_buffers mb;
    float *shared_y, *shared_g; // [n_row, n_embd], [n_row]
    uint64_t kept_off; // floats into a sequence's state: the trunk's last output, for the draft block
    quant_act
        h; // [n_row + n_seq, n_embd] the trunk's outputs, normed; after them what model_draft_recall put
    quant_act pair;    // [n_row, 2 n_embd] the draft block's input: normed embedding, normed h
    quant_act draft_h; // [n_row, n_embd] the draft block's outputs, normed
    float *embd;       // [n_row, n_embd] embeddings of the draft rows
} hybrid_net;

/* ---- keys ---- */

static mica_status read_pattern(model *m, mica_error *err) {
    hybrid_net *n = m->net;
    char key[96];
    const gguf_value *v;
    uint32_t interval = 4;
    TRY(model_key_u32_or(m, "full_attention_interval", MODEL_LAYER_MAX, &interval, err));
    if (interval == 0) return fail(err, MICA_E_FORMAT, "%s: full_attention_interval: 0", gguf_name(m->file));
    snprintf(key, sizeof key, "%s.attention.recurrent_layers", m->shape.arch);
    TRY(gguf_get_array(m->file, key, GGUF_OF_BOOL, GGUF_ANY_COUNT, &v, err));
    for (uint32_t i = 0; i < n->n_main + n->n_mtp; i++) {
        n->linear[i] = i < n->n_main && (i + 1) % interval != 0;
        if (v && i < n->n_main && i < gguf_value_count(v)) gguf_value_at_bool(v, i, &n->linear[i]);
    }
    return MICA_OK;
}

static mica_status read_delta_keys(model *m, mica_error *err) {
    hybrid_net *n = m->net;
    uint32_t inner;
    TRY(model_key_u32(m, "ssm.conv_kernel", 2, 8, &n->n_tap, err));
    TRY(model_key_u32(m, "ssm.state_size", 4, 1024, &n->d_state, err));
    TRY(model_key_u32(m, "ssm.group_count", 1, 4096, &n->n_k, err));
    TRY(model_key_u32(m, "ssm.time_step_rank", 1, 4096, &n->n_v, err));
    TRY(model_key_u32(m, "ssm.inner_size", 1, 1u << 20, &inner, err));
    n->d_v = inner / n->n_v;
    if (inner % n->n_v || n->n_v % n->n_k || n->d_v == 0 || n->d_v > 1024)
        return fail(err, MICA_E_FORMAT,
                    "%s: ssm: %u inner values, %u value heads, %u key heads: do not fit together",
                    gguf_name(m->file), inner, n->n_v, n->n_k);
    n->n_channel = 2 * n->n_k * n->d_state + inner;
    return MICA_OK;
}

static mica_status read_keys(model *m, mica_error *err) {
    hybrid_net *n = m->net;
    model_shape *s = &m->shape;
    uint32_t n_block, d_v;
    TRY(model_keys_common(m, &n_block, err));
    TRY(model_key_u32_or(m, "nextn_predict_layers", 8, &n->n_mtp, err));
    if (n->n_mtp >= n_block)
        return fail(err, MICA_E_FORMAT, "%s: %u draft blocks of %u blocks", gguf_name(m->file), n->n_mtp,
                    n_block);
    n->n_main = n_block - n->n_mtp;
    TRY(model_key_u32(m, "attention.head_count", 1, 4096, &n->n_head, err));
    TRY(model_key_u32(m, "attention.head_count_kv", 1, 4096, &n->n_head_kv, err));
    TRY(model_key_u32(m, "attention.key_length", 2, 1024, &n->d_head, err));
    d_v = n->d_head;
    TRY(model_key_u32_or(m, "attention.value_length", 1024, &d_v, err));
    TRY(model_key_f32(m, "attention.layer_norm_rms_epsilon", &n->ends.eps, err));
    TRY(model_key_u32_or(m, "feed_forward_length", 1u << 24, &n->n_ff, err));
    TRY(model_key_u32_or(m, "expert_feed_forward_length", 1u << 24, &n->n_ff_expert, err));
    n->n_ff_shared = n->n_ff_expert;
    TRY(model_key_u32_or(m, "expert_shared_feed_forward_length", 1u << 24, &n->n_ff_shared, err));
    TRY(model_key_f32_or(m, "expert_weights_scale", &n->expert_scale, err));
    if (d_v != n->d_head || n->n_head % n->n_head_kv)
        return fail(err, MICA_E_FORMAT,
                    "%s: %u query heads, %u key heads, head sizes %u and %u: do not fit together",
                    gguf_name(m->file), n->n_head, n->n_head_kv, n->d_head, d_v);
    if (s->n_expert ? n->n_ff_expert == 0 : n->n_ff == 0)
        return fail(err, MICA_E_FORMAT, "%s: key %s.%sfeed_forward_length: missing", gguf_name(m->file),
                    s->arch, s->n_expert ? "expert_" : "");
    TRY(read_delta_keys(m, err));
    return read_pattern(m, err);
}

static mica_status hybrid_shape(model *m, mica_error *err) {
    hybrid_net *n = m->net;
    model_shape *s = &m->shape;
    TRY(read_keys(m, err));
    uint32_t d = n->d_v > n->d_state ? n->d_v : n->d_state;
    s->limits.n_head = n->n_head;
    s->limits.d_head = d > n->d_head ? d : n->d_head;
    n->layers = mem_calloc(n->n_main + n->n_mtp, sizeof *n->layers);
    n->drafts = mem_calloc(n->n_mtp, sizeof *n->drafts);
    if (!n->layers || !n->drafts) return fail(err, MICA_E_NOMEM, "%s: out of memory", gguf_name(m->file));
    for (uint32_t il = 0; il < s->n_layer; il++) {
        hybrid_layer *l = &n->layers[il];
        l->linear = n->linear[il];
        if (!l->linear) {
            s->kv[il] = (kv_spec){n->n_head_kv, n->d_head, n->d_head, KV_GROUP_FULL};
            continue;
        }
        l->lin.state_off = s->state_floats;
        s->state_floats +=
            (uint64_t)CONV_RING * n->n_channel + delta_state_floats(n->n_k, n->n_v, n->d_state, n->d_v);
    }
    s->has_draft = n->n_mtp > 0;
    n->kept_off = s->state_floats;
    if (s->has_draft) s->state_floats += s->n_embd;
    return MICA_OK;
}

/* ---- tensors ---- */

static mica_status bind_full(model *m, hybrid_layer *l, int il, mica_error *err) {
    const hybrid_net *n = m->net;
    uint32_t n_embd = m->shape.n_embd, n_q = n->n_head * n->d_head, n_kv = n->n_head_kv * n->d_head;
    TRY(model_matrix(m, &l->full.q, (tensor_want){il, "attn_q.weight", 2 * n_q, n_embd, MODEL_NEEDED}, err));
    TRY(model_matrix(m, &l->full.k, (tensor_want){il, "attn_k.weight", n_kv, n_embd, MODEL_NEEDED}, err));
    TRY(model_matrix(m, &l->full.v, (tensor_want){il, "attn_v.weight", n_kv, n_embd, MODEL_NEEDED}, err));
    TRY(model_vector(m, &l->full.q_norm, (tensor_want){il, "attn_q_norm.weight", 1, n->d_head, MODEL_NEEDED},
                     err));
    TRY(model_vector(m, &l->full.k_norm, (tensor_want){il, "attn_k_norm.weight", 1, n->d_head, MODEL_NEEDED},
                     err));
    return model_matrix(m, &l->out, (tensor_want){il, "attn_output.weight", n_embd, n_q, MODEL_NEEDED}, err);
}

static mica_status bind_linear(model *m, hybrid_layer *l, int il, mica_error *err) {
    const hybrid_net *n = m->net;
    uint32_t n_embd = m->shape.n_embd, n_value = n->n_v * n->d_v;
    linear_weights *w = &l->lin;
    TRY(model_matrix(m, &w->qkv, (tensor_want){il, "attn_qkv.weight", n->n_channel, n_embd, MODEL_NEEDED},
                     err));
    TRY(model_matrix(m, &w->z, (tensor_want){il, "attn_gate.weight", n_value, n_embd, MODEL_NEEDED}, err));
    TRY(model_matrix(m, &w->alpha, (tensor_want){il, "ssm_alpha.weight", n->n_v, n_embd, MODEL_NEEDED}, err));
    TRY(model_matrix(m, &w->beta, (tensor_want){il, "ssm_beta.weight", n->n_v, n_embd, MODEL_NEEDED}, err));
    TRY(model_vector(m, &w->conv,
                     (tensor_want){il, "ssm_conv1d.weight", n->n_channel, n->n_tap, MODEL_NEEDED}, err));
    TRY(model_vector(m, &w->a, (tensor_want){il, "ssm_a", 1, n->n_v, MODEL_NEEDED}, err));
    TRY(model_vector(m, &w->dt_bias, (tensor_want){il, "ssm_dt.bias", 1, n->n_v, MODEL_NEEDED}, err));
    TRY(model_vector(m, &w->norm, (tensor_want){il, "ssm_norm.weight", 1, n->d_v, MODEL_NEEDED}, err));
    return model_matrix(m, &l->out, (tensor_want){il, "ssm_out.weight", n_embd, n_value, MODEL_NEEDED}, err);
}

static mica_status bind_shared(model *m, shared_expert *s, int il, mica_error *err) {
    const hybrid_net *n = m->net;
    uint32_t n_embd = m->shape.n_embd, n_ff = n->n_ff_shared;
    TRY(model_matrix(m, &s->gate_in, (tensor_want){il, "ffn_gate_inp_shexp.weight", 1, n_embd, MODEL_NEEDED},
                     err));
    TRY(model_matrix(m, &s->ffn.gate, (tensor_want){il, "ffn_gate_shexp.weight", n_ff, n_embd, MODEL_NEEDED},
                     err));
    TRY(model_matrix(m, &s->ffn.up, (tensor_want){il, "ffn_up_shexp.weight", n_ff, n_embd, MODEL_NEEDED},
                     err));
    return model_matrix(m, &s->ffn.down,
                        (tensor_want){il, "ffn_down_shexp.weight", n_embd, n_ff, MODEL_NEEDED}, err);
}

static mica_status bind_layer(model *m, hybrid_layer *l, int il, mica_error *err) {
    const hybrid_net *n = m->net;
    TRY(model_vector(m, &l->attn_norm,
                     (tensor_want){il, "attn_norm.weight", 1, m->shape.n_embd, MODEL_NEEDED}, err));
    TRY(model_vector(m, &l->ffn_norm,
                     (tensor_want){il, "post_attention_norm.weight", 1, m->shape.n_embd, MODEL_NEEDED}, err));
    TRY(l->linear ? bind_linear(m, l, il, err) : bind_full(m, l, il, err));
    if (m->shape.n_expert == 0) return ffn_bind(m, &l->ffn, il, n->n_ff, err);
    TRY(model_experts_bind(m, &l->moe, il, n->n_ff_expert, err));
    return n->n_ff_shared ? bind_shared(m, &l->shared, il, err) : MICA_OK;
}

static mica_status bind_draft(model *m, draft_weights *w, int il, mica_error *err) {
    const hybrid_net *n = m->net;
    uint32_t n_embd = m->shape.n_embd, n_vocab = m->shape.n_vocab;
    TRY(model_matrix(m, &w->eh_proj,
                     (tensor_want){il, "nextn.eh_proj.weight", n_embd, 2 * n_embd, MODEL_NEEDED}, err));
    TRY(model_vector(m, &w->enorm, (tensor_want){il, "nextn.enorm.weight", 1, n_embd, MODEL_NEEDED}, err));
    TRY(model_vector(m, &w->hnorm, (tensor_want){il, "nextn.hnorm.weight", 1, n_embd, MODEL_NEEDED}, err));
    TRY(model_vector(m, &w->head_norm,
                     (tensor_want){il, "nextn.shared_head_norm.weight", 1, n_embd, MODEL_OPTIONAL}, err));
    TRY(model_matrix(m, &w->embd,
                     (tensor_want){il, "nextn.embed_tokens.weight", n_vocab, n_embd, MODEL_OPTIONAL}, err));
    TRY(model_matrix(m, &w->head,
                     (tensor_want){il, "nextn.shared_head_head.weight", n_vocab, n_embd, MODEL_OPTIONAL},
                     err));
    if (!w->head_norm) w->head_norm = n->ends.output_norm;
    if (!w->embd.w) w->embd = n->ends.embd;
    if (!w->head.w) w->head = n->ends.head;
    return MICA_OK;
}

static mica_status hybrid_bind(model *m, mica_error *err) {
    hybrid_net *n = m->net;
    rope_spec spec;
    TRY(ends_bind(m, &n->ends, err));
    TRY(rope_spec_read(m, &spec, n->d_head, err));
    if (spec.n_rot > n->d_head)
        return fail(err, MICA_E_FORMAT, "%s: %u rotary dimensions of heads of %u", gguf_name(m->file),
                    spec.n_rot, n->d_head);
    TRY(rope_bind(m, &n->rope, &spec, err));
    if (m->shape.n_expert) TRY(model_experts_open(m, m->shape.n_layer, err));
    for (uint32_t il = 0; il < n->n_main + n->n_mtp; il++) TRY(bind_layer(m, &n->layers[il], (int)il, err));
    for (uint32_t i = 0; i < n->n_mtp; i++) TRY(bind_draft(m, &n->drafts[i], (int)(n->n_main + i), err));
    return MICA_OK;
}

/* ---- step ---- */

static void hybrid_carve(model *m, carver *c, uint32_t n_row, uint32_t n_out, uint32_t n_seq) {
    hybrid_net *n = m->net;
    uint32_t n_embd = m->shape.n_embd, n_q = n->n_head * n->d_head, n_kv = n->n_head_kv * n->d_head;
    uint32_t n_value = n->n_v * n->d_v;
    stream_carve(&n->b, c, n_row, n_out, n_embd);
    rope_carve(&n->rope, c, n_row);
    n->q = carve_f32(c, (size_t)n_row * 2 * n_q);
    n->k = carve_f32(c, (size_t)n_row * n_kv);
    n->v = carve_f32(c, (size_t)n_row * n_kv);
    n->u = carve_f32(c, (size_t)n_row * n->n_channel);
    n->y = carve_f32(c, (size_t)n_row * n->n_channel);
    n->z = carve_f32(c, (size_t)n_row * n_value);
    n->o = carve_f32(c, (size_t)n_row * n_value);
    n->alpha = carve_f32(c, (size_t)n_row * n->n_v);
    n->beta = carve_f32(c, (size_t)n_row * n->n_v);
    n->mixed = carve_act(c, n_row, n_q > n_value ? n_q : n_value);
    ffn_carve(&n->fb, c, n_row, m->shape.n_expert ? n->n_ff_shared : n->n_ff);
    if (m->drafting) {
        n->h = carve_act(c, n_row + n_seq, n_embd);
        n->pair = carve_act(c, n_row, 2 * n_embd);
        n->draft_h = carve_act(c, n_row, n_embd);
        n->embd = carve_f32(c, (size_t)n_row * n_embd);
    }
    if (!m->shape.n_expert) return;
    moe_carve(&n->mb, c, n_row, m->shape.n_expert, m->shape.n_expert_used);
    n->shared_y = carve_f32(c, (size_t)n_row * n_embd);
    n->shared_g = carve_f32(c, n_row);
}

/* n->mixed = gated attention of b.a */
static mica_status full_mixer(model *m, const hybrid_layer *l, const kv_layer *kv, const model_step *s,
                              mica_error *err) {
    hybrid_net *n = m->net;
    uint32_t n_q = 2 * n->n_head * n->d_head, n_kv = n->n_head_kv * n->d_head;
    TRY(dev_linear(m->d,
                   &(linear_args){.a = n->b.a,
                                  .n_row = s->n_row,
                                  .n_prompt = s->n_prompt,
                                  .n_out = 3,
                                  .out = {{.y = n->q, .w = l->full.q, .ld_y = n_q},
                                          {.y = n->k, .w = l->full.k, .ld_y = n_kv},
                                          {.y = n->v, .w = l->full.v, .ld_y = n_kv}}},
                   err));
    TRY(dev_rope_kv(m->d,
                    &(rope_kv_args){.q = n->q,
                                    .k = n->k,
                                    .v = n->v,
                                    .kv = *kv,
                                    .pages = s->pages[KV_GROUP_FULL],
                                    .rows = s->rows,
                                    .q_norm = l->full.q_norm,
                                    .k_norm = l->full.k_norm,
                                    .cs = n->rope.cs,
                                    .ld_q = n_q,
                                    .head_ld_q = 2 * n->d_head,
                                    .ld_kv = n_kv,
                                    .n_row = s->n_row,
                                    .n_head = n->n_head,
                                    .n_head_kv = n->n_head_kv,
                                    .d_k = n->d_head,
                                    .d_v = n->d_head,
                                    .n_rot = n->rope.n_rot,
                                    .rope = ROPE_NEOX,
                                    .eps = n->ends.eps},
                    err));
    return dev_attn(m->d,
                    &(attn_args){.o = n->mixed,
                                 .q = n->q,
                                 .gate = n->q + n->d_head,
                                 .kv = *kv,
                                 .pages = s->pages[KV_GROUP_FULL],
                                 .rows = s->rows,
                                 .ld_q = n_q,
                                 .head_ld_q = 2 * n->d_head,
                                 .n_row = s->n_row,
                                 .n_head = n->n_head,
                                 .n_head_kv = n->n_head_kv,
                                 .d_k = n->d_head,
                                 .d_v = n->d_head,
                                 .scale = 1.0f / sqrtf((float)n->d_head),
                                 .want_q = model_wants_q(&l->out)},
                    err);
}

/* n->mixed = gated delta rule of b.a */
static mica_status linear_mixer(model *m, const hybrid_layer *l, const model_step *s, mica_error *err) {
    hybrid_net *n = m->net;
    const linear_weights *w = &l->lin;
    uint32_t n_value = n->n_v * n->d_v;
    float *ring = s->state + w->state_off;
    TRY(dev_linear(m->d,
                   &(linear_args){.a = n->b.a,
                                  .n_row = s->n_row,
                                  .n_prompt = s->n_prompt,
                                  .n_out = 4,
                                  .out = {{.y = n->u, .w = w->qkv, .ld_y = n->n_channel},
                                          {.y = n->z, .w = w->z, .ld_y = n_value},
                                          {.y = n->alpha, .w = w->alpha, .ld_y = n->n_v},
                                          {.y = n->beta, .w = w->beta, .ld_y = n->n_v}}},
                   err));
    TRY(dev_conv(m->d,
                 &(conv_args){.y = n->y,
                              .u = n->u,
                              .w = w->conv,
                              .ring = ring,
                              .ld_seq = m->shape.state_floats,
                              .runs = s->runs,
                              .rows = s->rows,
                              .n_run = s->n_run,
                              .n_row = s->n_row,
                              .n_col = n->n_channel,
                              .n_tap = n->n_tap},
                 err));
    TRY(dev_delta(m->d,
                  &(delta_args){.o = n->o,
                                .qkv = n->y,
                                .alpha = n->alpha,
                                .beta = n->beta,
                                .a = w->a,
                                .dt_bias = w->dt_bias,
                                .state = ring + (size_t)CONV_RING * n->n_channel,
                                .ld_seq = m->shape.state_floats,
                                .runs = s->runs,
                                .n_run = s->n_run,
                                .n_row = s->n_row,
                                .n_k = n->n_k,
                                .n_v = n->n_v,
                                .d_k = n->d_state,
                                .d_v = n->d_v},
                  err));
    return dev_gate_norm(m->d,
                         &(gate_norm_args){.y = n->mixed,
                                           .o = n->o,
                                           .z = n->z,
                                           .w = w->norm,
                                           .n_row = s->n_row,
                                           .n_group = n->n_v,
                                           .n_col = n->d_v,
                                           .eps = n->ends.eps,
                                           .want_q = model_wants_q(&l->out)},
                         err);
}

/* x += W_out mixed */
static mica_status mixer_out(model *m, const hybrid_layer *l, const model_step *s, mica_error *err) {
    hybrid_net *n = m->net;
    return dev_linear(m->d,
                      &(linear_args){.a = n->mixed,
                                     .n_row = s->n_row,
                                     .n_prompt = s->n_prompt,
                                     .n_out = 1,
                                     .out = {{.y = n->b.x, .w = l->out, .ld_y = m->shape.n_embd, .add = 1}}},
                      err);
}

static mica_status sparse_ffn(model *m, const hybrid_layer *l, uint32_t il, const model_step *s,
                              mica_error *err) {
    hybrid_net *n = m->net;
    TRY(moe_run(m,
                &(moe_call){.w = &l->moe,
                            .b = &n->mb,
                            .route = n->b.a,
                            .a = n->b.a,
                            .y = n->b.x,
                            .layer = il,
                            .kind = GLU_SILU,
                            .scale = n->expert_scale,
                            .add = 1},
                s, err));
    if (!n->n_ff_shared) return MICA_OK;
    TRY(ffn_run(
        m, &(ffn_call){.w = &l->shared.ffn, .b = &n->fb, .a = n->b.a, .y = n->shared_y, .kind = GLU_SILU}, s,
        err));
    TRY(dev_linear(m->d,
                   &(linear_args){.a = n->b.a,
                                  .n_row = s->n_row,
                                  .n_prompt = s->n_prompt,
                                  .n_out = 1,
                                  .out = {{.y = n->shared_g, .w = l->shared.gate_in, .ld_y = 1}}},
                   err));
    return dev_gated_add(
        m->d,
        &(gated_add_args){
            .y = n->b.x, .x = n->shared_y, .g = n->shared_g, .n_row = s->n_row, .n_col = m->shape.n_embd},
        err);
}

static mica_status layer_forward(model *m, uint32_t il, const model_step *s, mica_error *err) {
    hybrid_net *n = m->net;
    const hybrid_layer *l = &n->layers[il];
    TRY(norm_into(m, &n->b, s, l->attn_norm, n->ends.eps, err));
    TRY(l->linear ? linear_mixer(m, l, s, err) : full_mixer(m, l, &s->kv[il], s, err));
    TRY(mixer_out(m, l, s, err));
    TRY(norm_into(m, &n->b, s, l->ffn_norm, n->ends.eps, err));
    if (m->shape.n_expert) return sparse_ffn(m, l, il, s, err);
    return ffn_run(
        m, &(ffn_call){.w = &l->ffn, .b = &n->fb, .a = n->b.a, .y = n->b.x, .kind = GLU_SILU, .add = 1}, s,
        err);
}

/* All rows' outputs, after output_norm: what the draft block reads. */
static mica_status keep_outputs(model *m, const model_step *s, mica_error *err) {
    hybrid_net *n = m->net;
    return dev_norm(m->d,
                    &(norm_args){.y = n->h,
                                 .x = n->b.x,
                                 .w = n->ends.output_norm,
                                 .ld_x = m->shape.n_embd,
                                 .n_row = s->n_row,
                                 .n_col = m->shape.n_embd,
                                 .eps = n->ends.eps},
                    err);
}

static mica_status hybrid_forward(model *m, const model_step *s, mica_error *err) {
    hybrid_net *n = m->net;
    TRY(ends_embed(m, &n->ends, &n->b, s, 1.0f, err));
    TRY(rope_step(m, &n->rope, s, err));
    for (uint32_t il = 0; il < n->n_main; il++) TRY(layer_forward(m, il, s, err));
    if (m->drafting) TRY(keep_outputs(m, s, err));
    return ends_head(m, &n->ends, &n->b, s, err);
}

/* ---- draft block (section 4.5) ---- */

static mica_status hybrid_draft_keep(model *m, const model_step *s, int32_t seq, uint32_t row,
                                     mica_error *err) {
    hybrid_net *n = m->net;
    float *kept = s->state + (uint64_t)(uint32_t)seq * m->shape.state_floats + n->kept_off;
    return dev_copy(m->d, kept, n->h.x + (size_t)row * n->h.ld, m->shape.n_embd * sizeof(float), err);
}

static mica_status hybrid_draft_recall(model *m, const model_step *s, int32_t seq, mica_error *err) {
    hybrid_net *n = m->net;
    const float *kept = s->state + (uint64_t)(uint32_t)seq * m->shape.state_floats + n->kept_off;
    size_t row = (size_t)m->n_row_max + (uint32_t)seq;
    return dev_copy(m->d, n->h.x + row * n->h.ld, kept, m->shape.n_embd * sizeof(float), err);
}

/* One half of the pair: columns [at, at + n_embd) of n->pair = RMS(x) w. */
static mica_status pair_half(model *m, uint32_t at, const norm_args *from, mica_error *err) {
    hybrid_net *n = m->net;
    norm_args a = *from;
    a.y = n->pair;
    a.y.x += at;
    a.n_col = m->shape.n_embd;
    a.eps = n->ends.eps;
    return dev_norm(m->d, &a, err);
}

/* x = eh_proj [RMS(embd x) enorm ; RMS(h) hnorm] */
static mica_status draft_input(model *m, const draft_weights *w, const draft_step *s, mica_error *err) {
    hybrid_net *n = m->net;
    uint32_t n_embd = m->shape.n_embd;
    const quant_act *h = s->chain ? &n->draft_h : &n->h;
    TRY(dev_embed(
        m->d,
        &(embed_args){.x = n->embd, .table = w->embd, .rows = s->rows, .n_row = s->n_row, .scale = 1.0f},
        err));
    TRY(pair_half(m, 0, &(norm_args){.x = n->embd, .w = w->enorm, .ld_x = n_embd, .n_row = s->n_row}, err));
    TRY(pair_half(
        m, n_embd,
        &(norm_args){.x = h->x, .w = w->hnorm, .row_of = s->h_row, .ld_x = h->ld, .n_row = s->n_row}, err));
    TRY(dev_quantise(m->d, &(quantise_args){.a = n->pair, .n_row = s->n_row, .n_col = 2 * n_embd}, err));
    return dev_linear(m->d,
                      &(linear_args){.a = n->pair,
                                     .n_row = s->n_row,
                                     .n_prompt = s->n_prompt,
                                     .n_out = 1,
                                     .out = {{.y = n->b.x, .w = w->eh_proj, .ld_y = n_embd}}},
                      err);
}

static mica_status hybrid_draft(model *m, const draft_step *s, mica_error *err) {
    hybrid_net *n = m->net;
    const draft_weights *w = &n->drafts[0];
    model_step t = {.rows = s->rows, .kv = s->kv, .n_row = s->n_row, .n_prompt = s->n_prompt};
    t.pages[KV_GROUP_FULL] = s->pages;
    TRY(draft_input(m, w, s, err));
    TRY(rope_step(m, &n->rope, &t, err));
    TRY(layer_forward(m, n->n_main, &t, err));
    TRY(dev_norm(m->d,
                 &(norm_args){.y = n->draft_h,
                              .x = n->b.x,
                              .w = w->head_norm,
                              .row_of = s->n_out ? s->out_rows : NULL,
                              .ld_x = m->shape.n_embd,
                              .n_row = s->n_out ? s->n_out : s->n_row,
                              .n_col = m->shape.n_embd,
                              .eps = n->ends.eps,
                              .want_q = model_wants_q(&w->head)},
                 err));
    if (s->n_out == 0) return MICA_OK;
    return dev_linear(m->d,
                      &(linear_args){.a = n->draft_h,
                                     .n_row = s->n_out,
                                     .n_out = 1,
                                     .out = {{.y = s->logits, .w = w->head, .ld_y = m->shape.n_vocab}}},
                      err);
}

static void hybrid_fini(model *m) {
    hybrid_net *n = m->net;
    mem_free(n->layers);
    mem_free(n->drafts);
}

const model_family model_family_qwen35 = {
    .archs = {"qwen35", "qwen35moe"},
    .net_bytes = sizeof(hybrid_net),
    .shape = hybrid_shape,
    .bind = hybrid_bind,
    .carve = hybrid_carve,
    .forward = hybrid_forward,
    .draft = hybrid_draft,
    .draft_keep = hybrid_draft_keep,
    .draft_recall = hybrid_draft_recall,
    .fini = hybrid_fini,
};
