#!/usr/bin/env python3
"""test.sh counts what its stages say and nothing else: a copy of it runs stages made up here.
Last line: N passed, N failed, N skipped."""
import os
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
OVERRIDES = """
ALL="packages good two silent crash failed hang scripts"
stages=${STAGES:-$ALL}
stage_packages() { echo "1 passed, 0 failed, 0 skipped"; }
stage_good() { echo "7 passed, 0 failed, 2 skipped"; echo "skip: a reason"; }
stage_two() { echo "3 passed, 0 failed"; echo "x 9 passed, 9 failed"; echo "4 passed, 0 failed, 0 skipped"; }
stage_silent() { echo "no closing line"; }
stage_crash() { echo "5 passed, 0 failed, 0 skipped"; return 3; }
stage_failed() { echo "FAILED x: why"; echo "1 passed, 2 failed, 0 skipped"; return 1; }
stage_hang() { sleep 600 & sleep 600; echo "5 passed, 0 failed, 0 skipped"; }
stage_scripts() { run_scripts golden build; }
declare -A LIMIT=([hang]=1)
"""
SCRIPTS = {
    "tests/good.py": 'import sys\nassert sys.argv[1] == "build"\nprint("2 passed, 0 failed, 0 skipped")\n',
    "tests/dies.py": 'raise SystemExit("died")\n',
}
WANT = {"good": (7, 0, 2), "two": (7, 0, 0), "silent": (0, 1, 0), "crash": (5, 1, 0), "failed": (1, 2, 0)}
WANT |= {"hang": (0, 1, 0), "scripts": (2, 1, 0), "packages": (1, 0, 0)}


def run(root, stages):
    r = subprocess.run(
        ["bash", "test.sh", "full"],
        cwd=root,
        env=dict(os.environ, STAGES=stages),
        capture_output=True,
        text=True,
        timeout=120,
    )
    return r.returncode, r.stdout.strip().splitlines()


def main():
    passed = failed = 0

    def check(name, good, why):
        nonlocal passed, failed
        passed, failed = passed + bool(good), failed + (not good)
        print(f"ok {name}" if good else f"FAILED {name}: {why}")

    with tempfile.TemporaryDirectory() as root:
        shutil.copytree(os.path.join(ROOT, "tools"), os.path.join(root, "tools"))
        os.mkdir(os.path.join(root, "tests"))
        mark = "# ---- The run ----"
        with open(os.path.join(ROOT, "test.sh")) as f:
            text = f.read()
        text = text.replace("declare -A LIMIT=(", "declare -A IGNORED=(")
        text = text.replace(mark, OVERRIDES + mark)
        SCRIPTS["test.sh"] = text
        SCRIPTS["tests/scripts.txt"] = "golden tests/good.py @B@\ngolden tests/dies.py\npython no.py\n"
        for name, body in SCRIPTS.items():
            with open(os.path.join(root, name), "w") as f:
                f.write(body)
        for stage, (p, f, s) in WANT.items():
            rc, lines = run(root, stage)
            want = f"{p} passed, {f} failed, {s} skipped"
            check(stage, lines[-1] == want and rc == (f > 0), f"exit {rc}, {lines[-1]!r}, wanted {want!r}")
        rc, lines = run(root, " ".join(WANT))
        p, f, s = (sum(w[i] for w in WANT.values()) for i in range(3))
        check("sum", lines[-1] == f"{p} passed, {f} failed, {s} skipped" and rc == 1, lines[-1])
        check("reasons are shown", any("FAILED x: why" in x for x in lines), lines)
        check("skips are shown", any("skip: a reason" in x for x in lines), lines)
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
