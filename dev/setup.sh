#!/usr/bin/env bash
# Installs what Galaxy needs on Debian and Ubuntu: one command, printed before it runs, run as root or by sudo. Where it may not be run, it is
# printed and nothing is changed. On other systems the packages are named. Nothing to do: says nothing, takes no time.
#   dev/setup.sh            what building, the demo and the tests need
#   dev/setup.sh bert       also what `make data-bert` needs
#   dev/setup.sh seq2seq    also what `make data-words` needs
#   dev/setup.sh refs       also what dev/ref and dev/bench need (Python)
# What is missing is said, with what it is for. The exit status is 1 only if something is missing without which it does not work: `need`, not `want`.
set -eu
have() { command -v "$1" >/dev/null 2>&1; }
header() { # HEADER [OPTION]
    printf '#include <%s>\n' "$1" | ${CC:-cc} ${2:-} -E -x c - >/dev/null 2>&1
}

missing= for_what= is_needed=0
want() { # PACKAGES WHAT-FOR: it works without
    missing="$missing $1"
    for_what="$for_what  $1: $2"$'\n'
}
need() {
    want "$@"
    is_needed=1
}
have "${CC:-cc}" || need gcc "compiling"
header stdio.h || need libc6-dev "compiling"
have g++ || need g++ "tests: the headers as C++, and the emulator"
header jansson.h || need libjansson-dev "JSON: configurations, checkpoints"
header oneapi/dnnl/dnnl.h || want libdnnl-dev "the fastest matrix products; without it by Galaxy's own kernels"
header utf8proc.h || want libutf8proc-dev "WordPiece: text beyond ASCII"
header pcre2.h -DPCRE2_CODE_UNIT_WIDTH=8 || want libpcre2-dev "the tokenizers of GPT-2, LLaMA-3, Qwen"
have mpicc || want libopenmpi-dev "mpirun; without it ranks are threads, or processes by TCP"
have mpirun || want openmpi-bin "mpirun; without it ranks are threads, or processes by TCP"
have bible || [ -x /usr/games/bible ] ||
    want "bible-kjv bible-kjv-text" "text to train on; without it another that is here, or yours: make data FILE=mybook.txt"
if [ "${1:-}" = bert ]; then
    [ -f "${WORDNET:-/usr/share/wordnet}/data.noun" ] || need wordnet-base "labelled texts and pairs"
fi
if [ "${1:-}" = seq2seq ]; then
    [ -f "${CMUDICT:-/usr/share/festival/dicts/cmu/cmudict-0.4.out}" ] ||
        need festlex-cmu "words and their pronunciations: CMUdict, for Festival"
fi
if [ "${1:-}" = refs ]; then
    have python3 || need python3 "PyTorch's numbers"
    python3 -c 'import venv, ensurepip' 2>/dev/null || need python3-venv "PyTorch's numbers"
fi
[ -n "$missing" ] || exit 0

stop() { # behind what was said: an error only where it does not work without
    [ "$is_needed" = 1 ] && exit 1
    echo "It works without; going on." >&2
    exit 0
}
if ! have apt-get; then
    printf 'Missing, by the names of Debian:\n%s' "$for_what" >&2
    echo "What there is of them elsewhere:" >&2
    echo "  Fedora:   dnf install gcc gcc-c++ onednn-devel jansson-devel utf8proc-devel pcre2-devel openmpi-devel" >&2
    echo "  Homebrew: brew install gcc onednn jansson utf8proc pcre2 open-mpi" >&2
    stop
fi
install="apt-get install -y --no-install-recommends$missing"
if [ "$(id -u)" = 0 ]; then as=""; elif have sudo; then as="sudo "; else
    printf 'Missing:\n%s' "$for_what" >&2
    echo "As root, run:" >&2
    echo "  apt-get update && $install" >&2
    stop
fi
echo "+ ${as}apt-get update && ${as}$install"
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { ${as}apt-get update && ${as}$install; } >"$log" 2>&1; then
    tail -n 15 "$log" >&2
    printf 'The installation failed. By hand: %sapt-get update && %s%s\nMissing:\n%s' "$as" "$as" "$install" "$for_what" >&2
    stop
fi
