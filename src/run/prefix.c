/* The tree, its memory, and who leaves it.
 *
 *     root ── page 0 ──┬── page 1 ──── page 2 (whole) ── page 3 (40 tokens so far; snapshot at 12, at 40)
 *                      └── page 1' (parts from page 1 at its 200th token: its own copy of all)
 *
 * Only whole pages have children, so a node's place in its text is a page number. A node's chunks hold its
 * tokens first (KV_PAGE of them), then the rows of its n_tok positions in the order of engine_page. A node
 * that a longer text continues within the page grows: its chunks are replaced, its snapshots stay. */
#include "run/prefix.h"

#include "base/mem.h"
#include "run/prefix_disk.h"
#include "run/slab.h"

#include <assert.h>
#include <string.h>

enum { TOKEN_BYTES = KV_PAGE * sizeof(int32_t) };
_Static_assert((size_t)TOKEN_BYTES <= (size_t)SLAB_CHUNK, "a node's tokens lie in its first chunk");

typedef struct tree_node {
    prefix_key key;               // of the text up to its end: what it is called on disk
    uint64_t used;                // clock
    uint32_t parent, child, next; // next: sibling, or among the free
    uint32_t chain;
    uint32_t snap; // first of its snapshots
    uint32_t n_pin;
    uint32_t page, n_tok;
    bool live, on_disk;
} tree_node;

typedef struct tree_state {
    uint64_t used;
    uint32_t node, next; // next: of the same node, or among the free
    uint32_t chain;
    uint32_t n_tok; // of the node's
    bool live, has_logits, on_disk;
} tree_state;

struct prefix {
    engine *e; // borrowed
    slab mem;
    tree_node *nodes;              // owned, [mem.n_chunk + 1]; 0 is the root
    tree_state *snaps;             // owned, [mem.n_chunk]
    uint32_t n_node, n_snap;       // touched so far: live ones and free ones
    uint32_t free_node, free_snap; // chains through next
    uint64_t clock;
    uint64_t ram_bytes;
    prefix_disk *disk; // owned; NULL: memory only
};

/* ---- memory ---- */

mica_status prefix_new(prefix **out, engine *e, uint64_t ram_bytes, const char *dir, uint64_t disk_bytes,
                       mica_error *err) {
    const uint64_t per_chunk = SLAB_CHUNK + sizeof(tree_node) + sizeof(tree_state) + sizeof(uint32_t);
    *out = NULL;
    mica_status st = MICA_OK;
    uint64_t n_chunk = ram_bytes / per_chunk;
    if (n_chunk > UINT32_MAX - 2) n_chunk = UINT32_MAX - 2;
    prefix *p = mem_calloc(1, sizeof *p);
    if (!p) return fail(err, MICA_E_NOMEM, "prefix cache: out of memory");
    *p = (prefix){.e = e, .free_node = PREFIX_NONE, .free_snap = PREFIX_NONE, .n_node = 1};
    p->ram_bytes = ram_bytes;
    TRY_GOTO(slab_init(&p->mem, (uint32_t)n_chunk, err), done);
    p->nodes = mem_pages_alloc((n_chunk + 1) * sizeof *p->nodes);
    p->snaps = mem_pages_alloc((n_chunk + 1) * sizeof *p->snaps);
    if (!p->nodes || !p->snaps) {
        st = fail(err, MICA_E_NOMEM, "prefix cache: %llu nodes: out of memory", (unsigned long long)n_chunk);
        goto done;
    }
    p->nodes[PREFIX_ROOT] = (tree_node){.parent = PREFIX_NONE,
                                        .child = PREFIX_NONE,
                                        .next = PREFIX_NONE,
                                        .chain = SLAB_NONE,
                                        .snap = PREFIX_NONE,
                                        .live = true,
                                        .on_disk = true,
                                        .key = prefix_disk_root(e)};
    if (dir) p->disk = prefix_disk_open(dir, disk_bytes);
    *out = p;
    p = NULL;
done:
    prefix_free(p);
    return st;
}

void prefix_free(prefix *p) {
    if (!p) return;
    while (prefix_idle(p)) {
    }
    prefix_disk_close(p->disk);
    mem_pages_free(p->nodes);
    mem_pages_free(p->snaps);
    slab_fini(&p->mem);
    mem_free(p);
}

static int32_t *tokens_of(const prefix *p, uint32_t i) {
    return (int32_t *)(void *)(p->mem.base + (size_t)p->nodes[i].chain * SLAB_CHUNK);
}

static uint32_t new_node(prefix *p) {
    uint32_t i = p->free_node;
    if (i == PREFIX_NONE) return p->n_node <= p->mem.n_chunk ? p->n_node++ : PREFIX_NONE;
    p->free_node = p->nodes[i].next;
    return i;
}

static uint32_t new_snapshot(prefix *p) {
    uint32_t i = p->free_snap;
    if (i == PREFIX_NONE) return p->n_snap < p->mem.n_chunk ? p->n_snap++ : PREFIX_NONE;
    p->free_snap = p->snaps[i].next;
    return i;
}

/* ---- disk ---- */

static size_t node_bytes(const prefix *p, uint32_t n_tok) {
    return TOKEN_BYTES + engine_page_bytes(p->e, n_tok);
}

static size_t snapshot_bytes(const prefix *p, bool has_logits) {
    return engine_state_bytes(p->e) + (has_logits ? engine_shape(p->e)->n_vocab * sizeof(float) : 0);
}

static disk_piece piece_of_node(const prefix *p, uint32_t i) {
    const tree_node *x = &p->nodes[i];
    return (disk_piece){.key = x->key,
                        .parent = p->nodes[x->parent].key,
                        .n_tok = x->n_tok,
                        .n_bytes = node_bytes(p, x->n_tok)};
}

static disk_piece piece_of_snapshot(const prefix *p, uint32_t i) {
    const tree_state *x = &p->snaps[i];
    const prefix_key *parent = &p->nodes[p->nodes[x->node].parent].key;
    return (disk_piece){.key = prefix_key_of(parent, tokens_of(p, x->node), x->n_tok, true),
                        .parent = *parent,
                        .n_tok = x->n_tok,
                        .n_bytes = snapshot_bytes(p, x->has_logits),
                        .is_state = true,
                        .has_logits = x->has_logits};
}

static void write_node(prefix *p, uint32_t i) {
    if (!p->disk || (p->nodes[i].on_disk && prefix_disk_touch(p->disk, &p->nodes[i].key))) return;
    disk_piece piece = piece_of_node(p, i);
    prefix_disk_put(p->disk, &piece, tokens_of(p, i), slab_begin(&p->mem, p->nodes[i].chain));
    p->nodes[i].on_disk = true; // or given up
}

static void write_snapshot(prefix *p, uint32_t i) {
    if (!p->disk) return;
    disk_piece piece = piece_of_snapshot(p, i);
    if (p->snaps[i].on_disk && prefix_disk_touch(p->disk, &piece.key)) return;
    prefix_disk_put(p->disk, &piece, tokens_of(p, p->snaps[i].node), slab_begin(&p->mem, p->snaps[i].chain));
    p->snaps[i].on_disk = true;
}

/* ---- who leaves ---- */

static void drop_snapshot(prefix *p, uint32_t i) {
    tree_state *x = &p->snaps[i];
    uint32_t *at = &p->nodes[x->node].snap;
    while (*at != i) at = &p->snaps[*at].next;
    *at = x->next;
    slab_give(&p->mem, x->chain);
    *x = (tree_state){.next = p->free_snap};
    p->free_snap = i;
}

static void drop_node(prefix *p, uint32_t i) {
    tree_node *x = &p->nodes[i];
    assert(x->child == PREFIX_NONE && x->n_pin == 0 && i != PREFIX_ROOT);
    while (x->snap != PREFIX_NONE) {
        write_snapshot(p, x->snap);
        drop_snapshot(p, x->snap);
    }
    uint32_t *at = &p->nodes[x->parent].child;
    while (*at != i) at = &p->nodes[*at].next;
    *at = x->next;
    slab_give(&p->mem, x->chain);
    *x = (tree_node){.next = p->free_node};
    p->free_node = i;
}

/* The longest unused of what nothing needs, used before `before`. False: there is none. */
static bool evict(prefix *p, uint64_t before) {
    uint32_t leaf = PREFIX_NONE, snap = PREFIX_NONE;
    uint64_t oldest = before;
    for (uint32_t i = 0; i < p->n_snap; i++) {
        if (!p->snaps[i].live || p->snaps[i].used >= oldest) continue;
        oldest = p->snaps[i].used;
        snap = i;
    }
    for (uint32_t i = 1; i < p->n_node; i++) {
        const tree_node *x = &p->nodes[i];
        if (!x->live || x->child != PREFIX_NONE || x->n_pin > 0 || x->used >= oldest) continue;
        oldest = x->used;
        leaf = i;
    }
    if (leaf != PREFIX_NONE) {
        write_node(p, leaf);
        drop_node(p, leaf);
        return true;
    }
    if (snap == PREFIX_NONE) return false;
    write_snapshot(p, snap);
    drop_snapshot(p, snap);
    return true;
}

/* A chain for n_bytes, others put out for it; SLAB_NONE when that does not help. */
static uint32_t take_room(prefix *p, size_t n_bytes, uint64_t before) {
    uint32_t n = slab_chunks(n_bytes);
    if (n > p->mem.n_chunk) return SLAB_NONE;
    while (p->mem.n_free < n) {
        if (!evict(p, before)) return SLAB_NONE;
    }
    return slab_take(&p->mem, n_bytes);
}

/* ---- copies ---- */

typedef struct mover {
    engine *e;
    slab_pos at;
    bool out; // of the device
} mover;

static mica_status move_stretch(void *user, void *at, size_t n, mica_error *err) {
    mover *m = user;
    for (char *dev_at = at; n > 0;) {
        void *p;
        size_t k = slab_span(&m->at, n, &p);
        n -= k;
        if (!dev_at) continue;
        TRY(m->out ? engine_read(m->e, p, dev_at, k, err) : engine_write(m->e, dev_at, p, k, err));
        dev_at += k;
    }
    return MICA_OK;
}

static void move_host(slab_pos *at, void *host, size_t n, bool out) {
    for (char *h = host; n > 0;) {
        void *p;
        size_t k = slab_span(at, n, &p);
        memcpy(out ? (void *)h : p, out ? p : (void *)h, k);
        h += k;
        n -= k;
    }
}

/* ---- finding ---- */

static uint32_t common(const int32_t *a, const int32_t *b, size_t n) {
    uint32_t k = 0;
    while (k < n && a[k] == b[k]) k++;
    return k;
}

/* The child that shares most with ids[0..n), of equal ones the one used last; *n_same tokens. */
static uint32_t best_child(const prefix *p, uint32_t parent, const int32_t *ids, size_t n, uint32_t *n_same) {
    uint32_t best = PREFIX_NONE;
    *n_same = 0;
    for (uint32_t i = p->nodes[parent].child; i != PREFIX_NONE; i = p->nodes[i].next) {
        const tree_node *x = &p->nodes[i];
        uint32_t k = common(tokens_of(p, i), ids, x->n_tok < n ? x->n_tok : n);
        if (k == 0 || k < *n_same) continue;
        if (k == *n_same && x->used <= p->nodes[best].used) continue;
        best = i;
        *n_same = k;
    }
    return best;
}

/* The longest state of the node that belongs to this text: within its first n_same tokens. */
static void best_snapshot(const prefix *p, uint32_t i, uint32_t n_same, size_t n, prefix_match *out) {
    for (uint32_t k = p->nodes[i].snap; k != PREFIX_NONE; k = p->snaps[k].next) {
        const tree_state *x = &p->snaps[k];
        size_t end = (size_t)p->nodes[i].page * KV_PAGE + x->n_tok;
        if (x->n_tok > n_same || end <= out->n || (end == n && !x->has_logits)) continue;
        out->n = end;
        out->node = i;
        out->snap = k;
        out->has_logits = end == n;
    }
}

static uint32_t node_at(const prefix *p, uint32_t i, size_t n) {
    while (i != PREFIX_ROOT && (size_t)p->nodes[i].page * KV_PAGE >= n) i = p->nodes[i].parent;
    return i;
}

/* ---- texts that differ in a few tokens alone ---- */

enum { NOISE_MAX = 64, NOISE_PROOF = 32 }; // tokens that may differ; tokens that must agree after them

/* Reads on in an older text: the tokens of a node, then of the child of each that was used last. */
typedef struct old_text {
    const prefix *p;
    uint32_t node, at;
} old_text;

static bool old_next(old_text *t, int32_t *id) {
    while (t->node != PREFIX_NONE && t->at == t->p->nodes[t->node].n_tok) {
        uint32_t best = t->p->nodes[t->node].child;
        for (uint32_t i = best; i != PREFIX_NONE; i = t->p->nodes[i].next) {
            if (t->p->nodes[i].used > t->p->nodes[best].used) best = i;
        }
        t->node = best;
        t->at = 0;
    }
    if (t->node == PREFIX_NONE) return false;
    *id = tokens_of(t->p, t->node)[t->at++];
    return true;
}

/* Where the text goes on as an older one does after the two part at `reach`: fills noise_at, n_noise and
 * n_after. `from` stands in the older text where they part. */
static void find_noise(old_text from, const int32_t *ids, size_t n, size_t reach, prefix_match *out) {
    int32_t old[NOISE_MAX + NOISE_PROOF];
    uint32_t n_old = 0;
    old_text t = from;
    while (n_old < NOISE_MAX + NOISE_PROOF && old_next(&t, &old[n_old])) n_old++;
    for (uint32_t sum = 1; sum <= 2 * NOISE_MAX; sum++) {
        for (uint32_t mine = sum > NOISE_MAX ? sum - NOISE_MAX : 0; mine <= sum && mine <= NOISE_MAX;
             mine++) {
            uint32_t other = sum - mine;
            if (reach + mine + NOISE_PROOF > n || other + NOISE_PROOF > n_old) continue;
            const int32_t *rest = ids + reach + mine;
            if (common(rest, old + other, NOISE_PROOF) < NOISE_PROOF) continue;
            int32_t id;
            for (t = from; other > 0; other--) old_next(&t, &id);
            out->noise_at = reach;
            out->n_noise = mine;
            while (reach + mine + out->n_after < n && old_next(&t, &id) && rest[out->n_after] == id)
                out->n_after++;
            return;
        }
    }
}

/* The older text to compare with: the child used last of the node that the text reached, if it parts there.
 */
static void look_for_noise(const prefix *p, const int32_t *ids, size_t n, size_t reach, prefix_match *out) {
    uint32_t at = out->page, n_same = (uint32_t)(reach - (size_t)prefix_pages(p, at) * KV_PAGE),
             best = PREFIX_NONE;
    for (uint32_t i = p->nodes[at].child; i != PREFIX_NONE; i = p->nodes[i].next) {
        bool along =
            common(tokens_of(p, i), ids + reach - n_same, n_same) == n_same && p->nodes[i].n_tok > n_same;
        if (along && (best == PREFIX_NONE || p->nodes[i].used > p->nodes[best].used)) best = i;
    }
    if (best != PREFIX_NONE) find_noise((old_text){p, best, n_same}, ids, n, reach, out);
}

static void load_path(prefix *p, const int32_t *ids, size_t n, prefix_match *out);

void prefix_find(prefix *p, const int32_t *ids, size_t n, prefix_match *out) {
    bool state = engine_has_state(p->e);
    uint32_t at = PREFIX_ROOT, last = PREFIX_ROOT, n_same = KV_PAGE;
    size_t reach = 0;
    *out = (prefix_match){.node = PREFIX_ROOT, .snap = PREFIX_NONE, .page = PREFIX_ROOT};
    p->clock++;
    if (p->disk) load_path(p, ids, n, out);
    while (n_same == KV_PAGE && reach < n) {
        uint32_t i = best_child(p, at, ids + reach, n - reach, &n_same);
        if (i == PREFIX_NONE) break;
        p->nodes[i].used = p->clock;
        if (state) best_snapshot(p, i, n_same, n, out);
        reach += n_same;
        last = i;
        if (n_same == KV_PAGE) at = i;
    }
    out->page = at;
    if (n - reach > NOISE_PROOF) look_for_noise(p, ids, n, reach, out);
    if (state) {
        if (out->snap != PREFIX_NONE) p->snaps[out->snap].used = p->clock;
        return;
    }
    out->n = reach < n ? reach : n - 1; // the last is read for its logits
    out->node = node_at(p, last, out->n);
}

mica_status prefix_restore(prefix *p, const prefix_match *m, int32_t seq, size_t n_own, float *logits,
                           mica_error *err) {
    uint32_t n_page = prefix_pages(p, m->node), n_slot = engine_ring_slots(p->e);
    uint32_t first = (uint32_t)(n_own / KV_PAGE);
    for (uint32_t i = m->node; m->n > n_own && i != PREFIX_ROOT && p->nodes[i].page >= first;
         i = p->nodes[i].parent) {
        const tree_node *x = &p->nodes[i];
        engine_page_args a = {.seq = seq, .page = x->page, .n_pos = x->n_tok};
        a.window = n_slot == 0 || x->page + n_slot >= n_page;
        mover v = {.e = p->e, .at = slab_begin(&p->mem, x->chain)};
        slab_skip(&v.at, TOKEN_BYTES);
        TRY(engine_page(p->e, &a, move_stretch, &v, err));
    }
    if (m->n > n_own)
        engine_page_seen(p->e, seq, (n_page - 1) * KV_PAGE + p->nodes[m->node].n_tok, n_own == 0);
    if (m->snap == PREFIX_NONE) return MICA_OK;
    mover v = {.e = p->e, .at = slab_begin(&p->mem, p->snaps[m->snap].chain)};
    TRY(engine_state_region(p->e, seq, move_stretch, &v, err));
    if (m->has_logits) move_host(&v.at, logits, engine_shape(p->e)->n_vocab * sizeof(float), true);
    return MICA_OK;
}

/* ---- places ---- */

uint32_t prefix_pages(const prefix *p, uint32_t place) {
    return place == PREFIX_ROOT ? 0 : p->nodes[place].page + 1;
}

uint32_t prefix_enter(prefix *p, uint32_t page, size_t n) {
    while (page != PREFIX_ROOT && (size_t)prefix_pages(p, page) * KV_PAGE > n) page = p->nodes[page].parent;
    p->nodes[page].n_pin++;
    return page;
}

void prefix_leave(prefix *p, uint32_t place) {
    if (place == PREFIX_NONE) return;
    assert(p->nodes[place].n_pin > 0);
    p->nodes[place].n_pin--;
}

/* ---- putting in ---- */

/* The child of the place that is a beginning of these tokens, or that they are a beginning of. */
static uint32_t child_along(const prefix *p, uint32_t place, const int32_t *tokens, uint32_t n_tok) {
    for (uint32_t i = p->nodes[place].child; i != PREFIX_NONE; i = p->nodes[i].next) {
        uint32_t n = p->nodes[i].n_tok < n_tok ? p->nodes[i].n_tok : n_tok;
        if (common(tokens_of(p, i), tokens, n) == n) return i;
    }
    return PREFIX_NONE;
}

/* Gives node i these tokens and a chain that has room for their rows. */
static void set_tokens(prefix *p, uint32_t i, const int32_t *tokens, uint32_t n_tok, uint32_t chain) {
    tree_node *x = &p->nodes[i];
    x->chain = chain;
    x->n_tok = n_tok;
    memset(tokens_of(p, i), 0, TOKEN_BYTES);
    memcpy(tokens_of(p, i), tokens, n_tok * sizeof *tokens);
    x->key = prefix_key_of(&p->nodes[x->parent].key, tokens, n_tok, false);
    x->on_disk = false;
    x->used = p->clock;
}

/* A node of the place for these tokens, its rows still to come: a new one, or a shorter one that grows. */
static uint32_t make_node(prefix *p, uint32_t place, const int32_t *tokens, uint32_t n_tok, uint64_t before) {
    uint32_t i = child_along(p, place, tokens, n_tok);
    p->nodes[place].n_pin++;
    if (i != PREFIX_NONE) p->nodes[i].n_pin++;
    uint32_t chain = take_room(p, node_bytes(p, n_tok), before);
    p->nodes[place].n_pin--;
    if (i != PREFIX_NONE) p->nodes[i].n_pin--;
    if (chain == SLAB_NONE) return PREFIX_NONE;
    if (i != PREFIX_NONE) {
        if (p->disk) prefix_disk_drop(p->disk, &p->nodes[i].key); // what is longer says it all
        slab_give(&p->mem, p->nodes[i].chain);
    } else {
        i = new_node(p);
        if (i == PREFIX_NONE) {
            slab_give(&p->mem, chain);
            return PREFIX_NONE;
        }
        p->nodes[i] = (tree_node){.parent = place,
                                  .child = PREFIX_NONE,
                                  .next = p->nodes[place].child,
                                  .snap = PREFIX_NONE,
                                  .page = prefix_pages(p, place),
                                  .live = true};
        p->nodes[place].child = i;
    }
    set_tokens(p, i, tokens, n_tok, chain);
    return i;
}

mica_status prefix_put(prefix *p, const prefix_piece *a, uint32_t *node_out, mica_error *err) {
    p->clock++;
    uint32_t i = child_along(p, a->place, a->tokens, a->n_tok);
    *node_out = i;
    if (i != PREFIX_NONE && p->nodes[i].n_tok >= a->n_tok) {
        p->nodes[i].used = p->clock;
        return MICA_OK;
    }
    i = make_node(p, a->place, a->tokens, a->n_tok, UINT64_MAX);
    *node_out = i;
    if (i == PREFIX_NONE) return MICA_OK;
    mover v = {.e = p->e, .at = slab_begin(&p->mem, p->nodes[i].chain), .out = true};
    slab_skip(&v.at, TOKEN_BYTES);
    engine_page_args g = {.seq = a->seq, .page = p->nodes[i].page, .n_pos = a->n_tok, .window = true};
    mica_status st = engine_page(p->e, &g, move_stretch, &v, err);
    if (st == MICA_OK) return st;
    drop_node(p, i); // its rows are not whole
    *node_out = PREFIX_NONE;
    return st;
}

static uint32_t snapshot_at(const prefix *p, uint32_t node, uint32_t n_tok) {
    uint32_t i = p->nodes[node].snap;
    while (i != PREFIX_NONE && p->snaps[i].n_tok != n_tok) i = p->snaps[i].next;
    return i;
}

/* A snapshot of the node, its bytes still to come. */
static uint32_t make_snapshot(prefix *p, uint32_t node, uint32_t n_tok, bool has_logits, uint64_t before) {
    p->nodes[node].n_pin++;
    uint32_t chain = take_room(p, snapshot_bytes(p, has_logits), before);
    p->nodes[node].n_pin--;
    if (chain == SLAB_NONE) return PREFIX_NONE;
    uint32_t i = new_snapshot(p);
    if (i == PREFIX_NONE) {
        slab_give(&p->mem, chain);
        return PREFIX_NONE;
    }
    p->snaps[i] = (tree_state){.used = p->clock,
                               .node = node,
                               .next = p->nodes[node].snap,
                               .chain = chain,
                               .n_tok = n_tok,
                               .live = true,
                               .has_logits = has_logits};
    p->nodes[node].snap = i;
    return i;
}

mica_status prefix_put_state(prefix *p, const prefix_state *s, mica_error *err) {
    p->clock++;
    uint32_t i = snapshot_at(p, s->node, s->n_tok);
    if (i != PREFIX_NONE && (p->snaps[i].has_logits || !s->logits)) {
        p->snaps[i].used = p->clock;
        return MICA_OK;
    }
    if (i != PREFIX_NONE) drop_snapshot(p, i);
    i = make_snapshot(p, s->node, s->n_tok, s->logits != NULL, UINT64_MAX);
    if (i == PREFIX_NONE) return MICA_OK;
    mover v = {.e = p->e, .at = slab_begin(&p->mem, p->snaps[i].chain), .out = true};
    mica_status st = engine_state_region(p->e, s->seq, move_stretch, &v, err);
    if (st != MICA_OK) {
        drop_snapshot(p, i);
        return st;
    }
    if (s->logits)
        move_host(&v.at, (void *)(uintptr_t)s->logits, engine_shape(p->e)->n_vocab * sizeof(float), false);
    return MICA_OK;
}

/* ---- from disk ---- */

/* The best pieces the disk has below one node for a text. */
typedef struct disk_search {
    const int32_t *ids;
    size_t n, base; // the text, and where the node ends in it
    disk_piece page, state;
    uint32_t n_same, n_state; // tokens of the page that are the text's; of the state; 0: none
    int32_t tokens[KV_PAGE];  // of the page
    size_t state_floor;       // states that end here or before are of no use
} disk_search;

static void consider(void *user, const disk_piece *x, const int32_t *tokens) {
    disk_search *s = user;
    size_t left = s->n - s->base;
    uint32_t k = common(tokens, s->ids + s->base, x->n_tok < left ? x->n_tok : left);
    size_t end = s->base + x->n_tok;
    if (x->is_state) {
        bool useful = k == x->n_tok && end > s->state_floor && (end < s->n || x->has_logits);
        if (!useful || k <= s->n_state) return;
        s->state = *x;
        s->n_state = k;
    } else if (k > s->n_same) {
        s->page = *x;
        s->n_same = k;
        memcpy(s->tokens, tokens, x->n_tok * sizeof *tokens);
    }
}

static uint32_t load_page(prefix *p, uint32_t parent, const disk_search *s) {
    if (s->page.n_bytes != node_bytes(p, s->page.n_tok)) return PREFIX_NONE;
    uint32_t i = child_along(p, parent, s->tokens, s->page.n_tok);
    if (i != PREFIX_NONE && p->nodes[i].n_tok >= s->page.n_tok) return i;
    if (i != PREFIX_NONE) return PREFIX_NONE; // a shorter one is here: it will grow when it is read on
    i = make_node(p, parent, s->tokens, s->page.n_tok, p->clock);
    if (i == PREFIX_NONE) return i;
    p->nodes[i].on_disk = true;
    bool whole = prefix_disk_get(p->disk, &s->page, slab_begin(&p->mem, p->nodes[i].chain));
    if (whole && memcmp(tokens_of(p, i), s->tokens, s->page.n_tok * sizeof *s->tokens) == 0) return i;
    drop_node(p, i);
    return PREFIX_NONE;
}

static void load_state(prefix *p, uint32_t node, const disk_piece *x) {
    if (x->n_bytes != snapshot_bytes(p, x->has_logits)) return;
    uint32_t i = make_snapshot(p, node, x->n_tok, x->has_logits, p->clock);
    if (i == PREFIX_NONE) return;
    p->snaps[i].on_disk = true;
    if (!prefix_disk_get(p->disk, x, slab_begin(&p->mem, p->snaps[i].chain))) drop_snapshot(p, i);
}

/* Brings what the disk knows of the text into the tree: pages on its way, and the last state on it. */
static void load_path(prefix *p, const int32_t *ids, size_t n, prefix_match *out) {
    uint32_t at = PREFIX_ROOT, n_same = KV_PAGE, holder = PREFIX_NONE;
    bool state = engine_has_state(p->e);
    prefix_match known = {.n = 0};
    disk_piece last = {.n_tok = 0};
    p->nodes[at].n_pin++;
    for (size_t reach = 0; n_same == KV_PAGE && reach < n; reach += n_same) {
        uint32_t i = best_child(p, at, ids + reach, n - reach, &n_same);
        disk_search s = {.ids = ids, .n = n, .base = reach, .n_same = n_same, .state_floor = reach};
        disk_query q = {.parent = p->nodes[at].key, .ids = ids + reach, .n = n - reach};
        if (state || n_same < KV_PAGE) prefix_disk_list(p->disk, &q, consider, &s);
        uint32_t loaded = s.n_same > n_same ? load_page(p, at, &s) : PREFIX_NONE;
        if (loaded != PREFIX_NONE) {
            i = loaded;
            out->n_disk += s.n_same - n_same;
            n_same = s.n_same;
        }
        if (i == PREFIX_NONE) break;
        p->nodes[i].used = p->clock;
        if (state) best_snapshot(p, i, n_same, n, &known);
        if (s.n_state > 0 && s.n_state <= n_same && reach + s.n_state > known.n) {
            last = s.state;
            holder = i;
        }
        p->nodes[i].n_pin++;
        p->nodes[at].n_pin--;
        at = i;
    }
    size_t last_end = last.n_tok ? (size_t)p->nodes[holder].page * KV_PAGE + last.n_tok : 0;
    if (last_end > known.n) load_state(p, holder, &last);
    p->nodes[at].n_pin--;
}

bool prefix_idle(prefix *p) {
    uint32_t leaf = PREFIX_NONE, snap = PREFIX_NONE, n_left = 0;
    uint64_t newest = 0;
    if (!p->disk) return false;
    for (uint32_t i = 1; i < p->n_node; i++) {
        if (!p->nodes[i].live || p->nodes[i].on_disk) continue;
        n_left++;
        if (p->nodes[i].used >= newest) newest = p->nodes[i].used, leaf = i;
    }
    for (uint32_t i = 0; i < p->n_snap; i++) {
        if (!p->snaps[i].live || p->snaps[i].on_disk) continue;
        n_left++;
        if (p->snaps[i].used >= newest) newest = p->snaps[i].used, snap = i;
    }
    if (snap != PREFIX_NONE)
        write_snapshot(p, snap);
    else if (leaf != PREFIX_NONE)
        write_node(p, leaf);
    return n_left > 1;
}

void prefix_info(const prefix *p, mica_cache_info *out) {
    out->ram_bytes = p->ram_bytes;
    out->ram_used_bytes = (uint64_t)(p->mem.n_chunk - p->mem.n_free) * SLAB_CHUNK;
    prefix_disk_info(p->disk, &out->disk_bytes, &out->disk_used_bytes);
}
