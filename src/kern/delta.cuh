/* Recurrent mixers (rule 7): the short convolution and the gated delta rule.
 *
 * Value columns of a state do not see each other. Four lanes have one column, lane p its rows i with i mod 4
 * == p, in registers from the first token of a run to the last; the four partial sums of the rule are the
 * four lanes'. Keys and queries are normalised, and gates made, for all rows before (delta_prepare). */
#ifndef MICA_KERN_DELTA_CUH
#define MICA_KERN_DELTA_CUH

#include "kern/norm.cuh"

/* ---- convolution ---- */

/* The run of a row. */
DEV u32 run_of_row(const row_run *runs, u32 n_run, u32 row) {
    u32 k = 0;
    while (k + 1 < n_run && row >= runs[k].row0 + runs[k].n_row) k++;
    return k;
}

/* Input of channel c at position pos of the run's sequence: from the batch when the run has it, else the
 * ring. */
DEV float conv_input(const conv_args *a, const row_run *run, i32 pos, u32 c) {
    if (pos < 0) return 0.0f;
    const i32 first = a->rows[run->row0].pos;
    if (pos >= first) return a->u[(u64)(run->row0 + (u32)(pos - first)) * a->n_col + c];
    return a->ring[(u64)(u32)run->seq * a->ld_seq + (u64)((u32)pos % CONV_RING) * a->n_col + c];
}

/* y = silu(conv(u)), before conv_keep.
 *   grid    ceil(n_col / CONV_THREADS), n_row; block CONV_THREADS
 *   shared  none
 *   needs   (n_tap - 1) * step + WINDOW_MAX - 1 <= CONV_RING
 *   order   rule 7: oldest first */
KERNEL(conv_rows, conv_args, CONV_THREADS) {
    const u32 c = BLOCK_X * CONV_THREADS + THREAD, row = BLOCK_Y;
    if (c >= job.n_col) return;
    const row_run run = job.runs[run_of_row(job.runs, job.n_run, row)];
    const i32 pos = job.rows[row].pos;
    float y = 0.0f;
    for (u32 j = 0; j < job.n_tap; j++) {
        const float u = conv_input(&job, &run, pos - (i32)((job.n_tap - 1 - j) * job.step), c);
        y = f32_fma(job.w[(u64)c * job.n_tap + j], u, y);
    }
    job.y[(u64)row * job.n_col + c] = exactf_silu(y);
}

/* The last inputs of each run into the ring.
 *   grid    ceil(n_col / CONV_THREADS), min(CONV_RING, n_row), n_run; block CONV_THREADS
 *   shared  none
 *   needs   conv_rows before it
 *   order   none */
KERNEL(conv_keep, conv_args, CONV_THREADS) {
    const u32 c = BLOCK_X * CONV_THREADS + THREAD;
    const row_run run = job.runs[BLOCK_Z];
    if (c >= job.n_col || BLOCK_Y >= run.n_row) return;
    const u32 row = run.row0 + run.n_row - 1 - BLOCK_Y, slot = (u32)job.rows[row].pos % CONV_RING;
    job.ring[(u64)(u32)run.seq * job.ld_seq + (u64)slot * job.n_col + c] = job.u[(u64)row * job.n_col + c];
}

/* ---- delta rule ---- */

/* Norms of q and k, in place, and the gates.
 *   grid    ceil((2 n_k + 1) / 8), n_row; block ROW_THREADS: 32 lanes a head, and 32 for the row's gates
 *   shared  none
 *   needs   nothing
 *   order   rule 8, 64 partial sums */
KERNEL(delta_prepare, delta_job, ROW_THREADS) {
    const delta_args *a = &job.a;
    const u32 ih = BLOCK_X * (ROW_THREADS / 32) + THREAD / 32, row = BLOCK_Y, n_head = 2 * a->n_k;
    const bool head = ih < n_head;
    float *x = a->qkv + (u64)row * (n_head * a->d_k + a->n_v * a->d_v) + (u64)(head ? ih : 0) * a->d_k;
    const float r = 1.0f / f32_sqrt(lane_sum_squares(x, head ? a->d_k : 0) + 1e-6f);
    const float scale = 1.0f / f32_sqrt((float)a->d_k);
    for (u32 i = LANE; head && i < a->d_k; i += 32) x[i] = ih < a->n_k ? (x[i] * r) * scale : x[i] * r;
    if (ih != n_head) return;
    for (u32 h = LANE; h < a->n_v; h += 32) {
        const u64 at = (u64)row * a->n_v + h;
        job.gate[2 * at] = exactf_exp(a->a[h] * exactf_softplus(a->alpha[at] + a->dt_bias[h]));
        job.gate[2 * at + 1] = exactf_sigmoid(a->beta[at]);
    }
}

/* What four lanes work on: one column of one value head of one run. */
typedef struct delta_place {
    u32 head, key, c, lane; // key head, column, which of the four lanes
    bool on;
    float *state, *s; // of the sequence; of the head, at the column
} delta_place;

DEV float *delta_log(const delta_args *a, float *state, u32 bank, u32 i) {
    return state + (u64)a->n_v * a->d_k * a->d_v +
           ((u64)bank * WINDOW_MAX + i) * delta_log_row(a->n_k, a->n_v, a->d_k, a->d_v);
}

DEV delta_place delta_place_of(const delta_args *a, const row_run *run) {
    delta_place p;
    p.head = BLOCK_Y;
    p.key = p.head % a->n_k;
    p.c = BLOCK_X * DELTA_COLS + THREAD / DELTA_LANES;
    p.lane = THREAD % DELTA_LANES;
    p.on = p.c < a->d_v;
    p.state = a->state + (u64)(u32)run->seq * a->ld_seq;
    p.s = p.state + (u64)p.head * a->d_k * a->d_v + (p.on ? p.c : 0);
    return p;
}

/* Row `row` for one column: n values of it in s. Returns delta. */
DEV float delta_step(float *s, const delta_job *j, const delta_place *p, u32 row, u32 n) {
    const delta_args *a = &j->a;
    const u32 n_key = a->n_k * a->d_k;
    const float *q = a->qkv + (u64)row * (2 * n_key + a->n_v * a->d_v) + p->key * a->d_k, *k = q + n_key;
    const float *v = q - p->key * a->d_k + 2 * n_key + p->head * a->d_v;
    const float *gate = j->gate + 2 * ((u64)row * a->n_v + p->head);
    const float g = gate[0];
    float part = 0.0f;
    UNROLL
    for (u32 i = 0; i < n; i++) {
        s[i] = s[i] * g;
        part = f32_fma(s[i], k[DELTA_LANES * i + p->lane], part);
    }
    const float kv = lane_tree_f32(part, DELTA_LANES);
    const float delta = ((p->on ? v[p->c] : 0.0f) - kv) * gate[1];
    part = 0.0f;
    UNROLL
    for (u32 i = 0; i < n; i++) {
        s[i] = f32_fma(k[DELTA_LANES * i + p->lane], delta, s[i]);
        part = f32_fma(s[i], q[DELTA_LANES * i + p->lane], part);
    }
    const float o = lane_tree_f32(part, DELTA_LANES);
    if (p->on && p->lane == 0) a->o[((u64)row * a->n_v + p->head) * a->d_v + p->c] = o;
    return delta;
}

/* Logged rows that were accepted: the same operations on the same values as when they came. */
DEV void delta_commit(float *s, const delta_args *a, const delta_place *p, const row_run *run, u32 n) {
    for (u32 t = 0; t < run->n_commit; t++) {
        const float *log = delta_log(a, p->state, run->bank ^ 1u, t), *k = log + p->key * a->d_k;
        const float g = log[a->n_k * a->d_k + p->head];
        const float *delta = log + a->n_k * a->d_k + a->n_v + p->head * a->d_v;
        const float d = p->on ? delta[p->c] : 0.0f;
        UNROLL
        for (u32 i = 0; i < n; i++) {
            s[i] = f32_fma(k[DELTA_LANES * i + p->lane], d, s[i] * g);
        }
    }
}

DEV void delta_load(float *s, const delta_args *a, const delta_place *p, u32 n) {
    UNROLL
    for (u32 i = 0; i < n; i++) s[i] = p->s[(u64)(DELTA_LANES * i + p->lane) * a->d_v];
}
DEV void delta_store(const float *s, const delta_args *a, const delta_place *p, u32 n) {
    if (!p->on) return;
    UNROLL
    for (u32 i = 0; i < n; i++) p->s[(u64)(DELTA_LANES * i + p->lane) * a->d_v] = s[i];
}

/* Row i of a window into the log: keys once a key head, the gate once a head, delta by column. */
DEV void delta_log_put(const delta_job *j, const delta_place *p, const row_run *run, u32 i, float delta) {
    const delta_args *a = &j->a;
    const u32 row = run->row0 + i, n_key = a->n_k * a->d_k;
    float *log = delta_log(a, p->state, run->bank, i);
    const float *k = a->qkv + (u64)row * (2 * n_key + a->n_v * a->d_v) + n_key + p->key * a->d_k;
    if (p->head < a->n_k && BLOCK_X == 0) {
        for (u32 t = THREAD; t < a->d_k; t += DELTA_THREADS) log[p->key * a->d_k + t] = k[t];
    }
    if (BLOCK_X == 0 && THREAD == 0) log[n_key + p->head] = j->gate[2 * ((u64)row * a->n_v + p->head)];
    if (p->on && p->lane == 0) log[n_key + a->n_v + p->head * a->d_v + p->c] = delta;
}

/* The gated delta rule for states of 4 n rows.
 *   grid    ceil(d_v / DELTA_COLS), n_v, n_run; block DELTA_THREADS
 *   shared  none
 *   needs   delta_prepare before it; d_k == 4 n
 *   order   rule 7 */
#define DELTA_RUNS(n)                                                                                        \
    KERNEL(delta_runs_##n, delta_job, DELTA_THREADS) {                                                       \
        const row_run run = job.a.runs[BLOCK_Z];                                                             \
        const delta_place p = delta_place_of(&job.a, &run);                                                  \
        float s[n];                                                                                          \
        delta_load(s, &job.a, &p, n);                                                                        \
        delta_commit(s, &job.a, &p, &run, n);                                                                \
        if (run.n_commit) delta_store(s, &job.a, &p, n);                                                     \
        for (u32 i = 0; i < run.n_row; i++) {                                                                \
            const float delta = delta_step(s, &job, &p, run.row0 + i, n);                                    \
            if (run.window) delta_log_put(&job, &p, &run, i, delta);                                         \
        }                                                                                                    \
        if (!run.window) delta_store(s, &job.a, &p, n);                                                      \
    }
DELTA_RUNS(4)
DELTA_RUNS(8)
DELTA_RUNS(16)
DELTA_RUNS(32)
DELTA_RUNS(64)
#undef DELTA_RUNS

#endif
