/* Sizes in powers of 1,024, counts in powers of 1,000, three significant digits each. */
#include "cli/print.h"

#include "base/mem.h"
#include "base/status.h"

#include <string.h>

static char *print_scaled(char out[16], uint64_t n, uint64_t step, const char *const *units, int n_unit) {
    if (n < step) {
        snprintf(out, 16, "%u%s", (unsigned)n, units[0]);
        return out;
    }
    double v = (double)n;
    int u = 0;
    while (v >= (double)step - 0.5 && u + 1 < n_unit) {
        v /= (double)step;
        u++;
    }
    snprintf(out, 16, v < 9.995 ? "%.2f%s" : v < 99.95 ? "%.1f%s" : "%.0f%s", v, units[u]);
    return out;
}

char *print_bytes(char out[16], uint64_t n_bytes) {
    static const char *const units[] = {" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"};
    return print_scaled(out, n_bytes, 1024, units, 7);
}

char *print_count(char out[16], uint64_t n) {
    static const char *const units[] = {"", " K", " M", " B", " T"};
    return print_scaled(out, n, 1000, units, 5);
}

/* ---- Tables ---- */

void table_put(table *t, const char *fmt, ...) {
    va_list ap;
    char cell[400];
    va_start(ap, fmt);
    vsnprintf(cell, sizeof cell, fmt, ap);
    va_end(ap);
    strbuf_put(&t->cells, cell, strlen(cell) + 1);
    t->n_cell++;
}

/* Code points, which is what a column of a terminal holds for the texts that occur here. */
static size_t display_width(const char *s) {
    size_t n = 0;
    for (; *s; s++) n += ((unsigned char)*s & 0xC0) != 0x80;
    return n;
}

static bool looks_like_number(const char *s) {
    if (!*s || strcmp(s, "-") == 0) return true; // "-" stands for "none"
    return strchr("0123456789", s[0]) || (s[0] == '-' && strchr("0123456789", s[1]));
}

enum { TABLE_COL_MAX = 12 };

typedef struct column {
    size_t width;
    bool right;
} column;

static void measure_columns(const table *t, column cols[TABLE_COL_MAX]) {
    const char *s = t->cells.p;
    for (size_t i = 0; i < TABLE_COL_MAX; i++) cols[i] = (column){0, true};
    for (size_t i = 0; i < t->n_cell; i++, s += strlen(s) + 1) {
        column *c = &cols[i % t->n_col];
        const size_t w = display_width(s);
        if (w > c->width) c->width = w;
        if (i >= t->n_col && !looks_like_number(s)) c->right = false; // the first row is the head
    }
}

mica_status table_print(FILE *to, table *t, mica_error *err) {
    mica_status st = MICA_OK;
    column cols[TABLE_COL_MAX];
    if (t->cells.failed) st = fail(err, MICA_E_NOMEM, "table: %zu cells: out of memory", t->n_cell);
    if (st == MICA_OK && t->n_cell > 0) {
        measure_columns(t, cols);
        const char *s = t->cells.p;
        for (size_t i = 0; i < t->n_cell; i++, s += strlen(s) + 1) {
            const size_t col = i % t->n_col;
            const bool last = col + 1 == t->n_col;
            const int pad = (int)(cols[col].width - display_width(s));
            if (cols[col].right)
                fprintf(to, "%*s%s", pad, "", s);
            else
                fprintf(to, "%s%*s", s, last ? 0 : pad, ""); // no blanks at the end of a line
            fputs(last ? "\n" : "  ", to);
        }
    }
    strbuf_clear(&t->cells);
    t->n_cell = 0;
    return st;
}

void table_fini(table *t) {
    strbuf_fini(&t->cells);
}

/* ---- JSON ---- */

static bool g_began;

bool print_json_began(void) {
    return g_began;
}

void print_json_text(const char *json) {
    g_began = true;
    fputs(json, stdout);
    putchar('\n');
}

mica_status print_parse(json_t **out, const char *json, mica_error *err) {
    json_error_t why;
    *out = json_loads(json, JSON_DECODE_ANY | JSON_ALLOW_NUL, &why);
    if (*out) return MICA_OK;
    return fail(err, MICA_E_INTERNAL, "result: not JSON at byte %d: %s", why.position, why.text);
}

const char *member_text(const json_t *o, const char *key) {
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

uint64_t member_u64(const json_t *o, const char *key) {
    const json_t *v = json_object_get(o, key);
    const json_int_t n = json_integer_value(v);
    return n < 0 ? 0 : (uint64_t)n;
}

double member_real(const json_t *o, const char *key) {
    return json_number_value(json_object_get(o, key));
}

bool member_true(const json_t *o, const char *key) {
    return json_is_true(json_object_get(o, key));
}

void print_json_error(int exit_code, const char *message) {
    json_t *v = json_pack("{s:s, s:i, s:s}", "type", "error", "exit_code", exit_code, "message", message);
    if (v) print_json(v);
    json_decref(v);
}

void print_json(const json_t *value) {
    g_began = true;
    json_dumpf(value, stdout, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
    putchar('\n');
}
