/* Sub-layers that several families share: embedding and head, the dense and the sparse feed-forward network.
 * A family's forward reads as a list of these and of dev_* calls. */
#ifndef MICA_MODEL_BLOCKS_H
#define MICA_MODEL_BLOCKS_H

#include "model/model_int.h"

/* ---- residual stream, embedding, head ---- */

typedef struct stream {
    float *x;       // [n_row, n_embd] f32, the residual stream
    quant_act a;    // [n_row, n_embd], the normed input of the sub-layer at hand
    quant_act last; // [n_out, n_embd], the normed input of the head
} stream;
void stream_carve(stream *b, carver *c, uint32_t n_row, uint32_t n_out, uint32_t n_embd);

typedef struct ends {
    weight_ref embd;          // [n_vocab, n_embd]
    weight_ref head;          // [n_vocab, n_embd]; the embedding's own bytes when tied
    const float *output_norm; // [n_embd]
    float eps;
} ends;
mica_status ends_bind(model *m, ends *e, mica_error *err);
mica_status ends_embed(model *m, const ends *e, const stream *b, const model_step *s, float scale,
                       mica_error *err);
/* logits of the step's out_rows */
mica_status ends_head(model *m, const ends *e, const stream *b, const model_step *s, mica_error *err);

/* b->a = RMS(b->x) * w, with its int8 form */
mica_status norm_into(model *m, const stream *b, const model_step *s, const float *w, float eps,
                      mica_error *err);

/* ---- dense feed-forward: y (+)= down(act(gate a) * up a) ---- */

typedef struct ffn_weights {
    weight_ref gate, up, down;
} ffn_weights;

typedef struct ffn_buffers {
    float *gate, *up; // [n_row, n_ff]
    quant_act h;      // [n_row, n_ff]
} ffn_buffers;

mica_status ffn_bind(model *m, ffn_weights *w, int layer, uint32_t n_ff, mica_error *err);
void ffn_carve(ffn_buffers *b, carver *c, uint32_t n_row, uint32_t n_ff);

typedef struct ffn_call {
    const ffn_weights *w;
    const ffn_buffers *b;
    quant_act a; // input
    float *y;    // [n_row, n_embd]
    glu_kind kind;
    uint32_t add; // y += instead of y =
} ffn_call;
mica_status ffn_run(model *m, const ffn_call *f, const model_step *s, mica_error *err);

/* ---- sparse feed-forward ---- */

typedef struct moe_buffers {
    float *logits;  // [n_row, n_expert]
    int32_t *ids;   // [n_row, n_used]
    float *weights; // [n_row, n_used]
} moe_buffers;
void moe_carve(moe_buffers *b, carver *c, uint32_t n_row, uint32_t n_expert, uint32_t n_used);

typedef struct moe_call {
    const moe_weights *w;
    const moe_buffers *b;
    quant_act route; // input of the router
    quant_act a;     // input of the experts
    float *y;        // [n_row, n_embd]
    uint32_t layer;
    glu_kind kind;
    float scale; // of the router's weights; 0 or 1: none
    uint32_t add;
} moe_call;
mica_status moe_run(model *m, const moe_call *f, const model_step *s, mica_error *err);

#endif
