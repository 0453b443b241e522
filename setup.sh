#!/usr/bin/env bash
# Sets mica up on Debian or Ubuntu: installs what the build needs, builds, lists the devices, gets a model.
#   ./setup.sh           guided: says what was found and what it will do, asks before each step
#   ./setup.sh --demo    all the way to an answer of a small model, with its speed
#   ./setup.sh --yes     no questions; also what happens without a terminal
#   ./setup.sh --link    also put a link to the program into a folder of PATH
# May be run again at any time: what is there already is left as it is. Outside this folder nothing changes
# but the packages, the cache of models and, with --link or a yes to that question, one link.
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$ROOT"
. tools/packages.sh

demo=0 yes=0 link=ask
for arg in "$@"; do
    case $arg in
    --demo) demo=1 ;;
    --yes | -y) yes=1 ;;
    --link) link=1 ;;
    -h | --help)
        sed -n '2,8s/^# \{0,1\}//p' "$0"
        exit 0
        ;;
    *)
        echo "setup.sh: $arg: unknown option: see ./setup.sh --help" >&2
        exit 2
        ;;
    esac
done
# Questions need somebody to answer them.
[ -t 0 ] && [ -t 1 ] || yes=1

bold='' plain=''
if [ -t 1 ] && [ -z "${NO_COLOR:-}" ] && [ "${TERM:-dumb}" != dumb ]; then
    bold=$'\e[1m' plain=$'\e[0m'
fi
step() { printf '\n%s%s%s\n' "$bold" "$1" "$plain"; }
say() { printf "  %s\n" "$*"; }
die() {
    printf 'setup.sh: %s\n' "$1" >&2
    exit 1
}

# ask QUESTION: yes unless the answer starts with n.
ask() {
    [ "$yes" -eq 1 ] && return 0
    local answer
    read -r -p "  $1 [Y/n] " answer || return 1
    case $answer in [nN]*) return 1 ;; *) return 0 ;; esac
}

cache_folder() {
    if [ -n "${MICA_HOME:-}" ]; then
        echo "$MICA_HOME"
    else
        case ${XDG_CACHE_HOME:-} in
        /*) echo "$XDG_CACHE_HOME/mica" ;;
        *) echo "${HOME:-~}/.cache/mica" ;;
        esac
    fi
}

gpu_drivers() {
    local found=''
    ldconfig -p 2>/dev/null | grep -q 'libamdhip64\.so' && found="AMD (HIP)"
    ldconfig -p 2>/dev/null | grep -q 'libcuda\.so' && found="${found:+$found, }NVIDIA (CUDA)"
    echo "${found:-none: the processor does the work}"
}

# ---- What is here ----
step "mica set-up"
system=$(. /etc/os-release 2>/dev/null && echo "${PRETTY_NAME:-}") || true
say "system      ${system:-unknown}, $(uname -m)"
say "machine     $(nproc) processors," \
    "$(awk '/MemTotal/ {printf "%.0f GiB memory", $2 / 1048576}' /proc/meminfo)"
say "GPU driver  $(gpu_drivers)"
say "program     $([ -x build/mica ] && echo "$ROOT/build/mica, built before" || echo 'not built yet')"
say "models      $(cache_folder)/models"

uses=(build)
[ "$demo" -eq 1 ] && uses+=(demo)
missing=$(missing_packages "${uses[@]}")

step "What will happen"
if [ -n "$missing" ]; then
    say "1. install these packages with apt-get$([ "$(id -u)" -eq 0 ] || echo ' (through sudo)'):"
    while read -r name why; do printf '       %-24s %s\n' "${name%%|*}" "$why"; done <<<"$missing"
else
    say "1. no package to install: all are there"
fi
say "2. build the program into $ROOT/build"
say "3. list the devices it can use"
if [ "$demo" -eq 1 ]; then
    say "4. get the model smollm2-135m (98 MB) into $(cache_folder)/models,"
    say "   unless it is there, and ask it something"
elif [ "$yes" -eq 0 ]; then
    say "4. offer a link in PATH and a first small model, and ask for both then"
fi
ask "go on?" || die "nothing was changed"

# ---- Packages ----
if [ -n "$missing" ]; then
    step "Packages"
    install_packages "$missing" || die "the packages could not be installed"
    still=$(missing_packages "${uses[@]}")
    [ -z "$still" ] || die "still missing after the installation: $(cut -d' ' -f1 <<<"$still" | tr '\n' ' ')"
    say "installed"
fi

# ---- Build ----

# make with its output in the log; tells how far it is: over and over on a terminal, else every 30 seconds.
build_all() {
    local total job rc=0 n told=0
    total=$(make -n all 2>/dev/null | grep -cE '^echo "  (CC|LD) ') || true
    make -j"$(nproc)" all >build/setup.log 2>&1 &
    job=$!
    trap 'kill $job 2>/dev/null; exit 130' INT
    while kill -0 $job 2>/dev/null; do
        n=$(grep -cE '^  (CC|LD) ' build/setup.log) || true
        if [ -t 1 ]; then
            printf '\r  %s of %s files' "$n" "$total"
        elif [ $(($(date +%s) - start)) -ge $((told + 30)) ]; then
            told=$(($(date +%s) - start))
            say "$n of $total files, $told s"
        fi
        sleep 0.5
    done
    wait $job || rc=$?
    trap - INT
    [ -t 1 ] && printf '\r\033[K'
    return $rc
}

step "Build"
mkdir -p build
start=$(date +%s)
say "one to four minutes on two processors; the output goes to build/setup.log"
if ! build_all; then
    grep -E 'error|Error|undefined|\*\*\*' build/setup.log | head -20 >&2
    die "the build failed: all of its output is in build/setup.log"
fi
say "$(build/mica version | head -1) is build/mica, ready after $(($(date +%s) - start)) s"

step "Devices"
build/mica devices || die "listing the devices failed"

# ---- A link in PATH ----
bin_folder() { if [ "$(id -u)" -eq 0 ]; then echo /usr/local/bin; else echo "$HOME/.local/bin"; fi; }
guided=$((1 - (yes | demo)))
if [ "$link" = ask ] && [ $guided -eq 1 ] && ! command -v mica >/dev/null 2>&1; then
    step "Command"
    if ask "make a link $(bin_folder)/mica, so that \`mica\` works everywhere?"; then link=1; fi
fi
if [ "$link" = 1 ]; then
    target=$(bin_folder)/mica
    if [ -e "$target" ] && [ ! -L "$target" ]; then
        die "$target is there and no link: it is left alone"
    fi
    mkdir -p "$(bin_folder)"
    ln -sfn "$ROOT/build/mica" "$target"
    say "$target -> $ROOT/build/mica (remove it with: rm $target)"
    case ":$PATH:" in
    *":$(bin_folder):"*) ;;
    *) say "$(bin_folder) is not in PATH yet: open a new shell or add it" ;;
    esac
fi

# ---- A first answer ----
if [ $guided -eq 1 ]; then
    step "First model"
    if ask "get the small model smollm2-135m (98 MB) into $(cache_folder)/models?"; then
        more=$(missing_packages demo)
        [ -z "$more" ] || install_packages "$more" || say "not all packages could be installed"
        build/mica pull smollm2-135m || die "the model could not be fetched; run this again to go on"
    fi
fi
if [ "$demo" -eq 1 ]; then
    step "Model"
    build/mica pull smollm2-135m || die "the model could not be fetched; run this again to go on"
    step "Answer"
    prompt="Explain in two sentences why the sky is blue."
    say "> $prompt"
    answer=(build/mica run -m smollm2-135m -p "$prompt" -n 96 --temp 0)
    if [ -t 1 ]; then
        "${answer[@]}" || die "the model gave no answer"
    else # the answer ends without a line break there: the speed goes below it
        "${answer[@]}" 2>build/answer.log || { cat build/answer.log >&2 && die "the model gave no answer"; }
        echo
        tail -1 build/answer.log
    fi
fi

step "What next"
say "build/mica run -m smollm2-135m             chat in this terminal"
say "build/mica pull hf:ORG/REPO:QUANT          another model"
say "build/mica help                            every command"
