/* Routing: which experts, which of their pairs lie together, and the sum of what they gave (rule 8). */
#ifndef MICA_KERN_EXPERTS_CUH
#define MICA_KERN_EXPERTS_CUH

#include "kern/act.cuh"

/* A value and where it is; better: larger, or equal and before. */
typedef struct best_of {
    float x;
    u32 i;
} best_of;

DEV best_of best_take(best_of a, float x, u32 i) {
    const bool more = x > a.x || (x == a.x && i < a.i);
    a.x = more ? x : a.x;
    a.i = more ? i : a.i;
    return a;
}

/* The best of 32 lanes, in each. */
DEV best_of lane_best(best_of b) {
    float v[4];
    UNROLL
    for (u32 d = 1; d < 32; d *= 2) {
        v[0] = b.x;
        v[1] = bits_f32(b.i);
        v[2] = v[3] = 0.0f;
        lane_xor4_f32(v, d);
        b = best_take(b, v[0], f32_bits(v[1]));
    }
    return b;
}

/* A NaN counts as the least: the step fails, but an index stays an index. */
DEV float or_least(float x) {
    return x == x ? x : -__builtin_inff();
}

/* Ids and weights of the experts of each row.
 *   grid    ceil(n_row / 2); block ROUTER_THREADS: 32 lanes a row
 *   shared  none
 *   needs   n_expert <= 1024, n_used <= 32
 *   order   rules 8 and 10 */
KERNEL(router_rows, router_job, ROUTER_THREADS) {
    const u32 row = BLOCK_X * (ROUTER_THREADS / 32) + THREAD / 32, n = job.a.n_expert, n_used = job.a.n_used;
    const bool on = row < job.a.n_row;
    const float *l = job.a.logits + (u64)(on ? row : 0) * n;
    u32 taken = 0, id = 0; // of the lane's own experts; the lane-th choice
    float x = 0.0f, first = 0.0f;
    for (u32 k = 0; k < n_used; k++) {
        best_of b;
        b.x = -__builtin_inff();
        b.i = ~0u;
        for (u32 e = LANE; e < n; e += 32) {
            if (!(taken >> e / 32 & 1)) b = best_take(b, or_least(l[e]), e);
        }
        b = lane_best(b);
        if (b.i % 32 == LANE) taken |= 1u << b.i / 32;
        if (k == 0) first = b.x;
        if (k == LANE) {
            x = b.x;
            id = b.i;
        }
    }
    const float e = exactf_exp(x - first);
    float sum = 0.0f;
    for (u32 k = 0; k < n_used; k++) sum = sum + lane_get_f32(e, k);
    if (!on || LANE >= n_used) return;
    if (!f32_finite(x)) note_bad(&job.bad);
    float w = e / sum;
    if (job.a.scale != 0.0f && job.a.scale != 1.0f) w = w * job.a.scale;
    job.a.ids[(u64)row * n_used + LANE] = (i32)id;
    job.a.weights[(u64)row * n_used + LANE] = w;
}

/* Pairs by expert: first[e] is where those of e begin in `order`, and their tiles of tile_rows. Pairs of an
 * expert stay in their order, which no result depends on, so that a run is like any other.
 *   grid    1; block SORT_THREADS
 *   shared  4 KiB
 *   needs   n_expert <= 1024
 *   order   none */
KERNEL(experts_sort, expert_sort_job, SORT_THREADS) {
    SHARED(u32, count, ROUTER_EXPERTS_MAX);
    for (u32 e = THREAD; e < job.n_expert; e += SORT_THREADS) {
        u32 n = 0;
        for (u32 p = 0; p < job.n_pair; p++) n += (u32)job.ids[p] == e;
        count[e] = n;
    }
    block_sync();
    if (THREAD == 0) {
        u32 sum = 0, n_tile = 0;
        for (u32 e = 0; e < job.n_expert; e++) {
            job.first[e] = sum;
            for (u32 i = 0; i < count[e]; i += job.tile_rows) {
                job.tile[1 + 2 * n_tile] = e;
                job.tile[2 + 2 * n_tile] = sum + i;
                n_tile++;
            }
            sum += count[e];
            count[e] = job.first[e];
        }
        job.first[job.n_expert] = sum;
        job.tile[0] = n_tile;
    }
    block_sync();
    for (u32 e = THREAD; e < job.n_expert; e += SORT_THREADS) {
        u32 at = count[e];
        for (u32 p = 0; p < job.n_pair; p++) {
            if ((u32)job.ids[p] == e) job.order[at++] = p;
        }
    }
}

/* y = (add ? y : 0) + the sum of weight * out over the row's experts, in the router's order.
 *   grid    ceil(n_col / SUM_THREADS), n_row; block SUM_THREADS
 *   shared  none
 *   needs   n_used <= SUM_THREADS
 *   order   rule 8: left to right from +0 */
KERNEL(experts_sum, expert_sum_job, SUM_THREADS) {
    const u32 i = BLOCK_X * SUM_THREADS + THREAD, row = BLOCK_Y;
    if (job.log && i < job.n_used) job.log[(u64)row * job.n_used + i] = job.ids[(u64)row * job.n_used + i];
    if (i >= job.n_col) return;
    float sum = 0.0f;
    for (u32 k = 0; k < job.n_used; k++) {
        const u64 pair = (u64)row * job.n_used + k;
        sum = f32_fma(job.weights[pair], job.out[pair * job.n_col + i], sum);
    }
    float *y = job.y + (u64)row * job.n_col + i;
    *y = job.add ? *y + sum : sum;
}

#endif
