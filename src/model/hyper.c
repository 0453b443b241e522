/* Mixers of residual streams as calls on the seam. */
#include "model/hyper.h"

#include <stdio.h>

mica_status hyper_shape_read(const model *m, hyper_shape *h, mica_error *err) {
    h->n_embd = m->shape.n_embd;
    TRY(model_key_u32(m, "hyper_connection.count", 2, 16, &h->n_stream, err));
    TRY(model_key_u32(m, "hyper_connection.low_rank", 1, 1u << 16, &h->rank, err));
    return model_key_eps(m, &h->eps, err);
}

mica_status hyper_bind(model *m, hyper_weights *w, const hyper_shape *h, hyper_want want, mica_error *err) {
    uint32_t wide = h->n_stream * h->n_embd;
    char name[4][64];
    static const char *const part[4] = {"norm", "down", "up", "inject"};
    for (int i = 0; i < 4; i++) snprintf(name[i], sizeof name[i], "%s_%s.weight", want.part, part[i]);
    *w = (hyper_weights){0};
    bool any = want.need == MODEL_NEEDED;
    for (int i = 0; i < 3; i++) any = any || model_tensor_exists(m, want.layer, name[i]);
    if (!any) return MICA_OK;
    TRY(model_vector(m, &w->norm, (tensor_want){want.layer, name[0], 1, wide, MODEL_NEEDED}, err));
    TRY(model_matrix(m, &w->down, (tensor_want){want.layer, name[1], h->rank, wide, MODEL_NEEDED}, err));
    TRY(model_matrix(m, &w->up, (tensor_want){want.layer, name[2], wide, h->rank, MODEL_NEEDED}, err));
    if (!want.inject) return MICA_OK;
    return model_matrix(m, &w->inject, (tensor_want){want.layer, name[3], h->n_stream, wide, MODEL_NEEDED},
                        err);
}

void hyper_carve(hyper_buffers *b, carver *c, const hyper_shape *h, uint32_t n_row) {
    uint32_t wide = h->n_stream * h->n_embd;
    b->h = *h;
    b->x = carve_f32(c, (size_t)n_row * wide);
    b->xn = carve_act_dense(c, n_row, wide);
    b->t = carve_f32(c, (size_t)n_row * h->rank);
    b->lo = carve_act(c, n_row, h->rank);
    b->gate = carve_f32(c, (size_t)n_row * wide);
    b->inject = carve_f32(c, (size_t)n_row * h->n_stream);
}

/* b->xn, b->inject and b->gate of the rows asked for */
static mica_status hyper_gates(model *m, const hyper_call *c, mica_error *err) {
    const hyper_buffers *b = c->b;
    const hyper_shape *h = &b->h;
    uint32_t wide = h->n_stream * h->n_embd;
    TRY(dev_group_norm(m->d,
                       &(group_norm_args){.y = b->xn,
                                          .x = b->x,
                                          .w = c->w->norm,
                                          .row_of = c->row_of,
                                          .ld_x = wide,
                                          .ld_group = h->n_embd,
                                          .n_row = c->n_row,
                                          .n_group = h->n_stream,
                                          .n_col = h->n_embd,
                                          .eps = h->eps,
                                          .want_q = 1},
                       err));
    TRY(dev_linear(m->d,
                   &(linear_args){.a = b->xn,
                                  .n_row = c->n_row,
                                  .n_prompt = c->n_prompt,
                                  .n_out = c->w->inject.w ? 2 : 1,
                                  .out = {{.y = b->t, .w = c->w->down, .ld_y = h->rank},
                                          {.y = b->inject, .w = c->w->inject, .ld_y = h->n_stream}}},
                   err));
    TRY(dev_silu(m->d,
                 &(silu_args){.h = b->lo,
                              .x = b->t,
                              .n_row = c->n_row,
                              .n_col = h->rank,
                              .div = (float)h->n_stream,
                              .want_q = model_wants_q(&c->w->up)},
                 err));
    return dev_linear(m->d,
                      &(linear_args){.a = b->lo,
                                     .n_row = c->n_row,
                                     .n_prompt = c->n_prompt,
                                     .n_out = 1,
                                     .out = {{.y = b->gate, .w = c->w->up, .ld_y = wide}}},
                      err);
}

mica_status hyper_read(model *m, const hyper_call *c, mica_error *err) {
    const hyper_buffers *b = c->b;
    TRY(hyper_gates(m, c, err));
    return dev_hyper_read(m->d,
                          &(hyper_read_args){.m = c->y,
                                             .xn = b->xn.x,
                                             .gate = b->gate,
                                             .ld_xn = b->xn.ld,
                                             .n_row = c->n_row,
                                             .n_stream = b->h.n_stream,
                                             .n_col = b->h.n_embd,
                                             .want_q = c->want_q},
                          err);
}

mica_status hyper_write(model *m, const hyper_buffers *b, const float *y, const model_step *s,
                        mica_error *err) {
    return dev_hyper_write(m->d,
                           &(hyper_write_args){.x = b->x,
                                               .y = y,
                                               .inject = b->inject,
                                               .n_row = s->n_row,
                                               .n_stream = b->h.n_stream,
                                               .n_col = b->h.n_embd},
                           err);
}
