/* Sizes, counts, tables and progress texts as people read them. */
#include "cli/print.h"

#include "check.h"
#include "cli/term.h"

static void expect(const char *got, const char *want) {
    if (strcmp(got, want) != 0) check_failed(__FILE__, __LINE__, want, got);
}

static void test_sizes_have_three_digits(void **state) {
    (void)state;
    char out[16];
    expect(print_bytes(out, 0), "0 B");
    expect(print_bytes(out, 1023), "1023 B");
    expect(print_bytes(out, 1024), "1.00 KiB");
    expect(print_bytes(out, 10 * 1024 + 512), "10.5 KiB");
    expect(print_bytes(out, UINT64_C(1048575)), "1.00 MiB"); // not "1024 KiB"
    expect(print_bytes(out, UINT64_C(102400) << 20), "100 GiB");
    expect(print_bytes(out, UINT64_MAX), "16.0 EiB");
    expect(print_count(out, 600), "600");
    expect(print_count(out, 4590848), "4.59 M");
    expect(print_count(out, 999999), "1.00 M");
    expect(print_count(out, UINT64_C(125000000000)), "125 B");
}

static void print_into(char *out, size_t size_bytes, table *t) {
    mica_error err;
    FILE *f = fmemopen(out, size_bytes, "w");
    CHECK(f);
    CHECK_OK(table_print(f, t, &err));
    fclose(f);
}

static void test_tables_align_by_what_is_in_them(void **state) {
    (void)state;
    char out[400] = "";
    table t = {.n_col = 3};
    const char *cells[] = {"name", "size", "note", "über", "7", "a", "x", "1234", "", "y", "-", "b c"};
    for (size_t i = 0; i < sizeof cells / sizeof cells[0]; i++) table_put(&t, "%s", cells[i]);
    print_into(out, sizeof out, &t);
    expect(out, "name  size  note\n"
                "über     7  a\n" // two bytes, one column
                "x     1234  \n"
                "y        -  b c\n");
    CHECK(t.n_cell == 0);
    table_fini(&t);
}

static void test_progress_says_share_amount_rate_and_rest(void **state) {
    (void)state;
    char out[200];
    const progress load = {.what = "load", .start_ns = 0}, prompt = {.what = "prompt", .start_ns = 0};
    const uint64_t s = 1000000000, gib = UINT64_C(1) << 30;
    progress_format(out, sizeof out, &load, (amount){gib, 4 * gib, 2 * s}, 0);
    expect(out, "load  25 %  1.00 GiB of 4.00 GiB  512 MiB/s  6 s left");
    const progress verify = {.what = "verify", .start_ns = 0};
    progress_format(out, sizeof out, &verify, (amount){gib, 4 * gib, 2 * s}, 0);
    CHECK(strstr(out, "1.00 GiB of 4.00 GiB") && strstr(out, "512 MiB/s"));
    progress_format(out, sizeof out, &prompt, (amount){100, 400, s}, 0);
    expect(out, "prompt  25 %  100 of 400  100/s  3 s left");
    progress_format(out, sizeof out, &prompt, (amount){100, 0, s}, 0); // no total, no share
    expect(out, "prompt  100  100/s");
    progress_format(out, sizeof out, &prompt, (amount){3, 400, s / 100}, 0); // too early for a rate
    expect(out, "prompt  1 %  3 of 400");
    progress_format(out, sizeof out, &prompt, (amount){500, 400, s}, 0); // more than all is all
    expect(out, "prompt  100 %  400 of 400  400/s");
    progress_format(out, sizeof out, &prompt, (amount){200, 400, 1000 * s}, 0);
    expect(out, "prompt  50 %  200 of 400  0.20/s  17 min left");
    for (int width = 1; width < 150; width++) { // never a second line, whatever the terminal's width
        progress_format(out, sizeof out, &load, (amount){gib, 4 * gib, 2 * s}, width);
        CHECK((int)strlen(out) < width);
        CHECK((strchr(out, '#') != NULL) == (strchr(out, ']') != NULL) || width < 80);
    }
    CHECK(strstr(out, "[#########...........................]"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes_have_three_digits),
        cmocka_unit_test(test_tables_align_by_what_is_in_them),
        cmocka_unit_test(test_progress_says_share_amount_rate_and_rest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
