#!/usr/bin/env bash
# What it gains to communicate while computing: tokens/s with --overlap true and with false, of ranks that are processes on links of a given rate
# (dev/campaign/unequal.sh), each a core.
#
# dev/campaign/overlap.sh [--rate 1gbit] [--rounds 3] [--steps 12] [--case "FLAGS"]... [--against PROGRAM] PROGRAM [FLAGS ...]
#   --case     how the ranks work together; several: one table. Left out: sums of gradients, ZeRO 2, ZeRO 3, a pipeline
#   --against  PROGRAM beside this one, both with --overlap true: train_llama_galaxy_tiled against train_llama_galaxy
# FLAGS: of the model and its data; no --output_dir, --max_steps. In every round each case runs both ways, one after the other, and who begins changes from
# round to round. A ratio is taken within a round; medians over the rounds are printed. The network is this machine's, too: what its packets cost is taken from
# the ranks' cores, so that the ratios are lower than between machines.
set -euo pipefail
cd "$(dirname "$0")/../.."
rate=1gbit rounds=3 steps=12 cases=() against=
while [ $# -gt 0 ]; do
    case $1 in
    --rate) rate=$2; shift 2 ;;
    --rounds) rounds=$2; shift 2 ;;
    --steps) steps=$2; shift 2 ;;
    --case) cases+=("$2"); shift 2 ;;
    --against) against=$2; shift 2 ;;
    --*) echo "overlap.sh: there is no $1" >&2; exit 2 ;;
    *) break ;;
    esac
done
[ $# -gt 0 ] || { sed -n '5p' "$0" >&2; exit 2; }
[ ${#cases[@]} -gt 0 ] || [ -z "$against" ] || cases=("")
[ ${#cases[@]} -gt 0 ] || cases=("--reduce_bucket 1" "--zero 2" "--zero 3" "--pp 2 --gradient_accumulation_steps 8")
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
program=$1
shift
flags=("$@" --sample_tokens 0 --save_steps 0 --validation_fraction 0 --logging_steps 1 --overwrite_output_dir true --max_steps "$steps" --rebalance off)
median() { sort -g | awk '{x[NR] = $1} END {print NR % 2 ? x[(NR + 1) / 2] : (x[NR / 2] + x[NR / 2 + 1]) / 2}'; }
of() { sed -n "s/.*\"step\": \([0-9]*\), \"loss\".*\"$2\": \([0-9.e+-]*\).*/\1 \2/p" "$1" | awk '$1 > 2 {print $2}' | median; }
one() { # CASE NUMBER OVERLAP, or, with --against, which program: false is the one that is compared with
    local runs=$program overlap=$2
    if [ -n "$against" ]; then
        overlap=true
        [ "$2" = true ] || runs=$against
    fi
    # shellcheck disable=SC2086
    dev/campaign/unequal.sh --quotas 100,100 --rate "$rate" --out "$tmp/text" "$runs" "${flags[@]}" ${cases[$1]} --overlap "$overlap" --output_dir "$tmp/run" ||
        { tail -n 5 "$tmp"/text/rank*.txt >&2; exit 1; }
    of "$tmp/run/log.jsonl" tokens_per_s >>"$tmp/rate.$1.$2"
}
for ((k = 0; k < rounds; k++)); do
    for ((c = 0; c < ${#cases[@]}; c++)); do
        if ((k % 2)); then one $c true; one $c false; else one $c false; one $c true; fi
    done
done
if [ -n "$against" ]; then echo "| $rate, 2 ranks | tokens/s, ${against##*/} | ${program##*/} | ratio |"
else echo "| $rate, 2 ranks | tokens/s, --overlap false | true | ratio |"; fi
echo "|---|---|---|---|"
for ((c = 0; c < ${#cases[@]}; c++)); do
    ratio=$(paste "$tmp/rate.$c.true" "$tmp/rate.$c.false" | awk '{print $1 / $2}' | median)
    printf '| %s | %.0f | %.0f | %.2f |\n' "${cases[c]}" "$(median <"$tmp/rate.$c.false")" "$(median <"$tmp/rate.$c.true")" "$ratio"
done
