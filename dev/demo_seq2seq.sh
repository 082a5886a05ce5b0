#!/usr/bin/env bash
# A BART from nothing: two ranks train it on a dictionary to pronounce words from their spelling; then it pronounces
# words that it has not seen, by beam search. Asserts that its phoneme error rate is lower, by a margin, than that of
# taking the pronunciation of the word with the nearest spelling.
#   dev/demo_seq2seq.sh [more flags of the training]
set -eu
cd "$(dirname "$0")/.."
limit=0.60 # of the phoneme error rate of the nearest word; see docs/demo.md for how it was chosen
out=out/demo-seq2seq
rm -rf "$out"
mkdir -p build
./train_bart --config train_config/bart/words.json "$@"
last=$(find "$out" -maxdepth 1 -name 'checkpoint-*' | sort -t- -k3 -n | tail -n 1)
./train_bart --model "$last" --predict data/words/test.tsv --predictions "$out/test.jsonl" --seq_len 32 \
    --micro_batch_size 64 --num_beams 4 --num_return_sequences 3

# {"source":"abbot","target":"AE B AX T","targets":["AE B AX T","AX B AA T","AE B AA T"]}
tab=$'\t'
{
    echo "source${tab}target"
    sed -n "s/^{\"source\":\"\([a-z]*\)\",\"target\":\"\([^\"]*\)\".*/\1$tab\2/p" "$out/test.jsonl"
} >"$out/test.tsv"
sed -n 's/.*"targets":\["\(.*\)"\]}$/\1/p' "$out/test.jsonl" | sed 's/","/, /g' >"$out/beams"
echo "Words that were held out, what the dictionary has, and the three best of four beams:"
tail -n +2 data/words/test.tsv | paste - "$out/beams" |
    awk -F '\t' 'NR % 50 == 1 && ++n <= 20 { printf "  %-14s %-26s %s\n", $1, $2, $3 }'
rm "$out/beams"

${CC:-cc} -std=gnu11 -O2 dev/score_words.c -o build/score_words
build/score_words data/words/train.tsv data/words/test.tsv "$out/test.tsv" >"$out/scores.txt"
awk -v limit="$limit" '
    $1 == "words" { words = $2 }
    $1 == "model" { rate = $2; right = $3 }
    $1 == "nearest" { nearest = $2; nearest_right = $3 }
    END {
        if (nearest == "") { print "demo-seq2seq: FAILED: there are no scores"; exit 1 }
        ok = rate <= limit * nearest
        printf "demo-seq2seq: %s: phoneme error rate %.1f%% on %d held-out words, %.1f%% of them without an error;\n", \
            ok ? "ok" : "FAILED", 100 * rate, words, 100 * right
        printf "    of the nearest word\047s pronunciation: %.1f%%, %.1f%%: %.2f of these errors (at most %.2f)\n", \
            100 * nearest, 100 * nearest_right, rate / nearest, limit
        exit !ok
    }' "$out/scores.txt"
echo "pictures: $out/loss.svg; targets: $out/test.jsonl"
echo "next: printf 'source\\njabberwocky\\n' >new.tsv"
echo "      ./train_bart --model $last --predict new.tsv --predictions new.jsonl --seq_len 32 --num_beams 4"
