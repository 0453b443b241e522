/* Which tokens may come at a set of places: a walk of the vocabulary's tree, with the set behind each node's
 * bytes at hand, that leaves out the branch of every node whose set is empty.
 *
 * Inside of free text nearly every branch is alive, and a walk of a hundred thousand nodes and more for every
 * token would cost a millisecond. But what a string allows depends on who called it only once it ends. So the
 * places under one frame are looked at by themselves first, under a frame of nobody: what they allow is the
 * same in every string of the grammar and is kept; the nodes where the string's end was reached (or the count
 * of its characters could begin to matter) are kept too, and only from there on the walk is made with all
 * that is known. Branches whose bytes all lead back to the same set are taken as a whole. */
#include "text/grammar_int.h"

#include "base/mem.h"

enum {
    KEEP_FROM = 2048, // nodes a walk has looked at: what it gave is worth its memory
    KEEP_BYTES = 16 << 20,
};

static void put(uint8_t *bits, int32_t id) {
    bits[id >> 3] |= (uint8_t)(1u << (id & 7));
}

static void put_run(uint8_t *bits, const token_trie *t, uint32_t from, uint32_t to) {
    for (uint32_t i = from; i < to; i++) put(bits, t->id[i]);
}

/* The bytes that lead from the place back to it. */
static const trie_set *loop_of(gram_table *t, uint32_t place) {
    uint32_t loop = t->place[place].loop;
    if (loop == GRAM_NONE) {
        trie_set set = {{0}};
        for (unsigned b = 0; b < 256; b++) {
            const uint32_t to = gram_place_step(t, place, (uint8_t)b);
            if (to == GRAM_NONE) return NULL;
            if (to == place) set.bit[b / 64] |= 1ull << b % 64;
        }
        if (t->n_loop >= t->cap_loop &&
            !gram_grow(NULL, &t->loop, &t->cap_loop, t->n_loop + 1u, sizeof set)) {
            t->no_memory = true;
            return NULL;
        }
        loop = t->place[place].loop = t->n_loop;
        t->loop[t->n_loop++] = set;
    }
    return &t->loop[loop];
}

static bool within(const trie_set *a, const trie_set *b) {
    return !((a->bit[0] & ~b->bit[0]) | (a->bit[1] & ~b->bit[1]) | (a->bit[2] & ~b->bit[2]) |
             (a->bit[3] & ~b->bit[3]));
}

typedef struct walk {
    gram_core *c;
    uint8_t *bits;
    bool local; // stops where the frame's end is reached, or GRAM_NEAR bytes down, and notes the node
} walk;

static bool note(gram_walker *w, gram_table *t, uint32_t node) {
    if (w->n_out >= w->cap_out && !gram_grow(NULL, &w->out, &w->cap_out, w->n_out + 1u, sizeof *w->out)) {
        t->no_memory = true;
        return false;
    }
    w->out[w->n_out++] = node;
    return true;
}

/* All below node `top`, where `place` stands. */
static bool walk_below(const walk *k, uint32_t top, uint32_t place) {
    const token_trie *trie = k->c->trie;
    gram_table *t = &k->c->table;
    gram_walker *w = &k->c->walker;
    uint32_t *at = w->at;
    at[trie->node[top].depth] = place;
    for (uint32_t i = top + 1, end = trie->node[top].skip; i < end;) {
        const trie_node *n = &trie->node[i];
        const uint32_t from = at[n->depth - 1], to = gram_place_step(t, from, n->byte);
        w->n_seen++;
        t->effort++;
        if (to == GRAM_NONE || t->effort > GRAM_MAX_WORK) return false;
        if (to == PLACE_DEAD) {
            i = n->skip;
            continue;
        }
        if (k->local && (t->place[to].flags & PLACE_OUT || n->depth == GRAM_NEAR)) {
            if (!note(w, t, i)) return false;
            i = n->skip;
            continue;
        }
        if (to == from && n->below != TRIE_NARROW) {
            const trie_set *loop = loop_of(t, to);
            if (!loop) return false;
            if (within(&trie->below[n->below], loop)) {
                put_run(k->bits, trie, n->first, trie->node[n->skip].first);
                i = n->skip;
                continue;
            }
        }
        put_run(k->bits, trie, n->first, n[1].first);
        at[n->depth] = to;
        i++;
    }
    return true;
}

/* ---- what places allow by themselves ---- */

/* A copy of bits and nodes for the table; its number. GRAM_NONE: there is no room, and it was only a saving.
 */
static uint32_t keep(gram_core *c, const uint8_t *bits, const uint32_t *out, uint32_t n_out) {
    gram_table *t = &c->table;
    const size_t n_byte = (c->trie->n_vocab + 7) / 8, size = n_byte + n_out * sizeof *out;
    if (t->kept_bytes + size > KEEP_BYTES) return GRAM_NONE;
    gram_local kept = {mem_alloc(n_byte), mem_alloc((n_out + 1) * sizeof *out), n_out};
    if (!kept.bits || !kept.out ||
        !gram_grow(NULL, &t->local, &t->cap_local, t->n_local + 1u, sizeof *t->local)) {
        mem_free(kept.bits);
        mem_free(kept.out);
        return GRAM_NONE;
    }
    memcpy(kept.bits, bits, n_byte);
    if (n_out) memcpy(kept.out, out, n_out * sizeof *out);
    t->kept_bytes += size;
    t->local[t->n_local] = kept;
    return t->n_local++;
}

/* NULL: not kept, though looked at: its bits are in `bits`, its nodes in the walker. Out of order: *good. */
static const gram_local *local_walk(gram_core *c, uint32_t local, uint8_t *bits, bool *good) {
    gram_table *t = &c->table;
    gram_walker *w = &c->walker;
    if (t->place[local].local != GRAM_NONE) return &t->local[t->place[local].local];
    w->n_out = w->n_seen = 0;
    memset(bits, 0, (c->trie->n_vocab + 7) / 8);
    *good = walk_below(&(walk){.c = c, .bits = bits, .local = true}, 0, local);
    if (!*good || w->n_seen < KEEP_FROM) return NULL;
    const uint32_t kept = keep(c, bits, w->out, w->n_out);
    t->place[local].local = kept;
    return kept == GRAM_NONE ? NULL : &t->local[kept];
}

/* The walk with all that is known, from each node where the places under one frame were through. */
static bool walk_on(gram_core *c, uint32_t place, const uint32_t *node, uint32_t n, uint8_t *bits) {
    const token_trie *trie = c->trie;
    for (uint32_t i = 0; i < n; i++) {
        const trie_node *at = &trie->node[node[i]];
        const slice path = text_vocab_bytes(c->vocab, trie->id[at->first]); // its beginning is the node's
        uint32_t p = place;
        for (unsigned k = 0; k < at->depth && p != PLACE_DEAD && p != GRAM_NONE; k++)
            p = gram_place_step(&c->table, p, (uint8_t)path.p[k]);
        if (p == GRAM_NONE) return false;
        if (p == PLACE_DEAD) continue;
        put_run(bits, trie, at->first, at[1].first);
        if (at->skip > node[i] + 1 && !walk_below(&(walk){.c = c, .bits = bits}, node[i], p)) return false;
    }
    return true;
}

static bool add_frame(gram_core *c, uint32_t place, uint32_t frame, uint8_t *bits) {
    const size_t n_byte = (c->trie->n_vocab + 7) / 8;
    const uint32_t local = gram_place_local(&c->table, place, frame);
    bool good = true;
    if (local == GRAM_NONE) return false;
    const gram_local *known = local_walk(c, local, c->walker.bits, &good);
    if (!good) return false;
    const uint8_t *from = known ? known->bits : c->walker.bits;
    for (size_t i = 0; i < n_byte; i++) bits[i] |= from[i];
    return walk_on(c, place, known ? known->out : c->walker.out, known ? known->n_out : c->walker.n_out,
                   bits);
}

/* ---- tokens by number ---- */

static void add_named(const gram_core *c, const gram_place *p, uint8_t *bits) {
    const token_trie *trie = c->trie;
    for (uint32_t i = 0; i < p->n_item; i++) {
        const gram_state s = c->table.p->state[c->table.item[p->item + i].state];
        if (s.kind == ST_TOKEN) put(bits, (int32_t)s.a);
        for (uint32_t k = 0; s.kind == ST_CONTROL && k < trie->n_control; k++)
            if ((uint32_t)trie->control[k] != s.a) put(bits, trie->control[k]);
        if (s.kind != ST_NOT_TOKEN) continue;
        const bool was = bits[s.a >> 3] >> (s.a & 7) & 1;
        put_run(bits, trie, 0, trie->n_id);
        for (uint32_t k = 0; k < trie->n_control; k++) put(bits, trie->control[k]);
        if (!was) bits[s.a >> 3] &= (uint8_t) ~(1u << (s.a & 7));
    }
    for (uint32_t k = 0; p->flags & PLACE_END && k < trie->n_end; k++) put(bits, trie->end[k]);
}

/* Where a rule may end behind every character little is learned of it by itself; what was dear is then kept
 * for just this place. */
bool gram_mask_place(gram_core *c, uint32_t place, uint8_t *bits) {
    gram_table *t = &c->table;
    const size_t n_byte = (c->trie->n_vocab + 7) / 8;
    const uint64_t effort = t->effort;
    const uint32_t whole = t->place[place].whole;
    if (whole != GRAM_NONE) {
        memcpy(bits, t->local[whole].bits, n_byte);
        return true;
    }
    memset(bits, 0, n_byte);
    // Items are sorted by frame. Numbers of places stay while the table grows, their addresses do not.
    for (uint32_t i = 0; i < t->place[place].n_item;) {
        const uint32_t frame = t->item[t->place[place].item + i].frame;
        if (!add_frame(c, place, frame, bits)) return false;
        while (i < t->place[place].n_item && t->item[t->place[place].item + i].frame == frame) i++;
    }
    add_named(c, &t->place[place], bits);
    if (t->effort - effort > 4 * KEEP_FROM) t->place[place].whole = keep(c, bits, NULL, 0);
    return true;
}
