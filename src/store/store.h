/* Where the bytes of experts live: in the mapped file, where a lease is a pointer into it and a pin is free;
 * or, when memory has no room for all of them, in slots that are read from the file (store_slots_take), where
 * a lease pins its slot and may wait for the disk.
 *
 *     store *s;  TRY(store_new(&s, g, n_layer, n_expert, err));
 *     store_layer_set(s, il, gate, up, down);           // while binding
 *     expert_source *src = store_experts(s);            // what the device leases from
 *
 * Threads: worker only. Ownership: tensors are borrowed from the gguf_file. */
#ifndef MICA_STORE_H
#define MICA_STORE_H

#include "dev/dev.h"
#include "gguf/gguf.h"
#include "store/plan.h"

typedef struct store store;

mica_status store_new(store **out, const gguf_file *g, uint32_t n_layer, uint32_t n_expert, mica_error *err);
void store_free(store *s); // accepts NULL

/* The stacks of a layer, each [n_expert, n_row, n_col]. up NULL: gate holds gate rows, then up rows, for each
 * expert. */
void store_layer_set(store *s, uint32_t layer, const gguf_tensor *gate, const gguf_tensor *up,
                     const gguf_tensor *down);
expert_source *store_experts(store *s); // borrowed from s

/* Slots as planned for a machine without a card (plan.h: slab, slab_of; of store_blob_room bytes), taken and
 * filled with what `use` (NULL: nothing is known; [n_layer, n_expert] uses worth `tokens`) says. After all
 * layers are set. MICA_E_IO: the disk; later a lease tells the same way, naming file and offset, and holds
 * nothing. */
mica_status store_slots_take(store *s, const plan *p, const float *use, double tokens, mica_error *err);
uint64_t store_blob_room(const dev_expert_shape *e); // of a slot that holds one of these

/* Since store_slots_take. A use is a call's need of an expert, whatever its rows. */
typedef struct store_stats {
    uint64_t n_use, n_hit;
    uint64_t ssd_bytes; // read from the file
    uint64_t wait_ns;   // that leases waited for it
    uint32_t n_slot;    // 0: no slots
    bool direct;        // past the page cache
} store_stats;
store_stats store_stats_get(const store *s);
#endif
