/* `mica devices`: what models can run on. With --selftest every kernel is compared with its definition. */
#include "cli/command.h"
#include "cli/exit.h"
#include "cli/print.h"

#include "base/status.h"
#include "mica_tools.h"

#include <string.h>

static void put_device(table *t, const json_t *d) {
    char total[16], free_bytes[16];
    table_put(t, "%s", member_text(d, "id"));
    table_put(t, "%s", member_text(d, "name"));
    table_put(t, "%s", member_text(d, "arch"));
    table_put(t, "%s", member_u64(d, "vram_total") ? print_bytes(total, member_u64(d, "vram_total")) : "-");
    table_put(t, "%s",
              member_u64(d, "vram_total") ? print_bytes(free_bytes, member_u64(d, "vram_free")) : "-");
    table_put(t, "%s", member_true(d, "usable") ? "usable" : member_text(d, "reason"));
}

static mica_status put_devices(const json_t *list, mica_error *err) {
    static const char *const heads[] = {"id", "name", "arch", "memory", "free", "state"};
    table t = {.n_col = 6};
    size_t i;
    json_t *d;
    for (i = 0; i < t.n_col; i++) table_put(&t, "%s", heads[i]);
    json_array_foreach((json_t *)(uintptr_t)list, i, d) put_device(&t, d);
    mica_status st = table_print(stdout, &t, err);
    table_fini(&t);
    return st;
}

/* The kernels of all devices; returns the mismatches found. */
static uint64_t put_selftest(const json_t *list, bool show, mica_error *err, mica_status *st) {
    static const char *const heads[] = {"device", "kernel", "cases", "mismatches", "GB/s"};
    table t = {.n_col = 5};
    uint64_t n_wrong = 0;
    size_t i, k;
    json_t *d, *row;
    for (i = 0; i < t.n_col; i++) table_put(&t, "%s", heads[i]);
    json_array_foreach((json_t *)(uintptr_t)list, i, d) {
        json_array_foreach(json_object_get(d, "selftest"), k, row) {
            n_wrong += member_u64(row, "mismatches");
            table_put(&t, "%s", member_text(d, "id"));
            table_put(&t, "%s", member_text(row, "kernel"));
            table_put(&t, "%llu", (unsigned long long)member_u64(row, "cases"));
            table_put(&t, "%llu", (unsigned long long)member_u64(row, "mismatches"));
            if (json_is_number(json_object_get(row, "gbps")))
                table_put(&t, "%.1f", member_real(row, "gbps"));
            else
                table_put(&t, "-");
        }
    }
    if (show) {
        putchar('\n');
        *st = table_print(stdout, &t, err);
        printf("\n%s\n",
               n_wrong ? "kernels differ from their definition" : "all kernels equal their definition");
    }
    table_fini(&t);
    return n_wrong;
}

mica_status cmd_devices(const options *o, mica_error *err) {
    mica_status st = MICA_OK;
    char *text = NULL;
    json_t *list = NULL;
    TRY_GOTO(mica_devices(&text, o->selftest, err), done);
    TRY_GOTO(print_parse(&list, text, err), done);
    if (o->json)
        print_json_text(text);
    else
        TRY_GOTO(put_devices(list, err), done);
    if (o->selftest && put_selftest(list, !o->json, err, &st) > 0) exit_failed_check();
done:
    json_decref(list);
    mica_text_free(text);
    return st;
}
