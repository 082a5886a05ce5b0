#!/usr/bin/env bash
# LoRA on the demo's model (make demo), which learned another text: two ranks train an adapter, the model itself stays as it is. Shows that the adapter
# has learned, how small it is, and that the model with it and the two merged into one write the same.
#   dev/demo_lora.sh [more flags of train_llama]
set -eu
cd "$(dirname "$0")/.."
text=build/demo-lora/text.txt out=out/demo-lora merged=out/demo-lora-merged
base=$(find out/demo -maxdepth 1 -name 'checkpoint-*' 2>/dev/null | sort -t- -k2 -n | tail -n 1)
if [ -z "$base" ]; then
    dev/demo.sh
    base=$(find out/demo -maxdepth 1 -name 'checkpoint-*' | sort -t- -k2 -n | tail -n 1)
fi
mkdir -p build/demo-lora
if [ -f /usr/share/wordnet/data.noun ]; then
    sed -n 's/^[0-9].* | //p' /usr/share/wordnet/data.noun | head -c 1500000 >"$text"
    source="WordNet's glosses of nouns"
else
    cat README.md docs/*.md >"$text"
    source="this project's documentation"
fi
echo "demo-lora: $base, adapted to $source"
flags="--train_data $text --seq_len 256 --validation_fraction 0.05"
before=$(./train_llama --model "$base" --evaluate $flags --max_eval_samples 64 | sed -n 's/.* \([0-9.]*\) bits per byte.*/\1/p' | tail -n 1)
echo "on that text, before: $before bits per byte"
rm -rf "$out" "$merged"
./train_llama --model "$base" --tuning lora --lora_dim 8 --lora_target_modules q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj $flags \
    --ranks 2 --micro_batch_size 4 --max_steps 200 --warmup_steps 20 --learning_rate 5e-3 --eval_steps 100 --sample_tokens 0 --output_dir "$out" "$@"
adapter=$(find "$out" -maxdepth 1 -name 'checkpoint-*' | sort -t- -k3 -n | tail -n 1)
after=$(sed -n 's/.*"eval_bits_per_byte": \([0-9.]*\).*/\1/p' "$out/log.jsonl" | tail -n 1)
./merge_adapter --adapter "$adapter" --output_dir "$merged"
write() { ./generate_llama "$@" --prompt "a kind of " --max_new_tokens 80 --temperature 0 2>/dev/null; }
plain=$(write --model "$base") adapted=$(write --adapter "$adapter") whole=$(write --model "$merged")
printf 'the model:         %s\nwith the adapter:  %s\nmerged:            %s\n' "$plain" "$adapted" "$whole"
size() { wc -c <"$1" | tr -d ' '; }
echo "adapter: $(size "$adapter/adapter_model.safetensors") bytes, model: $(size "$base/model.safetensors") bytes"
[ "$adapted" = "$whole" ] || { echo "demo-lora: FAILED: the merged model writes another text"; exit 1; }
[ "$adapted" != "$plain" ] || { echo "demo-lora: FAILED: the adapter changes nothing"; exit 1; }
awk -v before="$before" -v after="$after" 'BEGIN {
    if (before == "" || after == "") { print "demo-lora: FAILED: no validation"; exit 1 }
    ok = after + 0 < 0.70 * before
    printf "demo-lora: %s: %.3f bits per byte before, %.3f with the adapter (at most 0.70 of it)\n", ok ? "ok" : "FAILED", before, after
    exit !ok }'
echo "next: write with it: ./generate_llama --adapter $adapter --prompt \"a kind of\""
