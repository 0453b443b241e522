/* For tests that compare every device of this processor with the definition: the devices, guarded memory,
 * random records. tests/dev/t_*.c include it once. */
#ifndef MICA_DEV_CHECK_H
#define MICA_DEV_CHECK_H

#include "check.h"

#include "dev/dev.h"
#include "quant/quant.h"

#include <math.h>

/* ---- devices ---------------------------------------------------------------------------------- */

enum { N_THREADS = 4, N_DEV_MAX = CPU_ISA_N * N_THREADS };

static const int g_threads[N_THREADS] = {1, 2, 3, 5};
static const dev_limits g_limits = {.n_row = 160,
                                    .n_col = 1600,
                                    .n_out = 2600,
                                    .n_head = 24,
                                    .d_head = 512,
                                    .n_expert = 24,
                                    .n_expert_used = 6,
                                    .n_embd = 512,
                                    .n_ff_expert = 512,
                                    .n_index_keep = 40};
static dev *g_ref, *g_dev[N_DEV_MAX];
static int n_dev;
static uint64_t g_seed;

typedef struct test_source {
    expert_source base;
    const char *gate, *up, *down;
    size_t gate_bytes, down_bytes; // of one expert
    int n_held, n_max;             // leases out now; more than n_max are refused
    uint32_t n_acquired, fail_at;  // the fail_at-th acquire of a call fails for good, 0: none
    int32_t hinted;                // experts named by will_need
} test_source;
static test_source g_source;

static inline mica_status source_acquire(expert_source *s, uint32_t layer, uint32_t expert, expert_lease *out,
                                         mica_error *err) {
    test_source *t = (test_source *)s;
    t->n_acquired++;
    if (t->fail_at && t->n_acquired >= t->fail_at)
        return fail(err, MICA_E_IO, "expert %u: read: gone", expert);
    if (t->n_held >= t->n_max) return fail(err, MICA_E_BUSY, "expert %u: no slot free", expert);
    t->n_held++;
    *out = (expert_lease){t->gate + expert * t->gate_bytes, t->up + expert * t->gate_bytes,
                          t->down + expert * t->down_bytes, layer, expert};
    return MICA_OK;
}

static inline void source_release(expert_source *s, expert_lease *lease) {
    CHECK(lease->gate != NULL);
    lease->gate = NULL;
    ((test_source *)s)->n_held--;
}

static inline void source_will_need(expert_source *s, uint32_t layer, const int32_t *experts, uint32_t n) {
    (void)layer, (void)experts;
    ((test_source *)s)->hinted += (int32_t)n;
}

static inline int open_all(void **state) {
    (void)state;
    mica_error err;
    const char *seed = getenv("MICA_TEST_SEED");
    g_seed = seed ? strtoull(seed, NULL, 0) : 0x9E3779B97F4A7C15ull;
    printf("seed 0x%llx\n", (unsigned long long)g_seed);
    g_source.base = (expert_source){source_acquire, source_release, source_will_need};
    dev_config cfg = {.kind = DEV_REF, .n_thread = 1, .limits = g_limits, .experts = &g_source.base};
    CHECK_OK(dev_open(&g_ref, &cfg, &err));
    cfg.kind = DEV_CPU;
    for (int isa = 0; isa < CPU_ISA_N; isa++) {
        if (isa > (int)cpu_isa_best())
            printf("skip: %s: this processor has none\n", cpu_isa_name((cpu_isa)isa));
        for (int it = 0; it < N_THREADS && isa <= (int)cpu_isa_best(); it++) {
            cfg.isa = (cpu_isa)isa;
            cfg.n_thread = g_threads[it];
            CHECK_OK(dev_open(&g_dev[n_dev], &cfg, &err));
            n_dev++;
        }
    }
    return 0;
}

static inline int close_all(void **state) {
    (void)state;
    dev_close(g_ref);
    for (int i = 0; i < n_dev; i++) dev_close(g_dev[i]);
    dev_close(NULL);
    return 0;
}

/* ---- random numbers and guarded memory -------------------------------------------------------- */

static inline uint32_t pick(uint32_t lo, uint32_t hi) {
    return lo + (uint32_t)(test_rand(&g_seed) % (hi - lo + 1));
}
static inline uint32_t pick_of(const uint32_t *of, uint32_t n) {
    return of[pick(0, n - 1)];
}

enum { GUARD = 64, N_BUF = 64 };

/* Every buffer of a case, freed together. */
static struct {
    char *at[N_BUF];
    size_t n[N_BUF];
    int count;
} g_bufs;

static inline void *buf(size_t n_bytes) {
    size_t whole = (n_bytes + 2 * GUARD + 63) / 64 * 64;
    char *p = aligned_alloc(64, whole);
    CHECK(p != NULL && g_bufs.count < N_BUF);
    memset(p, 0xA5, whole);
    memset(p + GUARD, 0, n_bytes);
    g_bufs.at[g_bufs.count] = p;
    g_bufs.n[g_bufs.count++] = n_bytes;
    return p + GUARD;
}

static inline void bufs_done(void) {
    for (int i = 0; i < g_bufs.count; i++) {
        unsigned char *p = (unsigned char *)g_bufs.at[i];
        for (size_t k = 0; k < GUARD; k++) CHECK(p[k] == 0xA5 && p[GUARD + g_bufs.n[i] + k] == 0xA5);
        free(p);
    }
    g_bufs.count = 0;
}

static inline float *floats(size_t n) {
    return buf(n * sizeof(float));
}

static inline float *random_floats(size_t n, float span) {
    float *x = floats(n);
    for (size_t i = 0; i < n; i++) x[i] = test_randf(&g_seed) * span;
    return x;
}

/* Values over many orders of magnitude, with zeros of both signs. */
static inline float *wild_floats(size_t n) {
    float *x = floats(n);
    for (size_t i = 0; i < n; i++) {
        uint32_t kind = pick(0, 15);
        x[i] = test_randf(&g_seed) * (kind == 0 ? 0.0f : ldexpf(1.0f, (int)pick(0, 24) - 16));
    }
    return x;
}

static inline quant_act new_act(uint32_t n_row, uint32_t n_col) {
    uint32_t ld = (n_col + 63) / 64 * 64;
    quant_act a = {.ld = ld};
    a.x = floats((size_t)n_row * ld);
    a.q = buf((size_t)n_row * ld);
    a.d = floats((size_t)n_row * ld / 32);
    a.s = floats((size_t)n_row * ld / 32);
    a.s16 = floats((size_t)n_row * ld / 16);
    return a;
}

/* Random rows, quantised when the width allows. */
static inline quant_act random_act(uint32_t n_row, uint32_t n_col) {
    quant_act a = new_act(n_row, n_col);
    for (size_t i = 0; i < (size_t)n_row * a.ld; i++)
        a.x[i] = i % a.ld < n_col ? test_randf(&g_seed) * 3.0f : NAN;
    if (n_col % 32 == 0) CHECK(quant_ops_get(CPU_SCALAR)->act_rows(&a, 0, n_row, n_col));
    return a;
}

/* Bits, and which value is the first to differ. */
static inline bool same(const char *what, const float *a, const float *b, size_t n) {
    if (memcmp(a, b, n * sizeof(float)) == 0) return true;
    for (size_t i = 0; i < n; i++) {
        if (memcmp(a + i, b + i, sizeof(float)) == 0) continue;
        print_error("%s: value %zu of %zu: %a, should be %a\n", what, i, n, (double)b[i], (double)a[i]);
        break;
    }
    return false;
}

static inline bool same_act(const char *what, const quant_act *a, const quant_act *b, uint32_t n_row,
                            bool q) {
    size_t n = (size_t)n_row * a->ld;
    return same(what, a->x, b->x, n) &&
           (!q || (memcmp(a->q, b->q, n) == 0 && same(what, a->d, b->d, n / 32) &&
                   same(what, a->s, b->s, n / 32) && same(what, a->s16, b->s16, n / 16)));
}

/* Weights of a type: quantised random numbers. */
static inline void *weights(gguf_type type, size_t n_row, size_t n_col) {
    const gguf_type_info *t = gguf_type_get(type);
    size_t row_bytes = (size_t)gguf_row_bytes(t, n_col);
    char *w = buf(n_row * row_bytes);
    float *x = malloc(n_col * sizeof(float));
    for (size_t ir = 0; ir < n_row; ir++) {
        for (size_t i = 0; i < n_col; i++) x[i] = test_randf(&g_seed);
        CHECK(quant_encode(w + ir * row_bytes, x, type, n_col));
    }
    free(x);
    return w;
}

static const uint32_t g_types[] = {GGUF_F32,  GGUF_F16,  GGUF_BF16, GGUF_Q8_0,
                                   GGUF_Q4_0, GGUF_Q4_1, GGUF_Q4_K, GGUF_Q6_K};
enum { N_TYPE = sizeof g_types / sizeof g_types[0] };

static inline weight_ref random_weight(uint32_t n_row, uint32_t n_col) {
    uint32_t type = pick_of(g_types, N_TYPE);
    if (n_col % gguf_type_get(type)->block != 0) type = n_col % 32 == 0 ? GGUF_Q8_0 : GGUF_F16;
    return (weight_ref){
        .w = weights((gguf_type)type, n_row, n_col), .type = type, .n_row = n_row, .n_col = n_col};
}

#define EACH_DEV for (int id = 0; id < n_dev; id++)

static inline void repeat(void (*one)(void), int n) {
    for (int i = 0; i < n; i++) {
        one();
        bufs_done();
    }
}

/* Runs of neighbouring positions, one a sequence; some are windows of drafts, some first apply logged rows.
 */
static inline uint32_t random_runs(row_run *runs, row_info *rows, uint32_t most, uint32_t n_seq) {
    uint32_t n = 0, n_run = 0;
    for (uint32_t s = 0; s < n_seq && n < most; s++) {
        uint32_t len = pick(0, 2) ? pick(1, 8) : pick(1, most - n),
                 pos = pick(0, 2) ? pick(0, 500) : pick(0, 4);
        len = len > most - n ? most - n : len;
        row_run *r = &runs[n_run++];
        *r = (row_run){
            .row0 = n, .n_row = len, .seq = (int32_t)s, .n_commit = pick(0, 1) ? pick(0, WINDOW_MAX) : 0};
        r->window = len <= WINDOW_MAX && pick(0, 1);
        r->bank = pick(0, 1);
        for (uint32_t i = 0; i < len; i++) rows[n++] = (row_info){0, (int32_t)s, (int32_t)(pos + i), -1};
    }
    return n_run;
}

static inline uint32_t run_rows_sum(const row_run *runs, uint32_t n_run) {
    return runs[n_run - 1].row0 + runs[n_run - 1].n_row;
}

#endif
