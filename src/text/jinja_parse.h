/* The parser's insides, for jinja_parse.c (expressions) and jinja_stmt.c (statements). */
#ifndef MICA_TEXT_JINJA_PARSE_H
#define MICA_TEXT_JINJA_PARSE_H

#include "text/jinja_int.h"

typedef struct parser {
    jinja_template *t;
    jtoks tok;
    size_t at;
    int depth;
    size_t cap_name;
    mica_error *err;
} parser;

/* A growing array of nodes, in the arena once it is done. */
typedef struct node_list {
    jnode **v;
    size_t n, cap;
} node_list;

/* How a run of expressions with commas is read. */
typedef struct tuple_rule {
    bool simple;         // primaries only (targets)
    bool no_cond;        // without the inline if
    bool parens;         // inside parentheses: () is a tuple
    bool with_namespace; // ns.a is a target
    const char *end;     // a name that ends it
} tuple_rule;

static inline const jtok *cur(const parser *p) {
    return &p->tok.v[p->at];
}
static inline const jtok *look(const parser *p) {
    return &p->tok.v[p->at + (cur(p)->kind != JT_EOF)];
}
static inline void next(parser *p) {
    p->at += cur(p)->kind != JT_EOF;
}
static inline bool is_name(const jtok *t, const char *s) {
    return t->kind == JT_NAME && slice_is(t->text, s);
}

static inline bool skip_name(parser *p, const char *s) {
    if (!is_name(cur(p), s)) return false;
    next(p);
    return true;
}

static inline bool skip_kind(parser *p, jtok_kind kind) {
    if (cur(p)->kind != kind) return false;
    next(p);
    return true;
}

mica_status jparse_nomem(parser *p);
mica_status jparse_fail(parser *p, int line, const char *what);
mica_status jparse_fail_token(parser *p, const char *expected); // at the current token
mica_status jparse_expect(parser *p, jtok_kind kind, const char *expected);
mica_status jparse_deeper(parser *p); // one level of recursion; leave by p->depth--
mica_status jparse_node(parser *p, jn_kind kind, int line, jnode **out);
mica_status jparse_push(parser *p, node_list *l, jnode *n);
mica_status jparse_text(parser *p, slice text, jv *out);
mica_status jparse_intern(parser *p, slice name, int *id);
bool jparse_constant(slice s, jv *out); // true, false, none and their capitals
mica_status jparse_expr(parser *p, jnode **out);
mica_status jparse_tuple(parser *p, const tuple_rule *rule, jnode **out);
mica_status jparse_filter(parser *p, jnode **io); // `name(args)` behind a bar: *io | name(args)

static inline void node_kids(jnode *n, const node_list *l) {
    n->kid = l->v;
    n->n_kid = l->n;
}

#endif
