/* One timeline of tokens in a sequence slot of an engine.
 *
 *     session *s;  TRY(session_new(&s, e, slot, err));
 *     TRY(session_sync(s, &(session_sync_args){.ids = ids, .n = n}, err));   // state is exactly ids
 *     TRY(session_append(s, id, err));                                       // one generated token
 *     session_logits(s)                                                      // after the last token
 *
 * The cache behind a session holds rows of two roles: the prompt's and generated ones (docs/ARITHMETIC.md
 * rule 12). Only prompt rows count as prefix for the next sync; generated ones are read again, unless
 * reuse_generated is set. Threads: worker only. The engine is borrowed and outlives its sessions. */
#ifndef MICA_SESSION_H
#define MICA_SESSION_H

#include "mica.h"
#include "run/engine.h"
#include "run/chunk.h"
#include "run/prefix.h"

typedef struct session session;

mica_status session_new(session **out, engine *e, uint32_t slot, mica_error *err);
void session_cache(session *s, prefix *cache); // borrowed; right after session_new
void session_free(session *s);                 // accepts NULL

enum { SESSION_MARKS = 4 }; // positions that are remembered of one prompt

typedef struct session_begin_args {
    const int32_t *ids; // [n], borrowed for the call
    size_t n;           // >= 1
    const size_t
        *marks; // [n_marks] ascending: where a recurrent model should be able to come back to; the last count
    size_t n_marks;
    bool reuse_generated, no_cache, cold; // cold: its own rows count for nothing
} session_begin_args;

/* Where the tokens that need no reading came from; the rest is mica_reuse's. */
typedef struct session_reuse {
    size_t n_own, n_ram, n_disk;
    size_t noise_at, n_noise, n_after;
} session_reuse;

/* The state becomes the longest prefix of ids that needs no reading; the rest waits for session_step. reuse
 * may be NULL. */
mica_status session_begin(session *s, const session_begin_args *a, session_reuse *reuse, mica_error *err);
size_t session_pending(const session *s); // tokens that wait
chunk_pace *session_pace(session *s);     // of reading them, where somebody waits for it
/* How many of them, at most n_max, the next step should take: snapshots are taken between steps. */
uint32_t session_chunk(const session *s, uint32_t n_max);

/* A session's rows in a step: n <= session_chunk tokens that wait, or (ids not NULL) a window of n <=
 * WINDOW_MAX generated ones: ids[0] is the next token, the rest are drafts after it. */
typedef struct session_part {
    session *s;
    const int32_t *ids; // [n], borrowed; NULL: prompt
    uint32_t n;
    bool all_logits; // of every prompt row, not only of the prompt's last
    uint32_t out;    // gets the index of the part's first logits for engine_logits
} session_part;

/* One batch of different sessions of one engine, prompt parts first. After it, and before anything else is
 * done with the session, each window needs its session_accept. When it fails no part happened, and sessions
 * must begin again. */
mica_status session_step(session_part *parts, size_t n, mica_error *err);
/* Logits after the i-th token of the window; borrowed until the engine's next step or draft. */
const float *session_window_logits(const session *s, uint32_t i);
/* Keeps the first n_keep >= 1 tokens of the window and takes back the rest. */
mica_status session_accept(session *s, uint32_t n_keep, mica_error *err);

typedef struct session_sync_args {
    const int32_t *ids; // [n], borrowed
    size_t n;           // >= 1
    bool reuse_generated;
    /* When not NULL: gets the logits of every newly read position, in order; steps are then cut to
     * engine_out_max rows. */
    mica_status (*on_logits)(void *user, size_t pos, const float *logits, mica_error *err);
    void *logits_user;
    mica_cancel_flag *cancel;
    mica_progress_fn *progress;
    void *progress_user;
} session_sync_args;

/* session_begin and all the steps it needs. On an error the state is a shorter prefix of ids. */
mica_status session_sync(session *s, const session_sync_args *a, size_t *n_cached, mica_error *err);
mica_status session_append(session *s, int32_t id, mica_error *err);
/* One token for each of n sessions of one engine, in one step. */
mica_status session_append_batch(session *const *s, const int32_t *ids, size_t n, mica_error *err);
mica_status session_window(session *s, const int32_t *ids, uint32_t n, mica_error *err); // a step of one part

/* Drafts what may come after `next`, which follows the session's last token and is not appended yet. */
typedef struct session_draft {
    session *s;
    int32_t next;
    uint32_t n_max; // < WINDOW_MAX; what the context still holds after `next`
    /* Chooses a draft from the block's logits for position pos; false ends the draft there. */
    bool (*pick)(void *user, const float *logits, uint64_t pos, int32_t *id);
    void *user;
    int32_t ids[WINDOW_MAX]; // gets the drafts
    uint32_t n;
    bool live; // of the making
} session_draft;
/* With the model's own block, for n different sessions of one engine side by side; none when it has no block.
 * Call it before the engine's next step, so that the outputs of the accepted rows are still there. */
mica_status session_draft_run(session_draft *d, size_t n, mica_error *err);
/* By looking up the last tokens in the session's own text: what followed them there. No model is asked. */
uint32_t session_lookup(const session *s, int32_t next, uint32_t n_max, int32_t *drafts);

/* Forgets everything: the next sync reads all of its ids. */
void session_clear(session *s);

size_t session_length(const session *s);
const int32_t *session_ids(const session *s);
/* [n_vocab]; NULL before the first token and after a failed call. Owned by the session, so other sessions'
 * steps leave it. */
const float *session_logits(const session *s);
engine *session_engine(const session *s);
#endif
