/* What a server lives on: tokens a second of one answer and of eight side by side, and the time to the first
 * token of a prompt, cold and with most of it in the prefix cache.
 *
 *     step_bench MODEL.gguf [THREADS]
 *
 * Medians of five turns. The prompt has 1,000 tokens, 950 of them cached. Shares are what counts: both halves
 * of each were measured in one run. */
#include "mica.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>

enum { N_SEQ = 8, N_TURN = 5, N_PROMPT = 1000, N_CACHED = 950, N_GEN = 32 };

static mica_error g_err;

static void must(mica_status st) {
    if (st == MICA_OK) return;
    fprintf(stderr, "step_bench: %s\n", g_err.text);
    exit(1);
}

static int falling(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

static double median(double *x) {
    qsort(x, N_TURN, sizeof *x, falling);
    return x[N_TURN / 2];
}

/* Token ids that no two turns share, but for the first n_same. */
static void fill(int32_t *ids, size_t n, size_t n_same, uint32_t turn, uint32_t n_vocab) {
    for (size_t i = 0; i < n; i++)
        ids[i] = (int32_t)((i * 2654435761u + (i < n_same ? 0 : turn * 977u + 1)) % (n_vocab / 2));
}

static mica_step_item item_of(mica_session *s, int32_t n_predict) {
    return (mica_step_item){.session = s, .n_prompt = N_PROMPT, .n_predict = n_predict, .ignore_end = true};
}

/* Tokens a second over all of n answers. */
static double decode_rate(mica_session **s, size_t n, uint32_t turn, uint32_t n_vocab) {
    mica_step_item it[N_SEQ];
    int32_t ids[16];
    uint64_t made = 0;
    for (size_t q = 0; q < n; q++) {
        fill(ids, 16, 0, turn * N_SEQ + (uint32_t)q, n_vocab);
        must(mica_session_begin(s[q], ids, 16, NULL, NULL, &g_err));
        it[q] = item_of(s[q], N_GEN);
    }
    must(mica_step(it, n, &g_err)); // the prompts
    uint64_t start = clock_ns();
    while (it[0].finish == MICA_FINISH_NONE) {
        must(mica_step(it, n, &g_err));
        for (size_t q = 0; q < n; q++) made += it[q].n_id;
    }
    return (double)made * 1000.0 / clock_ms_since(start);
}

/* Milliseconds to the first token. */
static double first_token(mica_session *s, const int32_t *ids, size_t *n_cached) {
    mica_step_item it = item_of(s, 1);
    mica_reuse r;
    uint64_t start = clock_ns();
    must(mica_session_begin(s, ids, N_PROMPT, NULL, &r, &g_err));
    while (it.finish == MICA_FINISH_NONE) must(mica_step(&it, 1, &g_err));
    *n_cached = r.n_cached;
    return clock_ms_since(start);
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: step_bench MODEL.gguf [THREADS]\n");
        return 2;
    }
    mica_load_options o = {.path = argv[1], .n_ctx = 2048, .n_seq = N_SEQ, .cache_bytes = (uint64_t)1 << 30};
    o.n_thread = argc > 2 ? atoi(argv[2]) : 0;
    mica_model *m;
    mica_session *s[N_SEQ];
    mica_model_info info;
    double one[N_TURN], all[N_TURN], cold[N_TURN], warm[N_TURN];
    size_t n_cold = 0, n_warm = 0;
    int32_t ids[N_PROMPT];
    must(mica_model_load(&m, &o, &g_err));
    mica_model_get_info(m, &info);
    for (int q = 0; q < N_SEQ; q++) must(mica_session_new(&s[q], m, &g_err));
    for (uint32_t t = 0; t < N_TURN; t++) {
        one[t] = decode_rate(s, 1, 2 * t, info.n_vocab);
        all[t] = decode_rate(s, N_SEQ, 2 * t + 1, info.n_vocab);
        fill(ids, N_PROMPT, 0, 1000 + t, info.n_vocab);
        cold[t] = first_token(s[0], ids, &n_cold);
        for (int i = N_CACHED; i < N_PROMPT; i++) ids[i] = (ids[i] + 1) % (int32_t)(info.n_vocab / 2);
        warm[t] = first_token(s[1], ids, &n_warm); // a session that has not seen it
    }
    double a = median(one), b = median(all), c = median(cold), d = median(warm);
    printf("%s on %s\n", info.name, info.device);
    printf("decode: 1 answer %.1f t/s, %d answers %.1f t/s: %.2f times\n", a, N_SEQ, b, b / a);
    printf("first token of %d: cold %.1f ms (%zu cached), warm %.1f ms (%zu cached): %.1f %%\n", N_PROMPT, c,
           n_cold, d, n_warm, 100.0 * d / c);
    for (int q = 0; q < N_SEQ; q++) mica_session_free(s[q]);
    mica_model_free(m);
    return 0;
}
