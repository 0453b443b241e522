/* Opening a network: what is not a text model, or has more or less in it than its family, is refused by name.
 */
#include "check.h"
#include "temp_dir.h"

#include "gguf_edit.h"
#include "mica_tools.h"
#include "model/model.h"

static temp_dir g_dir;

static int make_dir(void **state) {
    (void)state;
    temp_dir_make(&g_dir);
    return 0;
}

static int drop_dir(void **state) {
    (void)state;
    temp_dir_drop(&g_dir);
    return 0;
}

/* model_open of the file with that change. */
static mica_status open_changed(const char *path, gguf_edit e, mica_error *why) {
    mica_error err;
    gguf_file *g, *changed;
    model *m;
    const char *to = temp_dir_at(&g_dir, "changed.gguf");
    CHECK_OK(gguf_open(&g, path, &err));
    gguf_edit_write(g, to, &e);
    gguf_close(g);
    CHECK_OK(gguf_open(&changed, to, &err));
    mica_status st = model_open(&m, changed, why);
    CHECK((st == MICA_OK) == (m != NULL));
    model_close(m);
    gguf_close(changed);
    return st;
}

static void test_encoders_are_refused(void **state) {
    (void)state;
    static const char *const path = "tests/fixtures/tiny_gemma3.f32.gguf";
    mica_error err;
    CHECK(open_changed(path, (gguf_edit){.arch = "clip"}, &err) == MICA_E_UNSUPPORTED &&
          strstr(err.text, "encoder"));
    CHECK(open_changed(path, (gguf_edit){.arch = "mamba9"}, &err) == MICA_E_UNSUPPORTED &&
          strstr(err.text, "mamba9"));
    CHECK(open_changed(path, (gguf_edit){.add = "v.patch_embd.weight"}, &err) == MICA_E_UNSUPPORTED);
    CHECK(strstr(err.text, "v.patch_embd.weight") && strstr(err.text, "encoder"));
    CHECK(open_changed(path, (gguf_edit){.add = "mm.input_projection.weight"}, &err) == MICA_E_UNSUPPORTED);
    CHECK(open_changed(path, (gguf_edit){.add = "blk.0.surprise.weight"}, &err) == MICA_E_UNSUPPORTED);
    CHECK(strstr(err.text, "blk.0.surprise.weight") && strstr(err.text, "gemma3"));
}

static bool ends_in(const char *s, const char *end) {
    size_t n = strlen(s), k = strlen(end);
    return n >= k && strcmp(s + n - k, end) == 0;
}

/* Opens the file without each of its tensors in turn: an error that names it, unless it ends in one of
 * `optional`. */
static void check_every_tensor_counts(const char *path, const char *const optional[4]) {
    gguf_file *g;
    mica_error err;
    CHECK_OK(gguf_open(&g, path, &err));
    CHECK_OK(open_changed(path, (gguf_edit){0}, &err));
    for (size_t i = 0; i < gguf_tensor_count(g); i++) {
        const char *name = gguf_tensor_at(g, i)->name;
        bool may_lack = false;
        for (int k = 0; k < 4 && optional[k]; k++) may_lack |= ends_in(name, optional[k]);
        mica_status st = open_changed(path, (gguf_edit){.drop = name}, &err);
        bool named =
            strstr(err.text, name) || ends_in(name, "ffn_gate_inp.weight") ||
            ends_in(name,
                    "gate_up_exps.weight"); // the rest makes another form of layer, and misses or has more
        if ((st == MICA_OK) == may_lack && (may_lack || named)) continue;
        print_error("%s without %s: %s\n", path, name, st == MICA_OK ? "opens" : err.text);
        _fail(__FILE__, __LINE__);
    }
    gguf_close(g);
}

/* The preset with the overrides, up to NULL. */
static const char *small_model(const char *preset, const char *const *set) {
    mica_synth_options o = {.preset = preset, .quant = "f16", .set = set};
    mica_error err;
    char *json;
    const char *path = temp_dir_at(&g_dir, "small.gguf");
    while (set[o.n_set]) o.n_set++;
    CHECK_OK(mica_synth(&json, path, &o, &err));
    mica_text_free(json);
    return path;
}

static void test_every_tensor_counts(void **state) {
    (void)state;
    check_every_tensor_counts("tests/fixtures/tiny_gemma3.f32.gguf", (const char *const[4]){NULL});
    check_every_tensor_counts("tests/fixtures/tiny_gemma4_e.f32.gguf",
                              (const char *const[4]){"layer_output_scale.weight", "blk.2.attn_v.weight"});
    static const char *const gemma[] = {"layers=3",  "embd=64",     "heads=2",   "kv=1",
                                        "kv_full=1", "hd=32",       "hd_swa=16", "ff=64",
                                        "vocab=300", "swa_every=3", NULL};
    static const char *const flash[] = {"layers=4",   "mtp=1",       "tied=1",      "embd=64",
                                        "heads=2",    "kv=1",        "hd=32",       "state=32",
                                        "idx_dim=32", "ff_exp=32",   "ff_shexp=32", "experts=4",
                                        "vocab=300",  "ple_rows=50", "hc_rank=16",  NULL};
    char path[1024];
    snprintf(path, sizeof path, "%s", small_model("tiny-gemma4-moe", gemma));
    check_every_tensor_counts(path,
                              (const char *const[4]){"layer_output_scale.weight", "ffn_down_exps.scale"});
    snprintf(path, sizeof path, "%s", small_model("tiny-flash-next", flash));
    check_every_tensor_counts(path, (const char *const[4]){NULL});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_encoders_are_refused),
        cmocka_unit_test(test_every_tensor_counts),
    };
    return cmocka_run_group_tests(tests, make_dir, drop_dir);
}
