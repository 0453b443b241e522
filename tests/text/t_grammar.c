/* Grammars: what is refused and where, what is accepted, and random grammars against a matcher that is
 * nothing but recursion over the grammar's text: for every token of a small vocabulary, at every step of
 * random answers, the mask must be what the matcher says. */
#include "check.h"

#include "base/mem.h"
#include "text/grammar.h"
#include "text/grammar_int.h"
#include "vocab_small.h"

static mica_error err;

enum { TOK_CALL = 256, TOK_END, TOK_FIRST };

/* Bytes 0..255, a control token, an end, and pieces; "Ã©" spells the bytes of e acute for GPT-2. */
static text_vocab *vocab_new(const char *const *piece, size_t n) {
    static small_vocab s; // large
    text_vocab *v;
    small_init(&s, "gpt2", "gpt-2");
    small_bytes(&s);
    small_add(&s, "<call>", TEXT_TYPE_CONTROL, 0);
    s.d.special[TEXT_EOS] = small_add(&s, "<end>", TEXT_TYPE_CONTROL, 0);
    for (size_t i = 0; i < n; i++) small_text(&s, piece[i]);
    CHECK_OK(text_vocab_build(&v, &s.d, &err));
    return v;
}

static bool bit(const uint8_t *bits, int32_t id) {
    return bits[id >> 3] >> (id & 7) & 1;
}

/* ---- what is refused ---- */

static void refused(const text_vocab *v, const char *text, const char *why) {
    grammar *g;
    CHECK(grammar_new_gbnf(&g, v, slice_of(text), &err) == MICA_E_ARG);
    CHECK(g == NULL);
    if (!strstr(err.text, why)) check_failed(__FILE__, __LINE__, text, err.text);
}

static void test_refusals(void **state) {
    (void)state;
    text_vocab *v = vocab_new(NULL, 0);
    refused(v, "", "line 1 column 1: no rule 'root'");
    refused(v, "root ::= ", "rule 'root' is nothing but the empty text");
    refused(v, "root ::= x", "line 1 column 10: rule 'x' is defined nowhere");
    refused(v, "root ::= root", "line 1 column 1: rule 'root'");
    refused(v, "a ::= \"x\"", "no rule 'root'");
    refused(v, "root ::= (\"a\"*)*", "line 1 column 16: what is repeated without end may be empty");
    refused(v, "root ::= [z-a]", "line 1 column 11: a range that runs backwards");
    refused(v, "root ::= \"\\U00110000\"", "line 1 column 21: no code point");
    refused(v, "root ::= \"\\u{110000}\"", "line 1 column 13: a hexadecimal digit is missing");
    refused(v, "root ::= \"\\q\"", "line 1 column 12: an escape");
    refused(v, "root ::= \"a", "the text ends inside quotes");
    refused(v, "root ::= [a", "the text ends inside quotes");
    refused(v, "root ::= []", "line 1 column 10: an empty class");
    refused(v, "root ::= [\xED\xA0\x80]", "line 1 column 11: not UTF-8");
    refused(v, "root ::= (\"a\"", "')' is missing");
    refused(v, "root ::= \"a\")", "line 1 column 13: neither");
    refused(v, "root ::= *", "nothing stands before the repetition");
    refused(v, "root ::= \"a\"{3,2}", "at least more often than at most");
    refused(v, "root ::= \"a\"{,2}", "a number is missing");
    refused(v, "root ::= \"a\"{1", "'}' is missing");
    refused(v, "root ::= \"a\"{999999999999}", "the number is too large");
    refused(v, "root ::= \"a\"{60000}{60000}", "more than 262144 states");
    refused(v, "root = \"a\"", "'::=' is missing");
    refused(v, "root ::= \"a\"\nroot ::= \"b\"", "line 2 column 1: rule 'root' was defined on line 1");
    refused(v, "root ::= a \"b\"\n\na ::= \"b\"? root | \"c\"", "(left recursion)");
    refused(v, "root ::= a\na ::= b\nb ::= c \"x\"\nc ::= \"\" | a", "(left recursion)");
    refused(v, "root ::= \"a\" | x\nx ::= \"b\" x", "line 2 column 1: rule 'x' can never end");
    refused(v, "root ::= <nothing>", "line 1 column 10: the model has no such token");
    refused(v, "root ::= <[9999]>", "the model has no such token");
    refused(v, "root ::= !\"a\"", "'!' stands before a token only");
    strbuf b = {0};
    strbuf_puts(&b, "root ::= ");
    for (int i = 0; i < 60000; i++) strbuf_putc(&b, '(');
    refused(v, b.p, "groups nested too deep");
    strbuf_clear(&b);
    strbuf_puts(&b, "root ::= \"a\"");
    for (int i = 0; i < 1000; i++) strbuf_puts(&b, "?");
    refused(v, b.p, "nested deeper than 200");
    strbuf_clear(&b);
    while (b.n <= GRAM_MAX_TEXT) strbuf_puts(&b, "# nothing but a comment\n");
    refused(v, b.p, "more than 1048576");
    strbuf_clear(&b);
    for (int i = 0; i < 30000; i++) strbuf_printf(&b, "r%d ::= \"a\"\n", i);
    refused(v, b.p, "more than 20000 rules");
    strbuf_fini(&b);
    text_vocab_free(v);
}

/* ---- what is accepted ---- */

/* Feeds the bytes as byte tokens: 0 dead, 1 alive, 2 may end here. */
static int feed(grammar *g, const char *text) {
    grammar_reset(g);
    for (const char *p = text; *p; p++)
        if (grammar_accept(g, (uint8_t)*p, &err) != MICA_OK) return 0;
    return grammar_may_end(g) ? 2 : 1;
}

static void feeds(int line, const text_vocab *v, const char *text, const char *const *yes,
                  const char *const *no) {
    grammar *g;
    CHECK_OK(grammar_new_gbnf(&g, v, slice_of(text), &err));
    for (; *yes; yes++)
        if (feed(g, *yes) != 2) check_failed(__FILE__, line, "is whole", *yes);
    for (; *no; no++)
        if (feed(g, *no) == 2) check_failed(__FILE__, line, "is not whole", *no);
    grammar_free(g);
}
#define LIST(...) ((const char *const[]){__VA_ARGS__, NULL})
#define FEEDS(text, yes, no) feeds(__LINE__, v, text, yes, no)

static void test_dialect(void **state) {
    (void)state;
    text_vocab *v = vocab_new(NULL, 0);
    FEEDS("root ::= \"ab\"* \"c\"", LIST("c", "abc", "ababc"), LIST("", "ac", "abbc", "cc"));
    FEEDS("root ::= \"a\"{2,3} | [x-z]{2} | [^a-z]{2,}",
          LIST("aa", "aaa", "xz", "A1", "A1\xC3\xA9\xE2\x82\xAC"), LIST("a", "aaaa", "x", "xyz", "A", "1a"));
    FEEDS("root ::= \"\\x41\\u00e9\\U0001F600\\t\\n\\r\\\"\\\\\\[\\]\\-\"",
          LIST("A\xC3\xA9\xF0\x9F\x98\x80\t\n\r\"\\[]-"), LIST("A"));
    FEEDS("root ::= [a\\-z] [-a] [a-] [\\]] [a^]", LIST("--a]^", "za-]a"), LIST("ba-]a"));
    FEEDS("root ::= .{2}", LIST("ab", "\n\n", "\xC3\xA9\xF0\x9F\x98\x80"), LIST("a", "abc", "\xC3\xA9"));
    FEEDS("# c\nroot ::= ( # in\n  \"a\" |\n  b_1 # x\n)+\n# y\r\nb_1 ::=\r\n \"b\" |\n \"c\"\n\n",
          LIST("a", "bca"), LIST("", "d"));
    FEEDS("root ::= (\"a\" | \"b\" \"c\"?)? \"d\"", LIST("d", "ad", "bd", "bcd"), LIST("acd", "abd"));
    FEEDS("root ::= ws \"x\" ws\nws ::= | \" \" | \"\\n\" [ \\t]{0,2}", LIST("x", " x\n  ", "\nx"),
          LIST("  x", "\n   x"));
    FEEDS("root ::= \"(\" root \")\" | \"x\"", LIST("x", "((x))"), LIST("((x)", "(x))", "()"));
    FEEDS("root ::= \"a\" root | \"b\"", LIST("b", "aaaab"), LIST("a", "ba"));
    FEEDS("root ::= e \"=\" e\ne ::= t (\"+\" t)*\nt ::= [0-9]+ | \"(\" e \")\"", LIST("1=2", "(1+2)+3=4"),
          LIST("1+=2", "(1=2)"));
    // a surrogate is no character, whatever the class says
    FEEDS("root ::= [\xED\x9F\xBF-\xEE\x80\x80]", LIST("\xED\x9F\xBF", "\xEE\x80\x80"), LIST("\xED\xA0\x80"));
    FEEDS("root ::= [^a]", LIST("\xF4\x8F\xBF\xBF"),
          LIST("\xF4\x90\x80\x80", "\xC0\x80", "\xE0\x80\x80", "\xFF"));
    text_vocab_free(v);
}

static void test_tokens_by_name(void **state) {
    (void)state;
    text_vocab *v = vocab_new(LIST("ab", "b<"), 2);
    grammar *g;
    uint8_t bits[64];
    // the name spelled out may be the token
    CHECK_OK(grammar_new_gbnf(&g, v, SLICE_LIT("root ::= \"a<call>b\""), &err));
    CHECK_OK(grammar_accept(g, 'a', &err));
    CHECK_OK(grammar_mask(g, bits, &err));
    CHECK(bit(bits, TOK_CALL) && bit(bits, '<') && !bit(bits, 'b') && !bit(bits, TOK_END));
    CHECK_OK(grammar_accept(g, TOK_CALL, &err));
    CHECK_OK(grammar_accept(g, 'b', &err));
    CHECK(grammar_may_end(g));
    CHECK_OK(grammar_mask(g, bits, &err));
    CHECK(bit(bits, TOK_END) && !bit(bits, TOK_CALL) && !bit(bits, 'b'));
    CHECK_OK(grammar_accept(g, TOK_END, &err));
    CHECK(grammar_accept(g, 'b', &err) == MICA_E_ARG);
    CHECK_OK(grammar_mask(g, bits, &err));
    CHECK(bit(bits, TOK_END) && !bit(bits, 'b'));
    grammar_free(g);
    // a class never takes a control token
    CHECK_OK(grammar_new_gbnf(&g, v, SLICE_LIT("root ::= [^x]*"), &err));
    CHECK_OK(grammar_mask(g, bits, &err));
    CHECK(!bit(bits, TOK_CALL) && bit(bits, TOK_FIRST) && bit(bits, TOK_END) && !bit(bits, 'x'));
    CHECK(grammar_accept(g, TOK_CALL, &err) == MICA_E_ARG);
    grammar_free(g);
    CHECK_OK(grammar_new_gbnf(&g, v, SLICE_LIT("root ::= <call> !<call>* <[256]> \"x\""), &err));
    CHECK_OK(grammar_mask(g, bits, &err));
    for (int32_t i = 0; i < TOK_FIRST + 2; i++) CHECK(bit(bits, i) == (i == TOK_CALL));
    CHECK_OK(grammar_accept(g, TOK_CALL, &err));
    CHECK_OK(grammar_mask(g, bits, &err));
    for (int32_t i = 0; i < TOK_FIRST + 2; i++) CHECK(bit(bits, i) == (i != TOK_END));
    CHECK_OK(grammar_accept(g, TOK_FIRST, &err));
    CHECK_OK(grammar_accept(g, TOK_CALL, &err));
    CHECK_OK(grammar_mask(g, bits, &err));
    for (int32_t i = 0; i < TOK_FIRST + 2; i++) CHECK(bit(bits, i) == (i == 'x'));
    grammar_free(g);
    text_vocab_free(v);
}

static void test_clones(void **state) {
    (void)state;
    text_vocab *v = vocab_new(NULL, 0);
    grammar *a, *b;
    CHECK_OK(grammar_new_gbnf(&a, v, SLICE_LIT("root ::= \"ab\" | \"ac\""), &err));
    CHECK_OK(grammar_accept(a, 'a', &err));
    CHECK_OK(grammar_clone(&b, a, &err));
    CHECK_OK(grammar_accept(b, 'c', &err));
    CHECK(grammar_may_end(b) && !grammar_may_end(a));
    CHECK(grammar_accept(a, 'x', &err) == MICA_E_ARG);
    CHECK_OK(grammar_accept(a, 'b', &err));
    const uint64_t before = mem_count();
    grammar_reset(a);
    grammar_copy(b, a);
    CHECK(mem_count() == before);
    CHECK_OK(grammar_accept(b, 'a', &err));
    grammar_free(a);
    CHECK_OK(grammar_accept(b, 'b', &err));
    grammar_free(b);
    text_vocab_free(v);
}

/* ---- masks and steps ---- */

/* A mask looks at places by themselves, and at counts as if they had no end in sight; a step looks at what is
 * there. Both must say the same of every token, all the way along. */
static void agree_along(const text_vocab *v, const char *text, uint64_t seed) {
    grammar *g, *next;
    uint8_t bits[128];
    CHECK_OK(grammar_new_gbnf(&g, v, slice_of(text), &err));
    CHECK_OK(grammar_clone(&next, g, &err));
    for (int step = 0; step < 60; step++) {
        int32_t allowed[1024], n = 0;
        CHECK_OK(grammar_mask(g, bits, &err));
        for (int32_t id = 0; id < text_vocab_n(v); id++) {
            grammar_copy(next, g);
            const bool can = grammar_accept(next, id, &err) == MICA_OK;
            if (can != bit(bits, id)) check_failed(__FILE__, __LINE__, text, err.text);
            if (can && id != TOK_END) allowed[n++] = id;
        }
        if (!n) break;
        CHECK_OK(grammar_accept(g, allowed[test_rand(&seed) % (uint64_t)n], &err));
    }
    grammar_free(next);
    grammar_free(g);
}

static void test_counts(void **state) {
    (void)state;
    static char run[80][96];
    const char *piece[80];
    for (int i = 0; i < 80; i++) {
        for (int k = 0; k <= i; k++) run[i][k] = i % 3 == 2 && k % 2 ? 'b' : 'a';
        if (i % 5 == 4) run[i][i] = '!';
        piece[i] = run[i];
    }
    text_vocab *v = vocab_new(piece, 80);
    for (uint64_t seed = 1; seed < 6; seed++) {
        agree_along(v, "root ::= \"b\"? [ab]{3,90} \"!\"", seed);
        agree_along(v, "root ::= [ab]{70} [a!]{0,50}", seed);
        agree_along(v, "root ::= ([ab] | \"!\"){40,}", seed);
        agree_along(v, "root ::= x{2,60} \"!\" x{35}\nx ::= \"a\" | \"b\" \"a\"", seed);
        agree_along(v, "root ::= (\"a\" y | \"b\"){2,80}\ny ::= \"a\"* \"!\"", seed);
        agree_along(v, "root ::= ([ab]{0,40} \"!\"){34,50}", seed);
    }
    text_vocab_free(v);
}

/* ---- bounds ---- */

/* Ambiguity, deep nesting, tables over their bound: an error or an answer, and none of them slow. */
static void test_bounds(void **state) {
    (void)state;
    text_vocab *v = vocab_new(NULL, 0);
    grammar *g;
    uint8_t bits[64];
    CHECK_OK(grammar_new_gbnf(&g, v, SLICE_LIT("root ::= x*\nx ::= \"a\" x x | \"a\" x | \"a\""), &err));
    mica_status st = MICA_OK;
    for (int i = 0; i < 3000 && st == MICA_OK; i++) {
        st = grammar_mask(g, bits, &err);
        if (st == MICA_OK) st = grammar_accept(g, 'a', &err);
    }
    CHECK(st == MICA_E_ARG && strstr(err.text, "grammar: "));
    grammar_free(g);
    CHECK_OK(grammar_new_gbnf(&g, v, SLICE_LIT("root ::= \"[\" (root (\",\" root)*)? \"]\""), &err));
    for (int i = 0; i < 100000; i++) CHECK_OK(grammar_accept(g, '[', &err));
    for (int i = 0; i < 100000; i++) {
        CHECK(!grammar_may_end(g));
        CHECK_OK(grammar_accept(g, ']', &err));
    }
    CHECK(grammar_may_end(g));
    grammar_free(g);
    // counts up to 60000 make as many sets; the table is trimmed on the way, the place survives
    CHECK_OK(grammar_new_gbnf(&g, v, SLICE_LIT("root ::= [a-z]{60000} [0-9a-f]{30000} \"!\""), &err));
    for (int i = 0; i < 60000; i++) CHECK_OK(grammar_accept(g, 'b', &err));
    CHECK(grammar_accept(g, 'z', &err) == MICA_E_ARG);
    for (int i = 0; i < 30000; i++) CHECK_OK(grammar_accept(g, 'c', &err));
    CHECK(grammar_accept(g, 'c', &err) == MICA_E_ARG);
    CHECK_OK(grammar_accept(g, '!', &err));
    grammar_free(g);
    text_vocab_free(v);
}

/* Every allocation fails once: an error each time, and no leak (the sanitizers look). */
static void test_out_of_memory(void **state) {
    (void)state;
    text_vocab *v = vocab_new(NULL, 0);
    grammar *g;
    uint8_t bits[64];
    const slice text = SLICE_LIT("root ::= \"{\" x* \"}\" [^a-z]?\nx ::= \"a\" x | \"b\"* \"c\" | <call>");
    for (int64_t n = 0;; n++) {
        mem_fail_after(n);
        mica_status st = grammar_new_gbnf(&g, v, text, &err);
        if (st == MICA_OK) st = grammar_accept(g, '{', &err);
        if (st == MICA_OK) st = grammar_mask(g, bits, &err);
        if (st == MICA_OK) st = grammar_accept(g, 'a', &err);
        mem_fail_after(-1);
        if (st == MICA_OK) break;
        CHECK(st == MICA_E_NOMEM);
        if (g) CHECK_OK(grammar_mask(g, bits, &err)); // it works on afterwards
        grammar_free(g);
    }
    grammar_free(g);
    text_vocab_free(v);
}

/* ---- what is made of much ---- */

static void schema_refused(const text_vocab *v, const char *text, const char *why) {
    grammar *g;
    CHECK(grammar_new_schema(&g, v, slice_of(text), false, (grammar_start){0}, &err) == MICA_E_ARG);
    CHECK(g == NULL);
    if (!strstr(err.text, why)) check_failed(__FILE__, __LINE__, why, err.text);
}

static void schema_feeds(int line, const text_vocab *v, const char *text, const char *const *yes,
                         const char *const *no) {
    grammar *g;
    CHECK_OK(grammar_new_schema(&g, v, slice_of(text), false, (grammar_start){0}, &err));
    for (; *yes; yes++)
        if (feed(g, *yes) != 2) check_failed(__FILE__, line, "is whole", *yes);
    for (; *no; no++)
        if (feed(g, *no) == 2) check_failed(__FILE__, line, "is not whole", *no);
    grammar_free(g);
}
#define SCHEMA_FEEDS(text, yes, no) schema_feeds(__LINE__, v, text, yes, no)

/* Copies of the empty text are no more than one. */
static void test_counts_of_nothing(void **state) {
    (void)state;
    text_vocab *v = vocab_new(NULL, 0);
    refused(v, "root ::= \"\"{65536}{65536}{65536}", "rule 'root' is nothing but the empty text");
    FEEDS("root ::= \"a\" (\"\"{65536}{65536}){65536} e{60000}{60000} \"b\"\ne ::= () \"\"", LIST("ab"),
          LIST("a", "b"));
    SCHEMA_FEEDS("{\"pattern\": \"^a((){9999}){9999}$\"}", LIST("\"a\""), LIST("\"\"", "\"aa\""));
    strbuf b = {0};
    strbuf_puts(&b, "root ::= (\"a\"");
    for (int i = 0; i < 1000; i++) strbuf_puts(&b, " \"\"");
    strbuf_puts(&b, "){65536}");
    refused(v, b.p, "more than 4194304 parts");
    strbuf_fini(&b);
    text_vocab_free(v);
}

static void test_numbers_at_the_end(void **state) {
    (void)state;
    text_vocab *v = vocab_new(NULL, 0);
#define NINES "999999999999999999"
#define AND_18_0 "000000000000000000"
    const char *const no[] = {"", "0", "1", "1" AND_18_0, "-1" AND_18_0, NULL};
    for (int i = 0; i < 2; i++) {
        const char *type = i ? "number" : "integer";
        strbuf b = {0};
#define WITH(...)                                                                                            \
    (strbuf_clear(&b), strbuf_printf(&b, "{\"type\": \"%s\", ", type), strbuf_puts(&b, __VA_ARGS__), b.p)
        schema_refused(v, WITH("\"minimum\": 1" AND_18_0 "}"), "'minimum' leaves no number of 18 digits");
        schema_refused(v, WITH("\"minimum\": 1e18}"), "'minimum' leaves no number of 18 digits");
        schema_refused(v, WITH("\"maximum\": -1" AND_18_0 "}"), "'maximum' leaves no number of 18 digits");
        schema_refused(v, WITH("\"exclusiveMinimum\": " NINES "}"), "leave no number");
        schema_refused(v, WITH("\"exclusiveMaximum\": -" NINES "}"), "leave no number");
        SCHEMA_FEEDS(WITH("\"minimum\": " NINES "}"), LIST(NINES), no);
        SCHEMA_FEEDS(WITH("\"maximum\": -" NINES "}"), LIST("-" NINES), no);
        SCHEMA_FEEDS(WITH("\"maximum\": 1" AND_18_0 "}"), LIST("0", NINES), LIST("", "1" AND_18_0));
        SCHEMA_FEEDS(WITH("\"minimum\": -1" AND_18_0 ", \"maximum\": 1e300}"), LIST("0", "-" NINES),
                     LIST(""));
        strbuf_fini(&b);
    }
    // as counts, lengths, values: far more than 64 bits hold
    schema_refused(v, "{\"type\": \"array\", \"minItems\": 1e300}", "'minItems' is more than 65536");
    schema_refused(v, "{\"type\": \"string\", \"minLength\": 1e300}", "'minLength' is more than 65536");
    schema_refused(v, "{\"type\": \"string\", \"maxLength\": 1.5}", "'maxLength' is no length");
    schema_refused(v, "{\"type\": \"array\", \"maxItems\": -1e300}", "'maxItems' is no count");
    SCHEMA_FEEDS("{\"type\": \"string\", \"maxLength\": 1e300}", LIST("\"a\""), LIST(""));
    SCHEMA_FEEDS("{\"type\": \"integer\", \"enum\": [1e300, 1.5]}", LIST("1e+300"), LIST("1.5"));
    text_vocab_free(v);
}

/* A thread's stack as the smallest have it. */
static void on_small_stack(void *(*run)(void *), void *arg) {
    pthread_attr_t a;
    pthread_t t;
    CHECK(pthread_attr_init(&a) == 0 && pthread_attr_setstacksize(&a, 512 << 10) == 0);
    CHECK(pthread_create(&t, &a, run, arg) == 0 && pthread_join(t, NULL) == 0);
    pthread_attr_destroy(&a);
}

static void *long_keys(void *arg) {
    const text_vocab *v = arg;
    strbuf b = {0}, key = {0}, text = {0};
    grammar *g;
    for (int i = 0; i < 1100; i++) strbuf_putc(&key, (char)('a' + i % 26));
    strbuf_printf(&b, "{\"properties\": {\"%s\": {\"type\": \"null\"}, \"%.1000sz\": {\"type\": \"null\"}},",
                  strbuf_cstr(&key), key.p);
    strbuf_puts(&b, "\"additionalProperties\": {\"type\": \"boolean\"}}");
    CHECK_OK(grammar_new_schema(&g, v, slice_of(strbuf_cstr(&b)), false, (grammar_start){0}, &err));
    const struct {
        int n;
        const char *more, *value;
        int is;
    } one[] = {{1100, "", "null", 2},  {1100, "", "true", 0}, {1000, "z", "null", 2},
               {1000, "z", "true", 0}, {1099, "", "true", 2}, {1099, "", "null", 0},
               {1100, "x", "true", 2}, {1000, "", "true", 2}, {1000, "zz", "true", 2},
               {0, "", "true", 2},     {0, "b", "true", 2},   {0, "a\\n", "true", 2}};
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        strbuf_clear(&text);
        strbuf_printf(&text, "{\"%.*s%s\":%s}", one[i].n, key.p, one[i].more, one[i].value);
        if (feed(g, text.p) != one[i].is) check_failed(__FILE__, __LINE__, "as told", text.p);
    }
    grammar_free(g);
    while (key.n < 20000) strbuf_putc(&key, 'k');
    strbuf_clear(&b);
    strbuf_printf(&b, "{\"properties\": {\"%s\": {}}, \"additionalProperties\": true}", strbuf_cstr(&key));
    schema_refused(v, b.p, "schema: more than 524288 expressions");
    strbuf_fini(&b);
    strbuf_fini(&key);
    strbuf_fini(&text);
    return NULL;
}

/* Each rule nests as deep as it may and calls the next at its bottom. */
static void *deep_rules(void *arg) {
    strbuf b = {0};
    grammar *g;
    strbuf_puts(&b, "root ::= r0\n");
    for (int i = 0; i < 250; i++) {
        strbuf_printf(&b, "r%d ::= ", i);
        for (int k = 0; k < 95; k++) strbuf_puts(&b, "(\"a\" | \"b\" ");
        strbuf_printf(&b, "r%d", i + 1);
        for (int k = 0; k < 95; k++) strbuf_putc(&b, ')');
        strbuf_putc(&b, '\n');
    }
    strbuf_puts(&b, "r250 ::= \"c\"\n");
    CHECK_OK(grammar_new_gbnf(&g, arg, (slice){b.p, b.n}, &err));
    CHECK(feed(g, "bba") == 2 && feed(g, "bb") == 1 && feed(g, "c") == 0);
    grammar_reset(g);
    for (int i = 0; i < 250 * 95; i++) CHECK_OK(grammar_accept(g, 'b', &err));
    CHECK_OK(grammar_accept(g, 'c', &err));
    CHECK(grammar_may_end(g));
    grammar_free(g);
    strbuf_fini(&b);
    return NULL;
}

static void *deep_schemas(void *arg) {
    strbuf b = {0};
    grammar *g;
    for (int i = 0; i < 95; i++) strbuf_puts(&b, "{\"properties\": {\"k\": ");
    strbuf_puts(&b, "{\"type\": \"null\"}");
    for (int i = 0; i < 95; i++) strbuf_puts(&b, "}, \"additionalProperties\": true}");
    CHECK_OK(grammar_new_schema(&g, arg, (slice){b.p, b.n}, false, (grammar_start){0}, &err));
    CHECK(feed(g, "{\"k\": {\"k\": {\"j\": 1}}}") == 2 && feed(g, "{\"k\": 1}") == 0);
    grammar_free(g);
    strbuf_fini(&b);
    return NULL;
}

static void test_small_stacks(void **state) {
    (void)state;
    text_vocab *v = vocab_new(NULL, 0);
    on_small_stack(long_keys, v);
    on_small_stack(deep_rules, v);
    on_small_stack(deep_schemas, v);
    text_vocab_free(v);
}

/* ---- random grammars ---- */

enum { R_BYTES, R_CLASS, R_SEQ, R_ALT, R_REPEAT, R_RULE };
enum { R_NODES = 160, R_RULES = 4, R_LONGEST = 63 };

typedef struct rnode {
    int kind;
    int kid[3], n_kid; // of sequences and alternates; a repetition's is the first, a rule's its number
    int lo, hi;        // of repetitions, hi -1: without end
    char text[8];      // of bytes: without its quotes
    unsigned cp[4];    // of classes
    int n_cp;
    bool negated;
} rnode;

typedef struct rgrammar {
    rnode node[R_NODES];
    int n, root[R_RULES];
    uint64_t seed;
    uint64_t memo[R_NODES][R_LONGEST + 1]; // ends of matches, a bit for each offset; 0: not known, or none
    bool known[R_NODES][R_LONGEST + 1], open[R_NODES][R_LONGEST + 1];
    const char *s;
    int n_s;
    bool cut, looped; // text was wanted behind its end; a rule was met again without a byte between
} rgrammar;

static const char *const PIECE[] = {"a", "b", "ab", "\xC3\xA9", "ba", "\xE2\x82\xAC"};
static const unsigned POINT[] = {'a', 'b', 'c', 0xE9, 0xEA, 0x20AC, 0x1F600};

static int pick(rgrammar *r, int n) {
    return (int)(test_rand(&r->seed) % (uint64_t)n);
}

static int grow_node(rgrammar *r, int depth) {
    if (r->n >= R_NODES - 8) depth = 0;
    const int me = r->n++;
    rnode n = {.kind = pick(r, depth > 0 ? 6 : 2)};
    r->node[me] = n;
    switch (n.kind) {
    case R_BYTES: strcpy(n.text, PIECE[pick(r, 6)]); break;
    case R_CLASS:
        n.negated = pick(r, 4) == 0;
        for (n.n_cp = 0; n.n_cp < 1 + pick(r, 3); n.n_cp++) n.cp[n.n_cp] = POINT[pick(r, 7)];
        break;
    case R_SEQ:
    case R_ALT:
        for (n.n_kid = 0; n.n_kid < 2 + pick(r, 2); n.n_kid++) n.kid[n.n_kid] = grow_node(r, depth - 1);
        break;
    case R_REPEAT:
        n.kid[0] = grow_node(r, depth - 1);
        n.lo = pick(r, 3);
        n.hi = pick(r, 2) ? -1 : n.lo + pick(r, 3);
        break;
    default: n.kid[0] = pick(r, R_RULES);
    }
    r->node[me] = n;
    return me;
}

static void print_node(const rgrammar *r, int i, strbuf *b) {
    const rnode *n = &r->node[i];
    char bytes[4];
    switch (n->kind) {
    case R_BYTES: strbuf_printf(b, "\"%s\"", n->text); break;
    case R_CLASS:
        strbuf_puts(b, n->negated ? "[^" : "[");
        for (int k = 0; k < n->n_cp; k++) strbuf_put(b, bytes, (size_t)utf8_put(bytes, n->cp[k]));
        strbuf_putc(b, ']');
        break;
    case R_SEQ:
    case R_ALT:
        strbuf_putc(b, '(');
        for (int k = 0; k < n->n_kid; k++) {
            if (k) strbuf_puts(b, n->kind == R_ALT ? " | " : " ");
            print_node(r, n->kid[k], b);
        }
        strbuf_putc(b, ')');
        break;
    case R_REPEAT:
        print_node(r, n->kid[0], b);
        strbuf_printf(b, n->hi < 0 ? "{%d,}" : "{%d,%d}", n->lo, n->hi);
        break;
    default: strbuf_printf(b, "r%d", n->kid[0]);
    }
}

static uint64_t match(rgrammar *r, int i, int at);

static uint64_t match_all(rgrammar *r, int i, uint64_t from) {
    uint64_t to = 0;
    for (int k = 0; k <= r->n_s; k++)
        if (from >> k & 1) to |= match(r, i, k);
    return to;
}

static uint64_t match_bytes(rgrammar *r, const char *want, int n, int at) {
    for (int k = 0; k < n; k++) {
        if (at + k == r->n_s) return r->cut = true, 0;
        if (r->s[at + k] != want[k]) return 0;
    }
    return 1ull << (at + n);
}

/* Whether some character of the class begins with the n bytes at p. */
static bool could_become(const rnode *n, const char *p, int len) {
    if (!n->negated) {
        for (int k = 0; k < n->n_cp; k++) {
            char bytes[4];
            const int m = utf8_put(bytes, n->cp[k]);
            if (m > len && memcmp(bytes, p, (size_t)len) == 0) return true;
        }
        return false;
    }
    return true; // every first part of a character has more completions than a class here has members
}

static uint64_t match_class(rgrammar *r, const rnode *n, int at) {
    const char *p = r->s + at;
    if (at == r->n_s) return r->cut = true, 0;
    const int len = utf8_len(p, (size_t)(r->n_s - at));
    if (len < 0) return 0;
    if (len == 0) {
        if (could_become(n, p, r->n_s - at)) r->cut = true;
        return 0;
    }
    bool in = false;
    for (int k = 0; k < n->n_cp; k++) in = in || n->cp[k] == utf8_get(p, len);
    return in != n->negated ? 1ull << (at + len) : 0;
}

static uint64_t match_node(rgrammar *r, int i, int at) {
    const rnode *n = &r->node[i];
    uint64_t now = 1ull << at, sum = 0;
    switch (n->kind) {
    case R_BYTES: return match_bytes(r, n->text, (int)strlen(n->text), at);
    case R_CLASS: return match_class(r, n, at);
    case R_SEQ:
        for (int k = 0; k < n->n_kid && now; k++) now = match_all(r, n->kid[k], now);
        return now;
    case R_ALT:
        for (int k = 0; k < n->n_kid; k++) sum |= match(r, n->kid[k], at);
        return sum;
    case R_REPEAT:
        for (int k = 0; now; k++) {
            const uint64_t seen = sum;
            if (k >= n->lo) sum |= now;
            if (n->hi >= 0 && k == n->hi) break;
            if (n->hi < 0 && k > n->lo && sum == seen) break;
            now = match_all(r, n->kid[0], now);
        }
        return sum;
    default: return match(r, r->root[n->kid[0]], at);
    }
}

static uint64_t match(rgrammar *r, int i, int at) {
    if (r->known[i][at]) return r->memo[i][at];
    if (r->open[i][at]) return r->looped = true, 0;
    r->open[i][at] = true;
    r->memo[i][at] = match_node(r, i, at);
    r->open[i][at] = false;
    r->known[i][at] = true;
    return r->memo[i][at];
}

/* 0 dead, 1 alive, 2 whole, 3 whole and it may go on. */
static int oracle(rgrammar *r, const char *s, size_t n) {
    memset(r->known, 0, sizeof r->known);
    memset(r->open, 0, sizeof r->open);
    r->s = s;
    r->n_s = (int)n;
    r->cut = r->looped = false;
    const bool whole = match(r, r->root[0], 0) >> n & 1;
    return (whole ? 2 : 0) + (r->cut ? 1 : 0);
}

/* A random answer: at each step every token's bit is looked at. */
static void random_answer(rgrammar *r, grammar *g, const text_vocab *v, const char *text) {
    strbuf s = {0};
    uint8_t bits[128];
    const int32_t n_vocab = text_vocab_n(v);
    grammar_reset(g);
    for (int step = 0; step < 12 && s.n < R_LONGEST - 8; step++) {
        int32_t allowed[512], n = 0;
        CHECK_OK(grammar_mask(g, bits, &err));
        CHECK(grammar_may_end(g) == (oracle(r, strbuf_cstr(&s), s.n) >= 2));
        CHECK(bit(bits, TOK_END) == grammar_may_end(g));
        for (int32_t id = 0; id < n_vocab; id++) {
            const size_t before = s.n;
            const slice piece = text_vocab_bytes(v, id);
            if (id == TOK_CALL || id == TOK_END) continue;
            strbuf_put(&s, piece.p, piece.n);
            const bool want = oracle(r, s.p, s.n) != 0;
            if (bit(bits, id) != want) check_failed(__FILE__, __LINE__, s.p, text);
            strbuf_cut(&s, before);
            if (want) allowed[n++] = id;
        }
        if (!n) break;
        const int32_t id = allowed[pick(r, n)];
        const slice piece = text_vocab_bytes(v, id);
        CHECK_OK(grammar_accept(g, id, &err));
        strbuf_put(&s, piece.p, piece.n);
    }
    strbuf_fini(&s);
}

static void test_random_grammars(void **state) {
    (void)state;
    static const char *const pieces[] = {"aa",
                                         "ab",
                                         "ba",
                                         "abab",
                                         "bab",
                                         "aab",
                                         "\xC3\x83\xC2\xA9",
                                         "a\xC3\x83",
                                         "\302\251b",
                                         "abc",
                                         "cab",
                                         "bc",
                                         "\xC3\x83\xC2\xA9\xC3\x83\xC2\xA9",
                                         "aaaa",
                                         "bbbb"};
    static rgrammar r; // large
    text_vocab *v = vocab_new(pieces, sizeof pieces / sizeof *pieces);
    r.seed = 20260607;
    int n_run = 0, n_refused = 0;
    printf("seed %llu\n", (unsigned long long)r.seed);
    for (int round = 0; round < 400; round++) {
        strbuf b = {0};
        grammar *g;
        r.n = 0;
        for (int k = 0; k < R_RULES; k++) {
            r.root[k] = grow_node(&r, 3);
            strbuf_printf(&b, k ? "r%d ::= " : "root ::= r0\nr%d ::= ", k);
            print_node(&r, r.root[k], &b);
            strbuf_putc(&b, '\n');
        }
        if (grammar_new_gbnf(&g, v, (slice){b.p, b.n}, &err) == MICA_OK) {
            for (int k = 0; k < 2; k++) random_answer(&r, g, v, b.p);
            n_run++;
        } else {
            CHECK(err.status == MICA_E_ARG);
            n_refused++;
        }
        grammar_free(g);
        strbuf_fini(&b);
    }
    printf("%d grammars, %d more refused\n", n_run, n_refused);
    CHECK(n_run > 100);
    text_vocab_free(v);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_dialect),
        cmocka_unit_test(test_tokens_by_name),
        cmocka_unit_test(test_clones),
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_counts_of_nothing),
        cmocka_unit_test(test_numbers_at_the_end),
        cmocka_unit_test(test_small_stacks),
        cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_random_grammars),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
