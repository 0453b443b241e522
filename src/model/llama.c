/* The plain decoder: llama (SmolLM2, Mistral, Mixtral ...), qwen3 and qwen3moe; docs/MODELS.md sections 1
 * to 3.
 *
 *     x = embd[tok]
 *     h = RMS(x) attn_norm;  q, k, v = W h;  [qwen3: q, k = RMS per head];  rope;  x += W_o attention
 *     h = RMS(x) ffn_norm;   x += down(silu(gate h) * up h), or experts
 *     logits = output RMS(x) output_norm
 *
 * llama rotates interleaved pairs, qwen3 split halves: the converter permuted llama's rows, nothing is to be
 * undone. */
#include "model/blocks.h"
#include "model/rope.h"

#include <math.h>
#include <string.h>

typedef struct llama_layer {
    const float *attn_norm, *ffn_norm; // [n_embd]
    const float *q_norm, *k_norm;      // [d_head], qwen3 alone
    weight_ref q, k, v, o;
    ffn_weights ffn;
    moe_weights moe;
} llama_layer;

typedef struct llama_net {
    ends ends;
    llama_layer *layers; // owned, [n_layer]
    rope rope;
    uint32_t n_head, n_head_kv, d_head;
    uint32_t n_ff[MODEL_LAYER_MAX], n_ff_expert;
    float attn_scale, expert_scale;
    bool qwen3;
    rope_kind rope_kind;
    stream b;
    float *q, *k, *v; // [n_row, heads * d_head]
    quant_act o;      // [n_row, n_head * d_head]
    ffn_buffers fb;
    moe_buffers mb;
} llama_net;

static uint32_t n_ff_max(const llama_net *n, uint32_t n_layer) {
    uint32_t most = 1;
    for (uint32_t i = 0; i < n_layer; i++) most = n->n_ff[i] > most ? n->n_ff[i] : most;
    return most;
}

static mica_status llama_shape(model *m, mica_error *err) {
    llama_net *n = m->net;
    model_shape *s = &m->shape;
    uint32_t n_block, d_v;
    n->qwen3 = strcmp(s->arch, "llama") != 0;
    n->rope_kind = n->qwen3 ? ROPE_NEOX : ROPE_NORM;
    TRY(model_keys_common(m, &n_block, err));
    TRY(model_key_u32(m, "attention.head_count", 1, 4096, &n->n_head, err));
    n->n_head_kv = n->n_head;
    TRY(model_key_u32_or(m, "attention.head_count_kv", 4096, &n->n_head_kv, err));
    n->d_head = s->n_embd / n->n_head;
    TRY(model_key_u32_or(m, "attention.key_length", 4096, &n->d_head, err));
    d_v = n->d_head;
    TRY(model_key_u32_or(m, "attention.value_length", 4096, &d_v, err));
    TRY(model_key_eps(m, &n->ends.eps, err));
    TRY(model_key_layers(m, "feed_forward_length", 1u << 24, n_block, n->n_ff, err));
    if (!s->n_expert && n->n_ff[0] == 0)
        return fail(err, MICA_E_FORMAT, "%s: key %s.feed_forward_length: missing or 0", gguf_name(m->file),
                    s->arch);
    n->n_ff_expert = s->n_expert ? n->n_ff[0] : 0; // Mixtral states its experts' width as the plain one
    TRY(model_key_u32_or(m, "expert_feed_forward_length", 1u << 24, &n->n_ff_expert, err));
    TRY(model_key_f32_or(m, "attention.scale", &n->attn_scale, err));
    TRY(model_key_f32_or(m, "expert_weights_scale", &n->expert_scale, err));
    if (n->d_head == 0 || n->d_head % 2 || d_v != n->d_head || n->n_head_kv == 0 || n->n_head % n->n_head_kv)
        return fail(err, MICA_E_FORMAT,
                    "%s: %u query heads, %u key heads, head sizes %u and %u: do not fit together",
                    gguf_name(m->file), n->n_head, n->n_head_kv, n->d_head, d_v);
    if (n->attn_scale == 0.0f) n->attn_scale = 1.0f / sqrtf((float)n->d_head);
    for (uint32_t i = 0; i < n_block; i++)
        s->kv[i] = (kv_spec){.n_head_kv = n->n_head_kv, .d_k = n->d_head, .d_v = n->d_head};
    s->limits.n_head = n->n_head;
    s->limits.d_head = n->d_head;
    n->layers = mem_calloc(n_block, sizeof *n->layers);
    if (!n->layers) return fail(err, MICA_E_NOMEM, "%s: out of memory", gguf_name(m->file));
    return MICA_OK;
}

static mica_status bind_layer(model *m, llama_layer *l, int il, mica_error *err) {
    const llama_net *n = m->net;
    uint32_t n_embd = m->shape.n_embd, n_q = n->n_head * n->d_head, n_kv = n->n_head_kv * n->d_head;
    TRY(model_vector(m, &l->attn_norm, (tensor_want){il, "attn_norm.weight", 1, n_embd, MODEL_NEEDED}, err));
    TRY(model_matrix(m, &l->q, (tensor_want){il, "attn_q.weight", n_q, n_embd, MODEL_NEEDED}, err));
    TRY(model_matrix(m, &l->k, (tensor_want){il, "attn_k.weight", n_kv, n_embd, MODEL_NEEDED}, err));
    TRY(model_matrix(m, &l->v, (tensor_want){il, "attn_v.weight", n_kv, n_embd, MODEL_NEEDED}, err));
    if (n->qwen3) {
        TRY(model_vector(m, &l->q_norm, (tensor_want){il, "attn_q_norm.weight", 1, n->d_head, MODEL_NEEDED},
                         err));
        TRY(model_vector(m, &l->k_norm, (tensor_want){il, "attn_k_norm.weight", 1, n->d_head, MODEL_NEEDED},
                         err));
    }
    TRY(model_matrix(m, &l->o, (tensor_want){il, "attn_output.weight", n_embd, n_q, MODEL_NEEDED}, err));
    TRY(model_vector(m, &l->ffn_norm, (tensor_want){il, "ffn_norm.weight", 1, n_embd, MODEL_NEEDED}, err));
    if (m->shape.n_expert) return model_experts_bind(m, &l->moe, il, n->n_ff_expert, err);
    return ffn_bind(m, &l->ffn, il, n->n_ff[il], err);
}

static mica_status llama_bind(model *m, mica_error *err) {
    llama_net *n = m->net;
    rope_spec spec;
    float factors[2048];
    bool found;
    TRY(ends_bind(m, &n->ends, err));
    TRY(rope_spec_read(m, &spec, n->d_head, err));
    if (spec.n_rot != n->d_head)
        return fail(err, MICA_E_UNSUPPORTED, "%s: %u of %u head dimensions rotate: %s rotates all",
                    gguf_name(m->file), spec.n_rot, n->d_head, m->shape.arch);
    TRY(model_vector_host(
        m, factors, (tensor_want){-1, "rope_freqs.weight", 1, spec.n_rot / 2, MODEL_OPTIONAL}, &found, err));
    if (found) spec.factors = factors;
    TRY(rope_bind(m, &n->rope, &spec, err));
    if (m->shape.n_expert) TRY(model_experts_open(m, m->shape.n_layer, err));
    for (uint32_t il = 0; il < m->shape.n_layer; il++) TRY(bind_layer(m, &n->layers[il], (int)il, err));
    return MICA_OK;
}

static void llama_carve(model *m, carver *c, uint32_t n_row, uint32_t n_out, uint32_t n_seq) {
    (void)n_seq;
    llama_net *n = m->net;
    uint32_t n_q = n->n_head * n->d_head, n_kv = n->n_head_kv * n->d_head;
    stream_carve(&n->b, c, n_row, n_out, m->shape.n_embd);
    rope_carve(&n->rope, c, n_row);
    n->q = carve_f32(c, (size_t)n_row * n_q);
    n->k = carve_f32(c, (size_t)n_row * n_kv);
    n->v = carve_f32(c, (size_t)n_row * n_kv);
    n->o = carve_act(c, n_row, n_q);
    if (m->shape.n_expert)
        moe_carve(&n->mb, c, n_row, m->shape.n_expert, m->shape.n_expert_used);
    else
        ffn_carve(&n->fb, c, n_row, n_ff_max(n, m->shape.n_layer));
}

static mica_status attention(model *m, const llama_layer *l, const kv_layer *kv, const model_step *s,
                             mica_error *err) {
    llama_net *n = m->net;
    uint32_t n_q = n->n_head * n->d_head, n_kv = n->n_head_kv * n->d_head;
    TRY(norm_into(m, &n->b, s, l->attn_norm, n->ends.eps, err));
    TRY(dev_linear(m->d,
                   &(linear_args){.a = n->b.a,
                                  .n_row = s->n_row,
                                  .n_prompt = s->n_prompt,
                                  .n_out = 3,
                                  .out = {{.y = n->q, .w = l->q, .ld_y = n_q},
                                          {.y = n->k, .w = l->k, .ld_y = n_kv},
                                          {.y = n->v, .w = l->v, .ld_y = n_kv}}},
                   err));
    TRY(dev_rope_kv(m->d,
                    &(rope_kv_args){.q = n->q,
                                    .k = n->k,
                                    .v = n->v,
                                    .kv = *kv,
                                    .pages = s->pages[KV_GROUP_FULL],
                                    .rows = s->rows,
                                    .q_norm = l->q_norm,
                                    .k_norm = l->k_norm,
                                    .cs = n->rope.cs,
                                    .ld_q = n_q,
                                    .head_ld_q = n->d_head,
                                    .ld_kv = n_kv,
                                    .n_row = s->n_row,
                                    .n_head = n->n_head,
                                    .n_head_kv = n->n_head_kv,
                                    .d_k = n->d_head,
                                    .d_v = n->d_head,
                                    .n_rot = n->rope.n_rot,
                                    .rope = n->rope_kind,
                                    .eps = n->ends.eps},
                    err));
    TRY(dev_attn(m->d,
                 &(attn_args){.o = n->o,
                              .q = n->q,
                              .kv = *kv,
                              .pages = s->pages[KV_GROUP_FULL],
                              .rows = s->rows,
                              .ld_q = n_q,
                              .head_ld_q = n->d_head,
                              .n_row = s->n_row,
                              .n_head = n->n_head,
                              .n_head_kv = n->n_head_kv,
                              .d_k = n->d_head,
                              .d_v = n->d_head,
                              .scale = n->attn_scale,
                              .want_q = model_wants_q(&l->o)},
                 err));
    return dev_linear(m->d,
                      &(linear_args){.a = n->o,
                                     .n_row = s->n_row,
                                     .n_prompt = s->n_prompt,
                                     .n_out = 1,
                                     .out = {{.y = n->b.x, .w = l->o, .ld_y = m->shape.n_embd, .add = 1}}},
                      err);
}

static mica_status feed_forward(model *m, const llama_layer *l, uint32_t il, const model_step *s,
                                mica_error *err) {
    llama_net *n = m->net;
    TRY(norm_into(m, &n->b, s, l->ffn_norm, n->ends.eps, err));
    if (!m->shape.n_expert)
        return ffn_run(
            m, &(ffn_call){.w = &l->ffn, .b = &n->fb, .a = n->b.a, .y = n->b.x, .kind = GLU_SILU, .add = 1},
            s, err);
    return moe_run(m,
                   &(moe_call){.w = &l->moe,
                               .b = &n->mb,
                               .route = n->b.a,
                               .a = n->b.a,
                               .y = n->b.x,
                               .layer = il,
                               .kind = GLU_SILU,
                               .scale = n->expert_scale,
                               .add = 1},
                   s, err);
}

static mica_status llama_forward(model *m, const model_step *s, mica_error *err) {
    llama_net *n = m->net;
    TRY(ends_embed(m, &n->ends, &n->b, s, 1.0f, err));
    TRY(rope_step(m, &n->rope, s, err));
    for (uint32_t il = 0; il < m->shape.n_layer; il++) {
        TRY(attention(m, &n->layers[il], &s->kv[il], s, err));
        TRY(feed_forward(m, &n->layers[il], il, s, err));
    }
    return ends_head(m, &n->ends, &n->b, s, err);
}

static void llama_fini(model *m) {
    mem_free(((llama_net *)m->net)->layers);
}

const model_family model_family_llama = {
    .archs = {"llama", "qwen3", "qwen3moe"},
    .net_bytes = sizeof(llama_net),
    .shape = llama_shape,
    .bind = llama_bind,
    .carve = llama_carve,
    .forward = llama_forward,
    .fini = llama_fini,
};
