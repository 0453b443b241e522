/* Records of routing: what goes in comes out row by row, and no file of another kind is taken for one. */
#include "check.h"

#include "base/log.h"
#include "store/trace.h"
#include "temp_dir.h"

#include <unistd.h>

enum { LAYERS = 4, EXPERTS = 300, USED = 2 };
static const uint64_t blob_bytes[LAYERS] = {0, 500, 700, 500};
static const trace_head head = {.fingerprint = 77, .n_layer = LAYERS, .n_expert = EXPERTS, .n_used = USED};

static temp_dir dir;
static char path[512];

static int set_up(void **state) {
    (void)state;
    temp_dir_make(&dir);
    snprintf(path, sizeof path, "%s", temp_dir_at(&dir, "some.trace"));
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    temp_dir_drop(&dir);
    return 0;
}

static trace *begin(const char *to) {
    mica_error err;
    trace *t = NULL;
    CHECK_OK(trace_create(&t, to, &head, blob_bytes, &err));
    return t;
}

/* A step of three rows in layers 1 and 3, then a draft's layer alone, then a step of one row. */
static void write_some(void) {
    trace *t = begin(path);
    trace_add(t, 1, (const int32_t[]){10, 11, 20, 21, 30, 31}, 3);
    trace_add(t, 3, (const int32_t[]){110, 111, 120, 121, 130, 299}, 3);
    trace_add(t, 3, (const int32_t[]){7, 8}, 1);
    trace_add(t, 1, (const int32_t[]){1, 0}, 1);
    trace_close(t);
}

static void test_rows_follow_each_other(void **state) {
    (void)state;
    static const uint16_t layers[] = {1, 3, 1, 3, 1, 3, 3, 1};
    static const uint16_t ids[] = {10, 11, 110, 111, 20, 21, 120, 121, 30, 31, 130, 299, 7, 8, 1, 0};
    mica_error err;
    trace_visits v;
    write_some();
    CHECK_OK(trace_read(&v, path, &err));
    CHECK(v.head.fingerprint == 77 && v.head.n_expert == EXPERTS && v.first == 1 && v.n == 8);
    CHECK(memcmp(v.blob_bytes, blob_bytes, sizeof blob_bytes) == 0);
    CHECK(memcmp(v.layers, layers, sizeof layers) == 0 && memcmp(v.ids, ids, sizeof ids) == 0);
    trace_free(&v);
}

static size_t load(uint8_t *data, size_t max) {
    FILE *f = fopen(path, "rb");
    CHECK(f);
    size_t n = fread(data, 1, max, f);
    fclose(f);
    return n;
}

static void save(const uint8_t *data, size_t n) {
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(data, 1, n, f) == n && fclose(f) == 0);
}

/* A run that was killed: every length gives whole steps or an error, never rows that were not. (3: a cut
 * between two layers of a step cannot be told from its end.) */
static void test_cut_at_every_byte(void **state) {
    (void)state;
    uint8_t data[4096];
    mica_error err;
    trace_visits v;
    write_some();
    size_t n = load(data, sizeof data);
    for (size_t k = 0; k < n; k++) {
        save(data, k);
        mica_status st = trace_read(&v, path, &err);
        if (k < sizeof head + sizeof blob_bytes) {
            CHECK(st == MICA_E_FORMAT && strstr(err.text, path));
            continue;
        }
        CHECK(st == MICA_OK && (v.n == 0 || v.n == 3 || v.n == 6 || v.n == 7));
        trace_free(&v);
    }
}

static void test_damage_is_told_with_its_place(void **state) {
    (void)state;
    static const struct {
        size_t at;
        uint8_t value;
        const char *says;
    } t[] = {{0, 'X', "offset 0: no record"}, {16, 0, "damaged head"},
             {24, 0, "damaged head"},         {24, 255, "damaged head"},
             {64, 4, "offset 64: no record"}, {66, 1, "offset 64: no record"},
             {68, 0, "offset 64: no record"}, {73, 200, "no such expert"}};
    uint8_t data[4096], bad[4096];
    mica_error err;
    trace_visits v;
    write_some();
    size_t n = load(data, sizeof data);
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        memcpy(bad, data, n);
        bad[t[i].at] = t[i].value;
        if (t[i].at == 24 && t[i].value == 255) bad[25] = 255;
        save(bad, n);
        CHECK(trace_read(&v, path, &err) == MICA_E_FORMAT && v.layers == NULL);
        if (!strstr(err.text, t[i].says)) check_failed(__FILE__, __LINE__, t[i].says, err.text);
    }
    unlink(path);
    CHECK(trace_read(&v, path, &err) == MICA_E_IO && strstr(err.text, path));
}

static int n_warning;
static void count_lines(void *user, log_level level, const char *line) {
    (void)user;
    n_warning += level == LOG_WARN && strstr(line, "/dev/full") != NULL;
}

static void test_a_full_disk_is_one_warning(void **state) {
    (void)state;
    mica_error err;
    if (access("/dev/full", W_OK) != 0) SKIP("no /dev/full");
    log_set_sink(count_lines, NULL);
    trace *t = begin("/dev/full");
    int32_t ids[2 * 512] = {0};
    for (int i = 0; i < 100; i++) trace_add(t, 1, ids, 512);
    trace_close(t);
    log_set_sink(NULL, NULL);
    CHECK(n_warning == 1);
    CHECK(trace_create(&t, "/nowhere/at/all", &head, blob_bytes, &err) == MICA_E_IO && t == NULL);
    CHECK(strstr(err.text, "/nowhere/at/all"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_follow_each_other),
        cmocka_unit_test(test_cut_at_every_byte),
        cmocka_unit_test(test_damage_is_told_with_its_place),
        cmocka_unit_test(test_a_full_disk_is_one_warning),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
