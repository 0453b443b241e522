/* Where every byte will go, before any is taken: one pure function from sizes to a table.
 * `mica plan` prints it, engine_open takes exactly it. Threads: pure. */
#ifndef MICA_PLAN_H
#define MICA_PLAN_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum plan_what {
    PLAN_WEIGHTS,
    PLAN_KV,
    PLAN_STATE,
    PLAN_SCRATCH,
    PLAN_EXPERTS,
    PLAN_CACHE, // prefixes of all sessions
    PLAN_WHAT_N
} plan_what;
typedef enum plan_tier { PLAN_RAM, PLAN_SSD, PLAN_VRAM, PLAN_TIER_N } plan_tier;

extern const char *const plan_what_name[PLAN_WHAT_N]; // as in `plan --json`

typedef struct plan_item {
    uint64_t n_bytes, count;
} plan_item;

/* Inputs: what the model needs, what the machine has. */
typedef struct plan_request {
    uint64_t ram_total, ram_free; // bytes of the machine (or its cgroup)
    uint64_t ram_cap;             // the user's --ram; 0: ram_free less a reserve
    uint64_t weight_bytes;        // mapped from the file: what has no room is read from it again and again
    uint64_t expert_bytes;        // of these, experts
    uint64_t table_bytes;         // of these, tables that are read by the row: they stay in the file
    uint64_t n_expert;            // over all layers
    uint64_t kv_token_bytes;      // of one position of one sequence, full-context layers
    uint64_t kv_fixed_bytes;      // of one sequence: layers with a window
    uint64_t state_bytes;         // of one sequence: recurrent state
    uint64_t scratch_bytes;
    uint64_t cache_bytes; // prefix cache, as asked for
    uint32_t n_seq, n_ctx_train;
    uint32_t n_ctx; // 0: choose
    /* On a graphics card; card NULL: none. */
    const char *card;                                       // "hip:0"
    uint64_t vram_total, vram_free, vram_cap, vram_reserve; // bytes; cap and reserve 0: none asked for
    uint64_t vram_fixed_bytes;                              // scratch of the device's own
} plan_request;

typedef struct plan {
    bool fits;
    uint32_t n_ctx;       // chosen or asked for
    uint32_t nearest_ctx; // when it does not fit: the longest context that would, 0: none
    uint64_t ram_total, ram_free, ram_limit;
    plan_item item[PLAN_TIER_N][PLAN_WHAT_N];
    uint64_t n_expert, n_expert_ram, n_expert_ssd;
    uint64_t need_bytes; // what must be in RAM: cache, state, scratch and prefixes; on a card, everything
    char card[16];       // "": none; else all of the model is in its memory
    uint64_t vram_total, vram_free, vram_limit;
} plan;

enum { PLAN_CTX_MIN = 4096, PLAN_PAGE = 256 };
enum { PLAN_SCREEN_BYTES = 512 << 20 }; // left alone on a card that a screen is connected to

void plan_make(plan *out, const plan_request *req);
/* MICA_E_FIT with the numbers and the nearest context that fits; MICA_OK when it fits. */
mica_status plan_check(const plan *p, mica_error *err);
/* Memory of this machine as this process may use it: /proc/meminfo and the cgroup's limit. */
void plan_machine(uint64_t *ram_total, uint64_t *ram_free);
#endif
