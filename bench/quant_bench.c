/* Speed of the products, beside what the machine can do, measured in the same rounds.
 *
 *     quant_bench [--isa NAME] [--rounds N] [--role token|prompt] [TYPE...]
 *
 * token: GB/s of weights larger than the last cache, for 1 thread and for 2, its share of a plain read of the
 * same bytes (the median over rounds of the quotient within a round: a shared host's bandwidth moves), GB/s
 * of weights that stay in the second cache (what the kernel itself can do), and the time of 2, 4 and 8 rows
 * of activations over that of 1. prompt: GOP/s (a product and an addition are two) of 512 rows of
 * activations, for 1 thread and for 2, and the share of the int8 (float types: f32) peak of the same
 * instruction set from registers. */
#include "peak.h"

#include "base/clock.h"
#include "base/cpu.h"
#include "base/half.h"
#include "base/mem.h"
#include "base/pool.h"
#include "gguf/type.h"
#include "quant/quant.h"

#include <stdio.h>
#include <stdlib.h>

enum { N_COL = 2048, ROUND_MAX = 99, THREAD_MAX = 2 };
enum { TOKEN_BYTES = 96 << 20, CACHE_BYTES = 192 << 10, PROMPT_ROWS = 128, PROMPT_ACTS = 256 };

typedef struct bench {
    const quant_ops *ops;
    cpu_isa isa;
    int n_round;
    pool *pool[THREAD_MAX + 1];
    uint8_t *w;  // TOKEN_BYTES
    quant_act a; // [PROMPT_ACTS, N_COL]
    float *y;
    void *scratch[THREAD_MAX];
    volatile uint64_t sink;
} bench;

/* One piece of work over a range of weight rows. */
typedef struct work {
    bench *b;
    gguf_type type;
    bool prompt;
    uint32_t n_act, n_row;
    size_t row_bytes, read_bytes; // read_bytes: a plain read instead
    uint64_t peak_turns;          // or the register loop
    bool peak_float;
} work;

static void work_peak(const work *k) {
    bench *b = k->b;
    if (b->isa == CPU_AVX512)
        b->sink = k->peak_float ? peak_f32_avx512(k->peak_turns) : peak_int8_avx512(k->peak_turns);
    else
        b->sink = k->peak_float ? peak_f32_avx2(k->peak_turns) : peak_int8_avx2(k->peak_turns);
}

static void work_part(void *arg, int ith, int n_thread) {
    const work *k = arg;
    bench *b = k->b;
    int64_t begin, end;
    if (k->peak_turns) {
        work_peak(k);
        return;
    }
    if (k->read_bytes) {
        pool_split((int64_t)k->read_bytes, 4096, ith, n_thread, &begin, &end);
        b->sink = peak_read_avx2(b->w + begin, (size_t)(end - begin));
        return;
    }
    pool_split(k->n_row, 16, ith, n_thread, &begin, &end);
    const uint8_t *w = b->w + (size_t)begin * k->row_bytes;
    uint32_t n_row = (uint32_t)(end - begin);
    if (k->prompt)
        b->ops->prompt[k->type](b->y + begin, k->n_row, w, k->row_bytes, &b->a, 0, k->n_act, n_row, N_COL,
                                b->scratch[ith]);
    else
        b->ops->token[k->type](b->y + begin, k->n_row, w, k->row_bytes, &b->a, 0, k->n_act, n_row, N_COL);
}

static double seconds(bench *b, int n_thread, work k) {
    k.b = b;
    uint64_t start = clock_ns();
    pool_run(b->pool[n_thread], work_part, &k);
    return (double)(clock_ns() - start) * 1e-9;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}
static double median(double *v, int n) {
    qsort(v, (size_t)n, sizeof *v, by_value);
    return v[n / 2];
}

/* Finite scales of ordinary size everywhere: denormals would slow the arithmetic, not the kernel. */
static void weights_fill(bench *b, gguf_type type) {
    static const uint8_t ones[] = {0x11, 0x22, 0x13, 0x24}; // any two of them are a small finite f16 or bf16
    uint64_t s = 88172645463325252ull;
    bool plain = gguf_type_get(type)->cls == GGUF_CLASS_FLOAT;
    for (size_t i = 0; i < TOKEN_BYTES; i++) {
        s ^= s << 13, s ^= s >> 7, s ^= s << 17;
        b->w[i] = plain ? ones[s >> 40 & 3] : (uint8_t)(s >> 40 & 0x3B); // no f16 of these bytes is infinite
        if (type == GGUF_MXFP4 && i % 17 == 0) b->w[i] = (uint8_t)(120 + (s >> 50 & 7));
    }
}

static void token_row(bench *b, gguf_type type) {
    size_t row_bytes = (size_t)gguf_row_bytes(gguf_type_get(type), N_COL);
    uint32_t n_row = (uint32_t)(TOKEN_BYTES / row_bytes), n_small = (uint32_t)(CACHE_BYTES / row_bytes);
    double rate[THREAD_MAX + 1], share[THREAD_MAX + 1], v[ROUND_MAX], best;
    size_t bytes = (size_t)n_row * row_bytes / 4096 * 4096;
    for (int t = 1; t <= THREAD_MAX; t++) {
        best = 1e9;
        for (int i = 0; i < b->n_round; i++) {
            double read = seconds(b, t, (work){.read_bytes = bytes});
            double dot =
                seconds(b, t, (work){.type = type, .n_act = 1, .n_row = n_row, .row_bytes = row_bytes});
            v[i] = read / dot;
            if (dot < best) best = dot;
        }
        rate[t] = (double)bytes / best * 1e-9;
        share[t] = median(v, b->n_round);
    }
    double small[9];
    for (int n_act = 1; n_act <= 8; n_act *= 2) {
        small[n_act] = 1e9;
        for (int i = 0; i < 20 * b->n_round; i++) {
            double s = seconds(
                b, 1,
                (work){.type = type, .n_act = (uint32_t)n_act, .n_row = n_small, .row_bytes = row_bytes});
            if (s < small[n_act]) small[n_act] = s;
        }
    }
    printf("%-8s token  1 thread %6.1f GB/s %3.0f %% of read   2 threads %6.1f GB/s %3.0f %%   in cache "
           "%6.1f GB/s   2, 4, 8 rows x %.2f %.2f %.2f\n",
           gguf_type_get(type)->name, rate[1], 100 * share[1], rate[2], 100 * share[2],
           (double)n_small * (double)row_bytes / small[1] * 1e-9, small[2] / small[1], small[4] / small[1],
           small[8] / small[1]);
}

static void prompt_row(bench *b, gguf_type type) {
    size_t row_bytes = (size_t)gguf_row_bytes(gguf_type_get(type), N_COL);
    bool is_float = gguf_type_get(type)->cls == GGUF_CLASS_FLOAT;
    double ops = 2.0 * N_COL * PROMPT_ROWS * PROMPT_ACTS, rate[THREAD_MAX + 1], share[THREAD_MAX + 1];
    double turn_ops = (is_float ? PEAK_F32_OPS : PEAK_INT8_OPS) * (b->isa == CPU_AVX512 ? 2.0 : 1.0);
    uint64_t turns = (uint64_t)(ops / turn_ops / 4);
    work dot = {
        .type = type, .prompt = true, .n_act = PROMPT_ACTS, .n_row = PROMPT_ROWS, .row_bytes = row_bytes};
    for (int t = 1; t <= THREAD_MAX; t++) {
        double best = 1e9, peak = 1e9;
        for (int i = 0; i < 10 * b->n_round; i++) {
            double p = seconds(b, t, (work){.peak_turns = turns, .peak_float = is_float}),
                   d = seconds(b, t, dot);
            peak = p < peak ? p : peak;
            best = d < best ? d : best;
        }
        rate[t] = ops / best * 1e-9;
        share[t] = rate[t] / (turn_ops * (double)turns * t / peak * 1e-9);
    }
    printf("%-8s prompt 1 thread %6.0f GOP/s %3.0f %% of peak  2 threads %6.0f GOP/s %3.0f %%\n",
           gguf_type_get(type)->name, rate[1], 100 * share[1], rate[2], 100 * share[2]);
}

static void machine_row(bench *b) {
    cpu_topology t;
    cpu_topology_get(&t);
    printf("%s, %s table, %d rounds\n", t.model, b->ops->name, b->n_round);
    for (int n = 1; n <= THREAD_MAX; n++) {
        double read = 1e9, i8 = 1e9, f32 = 1e9;
        uint64_t turns = 1000000;
        for (int i = 0; i < b->n_round; i++) {
            double r = seconds(b, n, (work){.read_bytes = TOKEN_BYTES}),
                   k = seconds(b, n, (work){.peak_turns = turns});
            double f = seconds(b, n, (work){.peak_turns = turns, .peak_float = true});
            read = r < read ? r : read, i8 = k < i8 ? k : i8, f32 = f < f32 ? f : f32;
        }
        double wide = b->isa == CPU_AVX512 ? 2 : 1;
        printf("%d thread%s: read %.1f GB/s, int8 %.0f GOP/s, f32 %.0f GFLOP/s\n", n, n == 1 ? "" : "s",
               TOKEN_BYTES / read * 1e-9, PEAK_INT8_OPS * wide * (double)turns * n / i8 * 1e-9,
               PEAK_F32_OPS * wide * (double)turns * n / f32 * 1e-9);
    }
}

static bool bench_init(bench *b) {
    size_t n = (size_t)PROMPT_ACTS * N_COL;
    b->w = mem_alloc_aligned(4096, TOKEN_BYTES + 4096);
    b->a =
        (quant_act){mem_alloc_aligned(64, n * 4), mem_alloc_aligned(64, n),     mem_alloc_aligned(64, n / 8),
                    mem_alloc_aligned(64, n / 8), mem_alloc_aligned(64, n / 4), N_COL};
    b->y = mem_alloc_aligned(64, (size_t)PROMPT_ROWS * PROMPT_ACTS * 4 + TOKEN_BYTES / 8);
    if (!b->w || !b->a.x || !b->a.q || !b->a.d || !b->a.s || !b->a.s16 || !b->y) return false;
    for (size_t i = 0; i < n; i++) b->a.x[i] = (float)((int)(i * 7919 % 255) - 127) / 127;
    b->ops->act_rows(&b->a, 0, PROMPT_ACTS, N_COL);
    for (int i = 0; i < THREAD_MAX; i++) {
        b->scratch[i] = mem_alloc_aligned(64, quant_prompt_scratch_bytes(N_COL));
        if (!b->scratch[i] || pool_new(&b->pool[i + 1], i + 1, NULL) != MICA_OK) return false;
    }
    return true;
}

static int usage(void) {
    fprintf(stderr, "quant_bench [--isa scalar|avx2|avx512] [--rounds N] [--role token|prompt] [TYPE...]\n");
    return 2;
}

int main(int argc, char **argv) {
    bench b = {.isa = cpu_isa_best(), .n_round = 9};
    const char *role = "";
    bool only[GGUF_TYPE_N] = {false}, any = false;
    for (int i = 1; i < argc; i++) {
        gguf_type type;
        if (strcmp(argv[i], "--isa") == 0 && i + 1 < argc && cpu_isa_parse(&b.isa, argv[i + 1]))
            i++;
        else if (strcmp(argv[i], "--rounds") == 0 && i + 1 < argc)
            b.n_round = atoi(argv[++i]);
        else if (strcmp(argv[i], "--role") == 0 && i + 1 < argc)
            role = argv[++i];
        else if (gguf_type_parse(&type, argv[i]))
            only[type] = any = true;
        else
            return usage();
    }
    if (b.isa > cpu_isa_best() || b.n_round < 1 || b.n_round > ROUND_MAX) return usage();
    b.ops = quant_ops_get(b.isa);
    if (!bench_init(&b)) {
        fprintf(stderr, "quant_bench: out of memory\n");
        return 1;
    }
    machine_row(&b);
    for (int i = 0; i < GGUF_TYPE_N; i++) {
        if ((any && !only[i]) || !b.ops->token[i]) continue;
        weights_fill(&b, (gguf_type)i);
        if (strcmp(role, "prompt") != 0) token_row(&b, (gguf_type)i);
        if (strcmp(role, "token") != 0) prompt_row(&b, (gguf_type)i);
        fflush(stdout);
    }
    return 0;
}
