/* `mica plan`: every buffer of every tier before a byte is loaded. */
#include "cli/command.h"
#include "cli/open.h"
#include "cli/print.h"

#include "base/status.h"
#include "mica_tools.h"

#include <stdlib.h>

static mica_status put_tier(const json_t *tier, mica_error *err) {
    char total[16], free_bytes[16], reserve[16], bytes[16];
    table t = {.n_col = 3};
    uint64_t sum = 0;
    size_t i;
    json_t *item;
    printf("%s: %s, %s free, %s left alone\n", member_text(tier, "device"),
           print_bytes(total, member_u64(tier, "total")), print_bytes(free_bytes, member_u64(tier, "free")),
           print_bytes(reserve, member_u64(tier, "reserve")));
    table_put(&t, "  what");
    table_put(&t, "count");
    table_put(&t, "size");
    json_array_foreach(json_object_get(tier, "items"), i, item) {
        sum += member_u64(item, "bytes");
        table_put(&t, "  %s", member_text(item, "what"));
        if (json_is_integer(json_object_get(item, "count")))
            table_put(&t, "%llu", (unsigned long long)member_u64(item, "count"));
        else
            table_put(&t, "-");
        table_put(&t, "%s", print_bytes(bytes, member_u64(item, "bytes")));
    }
    table_put(&t, "  sum");
    table_put(&t, "-");
    table_put(&t, "%s", print_bytes(bytes, sum));
    mica_status st = table_print(stdout, &t, err);
    table_fini(&t);
    return st;
}

static mica_status put_plan(const json_t *plan, mica_error *err) {
    const json_t *experts = json_object_get(plan, "experts");
    size_t i;
    json_t *tier;
    json_array_foreach(json_object_get(plan, "tiers"), i, tier) {
        if (json_array_size(json_object_get(tier, "items")) > 0) TRY(put_tier(tier, err));
    }
    if (member_u64(experts, "total") > 0)
        printf(
            "experts: %llu, of them in VRAM %llu, RAM %llu, SSD %llu\n",
            (unsigned long long)member_u64(experts, "total"), (unsigned long long)member_u64(experts, "vram"),
            (unsigned long long)member_u64(experts, "ram"), (unsigned long long)member_u64(experts, "ssd"));
    printf("context: %llu tokens\n%s\n", (unsigned long long)member_u64(plan, "context"),
           member_true(plan, "fits") ? "fits" : "does not fit");
    return MICA_OK;
}

/* The line of a plan that does not fit: what the fullest tier lacks, and the nearest configuration that fits.
 */
static mica_status fail_fit(const json_t *plan, mica_error *err) {
    char need_text[16], have_text[16], nearest[200] = "";
    const char *device = "memory";
    uint64_t worst_need = 0, worst_have = 0, worst_lack = 0;
    size_t i, k;
    json_t *tier, *item;
    json_array_foreach(json_object_get(plan, "tiers"), i, tier) {
        const uint64_t free_bytes = member_u64(tier, "free"), reserve = member_u64(tier, "reserve");
        const uint64_t have = free_bytes > reserve ? free_bytes - reserve : 0;
        uint64_t need = 0;
        json_array_foreach(json_object_get(tier, "items"), k, item) need += member_u64(item, "bytes");
        if (need <= have || need - have <= worst_lack) continue;
        worst_lack = need - have;
        worst_need = need;
        worst_have = have;
        device = member_text(tier, "device");
    }
    const json_t *near = json_object_get(plan, "nearest");
    char *text = json_is_null(near) ? NULL : json_dumps(near, JSON_ENCODE_ANY | JSON_COMPACT);
    if (json_is_string(near))
        snprintf(nearest, sizeof nearest, ": nearest that fits: %s", json_string_value(near));
    else if (text)
        snprintf(nearest, sizeof nearest, ": nearest that fits: %s", text);
    free(text);
    return fail(err, MICA_E_FIT, "%s: does not fit: %s needed, %s there%s", device,
                print_bytes(need_text, worst_need), print_bytes(have_text, worst_have), nearest);
}

mica_status cmd_plan(const options *o, mica_error *err) {
    mica_status st = MICA_OK;
    char *path = NULL, *text = NULL;
    json_t *plan = NULL;
    mica_load_options lo;
    TRY_GOTO(open_path(&path, o, err), done);
    TRY_GOTO(open_load_options(&lo, o, path, err), done);
    TRY_GOTO(mica_plan(&text, &lo, err), done);
    TRY_GOTO(print_parse(&plan, text, err), done);
    if (o->json)
        print_json_text(text);
    else
        TRY_GOTO(put_plan(plan, err), done);
    if (!member_true(plan, "fits")) st = fail_fit(plan, err);
done:
    json_decref(plan);
    mica_text_free(text);
    mica_text_free(path);
    return st;
}
