#!/usr/bin/env python3
"""The rules of the house that a command can hold. `make lint` runs it; lint_test.py proves that each rule
finds its fault.

    tests/lint/lint.py [--root DIR] [--rule NAME] [--list]

A rule is a function that takes a Tree and yields findings (path, line, why). Files are read once, comments
and strings are blanked once (line numbers stay), so the whole run takes a few seconds. What a rule must allow
stands, with its reason, in exceptions.txt beside this file; which test covers which source stands in
sources.txt. A line of either list that is no longer needed is itself a finding, so both only shrink.
Last line: N passed, N failed, N skipped."""

import argparse
import concurrent.futures
import fnmatch
import functools
import os
import re
import shutil
import subprocess
import sys
import unicodedata

import page_rules

HERE = os.path.dirname(os.path.abspath(__file__))

# Arrows point down this list: a room includes itself, include/ and the rooms before it.
ROOMS = [
    "base",
    "gguf",
    "quant",
    "text",
    "kern",
    "dev",
    "store",
    "model",
    "run",
    "eval",
    "net",
    "serve",
    "cli",
]
OUTER = {"serve", "cli"}  # these see include/ and base only

MAX_FUNCTION, MAX_FILE, MAX_PARAMS, MAX_NESTING, MAX_COLUMNS = 100, 1200, 6, 3, 110
SHOWN = 30  # findings of a rule, when all rules run
C_FAMILY = (".c", ".h", ".cuh")
TEXT = C_FAMILY + (
    ".py",
    ".sh",
    ".md",
    ".txt",
    ".js",
    ".mjs",
    ".css",
    ".html",
    ".jinja",
    ".yml",
    ".yaml",
    ".toml",
)
CONTROL = {"if", "for", "while", "switch"}


def blank_comments(text, strings=True):
    """The text with comments (and what is inside quotes) replaced by spaces; newlines stay."""

    def repl(m):
        s = m.group(0)
        if s[0] == "/":
            return re.sub(r"[^\n]", " ", s)
        return s[0] + re.sub(r"[^\n]", " ", s[1:-1]) + s[-1] if strings and len(s) > 1 else s

    return re.sub(
        r"/\*.*?(?:\*/|\Z)|//(?:\\\n|[^\n])*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'",
        repl,
        text,
        flags=re.S,
    )


def blank_directives(text):
    return re.sub(r"^[ \t]*#(?:\\\n|[^\n])*", lambda m: re.sub(r"[^\n]", " ", m.group(0)), text, flags=re.M)


class Function:
    def __init__(self, name, line):
        self.name, self.line, self.end, self.params, self.nesting = name, line, line, 0, 0


class Tree:
    """The files of one tree, read lazily and once."""

    def __init__(self, root):
        self.root = os.path.abspath(root)
        self.files = sorted(self._list())
        self.exceptions = {}
        self.used = set()
        for n, cols in self.table("tests/lint/exceptions.txt", 3):
            self.exceptions[(cols[0], cols[1])] = n

    def _list(self):
        if os.path.isdir(os.path.join(self.root, ".git")) or os.path.isfile(os.path.join(self.root, ".git")):
            out = subprocess.run(
                ["git", "-C", self.root, "ls-files", "-z", "-co", "--exclude-standard"],
                check=True,
                capture_output=True,
            ).stdout.decode("utf-8", "surrogateescape")
            return [f for f in set(out.split("\0")) if f and os.path.isfile(os.path.join(self.root, f))]
        found = []
        for folder, dirs, names in os.walk(self.root):
            dirs[:] = [
                d
                for d in dirs
                if not d.startswith((".", "build")) and d not in ("node_modules", "__pycache__")
            ]
            found += [os.path.relpath(os.path.join(folder, n), self.root) for n in names]
        return found

    def under(self, *folders, ext=C_FAMILY):
        return [f for f in self.files if f.startswith(tuple(d + "/" for d in folders)) and f.endswith(ext)]

    @functools.lru_cache(maxsize=None)
    def text(self, f):
        with open(os.path.join(self.root, f), encoding="utf-8", errors="surrogateescape", newline="") as fh:
            return fh.read()

    def first_line(self, f):
        """The #! line of a script, "" of any other file."""
        with open(os.path.join(self.root, f), "rb") as fh:
            line = fh.readline(80)
        return line.decode("ascii", "replace").strip() if line.startswith(b"#!") else ""

    @functools.lru_cache(maxsize=None)
    def code(self, f):
        """Without comments and the insides of strings."""
        return blank_comments(self.text(f))

    @functools.lru_cache(maxsize=None)
    def functions(self, f):
        return find_functions(blank_directives(self.code(f)))

    def grep(self, files, pattern, flags=0):
        """(file, line number, match) over code without comments and strings."""
        rx = re.compile(pattern, flags)
        for f in files:
            code = self.code(f)
            for m in rx.finditer(code):
                yield f, code.count("\n", 0, m.start()) + 1, m

    def table(self, f, n_col):
        """(line number, columns) of a list file: blanks separate columns, the last takes the rest."""
        if f not in self.files:
            return
        for n, line in enumerate(self.text(f).splitlines(), 1):
            if line.strip() and not line.startswith("#"):
                yield n, (line.split(None, n_col - 1) + [""] * n_col)[:n_col]

    def allowed(self, rule, what):
        """True when exceptions.txt lists `rule what`."""
        if (rule, what) not in self.exceptions:
            return False
        self.used.add((rule, what))
        return True


def find_functions(code):
    """Function definitions with their length, parameters and depth of nested control statements."""
    out, sig, depth, cur = [], [], 0, None
    blocks = []  # kinds of the open braces inside a function: True for a control block
    parens = []  # for each open parenthesis: whether it belongs to a control keyword
    pending = 0  # control statements waiting for their (unbraced) body
    control_done = False  # the last token closed a control head, or was else/do
    prev = ""
    line = 1
    for m in re.finditer(r"\n|[A-Za-z_]\w*|[{}();,=\[\]]|[^\s\w]", code):
        tok = m.group(0)
        if tok == "\n":
            line += 1
            continue
        if cur is None:
            if tok == "{":
                if (
                    depth == 0
                    and sig
                    and "=" not in [t for t, _ in sig]
                    and ")" in [t for t, _ in sig]
                    and sig[0][0] not in ("typedef", "struct", "union", "enum")
                    or depth == 0
                    and is_struct_fn(sig)
                ):
                    cur = Function(*signature(sig))
                    cur.params = count_params(sig)
                    blocks, parens, pending, control_done = [], [], 0, False
                elif depth == 0 and [t for t, _ in sig if t != '"'] == ["extern"]:
                    sig = []
                    prev = tok
                    continue  # extern "C" {: transparent
                else:
                    depth += 1
                sig = [] if cur else sig
            elif tok == "}":
                depth = max(0, depth - 1)
                if depth == 0:
                    sig = [] if not any(t == "=" for t, _ in sig) else sig
            elif tok == ";" and depth == 0:
                sig = []
            elif depth == 0:
                sig.append((tok, line))
            prev = tok
            continue
        # Inside a function.
        if tok == "(":
            parens.append(prev in CONTROL)
        elif tok == ")":
            if parens and parens.pop():
                pending += 1
                control_done = True
                cur.nesting = max(cur.nesting, sum(blocks) + pending)
                prev = tok
                continue
        elif tok == "{":
            if control_done:
                pending = max(0, pending - 1) if prev not in ("else", "do") else pending
                blocks.append(1 + pending)  # unbraced heads before this block count with it
                pending = 0
            else:
                blocks.append(0)  # an initialiser or a bare block
            cur.nesting = max(cur.nesting, sum(blocks))
        elif tok == "}":
            if not blocks:
                cur.end = line
                out.append(cur)
                cur = None
            else:
                blocks.pop()
                pending = 0
        elif tok == ";" and not parens:
            pending = 0
        elif tok == "if" and prev == "else" and not parens:
            control_done = False
        control_done = tok in ("else", "do")
        prev = tok
    return out


def is_struct_fn(sig):
    """`static struct x *f(void) {` and the like: a struct word first, but a parameter list last."""
    return bool(sig) and sig[-1][0] == ")" and "=" not in [t for t, _ in sig]


def last_group(sig):
    """Index of the opening parenthesis of the last top-level group."""
    depth = 0
    for i in range(len(sig) - 1, -1, -1):
        if sig[i][0] == ")":
            depth += 1
        elif sig[i][0] == "(":
            depth -= 1
            if depth == 0:
                return i
    return 0


def signature(sig):
    i = last_group(sig)
    return (sig[i - 1][0] if i else "?"), sig[0][1]


def count_params(sig):
    body = [t for t, _ in sig[last_group(sig) + 1 :]]
    depth, n, seen = 0, 0, []
    for t in body:
        if t == "(" or t == "[":
            depth += 1
        elif t in ")]":
            depth -= 1
            if depth < 0:
                break
        elif t == "," and depth == 0:
            n += 1
        seen.append(t)
    return 0 if seen in ([], ["void"]) else n + 1


RULES = {}


def rule(fn):
    RULES[fn.__name__.replace("_", "-")] = fn
    return fn


@rule
def arrows(t):
    """A room includes only rooms before it; serve and cli only include/ and base; examples only include/."""
    public = {os.path.basename(f) for f in t.under("include")}
    for f in t.under("src", "examples"):
        parts = f.split("/")
        room = parts[1] if parts[0] == "src" and len(parts) > 2 else parts[0]
        for n, line in enumerate(blank_comments(t.text(f), strings=False).splitlines(), 1):
            m = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
            if not m or m.group(1) in public:
                continue
            target = m.group(1).split("/")[0]
            if "/" not in m.group(1) or ".." in m.group(1):
                yield f, n, f'include "{m.group(1)}": write it as "room/file.h"'
            elif room == "examples":
                yield f, n, f"an example includes {target}/: only include/ is public"
            elif target not in ROOMS:
                yield f, n, f"include of {target}/, which is no room"
            elif room in OUTER and target not in (room, "base"):
                yield f, n, f"{room}/ includes {target}/: it sees include/ and base only"
            elif room in ROOMS and ROOMS.index(target) > ROOMS.index(room):
                yield f, n, f"{room}/ includes {target}/, which is below it"
        if room not in ROOMS and room not in ("src", "examples"):
            yield f, 1, f"{room}/ is no room"


@rule
def unique_names(t):
    """A file name occurs once in the tree, so that it names the file."""
    seen = {}
    for f in t.files:
        name = os.path.basename(f)
        if not f.endswith(C_FAMILY + (".py", ".sh")) or name == "__init__.py":
            continue
        if name in seen:
            yield f, 1, f"the same file name as {seen[name]}"
        seen[name] = f


@rule
def function_size(t):
    """A function stops at 100 lines."""
    for f in t.under("src", "include", "tests", "bench", "examples", "tools"):
        for fn in t.functions(f):
            n = fn.end - fn.line + 1
            if n > MAX_FUNCTION and not t.allowed("function-size", f"{f}:{fn.name}"):
                yield f, fn.line, f"{fn.name} has {n} lines (at most {MAX_FUNCTION})"


@rule
def parameters(t):
    """At most six parameters, then a struct."""
    for f in t.under("src", "include", "tests", "bench", "examples", "tools"):
        for fn in t.functions(f):
            if fn.params > MAX_PARAMS and not t.allowed("parameters", f"{f}:{fn.name}"):
                yield f, fn.line, f"{fn.name} has {fn.params} parameters (at most {MAX_PARAMS})"


@rule
def nesting(t):
    """Control statements nest three deep at most."""
    for f in t.under("src", "include", "tests", "bench", "examples", "tools"):
        for fn in t.functions(f):
            if fn.nesting > MAX_NESTING and not t.allowed("nesting", f"{f}:{fn.name}"):
                yield f, fn.line, f"{fn.name} nests {fn.nesting} deep (at most {MAX_NESTING})"


@rule
def file_size(t):
    """A file stops at 1,200 lines, tables apart."""
    for f in t.files:
        if f.endswith(C_FAMILY + (".py", ".sh", ".js", ".mjs")):
            n = t.text(f).count("\n")
            if n > MAX_FILE and not t.allowed("file-size", f):
                yield f, 1, f"{n} lines (at most {MAX_FILE})"


@rule
def columns(t):
    """Lines stop at 110 columns."""
    for f in t.files:
        if f.endswith(C_FAMILY + (".py", ".sh", ".js", ".mjs")):
            for n, line in enumerate(t.text(f).splitlines(), 1):
                if len(line) > MAX_COLUMNS and not t.allowed("columns", f):
                    yield f, n, f"{len(line)} columns (at most {MAX_COLUMNS})"


@rule
def quiet_library(t):
    """The library never ends the process and never prints."""
    files = [f for f in t.under("src") if not f.startswith("src/cli/") and f != "src/base/log.c"]
    words = (
        r"\b(exit|_exit|_Exit|quick_exit|abort|v?f?printf|v?dprintf|puts|fputs|putchar|fputc|putc"
        r"|perror)\s*\("
    )
    for f, n, m in t.grep(files, words):
        if not t.allowed("quiet-library", f"{f}:{m.group(1)}"):
            yield f, n, f"{m.group(1)}: only src/cli and base/log.c print or exit"


@rule
def environment(t):
    """The environment is read in one place, which has the table."""
    files = [f for f in t.under("src") if f != "src/base/env.c"]
    for f, n, m in t.grep(files, r"\b((?:secure_)?getenv|putenv|setenv|unsetenv|environ)\b"):
        yield f, n, f"{m.group(1)}: only base/env.c touches the environment"


@rule
def allocation(t):
    """Memory comes from base/mem.c alone, which counts it and can be told to fail."""
    files = [f for f in t.under("src") if f != "src/base/mem.c"]
    words = (
        r"\b(malloc|calloc|realloc|reallocarray|strn?dup|v?asprintf|aligned_alloc|posix_memalign|memalign"
        r"|alloca|getline|open_memstream)\s*\("
    )
    for f, n, m in t.grep(files, words):
        if not t.allowed("allocation", f"{f}:{m.group(1)}"):
            yield f, n, f"{m.group(1)}: allocate through base/mem.h or base/str.h"


@rule
def vendor_words(t):
    """In the kernel sources only the prelude knows a vendor, an architecture or inline assembly."""
    files = [f for f in t.under("src/kern") if os.path.basename(f) != "prelude.cuh"]
    for f in files:
        for n, line in enumerate(t.text(f).splitlines(), 1):
            m = re.search(r"cuda|\bhip|__shfl|gfx[0-9]|sm_[0-9]|\basm\b", line, re.I)
            if m and not t.allowed("vendor-words", f):
                yield f, n, f'"{m.group(0)}" outside prelude.cuh'


@rule
def no_switches(t):
    """The network has no #if: where it runs is another room."""
    files = [f for f in t.under("src/model", "src/run") if f.endswith(".c")]
    for f, n, _ in t.grep(files, r"^[ \t]*#[ \t]*(?:if|ifdef|ifndef|elif)\b", re.M):
        yield f, n, "#if in the network"


@rule
def headers(t):
    """Every header has a guard of its name and compiles alone as C17; the public ones also as C++."""
    jobs = []
    for f in t.under("src", "include", "tests"):
        if not f.endswith(".h"):
            continue
        if not re.search(r"^#ifndef (MICA_\w+_H|MICA_H)\n#define \1\b", t.text(f), re.M):
            yield f, 1, "no guard of the form #ifndef MICA_..._H / #define"
        jobs.append((f, ["gcc", "-std=c17", "-x", "c"]))
        if f.startswith("include/"):
            jobs.append((f, ["g++", "-std=c++11", "-x", "c++"]))
    flags = [
        "-Wall",
        "-Wextra",
        "-Wpedantic",
        "-Werror",
        "-Wno-unused-function",
        "-D_GNU_SOURCE",
        "-Iinclude",
        "-Isrc",
        "-Itests",
        "-fsyntax-only",
    ]

    def compile_alone(job):
        f, cc = job
        if f.endswith(("_avx2.h", "_avx512.h")):  # intrinsics: as the Makefile compiles such sources
            cc = cc + ["-mavx2", "-mfma", "-mf16c"]
        if f.endswith("_avx512.h"):
            cc = cc + ["-mavx512bw", "-mavx512dq", "-mavx512f", "-mavx512vl", "-mavx512vnni"]
        src = f'#include "{f}"\ntypedef int lint_alone;\n'  # never an empty translation unit
        r = subprocess.run(cc + flags + ["-I.", "-"], input=src, text=True, capture_output=True, cwd=t.root)
        first = next((x for x in r.stderr.splitlines() if "error" in x), r.stderr.strip()[:200])
        return f, cc[0], r.returncode, first

    if jobs and not shutil.which("gcc"):
        raise Skip("no gcc")
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 2) as pool:
        for f, cc, rc, why in pool.map(compile_alone, jobs):
            if rc:
                yield f, 1, f"does not compile alone ({cc}): {why}"


@rule
def test_per_source(t):
    """Every source has its test: tests/ROOM/t_FILE.c, or the one sources.txt names; '-' there owes one."""
    tests = {os.path.basename(f) for f in t.under("tests")}
    listed = {}
    for n, (src, test) in t.table("tests/lint/sources.txt", 2):
        listed[src] = (n, test.split())
    for f in t.under("src"):
        if not f.endswith(".c"):
            continue
        own = "t_" + os.path.basename(f) in tests
        if f not in listed:
            if not own:
                yield f, 1, f"no test t_{os.path.basename(f)} and no line in tests/lint/sources.txt"
            continue
        n, named = listed.pop(f)
        if own:
            yield "tests/lint/sources.txt", n, f"{f} has its own test: the line is not needed"
        for x in named:
            if x != "-" and x not in t.files:
                yield "tests/lint/sources.txt", n, f"{x} does not exist"
        if not named:
            yield "tests/lint/sources.txt", n, f"{f}: no test named"
    for src, (n, _) in listed.items():
        yield "tests/lint/sources.txt", n, f"{src} does not exist"


@rule
def todos(t):
    """A TODO names its issue."""
    for f in t.files:
        if f.startswith("tests/lint/") or not f.endswith(C_FAMILY + (".py", ".sh", ".js", ".mjs")):
            continue
        for n, line in enumerate(t.text(f).splitlines(), 1):
            if re.search(r"\b(FIXME|XXX|HACK)\b", line) or re.search(r"\bTODO\b(?!\(#[0-9]+\))", line):
                yield f, n, "write TODO(#N) with an issue, or do it"


@rule
def head_comments(t):
    """A source file starts with what it owns, a script with what it does."""
    for f in t.files:
        if f.endswith(C_FAMILY) and not t.text(f).startswith(("/*", "//")):
            yield f, 1, "no head comment"
        if f.endswith((".py", ".sh")) and f.count("/") and os.path.basename(f) != "__init__.py":
            body = re.sub(r"\A#![^\n]*\n", "", t.text(f)).lstrip("\n")
            if not re.match(r'#|[rR]?("""|\'\'\')', body):
                yield f, 1, "no head comment"


@rule
def names(t):
    """Types carry no _t; a test links what it tests and never includes a .c."""
    for f, n, m in t.grep(
        t.under("src", "include"), r"\btypedef\b[^;{]*\b(\w+_t)\s*;|^\}\s*(\w+_t)\s*;", re.M
    ):
        yield f, n, f"type {m.group(1) or m.group(2)}: _t belongs to the C library"
    for f in t.under("src", "tests", "bench", "examples", "tools"):
        for n, line in enumerate(t.text(f).splitlines(), 1):
            if re.match(r'\s*#\s*include\s+["<][^">]+\.c[">]', line):
                yield f, n, "includes a .c file"


@rule
def characters(t):
    """No byte that a reader cannot see or would not expect: controls, invisible or direction-changing
    characters, no-break spaces, CRLF, a byte-order mark; code outside comments and strings is ASCII.
    """
    for f in t.files:
        if not re.fullmatch(r"[A-Za-z0-9_./+@-]+", f):
            yield f, 1, "a file name of other than A-Z a-z 0-9 _ . + -"
        if not f.endswith(TEXT) or f.startswith("tests/fixtures/"):
            continue
        text = t.text(f)
        for n, line in enumerate(text.split("\n"), 1):
            if line.isascii() and not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", line):
                continue
            bad = next(
                (
                    c
                    for c in line
                    if c != "\t"
                    and unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
                    or c != " "
                    and unicodedata.category(c) == "Zs"
                ),
                None,
            )
            if bad:
                yield f, n, f"character U+{ord(bad):04X}"
        if f.endswith(C_FAMILY):
            for n, line in enumerate(t.code(f).split("\n"), 1):
                if not line.isascii():
                    yield f, n, "code that is not ASCII"
        if text and not text.endswith("\n"):
            yield f, text.count("\n") + 1, "no newline at the end"


@rule
def tidy_space(t):
    """No trailing blanks; tabs only where make needs them."""
    for f in t.files:
        if not f.endswith(C_FAMILY + (".py", ".sh", ".js", ".mjs", ".css")):
            continue
        for n, line in enumerate(t.text(f).split("\n"), 1):
            if line != line.rstrip():
                yield f, n, "trailing blanks"
            elif re.match(r" *\t", line):
                yield f, n, "indented by a tab"


@rule
def documents(t):
    """Files that documents and comments name exist: `src/x/y.c`, `y.c` in .md files, docs/X.md anywhere."""
    names = {os.path.basename(f) for f in t.files}
    folders = {f[: m.start()] for f in t.files for m in re.finditer("/", f)}
    tops = "src/|include/|docs/|tests/|tools/|bench/|examples/"
    for f in t.files:
        if not f.endswith(TEXT) or f.startswith(("tests/fixtures/", "tests/lint/")):
            continue
        for n, line in enumerate(t.text(f).split("\n"), 1):
            words = re.findall(r"\bdocs/\w+\.md", line)
            if f.endswith(".md"):
                words += re.findall(r"`([\w./*-]+\.(?:c|h|cuh|py|sh|md)|(?:%s)[\w./*-]*)`" % tops, line)
            for word in (w[2:] if w.startswith("./") else w for w in words):
                if "*" in word:
                    good = bool(fnmatch.filter(t.files, word))
                else:
                    good = "/" not in word and word in names or word in t.files or word.rstrip("/") in folders
                if not good and not t.allowed("documents", f"{f}:{word}"):
                    yield f, n, f"{word} does not exist"


@rule
def shell(t):
    """Shell scripts pass shellcheck."""
    files = [f for f in t.files if f.endswith(".sh") or t.first_line(f).endswith(("bash", "/sh"))]
    if not files:
        return
    if not shutil.which("shellcheck"):
        raise Skip("no shellcheck")
    r = subprocess.run(["shellcheck", "-x", "-f", "gcc", *files], capture_output=True, text=True, cwd=t.root)
    for line in r.stdout.splitlines():
        path, n, _, why = line.split(":", 3)
        yield path, int(n), why.strip()


@rule
def scripts(t):
    """Every test script stands in tests/scripts.txt, so that none is forgotten; what stands there exists."""
    listed = {}
    for n, (kind, command) in t.table("tests/scripts.txt", 2):
        listed[command.split()[0]] = n
        if kind not in ("python", "golden", "oracle"):
            yield "tests/scripts.txt", n, f"no kind {kind}"
    for f in t.under("tests", ext=".py"):
        is_test = re.search(r"passed, .*failed", t.text(f)) and "__main__" in t.text(f)
        if is_test and f not in listed and not f.startswith("tests/lint/"):
            yield f, 1, "no line in tests/scripts.txt"
    for f, n in listed.items():
        if f not in t.files:
            yield "tests/scripts.txt", n, f"{f} does not exist"


@rule
def private_paths(t):
    """No path of somebody's machine."""
    rx = re.compile(r"(?<![\w.$}/-])/(?:work|root|Users|home/[a-z]\w*|tmp/[\w-])[\w/.-]*")
    for f in t.files:
        if f.startswith("tests/fixtures/") or not (
            f.endswith(TEXT) or os.path.basename(f) in ("Makefile", "run")
        ):
            continue
        for n, line in enumerate(t.text(f).split("\n"), 1):
            m = rx.search(line)
            if m and "XXXXXX" not in m.group(0) and not t.allowed("private-paths", f):
                yield f, n, f"{m.group(0)}: a path of one machine"


for page_rule in (page_rules.page_code, page_rules.page_functions, page_rules.page_markup):
    rule(page_rule)


@rule
def exceptions(t):
    """exceptions.txt lists only what is still needed, each with a reason."""
    for (name, what), n in sorted(t.exceptions.items(), key=lambda x: x[1]):
        if name not in RULES:
            yield "tests/lint/exceptions.txt", n, f"no rule is called {name}"
        elif (name, what) not in t.used:
            yield "tests/lint/exceptions.txt", n, f"{name} {what} is no longer needed"
    for n, cols in t.table("tests/lint/exceptions.txt", 3):
        if not cols[2]:
            yield "tests/lint/exceptions.txt", n, "no reason given"


class Skip(Exception):
    pass


def run(root, only=None):
    """Findings of every rule: {name: [(path, line, why)] or Skip}. `exceptions` comes after all it judges."""
    t = Tree(root)
    out = {}
    for name, fn in RULES.items():
        if only and name != only:
            continue
        try:
            out[name] = list(fn(t))
        except Skip as s:
            out[name] = s
    return out


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--root", default=os.path.join(HERE, "..", ".."))
    ap.add_argument("--rule", choices=[r for r in RULES if r != "exceptions"])
    ap.add_argument("--list", action="store_true", help="print the rules and stop")
    a = ap.parse_args()
    if a.list:
        for name, fn in RULES.items():
            print(f"{name:16} {' '.join(fn.__doc__.split())}")
        return 0
    passed = failed = skipped = 0
    for name, found in run(a.root, a.rule).items():
        if isinstance(found, Skip):
            print(f"skip: {name}: {found}")
            skipped += 1
        elif found:
            for path, line, why in found[: None if a.rule else SHOWN]:
                print(f"FAILED {name}: {path}:{line}: {why}")
            if not a.rule and len(found) > SHOWN:
                print(f"FAILED {name}: {len(found) - SHOWN} more: tests/lint/lint.py --rule {name}")
            failed += 1
        else:
            print(f"ok {name}")
            passed += 1
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
