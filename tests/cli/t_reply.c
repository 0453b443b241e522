/* Thinking told apart and stop strings held back, whatever the pieces the text comes in. */
#include "cli/reply.h"

#include "check.h"

typedef struct heard {
    strbuf parts[3], all;
} heard;

static void hear(void *user, reply_part part, const char *text, size_t n) {
    heard *h = user;
    strbuf_put(&h->parts[part], text, n);
    strbuf_put(&h->all, text, n);
}

static void expect(const strbuf *got, const char *want) {
    if (strcmp(strbuf_cstr(got), want) != 0) check_failed(__FILE__, __LINE__, want, strbuf_cstr(got));
}

typedef struct one_case {
    const char *text;
    const char *stops[3];
    const char *answer, *thinking, *all; // all NULL: the text itself
    bool in_think, stopped, raw;
} one_case;

static mica_model *model; // one whose template thinks between <think> and </think>

/* The text in pieces of at most n bytes, cut between characters as the text stream gives them. */
static void run_case(const one_case *c, size_t n) {
    heard h = {0};
    mica_error err;
    reply r;
    reply_options o = {.model = model, .raw = c->raw, .in_think = c->in_think, .stops = c->stops};
    while (o.n_stop < 3 && c->stops[o.n_stop]) o.n_stop++;
    o.sink = hear;
    o.user = &h;
    CHECK_OK(reply_init(&r, &o, &err));
    bool more = true;
    for (const char *p = c->text; *p && more;) {
        size_t k = 0;
        do k += (size_t)utf8_len(p + k, strlen(p + k));
        while (k < n && p[k]);
        more = reply_put_text(&r, p, k);
        p += k;
    }
    reply_flush(&r);
    CHECK(r.stopped == c->stopped && !r.failed);
    CHECK(r.stopped || !reply_holds_text(&r));
    expect(&h.parts[PART_ANSWER], c->answer);
    expect(&h.parts[PART_THINKING], c->thinking);
    expect(&h.all, c->all ? c->all : c->text);
    for (int i = 0; i < 3; i++) strbuf_fini(&h.parts[i]);
    strbuf_fini(&h.all);
    reply_fini(&r);
}

static void run_cases(const one_case *cases, size_t n_case) {
    for (size_t i = 0; i < n_case; i++)
        for (size_t n = 1; n < 40; n++) run_case(&cases[i], n);
}

static void test_thinking_is_told_apart(void **state) {
    (void)state;
    static const one_case cases[] = {
        {.text = "Hello.", .answer = "Hello.", .thinking = ""},
        {.text = "<think>\n\n</think>\n\nHi", .answer = "Hi", .thinking = ""},
        {.text = "\n<think>\nOne.\n\nTwo.\n</think>\n\nHi\n", .answer = "Hi\n", .thinking = "One.\n\nTwo."},
        {.text = "One.\n</think>\n\nHi", .answer = "Hi", .thinking = "One.", .in_think = true},
        {.text = "  Hi <think> no </think>", .answer = "  Hi <think> no </think>", .thinking = ""},
        {.text = "<thin air", .answer = "<thin air", .thinking = ""},
        {.text = "<thin", .answer = "<thin", .thinking = ""},
        {.text = " ", .answer = " ", .thinking = ""},
        {.text = "<think>cut off </th", .answer = "", .thinking = "cut off </th"},
        {.text = "<think>a</thunk></think>b", .answer = "b", .thinking = "a</thunk>"},
        {.text = "<think>\xE6\xA8\xA1\xE5\x9E\x8B</think>\xC3\xA9",
         .answer = "\xC3\xA9",
         .thinking = "\xE6\xA8\xA1\xE5\x9E\x8B"},
        {.text = "<think>\nOne.\n</think>Hi <think>", .answer = "Hi <think>", .thinking = "One."},
        {.text = "<think>a</think> b", .answer = "<think>a</think> b", .thinking = "", .raw = true},
    };
    run_cases(cases, sizeof cases / sizeof cases[0]);
}

static void test_nothing_of_a_stop_string_is_given(void **state) {
    (void)state;
    static const one_case cases[] = {
        {.text = "one STOP two",
         .stops = {"STOP"},
         .answer = "one ",
         .thinking = "",
         .all = "one ",
         .stopped = true,
         .raw = true},
        {.text = "one STO two ST",
         .stops = {"STOP"},
         .answer = "one STO two ST",
         .thinking = "",
         .raw = true},
        {.text = "aab",
         .stops = {"ab"},
         .answer = "a",
         .thinking = "",
         .all = "a",
         .stopped = true,
         .raw = true},
        {.text = "aaab",
         .stops = {"aab"},
         .answer = "a",
         .thinking = "",
         .all = "a",
         .stopped = true,
         .raw = true},
        {.text = "abcd",
         .stops = {"cd", "bc"},
         .answer = "a",
         .thinking = "",
         .all = "a",
         .stopped = true,
         .raw = true}, // the first in the text, not in the list
        {.text = "x\xE6\xA8\xA1\xE5\x9E\x8By",
         .stops = {"\xE5\x9E\x8B"},
         .answer = "x\xE6\xA8\xA1",
         .thinking = "",
         .all = "x\xE6\xA8\xA1",
         .stopped = true,
         .raw = true},
        {.text = "STOP",
         .stops = {"STOP"},
         .answer = "",
         .thinking = "",
         .all = "",
         .stopped = true,
         .raw = true},
        {.text = "<think>\n\nx\n\n</think>\n\nA\n\nB",
         .stops = {"\n\n"},
         .answer = "A",
         .thinking = "x",
         .all = "<think>\n\nx\n\n</think>\n\nA",
         .stopped = true}, // not in the thinking
        {.text = "<th. B", .stops = {"."}, .answer = "<th", .thinking = "", .all = "<th", .stopped = true},
    };
    run_cases(cases, sizeof cases / sizeof cases[0]);
}

/* Against a definition that sees the whole text: random texts of few letters, random stops, random pieces. */
static void test_random_stops_equal_the_definition(void **state) {
    (void)state;
    uint64_t seed = 20261130;
    printf("seed %llu\n", (unsigned long long)seed);
    for (int round = 0; round < 20000; round++) {
        char text[24], words[2][5];
        const size_t n = test_rand(&seed) % 20;
        for (size_t i = 0; i < n; i++) text[i] = "ab"[test_rand(&seed) % 2];
        text[n] = 0;
        for (int k = 0; k < 2; k++) {
            const size_t m = 1 + test_rand(&seed) % 4;
            for (size_t i = 0; i < m; i++) words[k][i] = "ab"[test_rand(&seed) % 2];
            words[k][m] = 0;
        }
        const char *first = NULL, *end = NULL; // the one that ends first, then the longest
        for (int k = 0; k < 2; k++) {
            const char *at = strstr(text, words[k]), *at_end = at ? at + strlen(words[k]) : NULL;
            if (!at || (first && (at_end > end || (at_end == end && at >= first)))) continue;
            first = at;
            end = at_end;
        }
        char want[24];
        snprintf(want, sizeof want, "%.*s", first ? (int)(first - text) : (int)n, text);
        const one_case c = {.text = text,
                            .stops = {words[0], words[1]},
                            .answer = want,
                            .thinking = "",
                            .all = want,
                            .stopped = first != NULL,
                            .raw = true};
        for (size_t piece = 1; piece < 6; piece++) run_case(&c, piece);
    }
}

static int load(void **state) {
    (void)state;
    mica_error err;
    mica_model_info info;
    mica_load_options o = {.path = "tests/fixtures/qwen3.q4_k_m.gguf", .text_only = true};
    if (mica_model_load(&model, &o, &err) != MICA_OK) return -1;
    mica_model_get_info(model, &info);
    return info.think_begin && strcmp(info.think_begin, "<think>") == 0 ? 0 : -1;
}

static int unload(void **state) {
    (void)state;
    mica_model_free(model);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_thinking_is_told_apart),
        cmocka_unit_test(test_nothing_of_a_stop_string_is_given),
        cmocka_unit_test(test_random_stops_equal_the_definition),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
