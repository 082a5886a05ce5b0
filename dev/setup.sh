#!/usr/bin/env bash
# Installs what Galaxy needs on Debian and Ubuntu: one command, printed before it runs, run as root or by sudo. Where it may not be run, it is
# printed and nothing is changed. On other systems the packages are named. Nothing to do: says nothing, takes no time.
#   dev/setup.sh            what building, the demo and the tests need
#   dev/setup.sh refs       also what dev/ref and dev/bench need (Python)
set -eu
have() { command -v "$1" >/dev/null 2>&1; }
header() { printf '#include <%s>\n' "$1" | ${CC:-cc} -E -x c - >/dev/null 2>&1; }

missing=
need() { missing="$missing $1"; }
have "${CC:-cc}" || need gcc
header stdio.h || need libc6-dev
header oneapi/dnnl/dnnl.h || need libdnnl-dev     # matrix products
header jansson.h || need libjansson-dev           # JSON: configurations, checkpoints
have mpicc || need libopenmpi-dev                 # ranks as processes
have mpirun || need openmpi-bin
have g++ || need g++                              # tests: the headers as C++
have bible || [ -x /usr/games/bible ] || need bible-kjv   # text to train on
if [ "${1:-}" = refs ]; then
    have python3 || need python3
    python3 -c 'import venv, ensurepip' 2>/dev/null || need python3-venv
fi
[ -n "$missing" ] || exit 0

case "$missing" in *bible-kjv*) missing="$missing bible-kjv-text" ;; esac
if ! have apt-get; then
    echo "Missing (Debian's names):$missing" >&2
    echo "Install their counterparts:" >&2
    echo "  Fedora:   dnf install gcc gcc-c++ onednn-devel jansson-devel openmpi-devel" >&2
    echo "  Homebrew: brew install gcc onednn jansson open-mpi" >&2
    exit 1
fi
install="apt-get install -y --no-install-recommends$missing"
if [ "$(id -u)" = 0 ]; then as=""; elif have sudo; then as="sudo "; else
    echo "Missing packages. As root, run:" >&2
    echo "  apt-get update && $install" >&2
    exit 1
fi
echo "+ ${as}apt-get update && ${as}$install"
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { ${as}apt-get update && ${as}$install; } >"$log" 2>&1; then
    tail -n 15 "$log" >&2
    echo "The installation failed. By hand: ${as}apt-get update && ${as}$install" >&2
    exit 1
fi
