#!/usr/bin/env python3
"""Compares mica's Jinja interpreter with jinja2, set up as transformers sets it up for chat templates.

    jinja_oracle.py [--main PROGRAM] [--templates DIR] [--every N] [--count N] [--seed N] [--only SECTION]

real:  every *.jinja under DIR (and the fixtures' template) against a matrix of conversations;
expr:  N generated templates over operators, filters, tests, methods, slices, statements and odd values;
space: N generated templates over whitespace control.

A case agrees when both give the same text, or both raise; any other difference fails. What mica says it lacks
is counted and named: none in real templates, a fiftieth of the generated ones at most. Prints one line per
section and a last line `N passed, N failed, N skipped`.
"""
import argparse
import copy
import datetime
import glob
import json
import os
import random
import subprocess
import sys
import warnings

import chat_cases
import jinja_grammar

HERE = os.path.dirname(os.path.abspath(__file__))
NOW = 1764500000


def environment():
    import jinja2
    from jinja2.ext import Extension
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        tags = {"generation"}

        def parse(self, parser):
            lineno = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            return jinja2.nodes.CallBlock(self.call_method("_support"), [], [], body).set_lineno(lineno)

        def _support(self, caller):
            return caller()

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=[Generation, "jinja2.ext.loopcontrols"])
    env.filters["tojson"] = tojson
    env.filters["from_json"] = lambda s: json.loads(s)
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda fmt: datetime.datetime.fromtimestamp(NOW).strftime(fmt)
    return env


ENV = None
PARSED = {}


def expected(source, context):
    """('text', text) or ('raise', message) from jinja2."""
    global ENV
    ENV = ENV or environment()
    try:
        if source not in PARSED:
            if len(PARSED) > 200:
                PARSED.clear()
            PARSED[source] = ENV.from_string(source)
        return "text", PARSED[source].render(**context)
    except RecursionError:
        return "raise", "recursion"
    except Exception as e:  # whatever Python raises inside of a template is the template's error
        return "raise", f"{type(e).__name__}: {e}"


def run(main, jobs):
    lines = "".join(json.dumps(dict(j, now=NOW)) + "\n" for j in jobs)
    r = subprocess.run([main], input=lines.encode(), stdout=subprocess.PIPE)
    out = [json.loads(l) for l in r.stdout.splitlines()]
    if r.returncode or len(out) != len(jobs):
        bad = jobs[len(out)]
        print(f"program ended with {r.returncode} at {json.dumps(bad)[:600]}")
        sys.exit(1)
    return out


class Tally:
    def __init__(self, name, show):
        self.name, self.show = name, show
        self.equal = self.raised = self.unsupported = self.failed = self.worded = 0
        self.lacks = {}

    def add(self, label, source, context, got):
        kind, want = expected(source, context)
        if got.get("status") == "unsupported":
            self.unsupported += 1
            what = got["error"].split(": ", 2)[-1]
            self.lacks[what] = self.lacks.get(what, 0) + 1
        elif kind == "text" and got.get("text") == want:
            self.equal += 1
        elif kind == "raise" and "error" in got:
            self.raised += 1
            self.worded += want.split(": ", 1)[-1] in got["error"]
        else:
            self.failed += 1
            if self.failed <= self.show:
                print(f"FAILED {self.name} {label}\n  want {kind} {want[-400:]!r}\n  got  {str(got)[:600]}")
                if kind == "text" and "text" in got:
                    i = len(os.path.commonprefix([want, got["text"]]))
                    print(f"  differ at {i}: want {want[i - 30:i + 60]!r} got {got['text'][i - 30:i + 60]!r}")

    def close(self, may_lack):
        """Prints the section; what mica lacks is no case, but too much of it is a failure."""
        total = self.equal + self.raised + self.unsupported + self.failed
        lacks_too_much = self.unsupported > total * may_lack
        print(f"{'FAILED' if self.failed or lacks_too_much else 'ok'} {self.name}: {self.equal} equal, "
              f"{self.raised} raise in both ({self.worded} in the same words), "
              f"{self.unsupported} unsupported, "
              f"{self.failed} different")
        for what, n in sorted(self.lacks.items(), key=lambda x: -x[1])[:self.show]:
            print(f"    unsupported {n}x {what}")
        return self.equal + self.raised, self.failed + lacks_too_much


def real(main, files, show, every):
    tally = Tally("real", show)
    for path in files:
        with open(path, encoding="utf-8", newline="") as f:
            source = f.read()
        all_contexts = list(chat_cases.contexts())[len(os.path.basename(path)) % every::every]
        got = run(main, [{"template": source, "context": c} for c in all_contexts])
        before = tally.failed + tally.unsupported
        for i, (c, g) in enumerate(zip(all_contexts, got)):
            tally.add(f"{os.path.basename(path)} #{i}", source, c, g)
        if tally.failed + tally.unsupported > before:
            bad = tally.failed + tally.unsupported - before
            print(f"  {os.path.basename(path)}: {bad} of {len(all_contexts)}")
    return tally


def generated(main, name, make, count, seed, show):
    tally, rng = Tally(name, show), random.Random(seed)
    jobs = [{"template": make(rng), "context": jinja_grammar.VALUES} for _ in range(count)]
    for job, got in zip(jobs, run(main, jobs)):
        values = copy.deepcopy(jinja_grammar.VALUES)  # `indent` of a list changes the list
        tally.add(repr(job["template"]), job["template"], values, got)
    return tally


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--main", default="build/tests/text/jinja_main")
    p.add_argument("--templates", action="append", default=[])
    p.add_argument("--count", type=int, default=2000)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--only")
    p.add_argument("--every", type=int, default=1, help="real: only each N-th conversation")
    p.add_argument("--show", type=int, default=8)
    a = p.parse_args()
    warnings.simplefilter("ignore")  # SyntaxWarning of what jinja2 compiles
    try:
        import jinja2  # noqa: F401
    except ImportError:
        print("skip: jinja2 is not installed\n0 passed, 0 failed, 1 skipped")
        return 0
    files = [os.path.join(HERE, "..", "fixtures", "chat_template.jinja")]
    for d in a.templates:
        files += sorted(glob.glob(os.path.join(d, "**", "*.jinja"), recursive=True))
    done = []
    if a.only in (None, "expr"):
        done.append(generated(a.main, "expr", jinja_grammar.expression, a.count, a.seed, a.show))
    if a.only in (None, "space"):
        done.append(generated(a.main, "space", jinja_grammar.spacing, a.count, a.seed, a.show))
    if a.only in (None, "real"):
        done.append(real(a.main, files, a.show, a.every))
        print(f"    {len(files)} templates, {len(list(chat_cases.contexts())) // a.every} conversations each")
    counts = [t.close(may_lack=0 if t.name == "real" else 0.02) for t in done]
    passed, failed = (sum(c) for c in zip(*counts))
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
