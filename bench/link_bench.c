/* The link between memory and a card: what a copy of pinned memory reaches each way.
 *
 *     link_bench [hip|cuda|sim] [CARD]
 *
 * One line: GB/s to the card, GB/s back, the best of several copies of 256 MiB, by the card's own events. */
#include "dev/gpu_drv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_BYTES = 256 << 20, TURNS = 8 };

static const gpu_drv *v;

static void must(int rc) {
    if (rc == 0) return;
    fprintf(stderr, "link_bench: %s\n", v->error_name(rc));
    exit(1);
}

static double best_gbps(void *dst, void *host, void *stream, int back) {
    void *from, *to;
    float ms, best = 1e9f;
    must(v->event_new(&from, 0));
    must(v->event_new(&to, 0));
    for (int i = 0; i < TURNS; i++) {
        must(v->event_record(from, stream));
        must(back ? v->to_host(host, dst, N_BYTES, stream) : v->to_device(dst, host, N_BYTES, stream));
        must(v->event_record(to, stream));
        must(v->event_sync(to));
        must(v->event_ms(&ms, from, to));
        if (ms < best) best = ms;
    }
    must(v->event_free(from));
    must(v->event_free(to));
    return N_BYTES / (double)best * 1e-6;
}

int main(int argc, char **argv) {
    const char *kind = argc > 1 ? argv[1] : "cuda";
    int card = argc > 2 ? atoi(argv[2]) : 0;
    void *ctx, *stream, *host, *dst;
    v = gpu_drv_get(strcmp(kind, "hip") == 0 ? GPU_HIP : strcmp(kind, "sim") == 0 ? GPU_SIM : GPU_CUDA);
    if (!v->ok) {
        fprintf(stderr, "link_bench: %s\n", v->why);
        return 7;
    }
    must(v->card_open(&ctx, card));
    must(v->stream_new(&stream, GPU_STREAM_APART));
    must(v->pinned_alloc(&host, N_BYTES, GPU_HOST_MAPPED));
    must(v->mem_alloc(&dst, N_BYTES));
    memset(host, 1, N_BYTES);
    double there = best_gbps(dst, host, stream, 0), back = best_gbps(dst, host, stream, 1);
    printf("link %s:%d: %.1f GB/s to the card, %.1f GB/s back\n", kind, card, there, back);
    must(v->mem_free(dst));
    must(v->pinned_free(host));
    must(v->stream_free(stream));
    v->card_close(ctx, card);
    return 0;
}
