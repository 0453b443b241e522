/* Which tokens are special: by id, by type, by spelling; and what text may become them. */
#include "check.h"
#include "vocab_small.h"

#include "text/vocab_int.h"

static small_vocab s;

static text_vocab *build(void) {
    mica_error err;
    text_vocab *v;
    CHECK_OK(text_vocab_build(&v, &s.d, &err));
    return v;
}

static void start(const char *model) {
    small_init(&s, model, "qwen2");
    if (strcmp(model, "gpt2") == 0)
        small_bytes(&s);
    else
        small_byte_tokens(&s);
}

static void check_ends(const text_vocab *v, const int32_t *want, size_t n_want) {
    size_t n;
    const int32_t *got = text_vocab_ends_all(v, &n);
    CHECK(n == n_want);
    for (size_t i = 0; i < n; i++) CHECK(got[i] == want[i] && text_vocab_ends(v, want[i]));
}

static void test_ids_types_and_spellings_end_generation(void **state) {
    (void)state;
    start("gpt2");
    int32_t end[6];
    end[0] = small_add(&s, "<|endoftext|>", TEXT_TYPE_CONTROL, 0);
    end[1] = small_text(&s, "<|im_end|>"); // piped: its type is a mistake
    int32_t start_token = small_add(&s, "<|im_start|>", TEXT_TYPE_CONTROL, 0);
    end[2] = small_text(&s, "stop"); // by id
    end[3] = small_add(&s, "<|fim_pad|>", TEXT_TYPE_USER, 0);
    end[4] = small_add(&s, "<|repo_name|>", TEXT_TYPE_USER, 0);
    int32_t tag = small_text(&s, "</s>"), eos_like = small_text(&s, "[EOS]"); // normal: text
    int32_t middle = small_add(&s, "<|fim_middle|>", TEXT_TYPE_USER, 0);
    s.d.special[TEXT_EOS] = end[2];
    text_vocab *v = build();
    check_ends(v, end, 5);
    CHECK(!text_vocab_ends(v, tag) && !text_vocab_ends(v, eos_like) && !text_vocab_ends(v, start_token));
    for (int i = 0; i < 5; i++) CHECK(text_vocab_is_marker(v, end[i]) && text_vocab_is_control(v, end[i]));
    CHECK(!text_vocab_is_marker(v, tag) && text_vocab_is_control(v, middle));
    CHECK(text_vocab_special(v, TEXT_EOS) == end[2]);
    CHECK(text_vocab_special(v, TEXT_EOT) == end[1]); // first of its spellings, before <|endoftext|>
    CHECK(text_vocab_special(v, TEXT_FIM_MID) == middle && text_vocab_special(v, TEXT_FIM_REP) == end[4]);
    CHECK(text_vocab_special(v, TEXT_BOS) == -1); // 11 is a comma here, whatever the format's default says
    text_vocab_free(v);
}

static void test_defaults_hold_where_they_look_the_part(void **state) {
    (void)state;
    small_init(&s, "llama", "");
    small_add(&s, "<unk>", TEXT_TYPE_UNKNOWN, 0);
    small_add(&s, "<s>", TEXT_TYPE_CONTROL, 0);
    small_add(&s, "</s>", TEXT_TYPE_CONTROL, 0);
    small_text(&s, "a");
    text_vocab *v = build();
    CHECK(text_vocab_special(v, TEXT_UNK) == 0 && text_vocab_special(v, TEXT_BOS) == 1);
    CHECK(text_vocab_special(v, TEXT_EOS) == 2 && text_vocab_adds_bos(v) && !text_vocab_adds_eos(v));
    check_ends(v, (int32_t[]){2}, 1);
    text_vocab_free(v);

    s.d.type = NULL; // a file without types: the same by position
    v = build();
    CHECK(text_vocab_is_marker(v, 0) && text_vocab_is_marker(v, 1) && text_vocab_is_marker(v, 2));
    CHECK(!text_vocab_is_marker(v, 3));
    text_vocab_free(v);

    s.d.type = s.type;
    s.type[1] = s.type[2] = TEXT_TYPE_NORMAL;
    v = build();
    CHECK(text_vocab_special(v, TEXT_BOS) == -1 && text_vocab_special(v, TEXT_EOS) == -1);
    CHECK(!text_vocab_adds_bos(v));
    text_vocab_free(v);
}

static void test_spellings_inside_a_turn(void **state) {
    (void)state;
    start("gpt2"); // harmony
    int32_t end = small_add(&s, "<|end|>", TEXT_TYPE_CONTROL, 0);
    int32_t ret = small_add(&s, "<|return|>", TEXT_TYPE_CONTROL, 0);
    text_vocab *v = build();
    CHECK(text_vocab_ends(v, end) && text_vocab_ends(v, ret));
    text_vocab_free(v);
    int32_t call = small_add(&s, "<|call|>", TEXT_TYPE_CONTROL, 0);
    s.d.special[TEXT_EOT] = ret;
    v = build();
    CHECK(!text_vocab_ends(v, end) && text_vocab_ends(v, ret) && text_vocab_ends(v, call));
    text_vocab_free(v);

    start("gemma4");
    int32_t s_end = small_add(&s, "</s>", TEXT_TYPE_CONTROL, 0),
            turn = small_add(&s, "<turn|>", TEXT_TYPE_CONTROL, 0);
    small_text(&s, "a");
    v = build();
    CHECK(text_vocab_ends(v, s_end) && text_vocab_ends(v, turn));
    text_vocab_free(v);
    int32_t answer = small_add(&s, "<|tool_response>", TEXT_TYPE_USER, 0);
    v = build();
    CHECK(!text_vocab_ends(v, s_end) && text_vocab_ends(v, answer) && text_vocab_ends(v, turn));
    text_vocab_free(v);
}

static void test_user_defined_tokens_are_plain_or_markers(void **state) {
    (void)state;
    start("llama");
    s.d.chat_template = SLICE_LIT("{{ '<code>' }}");
    static const struct {
        const char *text;
        text_kind kind;
    } want[] = {
        {"\n\n", TEXT_KIND_PLAIN},
        {"  ", TEXT_KIND_PLAIN},
        {"\xE2\x96\x81\xE2\x96\x81\xE2\x96\x81", TEXT_KIND_PLAIN},
        {"<table>", TEXT_KIND_PLAIN},
        {"</h6>", TEXT_KIND_PLAIN},
        {"<s>", TEXT_KIND_PLAIN},
        {"<code>", TEXT_KIND_MARKER}, // the template uses it
        {"<think>", TEXT_KIND_MARKER},
        {"</think>", TEXT_KIND_MARKER},
        {"<tool_call>", TEXT_KIND_MARKER},
        {"<|x|>", TEXT_KIND_MARKER},
        {"<h7>", TEXT_KIND_MARKER},
        {"<>", TEXT_KIND_MARKER},
        {"</>", TEXT_KIND_MARKER},
        {"<a b>", TEXT_KIND_MARKER},
        {"<blockquotation>", TEXT_KIND_MARKER},
        {"< >", TEXT_KIND_MARKER},
        {"word", TEXT_KIND_MARKER},
        {"", TEXT_KIND_NEVER},
    };
    int32_t first = (int32_t)s.d.n_token;
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) small_add(&s, want[i].text, TEXT_TYPE_USER, 0);
    small_add(&s, "<i>", TEXT_TYPE_CONTROL, 0);
    small_add(&s, "<b>", TEXT_TYPE_UNUSED, 0);
    small_text(&s, "a");
    text_vocab *v = build();
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        if (v->kind[first + (int32_t)i] != want[i].kind)
            check_failed(__FILE__, __LINE__, want[i].text, "another kind");
    int32_t next = first + (int32_t)(sizeof want / sizeof *want);
    CHECK(v->kind[next] == TEXT_KIND_MARKER && v->kind[next + 1] == TEXT_KIND_NEVER);
    CHECK(slice_is(text_vocab_bytes(v, first + 2), "   ")); // spelled with U+2581 in the file
    text_vocab_free(v);
    s.d.special[TEXT_BOS] = first + 5;
    v = build();
    CHECK(v->kind[first + 5] == TEXT_KIND_MARKER); // <s> with a role is no tag
    text_vocab_free(v);
}

static void test_the_longest_allowed_token_matches(void **state) {
    (void)state;
    size_t n;
    start("gpt2");
    int32_t x = small_add(&s, "<x", TEXT_TYPE_CONTROL, 0), xy = small_add(&s, "<x\ny", TEXT_TYPE_CONTROL, 0);
    int32_t nl = small_add(&s, "\n", TEXT_TYPE_USER, 0), nl3 = small_add(&s, "\n\n\n", TEXT_TYPE_USER, 0);
    small_add(&s, "<w>", TEXT_TYPE_CONTROL, 0);
    text_vocab *v = build();
    CHECK(text_vocab_match(v, "<x\nyz", 5, 5, &n) == xy && n == 4);
    CHECK(text_vocab_match(v, "<x\nyz", 5, 3, &n) == x && n == 2); // the longer one is not all trusted
    CHECK(text_vocab_match(v, "<x\nyz", 5, 1, &n) == -1 && n == 0);
    CHECK(text_vocab_match(v, "<x\n", 3, 3, &n) == x && n == 2);
    CHECK(text_vocab_match(v, "\n\n\n\n", 4, 0, &n) == nl3 && n == 3); // plain: trust is not asked for
    CHECK(text_vocab_match(v, "\n\n", 2, 0, &n) == nl && n == 1);
    CHECK(text_vocab_match(v, "", 0, 0, &n) == -1);
    CHECK(text_vocab_find(v, SLICE_LIT("<x\ny")) == xy && text_vocab_find(v, SLICE_LIT("<x")) == x);
    CHECK(text_vocab_find(v, SLICE_LIT("<x\n")) == -1 && text_vocab_find(v, SLICE_LIT("")) == -1);
    CHECK(text_vocab_find(v, SLICE_LIT("a")) == -1); // text is not what it finds
    text_vocab_free(v);
}

/* The longest of n texts that text begins with and that fits `most` bytes. */
static size_t longest_of(char spell[][8], int n, const char *text, size_t most) {
    size_t best = 0;
    for (int i = 0; i < n; i++) {
        size_t len = strlen(spell[i]);
        if (len <= most && len > best && memcmp(spell[i], text, len) == 0) best = len;
    }
    return best;
}

static void check_matches(const text_vocab *v, char spell[][8], int n_spell, unsigned bits) {
    char text[8];
    for (int k = 0; k < 8; k++) text[k] = "[]"[bits >> k & 1];
    for (size_t trusted = 0; trusted <= 8; trusted++) {
        size_t want = longest_of(spell, n_spell, text, trusted), n;
        int32_t id = text_vocab_match(v, text, 8, trusted, &n);
        CHECK(n == want && (id >= 0) == (want > 0));
        if (id >= 0) CHECK(slice_eq(text_vocab_bytes(v, id), (slice){text, want}));
    }
}

/* All texts over two letters against plain search. */
static void test_matching_like_plain_search(void **state) {
    (void)state;
    enum { N = 12 };
    static char spell[N][8];
    uint64_t seed = 5;
    for (int round = 0; round < 50; round++) {
        start("gpt2");
        for (int i = 0; i < N; i++) {
            size_t len = 1 + test_rand(&seed) % 6;
            for (size_t k = 0; k < len; k++) spell[i][k] = "[]"[test_rand(&seed) % 2];
            spell[i][len] = 0;
            small_add(&s, spell[i], TEXT_TYPE_CONTROL, 0);
        }
        text_vocab *v = build();
        for (unsigned bits = 0; bits < 256; bits++) check_matches(v, spell, N, bits);
        text_vocab_free(v);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ids_types_and_spellings_end_generation),
        cmocka_unit_test(test_defaults_hold_where_they_look_the_part),
        cmocka_unit_test(test_spellings_inside_a_turn),
        cmocka_unit_test(test_user_defined_tokens_are_plain_or_markers),
        cmocka_unit_test(test_the_longest_allowed_token_matches),
        cmocka_unit_test(test_matching_like_plain_search),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
