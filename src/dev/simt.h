/* The simulated card's processor: runs a kernel of src/kern, compiled for this machine at either wave width.
 *
 *     simt_call c = {.kernel = GPU_K_norm_rows, .grid = {n_row, 1, 1}, .n_thread = 256, .args = &job, ...};
 *     if (!simt_run(32, &c, why, sizeof why)) ...
 *
 * Every thread of a block is a fibre that runs until the next barrier or wave operation; blocks run one after
 * the other. Threads that part (some at a barrier, others at a wave operation or another line) are an error
 * with both places named. Shared memory begins as NaN in every block. The order in which threads run between
 * two meetings is turned with each block, so that a missing barrier shows. Threads: any one at a time; each
 * host thread has its own fibres. */
#ifndef MICA_DEV_SIMT_H
#define MICA_DEV_SIMT_H

#include "kern/list.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SIMT_THREADS_MAX = 1024, SIMT_SHARED_MAX = 48 * 1024 };

typedef struct simt_kernel {
    const char *name;
    void (*lane)(const void *args); // one thread
    uint32_t n_args, n_thread;      // bytes of the record; threads of a block, at most
} simt_kernel;

/* The kernels in the order of kern/list.h, for waves of 32 and of 64. */
extern const simt_kernel simt_kernels_32[], simt_kernels_64[];

typedef struct simt_call {
    uint32_t kernel, grid[3], n_thread; // index in the list; blocks are one-dimensional
    const void *args;
    size_t n_args;
} simt_call;

/* Runs a kernel to its end. false: `why` says what it did wrong. */
bool simt_run(uint32_t wave, const simt_call *c, char *why, size_t n_why);
/* The same with a kernel that is not in the list, for tests. */
bool simt_run_kernel(uint32_t wave, const simt_kernel *k, const simt_call *c, char *why, size_t n_why);

#endif
