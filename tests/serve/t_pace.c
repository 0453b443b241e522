/* The share of prompts in steps: whatever a machine costs, answers keep half of their speed, and prompts go
 * on. */
#include "serve/pace.h"

#include "check.h"

static void test_alone_takes_all(void **state) {
    (void)state;
    pace p;
    pace_init(&p);
    CHECK(pace_prompt_room(&p, 0, 512) == 512);
    CHECK(pace_prompt_room(&p, 3, 512) == 32 && pace_prompt_room(&p, 3, 16) == 16); // nothing learned yet
}

typedef struct machine {
    double make_s, piece_s, token_s; // a step of answers; a piece of a prompt; each of its tokens
} machine;

typedef struct result {
    double share;   // of their speed that answers keep
    double read;    // prompt tokens a second
    double longest; // step
} result;

static result run(const machine *m, double seconds) {
    pace p;
    result r = {0};
    double now = 0;
    size_t n_step = 0, n_read = 0;
    pace_init(&p);
    for (int i = 0; i < 5; i++) pace_learn(&p, 2, 0, m->make_s);
    while (now < seconds) {
        const size_t n = pace_prompt_room(&p, 2, 512);
        const double s = m->make_s + (n > 0 ? m->piece_s + m->token_s * (double)n : 0);
        pace_learn(&p, 2, n, s);
        now += s;
        n_step++;
        n_read += n;
        if (now > seconds / 2 && s > r.longest) r.longest = s;
    }
    r.share = (double)n_step * m->make_s / now;
    r.read = (double)n_read / now;
    return r;
}

static void test_answers_keep_half_their_speed(void **state) {
    (void)state;
    static const machine machines[] = {
        {0.008, 0.025, 0.0005}, {0.020, 0.0, 0.0005}, {0.005, 0.0, 0.0001},
        {0.1, 0.05, 0.0002},    {0.03, 0.0, 0.02},    {0.001, 0.1, 0.0},
    };
    for (size_t i = 0; i < sizeof machines / sizeof *machines; i++) {
        const machine *m = &machines[i];
        const result r = run(m, 60);
        print_message("%zu: share %.2f, %.0f prompt tokens/s, longest step %.0f ms\n", i, r.share, r.read,
                      r.longest * 1000);
        CHECK(r.share >= 0.48 && r.share < 0.9);
        // Half of the time is the prompts': what a piece of that length would bring in it.
        CHECK(r.read > 0 && r.longest <= m->make_s * 3.2 + 0.06 + m->piece_s + PACE_LEAST * m->token_s);
    }
}

static void test_a_slower_machine_is_learned(void **state) {
    (void)state;
    pace p;
    pace_init(&p);
    pace_learn(&p, 1, 0, 0.01);
    pace_learn(&p, 1, 32, 1.01); // a piece took a second
    CHECK(pace_prompt_room(&p, 1, 512) == 0);
    for (int i = 0; i < 99; i++) pace_learn(&p, 1, 0, 0.01);
    CHECK(pace_prompt_room(&p, 1, 512) == 0);
    pace_learn(&p, 1, 0, 0.02);
    CHECK(pace_prompt_room(&p, 1, 512) == PACE_LEAST); // paid back, and pieces are shorter now
    pace_learn(&p, 0, 100, 5.0);
    CHECK(pace_prompt_room(&p, 1, 512) > 0); // nobody lost anything
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alone_takes_all),
        cmocka_unit_test(test_answers_keep_half_their_speed),
        cmocka_unit_test(test_a_slower_machine_is_learned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
