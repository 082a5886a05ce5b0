// nccl.cuh: the implementation of nccl.h: NCCL for the communicator's buffers on GPUs.
#ifndef GX_NCCL_CUH
#define GX_NCCL_CUH
#include "../cuda/memory.cuh"
#include "nccl.h"
#endif

#if defined(GALAXY_CUDA_IMPLEMENTATION) && !defined(GX_NCCL_IMPLEMENTED)
#define GX_NCCL_IMPLEMENTED
#include <dlfcn.h>
#include <nccl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The number of calls that may be in flight: before another one the host waits for the oldest, so no call is forgotten
// before it has ended. (cuda/memory.cuh makes sure that launches between calls do not fill the driver's queue.)
enum { GX__NCCL_RING = 32, GX__NCCL_NAME = 120 };

static const double gx__nccl_reason_seconds = 2; // the time to wait for the reason that another rank failed

// ---- the library ---------------------------------------------------------------------------------------------------
// Loaded only when it is needed, so that a program on one card runs without it.

#define GX__NCCL_CALLS(X)                                                                                              \
    X(GetVersion)                                                                                                      \
    X(GetErrorString)                                                                                                  \
    X(GetLastError)                                                                                                    \
    X(GetUniqueId)                                                                                                     \
    X(CommInitRankConfig)                                                                                              \
    X(CommGetAsyncError)                                                                                               \
    X(CommFinalize)                                                                                                    \
    X(CommDestroy)                                                                                                     \
    X(CommAbort)                                                                                                       \
    X(GroupStart)                                                                                                      \
    X(GroupEnd)                                                                                                        \
    X(AllReduce)                                                                                                       \
    X(AllGather)                                                                                                       \
    X(ReduceScatter)                                                                                                   \
    X(Reduce)                                                                                                          \
    X(Broadcast)                                                                                                       \
    X(Send)                                                                                                            \
    X(Recv)

#define GX__NCCL_FIELD(name) decltype(&nccl##name) name;
typedef struct {
    GX__NCCL_CALLS(GX__NCCL_FIELD)
    char why[300]; // why it could not be loaded; "": it was
} GxNcclCalls;
#undef GX__NCCL_FIELD

#ifdef GX_EMU
static void gx__nccl_load(GxNcclCalls *c, const char *library)
{
    memset(c, 0, sizeof *c);
    (void)library; // it is linked into the program
#define GX__NCCL_FIND(name) c->name = &nccl##name;
    GX__NCCL_CALLS(GX__NCCL_FIND)
#undef GX__NCCL_FIND
}
#else
static void *gx__nccl_find(GxNcclCalls *c, void *library, const char *name)
{
    void *call = dlsym(library, name);
    if (!call) snprintf(c->why, sizeof c->why, "it has no %s; at least version 2.14 is needed", name);
    return call;
}

static void gx__nccl_load(GxNcclCalls *c, const char *name)
{
    memset(c, 0, sizeof *c);
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL); // never closed
    if (!library) {
        const char *why = dlerror();
        snprintf(c->why, sizeof c->why, "%s", why ? why : name);
        return;
    }
#define GX__NCCL_FIND(name)                                                                                            \
    if (!c->why[0]) c->name = reinterpret_cast<decltype(c->name)>(gx__nccl_find(c, library, "nccl" #name));
    GX__NCCL_CALLS(GX__NCCL_FIND)
#undef GX__NCCL_FIND
}
#endif

static GxNcclCalls gx__nccl_loaded(void)
{
    GxNcclCalls c;
    gx__nccl_load(&c, "libnccl.so.2");
    return c;
}

static const GxNcclCalls *gx__nccl_calls(GxError *err) // NULL: it cannot be loaded
{
    static const GxNcclCalls calls = gx__nccl_loaded(); // loaded once, by whichever thread comes first
    if (!calls.why[0]) return &calls;
    GX_FAIL(err, GX_ERR_DEVICE,
            "NCCL, which moves buffers between cards, cannot be loaded: %s; install it (libnccl2, or pip's nvidia-nccl "
            "with its folder in LD_LIBRARY_PATH), or say --device_comm host",
            calls.why);
    return NULL;
}

// ---- its state -----------------------------------------------------------------------------------------------------

typedef struct {
    char text[GX__NCCL_NAME];
    cudaEvent_t done;
} GxNcclCall;

typedef struct {
    const GxNcclCalls *nccl;
    cudaStream_t stream;
    cudaEvent_t ready;                 // recorded after the device's operations so far
    ncclComm_t group[GX_AXIS_ALL + 1]; // by axes
    GxNcclCall ring[GX__NCCL_RING];    // call number n is ring[n % GX__NCCL_RING]
    int64_t calls;
    double looked;  // when the host's engine was last asked whether a rank has failed
    int64_t oldest; // the oldest call that had not ended then; 0: all had
    double since;   // when it became the oldest
    int is_meeting; // a group is being made
} GxNccl;

static GxNccl *gx__nccl(const GxContext *g) { return (GxNccl *)g->comm->device_state; }

// ---- errors --------------------------------------------------------------------------------------------------------

// A rank that fails tells the others why through the host's engine, and then aborts its groups. NCCL's error on the
// other ranks does not contain that reason, which may arrive a moment later, so this waits for it first.
static int gx__nccl_ok(GxContext *g, ncclResult_t r, const char *what)
{
    if (r == ncclSuccess || r == ncclInProgress) return 1;
    const GxNcclCalls *nccl = gx__nccl(g)->nccl;
    const double until = gx_seconds() + gx__nccl_reason_seconds;
    do g->comm->engine->poll(g->comm, NULL, 0, &g->error);
    while (!gx_failed(g) && gx_seconds() < until && !sched_yield());
    if (!gx_failed(g))
        GX_FAIL(&g->error, GX_ERR_COMM, "rank %d: %s: %s (%s)", g->rank, what, nccl->GetErrorString(r),
                nccl->GetLastError(NULL));
    return 0;
}

// The oldest call that has not ended, which later ones wait for. 0: all have.
static int64_t gx__nccl_oldest(const GxNccl *n)
{
    for (int64_t i = gx_max(1, n->calls - GX__NCCL_RING + 1); i <= n->calls; i++)
        if (cudaEventQuery(n->ring[i % GX__NCCL_RING].done) == cudaErrorNotReady) return i;
    return 0;
}

static const char *gx__nccl_stuck(const GxNccl *n)
{
    const int64_t oldest = gx__nccl_oldest(n);
    if (n->is_meeting) return "NCCL's first connection of a group";
    return oldest ? n->ring[oldest % GX__NCCL_RING].text : "no collective: an operation of the device itself";
}

// g->while_waiting: finds dead ranks and time-outs.
static void gx__nccl_watch(GxContext *g, double since)
{
    GxNccl *n = gx__nccl(g);
    GxComm *comm = g->comm;
    const double now = gx_seconds();
    if (since >= 0 && now - n->looked < 1e-3) return; // checking costs some microseconds
    n->looked = now;
    const int64_t oldest = gx__nccl_oldest(n);
    if (oldest != n->oldest) n->oldest = oldest, n->since = now; // there was progress
    comm->engine->poll(comm, NULL, 0, &g->error);                // a rank that failed says so here
    for (int axes = 0; axes <= GX_AXIS_ALL && !gx_failed(g); axes++) {
        ncclResult_t state = ncclSuccess;
        if (n->group[axes] && n->nccl->CommGetAsyncError(n->group[axes], &state) == ncclSuccess)
            gx__nccl_ok(g, state, gx__nccl_stuck(n));
    }
    const double timeout = gx_comm_timeout(comm);
    if (!gx_failed(g) && since >= 0 && now - (since > n->since ? since : n->since) > timeout)
        GX_FAIL(&g->error, GX_ERR_COMM, "rank %d waited %g s in %s: a rank is dead, stalled, or in another call",
                g->rank, timeout, gx__nccl_stuck(n));
    if (!gx_failed(g)) return;
    gx__comm_give_up(g);                            // tells the others why before their groups fail
    for (int axes = 0; axes <= GX_AXIS_ALL; axes++) // NCCL's kernels spin until they are aborted
        if (n->group[axes]) n->nccl->CommAbort(n->group[axes]), n->group[axes] = NULL;
}

// A non-blocking communicator is busy for a while after a call that made or used it.
static int gx__nccl_settle(GxContext *g, int axes)
{
    const double since = gx_seconds();
    GxNccl *n = gx__nccl(g);
    ncclResult_t state = ncclInProgress;
    while (!gx_failed(g) && n->group[axes]) {
        if (!gx__nccl_ok(g, n->nccl->CommGetAsyncError(n->group[axes], &state), "ncclCommGetAsyncError")) break;
        if (state != ncclInProgress) return gx__nccl_ok(g, state, "NCCL");
        gx__nccl_watch(g, since);
        sched_yield();
    }
    return 0;
}

// ---- groups --------------------------------------------------------------------------------------------------------

// Connects the ranks of a group. Its first member's unique id is broadcast by the host's engine.
static void gx__nccl_meet(GxContext *g, int axes)
{
    GxNccl *n = gx__nccl(g);
    ncclUniqueId id;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    const int me = gx_mesh_index(g->mesh, axes), ranks = gx_mesh_size(g->mesh, axes);
    memset(&id, 0, sizeof id);
    if (me == 0 && !gx__nccl_ok(g, n->nccl->GetUniqueId(&id), "ncclGetUniqueId")) return;
    gx_broadcast(g, axes, 0, &id, sizeof id, GX_U8);
    if (gx_failed(g)) return;
    config.blocking = 0;
    if (!gx__nccl_ok(g, n->nccl->CommInitRankConfig(&n->group[axes], ranks, id, me, &config),
                     "ncclCommInitRankConfig (--device_comm host does without NCCL)"))
        return;
    n->is_meeting = 1;
    gx__nccl_settle(g, axes);
    n->is_meeting = 0;
}

// Makes all groups that collectives may name, before the first collective. To make a group NCCL allocates memory on the
// card. If ranks are threads of one process, the driver does not allow that while another rank's collective occupies a
// card and waits for this rank. So no rank continues before all ranks have all groups.
static void gx__nccl_make_groups(GxContext *g)
{
    GxRecorder *recorder = g->recorder;
    g->recorder = NULL; // not part of a step
    for (int axes = 1; axes <= GX_AXIS_ALL && !gx_failed(g); axes++)
        if (gx_mesh_axes(g->mesh, axes) == axes && gx_mesh_group(g->mesh, axes, NULL, 0, NULL) > 0)
            gx__nccl_meet(g, axes);
    gx_barrier(g, GX_AXIS_ALL); // if the context has failed, this tells the others
    g->recorder = recorder;
}

static ncclDataType_t gx__nccl_type(int dtype)
{
    switch (dtype) {
    case GX_F32: return ncclFloat32;
    case GX_F64: return ncclFloat64;
    case GX_BF16: return ncclBfloat16;
    case GX_F16: return ncclFloat16;
    case GX_I32: return ncclInt32;
    case GX_I64: return ncclInt64;
    case GX_U8: return ncclUint8;
    default: return ncclInt8;
    }
}

// ---- collectives ---------------------------------------------------------------------------------------------------

typedef struct {
    const GxNcclCalls *nccl;
    ncclComm_t comm;
    ncclDataType_t type;
    cudaStream_t stream;
} GxNcclUse;

static int gx__nccl_is_even(const GxSplit *rows)
{
    for (int r = 1; r < rows->n; r++)
        if (gx_split_part(rows, r) != gx_split_part(rows, 0)) return 0;
    return 1;
}

static ncclResult_t gx__nccl_gather(const GxNcclUse *u, const GxCollective *c)
{
    const int64_t row = c->row * c->size;
    const char *own = c->out + c->to.begin[c->me] * row;
    ncclResult_t r = ncclSuccess;
    if (gx__nccl_is_even(&c->to))
        return u->nccl->AllGather(own, c->out, (size_t)(gx_split_part(&c->to, c->me) * c->row), u->type, u->comm,
                                  u->stream);
    for (int i = 0; i < c->n && r == ncclSuccess; i++) {
        char *part = c->out + c->to.begin[i] * row;
        if (gx_split_part(&c->to, i))
            r = u->nccl->Broadcast(part, part, (size_t)(gx_split_part(&c->to, i) * c->row), u->type, i, u->comm,
                                   u->stream);
    }
    return r;
}

static ncclResult_t gx__nccl_scatter(const GxNcclUse *u, const GxCollective *c)
{
    ncclResult_t r = ncclSuccess;
    if (gx__nccl_is_even(&c->to))
        return u->nccl->ReduceScatter(c->in, c->out, (size_t)(gx_split_part(&c->to, c->me) * c->row), u->type, ncclSum,
                                      u->comm, u->stream);
    for (int i = 0; i < c->n && r == ncclSuccess; i++) {
        const char *part = c->in + c->to.begin[i] * c->row * c->size;
        if (gx_split_part(&c->to, i))
            r = u->nccl->Reduce(part, c->out, (size_t)(gx_split_part(&c->to, i) * c->row), u->type, ncclSum, i, u->comm,
                                u->stream);
    }
    return r;
}

static ncclResult_t gx__nccl_exchange(const GxNcclUse *u, const GxCollective *c)
{
    const int64_t row = c->row * c->size;
    ncclResult_t r = ncclSuccess;
    for (int i = 0; i < c->n && r == ncclSuccess; i++) {
        const int64_t to = gx_split_part(&c->to, i) * c->row, from = gx_split_part(&c->from, i) * c->row;
        if (i == c->me) continue;
        if (to) r = u->nccl->Send(c->in + c->to.begin[i] * row, (size_t)to, u->type, i, u->comm, u->stream);
        if (from && r == ncclSuccess)
            r = u->nccl->Recv(c->out + c->from.begin[i] * row, (size_t)from, u->type, i, u->comm, u->stream);
    }
    return r;
}

// NCCL matches the transfers of two ranks by their order alone. Listed channel by channel, they have the same order on
// both.
static ncclResult_t gx__nccl_transfers(const GxNcclUse *u, const GxCollective *c)
{
    ncclResult_t r = ncclSuccess;
    for (int channel = 0; channel < GX_CHANNELS; channel++)
        for (int64_t i = 0; i < c->count && r == ncclSuccess; i++) {
            const GxTransfer *t = &c->list[i];
            if (t->channel != channel) continue;
            if (t->is_send)
                r = u->nccl->Send(t->data, (size_t)t->n, gx__nccl_type(t->dtype), t->peer, u->comm, u->stream);
            else r = u->nccl->Recv(t->data, (size_t)t->n, gx__nccl_type(t->dtype), t->peer, u->comm, u->stream);
        }
    return r;
}

static ncclResult_t gx__nccl_call(const GxNcclUse *u, const GxCollective *c)
{
    switch (c->operation) {
    case GX__COMM_ALL_REDUCE:
        return u->nccl->AllReduce(c->out, c->out, (size_t)c->count, u->type, c->detail == GX_MAX ? ncclMax : ncclSum,
                                  u->comm, u->stream);
    case GX__COMM_ALL_GATHER: return gx__nccl_gather(u, c);
    case GX__COMM_REDUCE_SCATTER: return gx__nccl_scatter(u, c);
    case GX__COMM_ALL_TO_ALL: return gx__nccl_exchange(u, c);
    case GX__COMM_BROADCAST:
        return u->nccl->Broadcast(c->out, c->out, (size_t)c->count, u->type, c->detail, u->comm, u->stream);
    default: return gx__nccl_transfers(u, c);
    }
}

static int64_t gx__nccl_start(GxContext *g, const GxCollective *c)
{
    GxNccl *n = gx__nccl(g);
    char axes[64];
    const GxNcclUse use = {n->nccl, n->group[c->axes], gx__nccl_type(c->dtype), n->stream};
    if (gx__cuda_is_captured(g, "a collective")) return 0;
    if (!use.comm)
        GX_FAIL(&g->error, GX_ERR_ARGUMENT, "a collective over %s, which were one rank when NCCL's groups were made",
                gx_axes_name(c->axes, axes));
    if (gx_failed(g)) return 0;
    GxNcclCall *call = &n->ring[(n->calls + 1) % GX__NCCL_RING];
    for (const double began = gx_seconds(); !gx_failed(g) && cudaEventQuery(call->done) == cudaErrorNotReady;)
        gx__nccl_watch(g, began);
    if (gx_failed(g)) return 0;
    n->calls++;
    snprintf(call->text, sizeof call->text, "%s of %ld %s elements (call %ld over %s, site %s)",
             c->operation == GX__COMM_SEND ? "transfer" : gx_operation_name(c->operation), (long)c->count,
             gx_dtype_name(c->dtype), (long)n->calls, gx_axes_name(c->axes, axes), g->site ? g->site : "-");
    gx__cuda_error(g, cudaEventRecord(n->ready, gx_cuda(g)->stream), "cudaEventRecord");
    gx__cuda_error(g, cudaStreamWaitEvent(n->stream, n->ready, 0), "cudaStreamWaitEvent");
    n->nccl->GroupStart();
    const ncclResult_t called = gx__nccl_call(&use, c), ended = n->nccl->GroupEnd();
    if (gx__nccl_ok(g, called, call->text) && gx__nccl_ok(g, ended, call->text)) gx__nccl_settle(g, c->axes);
    gx__cuda_error(g, cudaEventRecord(call->done, n->stream), "cudaEventRecord");
    return gx_failed(g) ? 0 : n->calls;
}

static int64_t gx__nccl_newest(const GxContext *g) { return gx__nccl(g)->calls; }

static void gx__nccl_wait(GxContext *g, int64_t number)
{
    GxNccl *n = gx__nccl(g);
    if (number < 0)
        GX_FAIL(&g->error, GX_ERR_ARGUMENT, "a wait for a collective that was captured and not launched (site %s)",
                g->site ? g->site : "-");
    if (number > 0) // 0: none was started
        gx__cuda_error(g, cudaStreamWaitEvent(gx_cuda(g)->stream, n->ring[number % GX__NCCL_RING].done, 0),
                       "cudaStreamWaitEvent");
}

// ---- open and close ------------------------------------------------------------------------------------------------

static void gx__nccl_close(GxContext *g)
{
    GxNccl *n = gx__nccl(g);
    for (int axes = 0; axes <= GX_AXIS_ALL; axes++) {
        if (!n->group[axes]) continue;
        if (!gx_failed(g) && gx__nccl_ok(g, n->nccl->CommFinalize(n->group[axes]), "ncclCommFinalize"))
            gx__nccl_settle(g, axes);
        if (!n->group[axes]) continue; // has been aborted meanwhile
        if (gx_failed(g)) n->nccl->CommAbort(n->group[axes]);
        else n->nccl->CommDestroy(n->group[axes]);
        n->group[axes] = NULL; // since gx__nccl_watch, called for the next one, checks all that are set
    }
    for (int i = 0; i < GX__NCCL_RING; i++)
        if (n->ring[i].done) cudaEventDestroy(n->ring[i].done);
    if (n->ready) cudaEventDestroy(n->ready);
    if (n->stream) cudaStreamDestroy(n->stream);
    free(n);
    g->comm->device_state = NULL;
    g->comm->device_engine = NULL;
    g->while_waiting = NULL;
}

static const GxDeviceEngine gx__nccl_engine = {"nccl", gx__nccl_start, gx__nccl_wait, gx__nccl_newest, gx__nccl_close};

GxStatus gx_nccl_open(GxContext *g)
{
    const GxNcclCalls *nccl = gx__nccl_calls(&g->error);
    if (!nccl) return gx_status(g);
    GxNccl *n = (GxNccl *)calloc(1, sizeof *n);
    if (!n) return GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for the NCCL engine");
    n->nccl = nccl;
    g->comm->device_state = n;
    g->comm->device_engine = &gx__nccl_engine;
    g->while_waiting = gx__nccl_watch;
    gx__cuda_error(g, cudaStreamCreateWithFlags(&n->stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    gx__cuda_error(g, cudaEventCreateWithFlags(&n->ready, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    for (int i = 0; i < GX__NCCL_RING && !gx_failed(g); i++)
        gx__cuda_error(g, cudaEventCreateWithFlags(&n->ring[i].done, cudaEventDisableTiming),
                       "cudaEventCreateWithFlags");
    gx__nccl_make_groups(g);
    return gx_status(g);
}
#endif
