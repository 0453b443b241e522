/* Products with weights, token role (rules 3 and 5).
 *
 * ROW_LANES lanes share a segment of a row of weights and walk it a unit of 256 columns at a time. Of
 * quantised weights lane k has block k of the unit and so the accumulators of its eight groups of four; of
 * float weights lane k has columns 8k .. 8k + 7 of every 64. A block of threads holds whole rows: the
 * segments of a row meet in shared memory and are added left to right by one thread a result, which also sees
 * to the companions. */
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

/* What one group of lanes works on. */
typedef struct token_place {
    const u8 *row;       // its row of weights
    u32 ir, is;          // row of weights, segment
    u32 begin, end;      // columns of the segment; empty for a group without work
    u32 act[TOKEN_ROWS]; // rows of activations; the last again where there are fewer
} token_place;

/* The expert of pair p; 0 without experts. */
DEV u32 pair_expert(const expert_pairs *p, u32 pair) {
    return p->at ? (u32)p->ids[pair] : 0;
}

/* The weights w of an output, or those of an expert's part. */
DEV const u8 *linear_weight(const linear_job *j, const void *w, u32 which, u32 expert) {
    if (!j->pairs.at) return (const u8 *)w;
    const expert_at *e = j->pairs.at + expert;
    return (const u8 *)(which == EXPERT_GATE ? e->gate : which == EXPERT_UP ? e->up : e->down);
}

/* y = (add ? y : 0) + ((v * scale) + bias), each step only when it is asked for. */
DEV void linear_finish(const linear_out *o, u32 ir, u32 row, u32 expert, float v) {
    if (o->w.scale) v = v * o->w.scale[expert];
    if (o->w.bias) v = v + o->w.bias[ir];
    float *y = o->y + (u64)row * o->ld_y + ir;
    *y = o->add ? *y + v : v;
}

/* nt is how many rows of activations a block takes. */
DEV token_place token_place_of(const linear_job *j, const linear_pick *o, u64 row_bytes, u32 nt) {
    token_place p;
    const u32 group = THREAD / ROW_LANES, first = j->row0 + BLOCK_Y * nt, n_col = o->out.w.n_col;
    p.ir = o->block * j->n_block_row + group / j->n_segment;
    p.is = group % j->n_segment;
    const bool on = group / j->n_segment < j->n_block_row && p.ir < o->out.w.n_row;
    p.row =
        linear_weight(j, o->out.w.w, o->which, pair_expert(&j->pairs, first)) + (on ? p.ir * row_bytes : 0);
    p.begin = segment_begin(p.is, j->n_segment, n_col);
    p.end = on ? segment_begin(p.is + 1, j->n_segment, n_col) : p.begin;
    UNROLL
    for (u32 t = 0; t < nt; t++) {
        const u32 row = u32_min(first + t, j->row0 + j->n_row - 1);
        p.act[t] = j->pairs.at && !j->pairs.by_pair ? row / j->pairs.n_used : row;
    }
    return p;
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

/* y = W a for nt rows of activations.
 *   grid    blocks of rows of every output (linear_job.first), ceil(n_row / nt) or n_pair; block
 * TOKEN_THREADS shared  TOKEN_GROUPS * nt floats needs   n_segment * n_block_row <= TOKEN_GROUPS; experts: nt
 * 1 order   rule 3 */
#define TOKEN_QUANT(name, n_sub, has_min, nt, UNROLL_UNITS)                                                  \
    KERNEL(token_##name##_##nt, linear_job, TOKEN_THREADS) {                                                 \
        SHARED(float, part, TOKEN_GROUPS *nt);                                                               \
        const linear_pick o = linear_pick_of(&job);                                                          \
        const token_place p = token_place_of(&job, &o, name##_row_bytes(o.out.w.n_col), nt);                 \
        token_acc t[nt];                                                                                     \
        UNROLL                                                                                               \
        for (u32 i = 0; i < nt; i++) token_acc_clear(&t[i]);                                                 \
        UNROLL_UNITS                                                                                         \
        for (u32 ib = p.begin / 32 + LANE % ROW_LANES; ib < p.end / 32; ib += ROW_LANES) {                   \
            quant_block b;                                                                                   \
            quant_unpack_##name(&b, p.row, ib);                                                              \
            UNROLL                                                                                           \
            for (u32 i = 0; i < nt; i++)                                                                     \
                token_block(&t[i], &b, &job.a, (u64)p.act[i] * job.a.ld + 32 * ib, n_sub, has_min);          \
        }                                                                                                    \
        UNROLL                                                                                               \
        for (u32 i = 0; i < nt; i++) {                                                                       \
            const float v = token_tree(&t[i], has_min);                                                      \
            if (LANE % ROW_LANES == 0) part[THREAD / ROW_LANES * nt + i] = v;                                \
        }                                                                                                    \
        block_sync();                                                                                        \
        token_store(&job, &o, part, nt);                                                                     \
    }
// One row alone: two units at a time, so that enough bytes are on their way.
#define TOKEN_QUANT_ALL(TYPE, name, n_sub, has_min)                                                          \
    TOKEN_QUANT(name, n_sub, has_min, 1, UNROLL_BY_2)                                                        \
    TOKEN_QUANT(name, n_sub, has_min, 4, )                                                                   \
    TOKEN_QUANT(name, n_sub, has_min, 8, )
QUANT_TYPES(TOKEN_QUANT_ALL)
#undef TOKEN_QUANT_ALL
#undef TOKEN_QUANT

/* ---- float weights ---- */

/* The same for weights that are floats.
 *   grid    as above; block TOKEN_THREADS
 *   shared  TOKEN_GROUPS * nt floats
 *   needs   as above; any n_col
 *   order   rule 5 */
#define TOKEN_FLOAT(name, bytes, nt)                                                                         \
    KERNEL(token_##name##_##nt, linear_job, TOKEN_THREADS) {                                                 \
        SHARED(float, part, TOKEN_GROUPS *nt);                                                               \
        const linear_pick o = linear_pick_of(&job);                                                          \
        const token_place p = token_place_of(&job, &o, (u64)o.out.w.n_col * bytes, nt);                      \
        float acc[nt][8];                                                                                    \
        UNROLL                                                                                               \
        for (u32 i = 0; i < nt * 8; i++) acc[i / 8][i % 8] = 0.0f;                                           \
        for (u32 c0 = p.begin + 8 * (LANE % ROW_LANES); c0 < p.end; c0 += 8 * ROW_LANES) {                   \
            UNROLL                                                                                           \
            for (u32 c = 0; c < 8; c++) {                                                                    \
                if (c0 + c >= p.end) continue;                                                               \
                const float w = weight_##name(p.row, c0 + c);                                                \
                UNROLL                                                                                       \
                for (u32 i = 0; i < nt; i++)                                                                 \
                    acc[i][c] = f32_fma(w, job.a.x[(u64)p.act[i] * job.a.ld + c0 + c], acc[i][c]);           \
            }                                                                                                \
        }                                                                                                    \
        UNROLL                                                                                               \
        for (u32 i = 0; i < nt; i++) {                                                                       \
            const float *s = acc[i];                                                                         \
            const float v =                                                                                  \
                lane_tree_f32(((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7])), ROW_LANES); \
            if (LANE % ROW_LANES == 0) part[THREAD / ROW_LANES * nt + i] = v;                                \
        }                                                                                                    \
        block_sync();                                                                                        \
        token_store(&job, &o, part, nt);                                                                     \
    }
#define TOKEN_FLOAT_ALL(name, bytes)                                                                         \
    TOKEN_FLOAT(name, bytes, 1)                                                                              \
    TOKEN_FLOAT(name, bytes, 4) TOKEN_FLOAT(name, bytes, 8)
TOKEN_FLOAT_ALL(f32, 4)
TOKEN_FLOAT_ALL(f16, 2)
TOKEN_FLOAT_ALL(bf16, 2)
#undef TOKEN_FLOAT_ALL
#undef TOKEN_FLOAT

#endif
