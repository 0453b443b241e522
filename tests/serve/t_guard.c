/* Hosts, origins and keys: who gets in. */
#include "serve/guard.h"

#include "check.h"

static guard g_g;

static void open_guard(const char *key, const char *origin, const char *host) {
    guard_fini(&g_g);
    CHECK(guard_list_copy(&g_g.keys, &g_g.n_key, &key, key != NULL));
    CHECK(guard_list_copy(&g_g.origins, &g_g.n_origin, &origin, origin != NULL));
    CHECK(guard_list_copy(&g_g.hosts, &g_g.n_host, &host, host != NULL));
    strcpy(g_g.bound, "127.0.0.1");
}

static int place(const char *host, const char *origin) {
    problem p = {0};
    return guard_check_place(&g_g, &(guard_headers){.host = host, .origin = origin}, &p) == MICA_OK ? 0
                                                                                                    : p.http;
}

static int key(const char *authorization, const char *x_api_key) {
    problem p = {0};
    const guard_headers h = {.authorization = authorization, .x_api_key = x_api_key};
    return guard_check_key(&g_g, &h, &p) == MICA_OK ? 0 : p.http;
}

static void test_hosts(void **state) {
    (void)state;
    open_guard(NULL, NULL, "box.lan");
    static const char *const good[] = {"localhost", "LOCALHOST:8080", "127.0.0.1:1",   "127.1.2.3",
                                       "[::1]:80",  "[::1]",          "localhost.:80", "box.lan:8080"};
    static const char *const bad[] = {"evil.example",
                                      "127.0.0.1.evil.example",
                                      "localhost@evil.example",
                                      "evil.example:127",
                                      "",
                                      "[::1",
                                      "[::1]x",
                                      "10.0.0.1",
                                      "localhost evil.example",
                                      "a,localhost",
                                      "::1",
                                      "localhost/evil.example"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (place(good[i], NULL) != 0) check_failed(__FILE__, __LINE__, good[i], "refused");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (place(bad[i], NULL) != 403) check_failed(__FILE__, __LINE__, bad[i], "let in");
    CHECK(place(NULL, NULL) == 403);
}

static void test_origins(void **state) {
    (void)state;
    open_guard(NULL, "https://chat.example", NULL);
    CHECK(place("localhost:8080", "http://localhost:8080") == 0); // its own page
    CHECK(place("localhost:8080", "https://chat.example") == 0);
    CHECK(place("localhost:8080", "http://localhost:9090") == 403); // another program's page
    CHECK(place("localhost:8080", "http://evil.example") == 403);
    CHECK(place("localhost:8080", "null") == 403);
    CHECK(place("localhost:8080", "https://chat.example.evil") == 403);
    CHECK(guard_allows_origin(&g_g, "https://chat.example") &&
          !guard_allows_origin(&g_g, "http://localhost:8080"));
    CHECK(!guard_allows_origin(&g_g, NULL));
}

static void test_keys(void **state) {
    (void)state;
    open_guard("sesame", NULL, NULL);
    CHECK(key("Bearer sesame", NULL) == 0 && key(NULL, "sesame") == 0 && key("bearer  sesame", NULL) == 0);
    CHECK(key(NULL, NULL) == 401 && key("Bearer sesam", NULL) == 401 && key("Bearer sesames", NULL) == 401);
    CHECK(key("Basic sesame", NULL) == 401 && key("Bearer ", NULL) == 401 && key(NULL, "") == 401);
    CHECK(place("evil.example", "http://evil.example") == 0); // the key is what counts then
    open_guard(NULL, NULL, NULL);
    CHECK(key(NULL, NULL) == 0);
    CHECK(guard_same_text("a", "a") && !guard_same_text("", "a") && !guard_same_text("a", "") &&
          guard_same_text("", ""));
}

static void test_addresses_without_a_key(void **state) {
    (void)state;
    open_guard(NULL, NULL, NULL);
    g_g.any_host = true; // --insecure on 0.0.0.0
    CHECK(place("192.168.1.7:8080", NULL) == 0 && place("[fe80::1]:8080", NULL) == 0);
    CHECK(place("evil.example", NULL) == 403);
    CHECK(guard_is_loopback("127.9.9.9") && guard_is_loopback("::1") && !guard_is_loopback("0.0.0.0"));
    CHECK(!guard_is_loopback("127.evil") && !guard_is_loopback("::"));
    guard_fini(&g_g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hosts),
        cmocka_unit_test(test_origins),
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_addresses_without_a_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
