#!/usr/bin/env bash
# The CPU products on another machine: bits of every table against the scalar definition, then speed.
#   bench/device_cpu.sh pack [DIR]   here: build and put programs and every library they need into DIR
#   bench/device_cpu.sh run  [DIR]   there: test, measure; the log goes to stdout (and to $OUT/device_cpu.log)
# DIR (default build/device_cpu) is self-contained: nothing needs to be installed there.
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:-run} dir=${2:-build/device_cpu}

pack() {
    make -s build/tests/quant/t_quant_isa build/bench/quant_bench
    rm -rf "$dir"
    mkdir -p "$dir"
    cp build/tests/quant/t_quant_isa build/bench/quant_bench "$dir"
    ldd build/tests/quant/t_quant_isa build/bench/quant_bench | grep -o '/[^ ]*\.so[^ ]*' | sort -u |
        xargs -I{} cp -L {} "$dir"
    du -sh "$dir"
}

start() { "$dir"/ld-linux-x86-64.so.2 --library-path "$dir" "$@"; }

measure() {
    lscpu | grep -E "Model name|^CPU.s.:|^L[123]|MHz" || true
    grep -o -m1 -w "avx512_vnni" /proc/cpuinfo || echo "no avx512_vnni"
    start "$dir"/t_quant_isa 2>&1 | grep -vE '^\[ RUN'
    start "$dir"/quant_bench --rounds "${ROUNDS:-5}"
    start "$dir"/quant_bench --rounds "${ROUNDS:-5}" --isa avx2 q4_1 q4_k q5_k q6_k q8_0 f16
}

case $what in
pack) pack ;;
run) measure 2>&1 | tee "${OUT:-$dir}/device_cpu.log" ;;
*) sed -n 2,5p "$0" && exit 2 ;;
esac
