/* The kept measurements: found for their model and machine alone, never used when damaged, erased. What is
 * measured is tested from outside (tools_test.py). */
#include "eval/tuned.h"

#include "check.h"
#include "temp_dir.h"

#include <stdlib.h>

static const char g_model[] = "tests/fixtures/llama.q4_k_m.gguf",
                  g_other[] = "tests/fixtures/qwen3.q4_k_m.gguf";
static mica_error err; // named as CHECK_OK wants it
static temp_dir g_home;

static int setup(void **state) {
    (void)state;
    temp_dir_make(&g_home);
    setenv("MICA_HOME", g_home.path, 1);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    temp_dir_drop(&g_home);
    return 0;
}

/* Keeps these values for a model; gives the path of the file (mica_text_free). */
static char *keep(const char *model, const char *best_json) {
    const mica_load_options lo = {.path = model, .device = "cpu"};
    tuned_key key;
    char *path;
    json_t *best = json_loads(best_json, 0, NULL),
           *result = json_pack("{s:o, s:[]}", "best", best, "measured");
    CHECK(best && result);
    CHECK_OK(tuned_key_make(&key, &lo, &err));
    CHECK_OK(tuned_save(&path, &key, result, &err));
    json_decref(result);
    return path;
}

static bool find(mica_tuned *t, const char *model, const char *isa) {
    const mica_load_options lo = {.path = model, .device = "cpu", .isa = isa};
    bool found;
    CHECK_OK(mica_tuned_find(t, &found, &lo, &err));
    return found;
}

static void expect_damaged(const char *path, const char *text) {
    const mica_load_options lo = {.path = g_model, .device = "cpu"};
    mica_tuned t;
    bool found = true;
    FILE *f = fopen(path, "w");
    CHECK(f && fputs(text, f) >= 0 && fclose(f) == 0);
    const mica_status st = mica_tuned_find(&t, &found, &lo, &err);
    if (st != MICA_E_FORMAT || found || !strstr(err.text, path))
        check_failed(__FILE__, __LINE__, text, err.text);
    CHECK(t.n_thread == 0 && t.n_ubatch == 0 && t.n_draft == -1);
}

static void test_found_for_its_model_and_machine_alone(void **state) {
    (void)state;
    mica_tuned t;
    CHECK(!find(&t, g_model, NULL) && t.n_thread == 0 && t.n_ubatch == 0 && t.n_draft == -1);
    char *path = keep(g_model, "{\"threads\":3,\"ubatch\":96,\"draft\":0}");
    CHECK(find(&t, g_model, NULL) && t.n_thread == 3 && t.n_ubatch == 96 && t.n_draft == 0);
    CHECK(!find(&t, g_other, NULL) && t.n_thread == 0);
    CHECK(!find(&t, g_model, "scalar") && t.n_thread == 0 && t.n_draft == -1);
    char *same = keep(g_model, "{\"threads\":null,\"ubatch\":1,\"draft\":null}");
    CHECK(strcmp(path, same) == 0 && find(&t, g_model, NULL));
    CHECK(t.n_thread == 0 && t.n_ubatch == 1 && t.n_draft == -1);
    mica_text_free(path);
    mica_text_free(same);
}

static void test_another_record_under_the_name(void **state) {
    (void)state;
    mica_tuned t;
    char *path = keep(g_model, "{\"threads\":3}"), *other = keep(g_other, "{\"threads\":5}");
    CHECK(rename(other, path) == 0);
    CHECK(!find(&t, g_model, NULL) && t.n_thread == 0);
    mica_text_free(path);
    mica_text_free(other);
}

static void test_damaged_records_are_not_used(void **state) {
    (void)state;
#define PAIR "\"version\":1,\"model\":\"m\",\"machine\":\"x\""
    static const char *const texts[] = {
        "",
        "{",
        "[]",
        "{\"version\":1}",
        "{\"version\":2,\"model\":\"m\",\"machine\":\"x\",\"best\":{}}",
        "{" PAIR "}",
        "{" PAIR ",\"best\":[]}",
        "{" PAIR ",\"best\":{\"threads\":0}}",
        "{" PAIR ",\"best\":{\"threads\":1025}}",
        "{" PAIR ",\"best\":{\"threads\":-1}}",
        "{" PAIR ",\"best\":{\"threads\":\"2\"}}",
        "{" PAIR ",\"best\":{\"threads\":2.0}}",
        "{" PAIR ",\"best\":{\"ubatch\":65537}}",
        "{" PAIR ",\"best\":{\"draft\":8}}",
        "{" PAIR ",\"best\":{\"draft\":-1}}",
        "{" PAIR ",\"best\":{\"threads\":1,\"threads\":2}}",
    };
    char *path = keep(g_model, "{}");
    char *json;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) expect_damaged(path, texts[i]);
    CHECK_OK(mica_tuned_list(&json, &err));
    CHECK(strcmp(json, "[]") == 0);
    mica_text_free(json);
    CHECK(truncate(path, 1 << 20) == 0); // longer than any record
    const mica_load_options lo = {.path = g_model, .device = "cpu"};
    mica_tuned t;
    bool found;
    CHECK(mica_tuned_find(&t, &found, &lo, &err) == MICA_E_FORMAT && !found);
    mica_text_free(path);
}

static void test_listed_and_erased(void **state) {
    (void)state;
    const mica_load_options lo = {.path = g_model, .device = "cpu"};
    uint32_t n;
    char *json;
    mica_tuned t;
    mica_text_free(keep(g_model, "{\"threads\":1}"));
    mica_text_free(keep(g_other, "{\"threads\":2}"));
    temp_dir_write(&g_home, "tune/notes.txt", "x", 1); // no record: it stays
    CHECK_OK(mica_tuned_list(&json, &err));
    json_t *list = json_loads(json, 0, NULL);
    CHECK(json_array_size(list) == 2 && json_object_get(json_array_get(list, 0), "path"));
    json_decref(list);
    mica_text_free(json);
    CHECK_OK(mica_tuned_erase(&n, &lo, &err));
    CHECK(n == 1 && !find(&t, g_model, NULL) && find(&t, g_other, NULL));
    CHECK_OK(mica_tuned_erase(&n, &lo, &err));
    CHECK(n == 0);
    CHECK_OK(mica_tuned_erase(&n, NULL, &err));
    CHECK(n == 1 && !find(&t, g_other, NULL) && access(temp_dir_at(&g_home, "tune/notes.txt"), F_OK) == 0);
}

static void test_a_folder_that_cannot_be(void **state) {
    (void)state;
    const mica_load_options lo = {.path = g_model, .device = "cpu"};
    tuned_key key;
    char *path;
    json_t *result = json_pack("{s:{}}", "best");
    setenv("MICA_HOME", "/proc/nowhere", 1);
    mica_tuned t;
    CHECK(!find(&t, g_model, NULL));
    CHECK_OK(tuned_key_make(&key, &lo, &err));
    CHECK(tuned_save(&path, &key, result, &err) == MICA_E_IO && !path && strstr(err.text, "/proc/nowhere"));
    json_decref(result);
    setenv("MICA_HOME", g_home.path, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_found_for_its_model_and_machine_alone),
        cmocka_unit_test(test_another_record_under_the_name),
        cmocka_unit_test(test_damaged_records_are_not_used),
        cmocka_unit_test(test_listed_and_erased),
        cmocka_unit_test(test_a_folder_that_cannot_be),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
