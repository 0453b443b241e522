/* Log-probabilities against the definition in double precision, and the order of the likeliest. */
#include "check.h"

#include "run/logprob.h"

#include <math.h>

enum { N = 3000, N_TOP = 5 };

static void test_against_the_definition(void **state) {
    (void)state;
    uint64_t seed = 77;
    float logits[N];
    for (int round = 0; round < 20; round++) {
        mica_logprob out[1 + N_TOP];
        double sum = 0.0, max = -INFINITY;
        for (int i = 0; i < N; i++) {
            logits[i] = 12.0f * test_randf(&seed);
            if (logits[i] > max) max = logits[i];
        }
        for (int i = 0; i < N; i++) sum += exp(logits[i] - max);
        int32_t id = (int32_t)(test_rand(&seed) % N);
        logprob_top(out, N_TOP, id, logits, N);
        CHECK(out[0].id == id);
        for (int k = 0; k <= N_TOP; k++)
            CHECK(fabs(out[k].logprob - (logits[out[k].id] - max - log(sum))) < 1e-5);
        for (int k = 1; k <= N_TOP; k++) { // exactly k - 1 tokens come before the k-th
            int before = 0;
            for (int i = 0; i < N; i++)
                before += logits[i] > logits[out[k].id] || (logits[i] == logits[out[k].id] && i < out[k].id);
            CHECK(before == k - 1);
        }
    }
}

static void test_ties_and_short_vocabularies(void **state) {
    (void)state;
    const float same[4] = {1.0f, 1.0f, 1.0f, 1.0f}, two[2] = {-200.0f, 0.0f};
    mica_logprob out[1 + N_TOP];
    logprob_top(out, 3, 2, same, 4);
    for (int k = 0; k < 3; k++) CHECK(out[1 + k].id == k);
    CHECK(out[0].id == 2 && fabsf(out[0].logprob + logf(4.0f)) < 1e-6f);
    logprob_top(out, N_TOP, 0, two, 2);
    CHECK(out[1].id == 1 && out[2].id == 0 && out[3].id == -1 && out[5].id == -1);
    CHECK(out[0].logprob == -200.0f && out[1].logprob == 0.0f); // no rounding to zero on the way
    logprob_top(out, 0, 1, two, 2);
    CHECK(out[0].id == 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_the_definition),
        cmocka_unit_test(test_ties_and_short_vocabularies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
