/* What a decode step costs by how many rows it has and how deep their context is.
 *
 *     rows_bench MODEL [--threads N] [--rounds N] [--depth N] [--kv f16|f32|i8]
 *
 * Rows: one row, a draft window of 2, 4 and 8 rows of one sequence, and one row of each of 2, 4 and 8
 * sequences, in turns; the ratio to one row is what drafting and batching live on. Depth: one row after 1,024
 * tokens and after --depth (default 32,768; cut to the model's context), in turns; the difference in time
 * against the bytes of cache between them, beside the read bandwidth of the same run.
 *
 * The cache holds zeros, which no operation treats apart. Medians of --rounds (default 15). */
#include "base/clock.h"
#include "base/cpu.h"
#include "eval/bandwidth.h"
#include "run/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_SEQ = 8, ROUNDS_MAX = 101, SHALLOW = 1024 };

typedef struct sample {
    const char *what;
    uint32_t n_row, n_seq, pos;
    double ms[ROUNDS_MAX];
} sample;

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const sample *s, int n) {
    double v[ROUNDS_MAX];
    memcpy(v, s->ms, (size_t)n * sizeof v[0]);
    qsort(v, (size_t)n, sizeof v[0], by_value);
    return v[n / 2];
}

/* One step of n_row rows spread over n_seq sequences at one position; its time in ms. */
static mica_status step(engine *e, const sample *s, double *ms, mica_error *err) {
    row_info rows[N_SEQ];
    uint32_t each = s->n_row / s->n_seq;
    for (uint32_t i = 0; i < s->n_row; i++)
        rows[i] = (row_info){.tok = (int32_t)(100 + 7 * i),
                             .seq = (int32_t)(i / each),
                             .pos = (int32_t)(s->pos + i % each),
                             .out = (int32_t)i};
    uint64_t start = clock_ns();
    TRY(engine_step(e, rows, s->n_row, 0, err));
    for (uint32_t q = 0; q < s->n_seq; q++) TRY(engine_accept(e, (int32_t)q, 1, err));
    *ms = clock_ms_since(start);
    return MICA_OK;
}

static mica_status in_turns(engine *e, sample *s, int n, int rounds, mica_error *err) {
    double warm;
    for (int i = 0; i < n; i++) TRY(step(e, &s[i], &warm, err));
    for (int r = 0; r < rounds; r++)
        for (int i = 0; i < n; i++) TRY(step(e, &s[i], &s[i].ms[r], err));
    return MICA_OK;
}

static mica_status measure(const engine_config *cfg, uint32_t depth, int rounds, mica_error *err) {
    sample rows[] = {
        {.what = "1 row", .n_row = 1, .n_seq = 1},       {.what = "window of 2", .n_row = 2, .n_seq = 1},
        {.what = "window of 4", .n_row = 4, .n_seq = 1}, {.what = "window of 8", .n_row = 8, .n_seq = 1},
        {.what = "2 sequences", .n_row = 2, .n_seq = 2}, {.what = "4 sequences", .n_row = 4, .n_seq = 4},
        {.what = "8 sequences", .n_row = 8, .n_seq = 8}};
    sample deep[] = {{.what = "shallow", .n_row = 1, .n_seq = 1, .pos = SHALLOW},
                     {.what = "deep", .n_row = 1, .n_seq = 1, .pos = depth}};
    enum { N_ROWS = sizeof rows / sizeof rows[0] };
    engine *e = NULL;
    mica_status st = engine_open(&e, cfg, err);
    if (st == MICA_OK) st = in_turns(e, rows, N_ROWS, rounds, err);
    if (st != MICA_OK) goto done;
    double one = median(&rows[0], rounds);
    printf("| rows | ms a step | ratio to one | tokens a second, times one row's |\n| --- | --- | --- | --- "
           "|\n");
    for (int i = 0; i < N_ROWS; i++)
        printf("| %s | %.2f | %.2f | %.2f |\n", rows[i].what, median(&rows[i], rounds),
               median(&rows[i], rounds) / one, rows[i].n_row * one / median(&rows[i], rounds));
    engine_close(e);
    e = NULL;

    engine_config one_seq = *cfg;
    one_seq.n_seq = 1;
    one_seq.n_ctx = depth + 8;
    TRY_GOTO(engine_open(&e, &one_seq, err), done);
    TRY_GOTO(in_turns(e, deep, 2, rounds, err), done);
    double per_token = (double)engine_plan_of(e)->item[PLAN_RAM][PLAN_KV].n_bytes / engine_plan_of(e)->n_ctx;
    double read = bandwidth_read_gbps(cfg->n_thread, 3);
    double added = median(&deep[1], rounds) - median(&deep[0], rounds);
    double bytes = per_token * (depth - SHALLOW);
    printf("\n%u to %u tokens of context: %.2f ms and %.2f ms; %.1f MB of cache in %.2f ms: %.1f GB/s, read "
           "%.1f GB/s, %.0f %%\n",
           SHALLOW, depth, median(&deep[0], rounds), median(&deep[1], rounds), bytes * 1e-6, added,
           bytes * 1e-6 / added, read, 100 * bytes * 1e-6 / added / read);
done:
    engine_close(e);
    return st;
}

int main(int argc, char **argv) {
    const char *path = NULL;
    engine_config cfg = {
        .dev = DEV_CPU, .isa = cpu_isa_best(), .n_thread = 2, .n_ctx = 512, .n_seq = N_SEQ, .n_ubatch = 64};
    uint32_t depth = 32768;
    int rounds = 15;
    for (int i = 1; i < argc; i++) {
        const char *v = i + 1 < argc ? argv[i + 1] : "";
        if (!strcmp(argv[i], "--threads"))
            cfg.n_thread = atoi(v), i++;
        else if (!strcmp(argv[i], "--rounds"))
            rounds = atoi(v), i++;
        else if (!strcmp(argv[i], "--depth"))
            depth = (uint32_t)atoi(v), i++;
        else if (!strcmp(argv[i], "--kv"))
            cfg.kv = !strcmp(v, "i8") ? KV_I8 : !strcmp(v, "f32") ? KV_F32 : KV_F16, i++;
        else
            path = argv[i];
    }
    if (!path || rounds < 1 || rounds > ROUNDS_MAX || cfg.n_thread < 1 || depth <= SHALLOW) {
        fprintf(stderr,
                "rows_bench MODEL [--threads N] [--rounds 1..%d] [--depth N over %d] [--kv f16|f32|i8]\n",
                ROUNDS_MAX, SHALLOW);
        return 2;
    }
    mica_error err;
    gguf_file *g = NULL;
    if (gguf_open(&g, path, &err) != MICA_OK) goto failed;
    cfg.g = g;
    if (measure(&cfg, depth, rounds, &err) != MICA_OK) goto failed;
    gguf_close(g);
    return 0;
failed:
    fprintf(stderr, "rows_bench: %s\n", err.text);
    gguf_close(g);
    return 1;
}
