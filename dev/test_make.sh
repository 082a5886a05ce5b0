#!/usr/bin/env bash
# What the Makefile promises of its variables: values that it does not know are refused with those that it does; another command builds anew, the same
# one does not. The compilers are scripts that make an empty file: this asks what would be built, not how.
set -u
cd "$(dirname "$0")/.."
unset MAKEFLAGS MAKEOVERRIDES CC CFLAGS ARCHFLAGS VARIANT GEMM MPI JSON UTF8PROC PCRE2 DEVICE
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
object=$tmp/build/rooms/base.o
build() { make -s O="$tmp/build" "$object" "$@"; }
is_built() { # assignments: whether make leaves the object as it is
    local before
    before=$(stat -c %y "$object") && build "$@" && [ "$before" = "$(stat -c %y "$object")" ]
}
builds_anew() { build CC="$tmp/one" && is_built CC="$tmp/one" && ! is_built "$@" && is_built "$@"; }

mkdir "$tmp/bin"
printf '#!/bin/sh\nexit 0\n' >"$tmp/bin/nvcc"
printf '#!/bin/sh\n[ "$1" = -L ] && echo "GPU 0: a card" || echo "$CAPABILITIES" | tr " " "\\n"\n' >"$tmp/bin/nvidia-smi"
chmod +x "$tmp/bin"/*
compiled_for() { # what cards there are, words of nvcc's command
    local said
    said=$(CAPABILITIES=$1 PATH="$tmp/bin:$PATH" make -n O="$tmp/cuda" "$tmp/cuda/rooms/cuda_norm.o" | grep -- "-c .*cuda_norm" | grep -o -- "-O3.*fatbin" | tr -s " ")
    echo "$said"
    [ "$said" = "-O3 $2 -Xfatbin" ]
}

check "a misspelt VARIANT is refused" refused VARIANT=fats "VARIANT is one of: fast quick asan tsan"
check "a misspelt GEMM is refused" refused GEMM=onedn "GEMM is one of: onednn plain"
check "an empty GEMM is refused" refused GEMM= "GEMM is one of: onednn plain"
check "two words for MPI are refused" refused "MPI=0 1" "MPI is one of: 0 1"
check "JSON=yes is refused" refused JSON=yes "JSON is one of: 0 1"
check "UTF8PROC=yes is refused" refused UTF8PROC=yes "UTF8PROC is one of: 0 1"
check "PCRE2=yes is refused" refused PCRE2=yes "PCRE2 is one of: 0 1"
check "DEVICE=gpu is refused" refused DEVICE=gpu "DEVICE is one of: cpu cuda emu"
check "of an H100 it is compiled for what that alone has" compiled_for "9.0 9.0" "-arch=sm_90a -DGX_CUDA_SM_90A"
check "of another card for it" compiled_for 8.6 "-arch=native"
check "of an H100 beside another card for both" compiled_for "8.0 9.0" \
    "-gencode arch=compute_80,code=sm_80 -gencode arch=compute_90a,code=sm_90a -gencode arch=compute_90,code=compute_90 -DGX_CUDA_SM_90A"
check "another compiler builds anew" builds_anew CC="$tmp/two"
check "other CFLAGS build anew" builds_anew CC="$tmp/one" CFLAGS="-O1 -DNAME='\"a b\"'"
check "other ARCHFLAGS build anew" builds_anew CC="$tmp/one" ARCHFLAGS=
finish
