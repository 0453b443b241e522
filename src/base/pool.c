/* The pool: an epoch counter the workers watch, a countdown the caller watches.
 *
 *     caller: write job, bump epoch, wake sleepers, do part 0, wait until n_left is 0
 *     worker: spin on epoch, else sleep; do its part; n_left--
 *
 * Spinning is bounded (about 20 us), and shorter once threads outnumber the processors we may run on: a
 * spinning waiter then holds the core that the last worker needs. */
#include "base/pool.h"
#include "base/cpu.h"
#include "base/mem.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef struct worker {
    pool *p;
    int ith;
    pthread_t thread;
} worker;

struct pool {
    int n_thread, n_started;
    int n_spin;      // turns of the waiting loop before sleeping
    worker *workers; // owned, [n_thread - 1]
    pool_fn fn;      // written before epoch is bumped, read after it is seen
    void *arg;
    _Alignas(64) _Atomic uint32_t epoch;    // futex word of the workers
    _Alignas(64) _Atomic uint32_t n_left;   // futex word of the caller
    _Alignas(64) _Atomic uint32_t n_asleep; // workers in the futex
    _Alignas(64) _Atomic uint32_t n_here;   // parts in the barrier
    _Alignas(64) _Atomic uint32_t phase;    // barriers passed; futex word of those who wait in one
    _Atomic uint32_t n_barrier_asleep;
    _Atomic uint32_t caller_asleep;
    _Atomic bool stop;
};

static void futex_wait(_Atomic uint32_t *word, uint32_t seen) {
    syscall(SYS_futex, (uint32_t *)word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}
static void futex_wake(_Atomic uint32_t *word) {
    syscall(SYS_futex, (uint32_t *)word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static inline void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static void wait_epoch(pool *p, uint32_t seen) {
    for (int i = 0; i < p->n_spin; i++) {
        if (atomic_load_explicit(&p->epoch, memory_order_acquire) != seen) return;
        relax();
    }
    atomic_fetch_add(&p->n_asleep, 1);
    while (atomic_load(&p->epoch) == seen) futex_wait(&p->epoch, seen);
    atomic_fetch_sub(&p->n_asleep, 1);
}

static void *worker_main(void *user) {
    worker *w = user;
    pool *p = w->p;
    for (uint32_t seen = 0;;) {
        wait_epoch(p, seen);
        seen = atomic_load_explicit(&p->epoch, memory_order_acquire);
        if (atomic_load_explicit(&p->stop, memory_order_relaxed)) return NULL;
        p->fn(p->arg, w->ith, p->n_thread);
        if (atomic_fetch_sub(&p->n_left, 1) == 1 && atomic_load(&p->caller_asleep)) futex_wake(&p->n_left);
    }
}

static void post(pool *p) {
    atomic_fetch_add(&p->epoch, 1);
    if (atomic_load(&p->n_asleep) > 0) futex_wake(&p->epoch);
}

mica_status pool_new(pool **out, int n_thread, mica_error *err) {
    *out = NULL;
    if (n_thread < 1 || n_thread > 1024)
        return fail(err, MICA_E_ARG, "threads: %d: must be between 1 and 1024", n_thread);
    pool *p = mem_alloc_aligned(64, sizeof *p);
    if (!p) return fail(err, MICA_E_NOMEM, "thread pool: out of memory");
    memset(p, 0, sizeof *p);
    p->n_thread = n_thread;
    p->workers = mem_calloc((size_t)n_thread, sizeof *p->workers);
    if (!p->workers) {
        pool_free(p);
        return fail(err, MICA_E_NOMEM, "thread pool: out of memory");
    }
    cpu_topology topo;
    cpu_topology_get(&topo);
    bool roomy = n_thread <= topo.n_logical && (topo.n_quota == 0 || n_thread <= topo.n_quota);
    p->n_spin = roomy ? 4000 : 50;
    for (int i = 1; i < n_thread; i++) {
        worker *w = &p->workers[i - 1];
        *w = (worker){.p = p, .ith = i};
        if (pthread_create(&w->thread, NULL, worker_main, w) != 0) {
            pool_free(p);
            return fail(err, MICA_E_NOMEM, "thread pool: start thread %d of %d: no resources", i + 1,
                        n_thread);
        }
        p->n_started++;
    }
    *out = p;
    return MICA_OK;
}

void pool_free(pool *p) {
    if (!p) return;
    atomic_store(&p->stop, true);
    post(p);
    for (int i = 0; i < p->n_started; i++) pthread_join(p->workers[i].thread, NULL);
    mem_free(p->workers);
    mem_free(p);
}

int pool_size(const pool *p) {
    return p->n_thread;
}

void pool_run(pool *p, pool_fn fn, void *arg) {
    if (p->n_thread == 1) {
        fn(arg, 0, 1);
        return;
    }
    p->fn = fn;
    p->arg = arg;
    atomic_store_explicit(&p->n_left, (uint32_t)p->n_thread - 1, memory_order_relaxed);
    post(p);
    fn(arg, 0, p->n_thread);
    for (int i = 0; i < p->n_spin; i++) {
        if (atomic_load_explicit(&p->n_left, memory_order_acquire) == 0) return;
        relax();
    }
    atomic_store(&p->caller_asleep, 1);
    for (uint32_t left; (left = atomic_load(&p->n_left)) != 0;) futex_wait(&p->n_left, left);
    atomic_store(&p->caller_asleep, 0);
}

/* The last to come opens the barrier. Its reset of n_here is ordered before the new phase, so that the next
 * barrier of the same call counts from zero. */
void pool_barrier(pool *p) {
    if (p->n_thread == 1) return;
    uint32_t seen = atomic_load_explicit(&p->phase, memory_order_relaxed);
    if (atomic_fetch_add(&p->n_here, 1) + 1 == (uint32_t)p->n_thread) {
        atomic_store_explicit(&p->n_here, 0, memory_order_relaxed);
        atomic_store(&p->phase, seen + 1);
        if (atomic_load(&p->n_barrier_asleep) > 0) futex_wake(&p->phase);
        return;
    }
    for (int i = 0; i < p->n_spin; i++) {
        if (atomic_load_explicit(&p->phase, memory_order_acquire) != seen) return;
        relax();
    }
    atomic_fetch_add(&p->n_barrier_asleep, 1);
    while (atomic_load(&p->phase) == seen) futex_wait(&p->phase, seen);
    atomic_fetch_sub(&p->n_barrier_asleep, 1);
}

void pool_split(int64_t n, int64_t unit, int ith, int n_thread, int64_t *begin, int64_t *end) {
    int64_t n_unit = (n + unit - 1) / unit;
    *begin = n_unit * ith / n_thread * unit;
    *end = n_unit * (ith + 1) / n_thread * unit;
    if (*end > n) *end = n;
    if (*begin > n) *begin = n;
}
