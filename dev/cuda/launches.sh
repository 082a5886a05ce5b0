#!/usr/bin/env bash
# What each kernel asks for at its launch, as the emulator sees it: threads of a block, and dynamic shared memory. It is recorded because no compiler can say
# it: the host chooses both, for some kernels by the shape. Of a kernel that the visit's step launches (dev/cuda/visit.sh; one of its layers, in bf16 and in
# fp32, as an H100) the table has that launch; of others the largest in test_devices: the one with the most shared memory, and the most threads among these.
# Attention's kernels ask for the same whatever the shape is. Needs no GPU; builds what it runs, or takes test_devices as PROGRAM, built by `make DEVICE=emu`.
#     dev/cuda/launches.sh                     writes dev/cuda/launches.txt
#     dev/cuda/launches.sh --check [PROGRAM]   compares attention's lines with it, by a few of the tests
set -u
cd "$(dirname "$0")/../.."
. dev/check.sh
table=dev/cuda/launches.txt what=${1:---write} program=${2:-}
case $what in
--write | --check) ;;
*) echo "dev/cuda/launches.sh: $what: there is --check, or nothing" >&2; exit 1 ;;
esac
folder=$(make -s DEVICE=emu print-folder)
if [ -z "$program" ]; then
    program=$folder/test_devices
    make -s DEVICE=emu "$program" "$folder/llama_step" >&2 || exit 1
fi

run() { # FILE COMMAND...: adds what it launches to FILE
    GX_EMU_LAUNCHES=$1 "${@:2}" >"$tmp/said" 2>&1 || { cat "$tmp/said"; return 1; }
}
# As an A100; as an H100, which has kernels by wgmma; and as a card whose shared memory is too small for fp32 in tensor cores.
run_tests() { # tests as the first one (nothing: all), and as the last one beside attention with dropout
    # shellcheck disable=SC2086
    run "$tmp/tests" "$program" $1 && run "$tmp/tests" env GX_EMU_CAPABILITY=9.0 "$program" attention_drops &&
        run "$tmp/tests" env GX_EMU_SHARED=99 "$program" attention_drops $2
}
run_step() {
    local flags precision
    flags=$(sed -n 's/^large="\(.*\)"$/\1/p' dev/cuda/visit.sh)
    [ -n "$flags" ] || { echo "dev/cuda/visit.sh does not say its shape as large=\"...\""; return 1; }
    for precision in bf16 fp32; do
        # shellcheck disable=SC2086
        run "$tmp/step" env GX_EMU_CAPABILITY=9.0 "$folder/llama_step" $flags --precision $precision --layers 1 --batch 1 --seq 64 --steps 1 --warmup 1 || return 1
    done
}
# FILE SOURCE: a line for each kernel of each run, named as in resources.txt: kernel, threads, bytes, SOURCE.
named() {
    cut -f1 "$1" | sort -u | while read -r program; do
        nm -C "$program" | sed -E 's/^0*([0-9a-f]+) . (void )?/\1\t/; s/\(.*//; s/__nv_bfloat16/bf16/g; s/ >/>/g; s/, /,/g' |
            awk -F'\t' -v program="$program" -v source="$2" 'NR == FNR { name[$1] = $2; next } $1 == program { print name[$2] "\t" $3 "\t" $4 "\t" source }' - "$1"
    done
}
largest() { # of the lines of a kernel; those of the step come before
    awk -F'\t' '{ rank = ($4 == "step") * 1e9 + $3 * 1024 + $2
        if (!($1 in best) || rank > best[$1]) { best[$1] = rank; line[$1] = sprintf("%-70s %7d %7d %s", $1, $2, $3, $4) } }
        END { for (kernel in line) print line[kernel] }' | LC_ALL=C sort
}
of_attention() { grep -E '^gx__(cuda|mma|wgmma)_attention_(forward|backward)' "$1" | awk '{ print $1, $2, $3 }'; }
as_before() {
    run_tests "attention_drops backward_with_bias" "attention_forward_is attention_backward_is backward_with_bias" && named "$tmp/tests" tests | largest >"$tmp/table" &&
        diff -u <(of_attention "$table") <(of_attention "$tmp/table")
}

case $what in
--write)
    export GX_TEST_LONG=1 # all shapes of test_devices
    run_step && run_tests "" attention || exit 1
    {
        echo "# made by dev/cuda/launches.sh: the launch of each kernel in the visit's step, or the largest in test_devices"
        printf '%-70s %7s %7s %s\n' kernel threads dynamic of
        { named "$tmp/step" step && named "$tmp/tests" tests; } | largest
    } >"$tmp/table" && cp "$tmp/table" "$table"
    ;;
--check)
    check attention_asks_for_the_shared_memory_that_the_table_says as_before
    finish
    ;;
esac
