/* `mica pull`, `mica list`, `mica rm`: the models of the cache folder. */
#include "cli/command.h"
#include "cli/exit.h"
#include "cli/print.h"
#include "cli/term.h"

#include "base/status.h"
#include "mica_tools.h"

mica_status cmd_pull(const options *o, mica_error *err) {
    progress bar = {0};
    char *path = NULL;
    const mica_pull_options pull = {
        .what = o->args.p[0], .cancel = interrupt_flag(), .progress = progress_show, .progress_user = &bar};
    interrupt_set_mode(INTERRUPT_WINDS_UP); // the part that came is kept in order
    mica_status st = mica_pull(&path, &pull, err);
    progress_end(&bar);
    if (st == MICA_OK && o->json) {
        json_t *v = json_pack("{s:s}", "path", path);
        if (v)
            print_json(v);
        else // jansson takes UTF-8 alone
            st = fail(err, MICA_E_ARG, "%s: no UTF-8: its path has no JSON form", path);
        json_decref(v);
    } else if (st == MICA_OK) {
        puts(path);
    }
    mica_text_free(path);
    return st;
}

mica_status cmd_list(const options *o, mica_error *err) {
    mica_status st = MICA_OK;
    char *text = NULL;
    json_t *list = NULL, *v;
    size_t i;
    table t = {.n_col = 3};
    TRY_GOTO(mica_list(&text, err), done);
    if (o->json) {
        print_json_text(text);
        goto done;
    }
    TRY_GOTO(print_parse(&list, text, err), done);
    if (json_array_size(list) == 0) {
        term_note("no models yet: `mica pull smollm2-135m` downloads a small one");
        goto done;
    }
    table_put(&t, "name");
    table_put(&t, "size");
    table_put(&t, "path");
    json_array_foreach(list, i, v) {
        char size[16];
        table_put(&t, "%s", member_text(v, "name"));
        table_put(&t, "%s%s", print_bytes(size, member_u64(v, "bytes")),
                  member_true(v, "complete") ? "" : " (partial)");
        table_put(&t, "%s", member_text(v, "path"));
    }
    st = table_print(stdout, &t, err);
done:
    table_fini(&t);
    json_decref(list);
    mica_text_free(text);
    return st;
}

/* All names, even when one of them is unknown; the first failure is the result. */
mica_status cmd_rm(const options *o, mica_error *err) {
    mica_status st = MICA_OK;
    for (size_t i = 0; i < o->args.n; i++) {
        char size[16];
        uint64_t freed = 0;
        mica_error why = {0};
        const mica_status one = mica_remove(o->args.p[i], &freed, &why);
        if (one == MICA_OK) {
            term_note("%s: removed, %s freed", o->args.p[i], print_bytes(size, freed));
        } else if (st == MICA_OK) {
            st = one;
            if (err) *err = why;
        } else {
            term_error(&why);
        }
    }
    return st;
}
