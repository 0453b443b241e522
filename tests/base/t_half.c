/* half.h over all patterns, and rounding against neighbours found in double. */
#include "check.h"

#include "base/half.h"

#include <math.h>

/* The value of an f16 pattern from its definition. */
static double f16_value(uint16_t h) {
    int e = h >> 10 & 31, m = h & 0x3FF;
    double v = e == 31 ? (m ? NAN : INFINITY) : e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
    return h & 0x8000 ? -v : v;
}

static void test_every_f16_and_bf16_comes_back(void **state) {
    (void)state;
    for (uint32_t h = 0; h <= 0xFFFF; h++) {
        double want = f16_value((uint16_t)h);
        float f = f16_to_f32((uint16_t)h), b = bf16_to_f32((uint16_t)h);
        if (isnan(want))
            CHECK(isnan(f) && isnan(f16_to_f32(f32_to_f16(f))));
        else
            CHECK((double)f == want && !signbit(f) == !signbit(want) && f32_to_f16(f) == h);
        if (isnan(b))
            CHECK(isnan(bf16_to_f32(f32_to_bf16(b))));
        else
            CHECK(f32_bits(b) == h << 16 && f32_to_bf16(b) == h);
    }
}

/* x lies between two neighbours of magnitude lo and lo + 1 (as patterns): the nearer one, of two as near the
 * even one. */
static uint16_t f16_nearest(float x) {
    uint16_t lo = 0;
    double a = fabs((double)x);
    for (int bit = 1 << 14; bit; bit >>= 1) {
        uint16_t try = (uint16_t)(lo | bit);
        if (try <= 0x7BFF && f16_value(try) <= a) lo = try;
    }
    double below = a - f16_value(lo), next = lo == 0x7BFF ? 65536.0 : f16_value((uint16_t)(lo + 1)),
           above = next - a;
    uint16_t r = (uint16_t)(lo + (above < below || (above == below && lo % 2)));
    return (uint16_t)(r | (signbit(x) ? 0x8000 : 0));
}

static void test_rounding_to_f16_and_bf16(void **state) {
    (void)state;
    uint64_t seed = 0xF16;
    for (int i = 0; i < 400000; i++) {
        uint64_t r = test_rand(&seed);
        // Exponents around f16's range, and every fourth time a tie or its neighbour.
        uint32_t u = (uint32_t)(r & 0x807FFFFF) | (uint32_t)(96 + (r >> 40) % 50) << 23;
        if (i % 4 == 0) u = (u & ~0x1FFFu) | (0x1000u + (uint32_t)(r >> 50) % 3 - 1);
        float x = bits_f32(u);
        CHECK(f32_to_f16(x) == f16_nearest(x));
        double ulp = ldexp(1, ilogb((double)x) - 7),
               err = fabs((double)bf16_to_f32(f32_to_bf16(x)) - (double)x);
        CHECK(err < ulp / 2 || (err == ulp / 2 && f32_to_bf16(x) % 2 == 0));
    }
    CHECK(f32_to_f16(65519.99f) == 0x7BFF && f32_to_f16(65520.0f) == 0x7C00 &&
          f32_to_f16(-INFINITY) == 0xFC00);
    CHECK(f32_to_f16(0x1p-25f) == 0 && f32_to_f16(0x1.000002p-25f) == 1 && f32_to_f16(-0.0f) == 0x8000);
    CHECK(f32_to_bf16(0x1.fffffep127f) == 0x7F80 && f32_to_bf16(bits_f32(0x7F800001)) == 0x7FC0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_f16_and_bf16_comes_back),
        cmocka_unit_test(test_rounding_to_f16_and_bf16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
