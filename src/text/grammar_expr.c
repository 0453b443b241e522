/* Expressions are numbers of nodes in one array; operands come before what is made of them, so a pass in
 * order of numbers sees parts first. Lists are put together from a pile of operands, and no list of one is
 * ever kept: how deep expressions nest is then how deep a recursion over them goes. */
#include "text/grammar_int.h"

#include "base/mem.h"

#include <stdarg.h>
#include <stdio.h>

mica_status gram_fail(gram *g, mica_status st, const char *fmt, ...) {
    if (g->st != MICA_OK) return g->st;
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    g->st = st;
    return fail(&g->err, st, "%s", text);
}

bool gram_grow(gram *g, void *array, uint32_t *cap, size_t n, size_t size) {
    void **p = array;
    if (n <= *cap) return true;
    size_t want = *cap ? *cap : 64;
    while (want < n) want *= 2;
    void *grown = want <= UINT32_MAX / 2 ? mem_realloc(*p, want * size) : NULL;
    if (!grown) {
        if (g) gram_fail(g, MICA_E_NOMEM, "grammar: %zu elements of %zu bytes: out of memory", want, size);
        return false;
    }
    *p = grown;
    *cap = (uint32_t)want;
    return true;
}

mica_status gram_init(gram *g, const text_vocab *v, const token_trie *t, mica_error *err) {
    *g = (gram){.trie = t, .vocab = v};
    mica_status st = MICA_OK;
    TRY_GOTO(text_symtab_init(&g->names, 64, 1024, err), done);
    TRY_GOTO(text_symtab_init(&g->classes, 64, 1024, err), done);
    strbuf_putc(&g->text, '\0'); // so that there is a text even when all literals are empty
    if (g->text.failed) st = fail(err, MICA_E_NOMEM, "grammar: out of memory");
done:
    if (st != MICA_OK) gram_fini(g);
    return st;
}

void gram_fini(gram *g) {
    mem_free(g->node);
    mem_free(g->kid);
    mem_free(g->pile);
    mem_free(g->rule);
    text_symtab_fini(&g->names);
    text_symtab_fini(&g->classes);
    mem_free(g->cls);
    mem_free(g->class_first);
    mem_free(g->edge);
    strbuf_fini(&g->text);
}

static uint32_t over(gram *g, const char *is, int bound, const char *what) {
    if (g->of_schema)
        gram_fail(g, MICA_E_ARG, "schema: %s %d%s", is, bound, what);
    else
        gram_fail(g, MICA_E_ARG, "grammar: line %u column %u: %s %d%s", g->line, g->column, is, bound, what);
    return 0;
}

/* A failed grammar still has expression 0 to hand around. */
static gram_expr node_new(gram *g, gram_node n, unsigned depth) {
    if (g->st != MICA_OK) return 0;
    if (g->n_node >= GRAM_MAX_EXPR) return over(g, "more than", GRAM_MAX_EXPR, " expressions");
    if (depth > GRAM_MAX_DEPTH) return over(g, "nested deeper than", GRAM_MAX_DEPTH, "");
    if (!gram_grow(g, &g->node, &g->cap_node, g->n_node + 1u, sizeof *g->node)) return 0;
    n.depth = (uint8_t)depth;
    n.line = g->line;
    n.column = g->column;
    g->node[g->n_node] = n;
    return g->n_node++;
}

static unsigned depth_of(const gram *g, gram_expr e) {
    return e < g->n_node ? g->node[e].depth : 0;
}

gram_expr gram_bytes(gram *g, slice text) {
    const uint32_t at = (uint32_t)g->text.n;
    strbuf_put(&g->text, text.p, text.n);
    if (g->text.failed) gram_fail(g, MICA_E_NOMEM, "grammar: out of memory");
    return node_new(g, (gram_node){.kind = GRAM_BYTES, .a = at, .b = (uint32_t)text.n}, 1);
}

gram_expr gram_class_node(gram *g, uint32_t cls) {
    return node_new(g, (gram_node){.kind = GRAM_CLASS, .a = cls}, 1);
}

gram_expr gram_any(gram *g) {
    return gram_class_of(g, NULL, 0, true);
}

gram_expr gram_repeat(gram *g, gram_expr e, uint32_t lo, uint32_t hi) {
    if (lo == 1 && hi == 1) return e;
    return node_new(g, (gram_node){.kind = GRAM_REPEAT, .a = e, .lo = lo, .hi = hi}, depth_of(g, e) + 1);
}

gram_expr gram_call(gram *g, uint32_t rule) {
    return node_new(g, (gram_node){.kind = GRAM_RULE, .a = rule}, 1);
}

gram_expr gram_token(gram *g, int32_t id, bool negated) {
    return node_new(g, (gram_node){.kind = negated ? GRAM_NOT_TOKEN : GRAM_TOKEN, .a = (uint32_t)id}, 1);
}

gram_expr gram_until(gram *g, slice text, gram_expr then, unsigned flags) {
    const uint32_t at = (uint32_t)g->text.n;
    strbuf_put(&g->text, text.p, text.n);
    if (g->text.failed) gram_fail(g, MICA_E_NOMEM, "grammar: out of memory");
    return node_new(g,
                    (gram_node){.kind = GRAM_UNTIL, .a = at, .b = (uint32_t)text.n, .lo = then, .hi = flags},
                    depth_of(g, then) + 1);
}

void gram_push(gram *g, gram_expr e) {
    if (gram_grow(g, &g->pile, &g->cap_pile, g->n_pile + 1u, sizeof *g->pile)) g->pile[g->n_pile++] = e;
}

static gram_expr list(gram *g, gram_kind kind, uint32_t n) {
    if (n > g->n_pile) n = g->n_pile; // only after a failure
    unsigned depth = 0;
    if (n == 0) return gram_bytes(g, (slice){"", 0});
    const gram_expr *operand = g->pile + g->n_pile - n;
    g->n_pile -= n;
    if (n == 1) return operand[0];
    if (!gram_grow(g, &g->kid, &g->cap_kid, (size_t)g->n_kid + n, sizeof *g->kid)) return 0;
    for (uint32_t i = 0; i < n; i++) {
        g->kid[g->n_kid + i] = operand[i];
        if (depth_of(g, operand[i]) > depth) depth = depth_of(g, operand[i]);
    }
    g->n_kid += n;
    return node_new(g, (gram_node){.kind = (uint8_t)kind, .a = g->n_kid - n, .b = n}, depth + 1);
}

gram_expr gram_seq(gram *g, uint32_t n) {
    return list(g, GRAM_SEQ, n);
}

gram_expr gram_alt(gram *g, uint32_t n) {
    return list(g, GRAM_ALT, n);
}

/* ---- rules ---- */

static uint32_t rule_add(gram *g, slice name, bool named) {
    uint32_t rule = 0;
    mica_error err;
    if (g->st != MICA_OK) return 0;
    if (g->n_rule >= GRAM_MAX_RULES) return over(g, "more than", GRAM_MAX_RULES, " rules");
    if (text_symtab_add(&g->names, name, &named, &rule, &err) != MICA_OK)
        return gram_fail(g, err.status, "%s", err.text), 0;
    if (!gram_grow(g, &g->rule, &g->cap_rule, rule + 1u, sizeof *g->rule)) return 0;
    g->rule[rule] = (gram_rule){.body = GRAM_NONE, .line = g->line, .column = g->column};
    g->n_rule = rule + 1;
    return rule;
}

uint32_t gram_rule_named(gram *g, slice name) {
    const uint32_t known = text_symtab_find(&g->names, name.p, name.n);
    return known != TEXT_SYM_NONE && known < g->n_rule ? known : rule_add(g, name, true);
}

uint32_t gram_rule_new(gram *g) {
    return rule_add(g, (slice){"", 0}, false);
}

void gram_define(gram *g, uint32_t rule, gram_expr body) {
    if (g->st != MICA_OK) return;
    g->rule[rule].body = body;
}

slice gram_rule_name(const gram *g, uint32_t rule) {
    return text_symtab_get(&g->names, rule);
}
