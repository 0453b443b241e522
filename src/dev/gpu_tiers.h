/* What gpu_tiers.c and gpu_moves.c share: where each expert of a model is, on a card and beside it.
 *
 * Kernels find an expert through a table in device memory, one entry an expert: three addresses, either in a
 * slot of the card's memory or in host memory that is mapped for the card. The table is the only thing they
 * know, so a step is the same launches, and the same bits, wherever the bytes are. It changes between steps,
 * in the stream that steps run in, and a slot is written in a second stream only after the step that last
 * used its old bytes. */
#ifndef MICA_GPU_TIERS_H
#define MICA_GPU_TIERS_H

#include "dev/gpu_own.h"

/* One expert. */
typedef struct tier_place {
    uint32_t slot;   // of its slab, EXPERT_NOBODY: in none
    uint32_t ram;    // of its slab's pinned slots, EXPERT_NOBODY: in none
    gpu_expert file; // EXPERT_RAM_MMAP: the file's bytes as the host sees them
    gpu_expert card; // and as the card does
} tier_place;

typedef struct tier_layer {
    dev_expert_shape s;
    uint32_t slab;
    size_t up_at, down_at; // within a blob
    tier_place *places;    // owned, [n_expert]; NULL: no experts here
    uint32_t table;        // index of its first entry in the table
    bool trunk;            // steps of the network itself come by here
} tier_layer;

/* Slots for experts of one size, on the card and in pinned memory. */
typedef struct tier_slab {
    size_t blob_bytes;
    uint32_t n_expert, n_slot, n_ram;
    char *slots;     // device, [n_slot]
    char **ram;      // owned list of owned pinned pieces, ram_piece slots each
    char **ram_card; // the same as the card sees them
    uint32_t n_piece, ram_piece;
    uint32_t *spare; // owned: pinned slots that hold nobody (EXPERT_RAM_COMPLEMENT)
    uint32_t n_spare;
} tier_slab;

typedef enum move_state { MOVE_FREE, MOVE_ASKED, MOVE_OUT, MOVE_IN, MOVE_DONE } move_state;

typedef struct tier_move {
    dev_expert_move m;
    move_state state;
    uint32_t ram;  // pinned slot that the leaving one goes to
    void *arrived; // owned event: the copy on its way
} tier_move;

/* Half of the ring that prompts stream through. */
typedef struct ring_half {
    char *at;              // device
    gpu_expert *table;     // device, [n_table]: of the layer it was filled for
    void *arrived, *freed; // owned events: it is filled; nobody reads it any more
    uint32_t layer, n;     // filled for, EXPERT_NOBODY: none; so many of its experts that have no slot
} ring_half;

typedef struct tier_stream {
    bool there, on, trunk, known; // on: this step streams; known: which layers are the trunk's
    ring_half half[2];
    size_t half_bytes;
    gpu_expert *list; // owned, pinned, [n_expert] of all layers: what the halves' tables are sent from
    uint32_t n_table; // experts of a layer, at most
} tier_stream;

typedef struct tier_range {
    char *host, *card;
    size_t n;
} tier_range;

struct gpu_tiers {
    dev_expert_ram ram;
    bool taken, all_in_slots;
    tier_layer layer[EXPERT_LAYERS_MAX];
    tier_slab slab[EXPERT_SLABS_MAX];
    uint32_t n_layer, n_slab, n_expert; // n_expert: over all layers
    gpu_expert *table;                  // device, [n_expert]
    tier_range *ranges;                 // owned: registered pages of the file
    uint32_t n_range;
    expert_lease *leases; // owned, [n_lease]: of EXPERT_RAM_MMAP, held for good
    uint32_t n_lease;
    void *stream, *turned; // owned: of moves; event: the step's stream has the newest table
    tier_move move[EXPERT_MOVES_MAX];
    int32_t *log; // owned, pinned, [n_layer, limits.n_row, n_used]: what rows chose; -1: nothing
    int32_t *log_card;
    uint32_t log_rows; // that steps since the last look had, at most
    bool log_prompt;   // prompt rows among them
    tier_stream ring;
    dev_expert_stats stats;
};

/* Addresses of the parts of a blob. */
gpu_expert tier_blob(const tier_layer *l, const char *at);
char *tier_slot(const tier_slab *s, uint32_t slot);
char *tier_ram(const tier_slab *s, uint32_t ram, bool card);
/* What kernels read. */
gpu_expert tier_entry(const gpu_tiers *t, const tier_layer *l, uint32_t expert);

mica_status gpu_experts_bind(dev *d, const dev_expert_shape *s, mica_error *err);
mica_status gpu_experts_take(dev *d, dev_expert_slabs *s, mica_error *err);
mica_status gpu_experts_fill(dev *d, const dev_expert_move *m, uint32_t n, mica_error *err);
void gpu_tiers_fini(gpu *g);

/* ---- gpu_moves.c ---- */
mica_status gpu_moves_new(gpu *g, mica_error *err);
void gpu_moves_fini(gpu *g);
/* An expert's bytes, from where host memory has them, to a blob on the card, in the second stream. */
int gpu_expert_copy(gpu *g, const tier_layer *l, uint32_t expert, char *to);
uint32_t gpu_experts_move(dev *d, const dev_expert_move *m, uint32_t n);
uint32_t gpu_experts_moved(dev *d, dev_expert_move *out, uint32_t max);
void gpu_experts_stats(dev *d, dev_expert_stats *out);
mica_status gpu_moves_turn(gpu *g, const dev_step *s, mica_error *err); // between steps
void gpu_moves_look(gpu *g);                                            // after a sync: what rows chose

/* ---- gpu_stream.c ---- */
mica_status gpu_stream_new(gpu *g, size_t ring_bytes, mica_error *err);
void gpu_stream_fini(gpu *g);
mica_status gpu_stream_begin(gpu *g, const dev_step *s, mica_error *err); // between steps, behind the turn
/* The table of a layer whose missing experts are in the ring, in place of *out. */
mica_status gpu_stream_table(gpu *g, uint32_t layer, const gpu_expert **out, mica_error *err);
mica_status gpu_stream_used(gpu *g, uint32_t layer, mica_error *err); // the layer's kernels are enqueued
#endif
