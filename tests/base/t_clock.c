/* The clock never goes back and counts nanoseconds. */
#include "check.h"

#include "base/clock.h"

#include <time.h>

static void test_clock_is_monotonic(void **state) {
    (void)state;
    uint64_t last = clock_ns();
    for (int i = 0; i < 100000; i++) {
        uint64_t now = clock_ns();
        CHECK(now >= last);
        last = now;
    }
}

static void test_clock_counts_nanoseconds(void **state) {
    (void)state;
    uint64_t start = clock_ns();
    nanosleep(&(struct timespec){.tv_nsec = 20 * 1000 * 1000}, NULL);
    double ms = clock_ms_since(start);
    CHECK(ms >= 20.0);
    CHECK(ms < 5000.0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_clock_is_monotonic),
        cmocka_unit_test(test_clock_counts_nanoseconds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
