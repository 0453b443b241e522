/* The fast CPU device from inside: its state, how a call is spread over threads, and the helpers its files
 * share.
 *
 * An operation is one cpu_run: phases of independent units, a barrier between phases. Threads take units as
 * they come free, so that a slow core takes fewer; a unit's result never depends on who computes it. Kernels
 * of a unit are cpu_fns (this room) or quant_ops. A new operation writes a job record, a unit function and
 * one line in dev_cpu.c's table. */
#ifndef MICA_CPU_INT_H
#define MICA_CPU_INT_H

#include "base/pool.h"
#include "dev/cpu_fns.h"
#include "dev/dev_int.h"

#include <stdatomic.h>

enum {
    CPU_PHASES_MAX = 4,
    CPU_TILE = 16384,    // floats of a thread's tile of products: 64 KiB, a part of L2
    CPU_PANEL_ROWS = 64, // weight rows of a tile in the prompt role: what quant_prompt_scratch_bytes holds
    CPU_UNITS = 4,       // units a thread should find, so that the last one to finish is not far behind
    CPU_PART_FLOATS = 1 << 19, // partial results of attention split by blocks
    CPU_LEASES_MAX = 64,       // experts held at a time
};

/* One thread's memory. */
typedef struct cpu_scratch {
    _Alignas(64) float *tile; // [CPU_TILE]
    void *panel;              // quant_prompt_scratch_bytes(limits.n_col)
    float *row;               // [max(n_expert, 64)]
    attn_tile attn;           // its pointers; sizes for n_q_max queries
    const float **q;          // [ATTN_Q_MAX]
    float *run_m, *run_l;     // [ATTN_Q_MAX]
    uint32_t *at;             // [KV_PAGE + ATTN_PAD]
    uint32_t *begin, *end;    // [ATTN_Q_MAX]
} cpu_scratch;

/* Rows of a batch that share their keys: neighbours of one sequence at neighbouring positions. */
typedef struct attn_group {
    uint32_t row, n_row;
    int32_t first, last; // positions that any of the rows sees
    uint32_t n_block;
} attn_group;

/* What experts of a call need beside their weights; sizes from dev_limits. */
typedef struct expert_room {
    uint32_t n_pair_max;    // pairs (row, chosen expert) of a batch of experts
    uint32_t *order, *slot; // [n_row * n_used]: pairs sorted by expert; where a pair stands in that order
    uint32_t *first;        // [n_expert + 1]
    int32_t *touched;       // [n_expert]
    quant_act in, hidden;   // [n_pair_max, n_embd], [n_pair_max, n_ff_expert]
    float *out;             // [n_row * n_used, n_embd]
    expert_lease leases[CPU_LEASES_MAX];
} expert_room;

/* The best blocks of each part of a row, while they are looked for. */
typedef struct index_room {
    uint64_t *best;  // [n_heap, limits.n_index_keep]
    uint32_t *n;     // [n_heap]
    uint32_t n_heap; // rows of a batch, or the units that few rows are cut into
} index_room;

typedef struct cpu_dev cpu_dev;
typedef void cpu_unit_fn(cpu_dev *c, cpu_scratch *s, const void *job, uint32_t iu);

typedef struct cpu_phase {
    cpu_unit_fn *fn;
    uint32_t n_unit;
} cpu_phase;

typedef struct cpu_counter {
    _Alignas(64) _Atomic uint32_t next; // alone on its line
} cpu_counter;

struct cpu_dev {
    dev d; // first: a dev * is a cpu_dev *
    const quant_ops *q;
    const cpu_fns *f;
    pool *pool; // owned
    uint32_t n_thread;
    dev_limits limits;
    expert_source *experts; // borrowed
    void (*routed)(void *user, uint32_t layer, const int32_t *ids, uint32_t n);
    void *routed_user;
    char *block;            // owned: all scratch below
    cpu_scratch *scratch;   // [n_thread]
    uint32_t n_q_max;       // queries of an attention tile
    attn_group *groups;     // [limits.n_row]
    float *part;            // [CPU_PART_FLOATS or more]
    size_t n_part;
    float *run_m, *run_l; // [limits.n_row * limits.n_head]
    expert_room room;
    index_room index;
    _Atomic(const char *) not_finite; // where the last bad value of a step was seen, NULL: none
    const void *job;                  // of the cpu_run under way
    const cpu_phase *phases;
    uint32_t n_phase;
    cpu_counter next[CPU_PHASES_MAX];
};

/* Runs the phases in order, each over its units. `alone`: so little to do that waking other threads would
 * cost more. */
void cpu_run(cpu_dev *c, const void *job, const cpu_phase *phases, uint32_t n_phase, bool alone);

/* Rows [begin, end) of n that unit iu of n_unit takes. */
static inline void cpu_range(uint32_t *begin, uint32_t *end, uint32_t n, uint32_t iu, uint32_t n_unit) {
    *begin = (uint32_t)((uint64_t)n * iu / n_unit);
    *end = (uint32_t)((uint64_t)n * (iu + 1) / n_unit);
}

/* What unit [b, e) of a batch's rows has of a run; false: nothing. */
static inline bool cpu_run_rows(uint32_t *first, uint32_t *last, const row_run *run, uint32_t b, uint32_t e) {
    *first = run->row0 > b ? run->row0 : b;
    *last = run->row0 + run->n_row < e ? run->row0 + run->n_row : e;
    return *first < *last;
}

/* Rows [row, row + n_row) and columns [col, col + n_col) of activations; col is a multiple of 32. */
typedef struct act_part {
    uint32_t row, n_row, col, n_col;
} act_part;

/* Remembers that a value of the step was not finite. Any thread. */
void cpu_not_finite(cpu_dev *c, const char *what);
/* Quantises a part. A value that is not finite is remembered as `what`. */
void cpu_quantise(cpu_dev *c, const quant_act *a, act_part part, const char *what);

/* Weight rows [row, row + n_row) against act rows [act, act + n_act) in one role: y[ia * ld_y + ir], ia and
 * ir from 0. */
typedef struct cpu_product {
    float *y;
    size_t ld_y;
    const weight_ref *w;
    const quant_act *a;
    uint32_t row, n_row, act, n_act;
} cpu_product;
void cpu_product_token(cpu_dev *c, const cpu_product *p);                  // any n_act
void cpu_product_prompt(cpu_dev *c, cpu_scratch *s, const cpu_product *p); // any n_act

mica_status cpu_linear(dev *d, const linear_args *a, mica_error *err);
mica_status cpu_attn(dev *d, const attn_args *a, mica_error *err);
mica_status cpu_conv(dev *d, const conv_args *a, mica_error *err);
mica_status cpu_delta(dev *d, const delta_args *a, mica_error *err);
mica_status cpu_experts(dev *d, const experts_args *a, mica_error *err);
mica_status cpu_group_norm(dev *d, const group_norm_args *a, mica_error *err);
mica_status cpu_silu(dev *d, const silu_args *a, mica_error *err);
mica_status cpu_spread(dev *d, const spread_args *a, mica_error *err);
mica_status cpu_hyper_read(dev *d, const hyper_read_args *a, mica_error *err);
mica_status cpu_hyper_write(dev *d, const hyper_write_args *a, mica_error *err);
mica_status cpu_add(dev *d, const add_args *a, mica_error *err);
mica_status cpu_index_keys(dev *d, const index_keys_args *a, mica_error *err);
mica_status cpu_index_select(dev *d, const index_select_args *a, mica_error *err);
mica_status cpu_ngram(dev *d, const ngram_args *a, mica_error *err);
mica_status cpu_ngram_gate(dev *d, const ngram_gate_args *a, mica_error *err);

#endif
