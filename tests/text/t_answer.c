/* Reading answers: every case as a whole, byte by byte, cut in two at every byte, and cut at random. What
 * comes out, joined, must be the same. */
#include "check.h"

#include "base/mem.h"
#include "base/str.h"
#include "text/answer.h"

static mica_error err;

/* Pieces as one line: T(thinking) text C0(name|arguments); neighbours of one kind are joined. */
typedef struct log {
    strbuf b;
    answer_kind last;
    bool any;
    int n_piece;
} log_;

static void on_piece(void *user, const answer_piece *p) {
    log_ *l = user;
    const bool of_call = p->kind == ANSWER_ARGS || p->kind == ANSWER_CALL_END;
    const bool in_call = l->any && (l->last == ANSWER_CALL || l->last == ANSWER_ARGS);
    CHECK((p->text.n > 0) == (p->kind != ANSWER_CALL && p->kind != ANSWER_CALL_END));
    CHECK(of_call == in_call); // a call is begun, told and ended, and nothing comes between
    bool joins = l->any && (of_call || (p->kind == l->last && p->kind != ANSWER_CALL));
    if (l->any && !joins) strbuf_putc(&l->b, '}');
    if (!joins)
        strbuf_puts(&l->b, p->kind == ANSWER_THINK ? "think{" : p->kind == ANSWER_TEXT ? "text{" : "call{");
    if (p->kind == ANSWER_CALL) strbuf_printf(&l->b, "%d %.*s ", p->index, (int)p->name.n, p->name.p);
    strbuf_put(&l->b, p->text.p, p->text.n);
    l->n_piece++;
    l->last = p->kind;
    l->any = true;
}

typedef struct reader {
    chat_format format;
    bool in_think;
    const json_t *tools;
} reader;

/* cuts: ascending offsets, ended by SIZE_MAX. */
static void read_cut(log_ *l, const reader *r, slice text, const size_t *cuts) {
    answer *a;
    answer_options opt = {
        .format = r->format, .in_think = r->in_think, .tools = r->tools, .fn = on_piece, .user = l};
    *l = (log_){0};
    CHECK_OK(answer_new(&a, &opt, &err));
    size_t at = 0;
    for (; *cuts != SIZE_MAX; cuts++) {
        CHECK_OK(answer_put(a, (slice){text.p + at, *cuts - at}, &err));
        at = *cuts;
    }
    CHECK_OK(answer_put(a, (slice){text.p + at, text.n - at}, &err));
    CHECK_OK(answer_end(a, &err));
    answer_free(a);
    if (l->any) strbuf_putc(&l->b, '}');
}

static void expect(const reader *r, slice text, const size_t *cuts, const char *want, int line) {
    log_ l;
    read_cut(&l, r, text, cuts);
    if (strcmp(strbuf_cstr(&l.b), want) != 0)
        check_failed("tests/text/t_answer.c", line, want, strbuf_cstr(&l.b));
    strbuf_fini(&l.b);
}

static void reads_(int line, const reader *r, const char *answer_text, const char *want) {
    slice text = slice_of(answer_text);
    size_t cut[2] = {0, SIZE_MAX}, all[4096];
    CHECK(text.n < 4096);
    expect(r, text, &cut[1], want, line);
    for (cut[0] = 0; cut[0] <= text.n; cut[0]++) expect(r, text, cut, want, line);
    for (size_t i = 0; i < text.n; i++) all[i] = i;
    all[text.n] = SIZE_MAX;
    expect(r, text, all, want, line);
    uint64_t seed = 88172645463325252ull;
    for (int k = 0; k < 20; k++) {
        size_t n = 0;
        for (size_t i = 0; i < text.n; i++)
            if (test_rand(&seed) % 5 == 0) all[n++] = i;
        all[n] = SIZE_MAX;
        expect(r, text, all, want, line);
    }
}
#define READS(r, text, want) reads_(__LINE__, r, text, want)

static json_t *tools(void) {
    return json_loads(
        "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\","
        "\"properties\":{"
        "\"s\":{\"type\":\"string\"},\"n\":{\"type\":\"integer\"},\"o\":{\"type\":\"object\"}}}}}]",
        0, NULL);
}

static void test_text_alone(void **state) {
    (void)state;
    reader r = {.format = {CHAT_PLAIN, NULL, NULL}};
    READS(&r, "", "");
    READS(&r, "  Hi <tool_call> \n", "text{  Hi <tool_call> \n}");
    r.format = (chat_format){CHAT_HERMES, "<think>", "</think>"}; // no tools: nothing is a call
    READS(&r, "Hi\n<tool_call>\n{\"name\": \"f\"}\n</tool_call> ",
          "text{Hi\n<tool_call>\n{\"name\": \"f\"}\n</tool_call> }");
    READS(&r, "\n \n", "text{\n \n}");
    READS(&r, "<thin", "text{<thin}");
    READS(&r, "a <think> b </think>", "text{a <think> b </think>}");
    char blanks[400];
    memset(blanks, ' ', sizeof blanks - 1);
    blanks[sizeof blanks - 1] = 0;
    char want[420];
    snprintf(want, sizeof want, "text{%s}", blanks);
    READS(&r, blanks, want);
}

static void test_thinking(void **state) {
    (void)state;
    reader r = {.format = {CHAT_HERMES, "<think>", "</think>"}};
    READS(&r, "<think>\nso\n it \xc3\xa9\n</think>\n\nHi\n", "think{so\n it \xc3\xa9}text{Hi\n}");
    READS(&r, "\n<think></think>Hi", "text{Hi}");
    READS(&r, "<think>\n\n</think>\n\n", "");
    READS(&r, "<think> cut off </thin", "think{ cut off </thin}");
    READS(&r, "<think>a</think><think>b</think>c", "think{ab}text{c}");
    r.in_think = true;
    READS(&r, "so</think>Hi </think>", "think{so}text{Hi </think>}");
    READS(&r, "\nso < /think> </thinker </think> Hi", "think{so < /think> </thinker}text{Hi}");
    READS(&r, "<think>again</think>x", "think{<think>again}text{x}");
    r = (reader){.format = {CHAT_GEMMA4, "<|channel>thought\n", "<channel|>"}};
    READS(&r, "<|channel>thought\nso\n<channel|>Hi", "think{so}text{Hi}");
    READS(&r, "<|channel>final", "text{<|channel>final}");
}

static void test_hermes_calls(void **state) {
    (void)state;
    json_t *t = tools();
    reader r = {.format = {CHAT_HERMES, "<think>", "</think>"}, .tools = t};
    READS(&r, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\": \"x\", \"n\": 0.10}}\n</tool_call>",
          "call{0 f {\"s\": \"x\", \"n\": 0.10}}");
    READS(&r,
          "<think>\nso\n</think>\n\nLet me.\n\n<tool_call>\n{\"arguments\": {}, \"name\": "
          "\"f\"}\n</tool_call>\n<tool_call>\n"
          "{\"name\":\"g\"}\n</tool_call>\n done ",
          "think{so}text{Let me.}call{0 f {}}call{1 g {}}text{done }");
    READS(&r, "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": [1, \\\"}\\\"]}\"}</tool_call>",
          "call{0 f {\"a\": [1, \"}\"]}}");
    READS(&r, "<tool_call>{\"name\": \"f\", \"parameters\": {\"s\": \"</tool_call> \\\" {\"}}</tool_call>",
          "call{0 f {\"s\": \"</tool_call> \\\" {\"}}");
    READS(&r, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}",
          "call{0 f {\"a\": 1}}"); // the end is missing
    READS(&r, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1, }}</tool_call> y",
          "call{0 f {\"a\": 1, }}text{y}"); // known for a call before it broke
    READS(&r, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"</tool_", "call{0 f {\"a\": \"</tool_}");
    const char *const none[] = {
        "x \n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": }}\n</tool_call> y ",
        "<tool_call>\n{\"arguments\": {}}\n</tool_call>",
        "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>",
        "<tool_call>{\"name\": 5}</tool_call>",
        "a <tool_call>{\"name\": \"f\", \"argum",
        "a <tool_c",
        "a <tool_call>",
        "a\n\n<tool_call> </tool_call>\n"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) { // what is no call is text, byte for byte
        char want[256];
        snprintf(want, sizeof want, "text{%s}", none[i]);
        READS(&r, none[i], want);
    }
    json_decref(t);
}

static void test_xml_calls(void **state) {
    (void)state;
    json_t *t = tools();
    reader r = {.format = {CHAT_QWEN_XML, "<think>", "</think>"}, .tools = t};
    READS(&r,
          "ok\n<tool_call>\n<function=f>\n<parameter=s>\n5\n</parameter>\n<parameter=n>\n5\n</"
          "parameter>\n<parameter=o>\n"
          "{\"a\": [1.50]}\n</parameter>\n<parameter=free>\nTrue\n</parameter>\n</function>\n</tool_call>\n",
          "text{ok}call{0 f {\"s\": \"5\", \"n\": 5, \"o\": {\"a\": [1.50]}, \"free\": true}}");
    READS(&r,
          "<tool_call>\n<function=f>\n<parameter=s>\n\nline 1\n \"q\" \\ \t</parameter> in "
          "it\n</tool_call>\n\n</parameter>\n</function>\n"
          "</tool_call>",
          "call{0 f {\"s\": \"\\nline 1\\n \\\"q\\\" \\\\ \\t</parameter> in it\\n</tool_call>\\n\"}}");
    READS(&r, "<tool_call>\n<function=g>\n</function>\n</tool_call>", "call{0 g {}}");
    READS(&r,
          "<tool_call>\n<function=g>\n<parameter=x>\nnot "
          "json\n</parameter>\n<parameter=y>\nNone\n</parameter></function></tool_call>",
          "call{0 g {\"x\": \"not json\", \"y\": null}}");
    READS(&r, "<tool_call>\n<function=g>\n<parameter=x>\n1\n</parameter>\n</function>",
          "call{0 g {\"x\": 1}}");
    const char *twice = "<tool_call>\n<function=g>\n<parameter=x>\n1\n</parameter>\n<parameter=x>\n2\n</"
                        "parameter>\n</function>\n"
                        "</tool_call>";
    READS(&r, twice, "call{0 g {\"x\": 1}"); // no JSON object has a key twice: it breaks there
    READS(&r, "<tool_call>\n<fun>\n</tool_call> x", "text{<tool_call>\n<fun>\n</tool_call> x}");
    READS(&r, "<tool_call>\n<function=>\n</function></tool_call>",
          "text{<tool_call>\n<function=>\n</function></tool_call>}");
    json_decref(t);
}

static void test_gemma_calls(void **state) {
    (void)state;
    json_t *t = tools();
    reader r = {.format = {CHAT_GEMMA4, "<|channel>thought\n", "<channel|>"}, .tools = t};
    READS(&r,
          "<|channel>thought\nso<channel|><|tool_call>call:f{s:<|\"|>a, {b} \"q\" "
          "<tool_call|><|\"|>,n:-1.5e3,o:{<|\"|>k y<|\"|>:[1,true,"
          "<|\"|>x<|\"|>,{}],z:none},p:None}<tool_call|>",
          "think{so}call{0 f {\"s\": \"a, {b} \\\"q\\\" <tool_call|>\", \"n\": -1.5e3, \"o\": {\"k y\": [1, "
          "true, \"x\", {}], \"z\": \"none\"}, "
          "\"p\": null}}");
    READS(&r, "<|tool_call>call:f{}<tool_call|><|tool_call>call:g{a:[ ]}<tool_call|>",
          "call{0 f {}}call{1 g {\"a\": []}}");
    READS(&r, "Hi <|tool_call>call:f{s}<tool_call|>", "text{Hi <|tool_call>call:f{s}<tool_call|>}");
    READS(&r, "<|tool_call>call:f{s:<|\"|>open<tool_call|>",
          "text{<|tool_call>call:f{s:<|\"|>open<tool_call|>}");
    json_decref(t);
}

static void test_llama_calls(void **state) {
    (void)state;
    json_t *t = tools();
    reader r = {.format = {CHAT_LLAMA3, NULL, NULL}, .tools = t};
    READS(&r, "{\"name\": \"f\", \"parameters\": {\"s\": \"}\"}}", "call{0 f {\"s\": \"}\"}}");
    READS(
        &r,
        "<|python_tag|>{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", \"arguments\": {\"a\": 1}}\n",
        "call{0 f {}}call{1 g {\"a\": 1}}");
    READS(&r, " {\"name\": \"f\"} and more", "text{ {\"name\": \"f\"} and more}");
    READS(&r, "{\"nam", "text{{\"nam}");
    READS(&r, "[1, 2]", "text{[1, 2]}");
    READS(&r, "It is {\"name\": \"f\"}", "text{It is {\"name\": \"f\"}}");
    r.tools = NULL;
    READS(&r, "{\"name\": \"f\", \"parameters\": {}}", "text{{\"name\": \"f\", \"parameters\": {}}}");
    json_decref(t);
}

/* Arguments come while they are written. */
static void test_calls_come_in_pieces(void **state) {
    (void)state;
    json_t *t = tools();
    answer *a;
    log_ l = {0};
    answer_options o = {.format = {CHAT_HERMES, NULL, NULL}, .tools = t, .fn = on_piece, .user = &l};
    CHECK_OK(answer_new(&a, &o, &err));
    CHECK_OK(answer_put(a, SLICE_LIT("<tool_call>{\"name\": \"f\", \"arguments\": {\"s\":"), &err));
    CHECK(l.n_piece == 0);
    CHECK_OK(answer_put(a, SLICE_LIT(" \"ab"), &err));
    CHECK(strcmp(l.b.p, "call{0 f {\"s\": \"ab") == 0);
    CHECK_OK(answer_put(a, SLICE_LIT("cd"), &err));
    CHECK(strcmp(l.b.p, "call{0 f {\"s\": \"abcd") == 0 && l.n_piece == 3);
    CHECK_OK(answer_put(a, SLICE_LIT("\"}}</tool_call>"), &err));
    CHECK(strcmp(l.b.p, "call{0 f {\"s\": \"abcd\"}") == 0 && l.last == ANSWER_CALL_END);
    answer_free(a);
    strbuf_fini(&l.b);
    l = (log_){0};
    o.format.family = CHAT_QWEN_XML;
    CHECK_OK(answer_new(&a, &o, &err));
    CHECK_OK(answer_put(a, SLICE_LIT("<tool_call>\n<function=f>\n<parameter=n>\n5\n</parameter>\n"), &err));
    CHECK(l.n_piece == 0);
    CHECK_OK(answer_put(a, SLICE_LIT("<parameter=s>\nab"), &err));
    CHECK(strcmp(l.b.p, "call{0 f {\"n\": 5") == 0);
    CHECK_OK(answer_put(a, SLICE_LIT("\n</parameter>\n</function>"), &err));
    CHECK(strcmp(l.b.p, "call{0 f {\"n\": 5, \"s\": \"ab\"") == 0);
    CHECK_OK(answer_put(a, SLICE_LIT("\n</tool_call>"), &err));
    CHECK(strcmp(l.b.p, "call{0 f {\"n\": 5, \"s\": \"ab\"}") == 0 && l.last == ANSWER_CALL_END);
    answer_free(a);
    strbuf_fini(&l.b);
    json_decref(t);
}

static void join(void *user, const answer_piece *p) {
    strbuf_put(user, p->text.p, p->text.n);
}

/* With the marks, and without calls, the pieces are the text. */
static void test_marks_make_it_whole(void **state) {
    (void)state;
    static const char *const texts[] = {"\n<think>\nOne.\n\nTwo.\n </think>\n\nHi\n",
                                        "<think>cut \n",
                                        "<think></think> <think>b</think>\n\n",
                                        "  Hi <think> no",
                                        "a\n</think>\n\nb",
                                        "\n\n",
                                        "<thi"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        for (size_t cut = 1; cut < 12; cut++) {
            strbuf b = {0};
            answer *a;
            answer_options o = {.format = {CHAT_HERMES, "<think>", "</think>"},
                                .in_think = i == 4,
                                .marks = true,
                                .fn = join,
                                .user = &b};
            CHECK_OK(answer_new(&a, &o, &err));
            const slice text = slice_of(texts[i]);
            for (size_t at = 0; at < text.n; at += cut)
                CHECK_OK(answer_put(a, (slice){text.p + at, text.n - at < cut ? text.n - at : cut}, &err));
            CHECK_OK(answer_end(a, &err));
            answer_free(a);
            if (strcmp(strbuf_cstr(&b), texts[i]) != 0)
                check_failed(__FILE__, __LINE__, texts[i], strbuf_cstr(&b));
            strbuf_fini(&b);
        }
    }
}

static void test_nothing_is_held_without_need(void **state) {
    (void)state;
    json_t *t = tools();
    log_ l = {0};
    answer *a;
    answer_options opt = {
        .format = {CHAT_HERMES, "<think>", "</think>"}, .tools = t, .fn = on_piece, .user = &l};
    CHECK_OK(answer_new(&a, &opt, &err));
    CHECK_OK(answer_put(a, SLICE_LIT("Hello"), &err));
    assert_string_equal(strbuf_cstr(&l.b), "text{Hello");
    CHECK_OK(answer_put(a, SLICE_LIT(" <b> there <to"), &err));
    assert_string_equal(strbuf_cstr(&l.b), "text{Hello <b> there");
    CHECK_OK(answer_put(a, SLICE_LIT("y>"), &err));
    assert_string_equal(strbuf_cstr(&l.b), "text{Hello <b> there <toy>");
    answer_free(a);
    strbuf_fini(&l.b);
    json_decref(t);
}

static void test_long_answers_and_memory(void **state) {
    (void)state;
    json_t *t = tools();
    log_ l = {0};
    answer *a;
    answer_options opt = {
        .format = {CHAT_HERMES, "<think>", "</think>"}, .tools = t, .fn = on_piece, .user = &l};
    CHECK_OK(answer_new(&a, &opt, &err));
    for (int i = 0; i < 100000; i++) CHECK_OK(answer_put(a, SLICE_LIT("ab \n"), &err));
    CHECK_OK(answer_put(a, SLICE_LIT("<tool_call>{\"name\": \"f\", \"arguments\": {\"s\": \""), &err));
    for (int i = 0; i < 100000; i++) CHECK_OK(answer_put(a, SLICE_LIT("xyz "), &err));
    CHECK_OK(answer_put(a, SLICE_LIT("\"}}</tool_call>"), &err));
    CHECK_OK(answer_end(a, &err));
    CHECK(l.last == ANSWER_CALL_END && l.b.n > 800000 - 10);
    answer_free(a);
    strbuf_fini(&l.b);
    answer_free(NULL);
    for (int n = 0; n < 6; n++) {
        l = (log_){0};
        strbuf_puts(&l.b, "room for the log itself"); // so that only the answer can fail
        mem_fail_after(n);
        mica_status st = answer_new(&a, &opt, &err);
        if (st == MICA_OK) st = answer_put(a, SLICE_LIT("<tool_call>{\"name\": \"f\"}</tool_call>"), &err);
        mem_fail_after(-1);
        CHECK(st == MICA_OK || st == MICA_E_NOMEM);
        CHECK(n || st == MICA_E_NOMEM);
        answer_free(a);
        strbuf_fini(&l.b);
    }
    json_decref(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_alone),
        cmocka_unit_test(test_thinking),
        cmocka_unit_test(test_hermes_calls),
        cmocka_unit_test(test_xml_calls),
        cmocka_unit_test(test_gemma_calls),
        cmocka_unit_test(test_llama_calls),
        cmocka_unit_test(test_calls_come_in_pieces),
        cmocka_unit_test(test_marks_make_it_whole),
        cmocka_unit_test(test_nothing_is_held_without_need),
        cmocka_unit_test(test_long_answers_and_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
