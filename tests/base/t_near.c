/* What is offered as "did you mean", and above all what is not. */
#include "base/near.h"

#include "check.h"

static const char *const g_words[] = {"--context", "--device", "--top-k", "run", "-hf", "--kv",
                                      "--isa",     "--raw",    "--ram",   "-m",  "-n",  "--temp"};
enum { N = sizeof g_words / sizeof g_words[0] };

static void check_near(const char *word, const char *want) {
    const char *got = near_word(word, g_words, N);
    if ((got == NULL) != (want == NULL) || (got && strcmp(got, want) != 0))
        check_failed(__FILE__, __LINE__, word, got ? got : "(none)");
}

static void test_typing_errors_are_found(void **state) {
    (void)state;
    check_near("--contxt", "--context");
    check_near("--devcie", "--device"); // two letters swapped are one edit
    check_near("rnu", "run");
    check_near("-context", "--context"); // dashes do not count
    check_near("--CONTEXT", "--context");
    check_near("--tempp", "--temp");
    check_near("--rma", "--ram");
}

static void test_other_words_are_not(void **state) {
    (void)state;
    check_near("-fa", NULL); // two letters are no evidence
    check_near("-cnv", NULL);
    check_near("--jinja", NULL);
    check_near("--mmap", NULL);
    check_near("--grammar", NULL);
    check_near("-b", NULL);
    check_near("-x", NULL);
    check_near("", NULL);
    check_near("--xyzzyx", NULL);
    check_near("a-very-long-word-that-no-flag-could-ever-have-been", NULL);
    CHECK(!near_word("x", g_words, 0));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_typing_errors_are_found),
        cmocka_unit_test(test_other_words_are_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
