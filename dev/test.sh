#!/usr/bin/env bash
# Runs test programs, two more at a time than there are cores, and adds up their last lines: dev/test.sh [--allowed-skips FILE] PROGRAM...
# Outputs come in the order of the programs, each behind its name and its times: by the clock, and of CPU in user and in system mode. A program that dies,
# or does not end with its "N passed, N failed, N skipped", counts as a failure. With --allowed-skips, a test that was skipped and whose name is not in
# FILE is a failure.
set -u
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive} # threads of a program that wait for each other leave the cores to the others
allowed= passed=0 failed=0 skipped=0
if [ "${1:-}" = --allowed-skips ]; then allowed=$2; shift 2; fi
at_once=$(($(nproc 2>/dev/null || echo 2) + 2)) # some of them wait most of the time
tmp=$(mktemp -d)
set -m # each program is a process group of its own, which ends as a whole when this script is interrupted
trap 'for pid in $(jobs -p); do kill -- "-$pid" 2>/dev/null; done; rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM

TIMEFORMAT="%R s, %U + %S s of CPU"
run() { # number: its output into tmp/number, its status into tmp/number.status, its times into the last line of tmp/number.time
    { time ${programs[$1]} >"$tmp/$1" 2>&1; } 2>"$tmp/$1.time"
    echo $? >"$tmp/$1.part"
    mv "$tmp/$1.part" "$tmp/$1.status"
}
report() { # number
    local status line
    echo "== ${programs[$1]} ($(tail -n 1 "$tmp/$1.time" 2>/dev/null))"
    cat "$tmp/$1"
    status=$(cat "$tmp/$1.status" 2>/dev/null || echo lost)
    line=$(tail -n 1 "$tmp/$1")
    local p=0 f=1 s=0
    if [[ $line =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed,\ ([0-9]+)\ skipped$ ]]; then
        p=${BASH_REMATCH[1]} f=${BASH_REMATCH[2]} s=${BASH_REMATCH[3]}
        if [ "$status" != 0 ] && [ "$f" = 0 ]; then echo "FAIL ${programs[$1]}: exit status $status"; f=1; fi
    else
        echo "FAIL ${programs[$1]}: ended with status $status and without a count"
    fi
    if [ -n "$allowed" ]; then
        while read -r name; do
            if ! grep -qxF "$name" "$allowed"; then echo "FAIL $name: skipped, and not in $allowed"; f=$((f + 1)) s=$((s - 1)); fi
        done < <(sed -n 's/^skip \([^:]*\):.*/\1/p' "$tmp/$1")
    fi
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
}

programs=("$@") pids=()
reported=0
for ((i = 0; i < ${#programs[@]}; i++)); do
    while [ "$(jobs -rp | wc -l)" -ge "$at_once" ]; do
        wait -n
        while [ "$reported" -lt "$i" ] && [ -e "$tmp/$reported.status" ]; do report $((reported++)); done
    done
    run "$i" &
    pids[i]=$!
done
for (( ; reported < ${#programs[@]}; )); do
    wait "${pids[$reported]}"
    report $((reported++))
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
