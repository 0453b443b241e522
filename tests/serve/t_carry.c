/* Wrapped text comes back whole; what is none of ours, damaged or no UTF-8 does not. */
#include "check.h"
#include "serve/carry.h"

#include <string.h>

static void test_there_and_back(void **state) {
    (void)state;
    static const char *const texts[] = {"", "a", "ab", "abc", "Ob \xE2\x82\xAC oder \xF0\x9F\x99\x82?\n"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        strbuf w = {0}, back = {0};
        carry_wrap(&w, slice_of(texts[i]));
        CHECK(carry_unwrap(&back, (slice){w.p, w.n}));
        assert_string_equal(strbuf_cstr(&back), texts[i]);
        strbuf_fini(&w);
        strbuf_fini(&back);
    }
}

static void test_what_is_none_of_ours(void **state) {
    (void)state;
    // Another's, no prefix, cut off, no base64, padding alone, a byte that is no UTF-8.
    static const char *const texts[] = {"gAAAAABo",   "YWJj",    "mica1",     "mica1.YWJ",
                                        "mica1.YW*j", "mica1.=", "mica1./w=="};
    strbuf out = {0};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) CHECK(!carry_unwrap(&out, slice_of(texts[i])));
    CHECK(out.n == 0);
    strbuf_fini(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_there_and_back),
        cmocka_unit_test(test_what_is_none_of_ours),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
