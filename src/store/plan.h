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
    PLAN_RING,  // experts of a prompt on their way through the card
    PLAN_SPARE, // what the card's allocator rounds up to, and the driver's own; start-up does not ask for it
    PLAN_WHAT_N
} plan_what;
typedef enum plan_tier { PLAN_RAM, PLAN_SSD, PLAN_VRAM, PLAN_TIER_N } plan_tier;

/* How RAM holds the experts that a card has no room for. */
typedef enum plan_experts_ram {
    PLAN_RAM_AUTO,       // the first of these that fits
    PLAN_RAM_ALL,        // a copy of every expert, pinned: the card reads it over the link
    PLAN_RAM_COMPLEMENT, // of those that are not on the card
    PLAN_RAM_MMAP,       // pages of the file that the card reads; a driver that refuses gets COMPLEMENT
} plan_experts_ram;
extern const char *const plan_ram_name[]; // by plan_experts_ram: "auto", "all", "complement", "mmap"

extern const char *const plan_what_name[PLAN_WHAT_N]; // as in `plan --json`

typedef struct plan_item {
    uint64_t n_bytes, count;
} plan_item;

/* Layers whose experts take equal bytes share the slots of a slab. On a card the slots are in its memory;
 * without one they are in RAM, in front of the file. */
typedef struct plan_slab {
    uint64_t blob_bytes; // of a slot
    uint32_t n_expert;   // of all its layers together
    uint32_t n_slot;     // n_slot == n_expert: all are there
} plan_slab;

/* A configuration that fits where the one asked for does not: members that are not 0 differ from it. */
typedef struct plan_near {
    uint32_t n_ctx, n_ubatch;
    const char *kv; // a type's name, static
    plan_experts_ram experts_ram;
} plan_near;

enum { PLAN_SLAB_MAX = 16, PLAN_LAYER_MAX = 512, PLAN_NO_SLAB = 255 };

/* Inputs: what the model needs, what the machine has. */
typedef struct plan_request {
    uint64_t ram_total, ram_free; // bytes of the machine (or its cgroup)
    uint64_t ram_cap;             // the user's --ram; 0: ram_free less a reserve
    uint64_t pin_limit;           // what a card's driver may pin; 0: nothing
    uint64_t weight_bytes;        // mapped from the file: what has no room is read from it again and again
    uint64_t expert_bytes;        // of these, experts
    uint64_t table_bytes;         // of these, tables that are read by the row: they stay in the file
    uint64_t n_expert;            // over all layers
    const uint64_t *blob_bytes;   // [n_layer] of a slot that holds an expert of this layer; 0: it has none
    uint32_t n_layer, n_expert_layer, n_expert_used;
    uint64_t kv_token_bytes; // of one position of one sequence, full-context layers
    uint64_t kv_fixed_bytes; // of one sequence: layers with a window
    uint64_t state_bytes;    // of one sequence: recurrent state
    uint64_t scratch_bytes;
    uint64_t cache_bytes; // prefix cache, as asked for
    uint32_t n_seq, n_ctx_train;
    uint32_t n_ctx; // 0: choose
    /* On a graphics card; card NULL: none. */
    const char *card;                                       // "hip:0"
    uint64_t vram_total, vram_free, vram_cap, vram_reserve; // bytes; cap and reserve 0: none asked for
    uint64_t vram_fixed_bytes;                              // scratch of the device's own
    bool display, desktop, integrated; // a screen on it; that a desktop is drawn on; its memory is RAM
    plan_experts_ram experts_ram;      // as asked for
    bool tiers; // the device can do with some experts elsewhere; false: all of them must be on the card
} plan_request;

/* How start-up uses it on a card: n_slab slabs of slab[i].n_slot slots of slab[i].blob_bytes, a layer's
 * experts in slab_of[layer]; a ring of ring_bytes that prompts stream through; in RAM item[PLAN_RAM]
 * [PLAN_EXPERTS].n_bytes by experts_ram (never PLAN_RAM_AUTO). plan_all_resident: no ring, no RAM, and the
 * host is not asked. */
typedef struct plan {
    bool fits;
    uint32_t n_ctx; // chosen or asked for
    plan_near near; // plan_make finds n_ctx alone; who knows the rest looks further (run/engine.c)
    uint64_t ram_total, ram_free, ram_limit;
    plan_item item[PLAN_TIER_N][PLAN_WHAT_N];
    uint64_t n_expert, n_expert_vram, n_expert_ram, n_expert_ssd; // the best place of each
    uint64_t need_bytes; // what must be in RAM: cache, state, scratch and prefixes; on a card, in its memory
    uint64_t ram_need;   // on a card: what must be in RAM beside
    char card[16];       // "": none
    uint64_t vram_total, vram_free, vram_limit;
    bool integrated; // the card's memory is RAM
    uint32_t n_slab;
    plan_slab slab[PLAN_SLAB_MAX];
    uint8_t slab_of[PLAN_LAYER_MAX]; // PLAN_NO_SLAB: a layer without experts
    uint64_t ring_bytes;
    uint64_t pin_need, pin_limit; // of RAM beside a card: what is to be pinned, what may be
    plan_experts_ram experts_ram;
} plan;

enum { PLAN_CTX_MIN = 4096, PLAN_PAGE = 256 };
enum { PLAN_SCREEN_MIB = 700, PLAN_DESKTOP_MIB = 3072 }; // left alone on a card that draws one

void plan_make(plan *out, const plan_request *req);
/* MICA_E_FIT with the numbers and the nearest context that fits; MICA_OK when it fits. */
mica_status plan_check(const plan *p, mica_error *err);
bool plan_all_resident(const plan *p); // every expert has a slot of its own; also without experts
/* Memory of this machine as this process may use it: /proc/meminfo and the cgroup's limit. */
void plan_machine(uint64_t *ram_total, uint64_t *ram_free);
/* What drivers of cards may pin of this machine's memory: TTM's limit where there is one (by default half),
 * else all. RLIMIT_MEMLOCK binds mlock, not them. */
uint64_t plan_pin_limit(void);
bool plan_desktop(void); // somebody draws windows: a display server's socket is there
#endif
