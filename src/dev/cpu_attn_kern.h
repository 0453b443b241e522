/* Attention of a tile of queries over one block of keys (docs/ARITHMETIC.md rule 6), on the vectors of
 * cpu_vec.h.
 *
 * Two ways to the same bits:
 *   few queries (a decoded row, a small group): lanes are head dimensions. Keys are converted in registers
 * and serve up to DIRECT_Q heads at once; eight trees are folded together (v_red4, v_fold8). Nothing is
 * written but scores. many queries (a prompt, a window): lanes are queries, held transposed; keys are
 * converted once into a slab that stays in L1 and broadcast. A sum of 32 is then 32 values of one lane: its
 * tree is walked depth first, in registers. Softmax follows the lanes. Values: lanes are dimensions in both,
 * o = fma(p, v, o) position by position. */
#ifndef MICA_CPU_ATTN_KERN_H
#define MICA_CPU_ATTN_KERN_H

#include "dev/cpu_exactf.h"
#include "dev/cpu_fns.h"

#include <string.h>

enum {
    DIRECT_Q = VW == 16 ? 4 : 3,   // queries that share one conversion of a key
    DIRECT_MAX = VW == 16 ? 8 : 6, // most queries of the first way
    V_STEP = 4 * VW,               // values of a key or value row handled together
    AT_STEP = VW / 8,              // positions in one v_red4
    SCORE_LD = KV_PAGE + ATTN_PAD,
    GROUP = 2 * VW,           // queries of the second way that are handled together
    TILE_AT = 4,              // positions of one pass over transposed queries
    TILE_Q = 4,               // queries of one pass over values
    TILE_V = VW == 16 ? 4 : 2 // vectors of values in it: 8 sums are enough for two units of 4 cycles
};

INLINE vf v_kv(const void *p, size_t i, kv_type type) {
    if (type == KV_F32) return v_load((const float *)p + i);
    if (type == KV_F16) return v_from_f16((const uint16_t *)p + i);
    return v_from_i8((const int8_t *)p + i);
}

/* The same at the end of a row of n, zeros past it. Rare, so it stays out of the loops that call it. */
static __attribute__((noinline)) vf v_kv_end(const void *row, uint32_t i, uint32_t n, kv_type type) {
    size_t width = type == KV_F32 ? 4 : type == KV_F16 ? 2 : 1;
    char some[VW * 4] = {0};
    if (i < n) memcpy(some, (const char *)row + i * width, (n - i) * width);
    return v_kv(some, 0, type);
}

INLINE vf v_kv_at(const void *row, uint32_t i, uint32_t n, kv_type type) {
    return i + VW <= n ? v_kv(row, i, type) : v_kv_end(row, i, n, type);
}

INLINE const void *kv_row(const void *base, uint32_t at, uint32_t d, kv_type type) {
    size_t width = type == KV_F32 ? 4 : type == KV_F16 ? 2 : 1;
    return (const char *)base + (size_t)at * d * width;
}

/* ---- few queries ------------------------------------------------------------------------------ */

/* What one call works on: n_q queries that see the same n positions. */
typedef struct direct {
    const float *q; // [n_q, ld_q], zeros past d_k
    uint32_t ld_q, n;
    const uint32_t *at; // [n + ATTN_PAD]
    const void *k, *v;
    uint32_t d_k, d_v;
    float *score, *p;     // [n_q, SCORE_LD]: scores, then exp; what multiplies the values
    const float *ks, *vs; // [n + ATTN_PAD], KV_I8 only
    float *l, *o;         // [n_q], [n_q, ld_o]
    uint32_t ld_o;
    float scale;
} direct;

/* v_red4 of AT_STEP positions for each query. */
INLINE void direct_dots(vf *out, const direct *c, const void *const *row, uint32_t nq, kv_type type) {
    vf acc[DIRECT_Q][4];
    UNROLL for (uint32_t h = 0; h < nq; h++) {
        UNROLL for (uint32_t x = 0; x < 4; x++) acc[h][x] = v_zero();
    }
    uint32_t i = 0, whole = c->d_k & ~31u;
    for (; i < whole; i += 32) {
        UNROLL for (uint32_t x = 0; x < 4; x++) {
            uint32_t j = i + x % V_DOT * VW;
            vf k = v_kv(row[x / V_DOT], j, type);
            UNROLL for (uint32_t h = 0; h < nq; h++) acc[h][x] =
                v_fma(v_load(c->q + h * c->ld_q + j), k, acc[h][x]);
        }
    }
    for (uint32_t x = 0; i < c->d_k && x < 4; x++) {
        uint32_t j = i + x % V_DOT * VW;
        vf k = v_kv_at(row[x / V_DOT], j, c->d_k, type);
        for (uint32_t h = 0; h < nq; h++) acc[h][x] = v_fma(v_load(c->q + h * c->ld_q + j), k, acc[h][x]);
    }
    UNROLL for (uint32_t h = 0; h < nq; h++) out[h * 8] = v_red4(acc[h][0], acc[h][1], acc[h][2], acc[h][3]);
}

INLINE void direct_scores(const direct *c, uint32_t nq, kv_type type) {
    for (uint32_t i = 0; i < c->n; i += VW) {
        vf t[DIRECT_Q * 8];
        for (uint32_t j = 0; j < 8; j++) {
            const void *row[2];
            for (uint32_t x = 0; x < AT_STEP; x++)
                row[x] = kv_row(c->k, c->at[i + j * AT_STEP + x], c->d_k, type);
            direct_dots(t + j, c, row, nq, type);
        }
        UNROLL for (uint32_t h = 0; h < nq; h++) {
            vf s = v_fold8(t + h * 8);
            if (type == KV_I8) s = v_mul(s, v_load(c->ks + i));
            v_store(c->score + h * SCORE_LD + i, v_mul(s, v_set(c->scale)));
        }
    }
}

/* exp(score - max) in place. Entries past n are of positions that these queries may not see. */
static inline float direct_softmax(const direct *c, uint32_t h, kv_type type) {
    float *score = c->score + h * SCORE_LD;
    for (uint32_t i = c->n; i % VW != 0; i++) score[i] = score[c->n - 1];
    vf top = v_load(score);
    for (uint32_t i = VW; i < c->n; i += VW) top = v_max(v_load(score + i), top);
    float m = v_hmax(top);
    for (uint32_t i = 0; i < c->n; i += VW) {
        vf e = v_exp_falling(v_sub(v_load(score + i), v_set(m)));
        v_store(score + i, e);
        if (type == KV_I8) v_store(c->p + h * SCORE_LD + i, v_mul(e, v_load(c->vs + i)));
    }
    return m;
}

/* V_STEP dimensions from j on, all of them there. The first step also sums l. */
INLINE void direct_values(const direct *c, uint32_t j, uint32_t nq, kv_type type) {
    vf acc[DIRECT_Q][4];
    float l[DIRECT_Q];
    UNROLL for (uint32_t h = 0; h < nq; h++) {
        l[h] = 0.0f;
        UNROLL for (uint32_t x = 0; x < 4; x++) acc[h][x] = v_zero();
    }
    for (uint32_t i = 0; i < c->n; i++) {
        const void *row = kv_row(c->v, c->at[i], c->d_v, type);
        vf p[DIRECT_Q];
        UNROLL for (uint32_t h = 0; h < nq; h++) {
            p[h] = v_set(c->p[h * SCORE_LD + i]);
            l[h] = l[h] + c->score[h * SCORE_LD + i];
        }
        UNROLL for (uint32_t x = 0; x < 4; x++) {
            vf v = v_kv(row, j + x * VW, type);
            UNROLL for (uint32_t h = 0; h < nq; h++) acc[h][x] = v_fma(p[h], v, acc[h][x]);
        }
    }
    UNROLL for (uint32_t h = 0; h < nq; h++) {
        c->l[h] = l[h];
        UNROLL for (uint32_t x = 0; x < 4; x++) v_store(c->o + h * c->ld_o + j + x * VW, acc[h][x]);
    }
}

/* The rest of a row that is no multiple of V_STEP, for one query; o has room for whole vectors. */
static __attribute__((noinline)) void direct_values_end(const direct *c, uint32_t h, uint32_t j,
                                                        kv_type type) {
    float l = 0.0f;
    for (uint32_t i = 0; i < c->n; i++) l = l + c->score[h * SCORE_LD + i];
    for (; j < c->d_v; j += VW) {
        vf acc = v_zero();
        for (uint32_t i = 0; i < c->n; i++) {
            vf v = v_kv_at(kv_row(c->v, c->at[i], c->d_v, type), j, c->d_v, type);
            acc = v_fma(v_set(c->p[h * SCORE_LD + i]), v, acc);
        }
        v_store(c->o + h * c->ld_o + j, acc);
    }
    c->l[h] = l;
}

INLINE void direct_block(const direct *c, float *m, uint32_t nq, kv_type type) {
    direct_scores(c, nq, type);
    for (uint32_t h = 0; h < nq; h++) m[h] = direct_softmax(c, h, type);
    uint32_t j = 0;
    for (; j + V_STEP <= c->d_v; j += V_STEP) direct_values(c, j, nq, type);
    for (uint32_t h = 0; h < nq && j < c->d_v; h++) direct_values_end(c, h, j, type);
}

#define DIRECT_TYPES(nq)                                                                                     \
    static void direct_##nq(const direct *c, float *m, kv_type type) {                                       \
        if (type == KV_F16)                                                                                  \
            direct_block(c, m, nq, KV_F16);                                                                  \
        else if (type == KV_I8)                                                                              \
            direct_block(c, m, nq, KV_I8);                                                                   \
        else                                                                                                 \
            direct_block(c, m, nq, KV_F32);                                                                  \
    }
DIRECT_TYPES(1)
DIRECT_TYPES(2)
DIRECT_TYPES(3)
#if defined(CPU_VEC_512)
DIRECT_TYPES(4)
#endif

static void direct_dispatch(const direct *c, float *m, uint32_t nq, kv_type type) {
    if (nq == 1)
        direct_1(c, m, type);
    else if (nq == 2)
        direct_2(c, m, type);
    else if (nq == 3)
        direct_3(c, m, type);
#if defined(CPU_VEC_512)
    else
        direct_4(c, m, type);
#endif
}

/* Scales of int8 rows, in the order of the positions. */
static inline void gather_scales(float *dst, const float *src, const uint32_t *at, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) dst[i] = src[at[i]];
}

static void attn_block_few(attn_tile *t, const attn_block *b) {
    float *ks = t->work, *vs = ks + SCORE_LD, *score = vs + SCORE_LD, *p = score + DIRECT_Q * SCORE_LD;
    if (t->type == KV_I8) {
        gather_scales(ks, b->k_scale, b->at, b->n_at + ATTN_PAD);
        gather_scales(vs, b->v_scale, b->at, b->n_at + ATTN_PAD);
    }
    for (uint32_t iq = 0, n; iq < t->n_q; iq += n) {
        uint32_t begin = b->begin[iq], end = b->end[iq];
        for (n = 1; iq + n < t->n_q && b->begin[iq + n] == begin && b->end[iq + n] == end;) n++;
        n = (n + (n + DIRECT_Q - 1) / DIRECT_Q - 1) / ((n + DIRECT_Q - 1) / DIRECT_Q); // equal shares
        if (begin >= end) continue;
        direct c = {.q = t->queries + (size_t)iq * attn_ld(t->d_k),
                    .ld_q = attn_ld(t->d_k),
                    .n = end - begin,
                    .at = b->at + begin,
                    .k = b->k,
                    .v = b->v,
                    .d_k = t->d_k,
                    .d_v = t->d_v,
                    .score = score,
                    .p = t->type == KV_I8 ? p : score,
                    .ks = ks + begin,
                    .vs = vs + begin,
                    .l = t->l + iq,
                    .o = t->o + (size_t)iq * t->ld_o,
                    .ld_o = t->ld_o,
                    .scale = t->scale};
        direct_dispatch(&c, t->m + iq, n, t->type);
    }
}

/* ---- many queries ------------------------------------------------------------------------------ */

/* Part of a block's rows as floats: dimensions [j, j + w), zeros past d. */
typedef struct slab {
    float *x; // [n, w]
    const void *base;
    const uint32_t *at; // [n]
    uint32_t n, d, j, w;
} slab;

INLINE void slab_fill_typed(const slab *s, kv_type type) {
    uint32_t whole = s->j + s->w <= s->d ? s->w : s->d - s->j;
    whole -= whole % 32;
    for (uint32_t i = 0; i < s->n; i++) {
        const void *row = kv_row(s->base, s->at[i], s->d, type);
        float *x = s->x + (size_t)i * s->w;
        uint32_t j = 0;
        for (; j < whole; j += 32) {
            UNROLL for (uint32_t k = 0; k < 32; k += VW) v_store(x + j + k, v_kv(row, s->j + j + k, type));
        }
        for (; j < s->w; j += VW) v_store(x + j, v_kv_at(row, s->j + j, s->d, type));
    }
}

/* Asks for part ig of n_group of the slab to come: rows lie far apart in time, so the processor does not
 * foresee them. */
INLINE void slab_fetch(const slab *s, kv_type type, uint32_t ig, uint32_t n_group) {
    size_t width = type == KV_F32 ? 4 : type == KV_F16 ? 2 : 1;
    for (uint32_t i = s->n * ig / n_group; i < s->n * (ig + 1) / n_group; i++) {
        const char *row = (const char *)kv_row(s->base, s->at[i], s->d, type) + s->j * width;
        for (size_t b = 0; b < s->w * width; b += 64) __builtin_prefetch(row + b, 0, 2);
    }
}

static void slab_fill(const slab *s, kv_type type) {
    if (type == KV_F16)
        slab_fill_typed(s, KV_F16);
    else if (type == KV_I8)
        slab_fill_typed(s, KV_I8);
    else
        slab_fill_typed(s, KV_F32);
}

/* Sums of nv vectors of queries times TILE_AT positions: partial sums of 32, or trees over some of them. */
typedef struct sums {
    vf s[TILE_AT][2];
} sums;

typedef struct scores_at {
    const float *q; // [terms * 32, GROUP]
    const float *k; // [TILE_AT, terms * 32]
    uint32_t terms;
} scores_at;

INLINE sums sums_add(sums a, sums b, uint32_t nv) {
    UNROLL for (uint32_t y = 0; y < TILE_AT; y++) {
        UNROLL for (uint32_t x = 0; x < nv; x++) a.s[y][x] = v_add(a.s[y][x], b.s[y][x]);
    }
    return a;
}

INLINE sums sum_1(const scores_at *c, uint32_t j, uint32_t nv, uint32_t terms) {
    sums r;
    UNROLL for (uint32_t y = 0; y < TILE_AT; y++) r.s[y][0] = r.s[y][1] = v_zero();
    _Pragma("GCC unroll 4") for (uint32_t i = j; i < terms * 32; i += 32) {
        UNROLL for (uint32_t y = 0; y < TILE_AT; y++) {
            vf k = v_set(c->k[y * terms * 32 + i]);
            UNROLL for (uint32_t x = 0; x < nv; x++) {
                r.s[y][x] = v_fma(v_load(c->q + i * GROUP + x * VW), k, r.s[y][x]);
            }
        }
    }
    return r;
}

INLINE sums sum_2(const scores_at *c, uint32_t j, uint32_t nv, uint32_t terms) {
    return sums_add(sum_1(c, j, nv, terms), sum_1(c, j + 1, nv, terms), nv);
}
INLINE sums sum_4(const scores_at *c, uint32_t j, uint32_t nv, uint32_t terms) {
    return sums_add(sum_2(c, j, nv, terms), sum_2(c, j + 2, nv, terms), nv);
}
INLINE sums sum_8(const scores_at *c, uint32_t j, uint32_t nv, uint32_t terms) {
    return sums_add(sum_4(c, j, nv, terms), sum_4(c, j + 4, nv, terms), nv);
}

/* score[y * GROUP + x] = (q . k) * by[y] * scale; by NULL: not. Eight partial sums at a time, depth first. */
INLINE void sum_32(float *score, const scores_at *c, const float *by, float scale, uint32_t nv,
                   uint32_t terms) {
    sums r[4];
    for (uint32_t j = 0; j < 4; j++) r[j] = sum_8(c, 8 * j, nv, terms);
    sums t = sums_add(sums_add(r[0], r[1], nv), sums_add(r[2], r[3], nv), nv);
    UNROLL for (uint32_t y = 0; y < TILE_AT; y++) {
        UNROLL for (uint32_t x = 0; x < nv; x++) {
            vf v = by ? v_mul(t.s[y][x], v_set(by[y])) : t.s[y][x];
            v_store(score + y * GROUP + x * VW, v_mul(v, v_set(scale)));
        }
    }
}

#define SUM_32(nv)                                                                                           \
    static void sum_32_##nv(float *score, const scores_at *c, const float *by, float scale) {                \
        if (c->terms == 2)                                                                                   \
            sum_32(score, c, by, scale, nv, 2);                                                              \
        else if (c->terms == 4)                                                                              \
            sum_32(score, c, by, scale, nv, 4);                                                              \
        else                                                                                                 \
            sum_32(score, c, by, scale, nv, c->terms);                                                       \
    }
SUM_32(1)
SUM_32(2)

/* What the queries of a group see: any of them, and all of them; entries of attn_block.at. */
typedef struct group_view {
    uint32_t lo, hi, all_lo, all_hi;
} group_view;

/* The state of one call: the tile, the block, and where things lie in the tile's work. */
typedef struct many {
    const attn_tile *t;
    const attn_block *b;
    float *slab, *score; // score: [n_group, SCORE_LD, GROUP], then what multiplies the values
    float *begin, *end;  // [n_group * GROUP] as floats, 0 past n_q
    float *ks, *vs;      // KV_I8 only
    uint32_t n_group;
    group_view view[ATTN_Q_MAX / GROUP];
} many;

/* Scores of positions [from, from + n), which are in the slab, for group ig. */
static void many_scores_some(const many *c, uint32_t from, uint32_t n, uint32_t ig) {
    const attn_tile *t = c->t;
    uint32_t lo = c->view[ig].lo, hi = c->view[ig].hi, w = attn_lanes(t->d_k);
    uint32_t i = lo > from ? (lo - from) / TILE_AT * TILE_AT : 0, to = hi < from       ? 0
                                                                       : hi - from < n ? hi - from
                                                                                       : n;
    for (; i < to; i += TILE_AT) {
        scores_at at = {t->queries + (size_t)ig * w * GROUP, c->slab + (size_t)i * w, w / 32};
        float *score = c->score + ((size_t)ig * SCORE_LD + from + i) * GROUP;
        const float *by = t->type == KV_I8 ? c->ks + from + i : NULL;
        if (t->n_q - ig * GROUP > VW)
            sum_32_2(score, &at, by, t->scale);
        else
            sum_32_1(score, &at, by, t->scale);
    }
}

/* Slab k of the keys: whole rows of some positions. */
static slab key_slab(const many *c, uint32_t k) {
    uint32_t w = attn_lanes(c->t->d_k), rows = attn_slab_floats(c->t->d_k) / w / TILE_AT * TILE_AT,
             from = k * rows;
    uint32_t n = from >= c->b->n_at ? 0 : c->b->n_at - from < rows ? c->b->n_at - from : rows;
    return (slab){c->slab, c->b->k, c->b->at + from, n, c->t->d_k, 0, w};
}

/* Slab k of the values: V_STEP dimensions of some positions; all positions before the next dimensions. */
static slab value_slab(const many *c, uint32_t k) {
    uint32_t rows = ATTN_SLAB / V_STEP, n_part = (c->b->n_at + rows - 1) / rows, from = k % n_part * rows;
    uint32_t j = k / n_part * V_STEP, n = c->b->n_at - from < rows ? c->b->n_at - from : rows;
    return (slab){c->slab, c->b->v, c->b->at + from, j < c->t->d_v ? n : 0, c->t->d_v, j, V_STEP};
}

static void many_scores(const many *c) {
    kv_type type = c->t->type;
    slab s = key_slab(c, 0);
    for (uint32_t k = 1; s.n > 0; k++) {
        slab next = key_slab(c, k), fill = s;
        fill.n = (s.n + TILE_AT - 1) / TILE_AT * TILE_AT;
        slab_fill(&fill, type);
        if (next.n == 0) next = value_slab(c, 0);
        for (uint32_t ig = 0; ig < c->n_group; ig++) {
            slab_fetch(&next, type, ig, c->n_group);
            many_scores_some(c, (uint32_t)(s.at - c->b->at), s.n, ig);
        }
        s = key_slab(c, k);
    }
}

/* The softmax of one vector of queries, a query a lane, in place. What a query does not see counts as -inf,
 * and as 0 after exp; that is only asked where the group's queries differ. */
typedef struct lane_softmax {
    float *score; // [.., GROUP]
    vf begin, end;
    const float *vs;
    vf m, l;
} lane_softmax;

INLINE vm lanes_see(const lane_softmax *s, uint32_t ip) {
    vf p = v_set((float)ip);
    return v_and(v_le(s->begin, p), v_lt(p, s->end));
}

INLINE void lanes_max(lane_softmax *s, uint32_t from, uint32_t to, bool some) {
    vf m = s->m;
    for (uint32_t i = from; i < to; i++) {
        vf x = v_load(s->score + (size_t)i * GROUP);
        m = v_max(some ? v_sel(lanes_see(s, i), x, v_set(-INFINITY)) : x, m);
    }
    s->m = m;
}

INLINE void lanes_exp(lane_softmax *s, uint32_t from, uint32_t to, bool some) {
    vf l = s->l, m = s->m;
    for (uint32_t i = from; i < to; i++) {
        float *at = s->score + (size_t)i * GROUP;
        vf e = v_exp_falling(v_sub(v_load(at), m));
        if (some) e = v_sel(lanes_see(s, i), e, v_zero());
        l = v_add(l, e);
        v_store(at, s->vs ? v_mul(e, v_set(s->vs[i])) : e);
    }
    s->l = l;
}

static void many_softmax(const many *c, uint32_t ig, uint32_t x) {
    const group_view *v = &c->view[ig];
    lane_softmax s = {.score = c->score + (size_t)ig * SCORE_LD * GROUP + x,
                      .vs = c->t->type == KV_I8 ? c->vs : NULL};
    s.begin = v_load(c->begin + ig * GROUP + x);
    s.end = v_load(c->end + ig * GROUP + x);
    s.m = v_set(-INFINITY);
    s.l = v_zero();
    lanes_max(&s, v->lo, v->all_lo, true);
    lanes_max(&s, v->all_lo, v->all_hi, false);
    lanes_max(&s, v->all_hi, v->hi, true);
    lanes_exp(&s, v->lo, v->all_lo, true);
    lanes_exp(&s, v->all_lo, v->all_hi, false);
    lanes_exp(&s, v->all_hi, v->hi, true);
    v_store(c->t->m + ig * GROUP + x, s.m);
    v_store(c->t->l + ig * GROUP + x, s.l);
}

/* Positions [from, to) for queries from iq on, dimensions from j on; the slab begins at position `base`. */
typedef struct value_span {
    uint32_t iq, j, base, from, to;
} value_span;

/* TILE_V vectors of o += p v for nq queries; p [.., GROUP], v [.., V_STEP], from the span's first position
 * on. */
INLINE void many_values_pass(float *o, uint32_t ld_o, const float *p, const float *v, uint32_t n,
                             uint32_t nq) {
    vf acc[TILE_Q][TILE_V];
    UNROLL for (uint32_t h = 0; h < nq; h++) {
        UNROLL for (uint32_t x = 0; x < TILE_V; x++) acc[h][x] = v_load(o + h * ld_o + x * VW);
    }
    for (uint32_t i = 0; i < n; i++) {
        vf t[TILE_V];
        UNROLL for (uint32_t x = 0; x < TILE_V; x++) t[x] = v_load(v + (size_t)i * V_STEP + x * VW);
        UNROLL for (uint32_t h = 0; h < nq; h++) {
            vf e = v_set(p[(size_t)i * GROUP + h]);
            UNROLL for (uint32_t x = 0; x < TILE_V; x++) acc[h][x] = v_fma(e, t[x], acc[h][x]);
        }
    }
    UNROLL for (uint32_t h = 0; h < nq; h++) {
        UNROLL for (uint32_t x = 0; x < TILE_V; x++) v_store(o + h * ld_o + x * VW, acc[h][x]);
    }
}

INLINE void many_values_some(const many *c, value_span g, uint32_t nq) {
    const float *p = c->score + ((size_t)(g.iq / GROUP) * SCORE_LD + g.from) * GROUP + g.iq % GROUP;
    const float *v = c->slab + (size_t)(g.from - g.base) * V_STEP;
    float *o = c->t->o + (size_t)g.iq * c->t->ld_o + g.j;
    for (uint32_t k = 0; k < V_STEP; k += TILE_V * VW) {
        many_values_pass(o + k, c->t->ld_o, p, v + k, g.to - g.from, nq);
    }
}

static void many_values_one(const many *c, value_span g, uint32_t from, uint32_t to) {
    g.from = from;
    g.to = to;
    if (from < to) many_values_some(c, g, 1);
}

/* TILE_Q queries together where all of them see a position, each alone before and after: left to right for
 * each. */
static void many_values_group(const many *c, value_span g, uint32_t nq) {
    uint32_t begin[TILE_Q], end[TILE_Q], from = g.from, to = g.to;
    for (uint32_t h = 0; h < nq; h++) {
        uint32_t b = c->b->begin[g.iq + h], e = c->b->end[g.iq + h];
        begin[h] = b > g.from ? b : g.from;
        end[h] = e < g.to ? e : g.to;
        from = begin[h] > from ? begin[h] : from;
        to = end[h] < to ? end[h] : to;
    }
    bool together = nq == TILE_Q && from < to;
    for (uint32_t h = 0; h < nq; h++) {
        value_span one = g;
        one.iq += h;
        many_values_one(c, one, begin[h], together ? from : end[h]);
    }
    if (!together) return;
    many_values_some(c, (value_span){g.iq, g.j, g.base, from, to}, TILE_Q);
    for (uint32_t h = 0; h < nq; h++) {
        value_span one = g;
        one.iq += h;
        many_values_one(c, one, to, end[h]);
    }
}

static void many_values(const many *c) {
    const attn_tile *t = c->t;
    for (uint32_t iq = 0; iq < t->n_q; iq++) memset(t->o + (size_t)iq * t->ld_o, 0, t->ld_o * sizeof(float));
    slab s = value_slab(c, 0);
    for (uint32_t k = 1; s.n > 0; k++) {
        slab next = value_slab(c, k);
        uint32_t from = (uint32_t)(s.at - c->b->at);
        slab_fill(&s, t->type);
        for (uint32_t iq = 0; iq < t->n_q; iq += TILE_Q) {
            if (iq % GROUP == 0) slab_fetch(&next, t->type, iq / GROUP, c->n_group);
            value_span g = {iq, s.j, from, from, from + s.n};
            many_values_group(c, g, t->n_q - iq < TILE_Q ? t->n_q - iq : TILE_Q);
        }
        s = next;
    }
}

/* What the queries of a group see, and each of them as floats. Lanes past n_q see nothing and are asked
 * nothing. */
static void many_view(many *c, uint32_t ig) {
    group_view *v = &c->view[ig];
    *v = (group_view){.lo = KV_PAGE, .all_hi = KV_PAGE};
    for (uint32_t i = ig * GROUP; i < (ig + 1) * GROUP; i++) {
        bool any = i < c->t->n_q && c->b->begin[i] < c->b->end[i];
        uint32_t begin = any ? c->b->begin[i] : 0, end = any ? c->b->end[i] : 0;
        c->begin[i] = (float)begin;
        c->end[i] = (float)end;
        if (i >= c->t->n_q) continue;
        if (any && begin < v->lo) v->lo = begin;
        if (end > v->hi) v->hi = end;
        if (begin > v->all_lo) v->all_lo = begin;
        if (end < v->all_hi) v->all_hi = end;
    }
    if (v->lo > v->hi) v->lo = v->hi;
    if (v->all_lo >= v->all_hi) v->all_lo = v->all_hi = v->hi; // nothing is seen by all
}

static void attn_block_many(attn_tile *t, const attn_block *b) {
    many c = {.t = t, .b = b, .slab = t->work, .n_group = (t->n_q + GROUP - 1) / GROUP};
    c.score = c.slab + attn_slab_floats(t->d_k);
    c.begin = c.score + (size_t)SCORE_LD * c.n_group * GROUP;
    c.end = c.begin + c.n_group * GROUP;
    c.ks = c.end + c.n_group * GROUP;
    c.vs = c.ks + SCORE_LD;
    if (t->type == KV_I8) {
        gather_scales(c.ks, b->k_scale, b->at, b->n_at + ATTN_PAD);
        gather_scales(c.vs, b->v_scale, b->at, b->n_at);
    }
    for (uint32_t ig = 0; ig < c.n_group; ig++) many_view(&c, ig);
    many_scores(&c);
    for (uint32_t iq = 0; iq < t->n_q; iq += VW) many_softmax(&c, iq / GROUP, iq % GROUP);
    many_values(&c);
}

/* ---- the table's entries ------------------------------------------------------------ */

static void attn_begin(attn_tile *t) {
    uint32_t ld = attn_ld(t->d_k), n = attn_lanes(t->d_k);
    if (t->n_q <= DIRECT_MAX) {
        for (uint32_t iq = 0; iq < t->n_q; iq++) {
            float *q = t->queries + (size_t)iq * ld;
            memcpy(q, t->q[iq], t->d_k * sizeof(float));
            memset(q + t->d_k, 0, (n - t->d_k) * sizeof(float));
        }
        return;
    }
    for (uint32_t iq = 0; iq < (t->n_q + GROUP - 1) / GROUP * GROUP; iq++) {
        float *q = t->queries + (size_t)(iq / GROUP) * n * GROUP + iq % GROUP;
        for (uint32_t i = 0; i < n; i++) q[i * GROUP] = iq < t->n_q && i < t->d_k ? t->q[iq][i] : 0.0f;
    }
}

static void attn_block_any(attn_tile *t, const attn_block *b) {
    if (t->n_q <= DIRECT_MAX)
        attn_block_few(t, b);
    else
        attn_block_many(t, b);
}

static void attn_join(float *o, float a, const float *p, float b, uint32_t n) {
    uint32_t i = 0;
    for (; i + VW <= n; i += VW) {
        v_store(o + i, v_add(v_mul(v_load(o + i), v_set(a)), v_mul(v_load(p + i), v_set(b))));
    }
    for (; i < n; i++) o[i] = o[i] * a + p[i] * b;
}

static void attn_end(float *o, float inv, const float *gate, uint32_t n) {
    uint32_t i = 0;
    for (; i + VW <= n; i += VW) {
        vf t = v_mul(v_load(o + i), v_set(inv));
        v_store(o + i, gate ? v_mul(t, v_sigmoid(v_load(gate + i))) : t);
    }
    for (; i < n; i++) o[i] = gate ? o[i] * inv * exactf_sigmoid(gate[i]) : o[i] * inv;
}
#endif
