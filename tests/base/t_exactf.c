/* exactf.h against long double: the largest error in units of the last place over dense sweeps, and the
 * special values. */
#include "check.h"

#include "base/exactf.h"

#include <math.h>

#define GELU_C 0.7978845608028653558798921198687637369517L // sqrt(2 / pi)

static long double ref_exp(long double x) {
    return expl(x);
}
static long double ref_log(long double x) {
    return logl(x);
}
static long double ref_tanh(long double x) {
    return tanhl(x);
}
static long double ref_sigmoid(long double x) {
    return x < 0 ? expl(x) / (1 + expl(x)) : 1 / (1 + expl(-x));
}
static long double ref_silu(long double x) {
    return x * ref_sigmoid(x);
}
static long double ref_gelu(long double x) {
    return x * ref_sigmoid(2 * GELU_C * (x + 0.044715L * x * x * x));
}
static long double ref_softplus(long double x) {
    return (x > 0 ? x : 0) + log1pl(expl(-fabsl(x)));
}

typedef struct function {
    const char *name;
    float (*f)(float);
    long double (*ref)(long double);
    float lo, hi; // every float sampled densely between these; the rest of the line sparsely
    double bound; // units of the last place
} function;

static float do_exp(float x) {
    return exactf_exp(x);
}
static float do_log(float x) {
    return exactf_log(x);
}
static float do_tanh(float x) {
    return exactf_tanh(x);
}
static float do_sigmoid(float x) {
    return exactf_sigmoid(x);
}
static float do_silu(float x) {
    return exactf_silu(x);
}
static float do_gelu(float x) {
    return exactf_gelu(x);
}
static float do_softplus(float x) {
    return exactf_softplus(x);
}

static const function g_function[] = {
    {"exp", do_exp, ref_exp, -104.0f, 89.0f, 1.0},
    {"log", do_log, ref_log, 0.5f, 2.0f, 1.0},
    {"sigmoid", do_sigmoid, ref_sigmoid, -104.0f, 20.0f, 1.0},
    {"silu", do_silu, ref_silu, -110.0f, 20.0f, 1.75},
    {"gelu", do_gelu, ref_gelu, -11.0f, 6.0f, 1.75},
    {"tanh", do_tanh, ref_tanh, -9.5f, 9.5f, 1.5},
    {"softplus", do_softplus, ref_softplus, -104.0f, 20.0f, 2.0},
};
enum { N_FUNCTION = sizeof g_function / sizeof *g_function };

/* |got - want| in units of the last place of a float near want; past the end of the range the next step up is
 * infinity. */
static double ulp_error(float got, long double want) {
    if (isnan(got)) return INFINITY;
    int e;
    frexpl(want, &e);
    if (e < -125) e = -125;
    if (fabsl(want) >= 0x1.ffffffp127L) return isinf(got) && (got > 0) == (want > 0) ? 0 : INFINITY;
    if (isinf(got)) return INFINITY;
    return (double)ldexpl(fabsl((long double)got - want), 24 - e);
}

/* Every step-th float of a range of bit patterns. */
static void sweep(const function *f, uint32_t from, uint32_t to, uint32_t step, double *worst, float *at) {
    for (uint64_t u = from; u <= to; u += step) {
        float x = bits_f32((uint32_t)u);
        double e = ulp_error(f->f(x), f->ref((long double)x));
        if (e > *worst) {
            *worst = e;
            *at = x;
        }
    }
}

/* All exponents of both signs at about `coarse` points each, then the interesting range on a fine even grid.
 */
static void measure(const function *f, uint32_t coarse, uint32_t fine, double *worst, float *at) {
    uint32_t step = (1u << 23) / coarse | 1;
    *worst = 0;
    sweep(f, 0x00000001u, 0x7F7FFFFFu, step, worst, at);
    if (f->ref != ref_log) sweep(f, 0x80000001u, 0xFF7FFFFFu, step, worst, at);
    for (uint32_t i = 0; i <= fine; i++) {
        float x = f->lo + (f->hi - f->lo) * ((float)i / (float)fine);
        double e = ulp_error(f->f(x), f->ref((long double)x));
        if (e > *worst) {
            *worst = e;
            *at = x;
        }
    }
}

static void test_errors_stay_within_the_stated_bounds(void **state) {
    (void)state;
    for (int i = 0; i < N_FUNCTION; i++) {
        double worst;
        float at = 0;
        measure(&g_function[i], 500, 300000, &worst, &at);
        print_message("%-8s %.3f ulp at %.9g (bound %g)\n", g_function[i].name, worst, (double)at,
                      g_function[i].bound);
        CHECK(worst <= g_function[i].bound);
    }
}

/* Every float of one binade where each function bends. */
static void test_every_float_of_the_worst_binades(void **state) {
    (void)state;
    static const struct {
        int f;
        uint32_t from, to;
    } range[] = {
        {0, 0x3EB17218u, 0x3EB3FFFFu}, // exp where the reduction changes over
        {1, 0x3F300000u, 0x3F37FFFFu}, // log around sqrt(1/2)
        {1, 0x3F7C0000u, 0x3F840000u}, // log around 1
        {2, 0xC2AEAC50u, 0xC2B00000u}, // sigmoid entering the denormals
        {3, 0xC2CFF000u, 0xC2D20000u}, // silu leaving them
        {4, 0xC1280000u, 0xC12B0000u}, // gelu leaving them
        {5, 0x3F1E0000u, 0x3F220000u}, // tanh where its two forms meet
        {6, 0xBF000000u, 0xBF080000u}, // softplus below 0
    };
    for (size_t i = 0; i < sizeof range / sizeof *range; i++) {
        double worst = 0;
        float at = 0;
        const function *f = &g_function[range[i].f];
        sweep(f, range[i].from, range[i].to, 1, &worst, &at);
        print_message("%-8s %.3f ulp at %.9g\n", f->name, worst, (double)at);
        CHECK(worst <= f->bound);
    }
}

static void test_special_values(void **state) {
    (void)state;
    for (int i = 0; i < N_FUNCTION; i++) {
        CHECK(isnan(g_function[i].f(NAN)) && isnan(g_function[i].f(-NAN)));
    }
    CHECK(exactf_exp(0) == 1 && exactf_exp(-0.0f) == 1 && exactf_exp(-INFINITY) == 0 &&
          isinf(exactf_exp(INFINITY)));
    CHECK(isinf(exactf_exp(88.7228394f)) && isfinite(exactf_exp(88.7228317f)));
    CHECK(exactf_exp(-103.972084f) == 0 && exactf_exp(-103.972069f) == 0x1p-149f);
    CHECK(exactf_log(1) == 0 && isinf(exactf_log(0)) && isinf(exactf_log(-0.0f)) && isnan(exactf_log(-1)));
    CHECK(exactf_log(0) < 0 && exactf_log(INFINITY) == INFINITY && isnan(exactf_log(-INFINITY)));
    CHECK(exactf_sigmoid(0) == 0.5f && exactf_sigmoid(INFINITY) == 1 && exactf_sigmoid(-INFINITY) == 0);
    CHECK(exactf_silu(0) == 0 && exactf_silu(INFINITY) == INFINITY && exactf_silu(-INFINITY) == 0);
    CHECK(exactf_gelu(0) == 0 && exactf_gelu(INFINITY) == INFINITY && exactf_gelu(-INFINITY) == 0);
    CHECK(signbit(exactf_silu(-0.0f)) && signbit(exactf_gelu(-0.0f)) && signbit(exactf_tanh(-0.0f)));
    CHECK(exactf_tanh(INFINITY) == 1 && exactf_tanh(-INFINITY) == -1 && exactf_tanh(0x1p-149f) == 0x1p-149f);
    CHECK(exactf_softplus(INFINITY) == INFINITY && exactf_softplus(-INFINITY) == 0);
}

static double ulp_error_f64(double got, long double want) {
    int e;
    frexpl(want, &e);
    if (e < -1021) e = -1021;
    return (double)ldexpl(fabsl((long double)got - want), 53 - e);
}

static void test_doubles(void **state) {
    (void)state;
    uint64_t seed = 0xD0;
    double worst_exp = 0, worst_log = 0, worst_sc = 0, worst_pow = 0;
    for (int i = 0; i < 300000; i++) {
        double u = (double)(test_rand(&seed) >> 11) * 0x1p-53, v = (double)(test_rand(&seed) >> 11) * 0x1p-53;
        double x = (u - 0.5) * 1400, y = bits_f64((uint64_t)(v * 2046 * 0x1p52) + 0x10000000000000u);
        worst_exp = fmax(worst_exp, ulp_error_f64(exactd_exp(x), expl(x)));
        worst_log = fmax(worst_log, ulp_error_f64(exactd_log(y), logl(y)));
        double w = 0.5 + u;
        worst_log = fmax(worst_log, ulp_error_f64(exactd_log(w), logl(w)));
        double base = 10 + 1e7 * u, p = exactd_pow(base, -v);
        worst_pow = fmax(worst_pow, ulp_error_f64(p, powl(base, -v)));
        // From small angles to 1e7, and right beside multiples of pi / 2.
        double a = i % 3 == 0   ? 2e7 * (u - 0.5)
                   : i % 3 == 1 ? 20 * (u - 0.5)
                                : floor(u * 6.3e6) * 0x1.921fb54442d18p+0;
        exactd_sc sc = exactd_sincos(a);
        worst_sc = fmax(worst_sc,
                        (double)(fabsl((long double)sc.sin - sinl(a)) - 0x1p-53L * fabsl(sinl(a))) * 0x1p53);
        worst_sc = fmax(worst_sc,
                        (double)(fabsl((long double)sc.cos - cosl(a)) - 0x1p-53L * fabsl(cosl(a))) * 0x1p53);
    }
    print_message("f64: exp %.3f log %.3f pow %.3f ulp, sincos %.3f of 2^-53 beyond half a unit\n", worst_exp,
                  worst_log, worst_pow, worst_sc);
    CHECK(worst_exp <= 1 && worst_log <= 1 && worst_pow <= 32 && worst_sc <= 1);
    CHECK(exactd_exp(0) == 1 && exactd_log(1) == 0 && exactd_sincos(0).sin == 0 && exactd_sincos(0).cos == 1);
    CHECK(isinf(exactd_exp(710)) && exactd_exp(-760) == 0 && exactd_exp(-INFINITY) == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_errors_stay_within_the_stated_bounds),
        cmocka_unit_test(test_every_float_of_the_worst_binades),
        cmocka_unit_test(test_special_values),
        cmocka_unit_test(test_doubles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
