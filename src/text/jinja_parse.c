/* Tokens to nodes: expressions, by a recursive descent with jinja2's grammar (its operator order, its
 * targets, its call syntax). Statements are in jinja_stmt.c.
 *
 * Nesting is bounded twice: what makes the parser recurse (brackets, which the lexer counts, blocks, prefix
 * operators) by JINJA_MAX_NESTING, and the depth of the tree by the walk at the end. */
#include "text/jinja_parse.h"

static mica_status parse_or(parser *p, jnode **out);
static mica_status parse_unary(parser *p, bool with_filter, jnode **out);

/* ---- helpers ---- */

mica_status jparse_nomem(parser *p) {
    return fail(p->err, MICA_E_NOMEM, "chat template: nodes: out of memory");
}

mica_status jparse_fail(parser *p, int line, const char *what) {
    return fail(p->err, MICA_E_ARG, "chat template: line %d: %s", line, what);
}

mica_status jparse_fail_token(parser *p, const char *expected) {
    const jtok *t = cur(p);
    int n = t->text.n > 40 ? 40 : (int)t->text.n;
    if (t->kind == JT_EOF) return jparse_fail(p, t->line, "unexpected end of the template");
    return fail(p->err, MICA_E_ARG, "chat template: line %d: expected %s, got '%.*s'", t->line, expected, n,
                t->text.p);
}

mica_status jparse_expect(parser *p, jtok_kind kind, const char *expected) {
    return skip_kind(p, kind) ? MICA_OK : jparse_fail_token(p, expected);
}

mica_status jparse_deeper(parser *p) {
    if (++p->depth > JINJA_MAX_NESTING) return jparse_fail(p, cur(p)->line, "nested deeper than 200");
    return MICA_OK;
}

mica_status jparse_node(parser *p, jn_kind kind, int line, jnode **out) {
    *out = jarena_take(&p->t->arena, sizeof **out);
    if (!*out) return jparse_nomem(p);
    (*out)->kind = (uint8_t)kind;
    (*out)->line = line;
    return MICA_OK;
}

mica_status jparse_push(parser *p, node_list *l, jnode *n) {
    if (l->n == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 4;
        jnode **v = jarena_take(&p->t->arena, cap * sizeof *v);
        if (!v) return jparse_nomem(p);
        if (l->n) memcpy(v, l->v, l->n * sizeof *v);
        l->v = v;
        l->cap = cap;
    }
    l->v[l->n++] = n;
    return MICA_OK;
}

mica_status jparse_text(parser *p, slice text, jv *out) {
    jstr *s = jarena_take(&p->t->arena, sizeof *s);
    if (!s) return jparse_nomem(p);
    *s = (jstr){.p = text.p, .n = text.n, .ascii = true};
    for (size_t i = 0; i < text.n; i++) s->ascii = s->ascii && (signed char)text.p[i] >= 0;
    *out = jv_str(s);
    return MICA_OK;
}

static mica_status const_node(parser *p, int line, jv v, jnode **out) {
    TRY(jparse_node(p, JN_CONST, line, out));
    (*out)->val = v;
    return MICA_OK;
}

/* Names are few (tens), so a walk over them is enough. */
mica_status jparse_intern(parser *p, slice name, int *id) {
    jinja_template *t = p->t;
    for (size_t i = 0; i < t->n_name; i++) {
        if (!slice_eq(t->name[i], name)) continue;
        *id = (int)i;
        return MICA_OK;
    }
    if (t->n_name == 10000) return jparse_fail(p, cur(p)->line, "more than 10000 different names");
    if (t->n_name == p->cap_name) {
        size_t cap = p->cap_name * 2;
        slice *v = jarena_take(&t->arena, cap * sizeof *v);
        if (!v) return jparse_nomem(p);
        memcpy(v, t->name, t->n_name * sizeof *v);
        t->name = v;
        p->cap_name = cap;
    }
    *id = (int)t->n_name;
    t->name[t->n_name++] = name;
    return MICA_OK;
}

static mica_status name_node(parser *p, const jtok *t, jnode **out) {
    TRY(jparse_node(p, JN_NAME, t->line, out));
    return jparse_intern(p, t->text, &(*out)->id);
}

/* ---- primaries ---- */

bool jparse_constant(slice s, jv *out) {
    if (slice_is(s, "true") || slice_is(s, "True"))
        *out = jv_bool(true);
    else if (slice_is(s, "false") || slice_is(s, "False"))
        *out = jv_bool(false);
    else if (slice_is(s, "none") || slice_is(s, "None"))
        *out = jv_none();
    else
        return false;
    return true;
}

static mica_status parse_name(parser *p, bool with_namespace, jnode **out) {
    const jtok *t = cur(p);
    jv v;
    next(p);
    if (jparse_constant(t->text, &v)) return const_node(p, t->line, v, out);
    if (!with_namespace || cur(p)->kind != JT_DOT) return name_node(p, t, out);
    next(p);
    if (cur(p)->kind != JT_NAME) return jparse_fail_token(p, "a name");
    TRY(jparse_node(p, JN_NSREF, t->line, out));
    TRY(jparse_intern(p, t->text, &(*out)->id));
    TRY(jparse_text(p, cur(p)->text, &(*out)->val));
    next(p);
    return MICA_OK;
}

static mica_status parse_string(parser *p, jnode **out) { // neighbours join: 'a' "b"
    const jtok *first = cur(p);
    size_t n = 0, i = 0;
    for (i = p->at; p->tok.v[i].kind == JT_STRING; i++) n += p->tok.v[i].text.n;
    slice text = first->text;
    if (i > p->at + 1) {
        char *buf = jarena_take(&p->t->arena, n + 1);
        if (!buf) return jparse_nomem(p);
        size_t at = 0;
        for (size_t j = p->at; j < i; j++) {
            slice s = p->tok.v[j].text;
            memcpy(buf + at, s.p, s.n);
            at += s.n;
        }
        text = (slice){buf, n};
    }
    p->at = i;
    jv v;
    TRY(jparse_text(p, text, &v));
    return const_node(p, first->line, v, out);
}

static mica_status parse_list(parser *p, jnode **out) {
    TRY(jparse_node(p, JN_LIST, cur(p)->line, out));
    next(p);
    node_list l = {0};
    while (cur(p)->kind != JT_RBRACKET) {
        jnode *n;
        if (l.n) TRY(jparse_expect(p, JT_COMMA, "','"));
        if (cur(p)->kind == JT_RBRACKET) break;
        TRY(jparse_expr(p, &n));
        TRY(jparse_push(p, &l, n));
    }
    node_kids(*out, &l);
    return jparse_expect(p, JT_RBRACKET, "']'");
}

static mica_status parse_dict(parser *p, jnode **out) {
    TRY(jparse_node(p, JN_DICT, cur(p)->line, out));
    next(p);
    node_list l = {0};
    while (cur(p)->kind != JT_RBRACE) {
        jnode *k, *v;
        if (l.n) TRY(jparse_expect(p, JT_COMMA, "','"));
        if (cur(p)->kind == JT_RBRACE) break;
        TRY(jparse_expr(p, &k));
        TRY(jparse_expect(p, JT_COLON, "':'"));
        TRY(jparse_expr(p, &v));
        TRY(jparse_push(p, &l, k));
        TRY(jparse_push(p, &l, v));
    }
    node_kids(*out, &l);
    return jparse_expect(p, JT_RBRACE, "'}'");
}

static mica_status parse_primary(parser *p, bool with_namespace, jnode **out);

static bool tuple_ends(const parser *p, const tuple_rule *rule) {
    jtok_kind k = cur(p)->kind;
    if (k == JT_VAR_END || k == JT_BLOCK_END || k == JT_RPAREN) return true;
    return rule->end && is_name(cur(p), rule->end);
}

mica_status jparse_tuple(parser *p, const tuple_rule *rule, jnode **out) {
    int line = cur(p)->line;
    node_list l = {0};
    bool comma = false;
    for (;;) {
        jnode *n;
        if (l.n) TRY(jparse_expect(p, JT_COMMA, "','"));
        if (tuple_ends(p, rule)) break;
        if (rule->simple)
            TRY(parse_primary(p, rule->with_namespace, &n));
        else if (rule->no_cond)
            TRY(parse_or(p, &n));
        else
            TRY(jparse_expr(p, &n));
        TRY(jparse_push(p, &l, n));
        if (cur(p)->kind != JT_COMMA) break;
        comma = true;
    }
    if (!comma && l.n) {
        *out = l.v[0];
        return MICA_OK;
    }
    if (!comma && !rule->parens) return jparse_fail_token(p, "an expression");
    TRY(jparse_node(p, JN_TUPLE, line, out));
    node_kids(*out, &l);
    return MICA_OK;
}

static mica_status parse_primary(parser *p, bool with_namespace, jnode **out) {
    const jtok *t = cur(p);
    switch (t->kind) {
    case JT_NAME: return parse_name(p, with_namespace, out);
    case JT_STRING: return parse_string(p, out);
    case JT_INT: next(p); return const_node(p, t->line, jv_int(t->i), out);
    case JT_FLOAT: next(p); return const_node(p, t->line, jv_float(t->f), out);
    case JT_LPAREN:
        next(p);
        TRY(jparse_tuple(p, &(tuple_rule){.parens = true}, out));
        return jparse_expect(p, JT_RPAREN, "')'");
    case JT_LBRACKET: return parse_list(p, out);
    case JT_LBRACE: return parse_dict(p, out);
    default: return jparse_fail_token(p, "an expression");
    }
}

/* ---- what follows a primary ---- */

static mica_status push_kw(parser *p, jargs_node *a, size_t *cap, slice name, jnode *value) {
    for (size_t i = 0; i < a->n_kw; i++)
        if (slice_eq(jstr_slice(a->kw[i].name.s), name))
            return jparse_fail(p, value->line, "keyword argument repeated");
    if (a->n_kw == *cap) {
        *cap = *cap ? *cap * 2 : 4;
        jarg_node *v = jarena_take(&p->t->arena, *cap * sizeof *v);
        if (!v) return jparse_nomem(p);
        if (a->n_kw) memcpy(v, a->kw, a->n_kw * sizeof *v);
        a->kw = v;
    }
    TRY(jparse_text(p, name, &a->kw[a->n_kw].name));
    a->kw[a->n_kw++].value = value;
    return MICA_OK;
}

static mica_status parse_arg(parser *p, jargs_node *a, node_list *pos, size_t *cap_kw) {
    const char *bad = "invalid syntax for function call expression";
    const jtok *t = cur(p);
    jnode *n;
    if (skip_kind(p, JT_MUL))
        return a->star || a->star2 ? jparse_fail(p, t->line, bad) : jparse_expr(p, &a->star);
    if (skip_kind(p, JT_POW)) return a->star2 ? jparse_fail(p, t->line, bad) : jparse_expr(p, &a->star2);
    if (t->kind == JT_NAME && look(p)->kind == JT_ASSIGN) {
        if (a->star2) return jparse_fail(p, t->line, bad);
        p->at += 2;
        TRY(jparse_expr(p, &n));
        return push_kw(p, a, cap_kw, t->text, n);
    }
    if (a->star || a->star2 || a->n_kw) return jparse_fail(p, t->line, bad);
    TRY(jparse_expr(p, &n));
    return jparse_push(p, pos, n);
}

static mica_status parse_args(parser *p, jargs_node **out) {
    jargs_node *a = *out = jarena_take(&p->t->arena, sizeof *a);
    if (!a) return jparse_nomem(p);
    node_list pos = {0};
    size_t cap_kw = 0;
    TRY(jparse_expect(p, JT_LPAREN, "'('"));
    for (bool comma = false; cur(p)->kind != JT_RPAREN; comma = true) {
        if (comma) {
            TRY(jparse_expect(p, JT_COMMA, "','"));
            if (cur(p)->kind == JT_RPAREN) break;
        }
        TRY(parse_arg(p, a, &pos, &cap_kw));
    }
    a->pos = pos.v;
    a->n_pos = pos.n;
    return jparse_expect(p, JT_RPAREN, "')'");
}

static mica_status parse_call(parser *p, jnode **io) {
    jnode *n;
    TRY(jparse_node(p, JN_CALL, cur(p)->line, &n));
    n->a = *io;
    *io = n;
    return parse_args(p, &n->args);
}

/* One of the up to three parts of what stands in brackets; *slice_out says that it was a slice. */
static mica_status parse_subscribed(parser *p, jnode *n, bool *slice_out) {
    jnode **part[3] = {&n->b, &n->c, &n->d};
    *slice_out = cur(p)->kind == JT_COLON;
    if (!*slice_out) {
        TRY(jparse_expr(p, part[0]));
        if (cur(p)->kind != JT_COLON) return MICA_OK;
        *slice_out = true;
    }
    next(p);
    if (cur(p)->kind != JT_COLON && cur(p)->kind != JT_RBRACKET && cur(p)->kind != JT_COMMA)
        TRY(jparse_expr(p, part[1]));
    if (!skip_kind(p, JT_COLON)) return MICA_OK;
    if (cur(p)->kind != JT_RBRACKET && cur(p)->kind != JT_COMMA) TRY(jparse_expr(p, part[2]));
    return MICA_OK;
}

static mica_status parse_brackets(parser *p, int line, jnode **io) {
    jnode *n;
    bool is_slice;
    TRY(jparse_node(p, JN_GETITEM, line, &n));
    n->a = *io;
    *io = n;
    if (skip_kind(p, JT_RBRACKET)) return jparse_node(p, JN_TUPLE, line, &n->b); // x[] asks for x[()]
    TRY(parse_subscribed(p, n, &is_slice));
    if (cur(p)->kind == JT_COMMA) { // x[1, 2] subscribes with a tuple
        if (is_slice)
            return fail(p->err, MICA_E_UNSUPPORTED, "chat template: line %d: a slice among several", line);
        node_list l = {0};
        TRY(jparse_push(p, &l, n->b));
        while (skip_kind(p, JT_COMMA)) {
            jnode *k;
            TRY(jparse_expr(p, &k));
            TRY(jparse_push(p, &l, k));
        }
        TRY(jparse_node(p, JN_TUPLE, line, &n->b));
        node_kids(n->b, &l);
    }
    if (is_slice) n->kind = JN_SLICE;
    return jparse_expect(p, JT_RBRACKET, "']'");
}

static mica_status parse_subscript(parser *p, jnode **io) {
    const jtok *t = cur(p);
    jnode *n;
    next(p);
    if (t->kind == JT_LBRACKET) return parse_brackets(p, t->line, io);
    const jtok *attr = cur(p);
    if (attr->kind != JT_NAME && attr->kind != JT_INT) return jparse_fail_token(p, "a name or number");
    next(p);
    TRY(jparse_node(p, attr->kind == JT_NAME ? JN_GETATTR : JN_GETITEM, t->line, &n));
    n->a = *io;
    *io = n;
    if (attr->kind == JT_NAME) return jparse_text(p, attr->text, &n->val);
    return const_node(p, attr->line, jv_int(attr->i), &n->b);
}

static mica_status parse_postfix(parser *p, jnode **io) {
    for (;;) {
        jtok_kind k = cur(p)->kind;
        if (k == JT_DOT || k == JT_LBRACKET)
            TRY(parse_subscript(p, io));
        else if (k == JT_LPAREN)
            TRY(parse_call(p, io));
        else
            return MICA_OK;
    }
}

static mica_status dotted_name(parser *p, slice *out) {
    if (cur(p)->kind != JT_NAME) return jparse_fail_token(p, "a name");
    *out = cur(p)->text;
    next(p);
    if (cur(p)->kind == JT_DOT)
        return jparse_fail(p, cur(p)->line, "no filter or test has a dot in its name");
    return MICA_OK;
}

/* `| name(args)`, the bar already skipped. */
mica_status jparse_filter(parser *p, jnode **io) {
    jnode *n;
    slice name;
    TRY(jparse_node(p, JN_FILTER, cur(p)->line, &n));
    TRY(dotted_name(p, &name));
    TRY(jparse_text(p, name, &n->val));
    n->fn = jfilter_find(name);
    n->a = *io;
    *io = n;
    return cur(p)->kind == JT_LPAREN ? parse_args(p, &n->args) : MICA_OK;
}

/* The argument of a test may stand without parentheses: `is divisibleby 3`. */
static bool test_arg_follows(const parser *p) {
    const jtok *t = cur(p);
    switch (t->kind) {
    case JT_NAME: return !is_name(t, "else") && !is_name(t, "or") && !is_name(t, "and");
    case JT_STRING:
    case JT_INT:
    case JT_FLOAT:
    case JT_LBRACKET:
    case JT_LBRACE: return true;
    default: return false;
    }
}

static mica_status parse_test(parser *p, jnode **io) {
    jnode *n, *arg;
    slice name;
    int line = cur(p)->line;
    next(p);
    bool negated = skip_name(p, "not");
    TRY(jparse_node(p, JN_TEST, line, &n));
    TRY(dotted_name(p, &name));
    TRY(jparse_text(p, name, &n->val));
    n->fn = jtest_find(name);
    n->a = *io;
    *io = n;
    if (cur(p)->kind == JT_LPAREN) {
        TRY(parse_args(p, &n->args));
    } else if (test_arg_follows(p)) {
        if (is_name(cur(p), "is")) return jparse_fail(p, line, "You cannot chain multiple tests with is");
        TRY(parse_primary(p, false, &arg));
        TRY(parse_postfix(p, &arg));
        node_list l = {0};
        TRY(jparse_push(p, &l, arg));
        n->args = jarena_take(&p->t->arena, sizeof *n->args);
        if (!n->args) return jparse_nomem(p);
        *n->args = (jargs_node){.pos = l.v, .n_pos = 1};
    }
    if (!negated) return MICA_OK;
    TRY(jparse_node(p, JN_NOT, line, io));
    (*io)->a = n;
    return MICA_OK;
}

static mica_status parse_filters(parser *p, jnode **io) {
    for (;;) {
        if (skip_kind(p, JT_PIPE))
            TRY(jparse_filter(p, io));
        else if (is_name(cur(p), "is"))
            TRY(parse_test(p, io));
        else if (cur(p)->kind == JT_LPAREN)
            TRY(parse_call(p, io));
        else
            return MICA_OK;
    }
}

static mica_status parse_unary(parser *p, bool with_filter, jnode **out) {
    const jtok *t = cur(p);
    if (t->kind == JT_SUB || t->kind == JT_ADD) {
        next(p);
        TRY(jparse_deeper(p));
        TRY(jparse_node(p, t->kind == JT_SUB ? JN_NEG : JN_POS, t->line, out));
        TRY(parse_unary(p, false, &(*out)->a));
        p->depth--;
    } else {
        TRY(parse_primary(p, false, out));
    }
    TRY(parse_postfix(p, out));
    return with_filter ? parse_filters(p, out) : MICA_OK;
}

/* ---- operators, loosest last ---- */

static bool op_of(jtok_kind k, int level, jop *op) {
    static const struct {
        jtok_kind kind;
        int level;
        jop op;
    } table[] = {
        {JT_POW, 0, JOP_POW}, {JT_MUL, 1, JOP_MUL}, {JT_DIV, 1, JOP_DIV}, {JT_FLOORDIV, 1, JOP_FLOORDIV},
        {JT_MOD, 1, JOP_MOD}, {JT_ADD, 3, JOP_ADD}, {JT_SUB, 3, JOP_SUB}, {JT_EQ, 4, JOP_EQ},
        {JT_NE, 4, JOP_NE},   {JT_LT, 4, JOP_LT},   {JT_LE, 4, JOP_LE},   {JT_GT, 4, JOP_GT},
        {JT_GE, 4, JOP_GE}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (table[i].kind != k || table[i].level != level) continue;
        *op = table[i].op;
        return true;
    }
    return false;
}

/* Levels 0 (**), 1 (* / // %), 2 (~), 3 (+ -). All are left-associative, ** too, as jinja2 has it. */
static mica_status parse_math(parser *p, int level, jnode **out) {
    jop op;
    if (level < 0) return parse_unary(p, true, out);
    if (level == 2) {
        node_list l = {0};
        TRY(parse_math(p, 1, out));
        if (cur(p)->kind != JT_TILDE) return MICA_OK;
        jnode *n = *out;
        TRY(jparse_node(p, JN_CONCAT, n->line, out));
        TRY(jparse_push(p, &l, n));
        while (skip_kind(p, JT_TILDE)) {
            TRY(parse_math(p, 1, &n));
            TRY(jparse_push(p, &l, n));
        }
        node_kids(*out, &l);
        return MICA_OK;
    }
    TRY(parse_math(p, level - 1, out));
    while (op_of(cur(p)->kind, level, &op)) {
        jnode *n;
        TRY(jparse_node(p, JN_MATH, cur(p)->line, &n));
        next(p);
        n->op = (uint8_t)op;
        n->a = *out;
        *out = n;
        TRY(parse_math(p, level - 1, &n->b));
    }
    return MICA_OK;
}

static bool compare_op(parser *p, jop *op) {
    if (op_of(cur(p)->kind, 4, op)) {
        next(p);
        return true;
    }
    if (skip_name(p, "in")) {
        *op = JOP_IN;
        return true;
    }
    if (!is_name(cur(p), "not") || !is_name(look(p), "in")) return false;
    p->at += 2;
    *op = JOP_NOTIN;
    return true;
}

static mica_status parse_compare(parser *p, jnode **out) {
    jop op;
    node_list l = {0};
    uint8_t ops[JINJA_MAX_NESTING];
    TRY(parse_math(p, 3, out));
    while (compare_op(p, &op)) {
        jnode *n;
        if (l.n == JINJA_MAX_NESTING)
            return jparse_fail(p, cur(p)->line, "more than 200 comparisons in a chain");
        ops[l.n] = (uint8_t)op;
        TRY(parse_math(p, 3, &n));
        TRY(jparse_push(p, &l, n));
    }
    if (!l.n) return MICA_OK;
    jnode *first = *out;
    TRY(jparse_node(p, JN_COMPARE, first->line, out));
    (*out)->a = first;
    node_kids(*out, &l);
    (*out)->ops = jarena_take(&p->t->arena, l.n);
    if (!(*out)->ops) return jparse_nomem(p);
    memcpy((*out)->ops, ops, l.n);
    return MICA_OK;
}

static mica_status parse_not(parser *p, jnode **out) {
    const jtok *t = cur(p);
    if (!skip_name(p, "not")) return parse_compare(p, out);
    TRY(jparse_deeper(p));
    TRY(jparse_node(p, JN_NOT, t->line, out));
    TRY(parse_not(p, &(*out)->a));
    p->depth--;
    return MICA_OK;
}

static mica_status parse_and(parser *p, jnode **out) {
    node_list l = {0};
    TRY(parse_not(p, out));
    if (!is_name(cur(p), "and")) return MICA_OK;
    jnode *n = *out;
    TRY(jparse_node(p, JN_AND, n->line, out));
    TRY(jparse_push(p, &l, n));
    while (skip_name(p, "and")) {
        TRY(parse_not(p, &n));
        TRY(jparse_push(p, &l, n));
    }
    node_kids(*out, &l);
    return MICA_OK;
}

static mica_status parse_or(parser *p, jnode **out) {
    node_list l = {0};
    TRY(parse_and(p, out));
    if (!is_name(cur(p), "or")) return MICA_OK;
    jnode *n = *out;
    TRY(jparse_node(p, JN_OR, n->line, out));
    TRY(jparse_push(p, &l, n));
    while (skip_name(p, "or")) {
        TRY(parse_and(p, &n));
        TRY(jparse_push(p, &l, n));
    }
    node_kids(*out, &l);
    return MICA_OK;
}

mica_status jparse_expr(parser *p, jnode **out) {
    TRY(parse_or(p, out));
    while (skip_name(p, "if")) {
        jnode *n;
        TRY(jparse_node(p, JN_COND, cur(p)->line, &n));
        n->a = *out;
        *out = n;
        TRY(parse_or(p, &n->b));
        if (!skip_name(p, "else")) continue;
        TRY(jparse_deeper(p));
        TRY(jparse_expr(p, &n->c));
        p->depth--;
    }
    return MICA_OK;
}
