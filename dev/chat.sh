#!/usr/bin/env bash
# Talks to a model, before anything was trained: to the folder that is given, else to one that is on this disk (got by this script or by `make demo-chat`
# before, or by Hugging Face's `hf download`), else to SmolLM2-135M-Instruct, which is downloaded (93 MB).
#   dev/chat.sh [FOLDER]
set -eu
cd "$(dirname "$0")/.."
source dev/smollm2.sh

# A folder of Hugging Face's cache with a model that generate_llama reads and a template to talk by; the smallest one. Nothing: there is none.
cached() {
    local config folder
    for config in "${HF_HUB_CACHE:-${HF_HOME:-$HOME/.cache/huggingface}/hub}"/models--*/snapshots/*/config.json; do
        folder=${config%/config.json}
        if grep -qE '"model_type": *"(llama|mistral|qwen2|qwen3|smollm3|phi3|gemma3_text)"' "$config" 2>/dev/null && grep -qs chat_template "$folder"/tokenizer_config.json "$folder"/chat_template.jinja &&
            [ -f "$folder/model.safetensors" ]; then
            echo "$(stat -L -c %s "$folder/model.safetensors") $folder"
        fi
    done | sort -n | head -n 1 | cut -d' ' -f2-
}

model=${1:-}
[ -n "$model" ] || [ -d "$smollm2" ] || model=$(cached)
if [ -z "$model" ]; then
    smollm2_get chat
    model=$smollm2
fi
[ -f "$model/config.json" ] || { echo "chat: $model is no folder of a model: it has no config.json"; exit 1; }
echo "chat: $model"
status=0
./generate_llama --model "$model" --chat || status=$?
echo
echo "the same without make: ./generate_llama --model $model --chat; teach it your own conversations: make train_llama &&"
echo "  ./train_llama --model $model --tuning lora --train_data mychat.jsonl --learning_rate 1e-3 --seq_len 256 --micro_batch_size 2 --max_steps 30 --output_dir out/mychat"
exit $status
