#!/usr/bin/env bash
# nvcc compiles what the emulator runs: the library, a program in one file, and kernels that take of a card what they took before
# (dev/cuda/resources.txt), attention's with tensor cores, in a build for an H100 by wgmma; what `make gpu` builds runs where there is CUDA and nothing else. No GPU is needed. Without nvcc all is skipped.
set -u
cd "$(dirname "$0")/.."
unset MAKEFLAGS MAKEOVERRIDES CFLAGS ARCHFLAGS VARIANT GEMM MPI JSON UTF8PROC PCRE2 DEVICE
nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)
. dev/check.sh
look() { if [ -n "$nvcc" ]; then check "$@"; else skip "$1" "nvcc was not found"; fi; }
has_header() { printf '#include <%s>\n' "$1" | ${CC:-cc} -E -x c - >/dev/null 2>&1; }
json=$(has_header jansson.h && echo "-DGX_WITH_JANSSON -ljansson")
# In one file, for sm_90: kernels that an H100 alone has then have no body. Nobody runs the kernels, so they are not optimised.
one_file() { "$nvcc" -std=c++20 -arch=sm_90 -Xcicc -O0 -Xptxas -O0 -x cu -DGALAXY_IMPLEMENTATION -DGX_WITH_CUDA -DGX_CUDA_SM_90A $json "$1" "${@:2}"; }
program() { one_file train_llama.cu -o "$tmp/program" -lcublasLt; }
# Where it is the source that is looked at, nvcc ends behind its front end, if it can (13.0).
ends=$([ -z "$nvcc" ] || "$nvcc" --help | grep -qe --fdevice-syntax-only && echo -fdevice-syntax-only)
a_mode() { one_file train_galaxy_tiled.cu $ends -c -o "$tmp/mode.o"; }
says_why() { "$tmp/program" --max_steps 1 2>&1 | grep -q "no NVIDIA driver\|step  "; }
plans() { "$tmp/program" --dry_run "$@" >"$tmp/plan" 2>&1 && grep -q "in the device's memory" "$tmp/plan" || { cat "$tmp/plan"; return 1; }; }
plans_all() { plans --seq_len 512 && plans --precision bf16 && plans --ranks 2 && plans --ranks 2 --device_comm nccl --precision bf16 && grep -q "(threads, nccl)" "$tmp/plan" &&
    plans --ranks 2 --mode galaxy2 && plans --ranks 2 --att sp --mlp tp --recompute layer; }
# Of a card that is not here the plan knows what --memory_limit says.
plans_within() { plans --memory_limit 90MB --recompute auto && grep -q "recompute auto: layer:0-1, which fits" "$tmp/plan" && plans --ranks 2 --zero 3 --memory_limit 20MB &&
    grep -q "would be refused: the plan needs .* on this rank's card, more than the 20.0 MB of --memory_limit" "$tmp/plan"; }
# A program of `make gpu`, for one architecture: its libraries are those of C, C++ and CUDA; NCCL it loads when it needs it. OpenMP, jansson, utf8proc and PCRE2 are in it, where this
# machine has the archives to take them from. What it is linked with is the same however it is compiled.
brings_the_rest() {
    local needed rest archive library
    make -s gpu O="$tmp/gpu" GPU_FOLDER="$tmp/gpu" NVCC="$nvcc -Xcicc -O0 -Xptxas -O0 $ends" CFLAGS="-O0 -fopenmp" ARCH=sm_90 TESTS= PROGRAMS= TOOLS= WORKSHOP= || return 1
    needed=$(readelf -d "$tmp/gpu/llama_step" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
    [[ $needed == *libcudart.so* && $needed == *libcublasLt.so* ]] || { echo "its libraries are not known: $needed"; return 1; }
    rest=$(grep -vE '^(lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+|cudart|cublasLt)|ld-linux.*)\.so\.[0-9]+$' <<<"$needed")
    for library in libgomp libjansson libutf8proc libpcre2-8; do
        archive=$(${CC:-cc} -print-file-name=$library.a)
        [[ $archive == /* ]] || rest=$(grep -v "^$library\.so\." <<<"$rest")
    done
    [ -z "$rest" ] || { echo "it needs, too: $rest"; return 1; }
}
# The library that is there gives its version; one that is not there, or is another, says why.
loads_nccl() {
    printf '%s\n' '#define GALAXY_CUDA_IMPLEMENTATION' '#include "galaxy/comm/nccl.cuh"' 'int main(int argc, char **argv) {' \
        'GxNcclCalls c; int version = 0; gx__nccl_load(&c, argv[argc - 1]);' 'if (!c.why[0]) c.GetVersion(&version);' \
        'printf("%s %d\n", c.why, version); }' >"$tmp/nccl.cu"
    ${CC:-cc} -x c -std=gnu11 -DGALAXY_IMPLEMENTATION -c galaxy.h -o "$tmp/galaxy.o" &&
        "$nvcc" -std=c++17 -arch=sm_90 -I. "$tmp/nccl.cu" "$tmp/galaxy.o" -o "$tmp/nccl" -lcublasLt || return 1
    local home=${nvcc%/bin/nvcc}
    LD_LIBRARY_PATH=$home/lib64:$home/lib:${LD_LIBRARY_PATH:-} "$tmp/nccl" libnccl.so.2 | tee "$tmp/said" | grep -q '^ 2[0-9]\{4\}$' &&
        "$tmp/nccl" libnone.so.2 | tee "$tmp/said" | grep -q '^libnone.so.2: cannot open' &&
        "$tmp/nccl" libm.so.6 | tee "$tmp/said" | grep -q '^it has no ncclGetVersion; at least version 2.14 is needed 0$' || { cat "$tmp/said"; return 1; }
}

# The number of kernels of $tmp/code whose names have a word and whose code a pattern.
kernels_with() {
    awk -v name="$1" -v pattern="$2" '/Function :|\.entry/ { kernel = index($0, name) ? $0 : "" } kernel != "" && $0 ~ pattern { has[kernel] = 1 }
        END { for (kernel in has) n++; print n + 0 }' "$tmp/code"
}

# What resources.sh compiled: machine code, where there is a cuobjdump, else PTX.
code_of() { # architecture
    local cuobjdump=${CUOBJDUMP:-$(command -v cuobjdump || ls "$(dirname "$nvcc")/cuobjdump" 2>/dev/null)}
    if [ -n "$cuobjdump" ]; then "$cuobjdump" -sass "$tmp"/kernels/*_"$1".cubin >"$tmp/code"; else cp "$tmp"/kernels/*_"$1".ptx "$tmp/code"; fi
}
# Each of attention's kernels in attention_mma.cuh multiplies in tensor cores, those of fp32 in TF32.
tensor_cores() {
    local word kernels
    code_of 80 || return 1
    # forward; dk and dv; dq: of three sizes of head in bf16, of two in fp32; the last two without and with a bias
    for word in '(HMMA[.]16816[.]F32[.]BF16|mma[.]sync[.]aligned[.]m16n8k16[.]row[.]col[.]f32[.]bf16) 15' '(HMMA[.]1688[.]F32[.]TF32|mma[.]sync[.]aligned[.]m16n8k8[.]row[.]col[.]f32[.]tf32) 10'; do
        kernels=$(kernels_with gx__mma_attention "${word% *}")
        [ "$kernels" = "${word##* }" ] || { echo "$word: it is in $kernels kernels"; return 1; }
    done
    kernels=$(grep -cE '(Function :|\.entry).*gx__mma_attention' "$tmp/code")
    [ "$kernels" = 25 ] || { echo "there are $kernels kernels"; return 1; }
}

# What an H100 alone has is in all nine of its kernels, for three sizes of head forward, dk and dv, and dq: products by four warps, copies by TMA, barriers that count bytes.
# That they have no body for sm_90 `program` shows.
wgmma() {
    local kernels word
    code_of 90a || return 1
    for word in 'HGMMA|wgmma[.]mma_async' 'UTMALDG|cp[.]async[.]bulk[.]tensor' 'SYNCS|mbarrier[.]try_wait'; do
        kernels=$(kernels_with gx__wgmma_attention "$word")
        [ "$kernels" = 9 ] || { echo "$word is in $kernels of 9 kernels"; return 1; }
    done
}

# What dev/emu has for kernels in the making is for nvcc the instruction itself: each of its six kinds of stmatrix.
tiles() {
    local cuobjdump=${CUOBJDUMP:-$(command -v cuobjdump || ls "$(dirname "$nvcc")/cuobjdump" 2>/dev/null)} words n trans
    printf '%s\n' '#include "dev/emu/stmatrix.h"' 'template <int N, bool TRANS> __global__ void store(const unsigned *x) {' \
        'extern __shared__ char tile[]; unsigned r[N]; for (int i = 0; i < N; i++) r[i] = x[i]; gx_stmatrix<N, TRANS>(tile + threadIdx.x * 16, r); }' >"$tmp/tiles.cu"
    for n in 1 2 4; do for trans in true false; do echo "template __global__ void store<$n, $trans>(const unsigned *);" >>"$tmp/tiles.cu"; done; done
    if [ -n "$cuobjdump" ]; then
        words="STSM.16.M88 STSM.16.MT88 STSM.16.M88.2 STSM.16.MT88.2 STSM.16.M88.4 STSM.16.MT88.4"
        "$nvcc" -std=c++17 -arch=sm_90 -I. -cubin "$tmp/tiles.cu" -o "$tmp/tiles" && "$cuobjdump" -sass "$tmp/tiles" >"$tmp/code" || return 1
    else
        words="stmatrix.sync.aligned.m8n8.x1.shared.b16 stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 stmatrix.sync.aligned.m8n8.x2.shared.b16 stmatrix.sync.aligned.m8n8.x2.trans.shared.b16
            stmatrix.sync.aligned.m8n8.x4.shared.b16 stmatrix.sync.aligned.m8n8.x4.trans.shared.b16"
        "$nvcc" -std=c++17 -arch=sm_90 -I. -ptx "$tmp/tiles.cu" -o "$tmp/code" || return 1
    fi
    for n in $words; do grep -qF "$n " "$tmp/code" || { echo "$n is not in the code"; return 1; }; done
}

# A tool that says what ncu says: two launches of one kernel, one of another; numbers with commas, names in another order.
counts() {
    printf '%s\n' '#!/bin/sh' '[ "$1" != --query-metrics ] || { printf "%s\n" "dram__throughput x" gpu__time_duration sm__throughput; exit; }' 'cat <<X' \
        '"ID","Kernel Name","sm__throughput.avg.pct_of_peak_sustained_elapsed","dram__throughput.avg.pct_of_peak_sustained_elapsed","gpu__time_duration.sum"' \
        '"","","%","%","'"$1"'"' 'loss 1' '"0","norm","10","80","1,000"' '"1","product","80.5","20","2,500"' '"2","norm","20","40","3,000"' X >"$tmp/ncu"
    chmod +x "$tmp/ncu"
    NCU=$tmp/ncu dev/cuda/counters.sh true >"$tmp/said"
}
counters_become_a_table() {
    counts ns && grep -q '^| norm | 2 | 2.0 | 61.5 | 50.0 | 17.5 |$' "$tmp/said" && grep -q '^| product | 1 | 2.5 | 38.5 | 20.0 | 80.5 |$' "$tmp/said" &&
        grep -q 'does not count: tensor cores' "$tmp/said" && ! counts s && grep -q 'unit that is not known: s' "$tmp/said" || { cat "$tmp/said"; return 1; }
}

look kernels_take_of_a_card_what_they_took_before dev/cuda/resources.sh --check "$tmp/kernels"
look attention_in_bf16_uses_tensor_cores tensor_cores
look attention_for_an_h100_uses_wgmma_and_tma wgmma
look tiles_of_the_emulator_are_instructions_for_nvcc tiles
look a_mode_in_one_file_is_compiled_by_nvcc a_mode
look a_program_in_one_file_is_compiled_by_nvcc program
look nccl_is_found_when_it_is_needed_or_it_is_said_why loads_nccl
look a_program_without_a_card_says_so says_why
if [ -n "$json" ]; then
    look a_plan_needs_no_card plans_all
    look a_plan_without_a_card_keeps_to_the_limit plans_within
    look a_program_for_a_visit_brings_all_but_cuda_and_nccl brings_the_rest
else
    skip a_plan_needs_no_card "jansson was not found"
    skip a_program_for_a_visit_brings_all_but_cuda_and_nccl "jansson was not found"
fi
check counters_of_kernels_become_a_table counters_become_a_table
finish
