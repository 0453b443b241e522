/* Sampling against its definition: known answers, filters one by one, ties, distribution. */
#include "check.h"

#include "run/sample.h"

#include <math.h>

static const mica_sampling g_plain = {.temperature = 1.0f, .top_p = 1.0f, .repeat_penalty = 1.0f};

static int32_t pick(sampler *s, const float *l, const mica_sampling *p, uint64_t pos) {
    mica_error err;
    int32_t id;
    CHECK_OK(sampler_pick(s, &(sample_args){.logits = l, .p = p, .pos = pos}, &id, &err));
    return id;
}

static sampler *make(uint32_t n) {
    sampler *s;
    mica_error err;
    CHECK_OK(sampler_new(&s, n, &err));
    return s;
}

/* The generator's published known answer: zero counter, zero key gives 6627e8d5 first. */
static void test_generator_known_answer(void **state) {
    (void)state;
    CHECK(sample_uniform(0, 0) == (float)(0x6627e8d5u >> 8) * 0x1p-24f);
    for (uint64_t i = 0; i < 10000; i++) {
        float u = sample_uniform(i * 77, i);
        CHECK(u >= 0.0f && u < 1.0f);
    }
    CHECK(sample_uniform(1, 5) != sample_uniform(2, 5) && sample_uniform(1, 5) != sample_uniform(1, 6));
    CHECK(sample_uniform(1ull << 40, 5) != sample_uniform(0, 5) &&
          sample_uniform(1, 1ull << 40) != sample_uniform(1, 0));
}

static void test_greedy_takes_the_lowest_of_equals(void **state) {
    (void)state;
    const float l[6] = {1, 3, 2, 3, -INFINITY, 3};
    sampler *s = make(6);
    mica_sampling p = g_plain;
    p.temperature = 0;
    CHECK(pick(s, l, &p, 0) == 1);
    p = g_plain;
    p.top_k = 1;
    CHECK(pick(s, l, &p, 3) == 1);
    sampler_free(s);
}

static void test_what_a_file_suppresses_never_comes(void **state) {
    (void)state;
    static const float l[6] = {1, 3, 2, 9, 4, 8};
    static const int32_t never[2] = {3, 5};
    sampler *s = make(6);
    mica_sampling p = g_plain;
    p.temperature = 0;
    CHECK(pick(s, l, &p, 0) == 3);
    sampler_suppress(s, never, 2);
    CHECK(pick(s, l, &p, 0) == 4);
    p.bias = &(mica_bias){.id = 3, .bias = 100};
    p.n_bias = 1;
    CHECK(pick(s, l, &p, 0) == 4); // a wish does not lift it
    p = g_plain;
    p.temperature = 100;
    for (uint64_t pos = 0; pos < 500; pos++) {
        int32_t id = pick(s, l, &p, pos);
        CHECK(id != 3 && id != 5);
    }
    sampler_free(s);
}

/* A second implementation, straight from rule 11, in the simplest form. */
static int32_t slow_pick(const float *l, uint32_t n, const mica_sampling *p, uint64_t pos) {
    uint32_t order[600], m = n;
    float pr[600], total = 0;
    for (uint32_t i = 0; i < n; i++) order[i] = i;
    for (uint32_t i = 1; i < n; i++) { // insertion sort, stable
        for (uint32_t j = i; j > 0 && l[order[j]] > l[order[j - 1]]; j--) {
            uint32_t t = order[j];
            order[j] = order[j - 1];
            order[j - 1] = t;
        }
    }
    if (p->top_k > 0 && (uint32_t)p->top_k < m) m = (uint32_t)p->top_k;
    for (uint32_t i = 0; i < m; i++)
        pr[i] = (float)exp((double)((l[order[i]] - l[order[0]]) / p->temperature));
    for (uint32_t i = 0; i < m; i++) total += pr[i];
    if (p->top_p < 1.0f) {
        float sum = 0;
        uint32_t k = 0;
        while (k < m && sum < p->top_p * total) sum += pr[k++];
        m = k < 1 ? 1 : k;
    }
    while (m > 1 && pr[m - 1] < p->min_p) m--;
    total = 0;
    for (uint32_t i = 0; i < m; i++) total += pr[i];
    float goal = sample_uniform(p->seed, pos) * total, sum = 0;
    for (uint32_t i = 0; i < m; i++) {
        sum += pr[i];
        if (sum > goal) return (int32_t)order[i];
    }
    return (int32_t)order[m - 1];
}

static void test_filters_equal_the_plain_definition(void **state) {
    (void)state;
    uint64_t seed = 20261130;
    printf("seed %llu\n", (unsigned long long)seed);
    sampler *s = make(600);
    int differ = 0;
    for (int round = 0; round < 3000; round++) {
        float l[600];
        for (int i = 0; i < 600; i++) l[i] = floorf(test_randf(&seed) * 40.0f) * 0.25f; // many ties
        mica_sampling p = g_plain;
        p.temperature = 0.1f + (float)(test_rand(&seed) % 30) * 0.1f;
        p.top_k = (int32_t)(test_rand(&seed) % 4) * 17;
        p.top_p = (float)(test_rand(&seed) % 11) * 0.1f;
        p.min_p = (float)(test_rand(&seed) % 4) * 0.1f;
        p.seed = test_rand(&seed);
        differ += pick(s, l, &p, (uint64_t)round) != slow_pick(l, 600, &p, (uint64_t)round);
    }
    CHECK(differ <= 3); // libm's exp may round otherwise at the edge of a bin
    sampler_free(s);
}

static void test_penalties_and_bias(void **state) {
    (void)state;
    const float l[4] = {2.0f, 1.9f, -1.0f, 0.0f};
    const int32_t past[5] = {3, 0, 0, 2, 0};
    mica_error err;
    int32_t id;
    sampler *s = make(4);
    mica_sampling p = g_plain;
    p.temperature = 0;
    sample_args a = {.logits = l, .p = &p, .history = past, .n_history = 5};
    p.penalty_last_n = 64;
    p.repeat_penalty = 1.5f; // 2.0 / 1.5 < 1.9
    CHECK_OK(sampler_pick(s, &a, &id, &err));
    CHECK(id == 1);
    p.penalty_last_n = 0;
    CHECK_OK(sampler_pick(s, &a, &id, &err));
    CHECK(id == 0);
    p.repeat_penalty = 1.0f;
    p.penalty_last_n = -1;
    p.frequency_penalty = 0.04f; // three times 0.04 is more than 0.1
    CHECK_OK(sampler_pick(s, &a, &id, &err));
    CHECK(id == 1);
    p.penalty_last_n = 2; // once 0.04 is not
    CHECK_OK(sampler_pick(s, &a, &id, &err));
    CHECK(id == 0);
    p = g_plain;
    p.temperature = 0;
    mica_bias bias[2] = {{0, -INFINITY}, {3, 5.0f}};
    p.bias = bias;
    p.n_bias = 1;
    CHECK_OK(sampler_pick(s, &a, &id, &err));
    CHECK(id == 1);
    p.n_bias = 2;
    CHECK_OK(sampler_pick(s, &a, &id, &err));
    CHECK(id == 3);
    uint8_t allowed = 1u << 2;
    a.allowed = &allowed;
    CHECK_OK(sampler_pick(s, &a, &id, &err));
    CHECK(id == 2);
    allowed = 0;
    CHECK(sampler_pick(s, &a, &id, &err) == MICA_E_ARG && id == -1);
    sampler_free(s);
}

static void test_nonsense_is_named(void **state) {
    (void)state;
    mica_error err;
    mica_sampling p = g_plain;
    int32_t id;
    CHECK_OK(sampling_check(&p, 10, &err));
    p.temperature = -1;
    CHECK(sampling_check(&p, 10, &err) == MICA_E_ARG && strstr(err.text, "temperature"));
    p.temperature = NAN;
    CHECK(sampling_check(&p, 10, &err) == MICA_E_ARG);
    p = g_plain;
    p.repeat_penalty = 0;
    CHECK(sampling_check(&p, 10, &err) == MICA_E_ARG && strstr(err.text, "repeat_penalty"));
    mica_bias b = {10, 0};
    p = g_plain;
    p.bias = &b;
    p.n_bias = 1;
    CHECK(sampling_check(&p, 10, &err) == MICA_E_ARG && strstr(err.text, "10"));
    sampler *s = make(3);
    const float bad[3] = {0, NAN, 0}, inf[3] = {INFINITY, 0, 0};
    p = g_plain;
    CHECK(sampler_pick(s, &(sample_args){.logits = bad, .p = &p}, &id, &err) == MICA_E_INTERNAL);
    CHECK(sampler_pick(s, &(sample_args){.logits = inf, .p = &p}, &id, &err) == MICA_E_INTERNAL);
    const float l[3] = {-3e38f, 3e38f, 0};
    for (int i = 0; i < 4; i++) {
        p.temperature = (float[]){1e-9f, 1e9f, 1e-38f, 1.0f}[i];
        CHECK(pick(s, l, &p, 7) >= 0);
    }
    sampler_free(s);
}

/* 40,000 draws over positions follow the softmax: chi-square with 7 degrees of freedom, 0.999 quantile 24.3.
 */
static void test_draws_follow_the_distribution(void **state) {
    (void)state;
    float l[8], p[8], sum = 0;
    int n[8] = {0}, total = 40000;
    for (int i = 0; i < 8; i++) l[i] = (float)i * 0.4f;
    for (int i = 0; i < 8; i++) sum += p[i] = expf(l[i]);
    sampler *s = make(8);
    mica_sampling o = g_plain;
    o.seed = 42;
    for (int i = 0; i < total; i++) n[pick(s, l, &o, (uint64_t)i)]++;
    double chi = 0;
    for (int i = 0; i < 8; i++) {
        double want = (double)total * (double)(p[i] / sum), d = n[i] - want;
        chi += d * d / want;
    }
    CHECK(chi < 24.3);
    sampler_free(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_generator_known_answer),
        cmocka_unit_test(test_greedy_takes_the_lowest_of_equals),
        cmocka_unit_test(test_what_a_file_suppresses_never_comes),
        cmocka_unit_test(test_filters_equal_the_plain_definition),
        cmocka_unit_test(test_penalties_and_bias),
        cmocka_unit_test(test_nonsense_is_named),
        cmocka_unit_test(test_draws_follow_the_distribution),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
