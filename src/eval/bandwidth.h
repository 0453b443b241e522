/* This machine's read bandwidth, the bound of decoding. Threads: one caller; uses a pool of its own. */
#ifndef MICA_BANDWIDTH_H
#define MICA_BANDWIDTH_H

/* GB/s (10^9) over a block larger than any cache with n_thread threads: the best of `rounds`. 0 when there is
 * no memory. */
double bandwidth_read_gbps(int n_thread, int rounds);
#endif
