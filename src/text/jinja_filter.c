/* Filters of single values and of text, and the table of all filters. Those that walk over sequences are in
 * jinja_seq.c. Each follows jinja2's function of the same name. */
#include "text/jinja_seq.h"

#include "text/ucase.h"

#include <math.h>

static mica_status f_default(jr *r, jv self, jcall *c, jv *out) {
    bool use = self.kind == JV_UNDEF || (jv_truth(c->slot[1]) && !jv_truth(self));
    *out = self;
    if (!use) return MICA_OK;
    if (c->slot[0].kind == JV_MISSING) return jstr_new(r, out, SLICE_LIT(""), false);
    *out = c->slot[0];
    return MICA_OK;
}

static mica_status f_length(jr *r, jv self, jcall *c, jv *out) {
    (void)c;
    out->kind = JV_INT;
    return jv_length(r, self, &out->i);
}

static mica_status f_string(jr *r, jv self, jcall *c, jv *out) {
    (void)c;
    return jstr_soft(r, out, self);
}

static mica_status f_safe(jr *r, jv self, jcall *c, jv *out) {
    jv text;
    (void)c;
    TRY(jstr_soft(r, &text, self));
    jstr *s = jr_take(r, sizeof *s);
    if (!s) return jr_nomem(r);
    *s = *text.s;
    s->markup = true;
    *out = jv_str(s);
    return MICA_OK;
}

static mica_status f_escape(jr *r, jv self, jcall *c, jv *out) {
    (void)c;
    return jstr_escape(r, out, self);
}

static mica_status f_forceescape(jr *r, jv self, jcall *c, jv *out) {
    jv text;
    (void)c;
    TRY(jv_to_str(r, self, &text)); // gives a plain string, which escape escapes again
    return jstr_escape(r, out, text);
}

/* ---- text ---- */

static mica_status keep_markup(jr *r, jv from, jv *v) {
    if (from.kind != JV_STR || !from.s->markup || v->s->markup) return MICA_OK;
    return f_safe(r, *v, NULL, v);
}

static mica_status f_upper(jr *r, jv self, jcall *c, jv *out) {
    jv s;
    (void)c;
    TRY(jstr_soft(r, &s, self));
    TRY(jstr_upper(r, out, s.s));
    return keep_markup(r, self, out);
}

static mica_status f_lower(jr *r, jv self, jcall *c, jv *out) {
    jv s;
    (void)c;
    TRY(jstr_soft(r, &s, self));
    TRY(jstr_lower(r, out, s.s));
    return keep_markup(r, self, out);
}

static mica_status f_capitalize(jr *r, jv self, jcall *c, jv *out) {
    jv s;
    (void)c;
    TRY(jstr_soft(r, &s, self));
    TRY(jstr_capitalize(r, out, s.s));
    return keep_markup(r, self, out);
}

static mica_status f_trim(jr *r, jv self, jcall *c, jv *out) {
    jv s;
    TRY(jstr_soft(r, &s, self));
    TRY(jstr_strip(r, out, s.s, c->slot[0], true, true));
    return keep_markup(r, self, out);
}

static mica_status f_center(jr *r, jv self, jcall *c, jv *out) {
    static const jstr blank = {.p = " ", .n = 1, .ascii = true};
    int64_t width;
    jv s;
    TRY(jcall_int(r, c, 0, 80, &width));
    TRY(jstr_soft(r, &s, self));
    TRY(jstr_center(r, out, s.s, width, &blank));
    return keep_markup(r, self, out);
}

static mica_status f_replace(jr *r, jv self, jcall *c, jv *out) {
    int64_t count = -1;
    jv s, from, to;
    if (jcall_has(c, 2)) TRY(jcall_int(r, c, 2, -1, &count));
    TRY(jv_to_str(r, self, &s));
    TRY(jv_to_str(r, c->slot[0], &from));
    TRY(jv_to_str(r, c->slot[1], &to));
    return jstr_replace(r, out, s.s, from.s, to.s, count);
}

static bool splits_words(unsigned cp) {
    return jinja_is_space(cp) || (cp && cp < 0x80 && strchr("-({[<", (int)cp));
}

/* Words start behind blanks, dashes and opening brackets. */
static mica_status f_title(jr *r, jv self, jcall *c, jv *out) {
    jv s, part;
    jtext t = {0};
    (void)c;
    TRY(jstr_soft(r, &s, self));
    for (size_t i = 0, first, end, next; i < s.s->n; i = end) { // one run of splitting or of other characters
        bool split = splits_words(jstr_cp(s.s, i, &first));
        for (end = first; end < s.s->n && splits_words(jstr_cp(s.s, end, &next)) == split;) end = next;
        TRY(jstr_sub(r, &part, s.s, i, first));
        TRY(jstr_upper(r, &part, part.s));
        TRY(jtext_str(r, &t, part.s));
        TRY(jstr_sub(r, &part, s.s, first, end));
        TRY(jstr_lower(r, &part, part.s));
        TRY(jtext_str(r, &t, part.s));
    }
    TRY(jtext_done(r, &t, out));
    return keep_markup(r, self, out);
}

static mica_status indent_width(jr *r, jcall *c, jv *out) {
    static const jstr blank = {.p = " ", .n = 1, .ascii = true};
    int64_t width;
    if (c->slot[0].kind == JV_STR) {
        *out = c->slot[0];
        return MICA_OK;
    }
    TRY(jcall_int(r, c, 0, 4, &width));
    return jstr_repeat(r, out, &blank, width);
}

static mica_status f_indent(jr *r, jv self, jcall *c, jv *out) {
    jv width;
    jlist *line;
    jtext t = {0};
    if (self.kind == JV_UNDEF) return jv_undef_raise(r, self);
    if (self.kind != JV_STR) return jr_fail(r, "indent wants a string, not %s", jv_type(self));
    TRY(indent_width(r, c, &width));
    jtext whole = {0}; // a closing line end is always added, so that one at the end is kept
    jv text;
    TRY(jtext_str(r, &whole, self.s));
    TRY(jtext_put(r, &whole, "\n", 1, self.s->user));
    TRY(jtext_done(r, &whole, &text));
    TRY(jstr_splitlines(r, &line, text.s, false));
    if (jv_truth(c->slot[1])) TRY(jtext_str(r, &t, width.s));
    for (size_t i = 0; i < line->n; i++) {
        if (i) TRY(jtext_puts(r, &t, "\n"));
        if (i && (line->v[i].s->n || jv_truth(c->slot[2]))) TRY(jtext_str(r, &t, width.s));
        TRY(jtext_str(r, &t, line->v[i].s));
    }
    TRY(jtext_done(r, &t, out));
    return keep_markup(r, self, out);
}

static mica_status f_truncate(jr *r, jv self, jcall *c, jv *out) {
    int64_t length, leeway, n;
    jv end, head;
    size_t at;
    TRY(jcall_int(r, c, 0, 255, &length));
    TRY(jcall_int(r, c, 3, 5, &leeway));
    end = c->slot[2];
    if (end.kind == JV_MISSING) TRY(jstr_new(r, &end, SLICE_LIT("..."), false));
    if (end.kind != JV_STR) return jr_fail(r, "truncate: end must be a string");
    int64_t n_end = (int64_t)jstr_n_cp(end.s);
    if (length < n_end)
        return jr_fail(r, "expected length >= %lld, got %lld", (long long)n_end, (long long)length);
    if (leeway < 0) return jr_fail(r, "expected leeway >= 0, got %lld", (long long)leeway);
    TRY(jv_length(r, self, &n));
    *out = self;
    if (n <= length || n - length <= leeway) return MICA_OK;
    if (self.kind != JV_STR) return jr_fail(r, "truncate wants a string, not %s", jv_type(self));
    TRY(jstr_sub(r, &head, self.s, 0, jstr_at_cp(self.s, (size_t)(length - n_end))));
    static const jstr blank = {.p = " ", .n = 1, .ascii = true};
    if (!jv_truth(c->slot[1]) && jstr_rfind(head.s, &blank, 0, head.s->n, &at))
        TRY(jstr_sub(r, &head, head.s, 0, at));
    return jstr_concat(r, out, head.s, end.s);
}

static mica_status f_wordcount(jr *r, jv self, jcall *c, jv *out) {
    jv s;
    int64_t n = 0;
    bool in_word = false;
    (void)c;
    TRY(jstr_soft(r, &s, self));
    for (size_t i = 0; i < s.s->n;) {
        unsigned cp = jstr_cp(s.s, i, &i);
        bool word = cp == '_' || ucase_is_alpha(cp) || ucase_is_numeric(cp);
        n += word && !in_word;
        in_word = word;
    }
    *out = jv_int(n);
    return jr_charge(r, s.s->n);
}

static mica_status f_format(jr *r, jv self, jcall *c, jv *out) {
    jv s, args;
    if (c->n_arg && c->n_kw)
        return jr_fail(r, "can't handle positional and keyword arguments at the same time");
    TRY(jstr_soft(r, &s, self));
    if (c->n_kw) {
        args.kind = JV_DICT;
        TRY(jdict_new(r, &args.dict, c->n_kw));
        for (size_t i = 0; i < c->n_kw; i++) TRY(jdict_set(r, args.dict, c->kw[i].name, c->kw[i].value));
    } else {
        jlist *l;
        TRY(jlist_new(r, &l, c->n_arg));
        if (c->n_arg) memcpy(l->v, c->arg, c->n_arg * sizeof *c->arg);
        l->n = c->n_arg;
        args = jv_tuple(l);
    }
    return jformat_percent(r, s.s, args, out);
}

static mica_status f_urlencode(jr *r, jv self, jcall *c, jv *out) {
    jv s;
    jtext t = {0};
    (void)c;
    if (self.kind != JV_STR && jv_iterable(self))
        return jr_unsupported(r, "urlencode of a %s", jv_type(self));
    TRY(jv_to_str(r, self, &s));
    for (size_t i = 0; i < s.s->n; i++) {
        unsigned char ch = (unsigned char)s.s->p[i];
        char hex[4];
        bool plain = ch < 0x80 && ch && (ucase_is_name(ch, false) || strchr("-.~/", ch));
        if (plain) {
            TRY(jtext_sub(r, &t, s.s, i, i + 1));
            continue;
        }
        snprintf(hex, sizeof hex, "%%%02X", ch);
        TRY(jtext_put(r, &t, hex, 3, s.s->mark ? s.s->mark[i] : s.s->user));
    }
    return jtext_done(r, &t, out);
}

/* ---- numbers ---- */

static mica_status f_abs(jr *r, jv self, jcall *c, jv *out) {
    (void)c;
    if (self.kind == JV_UNDEF) return jr_fail(r, "bad operand type for abs(): 'Undefined'");
    if (!jv_is_num(self)) return jr_fail(r, "bad operand type for abs(): '%s'", jv_type(self));
    *out = self.kind == JV_FLOAT ? jv_float(fabs(self.f)) : jv_int(jv_as_int(self));
    return self.kind != JV_FLOAT && out->i < 0 ? jv_neg(r, *out, out) : MICA_OK;
}

static mica_status int_of_float(jr *r, double f, jv fallback, jv *out) {
    if (!isfinite(f))
        *out = fallback;
    else if (fabs(f) >= 9.2e18)
        return jr_unsupported(r, "an integer of more than 64 bits");
    else
        *out = jv_int((int64_t)f);
    return MICA_OK;
}

static mica_status f_int(jr *r, jv self, jcall *c, jv *out) {
    jv fallback = c->slot[0].kind == JV_MISSING ? jv_int(0) : c->slot[0];
    int64_t base, i;
    double f;
    TRY(jcall_int(r, c, 1, 10, &base));
    if (self.kind == JV_UNDEF) return jv_undef_raise(r, self);
    if (jv_is_int(self)) {
        *out = jv_int(jv_as_int(self));
        return MICA_OK;
    }
    if (self.kind == JV_FLOAT) {
        if (isinf(self.f))
            return jr_fail(r, "cannot convert float infinity to integer"); // OverflowError is not caught
        return int_of_float(r, self.f, fallback, out);
    }
    *out = fallback;
    if (self.kind != JV_STR) return MICA_OK;
    bool known = base == 0 || (base >= 2 && base <= 36);
    mica_status st = known ? jstr_parse_int(self.s, (int)base, &i) : MICA_E_ARG;
    if (st == MICA_OK) *out = jv_int(i);
    if (st == MICA_E_UNSUPPORTED) return jr_unsupported(r, "an integer of more than 64 bits");
    if (st != MICA_E_ARG || !jstr_parse_float(r, self.s, &f)) return MICA_OK;
    return int_of_float(r, f, fallback, out);
}

static mica_status f_float(jr *r, jv self, jcall *c, jv *out) {
    double f;
    if (self.kind == JV_UNDEF) return jv_undef_raise(r, self);
    *out = c->slot[0].kind == JV_MISSING ? jv_float(0.0) : c->slot[0];
    if (jv_is_num(self))
        *out = jv_float(jv_as_float(self));
    else if (self.kind == JV_STR && jstr_parse_float(r, self.s, &f))
        *out = jv_float(f);
    return MICA_OK;
}

/* round(): to even, judged on the exact decimal value, which is what printf rounds. */
static mica_status round_common(jr *r, jv v, int64_t digits, jv *out) {
    char buf[400];
    if (v.kind != JV_FLOAT) {
        if (digits < 0) return jr_unsupported(r, "round of an integer to tens");
        *out = jv_int(jv_as_int(v));
        return MICA_OK;
    }
    *out = v;
    if (!isfinite(v.f) || digits > 22) return MICA_OK;
    if (digits < 0) return jr_unsupported(r, "round of a float to tens");
    snprintf(buf, sizeof buf, "%.*f", (int)digits, v.f);
    *out = jv_float(strtod(buf, NULL));
    return MICA_OK;
}

static mica_status f_round(jr *r, jv self, jcall *c, jv *out) {
    int64_t digits;
    jv method = c->slot[1];
    TRY(jcall_int(r, c, 0, 0, &digits));
    bool common = method.kind == JV_MISSING || jv_is_text(method, "common"), up = jv_is_text(method, "ceil");
    if (!common && !up && !jv_is_text(method, "floor"))
        return jr_fail(r, "method must be common, ceil or floor");
    if (self.kind == JV_UNDEF) return jr_fail(r, "type Undefined doesn't define __round__ method");
    if (!jv_is_num(self)) return jr_fail(r, "type %s doesn't define __round__ method", jv_type(self));
    if (common) return round_common(r, self, digits, out);
    if (digits > 22 || digits < -22) return jr_unsupported(r, "round to %lld digits", (long long)digits);
    double scale = pow(10.0, (double)digits), v = jv_as_float(self) * scale;
    if (!isfinite(v)) return jr_fail(r, "cannot convert float to integer");
    *out = jv_float((up ? ceil(v) : floor(v)) / scale);
    return MICA_OK;
}

static mica_status f_filesizeformat(jr *r, jv self, jcall *c, jv *out) {
    static const char *const unit[2][8] = {{"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"},
                                           {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"}};
    bool binary = jv_truth(c->slot[0]);
    double base = binary ? 1024.0 : 1000.0, bytes, scale = base;
    char buf[400];
    if (self.kind == JV_STR ? !jstr_parse_float(r, self.s, &bytes) : !jv_is_num(self))
        return jr_fail(r, "filesizeformat wants a number");
    if (self.kind != JV_STR) bytes = jv_as_float(self);
    if (bytes == 1)
        snprintf(buf, sizeof buf, "1 Byte");
    else if (bytes < base)
        snprintf(buf, sizeof buf, "%.0f Bytes", trunc(bytes));
    else {
        int i = 0;
        for (scale = base * base; i < 7 && bytes >= scale; i++) scale *= base;
        snprintf(buf, sizeof buf, "%.1f %s", base * bytes / scale, unit[binary][i]);
    }
    return jstr_copy(r, out, slice_of(buf), false);
}

/* ---- the table ---- */

const jbuiltin *jfilter_find(slice name) {
    static const jbuiltin table[] = {
        {"abs", f_abs, ""},
        {"attr", jfilter_attr, "name"},
        {"batch", jfilter_batch, "linecount fill_with?"},
        {"capitalize", f_capitalize, ""},
        {"center", f_center, "width?"},
        {"count", f_length, "/"},
        {"d", f_default, "default_value? boolean?"},
        {"default", f_default, "default_value? boolean?"},
        {"dictsort", jfilter_dictsort, "case_sensitive? by? reverse?"},
        {"e", f_escape, "/"},
        {"escape", f_escape, "/"},
        {"filesizeformat", f_filesizeformat, "binary?"},
        {"first", jfilter_first, ""},
        {"float", f_float, "default?"},
        {"forceescape", f_forceescape, ""},
        {"format", f_format, NULL},
        {"from_json", jfilter_from_json, ""},
        {"groupby", jfilter_groupby, "attribute default? case_sensitive?"},
        {"indent", f_indent, "width? first? blank?"},
        {"int", f_int, "default? base?"},
        {"items", jfilter_items, ""},
        {"join", jfilter_join, "d? attribute?"},
        {"last", jfilter_last, ""},
        {"length", f_length, "/"},
        {"list", jfilter_list, ""},
        {"lower", f_lower, ""},
        {"map", jfilter_map, NULL},
        {"max", jfilter_max, "case_sensitive? attribute?"},
        {"min", jfilter_min, "case_sensitive? attribute?"},
        {"pprint", NULL, NULL},
        {"random", NULL, NULL},
        {"reject", jfilter_reject, NULL},
        {"rejectattr", jfilter_rejectattr, NULL},
        {"replace", f_replace, "old new count?"},
        {"reverse", jfilter_reverse, ""},
        {"round", f_round, "precision? method?"},
        {"safe", f_safe, ""},
        {"select", jfilter_select, NULL},
        {"selectattr", jfilter_selectattr, NULL},
        {"slice", jfilter_slice, "slices fill_with?"},
        {"sort", jfilter_sort, "reverse? case_sensitive? attribute?"},
        {"string", f_string, "/"},
        {"striptags", NULL, NULL},
        {"sum", jfilter_sum, "attribute? start?"},
        {"title", f_title, ""},
        {"tojson", jfilter_tojson, "ensure_ascii? indent? separators? sort_keys?"},
        {"trim", f_trim, "chars?"},
        {"truncate", f_truncate, "length? killwords? end? leeway?"},
        {"unique", jfilter_unique, "case_sensitive? attribute?"},
        {"upper", f_upper, ""},
        {"urlencode", f_urlencode, ""},
        {"urlize", NULL, NULL},
        {"wordcount", f_wordcount, ""},
        {"wordwrap", NULL, NULL},
        {"xmlattr", NULL, NULL},
    };
    return jbuiltin_find(table, sizeof table / sizeof *table, name);
}
