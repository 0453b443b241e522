/* Rope, the cache and attention, defined: docs/ARITHMETIC.md rules 6 and 9.
 *
 * Attention of one row and head walks blocks of KV_PAGE absolute positions. Within a block: scores, their
 * maximum, then l and o by position. Blocks are joined left to right: M' = max(M, m);  a = exp(M - M');  b =
 * exp(m - M');  l = l a + l_b b;  o = o a + o_b b;   at the end o * (1 / l) */
#include "dev/dev_ref.h"

#include "base/half.h"
#include "dev/ref_math.h"

#include <string.h>

static void rotate(float *x, const float *cs, uint32_t n_rot, rope_kind kind) {
    for (uint32_t i = 0; i < n_rot / 2; i++) {
        uint32_t ia = kind == ROPE_NORM ? 2 * i : i, ib = kind == ROPE_NORM ? 2 * i + 1 : i + n_rot / 2;
        float a = x[ia], b = x[ib], c = cs[2 * i], s = cs[2 * i + 1];
        x[ia] = fmaf(a, c, -(b * s));
        x[ib] = fmaf(a, s, b * c);
    }
}

#define F16_MAX 65504.0f

/* One head's vector into the cache: f16 by rounding to nearest even, kept finite by a clamp; i8 with one
 * scale (rule 1 over the whole head). */
typedef struct kv_slot {
    void *cache;  // keys or values of the layer
    float *scale; // KV_I8 only
    kv_type type;
    size_t head; // which (page, head, position); a vector of n begins at head * n
} kv_slot;

static void store(kv_slot to, const float *x, uint32_t n) {
    void *cache = to.cache;
    size_t at = to.head * n;
    kv_type type = to.type;
    if (type == KV_F32) {
        memcpy((float *)cache + at, x, n * sizeof(float));
        return;
    }
    if (type == KV_F16) {
        uint16_t *dst = (uint16_t *)cache + at;
        for (uint32_t i = 0; i < n; i++)
            dst[i] = f32_to_f16(x[i] > F16_MAX ? F16_MAX : x[i] < -F16_MAX ? -F16_MAX : x[i]);
        return;
    }
    float amax = 0.0f;
    for (uint32_t i = 0; i < n; i++) amax = fabsf(x[i]) > amax ? fabsf(x[i]) : amax;
    float d = amax / 127.0f;
    if (d < 0x1p-126f) d = 0.0f;
    float inv = d > 0.0f ? 1.0f / d : 0.0f;
    for (uint32_t i = 0; i < n; i++) {
        float q = rintf(x[i] * inv);
        ((int8_t *)cache)[at + i] = (int8_t)(q > 127.0f ? 127.0f : q < -127.0f ? -127.0f : q);
    }
    to.scale[to.head] = d;
}

/* Values as float (f16 and f32), or as the integers of i8, whose scale is applied by the caller. */
static void load(float *x, const void *cache, kv_type type, size_t at, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        if (type == KV_F32)
            x[i] = ((const float *)cache)[at + i];
        else if (type == KV_F16)
            x[i] = f16_to_f32(((const uint16_t *)cache)[at + i]);
        else
            x[i] = (float)((const int8_t *)cache)[at + i];
    }
}

static bool finite_row(const float *x, uint32_t n) {
    bool ok = true;
    for (uint32_t i = 0; i < n; i++) ok &= x[i] - x[i] == 0.0f;
    return ok;
}

mica_status ref_rope_kv(dev *d, const rope_kv_args *a, mica_error *err) {
    (void)err;
    ref_dev *r = (ref_dev *)d;
    for (uint32_t ir = 0; ir < a->n_row; ir++) {
        const row_info *row = &a->rows[ir];
        const float *cs = a->cs + (size_t)ir * a->n_rot;
        for (uint32_t ih = 0; ih < a->n_head; ih++) {
            float *q = a->q + (size_t)ir * a->ld_q + (size_t)ih * a->head_ld_q;
            if (a->q_norm) ref_rms(q, q, a->q_norm, a->d_k, a->eps);
            rotate(q, cs, a->n_rot, a->rope);
            if (!finite_row(q, a->d_k)) r->not_finite = "query";
        }
        if (!a->k) continue;
        int32_t page = kv_page_of(&a->pages, row->seq, row->pos);
        uint32_t in_page = (uint32_t)row->pos % KV_PAGE;
        for (uint32_t ih = 0; ih < a->n_head_kv; ih++) {
            float *k = a->k + (size_t)ir * a->ld_kv + (size_t)ih * a->d_k;
            float *v = a->v + (size_t)ir * a->ld_kv + (size_t)ih * a->d_v;
            size_t at = kv_at(page, a->n_head_kv, ih, in_page, 1);
            if (a->v_norm) ref_rms(v, v, NULL, a->d_v, a->eps);
            store((kv_slot){a->kv.v, a->kv.v_scale, a->kv.type, at}, v, a->d_v);
            if (a->k_norm) ref_rms(k, k, a->k_norm, a->d_k, a->eps);
            rotate(k, cs, a->n_rot, a->rope);
            store((kv_slot){a->kv.k, a->kv.k_scale, a->kv.type, at}, k, a->d_k);
            if (!finite_row(k, a->d_k) || !finite_row(v, a->d_v)) r->not_finite = "key or value";
        }
    }
    return MICA_OK;
}

/* Running softmax of one row and head. */
typedef struct running {
    float m, l;
    float *o; // [d_v]
    bool any;
} running;

/* Joins a block's (m, l, o) into the running one. */
static void join(running *run, float m, float l, const float *o, uint32_t d_v) {
    if (!run->any) {
        run->m = m;
        run->l = l;
        memcpy(run->o, o, d_v * sizeof(float));
        run->any = true;
        return;
    }
    float top = run->m > m ? run->m : m, a = exactf_exp(run->m - top), b = exactf_exp(m - top);
    run->m = top;
    run->l = run->l * a + l * b;
    for (uint32_t i = 0; i < d_v; i++) run->o[i] = run->o[i] * a + o[i] * b;
}

/* Some positions of one block, ascending. */
typedef struct block_positions {
    int32_t pos[KV_PAGE];
    uint32_t n;
} block_positions;

/* One block of one row and head. */
static void attend_block(ref_dev *r, const attn_args *a, uint32_t ir, uint32_t ih, const block_positions *b,
                         running *run) {
    const int32_t *pos = b->pos;
    uint32_t n = b->n;
    float *score = r->scratch, *x = score + KV_PAGE, *o = x + (a->d_k > a->d_v ? a->d_k : a->d_v);
    const float *q = a->q + (size_t)ir * a->ld_q + (size_t)ih * a->head_ld_q;
    uint32_t ih_kv = ih / (a->n_head / a->n_head_kv);
    int32_t page = kv_page_of(&a->pages, a->rows[ir].seq, pos[0]);
    float m = 0.0f, l = 0.0f;
    for (uint32_t i = 0; i < n; i++) {
        size_t at = kv_at(page, a->n_head_kv, ih_kv, (uint32_t)pos[i] % KV_PAGE, 1);
        load(x, a->kv.k, a->kv.type, at * a->d_k, a->d_k);
        float s = ref_dot(q, x, a->d_k);
        if (a->kv.type == KV_I8) s = s * a->kv.k_scale[at];
        score[i] = s * a->scale;
        if (i == 0 || score[i] > m) m = score[i];
    }
    for (uint32_t j = 0; j < a->d_v; j++) o[j] = 0.0f;
    for (uint32_t i = 0; i < n; i++) {
        size_t at = kv_at(page, a->n_head_kv, ih_kv, (uint32_t)pos[i] % KV_PAGE, 1);
        float p = exactf_exp(score[i] - m);
        l = l + p;
        if (a->kv.type == KV_I8) p = p * a->kv.v_scale[at];
        load(x, a->kv.v, a->kv.type, at * a->d_v, a->d_v);
        for (uint32_t j = 0; j < a->d_v; j++) o[j] = fmaf(p, x[j], o[j]);
    }
    join(run, m, l, o, a->d_v);
}

/* The next run of visible positions inside one block, from position *next on; 0 when there is none. */
static uint32_t next_block(const attn_args *a, uint32_t ir, int32_t *next, int32_t pos[KV_PAGE]) {
    int32_t last = a->rows[ir].pos,
            first = a->window && last >= (int32_t)a->window ? last - (int32_t)a->window + 1 : 0;
    const int32_t *sel = a->sel ? a->sel + (size_t)ir * a->ld_sel : NULL;
    uint32_t n = 0;
    if (sel && sel[0] >= 0) { // *next counts entries of the list
        for (int32_t i = *next; i < sel[0] && (n == 0 || sel[1 + i] / KV_PAGE == pos[0] / KV_PAGE); i++)
            pos[n++] = sel[1 + i];
        *next += (int32_t)n;
        return n;
    }
    int32_t p = *next > first ? *next : first;
    while (p <= last && (n == 0 || p % KV_PAGE != 0)) pos[n++] = p++;
    *next = p;
    return n;
}

mica_status ref_attn(dev *d, const attn_args *a, mica_error *err) {
    (void)err;
    ref_dev *r = (ref_dev *)d;
    for (uint32_t ir = 0; ir < a->n_row; ir++) {
        for (uint32_t ih = 0; ih < a->n_head; ih++) {
            running run = {.o = act_x(&a->o, ir) + (size_t)ih * a->d_v};
            block_positions b;
            int32_t next = 0;
            while ((b.n = next_block(a, ir, &next, b.pos)) > 0) attend_block(r, a, ir, ih, &b, &run);
            const float *gate = a->gate ? a->gate + (size_t)ir * a->ld_q + (size_t)ih * a->head_ld_q : NULL;
            float inv = 1.0f / run.l;
            for (uint32_t j = 0; j < a->d_v; j++) {
                float o = run.o[j] * inv;
                run.o[j] = gate ? o * exactf_sigmoid(gate[j]) : o;
            }
        }
    }
    if (a->want_q) ref_quantise(r, &a->o, a->n_row, a->n_head * a->d_v, "attention");
    return MICA_OK;
}
