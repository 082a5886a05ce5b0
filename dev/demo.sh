#!/usr/bin/env bash
# The demo: trains a small LLaMA on two ranks, then asserts what it shows: the model predicts held-out text better than pairs of bytes do.
#   dev/demo.sh [more flags of train_llama]
set -eu
cd "$(dirname "$0")/.."
limit=0.85 # of a bigram model's bits per byte; see docs/demo.md for how it was chosen
out=$(sed -n 's/.*"output_dir": *"\([^"]*\)".*/\1/p' train_config/llama/demo.json)
./train_llama --config train_config/llama/demo.json --overwrite_output_dir "$@"
bits=$(sed -n 's/.*"eval_bits_per_byte": \([0-9.]*\).*/\1/p' "$out/log.jsonl" | tail -n 1)
bigram=$(sed -n 's/.*"bigram_bits_per_byte": \([0-9.]*\).*/\1/p' "$out/log.jsonl" | tail -n 1)
awk -v bits="$bits" -v bigram="$bigram" -v limit="$limit" 'BEGIN {
    if (bits == "" || bigram == "") { print "demo: FAILED: no validation in the log"; exit 1 }
    ok = bits <= limit * bigram
    printf "demo: %s: %.3f bits per byte on held-out text, a bigram model has %.3f: %.2f of it (at most %.2f)\n", ok ? "ok" : "FAILED", bits, bigram, bits / bigram, limit
    exit !ok }'
last=$(find "$out" -maxdepth 1 -name 'checkpoint-*' | sort -t- -k2 -n | tail -n 1)
echo "next: make generate_llama && ./generate_llama --model $last --prompt \"In the beginning\" --temperature 0.8"
echo "      ./train_llama --train_data YOUR_TEXT.txt --output_dir out/mine; make demo-lora; make chat; make demo-bert; make demo-seq2seq"
