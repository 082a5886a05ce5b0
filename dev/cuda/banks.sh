#!/usr/bin/env bash
# In which kernels the lanes of a warp meet in a bank of shared memory, as the emulator counts it (dev/emu/banks.h): a line for each file of galaxy/cuda
# and width of access that has conflicts, with the passes of the worst request and those that it would take without; and the kernels that have none. What
# kernel.cuh does is told as who calls it. Needs no GPU; builds what it runs, or takes PROGRAMs, or command lines, that were built by
# `make DEVICE=emu VARIANT=banks`.
#     dev/cuda/banks.sh                        writes dev/cuda/banks.txt
#     dev/cuda/banks.sh --show [PROGRAM...]    prints by lines of the source how many requests there were, and their conflicts
#     dev/cuda/banks.sh --check [PROGRAM...]   compares with dev/cuda/banks.txt
set -u
cd "$(dirname "$0")/../.."
. dev/check.sh
table=dev/cuda/banks.txt what=${1:---write}
[ $# = 0 ] || shift
if [ $# = 0 ]; then
    folder=$(make -s DEVICE=emu VARIANT=banks print-folder) && make -s DEVICE=emu VARIANT=banks "$folder/test_devices" >&2 || exit 1
    set -- "$folder/test_devices"
fi

run() { # PROGRAM...: what they report, in tmp/report
    local program
    rm -f "$tmp/report"
    for program in "$@"; do
        GX_EMU_BANKS_REPORT=$tmp/report $program >"$tmp/said" 2>&1 || { cat "$tmp/said"; return 1; }
        case $program in
        */test_devices) # and what an H100 runs instead
            GX_EMU_CAPABILITY=9.0 GX_EMU_MOST_BLOCKS=3 GX_EMU_BANKS_REPORT=$tmp/report "$program" attention_computes attention_drops >"$tmp/said" 2>&1 || { cat "$tmp/said"; return 1; } ;;
        esac
    done
    [ -s "$tmp/report" ] || { echo "$*: nothing was counted: is it of \`make DEVICE=emu VARIANT=banks\`?"; return 1; }
}
# program, address -> file:line, the innermost of galaxy/cuda
places() {
    cut -f1 "$tmp/report" | sort -u | while read -r program; do
        awk -F'\t' -v p="$program" '$1 == p { print $2 }' "$tmp/report" | sort -u >"$tmp/addresses"
        xargs addr2line -a -i -e "$program" <"$tmp/addresses" | awk -v p="$program" '
            function tell() { if (address != "") printf "%s\t%s\t%s\n", p, address, place == "" ? "elsewhere" : place }
            /^0x[0-9a-f]+$/ { tell(); address = $0; sub(/^0x0*/, "0x", address); place = ""; next }
            place == "" && /galaxy\/cuda\// && !/kernel\.cuh/ { place = $1; sub(/.*\//, "", place) }
            END { tell() }'
    done
}
# lines: 1: one line per kernel, access and line of the source, 0: and file; requests, passes at least, conflicts, the worst request's passes and its least
sums() {
    places >"$tmp/places" && awk -F'\t' -v lines="$1" '
        NR == FNR { if (!lines) sub(/:.*/, "", $3); place[$1, $2] = $3; next }
        { kernel = $3; gsub(/[()]/, "", kernel); sub(/<.*/, "", kernel); key = sprintf("%-40s %-10s %s", kernel, $4, place[$1, $2])
          requests[key] += $5; least[key] += $6; conflicts[key] += $7
          if (!(key in worst) || $8 - $9 > worst[key] - of[key]) { worst[key] = $8; of[key] = $9 } }
        END { for (key in worst) printf "%s\t%d\t%d\t%d\t%d\t%d\n", key, requests[key], least[key], conflicts[key], worst[key], of[key] }' "$tmp/places" "$tmp/report" | LC_ALL=C sort
}
write() {
    sums 0 >"$tmp/sums" || return 1
    echo "# made by dev/cuda/banks.sh: the passes of the worst request, and those without conflicts"
    awk -F'\t' '$4 > 0 { printf "%-75s %2d of %d\n", $1, $5, $6 }' "$tmp/sums"
    echo "# no conflicts"
    awk -F'\t' '{ split($1, word, " "); kernels[word[1]] += $4 } END { for (kernel in kernels) if (!kernels[kernel]) print kernel }' "$tmp/sums" | LC_ALL=C sort
}
show() { sums 1 | awk -F'\t' '{ printf "%-75s requests %9d, passes %9d, of them conflicts %9d (%4.1f %%)\n", $1, $2, $3 + $4, $4, 100 * $4 / ($3 + $4) }'; }
as_before() { run "$@" && write >"$tmp/table" && diff -u "$table" "$tmp/table"; }

case $what in
--write) run "$@" && write >"$tmp/table" && cp "$tmp/table" "$table" && cat "$table" ;;
--show) run "$@" && show ;;
--check)
    check kernels_meet_in_banks_of_shared_memory_where_the_table_says_alone as_before "$@"
    finish
    ;;
*) echo "dev/cuda/banks.sh: $what: there are --show and --check, or nothing" >&2; exit 1 ;;
esac
