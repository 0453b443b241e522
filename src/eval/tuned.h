/* What `mica tune` found, kept: one small JSON file for each pair of a model's shape and a processor (or
 * card).
 *
 *     CACHE/tune/0123456789abcdef.json      the name is the hash of both descriptions, which stand inside
 *
 * A file of another pair, of another version or with values out of their range is never used. The bits of an
 * answer depend on none of these values (docs/ARITHMETIC.md), so a stale file can cost time and nothing else.
 * Threads: any. */
#ifndef MICA_EVAL_TUNED_H
#define MICA_EVAL_TUNED_H

#include "mica_tools.h"

#include <jansson.h>

typedef struct tuned_key {
    char model[200];   // "llama, 30 layers of 576, 134515008 parameters in 96576768 bytes"
    char machine[240]; // "AMD EPYC, avx2, 2 cores" or "hip:0, AMD Radeon RX 9070 XT, gfx1201"
    uint64_t n_layer, n_ctx_train;
    bool on_cpu;
} tuned_key;

/* From the header of opt->path and the device that opt asks for; loads nothing. */
mica_status tuned_key_make(tuned_key *out, const mica_load_options *opt, mica_error *err);
/* Adds "version", "model", "machine" to `result` and writes it; *path (mica_text_free) is the file. */
mica_status tuned_save(char **path, const tuned_key *key, json_t *result, mica_error *err);
#endif
