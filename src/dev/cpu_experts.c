/* Mixtures of experts over threads: the definition is ref_experts in dev_ref.c.
 *
 * The pairs (row, chosen expert) of a call are sorted by expert, so that an expert's bytes are read once for
 * all its rows. Experts are leased in batches; a batch is one parallel region: gather  rows that an expert's
 * pairs take from here and there, side by side (not when they already are) hidden  tiles of act(gate a) * up
 * a, quantised as they are made down    tiles of down(hidden), one result row a pair sum     in the last
 * batch: every row adds its experts in router order Results of all pairs are kept until the sum, because the
 * order of adding is the router's and not the expert's number. */
#include "dev/cpu_int.h"

#include <string.h>

typedef struct expert_job {
    const experts_args *a;
    uint32_t expert, n_expert; // touched experts [expert, expert + n_expert) are this batch
    uint32_t pair;             // first pair of the batch, in the sorted order
    uint32_t tile_ff, tile_embd, n_tile_ff, n_tile_embd;
    bool want_x, want_q, hidden_q; // what the products read
} expert_job;

/* The pairs of one expert, relative to the batch, and where their activations are. */
typedef struct expert_span {
    uint32_t id, pair, n, n_prompt;
    const expert_lease *lease;
    const quant_act *in;
    uint32_t act; // first row in `in`
} expert_span;

/* ---- which pairs ------------------------------------------------------------------------------ */

/* Counting sort by expert; rows stay in order, so prompt rows come first. Returns the number of experts
 * touched. */
static uint32_t sort_pairs(expert_room *r, const experts_args *a) {
    uint32_t n_pair = a->n_row * a->n_used, n = 0, sum = 0;
    memset(r->first, 0, (a->n_expert + 1) * sizeof *r->first);
    for (uint32_t i = 0; i < n_pair; i++) r->first[a->ids[i]]++;
    for (uint32_t e = 0; e <= a->n_expert; e++) {
        uint32_t count = r->first[e];
        if (count > 0) r->touched[n++] = (int32_t)e;
        r->first[e] = sum;
        sum += count;
    }
    for (uint32_t i = 0; i < n_pair; i++) {
        uint32_t at = r->first[a->ids[i]]++;
        r->order[at] = i;
        r->slot[i] = at;
    }
    for (uint32_t e = a->n_expert; e > 0; e--) r->first[e] = r->first[e - 1];
    r->first[0] = 0;
    return n;
}

static expert_span span_of(const cpu_dev *c, const expert_job *j, uint32_t k) {
    const expert_room *r = &c->room;
    const experts_args *a = j->a;
    uint32_t id = (uint32_t)r->touched[j->expert + k], first = r->first[id], n = r->first[id + 1] - first;
    expert_span s = {.id = id, .pair = first - j->pair, .n = n, .lease = &r->leases[k], .in = &r->in};
    while (s.n_prompt < n && r->order[first + s.n_prompt] / a->n_used < a->n_prompt) s.n_prompt++;
    uint32_t row = r->order[first] / a->n_used, last = r->order[first + n - 1] / a->n_used;
    bool side_by_side = last - row + 1 == n;
    s.act = side_by_side ? row : s.pair;
    if (side_by_side) s.in = &a->a;
    return s;
}

/* ---- phases ----------------------------------------------------------------------------------- */

static void copy_row(const expert_job *j, const quant_act *to, uint32_t it, const quant_act *from,
                     uint32_t row) {
    size_t n = j->a->gate.n_col, t = (size_t)it * to->ld, f = (size_t)row * from->ld;
    if (j->want_x) memcpy(to->x + t, from->x + f, n * sizeof(float));
    if (!j->want_q) return;
    memcpy(to->q + t, from->q + f, n);
    memcpy(to->d + t / 32, from->d + f / 32, n / 32 * sizeof(float));
    memcpy(to->s + t / 32, from->s + f / 32, n / 32 * sizeof(float));
    memcpy(to->s16 + t / 16, from->s16 + f / 16, n / 16 * sizeof(float));
}

static void gather_unit(cpu_dev *c, cpu_scratch *s, const void *job, uint32_t k) {
    (void)s;
    const expert_job *j = job;
    expert_span e = span_of(c, j, k);
    if (e.in != &c->room.in) return;
    for (uint32_t i = 0; i < e.n; i++) {
        copy_row(j, e.in, e.pair + i, &j->a->a, c->room.order[j->pair + e.pair + i] / j->a->n_used);
    }
}

/* One role's pairs [i, i + n) of an expert against the columns of one tile of its hidden row. */
static void hidden_some(cpu_dev *c, cpu_scratch *s, const expert_job *j, const expert_span *e,
                        const cpu_product *at) {
    const experts_args *a = j->a;
    const quant_act *h = &c->room.hidden;
    float *gate = s->tile, *up = s->tile + CPU_TILE / 2;
    weight_ref wg = a->gate, wu = a->up;
    wg.w = e->lease->gate;
    wu.w = e->lease->up;
    bool prompt = at->act < e->n_prompt;
    uint32_t step = CPU_TILE / 2 / at->n_row, end = at->act + at->n_act;
    if (!prompt && step > QUANT_TOKEN_ROWS_MAX) step = QUANT_TOKEN_ROWS_MAX;
    for (uint32_t i = at->act; i < end; i += step) {
        uint32_t n = end - i < step ? end - i : step;
        cpu_product pg = {gate, at->n_row, &wg, e->in, at->row, at->n_row, e->act + i, n};
        cpu_product pu = {up, at->n_row, &wu, e->in, at->row, at->n_row, e->act + i, n};
        if (prompt) {
            cpu_product_prompt(c, s, &pg);
            cpu_product_prompt(c, s, &pu);
        } else {
            cpu_product_token(c, &pg);
            cpu_product_token(c, &pu);
        }
        if (wg.scale) c->f->scale(gate, wg.scale[e->id], (size_t)n * at->n_row);
        if (wu.scale) c->f->scale(up, wu.scale[e->id], (size_t)n * at->n_row);
        for (uint32_t k = 0; k < n; k++) {
            size_t from = (size_t)k * at->n_row;
            c->f->glu(act_x(h, e->pair + i + k) + at->row, gate + from, up + from, at->n_row, a->kind);
        }
        if (j->hidden_q) cpu_quantise(c, h, (act_part){e->pair + i, n, at->row, at->n_row}, "expert");
    }
}

static void hidden_unit(cpu_dev *c, cpu_scratch *s, const void *job, uint32_t iu) {
    const expert_job *j = job;
    expert_span e = span_of(c, j, iu / j->n_tile_ff);
    uint32_t row = iu % j->n_tile_ff * j->tile_ff, n_ff = j->a->gate.n_row;
    cpu_product at = {
        .row = row, .n_row = n_ff - row < j->tile_ff ? n_ff - row : j->tile_ff, .n_act = e.n_prompt};
    hidden_some(c, s, j, &e, &at);
    at.act = e.n_prompt;
    at.n_act = e.n - e.n_prompt;
    hidden_some(c, s, j, &e, &at);
}

static void down_unit(cpu_dev *c, cpu_scratch *s, const void *job, uint32_t iu) {
    const expert_job *j = job;
    const experts_args *a = j->a;
    expert_span e = span_of(c, j, iu / j->n_tile_embd);
    uint32_t row = iu % j->n_tile_embd * j->tile_embd, n_embd = a->down.n_row;
    weight_ref w = a->down;
    w.w = e.lease->down;
    float *y = c->room.out + (size_t)(j->pair + e.pair) * n_embd + row;
    cpu_product p = {y,      n_embd,
                     &w,     &c->room.hidden,
                     row,    n_embd - row < j->tile_embd ? n_embd - row : j->tile_embd,
                     e.pair, e.n_prompt};
    if (p.n_act > 0) cpu_product_prompt(c, s, &p);
    p.y += (size_t)e.n_prompt * n_embd;
    p.act += e.n_prompt;
    p.n_act = e.n - e.n_prompt;
    cpu_product_token(c, &p);
    for (uint32_t i = 0; w.scale && i < e.n; i++) c->f->scale(y + (size_t)i * n_embd, w.scale[e.id], p.n_row);
}

enum { SUM_COLS = 1024 };

static void sum_unit(cpu_dev *c, cpu_scratch *s, const void *job, uint32_t iu) {
    const experts_args *a = ((const expert_job *)job)->a;
    uint32_t n_embd = a->down.n_row, n_part = (n_embd + SUM_COLS - 1) / SUM_COLS, ir = iu / n_part;
    uint32_t col = iu % n_part * SUM_COLS, n = n_embd - col < SUM_COLS ? n_embd - col : SUM_COLS;
    float *y = a->y + (size_t)ir * n_embd + col, *sum = s->tile;
    memset(sum, 0, n * sizeof(float));
    for (uint32_t k = 0; k < a->n_used; k++) {
        size_t at = (size_t)ir * a->n_used + k;
        c->f->axpy(sum, a->weights[at], c->room.out + (size_t)c->room.slot[at] * n_embd + col, n);
    }
    c->f->finish(y, sum, NULL, NULL, n, a->add);
}

/* ---- the call --------------------------------------------------------------------------------- */

/* Leases experts from j->expert on: as many as fit, and at least one, else the error of the source. A source
 * that gives some but no more is short of slots; the batch is then what it gave. */
static mica_status acquire_batch(cpu_dev *c, expert_job *j, uint32_t n_touched, mica_error *err) {
    expert_room *r = &c->room;
    uint32_t n_pair = 0;
    for (j->n_expert = 0; j->n_expert < CPU_LEASES_MAX && j->expert + j->n_expert < n_touched;
         j->n_expert++) {
        uint32_t id = (uint32_t)r->touched[j->expert + j->n_expert], n = r->first[id + 1] - r->first[id];
        if (j->n_expert > 0 && n_pair + n > r->n_pair_max) break;
        mica_status st = c->experts->acquire(c->experts, j->a->layer, id, &r->leases[j->n_expert], err);
        if (st != MICA_OK && j->n_expert == 0) return st;
        if (st != MICA_OK) break;
        n_pair += n;
    }
    j->pair = r->first[r->touched[j->expert]];
    return MICA_OK;
}

/* Rows of a tile so that every thread finds CPU_UNITS of them; a multiple of 64 for blocks and panels, at
 * most `most`. */
static uint32_t tile_of(const cpu_dev *c, uint32_t n_expert, uint32_t n_row, uint32_t most) {
    uint32_t tile =
        (n_expert * n_row / (CPU_UNITS * c->n_thread) + CPU_PANEL_ROWS) / CPU_PANEL_ROWS * CPU_PANEL_ROWS;
    return tile < most ? tile : most;
}

static void run_batch(cpu_dev *c, expert_job *j, bool last) {
    const experts_args *a = j->a;
    bool prompt = a->n_prompt > 0;
    uint32_t most = prompt ? CPU_PANEL_ROWS : CPU_TILE / 2 / QUANT_TOKEN_ROWS_MAX;
    j->tile_ff = tile_of(c, j->n_expert, a->gate.n_row, most);
    j->tile_embd = tile_of(c, j->n_expert, a->down.n_row, prompt ? CPU_PANEL_ROWS : UINT32_MAX);
    j->n_tile_ff = (a->gate.n_row + j->tile_ff - 1) / j->tile_ff;
    j->n_tile_embd = (a->down.n_row + j->tile_embd - 1) / j->tile_embd;
    bool gather = false;
    for (uint32_t k = 0; k < j->n_expert; k++) gather |= span_of(c, j, k).in == &c->room.in;
    cpu_phase ph[CPU_PHASES_MAX];
    uint32_t n = 0;
    if (gather) ph[n++] = (cpu_phase){gather_unit, j->n_expert};
    ph[n++] = (cpu_phase){hidden_unit, j->n_expert * j->n_tile_ff};
    ph[n++] = (cpu_phase){down_unit, j->n_expert * j->n_tile_embd};
    if (last) ph[n++] = (cpu_phase){sum_unit, a->n_row * ((a->down.n_row + SUM_COLS - 1) / SUM_COLS)};
    cpu_run(c, j, ph, n, false);
}

static bool is_quantised(const weight_ref *w) {
    return gguf_type_get(w->type)->cls == GGUF_CLASS_QUANT;
}

mica_status cpu_experts(dev *d, const experts_args *a, mica_error *err) {
    cpu_dev *c = (cpu_dev *)d;
    if (a->n_row == 0) return MICA_OK;
    expert_job j = {.a = a, .hidden_q = is_quantised(&a->down)};
    j.want_q = is_quantised(&a->gate) || is_quantised(&a->up);
    j.want_x = !is_quantised(&a->gate) || !is_quantised(&a->up);
    uint32_t n_touched = sort_pairs(&c->room, a);
    if (c->routed) c->routed(c->routed_user, a->layer, a->ids, a->n_row * a->n_used);
    if (c->experts->will_need) c->experts->will_need(c->experts, a->layer, c->room.touched, n_touched);
    for (; j.expert < n_touched; j.expert += j.n_expert) {
        TRY(acquire_batch(c, &j, n_touched, err));
        run_batch(c, &j, j.expert + j.n_expert == n_touched);
        for (uint32_t k = 0; k < j.n_expert; k++) c->experts->release(c->experts, &c->room.leases[k]);
    }
    return MICA_OK;
}
