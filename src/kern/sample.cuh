/* The largest logit of each row, in two stages (rule 10). */
#ifndef MICA_KERN_SAMPLE_CUH
#define MICA_KERN_SAMPLE_CUH

#include "kern/experts.cuh"

/* The best of a block's threads, in thread 0. */
DEV best_of block_best(best_of b, float *x, u32 *i) {
    b = lane_best(b);
    if (LANE == 0) {
        x[THREAD / 32] = b.x;
        i[THREAD / 32] = b.i;
    }
    block_sync();
    for (u32 k = 0; k < ARGMAX_THREADS / 32; k++) b = best_take(b, x[k], i[k]);
    return b;
}

/* The best of each part of a row.
 *   grid    n_part, n_row; block ARGMAX_THREADS
 *   shared  64 bytes
 *   needs   nothing
 *   order   rule 10 */
KERNEL(argmax_parts, argmax_job, ARGMAX_THREADS) {
    SHARED(float, s_x, ARGMAX_THREADS / 32);
    SHARED(u32, s_i, ARGMAX_THREADS / 32);
    const u32 from = (u32)((u64)job.n_col * BLOCK_X / job.n_part),
              to = (u32)((u64)job.n_col * (BLOCK_X + 1) / job.n_part);
    const float *x = job.x + (u64)BLOCK_Y * job.ld;
    best_of b;
    b.x = -__builtin_inff();
    b.i = ~0u;
    for (u32 i = from + THREAD; i < to; i += ARGMAX_THREADS) b = best_take(b, or_least(x[i]), i);
    b = block_best(b, s_x, s_i);
    if (THREAD != 0) return;
    job.part_x[(u64)BLOCK_Y * job.n_part + BLOCK_X] = b.x;
    job.part_i[(u64)BLOCK_Y * job.n_part + BLOCK_X] = (i32)b.i;
}

/* The best of the parts.
 *   grid    n_row; block ARGMAX_THREADS
 *   shared  64 bytes
 *   needs   argmax_parts before it
 *   order   rule 10 */
KERNEL(argmax_rows, argmax_job, ARGMAX_THREADS) {
    SHARED(float, s_x, ARGMAX_THREADS / 32);
    SHARED(u32, s_i, ARGMAX_THREADS / 32);
    best_of b;
    b.x = -__builtin_inff();
    b.i = ~0u;
    for (u32 i = THREAD; i < job.n_part; i += ARGMAX_THREADS) {
        const u64 at = (u64)BLOCK_X * job.n_part + i;
        b = best_take(b, job.part_x[at], (u32)job.part_i[at]);
    }
    b = block_best(b, s_x, s_i);
    if (THREAD == 0) job.ids[BLOCK_X] = (i32)b.i;
}

#endif
