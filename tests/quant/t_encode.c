/* Encode, then decode: errors of the size the format allows, zeros stay zero, and hostile numbers do no harm.
 */
#include "check.h"

#include "base/num.h"
#include "quant/quant.h"

#include <math.h>

enum { N = 256 * 64 };

/* Largest and root-mean-square error of weights even in -1..1: half a step and step / sqrt 12, plus what
 * clipping at the far end and rounded scales cost. */
static const struct {
    gguf_type type;
    float worst, rms;
} g_case[] = {
    {GGUF_F32, 0.0f, 0.0f},        {GGUF_F16, 0.00025f, 0.00011f}, {GGUF_BF16, 0.002f, 0.0009f},
    {GGUF_Q8_0, 0.004f, 0.0023f},  {GGUF_Q6_K, 0.0325f, 0.009f},   {GGUF_Q5_0, 0.0626f, 0.019f},
    {GGUF_Q5_1, 0.0325f, 0.018f},  {GGUF_Q5_K, 0.0325f, 0.018f},   {GGUF_Q4_0, 0.126f, 0.04f},
    {GGUF_Q4_1, 0.068f, 0.037f},   {GGUF_Q4_K, 0.068f, 0.037f},    {GGUF_IQ4_NL, 0.111f, 0.042f},
    {GGUF_IQ4_XS, 0.121f, 0.042f}, {GGUF_MXFP4, 0.251f, 0.09f},    {GGUF_Q3_K, 0.255f, 0.082f},
    {GGUF_Q2_K, 0.34f, 0.17f},
};
enum { N_CASE = sizeof g_case / sizeof *g_case };

static uint8_t g_bytes[N * 4];
static float g_x[N], g_y[N];

static void test_round_trip_errors(void **state) {
    (void)state;
    uint64_t seed = 0xE2C0DE;
    for (int i = 0; i < N; i++) g_x[i] = test_randf(&seed);
    for (int c = 0; c < N_CASE; c++) {
        CHECK(quant_encode(g_bytes, g_x, g_case[c].type, N));
        quant_decode(g_y, g_bytes, g_case[c].type, N);
        double worst = 0, sum = 0;
        for (int i = 0; i < N; i++) {
            double e = fabs((double)g_y[i] - (double)g_x[i]);
            worst = fmax(worst, e);
            sum += e * e;
        }
        double rms = sqrt(sum / N);
        print_message("%-7s worst %.4g rms %.4g\n", gguf_type_get(g_case[c].type)->name, worst, rms);
        CHECK(worst <= (double)g_case[c].worst && rms <= (double)g_case[c].rms);
        CHECK(c == 0 || rms >= (double)g_case[c].rms / 1.2); // a bound that says something
    }
}

static void test_zeros_and_hostile_numbers(void **state) {
    (void)state;
    uint64_t seed = 0xBAD;
    static const uint32_t odd[] = {0x7F800000, 0xFF800000, 0x7FC00000, 0x00000001,
                                   0x7F7FFFFF, 0xFF7FFFFF, 0x80000000, 0x00800000};
    for (int c = 0; c < N_CASE; c++) {
        memset(g_x, 0, sizeof g_x);
        CHECK(quant_encode(g_bytes, g_x, g_case[c].type, N));
        quant_decode(g_y, g_bytes, g_case[c].type, N);
        for (int i = 0; i < N; i++) CHECK(g_y[i] == 0);
        for (int i = 0; i < N; i++)
            g_x[i] = bits_f32(i % 3 ? odd[test_rand(&seed) % 8] : (uint32_t)(test_rand(&seed) >> 32));
        CHECK(quant_encode(g_bytes, g_x, g_case[c].type, N));
        quant_decode(g_y, g_bytes, g_case[c].type, N);
    }
}

static void test_types_without_a_quantiser_say_so(void **state) {
    (void)state;
    CHECK(!quant_encode(g_bytes, g_x, GGUF_IQ2_XXS, 256));
    CHECK(!quant_encode(g_bytes, g_x, GGUF_Q8_K, 256));
    CHECK(!quant_encode(g_bytes, g_x, (gguf_type)4, 256));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip_errors),
        cmocka_unit_test(test_zeros_and_hostile_numbers),
        cmocka_unit_test(test_types_without_a_quantiser_say_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
