/* The n-gram layer: rows of a hashed table that the last tokens name, gated into the residual streams
 * (docs/MODELS.md section 7.6, docs/ARITHMETIC.md rule 15). */
#ifndef MICA_MODEL_NGRAM_LAYER_H
#define MICA_MODEL_NGRAM_LAYER_H

#include "model/hyper.h"

typedef struct ngram_layer {
    uint32_t layer;             // the block it stands before
    uint32_t n_gram, n_head, d; // tokens, rows read of the table, their width
    uint32_t n_tap;             // of the convolution, n_gram positions apart
    int32_t end;                // id that stands where there is no token
    uint64_t n_row;             // of the table that can be read
    uint64_t *numbers; // owned, [n_gram] multipliers, then [n_head] rows of a head, [n_head] first rows
    const uint64_t *dev_numbers;  // the same on the device
    uint64_t ids_off, values_off; // floats into a sequence's state: ring of ids, ring of the convolution
    weight_ref table, key, value;
    const float *norm_key, *norm_query, *norm_conv; // [n_stream * n_embd]
    const float *conv;                              // [n_stream * n_embd, n_tap]
    quant_act e;                                    // [n_row, n_head * d]
    float *v, *gv;                                  // [n_row, n_embd], [n_row, n_stream * n_embd]
} ngram_layer;

/* Keys; takes its room of the state. */
mica_status ngram_layer_read(model *m, ngram_layer *g, const hyper_shape *h, mica_error *err);
mica_status ngram_layer_bind(model *m, ngram_layer *g, const hyper_shape *h, mica_error *err);
void ngram_layer_carve(ngram_layer *g, carver *c, const hyper_shape *h, uint32_t n_row);
void ngram_layer_free(ngram_layer *g); // what ngram_layer_read took
/* b->x += the layer; b's other buffers are used. */
mica_status ngram_layer_run(model *m, const ngram_layer *g, const hyper_buffers *b, const model_step *s,
                            mica_error *err);
#endif
