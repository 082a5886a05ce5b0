#!/usr/bin/env bash
# What a visit to a machine with a GPU runs, in this order, in 25 minutes: all tests, two NCCL ranks on the card, figures, compute-sanitizer.
#     dev/cuda/visit.sh FOLDER [COMMIT]        after `make gpu`; FOLDER/report.md is the result (dev/cuda/gpu.sh)
set -eu
cd "$(dirname "$0")/../.."
out=${1:?a folder for the report}
built=$(make --no-print-directory -s DEVICE=cuda print-folder)
tiny="--max_steps 20 --hidden_size 64 --intermediate_size 128 --num_hidden_layers 2 --num_attention_heads 4 --eval_steps 0 --sample_bytes 20"
large="--hidden 768 --ffn 2048 --layers 12 --heads 12 --kv 12 --seq 1024 --batch 8 --head_chunk 8192 --steps 20"
export GX_TRAIN_LLAMA=$built/train_llama
exec dev/cuda/gpu.sh "$out" --commit "${2:-$(git rev-parse --short HEAD 2>/dev/null || echo unknown)}" \
    --test "$built/test_devices" --test "$built/test_memory" --test "$built/test_llama" --test "$built/test_precision" --test "$built/test_modes" \
    --test "$built/test_train_devices" \
    --command 'two ranks by NCCL: data-parallel' "dev/cuda/two_ranks.sh $built/train_llama $tiny --output_dir $out/dp" \
    --command 'two ranks by NCCL: tp' "dev/cuda/two_ranks.sh $built/train_llama_tp $tiny --tp_num_attention_heads_list 2,2 --output_dir $out/tp" \
    --command 'two ranks by NCCL: galaxy' "dev/cuda/two_ranks.sh $built/train_llama_galaxy $tiny --seq_scatter_list 100,156 --output_dir $out/galaxy" \
    --workshop "$built/workshop_rms_norm" --workshop "$built/workshop_attention" \
    --command 'a step of 134M parameters, fp32' "$built/llama_step $large" \
    --command 'a step of 134M parameters, bf16' "$built/llama_step $large --precision bf16" \
    --sanitize "$built/test_devices"
