#!/usr/bin/env bash
# Runs test programs and adds up their last lines: dev/test.sh [--allowed-skips FILE] [--label TEXT] PROGRAM...
# A program that dies, or does not end with its "N passed, N failed, N skipped", counts as a failure. With --allowed-skips, a test that was
# skipped and whose name is not in FILE is a failure.
set -u
allowed= passed=0 failed=0 skipped=0
if [ "${1:-}" = --allowed-skips ]; then allowed=$2; shift 2; fi
out=$(mktemp)
trap 'rm -f "$out"' EXIT
for program in "$@"; do
    echo "== $program"
    $program 2>&1 | tee "$out"
    status=${PIPESTATUS[0]}
    line=$(tail -n 1 "$out")
    if [[ $line =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed,\ ([0-9]+)\ skipped$ ]]; then
        p=${BASH_REMATCH[1]} f=${BASH_REMATCH[2]} s=${BASH_REMATCH[3]}
        if [ "$status" != 0 ] && [ "$f" = 0 ]; then echo "FAIL $program: exit status $status"; f=1; fi
    else
        echo "FAIL $program: ended with status $status and without a count"
        p=0 f=1 s=0
    fi
    if [ -n "$allowed" ]; then
        while read -r name; do
            if ! grep -qxF "$name" "$allowed"; then echo "FAIL $name: skipped, and not in $allowed"; f=$((f + 1)) s=$((s - 1)); fi
        done < <(sed -n 's/^skip \([^:]*\):.*/\1/p' "$out")
    fi
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
