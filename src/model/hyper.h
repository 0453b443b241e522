/* Hyper-connections: a residual stream of several, and the mixers that sub-layers read it through
 * (docs/MODELS.md section 7.3, docs/ARITHMETIC.md rule 13).
 *
 *     TRY(hyper_read(m, &(hyper_call){.w = &l->attn_hc, .b = &b, .y = sub_layer_input}, s, err));
 *     ... y = the sub-layer ...
 *     TRY(hyper_write(m, &b, y, s, err));        // with what the read left in b->inject */
#ifndef MICA_MODEL_HYPER_H
#define MICA_MODEL_HYPER_H

#include "model/model_int.h"

typedef struct hyper_shape {
    uint32_t n_stream, rank, n_embd;
    float eps;
} hyper_shape;

typedef struct hyper_weights {
    const float *norm;   // [n_stream * n_embd]
    weight_ref down, up; // [rank, n_stream * n_embd], [n_stream * n_embd, rank]
    weight_ref inject;   // [n_stream, n_stream * n_embd]; w NULL: a mixer that is only read
} hyper_weights;

typedef struct hyper_buffers {
    hyper_shape h;
    float *x;      // [n_row, n_stream * n_embd] the streams
    quant_act xn;  // the same, normed
    float *t;      // [n_row, rank]
    quant_act lo;  // [n_row, rank]
    float *gate;   // [n_row, n_stream * n_embd]
    float *inject; // [n_row, n_stream] of the last read
} hyper_buffers;

mica_status hyper_shape_read(const model *m, hyper_shape *h, mica_error *err);
/* PART_norm, PART_down, PART_up, and PART_inject when `inject`. Optional: all, or none and *w stays empty. */
typedef struct hyper_want {
    int layer;
    const char *part; // "hc_attn"
    bool inject;
    model_need need;
} hyper_want;
mica_status hyper_bind(model *m, hyper_weights *w, const hyper_shape *h, hyper_want want, mica_error *err);
void hyper_carve(hyper_buffers *b, carver *c, const hyper_shape *h, uint32_t n_row);

typedef struct hyper_call {
    const hyper_weights *w;
    const hyper_buffers *b;
    const int32_t *row_of; // [n_row] rows of the streams, or NULL: all
    quant_act y;           // [n_row, n_embd]
    uint32_t n_row, n_prompt;
    uint32_t want_q;
} hyper_call;
mica_status hyper_read(model *m, const hyper_call *c, mica_error *err);
/* Every stream += its share of y [n_row, n_embd]. */
mica_status hyper_write(model *m, const hyper_buffers *b, const float *y, const model_step *s,
                        mica_error *err);
#endif
