#!/usr/bin/env bash
# The tables of keys (galaxy/io/json_keys.h) and the code agree: each key that a reader of a file asks for by its name, in a call of gx_json_get or gx_gguf_get
# or as a field of a table of fields, is a row of that file's tables that says that it is read. (That a row's key is read, test_keys.cu tries.)
#   dev/test_keys.sh
set -uo pipefail
cd "$(dirname "$0")/.."
. dev/check.sh
# A line for each file that is read: the headers that read it and have its tables; behind the bar what they ask for as well, and is no key of that file.
readers=(
    "config.json: galaxy/run/family_json.h galaxy/run/llama_family.h galaxy/run/bert_family.h galaxy/run/bart_family.h galaxy/run/gpt2_family.h galaxy/data/model_labels.h
        | rope_factor rope_low_freq_factor rope_high_freq_factor rope_original_max_position_embeddings rope_beta_fast rope_beta_slow rope_attention_factor rope_mscale
        rope_mscale_all_dim rope_untruncated llama mistral qwen2 qwen3 smollm3 phi3 gemma3_text bert roberta distilbert bart mbart t5 mt5 gpt2 task_type" # options, which have other names there; of adapter_config.json
    "generation_config.json: galaxy/io/generation_config.h |"
    "generation_config.json beside an encoder: galaxy/task/beam_options.h |"
    "quantised matrices: galaxy/io/bnb.h |"
    "GGUF: galaxy/run/gguf_keys.h galaxy/run/gguf_config.h galaxy/text/gguf_tokenizer.h | normalizers pretokenizers decoders pattern special_tokens post_processor merges model single
        bos_token eos_token unk_token pad_token content id template" # of tokenizer.json, tokenizer_config.json, text/chat_find.h
    "tokenizer_config.json: galaxy/text/tokenizer_keys.h galaxy/text/tokenizer_config.h | content false" # a word of messages
)
asked() { # of headers: the keys
    cat "$@" | tr '\n' ' ' | grep -oE '(gx_(json|gguf)_(get|key)(_[a-z]+)?|gx_tokenizer_config_(value|token)|gx_family_need|gx__keys_take_id)\([^,()]*(\([^()]*\))?[^,()]*, "[^"]+"' | sed 's/.*"\(.*\)"/\1/'
    cat "$@" | grep -oE '\{"[a-z_0-9.]+", (GX_FIELD_|GX__GGUF_AT)' | sed 's/{"\(.*\)", .*/\1/'
    cat "$@" | grep -oE '\{"[a-z_]+", "(\\"[a-z]+\\"|[a-z0-9.{}]+)"\}' | sed 's/{"\([^"]*\)".*/\1/' # the one value that is built
}
agree() { # a reader: what it asks for and has no row
    local known others=${1#*|}
    set -- $(sed 's/^[^:]*://; s/|.*//' <<<"${1//$'\n'/ }")
    known=$(cat "$@" | tr '\n' ' ' | grep -oE '\{"[^"=]+[^"]*", *GX_KEY_READ' | sed 's/{"\(\*\.\)\?\([^"=]*\).*/\2/')
    [ -n "$known" ] || { echo "$* have no tables"; return; }
    for key in $(asked "$@" | sort -u); do
        grep -qxF -- "$key" <<<"$known" || grep -qwF -- "$key" <<<"$others" || echo "$key is asked for, and no table says that it is read"
    done
}
silent() { "$@" >"$tmp/said" && [ ! -s "$tmp/said" ] || { cat "$tmp/said"; return 1; }; }
for reader in "${readers[@]}"; do
    check "every key of ${reader%%:*} that is asked for is in its table" silent agree "$reader"
done
finish
