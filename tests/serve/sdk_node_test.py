#!/usr/bin/env python3
"""The official JavaScript clients of OpenAI and Anthropic against the server: the cases are in sdk_node.mjs.

    tests/serve/sdk_node_test.py [BUILD]

Installs the packages below BUILD once; without node, npm or a registry everything is a skip."""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

from serving import Bench, ROOT

PACKAGES = ["openai@6.49.0", "@anthropic-ai/sdk@1.14.0"]


def install(folder):
    """None, or why it could not be done."""
    for program in ("node", "npm"):
        if not shutil.which(program):
            return f"no {program}"
    stamp = folder / "installed.txt"
    if stamp.exists() and stamp.read_text() == " ".join(PACKAGES):
        return None
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "package.json").write_text("{}")
    argv = ["npm", "install", "--prefix", str(folder), "--silent", "--no-fund", "--no-audit"]
    argv += ["--ignore-scripts", *PACKAGES]
    p = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=300)
    if p.returncode:
        return f"npm install: {(p.stderr or p.stdout).strip()[-200:]}"
    stamp.write_text(" ".join(PACKAGES))
    return None


def main():
    build = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build").resolve()
    why = install(build / "node-clients")
    if why:
        print(f"skip: all: {why}")
        print("0 passed, 0 failed, 1 skipped")
        return 0
    n = {True: 0, False: 0}
    with tempfile.TemporaryDirectory(prefix="mica serve ") as tmp:
        with Bench(build, pathlib.Path(tmp)).start() as s:
            script = pathlib.Path(__file__).with_name("sdk_node.mjs")
            argv = ["node", str(script), str(build / "node-clients"), str(s.port)]
            p = subprocess.run(argv, capture_output=True, text=True, timeout=300)
    for line in p.stdout.splitlines():
        v = json.loads(line)
        n[v["why"] is None] += 1
        print(f"ok {v['case']}" if v["why"] is None else f"FAILED {v['case']}: {v['why']}")
    if p.returncode or not n[True]:
        n[False] += 1
        print(f"FAILED node: {p.stderr.strip()[-400:]}")
    print(f"{n[True]} passed, {n[False]} failed, 0 skipped")
    return 1 if n[False] else 0


if __name__ == "__main__":
    sys.exit(main())
