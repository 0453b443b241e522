/* Reading a vocabulary's parts from metadata: every key missing, of another kind, of another length. */
#include "check.h"
#include "vocab_small.h"

#include "../gguf/gguf_build.h"
#include "base/log.h"
#include "base/mem.h"
#include "gguf/gguf_int.h"
#include "text/vocab.h"

/* What to leave out or break. */
typedef enum fault {
    NONE,
    NO_MODEL,
    MODEL_IS_INT,
    BERT,
    NO_TOKENS,
    TOKENS_ARE_INTS,
    NO_TYPES,
    TYPES_SHORT,
    TYPES_ARE_FLOATS,
    SCORES_LONG,
    SCORES_ARE_STRINGS,
    NO_MERGES,
    MERGES_ARE_INTS,
    BOS_IS_STRING,
    BOS_IS_NONE,
    EOS_OUTSIDE,
    ADD_BOS_IS_STRING,
    SUPPRESS_IS_STRING,
    TEMPLATE_IS_INT,
    N_FAULT
} fault;

static void put_strings(strbuf *b, const char *key, const char *const *text, uint64_t n) {
    put_array(b, key, GGUF_KIND_STR, n);
    for (uint64_t i = 0; i < n; i++) put_str(b, text[i]);
}

static void put_ints(strbuf *b, const char *key, const int32_t *x, uint64_t n) {
    put_array(b, key, GGUF_KIND_I32, n);
    for (uint64_t i = 0; i < n; i++) put_u32(b, (uint32_t)x[i]);
}

static void put_floats(strbuf *b, const char *key, uint64_t n) {
    put_array(b, key, GGUF_KIND_F32, n);
    for (uint64_t i = 0; i < n; i++) put_f32(b, -(float)i);
}

/* Five tokens, a merge, and a key of every kind the reader knows; 11 keys whatever is wrong. */
static void put_vocab(strbuf *b, fault f) {
    static const char *const tokens[] = {"a", "b", "ab", "<s>", "</s>"};
    static const char *const merges[] = {"a b"};
    static const int32_t types[] = {1, 1, 1, 3, 3}, suppress[] = {2};
    put_header(b, 3, 0, 11);
    if (f == MODEL_IS_INT)
        put_kv_u32(b, "tokenizer.ggml.model", 1);
    else
        put_kv_str(b, f == NO_MODEL ? "x1" : "tokenizer.ggml.model", f == BERT ? "bert" : "gpt2");
    put_kv_str(b, "tokenizer.ggml.pre", "gpt-2");
    if (f == TEMPLATE_IS_INT)
        put_kv_u32(b, "tokenizer.chat_template", 1);
    else
        put_kv_str(b, "tokenizer.chat_template", "{{ x }}");
    if (f == TOKENS_ARE_INTS)
        put_ints(b, "tokenizer.ggml.tokens", types, 5);
    else
        put_strings(b, f == NO_TOKENS ? "x2" : "tokenizer.ggml.tokens", tokens, 5);
    if (f == TYPES_ARE_FLOATS)
        put_floats(b, "tokenizer.ggml.token_type", 5);
    else
        put_ints(b, f == NO_TYPES ? "x3" : "tokenizer.ggml.token_type", types, f == TYPES_SHORT ? 4 : 5);
    if (f == SCORES_ARE_STRINGS)
        put_strings(b, "tokenizer.ggml.scores", tokens, 5);
    else
        put_floats(b, "tokenizer.ggml.scores", f == SCORES_LONG ? 6 : 5);
    if (f == MERGES_ARE_INTS)
        put_ints(b, "tokenizer.ggml.merges", types, 1);
    else
        put_strings(b, f == NO_MERGES ? "x4" : "tokenizer.ggml.merges", merges, 1);
    if (f == BOS_IS_STRING)
        put_kv_str(b, "tokenizer.ggml.bos_token_id", "<s>");
    else
        put_kv_u32(b, "tokenizer.ggml.bos_token_id", f == BOS_IS_NONE ? UINT32_MAX : 3);
    put_kv_u32(b, "tokenizer.ggml.eos_token_id", f == EOS_OUTSIDE ? 5 : 4);
    if (f == ADD_BOS_IS_STRING)
        put_kv_str(b, "tokenizer.ggml.add_bos_token", "true");
    else
        put_key(b, "tokenizer.ggml.add_bos_token", GGUF_KIND_BOOL), put_u8(b, 1);
    if (f == SUPPRESS_IS_STRING)
        put_kv_str(b, "tokenizer.ggml.suppress_tokens", "2");
    else
        put_ints(b, "tokenizer.ggml.suppress_tokens", suppress, 1);
}

static mica_status read_vocab(text_vocab **v, fault f, mica_error *err) {
    strbuf b = {0};
    gguf_file *g;
    put_vocab(&b, f);
    CHECK(gguf_parse_memory(&g, &(slice){b.p, b.n}, 1, err) == MICA_OK);
    mica_status st = text_vocab_new(v, g, err);
    gguf_close(g);
    strbuf_fini(&b);
    return st;
}

static void test_a_whole_vocabulary(void **state) {
    (void)state;
    mica_error err;
    text_vocab *v;
    size_t n;
    CHECK_OK(read_vocab(&v, NONE, &err));
    CHECK(text_vocab_n(v) == 5 && text_vocab_adds_bos(v) && !text_vocab_adds_eos(v));
    CHECK(text_vocab_special(v, TEXT_BOS) == 3 && text_vocab_special(v, TEXT_EOS) == 4);
    CHECK(text_vocab_ends(v, 4) && !text_vocab_ends(v, 3) && text_vocab_is_marker(v, 3));
    CHECK(slice_is(text_vocab_bytes(v, 2), "ab"));
    CHECK(text_vocab_suppressed(v, &n)[0] == 2 && n == 1);
    assert_string_equal(text_vocab_pre(v), "gpt-2");
    text_vocab_free(v);
}

static void test_faults(void **state) {
    (void)state;
    static const struct {
        mica_status st;
        const char *text; // in the message
    } want[N_FAULT] = {
        [NO_MODEL] = {MICA_E_FORMAT, "tokenizer.ggml.model"},
        [MODEL_IS_INT] = {MICA_E_FORMAT, "tokenizer.ggml.model"},
        [BERT] = {MICA_E_UNSUPPORTED, "bert"},
        [NO_TOKENS] = {MICA_E_FORMAT, "tokenizer.ggml.tokens"},
        [TOKENS_ARE_INTS] = {MICA_E_FORMAT, "tokenizer.ggml.tokens"},
        [TYPES_SHORT] = {MICA_E_FORMAT, "tokenizer.ggml.token_type"},
        [TYPES_ARE_FLOATS] = {MICA_E_FORMAT, "tokenizer.ggml.token_type"},
        [SCORES_LONG] = {MICA_E_FORMAT, "tokenizer.ggml.scores"},
        [SCORES_ARE_STRINGS] = {MICA_E_FORMAT, "tokenizer.ggml.scores"},
        [NO_MERGES] = {MICA_E_FORMAT, "tokenizer.ggml.merges"},
        [MERGES_ARE_INTS] = {MICA_E_FORMAT, "tokenizer.ggml.merges"},
        [BOS_IS_STRING] = {MICA_E_FORMAT, "tokenizer.ggml.bos_token_id"},
        [EOS_OUTSIDE] = {MICA_E_FORMAT, "tokenizer.ggml.eos_token_id"},
        [ADD_BOS_IS_STRING] = {MICA_E_FORMAT, "tokenizer.ggml.add_bos_token"},
        [SUPPRESS_IS_STRING] = {MICA_E_FORMAT, "tokenizer.ggml.suppress_tokens"},
        [TEMPLATE_IS_INT] = {MICA_E_FORMAT, "tokenizer.chat_template"},
    };
    for (int f = NONE; f < N_FAULT; f++) {
        mica_error err = {0};
        text_vocab *v;
        mica_status st = read_vocab(&v, (fault)f, &err);
        CHECK(st == want[f].st);
        CHECK((v != NULL) == (st == MICA_OK));
        if (st != MICA_OK) CHECK(err.status == st && strstr(err.text, want[f].text));
        if (f == BOS_IS_NONE) CHECK(text_vocab_special(v, TEXT_BOS) == -1 && !text_vocab_adds_bos(v));
        if (f == NO_TYPES) CHECK(text_vocab_is_marker(v, 3) && text_vocab_is_marker(v, 4));
        text_vocab_free(v);
    }
}

static void test_out_of_memory(void **state) {
    (void)state;
    mica_error err;
    strbuf b = {0};
    gguf_file *g;
    put_vocab(&b, NONE);
    CHECK_OK(gguf_parse_memory(&g, &(slice){b.p, b.n}, 1, &err));
    for (int64_t n = 0;; n++) {
        text_vocab *v;
        mem_fail_after(n);
        mica_status st = text_vocab_new(&v, g, &err);
        mem_fail_after(-1);
        CHECK(st == MICA_OK || (st == MICA_E_NOMEM && !v));
        text_vocab_free(v);
        if (st == MICA_OK) break;
        CHECK(n < 1000);
    }
    gguf_close(g);
    strbuf_fini(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_whole_vocabulary),
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
