#!/usr/bin/env bash
# Tokens/s of two ranks as data-parallel copies and as stages of a pipeline, beside one rank with their threads: dev/bench/pipelines.sh [ROUNDS [STEPS]]
# A LLaMA of 25M parameters (D 512, 8 layers, bytes), 16 samples of 256 tokens a step in micro-batches of 2 (dp: 4 of 2 x 2; others: 8 of 2). The ways take
# turns in each round; ratios are taken within a round, medians over the rounds are printed, with the memory of a rank. ENGINE="mpirun" starts processes.
set -eu
cd "$(dirname "$0")/../.."
rounds=${1:-5} steps=${2:-6} engine=${ENGINE:-threads} work=build/bench-pipelines
make --no-print-directory -s train_llama >/dev/null
mkdir -p "$work"
rm -f "$work"/*.tok
median() { sort -n | awk '{ x[NR] = $1 } END { printf "%.3f", NR % 2 ? x[(NR + 1) / 2] : (x[NR / 2] + x[NR / 2 + 1]) / 2 }'; }
ways=("one --threads 2 --gradient_accumulation_steps 8" "dp --gradient_accumulation_steps 4" "pp_1f1b --pp 2 --gradient_accumulation_steps 8"
    "pp_zb1p --pp 2 --pipeline_schedule zb1p --gradient_accumulation_steps 8" "pp_gpipe --pp 2 --pipeline_schedule gpipe --gradient_accumulation_steps 8")
for round in $(seq "$rounds"); do
    for way in "${ways[@]}"; do
        name=${way%% *} flags=${way#* }
        start=(./train_llama)
        if [ "$name" != one ] && [ "$engine" = mpirun ]; then start=(mpirun --allow-run-as-root --oversubscribe --bind-to none -np 2 ./train_llama)
        elif [ "$name" != one ]; then flags+=" --ranks 2"; fi
        [ "$name" = one ] || flags+=" --threads 1"
        # shellcheck disable=SC2086
        "${start[@]}" $flags --hidden_size 512 --intermediate_size 1376 --num_hidden_layers 8 --num_attention_heads 8 --seq_len 256 --micro_batch_size 2 \
            --max_steps "$steps" --logging_steps 1 --eval_steps 0 --save_steps 0 --validation_fraction 0 --sample_tokens 0 --overwrite_output_dir true \
            --output_dir "$work/out" >"$work/$name.log" 2>&1 || { tail -n 3 "$work/$name.log" >&2; exit 1; }
        sed -n 's/.*"tokens_per_s": \([0-9.]*\).*/\1/p' "$work/out/log.jsonl" | tail -n +3 | median >>"$work/$name.tok"
        echo >>"$work/$name.tok"
    done
done
echo "$rounds rounds of $steps steps, the first two of which are not counted; ranks by $engine"
for way in "${ways[@]}"; do
    name=${way%% *}
    echo "$name: $(median <"$work/$name.tok") tokens/s, $(paste "$work/dp.tok" "$work/$name.tok" | awk 'NF == 2 { print $2 / $1 }' | median) of dp;" \
        "$(sed -n 's/^  arena \([^,]*\).*/arena \1/p' "$work/$name.log" | head -n 1)"
done
