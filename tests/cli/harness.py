"""What the tests of the command share: running it, its errors as one line, cases and how they are counted."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "tests" / "fixtures"
LLAMA = FIXTURES / "llama.q4_k_m.gguf"
QWEN3 = FIXTURES / "qwen3.q4_k_m.gguf"
MOE = FIXTURES / "qwen3_moe.q4_k_m.gguf"

CASES = []


class Failed(Exception):
    pass


class Skip(Exception):
    pass


def case(fn):
    CASES.append(fn)
    return fn


def need(condition, why):
    if not condition:
        raise Failed(why)


class Result:
    def __init__(self, rc, out, err, argv):
        self.rc, self.raw, self.err, self.argv = rc, out, err, argv
        self.out = out.decode("utf-8", "replace")

    def ok(self):
        need(self.rc == 0, f"{self.argv}: exit {self.rc}: {self.err.strip()[-300:]}")
        return self

    def fails(self, code, *words):
        """This exit code, and one line `mica: thing: what: why` with these words in it."""
        need(self.rc == code, f"{self.argv}: exit {self.rc} instead of {code}: {self.err.strip()[-300:]}")
        lines = [l for l in self.err.splitlines() if l]
        need(lines, f"{self.argv}: no message")
        last = lines[-1]
        need(re.match(r"mica: .+: .+", last), f"{self.argv}: not `mica: thing: why`: {last}")
        for w in words:
            need(w in last, f'{self.argv}: no "{w}" in: {last}')
        return self

    def json(self):
        self.ok()
        return json.loads(self.out)

    def lines(self):
        self.ok()
        return [json.loads(l) for l in self.out.splitlines()]


class Bench:
    """What the cases share: the program, a folder that goes away, an environment of our own."""

    def __init__(self, build, tmp):
        self.mica, self.build, self.tmp = str(build / "mica"), build, tmp
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp / "home"),
            "MICA_HOME": str(tmp / "cache"),
            "TERM": "xterm",
            "LC_ALL": "C.UTF-8",
        }
        for k in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS"):
            if k in os.environ:
                self.env[k] = os.environ[k]
        (tmp / "home").mkdir()

    def __call__(self, *argv, stdin=None, env=None, timeout=60, cwd=None):
        argv = [a if isinstance(a, bytes) else str(a) for a in argv]
        given = (
            {"stdin": subprocess.DEVNULL}
            if stdin is None
            else {"input": stdin.encode() if isinstance(stdin, str) else stdin}
        )
        p = subprocess.run(
            [self.mica, *argv],
            capture_output=True,
            env=self.env if env is None else env,
            timeout=timeout,
            cwd=cwd,
            **given,
        )
        return Result(
            p.returncode, p.stdout, p.stderr.decode("utf-8", "replace"), " ".join(map(str, argv))[:120]
        )

    def run(self, *argv, model=LLAMA, **kw):
        return self("run", "-m", model, *argv, **kw)

    def answer(self, *argv, model=LLAMA, prompt="Capital of Cyprus?", temp="0", **kw):
        """The last JSON line of an answer."""
        temps = [] if temp is None else ["--temp", temp]
        lines = self.run("-p", prompt, "--json", *temps, *argv, model=model, **kw).lines()
        need(lines[-1]["type"] == "done", "the last line is not done")
        need(
            "".join(l["text"] for l in lines[:-1]) == lines[-1]["text"],
            "the tokens' texts are not the text",
        )
        need([l["id"] for l in lines[:-1]] == lines[-1]["ids"], "the tokens' ids are not the ids")
        return lines[-1]

    def pulled(self, name):
        """A folder as a pull leaves it, with the small model in it; the caller takes it away again."""
        folder = self.tmp / "cache" / "models" / name
        folder.mkdir(parents=True)
        (folder / "m.gguf").write_bytes(LLAMA.read_bytes())
        record = {"name": "m.gguf", "bytes": LLAMA.stat().st_size, "sha256": "", "validator": ""}
        (folder / "pull.json").write_text(json.dumps({"name": name, "files": [record]}))
        return folder

    def file(self, name, content):
        path = self.tmp / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path


def attempt(fn, t):
    """None when the case passes, else what it prints: "skip: ..." or "FAILED ..."."""
    try:
        fn(t)
        return None
    except Skip as why:
        return f"skip: {fn.__name__}: {why}"
    except Failed as why:
        return f"FAILED {fn.__name__}: {why}"
    except Exception as why:  # a result of another shape than expected
        return f"FAILED {fn.__name__}: {type(why).__name__}: {why}"


def main():
    """SCRIPT [BUILD] [WORD]: BUILD holds the program, WORD picks the cases that hold it."""
    build = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build").resolve()
    word = sys.argv[2] if len(sys.argv) > 2 else ""
    count = {"ok": 0, "FAILED": 0, "skip:": 0}
    with tempfile.TemporaryDirectory(prefix="mica cli ") as tmp:
        t = Bench(build, pathlib.Path(tmp))
        for fn in CASES:
            if word not in fn.__name__:
                continue
            start = time.time()
            line = attempt(fn, t) or f"ok {fn.__name__} ({time.time() - start:.1f} s)"
            count[line.split()[0]] += 1
            print(line, flush=True)
    print(f"{count['ok']} passed, {count['FAILED']} failed, {count['skip:']} skipped")
    return 1 if count["FAILED"] or not count["ok"] else 0
