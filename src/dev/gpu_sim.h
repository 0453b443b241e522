/* The simulated card's knobs, as MICA_SIM or a test sets them.
 *
 *     MICA_SIM="cards=2,arch=gfx1201,wave=32,vram=2G,link=16,latency=10"
 *
 * Comma-separated NAME=VALUE: cards, arch, wave (32 or 64; from arch when absent), mp (multiprocessors), vram
 * (bytes; K, M, G), link (GB/s of a copy to or from the host), latency (us of each copy and launch), memory
 * (GB/s of copies on the card), no_register=1 (memory of others cannot be registered). Faults, counted from
 * 1, each happens once: no_memory=N (the N-th allocation fails), lost=N (the card is gone at the N-th
 * launch), copy_error=N (the N-th copy never completes), garbage=N (the N-th launch's first result is not a
 * number). The time that events measure is the simulated one. */
#ifndef MICA_GPU_SIM_H
#define MICA_GPU_SIM_H

#include "base/status.h"

#include <stdint.h>

typedef struct sim_knobs {
    int n_card;
    char arch[32];
    uint32_t wave, n_mp;
    uint64_t vram_bytes;
    double link_gbps, memory_gbps, latency_us;
    uint64_t no_memory, lost, copy_error, garbage; // 0: never
    uint64_t no_register;
} sim_knobs;

/* NULL or "" gives the defaults. MICA_E_ARG names the knob. */
mica_status sim_knobs_parse(sim_knobs *out, const char *text, mica_error *err);
/* For tests: other knobs, counters from zero, no fault pending. No card may be open. */
mica_status gpu_sim_configure(const char *text, mica_error *err);
/* For tests: bytes, blocks and handles of a card that were taken and not given back. */
typedef struct sim_held {
    uint64_t vram_bytes;
    uint32_t n_block, n_handle;
} sim_held;
sim_held gpu_sim_held(int card);

#endif
