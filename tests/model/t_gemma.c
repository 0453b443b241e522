/* Gemma 3, Gemma 4 and its E-models against llama.cpp on tiny files of random weights (docs/FIXTURES.md), and
 * the trained fixtures' arg-maxima against transformers. The window is shorter than the prompts everywhere.
 */
#include "check.h"
#include "temp_dir.h"

#include "eval/report.h"
#include "mica_tools.h"
#include "run/session.h"

#include <jansson.h>
#include <math.h>

/* llama.cpp looks gelu up in a table of half floats, which moves these logits by up to 0.0011. */
#define LARGEST_DIFFERENCE 0.003

static void check_tiny(const char *name, const char *device) {
    char path[128], ref[128], *text;
    mica_error err;
    mica_model *m;
    mica_session *s;
    bool ok;
    snprintf(path, sizeof path, "tests/fixtures/%s.f32.gguf", name);
    snprintf(ref, sizeof ref, "tests/fixtures/%s.ref.json.gz", name);
    mica_load_options o = {
        .path = path, .device = device, .n_ctx = 512, .n_ubatch = 64, .kv = MICA_KV_F32, .n_thread = 1};
    CHECK_OK(mica_model_load(&m, &o, &err));
    CHECK_OK(mica_session_new(&s, m, &err));
    CHECK_OK(mica_eval_ref(&text, &ok, s, ref, &err));
    json_t *got = json_loads(text, 0, NULL), *runs = json_object_get(got, "prompts");
    if (!ok) print_error("%s\n", text);
    CHECK(ok && json_array_size(runs) == 2);
    for (size_t i = 0; i < json_array_size(runs); i++) {
        double d = json_number_value(json_object_get(json_array_get(runs, i), "max_logit_diff"));
        if (!(d < LARGEST_DIFFERENCE)) print_error("%s on %s: %g\n", name, device, d);
        CHECK(d < LARGEST_DIFFERENCE);
    }
    json_decref(got);
    mica_text_free(text);
    mica_session_free(s);
    mica_model_free(m);
}

static void test_tiny_models_equal_llama_cpp(void **state) {
    (void)state;
    static const char *const names[] = {"tiny_gemma3", "tiny_gemma4_e"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        check_tiny(names[i], "ref");
        check_tiny(names[i], "cpu");
    }
}

/* Logits after 70 prompt tokens and 3 more, [2, n_vocab] into out. */
static uint32_t run_on(const char *device, const char *path, float *out) {
    mica_error err;
    mica_model *m;
    mica_session *s;
    mica_model_info info;
    int32_t ids[70];
    mica_load_options o = {.path = path, .device = device, .n_ctx = 256, .n_ubatch = 32, .n_thread = 1};
    CHECK_OK(mica_model_load(&m, &o, &err));
    CHECK_OK(mica_session_new(&s, m, &err));
    mica_model_get_info(m, &info);
    CHECK(info.n_vocab == 300);
    for (int i = 0; i < 70; i++) ids[i] = i * 37 % 300;
    CHECK_OK(mica_session_sync(s, ids, 70, NULL, NULL, NULL, NULL, &err));
    memcpy(out, mica_session_logits(s), 300 * sizeof *out);
    for (int i = 0; i < 3; i++) CHECK_OK(mica_session_decode(s, i * 5, &err));
    memcpy(out + 300, mica_session_logits(s), 300 * sizeof *out);
    mica_session_free(s);
    mica_model_free(m);
    return info.n_vocab;
}

/* Quantised, an E-model's products read the residual stream itself; no trained fixture does. */
static void test_quantised_layer_inputs_are_the_same_bits(void **state) {
    (void)state;
    static const char *const set[] = {"layers=4", "embd=256",    "heads=2",    "kv=1",        "kv_full=1",
                                      "hd=64",    "hd_swa=32",   "ff=256",     "ff_wide=512", "vocab=300",
                                      "ple=64",   "swa_every=2", "shared_kv=2"};
    static const char *const quants[] = {"q4_k_m", "q8_0"};
    temp_dir d;
    temp_dir_make(&d);
    for (size_t i = 0; i < sizeof quants / sizeof *quants; i++) {
        mica_synth_options o = {
            .preset = "tiny-gemma4-e", .quant = quants[i], .set = set, .n_set = sizeof set / sizeof *set};
        const char *path = temp_dir_at(&d, "e.gguf");
        mica_error err;
        char *json;
        float ref[2 * 300], cpu[2 * 300];
        CHECK_OK(mica_synth(&json, path, &o, &err));
        mica_text_free(json);
        CHECK(run_on("ref", path, ref) == run_on("cpu", path, cpu));
        CHECK(memcmp(ref, cpu, sizeof ref) == 0);
    }
    temp_dir_drop(&d);
}

typedef struct agreement {
    const json_t *argmax;
    uint32_t n_vocab;
    size_t n_right, n_seen;
} agreement;

static mica_status count_argmax(void *user, size_t pos, const float *logits, mica_error *err) {
    (void)err;
    agreement *a = user;
    uint32_t best = 0;
    for (uint32_t i = 1; i < a->n_vocab; i++) best = logits[i] > logits[best] ? i : best;
    a->n_right += best == (uint64_t)json_integer_value(json_array_get(a->argmax, pos));
    a->n_seen++;
    return MICA_OK;
}

/* Shares of the arg-maxima of a q4_k_m file that are those of its f16 file in transformers, for prompts past
 * the window. */
static void check_trained(const char *name, double least) {
    static const char *const prompts[] = {"multiturn", "tool"};
    char path[128], ref_path[128];
    mica_error err;
    gguf_file *g;
    engine *e;
    session *s;
    json_t *ref;
    snprintf(path, sizeof path, "tests/fixtures/%s.q4_k_m.gguf", name);
    snprintf(ref_path, sizeof ref_path, "tests/fixtures/%s.ref.json.gz", name);
    CHECK_OK(gguf_open(&g, path, &err));
    engine_config c = {
        .g = g, .dev = DEV_CPU, .isa = cpu_isa_best(), .n_thread = 1, .n_ctx = 512, .n_seq = 16};
    c.n_ubatch = 128;
    CHECK_OK(engine_open(&e, &c, &err));
    CHECK_OK(session_new(&s, e, 0, &err));
    CHECK_OK(report_read_gz(&ref, ref_path, &err));
    agreement a = {.n_vocab = engine_shape(e)->n_vocab};
    for (size_t i = 0; i < 9; i++) {
        const json_t *p = json_array_get(json_object_get(ref, "prompts"), i),
                     *run = json_object_get(p, "first");
        const char *what = json_string_value(json_object_get(p, "name"));
        if (strcmp(what, prompts[0]) != 0 && strcmp(what, prompts[1]) != 0) continue;
        const json_t *list = json_object_get(run, "ids");
        int32_t ids[512];
        size_t n = json_array_size(list);
        CHECK(n > engine_shape(e)->window && n < 512);
        for (size_t k = 0; k < n; k++) ids[k] = (int32_t)json_integer_value(json_array_get(list, k));
        a.argmax = json_object_get(run, "argmax");
        session_clear(s);
        CHECK_OK(session_sync(
            s, &(session_sync_args){.ids = ids, .n = n, .on_logits = count_argmax, .logits_user = &a}, NULL,
            &err));
    }
    json_decref(ref);
    session_free(s);
    engine_close(e);
    gguf_close(g);
    printf("%s: %zu of %zu arg-maxima\n", name, a.n_right, a.n_seen);
    CHECK(a.n_seen == 91 + 236 && (double)a.n_right >= least * (double)a.n_seen);
}

static void test_trained_models_agree_with_transformers(void **state) {
    (void)state;
    check_trained("gemma4", 0.97);
    check_trained("gemma4_moe", 0.97);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tiny_models_equal_llama_cpp),
        cmocka_unit_test(test_quantised_layer_inputs_are_the_same_bits),
        cmocka_unit_test(test_trained_models_agree_with_transformers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
