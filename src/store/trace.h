/* A record of routing: which experts every row of every layer chose, for `mica eval cache`.
 *
 *     trace *t;  TRY(trace_create(&t, path, &head, err));
 *     trace_add(t, il, ids, n_row);              // where ids are known; one warning when the disk is full
 *     trace_close(t);
 *
 *     TRY(trace_read(&all, path, err)); ... trace_free(&all);
 *
 * The file, little-endian: trace_head with "MICATRC1"; n_layer u64 bytes of one expert of each layer (0: it
 * has none), which make the slabs; then records of u16 layer, u16 0, u32 n_row and u16 ids [n_row, n_used].
 * Layers follow each other in rising order; a layer that is not above the one before begins a new step.
 * Threads: worker only. */
#ifndef MICA_TRACE_H
#define MICA_TRACE_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct trace_head {
    char magic[8];
    uint64_t fingerprint; // of the model's file
    uint32_t n_layer, n_expert, n_used, zero;
} trace_head;
_Static_assert(sizeof(trace_head) == 32, "on disk");

typedef struct trace trace;

/* magic is filled in. blob_bytes [n_layer]. */
mica_status trace_create(trace **out, const char *path, const trace_head *head, const uint64_t *blob_bytes,
                         mica_error *err);
void trace_add(trace *t, uint32_t layer, const int32_t *ids, uint32_t n_row);
void trace_close(trace *t); // accepts NULL

/* Row by row: what one token after the other would have asked for, whatever the batches were. */
typedef struct trace_visits {
    trace_head head;
    uint64_t *blob_bytes; // owned, [n_layer]
    uint16_t *layers;     // owned, [n]: of each visit
    uint16_t *ids;        // owned, [n, n_used]
    size_t n;
    uint32_t first; // the lowest layer that has visits: each of them begins a token
} trace_visits;

/* MICA_E_IO, MICA_E_FORMAT: the name, and the offset where it goes wrong. A last step that was cut short is
 * left out. */
mica_status trace_read(trace_visits *out, const char *path, mica_error *err);
void trace_free(trace_visits *t);
#endif
