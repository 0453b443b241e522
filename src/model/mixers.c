/* Hybrid mixers as lists of calls on the seam. Value head h reads key head h mod n_k: the file's order,
 * nothing is to be undone. */
#include "model/mixers.h"

#include <math.h>
#include <stdio.h>

mica_status hybrid_pattern_read(const model *m, bool *linear, uint32_t n_main, uint32_t n_block,
                                mica_error *err) {
    char key[96];
    const gguf_value *v;
    uint32_t interval = 4;
    TRY(model_key_u32_or(m, "full_attention_interval", MODEL_LAYER_MAX, &interval, err));
    if (interval == 0) return fail(err, MICA_E_FORMAT, "%s: full_attention_interval: 0", gguf_name(m->file));
    snprintf(key, sizeof key, "%s.attention.recurrent_layers", m->shape.arch);
    TRY(gguf_get_array(m->file, key, GGUF_OF_BOOL, GGUF_ANY_COUNT, &v, err));
    for (uint32_t i = 0; i < n_block; i++) {
        linear[i] = i < n_main && (i + 1) % interval != 0;
        if (v && i < n_main && i < gguf_value_count(v)) gguf_value_at_bool(v, i, &linear[i]);
    }
    return MICA_OK;
}

void hybrid_limits(model_shape *s, const full_shape *f, const delta_shape *d) {
    uint32_t most = d->d_v > d->d_k ? d->d_v : d->d_k;
    s->limits.n_head = f->n_head;
    s->limits.d_head = most > f->d_head ? most : f->d_head;
}

uint32_t hybrid_mixed_cols(const full_shape *f, const delta_shape *d) {
    uint32_t n_q = f->n_head * f->d_head, n_value = d->n_v * d->d_v;
    return n_q > n_value ? n_q : n_value;
}

/* ---- gated attention ---------------------------------------------------------------------------- */

mica_status full_shape_read(const model *m, full_shape *f, mica_error *err) {
    uint32_t d_v;
    TRY(model_key_u32(m, "attention.head_count", 1, 4096, &f->n_head, err));
    TRY(model_key_u32(m, "attention.head_count_kv", 1, 4096, &f->n_head_kv, err));
    TRY(model_key_u32(m, "attention.key_length", 2, 1024, &f->d_head, err));
    d_v = f->d_head;
    TRY(model_key_u32_or(m, "attention.value_length", 1024, &d_v, err));
    TRY(model_key_eps(m, &f->eps, err));
    if (d_v != f->d_head || f->n_head % f->n_head_kv)
        return fail(err, MICA_E_FORMAT,
                    "%s: %u query heads, %u key heads, head sizes %u and %u: do not fit together",
                    gguf_name(m->file), f->n_head, f->n_head_kv, f->d_head, d_v);
    return MICA_OK;
}

kv_spec full_kv(const full_shape *f) {
    return (kv_spec){.n_head_kv = f->n_head_kv, .d_k = f->d_head, .d_v = f->d_head, .group = KV_GROUP_FULL};
}

mica_status full_bind(model *m, full_weights *w, const full_shape *f, int il, mica_error *err) {
    uint32_t n_embd = m->shape.n_embd, n_q = f->n_head * f->d_head, n_kv = f->n_head_kv * f->d_head;
    TRY(model_matrix(m, &w->q, (tensor_want){il, "attn_q.weight", 2 * n_q, n_embd, MODEL_NEEDED}, err));
    TRY(model_matrix(m, &w->k, (tensor_want){il, "attn_k.weight", n_kv, n_embd, MODEL_NEEDED}, err));
    TRY(model_matrix(m, &w->v, (tensor_want){il, "attn_v.weight", n_kv, n_embd, MODEL_NEEDED}, err));
    TRY(model_vector(m, &w->q_norm, (tensor_want){il, "attn_q_norm.weight", 1, f->d_head, MODEL_NEEDED},
                     err));
    TRY(model_vector(m, &w->k_norm, (tensor_want){il, "attn_k_norm.weight", 1, f->d_head, MODEL_NEEDED},
                     err));
    return model_matrix(m, &w->out, (tensor_want){il, "attn_output.weight", n_embd, n_q, MODEL_NEEDED}, err);
}

void full_carve(full_buffers *b, carver *c, const full_shape *f, uint32_t n_row) {
    b->q = carve_f32(c, (size_t)n_row * 2 * f->n_head * f->d_head);
    b->k = carve_f32(c, (size_t)n_row * f->n_head_kv * f->d_head);
    b->v = carve_f32(c, (size_t)n_row * f->n_head_kv * f->d_head);
}

mica_status full_run(model *m, const full_call *c, const model_step *s, mica_error *err) {
    const full_shape *f = c->f;
    uint32_t n_q = 2 * f->n_head * f->d_head, n_kv = f->n_head_kv * f->d_head;
    TRY(dev_linear(m->d,
                   &(linear_args){.a = c->a,
                                  .n_row = s->n_row,
                                  .n_prompt = s->n_prompt,
                                  .n_out = 3,
                                  .out = {{.y = c->b->q, .w = c->w->q, .ld_y = n_q},
                                          {.y = c->b->k, .w = c->w->k, .ld_y = n_kv},
                                          {.y = c->b->v, .w = c->w->v, .ld_y = n_kv}}},
                   err));
    TRY(dev_rope_kv(m->d,
                    &(rope_kv_args){.q = c->b->q,
                                    .k = c->b->k,
                                    .v = c->b->v,
                                    .kv = *c->kv,
                                    .pages = s->pages[KV_GROUP_FULL],
                                    .rows = s->rows,
                                    .q_norm = c->w->q_norm,
                                    .k_norm = c->w->k_norm,
                                    .cs = c->rope->cs,
                                    .ld_q = n_q,
                                    .head_ld_q = 2 * f->d_head,
                                    .ld_kv = n_kv,
                                    .n_row = s->n_row,
                                    .n_head = f->n_head,
                                    .n_head_kv = f->n_head_kv,
                                    .d_k = f->d_head,
                                    .d_v = f->d_head,
                                    .n_rot = c->rope->n_rot,
                                    .rope = ROPE_NEOX,
                                    .eps = f->eps},
                    err));
    return dev_attn(m->d,
                    &(attn_args){.o = c->o,
                                 .q = c->b->q,
                                 .gate = c->b->q + f->d_head,
                                 .kv = *c->kv,
                                 .pages = s->pages[KV_GROUP_FULL],
                                 .rows = s->rows,
                                 .sel = c->sel,
                                 .ld_q = n_q,
                                 .head_ld_q = 2 * f->d_head,
                                 .ld_sel = c->ld_sel,
                                 .n_row = s->n_row,
                                 .n_head = f->n_head,
                                 .n_head_kv = f->n_head_kv,
                                 .d_k = f->d_head,
                                 .d_v = f->d_head,
                                 .scale = 1.0f / sqrtf((float)f->d_head),
                                 .want_q = model_wants_q(&c->w->out)},
                    err);
}

/* ---- gated DeltaNet ------------------------------------------------------------------------------ */

mica_status delta_shape_read(const model *m, delta_shape *d, mica_error *err) {
    uint32_t inner;
    TRY(model_key_u32(m, "ssm.conv_kernel", 2, 8, &d->n_tap, err));
    TRY(model_key_u32(m, "ssm.state_size", 4, 1024, &d->d_k, err));
    TRY(model_key_u32(m, "ssm.group_count", 1, 4096, &d->n_k, err));
    TRY(model_key_u32(m, "ssm.time_step_rank", 1, 4096, &d->n_v, err));
    TRY(model_key_u32(m, "ssm.inner_size", 1, 1u << 20, &inner, err));
    TRY(model_key_eps(m, &d->eps, err));
    d->d_v = inner / d->n_v;
    if (inner % d->n_v || d->n_v % d->n_k || d->d_v == 0 || d->d_v > 1024)
        return fail(err, MICA_E_FORMAT,
                    "%s: ssm: %u inner values, %u value heads, %u key heads: do not fit together",
                    gguf_name(m->file), inner, d->n_v, d->n_k);
    d->n_channel = 2 * d->n_k * d->d_k + inner;
    return MICA_OK;
}

uint64_t delta_shape_floats(const delta_shape *d) {
    return (uint64_t)CONV_RING * d->n_channel + delta_state_floats(d->n_k, d->n_v, d->d_k, d->d_v);
}

mica_status delta_bind(model *m, delta_weights *w, const delta_shape *d, int il, mica_error *err) {
    uint32_t n_embd = m->shape.n_embd, n_value = d->n_v * d->d_v;
    TRY(model_matrix(m, &w->qkv, (tensor_want){il, "attn_qkv.weight", d->n_channel, n_embd, MODEL_NEEDED},
                     err));
    TRY(model_matrix(m, &w->z, (tensor_want){il, "attn_gate.weight", n_value, n_embd, MODEL_NEEDED}, err));
    TRY(model_matrix(m, &w->alpha, (tensor_want){il, "ssm_alpha.weight", d->n_v, n_embd, MODEL_NEEDED}, err));
    TRY(model_matrix(m, &w->beta, (tensor_want){il, "ssm_beta.weight", d->n_v, n_embd, MODEL_NEEDED}, err));
    TRY(model_vector(m, &w->conv,
                     (tensor_want){il, "ssm_conv1d.weight", d->n_channel, d->n_tap, MODEL_NEEDED}, err));
    TRY(model_vector(m, &w->a, (tensor_want){il, "ssm_a", 1, d->n_v, MODEL_NEEDED}, err));
    TRY(model_vector(m, &w->dt_bias, (tensor_want){il, "ssm_dt.bias", 1, d->n_v, MODEL_NEEDED}, err));
    TRY(model_vector(m, &w->norm, (tensor_want){il, "ssm_norm.weight", 1, d->d_v, MODEL_NEEDED}, err));
    return model_matrix(m, &w->out, (tensor_want){il, "ssm_out.weight", n_embd, n_value, MODEL_NEEDED}, err);
}

void delta_carve(delta_buffers *b, carver *c, const delta_shape *d, uint32_t n_row) {
    uint32_t n_value = d->n_v * d->d_v;
    b->u = carve_f32(c, (size_t)n_row * d->n_channel);
    b->y = carve_f32(c, (size_t)n_row * d->n_channel);
    b->z = carve_f32(c, (size_t)n_row * n_value);
    b->o = carve_f32(c, (size_t)n_row * n_value);
    b->alpha = carve_f32(c, (size_t)n_row * d->n_v);
    b->beta = carve_f32(c, (size_t)n_row * d->n_v);
}

static mica_status delta_project(model *m, const delta_call *c, const model_step *s, mica_error *err) {
    const delta_shape *d = c->d;
    return dev_linear(m->d,
                      &(linear_args){.a = c->a,
                                     .n_row = s->n_row,
                                     .n_prompt = s->n_prompt,
                                     .n_out = 4,
                                     .out = {{.y = c->b->u, .w = c->w->qkv, .ld_y = d->n_channel},
                                             {.y = c->b->z, .w = c->w->z, .ld_y = d->n_v * d->d_v},
                                             {.y = c->b->alpha, .w = c->w->alpha, .ld_y = d->n_v},
                                             {.y = c->b->beta, .w = c->w->beta, .ld_y = d->n_v}}},
                      err);
}

mica_status delta_run(model *m, const delta_call *c, const model_step *s, mica_error *err) {
    const delta_shape *d = c->d;
    float *ring = s->state + c->w->state_off;
    TRY(delta_project(m, c, s, err));
    TRY(dev_conv(m->d,
                 &(conv_args){.y = c->b->y,
                              .u = c->b->u,
                              .w = c->w->conv,
                              .ring = ring,
                              .ld_seq = m->shape.state_floats,
                              .runs = s->runs,
                              .rows = s->rows,
                              .n_run = s->n_run,
                              .n_row = s->n_row,
                              .n_col = d->n_channel,
                              .n_tap = d->n_tap,
                              .step = 1},
                 err));
    TRY(dev_delta(m->d,
                  &(delta_args){.o = c->b->o,
                                .qkv = c->b->y,
                                .alpha = c->b->alpha,
                                .beta = c->b->beta,
                                .a = c->w->a,
                                .dt_bias = c->w->dt_bias,
                                .state = ring + (size_t)CONV_RING * d->n_channel,
                                .ld_seq = m->shape.state_floats,
                                .runs = s->runs,
                                .n_run = s->n_run,
                                .n_row = s->n_row,
                                .n_k = d->n_k,
                                .n_v = d->n_v,
                                .d_k = d->d_k,
                                .d_v = d->d_v},
                  err));
    return dev_gate_norm(m->d,
                         &(gate_norm_args){.y = c->o,
                                           .o = c->b->o,
                                           .z = c->b->z,
                                           .w = c->w->norm,
                                           .n_row = s->n_row,
                                           .n_group = d->n_v,
                                           .n_col = d->d_v,
                                           .eps = d->eps,
                                           .sigmoid = d->sigmoid,
                                           .want_q = model_wants_q(&c->w->out)},
                         err);
}

/* ---- experts and a shared one -------------------------------------------------------------------- */

mica_status sparse_bind(model *m, sparse_weights *w, int il, uint32_t n_ff, uint32_t n_ff_shared,
                        mica_error *err) {
    uint32_t n_embd = m->shape.n_embd;
    TRY(model_experts_bind(m, &w->moe, il, n_ff, err));
    if (n_ff_shared == 0) return MICA_OK;
    TRY(model_matrix(m, &w->shared_gate,
                     (tensor_want){il, "ffn_gate_inp_shexp.weight", 1, n_embd, MODEL_NEEDED}, err));
    TRY(model_matrix(m, &w->shared.gate,
                     (tensor_want){il, "ffn_gate_shexp.weight", n_ff_shared, n_embd, MODEL_NEEDED}, err));
    TRY(model_matrix(m, &w->shared.up,
                     (tensor_want){il, "ffn_up_shexp.weight", n_ff_shared, n_embd, MODEL_NEEDED}, err));
    return model_matrix(m, &w->shared.down,
                        (tensor_want){il, "ffn_down_shexp.weight", n_embd, n_ff_shared, MODEL_NEEDED}, err);
}

void sparse_carve(model *m, sparse_buffers *b, carver *c, uint32_t n_row, uint32_t n_ff_shared) {
    const model_shape *s = &m->shape;
    moe_carve(&b->moe, c, n_row, s->n_expert, s->n_expert_used);
    ffn_carve(&b->shared, c, n_row, n_ff_shared);
    b->y = carve_f32(c, (size_t)n_row * s->n_embd);
    b->g = carve_f32(c, n_row);
}

mica_status sparse_run(model *m, const sparse_call *f, const model_step *s, mica_error *err) {
    TRY(moe_run(m,
                &(moe_call){.w = &f->w->moe,
                            .b = &f->b->moe,
                            .route = f->a,
                            .a = f->a,
                            .y = f->y,
                            .layer = f->layer,
                            .kind = GLU_SILU,
                            .scale = f->scale,
                            .add = f->add},
                s, err));
    if (!f->w->shared.gate.w) return MICA_OK;
    TRY(ffn_run(
        m, &(ffn_call){.w = &f->w->shared, .b = &f->b->shared, .a = f->a, .y = f->b->y, .kind = GLU_SILU}, s,
        err));
    TRY(dev_linear(m->d,
                   &(linear_args){.a = f->a,
                                  .n_row = s->n_row,
                                  .n_prompt = s->n_prompt,
                                  .n_out = 1,
                                  .out = {{.y = f->b->g, .w = f->w->shared_gate, .ld_y = 1}}},
                   err));
    return dev_gated_add(
        m->d,
        &(gated_add_args){.y = f->y, .x = f->b->y, .g = f->b->g, .n_row = s->n_row, .n_col = m->shape.n_embd},
        err);
}
