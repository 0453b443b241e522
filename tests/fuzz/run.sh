#!/usr/bin/env bash
# Runs every fuzz target for its share of the time, from the corpus of earlier runs and from fresh seeds.
#   tests/fuzz/run.sh BUILD SECONDS
# A target NAME is BUILD/tests/fuzz/fuzz_NAME. Beside its source there may be seed_NAME.c (a program that
# writes seeds into the folder given to it), seeds_NAME/, fuzz_NAME.dict. What fails is kept in BUILD/crash.
# Last line: N passed, N failed, N skipped.
set -u
build=${1:-build-fuzz} seconds=${2:-60}
passed=0 failed=0
targets=$(find "$build/tests/fuzz" -maxdepth 1 -type f -name 'fuzz_*' -perm -u+x | sort)
[ -n "$targets" ] || { echo "no fuzz target in $build/tests/fuzz"; exit 1; }
share=$((seconds / $(wc -w <<<"$targets")))
[ "$share" -gt 0 ] || share=1
for t in $targets; do
    name=$(basename "$t") && name=${name#fuzz_}
    corpus=$build/corpus/$name
    mkdir -p "$corpus" "$build/crash"
    [ -x "$build/tests/fuzz/seed_$name" ] && "$build/tests/fuzz/seed_$name" "$corpus"
    [ -d "tests/fuzz/seeds_$name" ] && cp -n "tests/fuzz/seeds_$name"/* "$corpus"
    dict=()
    [ -f "tests/fuzz/fuzz_$name.dict" ] && dict=("-dict=tests/fuzz/fuzz_$name.dict")
    log=$build/fuzz_$name.log
    if "$t" "$corpus" -max_total_time="$share" -timeout=5 -rss_limit_mb=512 -max_len=16384 \
        -print_final_stats=1 -artifact_prefix="$build/crash/$name-" "${dict[@]}" >"$log" 2>&1; then
        passed=$((passed + 1))
        echo "ok $name: $(sed -n 's/^stat::number_of_executed_units: //p' "$log") runs in $share s," \
            "$(find "$corpus" -type f | wc -l) inputs kept"
    else
        failed=$((failed + 1))
        grep -vE '^#[0-9]+' "$log" | tail -40
        echo "FAILED $name: see $log"
    fi
done
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
