#!/usr/bin/env bash
# Two checkouts beside each other: training steps of the same shapes, in turns:
#   dev/bench/compare_trees.sh [--rounds N] [--modes "tp galaxy"] OLD [NEW]          NEW: this checkout
#
# Builds llama_step, and modes, in both. Machines are noisy, so nothing is compared across time: in every round each case runs in both checkouts, one after
# the other, each as a program of its own; who begins changes from round to round. A ratio is taken within a round; medians over the rounds are reported,
# with quartiles. A run during which other programs took more than a tenth of a core is repeated, a few times at most. Serial is one rank of two threads
# (llama_step), modes are two ranks of one thread each, as threads of one process (modes): all modes that both checkouts have. Prints a table in Markdown.
set -eu
here=$(cd "$(dirname "$0")/../.." && pwd)
usage() { echo "usage: dev/bench/compare_trees.sh [--rounds N] [--modes \"tp galaxy\"] OLD [NEW]" >&2; exit 2; }
rounds=10 tries=5 modes=
while [ $# -gt 0 ]; do
    case $1 in
    --rounds) [ $# -gt 1 ] || usage; rounds=$2; shift 2 ;;
    --modes) [ $# -gt 1 ] || usage; modes=$2; shift 2 ;;
    -*) usage ;;
    *) break ;;
    esac
done
[ $# -ge 1 ] && [ $# -le 2 ] || usage
declare -A tree=([old]=$1 [new]=${2:-$here}) folder
for t in old new; do
    [ -f "${tree[$t]}/dev/bench/llama_step.cu" ] || { echo "compare_trees: ${tree[$t]} is no checkout of Galaxy: it has no dev/bench/llama_step.cu" >&2; exit 2; }
    folder[$t]=${tree[$t]}/$(make --no-print-directory -s -C "${tree[$t]}" print-folder)
    make --no-print-directory -s -C "${tree[$t]}" "${folder[$t]#"${tree[$t]}"/}/llama_step"
done

# shapes: those of docs/modes.md
declare -A shape=([B]="" [S]="--hidden 192 --layers 4 --heads 6 --kv 2 --ffn 512 --vocab 256 --batch 4 --seq 128")
declare -A steps=([B]="--steps 4" [S]="--steps 40") warmup=([B]="--warmup 1" [S]="--warmup 5")
if [ -f "${tree[old]}/dev/bench/modes.cu" ] && [ -f "${tree[new]}/dev/bench/modes.cu" ]; then
    for t in old new; do make --no-print-directory -s -C "${tree[$t]}" "${folder[$t]#"${tree[$t]}"/}/modes"; done
    [ -n "$modes" ] || for mode in $(sed -n 's/^ *X.\([a-z0-9]*\),.*/\1/p' "$here/galaxy/model/mode.h"); do
        in_both=1
        for t in old new; do "${folder[$t]}/modes" --help all | grep -e '--mode ' | grep -qE "[|\" ]$mode([|\",; ]|$)" || in_both=0; done
        if ((in_both)); then modes="$modes $mode"; fi
    done
fi

lines=${folder[new]}/compare_trees.lines # stays: words name=value, one line per run
: >"$lines"
run() { # TREE SHAPE PRECISION MODE
    local in=${folder[$1]}
    if [ "$4" = serial ]; then "$in/llama_step" ${shape[$2]} ${steps[$2]} --precision "$3" --threads 2
    else "$in/modes" --mode "$4" --ranks 2 --threads 1 ${shape[$2]} ${steps[$2]} ${warmup[$2]} --precision "$3"; fi
}
busy() { awk '/^cpu / { print ($2 + $3 + $4 + $7 + $8 + $9) / 100 }' /proc/stat; } # seconds of CPU time, of all programs
TIMEFORMAT='%R %U %S'
exec 3>&2
one() { # TREE SHAPE PRECISION MODE ROUND
    local try before quiet=0
    for ((try = 1; try <= tries && !quiet; try++)); do
        if ((try > 1)); then sleep 1; fi
        before=$(busy)
        { time run "$1" "$2" "$3" "$4" >"$lines.one" 2>&3; } 2>"$lines.time" || { echo "compare_trees: $4 of $1 (${tree[$1]}) failed" >&2; exit 1; }
        quiet=$(echo "$before $(busy) $(cat "$lines.time")" | awk '{ print $2 - $1 - $4 - $5 <= 0.1 * $3 ? 1 : 0 }')
    done
    # llama_step: one line of JSON, in MB; modes: a line of words per rank, of which rank 0's counts, in bytes and ms
    awk -v key="tree=$1 shape=$2 precision=$3 mode=$4 round=$5 quiet=$quiet" '
        function json(name,    v) { v = $0; return sub(".*\"" name "\": ", "", v) ? v + 0 : 0 }
        function word(name,    i) { for (i = 1; i <= NF; i++) if (index($i, name "=") == 1) return substr($i, length(name) + 2) }
        /^\{/ { print key, "rate=" json("tokens_per_s"), "arena=" json("arena_mb"), "peak=" json("peak_rss_mb") }
        /^mode=/ && word("rank") == 0 { print key, "rate=" word("tokens") / word("ms") * 1e3, "arena=" word("arena") / 1e6, "peak=" word("peak") / 1e6 }
    ' "$lines.one" >>"$lines"
}

for s in B S; do
    for precision in fp32 bf16; do
        for ((round = 1; round <= rounds; round++)); do
            order="old new"
            if ((round % 2 == 0)); then order="new old"; fi
            for mode in serial $modes; do
                for t in $order; do one $t $s $precision $mode $round; done
            done
        done
    done
done
for t in old new; do echo "$t: $(git -C "${tree[$t]}" describe --always --dirty 2>/dev/null || echo "${tree[$t]}")"; done
awk '
    function sort(list, n,    i, j, x) {
        for (i = 2; i <= n; i++) {
            x = list[i]
            for (j = i - 1; j >= 1 && list[j] > x; j--) list[j + 1] = list[j]
            list[j + 1] = x
        }
    }
    function median(key, name,    i, list) {
        for (i = 1; i <= rounds; i++) list[i] = value[key, i, name]
        sort(list, rounds)
        return (list[int((rounds + 1) / 2)] + list[int(rounds / 2) + 1]) / 2
    }
    function ratio(key,    i, list) { # median (quartiles)
        for (i = 1; i <= rounds; i++) list[i] = value["new " key, i, "rate"] / value["old " key, i, "rate"]
        sort(list, rounds)
        return sprintf("%.3f (%.3f-%.3f)", (list[int((rounds + 1) / 2)] + list[int(rounds / 2) + 1]) / 2, list[int((rounds + 3) / 4)], list[rounds + 1 - int((rounds + 3) / 4)])
    }
    {
        delete word
        for (i = 1; i <= NF; i++) word[substr($i, 1, index($i, "=") - 1)] = substr($i, index($i, "=") + 1)
        key = word["shape"] " " word["precision"] " " word["mode"]
        for (name in word) value[word["tree"] " " key, word["round"], name] = word[name]
        if (word["round"] > rounds) rounds = word["round"]
        if (!seen[key]++) order[++cases] = key
        disturbed += word["quiet"] == 0
    }
    END {
        print "medians of " rounds " rounds" (disturbed ? "; " disturbed " runs were disturbed by other programs" : "; no run was disturbed")
        print "\n| shape | precision | mode | old, tokens/s | new, tokens/s | new / old, in a round (quartiles) | arena, MB, old, new | peak of the process, MB, old, new |"
        print "|---|---|---|---|---|---|---|---|"
        for (c = 1; c <= cases; c++) {
            key = order[c]; split(key, p, " ")
            printf "| %s | %s | %s | %.0f | %.0f | %s | %.1f, %.1f | %.1f, %.1f |\n", p[1], p[2], p[3], median("old " key, "rate"), median("new " key, "rate"),
                   ratio(key), median("old " key, "arena"), median("new " key, "arena"), median("old " key, "peak"), median("new " key, "peak")
        }
    }' "$lines"
