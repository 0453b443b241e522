/* A loaded network with its memory: caches, page tables, scratch, logits; and the one step everything goes
 * through.
 *
 *     engine *e;  TRY(engine_open(&e, &cfg, err));
 *     rows[i] = (row_info){.tok = 5, .seq = 0, .pos = 9, .out = -1};      // .out >= 0: this row's logits are
 * wanted TRY(engine_step(e, rows, n_row, n_prompt, err)); const float *l = engine_logits(e, out); //
 * [n_vocab] of the row whose .out it was
 *
 * Everything is sized by engine_plan and taken in engine_open; a step allocates nothing. Threads: worker
 * only. Ownership: the gguf_file is borrowed and outlives the engine. */
#ifndef MICA_ENGINE_H
#define MICA_ENGINE_H

#include "model/model.h"
#include "run/tiers.h"
#include "store/plan.h"

typedef struct engine_config {
    const gguf_file *g;
    dev_kind dev;
    cpu_isa isa;
    int n_thread;
    uint32_t n_ctx, n_seq, n_ubatch; // n_ctx 0: chosen by the plan
    kv_type kv;
    uint64_t ram_bytes;                // cap; 0: what is free
    uint64_t cache_bytes;              // of the plan, for a prefix cache beside the engine
    int card;                          // which of a kind of graphics cards
    uint64_t vram_bytes, vram_reserve; // cap, and what is left alone; 0: as the plan thinks fit
    plan_experts_ram experts_ram;
    const char *profile_path; // learned use of experts; NULL: in the cache folder, and only with tiers
    const char *trace_path;   // record routing there; NULL: do not
    void (*loaded)(void *user, uint64_t n_bytes,
                   uint64_t n_total); // weights on the card so far; NULL: nobody asks
    void *loaded_user;
    bool draft; // keep what the model's own draft block needs, when it has one
} engine_config;

typedef struct engine engine;

mica_status engine_open(engine **out, const engine_config *cfg,
                        mica_error *err); // MICA_E_FIT: with the numbers
void engine_close(engine *e);             // accepts NULL
/* What engine_open would take, without taking it. */
mica_status engine_plan(plan *out, const engine_config *cfg, mica_error *err);

const model_shape *engine_shape(const engine *e);
const plan *engine_plan_of(const engine *e);
const char *engine_device(const engine *e);                  // for people
void engine_tiers(const engine *e, tiers_total *out);        // any thread
void engine_experts(const engine *e, dev_expert_stats *out); // since it was opened
dev *engine_dev(engine *e);                                  // borrowed; for measuring, never to compute with
uint32_t engine_row_max(const engine *e);                    // rows of a step
uint32_t engine_ubatch(const engine *e);                     // rows of a prompt chunk, as configured
uint32_t engine_out_max(const engine *e);                    // rows of a step whose logits can be had

/* Rows of one sequence stand together, in rising position, and are of one role. Two or more token rows of a
 * sequence are a window: a token and drafts after it, which engine_accept may take back. rows[0, n_prompt)
 * are prompt role, the rest token role. Every row's .seq, .pos, .tok is in range (asserted), .out is -1 or
 * counts up from 0 in row order. Waits for the logits. */
mica_status engine_step(engine *e, const row_info *rows, uint32_t n_row, uint32_t n_prompt, mica_error *err);
/* After a step with token rows of `seq`: only its first n happened. Must be called before the next step of
 * the sequence. */
mica_status engine_accept(engine *e, int32_t seq, uint32_t n, mica_error *err);
/* Counts steps: rows of the last step can be named in draft_rows only while this has not moved. */
uint64_t engine_step_count(const engine *e);
int32_t engine_row_of(const engine *e, int32_t seq); // first row of the sequence in its last step

/* One pair for the draft block: token `tok` at position pos + 1 with the trunk's output at pos. */
typedef struct draft_row {
    int32_t tok, seq, pos;
    /* Row of the last step, or DRAFT_KEPT: the sequence's last accepted row. In a chain: which of the wanted
     * rows of the call before it continues; that one's own output stands for h. */
    int32_t h_row;
    bool want; // its logits are wanted
} draft_row;
enum { DRAFT_KEPT = -1 };

bool engine_drafts(const engine *e); // the model has a draft block and the configuration wants it
/* Runs the draft block over n rows; logits of the wanted ones are engine_logits(e, 0), (e, 1) ... */
mica_status engine_draft(engine *e, const draft_row *rows, uint32_t n, bool chain, mica_error *err);
/* A sliding window's cache is a ring, so a sequence can be cut to n tokens only while the ring still holds
 * the window before position n: n = 0 or n >= this. */
uint32_t engine_rewind_min(const engine *e, int32_t seq);
/* Recurrent state is gone with the positions: before a sequence goes back to position 0 it is cleared; to an
 * earlier position it can go only by a snapshot. */
bool engine_has_state(const engine *e);
size_t engine_state_bytes(const engine *e); // of a snapshot; 0: none needed
mica_status engine_state_save(engine *e, int32_t seq, void *host,
                              mica_error *err); // not after an unfinished window
mica_status engine_state_load(engine *e, int32_t seq, const void *host,
                              mica_error *err); // host NULL: the empty state
/* With the regions below all there is to know of a sequence. */
typedef struct engine_log {
    uint32_t n_commit,
        bank;        // rows of the last window that the state has still to take in; the log half they are in
    uint32_t n_seen; // positions ever written: engine_rewind_min
} engine_log;
engine_log engine_log_get(const engine *e, int32_t seq);
void engine_log_set(engine *e, int32_t seq, const engine_log *l);
uint32_t engine_ring_slots(const engine *e); // pages of a sliding window's ring; 0: the model has none
typedef struct engine_page_args {
    int32_t seq;
    uint32_t page, n_pos; // n_pos <= KV_PAGE
    bool window;
} engine_page_args;
/* Every stretch of device memory that holds the first n positions of a sequence: recurrent state, then cache
 * pages. */
typedef mica_status engine_region_fn(void *user, void *at, size_t n_bytes, mica_error *err);
mica_status engine_regions(engine *e, int32_t seq, uint64_t n, engine_region_fn *fn, void *user,
                           mica_error *err);
/* The recurrent state alone, to be copied out or written whole: no window may be unfinished. */
mica_status engine_state_region(engine *e, int32_t seq, engine_region_fn *fn, void *user, mica_error *err);
/* The same of one page of the cache, its first n_pos positions: for a copy of it that other sequences can
 * begin from. Stretches come in one order and of one size whatever the sequence; `at` is NULL for those of a
 * sliding window's layers when `window` is not set. */
mica_status engine_page(engine *e, const engine_page_args *a, engine_region_fn *fn, void *user,
                        mica_error *err);
size_t engine_page_bytes(const engine *e, uint32_t n_pos);
/* After pages were written from outside: positions [0, n) of the sequence are there. anew: nothing else is.
 */
void engine_page_seen(engine *e, int32_t seq, uint32_t n, bool anew);
/* The page is still there: a ring has not come round to it. */
bool engine_page_held(const engine *e, int32_t seq, uint32_t page);
/* Names the bits of the prompt role: rows of equal class can be shared between runs of the program. */
uint64_t engine_prompt_class(const engine *e);
mica_status engine_read(engine *e, void *host, const void *at, size_t n_bytes, mica_error *err);
mica_status engine_write(engine *e, void *at, const void *host, size_t n_bytes, mica_error *err);
kv_type engine_kv_type(const engine *e);
uint64_t engine_fingerprint(const engine *e); // of the model file
uint32_t engine_snapshots(
    const engine *e); // of a sequence's own the plan has room for; 0 without state or with a prefix cache
const float *engine_logits(const engine *e, uint32_t out); // borrowed until the next step
#endif
