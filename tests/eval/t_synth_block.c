/* Random blocks: of the wanted deviation, centred, finite, and such as a quantiser could have written. */
#include "check.h"

#include "base/mem.h"
#include "eval/synth_int.h"
#include "quant/quant.h"

enum { N_WEIGHT = 1 << 17 };

static bool is_weight(uint32_t id) {
    const gguf_type_info *t = gguf_type_get(id);
    return t && (t->cls == GGUF_CLASS_FLOAT || t->cls == GGUF_CLASS_QUANT);
}

static void check_spread(gguf_type type, double std, uint8_t *b, float *y) {
    const char *name = gguf_type_get((uint32_t)type)->name;
    double unit = synth_block_rms(type), sum = 0, square = 0, most = 0;
    synth_rng r = synth_rng_of(7, "spread");
    synth_blocks(b, type, N_WEIGHT / (uint64_t)gguf_type_get((uint32_t)type)->block, std / unit, &r);
    quant_decode(y, b, type, N_WEIGHT);
    for (int i = 0; i < N_WEIGHT; i++) {
        sum += (double)y[i];
        square += (double)y[i] * (double)y[i];
        most = fmax(most, fabs((double)y[i]));
    }
    double want = type == GGUF_NVFP4 ? unit : std, slack = type == GGUF_MXFP4 ? 1.42 : 1.05; // powers of two
    double rms = sqrt(square / N_WEIGHT), mean = sum / N_WEIGHT;
    bool good = rms > want / slack && rms < want * slack && fabs(mean) < 0.1 * want && most < 12 * want;
    if (!good) print_error("%s: deviation %g: rms %g mean %g most %g\n", name, want, rms, mean, most);
    CHECK(good); // false for NaN too
}

static void test_every_type_has_the_wanted_spread(void **state) {
    (void)state;
    uint8_t *b = mem_alloc(4 * N_WEIGHT);
    float *y = mem_alloc(4 * N_WEIGHT);
    int n_type = 0;
    for (uint32_t id = 0; id < GGUF_TYPE_N; id++) {
        if (!is_weight(id)) continue;
        for (uint32_t n_col = 64; n_col <= 17408; n_col *= 16)
            check_spread((gguf_type)id, 1 / sqrt(n_col), b, y);
        n_type++;
    }
    CHECK(n_type == 28);
    mem_free(b);
    mem_free(y);
}

static void test_only_bytes_that_are_written_by_quantisers(void **state) {
    (void)state;
    enum { N = 4096 };
    uint8_t *b = mem_alloc((size_t)N * 256);
    synth_rng r = synth_rng_of(1, "bytes");
    synth_blocks(b, GGUF_Q8_0, N, 0.02, &r);
    for (int i = 0; i < N; i++)
        for (int k = 2; k < 34; k++) CHECK(b[34 * i + k] != 0x80);
    synth_blocks(b, GGUF_TQ2_0, N, 0.02, &r);
    for (int i = 0; i < N; i++)
        for (int k = 0; k < 64; k++)
            for (int s = 0; s < 8; s += 2) CHECK((b[66 * i + k] >> s & 3) != 3);
    synth_blocks(b, GGUF_TQ1_0, N, 0.02, &r);
    bool valid[256] = {false};
    for (unsigned v = 0; v < 243; v++) valid[(v * 256 + 242) / 243] = true;
    for (int i = 0; i < N; i++)
        for (int k = 0; k < 52; k++) CHECK(valid[b[54 * i + k]]);
    mem_free(b);
}

static void test_bytes_follow_from_seed_and_name(void **state) {
    (void)state;
    uint8_t a[144 * 8], b[144 * 8];
    synth_rng r = synth_rng_of(1, "blk.0.w"), s = synth_rng_of(1, "blk.0.w");
    synth_blocks(a, GGUF_Q4_K, 8, 0.02, &r);
    synth_blocks(b, GGUF_Q4_K, 3, 0.02, &s); // in two pieces
    synth_blocks(b + 3 * 144, GGUF_Q4_K, 5, 0.02, &s);
    CHECK(memcmp(a, b, sizeof a) == 0);
    s = synth_rng_of(1, "blk.1.w");
    synth_blocks(b, GGUF_Q4_K, 8, 0.02, &s);
    CHECK(memcmp(a, b, sizeof a) != 0);
    s = synth_rng_of(2, "blk.0.w");
    synth_blocks(b, GGUF_Q4_K, 8, 0.02, &s);
    CHECK(memcmp(a, b, sizeof a) != 0);
}

static void test_gauss(void **state) {
    (void)state;
    synth_rng r = {3};
    double sum = 0, square = 0;
    for (int i = 0; i < 100000; i++) {
        double x = synth_rng_gauss(&r);
        CHECK(x >= -6 && x <= 6);
        sum += x;
        square += x * x;
    }
    CHECK(fabs(sum / 100000) < 0.02 && fabs(square / 100000 - 1) < 0.02);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_type_has_the_wanted_spread),
        cmocka_unit_test(test_only_bytes_that_are_written_by_quantisers),
        cmocka_unit_test(test_bytes_follow_from_seed_and_name),
        cmocka_unit_test(test_gauss),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
