/* A prompt with a token that stands for a picture is refused by name: nobody could say what should be there.
 */
#include "check.h"

#include "mica.h"

static bool no_token(void *user, int32_t id) {
    (void)user, (void)id;
    return false;
}

static void test_placeholders_are_refused(void **state) {
    (void)state;
    mica_load_options o = {.path = "tests/fixtures/gemma4.q4_k_m.gguf", .n_thread = 1, .n_ctx = 256};
    static const char text[] = "look: <|image_pad|>";
    mica_error err;
    mica_model *m;
    mica_session *s;
    mica_ids ids;
    mica_finish finish;
    mica_stats stats;
    size_t cached = 7;
    CHECK_OK(mica_model_load(&m, &o, &err));
    CHECK_OK(mica_session_new(&s, m, &err));
    CHECK_OK(mica_tokenize(m, text, strlen(text), true, true, &ids, &err));
    CHECK(ids.n > 1);
    CHECK(mica_session_sync(s, ids.ids, ids.n, &cached, NULL, NULL, NULL, &err) == MICA_E_UNSUPPORTED);
    CHECK(strstr(err.text, "<|image_pad|>") && cached == 0 && mica_session_length(s) == 0);
    CHECK(mica_generate(s, ids.ids, ids.n, NULL, no_token, NULL, &finish, &stats, &err) ==
          MICA_E_UNSUPPORTED);
    CHECK(strstr(err.text, "<|image_pad|>") && finish == MICA_FINISH_NONE);
    CHECK_OK(mica_session_sync(s, ids.ids, ids.n - 1, &cached, NULL, NULL, NULL,
                               &err)); // the text before it is fine
    mica_ids_free(&ids);
    CHECK_OK(mica_tokenize(m, text, strlen(text), false, true, &ids, &err)); // spelled by a user it is text
    CHECK_OK(mica_session_sync(s, ids.ids, ids.n, &cached, NULL, NULL, NULL, &err));
    mica_ids_free(&ids);
    mica_session_free(s);
    mica_model_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_placeholders_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
