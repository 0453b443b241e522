/* A model held to a grammar: its logits, the grammar's masks, and nothing but the grammar's texts come out.
 */
#include "check.h"

#include "base/str.h"
#include "mica.h"

static mica_error err;

static mica_model *load(bool text_only) {
    mica_load_options o = {
        .path = "tests/fixtures/llama.q4_k_m.gguf", .n_thread = 1, .n_ctx = 256, .text_only = text_only};
    mica_model *m;
    CHECK_OK(mica_model_load(&m, &o, &err));
    return m;
}

/* The best token that the grammar lets through. */
static int32_t best(const float *logits, const uint8_t *bits, uint32_t n) {
    int32_t id = -1;
    for (uint32_t i = 0; i < n; i++)
        if (bits[i / 8] >> i % 8 & 1 && (id < 0 || logits[i] > logits[id])) id = (int32_t)i;
    return id;
}

/* The text of a constrained answer. */
static void answer(strbuf *out, mica_model *m, mica_grammar *g) {
    mica_session *s;
    mica_ids ids;
    mica_model_info info;
    uint8_t bits[4096 / 8];
    mica_model_get_info(m, &info);
    CHECK(info.n_vocab == 4096);
    CHECK_OK(mica_session_new(&s, m, &err));
    CHECK_OK(mica_encode_chat(m, "[{\"role\":\"user\",\"content\":\"Where does Mira live?\"}]", NULL, &ids,
                              NULL, &err));
    CHECK_OK(mica_session_sync(s, ids.ids, ids.n, NULL, NULL, NULL, NULL, &err));
    mica_ids_free(&ids);
    for (int i = 0; i < 60; i++) {
        size_t n;
        CHECK_OK(mica_grammar_mask(g, bits, &err));
        const int32_t id = best(mica_session_logits(s), bits, info.n_vocab);
        CHECK(id >= 0);
        CHECK_OK(mica_grammar_accept(g, id, &err));
        if (mica_token_ends_turn(m, id)) {
            CHECK(mica_grammar_may_end(g));
            break;
        }
        const char *piece = mica_token_bytes(m, id, &n);
        strbuf_put(out, piece, n);
        CHECK_OK(mica_session_decode(s, id, &err));
    }
    mica_session_free(s);
}

static void test_answers_keep_to_it(void **state) {
    (void)state;
    mica_model *m = load(false);
    mica_grammar *g;
    strbuf b = {0};
    CHECK_OK(mica_grammar_new_gbnf(&g, m, "root ::= \"in \" (\"Zanzibar\" | \"Quebec\")", &err));
    answer(&b, m, g);
    CHECK(strcmp(b.p, "in Zanzibar") == 0 || strcmp(b.p, "in Quebec") == 0);
    strbuf_clear(&b);
    mica_grammar_reset(g);
    answer(&b, m, g);
    CHECK(strcmp(b.p, "in Zanzibar") == 0 || strcmp(b.p, "in Quebec") == 0);
    strbuf_fini(&b);
    mica_grammar_free(g);
    mica_model_free(m);
}

static void test_text_only_models_will_do(void **state) {
    (void)state;
    mica_model *m = load(true);
    mica_grammar *g, *h;
    CHECK(mica_grammar_new_gbnf(&g, m, "root ::= nothing", &err) == MICA_E_ARG && !g);
    CHECK_OK(mica_grammar_new_gbnf(&g, m, "root ::= <think> [a-z]+ </think>", &err));
    CHECK_OK(mica_grammar_clone(&h, g, &err));
    CHECK(!mica_grammar_may_end(h));
    mica_grammar_copy(g, h);
    mica_grammar_free(g);
    mica_grammar_free(h);
    mica_grammar_free(NULL);
    mica_model_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_answers_keep_to_it),
                                       cmocka_unit_test(test_text_only_models_will_do)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
