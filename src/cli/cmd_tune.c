/* `mica tune`: what is fastest on this machine, measured once and kept. */
#include "cli/command.h"
#include "cli/exit.h"
#include "cli/open.h"
#include "cli/print.h"
#include "cli/term.h"

#include "base/status.h"
#include "mica_tools.h"

#include <stdlib.h>

static void put_number(table *t, const json_t *v, const char *key) {
    const json_t *n = json_object_get(v, key);
    if (json_is_integer(n))
        table_put(t, "%lld", (long long)json_integer_value(n));
    else if (json_is_number(n))
        table_put(t, "%.1f", json_number_value(n));
    else
        table_put(t, "-");
}

/* What was tried, the best of each kind marked. */
static mica_status put_measured(const json_t *v, mica_error *err) {
    const json_t *best = json_object_get(v, "best");
    table t = {.n_col = 5};
    size_t i;
    json_t *row;
    table_put(&t, "what");
    table_put(&t, "value");
    table_put(&t, "prompt t/s");
    table_put(&t, "answer t/s");
    table_put(&t, "%s", "");
    json_array_foreach(json_object_get(v, "measured"), i, row) {
        const char *what = member_text(row, "what");
        table_put(&t, "%s", what);
        put_number(&t, row, "value");
        put_number(&t, row, "prompt_tps");
        put_number(&t, row, "decode_tps");
        table_put(&t, "%s",
                  json_equal(json_object_get(best, what), json_object_get(row, "value")) ? "<" : "");
    }
    mica_status st = table_print(stdout, &t, err);
    table_fini(&t);
    return st;
}

static mica_status put_result(const char *text, mica_error *err) {
    json_t *v;
    TRY(print_parse(&v, text, err));
    mica_status st = put_measured(v, err);
    printf("\n%s\n%s\nkept in %s: used from now on, `mica tune --erase` forgets it\n",
           member_text(v, "model"), member_text(v, "machine"), member_text(v, "path"));
    json_decref(v);
    return st;
}

static mica_status put_list(const char *text, mica_error *err) {
    json_t *list, *v;
    size_t i;
    TRY(print_parse(&list, text, err));
    if (json_array_size(list) == 0) term_note("nothing is kept: `mica tune MODEL` measures");
    json_array_foreach(list, i, v) {
        static const char *const names[] = {"threads", "ubatch", "draft"};
        printf("%s%s\n  %s\n ", i ? "\n" : "", member_text(v, "model"), member_text(v, "machine"));
        for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
            const json_t *n = json_object_get(json_object_get(v, "best"), names[k]);
            if (json_is_integer(n)) printf(" %s %lld", names[k], (long long)json_integer_value(n));
        }
        printf("\n  %s\n", member_text(v, "path"));
    }
    json_decref(list);
    return MICA_OK;
}

static mica_status list(const options *o, mica_error *err) {
    char *text;
    mica_status st = MICA_OK;
    TRY(mica_tuned_list(&text, err));
    if (o->json)
        print_json_text(text);
    else
        st = put_list(text, err);
    mica_text_free(text);
    return st;
}

static mica_status erase(const mica_load_options *lo, bool json, mica_error *err) {
    uint32_t n;
    TRY(mica_tuned_erase(&n, lo, err));
    if (json) {
        json_t *v = json_pack("{s:i}", "erased", (int)n);
        print_json(v);
        json_decref(v);
    } else {
        term_note("%u forgotten", n);
    }
    return MICA_OK;
}

/* Other programs' work would be measured too. */
static void warn_when_busy(void) {
    double load;
    if (getloadavg(&load, 1) == 1 && load > 1)
        term_note("the machine is busy (load %.1f): what is measured now may not hold later", load);
}

static mica_status measure(mica_load_options *lo, bool json, mica_error *err) {
    progress bar = {0};
    char *text;
    warn_when_busy();
    lo->progress = progress_show;
    lo->progress_user = &bar;
    interrupt_set_mode(INTERRUPT_WINDS_UP); // a step may be long; what is kept is written whole or not at all
    mica_status st = mica_tune(&text, lo, err);
    progress_end(&bar);
    if (st != MICA_OK) return st;
    if (json)
        print_json_text(text);
    else
        st = put_result(text, err);
    mica_text_free(text);
    return st;
}

mica_status cmd_tune(const options *o, mica_error *err) {
    mica_status st = MICA_OK;
    char *path = NULL;
    mica_load_options lo;
    if (o->list && o->erase) return fail(err, MICA_E_ARG, "--list: given beside --erase: one of them");
    if (o->list) return list(o, err);
    if (o->erase && !o->model && !o->hf) return erase(NULL, o->json, err);
    TRY_GOTO(open_path(&path, o, err), done);
    TRY_GOTO(open_flags(&lo, o, path, err), done);
    st = o->erase ? erase(&lo, o->json, err) : measure(&lo, o->json, err);
done:
    mica_text_free(path);
    return st;
}
