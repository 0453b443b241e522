/* The simulated card's processor by itself: a kernel runs whole, and what a kernel does wrong is told. */
#include "check.h"

#include "dev/gpu_int.h"
#include "dev/simt.h"
#include "kern/record.h"
#include "kern/simt_lane.h"

static char g_why[300];

static bool run(uint32_t wave, void (*lane)(const void *), uint32_t n_thread, void *args) {
    simt_kernel k = {"test", lane, sizeof(void *), 256};
    simt_call c = {.grid = {2, 1, 1}, .n_thread = n_thread, .args = &args, .n_args = sizeof(void *)};
    g_why[0] = 0;
    return simt_run_kernel(wave, &k, &c, g_why, sizeof g_why);
}

/* Thread t + 256 x block: the sum of the wave's lanes, then what thread 0 of the block put into shared
 * memory. */
static void lane_sums(const void *args) {
    float *y = *(float *const *)args;
    float *shared = simt_shared(256 * sizeof(float)), v = (float)simt_me->thread;
    const float *s = simt_wave(&v, 1, SIMT_SUM);
    float sum = 0.0f;
    for (uint32_t i = 0; i < 32; i++) sum += s[4 * ((simt_me->lane & ~31u) + i)];
    shared[simt_me->thread] = sum + (float)simt_me->block[0];
    simt_barrier(1);
    y[simt_me->block[0] * 256 + simt_me->thread] = shared[255 - simt_me->thread];
}

static void test_lanes_meet(void **state) {
    (void)state;
    float y[512];
    for (uint32_t wave = 32; wave <= 64; wave += 32) {
        CHECK(run(wave, lane_sums, 256, y));
        for (uint32_t i = 0; i < 512; i++) {
            uint32_t other = 255 - i % 256, first = other / 32 * 32;
            CHECK(y[i] == (float)(32 * first + 31 * 16 + i / 256));
        }
    }
}

/* Memory that nobody wrote in this block is NaN, also after another block wrote it. */
static void lane_reads_unwritten(const void *args) {
    float *y = *(float *const *)args, *shared = simt_shared(256 * sizeof(float));
    y[simt_me->thread] = shared[simt_me->thread];
    shared[simt_me->thread] = 1.0f;
}

static void test_shared_begins_as_nothing(void **state) {
    (void)state;
    float y[256];
    CHECK(run(32, lane_reads_unwritten, 256, y));
    for (int i = 0; i < 256; i++) CHECK(y[i] != y[i]);
}

static void lane_half_at_barrier(const void *args) {
    (void)args;
    float v = 0.0f;
    if (simt_me->thread % 2)
        simt_barrier(7);
    else
        simt_wave(&v, 1, SIMT_XOR);
}
static void lane_two_barriers(const void *args) {
    (void)args;
    simt_barrier(simt_me->thread < 64 ? 11 : 12);
}
static void lane_one_more_exchange(const void *args) {
    (void)args;
    float v = 0.0f;
    if (simt_me->thread == 3) simt_wave(&v, 1, SIMT_XOR);
    simt_wave(&v, 1, SIMT_XOR);
    simt_wave(&v, 1, SIMT_MAX);
}
static void lane_takes_too_much(const void *args) {
    (void)args;
    *(char *)simt_shared(SIMT_SHARED_MAX + 1) = 0;
}

static void test_lanes_that_part_are_told(void **state) {
    (void)state;
    CHECK(!run(32, lane_half_at_barrier, 64, NULL) && strstr(g_why, "barrier of line 7"));
    CHECK(!run(64, lane_two_barriers, 128, NULL) && strstr(g_why, "12"));
    CHECK(!run(32, lane_one_more_exchange, 64, NULL) && strstr(g_why, "wave operation"));
    CHECK(!run(32, lane_takes_too_much, 64, NULL) && strstr(g_why, "shared memory"));
    float y[512];
    CHECK(run(32, lane_sums, 256, y)); // and the next kernel runs as ever
}

/* Lanes that are done take no part: what they would have brought is NaN. */
static void lane_leaves_early(const void *args) {
    float *y = *(float *const *)args, v = 1.0f;
    if (simt_me->thread >= 16) return;
    const float *s = simt_wave(&v, 1, SIMT_XOR);
    y[simt_me->thread] = s[4 * (simt_me->lane ^ 16)];
}

static void test_lanes_that_left_are_nan(void **state) {
    (void)state;
    float y[16];
    CHECK(run(32, lane_leaves_early, 64, y));
    for (int i = 0; i < 16; i++) CHECK(y[i] != y[i]);
}

static void test_wrong_launches(void **state) {
    (void)state;
    float x[300], s = 2.0f;
    for (int i = 0; i < 300; i++) x[i] = (float)i;
    scale_args a = {x, &s, 299};
    simt_call c = {GPU_K_scale_values, {2, 1, 1}, 256, &a, sizeof a};
    CHECK(simt_run(64, &c, g_why, sizeof g_why));
    for (int i = 0; i < 300; i++) CHECK(x[i] == (float)(i < 299 ? 2 * i : i));
    c.n_thread = 96;
    CHECK(!simt_run(64, &c, g_why, sizeof g_why) && strstr(g_why, "threads"));
    c.n_thread = 512;
    CHECK(!simt_run(64, &c, g_why, sizeof g_why) && strstr(g_why, "scale_values"));
    c.n_thread = 256;
    c.n_args = 1;
    CHECK(!simt_run(64, &c, g_why, sizeof g_why) && strstr(g_why, "record"));
    c.n_args = sizeof a;
    CHECK(!simt_run(16, &c, g_why, sizeof g_why) && strstr(g_why, "wave"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lanes_meet),
        cmocka_unit_test(test_shared_begins_as_nothing),
        cmocka_unit_test(test_lanes_that_part_are_told),
        cmocka_unit_test(test_lanes_that_left_are_nan),
        cmocka_unit_test(test_wrong_launches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
