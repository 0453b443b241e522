/* `mica plan`: every buffer of every tier before a byte is loaded. */
#include "cli/command.h"
#include "cli/open.h"
#include "cli/print.h"

#include "base/status.h"
#include "mica_tools.h"

#include <stdio.h>
#include <string.h>

enum { BAR = 60 };

/* What a plan has, in the words and the letter of the picture. */
static const struct {
    const char *what;
    char letter;
    const char *words;
} g_items[] = {
    {"weights", 'w', "weights"},        {"experts", 'e', "experts"},
    {"kv", 'k', "context (KV cache)"},  {"state", 's', "recurrent state"},
    {"scratch", 'x', "working memory"}, {"cache", 'c', "prompts kept"},
    {"ring", 'r', "ring for prompts"},  {"spare", 'a', "spare of the driver"},
};

static size_t item_of(const char *what) {
    size_t i = 0;
    while (i + 1 < sizeof g_items / sizeof *g_items && strcmp(g_items[i].what, what) != 0) i++;
    return i;
}

static void bar_add(char *bar, size_t *n, char letter, double share) {
    size_t more = (size_t)(share * BAR + 0.5);
    if (more == 0 && share > 0) more = 1;
    while (more-- > 0 && *n < BAR) bar[(*n)++] = letter;
}

/* [wwwwkkxeeeeeeee......----]: the tier from what is in it, through what is free, to what is left alone. */
static void put_bar(const json_t *tier) {
    char bar[BAR + 1];
    size_t n = 0, n_end = 0, i;
    json_t *item;
    char end[BAR + 1];
    double total = member_real(tier, "total");
    uint64_t others = member_u64(tier, "total") - member_u64(tier, "free");
    if (total <= 0) return;
    bar_add(end, &n_end, '-', member_real(tier, "reserve") / total);
    bar_add(end, &n_end, 'o', (double)others / total);
    json_array_foreach(json_object_get(tier, "items"), i, item) bar_add(
        bar, &n, g_items[item_of(member_text(item, "what"))].letter, member_real(item, "bytes") / total);
    while (n + n_end < BAR) bar[n++] = '.';
    for (size_t k = 0; n < BAR; k++) bar[n++] = end[k];
    bar[BAR] = 0;
    printf("  [%s]\n", bar);
}

static const char *place_words(char out[40], const char *device) {
    if (strcmp(device, "cpu") == 0) return "memory";
    if (strcmp(device, "ssd") == 0) return "disk";
    snprintf(out, 40, "card %.30s", device);
    return out;
}

static void put_heading(const json_t *tier, const char *place) {
    char total[16], spare[16], reserve[16];
    if (strcmp(place, "disk") == 0) {
        printf("disk: read again when it is needed\n");
        return;
    }
    printf("%s: %s, %s free (the others' is o), %s left alone (-)\n", place,
           print_bytes(total, member_u64(tier, "total")), print_bytes(spare, member_u64(tier, "free")),
           print_bytes(reserve, member_u64(tier, "reserve")));
    put_bar(tier);
}

static mica_status put_tier(const json_t *tier, const json_t *experts, mica_error *err) {
    char bytes[16], name[40];
    table t = {.n_col = 3};
    uint64_t sum = 0;
    size_t i;
    json_t *item;
    put_heading(tier, place_words(name, member_text(tier, "device")));
    json_array_foreach(json_object_get(tier, "items"), i, item) {
        size_t what = item_of(member_text(item, "what"));
        sum += member_u64(item, "bytes");
        table_put(&t, "  %c %s", g_items[what].letter, g_items[what].words);
        table_put(&t, "%s", print_bytes(bytes, member_u64(item, "bytes")));
        if (strcmp(g_items[what].what, "experts") == 0)
            table_put(&t, "%llu of %llu", (unsigned long long)member_u64(item, "count"),
                      (unsigned long long)member_u64(experts, "total"));
        else
            table_put(&t, "%s", "");
    }
    table_put(&t, "  = together");
    table_put(&t, "%s", print_bytes(bytes, sum));
    table_put(&t, "%s", "");
    mica_status st = table_print(stdout, &t, err);
    table_fini(&t);
    return st;
}

static void put_experts(const json_t *experts) {
    static const struct {
        const char *key, *where;
    } places[] = {{"vram", "on the card"}, {"ram", "in memory"}, {"ssd", "read from disk"}};
    const char *between = ": ";
    if (member_u64(experts, "total") == 0) return;
    printf("experts: %llu", (unsigned long long)member_u64(experts, "total"));
    for (size_t i = 0; i < 3; i++) {
        if (member_u64(experts, places[i].key) == 0) continue;
        printf("%s%llu %s", between, (unsigned long long)member_u64(experts, places[i].key), places[i].where);
        between = ", ";
    }
    putchar('\n');
}

static mica_status put_plan(const json_t *plan, mica_error *err) {
    const json_t *experts = json_object_get(plan, "experts");
    size_t i;
    json_t *tier;
    json_array_foreach(json_object_get(plan, "tiers"), i, tier) {
        if (json_array_size(json_object_get(tier, "items")) > 0) TRY(put_tier(tier, experts, err));
    }
    put_experts(experts);
    printf("context: %llu tokens\n%s\n", (unsigned long long)member_u64(plan, "context"),
           member_true(plan, "fits") ? "fits" : "does not fit");
    return MICA_OK;
}

/* "--context 4096 --kv int8 would fit". */
static void near_words(char *out, size_t n, const json_t *near) {
    size_t at = 0;
    out[0] = 0;
    if (member_u64(near, "context"))
        at += (size_t)snprintf(out + at, n - at, "--context %llu ",
                               (unsigned long long)member_u64(near, "context"));
    if (member_text(near, "kv")[0])
        at += (size_t)snprintf(out + at, n - at, "--kv %.8s ", member_text(near, "kv"));
    if (member_u64(near, "ubatch"))
        at += (size_t)snprintf(out + at, n - at, "--ubatch %llu ",
                               (unsigned long long)member_u64(near, "ubatch"));
    if (member_text(near, "experts_ram")[0])
        at += (size_t)snprintf(out + at, n - at, "--experts-ram %.12s ", member_text(near, "experts_ram"));
    snprintf(out + at, n - at, at ? "would fit" : "nothing that is known here would fit");
}

/* The line of a plan that does not fit: what the fullest tier lacks, and the nearest configuration that fits.
 */
static mica_status fail_fit(const json_t *plan, mica_error *err) {
    char need_text[16], have_text[16], near[160], name[40];
    const char *device = "cpu";
    uint64_t worst_need = 0, worst_have = 0, worst_lack = 0;
    size_t i, k;
    json_t *tier, *item;
    json_array_foreach(json_object_get(plan, "tiers"), i, tier) {
        const uint64_t free_bytes = member_u64(tier, "free"), reserve = member_u64(tier, "reserve");
        const uint64_t have = free_bytes > reserve ? free_bytes - reserve : 0;
        uint64_t need = 0;
        if (strcmp(member_text(tier, "device"), "ssd") == 0) continue;
        json_array_foreach(json_object_get(tier, "items"), k, item) need += member_u64(item, "bytes");
        if (need <= have || need - have <= worst_lack) continue;
        worst_lack = need - have;
        worst_need = need;
        worst_have = have;
        device = member_text(tier, "device");
    }
    near_words(near, sizeof near, json_object_get(plan, "nearest"));
    return fail(err, MICA_E_FIT, "%s: does not fit: %s needed for a context of %llu, %s there: %s",
                place_words(name, device), print_bytes(need_text, worst_need),
                (unsigned long long)member_u64(plan, "context"), print_bytes(have_text, worst_have), near);
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
