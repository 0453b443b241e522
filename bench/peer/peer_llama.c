/* Times a GGUF file through libllama the way `mica bench` times it through libmica: a prompt of N random ids,
 * then M random ids one by one, each with its logits. peers.py builds it with a peer's headers.
 *
 *     peer_llama FILE THREADS N M
 * Prints {"pp": tokens a second, "tg": tokens a second} on stdout. */
#include "llama.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void only_errors(enum ggml_log_level level, const char *text, void *user) {
    (void)user;
    if (level == GGML_LOG_LEVEL_ERROR) fputs(text, stderr);
}

static void random_ids(llama_token *ids, int n, int n_vocab, unsigned *seed) {
    for (int i = 0; i < n; i++) {
        *seed = *seed * 1664525u + 1013904223u;
        ids[i] = (llama_token)((*seed >> 8) % (unsigned)n_vocab);
    }
}

/* Decodes n ids at once; -1 when it fails. */
static double prompt_tps(struct llama_context *ctx, llama_token *ids, int n) {
    llama_memory_clear(llama_get_memory(ctx), true);
    const double start = now();
    if (llama_decode(ctx, llama_batch_get_one(ids, n))) return -1;
    llama_synchronize(ctx);
    return n / (now() - start);
}

/* One id before the clock starts, then n ids one by one; -1 when it fails. */
static double token_tps(struct llama_context *ctx, llama_token *ids, int n) {
    llama_memory_clear(llama_get_memory(ctx), true);
    if (llama_decode(ctx, llama_batch_get_one(ids, 1))) return -1;
    llama_synchronize(ctx);
    const double start = now();
    for (int i = 0; i < n; i++) {
        if (llama_decode(ctx, llama_batch_get_one(&ids[1 + i], 1))) return -1;
        llama_synchronize(ctx);
    }
    return n / (now() - start);
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    const int n_thread = atoi(argv[2]), n_prompt = atoi(argv[3]), n_gen = atoi(argv[4]);
    const int n_most = n_prompt > n_gen + 1 ? n_prompt : n_gen + 1;
    unsigned seed = (unsigned)time(NULL);
    llama_log_set(only_errors, NULL);
    llama_backend_init();
    struct llama_model_params mp = llama_model_default_params();
    mp.n_gpu_layers = 0;
    struct llama_model *m = llama_model_load_from_file(argv[1], mp);
    if (!m) return 1;
    struct llama_context_params cp = llama_context_default_params();
    cp.n_ctx = (uint32_t)n_most + 16;
    cp.n_batch = cp.n_ubatch = (uint32_t)(n_prompt > 8 ? n_prompt : 8);
    cp.n_threads = cp.n_threads_batch = n_thread;
    struct llama_context *ctx = llama_init_from_model(m, cp);
    if (!ctx) return 1;
    const int n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(m));
    llama_token *ids = malloc(sizeof *ids * (size_t)n_most);
    if (!ids) return 1;
    double pp = 0, tg = 0;
    for (int round = 0; round < 2; round++) { // the first one warms up: pages, caches, clock speed
        random_ids(ids, n_most, n_vocab, &seed);
        pp = prompt_tps(ctx, ids, n_prompt);
        tg = token_tps(ctx, ids, n_gen);
    }
    printf("{\"pp\": %.3f, \"tg\": %.3f}\n", pp, tg);
    free(ids);
    llama_free(ctx);
    llama_model_free(m);
    return pp < 0 || tg < 0;
}
