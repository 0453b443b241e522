/* A network: the file's tensors bound to a device by meaning, and its forward pass over one batch.
 *
 *     model *m;  TRY(model_open(&m, g, err));           // header only: shape, families, nothing bound
 *     ... plan from model_shape_of(m) and model_scratch_bytes(m, n_row, n_out) ...
 *     TRY(model_bind(m, d, err));                       // every tensor of the file accounted for
 *     model_scratch_set(m, scratch, n_row, n_out, n_seq); // device memory of model_scratch_bytes
 *     TRY(model_forward(m, &step, err));                // enqueues; dev_sync tells how it went
 *
 * A family is one file (src/model/<family>.c): a flat list of dev_* calls in the words of docs/MODELS.md. It
 * never learns where it runs or where weights live. Threads: worker only. Ownership: the gguf_file and the
 * dev are borrowed and outlive the model. */
#ifndef MICA_MODEL_H
#define MICA_MODEL_H

#include "dev/dev.h"
#include "gguf/gguf.h"
#include "store/store.h"

enum { MODEL_LAYER_MAX = 512, MODEL_PAGE_GROUPS = 2 };

/* Which pages a layer's cache lives in: layers that see everything, and layers with a sliding window (a
 * ring). */
typedef enum kv_group { KV_GROUP_FULL, KV_GROUP_WINDOW } kv_group;

typedef struct kv_spec {
    uint32_t n_head_kv; // 0: the layer has no cache of its own
    uint32_t d_k, d_v;
    kv_group group;
    uint32_t d_index, index_ratio; // values of a block's index key, positions of a block; 0: no index
} kv_spec;

/* What the rest of the program must know of a network, whatever its family. */
typedef struct model_shape {
    char arch[32];
    uint32_t n_layer; // with a cache or state of their own, draft layers included
    uint32_t n_embd, n_vocab, n_ctx_train;
    uint32_t n_expert, n_expert_used;
    uint32_t window; // of KV_GROUP_WINDOW layers, 0: none
    uint64_t n_param;
    uint64_t weight_bytes;                     // all tensors
    uint64_t expert_bytes;                     // of these, experts of all layers
    uint64_t table_bytes;                      // and tables that are read by the row: they stay in the file
    uint64_t n_expert_all;                     // experts over all layers
    uint64_t bytes_per_token;                  // of weights a decoded token reads
    dev_expert_shape experts[MODEL_LAYER_MAX]; // one expert of each layer; n_expert 0: it has none
    bool has_draft;                            // a draft block of its own (NextN, MTP)
    uint64_t state_floats; // recurrent state of one sequence, 0: none; its layout is the family's own
    kv_spec kv[MODEL_LAYER_MAX];
    dev_limits limits; // of the widest call, n_row excepted
} model_shape;

/* One batch. Pointers are device memory. Rows of the prompt role come first. */
typedef struct model_step {
    const row_info *rows;    // [n_row]
    const int32_t *out_rows; // [n_out] rows whose logits are wanted, ascending
    const kv_layer *kv;      // [n_layer], host array of device pointers
    kv_pages pages[MODEL_PAGE_GROUPS];
    const row_run *runs;      // [n_run] the batch by sequence
    float *state;             // [n_seq, shape.state_floats]
    float *logits;            // [n_out, n_vocab], overwritten
    uint32_t n_row, n_prompt; // rows in all, of them prompt role
    uint32_t n_out, n_out_prompt;
    uint32_t n_run;
} model_step;

/* Rows for the draft block: token x at position p + 1 of the trunk together with the trunk's output h at p,
 * as position p. */
typedef struct draft_step {
    const row_info *rows; // [n_row], .pos = p
    const int32_t
        *h_row; // [n_row] rows of the trunk's last step, or n_row_max + sequence: model_draft_recall
    const kv_layer *kv;
    kv_pages pages;
    float *logits;           // [n_out, n_vocab]
    const int32_t *out_rows; // [n_out]
    bool chain;              // h_row names wanted rows of the draft block's call before, not the trunk's
    uint32_t n_row, n_prompt, n_out;
} draft_step;

typedef struct model model;

/* Adds the draft blocks of a file of their own (same architecture, blocks numbered after g's) to g, before
 * model_open. MICA_E_ARG: not the draft blocks of this model. g is only fit to be closed after an error. */
mica_status model_draft_join(gguf_file *g, const char *path, mica_error *err);

mica_status model_open(model **out, const gguf_file *g,
                       mica_error *err); // MICA_E_UNSUPPORTED names the architecture
void model_close(model *m);              // accepts NULL
const model_shape *model_shape_of(const model *m);
expert_source *model_experts(model *m); // NULL without experts; borrowed
store *model_store(model *m);           // the same as where they live
size_t model_scratch_bytes(model *m, uint32_t n_row, uint32_t n_out, uint32_t n_seq);
mica_status model_bind(model *m, dev *d, mica_error *err);
void model_unbind(model *m); // what it has on the device is given back; accepts NULL
void model_scratch_set(model *m, void *scratch, uint32_t n_row, uint32_t n_out, uint32_t n_seq);
mica_status model_forward(model *m, const model_step *step, mica_error *err);
/* The trunk's outputs of a step are kept for the draft block from now on. Before model_scratch_bytes. */
void model_draft_enable(model *m);
mica_status model_draft_forward(model *m, const draft_step *step, mica_error *err);
/* Remembers h of `row` of the last step in the sequence's state: the pair of its next token, in a later step.
 * And the way back: puts what was remembered where h_row n_row_max + seq reads it. */
mica_status model_draft_keep(model *m, const model_step *step, int32_t seq, uint32_t row, mica_error *err);
mica_status model_draft_recall(model *m, const model_step *step, int32_t seq, mica_error *err);

#endif
