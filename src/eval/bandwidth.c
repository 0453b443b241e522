/* Plain reads of 512 MiB, eight independent sums a thread so that the loads overlap. */
#include "eval/bandwidth.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/pool.h"
#include "mica_tools.h"

#include <string.h>

enum { BLOCK_MIB = 512 };

typedef struct read_job {
    const uint64_t *p; // [n]
    int64_t n;
    volatile uint64_t sink; // keeps the loads
} read_job;

typedef uint64_t lanes __attribute__((vector_size(32), aligned(32)));

static void read_part(void *arg, int ith, int n_thread) {
    read_job *j = arg;
    int64_t begin, end;
    pool_split(j->n, 512, ith, n_thread, &begin, &end);
    lanes s[4] = {{0}, {0}, {0}, {0}};
    for (int64_t i = begin; i + 16 <= end; i += 16) {
        const lanes *v = (const lanes *)(const void *)(j->p + i);
        s[0] ^= v[0];
        s[1] ^= v[1];
        s[2] ^= v[2];
        s[3] ^= v[3];
    }
    lanes all = s[0] ^ s[1] ^ s[2] ^ s[3];
    j->sink = all[0] ^ all[1] ^ all[2] ^ all[3];
}

double bandwidth_read_gbps(int n_thread, int rounds) {
    size_t n_bytes = (size_t)BLOCK_MIB << 20;
    pool *p;
    void *block = mem_pages_alloc(n_bytes);
    double best = 0;
    if (!block || pool_new(&p, n_thread, NULL) != MICA_OK) {
        mem_pages_free(block);
        return 0;
    }
    memset(block, 1, n_bytes); // pages that were never written are one page of zeros
    read_job j = {.p = block, .n = (int64_t)(n_bytes / 8)};
    for (int r = 0; r < rounds; r++) {
        uint64_t start = clock_ns();
        pool_run(p, read_part, &j);
        double gbps = (double)n_bytes / (double)(clock_ns() - start);
        best = gbps > best ? gbps : best;
    }
    pool_free(p);
    mem_pages_free(block);
    return best;
}

double mica_measure_read_gbps(int n_thread) {
    return bandwidth_read_gbps(n_thread, 7);
}
