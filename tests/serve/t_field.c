/* Bodies and their members: what is read, and what the refusal names. */
#include "serve/field.h"

#include "check.h"

#include <math.h>

static problem g_p;

static int body_status(const char *text, size_t n) {
    json_t *v;
    g_p = (problem){0};
    const mica_status st = field_body(&v, (slice){text, n}, &g_p);
    CHECK((st == MICA_OK) == (v != NULL));
    CHECK(utf8_valid(g_p.text, strlen(g_p.text)));
    json_decref(v);
    return g_p.http;
}

static void test_bodies(void **state) {
    (void)state;
    static char deep[8000];
    CHECK(body_status("{\"a\": 1}", 8) == 0 && body_status("{\"a\": \"\\u0000\"}", 15) == 0);
    static const char *const bad[] = {"",
                                      "{",
                                      "[]",
                                      "1",
                                      "{\"a\": 1} x",
                                      "{\"a\":1,\"a\":2}",
                                      "{'a'}",
                                      "{\"a\":}",
                                      "{\"a\":1e999}",
                                      "nothing",
                                      "{\"a\": 99999999999999999999}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (body_status(bad[i], strlen(bad[i])) != 400) check_failed(__FILE__, __LINE__, bad[i], "taken");
    CHECK(body_status("{\"a\":\"\xff\xfe\"}", 10) == 400); // no UTF-8
    CHECK(body_status("{\"a\":\"\xc0\xaf\"}", 10) == 400); // overlong
    CHECK(body_status("{\"a\":\"\\ud800\"}", 14) == 400);  // half a surrogate pair
    CHECK(body_status("{\"a\":\0}", 7) == 400);
    memset(deep, '[', 3000);
    CHECK(body_status(deep, 3000) == 400 && strstr(g_p.text, "deeper"));
    // Brackets in strings do not nest.
    memset(deep, '[', sizeof deep);
    memcpy(deep, "{\"a\":\"", 6);
    memcpy(deep + sizeof deep - 2, "\"}", 2);
    CHECK(body_status(deep, sizeof deep) == 0);
}

static void test_members(void **state) {
    (void)state;
    json_t *o =
        json_loads("{\"n\": 5, \"whole\": 5.0, \"half\": 5.5, \"text\": \"5\", \"none\": null, \"yes\": true,"
                   " \"nul\": \"a\\u0000b\", \"list\": [], \"word\": \"two\", \"big\": 9223372036854775807}",
                   JSON_ALLOW_NUL, NULL);
    const field_range r = {0, 10};
    int64_t n = 7;
    double x = 7;
    bool b = false;
    const char *t = "before";
    CHECK(o && field_int(&n, o, "missing", r, &g_p) == MICA_OK && n == 7);
    CHECK(field_int(&n, o, "none", r, &g_p) == MICA_OK && n == 7);
    CHECK(field_int(&n, o, "n", r, &g_p) == MICA_OK && n == 5);
    CHECK(field_int(&n, o, "whole", r, &g_p) == MICA_OK && n == 5);
    CHECK(field_int(&n, o, "half", r, &g_p) != MICA_OK && g_p.http == 400 && strcmp(g_p.param, "half") == 0);
    CHECK(field_int(&n, o, "text", r, &g_p) != MICA_OK && strstr(g_p.text, "a string"));
    CHECK(field_int(&n, o, "n", (field_range){6, 10}, &g_p) != MICA_OK && strstr(g_p.text, "from 6 to 10"));
    CHECK(field_int(&n, o, "big", r, &g_p) != MICA_OK && n == 5);
    CHECK(field_real(&x, o, "half", r, &g_p) == MICA_OK && x == 5.5);
    CHECK(field_real(&x, o, "yes", r, &g_p) != MICA_OK && field_real(&x, o, "big", r, &g_p) != MICA_OK);
    CHECK(field_bool(&b, o, "yes", &g_p) == MICA_OK && b && field_bool(&b, o, "n", &g_p) != MICA_OK);
    CHECK(field_text(&t, o, "none", &g_p) == MICA_OK && strcmp(t, "before") == 0);
    CHECK(field_text(&t, o, "text", &g_p) == MICA_OK && strcmp(t, "5") == 0);
    CHECK(field_text(&t, o, "nul", &g_p) != MICA_OK && field_text(&t, o, "list", &g_p) != MICA_OK);
    static const char *const words[] = {"one", "two", NULL};
    int w = 0;
    CHECK(field_word(&w, o, "word", words, &g_p) == MICA_OK && w == 1);
    CHECK(field_word(&w, o, "text", words, &g_p) != MICA_OK && strstr(g_p.text, "\"one\", \"two\""));
    json_decref(o);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bodies),
        cmocka_unit_test(test_members),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
