/* Products with weights, and mixtures of experts made of them.
 *
 * A call's outputs are sorted by type of weights: one launch a type and role, whose grid has the rows of all
 * its outputs side by side. Experts are the same kernels over pairs (row, chosen expert): gate and up, the
 * gated unit, down, the sum; in the prompt role pairs are sorted by expert first, so that tiles are full. */
#include "dev/gpu_ops.h"

enum { PAIRS_MAX = 32768 }; // pairs of a call that scratch is for, at most

typedef struct type_kernels {
    gpu_kernel token[3]; // for 1, 4, 8 rows of activations
    gpu_kernel prompt;
} type_kernels;

#define TYPE_ENTRY(TYPE, name)                                                                               \
    [GGUF_##TYPE] = {{GPU_K_token_##name##_1, GPU_K_token_##name##_4, GPU_K_token_##name##_8},               \
                     GPU_K_prompt_##name},
static const type_kernels g_types[GGUF_TYPE_N] = {GPU_TYPES(TYPE_ENTRY)};
#undef TYPE_ENTRY

/* The first block of each output; returns how many there are. */
static uint32_t blocks_of(linear_job *j, uint32_t rows_a_block) {
    uint32_t n = 0;
    for (uint32_t k = 0; k < j->n_out; k++) {
        j->first[k] = n;
        n += gpu_ceil(j->out[k].w.n_row, rows_a_block);
    }
    return n;
}

/* Rows of weights that a group of lanes takes when there is one row of activations. */
static uint32_t rows_a_group(uint32_t type) {
    switch (type) {
    case GGUF_Q4_K: return PAIR_ROWS_Q4_K;
    case GGUF_Q5_K: return PAIR_ROWS_Q5_K;
    case GGUF_Q6_K: return PAIR_ROWS_Q6_K;
    default: return 1;
    }
}

/* Rows of activations that a group takes at most, of the TOKEN_ROWS of a block. */
static uint32_t acts_a_group(uint32_t type) {
    bool pair = type == GGUF_Q4_K || type == GGUF_Q5_K || type == GGUF_Q6_K;
    return pair ? PAIR_ACTS : TOKEN_ROWS;
}

static mica_status token_launch(gpu *g, linear_job *j, mica_error *err) {
    const weight_ref *w = &j->out[0].w;
    static const uint32_t rows[3] = {1, 4, 8};
    bool quant = gguf_type_get(w->type)->cls == GGUF_CLASS_QUANT;
    uint32_t n_segment = gpu_ceil(w->n_col, SEGMENT_COLS), n = j->n_row, i = 0;
    uint32_t n_group = quant ? TOKEN_THREADS / ROW_LANES : TOKEN_THREADS / FLOAT_LANES;
    if (n_segment > n_group)
        return fail(err, MICA_E_UNSUPPORTED, "product: %u inputs: a card takes %u", w->n_col,
                    n_group * SEGMENT_COLS);
    uint32_t n_group_8 = n_group * acts_a_group(w->type) / TOKEN_ROWS;
    if (!j->pairs.at) i = n <= 1 ? 0 : n <= 4 || n_segment > n_group_8 ? 1 : 2;
    if (i == 2) n_group = n_group_8;
    j->n_segment = n_segment;
    j->n_block_row = n_group / n_segment * (i == 0 ? rows_a_group(w->type) : 1);
    gpu_dims grid = {blocks_of(j, j->n_block_row), gpu_ceil(n, rows[i]), 1};
    return GPU_GO_KERNEL(g, g_types[w->type].token[i], grid, TOKEN_THREADS, j);
}

static mica_status prompt_launch(gpu *g, linear_job *j, uint32_t n_tile, mica_error *err) {
    gpu_dims grid = {blocks_of(j, PROMPT_TILE), n_tile, 1};
    return GPU_GO_KERNEL(g, g_types[j->out[0].w.type].prompt, grid, PROMPT_THREADS, j);
}

mica_status gpu_op_linear(dev *d, const linear_args *a, mica_error *err) {
    gpu *g = (gpu *)d;
    bool done[LINEAR_OUT_MAX] = {false};
    for (uint32_t k = 0; k < a->n_out; k++) {
        if (done[k]) continue;
        linear_job j = {.a = a->a};
        for (uint32_t i = k; i < a->n_out; i++) {
            if (a->out[i].w.type != a->out[k].w.type) continue;
            j.out[j.n_out++] = a->out[i];
            done[i] = true;
        }
        j.n_row = a->n_prompt;
        TRY(prompt_launch(g, &j, gpu_ceil(a->n_prompt, PROMPT_TILE), err));
        j.row0 = a->n_prompt;
        j.n_row = a->n_row - a->n_prompt;
        TRY(token_launch(g, &j, err));
    }
    return MICA_OK;
}

/* ---- experts ---------------------------------------------------------------------------------- */

/* Scratch of one call: what pairs have, and their order. */
typedef struct expert_room {
    float *gate, *up, *out; // [n_pair, n_ff], the same, [n_pair, n_embd]
    quant_act hidden;       // [n_pair, n_ff]
    uint32_t *order, *first, *tile;
} expert_room;

static uint32_t tiles_max(uint32_t n_pair, uint32_t n_expert) {
    return n_pair / PROMPT_TILE + (n_expert < n_pair ? n_expert : n_pair);
}

static expert_room room_cut(gpu_cutter *c, const dev_limits *m, uint32_t n_pair) {
    size_t n = n_pair, ld = (m->n_ff_expert + 63u) & ~63u;
    expert_room r = {.hidden.ld = (uint32_t)ld};
    r.gate = gpu_cut(c, n * m->n_ff_expert * sizeof(float));
    r.up = gpu_cut(c, n * m->n_ff_expert * sizeof(float));
    r.out = gpu_cut(c, n * m->n_embd * sizeof(float));
    r.hidden.x = gpu_cut(c, n * ld * sizeof(float));
    r.hidden.q = gpu_cut(c, n * ld);
    r.hidden.d = gpu_cut(c, n * ld / 32 * sizeof(float));
    r.hidden.s = gpu_cut(c, n * ld / 32 * sizeof(float));
    r.hidden.s16 = gpu_cut(c, n * ld / 16 * sizeof(float));
    r.order = gpu_cut(c, n * sizeof(uint32_t));
    r.first = gpu_cut(c, (m->n_expert + 1) * sizeof(uint32_t));
    r.tile = gpu_cut(c, (1 + 2 * (size_t)tiles_max(n_pair, m->n_expert)) * sizeof(uint32_t));
    return r;
}

size_t gpu_experts_scratch(const dev_limits *m) {
    if (m->n_expert == 0) return 0;
    uint64_t n = (uint64_t)m->n_row * m->n_expert_used;
    gpu_cutter c = {0};
    room_cut(&c, m, n < PAIRS_MAX ? (uint32_t)n : PAIRS_MAX);
    return c.at;
}

/* One product of pairs [row0, row0 + n) of a role. */
typedef struct pair_product {
    linear_out out[2];
    uint32_t which[2], n_out;
    const quant_act *a;
    uint32_t by_pair;
} pair_product;

static mica_status pairs_launch(gpu *g, const experts_args *a, const expert_room *r, const pair_product *p,
                                const gpu_expert *at, mica_error *err) {
    uint32_t n_prompt = a->n_prompt * a->n_used, n = a->n_row * a->n_used;
    linear_job j = {.a = *p->a, .n_out = p->n_out};
    for (uint32_t k = 0; k < p->n_out; k++) {
        j.out[k] = p->out[k];
        j.which[k] = p->which[k];
    }
    j.pairs =
        (expert_pairs){(const expert_at *)at, a->ids, a->n_used, p->by_pair, r->order, r->first, r->tile};
    j.n_row = n_prompt;
    if (n_prompt > 0) TRY(prompt_launch(g, &j, tiles_max(n_prompt, a->n_expert), err));
    j.row0 = n_prompt;
    j.n_row = n - n_prompt;
    return token_launch(g, &j, err);
}

/* gate and up in one launch when they are of one type. */
static mica_status hidden_products(gpu *g, const experts_args *a, const expert_room *r, const gpu_expert *at,
                                   mica_error *err) {
    uint32_t n_ff = a->gate.n_row;
    pair_product p = {.out = {{r->gate, a->gate, n_ff, 0}, {r->up, a->up, n_ff, 0}},
                      .which = {EXPERT_GATE, EXPERT_UP},
                      .n_out = 2,
                      .a = &a->a};
    if (a->gate.type == a->up.type) return pairs_launch(g, a, r, &p, at, err);
    p.n_out = 1;
    TRY(pairs_launch(g, a, r, &p, at, err));
    p.out[0] = p.out[1];
    p.which[0] = p.which[1];
    return pairs_launch(g, a, r, &p, at, err);
}

/* The rows [0, n_row) of `a`, as many as scratch is for. */
static mica_status some_experts(gpu *g, const experts_args *a, const gpu_expert *at, int32_t *log,
                                mica_error *err) {
    uint32_t n_pair = a->n_row * a->n_used, n_prompt = a->n_prompt * a->n_used, n_ff = a->gate.n_row;
    dev_limits m = {.n_ff_expert = n_ff, .n_embd = a->down.n_row, .n_expert = a->n_expert};
    gpu_cutter c = {g->scratch, 0, g->scratch_bytes};
    expert_room r = room_cut(&c, &m, n_pair);
    if (c.at > c.n_bytes)
        return fail(err, MICA_E_DEVICE, "experts: %u pairs: more than scratch has room for", n_pair);
    if (n_prompt > 0) {
        expert_sort_job s = {a->ids, r.order, r.first, r.tile, n_prompt, a->n_expert, PROMPT_TILE};
        TRY(GPU_GO(g, experts_sort, ((gpu_dims){1, 1, 1}), SORT_THREADS, &s));
    }
    TRY(hidden_products(g, a, &r, at, err));
    uint32_t want_q = gguf_type_get(a->down.type)->cls == GGUF_CLASS_QUANT;
    glu_job u = {{r.hidden, r.gate, r.up, n_ff, n_pair, n_ff, a->kind, want_q}, gpu_bad(g, GPU_BAD_EXPERT)};
    TRY(GPU_GO(g, glu_rows, ((gpu_dims){gpu_ceil(n_ff, ROW_THREADS), n_pair, 1}), ROW_THREADS, &u));
    pair_product p = {.out = {{r.out, a->down, a->down.n_row, 0}},
                      .which = {EXPERT_DOWN},
                      .n_out = 1,
                      .a = &r.hidden,
                      .by_pair = 1};
    TRY(pairs_launch(g, a, &r, &p, at, err));
    expert_sum_job s = {a->y, r.out, a->weights, a->ids, log, a->n_row, a->down.n_row, a->n_used, a->add};
    return GPU_GO(g, experts_sum, ((gpu_dims){gpu_ceil(a->down.n_row, SUM_THREADS), a->n_row, 1}),
                  SUM_THREADS, &s);
}

static quant_act act_from(const quant_act *a, uint32_t row) {
    size_t at = (size_t)row * a->ld;
    return (quant_act){a->x + at, a->q + at, a->d + at / 32, a->s + at / 32, a->s16 + at / 16, a->ld};
}

mica_status gpu_op_experts(dev *d, const experts_args *a, mica_error *err) {
    gpu *g = (gpu *)d;
    const gpu_expert *at;
    TRY(gpu_experts_of(g, a->layer, &at, err));
    int32_t *log = gpu_experts_log(g, a->layer);
    uint32_t most = PAIRS_MAX / (a->n_used > 0 ? a->n_used : 1);
    for (uint32_t row = 0; row < a->n_row; row += most) {
        experts_args part = *a;
        part.n_row = a->n_row - row < most ? a->n_row - row : most;
        part.n_prompt = a->n_prompt > row ? a->n_prompt - row : 0;
        if (part.n_prompt > part.n_row) part.n_prompt = part.n_row;
        part.y += (size_t)row * a->down.n_row;
        part.ids += (size_t)row * a->n_used;
        part.weights += (size_t)row * a->n_used;
        part.a = act_from(&a->a, row);
        TRY(some_experts(g, &part, at, log + (size_t)row * a->n_used, err));
    }
    return gpu_experts_used(g, a->layer, err);
}
