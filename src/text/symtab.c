/* Symbol and pair tables. */
#include "text/symtab.h"
#include "base/clock.h"
#include "base/mem.h"

#define XXH_INLINE_ALL // keys are a few bytes: a call through the library's table costs more than the hash
#include <xxhash.h>

#define TEXT_MAX 0x7FFFFFFFu

/* Seeded, so that a file cannot hold strings that collide on purpose. Nothing but time depends on the seed.
 */
static uint64_t hash_of(const text_symtab *t, const char *p, size_t n) {
    return XXH3_64bits_withSeed(p, n, t->seed);
}

/* Smallest power of two >= 2 * n, so that the load stays at or under one half; 0 when it does not fit 32
 * bits. */
static uint32_t slots_for(size_t n) {
    if (n > 1u << 30) return 0;
    uint32_t k = 16;
    while (k < 2 * n) k *= 2;
    return k;
}

static mica_status slots_new(text_symtab *t, size_t n, mica_error *err) {
    uint32_t n_slot = slots_for(n);
    struct text_symslot *slot = n_slot ? mem_alloc((size_t)n_slot * sizeof *slot) : NULL;
    if (!slot) return fail(err, MICA_E_NOMEM, "vocabulary: table of %zu strings: out of memory", n);
    memset(slot, 0xFF, (size_t)n_slot * sizeof *slot); // sym = TEXT_SYM_NONE
    t->slot = slot;
    t->mask = n_slot - 1;
    t->n_used = 0;
    return MICA_OK;
}

mica_status text_symtab_init(text_symtab *t, size_t n_sym, size_t n_text, mica_error *err) {
    *t = (text_symtab){.seed = clock_ns() ^ (uint64_t)(uintptr_t)t};
    if (n_text > TEXT_MAX)
        return fail(err, MICA_E_FORMAT, "vocabulary: %zu bytes of text: at most %u are read", n_text,
                    TEXT_MAX);
    TRY(slots_new(t, n_sym, err));
    t->cap_sym = (uint32_t)n_sym;
    t->cap_text = (uint32_t)n_text;
    t->piece = mem_alloc(n_sym * sizeof *t->piece);
    t->text = mem_alloc(n_text);
    if (t->piece && t->text) return MICA_OK;
    text_symtab_fini(t);
    return fail(err, MICA_E_NOMEM, "vocabulary: %zu strings of %zu bytes: out of memory", n_sym, n_text);
}

void text_symtab_fini(text_symtab *t) {
    mem_free(t->text);
    mem_free(t->piece);
    mem_free(t->slot);
    *t = (text_symtab){0};
}

static uint64_t head_of(const char *p, size_t n) {
    uint64_t head = 0;
    memcpy(&head, p, n < 8 ? n : 8);
    return head;
}

/* The slot that holds the string, or the free one where it would go. */
static uint32_t probe(const text_symtab *t, const char *p, size_t n) {
    uint64_t head = head_of(p, n);
    for (uint32_t i = (uint32_t)hash_of(t, p, n) & t->mask;; i = (i + 1) & t->mask) {
        const struct text_symslot *s = &t->slot[i];
        if (s->sym == TEXT_SYM_NONE) return i;
        if (s->head != head || s->n != n) continue;
        if (n <= 8 || memcmp(t->text + t->piece[s->sym].off + 8, p + 8, n - 8) == 0) return i;
    }
}

uint32_t text_symtab_find(const text_symtab *t, const char *p, size_t n) {
    return t->slot[probe(t, p, n)].sym;
}

void text_symtab_prefetch(const text_symtab *t, const char *p, size_t n) {
    __builtin_prefetch(&t->slot[(uint32_t)hash_of(t, p, n) & t->mask]);
}

/* false: an equal string is there already. */
static bool slot_put(text_symtab *t, uint32_t sym) {
    slice s = text_symtab_get(t, sym);
    uint32_t i = probe(t, s.p, s.n);
    if (t->slot[i].sym != TEXT_SYM_NONE) return false;
    t->slot[i] = (struct text_symslot){head_of(s.p, s.n), sym, (uint32_t)s.n};
    t->n_used++;
    return true;
}

static mica_status slots_grow(text_symtab *t, mica_error *err) {
    text_symtab old = *t;
    mica_status st = slots_new(t, ((size_t)old.mask + 1), err); // twice as many slots
    if (st != MICA_OK) return st;
    for (uint32_t i = 0; i <= old.mask; i++)
        if (old.slot[i].sym != TEXT_SYM_NONE) slot_put(t, old.slot[i].sym);
    mem_free(old.slot);
    return MICA_OK;
}

/* Room for one more symbol of n bytes. */
static mica_status reserve(text_symtab *t, size_t n, mica_error *err) {
    if (n > TEXT_MAX - t->n_text || t->n_sym == TEXT_MAX)
        return fail(err, MICA_E_FORMAT, "vocabulary: tokens and merges: over %u bytes of text", TEXT_MAX);
    if (t->n_sym == t->cap_sym) {
        uint32_t cap = t->cap_sym < 1u << 29 ? t->cap_sym * 2 + 16 : TEXT_MAX;
        text_piece *p = mem_realloc(t->piece, cap * sizeof *p);
        if (!p) return fail(err, MICA_E_NOMEM, "vocabulary: %u symbols: out of memory", cap);
        t->piece = p;
        t->cap_sym = cap;
    }
    if (n > t->cap_text - t->n_text) {
        uint32_t need = t->n_text + (uint32_t)n, cap = need < 1u << 29 ? need * 2 : TEXT_MAX;
        char *p = mem_realloc(t->text, cap);
        if (!p) return fail(err, MICA_E_NOMEM, "vocabulary: %u bytes of text: out of memory", cap);
        t->text = p;
        t->cap_text = cap;
    }
    return t->n_used < (t->mask + 1) / 2 ? MICA_OK : slots_grow(t, err);
}

mica_status text_symtab_add(text_symtab *t, slice s, bool *findable, uint32_t *sym, mica_error *err) {
    *sym = TEXT_SYM_NONE;
    TRY(reserve(t, s.n, err));
    if (s.n > 0) memcpy(t->text + t->n_text, s.p, s.n);
    t->piece[t->n_sym] = (text_piece){t->n_text, (uint32_t)s.n};
    t->n_text += (uint32_t)s.n;
    *sym = t->n_sym++;
    if (*findable) *findable = slot_put(t, *sym);
    return MICA_OK;
}

mica_status text_pairtab_init(text_pairtab *t, size_t n_pair, mica_error *err) {
    *t = (text_pairtab){.seed = clock_ns() ^ (uint64_t)(uintptr_t)t};
    uint32_t n_slot = slots_for(n_pair);
    t->slot = n_slot ? mem_alloc((size_t)n_slot * sizeof *t->slot) : NULL;
    if (!t->slot) return fail(err, MICA_E_NOMEM, "vocabulary: table of %zu merges: out of memory", n_pair);
    memset(t->slot, 0xFF, (size_t)n_slot * sizeof *t->slot);
    t->mask = n_slot - 1;
    return MICA_OK;
}

void text_pairtab_fini(text_pairtab *t) {
    mem_free(t->slot);
    *t = (text_pairtab){0};
}

/* The 64-bit finaliser of MurmurHash3 mixes both symbols into the low bits. */
static uint32_t pair_hash(const text_pairtab *t, uint32_t left, uint32_t right) {
    uint64_t h = ((uint64_t)left << 32 | right) ^ t->seed;
    h = (h ^ h >> 33) * 0xff51afd7ed558ccdull;
    h = (h ^ h >> 33) * 0xc4ceb9fe1a85ec53ull;
    return (uint32_t)(h ^ h >> 33);
}

static uint32_t pair_probe(const text_pairtab *t, uint32_t left, uint32_t right) {
    for (uint32_t i = pair_hash(t, left, right) & t->mask;; i = (i + 1) & t->mask) {
        const text_pair *p = &t->slot[i];
        if (p->left == TEXT_SYM_NONE || (p->left == left && p->right == right)) return i;
    }
}

void text_pairtab_put(text_pairtab *t, text_pair p) {
    text_pair *s = &t->slot[pair_probe(t, p.left, p.right)];
    if (s->left == TEXT_SYM_NONE) *s = p;
}

const text_pair *text_pairtab_find(const text_pairtab *t, uint32_t left, uint32_t right) {
    const text_pair *s = &t->slot[pair_probe(t, left, right)];
    return s->left == TEXT_SYM_NONE ? NULL : s;
}

void text_pairtab_prefetch(const text_pairtab *t, uint32_t left, uint32_t right) {
    __builtin_prefetch(&t->slot[pair_hash(t, left, right) & t->mask], 1);
}
