/* Writes the first inputs of fuzz_jinja into a folder: the fixtures' template and a line for every construct.
 * seed_jinja DIR */
#include <stdio.h>

static const char *const LINE[] = {
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content | trim }}{% if not loop.last %}, {% endif %}{% "
    "endfor %}",
    "{%- set ns = namespace(a=1, b='x') -%}{% for x in l %}{% set ns.a = ns.a + x %}{% endfor %}{{ ns.a }}{{ "
    "ns }}",
    "{% macro m(a, b='d') %}{{ a }}{{ b }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(s, b=n) }}{{ m(*l) }}",
    "{% macro r(x) %}{{ x }}{% if x > 0 %}{{ r(x - 1) }}{% endif %}{% endmacro %}{{ r(n) }}",
    "{{ s[1:] ~ s[::-1] }}{{ s.split(' ')|join('-') }}{{ s|replace('B', s) }}{{ s.upper() }}{{ s.center(20, "
    "'*') }}",
    "{{ tools|tojson }}{{ d|tojson(indent=2, separators=(',', ':'), sort_keys=true) }}{{ d|items|list }}{{ d "
    "}}",
    "{% set x %}a{{ s }}{% endset %}{{ x|length }}{% filter upper %}q{{ s }}{% endfilter %}{% with y = s "
    "%}{{ y }}{% endwith %}",
    "{{ '%s %5d %-8s|%x' % (s, n, s, n) }}{{ '{} {0.role} {a:>9}'.format(messages[0], a=s) }}",
    "{{ messages|selectattr('role', 'equalto', 'user')|map(attribute='content')|list }}{{ l|sort|first }}{{ "
    "l|sum }}",
    "{% for k, v in d|dictsort %}{{ k }}={{ v }};{% else %}none{% endfor %}{% for x in l if x > 1 %}{{ "
    "loop.cycle(1, 2) }}{% endfor %}",
    "{% for x in [[1, [2]], 3] recursive %}{{ loop(x) if x is iterable else x }}{{ loop.depth }}{% endfor %}",
    "{% for x in l %}{% if x == 1 %}{% continue %}{% elif x == 2 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "{{ raise_exception('no ' ~ s) }}",
    "{{ x.y.z }}",
    "{{ 1 // 0 }}",
    "{{ strftime_now('%d %b %Y') }}",
    "{% call(v) m(1) %}{{ v }}{% endcall %}",
    "{{ '[1, {\"a\": 2}]'|from_json }}{{ [1, 2]|batch(2)|list }}",
    "{# comment #}{% raw %}{{ raw }}{% endraw %}{%+ if 1 -%} x {%- endif +%}\n",
    "{{ 'a\\n\\x41\\u00e9\\'' \"b\" }}",
    "{% if s is string and n is not none or l is sequence %}{{ 1 < 2 <= 3 != 4 }}{{ not s in d }}{{ -n ** 2 "
    "% 3 }}{% endif %}",
    "{{ s|title }}{{ s|indent(2, true) }}{{ s|truncate(5) }}{{ s|urlencode }}{{ s|e }}{{ s|safe + '<' }}{{ "
    "f|round(1) }}",
    "{% generation %}{{ s }}{% endgeneration %}{% set a, b = l[0], l[1] %}{{ a }}{{ b }}{{ cycler('a', "
    "'b').next() }}",
};

static int put(const char *dir, const char *name, const char *text, size_t n) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    if (!f) return 1;
    fwrite(text, 1, n, f);
    return fclose(f) != 0;
}

int main(int argc, char **argv) {
    static char text[1 << 15];
    if (argc != 2) return 2;
    for (size_t i = 0; i < sizeof LINE / sizeof *LINE; i++) {
        char name[32];
        snprintf(name, sizeof name, "line%02zu", i);
        size_t n = (size_t)snprintf(text, sizeof text, "%s", LINE[i]);
        if (put(argv[1], name, text, n)) return 1;
    }
    FILE *f = fopen("tests/fixtures/chat_template.jinja", "rb");
    if (!f) return 0;
    size_t n = fread(text, 1, sizeof text, f);
    fclose(f);
    return put(argv[1], "fixture", text, n);
}
