/* A synthetic model of a fixture's shape has exactly the fixture's tensors and says the same of itself:
 * names, axes, keys and values are held against files that were written for trained models and read by other
 * engines. */
#include "check.h"
#include "temp_dir.h"

#include "eval/synth.h"
#include "gguf/gguf.h"

static mica_error err;

typedef struct twin {
    const char *fixture, *preset;
    const char *set[32];
} twin;

#define HYBRID_SET "embd=256", "vocab=4096", "ctx=4096", "layers=8"
static const twin g_twin[] = {
    {"llama", "tiny-llama", {"layers=6", "vocab=4096", "ctx=4096"}},
    {"qwen3", "tiny-qwen3", {"layers=5", "vocab=4096", "ctx=4096", "hd=128"}},
    {"qwen3_moe", "tiny-qwen3moe", {"layers=3", "vocab=4096", "ctx=4096", "ff=256", "tied=1"}},
    {"qwen3_5",
     "tiny-qwen35",
     {HYBRID_SET, "heads=2", "kv=1", "hd=256", "rope_dim=64", "state=128", "ff=256", "mtp=1"}},
    {"qwen3_5_moe",
     "tiny-qwen35moe",
     {HYBRID_SET, "experts=16", "used=4", "ff_exp=32", "ff_shexp=32", "mtp=1"}},
    {"qwen4_exp",
     "tiny-flash-next",
     {HYBRID_SET, "experts=32", "used=4", "ff_exp=32", "ff_shexp=32", "idx_heads=4", "ple_heads=4",
      "ple_rows=3000"}},
    {"gemma4",
     "tiny-gemma4",
     {"vocab=4096", "ctx=4096", "heads=2", "kv=1", "hd=512", "hd_swa=256", "swa_every=6"}},
    {"gemma4_moe",
     "tiny-gemma4-moe",
     {"vocab=4096", "ctx=4096", "ff=288", "experts=16", "used=4", "ff_exp=32"}},
};

static gguf_file *open_twin(const temp_dir *d, const twin *w) {
    mica_synth_options o = {.preset = w->preset, .quant = "q4_k_m", .set = w->set};
    gguf_file *g;
    while (w->set[o.n_set]) o.n_set++;
    const char *path = temp_dir_at(d, "twin.gguf");
    CHECK_OK(synth_write(&o, path, NULL, &err));
    CHECK_OK(gguf_open(&g, path, &err));
    return g;
}

static void check_same_tensors(const gguf_file *f, const gguf_file *g) {
    for (size_t i = 0; i < gguf_tensor_count(f); i++) {
        const gguf_tensor *a = gguf_tensor_at(f, i), *b = gguf_tensor_find(g, a->name);
        if (!b) print_error("%s: not in the synthetic file\n", a->name);
        CHECK(b && a->n_dim == b->n_dim && memcmp(a->shape, b->shape, sizeof a->shape) == 0);
        bool f32 = a->type == GGUF_F32;
        CHECK(f32 == (b->type == GGUF_F32) || strstr(a->name, "ple_conv1d")); // converters differ there
    }
    for (size_t i = 0; i < gguf_tensor_count(g); i++) {
        const char *name = gguf_tensor_at(g, i)->name;
        if (!gguf_tensor_find(f, name)) print_error("%s: not in the fixture\n", name);
        CHECK(gguf_tensor_find(f, name));
    }
}

static bool same_value(const gguf_value *a, const gguf_value *b) {
    if (!b || gguf_value_kind(a) != gguf_value_kind(b) || gguf_value_count(a) != gguf_value_count(b))
        return false;
    for (uint64_t i = 0; i < gguf_value_count(a); i++) {
        double x, y;
        bool p, q;
        if (gguf_value_at_f64(a, i, &x)) {
            if (!gguf_value_at_f64(b, i, &y) || x != y) return false;
        } else if (gguf_value_at_bool(a, i, &p)) {
            if (!gguf_value_at_bool(b, i, &q) || p != q) return false;
        } else
            return false;
    }
    return true;
}

static void check_same_keys(const gguf_file *f, const gguf_file *g) {
    for (size_t i = 0; i < gguf_kv_count(f); i++) {
        slice key = gguf_kv_key(f, i);
        char name[128];
        snprintf(name, sizeof name, "%.*s", (int)key.n, key.p);
        if (strncmp(name, "general.", 8) == 0 || strncmp(name, "tokenizer.", 10) == 0) continue;
        if (strstr(name, "ple.eos_token_id")) continue; // of the vocabulary
        if (strstr(name, "layer_norm_rms_epsilon") && strncmp(name, "llama", 5) == 0) continue; // 1e-6 there
        const gguf_value *b = gguf_find(g, name);
        if (strstr(name, "ple.layer_multipliers")) {
            CHECK(gguf_value_count(b) == 3); // any odd numbers
            continue;
        }
        if (!same_value(gguf_kv_value(f, i), b)) print_error("%s: %s\n", name, b ? "differs" : "is missing");
        CHECK(same_value(gguf_kv_value(f, i), b));
    }
}

static void test_twins_of_the_fixtures(void **state) {
    (void)state;
    temp_dir d;
    temp_dir_make(&d);
    for (size_t i = 0; i < sizeof g_twin / sizeof *g_twin; i++) {
        char path[128];
        gguf_file *f, *g;
        slice a, b;
        snprintf(path, sizeof path, "tests/fixtures/%s.q4_k_m.gguf", g_twin[i].fixture);
        if (access(path, R_OK) != 0) {
            temp_dir_drop(&d);
            SKIP("no %s here", path);
        }
        CHECK_OK(gguf_open(&f, path, &err));
        g = open_twin(&d, &g_twin[i]);
        print_message("%s\n", g_twin[i].fixture);
        CHECK_OK(gguf_need_model(f, &a, &err));
        CHECK_OK(gguf_need_model(g, &b, &err));
        CHECK(slice_eq(a, b));
        check_same_tensors(f, g);
        check_same_keys(f, g);
        gguf_close(f);
        gguf_close(g);
    }
    temp_dir_drop(&d);
}

/* Which types the mixtures give, where rows are too short for blocks of 256, and where nvfp4 puts its scales.
 */
static void test_types_of_the_mixtures(void **state) {
    (void)state;
    static const struct {
        const char *preset, *quant, *tensor;
        gguf_type type;
    } want[] = {
        {"tiny-llama", "q4_k_m", "token_embd.weight", GGUF_Q6_K}, // tied: it is the head
        {"tiny-qwen3moe", "q4_k_m", "token_embd.weight", GGUF_Q4_K},
        {"tiny-qwen3moe", "q4_k_m", "output.weight", GGUF_Q6_K},
        {"tiny-qwen3moe", "q4_k_m", "blk.0.attn_q.weight", GGUF_Q4_K},
        {"tiny-qwen3moe", "q4_k_m", "blk.1.ffn_down_exps.weight", GGUF_Q6_K},
        {"tiny-qwen3moe", "q5_k_m", "blk.1.attn_v.weight", GGUF_Q6_K},
        {"tiny-qwen3moe", "iq2_xs", "blk.1.attn_v.weight", GGUF_IQ2_XS},
        {"tiny-qwen3moe", "iq2_xs", "token_embd.weight", GGUF_Q4_K},
        {"tiny-qwen3moe", "mxfp4", "blk.0.ffn_up_exps.weight", GGUF_MXFP4},
        {"tiny-qwen3moe", "bf16", "blk.0.ffn_gate_inp.weight", GGUF_F32},
        {"tiny-gemma4-e", "q4_0", "per_layer_model_proj.weight", GGUF_F16},
        {"tiny-flash-next", "q4_k_m", "per_layer_token_embd.weight", GGUF_IQ4_NL},
        {"tiny-flash-next", "q4_k", "blk.0.hc_attn_up.weight", GGUF_Q5_0}, // rows of 32
        {"tiny-flash-next", "q6_k", "blk.0.hc_attn_up.weight", GGUF_Q8_0},
        {"tiny-flash-next", "q2_k", "blk.0.hc_attn_up.weight", GGUF_IQ4_NL},
        {"tiny-qwen3moe", "nvfp4", "blk.0.ffn_down_exps.scale", GGUF_F32},
        {"tiny-gemma4-moe", "nvfp4", "blk.0.ffn_down_exps.scale", GGUF_F32},
        {"tiny-qwen35", "nvfp4", "blk.0.ssm_out.scale", GGUF_F32},
    };
    temp_dir d;
    temp_dir_make(&d);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        mica_synth_options o = {.preset = want[i].preset, .quant = want[i].quant};
        gguf_file *g;
        CHECK_OK(synth_write(&o, temp_dir_at(&d, "m.gguf"), NULL, &err));
        CHECK_OK(gguf_open(&g, temp_dir_at(&d, "m.gguf"), &err));
        const gguf_tensor *t = gguf_tensor_find(g, want[i].tensor);
        if (!t || t->type != want[i].type)
            print_error("%s %s %s\n", want[i].preset, want[i].quant, want[i].tensor);
        CHECK(t && t->type == want[i].type);
        if (strstr(t->name, "exps.scale")) CHECK(t->n_dim == 1 && t->shape[3] == 8);
        gguf_close(g);
    }
    temp_dir_drop(&d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_twins_of_the_fixtures),
        cmocka_unit_test(test_types_of_the_mixtures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
