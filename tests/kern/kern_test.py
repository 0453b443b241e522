#!/usr/bin/env python3
"""What the compiler made of the kernels for AMD's cards: registers, spills, scratch, shared memory,
occupancy, and the instructions that make them fast. No card is needed.

    tests/kern/kern_test.py BUILD [--record]

BUILD/kern/gfx*.co are the objects of `make kern-amd`. A kernel that spills or uses scratch fails, and so does
one that takes more registers or shared memory, or runs fewer waves, than resources.txt beside this file
says: a change that needs more records it (--record) in the same commit.
Last line: N passed, N failed, N skipped."""

import os
import re
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
TABLE = os.path.join(HERE, "resources.txt")
TARGETS = [
    f"gfx{n}" for n in "906 1030 1031 1032 1100 1101 1102 1103 1150 1151 1152 1200 1201".split()
]
FULL_FILE = {"gfx1100", "gfx1101", "gfx1151", "gfx1200", "gfx1201"}  # half as many registers again
FIELDS = ("vgpr", "sgpr", "lds", "waves")
counts = {"ok": 0, "FAILED": 0, "skip": 0}


def say(word, text):
    counts[word] += 1
    print(f"{word}{':' if word == 'skip' else ''} {text}", flush=True)


def tool(name):
    return shutil.which(f"{name}-19") or shutil.which(name)


def output(name, *args):
    return subprocess.run([tool(name), *args], check=True, capture_output=True, text=True).stdout


def waves(target, vgpr):
    """Waves of one SIMD unit that the vector registers leave room for (sizes: LLVM's AMDGPUBaseInfo)."""
    if target == "gfx906":
        file, granule, most = 256, 4, 10
    elif target in FULL_FILE:
        file, granule, most = 1536, 24, 16
    else:
        file, granule, most = 1024, 16, 16
    return min(most, file // max(granule, -(-vgpr // granule) * granule))


def notes(path):
    """{kernel: {field: number}} from the object's metadata."""
    text = output("llvm-readelf", "--notes", path)
    found = {}
    for part in re.split(r"\n  - \.args:", text)[1:]:
        field = dict(re.findall(r"\n    \.(\w+): +(\S+)", part))
        found[field["name"]] = {k: int(v) for k, v in field.items() if v.isdigit()}
    return found


def resources(target, kernels):
    return {
        k: (f["vgpr_count"], f["sgpr_count"], f["group_segment_fixed_size"], waves(target, f["vgpr_count"]))
        for k, f in kernels.items()
    }


def read_table():
    table = {}
    with open(TABLE, encoding="utf-8") as f:
        for line in f:
            word = line.split("#")[0].split()
            if word:
                table.setdefault(word[0], {})[word[1]] = tuple(map(int, word[2:6]))
    return table


def write_table(table):
    with open(TABLE, "w", encoding="utf-8") as f:
        f.write("# target kernel vector-registers scalar-registers shared-bytes waves; --record\n")
        for target in TARGETS:
            for kernel, r in sorted(table.get(target, {}).items()):
                f.write(f"{target} {kernel} {' '.join(map(str, r))}\n")


def check_spills(target, kernels):
    bad = [
        f"{k}: {f['vgpr_spill_count']} vector, {f['sgpr_spill_count']} scalar spills, {n} bytes of scratch"
        for k, f in sorted(kernels.items())
        if (n := f["private_segment_fixed_size"]) or f["vgpr_spill_count"] or f["sgpr_spill_count"]
    ]
    why = f": {'; '.join(bad[:5])}" if bad else ""
    say("FAILED" if bad else "ok", f"{target} no spills and no scratch{why}")


def check_growth(target, now, recorded):
    bad = [f"{k}: not recorded" for k in now if k not in recorded]
    for k, r in now.items():
        was = recorded.get(k, r)
        pairs = zip(FIELDS, r, was)
        worse = [f"{n} {b} -> {a}" for n, a, b in pairs if (a < b if n == "waves" else a > b)]
        if worse:
            bad.append(f"{k}: {', '.join(worse)}")
    text = f"{target} {len(now)} kernels within resources.txt"
    why = f": {'; '.join(bad[:5])} (of {len(bad)}); --record" if bad else ""
    say("FAILED" if bad else "ok", text + why)


def bodies(path):
    """{kernel: instructions}"""
    text = output("llvm-objdump", "-d", path)
    parts = re.split(r"\n[0-9a-f]+ <(\w+)>:\n", text)
    return dict(zip(parts[1::2], parts[2::2]))


def check_instructions(target, path):
    dot = {"gfx906": r"v_dot4_i32_i8", "gfx103": r"v_dot4c?_i32_i8"}.get(target[:6], r"v_dot4_i32_iu8")
    wide = r"global_load_(dwordx[234]|b(64|96|128))|s_load"
    code = bodies(path)
    products = [k for k in code if re.match(r"(token|prompt)_(?!f32|f16|bf16)", k)]
    no_dot = [k for k in products if not re.search(dot, code[k])]
    no_wide = [k for k in products if not re.search(wide, code[k])]
    if not products:
        say("FAILED", f"{target} instructions: no product kernels")
    elif no_dot or no_wide:
        say("FAILED", f"{target}: without {dot}: {no_dot[:5]}; without wide loads: {no_wide[:5]}")
    else:
        say("ok", f"{target} {len(products)} product kernels use {dot} and wide loads")


def main():
    build = next((a for a in sys.argv[1:] if not a.startswith("-")), "build")
    if not tool("llvm-readelf") or not tool("llvm-objdump"):
        say("skip", "kernels for AMD: no llvm-readelf")
    table = {} if not os.path.exists(TABLE) else read_table()
    for target in TARGETS if not counts["skip"] else ():
        path = os.path.join(build, "kern", f"{target}.co")
        if not os.path.exists(path):
            say("skip", f"{target}: {path} is not built (make kern-amd)")
            continue
        kernels = notes(path)
        if "--record" in sys.argv:
            table[target] = resources(target, kernels)
        check_spills(target, kernels)
        if target in table:
            check_growth(target, resources(target, kernels), table[target])
        else:
            say("skip", f"{target} growth: not recorded yet (--record)")
        check_instructions(target, path)
    if "--record" in sys.argv:
        write_table(table)
    print(f"{counts['ok']} passed, {counts['FAILED']} failed, {counts['skip']} skipped")
    return 1 if counts["FAILED"] else 0


if __name__ == "__main__":
    sys.exit(main())
