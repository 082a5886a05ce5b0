#!/usr/bin/env bash
# Modes beside each other: two ranks of one thread each against one rank of two threads: dev/bench/modes.sh [--rounds N]
#
# Machines are noisy, so nothing is compared across time: all configurations run in turn, each as a program of its own, for some rounds. A ratio is taken
# within a round; medians over the rounds are reported. A run during which other programs took more than a tenth of a core is repeated, a few times at
# most. Ranks are threads of one process and, where there is mpirun, processes; memory is that of processes. Prints tables in Markdown.
set -eu
cd "$(dirname "$0")/../.."
rounds=5 tries=8
if [ "${1:-}" = --rounds ]; then rounds=$2; fi
program=$(make --no-print-directory -s print-folder)/modes
make --no-print-directory -s "$program"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
lines=$(dirname "$program")/modes.lines # stays: dev/bench/modes.awk makes the tables from it
: >"$lines"

# shapes: the one of docs/benchmarks.md, and a small one whose tokens are bytes
declare -A shape=([B]="" [S]="--hidden 192 --layers 4 --heads 6 --kv 2 --ffn 512 --vocab 256 --batch 4 --seq 128")
declare -A steps=([B]="--warmup 1 --steps 4" [S]="--warmup 5 --steps 40")
modes=$(sed -n 's/^ *X.\([a-z0-9]*\),.*/\1/p' galaxy/model/mode.h) # the list of modes; dp and serial besides
engines=threads
if mpirun -np 2 "$program" --mode dp --threads 1 ${shape[S]} --steps 1 >/dev/null 2>&1; then engines="threads mpi"; fi

run() { # ENGINE FLAGS...
    local engine=$1
    shift
    case $engine in
    none) "$program" "$@" --threads 2 ;;
    threads) "$program" "$@" --threads 1 --ranks 2 ;;
    mpi) mpirun -np 2 "$program" "$@" --threads 1 ;;
    esac
}
busy() { awk '/^cpu / { print ($2 + $3 + $4 + $7 + $8 + $9) / 100 }' /proc/stat; } # seconds of CPU time, of all programs
TIMEFORMAT='%R %U %S'
exec 3>&2

# one SHAPE ROUND CASE ENGINE FLAGS...: the lines of all ranks, with what they are of in front
one() {
    local s=$1 key="shape=$1 round=$2 case=$3" engine=$4 try before quiet=0
    shift 4
    for ((try = 1; try <= tries && !quiet; try++)); do
        if ((try > 1)); then sleep 1; fi
        before=$(busy)
        { time run $engine ${shape[$s]} ${steps[$s]} "$@" >"$lines.one" 2>&3; } 2>"$lines.time"
        quiet=$(echo "$before $(busy) $(cat "$lines.time")" | awk '{ print $2 - $1 - $4 - $5 <= 0.1 * $3 ? 1 : 0 }')
    done
    sed "s/^/$key quiet=$quiet /" "$lines.one" >>"$lines"
}

for s in B S; do
    for ((round = 1; round <= rounds; round++)); do
        one $s $round serial none --mode serial
        for engine in $engines; do
            for mode in dp $modes; do one $s $round $mode $engine --mode $mode; done
        done
    done
done
# a rank that is half as fast as the other, with even and with uneven parts; a mode takes the lists of what it splits
lists="--heads_list 4,2 --columns_list 341,171 --vocab_list 171,85 --sequence_list 85,43"
for ((round = 1; round <= rounds; round++)); do
    for mode in $modes; do
        one S $round equal threads --mode $mode
        one S $round slow_even threads --mode $mode --slow_rank 1 --slow 2
        one S $round slow_uneven threads --mode $mode --slow_rank 1 --slow 2 $lists
    done
done
awk -f dev/bench/modes.awk "$lines"
