/* Objects and arrays.
 *
 * Members come in the order of `properties`: what follows the i-th is a rule of its own, which calls the next
 * as its last thing, so that a hundred optional members cost a hundred rules and no nesting. */
#include "text/schema_int.h"

#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

gram_expr schema_space(gram *g) {
    if (g->gemma) return gram_seq(g, 0);
    const uint32_t rule = gram_rule_named(g, SLICE_LIT("space"));
    if (g->st == MICA_OK && g->rule[rule].body == GRAM_NONE) {
        static const gram_range blank[] = {{' ', ' '}, {'\t', '\t'}};
        gram_push(g, schema_lit(g, " "));
        gram_push(g, schema_lit(g, "\n"));
        gram_push(g, gram_repeat(g, gram_class_of(g, blank, 2, false), 0, 20));
        gram_push(g, gram_seq(g, 2));
        gram_define(g, rule, gram_repeat(g, gram_alt(g, 2), 0, 1));
    }
    return gram_call(g, rule);
}

static gram_expr empty(gram *g) {
    return gram_seq(g, 0);
}

static gram_expr two(gram *g, gram_expr a, gram_expr b) {
    gram_push(g, a);
    gram_push(g, b);
    return gram_seq(g, 2);
}

static gram_expr comma(gram *g) {
    return two(g, schema_lit(g, ","), schema_space(g));
}

static gram_expr colon(gram *g) {
    return two(g, schema_lit(g, ":"), schema_space(g));
}

/* open, body, close, with space where it may be; an empty body has one space at most. */
static gram_expr enclosed(gram *g, const char *open, gram_expr body, const char *close) {
    gram_push(g, schema_lit(g, open));
    gram_push(g, schema_space(g));
    gram_push(g, body);
    gram_push(g, schema_lit(g, close));
    return gram_seq(g, 4);
}

/* ---- keys ---- */

/* A declared key: as JSON has it; for Gemma bare where that can be told from what is around it. */
static gram_expr key_expr(gram *g, const char *key) {
    json_t *name = json_string(key);
    gram_expr e = 0;
    if (!name)
        gram_fail(g, MICA_E_NOMEM, "schema: out of memory");
    else if (g->gemma && key[0] && !strpbrk(key, ":,{}[]<\"\n\t\r "))
        e = schema_lit(g, key);
    else
        e = schema_text(g, name);
    json_decref(name);
    return e;
}

typedef struct word {
    const uint32_t *cp; // of the key
    size_t n;
} word;

static gram_expr key_char(gram *g, const gram_range *out, size_t n) {
    gram_range r[512];
    gram_range copy[256];
    memcpy(copy, out, n * sizeof *copy);
    const size_t k = gram_ranges_normal(r, copy, n, true);
    return schema_char(g, r, k);
}

/* Anything, and the quote, in one rule for all keys. The end of the key is a part of its rules: were it
 * outside, every character could be the last of a rule, and nothing could be learned of keys by themselves
 * (grammar_mask.c). */
static gram_expr key_rest(gram *g) {
    static const gram_range none[] = {{0, 0}};
    const uint32_t rule = gram_rule_named(g, SLICE_LIT("the rest of a key"));
    if (g->st == MICA_OK && g->rule[rule].body == GRAM_NONE)
        gram_define(g, rule, two(g, gram_repeat(g, key_char(g, none, 1), 0, GRAM_NONE), schema_lit(g, "\"")));
    return gram_call(g, rule);
}

enum { MAX_BRANCH = 255 };

/* Words w[first .. first + n) share their first `at` characters: a rule for what is none of them from there.
 */
typedef struct point {
    uint32_t rule;
    size_t first, n, at;
} point;

typedef struct key_tree {
    const word *w; // sorted
    point *todo;   // owned: points whose rules have no body so far
    uint32_t n_todo, cap_todo;
} key_tree;

static int by_characters(const void *a, const void *b) {
    const word *x = a, *y = b;
    for (size_t i = 0; i < x->n && i < y->n; i++)
        if (x->cp[i] != y->cp[i]) return x->cp[i] < y->cp[i] ? -1 : 1;
    return (x->n > y->n) - (x->n < y->n);
}

static gram_expr point_new(gram *g, key_tree *t, size_t first, size_t n, size_t at) {
    const uint32_t rule = gram_rule_new(g);
    if (gram_grow(g, &t->todo, &t->cap_todo, t->n_todo + 1u, sizeof *t->todo))
        t->todo[t->n_todo++] = (point){rule, first, n, at};
    return gram_call(g, rule);
}

static void point_define(gram *g, key_tree *t, point p) {
    gram_range next[MAX_BRANCH + 1] = {{0, 0}}; // no NUL in keys
    size_t n_next = 1, k;
    uint32_t n_alt = 1;
    const size_t end = p.first + p.n;
    const bool is_word = p.first < end && t->w[p.first].n == p.at; // the shortest comes first
    for (size_t i = p.first + is_word; i < end; i = k) {
        const uint32_t cp = t->w[i].cp[p.at];
        for (k = i + 1; k < end && t->w[k].cp[p.at] == cp;) k++;
        if (n_next > MAX_BRANCH) { // a key list of that many beginnings: none of them is looked at further
            gram_fail(g, MICA_E_ARG, "schema: more than %d beginnings of keys", MAX_BRANCH);
            return;
        }
        next[n_next++] = (gram_range){cp, cp};
        gram_push(g, two(g, schema_char(g, &next[n_next - 1], 1), point_new(g, t, i, k - i, p.at + 1)));
        n_alt++;
    }
    gram_push(g, two(g, key_char(g, next, n_next), key_rest(g)));
    if (!is_word) {
        gram_push(g, schema_lit(g, "\""));
        n_alt++;
    }
    gram_define(g, p.rule, gram_alt(g, n_alt));
}

/* What is none of the words; sorts them. A rule for each of their beginnings, made one after the other: keys
 * may be long, and nothing here nests. */
static gram_expr other_than(gram *g, word *w, size_t n) {
    key_tree t = {.w = w};
    qsort(w, n, sizeof *w, by_characters);
    const gram_expr e = point_new(g, &t, 0, n, 0);
    while (t.n_todo && g->st == MICA_OK) {
        const point p = t.todo[--t.n_todo];
        point_define(g, &t, p);
    }
    mem_free(t.todo);
    return e;
}

static size_t decode(uint32_t *cp, const char *text) {
    size_t n = 0;
    for (size_t left = strlen(text); left;) {
        const int len = utf8_len(text, left);
        cp[n++] = utf8_get(text, len);
        text += len;
        left -= (size_t)len;
    }
    return n;
}

static gram_expr word_char(gram *g) {
    static const gram_range r[] = {{'0', '9'}, {'A', 'Z'}, {'a', 'z'}, {'_', '_'}};
    return gram_class_of(g, r, 4, false);
}

/* Any key that is none of the declared ones (for Gemma: any word). */
static gram_expr other_key(gram *g, const json_t *properties) {
    const size_t n = json_object_size(properties);
    size_t n_cp = 0, k = 0;
    const char *key;
    json_t *unused;
    json_object_foreach((json_t *)properties, key, unused) n_cp += strlen(key);
    word *w = mem_alloc((n + 1) * sizeof *w);
    uint32_t *cp = mem_alloc((n_cp + 1) * sizeof *cp), *at = cp;
    gram_expr e = 0;
    if (!w || !cp) gram_fail(g, MICA_E_NOMEM, "schema: out of memory");
    if (g->st == MICA_OK && g->gemma) {
        e = gram_repeat(g, word_char(g), 1, 64);
    } else if (g->st == MICA_OK) {
        json_object_foreach((json_t *)properties, key, unused) {
            w[k] = (word){at, decode(at, key)};
            at += w[k++].n;
        }
        e = two(g, schema_lit(g, "\""), other_than(g, w, n));
    }
    mem_free(w);
    mem_free(cp);
    return e;
}

/* ---- members ---- */

static gram_expr member(gram *g, gram_expr key, gram_expr value) {
    gram_push(g, key);
    gram_push(g, colon(g));
    gram_push(g, value);
    return gram_seq(g, 3);
}

typedef struct members {
    size_t n;
    gram_expr *one;    // owned, [n]: a rule's call, so that it may stand in several places
    bool *required;    // owned, [n]
    gram_expr other;   // a member of another name; GRAM_NONE: there are none
    gram_expr *behind; // owned, [n + 1]: all that may follow the i first ones, a comma before each
} members;

static gram_expr as_rule(gram *g, gram_expr body) {
    const uint32_t rule = gram_rule_new(g);
    gram_define(g, rule, body);
    return gram_call(g, rule);
}

static bool is_required(const json_t *list, const char *key) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        if (name && strcmp(name, key) == 0) return true;
    }
    return false;
}

/* Names that are required and declared nowhere. */
static void check_required(schema *s, const json_t *j) {
    const json_t *list = json_object_get(j, "required"), *properties = json_object_get(j, "properties");
    if (list && !json_is_array(list) && !json_is_boolean(list)) schema_refuse(s, "required", "is no list");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        if (!name)
            schema_refuse(s, "required", "has what is no name");
        else if (!json_object_get(properties, name))
            schema_unsupported(s, "required without its property");
    }
}

static void read_members(schema *s, members *m, const json_t *j) {
    const json_t *properties = json_object_get(j, "properties"), *list = json_object_get(j, "required");
    const char *key;
    json_t *value;
    size_t k = 0;
    const size_t mark = schema_enter(s, "properties");
    json_object_foreach((json_t *)properties, key, value) {
        const bool required = is_required(list, key);
        if (json_is_false(value) && !required) continue;
        const gram_expr name_expr = key_expr(s->g, key);
        const size_t inner = schema_enter(s, key);
        m->one[k] = as_rule(s->g, member(s->g, name_expr, schema_expr(s, value)));
        m->required[k++] = required;
        schema_leave(s, inner);
    }
    m->n = k;
    schema_leave(s, mark);
}

static void read_others(schema *s, members *m, const json_t *j) {
    const json_t *properties = json_object_get(j, "properties"),
                 *others = json_object_get(j, "additionalProperties");
    const bool any = !properties && !others;
    m->other = GRAM_NONE;
    if (others && !json_is_boolean(others) && !json_is_object(others))
        schema_refuse(s, "additionalProperties", "is no schema");
    if (!any && !json_is_true(others) && !json_is_object(others)) return;
    const size_t mark = schema_enter(s, "additionalProperties");
    const gram_expr value = json_is_object(others) ? schema_expr(s, others) : schema_value(s->g);
    m->other = as_rule(s->g, member(s->g, other_key(s->g, properties), value));
    schema_leave(s, mark);
}

/* From the end: behind the last come others; behind the i-th comes the next, or what is behind that. */
static void link_members(schema *s, members *m) {
    gram *g = s->g;
    m->behind[m->n] = m->other == GRAM_NONE
                          ? empty(g)
                          : as_rule(g, gram_repeat(g, two(g, comma(g), m->other), 0, GRAM_NONE));
    for (size_t i = m->n; i-- > 0;) {
        const gram_expr next = two(g, comma(g), m->one[i]);
        m->behind[i] =
            as_rule(g, two(g, m->required[i] ? next : gram_repeat(g, next, 0, 1), m->behind[i + 1]));
    }
}

/* The first member is any up to the first required one. */
static gram_expr first_member(schema *s, const members *m) {
    gram *g = s->g;
    uint32_t n_alt = 0;
    size_t i = 0;
    for (; i < m->n; i++) {
        gram_push(g, two(g, m->one[i], m->behind[i + 1]));
        n_alt++;
        if (m->required[i]) break;
    }
    if (i == m->n && m->other != GRAM_NONE) {
        gram_push(g, two(g, m->other, m->behind[m->n]));
        n_alt++;
    }
    if (n_alt == 0) return empty(g);
    const gram_expr all = two(g, gram_alt(g, n_alt), schema_space(g));
    return i < m->n ? all : gram_repeat(g, all, 0, 1);
}

gram_expr schema_object(schema *s, const json_t *j) {
    const json_t *properties = json_object_get(j, "properties");
    const size_t n = json_object_size(properties);
    members m = {0};
    gram_expr e = 0;
    if (properties && !json_is_object(properties)) schema_refuse(s, "properties", "is no object");
    check_required(s, j);
    m.one = mem_calloc(n + 1, sizeof *m.one);
    m.required = mem_calloc(n + 1, sizeof *m.required);
    m.behind = mem_calloc(n + 1, sizeof *m.behind);
    if (!m.one || !m.required || !m.behind) gram_fail(s->g, MICA_E_NOMEM, "schema: out of memory");
    if (s->g->st == MICA_OK) {
        read_members(s, &m, j);
        read_others(s, &m, j);
        if (s->g->st == MICA_OK) link_members(s, &m);
        if (s->g->st == MICA_OK) e = as_rule(s->g, enclosed(s->g, "{", first_member(s, &m), "}"));
    }
    mem_free(m.one);
    mem_free(m.required);
    mem_free(m.behind);
    return e;
}

/* ---- arrays ---- */

static bool read_count(schema *s, const json_t *j, const char *key, uint32_t *out) {
    const json_t *v = json_object_get(j, key);
    const double d = json_number_value(v);
    if (!v) return true;
    if (!json_is_number(v) || d < 0 || d != floor(d)) return schema_refuse(s, key, "is no count"), false;
    if (d <= GRAM_MAX_REPEAT) *out = (uint32_t)d;
    if (d > GRAM_MAX_REPEAT && *out == 0) return schema_refuse(s, key, "is more than 65536"), false;
    return true;
}

/* Items of one kind, lo to hi of them. */
static gram_expr item_list(gram *g, gram_expr item, uint32_t lo, uint32_t hi) {
    if (hi == 0) return empty(g);
    const uint32_t more_lo = lo ? lo - 1 : 0, more_hi = hi == GRAM_NONE ? hi : hi - 1;
    gram_push(g, item);
    gram_push(g, gram_repeat(g, two(g, comma(g), item), more_lo, more_hi));
    gram_push(g, schema_space(g));
    const gram_expr all = gram_seq(g, 3);
    return lo ? all : gram_repeat(g, all, 0, 1);
}

/* Items by their places, and more of one kind behind (GRAM_NONE: none). From the end: behind the i-th comes a
 * comma and the next, or the end where lo allows it. */
static gram_expr item_tuple(schema *s, const json_t *places, gram_expr more, uint32_t lo, uint32_t hi) {
    gram *g = s->g;
    const uint32_t n = (uint32_t)json_array_size(places);
    gram_expr behind = empty(g);
    if (hi < n || lo > hi || (lo > n && more == GRAM_NONE))
        return schema_refuse(s, "minItems", "and maxItems do not fit the items"), 0u;
    if (more != GRAM_NONE && hi > n)
        behind = gram_repeat(g, two(g, comma(g), more), lo > n ? lo - n : 0, hi == GRAM_NONE ? hi : hi - n);
    for (uint32_t i = n; i-- > 0 && g->st == MICA_OK;) {
        const size_t mark = schema_enter_index(s, "prefixItems", i);
        const gram_expr item = as_rule(g, schema_expr(s, json_array_get(places, i)));
        schema_leave(s, mark);
        gram_push(g, i ? comma(g) : empty(g));
        gram_push(g, item);
        gram_push(g, behind);
        if (i == 0) gram_push(g, schema_space(g));
        const gram_expr all = gram_seq(g, i == 0 ? 4 : 3);
        behind = as_rule(g, i < lo ? all : gram_repeat(g, all, 0, 1));
    }
    return behind;
}

gram_expr schema_array(schema *s, const json_t *j) {
    gram *g = s->g;
    const json_t *items = json_object_get(j, "items"), *places = json_object_get(j, "prefixItems");
    uint32_t lo = 0, hi = GRAM_NONE;
    const char *more_key = "items";
    if (!read_count(s, j, "minItems", &lo) || !read_count(s, j, "maxItems", &hi)) return 0;
    if (!places && json_is_array(items)) { // as drafts up to 7 write it
        places = items;
        items = json_object_get(j, more_key = "additionalItems");
    }
    if (places && !json_is_array(places)) return schema_refuse(s, "prefixItems", "is no list"), 0u;
    if (items && !json_is_object(items) && !json_is_boolean(items))
        return schema_refuse(s, more_key, "is no schema"), 0u;
    gram_expr item = GRAM_NONE;
    const size_t mark = schema_enter(s, more_key);
    if (json_is_object(items))
        item = as_rule(g, schema_expr(s, items));
    else if (json_is_true(items) || (!items && !places))
        item = schema_value(g);
    schema_leave(s, mark);
    if (json_array_size(places))
        return as_rule(g, enclosed(g, "[", item_tuple(s, places, item, lo, hi), "]"));
    if (item == GRAM_NONE) hi = 0;
    if (lo > hi) return schema_refuse(s, "minItems", "is more than there may be"), 0u;
    return as_rule(g, enclosed(g, "[", item_list(g, item, lo, hi), "]"));
}

/* ---- any value, one value ---- */

gram_expr schema_any_object(gram *g) {
    const uint32_t rule = gram_rule_named(g, SLICE_LIT("an object"));
    if (g->st == MICA_OK && g->rule[rule].body == GRAM_NONE) {
        gram_define(g, rule, empty(g)); // known from here on
        const gram_expr key = g->gemma ? gram_repeat(g, word_char(g), 1, 64) : schema_plain_string(g);
        const gram_expr one = member(g, key, schema_value(g));
        const gram_expr rule_of_one = as_rule(g, one);
        gram_define(g, rule, enclosed(g, "{", item_list(g, rule_of_one, 0, GRAM_NONE), "}"));
    }
    return gram_call(g, rule);
}

gram_expr schema_value(gram *g) {
    const uint32_t rule = gram_rule_named(g, SLICE_LIT("a value"));
    if (g->st == MICA_OK && g->rule[rule].body == GRAM_NONE) {
        gram_define(g, rule, empty(g));
        gram_push(g, schema_any_object(g));
        gram_push(g, as_rule(g, enclosed(g, "[", item_list(g, gram_call(g, rule), 0, GRAM_NONE), "]")));
        gram_push(g, schema_plain_string(g));
        gram_push(g, schema_plain_number(g, false));
        gram_push(g, schema_lit(g, "true"));
        gram_push(g, schema_lit(g, "false"));
        gram_push(g, schema_lit(g, "null"));
        gram_define(g, rule, gram_alt(g, 7));
    }
    return gram_call(g, rule);
}

static gram_expr const_object(schema *s, const json_t *j) {
    gram *g = s->g;
    const char *key;
    json_t *value;
    uint32_t n = 0;
    json_object_foreach((json_t *)j, key, value) {
        if (n) gram_push(g, comma(g)), n++;
        gram_push(g, member(g, key_expr(g, key), schema_const(s, value)));
        n++;
    }
    if (n) gram_push(g, schema_space(g)), n++;
    return as_rule(g, enclosed(g, "{", gram_seq(g, n), "}"));
}

static gram_expr const_array(schema *s, const json_t *j) {
    gram *g = s->g;
    uint32_t n = 0;
    for (size_t i = 0; i < json_array_size(j); i++) {
        if (n) gram_push(g, comma(g)), n++;
        gram_push(g, schema_const(s, json_array_get(j, i)));
        n++;
    }
    if (n) gram_push(g, schema_space(g)), n++;
    return as_rule(g, enclosed(g, "[", gram_seq(g, n), "]"));
}

/* The shortest decimals that read back as the same number. */
static gram_expr const_real(gram *g, const json_t *j) {
    char text[40];
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, json_real_value(j));
        if (strtod(text, NULL) == json_real_value(j)) break;
    }
    return schema_lit(g, text);
}

gram_expr schema_const(schema *s, const json_t *j) {
    if (json_is_object(j)) return const_object(s, j);
    if (json_is_array(j)) return const_array(s, j);
    if (json_is_real(j)) return const_real(s->g, j);
    return schema_text(s->g, j);
}
