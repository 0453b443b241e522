/* Products with weights, prompt role (rules 4 and 5): tiles of PROMPT_TILE rows of weights by PROMPT_TILE
 * rows of activations, one accumulator a result in the registers of one thread, 4 x 4 results a thread.
 *
 * Where a card multiplies 8-bit matrices (TILE_MMA), a wave has 16 rows of weights by 32 of activations and
 * its integers come from there; the rest is the same, and so are the bits.
 *
 * A stage brings STAGE_BLOCKS blocks of 32 columns (32 columns of float weights) of both sides into shared
 * memory, unpacked: words of four weights, word-major, so that the lanes of a wave read neighbouring words.
 * Sums stay in the order of the columns, whatever the tile. */
#ifndef MICA_KERN_PROMPT_CUH
#define MICA_KERN_PROMPT_CUH

#include "kern/linear.cuh"

enum {
    STAGE_BLOCKS = 4,
    // Words to the next word of the same row, and to the next block: what lanes read or store together lies
    // in different banks.
    STAGE_LD = PROMPT_TILE + 8,
    STAGE_LD_BLOCK = 8 * STAGE_LD + 8,
    STAGE_SIZE = STAGE_BLOCKS * STAGE_LD_BLOCK,
    FLOAT_LD = PROMPT_TILE + 1,
    FLOAT_COLS = 32
};

/* The tile a block works on. */
typedef struct prompt_place {
    linear_out out;
    const u8 *w;
    u32 ir0;   // first row of weights
    u32 n;     // rows of activations, <= PROMPT_TILE
    u32 first; // of them: row of a, or place in the order of pairs
    u32 expert;
} prompt_place;

DEV prompt_place prompt_place_of(const linear_job *j) {
    prompt_place p;
    const linear_pick o = linear_pick_of(j);
    p.out = o.out;
    p.ir0 = o.block * PROMPT_TILE;
    p.expert = 0;
    p.first = j->row0 + BLOCK_Y * PROMPT_TILE;
    u32 end = j->row0 + j->n_row;
    if (j->pairs.at) {
        const bool on = BLOCK_Y < j->pairs.tile[0];
        p.expert = on ? j->pairs.tile[1 + 2 * BLOCK_Y] : 0;
        p.first = on ? j->pairs.tile[2 + 2 * BLOCK_Y] : 0;
        end = on ? j->pairs.first[p.expert + 1] : 0;
    }
    p.n = u32_min(end - p.first, PROMPT_TILE);
    p.w = linear_weight(j, o.out.w.w, o.which, p.expert);
    return p;
}

/* The row of activations, and the row of the outputs, of row i of the tile. */
DEV u32 prompt_in(const linear_job *j, const prompt_place *p, u32 i) {
    if (!j->pairs.at) return p->first + i;
    const u32 pair = j->pairs.order[p->first + i];
    return j->pairs.by_pair ? pair : pair / j->pairs.n_used;
}
DEV u32 prompt_out(const linear_job *j, const prompt_place *p, u32 i) {
    return j->pairs.at ? j->pairs.order[p->first + i] : p->first + i;
}

/* Result (i, k) of a thread: its row of weights and of activations within the tile. In tiles of floats, and
 * without matrix units, thread t has rows t % 16 + 16 i of the one, t / 16 + 16 k of the other. */
DEV u32 tile_weight(u32 i, u32 k, u32 mma) {
    (void)k;
    return mma ? 16 * (THREAD / 32 % 4) + LANE / 4 + 8 * (k / 2) : THREAD % 16 + 16 * i;
}
DEV u32 tile_act(u32 i, u32 k, u32 mma) {
    return mma ? 32 * (THREAD / 128) + 8 * i + 2 * (LANE % 4) + k % 2 : THREAD / 16 + 16 * k;
}

DEV void prompt_store(const linear_job *j, const prompt_place *p, float acc[4][4], u32 mma) {
    UNROLL
    for (u32 n = 0; n < 16; n++) {
        const u32 ir = p->ir0 + tile_weight(n / 4, n % 4, mma), it = tile_act(n / 4, n % 4, mma);
        if (ir < p->out.w.n_row && it < p->n)
            linear_finish(&p->out, ir, prompt_out(j, p, it), p->expert, acc[n / 4][n % 4]);
    }
}

/* ---- quantised weights ---- */

/* Shared memory of a stage: both sides' words, [STAGE_BLOCKS][8][STAGE_LD], and what their blocks are scaled
 * with, [STAGE_BLOCKS][2][PROMPT_TILE] (d of activations: [STAGE_BLOCKS][PROMPT_TILE]). */
typedef struct prompt_room {
    u32 *w, *a;
    float *scale, *min, *d, *s;
} prompt_room;

DEV void prompt_put_weight(const prompt_room *s, u32 ib, u32 row, const quant_block *b, u32 has_min) {
    UNROLL
    for (u32 g = 0; g < 8; g++) s->w[ib * STAGE_LD_BLOCK + g * STAGE_LD + row] = b->q[g];
    s->scale[2 * ib * PROMPT_TILE + row] = b->scale[0];
    s->scale[(2 * ib + 1) * PROMPT_TILE + row] = b->scale[1];
    if (!has_min) return;
    s->min[2 * ib * PROMPT_TILE + row] = b->min[0];
    s->min[(2 * ib + 1) * PROMPT_TILE + row] = b->min[1];
}

/* Block `at` (in values from the start of the activations) as block ib of row `row`. */
DEV void prompt_put_act(const prompt_room *s, u32 ib, u32 row, const quant_act *a, u64 at, u32 n_sub) {
    u32 x[8];
    load_16(x, a->q + at);
    load_16(x + 4, a->q + at + 16);
    UNROLL
    for (u32 g = 0; g < 8; g++) s->a[ib * STAGE_LD_BLOCK + g * STAGE_LD + row] = x[g];
    s->d[ib * PROMPT_TILE + row] = a->d[at / 32];
    s->s[2 * ib * PROMPT_TILE + row] = n_sub == 2 ? a->s16[at / 16] : a->s[at / 32];
    if (n_sub == 2) s->s[(2 * ib + 1) * PROMPT_TILE + row] = a->s16[at / 16 + 1];
}

/* The integer sums of sub-block h of block ib, n_word words long. */
#if TILE_MMA
DEV void prompt_dots(i32 sum[4][4], const prompt_room *s, u32 ib, u32 h, u32 n_word) {
    const u32 at = ib * STAGE_LD_BLOCK + (n_word * h + LANE % 4) * STAGE_LD + LANE / 4;
    const u32 *w = s->w + at + 16 * (THREAD / 32 % 4), *x = s->a + at + 32 * (THREAD / 128);
    u32 a[4], b[2];
    a[0] = w[0];
    a[1] = w[8];
    a[2] = n_word == 8 ? w[4 * STAGE_LD] : 0;
    a[3] = n_word == 8 ? w[4 * STAGE_LD + 8] : 0;
    UNROLL
    for (u32 i = 0; i < 4; i++) {
        b[0] = x[8 * i];
        b[1] = n_word == 8 ? x[4 * STAGE_LD + 8 * i] : 0;
        if (n_word == 8)
            lane_mma_i8(sum[i], a, b);
        else
            lane_mma_i8_half(sum[i], a, b);
    }
}
#else
DEV void prompt_dots(i32 sum[4][4], const prompt_room *s, u32 ib, u32 h, u32 n_word) {
    UNROLL_BY_2
    for (u32 g = 0; g < n_word; g++) {
        const u32 at = ib * STAGE_LD_BLOCK + (n_word * h + g) * STAGE_LD;
        const u32 *w = s->w + at + THREAD % 16, *a = s->a + at + THREAD / 16;
        UNROLL
        for (u32 i = 0; i < 16; i++)
            sum[i / 4][i % 4] = dot4(w[16 * (i / 4)], a[16 * (i % 4)], sum[i / 4][i % 4]);
    }
}
#endif

/* One sub-block of a stage: h of block ib. */
DEV void prompt_sub(float acc[4][4], const prompt_room *s, u32 ib, u32 h, u32 n_word, u32 has_min) {
    i32 sum[4][4];
    UNROLL
    for (u32 n = 0; n < 16; n++) sum[n / 4][n % 4] = DOT_ZERO;
    prompt_dots(sum, s, ib, h, n_word);
    const float *scale = s->scale + (2 * ib + h) * PROMPT_TILE, *d = s->d + ib * PROMPT_TILE;
    const float *min = s->min + (2 * ib + h) * PROMPT_TILE, *as = s->s + (2 * ib + h) * PROMPT_TILE;
    UNROLL
    for (u32 n = 0; n < 16; n++) {
        const u32 r = tile_weight(n / 4, n % 4, TILE_MMA), t = tile_act(n / 4, n % 4, TILE_MMA);
        float *o = &acc[n / 4][n % 4];
        *o = f32_fma(scale[r] * d[t], dot_f32(sum[n / 4][n % 4]), *o);
        if (has_min) *o = f32_fma(-min[r], as[t], *o);
    }
}

DEV void prompt_stage(float acc[4][4], const prompt_room *s, u32 n_block, u32 n_sub, u32 has_min) {
    for (u32 ib = 0; ib < n_block; ib++) {
        UNROLL
        for (u32 h = 0; h < n_sub; h++) prompt_sub(acc, s, ib, h, 8 / n_sub, has_min);
    }
}

/* y = W a, prompt role.
 *   grid    ceil(n_row / PROMPT_TILE) of every output (linear_job.first), ceil(n_row / PROMPT_TILE) or the
 * most tiles of pairs; block PROMPT_THREADS shared  about 23 KiB needs   nothing order   rule 4 */
#define PROMPT_QUANT(TYPE, name, n_sub, has_min)                                                             \
    KERNEL(prompt_##name, linear_job, PROMPT_THREADS) {                                                      \
        SHARED(u32, w, STAGE_SIZE);                                                                          \
        SHARED(u32, a, STAGE_SIZE);                                                                          \
        SHARED(float, scale, STAGE_BLOCKS * 2 * PROMPT_TILE);                                                \
        SHARED(float, min, STAGE_BLOCKS * 2 * PROMPT_TILE);                                                  \
        SHARED(float, d, STAGE_BLOCKS *PROMPT_TILE);                                                         \
        SHARED(float, s, STAGE_BLOCKS * 2 * PROMPT_TILE);                                                    \
        prompt_room room;                                                                                    \
        room.w = w, room.a = a, room.scale = scale, room.min = min, room.d = d, room.s = s;                  \
        const prompt_place p = prompt_place_of(&job);                                                        \
        if (p.n == 0) return;                                                                                \
        const u32 n_block = p.out.w.n_col / 32, ib = THREAD % STAGE_BLOCKS, row = THREAD / STAGE_BLOCKS;     \
        const u8 *weights =                                                                                  \
            p.w + (u64)u32_min(p.ir0 + row, p.out.w.n_row - 1) * name##_row_bytes(p.out.w.n_col);            \
        const u64 act = (u64)prompt_in(&job, &p, u32_min(row, p.n - 1)) * job.a.ld;                          \
        float acc[4][4];                                                                                     \
        UNROLL                                                                                               \
        for (u32 i = 0; i < 16; i++) acc[i / 4][i % 4] = 0.0f;                                               \
        for (u32 b0 = 0; b0 < n_block; b0 += STAGE_BLOCKS) {                                                 \
            if (b0 + ib < n_block) {                                                                         \
                quant_block b;                                                                               \
                quant_unpack_##name(&b, weights, b0 + ib);                                                   \
                prompt_put_weight(&room, ib, row, &b, has_min);                                              \
                prompt_put_act(&room, ib, row, &job.a, act + 32 * (b0 + ib), n_sub);                         \
            }                                                                                                \
            block_sync();                                                                                    \
            prompt_stage(acc, &room, u32_min(n_block - b0, STAGE_BLOCKS), n_sub, has_min);                   \
            block_sync();                                                                                    \
        }                                                                                                    \
        prompt_store(&job, &p, acc, TILE_MMA);                                                               \
    }
QUANT_TYPES(PROMPT_QUANT)
#undef PROMPT_QUANT

/* ---- float weights ---- */

DEV void prompt_float_stage(float acc[4][4], const float *w, const float *x, u32 n_col) {
    const u32 r = THREAD % 16, t = THREAD / 16;
    for (u32 c = 0; c < n_col; c++) {
        const float *wc = w + c * FLOAT_LD + r, *xc = x + c * FLOAT_LD + t;
        UNROLL
        for (u32 i = 0; i < 16; i++)
            acc[i / 4][i % 4] = f32_fma(wc[16 * (i / 4)], xc[16 * (i % 4)], acc[i / 4][i % 4]);
    }
}

/* The same for weights that are floats.
 *   grid    as above; block PROMPT_THREADS
 *   shared  about 17 KiB
 *   needs   nothing
 *   order   rule 5 */
#define PROMPT_FLOAT(name, bytes)                                                                            \
    KERNEL(prompt_##name, linear_job, PROMPT_THREADS) {                                                      \
        SHARED(float, w, FLOAT_COLS *FLOAT_LD);                                                              \
        SHARED(float, x, FLOAT_COLS *FLOAT_LD);                                                              \
        const prompt_place p = prompt_place_of(&job);                                                        \
        if (p.n == 0) return;                                                                                \
        const u32 n_col = p.out.w.n_col;                                                                     \
        float acc[4][4];                                                                                     \
        UNROLL                                                                                               \
        for (u32 i = 0; i < 16; i++) acc[i / 4][i % 4] = 0.0f;                                               \
        for (u32 c0 = 0; c0 < n_col; c0 += FLOAT_COLS) {                                                     \
            for (u32 i = THREAD; i < FLOAT_COLS * PROMPT_TILE; i += PROMPT_THREADS) {                        \
                const u32 c = i % FLOAT_COLS, row = i / FLOAT_COLS;                                          \
                if (c0 + c >= n_col) continue;                                                               \
                const u32 ir = u32_min(p.ir0 + row, p.out.w.n_row - 1);                                      \
                const u32 ia = prompt_in(&job, &p, u32_min(row, p.n - 1));                                   \
                w[c * FLOAT_LD + row] = weight_##name(p.w + (u64)ir * n_col * bytes, c0 + c);                \
                x[c * FLOAT_LD + row] = job.a.x[(u64)ia * job.a.ld + c0 + c];                                \
            }                                                                                                \
            block_sync();                                                                                    \
            prompt_float_stage(acc, w, x, u32_min(n_col - c0, FLOAT_COLS));                                  \
            block_sync();                                                                                    \
        }                                                                                                    \
        prompt_store(&job, &p, acc, 0);                                                                      \
    }
PROMPT_FLOAT(f32, 4)
PROMPT_FLOAT(f16, 2)
PROMPT_FLOAT(bf16, 2)
#undef PROMPT_FLOAT

#endif
