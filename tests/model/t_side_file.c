/* A draft block in a file of its own: the model opened with both is the model of one file; what does not
 * belong together is refused by name. */
#include "check.h"
#include "temp_dir.h"

#include "gguf/writer.h"
#include "mica.h"
#include "model/model.h"

#include <unistd.h>

static const char *const g_whole = "tests/fixtures/qwen3_5.q4_k_m.gguf";
enum { N_MAIN = 8, N_MADE = 24 };

static bool of_side(const char *name, bool side) {
    bool draft = strncmp(name, "blk.8.", 6) == 0;
    return side ? draft || strncmp(name, "blk.", 4) != 0 : !draft;
}

static void put_tensors(gguf_writer *w, const gguf_file *g, bool side, bool data) {
    mica_error err;
    for (size_t i = 0; i < gguf_tensor_count(g); i++) {
        const gguf_tensor *t = gguf_tensor_at(g, i);
        if (!of_side(t->name, side)) continue;
        if (data)
            CHECK_OK(gguf_writer_data(w, t->data, t->size_bytes, &err));
        else
            CHECK_OK(gguf_writer_tensor(w, t, &err));
    }
}

/* The trunk, or what a file of draft blocks holds. */
static const char *part_of(const temp_dir *d, const char *name, bool side) {
    mica_error err;
    gguf_file *g;
    gguf_writer *w;
    const char *path = temp_dir_at(d, name);
    CHECK_OK(gguf_open(&g, g_whole, &err));
    CHECK_OK(gguf_writer_open(&w, path, 32, &err));
    for (size_t i = 0; i < gguf_kv_count(g); i++) {
        slice key = gguf_kv_key(g, i);
        if (!side && slice_is(key, "qwen35.nextn_predict_layers")) continue;
        if (!side && slice_is(key, "qwen35.block_count"))
            gguf_writer_u32(w, "qwen35.block_count", N_MAIN);
        else
            gguf_writer_copy(w, key, gguf_kv_value(g, i));
    }
    put_tensors(w, g, side, false);
    put_tensors(w, g, side, true);
    CHECK_OK(gguf_writer_finish(w, &err));
    gguf_writer_close(w);
    gguf_close(g);
    return path;
}

typedef struct made {
    int32_t ids[N_MADE];
    int n;
} made;

static bool collect(void *user, int32_t id) {
    made *t = user;
    t->ids[t->n++] = id;
    return true;
}

static mica_stats generate(const char *path, const char *draft_path, made *out) {
    mica_error err;
    mica_model *m;
    mica_session *s;
    mica_ids prompt;
    mica_stats st;
    const char *text = "<|im_start|>user\nWhat is the capital of Norland?<|im_end|>\n<|im_start|>assistant\n";
    mica_load_options o = {.path = path, .draft_path = draft_path, .n_ctx = 256, .n_thread = 1};
    CHECK_OK(mica_model_load(&m, &o, &err));
    CHECK_OK(mica_session_new(&s, m, &err));
    CHECK_OK(mica_tokenize(m, text, strlen(text), true, true, &prompt, &err));
    mica_generate_options g = {.n_predict = N_MADE, .n_draft = draft_path || path == g_whole ? 3 : 0};
    g.ignore_end = true;
    out->n = 0;
    CHECK_OK(mica_generate(s, prompt.ids, prompt.n, &g, collect, out, NULL, &st, &err));
    CHECK(out->n == N_MADE);
    mica_ids_free(&prompt);
    mica_session_free(s);
    mica_model_free(m);
    return st;
}

static void test_two_files_are_the_model_of_one(void **state) {
    (void)state;
    temp_dir d;
    made whole, both, trunk;
    temp_dir_make(&d);
    const char *main_path = part_of(&d, "trunk.gguf", false), *side = part_of(&d, "mtp-trunk.gguf", true);
    mica_stats a = generate(g_whole, NULL, &whole), b = generate(main_path, side, &both),
               c = generate(main_path, NULL, &trunk);
    CHECK(memcmp(whole.ids, both.ids, sizeof whole.ids) == 0);
    CHECK(memcmp(whole.ids, trunk.ids, sizeof whole.ids) == 0);
    printf("%d of %d drafts accepted\n", (int)b.n_accepted, (int)b.n_drafted);
    CHECK(b.n_accepted > 0 && a.n_drafted == b.n_drafted && a.n_accepted == b.n_accepted);
    CHECK(c.n_drafted == 0);
    temp_dir_drop(&d);
}

static void expect_refused(const char *path, const char *side, mica_status st, const char *why) {
    mica_error err;
    gguf_file *g;
    CHECK_OK(gguf_open(&g, path, &err));
    mica_status got = model_draft_join(g, side, &err);
    if (got != st || !strstr(err.text, why)) print_error("%d: %s\n", (int)got, err.text);
    CHECK(got == st && strstr(err.text, why));
    gguf_close(g);
}

static void test_what_does_not_belong_is_refused(void **state) {
    (void)state;
    temp_dir d;
    temp_dir_make(&d);
    const char *main_path = part_of(&d, "trunk.gguf", false), *side = part_of(&d, "mtp-trunk.gguf", true);
    expect_refused(g_whole, side, MICA_E_ARG, "draft block of its own");
    expect_refused(main_path, main_path, MICA_E_ARG, "0 draft blocks");
    expect_refused(main_path, "tests/fixtures/llama.q4_k_m.gguf", MICA_E_ARG, "architecture llama");
    expect_refused(main_path, "build/no-such-file.gguf", MICA_E_IO, "no-such-file");
    temp_dir_drop(&d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_files_are_the_model_of_one),
        cmocka_unit_test(test_what_does_not_belong_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
