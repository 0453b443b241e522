#!/usr/bin/env bash
# The CPU path on another machine: bits of every table against the scalar definition, whole models and their
# state too, then speed of the products and of a model of 1B shape.
#   bench/device_cpu.sh pack [DIR]   here: build and put programs and every library they need into DIR
#   bench/device_cpu.sh run  [DIR]   there: test, measure; the log goes to stdout (and to $OUT/device_cpu.log)
# DIR (default build/device_cpu) is self-contained: nothing needs to be installed there.
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:-run} dir=${2:-build/device_cpu}

TESTS="quant/t_quant_isa dev/t_dev_cpu run/t_bits run/t_state"

pack() {
    local programs="build/mica build/bench/quant_bench" t
    for t in $TESTS; do programs+=" build/tests/$t"; done
    # shellcheck disable=SC2086 # words are meant
    make -s -j"$(nproc)" $programs
    rm -rf "$dir"
    mkdir -p "$dir"
    # shellcheck disable=SC2086
    cp $programs "$dir"
    # shellcheck disable=SC2086
    ldd $programs | grep -o '/[^ ]*\.so[^ ]*' | sort -u | xargs -I{} cp -L {} "$dir"
    strip "$dir"/* 2>/dev/null || true
    du -sh "$dir"
}

start() { "$dir"/ld-linux-x86-64.so.2 --library-path "$dir" "$@"; }

measure() {
    local t isa n
    lscpu | grep -E "Model name|^CPU.s.:|^L[123]|MHz" || true
    grep -o -m1 -w "avx512_vnni" /proc/cpuinfo || echo "no avx512_vnni"
    for t in $TESTS; do
        echo "== $t"
        start "$dir/${t#*/}" 2>&1 | grep -vE '^\[ RUN'
    done
    start "$dir"/quant_bench --rounds "${ROUNDS:-5}"
    start "$dir"/quant_bench --rounds "${ROUNDS:-5}" --isa avx2 q4_1 q4_k q5_k q6_k q8_0 f16
    start "$dir"/mica synth --preset llama-1b --quant q4_k_m -o "$dir"/1b.gguf
    for n in 2 8 16; do
        for isa in avx512 avx2; do
            echo "== $isa, $n threads"
            start "$dir"/mica bench -m "$dir"/1b.gguf -t $n --isa $isa -r "${ROUNDS:-5}"
        done
    done
    rm -f "$dir"/1b.gguf
}

case $what in
pack) pack ;;
run) measure 2>&1 | tee "${OUT:-$dir}/device_cpu.log" ;;
*) sed -n 2,6p "$0" && exit 2 ;;
esac
