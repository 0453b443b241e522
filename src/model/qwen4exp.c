/* Qwen Flash-Next: the mixers of Qwen3.5 between four residual streams, attention that looks at the best
 * blocks of positions, and one layer that reads a hashed n-gram table. docs/MODELS.md section 7.
 *
 *     R_s = embd[tok] for every stream s
 *     [n-gram layer: R += rows]
 *     m = mix(R);  y = W_o mixer(m);            R_s += b_s y
 *     m = mix(R);  y = experts(m) + shared(m);  R_s += b_s y
 *     logits = output mix(R)
 *
 * mixers.c has the mixers, hyper.c the streams, ngram_layer.c the table; here is their order, the index of
 * the attention layers, and the draft block, which carries streams of its own. */
#include "model/mixers.h"
#include "model/ngram_layer.h"

#include <string.h>

/* Which blocks of positions attention looks at (section 7.5). */
typedef struct index_weights {
    weight_ref q, k;              // [n_head * d, n_embd], [d, n_embd]
    const float *q_norm, *k_norm; // [d]
    uint32_t ratio;               // positions of a block; 0: the layer looks at all
    uint64_t ring_off;            // floats into a sequence's state: [CONV_RING, d]
} index_weights;

typedef struct flash_layer {
    hyper_weights attn_hc, ffn_hc;
    bool linear;
    full_weights full;
    delta_weights lin;
    index_weights index;
    sparse_weights moe;
    uint32_t n_ff_expert;
} flash_layer;

/* What a draft block has beside a layer (section 7.7). */
typedef struct draft_weights {
    weight_ref eh_proj;         // [n_embd, 2 n_embd]: embedding half first
    const float *enorm, *hnorm; // [n_embd], [n_stream * n_embd]
    hyper_weights mix;          // the trunk's own when the block has none
    weight_ref embd, head;      // likewise
} draft_weights;

typedef struct flash_net {
    weight_ref embd, head;
    hyper_weights mix;     // before the head
    flash_layer *layers;   // owned, [n_main + n_mtp]
    draft_weights *drafts; // owned, [n_mtp]
    rope rope;
    uint32_t n_main, n_mtp; // blocks of the trunk, draft blocks after them
    hyper_shape hyper;
    full_shape full;
    delta_shape lin;
    ngram_layer ngram;
    uint32_t index_head, index_d, index_budget; // queries, their size, positions attended to
    uint32_t n_ff_shared;
    float expert_scale;
    uint64_t kept_off; // floats into a sequence's state: the trunk's last streams, for the draft block
    hyper_buffers hb;
    full_buffers fullb;
    delta_buffers linb;
    sparse_buffers sb;
    quant_act m;     // [n_row, n_embd] what a sub-layer reads
    quant_act mixed; // [n_row, n_head * d_head] or [n_row, n_v * d_v]
    float *y;        // [n_row, n_embd] what it gives
    float *iq, *ik;  // [n_row, index_head * index_d], [n_row, index_d]
    int32_t *sel;    // [n_row, ld_sel]
    uint32_t ld_sel;
    float *h; // [n_row + n_seq, n_stream * n_embd] the trunk's streams; then what model_draft_recall put
    float *draft_h; // [n_row, n_stream * n_embd] the draft block's
    quant_act pair; // [n_row * n_stream, 2 n_embd] its input: normed embedding, normed stream
} flash_net;

/* ---- keys ---- */

static mica_status read_index_keys(model *m, const uint32_t *ratio, mica_error *err) {
    flash_net *n = m->net;
    TRY(model_key_u32(m, "attention.indexer.head_count", 1, 64, &n->index_head, err));
    TRY(model_key_u32(m, "attention.indexer.key_length", 2, 1024, &n->index_d, err));
    TRY(model_key_u32(m, "attention.indexer.top_k", 1, 1u << 24, &n->index_budget, err));
    uint32_t most = 1, least = INDEX_RATIO_MAX;
    for (uint32_t il = 0; il < n->n_main; il++) {
        uint32_t r = n->layers[il].linear ? 0 : ratio[il];
        n->layers[il].index.ratio = r;
        if (r == 0) continue;
        if (r > INDEX_RATIO_MAX || KV_PAGE % r || n->index_budget % r)
            return fail(
                err, MICA_E_UNSUPPORTED,
                "%s: layer %u: blocks of %u positions with a budget of %u: not a power of two up to %d",
                gguf_name(m->file), il, r, n->index_budget, INDEX_RATIO_MAX);
        if (r > most) most = r;
        if (r < least) least = r;
    }
    n->ld_sel = n->index_budget + most;
    m->shape.limits.n_index_keep = n->index_budget / least;
    return MICA_OK;
}

static mica_status read_keys(model *m, mica_error *err) {
    flash_net *n = m->net;
    model_shape *s = &m->shape;
    bool linear[MODEL_LAYER_MAX];
    uint32_t n_block, ratio[MODEL_LAYER_MAX] = {0}, n_ff[MODEL_LAYER_MAX] = {0};
    TRY(model_keys_common(m, &n_block, err));
    TRY(model_key_u32_or(m, "nextn_predict_layers", 8, &n->n_mtp, err));
    if (n->n_mtp >= n_block)
        return fail(err, MICA_E_FORMAT, "%s: %u draft blocks of %u blocks", gguf_name(m->file), n->n_mtp,
                    n_block);
    n->n_main = n_block - n->n_mtp;
    n->layers = mem_calloc(n_block, sizeof *n->layers);
    n->drafts = mem_calloc(n->n_mtp, sizeof *n->drafts);
    if (!n->layers || !n->drafts) return fail(err, MICA_E_NOMEM, "%s: out of memory", gguf_name(m->file));
    TRY(full_shape_read(m, &n->full, err));
    TRY(delta_shape_read(m, &n->lin, err));
    TRY(hyper_shape_read(m, &n->hyper, err));
    n->lin.sigmoid = 1;
    TRY(hybrid_pattern_read(m, linear, n->n_main, n_block, err));
    TRY(model_key_layers(m, "attention.compress_ratios", INDEX_RATIO_MAX, n->n_main, ratio, err));
    TRY(model_key_layers(m, "expert_feed_forward_length", 1u << 24, n_block, n_ff, err));
    for (uint32_t il = 0; il < n_block; il++) {
        n->layers[il].linear = linear[il];
        n->layers[il].n_ff_expert = n_ff[il];
        if (n_ff[il] == 0 || s->n_expert == 0)
            return fail(err, MICA_E_FORMAT, "%s: layer %u: %u experts of %u values", gguf_name(m->file), il,
                        s->n_expert, n_ff[il]);
    }
    n->n_ff_shared = n_ff[0];
    TRY(model_key_u32_or(m, "expert_shared_feed_forward_length", 1u << 24, &n->n_ff_shared, err));
    TRY(model_key_f32_or(m, "expert_weights_scale", &n->expert_scale, err));
    return read_index_keys(m, ratio, err);
}

/* Caches and places in a sequence's state. */
static void place_layer(model *m, uint32_t il) {
    flash_net *n = m->net;
    model_shape *s = &m->shape;
    flash_layer *l = &n->layers[il];
    if (l->linear) {
        l->lin.state_off = s->state_floats;
        s->state_floats += delta_shape_floats(&n->lin);
        return;
    }
    s->kv[il] = full_kv(&n->full);
    if (l->index.ratio == 0) return;
    s->kv[il].d_index = n->index_d;
    s->kv[il].index_ratio = l->index.ratio;
    l->index.ring_off = s->state_floats;
    s->state_floats += (uint64_t)CONV_RING * n->index_d;
}

static mica_status flash_shape(model *m, mica_error *err) {
    flash_net *n = m->net;
    model_shape *s = &m->shape;
    TRY(read_keys(m, err));
    if (s->n_embd % 32 != 0)
        return fail(err, MICA_E_UNSUPPORTED, "%s: embedding length %u: not a multiple of 32",
                    gguf_name(m->file), s->n_embd);
    hybrid_limits(s, &n->full, &n->lin);
    for (uint32_t il = 0; il < s->n_layer; il++) place_layer(m, il);
    TRY(ngram_layer_read(m, &n->ngram, &n->hyper, err));
    if (n->ngram.layer >= n->n_main)
        return fail(err, MICA_E_FORMAT, "%s: n-gram layer before block %u of %u", gguf_name(m->file),
                    n->ngram.layer, n->n_main);
    s->has_draft = n->n_mtp > 0;
    n->kept_off = s->state_floats;
    if (s->has_draft) s->state_floats += (uint64_t)n->hyper.n_stream * s->n_embd;
    return MICA_OK;
}

/* ---- tensors ---- */

static mica_status bind_index(model *m, index_weights *w, int il, mica_error *err) {
    const flash_net *n = m->net;
    static const char *const name[4] = {"indexer.q_proj.weight", "indexer.k_proj.weight",
                                        "indexer.q_norm.weight", "indexer.k_norm.weight"};
    uint32_t n_embd = m->shape.n_embd, d = n->index_d;
    if (w->ratio == 0) { // draft blocks have an index too, and look at all: what upstream does
        for (int i = 0; i < 4; i++) model_tensor_ignore(m, il, name[i]);
        return MICA_OK;
    }
    TRY(model_matrix(m, &w->q, (tensor_want){il, name[0], n->index_head * d, n_embd, MODEL_NEEDED}, err));
    TRY(model_matrix(m, &w->k, (tensor_want){il, name[1], d, n_embd, MODEL_NEEDED}, err));
    TRY(model_vector(m, &w->q_norm, (tensor_want){il, name[2], 1, d, MODEL_NEEDED}, err));
    return model_vector(m, &w->k_norm, (tensor_want){il, name[3], 1, d, MODEL_NEEDED}, err);
}

static mica_status bind_layer(model *m, flash_layer *l, int il, mica_error *err) {
    const flash_net *n = m->net;
    TRY(hyper_bind(m, &l->attn_hc, &n->hyper, (hyper_want){il, "hc_attn", true, MODEL_NEEDED}, err));
    TRY(hyper_bind(m, &l->ffn_hc, &n->hyper, (hyper_want){il, "hc_ffn", true, MODEL_NEEDED}, err));
    if (l->linear) {
        TRY(delta_bind(m, &l->lin, &n->lin, il, err));
    } else {
        TRY(full_bind(m, &l->full, &n->full, il, err));
        TRY(bind_index(m, &l->index, il, err));
    }
    return sparse_bind(m, &l->moe, il, l->n_ff_expert, n->n_ff_shared, err);
}

static mica_status bind_draft(model *m, draft_weights *w, int il, mica_error *err) {
    const flash_net *n = m->net;
    uint32_t n_embd = m->shape.n_embd, n_vocab = m->shape.n_vocab, wide = n->hyper.n_stream * n_embd;
    TRY(model_matrix(m, &w->eh_proj,
                     (tensor_want){il, "nextn.eh_proj.weight", n_embd, 2 * n_embd, MODEL_NEEDED}, err));
    TRY(model_vector(m, &w->enorm, (tensor_want){il, "nextn.enorm.weight", 1, n_embd, MODEL_NEEDED}, err));
    TRY(model_vector(m, &w->hnorm, (tensor_want){il, "nextn.hnorm.weight", 1, wide, MODEL_NEEDED}, err));
    TRY(hyper_bind(m, &w->mix, &n->hyper, (hyper_want){il, "nextn.hc_head", false, MODEL_OPTIONAL}, err));
    TRY(model_matrix(m, &w->embd,
                     (tensor_want){il, "nextn.embed_tokens.weight", n_vocab, n_embd, MODEL_OPTIONAL}, err));
    TRY(model_matrix(m, &w->head,
                     (tensor_want){il, "nextn.shared_head_head.weight", n_vocab, n_embd, MODEL_OPTIONAL},
                     err));
    if (!w->mix.down.n_row) w->mix = n->mix;
    if (!w->embd.w) w->embd = n->embd;
    if (!w->head.w) w->head = n->head;
    return MICA_OK;
}

static mica_status bind_rope(model *m, mica_error *err) {
    flash_net *n = m->net;
    rope_spec spec;
    TRY(rope_spec_read(m, &spec, n->full.d_head, err));
    if (spec.n_rot > n->full.d_head || spec.n_rot > n->index_d)
        return fail(err, MICA_E_FORMAT, "%s: %u rotary dimensions of heads of %u and index keys of %u",
                    gguf_name(m->file), spec.n_rot, n->full.d_head, n->index_d);
    return rope_bind(m, &n->rope, &spec, err);
}

static mica_status flash_bind(model *m, mica_error *err) {
    flash_net *n = m->net;
    const model_shape *s = &m->shape;
    TRY(model_matrix(m, &n->embd, (tensor_want){-1, "token_embd.weight", s->n_vocab, s->n_embd, MODEL_NEEDED},
                     err));
    TRY(model_matrix(m, &n->head, (tensor_want){-1, "output.weight", s->n_vocab, s->n_embd, MODEL_OPTIONAL},
                     err));
    if (!n->head.w) n->head = n->embd;
    TRY(hyper_bind(m, &n->mix, &n->hyper, (hyper_want){-1, "output_hc", false, MODEL_NEEDED}, err));
    TRY(bind_rope(m, err));
    TRY(ngram_layer_bind(m, &n->ngram, &n->hyper, err));
    TRY(model_experts_open(m, s->n_layer, err));
    for (uint32_t il = 0; il < s->n_layer; il++) TRY(bind_layer(m, &n->layers[il], (int)il, err));
    for (uint32_t i = 0; i < n->n_mtp; i++) TRY(bind_draft(m, &n->drafts[i], (int)(n->n_main + i), err));
    return MICA_OK;
}

/* ---- step ---- */

static void flash_carve(model *m, carver *c, uint32_t n_row, uint32_t n_out, uint32_t n_seq) {
    flash_net *n = m->net;
    (void)n_out; // the head's input stands where a sub-layer's did
    uint32_t n_embd = m->shape.n_embd, wide = n->hyper.n_stream * n_embd;
    hyper_carve(&n->hb, c, &n->hyper, n_row);
    ngram_layer_carve(&n->ngram, c, &n->hyper, n_row);
    rope_carve(&n->rope, c, n_row);
    full_carve(&n->fullb, c, &n->full, n_row);
    delta_carve(&n->linb, c, &n->lin, n_row);
    sparse_carve(m, &n->sb, c, n_row, n->n_ff_shared);
    n->m = carve_act(c, n_row, n_embd);
    n->mixed = carve_act(c, n_row, hybrid_mixed_cols(&n->full, &n->lin));
    n->y = carve_f32(c, (size_t)n_row * n_embd);
    n->iq = carve_f32(c, (size_t)n_row * n->index_head * n->index_d);
    n->ik = carve_f32(c, (size_t)n_row * n->index_d);
    n->sel = carve(c, (size_t)n_row * n->ld_sel * sizeof(int32_t));
    if (!m->drafting) return;
    n->h = carve_f32(c, (size_t)(n_row + n_seq) * wide);
    n->draft_h = carve_f32(c, (size_t)n_row * wide);
    n->pair = carve_act_dense(c, n_row * n->hyper.n_stream, 2 * n_embd);
}

/* n->m = mix(R) */
static mica_status read_streams(model *m, const hyper_weights *w, const model_step *s, mica_error *err) {
    flash_net *n = m->net;
    return hyper_read(
        m,
        &(hyper_call){
            .w = w, .b = &n->hb, .y = n->m, .n_row = s->n_row, .n_prompt = s->n_prompt, .want_q = 1},
        err);
}

/* n->sel: the positions that each row looks at */
static mica_status select_blocks(model *m, const index_weights *w, const kv_layer *kv, const model_step *s,
                                 mica_error *err) {
    flash_net *n = m->net;
    uint32_t ld = n->index_head * n->index_d;
    TRY(dev_linear(m->d,
                   &(linear_args){.a = n->m,
                                  .n_row = s->n_row,
                                  .n_prompt = s->n_prompt,
                                  .n_out = 2,
                                  .out = {{.y = n->iq, .w = w->q, .ld_y = ld},
                                          {.y = n->ik, .w = w->k, .ld_y = n->index_d}}},
                   err));
    TRY(dev_rope_kv(m->d,
                    &(rope_kv_args){.q = n->iq,
                                    .rows = s->rows,
                                    .q_norm = w->q_norm,
                                    .cs = n->rope.cs,
                                    .ld_q = ld,
                                    .head_ld_q = n->index_d,
                                    .n_row = s->n_row,
                                    .n_head = n->index_head,
                                    .d_k = n->index_d,
                                    .n_rot = n->rope.n_rot,
                                    .rope = ROPE_NEOX,
                                    .eps = n->full.eps},
                    err));
    TRY(dev_index_keys(m->d,
                       &(index_keys_args){.index = kv->index,
                                          .k = n->ik,
                                          .w = w->k_norm,
                                          .ring = s->state + w->ring_off,
                                          .ld_seq = m->shape.state_floats,
                                          .inv_freq = n->rope.inv_freq,
                                          .pages = s->pages[KV_GROUP_FULL],
                                          .runs = s->runs,
                                          .rows = s->rows,
                                          .n_run = s->n_run,
                                          .n_row = s->n_row,
                                          .d = n->index_d,
                                          .n_rot = n->rope.n_rot,
                                          .ratio = w->ratio,
                                          .eps = n->full.eps,
                                          .mscale = n->rope.mscale},
                       err));
    return dev_index_select(m->d,
                            &(index_select_args){.sel = n->sel,
                                                 .q = n->iq,
                                                 .index = kv->index,
                                                 .pages = s->pages[KV_GROUP_FULL],
                                                 .rows = s->rows,
                                                 .ld_sel = n->ld_sel,
                                                 .n_row = s->n_row,
                                                 .n_head = n->index_head,
                                                 .d = n->index_d,
                                                 .ratio = w->ratio,
                                                 .n_keep = n->index_budget / w->ratio},
                            err);
}

/* n->y = W_o mixer(n->m) */
static mica_status mixer(model *m, const flash_layer *l, const kv_layer *kv, const model_step *s,
                         mica_error *err) {
    flash_net *n = m->net;
    if (l->linear) {
        TRY(delta_run(m, &(delta_call){.d = &n->lin, .w = &l->lin, .b = &n->linb, .a = n->m, .o = n->mixed},
                      s, err));
    } else {
        if (l->index.ratio) TRY(select_blocks(m, &l->index, kv, s, err));
        TRY(full_run(m,
                     &(full_call){.f = &n->full,
                                  .w = &l->full,
                                  .b = &n->fullb,
                                  .rope = &n->rope,
                                  .kv = kv,
                                  .sel = l->index.ratio ? n->sel : NULL,
                                  .ld_sel = n->ld_sel,
                                  .a = n->m,
                                  .o = n->mixed},
                     s, err));
    }
    return dev_linear(
        m->d,
        &(linear_args){
            .a = n->mixed,
            .n_row = s->n_row,
            .n_prompt = s->n_prompt,
            .n_out = 1,
            .out = {{.y = n->y, .w = l->linear ? l->lin.out : l->full.out, .ld_y = m->shape.n_embd}}},
        err);
}

static mica_status layer_forward(model *m, uint32_t il, const model_step *s, mica_error *err) {
    flash_net *n = m->net;
    const flash_layer *l = &n->layers[il];
    if (il == n->ngram.layer) TRY(ngram_layer_run(m, &n->ngram, &n->hb, s, err));
    TRY(read_streams(m, &l->attn_hc, s, err));
    TRY(mixer(m, l, &s->kv[il], s, err));
    TRY(hyper_write(m, &n->hb, n->y, s, err));
    TRY(read_streams(m, &l->ffn_hc, s, err));
    TRY(sparse_run(
        m,
        &(sparse_call){
            .w = &l->moe, .b = &n->sb, .a = n->m, .y = n->y, .layer = il, .scale = n->expert_scale},
        s, err));
    return hyper_write(m, &n->hb, n->y, s, err);
}

/* logits = head mix(R) of some rows */
typedef struct head_call {
    const hyper_weights *mix;
    const weight_ref *head;
    const int32_t *rows; // [n]
    float *logits;
    uint32_t n, n_prompt;
} head_call;

static mica_status run_head(model *m, const head_call *c, mica_error *err) {
    flash_net *n = m->net;
    if (c->n == 0) return MICA_OK;
    TRY(hyper_read(m,
                   &(hyper_call){.w = c->mix,
                                 .b = &n->hb,
                                 .row_of = c->rows,
                                 .y = n->m,
                                 .n_row = c->n,
                                 .n_prompt = c->n_prompt,
                                 .want_q = model_wants_q(c->head)},
                   err));
    return dev_linear(m->d,
                      &(linear_args){.a = n->m,
                                     .n_row = c->n,
                                     .n_prompt = c->n_prompt,
                                     .n_out = 1,
                                     .out = {{.y = c->logits, .w = *c->head, .ld_y = m->shape.n_vocab}}},
                      err);
}

static mica_status embed(model *m, const weight_ref *table, const row_info *rows, uint32_t n_row,
                         mica_error *err) {
    flash_net *n = m->net;
    return dev_embed(
        m->d, &(embed_args){.x = n->y, .table = *table, .rows = rows, .n_row = n_row, .scale = 1.0f}, err);
}

static mica_status flash_forward(model *m, const model_step *s, mica_error *err) {
    flash_net *n = m->net;
    uint32_t n_embd = m->shape.n_embd, n_stream = n->hyper.n_stream;
    TRY(embed(m, &n->embd, s->rows, s->n_row, err));
    TRY(dev_spread(m->d,
                   &(spread_args){.x = n->hb.x,
                                  .y = n->y,
                                  .ld_x = n_embd,
                                  .ld_y = n_embd,
                                  .n_row = s->n_row,
                                  .n_group = n_stream,
                                  .n_col = n_embd},
                   err));
    TRY(rope_step(m, &n->rope, s, err));
    for (uint32_t il = 0; il < n->n_main; il++) TRY(layer_forward(m, il, s, err));
    if (m->drafting)
        TRY(dev_copy(m->d, n->h, n->hb.x, (size_t)s->n_row * n_stream * n_embd * sizeof(float), err));
    return run_head(m,
                    &(head_call){.mix = &n->mix,
                                 .head = &n->head,
                                 .rows = s->out_rows,
                                 .logits = s->logits,
                                 .n = s->n_out,
                                 .n_prompt = s->n_out_prompt},
                    err);
}

/* ---- draft block (section 7.7) ---- */

static float *kept_of(model *m, const model_step *s, int32_t seq) {
    flash_net *n = m->net;
    return s->state + (uint64_t)(uint32_t)seq * m->shape.state_floats + n->kept_off;
}

static mica_status flash_draft_keep(model *m, const model_step *s, int32_t seq, uint32_t row,
                                    mica_error *err) {
    flash_net *n = m->net;
    size_t wide = (size_t)n->hyper.n_stream * m->shape.n_embd;
    return dev_copy(m->d, kept_of(m, s, seq), n->h + row * wide, wide * sizeof(float), err);
}

static mica_status flash_draft_recall(model *m, const model_step *s, int32_t seq, mica_error *err) {
    flash_net *n = m->net;
    size_t wide = (size_t)n->hyper.n_stream * m->shape.n_embd, row = (size_t)m->n_row_max + (uint32_t)seq;
    return dev_copy(m->d, n->h + row * wide, kept_of(m, s, seq), wide * sizeof(float), err);
}

/* n->pair, a row for each stream: the normed embedding, then the stream of h, normed. */
static mica_status draft_pairs(model *m, const draft_weights *w, const draft_step *s, mica_error *err) {
    flash_net *n = m->net;
    uint32_t n_embd = m->shape.n_embd, n_stream = n->hyper.n_stream;
    float eps = n->hyper.eps;
    quant_act half = {.x = n->pair.x + n_embd, .ld = n_stream * n->pair.ld};
    TRY(embed(m, &w->embd, s->rows, s->n_row, err));
    TRY(dev_norm(m->d,
                 &(norm_args){.y = n->m,
                              .x = n->y,
                              .w = w->enorm,
                              .ld_x = n_embd,
                              .n_row = s->n_row,
                              .n_col = n_embd,
                              .eps = eps},
                 err));
    TRY(dev_spread(m->d,
                   &(spread_args){.x = n->pair.x,
                                  .y = n->m.x,
                                  .ld_x = n->pair.ld,
                                  .ld_y = n->m.ld,
                                  .n_row = s->n_row,
                                  .n_group = n_stream,
                                  .n_col = n_embd},
                   err));
    return dev_group_norm(m->d,
                          &(group_norm_args){.y = half,
                                             .x = s->chain ? n->draft_h : n->h,
                                             .w = w->hnorm,
                                             .row_of = s->h_row,
                                             .ld_x = n_stream * n_embd,
                                             .ld_group = n->pair.ld,
                                             .n_row = s->n_row,
                                             .n_group = n_stream,
                                             .n_col = n_embd,
                                             .eps = eps},
                          err);
}

/* Row r of the result is row r * n + k of a. */
static quant_act every_nth(const quant_act *a, uint32_t n, uint32_t k) {
    size_t at = (size_t)k * a->ld;
    return (quant_act){a->x + at, a->q + at, a->d + at / 32, a->s + at / 32, a->s16 + at / 16, a->ld * n};
}

/* R_s = eh_proj [normed embedding ; normed h_s] */
static mica_status draft_input(model *m, const draft_weights *w, const draft_step *s, mica_error *err) {
    flash_net *n = m->net;
    uint32_t n_embd = m->shape.n_embd, n_stream = n->hyper.n_stream;
    TRY(draft_pairs(m, w, s, err));
    for (uint32_t is = 0; is < n_stream; is++) {
        quant_act a = every_nth(&n->pair, n_stream, is);
        TRY(dev_quantise(m->d, &(quantise_args){.a = a, .n_row = s->n_row, .n_col = 2 * n_embd}, err));
        TRY(dev_linear(
            m->d,
            &(linear_args){
                .a = a,
                .n_row = s->n_row,
                .n_prompt = s->n_prompt,
                .n_out = 1,
                .out = {{.y = n->hb.x + (size_t)is * n_embd, .w = w->eh_proj, .ld_y = n_stream * n_embd}}},
            err));
    }
    return MICA_OK;
}

static mica_status flash_draft(model *m, const draft_step *s, mica_error *err) {
    flash_net *n = m->net;
    const draft_weights *w = &n->drafts[0];
    uint32_t wide = n->hyper.n_stream * m->shape.n_embd;
    model_step t = {.rows = s->rows, .kv = s->kv, .n_row = s->n_row, .n_prompt = s->n_prompt};
    t.pages[KV_GROUP_FULL] = s->pages;
    TRY(draft_input(m, w, s, err));
    TRY(rope_step(m, &n->rope, &t, err));
    TRY(layer_forward(m, n->n_main, &t, err));
    if (s->n_out == 0) return MICA_OK;
    TRY(dev_spread(m->d,
                   &(spread_args){.x = n->draft_h,
                                  .y = n->hb.x,
                                  .row_of = s->out_rows,
                                  .ld_x = wide,
                                  .ld_y = wide,
                                  .n_row = s->n_out,
                                  .n_group = 1,
                                  .n_col = wide},
                   err));
    return run_head(
        m,
        &(head_call){
            .mix = &w->mix, .head = &w->head, .rows = s->out_rows, .logits = s->logits, .n = s->n_out},
        err);
}

static void flash_fini(model *m) {
    flash_net *n = m->net;
    mem_free(n->layers);
    mem_free(n->drafts);
    ngram_layer_free(&n->ngram);
}

const model_family model_family_qwen4exp = {
    .archs = {"qwen4exp"},
    .net_bytes = sizeof(flash_net),
    .shape = flash_shape,
    .bind = flash_bind,
    .carve = flash_carve,
    .forward = flash_forward,
    .draft = flash_draft,
    .draft_keep = flash_draft_keep,
    .draft_recall = flash_draft_recall,
    .fini = flash_fini,
};
