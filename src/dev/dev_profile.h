/* Where a step's time goes: every operation of a device timed, with the bytes and operations its arguments
 * say it needs. It stands between a device and its table of operations while it runs, costs two looks at the
 * clock a call, and changes no result. Devices in host memory only: a card's calls return before their work
 * is done.
 *
 *     TRY(dev_profile_start(&p, d, err));
 *     ...                                        // steps
 *     n = dev_profile_rows(p, rows, DEV_PROFILE_MAX);
 *     dev_profile_stop(p);
 *
 * Threads: those of the device, one at a time. */
#ifndef MICA_DEV_PROFILE_H
#define MICA_DEV_PROFILE_H

#include "dev/dev.h"

enum { DEV_PROFILE_MAX = 64 };

typedef struct dev_profile dev_profile;

/* One kind of call. Products are told apart by type and shape. */
typedef struct dev_profile_row {
    char what[48]; // "linear q4_k 2048 x 3072", "attn"
    uint64_t n_call, ns;
    uint64_t bytes; // weights, and keys, values and states of the past; 0: not counted
    uint64_t ops;   // a product and an addition are two; 0: not counted
} dev_profile_row;

/* MICA_E_ARG: not in host memory. d is borrowed until dev_profile_stop. */
mica_status dev_profile_start(dev_profile **out, dev *d, mica_error *err);
void dev_profile_stop(dev_profile *p); // accepts NULL; the device is as before
void dev_profile_clear(dev_profile *p);
/* Since the start or the last clear: rows of most time first, and the time of the steps they are part of. */
uint32_t dev_profile_rows(const dev_profile *p, dev_profile_row out[DEV_PROFILE_MAX]);
uint64_t dev_profile_step_ns(const dev_profile *p);
#endif
