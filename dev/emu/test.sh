#!/bin/bash
# Builds the emulator's tests plainly, with AddressSanitizer, with ThreadSanitizer and with banks counted, and runs them. CXX is the compiler, $1 the folder for programs.
set -eu
cd "$(dirname "$0")/../.."
out=${1:-build/emu}
mkdir -p "$out"
build_and_run() { # name, flags, those to link with if they are others
    local source
    for source in test_emu test_emu_bugs; do
        ${CXX:-g++} -x c++ -std=c++20 -Wall -Wextra -Wno-psabi -DGX_EMU -Idev/emu -I. $2 -c dev/emu/$source.cu -o "$out/${source}_$1.o"
    done
    ${CXX:-g++} ${3-$2} "$out/test_emu_$1.o" "$out/test_emu_bugs_$1.o" -o "$out/test_emu_$1" -lpthread
    echo "$1:" && "$out/test_emu_$1"
}
build_and_run plain -O2
build_and_run asan "-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined"
build_and_run tsan "-O1 -g -fsanitize=thread"
build_and_run banks "-O1 -g1 -fno-tree-sra -fno-ipa-sra -fsanitize=thread -U__SANITIZE_THREAD__ -DGX_EMU_COUNTS_BANKS" ""
