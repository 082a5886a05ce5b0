#!/usr/bin/env bash
# What the Makefile promises of its variables: values that it does not know are refused with those that it does; another command builds anew, the same
# one does not. The compilers are scripts that make an empty file: this asks what would be built, not how.
set -u
cd "$(dirname "$0")/.."
unset MAKEFLAGS MAKEOVERRIDES CC CFLAGS ARCHFLAGS VARIANT GEMM MPI JSON UTF8PROC PCRE2 WGMMA DEVICE
. dev/check.sh
refused() { # assignment, words of the message
    local said
    if said=$(make -s "$1" print-folder 2>&1); then echo "it was taken: $said"; return 1; fi
    echo "$said"
    [[ $said == *"$2"* ]]
}
for name in one two; do
    printf '#!/bin/sh\nfor word; do [ "$last" = -o ] && : >"$word"; last=$word; done; exit 0\n' >"$tmp/$name"
    chmod +x "$tmp/$name"
done
object=$tmp/build/galaxy.o
build() { make -s O="$tmp/build" "$object" "$@"; }
is_built() { make -q O="$tmp/build" "$object" "$@"; }
builds_anew() { build CC="$tmp/one" && is_built CC="$tmp/one" && ! is_built "$@" && build "$@" && is_built "$@"; }

check "a misspelt VARIANT is refused" refused VARIANT=fats "VARIANT is one of: fast asan tsan"
check "a misspelt GEMM is refused" refused GEMM=onedn "GEMM is one of: onednn plain"
check "an empty GEMM is refused" refused GEMM= "GEMM is one of: onednn plain"
check "two words for MPI are refused" refused "MPI=0 1" "MPI is one of: 0 1"
check "JSON=yes is refused" refused JSON=yes "JSON is one of: 0 1"
check "UTF8PROC=yes is refused" refused UTF8PROC=yes "UTF8PROC is one of: 0 1"
check "PCRE2=yes is refused" refused PCRE2=yes "PCRE2 is one of: 0 1"
check "WGMMA=yes is refused" refused WGMMA=yes "WGMMA is one of: 0 1"
check "DEVICE=gpu is refused" refused DEVICE=gpu "DEVICE is one of: cpu cuda emu"
check "another compiler builds anew" builds_anew CC="$tmp/two"
check "other CFLAGS build anew" builds_anew CC="$tmp/one" CFLAGS="-O1 -DNAME='\"a b\"'"
check "other ARCHFLAGS build anew" builds_anew CC="$tmp/one" ARCHFLAGS=
finish
