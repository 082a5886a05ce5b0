#!/usr/bin/env bash
# Seconds of a validation on two stages, beside those on one rank with a thread: dev/bench/pipelines_validation.sh [ROUNDS [PROGRAM]]
# The LLaMA of pipelines.sh validates 60 micro-batches of 2 x 256 tokens, less a run that validates 4; ways take turns, medians are printed, and the loss.
# PROGRAM: a train_llama built elsewhere, such as before a change, on two stages, too.
set -eu
cd "$(dirname "$0")/../.."
rounds=${1:-3} other=${2:-} work=build/bench-pipelines
make --no-print-directory -s train_llama >/dev/null
mkdir -p "$work"
rm -f "$work"/*.seconds
median() { sort -n | awk '{ x[NR] = $1 } END { printf "%.2f", NR % 2 ? x[(NR + 1) / 2] : (x[NR / 2] + x[NR / 2 + 1]) / 2 }'; }
model=(--seq_len 256 --micro_batch_size 2 --threads 1)
./train_llama "${model[@]}" --hidden_size 512 --intermediate_size 1376 --num_hidden_layers 8 --num_attention_heads 8 --max_steps 1 --eval_steps 0 \
    --validation_fraction 0 --sample_tokens 0 --overwrite_output_dir true --output_dir "$work/model" >/dev/null
head -c 35000 data/text.txt >"$work/long.txt"
head -c 3000 data/text.txt >"$work/short.txt"
seconds() { # PROGRAM TEXT FLAGS
    local start
    start=$(date +%s.%N)
    # shellcheck disable=SC2086
    "$1" "${model[@]}" --model "$work/model/checkpoint-1" --evaluate --validation_fraction 0.88 --train_data "$work/$2.txt" $3 >"$work/$2.log"
    echo "$start $(date +%s.%N)" | awk '{ print $2 - $1 }'
}
ways=("one ./train_llama" "pp ./train_llama --ranks 2 --pp 2")
[ -z "$other" ] || ways+=("other $other --ranks 2 --pp 2")
for round in $(seq "$rounds"); do
    for way in "${ways[@]}"; do
        read -r name program flags <<<"$way"
        echo "$(seconds "$program" short "$flags") $(seconds "$program" long "$flags")" | awk '{ print $2 - $1 }' >>"$work/$name.seconds"
        grep -o 'validation loss.*' "$work/long.log" | head -n 1 >"$work/$name.loss"
    done
done
for way in "${ways[@]}"; do
    echo "${way%% *}: $(median <"$work/${way%% *}.seconds") s; $(cat "$work/${way%% *}.loss")"
done
