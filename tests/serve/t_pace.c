/* The share of prompts in a step: with costs that are known, answers keep half of their speed. */
#include "serve/pace.h"

#include "check.h"

static void test_alone_takes_all(void **state) {
    (void)state;
    pace p;
    pace_init(&p);
    CHECK(pace_prompt_room(&p, 0, 512) == 512);
    CHECK(pace_prompt_room(&p, 3, 512) == 32 && pace_prompt_room(&p, 3, 16) == 16); // nothing learned yet
}

/* A machine that takes make_s for the answers and read_s for each prompt token. */
static double run(pace *p, double make_s, double read_s, int n_step) {
    double last = 0;
    for (int i = 0; i < n_step; i++) {
        const size_t n = i % 3 == 0 ? 0 : pace_prompt_room(p, 2, 512);
        const double s = make_s + read_s * (double)n;
        pace_learn(p, n, s);
        if (n > 0) last = s;
    }
    return last;
}

static void test_answers_keep_half_their_speed(void **state) {
    (void)state;
    static const double costs[][2] = {{0.020, 0.0005}, {0.005, 0.0001}, {0.1, 0.0002}, {0.03, 0.003}};
    for (size_t i = 0; i < sizeof costs / sizeof *costs; i++) {
        pace p;
        pace_init(&p);
        const double s = run(&p, costs[i][0], costs[i][1], 60);
        CHECK(s <= costs[i][0] * 2.1);
        if (costs[i][0] / costs[i][1] < 512) CHECK(s >= costs[i][0] * 1.7); // and prompts get what is theirs
        run(&p, costs[i][0] * 4, costs[i][1] * 4, 60); // it learns anew when the machine gets slower
        const double room = (double)pace_prompt_room(&p, 2, 512);
        CHECK(room * costs[i][1] <= costs[i][0] * 1.1 || costs[i][0] < costs[i][1] * 9);
    }
}

static void test_a_prompt_always_goes_on(void **state) {
    (void)state;
    pace p;
    pace_init(&p);
    pace_learn(&p, 0, 0.001);
    pace_learn(&p, 100, 10.0);
    CHECK(pace_prompt_room(&p, 1, 512) == PACE_LEAST);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alone_takes_all),
        cmocka_unit_test(test_answers_keep_half_their_speed),
        cmocka_unit_test(test_a_prompt_always_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
