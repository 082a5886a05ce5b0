#!/usr/bin/env bash
# What each kernel takes of a multiprocessor, as ptxas reports it: registers of a thread, spilled bytes (stored + loaded), stack, static shared memory of a
# block, for sm_80, sm_86 and sm_90a, which alone has those by wgmma; below that the compiler's warnings. Needs nvcc (and c++filt, of the compiler that nvcc
# needs), no GPU.
#     dev/cuda/resources.sh              writes dev/cuda/resources.txt, prints kernels that spill and warnings
#     dev/cuda/resources.sh --check      compares with it: 1 where something differs, or where a kernel spills
#     dev/cuda/resources.sh --check FOLDER   the same; what nvcc makes on its way stays in FOLDER: each architecture's PTX and machine code
set -euo pipefail
cd "$(dirname "$0")/../.."
NVCC=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
table=dev/cuda/resources.txt
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

[ -z "${2:-}" ] || mkdir -p "$2"
"$NVCC" ${2:+-keep -keep-dir "$2"} -std=c++17 -O3 -gencode arch=compute_80,code=sm_80 -gencode arch=compute_86,code=sm_86 \
    -gencode arch=compute_90a,code=sm_90a -DGX_CUDA_SM_90A -Xptxas -v -x cu -DGALAXY_CUDA_IMPLEMENTATION -c galaxy_cuda.cuh -o "$tmp/galaxy_cuda.o" 2>"$tmp/report" || { cat "$tmp/report"; exit 1; }

# one line per kernel and architecture: name, sm, registers, spilled bytes, stack, shared memory. Names without their arguments, in short.
kernels() {
    c++filt <"$tmp/report" | awk '
        /Compiling entry function/ {
            n = split($0, quoted, "\047"); name = quoted[2]; sm = quoted[n - 1]
            sub(/^void /, "", name); sub(/\(.*/, "", name); gsub(/__nv_bfloat16/, "bf16", name); gsub(/ >/, ">", name); gsub(/, /, ",", name)
        }
        /bytes stack frame/ { stack = $1; spilled = $5 + $9 }
        /Used [0-9]+ registers/ {
            registers = shared = 0
            n = split($0, part, ",")
            for (i = 1; i <= n; i++) {
                if (match(part[i], /[0-9]+ registers/)) registers = substr(part[i], RSTART) + 0
                if (match(part[i], /[0-9]+ bytes smem/)) shared = substr(part[i], RSTART) + 0
            }
            if (sm == "sm_90a" || name !~ /^gx__wgmma_/) printf "%-70s %-6s %9d %7d %5d %6d\n", name, sm, registers, spilled, stack, shared
        }' | LC_ALL=C sort
}
warnings() { { c++filt <"$tmp/report" | grep -iE 'warning|\(C75[0-9]+\)' || true; } | LC_ALL=C sort -u; }
{
    echo "# $("$NVCC" --version | grep -o 'V[0-9.]*$'), made by dev/cuda/resources.sh"
    printf '%-70s %-6s %9s %7s %5s %6s\n' kernel sm registers spilled stack shared
    kernels
    echo "warnings: $(warnings | wc -l)"
    warnings
} >"$tmp/table"

if [ "${1:-}" = --check ]; then
    diff -u "$table" "$tmp/table"
    spills=$(awk '$2 ~ /^sm_/ && $4 > 0 { printf "%s on %s spills %d bytes\n", $1, $2, $4 }' "$tmp/table")
    [ -z "$spills" ] || { echo "$spills: no kernel may; give it fewer values at a time, or registers for fewer blocks"; exit 1; }
    echo "as in $table: $(grep -c ' sm_' "$tmp/table") kernels"
else
    cp "$tmp/table" "$table"
    awk 'NR <= 2 || $4 > 0 || /^warnings/ { shown = /^warnings/ ? 1 : shown; print; next } shown' "$table"
fi
