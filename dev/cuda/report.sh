#!/usr/bin/env bash
# What is known of the kernels and of a step without a card, in Markdown. First each kernel: registers, spills and static shared memory as nvcc reports them
# (dev/cuda/resources.txt), threads of a block and dynamic shared memory as the emulator saw them at a launch (dev/cuda/launches.txt), and how many blocks of
# it fit a multiprocessor, if all that can be shared memory is. Then the visit's step (dev/cuda/visit.sh) on paper, at the cards' peaks and at the shares of
# them that an H100 reached (docs/kernels.md: a copy, a product of large matrices; attention: assumed), beside what was measured. Needs no GPU.
#     make cuda-report
#     dev/cuda/report.sh build/FOLDER/on_paper
set -euo pipefail
cd "$(dirname "$0")/../.."
[ $# = 1 ] || { echo "usage: dev/cuda/report.sh build/FOLDER/on_paper; make cuda-report says it all" >&2; exit 2; }
on_paper=$1
visit=$(sed -n 's/^large="\(.*\)"$/\1/p' dev/cuda/visit.sh)
[ -n "$visit" ] || { echo "report.sh: dev/cuda/visit.sh does not say its shape as large=\"...\"" >&2; exit 1; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# CUDA C++ Programming Guide, "Technical Specifications per Compute Capability": threads and blocks of a multiprocessor, and its shared memory in KB, of which
# each block takes one more than it asks for. Registers: 65,536, in units of 256 to a warp, a quarter of them to each of four schedulers, which share the warps.
echo "Kernels ($(sed -n '1s/^# //p' dev/cuda/resources.txt)). For each architecture: registers of a thread, blocks and warps on a multiprocessor, and what allows no"
echo "more. Threads and dynamic shared memory: of the step below; of kernels that it does without, of the largest launch in test_devices, whose rows are other ones."
echo
awk '
    function up(x, unit) { return int((x + unit - 1) / unit) * unit }
    function least(name, value) { if (value < blocks) { blocks = value; by = name } }
    function fit(sm, registers, threads, shared,  warps) {
        warps = up(threads, 32) / 32; blocks = most_blocks[sm]; by = "blocks"
        least("threads", int(most_threads[sm] / 32 / warps))
        least("registers", int(4 * int(16384 / up(32 * registers, 256)) / warps))
        least("shared memory", int(most_shared[sm] * 1024 / up(shared + 1024, 128)))
        if (!blocks) return registers ": none fits (" by ")"
        return sprintf("%d: %d block%s, %d warps (%s)", registers, blocks, blocks == 1 ? "" : "s", blocks * warps, by)
    }
    BEGIN {
        n = split("sm_80 2048 32 164 sm_86 1536 16 100 sm_90a 2048 32 228", limit, " ")
        printf "| kernel | launch in | threads | shared memory: static + dynamic | spilled bytes |"
        for (i = 1; i <= n; i += 4) {
            sms[++m] = limit[i]; most_threads[limit[i]] = limit[i + 1]; most_blocks[limit[i]] = limit[i + 2]; most_shared[limit[i]] = limit[i + 3]
            printf " %s |", limit[i]
        }
        printf "\n|---|---|---|---|---|"; for (i = 1; i <= m; i++) printf "---|"; printf "\n"
    }
    NR == FNR { threads[$1] = $2; dynamic[$1] = $3; where[$1] = $4; next }
    $2 in most_blocks {
        if (!($1 in static)) kernel[++kernels] = $1
        static[$1] = $6; if ($4 > spilled[$1]) spilled[$1] = $4
        cell[$1, $2] = $1 in threads ? fit($2, $3, threads[$1], $6 + dynamic[$1]) : $3
    }
    END {
        for (k = 1; k <= kernels; k++) {
            name = kernel[k]; is_launched = name in threads
            printf "| `%s` | %s | %s | %s | %d |", name, is_launched ? where[name] : "-", is_launched ? threads[name] : "-",
                static[name] (is_launched ? " + " dynamic[name] : ""), spilled[name]
            for (i = 1; i <= m; i++) printf " %s |", cell[name, sms[i]]; printf "\n"
        }
    }' dev/cuda/launches.txt dev/cuda/resources.txt

paper() { # FILE FLAGS...: the step on paper, its table also in FILE
    echo
    # shellcheck disable=SC2086
    "$on_paper" $visit --head_chunk 8192 --precision bf16 "${@:2}" | tee "$1"
}
paper "$tmp/peaks"
paper "$tmp/shares" --of_memory 0.89 --of_products 0.76 --of_attention 0.4

# The same step on cards (docs/benchmarks.md): ms kernel by kernel, by CUDA graphs, commit, date.
measured="H100 18.5 18.2 994ad62 2026-11-24
H200 15.5 15.2 3e64478 2026-11-27"
printf '\nThe step, in milliseconds\n\n'
awk -F' *[|] *' -v measured="$measured" '
    function row(name, value,  i) { printf "| %s |", name; for (i = 6; i < NF; i++) printf " %s |", value[i]; printf "\n" }
    BEGIN { n = split(measured, line, "\n"); for (i = 1; i <= n; i++) { split(line[i], word, " "); of[word[1]] = line[i] } }
    $2 == "operation" { for (i = 6; i < NF; i++) card[i] = $i }
    $2 == "all" { for (i = 6; i < NF; i++) ms[FILENAME, i] = $i }
    END {
        row("", card); printf "|---|"; for (i = 6; i < NF; i++) printf "---|"; printf "\n"
        for (f = 1; f < ARGC; f++) {
            for (i = 6; i < NF; i++) value[i] = ms[ARGV[f], i]
            row(f == 1 ? "on paper, at the peaks" : "on paper, at these shares of them", value)
        }
        split("measured,by CUDA graphs,commit,date", what, ",")
        for (k = 1; k <= 4; k++) {
            for (i = 6; i < NF; i++) { value[i] = k == 1 ? "not measured" : ""; if (split(of[card[i]], word, " ")) value[i] = word[k + 1] }
            row(what[k], value)
        }
    }' "$tmp/peaks" "$tmp/shares"
