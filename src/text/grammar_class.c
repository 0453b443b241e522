/* Character classes as automata over the bytes of well-formed UTF-8 (RFC 3629 section 4: no overlong forms,
 * no surrogates, nothing above U+10FFFF).
 *
 * A range of code points is cut where the number of bytes changes and wherever a byte before the last would
 * not run over all its continuations; each piece is then a product of byte ranges. Ranges come in order, so
 * pieces with the same first byte are neighbours and share the state behind it. */
#include "text/grammar_int.h"

#include "base/mem.h"

#include <stdlib.h>

enum { LAST_CODE_POINT = 0x10FFFF };

/* States 0 is the beginning; these three are the same in every class: one, two, three continuation bytes of
 * any value. */
enum { TAIL_1 = 1, TAIL_2, TAIL_3, FIRST_OWN };

typedef struct builder {
    gram *g;
    gram_edge *edge; // owned
    uint32_t n_edge, cap_edge;
    uint32_t *from; // owned, [cap_from]: whose edge it is
    uint32_t cap_from;
    uint32_t n_state;
} builder;

static uint16_t state_new(builder *b) {
    return b->n_state < GRAM_DONE ? (uint16_t)b->n_state++ : (uint16_t)0;
}

static void edge_add(builder *b, uint32_t from, unsigned lo, unsigned hi, uint16_t to) {
    if (!gram_grow(b->g, &b->edge, &b->cap_edge, b->n_edge + 1u, sizeof *b->edge)) return;
    if (!gram_grow(b->g, &b->from, &b->cap_from, b->n_edge + 1u, sizeof *b->from)) return;
    b->edge[b->n_edge] = (gram_edge){.lo = (uint8_t)lo, .hi = (uint8_t)hi, .to = to};
    b->from[b->n_edge++] = from;
}

/* The state behind byte `lead` of `from`: the last edge's when that is the same byte. */
static uint16_t behind(builder *b, uint32_t from, unsigned lead) {
    for (uint32_t i = b->n_edge; i-- > 0 && b->from[i] >= from;) {
        if (b->from[i] != from) continue;
        if (b->edge[i].lo == lead && b->edge[i].hi == lead && b->edge[i].to >= FIRST_OWN &&
            b->edge[i].to != GRAM_DONE)
            return b->edge[i].to;
        break;
    }
    const uint16_t made = state_new(b);
    edge_add(b, from, lead, lead, made);
    return made;
}

static uint16_t tail(int n_more) {
    return n_more == 0 ? GRAM_DONE : (uint16_t)(TAIL_1 + n_more - 1);
}

/* lo and hi: the low 6 * n_more bits of code points whose bytes so far are the same; prefix is what the first
 * byte of this level has besides its bits. */
static void put_piece(builder *b, uint32_t from, unsigned prefix, uint32_t lo, uint32_t hi, int n_more) {
    const uint32_t below = (1u << 6 * n_more) - 1;
    while (lo <= hi) {
        const uint32_t first = lo >> 6 * n_more, last = hi >> 6 * n_more;
        const bool whole_begin = (lo & below) == 0, whole_end = (hi & below) == below;
        if (whole_begin && (first < last || whole_end)) { // a run of first bytes with anything behind
            const uint32_t to = whole_end ? last : last - 1;
            edge_add(b, from, prefix | first, prefix | to, tail(n_more));
            lo = (to + 1) << 6 * n_more;
            continue;
        }
        const uint32_t end = first == last ? hi : (first << 6 * n_more | below);
        put_piece(b, behind(b, from, prefix | first), 0x80, lo & below, end & below, n_more - 1);
        lo = end + 1;
    }
}

static void put_range(builder *b, uint32_t lo, uint32_t hi) {
    static const struct {
        uint32_t lo, hi;
        unsigned prefix;
        int n_more;
    } length[] = {{0, 0x7F, 0, 0},
                  {0x80, 0x7FF, 0xC0, 1},
                  {0x800, 0xD7FF, 0xE0, 2},
                  {0xE000, 0xFFFF, 0xE0, 2},
                  {0x10000, LAST_CODE_POINT, 0xF0, 3}};
    for (size_t i = 0; i < sizeof length / sizeof *length; i++) {
        const uint32_t a = lo > length[i].lo ? lo : length[i].lo, z = hi < length[i].hi ? hi : length[i].hi;
        if (a <= z) put_piece(b, 0, length[i].prefix, a, z, length[i].n_more);
    }
}

/* Sorted by state, into the grammar's arrays. */
static void keep_edges(const builder *b) {
    gram *g = b->g;
    const uint32_t n = b->n_state;
    if (!gram_grow(g, &g->cls, &g->cap_cls, g->n_cls + 1u, sizeof *g->cls)) return;
    if (!gram_grow(g, &g->class_first, &g->cap_class_first, (size_t)g->n_class_first + n + 1,
                   sizeof *g->class_first))
        return;
    if (!gram_grow(g, &g->edge, &g->cap_edge, (size_t)g->n_edge + b->n_edge, sizeof *g->edge)) return;
    uint32_t *first = g->class_first + g->n_class_first, at = g->n_edge;
    memset(first, 0, (n + 1) * sizeof *first);
    for (uint32_t i = 0; i < b->n_edge; i++) first[b->from[i]]++;
    for (uint32_t s = 0; s <= n; s++) {
        const uint32_t count = s < n ? first[s] : 0;
        first[s] = at;
        at += count;
    }
    for (uint32_t i = 0; i < b->n_edge; i++) g->edge[first[b->from[i]]++] = b->edge[i];
    memmove(first + 1, first, n * sizeof *first);
    first[0] = g->n_edge;
    g->cls[g->n_cls++] = (gram_class){.first = g->n_class_first, .n_state = n};
    g->n_class_first += n + 1;
    g->n_edge += b->n_edge;
}

static void keep(builder *b) {
    if (b->g->st == MICA_OK) keep_edges(b);
    mem_free(b->edge);
    mem_free(b->from);
}

static int by_low(const void *a, const void *b) {
    const gram_range *x = a, *y = b;
    return x->lo != y->lo ? (x->lo > y->lo) - (x->lo < y->lo) : (x->hi > y->hi) - (x->hi < y->hi);
}

size_t gram_ranges_normal(gram_range *out, gram_range *r, size_t n, bool negated) {
    size_t k = 0;
    if (n) qsort(r, n, sizeof *r, by_low);
    for (size_t i = 0; i < n; i++) {
        if (k && r[i].lo <= out[k - 1].hi + 1) {
            if (r[i].hi > out[k - 1].hi) out[k - 1].hi = r[i].hi;
        } else {
            out[k++] = r[i];
        }
    }
    if (!negated) return k;
    size_t m = 0;
    uint32_t from = 0;
    for (size_t i = 0; i < k; i++) { // out[m] is written after out[i] with i >= m was read
        const gram_range cut = out[i];
        if (cut.lo > from) out[m++] = (gram_range){from, cut.lo - 1};
        from = cut.hi + 1;
    }
    if (from <= LAST_CODE_POINT) out[m++] = (gram_range){from, LAST_CODE_POINT};
    return m;
}

static bool only_surrogates(const gram_range *r, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (r[i].lo < 0xD800 || r[i].hi > 0xDFFF) return false;
    return true;
}

/* The class known under a key, or the one that `made` gives. */
typedef void make_fn(gram *g, slice key);

static uint32_t class_known(gram *g, slice key, make_fn *make) {
    mica_error err;
    uint32_t cls = text_symtab_find(&g->classes, key.p, key.n);
    bool findable = true;
    if (cls != TEXT_SYM_NONE || g->st != MICA_OK) return cls;
    if (text_symtab_add(&g->classes, key, &findable, &cls, &err) != MICA_OK)
        gram_fail(g, err.status, "%s", err.text);
    else
        make(g, key);
    return cls;
}

static void make_ranges(gram *g, slice key) {
    const gram_range *r = (const gram_range *)(const void *)key.p;
    builder b = {.g = g, .n_state = FIRST_OWN};
    edge_add(&b, TAIL_1, 0x80, 0xBF, GRAM_DONE);
    edge_add(&b, TAIL_2, 0x80, 0xBF, TAIL_1);
    edge_add(&b, TAIL_3, 0x80, 0xBF, TAIL_2);
    for (size_t i = 0; i < key.n / sizeof *r; i++) put_range(&b, r[i].lo, r[i].hi);
    keep(&b);
}

gram_expr gram_class_of(gram *g, const gram_range *ranges, size_t n, bool negated) {
    if (g->st != MICA_OK) return 0;
    gram_range *copy = mem_alloc((n + 1) * sizeof *copy), *r = mem_alloc((n + 2) * sizeof *r);
    uint32_t cls = TEXT_SYM_NONE;
    if (!copy || !r) {
        gram_fail(g, MICA_E_NOMEM, "grammar: out of memory");
    } else {
        if (n) memcpy(copy, ranges, n * sizeof *copy);
        n = gram_ranges_normal(r, copy, n, negated);
        if (only_surrogates(r, n))
            gram_fail(g, MICA_E_ARG, "grammar: line %u column %u: a class of no character", g->line,
                      g->column);
        else
            cls = class_known(g, (slice){(const char *)r, n * sizeof *r}, make_ranges);
    }
    mem_free(copy);
    mem_free(r);
    return g->st == MICA_OK ? gram_class_node(g, cls) : 0;
}

/* ---- text up to a mark ---- */

/* How much of the mark stands at the end of its first n bytes with `byte` behind. */
static size_t matched(slice mark, size_t n, uint8_t byte) {
    for (size_t k = n + 1; k > 0; k--) {
        if ((uint8_t)mark.p[k - 1] == byte && memcmp(mark.p, mark.p + n - (k - 1), k - 1) == 0) return k;
    }
    return 0;
}

enum { KEY_PREFIX = 8 };

/* States behind the first bytes of a character that is no part of a mark; n counts on from the mark's own. */
enum { REST_1, REST_2, REST_3, AFTER_E0, AFTER_ED, AFTER_F0, AFTER_F4, N_REST = GRAM_UNTIL_REST };

static void rest_edges(builder *b, uint32_t n) {
    static const struct {
        uint8_t from, lo, hi, to; // to N_REST: the character is whole
    } rest[] = {{REST_1, 0x80, 0xBF, N_REST},   {REST_2, 0x80, 0xBF, REST_1},
                {REST_3, 0x80, 0xBF, REST_2},   {AFTER_E0, 0xA0, 0xBF, REST_1},
                {AFTER_ED, 0x80, 0x9F, REST_1}, {AFTER_F0, 0x90, 0xBF, REST_2},
                {AFTER_F4, 0x80, 0x8F, REST_2}};
    for (int i = 0; i < N_REST; i++)
        edge_add(b, n + rest[i].from, rest[i].lo, rest[i].hi,
                 rest[i].to == N_REST ? (uint16_t)0 : (uint16_t)(n + rest[i].to));
}

static void lead_edges(builder *b, uint32_t from, uint32_t n) {
    static const struct {
        uint8_t lo, hi, to;
    } lead[] = {{0xC2, 0xDF, REST_1}, {0xE0, 0xE0, AFTER_E0}, {0xE1, 0xEC, REST_2}, {0xED, 0xED, AFTER_ED},
                {0xEE, 0xEF, REST_2}, {0xF0, 0xF0, AFTER_F0}, {0xF1, 0xF3, REST_3}, {0xF4, 0xF4, AFTER_F4}};
    for (size_t i = 0; i < sizeof lead / sizeof *lead; i++)
        edge_add(b, from, lead[i].lo, lead[i].hi, (uint16_t)(n + lead[i].to));
}

/* State n: the last n bytes are the first n of the mark, which is ASCII, or one byte that no text has. */
static void make_until(gram *g, slice key) {
    const slice mark = {key.p + KEY_PREFIX, key.n - KEY_PREFIX};
    const uint32_t n_mark = (uint32_t)mark.n;
    builder b = {.g = g, .n_state = n_mark + N_REST};
    for (uint32_t n = 0; n < n_mark; n++) {
        unsigned from = 0;
        for (unsigned byte = 1; byte <= 128; byte++) {
            const size_t k = matched(mark, n, (uint8_t)from);
            if (byte < 128 && matched(mark, n, (uint8_t)byte) == k) continue;
            edge_add(&b, n, from, byte - 1, k == mark.n ? GRAM_DONE : (uint16_t)k);
            from = byte;
        }
        lead_edges(&b, n, n_mark);
        if ((uint8_t)mark.p[0] == 0xFF) edge_add(&b, n, 0xFF, 0xFF, GRAM_DONE);
    }
    rest_edges(&b, n_mark);
    keep(&b);
}

uint32_t gram_until_class(gram *g, slice mark) {
    strbuf key = {0};
    strbuf_put(&key, "\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", KEY_PREFIX); // as a range it would be none
    strbuf_put(&key, mark.p, mark.n);
    const uint32_t cls = key.failed ? TEXT_SYM_NONE : class_known(g, (slice){key.p, key.n}, make_until);
    if (key.failed) gram_fail(g, MICA_E_NOMEM, "grammar: out of memory");
    strbuf_fini(&key);
    return cls;
}
