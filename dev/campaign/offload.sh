#!/usr/bin/env bash
# A training whose state is larger than the memory that it may use: a program in a control group with a memory limit, with --offload, to its end and, resumed,
# to the same end again.
#
# dev/campaign/offload.sh [--limit 2000] [--steps 3] --dir FOLDER PROGRAM [FLAGS ...]
#   --limit  MB of the group's memory, pages of files included
#   --dir    a folder on a disk, for what is offloaded and for checkpoints
# FLAGS: of a model that needs more. It needs root and a control group `memory`; without one of them it ends with status 77 and says which it misses.
set -euo pipefail
limit=2000 steps=3 dir=""
while [ $# -gt 0 ]; do
    case $1 in
    --limit) limit=$2; shift 2 ;;
    --steps) steps=$2; shift 2 ;;
    --dir) dir=$2; shift 2 ;;
    --*) echo "offload.sh: there is no $1" >&2; exit 2 ;;
    *) break ;;
    esac
done
[ $# -gt 0 ] && [ -n "$dir" ] || { sed -n '5p' "$0" >&2; exit 2; }
misses() { echo "offload.sh: skipped: $1" >&2; exit 77; }
[ "$(id -u)" = 0 ] || misses "it needs root"
tag=gxmem$$
if [ -d /sys/fs/cgroup/memory ]; then
    group=/sys/fs/cgroup/memory/$tag
    mkdir "$group" 2>/dev/null || misses "a control group cannot be made"
    echo $((limit * 1000000)) >"$group/memory.limit_in_bytes"
    procs=$group/tasks most=$group/memory.max_usage_in_bytes
elif grep -q memory /sys/fs/cgroup/cgroup.controllers 2>/dev/null; then
    echo +memory >/sys/fs/cgroup/cgroup.subtree_control 2>/dev/null || misses "the control group memory cannot be divided"
    group=/sys/fs/cgroup/$tag
    mkdir "$group" 2>/dev/null || misses "a control group cannot be made"
    echo $((limit * 1000000)) >"$group/memory.max"
    procs=$group/cgroup.procs most=$group/memory.peak
else misses "there is no control group memory"; fi
run=$(mktemp -d "$dir/offload.XXXXXX")
trap 'rm -rf "$run"; rmdir "$group" 2>/dev/null || true' EXIT
trap 'exit 130' INT TERM
limited() { (echo "$BASHPID" >"$procs" && exec "$@"); }
half=$(((steps + 1) / 2))
flags=("$@" --sample_tokens 0 --validation_fraction 0 --logging_steps 1 --max_steps "$steps" --save_steps "$half" --output_dir "$run/out" --offload_dir "$dir")
SECONDS=0
limited "${flags[@]}"
echo "offload.sh: to the end in ${SECONDS} s; the group used up to $(($(cat "$most") / 1000000)) of $limit MB"
end=$(sha256sum <"$run/out/checkpoint-$steps/model.safetensors")
rm -r "$run/out/checkpoint-$steps"
SECONDS=0
limited "${flags[@]}" --resume auto
[ "$(sha256sum <"$run/out/checkpoint-$steps/model.safetensors")" = "$end" ] || { echo "offload.sh: the resumed run has another end" >&2; exit 1; }
echo "offload.sh: from step $half to the same end again in ${SECONDS} s"
