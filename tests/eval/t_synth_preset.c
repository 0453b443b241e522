/* Presets against published numbers, overrides, and shapes that do not work out. */
#include "check.h"

#include "eval/synth_int.h"

static mica_error err;

static void test_presets_have_published_sizes(void **state) {
    (void)state;
    static const struct {
        const char *name;
        double params; // millions
        uint64_t n_tensor;
    } want[] = {
        // From model cards and from the loaders' logs of published files.
        {"smollm2-135m", 134.5, 272}, {"llama-1b", 1235.8, 147},    {"llama-8b", 8030.3, 292},
        {"qwen3-0.6b", 596.0, 310},   {"qwen3-8b", 8190.7, 399},    {"qwen3moe-30b-a3b", 30532.1, 579},
        {"gemma3-270m", 268.1, 236},  {"gemma4-31b", 30697.0, 833}, {"flash-next", 125751.0 + 51200.2, 1224},
    };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        mica_synth_options o = {.preset = want[i].name, .quant = "q4_k_m", .dry_run = true};
        synth_report r;
        CHECK_OK(synth_write(&o, NULL, &r, &err));
        double m = (double)r.n_param * 1e-6;
        if (fabs(m / want[i].params - 1) > 1e-3) print_error("%s: %.1f M\n", want[i].name, m);
        CHECK(fabs(m / want[i].params - 1) <= 1e-3 && r.n_tensor == want[i].n_tensor);
    }
}

static void test_every_preset_and_quant_plans(void **state) {
    (void)state;
    size_t n = 0;
    for (size_t i = 0; synth_preset_name(i); i++) {
        CHECK(synth_preset_about(i));
        for (size_t k = 0; synth_quant_name(k); k++, n++) {
            mica_synth_options o = {
                .preset = synth_preset_name(i), .quant = synth_quant_name(k), .dry_run = true};
            synth_report r;
            CHECK_OK(synth_write(&o, NULL, &r, &err));
            CHECK(r.token_bytes > 0 && r.token_bytes <= r.data_bytes && r.file_bytes == 0);
        }
    }
    CHECK(n > 500 && synth_key_name(0) && !synth_key_name(1000));
}

static void test_overrides(void **state) {
    (void)state;
    const char *set[] = {"ff=1024", "experts=16", "used=4", "tied=1"};
    mica_synth_options o = {
        .preset = "Tiny-Qwen35MoE", .set = set, .n_set = 4, .n_layer = 8, .n_expert = 4, .mtp = true};
    synth_shape s;
    CHECK_OK(synth_shape_make(&s, &o, &err));
    CHECK(s.layers == 8 && s.experts == 16 && s.used == 4 && s.ff == 1024 && s.tied == 1 && s.mtp == 1 &&
          s.embd == 256);
    // Fewer layers of a model whose last layers share K and V: both kinds keep one of their own.
    for (uint32_t n = 6; n <= 35; n++) {
        o = (mica_synth_options){.preset = "gemma4-e2b", .n_layer = n};
        CHECK_OK(synth_shape_make(&s, &o, &err));
        CHECK(s.shared_kv <= n - 5 && (n < 35 || s.shared_kv == 20));
    }
}

static void refused(mica_synth_options o, const char *set, const char *needle) {
    synth_shape s;
    o.set = &set;
    o.n_set = set != NULL;
    mica_status st = synth_shape_make(&s, &o, &err);
    if (st != MICA_E_ARG || !strstr(err.text, needle)) print_error("%s: %s\n", needle, st ? err.text : "ok");
    CHECK(st == MICA_E_ARG && strstr(err.text, needle));
}

static void test_what_does_not_work_out_is_refused(void **state) {
    (void)state;
    refused((mica_synth_options){.preset = "llama-2b"}, NULL, "no preset 'llama-2b'");
    refused((mica_synth_options){.preset = NULL}, NULL, "no preset ''");
    mica_synth_options o = {.preset = "tiny-llama"};
    refused(o, "nonsense=1", "--set nonsense=1");
    refused(o, "layers", "--set layers");
    refused(o, "layers=", "N must be a number");
    refused(o, "layers=2x", "N must be a number");
    refused(o, "layers=-1", "N must be a number");
    refused(o, "layers=99999999999999999999", "N must be a number");
    refused(o, "layers=0", "at least 1");
    refused(o, "vocab=299", "vocab is at least 300");
    refused(o, "kv=3", "kv divides heads");
    refused(o, "kv=0", "at least 1");
    refused(o, "embd=250", "multiple of 32");
    refused(o, "mtp=1", "mtp is for");
    refused(o, "full_every=4", "full_every is set for");
    refused((mica_synth_options){.preset = "tiny-llama", .n_expert = 4}, NULL, "has no experts");
    refused((mica_synth_options){.preset = "tiny-llama", .router_skew = 1}, NULL, "has no router");
    refused((mica_synth_options){.preset = "tiny-qwen3moe", .router_skew = -1}, NULL, "router skew -1");
    refused((mica_synth_options){.preset = "tiny-qwen3moe", .router_skew = NAN}, NULL, "router skew");
    refused((mica_synth_options){.preset = "tiny-qwen3moe"}, "used=9", "used is from 1 to experts");
    refused((mica_synth_options){.preset = "tiny-qwen35"}, "vh=3", "kh divides vh");
    refused((mica_synth_options){.preset = "tiny-qwen35"}, "full_every=0", "full_every is set");
    refused((mica_synth_options){.preset = "tiny-flash-next"}, "ple_layer=3", "not one with attention");
    refused((mica_synth_options){.preset = "tiny-flash-next", .n_layer = 1}, NULL,
            "ple_layer is one of the layers");
    refused((mica_synth_options){.preset = "tiny-flash-next"}, "ple_heads=3", "divides embd");
    refused((mica_synth_options){.preset = "tiny-gemma4"}, "swa_every=0", "swa_every");
    mica_synth_options q = {.preset = "tiny-llama", .quant = "q9_9", .dry_run = true};
    CHECK(synth_write(&q, NULL, NULL, &err) == MICA_E_ARG && strstr(err.text, "'q9_9'"));
    q.quant = NULL;
    CHECK(synth_write(&q, NULL, NULL, &err) == MICA_E_ARG);
    const char *huge[] = {"embd=268435456", "ff=268435456"};
    q = (mica_synth_options){
        .preset = "tiny-llama", .quant = "f32", .dry_run = true, .set = huge, .n_set = 2};
    CHECK_OK(synth_write(&q, NULL, NULL, &err)); // 2^28 x 2^28 f32 is still a number
    const char *more[] = {"embd=268435456", "ff_exp=268435456", "experts=268435456"};
    q = (mica_synth_options){
        .preset = "tiny-qwen3moe", .quant = "f32", .dry_run = true, .set = more, .n_set = 3};
    CHECK(synth_write(&q, NULL, NULL, &err) == MICA_E_ARG && strstr(err.text, "too large"));
}

/* The row counts that the released model stores. */
static void test_table_sizes_are_consecutive_primes(void **state) {
    (void)state;
    static const uint64_t want[16] = {3, 23, 33, 47, 59, 63, 69, 77, 81, 93, 107, 147, 153, 159, 161, 171};
    mica_synth_options o = {.preset = "flash-next"};
    synth_shape s;
    uint64_t size[SYNTH_TABLE_MAX];
    CHECK_OK(synth_shape_make(&s, &o, &err));
    CHECK(synth_shape_n_table(&s) == 16 && synth_shape_table(&s, size) == 320001446);
    for (int i = 0; i < 16; i++) CHECK(size[i] == 20000000 + want[i]);
}

static void test_layers_of_each_kind(void **state) {
    (void)state;
    mica_synth_options o = {.preset = "qwen35-27b", .mtp = true};
    synth_shape s;
    int n_full = 0;
    CHECK_OK(synth_shape_make(&s, &o, &err));
    for (uint32_t il = 0; il < s.layers; il++) n_full += synth_shape_is_full(&s, il);
    CHECK(n_full == 16 && !synth_shape_is_full(&s, 0) && synth_shape_is_full(&s, 3) &&
          synth_shape_is_full(&s, 64));
    o.preset = "gemma4-e2b", o.mtp = false;
    CHECK_OK(synth_shape_make(&s, &o, &err));
    CHECK(synth_shape_ff(&s, 14) == 6144 && synth_shape_ff(&s, 15) == 12288 && synth_shape_is_full(&s, 34));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_presets_have_published_sizes),
        cmocka_unit_test(test_every_preset_and_quant_plans),
        cmocka_unit_test(test_overrides),
        cmocka_unit_test(test_what_does_not_work_out_is_refused),
        cmocka_unit_test(test_table_sizes_are_consecutive_primes),
        cmocka_unit_test(test_layers_of_each_kind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
