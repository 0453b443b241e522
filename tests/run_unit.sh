#!/usr/bin/env bash
# Runs every C test under BUILD/tests (optionally only those whose path holds a word), as many at a time as
# there are processors, and adds up what cmocka counts.
#   tests/run_unit.sh BUILD [WORD]
# Last line: N passed, N failed, N skipped.
set -u
build=${1:-build} word=${2:-}
jobs=$(nproc)
out=$(mktemp -d) || exit 1
trap 'rm -rf "$out"' EXIT
trap 'kill $(jobs -p) 2>/dev/null; exit 130' INT TERM
mapfile -t tests < <(find "$build/tests" -type f -name 't_*' -perm -u+x ! -name '*.d' |
    grep -F -- "$word" | sort)

for i in "${!tests[@]}"; do
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n; done
    {
        "${tests[i]}" >"$out/$i.log" 2>&1
        echo $? >"$out/$i.rc"
    } &
done
wait

passed=0 failed=0 skipped=0
for i in "${!tests[@]}"; do
    log=$(cat "$out/$i.log")
    rc=$(cat "$out/$i.rc")
    p=$(grep -c '^\[       OK \]' <<<"$log")
    s=$(grep -c '^\[  SKIPPED \] [a-z_0-9]*$' <<<"$log")
    s=$((s / 2)) # each stands in the run and in the summary
    f=$(grep -cE '^\[  FAILED  \] [a-z_0-9]+$' <<<"$log")
    # cmocka lists failures twice; a crash lists none.
    if [ "$rc" -ne 0 ]; then
        f=$((f > 1 ? f / 2 : 1))
        printf '%s\n' "$log" | grep -vE '^\[( RUN|       OK)' | tail -60
    else
        f=0
        grep '^skip:' <<<"$log"
    fi
    printf '%-40s %s passed, %s failed, %s skipped\n' "${tests[i]#"$build"/}" "$p" "$f" "$s"
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
