/* Tools in namespaces: what the model sees of them, and what the client gets back. */
#include "check.h"
#include "serve/responses_tools.h"

static json_t *parse(const char *text) {
    json_error_t e;
    json_t *v = json_loads(text, 0, &e);
    assert_non_null(v);
    return v;
}

static void assert_json(const json_t *got, const char *want) {
    json_t *w = parse(want);
    CHECK(json_equal(got, w));
    json_decref(w);
}

static void test_functions_leave_their_namespace(void **state) {
    (void)state;
    json_t *names = json_object();
    json_t *given =
        parse("[{\"type\":\"namespace\",\"name\":\"a\",\"tools\":[{\"type\":\"function\",\"name\":\"f\"},"
              "{\"type\":\"custom\",\"name\":\"g\"},{\"type\":\"function\",\"name\":\"h\"},7]},"
              "{\"type\":\"function\",\"name\":\"f\"},{\"type\":\"web_search\"},"
              "{\"type\":\"namespace\",\"name\":\"b\",\"tools\":[{\"name\":\"h\"}]},"
              "{\"type\":\"namespace\",\"name\":\"c\"}]");
    json_t *flat;
    problem p = {0};
    CHECK(responses_tools_flat(&flat, names, given, &p) == MICA_OK);
    assert_json(flat, "[{\"type\":\"function\",\"name\":\"f\"},{\"type\":\"web_search\"},"
                      "{\"type\":\"function\",\"name\":\"a__f\"},{\"type\":\"function\",\"name\":\"h\"},"
                      "{\"name\":\"b__h\"}]");
    assert_json(names,
                "{\"a__f\":{\"namespace\":\"a\",\"name\":\"f\"},\"h\":{\"namespace\":\"a\",\"name\":\"h\"},"
                "\"b__h\":{\"namespace\":\"b\",\"name\":\"h\"}}");
    assert_string_equal(responses_tool_seen(names, "a", "f"), "a__f");
    assert_string_equal(responses_tool_seen(names, "a", "h"), "h");
    assert_string_equal(responses_tool_seen(names, NULL, "f"), "f");
    assert_string_equal(responses_tool_seen(names, "gone", "f"), "f");
    json_t *item = parse("{\"type\":\"function_call\",\"name\":\"b__h\"}"), *own = parse("{\"name\":\"f\"}");
    responses_tool_name(item, names);
    assert_json(item, "{\"type\":\"function_call\",\"name\":\"h\",\"namespace\":\"b\"}");
    responses_tool_name(own, names);
    assert_json(own, "{\"name\":\"f\"}");
    json_decref(own);
    json_decref(item);
    json_decref(flat);
    json_decref(given);
    json_decref(names);
}

static void test_what_is_no_list_stays(void **state) {
    (void)state;
    json_t *names = json_object(), *odd = parse("{\"type\":\"namespace\"}");
    json_t *flat = odd;
    problem p = {0};
    CHECK(responses_tools_flat(&flat, names, NULL, &p) == MICA_OK && !flat);
    CHECK(responses_tools_flat(&flat, names, odd, &p) == MICA_OK && !flat);
    json_decref(odd);
    json_decref(names);
}

static void test_two_that_cannot_be_told_apart(void **state) {
    (void)state;
    json_t *flat, *names = json_object();
    json_t *twice = parse("[{\"type\":\"namespace\",\"name\":\"n\",\"tools\":[{\"name\":\"f\"},"
                          "{\"name\":\"f\"}]}]");
    problem p = {0};
    CHECK(responses_tools_flat(&flat, names, twice, &p) == MICA_E_ARG && !flat && p.http == 400);
    json_decref(twice);
    json_decref(names);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_functions_leave_their_namespace),
        cmocka_unit_test(test_what_is_no_list_stays),
        cmocka_unit_test(test_two_that_cannot_be_told_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
