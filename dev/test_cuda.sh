#!/usr/bin/env bash
# nvcc compiles what the emulator runs: the library, a program in one file, and kernels that take of a card what they took before
# (dev/cuda/resources.txt). No GPU is needed. Without nvcc all is skipped.
set -u
cd "$(dirname "$0")/.."
nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)
. dev/check.sh
look() { if [ -n "$nvcc" ]; then check "$@"; else skip "$1" "nvcc was not found"; fi; }
has_header() { printf '#include <%s>\n' "$1" | ${CC:-cc} -E -x c - >/dev/null 2>&1; }
json=$(has_header jansson.h && echo "-DGX_WITH_JANSSON -ljansson")
one_file() { "$nvcc" -std=c++20 -arch=sm_90 -x cu -DGALAXY_IMPLEMENTATION -DGX_WITH_CUDA $json train_llama_galaxy.cu -o "$tmp/program" -lcublasLt -lnccl; }
says_why() { "$tmp/program" --max_steps 1 2>&1 | grep -q "no NVIDIA driver\|step  "; }

look kernels_take_of_a_card_what_they_took_before dev/cuda/resources.sh --check
look a_program_in_one_file_is_compiled_by_nvcc one_file
look a_program_without_a_card_says_so says_why
finish
