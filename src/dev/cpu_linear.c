/* Products of one input with several weights, one parallel region for all of them.
 *
 * A unit is a tile of weight rows of one output, against every row of the batch: weights are read from memory
 * once. Tiles are 64 rows for the prompt role (what the kernel unpacks at a time) and as tall as a thread's
 * fair share allows for the token role, where a call costs more than a row. A prompt against few weight rows
 * is cut along its rows too. A plain product is written where it belongs; one that is scaled, biased or added
 * goes through the thread's tile first. */
#include "dev/cpu_int.h"

typedef struct linear_job {
    const linear_args *a;
    uint32_t tile;                      // weight rows of a unit
    uint32_t n_part;                    // parts that the prompt rows are cut into
    uint32_t first[LINEAR_OUT_MAX + 1]; // first unit of each output
} linear_job;

void cpu_product_token(cpu_dev *c, const cpu_product *p) {
    const weight_ref *w = p->w;
    size_t row_bytes = weight_row_bytes(w);
    const char *row = (const char *)w->w + p->row * row_bytes;
    for (uint32_t ia = 0; ia < p->n_act; ia += QUANT_TOKEN_ROWS_MAX) {
        uint32_t n = p->n_act - ia < QUANT_TOKEN_ROWS_MAX ? p->n_act - ia : QUANT_TOKEN_ROWS_MAX;
        c->q->token[w->type](p->y + ia * p->ld_y, p->ld_y, row, row_bytes, p->a, p->act + ia, n, p->n_row,
                             w->n_col);
    }
}

void cpu_product_prompt(cpu_dev *c, cpu_scratch *s, const cpu_product *p) {
    const weight_ref *w = p->w;
    size_t row_bytes = weight_row_bytes(w);
    const char *row = (const char *)w->w + p->row * row_bytes;
    c->q->prompt[w->type](p->y, p->ld_y, row, row_bytes, p->a, p->act, p->n_act, p->n_row, w->n_col,
                          s->panel);
}

/* Weight rows [row, row + n_row) of output o against act rows [act, act + n_act) of one role. */
typedef struct linear_span {
    const linear_out *o;
    const quant_act *a;
    uint32_t row, n_row, act, n_act;
    bool prompt;
} linear_span;

static void linear_span_run(cpu_dev *c, cpu_scratch *s, const linear_span *g) {
    const linear_out *o = g->o;
    bool plain = !o->add && !o->w.bias && !o->w.scale;
    uint32_t step = CPU_TILE / g->n_row;
    if (!g->prompt && step > QUANT_TOKEN_ROWS_MAX) step = QUANT_TOKEN_ROWS_MAX;
    if (plain) step = g->n_act;
    for (uint32_t ia = 0; ia < g->n_act; ia += step) {
        float *y = o->y + (size_t)(g->act + ia) * o->ld_y + g->row;
        cpu_product p = {plain ? y : s->tile,
                         plain ? o->ld_y : g->n_row,
                         &o->w,
                         g->a,
                         g->row,
                         g->n_row,
                         g->act + ia,
                         g->n_act - ia < step ? g->n_act - ia : step};
        if (g->prompt)
            cpu_product_prompt(c, s, &p);
        else
            cpu_product_token(c, &p);
        for (uint32_t i = 0; i < p.n_act && !plain; i++) {
            c->f->finish(y + (size_t)i * o->ld_y, s->tile + (size_t)i * g->n_row, o->w.scale,
                         o->w.bias ? o->w.bias + g->row : NULL, g->n_row, o->add);
        }
    }
}

static void linear_unit(cpu_dev *c, cpu_scratch *s, const void *job, uint32_t iu) {
    const linear_job *j = job;
    const linear_args *a = j->a;
    uint32_t k = 0, b, e;
    while (iu >= j->first[k + 1]) k++;
    uint32_t part = (iu - j->first[k]) % j->n_part, row = (iu - j->first[k]) / j->n_part * j->tile;
    linear_span g = {.o = &a->out[k], .a = &a->a, .row = row};
    g.n_row = g.o->w.n_row - row < j->tile ? g.o->w.n_row - row : j->tile;
    cpu_range(&b, &e, a->n_prompt, part, j->n_part);
    if (b < e) {
        g.prompt = true;
        g.act = b;
        g.n_act = e - b;
        linear_span_run(c, s, &g);
    }
    if (part == 0 && a->n_prompt < a->n_row) {
        g.prompt = false;
        g.act = a->n_prompt;
        g.n_act = a->n_row - a->n_prompt;
        linear_span_run(c, s, &g);
    }
}

enum { ALONE_BYTES = 16 * 1024, TOKEN_TILE_STEP = 16 };

/* Rows of a unit. The tile of products must hold QUANT_TOKEN_ROWS_MAX of them. */
static uint32_t tile_rows(const cpu_dev *c, const linear_args *a, uint32_t n_out_row) {
    if (a->n_prompt > 0) return CPU_PANEL_ROWS;
    uint32_t most = CPU_TILE / QUANT_TOKEN_ROWS_MAX, n_unit = CPU_UNITS * c->n_thread;
    uint32_t tile = (n_out_row / n_unit + TOKEN_TILE_STEP) / TOKEN_TILE_STEP * TOKEN_TILE_STEP;
    return tile < most ? tile : most;
}

mica_status cpu_linear(dev *d, const linear_args *a, mica_error *err) {
    (void)err;
    cpu_dev *c = (cpu_dev *)d;
    linear_job j = {.a = a, .n_part = 1};
    uint32_t n_out_row = 0;
    uint64_t n_bytes = 0;
    for (uint32_t k = 0; k < a->n_out; k++) {
        n_out_row += a->out[k].w.n_row;
        n_bytes += a->out[k].w.n_row * weight_row_bytes(&a->out[k].w);
    }
    j.tile = tile_rows(c, a, n_out_row);
    uint32_t n_tile = n_out_row / j.tile + a->n_out;
    while (n_tile * j.n_part < 2 * CPU_UNITS * c->n_thread && a->n_prompt / (j.n_part + 1) >= 96) j.n_part++;
    for (uint32_t k = 0; k < a->n_out; k++) {
        j.first[k + 1] = j.first[k] + (a->out[k].w.n_row + j.tile - 1) / j.tile * j.n_part;
    }
    if (a->n_row > 0)
        cpu_run(c, &j, &(cpu_phase){linear_unit, j.first[a->n_out]}, 1, n_bytes * a->n_row <= ALONE_BYTES);
    return MICA_OK;
}
