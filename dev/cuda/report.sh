#!/usr/bin/env bash
# What is known of the kernels and of a step without a card, in Markdown: registers, spills and static shared memory of each kernel, as dev/cuda/resources.txt
# has them, with the warps that a multiprocessor has registers for; then the visit's step (dev/cuda/visit.sh) on paper, at the cards' peaks and at the shares
# of them that an H100 reached (docs/kernels.md: a copy, a product of large matrices; attention: assumed). Needs no GPU.
#     make cuda-report
#     dev/cuda/report.sh build/FOLDER/on_paper [sm_90a]
set -euo pipefail
cd "$(dirname "$0")/../.."
[ $# -ge 1 ] || { echo "usage: dev/cuda/report.sh build/FOLDER/on_paper [sm_80|sm_90a]; make cuda-report says it all" >&2; exit 2; }
on_paper=$1
sm=${2:-sm_90a}
visit=$(sed -n 's/^large="\(.*\)"$/\1/p' dev/cuda/visit.sh)
[ -n "$visit" ] || { echo "report.sh: dev/cuda/visit.sh does not say its shape as large=\"...\"" >&2; exit 1; }

# 65,536 registers to a multiprocessor, handed out in units of 8 to each thread of a warp; at most 64 warps (sm_80, sm_90a).
grep -q " $sm " dev/cuda/resources.txt || { echo "report.sh: dev/cuda/resources.txt has no $sm" >&2; exit 1; }
printf 'Kernels on %s: %s\n\n| kernel | registers | spilled bytes | static shared memory | warps by registers, of 64 |\n|---|---|---|---|---|\n' "$sm" "$(sed -n '1s/^# //p' dev/cuda/resources.txt)"
awk -v sm="$sm" '$2 == sm { used = int(($3 + 7) / 8) * 8; warps = int(65536 / (32 * used)); if (warps > 64) warps = 64
    printf "| `%s` | %d | %d | %d | %d |\n", $1, $3, $4, $6, warps }' dev/cuda/resources.txt
for shares in "" "--of_memory 0.89 --of_products 0.76 --of_attention 0.4"; do
    echo
    # shellcheck disable=SC2086
    "$on_paper" $visit --head_chunk 8192 --precision bf16 $shares
done
