/* Operations that go over rows element by element: their records and grids. The kernels' head comments say
 * what a grid is. */
#include "dev/gpu_ops.h"

size_t gpu_scratch_bytes(const dev_limits *m, const gpu_caps *c) {
    (void)c;
    size_t n = gpu_experts_scratch(m), attn = gpu_attn_scratch(m), delta = gpu_delta_scratch(m);
    n = attn > n ? attn : n;
    return delta > n ? delta : n;
}

#define EMBED_ENTRY(TYPE, name) [GGUF_##TYPE] = GPU_K_embed_##name,
static const gpu_kernel g_embed[GGUF_TYPE_N] = {GPU_TYPES(EMBED_ENTRY)};
#undef EMBED_ENTRY

mica_status gpu_op_embed(dev *d, const embed_args *a, mica_error *err) {
    bool quant = gguf_type_get(a->table.type)->cls == GGUF_CLASS_QUANT;
    uint32_t n = quant ? a->table.n_col / 32 : a->table.n_col;
    gpu_dims grid = {gpu_ceil(n, EMBED_THREADS), a->n_row, 1};
    return GPU_GO_KERNEL((gpu *)d, g_embed[a->table.type], grid, EMBED_THREADS, a);
}

mica_status gpu_op_norm(dev *d, const norm_args *a, mica_error *err) {
    gpu *g = (gpu *)d;
    norm_job j = {*a, gpu_bad(g, GPU_BAD_NORM)};
    return GPU_GO(g, norm_rows, ((gpu_dims){a->n_row, 1, 1}), NORM_THREADS, &j);
}

mica_status gpu_quantise(gpu *g, const quant_act *a, uint32_t n_row, uint32_t n_col, uint32_t what,
                         mica_error *err) {
    quantise_job j = {{*a, n_row, n_col}, gpu_bad(g, what)};
    return GPU_GO(g, quantise_rows, ((gpu_dims){gpu_ceil(n_col, ROW_THREADS), n_row, 1}), ROW_THREADS, &j);
}

mica_status gpu_op_quantise(dev *d, const quantise_args *a, mica_error *err) {
    return gpu_quantise((gpu *)d, &a->a, a->n_row, a->n_col, GPU_BAD_ACT, err);
}

mica_status gpu_op_add_norm(dev *d, const add_norm_args *a, mica_error *err) {
    return GPU_GO((gpu *)d, add_norm_rows, ((gpu_dims){a->n_row, 1, 1}), NORM_THREADS, a);
}

mica_status gpu_op_rope_table(dev *d, const rope_table_args *a, mica_error *err) {
    return GPU_GO((gpu *)d, rope_table_rows, ((gpu_dims){gpu_ceil(a->n_pair, EMBED_THREADS), a->n_row, 1}),
                  EMBED_THREADS, a);
}

mica_status gpu_op_glu(dev *d, const glu_args *a, mica_error *err) {
    gpu *g = (gpu *)d;
    glu_job j = {*a, gpu_bad(g, GPU_BAD_GLU)};
    return GPU_GO(g, glu_rows, ((gpu_dims){gpu_ceil(a->n_col, ROW_THREADS), a->n_row, 1}), ROW_THREADS, &j);
}

mica_status gpu_op_router(dev *d, const router_args *a, mica_error *err) {
    gpu *g = (gpu *)d;
    if (a->n_expert > ROUTER_EXPERTS_MAX || a->n_used > ROUTER_USED_MAX)
        return fail(err, MICA_E_UNSUPPORTED, "router: %u of %u experts: a card takes %d of %d", a->n_used,
                    a->n_expert, ROUTER_USED_MAX, ROUTER_EXPERTS_MAX);
    router_job j = {*a, gpu_bad(g, GPU_BAD_ROUTER)};
    return GPU_GO(g, router_rows, ((gpu_dims){gpu_ceil(a->n_row, 2), 1, 1}), ROUTER_THREADS, &j);
}

/* Groups that are no multiple of 32 long share blocks of activations: those are quantised afterwards. */
mica_status gpu_op_gate_norm(dev *d, const gate_norm_args *a, mica_error *err) {
    gpu *g = (gpu *)d;
    gate_norm_job j = {*a, gpu_bad(g, GPU_BAD_DELTA)};
    bool apart = a->want_q && a->n_col % 32 != 0;
    if (apart) j.a.want_q = 0;
    TRY(GPU_GO(g, gate_norm_rows, ((gpu_dims){gpu_ceil(a->n_group, ROW_THREADS / 32), a->n_row, 1}),
               ROW_THREADS, &j));
    return apart ? gpu_quantise(g, &a->y, a->n_row, a->n_group * a->n_col, GPU_BAD_DELTA, err) : MICA_OK;
}

mica_status gpu_op_gated_add(dev *d, const gated_add_args *a, mica_error *err) {
    return GPU_GO((gpu *)d, gated_add_rows, ((gpu_dims){gpu_ceil(a->n_col, ROW_THREADS), a->n_row, 1}),
                  ROW_THREADS, a);
}

mica_status gpu_op_softcap(dev *d, const softcap_args *a, mica_error *err) {
    uint32_t n = (uint32_t)((a->n + ROW_THREADS - 1) / ROW_THREADS);
    return GPU_GO((gpu *)d, softcap_values, ((gpu_dims){n, 1, 1}), ROW_THREADS, a);
}

mica_status gpu_op_scale(dev *d, const scale_args *a, mica_error *err) {
    uint32_t n = (uint32_t)((a->n + ROW_THREADS - 1) / ROW_THREADS);
    return GPU_GO((gpu *)d, scale_values, ((gpu_dims){n, 1, 1}), ROW_THREADS, a);
}
