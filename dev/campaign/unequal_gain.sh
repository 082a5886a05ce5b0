#!/usr/bin/env bash
# What a plan makes of unequal machines (dev/campaign/unequal.sh): tokens/s of a planned run beside the sum of what each rank does alone at the same time,
# and beside an equal division; the step that the plan foresees beside the one that was measured.
#
# dev/campaign/unequal_gain.sh [--quotas 60,20] [--rate 100mbit] [--slow RANK:FACTOR] [--rounds 3] [--steps 20] PROGRAM [FLAGS ...]
#   --slow    the quota of rank RANK is multiplied by FACTOR after a third of the planned and the equal run; rates are those of the last quarter, the ranks alone
#             have the smaller quota from the beginning
#   --rounds  each in the order alone, planned, equal, alone: the machine may be faster in one round than in the next, so only figures of one round are compared
# FLAGS: no --output_dir, --max_steps. A line for each round, then the median.
set -euo pipefail
cd "$(dirname "$0")/../.."
quotas=60,20 rate="" slow="" rounds=3 steps=20
while [ $# -gt 0 ]; do
    case $1 in
    --quotas) quotas=$2; shift 2 ;;
    --rate) rate=$2; shift 2 ;;
    --slow) slow=$2; shift 2 ;;
    --rounds) rounds=$2; shift 2 ;;
    --steps) steps=$2; shift 2 ;;
    --*) echo "unequal_gain.sh: there is no $1" >&2; exit 2 ;;
    *) break ;;
    esac
done
[ $# -gt 0 ] || { sed -n '5p' "$0" >&2; exit 2; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
program=$1
shift
flags=("$@" --sample_tokens 0 --save_steps 0 --validation_fraction 0 --logging_steps 1 --overwrite_output_dir true)
ranks=$(awk -F, '{print NF}' <<<"$quotas")
samples=$(grep -oP -- '--global_batch_size \K[0-9]+' <<<"$*" || echo 0)
[ "$samples" != 0 ] || { echo "unequal_gain.sh: give --global_batch_size N" >&2; exit 2; }
less=$quotas
[ -z "$slow" ] || less=$(awk -F, -v r="${slow%:*}" -v f="${slow#*:}" 'BEGIN {OFS = ","} {$(r + 1) = int($(r + 1) * f)} 1' <<<"$quotas")
# The median rate of a log's steps from the given one on.
rate_of() { sed -n 's/.*"step": \([0-9]*\), "loss".*"tokens_per_s": \([0-9.e+]*\).*/\1 \2/p' "$1" | awk -v from="$2" '$1 >= from {print $2}' | median; }
median() { sort -g | awk '{x[NR] = $1} END {print NR % 2 ? x[(NR + 1) / 2] : (x[NR / 2] + x[NR / 2 + 1]) / 2}'; }
unequal() { # name, what else unequal.sh is told, --, flags
    local name=$1 more=()
    shift
    while [ "$1" != -- ]; do more+=("$1"); shift; done
    shift
    rm -rf "$tmp/$name"*
    dev/campaign/unequal.sh ${rate:+--rate "$rate"} ${more[@]+"${more[@]}"} --out "$tmp/text-$name" \
        "$program" "${flags[@]}" --output_dir "$tmp/$name" "$@" || { tail -n 5 "$tmp/text-$name/"rank*.txt >&2; exit 1; }
}
alone() { # tokens/s of all ranks together
    local r sum=0
    unequal alone --quotas "$less" --alone true -- --global_batch_size $((samples / ranks)) --max_steps "$((steps / 2))"
    for ((r = 0; r < ranks; r++)); do sum=$(awk -v a="$sum" -v b="$(rate_of "$tmp/alone$r/log.jsonl" 3)" 'BEGIN {print a + b}'); done
    echo "$sum"
}
from=$((steps / 3)) change=()
[ -z "$slow" ] || { from=$((steps - steps / 4)); change=(--slow "${slow%:*}:$((steps / 3)):${slow#*:}"); }
echo "quotas $quotas${slow:+, then $less}, ${rate:-no limit} between machines, $samples samples a step"
for ((k = 1; k <= rounds; k++)); do
    before=$(alone)
    unequal planned --quotas "$quotas" ${change[@]+"${change[@]}"} -- --plan auto --max_steps "$steps"
    unequal equal --quotas "$quotas" ${change[@]+"${change[@]}"} -- --max_steps "$steps" --rebalance off
    after=$(alone)
    planned=$(rate_of "$tmp/planned/log.jsonl" "$from") equal=$(rate_of "$tmp/equal/log.jsonl" "$from")
    foreseen=$(grep -oP 'takes about \K[0-9.e-]+' "$tmp/text-planned/rank0.txt" | head -n 1)
    tokens=$(sed -n 's/.*steps of [0-9]* samples x \([0-9]*\) tokens.*/\1/p' "$tmp/text-planned/rank0.txt")
    grep -h -A"$ranks" '^rank machine' "$tmp/text-planned/rank0.txt" | sed 's/^/    /'
    awk -v b="$before" -v a="$after" -v p="$planned" -v e="$equal" -v f="$foreseen" -v t="$((samples * tokens))" 'BEGIN {
        sum = (a + b) / 2
        printf "alone %d, %d; planned %d, %.3f of their mean; equal %d, %.3f; a step %.3f s, foreseen %.3f, %+.0f%%\n", b, a, p, p / sum, e, e / sum, t / p, f, 100 * (f * p / t - 1)
    }' | tee -a "$tmp/rounds"
done
echo "median: planned $(sed 's/.*planned [0-9]*, \([0-9.]*\) .*/\1/' "$tmp/rounds" | median), equal $(sed 's/.*equal [0-9]*, \([0-9.]*\);.*/\1/' "$tmp/rounds" | median)," \
    "foreseen $(sed 's/.*, \([-+][0-9]*%\)$/\1/' "$tmp/rounds" | median)"
