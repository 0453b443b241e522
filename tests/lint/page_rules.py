"""The rules of the page in web/: what its content-security policy and the house ask for, seen before a
browser runs. lint.py registers them; a rule takes the Tree and yields (path, line, why)."""

import os
import re

MAX_FUNCTION, MAX_PARAMS = 100, 6
# What can make markup or code of a text, or leaves words in the console or in a blocking dialog.
FORBIDDEN = (
    r"\b(innerHTML|outerHTML|insertAdjacentHTML|srcdoc|DOMParser|createContextualFragment|setHTMLUnsafe)\b"
    r"|\b(document\.write(?:ln)?|eval|new Function|console\.\w+|debugger)\b"
    r"|(?<![\w.])(alert|confirm|prompt)\("
)
# A string, a template or a comment; a regular expression stays (nothing of FORBIDDEN fits into one).
QUIET = re.compile(
    r"/\*.*?\*/|(?<![:\\])//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|`(?:\\.|\$\{[^}]*\}|[^`\\])*`",
    re.S,
)


def blank(text):
    """Comments become blanks, strings keep only their quotes' content length; newlines stay."""
    return QUIET.sub(lambda m: re.sub(r"[^\n]", " ", m.group(0)), text)


def line_of(text, at):
    return text.count("\n", 0, at) + 1


def page_code(t):
    """The page's modules make no markup or code of text, import only each other, and are all in use."""
    modules = [f for f in t.under("web", ext=".js")]
    used = set(re.findall(r'<script[^>]*\bsrc="([^"]+)"', t.text("web/index.html"))) if modules else set()
    used = {f"web/{name}" for name in used}
    for f in modules:
        text = t.text(f)
        for m in re.finditer(FORBIDDEN, blank(text)):
            yield f, line_of(text, m.start()), f"{m.group(0).rstrip('(')}: not in the page"
        if not text.startswith("/*"):
            yield f, 1, "no head comment"
        for m in re.finditer(r'^(?:import\s*|(?:import|export)\b[^;"]*?\bfrom\s*)"([^"]+)";', text, re.M):
            target = os.path.normpath(os.path.join("web", m.group(1)))
            used.add(target)
            if not m.group(1).startswith("./") or target not in t.files:
                yield f, line_of(text, m.start()), f'import of "{m.group(1)}", which is no module of the page'
    for f in modules:
        if f not in used:
            yield f, 1, "no other module and no page uses it"


def page_functions(t):
    """In JavaScript too a function stops at 100 lines and at six parameters, then an object."""
    head = re.compile(
        r"^( *)(?:export )?(?:default )?(?:static )?(?:async )?"
        r"(?:function\*? *\w*|(?!if\b|for\b|while\b|switch\b|catch\b)\*?#?\w+) ?\(([^()]*)\) \{$"
    )
    for f in t.under("web", "tests", ext=(".js", ".mjs")):
        lines = t.text(f).split("\n")
        for i, line in enumerate(lines):
            m = head.match(line)
            if not m:
                continue
            end = next((k for k in range(i + 1, len(lines)) if lines[k].startswith(m.group(1) + "}")), i)
            if end - i + 1 > MAX_FUNCTION:
                yield f, i + 1, f"a function of {end - i + 1} lines (at most {MAX_FUNCTION})"
            count = len(
                [x for x in re.sub(r"\{[^{}]*\}|\[[^\[\]]*\]", "x", m.group(2)).split(",") if x.strip()]
            )
            if count > MAX_PARAMS:
                yield f, i + 1, f"{count} parameters (at most {MAX_PARAMS})"


def page_markup(t):
    """HTML and CSS hold no script, style or handler inside, nothing from elsewhere; the policy is strict."""
    for f in t.under("web", ext=".html"):
        text = t.text(f)
        plain = re.sub(r"<!--.*?-->", lambda m: re.sub(r"[^\n]", " ", m.group(0)), text, flags=re.S)
        for m in re.finditer(
            r"<script(?![^>]*\bsrc=)[^>]*>|<style\b|\son\w+=|\sstyle=|javascript:", plain, re.I
        ):
            yield f, line_of(plain, m.start()), f"{m.group(0).strip()}: scripts and styles are files"
        for m in re.finditer(r'\b(?:src|href|action)="((?:\w+:)?//[^"]*)"', plain):
            yield f, line_of(plain, m.start()), f"{m.group(1)}: nothing comes from elsewhere"
        for m in re.finditer(r'\b(?:src|href)="([\w.-]+)"', plain):
            if f"web/{m.group(1)}" not in t.files:
                yield f, line_of(plain, m.start()), f"{m.group(1)} does not exist"
        policy = re.search(r'Content-Security-Policy" content="([^"]*)"', plain)
        if not policy or "default-src 'none'" not in policy.group(1) or "unsafe" in policy.group(1):
            yield f, 1, "no strict content-security policy"
    for f in t.under("web", ext=".css"):
        text = t.text(f)
        for m in re.finditer(r"@import|\burl\(", blank(text)):
            yield f, line_of(text, m.start()), f"{m.group(0)}: a style loads nothing"
