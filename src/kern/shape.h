/* Threads of a block and tiles, kernel by kernel: what device source and the host's launches agree on. */
#ifndef MICA_KERN_SHAPE_H
#define MICA_KERN_SHAPE_H

enum {
    ROW_THREADS = 256,   // what goes element by element
    NORM_THREADS = 1024, // norms of whole rows
    NORM_TILE = 8192,    // values of a row that are kept between reading and writing
    EMBED_THREADS = 128,

    ROW_LANES = 8, // lanes that share a row of weights in the token role: each has 8 of the 64 accumulators
    TOKEN_THREADS = 256,
    TOKEN_GROUPS = TOKEN_THREADS / ROW_LANES,
    TOKEN_ROWS = 8,      // rows of activations at once, at most
    PAIR_ACTS = 4,       // of them, those that a group of lanes takes of the types of pair.cuh
    FLOAT_LANES = 32,    // lanes that share a segment of a row of float weights
    FLOAT_AHEAD = 8,     // steps of 64 columns that are loaded together
    UNIT_COLS = 256,     // columns of a unit of rule 3
    SEGMENT_COLS = 4096, // columns of a segment, at most

    // One row of activations meets so many rows of weights a group of lanes, so many units being on their
    // way.
    PAIR_ROWS_Q4_K = 1,
    PAIR_AHEAD_Q4_K = 2,
    PAIR_ROWS_Q5_K = 2,
    PAIR_AHEAD_Q5_K = 1,
    PAIR_ROWS_Q6_K = 1,
    PAIR_AHEAD_Q6_K = 1,

    PROMPT_THREADS = 256,
    PROMPT_TILE = 64, // rows of weights and of activations

    ROPE_THREADS = 128,
    ATTN_THREADS = 256,
    ATTN_HEADS = 4, // query heads that share a reading of keys
    ATTN_DIM_MAX = 512,
    JOIN_THREADS = 256, // parts looked at together, and channels of a block

    ROUTER_THREADS = 64,
    ROUTER_EXPERTS_MAX = 1024,
    ROUTER_USED_MAX = 32,
    SORT_THREADS = 256,
    SUM_THREADS = 256,

    CONV_THREADS = 256,
    DELTA_THREADS = 128,
    DELTA_LANES = 4, // lanes that share a column of a state
    DELTA_COLS = DELTA_THREADS / DELTA_LANES,

    ARGMAX_THREADS = 256
};

#endif
