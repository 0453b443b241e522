/* Built from the sorted list of tokens: each adds the nodes of what it does not share with the one before. */
#include "text/token_trie.h"

#include "base/mem.h"
#include "text/vocab_int.h"

#include <stdlib.h>

/* A node gets its set of bytes when at least so many tokens stand below it. */
enum { WIDE_TOKENS = 24 };

static bool is_text(const text_vocab *v, int32_t id) {
    const slice s = text_vocab_bytes(v, id);
    return s.n > 0 && s.n <= TRIE_MAX_DEPTH && v->kind[id] != TEXT_KIND_NEVER && !text_vocab_ends(v, id) &&
           !text_vocab_is_control(v, id);
}

static int by_bytes(const void *a, const void *b, void *user) {
    const text_vocab *v = user;
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    const slice s = text_vocab_bytes(v, x), t = text_vocab_bytes(v, y);
    const int c = memcmp(s.p, t.p, s.n < t.n ? s.n : t.n);
    if (c) return c;
    if (s.n != t.n) return s.n < t.n ? -1 : 1;
    return (x > y) - (x < y);
}

static size_t shared_prefix(slice a, slice b) {
    size_t n = 0;
    while (n < a.n && n < b.n && a.p[n] == b.p[n]) n++;
    return n;
}

/* What sorting needs: the ids that are text, and the others that may be named. */
static mica_status collect(token_trie *t, const text_vocab *v, mica_error *err) {
    const int32_t n = text_vocab_n(v);
    size_t n_end;
    const int32_t *end = text_vocab_ends_all(v, &n_end);
    t->n_vocab = (uint32_t)n;
    t->id = mem_alloc((size_t)n * sizeof *t->id);
    t->control = mem_alloc((size_t)n * sizeof *t->control);
    t->end = mem_alloc((n_end + 1) * sizeof *t->end);
    if (!t->id || !t->control || !t->end) return fail(err, MICA_E_NOMEM, "token tree: out of memory");
    for (int32_t id = 0; id < n; id++) {
        if (is_text(v, id))
            t->id[t->n_id++] = id;
        else if (v->kind[id] != TEXT_KIND_NEVER && text_vocab_is_control(v, id) && !text_vocab_ends(v, id))
            t->control[t->n_control++] = id;
    }
    for (size_t i = 0; i < n_end; i++) t->end[t->n_end++] = end[i];
    qsort_r(t->id, t->n_id, sizeof *t->id, by_bytes, (void *)v);
    return MICA_OK;
}

static uint32_t count_nodes(const token_trie *t, const text_vocab *v) {
    uint32_t n = 1;
    slice before = {"", 0};
    for (uint32_t i = 0; i < t->n_id; i++) {
        const slice s = text_vocab_bytes(v, t->id[i]);
        n += (uint32_t)(s.n - shared_prefix(before, s));
        before = s;
    }
    return n;
}

static void fill(token_trie *t, const text_vocab *v) {
    slice before = {"", 0};
    uint32_t n = 1;
    t->node[0] = (trie_node){0};
    for (uint32_t i = 0; i < t->n_id; i++) {
        const slice s = text_vocab_bytes(v, t->id[i]);
        for (size_t k = shared_prefix(before, s); k < s.n; k++) {
            t->node[n++] = (trie_node){.first = i, .depth = (uint16_t)(k + 1), .byte = (uint8_t)s.p[k]};
            if (k + 1 > t->max_depth) t->max_depth = (uint16_t)(k + 1);
        }
        before = s;
    }
    t->node[n] = (trie_node){.first = t->n_id, .skip = n};
}

/* The node after each subtree: the first one behind that is no deeper. */
static void link_nodes(token_trie *t) {
    uint32_t open[TRIE_MAX_DEPTH + 1]; // by depth: the node whose subtree is still open
    int n_open = 0;
    for (uint32_t i = 0; i <= t->n_node; i++) {
        const int d = t->node[i].depth; // 0 for the mark at the end
        while (n_open > d) t->node[open[--n_open]].skip = i;
        if (i < t->n_node) open[n_open++] = i;
    }
}

static bool is_wide(const token_trie *t, uint32_t i) {
    return t->node[t->node[i].skip].first - t->node[i].first >= WIDE_TOKENS;
}

/* Sets of bytes of the wide nodes: a byte belongs to all wide nodes above it. */
static void fill_below(token_trie *t) {
    uint32_t open[TRIE_MAX_DEPTH + 1]; // by depth: the set of the open node there
    unsigned n_open = 0;
    for (uint32_t i = 0; i < t->n_node; i++) {
        const unsigned d = t->node[i].depth;
        if (n_open > d) n_open = d; // wide nodes above a node are a prefix of its path
        for (unsigned k = 0; k < n_open; k++)
            t->below[open[k]].bit[t->node[i].byte / 64] |= 1ull << t->node[i].byte % 64;
        if (t->node[i].below != TRIE_NARROW) open[n_open++] = t->node[i].below;
    }
}

mica_status token_trie_new(token_trie **out, const text_vocab *v, mica_error *err) {
    token_trie *t = *out = mem_calloc(1, sizeof *t);
    if (!t) return fail(err, MICA_E_NOMEM, "token tree: out of memory");
    mica_status st = collect(t, v, err);
    if (st == MICA_OK) {
        t->n_node = count_nodes(t, v);
        t->node = mem_alloc(((size_t)t->n_node + 1) * sizeof *t->node);
        if (!t->node) st = fail(err, MICA_E_NOMEM, "token tree: %u nodes: out of memory", t->n_node);
    }
    if (st == MICA_OK) {
        fill(t, v);
        link_nodes(t);
        for (uint32_t i = 0; i < t->n_node; i++)
            t->node[i].below = is_wide(t, i) ? t->n_below++ : TRIE_NARROW;
        t->below = mem_calloc(t->n_below + 1u, sizeof *t->below);
        if (!t->below) st = fail(err, MICA_E_NOMEM, "token tree: %u sets: out of memory", t->n_below);
    }
    if (st == MICA_OK) {
        fill_below(t);
        return MICA_OK;
    }
    token_trie_free(t);
    *out = NULL;
    return st;
}

void token_trie_free(token_trie *t) {
    if (!t) return;
    mem_free(t->node);
    mem_free(t->below);
    mem_free(t->id);
    mem_free(t->control);
    mem_free(t->end);
    mem_free(t);
}

/* Two threads may both make it; the second one's is thrown away. */
mica_status text_vocab_trie(const token_trie **out, const text_vocab *v, mica_error *err) {
    _Atomic(token_trie *) *slot =
        &((text_vocab *)v)->trie; // what is learned later is no change of the vocabulary
    token_trie *t = atomic_load(slot), *none = NULL;
    if (!t) {
        TRY(token_trie_new(&t, v, err));
        if (!atomic_compare_exchange_strong(slot, &none, t)) {
            token_trie_free(t);
            t = none;
        }
    }
    *out = t;
    return MICA_OK;
}
