/* Methods of strings, as CPython 3.11 has them; positions count code points. Every method keeps the origin of
 * the bytes it passes on; what it adds (padding, expanded tabs) is the template's. */
#include "text/jinja_int.h"

#include "text/ucase.h"

#include <ctype.h>

/* ---- case ---- */

typedef int (*case_fn)(unsigned cp, unsigned out[3]);

static bool user_at(const jstr *s, size_t at) {
    return s->mark ? s->mark[at] : s->user;
}

static mica_status put_mapped(jr *r, jtext *t, const jstr *s, size_t at, case_fn map) {
    size_t next;
    unsigned out[3];
    int n = map(jstr_cp(s, at, &next), out);
    for (int i = 0; i < n; i++) TRY(jtext_cp(r, t, out[i], user_at(s, at)));
    return MICA_OK;
}

/* A capital sigma that ends a word becomes the final form: a cased letter before it and none after it. */
static bool final_sigma(const jstr *s, size_t at) {
    size_t i = at, next;
    unsigned cp = 0;
    while (i && ucase_is_ignorable(cp = jstr_cp_before(s, i, &i))) cp = 0;
    if (!cp || !ucase_is_cased(cp)) return false;
    jstr_cp(s, at, &i);
    for (cp = 0; i < s->n; i = next, cp = 0)
        if (!ucase_is_ignorable(cp = jstr_cp(s, i, &next))) break;
    return !cp || !ucase_is_cased(cp);
}

static mica_status put_lower(jr *r, jtext *t, const jstr *s, size_t at) {
    size_t next;
    if (jstr_cp(s, at, &next) == 0x3A3 && final_sigma(s, at)) return jtext_cp(r, t, 0x3C2, user_at(s, at));
    return put_mapped(r, t, s, at, ucase_lower);
}

static mica_status ascii_mapped(jr *r, jv *out, const jstr *s, int (*map)(int c)) {
    char *p = jr_take(r, s->n + 1);
    jstr *t = jr_take(r, sizeof *t);
    if (!p || !t) return jr_nomem(r);
    for (size_t i = 0; i < s->n; i++) p[i] = (char)map((unsigned char)s->p[i]);
    *t = *s;
    t->p = p;
    t->text = NULL;
    *out = jv_str(t);
    return jr_charge(r, s->n);
}

static mica_status mapped(jr *r, jv *out, const jstr *s, case_fn map) {
    jtext t = {0};
    for (size_t i = 0, next; i < s->n; i = next) {
        jstr_cp(s, i, &next);
        TRY(map ? put_mapped(r, &t, s, i, map) : put_lower(r, &t, s, i));
    }
    return jtext_done(r, &t, out);
}

mica_status jstr_lower(jr *r, jv *out, const jstr *s) {
    return s->ascii ? ascii_mapped(r, out, s, tolower) : mapped(r, out, s, NULL);
}

mica_status jstr_upper(jr *r, jv *out, const jstr *s) {
    return s->ascii ? ascii_mapped(r, out, s, toupper) : mapped(r, out, s, ucase_upper);
}

mica_status jstr_capitalize(jr *r, jv *out, const jstr *s) {
    jtext t = {0};
    for (size_t i = 0, next; i < s->n; i = next) {
        jstr_cp(s, i, &next);
        TRY(i ? put_lower(r, &t, s, i) : put_mapped(r, &t, s, i, ucase_title));
    }
    return jtext_done(r, &t, out);
}

static mica_status m_lower(jr *r, jv self, jcall *c, jv *out) {
    (void)c;
    return jstr_lower(r, out, self.s);
}
static mica_status m_upper(jr *r, jv self, jcall *c, jv *out) {
    (void)c;
    return jstr_upper(r, out, self.s);
}
static mica_status m_capitalize(jr *r, jv self, jcall *c, jv *out) {
    (void)c;
    return jstr_capitalize(r, out, self.s);
}
static mica_status m_casefold(jr *r, jv self, jcall *c, jv *out) {
    (void)c;
    return mapped(r, out, self.s, ucase_fold);
}

static mica_status m_title(jr *r, jv self, jcall *c, jv *out) {
    jtext t = {0};
    bool in_word = false;
    (void)c;
    for (size_t i = 0, next; i < self.s->n; i = next) {
        unsigned cp = jstr_cp(self.s, i, &next);
        TRY(in_word ? put_lower(r, &t, self.s, i) : put_mapped(r, &t, self.s, i, ucase_title));
        in_word = ucase_is_cased(cp);
    }
    return jtext_done(r, &t, out);
}

static mica_status m_swapcase(jr *r, jv self, jcall *c, jv *out) {
    jtext t = {0};
    (void)c;
    for (size_t i = 0, next; i < self.s->n; i = next) {
        unsigned cp = jstr_cp(self.s, i, &next);
        if (ucase_is_upper(cp))
            TRY(put_lower(r, &t, self.s, i));
        else if (ucase_is_lower(cp))
            TRY(put_mapped(r, &t, self.s, i, ucase_upper));
        else
            TRY(jtext_sub(r, &t, self.s, i, next));
    }
    return jtext_done(r, &t, out);
}

/* ---- questions ---- */

static mica_status every(jr *r, jv self, bool (*is)(unsigned cp), bool of_empty, jv *out) {
    bool all = self.s->n || of_empty;
    for (size_t i = 0; all && i < self.s->n;) all = is(jstr_cp(self.s, i, &i));
    *out = jv_bool(all);
    return jr_charge(r, self.s->n * 4);
}

static bool is_alnum(unsigned cp) {
    return ucase_is_alpha(cp) || ucase_is_numeric(cp) || ucase_is_digit(cp);
}
static bool is_ascii(unsigned cp) {
    return cp < 0x80;
}

#define QUESTION(name, fn, of_empty)                                                                         \
    static mica_status m_##name(jr *r, jv self, jcall *c, jv *out) {                                         \
        (void)c;                                                                                             \
        return every(r, self, fn, of_empty, out);                                                            \
    }
QUESTION(isalnum, is_alnum, false)
QUESTION(isalpha, ucase_is_alpha, false)
QUESTION(isascii, is_ascii, true)
QUESTION(isdecimal, ucase_is_decimal, false)
QUESTION(isdigit, ucase_is_digit, false)
QUESTION(isnumeric, ucase_is_numeric, false)
QUESTION(isspace, jinja_is_space, false)
QUESTION(isprintable, ucase_is_printable, true)

static mica_status one_case(jr *r, jv self, bool upper, jv *out) {
    bool cased = false;
    for (size_t i = 0; i < self.s->n;) {
        unsigned cp = jstr_cp(self.s, i, &i);
        bool good = upper ? ucase_is_upper(cp) : ucase_is_lower(cp);
        if (!good && ucase_is_cased(cp)) {
            *out = jv_bool(false);
            return jr_charge(r, self.s->n * 4);
        }
        cased |= good;
    }
    *out = jv_bool(cased);
    return jr_charge(r, self.s->n * 4);
}

static mica_status m_islower(jr *r, jv self, jcall *c, jv *out) {
    (void)c;
    return one_case(r, self, false, out);
}
static mica_status m_isupper(jr *r, jv self, jcall *c, jv *out) {
    (void)c;
    return one_case(r, self, true, out);
}

static mica_status m_istitle(jr *r, jv self, jcall *c, jv *out) {
    bool in_word = false, cased = false, good = true;
    (void)c;
    for (size_t i = 0; good && i < self.s->n;) {
        unsigned cp = jstr_cp(self.s, i, &i);
        bool up = ucase_is_upper(cp) || ucase_is_title(cp), low = ucase_is_lower(cp);
        good = !(up && in_word) && !(low && !in_word);
        in_word = up || low;
        cased |= in_word;
    }
    *out = jv_bool(good && cased);
    return jr_charge(r, self.s->n * 4);
}

static mica_status m_isidentifier(jr *r, jv self, jcall *c, jv *out) {
    bool good = self.s->n > 0;
    (void)c;
    for (size_t i = 0; good && i < self.s->n;) {
        bool first = i == 0;
        good = ucase_is_name(jstr_cp(self.s, i, &i), first);
    }
    *out = jv_bool(good);
    return jr_charge(r, self.s->n * 4);
}

/* ---- places ---- */

static mica_status need_str(jr *r, const char *what, jv v) {
    if (v.kind == JV_STR) return MICA_OK;
    if (v.kind == JV_UNDEF) return jr_fail(r, "%s must be str, not Undefined", what);
    return jr_fail(r, "%s must be str, not %s", what, jv_type(v));
}

/* Optional start and end in code points (slots i and i + 1), in bytes. any: false when start lies behind the
 * end. */
typedef struct window {
    size_t from, to;
    bool any;
} window;

static mica_status window_of(jr *r, jcall *c, int i, const jstr *s, window *w) {
    int64_t n = (int64_t)jstr_n_cp(s), begin = 0, end = n;
    if (jcall_has(c, i)) TRY(jcall_int(r, c, i, 0, &begin));
    if (jcall_has(c, i + 1)) TRY(jcall_int(r, c, i + 1, n, &end));
    if (end > n) end = n;
    if (end < 0) end = end + n < 0 ? 0 : end + n;
    if (begin < 0) begin = begin + n < 0 ? 0 : begin + n;
    w->any = begin <= end && begin <= n;
    w->from = jstr_at_cp(s, w->any ? (size_t)begin : 0);
    w->to = jstr_at_cp(s, w->any ? (size_t)end : 0);
    return jr_charge(r, s->n);
}

static mica_status charge_backwards(jr *r, const jstr *s, const jstr *sub) {
    return jr_charge(r, (s->n / 64 + 1) * (sub->n / 64 + 1) * 64);
}

static mica_status find(jr *r, jv self, jcall *c, bool back, int64_t *out) {
    size_t at;
    window w;
    *out = -1;
    TRY(need_str(r, "find argument 1", c->slot[0]));
    const jstr *sub = c->slot[0].s;
    TRY(window_of(r, c, 1, self.s, &w));
    if (back) TRY(charge_backwards(r, self.s, sub));
    bool hit = w.any && (back ? jstr_rfind(self.s, sub, w.from, w.to, &at)
                              : jstr_find(self.s, sub, w.from, w.to, &at));
    if (!hit) return MICA_OK;
    jstr head = *self.s;
    head.n = at;
    *out = (int64_t)jstr_n_cp(&head);
    return MICA_OK;
}

static mica_status find_or_fail(jr *r, jv self, jcall *c, bool back, jv *out) {
    int64_t at;
    TRY(find(r, self, c, back, &at));
    *out = jv_int(at);
    return at < 0 ? jr_fail(r, "substring not found") : MICA_OK;
}

static mica_status m_find(jr *r, jv self, jcall *c, jv *out) {
    out->kind = JV_INT;
    return find(r, self, c, false, &out->i);
}

static mica_status m_rfind(jr *r, jv self, jcall *c, jv *out) {
    out->kind = JV_INT;
    return find(r, self, c, true, &out->i);
}

static mica_status m_index(jr *r, jv self, jcall *c, jv *out) {
    return find_or_fail(r, self, c, false, out);
}
static mica_status m_rindex(jr *r, jv self, jcall *c, jv *out) {
    return find_or_fail(r, self, c, true, out);
}

static mica_status m_count(jr *r, jv self, jcall *c, jv *out) {
    size_t at;
    window w;
    int64_t n = 0;
    TRY(need_str(r, "count() argument 1", c->slot[0]));
    const jstr *sub = c->slot[0].s;
    TRY(window_of(r, c, 1, self.s, &w));
    if (w.any && !sub->n) {
        jstr part = *self.s;
        part.p += w.from;
        part.n = w.to - w.from;
        n = (int64_t)jstr_n_cp(&part) + 1;
    }
    while (w.any && sub->n && jstr_find(self.s, sub, w.from, w.to, &at)) {
        n++;
        w.from = at + sub->n;
    }
    *out = jv_int(n);
    return MICA_OK;
}

static mica_status matches_end(jr *r, jv self, jcall *c, bool tail, jv *out) {
    window w;
    bool hit = false;
    jv one = c->slot[0], *v = &one;
    size_t n = 1;
    if (one.kind == JV_TUPLE) {
        v = one.list->v;
        n = one.list->n;
    }
    TRY(window_of(r, c, 1, self.s, &w));
    for (size_t i = 0; i < n && !hit; i++) {
        if (v[i].kind != JV_STR)
            return jr_fail(r, "%s first arg must be str or a tuple of str, not %s",
                           tail ? "endswith" : "startswith", jv_type(v[i]));
        const jstr *x = v[i].s;
        hit = w.any && x->n <= w.to - w.from &&
              (!x->n || !memcmp(self.s->p + (tail ? w.to - x->n : w.from), x->p, x->n));
    }
    *out = jv_bool(hit);
    return MICA_OK;
}

static mica_status m_startswith(jr *r, jv self, jcall *c, jv *out) {
    return matches_end(r, self, c, false, out);
}
static mica_status m_endswith(jr *r, jv self, jcall *c, jv *out) {
    return matches_end(r, self, c, true, out);
}

/* ---- stripping ---- */

static bool strippable(const jstr *set, unsigned cp) {
    if (!set) return jinja_is_space(cp);
    for (size_t i = 0; i < set->n;)
        if (jstr_cp(set, i, &i) == cp) return true;
    return false;
}

mica_status jstr_strip(jr *r, jv *out, const jstr *s, jv chars, bool left, bool right) {
    size_t a = 0, b = s->n, at;
    bool given = chars.kind != JV_MISSING && chars.kind != JV_NONE;
    if (given) TRY(need_str(r, "strip arg", chars));
    const jstr *set = given ? chars.s : NULL;
    while (left && a < b && strippable(set, jstr_cp(s, a, &at))) a = at;
    while (right && b > a && strippable(set, jstr_cp_before(s, b, &at))) b = at;
    TRY(jr_charge(r, (s->n - (b - a)) * (set ? set->n + 1 : 1)));
    return jstr_sub(r, out, s, a, b);
}

static mica_status m_strip(jr *r, jv self, jcall *c, jv *out) {
    return jstr_strip(r, out, self.s, c->slot[0], true, true);
}
static mica_status m_lstrip(jr *r, jv self, jcall *c, jv *out) {
    return jstr_strip(r, out, self.s, c->slot[0], true, false);
}
static mica_status m_rstrip(jr *r, jv self, jcall *c, jv *out) {
    return jstr_strip(r, out, self.s, c->slot[0], false, true);
}

static mica_status m_removeprefix(jr *r, jv self, jcall *c, jv *out) {
    TRY(need_str(r, "removeprefix() argument", c->slot[0]));
    const jstr *x = c->slot[0].s;
    bool hit = slice_starts(jstr_slice(self.s), jstr_slice(x));
    return jstr_sub(r, out, self.s, hit ? x->n : 0, self.s->n);
}

static mica_status m_removesuffix(jr *r, jv self, jcall *c, jv *out) {
    TRY(need_str(r, "removesuffix() argument", c->slot[0]));
    const jstr *x = c->slot[0].s, *s = self.s;
    bool hit = x->n && x->n <= s->n && !memcmp(s->p + s->n - x->n, x->p, x->n);
    return jstr_sub(r, out, s, 0, hit ? s->n - x->n : s->n);
}

/* ---- splitting ---- */

static mica_status push_sub(jr *r, jlist *l, const jstr *s, size_t a, size_t b) {
    jv v;
    TRY(jstr_sub(r, &v, s, a, b));
    return jlist_push(r, l, v);
}

static mica_status split_space(jr *r, const jstr *s, int64_t max, jlist *l) {
    size_t i = 0, next;
    while (i < s->n) {
        if (jinja_is_space(jstr_cp(s, i, &next))) {
            i = next;
            continue;
        }
        size_t begin = i;
        if (max-- == 0) return push_sub(r, l, s, begin, s->n);
        while (i < s->n && !jinja_is_space(jstr_cp(s, i, &next))) i = next;
        TRY(push_sub(r, l, s, begin, i));
    }
    return MICA_OK;
}

static mica_status rsplit_space(jr *r, const jstr *s, int64_t max, jlist *l) {
    size_t i = s->n, before;
    while (i) {
        if (jinja_is_space(jstr_cp_before(s, i, &before))) {
            i = before;
            continue;
        }
        size_t end = i;
        if (max-- == 0) return push_sub(r, l, s, 0, end);
        while (i && !jinja_is_space(jstr_cp_before(s, i, &before))) i = before;
        TRY(push_sub(r, l, s, i, end));
    }
    return MICA_OK;
}

static mica_status split_by(jr *r, const jstr *s, const jstr *sep, int64_t max, jlist *l) {
    size_t from = 0, at;
    while (max-- != 0 && jstr_find(s, sep, from, s->n, &at)) {
        TRY(push_sub(r, l, s, from, at));
        from = at + sep->n;
    }
    return push_sub(r, l, s, from, s->n);
}

static mica_status rsplit_by(jr *r, const jstr *s, const jstr *sep, int64_t max, jlist *l) {
    size_t to = s->n, at;
    TRY(charge_backwards(r, s, sep));
    while (max-- != 0 && jstr_rfind(s, sep, 0, to, &at)) {
        TRY(push_sub(r, l, s, at + sep->n, to));
        to = at;
    }
    return push_sub(r, l, s, 0, to);
}

static mica_status split(jr *r, jv self, jcall *c, bool back, jv *out) {
    jlist *l;
    int64_t max;
    TRY(jcall_int(r, c, 1, -1, &max));
    TRY(jlist_new(r, &l, 4));
    TRY(jr_charge(r, self.s->n));
    *out = jv_list(l);
    if (max < 0) max = -1;
    if (!jcall_has(c, 0)) {
        TRY(back ? rsplit_space(r, self.s, max, l) : split_space(r, self.s, max, l));
    } else {
        TRY(need_str(r, "the separator", c->slot[0]));
        if (!c->slot[0].s->n) return jr_fail(r, "empty separator");
        TRY(back ? rsplit_by(r, self.s, c->slot[0].s, max, l) : split_by(r, self.s, c->slot[0].s, max, l));
    }
    for (size_t i = 0; back && i < l->n / 2; i++) {
        jv v = l->v[i];
        l->v[i] = l->v[l->n - 1 - i];
        l->v[l->n - 1 - i] = v;
    }
    return MICA_OK;
}

static mica_status m_split(jr *r, jv self, jcall *c, jv *out) {
    return split(r, self, c, false, out);
}
static mica_status m_rsplit(jr *r, jv self, jcall *c, jv *out) {
    return split(r, self, c, true, out);
}

static bool ends_line(unsigned cp) {
    return (cp >= 0x0A && cp <= 0x0D) || (cp >= 0x1C && cp <= 0x1E) || cp == 0x85 || cp == 0x2028 ||
           cp == 0x2029;
}

mica_status jstr_splitlines(jr *r, jlist **out, const jstr *s, bool keep_ends) {
    size_t begin = 0, next;
    TRY(jlist_new(r, out, 4));
    for (size_t i = 0; i < s->n; i = next) {
        unsigned cp = jstr_cp(s, i, &next);
        if (!ends_line(cp)) continue;
        if (cp == '\r' && next < s->n && s->p[next] == '\n') next++;
        TRY(push_sub(r, *out, s, begin, keep_ends ? next : i));
        begin = next;
    }
    TRY(jr_charge(r, s->n));
    return begin < s->n ? push_sub(r, *out, s, begin, s->n) : MICA_OK;
}

static mica_status m_splitlines(jr *r, jv self, jcall *c, jv *out) {
    out->kind = JV_LIST;
    return jstr_splitlines(r, &out->list, self.s, jv_truth(c->slot[0]));
}

static mica_status partition(jr *r, jv self, jcall *c, bool back, jv *out) {
    jlist *l;
    size_t at = 0;
    const jstr *s = self.s;
    TRY(need_str(r, "the separator", c->slot[0]));
    const jstr *sep = c->slot[0].s;
    if (!sep->n) return jr_fail(r, "empty separator");
    TRY(back ? charge_backwards(r, s, sep) : jr_charge(r, s->n));
    bool hit = back ? jstr_rfind(s, sep, 0, s->n, &at) : jstr_find(s, sep, 0, s->n, &at);
    size_t a = hit ? at : back ? 0 : s->n, b = hit ? at + sep->n : a;
    TRY(jlist_new(r, &l, 3));
    TRY(push_sub(r, l, s, 0, a));
    TRY(push_sub(r, l, s, a, b));
    TRY(push_sub(r, l, s, b, s->n));
    *out = jv_tuple(l);
    return MICA_OK;
}

static mica_status m_partition(jr *r, jv self, jcall *c, jv *out) {
    return partition(r, self, c, false, out);
}
static mica_status m_rpartition(jr *r, jv self, jcall *c, jv *out) {
    return partition(r, self, c, true, out);
}

/* ---- putting together ---- */

mica_status jstr_join(jr *r, jv *out, const jstr *sep, jlist *item) {
    jtext t = {0};
    for (size_t i = 0; i < item->n; i++) {
        jv v = item->v[i];
        if (v.kind != JV_STR)
            return jr_fail(r, "sequence item %zu: expected str instance, %s found", i, jv_type(v));
        if (i) TRY(jtext_str(r, &t, sep));
        TRY(jtext_str(r, &t, v.s));
    }
    return jtext_done(r, &t, out);
}

static mica_status m_join(jr *r, jv self, jcall *c, jv *out) {
    jlist *l;
    if (!jv_iterable(c->slot[0])) return jr_fail(r, "can only join an iterable");
    TRY(jlist_of(r, c->slot[0], &l));
    if (self.s->markup) {
        jlist *escaped;
        TRY(jlist_new(r, &escaped, l->n));
        for (size_t i = 0; i < l->n; i++) TRY(jstr_escape(r, &escaped->v[i], l->v[i]));
        escaped->n = l->n;
        l = escaped;
    }
    return jstr_join(r, out, self.s, l);
}

mica_status jstr_replace(jr *r, jv *out, const jstr *s, const jstr *from, const jstr *to, int64_t count) {
    jtext t = {0};
    size_t done = 0, at = 0;
    TRY(jr_charge(r, s->n));
    if (count < 0) count = INT64_MAX;
    if (!from->n) { // between all code points, and at both ends
        for (size_t next; count-- > 0; done = next) {
            TRY(jtext_str(r, &t, to));
            if (done == s->n) return jtext_done(r, &t, out);
            jstr_cp(s, done, &next);
            TRY(jtext_sub(r, &t, s, done, next));
        }
    }
    while (from->n && count-- > 0 && jstr_find(s, from, done, s->n, &at)) {
        TRY(jtext_sub(r, &t, s, done, at));
        TRY(jtext_str(r, &t, to));
        done = at + from->n;
    }
    TRY(jtext_sub(r, &t, s, done, s->n));
    return jtext_done(r, &t, out);
}

static mica_status m_replace(jr *r, jv self, jcall *c, jv *out) {
    int64_t count;
    jv to = c->slot[1];
    TRY(need_str(r, "replace() argument 1", c->slot[0]));
    TRY(need_str(r, "replace() argument 2", to));
    TRY(jcall_int(r, c, 2, -1, &count));
    if (self.s->markup) TRY(jstr_escape(r, &to, to));
    return jstr_replace(r, out, self.s, c->slot[0].s, to.s, count);
}

static mica_status pad(jr *r, jv *out, const jstr *s, int64_t left, int64_t right, const jstr *fill) {
    jtext t = {0};
    TRY(jtext_fill(r, &t, fill, left));
    TRY(jtext_str(r, &t, s));
    TRY(jtext_fill(r, &t, fill, right));
    return jtext_done(r, &t, out);
}

mica_status jstr_center(jr *r, jv *out, const jstr *s, int64_t width, const jstr *fill) {
    int64_t n = width - (int64_t)jstr_n_cp(s);
    if (n < 0) n = 0;
    int64_t left = n / 2 + (n & width & 1);
    return pad(r, out, s, left, n - left, fill);
}

static const jstr BLANK = {.p = " ", .n = 1, .ascii = true}, ZERO = {.p = "0", .n = 1, .ascii = true};

static mica_status pad_args(jr *r, jv self, jcall *c, int64_t *width, int64_t *n, const jstr **fill) {
    *fill = &BLANK;
    *n = 0;
    TRY(jcall_int(r, c, 0, 0, width));
    if (c->slot[1].kind != JV_MISSING) {
        if (c->slot[1].kind != JV_STR || jstr_n_cp(c->slot[1].s) != 1)
            return jr_fail(r, "The fill character must be exactly one character long");
        *fill = c->slot[1].s;
    }
    *n = *width - (int64_t)jstr_n_cp(self.s);
    if (*n < 0) *n = 0;
    return MICA_OK;
}

static mica_status m_center(jr *r, jv self, jcall *c, jv *out) {
    int64_t width, n;
    const jstr *fill;
    TRY(pad_args(r, self, c, &width, &n, &fill));
    return jstr_center(r, out, self.s, width, fill);
}

static mica_status m_ljust(jr *r, jv self, jcall *c, jv *out) {
    int64_t width, n;
    const jstr *fill;
    TRY(pad_args(r, self, c, &width, &n, &fill));
    return pad(r, out, self.s, 0, n, fill);
}

static mica_status m_rjust(jr *r, jv self, jcall *c, jv *out) {
    int64_t width, n;
    const jstr *fill;
    TRY(pad_args(r, self, c, &width, &n, &fill));
    return pad(r, out, self.s, n, 0, fill);
}

static mica_status m_zfill(jr *r, jv self, jcall *c, jv *out) {
    int64_t width;
    jtext t = {0};
    const jstr *s = self.s;
    TRY(jcall_int(r, c, 0, 0, &width));
    size_t sign = s->n && (s->p[0] == '-' || s->p[0] == '+');
    TRY(jtext_sub(r, &t, s, 0, sign));
    TRY(jtext_fill(r, &t, &ZERO, width - (int64_t)jstr_n_cp(s)));
    TRY(jtext_sub(r, &t, s, sign, s->n));
    return jtext_done(r, &t, out);
}

static mica_status m_expandtabs(jr *r, jv self, jcall *c, jv *out) {
    int64_t size, column = 0;
    jtext t = {0};
    const jstr *s = self.s;
    TRY(jcall_int(r, c, 0, 8, &size));
    for (size_t i = 0, next; i < s->n; i = next) {
        unsigned cp = jstr_cp(s, i, &next);
        if (cp == '\t') {
            int64_t n = size > 0 ? size - column % size : 0;
            TRY(jtext_fill(r, &t, &BLANK, n));
            column += n;
            continue;
        }
        column = cp == '\n' || cp == '\r' ? 0 : column + 1;
        TRY(jtext_sub(r, &t, s, i, next));
    }
    return jtext_done(r, &t, out);
}

static mica_status m_format(jr *r, jv self, jcall *c, jv *out) {
    return jformat_format(r, self.s, c, out);
}

/* ---- numbers ---- */

static int digit(char ch) {
    if (ch >= '0' && ch <= '9') return ch - '0';
    if (ch >= 'a' && ch <= 'z') return ch - 'a' + 10;
    return ch >= 'A' && ch <= 'Z' ? ch - 'A' + 10 : 99;
}

/* int(text, base). MICA_E_ARG: not a number; MICA_E_UNSUPPORTED: more than 64 bits. No text is made. */
mica_status jstr_parse_int(const jstr *s, int base, int64_t *out) {
    size_t a = 0, b = s->n, at;
    uint64_t v = 0;
    while (a < b && jinja_is_space(jstr_cp(s, a, &at))) a = at;
    while (b > a && jinja_is_space(jstr_cp_before(s, b, &at))) b = at;
    bool negative = a < b && s->p[a] == '-', any = false, under = false, zero = false;
    if (a < b && (s->p[a] == '-' || s->p[a] == '+')) a++;
    if (a + 1 < b && s->p[a] == '0') {
        char x = (char)(s->p[a + 1] | 0x20);
        int prefix = x == 'x' ? 16 : x == 'o' ? 8 : x == 'b' ? 2 : 0;
        if (prefix && (base == prefix || base == 0)) {
            a += 2;
            base = prefix;
            if (a < b && s->p[a] == '_') a++;
        }
    }
    if (base == 0) {
        zero = a < b && s->p[a] == '0';
        base = 10;
    }
    for (; a < b; a++) {
        if (s->p[a] == '_' && any && !under) {
            under = true;
            continue;
        }
        int d = digit(s->p[a]);
        if (d >= base) return MICA_E_ARG;
        if (zero && d) return MICA_E_ARG; // int("012", 0)
        if (__builtin_mul_overflow(v, (uint64_t)base, &v) || __builtin_add_overflow(v, (uint64_t)d, &v))
            return MICA_E_UNSUPPORTED;
        any = true;
        under = false;
    }
    if (!any || under) return MICA_E_ARG;
    if (v > (uint64_t)INT64_MAX) return MICA_E_UNSUPPORTED;
    *out = negative ? -(int64_t)v : (int64_t)v;
    return MICA_OK;
}

/* float(text): a sign, digits with single underscores, a fraction, an exponent; or inf, infinity, nan. */
bool jstr_parse_float(jr *r, const jstr *s, double *out) {
    char buf[512], *end;
    size_t n = 0;
    jv v;
    if (jstr_strip(r, &v, s, (jv){0}, true, true) != MICA_OK) return false;
    for (size_t i = 0; i < v.s->n; i++) {
        char ch = v.s->p[i];
        bool word = strchr("infatyINFATY", ch ? ch : '?') != NULL;
        if (ch == '_') {
            bool between = i && i + 1 < v.s->n && digit(v.s->p[i - 1]) < 10 && digit(v.s->p[i + 1]) < 10;
            if (!between) return false;
            continue;
        }
        if (digit(ch) >= 10 && !word && (ch == 0 || !strchr("+-.eE", ch))) return false;
        if (n + 1 >= sizeof buf) return false;
        buf[n++] = ch;
    }
    buf[n] = 0;
    if (!n || strpbrk(buf, "(xXpP")) return false;
    *out = strtod(buf, &end);
    return *end == 0;
}

const jbuiltin *jstr_method_find(slice name) {
    static const jbuiltin table[] = {
        {"capitalize", m_capitalize, "/"},
        {"casefold", m_casefold, "/"},
        {"center", m_center, "/width fillchar?"},
        {"count", m_count, "/sub start? end?"},
        {"encode", NULL, NULL},
        {"endswith", m_endswith, "/suffix start? end?"},
        {"expandtabs", m_expandtabs, "tabsize?"},
        {"find", m_find, "/sub start? end?"},
        {"format", m_format, NULL},
        {"format_map", NULL, NULL},
        {"index", m_index, "/sub start? end?"},
        {"isalnum", m_isalnum, "/"},
        {"isalpha", m_isalpha, "/"},
        {"isascii", m_isascii, "/"},
        {"isdecimal", m_isdecimal, "/"},
        {"isdigit", m_isdigit, "/"},
        {"isidentifier", m_isidentifier, "/"},
        {"islower", m_islower, "/"},
        {"isnumeric", m_isnumeric, "/"},
        {"isprintable", m_isprintable, "/"},
        {"isspace", m_isspace, "/"},
        {"istitle", m_istitle, "/"},
        {"isupper", m_isupper, "/"},
        {"join", m_join, "/iterable"},
        {"ljust", m_ljust, "/width fillchar?"},
        {"lower", m_lower, "/"},
        {"lstrip", m_lstrip, "/chars?"},
        {"maketrans", NULL, NULL},
        {"partition", m_partition, "/sep"},
        {"removeprefix", m_removeprefix, "/prefix"},
        {"removesuffix", m_removesuffix, "/suffix"},
        {"replace", m_replace, "/old new count?"},
        {"rfind", m_rfind, "/sub start? end?"},
        {"rindex", m_rindex, "/sub start? end?"},
        {"rjust", m_rjust, "/width fillchar?"},
        {"rpartition", m_rpartition, "/sep"},
        {"rsplit", m_rsplit, "sep? maxsplit?"},
        {"rstrip", m_rstrip, "/chars?"},
        {"split", m_split, "sep? maxsplit?"},
        {"splitlines", m_splitlines, "keepends?"},
        {"startswith", m_startswith, "/prefix start? end?"},
        {"strip", m_strip, "/chars?"},
        {"swapcase", m_swapcase, "/"},
        {"title", m_title, "/"},
        {"translate", NULL, NULL},
        {"upper", m_upper, "/"},
        {"zfill", m_zfill, "/width"},
    };
    return jbuiltin_find(table, sizeof table / sizeof *table, name);
}
