#!/usr/bin/env bash
# Makes the references (PyTorch, PEFT, `tokenizers`, scikit-learn) again beside the committed ones and fails where they differ beyond rounding; then
# lets transformers load a tokenizer that Galaxy trained and compares its ids, and a checkpoint that Galaxy saved and compares its logits, and reads
# the GGUF files that are made of such folders. GX_OTHER_TRANSFORMERS=DIR: what Galaxy saved is loaded by the transformers in DIR, too:
# pip install --target DIR --no-deps 'transformers==4.57.*' 'huggingface_hub<1' 'tokenizers<=0.23'
#   dev/ref/refs.sh [again|loaded]    again: only what is made again and compared; loaded: only what others load; none: both
set -eu
cd "$(dirname "$0")/../.."
python=$(dev/ref/venv.sh | tail -n 1)
load() { # a script, and its arguments
    "$python" "$@"
    [ -z "${GX_OTHER_TRANSFORMERS:-}" ] || PYTHONPATH=$GX_OTHER_TRANSFORMERS "$python" "$@"
}
made_by() { # a script, and its arguments
    "$python" "dev/ref/make_$1.py" "${@:2}"
}
rm -rf build/refs; mkdir -p build/refs
text=data/ref/wordpiece/expected.txt
again() { # all references, and the tables of Unicode
    texts() { # beside the models, which do not need them
        made_by bpe --lines "$text" --out build/refs/bpe
        made_by unigram --lines "$text" --out build/refs/unigram
        made_by tokenizers --lines "$text" --out build/refs/wordpiece
        made_by chat build/refs/chat.jsonl
        made_by template build/refs/template
        made_by scores build/refs/scores.jsonl
        made_by noise build/refs/noise.jsonl
        made_by text_metrics build/refs/text_metrics.jsonl
        made_by words build/refs/words.jsonl
        made_by csv build/refs/csv.jsonl
        made_by gguf --out build/refs/gguf
        made_by unicode build/unicode_tables.h
    }
    texts &
    trap wait EXIT # where one fails, the others end first
    for models in refs bert_refs bart_refs t5_refs gpt2_refs beams lora_refs tokens_refs bottleneck_refs side_refs prompt_refs prompt_v2_refs parallel_refs generate; do made_by $models --out build/refs; done
    made_by chat_refs --out build/refs/chat_train
    made_by dpo_refs --out build/refs
    made_by likelihood --models build/refs --out build/refs/likelihood.jsonl
    made_by quant_refs --out build/refs/quant
    wait %1
    "$python" dev/ref/compare_refs.py data/ref build/refs
    bare() { sed 's|//.*||' "$1" | tr -d ' \n'; } # comments and layout aside: clang-format changes them
    cmp <(bare build/unicode_tables.h) <(bare galaxy/text/unicode_tables.h) || { echo "galaxy/text/unicode_tables.h differs from what make_unicode.py makes"; exit 1; }
}
case ${1:-} in
'' | again) again ;;
loaded) ;;
*) echo "dev/ref/refs.sh: \"$1\" is no part; again and loaded are" >&2; exit 2 ;;
esac
[ "${1:-}" != again ] || exit 0
dump=$(make --no-print-directory -s print-folder)/llama_logits
make --no-print-directory -s -j"$(nproc)" tokenize train_llama train_bert train_bart train_t5 train_gpt2 merge_adapter convert_gguf "$dump"
./tokenize --train "$text" --type bpe --vocab_size 3000 --output_dir build/refs/bpe_trained >/dev/null
./tokenize --tokenizer build/refs/bpe_trained --file "$text" >build/refs/bpe_ids.jsonl
load dev/ref/load_bpe.py build/refs/bpe_trained --text "$text" --ids build/refs/bpe_ids.jsonl
load dev/ref/load_bert.py data/ref/bert_pretrain --logits data/ref/bert_pretrain/ref.safetensors
load dev/ref/load_bert.py data/ref/roberta_mlm --logits data/ref/roberta_mlm/ref.safetensors
load dev/ref/load_bert.py data/ref/xlmr_cls3 --logits data/ref/xlmr_cls3/ref.safetensors
for model in bert_ner distilbert_mlm distilbert_cls3; do load dev/ref/load_bert.py data/ref/$model --logits data/ref/$model/ref.safetensors; done
# A BART, mBARTs and T5s that transformers saved, and what is trained from them: both write the same targets.
(echo source; head -n 40 "$text" | tr -d '\t"' | grep . | cut -c1-30) >build/refs/sources.tsv
(printf 'source\ttarget\n'; for i in $(seq 200); do printf 'the cat %d runs\tcat %d\n' "$i" "$((i % 7))"; done) >build/refs/sources_targets.tsv
for kind in bart mbart mbart50 t5 t5_gated mt5; do
    program=./train_bart languages=()
    case $kind in t5* | mt5) program=./train_t5 ;; mbart*) languages=(--source_lang en_XX --target_lang ro_RO) ;; esac
    "$python" dev/ref/load_seq2seq.py "build/refs/${kind}_theirs" --make "$kind"
    "$program" --model "build/refs/${kind}_theirs" --train_data build/refs/sources_targets.tsv --seq_len 32 --max_steps 60 --learning_rate 1e-3 --sample_lines 0 \
        "${languages[@]}" --overwrite_output_dir true --output_dir "build/refs/$kind" >/dev/null
    for folder in "build/refs/${kind}_theirs" "build/refs/$kind/checkpoint-60"; do
        rm -f build/refs/targets.jsonl
        "$program" --model "$folder" "${languages[@]}" --predict build/refs/sources.tsv --predictions build/refs/targets.jsonl --seq_len 32 >/dev/null
        load dev/ref/load_seq2seq.py "$folder" --predictions build/refs/targets.jsonl
    done
done
for model in "llama --tie_word_embeddings true" "llama --rope_type llama3 --rope_original_max_position_embeddings 16 --rope_theta 100" "mistral --sliding_window 64" \
    "smollm3 --no_rope_layers 1010 --sliding_window 9 --tie_word_embeddings true" "smollm3" "phi3 --sliding_window 9 --max_shard_size 50KB" \
    "gemma3_text --head_dim 20 --sliding_window 9 --sliding_window_pattern 2 --query_pre_attn_scalar 30 --rope_type linear --rope_factor 4 --rope_theta 1000 --rope_local_base_freq 50 --tie_word_embeddings true" \
    "gemma3_text --sliding_window 7 --layer_types sffs --attention_bias true --max_shard_size 50KB" \
    "llama --attention_bias true --mlp_bias true --rope_type yarn --rope_factor 4 --rope_original_max_position_embeddings 16 --rope_theta 100" \
    "qwen3 --rope_type yarn --rope_factor 4 --rope_mscale 0.7 --rope_mscale_all_dim 1.2 --rope_untruncated true --rope_beta_fast 5" \
    "mistral --rope_type linear --rope_factor 2" "qwen2 --rope_type dynamic --rope_factor 2" "mistral --head_dim 16" "qwen2 --tie_word_embeddings true" "qwen3 --head_dim 20 --rope_theta 1000000" "qwen3 --tie_word_embeddings true" \
    "llama --save_dtype bf16 --max_shard_size 50KB" "qwen2 --save_dtype fp16"; do
    ./train_llama --model_type $model --max_steps 4 --seq_len 64 --micro_batch_size 2 --hidden_size 48 --num_attention_heads 4 --intermediate_size 96 \
        --max_eval_samples 4 --sample_tokens 0 --overwrite_output_dir true --output_dir build/refs/run >/dev/null
    rm -rf build/refs/saved; cp -r build/refs/run/checkpoint-4 build/refs/saved; rm build/refs/saved/optimizer.safetensors # weights as others read them
    "$dump" build/refs/saved build/refs/logits.safetensors
    load dev/ref/load_checkpoint.py build/refs/saved --logits build/refs/logits.safetensors
done
# An adapter of the last of these, by peft; and what is merged.
./train_llama --model build/refs/run/checkpoint-4 --tuning lora --r 5 --lora_alpha 20 --use_rslora --max_steps 30 --learning_rate 1e-2 --seq_len 64 --micro_batch_size 2 \
    --max_eval_samples 4 --sample_tokens 0 --trainable_modules norm --overwrite_output_dir true --output_dir build/refs/lora >/dev/null
rm -rf build/refs/merged; ./merge_adapter --adapter build/refs/lora/checkpoint-30 --output_dir build/refs/merged >/dev/null
"$dump" build/refs/lora/checkpoint-30 build/refs/logits.safetensors
"$python" dev/ref/load_lora.py build/refs/lora/checkpoint-30 --logits build/refs/logits.safetensors --merged build/refs/merged
# GPT-2s, and an adapter of the last, and of Phi-3 and GPT-2 those that peft saved: of stacked matrices.
gpt2() { ./train_gpt2 --seq_len 64 --micro_batch_size 2 --max_eval_samples 4 --sample_tokens 0 --overwrite_output_dir true "$@" >/dev/null; }
for model in "--max_shard_size 50KB" "--tie_word_embeddings false --save_dtype bf16" "--scale_attn_by_inverse_layer_idx true --activation_function relu --n_inner 40"; do
    gpt2 --n_embd 48 --n_head 4 $model --max_steps 4 --output_dir build/refs/gpt2
    rm -rf build/refs/saved; cp -r build/refs/gpt2/checkpoint-4 build/refs/saved; rm build/refs/saved/optimizer.safetensors
    "$dump" build/refs/saved build/refs/logits.safetensors gpt2
    load dev/ref/load_checkpoint.py build/refs/saved --logits build/refs/logits.safetensors
done
gpt2 --model build/refs/gpt2/checkpoint-4 --tuning lora --r 5 --lora_alpha 20 --max_steps 30 --learning_rate 1e-2 --target_modules c_attn,c_fc --trainable_modules ln_f,0.attn.c_proj \
    --output_dir build/refs/gpt2_lora
rm -rf build/refs/merged; ./merge_adapter --adapter build/refs/gpt2_lora/checkpoint-30 --output_dir build/refs/merged >/dev/null
"$dump" build/refs/gpt2_lora/checkpoint-30 build/refs/logits.safetensors gpt2
"$python" dev/ref/load_lora.py build/refs/gpt2_lora/checkpoint-30 --logits build/refs/logits.safetensors --merged build/refs/merged
for adapter in phi3 gpt2 dropout_gpt2; do
    rm -rf build/refs/merged; ./merge_adapter --adapter data/ref/lora_$adapter --output_dir build/refs/merged >/dev/null
    "$dump" data/ref/lora_$adapter build/refs/logits.safetensors $(case $adapter in *gpt2) echo gpt2 ;; esac)
    "$python" dev/ref/load_lora.py data/ref/lora_$adapter --logits build/refs/logits.safetensors --merged build/refs/merged
done
# The same with LoRA on the embedding, and on the head; and adapters that peft saved, of some of which the two are tied.
# And of ranks and alphas that differ.
for targets in embed_tokens,v_proj lm_head,v_proj \
    'embed_tokens,q_proj,v_proj,down_proj --use_rslora --exclude_modules 0.self_attn.v_proj --rank_pattern q_proj=5 --alpha_pattern {"layers\\.1\\..*":7}'; do
    ./train_llama --model build/refs/run/checkpoint-4 --tuning lora --r 3 --target_modules $targets --max_steps 30 --learning_rate 1e-2 --seq_len 64 --micro_batch_size 2 \
        --max_eval_samples 4 --sample_tokens 0 --overwrite_output_dir true --output_dir build/refs/lora_ends >/dev/null 2>&1
    "$dump" build/refs/lora_ends/checkpoint-30 build/refs/logits.safetensors
    "$python" dev/ref/load_lora.py build/refs/lora_ends/checkpoint-30 --logits build/refs/logits.safetensors
done
for adapter in embed embed_tied head head_tied head_both ranks layers; do
    "$dump" data/ref/lora_$adapter build/refs/logits.safetensors
    "$python" dev/ref/load_lora.py data/ref/lora_$adapter --logits build/refs/logits.safetensors
done
for adapter in embed head ranks; do
    rm -rf build/refs/merged; ./merge_adapter --adapter data/ref/lora_$adapter --output_dir build/refs/merged >/dev/null
    "$python" dev/ref/load_lora.py data/ref/lora_$adapter --kind AutoModelForCausalLM --merged build/refs/merged
done
# An adapter of vectors, over transformers' model without a head.
for i in $(seq 60); do printf 'the cat number %d runs.\nit rains on day %d.\n\n' "$i" "$i"; done >build/refs/documents.txt
(printf 'anchor\tpositive\n'; for i in $(seq 60); do printf 'cats %d run\tthe cat number %d runs\n' "$i" "$i"; done) >build/refs/pairs.tsv
(echo text; seq 8 | sed 's/^/the cat number /') >build/refs/texts.tsv
bert() { ./train_bert --threads 2 --seq_len 32 --overwrite_output_dir true "$@" >/dev/null; }
bert --task masked_lm --hidden_size 32 --intermediate_size 48 --num_attention_heads 4 --num_hidden_layers 2 --max_position_embeddings 64 \
    --train_data build/refs/documents.txt --tokenizer data/ref/wordpiece --max_steps 4 --output_dir build/refs/bert
bert --task embedding --model build/refs/bert/checkpoint-4 --tuning lora --lora_dim 3 --learning_rate 2e-2 --train_data build/refs/pairs.tsv --max_steps 30 --output_dir build/refs/vectors
./train_bert --task embedding --adapter build/refs/vectors/checkpoint-30 --embed build/refs/texts.tsv --embed_output build/refs/vectors.npy >/dev/null
rm -rf build/refs/merged; ./merge_adapter --adapter build/refs/vectors/checkpoint-30 --output_dir build/refs/merged >/dev/null
"$python" dev/ref/load_lora.py build/refs/vectors/checkpoint-30 --vectors build/refs/vectors.npy --texts build/refs/texts.tsv --merged build/refs/merged
(printf 'text\tlabel\n'; for i in $(seq 60); do printf 'a cat %d\tcat\na dog %d\tdog\na bird %d\tbird\n' "$i" "$i" "$i"; done) >build/refs/labels.tsv
merged() { # transformers' class, the model, and what is trained: merged as peft does it
    bert --model "$2" --tuning lora --lora_dim 3 --learning_rate 2e-2 --max_steps 20 --output_dir build/refs/adapter "${@:3}"
    rm -rf build/refs/merged; ./merge_adapter --adapter build/refs/adapter/checkpoint-20 --output_dir build/refs/merged >/dev/null
    "$python" dev/ref/load_lora.py build/refs/adapter/checkpoint-20 --kind "$1" --merged build/refs/merged
}
merged AutoModelForSequenceClassification build/refs/bert/checkpoint-4 --task classification --train_data build/refs/labels.tsv
merged AutoModelForMaskedLM build/refs/bert/checkpoint-4 --task masked_lm --train_data build/refs/documents.txt --target_modules all-linear
merged AutoModelForSequenceClassification build/refs/bert/checkpoint-4 --task classification --train_data build/refs/labels.tsv --target_modules word_embeddings,query
merged AutoModelForPreTraining build/refs/bert/checkpoint-4 --task masked_lm --nsp true --train_data build/refs/documents.txt
bert --model build/refs/bert/checkpoint-4 --task classification --train_data build/refs/labels.tsv --max_steps 2 --output_dir build/refs/bert_labels
merged AutoModelForSequenceClassification build/refs/bert_labels/checkpoint-2 --task classification --train_data build/refs/labels.tsv --target_modules classifier,query
# Labels of words: transformers, with seqeval's counts, says the same of a folder, whole, as an adapter, and of a DistilBERT; and of what it saves again.
words() { for i in $(seq "$1"); do printf '{"tokens": ["Cat", "%d", "runs", "unbelievably", "."], "ner_tags": ["B-PET", "I-PET", "O", "O", "O"]}\n{"tokens": ["it", "rains", "on", "Dog%d", "."], "ner_tags": ["O", "O", "O", "B-PET", "O"]}\n' "$i" "$i"; done; }
words 60 >build/refs/words_train.jsonl; words 9 | sed '1~3s/Cat/cats/; 2~4s/rains/runs/' >build/refs/words_new.jsonl
labelled() { # a folder with a model
    rm -f build/refs/words_said.jsonl
    ./train_bert --task token_classification --seq_len 32 --model "$1" --predict build/refs/words_new.jsonl --predictions build/refs/words_said.jsonl >/dev/null
    "$python" dev/ref/load_ner.py "$1" build/refs/words_new.jsonl --max_seq_length 32 --predictions build/refs/words_said.jsonl "${@:2}"
}
bert --model build/refs/bert/checkpoint-4 --task token_classification --learning_rate 5e-3 --train_data build/refs/words_train.jsonl \
    --validation_data build/refs/words_new.jsonl --max_steps 60 --output_dir build/refs/names
labelled build/refs/names/checkpoint-60 --log build/refs/names/log.jsonl --save build/refs/names_again
labelled build/refs/names_again
merged AutoModelForTokenClassification build/refs/bert/checkpoint-4 --task token_classification --train_data build/refs/words_train.jsonl
labelled build/refs/merged
bert --task masked_lm --model_type distilbert --hidden_size 32 --intermediate_size 48 --num_attention_heads 4 --num_hidden_layers 2 --max_position_embeddings 64 \
    --train_data build/refs/documents.txt --tokenizer data/ref/wordpiece --max_steps 4 --output_dir build/refs/distilled
load dev/ref/load_bert.py build/refs/distilled/checkpoint-4
bert --model build/refs/distilled/checkpoint-4 --task token_classification --learning_rate 5e-3 --train_data build/refs/words_train.jsonl \
    --validation_data build/refs/words_new.jsonl --max_steps 60 --label_all_tokens true --output_dir build/refs/names
labelled build/refs/names/checkpoint-60 --log build/refs/names/log.jsonl --label_all_tokens
merged AutoModelForSequenceClassification build/refs/distilled/checkpoint-4 --task classification --train_data build/refs/labels.tsv
"$python" dev/ref/lora_targets.py --llama build/refs/run/checkpoint-4 --bert build/refs/bert/checkpoint-4 --texts build/refs/documents.txt --pairs build/refs/pairs.tsv
"$python" dev/ref/random_adapters.py --programs . --logits "$dump" --count 40
# Bottleneck adapters of the same, in a model of transformers.
./train_llama --model build/refs/run/checkpoint-4 --tuning adapter --adapter_reduction_dim 4 --max_steps 30 --learning_rate 1e-2 --seq_len 64 --micro_batch_size 2 \
    --max_eval_samples 4 --sample_tokens 0 --trainable_modules norm --overwrite_output_dir true --output_dir build/refs/bottleneck >/dev/null
"$dump" build/refs/bottleneck/checkpoint-30 build/refs/logits.safetensors
"$python" dev/ref/load_bottleneck.py build/refs/bottleneck/checkpoint-30 --logits build/refs/logits.safetensors
# Prompts in attention, by peft; what peft saves again is read again.
./train_llama --model_type mistral --num_hidden_layers 3 --num_key_value_heads 2 --initializer_range 0.2 --max_steps 4 --seq_len 64 --micro_batch_size 2 --hidden_size 48 --num_attention_heads 4 \
    --intermediate_size 96 --max_eval_samples 4 --sample_tokens 0 --overwrite_output_dir true --output_dir build/refs/prompted >/dev/null
for more in "" "--trainable_modules norm"; do
    ./train_llama --model build/refs/prompted/checkpoint-4 --tuning prompt --prompt_len 6 --adapter_layers 2 --max_steps 30 --learning_rate 0.3 --seq_len 64 --micro_batch_size 2 \
        --max_eval_samples 4 --sample_tokens 0 $more --overwrite_output_dir true --output_dir build/refs/prompt >/dev/null
    "$dump" build/refs/prompt/checkpoint-30 build/refs/logits.safetensors
    rm -rf build/refs/prompt_back
    "$python" dev/ref/load_prompt.py build/refs/prompt/checkpoint-30 --logits build/refs/logits.safetensors --back build/refs/prompt_back
done
# Folders into GGUF files and back, by convert_gguf; read by the package gguf and by transformers.
mkdir -p build/refs/files
for model in llama_one llama_gqa llama_odd llama_qwen2; do
    for type in f32 f16 bf16 q8_0; do
        file=build/refs/files/$model.$type
        ./convert_gguf --model data/ref/$model --output_file "$file.gguf" --outtype $type >/dev/null
        ./convert_gguf --gguf "$file.gguf" --output_dir "$file" >/dev/null
        "$python" dev/ref/load_gguf.py data/ref/$model "$file.gguf" --back "$file"
    done
done
./convert_gguf --model data/ref/llama_scaled --output_file build/refs/files/scaled.gguf --outtype f32 >/dev/null
"$python" dev/ref/load_gguf.py data/ref/llama_scaled build/refs/files/scaled.gguf
# what the last of the runs above saved: a Qwen2 with bytes as tokens
./convert_gguf --model build/refs/run/checkpoint-4 --output_file build/refs/files/run.gguf --outtype f32 >/dev/null
./convert_gguf --gguf build/refs/files/run.gguf --output_dir build/refs/files/run >/dev/null
load dev/ref/load_gguf.py build/refs/run/checkpoint-4 build/refs/files/run.gguf --back build/refs/files/run
