#!/usr/bin/env bash
# Runs programs that were built before (`make gpu` builds them) on a machine with a GPU, notes machine and card, and leaves a report.
#
#     dev/cuda/gpu.sh OUT [--commit ID] [--minutes 25] ITEM...            ITEM, in the order in which they are to run:
#         --test PROGRAM           a test program: ends with "N passed, N failed, N skipped"
#         --workshop PROGRAM       a program of dev/cuda: its check, then its times
#         --command NAME 'LINE'    any command line, a training benchmark say
#         --sanitize 'LINE'        compute-sanitizer's memcheck and racecheck over a test program and names of its tests, where the tool is
#         --note NAME TEXT         a line for the summary: what is not run, and why
#         --limit SECONDS          of each item behind it (120)
#         --together N             test programs and sanitizers behind it run N at a time, where they stand side by side (1)
#
# OUT/report.md has the summary, tables and what failed, OUT/log.txt every item's output, OUT/workshop.csv the workshop's figures. The report is
# written anew after each item. An item that fails, or is killed at its limit, does not stop the others; when the minutes are over, what is left is
# reported as not reached. 0: all went well.
set -u
minutes=25 commit=unknown limit=120 together=1

usage() { sed -n '2,17s/^# \{0,1\}//p' "$0" >&2; exit 2; }
[ $# -ge 1 ] && [[ $1 != -* ]] || usage
out=$1
shift
kinds=() names=() lines=() limits=() at_once=() tools=()
add() { kinds+=("$1") names+=("$2") lines+=("$3") limits+=("$limit") at_once+=("$together") tools+=("${4:-}"); }
while [ $# -gt 0 ]; do
    [ $# -ge 2 ] || usage
    case $1 in
    --commit) commit=$2 ;;
    --minutes) minutes=$2 ;;
    --limit) limit=$2 ;;
    --together) together=$2 ;;
    --test | --workshop) add "${1#--}" "${2##*/}" "$2" ;;
    --sanitize)
        name=${2##*/}
        [ ${#name} -le 80 ] || name="${name:0:77}..."
        for tool in memcheck racecheck; do add sanitize "$name under $tool" "$2" "$tool"; done
        ;;
    --command | --note) [ $# -ge 3 ] || usage; add "${1#--}" "$2" "$3"; shift ;;
    *) usage ;;
    esac
    shift 2
done
[ ${#kinds[@]} -gt 0 ] || usage

mkdir -p "$out" || exit 2
report=$out/report.md log=$out/log.txt csv=$out/workshop.csv
: >"$log"
rm -f "$csv"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
: >"$tmp/sections"
deadline=$((SECONDS + minutes * 60))
summary=() failures=0

write_report() {
    {
        echo "# On a GPU: commit $commit"
        printf '\n| what | result | seconds |\n|---|---|---|\n'
        printf '%s\n' "${summary[@]}"
        printf '\n%d of %d failed.\n' "$failures" "${#summary[@]}"
        cat "$tmp/sections"
    } >"$report"
}
row() { summary+=("| $1 | ${2//|/\\|} | $3 |"); write_report; } # name result seconds
section() { { printf '\n## %s\n\n' "$1"; cat; } >>"$tmp/sections"; }
text() { tr -d '\000-\010\013-\037' | sed 's/^ *//' | cut -c 1-200; } # a line of output, as a row takes it
excerpt() { # of a file: its beginning and its end, each line once
    awk '!seen[$0]++ { line[n++] = substr($0, 1, 300) }
         END { for (i = 0; i < n; i++) if (i < 12 || i >= n - 12) print "    " line[i]; else if (i == 12) print "    ..." }' "$1"
}

# output seconds command...: what it says into the file, and beside it "status limit seconds"; status -1: there was no time left.
start() {
    local output=$1 seconds=$2 begin=$SECONDS left=$((deadline - SECONDS)) status=-1
    shift 2
    [ "$seconds" -lt "$left" ] || seconds=$left
    : >"$output"
    if [ "$left" -ge 5 ]; then
        status=0
        { timeout -s KILL "$seconds" "$@" >"$output" 2>&1; } 2>/dev/null || status=$? # all of its process group: nothing is left on the card
    fi
    echo "$status $seconds $((SECONDS - begin))" >"$output.end"
}

# name output: what was started goes into the log, a row into the summary, and what it said where it failed.
record() {
    local name=$1 output=$2 status seconds took result last
    read -r status seconds took <"$output.end"
    echo "== $name" | tee -a "$log"
    if [ "$status" = -1 ]; then
        result="not reached in $minutes minutes"
    else
        last=$(tail -n 1 "$output" | text)
        case $status in
        0) result=ok ;;
        124 | 137) result="not done in $seconds s" ;;
        *) result="exit status $status" ;;
        esac
        if [[ $last =~ ^[0-9]+\ passed,\ [0-9]+\ failed,\ [0-9]+\ skipped$ ]]; then
            result="$result: $last"
            [ "$status" = 0 ] || result="$result; first: $(head -n 1 "$output" | text)"
        elif [ "$status" != 0 ] || [[ $last == *"ERROR SUMMARY"* ]]; then
            result="$result${last:+: $last}"
        fi
    fi
    cat "$output" >>"$log"
    if [ "$status" != 0 ]; then
        failures=$((failures + 1))
        [ ! -s "$output" ] || excerpt "$output" | section "$name failed"
    fi
    row "$name" "$result" "$took"
    echo "   $result"
    return $((status != 0))
}
item() { # name seconds command...: its output is in $tmp/output, too
    local name=$1
    shift
    start "$tmp/output" "$@"
    record "$name" "$tmp/output"
}

# The command of item number $1, a test program or a sanitizer over one, into `words`.
sanitizer=$(PATH=$PATH:/usr/local/cuda/bin command -v compute-sanitizer || true)
words_of() {
    words=("${lines[$1]}")
    [ "${kinds[$1]}" = sanitize ] || return 0
    read -ra words <<<"${lines[$1]}"
    words=("$sanitizer" --tool "${tools[$1]}" --error-exitcode 9 "${words[@]}")
}
# Items number $1 to $2 - 1, such programs, at once; recorded in their order.
items_together() {
    local i
    for ((i = $1; i < $2; i++)); do
        words_of "$i"
        start "$tmp/output.$i" "${limits[i]}" "${words[@]}" &
    done
    wait
    for ((i = $1; i < $2; i++)); do record "${names[i]}" "$tmp/output.$i"; done
}

machine() {
    echo "commit $commit, $(date -u '+%Y-%m-%d %H:%M') UTC"
    sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1
    echo "$(nproc) cores, $(awk '/MemTotal/ {print int($2 / 1048576)}' /proc/meminfo) GiB"
    command -v nvidia-smi >/dev/null || { echo "there is no NVIDIA driver on this machine: no nvidia-smi"; return 1; }
    nvidia-smi --query-gpu=name,driver_version,memory.total,power.limit,clocks.max.sm,clocks.max.memory,ecc.mode.current --format=csv &&
        nvidia-smi
}
run_workshop() { # name program seconds
    item "$1 --check" "$3" "$2" --check
    item "$1 --time" "$3" "$2" --time --csv "$tmp/figures" && section "$1" <"$tmp/output"
    [ -s "$tmp/figures" ] || return
    if [ -e "$csv" ]; then tail -n +2 "$tmp/figures" >>"$csv"; else cp "$tmp/figures" "$csv"; fi
    rm -f "$tmp/figures"
}
run_command() { # name line seconds
    item "$1" "$3" bash -c "$2" || return
    { grep -E '^\||^#' "$tmp/output" || tail -n 40 "$tmp/output" | sed 's/^/    /'; } | section "$1"
}
item machine 60 bash -c "$(declare -f machine); commit='$commit'; machine" && sed 's/^/    /' "$tmp/output" | section machine
goes_together() { # item number $1
    case ${kinds[$1]:-} in test) [ -x "${lines[$1]}" ] ;; sanitize) [ -n "$sanitizer" ] && [ -x "${lines[$1]%% *}" ] ;; *) false ;; esac
}
for ((i = 0; i < ${#kinds[@]}; i++)); do
    for ((end = i; end - i < at_once[i] && end < ${#kinds[@]}; end++)); do goes_together "$end" || break; done
    if [ $((end - i)) -gt 1 ]; then
        items_together "$i" "$end"
        i=$((end - 1))
        continue
    fi
    kind=${kinds[i]} name=${names[i]} line=${lines[i]}
    if [[ $kind =~ ^(test|workshop|sanitize)$ ]] && [ ! -x "${line%% *}" ]; then
        failures=$((failures + 1))
        row "$name ($kind)" "${line%% *} is not there: build it first" 0
        continue
    fi
    case $kind in
    test) item "$name" "${limits[i]}" "$line" ;;
    workshop) run_workshop "$name" "$line" "${limits[i]}" ;;
    command) run_command "$name" "$line" "${limits[i]}" ;;
    sanitize)
        [ -n "$sanitizer" ] || { row "$name" "skipped: there is no compute-sanitizer" 0; continue; }
        words_of "$i"
        item "$name" "${limits[i]}" "${words[@]}"
        ;;
    note) row "$name" "$line" 0 ;;
    esac
done
write_report
sed '/^## /,$d' "$report"
[ "$failures" = 0 ]
