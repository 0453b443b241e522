/* Token mixers that the hybrid families share: gated attention and the gated delta rule, and the mixture of
 * experts with a shared one (docs/MODELS.md section 4.4). Each is its weights, its step buffers and one call
 * from a normed input to a mixed row; what stands before and after is the family's.
 *
 *     TRY(delta_shape_read(m, &shape, err));  TRY(delta_bind(m, &w, &shape, il, err));
 *     delta_carve(&b, c, &shape, n_row);      TRY(delta_run(m, &(delta_call){...}, s, err)); */
#ifndef MICA_MODEL_MIXERS_H
#define MICA_MODEL_MIXERS_H

#include "model/blocks.h"
#include "model/rope.h"

/* For each layer of the trunk and the draft blocks after it: true where it is linear. `n_main` of the n_block
 * blocks are the trunk's; full_attention_interval, or attention.recurrent_layers. */
mica_status hybrid_pattern_read(const model *m, bool *linear, uint32_t n_main, uint32_t n_block,
                                mica_error *err);

typedef struct full_shape full_shape;
typedef struct delta_shape delta_shape;
/* Heads, and the largest head of either mixer, into the device's limits. */
void hybrid_limits(model_shape *s, const full_shape *f, const delta_shape *d);
uint32_t hybrid_mixed_cols(const full_shape *f, const delta_shape *d); // columns of a mixed row: the larger

/* ---- gated attention: q and its output gate stand together per head in attn_q ---- */

struct full_shape {
    uint32_t n_head, n_head_kv, d_head;
    float eps;
};

typedef struct full_weights {
    weight_ref q, k, v, out; // q: [n_head * 2 * d_head, n_embd]
    const float *q_norm, *k_norm;
} full_weights;

typedef struct full_buffers {
    float *q, *k, *v;
} full_buffers;

mica_status full_shape_read(const model *m, full_shape *f, mica_error *err);
kv_spec full_kv(const full_shape *f); // of a layer's cache
mica_status full_bind(model *m, full_weights *w, const full_shape *f, int il, mica_error *err);
void full_carve(full_buffers *b, carver *c, const full_shape *f, uint32_t n_row);

typedef struct full_call {
    const full_shape *f;
    const full_weights *w;
    const full_buffers *b;
    const rope *rope;
    const kv_layer *kv;
    const int32_t *sel; // attn_args.sel, or NULL
    uint32_t ld_sel;
    quant_act a; // input
    quant_act o; // [n_row, n_head * d_head] mixed rows, before `out`
} full_call;
mica_status full_run(model *m, const full_call *f, const model_step *s, mica_error *err);

/* ---- gated DeltaNet: convolution, delta rule, output norm ---- */

struct delta_shape {
    uint32_t n_k, n_v, d_k, d_v, n_tap, n_channel;
    float eps;
    uint32_t sigmoid; // gate of the output norm: 1 sigmoid(z), 0 silu(z)
};

typedef struct delta_weights {
    weight_ref qkv, z, alpha, beta, out;
    const float *conv;    // [n_channel, n_tap]
    const float *a;       // [n_v]
    const float *dt_bias; // [n_v]
    const float *norm;    // [d_v]
    uint64_t state_off;   // floats into a sequence's state: the ring, then the delta state
} delta_weights;

typedef struct delta_buffers {
    float *u, *y, *z, *o; // input, after the convolution, gate, output of the delta rule
    float *alpha, *beta;  // [n_row, n_v]
} delta_buffers;

mica_status delta_shape_read(const model *m, delta_shape *d, mica_error *err);
uint64_t delta_shape_floats(const delta_shape *d); // of one sequence and layer
mica_status delta_bind(model *m, delta_weights *w, const delta_shape *d, int il, mica_error *err);
void delta_carve(delta_buffers *b, carver *c, const delta_shape *d, uint32_t n_row);

typedef struct delta_call {
    const delta_shape *d;
    const delta_weights *w;
    const delta_buffers *b;
    quant_act a; // input
    quant_act o; // [n_row, n_v * d_v] mixed rows, before `out`
} delta_call;
mica_status delta_run(model *m, const delta_call *f, const model_step *s, mica_error *err);

/* ---- experts and a shared expert with a scalar gate ---- */

typedef struct sparse_weights {
    moe_weights moe;
    weight_ref shared_gate; // [1, n_embd]
    ffn_weights shared;     // gate.w NULL: none
} sparse_weights;

typedef struct sparse_buffers {
    moe_buffers moe;
    ffn_buffers shared;
    float *y, *g; // [n_row, n_embd], [n_row]
} sparse_buffers;

mica_status sparse_bind(model *m, sparse_weights *w, int il, uint32_t n_ff, uint32_t n_ff_shared,
                        mica_error *err);
void sparse_carve(model *m, sparse_buffers *b, carver *c, uint32_t n_row, uint32_t n_ff_shared);

typedef struct sparse_call {
    const sparse_weights *w;
    const sparse_buffers *b;
    quant_act a; // input
    float *y;    // [n_row, n_embd]
    uint32_t layer;
    float scale; // of the router's weights; 0 or 1: none
    uint32_t add;
} sparse_call;
mica_status sparse_run(model *m, const sparse_call *f, const model_step *s, mica_error *err);

#endif
