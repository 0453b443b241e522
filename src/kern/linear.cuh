/* Products with weights, token role (rules 3 and 5).
 *
 * ROW_LANES lanes share a segment of a row of quantised weights and walk it a unit of 256 columns at a time:
 * lane k has block k of the unit and so the accumulators of its eight groups of four (the types of pair.cuh
 * divide a unit otherwise). A segment of float weights has FLOAT_LANES lanes, lane k columns 2k and 2k + 1 of
 * every 64. A block of threads holds whole rows: the segments of a row meet in shared memory and are added
 * left to right by one thread a result, which also sees to the companions. */
#ifndef MICA_KERN_LINEAR_CUH
#define MICA_KERN_LINEAR_CUH

#include "kern/types.cuh"
#include "kern/record.h"

/* The output that a block of the grid is about. */
typedef struct linear_pick {
    linear_out out;
    u32 block, which; // its block within the output, the part of an expert that the weight is
} linear_pick;

/* Taken by comparing, not by indexing: an index into a kernel's record would cost a copy of it in memory. */
DEV linear_pick linear_pick_of(const linear_job *j) {
    linear_pick p;
    p.out = j->out[0];
    p.which = j->which[0];
    p.block = BLOCK_X;
    UNROLL
    for (u32 k = 1; k < LINEAR_OUT_MAX; k++) {
        if (k < j->n_out && BLOCK_X >= j->first[k]) {
            p.out = j->out[k];
            p.which = j->which[k];
            p.block = BLOCK_X - j->first[k];
        }
    }
    return p;
}

/* How a kernel divides a block of threads: groups of n_lane lanes, each with n_weight rows of weights and
 * n_act of the n_row rows of activations that the block takes. */
typedef struct token_shape {
    u32 n_lane, n_weight, n_act, n_row;
} token_shape;

/* What one group of lanes works on. */
typedef struct token_place {
    const u8 *w;    // the weights
    u32 ir, is;     // the first of its rows of weights, segment
    u32 begin, end; // columns of the segment; empty for a group without work
    u32 set;        // the first of its rows of activations, within the block's
} token_place;

/* The expert of pair p; 0 without experts. */
DEV u32 pair_expert(const expert_pairs *p, u32 pair) {
    return p->at ? (u32)p->ids[pair] : 0;
}

/* The weights w of an output, or those of an expert's part. */
DEV const u8 *linear_weight(const linear_job *j, const void *w, u32 which, u32 expert) {
    if (!j->pairs.at) return global_bytes(w);
    const expert_at *e = j->pairs.at + expert;
    return global_bytes(which == EXPERT_GATE ? e->gate : which == EXPERT_UP ? e->up : e->down);
}

/* y = (add ? y : 0) + ((v * scale) + bias), each step only when it is asked for. */
DEV void linear_finish(const linear_out *o, u32 ir, u32 row, u32 expert, float v) {
    if (o->w.scale) v = v * o->w.scale[expert];
    if (o->w.bias) v = v + o->w.bias[ir];
    float *y = o->y + (u64)row * o->ld_y + ir;
    *y = o->add ? *y + v : v;
}

DEV token_shape token_shape_of(u32 n_lane, u32 n_weight, u32 n_act, u32 n_row) {
    token_shape t;
    t.n_lane = n_lane;
    t.n_weight = n_weight;
    t.n_act = n_act;
    t.n_row = n_row;
    return t;
}

DEV token_place token_place_of(const linear_job *j, const linear_pick *o, const token_shape *t) {
    token_place p;
    const u32 n_group = TOKEN_THREADS / t->n_lane / (t->n_row / t->n_act); // that differ in weights
    const u32 group = THREAD / t->n_lane % n_group, n_col = o->out.w.n_col, r = group / j->n_segment;
    p.ir = o->block * j->n_block_row + r * t->n_weight;
    p.is = group % j->n_segment;
    p.set = THREAD / t->n_lane / n_group * t->n_act;
    const bool on = r * t->n_weight < j->n_block_row && p.ir < o->out.w.n_row;
    p.w = linear_weight(j, o->out.w.w, o->which, pair_expert(&j->pairs, j->row0 + BLOCK_Y * t->n_row));
    p.begin = segment_begin(p.is, j->n_segment, n_col);
    p.end = on ? segment_begin(p.is + 1, j->n_segment, n_col) : p.begin;
    return p;
}

/* Row i of the group's weights; the last of all again where there are fewer. */
DEV const u8 *token_weight(const token_place *p, const linear_pick *o, u32 i, u64 row_bytes) {
    return p->w + u32_min(p->ir + i, o->out.w.n_row - 1) * row_bytes;
}

/* Row i of the group's activations, the last again where there are fewer. */
DEV u32 token_act(const linear_job *j, const token_place *p, const token_shape *t, u32 i) {
    const u32 row = u32_min(j->row0 + BLOCK_Y * t->n_row + p->set + i, j->row0 + j->n_row - 1);
    return j->pairs.at && !j->pairs.by_pair ? row / j->pairs.n_used : row;
}

/* Where the group's value for its row of weights r and of activations i meets the other segments':
 * [row of the block, segment, n_row]. */
DEV u32 token_part(const linear_job *j, const linear_pick *o, const token_place *p, const token_shape *t,
                   u32 r, u32 i) {
    return ((p->ir + r - o->block * j->n_block_row) * j->n_segment + p->is) * t->n_row + p->set + i;
}

/* Adds the segments of each result, part[row of the block, segment, nt], and stores. */
DEV void token_store(const linear_job *j, const linear_pick *o, const float *part, u32 nt) {
    const u32 first = j->row0 + BLOCK_Y * nt, expert = pair_expert(&j->pairs, first);
    for (u32 i = THREAD; i < j->n_block_row * nt; i += TOKEN_THREADS) {
        const u32 r = i / nt, t = i % nt, ir = o->block * j->n_block_row + r;
        if (ir >= o->out.w.n_row || first + t >= j->row0 + j->n_row) continue;
        float sum = 0.0f;
        for (u32 s = 0; s < j->n_segment; s++) sum = sum + part[(r * j->n_segment + s) * nt + t];
        linear_finish(&o->out, ir, first + t, expert, sum);
    }
}

/* ---- quantised weights ---- */

/* One lane's accumulators for one row of activations: the groups of one block mod 8, and its minimum. */
typedef struct token_acc {
    float acc[8], min;
} token_acc;

DEV void token_acc_clear(token_acc *t) {
    UNROLL
    for (u32 g = 0; g < 8; g++) t->acc[g] = 0.0f;
    t->min = 0.0f;
}

/* Block ib of the weights meets that of a row of activations. */
DEV void token_block(token_acc *t, const quant_block *b, const quant_act *a, u64 at, u32 n_sub, u32 has_min) {
    u32 x[8];
    load_16(x, a->q + at);
    load_16(x + 4, a->q + at + 16);
    const float d = a->d[at / 32], s0 = b->scale[0] * d, s1 = n_sub == 2 ? b->scale[1] * d : s0;
    UNROLL
    for (u32 g = 0; g < 8; g++)
        t->acc[g] = f32_fma(g < 4 ? s0 : s1, dot_f32(dot4(b->q[g], x[g], DOT_ZERO)), t->acc[g]);
    if (!has_min) return;
    if (n_sub == 1) {
        t->min = f32_fma(b->min[0], a->s[at / 32], t->min);
        return;
    }
    t->min = f32_fma(b->min[0], a->s16[at / 16], t->min);
    t->min = f32_fma(b->min[1], a->s16[at / 16 + 1], t->min);
}

/* The tree of rule 3 over the eight lanes. Blocks 2k and 2k + 1 are neighbours: each of the two lanes adds
 * half of their groups. */
DEV float token_tree(const token_acc *t, u32 has_min) {
    const bool odd = LANE % 2 == 1;
    float p[4], mine[4];
    UNROLL
    for (u32 g = 0; g < 4; g++) {
        const float low = t->acc[g], high = t->acc[g + 4];
        p[g] = odd ? low : high;
        mine[g] = odd ? high : low;
    }
    lane_xor4_f32(p, 1);
    UNROLL
    for (u32 g = 0; g < 4; g++) p[g] = p[g] + mine[g];
    const float sum = lane_tree_f32((p[0] + p[1]) + (p[2] + p[3]), ROW_LANES);
    return sum - (has_min ? lane_tree_f32(t->min, ROW_LANES) : 0.0f);
}

/* y = W a for nt rows of activations, na of them a group of lanes.
 *   grid    blocks of rows of every output (linear_job.first), ceil(n_row / nt) or n_pair; block
 * TOKEN_THREADS shared  TOKEN_GROUPS * na floats needs   n_segment <= TOKEN_GROUPS * na / nt, n_block_row the
 * rows that they hold; experts: nt 1 order   rule 3 */
#define TOKEN_QUANT(name, n_sub, has_min, nt, na, UNROLL_UNITS)                                              \
    KERNEL_EARLY(token_##name##_##nt, linear_job, TOKEN_THREADS, nt == 1 ? 4 : 2) {                          \
        SHARED(float, part, TOKEN_GROUPS *na);                                                               \
        grid_wait();                                                                                         \
        const linear_pick o = linear_pick_of(&job);                                                          \
        const token_shape shape = token_shape_of(ROW_LANES, 1, na, nt);                                      \
        const token_place p = token_place_of(&job, &o, &shape);                                              \
        const u8 *row = token_weight(&p, &o, 0, name##_row_bytes(o.out.w.n_col));                            \
        token_acc t[na];                                                                                     \
        u32 act[na];                                                                                         \
        UNROLL                                                                                               \
        for (u32 i = 0; i < na; i++) {                                                                       \
            token_acc_clear(&t[i]);                                                                          \
            act[i] = token_act(&job, &p, &shape, i);                                                         \
        }                                                                                                    \
        UNROLL_UNITS                                                                                         \
        for (u32 ib = p.begin / 32 + LANE % ROW_LANES; ib < p.end / 32; ib += ROW_LANES) {                   \
            quant_block b;                                                                                   \
            quant_unpack_##name(&b, row, ib);                                                                \
            UNROLL                                                                                           \
            for (u32 i = 0; i < na; i++)                                                                     \
                token_block(&t[i], &b, &job.a, (u64)act[i] * job.a.ld + 32 * ib, n_sub, has_min);            \
        }                                                                                                    \
        UNROLL                                                                                               \
        for (u32 i = 0; i < na; i++) {                                                                       \
            const float v = token_tree(&t[i], has_min);                                                      \
            if (LANE % ROW_LANES == 0 && p.end > p.begin) part[token_part(&job, &o, &p, &shape, 0, i)] = v;  \
        }                                                                                                    \
        block_sync();                                                                                        \
        token_store(&job, &o, part, nt);                                                                     \
    }
// One row alone: two units at a time, so that enough bytes are on their way.
#define TOKEN_QUANT_ALL(TYPE, name, n_sub, has_min)                                                          \
    TOKEN_QUANT(name, n_sub, has_min, 1, 1, UNROLL_BY_2)                                                     \
    TOKEN_QUANT(name, n_sub, has_min, 4, 4, )                                                                \
    TOKEN_QUANT(name, n_sub, has_min, 8, TOKEN_ROWS, )
QUANT_BLOCK_TYPES(TOKEN_QUANT_ALL)
#undef TOKEN_QUANT_ALL
#undef TOKEN_QUANT

/* ---- float weights ---- */

/* Columns c and c + 1 of a row; those from `end` on are 0. */
#define FLOAT_PAIR(name, bytes)                                                                              \
    DEV void pair_##name(float w[2], const u8 *row, u32 c, u32 end) {                                        \
        w[0] = c < end ? weight_##name(row, c) : 0.0f;                                                       \
        w[1] = c + 1 < end ? weight_##name(row, c + 1) : 0.0f;                                               \
    }
FLOAT_PAIR(f32, 4)
FLOAT_PAIR(f16, 2)
FLOAT_PAIR(bf16, 2)
#undef FLOAT_PAIR
/* The same at an aligned address, both columns there. */
DEV void pair_wide_f32(float w[2], const u8 *at) {
    u32 b[2];
    fetch_8(b, at);
    w[0] = bits_f32(b[0]);
    w[1] = bits_f32(b[1]);
}
DEV void pair_wide_f16(float w[2], const u8 *at) {
    u32 b;
    fetch_4(&b, at);
    w[0] = f16_to_f32((u16)(b & 0xFFFF));
    w[1] = f16_to_f32((u16)(b >> 16));
}
DEV void pair_wide_bf16(float w[2], const u8 *at) {
    u32 b;
    fetch_4(&b, at);
    w[0] = bits_f32(b << 16);
    w[1] = bits_f32(b & 0xFFFF0000u);
}

/* FLOAT_AHEAD steps of 64 columns into a lane's two accumulators; x is where the first step's are. */
DEV void token_float_add(float acc[2], float w[FLOAT_AHEAD][2], const float *x) {
    u32 b[FLOAT_AHEAD][2];
    UNROLL
    for (u32 k = 0; k < FLOAT_AHEAD; k++) fetch_8(b[k], x + 64 * k);
    lane_join();
    UNROLL
    for (u32 k = 0; k < FLOAT_AHEAD; k++) {
        acc[0] = f32_fma(w[k][0], bits_f32(b[k][0]), acc[0]);
        acc[1] = f32_fma(w[k][1], bits_f32(b[k][1]), acc[1]);
    }
}

/* The same for weights that are floats. FLOAT_AHEAD steps of 64 columns are on their way at once.
 *   grid    as above; block TOKEN_THREADS
 *   shared  TOKEN_THREADS / FLOAT_LANES * nt floats
 *   needs   as above with FLOAT_LANES lanes a segment; any n_col
 *   order   rule 5 */
#define TOKEN_FLOAT(name, nt)                                                                                \
    KERNEL_EARLY(token_##name##_##nt, linear_job, TOKEN_THREADS, nt == 1 ? 4 : 2) {                          \
        SHARED(float, part, TOKEN_THREADS / FLOAT_LANES * nt);                                               \
        grid_wait();                                                                                         \
        const linear_pick o = linear_pick_of(&job);                                                          \
        const token_shape shape = token_shape_of(FLOAT_LANES, 1, nt, nt);                                    \
        const token_place p = token_place_of(&job, &o, &shape);                                              \
        const u8 *row = token_weight(&p, &o, 0, name##_row_bytes(o.out.w.n_col));                            \
        const float *x[nt];                                                                                  \
        float acc[nt][2];                                                                                    \
        UNROLL                                                                                               \
        for (u32 i = 0; i < nt; i++) {                                                                       \
            acc[i][0] = acc[i][1] = 0.0f;                                                                    \
            x[i] = job.a.x + (u64)token_act(&job, &p, &shape, i) * job.a.ld;                                 \
        }                                                                                                    \
        u32 c = p.begin + 2 * LANE;                                                                          \
        if (o.out.w.n_col % 2 == 0) {                                                                        \
            for (; c - 2 * LANE + 64 * FLOAT_AHEAD <= p.end; c += 64 * FLOAT_AHEAD) {                        \
                const u8 *at = row + name##_row_bytes(c);                                                    \
                float w[FLOAT_AHEAD][2];                                                                     \
                UNROLL                                                                                       \
                for (u32 k = 0; k < FLOAT_AHEAD; k++) pair_wide_##name(w[k], at + name##_row_bytes(64 * k)); \
                UNROLL                                                                                       \
                for (u32 i = 0; i < nt; i++) token_float_add(acc[i], w, x[i] + c);                           \
            }                                                                                                \
        }                                                                                                    \
        for (; c < p.end; c += 64) {                                                                         \
            float w[2];                                                                                      \
            pair_##name(w, row, c, p.end);                                                                   \
            UNROLL                                                                                           \
            for (u32 i = 0; i < nt; i++) {                                                                   \
                acc[i][0] = f32_fma(w[0], x[i][c], acc[i][0]);                                               \
                if (c + 1 < p.end) acc[i][1] = f32_fma(w[1], x[i][c + 1], acc[i][1]);                        \
            }                                                                                                \
        }                                                                                                    \
        UNROLL                                                                                               \
        for (u32 i = 0; i < nt; i++) {                                                                       \
            const float v = lane_tree_f32(acc[i][0] + acc[i][1], FLOAT_LANES);                               \
            if (LANE == 0 && p.end > p.begin) part[token_part(&job, &o, &p, &shape, 0, i)] = v;              \
        }                                                                                                    \
        block_sync();                                                                                        \
        token_store(&job, &o, part, nt);                                                                     \
    }
#define TOKEN_FLOAT_ALL(name) TOKEN_FLOAT(name, 1) TOKEN_FLOAT(name, 4) TOKEN_FLOAT(name, 8)
TOKEN_FLOAT_ALL(f32)
TOKEN_FLOAT_ALL(f16)
TOKEN_FLOAT_ALL(bf16)
#undef TOKEN_FLOAT_ALL
#undef TOKEN_FLOAT

#endif
