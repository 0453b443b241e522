/* Values to text: str(), repr(), the shortest decimal of a float, json.dumps; and JSON to values.
 *
 * Provenance of what is printed: a string keeps its marks. Where a list or dict holds any byte of the user's,
 * all of its text is the user's, quotes and commas included. */
#include "text/jinja_int.h"

#include "text/ucase.h"

#include <math.h>

/* ---- numbers ---- */

/* float.__repr__: the fewest digits that read back as f; exponents below -4 and from 16 on. The C locale is
 * in force. */
int jprint_float(char out[32], double f) {
    char sci[40];
    if (isnan(f)) return snprintf(out, 32, "nan");
    if (isinf(f)) return snprintf(out, 32, f < 0 ? "-inf" : "inf");
    int prec = 0;
    do snprintf(sci, sizeof sci, "%.*e", prec, f);
    while (strtod(sci, NULL) != f && ++prec < 17);
    char *e = strchr(sci, 'e');
    int exp = atoi(e + 1);
    if (exp >= -4 && exp < 16) return snprintf(out, 32, "%.*f", prec > exp ? prec - exp : 1, f);
    *e = 0;
    return snprintf(out, 32, "%se%c%02d", sci, exp < 0 ? '-' : '+', exp < 0 ? -exp : exp);
}

static mica_status put_int(jr *r, jtext *t, int64_t i, bool user) {
    char buf[24];
    int n = snprintf(buf, sizeof buf, "%lld", (long long)i);
    return jtext_put(r, t, buf, (size_t)n, user);
}

static mica_status put_float(jr *r, jtext *t, double f, bool user) {
    char buf[32];
    int n = jprint_float(buf, f);
    return jtext_put(r, t, buf, (size_t)n, user);
}

static mica_status put(jr *r, jtext *t, const char *s, bool user) {
    return jtext_put(r, t, s, strlen(s), user);
}

/* ---- origin ---- */

static mica_status has_user(jr *r, jv v, bool *out) {
    TRY(jr_enter(r));
    if (v.kind == JV_STR) *out |= v.s->user || v.s->mark;
    if (v.kind == JV_LIST || v.kind == JV_TUPLE)
        for (size_t i = 0; !*out && i < v.list->n; i++) TRY(has_user(r, v.list->v[i], out));
    if (v.kind == JV_DICT || v.kind == JV_NS || v.kind == JV_VIEW)
        for (size_t i = 0; !*out && i < v.dict->n; i++) {
            TRY(has_user(r, v.dict->e[i].k, out));
            TRY(has_user(r, v.dict->e[i].v, out));
        }
    r->depth--;
    return MICA_OK;
}

/* ---- repr ---- */

static mica_status repr_str(jr *r, jtext *t, const jstr *s, bool user) {
    bool single = s->n && memchr(s->p, '\'', s->n), dbl = s->n && memchr(s->p, '"', s->n);
    char quote = single && !dbl ? '"' : '\'', buf[16];
    if (s->markup) TRY(put(r, t, "Markup(", user));
    TRY(jtext_put(r, t, &quote, 1, user));
    for (size_t i = 0, next; i < s->n; i = next) {
        unsigned cp = jstr_cp(s, i, &next);
        const char *e = cp == '\n'   ? "\\n"
                        : cp == '\r' ? "\\r"
                        : cp == '\t' ? "\\t"
                        : cp == '\\' ? "\\\\"
                                     : NULL;
        if (cp == (unsigned)quote)
            snprintf(buf, sizeof buf, "\\%c", quote);
        else if (e)
            snprintf(buf, sizeof buf, "%s", e);
        else if (ucase_is_printable(cp))
            buf[0] = 0;
        else
            snprintf(buf, sizeof buf, cp < 0x100 ? "\\x%02x" : cp < 0x10000 ? "\\u%04x" : "\\U%08x", cp);
        TRY(buf[0] ? put(r, t, buf, user) : jtext_put(r, t, s->p + i, next - i, user));
    }
    TRY(jtext_put(r, t, &quote, 1, user));
    return s->markup ? put(r, t, ")", user) : MICA_OK;
}

static mica_status repr_value(jr *r, jtext *t, jv v, bool user);

static mica_status repr_items(jr *r, jtext *t, const jlist *l, const char *open, const char *close,
                              bool user) {
    TRY(put(r, t, open, user));
    for (size_t i = 0; i < l->n; i++) {
        if (i) TRY(put(r, t, ", ", user));
        TRY(repr_value(r, t, l->v[i], user));
    }
    if (close[0] == ')' && l->n == 1) TRY(put(r, t, ",", user));
    return put(r, t, close, user);
}

static mica_status repr_dict(jr *r, jtext *t, const jdict *d, bool user) {
    TRY(put(r, t, "{", user));
    for (size_t i = 0; i < d->n; i++) {
        if (i) TRY(put(r, t, ", ", user));
        TRY(repr_value(r, t, d->e[i].k, user));
        TRY(put(r, t, ": ", user));
        TRY(repr_value(r, t, d->e[i].v, user));
    }
    return put(r, t, "}", user);
}

static mica_status repr_view(jr *r, jtext *t, jv v, bool user) {
    jlist *l;
    TRY(jlist_of(r, v, &l));
    TRY(put(r, t, jv_type(v), user));
    return repr_items(r, t, l, "([", "])", user);
}

static mica_status repr_range(jr *r, jtext *t, const jrange *g) {
    char buf[96];
    int n = g->step == 1
                ? snprintf(buf, sizeof buf, "range(%lld, %lld)", (long long)g->start, (long long)g->stop)
                : snprintf(buf, sizeof buf, "range(%lld, %lld, %lld)", (long long)g->start,
                           (long long)g->stop, (long long)g->step);
    return jtext_put(r, t, buf, (size_t)n, false);
}

static mica_status repr_macro(jr *r, jtext *t, const jmacro *m) {
    if (m->sig->name.kind != JV_STR) return jtext_puts(r, t, "<Macro anonymous>");
    TRY(jtext_puts(r, t, "<Macro "));
    TRY(repr_str(r, t, m->sig->name.s, false));
    return jtext_puts(r, t, ">");
}

static mica_status repr_kind(jr *r, jtext *t, jv v, bool user) {
    switch (v.kind) {
    case JV_UNDEF: return put(r, t, "Undefined", user);
    case JV_NONE: return put(r, t, "None", user);
    case JV_BOOL: return put(r, t, v.b ? "True" : "False", user);
    case JV_INT: return put_int(r, t, v.i, user);
    case JV_FLOAT: return put_float(r, t, v.f, user);
    case JV_STR: return repr_str(r, t, v.s, user);
    case JV_LIST: return repr_items(r, t, v.list, "[", "]", user);
    case JV_TUPLE: return repr_items(r, t, v.list, "(", ")", user);
    case JV_DICT: return repr_dict(r, t, v.dict, user);
    case JV_NS:
        TRY(put(r, t, "<Namespace ", user));
        TRY(repr_dict(r, t, v.dict, user));
        return put(r, t, ">", user);
    case JV_VIEW: return repr_view(r, t, v, user);
    case JV_RANGE: return repr_range(r, t, v.range);
    case JV_MACRO: return repr_macro(r, t, v.macro);
    default: return jr_unsupported(r, "printing of a %s", jv_type(v)); // Python shows an address or the like
    }
}

static mica_status repr_value(jr *r, jtext *t, jv v, bool user) {
    TRY(jr_enter(r));
    TRY(repr_kind(r, t, v, user));
    r->depth--;
    return MICA_OK;
}

mica_status jprint_repr(jr *r, jtext *t, jv v) {
    bool user = false;
    TRY(has_user(r, v, &user));
    return repr_value(r, t, v, user);
}

mica_status jprint_str(jr *r, jtext *t, jv v) {
    if (v.kind == JV_STR) return jtext_str(r, t, v.s);
    if (v.kind == JV_UNDEF) return MICA_OK;
    return jprint_repr(r, t, v);
}

mica_status jv_to_str(jr *r, jv v, jv *out) {
    jtext t = {0};
    if (v.kind == JV_STR && !v.s->markup) {
        *out = v;
        return MICA_OK;
    }
    TRY(jprint_str(r, &t, v));
    return jtext_done(r, &t, out);
}

mica_status jv_to_repr(jr *r, jv v, jv *out) {
    jtext t = {0};
    TRY(jprint_repr(r, &t, v));
    return jtext_done(r, &t, out);
}

/* ---- json.dumps ---- */

typedef struct json_writer {
    jr *r;
    jtext t;
    bool user, ensure_ascii, sort_keys;
    const jstr *indent; // NULL: on one line
    const jstr *item_sep, *key_sep;
} json_writer;

static mica_status json_value(json_writer *w, jv v, int level);

static mica_status json_put(json_writer *w, const char *s) {
    return put(w->r, &w->t, s, w->user);
}
static mica_status json_put_str(json_writer *w, const jstr *s) {
    return jtext_put(w->r, &w->t, s->p, s->n, w->user);
}

static int json_escape(char out[16], unsigned cp, bool ensure_ascii) {
    static const char from[] = "\"\\\n\r\t\f\b", to[] = "\"\\nrtfb";
    const char *c = cp && cp < 0x80 ? strchr(from, (int)cp) : NULL;
    if (c) return snprintf(out, 16, "\\%c", to[c - from]);
    if (cp < 0x20 || (ensure_ascii && cp >= 0x7F && cp < 0x10000)) return snprintf(out, 16, "\\u%04x", cp);
    if (!ensure_ascii || cp < 0x7F) return 0;
    cp -= 0x10000;
    return snprintf(out, 16, "\\u%04x\\u%04x", 0xD800 + (cp >> 10), 0xDC00 + (cp & 0x3FF));
}

static mica_status json_str(json_writer *w, const jstr *s) {
    char buf[16];
    size_t done = 0;
    TRY(json_put(w, "\""));
    for (size_t i = 0, next; i < s->n; i = next) {
        unsigned cp = jstr_cp(s, i, &next);
        int n = json_escape(buf, cp, w->ensure_ascii);
        if (!n) continue;
        TRY(jtext_put(w->r, &w->t, s->p + done, i - done, w->user));
        TRY(jtext_put(w->r, &w->t, buf, (size_t)n, w->user));
        done = next;
    }
    TRY(jtext_put(w->r, &w->t, s->p + done, s->n - done, w->user));
    return json_put(w, "\"");
}

static mica_status json_float(json_writer *w, double f) {
    if (isnan(f)) return json_put(w, "NaN");
    if (isinf(f)) return json_put(w, f < 0 ? "-Infinity" : "Infinity");
    return put_float(w->r, &w->t, f, w->user);
}

static mica_status json_newline(json_writer *w, int level) {
    if (!w->indent) return MICA_OK;
    TRY(json_put(w, "\n"));
    for (int i = 0; i < level; i++) TRY(json_put_str(w, w->indent));
    return MICA_OK;
}

static mica_status json_list(json_writer *w, const jlist *l, int level) {
    if (!l->n) return json_put(w, "[]");
    TRY(json_put(w, "["));
    for (size_t i = 0; i < l->n; i++) {
        if (i) TRY(json_put_str(w, w->item_sep));
        TRY(json_newline(w, level + 1));
        TRY(json_value(w, l->v[i], level + 1));
    }
    TRY(json_newline(w, level));
    return json_put(w, "]");
}

static mica_status json_key(json_writer *w, jv k) {
    if (k.kind == JV_STR) return json_str(w, k.s);
    if (k.kind != JV_NONE && !jv_is_num(k))
        return jr_fail(w->r, "keys must be str, int, float, bool or None, not %s", jv_type(k));
    TRY(json_put(w, "\""));
    TRY(json_value(w, k, 0));
    return json_put(w, "\"");
}

static mica_status json_sorted(json_writer *w, const jdict *d, jlist **key, jlist **value) {
    TRY(jlist_new(w->r, key, d->n));
    TRY(jlist_new(w->r, value, d->n));
    for (size_t i = 0; i < d->n; i++) {
        (*key)->v[i] = d->e[i].k;
        (*value)->v[i] = d->e[i].v;
    }
    (*key)->n = (*value)->n = d->n;
    return w->sort_keys ? jlist_sort(w->r, *value, *key, false) : MICA_OK;
}

static mica_status json_dict(json_writer *w, const jdict *d, int level) {
    jlist *key, *value;
    if (!d->n) return json_put(w, "{}");
    TRY(json_sorted(w, d, &key, &value));
    TRY(json_put(w, "{"));
    for (size_t i = 0; i < d->n; i++) {
        if (i) TRY(json_put_str(w, w->item_sep));
        TRY(json_newline(w, level + 1));
        TRY(json_key(w, key->v[i]));
        TRY(json_put_str(w, w->key_sep));
        TRY(json_value(w, value->v[i], level + 1));
    }
    TRY(json_newline(w, level));
    return json_put(w, "}");
}

static mica_status json_kind(json_writer *w, jv v, int level) {
    switch (v.kind) {
    case JV_NONE: return json_put(w, "null");
    case JV_BOOL: return json_put(w, v.b ? "true" : "false");
    case JV_INT: return put_int(w->r, &w->t, v.i, w->user);
    case JV_FLOAT: return json_float(w, v.f);
    case JV_STR: return json_str(w, v.s);
    case JV_LIST:
    case JV_TUPLE: return json_list(w, v.list, level);
    case JV_DICT: return json_dict(w, v.dict, level);
    default: return jr_fail(w->r, "Object of type %s is not JSON serializable", jv_type(v));
    }
}

static mica_status json_value(json_writer *w, jv v, int level) {
    TRY(jr_enter(w->r));
    TRY(json_kind(w, v, level));
    w->r->depth--;
    return MICA_OK;
}

static mica_status json_indent(json_writer *w, jv indent) {
    jv blank;
    if (indent.kind == JV_STR) {
        w->indent = indent.s;
        return MICA_OK;
    }
    if (!jv_is_int(indent))
        return jr_fail(w->r, "tojson: indent must be an int or a str, not %s", jv_type(indent));
    TRY(jstr_new(w->r, &blank, SLICE_LIT(" "), false));
    TRY(jstr_repeat(w->r, &blank, blank.s, jv_as_int(indent)));
    w->indent = blank.s;
    return MICA_OK;
}

static mica_status json_separators(json_writer *w, jv given) {
    jlist *l;
    jv a, b;
    if (given.kind != JV_MISSING && given.kind != JV_NONE) {
        TRY(jlist_of(w->r, given, &l));
        if (l->n != 2 || l->v[0].kind != JV_STR || l->v[1].kind != JV_STR)
            return jr_fail(w->r, "tojson: separators must be two strings");
        a = l->v[0];
        b = l->v[1];
    } else {
        TRY(jstr_new(w->r, &a, w->indent ? SLICE_LIT(",") : SLICE_LIT(", "), false));
        TRY(jstr_new(w->r, &b, SLICE_LIT(": "), false));
    }
    w->item_sep = a.s;
    w->key_sep = b.s;
    return MICA_OK;
}

/* transformers' filter: tojson(ensure_ascii=False, indent=None, separators=None, sort_keys=False). */
mica_status jfilter_tojson(jr *r, jv self, jcall *c, jv *out) {
    json_writer w = {.r = r, .ensure_ascii = jv_truth(c->slot[0]), .sort_keys = jv_truth(c->slot[3])};
    TRY(has_user(r, self, &w.user));
    if (jcall_has(c, 1)) TRY(json_indent(&w, c->slot[1]));
    TRY(json_separators(&w, c->slot[2]));
    TRY(json_value(&w, self, 0));
    return jtext_done(r, &w.t, out);
}

/* ---- JSON to values ---- */

static bool trusted_role(const jr *r, const char *key, const json_t *value) {
    if (!r->opt || !r->opt->n_role || strcmp(key, "role") != 0 || !json_is_string(value)) return false;
    slice s = {json_string_value(value), json_string_length(value)};
    for (size_t i = 0; i < r->opt->n_role; i++)
        if (slice_is(s, r->opt->role[i])) return true;
    return false;
}

static mica_status of_text(jr *r, slice s, bool user, bool copy, jv *out) {
    return copy ? jstr_copy(r, out, s, user) : jstr_new(r, out, s, user);
}

static mica_status of_array(jr *r, const json_t *j, bool user, bool copy, jv *out) {
    jlist *l;
    size_t n = json_array_size(j);
    TRY(jlist_new(r, &l, n));
    l->n = n;
    for (size_t i = 0; i < n; i++) TRY(jv_of_json(r, json_array_get(j, i), user, copy, &l->v[i]));
    *out = jv_list(l);
    return MICA_OK;
}

static mica_status of_object(jr *r, const json_t *j, bool user, bool copy, jv *out) {
    jdict *d;
    const char *key;
    json_t *value;
    TRY(jdict_new(r, &d, json_object_size(j)));
    json_object_foreach((json_t *)j, key, value) {
        jv k, v;
        TRY(of_text(r, slice_of(key), user, copy, &k));
        TRY(jv_of_json(r, value, user && !trusted_role(r, key, value), copy, &v));
        TRY(jdict_set(r, d, k, v));
    }
    *out = (jv){.kind = JV_DICT, .dict = d};
    return MICA_OK;
}

mica_status jv_of_json(jr *r, const json_t *j, bool user, bool copy, jv *out) {
    mica_status st = jr_enter(r);
    if (st == MICA_OK) switch (json_typeof(j)) {
        case JSON_OBJECT: st = of_object(r, j, user, copy, out); break;
        case JSON_ARRAY: st = of_array(r, j, user, copy, out); break;
        case JSON_STRING:
            st = of_text(r, (slice){json_string_value(j), json_string_length(j)}, user, copy, out);
            break;
        case JSON_INTEGER: *out = jv_int(json_integer_value(j)); break;
        case JSON_REAL: *out = jv_float(json_real_value(j)); break;
        case JSON_TRUE: *out = jv_bool(true); break;
        case JSON_FALSE: *out = jv_bool(false); break;
        default: *out = jv_none(); break;
        }
    r->depth--;
    return st;
}

mica_status jfilter_from_json(jr *r, jv self, jcall *c, jv *out) {
    (void)c;
    json_error_t e;
    if (self.kind == JV_UNDEF) return jv_undef_raise(r, self);
    if (self.kind != JV_STR) return jr_fail(r, "the JSON object must be str, not %s", jv_type(self));
    int depth = 0, deepest = 0;
    for (size_t i = 0; i < self.s->n;
         i++) { // also counts brackets inside strings: a bound is all that is wanted
        depth += self.s->p[i] == '[' || self.s->p[i] == '{';
        depth -= depth && (self.s->p[i] == ']' || self.s->p[i] == '}');
        deepest = depth > deepest ? depth : deepest;
    }
    if (deepest > JINJA_MAX_NESTING) return jr_fail(r, "from_json: nested deeper than %d", JINJA_MAX_NESTING);
    TRY(jr_charge(r, self.s->n * 8));
    json_t *j = json_loadb(self.s->p, self.s->n, JSON_DECODE_ANY | JSON_ALLOW_NUL, &e);
    if (!j) return jr_fail(r, "from_json: %s", e.text);
    mica_status st = jv_of_json(r, j, self.s->user || self.s->mark, true, out);
    json_decref(j);
    return st;
}
