/* The kernels of the fast CPU device: one table for each instruction set, filled once (cpu_fns_scalar.c,
 * cpu_fns_avx2.c, cpu_fns_avx512.c compile the same text, cpu_row.h and cpu_attn_kern.h, on the vectors of
 * cpu_vec.h).
 *
 * A kernel works on one row, or one tile, for one thread; it neither allocates nor knows of threads. Products
 * with weights are not here: they are quant_ops. All kernels give the bits of dev_ref.c. Lengths are any;
 * pointers need no alignment; outputs overlap inputs only where said. A new operation of the seam adds its
 * row kernel here and in cpu_row.h. */
#ifndef MICA_CPU_FNS_H
#define MICA_CPU_FNS_H

#include "base/cpu.h"
#include "kern/args.h"

#include <stdbool.h>
#include <stddef.h>

/* A tile of attention: some queries (rows times the heads of a group) against one key/value head. */
typedef struct attn_tile {
    uint32_t n_q, d_k, d_v;
    kv_type type;
    float scale;
    const float *const *q; // [n_q] queries of d_k
    float *queries;        // the same, laid out by attn_begin; attn_query_floats
    float *m, *l;          // [attn_lanes(n_q)] of the last block
    float *o;              // [n_q, ld_o] of the last block
    uint32_t ld_o;         // attn_ld(d_v)
    float *work;           // attn_work_floats
} attn_tile;

/* A block of rule 6: up to KV_PAGE positions of one page. */
typedef struct attn_block {
    const void *k, *v;              // [KV_PAGE, d_k], [KV_PAGE, d_v] of the tile's type
    const float *k_scale, *v_scale; // [KV_PAGE], KV_I8 only
    const uint32_t *at;          // [n_at + ATTN_PAD] positions in the page, ascending, the last one repeated
    uint32_t n_at;               // 1 .. KV_PAGE
    const uint32_t *begin, *end; // [n_q] entries of `at` that each query sees; none when begin >= end
} attn_block;

enum {
    ATTN_PAD = 16,    // spare entries after a list of positions
    ATTN_Q_MAX = 96,  // queries of a tile
    ATTN_SLAB = 4096, // floats of converted keys or values: 16 KiB, half of an L1
};

static inline uint32_t attn_ld(uint32_t n) {
    return (n + 63u) & ~63u;
}
static inline uint32_t attn_lanes(uint32_t n) {
    return (n + 31u) & ~31u;
}
static inline uint32_t attn_slab_floats(uint32_t d_k) {
    return d_k > ATTN_SLAB / 8 ? 8 * attn_ld(d_k) : ATTN_SLAB;
}

/* Floats of attn_tile.queries and attn_tile.work. */
static inline size_t attn_query_floats(uint32_t n_q, uint32_t d_k) {
    return (size_t)attn_lanes(n_q) * attn_ld(d_k);
}
static inline size_t attn_work_floats(uint32_t n_q, uint32_t d_k) {
    size_t row = KV_PAGE + ATTN_PAD;
    return attn_slab_floats(d_k) + attn_lanes(n_q) * (row + 2) + 2 * row;
}

enum { DELTA_COLS = 16 }; // state columns that are walked together: a line of memory

/* A row of the delta rule for one value head. */
typedef struct delta_row {
    const float *q, *k, *v; // [d_k], [d_k], [d_v]
    float *o;               // [d_v]
    float *delta;           // [d_v] written too, or NULL
    float g, beta;
} delta_row;

/* Some columns of a head's state. */
typedef struct delta_span {
    uint32_t head, col, n_col; // n_col <= DELTA_COLS
} delta_span;

typedef struct cpu_fns {
    /* y = x / sqrt(mean(x^2) + eps) * w; w NULL: no weight. y may be x. */
    void (*rms)(float *y, const float *x, const float *w, uint32_t n, float eps);
    void (*add_rms)(float *x, const float *y, const float *w, uint32_t n, float eps); // x += RMS(y) * w
    void (*scale)(float *x, float s, size_t n);                                       // x *= s
    /* y = (add ? y : 0) + ((v * scale[0]) + bias), each step only when given. y may be v. */
    void (*finish)(float *y, const float *v, const float *scale, const float *bias, uint32_t n, bool add);
    void (*axpy)(float *y, float a, const float *x, uint32_t n); // y = fma(a, x, y)
    bool (*finite)(const float *x, uint32_t n);
    void (*rotate)(float *x, const float *cs, uint32_t n_rot, rope_kind kind);
    /* cs[2 i], cs[2 i + 1] = cos, sin of pos * inv_freq[i], times mscale */
    void (*sincos)(float *cs, double pos, const double *inv_freq, uint32_t n_pair, float mscale);
    /* One head's vector into the cache; scale[0] is written for KV_I8 only. */
    void (*kv_store)(void *dst, float *scale, const float *x, uint32_t n, kv_type type);
    void (*glu)(float *h, const float *gate, const float *up, uint32_t n, glu_kind kind);
    void (*softcap)(float *y, float cap, size_t n);
    /* ids and weights of one row (rule 10); work: n_expert floats. false when a chosen logit is not finite.
     */
    bool (*router)(int32_t *ids, float *weights, const float *logits, const router_args *a, float *work);

    void (*attn_begin)(attn_tile *t); // lays the queries out
    void (*attn_block)(attn_tile *t,
                       const attn_block *b); // m, l, o of one block for every query that sees some of it
    void (*attn_join)(float *o, float a, const float *p, float b, uint32_t n); // o = o a + p b
    void (*attn_end)(float *o, float inv, const float *gate, uint32_t n);      // o = o inv (* sigmoid(gate))

    void (*conv_taps)(float *wt, const float *w, uint32_t n, uint32_t n_tap); // [n, n_tap] to [n_tap, n]
    /* y = silu(sum of wt[j] * u[j]) over n channels; u[j] NULL: zeros. */
    void (*conv_row)(float *y, const float *const *u, const float *wt, uint32_t n, uint32_t n_tap);
    void (*l2)(float *x, uint32_t n, float scale); // x = x / sqrt(sum(x^2) + 1e-6), then * scale unless 1
    void (*gate)(float *y, const float *z, uint32_t n, bool sigmoid); // y *= sigmoid(z) or silu(z)
    /* s: [d_k, DELTA_COLS], columns of a state side by side. S = S g + k delta^T; n_row rows of the rule. */
    void (*delta_advance)(float *s, const float *k, float g, const float *delta, uint32_t d_k);
    void (*delta_rows)(float *s, const delta_row *rows, uint32_t n_row, uint32_t d_k, delta_span g);

    void (*silu)(float *h, const float *x, float div, uint32_t n);      // h = silu(x / div)
    void (*add2)(float *x, const float *a, const float *b, uint32_t n); // x += a + b
    float (*dot64)(const float *x, const float *y, uint32_t n);         // rule 8's sum of products
    /* y = sum of sigmoid(gate) * xn over streams that stand ld apart, over n_stream; n columns. */
    void (*hyper_read)(float *y, const float *xn, const float *gate, uint32_t ld, uint32_t n_stream,
                       uint32_t n);
    /* Scores (rule 14) of n blocks whose keys [n, d] lie side by side; q: [n_head, d]. */
    void (*index_scores)(float *score, const float *q, const float *keys, uint32_t n, uint32_t n_head,
                         uint32_t d);
} cpu_fns;

extern const cpu_fns cpu_fns_scalar;
extern const cpu_fns cpu_fns_avx2;
extern const cpu_fns cpu_fns_avx512;

#endif
