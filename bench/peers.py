#!/usr/bin/env python3
"""mica beside llama.cpp: same files, threads and tests, in turns, with the bandwidth of the same minutes.

    bench/peers.py [--folder DIR] [--rounds 5] [--threads 2] [--prompt 512] [--gen 128] [--files FILE...]

llama.cpp comes as the source in the Python package llama-cpp-python, built natively (about 6 minutes
of two cores, once: DIR keeps it; nothing of it becomes part of the project). Files: SmolLM2-135M (Q4_1, from
mica's cache) and a synthetic Llama of 1B shape (Q4_K_M), unless others are named. A sample during which other
processes used more than --noise of a core is taken again, up to 5 times; what is left stands in the table.
Prints a table for docs/MEASURED.md. Exit 1 when mica is slower anywhere."""

import argparse
import glob
import json
import os
import statistics
import subprocess
import sys
import tarfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MICA = os.path.join(ROOT, "build", "mica")
PACKAGE, VERSION = "llama-cpp-python", "0.3.36"


def run(*command, **kw):
    return subprocess.run(command, check=True, **kw)


def build_peer(folder):
    """The harness linked with a native libllama; path of the program."""
    program = os.path.join(folder, "peer_llama")
    source = os.path.join(folder, f"{PACKAGE.replace('-', '_')}-{VERSION}", "vendor", "llama.cpp")
    build = os.path.join(folder, "build-llama")
    bins = os.path.join(build, "bin")
    os.makedirs(folder, exist_ok=True)
    if not os.path.isdir(source):
        pip = f"-m pip download -q --no-deps --no-binary {PACKAGE} {PACKAGE}=={VERSION} -d"
        run(sys.executable, *pip.split(), folder)
        with tarfile.open(glob.glob(os.path.join(folder, f"*-{VERSION}.tar.gz"))[0]) as t:
            t.extractall(folder)
    if not os.path.exists(os.path.join(bins, "libllama.so")):
        print("building llama.cpp, about 6 minutes", file=sys.stderr)
        options = ["-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON", "-DBUILD_SHARED_LIBS=ON"]
        parts = ("TESTS", "EXAMPLES", "TOOLS", "SERVER", "COMMON")
        options += ["-DLLAMA_CURL=OFF"] + [f"-DLLAMA_BUILD_{x}=OFF" for x in parts]
        run("cmake", "-S", source, "-B", build, *options, stdout=subprocess.DEVNULL)
        jobs = str(os.cpu_count())
        run("cmake", "--build", build, "--target", "llama", "-j", jobs, stdout=subprocess.DEVNULL)
    harness = os.path.join(ROOT, "bench", "peer", "peer_llama.c")
    if not os.path.exists(program) or os.path.getmtime(program) < os.path.getmtime(harness):
        include = [f"-I{source}/include", f"-I{source}/ggml/include"]
        libs = [f"-L{bins}", "-lllama", "-lggml", "-lggml-base", f"-Wl,-rpath,{bins}"]
        run("gcc", "-O2", harness, *include, *libs, "-o", program)
    return program


def busy_seconds():
    """Processor time that this machine has spent on anything."""
    with open("/proc/stat") as f:
        user, nice, system, _, _, irq, soft, steal = map(int, f.readline().split()[1:9])
    return (user + nice + system + irq + soft + steal) / os.sysconf("SC_CLK_TCK")


def quiet(command, noise):
    """The program's JSON and the cores that others used meanwhile; the quietest of up to five samples."""
    best = None
    for _ in range(5):
        before, start, own = busy_seconds(), time.monotonic(), os.times()
        p = run(*command, stdout=subprocess.PIPE, text=True)
        wall, now = time.monotonic() - start, os.times()
        mine = now.children_user - own.children_user + now.children_system - own.children_system
        others = max(0.0, (busy_seconds() - before - mine) / wall)
        if best is None or others < best[1]:
            best = json.loads(p.stdout), others
        if others <= noise:
            break
        time.sleep(2)
    return best


def spread(v):
    return f"{statistics.median(v):.1f} ({min(v):.1f}-{max(v):.1f})" if v else ""


def default_files(folder):
    """SmolLM2 from the cache, and a synthetic model of 1B shape."""
    pull = run(MICA, "pull", "smollm2-135m", stdout=subprocess.PIPE, text=True)
    synth = os.path.join(folder, "llama-1b.q4_k_m.gguf")
    if not os.path.exists(synth):
        shape = "synth --preset llama-1b --quant q4_k_m --seed 1 -o"
        run(MICA, *shape.split(), synth, stdout=subprocess.DEVNULL)
    return [pull.stdout.strip().splitlines()[-1], synth]


def measure(path, peer, a):
    """All rounds of one file: {"pp": (mica's, the peer's), "tg": ...}, bandwidths, noise, bytes a token."""
    speeds = {"pp": ([], []), "tg": ([], [])}
    bounds, noise, n_bytes = [], [], 0
    flags = f"-p {a.prompt} -n {a.gen} -r 1 -t {a.threads} -o json".split()
    for _ in range(a.rounds):
        own, others = quiet([MICA, "bench", "-m", path, *flags], a.noise)
        for one in own:
            speeds[one["test"][:2]][0].append(one["tps"]["median"])
            if "bound_gbps" in one:
                bounds.append(one["bound_gbps"])
                n_bytes = one["bytes_per_token"]
        theirs, others_then = quiet([peer, path, str(a.threads), str(a.prompt), str(a.gen)], a.noise)
        for test in speeds:
            speeds[test][1].append(theirs[test])
        noise += [others, others_then]
    return speeds, bounds, noise, n_bytes


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--folder", default=os.path.join(os.path.expanduser("~"), ".cache", "mica-peers"))
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--threads", type=int, default=2)
    ap.add_argument("--prompt", type=int, default=512)
    ap.add_argument("--gen", type=int, default=128)
    ap.add_argument("--noise", type=float, default=0.1)
    ap.add_argument("--files", nargs="*")
    a = ap.parse_args()
    peer = build_peer(a.folder)
    print(f"{a.rounds} rounds in turns, {a.threads} threads, medians (smallest-largest), tokens a second;")
    print(f"llama.cpp of {PACKAGE} {VERSION}, native build\n")
    print("| file | test | mica | llama.cpp | ratio | read GB/s | share: mica | llama.cpp | others' cores |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    slower = False
    for path in a.files or default_files(a.folder):
        speeds, bounds, noise, n_bytes = measure(path, peer, a)
        for test, (mine, theirs) in speeds.items():
            ratio = statistics.median(mine) / statistics.median(theirs)
            slower |= ratio < 1
            share = ["", ""]
            if test == "tg":
                read = [n_bytes * statistics.median(v) * 1e-9 for v in (mine, theirs)]
                share = [f"{x / statistics.median(bounds):.0%}" for x in read]
            name = f"{os.path.basename(path)} | {test}{a.prompt if test == 'pp' else a.gen}"
            row = [name, spread(mine), spread(theirs), f"{ratio:.2f}", spread(bounds), *share]
            print("| " + " | ".join(row) + f" | {statistics.median(noise):.2f} |", flush=True)
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
