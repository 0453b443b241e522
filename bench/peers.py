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
    lib = os.path.join(build, "bin", "libllama.so")
    os.makedirs(folder, exist_ok=True)
    if not os.path.isdir(source):
        run(
            sys.executable,
            "-m",
            "pip",
            "download",
            "-q",
            "--no-deps",
            "--no-binary",
            PACKAGE,
            "-d",
            folder,
            f"{PACKAGE}=={VERSION}",
        )
        with tarfile.open(glob.glob(os.path.join(folder, f"*-{VERSION}.tar.gz"))[0]) as t:
            t.extractall(folder)
    if not os.path.exists(lib):
        print("building llama.cpp, about 6 minutes", file=sys.stderr)
        off = [
            "LLAMA_CURL",
            "LLAMA_BUILD_TESTS",
            "LLAMA_BUILD_EXAMPLES",
            "LLAMA_BUILD_TOOLS",
            "LLAMA_BUILD_SERVER",
            "LLAMA_BUILD_COMMON",
        ]
        run(
            "cmake",
            "-S",
            source,
            "-B",
            build,
            "-DCMAKE_BUILD_TYPE=Release",
            "-DGGML_NATIVE=ON",
            "-DBUILD_SHARED_LIBS=ON",
            *[f"-D{x}=OFF" for x in off],
            stdout=subprocess.DEVNULL,
        )
        run(
            "cmake",
            "--build",
            build,
            "--target",
            "llama",
            "-j",
            str(os.cpu_count()),
            stdout=subprocess.DEVNULL,
        )
    mine = os.path.join(ROOT, "bench", "peer", "peer_llama.c")
    if not os.path.exists(program) or os.path.getmtime(program) < os.path.getmtime(mine):
        bins = os.path.dirname(lib)
        run(
            "gcc",
            "-O2",
            mine,
            "-I",
            os.path.join(source, "include"),
            "-I",
            os.path.join(source, "ggml", "include"),
            "-L",
            bins,
            "-lllama",
            "-lggml",
            "-lggml-base",
            f"-Wl,-rpath,{bins}",
            "-o",
            program,
        )
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


def median(v):
    return statistics.median(v) if v else float("nan")


def spread(v):
    return f"{median(v):.1f} ({min(v):.1f}-{max(v):.1f})"


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
    files = a.files or []
    if not files:
        smol = (
            run(MICA, "pull", "smollm2-135m", stdout=subprocess.PIPE, text=True)
            .stdout.strip()
            .splitlines()[-1]
        )
        synth = os.path.join(a.folder, "llama-1b.q4_k_m.gguf")
        if not os.path.exists(synth):
            run(
                MICA,
                "synth",
                "--preset",
                "llama",
                "--quant",
                "q4_k_m",
                "--seed",
                "1",
                "-o",
                synth,
                stdout=subprocess.DEVNULL,
            )
        files = [smol, synth]
    print(
        f"{a.rounds} rounds in turns, {a.threads} threads, medians (smallest-largest), tokens a second; "
        f"llama.cpp of {PACKAGE} {VERSION}, native build\n"
    )
    print(
        "| file | test | mica | llama.cpp | ratio | read GB/s | share: mica | llama.cpp | others' cores |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    slower = False
    for path in files:
        rows = {"pp": ([], []), "tg": ([], [])}
        bounds, noise, n_bytes = [], [], 0
        for _ in range(a.rounds):
            own, others = quiet(
                [
                    MICA,
                    "bench",
                    "-m",
                    path,
                    "-p",
                    str(a.prompt),
                    "-n",
                    str(a.gen),
                    "-r",
                    "1",
                    "-t",
                    str(a.threads),
                    "--json",
                ],
                a.noise,
            )
            for one in own:
                rows[one["test"][:2]][0].append(one["tps"]["median"])
                if "bound_gbps" in one:
                    bounds.append(one["bound_gbps"])
                    n_bytes = one["bytes_per_token"]
            theirs, other_noise = quiet([peer, path, str(a.threads), str(a.prompt), str(a.gen)], a.noise)
            for test in rows:
                rows[test][1].append(theirs[test])
            noise += [others, other_noise]
        for test, (mine, his) in rows.items():
            ratio = median(mine) / median(his)
            slower |= ratio < 1
            shares = "| |"
            if test == "tg":
                share = [n_bytes * median(v) * 1e-9 / median(bounds) for v in (mine, his)]
                shares = f"{share[0]:.0%} | {share[1]:.0%} |"
            size = a.prompt if test == "pp" else a.gen
            print(
                f"| {os.path.basename(path)} | {test}{size} | {spread(mine)} | {spread(his)} | {ratio:.2f} | "
                f"{spread(bounds)} | {shares} {median(noise):.2f} |",
                flush=True,
            )
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
