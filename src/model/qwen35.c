/* Qwen3.5, 3.6 and 3.8: gated DeltaNet layers with gated full attention every fourth; dense and mixture of
 * experts. docs/MODELS.md section 4.
 *
 *     x = embd[tok]
 *     h = RMS(x) attn_norm;            x += W_o mixer(h)
 *     h = RMS(x) post_attention_norm;  x += down(silu(gate h) * up h), or experts + sigmoid(w h) shared
 *     logits = output RMS(x) output_norm
 *
 * Full attention: q and its output gate stand together per head in attn_q. The linear mixer: u = W_qkv h,
 * causal convolution, delta rule, RMS norm, times silu(z). Both are mixers.c, shared with qwen4exp. */
#include "model/mixers.h"

typedef struct hybrid_layer {
    const float *attn_norm, *ffn_norm; // [n_embd]
    bool linear;
    full_weights full;
    delta_weights lin;
    ffn_weights ffn;
    sparse_weights moe;
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
    full_shape full;
    delta_shape lin;
    uint32_t n_ff, n_ff_expert, n_ff_shared;
    float expert_scale;
    bool linear[MODEL_LAYER_MAX];
    stream b;
    full_buffers fullb;
    delta_buffers linb;
    quant_act mixed; // [n_row, n_head * d_head] or [n_row, n_v * d_v]
    ffn_buffers fb;
    sparse_buffers sb;
    uint64_t kept_off; // floats into a sequence's state: the trunk's last output, for the draft block
    quant_act
        h; // [n_row + n_seq, n_embd] the trunk's outputs, normed; after them what model_draft_recall put
    quant_act pair;    // [n_row, 2 n_embd] the draft block's input: normed embedding, normed h
    quant_act draft_h; // [n_row, n_embd] the draft block's outputs, normed
    float *embd;       // [n_row, n_embd] embeddings of the draft rows
} hybrid_net;

/* ---- keys ---- */

static mica_status read_keys(model *m, mica_error *err) {
    hybrid_net *n = m->net;
    model_shape *s = &m->shape;
    uint32_t n_block;
    TRY(model_keys_common(m, &n_block, err));
    TRY(model_key_u32_or(m, "nextn_predict_layers", 8, &n->n_mtp, err));
    if (n->n_mtp >= n_block)
        return fail(err, MICA_E_FORMAT, "%s: %u draft blocks of %u blocks", gguf_name(m->file), n->n_mtp,
                    n_block);
    n->n_main = n_block - n->n_mtp;
    TRY(full_shape_read(m, &n->full, err));
    n->ends.eps = n->full.eps;
    TRY(model_key_u32_or(m, "feed_forward_length", 1u << 24, &n->n_ff, err));
    TRY(model_key_u32_or(m, "expert_feed_forward_length", 1u << 24, &n->n_ff_expert, err));
    n->n_ff_shared = n->n_ff_expert;
    TRY(model_key_u32_or(m, "expert_shared_feed_forward_length", 1u << 24, &n->n_ff_shared, err));
    TRY(model_key_f32_or(m, "expert_weights_scale", &n->expert_scale, err));
    if (s->n_expert ? n->n_ff_expert == 0 : n->n_ff == 0)
        return fail(err, MICA_E_FORMAT, "%s: key %s.%sfeed_forward_length: missing", gguf_name(m->file),
                    s->arch, s->n_expert ? "expert_" : "");
    TRY(delta_shape_read(m, &n->lin, err));
    return hybrid_pattern_read(m, n->linear, n->n_main, n_block, err);
}

static mica_status hybrid_shape(model *m, mica_error *err) {
    hybrid_net *n = m->net;
    model_shape *s = &m->shape;
    TRY(read_keys(m, err));
    hybrid_limits(s, &n->full, &n->lin);
    n->layers = mem_calloc(n->n_main + n->n_mtp, sizeof *n->layers);
    n->drafts = mem_calloc(n->n_mtp, sizeof *n->drafts);
    if (!n->layers || !n->drafts) return fail(err, MICA_E_NOMEM, "%s: out of memory", gguf_name(m->file));
    for (uint32_t il = 0; il < s->n_layer; il++) {
        hybrid_layer *l = &n->layers[il];
        l->linear = n->linear[il];
        if (!l->linear) {
            s->kv[il] = full_kv(&n->full);
            continue;
        }
        l->lin.state_off = s->state_floats;
        s->state_floats += delta_shape_floats(&n->lin);
    }
    s->has_draft = n->n_mtp > 0;
    n->kept_off = s->state_floats;
    if (s->has_draft) s->state_floats += s->n_embd;
    return MICA_OK;
}

/* ---- tensors ---- */

static mica_status bind_layer(model *m, hybrid_layer *l, int il, mica_error *err) {
    const hybrid_net *n = m->net;
    TRY(model_vector(m, &l->attn_norm,
                     (tensor_want){il, "attn_norm.weight", 1, m->shape.n_embd, MODEL_NEEDED}, err));
    TRY(model_vector(m, &l->ffn_norm,
                     (tensor_want){il, "post_attention_norm.weight", 1, m->shape.n_embd, MODEL_NEEDED}, err));
    TRY(l->linear ? delta_bind(m, &l->lin, &n->lin, il, err) : full_bind(m, &l->full, &n->full, il, err));
    if (m->shape.n_expert == 0) return ffn_bind(m, &l->ffn, il, n->n_ff, err);
    return sparse_bind(m, &l->moe, il, n->n_ff_expert, n->n_ff_shared, err);
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
    TRY(rope_spec_read(m, &spec, n->full.d_head, err));
    if (spec.n_rot > n->full.d_head)
        return fail(err, MICA_E_FORMAT, "%s: %u rotary dimensions of heads of %u", gguf_name(m->file),
                    spec.n_rot, n->full.d_head);
    TRY(rope_bind(m, &n->rope, &spec, err));
    if (m->shape.n_expert) TRY(model_experts_open(m, m->shape.n_layer, err));
    for (uint32_t il = 0; il < n->n_main + n->n_mtp; il++) TRY(bind_layer(m, &n->layers[il], (int)il, err));
    for (uint32_t i = 0; i < n->n_mtp; i++) TRY(bind_draft(m, &n->drafts[i], (int)(n->n_main + i), err));
    return MICA_OK;
}

/* ---- step ---- */

static void hybrid_carve(model *m, carver *c, uint32_t n_row, uint32_t n_out, uint32_t n_seq) {
    hybrid_net *n = m->net;
    uint32_t n_embd = m->shape.n_embd;
    stream_carve(&n->b, c, n_row, n_out, n_embd);
    rope_carve(&n->rope, c, n_row);
    full_carve(&n->fullb, c, &n->full, n_row);
    delta_carve(&n->linb, c, &n->lin, n_row);
    n->mixed = carve_act(c, n_row, hybrid_mixed_cols(&n->full, &n->lin));
    if (m->drafting) {
        n->h = carve_act(c, n_row + n_seq, n_embd);
        n->pair = carve_act(c, n_row, 2 * n_embd);
        n->draft_h = carve_act(c, n_row, n_embd);
        n->embd = carve_f32(c, (size_t)n_row * n_embd);
    }
    if (m->shape.n_expert)
        sparse_carve(m, &n->sb, c, n_row, n->n_ff_shared);
    else
        ffn_carve(&n->fb, c, n_row, n->n_ff);
}

/* x += W_out mixer(b.a) */
static mica_status mixer(model *m, const hybrid_layer *l, const kv_layer *kv, const model_step *s,
                         mica_error *err) {
    hybrid_net *n = m->net;
    if (l->linear)
        TRY(delta_run(m, &(delta_call){.d = &n->lin, .w = &l->lin, .b = &n->linb, .a = n->b.a, .o = n->mixed},
                      s, err));
    else
        TRY(full_run(m,
                     &(full_call){.f = &n->full,
                                  .w = &l->full,
                                  .b = &n->fullb,
                                  .rope = &n->rope,
                                  .kv = kv,
                                  .a = n->b.a,
                                  .o = n->mixed},
                     s, err));
    return dev_linear(m->d,
                      &(linear_args){.a = n->mixed,
                                     .n_row = s->n_row,
                                     .n_prompt = s->n_prompt,
                                     .n_out = 1,
                                     .out = {{.y = n->b.x,
                                              .w = l->linear ? l->lin.out : l->full.out,
                                              .ld_y = m->shape.n_embd,
                                              .add = 1}}},
                      err);
}

static mica_status layer_forward(model *m, uint32_t il, const model_step *s, mica_error *err) {
    hybrid_net *n = m->net;
    const hybrid_layer *l = &n->layers[il];
    TRY(norm_into(m, &n->b, s, l->attn_norm, n->ends.eps, err));
    TRY(mixer(m, l, &s->kv[il], s, err));
    TRY(norm_into(m, &n->b, s, l->ffn_norm, n->ends.eps, err));
    if (m->shape.n_expert)
        return sparse_run(m,
                          &(sparse_call){.w = &l->moe,
                                         .b = &n->sb,
                                         .a = n->b.a,
                                         .y = n->b.x,
                                         .layer = il,
                                         .scale = n->expert_scale,
                                         .add = 1},
                          s, err);
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
