/* What dev_gpu.c and gpu_graph.c share of a card. */
#ifndef MICA_GPU_OWN_H
#define MICA_GPU_OWN_H

#include "dev/gpu_drv.h"
#include "dev/gpu_int.h"

enum { GPU_STAGE_BYTES = 16 << 20, GPU_GRAPH_MAX = 32 };

typedef struct gpu_tiers gpu_tiers;

typedef struct bound_weight {
    const char *host; // borrowed from the mapping
    char *at;         // device
    size_t n_bytes;
} bound_weight;

/* A captured step. It is captured at its second time: what a driver loads at first use cannot be loaded
 * during a capture. */
typedef struct step_graph {
    dev_step key;
    void *exec;    // owned; NULL until it was captured
    uint64_t last; // step number of its last use
} step_graph;

typedef struct gpu_own {
    const gpu_drv *v;
    gpu_card card;
    uint64_t serial; // of this opening, never 0
    bool opened;
    void *ctx, *stream, *module;
    void *function[GPU_KERNEL_N];
    uint32_t shared_allowed[GPU_KERNEL_N]; // bytes of dynamic shared memory that may be asked for
    void **taken;                          // owned device memory, [n_taken]
    uint32_t n_taken, cap_taken;
    bound_weight *bound; // owned, [n_bound]
    uint32_t n_bound, cap_bound;
    void *stage[2];  // owned, pinned, GPU_STAGE_BYTES
    void *staged[2]; // owned events: the buffer was read
    uint32_t stage_next;
    uint32_t *bad_host;     // owned, pinned
    expert_source *experts; // borrowed
    gpu_tiers *tiers;       // owned: gpu_tiers.h; NULL without experts
    int n_thread;           // for what the host does beside the card
    step_graph graph[GPU_GRAPH_MAX];
    uint64_t n_step;
    step_graph *capturing; // of graph[], between begin and end
    void (*loaded)(void *user, uint64_t n_bytes);
    void *loaded_user;
    uint64_t loaded_bytes;
    void (*routed)(void *user, uint32_t layer, const int32_t *ids, uint32_t n);
    void *routed_user;
} gpu_own;

/* "device hip:0: what: the driver's word", with what a caller can do about rc. */
mica_status gpu_fail(gpu *g, int rc, mica_error *err, const char *what);
gpu_kind gpu_kind_of(dev_kind kind);
size_t dev_gpu_fixed_bytes(const dev_config *cfg, const gpu_card *card); // scratch of kernels
mica_status gpu_enter(gpu *g, mica_error *err);                          // the card is this thread's
mica_status gpu_take(gpu *g, void **out, size_t n, const char *what, mica_error *err); // not cleared
/* Bytes of the file to the card, a piece at a time through the pinned buffer that is free longest. */
mica_status gpu_put_file_bytes(gpu *g, void *dst, const void *host, size_t n, mica_error *err);
mica_status gpu_alloc(dev *d, void **out, size_t n_bytes, const char *what, mica_error *err);

/* ---- gpu_graph.c ---- */
mica_status gpu_step_begin(dev *d, const dev_step *s, bool *done, mica_error *err);
mica_status gpu_step_end(dev *d, bool ok, mica_error *err);
void gpu_graphs_fini(gpu *g);

#endif
