/* A session's insides, for session.c, drafting and saving. */
#ifndef MICA_SESSION_INT_H
#define MICA_SESSION_INT_H

#include "run/session.h"

/* What a recurrent state was after the first n tokens of ids. Networks without state need none: their cache
 * can be cut. */
typedef struct snapshot {
    size_t n;      // 0: free
    float *state;  // slot of session.pool
    float *logits; // slot of session.pool, [n_vocab]
    bool has_logits;
} snapshot;

struct session {
    engine *e; // borrowed
    int32_t slot;
    int32_t *ids;    // owned, [n_ctx]
    size_t n;        // tokens whose rows are in the cache
    size_t n_prompt; // of these, the leading ones that are all prompt role
    float *logits;   // owned, [n_vocab], after the last token
    row_info *rows;  // owned, [row_max]
    snapshot *snap;  // owned, [n_snap]
    uint32_t n_snap;
    float *pool;    // owned pages
    size_t n_state; // tokens the recurrent state has seen; NO_STATE after a step that failed
    bool has_logits;
    uint32_t n_window;   // rows of the last window; 0: none is open
    uint32_t n_accepted; // rows of the last step that happened, for the draft block
    uint64_t step;       // of the engine when they were made
};

#define NO_STATE SIZE_MAX

#endif
