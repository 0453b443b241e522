/* What a kernel sees of the simulated card it runs on: prelude.cuh is written on this, dev/simt.c behind it.
 * Called by the lanes of a running kernel only. */
#ifndef MICA_KERN_SIMT_LANE_H
#define MICA_KERN_SIMT_LANE_H

#include <stddef.h>
#include <stdint.h>

/* One thread of a block. */
typedef struct simt_lane {
    uint32_t thread;   // in the block
    uint32_t lane;     // in the wave
    uint32_t block[3]; // in the grid
} simt_lane;

/* Which wave operation, so that lanes that parted are noticed. */
enum { SIMT_XOR, SIMT_GET, SIMT_TREE, SIMT_MAX, SIMT_SUM, SIMT_MMA };

/* The lane that runs. */
extern _Thread_local const simt_lane *simt_me __attribute__((tls_model("initial-exec")));

/* Waits for every thread of the block. */
void simt_barrier(int line);
/* Brings n <= 4 words, waits for the lanes of the wave, and gives what each brought: lane i's at 4 i, valid
 * until the lane's next operation. NaN for lanes that are done. */
const float *simt_wave(const float *v, uint32_t n, int op);
/* Shared memory: the same bytes for all threads of a block, taken in the same order by each, aligned to 16.
 * They begin as 0xFF. */
void *simt_shared(size_t n_bytes);

#endif
