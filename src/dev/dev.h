/* The device seam: what a network asks of the machine it runs on, at the level a paper names things.
 *
 *     dev *d;  TRY(dev_open(&d, &cfg, err));
 *     TRY(dev_norm(d, &(norm_args){...}, err));  TRY(dev_linear(d, &(linear_args){...}, err));  ...
 *     TRY(dev_sync(d, err));                     // everything above is done, or this says what went wrong
 *
 * The caller never learns which device it is: src/model has no #if and no device name. Calls are enqueued in
 * order; on the CPU they are done on return. Argument records are kern/args.h; each names shapes, and every
 * device computes the same bits (docs/ARITHMETIC.md). Nothing allocates but dev_open, dev_alloc and dev_bind.
 * Threads: worker only. Ownership: pointers from dev_alloc and dev_bind belong to the device until
 * dev_release or close. */
#ifndef MICA_DEV_H
#define MICA_DEV_H

#include "base/cpu.h"
#include "base/status.h"
#include "kern/args.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct dev dev;

/* The bytes of one expert. Borrowed until the release. */
typedef struct expert_lease {
    const void *gate, *up, *down; // [n_ff, n_embd], [n_ff, n_embd], [n_embd, n_ff]
    uint32_t layer, expert;
} expert_lease;

/* Where experts come from; src/store implements it. A successful acquire pins the bytes and is paid back by
 * exactly one release, also on errors. will_need is advice for the experts of one call: it holds nothing and
 * may do nothing. */
typedef struct expert_source expert_source;
struct expert_source {
    mica_status (*acquire)(expert_source *s, uint32_t layer, uint32_t expert, expert_lease *out,
                           mica_error *err);
    void (*release)(expert_source *s, expert_lease *lease);
    void (*will_need)(expert_source *s, uint32_t layer, const int32_t *experts, uint32_t n);
};

typedef enum dev_kind { DEV_REF, DEV_CPU, DEV_HIP, DEV_CUDA, DEV_SIM } dev_kind;

/* What a step is to a device that may record it once and replay it: everything that the calls of a step
 * depend on beside what is in device memory. */
typedef struct dev_step {
    uint32_t n_row, n_prompt, n_out, n_out_prompt, n_run;
    uint32_t n_kv; // no row sees more positions than this
    uint32_t part; // 0: the network itself; other numbers: other lists of calls
} dev_step;

/* Bytes of each matrix of one expert of a layer. */
typedef struct dev_expert_shape {
    uint32_t layer, n_expert;
    size_t gate_bytes, up_bytes, down_bytes;
} dev_expert_shape;

/* A matrix of an expert in a card's memory begins at a multiple of 256. */
static inline size_t dev_expert_room(size_t n_bytes) {
    return (n_bytes + 255) & ~(size_t)255;
}

/* The largest call a device will see: scratch is taken for it once, in dev_open. */
typedef struct dev_limits {
    uint32_t n_row;          // rows of a batch
    uint32_t n_col;          // inputs of any product
    uint32_t n_out;          // outputs of any product
    uint32_t n_head, d_head; // query heads; the largest of any d_k and d_v, recurrent ones included
    uint32_t n_expert, n_expert_used, n_embd, n_ff_expert; // 0 without experts
    uint32_t n_index_keep; // blocks that attention with an index keeps, 0: none has one
} dev_limits;

typedef struct dev_config {
    dev_kind kind;
    cpu_isa isa;  // cap for DEV_CPU; DEV_REF is always scalar
    int n_thread; // >= 1
    int card;     // which of DEV_HIP, DEV_CUDA, DEV_SIM
    dev_limits limits;
    expert_source *experts; // borrowed, NULL without experts
    /* Told, while weights go to a card, how many bytes are there; NULL: nobody asks. */
    void (*loaded)(void *user, uint64_t n_bytes);
    void *loaded_user;
    /* Told which experts rows chose: ids [n], n_used a row, in the rows' order. Host devices tell as they
     * compute, cards in dev_sync of the steps before. NULL: nobody asks. */
    void (*routed)(void *user, uint32_t layer, const int32_t *ids, uint32_t n);
    void *routed_user;
} dev_config;

typedef struct dev_ops {
    const char *name; // "ref", "cpu", "gpu"
    void (*close)(dev *d);
    mica_status (*alloc)(dev *d, void **out, size_t n_bytes, const char *what, mica_error *err); // zeroed
    void (*release)(dev *d, void *p);
    /* Makes host bytes (borrowed, living as long as the device) readable by kernels. The CPU gives them back
     * as they are. */
    mica_status (*bind)(dev *d, const void **out, const void *host, size_t n_bytes, mica_error *err);
    /* The experts of a layer can be leased from now on: a card takes them all. */
    mica_status (*experts_bind)(dev *d, const dev_expert_shape *s, mica_error *err);
    /* Around the calls of a step. *done: a recording of the same step was replayed, nothing is to be called.
     * step_end comes always when step_begin succeeded and was not done; ok false: a call failed. */
    mica_status (*step_begin)(dev *d, const dev_step *s, bool *done, mica_error *err);
    mica_status (*step_end)(dev *d, bool ok, mica_error *err);
    mica_status (*upload)(dev *d, void *dst, const void *host, size_t n_bytes, mica_error *err);
    mica_status (*download)(dev *d, void *host, const void *src, size_t n_bytes, mica_error *err); // waits
    mica_status (*copy)(dev *d, void *dst, const void *src, size_t n_bytes,
                        mica_error *err); // may not overlap
    mica_status (*zero)(dev *d, void *dst, size_t n_bytes, mica_error *err);
    mica_status (*sync)(dev *d,
                        mica_error *err); // MICA_E_DEVICE also when a value of the step was not finite

    mica_status (*embed)(dev *d, const embed_args *a, mica_error *err);
    mica_status (*norm)(dev *d, const norm_args *a, mica_error *err);
    mica_status (*quantise)(dev *d, const quantise_args *a, mica_error *err);
    mica_status (*add_norm)(dev *d, const add_norm_args *a, mica_error *err);
    mica_status (*linear)(dev *d, const linear_args *a, mica_error *err);
    mica_status (*rope_table)(dev *d, const rope_table_args *a, mica_error *err);
    mica_status (*rope_kv)(dev *d, const rope_kv_args *a, mica_error *err);
    mica_status (*attn)(dev *d, const attn_args *a, mica_error *err);
    mica_status (*glu)(dev *d, const glu_args *a, mica_error *err);
    mica_status (*router)(dev *d, const router_args *a, mica_error *err);
    mica_status (*experts)(dev *d, const experts_args *a, mica_error *err);
    mica_status (*conv)(dev *d, const conv_args *a, mica_error *err);
    mica_status (*delta)(dev *d, const delta_args *a, mica_error *err);
    mica_status (*gate_norm)(dev *d, const gate_norm_args *a, mica_error *err);
    mica_status (*gated_add)(dev *d, const gated_add_args *a, mica_error *err);
    mica_status (*group_norm)(dev *d, const group_norm_args *a, mica_error *err);
    mica_status (*silu)(dev *d, const silu_args *a, mica_error *err);
    mica_status (*spread)(dev *d, const spread_args *a, mica_error *err);
    mica_status (*hyper_read)(dev *d, const hyper_read_args *a, mica_error *err);
    mica_status (*hyper_write)(dev *d, const hyper_write_args *a, mica_error *err);
    mica_status (*index_keys)(dev *d, const index_keys_args *a, mica_error *err);
    mica_status (*index_select)(dev *d, const index_select_args *a, mica_error *err);
    mica_status (*ngram)(dev *d, const ngram_args *a, mica_error *err);
    mica_status (*ngram_gate)(dev *d, const ngram_gate_args *a, mica_error *err);
    mica_status (*add)(dev *d, const add_args *a, mica_error *err);
    mica_status (*softcap)(dev *d, const softcap_args *a, mica_error *err);
    mica_status (*scale)(dev *d, const scale_args *a, mica_error *err);
} dev_ops;

struct dev {
    const dev_ops *ops; // set once by dev_open, never NULL
    char what[200];     // for people: processor, instruction set, threads
};

mica_status dev_open(dev **out, const dev_config *cfg, mica_error *err);
void dev_close(dev *d); // accepts NULL

/* Memory of a graphics card, and what dev_open takes of it for itself. MICA_E_DEVICE: it cannot be used. */
typedef struct dev_memory {
    char id[16]; // "hip:0"
    uint64_t total_bytes, free_bytes, fixed_bytes;
    bool display;    // a screen is connected to it
    bool integrated; // its memory is RAM
} dev_memory;
mica_status dev_memory_get(dev_memory *out, const dev_config *cfg, mica_error *err);
/* The device for "auto": the best card that can be used, else DEV_CPU. why: "" or a line on what keeps a card
 * of this machine from being used. */
void dev_choose(dev_kind *kind, int *card, char *why, size_t n_why);

#define DEV_CALL(op)                                                                                         \
    static inline mica_status dev_##op(dev *d, const op##_args *a, mica_error *err) {                        \
        return d->ops->op(d, a, err);                                                                        \
    }
DEV_CALL(embed)
DEV_CALL(norm)
DEV_CALL(quantise)
DEV_CALL(add_norm)
DEV_CALL(linear)
DEV_CALL(rope_table)
DEV_CALL(rope_kv)
DEV_CALL(attn)
DEV_CALL(glu)
DEV_CALL(router)
DEV_CALL(experts)
DEV_CALL(conv)
DEV_CALL(delta)
DEV_CALL(gate_norm)
DEV_CALL(gated_add)
DEV_CALL(group_norm)
DEV_CALL(silu)
DEV_CALL(spread)
DEV_CALL(hyper_read)
DEV_CALL(hyper_write)
DEV_CALL(index_keys)
DEV_CALL(index_select)
DEV_CALL(ngram)
DEV_CALL(ngram_gate)
DEV_CALL(add)
DEV_CALL(softcap)
DEV_CALL(scale)
#undef DEV_CALL

static inline mica_status dev_alloc(dev *d, void **out, size_t n_bytes, const char *what, mica_error *err) {
    return d->ops->alloc(d, out, n_bytes, what, err);
}
static inline void dev_release(dev *d, void *p) {
    d->ops->release(d, p);
}
static inline mica_status dev_bind(dev *d, const void **out, const void *host, size_t n_bytes,
                                   mica_error *err) {
    return d->ops->bind(d, out, host, n_bytes, err);
}
static inline mica_status dev_experts_bind(dev *d, const dev_expert_shape *s, mica_error *err) {
    return d->ops->experts_bind(d, s, err);
}
static inline mica_status dev_step_begin(dev *d, const dev_step *s, bool *done, mica_error *err) {
    return d->ops->step_begin(d, s, done, err);
}
static inline mica_status dev_step_end(dev *d, bool ok, mica_error *err) {
    return d->ops->step_end(d, ok, err);
}
static inline mica_status dev_upload(dev *d, void *dst, const void *host, size_t n_bytes, mica_error *err) {
    return d->ops->upload(d, dst, host, n_bytes, err);
}
static inline mica_status dev_download(dev *d, void *host, const void *src, size_t n_bytes, mica_error *err) {
    return d->ops->download(d, host, src, n_bytes, err);
}
static inline mica_status dev_copy(dev *d, void *dst, const void *src, size_t n_bytes, mica_error *err) {
    return d->ops->copy(d, dst, src, n_bytes, err);
}
static inline mica_status dev_zero(dev *d, void *dst, size_t n_bytes, mica_error *err) {
    return d->ops->zero(d, dst, n_bytes, err);
}
static inline mica_status dev_sync(dev *d, mica_error *err) {
    return d->ops->sync(d, err);
}

#endif
