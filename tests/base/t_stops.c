/* The matcher of stop strings against its definition: the whole text searched at once. */
#include "base/stops.h"

#include "check.h"

/* Feeds text in pieces of `piece` bytes; what comes out goes to `out`. Returns the string that matched. */
static int feed(strbuf *out, const char *text, size_t piece, const char *const *strings, size_t n) {
    stops s;
    slice o;
    int which = -1;
    stops_init(&s, strings, n);
    for (size_t i = 0, len = strlen(text); i < len && which < 0; i += piece) {
        which = stops_put(&s, (slice){text + i, len - i < piece ? len - i : piece}, &o);
        strbuf_put(out, o.p, o.n);
    }
    if (which < 0) {
        o = stops_end(&s);
        strbuf_put(out, o.p, o.n);
    }
    stops_fini(&s);
    return which;
}

static void expect(const char *text, const char *const *strings, size_t n, const char *want, int want_which) {
    for (size_t piece = 1; piece <= strlen(text) + 1; piece++) {
        strbuf out = {0};
        const int which = feed(&out, text, piece, strings, n);
        if (which != want_which || strcmp(strbuf_cstr(&out), want) != 0)
            check_failed(__FILE__, __LINE__, text, strbuf_cstr(&out));
        strbuf_fini(&out);
    }
}

static void test_nothing_of_a_match_goes_out(void **state) {
    (void)state;
    expect("ABCDEFGHIJKL", (const char *[]){"DEFGHIJ"}, 1, "ABC", 0);
    expect("ABCDEFGHIJKL", (const char *[]){"DEFGHIX"}, 1, "ABCDEFGHIJKL", -1); // only began like one
    expect("What?\nNext", (const char *[]){"\n"}, 1, "What?", 0);
    expect("aaab", (const char *[]){"aab"}, 1, "a", 0);
    expect("one two", (const char *[]){"two", "ne tw"}, 2, "o", 1); // the one that ends first
    expect("x\xe5\x8c\x97y", (const char *[]){"\xe5\x8c\x97"}, 1, "x", 0);
    expect("text", NULL, 0, "text", -1);
    expect("", (const char *[]){"a"}, 1, "", -1);
}

/* Held bytes are given with the next piece, in order, and no later than they must be. */
static void test_text_is_held_only_while_it_may_match(void **state) {
    (void)state;
    const char *strings[] = {"<end>"};
    stops s;
    slice o;
    stops_init(&s, strings, 1);
    CHECK(stops_put(&s, SLICE_LIT("a<"), &o) == -1 && slice_is(o, "a"));
    CHECK(stops_put(&s, SLICE_LIT("en"), &o) == -1 && o.n == 0);
    CHECK(stops_put(&s, SLICE_LIT("x"), &o) == -1 && slice_is(o, "<enx"));
    CHECK(stops_put(&s, SLICE_LIT("<end"), &o) == -1 && o.n == 0);
    CHECK(stops_put(&s, SLICE_LIT(">tail"), &o) == 0 && o.n == 0);
    CHECK(stops_end(&s).n == 0);
    stops_fini(&s);
}

static void test_random_texts_equal_the_definition(void **state) {
    (void)state;
    uint64_t seed = 7;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int round = 0; round < 4000; round++) {
        char text[24], a[5], b[5], want[24];
        const size_t n = test_rand(&seed) % 20;
        for (size_t i = 0; i < n; i++) text[i] = (char)('a' + test_rand(&seed) % 3);
        text[n] = 0;
        char *words[] = {a, b};
        for (int k = 0; k < 2; k++) {
            const size_t len = 1 + test_rand(&seed) % 4;
            for (size_t i = 0; i < len; i++) words[k][i] = (char)('a' + test_rand(&seed) % 3);
            words[k][len] = 0;
        }
        const char *first = NULL, *end = NULL;
        int which = -1;
        for (int k = 0; k < 2; k++) {
            const char *at = strstr(text, words[k]), *e = at ? at + strlen(words[k]) : NULL;
            if (!at || (first && (e > end || (e == end && at >= first)))) continue;
            first = at;
            end = e;
            which = k;
        }
        snprintf(want, sizeof want, "%.*s", first ? (int)(first - text) : (int)n, text);
        expect(text, (const char *[]){a, b}, 2, want, which);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_of_a_match_goes_out),
        cmocka_unit_test(test_text_is_held_only_while_it_may_match),
        cmocka_unit_test(test_random_texts_equal_the_definition),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
