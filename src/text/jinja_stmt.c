/* Tokens to nodes: statements, then one walk over the tree for what jinja2's compiler refuses: unknown
 * filters and tests where they are sure to be reached, break outside of a loop, a loop over `loop`; and the
 * parsed template as a whole. */
#include "text/jinja_parse.h"

#include "base/mem.h"

enum { MAX_TREE = 1000 }; // levels of the tree, which chains like a + b + c and a.b.c deepen too

static mica_status parse_body(parser *p, const char *const *end, jnode **out);

static mica_status expect_name(parser *p, const char *name) {
    return skip_name(p, name) ? MICA_OK : jparse_fail_token(p, name);
}

static mica_status check_target(parser *p, const jnode *n) {
    if (n->kind == JN_NAME || n->kind == JN_NSREF) return MICA_OK;
    if (n->kind != JN_TUPLE) return jparse_fail(p, n->line, "can't assign to an expression");
    for (size_t i = 0; i < n->n_kid; i++) TRY(check_target(p, n->kid[i]));
    return MICA_OK;
}

static mica_status parse_target(parser *p, const char *end, bool with_namespace, jnode **out) {
    TRY(jparse_tuple(p, &(tuple_rule){.simple = true, .with_namespace = with_namespace, .end = end}, out));
    return check_target(p, *out);
}

static mica_status parse_plain_name(parser *p, const jtok **t, int *id) {
    jv v;
    *t = cur(p);
    if ((*t)->kind != JT_NAME) return jparse_fail_token(p, "a name");
    if (jparse_constant((*t)->text, &v)) return jparse_fail(p, (*t)->line, "can't assign to a constant");
    next(p);
    return jparse_intern(p, (*t)->text, id);
}

/* Behind the opening tag: `%}`, then statements up to one of the end tags, which stays the current token. */
static mica_status parse_statements(parser *p, const char *const *end, jnode **out) {
    skip_kind(p, JT_COLON);
    TRY(jparse_expect(p, JT_BLOCK_END, "the end of the tag"));
    return parse_body(p, end, out);
}

static mica_status parse_until(parser *p, const char *end, jnode **out) {
    TRY(parse_statements(p, (const char *const[]){end, NULL}, out));
    next(p);
    return MICA_OK;
}

static mica_status parse_set(parser *p, int line, jnode **out) {
    jnode *n;
    TRY(jparse_node(p, JN_SET, line, out));
    n = *out;
    TRY(parse_target(p, NULL, true, &n->a));
    if (skip_kind(p, JT_ASSIGN)) return jparse_tuple(p, &(tuple_rule){0}, &n->b);
    n->kind = JN_SET_BLOCK;
    while (skip_kind(p, JT_PIPE)) TRY(jparse_filter(p, &n->b));
    return parse_until(p, "endset", &n->d);
}

static mica_status parse_if(parser *p, int line, jnode **out) {
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    node_list l = {0};
    TRY(jparse_node(p, JN_IF, line, out));
    do {
        jnode *test, *body;
        TRY(jparse_tuple(p, &(tuple_rule){.no_cond = true}, &test));
        TRY(parse_statements(p, ends, &body));
        TRY(jparse_push(p, &l, test));
        TRY(jparse_push(p, &l, body));
    } while (skip_name(p, "elif"));
    node_kids(*out, &l);
    if (skip_name(p, "else")) return parse_until(p, "endif", &(*out)->c);
    next(p);
    return MICA_OK;
}

static mica_status parse_for(parser *p, int line, jnode **out) {
    static const char *const ends[] = {"endfor", "else", NULL};
    jnode *n;
    TRY(jparse_node(p, JN_FOR, line, out));
    n = *out;
    TRY(parse_target(p, "in", false, &n->a));
    TRY(expect_name(p, "in"));
    TRY(jparse_tuple(p, &(tuple_rule){.no_cond = true, .end = "recursive"}, &n->b));
    if (skip_name(p, "if")) TRY(jparse_expr(p, &n->c));
    n->flag = skip_name(p, "recursive");
    TRY(parse_statements(p, ends, &n->d));
    if (skip_name(p, "else")) return parse_until(p, "endfor", &n->e);
    next(p);
    return MICA_OK;
}

static mica_status parse_signature(parser *p, jsig *sig) {
    int param[64];
    jnode *fallback[64];
    TRY(jparse_expect(p, JT_LPAREN, "'('"));
    while (cur(p)->kind != JT_RPAREN) {
        const jtok *t;
        size_t i = sig->n_param;
        if (i) TRY(jparse_expect(p, JT_COMMA, "','"));
        if (i == 64) return jparse_fail(p, cur(p)->line, "more than 64 parameters");
        TRY(parse_plain_name(p, &t, &param[i]));
        fallback[i] = NULL;
        if (skip_kind(p, JT_ASSIGN))
            TRY(jparse_expr(p, &fallback[i]));
        else if (i && fallback[i - 1])
            return jparse_fail(p, t->line, "non-default argument follows default argument");
        for (size_t j = 0; j < i; j++)
            if (param[j] == param[i]) return jparse_fail(p, t->line, "duplicate parameter");
        sig->caller_param |= param[i] == JID_CALLER;
        sig->varargs_param |= param[i] == JID_VARARGS;
        sig->kwargs_param |= param[i] == JID_KWARGS;
        sig->n_param++;
    }
    next(p);
    sig->param = jarena_take(&p->t->arena, sig->n_param * sizeof *param);
    sig->fallback = jarena_take(&p->t->arena, sig->n_param * sizeof *fallback);
    if (!sig->param || !sig->fallback) return jparse_nomem(p);
    if (sig->n_param) memcpy(sig->param, param, sig->n_param * sizeof *param);
    if (sig->n_param) memcpy(sig->fallback, fallback, sig->n_param * sizeof *fallback);
    return MICA_OK;
}

static mica_status parse_macro(parser *p, int line, jnode **out) {
    const jtok *t;
    TRY(jparse_node(p, JN_MACRO, line, out));
    jnode *n = *out;
    n->sig = jarena_take(&p->t->arena, sizeof *n->sig);
    if (!n->sig) return jparse_nomem(p);
    TRY(parse_plain_name(p, &t, &n->id));
    TRY(jparse_text(p, t->text, &n->sig->name));
    TRY(parse_signature(p, n->sig));
    return parse_until(p, "endmacro", &n->d);
}

static mica_status parse_call_block(parser *p, int line, jnode **out) {
    TRY(jparse_node(p, JN_CALLBLOCK, line, out));
    jnode *n = *out;
    n->sig = jarena_take(&p->t->arena, sizeof *n->sig);
    if (!n->sig) return jparse_nomem(p);
    n->sig->name = jv_none();
    if (cur(p)->kind == JT_LPAREN) TRY(parse_signature(p, n->sig));
    TRY(jparse_expr(p, &n->a));
    if (n->a->kind != JN_CALL) return jparse_fail(p, line, "expected call");
    return parse_until(p, "endcall", &n->d);
}

static mica_status parse_with(parser *p, int line, jnode **out) {
    node_list l = {0};
    TRY(jparse_node(p, JN_WITH, line, out));
    while (cur(p)->kind != JT_BLOCK_END && cur(p)->kind != JT_EOF) {
        jnode *target, *value;
        if (l.n) TRY(jparse_expect(p, JT_COMMA, "','"));
        TRY(parse_target(p, NULL, false, &target));
        TRY(jparse_expect(p, JT_ASSIGN, "'='"));
        TRY(jparse_expr(p, &value));
        TRY(jparse_push(p, &l, target));
        TRY(jparse_push(p, &l, value));
    }
    node_kids(*out, &l);
    return parse_until(p, "endwith", &(*out)->d);
}

static mica_status parse_filter_block(parser *p, int line, jnode **out) {
    TRY(jparse_node(p, JN_FILTERBLOCK, line, out));
    do TRY(jparse_filter(p, &(*out)->a));
    while (skip_kind(p, JT_PIPE));
    return parse_until(p, "endfilter", &(*out)->d);
}

static mica_status parse_print(parser *p, int line, jnode **out) {
    node_list l = {0};
    TRY(jparse_node(p, JN_BODY, line, out));
    while (cur(p)->kind != JT_BLOCK_END && cur(p)->kind != JT_EOF) {
        jnode *n;
        if (l.n) TRY(jparse_expect(p, JT_COMMA, "','"));
        TRY(jparse_node(p, JN_PRINT, line, &n));
        TRY(jparse_expr(p, &n->a));
        TRY(jparse_push(p, &l, n));
    }
    node_kids(*out, &l);
    return MICA_OK;
}

static mica_status parse_generation(parser *p, int line, jnode **out) {
    TRY(jparse_node(p, JN_SCOPE, line, out));
    return parse_until(p, "endgeneration", &(*out)->d);
}

static mica_status parse_break(parser *p, int line, jnode **out) {
    return jparse_node(p, JN_BREAK, line, out);
}
static mica_status parse_continue(parser *p, int line, jnode **out) {
    return jparse_node(p, JN_CONTINUE, line, out);
}

static mica_status parse_statement(parser *p, jnode **out) {
    static const struct {
        const char *name;
        mica_status (*parse)(parser *p, int line, jnode **out); // NULL: jinja2's, not ours
    } tag[] = {{"set", parse_set},
               {"if", parse_if},
               {"for", parse_for},
               {"macro", parse_macro},
               {"call", parse_call_block},
               {"filter", parse_filter_block},
               {"with", parse_with},
               {"print", parse_print},
               {"generation", parse_generation},
               {"break", parse_break},
               {"continue", parse_continue},
               {"block", NULL},
               {"extends", NULL},
               {"include", NULL},
               {"import", NULL},
               {"from", NULL},
               {"autoescape", NULL}};
    const jtok *t = cur(p);
    if (t->kind != JT_NAME) return jparse_fail_token(p, "a tag name");
    int n = t->text.n > 40 ? 40 : (int)t->text.n;
    for (size_t i = 0; i < sizeof tag / sizeof *tag; i++) {
        if (!slice_is(t->text, tag[i].name)) continue;
        if (!tag[i].parse)
            return fail(p->err, MICA_E_UNSUPPORTED, "chat template: line %d: the tag '%s' is not supported",
                        t->line, tag[i].name);
        next(p);
        return tag[i].parse(p, t->line, out);
    }
    return fail(p->err, MICA_E_ARG, "chat template: line %d: Encountered unknown tag '%.*s'.", t->line, n,
                t->text.p);
}

static bool is_end(const parser *p, const char *const *end) {
    for (; end && *end; end++)
        if (is_name(cur(p), *end)) return true;
    return false;
}

static mica_status parse_output(parser *p, jnode **out) {
    next(p);
    TRY(jparse_node(p, JN_PRINT, cur(p)->line, out));
    TRY(jparse_tuple(p, &(tuple_rule){0}, &(*out)->a));
    return jparse_expect(p, JT_VAR_END, "'}}'");
}

static mica_status parse_body(parser *p, const char *const *end, jnode **out) {
    node_list l = {0};
    jnode *n;
    TRY(jparse_deeper(p));
    TRY(jparse_node(p, JN_BODY, cur(p)->line, out));
    for (;;) {
        const jtok *t = cur(p);
        if (t->kind == JT_EOF) {
            if (end)
                return fail(p->err, MICA_E_ARG,
                            "chat template: line %d: Unexpected end of template. Jinja was "
                            "looking for the tag '%s'.",
                            t->line, end[0]);
            break;
        }
        if (t->kind == JT_DATA) {
            next(p);
            TRY(jparse_node(p, JN_DATA, t->line, &n));
            TRY(jparse_text(p, t->text, &n->val));
        } else if (t->kind == JT_VAR_BEGIN) {
            TRY(parse_output(p, &n));
        } else {
            next(p); // the lexer gives nothing but block_begin here
            if (is_end(p, end)) break;
            TRY(parse_statement(p, &n));
            TRY(jparse_expect(p, JT_BLOCK_END, "the end of the tag"));
        }
        TRY(jparse_push(p, &l, n));
    }
    node_kids(*out, &l);
    p->depth--;
    return MICA_OK;
}

/* ---- what jinja2's compiler checks ---- */

/* soft: directly in an if or an inline if, where an unknown filter only fails when it is reached.
 * in_loop: break may stand here. sig: the macro around, which learns what its body reads. */
typedef struct checker {
    parser *p;
    bool soft, in_loop;
    int depth;
    jsig *sig;
} checker;

static mica_status check(checker c, jnode *n);

static mica_status check_args(checker c, const jargs_node *a) {
    if (!a) return MICA_OK;
    for (size_t i = 0; i < a->n_pos; i++) TRY(check(c, a->pos[i]));
    for (size_t i = 0; i < a->n_kw; i++) TRY(check(c, a->kw[i].value));
    TRY(check(c, a->star));
    return check(c, a->star2);
}

static mica_status check_filter(checker c, const jnode *n) {
    const char *what = n->kind == JN_FILTER ? "filter" : "test";
    if ((n->fn && n->fn->fn) || c.soft) return MICA_OK;
    slice s = jstr_slice(n->val.s);
    int len = s.n > 40 ? 40 : (int)s.n;
    if (n->fn)
        return fail(c.p->err, MICA_E_UNSUPPORTED, "chat template: line %d: the %s '%s' is not supported",
                    n->line, what, n->fn->name);
    return fail(c.p->err, MICA_E_ARG, "chat template: line %d: No %s named '%.*s'.", n->line, what, len, s.p);
}

static bool stores_loop(const jnode *n) {
    if (n->kind == JN_NAME) return n->id == JID_LOOP;
    for (size_t i = 0; n->kind == JN_TUPLE && i < n->n_kid; i++)
        if (stores_loop(n->kid[i])) return true;
    return false;
}

static mica_status check_signature(checker c, const jsig *sig) {
    for (size_t i = 0; i < sig->n_param; i++) TRY(check(c, sig->fallback[i]));
    if (!sig->use_caller || !sig->caller_param) return MICA_OK;
    for (size_t i = 0; i < sig->n_param; i++)
        if (sig->param[i] == JID_CALLER && !sig->fallback[i])
            return fail(c.p->err, MICA_E_ARG,
                        "chat template: the special \"caller\" argument must be omitted or be given "
                        "a default");
    return MICA_OK;
}

static mica_status check_function(checker c, jnode *n) { // a macro or the body of a call block
    checker inner = {.p = c.p, .sig = n->sig, .depth = c.depth};
    TRY(check(c, n->a));
    TRY(check(inner, n->d));
    if (c.sig) { // names are also looked for in macros inside macros
        c.sig->use_caller |= n->sig->use_caller && !n->sig->caller_param;
        c.sig->use_varargs |= n->sig->use_varargs && !n->sig->varargs_param;
        c.sig->use_kwargs |= n->sig->use_kwargs && !n->sig->kwargs_param;
    }
    return check_signature(inner, n->sig);
}

static mica_status check_for(checker c, jnode *n) {
    checker inner = c;
    inner.in_loop = true;
    inner.soft = false;
    if (stores_loop(n->a))
        return jparse_fail(c.p, n->line, "Can't assign to special loop variable in for-loop target");
    TRY(check(c, n->b)); // visited with the frame around, which may be soft
    TRY(check(inner, n->c));
    TRY(check(inner, n->d));
    inner.in_loop = c.in_loop;
    return check(inner, n->e);
}

static mica_status check_kids(checker c, jnode *n) {
    for (size_t i = 0; i < n->n_kid; i++) TRY(check(c, n->kid[i]));
    TRY(check_args(c, n->args));
    jnode *part[] = {n->a, n->b, n->c, n->d, n->e};
    for (size_t i = 0; i < sizeof part / sizeof *part; i++) TRY(check(c, part[i]));
    return MICA_OK;
}

static mica_status check(checker c, jnode *n) {
    if (!n) return MICA_OK;
    if (++c.depth > MAX_TREE) return jparse_fail(c.p, n->line, "nested deeper than 1000");
    switch (n->kind) {
    case JN_NAME:
        if (!c.sig) return MICA_OK;
        c.sig->use_caller |= n->id == JID_CALLER;
        c.sig->use_varargs |= n->id == JID_VARARGS;
        c.sig->use_kwargs |= n->id == JID_KWARGS;
        return MICA_OK;
    case JN_FILTER:
    case JN_TEST: TRY(check_filter(c, n)); break;
    case JN_IF:
    case JN_COND: c.soft = true; break;
    case JN_FOR: return check_for(c, n);
    case JN_MACRO:
    case JN_CALLBLOCK: return check_function(c, n);
    case JN_SCOPE:
        c.in_loop = false;
        c.soft = false;
        break;
    case JN_FILTERBLOCK:
    case JN_SET_BLOCK:
    case JN_WITH: c.soft = false; break;
    case JN_BREAK:
    case JN_CONTINUE:
        if (!c.in_loop) return jparse_fail(c.p, n->line, "break and continue stand outside of a loop");
        break;
    default: break;
    }
    return check_kids(c, n);
}

/* ---- the template ---- */

static mica_status first_names(parser *p) {
    static const char *const name[JID_N] = {"loop", "caller", "varargs", "kwargs"};
    p->cap_name = 64;
    p->t->name = jarena_take(&p->t->arena, p->cap_name * sizeof(slice));
    if (!p->t->name) return jparse_nomem(p);
    for (int i = 0; i < JID_N; i++) p->t->name[p->t->n_name++] = slice_of(name[i]);
    return MICA_OK;
}

mica_status jinja_parse(jinja_template **out, slice source, mica_error *err) {
    mica_status st;
    jinja_template *t = mem_calloc(1, sizeof *t);
    *out = NULL;
    if (!t) return fail(err, MICA_E_NOMEM, "chat template: out of memory");
    t->arena.limit_bytes = JINJA_MAX_MEMORY;
    parser p = {.t = t, .err = err};
    TRY_GOTO(first_names(&p), done);
    TRY_GOTO(jinja_lex(&p.tok, &t->arena, source, err), done);
    TRY_GOTO(parse_body(&p, NULL, &t->body), done);
    TRY_GOTO(check((checker){.p = &p}, t->body), done);
    *out = t;
    t = NULL;
done:
    jinja_free(t);
    return st;
}

void jinja_free(jinja_template *t) {
    if (!t) return;
    jarena_fini(&t->arena);
    mem_free(t);
}

bool jinja_names(const jinja_template *t, const char *name) {
    for (size_t i = JID_N; i < t->n_name; i++)
        if (slice_is(t->name[i], name)) return true;
    return false;
}
