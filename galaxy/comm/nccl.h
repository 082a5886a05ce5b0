// nccl.h: the communicator's engine for buffers on GPUs: NCCL, one card per rank.
//
//     GX_TRY(gx_device_open(g));     // after gx_comm_open: ranks agree through the host's engine
//     GX_TRY(gx_nccl_open(g));       // on all ranks: from now on g->comm->device_engine moves buffers on the card
//
// Collectives run on a stream of their own, ordered by events: after the operations that the device was given before
// `start`, and before those that it is given after `wait`. The host never waits for one. NCCL sums in its own order:
// all ranks get the same bits, and so does every repetition of the run, but they differ from those of the threads and
// MPI engines. Parts of different sizes are sent as grouped broadcasts (gather) and reductions (scatter), without
// padding.
//
// gx_nccl_open makes NCCL's communicators for all groups of the mesh (the host's engine broadcasts the unique id of
// each group's first member); then all ranks wait for each other. The communicators are non-blocking, so that a rank
// that dies meanwhile is noticed, too. gx_nccl_open also loads the library (libnccl.so.2), so programs that do not need
// it start without it.
//
// Errors: NCCL's errors and dead ranks are noticed only later. Functions that wait for the device (gx_to_host,
// gx_device_wait) check for both repeatedly (g->while_waiting), and give up after comm->timeout with the name of the
// operation that did not end. Unlike the host's engines, this one does not check that ranks make the same calls with
// the same counts.
//
// Declared here for C; implemented in nccl.cuh (galaxy_cuda.cuh).
#ifndef GX_NCCL_H
#define GX_NCCL_H
#include "comm.h"
GX_BEGIN

GxStatus gx_nccl_open(GxContext *g); // g: an open context on the device cuda, in a world of several ranks

GX_END
#endif
