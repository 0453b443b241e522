/* Where the bytes of experts live. Today one tier: the mapped file, so a lease is a pointer into it and a pin
 * is free.
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

typedef struct store store;

mica_status store_new(store **out, const gguf_file *g, uint32_t n_layer, uint32_t n_expert, mica_error *err);
void store_free(store *s); // accepts NULL

/* The stacks of a layer, each [n_expert, n_row, n_col]. up NULL: gate holds gate rows, then up rows, for each
 * expert. */
void store_layer_set(store *s, uint32_t layer, const gguf_tensor *gate, const gguf_tensor *up,
                     const gguf_tensor *down);
expert_source *store_experts(store *s); // borrowed from s
#endif
