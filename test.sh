#!/usr/bin/env bash
# Installs what the tests need and runs all of them, the quick ones first.
#   ./test.sh                build, second compiler, lint, unit tests, scripts, valgrind (what CI runs)
#   ./test.sh full           and the oracles, the sanitizers, fuzzing: half an hour and more
#   ./test.sh STAGE...       only these; ./test.sh --list names them
# Each stage keeps its whole output in build/test/STAGE.log; here come its skips, its failures and its time. A
# stage counts what its closing lines (`N passed, N failed, N skipped`) say; one that prints none has failed.
# Last line: the sum of all. Exit 0 when nothing failed. Needs no terminal and asks nothing.
set -uo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$ROOT" || exit 1
. tools/packages.sh

QUICK="packages build syntax lint unit scripts valgrind"
ALL="$QUICK asan fuzz oracles tsan"
JOBS=$(nproc)
PY=python3
export PYTHONDONTWRITEBYTECODE=1 PIP_DISABLE_PIP_VERSION_CHECK=1

case ${1:-quick} in
quick) stages=$QUICK ;;
full) stages=$ALL ;;
--list)
    tr ' ' '\n' <<<"$ALL"
    exit 0
    ;;
-*)
    sed -n '2,9s/^# \{0,1\}//p' "$0"
    exit 2
    ;;
*)
    stages="packages $*"
    for s in "$@"; do
        case " $ALL " in *" $s "*) ;; *)
            echo "test.sh: $s: no such stage: there are $ALL" >&2
            exit 2
            ;;
        esac
    done
    ;;
esac

# ---- Stages: each prints closing lines ----

stage_packages() {
    local missing
    missing=$(missing_packages build demo test)
    if [ -z "$missing" ]; then
        echo "all packages are there"
    else
        echo "installing: $(cut -d' ' -f1 <<<"$missing" | tr '\n' ' ')"
        install_packages "$missing"
        missing=$(missing_packages build demo test)
        [ -z "$missing" ] || { echo "FAILED packages: still missing: $missing" && return 1; }
    fi
    missing=$(missing_packages browser)
    [ -z "$missing" ] || install_packages "$missing" || echo "no browser: its tests are skipped"
    echo "1 passed, 0 failed, 0 skipped"
}

stage_build() {
    # -k: all errors at once
    make -k -j"$JOBS" all tests || return 1
    echo "1 passed, 0 failed, 0 skipped"
}

stage_syntax() { make -k -s -j"$JOBS" syntax CC=clang BUILD=build-clang; }
stage_lint() { make -s lint; }
stage_unit() { tests/run_unit.sh build; }

# The processors this process may use.
processors() { python3 -c 'import os; print(*sorted(os.sched_getaffinity(0)))'; }

# next_of FILE: the number in it plus one, which is then the number in it; for several processes at a time.
next_of() {
    local n
    exec 9<>"$1"
    flock 9
    read -r n <"$1"
    echo $((n + 1)) | tee "$1"
    exec 9>&-
}

# scripts_on PROCESSOR OUT SCRIPT...: one after the other, those that no other processor has taken.
scripts_on() {
    local cpu=$1 out=$2 i pin
    shift 2
    while i=$(next_of "$out/next") && [ "$i" -le $# ]; do
        pin=(taskset -c "$cpu")
        case ${!i} in tests/web/*) pin=() ;; esac # a browser is many processes
        {
            echo "== ${!i}"
            # shellcheck disable=SC2086 # words are meant
            "${pin[@]}" $PY ${!i} </dev/null && touch "$out/$i.good"
        } >"$out/$i.log" 2>&1
    done
}

# run_scripts KINDS BUILD: the lines of tests/scripts.txt of these kinds (a|b), one on each processor at a
# time: the models of the tests are so small that threads of one would wait for each other more than compute.
# A script that prints no closing line is one failure.
run_scripts() {
    local rc=0 i lines out=build/test/${1//|/-}-${2//\//_} cpu
    rm -rf "$out" && mkdir -p "$out" || return 1
    mapfile -t lines < <(grep -E "^($1) " tests/scripts.txt | sed -e 's/^[a-z]* *//' -e "s|@B@|$2|")
    echo 0 >"$out/next"
    for cpu in $(processors); do scripts_on "$cpu" "$out" "${lines[@]}" & done
    wait
    for ((i = 1; i <= ${#lines[@]}; i++)); do
        cat "$out/$i.log"
        grep -qE "$CLOSING" "$out/$i.log" || { echo "0 passed, 1 failed, 0 skipped" && rc=1; }
        [ -e "$out/$i.good" ] || rc=1
    done
    return $rc
}

stage_scripts() { run_scripts 'python|golden' build; }

# The virtual environment of the oracles, remade when the list of packages changes.
stage_oracles() {
    local venv=build/venv
    if ! cmp -s tests/requirements.txt $venv/requirements.txt; then
        rm -rf $venv
        if ! { python3 -m venv $venv && $venv/bin/python3 -m pip install -q -r tests/requirements.txt; }; then
            rm -rf $venv
            echo "FAILED oracles: the Python packages of tests/requirements.txt could not be installed"
            return 1
        fi
        cp tests/requirements.txt $venv/requirements.txt
    fi
    # What several scripts read comes before any of them runs.
    if ! $venv/bin/python3 tests/text/vocab_oracle.py --install; then
        echo "FAILED oracles: the packages of tests/text/vocab_oracle.py could not be installed"
        return 1
    fi
    PY=$venv/bin/python3 run_scripts oracle build
}

stage_asan() {
    local rc=0
    make -j"$JOBS" BUILD=build-asan OPT="-O1 -g -fno-omit-frame-pointer" \
        SAN="-fsanitize=address,undefined -fno-sanitize-recover=all" all tests || return 1
    tests/run_unit.sh build-asan || rc=1
    run_scripts golden build-asan || rc=1
    return $rc
}

stage_tsan() {
    local rc=0 flat=()
    # Addresses laid out at random can collide with the shadow memory of older ThreadSanitizers.
    setarch "$(uname -m)" -R true 2>/dev/null && flat=(setarch "$(uname -m)" -R)
    make -j"$JOBS" BUILD=build-tsan OPT="-O1 -g -fno-omit-frame-pointer" SAN="-fsanitize=thread" \
        all tests || return 1
    "${flat[@]}" tests/run_unit.sh build-tsan || rc=1
    PY="${flat[*]} python3" run_scripts golden build-tsan || rc=1
    return $rc
}

# Load, answer, free: no leak and no bad access. (The processor that valgrind shows has no AVX-512.)
stage_valgrind() {
    valgrind -q --leak-check=full --errors-for-leak-kinds=definite,indirect --error-exitcode=99 \
        build/mica run -m tests/fixtures/llama.q4_k_m.gguf -p "Hello" -n 4 --temp 0 -c 256 -t 2 || return 1
    echo "1 passed, 0 failed, 0 skipped"
}

stage_fuzz() { make FUZZ_SECONDS="${FUZZ_SECONDS:-60}" fuzz; }

# ---- The run ----

CLOSING='^[0-9]+ passed, [0-9]+ failed(, [0-9]+ skipped)?$'
# seconds; others 600
declare -A LIMIT=([packages]=900 [build]=900 [unit]=1200 [scripts]=1800)
LIMIT+=([asan]=2400 [tsan]=2400 [fuzz]=1800 [oracles]=1800)
mkdir -p build/test
passed=0 failed=0 skipped=0

# run_stage NAME: runs it with its output in a log, adds its counts.
run_stage() {
    local name=$1 log=build/test/$1.log start=$SECONDS rc p f s
    printf '%-10s ' "$name"
    (
        # A stage that hangs is ended with all it started.
        set -m
        "stage_$name" </dev/null >"$log" 2>&1 &
        job=$!
        # Before the trap: a shell just forked still has its parent's and would lose the signal that ends it.
        (sleep "${LIMIT[$name]:-600}" && echo "FAILED $name: over its time" >>"$log" &&
            kill -- -$job) >/dev/null 2>&1 &
        watch=$!
        trap 'kill -- -$job' INT TERM
        wait $job
        rc=$?
        kill -- -$watch 2>/dev/null
        exit $rc
    ) 2>/dev/null
    rc=$?
    read -r p f s < <(grep -E "$CLOSING" "$log" | tr -c '0-9\n' ' ' |
        awk '{p += $1; f += $2; s += $3} END {print p + 0, f + 0, s + 0}')
    # Nothing counted, or an error that nothing counted.
    if [ $((p + f + s)) -eq 0 ] || { [ "$rc" -ne 0 ] && [ "$f" -eq 0 ]; }; then f=$((f + 1)); fi
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    printf '%5d ok %4d bad %4d skipped  %4d s\n' "$p" "$f" "$s" $((SECONDS - start))
    grep -hE '^(skip: |FAILED )' "$log" | sort -u | head -40 | sed 's/^/    /'
    if [ "$f" -gt 0 ]; then
        echo "    --- the end of $log:"
        tail -30 "$log" | grep -vE '^(ok|FAILED) ' | sed 's/^/    /'
    fi
}

for stage in $stages; do run_stage "$stage"; done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
