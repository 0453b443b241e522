/* The prefix cache's share on disk: pieces that left memory, found again after a restart.
 *
 *     DIR/prefix/index.db          SQLite: one row a piece
 *     DIR/prefix/KEY.piece         head with a checksum (XXH3, 64 bits) over all of it, then the piece's
 * bytes
 *
 * A piece is called by the hash of its whole text, begun with the model's fingerprint, the version of the
 * arithmetic and the shape of the cache: what is found is of this model and fits, or it is not found. Rows
 * say under which text a piece hangs and what its tokens are, and tokens are compared, not only hashes. A
 * file is believed only when its checksum and its key are right.
 *
 * Nothing here is an error of a request: a full disk, a damaged file or index, a folder that is gone are one
 * log line and a miss. Files are renamed into place without waiting for the disk: what a power cut damages is
 * found by its checksum. Past the cap the longest unused leave. Threads: worker only. */
#ifndef MICA_PREFIX_DISK_H
#define MICA_PREFIX_DISK_H

#include "run/engine.h"
#include "run/slab.h"

typedef struct prefix_key {
    uint64_t lo, hi;
} prefix_key;

typedef struct prefix_disk prefix_disk;

prefix_key prefix_disk_root(const engine *e); // of the empty text of this model
prefix_key prefix_key_of(const prefix_key *parent, const int32_t *tokens, uint32_t n_tok, bool is_state);

typedef struct disk_piece {
    prefix_key key, parent; // parent: of the text before its tokens
    uint32_t n_tok;         // 1 .. KV_PAGE
    uint64_t n_bytes;
    bool is_state, has_logits;
} disk_piece;

prefix_disk *prefix_disk_open(const char *dir, uint64_t max_bytes); // NULL: it cannot be used
void prefix_disk_close(prefix_disk *d);                             // accepts NULL
/* n_bytes from `at` on, under the piece's name. */
void prefix_disk_put(prefix_disk *d, const disk_piece *x, const int32_t *tokens, slab_pos at);
/* Calls fn for pieces below `parent` whose tokens begin as ids[0..n) does. tokens [n_tok] are borrowed. */
typedef void prefix_disk_fn(void *user, const disk_piece *x, const int32_t *tokens);
typedef struct disk_query {
    prefix_key parent;
    const int32_t *ids;
    size_t n;
} disk_query;
void prefix_disk_list(prefix_disk *d, const disk_query *q, prefix_disk_fn *fn, void *user);
/* Reads the piece into a chain; false: it is gone or damaged, and forgotten. */
bool prefix_disk_get(prefix_disk *d, const disk_piece *x, slab_pos at);
bool prefix_disk_touch(prefix_disk *d, const prefix_key *key); // it was used; false: it is not there
/* false: the index could not be written; the piece stays. */
bool prefix_disk_drop(prefix_disk *d, const prefix_key *key);
void prefix_disk_info(const prefix_disk *d, uint64_t *max_bytes, uint64_t *used_bytes); // d NULL: zeros
#endif
