#!/usr/bin/env bash
# Kills a tiny run N times, at moments and on ranks that SEED decides, and goes on with --resume auto each time: dev/campaign/kills.sh N SEED
# Serial, two ranks as threads, two processes over TCP and two under mpirun take turns, and four ranks of each kind that share (--pp 2 --dp_shard 2); every step is saved. A run is killed one to four times, then left alone:
# its last weights and moments and its log must be those of a run that nobody disturbed, bit for bit. What a kill leaves of other ranks must end by itself.
# KEEP=1 leaves the folder; GX_TRAIN_LLAMA is the program. The exit status is 0 if all runs were right.
[ $# = 2 ] || { sed -n '2,5s/^# //p' "$0"; exit 2; }
. "$(dirname "$0")/tiny.sh"
N=$1
RANDOM=$2
ENGINES=(serial threads tcp threads_share tcp_share)
if command -v mpirun >/dev/null && grep -q MPI_Init "$PROGRAM"; then ENGINES+=(mpi mpi_share); else echo "no mpirun, or a program without MPI: left out"; fi
port=$((20000 + $$ % 12000)) # below those that the system gives to others

ranks_of() { case $1 in serial) echo 1 ;; *_share) echo 4 ;; *) echo 2 ;; esac; }
start() { # engine, output folder: into pids; what is said goes into said.*
    local line="$PROGRAM $FLAGS --output_dir $2 --resume auto" ranks r
    ranks=$(ranks_of "$1")
    [ "$ranks" = 4 ] && line="$line --pp 2 --dp_shard 2 --gradient_accumulation_steps 4 --micro_batch_size 1"
    pids=()
    case ${1%_share} in
    serial) $line >said.0 2>&1 & pids=($!) ;;
    threads) $line --ranks "$ranks" >said.0 2>&1 & pids=($!) ;;
    tcp)
        port=$((port + 1)) # the one before may not be free yet
        for ((r = 0; r < ranks; r++)); do
            $line --world "$ranks" --rank $r --init tcp://127.0.0.1:$port >said.$r 2>&1 &
            pids+=($!)
        done
        ;;
    mpi) mpirun -np "$ranks" $line >said.0 2>&1 & pids=($!) ;;
    esac
    started=("${pids[@]}") all=("${pids[@]}")
}
find_ranks() { # engine, of mpirun: its children, once they are there
    local i ranks
    ranks=$(ranks_of "$1")
    for ((i = 0; i < 200; i++)); do
        read -ra pids <<<"$(cat "/proc/${all[0]}/task/${all[0]}/children" 2>/dev/null)"
        [ ${#pids[@]} -ge "$ranks" ] && break
        is_alive "${all[0]}" || return
        sleep 0.01
    done
    all+=("${pids[@]}")
}
finish() { # the status of all: 0, if that of each
    local pid status=0
    wait_ms 60000 "${all[@]}" || {
        echo "it does not end: ${all[*]}"
        for pid in "${all[@]}"; do kill -9 "$pid"; done
        return 124
    }
    for pid in "${started[@]}"; do wait "$pid" || status=$?; done # of those that were waited for already, too
    return $status
}
undisturbed() { # engine: into took[engine]
    local began
    began=$(now_ms)
    start "$1" "whole-$1"
    [ "${1%_share}" = mpi ] && find_ranks "$1"
    finish || { echo "the undisturbed run ($1): status $?"; cat said.*; exit 1; }
    took[$1]=$(($(now_ms) - began))
    echo "$1: undisturbed in ${took[$1]} ms"
}

declare -A took
for engine in "${ENGINES[@]}"; do undisturbed "$engine"; done
for engine in "${ENGINES[@]:2}"; do
    like=threads
    [ "$(ranks_of "$engine")" = 4 ] && like=threads_share
    same_bits whole-$like "whole-$engine" || exit 1
done

exec 2>/dev/null # bash tells of everybody who was killed
kills=0 late=0 wrong=0 runs=0 began=$(now_ms)
kill_once() { # engine, folder; 1: the run had ended before
    local delay victim status
    below 1000
    delay=$((took[$1] * drawn / 950)) # a little beyond the end, too
    start "$1" "$2"
    sleep_ms "$delay"
    [ "${1%_share}" = mpi ] && find_ranks "$1"
    below $((${#pids[@]} + 1 - (${#pids[@]} > 0)))
    victim=$drawn
    if ! kill -9 "${pids[victim]:-none}"; then
        finish || { echo "FAIL $1: nobody killed it, and its status is $?"; cat said.*; wrong=$((wrong + 1)); }
        late=$((late + 1))
        return 1
    fi
    kills=$((kills + 1))
    finish
    status=$?
    echo "kill $kills: $1, rank $victim after $delay ms; $(ls "$2" 2>/dev/null | grep -c '^checkpoint-[0-9]*$') checkpoints, $(ls "$2" 2>/dev/null | grep -c 'gx-\|tmp-') half done; status $status"
    [ $status != 124 ] && return 0
    wrong=$((wrong + 1)) # a rank outlived the other
}
run_killed() { # engine
    local folder=run-$runs times
    below 4
    for ((times = drawn + 1; times > 0 && kills < N; times--)); do kill_once "$1" "$folder" || break; done
    if [ "$times" = 0 ] || [ "$kills" -ge "$N" ]; then # else it has ended already
        start "$1" "$folder"
        [ "${1%_share}" = mpi ] && find_ranks "$1"
    fi
    if ! finish; then
        echo "FAIL $1: --resume auto does not go on:"
        tail -n 5 said.*
        wrong=$((wrong + 1)) && cp -r "$folder" "wrong-$runs"
    elif ! same_bits "whole-$1" "$folder"; then
        echo "FAIL $1: $folder is not as the undisturbed run"
        wrong=$((wrong + 1)) && cp -r "$folder" "wrong-$runs"
    fi
    leftover=$(find "$folder" -name '*gx-*' -o -name '*tmp-*' | wc -l)
    [ "$leftover" = 0 ] || { echo "FAIL $1: $(find "$folder" -name '*gx-*' -o -name '*tmp-*' | head -n 3 | tr '\n' ' ')stayed behind"; wrong=$((wrong + 1)); }
    rm -rf "$folder"
}
while [ "$kills" -lt "$N" ]; do
    run_killed "${ENGINES[runs % ${#ENGINES[@]}]}"
    runs=$((runs + 1))
done
echo "$kills kills of $runs runs ($late came too late) in $((($(now_ms) - began) / 1000)) s, seed $2: $wrong wrong"
[ "$wrong" = 0 ]
