/* Calls that grammars make are calls that answer.h reads: random walks through the grammar of every family,
 * with and without thinking before, forced and free, read back; what a call must hold is there. */
#include "check.h"

#include "base/mem.h"
#include "text/answer.h"
#include "text/grammar.h"
#include "vocab_small.h"

static mica_error err;

enum { TOK_THINK = 256, TOK_THINK_END, TOK_CALL, TOK_CALL_END, TOK_QUOTE, TOK_END };

/* Bytes and marks; control: the marks are control tokens, as some files have them. */
static text_vocab *vocab_new(bool control, bool gemma) {
    static small_vocab s; // large
    text_vocab *v;
    const int32_t type = control ? TEXT_TYPE_CONTROL : TEXT_TYPE_USER;
    small_init(&s, "gpt2", "gpt-2");
    small_bytes(&s);
    small_add(&s, gemma ? "<|channel>" : "<think>", type, 0);
    small_add(&s, gemma ? "<channel|>" : "</think>", type, 0);
    small_add(&s, gemma ? "<|tool_call>" : "<tool_call>", type, 0);
    small_add(&s, gemma ? "<tool_call|>" : "</tool_call>", type, 0);
    small_add(&s, "<|\"|>", type, 0);
    s.d.special[TEXT_EOS] = small_add(&s, "<end>", TEXT_TYPE_CONTROL, 0);
    CHECK_OK(text_vocab_build(&v, &s.d, &err));
    return v;
}

static json_t *tools(void) {
    json_t *t = json_loads(
        "[{\"type\":\"function\",\"function\":{\"name\":\"find\",\"parameters\":{\"type\":\"object\","
        "\"properties\":{\"what\":{\"type\":\"string\"},\"many\":{\"type\":\"integer\",\"minimum\":1},"
        "\"how\":{\"enum\":[\"fast\",\"well\"],\"type\":\"string\"},"
        "\"tags\":{\"type\":\"array\",\"items\":{\"type\":\"string\",\"pattern\":\"^(?!x)y\"},\"maxItems\":2}"
        "},"
        "\"required\":[\"what\",\"how\"]}}},"
        "{\"name\":\"stop\",\"parameters\":{\"type\":\"object\",\"properties\":{}}},"
        "{\"type\":\"function\",\"function\":{\"name\":\"odd\",\"parameters\":{\"$ref\":\"#/nowhere\"}}}]",
        0, NULL);
    CHECK(t);
    return t;
}

static bool bit(const uint8_t *bits, int32_t id) {
    return bits[id >> 3] >> (id & 7) & 1;
}

/* A token that may come; marks and what closes are drawn more often. */
static int32_t draw(const uint8_t *bits, uint64_t *seed) {
    int32_t all[512], some[512];
    size_t n = 0, n_some = 0;
    for (int32_t id = 0; id <= TOK_END; id++) {
        if (!bit(bits, id)) continue;
        all[n++] = id;
        if (id >= 256 || (id && strchr("\"}]<{", id))) some[n_some++] = id;
    }
    CHECK(n > 0);
    if (n_some && test_rand(seed) % 3 == 0) return some[test_rand(seed) % n_some];
    return all[test_rand(seed) % n];
}

static bool walk(strbuf *out, grammar *g, const text_vocab *v, uint64_t *seed) {
    uint8_t bits[64];
    strbuf_clear(out);
    grammar_reset(g);
    while (out->n < 3000) {
        CHECK_OK(grammar_mask(g, bits, &err));
        CHECK(bit(bits, TOK_END) == grammar_may_end(g));
        if (bit(bits, TOK_END) && test_rand(seed) % 4 == 0) return true;
        const int32_t id = draw(bits, seed);
        CHECK_OK(grammar_accept(g, id, &err));
        if (id == TOK_END) return true;
        const slice s = text_vocab_bytes(v, id);
        strbuf_put(out, s.p, s.n);
    }
    return false;
}

typedef struct seen {
    int n_call, n_text, n_think;
    const char *only;
    strbuf name, arguments; // of the call at hand
} seen;

static void on_piece(void *user, const answer_piece *p) {
    seen *s = user;
    s->n_text += p->kind == ANSWER_TEXT;
    s->n_think += p->kind == ANSWER_THINK;
    if (p->kind == ANSWER_CALL) {
        strbuf_clear(&s->name);
        strbuf_clear(&s->arguments);
        strbuf_put(&s->name, p->name.p, p->name.n);
    }
    if (p->kind == ANSWER_ARGS) strbuf_put(&s->arguments, p->text.p, p->text.n);
    if (p->kind != ANSWER_CALL_END) return;
    json_t *a = json_loadb(s->arguments.p, s->arguments.n, JSON_ALLOW_NUL, NULL);
    const slice name = {s->name.p, s->name.n};
    CHECK(json_is_object(a));
    s->n_call++;
    if (s->only) CHECK(slice_is(name, s->only));
    if (slice_is(name, "stop")) CHECK(json_object_size(a) == 0);
    if (slice_is(name, "find")) {
        const char *how = json_string_value(json_object_get(a, "how"));
        CHECK(json_is_string(json_object_get(a, "what")));
        CHECK(how && (!strcmp(how, "fast") || !strcmp(how, "well")));
        const json_t *many = json_object_get(a, "many"), *tags = json_object_get(a, "tags");
        CHECK(!many || (json_is_integer(many) && json_integer_value(many) >= 1));
        CHECK(!tags || (json_is_array(tags) && json_array_size(tags) <= 2));
    }
    json_decref(a);
}

static void read_back(seen *s, const chat_format *f, chat_thinking thinking, const json_t *t, slice text) {
    answer *a;
    answer_options o = {
        .format = *f, .in_think = thinking == CHAT_THINK_INSIDE, .tools = t, .fn = on_piece, .user = s};
    CHECK_OK(answer_new(&a, &o, &err));
    CHECK_OK(answer_put(a, text, &err));
    CHECK_OK(answer_end(a, &err));
    answer_free(a);
    strbuf_fini(&s->name);
    strbuf_fini(&s->arguments);
}

static void walks(chat_family family, const text_vocab *v, bool with_optional) {
    const bool gemma = family == CHAT_GEMMA4;
    chat_format f = {family, gemma ? "<|channel>thought\n" : "<think>", gemma ? "<channel|>" : "</think>"};
    uint64_t seed = 99 + (uint64_t)family;
    json_t *t = tools();
    strbuf b = {0};
    int n_whole = 0, n_call = 0, n_think = 0, n_text = 0;
    for (int round = 0; round < 36; round++) {
        grammar *g;
        grammar_tools o = {.tools = t,
                           .only = round % 4 == 0 ? "find" : NULL,
                           .optional = with_optional && round % 2,
                           .single = round % 6 < 3,
                           .start = {&f, (chat_thinking)(round % 3)}};
        CHECK_OK(grammar_new_tools(&g, v, &o, &err));
        for (int i = 0; i < 6; i++) {
            seen s = {.only = o.only};
            if (!walk(&b, g, v, &seed)) continue;
            n_whole++;
            read_back(&s, &f, o.start.thinking, t, (slice){b.p, b.n});
            if (!o.optional && (s.n_call < 1 || s.n_text))
                check_failed(__FILE__, __LINE__, "calls alone", b.p);
            if (o.single && s.n_call > 1) check_failed(__FILE__, __LINE__, "one call", b.p);
            n_call += s.n_call;
            n_text += s.n_text > 0;
            n_think += s.n_think > 0;
        }
        grammar_free(g);
    }
    printf("family %d: %d answers, %d calls, %d with text, %d with thinking\n", (int)family, n_whole, n_call,
           n_text, n_think);
    CHECK(n_whole > 50 && n_call > 30 && n_think > 5);
    strbuf_fini(&b);
    json_decref(t);
}

static void test_every_family(void **state) {
    (void)state;
    for (int control = 0; control < 2; control++) {
        text_vocab *v = vocab_new(control, false), *gemma = vocab_new(control, true);
        walks(CHAT_HERMES, v, true);
        walks(CHAT_QWEN_XML, v, true);
        walks(CHAT_LLAMA3, v, true);
        walks(CHAT_GEMMA4, gemma, true);
        text_vocab_free(v);
        text_vocab_free(gemma);
    }
}

static int feed(grammar *g, const char *text) {
    grammar_reset(g);
    for (const char *p = text; *p; p++)
        if (grammar_accept(g, (uint8_t)*p, &err) != MICA_OK) return 0;
    return grammar_may_end(g) ? 2 : 1;
}

/* A free answer is free until the mark, however often the mark only seems to begin; behind it it is not. */
static void test_lazy(void **state) {
    (void)state;
    text_vocab *v = vocab_new(false, false);
    json_t *t = tools();
    grammar *g;
    chat_format f = {CHAT_HERMES, NULL, NULL};
    CHECK_OK(grammar_new_tools(&g, v, &(grammar_tools){.tools = t, .optional = true, .start = {.format = &f}},
                               &err));
    CHECK(feed(g, "") == 2);
    CHECK(feed(g, "a <tool_ca <tool_<tool_cal") == 2);
    CHECK(feed(g, "a <tool_call>") == 1);
    CHECK(feed(g, "a <tool_call>x") == 0);
    CHECK(feed(g, "a <tool_call>\n{\"name\": \"stop\", \"arguments\": {}}\n</tool_call>") == 2);
    CHECK(feed(g, "a <<tool_call>\n{\"name\": \"stop\", \"arguments\": {}}\n</tool_call> and more <") == 2);
    CHECK(feed(g, "<tool_call>{\"name\": \"other") == 0);
    uint8_t bits[64];
    grammar_reset(g);
    CHECK_OK(grammar_mask(g, bits, &err));
    for (int32_t id = 0; id <= TOK_END; id++) // all but bytes no character begins with
        CHECK(bit(bits, id) == (id < 0x80 || (id >= 0xC2 && id <= 0xF4) || id > 0xFF));
    CHECK_OK(grammar_accept(g, TOK_CALL, &err));
    CHECK_OK(grammar_mask(g, bits, &err));
    for (int32_t id = 0; id <= TOK_END; id++) CHECK(bit(bits, id) == (id == '{' || id == ' ' || id == '\n'));
    grammar_free(g);
    CHECK(grammar_new_tools(&g, v, &(grammar_tools){.tools = t, .only = "none", .start = {.format = &f}},
                            &err) == MICA_E_ARG);
    CHECK(strstr(err.text, "none is named none"));
    f.family = CHAT_PLAIN;
    CHECK(grammar_new_tools(&g, v, &(grammar_tools){.tools = t, .start = {.format = &f}}, &err) ==
          MICA_E_UNSUPPORTED);
    json_decref(t);
    text_vocab_free(v);
}

static void test_thinking_before_a_schema(void **state) {
    (void)state;
    text_vocab *v = vocab_new(true, false); // the marks are control tokens
    chat_format f = {CHAT_HERMES, "<think>", "</think>"};
    grammar *g;
    uint8_t bits[64];
    const slice schema = SLICE_LIT("{\"enum\": [\"odd\"]}");
    CHECK_OK(grammar_new_schema(&g, v, schema, false, (grammar_start){&f, CHAT_THINK_INSIDE}, &err));
    CHECK(feed(g, "\"odd\"") == 1); // it is still thought
    CHECK_OK(grammar_accept(g, TOK_THINK_END, &err));
    CHECK_OK(grammar_mask(g, bits, &err));
    for (int32_t id = 0; id <= TOK_END; id++) CHECK(bit(bits, id) == (id == '"' || id == ' ' || id == '\n'));
    grammar_free(g);
    CHECK_OK(grammar_new_schema(&g, v, schema, false, (grammar_start){&f, CHAT_THINK_MAY}, &err));
    CHECK(feed(g, "\"odd\"") == 2);
    grammar_reset(g);
    CHECK_OK(grammar_accept(g, TOK_THINK, &err));
    CHECK_OK(grammar_accept(g, 'x', &err));
    CHECK_OK(grammar_accept(g, TOK_CALL, &err)); // thoughts are free
    CHECK_OK(grammar_accept(g, TOK_THINK_END, &err));
    CHECK(grammar_accept(g, 'x', &err) == MICA_E_ARG);
    grammar_free(g);
    CHECK_OK(grammar_new_schema(&g, v, schema, false, (grammar_start){&f, CHAT_THINK_OVER}, &err));
    CHECK(grammar_accept(g, TOK_THINK, &err) == MICA_E_ARG);
    grammar_free(g);
    text_vocab_free(v);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_family), cmocka_unit_test(test_lazy),
                                       cmocka_unit_test(test_thinking_before_a_schema)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
