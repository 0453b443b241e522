/* Gemma 3 and 4, text: docs/MODELS.md sections 6 and 6.6. Layers with a sliding window and layers that see
 * everything, each kind with its own head size, key heads and rope.
 *
 *     x = sqrt(n_embd) embd[tok]
 *     h = RMS(x) attn_norm;  x += RMS(W_o attention(h)) post_attention_norm
 *     h = RMS(x) ffn_norm;   x += RMS(down(gelu(gate h) * up h)) post_ffw_norm
 *     [E-models: x += RMS(proj(gelu(inp_gate x) * I_l)) post_norm];  [x = x * layer_output_scale]
 *     logits = cap tanh(output RMS(x) output_norm / cap)
 *
 * Gemma 4 norms values without a weight and scales scores by 1; where attn_v is missing the value is the key
 * before its norm. The last layers of E-models have no keys of their own and read the cache of an earlier
 * layer of their kind. In a mixture the dense network stands beside the experts, and the router reads the
 * residual stream itself. */
#include "model/blocks.h"
#include "model/rope.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* What a mixture adds to a layer. */
typedef struct mixture {
    moe_weights w;
    const float *route_norm; // [n_embd], ffn_gate_inp.scale / sqrt(n_embd)
    const float *norm, *dense_post,
        *expert_post; // [n_embd]: pre_ffw_norm_2, post_ffw_norm_1, post_ffw_norm_2
} mixture;

/* What embeddings of its own add to a layer. */
typedef struct layer_input {
    weight_ref gate, proj;  // [n_ple, n_embd], [n_embd, n_ple]
    const float *post_norm; // [n_embd]
} layer_input;

typedef struct gemma_layer {
    const float *attn_norm, *attn_post, *ffn_norm, *ffn_post; // [n_embd]
    const float *q_norm, *k_norm;                             // [d_head]
    const float *out_scale;                                   // [1] or NULL
    weight_ref q, k, v, o;                                    // v.w NULL: the value is the raw key
    ffn_weights ffn;
    mixture moe;
    layer_input ple;
    uint32_t n_head, n_head_kv, d_head, n_ff;
    uint32_t kv_layer; // whose cache it reads: its own index, or an earlier layer's
    bool window, sparse;
} gemma_layer;

typedef struct gemma_net {
    ends ends;
    gemma_layer *layers; // owned, [n_layer]
    rope rope_full, rope_window;
    uint32_t d_full, d_window, n_ff_expert;
    uint32_t n_ple; // values of a layer's own embedding, 0: none
    float attn_scale, cap, expert_scale;
    bool gemma4;
    weight_ref ple_embd, ple_proj; // [n_vocab, n_layer * n_ple], [n_layer * n_ple, n_embd]
    const float *ple_norm;         // [n_ple], over sqrt(2)
    stream b;
    float *q, *k, *v;   // [n_row, heads * d_head] of the widest layer
    float *y, *e;       // [n_row, n_embd] output of a sub-layer; of the experts
    quant_act o;        // [n_row, n_head * d_head]
    quant_act route;    // [n_row, n_embd] input of the router
    quant_act sum;      // [n_row, n_embd] f32 alone: dense output and experts together
    float *ple, *ple_y; // [n_row, n_layer, n_ple] every layer's input; products on the way to it and from it
    quant_act ple_h;    // [n_row, n_ple]
    ffn_buffers fb;
    moe_buffers mb;
} gemma_net;

/* ---- keys ---- */

/* layers[].window from attention.sliding_window_pattern: one flag a layer, or a period whose last layer sees
 * everything. */
static mica_status read_pattern(model *m, mica_error *err) {
    gemma_net *n = m->net;
    model_shape *s = &m->shape;
    char key[96];
    uint32_t period = 6;
    snprintf(key, sizeof key, "%s.attention.sliding_window_pattern", s->arch);
    const gguf_value *v = gguf_find(m->file, key);
    if (!v && n->gemma4) return fail(err, MICA_E_FORMAT, "%s: key %s: missing", gguf_name(m->file), key);
    if (v && gguf_value_kind(v) == GGUF_KIND_ARRAY)
        TRY(gguf_need_array(m->file, key, GGUF_OF_BOOL, s->n_layer, &v, err));
    else
        TRY(model_key_u32_or(m, "attention.sliding_window_pattern", MODEL_LAYER_MAX, &period, err));
    if (period == 0) return fail(err, MICA_E_FORMAT, "%s: key %s: 0", gguf_name(m->file), key);
    for (uint32_t il = 0; il < s->n_layer; il++) {
        bool window = (il + 1) % period != 0;
        if (v && gguf_value_kind(v) == GGUF_KIND_ARRAY) gguf_value_at_bool(v, il, &window);
        n->layers[il].window = window && s->window > 0;
    }
    return MICA_OK;
}

static mica_status read_head_sizes(model *m, mica_error *err) {
    gemma_net *n = m->net;
    uint32_t v_full, v_window;
    TRY(model_key_u32(m, "attention.key_length", 2, 1024, &n->d_full, err));
    v_full = n->d_full;
    TRY(model_key_u32_or(m, "attention.value_length", 1024, &v_full, err));
    n->d_window = n->d_full;
    TRY(model_key_u32_or(m, "attention.key_length_swa", 1024, &n->d_window, err));
    v_window = n->d_window;
    TRY(model_key_u32_or(m, "attention.value_length_swa", 1024, &v_window, err));
    if (v_full != n->d_full || v_window != n->d_window || n->d_window < 2)
        return fail(err, MICA_E_UNSUPPORTED,
                    "%s: head sizes %u and %u, %u and %u with a window: keys and values differ",
                    gguf_name(m->file), n->d_full, v_full, n->d_window, v_window);
    return MICA_OK;
}

static mica_status read_layers(model *m, mica_error *err) {
    gemma_net *n = m->net;
    model_shape *s = &m->shape;
    uint32_t head[MODEL_LAYER_MAX] = {0}, head_kv[MODEL_LAYER_MAX], n_ff[MODEL_LAYER_MAX] = {0};
    TRY(model_key_layers(m, "attention.head_count", 4096, s->n_layer, head, err));
    memcpy(head_kv, head, sizeof head);
    TRY(model_key_layers(m, "attention.head_count_kv", 4096, s->n_layer, head_kv, err));
    TRY(model_key_layers(m, "feed_forward_length", 1u << 24, s->n_layer, n_ff, err));
    TRY(read_pattern(m, err));
    for (uint32_t il = 0; il < s->n_layer; il++) {
        gemma_layer *l = &n->layers[il];
        l->n_head = head[il];
        l->n_head_kv = head_kv[il];
        l->d_head = l->window ? n->d_window : n->d_full;
        l->n_ff = n_ff[il];
        if (l->n_ff == 0)
            return fail(err, MICA_E_FORMAT, "%s: key %s.feed_forward_length: missing or 0",
                        gguf_name(m->file), s->arch);
        if (l->n_head == 0 || l->n_head_kv == 0 || l->n_head % l->n_head_kv)
            return fail(err, MICA_E_FORMAT, "%s: layer %u: %u query heads, %u key heads: do not fit together",
                        gguf_name(m->file), il, l->n_head, l->n_head_kv);
        if (l->n_head > s->limits.n_head) s->limits.n_head = l->n_head;
        if (l->d_head > s->limits.d_head) s->limits.d_head = l->d_head;
    }
    return MICA_OK;
}

/* The last n_shared layers read the cache of the last layer of their kind before them. */
static mica_status read_sharing(model *m, mica_error *err) {
    gemma_net *n = m->net;
    model_shape *s = &m->shape;
    uint32_t n_shared = 0, source[2] = {s->n_layer, s->n_layer}; // by kv_group
    TRY(model_key_u32_or(m, "attention.shared_kv_layers", s->n_layer, &n_shared, err));
    for (uint32_t il = 0; il < s->n_layer; il++) {
        gemma_layer *l = &n->layers[il];
        kv_group g = l->window ? KV_GROUP_WINDOW : KV_GROUP_FULL;
        l->kv_layer = il;
        if (il < s->n_layer - n_shared) {
            s->kv[il] = (kv_spec){.n_head_kv = l->n_head_kv, .d_k = l->d_head, .d_v = l->d_head, .group = g};
            source[g] = il;
            continue;
        }
        if (source[g] == s->n_layer || n->layers[source[g]].n_head_kv != l->n_head_kv)
            return fail(err, MICA_E_FORMAT,
                        "%s: layer %u: no earlier layer of its kind has the cache it shares",
                        gguf_name(m->file), il);
        l->kv_layer = source[g];
    }
    return MICA_OK;
}

/* Gemma 3 divides by the head size, but the largest of the family by n_embd / n_head, which no key says. */
static float attention_scale(const model *m) {
    const gemma_net *n = m->net;
    if (n->gemma4) return 1.0f;
    bool largest = m->shape.n_layer == 62;
    return 1.0f / sqrtf(largest ? (float)(m->shape.n_embd / n->layers[0].n_head) : (float)n->d_full);
}

static mica_status gemma_shape(model *m, mica_error *err) {
    gemma_net *n = m->net;
    model_shape *s = &m->shape;
    uint32_t n_block;
    n->gemma4 = strcmp(s->arch, "gemma4") == 0;
    n->cap = n->gemma4 ? 30.0f : 0.0f;
    TRY(model_keys_common(m, &n_block, err));
    if (s->n_embd % 64 != 0) // the stream is read by products and by norms alike, in rows of 64
        return fail(err, MICA_E_UNSUPPORTED, "%s: embedding length %u: not a multiple of 64",
                    gguf_name(m->file), s->n_embd);
    n->layers = mem_calloc(n_block, sizeof *n->layers);
    if (!n->layers) return fail(err, MICA_E_NOMEM, "%s: out of memory", gguf_name(m->file));
    if (n->gemma4)
        TRY(model_key_u32(m, "attention.sliding_window", 1, 1u << 24, &s->window, err));
    else
        TRY(model_key_u32_or(m, "attention.sliding_window", 1u << 24, &s->window, err));
    TRY(model_key_eps(m, &n->ends.eps, err));
    TRY(model_key_f32_or(m, "final_logit_softcapping", &n->cap, err));
    TRY(model_key_u32_or(m, "embedding_length_per_layer_input", 1u << 16, &n->n_ple, err));
    TRY(model_key_f32_or(m, "expert_weights_scale", &n->expert_scale, err));
    if (s->n_expert) TRY(model_key_u32(m, "expert_feed_forward_length", 1, 1u << 24, &n->n_ff_expert, err));
    TRY(read_head_sizes(m, err));
    TRY(read_layers(m, err));
    TRY(read_sharing(m, err));
    n->attn_scale = attention_scale(m);
    return model_key_f32_or(m, "attention.scale", &n->attn_scale, err);
}

/* ---- tensors ---- */

/* Layers with a window have their own base and size, and neither scaling nor factors. */
static mica_status bind_ropes(model *m, mica_error *err) {
    gemma_net *n = m->net;
    rope_spec full,
        window = {.n_rot = n->d_window, .base = 10000.0f, .freq_scale = 1.0f, .attn_factor = 1.0f};
    float factors[1024];
    bool found = true;
    TRY(rope_spec_read(m, &full, n->d_full, err));
    TRY(model_key_u32_or(m, "rope.dimension_count_swa", 1024, &window.n_rot, err));
    TRY(model_key_f32_or(m, "rope.freq_base_swa", &window.base, err));
    if (!(window.base > 0.0f))
        return fail(err, MICA_E_FORMAT, "%s: key 'rope.freq_base_swa': %g is not above 0", gguf_name(m->file),
                    (double)window.base);
    if (full.n_rot > n->d_full || window.n_rot > n->d_window || window.n_rot % 2 || window.n_rot == 0)
        return fail(err, MICA_E_FORMAT, "%s: rope: %u and %u rotary dimensions of heads of %u and %u",
                    gguf_name(m->file), full.n_rot, window.n_rot, n->d_full, n->d_window);
    if (n->gemma4)
        TRY(model_vector_host(m, factors,
                              (tensor_want){-1, "rope_freqs.weight", 1, full.n_rot / 2, MODEL_OPTIONAL},
                              &found, err));
    if (!found) return fail(err, MICA_E_FORMAT, "%s: tensor rope_freqs.weight: missing", gguf_name(m->file));
    if (n->gemma4) full.factors = factors;
    TRY(rope_bind(m, &n->rope_full, &full, err));
    return rope_bind(m, &n->rope_window, &window, err);
}

static mica_status bind_attention(model *m, gemma_layer *l, int il, mica_error *err) {
    const gemma_net *n = m->net;
    uint32_t n_embd = m->shape.n_embd, n_q = l->n_head * l->d_head, n_kv = l->n_head_kv * l->d_head;
    TRY(model_vector(m, &l->attn_norm, (tensor_want){il, "attn_norm.weight", 1, n_embd, MODEL_NEEDED}, err));
    TRY(model_vector(m, &l->attn_post,
                     (tensor_want){il, "post_attention_norm.weight", 1, n_embd, MODEL_NEEDED}, err));
    TRY(model_matrix(m, &l->q, (tensor_want){il, "attn_q.weight", n_q, n_embd, MODEL_NEEDED}, err));
    TRY(model_vector(m, &l->q_norm, (tensor_want){il, "attn_q_norm.weight", 1, l->d_head, MODEL_NEEDED},
                     err));
    TRY(model_matrix(m, &l->o, (tensor_want){il, "attn_output.weight", n_embd, n_q, MODEL_NEEDED}, err));
    if (l->kv_layer != (uint32_t)il) { // some files keep tensors nobody reads
        model_tensor_ignore(m, il, "attn_k.weight");
        model_tensor_ignore(m, il, "attn_v.weight");
        model_tensor_ignore(m, il, "attn_k_norm.weight");
        return MICA_OK;
    }
    TRY(model_matrix(m, &l->k, (tensor_want){il, "attn_k.weight", n_kv, n_embd, MODEL_NEEDED}, err));
    TRY(model_vector(m, &l->k_norm, (tensor_want){il, "attn_k_norm.weight", 1, l->d_head, MODEL_NEEDED},
                     err));
    model_need v = n->gemma4 && !l->window ? MODEL_OPTIONAL : MODEL_NEEDED;
    return model_matrix(m, &l->v, (tensor_want){il, "attn_v.weight", n_kv, n_embd, v}, err);
}

static mica_status bind_mixture(model *m, gemma_layer *l, int il, mica_error *err) {
    const gemma_net *n = m->net;
    uint32_t n_embd = m->shape.n_embd;
    mixture *x = &l->moe;
    float root = 1.0f / sqrtf((float)n_embd);
    TRY(model_vector_scaled(m, &x->route_norm,
                            (tensor_want){il, "ffn_gate_inp.scale", 1, n_embd, MODEL_NEEDED}, root, err));
    TRY(model_vector(m, &x->norm, (tensor_want){il, "pre_ffw_norm_2.weight", 1, n_embd, MODEL_NEEDED}, err));
    TRY(model_vector(m, &x->dense_post, (tensor_want){il, "post_ffw_norm_1.weight", 1, n_embd, MODEL_NEEDED},
                     err));
    TRY(model_vector(m, &x->expert_post, (tensor_want){il, "post_ffw_norm_2.weight", 1, n_embd, MODEL_NEEDED},
                     err));
    return model_experts_bind(m, &x->w, il, n->n_ff_expert, err);
}

static mica_status bind_layer(model *m, gemma_layer *l, int il, mica_error *err) {
    const gemma_net *n = m->net;
    uint32_t n_embd = m->shape.n_embd;
    TRY(bind_attention(m, l, il, err));
    TRY(model_vector(m, &l->ffn_norm, (tensor_want){il, "ffn_norm.weight", 1, n_embd, MODEL_NEEDED}, err));
    TRY(model_vector(m, &l->ffn_post, (tensor_want){il, "post_ffw_norm.weight", 1, n_embd, MODEL_NEEDED},
                     err));
    TRY(ffn_bind(m, &l->ffn, il, l->n_ff, err));
    if (!n->gemma4) return MICA_OK;
    TRY(model_vector(m, &l->out_scale, (tensor_want){il, "layer_output_scale.weight", 1, 1, MODEL_OPTIONAL},
                     err));
    l->sparse = m->shape.n_expert && model_tensor_exists(m, il, "ffn_gate_inp.weight");
    if (l->sparse) TRY(bind_mixture(m, l, il, err));
    if (n->n_ple == 0) return MICA_OK;
    TRY(model_matrix(m, &l->ple.gate, (tensor_want){il, "inp_gate.weight", n->n_ple, n_embd, MODEL_NEEDED},
                     err));
    TRY(model_matrix(m, &l->ple.proj, (tensor_want){il, "proj.weight", n_embd, n->n_ple, MODEL_NEEDED}, err));
    return model_vector(m, &l->ple.post_norm, (tensor_want){il, "post_norm.weight", 1, n_embd, MODEL_NEEDED},
                        err);
}

static mica_status bind_layer_inputs(model *m, mica_error *err) {
    gemma_net *n = m->net;
    const model_shape *s = &m->shape;
    uint32_t wide = n->n_ple * s->n_layer;
    TRY(model_matrix(m, &n->ple_embd,
                     (tensor_want){-1, "per_layer_token_embd.weight", s->n_vocab, wide, MODEL_NEEDED}, err));
    TRY(model_matrix(m, &n->ple_proj,
                     (tensor_want){-1, "per_layer_model_proj.weight", wide, s->n_embd, MODEL_NEEDED}, err));
    return model_vector_scaled(m, &n->ple_norm,
                               (tensor_want){-1, "per_layer_proj_norm.weight", 1, n->n_ple, MODEL_NEEDED},
                               sqrtf(0.5f), err);
}

static mica_status gemma_bind(model *m, mica_error *err) {
    gemma_net *n = m->net;
    TRY(ends_bind(m, &n->ends, err));
    TRY(bind_ropes(m, err));
    if (n->n_ple) TRY(bind_layer_inputs(m, err));
    if (m->shape.n_expert) TRY(model_experts_open(m, m->shape.n_layer, err));
    for (uint32_t il = 0; il < m->shape.n_layer; il++) TRY(bind_layer(m, &n->layers[il], (int)il, err));
    return MICA_OK;
}

/* ---- step ---- */

static void gemma_carve(model *m, carver *c, uint32_t n_row, uint32_t n_out, uint32_t n_seq) {
    (void)n_seq;
    gemma_net *n = m->net;
    const model_shape *s = &m->shape;
    uint32_t n_q = 1, n_kv = 1, n_ff = 1;
    for (uint32_t il = 0; il < s->n_layer; il++) {
        const gemma_layer *l = &n->layers[il];
        if (l->n_head * l->d_head > n_q) n_q = l->n_head * l->d_head;
        if (l->n_head_kv * l->d_head > n_kv) n_kv = l->n_head_kv * l->d_head;
        if (l->n_ff > n_ff) n_ff = l->n_ff;
    }
    stream_carve(&n->b, c, n_row, n_out, s->n_embd);
    rope_carve(&n->rope_full, c, n_row);
    rope_carve(&n->rope_window, c, n_row);
    n->q = carve_f32(c, (size_t)n_row * n_q);
    n->k = carve_f32(c, (size_t)n_row * n_kv);
    n->v = carve_f32(c, (size_t)n_row * n_kv);
    n->o = carve_act(c, n_row, n_q);
    n->y = carve_f32(c, (size_t)n_row * s->n_embd);
    ffn_carve(&n->fb, c, n_row, n_ff);
    if (n->n_ple) {
        n->ple = carve_f32(c, (size_t)n_row * s->n_layer * n->n_ple);
        n->ple_y = carve_f32(c, (size_t)n_row * s->n_layer * n->n_ple);
        n->ple_h = carve_act(c, n_row, n->n_ple);
    }
    if (s->n_expert == 0) return;
    n->e = carve_f32(c, (size_t)n_row * s->n_embd);
    n->sum = (quant_act){.x = carve_f32(c, (size_t)n_row * s->n_embd), .ld = s->n_embd};
    n->route = carve_act(c, n_row, s->n_embd);
    moe_carve(&n->mb, c, n_row, s->n_expert, s->n_expert_used);
}

/* x += RMS(y) * w */
static mica_status add_normed(model *m, float *x, const float *y, const float *w, const model_step *s,
                              mica_error *err) {
    const gemma_net *n = m->net;
    return dev_add_norm(
        m->d,
        &(add_norm_args){
            .x = x, .y = y, .w = w, .n_row = s->n_row, .n_col = m->shape.n_embd, .eps = n->ends.eps},
        err);
}

/* q, and k and v where the layer has its own */
static mica_status project_qkv(model *m, const gemma_layer *l, bool own, const model_step *s,
                               mica_error *err) {
    gemma_net *n = m->net;
    uint32_t n_q = l->n_head * l->d_head, n_kv = l->n_head_kv * l->d_head;
    bool v = own && l->v.w;
    TRY(dev_linear(m->d,
                   &(linear_args){.a = n->b.a,
                                  .n_row = s->n_row,
                                  .n_prompt = s->n_prompt,
                                  .n_out = own ? v ? 3 : 2 : 1,
                                  .out = {{.y = n->q, .w = l->q, .ld_y = n_q},
                                          {.y = n->k, .w = l->k, .ld_y = n_kv},
                                          {.y = n->v, .w = l->v, .ld_y = n_kv}}},
                   err));
    if (!own || v) return MICA_OK;
    return dev_copy(m->d, n->v, n->k, (size_t)s->n_row * n_kv * sizeof(float), err);
}

static mica_status attention(model *m, const gemma_layer *l, uint32_t il, const model_step *s,
                             mica_error *err) {
    gemma_net *n = m->net;
    bool own = l->kv_layer == il;
    const rope *r = l->window ? &n->rope_window : &n->rope_full;
    kv_pages pages = s->pages[l->window ? KV_GROUP_WINDOW : KV_GROUP_FULL];
    uint32_t n_q = l->n_head * l->d_head, n_kv = l->n_head_kv * l->d_head;
    TRY(norm_into(m, &n->b, s, l->attn_norm, n->ends.eps, err));
    TRY(project_qkv(m, l, own, s, err));
    TRY(dev_rope_kv(m->d,
                    &(rope_kv_args){.q = n->q,
                                    .k = own ? n->k : NULL,
                                    .v = own ? n->v : NULL,
                                    .kv = s->kv[l->kv_layer],
                                    .pages = pages,
                                    .rows = s->rows,
                                    .q_norm = l->q_norm,
                                    .k_norm = l->k_norm,
                                    .cs = r->cs,
                                    .ld_q = n_q,
                                    .head_ld_q = l->d_head,
                                    .ld_kv = n_kv,
                                    .n_row = s->n_row,
                                    .n_head = l->n_head,
                                    .n_head_kv = l->n_head_kv,
                                    .d_k = l->d_head,
                                    .d_v = l->d_head,
                                    .n_rot = r->n_rot,
                                    .rope = ROPE_NEOX,
                                    .v_norm = n->gemma4,
                                    .eps = n->ends.eps},
                    err));
    TRY(dev_attn(m->d,
                 &(attn_args){.o = n->o,
                              .q = n->q,
                              .kv = s->kv[l->kv_layer],
                              .pages = pages,
                              .rows = s->rows,
                              .ld_q = n_q,
                              .head_ld_q = l->d_head,
                              .n_row = s->n_row,
                              .n_head = l->n_head,
                              .n_head_kv = l->n_head_kv,
                              .d_k = l->d_head,
                              .d_v = l->d_head,
                              .window = l->window ? m->shape.window : 0,
                              .scale = n->attn_scale,
                              .want_q = model_wants_q(&l->o)},
                 err));
    TRY(dev_linear(m->d,
                   &(linear_args){.a = n->o,
                                  .n_row = s->n_row,
                                  .n_prompt = s->n_prompt,
                                  .n_out = 1,
                                  .out = {{.y = n->y, .w = l->o, .ld_y = m->shape.n_embd}}},
                   err));
    return add_normed(m, n->b.x, n->y, l->attn_post, s, err);
}

/* sum = RMS(y) dense_post + RMS(experts) expert_post, y the dense network's output */
static mica_status add_experts(model *m, const mixture *x, uint32_t il, const model_step *s,
                               mica_error *err) {
    gemma_net *n = m->net;
    norm_args norm = {
        .ld_x = m->shape.n_embd, .n_row = s->n_row, .n_col = m->shape.n_embd, .eps = n->ends.eps};
    norm_args route = norm;
    route.y = n->route;
    route.x = n->b.x;
    route.w = x->route_norm;
    route.want_q = model_wants_q(&x->w.router);
    TRY(dev_norm(m->d, &route, err));
    TRY(norm_into(m, &n->b, s, x->norm, n->ends.eps, err));
    TRY(moe_run(m,
                &(moe_call){.w = &x->w,
                            .b = &n->mb,
                            .route = n->route,
                            .a = n->b.a,
                            .y = n->e,
                            .layer = il,
                            .kind = GLU_GELU,
                            .scale = n->expert_scale},
                s, err));
    norm.y = n->sum;
    norm.x = n->y;
    norm.w = x->dense_post;
    TRY(dev_norm(m->d, &norm, err));
    return add_normed(m, n->sum.x, n->e, x->expert_post, s, err);
}

static mica_status feed_forward(model *m, const gemma_layer *l, uint32_t il, const model_step *s,
                                mica_error *err) {
    gemma_net *n = m->net;
    TRY(norm_into(m, &n->b, s, l->ffn_norm, n->ends.eps, err));
    TRY(ffn_run(m, &(ffn_call){.w = &l->ffn, .b = &n->fb, .a = n->b.a, .y = n->y, .kind = GLU_GELU}, s, err));
    if (l->sparse) TRY(add_experts(m, &l->moe, il, s, err));
    return add_normed(m, n->b.x, l->sparse ? n->sum.x : n->y, l->ffn_post, s, err);
}

/* The stream as it is, as input of a product: its rows, as far apart as they are, with the int8 form beside
 * them. */
static mica_status stream_input(model *m, quant_act *a, const weight_ref *w, const model_step *s,
                                mica_error *err) {
    const gemma_net *n = m->net;
    *a = n->b.a;
    a->x = n->b.x;
    a->ld = m->shape.n_embd;
    if (!model_wants_q(w)) return MICA_OK;
    return dev_quantise(m->d, &(quantise_args){.a = *a, .n_row = s->n_row, .n_col = m->shape.n_embd}, err);
}

/* ple = (RMS(per_layer_model_proj x / sqrt(n_embd)) norm + sqrt(n_ple) embd[tok]) / sqrt(2), for all layers
 * at once. The first division goes into eps, the last into the norm's weight and the embedding's scale. */
static mica_status layer_inputs(model *m, const model_step *s, mica_error *err) {
    gemma_net *n = m->net;
    uint32_t n_layer = m->shape.n_layer, wide = n_layer * n->n_ple;
    quant_act a;
    TRY(stream_input(m, &a, &n->ple_proj, s, err));
    TRY(dev_linear(m->d,
                   &(linear_args){.a = a,
                                  .n_row = s->n_row,
                                  .n_prompt = s->n_prompt,
                                  .n_out = 1,
                                  .out = {{.y = n->ple_y, .w = n->ple_proj, .ld_y = wide}}},
                   err));
    float scale = sqrtf(0.5f * (float)n->n_ple);
    TRY(dev_embed(
        m->d,
        &(embed_args){.x = n->ple, .table = n->ple_embd, .rows = s->rows, .n_row = s->n_row, .scale = scale},
        err));
    return dev_add_norm(m->d,
                        &(add_norm_args){.x = n->ple,
                                         .y = n->ple_y,
                                         .w = n->ple_norm,
                                         .n_row = s->n_row * n_layer,
                                         .n_col = n->n_ple,
                                         .eps = n->ends.eps * (float)m->shape.n_embd},
                        err);
}

/* x += RMS(proj(gelu(inp_gate x) * I)) post_norm. The gate's rows lie in ple_y as far apart as I's do in ple.
 */
static mica_status add_layer_input(model *m, const gemma_layer *l, uint32_t il, const model_step *s,
                                   mica_error *err) {
    gemma_net *n = m->net;
    uint32_t wide = m->shape.n_layer * n->n_ple;
    float *gate = n->ple_y + (size_t)il * n->n_ple;
    quant_act a;
    TRY(stream_input(m, &a, &l->ple.gate, s, err));
    TRY(dev_linear(m->d,
                   &(linear_args){.a = a,
                                  .n_row = s->n_row,
                                  .n_prompt = s->n_prompt,
                                  .n_out = 1,
                                  .out = {{.y = gate, .w = l->ple.gate, .ld_y = wide}}},
                   err));
    TRY(dev_glu(m->d,
                &(glu_args){.h = n->ple_h,
                            .gate = gate,
                            .up = n->ple + (size_t)il * n->n_ple,
                            .ld = wide,
                            .n_row = s->n_row,
                            .n_col = n->n_ple,
                            .kind = GLU_GELU,
                            .want_q = model_wants_q(&l->ple.proj)},
                err));
    TRY(dev_linear(m->d,
                   &(linear_args){.a = n->ple_h,
                                  .n_row = s->n_row,
                                  .n_prompt = s->n_prompt,
                                  .n_out = 1,
                                  .out = {{.y = n->y, .w = l->ple.proj, .ld_y = m->shape.n_embd}}},
                   err));
    return add_normed(m, n->b.x, n->y, l->ple.post_norm, s, err);
}

static mica_status gemma_forward(model *m, const model_step *s, mica_error *err) {
    gemma_net *n = m->net;
    uint64_t n_stream = (uint64_t)s->n_row * m->shape.n_embd, n_logit = (uint64_t)s->n_out * m->shape.n_vocab;
    TRY(ends_embed(m, &n->ends, &n->b, s, sqrtf((float)m->shape.n_embd), err));
    TRY(rope_step(m, &n->rope_full, s, err));
    TRY(rope_step(m, &n->rope_window, s, err));
    if (n->n_ple) TRY(layer_inputs(m, s, err));
    for (uint32_t il = 0; il < m->shape.n_layer; il++) {
        const gemma_layer *l = &n->layers[il];
        TRY(attention(m, l, il, s, err));
        TRY(feed_forward(m, l, il, s, err));
        if (n->n_ple) TRY(add_layer_input(m, l, il, s, err));
        if (l->out_scale)
            TRY(dev_scale(m->d, &(scale_args){.x = n->b.x, .s = l->out_scale, .n = n_stream}, err));
    }
    TRY(ends_head(m, &n->ends, &n->b, s, err));
    if (n->cap == 0.0f || n_logit == 0) return MICA_OK;
    return dev_softcap(m->d, &(softcap_args){.y = s->logits, .n = n_logit, .cap = n->cap}, err);
}

static void gemma_fini(model *m) {
    mem_free(((gemma_net *)m->net)->layers);
}

const model_family model_family_gemma = {
    .archs = {"gemma4", "gemma3"},
    .net_bytes = sizeof(gemma_net),
    .shape = gemma_shape,
    .bind = gemma_bind,
    .carve = gemma_carve,
    .forward = gemma_forward,
    .fini = gemma_fini,
};
