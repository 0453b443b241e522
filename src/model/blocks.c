/* Shared sub-layers as short lists of calls on the seam. */
#include "model/blocks.h"

void stream_carve(stream *b, carver *c, uint32_t n_row, uint32_t n_out, uint32_t n_embd) {
    b->x = carve_f32(c, (size_t)n_row * n_embd);
    b->a = carve_act(c, n_row, n_embd);
    b->last = carve_act(c, n_out, n_embd);
}

mica_status ends_bind(model *m, ends *e, mica_error *err) {
    const model_shape *s = &m->shape;
    TRY(model_matrix(m, &e->embd, (tensor_want){-1, "token_embd.weight", s->n_vocab, s->n_embd, MODEL_NEEDED},
                     err));
    TRY(model_matrix(m, &e->head, (tensor_want){-1, "output.weight", s->n_vocab, s->n_embd, MODEL_OPTIONAL},
                     err));
    if (!e->head.w) e->head = e->embd;
    return model_vector(m, &e->output_norm,
                        (tensor_want){-1, "output_norm.weight", 1, s->n_embd, MODEL_NEEDED}, err);
}

mica_status ends_embed(model *m, const ends *e, const stream *b, const model_step *s, float scale,
                       mica_error *err) {
    return dev_embed(
        m->d, &(embed_args){.x = b->x, .table = e->embd, .rows = s->rows, .n_row = s->n_row, .scale = scale},
        err);
}

mica_status ends_head(model *m, const ends *e, const stream *b, const model_step *s, mica_error *err) {
    if (s->n_out == 0) return MICA_OK;
    TRY(dev_norm(m->d,
                 &(norm_args){.y = b->last,
                              .x = b->x,
                              .w = e->output_norm,
                              .row_of = s->out_rows,
                              .ld_x = m->shape.n_embd,
                              .n_row = s->n_out,
                              .n_col = m->shape.n_embd,
                              .eps = e->eps,
                              .want_q = model_wants_q(&e->head)},
                 err));
    return dev_linear(m->d,
                      &(linear_args){.a = b->last,
                                     .n_row = s->n_out,
                                     .n_prompt = s->n_out_prompt,
                                     .n_out = 1,
                                     .out = {{.y = s->logits, .w = e->head, .ld_y = m->shape.n_vocab}}},
                      err);
}

mica_status norm_into(model *m, const stream *b, const model_step *s, const float *w, float eps,
                      mica_error *err) {
    return dev_norm(m->d,
                    &(norm_args){.y = b->a,
                                 .x = b->x,
                                 .w = w,
                                 .ld_x = m->shape.n_embd,
                                 .n_row = s->n_row,
                                 .n_col = m->shape.n_embd,
                                 .eps = eps,
                                 .want_q = 1},
                    err);
}

mica_status ffn_bind(model *m, ffn_weights *w, int layer, uint32_t n_ff, mica_error *err) {
    uint32_t n_embd = m->shape.n_embd;
    TRY(model_matrix(m, &w->gate, (tensor_want){layer, "ffn_gate.weight", n_ff, n_embd, MODEL_NEEDED}, err));
    TRY(model_matrix(m, &w->up, (tensor_want){layer, "ffn_up.weight", n_ff, n_embd, MODEL_NEEDED}, err));
    return model_matrix(m, &w->down, (tensor_want){layer, "ffn_down.weight", n_embd, n_ff, MODEL_NEEDED},
                        err);
}

void ffn_carve(ffn_buffers *b, carver *c, uint32_t n_row, uint32_t n_ff) {
    b->gate = carve_f32(c, (size_t)n_row * n_ff);
    b->up = carve_f32(c, (size_t)n_row * n_ff);
    b->h = carve_act(c, n_row, n_ff);
}

mica_status ffn_run(model *m, const ffn_call *f, const model_step *s, mica_error *err) {
    uint32_t n_ff = f->w->gate.n_row;
    TRY(dev_linear(m->d,
                   &(linear_args){.a = f->a,
                                  .n_row = s->n_row,
                                  .n_prompt = s->n_prompt,
                                  .n_out = 2,
                                  .out = {{.y = f->b->gate, .w = f->w->gate, .ld_y = n_ff},
                                          {.y = f->b->up, .w = f->w->up, .ld_y = n_ff}}},
                   err));
    TRY(dev_glu(m->d,
                &(glu_args){.h = f->b->h,
                            .gate = f->b->gate,
                            .up = f->b->up,
                            .ld = n_ff,
                            .n_row = s->n_row,
                            .n_col = n_ff,
                            .kind = f->kind,
                            .want_q = model_wants_q(&f->w->down)},
                err));
    return dev_linear(
        m->d,
        &(linear_args){.a = f->b->h,
                       .n_row = s->n_row,
                       .n_prompt = s->n_prompt,
                       .n_out = 1,
                       .out = {{.y = f->y, .w = f->w->down, .ld_y = m->shape.n_embd, .add = f->add}}},
        err);
}

void moe_carve(moe_buffers *b, carver *c, uint32_t n_row, uint32_t n_expert, uint32_t n_used) {
    b->logits = carve_f32(c, (size_t)n_row * n_expert);
    b->ids = carve(c, (size_t)n_row * n_used * sizeof(int32_t));
    b->weights = carve_f32(c, (size_t)n_row * n_used);
}

mica_status moe_run(model *m, const moe_call *f, const model_step *s, mica_error *err) {
    const model_shape *sh = &m->shape;
    TRY(dev_linear(m->d,
                   &(linear_args){.a = f->route,
                                  .n_row = s->n_row,
                                  .n_prompt = s->n_prompt,
                                  .n_out = 1,
                                  .out = {{.y = f->b->logits, .w = f->w->router, .ld_y = sh->n_expert}}},
                   err));
    TRY(dev_router(m->d,
                   &(router_args){.ids = f->b->ids,
                                  .weights = f->b->weights,
                                  .logits = f->b->logits,
                                  .n_row = s->n_row,
                                  .n_expert = sh->n_expert,
                                  .n_used = sh->n_expert_used,
                                  .scale = f->scale},
                   err));
    return dev_experts(m->d,
                       &(experts_args){.y = f->y,
                                       .a = f->a,
                                       .ids = f->b->ids,
                                       .weights = f->b->weights,
                                       .gate = f->w->gate,
                                       .up = f->w->up,
                                       .down = f->w->down,
                                       .layer = f->layer,
                                       .n_row = s->n_row,
                                       .n_prompt = s->n_prompt,
                                       .n_expert = sh->n_expert,
                                       .n_used = sh->n_expert_used,
                                       .kind = f->kind,
                                       .add = f->add},
                       err);
}
