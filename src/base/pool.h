/* A pool of worker threads for data-parallel work: one call, n_thread parts, one barrier. It owns nothing but
 * threads.
 *
 *     pool_run(p, fn, arg);        // fn(arg, ith, n_thread) on every thread, the caller is thread 0; returns
 * when all did
 *
 * Workers spin briefly for the next call (a step has hundreds, microseconds apart), then sleep on a
 * futex-backed condition, so that an idle program costs nothing. Parts must not depend on each other, but for
 * pool_barrier. Threads are not pinned: a pinned worker cannot leave a core that another process took, and
 * the scheduler keeps a busy thread where it is anyway. Threads: one caller at a time. Results must never
 * depend on n_thread: split over rows, not over a sum. */
#ifndef MICA_BASE_POOL_H
#define MICA_BASE_POOL_H

#include "base/status.h"

#include <stdint.h>

typedef struct pool pool;
typedef void (*pool_fn)(void *arg, int ith, int n_thread);

mica_status pool_new(pool **out, int n_thread, mica_error *err); // 1 <= n_thread <= 1024
void pool_free(pool *p);                                         // accepts NULL; joins the threads
int pool_size(const pool *p);
void pool_run(pool *p, pool_fn fn, void *arg);
/* Inside a part: returns once every part of this call is here; what they wrote before is visible after. All
 * or none call. */
void pool_barrier(pool *p);

/* The half-open range of n items that part ith of n_thread takes, in multiples of `unit` but for the last. */
void pool_split(int64_t n, int64_t unit, int ith, int n_thread, int64_t *begin, int64_t *end);
#endif
