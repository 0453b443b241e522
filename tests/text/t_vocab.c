/* Building vocabularies: what is refused, what is tolerated, what a token's bytes are. */
#include "check.h"
#include "vocab_small.h"

#include "base/log.h"
#include "base/mem.h"
#include "text/tokenize.h"

static small_vocab s;
static int g_warnings;

static void count_warnings(void *user, log_level level, const char *line) {
    (void)user;
    (void)line;
    g_warnings += level == LOG_WARN;
}

static int32_t encode_one(const text_vocab *v, const char *text) {
    mica_error err;
    text_ids ids = {0};
    CHECK_OK(text_encode(&ids, v, &(text_input){.text = slice_of(text)}, &err));
    int32_t id = ids.n == 1 ? ids.id[0] : -1;
    text_ids_fini(&ids);
    return id;
}

static void test_what_is_refused(void **state) {
    (void)state;
    mica_error err;
    text_vocab *v;
    small_init(&s, "gpt2", "gpt-2");
    CHECK(text_vocab_build(&v, &s.d, &err) == MICA_E_FORMAT && !v); // no tokens
    small_add(&s, "", TEXT_TYPE_NORMAL, 0);
    small_add(&s, "<x>", TEXT_TYPE_CONTROL, 0);
    CHECK(text_vocab_build(&v, &s.d, &err) == MICA_E_FORMAT && !v); // none that text could become
    small_bytes(&s);
    s.d.n_token = (1u << 22) + 1;
    CHECK(text_vocab_build(&v, &s.d, &err) == MICA_E_FORMAT && !v);
    s.d.n_token = 258;
    s.d.n_merge = (1u << 24) + 1;
    CHECK(text_vocab_build(&v, &s.d, &err) == MICA_E_FORMAT && !v);
    s.d.n_merge = 0;
    s.token[3].n = 0x80000000u; // a token's length alone: its bytes are never read
    CHECK(text_vocab_build(&v, &s.d, &err) == MICA_E_FORMAT && !v);
    s.token[3].n = 1;
    s.d.model = SLICE_LIT("bert");
    CHECK(text_vocab_build(&v, &s.d, &err) == MICA_E_UNSUPPORTED && !v);
    CHECK(strstr(err.text, "bert") != NULL);
}

static void test_ids_outside_the_vocabulary(void **state) {
    (void)state;
    mica_error err;
    text_vocab *v;
    for (int role = 0; role < TEXT_SPECIAL_N; role++) {
        small_init(&s, "gpt2", "gpt-2");
        small_bytes(&s);
        s.d.special[role] = 256;
        g_warnings = 0;
        log_set_sink(count_warnings, NULL);
        mica_status st = text_vocab_build(&v, &s.d, &err);
        log_set_sink(NULL, NULL);
        if (role == TEXT_BOS || role == TEXT_EOS) {
            CHECK(st == MICA_E_FORMAT && strstr(err.text, "256"));
            continue;
        }
        CHECK(st == MICA_OK && g_warnings == 1);
        CHECK(text_vocab_special(v, (text_special)role) == -1);
        text_vocab_free(v);
    }
}

static void test_an_unknown_split_warns(void **state) {
    (void)state;
    mica_error err;
    text_vocab *v;
    small_init(&s, "gpt2", "no-such-split");
    small_bytes(&s);
    g_warnings = 0;
    log_set_sink(count_warnings, NULL);
    CHECK_OK(text_vocab_build(&v, &s.d, &err));
    log_set_sink(NULL, NULL);
    CHECK(g_warnings == 1);
    assert_string_equal(text_vocab_pre(v), "default");
    text_vocab_free(v);
}

static void test_bytes_of_tokens(void **state) {
    (void)state;
    mica_error err;
    text_vocab *v;
    small_init(&s, "gpt2", "gpt-2");
    small_bytes(&s);
    int32_t word = small_text(&s, "\xC4\xA0wo"), odd = small_text(&s, "\xE4\xBD\xA0"); // U+0120 is a space
    int32_t marker = small_add(&s, "<|\xC4\xA0|>", TEXT_TYPE_CONTROL, 0);
    CHECK_OK(text_vocab_build(&v, &s.d, &err));
    for (int b = 0; b < 256; b++) {
        slice t = text_vocab_bytes(v, b);
        CHECK(t.n == 1 && (unsigned char)t.p[0] == b);
    }
    CHECK(slice_is(text_vocab_bytes(v, word), " wo"));
    CHECK(slice_is(text_vocab_bytes(v, odd), "\xE4\xBD\xA0")); // not of the alphabet: as it stands
    CHECK(slice_is(text_vocab_bytes(v, marker), "<|\xC4\xA0|>"));
    CHECK(!text_vocab_bytes(v, -1).p && !text_vocab_bytes(v, text_vocab_n(v)).p);
    CHECK(!text_vocab_is_marker(v, -1) && !text_vocab_is_control(v, 100000) && !text_vocab_ends(v, -5));
    text_vocab_free(v);

    small_init(&s, "llama", "");
    small_add(&s, "<unk>", TEXT_TYPE_UNKNOWN, 0);
    small_byte_tokens(&s);
    int32_t spaced = small_text(&s, "\xE2\x96\x81"
                                    "a\xE2\x96\x81"),
            lower = small_text(&s, "<0x0a>");
    CHECK_OK(text_vocab_build(&v, &s.d, &err));
    CHECK(slice_is(text_vocab_bytes(v, 1 + 0x0A), "\n"));
    CHECK(slice_eq(text_vocab_bytes(v, 1), (slice){"\0", 1}));
    CHECK(slice_is(text_vocab_bytes(v, spaced), " a "));
    CHECK(slice_is(text_vocab_bytes(v, lower), "<0x0a>")); // byte tokens are upper case
    text_vocab_free(v);
}

static void test_merges_that_make_no_sense_are_tolerated(void **state) {
    (void)state;
    mica_error err;
    text_vocab *v;
    small_init(&s, "gpt2", "gpt-2");
    small_bytes(&s);
    int32_t ab = small_text(&s, "ab");
    static const char *const bad[] = {"",       " ",    "x", " x", "x ", "\xE4\xBD\xA0 x", "x \xE4\xBD\xA0",
                                      "\xFF x", "a b c"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) small_merge(&s, bad[i]);
    small_merge(&s, "a b");
    small_merge(&s, "qqq rrr"); // strings that are no tokens
    for (int i = 0; i < 100; i++) small_merge(&s, "a b");
    g_warnings = 0;
    log_set_sink(count_warnings, NULL);
    CHECK_OK(text_vocab_build(&v, &s.d, &err));
    log_set_sink(NULL, NULL);
    CHECK(g_warnings == 1); // one line for all of them
    CHECK(encode_one(v, "ab") == ab);
    text_vocab_free(v);
}

/* A hostile or careless file may list merges that spell a marker: text still never becomes it. */
static void test_merging_never_builds_a_marker(void **state) {
    (void)state;
    mica_error err;
    text_vocab *v;
    for (int ignore = 0; ignore < 2; ignore++) {
        small_init(&s, "gpt2", ignore ? "llama-bpe" : "gpt-2");
        small_bytes(&s);
        int32_t end = small_add(&s, "|||", TEXT_TYPE_CONTROL, 0);
        int32_t think = small_add(&s, "think", TEXT_TYPE_USER, 0),
                unused = small_add(&s, "zz", TEXT_TYPE_UNUSED, 0);
        small_merge(&s, "| |");
        small_merge(&s, "|| |");
        small_merge(&s, "t h");
        small_merge(&s, "th i");
        small_merge(&s, "thi n");
        small_merge(&s, "thin k");
        small_merge(&s, "z z");
        CHECK_OK(text_vocab_build(&v, &s.d, &err));
        text_ids ids = {0};
        text_input in = {.text = SLICE_LIT("||| think zz")};
        CHECK_OK(text_encode(&ids, v, &in, &err));
        CHECK(ids.n == in.text.n);
        for (size_t i = 0; i < ids.n; i++) CHECK(ids.id[i] == (unsigned char)in.text.p[i]);
        ids.n = 0;
        in.flags = TEXT_TRUSTED;
        CHECK_OK(text_encode(&ids, v, &in, &err));
        CHECK(ids.n == 6 && ids.id[0] == end && ids.id[2] == think && ids.id[4] != unused &&
              ids.id[5] == 'z');
        text_ids_fini(&ids);
        text_vocab_free(v);
    }
}

static void test_equal_tokens_leave_the_first(void **state) {
    (void)state;
    mica_error err;
    text_vocab *v;
    small_init(&s, "gpt2", "gpt-2");
    small_bytes(&s);
    int32_t first = small_text(&s, "ab");
    small_text(&s, "ab");
    small_add(&s, "", TEXT_TYPE_NORMAL, 0);
    small_merge(&s, "a b");
    CHECK_OK(text_vocab_build(&v, &s.d, &err));
    CHECK(encode_one(v, "ab") == first);
    CHECK(slice_is(text_vocab_bytes(v, first + 1), "ab")); // it still prints
    text_vocab_free(v);
}

static void test_suppressed_ids(void **state) {
    (void)state;
    mica_error err;
    text_vocab *v;
    size_t n;
    static const int32_t ids[] = {7, -1, 256, 3, INT32_MAX};
    small_init(&s, "gpt2", "gpt-2");
    small_bytes(&s);
    s.d.suppress = ids;
    s.d.n_suppress = 5;
    CHECK_OK(text_vocab_build(&v, &s.d, &err));
    const int32_t *got = text_vocab_suppressed(v, &n);
    CHECK(n == 2 && got[0] == 3 && got[1] == 7);
    text_vocab_free(v);
}

static void test_every_allocation_may_fail(void **state) {
    (void)state;
    mica_error err;
    static const int32_t ids[] = {7};
    for (int model = 0; model < 3; model++) {
        small_init(&s, model == 0 ? "gpt2" : model == 1 ? "llama" : "gemma4", "qwen2");
        if (model == 0)
            small_bytes(&s);
        else
            small_byte_tokens(&s);
        for (int i = 0; i < 100; i++) small_merge(&s, "a b");
        small_text(&s, "a");
        small_add(&s, "<|im_end|>", TEXT_TYPE_CONTROL, 0);
        s.d.suppress = ids;
        s.d.n_suppress = 1;
        for (int64_t n = 0;; n++) {
            text_vocab *v;
            mem_fail_after(n);
            mica_status st = text_vocab_build(&v, &s.d, &err);
            mem_fail_after(-1);
            CHECK(st == MICA_OK || (st == MICA_E_NOMEM && !v));
            text_vocab_free(v);
            if (st == MICA_OK) break;
            CHECK(n < 1000);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_refused),
        cmocka_unit_test(test_ids_outside_the_vocabulary),
        cmocka_unit_test(test_an_unknown_split_warns),
        cmocka_unit_test(test_bytes_of_tokens),
        cmocka_unit_test(test_merges_that_make_no_sense_are_tolerated),
        cmocka_unit_test(test_merging_never_builds_a_marker),
        cmocka_unit_test(test_equal_tokens_leave_the_first),
        cmocka_unit_test(test_suppressed_ids),
        cmocka_unit_test(test_every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
