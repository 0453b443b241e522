/* The merge engine.
 *
 *     bytes   h   e   l   l   o        node[i] describes the symbol that begins at byte i; node[i].n == 0:
 * none does node    [h] [e] [l] [l] [o]      next(i) = i + node[i].n, previous = node[i].prev
 *
 * A bid says "the symbol at `at` and its right neighbour would make `sym`, `n` bytes long". Symbols only
 * grow, so a bid is out of date exactly when the two no longer have n bytes together: equal length from the
 * same start is equal text, and the left part of it cannot have grown without the whole growing. */
#include "text/merge.h"
#include "base/mem.h"
#include "text/vocab_int.h"

struct text_node {
    uint32_t sym, n, prev;
};

struct text_bid {
    uint64_t key; // rank << 32 | at: the least goes first
    uint32_t sym, n;
};

void text_merge_init(text_merge *m, const text_vocab *v) {
    *m = (text_merge){.v = v};
}

void text_merge_fini(text_merge *m) {
    mem_free(m->node);
    mem_free(m->heap);
    *m = (text_merge){0};
}

static mica_status reserve_nodes(text_merge *m, size_t n, mica_error *err) {
    if (n <= m->cap_node) return MICA_OK;
    size_t cap = n < 256 ? 256 : n;
    mem_free(m->node); // nothing to keep between pieces
    m->node = mem_alloc(cap * sizeof *m->node);
    m->cap_node = m->node ? cap : 0;
    return m->node ? MICA_OK : fail(err, MICA_E_NOMEM, "text: a piece of %zu bytes: out of memory", n);
}

static mica_status heap_push(text_merge *m, struct text_bid b, mica_error *err) {
    if (m->n_heap == m->cap_heap) {
        size_t cap = m->cap_heap ? m->cap_heap * 2 : 256;
        struct text_bid *h = mem_realloc(m->heap, cap * sizeof *h);
        if (!h) return fail(err, MICA_E_NOMEM, "text: %zu pairs of symbols: out of memory", cap);
        m->heap = h;
        m->cap_heap = cap;
    }
    size_t i = m->n_heap++;
    while (i > 0 && m->heap[(i - 1) / 2].key > b.key) {
        m->heap[i] = m->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    m->heap[i] = b;
    return MICA_OK;
}

static struct text_bid heap_pop(text_merge *m) {
    struct text_bid top = m->heap[0], last = m->heap[--m->n_heap];
    size_t i = 0;
    for (;;) {
        size_t kid = 2 * i + 1;
        if (kid >= m->n_heap) break;
        if (kid + 1 < m->n_heap && m->heap[kid + 1].key < m->heap[kid].key) kid++;
        if (m->heap[kid].key >= last.key) break;
        m->heap[i] = m->heap[kid];
        i = kid;
    }
    m->heap[i] = last;
    return top;
}

/* Bids for the symbol at `at` and the one after it, if they make something. */
static mica_status bid(text_merge *m, slice piece, uint32_t at, mica_error *err) {
    const struct text_node *left = &m->node[at];
    uint32_t right_at = at + left->n;
    if (right_at >= piece.n) return MICA_OK;
    const struct text_node *right = &m->node[right_at];
    uint32_t rank, sym, n = left->n + right->n;
    if (m->v->model == TEXT_MODEL_SPM) {
        sym = n <= TEXT_SPM_TOKEN_MAX ? text_symtab_find(&m->v->sym, piece.p + at, n) : TEXT_SYM_NONE;
        if (sym == TEXT_SYM_NONE) return MICA_OK;
        rank = m->v->order[sym];
    } else {
        const text_pair *p = text_pairtab_find(&m->v->pair, left->sym, right->sym);
        if (!p) return MICA_OK;
        sym = p->result;
        rank = p->rank;
    }
    return heap_push(m, (struct text_bid){(uint64_t)rank << 32 | at, sym, n}, err);
}

/* One node a byte, or one a character where the model works on characters. */
static void place_symbols(text_merge *m, slice piece) {
    uint32_t prev = 0;
    for (uint32_t i = 0; i < piece.n;) {
        struct text_node *node = &m->node[i];
        if (m->v->model == TEXT_MODEL_BYTES) {
            *node = (struct text_node){m->v->byte_sym[(unsigned char)piece.p[i]], 1, prev};
        } else {
            int len = utf8_len(piece.p + i, piece.n - i);
            uint32_t n = len > 0 ? (uint32_t)len : 1; // a byte of no character stands alone
            *node = (struct text_node){text_symtab_find(&m->v->sym, piece.p + i, n), n, prev};
            for (uint32_t k = 1; k < n; k++) m->node[i + k].n = 0;
        }
        prev = i;
        i += node->n;
    }
}

static mica_status merge_all(text_merge *m, slice piece, mica_error *err) {
    m->n_heap = 0;
    for (uint32_t i = 0; i < piece.n; i += m->node[i].n) TRY(bid(m, piece, i, err));
    while (m->n_heap > 0) {
        struct text_bid b = heap_pop(m);
        uint32_t at = (uint32_t)b.key;
        struct text_node *left = &m->node[at];
        uint32_t right_at = at + left->n;
        if (left->n == 0 || right_at >= piece.n || left->n + m->node[right_at].n != b.n) continue;
        m->node[right_at].n = 0;
        left->sym = b.sym;
        left->n = b.n;
        if (at + b.n < piece.n) m->node[at + b.n].prev = at;
        if (at > 0) TRY(bid(m, piece, left->prev, err));
        TRY(bid(m, piece, at, err));
    }
    return MICA_OK;
}

/* A symbol that is no token: its bytes' tokens, all or none. */
static void emit_bytes(const text_vocab *v, slice s, text_ids *out) {
    bool all = true;
    for (size_t i = 0; i < s.n; i++) all = all && v->byte_id[(unsigned char)s.p[i]] >= 0;
    if (!all) {
        if (v->special[TEXT_UNK] >= 0) text_ids_put(out, v->special[TEXT_UNK]);
        return;
    }
    for (size_t i = 0; i < s.n; i++) text_ids_put(out, v->byte_id[(unsigned char)s.p[i]]);
}

static bool only_newlines(slice s) {
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] != '\n') return false;
    return true;
}

mica_status text_merge_piece(text_merge *m, slice piece, text_ids *out, mica_error *err) {
    const text_vocab *v = m->v;
    uint32_t token = text_symtab_find(&v->sym, piece.p, piece.n);
    if (token >= v->n_token) token = TEXT_SYM_NONE; // a string that only merges name
    if (token != TEXT_SYM_NONE) {
        uint8_t whole = atomic_load_explicit(&v->whole[token], memory_order_relaxed);
        // gemma4's merges do not build its runs of newlines
        bool at_once = v->ignore_merges || (v->model == TEXT_MODEL_CHARS && only_newlines(piece));
        if (whole == TEXT_WHOLE_YES || at_once) {
            text_ids_put(out, (int32_t)token);
            return MICA_OK;
        }
        if (whole == TEXT_WHOLE_NO) token = TEXT_SYM_NONE; // nothing to learn below
    }
    TRY(reserve_nodes(m, piece.n, err));
    place_symbols(m, piece);
    TRY(merge_all(m, piece, err));
    if (token != TEXT_SYM_NONE) {
        uint8_t whole = m->node[0].n == piece.n && m->node[0].sym == token ? TEXT_WHOLE_YES : TEXT_WHOLE_NO;
        atomic_store_explicit(&v->whole[token], whole, memory_order_relaxed);
    }
    for (uint32_t i = 0; i < piece.n; i += m->node[i].n) {
        const struct text_node *node = &m->node[i];
        if (node->sym < v->n_token)
            text_ids_put(out, (int32_t)node->sym);
        else
            emit_bytes(v, (slice){piece.p + i, node->n}, out);
    }
    return MICA_OK;
}
