/* Regular expressions of `pattern` and of formats: what ECMA 262 and a grammar have in common.
 *
 * Characters, classes, \d \w \s and their opposites, escapes, groups, alternation, counts; anchors at the
 * ends of the whole or of its alternatives. Without an anchor anything may stand on that side. What a grammar
 * cannot do (looking ahead and behind, back references, word boundaries, Unicode properties) is told by name.
 *
 * Texts come out as the inside of a JSON string: quotes, backslashes and control characters escaped, every
 * other character as itself. */
#include "text/schema_int.h"

#include "base/mem.h"

enum { MAX_RANGES = 1024, MAX_GROUPS = 100, MAX_COUNT = 10000, LAST = 0x10FFFF };

typedef struct regex {
    gram *g;
    slice s;
    size_t at;
    int depth;
    const char *why; // what cannot be done; NULL so far
} regex;

typedef struct cset {
    gram_range r[MAX_RANGES + 1];
    size_t n;
} cset;

static bool refuse(regex *x, const char *why) {
    if (!x->why) x->why = why;
    return false;
}

static bool more(const regex *x) {
    return x->at < x->s.n;
}

static char peek(const regex *x) {
    return more(x) ? x->s.p[x->at] : '\0';
}

static bool take(regex *x, const char *word) {
    if (!slice_starts((slice){x->s.p + x->at, x->s.n - x->at}, slice_of(word))) return false;
    x->at += strlen(word);
    return true;
}

static bool add(regex *x, cset *c, uint32_t lo, uint32_t hi) {
    if (c->n == MAX_RANGES) return refuse(x, "too many ranges in a class");
    c->r[c->n++] = (gram_range){lo, hi};
    return true;
}

/* ---- characters as JSON writes them ---- */

/* The parts of the ranges inside [lo, hi]. */
static size_t clip(gram_range *out, const gram_range *r, size_t n, uint32_t lo, uint32_t hi) {
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        const uint32_t a = r[i].lo > lo ? r[i].lo : lo, z = r[i].hi < hi ? r[i].hi : hi;
        if (a <= z) out[k++] = (gram_range){a, z};
    }
    return k;
}

static bool has(const gram_range *r, size_t n, uint32_t cp) {
    for (size_t i = 0; i < n; i++)
        if (r[i].lo <= cp && cp <= r[i].hi) return true;
    return false;
}

gram_expr schema_char(gram *g, const gram_range *r, size_t n) {
    static const struct {
        uint32_t cp;
        const char *text;
    } escape[] = {{'"', "\\\""}, {'\\', "\\\\"}, {'\b', "\\b"}, {'\f', "\\f"},
                  {'\n', "\\n"}, {'\r', "\\r"},  {'\t', "\\t"}};
    static const uint32_t plain[][2] = {{0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0xD7FF}, {0xE000, LAST}};
    uint32_t n_alt = 0;
    gram_range *part = mem_alloc((4 * n + 1) * sizeof *part);
    size_t k = 0;
    if (!part) return gram_fail(g, MICA_E_NOMEM, "schema: out of memory"), GRAM_NONE;
    for (size_t i = 0; i < 4; i++) k += clip(part + k, r, n, plain[i][0], plain[i][1]);
    if (k) {
        gram_push(g, gram_class_of(g, part, k, false));
        n_alt++;
    }
    for (size_t i = 0; i < sizeof escape / sizeof *escape; i++) {
        if (!has(r, n, escape[i].cp)) continue;
        gram_push(g, schema_lit(g, escape[i].text));
        n_alt++;
    }
    for (uint32_t cp = 1; cp < 0x20; cp++) { // the other control characters; U+0000 is left out
        char text[8];
        if (cp == '\b' || cp == '\f' || cp == '\n' || cp == '\r' || cp == '\t' || !has(r, n, cp)) continue;
        snprintf(text, sizeof text, "\\u%04x", cp);
        gram_push(g, schema_lit(g, text));
        n_alt++;
    }
    mem_free(part);
    return n_alt ? gram_alt(g, n_alt) : GRAM_NONE;
}

/* The class, complemented when asked. */
static bool class_expr(regex *x, cset *c, bool negated, gram_expr *out) {
    gram_range *r = mem_alloc((c->n + 2) * sizeof *r);
    if (!r) return gram_fail(x->g, MICA_E_NOMEM, "schema: out of memory"), false;
    const size_t n = gram_ranges_normal(r, c->r, c->n, negated);
    *out = schema_char(x->g, r, n);
    mem_free(r);
    return *out != GRAM_NONE || refuse(x, "a class of no character");
}

/* ---- escapes ---- */

static const gram_range DIGIT[] = {{'0', '9'}};
static const gram_range WORD[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
/* What all call white space; and what ECMA 262 or Python's `re` does, so that \S is none for either. */
static const gram_range SPACE[] = {{'\t', '\r'},     {' ', ' '},       {0xA0, 0xA0},
                                   {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029},
                                   {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}};
static const gram_range NO_SPACE[] = {{0, 8},           {0xE, 0x1B},      {0x21, 0x84},     {0x86, 0x9F},
                                      {0xA1, 0x167F},   {0x1681, 0x1FFF}, {0x200B, 0x2027}, {0x202A, 0x202E},
                                      {0x2030, 0x205E}, {0x2060, 0x2FFF}, {0x3001, 0xFEFE}, {0xFF00, LAST}};
static const gram_range NO_DIGIT[] = {{0, '0' - 1}, {'9' + 1, LAST}};
static const gram_range NO_WORD[] = {
    {0, '0' - 1}, {'9' + 1, 'A' - 1}, {'Z' + 1, '_' - 1}, {'_' + 1, 'a' - 1}, {'z' + 1, LAST}};

static const struct {
    char name;
    const gram_range *r;
    size_t n;
} NAMED[] = {{'d', DIGIT, 1},
             {'D', NO_DIGIT, 2},
             {'w', WORD, 4},
             {'W', NO_WORD, 5},
             {'s', SPACE, sizeof SPACE / sizeof *SPACE},
             {'S', NO_SPACE, sizeof NO_SPACE / sizeof *NO_SPACE}};

/* \d and its like into the class: true when c is one. */
static bool add_named(regex *x, cset *c, char name) {
    for (size_t i = 0; i < sizeof NAMED / sizeof *NAMED; i++) {
        if (NAMED[i].name != name) continue;
        for (size_t k = 0; k < NAMED[i].n; k++) add(x, c, NAMED[i].r[k].lo, NAMED[i].r[k].hi);
        return true;
    }
    return false;
}

static bool hex(regex *x, int n, uint32_t *cp) {
    *cp = 0;
    for (int i = 0; i < n; i++, x->at++) {
        const char c = peek(x);
        const char *digits = "0123456789abcdefABCDEF", *d = c ? strchr(digits, c) : NULL;
        if (!d) return refuse(x, "an escape without its hexadecimal digits");
        const uint32_t v = (uint32_t)(d - digits);
        *cp = *cp * 16 + (v < 16 ? v : v - 6);
    }
    return true;
}

/* One escaped character, the backslash taken. */
static bool escaped_char(regex *x, uint32_t *cp) {
    static const char from[] = "tnrfv0", to[] = "\t\n\r\f\v";
    const char c = peek(x);
    const char *p = c ? strchr(from, c) : NULL;
    if (c >= '1' && c <= '9') return refuse(x, "a back reference");
    if (c == 'b' || c == 'B') return refuse(x, "a word boundary");
    if (c == 'p' || c == 'P') return refuse(x, "a Unicode property");
    if (c == 'k') return refuse(x, "a back reference");
    if ((unsigned char)c >= 0x80 || !c) return refuse(x, "a backslash before no escape");
    x->at++;
    if (c == 'x') return hex(x, 2, cp);
    if (c == 'u') return hex(x, 4, cp);
    if (c == 'c') return refuse(x, "a control escape");
    *cp = p ? (uint32_t)to[p - from] : (uint32_t)c; // others are themselves: \. \/ \- and so on
    return true;
}

static bool plain_char(regex *x, uint32_t *cp) {
    const int len = utf8_len(x->s.p + x->at, x->s.n - x->at);
    if (len <= 0) return refuse(x, "no UTF-8");
    *cp = utf8_get(x->s.p + x->at, len);
    x->at += (size_t)len;
    return true;
}

/* ---- classes ---- */

/* A character of a class, or a whole set of it (*set). */
static bool class_atom(regex *x, cset *c, uint32_t *cp, bool *set) {
    *set = false;
    if (!more(x)) return refuse(x, "']' is missing");
    if (!take(x, "\\")) return plain_char(x, cp);
    if (take(x, "b")) {
        *cp = '\b';
        return true;
    }
    if (more(x) && add_named(x, c, peek(x))) {
        x->at++;
        *set = true;
        return !x->why;
    }
    return escaped_char(x, cp);
}

static bool read_class(regex *x, gram_expr *out) {
    cset *c = mem_calloc(1, sizeof *c);
    if (!c) return gram_fail(x->g, MICA_E_NOMEM, "schema: out of memory"), false;
    const bool negated = take(x, "^");
    while (!x->why && peek(x) != ']') {
        uint32_t lo = 0, hi;
        bool set, set_behind = false;
        if (!class_atom(x, c, &lo, &set)) break;
        hi = lo;
        const bool range = peek(x) == '-' && x->at + 1 < x->s.n && x->s.p[x->at + 1] != ']';
        if (range && !set) {
            x->at++;
            if (!class_atom(x, c, &hi, &set_behind)) break;
            if (set_behind) { // [a-\d] is a, - and digits
                add(x, c, '-', '-');
                hi = lo;
            }
        }
        if (lo > hi) refuse(x, "a range that runs backwards");
        if (!set) add(x, c, lo, hi);
    }
    x->at++;
    const bool good =
        !x->why && (c->n > 0 || negated || refuse(x, "an empty class")) && class_expr(x, c, negated, out);
    mem_free(c);
    return good;
}

/* ---- structure ---- */

static bool read_alternation(regex *x, bool top, gram_expr *out);

static bool read_group(regex *x, gram_expr *out) {
    if (take(x, "?=") || take(x, "?!")) return refuse(x, "looking ahead");
    if (take(x, "?<=") || take(x, "?<!")) return refuse(x, "looking behind");
    if (take(x, "?<")) {
        while (more(x) && peek(x) != '>') x->at++;
        if (!take(x, ">")) return refuse(x, "a group's name without its end");
    } else if (take(x, "?") && !take(x, ":")) {
        return refuse(x, "a group of an unknown kind");
    }
    if (++x->depth > MAX_GROUPS) return refuse(x, "groups nested too deep");
    if (!read_alternation(x, false, out)) return false;
    x->depth--;
    return take(x, ")") || refuse(x, "')' is missing");
}

static bool any_char(regex *x, bool newlines, gram_expr *out) {
    cset *c = mem_calloc(1, sizeof *c);
    if (!c) return gram_fail(x->g, MICA_E_NOMEM, "schema: out of memory"), false;
    if (!newlines) {
        add(x, c, '\n', '\n');
        add(x, c, '\r', '\r');
        add(x, c, 0x2028, 0x2029);
    }
    const bool good = class_expr(x, c, true, out);
    mem_free(c);
    return good;
}

static bool read_atom(regex *x, gram_expr *out) {
    uint32_t cp;
    if (take(x, "(")) return read_group(x, out);
    if (take(x, "[")) return read_class(x, out);
    if (take(x, ".")) return any_char(x, false, out);
    if (peek(x) == '^' || peek(x) == '$') return refuse(x, "an anchor inside");
    if (peek(x) == '*' || peek(x) == '+' || peek(x) == '?') return refuse(x, "a count of nothing");
    if (!take(x, "\\")) {
        if (!plain_char(x, &cp)) return false;
    } else {
        cset *c = mem_calloc(1, sizeof *c);
        if (!c) return gram_fail(x->g, MICA_E_NOMEM, "schema: out of memory"), false;
        const bool set = more(x) && add_named(x, c, peek(x));
        const bool good = set && class_expr(x, c, false, out);
        mem_free(c);
        if (set) x->at++;
        if (set) return good;
        if (!escaped_char(x, &cp)) return false;
    }
    *out = schema_char(x->g, &(gram_range){cp, cp}, 1);
    return *out != GRAM_NONE || refuse(x, "a character that JSON text cannot hold");
}

static bool read_number(regex *x, uint32_t *out) {
    const size_t begin = x->at;
    for (*out = 0; peek(x) >= '0' && peek(x) <= '9'; x->at++) {
        *out = *out * 10 + (uint32_t)(peek(x) - '0');
        if (*out > MAX_COUNT) return refuse(x, "a count over 10000");
    }
    return x->at > begin;
}

/* *, +, ?, {m}, {m,}, {m,n}; a '{' that begins no count is a character. */
static bool read_count(regex *x, uint32_t *lo, uint32_t *hi, bool *found) {
    const size_t begin = x->at;
    *found = true;
    if (take(x, "*")) return *lo = 0, *hi = GRAM_NONE, true;
    if (take(x, "+")) return *lo = 1, *hi = GRAM_NONE, true;
    if (take(x, "?")) return *lo = 0, *hi = 1, true;
    if (take(x, "{") && read_number(x, lo)) {
        *hi = *lo;
        if (take(x, ",") && !read_number(x, hi)) *hi = GRAM_NONE;
        if (!x->why && take(x, "}")) return *lo <= *hi || refuse(x, "a count that runs backwards");
    }
    x->at = begin;
    *found = false;
    return !x->why;
}

static bool nullable(const gram *g, gram_expr e) {
    const gram_node *n = &g->node[e];
    bool all = true, any = false;
    for (uint32_t i = 0; (n->kind == GRAM_SEQ || n->kind == GRAM_ALT) && i < n->b; i++) {
        const bool one = nullable(g, g->kid[n->a + i]);
        all = all && one;
        any = any || one;
    }
    return n->kind == GRAM_SEQ      ? all
           : n->kind == GRAM_ALT    ? any
           : n->kind == GRAM_REPEAT ? n->lo == 0 || nullable(g, n->a)
                                    : n->kind == GRAM_BYTES && n->b == 0;
}

static bool read_piece(regex *x, gram_expr *out) {
    uint32_t lo, hi;
    bool found;
    if (!read_atom(x, out)) return false;
    if (x->g->st != MICA_OK) return false;
    if (!read_count(x, &lo, &hi, &found)) return false;
    if (!found) return true;
    take(x, "?"); // lazy or not, the texts are the same
    if (hi == GRAM_NONE && nullable(x->g, *out)) return refuse(x, "endless repetition of what may be empty");
    *out = gram_repeat(x->g, *out, lo, hi);
    return x->g->st == MICA_OK;
}

static bool read_sequence(regex *x, bool top, gram_expr *out) {
    uint32_t n = 0;
    gram_expr e;
    if (!(top && take(x, "^")) && top) {
        if (!any_char(x, true, &e)) return false;
        gram_push(x->g, gram_repeat(x->g, e, 0, GRAM_NONE));
        n++;
    }
    while (more(x) && peek(x) != '|' && peek(x) != ')') {
        const char behind = x->at + 1 < x->s.n ? x->s.p[x->at + 1] : '|';
        if (top && peek(x) == '$' && behind == '|') {
            x->at++;
            *out = gram_seq(x->g, n);
            return true;
        }
        if (!read_piece(x, &e)) return false;
        gram_push(x->g, e);
        n++;
    }
    if (top) {
        if (!any_char(x, true, &e)) return false;
        gram_push(x->g, gram_repeat(x->g, e, 0, GRAM_NONE));
        n++;
    }
    *out = gram_seq(x->g, n);
    return x->g->st == MICA_OK;
}

static bool read_alternation(regex *x, bool top, gram_expr *out) {
    uint32_t n = 0;
    do {
        if (!read_sequence(x, top, out)) return false;
        gram_push(x->g, *out);
        n++;
    } while (take(x, "|"));
    *out = gram_alt(x->g, n);
    return x->g->st == MICA_OK;
}

bool schema_regex(gram *g, slice pattern, gram_expr *out, const char **why) {
    regex x = {.g = g, .s = pattern};
    const uint32_t n_pile = g->n_pile;
    bool good = read_alternation(&x, true, out);
    if (good && x.at < pattern.n) good = refuse(&x, "')' without its beginning");
    if (!good) g->n_pile = n_pile; // operands of what was given up
    *why = x.why;
    return good;
}
