/* Mixers: rope and the cache, attention, convolution, the delta rule. */
#include "dev/gpu_ops.h"

enum { DELTA_HEADS_MAX = 256 }; // value heads that scratch is for

mica_status gpu_op_rope_kv(dev *d, const rope_kv_args *a, mica_error *err) {
    gpu *g = (gpu *)d;
    uint32_t n_head = a->n_head + (a->k ? 2 * a->n_head_kv : 0);
    rope_kv_job j = {*a, gpu_bad(g, GPU_BAD_QUERY), gpu_bad(g, GPU_BAD_KEY)};
    return GPU_GO(g, rope_kv_rows, ((gpu_dims){gpu_ceil(n_head, ROPE_THREADS / 32), a->n_row, 1}),
                  ROPE_THREADS, &j);
}

/* ---- attention ---- */

enum { PART_ROWS = 8, PART_BLOCKS = 128 }; // scratch is for so many rows and blocks of positions at once

size_t gpu_attn_scratch(const dev_limits *m) {
    return (size_t)PART_ROWS * PART_BLOCKS * m->n_head * (m->d_head + 2) * sizeof(float);
}

/* Blocks of positions beside each other when rows alone leave the card idle and scratch holds the parts. */
static bool attn_by_parts(const gpu *g, const attn_args *a, uint32_t n_group, uint32_t n_part) {
    size_t n_bytes = (size_t)a->n_row * a->n_head * n_part * (a->d_v + 2) * sizeof(float);
    return n_part > 1 && n_bytes <= g->scratch_bytes && a->n_row * n_group < 8 * g->caps.n_mp;
}

mica_status gpu_op_attn(dev *d, const attn_args *a, mica_error *err) {
    gpu *g = (gpu *)d;
    if (a->d_k > ATTN_DIM_MAX || a->d_v > ATTN_DIM_MAX)
        return fail(err, MICA_E_UNSUPPORTED, "attention: heads of %u and %u: a card takes %d", a->d_k, a->d_v,
                    ATTN_DIM_MAX);
    uint32_t n_group = gpu_ceil(a->n_head / a->n_head_kv, ATTN_HEADS) * a->n_head_kv;
    uint32_t n_part = gpu_ceil(g->n_kv, KV_PAGE);
    if (a->window && a->window / KV_PAGE + 2 < n_part) n_part = a->window / KV_PAGE + 2;
    attn_job j = {*a, g->scratch, n_part, gpu_bad(g, GPU_BAD_ATTN)};
    bool apart = a->want_q && a->d_v % 32 != 0; // heads share blocks of activations
    if (apart) j.a.want_q = 0;
    if (attn_by_parts(g, a, n_group, n_part)) {
        TRY(GPU_GO(g, attn_part, ((gpu_dims){n_part, n_group, a->n_row}), ATTN_THREADS, &j));
        TRY(GPU_GO(g, attn_join, ((gpu_dims){a->n_head, a->n_row, gpu_ceil(a->d_v, JOIN_THREADS)}),
                   JOIN_THREADS, &j));
    } else {
        TRY(GPU_GO(g, attn_rows, ((gpu_dims){n_group, a->n_row, 1}), ATTN_THREADS, &j));
    }
    return apart ? gpu_quantise(g, &a->o, a->n_row, a->n_head * a->d_v, GPU_BAD_ATTN, err) : MICA_OK;
}

/* ---- recurrent mixers ---- */

mica_status gpu_op_conv(dev *d, const conv_args *a, mica_error *err) {
    gpu *g = (gpu *)d;
    uint32_t n_col = gpu_ceil(a->n_col, CONV_THREADS), n_keep = a->n_row < CONV_RING ? a->n_row : CONV_RING;
    TRY(GPU_GO(g, conv_rows, ((gpu_dims){n_col, a->n_row, 1}), CONV_THREADS, a));
    return GPU_GO(g, conv_keep, ((gpu_dims){n_col, n_keep, a->n_run}), CONV_THREADS, a);
}

size_t gpu_delta_scratch(const dev_limits *m) {
    return (size_t)m->n_row * DELTA_HEADS_MAX * 2 * sizeof(float);
}

/* The kernel for keys of d_k; GPU_KERNEL_N when there is none. */
static gpu_kernel delta_kernel(uint32_t d_k) {
    switch (d_k) {
    case 16: return GPU_K_delta_runs_4;
    case 32: return GPU_K_delta_runs_8;
    case 64: return GPU_K_delta_runs_16;
    case 128: return GPU_K_delta_runs_32;
    case 256: return GPU_K_delta_runs_64;
    default: return GPU_KERNEL_N;
    }
}

mica_status gpu_op_delta(dev *d, const delta_args *a, mica_error *err) {
    gpu *g = (gpu *)d;
    gpu_kernel k = delta_kernel(a->d_k);
    gpu_cutter c = {g->scratch, 0, g->scratch_bytes};
    delta_job j = {*a, gpu_cut(&c, (size_t)a->n_row * a->n_v * 2 * sizeof(float))};
    if (k == GPU_KERNEL_N || c.at > c.n_bytes)
        return fail(err, MICA_E_UNSUPPORTED,
                    "delta rule: keys of %u, %u heads: a card takes 16, 32, 64, 128 or 256, %d heads", a->d_k,
                    a->n_v, DELTA_HEADS_MAX);
    gpu_dims prepare = {gpu_ceil(2 * a->n_k + 1, ROW_THREADS / 32), a->n_row, 1};
    TRY(GPU_GO(g, delta_prepare, prepare, ROW_THREADS, &j));
    gpu_dims grid = {gpu_ceil(a->d_v, DELTA_COLS), a->n_v, a->n_run};
    return GPU_GO_KERNEL(g, k, grid, DELTA_THREADS, &j);
}
