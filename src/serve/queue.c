/* A few hundred entries at most: a walk over an array is the fastest structure. */
#include "serve/queue.h"

#include "base/mem.h"

#include <math.h>
#include <string.h>

bool queue_init(queue *q, size_t cap) {
    *q = (queue){.at = mem_calloc(cap, sizeof *q->at), .cap = cap};
    return q->at != NULL;
}

void queue_fini(queue *q) {
    mem_free(q->at);
    *q = (queue){0};
}

bool queue_put(queue *q, const queue_entry *e, size_t n) {
    if (n > q->cap - q->n) return false;
    memcpy(q->at + q->n, e, n * sizeof *e);
    q->n += n;
    return true;
}

static void remove_at(queue *q, size_t i, queue_entry *out) {
    *out = q->at[i];
    memmove(q->at + i, q->at + i + 1, (q->n - i - 1) * sizeof *q->at);
    q->n--;
}

static size_t count(const uint64_t *running, size_t n, uint64_t client) {
    size_t k = 0;
    for (size_t i = 0; i < n; i++) k += running[i] == client;
    return k;
}

bool queue_take(queue *q, const uint64_t *running, size_t n_running, queue_entry *out) {
    size_t best = 0, fewest = SIZE_MAX;
    for (size_t i = 0; i < q->n; i++) {
        const size_t k = count(running, n_running, q->at[i].client);
        if (k >= fewest) continue;
        fewest = k;
        best = i;
    }
    if (q->n == 0) return false;
    remove_at(q, best, out);
    return true;
}

bool queue_take_if(queue *q, bool (*is)(const queue_entry *e), queue_entry *out) {
    for (size_t i = 0; i < q->n; i++) {
        if (!is(&q->at[i])) continue;
        remove_at(q, i, out);
        return true;
    }
    return false;
}

int queue_retry_s(size_t n_waiting, size_t n_slot, double mean_request_s) {
    const double s = ceil((double)n_waiting / (double)(n_slot ? n_slot : 1) * mean_request_s);
    return s < 1.0 ? 1 : s > 60.0 ? 60 : (int)s;
}
