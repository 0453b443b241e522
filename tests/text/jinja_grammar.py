"""Random Jinja templates for jinja_oracle.py.

Left out is what jinja2 decides while it folds constants, by other rules than it runs code by: slices of
literals, literals as dict keys, unknown filters behind a constant condition; and big powers.
"""
import re


def words(text):
    return [w.strip(" ") for w in text.strip("\n").replace(";;\n", ";;").split(";;")]


VALUES = {
    "i": 7, "neg": -3, "zero": 0, "f": 2.5, "big": 1e16, "small": 1.5e-7, "t": True, "n": None,
    "s": "Hello World", "e": "", "u": "\u00c9t\u00e9 \u00df \U0001f600 \u03a3\u03a3 \ufb01x",
    "q": "it's \"q\" \\ \n\t<&>", "w": "  \n pad\t ", "num": "42", "fl": " 3.5 ", "l": [3, 1, 2],
    "ls": ["b", "A", "c", "a"], "le": [], "lm": [1, "a", None, 2.5, [1], {"k": 1}],
    "d": {"b": 1, "a": 2, "C": 3}, "de": {}, "dn": {"x": {"y": [1, {"z": "deep"}]}, "items": 5},
    "objs": [{"n": "x", "v": 2}, {"n": "y", "v": 1}, {"n": "X"}], "lines": "a\nb\r\n\nc\n", "csv": "a,b,,c",
    "nest": [[1, 2], [3, 4]], "flt": [1.0, 0.1, 1e100, -0.0, 123456789.125, 1e-5],
    "uni": "\u2028\u00a0\u200b\x7f\x01\u0660\u4e00", "tpl": "a{}b{}c",
}
NAMES = list(VALUES) + ["undef"]
POWERS = ["2", "0.5", "-1", "0", "f", "i", "neg", "s"]
BINARY = words(r"""
    + ;; - ;; * ;; / ;; // ;; % ;; ~ ;; == ;; != ;; < ;; <= ;; > ;; >= ;; in ;; not in ;; and ;; or
""")
LITERALS = words(r"""
    0 ;; 1 ;; -1 ;; 2 ;; 3 ;; 10 ;; 0.5 ;; 1.0 ;; 1e3 ;; '' ;; 'a' ;; 'b' ;; ' ' ;; ',' ;; 'l' ;; "x'y" ;;
    '\n' ;; true ;; false ;; none ;; [] ;; [1, 2] ;; {} ;; {'a': 1} ;; (1, 2) ;; ('a', 'b',) ;;
    [1, [2]] ;; range(4) ;; '%s-%d' % ('a', 3) ;; 0x1F ;; 1_000 ;; '\u00e9\x41\101' ;; 'ab' 'cd'
""")
FILTERS = words(r"""
    abs ;; capitalize ;; center(12) ;; count ;; default('D') ;; default('D', true) ;; d(1) ;; dictsort ;;
    dictsort(true) ;; dictsort(by='value') ;; dictsort(reverse=true) ;; escape ;; e ;; first ;; float ;;
    float(1.5) ;; forceescape ;; format(1) ;; format('x', 2) ;; groupby('n')|list ;; indent ;;
    indent(2, true) ;; indent(width='>>', blank=true) ;; int ;; int(9) ;; int(base=16) ;; items|list ;;
    join ;; join(', ') ;; join('-', attribute='n') ;; last ;; length ;; list ;; lower ;;
    map('upper')|list ;; map(attribute='n')|list ;; map(attribute='v', default='?')|list ;;
    map('default', 'z')|list ;; map('int')|sum ;; max ;; min ;; reject('odd')|list ;; reject|list ;;
    rejectattr('v')|list ;; replace('l', 'L') ;; replace('', '-') ;; replace('o', '0', 1) ;;
    reverse|list ;; reverse ;; round ;; round(1) ;; round(2, 'floor') ;; round(method='ceil') ;; safe ;;
    select|list ;; select('string')|list ;; select('in', [1, 2])|list ;; selectattr('v')|list ;;
    selectattr('v', 'gt', 1)|list ;; selectattr('n', 'equalto', 'x')|list ;;
    selectattr('v', 'defined')|list ;; slice(2)|list ;; batch(2)|list ;; batch(2, 'f')|list ;;
    slice(3, 0)|list ;; sort ;; sort(true) ;; sort(case_sensitive=true) ;; sort(attribute='v') ;;
    sort(attribute='n,v') ;; string ;; sum ;; sum(start=10) ;; sum(attribute='v') ;; title ;; tojson ;;
    tojson(indent=2) ;; tojson(indent=4) ;; tojson(separators=(',', ':')) ;; tojson(sort_keys=true) ;;
    tojson(ensure_ascii=true) ;; tojson(true) ;; trim ;; trim('H d') ;; truncate(8) ;;
    truncate(8, true) ;; truncate(7, true, '..', 0) ;; unique|list ;; unique(true)|list ;; upper ;;
    urlencode ;; wordcount ;; filesizeformat ;; attr('upper') ;; batch(3)|map('join', '+')|join('/') ;;
    lower|capitalize
""")
TESTS = words(r"""
    defined ;; undefined ;; none ;; string ;; number ;; integer ;; float ;; boolean ;; true ;; false ;;
    mapping ;; iterable ;; sequence ;; callable ;; odd ;; even ;; divisibleby 3 ;; divisibleby(2) ;;
    lower ;; upper ;; eq 7 ;; equalto('a') ;; ne 1 ;; lt 5 ;; gt(2) ;; ge 3 ;; le 3 ;; in [1, 7] ;;
    in 'Hello' ;; sameas none ;; sameas true ;; escaped ;; filter ;; test ;; not none ;; not defined
""")
METHODS = words(r"""
    upper() ;; lower() ;; strip() ;; lstrip() ;; rstrip() ;; strip('Hd') ;; lstrip('\n ') ;;
    rstrip('\n') ;; split() ;; split(',') ;; split(' ', 1) ;; split(maxsplit=1) ;; rsplit(',', 1) ;;
    rsplit(None, 2) ;; splitlines() ;; splitlines(true) ;; replace('l', '') ;; replace('a', 'b', 1) ;;
    startswith('H') ;; startswith(('x', 'H')) ;; endswith('d') ;; endswith('l', 0, 3) ;; find('o') ;;
    rfind('o') ;; find('z') ;; index('o') ;; rindex('zz') ;; count('l') ;; count('') ;; title() ;;
    capitalize() ;; swapcase() ;; casefold() ;; center(15, '*') ;; ljust(14, '.') ;; rjust(14) ;;
    zfill(6) ;; expandtabs(4) ;; partition(' ') ;; rpartition(',') ;; removeprefix('He') ;;
    removesuffix('ld') ;; join(['a', 'b']) ;; join(ls) ;; join(l) ;; format(1, 'z') ;; format(i, f) ;;
    isalpha() ;; isdigit() ;; isalnum() ;; isspace() ;; isupper() ;; islower() ;; istitle() ;;
    isdecimal() ;; isnumeric() ;; isidentifier() ;; isprintable() ;; isascii() ;; items() ;;
    items()|list ;; keys()|list ;; values()|list ;; keys() ;; get('a') ;; get('zz') ;; get('zz', 5) ;;
    get('x').y ;; copy() ;; append(1) ;; pop() ;; index(1) ;; count(1) ;; update({}) ;; nomethod() ;;
    nomethod ;; __class__ ;; x ;; x.y[1].z ;; 0 ;; items ;; a.b ;; real ;; n
""")
SUBSCRIPTS = words(r"""
    [0] ;; [-1] ;; [1] ;; [99] ;; ['a'] ;; ['items'] ;; ['zz'] ;; [1:] ;; [:2] ;; [::-1] ;; [-2:] ;;
    [::2] ;; [3:0:-1] ;; [:-1] ;; [1:1] ;; [n] ;; [0][0] ;; ['x']['y'] ;; [1:-1] ;; [-100:100] ;; [t] ;;
    [f] ;; [::0] ;; ['upper'] ;; [none:2]
""")
FORMATS = words(r"""
    '%s' ;; '%d' ;; '%5.2f|' ;; '%-8s|' ;; '%05d' ;; '%+d' ;; '%x %X' ;; '%r' ;; '%%' ;; '%s %s' ;;
    '%(a)s' ;; '%e' ;; '%g' ;; '%c' ;; '%8.3s|' ;; '%#x' ;; '%i' ;; '%G'
""")
BRACES = words(r"""
    '{}' ;; '{0} {1}' ;; '{:>8}|' ;; '{:<8}|' ;; '{:^9}|' ;; '{:*^9}|' ;; '{:05d}' ;; '{:,}' ;;
    '{:.2f}' ;; '{:x}' ;; '{!r}' ;; '{{}}{}' ;; '{:>{}}' ;; '{a}' ;; '{0[0]}' ;; '{0.x}' ;; '{:%}' ;;
    '{:e}' ;; '{:b}' ;; '{:#o}' ;; '{:+}' ;; '{:5}|' ;; '{' ;; '}' ;; '{:.3}' ;; '{:s}' ;; '{:d}' ;;
    '{} {0}'
""")
LOOP = words(r"""
    loop.index ;; loop.index0 ;; loop.first ;; loop.last ;; loop.length ;; loop.revindex ;; loop.revindex0 ;;
    loop.previtem ;; loop.nextitem ;; loop.depth ;; loop.cycle('a', 'b') ;; loop.changed(x) ;; loop.nothing ;;
    loop.previtem is defined
""")

# @E an expression, @A a name or literal, @N a name, @B some statements, @L a loop attribute, @X one of x y z
STATEMENTS = words(r"""
    {% set @X = @E %} ;;
    {% if @E %}@B{% elif @E %}@B{% else %}@B{% endif %} ;;
    {% for x in @E %}@B{{ @L }}{% else %}@B{% endfor %} ;;
    {% for x, y in d.items() %}@B{{ @L }}{{ x }}{% endfor %} ;;
    {% for x in l if x > 1 %}@B{{ @L }}{% else %}@B{% endfor %} ;;
    {% for x in lm if x is string or @E %}@B{{ @L }}{% endfor %} ;;
    {% for k in d|dictsort %}@B{{ @L }}{{ k }}{% endfor %} ;;
    {% for x in nest|map('first') %}{{ @L }}{{ @L }}{% endfor %} ;;
    {% macro m(a, b=@E) %}@B{{ a }}{{ b }}{% endmacro %}{{ m(@E) }}{{ m(b=@E, a=1) }}{{ m() }} ;;
    {% macro m(a, b=a) %}{{ a }}{{ b }}{{ x }}{% endmacro %}{% set x = 1 %}{{ m(@E) }}{{ m(1, 2, 3) }} ;;
    {% macro v() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ v(@A, k=@A) }}{{ v(*l, **de) }} ;;
    {% macro r(n) %}{{ n }}{% if n > 0 %}{{ r(n - 1) }}{% endif %}{% endmacro %}{{ r(i) }} ;;
    {% set x %}@B{% endset %}{{ x }} ;;
    {% set x | upper | trim %}@B{% endset %}{{ x|length }} ;;
    {% set ns = namespace(v=@E) %}{% for x in @E %}{% set ns.v = @E %}{% endfor %}{{ ns.v }} ;;
    {% set ns = namespace() %}{% set ns.a %}@B{% endset %}{{ ns.a }}{{ ns.zz }}{{ ns['a'] }}{{ ns }} ;;
    {% filter upper %}@B{% endfilter %} ;;
    {% filter replace('a', 'b')|title %}@B{% endfilter %} ;;
    {% filter indent %}@B{% endfilter %} ;;
    {% filter length %}@B{% endfilter %} ;;
    {% with x = @E, y = @E %}@B{% endwith %}{{ x }} ;;
    {% for x in l %}{% if x == @E %}{% break %}{% endif %}@B{{ x }}{% else %}@B{% endfor %} ;;
    {% for x in l %}{% if x != 1 or @E %}{% continue %}{% endif %}@B{{ x }}{% else %}@B{% endfor %} ;;
    {% macro c(a) %}[{{ caller(a) }}{{ varargs }}]{% endmacro %}{% call(v) c(@E) %}@B{{ v }}{% endcall %} ;;
    {% set x, y = @E, @E %}{{ x }}{{ y }}{% print x %}{% generation %}@B{% endgeneration %}{{ x }} ;;
    {% set x, y = @E %}{{ x }}{{ y }} ;;
    {% for x in nest recursive %}({{ x if x is number else loop(x) }}{{ loop.depth }}){% endfor %} ;;
    {% if t %}{% set z = @E %}{% endif %}{{ z }}{% for x in l %}{% set z = x %}{% endfor %}{{ z }} ;;
    {% if @E %}{% macro q() %}1{% endmacro %}{% endif %}{{ q }} ;;
    {{ s|nofilter }} ;; {{ s is notest }} ;; {% if t %}{{ s|nofilter }}{% endif %} ;;
    {% if e %}{{ s|nofilter }}{% endif %} ;; {{ (s|nofilter) if e else s }} ;; {% do s %} ;;
    {% if e %}{% for x in l %}{{ x|nofilter }}{% endfor %}{% endif %} ;; {{ s if e else (s is notest) }} ;;
    {{ ['nofilter']|map('nofilter')|list }} ;; {{ l|select('notest')|list }} ;;
    {% set c = cycler('a', @E) %}{{ c.next() }}{{ c.current }}{{ c.next() }}{{ c.next() }} ;;
    {% set j = joiner(', ') %}{% for x in l %}{{ j() }}{{ x }}{% endfor %} ;;
    {{ strftime_now('%Y-%m-%d %j %B') }} ;; {{ raise_exception(@E) }} ;; {{ range(@A)|list }}
""")

# @P a name, literal or expression in parentheses; the other letters as above
EXPRESSIONS = [
    (16, "@E @o @E"), (9, "(@E @o @E)"), (22, "@P|@f"), (8, "@P is @t"), (14, "@P.@m"), (8, "@N@s"),
    (2, "(i ~ @E)@s"), (4, "@E if @E else @E"), (1, "(@E if @E)"), (2, "[@E, @E]"), (1, "(@E, @A)"),
    (1, "{'k': @E, @N: @E}"), (2, "not @E"), (2, "-@E"), (1, "+@E"), (1, "@A ** @p"), (2, "@% % @A"),
    (1, "@% % (@A, @A)"),
    (1, "@% % {'a': @A}"),
    (2, "@{.format(@A)"), (1, "@{.format(@A, @A)"), (1, "@{.format(a=@A)"), (1, "@E < @E <= @E"),
    (1, "@E == @E != @E"),
    (1, "@E in @E not in @E"),
    (1, "range(@A)"), (1, "range(1, @A)"), (1, "dict(@A)"), (1, "dict(a=@A)|items|list"),
    (1, "namespace(a=@A).a"),
    (1, "@N[@E:@E]"), (1, "@N[@E]"), (1, "@N.get(@E, @A)"), (1, "(@E)|default(@E, @A)"),
]


class Grammar:
    def __init__(self, rng):
        self.r = rng

    def fill(self, text, depth):
        r = self.r
        simple = {"o": BINARY, "f": FILTERS, "t": TESTS, "m": METHODS, "s": SUBSCRIPTS, "%": FORMATS,
                  "{": BRACES, "L": LOOP, "X": "xyz", "N": NAMES, "p": POWERS}

        def one(match):
            c = match.group(1)
            if c in simple:
                return r.choice(simple[c])
            if c == "A":
                return self.atom()
            if c == "P":
                return self.atom() if r.random() < .65 else f"({self.expr(depth - 1)})"
            return self.expr(depth - 1) if c == "E" else self.body(depth - 1)

        return re.sub(r"@([a-zA-Z%{])", one, text)

    def atom(self):
        return self.r.choice(NAMES) if self.r.random() < .7 else self.r.choice(LITERALS)

    def expr(self, depth):
        if depth <= 0 or self.r.random() < .12:
            return self.atom()
        weights, texts = zip(*EXPRESSIONS)
        return self.fill(self.r.choices(texts, weights)[0], depth)

    def statement(self, depth):
        if depth <= 0 or self.r.random() < .25:
            return "{{ " + self.expr(3) + " }}"
        return self.fill(self.r.choice(STATEMENTS), depth)

    def body(self, depth):
        lead = self.r.choice(["", "a", " b ", "\n"])
        return lead + "".join(self.statement(depth) for _ in range(self.r.randint(0, 2)))


def expression(rng):
    g = Grammar(rng)
    if rng.random() < .6:
        return "{{ " + g.expr(rng.choice([1, 2, 2, 3])) + " }}"
    return g.statement(2) + g.body(2)


BLANKS = ["", "", " ", "  ", "\n", "\t", "\n  ", " \n", "\r\n", "a", "b \n c", "\u00a0", "x\n\n", "-",
          "{", "}"]
TAGS = ["{{@v i @v}}", "{{@vi@v}}", "{{@v's'}}", "{{ {'a': {}}['a']@v}}", "{#@w@w#}", "{#@w c @w#}",
        "{#\nc\n@w#}", "{#{{ x }}@w#}", "{#-@w#}", "{%@w if t @w%}", "{%@wfor x in l@w%}",
        "{%@wraw -%}@b{{ no }}@b{%@w endraw @w%}",
        "{%@w raw %}@b{%@b{%@w endraw@w%}", "{%@w set v = 'q' @w%}", "{%@w set v @w%}", "END", "END", "END"]
CLOSES = {"if": "endif", "for": "endfor", "set": "endset"}


def spacing(rng):
    """Data, tags, comments and raw blocks with random signs and blanks."""
    signs = {"w": ["", "", "-", "+"], "v": ["", "-"], "b": BLANKS}
    fill = lambda text: re.sub("@([wvb])", lambda m: rng.choice(signs[m.group(1)]), text)
    depth, out = [], []
    for _ in range(rng.randint(1, 8)):
        tag = rng.choice(TAGS)
        out.append(rng.choice(BLANKS))
        if tag == "END":
            out.append(fill("{%@w " + depth.pop() + " @w%}") if depth else "")
            continue
        out.append(fill(tag))
        opened = re.match(r"\{%@w ?(if|for|set v @)", tag)
        if opened:
            depth.append(CLOSES[opened.group(1).split()[0]])
    while depth:
        out.append(fill("@b{%@w" + depth.pop() + "@w%}"))
    return "".join(out) + rng.choice(BLANKS) + rng.choice(["", "\n", "\n\n", "\r"])
