/* Pre-tokenizers: the pieces of strings chosen at the patterns' edges, written out by hand from the published
 * patterns, and what holds for all of them. vocab_oracle.py compares whole tokenizers. */
#include "check.h"

#include "text/pretok.h"

#include "base/mem.h"

#include <time.h>

static const char *const names[] = {"default", "gpt-2",  "smollm",         "llama-bpe",
                                    "qwen2",   "qwen35", "gemma4",         "tekken",
                                    "gpt-4o",  "falcon", "deepseek-coder", "deepseek-v3"};
enum { N_NAME = sizeof names / sizeof *names };

static mica_status collect(void *arg, slice piece, mica_error *err) {
    (void)err;
    strbuf *b = arg;
    strbuf_put(b, piece.p, piece.n);
    strbuf_putc(b, '|');
    return MICA_OK;
}

typedef struct splitter {
    text_pretok *p;
    text_pretok_info info;
    text_pretok_run *run;
} splitter;

static splitter open_split(const char *name) {
    mica_error err;
    splitter s;
    CHECK_OK(text_pretok_new(&s.p, slice_of(name), &s.info, &err));
    CHECK_OK(text_pretok_run_new(&s.run, s.p, &err));
    return s;
}

static void close_split(splitter *s) {
    text_pretok_run_free(s->run);
    text_pretok_free(s->p);
}

/* want: the pieces, each followed by a bar. */
static void check_pieces(const char *name, const char *text, const char *want) {
    mica_error err;
    strbuf b = {0};
    splitter s = open_split(name);
    CHECK_OK(text_pretok_split(s.run, slice_of(text), collect, &b, &err));
    assert_string_equal(strbuf_cstr(&b), want);
    strbuf_fini(&b);
    close_split(&s);
}

static void test_pieces_of_each_split(void **state) {
    (void)state;
    check_pieces("gpt-2", "I'm we'LL 12ab  x\n y", "I|'m| we|'|LL| 12|ab| | x|\n| y|");
    check_pieces("smollm", "a 123 b", "a| |1|2|3| b|");
    check_pieces("smollm", "x\n\ny", "x|\n|\n|y|");
    check_pieces("qwen2", "a1234 b", "a|1|2|3|4| b|");
    check_pieces("llama-bpe", "a1234567 b", "a|123|456|7| b|");
    check_pieces("qwen2", "WE'LL (ok)->x", "WE|'LL| (|ok|)->|x|");
    check_pieces("qwen2", "x \n\n  y  ", "x| \n\n| | y|  |");
    check_pieces("qwen2", "..\r\n\tz", "..\r\n|\tz|");
    // A combining mark is no letter for qwen2 and one for qwen35.
    check_pieces("qwen2", "e\xCC\x81x", "e|\xCC\x81x|");
    check_pieces("qwen35", "e\xCC\x81x", "e\xCC\x81x|");
    check_pieces("gemma4", "a b\n\nc", "a b|\n\n|c|");
    check_pieces("default", "ab, 1234", "ab|,| |123|4|");
    check_pieces("gpt-4o", "helloWorld's HTTPServer", "hello|World's| HTTPServer|");
    check_pieces("tekken", "helloWorld's", "hello|World|'s|");
    check_pieces("falcon", "a`b 12345", "a|`|b| |123|45|");
    check_pieces("deepseek-v3", "x\xE4\xBD\xA0\xE5\xA5\xBD!ab 1234",
                 "x|\xE4\xBD\xA0\xE5\xA5\xBD|!ab| |123|4|");
    check_pieces("deepseek-coder", "a\nb 12!", "a|\n|b| |1|2|!|");
}

static void test_white_space_is_unicodes(void **state) {
    (void)state;
    // U+0085 and U+3000 are white space, U+180E and U+200B are not.
    check_pieces("qwen2", "\xC2\x85\xC2\x85x", "\xC2\x85|\xC2\x85x|");
    check_pieces("qwen2", "\xE3\x80\x80\xE3\x80\x80x", "\xE3\x80\x80|\xE3\x80\x80x|");
    check_pieces("qwen2", "\xE1\xA0\x8E\xE1\xA0\x8E.", "\xE1\xA0\x8E\xE1\xA0\x8E.|");
    check_pieces("qwen2", "\xE2\x80\x8B\xE2\x80\x8B.", "\xE2\x80\x8B\xE2\x80\x8B.|");
}

static void test_contractions_fold_case_as_published(void **state) {
    (void)state;
    check_pieces("qwen2", "x'\xC5\xBFy", "x|'\xC5\xBF|y|"); // U+017F folds to s
    check_pieces("gpt-2", "x'Sy", "x|'|Sy|");
}

static void test_names_of_files_share_splits(void **state) {
    (void)state;
    static const struct {
        const char *name, *split;
        bool known, ignore_merges, add_bos;
    } want[] = {
        {"llama3", "llama-bpe", true, true, true},   {"Llama-3", "llama-bpe", true, true, true},
        {"dbrx", "llama-bpe", true, false, false},   {"deepseek-r1-qwen", "qwen2", true, false, false},
        {"command-r", "smollm", true, false, false}, {"qwen35", "qwen35", true, false, false},
        {"mpt", "gpt-2", true, false, false},        {"", "default", false, false, false},
        {"no-such", "default", false, false, false}, {"default", "default", true, false, false},
    };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        splitter s = open_split(want[i].name);
        assert_string_equal(s.info.name, want[i].split);
        CHECK(s.info.known == want[i].known && s.info.ignore_merges == want[i].ignore_merges);
        CHECK(s.info.add_bos == want[i].add_bos);
        close_split(&s);
    }
}

static mica_status join(void *arg, slice piece, mica_error *err) {
    (void)err;
    CHECK(piece.n > 0);
    strbuf_put(arg, piece.p, piece.n);
    return MICA_OK;
}

static void test_pieces_together_are_the_text(void **state) {
    (void)state;
    uint64_t seed = 77;
    mica_error err;
    static const unsigned points[] = {'a',     'Z',    '1',      ' ',   '\n',  '\r',   '\t',   '\'',   's',
                                      '.',     '_',    0,        0x301, 0xA0,  0x2028, 0x3042, 0x4E00, 0xAC00,
                                      0x1F600, 0x200D, 0x10FFFF, 0x378, 0x663, '`',    '~',    '$'};
    for (int i = 0; i < N_NAME; i++) {
        splitter s = open_split(names[i]);
        for (int k = 0; k < 500; k++) {
            strbuf text = {0}, joined = {0};
            for (uint64_t n = test_rand(&seed) % 40; n > 0; n--) {
                char c[4];
                int len = utf8_put(c, points[test_rand(&seed) % (sizeof points / sizeof *points)]);
                strbuf_put(&text, c, (size_t)len);
            }
            slice t = {strbuf_cstr(&text), text.n};
            CHECK_OK(text_pretok_split(s.run, t, join, &joined, &err));
            CHECK(slice_eq(t, (slice){strbuf_cstr(&joined), joined.n}));
            strbuf_fini(&text);
            strbuf_fini(&joined);
        }
        close_split(&s);
    }
}

static mica_status count(void *arg, slice piece, mica_error *err) {
    (void)piece;
    (void)err;
    ++*(size_t *)arg;
    return MICA_OK;
}

static double cpu_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* Every split on every kind of run. 100,000 units take up to 50 ms of this processor; a quadratic pattern
 * would take minutes (or meet the match limit), so that two seconds tell them apart on any machine. */
static void test_runs_take_linear_time(void **state) {
    (void)state;
    static const char *const units[] = {
        "a",   "A",  "1", " ",        "\n",    "\t", ".", "\xE3\x80\x80", "\xCC\x81", "\xE4\xB8\x80",
        " \n", "aB", "'", "\xC2\x85", "\r\n ", "$ "};
    mica_error err;
    for (int i = 0; i < N_NAME; i++) {
        splitter s = open_split(names[i]);
        for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
            strbuf text = {0};
            for (int n = 0; n < 100000; n++) strbuf_puts(&text, units[u]);
            strbuf_puts(&text, "x.");
            size_t n_piece = 0;
            double start = cpu_ms();
            CHECK_OK(text_pretok_split(s.run, (slice){text.p, text.n}, count, &n_piece, &err));
            CHECK(n_piece > 0 && cpu_ms() - start < 2000);
            strbuf_fini(&text);
        }
        close_split(&s);
    }
}

static mica_status refuse(void *arg, slice piece, mica_error *err) {
    (void)piece;
    return --*(int *)arg > 0 ? MICA_OK : fail(err, MICA_E_CANCELLED, "enough");
}

static void test_failures_come_through(void **state) {
    (void)state;
    mica_error err;
    splitter s = open_split("default");
    int left = 3;
    CHECK(text_pretok_split(s.run, SLICE_LIT("a, b, c, d"), refuse, &left, &err) == MICA_E_CANCELLED);
    CHECK(left == 0);
    close_split(&s);
    bool done = false;
    for (int64_t n = 0; !done; n++) { // every allocation fails once
        text_pretok *p;
        text_pretok_info info;
        text_pretok_run *run = NULL;
        mem_fail_after(n);
        mica_status st = text_pretok_new(&p, SLICE_LIT("smollm"), &info, &err);
        if (st == MICA_OK) st = text_pretok_run_new(&run, p, &err);
        mem_fail_after(-1);
        CHECK(st == MICA_OK || st == MICA_E_NOMEM);
        done = st == MICA_OK;
        text_pretok_run_free(run);
        text_pretok_free(p);
        CHECK(n < 1000);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces_of_each_split),
        cmocka_unit_test(test_white_space_is_unicodes),
        cmocka_unit_test(test_contractions_fold_case_as_published),
        cmocka_unit_test(test_names_of_files_share_splits),
        cmocka_unit_test(test_pieces_together_are_the_text),
        cmocka_unit_test(test_runs_take_linear_time),
        cmocka_unit_test(test_failures_come_through),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
