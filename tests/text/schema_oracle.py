#!/usr/bin/env python3
"""Schemas as grammars against the Python package jsonschema: what a grammar lets through is valid, and what
is valid (members in the order of the schema, JSON compact, as json.dumps writes it, or indented) is let
through.

    tests/text/schema_oracle.py [--n SCHEMAS] [--seed S] [MAIN]

MAIN is build/tests/text/schema_main. Random schemas, each with random texts of its grammar, random instances
that are valid by construction, and the same instances damaged (then jsonschema says what should come out)."""

import argparse
import json
import os
import random
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

try:
    import jsonschema
except ImportError:
    jsonschema = None

PATTERNS = {
    r"^[a-c]{2,4}$": ["ab", "cab", "abca"],
    r"^(foo|bar)-\d+$": ["foo-1", "bar-042"],
    r"\d{3}": ["123", "x999y", 'a"123\\'],
    r"^[^\s\"]+@\w+(?:\.\w+)*$": ["a@b", "x.y@z.w"],
    r"^\/?[\w\-.~]{1,8}$": ["/a-b", "x.~_"],
    r"^a|b$": ["ax", "xb", "a", "b"],
    r"^(\+\d{1,3}[ ])?\S*$": ["+49 123", "abc", ""],
    "^[\\x41-\\u0043\u00e9]+$": ["ABC", "\u00e9A"],
    r"^$|^x+?$": ["", "xx"],
}
FORMATS = {
    "date": ["2024-02-29", "1999-12-31", "0001-01-01"],
    "time": ["23:59:59Z", "00:00:00.5+01:00"],
    "date-time": ["2024-02-29T12:00:00Z", "1970-01-01T00:00:00.123-05:30"],
    "uuid": ["123e4567-e89b-12d3-a456-426614174000"],
    "ipv4": ["127.0.0.1", "255.10.0.9"],
    "email": ["a.b@example.org"],
}
KEYS = ["a", "ab", "abc", "b", "name", 'q"uote', "sl/ash", "\u00e9", "with space", "x\ny"]
STRINGS = ["", "a", "abc", 'q"\\', "line\nend", "\u00e9\u20ac\U0001f600", "\t", "/", "\u007f", "true", "1"]


class Maker:
    """Random schemas, and instances that are valid by how they are made."""

    def __init__(self, rng):
        self.rng, self.defs = rng, {}

    def schema(self, depth):
        r = self.rng
        kinds = "string integer number boolean null enum const pattern format any".split()
        if depth > 0:
            kinds += ["object"] * 5 + ["array"] * 3
            kinds += "tuple anyOf allOf ref types nullable beside".split()
        return getattr(self, "make_" + r.choice(kinds))(depth)

    # every make_ gives (schema, function that makes an instance)
    def make_string(self, depth):
        s, lo, hi = {"type": "string"}, 0, 6
        if self.rng.random() < 0.4:
            lo = s["minLength"] = self.rng.randrange(4)
            hi = lo + 6
        if self.rng.random() < 0.4:
            hi = s["maxLength"] = lo + self.rng.randrange(4)

        def instance():
            text = self.rng.choice(STRINGS)[:hi]
            return text + "".join(self.rng.choice('xy"\u20ac') for _ in range(max(0, lo - len(text))))

        return s, instance

    def bounds(self, s, whole):
        r, lo, hi = self.rng, -10**6, 10**6
        span = r.choice([5, 30, 1000, 10**9])
        if r.random() < 0.6:
            v = r.randrange(-span, span)
            exclusive = r.random() < 0.3
            s["exclusiveMinimum" if exclusive else "minimum"] = v
            lo = v + (exclusive and whole)
            hi = max(hi, lo + 10)
        if r.random() < 0.6:
            v = max(lo, r.randrange(-span, span)) + 1 + r.randrange(span)
            exclusive = r.random() < 0.3
            s["exclusiveMaximum" if exclusive else "maximum"] = v
            hi = v - (exclusive and whole)
        return lo, hi

    def make_integer(self, depth):
        s = {"type": "integer"}
        lo, hi = self.bounds(s, True)
        return s, lambda: self.rng.choice([lo, hi, self.rng.randint(lo, hi)])

    def make_number(self, depth):
        s = {"type": "number"}
        lo, hi = self.bounds(s, False)
        small = abs(lo) < 10**6 and abs(hi) < 10**6

        def instance():
            v = lo + (hi - lo) * self.rng.choice([0.5, 0.25, 0.125])
            if small and "e" not in repr(v) and v not in (lo, hi):
                return v
            return (lo + hi) // 2 if hi - lo > 2 else v

        return s, instance

    def make_boolean(self, depth):
        return {"type": "boolean"}, lambda: self.rng.random() < 0.5

    def make_null(self, depth):
        return {"type": "null"}, lambda: None

    def make_enum(self, depth):
        pool = STRINGS + [1, 2.5, -3, True, None, [1, "x"], {"a": 1, "b": []}, 1e300, 0.1]
        values = self.rng.sample(pool, self.rng.randrange(1, 6))
        return {"enum": values}, lambda: self.rng.choice(values)

    def make_const(self, depth):
        value = self.rng.choice(STRINGS + [7, {"k": ["v", {}]}, False])
        return {"const": value}, lambda: value

    def make_pattern(self, depth):
        p = self.rng.choice(sorted(PATTERNS))
        return {"type": "string", "pattern": p}, lambda: self.rng.choice(PATTERNS[p])

    def make_format(self, depth):
        f = self.rng.choice(sorted(FORMATS))
        return {"type": "string", "format": f}, lambda: self.rng.choice(FORMATS[f])

    def make_any(self, depth):
        return self.rng.choice([{}, True, {"title": "any", "x-remark": 1}]), lambda: self.rng.choice(
            [1, "x", None, {"z": [1.5e3, {}]}, [], "\\"]
        )

    def make_object(self, depth):
        r = self.rng
        names = r.sample(KEYS, r.randrange(0, 5))
        parts = {k: self.schema(depth - 1) for k in names}
        s = {"type": "object", "properties": {k: v[0] for k, v in parts.items()}}
        required = [k for k in names if r.random() < 0.5]
        if required or r.random() < 0.3:
            s["required"] = required
        others = r.choice([None, False, True, "schema"])
        other = (lambda: 5) if others is True else None
        if others is False or others is True:
            s["additionalProperties"] = others
        elif others:
            s["additionalProperties"], other = self.schema(depth - 1)
        if r.random() < 0.2:
            del s["type"]

        def instance():
            v = {k: parts[k][1]() for k in names if k in required or r.random() < 0.6}
            more = r.sample(["zz", "aa", "abcd", "", "\u00e9\u00e9", "na"], r.randrange(0, 3))
            for k in more if other else []:
                v[k] = other()
            return v

        return s, instance

    def make_array(self, depth):
        item, make = self.schema(depth - 1)
        s, lo, hi = {"type": "array", "items": item}, 0, 3
        if self.rng.random() < 0.4:
            lo = s["minItems"] = self.rng.randrange(3)
            hi = lo + 3
        if self.rng.random() < 0.4:
            hi = s["maxItems"] = lo + self.rng.randrange(3)
        return s, lambda: [make() for _ in range(self.rng.randint(lo, hi))]

    def make_tuple(self, depth):
        parts = [self.schema(depth - 1) for _ in range(self.rng.randrange(1, 4))]
        more, make = self.schema(depth - 1)
        open_end = self.rng.random() < 0.5
        s = {"type": "array", "prefixItems": [p[0] for p in parts]}
        s["items"] = more if open_end else False
        lo = 0
        if self.rng.random() < 0.5:
            lo = s["minItems"] = self.rng.randrange(len(parts) + 1)

        def instance():
            n = self.rng.randint(lo, len(parts) + (2 if open_end else 0))
            return [parts[i][1]() if i < len(parts) else make() for i in range(n)]

        return s, instance

    def make_anyOf(self, depth):
        parts = [self.schema(depth - 1) for _ in range(self.rng.randrange(1, 4))]
        return {"anyOf": [p[0] for p in parts]}, lambda: self.rng.choice(parts)[1]()

    def make_allOf(self, depth):
        a, b = self.schema(depth - 1), self.schema(0)
        s = {
            "allOf": [
                {"type": "object", "properties": {"a": a[0]}, "required": ["a"]},
                {"type": "object", "properties": {"b": b[0]}},
            ]
        }
        return s, lambda: {"a": a[1](), **({"b": b[1]()} if self.rng.random() < 0.5 else {})}

    def make_ref(self, depth):
        name = self.rng.choice(["n/1", "t~2", "list"])
        if name not in self.defs:
            self.defs[name] = None  # for references inside
            self.defs[name] = self.schema(depth - 1)
        if self.defs[name] is None:  # inside of itself: an optional place for it
            pointer = "#/$defs/" + name.replace("~", "~0").replace("/", "~1")
            return {"type": "object", "properties": {"next": {"$ref": pointer}}}, lambda: {}
        pointer = "#/$defs/" + name.replace("~", "~0").replace("/", "~1")
        return {"$ref": pointer, "description": "there"}, self.defs[name][1]

    def make_types(self, depth):
        s = {"type": ["integer", "null", "string"], "minimum": 3, "maxLength": 2}
        return s, lambda: self.rng.choice([3, 99, None, "", "ab"])

    def make_nullable(self, depth):
        s, make = self.make_string(depth)
        return {"anyOf": [s, {"type": "null"}]}, lambda: self.rng.choice([None, make()])

    def make_beside(self, depth):
        s = {
            "type": "object",
            "properties": {"k": {"type": "string"}},
            "required": ["k"],
            "anyOf": [
                {"properties": {"u": {"type": "integer"}}, "required": ["u"]},
                {"properties": {"w": {"type": "null"}}},
            ],
        }
        return s, lambda: self.rng.choice([{"k": "x", "u": 1}, {"k": "", "w": None}, {"k": "\\"}])

    def whole(self):
        s, make = self.schema(3)
        if not isinstance(s, dict):
            s = {"anyOf": [s]}
        if self.defs:
            s = dict(s)
            s["$defs"] = {k: v[0] for k, v in self.defs.items()}
        return s, make


def damaged(rng, v):
    """Another value, most often one the schema does not want."""
    if isinstance(v, dict) and v and rng.random() < 0.7:
        v, k = dict(v), rng.choice(list(v))
        if rng.random() < 0.3:
            del v[k]
        else:
            v[k] = damaged(rng, v[k])
        return v
    if isinstance(v, list) and v and rng.random() < 0.7:
        v, i = list(v), rng.randrange(len(v))
        v[i] = damaged(rng, v[i])
        return v
    return rng.choice([None, True, 0, -1, 10**7, 3.5, "", "zzzzzzzzzzzz", [], {}, [1], {"zz": 1}])


def writings(v):
    return [
        json.dumps(v, ensure_ascii=False, separators=(",", ":")),
        json.dumps(v, ensure_ascii=False),
        json.dumps(v, ensure_ascii=False, indent=2),
    ]


# What each refusal must say; %s is the keyword.
REFUSED = [
    ({"type": "object", "properties": {"a": {"not": {}}}}, "#/properties/a: 'not'"),
    ({"items": {"uniqueItems": True}}, "#/items: 'uniqueItems'"),
    ({"type": "string", "pattern": "^(?!x)y$"}, "#: 'pattern: looking ahead'"),
    ({"type": "string", "format": "regex"}, "#: 'format'"),
    (
        {"properties": {"a/b": {"properties": {"c~": {"minimum": "x"}}}}},
        "#/properties/a~1b/properties/c~0: 'minimum'",
    ),
    ({"$ref": "#/$defs/none"}, "#: '$ref' '#/$defs/none' leads to nothing"),
    ({"$ref": "#"}, "#: what it asks for"),
    ({"$ref": "https://example.org/x"}, "'$ref'"),
    ({"type": "thing"}, "#: 'type'"),
    ({"enum": []}, "#: 'enum'"),
    ({"type": "integer", "minimum": 5, "maximum": 4}, "#: 'minimum'"),
    ({"properties": {"a": {"$ref": "#"}}, "required": ["a"]}, "#: what it asks for can never end"),
    ({"anyOf": [{"type": "array", "minItems": 2, "maxItems": 1}]}, "#/anyOf/0: 'minItems'"),
    ({"allOf": [{"type": "string"}, {"type": "null"}]}, "'type'"),
    (False, "#: false"),
    ([], "#: is no schema"),
    ({"type": "string", "minLength": 70000}, "#: 'minLength'"),
    ({"patternProperties": {"^x": {}}}, "#: 'patternProperties'"),
    ({"if": {}}, "#: 'if'"),
]


class Main:
    def __init__(self, path):
        self.p = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, **job):
        self.p.stdin.write(json.dumps(job).encode() + b"\n")
        self.p.stdin.flush()
        return json.loads(self.p.stdout.readline(), strict=False)


def check_random(main, n, seed):
    counts = {"samples": 0, "instances": 0, "damaged": 0, "wrong": 0, "unfinished": 0}
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    for i in range(n):
        rng = random.Random(seed * 1000003 + i)
        schema, make = Maker(rng).whole()
        valid = jsonschema.Draft202012Validator(schema, format_checker=checker)
        good = [v for v in (make() for _ in range(4)) if valid.is_valid(v)]
        bad = [v for v in (damaged(rng, v) for v in good for _ in range(4)) if not valid.is_valid(v)]
        texts = [t for v in good for t in writings(v)] + [json.dumps(v, ensure_ascii=False) for v in bad]
        got = main.ask(schema=schema, texts=texts, samples=4, seed=i + 1)
        if "error" in got:
            counts["wrong"] += 1
            print("FAILED schema %d: refused: %s: %s" % (i, got["error"], json.dumps(schema)[:600]))
            continue
        faults = []
        for text, yes in zip(texts[: 3 * len(good)], got["accepted"]):
            counts["instances"] += 1
            if not yes:
                faults.append("valid and not let through: " + text)
        for text, yes in zip(texts[3 * len(good) :], got["accepted"][3 * len(good) :]):
            counts["damaged"] += 1
            if yes:
                faults.append("not valid and let through: " + text)
        for text in got["samples"]:
            counts["unfinished" if text is None else "samples"] += 1
            if text is None:
                continue
            try:
                value = json.loads(text)
            except ValueError as e:
                faults.append("no JSON: %s: %s" % (e, text))
                continue
            if not valid.is_valid(value):
                why = jsonschema.exceptions.best_match(valid.iter_errors(value)).message
                faults.append("made and not valid: %s: %s" % (why[:200], text))
        for f in faults[:2]:
            counts["wrong"] += 1
            print("FAILED schema %d: %s\n    %s" % (i, f[:500], json.dumps(schema)[:700]))
    return counts


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--n", type=int, default=600)
    p.add_argument("--seed", type=int, default=7)
    p.add_argument("main", nargs="?", default=os.path.join(ROOT, "build/tests/text/schema_main"))
    a = p.parse_args()
    if jsonschema is None or not os.path.exists(a.main):
        print("skip: %s is missing" % ("the package jsonschema" if jsonschema is None else a.main))
        print("0 passed, 0 failed, 1 skipped")
        return 0
    m = Main(a.main)
    passed = failed = 0
    for schema, why in REFUSED:
        got = m.ask(schema=schema, texts=[], samples=0, seed=1)
        if why in got.get("error", "nothing"):
            passed += 1
        else:
            failed += 1
            print("FAILED refusal of %s: %s" % (json.dumps(schema), got.get("error", "none")))
        lenient = m.ask(schema=schema, lenient=True, texts=[], samples=1, seed=1)
        if "not supported" in got.get("error", "") and "error" in lenient:
            failed += 1
            print("FAILED lenient %s: %s" % (json.dumps(schema), lenient["error"]))
    counts = check_random(m, a.n, a.seed)
    print("seed %d: %s" % (a.seed, ", ".join("%d %s" % (v, k) for k, v in counts.items())))
    passed += a.n - counts["wrong"]
    failed += counts["wrong"]
    if counts["instances"] < a.n or counts["samples"] < a.n:
        failed += 1
        print("FAILED schema_oracle: too little was looked at")
    print("ok schema_oracle" if not failed else "FAILED schema_oracle: %d" % failed)
    print("%d passed, %d failed, 0 skipped" % (passed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
