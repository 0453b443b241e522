/* Inside the room: what a family implements, the binder it reads its file with, and carving of scratch. */
#ifndef MICA_MODEL_INT_H
#define MICA_MODEL_INT_H

#include "base/mem.h"
#include "base/status.h"
#include "model/model.h"
#include "store/store.h"

typedef struct carver carver;

/* One family of networks. `net` is its own struct, of net_bytes, zeroed. */
typedef struct model_family {
    const char *archs[4]; // general.architecture values, NULL-terminated
    size_t net_bytes;
    /* Reads keys into m->shape and the net: everything that needs no tensor data. */
    mica_status (*shape)(model *m, mica_error *err);
    /* Finds every tensor (model_tensor and friends). Called once without a device to check the file, once
     * with it. */
    mica_status (*bind)(model *m, mica_error *err);
    /* Takes the step's buffers from c, which only counts when it has no memory. */
    void (*carve)(model *m, carver *c, uint32_t n_row, uint32_t n_out, uint32_t n_seq);
    mica_status (*forward)(model *m, const model_step *s, mica_error *err);
    mica_status (*draft)(model *m, const draft_step *s,
                         mica_error *err); // NULL: families without a draft block
    mica_status (*draft_keep)(model *m, const model_step *s, int32_t seq, uint32_t row, mica_error *err);
    mica_status (*draft_recall)(model *m, const model_step *s, int32_t seq, mica_error *err);
    void (*fini)(model *m); // frees what bind took with mem_*, may be NULL
} model_family;

extern const model_family model_family_llama, model_family_qwen35, model_family_gemma, model_family_qwen4exp;

struct model {
    const model_family *family;
    const gguf_file *file; // borrowed
    dev *d;                // borrowed; NULL until model_bind
    store *experts;        // owned; NULL without experts
    model_shape shape;
    uint8_t *used; // owned, [tensors of the file]: bound by the family
    void **owned;  // owned device memory of converted vectors, [n_owned]
    size_t n_owned;
    const gguf_tensor *table; // of the file: read by the row, or NULL
    uint32_t n_table_row;     // rows of it that a token reads
    bool drafting;            // keep the trunk's outputs
    uint32_t n_row_max;       // of the scratch that was set
    void *net;                // owned, of the family
};

/* ---- keys: "{arch}.NAME", with the file's text in errors ---- */

mica_status model_key_u32(const model *m, const char *name, uint32_t min, uint32_t max, uint32_t *out,
                          mica_error *err);
mica_status model_key_u32_or(const model *m, const char *name, uint32_t max, uint32_t *inout,
                             mica_error *err);
mica_status model_key_eps(const model *m, float *out, mica_error *err); // of the norms, not negative
mica_status model_key_f32_or(const model *m, const char *name, float *inout, mica_error *err);
mica_status model_key_bool_or(const model *m, const char *name, bool *inout, mica_error *err);
/* A scalar for all layers, or an array of n_layer. A missing key leaves out[] as it is. */
mica_status model_key_layers(const model *m, const char *name, uint32_t max, uint32_t n_layer, uint32_t *out,
                             mica_error *err);
/* The first n of an array of integers of up to 64 bits. */
mica_status model_key_u64s(const model *m, const char *name, uint32_t n, uint64_t *out, mica_error *err);
/* The keys every family has: counts and lengths into m->shape (block_count into *n_block). */
mica_status model_keys_common(model *m, uint32_t *n_block, mica_error *err);

/* ---- tensors ---- */

typedef enum model_need { MODEL_NEEDED, MODEL_OPTIONAL } model_need;

/* A tensor by name: "blk.<layer>.<name>", or <name> alone when layer < 0, with its suffix. A vector has one
 * row. */
typedef struct tensor_want {
    int layer;
    const char *name;
    uint32_t n_row, n_col;
    model_need need;
} tensor_want;

/* A matrix for products. It gets its `.scale` when there is one (both spellings) and its `.bias` when there
 * is one; a
 * `.scale` of another shape is not a product's but the family's own. Missing and optional: w->w stays NULL.
 */
mica_status model_matrix(model *m, weight_ref *w, tensor_want want, mica_error *err);
/* Values as f32 on the device, whatever float type the file has: norms, and small matrices that kernels read
 * by element. Missing and optional: *v is NULL. */
mica_status model_vector(model *m, const float **v, tensor_want want, mica_error *err);
/* The same, each value times `factor`: what the forward pass would only multiply it by again and again. */
mica_status model_vector_scaled(model *m, const float **v, tensor_want want, float factor, mica_error *err);
/* Values on the host, into out[n_row * n_col], for tables that the host computes with; *found tells when
 * optional. */
mica_status model_vector_host(model *m, float *out, tensor_want want, bool *found, mica_error *err);
/* A table that is read by the row: n_read of its rows (at least want.n_row) a token. w->w stays the mapped
 * file: the system is told that reads are random, and no device takes it whole. */
mica_status model_table(model *m, weight_ref *w, tensor_want want, uint32_t n_read, mica_error *err);
/* Marks a tensor that is not used on purpose. */
void model_tensor_ignore(model *m, int layer, const char *name);
bool model_tensor_exists(const model *m, int layer, const char *name);

/* The experts of a layer: gate, up (or fused) and down, registered with the store under `layer`. */
typedef struct moe_weights {
    weight_ref router;         // [n_expert, n_embd]
    weight_ref gate, up, down; // of one expert; w NULL, bytes come through leases
} moe_weights;
mica_status model_experts_bind(model *m, moe_weights *w, int layer, uint32_t n_ff, mica_error *err);
mica_status model_experts_open(model *m, uint32_t n_layer,
                               mica_error *err); // before the first model_experts_bind

/* ---- scratch ---- */

struct carver {
    char *base; // NULL: count only
    size_t used_bytes;
};
void *carve(carver *c, size_t n_bytes); // aligned to 64; NULL when counting
float *carve_f32(carver *c, size_t n);
quant_act carve_act(carver *c, uint32_t n_row, uint32_t n_col);
quant_act carve_act_dense(carver *c, uint32_t n_row, uint32_t n_col); // the least stride: rows read as one

/* True when a product with w reads the int8 form of its input. */
bool model_wants_q(const weight_ref *w);

#endif
