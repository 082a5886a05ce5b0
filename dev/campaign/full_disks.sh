#!/usr/bin/env bash
# Fills the disk of a tiny run N times, at moments that SEED decides: dev/campaign/full_disks.sh N SEED
# A full disk is a limit on the size of files (RLIMIT_FSIZE, by prlimit) that comes and goes while the program runs: every write beyond it fails. Of every run:
# no crash; a checkpoint that was not written is a warning; every save that begins when there is room again succeeds; exit status 0 if and only if the last save
# succeeded, and then weights, moments and log are those of an undisturbed run, bit for bit; else a message, and --resume auto with room reaches the same bits
# (its log may lack lines that waited for room at the end, and has no others).
# KEEP=1 leaves the folder; GX_TRAIN_LLAMA is the program. The exit status is 0 if all runs were right.
[ $# = 2 ] || { sed -n '2,7s/^# //p' "$0"; exit 2; }
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
step_said() { sed -n 's/^step *\([0-9]*\)\/.*/\1/p' said.out 2>/dev/null | tail -n 1; } # on stdout, which has no limit: log.jsonl may wait for room
checkpoints() { ls "$1" | sed -n 's/^checkpoint-\([0-9]*\)$/\1/p' | sort -n; }
fail() {
    echo "FAIL run $run ($what): $*"
    tail -n 3 said.err | cut -c1-300 | sed 's/^/    /'
    wrong=$((wrong + 1))
    cp -r "out-$run" "wrong-$run" 2>/dev/null
}

mesh() { # of $ranks; four of them share
    echo "--ranks $ranks"
    [ "$ranks" != 4 ] || echo "--pp 2 --dp_shard 2 --gradient_accumulation_steps 4 --micro_batch_size 1"
}
for ranks in 1 2 4; do
    began=$(now_ms)
    start "whole-$ranks" "$(mesh)"
    finish || { echo "the undisturbed run ($ranks ranks): status $?"; cat said.err; exit 1; }
    took[ranks]=$(($(now_ms) - began))
    echo "$ranks ranks: undisturbed in ${took[ranks]} ms"
done
largest=$(stat -c %s "whole-1/checkpoint-$STEPS/optimizer.safetensors")
exec 2>/dev/null # bash tells of everybody who was killed, and prlimit of those that have ended

drained() { # waits until what was said before the program was stopped has arrived
    local before=-1 size=0
    while [ "$size" != "$before" ]; do
        before=$size
        sleep_ms 10
        size=$(cat said.out said.err | wc -c)
    done
}
# The limit comes `falls` times and goes again, but for the last time where `stays`. Into room_at: the step that the run had said when there was room again for
# good, 0: none yet; it stands still meanwhile. -1: there was none.
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
        [ "$i" = "$falls" ] && kill -STOP "$pid" && drained
        prlimit --pid "$pid" --fsize=unlimited: || return
    done
    room_at=$(step_said)
    room_at=${room_at:-0}
    kill -CONT "$pid"
}

check() { # status
    local missing=0 n have warnings lacks=
    have=" $(checkpoints "out-$run" | tr '\n' ' ')"
    for ((n = 1; n <= STEPS; n++)); do [[ $have == *" $n "* ]] || missing=$((missing + 1)); done
    warnings=$(grep -c 'warning:' said.err)
    [ "$1" -lt 128 ] || { fail "status $1"; return; }
    if [ "$1" = 0 ]; then
        [[ $have == *" $STEPS "* ]] || { fail "status 0, and no last checkpoint"; return; }
        [ "$missing" = 0 ] || [ "$warnings" -gt 0 ] || { fail "$missing checkpoints are missing, and nothing was said"; return; }
        # the save of the step that was said last may have begun before
        [ "$room_at" -ge 0 ] && for ((n = room_at + 1; n <= STEPS; n++)); do
            [[ $have == *" $n "* ]] || { fail "checkpoint-$n is missing: there was room since step $room_at"; return; }
        done
        unsaved=$((unsaved + missing))
    else
        grep -q 'error: .' said.err || { fail "status $1, and no message"; return; }
        [[ $have != *" $STEPS "* ]] || grep -q 'lines of the log are lost' said.err || { fail "status $1, but the last save succeeded"; return; }
        # a run that cannot write before its first step does not begin
        [ "$room_at" -lt 0 ] || [ "$room_at" = "$STEPS" ] || [ -z "$(step_said)" ] || { fail "status $1: there was room since step $room_at"; return; }
        failed=$((failed + 1)) lacks=lacks
        start "out-$run" "$(mesh) --resume auto"
        finish || { fail "--resume auto does not go on: status $?"; return; }
    fi
    same_bits "whole-$ranks" "out-$run" $lacks >said.same || fail "$(head -n 3 said.same)"
    [ -z "$(find "out-$run" -name '*gx-*' -o -name '*tmp-*')" ] || fail "$(find "out-$run" -name '*gx-*' -o -name '*tmp-*' | head -n 1) stayed behind"
}

wrong=0 unsaved=0 failed=0 all_began=$(now_ms)
for ((run = 1; run <= N; run++)); do
    ranks=$((1 << run % 3))
    below 3 && falls=$((drawn + 1))
    below 4 && stays=$((drawn == 0))
    : >said.out # as of now, nobody has said a step
    start "out-$run" "$(mesh)"
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
