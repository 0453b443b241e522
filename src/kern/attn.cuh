/* Attention (rule 6).
 *
 * A block of threads works on ATTN_HEADS query heads of one row that share a key head, and on one block of
 * KV_PAGE positions at a time:
 *     scores   4 lanes a key, 8 of the 32 partial sums each
 *     m        32 lanes a head
 *     p        a thread a position
 *     l, o     a thread a (head, channel), positions left to right
 * With few rows the blocks of positions lie beside each other in the grid, leave (o, m, l) in scratch and are
 * joined by attn_join; with many rows one block of threads walks them and joins as it goes. The join is the
 * same operations either way: the same bits. */
#ifndef MICA_KERN_ATTN_CUH
#define MICA_KERN_ATTN_CUH

#include "kern/cache.cuh"

enum { ATTN_KEY_LANES = 4 };

/* Positions of one row inside one block: from..from + n of the sequence, or of the row's list. */
typedef struct attn_span {
    const i32 *list; // NULL: positions count up
    u32 from, n;
} attn_span;

/* What a block of threads is about. */
typedef struct attn_place {
    u32 row, kv_head, head0, n_head; // n_head <= ATTN_HEADS query heads from head0 on
    i32 seq;
    u32 first, last; // visible positions, without a list
    const i32 *list; // ascending, n_list of them; NULL: all from first to last
    u32 n_list;
} attn_place;

/* Shared memory. */
typedef struct attn_room {
    float *q;                 // [ATTN_HEADS][ATTN_DIM_MAX]
    float *p, *pv;            // [ATTN_HEADS][KV_PAGE]; [KV_PAGE][ATTN_HEADS]
    float *o;                 // [ATTN_HEADS][d_v]
    float *m, *l, *top, *sum; // [ATTN_HEADS]: of the block, and of all so far
} attn_room;

/* Head groups of a key head. */
DEV u32 attn_groups(const attn_args *a) {
    return (a->n_head / a->n_head_kv + ATTN_HEADS - 1) / ATTN_HEADS;
}

DEV attn_place attn_place_of(const attn_args *a, u32 group, u32 row) {
    attn_place p;
    const u32 share = a->n_head / a->n_head_kv, n_group = attn_groups(a), h0 = group % n_group * ATTN_HEADS;
    p.row = row;
    p.kv_head = group / n_group;
    p.head0 = p.kv_head * share + h0;
    p.n_head = u32_min(share - h0, ATTN_HEADS);
    p.seq = a->rows[row].seq;
    p.last = (u32)a->rows[row].pos;
    p.first = a->window && p.last >= a->window ? p.last - a->window + 1 : 0;
    p.list = a->sel ? a->sel + (u64)row * a->ld_sel : (const i32 *)0;
    p.n_list = 0;
    if (p.list && p.list[0] < 0) p.list = (const i32 *)0;
    if (p.list) {
        p.n_list = (u32)p.list[0];
        p.list++;
        p.first = p.n_list ? (u32)p.list[0] : 0;
        p.last = p.n_list ? (u32)p.list[p.n_list - 1] : 0;
    }
    return p;
}

/* The first entry of the list that is not below pos. */
DEV u32 attn_list_find(const attn_place *p, u32 pos) {
    u32 lo = 0, hi = p->n_list;
    while (lo < hi) {
        const u32 mid = (lo + hi) / 2;
        if ((u32)p->list[mid] < pos)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Visible positions in [KV_PAGE ib, KV_PAGE (ib + 1)). */
DEV attn_span attn_span_of(const attn_place *p, u32 ib) {
    attn_span s;
    const u32 begin = ib * KV_PAGE, end = begin + KV_PAGE;
    s.list = p->list;
    s.n = 0;
    s.from = 0;
    if (p->list) {
        s.from = attn_list_find(p, begin);
        s.n = attn_list_find(p, end) - s.from;
        return s;
    }
    s.from = begin > p->first ? begin : p->first;
    const u32 to = u32_min(end, p->last + 1);
    s.n = to > s.from ? to - s.from : 0;
    return s;
}

DEV u32 attn_position(const attn_span *s, u32 j) {
    return s->list ? (u32)s->list[s->from + j] : s->from + j;
}

DEV void attn_load_query(const attn_args *a, const attn_place *p, const attn_room *s) {
    for (u32 h = 0; h < ATTN_HEADS; h++) { // heads beyond the last are it again, and nobody looks
        const u32 ih = p->head0 + u32_min(h, p->n_head - 1);
        const float *q = a->q + (u64)p->row * a->ld_q + (u64)ih * a->head_ld_q;
        for (u32 i = THREAD; i < a->d_k; i += ATTN_THREADS) s->q[h * ATTN_DIM_MAX + i] = q[i];
    }
}

/* One value of a key into the partial sums of each head; q is where the first head's value is. */
DEV void attn_dot_add(float part[ATTN_HEADS][8], u32 to, const float *q, float k) {
    UNROLL
    for (u32 h = 0; h < ATTN_HEADS; h++) part[h][to] = f32_fma(q[h * ATTN_DIM_MAX], k, part[h][to]);
}

/* Eight values of a key, in wide loads, into the partial sums of each head. */
DEV void attn_dot_add8(float part[ATTN_HEADS][8], const float *q, const float k[8]) {
    UNROLL
    for (u32 h = 0; h < ATTN_HEADS; h++) {
        u32 bits[8];
        load_16(bits, q + h * ATTN_DIM_MAX);
        load_16(bits + 4, q + h * ATTN_DIM_MAX + 4);
        UNROLL
        for (u32 i = 0; i < 8; i++) part[h][i] = f32_fma(bits_f32(bits[i]), k[i], part[h][i]);
    }
}

/* Four times eight values of an f16 key, 32 apart: four loads on their way at once. */
DEV void attn_dot_f16(float part[ATTN_HEADS][8], const float *q, const u16 *key) {
    u32 w[4][4];
    UNROLL
    for (u32 t = 0; t < 4; t++) load_16(w[t], key + 32 * t);
    UNROLL
    for (u32 t = 0; t < 4; t++) {
        float k[8];
        UNROLL
        for (u32 i = 0; i < 8; i++) k[i] = f16_to_f32((u16)(w[t][i / 2] >> 16 * (i % 2) & 0xFFFF));
        attn_dot_add8(part, q + 32 * t, k);
    }
}

/* The eight partial sums of one lane for each head. */
DEV void attn_dot(float part[ATTN_HEADS][8], const attn_args *a, const attn_room *s, u64 vec) {
    const u32 d = a->d_k;
    if (d % 128 == 0 && a->kv.type == KV_F16) {
        const u16 *key = (const u16 *)a->kv.k + vec * d;
        for (u32 i = 8 * (LANE % ATTN_KEY_LANES); i < d; i += 128) attn_dot_f16(part, s->q + i, key + i);
        return;
    }
    if (d % 8 == 0) {
        for (u32 i = 8 * (LANE % ATTN_KEY_LANES); i < d; i += 32) {
            float k[8];
            cache_load8(k, a->kv.k, a->kv.type, vec * d + i);
            attn_dot_add8(part, s->q + i, k);
        }
        return;
    }
    for (u32 i0 = 8 * (LANE % ATTN_KEY_LANES); i0 < d; i0 += 32) {
        UNROLL
        for (u32 i = 0; i < 8; i++) {
            if (i0 + i >= d) continue;
            attn_dot_add(part, i, s->q + i0 + i, cache_load(a->kv.k, a->kv.type, vec * d + i0 + i));
        }
    }
}

/* p[h][j] = score of position j. */
DEV void attn_scores(const attn_args *a, const attn_place *p, const attn_span *span, const attn_room *s,
                     i32 page) {
    for (u32 j0 = 0; j0 < span->n; j0 += ATTN_THREADS / ATTN_KEY_LANES) {
        const u32 j = j0 + THREAD / ATTN_KEY_LANES;
        const bool on = j < span->n;
        const u64 vec = cache_vector(page, a->n_head_kv, p->kv_head, on ? attn_position(span, j) : 0);
        float part[ATTN_HEADS][8], dot[4];
        UNROLL
        for (u32 i = 0; i < ATTN_HEADS * 8; i++) part[i / 8][i % 8] = 0.0f;
        if (on) attn_dot(part, a, s, vec);
        UNROLL
        for (u32 h = 0; h < ATTN_HEADS; h++) {
            const float *t = part[h];
            dot[h] = lane_tree_f32(((t[0] + t[1]) + (t[2] + t[3])) + ((t[4] + t[5]) + (t[6] + t[7])),
                                   ATTN_KEY_LANES);
        }
        if (!on) continue;
        UNROLL
        for (u32 h = 0; h < ATTN_HEADS; h++) {
            if (h % ATTN_KEY_LANES != LANE % ATTN_KEY_LANES || h >= p->n_head) continue;
            const float t = a->kv.type == KV_I8 ? dot[h] * a->kv.k_scale[vec] : dot[h];
            s->p[h * KV_PAGE + j] = t * a->scale;
        }
    }
}

/* m[h], the largest score of a head. */
DEV void attn_max(const attn_place *p, const attn_span *span, const attn_room *s) {
    const u32 h = THREAD / 32;
    float m = -__builtin_inff();
    if (h < p->n_head) {
        for (u32 j = LANE; j < span->n; j += 32) m = s->p[h * KV_PAGE + j] > m ? s->p[h * KV_PAGE + j] : m;
    }
    m = lane_max_f32(m, 32);
    if (h < p->n_head && LANE == 0) s->m[h] = m;
}

/* p = exp(score - m); pv the same times the value's scale. */
DEV void attn_weights(const attn_args *a, const attn_place *p, const attn_span *span, const attn_room *s,
                      i32 page) {
    for (u32 j = THREAD; j < span->n; j += ATTN_THREADS) {
        float scale = 1.0f;
        if (a->kv.type == KV_I8)
            scale = a->kv.v_scale[cache_vector(page, a->n_head_kv, p->kv_head, attn_position(span, j))];
        for (u32 h = 0; h < p->n_head; h++) {
            const float e = exactf_exp(s->p[h * KV_PAGE + j] - s->m[h]);
            s->p[h * KV_PAGE + j] = e;
            s->pv[j * ATTN_HEADS + h] = a->kv.type == KV_I8 ? e * scale : e;
        }
    }
}

/* One value of the cache into the sums of n heads; pv is where the position's weight for the first is. */
DEV void attn_value_add(float o[ATTN_HEADS], const float *pv, float v, u32 n) {
    UNROLL
    for (u32 h = 0; h < n; h++) o[h] = f32_fma(pv[h], v, o[h]);
}

/* o of the heads [h0, h0 + n) and channel c over the span, n of 1, 2, 4 known to the compiler: a value of the
 * cache is loaded once for all of them. Neighbouring positions are loaded eight at a time. */
DEV void attn_channel(const attn_args *a, const attn_place *p, const attn_span *span, const attn_room *s,
                      u32 i, u32 n) {
    const u32 h0 = i / a->d_v * n, c = i % a->d_v, d = a->d_v;
    const i32 page = cache_page(&a->pages, p->seq, attn_position(span, 0));
    const u64 base = cache_vector(page, a->n_head_kv, p->kv_head, 0), first = base + span->from % KV_PAGE;
    float o[ATTN_HEADS];
    u32 j = 0;
    UNROLL
    for (u32 h = 0; h < n; h++) o[h] = 0.0f;
    for (; !span->list && j + 8 <= span->n; j += 8) {
        float v[8];
        cache_load_column(v, a->kv.v, a->kv.type, (first + j) * d + c, d);
        UNROLL
        for (u32 k = 0; k < 8; k++) attn_value_add(o, s->pv + (j + k) * ATTN_HEADS + h0, v[k], n);
    }
    for (; j < span->n; j++) {
        const u64 vec = base + attn_position(span, j) % KV_PAGE;
        attn_value_add(o, s->pv + j * ATTN_HEADS + h0, cache_load(a->kv.v, a->kv.type, vec * d + c), n);
    }
    UNROLL
    for (u32 h = 0; h < n; h++) {
        if (h0 + h < p->n_head) s->o[(h0 + h) * d + c] = o[h];
    }
}

/* o of all heads: as many heads a thread as leave no thread idle. */
DEV void attn_channels(const attn_args *a, const attn_place *p, const attn_span *span, const attn_room *s) {
    const u32 d = a->d_v, n_head = p->n_head;
    if (d > ATTN_THREADS / 2) {
        for (u32 i = THREAD; i < d; i += ATTN_THREADS) attn_channel(a, p, span, s, i, 4);
    } else if (d > ATTN_THREADS / 4) {
        for (u32 i = THREAD; i < (n_head + 1) / 2 * d; i += ATTN_THREADS) attn_channel(a, p, span, s, i, 2);
    } else {
        for (u32 i = THREAD; i < n_head * d; i += ATTN_THREADS) attn_channel(a, p, span, s, i, 1);
    }
}

/* One block of positions, n > 0: m, l and o in shared memory. The query is there; ends with a barrier. */
DEV void attn_block(const attn_args *a, const attn_place *p, const attn_span *span, const attn_room *s) {
    const i32 page = cache_page(&a->pages, p->seq, attn_position(span, 0));
    attn_scores(a, p, span, s, page);
    block_sync();
    attn_max(p, span, s);
    block_sync();
    attn_weights(a, p, span, s, page);
    block_sync();
    if (LANE == 0 && THREAD / 32 < p->n_head) {
        const float *w = s->p + THREAD / 32 * KV_PAGE;
        float l = 0.0f;
        for (u32 j = 0; j < span->n; j++) l = l + w[j];
        s->l[THREAD / 32] = l;
    }
    attn_channels(a, p, span, s);
    block_sync();
}

/* What a running softmax and a block's are multiplied with when they are joined. */
typedef struct attn_factor {
    float top, a, b;
} attn_factor;

DEV attn_factor attn_factor_of(float run_m, float m) {
    attn_factor f;
    f.top = run_m > m ? run_m : m;
    f.a = exactf_exp(run_m - f.top);
    f.b = exactf_exp(m - f.top);
    return f;
}

/* The finished output of (head, channel), i within the place's heads. With want_q the lanes of 32 channels
 * come together; a lane that has none comes with on = false. */
DEV void attn_finish(const attn_job *j, const attn_place *p, u32 i, float o, float l, bool on) {
    const attn_args *a = &j->a;
    const u32 h = p->head0 + i / a->d_v, c = i % a->d_v;
    o = on ? o * (1.0f / l) : 0.0f;
    if (on && a->gate) o = o * exactf_sigmoid(a->gate[(u64)p->row * a->ld_q + (u64)h * a->head_ld_q + c]);
    if (on) a->o.x[(u64)p->row * a->o.ld + (u64)h * a->d_v + c] = o;
    if (a->want_q) act_store(&a->o, p->row, h * a->d_v + c, o, on, &j->bad);
}

#define ATTN_SHARED(s)                                                                                       \
    SHARED(float, s_q, ATTN_HEADS *ATTN_DIM_MAX);                                                            \
    SHARED(float, s_p, ATTN_HEADS *KV_PAGE);                                                                 \
    SHARED(float, s_pv, ATTN_HEADS *KV_PAGE);                                                                \
    SHARED(float, s_o, ATTN_HEADS *ATTN_DIM_MAX);                                                            \
    SHARED(float, s_m, 4 * ATTN_HEADS);                                                                      \
    attn_room s;                                                                                             \
    s.q = s_q, s.p = s_p, s.pv = s_pv, s.o = s_o, s.m = s_m;                                                 \
    s.l = s_m + ATTN_HEADS, s.top = s_m + 2 * ATTN_HEADS, s.sum = s_m + 3 * ATTN_HEADS

/* One block of positions of one row and head group into scratch.
 *   grid    n_part, head groups of all key heads, n_row; block ATTN_THREADS
 *   shared  about 24 KiB
 *   needs   d_k, d_v <= ATTN_DIM_MAX; n_part blocks reach from the first visible position to the last
 *   order   rule 6 */
KERNEL(attn_part, attn_job, ATTN_THREADS) {
    ATTN_SHARED(s);
    const attn_args *a = &job.a;
    const attn_place p = attn_place_of(a, BLOCK_Y, BLOCK_Z);
    const attn_span span = attn_span_of(&p, p.first / KV_PAGE + BLOCK_X);
    float *part = job.part + (((u64)p.row * a->n_head + p.head0) * job.n_part + BLOCK_X) * (a->d_v + 2);
    const u64 ld = (u64)job.n_part * (a->d_v + 2);
    if (span.n == 0) {
        if (THREAD < p.n_head) part[THREAD * ld + a->d_v + 1] = 0.0f; // l: no such block
        return;
    }
    attn_load_query(a, &p, &s);
    block_sync();
    attn_block(a, &p, &span, &s);
    for (u32 i = THREAD; i < p.n_head * a->d_v; i += ATTN_THREADS)
        part[i / a->d_v * ld + i % a->d_v] = s.o[i];
    if (THREAD < p.n_head) {
        part[THREAD * ld + a->d_v] = s.m[THREAD];
        part[THREAD * ld + a->d_v + 1] = s.l[THREAD];
    }
}

/* Shared memory of a join: maximum, sum and factors of JOIN_THREADS parts; a < 0: the first part. */
typedef struct join_room {
    float *m, *l, *a, *b;
} join_room;

/* What is joined so far: the same in all threads. */
typedef struct join_run {
    float m, l;
    bool any;
} join_run;

/* The factors of part THREAD: the largest score before it is a maximum like any other, so parts need not
 * wait. */
DEV void join_factors(const join_room *s, const join_run *run) {
    float before = run->m;
    bool any = run->any;
    for (u32 k = 0; k < THREAD; k++) {
        if (s->l[k] == 0.0f) continue;
        before = any && before > s->m[k] ? before : s->m[k];
        any = true;
    }
    const attn_factor f = attn_factor_of(any ? before : s->m[THREAD], s->m[THREAD]);
    s->a[THREAD] = any ? f.a : -1.0f;
    s->b[THREAD] = f.b;
}

/* Part k into the running sums and one channel's value; a part without positions (l 0) changes nothing. */
DEV float join_add(join_run *run, const join_room *s, u32 k, float o, float v) {
    const float l = s->l[k], a = s->a[k], b = s->b[k];
    const bool first = a < 0.0f, is = l != 0.0f;
    run->l = !is ? run->l : first ? l : run->l * a + l * b;
    run->m = !is ? run->m : first || s->m[k] > run->m ? s->m[k] : run->m;
    run->any = run->any || is;
    return !is ? o : first ? v : o * a + v * b;
}

/* Joins the parts of one row and head, for JOIN_THREADS channels.
 *   grid    n_head, n_row, ceil(d_v / JOIN_THREADS); block JOIN_THREADS
 *   shared  4 KiB
 *   needs   attn_part before it, the same record; d_v % 32 == 0 when want_q
 *   order   rule 6, blocks left to right */
KERNEL(attn_join, attn_job, JOIN_THREADS) {
    SHARED(float, s_m, JOIN_THREADS);
    SHARED(float, s_l, JOIN_THREADS);
    SHARED(float, s_a, JOIN_THREADS);
    SHARED(float, s_b, JOIN_THREADS);
    join_room s;
    s.m = s_m, s.l = s_l, s.a = s_a, s.b = s_b;
    const attn_args *a = &job.a;
    const u32 ld = a->d_v + 2, c = BLOCK_Z * JOIN_THREADS + THREAD;
    const float *part = job.part + ((u64)BLOCK_Y * a->n_head + BLOCK_X) * job.n_part * ld;
    const bool on = c < a->d_v;
    attn_place p;
    p.row = BLOCK_Y;
    p.head0 = BLOCK_X;
    join_run run;
    run.m = run.l = 0.0f;
    run.any = false;
    float o = 0.0f;
    for (u32 p0 = 0; p0 < job.n_part; p0 += JOIN_THREADS) {
        const u32 n = u32_min(job.n_part - p0, JOIN_THREADS);
        const float *from = part + (u64)p0 * ld;
        if (THREAD < n) {
            s.m[THREAD] = from[THREAD * ld + a->d_v];
            s.l[THREAD] = from[THREAD * ld + a->d_v + 1];
        }
        block_sync();
        if (THREAD < n) join_factors(&s, &run);
        block_sync();
        for (u32 k = 0; k < n; k++) o = join_add(&run, &s, k, o, on ? from[k * ld + c] : 0.0f);
        block_sync();
    }
    attn_finish(&job, &p, c, o, run.l, on);
}

/* All blocks of positions of one row and head group.
 *   grid    head groups of all key heads, n_row; block ATTN_THREADS
 *   shared  about 40 KiB
 *   needs   d_k, d_v <= ATTN_DIM_MAX; d_v % 32 == 0 when want_q
 *   order   rule 6 */
KERNEL(attn_rows, attn_job, ATTN_THREADS) {
    ATTN_SHARED(s);
    SHARED(float, run, ATTN_HEADS *ATTN_DIM_MAX);
    const attn_args *a = &job.a;
    const attn_place p = attn_place_of(a, BLOCK_X, BLOCK_Y);
    attn_load_query(a, &p, &s);
    if (THREAD < ATTN_HEADS) s.sum[THREAD] = 0.0f; // until the first block: a sum is at least 1
    block_sync();
    for (u32 ib = p.first / KV_PAGE; ib <= p.last / KV_PAGE; ib++) {
        const attn_span span = attn_span_of(&p, ib);
        if (span.n == 0) continue;
        attn_block(a, &p, &span, &s);
        for (u32 i = THREAD; i < p.n_head * a->d_v; i += ATTN_THREADS) {
            const u32 h = i / a->d_v;
            const bool any = s.sum[h] != 0.0f;
            const attn_factor f = attn_factor_of(any ? s.top[h] : s.m[h], s.m[h]);
            run[i] = any ? run[i] * f.a + s.o[i] * f.b : s.o[i];
        }
        block_sync();
        if (THREAD < p.n_head) {
            const bool any = s.sum[THREAD] != 0.0f;
            const attn_factor f = attn_factor_of(any ? s.top[THREAD] : s.m[THREAD], s.m[THREAD]);
            s.sum[THREAD] = any ? s.sum[THREAD] * f.a + s.l[THREAD] * f.b : s.l[THREAD];
            s.top[THREAD] = f.top;
        }
        block_sync();
    }
    for (u32 i0 = 0; i0 < p.n_head * a->d_v; i0 += ATTN_THREADS) {
        const u32 i = i0 + THREAD;
        const bool on = i < p.n_head * a->d_v;
        attn_finish(&job, &p, i, on ? run[i] : 0.0f, on ? s.sum[i / a->d_v] : 1.0f, on);
    }
}

#endif
