/* How fast this machine's disk gives experts of a model at random, past the page cache: the bound of decoding
 * with experts on disk.
 *
 *   build/bench/ssd_bench MODEL [SECONDS]
 *
 * Whole experts (gate, up, down) of random layers, as many in flight as src/store/store_slots.c has. Beside
 * it: `mica run --ram SIZE --json`, experts.ssd_bytes over timings.decode_ms. */
#include "base/clock.h"
#include "base/mem.h"
#include "gguf/gguf.h"
#include "store/reader.h"

#include <stdio.h>
#include <stdlib.h>

enum { IN_FLIGHT = 32, READERS = 16, LAYERS_MAX = 512 };

typedef struct layer {
    const gguf_tensor *part[3];
} layer;

static uint64_t next_random(uint64_t *s) {
    *s ^= *s >> 12;
    *s ^= *s << 25;
    *s ^= *s >> 27;
    return *s * 2685821657736338717ull;
}

static uint32_t find_layers(const gguf_file *g, layer *out) {
    static const char *const parts[] = {"ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"};
    uint32_t n = 0;
    for (uint32_t il = 0; il < LAYERS_MAX; il++) {
        char name[64];
        for (int k = 0; k < 3; k++) {
            snprintf(name, sizeof name, "blk.%u.%s.weight", il, parts[k]);
            out[n].part[k] = gguf_tensor_find(g, name);
        }
        n += out[n].part[0] && out[n].part[1] && out[n].part[2];
    }
    return n;
}

static uint64_t fill_job(reader_job *j, const layer *l, uint64_t *seed) {
    uint64_t n_expert = l->part[0]->shape[1], e = next_random(seed) % n_expert, sum = 0;
    j->n_piece = 3;
    for (int k = 0; k < 3; k++) {
        reader_piece *p = &j->piece[k];
        p->n_bytes = l->part[k]->size_bytes / n_expert;
        p->off_bytes = l->part[k]->off_bytes + e * p->n_bytes;
        p->shard = (uint32_t)l->part[k]->shard;
        sum += p->n_bytes;
    }
    return sum;
}

static mica_status measure(const gguf_file *g, double seconds, mica_error *err) {
    static layer layers[LAYERS_MAX + 1];
    static reader_job jobs[IN_FLIGHT];
    reader *r;
    uint64_t seed = 20260, n_bytes = 0, n = 0, room = 0;
    uint32_t n_layer = find_layers(g, layers);
    if (n_layer == 0) return fail(err, MICA_E_ARG, "%s: no experts", gguf_name(g));
    TRY(reader_open(&r, g, READERS, err));
    for (uint32_t i = 0; i < n_layer; i++)
        for (int k = 0; k < 3; k++) {
            uint64_t one = layers[i].part[k]->size_bytes / layers[i].part[k]->shape[1];
            if (one > room) room = one;
        }
    room = reader_room(room);
    mica_status st = MICA_OK;
    char *rooms = mem_alloc_aligned(READER_ALIGN, (size_t)(room * 3 * IN_FLIGHT));
    if (!rooms) st = fail(err, MICA_E_NOMEM, "rooms: out of memory");
    const uint64_t start = clock_ns(), end = start + (uint64_t)(seconds * 1e9);
    for (; st == MICA_OK && clock_ns() < end; n++) {
        reader_job *j = &jobs[n % IN_FLIGHT];
        if (n >= IN_FLIGHT) st = reader_wait(r, j, err);
        for (uint64_t k = 0; k < 3; k++) j->piece[k].room = rooms + (n % IN_FLIGHT * 3 + k) * room;
        n_bytes += fill_job(j, &layers[next_random(&seed) % n_layer], &seed);
        reader_submit(r, j);
    }
    for (uint64_t i = 0; i < IN_FLIGHT && i < n; i++) reader_wait(r, &jobs[i], NULL);
    double s = clock_ms_since(start) / 1e3;
    if (st == MICA_OK)
        printf("%llu experts of %.2f MB: %.3f GB/s%s\n", (unsigned long long)n,
               (double)n_bytes / (double)n / 1e6, (double)n_bytes / s / 1e9,
               reader_is_direct(r) ? "" : " (through the page cache)");
    reader_close(r);
    mem_free(rooms);
    return st;
}

int main(int argc, char **argv) {
    mica_error err;
    gguf_file *g = NULL;
    if (argc < 2) {
        fprintf(stderr, "ssd_bench MODEL [SECONDS]\n");
        return 2;
    }
    mica_status st = gguf_open(&g, argv[1], &err);
    if (st == MICA_OK) st = measure(g, argc > 2 ? atof(argv[2]) : 5.0, &err);
    if (st != MICA_OK) fprintf(stderr, "ssd_bench: %s\n", err.text);
    gguf_close(g);
    return st == MICA_OK ? 0 : 1;
}
