#!/usr/bin/env python3
"""Every lint rule finds its fault and lets the clean neighbour pass: small trees in a temporary folder.
Last line: N passed, N failed, N skipped."""

import os
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import lint  # noqa: E402

SCRIPT = '"""Does x."""\nif __name__ == "__main__":\n    print("1 passed, 0 failed, 0 skipped")\n'
HEAD = "/* Head. */\n"


def fn(lines=1, params=1, body=None, name="f"):
    args = ", ".join(f"int a{i}" for i in range(params)) or "void"
    return HEAD + f"int {name}({args}) {{\n" + (body or "    g();\n" * (lines - 2)) + "}\n"


def guard(name, body=""):
    return HEAD + f"#ifndef {name}\n#define {name}\n{body}#endif\n"


POLICY = "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'self'\">\n"


def page(code):
    """A page of one module with this code."""
    html = '<script type="module" src="a.js"></script>\n'
    return {"web/index.html": html, "web/a.js": f"/* Head. */\n{code}\n"}


# (rule, name of the case, files of the tree, text expected in a finding; None: no finding at all)
CASES = [
    (
        "arrows",
        "down",
        {"src/gguf/a.c": HEAD + '#include "base/x.h"\n#include "gguf/y.h"\n#include <stdio.h>\n'},
        None,
    ),
    ("arrows", "up", {"src/gguf/a.c": HEAD + '#include "quant/x.h"\n'}, "below it"),
    ("arrows", "up with blanks", {"src/base/a.h": HEAD + '#  include   "gguf/x.h"\n'}, "below it"),
    (
        "arrows",
        "in a comment",
        {"src/base/a.h": '/* Head: #include "gguf/x.h" is wrong here:\n#include "run/a.h"\n*/\n'},
        None,
    ),
    (
        "arrows",
        "cli sees the library",
        {"src/cli/a.c": HEAD + '#include "run/x.h"\n'},
        "include/ and base only",
    ),
    (
        "arrows",
        "cli sees include",
        {"include/mica.h": HEAD, "src/cli/a.c": HEAD + '#include "mica.h"\n'},
        None,
    ),
    ("arrows", "serve sees cli", {"src/serve/a.c": HEAD + '#include "cli/x.h"\n'}, "include/ and base only"),
    ("arrows", "relative", {"src/run/a.c": HEAD + '#include "../base/x.h"\n'}, "room/file.h"),
    ("arrows", "no such room", {"src/misc/a.c": HEAD}, "no room"),
    ("arrows", "example inside", {"examples/a.c": HEAD + '#include "base/x.h"\n'}, "only include/"),
    ("unique-names", "twice", {"src/run/a.c": HEAD, "tests/run/a.c": HEAD}, "same file name"),
    ("unique-names", "once", {"src/run/a.c": HEAD, "tests/run/t_a.c": HEAD}, None),
    ("function-size", "100 lines", {"src/run/a.c": fn(100)}, None),
    ("function-size", "101 lines", {"src/run/a.c": fn(101)}, "f has 101 lines"),
    (
        "function-size",
        "second, static, pointer result",
        {
            "src/run/a.c": fn(3)
            + "static struct s *\nbig(const char *p,\n    int n) {\n"
            + "    g();\n" * 100
            + "}\n"
        },
        "big has 104 lines",
    ),
    (
        "function-size",
        "a table is no function",
        {"src/run/a.c": HEAD + "static const int t[] = {\n" + "1,\n" * 200 + "};\n"},
        None,
    ),
    (
        "function-size",
        "inside extern C",
        {"include/a.h": HEAD + 'extern "C" {\n' + fn(150) + "}\n"},
        "f has 150 lines",
    ),
    ("parameters", "six", {"src/run/a.c": fn(3, 6)}, None),
    ("parameters", "seven", {"src/run/a.c": fn(3, 7)}, "7 parameters"),
    (
        "parameters",
        "callback commas",
        {"src/run/a.c": HEAD + "int f(int (*cb)(int, int, int, int, int, int), int b) {\n}\n"},
        None,
    ),
    (
        "nesting",
        "three",
        {"src/run/a.c": fn(body="if (a) {\nfor (;;) {\nwhile (b) {\nx();\n}\n}\n}\n")},
        None,
    ),
    (
        "nesting",
        "four",
        {"src/run/a.c": fn(body="if (a) {\nfor (;;) {\nwhile (b) {\nif (c) x();\n}\n}\n}\n")},
        "4 deep",
    ),
    (
        "nesting",
        "four without braces",
        {"src/run/a.c": fn(body="for (;;)\nfor (;;)\nfor (;;)\nif (c) x();\n")},
        "4 deep",
    ),
    (
        "nesting",
        "unbraced heads hold a block",
        {"src/run/a.c": fn(body="for (;;)\nfor (;;) {\nfor (;;)\nif (c) x();\n}\n")},
        "4 deep",
    ),
    (
        "nesting",
        "else if is a chain",
        {
            "src/run/a.c": fn(
                body="if (a) {\n} else if (b) {\nif (c) {\nif (d) x();\n}\n"
                "} else if (e) {\n} else {\nx();\n}\n"
            )
        },
        None,
    ),
    (
        "nesting",
        "side by side",
        {"src/run/a.c": fn(body="for (;;) x();\nif (a) y();\nif (b) y();\nif (c) y();\nif (d) z();\n")},
        None,
    ),
    (
        "nesting",
        "initialisers",
        {"src/run/a.c": fn(body="if (a) {\nif (b) {\nif (c) f(&(s){.x = {{1}}});\n}\n}\n")},
        None,
    ),
    (
        "nesting",
        "do",
        {
            "src/run/a.c": fn(
                body="do {\ndo {\ndo {\ndo {\nx();\n} while (a);\n} while (a);\n} while (a);\n} while (a);\n"
            )
        },
        "4 deep",
    ),
    ("file-size", "too long", {"src/run/a.c": HEAD + "int x;\n" * 1200}, "1201 lines"),
    (
        "file-size",
        "listed",
        {
            "src/run/a.c": HEAD + "int x;\n" * 1200,
            "tests/lint/exceptions.txt": "file-size src/run/a.c tables\n",
        },
        None,
    ),
    ("columns", "111", {"src/run/a.c": "/*" + "x" * 107 + "*/\n"}, "111 columns"),
    ("columns", "110 characters, more bytes", {"src/run/a.c": "/*" + "\u00e9" * 106 + "*/\n"}, None),
    ("quiet-library", "printf", {"src/run/a.c": fn(body='    printf("x");\n')}, "printf"),
    ("quiet-library", "exit", {"src/run/a.c": fn(body="    exit(1);\n")}, "exit"),
    (
        "quiet-library",
        "cli, log, snprintf, comments and texts",
        {
            "src/cli/a.c": fn(body="    exit(1);\n"),
            "src/base/log.c": fn(body="    fprintf(stderr, 0);\n"),
            "src/run/a.c": fn(body='    snprintf(b, n, "exit(1) printf(");  // abort()\n'),
        },
        None,
    ),
    ("environment", "getenv", {"src/cli/a.c": fn(body='    getenv("X");\n')}, "getenv"),
    ("environment", "its place", {"src/base/env.c": fn(body='    getenv("X");\n')}, None),
    ("allocation", "malloc", {"src/run/a.c": fn(body="    malloc(3);\n")}, "malloc"),
    ("allocation", "strdup", {"src/cli/a.c": fn(body="    strdup(p);\n")}, "strdup"),
    (
        "allocation",
        "ours",
        {
            "src/run/a.c": fn(body="    mem_calloc(1, 2);\n    mem_strdup(p);\n"),
            "src/base/mem.c": fn(body="    calloc(1, 2);\n"),
        },
        None,
    ),
    ("vendor-words", "word", {"src/kern/norm.cuh": HEAD + "#ifdef __CUDA_ARCH__\n"}, "outside prelude.cuh"),
    ("vendor-words", "asm", {"src/kern/norm.cuh": HEAD + 'asm volatile("");\n'}, "asm"),
    (
        "vendor-words",
        "clean",
        {"src/kern/prelude.cuh": HEAD + "#if __HIP__\n", "src/kern/norm.cuh": HEAD + "a chip;\n"},
        None,
    ),
    ("no-switches", "ifdef", {"src/model/llama.c": HEAD + "#ifdef X\n#endif\n"}, "#if"),
    (
        "no-switches",
        "guards and comments",
        {"src/model/model.h": guard("MICA_MODEL_H"), "src/run/a.c": "/* Head\n#if 1\n*/\n"},
        None,
    ),
    (
        "headers",
        "good",
        {"src/run/a.h": guard("MICA_RUN_A_H", "#include <stddef.h>\nsize_t f(void);\n")},
        None,
    ),
    (
        "headers",
        "needs another",
        {"src/run/a.h": guard("MICA_RUN_A_H", "size_t f(void);\n")},
        "does not compile alone (gcc)",
    ),
    ("headers", "no guard", {"src/run/a.h": HEAD + "int f(void);\n"}, "no guard"),
    (
        "headers",
        "public, not C++",
        {"include/a.h": guard("MICA_A_H", "int f(int class);\n")},
        "does not compile alone (g++)",
    ),
    ("test-per-source", "own test", {"src/run/a.c": HEAD, "tests/run/t_a.c": HEAD}, None),
    ("test-per-source", "none", {"src/run/a.c": HEAD}, "no test t_a.c"),
    (
        "test-per-source",
        "named",
        {
            "src/run/a.c": HEAD,
            "tests/run/t_b.c": HEAD,
            "tests/lint/sources.txt": "src/run/a.c tests/run/t_b.c\n",
        },
        None,
    ),
    (
        "test-per-source",
        "named but missing",
        {"src/run/a.c": HEAD, "tests/lint/sources.txt": "src/run/a.c tests/run/t_b.c\n"},
        "does not exist",
    ),
    (
        "test-per-source",
        "line outlived",
        {"src/run/a.c": HEAD, "tests/run/t_a.c": HEAD, "tests/lint/sources.txt": "src/run/a.c -\n"},
        "not needed",
    ),
    ("test-per-source", "source gone", {"tests/lint/sources.txt": "src/run/a.c -\n"}, "does not exist"),
    ("todos", "bare", {"src/run/a.c": HEAD + "// TODO later\n"}, "TODO"),
    ("todos", "with issue", {"src/run/a.c": HEAD + "// TODO(#12): later\n"}, None),
    ("todos", "other words", {"bench/a.py": "# FIXME\n"}, "TODO"),
    ("head-comments", "missing", {"src/run/a.c": "int x;\n"}, "no head comment"),
    ("head-comments", "script", {"bench/a.sh": "#!/bin/sh\nset -e\n"}, "no head comment"),
    (
        "head-comments",
        "there",
        {"bench/a.sh": "#!/bin/sh\n# Does x.\n", "bench/b.py": '#!/usr/bin/env python3\n"""Does y."""\n'},
        None,
    ),
    ("names", "_t", {"src/run/a.h": HEAD + "typedef struct run_x run_x_t;\n"}, "run_x_t"),
    (
        "names",
        "_t after a body",
        {"src/run/a.h": HEAD + "typedef struct {\n    int a;\n} run_x_t;\n"},
        "run_x_t",
    ),
    (
        "names",
        "uses of _t",
        {"src/run/a.h": HEAD + "typedef struct x {\n    uint32_t a;\n} x;\nsize_t f(uint8_t *p);\n"},
        None,
    ),
    ("names", "includes a source", {"tests/run/t_a.c": HEAD + '#include "run/a.c"\n'}, "includes a .c"),
    ("characters", "no-break space", {"src/run/a.c": HEAD + "// a\u00a0b\n"}, "U+00A0"),
    ("characters", "direction", {"docs/a.md": "a\u202eb\n"}, "U+202E"),
    ("characters", "zero width", {"tests/a.py": '"""x\u200b"""\n'}, "U+200B"),
    ("characters", "CRLF", {"src/run/a.c": "/* Head. */\r\n"}, "U+000D"),
    ("characters", "byte-order mark", {"src/run/a.c": "\ufeff/* Head. */\n"}, "U+FEFF"),
    ("characters", "escape", {"src/run/a.c": HEAD + "// \x1b[31m\n"}, "U+001B"),
    ("characters", "code", {"src/run/a.c": HEAD + "int gr\u00f6sse;\n"}, "not ASCII"),
    (
        "characters",
        "comments and strings may",
        {"src/run/a.c": HEAD + '// \u2264 \u00d7\nconst char *s = "\u00e9";\n'},
        None,
    ),
    ("characters", "no newline at the end", {"src/run/a.c": HEAD + "int x;"}, "no newline"),
    ("characters", "file name", {"src/run/a b.c": HEAD}, "file name"),
    ("tidy-space", "trailing", {"src/run/a.c": HEAD + "int x; \n"}, "trailing"),
    ("tidy-space", "tab", {"src/run/a.c": HEAD + "\tint x;\n"}, "tab"),
    ("tidy-space", "clean", {"src/run/a.c": HEAD + "    int x;\n"}, None),
    (
        "scripts",
        "listed",
        {"tests/run/a_test.py": SCRIPT, "tests/scripts.txt": "golden tests/run/a_test.py @B@\n"},
        None,
    ),
    ("documents", "gone", {"docs/A.md": "See `src/run/a.c`.\n"}, "src/run/a.c does not exist"),
    ("documents", "gone, short", {"docs/A.md": "See `a.c`.\n"}, "a.c does not exist"),
    ("documents", "gone, in a comment", {"src/run/a.c": "/* See docs/B.md. */\n"}, "docs/B.md does not"),
    (
        "documents",
        "there",
        {
            "docs/A.md": "`src/run/a.c`, `a.c`, `src/run`, `src/run/*.c`, `docs/`, `build/mica`, `make`\n",
            "src/run/a.c": "/* As docs/A.md says. */\n",
        },
        None,
    ),
    ("shell", "unquoted", {"bench/a.sh": "#!/bin/sh\n# x\nrm $1\n"}, "SC2086"),
    ("shell", "clean", {"bench/a.sh": '#!/bin/sh\n# x\nrm "$1"\n'}, None),
    ("scripts", "not listed", {"tests/run/a_test.py": SCRIPT}, "no line in tests/scripts.txt"),
    ("scripts", "gone", {"tests/scripts.txt": "python tests/run/a_test.py\n"}, "does not exist"),
    (
        "scripts",
        "no such kind",
        {"tests/run/a_test.py": SCRIPT, "tests/scripts.txt": "x tests/run/a_test.py\n"},
        "no kind x",
    ),
    (
        "private-paths",
        "a home",
        {"bench/a.sh": "# x\ncd /" + "home/someone/models\n"},
        "a path of one machine",
    ),
    ("private-paths", "a temporary file", {"docs/a.md": "see /" + "tmp/out.log\n"}, "a path of one machine"),
    (
        "private-paths",
        "inside the project",
        {"docs/a.md": "build/tmp/x, $HOME/work/a, a/root/b, mkdtemp of /" + "tmp/a_XXXXXX\n"},
        None,
    ),
    (
        "page-code",
        "clean",
        {
            "web/index.html": '<script type="module" src="a.js"></script>\n',
            "web/a.js": '/* Head: innerHTML is not used. */\nimport { b } from "./b.js";\nb("eval(x)");\n',
            "web/b.js": "/* Head. */\nexport function b() {}\n",
        },
        None,
    ),
    ("page-code", "markup of text", page("a.innerHTML = text;"), "innerHTML"),
    ("page-code", "code of text", page("eval(text);"), "eval"),
    ("page-code", "a word for the console", page("console.log(1);"), "console.log"),
    ("page-code", "a blocking question", page("if (confirm(1)) f();"), "confirm"),
    ("page-code", "from elsewhere", page('import x from "https://a.b/x.js";'), "no module of the page"),
    ("page-code", "not there", page('import { x } from "./x.js";'), "no module of the page"),
    ("page-code", "in use by nobody", {**page(""), "web/b.js": "/* Head. */\n"}, "uses it"),
    ("page-code", "no head", {**page(""), "web/a.js": "f();\n"}, "no head comment"),
    ("page-functions", "100 lines", page("function f() {\n" + "    g();\n" * 98 + "}"), None),
    ("page-functions", "101 lines", page("async function f() {\n" + "    g();\n" * 99 + "}"), "101 lines"),
    (
        "page-functions",
        "a method",
        page("class A {\n    #f(a) {\n" + "        g();\n" * 99 + "    }\n}"),
        "101 lines",
    ),
    (
        "page-functions",
        "an object counts once",
        page("function f(a, { b, c, d }, e, [g, h], i, j) {\n}"),
        None,
    ),
    ("page-functions", "seven", page("function f(a, b, c, d, e, g, h) {\n}"), "7 parameters"),
    (
        "page-markup",
        "clean",
        {"web/index.html": POLICY + '<script src="a.js"></script>\n', "web/a.js": ""},
        None,
    ),
    ("page-markup", "a script inside", {"web/index.html": POLICY + "<script>f()</script>\n"}, "are files"),
    ("page-markup", "a handler", {"web/index.html": POLICY + '<p onclick="f()">\n'}, "are files"),
    ("page-markup", "a style inside", {"web/index.html": POLICY + '<p style="x">\n'}, "are files"),
    ("page-markup", "elsewhere", {"web/index.html": POLICY + '<img src="//a.b/c.png">\n'}, "from elsewhere"),
    ("page-markup", "not there", {"web/index.html": POLICY + '<img src="c.png">\n'}, "does not exist"),
    ("page-markup", "no policy", {"web/index.html": "<p>\n"}, "policy"),
    (
        "page-markup",
        "a loose policy",
        {"web/index.html": POLICY.replace("'self'", "'unsafe-inline'")},
        "policy",
    ),
    ("page-markup", "a style that loads", {"web/a.css": "p { background: url(a.png); }\n"}, "loads nothing"),
    (
        "exceptions",
        "outlived",
        {"src/run/a.c": HEAD, "tests/lint/exceptions.txt": "columns src/run/a.c a table\n"},
        "no longer needed",
    ),
    ("exceptions", "no such rule", {"tests/lint/exceptions.txt": "colums src/run/a.c a table\n"}, "no rule"),
    (
        "exceptions",
        "no reason",
        {"src/run/a.c": "/*" + "x" * 120 + "*/\n", "tests/lint/exceptions.txt": "columns src/run/a.c\n"},
        "no reason",
    ),
]


def findings(name, files):
    with tempfile.TemporaryDirectory() as root:
        for path, text in files.items():
            full = os.path.join(root, path)
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, "w", encoding="utf-8", newline="") as f:
                f.write(text)
        # The rule on exceptions judges what the others used, so it needs them to have run.
        got = lint.run(root, None if name == "exceptions" else name)[name]
        return got if isinstance(got, lint.Skip) else [f"{p}:{n}: {why}" for p, n, why in got]


def main():
    passed = failed = skipped = 0
    for name, case, files, want in CASES:
        got = findings(name, files)
        if isinstance(got, lint.Skip):
            print(f"skip: {name}: {case}: {got}")
            skipped += 1
            continue
        good = got == [] if want is None else any(want in g for g in got)
        if good:
            passed += 1
        else:
            print(f"FAILED {name}: {case}: wanted {want!r}, got {got}")
            failed += 1
    for name in lint.RULES:
        if (
            not any(c[0] == name and c[3] for c in CASES)
            or not any(c[0] == name and c[3] is None for c in CASES)
            and name != "exceptions"
        ):
            print(f"FAILED {name}: this test has no fault, or no clean case, for the rule")
            failed += 1
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
