#!/usr/bin/env bash
# Unequal machines on one: each rank is a process in a network namespace of its own, with a host name, a share of a core (a quota of the control group `cpu`)
# and a link of a given rate to the others. Runs a training program on them.
#
# dev/campaign/unequal.sh [--quotas 60,20] [--rate 100mbit] [--slow RANK:STEP:FACTOR] [--alone true] [--out FOLDER] PROGRAM [FLAGS ...]
#   --quotas  percent of a core for each rank, as many as there are ranks
#   --rate    of each rank's link in either direction, as tc has it; left out: no limit
#   --slow    when the log has step STEP, the quota of rank RANK is multiplied by FACTOR
#   --alone   each is a run of its own, all at the same time: what each could do. --output_dir FOLDER is FOLDER0, FOLDER1, ...
#   --out     what each rank prints: FOLDER/rank0.txt, ...; a folder in /tmp if it is left out, whose name is printed
# It needs root, ip and tc (iproute2), unshare (util-linux), and a control group `cpu`; without one of them it ends with status 77 and says which it misses.
# Other programs should not run meanwhile: a quota is only a bound. The time of a quota is given out every 10 ms.
set -euo pipefail
quotas=60,20 rate="" slow="" out="" alone=false
while [ $# -gt 0 ]; do
    case $1 in
    --quotas) quotas=$2; shift 2 ;;
    --rate) rate=$2; shift 2 ;;
    --slow) slow=$2; shift 2 ;;
    --out) out=$2; shift 2 ;;
    --alone) alone=$2; shift 2 ;;
    --*) echo "unequal.sh: there is no $1" >&2; exit 2 ;;
    *) break ;;
    esac
done
[ $# -gt 0 ] || { sed -n '5p' "$0" >&2; exit 2; }
IFS=, read -r -a quota <<<"$quotas"
ranks=${#quota[@]} tag=gx$$ period=10000
misses() { echo "unequal.sh: skipped: $1" >&2; exit 77; }
[ "$(id -u)" = 0 ] || misses "it needs root"
for tool in ip tc unshare; do command -v "$tool" >/dev/null || misses "$tool was not found"; done
names=(desk laptop old attic cellar porch shed barn)
[ "$ranks" -le ${#names[@]} ] || { echo "unequal.sh: $ranks ranks; at most ${#names[@]}" >&2; exit 2; }

# A control group for each rank, of version 1 or 2.
if [ -w /sys/fs/cgroup/cpu/cpu.cfs_quota_us ] || [ -d /sys/fs/cgroup/cpu ]; then
    group() { echo "/sys/fs/cgroup/cpu/$tag-$1"; }
    give() { echo $period >"$(group "$1")/cpu.cfs_period_us"; echo $(($2 * period / 100)) >"$(group "$1")/cpu.cfs_quota_us"; }
    enter() { echo "$BASHPID" >"$(group "$1")/tasks"; }
elif grep -q cpu /sys/fs/cgroup/cgroup.controllers 2>/dev/null; then
    echo +cpu >/sys/fs/cgroup/cgroup.subtree_control 2>/dev/null || misses "the control group cpu cannot be divided"
    group() { echo "/sys/fs/cgroup/$tag-$1"; }
    give() { echo "$(($2 * period / 100)) $period" >"$(group "$1")/cpu.max"; }
    enter() { echo "$BASHPID" >"$(group "$1")/cgroup.procs"; }
else misses "there is no control group cpu"; fi

pids=()
clean() {
    local r
    for r in "${pids[@]}"; do kill -9 "$r" 2>/dev/null || true; done
    wait 2>/dev/null || true
    for ((r = 0; r < ranks; r++)); do
        ip netns del "$tag-$r" 2>/dev/null || true
        rmdir "$(group $r)" 2>/dev/null || true
    done
    ip netns del "$tag-switch" 2>/dev/null || true
}
trap clean EXIT
trap 'exit 130' INT TERM

# A switch in a namespace of its own, and a cable from each rank to it, whose ends both have the rate.
ip netns add "$tag-switch" 2>/dev/null || misses "network namespaces are not allowed"
ip netns exec "$tag-switch" ip link add name bridge type bridge 2>/dev/null || misses "a bridge cannot be made"
ip netns exec "$tag-switch" ip link set bridge up
for ((r = 0; r < ranks; r++)); do
    mkdir "$(group $r)" 2>/dev/null || misses "a control group cannot be made"
    give $r "${quota[r]}"
    ip netns add "$tag-$r"
    ip link add "$tag-a" type veth peer name "$tag-b"
    ip link set "$tag-a" netns "$tag-$r" name wire
    ip link set "$tag-b" netns "$tag-switch" name "port$r"
    ip netns exec "$tag-$r" ip addr add "10.77.0.$((r + 1))/24" dev wire
    for l in lo wire; do ip netns exec "$tag-$r" ip link set "$l" up; done
    ip netns exec "$tag-switch" ip link set "port$r" master bridge up
    [ -n "$rate" ] || continue
    ip netns exec "$tag-$r" tc qdisc add dev wire root tbf rate "$rate" burst 64kb latency 100ms
    ip netns exec "$tag-switch" tc qdisc add dev "port$r" root tbf rate "$rate" burst 64kb latency 100ms
done

[ -n "$out" ] || { out=$(mktemp -d /tmp/unequal.XXXXXX); echo "$out"; }
mkdir -p "$out"
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
for ((r = 0; r < ranks; r++)); do
    world=(--world "$ranks" --rank $r --init tcp://10.77.0.1:29500)
    if [ "$alone" = true ]; then # the last --output_dir counts
        for ((i = 1; i < $#; i++)); do
            j=$((i + 1))
            [ "${!i}" != --output_dir ] || world=(--output_dir "${!j}$r" --overwrite_output_dir true)
        done
    fi
    (
        enter $r
        exec ip netns exec "$tag-$r" unshare --uts sh -c 'hostname "$0" && exec "$@"' "${names[r]}" \
            "$@" --threads 1 "${world[@]}" >"$out/rank$r.txt" 2>&1
    ) &
    pids+=($!)
done
if [ -n "$slow" ]; then
    IFS=: read -r who step factor <<<"$slow"
    while kill -0 "${pids[0]}" 2>/dev/null && ! grep -qE "^step +$step/" "$out/rank0.txt" 2>/dev/null; do sleep 0.1; done
    give "$who" "$(awk -v q="${quota[who]}" -v f="$factor" 'BEGIN {print int(q * f)}')"
fi
status=0
for pid in "${pids[@]}"; do wait "$pid" || status=$?; done
pids=()
exit "$status"
