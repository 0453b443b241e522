/* Decoding: characters cut between tokens, bytes that are none, control tokens, SentencePiece's first space.
 */
#include "check.h"
#include "vocab_small.h"

#include "text/detok.h"

static small_vocab s;

/* gpt2's 256 byte tokens, then a control token, a word, and a token that ends inside a character. */
enum { END = 256, WORD, CUT };

static text_vocab *bytes_vocab(void) {
    mica_error err;
    text_vocab *v;
    small_init(&s, "gpt2", "gpt-2");
    small_bytes(&s);
    small_add(&s, "<|im_end|>", TEXT_TYPE_CONTROL, 0);
    small_text(&s, "\xC4\xA0word");
    small_text(&s, "a\xC3\xA5\xC4\xAE"); // a, then E5 8C: two thirds of a character
    CHECK_OK(text_vocab_build(&v, &s.d, &err));
    return v;
}

static void check_text(const text_vocab *v, const int32_t *id, size_t n, unsigned flags, const char *want) {
    strbuf out = {0};
    text_decode(&out, v, id, n, flags);
    assert_string_equal(strbuf_cstr(&out), want);
    strbuf_fini(&out);
}

#define CHECK_TEXT(v, flags, want, ...)                                                                      \
    check_text(v, (int32_t[]){__VA_ARGS__}, sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t), flags, want)
#define BAD "\xEF\xBF\xBD"

static void test_characters_are_held_until_whole(void **state) {
    (void)state;
    text_vocab *v = bytes_vocab();
    text_stream st;
    strbuf out = {0};
    text_stream_init(&st, v, 0);
    static const unsigned char text[] = "a\xC3\xA9\xE5\x8C\x97\xF0\x9F\x98\x80z";
    static const size_t after[] = {1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 11}; // bytes out after each byte in
    for (size_t i = 0; i + 1 < sizeof text; i++) {
        text_stream_put(&st, text[i], &out);
        CHECK(out.n == after[i] && utf8_valid(strbuf_cstr(&out), out.n));
    }
    text_stream_end(&st, &out);
    assert_string_equal(strbuf_cstr(&out), (const char *)text);
    strbuf_fini(&out);
    CHECK_TEXT(v, 0, "a\xE5\x8C\x97 word", CUT, 0x97, WORD);
    text_vocab_free(v);
}

static void test_an_incomplete_end_is_one_replacement(void **state) {
    (void)state;
    text_vocab *v = bytes_vocab();
    CHECK_TEXT(v, 0, "a" BAD, CUT);
    CHECK_TEXT(v, 0, "a" BAD, 'a', 0xF0, 0x9F, 0x98);
    CHECK_TEXT(v, 0, "a" BAD, 'a', 0xC3);
    CHECK_TEXT(v, 0, "", END);
    // The stream begins anew after its end.
    text_stream st;
    strbuf out = {0};
    text_stream_init(&st, v, 0);
    text_stream_put(&st, 0xE5, &out);
    text_stream_end(&st, &out);
    text_stream_end(&st, &out);
    text_stream_put(&st, 'b', &out);
    text_stream_end(&st, &out);
    assert_string_equal(strbuf_cstr(&out), BAD "b");
    strbuf_fini(&out);
    text_vocab_free(v);
}

static void test_bytes_of_no_character_are_replaced(void **state) {
    (void)state;
    text_vocab *v = bytes_vocab();
    CHECK_TEXT(v, 0, BAD "a" BAD BAD "b", 0xFF, 'a', 0x80, 0xBF, 'b');
    CHECK_TEXT(v, 0, BAD "a", 0xE5, 0x8C, 'a');                // a start of three bytes is one
    CHECK_TEXT(v, 0, BAD BAD BAD "a", 0xED, 0xA0, 0x80, 'a');  // a surrogate is three
    CHECK_TEXT(v, 0, BAD BAD "a", 0xC0, 0xAF, 'a');            // overlong
    CHECK_TEXT(v, 0, BAD "\xC3\xA9", 0xF0, 0x9F, 0xC3, 0xA9);  // the next character is not swallowed
    CHECK_TEXT(v, 0, BAD BAD BAD BAD, 0xF4, 0x90, 0x80, 0x80); // beyond the last character
    CHECK_TEXT(v, 0, BAD "a\xE5\x8C\x97", 0xE5, CUT, 0x97);
    text_vocab_free(v);
}

static void test_control_tokens_print_when_asked(void **state) {
    (void)state;
    text_vocab *v = bytes_vocab();
    CHECK_TEXT(v, 0, "ab", 'a', END, 'b');
    CHECK_TEXT(v, TEXT_SHOW_CONTROL, "a<|im_end|>b", 'a', END, 'b');
    CHECK_TEXT(v, 0, "a" BAD BAD, 'a', 0xC3, END, 0xA9); // bytes on both sides are no character
    CHECK_TEXT(v, 0, "ab", 'a', -1, 100000, 'b');
    CHECK_TEXT(v, 0, "\xC3\xA9", 0xC3, -1, 0xA9); // an id of nothing is nothing
    text_vocab_free(v);
}

/* Random ids: the stream's text is valid after every token and is, in the end, what Python's
 * decode(errors="replace") defines; computed here from the whole. */
static void test_streams_join_to_the_whole(void **state) {
    (void)state;
    text_vocab *v = bytes_vocab();
    uint64_t seed = 4;
    for (int k = 0; k < 20000; k++) {
        strbuf out = {0}, raw = {0}, want = {0};
        text_stream st;
        text_stream_init(&st, v, 0);
        for (uint64_t n = test_rand(&seed) % 12; n > 0; n--) {
            static const unsigned char likely[] = {0xE5, 0x8C, 0x97, 0xF0, 0x9F, 0x98,
                                                   0x80, 0xC3, 0xA9, 'a',  0xED, 0xF4};
            char c = (char)(test_rand(&seed) % 4 ? likely[test_rand(&seed) % sizeof likely]
                                                 : test_rand(&seed) % 256);
            strbuf_putc(&raw, c);
            text_stream_put(&st, (unsigned char)c, &out);
            CHECK(utf8_valid(strbuf_cstr(&out), out.n));
        }
        text_stream_end(&st, &out);
        for (size_t i = 0; i < raw.n;) {
            int n = utf8_len(raw.p + i, raw.n - i);
            size_t len = n > 0 ? (size_t)n : 1;
            while (n <= 0 && i + len < raw.n && utf8_len(raw.p + i, len + 1) == 0) len++;
            if (n > 0)
                strbuf_put(&want, raw.p + i, len);
            else
                strbuf_puts(&want, BAD);
            i += len;
        }
        assert_string_equal(strbuf_cstr(&out), strbuf_cstr(&want));
        strbuf_fini(&out);
        strbuf_fini(&raw);
        strbuf_fini(&want);
    }
    text_vocab_free(v);
}

static void test_the_first_space_of_sentencepiece(void **state) {
    (void)state;
    mica_error err;
    text_vocab *v;
    small_init(&s, "llama", "");
    small_add(&s, "<unk>", TEXT_TYPE_UNKNOWN, 0);
    small_add(&s, "<s>", TEXT_TYPE_CONTROL, 0);
    small_add(&s, "</s>", TEXT_TYPE_CONTROL, 0);
    int32_t hi = small_text(&s, "\xE2\x96\x81hi"), sp = small_text(&s, "\xE2\x96\x81");
    CHECK_OK(text_vocab_build(&v, &s.d, &err));
    CHECK_TEXT(v, 0, " hi hi", hi, hi); // what a model goes on writing
    CHECK_TEXT(v, TEXT_FROM_START, "hi hi", hi, hi);
    CHECK_TEXT(v, TEXT_FROM_START, "hi", 1, hi);
    CHECK_TEXT(v, TEXT_FROM_START, " hi", sp, hi);
    CHECK_TEXT(v, TEXT_FROM_START, "", sp);
    CHECK_TEXT(v, TEXT_FROM_START | TEXT_SHOW_CONTROL, "<s> hi", 1, hi);
    text_vocab_free(v);
    s.d.add_space_prefix = TEXT_NO;
    CHECK_OK(text_vocab_build(&v, &s.d, &err));
    CHECK_TEXT(v, TEXT_FROM_START, " hi", hi);
    text_vocab_free(v);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_characters_are_held_until_whole),
        cmocka_unit_test(test_an_incomplete_end_is_one_replacement),
        cmocka_unit_test(test_bytes_of_no_character_are_replaced),
        cmocka_unit_test(test_control_tokens_print_when_asked),
        cmocka_unit_test(test_streams_join_to_the_whole),
        cmocka_unit_test(test_the_first_space_of_sentencepiece),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
