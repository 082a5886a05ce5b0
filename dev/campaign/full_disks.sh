#!/usr/bin/env bash
# Fills the disk of a tiny run N times, at moments that SEED decides: dev/campaign/full_disks.sh N SEED
# A full disk is a limit on the size of files (RLIMIT_FSIZE, by prlimit) that comes and goes while the program runs: every write beyond it fails. Of every run:
# no crash; a checkpoint that was not written is a warning; the next save after there is room again succeeds; exit status 0 if and only if the last save
# succeeded, and then weights, moments and log are those of an undisturbed run, bit for bit; else a message, and --resume auto with room reaches the same bits.
# KEEP=1 leaves the folder; GX_TRAIN_LLAMA is the program. The exit status is 0 if all runs were right.
[ $# = 2 ] || { sed -n '2,6s/^# //p' "$0"; exit 2; }
. "$(dirname "$0")/tiny.sh"
N=$1
RANDOM=$2
FLAGS="$FLAGS --save_total_limit 0"
mkfifo errors

start() { # output folder, flags: into pid; what it says comes through a pipe, which has no limit
    cat <errors >said.err &
    said_by=$!
    # shellcheck disable=SC2086
    "$PROGRAM" $FLAGS --output_dir "$1" $2 2>errors > >(cat >said.out) &
    pid=$!
}
finish() { # its status
    wait_ms 60000 "$pid" || { echo "it does not end: $pid"; kill -9 "$pid"; return 124; }
    local status=0
    wait "$pid" || status=$?
    wait "$said_by"
    return $status
}
steps_said() { sed -n 's/^{"step": \([0-9]*\), "loss".*/\1/p' "$1/log.jsonl" 2>/dev/null | tail -n 1; }
checkpoints() { ls "$1" | sed -n 's/^checkpoint-\([0-9]*\)$/\1/p' | sort -n; }
saved_last() { checkpoints "$1" | tail -n 1; }
fail() {
    echo "FAIL run $run ($what): $*"
    tail -n 3 said.err | cut -c1-300 | sed 's/^/    /'
    wrong=$((wrong + 1))
    cp -r "out-$run" "wrong-$run" 2>/dev/null
}

for ranks in 1 2; do
    began=$(now_ms)
    start "whole-$ranks" "--ranks $ranks"
    finish || { echo "the undisturbed run ($ranks ranks): status $?"; cat said.err; exit 1; }
    took[ranks]=$(($(now_ms) - began))
    echo "$ranks ranks: undisturbed in ${took[ranks]} ms"
done
largest=$(stat -c %s "whole-1/checkpoint-$STEPS/optimizer.safetensors")
exec 2>/dev/null # bash tells of everybody who was killed, and prlimit of those that have ended

# The limit comes `falls` times and goes again, but for the last time where `stays`. Into room_at: the newest checkpoint when there was room again for good.
disturb() {
    local i limit
    room_at=-1 limits=
    for ((i = 1; i <= falls; i++)); do
        below $((took[ranks] / (falls + 1)))
        sleep_ms "$drawn"
        below 4
        if [ "$drawn" = 0 ]; then limit=0; else below $((largest * 11 / 10)) && limit=$drawn; fi
        prlimit --pid "$pid" --fsize="$limit": || return
        limits="$limits $limit"
        [ "$i" = "$falls" ] && [ "$stays" = 1 ] && return
        below $((took[ranks] / (falls + 1)))
        sleep_ms "$drawn"
        prlimit --pid "$pid" --fsize=unlimited: || return
    done
    room_at=$(saved_last "out-$run")
    room_at=${room_at:-0}
}

check() { # status
    local missing=0 n have warnings
    have=" $(checkpoints "out-$run" | tr '\n' ' ')"
    for ((n = 1; n <= STEPS; n++)); do [[ $have == *" $n "* ]] || missing=$((missing + 1)); done
    warnings=$(grep -c 'warning:' said.err)
    [ "$1" -lt 128 ] || { fail "status $1"; return; }
    if [ "$1" = 0 ]; then
        [[ $have == *" $STEPS "* ]] || { fail "status 0, and no last checkpoint"; return; }
        [ "$missing" = 0 ] || [ "$warnings" -gt 0 ] || { fail "$missing checkpoints are missing, and nothing was said"; return; }
        # the first save after there was room may have begun before
        [ "$room_at" -ge 0 ] && for ((n = room_at + 1, late = 0; n <= STEPS; n++)); do
            [[ $have == *" $n "* ]] && late=1
            [[ $late == 0 || $have == *" $n "* ]] || { fail "checkpoint-$n is missing: there was room since $room_at"; return; }
        done
        unsaved=$((unsaved + missing))
    else
        grep -q 'error: .' said.err || { fail "status $1, and no message"; return; }
        [ "$room_at" -lt 0 ] || [[ $have != *" $STEPS "* ]] || { fail "status $1, but the last save succeeded"; return; }
        [ "$room_at" -lt 0 ] || [ "$room_at" -ge $((STEPS - 2)) ] || { fail "status $1: there was room since step $room_at"; return; }
        failed=$((failed + 1))
        start "out-$run" "--ranks $ranks --resume auto"
        finish || { fail "--resume auto does not go on: status $?"; return; }
    fi
    same_bits "whole-$ranks" "out-$run" >said.same || fail "$(head -n 3 said.same)"
    [ -z "$(find "out-$run" -name '*gx-*' -o -name '*tmp-*')" ] || fail "$(find "out-$run" -name '*gx-*' -o -name '*tmp-*' | head -n 1) stayed behind"
}

wrong=0 unsaved=0 failed=0 all_began=$(now_ms)
for ((run = 1; run <= N; run++)); do
    ranks=$((1 + run % 2))
    below 3 && falls=$((drawn + 1))
    below 4 && stays=$((drawn == 0))
    start "out-$run" "--ranks $ranks"
    disturb
    finish
    status=$?
    what="$ranks ranks; limits$limits$([ "$room_at" -lt 0 ] && echo ', stays full')"
    echo "run $run: $what; status $status, $(grep -c 'warning:' said.err) warnings, $(checkpoints "out-$run" | wc -l) of $STEPS checkpoints"
    check "$status"
    rm -rf "out-$run"
done
echo "$N runs in $((($(now_ms) - all_began) / 1000)) s, seed $2: $unsaved checkpoints were not written, $failed runs ended with an error and went on; $wrong wrong"
[ "$wrong" = 0 ]
