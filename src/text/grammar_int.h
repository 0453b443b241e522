/* The inside of grammars: expressions (grammar_expr.c, grammar_class.c), what reads them (grammar_gbnf.c),
 * automata (grammar_compile.c, grammar_check.c), places (grammar_state.c), masks (grammar_mask.c). */
#ifndef MICA_TEXT_GRAMMAR_INT_H
#define MICA_TEXT_GRAMMAR_INT_H

#include "text/grammar.h"
#include "text/symtab.h"
#include "text/token_trie.h"

#include <pthread.h>

enum {
    GRAM_MAX_TEXT = 1 << 20, // bytes of GBNF
    GRAM_MAX_DEPTH = 200,    // groups and operators in each other
    GRAM_MAX_REPEAT = 65536, // m and n of {m,n}
    GRAM_MAX_RULES = 20000,
    GRAM_MAX_EXPR = 1 << 19,   // expressions
    GRAM_MAX_STATE = 1 << 18,  // states of all automata
    GRAM_MAX_VISIT = 1 << 22,  // expressions met while repetitions are written out: not all make states
    GRAM_MAX_RANGES = 4096,    // of one class
    GRAM_MAX_ITEMS = 8192,     // places at once
    GRAM_MAX_WORK = 32000000,  // places made and tokens met for one mask
    GRAM_MAX_BYTES = 48 << 20, // of the tables, before what nobody stands on is dropped
    GRAM_NEAR = 32,            // bytes of a token that are looked at without its surroundings
    GRAM_INLINE = 64,          // rules of at most so many states are put where they are named
};
#define GRAM_NONE UINT32_MAX

/* ---- Expressions ---- */

typedef uint32_t gram_expr; // index of a gram_node

typedef enum gram_kind {
    GRAM_BYTES,  // a, b: where in `text`, how many; none is the empty text
    GRAM_CLASS,  // a: class
    GRAM_SEQ,    // a, b: first of `kid`, how many (2 and more)
    GRAM_ALT,    // the same
    GRAM_REPEAT, // a: what; lo, hi: how often, GRAM_NONE is without end
    GRAM_RULE,   // a: rule
    GRAM_TOKEN,  // a: id
    GRAM_NOT_TOKEN,
    GRAM_UNTIL, // a, b: text; lo: what follows it; hi: GRAM_MAY_END, GRAM_CONTROLS
} gram_kind;

typedef struct gram_node {
    uint8_t kind;
    uint8_t depth;
    uint32_t a, b, lo, hi;
    uint32_t line, column;
} gram_node;

typedef struct gram_rule {
    gram_expr body;        // GRAM_NONE: named, not defined
    uint32_t line, column; // where it is defined, or first named
} gram_rule;

typedef struct gram_range {
    uint32_t lo, hi; // code points
} gram_range;

/* A class as an automaton over bytes: the edges of state s are [first[s], first[s + 1]). Shared by all its
 * uses; a place inside a class is a state of it. */
typedef struct gram_edge {
    uint8_t lo, hi;
    uint16_t to; // GRAM_DONE: the character is whole
} gram_edge;
#define GRAM_DONE UINT16_MAX

typedef struct gram_class {
    uint32_t first, n_state; // of `class_first`, which has n_state + 1 entries for it
} gram_class;

/* A grammar while it is made. Whatever fails is remembered; gram_check at the end tells. */
typedef struct gram {
    const token_trie *trie;
    const text_vocab *vocab;
    gram_node *node; // owned
    uint32_t n_node, cap_node;
    gram_expr *kid; // owned
    uint32_t n_kid, cap_kid;
    gram_expr *pile; // owned: operands not yet put together
    uint32_t n_pile, cap_pile;
    gram_rule *rule; // owned
    uint32_t n_rule, cap_rule;
    text_symtab names;   // of rules; the symbol is the rule
    text_symtab classes; // by their ranges; the symbol is the class
    gram_class *cls;     // owned
    uint32_t n_cls, cap_cls;
    uint32_t *class_first; // owned
    uint32_t n_class_first, cap_class_first;
    gram_edge *edge; // owned
    uint32_t n_edge, cap_edge;
    strbuf text;
    uint32_t line, column; // given to new expressions
    bool of_schema;        // names of rules are places in a schema, lines mean nothing
    bool gemma;     // values are written as Gemma 4 writes them: bare keys, strings in marks of its own
    mica_status st; // the first failure
    mica_error err;
} gram;

mica_status gram_init(gram *g, const text_vocab *v, const token_trie *t, mica_error *err);
void gram_fini(gram *g);
mica_status gram_fail(gram *g, mica_status st, const char *fmt, ...) MICA_PRINTF(3, 4); // the first one stays

gram_expr gram_bytes(gram *g, slice text);
gram_expr gram_class_of(gram *g, const gram_range *r, size_t n, bool negated); // sorts a copy
gram_expr gram_class_node(gram *g, uint32_t cls);
gram_expr gram_any(gram *g); // any character
gram_expr gram_repeat(gram *g, gram_expr e, uint32_t lo, uint32_t hi);
gram_expr gram_call(gram *g, uint32_t rule);
/* Sorted, without overlaps, complemented when asked. Sorts r; out has room for n + 1. */
size_t gram_ranges_normal(gram_range *out, gram_range *r, size_t n, bool negated);
/* Any text up to and with the mark, as an automaton; in its last states a character is not whole. */
enum { GRAM_UNTIL_REST = 7 };
uint32_t gram_until_class(gram *g, slice mark);
gram_expr gram_token(gram *g, int32_t id, bool negated);
/* Any text up to and with a mark, then `then`. may_end: or text without it. controls: control tokens may
 * stand in the text. */
enum { GRAM_MAY_END = 1, GRAM_CONTROLS = 2 };
gram_expr gram_until(gram *g, slice text, gram_expr then, unsigned flags);
/* What may come before `body` when an answer begins. */
gram_expr gram_after_thinking(gram *g, grammar_start start, gram_expr body);
/* Operands are pushed; then the last n become one. */
void gram_push(gram *g, gram_expr e);
gram_expr gram_seq(gram *g, uint32_t n); // of none: the empty text
gram_expr gram_alt(gram *g, uint32_t n);

uint32_t gram_rule_named(gram *g, slice name); // makes it when it is new
uint32_t gram_rule_new(gram *g);               // without a name
void gram_define(gram *g, uint32_t rule, gram_expr body);
slice gram_rule_name(const gram *g, uint32_t rule);

/* Grows an array of `size`-byte elements so that n + more fit. */
bool gram_grow(gram *g, void *array, uint32_t *cap, size_t n, size_t size);

/* A grammar out of its rules. */
mica_status gram_finish(grammar **out, gram *g, uint32_t root, mica_error *err);
/* The text of a grammar into rules; which one is the root. */
mica_status gram_read_gbnf(gram *g, slice text, uint32_t *root);

/* ---- Automata ---- */

typedef enum state_kind {
    ST_BYTE,  // a: byte, b: next
    ST_CLASS, // a: class, b: next
    ST_SPLIT, // a, b: next; GRAM_NONE is no way
    ST_CALL,  // a: rule, b: next
    ST_END,   // of its rule
    ST_TOKEN, // a: id, b: next
    ST_NOT_TOKEN,
    ST_CONTROL, // any control token but a; b: next
    ST_UNTIL,   // a: class, b: next when it is through; the state behind it leads to the other ways on
} state_kind;

typedef struct gram_state {
    uint32_t kind, a, b;
} gram_state;

/* A compiled grammar. Read-only. */
typedef struct gram_program {
    gram_state *state; // owned
    uint32_t n_state, cap_state;
    uint32_t *like; // owned, [n_state]: a state that allows the same for GRAM_NEAR bytes; often itself
    uint32_t cap_like;
    uint32_t *first;    // owned, [n_rule + 1]: the states of a rule are a run
    uint32_t *start;    // owned, [n_rule]
    uint32_t *order;    // owned, [n_rule]: who may call whom without a byte between comes first
    bool *may_be_empty; // owned, [n_rule]
    uint32_t *name;     // owned, [n_rule]: its number among the gram's rules
    uint32_t n_rule, root;
    gram_class *cls;       // owned, all three taken from the gram
    uint32_t *class_first; //
    gram_edge *edge;       //
    uint8_t byte_class[256];
    uint8_t class_byte[256]; // one byte of each
    uint32_t n_byte_class;   // 1 .. 256
} gram_program;

/* Takes the rules that `root` needs. Refuses what cannot be, by the place of its rule. */
mica_status gram_compile(gram_program *p, gram *g, uint32_t root);
void gram_program_fini(gram_program *p);
/* Which rules may be empty, which can end, who begins with whom. */
mica_status gram_program_check(gram_program *p, gram *g);

/* ---- Places ---- */

/* A place: a state of a rule (and, inside of a class, of that), under a frame: who waits for the rule's end.
 */
typedef struct gram_item {
    uint32_t state, sub, frame;
} gram_item;

/* Where a rule's end leads. A frame is a set of links; equal sets are one frame, so that the same nesting has
 * one number however it was reached. A call that is the last thing of its rule hands on its own links, so
 * that lists written as right recursion do not pile up. */
typedef struct gram_link {
    uint32_t state, frame;
} gram_link;

typedef struct gram_frame {
    uint32_t link, n_link; // of `link`
    uint32_t hash;
} gram_frame;

enum {
    FRAME_OUT = 0,  // nobody is known to wait: its end sets PLACE_OUT
    FRAME_ROOT = 1, // the end of the whole: sets PLACE_END
    PLACE_DEAD = 0, // the empty set
    PLACE_OUT = 1,  // flags
    PLACE_END = 2,
};
#define LINK_OUT (GRAM_NONE - 1) // pseudo states of links
#define LINK_ROOT (GRAM_NONE - 2)

/* What a set of places under FRAME_OUT allows by itself. */
typedef struct gram_local {
    uint8_t *bits; // owned, as a mask
    uint32_t *out; // owned: nodes of the tree where the walk was stopped
    uint32_t n_out;
} gram_local;

/* A set of places. */
typedef struct gram_place {
    uint32_t item, n_item; // of `item`, sorted
    uint32_t hash;
    uint32_t local; // of `local`: what it allows by itself; GRAM_NONE: not kept
    uint32_t whole; // of `local`: what it allows, all in all; GRAM_NONE: not kept
    uint32_t loop;  // of `loop`: the bytes that lead back here; GRAM_NONE: not known
    uint8_t flags;
} gram_place;

/* All sets met so far. Grows; when it is over its bound, gram_table_trim keeps what somebody stands on. */
typedef struct gram_table {
    const gram_program *p;
    gram_place *place; // owned
    uint32_t n_place, cap_place;
    uint32_t *next;  // owned, [n_place, n_byte_class]: the place behind a byte; GRAM_NONE: not known yet
    gram_item *item; // owned
    uint32_t n_item, cap_item;
    gram_frame *frame; // owned
    uint32_t n_frame, cap_frame;
    gram_link *link; // owned
    uint32_t n_link, cap_link;
    uint32_t *place_slot, *frame_slot; // owned: open addressing, GRAM_NONE is free
    uint32_t place_mask, frame_mask;
    gram_local *local; // owned
    uint32_t n_local, cap_local;
    trie_set *loop; // owned
    uint32_t n_loop, cap_loop;
    size_t kept_bytes; // of locals
    // While a set is made:
    gram_item *work; // owned: all places met
    uint32_t n_work, cap_work;
    uint32_t *work_slot; // owned: by content
    uint32_t *work_stamp;
    uint32_t work_mask, stamp;
    struct gram_pending *pending; // owned: a heap of calls
    uint32_t n_pending, cap_pending;
    gram_item *out; // owned
    uint32_t n_out, cap_out;
    uint8_t flags;
    uint64_t effort; // places met since the caller set it to 0
    bool no_memory, too_many;
} gram_table;

mica_status gram_table_init(gram_table *t, const gram_program *p, mica_error *err);
void gram_table_fini(gram_table *t);
/* Ids of places. GRAM_NONE: over a bound or out of memory, the table says which. */
uint32_t gram_place_begin(gram_table *t);
uint32_t gram_place_make(gram_table *t, uint32_t place, unsigned byte_class); // gram_place_step's slow half
/* After one token: what its bytes (`text`, a place or PLACE_DEAD) and its number make of `place`. */
uint32_t gram_place_token(gram_table *t, uint32_t place, uint32_t text, int32_t id, bool is_control);
/* The places of one frame alone, under FRAME_OUT; under FRAME_ROOT, behind which nothing comes, as they are.
 */
uint32_t gram_place_local(gram_table *t, uint32_t place, uint32_t frame);
size_t gram_table_bytes(const gram_table *t);
/* Drops all but the places in keep[0..n), whose numbers it changes. */
mica_status gram_table_trim(gram_table *t, uint32_t *const *keep, uint32_t n, mica_error *err);
mica_status gram_table_failure(gram_table *t,
                               mica_error *err); // says why an id was GRAM_NONE, and forgets it

static inline uint32_t gram_place_step(gram_table *t, uint32_t place, uint8_t byte) {
    const unsigned k = t->p->byte_class[byte];
    const uint32_t next = t->next[(size_t)place * t->p->n_byte_class + k];
    return next != GRAM_NONE ? next : gram_place_make(t, place, k);
}

/* ---- Masks ---- */

typedef struct gram_walker {
    uint32_t *at;  // owned, [max_depth + 1]: the place at each depth of the walk
    uint8_t *bits; // owned, as a mask
    uint32_t *out; // owned: nodes where a local walk stopped
    uint32_t n_out, cap_out;
    uint32_t n_seen; // nodes looked at
} gram_walker;

/* What all clones of a grammar share. */
typedef struct gram_core {
    pthread_mutex_t lock;
    uint32_t n_ref; // under lock, like all below
    const text_vocab *vocab;
    const token_trie *trie; // of the vocabulary
    gram_program program;
    gram_table table;
    gram_walker walker;
    grammar *first; // all grammars on it
    uint32_t begin; // the place where answers begin
} gram_core;

struct mica_grammar {
    gram_core *core;
    grammar *before, *behind; // in the core's list
    uint32_t place;
    bool ended; // a token that ends the turn came
};

/* Fills bits for a place. GRAM_NONE inside: false, and the table says why. */
bool gram_mask_place(gram_core *c, uint32_t place, uint8_t *bits);

#endif
