#!/bin/bash
# Builds the emulator's tests plainly, with AddressSanitizer and with ThreadSanitizer, and runs them. CXX is the compiler, $1 the folder for programs.
set -eu
cd "$(dirname "$0")/../.."
out=${1:-build/emu}
mkdir -p "$out"
build_and_run() { # name, flags
    ${CXX:-g++} -x c++ -std=c++20 -Wall -Wextra -Wno-psabi -DGX_EMU -Idev/emu -I. $2 dev/emu/test_emu.cu dev/emu/test_emu_bugs.cu -o "$out/test_emu_$1" -lpthread
    echo "$1:" && "$out/test_emu_$1"
}
build_and_run plain -O2
build_and_run asan "-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined"
build_and_run tsan "-O1 -g -fsanitize=thread"
