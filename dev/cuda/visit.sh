#!/usr/bin/env bash
# What a visit to a machine with a GPU runs, after `make gpu`: seven parts, each with a time of its own and a report of its own, about 37 minutes in all.
#     dev/cuda/visit.sh OUT [--part tests|ranks|steps|training|kernels|counters|sanitizer]... [--again true] [--built FOLDER] [--commit ID]
#         tests 6      every test program                    training 5     two minutes of training on a text, and its curve
#         ranks 2      two NCCL ranks on the one card        kernels 4      each kernel in % of a copy
#         steps 9      a training step of 134M parameters    sanitizer 9    compute-sanitizer over every operation
#                      beside PyTorch's,                  counters 2  the heaviest kernels, by Nsight Compute
#                      where its time goes
# OUT/PART/report.md is a part's result (dev/cuda/gpu.sh), OUT/report.md all of them. A part that ran to its end, of the same commit, is not run again:
# --again true does. Of the other machine only this checkout and the folder that `make gpu` names are needed (--built: another one), not its make: programs
# there bring everything but CUDA and NCCL. Libraries that the loader does not find are looked for beside CUDA and in the packages of $PYTHON (python3),
# which is the Python whose PyTorch is measured, too. Where OUT is another machine's to keep: OUT/*/{report.md,log.txt}, OUT/kernels/workshop.csv,
# OUT/training/{loss.svg,log.jsonl}.
set -eu
cd "$(dirname "$0")/../.."
usage() { sed -n '2,14s/^# \{0,1\}//p' "$0" >&2; exit 2; }
all_parts="tests ranks steps training kernels counters sanitizer"
[ $# -ge 1 ] && [[ $1 != -* ]] || usage
out=$1 built=build/cuda-fast-plain-mpi0-json1 parts= commit= again= python=${PYTHON:-python3}
shift
while [ $# -gt 0 ]; do
    [ $# -ge 2 ] || usage
    case $1 in
    --part) [[ " $all_parts " == *" $2 "* ]] || usage; parts="$parts $2" ;;
    --again) [[ $2 == true || $2 == false ]] || usage; again=$2 ;;
    --built) built=$2 ;;
    --commit) commit=$2 ;;
    *) usage ;;
    esac
    shift 2
done
[ -x "$built/test_devices" ] || { echo "visit.sh: there is no $built/test_devices: make gpu builds it, --built names another folder" >&2; exit 2; }
commit=${commit:-$(cat "$built/commit" 2>/dev/null || echo unknown)}
mkdir -p "$out"

# ---- libraries: what the loader does not find -----------------------------------------------------------------------------------------------
before=${LD_LIBRARY_PATH:-}
libraries=()
packages=$(timeout 20 "$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' 2>/dev/null || true)
# NCCL is loaded by who needs it, so that ldd knows nothing of it.
has_nccl() {
    local folder folders=${LD_LIBRARY_PATH:-}
    ! ldconfig -p 2>/dev/null | grep -q 'libnccl\.so\.2' || return 0
    for folder in ${folders//:/ }; do [ ! -e "$folder/libnccl.so.2" ] || return 0; done
    return 1
}
not_found() { ldd "$built/llama_step" 2>/dev/null | awk '/=> not found/ { print $1 }'; has_nccl || echo libnccl.so.2; }
for library in $(not_found); do
    for folder in /usr/local/cuda/lib64 /usr/local/cuda-*/lib64 ${packages:+"$packages"/nvidia/*/lib}; do
        [ -e "$folder/$library" ] || continue
        libraries+=(--note "$library" "the loader has none; taken from $folder")
        [[ ":${LD_LIBRARY_PATH:-}:" == *":$folder:"* ]] || export LD_LIBRARY_PATH=$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
        break
    done
done
for library in $(not_found); do
    what="no program of $built can start"
    [[ $library != libnccl* ]] || what="ranks cannot talk from card to card"
    libraries+=(--note "$library" "not found: $what")
done

# ---- parts ----------------------------------------------------------------------------------------------------------------------------------
minutes_of() { case $1 in tests) echo 6 ;; ranks) echo 2 ;; steps) echo 9 ;; training) echo 5 ;; kernels) echo 4 ;; counters) echo 2 ;; sanitizer) echo 9 ;; esac; }
# Every part begins with a step so small that it only shows whether programs and card go together; where not, that is the reason for all that follows.
small="--hidden 64 --ffn 128 --layers 1 --heads 2 --kv 2 --vocab 1000 --seq 32 --steps 1"
run() { # part item...
    local part=$1
    shift
    dev/cuda/gpu.sh "$out/$part" --commit "$commit" --minutes "$(minutes_of "$part")" ${libraries[@]+"${libraries[@]}"} \
        --limit 20 --command 'a small step' "$built/llama_step $small" "$@"
}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# Programs that are right or wrong and not measured run side by side; their threads wait asleep, since there are more of them than cores.
at_once=$(($(nproc) > 4 ? $(nproc) : 4))
tests() { # one that hangs costs its limit
    export GX_TRAIN_LLAMA=$built/train_llama
    OMP_WAIT_POLICY=passive run tests --together "$at_once" --limit 340 --test "$built/test_devices" --limit 140 --test "$built/test_memory" --test "$built/test_llama" --test "$built/test_generate" --test "$built/test_bert" --test "$built/test_precision" \
        --test "$built/test_train_devices" --test "$built/test_bert_modes" --test "$built/test_modes" --test "$built/test_graphs"
}
# The text that programs train on, made where it was not brought along, and a line about it for the report.
text() {
    local made=
    if [ ! -s data/text.txt ] && dev/data/prepare_text.sh; then made="was not brought along, so it was made here: "; fi
    text_note=(--note data/text.txt "$made$(cat data/text.txt.source 2>/dev/null || echo "a text that data/text.txt.source does not name") ($(wc -c <data/text.txt) bytes)")
}
# Each collective waits for the card to change from one rank to the other, many milliseconds: so there are few, no validation and no sample.
ranks() {
    local tiny="--max_steps 20 --hidden_size 64 --intermediate_size 128 --num_hidden_layers 2 --num_attention_heads 4 --validation_fraction 0 --sample_tokens 0 --head_chunk 4096"
    text
    run ranks "${text_note[@]}" --limit 40 \
        --command 'two ranks by NCCL: data-parallel' "dev/cuda/two_ranks.sh $built/train_llama $tiny --output_dir $tmp/dp" \
        --command 'two ranks by NCCL: tp' "dev/cuda/two_ranks.sh $built/train_llama_tp $tiny --tp_num_attention_heads_list 2,2 --output_dir $tmp/tp" \
        --command 'two ranks by NCCL: galaxy' \
        "dev/cuda/two_ranks.sh $built/train_llama_galaxy $tiny --seq_scatter_list 100,156 --output_dir $tmp/galaxy" \
        --command 'two ranks by NCCL: galaxy2' "dev/cuda/two_ranks.sh $built/train_llama_galaxy2 $tiny --seq_scatter_list 100,156 --output_dir $tmp/galaxy2" \
        --command 'two ranks by NCCL: sp' "dev/cuda/two_ranks.sh $built/train_llama_sp $tiny --seq_scatter_list 100,156 --output_dir $tmp/sp" \
        --limit 60 --command "what a call of NCCL costs the host" "env TWO_RANKS_SECONDS=50 dev/cuda/two_ranks.sh $built/workshop_nccl_calls"
}
kernels() {
    run kernels --limit 100 --workshop "$built/workshop_memory_bound" --workshop "$built/workshop_rms_norm" --workshop "$built/workshop_layer_norm" --workshop "$built/workshop_attention" --workshop "$built/workshop_quantize"
}

# Both programs have the same model, the same kind of tokens, the same optimizer: the same number of parameters, and a loss near log(32000) = 10.37.
# What matters most begins; compiling takes the better part of a minute.
# Both warm up by as many steps, a second's at least on an H200 (fp32 takes 130 to 150 ms a step, TF32 40, bf16 15), so that losses in one precision are
# those after as many steps.
warmup_of() { case $1 in fp32) echo 10 ;; tf32) echo 25 ;; *) echo 70 ;; esac; }
large="--hidden 768 --ffn 2048 --layers 12 --heads 12 --kv 12 --vocab 32000 --seq 1024 --batch 8"
steps() {
    local status=0 variant precision why items=()
    for precision in fp32 bf16; do
        items+=(--command "Galaxy, $precision" "$built/llama_step $large --warmup $(warmup_of "$precision") --steps 100 --head_chunk 8192 --precision $precision"
            --command "Galaxy, $precision, by CUDA graphs" "$built/llama_step $large --warmup $(warmup_of "$precision") --steps 100 --head_chunk 8192 --precision $precision --cuda_graphs true")
    done
    items+=(--command "Galaxy, fp32 with products in TF32" "$built/llama_step $large --warmup $(warmup_of tf32) --steps 100 --head_chunk 8192 --tf32 true")
    items+=(--command "Galaxy, bf16, products by the fastest algorithms" "$built/llama_step $large --warmup $(warmup_of bf16) --steps 100 --head_chunk 8192 --precision bf16 --autotune true")
    for precision in fp32 bf16; do
        items+=(--command "where the time goes, $precision" "$built/llama_step $large --warmup $(warmup_of "$precision") --steps 10 --head_chunk 8192 --precision $precision --profile")
    done
    if why=$(timeout 30 "$python" -c 'import torch, transformers' 2>&1); then
        for variant in lean-eager lean-compile transformers transformers-compile; do
            for precision in fp32 bf16 bf16-weights tf32; do
                [ "$precision" != tf32 ] || [ "$variant" = lean-compile ] || continue
                items+=(--command "PyTorch, $variant, $precision" "env -u LD_LIBRARY_PATH ${before:+LD_LIBRARY_PATH=$before }$python dev/bench/torch_llama.py --device cuda $large \
                    --warmup $(warmup_of "$precision") --steps 100 --variant $variant --precision $precision")
            done
        done
    else
        items+=(--note PyTorch "skipped: $python cannot import torch and transformers: $(tail -n 1 <<<"$why")")
    fi
    run steps --limit 100 "${items[@]}" || status=$?
    table_of_steps <"$out/steps/log.txt" >>"$out/steps/report.md"
    return "$status"
}
# What the programs' lines of JSON say, as a table: memory is the program's own buffers; taken: what the card is short of by the end.
table_of_steps() {
    printf '\n## Steps side by side\n\n| program | precision | parameters | tokens/s | ms | loss | memory, MB | taken of the card, MB |\n|---|---|---|---|---|---|---|---|\n'
    awk 'function of(key) {
             if (!match($0, "\"" key "\": [^,}]*")) return ""
             value = substr($0, RSTART + length(key) + 4, RLENGTH - length(key) - 4); gsub(/"/, "", value); return value
         }
         /^\{"variant"/ && of("parameters") + 0 > 1000000 {
             printf "| %s | %s | %s | %s | %s | %s | %s | %s |\n", of("variant"), of("precision"), of("parameters"), of("tokens_per_s"), of("ms"),
                 of("loss"), of("device_mb"), of("card_used_mb")
         }'
}
# A byte-level model of 110M parameters. 7500 steps are about two minutes on an H200. On a slower card the run ends after 135 seconds, as by Ctrl-C: with
# its curve and a checkpoint, without the last validation and the sample. In the foreground: gpu.sh's own limit kills the program, too.
training() {
    local status=0
    text
    run training "${text_note[@]}" --limit 165 --command '7500 steps of training, or as many as 135 seconds have' \
        "rm -rf $tmp/training; timeout --foreground --preserve-status -s TERM 135 \
        $built/train_llama --precision bf16 --hidden_size 768 --intermediate_size 2048 --num_hidden_layers 12 --num_attention_heads 12 --seq_len 1024 \
        --micro_batch_size 8 --max_steps 7500 --learning_rate 6e-4 --logging_steps 50 --eval_steps 500 --max_eval_samples 32 --save_steps 0 \
        --output_dir $tmp/training || { status=\$?; [ \$status = 143 ] && [ -s $tmp/training/loss.svg ] || exit \$status; }" || status=$?
    for file in loss.svg log.jsonl; do [ ! -e "$tmp/training/$file" ] || cp "$tmp/training/$file" "$out/training/"; done
    return "$status"
}
# The step of the part steps with two layers of the twelve: each kernel runs several times.
counters() {
    local item=(--note counters "skipped: there is no ncu (Nsight Compute)")
    if PATH=$PATH:/usr/local/cuda/bin command -v ncu >/dev/null; then
        item=(--command "the heaviest kernels, bf16" "dev/cuda/counters.sh $built/llama_step ${large/--layers 12/--layers 2} --warmup 1 --steps 1 --head_chunk 8192 --precision bf16")
    fi
    run counters --limit 110 "${item[@]}"
}
# In groups of tests, side by side: a group that a slow tool does not end with costs no other one its result. The last one has what the others leave.
sanitizer() {
    local group words items=() groups=("attention_forward attention_over attention_in" "attention_backward_is attention_drops"
        "attention_backward_that attention_at attention_computes attention_hands" "norm residual" "linear product dequantize")
    words=${groups[*]}
    groups+=("$(sed -n 's/^TEST(\([a-z0-9_]*\)).*/\1/p' test_devices.cu | grep -vE "${words// /|}" | xargs)")
    for group in "${groups[@]}"; do items+=(--sanitize "$built/test_devices $group"); done
    OMP_WAIT_POLICY=passive run sanitizer --limit 280 --together "$at_once" "${items[@]}"
}

failed=0
for part in ${parts:-$all_parts}; do
    if [ "$again" != true ] && ran=$(cat "$out/$part/ran" 2>/dev/null) && [ "${ran% *}" = "$commit" ] && [ "$commit" != unknown ]; then
        echo "==== $part ran before, of commit $commit; --again true runs it again"
        [ "${ran##* }" = 0 ] || failed=1
        continue
    fi
    echo "==== $part, at most $(minutes_of "$part") minutes"
    status=0
    rm -f "$out/$part/ran"
    "$part" || status=1 failed=1
    echo "$commit $status" >"$out/$part/ran"
done
for part in $all_parts; do
    [ -e "$out/$part/report.md" ] || continue
    sed "s/^# On a GPU:/# $part:/" "$out/$part/report.md"
    echo
done >"$out/report.md"
echo "$out/report.md"
exit "$failed"
