/* The n-gram layer as calls on the seam. */
#include "model/ngram_layer.h"

mica_status ngram_layer_read(model *m, ngram_layer *g, const hyper_shape *h, mica_error *err) {
    model_shape *s = &m->shape;
    uint64_t layer;
    uint32_t each, end;
    TRY(model_key_u64s(m, "ple.layers", 1, &layer, err));
    TRY(model_key_u32(m, "ple.ngram_size", 2, NGRAM_MAX, &g->n_gram, err));
    TRY(model_key_u32(m, "ple.heads_per_ngram", 1, 64, &each, err));
    TRY(model_key_u32(m, "ple.conv_kernel", 1, CONV_RING, &g->n_tap, err));
    TRY(model_key_u32(m, "ple.eos_token_id", 0, 1u << 30, &end, err));
    TRY(model_key_u32(m, "embedding_length_per_layer_input", 1, 1u << 16, &g->d, err));
    g->layer = layer < MODEL_LAYER_MAX ? (uint32_t)layer : MODEL_LAYER_MAX;
    g->n_head = (g->n_gram - 1) * each;
    g->end = (int32_t)end;
    if ((g->n_tap - 1) * g->n_gram + WINDOW_MAX > CONV_RING + 1 || g->n_head > 256)
        return fail(err, MICA_E_UNSUPPORTED,
                    "%s: n-gram layer: %u taps %u positions apart, %u heads: too many", gguf_name(m->file),
                    g->n_tap, g->n_gram, g->n_head);
    g->numbers = mem_calloc(g->n_gram + 2 * (size_t)g->n_head, sizeof *g->numbers);
    if (!g->numbers) return fail(err, MICA_E_NOMEM, "%s: out of memory", gguf_name(m->file));
    uint64_t *size = g->numbers + g->n_gram, *first = size + g->n_head;
    TRY(model_key_u64s(m, "ple.layer_multipliers", g->n_gram, g->numbers, err));
    TRY(model_key_u64s(m, "ple.head_vocab_sizes", g->n_head, size, err));
    TRY(model_key_u64s(m, "ple.head_offsets", g->n_head, first, err));
    for (uint32_t i = 0; i < g->n_head; i++) {
        if (size[i] == 0 || size[i] > UINT32_MAX || first[i] > UINT32_MAX - size[i])
            return fail(err, MICA_E_FORMAT, "%s: n-gram head %u: %llu rows from %llu on", gguf_name(m->file),
                        i, (unsigned long long)size[i], (unsigned long long)first[i]);
        if (first[i] + size[i] > g->n_row) g->n_row = first[i] + size[i];
    }
    g->ids_off = s->state_floats;
    g->values_off = g->ids_off + CONV_RING;
    s->state_floats = g->values_off + (uint64_t)CONV_RING * h->n_stream * h->n_embd;
    return MICA_OK;
}

void ngram_layer_free(ngram_layer *g) {
    mem_free(g->numbers);
}

static mica_status put_numbers(model *m, ngram_layer *g, mica_error *err) {
    size_t n_bytes = (g->n_gram + 2 * (size_t)g->n_head) * sizeof *g->numbers;
    void *p;
    TRY(dev_alloc(m->d, &p, n_bytes, "n-gram numbers", err));
    m->owned[m->n_owned++] = p;
    g->dev_numbers = p;
    return dev_upload(m->d, p, g->numbers, n_bytes, err);
}

mica_status ngram_layer_bind(model *m, ngram_layer *g, const hyper_shape *h, mica_error *err) {
    int il = (int)g->layer;
    uint32_t n = h->n_embd, wide = h->n_stream * n, n_in = g->n_head * g->d;
    TRY(model_table(m, &g->table,
                    (tensor_want){-1, "per_layer_token_embd.weight", (uint32_t)g->n_row, g->d, MODEL_NEEDED},
                    g->n_head, err));
    TRY(model_matrix(m, &g->key, (tensor_want){il, "ple_key.weight", wide, n_in, MODEL_NEEDED}, err));
    TRY(model_matrix(m, &g->value, (tensor_want){il, "ple_value.weight", n, n_in, MODEL_NEEDED}, err));
    TRY(model_vector(m, &g->norm_key, (tensor_want){il, "ple_norm_key.weight", 1, wide, MODEL_NEEDED}, err));
    TRY(model_vector(m, &g->norm_query, (tensor_want){il, "ple_norm_query.weight", 1, wide, MODEL_NEEDED},
                     err));
    TRY(model_vector(m, &g->norm_conv, (tensor_want){il, "ple_norm_conv.weight", 1, wide, MODEL_NEEDED},
                     err));
    TRY(model_vector(m, &g->conv, (tensor_want){il, "ple_conv1d.weight", wide, g->n_tap, MODEL_NEEDED}, err));
    return m->d ? put_numbers(m, g, err) : MICA_OK;
}

void ngram_layer_carve(ngram_layer *g, carver *c, const hyper_shape *h, uint32_t n_row) {
    g->e = carve_act(c, n_row, g->n_head * g->d);
    g->v = carve_f32(c, (size_t)n_row * h->n_embd);
    g->gv = carve_f32(c, (size_t)n_row * h->n_stream * h->n_embd);
}

/* g->e, and of it g->v and b->gate: values and keys */
static mica_status read_rows(model *m, const ngram_layer *g, const hyper_buffers *b, const model_step *s,
                             mica_error *err) {
    TRY(dev_ngram(m->d,
                  &(ngram_args){.e = g->e,
                                .table = g->table,
                                .mult = g->dev_numbers,
                                .n_of = g->dev_numbers + g->n_gram,
                                .first = g->dev_numbers + g->n_gram + g->n_head,
                                .ring = (int32_t *)(void *)(s->state + g->ids_off),
                                .ld_seq = m->shape.state_floats,
                                .runs = s->runs,
                                .rows = s->rows,
                                .n_run = s->n_run,
                                .n_row = s->n_row,
                                .n_gram = g->n_gram,
                                .n_head = g->n_head,
                                .end = g->end,
                                .want_q = model_wants_q(&g->key) || model_wants_q(&g->value)},
                  err));
    return dev_linear(m->d,
                      &(linear_args){.a = g->e,
                                     .n_row = s->n_row,
                                     .n_prompt = s->n_prompt,
                                     .n_out = 2,
                                     .out = {{.y = b->gate, .w = g->key, .ld_y = b->h.n_stream * b->h.n_embd},
                                             {.y = g->v, .w = g->value, .ld_y = b->h.n_embd}}},
                      err);
}

/* y = RMS of each stream of x, times w; y may be x. */
static mica_status stream_norm(model *m, const hyper_buffers *b, const norm_args *n, mica_error *err) {
    const hyper_shape *h = &b->h;
    return dev_group_norm(m->d,
                          &(group_norm_args){.y = n->y,
                                             .x = n->x,
                                             .w = n->w,
                                             .ld_x = h->n_stream * h->n_embd,
                                             .ld_group = h->n_embd,
                                             .n_row = n->n_row,
                                             .n_group = h->n_stream,
                                             .n_col = h->n_embd,
                                             .eps = h->eps},
                          err);
}

mica_status ngram_layer_run(model *m, const ngram_layer *g, const hyper_buffers *b, const model_step *s,
                            mica_error *err) {
    const hyper_shape *h = &b->h;
    uint32_t wide = h->n_stream * h->n_embd;
    quant_act key = {.x = b->gate, .ld = wide}, query = {.x = b->xn.x, .ld = wide},
              norm = {.x = b->gate, .ld = wide};
    TRY(read_rows(m, g, b, s, err));
    TRY(stream_norm(m, b, &(norm_args){.y = key, .x = b->gate, .w = g->norm_key, .n_row = s->n_row}, err));
    TRY(stream_norm(m, b, &(norm_args){.y = query, .x = b->x, .w = g->norm_query, .n_row = s->n_row}, err));
    TRY(dev_ngram_gate(m->d,
                       &(ngram_gate_args){.gv = g->gv,
                                          .key = key.x,
                                          .query = query.x,
                                          .v = g->v,
                                          .ld = wide,
                                          .n_row = s->n_row,
                                          .n_stream = h->n_stream,
                                          .n_col = h->n_embd},
                       err));
    TRY(stream_norm(m, b, &(norm_args){.y = norm, .x = g->gv, .w = g->norm_conv, .n_row = s->n_row}, err));
    TRY(dev_conv(m->d,
                 &(conv_args){.y = b->xn.x,
                              .u = norm.x,
                              .w = g->conv,
                              .ring = s->state + g->values_off,
                              .ld_seq = m->shape.state_floats,
                              .runs = s->runs,
                              .rows = s->rows,
                              .n_run = s->n_run,
                              .n_row = s->n_row,
                              .n_col = wide,
                              .n_tap = g->n_tap,
                              .step = g->n_gram},
                 err));
    return dev_add(m->d, &(add_args){.x = b->x, .a = g->gv, .b = b->xn.x, .n = (uint64_t)s->n_row * wide},
                   err);
}
