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

typedef struct session session;

mica_status session_new(session **out, engine *e, uint32_t slot, mica_error *err);
void session_free(session *s); // accepts NULL

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

/* *n_cached (NULL allowed): tokens kept from before. On an error the state is a shorter prefix of ids. */
mica_status session_sync(session *s, const session_sync_args *a, size_t *n_cached, mica_error *err);
mica_status session_append(session *s, int32_t id, mica_error *err);
/* One token for each of n sessions of one engine, in one step. */
mica_status session_append_batch(session *const *s, const int32_t *ids, size_t n, mica_error *err);

/* A window: ids[0] is the next token, the rest are drafts after it, n <= WINDOW_MAX. All are appended for
 * now; the logits after the i-th are session_window_logits(s, i). session_accept then keeps the first n_keep
 * >= 1 and takes back the rest; it must come before anything else. */
mica_status session_window(session *s, const int32_t *ids, uint32_t n, mica_error *err);
const float *session_window_logits(const session *s,
                                   uint32_t i); // borrowed until the next step of the engine
mica_status session_accept(session *s, uint32_t n_keep, mica_error *err);

/* Drafts what may come after `next`, which follows the session's last token and is not appended yet. */
typedef struct session_draft_args {
    int32_t next;
    uint32_t n_max; // < WINDOW_MAX
    /* Chooses a draft from the block's logits for position pos; false ends the draft there. */
    bool (*pick)(void *user, const float *logits, uint64_t pos, int32_t *id);
    void *user;
} session_draft_args;
/* With the model's own block. *n_draft is 0 when there is none. Call it right after session_accept or
 * session_sync, so that the outputs of the accepted rows are still there. */
mica_status session_draft(session *s, const session_draft_args *a, int32_t *drafts, uint32_t *n_draft,
                          mica_error *err);
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
