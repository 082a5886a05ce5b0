#!/usr/bin/env bash
# What dev/test.sh promises: every test is in the table; a program that fails, dies, skips what it may not, or takes much more CPU than its line, is a failure;
# a share is handed on; what is wrong in the table is named.
set -u
cd "$(dirname "$0")/.."
. dev/check.sh
# of each test program and script, a line that `make check` runs
all_are_there() {
    local test missing=0
    for test in test_*.cu; do
        awk -v name="${test%.cu}" '$1 == "check" && $2 == "fast" && $5 == name { found = 1 } END { exit !found }' dev/tests.txt ||
            { echo "dev/tests.txt has no line for `make check`: ${test%.cu}"; missing=1; }
    done
    for test in dev/test_*.sh; do grep -q " $test" dev/tests.txt || { echo "dev/tests.txt has no line for $test"; missing=1; }; done
    return $missing
}
# what is named is there: a test, or a program or script of dev/
none_is_gone() {
    local build command word bad=0
    while read -r _ build _ _ command; do
        for word in $command; do
            case $word in *=* | -*) continue ;; dev/*) [ -x "$word" ] ;; test_emu) ;; test_*) [ -f "$word.cu" ] ;; workshop_*) [ -f "dev/cuda/${word#workshop_}.cu" ] ;; fuzz) ;; *) continue ;; esac ||
                { echo "$word, which dev/tests.txt runs in $build, is not there"; bad=1; }
        done
    done < <(grep -vE '^(#|$)' dev/tests.txt)
    return $bad
}
program() { # name, commands: a program of the build `fast`
    printf '#!/usr/bin/env bash\n%s\n' "$2" >"$tmp/$1"
    chmod +x "$tmp/$1"
}
said() { # lines of a table; what dev/test.sh says of it, its status last
    printf '%s\n' "$@" >"$tmp/table"
    GX_TEST_TABLE=$tmp/table dev/test.sh --table test --allowed-skips <(echo allowed) fast="$tmp" >"$tmp/said" 2>&1
    echo "status $?" >>"$tmp/said"
    cat "$tmp/said"
}
says() { # words in their order, then lines of a table behind --
    local words=() text
    while [ "$1" != -- ]; do words+=("$1"); shift; done
    shift
    text=$(said "$@")
    echo "$text"
    for word in "${words[@]}"; do [[ $text == *"$word"* ]] || { echo "it does not say \"$word\""; return 1; }; text=${text#*"$word"}; done
}
burn='s=0; for ((i = 0; i < 400000; i++)); do ((s += i)); done; echo "1 passed, 0 failed, 0 skipped"' # half a second or more
program good 'echo "1 passed, 0 failed, 0 skipped"'
program bad 'echo "FAIL that"; echo "2 passed, 1 failed, 0 skipped"; exit 1'
program dead 'kill -9 $$'
program late 'echo "3 passed, 0 failed, 0 skipped"; exit 1'
program skips 'echo "skip allowed: because"; echo "skip other: because"; echo "1 passed, 0 failed, 2 skipped"'
program share 'echo "ok   share $GX_TEST_SHARE of $*"; echo "1 passed, 0 failed, 0 skipped"'
program burns "$burn"
check "every test has its line" all_are_there
check "every line has its test" none_is_gone
check "counts are added up" says "2 passed, 0 failed, 0 skipped" "status 0" -- "check fast all 1 good" "test fast all 1 good" "long fast all 1 bad" "quick fast all 1 bad"
check "a failure is one" says "2 passed, 1 failed, 0 skipped" "status 1" -- "test fast all 1 bad"
check "a program that dies is a failure" says "FAIL fast: dead: ended with status 137 and without a count" "0 passed, 1 failed, 0 skipped" "status 1" -- "test fast all 1 dead"
program hangs 'echo "ok   one"; setsid sleep 77 & wait; echo "1 passed, 0 failed, 0 skipped"'
ends() { GX_TEST_LIMIT=1 says "ok   one" "ended: it still ran after 1 s" "FAIL fast: hangs: ended with status 137 and without a count" "1 passed, 1 failed" "status 1" -- "test fast all 1 hangs" "test fast all 1 good"; }
check "a program that hangs is ended, and a failure" ends
in_time() { GX_TEST_DEADLINE=1 says "fast: bad" "NOT RUN: this machine is so slow" "fast: good" "NOT RUN: " "0 passed, 0 failed, 2 skipped" "status 0" -- "test fast all 9 good" "check fast all 1 bad"; }
check "behind the deadline nothing is started, and all is named" in_time
check "what make check runs comes first, then what takes longest" says "share 1" "share 3" "share 2" "3 passed" -- "test fast all 3 share 2" "test fast all 9 share 3" "check fast all 1 share 1"
check "an exit status is one, whatever was counted" says "FAIL fast: late: exit status 1" "3 passed, 1 failed, 0 skipped" "status 1" -- "test fast all 1 late"
check "a skip that is not allowed is a failure" says "FAIL other: skipped, and not in" "1 passed, 1 failed, 1 skipped" "status 1" -- "test fast all 1 skips"
check "of two lines of every second commit one runs" says "1 passed, 0 failed, 0 skipped" "status 0" -- "test:1/2 fast all 1 good" "test:2/2 fast all 1 good"
check "a share is handed on, with arguments" says "/3 of a b" "1 passed" "status 0" -- "test fast 2/3 1 X=1 share a b"
# the median of three lines is that of the two that are right, on whatever machine
program busy 'if mkdir "$(dirname "$0")/was_run" 2>/dev/null; then for ((i = 0; i < 800000; i++)); do ((s += i)); done; fi; echo "1 passed, 0 failed, 0 skipped"'
program breaks 'if mkdir "$(dirname "$0")/broke" 2>/dev/null; then for ((i = 0; i < 800000; i++)); do ((s += i)); done; else exit 3; fi; echo "1 passed, 0 failed, 0 skipped"'
over() { GX_TEST_FREE=0.1 says "== again, alone, since it took" "fast: burns over" "FAIL fast: burns over: took" "1 failed" "status 1" -- "test fast all 20 burns a" "test fast all 20 burns b" "test fast all 4 burns over"; }
check "a program that takes much more than its line, beside others and alone, is a failure" over
slow() { GX_TEST_SLOW=0.0001 GX_TEST_FREE=0.1 says "too slow a machine to judge by" "fast: burns over" "3 passed, 0 failed" "status 0" -- "test fast all 20 burns a" "test fast all 20 burns b" "test fast all 4 burns over"; }
check "on a machine of another kind it is only named" slow
once() { GX_TEST_FREE=0.1 says "== again, alone, since it took" "fast: $1" "$2" "$3" "$4" -- "test fast all 20 burns a" "test fast all 20 burns b" "test fast all 4 $1"; }
check "one that does so beside others only is none" once busy "3 passed" "0 failed" "status 0"
program stays 'if mkdir "$(dirname "$0")/stayed" 2>/dev/null; then for ((i = 0; i < 800000; i++)); do ((s += i)); done; else sleep 78; fi; echo "1 passed, 0 failed, 0 skipped"'
again() { GX_TEST_LIMIT=14 once stays "FAIL fast: stays: this time its exit status was 137" "1 failed" "status 1"; }
check "one that hangs when it is run again is ended" again
nothing_is_left() { ! grep -qszx "7[78]" /proc/[0-9]*/cmdline; }
check "nothing of what was ended goes on" nothing_is_left
check "one that fails when it is run again is one" once breaks "FAIL fast: breaks: this time its exit status was 3" "1 failed" "status 1"
check "a line that is none is named" says "table:2: a line is WHEN BUILD SHARE CPU COMMAND" "status 2" -- "test fast all 1 good" "test fast some 1 good"
finish
