/* Strict JSON from outside. */
#include "check.h"

#include "base/mem.h"
#include "text/json_in.h"

static mica_error err;

static mica_status parse(const char *text, size_t n, json_in_kind kind, json_t **out) {
    json_in_options opt = {.what = "body", .kind = kind, .max_bytes = 1 << 20};
    return json_in_parse(out, (slice){text, n}, &opt, &err);
}

static void refuses(const char *text, json_in_kind kind, const char *want) {
    json_t *j = (json_t *)1;
    mica_status st = parse(text, strlen(text), kind, &j);
    if (st != MICA_E_ARG || j || !strstr(err.text, want)) check_failed(__FILE__, __LINE__, text, err.text);
}

static void test_reads_what_is_json(void **state) {
    (void)state;
    json_t *j;
    CHECK_OK(parse("{\"z\":1,\"a\":\"x\\u0000y\"}", 22, JSON_IN_OBJECT, &j));
    CHECK(json_string_length(json_object_get(j, "a")) == 3);
    CHECK(strcmp(json_object_iter_key(json_object_iter(j)), "z") == 0); // order kept
    json_decref(j);
    CHECK_OK(parse("7", 1, JSON_IN_ANY, &j));
    json_decref(j);
    CHECK_OK(parse("[]", 2, JSON_IN_ARRAY, &j));
    json_decref(j);
}

static void test_refuses_the_rest(void **state) {
    (void)state;
    refuses("", JSON_IN_ANY, "body: line");
    refuses("{", JSON_IN_OBJECT, "body: line 1 column 1");
    refuses("[1,\n 2,, 3]", JSON_IN_ARRAY, "line 2");
    refuses("{\"a\":1,\"a\":2}", JSON_IN_OBJECT, "duplicate");
    refuses("[1e999]", JSON_IN_ARRAY, "overflow");
    refuses("[99999999999999999999]", JSON_IN_ARRAY, "too big integer");
    refuses("\"\\ud800\"", JSON_IN_ANY, "Unicode");
    refuses("\"\xff\"", JSON_IN_ANY, "unable to decode");
    refuses("{} x", JSON_IN_OBJECT, "end of file expected");
    refuses("[]", JSON_IN_OBJECT, "not an object");
    refuses("{}", JSON_IN_ARRAY, "not an array");
    refuses("NaN", JSON_IN_ANY, "body");
    refuses("// c\n1", JSON_IN_ANY, "body");
}

static void test_bounds(void **state) {
    (void)state;
    enum { N = 6000 };
    static char deep[N + 1];
    json_t *j;
    memset(deep, '[', N);
    refuses(deep, JSON_IN_ANY, "column 201: JSON nested deeper than 200");
    memset(deep, ']', N);
    memset(deep, '[', 200);
    CHECK_OK(parse(deep, 400, JSON_IN_ARRAY, &j)); // 200 is still allowed
    json_decref(j);
    memset(deep, '[', N); // brackets in a string are no nesting
    deep[0] = deep[N - 1] = '"';
    deep[1] = '\\';
    deep[2] = '"';
    CHECK_OK(parse(deep, N, JSON_IN_ANY, &j));
    json_decref(j);
    char *big = mem_alloc((1 << 20) + 1);
    memset(big, ' ', (1 << 20) + 1);
    CHECK(parse(big, (1 << 20) + 1, JSON_IN_ANY, &j) == MICA_E_ARG && strstr(err.text, "more than 1048576"));
    mem_free(big);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_what_is_json),
        cmocka_unit_test(test_refuses_the_rest),
        cmocka_unit_test(test_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
