/* The two ways of Python to format text: "%s" % x and "{}".format(x). Both end in one padded field.
 *
 * Not here: the types n and c of str.format, floats with a precision but no type, %c of surrogates. Those say
 * so. */
#include "text/jinja_int.h"

#include <math.h>

/* [[fill]align][sign][#][0][width][,][.precision][type] */
typedef struct field {
    jstr fill; // one code point; n 0: a blank
    char align, sign, type, group;
    bool alt, zero;
    int64_t width, precision; // -1: not given
} field;

enum { MAX_PRECISION = 1000, MAX_DIGITS = 1500 };

static const field PLAIN = {.width = -1, .precision = -1};

/* ---- fields ---- */

/* sign and prefix, then body, padded to the width. Text pads on the right, numbers on the left. */
static mica_status put_field(jr *r, jtext *t, const field *f, const char *head, const jstr *body,
                             bool number) {
    int64_t n_head = (int64_t)strlen(head), pad = f->width - n_head - (int64_t)jstr_n_cp(body);
    char align = f->align ? f->align : f->zero && number ? '=' : number ? '>' : '<';
    static const jstr blank = {.p = " ", .n = 1, .ascii = true}, zero = {.p = "0", .n = 1, .ascii = true};
    const jstr *fill = f->fill.n ? &f->fill : f->zero ? &zero : &blank;
    if (pad < 0) pad = 0;
    int64_t left = align == '>' ? pad : align == '^' ? pad / 2 : 0;
    TRY(jtext_fill(r, t, fill, left));
    TRY(jtext_puts(r, t, head));
    if (align == '=') TRY(jtext_fill(r, t, fill, pad));
    TRY(jtext_str(r, t, body));
    return align == '=' ? MICA_OK : jtext_fill(r, t, fill, pad - left);
}

static mica_status put_text(jr *r, jtext *t, const field *f, const jstr *s) {
    jv cut = jv_str(s);
    if (f->precision >= 0) TRY(jstr_sub(r, &cut, s, 0, jstr_at_cp(s, (size_t)f->precision)));
    return put_field(r, t, f, "", cut.s, false);
}

/* Digits of |v| in groups, with zeros up to the width when they fill it. */
static size_t group_digits(char *out, const char *digits, const field *f) {
    size_t n = strspn(digits, "0123456789abcdefABCDEF"), k = 0;
    size_t every = strchr("boxX", f->type ? f->type : 'd') ? 4 : 3;
    for (size_t i = 0; i < n; i++) {
        if (i && (n - i) % every == 0) out[k++] = f->group;
        out[k++] = digits[i];
    }
    size_t rest = strlen(digits + n);
    memcpy(out + k, digits + n, rest + 1);
    return k + rest;
}

static mica_status put_number(jr *r, jtext *t, const field *f, bool negative, const char *prefix,
                              const char *digits) {
    char head[8], grouped[2 * MAX_DIGITS];
    const char *sign = negative ? "-" : f->sign == '+' ? "+" : f->sign == ' ' ? " " : "";
    snprintf(head, sizeof head, "%s%s", sign, prefix);
    if (f->group && f->zero) return jr_unsupported(r, "grouped digits padded with zeros");
    if (f->group) {
        group_digits(grouped, digits, f);
        digits = grouped;
    }
    jstr body = {.p = digits, .n = strlen(digits), .ascii = true};
    return put_field(r, t, f, head, &body, true);
}

static mica_status put_int(jr *r, jtext *t, const field *f, int64_t v) {
    char buf[80];
    uint64_t m = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    const char *prefix = "";
    size_t n = sizeof buf - 1;
    unsigned base = f->type == 'x' || f->type == 'X' ? 16 : f->type == 'o' ? 8 : f->type == 'b' ? 2 : 10;
    const char *digit = f->type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef";
    buf[n] = 0;
    do buf[--n] = digit[m % base];
    while (m /= base);
    if (f->alt)
        prefix = base == 16 ? (f->type == 'X' ? "0X" : "0x") : base == 8 ? "0o" : base == 2 ? "0b" : "";
    return put_number(r, t, f, v < 0, prefix, buf + n);
}

static mica_status put_float(jr *r, jtext *t, const field *f, double v) {
    char fmt[16], buf[MAX_DIGITS];
    int prec = f->precision < 0 ? 6 : (int)f->precision;
    char type = f->type == '%' ? 'f' : f->type;
    if (prec > MAX_PRECISION) return jr_fail(r, "precision too big");
    snprintf(fmt, sizeof fmt, "%%%s.*%c", f->alt ? "#" : "", type);
    double m = fabs(f->type == '%' ? v * 100.0 : v);
    int n = snprintf(buf, sizeof buf - 1, fmt, prec, m);
    if (f->type == '%') memcpy(buf + n, "%", 2);
    return put_number(r, t, f, signbit(v) && !isnan(v), "", buf);
}

/* ---- "%s" % x ---- */

typedef struct percent {
    jr *r;
    jtext t;
    const jstr *fmt;
    size_t at;
    jv args; // a tuple gives its items, anything else itself
    size_t used;
    bool mapping; // unused arguments are no mistake
} percent;

static mica_status percent_arg(percent *p, jv *out) {
    size_t n = p->args.kind == JV_TUPLE ? p->args.list->n : 1;
    if (p->used >= n) return jr_fail(p->r, "not enough arguments for format string");
    *out = p->args.kind == JV_TUPLE ? p->args.list->v[p->used] : p->args;
    p->used++;
    return MICA_OK;
}

static mica_status percent_key(percent *p, jv *arg) {
    size_t begin = p->at, depth = 1;
    jv key;
    if (!p->mapping) return jr_fail(p->r, "format requires a mapping");
    for (; p->at < p->fmt->n && depth; p->at++)
        depth += (size_t)(p->fmt->p[p->at] == '(') - (size_t)(p->fmt->p[p->at] == ')');
    if (depth) return jr_fail(p->r, "incomplete format key");
    TRY(jstr_sub(p->r, &key, p->fmt, begin, p->at - 1));
    if (p->args.kind == JV_UNDEF) return jv_undef_raise(p->r, p->args);
    if (p->args.kind != JV_DICT) return jr_fail(p->r, "indices must be integers or slices, not str");
    jv *found;
    TRY(jdict_find(p->r, p->args.dict, key, &found));
    if (!found) return jr_fail(p->r, "'%.*s'", (int)(key.s->n > 100 ? 100 : key.s->n), key.s->p);
    *arg = *found;
    return MICA_OK;
}

/* Digits or `*` at p->at: -1 when there are none. */
static mica_status percent_number(percent *p, int64_t *out) {
    *out = -1;
    if (p->at < p->fmt->n && p->fmt->p[p->at] == '*') {
        jv v;
        p->at++;
        TRY(percent_arg(p, &v));
        if (!jv_is_int(v)) return jr_fail(p->r, "* wants int");
        *out = jv_as_int(v);
        return MICA_OK;
    }
    for (; p->at < p->fmt->n && p->fmt->p[p->at] >= '0' && p->fmt->p[p->at] <= '9'; p->at++) {
        *out = (*out < 0 ? 0 : *out) * 10 + (p->fmt->p[p->at] - '0');
        if (*out > JINJA_MAX_OUTPUT) return jr_fail(p->r, "width too big");
    }
    return MICA_OK;
}

static mica_status percent_spec(percent *p, field *f) {
    bool left = false;
    *f = PLAIN;
    for (; p->at < p->fmt->n; p->at++) {
        char c = p->fmt->p[p->at];
        if (c == '-')
            left = true;
        else if (c == '+')
            f->sign = '+';
        else if (c == ' ')
            f->sign = f->sign ? f->sign : ' ';
        else if (c == '#')
            f->alt = true;
        else if (c == '0')
            f->zero = true;
        else
            break;
    }
    TRY(percent_number(p, &f->width));
    if (f->width < -1) {
        left = true;
        f->width = -f->width;
    }
    if (p->at < p->fmt->n && p->fmt->p[p->at] == '.') {
        p->at++;
        TRY(percent_number(p, &f->precision));
        if (f->precision < 0) f->precision = 0;
    }
    while (p->at < p->fmt->n && strchr("hlL", p->fmt->p[p->at] ? p->fmt->p[p->at] : '?')) p->at++;
    if (p->at >= p->fmt->n) return jr_fail(p->r, "incomplete format");
    f->align = left ? '<' : 0;
    if (left) f->zero = false;
    f->type = p->fmt->p[p->at++];
    return MICA_OK;
}

static mica_status percent_int(percent *p, field *f, jv v) {
    bool radix = f->type != 'd' && f->type != 'i' && f->type != 'u';
    if (v.kind == JV_UNDEF) return jv_undef_raise(p->r, v);
    if (v.kind == JV_FLOAT && !radix && isfinite(v.f) && fabs(v.f) < 9e18) v = jv_int((int64_t)v.f);
    if (!jv_is_int(v))
        return jr_fail(p->r, "%%%c format: %s is required, not %s", f->type,
                       radix ? "an integer" : "a real number", jv_type(v));
    if (f->precision >= 0) return jr_unsupported(p->r, "%%%c with a precision", f->type);
    return put_int(p->r, &p->t, f, jv_as_int(v));
}

static mica_status percent_char(percent *p, field *f, jv v) {
    char buf[4];
    jv s = v;
    f->precision = -1;
    if (jv_is_int(v)) {
        int64_t cp = jv_as_int(v);
        if (cp < 0 || cp > 0x10FFFF) return jr_fail(p->r, "%%c arg not in range(0x110000)");
        if (cp >= 0xD800 && cp <= 0xDFFF) return jr_unsupported(p->r, "lone surrogates");
        TRY(jstr_copy(p->r, &s, (slice){buf, (size_t)utf8_put(buf, (unsigned)cp)}, false));
    } else if (v.kind != JV_STR || jstr_n_cp(v.s) != 1) {
        return jr_fail(p->r, "%%c requires int or char");
    }
    f->align = f->align ? f->align : '>';
    return put_text(p->r, &p->t, f, s.s);
}

static mica_status percent_value(percent *p, field *f, jv v) {
    switch (f->type) {
    case 's':
    case 'r':
    case 'a':
        if (f->type == 'a') return jr_unsupported(p->r, "%%a");
        if (p->fmt->markup && f->type == 's')
            TRY(jstr_escape(p->r, &v, v));
        else if (f->type == 's')
            TRY(jv_to_str(p->r, v, &v));
        else
            TRY(jv_to_repr(p->r, v, &v));
        f->align = f->align ? f->align : '>';
        f->zero = false;
        return put_text(p->r, &p->t, f, v.s);
    case 'd':
    case 'i':
    case 'u':
    case 'o':
    case 'x':
    case 'X': return percent_int(p, f, v);
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
        if (v.kind == JV_UNDEF) return jv_undef_raise(p->r, v);
        if (!jv_is_num(v)) return jr_fail(p->r, "must be real number, not %s", jv_type(v));
        return put_float(p->r, &p->t, f, jv_as_float(v));
    case 'c': return percent_char(p, f, v);
    default: return jr_fail(p->r, "unsupported format character '%c'", f->type);
    }
}

static mica_status percent_one(percent *p) {
    field f;
    jv arg = {0};
    if (p->at < p->fmt->n && p->fmt->p[p->at] == '(') {
        p->at++;
        TRY(percent_key(p, &arg));
    }
    TRY(percent_spec(p, &f));
    if (f.type == '%') return jtext_puts(p->r, &p->t, "%");
    if (arg.kind == JV_MISSING) TRY(percent_arg(p, &arg));
    return percent_value(p, &f, arg);
}

mica_status jformat_percent(jr *r, const jstr *fmt, jv args, jv *out) {
    bool mapping =
        args.kind == JV_DICT || args.kind == JV_LIST || args.kind == JV_RANGE || args.kind == JV_UNDEF;
    percent p = {.r = r, .fmt = fmt, .args = args, .mapping = mapping};
    while (p.at < fmt->n) {
        const char *c = memchr(fmt->p + p.at, '%', fmt->n - p.at);
        size_t end = c ? (size_t)(c - fmt->p) : fmt->n;
        TRY(jtext_sub(r, &p.t, fmt, p.at, end));
        p.at = end + 1;
        if (c) TRY(percent_one(&p));
    }
    if (!mapping && p.used < (args.kind == JV_TUPLE ? args.list->n : 1))
        return jr_fail(r, "not all arguments converted during string formatting");
    TRY(jtext_done(r, &p.t, out));
    ((jstr *)out->s)->markup = fmt->markup;
    return MICA_OK;
}

/* ---- "{}".format(x) ---- */

typedef struct formatter {
    jr *r;
    jcall *c;
    int64_t next; // automatic numbering; -1: fields were numbered by hand
    int depth;
} formatter;

static mica_status format_text(formatter *f, const jstr *fmt, jtext *t);

static mica_status parse_align(const jstr *s, size_t *at, field *f) {
    size_t next;
    if (*at >= s->n) return MICA_OK;
    jstr_cp(s, *at, &next);
    if (next < s->n && s->p[next] && strchr("<>=^", s->p[next])) {
        f->fill =
            (jstr){.p = s->p + *at, .n = next - *at, .user = s->user, .mark = s->mark ? s->mark + *at : NULL};
        f->align = s->p[next];
        *at = next + 1;
    } else if (s->p[*at] && strchr("<>=^", s->p[*at])) {
        f->align = s->p[(*at)++];
    }
    return MICA_OK;
}

static bool spec_char(const jstr *s, size_t *at, const char *set, char *out) {
    if (*at >= s->n || !s->p[*at] || !strchr(set, s->p[*at])) return false;
    *out = s->p[(*at)++];
    return true;
}

static mica_status spec_number(jr *r, const jstr *s, size_t *at, int64_t *out) {
    for (char d; spec_char(s, at, "0123456789", &d);) {
        *out = (*out < 0 ? 0 : *out) * 10 + (d - '0');
        if (*out > JINJA_MAX_OUTPUT) return jr_fail(r, "Too many decimal digits in format string");
    }
    return MICA_OK;
}

static mica_status parse_spec(jr *r, const jstr *s, field *f) {
    size_t at = 0;
    char c;
    *f = PLAIN;
    TRY(parse_align(s, &at, f));
    spec_char(s, &at, "+- ", &f->sign);
    f->alt = spec_char(s, &at, "#", &c);
    f->zero = spec_char(s, &at, "0", &c);
    if (f->zero && !f->fill.n) f->fill = (jstr){.p = "0", .n = 1, .ascii = true};
    TRY(spec_number(r, s, &at, &f->width));
    spec_char(s, &at, ",_", &f->group);
    if (spec_char(s, &at, ".", &c)) {
        TRY(spec_number(r, s, &at, &f->precision));
        if (f->precision < 0) return jr_fail(r, "Format specifier missing precision");
    }
    if (at < s->n) f->type = s->p[at++];
    return at == s->n ? MICA_OK : jr_fail(r, "Invalid format specifier");
}

static mica_status format_number(jr *r, jtext *t, field *f, jv v) {
    char type = f->type;
    if (type && strchr("nc", type)) return jr_unsupported(r, "format type '%c'", type);
    if (jv_is_int(v) && (!type || strchr("dboxX", type))) {
        if (f->precision >= 0) return jr_fail(r, "Precision not allowed in integer format specifier");
        return put_int(r, t, f, jv_as_int(v));
    }
    if (!type && f->precision < 0) {
        char buf[32];
        jprint_float(buf, fabs(v.f));
        return put_number(r, t, f, signbit(v.f) && !isnan(v.f), "", buf);
    }
    if (!type) return jr_unsupported(r, "a float format with a precision but no type");
    if (!strchr("eEfFgG%", type))
        return jr_fail(r, "Unknown format code '%c' for object of type '%s'", type, jv_type(v));
    return put_float(r, t, f, jv_as_float(v));
}

static mica_status format_value(jr *r, jtext *t, jv v, const jstr *spec) {
    field f;
    if (!spec->n) return jprint_str(r, t, v);
    if (v.kind != JV_STR && !jv_is_num(v))
        return jr_fail(r, "unsupported format string passed to %s.__format__", jv_type(v));
    TRY(parse_spec(r, spec, &f));
    if (v.kind != JV_STR) return format_number(r, t, &f, v);
    if (f.type && f.type != 's')
        return jr_fail(r, "Unknown format code '%c' for object of type 'str'", f.type);
    if (f.sign || f.alt || f.group || f.align == '=')
        return jr_fail(r, "Sign, '#', ',' or '=' not allowed with string");
    return put_text(r, t, &f, v.s);
}

static mica_status field_root(formatter *f, const jstr *name, jv *out) {
    jv key = jv_str(name);
    int64_t i;
    if (!name->n) {
        if (f->next < 0)
            return jr_fail(f->r,
                           "cannot switch from manual field specification to automatic field numbering");
        i = f->next++;
    } else if (jstr_parse_int(name, 10, &i) == MICA_OK && name->p[0] >= '0' && name->p[0] <= '9') {
        if (f->next > 0)
            return jr_fail(f->r,
                           "cannot switch from manual field specification to automatic field numbering");
        f->next = -1;
    } else {
        for (size_t k = 0; k < f->c->n_kw; k++) {
            if (!slice_eq(jstr_slice(f->c->kw[k].name.s), jstr_slice(key.s))) continue;
            *out = f->c->kw[k].value;
            return MICA_OK;
        }
        return jr_fail(f->r, "KeyError: '%.*s'", (int)(name->n > 100 ? 100 : name->n), name->p);
    }
    if ((uint64_t)i >= f->c->n_arg)
        return jr_fail(f->r, "Replacement index %lld out of range for positional args tuple", (long long)i);
    *out = f->c->arg[i];
    return MICA_OK;
}

/* a.b[c]: through the environment's getattr and getitem, as the sandbox does. */
static mica_status field_value(formatter *f, const jstr *name, jv *out) {
    size_t at = 0;
    jv part;
    while (at < name->n && name->p[at] != '.' && name->p[at] != '[') at++;
    TRY(jstr_sub(f->r, &part, name, 0, at));
    TRY(field_root(f, part.s, out));
    while (at < name->n) {
        bool attr = name->p[at++] == '.';
        size_t begin = at;
        while (at < name->n && (attr ? name->p[at] != '.' && name->p[at] != '[' : name->p[at] != ']')) at++;
        if (at == begin) return jr_fail(f->r, "Empty attribute in format string");
        TRY(jstr_sub(f->r, &part, name, begin, at));
        int64_t i;
        if (!attr) {
            if (at >= name->n) return jr_fail(f->r, "Missing ']' in format string");
            at++;
            if (jstr_parse_int(part.s, 10, &i) == MICA_OK && i >= 0) part = jv_int(i);
        }
        TRY(attr ? jv_getattr(f->r, *out, part, out) : jv_getitem(f->r, *out, part, out));
    }
    return MICA_OK;
}

/* The inside of one pair of braces: name [! conversion] [: spec]. */
static mica_status format_field(formatter *f, const jstr *s, jtext *t) {
    size_t at = 0, name_end;
    char conv = 0;
    jv name, spec, v;
    while (at < s->n && s->p[at] != '!' && s->p[at] != ':') {
        if (s->p[at] == '[') // anything may stand in brackets
            while (at < s->n && s->p[at] != ']') at++;
        if (at < s->n) at++;
    }
    name_end = at;
    if (at < s->n && s->p[at] == '!') {
        if (at + 1 >= s->n) return jr_fail(f->r, "end of string while looking for conversion specifier");
        conv = s->p[at + 1];
        at += 2;
        if (at < s->n && s->p[at] != ':') return jr_fail(f->r, "expected ':' after conversion specifier");
    }
    TRY(jstr_sub(f->r, &name, s, 0, name_end));
    TRY(jstr_sub(f->r, &spec, s, at < s->n ? at + 1 : s->n, s->n));
    TRY(field_value(f, name.s, &v));
    if (conv == 's')
        TRY(jv_to_str(f->r, v, &v));
    else if (conv == 'r')
        TRY(jv_to_repr(f->r, v, &v));
    else if (conv)
        return conv == 'a' ? jr_unsupported(f->r, "conversion !a")
                           : jr_fail(f->r, "Unknown conversion specifier");
    if (f->depth >= 2) return jr_fail(f->r, "Max string recursion exceeded");
    jtext inner = {0};
    f->depth++;
    TRY(format_text(f, spec.s, &inner));
    f->depth--;
    TRY(jtext_done(f->r, &inner, &spec));
    return format_value(f->r, t, v, spec.s);
}

static mica_status format_text(formatter *f, const jstr *fmt, jtext *t) {
    for (size_t at = 0; at < fmt->n;) {
        char c = fmt->p[at];
        if (c != '{' && c != '}') {
            size_t begin = at;
            while (at < fmt->n && fmt->p[at] != '{' && fmt->p[at] != '}') at++;
            TRY(jtext_sub(f->r, t, fmt, begin, at));
            continue;
        }
        if (at + 1 < fmt->n && fmt->p[at + 1] == c) {
            TRY(jtext_sub(f->r, t, fmt, at, at + 1));
            at += 2;
            continue;
        }
        if (c == '}') return jr_fail(f->r, "Single '}' encountered in format string");
        size_t begin = ++at, depth = 1;
        for (; at < fmt->n && depth; at++) depth += (size_t)(fmt->p[at] == '{') - (size_t)(fmt->p[at] == '}');
        if (depth)
            return jr_fail(f->r, begin == fmt->n ? "Single '{' encountered in format string"
                                                 : "expected '}' before end of string");
        jv inside;
        TRY(jstr_sub(f->r, &inside, fmt, begin, at - 1));
        TRY(format_field(f, inside.s, t));
    }
    return MICA_OK;
}

mica_status jformat_format(jr *r, const jstr *fmt, jcall *c, jv *out) {
    formatter f = {.r = r, .c = c};
    jtext t = {0};
    if (fmt->markup) return jr_unsupported(r, "format of a Markup");
    TRY(format_text(&f, fmt, &t));
    return jtext_done(r, &t, out);
}
