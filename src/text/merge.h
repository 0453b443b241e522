/* Merging one piece of text into tokens: the best adjacent pair first, the leftmost of equals, until none is
 * left.
 *
 * One engine for the three models; they differ in what the smallest symbols are (bytes or characters) and in
 * where a pair's rank comes from (the merge table, or the score of the token both spell together). A heap
 * keeps the cost at n log n for a piece of n bytes, whatever it holds. Threads: a text_merge belongs to one
 * call; the vocabulary is shared. */
#ifndef MICA_TEXT_MERGE_H
#define MICA_TEXT_MERGE_H

#include "text/tokenize.h"

typedef struct text_merge {
    const text_vocab *v;    // borrowed
    struct text_node *node; // owned, [cap_node] by the byte a symbol begins at
    size_t cap_node;
    struct text_bid *heap; // owned
    size_t n_heap, cap_heap;
} text_merge;

void text_merge_init(text_merge *m, const text_vocab *v);
void text_merge_fini(text_merge *m);

/* Appends the tokens of piece. A character without any token becomes its bytes' tokens, else the unknown
 * token, else nothing. */
mica_status text_merge_piece(text_merge *m, slice piece, text_ids *out, mica_error *err);

#endif
