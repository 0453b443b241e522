/* Jinja source to tokens. All whitespace control is done here: after this, data tokens are exactly what is
 * printed.
 *
 * The rules are those of jinja2's lexer with trim_blocks and lstrip_blocks on:
 *   - all line ends become \n, and one line end at the very end of the source is dropped;
 *   - blanks between the start of a line and a block or comment go, unless it opens with `+`; `-` eats all
 * whitespace;
 *   - one \n after a block or comment goes, unless it closes with `+`; `-` eats all whitespace;
 *   - inside brackets the closing delimiter is an ordinary operator, so that {{ {'a': {}} }} works. */
#include "text/jinja_int.h"

#include "base/num.h"
#include "text/ucase.h"

typedef struct lexer {
    const char *p; // source with its line ends made even
    size_t n, at;
    int line;
    bool line_start; // the last match ended a line
    jarena *arena;
    jtoks *out;
    mica_error *err;
    char open[JINJA_MAX_NESTING]; // closing brackets that are still to come
    int n_open;
} lexer;

bool jinja_is_space(unsigned cp) {
    if (cp < 0x80) return (cp >= 9 && cp <= 13) || (cp >= 0x1C && cp <= 0x20);
    return cp == 0x85 || cp == 0xA0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200A) || cp == 0x2028 ||
           cp == 0x2029 || cp == 0x202F || cp == 0x205F || cp == 0x3000;
}

static mica_status lex_fail(lexer *x, const char *what) {
    return fail(x->err, MICA_E_ARG, "chat template: line %d: %s", x->line, what);
}

static mica_status push(lexer *x, jtok_kind kind, slice text) {
    jtoks *o = x->out;
    if (o->n == o->cap) {
        size_t cap = o->cap ? o->cap * 2 : 256;
        jtok *v = jarena_take(x->arena, cap * sizeof *v);
        if (!v) return fail(x->err, MICA_E_NOMEM, "chat template: %zu tokens: out of memory", cap);
        if (o->n) memcpy(v, o->v, o->n * sizeof *v);
        o->v = v;
        o->cap = cap;
    }
    o->v[o->n++] = (jtok){.kind = kind, .line = x->line, .text = text};
    return MICA_OK;
}

static void advance_to(lexer *x, size_t to) {
    for (size_t i = x->at; i < to; i++) x->line += x->p[i] == '\n';
    if (to > x->at) x->line_start = x->p[to - 1] == '\n';
    x->at = to;
}

static bool looking_at(const lexer *x, size_t at, const char *s) {
    size_t n = strlen(s);
    return x->n - at >= n && memcmp(x->p + at, s, n) == 0;
}

static bool is_one_of(char c, const char *set) {
    return c && strchr(set, c);
}

static size_t skip_space(const lexer *x, size_t at) {
    while (at < x->n) {
        int len = utf8_len(x->p + at, x->n - at);
        if (!jinja_is_space(utf8_get(x->p + at, len))) break;
        at += (size_t)len;
    }
    return at;
}

static size_t trim_end(const lexer *x, size_t begin, size_t end) {
    while (end > begin) {
        size_t at = end - 1;
        while (at > begin && ((unsigned char)x->p[at] & 0xC0) == 0x80) at--;
        int len = utf8_len(x->p + at, end - at);
        if (len <= 0 || !jinja_is_space(utf8_get(x->p + at, len))) break;
        end = at;
    }
    return end;
}

/* The end of the data before a tag whose sign is `sign` (0: none); variables keep the blanks before them. */
static size_t data_end(const lexer *x, size_t begin, size_t end, char sign, bool variable) {
    if (sign == '-') return trim_end(x, begin, end);
    if (sign == '+' || variable) return end;
    size_t l = end;
    while (l > begin && x->p[l - 1] != '\n') l--;
    if (l == begin && !x->line_start) return end;
    return skip_space(x, l) >= end ? l : end;
}

/* Whether a closing delimiter ("%}", "#}") with its sign stands at `at`; *after gets where the text goes on.
 */
static bool closes(const lexer *x, size_t at, const char *delim, bool plus, bool trim, size_t *after) {
    if (plus && x->p[at] == '+' && looking_at(x, at + 1, delim)) {
        *after = at + 3;
        return true;
    }
    if (x->p[at] == '-' && looking_at(x, at + 1, delim)) {
        *after = skip_space(x, at + 3);
        return true;
    }
    if (!looking_at(x, at, delim)) return false;
    *after = at + 2;
    if (trim && *after < x->n && x->p[*after] == '\n') ++*after;
    return true;
}

static size_t sign_at(const lexer *x, size_t at, char *sign) {
    *sign = at < x->n && (x->p[at] == '-' || x->p[at] == '+') ? x->p[at] : 0;
    return at + (*sign != 0);
}

static mica_status lex_comment(lexer *x) {
    for (size_t i = x->at; i < x->n; i++) {
        size_t after;
        if (closes(x, i, "#}", true, true, &after)) {
            advance_to(x, after);
            return MICA_OK;
        }
    }
    return lex_fail(x, "the end of a comment is missing");
}

/* `{% raw %}` at `at` (behind the sign)? */
static bool raw_opens(const lexer *x, size_t at, size_t *after) {
    at = skip_space(x, at);
    if (!looking_at(x, at, "raw")) return false;
    at = skip_space(x, at + 3);
    return at < x->n && closes(x, at, "%}", false, false, after);
}

static bool raw_closes(const lexer *x, size_t at, char *sign, size_t *after) {
    if (!looking_at(x, at, "{%")) return false;
    at = skip_space(x, sign_at(x, at + 2, sign));
    if (!looking_at(x, at, "endraw")) return false;
    at = skip_space(x, at + 6);
    return at < x->n && closes(x, at, "%}", true, true, after);
}

static mica_status lex_raw(lexer *x) {
    for (size_t i = x->at; i < x->n; i++) {
        char sign;
        size_t after;
        if (x->p[i] != '{' || !raw_closes(x, i, &sign, &after)) continue;
        size_t end = data_end(x, x->at, i, sign, false);
        if (end > x->at) TRY(push(x, JT_DATA, (slice){x->p + x->at, end - x->at}));
        advance_to(x, after);
        return MICA_OK;
    }
    return lex_fail(x, "the end of a raw block is missing");
}

/* ---- inside tags ---- */

static mica_status lex_name(lexer *x, bool *found) {
    size_t at = x->at;
    while (at < x->n) {
        int len = utf8_len(x->p + at, x->n - at);
        if (!ucase_is_name(utf8_get(x->p + at, len), at == x->at)) break;
        at += (size_t)len;
    }
    *found = at > x->at;
    if (!*found) return MICA_OK;
    TRY(push(x, JT_NAME, (slice){x->p + x->at, at - x->at}));
    advance_to(x, at);
    return MICA_OK;
}

static int digit_of(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return 99;
}

/* Digits of a base with single underscores between them; 0 when there is none at `at`. lead: one may also
 * stand before. */
static size_t digits(const lexer *x, size_t at, int base, bool lead) {
    size_t end = at;
    while (end < x->n) {
        size_t d = end + (x->p[end] == '_' && (lead || end > at));
        if (d >= x->n || digit_of(x->p[d]) >= base) break;
        end = d + 1;
    }
    return end - at;
}

static mica_status push_int(lexer *x, size_t at, size_t end, int base) {
    uint64_t v = 0;
    for (size_t i = at; i < end; i++) {
        if (x->p[i] == '_') continue;
        if (!num_mul_u64(&v, v, (uint64_t)base) || !num_add_u64(&v, v, (uint64_t)digit_of(x->p[i])) ||
            v > INT64_MAX)
            return fail(x->err, MICA_E_UNSUPPORTED, "chat template: line %d: an integer of more than 64 bits",
                        x->line);
    }
    TRY(push(x, JT_INT, (slice){x->p + x->at, end - x->at}));
    x->out->v[x->out->n - 1].i = (int64_t)v;
    advance_to(x, end);
    return MICA_OK;
}

static mica_status push_float(lexer *x, size_t end) {
    char buf[400];
    size_t n = 0;
    for (size_t i = x->at; i < end; i++) {
        if (x->p[i] == '_') continue;
        if (n + 1 >= sizeof buf) return lex_fail(x, "a number of more than 400 digits");
        buf[n++] = x->p[i];
    }
    buf[n] = 0;
    TRY(push(x, JT_FLOAT, (slice){x->p + x->at, end - x->at}));
    x->out->v[x->out->n - 1].f = strtod(buf, NULL);
    advance_to(x, end);
    return MICA_OK;
}

/* An exponent at `at`: its bytes, 0 when there is none. */
static size_t exponent(const lexer *x, size_t at) {
    if (at >= x->n || (x->p[at] != 'e' && x->p[at] != 'E')) return 0;
    size_t d = at + 1;
    if (d < x->n && (x->p[d] == '+' || x->p[d] == '-')) d++;
    size_t n = digits(x, d, 10, false);
    return n ? d + n - at : 0;
}

static mica_status lex_number(lexer *x, bool *found) {
    size_t at = x->at, n = digits(x, at, 10, false);
    *found = n > 0;
    if (!n) return MICA_OK;
    bool after_dot = at > 0 && x->p[at - 1] == '.';
    size_t frac = 0, end = at + n;
    if (end < x->n && x->p[end] == '.') frac = digits(x, end + 1, 10, false);
    size_t with_frac = frac ? end + 1 + frac : end, e = exponent(x, with_frac);
    if (!after_dot && (frac || e)) return push_float(x, with_frac + e);
    if (x->p[at] == '0' && at + 1 < x->n) {
        char c = (char)(x->p[at + 1] | 0x20);
        int base = c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 0;
        size_t m = base ? digits(x, at + 2, base, true) : 0;
        if (m) return push_int(x, at + 2, at + 2 + m, base);
    }
    if (x->p[at] == '0') { // 007 is the tokens 00 and 7, as in jinja2
        end = at + 1;
        while (end < x->n &&
               (x->p[end] == '0' || (x->p[end] == '_' && end + 1 < x->n && x->p[end + 1] == '0')))
            end++;
    }
    return push_int(x, at, end, 10);
}

static size_t hex_escape(const char *p, size_t n, size_t want, unsigned *cp) {
    if (n < want) return 0;
    *cp = 0;
    for (size_t i = 0; i < want; i++) {
        int d = digit_of(p[i]);
        if (d > 15) return 0;
        *cp = *cp * 16 + (unsigned)d;
    }
    return want;
}

/* One escape behind the backslash at p (n >= 1 bytes): bytes read, 0 when malformed; writes up to 11 bytes at
 * out. */
static size_t unescape(const char *p, size_t n, char *out, size_t *n_out) {
    static const char from[] = "abfnrtv\\'\"", to[] = "\a\b\f\n\r\t\v\\'\"";
    const char *simple = is_one_of(p[0], from) ? strchr(from, p[0]) : NULL;
    if (simple) {
        out[0] = to[simple - from];
        *n_out = 1;
        return 1;
    }
    if (p[0] == '\n') {
        *n_out = 0;
        return 1;
    }
    unsigned cp = 0;
    size_t used = 0;
    if (p[0] >= '0' && p[0] <= '7') {
        while (used < 3 && used < n && p[used] >= '0' && p[used] <= '7')
            cp = cp * 8 + (unsigned)(p[used++] - '0');
    } else if (p[0] == 'x' || p[0] == 'u' || p[0] == 'U') {
        used = hex_escape(p + 1, n - 1, p[0] == 'x' ? 2 : p[0] == 'u' ? 4 : 8, &cp);
        if (!used || cp > 0x10FFFF || (cp >= 0xD800 && cp <= 0xDFFF)) return 0;
        used++;
    } else { // not an escape: both characters stay. Non-ASCII goes through backslashreplace before, which
             // Python shows
        int len = utf8_len(p, n);
        out[0] = '\\';
        cp = utf8_get(p, len);
        if (len == 1) out[1] = p[0];
        *n_out = len == 1 ? 2
                          : 1 + (size_t)snprintf(out + 1, 10,
                                                 cp < 0x100     ? "x%02x"
                                                 : cp < 0x10000 ? "u%04x"
                                                                : "U%08x",
                                                 cp);
        return (size_t)len;
    }
    *n_out = (size_t)utf8_put(out, cp);
    return used;
}

static mica_status lex_string(lexer *x) {
    char quote = x->p[x->at];
    size_t end = x->at + 1;
    while (end < x->n && x->p[end] != quote) end += x->p[end] == '\\' ? 2 : 1;
    if (end >= x->n) return lex_fail(x, "a string does not end");
    const char *p = x->p + x->at + 1;
    size_t n = end - x->at - 1, n_out = 0;
    char *out =
        jarena_take(x->arena, n * 6 + 16); // an unknown escape of a non-ASCII character grows the most
    if (!out) return fail(x->err, MICA_E_NOMEM, "chat template: a string of %zu bytes: out of memory", n);
    for (size_t i = 0; i < n;) {
        if (p[i] != '\\') {
            out[n_out++] = p[i++];
            continue;
        }
        size_t made, used = 0;
        if (p[i + 1] == 'N')
            return fail(x->err, MICA_E_UNSUPPORTED, "chat template: line %d: \\N in a string", x->line);
        used = unescape(p + i + 1, n - i - 1, out + n_out, &made);
        if (!used) return lex_fail(x, "a malformed escape in a string");
        n_out += made;
        i += 1 + used;
    }
    TRY(push(x, JT_STRING, (slice){out, n_out}));
    advance_to(x, end + 1);
    return MICA_OK;
}

static mica_status bracket(lexer *x, char c) {
    const char *opening = "{([", *closing = "})]";
    const char *o = strchr(opening, c);
    char text[80];
    if (o) {
        if (x->n_open == JINJA_MAX_NESTING) return lex_fail(x, "brackets nested deeper than 200");
        x->open[x->n_open++] = closing[o - opening];
        return MICA_OK;
    }
    if (!strchr(closing, c)) return MICA_OK;
    snprintf(text, sizeof text, "unexpected '%c'", c);
    if (!x->n_open) return lex_fail(x, text);
    char want = x->open[--x->n_open];
    snprintf(text, sizeof text, "unexpected '%c', expected '%c'", c, want);
    return want == c ? MICA_OK : lex_fail(x, text);
}

static mica_status lex_operator(lexer *x) {
    static const struct {
        const char *text;
        jtok_kind kind;
    } op[] = {{"//", JT_FLOORDIV}, {"**", JT_POW},   {"==", JT_EQ},      {"!=", JT_NE},      {">=", JT_GE},
              {"<=", JT_LE},       {"+", JT_ADD},    {"-", JT_SUB},      {"/", JT_DIV},      {"*", JT_MUL},
              {"%", JT_MOD},       {"~", JT_TILDE},  {"[", JT_LBRACKET}, {"]", JT_RBRACKET}, {"(", JT_LPAREN},
              {")", JT_RPAREN},    {"{", JT_LBRACE}, {"}", JT_RBRACE},   {">", JT_GT},       {"<", JT_LT},
              {"=", JT_ASSIGN},    {".", JT_DOT},    {":", JT_COLON},    {"|", JT_PIPE},     {",", JT_COMMA},
              {";", JT_SEMICOLON}};
    for (size_t i = 0; i < sizeof op / sizeof *op; i++) {
        if (!looking_at(x, x->at, op[i].text)) continue;
        size_t n = strlen(op[i].text);
        if (n == 1) TRY(bracket(x, op[i].text[0]));
        TRY(push(x, op[i].kind, (slice){x->p + x->at, n}));
        advance_to(x, x->at + n);
        return MICA_OK;
    }
    int len = utf8_len(x->p + x->at, x->n - x->at);
    return fail(x->err, MICA_E_ARG, "chat template: line %d: unexpected character '%.*s'", x->line, len,
                x->p + x->at);
}

static mica_status lex_tag(lexer *x, bool variable) {
    for (;;) {
        size_t after;
        if (x->at >= x->n) return MICA_OK; // the parser misses the end and says what for
        bool at_end = !x->n_open && (variable ? closes(x, x->at, "}}", false, false, &after)
                                              : closes(x, x->at, "%}", true, true, &after));
        if (at_end) {
            TRY(push(x, variable ? JT_VAR_END : JT_BLOCK_END, (slice){x->p + x->at, 2}));
            advance_to(x, after);
            return MICA_OK;
        }
        size_t s = skip_space(x, x->at);
        if (s > x->at) {
            advance_to(x, s);
            continue;
        }
        bool found = false;
        TRY(lex_number(x, &found));
        if (!found) TRY(lex_name(x, &found));
        if (found) continue;
        bool quote = x->p[x->at] == '\'' || x->p[x->at] == '"';
        TRY(quote ? lex_string(x) : lex_operator(x));
    }
}

/* The data up to the next tag, then the tag. */
static mica_status lex_root(lexer *x) {
    size_t tag = x->at;
    while (tag + 1 < x->n && !(x->p[tag] == '{' && is_one_of(x->p[tag + 1], "{%#"))) tag++;
    if (tag + 1 >= x->n) {
        TRY(push(x, JT_DATA, (slice){x->p + x->at, x->n - x->at}));
        advance_to(x, x->n);
        return MICA_OK;
    }
    char kind = x->p[tag + 1], sign;
    size_t inside = sign_at(x, tag + 2, &sign), after;
    size_t end = data_end(x, x->at, tag, sign, kind == '{');
    if (end > x->at) TRY(push(x, JT_DATA, (slice){x->p + x->at, end - x->at}));
    if (kind == '%' && raw_opens(x, inside, &after)) {
        advance_to(x, after);
        return lex_raw(x);
    }
    advance_to(x, inside);
    if (kind == '#') return lex_comment(x);
    TRY(push(x, kind == '{' ? JT_VAR_BEGIN : JT_BLOCK_BEGIN, (slice){x->p + tag, 2}));
    return lex_tag(x, kind == '{');
}

static size_t even_lines(char *out, slice in) {
    size_t n = 0;
    for (size_t i = 0; i < in.n; i++) {
        if (in.p[i] == '\r' && i + 1 < in.n && in.p[i + 1] == '\n') continue;
        out[n++] = in.p[i] == '\r' ? '\n' : in.p[i];
    }
    return n && out[n - 1] == '\n' ? n - 1 : n;
}

mica_status jinja_lex(jtoks *out, jarena *a, slice source, mica_error *err) {
    *out = (jtoks){0};
    if (source.n > JINJA_MAX_SOURCE)
        return fail(err, MICA_E_ARG, "chat template: %zu bytes: more than %d", source.n, JINJA_MAX_SOURCE);
    if (!utf8_valid(source.p, source.n)) return fail(err, MICA_E_ARG, "chat template: not valid UTF-8");
    char *p = jarena_take(a, source.n + 1);
    if (!p) return fail(err, MICA_E_NOMEM, "chat template: %zu bytes: out of memory", source.n);
    lexer x = {.p = p,
               .n = even_lines(p, source),
               .line = 1,
               .line_start = true,
               .arena = a,
               .out = out,
               .err = err};
    while (x.at < x.n) TRY(lex_root(&x));
    return push(&x, JT_EOF, (slice){"", 0});
}
