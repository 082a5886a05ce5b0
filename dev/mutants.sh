#!/usr/bin/env bash
# Would the tests notice? Plants one fault at a time in the library, and runs the tests that are nearest until one fails:
#   dev/mutants.sh list N SEED         prints about N mutants, drawn over all rooms: for each a line FILE:LINE, a tab, and what the line becomes
#   dev/mutants.sh list --barriers     the same of every __syncthreads() of the kernels, which is left out
#   dev/mutants.sh run LIST [--whole]  plants those of such a list one by one, in a copy of HEAD; prints a table, and a line of sums
# The nearest tests of a header are in dev/mutants.txt; they come once more under a sanitizer. --whole: what lives meets the other programs of the table dev/tests.txt, too. A mutant is killed by
# a test that fails, or that takes ten times as long as without it. Before a test is asked, it has to pass without a mutant. CPU seconds are those of
# building and running until then. The copy is build/mutants, or MUTANTS_TREE, and stays there with its objects. MAKE ("make CORES=1") is what builds.
# The exit status is 0 if every mutant was killed or does not compile, 1 if one lives, 2 if something is wrong.
set -euo pipefail
cd "$(dirname "$0")/.."
map=dev/mutants.txt
exec 4>&2
wrong() { echo "dev/mutants.sh: $*" >&4; exit 2; }
unset MAKEFLAGS MFLAGS # of a make that called this one

# ---- mutants ------------------------------------------------------------------------------------------------------------------------------------
# What is drawn is a room, by weight; then a kind of change, so that rare ones count as much as frequent ones; then a place.
draw() { # how many, seed; how many -1: every barrier
    # shellcheck disable=SC2016
    awk -v wanted="$1" -v seed="$2" '
    function kind(find, inner, by) { kinds++; FIND[kinds] = find; INNER[kinds] = inner; BY[kinds] = by }
    function below(n) { state = state * 16807 % 2147483647; return int(state / 2147483647 * n) } # Park and Miller 1988
    function place(k, code, which,   at) { # where kind k is in a line for the which-th time, from 0; 0: no more
        if (k == CALL && code ~ /^ +gx_fail/) return 0
        for (at = 1; match(substr(code, at), FIND[k]); at += RSTART + RLENGTH - 2) if (which-- == 0) return at + RSTART - 1
        return 0
    }
    function places(k, code,   n) { while (place(k, code, n)) n++; return n + 0 }
    function changed(k, code, which,   at, part, behind) {
        at = place(k, code, which)
        part = substr(code, at, RLENGTH)
        behind = substr(code, at + RLENGTH)
        sub(INNER[k], BY[k], part)
        return substr(code, 1, at - 1) part behind
    }
    function say(p, k,   after) {
        after = changed(k, LINE[p], below(places(k, LINE[p])))
        sub(/ +$/, "", after)
        printf "%s:%d\t%s\n", FILE[p], NUMBER[p], after
    }
    BEGIN {
        kind(" < ", " < ", " <= "); kind(" <= ", " <= ", " < "); kind(" > ", " > ", " >= "); kind(" >= ", " >= ", " > ")
        kind(" == ", " == ", " != "); kind(" != ", " != ", " == ")
        kind(" && ", " && ", " || "); kind(" [|][|] ", " [|][|] ", " \\&\\& "); kind("if [(]!", "!", "")
        kind(" [+] ", " [+] ", " - "); kind(" - ", " - ", " + "); kind(" [*] [a-z(]", " [*] ", " + ")
        kind(" [+]= ", " [+]= ", " -= "); kind(" -= ", " -= ", " += ")
        kind(" [+] 1([^0-9A-Za-z_.]|$)", " [+] 1", ""); kind(" - 1([^0-9A-Za-z_.]|$)", " - 1", "")
        kind("(^|[^0-9A-Za-z_])gx_min[(]", "gx_min", "gx_max"); kind("(^|[^0-9A-Za-z_])gx_max[(]", "gx_max", "gx_min")
        kind("(^|[^0-9A-Za-z_.])0[.]5f", "0[.]5f", "0.25f")
        kind("(^|[^0-9A-Za-z_])return 0;", "return 0;", "return 1;"); kind("(^|[^0-9A-Za-z_])return 1;", "return 1;", "return 0;")
        kind("(^|[^0-9A-Za-z_])break;", "break;", ";"); kind("^ +GX_TRY[(]", "GX_TRY", "(void)")
        kind("^ +gx_[a-z_0-9]+[(][^;]*[)];$", "gx_.*", ";"); CALL = kinds
        kind("__syncthreads[(][)];", "__syncthreads[(][)];", ";"); BARRIER = kinds
        rooms = split("base 4 ops 2 cpu 8 comm 7 parallel 8 model 9 io 4 text 5 data 4 task 6 run 8 cuda 10", word, " ") / 2
        for (i = 1; i <= rooms; i++) { ROOM[i] = word[2 * i - 1]; WEIGHT[i] = word[2 * i]; all += WEIGHT[i] }
        state = (seed * 7919 + 1) % 2147483646 + 1
    }
    FNR == 1 { is_inside = 0; split(FILENAME, folder, "/") }
    /^#if.*IMPLEMENTATION[)]/ { is_inside = 1 }
    !is_inside || /^ *(\/\/|#|[*]|static const)/ || /"/ { next }
    {
        code = $0; sub(/\/\/.*/, "", code)
        p++; LINE[p] = code; FILE[p] = FILENAME; NUMBER[p] = FNR
        for (k = 1; k <= kinds; k++) if (places(k, code)) { room = folder[2]; PLACE[room, k, N[room, k]++] = p }
    }
    END {
        if (wanted < 0) { for (i = 0; i < N["cuda", BARRIER]; i++) say(PLACE["cuda", BARRIER, i], BARRIER); exit }
        for (i = 1; i <= rooms; i++) {
            room = ROOM[i]; n = int(wanted * WEIGHT[i] / all + 0.5); have = 0
            for (k = 1; k <= kinds; k++) if (N[room, k]) OF[have++] = k
            for (n = n > 1 ? n : 1; n > 0; n--)
                for (try = 0; try < 50; try++) {
                    k = OF[below(have)]; p = PLACE[room, k, below(N[room, k])]
                    if (SEEN[p]++) continue
                    say(p, k)
                    break
                }
        }
    }' galaxy/*/*.h galaxy/*/*.cuh
}

# ---- their tests --------------------------------------------------------------------------------------------------------------------------------
# A test is what stands before and in `make t T="..."`: variables (DEVICE, VARIANT, the environment's), then words.
nearest() { # header: its tests, one a line
    local pattern tests
    while IFS='|' read -r pattern tests; do
        pattern=${pattern// /}
        # shellcheck disable=SC2053 # it is a pattern
        [[ $pattern != "#"* && -n $pattern && ${1#galaxy/} == $pattern ]] || continue
        tests=$(tr '|' '\n' <<<"$tests" | sed 's/^ *//; s/ *$//')
        echo "$tests"
        # then under a sanitizer, which sees what changes no number: accesses; of kernels, races
        sed -n '/=/!s/^/VARIANT=asan /p; /^DEVICE=emu devices/s/^/VARIANT=tsan GEMM=plain MPI=0 /p' <<<"$tests"
        return
    done <"$map"
    wrong "$1 has no line in $map"
}
others() { # header: the programs of the table, the fastest first
    local build=fast device=
    [[ $1 != galaxy/cuda/* ]] || build=emu device="DEVICE=emu "
    awk -v build=$build -v device="$device" '$2 == build && $3 ~ /all/ && $5 ~ /^test_/ && NF == 5 && $5 != "test_emu" { print $4, device substr($5, 6) }' dev/tests.txt |
        sort -n | cut -d' ' -f2- | awk '!seen[$0]++'
}

# Builds and runs a test in the copy. 0: it passes; 1: it fails; 3: it does not compile; 124: it does not end. What it says is in $said; in $took the
# seconds of its run.
run_test() { # most seconds, test
    local words=() variables=() programs=() word DEVICE=cpu VARIANT='' status=0
    for word in $2; do
        case $word in
        DEVICE=* | VARIANT=*) declare "$word" ;;
        *=*) variables+=("$word") ;;
        *) words+=("$word"); [ ! -e "$tree/test_$word.cu" ] || programs+=("test_$word") ;;
        esac
    done
    [ -n "$VARIANT" ] || { VARIANT=quick; [ "$DEVICE" = cpu ] || VARIANT=fast; }
    local build=(${MAKE:-make} --no-print-directory -s -C "$tree" DEVICE="$DEVICE" VARIANT="$VARIANT")
    if [ ${#programs[@]} != 0 ]; then env "${variables[@]}" "${build[@]}" build WHAT="${programs[*]}" >"$said" 2>&1 </dev/null || return 3; fi
    took=$SECONDS
    env "${variables[@]}" timeout -k 5 "$1" "${build[@]}" t T="${words[*]}" >"$said" 2>&1 </dev/null || status=$?
    took=$((SECONDS - took))
    case $status in 0 | 124) return $status ;; 137) return 124 ;; *) return 1 ;; esac
}
change() { # file, line, what it becomes; nothing: all is as in HEAD
    git -C "$tree" checkout -q --force -- .
    [ $# != 0 ] || return 0
    AFTER=$3 awk -v at="$2" 'NR == at { print ENVIRON["AFTER"]; next } { print }' "$tree/$1" >"$tree.new"
    mv "$tree.new" "$tree/$1"
}
declare -A limit_of # of tests that pass without a mutant: the seconds that they may take with one
is_sound() { # test
    [ -z "${limit_of[$1]:-}" ] || return 0
    change
    run_test 3600 "$1" || { tail -n 20 "$said" >&4; wrong "\"$1\" fails without a mutant"; }
    grep -q '^[1-9][0-9]* passed' "$said" || wrong "\"$1\" runs no test"
    limit_of[$1]=$((10 * took + 60))
}

# ---- the table ----------------------------------------------------------------------------------------------------------------------------------
cell() { sed 's/^ *//; s/ *$//; s/|/\\|/g' <<<"$1"; }
meet() { # file, line, what it becomes: into $met what becomes of the mutant, into $cost in how many CPU seconds
    local test status TIMEFORMAT="%U %S"
    met="**lives**" cost=0
    while read -r test; do
        is_sound "$test"
        change "$@"
        status=0
        { time run_test "${limit_of[$test]}" "$test"; } 2>"$tree.time" || status=$?
        cost=$(awk -v before="$cost" 'END { printf "%.1f", before + $1 + $2 }' "$tree.time")
        case $status in
        0) continue ;;
        1) met=$(sed -n 's/^FAIL \([a-z_0-9]*\).*/: \1/p' "$said" | head -n 1); met=$test${met:-, which dies} ;;
        3) met="does not compile" ;;
        124) met="$test, which does not end" cost=$(awk -v before="$cost" -v took="$took" 'BEGIN { printf "%.1f", before + took }') ;; # nobody waited for it
        esac
        return
    done < <(nearest "$1"; [ -z "$whole" ] || others "$1")
}
run_list() { # list
    local place after file line before killed=0 live=0 uncompiled=0
    mkdir -p build
    exec 9>"$tree.lock"
    flock -n 9 || wrong "$tree is in use; another one is taken by MUTANTS_TREE=..."
    [ -e "$tree/.git" ] || { git worktree prune; git worktree add -q --force --detach "$tree" HEAD; }
    git -C "$tree" checkout -q --force --detach "$(git rev-parse HEAD)"
    said=$tree.said
    echo "Of commit $(git rev-parse --short HEAD):"
    echo
    echo "| mutant | becomes | killed by | CPU s |"
    echo "|---|---|---|---|"
    while IFS=$'\t' read -r place after <&3; do
        file=${place%:*} line=${place##*:}
        before=$(git show "HEAD:$file" | sed -n "${line}p")
        [ -n "$before" ] || wrong "$place is not there"
        nearest "$file" >/dev/null
        meet "$file" "$line" "$after"
        case $met in "**lives**") live=$((live + 1)) ;; "does not compile") uncompiled=$((uncompiled + 1)) ;; *) killed=$((killed + 1)) ;; esac
        echo "| ${file#galaxy/}:$line \`$(cell "${before%%//*}")\` | \`$(cell "$after")\` | $met | $cost |"
    done 3<"$1"
    change
    echo
    echo "$killed killed, $uncompiled do not compile, $live live"
    [ $live = 0 ]
}

usage() { sed -n '3,5s/^#   //p' "$0" >&2; exit 2; }
whole='' tree=$(realpath -m "${MUTANTS_TREE:-build/mutants}") said='' took='' met='' cost=''
case "${1:-} ${2:-} $#" in
"list --barriers 2") draw -1 1 ;;
list\ *\ 3) [[ $2$3 =~ ^[0-9]+$ ]] || usage; draw "$2" "$3" ;;
run\ *\ 2 | run\ *\ 3) [ $# = 2 ] || { [ "$3" = --whole ] || usage; whole=1; }; [ -r "$2" ] || wrong "$2 cannot be read"; run_list "$2" ;;
*) usage ;;
esac
