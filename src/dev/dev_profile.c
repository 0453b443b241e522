/* A copy of the device's table whose operations look at the clock around the device's own. An operation that
 * the list below does not name stays the device's own and is not timed. */
#include "dev/dev_profile.h"
#include "dev/dev_int.h"

#include "base/clock.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* X(operation, what its work is counted by). */
#define PROFILE_OPS(X)                                                                                       \
    X(embed, work_none)                                                                                      \
    X(norm, work_none)                                                                                       \
    X(quantise, work_none) X(add_norm, work_none) X(rope_table, work_none) X(rope_kv, work_none)             \
        X(glu, work_none) X(router, work_none) X(conv, work_none) X(gate_norm, work_none)                    \
            X(gated_add, work_none) X(group_norm, work_none) X(silu, work_none) X(spread, work_none)         \
                X(hyper_read, work_none) X(hyper_write, work_none) X(index_keys, work_none)                  \
                    X(index_select, work_none) X(ngram, work_none) X(ngram_gate, work_none)                  \
                        X(add, work_none) X(softcap, work_none) X(scale, work_none) X(linear, work_linear)   \
                            X(experts, work_experts) X(attn, work_attn) X(delta, work_delta)

struct dev_profile {
    dev_ops ops; // first: the device's ops point here
    const dev_ops *real;
    dev *d; // borrowed
    uint64_t step_start, step_ns;
    uint32_t n_row;
    dev_profile_row rows[DEV_PROFILE_MAX];
};

static dev_profile *profile_of(const dev *d) {
    return (dev_profile *)(uintptr_t)d->ops;
}

/* What a call needs, from its arguments. */
typedef struct work {
    char what[sizeof((dev_profile_row *)0)->what];
    uint64_t bytes, ops;
} work;

/* ---- work of the operations that are bound by something -------------------------------------------- */

static void work_none(work *k, const void *args) {
    (void)k, (void)args;
}

static uint64_t weight_bytes(const weight_ref *w) {
    return w->n_row * (uint64_t)weight_row_bytes(w);
}

static void work_linear(work *k, const linear_args *a) {
    uint64_t n_out = 0;
    for (uint32_t i = 0; i < a->n_out; i++) {
        const weight_ref *w = &a->out[i].w;
        n_out += w->n_row;
        k->bytes += weight_bytes(w);
        k->ops += 2ull * w->n_row * w->n_col * a->n_row;
    }
    const weight_ref *w = &a->out[0].w;
    snprintf(k->what, sizeof k->what, "linear %s %u x %llu", gguf_type_get(w->type)->name, w->n_col,
             (unsigned long long)n_out);
}

enum { EXPERT_IDS = 4096 };

/* Experts that any row chose are read once. */
static void work_experts(work *k, const experts_args *a) {
    uint64_t one = weight_bytes(&a->gate) + weight_bytes(&a->up) + weight_bytes(&a->down), n_touched = 0;
    uint64_t seen[EXPERT_IDS / 64] = {0};
    uint32_t n_pair = a->n_row * a->n_used;
    for (uint32_t i = 0; i < n_pair; i++) {
        uint32_t id = (uint32_t)a->ids[i] % EXPERT_IDS;
        n_touched += !(seen[id / 64] >> id % 64 & 1);
        seen[id / 64] |= 1ull << id % 64;
    }
    k->bytes = one * n_touched;
    k->ops = 6ull * a->gate.n_row * a->gate.n_col * n_pair;
    snprintf(k->what, sizeof k->what, "experts %s %u x %u", gguf_type_get(a->gate.type)->name, a->gate.n_col,
             a->gate.n_row);
}

static uint64_t positions_seen(const attn_args *a, uint32_t ir) {
    const int32_t *sel = a->sel ? a->sel + (size_t)ir * a->ld_sel : NULL;
    uint64_t n = (uint64_t)a->rows[ir].pos + 1;
    if (sel && sel[0] >= 0) return (uint64_t)sel[0];
    return a->window && n > a->window ? a->window : n;
}

/* Keys and values of a sequence are read once for all of its rows. */
static void work_attn(work *k, const attn_args *a) {
    uint64_t each = a->kv.type == KV_F16 ? 2 : a->kv.type == KV_F32 ? 4 : 1, most = 0;
    for (uint32_t ir = 0; ir < a->n_row; ir++) {
        uint64_t n = positions_seen(a, ir);
        most = n > most ? n : most;
        k->ops += 2 * n * a->n_head * (a->d_k + a->d_v);
        if (ir + 1 == a->n_row || a->rows[ir + 1].seq != a->rows[ir].seq) {
            k->bytes += most * a->n_head_kv * (a->d_k + a->d_v) * each;
            most = 0;
        }
    }
    snprintf(k->what, sizeof k->what, a->window ? "attn window %u" : "attn", a->window);
}

/* The state is read and written once a run. */
static void work_delta(work *k, const delta_args *a) {
    uint64_t state = (uint64_t)a->n_v * a->d_k * a->d_v;
    k->bytes = 8 * state * a->n_run;
    k->ops = 7 * state * a->n_row;
}

/* ---- the table -------------------------------------------------------------------------------------- */

static bool same_row(const dev_profile_row *r, const char *what) {
    return strcmp(r->what, what) == 0;
}

/* Kinds beyond the table count as the operation's own. */
static void note(dev_profile *p, const char *op, const work *k, uint64_t ns) {
    const char *what = k->what[0] ? k->what : op;
    uint32_t i = 0;
    while (i < p->n_row && !same_row(&p->rows[i], what)) i++;
    if (i == DEV_PROFILE_MAX) {
        for (i = 0; i + 1 < p->n_row && !same_row(&p->rows[i], op);) i++; // the last one when there is none
    } else if (i == p->n_row) {
        p->n_row++;
        snprintf(p->rows[i].what, sizeof p->rows[i].what, "%s", what);
    }
    dev_profile_row *r = &p->rows[i];
    r->n_call++;
    r->ns += ns;
    r->bytes += k->bytes;
    r->ops += k->ops;
}

#define PROFILE_FN(op, count)                                                                                \
    static mica_status profile_##op(dev *d, const op##_args *a, mica_error *err) {                           \
        dev_profile *p = profile_of(d);                                                                      \
        work k = {0};                                                                                        \
        uint64_t start = clock_ns();                                                                         \
        mica_status st = p->real->op(d, a, err);                                                             \
        uint64_t ns = clock_ns() - start;                                                                    \
        count(&k, a);                                                                                        \
        note(p, #op, &k, ns);                                                                                \
        return st;                                                                                           \
    }
PROFILE_OPS(PROFILE_FN)

static mica_status profile_step_begin(dev *d, const dev_step *s, bool *done, mica_error *err) {
    dev_profile *p = profile_of(d);
    p->step_start = clock_ns();
    return p->real->step_begin(d, s, done, err);
}

static mica_status profile_step_end(dev *d, bool ok, mica_error *err) {
    dev_profile *p = profile_of(d);
    mica_status st = p->real->step_end(d, ok, err);
    p->step_ns += clock_ns() - p->step_start;
    return st;
}

mica_status dev_profile_start(dev_profile **out, dev *d, mica_error *err) {
    *out = NULL;
    if (strcmp(d->ops->name, "cpu") != 0 && strcmp(d->ops->name, "ref") != 0)
        return fail(err, MICA_E_ARG, "profile: %s: only devices in host memory are timed call by call",
                    d->what);
    dev_profile *p = mem_calloc(1, sizeof *p);
    if (!p) return fail(err, MICA_E_NOMEM, "profile: out of memory");
    p->real = d->ops;
    p->d = d;
    p->ops = *d->ops;
#define PROFILE_ENTRY(op, count) p->ops.op = profile_##op;
    PROFILE_OPS(PROFILE_ENTRY)
    p->ops.step_begin = profile_step_begin;
    p->ops.step_end = profile_step_end;
    d->ops = &p->ops;
    *out = p;
    return MICA_OK;
}

void dev_profile_stop(dev_profile *p) {
    if (!p) return;
    p->d->ops = p->real;
    mem_free(p);
}

void dev_profile_clear(dev_profile *p) {
    p->n_row = 0;
    p->step_ns = 0;
    memset(p->rows, 0, sizeof p->rows);
}

static int by_time(const void *a, const void *b) {
    const dev_profile_row *x = a, *y = b;
    return (x->ns < y->ns) - (x->ns > y->ns);
}

uint32_t dev_profile_rows(const dev_profile *p, dev_profile_row out[DEV_PROFILE_MAX]) {
    memcpy(out, p->rows, p->n_row * sizeof *out);
    qsort(out, p->n_row, sizeof *out, by_time);
    return p->n_row;
}

uint64_t dev_profile_step_ns(const dev_profile *p) {
    return p->step_ns;
}
