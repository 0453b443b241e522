/* Sets of places, numbered as they are met.
 *
 * A set is closed: what can be reached without a byte has been followed, and only places that wait for text
 * or a token are kept. Following a byte and closing again makes the next set. Calls are opened in the order
 * of the program, callers first, so that all who call a rule at one point are known when its frame is made:
 * the set of their links is the frame. This is Earley's algorithm (CACM 13, 1970) with his columns made into
 * numbers that mean the same wherever they occur; left recursion, which would need a fixed point there, was
 * refused before. A call in last place hands on the links of its caller (Leo, TCS 82, 1991, for free).
 *
 * Rules that may be empty are stepped over where they are called, so an end that is met while its frame is
 * being opened adds nothing that is not there already. */
#include "text/grammar_int.h"

#include "base/mem.h"

#include <stdlib.h>

/* A call that waits to be opened. */
typedef struct gram_pending {
    uint32_t order, rule;
    gram_link link;
} gram_pending;

static uint32_t mix(uint32_t h, uint32_t v) {
    h = (h ^ v) * 0x9E3779B1u;
    return h ^ h >> 15;
}

static bool grow(gram_table *t, void *array, uint32_t *cap, size_t n, size_t size) {
    if (n <= *cap || gram_grow(NULL, array, cap, n, size)) return true;
    t->no_memory = true;
    return false;
}

static uint32_t *slots_new(uint32_t n) {
    uint32_t *slot = mem_alloc(n * sizeof *slot);
    if (slot) memset(slot, 0xFF, n * sizeof *slot);
    return slot;
}

/* ---- frames ---- */

static bool same_links(const gram_table *t, uint32_t frame, const gram_link *l, uint32_t n) {
    const gram_frame *f = &t->frame[frame];
    return f->n_link == n && memcmp(t->link + f->link, l, n * sizeof *l) == 0;
}

static bool frame_slots_grow(gram_table *t) {
    const uint32_t n = (t->frame_mask + 1) * 2;
    uint32_t *slot = slots_new(n);
    if (!slot) return t->no_memory = true, false;
    for (uint32_t f = 0; f < t->n_frame; f++) {
        uint32_t i = t->frame[f].hash & (n - 1);
        while (slot[i] != GRAM_NONE) i = (i + 1) & (n - 1);
        slot[i] = f;
    }
    mem_free(t->frame_slot);
    t->frame_slot = slot;
    t->frame_mask = n - 1;
    return true;
}

/* The frame of sorted links. */
static uint32_t frame_of(gram_table *t, const gram_link *l, uint32_t n) {
    uint32_t h = n;
    for (uint32_t i = 0; i < n; i++) h = mix(mix(h, l[i].state), l[i].frame);
    uint32_t i = h & t->frame_mask;
    for (; t->frame_slot[i] != GRAM_NONE; i = (i + 1) & t->frame_mask) {
        const uint32_t f = t->frame_slot[i];
        if (t->frame[f].hash == h && same_links(t, f, l, n)) return f;
    }
    if (!grow(t, &t->frame, &t->cap_frame, t->n_frame + 1u, sizeof *t->frame) ||
        !grow(t, &t->link, &t->cap_link, (size_t)t->n_link + n, sizeof *t->link))
        return GRAM_NONE;
    memcpy(t->link + t->n_link, l, n * sizeof *l);
    t->frame[t->n_frame] = (gram_frame){.link = t->n_link, .n_link = n, .hash = h};
    t->n_link += n;
    t->frame_slot[i] = t->n_frame++;
    if (t->n_frame > t->frame_mask / 2 && !frame_slots_grow(t)) return GRAM_NONE;
    return t->n_frame - 1;
}

/* ---- sets ---- */

static int by_item(const void *a, const void *b) {
    const gram_item *x = a, *y = b;
    if (x->frame != y->frame) return x->frame < y->frame ? -1 : 1;
    if (x->state != y->state) return x->state < y->state ? -1 : 1;
    return (x->sub > y->sub) - (x->sub < y->sub);
}

static bool same_items(const gram_table *t, uint32_t place, const gram_item *v, uint32_t n) {
    const gram_place *p = &t->place[place];
    return p->n_item == n && memcmp(t->item + p->item, v, n * sizeof *v) == 0;
}

static bool place_slots_grow(gram_table *t) {
    const uint32_t n = (t->place_mask + 1) * 2;
    uint32_t *slot = slots_new(n);
    if (!slot) return t->no_memory = true, false;
    for (uint32_t p = 0; p < t->n_place; p++) {
        uint32_t i = t->place[p].hash & (n - 1);
        while (slot[i] != GRAM_NONE) i = (i + 1) & (n - 1);
        slot[i] = p;
    }
    mem_free(t->place_slot);
    t->place_slot = slot;
    t->place_mask = n - 1;
    return true;
}

/* The set of the items in `out` and the flags. */
static uint32_t place_of_out(gram_table *t) {
    const uint32_t n_class = t->p->n_byte_class;
    uint32_t h = t->flags, n = 0;
    if (t->n_out > 1) qsort(t->out, t->n_out, sizeof *t->out, by_item);
    for (uint32_t i = 0; i < t->n_out; i++)
        if (!n || by_item(&t->out[i], &t->out[n - 1]) != 0) t->out[n++] = t->out[i];
    for (uint32_t i = 0; i < n; i++) h = mix(mix(mix(h, t->out[i].state), t->out[i].sub), t->out[i].frame);
    uint32_t i = h & t->place_mask;
    for (; t->place_slot[i] != GRAM_NONE; i = (i + 1) & t->place_mask) {
        const uint32_t p = t->place_slot[i];
        if (t->place[p].hash == h && t->place[p].flags == t->flags && same_items(t, p, t->out, n)) return p;
    }
    uint32_t cap_next = t->cap_place;
    if (!grow(t, &t->item, &t->cap_item, (size_t)t->n_item + n, sizeof *t->item) ||
        !grow(t, &t->next, &cap_next, t->n_place + 1u, n_class * sizeof *t->next) ||
        !grow(t, &t->place, &t->cap_place, t->n_place + 1u, sizeof *t->place))
        return GRAM_NONE;
    if (n) memcpy(t->item + t->n_item, t->out, n * sizeof *t->out);
    t->place[t->n_place] = (gram_place){.item = t->n_item,
                                        .n_item = n,
                                        .hash = h,
                                        .local = GRAM_NONE,
                                        .whole = GRAM_NONE,
                                        .loop = GRAM_NONE,
                                        .flags = t->flags};
    memset(t->next + (size_t)t->n_place * n_class, 0xFF, n_class * sizeof *t->next);
    t->n_item += n;
    t->place_slot[i] = t->n_place++;
    if (t->n_place > t->place_mask / 2 && !place_slots_grow(t)) return GRAM_NONE;
    return t->n_place - 1;
}

/* ---- closing a set ---- */

static void start(gram_table *t) {
    t->n_work = t->n_out = t->n_pending = 0;
    t->flags = 0;
    if (++t->stamp == 0) { // after four thousand million sets: old stamps could be taken for new ones
        memset(t->work_stamp, 0, (t->work_mask + 1) * sizeof *t->work_stamp);
        t->stamp = 1;
    }
}

static bool broken(const gram_table *t) {
    return t->no_memory || t->too_many;
}

static void push(gram_table *t, uint32_t state, uint32_t sub, uint32_t frame) {
    if (state == GRAM_NONE || broken(t)) return;
    t->effort++;
    uint32_t i = mix(mix(mix(0, state), sub), frame) & t->work_mask;
    for (; t->work_stamp[i] == t->stamp; i = (i + 1) & t->work_mask) {
        const gram_item *w = &t->work[t->work_slot[i]];
        if (w->state == state && w->sub == sub && w->frame == frame) return;
    }
    if (t->n_work == GRAM_MAX_ITEMS) {
        t->too_many = true;
        return;
    }
    if (!grow(t, &t->work, &t->cap_work, t->n_work + 1u, sizeof *t->work)) return;
    t->work_stamp[i] = t->stamp;
    t->work_slot[i] = t->n_work;
    t->work[t->n_work++] = (gram_item){state, sub, frame};
}

static void keep_item(gram_table *t, gram_item item) {
    if (grow(t, &t->out, &t->cap_out, t->n_out + 1u, sizeof *t->out)) t->out[t->n_out++] = item;
}

static bool earlier(const gram_pending *a, const gram_pending *b) {
    return a->order < b->order;
}

/* A heap: the rule to open next is at the top. */
static void wait_for(gram_table *t, uint32_t rule, gram_link link) {
    if (t->n_pending >= 4 * GRAM_MAX_ITEMS) t->too_many = true;
    if (broken(t) || !grow(t, &t->pending, &t->cap_pending, t->n_pending + 1u, sizeof *t->pending)) return;
    const gram_pending p = {t->p->order[rule], rule, link};
    uint32_t i = t->n_pending++;
    t->effort++;
    for (; i > 0 && earlier(&p, &t->pending[(i - 1) / 2]); i = (i - 1) / 2)
        t->pending[i] = t->pending[(i - 1) / 2];
    t->pending[i] = p;
}

static gram_pending take_pending(gram_table *t) {
    const gram_pending top = t->pending[0], p = t->pending[--t->n_pending];
    uint32_t i = 0;
    for (uint32_t c; (c = 2 * i + 1) < t->n_pending; i = c) {
        if (c + 1 < t->n_pending && earlier(&t->pending[c + 1], &t->pending[c])) c++;
        if (!earlier(&t->pending[c], &p)) break;
        t->pending[i] = t->pending[c];
    }
    t->pending[i] = p;
    return top;
}

static void follow_end(gram_table *t, uint32_t frame) {
    for (uint32_t i = 0; i < t->frame[frame].n_link; i++) {
        const gram_link l = t->link[t->frame[frame].link + i];
        if (l.state == LINK_OUT)
            t->flags |= PLACE_OUT;
        else if (l.state == LINK_ROOT)
            t->flags |= PLACE_END;
        else
            push(t, l.state, 0, l.frame);
    }
}

static void follow_call(gram_table *t, gram_state s, uint32_t frame) {
    if (t->p->may_be_empty[s.a]) push(t, s.b, 0, frame);
    if (t->p->state[s.b].kind != ST_END) {
        wait_for(t, s.a, (gram_link){s.b, frame});
        return;
    }
    for (uint32_t i = 0; i < t->frame[frame].n_link; i++) wait_for(t, s.a, t->link[t->frame[frame].link + i]);
}

static void follow(gram_table *t, uint32_t from) {
    for (uint32_t i = from; i < t->n_work && !broken(t); i++) {
        const gram_item w = t->work[i];
        const gram_state s = t->p->state[w.state];
        switch ((state_kind)s.kind) {
        case ST_SPLIT:
            push(t, s.a, 0, w.frame);
            push(t, s.b, 0, w.frame);
            break;
        case ST_CALL: follow_call(t, s, w.frame); break;
        case ST_END: follow_end(t, w.frame); break;
        case ST_UNTIL: // between characters there are other ways on
            if (w.sub + GRAM_UNTIL_REST < t->p->cls[s.a].n_state) push(t, w.state + 1, 0, w.frame);
            // fall through
        default: keep_item(t, w);
        }
    }
}

static int by_link(const void *a, const void *b) {
    const gram_link *x = a, *y = b;
    if (x->frame != y->frame) return x->frame < y->frame ? -1 : 1;
    return (x->state > y->state) - (x->state < y->state);
}

/* All pending calls of the rule at the top become one frame, and the rule is begun under it. */
static void open_call(gram_table *t) {
    gram_link few[64] = {{0}}, *l = few;
    uint32_t n = 0, cap = 64;
    const uint32_t rule = t->pending[0].rule;
    while (t->n_pending && t->pending[0].rule == rule && !t->no_memory) {
        if (n == cap) {
            gram_link *more = mem_alloc(cap * 2 * sizeof *more);
            if (!more) {
                t->no_memory = true;
                break;
            }
            memcpy(more, l, n * sizeof *more);
            if (l != few) mem_free(l);
            l = more;
            cap *= 2;
        }
        l[n++] = take_pending(t).link;
    }
    uint32_t k = 0;
    if (n > 1) qsort(l, n, sizeof *l, by_link);
    for (uint32_t i = 0; i < n; i++)
        if (!k || by_link(&l[i], &l[k - 1])) l[k++] = l[i];
    const uint32_t frame = t->no_memory ? GRAM_NONE : frame_of(t, l, k);
    if (l != few) mem_free(l);
    if (frame != GRAM_NONE) push(t, t->p->start[rule], 0, frame);
}

static uint32_t finish(gram_table *t) {
    uint32_t done = 0;
    for (;;) {
        follow(t, done);
        done = t->n_work;
        if (broken(t)) return GRAM_NONE;
        if (!t->n_pending) break;
        open_call(t);
    }
    const uint32_t p = place_of_out(t);
    return broken(t) ? GRAM_NONE : p;
}

/* ---- the next set ---- */

uint32_t gram_place_begin(gram_table *t) {
    start(t);
    wait_for(t, t->p->root, (gram_link){LINK_ROOT, 0});
    if (t->p->may_be_empty[t->p->root]) t->flags |= PLACE_END;
    return finish(t);
}

static void step_class(gram_table *t, gram_item v, gram_state s, uint8_t byte) {
    const uint32_t *first = t->p->class_first + t->p->cls[s.a].first + v.sub;
    for (uint32_t e = first[0]; e < first[1]; e++) {
        const gram_edge *edge = &t->p->edge[e];
        if (byte < edge->lo || byte > edge->hi) continue;
        if (edge->to == GRAM_DONE)
            push(t, s.b, 0, v.frame);
        else
            push(t, v.state, edge->to, v.frame);
    }
}

uint32_t gram_place_make(gram_table *t, uint32_t place, unsigned byte_class) {
    const uint8_t byte = t->p->class_byte[byte_class];
    start(t);
    t->effort += t->place[place].n_item;
    for (uint32_t i = 0; i < t->place[place].n_item; i++) {
        const gram_item v = t->item[t->place[place].item + i];
        const gram_state s = t->p->state[v.state];
        if (s.kind == ST_BYTE && s.a == byte) push(t, s.b, 0, v.frame);
        if (s.kind == ST_CLASS || s.kind == ST_UNTIL) step_class(t, v, s, byte);
    }
    const uint32_t p = finish(t);
    if (p != GRAM_NONE) t->next[(size_t)place * t->p->n_byte_class + byte_class] = p;
    return p;
}

uint32_t gram_place_token(gram_table *t, uint32_t place, uint32_t text, int32_t id, bool is_control) {
    start(t);
    for (uint32_t i = 0; i < t->place[place].n_item; i++) {
        const gram_item v = t->item[t->place[place].item + i];
        const gram_state s = t->p->state[v.state];
        const bool equal = s.a == (uint32_t)id;
        if ((s.kind == ST_TOKEN && equal) || (s.kind == ST_NOT_TOKEN && !equal) ||
            (s.kind == ST_CONTROL && !equal && is_control))
            push(t, s.b, 0, v.frame);
    }
    if (t->n_work == 0) return text;
    for (uint32_t i = 0; i < t->place[text].n_item; i++) {
        const gram_item v = t->item[t->place[text].item + i];
        push(t, v.state, v.sub, v.frame);
    }
    t->flags |= t->place[text].flags;
    return finish(t);
}

uint32_t gram_place_local(gram_table *t, uint32_t place, uint32_t frame) {
    const uint32_t under = frame == FRAME_ROOT ? FRAME_ROOT : FRAME_OUT;
    t->n_out = 0;
    t->flags = 0;
    for (uint32_t i = 0; i < t->place[place].n_item; i++) {
        const gram_item v = t->item[t->place[place].item + i];
        if (v.frame == frame) keep_item(t, (gram_item){t->p->like[v.state], v.sub, under});
    }
    const uint32_t p = place_of_out(t);
    return broken(t) ? GRAM_NONE : p;
}

/* ---- the table ---- */

/* What every table begins with: the two frames and the empty set. */
static bool seed(gram_table *t) {
    const gram_link out = {LINK_OUT, 0}, root = {LINK_ROOT, 0};
    t->n_out = 0;
    t->flags = 0;
    return frame_of(t, &out, 1) == FRAME_OUT && frame_of(t, &root, 1) == FRAME_ROOT &&
           place_of_out(t) == PLACE_DEAD;
}

enum { FIRST_SLOTS = 1024, WORK_SLOTS = 2 * GRAM_MAX_ITEMS };

mica_status gram_table_init(gram_table *t, const gram_program *p, mica_error *err) {
    *t = (gram_table){
        .p = p, .place_mask = FIRST_SLOTS - 1, .frame_mask = FIRST_SLOTS - 1, .work_mask = WORK_SLOTS - 1};
    t->place_slot = slots_new(FIRST_SLOTS);
    t->frame_slot = slots_new(FIRST_SLOTS);
    t->work_slot = mem_alloc(WORK_SLOTS * sizeof *t->work_slot);
    t->work_stamp = mem_calloc(WORK_SLOTS, sizeof *t->work_stamp);
    if (t->place_slot && t->frame_slot && t->work_slot && t->work_stamp && seed(t)) return MICA_OK;
    gram_table_fini(t);
    return fail(err, MICA_E_NOMEM, "grammar: out of memory");
}

static void drop_locals(gram_table *t) {
    for (uint32_t i = 0; i < t->n_local; i++) {
        mem_free(t->local[i].bits);
        mem_free(t->local[i].out);
    }
    t->n_local = 0;
    t->kept_bytes = 0;
}

void gram_table_fini(gram_table *t) {
    drop_locals(t);
    mem_free(t->place);
    mem_free(t->next);
    mem_free(t->item);
    mem_free(t->frame);
    mem_free(t->link);
    mem_free(t->place_slot);
    mem_free(t->frame_slot);
    mem_free(t->local);
    mem_free(t->loop);
    mem_free(t->work);
    mem_free(t->work_slot);
    mem_free(t->work_stamp);
    mem_free(t->pending);
    mem_free(t->out);
    *t = (gram_table){.p = t->p};
}

size_t gram_table_bytes(const gram_table *t) {
    return t->n_place * (sizeof *t->place + t->p->n_byte_class * sizeof *t->next) +
           t->n_item * sizeof *t->item + t->n_frame * sizeof *t->frame + t->n_link * sizeof *t->link +
           t->n_loop * sizeof *t->loop + t->kept_bytes;
}

/* Frames refer to frames with lower numbers, so marking goes down and copying goes up. */
static bool copy_frames(gram_table *to, const gram_table *from, uint32_t *map) {
    for (uint32_t f = from->n_frame; f-- > 0;) {
        for (uint32_t i = 0; map[f] != GRAM_NONE && i < from->frame[f].n_link; i++)
            map[from->link[from->frame[f].link + i].frame] = 0;
    }
    for (uint32_t f = 0; f < from->n_frame; f++) {
        const gram_frame *old = &from->frame[f];
        if (map[f] == GRAM_NONE) continue;
        gram_link *l = mem_alloc(old->n_link * sizeof *l);
        if (!l) return false;
        for (uint32_t i = 0; i < old->n_link; i++) {
            l[i] = from->link[old->link + i];
            l[i].frame = map[l[i].frame];
        }
        qsort(l, old->n_link, sizeof *l, by_link);
        map[f] = frame_of(to, l, old->n_link);
        mem_free(l);
        if (map[f] == GRAM_NONE) return false;
    }
    return true;
}

static bool copy_place(gram_table *to, const gram_table *from, const uint32_t *map, uint32_t *place) {
    const gram_place *old = &from->place[*place];
    to->n_out = 0;
    to->flags = old->flags;
    for (uint32_t i = 0; i < old->n_item; i++) {
        gram_item v = from->item[old->item + i];
        v.frame = map[v.frame];
        keep_item(to, v);
    }
    *place = place_of_out(to);
    return !to->no_memory;
}

mica_status gram_table_trim(gram_table *t, uint32_t *const *keep, uint32_t n, mica_error *err) {
    gram_table fresh;
    TRY(gram_table_init(&fresh, t->p, err));
    uint32_t *map = mem_alloc(t->n_frame * sizeof *map);
    bool good = map != NULL;
    if (good) {
        memset(map, 0xFF, t->n_frame * sizeof *map);
        map[FRAME_OUT] = map[FRAME_ROOT] = 0;
    }
    for (uint32_t k = 0; good && k < n; k++) {
        const gram_place *p = &t->place[*keep[k]];
        for (uint32_t i = 0; i < p->n_item; i++) map[t->item[p->item + i].frame] = 0;
    }
    good = good && copy_frames(&fresh, t, map);
    // Nothing of the caller's changes before all is known to be there.
    uint32_t *moved = good ? mem_alloc((n + 1) * sizeof *moved) : NULL;
    for (uint32_t k = 0; moved && good && k < n; k++) {
        moved[k] = *keep[k];
        good = copy_place(&fresh, t, map, &moved[k]);
    }
    good = good && moved;
    for (uint32_t k = 0; good && k < n; k++) *keep[k] = moved[k];
    mem_free(moved);
    mem_free(map);
    gram_table_fini(good ? t : &fresh);
    if (!good) return fail(err, MICA_E_NOMEM, "grammar: out of memory");
    *t = fresh;
    return MICA_OK;
}

mica_status gram_table_failure(gram_table *t, mica_error *err) {
    const bool no_memory = t->no_memory;
    t->no_memory = t->too_many = false;
    if (no_memory)
        return fail(err, MICA_E_NOMEM, "grammar: %zu bytes of tables: out of memory", gram_table_bytes(t));
    return fail(err, MICA_E_ARG, "grammar: too ambiguous: more than %d readings at once", GRAM_MAX_ITEMS);
}
