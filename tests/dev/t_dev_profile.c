/* A device under a profile: the same results, calls counted by kind and shape, and the device's own table
 * after. */
#include "check.h"

#include "dev/dev_profile.h"
#include "gguf/type.h"

#include <string.h>

enum { N_COL = 64, N_OUT_MAX = 80, N_ROW = 3 };

static float g_w[N_OUT_MAX * N_COL], g_x[N_ROW * N_COL];

static dev *open_ref(void) {
    mica_error err;
    dev *d = NULL;
    dev_config cfg = {
        .kind = DEV_REF,
        .n_thread = 1,
        .limits = {.n_row = N_ROW, .n_col = N_COL, .n_out = N_OUT_MAX, .n_head = 1, .d_head = 64}};
    CHECK(dev_open(&d, &cfg, &err) == MICA_OK);
    for (size_t i = 0; i < sizeof g_w / sizeof g_w[0]; i++) g_w[i] = (float)(i % 7) - 3;
    for (size_t i = 0; i < sizeof g_x / sizeof g_x[0]; i++) g_x[i] = (float)(i % 5) * 0.25f;
    return d;
}

static void product(dev *d, float *y, uint32_t n_out) {
    mica_error err;
    linear_args a = {.a = {.x = g_x, .ld = N_COL}, .n_out = 1, .n_row = N_ROW};
    a.out[0] = (linear_out){
        .y = y, .ld_y = n_out, .w = {.w = g_w, .type = GGUF_F32, .n_row = n_out, .n_col = N_COL}};
    CHECK(dev_linear(d, &a, &err) == MICA_OK);
}

static void test_counts_and_changes_nothing(void **st) {
    (void)st;
    mica_error err;
    dev *d = open_ref();
    const dev_ops *own = d->ops;
    float want[N_ROW * 8], got[N_ROW * 8], v[4] = {1, 2, 3, 4};
    product(d, want, 8);
    dev_profile *p = NULL;
    CHECK(dev_profile_start(&p, d, &err) == MICA_OK);
    product(d, got, 8);
    CHECK(memcmp(want, got, sizeof want) == 0);
    product(d, got, 8);
    product(d, got, 5);
    CHECK(dev_softcap(d, &(softcap_args){.y = v, .cap = 2, .n = 4}, &err) == MICA_OK);

    dev_profile_row r[DEV_PROFILE_MAX];
    uint32_t n = dev_profile_rows(p, r);
    CHECK(n == 3);
    for (uint32_t i = 1; i < n; i++) CHECK(r[i - 1].ns >= r[i].ns);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t n_out = strcmp(r[i].what, "linear f32 64 x 8") == 0   ? 8
                         : strcmp(r[i].what, "linear f32 64 x 5") == 0 ? 5
                                                                       : 0;
        CHECK(n_out > 0 || strcmp(r[i].what, "softcap") == 0);
        CHECK(r[i].n_call == (n_out == 8 ? 2u : 1u));
        CHECK(r[i].bytes == r[i].n_call * n_out * N_COL * sizeof(float));
        CHECK(r[i].ops == r[i].n_call * 2 * n_out * N_COL * N_ROW);
    }
    dev_profile_clear(p);
    CHECK(dev_profile_rows(p, r) == 0 && dev_profile_step_ns(p) == 0);
    dev_profile_stop(p);
    CHECK(d->ops == own);
    product(d, got, 8);
    CHECK(memcmp(want, got, sizeof want) == 0);
    dev_close(d);
}

static void test_more_kinds_than_rows(void **st) {
    (void)st;
    mica_error err;
    dev *d = open_ref();
    dev_profile *p = NULL;
    float y[N_ROW * N_OUT_MAX];
    CHECK(dev_profile_start(&p, d, &err) == MICA_OK);
    for (uint32_t n = 1; n <= N_OUT_MAX; n++) product(d, y, n);
    dev_profile_row r[DEV_PROFILE_MAX];
    uint64_t n_call = 0;
    uint32_t n = dev_profile_rows(p, r);
    CHECK(n == DEV_PROFILE_MAX);
    for (uint32_t i = 0; i < n; i++) n_call += r[i].n_call;
    CHECK(n_call == N_OUT_MAX); // none is lost
    dev_profile_stop(p);
    dev_close(d);
}

static void test_steps_are_timed(void **st) {
    (void)st;
    mica_error err;
    dev *d = open_ref();
    dev_profile *p = NULL;
    bool done = true;
    float y[N_ROW * 8];
    CHECK(dev_profile_start(&p, d, &err) == MICA_OK);
    CHECK(dev_step_begin(d, &(dev_step){0}, &done, &err) == MICA_OK && !done);
    product(d, y, 8);
    CHECK(dev_step_end(d, true, &err) == MICA_OK);
    dev_profile_row r[DEV_PROFILE_MAX];
    CHECK(dev_profile_rows(p, r) == 1 && dev_profile_step_ns(p) >= r[0].ns && r[0].ns > 0);
    dev_profile_stop(p);
    dev_profile_stop(NULL);
    dev_close(d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts_and_changes_nothing),
        cmocka_unit_test(test_more_kinds_than_rows),
        cmocka_unit_test(test_steps_are_timed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
