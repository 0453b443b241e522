/* What the files of gpu_ops*.c share: launches by row, and pieces of scratch. */
#ifndef MICA_GPU_OPS_H
#define MICA_GPU_OPS_H

#include "dev/gpu_int.h"
#include "kern/record.h"

/* One launch; nothing when the grid is empty. */
static inline mica_status gpu_go(gpu *g, const gpu_call *c, mica_error *err) {
    if (c->grid.x == 0 || c->grid.y == 0 || c->grid.z == 0) return MICA_OK;
    return gpu_launch(g, c, err);
}
/* record: a pointer to what the kernel takes. */
#define GPU_GO_KERNEL(g, kernel, grid, n_thread, record)                                                     \
    gpu_go(g, &(gpu_call){kernel, grid, {n_thread, 1, 1}, 0, record, sizeof *(record)}, err)
#define GPU_GO(g, name, grid, n_thread, record) GPU_GO_KERNEL(g, GPU_K_##name, grid, n_thread, record)

static inline uint32_t gpu_ceil(uint32_t a, uint32_t b) {
    return a / b + (a % b != 0);
}

/* X(TYPE, name): every type that weights may have. */
#define GPU_TYPES(X)                                                                                         \
    X(F32, f32)                                                                                              \
    X(F16, f16)                                                                                              \
    X(BF16, bf16) X(Q4_0, q4_0) X(Q4_1, q4_1) X(Q5_0, q5_0) X(Q5_1, q5_1) X(Q8_0, q8_0) X(Q2_K, q2_k)        \
        X(Q3_K, q3_k) X(Q4_K, q4_k) X(Q5_K, q5_k) X(Q6_K, q6_k) X(IQ2_XXS, iq2_xxs) X(IQ2_XS, iq2_xs)        \
            X(IQ3_XXS, iq3_xxs) X(IQ1_S, iq1_s) X(IQ4_NL, iq4_nl) X(IQ3_S, iq3_s) X(IQ2_S, iq2_s)            \
                X(IQ4_XS, iq4_xs) X(IQ1_M, iq1_m) X(TQ1_0, tq1_0) X(TQ2_0, tq2_0) X(MXFP4, mxfp4)            \
                    X(NVFP4, nvfp4) X(Q1_0, q1_0) X(Q2_0, q2_0)

static inline bad_note gpu_bad(gpu *g, uint32_t what) {
    return (bad_note){g->bad, what};
}

/* Scratch is cut from its beginning by each operation. It was enough when at <= n_bytes in the end; base NULL
 * only counts. */
typedef struct gpu_cutter {
    void *base;
    size_t at, n_bytes;
} gpu_cutter;
static inline void *gpu_cut(gpu_cutter *c, size_t n_bytes) {
    size_t from = c->at;
    c->at = (from + n_bytes + 255) & ~(size_t)255;
    return c->base ? (char *)c->base + from : NULL;
}

mica_status gpu_quantise(gpu *g, const quant_act *a, uint32_t n_row, uint32_t n_col, uint32_t what,
                         mica_error *err);

/* Scratch of operations within the limits. */
size_t gpu_experts_scratch(const dev_limits *m);
size_t gpu_attn_scratch(const dev_limits *m);
size_t gpu_delta_scratch(const dev_limits *m);

#endif
