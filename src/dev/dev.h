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

/* ---- a mixture larger than a card's memory ----
 *
 * A card has slots for experts, in slabs of equal ones; what is in no slot it reads over its link, where it
 * stands in memory. Both give the same bits. After every layer is bound:
 *
 *     TRY(dev_experts_take(d, &slabs, err));             // memory is taken: so many slots as slabs says
 *     TRY(dev_experts_fill(d, moves, n, err));           // those in slots first, then the rest
 *     dev_experts_move(d, moves, n);                     // between steps: bytes travel beside them
 *     n = dev_experts_moved(d, moves, max);              // those that arrived since
 *
 * Devices in host memory have no slab: their experts stay where the source has them. */
enum { EXPERT_LAYERS_MAX = 512, EXPERT_SLABS_MAX = 16, EXPERT_MOVES_MAX = 32 };
#define EXPERT_NOBODY UINT32_MAX

typedef enum dev_expert_ram {
    EXPERT_RAM_ALL,        // copies of all, so that who leaves a slot need not be copied
    EXPERT_RAM_COMPLEMENT, // what no slot holds: who comes and who leaves change places
    EXPERT_RAM_MMAP        // the file's own pages where the driver takes them, else as COMPLEMENT
} dev_expert_ram;

/* Layers share the slots of a slab. */
typedef struct dev_expert_slabs {
    uint32_t n_slab, n_layer;              // n_layer: beyond the last with experts
    uint32_t slab_of[EXPERT_LAYERS_MAX];   // EXPERT_NOBODY: no experts
    uint64_t blob_bytes[EXPERT_SLABS_MAX]; // of a slot: the dev_expert_room of all three matrices, at least
    uint32_t n_slot[EXPERT_SLABS_MAX];
    uint64_t ring_bytes; // that long prompts stream through, when not every expert has a slot
    dev_expert_ram ram;  // how the others are held; dev_experts_take says how it came to be
} dev_expert_slabs;

/* Who comes to a slot, and who leaves it. */
typedef struct dev_expert_move {
    uint32_t layer, expert;
    uint32_t out_layer, out_expert; // out_layer EXPERT_NOBODY: the slot was empty
    uint32_t slab, slot;
} dev_expert_move;

/* Since the device was opened. A use is a row's choice of an expert. */
typedef struct dev_expert_stats {
    uint64_t n_use, n_hit;
    uint64_t link_bytes, cpu_bytes; // read over the link by kernels; computed where they are
    uint64_t moved_bytes;           // into slots, and out of them
    uint64_t stream_bytes;          // through the ring
    uint64_t ssd_bytes;             // read from the file; by the store, not by a device
    uint32_t n_slot, n_slot_full;
} dev_expert_stats;

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
    /* The experts of a layer can be leased from now on. */
    mica_status (*experts_bind)(dev *d, const dev_expert_shape *s, mica_error *err);
    mica_status (*experts_take)(dev *d, dev_expert_slabs *s, mica_error *err);
    mica_status (*experts_fill)(dev *d, const dev_expert_move *m, uint32_t n, mica_error *err);
    uint32_t (*experts_move)(dev *d, const dev_expert_move *m, uint32_t n); // how many it began
    uint32_t (*experts_moved)(dev *d, dev_expert_move *out, uint32_t max);
    void (*experts_stats)(dev *d, dev_expert_stats *out);
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
static inline mica_status dev_experts_take(dev *d, dev_expert_slabs *s, mica_error *err) {
    return d->ops->experts_take(d, s, err);
}
static inline mica_status dev_experts_fill(dev *d, const dev_expert_move *m, uint32_t n, mica_error *err) {
    return d->ops->experts_fill(d, m, n, err);
}
static inline uint32_t dev_experts_move(dev *d, const dev_expert_move *m, uint32_t n) {
    return d->ops->experts_move(d, m, n);
}
static inline uint32_t dev_experts_moved(dev *d, dev_expert_move *out, uint32_t max) {
    return d->ops->experts_moved(d, out, max);
}
static inline void dev_experts_stats(dev *d, dev_expert_stats *out) {
    d->ops->experts_stats(d, out);
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
