/* Time of each operation of the device seam on the CPU, for the shapes of real models.
 *
 *     dev_bench [--isa NAME] [--threads N] [--ref] [--kv f16|f32|i8] [--op PART] [--ms N] [SHAPE...]
 *
 * For each shape one decoded row at several depths and 512 rows of a prompt: microseconds a call (the least
 * of many calls: what the code takes when nothing else runs) and what bounds it: GB/s of weights or cache
 * read, or GFLOP/s, each with its share of what the same threads reach in plain reads of a large buffer or in
 * a loop of multiply-adds from registers. */
#include "peak.h"

#include "base/clock.h"
#include "base/cpu.h"
#include "base/mem.h"
#include "base/pool.h"
#include "dev/dev.h"
#include "gguf/type.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROWS = 512, DEPTH_MAX = 8192 + ROWS, READ_BYTES = 256 << 20, PEAK_TURNS = 1 << 16 };

typedef struct shape {
    const char *name;
    uint32_t n_embd, n_ff, n_head, n_head_kv, d_head;
    gguf_type type;
} shape;

static const shape g_shape[] = {
    {"smollm2-135m", 576, 1536, 9, 3, 64, GGUF_Q4_1},
    {"1b", 2048, 8192, 32, 8, 64, GGUF_Q4_K},
    {"qwen3-0.6b", 1024, 3072, 16, 8, 128, GGUF_Q8_0},
    {"gated-256", 2048, 4096, 16, 2, 256, GGUF_Q4_K},
};

typedef struct bench {
    dev *d;
    const shape *s;
    const char *only; // operations whose name holds this, or NULL
    double read_gbps, peak_gflops, ms;
    kv_type kv_type;
    uint32_t n_row;
    quant_act x, o, h;
    float *resid, *q, *k, *v, *gate, *up, *cs, *ones;
    void *w;
    kv_layer kv;
    int32_t *table;
    row_info *rows;
} bench;

static mica_error g_err;

static void must(mica_status st) {
    if (st == MICA_OK) return;
    fprintf(stderr, "dev_bench: %s\n", g_err.text);
    exit(1);
}

static void *space(bench *b, size_t n_bytes) {
    void *p;
    must(dev_alloc(b->d, &p, n_bytes, "bench", &g_err));
    return p;
}

static float *noise(bench *b, size_t n) {
    static uint32_t seed = 1;
    float *x = space(b, n * sizeof(float));
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (float)(int32_t)seed * 0x1p-31f;
    }
    return x;
}

static quant_act act(bench *b, uint32_t n_col) {
    uint32_t ld = (n_col + 63) / 64 * 64;
    size_t n = (size_t)ROWS * ld;
    quant_act a = {noise(b, n), space(b, n), space(b, n / 8), space(b, n / 8), space(b, n / 4), ld};
    must(dev_quantise(b->d, &(quantise_args){a, ROWS, n_col}, &g_err));
    return a;
}

static void bench_new(bench *b) {
    const shape *s = b->s;
    uint32_t n_q = s->n_head * s->d_head, n_kv = s->n_head_kv * s->d_head, n_page = DEPTH_MAX / KV_PAGE;
    size_t width = b->kv_type == KV_F32   ? 4
                   : b->kv_type == KV_F16 ? 2
                                          : 1,
           n_vec = (size_t)n_page * s->n_head_kv * KV_PAGE;
    b->x = act(b, s->n_embd);
    b->o = act(b, n_q);
    b->h = act(b, s->n_ff);
    b->resid = noise(b, (size_t)ROWS * s->n_embd);
    b->q = noise(b, (size_t)ROWS * n_q);
    b->k = noise(b, (size_t)ROWS * n_kv);
    b->v = noise(b, (size_t)ROWS * n_kv);
    b->gate = noise(b, (size_t)ROWS * s->n_ff);
    b->up = noise(b, (size_t)ROWS * s->n_ff);
    b->cs = noise(b, (size_t)ROWS * s->d_head);
    b->ones = noise(b, s->n_ff);
    size_t w_bytes = (size_t)(s->n_ff > n_q ? s->n_ff : n_q) *
                     (size_t)gguf_row_bytes(gguf_type_get(s->type), s->n_embd) * 3;
    b->w = space(b, w_bytes); // zero weights: every block is valid, and time does not depend on values
    b->kv = (kv_layer){space(b, n_vec * s->d_head * width), space(b, n_vec * s->d_head * width), NULL, NULL,
                       b->kv_type};
    if (b->kv_type == KV_I8) {
        b->kv.k_scale = noise(b, n_vec);
        b->kv.v_scale = noise(b, n_vec);
    }
    memset(b->kv.k, 0x11, n_vec * s->d_head * width); // the same: small numbers in all three types
    memset(b->kv.v, 0x11, n_vec * s->d_head * width);
    b->table = space(b, n_page * sizeof *b->table);
    for (uint32_t i = 0; i < n_page; i++) b->table[i] = (int32_t)(n_page - 1 - i);
    b->rows = space(b, ROWS * sizeof *b->rows);
}

/* ---- operations ------------------------------------------------------------------------------------ */

static weight_ref matrix(const bench *b, uint32_t n_out, uint32_t n_in) {
    return (weight_ref){.w = b->w, .type = b->s->type, .n_row = n_out, .n_col = n_in};
}

static void linear(bench *b, linear_args *a) {
    a->n_row = b->n_row;
    a->n_prompt = b->n_row > 1 ? b->n_row : 0;
    must(dev_linear(b->d, a, &g_err));
}

static void op_norm(bench *b) {
    norm_args a = {b->x, b->resid, b->ones, NULL, b->s->n_embd, b->n_row, b->s->n_embd, 1e-5f, 1};
    must(dev_norm(b->d, &a, &g_err));
}

static void op_qkv(bench *b) {
    uint32_t n_q = b->s->n_head * b->s->d_head, n_kv = b->s->n_head_kv * b->s->d_head, n = b->s->n_embd;
    linear_args a = {.a = b->x, .n_out = 3};
    a.out[0] = (linear_out){b->q, matrix(b, n_q, n), n_q, 0};
    a.out[1] = (linear_out){b->k, matrix(b, n_kv, n), n_kv, 0};
    a.out[2] = (linear_out){b->v, matrix(b, n_kv, n), n_kv, 0};
    linear(b, &a);
}

static void op_rope_kv(bench *b) {
    const shape *s = b->s;
    uint32_t n_q = s->n_head * s->d_head, n_kv = s->n_head_kv * s->d_head;
    rope_kv_args a = {.q = b->q,
                      .k = b->k,
                      .v = b->v,
                      .kv = b->kv,
                      .pages = {b->table, DEPTH_MAX / KV_PAGE},
                      .rows = b->rows,
                      .cs = b->cs,
                      .ld_q = n_q,
                      .head_ld_q = s->d_head,
                      .ld_kv = n_kv,
                      .n_row = b->n_row,
                      .n_head = s->n_head,
                      .n_head_kv = s->n_head_kv,
                      .d_k = s->d_head,
                      .d_v = s->d_head,
                      .n_rot = s->d_head,
                      .rope = ROPE_NEOX,
                      .eps = 1e-5f};
    must(dev_rope_kv(b->d, &a, &g_err));
}

static void op_attn(bench *b) {
    const shape *s = b->s;
    attn_args a = {.o = b->o,
                   .q = b->q,
                   .kv = b->kv,
                   .pages = {b->table, DEPTH_MAX / KV_PAGE},
                   .rows = b->rows,
                   .ld_q = s->n_head * s->d_head,
                   .head_ld_q = s->d_head,
                   .n_row = b->n_row,
                   .n_head = s->n_head,
                   .n_head_kv = s->n_head_kv,
                   .d_k = s->d_head,
                   .d_v = s->d_head,
                   .scale = 0.125f,
                   .want_q = 1};
    must(dev_attn(b->d, &a, &g_err));
}

static void op_o(bench *b) {
    linear_args a = {.a = b->o, .n_out = 1};
    a.out[0] = (linear_out){b->resid, matrix(b, b->s->n_embd, b->s->n_head * b->s->d_head), b->s->n_embd, 1};
    linear(b, &a);
}

static void op_gate_up(bench *b) {
    linear_args a = {.a = b->x, .n_out = 2};
    a.out[0] = (linear_out){b->gate, matrix(b, b->s->n_ff, b->s->n_embd), b->s->n_ff, 0};
    a.out[1] = (linear_out){b->up, matrix(b, b->s->n_ff, b->s->n_embd), b->s->n_ff, 0};
    linear(b, &a);
}

static void op_glu(bench *b) {
    glu_args a = {b->h, b->gate, b->up, b->s->n_ff, b->n_row, b->s->n_ff, GLU_SILU, 1};
    must(dev_glu(b->d, &a, &g_err));
}

static void op_down(bench *b) {
    linear_args a = {.a = b->h, .n_out = 1};
    a.out[0] = (linear_out){b->resid, matrix(b, b->s->n_embd, b->s->n_ff), b->s->n_embd, 1};
    linear(b, &a);
}

/* With one thread its processor time is counted, so that other programs of a busy machine disturb less. */
static bool g_alone;
static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(g_alone ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- time ------------------------------------------------------------------------------------------ */

/* The least time of a call within b->ms, in microseconds. */
static double least_us(bench *b, void (*op)(bench *)) {
    double best = 1e30;
    op(b);
    for (uint64_t start = clock_ns(); clock_ms_since(start) < b->ms;) {
        uint64_t t = now_ns();
        op(b);
        double us = (double)(now_ns() - t) * 1e-3;
        best = us < best ? us : best;
    }
    return best;
}

typedef struct limit {
    double bytes, flops; // of a call; 0: not what bounds it
} limit;

static double report(bench *b, const char *what, void (*op)(bench *), limit l) {
    if (b->only && !strstr(what, b->only)) return 0;
    double us = least_us(b, op);
    printf("  %-18s %10.1f us", what, us);
    if (l.bytes > 0)
        printf("  %7.1f GB/s %4.0f %% of a read", l.bytes / us * 1e-3, l.bytes / us * 0.1 / b->read_gbps);
    if (l.flops > 0)
        printf("  %7.1f GFLOP/s %4.0f %% of FMA", l.flops / us * 1e-3, l.flops / us * 0.1 / b->peak_gflops);
    printf("\n");
    return us;
}

static void set_rows(bench *b, uint32_t n_row, uint32_t pos) {
    b->n_row = n_row;
    for (uint32_t i = 0; i < n_row; i++) b->rows[i] = (row_info){0, 0, (int32_t)(pos + i), -1};
}

static limit weights_of(const bench *b, double n_out, double n_in) {
    const gguf_type_info *t = gguf_type_get(b->s->type);
    if (b->n_row > 1) return (limit){0, 2.0 * n_out * n_in * b->n_row};
    return (limit){n_out * n_in * t->bytes / t->block, 0};
}

static limit cache_of(const bench *b, uint32_t pos) {
    const shape *s = b->s;
    double width = b->kv_type == KV_F32 ? 4 : b->kv_type == KV_F16 ? 2 : 1, n_seen = 0;
    for (uint32_t i = 0; i < b->n_row; i++) n_seen += pos + i + 1;
    if (b->n_row > 1) return (limit){0, 4.0 * n_seen * s->n_head * s->d_head};
    return (limit){2.0 * n_seen * s->n_head_kv * s->d_head * width, 0};
}

static void run_shape(bench *b, uint32_t n_row) {
    static const uint32_t depth[] = {0, 100, 1024, 4096, 8191};
    const shape *s = b->s;
    double n_q = s->n_head * s->d_head, n_kv = s->n_head_kv * s->d_head, sum = 0;
    set_rows(b, n_row, 0);
    printf("%s, %u row%s\n", s->name, n_row, n_row > 1 ? "s" : "");
    sum += 2 * report(b, "norm", op_norm, (limit){0});
    sum += report(b, "q k v", op_qkv, weights_of(b, n_q + 2 * n_kv, s->n_embd));
    sum += report(b, "rope and cache", op_rope_kv, (limit){0});
    sum += report(b, "o", op_o, weights_of(b, s->n_embd, n_q));
    sum += report(b, "gate, up", op_gate_up, weights_of(b, 2.0 * s->n_ff, s->n_embd));
    sum += report(b, "glu", op_glu, (limit){0});
    sum += report(b, "down", op_down, weights_of(b, s->n_embd, s->n_ff));
    printf("  %-18s %10.1f us without attention\n", "a layer", sum);
    for (size_t i = 0; i < sizeof depth / sizeof *depth; i++) {
        char what[32];
        uint32_t pos = depth[i] / n_row * n_row;
        snprintf(what, sizeof what, "attention at %u", pos);
        if (n_row > 1 && depth[i] == 100) continue;
        set_rows(b, n_row, pos);
        report(b, what, op_attn, cache_of(b, pos));
    }
}

/* ---- bounds ---------------------------------------------------------------------------------------- */

typedef struct bound {
    char *p;
    cpu_isa isa;
    bool read;
    volatile uint64_t sink;
} bound;

static void bound_part(void *arg, int ith, int n_thread) {
    bound *k = arg;
    int64_t begin, end;
    pool_split(READ_BYTES, 4096, ith, n_thread, &begin, &end);
    if (k->read)
        k->sink = peak_read_avx2(k->p + begin, (size_t)(end - begin));
    else
        k->sink = k->isa == CPU_AVX512 ? peak_f32_avx512(PEAK_TURNS) : peak_f32_avx2(PEAK_TURNS);
}

static double bound_s(pool *p, bound *k) {
    double best = 1e30;
    for (int i = 0; i < 9; i++) {
        uint64_t t = now_ns();
        pool_run(p, bound_part, k);
        double s = (double)(now_ns() - t) * 1e-9;
        best = s < best ? s : best;
    }
    return best;
}

static void measure_bounds(bench *b, cpu_isa isa, int n_thread) {
    pool *p;
    must(pool_new(&p, n_thread, &g_err));
    bound k = {mem_pages_alloc(READ_BYTES), isa, true, 0};
    if (!k.p) must(MICA_E_NOMEM);
    memset(k.p, 1, READ_BYTES);
    b->read_gbps = READ_BYTES / bound_s(p, &k) * 1e-9;
    k.read = false;
    double ops = (double)PEAK_F32_OPS * (isa == CPU_AVX512 ? 2 : 1) * PEAK_TURNS * n_thread;
    b->peak_gflops = ops / bound_s(p, &k) * 1e-9;
    mem_pages_free(k.p);
    pool_free(p);
    printf("%d threads, %s: read %.1f GB/s, f32 FMA %.1f GFLOP/s\n", n_thread, cpu_isa_name(isa),
           b->read_gbps, b->peak_gflops);
}

int main(int argc, char **argv) {
    dev_config cfg = {.kind = DEV_CPU, .isa = cpu_isa_best(), .n_thread = 2};
    cfg.limits = (dev_limits){.n_row = ROWS, .n_col = 8192, .n_out = 16384, .n_head = 32, .d_head = 256};
    bench b = {.ms = 200, .kv_type = KV_F16};
    const char *only[8];
    int n_only = 0;
    for (int i = 1; i < argc; i++) {
        const char *next = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--ref") == 0)
            cfg.kind = DEV_REF;
        else if (strcmp(argv[i], "--isa") == 0 && cpu_isa_parse(&cfg.isa, next))
            i++;
        else if (strcmp(argv[i], "--threads") == 0)
            cfg.n_thread = atoi(argv[++i]);
        else if (strcmp(argv[i], "--op") == 0)
            b.only = argv[++i];
        else if (strcmp(argv[i], "--ms") == 0)
            b.ms = atof(argv[++i]);
        else if (strcmp(argv[i], "--kv") == 0)
            b.kv_type = next[0] == 'i' ? KV_I8 : strcmp(next, "f32") == 0 ? KV_F32 : KV_F16, i++;
        else if (n_only < 8)
            only[n_only++] = argv[i];
    }
    g_alone = cfg.n_thread == 1;
    if (cfg.isa != CPU_SCALAR) measure_bounds(&b, cfg.isa, cfg.n_thread);
    must(dev_open(&b.d, &cfg, &g_err));
    printf("%s\n", b.d->what);
    for (size_t i = 0; i < sizeof g_shape / sizeof *g_shape; i++) {
        bool want = n_only == 0;
        for (int k = 0; k < n_only; k++) want |= strcmp(only[k], g_shape[i].name) == 0;
        if (!want) continue;
        b.s = &g_shape[i];
        bench_new(&b);
        run_shape(&b, 1);
        run_shape(&b, ROWS);
    }
    dev_close(b.d);
    return 0;
}
