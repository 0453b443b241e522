/* Products in the token role with the types whose bytes each hold weights of two blocks of 32 (Q4_K, Q5_K:
 * the low and the high halves of 16 bytes; Q6_K as well, two blocks apart).
 *
 * A lane has 16 weights of both blocks, those of the same bytes: nothing is read twice, and a row of
 * activations is read once for several rows of weights. A lane's eight accumulators are four groups of each
 * block, so they are the same as ever and so is their tree. The bytes of units ahead are on their way while
 * one is worked on. */
#ifndef MICA_KERN_PAIR_CUH
#define MICA_KERN_PAIR_CUH

#include "kern/linear.cuh"

/* What a lane has of a unit: which two of its eight blocks, which 16 bytes, and whose minimum. */
typedef struct pair_lane {
    u32 block[2], half, min_block;
} pair_lane;

/* Its weights, unsigned, as loaded and as numbers. */
typedef struct token_pair {
    u32 q[2][4];
    float scale[2], min;
} token_pair;

/* ---- Q4_K, Q5_K ---- */

DEV pair_lane pair_lane_q4_k(void) {
    pair_lane l;
    l.half = LANE % 2;
    l.block[0] = LANE % ROW_LANES & ~1u;
    l.block[1] = l.block[0] + 1;
    l.min_block = l.block[0] + l.half;
    return l;
}

/* The six-bit numbers of both blocks at once, a byte each: quant_scale_q4_k for two. */
DEV void pair_scale_q4_k(token_pair *o, const u32 head[4], const pair_lane *l) {
    const u32 at = 8 * (l->block[0] % 4), b0 = head[1] >> at, b4 = head[2] >> at, b8 = head[3] >> at;
    const bool low = l->block[0] < 4;
    const u32 sc = low ? b0 & 0x3F3F : (b8 & 0x0F0F) | (b0 >> 2 & 0x3030);
    const u32 mn = low ? b4 & 0x3F3F : (b8 >> 4 & 0x0F0F) | (b4 >> 2 & 0x3030);
    const float d = f16_to_f32((u16)(head[0] & 0xFFFF));
    o->scale[0] = d * (float)(sc & 255);
    o->scale[1] = d * (float)(sc >> 8);
    o->min = f16_to_f32((u16)(head[0] >> 16)) * (float)(mn >> 8 * l->half & 255);
}

/* Where a lane reads of a row of weights, in its first unit. */
typedef struct pair_row {
    const u8 *unit, *low, *high;
} pair_row;

typedef struct q4_k_raw {
    u32 q[4], head[4];
} q4_k_raw;

DEV pair_row pair_row_q4_k(const u8 *unit, const pair_lane *l) {
    pair_row p;
    p.unit = p.high = unit;
    p.low = unit + 16 + 16 * (l->block[0] + l->half);
    return p;
}
/* Of the unit n bytes on. */
DEV void pair_load_q4_k(q4_k_raw *r, const pair_row *p, u32 n, const pair_lane *l) {
    (void)l;
    fetch_16(r->q, p->low + n);
    fetch_16(r->head, p->unit + n);
}
DEV void pair_unpack_q4_k(token_pair *o, const q4_k_raw *r, const pair_lane *l) {
    UNROLL
    for (u32 i = 0; i < 4; i++) {
        o->q[0][i] = r->q[i] & 0x0F0F0F0Fu;
        o->q[1][i] = r->q[i] >> 4 & 0x0F0F0F0Fu;
    }
    pair_scale_q4_k(o, r->head, l);
}

typedef struct q5_k_raw {
    u32 q[4], high[4], head[4];
} q5_k_raw;

DEV pair_lane pair_lane_q5_k(void) {
    return pair_lane_q4_k();
}
DEV pair_row pair_row_q5_k(const u8 *unit, const pair_lane *l) {
    pair_row p;
    p.unit = unit;
    p.low = unit + 48 + 16 * (l->block[0] + l->half);
    p.high = unit + 16 + 16 * l->half;
    return p;
}
DEV void pair_load_q5_k(q5_k_raw *r, const pair_row *p, u32 n, const pair_lane *l) {
    (void)l;
    fetch_16(r->q, p->low + n);
    fetch_16(r->high, p->high + n);
    fetch_16(r->head, p->unit + n);
}
DEV void pair_unpack_q5_k(token_pair *o, const q5_k_raw *r, const pair_lane *l) {
    UNROLL
    for (u32 i = 0; i < 4; i++) {
        const u32 high = r->high[i] >> l->block[0];
        o->q[0][i] = (r->q[i] & 0x0F0F0F0Fu) | (high << 4 & 0x10101010u);
        o->q[1][i] = (r->q[i] >> 4 & 0x0F0F0F0Fu) | (high << 3 & 0x10101010u);
    }
    pair_scale_q4_k(o, r->head, l);
}

/* ---- Q6_K ---- */

DEV pair_lane pair_lane_q6_k(void) {
    pair_lane l;
    const u32 k = LANE % ROW_LANES;
    l.half = k % 2;
    l.block[0] = 4 * (k / 4) + k / 2 % 2;
    l.block[1] = l.block[0] + 2;
    l.min_block = 0;
    return l;
}

typedef struct q6_k_raw {
    any_16 low, high;
    u32 scale[2], d; // i8, f16
} q6_k_raw;

DEV pair_row pair_row_q6_k(const u8 *unit, const pair_lane *l) {
    pair_row p;
    p.unit = unit + 192 + 2 * l->block[0] + l->half; // its first scale
    p.low = unit + 16 * (LANE % ROW_LANES);
    p.high = unit + 128 + 32 * (l->block[0] / 4) + 16 * l->half;
    return p;
}
DEV void pair_load_q6_k(q6_k_raw *r, const pair_row *p, u32 n, const pair_lane *l) {
    any_16_load(&r->low, p->low + n);
    any_16_load(&r->high, p->high + n);
    r->scale[0] = p->unit[n];
    r->scale[1] = p->unit[n + 4];
    r->d = load_u16(p->unit + n + 16 - 2 * l->block[0] - l->half);
}
DEV void pair_unpack_q6_k(token_pair *o, const q6_k_raw *r, const pair_lane *l) {
    u32 low[4], high[4];
    any_16_get(low, &r->low);
    any_16_get(high, &r->high);
    const u32 left = 4 - 2 * (l->block[0] % 4), right = 2 * (l->block[0] % 4);
    UNROLL
    for (u32 i = 0; i < 4; i++) {
        o->q[0][i] = (low[i] & 0x0F0F0F0Fu) | (high[i] << left & 0x30303030u);
        o->q[1][i] = (low[i] >> 4 & 0x0F0F0F0Fu) | (high[i] >> right & 0x30303030u);
    }
    const float d = f16_to_f32((u16)r->d);
    o->scale[0] = d * (float)(i8)r->scale[0];
    o->scale[1] = d * (float)(i8)r->scale[1];
    o->min = 0.0f;
}

/* ---- the product ---- */

/* A lane's accumulators for one row of weights and one of activations. */
typedef struct pair_acc {
    float acc[2][4], min;
} pair_acc;

DEV void pair_acc_clear(pair_acc *t) {
    UNROLL
    for (u32 i = 0; i < 8; i++) t->acc[i / 4][i % 4] = 0.0f;
    t->min = 0.0f;
}

/* Where a lane reads of a row of activations, from one unit to the next: pointers that move, because an
 * address made of a row, a unit and a block each time takes more instructions than the product. Other rows
 * are `off` elements from this one. */
typedef struct act_from {
    const i8 *q;
    const float *d, *s;
} act_from;

/* Block `block` from column `col` of a row on, `min_block` for sums. */
DEV act_from act_from_of(const quant_act *a, u32 row, u32 col, u32 block, u32 min_block) {
    const u64 at = (u64)row * a->ld + col;
    act_from f;
    f.q = a->q + at + 32 * block;
    f.d = a->d + at / 32 + block;
    f.s = a->s + at / 32 + min_block;
    return f;
}
DEV void act_from_step(act_from *f, u32 n_unit) {
    f->q += n_unit * UNIT_COLS;
    f->d += n_unit * (UNIT_COLS / 32);
    f->s += n_unit * (UNIT_COLS / 32);
}

/* What a lane has of a row of activations in a unit; zero[b][i]: what the integer sums of a group begin at,
 * minus `less` times its activations. */
typedef struct pair_act {
    u32 x[2][4];
    i32 zero[2][4];
    float d[2], s;
} pair_act;

DEV void pair_act_load(pair_act *o, const act_from *a, u32 off, u32 apart, u32 less, u32 has_min) {
    u32 d[2], s = 0;
    UNROLL
    for (u32 b = 0; b < 2; b++) { // the second block is the next or the one after
        fetch_16(o->x[b], a->q + off + 32 * (1 + apart) * b);
        fetch_4(&d[b], a->d + off / 32 + (1 + apart) * b);
    }
    if (has_min) fetch_4(&s, a->s + off / 32);
    o->s = bits_f32(s);
    UNROLL
    for (u32 b = 0; b < 2; b++) {
        o->d[b] = bits_f32(d[b]);
        UNROLL
        for (u32 i = 0; i < 4; i++)
            o->zero[b][i] = less ? dot4((256 - less) * 0x01010101u, o->x[b][i], DOT_ZERO) : DOT_ZERO;
    }
}

DEV void pair_add(pair_acc *t, const token_pair *w, const pair_act *a, u32 has_min) {
    UNROLL
    for (u32 b = 0; b < 2; b++) {
        const float s = w->scale[b] * a->d[b];
        UNROLL
        for (u32 i = 0; i < 4; i++)
            t->acc[b][i] = f32_fma(s, dot_f32(dot4(w->q[b][i], a->x[b][i], a->zero[b][i])), t->acc[b][i]);
    }
    if (has_min) t->min = f32_fma(w->min, a->s, t->min);
}

/* The tree of rule 3 over the eight lanes. Blocks 2k and 2k + 1 are a lane's two, or (apart) the first or the
 * second ones of two lanes, each of which then adds one of the two sums. */
DEV float pair_tree(const pair_acc *t, u32 apart, u32 has_min) {
    const bool second = apart && LANE / 2 % 2 == 1;
    float p[4], mine[4];
    UNROLL
    for (u32 i = 0; i < 4; i++) {
        const float a = t->acc[0][i], b = t->acc[1][i];
        p[i] = second ? a : b;
        mine[i] = second ? b : a;
    }
    if (apart) lane_xor4_f32(p, 2);
    UNROLL
    for (u32 i = 0; i < 4; i++) p[i] = p[i] + mine[i];
    const float sum = lane_tree_f32((p[0] + p[1]) + (p[2] + p[3]), ROW_LANES);
    return sum - (has_min ? lane_tree_f32(t->min, ROW_LANES) : 0.0f);
}

/* y = W a for nt rows of activations, na of them and nw rows of weights a group of lanes.
 *   grid    as token_* of linear.cuh
 *   shared  TOKEN_GROUPS * na * nw floats
 *   needs   as there
 *   order   rule 3 */
#define TOKEN_PAIR(name, apart, has_min, less, nt, na, nw, ahead, fit)                                       \
    KERNEL_EARLY(token_##name##_##nt, linear_job, TOKEN_THREADS, fit) {                                      \
        SHARED(float, part, TOKEN_GROUPS *na *nw);                                                           \
        if (job.pairs.at) grid_wait(); /* which experts */                                                   \
        const linear_pick o = linear_pick_of(&job);                                                          \
        const token_shape shape = token_shape_of(ROW_LANES, nw, na, nt);                                     \
        const token_place p = token_place_of(&job, &o, &shape);                                              \
        const pair_lane lane = pair_lane_##name();                                                           \
        const u32 n_unit = (p.end - p.begin) / UNIT_COLS, last = n_unit > 0 ? n_unit - 1 : 0;                \
        const u32 unit_bytes = (u32)name##_row_bytes(UNIT_COLS);                                             \
        pair_row row[nw];                                                                                    \
        u32 off[na];                                                                                         \
        pair_acc t[nw][na];                                                                                  \
        name##_raw next[ahead][nw];                                                                          \
        UNROLL                                                                                               \
        for (u32 r = 0; r < nw; r++) {                                                                       \
            const u8 *w = token_weight(&p, &o, r, name##_row_bytes(o.out.w.n_col));                          \
            row[r] = pair_row_##name(w + name##_row_bytes(p.begin), &lane);                                  \
            UNROLL                                                                                           \
            for (u32 k = 0; k < ahead; k++)                                                                  \
                pair_load_##name(&next[k][r], &row[r], u32_min(k, last) * unit_bytes, &lane);                \
            UNROLL                                                                                           \
            for (u32 i = 0; i < na; i++) pair_acc_clear(&t[r][i]);                                           \
        }                                                                                                    \
        if (!job.pairs.at) grid_wait();                                                                      \
        const u32 first = token_act(&job, &p, &shape, 0);                                                    \
        act_from from = act_from_of(&job.a, first, p.begin, lane.block[0], lane.min_block);                  \
        from.q += 16 * lane.half;                                                                            \
        UNROLL                                                                                               \
        for (u32 i = 0; i < na; i++) off[i] = (token_act(&job, &p, &shape, i) - first) * job.a.ld;           \
        for (u32 u0 = 0; u0 < n_unit; u0 += ahead) {                                                         \
            UNROLL                                                                                           \
            for (u32 k = 0; k < ahead; k++) {                                                                \
                token_pair w[nw];                                                                            \
                if (u0 + k >= n_unit) break;                                                                 \
                UNROLL                                                                                       \
                for (u32 r = 0; r < nw; r++) {                                                               \
                    pair_unpack_##name(&w[r], &next[k][r], &lane);                                           \
                    pair_load_##name(&next[k][r], &row[r], u32_min(u0 + k + ahead, last) * unit_bytes,       \
                                     &lane);                                                                 \
                }                                                                                            \
                UNROLL                                                                                       \
                for (u32 i = 0; i < na; i++) {                                                               \
                    pair_act x;                                                                              \
                    pair_act_load(&x, &from, off[i] + k * UNIT_COLS, apart, less, has_min);                  \
                    UNROLL                                                                                   \
                    for (u32 r = 0; r < nw; r++) pair_add(&t[r][i], &w[r], &x, has_min);                     \
                }                                                                                            \
            }                                                                                                \
            act_from_step(&from, ahead);                                                                     \
        }                                                                                                    \
        UNROLL                                                                                               \
        for (u32 n = 0; n < nw * na; n++) {                                                                  \
            const float v = pair_tree(&t[n / na][n % na], apart, has_min);                                   \
            if (LANE % ROW_LANES == 0 && n_unit > 0)                                                         \
                part[token_part(&job, &o, &p, &shape, n / na, n % na)] = v;                                  \
        }                                                                                                    \
        block_sync();                                                                                        \
        token_store(&job, &o, part, nt);                                                                     \
    }
#define TOKEN_PAIR_ALL(name, apart, has_min, less, nw, ahead, fit)                                           \
    TOKEN_PAIR(name, apart, has_min, less, 1, 1, nw, ahead, fit)                                             \
    TOKEN_PAIR(name, apart, has_min, less, 4, 4, 1, 1, 2)                                                    \
    TOKEN_PAIR(name, apart, has_min, less, 8, PAIR_ACTS, 1, 1, 2)
TOKEN_PAIR_ALL(q4_k, 0, 1, 0, PAIR_ROWS_Q4_K, PAIR_AHEAD_Q4_K, 4)
TOKEN_PAIR_ALL(q5_k, 0, 1, 0, PAIR_ROWS_Q5_K, PAIR_AHEAD_Q5_K, 2)
TOKEN_PAIR_ALL(q6_k, 1, 0, 32, PAIR_ROWS_Q6_K, PAIR_AHEAD_Q6_K, 4)
#undef TOKEN_PAIR_ALL
#undef TOKEN_PAIR

#endif
