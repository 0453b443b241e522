/* What kernels take: the records of args.h, with what a launch adds to them. Shared by host C and device
 * source. Pointers are device memory. */
#ifndef MICA_KERN_RECORD_H
#define MICA_KERN_RECORD_H

#include "kern/args.h"
#include "kern/shape.h"

/* Where a kernel says that it met a value that is not finite: the word becomes `what` when it was 0. */
typedef struct bad_note {
    uint32_t *at;
    uint32_t what;
} bad_note;

typedef struct norm_job {
    norm_args a;
    bad_note bad;
} norm_job;

typedef struct quantise_job {
    quantise_args a;
    bad_note bad;
} quantise_job;

typedef struct glu_job {
    glu_args a;
    bad_note bad;
} glu_job;

typedef struct gate_norm_job {
    gate_norm_args a;
    bad_note bad;
} gate_norm_job;

typedef struct router_job {
    router_args a;
    bad_note bad;
} router_job;

typedef struct rope_kv_job {
    rope_kv_args a;
    bad_note bad_query, bad_key;
} rope_kv_job;

/* Where the bytes of an expert are, [n_expert] a layer: device memory, or host memory mapped for the card. */
typedef struct expert_at {
    const void *gate, *up, *down;
} expert_at;

/* Which rows of activations meet which weights when each row chose its own expert. A pair is (row, chosen
 * expert): pair p belongs to row p / n_used, and its result is row p of the outputs. */
typedef struct expert_pairs {
    const expert_at *at; // [n_expert]; NULL: no experts, row r of a is row r of the outputs
    const int32_t *ids;  // [n_pair]
    uint32_t n_used;
    uint32_t by_pair;      // 1: the activations are one row a pair, not one row a token
    const uint32_t *order; // prompt role: pairs by expert, [n_pair]
    const uint32_t *first; // prompt role: the first of each expert in it, [n_expert + 1]
    const uint32_t *tile;  // prompt role: expert and first pair of each tile, [n_tile, 2]; n_tile before it
} expert_pairs;

enum { EXPERT_GATE, EXPERT_UP, EXPERT_DOWN, EXPERT_NONE };

/* Products of several weights of one type with one input. Blocks [first[k], first[k + 1]) of the grid's x are
 * output k's. */
typedef struct linear_job {
    linear_out out[LINEAR_OUT_MAX];
    uint32_t first[LINEAR_OUT_MAX];
    uint32_t which[LINEAR_OUT_MAX]; // EXPERT_*: the part of an expert this weight is
    quant_act a;
    uint32_t n_out;
    uint32_t row0, n_row; // rows (or pairs) [row0, row0 + n_row)
    uint32_t n_segment;   // token role: of a row of weights
    uint32_t n_block_row; // token role: rows of weights a block takes
    expert_pairs pairs;
} linear_job;

/* y[row] = (add ? y[row] : 0) + the sum over its pairs of weight * out[pair]. */
typedef struct expert_sum_job {
    float *y;             // [n_row, n_col]
    const float *out;     // [n_row * n_used, n_col]
    const float *weights; // [n_row, n_used]
    const int32_t *ids;   // [n_row, n_used]
    int32_t *log;         // [n_row, n_used] for the host to see: the ids; or NULL
    uint32_t n_row, n_col, n_used, add;
} expert_sum_job;

/* Prompt pairs, by expert: order, first and tile of expert_pairs. */
typedef struct expert_sort_job {
    const int32_t *ids; // [n_pair]
    uint32_t *order, *first, *tile;
    uint32_t n_pair, n_expert, tile_rows;
} expert_sort_job;

typedef struct attn_job {
    attn_args a;
    float *part;     // [n_row, n_head, n_part, d_v + 2]: o, m, l of each block of positions
    uint32_t n_part; // blocks of positions beside each other
    bad_note bad;
} attn_job;

typedef struct delta_job {
    delta_args a;
    float *gate; // [n_row, n_v, 2]: exp(a softplus(alpha + dt_bias)), sigmoid(beta)
} delta_job;

/* The largest of each row (rule 10), by parts. */
typedef struct argmax_job {
    int32_t *ids;    // [n_row]
    const float *x;  // [n_row, ld]
    float *part_x;   // [n_row, n_part]
    int32_t *part_i; // [n_row, n_part]
    uint32_t ld, n_row, n_col, n_part;
} argmax_job;

#endif
