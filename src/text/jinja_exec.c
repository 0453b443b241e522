/* Statements of a template, macros, loops, and the render as a whole.
 *
 * Scopes are a chain of small arrays. Blocks that jinja2 gives a frame of their own (loop bodies, macros,
 * with, captured blocks) get a scope; if does not. A macro keeps the scope it was written in, so it sees
 * later changes of it. */
#include "text/jinja_int.h"

#include "base/clock.h"
#include "base/mem.h"

static mica_status exec(jr *r, const jnode *n);

/* ---- scopes and assignment ---- */

static mica_status scope_new(jr *r, jscope *parent, jscope **out) {
    *out = jr_take(r, sizeof **out);
    if (!*out) return jr_nomem(r);
    (*out)->parent = parent;
    return MICA_OK;
}

mica_status jscope_set(jr *r, jscope *s, int id, jv v) {
    for (int i = 0; i < s->n; i++) {
        if (s->var[i].id != id) continue;
        s->var[i].v = v;
        return MICA_OK;
    }
    if (s->n == s->cap) {
        int cap = s->cap ? s->cap * 2 : 4;
        jvar *var = jr_take(r, (size_t)cap * sizeof *var);
        if (!var) return jr_nomem(r);
        if (s->n) memcpy(var, s->var, (size_t)s->n * sizeof *var);
        s->var = var;
        s->cap = cap;
    }
    s->var[s->n++] = (jvar){id, v};
    return MICA_OK;
}

static mica_status assign_tuple(jr *r, const jnode *target, jv v) {
    jlist *l;
    if (!jv_iterable(v)) return jr_fail(r, "cannot unpack non-iterable %s object", jv_type(v));
    TRY(jlist_of(r, v, &l));
    if (l->n < target->n_kid)
        return jr_fail(r, "not enough values to unpack (expected %zu, got %zu)", target->n_kid, l->n);
    if (l->n > target->n_kid) return jr_fail(r, "too many values to unpack (expected %zu)", target->n_kid);
    for (size_t i = 0; i < l->n; i++) TRY(jassign(r, target->kid[i], l->v[i]));
    return MICA_OK;
}

static mica_status namespace_of(jr *r, const jnode *target, jdict **out) {
    jnode name = {.kind = JN_NAME, .id = target->id, .line = target->line};
    jv ns;
    TRY(jeval(r, &name, &ns));
    if (ns.kind != JV_NS) return jr_fail(r, "cannot assign attribute on non-namespace object");
    *out = ns.dict;
    return MICA_OK;
}

static mica_status check_namespaces(jr *r, const jnode *target) {
    jdict *d;
    if (target->kind == JN_NSREF) return namespace_of(r, target, &d);
    for (size_t i = 0; target->kind == JN_TUPLE && i < target->n_kid; i++)
        TRY(check_namespaces(r, target->kid[i]));
    return MICA_OK;
}

mica_status jassign(jr *r, const jnode *target, jv v) {
    jdict *d;
    if (target->kind == JN_NAME) return jscope_set(r, r->scope, target->id, v);
    if (target->kind == JN_TUPLE) return assign_tuple(r, target, v);
    TRY(namespace_of(r, target, &d));
    if (slice_starts(jstr_slice(target->val.s), SLICE_LIT("_")))
        return jr_fail(r, "Chat templates cannot store underscore-prefixed attributes on a namespace");
    return jdict_set(r, d, target->val, v);
}

static mica_status exec_set(jr *r, const jnode *n) {
    jv v;
    TRY(check_namespaces(r, n->a));
    TRY(jeval(r, n->b, &v));
    r->line = n->line;
    return jassign(r, n->a, v);
}

/* ---- captured text ---- */

/* Runs body in a scope of its own (left in r->scope for the caller to end) and gives what it printed. */
static mica_status capture(jr *r, const jnode *body, jscope *parent, jv *out) {
    jtext text = {0}, *outer = r->out;
    TRY(scope_new(r, parent, &r->scope));
    r->out = &text;
    TRY(exec(r, body));
    r->out = outer;
    return jtext_done(r, &text, out);
}

/* The chain of filters over captured text, in the scope of the block. */
static mica_status filtered(jr *r, const jnode *chain, jv *io) {
    if (!chain) return MICA_OK;
    jv outer = r->captured;
    r->captured = *io;
    TRY(jeval(r, chain, io));
    r->captured = outer;
    return MICA_OK;
}

static mica_status exec_set_block(jr *r, const jnode *n) {
    jscope *scope = r->scope;
    jv v;
    TRY(check_namespaces(r, n->a));
    TRY(capture(r, n->d, scope, &v));
    if (r->flow == JFLOW_ON) TRY(filtered(r, n->b, &v));
    r->scope = scope;
    return r->flow == JFLOW_ON ? jassign(r, n->a, v) : MICA_OK;
}

static mica_status exec_filter_block(jr *r, const jnode *n) {
    jscope *scope = r->scope;
    jv v;
    TRY(capture(r, n->d, scope, &v));
    if (r->flow == JFLOW_ON) TRY(filtered(r, n->a, &v));
    r->scope = scope;
    if (r->flow != JFLOW_ON) return MICA_OK;
    if (v.kind != JV_STR) return jr_fail(r, "a filter block gave %s instead of text", jv_type(v));
    return jtext_str(r, r->out, v.s);
}

/* ---- macros ---- */

static mica_status macro_new(jr *r, const jnode *n, jv *out) {
    jmacro *m = jr_take(r, sizeof *m);
    if (!m) return jr_nomem(r);
    *m = (jmacro){n->sig, n->d, r->scope};
    *out = (jv){.kind = JV_MACRO, .macro = m};
    return MICA_OK;
}

static mica_status exec_macro_def(jr *r, const jnode *n) {
    jv m;
    TRY(macro_new(r, n, &m));
    return jscope_set(r, r->scope, n->id, m);
}

static mica_status exec_call_block(jr *r, const jnode *n) {
    jv caller, v;
    TRY(macro_new(r, n, &caller));
    TRY(jeval_call_with(r, n->a, caller, &v));
    if (v.kind != JV_STR) return jr_fail(r, "a call block gave %s instead of text", jv_type(v));
    return jtext_str(r, r->out, v.s);
}

static bool take_kw(jcall *c, slice name, jv *out) {
    for (size_t i = 0; i < c->n_kw; i++) {
        if (!slice_eq(jstr_slice(c->kw[i].name.s), name)) continue;
        *out = c->kw[i].value;
        memmove(c->kw + i, c->kw + i + 1, (c->n_kw - i - 1) * sizeof *c->kw);
        c->n_kw--;
        return true;
    }
    return false;
}

static int name_len(const jsig *s) {
    return s->name.kind == JV_STR ? (int)s->name.s->n : 6;
}
static const char *name_text(const jsig *s) {
    return s->name.kind == JV_STR ? s->name.s->p : "caller";
}

/* What a macro did not name: caller, kwargs and varargs, as far as its body reads them. */
static mica_status bind_rest(jr *r, const jsig *s, jscope *scope, jcall *c) {
    jv v;
    if (s->use_caller && !s->caller_param) {
        if (!take_kw(c, SLICE_LIT("caller"), &v)) TRY(jv_undef_hint(r, &v, "No caller defined"));
        TRY(jscope_set(r, scope, JID_CALLER, v));
    }
    if (s->use_kwargs && !s->kwargs_param) {
        v.kind = JV_DICT;
        TRY(jdict_new(r, &v.dict, c->n_kw));
        for (size_t i = 0; i < c->n_kw; i++) TRY(jdict_set(r, v.dict, c->kw[i].name, c->kw[i].value));
        TRY(jscope_set(r, scope, JID_KWARGS, v));
    } else if (c->n_kw) {
        return jr_fail(r, "macro '%.*s' takes no keyword argument '%.*s'", name_len(s), name_text(s),
                       (int)c->kw[0].name.s->n, c->kw[0].name.s->p);
    }
    size_t rest = c->n_arg > s->n_param ? c->n_arg - s->n_param : 0;
    if (s->use_varargs && !s->varargs_param) {
        jlist *l;
        TRY(jlist_new(r, &l, rest));
        if (rest) memcpy(l->v, c->arg + s->n_param, rest * sizeof *l->v);
        l->n = rest;
        return jscope_set(r, scope, JID_VARARGS, jv_tuple(l));
    }
    if (!rest) return MICA_OK;
    return jr_fail(r, "macro '%.*s' takes not more than %zu argument(s)", name_len(s), name_text(s),
                   s->n_param);
}

static mica_status param_missing(jr *r, const jsig *s, size_t i, jv *out) {
    slice name = r->t->name[s->param[i]];
    size_t n = name.n + 40;
    char *hint = jr_take(r, n);
    if (!hint) return jr_nomem(r);
    snprintf(hint, n, "parameter '%.*s' was not provided", (int)name.n, name.p);
    return jv_undef_hint(r, out, hint);
}

/* Binds the call to the parameters in r->scope, then fills in defaults, which see the parameters before them.
 */
static mica_status bind_macro(jr *r, const jsig *s, jcall *c) {
    bool given[64] = {false};
    jv v;
    for (size_t i = 0; i < s->n_param; i++) {
        if (i < c->n_arg)
            v = c->arg[i];
        else if (!take_kw(c, r->t->name[s->param[i]], &v))
            continue;
        given[i] = true;
        TRY(jscope_set(r, r->scope, s->param[i], v));
    }
    TRY(bind_rest(r, s, r->scope, c));
    for (size_t i = 0; i < s->n_param; i++) {
        if (given[i]) continue;
        if (s->fallback[i])
            TRY(jeval(r, s->fallback[i], &v));
        else
            TRY(param_missing(r, s, i, &v));
        TRY(jscope_set(r, r->scope, s->param[i], v));
    }
    return MICA_OK;
}

mica_status jexec_macro(jr *r, jmacro *m, jcall *c, jv *out) {
    jscope *scope = r->scope;
    jtext text = {0}, *outer = r->out;
    if (++r->calls > JINJA_MAX_CALLS)
        return jr_fail(r, "maximum recursion depth exceeded: %d macros in each other", JINJA_MAX_CALLS);
    TRY(scope_new(r, m->scope, &r->scope));
    TRY(bind_macro(r, m->sig, c));
    r->out = &text;
    TRY(exec(r, m->body));
    r->out = outer;
    r->scope = scope;
    r->calls--;
    return jtext_done(r, &text, out);
}

/* ---- loops ---- */

/* The next item from the iterator that passes the loop's own filter. */
static mica_status loop_pull(jr *r, jloop *l, jv *out, bool *more) {
    jscope *scope = r->scope;
    jv keep;
    for (;;) {
        TRY(jiter_next(r, l->it, out, more));
        if (!*more || !l->node->c) return MICA_OK;
        TRY(scope_new(r, l->scope, &r->scope));
        TRY(jassign(r, l->node->a, *out));
        TRY(jeval(r, l->node->c, &keep));
        r->scope = scope;
        if (jv_truth(keep)) return MICA_OK;
    }
}

static mica_status loop_peek(jr *r, jloop *l) {
    if (l->has_next) return MICA_OK;
    return loop_pull(r, l, &l->next, &l->has_next);
}

static mica_status loop_length(jr *r, jloop *l) {
    jlist *rest;
    jv v;
    bool more, counted = !l->node->c && l->source.kind != JV_ITER;
    if (l->length >= 0) return MICA_OK;
    if (counted) return jv_length(r, l->source, &l->length);
    TRY(jlist_new(r, &rest, 8)); // a generator is walked to its end
    for (;;) {
        TRY(loop_pull(r, l, &v, &more));
        if (!more) break;
        TRY(jlist_push(r, rest, v));
    }
    l->length = (int64_t)rest->n + l->index0 + 1 + l->has_next;
    jnode *unfiltered = jr_take(r, sizeof *unfiltered);
    if (!unfiltered) return jr_nomem(r);
    *unfiltered = *l->node;
    unfiltered->c = NULL;
    l->node = unfiltered;
    return jiter_of(r, jv_list(rest), &l->it);
}

static mica_status loop_cycle(jr *r, jv self, jcall *c, jv *out) {
    if (!c->n_arg) return jr_fail(r, "no items for cycling given");
    *out = c->arg[(size_t)self.loop->index0 % c->n_arg];
    return MICA_OK;
}

static mica_status loop_changed(jr *r, jv self, jcall *c, jv *out) {
    jlist *l;
    bool same = false;
    TRY(jlist_new(r, &l, c->n_arg));
    if (c->n_arg) memcpy(l->v, c->arg, c->n_arg * sizeof *c->arg);
    l->n = c->n_arg;
    if (self.loop->changed.kind == JV_TUPLE) TRY(jv_equal(r, self.loop->changed, jv_tuple(l), &same));
    self.loop->changed = jv_tuple(l);
    *out = jv_bool(!same);
    return MICA_OK;
}

static mica_status loop_method(jr *r, jloop *l, const jbuiltin *fn, jv *out) {
    jmethod *m = jr_take(r, sizeof *m);
    if (!m) return jr_nomem(r);
    *m = (jmethod){{.kind = JV_LOOP, .loop = l}, fn};
    *out = (jv){.kind = JV_METHOD, .method = m};
    return MICA_OK;
}

mica_status jloop_attr(jr *r, jloop *l, slice name, jv *out, bool *found) {
    static const jbuiltin cycle = {"cycle", loop_cycle, NULL}, changed = {"changed", loop_changed, NULL};
    *found = true;
    if (slice_is(name, "index0"))
        *out = jv_int(l->index0);
    else if (slice_is(name, "index"))
        *out = jv_int(l->index0 + 1);
    else if (slice_is(name, "first"))
        *out = jv_bool(l->index0 == 0);
    else if (slice_is(name, "depth"))
        *out = jv_int(l->depth0 + 1);
    else if (slice_is(name, "depth0"))
        *out = jv_int(l->depth0);
    else if (slice_is(name, "cycle"))
        return loop_method(r, l, &cycle, out);
    else if (slice_is(name, "changed"))
        return loop_method(r, l, &changed, out);
    else if (slice_is(name, "last") || slice_is(name, "nextitem")) {
        TRY(loop_peek(r, l));
        if (slice_is(name, "last"))
            *out = jv_bool(!l->has_next);
        else if (l->has_next)
            *out = l->next;
        else
            return jv_undef_hint(r, out, "there is no next item");
    } else if (slice_is(name, "previtem")) {
        if (l->index0 == 0) return jv_undef_hint(r, out, "there is no previous item");
        *out = l->prev;
    } else if (slice_is(name, "length") || slice_is(name, "revindex") || slice_is(name, "revindex0")) {
        TRY(loop_length(r, l));
        *out = jv_int(l->length - (name.n == 6 ? 0 : name.n == 8 ? l->index0 : l->index0 + 1));
    } else
        *found = false;
    return MICA_OK;
}

static mica_status loop_step(jr *r, jloop *l, bool *more) {
    jv v;
    if (l->has_next) {
        v = l->next;
        *more = true;
        l->has_next = false;
    } else {
        TRY(loop_pull(r, l, &v, more));
    }
    if (!*more) return MICA_OK;
    l->index0++;
    l->prev = l->cur;
    l->cur = v;
    return MICA_OK;
}

static mica_status run_loop(jr *r, const jnode *n, jscope *around, jv items, int depth0) {
    jscope *scope = r->scope, *body;
    jloop *l = jr_take(r, sizeof *l);
    bool more, completed = false;
    if (!l) return jr_nomem(r);
    *l = (jloop){.node = n, .scope = around, .source = items, .index0 = -1, .length = -1, .depth0 = depth0};
    r->line = n->line;
    TRY(jiter_of(r, items, &l->it));
    TRY(scope_new(r, around, &body));
    for (;;) {
        TRY(loop_step(r, l, &more));
        if (!more) break;
        body->n = 0; // jinja2 starts every round with fresh names, in the same frame
        r->scope = body;
        TRY(jscope_set(r, body, JID_LOOP, (jv){.kind = JV_LOOP, .loop = l}));
        TRY(jassign(r, n->a, l->cur));
        TRY(exec(r, n->d));
        jflow flow = r->flow;
        r->flow = JFLOW_ON;
        if (flow == JFLOW_BREAK) break;
        completed |=
            flow == JFLOW_ON; // `else` runs unless one round came to its end: that is how jinja2 compiles it
    }
    if (!completed && n->e) {
        TRY(scope_new(r, around, &r->scope));
        TRY(exec(r, n->e));
    }
    r->scope = scope;
    return MICA_OK;
}

static mica_status exec_for(jr *r, const jnode *n) {
    jv items;
    TRY(jeval(r, n->b, &items));
    return run_loop(r, n, r->scope, items, 0);
}

mica_status jexec_loop_again(jr *r, jloop *l, jv items, jv *out) {
    jtext text = {0}, *outer = r->out;
    if (!l->node->flag)
        return jr_fail(r, "The loop must have the 'recursive' marker to be called recursively.");
    if (++r->calls > JINJA_MAX_CALLS)
        return jr_fail(r, "maximum recursion depth exceeded: %d loops in each other", JINJA_MAX_CALLS);
    r->out = &text;
    TRY(run_loop(r, l->node, l->scope, items, l->depth0 + 1));
    r->out = outer;
    r->calls--;
    return jtext_done(r, &text, out);
}

/* ---- the other statements ---- */

static mica_status exec_if(jr *r, const jnode *n) {
    jv test;
    for (size_t i = 0; i < n->n_kid; i += 2) {
        TRY(jeval(r, n->kid[i], &test));
        if (jv_truth(test)) return exec(r, n->kid[i + 1]);
    }
    return n->c ? exec(r, n->c) : MICA_OK;
}

static mica_status exec_with(jr *r, const jnode *n) {
    jscope *outer = r->scope, *inner;
    TRY(scope_new(r, outer, &inner));
    for (size_t i = 0; i < n->n_kid; i += 2) { // values see the names outside only
        jv v;
        r->scope = outer;
        TRY(jeval(r, n->kid[i + 1], &v));
        r->scope = inner;
        TRY(jassign(r, n->kid[i], v));
    }
    r->scope = inner;
    TRY(exec(r, n->d));
    r->scope = outer;
    return MICA_OK;
}

static mica_status exec_scope(jr *r, const jnode *n) {
    jscope *outer = r->scope;
    TRY(scope_new(r, outer, &r->scope));
    TRY(exec(r, n->d));
    r->scope = outer;
    return MICA_OK;
}

static mica_status exec_print(jr *r, const jnode *n) {
    jv v;
    TRY(jeval(r, n->a, &v));
    r->line = n->line;
    return jprint_str(r, r->out, v);
}

static mica_status exec_body(jr *r, const jnode *n) {
    for (size_t i = 0; i < n->n_kid && r->flow == JFLOW_ON; i++) TRY(exec(r, n->kid[i]));
    return MICA_OK;
}

static mica_status exec_kind(jr *r, const jnode *n) {
    switch (n->kind) {
    case JN_DATA: return jtext_str(r, r->out, n->val.s);
    case JN_PRINT: return exec_print(r, n);
    case JN_SET: return exec_set(r, n);
    case JN_SET_BLOCK: return exec_set_block(r, n);
    case JN_IF: return exec_if(r, n);
    case JN_FOR: return exec_for(r, n);
    case JN_MACRO: return exec_macro_def(r, n);
    case JN_CALLBLOCK: return exec_call_block(r, n);
    case JN_FILTERBLOCK: return exec_filter_block(r, n);
    case JN_WITH: return exec_with(r, n);
    case JN_SCOPE: return exec_scope(r, n);
    case JN_BREAK: r->flow = JFLOW_BREAK; return MICA_OK;
    case JN_CONTINUE: r->flow = JFLOW_CONTINUE; return MICA_OK;
    case JN_BODY: return exec_body(r, n);
    default:
        return fail(r->err, MICA_E_INTERNAL, "chat template: line %d: a node of kind %d is no statement",
                    n->line, n->kind);
    }
}

static mica_status exec(jr *r, const jnode *n) {
    r->line = n->line;
    TRY(jr_enter(r));
    TRY(exec_kind(r, n));
    r->depth--;
    return MICA_OK;
}

/* ---- a render ---- */

static bool is_trusted(const jr *r, slice name) {
    for (size_t i = 0; r->opt && i < r->opt->n_trusted; i++)
        if (slice_is(name, r->opt->trusted[i])) return true;
    return false;
}

/* Every name of the template gets its value from the context, or the builtin of that name. */
static mica_status bind_globals(jr *r, const json_t *context) {
    char key[256];
    r->global = jr_take(r, r->t->n_name * sizeof *r->global);
    if (!r->global) return jr_nomem(r);
    for (size_t i = 0; i < r->t->n_name; i++) {
        slice name = r->t->name[i];
        const json_t *value = NULL;
        if (name.n < sizeof key) {
            memcpy(key, name.p, name.n);
            key[name.n] = 0;
            value = json_object_get(context, key);
        }
        if (value) {
            TRY(jv_of_json(r, value, !is_trusted(r, name), false, &r->global[i]));
            continue;
        }
        const jbuiltin *fn = jglobal_find(name);
        if (fn) r->global[i] = (jv){.kind = JV_FUNC, .fn = fn};
    }
    return MICA_OK;
}

static bool mark_at(const jtext *t, size_t i) {
    return t->mark ? t->mark[i] : t->user;
}

/* Calls for each run of equal marks: counts them, or writes them when span is there. */
static size_t spans_of(const jtext *t, text_span *span) {
    size_t n = 0;
    for (size_t i = 0, end; i < t->n; i = end) {
        bool user = mark_at(t, i);
        end = t->n;
        if (t->mark) {
            const uint8_t *other = memchr(t->mark + i, !user, t->n - i);
            if (other) end = (size_t)(other - t->mark);
        }
        if (span) span[n] = (text_span){i, end, !user};
        n++;
    }
    return n;
}

static mica_status output_of(jr *r, const jtext *t, jinja_output *out) {
    out->n_span = spans_of(t, NULL);
    out->n = t->n;
    out->text = mem_alloc(t->n + 1);
    out->span = mem_alloc((out->n_span + 1) * sizeof *out->span);
    if (!out->text || !out->span) {
        jinja_output_fini(out);
        return fail(r->err, MICA_E_NOMEM, "chat template: %zu bytes of output: out of memory", t->n);
    }
    if (t->n) memcpy(out->text, t->p, t->n);
    out->text[t->n] = 0;
    spans_of(t, out->span);
    return MICA_OK;
}

mica_status jinja_render(jinja_output *out, const jinja_template *t, const json_t *context,
                         const jinja_options *opt, mica_error *err) {
    mica_status st;
    jtext text = {0};
    size_t max_bytes = opt && opt->max_memory_bytes ? opt->max_memory_bytes : JINJA_MAX_MEMORY;
    jr r = {.t = t, .opt = opt, .err = err, .out = &text, .seed = clock_ns(), .arena.limit_bytes = max_bytes};
    r.max_steps = opt && opt->max_steps ? opt->max_steps : JINJA_MAX_STEPS;
    *out = (jinja_output){0};
    // numbers and dates are printed as in the C locale, whatever the program around has set
    locale_t c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (c_locale == (locale_t)0) return fail(err, MICA_E_NOMEM, "chat template: the C locale: out of memory");
    locale_t before = uselocale(c_locale);
    TRY_GOTO(bind_globals(&r, context), done);
    TRY_GOTO(scope_new(&r, NULL, &r.scope), done);
    TRY_GOTO(exec(&r, t->body), done);
    TRY_GOTO(output_of(&r, &text, out), done);
done:
    uselocale(before);
    freelocale(c_locale);
    jarena_fini(&r.arena);
    return st;
}

void jinja_output_fini(jinja_output *o) {
    mem_free(o->text);
    mem_free(o->span);
    *o = (jinja_output){0};
}
