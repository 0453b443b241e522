#!/usr/bin/env python3
"""The page's parts that need no browser: runs tests/web/*.test.mjs with node's own test runner.

    tests/web/units_test.py

Prints ok or FAILED for each case; last line: N passed, N failed, N skipped."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
LEAST = (18, 15)  # the first node whose test runner can be told how to report


def node_version(node):
    out = subprocess.run([node, "--version"], capture_output=True, text=True).stdout
    found = re.match(r"v(\d+)\.(\d+)", out)
    return tuple(map(int, found.groups())) if found else (0, 0)


def main():
    node = shutil.which("node") or shutil.which("nodejs")
    version = node_version(node) if node else (0, 0)
    if version < LEAST:
        print(
            f"skip: {'no node' if not node else 'node %d.%d is too old' % version}: the page's units need it"
        )
        print("0 passed, 0 failed, 1 skipped")
        return 0
    files = sorted(HERE.glob("*.test.mjs"))
    run = subprocess.run(
        [node, "--test", "--test-reporter=tap", *map(str, files)], capture_output=True, text=True, timeout=300
    )
    passed = failed = 0
    # TAP: "ok 3 - name", "not ok 4 - name"; what follows a failure, indented, says why.
    lines = run.stdout.splitlines()
    for i, line in enumerate(lines):
        found = re.match(r"\s*(not ok|ok) \d+ - (.*?)(?: # .*)?$", line)
        if not found or found.group(2).endswith(".test.mjs"):
            continue
        if found.group(1) == "ok":
            passed += 1
            print(f"ok {found.group(2)}")
            continue
        failed += 1
        why = " ".join(x.strip() for x in lines[i + 1 : i + 14] if "stack" not in x and "duration" not in x)
        print(f"FAILED {found.group(2)}: {why[:600]}")
    if run.returncode != 0 and failed == 0:
        failed = 1
        print(f"FAILED node: {(run.stderr or run.stdout)[-600:]}")
    if passed == 0 and failed == 0:
        failed = 1
        print("FAILED node: no test ran")
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
