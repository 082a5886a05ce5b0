# Sourced by the campaigns: a tiny model and its text in a temporary folder $tmp, the built program, seeded numbers, and what a run must have left behind.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
PROGRAM=${GX_TRAIN_LLAMA:-$(make -s print-folder)/train_llama}
PROGRAM=$(realpath -e "$PROGRAM" 2>/dev/null) || { echo "there is no program: make train_llama, or set GX_TRAIN_LLAMA"; exit 2; }
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none OMP_WAIT_POLICY=passive
tmp=$(mktemp -d "$([ -w /dev/shm ] && echo /dev/shm || echo "${TMPDIR:-/tmp}")/galaxy_campaign_XXXXXX") || exit 2
trap 'for pid in $(jobs -p); do kill -9 "$pid" 2>/dev/null; done; [ -n "${KEEP:-}" ] && echo "kept: $tmp" || rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM
cd "$tmp" || exit 2
for ((i = 0; i < 900; i++)); do echo "The old gray cat number $((i * 7919 % 613)) slowly sees a tall tree near the river."; done >text.txt
cat >tiny.json <<'JSON'
{"train_data": "text.txt", "seq_len": 32, "logging_steps": 1, "threads": 1, "sample_tokens": 0, "hidden_size": 32, "intermediate_size": 64,
 "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "max_eval_samples": 2, "eval_steps": 5, "timeout": 20}
JSON
STEPS=20
FLAGS="--config tiny.json --max_steps $STEPS --save_steps 1"

below() { # N: a number from 0 to N - 1 into $drawn, from the seed (two draws of 15 bits)
    drawn=$(((RANDOM * 32768 + RANDOM) % $1))
}
now_ms() { local t=${EPOCHREALTIME/[.,]/}; echo $((t / 1000)); }
sleep_ms() { sleep "$(printf '%d.%03d' $(($1 / 1000)) $(($1 % 1000)))"; }
is_alive() { kill -0 "$1" 2>/dev/null; }
wait_ms() { # LIMIT PID...: until all have ended; 1: one has not
    local until=$(($(now_ms) + $1)) pid
    shift
    for pid; do
        while is_alive "$pid"; do
            [ "$(now_ms)" -lt "$until" ] || return 1
            sleep 0.01
        done
    done
}
# What of log.jsonl does not depend on the clock, in the order of the file: "3 {loss, norm, rate}", "5 eval {loss}".
log_of() {
    sed -n -e 's/^{"step": \([0-9]*\), \("loss": [^,]*, "grad_norm": [^,]*, "lr": [^,]*\),.*"skipped": \([a-z]*\)}$/\1 \2 \3/p' \
        -e 's/^{"step": \([0-9]*\), \("eval_.*\)}$/\1 \2/p' "$1/log.jsonl"
}
same_bits() { # A B [lacks]: weights and moments of the last checkpoint, and all lines of the log (lacks: B may lack some); says what differs
    local file
    for file in model.safetensors optimizer.safetensors; do
        cmp "$1/checkpoint-$STEPS/$file" "$2/checkpoint-$STEPS/$file" || return 1
    done
    diff <(log_of "$1") <(log_of "$2") >differs || [ "${3:-}" = lacks ] || { echo "log.jsonl of $1 and $2:"; head -n 10 differs; return 1; }
    [ "${3:-}" = lacks ] && ! grep '^>' differs && return
    [ "$(log_of "$2" | grep -c '"loss"')" = "$STEPS" ] || { echo "log.jsonl of $2 has not $STEPS steps"; return 1; }
}
