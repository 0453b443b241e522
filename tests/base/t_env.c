/* The environment table: complete, without repeats, and read as it says. */
#include "check.h"

#include "base/env.h"

static void test_table_is_whole(void **state) {
    (void)state;
    CHECK(env_count() > 0);
    for (size_t i = 0; i < env_count(); i++) {
        const env_var *v = env_at(i);
        CHECK(v->name && v->name[0]);
        CHECK(v->meaning && v->meaning[0]);
        CHECK(v->fallback && v->fallback[0]);
        for (size_t k = 0; k < i; k++) CHECK(strcmp(v->name, env_at(k)->name) != 0);
    }
}

static void test_unset_and_empty_are_the_same(void **state) {
    (void)state;
    unsetenv("MICA_HOME");
    CHECK(env_get("MICA_HOME") == NULL);
    setenv("MICA_HOME", "", 1);
    CHECK(env_get("MICA_HOME") == NULL);
    setenv("MICA_HOME", "a b", 1);
    assert_string_equal(env_get("MICA_HOME"), "a b");
    unsetenv("MICA_HOME");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table_is_whole),
        cmocka_unit_test(test_unset_and_empty_are_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
