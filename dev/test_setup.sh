#!/usr/bin/env bash
# What dev/setup.sh says, and how it ends, where packages are missing: on a system that has no other commands than those that are put there, and
# headers as its compiler says. Nothing is installed.
set -u
cd "$(dirname "$0")/.."
unset CC WORDNET CMUDICT
. dev/check.sh
system() { # COMMANDS HEADERS: what there is; no COMMAND is cc
    rm -rf "$tmp/bin" && mkdir "$tmp/bin"
    for name in cc $1; do printf '#!%s\nexit 1\n' "$BASH" >"$tmp/bin/$name"; done
    printf '#!%s\nread -r line\nfor h in %s; do [ "$line" = "#include <$h>" ] && exit 0; done\nexit 1\n' "$BASH" "$2" >"$tmp/bin/cc"
    chmod +x "$tmp/bin"/*
}
ends() { # STATUS WORDS [ARGUMENT]: the status of dev/setup.sh, and what it says; WORDS "": nothing at all
    local said status
    said=$(PATH="$tmp/bin" "$BASH" dev/setup.sh ${3:-} 2>&1)
    status=$?
    echo "status $status: $said"
    [ "$status" = "$1" ] && if [ -n "$2" ]; then [[ $said == *"$2"* ]]; else [ -z "$said" ]; fi
}
all="stdio.h jansson.h oneapi/dnnl/dnnl.h utf8proc.h pcre2.h"
system "g++ mpicc mpirun bible" "$all"
check "where all is there it says nothing" ends 0 ""
system "g++ mpicc mpirun" "$all"
if [ -x /usr/games/bible ]; then skip "without bible the set-up goes on" "/usr/games/bible is here"; else
    check "without bible the set-up goes on, and says what it is for" ends 0 "bible-kjv bible-kjv-text: text to train on"
    check "no package manager is said with the others' commands" ends 0 "Fedora:   dnf install"
fi
system "g++ bible" "stdio.h jansson.h"
check "without MPI and oneDNN it goes on" ends 0 "openmpi-bin: mpirun; without it"
system "g++ mpicc mpirun bible" "stdio.h jansson.h oneapi/dnnl/dnnl.h utf8proc.h"
check "without PCRE2 it goes on" ends 0 "libpcre2-dev: the tokenizers of GPT-2"
system "g++ mpicc mpirun bible" "stdio.h oneapi/dnnl/dnnl.h utf8proc.h"
check "without jansson it ends" ends 1 "libjansson-dev: JSON: configurations, checkpoints"
system "mpicc mpirun" "$all"
check "without a C++ compiler it ends" ends 1 "g++: tests"
system "g++ mpicc mpirun bible" "$all"
export CMUDICT="$tmp/cmudict"
check "pronunciations need festlex-cmu" ends 1 "festlex-cmu: words and their pronunciations" seq2seq
check "which nothing else needs" ends 0 ""
: >"$CMUDICT"
check "with a file of pronunciations all is there" ends 0 "" seq2seq
check "refs need Python" ends 1 "python3: PyTorch" refs
finish
