#!/usr/bin/env bash
# A visit to a machine with a GPU: runs programs that were built before (`make gpu` builds them), notes machine and card, and leaves a report.
#
#     dev/cuda/gpu.sh OUT [--commit ID] [--minutes 25] PART...            PART, in the order in which they are to run:
#         --test PROGRAM           a test program: ends with "N passed, N failed, N skipped"
#         --workshop PROGRAM       a program of dev/cuda: its check, then its times
#         --command NAME 'LINE'    any command line, a training benchmark say
#         --sanitize PROGRAM       compute-sanitizer's memcheck and racecheck over a test program, where the tool is
#
# OUT/report.md has the summary and all tables, OUT/log.txt every part's output, OUT/workshop.csv the workshop's figures. A part that fails, or takes
# longer than its limit, does not stop the others; when the minutes are over, what is left is reported as not reached. 0: all went well.
set -u
minutes=25 commit=unknown
test_limit=300 workshop_limit=240 command_limit=420 sanitize_limit=240 # seconds

usage() { sed -n '2,12s/^# \{0,1\}//p' "$0" >&2; exit 2; }
[ $# -ge 1 ] && [[ $1 != -* ]] || usage
out=$1
shift
kinds=() names=() lines=()
add() { kinds+=("$1") names+=("$2") lines+=("$3"); }
while [ $# -gt 0 ]; do
    [ $# -ge 2 ] || usage
    case $1 in
    --commit) commit=$2 ;;
    --minutes) minutes=$2 ;;
    --test | --workshop | --sanitize) add "${1#--}" "$(basename "$2")" "$2" ;;
    --command) [ $# -ge 3 ] || usage; add command "$2" "$3"; shift ;;
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
deadline=$((SECONDS + minutes * 60))
summary=() failures=0

# name limit command...: its output into the log and into $tmp/output. A row for the summary.
part() {
    local name=$1 limit=$2 begin=$SECONDS left=$((deadline - SECONDS)) status result
    shift 2
    [ "$limit" -lt "$left" ] || limit=$left
    echo "== $name" | tee -a "$log"
    : >"$tmp/output"
    if [ "$left" -lt 5 ]; then
        status=1 result="not reached in $minutes minutes"
    else
        timeout -k 5 "$limit" "$@" >"$tmp/output" 2>&1
        status=$?
        case $status in
        0) result=ok ;;
        124 | 137) result="not done in $limit s" ;;
        *) result="exit status $status" ;;
        esac
    fi
    cat "$tmp/output" >>"$log"
    local last
    last=$(tail -n 1 "$tmp/output")
    if [[ $last =~ ^[0-9]+\ passed,\ [0-9]+\ failed,\ [0-9]+\ skipped$ ]]; then
        result="$result: $last"
    fi
    [ "$status" = 0 ] || failures=$((failures + 1))
    summary+=("| $name | $result | $((SECONDS - begin)) |")
    echo "   $result"
}
note() { summary+=("| $1 | $2 | 0 |"); echo "== $1: $2" | tee -a "$log"; } # name result: nothing was run
missing() { note "$1" "$2 is not there: build it first"; failures=$((failures + 1)); }

machine() {
    echo "commit $commit, $(date -u '+%Y-%m-%d %H:%M') UTC"
    sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1
    echo "$(nproc) cores, $(awk '/MemTotal/ {print int($2 / 1048576)}' /proc/meminfo) GiB"
    nvidia-smi --query-gpu=name,driver_version,memory.total,power.limit,clocks.max.sm,clocks.max.memory,ecc.mode.current --format=csv
    nvidia-smi
}
run_workshop() { # name program
    part "$1 --check" "$test_limit" "$2" --check
    part "$1 --time" "$workshop_limit" "$2" --time --csv "$tmp/figures"
    { echo; echo "## $1"; echo; cat "$tmp/output"; } >>"$report"
    [ -s "$tmp/figures" ] || return
    if [ -e "$csv" ]; then tail -n +2 "$tmp/figures" >>"$csv"; else cp "$tmp/figures" "$csv"; fi
    rm -f "$tmp/figures"
}
run_command() { # name line
    part "$1" "$command_limit" bash -c "$2"
    { echo; echo "## $1"; echo; grep -E '^\||^#' "$tmp/output" || sed 's/^/    /' "$tmp/output" | tail -n 40; } >>"$report"
}
run_sanitizers() { # name program
    local sanitizer tool
    sanitizer=$(PATH=$PATH:/usr/local/cuda/bin command -v compute-sanitizer) || {
        note "$1 under compute-sanitizer" "skipped: the tool is not there"
        return
    }
    for tool in memcheck racecheck; do
        part "$1 under $tool" "$sanitize_limit" "$sanitizer" --tool "$tool" --error-exitcode 9 "$2"
    done
}

{ echo "# On a GPU: commit $commit"; echo; } >"$report"
part machine 60 bash -c "$(declare -f machine); commit='$commit'; machine"
sed 's/^/    /' "$tmp/output" >>"$report"
for ((i = 0; i < ${#kinds[@]}; i++)); do
    kind=${kinds[i]} name=${names[i]} line=${lines[i]}
    if [ "$kind" != command ] && [ ! -x "$line" ]; then
        missing "$name ($kind)" "$line"
        continue
    fi
    case $kind in
    test) part "$name" "$test_limit" "$line" ;;
    workshop) run_workshop "$name" "$line" ;;
    command) run_command "$name" "$line" ;;
    sanitize) run_sanitizers "$name" "$line" ;;
    esac
done
{
    printf '\n## Summary\n\n| part | result | seconds |\n|---|---|---|\n'
    printf '%s\n' "${summary[@]}"
    printf '\n%d of %d parts failed.\n' "$failures" "${#summary[@]}"
} | tee -a "$report"
[ "$failures" = 0 ]
