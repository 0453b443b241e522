/* The fast CPU device: threads and vectors, bit-equal with the definition (dev_ref.c).
 *
 *     dev_cpu.c      opening, scratch, the spreading of work, and every operation that is a loop over rows
 *     cpu_linear.c   products with weights
 *     cpu_attn.c     attention
 *     cpu_experts.c  mixtures of experts
 *     cpu_delta.c    recurrent mixers
 *     cpu_hyper.c    residual streams
 *     cpu_index.c    which positions attention reads
 *     cpu_ngram.c    n-gram rows
 *     cpu_fns.h      the kernels of one row or tile, one table an instruction set
 *
 * Equality costs nothing here: rows are independent, and where one row is shared among threads (the outputs
 * of a product, the heads or blocks of attention, columns of a gate or a state) no sum crosses the cut. All
 * scratch is taken in dev_open, sized by dev_limits; nothing allocates after. */
#include "dev/cpu_int.h"

#include "base/exactf.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>

/* ---- spreading -------------------------------------------------------------------------------- */

static void run_part(void *arg, int ith, int n_thread) {
    cpu_dev *c = arg;
    for (uint32_t ip = 0; ip < c->n_phase; ip++) {
        const cpu_phase *ph = &c->phases[ip];
        // The first unit needs no counter: it is the thread's own.
        uint32_t iu = (uint32_t)ith;
        while (iu < ph->n_unit) {
            ph->fn(c, &c->scratch[ith], c->job, iu);
            iu = (uint32_t)n_thread + atomic_fetch_add_explicit(&c->next[ip].next, 1, memory_order_relaxed);
        }
        if (ip + 1 < c->n_phase) pool_barrier(c->pool);
    }
}

void cpu_run(cpu_dev *c, const void *job, const cpu_phase *phases, uint32_t n_phase, bool alone) {
    if (alone || c->n_thread == 1) {
        for (uint32_t ip = 0; ip < n_phase; ip++) {
            for (uint32_t iu = 0; iu < phases[ip].n_unit; iu++) phases[ip].fn(c, &c->scratch[0], job, iu);
        }
        return;
    }
    c->job = job;
    c->phases = phases;
    c->n_phase = n_phase;
    for (uint32_t ip = 0; ip < n_phase; ip++)
        atomic_store_explicit(&c->next[ip].next, 0, memory_order_relaxed);
    pool_run(c->pool, run_part, c);
}

enum {
    ALONE_VALUES = 8192
}; // values of element-wise work that one thread does in less time than two meet in

/* Units of whole rows for element-wise work of n_row rows of n_col values. */
typedef struct row_job {
    const void *a; // argument record
    uint32_t n_row, n_unit;
} row_job;

static void run_rows(cpu_dev *c, const void *a, cpu_unit_fn *fn, uint32_t n_row, uint64_t n_col) {
    bool alone = n_row * n_col <= ALONE_VALUES || n_row == 1;
    uint32_t most = CPU_UNITS * c->n_thread;
    row_job j = {a, n_row, alone ? 1 : n_row < most ? n_row : most};
    if (n_row > 0) cpu_run(c, &j, &(cpu_phase){fn, j.n_unit}, 1, alone);
}

/* The argument record and the rows [b, e) of unit iu. */
static const void *rows_of(const void *job, uint32_t iu, uint32_t *b, uint32_t *e) {
    const row_job *j = job;
    cpu_range(b, e, j->n_row, iu, j->n_unit);
    return j->a;
}

void cpu_not_finite(cpu_dev *c, const char *what) {
    atomic_store_explicit(&c->not_finite, what, memory_order_relaxed);
}

void cpu_quantise(cpu_dev *c, const quant_act *a, act_part p, const char *what) {
    quant_act v = {.x = a->x + p.col,
                   .q = a->q + p.col,
                   .d = a->d + p.col / 32,
                   .s = a->s + p.col / 32,
                   .s16 = a->s16 + p.col / 16,
                   .ld = a->ld};
    if (!c->q->act_rows(&v, p.row, p.n_row, p.n_col)) cpu_not_finite(c, what);
}

/* ---- operations over rows --------------------------------------------------------------------- */

static void embed_unit(cpu_dev *c, cpu_scratch *s, const void *job, uint32_t iu) {
    (void)s;
    uint32_t b, e;
    const embed_args *a = rows_of(job, iu, &b, &e);
    const weight_ref *t = &a->table;
    size_t row_bytes = weight_row_bytes(t);
    for (uint32_t ir = b; ir < e; ir++) {
        float *x = a->x + (size_t)ir * t->n_col;
        quant_decode(x, (const char *)t->w + (size_t)(uint32_t)a->rows[ir].tok * row_bytes,
                     (gguf_type)t->type, t->n_col);
        if (a->scale != 1.0f)
            c->f->scale(x, a->scale, t->n_col); // times 1 is every value but a signalling NaN
    }
}

static mica_status cpu_embed(dev *d, const embed_args *a, mica_error *err) {
    (void)err;
    run_rows((cpu_dev *)d, a, embed_unit, a->n_row, a->table.n_col);
    return MICA_OK;
}

static void norm_unit(cpu_dev *c, cpu_scratch *s, const void *job, uint32_t iu) {
    (void)s;
    uint32_t b, e;
    const norm_args *a = rows_of(job, iu, &b, &e);
    for (uint32_t ir = b; ir < e; ir++) {
        uint32_t from = a->row_of ? (uint32_t)a->row_of[ir] : ir;
        c->f->rms(act_x(&a->y, ir), a->x + (size_t)from * a->ld_x, a->w, a->n_col, a->eps);
        if (a->want_q) cpu_quantise(c, &a->y, (act_part){ir, 1, 0, a->n_col}, "norm");
    }
}

static mica_status cpu_norm(dev *d, const norm_args *a, mica_error *err) {
    (void)err;
    run_rows((cpu_dev *)d, a, norm_unit, a->n_row, a->n_col);
    return MICA_OK;
}

static void quantise_unit(cpu_dev *c, cpu_scratch *s, const void *job, uint32_t iu) {
    (void)s;
    uint32_t b, e;
    const quantise_args *a = rows_of(job, iu, &b, &e);
    cpu_quantise(c, &a->a, (act_part){b, e - b, 0, a->n_col}, "activations");
}

static mica_status cpu_quantise_rows(dev *d, const quantise_args *a, mica_error *err) {
    (void)err;
    run_rows((cpu_dev *)d, a, quantise_unit, a->n_row, a->n_col);
    return MICA_OK;
}

static void gated_add_unit(cpu_dev *c, cpu_scratch *s, const void *job, uint32_t iu) {
    (void)s;
    uint32_t b, e;
    const gated_add_args *a = rows_of(job, iu, &b, &e);
    for (size_t ir = b; ir < e; ir++) {
        c->f->axpy(a->y + ir * a->n_col, exactf_sigmoid(a->g[ir]), a->x + ir * a->n_col, a->n_col);
    }
}

static mica_status cpu_gated_add(dev *d, const gated_add_args *a, mica_error *err) {
    (void)err;
    run_rows((cpu_dev *)d, a, gated_add_unit, a->n_row, a->n_col);
    return MICA_OK;
}

static void add_norm_unit(cpu_dev *c, cpu_scratch *s, const void *job, uint32_t iu) {
    (void)s;
    uint32_t b, e;
    const add_norm_args *a = rows_of(job, iu, &b, &e);
    for (size_t ir = b; ir < e; ir++)
        c->f->add_rms(a->x + ir * a->n_col, a->y + ir * a->n_col, a->w, a->n_col, a->eps);
}

static mica_status cpu_add_norm(dev *d, const add_norm_args *a, mica_error *err) {
    (void)err;
    run_rows((cpu_dev *)d, a, add_norm_unit, a->n_row, a->n_col);
    return MICA_OK;
}

static void rope_table_unit(cpu_dev *c, cpu_scratch *s, const void *job, uint32_t iu) {
    (void)s;
    uint32_t b, e;
    const rope_table_args *a = rows_of(job, iu, &b, &e);
    for (uint32_t ir = b; ir < e; ir++) {
        c->f->sincos(a->cs + (size_t)ir * a->n_pair * 2, (double)a->rows[ir].pos, a->inv_freq, a->n_pair,
                     a->mscale);
    }
}

static mica_status cpu_rope_table(dev *d, const rope_table_args *a, mica_error *err) {
    (void)err;
    run_rows((cpu_dev *)d, a, rope_table_unit, a->n_row,
             (uint64_t)a->n_pair * 16); // a sine costs as much as 16 values
    return MICA_OK;
}

static bool rope_queries(const cpu_dev *c, const rope_kv_args *a, uint32_t ir) {
    const float *cs = a->cs + (size_t)ir * (a->n_rot / 2 * 2);
    bool ok = true;
    for (uint32_t ih = 0; ih < a->n_head; ih++) {
        float *q = a->q + (size_t)ir * a->ld_q + (size_t)ih * a->head_ld_q;
        if (a->q_norm) c->f->rms(q, q, a->q_norm, a->d_k, a->eps);
        c->f->rotate(q, cs, a->n_rot, a->rope);
        ok &= c->f->finite(q, a->d_k);
    }
    return ok;
}

/* Where kv_at's row lies in a cache of d values a row. */
static void *cache_row(void *cache, kv_type type, size_t at, uint32_t d) {
    size_t width = type == KV_F32 ? 4 : type == KV_F16 ? 2 : 1;
    return (char *)cache + at * d * width;
}

static float *scale_at(float *scale, size_t at) {
    return scale ? scale + at : NULL;
} // KV_I8 has one

static bool rope_cache(const cpu_dev *c, const rope_kv_args *a, uint32_t ir) {
    const row_info *row = &a->rows[ir];
    const float *cs = a->cs + (size_t)ir * (a->n_rot / 2 * 2);
    int32_t page = kv_page_of(&a->pages, row->seq, row->pos);
    bool ok = true;
    for (uint32_t ih = 0; ih < a->n_head_kv; ih++) {
        float *k = a->k + (size_t)ir * a->ld_kv + (size_t)ih * a->d_k;
        float *v = a->v + (size_t)ir * a->ld_kv + (size_t)ih * a->d_v;
        size_t at = kv_at(page, a->n_head_kv, ih, (uint32_t)row->pos % KV_PAGE, 1);
        if (a->v_norm) c->f->rms(v, v, NULL, a->d_v, a->eps);
        c->f->kv_store(cache_row(a->kv.v, a->kv.type, at, a->d_v), scale_at(a->kv.v_scale, at), v, a->d_v,
                       a->kv.type);
        if (a->k_norm) c->f->rms(k, k, a->k_norm, a->d_k, a->eps);
        c->f->rotate(k, cs, a->n_rot, a->rope);
        c->f->kv_store(cache_row(a->kv.k, a->kv.type, at, a->d_k), scale_at(a->kv.k_scale, at), k, a->d_k,
                       a->kv.type);
        ok &= c->f->finite(k, a->d_k) && c->f->finite(v, a->d_v);
    }
    return ok;
}

static void rope_kv_unit(cpu_dev *c, cpu_scratch *s, const void *job, uint32_t iu) {
    (void)s;
    uint32_t b, e;
    const rope_kv_args *a = rows_of(job, iu, &b, &e);
    for (uint32_t ir = b; ir < e; ir++) {
        if (!rope_queries(c, a, ir)) cpu_not_finite(c, "query");
        if (a->k && !rope_cache(c, a, ir)) cpu_not_finite(c, "key or value");
    }
}

static mica_status cpu_rope_kv(dev *d, const rope_kv_args *a, mica_error *err) {
    (void)err;
    uint64_t n_val = (uint64_t)(a->n_head + a->n_head_kv) * a->d_k + (uint64_t)a->n_head_kv * a->d_v;
    run_rows((cpu_dev *)d, a, rope_kv_unit, a->n_row, n_val);
    return MICA_OK;
}

static void router_unit(cpu_dev *c, cpu_scratch *s, const void *job, uint32_t iu) {
    uint32_t b, e;
    const router_args *a = rows_of(job, iu, &b, &e);
    for (size_t ir = b; ir < e; ir++) {
        bool ok = c->f->router(a->ids + ir * a->n_used, a->weights + ir * a->n_used,
                               a->logits + ir * a->n_expert, a, s->row);
        if (!ok) cpu_not_finite(c, "router");
    }
}

static mica_status cpu_router(dev *d, const router_args *a, mica_error *err) {
    (void)err;
    run_rows((cpu_dev *)d, a, router_unit, a->n_row, (uint64_t)a->n_expert * a->n_used / 4);
    return MICA_OK;
}

/* ---- operations over values: a row may be cut ------------------------------------------------- */

typedef struct glu_job {
    const glu_args *a;
    uint32_t n_part,
        part; // a row is n_part parts of `part` columns, a multiple of 32; the last may be shorter
} glu_job;

static void glu_unit(cpu_dev *c, cpu_scratch *s, const void *job, uint32_t iu) {
    (void)s;
    const glu_job *j = job;
    const glu_args *a = j->a;
    uint32_t ir = iu / j->n_part, col = iu % j->n_part * j->part,
             n = a->n_col - col < j->part ? a->n_col - col : j->part;
    size_t at = (size_t)ir * a->ld + col;
    c->f->glu(act_x(&a->h, ir) + col, a->gate + at, a->up + at, n, a->kind);
    if (a->want_q) cpu_quantise(c, &a->h, (act_part){ir, 1, col, n}, "glu");
}

static mica_status cpu_glu(dev *d, const glu_args *a, mica_error *err) {
    (void)err;
    cpu_dev *c = (cpu_dev *)d;
    bool alone = (uint64_t)a->n_row * a->n_col <= ALONE_VALUES / 4;
    uint32_t n_part = alone || a->n_row >= CPU_UNITS * c->n_thread ? 1 : 2 * c->n_thread;
    glu_job j = {.a = a, .part = ((a->n_col + n_part - 1) / n_part + 31) / 32 * 32};
    if (j.part == 0) return MICA_OK;
    j.n_part = (a->n_col + j.part - 1) / j.part;
    cpu_run(c, &j, &(cpu_phase){glu_unit, a->n_row * j.n_part}, 1, alone);
    return MICA_OK;
}

/* Units are groups of n_col columns, some of one row; blocks of 32 do not cross them, or a unit is a whole
 * row. */
typedef struct gate_norm_job {
    const gate_norm_args *a;
    uint32_t n_part; // of a row
} gate_norm_job;

static void gate_norm_unit(cpu_dev *c, cpu_scratch *s, const void *job, uint32_t iu) {
    (void)s;
    const gate_norm_job *j = job;
    const gate_norm_args *a = j->a;
    uint32_t ir = iu / j->n_part, b, e;
    cpu_range(&b, &e, a->n_group, iu % j->n_part, j->n_part);
    for (uint32_t g = b; g < e; g++) {
        size_t at = ((size_t)ir * a->n_group + g) * a->n_col;
        float *y = act_x(&a->y, ir) + (size_t)g * a->n_col;
        c->f->rms(y, a->o + at, a->w, a->n_col, a->eps);
        c->f->gate(y, a->z + at, a->n_col, a->sigmoid);
    }
    if (a->want_q) cpu_quantise(c, &a->y, (act_part){ir, 1, b * a->n_col, (e - b) * a->n_col}, "delta rule");
}

static mica_status cpu_gate_norm(dev *d, const gate_norm_args *a, mica_error *err) {
    (void)err;
    cpu_dev *c = (cpu_dev *)d;
    bool alone = (uint64_t)a->n_row * a->n_group * a->n_col <= ALONE_VALUES / 4;
    bool whole = alone || a->n_row >= CPU_UNITS * c->n_thread || a->n_col % 32 != 0;
    gate_norm_job j = {a, whole ? 1 : a->n_group < 2 * c->n_thread ? a->n_group : 2 * c->n_thread};
    cpu_run(c, &j, &(cpu_phase){gate_norm_unit, a->n_row * j.n_part}, 1, alone);
    return MICA_OK;
}

enum { VALUES_UNIT = 4096 };

static void softcap_unit(cpu_dev *c, cpu_scratch *s, const void *job, uint32_t iu) {
    (void)s;
    const softcap_args *a = job;
    uint64_t at = (uint64_t)iu * VALUES_UNIT, n = a->n - at < VALUES_UNIT ? a->n - at : VALUES_UNIT;
    c->f->softcap(a->y + at, a->cap, n);
}

static mica_status cpu_softcap(dev *d, const softcap_args *a, mica_error *err) {
    (void)err;
    uint32_t n_unit = (uint32_t)((a->n + VALUES_UNIT - 1) / VALUES_UNIT);
    cpu_run((cpu_dev *)d, a, &(cpu_phase){softcap_unit, n_unit}, 1, n_unit < 2);
    return MICA_OK;
}

static void scale_unit(cpu_dev *c, cpu_scratch *s, const void *job, uint32_t iu) {
    (void)s;
    const scale_args *a = job;
    uint64_t at = (uint64_t)iu * VALUES_UNIT, n = a->n - at < VALUES_UNIT ? a->n - at : VALUES_UNIT;
    c->f->scale(a->x + at, a->s[0], n);
}

static mica_status cpu_scale(dev *d, const scale_args *a, mica_error *err) {
    (void)err;
    uint32_t n_unit = (uint32_t)((a->n + VALUES_UNIT - 1) / VALUES_UNIT);
    cpu_run((cpu_dev *)d, a, &(cpu_phase){scale_unit, n_unit}, 1, n_unit < 8);
    return MICA_OK;
}

/* ---- opening ---------------------------------------------------------------------------------- */

static void cpu_close(dev *d) {
    cpu_dev *c = (cpu_dev *)d;
    pool_free(c->pool);
    mem_pages_free(c->block);
    mem_free(c);
}

static mica_status cpu_sync(dev *d, mica_error *err) {
    const char *bad = atomic_exchange(&((cpu_dev *)d)->not_finite, NULL);
    if (bad) return fail(err, MICA_E_DEVICE, "step: %s: a value is not finite", bad);
    return MICA_OK;
}

static const dev_ops g_cpu_ops = {
    .name = "cpu",
    .close = cpu_close,
    .alloc = host_alloc,
    .release = host_release,
    .bind = host_bind,
    .experts_bind = host_experts_bind,
    .experts_take = host_experts_take,
    .experts_fill = host_experts_fill,
    .experts_move = host_experts_move,
    .experts_moved = host_experts_moved,
    .experts_stats = host_experts_stats,
    .step_begin = host_step_begin,
    .step_end = host_step_end,
    .upload = host_upload,
    .download = host_download,
    .copy = host_copy,
    .zero = host_zero,
    .sync = cpu_sync,
    .embed = cpu_embed,
    .norm = cpu_norm,
    .add_norm = cpu_add_norm,
    .linear = cpu_linear,
    .rope_table = cpu_rope_table,
    .rope_kv = cpu_rope_kv,
    .attn = cpu_attn,
    .glu = cpu_glu,
    .router = cpu_router,
    .experts = cpu_experts,
    .softcap = cpu_softcap,
    .scale = cpu_scale,
    .quantise = cpu_quantise_rows,
    .conv = cpu_conv,
    .delta = cpu_delta,
    .gate_norm = cpu_gate_norm,
    .gated_add = cpu_gated_add,
    .group_norm = cpu_group_norm,
    .silu = cpu_silu,
    .spread = cpu_spread,
    .hyper_read = cpu_hyper_read,
    .hyper_write = cpu_hyper_write,
    .add = cpu_add,
    .index_keys = cpu_index_keys,
    .index_select = cpu_index_select,
    .ngram = cpu_ngram,
    .ngram_gate = cpu_ngram_gate,
};

/* Scratch is laid out twice by the same text: once over no memory to learn its size, once over the block. */
typedef struct layout {
    char *base; // NULL: only count
    size_t used;
} layout;

static void *take(layout *l, size_t n, size_t size_bytes) {
    void *p = l->base ? l->base + l->used : NULL;
    l->used += (n * size_bytes + 63) & ~(size_t)63;
    return p;
}
#define TAKE(l, p, n) ((p) = take(l, n, sizeof *(p)))

static void lay_act(layout *l, quant_act *a, size_t n_row, uint32_t n_col) {
    a->ld = ((n_col + 63u) & ~63u) | 64u; // as carve_act
    TAKE(l, a->x, n_row * a->ld);
    TAKE(l, a->q, n_row * a->ld);
    TAKE(l, a->d, n_row * a->ld / 32);
    TAKE(l, a->s, n_row * a->ld / 32);
    TAKE(l, a->s16, n_row * a->ld / 16);
}

static void lay_thread(layout *l, cpu_scratch *s, const cpu_dev *c) {
    const dev_limits *m = &c->limits;
    uint32_t lanes = attn_lanes(c->n_q_max);
    TAKE(l, s->tile, CPU_TILE);
    s->panel = take(l, quant_prompt_scratch_bytes(m->n_col > m->n_ff_expert ? m->n_col : m->n_ff_expert), 1);
    TAKE(l, s->row, m->n_expert);
    TAKE(l, s->attn.queries, attn_query_floats(c->n_q_max, m->d_head));
    TAKE(l, s->attn.m, lanes);
    TAKE(l, s->attn.l, lanes);
    TAKE(l, s->attn.o, (size_t)c->n_q_max * attn_ld(m->d_head));
    TAKE(l, s->attn.work, attn_work_floats(c->n_q_max, m->d_head));
    TAKE(l, s->q, c->n_q_max);
    TAKE(l, s->run_m, c->n_q_max);
    TAKE(l, s->run_l, c->n_q_max);
    TAKE(l, s->at, KV_PAGE + ATTN_PAD);
    TAKE(l, s->begin, c->n_q_max);
    TAKE(l, s->end, c->n_q_max);
}

static void lay_experts(layout *l, expert_room *r, const dev_limits *m) {
    if (m->n_expert == 0) return;
    size_t n_pair = (size_t)m->n_row * m->n_expert_used;
    size_t most = m->n_row > 128 ? m->n_row : 128;
    r->n_pair_max = (uint32_t)(n_pair < most ? n_pair : most);
    TAKE(l, r->order, n_pair);
    TAKE(l, r->slot, n_pair);
    TAKE(l, r->first, m->n_expert + 1);
    TAKE(l, r->touched, m->n_expert);
    lay_act(l, &r->in, r->n_pair_max, m->n_embd);
    lay_act(l, &r->hidden, r->n_pair_max, m->n_ff_expert);
    TAKE(l, r->out, n_pair * m->n_embd);
}

static void lay_index(layout *l, index_room *r, const cpu_dev *c) {
    uint32_t few = CPU_UNITS * c->n_thread;
    r->n_heap = c->limits.n_row > few ? c->limits.n_row : few;
    TAKE(l, r->best, (size_t)r->n_heap * c->limits.n_index_keep);
    TAKE(l, r->n, r->n_heap);
}

static void lay_all(layout *l, cpu_dev *c) {
    const dev_limits *m = &c->limits;
    TAKE(l, c->scratch, c->n_thread);
    cpu_scratch none = {0};
    for (uint32_t i = 0; i < c->n_thread; i++) lay_thread(l, l->base ? &c->scratch[i] : &none, c);
    TAKE(l, c->groups, m->n_row);
    TAKE(l, c->run_m, (size_t)m->n_row * m->n_head);
    TAKE(l, c->run_l, (size_t)m->n_row * m->n_head);
    TAKE(l, c->part, c->n_part);
    lay_experts(l, &c->room, m);
    lay_index(l, &c->index, c);
}

static const cpu_fns *fns_get(cpu_isa isa) {
#if defined(__x86_64__)
    if (isa == CPU_AVX512) return &cpu_fns_avx512;
    if (isa == CPU_AVX2) return &cpu_fns_avx2;
#endif
    (void)isa;
    return &cpu_fns_scalar;
}

/* Queries of an attention tile: what they need together stays within 128 KiB, a part of L2. */
static uint32_t tile_queries(const dev_limits *m) {
    uint32_t each = 2 * attn_ld(m->d_head) + KV_PAGE + ATTN_PAD, n = 32 * 1024 / each / 16 * 16;
    return n > ATTN_Q_MAX ? ATTN_Q_MAX : n < 16 ? 16 : n;
}

mica_status dev_cpu_open(dev **out, const dev_config *cfg, mica_error *err) {
    mica_status st = MICA_OK;
    *out = NULL;
    cpu_isa isa = cfg->isa < cpu_isa_best() ? cfg->isa : cpu_isa_best();
    cpu_dev *c = mem_alloc_aligned(64, sizeof *c);
    if (!c) return fail(err, MICA_E_NOMEM, "device cpu: out of memory");
    c->d.ops = &g_cpu_ops;
    c->q = quant_ops_get(isa);
    c->f = fns_get(isa);
    c->n_thread = (uint32_t)cfg->n_thread;
    c->limits = cfg->limits;
    c->experts = cfg->experts;
    c->routed = cfg->routed;
    c->routed_user = cfg->routed_user;
    c->n_q_max = tile_queries(&c->limits);
    c->n_part = CPU_PART_FLOATS;
    TRY_GOTO(pool_new(&c->pool, cfg->n_thread, err), done);

    layout l = {0};
    lay_all(&l, c);
    c->block = mem_pages_alloc(l.used);
    if (!c->block) {
        st = fail(err, MICA_E_NOMEM, "device cpu: scratch of %zu bytes: out of memory", l.used);
        goto done;
    }
    l = (layout){.base = c->block};
    lay_all(&l, c);
    cpu_topology top;
    cpu_topology_get(&top);
    snprintf(c->d.what, sizeof c->d.what, "%.120s, %s, %d thread%s", top.model, cpu_isa_name(isa),
             cfg->n_thread, cfg->n_thread == 1 ? "" : "s");
    *out = &c->d;
    c = NULL;
done:
    if (c) cpu_close(&c->d);
    return st;
}
