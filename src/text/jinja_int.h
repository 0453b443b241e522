/* The inside of the Jinja interpreter, shared by the jinja_*.c files.
 *
 *     jinja_lex.c     source -> tokens (whitespace control happens here)
 *     jinja_parse.c   tokens -> nodes
 *     jinja_eval.c    expressions      jinja_exec.c    statements, macros, loops, jinja_render
 *     jinja_value.c   what values are: arena, truth, equality, order, hashing, iteration, arithmetic
 *     jinja_text.c    strings with provenance, growing text
 *     jinja_print.c   str(), repr(), float repr, tojson      jinja_format.c   % and str.format
 *     jinja_attr.c    a.b, a[b], slices        jinja_call.c   binding of arguments, globals, methods that are
 * not text jinja_str.c     methods of strings       jinja_filter.c jinja_seq.c filters     jinja_test.c tests
 *
 * Semantics are CPython 3.11's and jinja2 3.1.6's, held by tests/text/jinja_oracle.py. Where a function
 * mirrors one of theirs its name says which.
 *
 * Memory: one arena per template for nodes, one per render for values; nothing in them is freed before the
 * whole. Provenance: a string is all-trusted, all-user, or carries one mark byte per byte (1: user). */
#ifndef MICA_TEXT_JINJA_INT_H
#define MICA_TEXT_JINJA_INT_H

#include "text/jinja.h"

#include <locale.h>

/* ---- memory ---- */

typedef struct jarena {
    struct jchunk *chunk; // owned list, newest first
    size_t used_bytes;    // of all chunks
    size_t limit_bytes;
    bool over; // the limit was the reason of a NULL
} jarena;

void *jarena_take(jarena *a, size_t n_bytes); // zeroed, 16-aligned; NULL when over the limit or out of memory
void jarena_fini(jarena *a);

/* ---- values ---- */

typedef enum jv_kind {
    JV_MISSING, // no value given; never seen by a template
    JV_UNDEF,
    JV_NONE,
    JV_BOOL,
    JV_INT,
    JV_FLOAT,
    JV_STR,
    JV_LIST,
    JV_TUPLE,
    JV_DICT,
    JV_NS, // namespace(): the one thing a template can change
    JV_RANGE,
    JV_VIEW, // d.keys(), d.values(), d.items(); aux says which
    JV_ITER, // a generator: consumed by iteration
    JV_MACRO,
    JV_FUNC,   // a builtin of the top level
    JV_METHOD, // a builtin bound to a value
    JV_LOOP,
    JV_CYCLER,
    JV_JOINER,
} jv_kind;

typedef enum jview_kind { JVIEW_KEYS, JVIEW_VALUES, JVIEW_ITEMS } jview_kind;

typedef struct jstr {
    const char *p; // n bytes, well-formed UTF-8
    size_t n;
    const uint8_t *mark; // n bytes, 1 where the byte is the user's; NULL: `user` says it for all
    struct jtext *text;  // the growing text p lies in, when an append may continue in place; else NULL
    bool user;
    bool markup; // made by `safe` or `escape`
    bool ascii;
} jstr;

typedef struct jv {
    uint8_t kind; // jv_kind
    uint8_t aux;
    union {
        bool b;
        int64_t i;
        double f;
        const jstr *s;
        struct jlist *list; // lists and tuples
        struct jdict *dict; // dicts, namespaces, views
        struct jundef *undef;
        struct jrange *range;
        struct jiter *iter;
        struct jmacro *macro;
        const struct jbuiltin *fn;
        struct jmethod *method;
        struct jloop *loop;
        struct jcycler *cycler;
        struct jjoiner *joiner;
        void *p;
    };
} jv;

typedef struct jlist {
    jv *v;
    size_t n, cap;
} jlist;

typedef struct jentry {
    jv k, v;
} jentry;

typedef struct jdict {
    jentry *e; // in order of insertion
    size_t n, cap;
    uint32_t *index; // open addressing, entry number + 1; NULL while small
    size_t n_index;  // a power of two
} jdict;

/* Why a value is undefined: `hint`, else "obj has no attribute name", else "name is undefined". */
typedef struct jundef {
    const char *hint; // NULL, or a text that lives as long as the render
    jv obj;           // JV_MISSING: a variable
    jv name;
} jundef;

typedef struct jrange {
    int64_t start, stop, step, n;
} jrange;

typedef struct jmethod {
    jv self;
    const struct jbuiltin *fn;
} jmethod;

typedef struct jcycler {
    jlist *item;
    size_t pos;
} jcycler;

typedef struct jjoiner {
    jv sep;
    bool used;
} jjoiner;

typedef enum jiter_kind {
    JITER_EMPTY,
    JITER_LIST,
    JITER_REVERSED, // of a list
    JITER_STR,      // code points
    JITER_DICT,     // view says what
    JITER_RANGE,
    JITER_MAP,    // fn applied to src's items
    JITER_SELECT, // src's items for which a test holds
    JITER_UNIQUE
} jiter_kind;

/* A pipeline stage of map, select and their like: what to look at in an item and what to ask of it. */
typedef struct jstage {
    bool by_attr, negate;
    jv attr, fallback;         // fallback JV_MISSING: none
    const struct jbuiltin *fn; // filter or test; NULL: none
    const jv *arg;
    size_t n_arg;
    const struct jkw *kw;
    size_t n_kw;
    bool case_sensitive; // unique
    jdict *seen;         // unique
} jstage;

typedef struct jiter {
    jiter_kind kind;
    size_t pos;
    jlist *list;
    const jstr *str;
    jdict *dict;
    jview_kind view;
    jrange *range;
    struct jiter *src;
    jstage *stage;
} jiter;

/* ---- text that grows ---- */

/* Bytes being put together, with marks once both kinds of bytes are in it. */
typedef struct jtext {
    char *p;
    uint8_t *mark; // NULL while all bytes are alike
    size_t n, cap;
    bool user; // what all bytes are while mark is NULL
    bool ascii;
} jtext;

/* ---- nodes ---- */

typedef enum jn_kind {
    // expressions
    JN_CONST,
    JN_NAME,    // id
    JN_LIST,    // kid
    JN_TUPLE,   // kid
    JN_DICT,    // kid: key, value, key, value
    JN_NOT,     // a
    JN_NEG,     // a
    JN_POS,     // a
    JN_AND,     // kid
    JN_OR,      // kid
    JN_MATH,    // a op b
    JN_CONCAT,  // kid
    JN_COMPARE, // a, then ops[i] kid[i]
    JN_COND,    // a if b else c (c may be NULL)
    JN_GETATTR, // a . val (a string)
    JN_GETITEM, // a [ b ]
    JN_SLICE,   // a [ b : c : d ], each may be NULL
    JN_CALL,    // a ( args )
    JN_FILTER,  // a | fn ( args ); a NULL: the text captured by the enclosing block
    JN_TEST,    // a is fn ( args )
    JN_NSREF,   // id . val, only as a target
    // statements
    JN_DATA,        // val
    JN_PRINT,       // a
    JN_SET,         // a = b
    JN_SET_BLOCK,   // a = captured kid, through b (a chain of filters, or NULL)
    JN_IF,          // kid: test, body, test, body, ...; c: else or NULL (bodies are JN_BODY)
    JN_FOR,         // for a in b if c: d; e: else
    JN_MACRO,       // id, sig, d: body
    JN_CALLBLOCK,   // sig, a: the call, d: body
    JN_FILTERBLOCK, // a: chain of filters, d: body
    JN_WITH,        // kid: target, value, ...; d: body
    JN_SCOPE,       // d: body (generation)
    JN_BREAK,
    JN_CONTINUE,
    JN_BODY, // kid
} jn_kind;

typedef enum jop {
    JOP_ADD,
    JOP_SUB,
    JOP_MUL,
    JOP_DIV,
    JOP_FLOORDIV,
    JOP_MOD,
    JOP_POW,
    JOP_EQ,
    JOP_NE,
    JOP_LT,
    JOP_LE,
    JOP_GT,
    JOP_GE,
    JOP_IN,
    JOP_NOTIN
} jop;

typedef struct jarg_node { // a keyword argument
    jv name;               // a string
    struct jnode *value;
} jarg_node;

typedef struct jargs_node {
    struct jnode **pos;
    size_t n_pos;
    jarg_node *kw;
    size_t n_kw;
    struct jnode *star, *star2; // *args, **kwargs; may be NULL
} jargs_node;

typedef struct jsig {
    jv name;                 // a string; JV_NONE for a call block
    int *param;              // ids
    struct jnode **fallback; // one per parameter, NULL: none
    size_t n_param;
    bool use_varargs, use_kwargs, use_caller; // the body reads these names
    bool caller_param;                        // a parameter is called caller
    bool varargs_param, kwargs_param;
} jsig;

typedef struct jnode {
    uint8_t kind; // jn_kind
    uint8_t op;   // jop of JN_MATH
    bool flag;    // JN_FOR: recursive
    int line;
    int id; // interned name
    jv val;
    struct jnode *a, *b, *c, *d, *e;
    struct jnode **kid;
    size_t n_kid;
    uint8_t *ops; // jop, one per kid of JN_COMPARE
    jargs_node *args;
    jsig *sig;
    const struct jbuiltin *fn; // filter or test; NULL: not known to us
} jnode;

struct jinja_template {
    jarena arena;
    jnode *body;
    slice *name; // interned names by id
    size_t n_name;
};

/* Names every template has, so that code can say them. */
enum { JID_LOOP, JID_CALLER, JID_VARARGS, JID_KWARGS, JID_N };

/* ---- tokens ---- */

typedef enum jtok_kind {
    JT_EOF,
    JT_DATA,
    JT_BLOCK_BEGIN,
    JT_BLOCK_END,
    JT_VAR_BEGIN,
    JT_VAR_END,
    JT_NAME,
    JT_STRING,
    JT_INT,
    JT_FLOAT,
    JT_ADD,
    JT_SUB,
    JT_DIV,
    JT_FLOORDIV,
    JT_MUL,
    JT_MOD,
    JT_POW,
    JT_TILDE,
    JT_LBRACKET,
    JT_RBRACKET,
    JT_LPAREN,
    JT_RPAREN,
    JT_LBRACE,
    JT_RBRACE,
    JT_EQ,
    JT_NE,
    JT_GT,
    JT_GE,
    JT_LT,
    JT_LE,
    JT_ASSIGN,
    JT_DOT,
    JT_COLON,
    JT_PIPE,
    JT_COMMA,
    JT_SEMICOLON
} jtok_kind;

typedef struct jtok {
    jtok_kind kind;
    int line;
    slice text; // data, names, decoded strings; the spelling otherwise
    int64_t i;
    double f;
} jtok;

typedef struct jtoks {
    jtok *v; // lives in the arena
    size_t n, cap;
} jtoks;

/* ---- a render ---- */

typedef struct jkw {
    jv name; // a string
    jv value;
} jkw;

enum { JCALL_MAX_SLOT = 6 };

typedef struct jcall {
    jv *arg;
    size_t n_arg;
    jkw *kw;
    size_t n_kw;
    jv slot[JCALL_MAX_SLOT]; // by parameter of the builtin's spec; JV_MISSING: not given
} jcall;

typedef struct jr jr;
typedef mica_status (*jbuiltin_fn)(jr *r, jv self, jcall *c, jv *out);

/* A filter, test, method or global. spec names the parameters after self, separated by blanks: "sep?
 * maxsplit?". A question mark says that it may be left out, a leading "/ " that keywords are refused, NULL
 * that fn reads the raw call. fn NULL: known to jinja2, not to us. */
typedef struct jbuiltin {
    const char *name;
    jbuiltin_fn fn;
    const char *spec;
} jbuiltin;

typedef struct jvar {
    int id;
    jv v;
} jvar;

typedef struct jscope {
    struct jscope *parent;
    jvar *var;
    int n, cap;
} jscope;

typedef struct jmacro {
    const jsig *sig;
    const jnode *body;
    jscope *scope; // where it was defined
} jmacro;

typedef struct jloop {
    const jnode *node;
    jscope *scope; // around the loop, for recursion and the filter
    jiter *it;
    jv source; // what is looped over
    int64_t index0;
    int64_t length;     // -1: not known yet
    bool has_next;      // `next` holds an item taken early
    jv prev, cur, next; // JV_MISSING: none
    jv changed;         // the values of the last changed(), a tuple; JV_MISSING: none
    int depth0;
} jloop;

typedef enum jflow { JFLOW_ON, JFLOW_BREAK, JFLOW_CONTINUE } jflow;

struct jr {
    const jinja_template *t;
    const jinja_options *opt;
    mica_error *err; // may be NULL
    jarena arena;
    uint64_t steps, max_steps, seed;
    int line;  // of the node in work
    int depth; // of the C recursion
    int calls; // macros in macros
    jflow flow;
    jtext *out;
    jscope *scope;
    jv captured; // what a JN_FILTER without a left side reads
    jv *global;  // by name id: context, then builtins; JV_MISSING: neither
};

/* jinja_lex.c, jinja_parse.c */
mica_status jinja_lex(jtoks *out, jarena *a, slice source, mica_error *err);
bool jinja_is_space(unsigned cp); // str.isspace()

/* jinja_value.c */
void *jr_take(jr *r, size_t n_bytes); // zeroed; NULL: return jr_nomem(r)
mica_status jr_nomem(jr *r);
mica_status jr_fail(jr *r, const char *fmt, ...) MICA_PRINTF(2, 3);        // "chat template: line N: ..."
mica_status jr_unsupported(jr *r, const char *fmt, ...) MICA_PRINTF(2, 3); // the same, MICA_E_UNSUPPORTED
mica_status jr_charge(jr *r, size_t n); // counts the work of walking over n bytes or items
mica_status jr_enter(jr *r);            // one level deeper in C; leave by r->depth--

static inline jv jv_none(void) {
    return (jv){.kind = JV_NONE};
}
static inline jv jv_bool(bool b) {
    return (jv){.kind = JV_BOOL, .b = b};
}
static inline jv jv_int(int64_t i) {
    return (jv){.kind = JV_INT, .i = i};
}
static inline jv jv_float(double f) {
    return (jv){.kind = JV_FLOAT, .f = f};
}
static inline bool jv_is_num(jv v) {
    return v.kind == JV_INT || v.kind == JV_BOOL || v.kind == JV_FLOAT;
}
static inline bool jv_is_int(jv v) {
    return v.kind == JV_INT || v.kind == JV_BOOL;
}
static inline int64_t jv_as_int(jv v) {
    return v.kind == JV_BOOL ? v.b : v.i;
}
static inline double jv_as_float(jv v) {
    return v.kind == JV_FLOAT ? v.f : (double)jv_as_int(v);
}

const char *jv_type(jv v); // Python's name of the type: "str", "dict", "NoneType"
bool jv_truth(jv v);
mica_status jv_equal(jr *r, jv a, jv b, bool *out);
mica_status jv_less(jr *r, jv a, jv b, const char *op, bool or_equal,
                    bool *out); // a < b or a <= b; op for the message
mica_status jv_compare(jr *r, jop op, jv a, jv b, bool *out);
mica_status jv_contains(jr *r, jv item, jv in, bool *out);
mica_status jv_math(jr *r, jop op, jv a, jv b, jv *out);
mica_status jv_neg(jr *r, jv a, jv *out);
mica_status jv_length(jr *r, jv v, int64_t *out);
bool jv_same(jv a, jv b);                              // Python's `is`, where it is well defined
mica_status jv_undef(jr *r, jv *out, jv obj, jv name); // obj JV_MISSING: a variable
mica_status jv_undef_hint(jr *r, jv *out, const char *hint);
mica_status jv_undef_raise(jr *r, jv undef); // always fails

mica_status jlist_new(jr *r, jlist **out, size_t cap);
mica_status jlist_push(jr *r, jlist *l, jv v);
static inline jv jv_list(jlist *l) {
    return (jv){.kind = JV_LIST, .list = l};
}
static inline jv jv_tuple(jlist *l) {
    return (jv){.kind = JV_TUPLE, .list = l};
}
mica_status jv_pair(jr *r, jv *out, jv a, jv b);

mica_status jdict_new(jr *r, jdict **out, size_t cap);
mica_status jdict_find(jr *r, const jdict *d, jv key, jv **out); // *out NULL: not there; unhashable fails
mica_status jdict_set(jr *r, jdict *d, jv key, jv value);
bool jdict_find_text(const jdict *d, slice key, jv *out); // no hashing errors, no work counted
bool jv_hashable(jv v);

mica_status jiter_of(jr *r, jv v, jiter **out); // "'int' object is not iterable"
mica_status jiter_next(jr *r, jiter *it, jv *out, bool *more);
bool jv_iterable(jv v);
mica_status jlist_of(jr *r, jv v,
                     jlist **out); // list(v); borrows the list of a list or tuple, so never push to it
mica_status jlist_sort(jr *r, jlist *item, jlist *key, bool reverse); // stable, both permuted

/* jinja_text.c */
mica_status jstr_new(jr *r, jv *out, slice text, bool user); // borrows text
mica_status jstr_copy(jr *r, jv *out, slice text, bool user);
static inline jv jv_str(const jstr *s) {
    return (jv){.kind = JV_STR, .s = s};
}
static inline slice jstr_slice(const jstr *s) {
    return (slice){s->p, s->n};
}
static inline bool jv_is_text(jv v, const char *s) {
    return v.kind == JV_STR && slice_is(jstr_slice(v.s), s);
}
mica_status jstr_sub(jr *r, jv *out, const jstr *s, size_t begin, size_t end); // bytes
mica_status jstr_concat(jr *r, jv *out, const jstr *a, const jstr *b);
mica_status jstr_repeat(jr *r, jv *out, const jstr *s, int64_t n);
size_t jstr_n_cp(const jstr *s);
size_t jstr_at_cp(const jstr *s, size_t i_cp); // byte offset of a code point; n when past the end
unsigned jstr_cp(const jstr *s, size_t at, size_t *next);
unsigned jstr_cp_before(const jstr *s, size_t at, size_t *begin);
bool jstr_find(const jstr *s, const jstr *sub, size_t from, size_t to, size_t *at);
bool jstr_rfind(const jstr *s, const jstr *sub, size_t from, size_t to, size_t *at);
mica_status jstr_escape(jr *r, jv *out, jv v); // markupsafe.escape
mica_status jstr_soft(jr *r, jv *out, jv v);   // soft_str: strings as they are, the rest through str()

mica_status jtext_put(jr *r, jtext *t, const char *p, size_t n, bool user);
mica_status jtext_puts(jr *r, jtext *t, const char *s); // trusted
mica_status jtext_str(jr *r, jtext *t, const jstr *s);
mica_status jtext_sub(jr *r, jtext *t, const jstr *s, size_t begin, size_t end);
mica_status jtext_cp(jr *r, jtext *t, unsigned cp, bool user);
mica_status jtext_fill(jr *r, jtext *t, const jstr *fill, int64_t n); // fill n times
mica_status jtext_done(jr *r, jtext *t, jv *out); // becomes a string; t must not be written after

/* jinja_print.c */
mica_status jprint_str(jr *r, jtext *t, jv v);  // str(v)
mica_status jprint_repr(jr *r, jtext *t, jv v); // repr(v)
mica_status jv_to_str(jr *r, jv v, jv *out);
mica_status jv_to_repr(jr *r, jv v, jv *out);
int jprint_float(char out[32], double f); // Python's repr of a float; bytes written
mica_status jfilter_tojson(jr *r, jv self, jcall *c, jv *out);
mica_status jfilter_from_json(jr *r, jv self, jcall *c, jv *out);
/* copy: the texts must outlive j. */
mica_status jv_of_json(jr *r, const json_t *j, bool user, bool copy, jv *out);

/* jinja_format.c */
mica_status jformat_percent(jr *r, const jstr *fmt, jv args, jv *out);
mica_status jformat_format(jr *r, const jstr *fmt, jcall *c, jv *out);

/* jinja_attr.c */
mica_status jv_getattr(jr *r, jv obj, jv name, jv *out);
mica_status jv_getitem(jr *r, jv obj, jv key, jv *out);
mica_status jv_getslice(jr *r, jv obj, const jv bound[3], jv *out);
mica_status jattr_path(jr *r, jv item, jv path, jv fallback, jv *out); // make_attrgetter: "a.b.0"

/* jinja_call.c */
mica_status jcall_bind(jr *r, const jbuiltin *fn, jcall *c);
mica_status jcall_builtin(jr *r, const jbuiltin *fn, jv self, jcall *c, jv *out);
mica_status jcall_value(jr *r, jv fn, jcall *c, jv *out);
mica_status jcall_int(jr *r, jcall *c, int slot, int64_t fallback, int64_t *out);
bool jcall_has(const jcall *c, int slot); // given and not none
const jbuiltin *jbuiltin_find(const jbuiltin *table, size_t n, slice name);
const jbuiltin *jglobal_find(slice name);
const jbuiltin *jdict_method_find(slice name);
const jbuiltin *jlist_method_find(slice name, bool tuple);

/* jinja_str.c, jinja_filter.c, jinja_test.c */
const jbuiltin *jstr_method_find(slice name);
const jbuiltin *jfilter_find(slice name);
const jbuiltin *jtest_find(slice name);
mica_status jstr_lower(jr *r, jv *out, const jstr *s);
mica_status jstr_upper(jr *r, jv *out, const jstr *s);
mica_status jstr_capitalize(jr *r, jv *out, const jstr *s);
mica_status jstr_strip(jr *r, jv *out, const jstr *s, jv chars, bool left, bool right);
mica_status jstr_replace(jr *r, jv *out, const jstr *s, const jstr *from, const jstr *to, int64_t count);
mica_status jstr_join(jr *r, jv *out, const jstr *sep, jlist *item);
mica_status jstr_center(jr *r, jv *out, const jstr *s, int64_t width, const jstr *fill);
mica_status jstr_splitlines(jr *r, jlist **out, const jstr *s, bool keep_ends);
mica_status jstr_parse_int(const jstr *s, int base, int64_t *out); // ValueError: MICA_E_ARG without a text
bool jstr_parse_float(jr *r, const jstr *s, double *out);

/* jinja_eval.c, jinja_exec.c */
mica_status jeval(jr *r, const jnode *n, jv *out);
mica_status jeval_call_with(jr *r, const jnode *n, jv caller, jv *out); // a JN_CALL, with caller=... added
mica_status jexec_macro(jr *r, jmacro *m, jcall *c, jv *out);
mica_status jexec_loop_again(jr *r, jloop *l, jv items, jv *out); // loop(items) of a recursive loop
mica_status jloop_attr(jr *r, jloop *l, slice name, jv *out, bool *found);
mica_status jscope_set(jr *r, jscope *s, int id, jv v);
mica_status jassign(jr *r, const jnode *target, jv v);

#endif
