/* Head norms, rope and the way into the cache (rules 6, 8 and 9).
 *
 * 32 lanes have one head of one row. A lane works on whole pairs and on the values that no pair has, reads
 * and writes them in place, and so never waits for another but in sums. */
#ifndef MICA_KERN_ROPE_CUH
#define MICA_KERN_ROPE_CUH

#include "kern/cache.cuh"
#include "kern/norm.cuh"

/* A head: its values, and what is done to them. */
typedef struct rope_head {
    float *x;
    const float *w;  // norm weights or NULL
    const float *cs; // cos, sin by pair
    u32 d, n_rot;
    rope_kind kind;
    bool norm;
    float r; // the norm's factor
} rope_head;

/* Values ia and ib of unit u: a pair, or one value beyond the pairs (ib == ia). */
typedef struct rope_unit {
    u32 a, b;
} rope_unit;

DEV u32 rope_units(const rope_head *h) {
    return h->d - h->n_rot / 2;
}
DEV rope_unit rope_unit_at(const rope_head *h, u32 u) {
    rope_unit r;
    const u32 half = h->n_rot / 2;
    r.a = u >= half ? u + half : h->kind == ROPE_NORM ? 2 * u : u;
    r.b = u >= half ? r.a : h->kind == ROPE_NORM ? r.a + 1 : u + half;
    return r;
}

DEV float rope_normed(const rope_head *h, u32 i) {
    const float x = h->x[i];
    if (!h->norm) return x;
    return h->w ? (x * h->r) * h->w[i] : x * h->r;
}

/* Norms and rotates a head in place. Returns the lane's part of the largest magnitude; NaN when one of its
 * values is not finite. */
DEV float rope_apply(const rope_head *h) {
    float amax = 0.0f;
    bool finite = true;
    for (u32 u = LANE; u < rope_units(h); u += 32) {
        const rope_unit at = rope_unit_at(h, u);
        float a = rope_normed(h, at.a), b = 0.0f;
        if (at.b != at.a) {
            const float c = h->cs[2 * u], s = h->cs[2 * u + 1], a0 = a;
            b = rope_normed(h, at.b);
            a = f32_fma(a0, c, -(b * s));
            b = f32_fma(a0, s, b * c);
            h->x[at.b] = b;
        }
        h->x[at.a] = a;
        finite = finite && f32_finite(a) && f32_finite(b);
        amax = f32_abs(a) > amax ? f32_abs(a) : amax;
        amax = f32_abs(b) > amax ? f32_abs(b) : amax;
    }
    return finite ? amax : bits_f32(0x7FC00000u);
}

/* A finished head into the cache as vector `vec`: each lane the values it wrote itself. */
DEV void rope_to_cache(const rope_head *h, float amax, void *cache, float *scale, kv_type type, u64 vec) {
    const act_scale s = act_scale_of(type == KV_I8 ? amax : 0.0f);
    for (u32 u = LANE; u < rope_units(h); u += 32) {
        const rope_unit at = rope_unit_at(h, u);
        const u64 a = vec * h->d + at.a, b = vec * h->d + at.b;
        if (type == KV_I8) {
            ((i8 *)cache)[a] = (i8)act_round(h->x[at.a], s.inv);
            ((i8 *)cache)[b] = (i8)act_round(h->x[at.b], s.inv);
        } else {
            cache_store_float(cache, type, a, h->x[at.a]);
            cache_store_float(cache, type, b, h->x[at.b]);
        }
    }
    if (type == KV_I8 && LANE == 0) scale[vec] = s.d;
}

/* Query heads in place; key and value heads to the cache.
 *   grid    ceil((n_head + 2 n_head_kv) / 4), n_row; block ROPE_THREADS: 32 lanes a head, keys before values
 *   shared  none
 *   needs   n_rot even, <= d_k
 *   order   rule 8 for the norms */
KERNEL(rope_kv_rows, rope_kv_job, ROPE_THREADS) {
    const rope_kv_args *a = &job.a;
    const u32 ih = BLOCK_X * (ROPE_THREADS / 32) + THREAD / 32, row = BLOCK_Y, n_kv = a->k ? a->n_head_kv : 0;
    const bool query = ih < a->n_head, key = !query && ih < a->n_head + n_kv;
    const bool value = !query && !key && ih < a->n_head + 2 * n_kv;
    const u32 jh = query ? ih : key ? ih - a->n_head : value ? ih - a->n_head - n_kv : 0;
    rope_head h;
    h.x = query ? a->q + (u64)row * a->ld_q + (u64)jh * a->head_ld_q
          : key ? a->k + (u64)row * a->ld_kv + (u64)jh * a->d_k
                : a->v + (u64)row * a->ld_kv + (u64)jh * a->d_v;
    h.w = query ? a->q_norm : key ? a->k_norm : (const float *)0;
    h.cs = a->cs + (u64)row * a->n_rot;
    h.d = query || key ? a->d_k : value ? a->d_v : 0;
    h.n_rot = query || key ? a->n_rot : 0;
    h.kind = a->rope;
    // Lanes of a wave of 64 may have two kinds of heads: whoever needs no norm goes through the sums all the
    // same.
    h.norm = query || key ? h.w != (const float *)0 : a->v_norm != 0;
    h.r = rms_factor(lane_sum_squares(h.x, h.d), query || key ? a->d_k : a->d_v, a->eps);
    const float part = rope_apply(&h);
    const float amax = lane_max_f32(f32_finite(part) ? part : 0.0f, 32);
    if (!f32_finite(part)) note_bad(query ? &job.bad_query : &job.bad_key);
    if (!key && !value) return;
    const row_info at = a->rows[row];
    const u64 vec = cache_vector(cache_page(&a->pages, at.seq, (u32)at.pos), a->n_head_kv, jh, (u32)at.pos);
    if (key)
        rope_to_cache(&h, amax, a->kv.k, a->kv.k_scale, a->kv.type, vec);
    else
        rope_to_cache(&h, amax, a->kv.v, a->kv.v_scale, a->kv.type, vec);
}

#endif
