/* Two hash tables a tokenizer lives in: byte strings to symbols, and pairs of symbols to what they merge
 * into.
 *
 * A symbol is a number for a byte string that merging can produce. The first n_token symbols of a vocabulary
 * are its tokens; strings that only merges name come after them. A string may be stored without being
 * findable (markers). Both tables use open addressing with linear probing at a load of at most one half. A
 * string of up to eight bytes is compared inside its slot: one line of memory a lookup, which is all that
 * looking up costs in a large vocabulary. Threads: building is single-threaded; finding is read-only. */
#ifndef MICA_TEXT_SYMTAB_H
#define MICA_TEXT_SYMTAB_H

#include "base/status.h"
#include "base/str.h"

#include <stdint.h>

#define TEXT_SYM_NONE UINT32_MAX

typedef struct text_piece {
    uint32_t off, n; // bytes [off, off + n) of the table's text
} text_piece;

typedef struct text_symtab {
    char *text; // owned: all strings back to back, less than 2 GiB
    uint32_t n_text, cap_text;
    text_piece *piece; // owned, [n_sym]
    uint32_t n_sym, cap_sym;
    struct text_symslot {
        uint64_t head;   // the first eight bytes, padded with zeros
        uint32_t sym, n; // sym TEXT_SYM_NONE: free
    } * slot;            // owned, [mask + 1]
    uint32_t mask, n_used;
    uint64_t seed;
} text_symtab;

/* Room for n_sym strings of n_text bytes together; grows past both. */
mica_status text_symtab_init(text_symtab *t, size_t n_sym, size_t n_text, mica_error *err);
void text_symtab_fini(text_symtab *t);
/* A new symbol for s. *findable asks that text_symtab_find gives it from now on, and becomes false when an
 * equal string was there before. MICA_E_FORMAT when all strings together reach 2 GiB. */
mica_status text_symtab_add(text_symtab *t, slice s, bool *findable, uint32_t *sym, mica_error *err);
uint32_t text_symtab_find(const text_symtab *t, const char *p, size_t n); // TEXT_SYM_NONE when absent
void text_symtab_prefetch(const text_symtab *t, const char *p,
                          size_t n); // text_symtab_find will be asked for it soon
static inline slice text_symtab_get(const text_symtab *t, uint32_t sym) {
    return (slice){t->text + t->piece[sym].off, t->piece[sym].n};
}
static inline bool text_symtab_is(const text_symtab *t, uint32_t sym, slice s) {
    return slice_eq(text_symtab_get(t, sym), s);
}

typedef struct text_pair {
    uint32_t left, right; // left TEXT_SYM_NONE: free
    uint32_t rank;        // lower merges first
    uint32_t result;      // the symbol of left's bytes followed by right's
} text_pair;

typedef struct text_pairtab {
    text_pair *slot; // owned, [mask + 1]
    uint32_t mask;
    uint64_t seed;
} text_pairtab;

mica_status text_pairtab_init(text_pairtab *t, size_t n_pair, mica_error *err); // room for n_pair, fixed
void text_pairtab_fini(text_pairtab *t);
void text_pairtab_put(text_pairtab *t, text_pair p); // the first of equal pairs stays
const text_pair *text_pairtab_find(const text_pairtab *t, uint32_t left, uint32_t right); // NULL when absent
void text_pairtab_prefetch(const text_pairtab *t, uint32_t left, uint32_t right);

#endif
