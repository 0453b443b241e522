/* When drafts pay: the fit finds the line it was shown, and the choice is the best by trying all. */
#include "check.h"

#include "run/draft_cost.h"

#include <math.h>

/* Costs of a machine whose steps take a + b * rows, and draft calls d. */
static draft_cost machine(double a, double b, double d) {
    draft_cost c = {0};
    for (int i = 0; i < 200; i++) {
        uint32_t n_row = 1 + (uint32_t)(i * 7 % 13);
        draft_cost_add_step(&c, n_row, a + b * n_row);
    }
    draft_cost_add_call(&c, d);
    return c;
}

static void test_the_line_is_found(void **state) {
    (void)state;
    draft_cost c = machine(10.0, 0.5, 1.0), none = {0};
    CHECK(fabs(draft_cost_of_step(&c, 1) - 10.5) < 1e-6 && fabs(draft_cost_of_step(&c, 64) - 42.0) < 1e-6);
    CHECK(draft_cost_of_step(&none, 5) == 0.0);
    draft_cost_add_step(&none, 4, 8.0);
    draft_cost_add_step(&none, 4, 12.0);
    CHECK(draft_cost_of_step(&none, 4) == draft_cost_of_step(&none, 8)); // one size: no slope is made up
    for (int i = 0; i < 500; i++)
        draft_cost_add_step(&c, 1 + (uint32_t)(i % 5), 3.0); // what was is forgotten
    CHECK(fabs(draft_cost_of_step(&c, 4) - 3.0) < 0.05);
}

static void test_the_best_is_chosen(void **state) {
    (void)state;
    uint64_t seed = 9;
    for (int i = 0; i < 300; i++) {
        draft_cost c = machine(1.0 + (double)(test_rand(&seed) % 20), (double)(test_rand(&seed) % 40) / 20.0,
                               (double)(test_rand(&seed) % 20) / 10.0);
        uint32_t n = 1 + (uint32_t)(test_rand(&seed) % 16);
        double p = (double)(test_rand(&seed) % 100) / 100.0, best = 0.0;
        uint32_t want = 0;
        for (uint32_t k = 0; k <= 7; k++) {
            double gain = 0.0;
            for (uint32_t j = 0; j <= k; j++) gain += pow(p, j);
            double rate = gain / (draft_cost_of_step(&c, n * (1 + k)) + k * c.draft_ms);
            if (rate > best * (1.0 + 1e-12)) best = rate, want = k;
        }
        CHECK(draft_cost_choose(&c, n, p, 7) == want);
    }
}

static void test_alone_and_in_a_crowd(void **state) {
    (void)state;
    draft_cost c = machine(20.0, 1.0, 0.5), none = {0}; // one answer: bytes; many: rows
    CHECK(draft_cost_choose(&none, 8, 0.7, 4) == 4);    // nothing is known: as asked
    uint32_t alone = draft_cost_choose(&c, 1, 0.7, 7), crowd = draft_cost_choose(&c, 32, 0.7, 7);
    CHECK(alone >= 3 && crowd < alone);
    CHECK(draft_cost_choose(&c, 64, 0.2, 7) == 0);
    CHECK(draft_cost_choose(&c, 1, 0.0, 7) == 0);
    double hit = 2.0, miss = 1.0;
    for (int i = 0; i < 100; i++) draft_cost_seen(&hit, &miss, 4, 4);
    CHECK(hit / (hit + miss) > 0.98);
    for (int i = 0; i < 100; i++) draft_cost_seen(&hit, &miss, 4, 0);
    CHECK(hit / (hit + miss) < 0.05);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_line_is_found),
        cmocka_unit_test(test_the_best_is_chosen),
        cmocka_unit_test(test_alone_and_in_a_crowd),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
