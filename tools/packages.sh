# shellcheck shell=bash
# Functions over packages.txt, for setup.sh and test.sh: which packages are missing, and their installation.
# Sourced; needs $ROOT. Everything here may be called again at any time.

# Whether one probe of packages.txt holds.
probe_holds() {
    case $1 in
    cmd:*) command -v "${1#*:}" >/dev/null 2>&1 ;;
    pc:*) command -v pkg-config >/dev/null 2>&1 && pkg-config --exists "${1#*:}" ;;
    inc:*) command -v gcc >/dev/null 2>&1 && echo "#include <${1#*:}>" | gcc -E -x c - >/dev/null 2>&1 ;;
    py:*) command -v python3 >/dev/null 2>&1 && python3 -c "import ${1#*:}" >/dev/null 2>&1 ;;
    cc:*)
        # The program has to exist: a probe that wrote nothing would say yes to a broken linker.
        local out
        out=$(mktemp -d) || return 1
        echo 'int LLVMFuzzerTestOneInput(const char *p, long n) { return !p && n; }' |
            clang "${1#*:}" -x c - -o "$out/probe" >/dev/null 2>&1
        [ -x "$out/probe" ] && rm -rf "$out" && return 0
        rm -rf "$out"
        return 1
        ;;
    dir:*) [ -e "${1#*:}" ] ;;
    *) echo "packages.txt: unknown probe $1" >&2 && return 1 ;;
    esac
}

# missing_packages USE...: the lines "PACKAGE[|PACKAGE...] why" of what these uses lack.
missing_packages() {
    local use names probe why
    while read -r use names probe why; do
        case " $* " in *" $use "*) ;; *) continue ;; esac
        probe_holds "$probe" || echo "$names $why"
    done < <(grep -v '^#' "$ROOT/tools/packages.txt" | grep .)
}

# The first of A|B|C that this system can install; the first when none is known.
choose_package() {
    local name clang
    if [[ $1 == *@CLANG@* ]]; then
        clang=$(apt-cache depends clang 2>/dev/null | sed -n 's/.*Depends: clang-\([0-9]*\)$/\1/p' | head -1)
        set -- "${1//@CLANG@/${clang:-14}}"
    fi
    for name in ${1//|/ }; do
        apt-cache show "$name" >/dev/null 2>&1 && echo "$name" && return
    done
    echo "${1%%|*}"
}

# as_root COMMAND...: directly, or through sudo.
as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    else
        sudo "$@"
    fi
}

can_be_root() { [ "$(id -u)" -eq 0 ] || command -v sudo >/dev/null 2>&1; }

# install_packages LINES: the lines of missing_packages, by apt-get. Its output is shown on failure.
install_packages() {
    local names=() line log
    log=$(mktemp) || return 1
    if ! command -v apt-get >/dev/null 2>&1; then
        echo "no apt-get here: install the packages above with the system's own tool, then run this again" >&2
        return 1
    fi
    if ! can_be_root; then
        echo "neither root nor sudo here: install the packages above, then run this again" >&2
        return 1
    fi
    # /dev/null: a package that wants to ask gets no answer instead of waiting for one.
    if ! as_root apt-get -o DPkg::Lock::Timeout=300 update </dev/null >"$log" 2>&1; then
        tail -5 "$log" >&2
        echo "apt-get update failed; trying with the lists that are there" >&2
    fi
    while read -r line; do
        [ -n "$line" ] && names+=("$(choose_package "${line%% *}")")
    done <<<"$1"
    if ! as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y -q \
        --no-install-recommends "${names[@]}" </dev/null >"$log" 2>&1; then
        tail -20 "$log" >&2
        rm -f "$log"
        echo "apt-get install failed" >&2
        return 1
    fi
    rm -f "$log"
}
