#!/usr/bin/env bash
# Runs the programs of dev/tests.txt, two more at a time than there are cores, and adds up their last lines: first those of `make check`, then the others, of
# both those that take longest first:
#   dev/test.sh --table WHEN [--allowed-skips FILE] BUILD=FOLDER...   the lines of this time, whose programs lie in these folders
#   dev/test.sh --programs WHEN BUILD                                 only prints the programs of these lines
# Outputs come in the order of their starts, each behind its command and its times: by the clock, and of CPU in user and in system mode. A program that dies,
# or does not end with its "N passed, N failed, N skipped", counts as a failure. With --allowed-skips, a test that was skipped and whose name is not in
# FILE is a failure. A program that takes half as much CPU again as its line says, and does so again when it is run alone, fails, too, unless it is less than
# GX_TEST_FREE (5) seconds above it; see the head of dev/tests.txt. A program that still runs after GX_TEST_LIMIT seconds (2400; of a long run a day) is ended, and fails; the
# last line that it printed says where it was. Behind GX_TEST_DEADLINE (seconds since 1970) none is started: what was not run is named, and counts as skipped.
# GX_TEST_TABLE: another table; GX_TEST_TIMES_FILE: a file that gets each program's line, its CPU seconds and its command.
set -uo pipefail
cd "$(dirname "$0")/.."
table=${GX_TEST_TABLE:-dev/tests.txt}
# which share of its tests a line runs goes round with the commits, and which of some lines run; a long run has all
turn=$((16#$(git rev-parse --short=7 HEAD 2>/dev/null || echo 0)))
lines() { # when: its lines, in their order
    case $1 in check | test | long) ;; *) echo "dev/test.sh: there is no time \"$1\"; it is check, test or long" >&2; exit 2 ;; esac
    awk -v when="$1" -v turn=$((turn / 60)) '/^#/ || !NF { next }
        NF < 5 || $1 !~ /^[a-z]+(:[0-9]+\/[0-9]+)?$/ || $4 !~ /^([0-9]+|-)$/ || $3 !~ /^([0-9]+\/[0-9]+|all)$/ { print FILENAME ":" FNR ": a line is WHEN BUILD SHARE CPU COMMAND" >"/dev/stderr"; exit 1 }
        split($1, part, /[:\/]/) == 3 { if (when != "long" && (turn + part[2]) % part[3]) next; sub(/:.*/, "", $1) }
        ($1 == when) || ($1 == "check" && when != "check") || ($1 == "test" && when == "long") || ($1 == "quick" && when == "check") { print $1 != "check", $0 }
        ' "$table" | sort -k1,1n -k5,5nr -s | cut -d " " -f 2-
}
program_of() { # words of a command: the first that is no variable, no script and no option; a script's program is its argument
    while [[ ${1:-} == *[=/]* || ${1:-} == -* ]]; do shift; done
    echo "${1:-}"
}
if [ "${1:-}" = --programs ]; then
    lines "$2" | while read -r _ build _ _ command; do [ "$build" != "$3" ] || program_of $command; done | sort -u
    exit
fi
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive} # threads of a program that wait for each other leave the cores to the others
[ "${1:-}" = --table ] || { echo "usage: dev/test.sh --table check|test|long [--allowed-skips FILE] BUILD=FOLDER..." >&2; exit 2; }
when=$2 allowed=
shift 2
if [ "${1:-}" = --allowed-skips ]; then allowed=$2; shift 2; fi
declare -A folder_of=([-]=.)
for word; do folder_of[${word%%=*}]=${word#*=}; done

if [ "$when" = long ]; then export GX_TEST_LONG=1 GX_TEST_SEED=${GX_TEST_SEED:-$(date +%Y%m%d)}; echo "seed: GX_TEST_SEED=$GX_TEST_SEED"; fi
listed=$(lines "$when") || exit 2
commands=() labels=() budgets=()
while read -r _ build share cpu command; do
    folder=${folder_of[$build]:-}
    [ -n "$folder" ] || continue
    program=$(program_of $command)
    label="$build: $command"
    [ "$build" = - ] && label=$command
    [ "$build" = - ] || command=${command/"$program"/"$folder/$program"}
    variables=
    case $build in fast | asan | emu | cuda) variables="GX_TRAIN_LLAMA=$folder/train_llama ${folder_of[plain]:+GX_TRAIN_LLAMA_NOMPI=${folder_of[plain]}/train_llama} " ;; esac
    if [ "$share" != all ] && [ "$when" != long ]; then
        share=$(((${share%/*} + turn) % ${share#*/}))/${share#*/}
        variables+="GX_TEST_SHARE=$share "
        label+=", share $share"
    fi
    commands+=("$variables$command") labels+=("$label") budgets+=("$cpu")
done <<<"$listed"
at_once=$(($(nproc 2>/dev/null || echo 2) + 2)) # some of them wait most of the time
passed=0 failed=0 skipped=0
tmp=$(mktemp -d)
set -m # each program is a process group of its own, which ends as a whole when this script is interrupted
watcher=
trap 'for pid in $(jobs -p) $watcher; do kill -- "-$pid" 2>/dev/null; done; rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM

limit=${GX_TEST_LIMIT:-$([ "$when" = long ] && echo 86400 || echo 2400)}
is_late() { [ -n "${GX_TEST_DEADLINE:-}" ] && [ "$(date +%s)" -ge "$GX_TEST_DEADLINE" ]; }
TIMEFORMAT="%R s, %U + %S s of CPU"
run() { # number: its output into tmp/number, its status into tmp/number.status, its times into the last line of tmp/number.time
    echo "$BASHPID" >"$tmp/$1.pid"
    { time env ${commands[$1]} >"$tmp/$1" 2>&1; } 2>"$tmp/$1.time"
    echo $? >"$tmp/$1.part"
    mv "$tmp/$1.part" "$tmp/$1.status"
}
end_tree() { # process: it, all below it, and their process groups, which programs that start others make
    local child
    for child in $(grep -lsx "PPid:[[:space:]]*$1" /proc/[0-9]*/status | cut -d / -f 3); do end_tree "$child"; done
    kill -9 -- "-$1" 2>/dev/null || kill -9 "$1" 2>/dev/null
}
end_what_hangs() { # looks now and then for programs beyond the limit, and ends their process groups
    local pid number
    while sleep "$((limit < 15 ? 1 : 15))"; do
        for pid in "$tmp"/*.pid; do
            number=${pid%.pid}
            [ -e "$pid" ] && [ ! -e "$number.status" ] && [ $(($(date +%s) - $(stat -c %Y "$pid"))) -gt "$limit" ] || continue
            end_tree "$(cat "$pid")"
            echo "ended: it still ran after $limit s" >>"$number"
            echo 137 >"$number.status"
        done
    done
}
report() { # number
    local status line
    echo "== ${labels[$1]} ($(tail -n 1 "$tmp/$1.time" 2>/dev/null))"
    cat "$tmp/$1"
    status=$(cat "$tmp/$1.status" 2>/dev/null || echo lost)
    line=$(tail -n 1 "$tmp/$1")
    local p=0 f=1 s=0
    if [[ $line =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed,\ ([0-9]+)\ skipped$ ]]; then
        p=${BASH_REMATCH[1]} f=${BASH_REMATCH[2]} s=${BASH_REMATCH[3]}
        if [ "$status" != 0 ] && [ "$f" = 0 ]; then echo "FAIL ${labels[$1]}: exit status $status"; f=1; fi
    else
        echo "FAIL ${labels[$1]}: ended with status $status and without a count"
    fi
    if [ -n "$allowed" ]; then
        while read -r name; do
            if ! grep -qxF "$name" "$allowed"; then echo "FAIL $name: skipped, and not in $allowed"; f=$((f + 1)) s=$((s - 1)); fi
        done < <(sed -n 's/^skip \([^:]*\):.*/\1/p' "$tmp/$1")
    fi
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
}

end_what_hangs &
watcher=$!
disown "$watcher" # it is none of the jobs that are counted
pids=()
reported=0
for ((i = 0; i < ${#commands[@]}; i++)); do
    while [ "$(jobs -rp | wc -l)" -ge "$at_once" ]; do
        wait -n
        while [ "$reported" -lt "$i" ] && [ -e "$tmp/$reported.status" ]; do report $((reported++)); done
    done
    if is_late; then
        printf 'NOT RUN: this machine is so slow that no time was left\n0 passed, 0 failed, 1 skipped\n' >"$tmp/$i"
        echo 0 >"$tmp/$i.status"
        pids[i]=
        continue
    fi
    run "$i" &
    pids[i]=$!
done
for (( ; reported < ${#commands[@]}; )); do
    [ -z "${pids[$reported]}" ] || wait "${pids[$reported]}"
    report $((reported++))
done

# How much CPU each took beside its line. Machines differ, by about the same for all programs: what counts is a program's time beside the others'. On a busy
# machine those that wait for each other take more: a program that took too much is run again alone, and fails if it does so then. A machine on which
# programs take more than 1.5 times their lines (GX_TEST_SLOW) is of another kind, where some take 15 times theirs: there they are only named.
time_of() { # number: its line's seconds, and those that it took, of both kinds
    local times
    times=$(sed -n '$s/.* s, \([0-9.]*\) + \([0-9.]*\) s of CPU/\1 \2/p' "$tmp/$1.time" 2>/dev/null)
    if [ -n "$times" ]; then echo "${budgets[$1]} $times"; else echo "- 0 0"; fi # it did not run, or was ended
}
for ((i = 0; i < ${#commands[@]}; i++)); do echo "$(time_of "$i") ${labels[i]}"; done >"$tmp/times"
[ -z "${GX_TEST_TIMES_FILE:-}" ] || cp "$tmp/times" "$GX_TEST_TIMES_FILE"
too_much() { # scale: of lines as in tmp/times those above their budget, their numbers, seconds, and how many times their lines these are
    awk -v free="${GX_TEST_FREE:-5}" -v scale="$1" '
        $1 == "-" || NF < 3 { next }
        $2 + $3 > 1.5 * scale * $1 && $2 + $3 > scale * $1 + free { printf "%d %.1f %.1f\n", NR - 1, $2 + $3, ($2 + $3) / ($1 ? $1 : 1) }'
}
if [ "$when" != long ]; then
    read -r scale total planned < <(awk '
        $1 == "-" || NF < 4 { next }
        { total += $2 + $3; planned += $1 }
        $1 >= 2 { ratio[++ratios] = ($2 + $3) / $1 }
        END {
            for (i = 2; i <= ratios; i++)
                for (j = i; j > 1 && ratio[j - 1] > ratio[j]; j--) { swap = ratio[j]; ratio[j] = ratio[j - 1]; ratio[j - 1] = swap }
            printf "%.2f %.0f %.0f\n", ratios ? ratio[int((ratios + 1) / 2)] : 1, total, planned
        }' "$tmp/times")
    echo "$total s of CPU; the lines of $table have $planned; in the middle, a program took $scale times its line here"
    is_slow=$(awk "BEGIN { print ($scale > ${GX_TEST_SLOW:-1.5}) }" </dev/null)
    while read -r i seconds times; do
        if [ "$is_slow" = 1 ] || is_late; then
            echo "too slow a machine to judge by: $seconds s of CPU, $times times its line: ${labels[i]}"
            continue
        fi
        rm "$tmp/$i.status"
        run "$i" </dev/null &
        wait "$!"
        echo "== again, alone, since it took $seconds s of CPU: ${labels[i]} ($(tail -n 1 "$tmp/$i.time"))"
        if [ "$(cat "$tmp/$i.status" 2>/dev/null || echo lost)" != 0 ]; then
            cat "$tmp/$i"
            echo "FAIL ${labels[i]}: this time its exit status was $(cat "$tmp/$i.status" 2>/dev/null || echo lost)"
            failed=$((failed + 1))
        fi
        while read -r _ seconds times; do
            echo "FAIL ${labels[i]}: took $seconds s of CPU, which is $times times the ${budgets[i]} s of its line in $table where others took $scale times theirs"
            failed=$((failed + 1))
        done < <(time_of "$i" | too_much "$scale")
    done < <(too_much "$scale" <"$tmp/times")
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
