/* Random-weight models with the real shapes of docs/MODELS.md: for benchmarks, for tests of every layout and
 * type, and for anything that needs a model's bytes but not its knowledge.
 *
 *     mica_synth_options o = {.preset = "qwen3-0.6b", .quant = "q4_k_m", .seed = 1};
 *     synth_report r;
 *     TRY(synth_write(&o, "m.gguf", &r, err));
 *
 * The same options give the same bytes. Weights are valid blocks drawn at random whose values have the
 * spread 1/sqrt(n_col), so that activations stay finite; data is streamed, memory stays at a few MiB for any
 * size. The vocabulary is a working byte-level BPE padded to the model's size, or that of another GGUF.
 * Threads: synth_write may run in several threads on different paths. */
#ifndef MICA_EVAL_SYNTH_H
#define MICA_EVAL_SYNTH_H

#include "gguf/type.h"
#include "mica_tools.h"

typedef struct synth_report {
    uint64_t n_param;
    uint64_t n_tensor;
    uint64_t file_bytes;              // 0 after a dry run
    uint64_t data_bytes;              // of tensors, without padding
    uint64_t token_bytes;             // of weights that decoding one token reads (experts: the used ones)
    uint64_t type_bytes[GGUF_TYPE_N]; // data_bytes by type
} synth_report;

/* Writes the model to path (not touched when o->dry_run) and fills *out, which may be NULL.
 * MICA_E_ARG: unknown preset, quant or key, a shape that does not work out; the text names it and what there
 * is. o->preset NULL or quant NULL is MICA_E_ARG. progress gets ("write", bytes done, bytes in all). */
mica_status synth_write(const mica_synth_options *o, const char *path, synth_report *out, mica_error *err);

/* What can be asked for: i counts from 0, NULL past the end. */
const char *synth_preset_name(size_t i);
const char *synth_preset_about(size_t i); // "Llama-3.2-1B", "made up, for tests", ...
const char *synth_quant_name(size_t i);
const char *synth_key_name(size_t i); // of --set KEY=N
#endif
