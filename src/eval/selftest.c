/* Random weights and activations through each type's kernels of the best instruction set and through the
 * definition. A weight row is made of random bytes whose scales are then put in a sane range, by decoding it
 * and drawing again while a value is not finite or huge: every bit pattern of the codes is met. */
#include "eval/selftest.h"

#include "base/clock.h"
#include "base/mem.h"
#include "quant/quant.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { N_ROW = 24, N_COL = 4352, N_ACT = 5 }; // more than one segment, and a ragged last unit

typedef struct selftest {
    const quant_ops *ref, *fast;
    uint8_t *w;     // [N_ROW, row_bytes]
    float *decoded; // [N_COL]
    quant_act a;
    float *y[2]; // [N_ACT, N_ROW]
    void *panel;
    uint64_t seed;
} selftest;

static uint64_t draw(selftest *t) {
    t->seed ^= t->seed << 13;
    t->seed ^= t->seed >> 7;
    t->seed ^= t->seed << 17;
    return t->seed;
}

static bool sane(const float *x, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (!(fabsf(x[i]) < 1e6f)) return false;
    }
    return true;
}

static void fill_weights(selftest *t, gguf_type type, uint32_t n_col) {
    const gguf_type_info *info = gguf_type_get(type);
    for (size_t b = 0; b < (size_t)N_ROW * (n_col / info->block); b++) {
        uint8_t *p = t->w + b * info->bytes;
        do {
            for (uint32_t i = 0; i < info->bytes; i++) p[i] = (uint8_t)draw(t);
            quant_decode(t->decoded, p, type, info->block);
        } while (!sane(t->decoded, info->block));
    }
}

static uint64_t compare(selftest *t) {
    uint64_t bad = 0;
    for (int i = 0; i < N_ACT * N_ROW; i++) bad += memcmp(&t->y[0][i], &t->y[1][i], sizeof(float)) != 0;
    return bad;
}

static json_t *row(const char *type, const char *role, uint64_t bad, double gbps) {
    char name[64];
    snprintf(name, sizeof name, "%s %s", role, type);
    return json_pack("{s:s, s:i, s:I, s:f}", "kernel", name, "cases", N_ACT * N_ROW, "mismatches",
                     (json_int_t)bad, "gbps", gbps);
}

static void run_type(selftest *t, gguf_type type, json_t *rows) {
    const gguf_type_info *info = gguf_type_get(type);
    uint32_t n_col = (uint32_t)N_COL / info->block * info->block;
    size_t row_bytes = (size_t)gguf_row_bytes(info, n_col), n_bytes = row_bytes * N_ROW;
    fill_weights(t, type, n_col);
    t->ref->token[type](t->y[0], N_ROW, t->w, row_bytes, &t->a, 0, N_ACT, N_ROW, n_col);
    t->fast->token[type](t->y[1], N_ROW, t->w, row_bytes, &t->a, 0, N_ACT, N_ROW, n_col);
    uint64_t bad = compare(t), start = clock_ns(), n_rep = 0;
    for (; clock_ns() - start < 2000000; n_rep++)
        t->fast->token[type](t->y[1], N_ROW, t->w, row_bytes, &t->a, 0, 1, N_ROW, n_col);
    double gbps = (double)(n_rep * n_bytes) / (double)(clock_ns() - start);
    json_array_append_new(rows, row(info->name, "token", bad, gbps));
    t->ref->prompt[type](t->y[0], N_ROW, t->w, row_bytes, &t->a, 0, N_ACT, N_ROW, n_col, t->panel);
    start = clock_ns();
    t->fast->prompt[type](t->y[1], N_ROW, t->w, row_bytes, &t->a, 0, N_ACT, N_ROW, n_col, t->panel);
    gbps = (double)n_bytes / (double)(clock_ns() - start);
    json_array_append_new(rows, row(info->name, "prompt", compare(t), gbps));
}

mica_status selftest_run(json_t **rows, mica_error *err) {
    *rows = NULL;
    arena mem;
    const uint32_t ld = (N_COL + 63) & ~63u;
    size_t n_act = (size_t)N_ACT * ld, n_panel = quant_prompt_scratch_bytes(N_COL);
    TRY(arena_init(&mem, (size_t)N_ROW * N_COL * 4 + ld * 4 + n_act * 6 + N_ACT * N_ROW * 8 + n_panel + 4096,
                   "self-test", err));
    selftest t = {
        .ref = quant_ops_get(CPU_SCALAR), .fast = quant_ops_get(cpu_isa_best()), .seed = 88172645463325252u};
    t.w = arena_take(&mem, (size_t)N_ROW * N_COL * 4, 64);
    t.decoded = arena_take(&mem, ld * sizeof(float), 64);
    t.a = (quant_act){.ld = ld};
    t.a.x = arena_take(&mem, n_act * sizeof(float), 64);
    t.a.q = arena_take(&mem, n_act, 64);
    t.a.d = arena_take(&mem, n_act / 32 * sizeof(float), 64);
    t.a.s = arena_take(&mem, n_act / 32 * sizeof(float), 64);
    t.a.s16 = arena_take(&mem, n_act / 16 * sizeof(float), 64);
    for (int k = 0; k < 2; k++) t.y[k] = arena_take(&mem, N_ACT * N_ROW * sizeof(float), 64);
    t.panel = arena_take(&mem, n_panel, 64);
    for (size_t i = 0; i < n_act; i++) t.a.x[i] = (float)((double)(draw(&t) >> 40) * 0x1p-23 - 1.0);
    t.ref->act_rows(&t.a, 0, N_ACT, N_COL);
    *rows = json_array();
    for (uint32_t type = 0; type < GGUF_TYPE_N; type++) {
        if (t.ref->token[type]) run_type(&t, (gguf_type)type, *rows);
    }
    arena_fini(&mem);
    return MICA_OK;
}
