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
    int32_t *ids;        // owned, [n_ctx]
    size_t n;            // tokens whose rows are in the cache
    size_t n_prompt;     // of these, the leading ones that are all prompt role
    float *logits;       // owned, [n_vocab], after the last token
    row_info *rows;      // owned, [row_max], of a step that this session's part begins
    session_part *parts; // owned, [n_part] as many as the engine has sequences
    uint32_t n_part;
    draft_row *pairs; // owned, [out_max]; NULL without a draft block
    snapshot *snap;   // owned, [n_snap]
    uint32_t n_snap;
    float *pool;    // owned pages
    size_t n_state; // tokens the recurrent state has seen; NO_STATE after a step that failed
    bool has_logits;
    size_t n_target;            // ids[n, n_target) are to be read
    size_t mark[SESSION_MARKS]; // [n_mark] positions that snapshots are wanted of: chunks end there
    uint32_t n_mark;
    size_t n_marked;     // tokens at the last snapshot
    size_t n_every;      // tokens from one to the next, without marks
    prefix *cache;       // borrowed; NULL: none
    uint32_t place;      // in it: the last whole page of the text; PREFIX_NONE: takes no part
    uint32_t n_window;   // rows of the last token step; 0: none is open
    uint32_t out0;       // of its logits
    uint32_t n_accepted; // rows of the last step that happened, for the draft block
    uint64_t step;       // of the engine when they were made
    bool taken;          // has a part in the step being built
    chunk_pace pace;     // of its prompts
};

#define NO_STATE SIZE_MAX

#endif
