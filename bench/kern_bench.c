/* The kernel gallery: operations of the device seam on a graphics card, checked against the scalar definition
 * and then timed.
 *
 *     kern_bench [cuda:N | hip:N | sim] [PART]        PART: only what has it in its name
 *
 * A row: operation, shape, microseconds a call, and GB/s of what it must read or TFLOP/s of what it must do,
 * with the share of what the card reached in a copy of its own memory in the same run. Calls are enqueued
 * many at a time over weights that do not fit its cache. */
#include "base/clock.h"
#include "base/mem.h"
#include "dev/dev.h"
#include "quant/quant.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS_MAX = 512, SAMPLE = 64, COLD_BYTES = 400 << 20, N_CALL = 40 };

static dev *g_dev, *g_ref;
static mica_error g_err;
static double g_copy_gbps;
static const char *g_part;

static void must(mica_status st) {
    if (st == MICA_OK) return;
    fprintf(stderr, "kern_bench: %s\n", g_err.text);
    exit(1);
}

static void *space(size_t n_bytes) {
    void *p;
    must(dev_alloc(g_dev, &p, n_bytes, "bench", &g_err));
    return p;
}

static float noise(void) {
    static uint32_t seed = 1;
    seed = seed * 1664525u + 1013904223u;
    return (float)(int32_t)seed * 0x1p-31f;
}

/* One row of the table; n_bytes or n_flop is 0. */
static void tell(const char *what, const char *shape, double us, double n_bytes, double n_flop) {
    if (n_bytes > 0)
        printf("| %s | %s | %.1f | %.0f GB/s | %.0f %% |\n", what, shape, us, n_bytes / us / 1e3,
               100.0 * n_bytes / us / 1e3 / g_copy_gbps);
    else
        printf("| %s | %s | %.1f | %.1f TFLOP/s | - |\n", what, shape, us, n_flop / us / 1e6);
    fflush(stdout);
}

/* ---- activations, the same on both sides ---- */

typedef struct act_pair {
    quant_act host, card;
} act_pair;

static void act_up(void *dst, const void *src, size_t n) {
    must(dev_upload(g_dev, dst, src, n, &g_err));
}

static act_pair acts(uint32_t n_row, uint32_t n_col) {
    size_t n = (size_t)n_row * n_col;
    act_pair a = {.host = {.ld = n_col}, .card = {.ld = n_col}};
    a.host.x = malloc(n * 4);
    a.host.q = malloc(n);
    a.host.d = malloc(n / 8);
    a.host.s = malloc(n / 8);
    a.host.s16 = malloc(n / 4);
    for (size_t i = 0; i < n; i++) a.host.x[i] = noise();
    quant_ops_get(CPU_SCALAR)->act_rows(&a.host, 0, n_row, n_col);
    a.card.x = space(n * 4);
    a.card.q = space(n);
    a.card.d = space(n / 8);
    a.card.s = space(n / 8);
    a.card.s16 = space(n / 4);
    act_up(a.card.x, a.host.x, n * 4);
    act_up(a.card.q, a.host.q, n);
    act_up(a.card.d, a.host.d, n / 8);
    act_up(a.card.s, a.host.s, n / 8);
    act_up(a.card.s16, a.host.s16, n / 4);
    return a;
}

static void acts_free(act_pair *a) {
    free(a->host.x), free(a->host.q), free(a->host.d), free(a->host.s), free(a->host.s16);
    dev_release(g_dev, a->card.x), dev_release(g_dev, a->card.q), dev_release(g_dev, a->card.d);
    dev_release(g_dev, a->card.s), dev_release(g_dev, a->card.s16);
}

/* ---- products ---- */

typedef struct product {
    gguf_type type;
    uint32_t n_col, n_out, n_row;
    bool prompt;
} product;

/* SAMPLE rows of weights, over and over. */
static char *weights(const product *p, char **sample, uint32_t n_copy) {
    const gguf_type_info *t = gguf_type_get(p->type);
    size_t row = (size_t)gguf_row_bytes(t, p->n_col), all = row * p->n_out;
    float *x = malloc(p->n_col * sizeof(float));
    *sample = malloc(row * SAMPLE);
    for (uint32_t r = 0; r < SAMPLE; r++) {
        for (uint32_t i = 0; i < p->n_col; i++) x[i] = noise();
        quant_encode(*sample + r * row, x, p->type, p->n_col);
    }
    free(x);
    char *w = space(all * n_copy), *whole = malloc(all);
    for (size_t at = 0; at < all; at += row * SAMPLE)
        memcpy(whole + at, *sample, all - at < row * SAMPLE ? all - at : row * SAMPLE);
    for (uint32_t k = 0; k < n_copy; k++) act_up(w + k * all, whole, all);
    free(whole);
    return w;
}

static void check(const product *p, const float *y, const act_pair *a, const char *sample) {
    uint32_t n = p->n_out < SAMPLE ? p->n_out : SAMPLE, n_row = p->n_row < 8 ? p->n_row : 8;
    float *want = malloc((size_t)n_row * n * 4), *got = malloc((size_t)n_row * p->n_out * 4);
    linear_args l = {.a = a->host, .n_out = 1, .n_row = n_row, .n_prompt = p->prompt ? n_row : 0};
    l.out[0] = (linear_out){want, {.w = sample, .type = p->type, .n_row = n, .n_col = p->n_col}, n, 0};
    must(dev_linear(g_ref, &l, &g_err));
    must(dev_download(g_dev, got, y, (size_t)n_row * p->n_out * 4, &g_err));
    for (uint32_t r = 0; r < n_row; r++) {
        if (memcmp(want + (size_t)r * n, got + (size_t)r * p->n_out, n * 4) == 0) continue;
        fprintf(stderr, "kern_bench: row %u: other bits than the definition\n", r);
        exit(1);
    }
    free(want);
    free(got);
}

static void bench_product(const product *p) {
    const gguf_type_info *t = gguf_type_get(p->type);
    char what[64], shape[64], *sample;
    snprintf(what, sizeof what, "%s %s", p->prompt ? "prompt" : "token", t->name);
    snprintf(shape, sizeof shape, "%u x %u, %u rows", p->n_col, p->n_out, p->n_row);
    if (g_part && !strstr(what, g_part)) return;
    size_t all = (size_t)gguf_row_bytes(t, p->n_col) * p->n_out;
    uint32_t n_copy = p->prompt ? 1 : (uint32_t)(COLD_BYTES / all + 1), n_call = p->prompt ? 8 : N_CALL;
    act_pair a = acts(p->n_row, p->n_col);
    char *w = weights(p, &sample, n_copy);
    float *y = space((size_t)p->n_row * p->n_out * 4);
    linear_args l = {.a = a.card, .n_out = 1, .n_row = p->n_row, .n_prompt = p->prompt ? p->n_row : 0};
    l.out[0] = (linear_out){y, {.w = w, .type = p->type, .n_row = p->n_out, .n_col = p->n_col}, p->n_out, 0};
    must(dev_linear(g_dev, &l, &g_err));
    must(dev_sync(g_dev, &g_err));
    check(p, y, &a, sample);
    uint64_t t0 = clock_ns();
    for (uint32_t i = 0; i < n_call; i++) {
        l.out[0].w.w = w + i % n_copy * all;
        must(dev_linear(g_dev, &l, &g_err));
    }
    must(dev_sync(g_dev, &g_err));
    double us = clock_ms_since(t0) * 1e3 / n_call;
    tell(what, shape, us, p->prompt ? 0 : (double)all, 2.0 * p->n_col * p->n_out * p->n_row);
    dev_release(g_dev, w);
    dev_release(g_dev, y);
    free(sample);
    acts_free(&a);
}

/* ---- attention at depth ---- */

static void bench_attention(uint32_t n_kv, uint32_t n_row, kv_type type) {
    enum { HEADS = 24, KV_HEADS = 4, DIM = 256 };
    char shape[64];
    if (g_part && !strstr("attention", g_part)) return;
    uint32_t n_slot = n_kv / KV_PAGE, width = type == KV_F32 ? 4 : type == KV_F16 ? 2 : 1;
    size_t n_vec = (size_t)n_slot * KV_HEADS * KV_PAGE, n_bytes = n_vec * DIM * width;
    int32_t *table = malloc(n_slot * sizeof *table);
    row_info rows[ROWS_MAX];
    for (uint32_t i = 0; i < n_slot; i++) table[i] = (int32_t)i;
    for (uint32_t i = 0; i < n_row; i++) rows[i] = (row_info){0, 0, (int32_t)(n_kv - n_row + i), -1};
    act_pair q = acts(n_row, HEADS * DIM), o = acts(n_row, HEADS * DIM);
    attn_args a = {.o = o.card, .q = q.card.x, .ld_q = HEADS * DIM, .head_ld_q = DIM, .n_row = n_row};
    a.n_head = HEADS;
    a.n_head_kv = KV_HEADS;
    a.d_k = a.d_v = DIM;
    a.scale = 0.0625f;
    a.want_q = 1;
    a.kv = (kv_layer){.k = space(n_bytes), .v = space(n_bytes), .type = type};
    a.kv.k_scale = space(n_vec * 4);
    a.kv.v_scale = space(n_vec * 4);
    a.pages = (kv_pages){space(n_slot * sizeof *table), n_slot};
    a.rows = space(n_row * sizeof *rows);
    act_up((void *)(uintptr_t)a.pages.table, table, n_slot * sizeof *table);
    act_up((void *)(uintptr_t)a.rows, rows, n_row * sizeof *rows);
    bool done;
    uint32_t n_call = n_row > 8 ? 4 : N_CALL;
    must(dev_step_begin(g_dev, &(dev_step){.n_row = n_row, .n_prompt = 1, .n_kv = n_kv}, &done, &g_err));
    must(dev_attn(g_dev, &a, &g_err));
    must(dev_sync(g_dev, &g_err));
    uint64_t t0 = clock_ns();
    for (uint32_t i = 0; i < n_call; i++) must(dev_attn(g_dev, &a, &g_err));
    must(dev_sync(g_dev, &g_err));
    double us = clock_ms_since(t0) * 1e3 / n_call;
    must(dev_step_end(g_dev, true, &g_err));
    snprintf(shape, sizeof shape, "%u positions, %u rows, %s", n_kv, n_row, width == 2 ? "f16" : "i8");
    tell("attention", shape, us, n_row > 8 ? 0 : 2.0 * (double)n_bytes, 4.0 * n_kv * HEADS * DIM * n_row);
    dev_release(g_dev, a.kv.k), dev_release(g_dev, a.kv.v), dev_release(g_dev, a.kv.k_scale);
    dev_release(g_dev, a.kv.v_scale), dev_release(g_dev, (void *)(uintptr_t)a.pages.table);
    dev_release(g_dev, (void *)(uintptr_t)a.rows);
    acts_free(&q);
    acts_free(&o);
    free(table);
}

static void bench_norm(uint32_t n_row) {
    char shape[64];
    if (g_part && !strstr("norm", g_part)) return;
    act_pair x = acts(n_row, 5120), y = acts(n_row, 5120);
    float *w = space(5120 * 4);
    norm_args a = {y.card, x.card.x, w, NULL, 5120, n_row, 5120, 1e-6f, 1};
    must(dev_norm(g_dev, &a, &g_err));
    must(dev_sync(g_dev, &g_err));
    uint64_t t0 = clock_ns();
    for (int i = 0; i < N_CALL; i++) must(dev_norm(g_dev, &a, &g_err));
    must(dev_sync(g_dev, &g_err));
    snprintf(shape, sizeof shape, "5120, %u rows", n_row);
    tell("norm", shape, clock_ms_since(t0) * 1e3 / N_CALL, 9.0 * 5120 * n_row, 0);
    dev_release(g_dev, w);
    acts_free(&x);
    acts_free(&y);
}

/* What the card reaches in a copy, reading and writing. */
static double copy_gbps(void) {
    size_t n = (size_t)1 << 30;
    void *a = space(n), *b = space(n);
    must(dev_copy(g_dev, b, a, n, &g_err));
    must(dev_sync(g_dev, &g_err));
    uint64_t t0 = clock_ns();
    for (int i = 0; i < 10; i++) must(dev_copy(g_dev, b, a, n, &g_err));
    must(dev_sync(g_dev, &g_err));
    double s = clock_ms_since(t0) * 1e-3;
    dev_release(g_dev, a);
    dev_release(g_dev, b);
    return 20.0 * (double)n / s / 1e9;
}

int main(int argc, char **argv) {
    const char *card = argc > 1 ? argv[1] : "cuda:0", *number = strchr(card, ':');
    g_part = argc > 2 ? argv[2] : NULL;
    dev_limits m = {.n_row = ROWS_MAX, .n_col = 17408, .n_out = 34816, .n_head = 24, .d_head = 256};
    dev_config cfg = {.kind = DEV_REF, .n_thread = 1, .limits = m};
    must(dev_open(&g_ref, &cfg, &g_err));
    cfg.kind = strncmp(card, "hip", 3) == 0 ? DEV_HIP : strncmp(card, "sim", 3) == 0 ? DEV_SIM : DEV_CUDA;
    cfg.card = number ? atoi(number + 1) : 0;
    must(dev_open(&g_dev, &cfg, &g_err));
    g_copy_gbps = cfg.kind == DEV_SIM ? 1.0 : copy_gbps();
    printf("%s, copies %.0f GB/s\n\n| operation | shape | us | rate | of the copy |\n", g_dev->what,
           g_copy_gbps);
    printf("| --- | --- | ---: | ---: | ---: |\n");
    static const gguf_type types[] = {GGUF_Q4_K, GGUF_Q6_K, GGUF_Q5_K, GGUF_Q8_0, GGUF_Q4_0, GGUF_F16};
    static const uint32_t shapes[][2] = {{5120, 34816}, {17408, 5120}, {2048, 8192}, {5120, 1024}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        for (size_t k = 0; k < (i == 0 ? 4u : 1u); k++)
            bench_product(&(product){types[i], shapes[k][0], shapes[k][1], 1, false});
        bench_product(&(product){types[i], 5120, 34816, 8, false});
        bench_product(&(product){types[i], 5120, 34816, ROWS_MAX, true});
    }
    bench_norm(1);
    bench_norm(ROWS_MAX);
    bench_attention(65536, 1, KV_F16);
    bench_attention(65536, 1, KV_I8);
    bench_attention(4096, 1, KV_F16);
    bench_attention(4096, ROWS_MAX, KV_F16);
    dev_close(g_dev);
    dev_close(g_ref);
    return 0;
}
