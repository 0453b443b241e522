/* The tokens of a vocabulary as a tree of bytes, so that a question about all of them ("which may come
 * next?") is one walk that skips whole branches.
 *
 * Nodes stand in preorder: a node's subtree is the nodes [i, skip), and the tokens below it are a run of
 * `id`. Only tokens that are text stand in the tree: control tokens, unused ones and those that end a turn do
 * not. Read-only after creation; any thread. */
#ifndef MICA_TEXT_TOKEN_TRIE_H
#define MICA_TEXT_TOKEN_TRIE_H

#include "text/vocab.h"

#define TRIE_NARROW UINT32_MAX

typedef struct trie_node {
    uint32_t skip;  // the next node that is not below this one
    uint32_t first; // of `id`: the tokens that end here are [first, next node's first)
    uint32_t below; // of `below`: the bytes that occur under it; TRIE_NARROW: not many tokens are
    uint16_t depth; // bytes from the root, which has 0
    uint8_t byte;   // the last of them
} trie_node;

/* Bytes. */
typedef struct trie_set {
    uint64_t bit[4];
} trie_set;

typedef struct token_trie {
    trie_node *node; // owned, [n_node + 1]: node 0 is the root, the last one ends the lists
    trie_set *below; // owned, [n_below]
    int32_t *id;     // owned, [n_id], by their bytes
    uint32_t n_node, n_below, n_id, n_vocab;
    uint16_t max_depth;
    int32_t *control; // owned, [n_control]: control tokens that do not end a turn, ascending
    int32_t *end;     // owned, [n_end]: those that end one
    uint32_t n_control, n_end;
} token_trie;

/* Tokens longer than this are left out: no text needs them, all have shorter spellings. */
enum { TRIE_MAX_DEPTH = 1024 };

mica_status token_trie_new(token_trie **out, const text_vocab *v, mica_error *err);
void token_trie_free(token_trie *t); // NULL allowed
/* The vocabulary's own, made by the first who asks; borrowed from it. Any thread. */
mica_status text_vocab_trie(const token_trie **out, const text_vocab *v, mica_error *err);

#endif
