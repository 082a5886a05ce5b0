#!/usr/bin/env bash
# BERT from nothing to a classifier, on real text: a vocabulary is made from a dictionary and the King James Bible, a small BERT learns to
# fill in masked tokens on two ranks, and is then trained to say a word's part of speech from the dictionary's gloss. Asserts that it beats the
# most frequent class by a margin, and says whether it beats a logistic regression on tokens, too.
#   dev/demo_bert.sh [more flags of the fine-tuning]
set -eu
cd "$(dirname "$0")/.."
limit=0.40 # of the errors of the most frequent class at most this part is left; see docs/demo.md for how it was chosen
out=out/demo-bert
rm -rf "$out"
mkdir -p "$out"
./tokenize --train data/bert/pretrain.txt --vocab_size 8000 --output_dir "$out/tokenizer"
./train_bert --config train_config/bert/pretrain.json
last=$(ls -d "$out"/pretrain/checkpoint-* | sort -t- -k4 -n | tail -n 1)
./train_bert --config train_config/bert/classify.json --model "$last" "$@"
log=$out/classify/log.jsonl
number() { sed -n "s/.*\"$1\": *\([0-9.]*\).*/\1/p" "$log" | tail -n 1; }
accuracy=$(number eval_accuracy)
majority=$(number majority_accuracy)
regression=$(number regression_accuracy)
awk -v accuracy="$accuracy" -v majority="$majority" -v regression="$regression" -v limit="$limit" 'BEGIN {
    if (accuracy == "" || majority == "") { print "demo-bert: FAILED: no validation in the log"; exit 1 }
    ok = 1 - accuracy <= limit * (1 - majority)
    printf "demo-bert: %s: right on %.1f%% of held-out glosses; the most frequent class, always: %.1f%%", ok ? "ok" : "FAILED", 100 * accuracy, 100 * majority
    if (regression != "") printf "; a logistic regression on tokens: %.1f%%: %s wins", 100 * regression, (accuracy > regression ? "BERT" : "the regression")
    printf "\n"
    exit !ok }'
last=$(find "$out/classify" -maxdepth 1 -name 'checkpoint-*' | sort -t- -k3 -n | tail -n 1)
echo "pictures: $out/pretrain/loss.svg, $out/classify/loss.svg, $out/classify/confusion.svg"
echo "next: ./train_bert --task classification --model $last --predict data/bert/pos/test.tsv --predictions predictions.jsonl --seq_len 64"
