/* Attention over threads: the definition is ref_attn.c, the kernel cpu_attn_kern.h.
 *
 * Rows that share keys form groups; a group and a key/value head are an item, and the tile of its queries
 * walks the item's blocks in order, joining each to the running result. With many items that is all: an item
 * is a unit. With few (a decoded row), an item is cut by blocks, and by query heads when that is not enough.
 * Blocks then leave (m, l, o) in `part`, and after a barrier each cut item joins its blocks left to right:
 * the same operations, so the same bits. When a long context has more blocks than `part` holds, this is done
 * in rounds. */
#include "dev/cpu_int.h"

#include "base/exactf.h"

#include <string.h>

typedef struct attn_job {
    const attn_args *a;
    uint32_t n_split;        // parts that the query heads of a key/value head are cut into
    uint32_t n_q_cut;        // most queries of a cut item
    uint32_t block, n_block; // of this round: block .. block + n_block of every item
    bool last;               // this round reaches the end of every item
    bool quantise_here;      // a cut item's columns are whole blocks of 32
} attn_job;

/* Some query heads of one key/value head for one group of rows. */
typedef struct attn_item {
    const attn_group *g;
    uint32_t ih_kv, ih, n_head; // query heads [ih, ih + n_head)
} attn_item;

/* ---- rows into groups ------------------------------------------------------------------------- */

static const int32_t *selected(const attn_args *a, uint32_t ir) {
    const int32_t *sel = a->sel ? a->sel + (size_t)ir * a->ld_sel : NULL;
    return sel && sel[0] >= 0 ? sel : NULL;
}

static int32_t first_seen(const attn_args *a, int32_t pos) {
    return a->window && pos >= (int32_t)a->window ? pos - (int32_t)a->window + 1 : 0;
}

/* Runs of selected positions within one block. */
static uint32_t count_runs(const int32_t *sel) {
    uint32_t n = 0;
    for (int32_t i = 0; i < sel[0]; i++) n += i == 0 || sel[1 + i] / KV_PAGE != sel[i] / KV_PAGE;
    return n;
}

/* Parts that the query heads of a key/value head are cut into so that one row of a part fits a tile. */
static uint32_t least_split(const cpu_dev *c, uint32_t n_share) {
    uint32_t n = 1;
    while (n_share % n != 0 || n_share / n > c->n_q_max) n++;
    return n;
}

static uint32_t make_groups(cpu_dev *c, const attn_args *a, uint32_t most) {
    uint32_t n = 0;
    for (uint32_t ir = 0; ir < a->n_row; ir++) {
        const row_info *row = &a->rows[ir];
        const int32_t *sel = selected(a, ir);
        attn_group *g = n > 0 ? &c->groups[n - 1] : NULL;
        bool same = g && !sel && g->n_row < most && !selected(a, ir - 1) && row[-1].seq == row->seq &&
                    row[-1].pos + 1 == row->pos;
        if (!same) {
            g = &c->groups[n++];
            *g = (attn_group){.row = ir, .first = first_seen(a, row->pos)};
        }
        g->n_row++;
        g->last = row->pos;
        g->n_block = sel ? count_runs(sel) : (uint32_t)(g->last / KV_PAGE - g->first / KV_PAGE) + 1;
    }
    return n;
}

/* ---- one block of an item --------------------------------------------------------------------- */

/* The positions of block ib of the item, and what each query sees of them; the page they are in. */
static int32_t list_block(cpu_scratch *s, attn_block *b, const attn_args *a, const attn_item *it,
                          uint32_t ib) {
    const attn_group *g = it->g;
    const int32_t *sel = selected(a, g->row);
    int32_t from, to; // positions [from, to) of a block, or entries of the list
    if (sel) {
        for (from = to = 0; to < sel[0]; to++) {
            bool next = to > 0 && sel[1 + to] / KV_PAGE != sel[to] / KV_PAGE;
            if (next && ib-- == 0) break;
            if (next) from = to;
        }
    } else {
        int32_t start = (g->first / KV_PAGE + (int32_t)ib) * KV_PAGE;
        from = start > g->first ? start : g->first;
        to = start + KV_PAGE <= g->last ? start + KV_PAGE : g->last + 1;
    }
    b->n_at = (uint32_t)(to - from);
    for (uint32_t i = 0; i < b->n_at; i++)
        s->at[i] = (uint32_t)(sel ? sel[1 + from + (int32_t)i] : from + (int32_t)i) % KV_PAGE;
    for (uint32_t i = 0; i < ATTN_PAD; i++) s->at[b->n_at + i] = s->at[b->n_at - 1];
    for (uint32_t ir = 0, iq = 0; ir < g->n_row; ir++) {
        int32_t pos = a->rows[g->row + ir].pos, first = first_seen(a, pos);
        uint32_t begin = sel || first <= from ? 0 : (uint32_t)(first - from);
        uint32_t end = sel || pos >= to ? b->n_at : pos < from ? 0 : (uint32_t)(pos + 1 - from);
        for (uint32_t ih = 0; ih < it->n_head; ih++, iq++) {
            s->begin[iq] = begin;
            s->end[iq] = end;
        }
    }
    b->at = s->at;
    b->begin = s->begin;
    b->end = s->end;
    return kv_page_of(&a->pages, a->rows[g->row].seq, sel ? sel[1 + from] : from);
}

static void begin_item(cpu_dev *c, cpu_scratch *s, const attn_args *a, const attn_item *it) {
    attn_tile *t = &s->attn;
    t->n_q = it->g->n_row * it->n_head;
    t->d_k = a->d_k;
    t->d_v = a->d_v;
    t->ld_o = attn_ld(a->d_v);
    t->type = a->kv.type;
    t->scale = a->scale;
    for (uint32_t iq = 0; iq < t->n_q; iq++) {
        uint32_t ir = it->g->row + iq / it->n_head, ih = it->ih + iq % it->n_head;
        s->q[iq] = a->q + (size_t)ir * a->ld_q + (size_t)ih * a->head_ld_q;
    }
    t->q = s->q;
    c->f->attn_begin(t);
}

/* m, l and o of every query of the item that sees some of block ib. */
static void attend_block(cpu_dev *c, cpu_scratch *s, const attn_args *a, const attn_item *it, uint32_t ib) {
    attn_block b;
    int32_t page = list_block(s, &b, a, it, ib);
    size_t at = kv_at(page, a->n_head_kv, it->ih_kv, 0, 1), width = a->kv.type == KV_F32   ? 4
                                                                    : a->kv.type == KV_F16 ? 2
                                                                                           : 1;
    b.k = (const char *)a->kv.k + at * a->d_k * width;
    b.v = (const char *)a->kv.v + at * a->d_v * width;
    b.k_scale = a->kv.type == KV_I8 ? a->kv.k_scale + at : NULL;
    b.v_scale = a->kv.type == KV_I8 ? a->kv.v_scale + at : NULL;
    c->f->attn_block(&s->attn, &b);
}

/* ---- joining ---------------------------------------------------------------------------------- */

static float *output_of(const attn_args *a, const attn_item *it, uint32_t iq) {
    return act_x(&a->o, it->g->row + iq / it->n_head) + (size_t)(it->ih + iq % it->n_head) * a->d_v;
}

/* The softmax so far, and that of one more block. */
typedef struct running {
    float *m, *l, *o; // *l is 0 before the first block
} running;
typedef struct block_sums {
    float m, l;
    const float *o;
} block_sums;

static void join(const cpu_dev *c, running r, block_sums b, uint32_t n) {
    if (*r.l == 0.0f) {
        *r.m = b.m;
        *r.l = b.l;
        memcpy(r.o, b.o, n * sizeof(float));
        return;
    }
    float top = *r.m > b.m ? *r.m : b.m, x = exactf_exp(*r.m - top), y = exactf_exp(b.m - top);
    *r.m = top;
    *r.l = *r.l * x + b.l * y;
    c->f->attn_join(r.o, x, b.o, y, n);
}

static void end_item(cpu_dev *c, const attn_job *j, const attn_item *it, const float *l) {
    const attn_args *a = j->a;
    for (uint32_t iq = 0; iq < it->g->n_row * it->n_head; iq++) {
        uint32_t ir = it->g->row + iq / it->n_head, ih = it->ih + iq % it->n_head;
        const float *gate = a->gate ? a->gate + (size_t)ir * a->ld_q + (size_t)ih * a->head_ld_q : NULL;
        c->f->attn_end(output_of(a, it, iq), 1.0f / l[iq], gate, a->d_v);
    }
    if (a->want_q && j->quantise_here) {
        act_part p = {it->g->row, it->g->n_row, it->ih * a->d_v, it->n_head * a->d_v};
        cpu_quantise(c, &a->o, p, "attention");
    }
}

/* ---- whole items ------------------------------------------------------------------------------ */

static attn_item item_at(const cpu_dev *c, const attn_job *j, uint32_t i) {
    const attn_args *a = j->a;
    uint32_t n_head = a->n_head / a->n_head_kv / j->n_split, n_part = a->n_head_kv * j->n_split;
    return (attn_item){&c->groups[i / n_part], i % n_part / j->n_split, i % n_part * n_head, n_head};
}

static void whole_unit(cpu_dev *c, cpu_scratch *s, const void *job, uint32_t iu) {
    const attn_job *j = job;
    const attn_args *a = j->a;
    attn_item it = item_at(c, j, iu);
    begin_item(c, s, a, &it);
    memset(s->run_l, 0, s->attn.n_q * sizeof(float));
    for (uint32_t ib = 0; ib < it.g->n_block; ib++) {
        attend_block(c, s, a, &it, ib);
        for (uint32_t iq = 0; iq < s->attn.n_q; iq++) {
            if (s->begin[iq] >= s->end[iq]) continue;
            running r = {&s->run_m[iq], &s->run_l[iq], output_of(a, &it, iq)};
            block_sums b = {s->attn.m[iq], s->attn.l[iq], s->attn.o + (size_t)iq * s->attn.ld_o};
            join(c, r, b, a->d_v);
        }
    }
    end_item(c, j, &it, s->run_l);
}

/* ---- cut items -------------------------------------------------------------------------------- */

/* Results of cut item i and the k-th block of the round: [n_q_cut, 2 + ld_o], m and l before o. */
static float *part_of(const cpu_dev *c, const attn_job *j, uint32_t i, uint32_t k) {
    return c->part + ((size_t)i * j->n_block + k) * j->n_q_cut * (2 + attn_ld(j->a->d_v));
}

static void cut_unit(cpu_dev *c, cpu_scratch *s, const void *job, uint32_t iu) {
    const attn_job *j = job;
    uint32_t i = iu / j->n_block, k = iu % j->n_block, ld = 2 + attn_ld(j->a->d_v);
    attn_item it = item_at(c, j, i);
    if (j->block + k >= it.g->n_block) return;
    begin_item(c, s, j->a, &it);
    attend_block(c, s, j->a, &it, j->block + k);
    for (uint32_t iq = 0; iq < s->attn.n_q; iq++) {
        float *p = part_of(c, j, i, k) + (size_t)iq * ld;
        bool sees = s->begin[iq] < s->end[iq];
        p[0] = sees ? s->attn.m[iq] : 0.0f;
        p[1] = sees ? s->attn.l[iq] : 0.0f;
        if (sees) memcpy(p + 2, s->attn.o + (size_t)iq * s->attn.ld_o, j->a->d_v * sizeof(float));
    }
}

static void join_unit(cpu_dev *c, cpu_scratch *s, const void *job, uint32_t i) {
    const attn_job *j = job;
    const attn_args *a = j->a;
    attn_item it = item_at(c, j, i);
    uint32_t n_q = it.g->n_row * it.n_head, ld = 2 + attn_ld(a->d_v);
    for (uint32_t iq = 0; iq < n_q; iq++) {
        size_t at = (size_t)(it.g->row + iq / it.n_head) * a->n_head + it.ih + iq % it.n_head;
        running r = {&c->run_m[at], &c->run_l[at], output_of(a, &it, iq)};
        if (j->block == 0) *r.l = 0.0f;
        for (uint32_t k = 0; k < j->n_block && j->block + k < it.g->n_block; k++) {
            const float *p = part_of(c, j, i, k) + (size_t)iq * ld;
            if (p[1] != 0.0f) join(c, r, (block_sums){p[0], p[1], p + 2}, a->d_v);
        }
        s->run_l[iq] = c->run_l[at];
    }
    if (j->last) end_item(c, j, &it, s->run_l);
}

/* ---- the call --------------------------------------------------------------------------------- */

static void quantise_unit(cpu_dev *c, cpu_scratch *s, const void *job, uint32_t ir) {
    (void)s;
    const attn_args *a = ((const attn_job *)job)->a;
    cpu_quantise(c, &a->o, (act_part){ir, 1, 0, a->n_head * a->d_v}, "attention");
}

static void run_cut(cpu_dev *c, attn_job *j, uint32_t n_item, uint32_t n_block) {
    const attn_args *a = j->a;
    size_t each = (size_t)n_item * j->n_q_cut * (2 + attn_ld(a->d_v));
    uint32_t fit = (uint32_t)(c->n_part / each);
    for (j->block = 0; j->block < n_block; j->block += j->n_block) {
        j->n_block = n_block - j->block < fit ? n_block - j->block : fit;
        j->last = j->block + j->n_block == n_block;
        cpu_phase ph[3] = {{cut_unit, n_item * j->n_block}, {join_unit, n_item}, {quantise_unit, a->n_row}};
        cpu_run(c, j, ph, j->last && a->want_q && !j->quantise_here ? 3 : 2, false);
    }
}

enum { ALONE_MACS = 64 * 1024 }; // multiply-adds that one thread does in less time than two meet in

mica_status cpu_attn(dev *d, const attn_args *a, mica_error *err) {
    (void)err;
    cpu_dev *c = (cpu_dev *)d;
    uint32_t n_share = a->n_head / a->n_head_kv, few = CPU_UNITS * c->n_thread, n_block = 0, n_row = 0;
    attn_job j = {.a = a, .n_split = least_split(c, n_share)};
    uint32_t n_group = make_groups(c, a, c->n_q_max / (n_share / j.n_split)), n_part = n_group * a->n_head_kv;
    uint64_t n_mac = 0;
    for (uint32_t i = 0; i < n_group; i++) {
        const attn_group *g = &c->groups[i];
        n_mac += (uint64_t)(g->last - g->first + 1) * g->n_row * a->n_head * (a->d_k + a->d_v);
        n_block = g->n_block > n_block ? g->n_block : n_block;
        n_row = g->n_row > n_row ? g->n_row : n_row;
    }
    if (n_part == 0) return MICA_OK;
    bool alone = n_mac <= ALONE_MACS || c->n_thread == 1, cut = !alone && n_part * j.n_split < few;
    if (cut && n_part * j.n_split * n_block < few) j.n_split = n_share;
    j.n_q_cut = n_row * (n_share / j.n_split);
    cut = cut && (size_t)n_part * j.n_split * j.n_q_cut * (2 + attn_ld(a->d_v)) <= c->n_part;
    j.quantise_here = n_share / j.n_split * a->d_v % 32 == 0;
    if (cut) {
        run_cut(c, &j, n_part * j.n_split, n_block);
        return MICA_OK;
    }
    cpu_phase ph[2] = {{whole_unit, n_part * j.n_split}, {quantise_unit, a->n_row}};
    cpu_run(c, &j, ph, a->want_q && !j.quantise_here ? 2 : 1, alone);
    return MICA_OK;
}
