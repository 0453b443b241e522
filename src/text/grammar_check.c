/* What a compiled grammar must be to be run: every rule can end, none begins with itself. Both questions, and
 * which rules may be empty, are the same walk: from the beginnings of all rules along what leads on, where a
 * call leads on as soon as its rule is known to get through. Each state is met once. */
#include "text/grammar_int.h"

#include "base/mem.h"

typedef struct checker {
    gram *g;
    gram_program *p;
    bool *met;         // owned, [n_state]
    uint32_t *queue;   // owned, [n_state]
    uint32_t *waiting; // owned, [n_rule]: first of the calls that wait for a rule
    uint32_t *chain;   // owned, [n_state]: the next call that waits for the same
    uint32_t n_queue;
} checker;

static void meet(checker *c, uint32_t s) {
    if (s == GRAM_NONE || c->met[s]) return;
    c->met[s] = true;
    c->queue[c->n_queue++] = s;
}

/* through: what consumes text leads on too. good[rule] becomes true when its end is met. */
static void walk(checker *c, bool through, bool *good) {
    const gram_program *p = c->p;
    memset(c->met, 0, p->n_state * sizeof *c->met);
    memset(good, 0, p->n_rule * sizeof *good);
    memset(c->waiting, 0xFF, p->n_rule * sizeof *c->waiting);
    c->n_queue = 0;
    for (uint32_t r = 0; r < p->n_rule; r++) meet(c, p->start[r]);
    for (uint32_t i = 0; i < c->n_queue; i++) {
        const uint32_t at = c->queue[i];
        const gram_state s = p->state[at];
        switch ((state_kind)s.kind) {
        case ST_SPLIT:
            meet(c, s.a);
            meet(c, s.b);
            break;
        case ST_CALL:
            if (good[s.a]) {
                meet(c, s.b);
            } else {
                c->chain[at] = c->waiting[s.a];
                c->waiting[s.a] = at;
            }
            break;
        case ST_END:
            good[s.a] = true;
            for (uint32_t k = c->waiting[s.a]; k != GRAM_NONE; k = c->chain[k]) meet(c, p->state[k].b);
            break;
        case ST_UNTIL: meet(c, at + 1); // fall through
        default:
            if (through) meet(c, s.b);
        }
    }
}

static mica_status refuse(checker *c, uint32_t rule, const char *why) {
    const gram_rule *r = &c->g->rule[c->p->name[rule]];
    const slice name = gram_rule_name(c->g, c->p->name[rule]);
    if (c->g->of_schema)
        return gram_fail(c->g, MICA_E_ARG, "schema: %.*s: what it asks for %s",
                         name.n > 200 ? 200 : (int)name.n, name.p, why);
    return gram_fail(c->g, MICA_E_ARG, "grammar: line %u column %u: rule '%.*s' %s", r->line, r->column,
                     name.n > 60 ? 60 : (int)name.n, name.p, why);
}

static mica_status check_ends(checker *c) {
    bool *good = mem_alloc(c->p->n_rule * sizeof *good);
    if (!good) return gram_fail(c->g, MICA_E_NOMEM, "grammar: out of memory");
    walk(c, true, good);
    uint32_t bad = GRAM_NONE; // one with a name, where there is one
    for (uint32_t r = c->p->n_rule; r-- > 0;)
        if (!good[r] && (bad == GRAM_NONE || gram_rule_name(c->g, c->p->name[r]).n)) bad = r;
    if (bad != GRAM_NONE) refuse(c, bad, "can never end");
    mem_free(good);
    return c->g->st;
}

/* Rules on the way from one to those it begins with. */
typedef struct path {
    uint8_t *mark;  // owned, [n_rule]
    uint32_t *rule; // owned, [n_rule]
    uint32_t *at;   // owned, [n_rule]: the state of each to look at next
    uint32_t n, left;
} path;

enum { RULE_NEW, RULE_OPEN, RULE_DONE };

static void path_enter(path *w, const gram_program *p, uint32_t rule) {
    w->mark[rule] = RULE_OPEN;
    w->at[w->n] = p->first[rule];
    w->rule[w->n++] = rule;
}

static void path_step(path *w, checker *c) {
    const gram_program *p = c->p;
    const uint32_t top = w->rule[w->n - 1], s = w->at[w->n - 1]++;
    if (s == p->first[top + 1]) {
        w->mark[top] = RULE_DONE;
        p->order[top] = --w->left;
        w->n--;
    } else if (c->met[s] && p->state[s].kind == ST_CALL) {
        const uint32_t callee = p->state[s].a;
        if (w->mark[callee] == RULE_OPEN) refuse(c, callee, "begins with itself (left recursion)");
        if (w->mark[callee] == RULE_NEW) path_enter(w, p, callee);
    }
}

/* Depth first over "begins with": the states met by the last walk are what rules begin with. The later a rule
 * is left, the earlier it comes in `order`. */
static mica_status sort_rules(checker *c) {
    const gram_program *p = c->p;
    path w = {.left = p->n_rule};
    w.mark = mem_calloc(p->n_rule, sizeof *w.mark);
    w.rule = mem_alloc(p->n_rule * sizeof *w.rule);
    w.at = mem_alloc(p->n_rule * sizeof *w.at);
    if (!w.mark || !w.rule || !w.at) gram_fail(c->g, MICA_E_NOMEM, "grammar: out of memory");
    for (uint32_t r = 0; r < p->n_rule && c->g->st == MICA_OK; r++) {
        if (w.mark[r] == RULE_NEW) path_enter(&w, p, r);
        while (w.n && c->g->st == MICA_OK) path_step(&w, c);
    }
    mem_free(w.mark);
    mem_free(w.rule);
    mem_free(w.at);
    return c->g->st;
}

/* Parts have lower numbers than what is made of them. */
static mica_status check_repeats(checker *c) {
    gram *g = c->g;
    bool *empty = mem_calloc(g->n_node + 1u, sizeof *empty);
    uint32_t *number = mem_alloc((g->n_rule + 1u) * sizeof *number);
    if (!empty || !number) gram_fail(g, MICA_E_NOMEM, "grammar: out of memory");
    for (uint32_t i = 0; number && i < g->n_rule; i++) number[i] = GRAM_NONE;
    for (uint32_t i = 0; number && i < c->p->n_rule; i++) number[c->p->name[i]] = i;
    for (uint32_t e = 0; e < g->n_node && g->st == MICA_OK; e++) {
        const gram_node *n = &g->node[e];
        switch ((gram_kind)n->kind) {
        case GRAM_BYTES: empty[e] = n->b == 0; break;
        case GRAM_SEQ:
            empty[e] = true;
            for (uint32_t i = 0; i < n->b; i++) empty[e] = empty[e] && empty[g->kid[n->a + i]];
            break;
        case GRAM_ALT:
            for (uint32_t i = 0; i < n->b; i++) empty[e] = empty[e] || empty[g->kid[n->a + i]];
            break;
        case GRAM_REPEAT:
            empty[e] = n->lo == 0 || empty[n->a];
            if (n->hi == GRAM_NONE && empty[n->a])
                gram_fail(g, MICA_E_ARG,
                          "grammar: line %u column %u: what is repeated without end may be empty", n->line,
                          n->column);
            break;
        case GRAM_RULE: empty[e] = number[n->a] != GRAM_NONE && c->p->may_be_empty[number[n->a]]; break;
        case GRAM_UNTIL: empty[e] = (n->hi & GRAM_MAY_END) != 0; break;
        default: break;
        }
    }
    mem_free(empty);
    mem_free(number);
    return g->st;
}

/* A root that is nothing but the empty text leaves a model nothing to say. */
static bool only_empty(const checker *c) {
    const gram_program *p = c->p;
    for (uint32_t s = 0; s < p->n_state; s++)
        if (p->state[s].kind != ST_SPLIT && p->state[s].kind != ST_END && p->state[s].kind != ST_CALL)
            return false;
    return true;
}

mica_status gram_program_check(gram_program *p, gram *g) {
    checker c = {.g = g, .p = p};
    c.met = mem_alloc(p->n_state * sizeof *c.met);
    c.queue = mem_alloc(p->n_state * sizeof *c.queue);
    c.chain = mem_alloc(p->n_state * sizeof *c.chain);
    c.waiting = mem_alloc(p->n_rule * sizeof *c.waiting);
    mica_status st = MICA_OK;
    if (!c.met || !c.queue || !c.chain || !c.waiting)
        st = gram_fail(g, MICA_E_NOMEM, "grammar: %u states: out of memory", p->n_state);
    if (st == MICA_OK) walk(&c, false, p->may_be_empty);
    if (st == MICA_OK) st = sort_rules(&c);
    if (st == MICA_OK && only_empty(&c)) st = refuse(&c, p->root, "is nothing but the empty text");
    if (st == MICA_OK) st = check_ends(&c);
    if (st == MICA_OK) st = check_repeats(&c);
    mem_free(c.met);
    mem_free(c.queue);
    mem_free(c.chain);
    mem_free(c.waiting);
    return st;
}
