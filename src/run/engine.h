/* A loaded network with its memory: caches, page tables, scratch, logits; and the one step everything goes through.
 *
 *     engine *e;  TRY(engine_open(&e, &cfg, err));
 *     rows[i] = (row_info){.tok = 5, .seq = 0, .pos = 9, .out = -1};      // .out >= 0: this row's logits are wanted
 *     TRY(engine_step(e, rows, n_row, n_prompt, err));
 *     const float *l = engine_logits(e, out);                             // [n_vocab] of the row whose .out it was
 *
 * Everything is sized by engine_plan and taken in engine_open; a step allocates nothing. Threads: worker only.
 * Ownership: the gguf_file is borrowed and outlives the engine. */
#ifndef MICA_ENGINE_H
#define MICA_ENGINE_H

#include "model/model.h"
#include "store/plan.h"

typedef struct engine_config {
    const gguf_file *g;
    dev_kind dev;
    cpu_isa isa;
    int n_thread;
    uint32_t n_ctx, n_seq, n_ubatch; // n_ctx 0: chosen by the plan
    kv_type kv;
    uint64_t ram_bytes; // cap; 0: what is free
} engine_config;

typedef struct engine engine;

enum { ENGINE_WINDOW_MAX = 8 }; // rows of one sequence in a decode step: a token and up to 7 drafts

mica_status engine_open(engine **out, const engine_config *cfg, mica_error *err); // MICA_E_FIT: with the numbers
void engine_close(engine *e);                                                    // accepts NULL
/* What engine_open would take, without taking it. */
mica_status engine_plan(plan *out, const engine_config *cfg, mica_error *err);

const model_shape *engine_shape(const engine *e);
const plan *engine_plan_of(const engine *e);
const char *engine_device(const engine *e); // for people
uint32_t engine_row_max(const engine *e);   // rows of a step
uint32_t engine_ubatch(const engine *e);    // rows of a prompt chunk, as configured
uint32_t engine_out_max(const engine *e);   // rows of a step whose logits can be had

/* rows[0, n_prompt) are prompt role, the rest token role. Every row's .seq, .pos, .tok is in range (asserted), .out is -1
 * or counts up from 0 in row order. Waits for the logits. */
mica_status engine_step(engine *e, const row_info *rows, uint32_t n_row, uint32_t n_prompt, mica_error *err);
const float *engine_logits(const engine *e, uint32_t out); // borrowed until the next step
#endif
