/* Which file of a repository a name means, and which names may become files. The transfers are in
 * net_test.py. */
#include "check.h"

#include "base/mem.h"
#include "net/net_int.h"

/* The listing "a b c" as files, in that order. */
static net_files listing(const char *const *paths) {
    net_files fs = {0};
    mica_error err;
    for (size_t i = 0; paths[i]; i++) {
        char url[300];
        const char *slash = strrchr(paths[i], '/');
        snprintf(url, sizeof url, "https://hub/Org/Repo/resolve/main/%s", paths[i]);
        CHECK_OK(net_files_add(&fs, slash ? slash + 1 : paths[i], url, 10, &err));
    }
    return fs;
}

/* The URL that comes first for this quant, "" when the choice is refused. */
static void check_choice(const char *const *paths, const char *quant, const char *want, size_t want_n) {
    net_files fs = listing(paths);
    mica_error err = {0};
    const mica_status st = net_hub_choose(&fs, "Org/Repo", quant, &err);
    const bool good = st == MICA_OK ? fs.n == want_n && strstr(fs.p[0].url, want) && want[0] : !want[0];
    if (!good)
        print_error("quant %s: wanted %s x%zu, got %s x%zu %s\n", quant ? quant : "-", want, want_n,
                    fs.n && st == MICA_OK ? fs.p[0].url : "", fs.n, err.text);
    CHECK(good);
    net_files_fini(&fs);
}

static void test_choice_of_the_file(void **state) {
    (void)state;
    const char *const plain[] = {"M-Q4_K_S.gguf", "M-Q4_K_M.gguf", "M-UD-Q4_K_M.gguf",
                                 "M-Q5_K.gguf",   "M-IQ4_XS.gguf", NULL};
    check_choice(plain, NULL, "/M-Q4_K_M.gguf", 1);
    check_choice(plain, "Q4_K_M", "/M-Q4_K_M.gguf", 1);
    check_choice(plain, "q4_k_m", "/M-Q4_K_M.gguf", 1);
    check_choice(plain, "UD-Q4_K_M", "/M-UD-Q4_K_M.gguf", 1);
    check_choice(plain, "Q4_K", "", 0);  // not a part of Q4_K_M
    check_choice(plain, "Q4_XS", "", 0); // not a part of IQ4_XS
    check_choice(plain, "Q5_K", "/M-Q5_K.gguf", 1);
    check_choice(plain, "m-q5_k.gguf", "/M-Q5_K.gguf", 1);
    const char *const dotted[] = {"model.Q8_0.gguf", "model.Q4_0.gguf", NULL};
    check_choice(dotted, "Q4_0", "/model.Q4_0.gguf", 1);
    check_choice(dotted, NULL, "/model.Q4_0.gguf", 1); // no Q4_K_M: the first by name
    const char *const extras[] = {"mmproj-F16.gguf", "M-imatrix-Q4_K_M.gguf", "M-F16.gguf", "notes.txt",
                                  NULL};
    check_choice(extras, "F16", "/M-F16.gguf", 1);
    check_choice(extras, NULL, "/M-F16.gguf", 1);
    const char *const none[] = {"mmproj-F16.gguf", NULL};
    check_choice(none, NULL, "", 0);
}

static void test_shards_come_whole_and_in_order(void **state) {
    (void)state;
    const char *const shards[] = {"Q8_0/M-00003-of-00003.gguf",
                                  "Q4_0/M-00002-of-00003.gguf",
                                  "Q8_0/M-00001-of-00003.gguf",
                                  "Q4_0/M-00001-of-00003.gguf",
                                  "Q8_0/M-00002-of-00003.gguf",
                                  "Q4_0/M-00003-of-00003.gguf",
                                  NULL};
    for (int k = 0; k < 2; k++) {
        const char *quant = k ? "Q8_0" : "Q4_0";
        net_files fs = listing(shards);
        mica_error err;
        CHECK_OK(net_hub_choose(&fs, "Org/Repo", quant, &err));
        CHECK(fs.n == 3);
        for (size_t i = 0; i < 3; i++) {
            char want[80];
            snprintf(want, sizeof want, "/%s/M-%05zu-of-00003.gguf", quant, i + 1);
            CHECK(strstr(fs.p[i].url, want) != NULL);
        }
        net_files_fini(&fs);
    }
    const char *const gap[] = {"M-Q4_0-00001-of-00002.gguf", NULL};
    check_choice(gap, "Q4_0", "", 0);
}

static void test_shard_names(void **state) {
    (void)state;
    uint32_t index, count;
    size_t n_stem;
    CHECK(net_shard_parse("a-b-00002-of-00012.gguf", &index, &count, &n_stem));
    CHECK(index == 2 && count == 12 && n_stem == 3);
    const char *const others[] = {"a.gguf",
                                  "-00001-of-00002.gguf",
                                  "a-00000-of-00002.gguf",
                                  "a-00003-of-00002.gguf",
                                  "a-0001-of-00002.gguf",
                                  "a-000001-of-00002.gguf.x",
                                  "a-00001-of-00002.ggu",
                                  "a-+0001-of-00002.gguf",
                                  "a- 0001-of-00002.gguf",
                                  ""};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        if (net_shard_parse(others[i], &index, &count, &n_stem)) print_error("taken: %s\n", others[i]);
        CHECK(!net_shard_parse(others[i], &index, &count, &n_stem));
    }
}

static void test_names_that_may_become_files(void **state) {
    (void)state;
    const char *const good[] = {"a", "Model Q4.gguf", "\xC3\xBC.gguf", "a..b", "-x"};
    const char *const bad[] = {"", ".", "..", ".a", "a/b", "/a", "a\\b", "a\nb", "\x7f", "\xff", "a\xC3"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) CHECK(net_name_is_safe(good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) CHECK(!net_name_is_safe(bad[i]));
    char text[300];
    memset(text, 'x', sizeof text);
    text[200] = 0;
    CHECK(net_name_is_safe(text));
    text[200] = 'x';
    text[201] = 0;
    CHECK(!net_name_is_safe(text));
}

static void test_shown_urls_hold_no_secret(void **state) {
    (void)state;
    char show[200];
    net_url_show(show, sizeof show, "https://user:pass@host.example/a/b.gguf?sig=1#x");
    assert_string_equal(show, "https://host.example/a/b.gguf");
    net_url_show(show, sizeof show, "http://127.0.0.1:81/x?y");
    assert_string_equal(show, "http://127.0.0.1:81/x");
    net_url_show(show, sizeof show, "no url?secret");
    assert_string_equal(show, "no url");
}

static void test_short_names_are_whole(void **state) {
    (void)state;
    size_t n = 0;
    for (const net_known *k; (k = net_known_at(n)); n++) {
        CHECK(net_known_find(k->name) == k);
        CHECK(net_name_is_safe(k->file) && strstr(k->url_path, k->file));
        CHECK(strlen(k->sha256) == NET_SHA256_HEX && strspn(k->sha256, "0123456789abcdef") == NET_SHA256_HEX);
        CHECK(k->n_bytes > 0 && k->package_bytes > 0 && k->packages[0] && k->members[0]);
    }
    CHECK(n == 2 && net_known_find("smollm2-135m") && net_known_find("gemma3-270m") && !net_known_find("x"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_choice_of_the_file),
        cmocka_unit_test(test_shards_come_whole_and_in_order),
        cmocka_unit_test(test_shard_names),
        cmocka_unit_test(test_names_that_may_become_files),
        cmocka_unit_test(test_shown_urls_hold_no_secret),
        cmocka_unit_test(test_short_names_are_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
