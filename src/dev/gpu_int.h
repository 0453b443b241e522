/* Inside the room: a graphics card as a device of the seam. Three parts meet here.
 *
 *     dev_gpu.c      memory, weights, scratch, graphs, the not-finite check; gpu_launch
 *     gpu_ops*.c     one function an operation: the kernel's record, its grid and block, gpu_launch
 *     gpu_drv.h      the driver below (hip, cuda, sim): bytes, streams, modules
 *
 *     mica_status gpu_op_scale(dev *d, const scale_args *a, mica_error *err) {
 *         return gpu_launch((gpu *)d, &(gpu_call){GPU_K_scale, {(a->n + 255) / 256, 1, 1}, {256, 1, 1}, 0, a,
 *                                                 sizeof *a}, err);
 *     }
 *
 * Kernels. src/kern/list.h names each once: GPU_KERNELS(X) is X(name) X(name) ...; the device symbol is the
 * name, and a kernel takes one struct by value (at most 4,096 bytes), the same bytes on host and device. All
 * device source is one translation unit, src/kern/all.cuh, which includes the others by their names from
 * src/ ("kern/norm.cuh", "kern/args.h", "quant/act.h", "base/exactf.h"); no system header is included when
 * MICA_DEVICE_SOURCE is defined. WAVE is 32 or 64. A block is a multiple of 64 threads.
 *
 * Threads: worker only. Launches are enqueued in one stream, in order; a later sync tells how they went. */
#ifndef MICA_GPU_INT_H
#define MICA_GPU_INT_H

#include "dev/dev_int.h"
#include "kern/list.h"

#define GPU_KERNEL_ID(name) GPU_K_##name,
typedef enum gpu_kernel { GPU_KERNELS(GPU_KERNEL_ID) GPU_KERNEL_N } gpu_kernel;
#undef GPU_KERNEL_ID

typedef struct gpu_dims {
    uint32_t x, y, z;
} gpu_dims;

typedef struct gpu_call {
    gpu_kernel kernel;
    gpu_dims grid, block; // blocks, threads of a block
    size_t shared_bytes;  // dynamic shared memory, beyond what the kernel declares
    const void *args;     // borrowed for the call: the kernel's one struct
    size_t args_bytes;
} gpu_call;

/* What launch geometry may depend on. */
typedef struct gpu_caps {
    char arch[32];          // "gfx1201", "sm_90", "sim"
    uint32_t wave;          // 32 or 64
    uint32_t n_mp;          // multiprocessors (compute units)
    uint32_t shared_bytes;  // of a block, at most
    uint32_t block_threads; // at most
    bool dot4, mma;         // 4-byte integer dot products; int8 and f16 matrix units
} gpu_caps;

/* Where the bytes of an expert are, [n_expert] a layer: device memory, or host memory mapped for the card. */
typedef struct gpu_expert {
    const void *gate, *up, *down;
} gpu_expert;

typedef struct gpu gpu;
struct gpu {
    dev d; // first: a dev * is a gpu *
    gpu_caps caps;
    dev_limits limits;
    void *scratch; // device, gpu_scratch_bytes of it: belongs to whichever operation runs
    size_t scratch_bytes;
    /* device, [1]: 0, or the GPU_BAD_* of a value that was not finite. A kernel that sees one writes it when
     * it is still 0 (any of several may win). dev_sync reads and clears it. */
    uint32_t *bad;
    /* No row of the running step sees more than this many positions: a power of two, at least KV_PAGE. Fixed
     * while a graph is captured and replayed, so grids may depend on it; positions themselves are read from
     * device memory. */
    uint32_t n_kv;
    struct gpu_own *own; // owned: what only dev_gpu.c needs
};

/* Where a value was not finite, and the texts of docs/ARITHMETIC.md's step errors, the same as the CPU's. */
#define GPU_BAD_LIST(X)                                                                                      \
    X(NORM, "norm")                                                                                          \
    X(ACT, "activations")                                                                                    \
    X(GLU, "glu")                                                                                            \
    X(QUERY, "query") X(KEY, "key or value") X(ATTN, "attention") X(EXPERT, "expert") X(ROUTER, "router")    \
        X(DELTA, "delta rule")
#define GPU_BAD_ID(id, text) GPU_BAD_##id,
enum { GPU_BAD_NONE, GPU_BAD_LIST(GPU_BAD_ID) GPU_BAD_N };
#undef GPU_BAD_ID

extern const char *const gpu_kernel_name[GPU_KERNEL_N];

/* Enqueues one kernel. MICA_E_DEVICE names kernel, grid and the driver's word for the failure. */
mica_status gpu_launch(gpu *g, const gpu_call *c, mica_error *err);
/* Where the experts of a layer are: device memory, [n_expert]. MICA_E_INTERNAL when they were not bound and
 * filled. */
mica_status gpu_experts_of(gpu *g, uint32_t layer, const gpu_expert **out, mica_error *err);
mica_status gpu_experts_used(gpu *g, uint32_t layer,
                             mica_error *err); // the kernels that read them are enqueued
/* Where the layer's rows say which experts they chose: [limits.n_row, limits.n_expert_used]. */
int32_t *gpu_experts_log(gpu *g, uint32_t layer);

/* ---- gpu_ops*.c ---- */

size_t gpu_scratch_bytes(const dev_limits *m, const gpu_caps *c); // for every operation within the limits

mica_status gpu_op_embed(dev *d, const embed_args *a, mica_error *err);
mica_status gpu_op_norm(dev *d, const norm_args *a, mica_error *err);
mica_status gpu_op_quantise(dev *d, const quantise_args *a, mica_error *err);
mica_status gpu_op_add_norm(dev *d, const add_norm_args *a, mica_error *err);
mica_status gpu_op_linear(dev *d, const linear_args *a, mica_error *err);
mica_status gpu_op_rope_table(dev *d, const rope_table_args *a, mica_error *err);
mica_status gpu_op_rope_kv(dev *d, const rope_kv_args *a, mica_error *err);
mica_status gpu_op_attn(dev *d, const attn_args *a, mica_error *err);
mica_status gpu_op_glu(dev *d, const glu_args *a, mica_error *err);
mica_status gpu_op_router(dev *d, const router_args *a, mica_error *err);
mica_status gpu_op_experts(dev *d, const experts_args *a, mica_error *err);
mica_status gpu_op_conv(dev *d, const conv_args *a, mica_error *err);
mica_status gpu_op_delta(dev *d, const delta_args *a, mica_error *err);
mica_status gpu_op_gate_norm(dev *d, const gate_norm_args *a, mica_error *err);
mica_status gpu_op_gated_add(dev *d, const gated_add_args *a, mica_error *err);
mica_status gpu_op_softcap(dev *d, const softcap_args *a, mica_error *err);
mica_status gpu_op_scale(dev *d, const scale_args *a, mica_error *err);

#endif
