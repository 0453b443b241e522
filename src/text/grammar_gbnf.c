/* GBNF as llama.cpp's grammars/README.md documents it, read by recursive descent:
 *
 *     grammar   = { rule }                    rule = name "::=" alternates (newline | end)
 *     alternates = sequence { "|" sequence }  sequence = { item [ "*" | "+" | "?" | "{" m [ "," [ n ] ] "}" ]
 * } item      = "text" | [class] | . | name | ( alternates ) | <token> | <[id]> | ! before either of those
 *
 * Newlines count as blanks inside of parentheses, after "|" and after "::=". Comments go from # to the end of
 * the line. What is refused here and not there: a rule defined twice, a range that runs backwards, m above n,
 * empty classes, code points that are none. */
#include "text/grammar_int.h"

typedef struct reader {
    gram *g;
    slice s;
    size_t at;
    size_t line_at; // where the line began
    uint32_t line;
    unsigned depth;
} reader;

/* The byte at hand, 0 at the end (a NUL in the text is refused before). */
static char peek(const reader *r) {
    return r->at < r->s.n ? r->s.p[r->at] : '\0';
}

static bool failed(const reader *r) {
    return r->g->st != MICA_OK;
}

/* Says where expressions made from now on stand. */
static void mark(reader *r) {
    r->g->line = r->line;
    r->g->column = (uint32_t)(r->at - r->line_at) + 1;
}

static bool refuse(reader *r, const char *what) {
    mark(r);
    gram_fail(r->g, MICA_E_ARG, "grammar: line %u column %u: %s", r->g->line, r->g->column, what);
    return false;
}

static bool take(reader *r, char c) {
    if (peek(r) != c) return false;
    r->at++;
    return true;
}

static void skip_blanks(reader *r, bool newline_ok) {
    for (;; r->at++) {
        const char c = peek(r);
        if (c == '#') {
            while (r->at < r->s.n && peek(r) != '\n' && peek(r) != '\r') r->at++;
            r->at--;
        } else if (newline_ok && (c == '\n' || c == '\r')) {
            if (c == '\r' && r->at + 1 < r->s.n && r->s.p[r->at + 1] == '\n') r->at++;
            r->line++;
            r->line_at = r->at + 1;
        } else if (c != ' ' && c != '\t') {
            return;
        }
    }
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static bool is_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '-' || c == '_';
}

static slice read_name(reader *r) {
    const size_t begin = r->at;
    while (is_word(peek(r))) r->at++;
    return (slice){r->s.p + begin, r->at - begin};
}

static bool read_number(reader *r, uint32_t most, uint32_t *out) {
    const size_t begin = r->at;
    uint64_t n = 0;
    while (is_digit(peek(r)) && n <= most) n = n * 10 + (uint64_t)(r->s.p[r->at++] - '0');
    *out = (uint32_t)n;
    if (r->at == begin) return refuse(r, "a number is missing");
    if (n > most) return refuse(r, "the number is too large");
    return true;
}

/* ---- characters ---- */

static int hex_value(char c) {
    return is_digit(c)              ? c - '0'
           : (c >= 'a' && c <= 'f') ? c - 'a' + 10
           : (c >= 'A' && c <= 'F') ? c - 'A' + 10
                                    : -1;
}

static bool read_hex(reader *r, int n_digit, uint32_t *cp) {
    uint64_t v = 0;
    for (int i = 0; i < n_digit; i++, r->at++) {
        const int d = hex_value(peek(r));
        if (d < 0) return refuse(r, "a hexadecimal digit is missing");
        v = v * 16 + (uint64_t)d;
    }
    if (v > 0x10FFFF || (v >= 0xD800 && v <= 0xDFFF)) return refuse(r, "no code point");
    *cp = (uint32_t)v;
    return true;
}

static bool read_escape(reader *r, uint32_t *cp) {
    static const char same[] = "\\\"[]-";
    const char c = peek(r);
    r->at += c != '\0';
    switch (c) {
    case 'x': return read_hex(r, 2, cp);
    case 'u': return read_hex(r, 4, cp);
    case 'U': return read_hex(r, 8, cp);
    case 't': *cp = '\t'; return true;
    case 'r': *cp = '\r'; return true;
    case 'n': *cp = '\n'; return true;
    default:
        if (c && strchr(same, c)) {
            *cp = (uint32_t)c;
            return true;
        }
        r->at -= c != '\0';
        return refuse(r, "an escape that is none of \\x \\u \\U \\t \\r \\n \\\\ \\\" \\[ \\] \\-");
    }
}

static bool read_char(reader *r, uint32_t *cp) {
    if (r->at >= r->s.n) return refuse(r, "the text ends inside quotes or brackets");
    if (take(r, '\\')) return read_escape(r, cp);
    const int len = utf8_len(r->s.p + r->at, r->s.n - r->at);
    if (peek(r) == '\n') {
        r->line++;
        r->line_at = r->at + 1;
    }
    *cp = utf8_get(r->s.p + r->at, len); // the whole text was found well-formed
    r->at += (size_t)len;
    return true;
}

static bool read_literal(reader *r, gram_expr *e) {
    strbuf b = {0};
    bool good = true;
    mark(r);
    const uint32_t line = r->g->line, column = r->g->column;
    for (r->at++; good && peek(r) != '"';) {
        uint32_t cp;
        char bytes[4];
        good = read_char(r, &cp);
        if (good) strbuf_put(&b, bytes, (size_t)utf8_put(bytes, cp));
    }
    r->at++;
    if (b.failed) gram_fail(r->g, MICA_E_NOMEM, "grammar: out of memory");
    r->g->line = line;
    r->g->column = column;
    if (good) *e = gram_bytes(r->g, (slice){strbuf_cstr(&b), b.n});
    strbuf_fini(&b);
    return good && !failed(r);
}

static bool read_range(reader *r, gram_range *out) {
    const size_t begin = r->at;
    if (!read_char(r, &out->lo)) return false;
    out->hi = out->lo;
    if (peek(r) != '-' || (r->at + 1 < r->s.n && r->s.p[r->at + 1] == ']')) return true;
    r->at++;
    if (!read_char(r, &out->hi)) return false;
    if (out->lo <= out->hi) return true;
    r->at = begin;
    return refuse(r, "a range that runs backwards");
}

static bool read_class(reader *r, gram_expr *e) {
    gram_range range[GRAM_MAX_RANGES];
    size_t n = 0;
    mark(r);
    const uint32_t line = r->g->line, column = r->g->column;
    r->at++;
    const bool negated = take(r, '^');
    while (peek(r) != ']') {
        if (n == GRAM_MAX_RANGES) return refuse(r, "too many ranges in one class");
        if (!read_range(r, &range[n++])) return false;
    }
    r->g->line = line;
    r->g->column = column;
    if (n == 0)
        gram_fail(r->g, MICA_E_ARG, "grammar: line %u column %u: an empty class", line, column);
    else
        *e = gram_class_of(r->g, range, n, negated);
    r->at++;
    return !failed(r);
}

/* ---- tokens ---- */

/* The token of just these bytes; control tokens and other markers first. */
static int32_t find_token(const gram *g, slice text) {
    const int32_t marker = text_vocab_find(g->vocab, text);
    if (marker >= 0) return marker;
    for (uint32_t i = 0; i < g->trie->n_control; i++)
        if (slice_eq(text_vocab_bytes(g->vocab, g->trie->control[i]), text)) return g->trie->control[i];
    for (uint32_t i = 0; i < g->trie->n_id; i++)
        if (slice_eq(text_vocab_bytes(g->vocab, g->trie->id[i]), text)) return g->trie->id[i];
    return -1;
}

static bool read_token(reader *r, gram_expr *e) {
    const bool negated = take(r, '!');
    const size_t begin = r->at;
    int32_t id;
    mark(r);
    if (!take(r, '<')) return refuse(r, "'!' stands before a token only");
    if (take(r, '[')) {
        uint32_t n;
        if (!read_number(r, INT32_MAX, &n)) return false;
        if (!take(r, ']') || !take(r, '>')) return refuse(r, "']>' is missing behind a token's number");
        id = (int32_t)n;
        if (n >= r->g->trie->n_vocab) id = -1;
    } else {
        while (peek(r) && peek(r) != '>' && peek(r) != '\n') r->at++;
        if (!take(r, '>')) return refuse(r, "'>' is missing behind a token");
        id = find_token(r->g, (slice){r->s.p + begin, r->at - begin});
    }
    if (id < 0) {
        r->at = begin;
        return refuse(r, "the model has no such token");
    }
    *e = gram_token(r->g, id, negated);
    return !failed(r);
}

/* ---- structure ---- */

static bool read_alternates(reader *r, bool nested, gram_expr *e);

static bool read_group(reader *r, gram_expr *e) {
    if (r->depth >= GRAM_MAX_DEPTH) return refuse(r, "groups nested too deep");
    r->depth++;
    r->at++;
    skip_blanks(r, true);
    if (!read_alternates(r, true, e)) return false;
    if (!take(r, ')')) return refuse(r, "')' is missing");
    r->depth--;
    return true;
}

/* *found false: no item begins here. */
static bool read_item(reader *r, gram_expr *e, bool *found) {
    const char c = peek(r);
    *found = true;
    if (c == '"') return read_literal(r, e);
    if (c == '[') return read_class(r, e);
    if (c == '(') return read_group(r, e);
    if (c == '<' || c == '!') return read_token(r, e);
    mark(r);
    if (c == '.') {
        r->at++;
        *e = gram_any(r->g);
    } else if (is_word(c)) {
        *e = gram_call(r->g, gram_rule_named(r->g, read_name(r)));
    } else {
        *found = false;
    }
    return !failed(r);
}

static bool read_braces(reader *r, bool nested, uint32_t *lo, uint32_t *hi) {
    const size_t begin = r->at++;
    skip_blanks(r, nested);
    if (!read_number(r, GRAM_MAX_REPEAT, lo)) return false;
    skip_blanks(r, nested);
    *hi = *lo;
    if (take(r, ',')) {
        skip_blanks(r, nested);
        *hi = GRAM_NONE;
        if (is_digit(peek(r)) && !read_number(r, GRAM_MAX_REPEAT, hi)) return false;
        skip_blanks(r, nested);
    }
    if (!take(r, '}')) return refuse(r, "'}' is missing behind a count");
    if (*hi >= *lo) return true;
    r->at = begin;
    return refuse(r, "at least more often than at most");
}

static bool read_repeats(reader *r, bool nested, gram_expr *e) {
    for (;;) {
        uint32_t lo, hi;
        skip_blanks(r, nested);
        mark(r);
        const uint32_t line = r->g->line, column = r->g->column;
        const char c = peek(r);
        if (c == '*' || c == '+' || c == '?') {
            r->at++;
            lo = c == '+';
            hi = c == '?' ? 1 : GRAM_NONE;
        } else if (c != '{') {
            return true;
        } else if (!read_braces(r, nested, &lo, &hi)) {
            return false;
        }
        r->g->line = line;
        r->g->column = column;
        *e = gram_repeat(r->g, *e, lo, hi);
        if (failed(r)) return false;
    }
}

static bool read_sequence(reader *r, bool nested, gram_expr *e) {
    uint32_t n = 0;
    mark(r);
    const uint32_t line = r->g->line, column = r->g->column;
    for (;; n++) {
        bool found;
        gram_expr item;
        if (!read_item(r, &item, &found)) return false;
        if (!found) break;
        if (!read_repeats(r, nested, &item)) return false;
        gram_push(r->g, item);
    }
    if (peek(r) == '*' || peek(r) == '+' || peek(r) == '?' || peek(r) == '{')
        return refuse(r, "nothing stands before the repetition");
    r->g->line = line;
    r->g->column = column;
    *e = gram_seq(r->g, n);
    return !failed(r);
}

static bool read_alternates(reader *r, bool nested, gram_expr *e) {
    uint32_t n = 0;
    mark(r);
    const uint32_t line = r->g->line, column = r->g->column;
    do {
        if (n) skip_blanks(r, true); // behind "|"
        if (!read_sequence(r, nested, e)) return false;
        gram_push(r->g, *e);
        n++;
    } while (take(r, '|'));
    r->g->line = line;
    r->g->column = column;
    *e = gram_alt(r->g, n);
    return !failed(r);
}

static bool read_rule(reader *r) {
    mark(r);
    const uint32_t line = r->g->line, column = r->g->column;
    const slice name = read_name(r);
    if (!name.n) return refuse(r, "a rule's name is missing");
    const uint32_t rule = gram_rule_named(r->g, name);
    if (failed(r)) return false;
    if (r->g->rule[rule].body != GRAM_NONE) {
        gram_fail(r->g, MICA_E_ARG, "grammar: line %u column %u: rule '%.*s' was defined on line %u already",
                  line, column, name.n > 60 ? 60 : (int)name.n, name.p, r->g->rule[rule].line);
        return false;
    }
    skip_blanks(r, false);
    if (!slice_starts((slice){r->s.p + r->at, r->s.n - r->at}, SLICE_LIT("::=")))
        return refuse(r, "'::=' is missing behind a rule's name");
    r->at += 3;
    skip_blanks(r, true);
    gram_expr body;
    if (!read_alternates(r, false, &body)) return false;
    r->g->rule[rule].line = line;
    r->g->rule[rule].column = column;
    gram_define(r->g, rule, body);
    if (peek(r) != '\n' && peek(r) != '\r' && r->at < r->s.n)
        return refuse(r, "neither a part of a rule nor the end of its line");
    skip_blanks(r, true);
    return true;
}

static bool check_text(reader *r) {
    if (r->s.n > GRAM_MAX_TEXT) {
        gram_fail(r->g, MICA_E_ARG, "grammar: %zu bytes: more than %d", r->s.n, GRAM_MAX_TEXT);
        return false;
    }
    while (r->at < r->s.n) {
        const int len = utf8_len(r->s.p + r->at, r->s.n - r->at);
        if (len <= 0 || peek(r) == '\0') return refuse(r, "not UTF-8 text");
        if (peek(r) == '\n') {
            r->line++;
            r->line_at = r->at + 1;
        }
        r->at += (size_t)len;
    }
    r->at = r->line_at = 0;
    r->line = 1;
    return true;
}

mica_status gram_read_gbnf(gram *g, slice text, uint32_t *root) {
    reader r = {.g = g, .s = text, .line = 1};
    if (!check_text(&r)) return g->st;
    skip_blanks(&r, true);
    while (r.at < text.n)
        if (!read_rule(&r)) return g->st;
    for (uint32_t i = 0; i < g->n_rule; i++) {
        const slice name = gram_rule_name(g, i);
        if (g->rule[i].body == GRAM_NONE)
            return gram_fail(g, MICA_E_ARG, "grammar: line %u column %u: rule '%.*s' is defined nowhere",
                             g->rule[i].line, g->rule[i].column, name.n > 60 ? 60 : (int)name.n, name.p);
    }
    *root = text_symtab_find(&g->names, "root", 4);
    if (*root == TEXT_SYM_NONE) {
        mark(&r);
        return gram_fail(g, MICA_E_ARG, "grammar: line %u column %u: no rule 'root' up to the end", g->line,
                         g->column);
    }
    return g->st;
}
