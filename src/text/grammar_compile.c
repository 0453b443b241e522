/* From expressions to automata, one for each rule, built from the end: emitting an expression takes the state
 * that follows and gives the state that begins it.
 *
 * Small rules without loops are put where they are named: a character of a string is then a state of the
 * string and no call, and what the string allows is learned once for all its characters. Rules with loops
 * stay calls, so that one string is the same automaton wherever it is used. */
#include "text/grammar_int.h"

#include "base/mem.h"

enum { COST_UNKNOWN = 0, COST_OPEN, COST_TOO_MUCH = GRAM_INLINE + 1, MAX_COST_DEPTH = 1000 };

typedef struct compiler {
    gram *g;
    gram_program *p;
    uint32_t *map;  // owned, [n_rule of g]: number in the program, GRAM_NONE: not needed so far
    uint32_t *back; // owned, [n_rule of g]: the rule of each number
    uint32_t n_map, n_visit;
    uint8_t *cost;             // owned, [n_rule of g]: COST_* or 2 + states
    uint64_t control_first[4]; // bytes that control tokens begin with
} compiler;

static bool failed(const compiler *c) {
    return c->g->st != MICA_OK;
}

static uint32_t emit(compiler *c, state_kind kind, uint32_t a, uint32_t b) {
    gram_program *p = c->p;
    if (failed(c)) return 0;
    if (p->n_state >= GRAM_MAX_STATE)
        return gram_fail(c->g, MICA_E_ARG,
                         "grammar: more than %d states: fewer or smaller repetitions are needed",
                         GRAM_MAX_STATE),
               0;
    if (!gram_grow(c->g, &p->state, &p->cap_state, p->n_state + 1u, sizeof *p->state)) return 0;
    if (!gram_grow(c->g, &p->like, &p->cap_like, p->n_state + 1u, sizeof *p->like)) return 0;
    p->like[p->n_state] = p->n_state;
    p->state[p->n_state] = (gram_state){.kind = kind, .a = a, .b = b};
    return p->n_state++;
}

/* ---- what is put in place ---- */

static unsigned cost_of_rule(compiler *c, uint32_t rule, int depth);

static unsigned add_cost(unsigned a, unsigned b) {
    return a + b > COST_TOO_MUCH ? COST_TOO_MUCH : a + b;
}

static unsigned cost_of(compiler *c, gram_expr e, int depth) {
    const gram_node *n = &c->g->node[e];
    unsigned sum = 1;
    if (++depth > MAX_COST_DEPTH) return COST_TOO_MUCH;
    switch (n->kind) {
    case GRAM_BYTES: return add_cost(n->b < GRAM_INLINE ? n->b : COST_TOO_MUCH, 1);
    case GRAM_CLASS: return 1;
    case GRAM_SEQ:
    case GRAM_ALT:
        for (uint32_t i = 0; i < n->b && sum < COST_TOO_MUCH; i++)
            sum = add_cost(sum, add_cost(n->kind == GRAM_ALT, cost_of(c, c->g->kid[n->a + i], depth)));
        return sum;
    case GRAM_REPEAT:
        if (n->hi > GRAM_INLINE) return COST_TOO_MUCH;
        sum = n->hi * (1 + cost_of(c, n->a, depth));
        return add_cost(sum > COST_TOO_MUCH ? COST_TOO_MUCH : sum, 1);
    case GRAM_RULE: return add_cost(1, cost_of_rule(c, n->a, depth));
    case GRAM_TOKEN:
    case GRAM_NOT_TOKEN: return 1;
    default: return COST_TOO_MUCH;
    }
}

/* Recursion makes it too much, and so does what nests too deep through rules: each may nest GRAM_MAX_DEPTH
 * deep and call the next at its bottom, and threads with small stacks come here too. */
static unsigned cost_of_rule(compiler *c, uint32_t rule, int depth) {
    if (c->cost[rule] == COST_OPEN) return COST_TOO_MUCH;
    if (c->cost[rule] != COST_UNKNOWN) return c->cost[rule] - 2u;
    c->cost[rule] = COST_OPEN;
    const unsigned cost = cost_of(c, c->g->rule[rule].body, depth);
    c->cost[rule] = (uint8_t)(cost + 2);
    return cost;
}

/* ---- expressions ---- */

static uint32_t emit_expr(compiler *c, gram_expr e, uint32_t next);

static uint32_t rule_number(compiler *c, uint32_t rule) {
    if (c->map[rule] == GRAM_NONE) {
        c->map[rule] = c->n_map;
        c->back[c->n_map++] = rule;
    }
    return c->map[rule];
}

/* A control token is not text: where its name is spelled out, the token may come instead. */
static uint32_t emit_control(compiler *c, slice rest, uint32_t state, const uint32_t *behind) {
    const gram *g = c->g;
    if (!(c->control_first[(uint8_t)rest.p[0] / 64] >> (uint8_t)rest.p[0] % 64 & 1)) return state;
    for (uint32_t i = 0; i < g->trie->n_control; i++) {
        const slice name = text_vocab_bytes(g->vocab, g->trie->control[i]);
        if (!name.n || !slice_starts(rest, name)) continue;
        state = emit(c, ST_SPLIT, state, emit(c, ST_TOKEN, (uint32_t)g->trie->control[i], behind[name.n]));
    }
    return state;
}

static uint32_t emit_bytes(compiler *c, slice text, uint32_t next) {
    uint32_t *at = mem_alloc((text.n + 1) * sizeof *at);
    if (!at) return gram_fail(c->g, MICA_E_NOMEM, "grammar: out of memory"), 0;
    at[text.n] = next;
    for (size_t i = text.n; i-- > 0 && !failed(c);) {
        at[i] = emit(c, ST_BYTE, (uint8_t)text.p[i], at[i + 1]);
        at[i] = emit_control(c, (slice){text.p + i, text.n - i}, at[i], at + i);
    }
    next = at[0];
    mem_free(at);
    return next;
}

static uint32_t emit_alt(compiler *c, const gram_node *n, uint32_t next) {
    uint32_t s = GRAM_NONE;
    for (uint32_t i = n->b; i-- > 0 && !failed(c);) {
        const uint32_t one = emit_expr(c, c->g->kid[n->a + i], next);
        s = s == GRAM_NONE ? one : emit(c, ST_SPLIT, one, s);
    }
    return s;
}

/* Certainly takes text; a rule is asked only when it is put in place. */
static bool takes_text(compiler *c, gram_expr e) {
    const gram_node *n = &c->g->node[e];
    bool any = false, all = true;
    switch ((gram_kind)n->kind) {
    case GRAM_BYTES: return n->b > 0;
    case GRAM_CLASS: return true;
    case GRAM_SEQ:
    case GRAM_ALT:
        for (uint32_t i = 0; i < n->b; i++) {
            const bool one = takes_text(c, c->g->kid[n->a + i]);
            any = any || one;
            all = all && one;
        }
        return n->kind == GRAM_SEQ ? any : all;
    case GRAM_REPEAT: return n->lo > 0 && takes_text(c, n->a);
    case GRAM_RULE: return cost_of_rule(c, n->a, 0) <= GRAM_INLINE && takes_text(c, c->g->rule[n->a].body);
    default: return false;
    }
}

/* n copies, each before the one emitted last, each with the way out `out` when it is not GRAM_NONE. A copy
 * with GRAM_NEAR more behind it is like any other such: what 32 bytes can do there is the same, so that a
 * string of at most 2,000 characters is learned once and not at every length. */
static uint32_t emit_copies(compiler *c, gram_expr e, uint32_t n, uint32_t s, uint32_t out) {
    const bool alike = n > GRAM_NEAR + 1 && takes_text(c, e);
    uint32_t begin_near = 0, size = 0;
    for (uint32_t i = 0; i < n && !failed(c); i++) {
        const uint32_t begin = c->p->n_state;
        s = emit_expr(c, e, s);
        if (out != GRAM_NONE) s = emit(c, ST_SPLIT, s, out);
        if (c->p->n_state == begin) break; // the empty text: more of it is no more
        if (!alike || i < GRAM_NEAR || failed(c)) continue;
        if (i == GRAM_NEAR) {
            begin_near = begin;
            size = c->p->n_state - begin;
        }
        for (uint32_t k = 0; k < size && c->p->n_state - begin == size; k++)
            c->p->like[begin + k] = c->p->like[begin_near + k];
    }
    return s;
}

static uint32_t emit_repeat(compiler *c, const gram_node *n, uint32_t next) {
    if (n->hi != GRAM_NONE) {
        const uint32_t s = emit_copies(c, n->a, n->hi - n->lo, next, next);
        return emit_copies(c, n->a, n->lo, s, GRAM_NONE);
    }
    const uint32_t loop = emit(c, ST_SPLIT, GRAM_NONE, next);
    const uint32_t body = emit_expr(c, n->a, loop);
    if (failed(c)) return 0;
    c->p->state[loop].a = body;
    return n->lo ? emit_copies(c, n->a, n->lo - 1, body, GRAM_NONE) : loop;
}

static int32_t control_named(const gram *g, slice name) {
    for (uint32_t i = 0; i < g->trie->n_control; i++)
        if (slice_eq(text_vocab_bytes(g->vocab, g->trie->control[i]), name)) return g->trie->control[i];
    return -1;
}

/* Any text up to a mark: an automaton of its own, and beside it control tokens, the mark perhaps among them,
 * and the text's end where that was asked for. */
static uint32_t emit_until(compiler *c, const gram_node *n, uint32_t next) {
    const slice mark = {c->g->text.p + n->a, n->b};
    const int32_t control = control_named(c->g, mark);
    const uint32_t cls = gram_until_class(c->g, mark);
    const uint32_t then = emit_expr(c, n->lo, next);
    const uint32_t until = emit(c, ST_UNTIL, cls, then);
    const uint32_t ways =
        emit(c, ST_SPLIT, GRAM_NONE, n->hi & GRAM_MAY_END ? next : GRAM_NONE); // directly behind
    uint32_t other = GRAM_NONE;
    if (n->hi & GRAM_CONTROLS)
        other = emit(c, ST_CONTROL, control < 0 ? GRAM_NONE : (uint32_t)control, until);
    if (control >= 0) other = emit(c, ST_SPLIT, other, emit(c, ST_TOKEN, (uint32_t)control, then));
    if (!failed(c)) c->p->state[ways].a = other;
    return until;
}

static uint32_t emit_expr(compiler *c, gram_expr e, uint32_t next) {
    const gram_node *n = &c->g->node[e];
    if (failed(c)) return 0;
    if (++c->n_visit > GRAM_MAX_VISIT)
        return gram_fail(c->g, MICA_E_ARG,
                         "grammar: more than %d parts: fewer or smaller repetitions are needed",
                         GRAM_MAX_VISIT),
               0;
    switch (n->kind) {
    case GRAM_BYTES: return emit_bytes(c, (slice){c->g->text.p + n->a, n->b}, next);
    case GRAM_CLASS: return emit(c, ST_CLASS, n->a, next);
    case GRAM_SEQ:
        for (uint32_t i = n->b; i-- > 0 && !failed(c);) next = emit_expr(c, c->g->kid[n->a + i], next);
        return next;
    case GRAM_ALT: return emit_alt(c, n, next);
    case GRAM_REPEAT: return emit_repeat(c, n, next);
    case GRAM_RULE:
        if (cost_of_rule(c, n->a, 0) <= GRAM_INLINE) return emit_expr(c, c->g->rule[n->a].body, next);
        return emit(c, ST_CALL, rule_number(c, n->a), next);
    case GRAM_TOKEN: return emit(c, ST_TOKEN, n->a, next);
    case GRAM_NOT_TOKEN: return emit(c, ST_NOT_TOKEN, n->a, next);
    default: return emit_until(c, n, next);
    }
}

/* ---- bytes that no state tells apart ---- */

static void byte_classes(gram_program *p, const gram *g) {
    bool cut[257] = {false};
    for (uint32_t i = 0; i < p->n_state; i++) {
        const gram_state *s = &p->state[i];
        if (s->kind == ST_BYTE) cut[s->a] = cut[s->a + 1] = true;
        if (s->kind != ST_CLASS && s->kind != ST_UNTIL) continue;
        const gram_class *k = &g->cls[s->a];
        for (uint32_t e = g->class_first[k->first]; e < g->class_first[k->first + k->n_state]; e++)
            cut[g->edge[e].lo] = cut[g->edge[e].hi + 1] = true;
    }
    unsigned n = 0;
    p->class_byte[0] = 0;
    for (unsigned b = 0; b < 256; b++) {
        if (b && cut[b]) p->class_byte[++n] = (uint8_t)b;
        p->byte_class[b] = (uint8_t)n;
    }
    p->n_byte_class = n + 1;
}

/* ---- the whole ---- */

static void compile_rules(compiler *c, uint32_t root) {
    gram_program *p = c->p;
    p->root = rule_number(c, root);
    for (uint32_t i = 0; i < c->n_map && !failed(c); i++) { // emitting finds further rules
        p->first[i] = p->n_state;
        const uint32_t end = emit(c, ST_END, i, 0);
        p->start[i] = emit_expr(c, c->g->rule[c->back[i]].body, end);
    }
    p->n_rule = c->n_map;
    p->first[p->n_rule] = p->n_state;
}

mica_status gram_compile(gram_program *p, gram *g, uint32_t root) {
    const size_t n = g->n_rule;
    *p = (gram_program){0};
    if (g->st != MICA_OK) return g->st;
    compiler c = {.g = g, .p = p};
    c.map = mem_alloc(n * sizeof *c.map);
    c.back = mem_alloc(n * sizeof *c.back);
    c.cost = mem_calloc(n, sizeof *c.cost);
    p->first = mem_alloc((n + 1) * sizeof *p->first);
    p->start = mem_alloc(n * sizeof *p->start);
    p->order = mem_calloc(n, sizeof *p->order);
    p->may_be_empty = mem_calloc(n, sizeof *p->may_be_empty);
    p->name = mem_alloc(n * sizeof *p->name);
    if (!c.map || !c.back || !c.cost || !p->first || !p->start || !p->order || !p->may_be_empty || !p->name) {
        gram_fail(g, MICA_E_NOMEM, "grammar: %zu rules: out of memory", n);
    } else {
        memset(c.map, 0xFF, n * sizeof *c.map);
        for (uint32_t i = 0; i < g->trie->n_control; i++) {
            const slice s = text_vocab_bytes(g->vocab, g->trie->control[i]);
            if (s.n) c.control_first[(uint8_t)s.p[0] / 64] |= 1ull << (uint8_t)s.p[0] % 64;
        }
        compile_rules(&c, root);
        memcpy(p->name, c.back, n * sizeof *p->name);
    }
    if (!failed(&c)) byte_classes(p, g);
    if (!failed(&c)) gram_program_check(p, g);
    mem_free(c.map);
    mem_free(c.back);
    mem_free(c.cost);
    if (failed(&c)) {
        gram_program_fini(p);
        return g->st;
    }
    p->cls = g->cls;
    p->class_first = g->class_first;
    p->edge = g->edge;
    g->cls = NULL;
    g->class_first = NULL;
    g->edge = NULL;
    g->cap_cls = g->cap_class_first = g->cap_edge = 0;
    return MICA_OK;
}

void gram_program_fini(gram_program *p) {
    mem_free(p->state);
    mem_free(p->like);
    mem_free(p->first);
    mem_free(p->start);
    mem_free(p->order);
    mem_free(p->may_be_empty);
    mem_free(p->name);
    mem_free(p->cls);
    mem_free(p->class_first);
    mem_free(p->edge);
    *p = (gram_program){0};
}
