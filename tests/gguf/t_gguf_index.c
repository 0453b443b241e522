/* Names found by hash, and names made fit for a message. */
#include "check.h"

#include "gguf/gguf_int.h"

static slice item_name(const void *items, uint32_t i) {
    return slice_of(((char(*)[24])(uintptr_t)items)[i]);
}

static void test_index_finds_what_was_put(void **state) {
    (void)state;
    enum { N = 20000 };
    static char name[N + 1][24];
    name_index ix;
    CHECK(name_index_init(&ix, N));
    for (uint32_t i = 0; i < N; i++) {
        snprintf(name[i], sizeof name[i], "blk.%u.attn_q.weight", i);
        CHECK(name_index_put(&ix, name, item_name, i) == NAME_NONE);
    }
    strcpy(name[N], name[77]);
    CHECK(name_index_put(&ix, name, item_name, N) == 77);
    for (uint32_t i = 0; i < N; i++) CHECK(name_index_find(&ix, name, item_name, slice_of(name[i])) == i);
    CHECK(name_index_find(&ix, name, item_name, SLICE_LIT("blk.20000.attn_q.weight")) == NAME_NONE);
    CHECK(name_index_find(&ix, name, item_name, SLICE_LIT("")) == NAME_NONE);
    name_index_fini(&ix);
    CHECK(name_index_find(&ix, name, item_name, SLICE_LIT("a")) == NAME_NONE); // an index that never was
}

static void test_quotes_are_short_and_clean(void **state) {
    (void)state;
    char buf[GGUF_QUOTE_BYTES], big[300];
    assert_string_equal(gguf_quote(buf, SLICE_LIT("tok\xc3\xa9n")), "tok\xc3\xa9n");
    assert_string_equal(gguf_quote(buf, SLICE_LIT("a\0b\xff"
                                                  "c\xc3")),
                        "a?b?c?");
    memset(big, 'x', sizeof big);
    memcpy(big + 95, "\xe6\xa8\xa1", 3); // would be cut in the middle
    CHECK(strlen(gguf_quote(buf, (slice){big, sizeof big})) == 98 && strcmp(buf + 95, "...") == 0);
    CHECK(utf8_valid(buf, strlen(buf)));
}

static void test_paths_keep_their_end(void **state) {
    (void)state;
    char buf[GGUF_LABEL_BYTES], path[4000];
    assert_string_equal(gguf_path_label(buf, "dir/m\xff.gguf"), "dir/m?.gguf");
    memset(path, '/', sizeof path);
    for (size_t i = 0; i + 3 < sizeof path; i += 3) memcpy(path + i, "\xe6\xa8\xa1", 3);
    strcpy(path + sizeof path - 8, "m.gguf");
    gguf_path_label(buf, path);
    CHECK(strlen(buf) < GGUF_LABEL_BYTES && strncmp(buf, "...\xe6", 4) == 0 && utf8_valid(buf, strlen(buf)));
    assert_string_equal(buf + strlen(buf) - 6, "m.gguf");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_index_finds_what_was_put),
        cmocka_unit_test(test_quotes_are_short_and_clean),
        cmocka_unit_test(test_paths_keep_their_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
