#!/usr/bin/env bash
# Tokens/s of two ranks as data-parallel copies beside two that share what the first argument says: dev/bench/mesh.sh stages|shards [ROUNDS [STEPS]]
# stages: one has the lower layers, one the upper, in each order. shards: each has a part of the optimizer's state, of gradients, of weights (--zero 1, 2, 3).
# A LLaMA of 22.4M parameters (D 512, 8 layers, 2 K,V heads, bytes), 16 samples of 256 tokens a step in micro-batches of 2 (copies: 4 of 2 x 2; stages: 8 of 2).
# The ways take turns in each round; ratios are taken within a round, medians over the rounds are printed, with the memory of a rank and what it sends in a
# step. ENGINE="mpirun" starts processes.
set -eu
cd "$(dirname "$0")/../.."
what=${1:-stages} rounds=${2:-5} steps=${3:-6} engine=${ENGINE:-threads} work=build/bench-mesh
make --no-print-directory -s train_llama >/dev/null
mkdir -p "$work"
rm -f "$work"/*.tok
median() { sort -n | awk '{ x[NR] = $1 } END { printf "%.3f", NR % 2 ? x[(NR + 1) / 2] : (x[NR / 2] + x[NR / 2 + 1]) / 2 }'; }
copies="--gradient_accumulation_steps 4" stages="--pp 2 --gradient_accumulation_steps 8"
ways=("one --threads 2 --gradient_accumulation_steps 8" "dp $copies")
case $what in
stages) ways+=("1f1b $stages" "zb1p $stages --pipeline_schedule zb1p" "gpipe $stages --pipeline_schedule gpipe"
    "interleaved $stages --pipeline_schedule interleaved" "zbv $stages --pipeline_schedule zbv") ;;
shards) ways+=("zero_1 $copies --zero 1" "zero_2 $copies --zero 2" "zero_3 $copies --zero 3" "zero_3_all_whole $copies --zero 3 --gathered_units 10"
    "zero_3_each $copies --zero 3 --shard_grads_in_window true") ;;
*) echo "mesh.sh: stages or shards, not $what" >&2 && exit 1 ;;
esac
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
        "$(sed -n 's/^  arena \([^,]*\).*/arena \1/p' "$work/$name.log" | head -n 1)," "$(sed -n 's/^ *\([0-9.]* .B sent per step\).*/\1/p; s/.*, \([0-9.]* .B sent per step\).*/\1/p' "$work/$name.log" | head -n 1)"
done
