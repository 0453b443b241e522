/* Norms, gated units and what else works on rows element by element (rules 1 and 8). */
#ifndef MICA_KERN_NORM_CUH
#define MICA_KERN_NORM_CUH

#include "kern/act.cuh"

/* m <= NORM_TILE values to the tile, by all threads; all loads on their way at once. */
DEV void tile_load(float *tile, const float *x, u32 m) {
    float v[NORM_TILE / NORM_THREADS];
    UNROLL
    for (u32 k = 0; k < NORM_TILE / NORM_THREADS; k++) {
        const u32 i = k * NORM_THREADS + THREAD;
        v[k] = i < m ? x[i] : 0.0f;
    }
    lane_join();
    UNROLL
    for (u32 k = 0; k < NORM_TILE / NORM_THREADS; k++) tile[k * NORM_THREADS + THREAD] = v[k];
}

/* The squares of a thread's share of a tile, THREAD < 64, added to p. */
DEV float tile_squares(const float *tile, u32 m, float p) {
    u32 i = THREAD;
    for (; i + 7 * 64 < m; i += 8 * 64) { // the loads do not wait for the sum
        float v[8];
        UNROLL
        for (u32 k = 0; k < 8; k++) v[k] = tile[i + 64 * k];
        UNROLL
        for (u32 k = 0; k < 8; k++) p = f32_fma(v[k], v[k], p);
    }
    for (; i < m; i += 64) p = f32_fma(tile[i], tile[i], p);
    return p;
}

/* Sum of squares by rule 8 for a block of NORM_THREADS: all of them bring values to the tile, threads 0 to
 * 63 have the partial sums. When n <= NORM_TILE the tile holds x afterwards. Every thread has the result. */
DEV float block_sum_squares(const float *x, u32 n, float *tile, float *pair) {
    float p = 0.0f;
    for (u32 at = 0; at < n; at += NORM_TILE) {
        const u32 m = u32_min(n - at, NORM_TILE);
        if (at) block_sync();
        tile_load(tile, x + at, m);
        block_sync();
        if (THREAD < 64) p = tile_squares(tile, m, p);
    }
    p = lane_tree_f32(p, 32);
    if (THREAD < 64 && LANE == 0) pair[THREAD / 32] = p;
    block_sync();
    return pair[0] + pair[1];
}

/* The same by 32 lanes, two partial sums each. */
DEV float lane_sum_squares(const float *x, u32 n) {
    float p0 = 0.0f, p1 = 0.0f;
    for (u32 i = LANE; i < n; i += 64) {
        p0 = f32_fma(x[i], x[i], p0);
        if (i + 32 < n) p1 = f32_fma(x[i + 32], x[i + 32], p1);
    }
    p0 = lane_tree_f32(p0, 32);
    return p0 + lane_tree_f32(p1, 32);
}

DEV float rms_factor(float sum_squares, u32 n, float eps) {
    return 1.0f / f32_sqrt(sum_squares / (float)n + eps);
}

/* x r w of columns i .. i + 3; 0 from n on. */
DEV void norm_four(float v[4], const float *x, const float *w, u32 i, u32 n, float r) {
    UNROLL
    for (u32 k = 0; k < 4; k++) {
        v[k] = i + k < n ? x[i + k] * r : 0.0f;
        if (w && i + k < n) v[k] = v[k] * w[i + k];
    }
}

/* y = RMS(x) * w, quantised when asked.
 *   grid    n_row; block NORM_THREADS
 *   shared  32 KiB
 *   needs   n_col % 32 == 0 when want_q
 *   order   rule 8, 64 partial sums */
KERNEL(norm_rows, norm_job, NORM_THREADS) {
    SHARED(float, tile, NORM_TILE);
    SHARED(float, pair, 2);
    const u32 row = BLOCK_X, n = job.a.n_col;
    const float *x = job.a.x + (u64)(job.a.row_of ? (u32)job.a.row_of[row] : row) * job.a.ld_x;
    float *y = job.a.y.x + (u64)row * job.a.y.ld;
    const float r = rms_factor(block_sum_squares(x, n, tile, pair), n, job.a.eps);
    const float *from = n <= NORM_TILE ? tile : x;
    for (u32 i0 = 0; i0 < n; i0 += 4 * NORM_THREADS) {
        const u32 i = i0 + 4 * THREAD;
        float v[4];
        norm_four(v, from, job.a.w, i, n, r);
        if (n % 4 == 0 && i < n) {
            store_16(y + i, v);
        } else {
            for (u32 k = 0; k < 4 && i + k < n; k++) y[i + k] = v[k];
        }
        if (job.a.want_q) act_store4(&job.a.y, row, i, v, i < n, &job.bad);
    }
}

/* x += RMS(y) * w
 *   grid    n_row; block NORM_THREADS
 *   shared  32 KiB
 *   needs   nothing
 *   order   rule 8, 64 partial sums */
KERNEL(add_norm_rows, add_norm_args, NORM_THREADS) {
    SHARED(float, tile, NORM_TILE);
    SHARED(float, pair, 2);
    const u32 n = job.n_col;
    const float *y = job.y + (u64)BLOCK_X * n;
    float *x = job.x + (u64)BLOCK_X * n;
    const float r = rms_factor(block_sum_squares(y, n, tile, pair), n, job.eps);
    const float *from = n <= NORM_TILE ? tile : y;
    for (u32 i = THREAD; i < n; i += NORM_THREADS) {
        float v = from[i] * r;
        if (job.w) v = v * job.w[i];
        x[i] = x[i] + v;
    }
}

/* The int8 form of rows.
 *   grid    ceil(n_col / ROW_THREADS), n_row; block ROW_THREADS
 *   shared  none
 *   needs   n_col % 32 == 0
 *   order   rule 1 */
KERNEL(quantise_rows, quantise_job, ROW_THREADS) {
    const u32 i = BLOCK_X * ROW_THREADS + THREAD, row = BLOCK_Y;
    const bool on = i < job.a.n_col;
    const float x = on ? job.a.a.x[(u64)row * job.a.a.ld + i] : 0.0f;
    act_store(&job.a.a, row, i, x, on, &job.bad);
}

/* h = act(gate) * up, quantised when asked.
 *   grid    ceil(n_col / ROW_THREADS), n_row; block ROW_THREADS
 *   shared  none
 *   needs   n_col % 32 == 0 when want_q
 *   order   none */
KERNEL(glu_rows, glu_job, ROW_THREADS) {
    const u32 i = BLOCK_X * ROW_THREADS + THREAD, row = BLOCK_Y;
    const bool on = i < job.a.n_col;
    float h = 0.0f;
    if (on) {
        const float g = job.a.gate[(u64)row * job.a.ld + i];
        h = (job.a.kind == GLU_SILU ? exactf_silu(g) : exactf_gelu(g)) * job.a.up[(u64)row * job.a.ld + i];
        job.a.h.x[(u64)row * job.a.h.ld + i] = h;
    }
    if (job.a.want_q) act_store(&job.a.h, row, i, h, on, &job.bad);
}

/* y = RMS(o) * w by groups, times act(z), quantised when asked.
 *   grid    ceil(n_group / 8), n_row; block ROW_THREADS: 32 lanes a group
 *   shared  none
 *   needs   n_col % 32 == 0 when want_q
 *   order   rule 8, 64 partial sums */
KERNEL(gate_norm_rows, gate_norm_job, ROW_THREADS) {
    const u32 g = BLOCK_X * (ROW_THREADS / 32) + THREAD / 32, row = BLOCK_Y, n = job.a.n_col;
    const bool in = g < job.a.n_group;
    const u64 at = ((u64)row * job.a.n_group + g) * n;
    const float r = rms_factor(lane_sum_squares(job.a.o + (in ? at : 0), in ? n : 0), n, job.a.eps);
    for (u32 i0 = 0; i0 < n; i0 += 32) {
        const u32 i = i0 + LANE;
        const bool on = in && i < n;
        float y = 0.0f;
        if (on) {
            const float z = job.a.z[at + i];
            y = job.a.o[at + i] * r * job.a.w[i] * (job.a.sigmoid ? exactf_sigmoid(z) : exactf_silu(z));
            job.a.y.x[(u64)row * job.a.y.ld + g * n + i] = y;
        }
        if (job.a.want_q) act_store(&job.a.y, row, g * n + i, y, on, &job.bad);
    }
}

/* y += sigmoid(g) * x
 *   grid    ceil(n_col / ROW_THREADS), n_row; block ROW_THREADS
 *   shared  none
 *   needs   nothing
 *   order   none */
KERNEL(gated_add_rows, gated_add_args, ROW_THREADS) {
    const u32 i = BLOCK_X * ROW_THREADS + THREAD;
    if (i >= job.n_col) return;
    const u64 at = (u64)BLOCK_Y * job.n_col + i;
    job.y[at] = f32_fma(exactf_sigmoid(job.g[BLOCK_Y]), job.x[at], job.y[at]);
}

/* y = cap * tanh(y / cap)
 *   grid    ceil(n / ROW_THREADS); block ROW_THREADS
 *   shared  none
 *   needs   nothing
 *   order   none */
KERNEL(softcap_values, softcap_args, ROW_THREADS) {
    const u64 i = (u64)BLOCK_X * ROW_THREADS + THREAD;
    if (i < job.n) job.y[i] = job.cap * exactf_tanh(job.y[i] / job.cap);
}

/* x *= s[0]
 *   grid    ceil(n / ROW_THREADS); block ROW_THREADS
 *   shared  none
 *   needs   nothing
 *   order   none */
KERNEL(scale_values, scale_args, ROW_THREADS) {
    const u64 i = (u64)BLOCK_X * ROW_THREADS + THREAD;
    if (i < job.n) job.x[i] = job.x[i] * job.s[0];
}

#endif
