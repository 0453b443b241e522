/* Symbol and pair tables against plain search. */
#include "check.h"

#include "base/mem.h"
#include "text/symtab.h"

static void test_strings_are_found_by_their_bytes(void **state) {
    (void)state;
    mica_error err;
    text_symtab t;
    uint32_t sym;
    bool findable = true;
    CHECK_OK(text_symtab_init(&t, 1, 1, &err));
    // Same length, same first eight bytes, zeros that padding could be taken for, and the empty string.
    static const slice s[] = {{"abcdefgh1", 9}, {"abcdefgh2", 9},   {"abcdefgh", 8},    {"abcdefg", 7},
                              {"a", 1},         {"a\0", 2},         {"a\0\0", 3},       {"\0", 1},
                              {"", 0},          {"abcdefgh12", 10}, {"abcdefgh1\0", 10}};
    for (uint32_t i = 0; i < sizeof s / sizeof *s; i++) {
        CHECK(text_symtab_find(&t, s[i].p, s[i].n) == TEXT_SYM_NONE);
        findable = true;
        CHECK_OK(text_symtab_add(&t, s[i], &findable, &sym, &err));
        CHECK(sym == i && findable);
    }
    for (uint32_t i = 0; i < sizeof s / sizeof *s; i++) {
        CHECK(text_symtab_find(&t, s[i].p, s[i].n) == i);
        CHECK(slice_eq(text_symtab_get(&t, i), s[i]) && text_symtab_is(&t, i, s[i]));
    }
    text_symtab_fini(&t);
}

static void test_a_second_equal_string_is_not_findable(void **state) {
    (void)state;
    mica_error err;
    text_symtab t;
    uint32_t a, b, c;
    bool first = true, second = true, hidden = false;
    CHECK_OK(text_symtab_init(&t, 4, 16, &err));
    CHECK_OK(text_symtab_add(&t, SLICE_LIT("x"), &first, &a, &err));
    CHECK_OK(text_symtab_add(&t, SLICE_LIT("x"), &second, &b, &err));
    CHECK_OK(text_symtab_add(&t, SLICE_LIT("<end>"), &hidden, &c, &err));
    CHECK(first && !second && !hidden && a == 0 && b == 1 && c == 2);
    CHECK(text_symtab_find(&t, "x", 1) == a);
    CHECK(text_symtab_find(&t, "<end>", 5) == TEXT_SYM_NONE);
    text_symtab_fini(&t);
}

static void test_a_table_grows(void **state) {
    (void)state;
    mica_error err;
    text_symtab t;
    char s[16];
    enum { N = 20000 };
    CHECK_OK(text_symtab_init(&t, 0, 0, &err));
    for (uint32_t i = 0; i < N; i++) {
        uint32_t sym;
        bool findable = true;
        slice text = {s, (size_t)snprintf(s, sizeof s, "%u", i * 7919u)};
        CHECK_OK(text_symtab_add(&t, text, &findable, &sym, &err));
        CHECK(findable && sym == i);
    }
    for (uint32_t i = 0; i < N; i++) {
        size_t n = (size_t)snprintf(s, sizeof s, "%u", i * 7919u);
        CHECK(text_symtab_find(&t, s, n) == i);
        CHECK(text_symtab_find(&t, s, n - 1) != i);
    }
    CHECK(t.n_used <= (t.mask + 1) / 2);
    text_symtab_fini(&t);
}

static void test_too_much_text_is_refused(void **state) {
    (void)state;
    mica_error err;
    text_symtab t;
    CHECK(text_symtab_init(&t, 1, (size_t)1 << 31, &err) == MICA_E_FORMAT);
    uint32_t sym;
    bool findable = true;
    CHECK_OK(text_symtab_init(&t, 1, 1, &err));
    CHECK(text_symtab_add(&t, (slice){"x", 0x80000000u}, &findable, &sym, &err) == MICA_E_FORMAT);
    CHECK(sym == TEXT_SYM_NONE);
    text_symtab_fini(&t);
    mem_fail_after(0);
    CHECK(text_symtab_init(&t, 1, 1, &err) == MICA_E_NOMEM);
    text_pairtab p;
    CHECK(text_pairtab_init(&p, 1, &err) == MICA_E_NOMEM);
    mem_fail_after(-1);
}

static void test_pairs_keep_their_first_rank(void **state) {
    (void)state;
    mica_error err;
    text_pairtab t;
    enum { N = 3000, SIDE = 60 };
    uint64_t seed = 11;
    static text_pair first[SIDE + 1][SIDE + 1]; // result 0: not put
    CHECK_OK(text_pairtab_init(&t, N, &err));
    for (uint32_t i = 0; i < N; i++) {
        uint32_t left = (uint32_t)(test_rand(&seed) % SIDE), right = (uint32_t)(test_rand(&seed) % SIDE);
        text_pair p = {left, right, i, 1 + i};
        text_pairtab_put(&t, p);
        if (first[left][right].result == 0) first[left][right] = p;
    }
    for (uint32_t k = 0; k < (SIDE + 1) * (SIDE + 1); k++) {
        const text_pair *want = &first[k / (SIDE + 1)][k % (SIDE + 1)];
        const text_pair *got = text_pairtab_find(&t, k / (SIDE + 1), k % (SIDE + 1));
        CHECK((got != NULL) == (want->result != 0));
        if (got) CHECK(got->rank == want->rank && got->result == want->result);
    }
    CHECK(!text_pairtab_find(&t, TEXT_SYM_NONE, 1) && !text_pairtab_find(&t, 1, TEXT_SYM_NONE));
    text_pairtab_fini(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_strings_are_found_by_their_bytes),
        cmocka_unit_test(test_a_second_equal_string_is_not_findable),
        cmocka_unit_test(test_a_table_grows),
        cmocka_unit_test(test_too_much_text_is_refused),
        cmocka_unit_test(test_pairs_keep_their_first_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
