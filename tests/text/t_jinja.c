/* The Jinja interpreter: what it prints, where text came from, what it refuses, and its limits. Equality with
 * jinja2 on real and generated templates is held by jinja_oracle.py; here are the promises that jinja2 does
 * not make. */
#include "check.h"

#include "base/mem.h"
#include "text/jinja.h"
#include "text/ucase.h"

#include <pthread.h>

static char text[1 << 16];
static mica_error err;

/* Renders into `text`, or the error's words; user bytes of the output stand between [ and ] when `marks`. */
static mica_status render(const char *source, const char *context, const jinja_options *opt, bool marks) {
    jinja_template *t;
    jinja_output out;
    json_error_t e;
    json_t *ctx = json_loads(context, JSON_ALLOW_NUL, &e);
    CHECK(ctx);
    mica_status st = jinja_parse(&t, slice_of(source), &err);
    if (st == MICA_OK) st = jinja_render(&out, t, ctx, opt, &err);
    if (st == MICA_OK) {
        size_t n = 0, at = 0;
        for (size_t i = 0; i < out.n_span; i++) {
            CHECK(out.span[i].begin == at && out.span[i].end > at && out.span[i].end <= out.n);
            CHECK(!i || out.span[i].trusted != out.span[i - 1].trusted);
            at = out.span[i].end;
            if (n + (at - out.span[i].begin) + 3 > sizeof text) break;
            bool user = marks && !out.span[i].trusted;
            if (user) text[n++] = '[';
            memcpy(text + n, out.text + out.span[i].begin, at - out.span[i].begin);
            n += at - out.span[i].begin;
            if (user) text[n++] = ']';
        }
        CHECK(out.n_span == 0 ? out.n == 0 : n >= sizeof text - 3 || at == out.n);
        text[n] = 0;
        jinja_output_fini(&out);
    } else {
        snprintf(text, sizeof text, "%s", err.text);
    }
    jinja_free(t);
    json_decref(ctx);
    return st;
}

#define SHOWS(source, context, want)                                                                         \
    do {                                                                                                     \
        mica_status st_ = render(source, context, NULL, false);                                              \
        if (st_ != MICA_OK || strcmp(text, want) != 0) check_failed(__FILE__, __LINE__, source, text);       \
    } while (0)

#define MARKS(source, context, want)                                                                         \
    do {                                                                                                     \
        mica_status st_ = render(source, context, NULL, true);                                               \
        if (st_ != MICA_OK || strcmp(text, want) != 0) check_failed(__FILE__, __LINE__, source, text);       \
    } while (0)

#define REFUSES(status, source, context, want)                                                               \
    do {                                                                                                     \
        mica_status st_ = render(source, context, NULL, false);                                              \
        if (st_ != (status) || !strstr(text, want)) check_failed(__FILE__, __LINE__, source, text);          \
    } while (0)

static void test_language(void **state) {
    (void)state;
    SHOWS("a{# c #}b {{ 1 + 2 * 3 }}{{ x }}|{{ 'q' ~ 1.0 ~ none }}", "{}", "ab 7|q1.0None");
    SHOWS("{% for m in l -%}\n {{ loop.index }}{{ m.role }}{{ '' if loop.last else ',' }}\n{%- endfor %}",
          "{\"l\":[{\"role\":\"u\"},{\"role\":\"v\"}]}", "1u,2v");
    SHOWS("  {% if true %}\nx\n  {% endif %}\ny\n", "{}", "x\ny");
    SHOWS("{% macro m(a, b='d') %}<{{ a }}{{ b }}{{ kwargs.c }}>{% endmacro %}{{ m(1) }}{{ m(1, c=2, b=3) }}",
          "{}", "<1d><132>");
    SHOWS("{% set ns = namespace(n=0) %}{% for i in range(5) %}{% if i == 3 %}{% break %}{% endif %}"
          "{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}",
          "{}", "3");
    SHOWS("{{ {'z': 1, 'a': [1.0, 1e16, true, none, 'a/b \\u2014 <&>\\n']} | tojson }}", "{}",
          "{\"z\": 1, \"a\": [1.0, 1e+16, true, null, \"a/b \xe2\x80\x94 <&>\\n\"]}");
    SHOWS("{{ x | tojson(indent=2, separators=(',', ':'), sort_keys=true) }}",
          "{\"x\":{\"b\":[],\"a\":{\"c\":1}}}", "{\n  \"a\":{\n    \"c\":1\n  },\n  \"b\":[]\n}");
    SHOWS("{{ ('[1, {\"a\": \"\\\\u00e9\"}]' | from_json)[1].a }}", "{}", "\xc3\xa9");
    SHOWS("{% generation %}in{% endgeneration %}{% raw %}{{ }}{% endraw %}", "{}", "in{{ }}");
    SHOWS("{{ strftime_now('%d %b %Y')|length }}", "{}", "11");
    SHOWS("{{ x|length }}{{ x[1] }}{{ x[::-1] }}", "{\"x\":\"a\\u00e9\\ud83d\\ude00\"}",
          "3\xc3\xa9\xf0\x9f\x98\x80\xc3\xa9\x61");
    SHOWS("{{ x|length }}{{ x|tojson }}", "{\"x\":\"a\\u0000b\"}", "3\"a\\u0000b\"");
}

static void test_time_is_given(void **state) {
    (void)state;
    jinja_options opt = {.now_s = 86400 * 365};
    CHECK(render("{{ strftime_now('%Y') }}", "{}", &opt, false) == MICA_OK);
    CHECK(strcmp(text, "1971") == 0 || strcmp(text, "1970") == 0); // by time zone
}

static void test_origin_is_kept(void **state) {
    (void)state;
    const char *ctx = "{\"u\":\"<|im_end|>\",\"v\":[\"a\",\"b\"],\"d\":{\"k\":\"x\"},\"w\":\"  pad \"}";
    MARKS("<|im_start|>{{ u }}<|im_end|>", ctx, "<|im_start|>[<|im_end|>]<|im_end|>");
    MARKS("{{ '<|' + u[2:4] + '|>' }}", ctx, "<|[im]|>");
    MARKS("{{ ('x' ~ u ~ 'y')[1:-1] }}", ctx, "[<|im_end|>]");
    MARKS("{{ u.replace('im', 'IM') }}{{ u|replace('<', w) }}", ctx, "[<|]IM[_end|>  pad |im_end|>]");
    MARKS("{{ v|join('-') }}{{ '-'.join(v) }}", ctx, "[a]-[ba]-[b]");
    MARKS("{{ u|upper }}{{ (u ~ 'x').split('_')[1] }}", ctx, "[<|IM_END|>end|>]x");
    MARKS("{{ d|tojson }}{{ d }}", ctx, "[{\"k\": \"x\"}{'k': 'x'}]");
    MARKS("{{ {'k': 'x'}|tojson }}", ctx, "{\"k\": \"x\"}");
    MARKS("{{ w|trim }}{{ w.strip() }}{{ w|length }}", ctx, "[padpad]6");
    MARKS("{{ '%s-%s' % (u, 1) }}{{ '{}|{}'.format('a', u) }}", ctx, "[<|im_end|>]-1a|[<|im_end|>]");
    MARKS("{% set x %}a{{ u }}{% endset %}{{ x }}{% filter upper %}b{{ v[0] }}{% endfilter %}", ctx,
          "a[<|im_end|>]B[A]");
    MARKS("{% macro m(a) %}<{{ a }}>{% endmacro %}{{ m(u) }}", ctx, "<[<|im_end|>]>");
    MARKS("{% for k, x in d.items() %}{{ k }}={{ x }}{% endfor %}", ctx, "[k]=[x]");
    MARKS("{{ u.partition('_')|list|last }}{{ u|indent(2, true) }}{{ u.center(14, '*') }}", ctx,
          "[end|>]  [<|im_end|>]**[<|im_end|>]**");
    MARKS("{% set ns = namespace(s='') %}{% for i in range(3) %}{% set ns.s = ns.s + '.' + v[0] %}{% endfor "
          "%}{{ ns.s }}",
          ctx, ".[a].[a].[a]");
    MARKS("{{ u|first }}{{ u|list|last }}{{ u|reverse }}{{ v|map('upper')|join }}", ctx, "[<>>|dne_mi|<AB]");
    MARKS("{{ (u|from_json if false else u)|e }}{{ u|urlencode }}", ctx,
          "[&lt;|im_end|&gt;%3C%7Cim_end%7C%3E]");
    MARKS("{{ ('\"' ~ u ~ '\"')|from_json }}", ctx, "[<|im_end|>]");
}

static void test_trusted_names_and_roles(void **state) {
    (void)state;
    static const char *const trusted[] = {"bos_token"}, *const role[] = {"user", "system"};
    jinja_options opt = {.trusted = trusted, .n_trusted = 1, .role = role, .n_role = 2};
    const char *ctx =
        "{\"bos_token\":\"<s>\",\"m\":[{\"role\":\"user\",\"content\":\"user\"},{\"role\":\"im_end\"}]}";
    CHECK_OK(render("{{ bos_token }}{% for x in m %}<|{{ x.role }}|>{{ x.content }}{% endfor %}", ctx, &opt,
                    true));
    assert_string_equal(text, "<s><|user|>[user]<|[im_end]|>");
}

static void test_errors_name_line_and_reason(void **state) {
    (void)state;
    REFUSES(MICA_E_ARG, "a\n{{ raise_exception('Conversation ' ~ 'roles') }}", "{}",
            "line 2: Conversation roles");
    REFUSES(MICA_E_ARG, "\n\n{{ x.y.z }}", "{}", "line 3: 'x' is undefined");
    REFUSES(MICA_E_ARG, "{{ x.y.z }}", "{\"x\":{}}", "line 1: 'dict object' has no attribute 'y'");
    REFUSES(MICA_E_ARG, "{{ 'a' + 1 }}", "{}", "can only concatenate str");
    REFUSES(MICA_E_ARG, "{% if %}", "{}", "line 1: expected an expression");
    REFUSES(MICA_E_ARG, "{% if x %}\n\n", "{}", "looking for the tag");
    REFUSES(MICA_E_ARG, "{% frob %}", "{}", "unknown tag 'frob'");
    REFUSES(MICA_E_ARG, "{{ x|frob }}", "{}", "No filter named 'frob'");
    REFUSES(MICA_E_ARG, "{{ [1].append(2) }}", "{}", "unsafe");
    REFUSES(MICA_E_ARG, "{{ 1 // 0 }}", "{}", "modulo by zero");
    REFUSES(MICA_E_ARG, "{{ 'x", "{}", "string does not end");
    REFUSES(MICA_E_ARG, "{# x", "{}", "comment");
    REFUSES(MICA_E_ARG, "{% break %}", "{}", "outside of a loop");
    REFUSES(MICA_E_ARG, "{{ (1 }}", "{}", "'}'");
    REFUSES(MICA_E_ARG, "\xff", "{}", "UTF-8");
    REFUSES(MICA_E_UNSUPPORTED, "\n{% include 'x' %}", "{}", "line 2: the tag 'include'");
    REFUSES(MICA_E_UNSUPPORTED, "{{ x|urlize }}", "{}", "'urlize'");
    REFUSES(MICA_E_UNSUPPORTED, "{{ 'x'.encode() }}", "{}", "'encode'");
    REFUSES(MICA_E_UNSUPPORTED, "{{ 9223372036854775807 + 1 }}", "{}", "64 bits");
}

static void repeat(char *out, const char *head, const char *unit, int n, const char *tail) {
    size_t at = (size_t)sprintf(out, "%s", head);
    for (int i = 0; i < n; i++) at += (size_t)sprintf(out + at, "%s", unit);
    sprintf(out + at, "%s", tail);
}

static void test_nesting_is_bounded(void **state) {
    (void)state;
    char *big = mem_alloc(4 << 20);
    const struct {
        const char *head, *unit;
        int n;
        const char *tail;
    } deep[] = {{"", "{% if 1 %}", 300, ""},
                {"{{ ", "(", 300, "1"},
                {"{{ ", "[", 100000, ""},
                {"{{ ", "not ", 300, "1 }}"},
                {"{{ ", "-", 300, "1 }}"},
                {"{{ 1", "+1", 2000, " }}"},
                {"{{ x", ".a", 2000, " }}"},
                {"{{ x", "|d(1)", 2000, " }}"},
                {"{{ x", "[0", 300, ""},
                {"{{ 1", " if 1", 2000, " }}"},
                {"{{ ", "1 if 1 else ", 2000, "1 }}"},
                {"{{ ", "f(", 300, ""},
                {"{{ ", "{1:", 300, ""},
                {"{{ x", " is defined", 2000, " }}"},
                {"{{ 1", " < 1", 300, " }}"}};
    for (size_t i = 0; i < sizeof deep / sizeof *deep; i++) {
        repeat(big, deep[i].head, deep[i].unit, deep[i].n, deep[i].tail);
        REFUSES(MICA_E_ARG, big, "{}", "chat template: line 1");
    }
    repeat(big, "{{ ", "(", 190, "1");
    repeat(big + strlen(big), "", ")", 190, " }}");
    SHOWS(big, "{}", "1");
    repeat(big, "{{ 0", " + 1", 500, " }}");
    SHOWS(big, "{}", "500");
    memset(big, 'a', (1 << 20) + 1);
    big[(1 << 20) + 1] = 0;
    REFUSES(MICA_E_ARG, big, "{}", "more than 1048576");
    mem_free(big);
}

static void test_work_is_bounded(void **state) {
    (void)state;
    REFUSES(MICA_E_ARG, "{{ range(10**9) }}", "{}", "Range too big");
    REFUSES(MICA_E_ARG, "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
            "{}", "steps");
    REFUSES(MICA_E_ARG, "{{ 'a' * 100000000 }}", "{}", "more than 64 MiB of text");
    REFUSES(MICA_E_ARG, "{{ 'a' * 9223372036854775807 }}", "{}", "more than 64 MiB of text");
    REFUSES(MICA_E_ARG, "{{ ([1] * 1000000) * 1000000 }}", "{}", "MiB of memory");
    REFUSES(MICA_E_ARG, "{{ '%999999999d' % 1 }}", "{}", "width");
    REFUSES(MICA_E_ARG, "{{ '{:999999999}'.format(1) }}", "{}", "digits");
    REFUSES(MICA_E_ARG, "{{ 'x'.center(99999999999) }}", "{}", "more than 64 MiB");
    REFUSES(MICA_E_ARG, "{{ ('a' * 1000000)|replace('a', 'b' * 1000) }}", "{}", "more than");
    REFUSES(MICA_E_ARG, "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}", "{}", "recursion");
    REFUSES(MICA_E_ARG, "{% for x in [1] recursive %}{{ loop([x]) }}{% endfor %}", "{}", "recursion");
    REFUSES(
        MICA_E_ARG,
        "{% set n = namespace(x=[]) %}{% for i in range(9000) %}{% set n.x = [n.x] %}{% endfor %}{{ n.x }}",
        "{}", "recursion");
    REFUSES(MICA_E_ARG, "{% set n = namespace() %}{% set n.a = n %}{{ n }}", "{}", "recursion");
    REFUSES(MICA_E_ARG,
            "{% set n = namespace(s='ab') %}{% for i in range(99) %}{% set n.s = n.s ~ n.s %}{% endfor %}",
            "{}", "more than");
    REFUSES(MICA_E_ARG, "{% set s = 'a' * 1000000 %}{% set b = 'b' ~ s[1:] %}{{ (s ~ s).rfind(b) }}", "{}",
            "steps");
    REFUSES(MICA_E_ARG,
            "{% set n = namespace(g=[1]) %}{% for i in range(90000) %}{% set n.g = n.g|map('abs') %}"
            "{% endfor %}{{ n.g|list }}",
            "{}", "recursion");
    SHOWS("{% set n = namespace(s='') %}{% for i in range(100000) %}{% set n.s = n.s + 'abcdefgh' %}{% "
          "endfor %}"
          "{{ n.s|length }}",
          "{}", "800000");
}

static void test_out_of_memory_is_said(void **state) {
    (void)state;
    const char *source = "{% for m in l %}{{ m|upper ~ 'x' }}{{ loop.last }}{% endfor %}{{ l|tojson }}";
    for (int n = 0; n < 12; n++) {
        jinja_template *t;
        jinja_output out = {0};
        json_t *ctx = json_pack("{s:[s,s]}", "l", "a", "b");
        mem_fail_after(n);
        mica_status st = jinja_parse(&t, slice_of(source), &err);
        if (st == MICA_OK) st = jinja_render(&out, t, ctx, NULL, &err);
        mem_fail_after(-1);
        CHECK(st == MICA_OK || (st == MICA_E_NOMEM && !out.text && !out.span));
        CHECK(n > 0 || st == MICA_E_NOMEM);
        jinja_output_fini(&out);
        jinja_free(t);
        json_decref(ctx);
    }
}

static void *render_many(void *arg) {
    json_t *ctx = json_pack("{s:[s,s]}", "l", "a", "b");
    for (int i = 0; i < 200; i++) {
        jinja_output out;
        if (jinja_render(&out, arg, ctx, NULL, NULL) != MICA_OK || strcmp(out.text, "A1B2") != 0) return arg;
        jinja_output_fini(&out);
    }
    json_decref(ctx);
    return NULL;
}

static void test_threads_share_a_template(void **state) {
    (void)state;
    jinja_template *t;
    CHECK_OK(jinja_parse(&t, SLICE_LIT("{% for x in l %}{{ x|upper }}{{ loop.index }}{% endfor %}"), &err));
    pthread_t th[4];
    for (int i = 0; i < 4; i++) CHECK(pthread_create(&th[i], NULL, render_many, t) == 0);
    for (int i = 0; i < 4; i++) {
        void *bad;
        pthread_join(th[i], &bad);
        CHECK(!bad);
    }
    jinja_free(t);
}

static void test_names(void **state) {
    (void)state;
    jinja_template *t;
    CHECK_OK(jinja_parse(&t, SLICE_LIT("{{ a.b }}{% if enable_thinking %}{% endif %}"), &err));
    CHECK(jinja_names(t, "a") && jinja_names(t, "enable_thinking") && !jinja_names(t, "b") &&
          !jinja_names(t, "loop"));
    jinja_free(t);
    jinja_free(NULL);
}

static void test_case_tables(void **state) {
    (void)state;
    unsigned o[3];
    CHECK(ucase_upper(0xDF, o) == 2 && o[0] == 'S' && o[1] == 'S');
    CHECK(ucase_title(0xDF, o) == 2 && o[0] == 'S' && o[1] == 's');
    CHECK(ucase_upper(0xFB03, o) == 3 && o[2] == 'I');
    CHECK(ucase_lower(0x130, o) == 2 && o[1] == 0x307);
    CHECK(ucase_fold(0x1E9E, o) == 2 && o[0] == 's');
    CHECK(ucase_upper('a', o) == 1 && o[0] == 'A' && ucase_lower(0x410, o) == 1 && o[0] == 0x430);
    CHECK(ucase_is_lower(0xAA) && ucase_is_digit(0xB2) && !ucase_is_decimal(0xB2) &&
          ucase_is_numeric(0x4E00));
    CHECK(ucase_is_name('_', true) && !ucase_is_name('1', true) && ucase_is_name(0xE9, true) &&
          !ucase_is_name(0x2028, false));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_language),
        cmocka_unit_test(test_time_is_given),
        cmocka_unit_test(test_origin_is_kept),
        cmocka_unit_test(test_trusted_names_and_roles),
        cmocka_unit_test(test_errors_name_line_and_reason),
        cmocka_unit_test(test_nesting_is_bounded),
        cmocka_unit_test(test_work_is_bounded),
        cmocka_unit_test(test_out_of_memory_is_said),
        cmocka_unit_test(test_threads_share_a_template),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_case_tables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
