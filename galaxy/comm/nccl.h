// nccl.h: the communicator's engine for buffers on GPUs: NCCL, one card per rank.
//
//     GX_TRY(gx_device_open(g));     // after gx_comm_open: the host's engine carries what has to be agreed on
//     GX_TRY(gx_nccl_open(g));       // on all ranks: now g->comm->device_engine moves what lies on the card
//
// Collectives go on a stream of their own, between events: behind what the device was asked for before `start`, before
// what it is asked for after `wait`. The host never waits for one. NCCL sums in an order of its own: all ranks get the
// same bits, and the same run gives them again, but they are not those of the threads and MPI engines. Parts of
// different sizes go as grouped broadcasts (gather) and reductions (scatter), none is padded.
//
// NCCL's communicators for all groups of the mesh are made here (each first member's identity goes round by the host's
// engine); then all ranks wait for each other. They are non-blocking, so that a rank that died is found there, too. The
// library (libnccl.so.2) is loaded here: a program that needs none starts without it.
//
// Errors: NCCL's own come late, as do dead ranks. Whoever waits for the device (gx_to_host, gx_device_wait) looks at
// both again and again (g->while_waiting), and gives up after comm->timeout, naming the operation that did not end.
// What is not checked, unlike on the host's engines: that ranks make the same calls with the same counts.
//
// Declared here for C; compiled from nccl.cuh (galaxy_cuda.cuh).
#ifndef GX_NCCL_H
#define GX_NCCL_H
#include "comm.h"
GX_BEGIN

GxStatus gx_nccl_open(GxContext *g); // an open context on the device cuda, with others

GX_END
#endif
