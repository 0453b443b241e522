/* The definition's state, shared by dev_ref.c and ref_attn.c. */
#ifndef MICA_DEV_REF_H
#define MICA_DEV_REF_H

#include "dev/dev_int.h"

typedef struct ref_dev {
    dev d; // first: a dev * is a ref_dev *
    const quant_ops *q;
    expert_source *experts;
    void (*routed)(void *user, uint32_t layer, const int32_t *ids, uint32_t n);
    void *routed_user;
    float *scratch;         // owned: one block for everything below
    quant_act hidden;       // one row of n_ff_expert, slot of scratch
    void *panel;            // slot of scratch
    const char *not_finite; // where the first bad value of a step was seen, NULL: none
} ref_dev;

/* Quantises rows [0, n_row) of a; remembers `what` when a value is not finite. */
void ref_quantise(ref_dev *r, const quant_act *a, uint32_t n_row, uint32_t n_col, const char *what);
/* y[0..w->n_row) = W a[row] in one role. */
void ref_product(ref_dev *r, float *y, const weight_ref *w, const quant_act *a, uint32_t row, bool prompt);

mica_status ref_rope_kv(dev *d, const rope_kv_args *a, mica_error *err);
mica_status ref_attn(dev *d, const attn_args *a, mica_error *err);

mica_status ref_group_norm(dev *d, const group_norm_args *a, mica_error *err);
mica_status ref_silu(dev *d, const silu_args *a, mica_error *err);
mica_status ref_spread(dev *d, const spread_args *a, mica_error *err);
mica_status ref_hyper_read(dev *d, const hyper_read_args *a, mica_error *err);
mica_status ref_hyper_write(dev *d, const hyper_write_args *a, mica_error *err);
mica_status ref_add(dev *d, const add_args *a, mica_error *err);
mica_status ref_index_keys(dev *d, const index_keys_args *a, mica_error *err);
mica_status ref_index_select(dev *d, const index_select_args *a, mica_error *err);
mica_status ref_ngram(dev *d, const ngram_args *a, mica_error *err);
mica_status ref_ngram_gate(dev *d, const ngram_gate_args *a, mica_error *err);

mica_status ref_conv(dev *d, const conv_args *a, mica_error *err);
mica_status ref_delta(dev *d, const delta_args *a, mica_error *err);
mica_status ref_gate_norm(dev *d, const gate_norm_args *a, mica_error *err);
mica_status ref_gated_add(dev *d, const gated_add_args *a, mica_error *err);

#endif
