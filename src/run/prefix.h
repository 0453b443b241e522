/* The prefix cache of all sessions: a radix tree of token prefixes that holds copies of what the network made
 * of them, so that a text which begins like an earlier one is read from where they part.
 *
 * A node is a page (KV_PAGE positions, at its end maybe fewer) that continues its parent's text: its tokens
 * and a copy of the cache's rows, of all layers. A copy and not the sequence's own page, because that page is
 * written on by the sequence (its tail, a ring that comes round), and because on a card it is scarce memory:
 * copying is a thousandth of reading the text anew. Where texts part within a page each has its own copy.
 * Recurrent networks also need their state, which cannot be cut: snapshots hang on the node that holds their
 * last token. A network with sliding windows needs nothing more: a page is copied before its ring comes
 * round, with those layers' rows.
 *
 * Only rows of the prompt role are put in (docs/ARITHMETIC.md rule 12), and they are the same bits whoever
 * computed them. Memory is one slab, taken at load; who leaves when it is full is who was not used for
 * longest: snapshots, and nodes that nothing continues and no session stands on. With a folder, what leaves
 * goes to disk first (prefix_disk.h), and a text is looked for there too. Nothing here fails a request but a
 * broken device. Threads: worker only. The engine is borrowed and outlives the cache. */
#ifndef MICA_PREFIX_H
#define MICA_PREFIX_H

#include "mica.h"
#include "run/engine.h"

typedef struct prefix prefix;

/* dir NULL: memory only. A folder that cannot be used is a log line, not an error. */
mica_status prefix_new(prefix **out, engine *e, uint64_t ram_bytes, const char *dir, uint64_t disk_bytes,
                       mica_error *err);
void prefix_free(prefix *p); // accepts NULL; puts on disk what is not there yet

#define PREFIX_ROOT 0u         // the empty text
#define PREFIX_NONE UINT32_MAX // no place in the tree

/* How much of a text can be had, at most n - 1 tokens, or all n where the logits after the last are kept. */
typedef struct prefix_match {
    size_t n;
    uint32_t node; // that holds token n - 1; PREFIX_ROOT for none
    uint32_t snap; // its state, PREFIX_NONE for networks without
    uint32_t page; // the last whole page of the text that is in the tree: prefix_place
    size_t n_disk; // tokens that came from disk just now
    bool has_logits;
    size_t noise_at, n_noise, n_after; // mica_reuse
} prefix_match;
void prefix_find(prefix *p, const int32_t *ids, size_t n, prefix_match *out);
/* Makes sequence `seq`, whose first n_own rows are the text's already, stand at out->n tokens. logits
 * [n_vocab] is written when has_logits. */
mica_status prefix_restore(prefix *p, const prefix_match *m, int32_t seq, size_t n_own, float *logits,
                           mica_error *err);

/* A session stands on the last whole page of its text, which then stays; PREFIX_NONE: it takes no part. */
uint32_t prefix_enter(prefix *p, uint32_t page,
                      size_t n); // that page, or the one above it that n tokens reach
void prefix_leave(prefix *p, uint32_t place);
/* Puts the next n_tok <= KV_PAGE tokens after `place` in, whose rows are in sequence `seq`. *node: where;
 * PREFIX_NONE: there is no room. */
typedef struct prefix_piece {
    uint32_t place;
    int32_t seq;
    const int32_t *tokens; // [n_tok]
    uint32_t n_tok;
} prefix_piece;
mica_status prefix_put(prefix *p, const prefix_piece *a, uint32_t *node, mica_error *err);
/* A state that belongs to the first n_tok tokens of a node. logits: after the last of them; NULL: not known.
 */
typedef struct prefix_state {
    uint32_t node, n_tok;
    int32_t seq;
    const float *logits; // [n_vocab]
} prefix_state;
mica_status prefix_put_state(prefix *p, const prefix_state *s, mica_error *err);
uint32_t prefix_pages(const prefix *p, uint32_t place); // of the text up to and with this place

bool prefix_idle(prefix *p); // puts one more piece on disk; true: there is more
void prefix_info(const prefix *p, mica_cache_info *out);
#endif
