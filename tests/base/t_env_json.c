/* mica_environment: one object for each variable, secrets hidden. */
#include "check.h"

#include "base/env.h"
#include "base/mem.h"
#include "mica_tools.h"

#include <jansson.h>

static void test_every_variable_is_told(void **state) {
    (void)state;
    char *text;
    mica_error err;
    setenv("HF_TOKEN", "hf_secret", 1);
    setenv("MICA_HOME", "x \"y\"", 1);
    unsetenv("HF_ENDPOINT");
    CHECK_OK(mica_environment(&text, &err));
    CHECK(!strstr(text, "hf_secret"));
    json_t *rows = json_loads(text, 0, NULL);
    CHECK(json_array_size(rows) == env_count());
    for (size_t i = 0; i < env_count(); i++) {
        const json_t *row = json_array_get(rows, i), *value = json_object_get(row, "value");
        const char *name = json_string_value(json_object_get(row, "name"));
        assert_string_equal(name, env_at(i)->name);
        if (!strcmp(name, "HF_TOKEN")) assert_string_equal(json_string_value(value), "(set)");
        if (!strcmp(name, "MICA_HOME")) assert_string_equal(json_string_value(value), "x \"y\"");
        if (!strcmp(name, "HF_ENDPOINT")) CHECK(json_is_null(value));
    }
    json_decref(rows);
    mem_free(text);
}

static void test_value_that_is_no_text(void **state) {
    (void)state;
    char *text;
    mica_error err;
    setenv("MICA_HOME", "\xff\xfe", 1);
    CHECK_OK(mica_environment(&text, &err));
    json_t *rows = json_loads(text, 0, NULL);
    CHECK(json_array_size(rows) == env_count());
    json_decref(rows);
    mem_free(text);
    unsetenv("MICA_HOME");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_variable_is_told),
        cmocka_unit_test(test_value_that_is_no_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
