/* Numbers: digits whose value is in bounds, by taking the bounds' digits apart.
 *
 * The numbers of n digits from a to b are: those that share a's first digit and are at least a behind it,
 * those whose first digit lies between, and those that share b's first digit and are at most b behind it.
 * Whole parts have up to 18 digits, so that every reader can hold them. */
#include "text/schema_int.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#define WHOLE_MAX 999999999999999999ll // 18 nines

static gram_expr digit_range(gram *g, char lo, char hi) {
    return gram_class_of(g, &(gram_range){(uint32_t)lo, (uint32_t)hi}, 1, false);
}

static gram_expr any_digits(gram *g, uint32_t lo, uint32_t hi) {
    return gram_repeat(g, digit_range(g, '0', '9'), lo, hi);
}

static gram_expr two(gram *g, gram_expr a, gram_expr b) {
    gram_push(g, a);
    gram_push(g, b);
    return gram_seq(g, 2);
}

/* n digits, at least (or at most) those of d. */
static gram_expr digits_from(gram *g, const char *d, uint32_t n, bool at_least) {
    uint32_t n_alt = 1;
    if (n == 0) return gram_seq(g, 0);
    if (at_least ? d[0] < '9' : d[0] > '0') {
        const gram_expr first =
            at_least ? digit_range(g, (char)(d[0] + 1), '9') : digit_range(g, '0', (char)(d[0] - 1));
        gram_push(g, two(g, first, any_digits(g, n - 1, n - 1)));
        n_alt++;
    }
    gram_push(g, two(g, digit_range(g, d[0], d[0]), digits_from(g, d + 1, n - 1, at_least)));
    return gram_alt(g, n_alt);
}

static gram_expr digits_between(gram *g, const char *a, const char *b, uint32_t n) {
    uint32_t n_alt = 2;
    if (n == 0) return gram_seq(g, 0);
    if (a[0] == b[0]) return two(g, digit_range(g, a[0], a[0]), digits_between(g, a + 1, b + 1, n - 1));
    gram_push(g, two(g, digit_range(g, a[0], a[0]), digits_from(g, a + 1, n - 1, true)));
    gram_push(g, two(g, digit_range(g, b[0], b[0]), digits_from(g, b + 1, n - 1, false)));
    if (b[0] - a[0] > 1) {
        gram_push(g, two(g, digit_range(g, (char)(a[0] + 1), (char)(b[0] - 1)), any_digits(g, n - 1, n - 1)));
        n_alt++;
    }
    return gram_alt(g, n_alt);
}

/* Whole numbers from a to b, 0 <= a <= b <= WHOLE_MAX, without leading zeros. */
static gram_expr whole_between(gram *g, int64_t a, int64_t b) {
    uint32_t n_alt = 0;
    int64_t low = 0, high = 9;
    for (uint32_t n = 1; n <= SCHEMA_MAX_DIGITS; n++) { // of each number of digits its part
        const int64_t from = a > low ? a : low, to = b < high ? b : high;
        char x[32], y[32];
        if (from <= to) {
            snprintf(x, sizeof x, "%" PRId64, from);
            snprintf(y, sizeof y, "%" PRId64, to);
            gram_push(g, digits_between(g, x, y, n));
            n_alt++;
        }
        low = high + 1;
        if (n < SCHEMA_MAX_DIGITS) high = high * 10 + 9;
    }
    if (n_alt == 0)
        gram_fail(g, MICA_E_ARG, "schema: %" PRId64 " is more than %d digits", a, SCHEMA_MAX_DIGITS);
    return gram_alt(g, n_alt);
}

/* ---- bounds ---- */

typedef struct bounds {
    bool has_lo, has_hi, lo_open, hi_open; // open: the bound itself is out
    int64_t lo, hi;
} bounds;

/* true: *out got the bound. One that is no whole number, or too large, is refused for numbers; for integers
 * it is moved to the next whole one inside. */
static bool read_bound(schema *s, const json_t *j, const char *key, bool integer, int64_t *out) {
    const json_t *v = json_object_get(j, key);
    if (!v) return false;
    if (!json_is_number(v)) {
        schema_refuse(s, key, "is no number");
        return false;
    }
    const double d = json_number_value(v);
    const bool low = strstr(key, "inimum") != NULL, open = key[0] == 'e';
    const json_int_t whole = json_integer_value(v); // 0: it is none
    const bool over = whole > WHOLE_MAX || whole < -WHOLE_MAX;
    if (over || (!json_is_integer(v) && fabs(d) >= 1e18)) { // WHOLE_MAX is no double
        if (low == (d < 0)) return false;                   // nothing is beyond it anyway
        schema_refuse(s, key, "leaves no number of 18 digits");
        return false;
    }
    if (json_is_integer(v)) {
        *out = whole;
        return true;
    }
    if (d != floor(d)) {
        if (!integer) {
            schema_unsupported(s, key);
            return false;
        }
        // 2.5 <= x is 3 <= x, and x > 2.5 is x > 2
        *out = (int64_t)(low != open ? ceil(d) : floor(d));
        return true;
    }
    *out = (int64_t)d;
    return true;
}

static void narrow(bounds *b, bool low, int64_t v, bool open) {
    if (low && (!b->has_lo || v > b->lo || (v == b->lo && open))) {
        b->lo = v;
        b->lo_open = open;
        b->has_lo = true;
    }
    if (!low && (!b->has_hi || v < b->hi || (v == b->hi && open))) {
        b->hi = v;
        b->hi_open = open;
        b->has_hi = true;
    }
}

static bounds read_bounds(schema *s, const json_t *j, bool integer) {
    static const char *const key[] = {"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"};
    bounds b = {0};
    for (int i = 0; i < 4; i++) {
        int64_t v;
        const json_t *given = json_object_get(j, key[i]);
        bool open = i & 1;
        if (open && json_is_boolean(given)) continue; // of draft 4: read with the bound it belongs to
        if (!read_bound(s, j, key[i], integer, &v)) continue;
        if (!open) open = json_is_true(json_object_get(j, key[i + 1]));
        narrow(&b, i < 2, v, open);
    }
    if (integer && b.lo_open) b.lo++;
    if (integer && b.hi_open) b.hi--;
    if (integer) b.lo_open = b.hi_open = false;
    return b;
}

/* ---- parts of a number ---- */

static gram_expr fraction(gram *g) {
    return two(g, schema_lit(g, "."), any_digits(g, 1, 16));
}

static gram_expr fraction_above_zero(gram *g) {
    gram_push(g, schema_lit(g, "."));
    gram_push(g, gram_repeat(g, schema_lit(g, "0"), 0, 15));
    gram_push(g, digit_range(g, '1', '9'));
    gram_push(g, any_digits(g, 0, 15));
    return gram_seq(g, 4);
}

static gram_expr fraction_of_zeros(gram *g) {
    return two(g, schema_lit(g, "."), gram_repeat(g, schema_lit(g, "0"), 1, 16));
}

/* Sizes from lo to hi, 0 <= lo, with a fraction when it is no integer: [lo, hi) with any, hi with none. */
static uint32_t push_size(gram *g, bounds b, bool integer) {
    uint32_t n = 0;
    if (integer) {
        if (b.lo > b.hi) return 0;
        gram_push(g, whole_between(g, b.lo, b.hi));
        return 1;
    }
    if (b.lo_open && b.lo < b.hi) {
        gram_push(g, two(g, whole_between(g, b.lo, b.lo), fraction_above_zero(g)));
        n++;
    }
    const int64_t from = b.lo + b.lo_open;
    if (from < b.hi) {
        gram_push(g, two(g, whole_between(g, from, b.hi - 1), gram_repeat(g, fraction(g), 0, 1)));
        n++;
    }
    if (!b.hi_open && from <= b.hi) {
        gram_push(g, two(g, whole_between(g, b.hi, b.hi), gram_repeat(g, fraction_of_zeros(g), 0, 1)));
        n++;
    }
    return n;
}

static gram_expr bounded(schema *s, bounds b, bool integer) {
    gram *g = s->g;
    uint32_t n_alt = 0;
    if (!b.has_lo) b.lo = -WHOLE_MAX;
    if (!b.has_hi) b.hi = WHOLE_MAX;
    if (b.hi > 0 || (b.hi == 0 && !b.hi_open)) { // what has no sign
        bounds p = b;
        if (p.lo < 0) p.lo = 0, p.lo_open = false;
        const uint32_t n = push_size(g, p, integer);
        if (n) gram_push(g, gram_alt(g, n));
        n_alt += n > 0;
    }
    if (b.lo < 0) { // a minus and the size
        bounds m = {.lo = b.hi < 0 ? -b.hi : 0, .hi = -b.lo, .hi_open = b.lo_open};
        m.lo_open = b.hi < 0 ? b.hi_open : !integer; // -0 is 0 and there already
        if (integer && m.lo == 0) m.lo = 1;
        const uint32_t n = push_size(g, m, integer);
        if (n) gram_push(g, two(g, schema_lit(g, "-"), gram_alt(g, n)));
        n_alt += n > 0;
    }
    if (n_alt) return gram_alt(g, n_alt);
    schema_refuse(s, "minimum", "and maximum leave no number");
    return 0;
}

static gram_expr plain(gram *g, bool integer) {
    gram_push(g, gram_repeat(g, schema_lit(g, "-"), 0, 1));
    gram_push(g, schema_lit(g, "0"));
    gram_push(g, two(g, digit_range(g, '1', '9'), any_digits(g, 0, SCHEMA_MAX_DIGITS - 1)));
    gram_push(g, gram_alt(g, 2));
    if (integer) return gram_seq(g, 2);
    gram_push(g, gram_repeat(g, fraction(g), 0, 1));
    gram_push(g, gram_class_of(g, (gram_range[]){{'e', 'e'}, {'E', 'E'}}, 2, false));
    gram_push(g, gram_repeat(g, gram_class_of(g, (gram_range[]){{'+', '+'}, {'-', '-'}}, 2, false), 0, 1));
    gram_push(g, any_digits(g, 1, 2));
    gram_push(g, gram_repeat(g, gram_seq(g, 3), 0, 1));
    return gram_seq(g, 4);
}

gram_expr schema_plain_number(gram *g, bool integer) {
    const uint32_t rule = gram_rule_named(g, integer ? SLICE_LIT("an integer") : SLICE_LIT("a number"));
    if (g->st == MICA_OK && g->rule[rule].body == GRAM_NONE) gram_define(g, rule, plain(g, integer));
    return gram_call(g, rule);
}

gram_expr schema_number(schema *s, const json_t *j, bool integer) {
    const bounds b = read_bounds(s, j, integer);
    const json_t *multiple = json_object_get(j, "multipleOf");
    if (multiple && !(integer && json_number_value(multiple) == 1)) schema_unsupported(s, "multipleOf");
    if (!b.has_lo && !b.has_hi) return schema_plain_number(s->g, integer);
    return bounded(s, b, integer);
}
