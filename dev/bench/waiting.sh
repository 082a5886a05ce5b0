#!/usr/bin/env bash
# What it costs how OpenMP's waiting threads wait: training steps with libgomp's own default (spinning), sleeping at once, and for a moment spinning before
# they sleep, as programs start themselves (run/processors.h), on a machine with nothing else to do and beside a busy loop:
# dev/bench/waiting.sh [--rounds N] [--tries N]
#
# The small shape of docs/modes.md, 1 and 2 ranks (threads of one process, data-parallel) of 1 and 2 threads each. GOMP_SPINCOUNT=300000 is what libgomp
# takes where nothing is set; that anything is set keeps the program from starting again. Machines are noisy, so nothing is compared across time: in every round
# each case runs all three ways, one after the other; who begins changes from round to round. A ratio is taken within a round; medians over the rounds are
# reported, with quartiles. A run during which others (the busy loop apart) took more than a tenth of a core is repeated, up to 5 times or --tries, then
# counted as disturbed. Prints a table in Markdown.
set -eu
cd "$(dirname "$0")/../.."
rounds=5 tries=5
while [ $# -gt 1 ]; do
    case $1 in --rounds) rounds=$2 ;; --tries) tries=$2 ;; *) break ;; esac
    shift 2
done
[ $# = 0 ] || { echo "usage: dev/bench/waiting.sh [--rounds N] [--tries N]" >&2; exit 2; }
program=$(make --no-print-directory -s print-folder)/modes
make --no-print-directory -s "$program"
lines=$(dirname "$program")/waiting.lines # stays: words name=value, one line per run
: >"$lines"
unset OMP_WAIT_POLICY GOMP_SPINCOUNT OMP_NUM_THREADS
shape="--hidden 192 --layers 4 --heads 6 --kv 2 --ffn 512 --vocab 256 --batch 4 --seq 128 --warmup 5 --steps 40"

loop=
trap '[ -z "$loop" ] || kill "$loop" 2>/dev/null' EXIT
trap 'exit 130' INT TERM
busy() { awk '/^cpu / { print ($2 + $3 + $4 + $7 + $8 + $9) / 100 }' /proc/stat; }                # seconds of CPU time, of all programs
of_loop() { if [ -n "$loop" ]; then awk '{ print ($14 + $15) / 100 }' "/proc/$loop/stat"; else echo 0; fi; }
TIMEFORMAT='%R %U %S'
exec 3>&2
run() { # WAY RANKS THREADS
    local mode=serial
    if [ "$2" -gt 1 ]; then mode=dp; fi
    case $1 in
        spinning) GOMP_SPINCOUNT=300000 "$program" --mode $mode --ranks "$2" --threads "$3" $shape ;;
        sleeping) OMP_WAIT_POLICY=passive "$program" --mode $mode --ranks "$2" --threads "$3" $shape ;;
        moment) "$program" --mode $mode --ranks "$2" --threads "$3" $shape ;;
    esac
}
one() { # WAY RANKS THREADS BESIDE ROUND
    local try before quiet=0
    for ((try = 1; try <= tries && !quiet; try++)); do
        if ((try > 1)); then sleep 1; fi
        before="$(busy) $(of_loop)"
        { time run "$1" "$2" "$3" >"$lines.one" 2>&3; } 2>"$lines.time" || { echo "waiting: $2 ranks x $3 threads failed" >&2; exit 1; }
        quiet=$(echo "$before $(busy) $(of_loop) $(cat "$lines.time")" | awk '{ print $3 - $1 - ($4 - $2) - $6 - $7 <= 0.1 * $5 ? 1 : 0 }')
    done
    awk -v key="way=$1 ranks=$2 threads=$3 beside=$4 round=$5 quiet=$quiet" '
        function word(name,    i) { for (i = 1; i <= NF; i++) if (index($i, name "=") == 1) return substr($i, length(name) + 2) }
        /^mode=/ && word("rank") == 0 { print key, "rate=" word("tokens") / word("ms") * 1e3 }' "$lines.one" >>"$lines"
}

for ((round = 1; round <= rounds; round++)); do
    case $((round % 3)) in
        1) order="spinning sleeping moment" ;;
        2) order="moment spinning sleeping" ;;
        0) order="sleeping moment spinning" ;;
    esac
    for beside in nothing loop; do
        if [ $beside = loop ]; then { while :; do :; done; } & loop=$!; fi
        for ranks in 1 2; do
            for threads in 1 2; do
                for way in $order; do one $way $ranks $threads $beside $round; done
            done
        done
        if [ -n "$loop" ]; then kill "$loop"; wait "$loop" 2>/dev/null || true; loop=; fi
    done
done
awk '
    function sort(list, n,    i, j, x) {
        for (i = 2; i <= n; i++) {
            x = list[i]
            for (j = i - 1; j >= 1 && list[j] > x; j--) list[j + 1] = list[j]
            list[j + 1] = x
        }
    }
    function median(list) { return (list[int((rounds + 1) / 2)] + list[int(rounds / 2) + 1]) / 2 }
    function rate(key,    i, list) {
        for (i = 1; i <= rounds; i++) list[i] = value[key, i]
        sort(list, rounds)
        return median(list)
    }
    function ratio(way, key,    i, list) { # to spinning: median (quartiles)
        for (i = 1; i <= rounds; i++) list[i] = value[way " " key, i] / value["spinning " key, i]
        sort(list, rounds)
        return sprintf("%.2f (%.2f-%.2f)", median(list), list[int((rounds + 3) / 4)], list[rounds + 1 - int((rounds + 3) / 4)])
    }
    {
        for (i = 1; i <= NF; i++) word[substr($i, 1, index($i, "=") - 1)] = substr($i, index($i, "=") + 1)
        key = word["ranks"] " " word["threads"] " " word["beside"]
        value[word["way"] " " key, word["round"]] = word["rate"]
        if (word["round"] > rounds) rounds = word["round"]
        if (!seen[key]++) order[++cases] = key
        disturbed += word["quiet"] == 0
    }
    END {
        print "medians of " rounds " rounds" (disturbed ? "; " disturbed " runs were disturbed by other programs" : "; no run was disturbed")
        print "\n| ranks x threads | beside | spinning, tokens/s | sleeping, tokens/s | / spinning, in a round (quartiles) | a moment, tokens/s | / spinning |"
        print "|---|---|---|---|---|---|---|"
        for (c = 1; c <= cases; c++) {
            split(order[c], p, " ")
            printf "| %s x %s | %s | %.0f | %.0f | %s | %.0f | %s |\n", p[1], p[2], p[3] == "loop" ? "a busy loop" : "nothing", rate("spinning " order[c]),
                   rate("sleeping " order[c]), ratio("sleeping", order[c]), rate("moment " order[c]), ratio("moment", order[c])
        }
    }' "$lines"
