#!/usr/bin/env bash
# Two ranks of a program on one card, over real NCCL: dev/cuda/two_ranks.sh PROGRAM FLAGS...
# NCCL refuses two ranks on one card of one machine. With a host's name of its own each rank is a machine to NCCL, and they talk over sockets: that
# tests NCCL's collectives, groups and errors, not NVLink and not speed. Ranks meet by the variables of torchrun; a dead peer ends the run by the limit.
# In the foreground: whoever ends this script ends its ranks, too.
set -u
program=$1
shift
export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=${MASTER_PORT:-29511} LOCAL_RANK=0 NCCL_SOCKET_IFNAME=lo NCCL_NET=Socket NCCL_IB_DISABLE=1 \
    NCCL_MNNVL_ENABLE=0 NCCL_NVLS_ENABLE=0 NCCL_MAX_CTAS=2 CUDA_MODULE_LOADING=EAGER
seconds=${TWO_RANKS_SECONDS:-35}
RANK=1 NCCL_HOSTID=rank-1 timeout --foreground -k 5 "$seconds" "$program" --device_comm nccl "$@" &
RANK=0 NCCL_HOSTID=rank-0 timeout --foreground -k 5 "$seconds" "$program" --device_comm nccl "$@"
status=$?
wait $! || status=$?
exit $status
