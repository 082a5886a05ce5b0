#!/usr/bin/env bash
# A training step of BERT-base on masked tokens (8 texts of 128 tokens) beside transformers': rounds that take turns, the median of each.
#   dev/bench/bert.sh [ROUNDS [STEPS]]     default: 3 rounds of 4 steps, of which the first is not counted; PRECISIONS="fp32 bf16"
# Galaxy's head computes the rows that have a label (15% of the tokens); transformers' computes all of them, and with "masked" those rows, too; each as
# installed and under torch.compile. Of the memory of each the peak is said.
set -eu
cd "$(dirname "$0")/../.."
rounds=${1:-3} steps=${2:-4} precisions=${PRECISIONS:-fp32 bf16}
python=$(dev/ref/venv.sh | tail -n 1)
work=build/bench-bert
make --no-print-directory -s train_bert tokenize data-bert >/dev/null
mkdir -p "$work"
[ -d "$work/tokenizer" ] || ./tokenize --train data/bert/pretrain.txt --vocab_size 30522 --output_dir "$work/tokenizer"

median() { sort -n | awk '{ x[NR] = $1 } END { print NR % 2 ? x[(NR + 1) / 2] : (x[NR / 2] + x[NR / 2 + 1]) / 2 }'; }
galaxy() { # ms per step, one to a line
    ./train_bert --tokenizer "$work/tokenizer" --vocab_size 30522 --hidden_size 768 --intermediate_size 3072 --num_hidden_layers 12 --num_attention_heads 12 \
        --seq_len 128 --micro_batch_size 8 --max_steps "$steps" --logging_steps 1 --sample_lines 0 --eval_steps 0 --save_steps 0 --validation_fraction 0 --precision "$1" \
        --overwrite_output_dir true --output_dir "$work/out" >"$work/galaxy.log" 2>&1 || { tail -n 3 "$work/galaxy.log" >&2; return 1; }
    # 1024 rows, of which the rate counts those that are no padding
    sed -n 's/.*"tokens_per_s": \([0-9.]*\)\(, "padding": \([0-9.]*\)\)*.*/\1 0\3/p' "$work/out/log.jsonl" | tail -n +2 | awk '{ print 1024000 * (1 - $2) / $1 }'
}
torch() { # PRECISION VARIANT HEAD: the median that it says itself, and its memory in MB
    "$python" dev/bench/torch_bert.py --variant "$2" --head "$3" --precision "$1" --steps "$((steps - 1))" --warmup 2 2>/dev/null | tail -n 1 |
        sed -n 's/.*"peak_rss_mb": *\([0-9]*\).*"ms": *\([0-9.]*\).*/\2 \1/p'
}
for precision in $precisions; do
    rm -f "$work"/*.ms
    for _ in $(seq "$rounds"); do
        galaxy "$precision" >>"$work/galaxy.ms"
        for way in "transformers full" "transformers masked" "transformers-compile full" "transformers-compile masked"; do
            torch "$precision" $way >>"$work/$way.ms"
        done
    done
    ours=$(median <"$work/galaxy.ms")
    echo "$precision: Galaxy $(printf %.0f "$ours") ms per step, $(sed -n 's/^peak memory \([0-9]*\).*/\1/p' "$work/galaxy.log") MB"
    for way in "transformers full" "transformers masked" "transformers-compile full" "transformers-compile masked"; do
        awk -v h="$way" -v a="$ours" -v b="$(cut -d' ' -f1 "$work/$way.ms" | median)" -v m="$(tail -n 1 "$work/$way.ms" | cut -d' ' -f2)" \
            'BEGIN { printf "    %s: %.0f ms, %d MB: %.2f times\n", h, b, m, b / a }'
    done
done
