// nccl_calls.cu: what it costs the host that NCCL's communicators are non-blocking (galaxy/comm/nccl.cuh): an
// all-reduce on a blocking communicator and on a non-blocking one, in turns, for several sizes, at most 300 calls or 6
// seconds of each.
//
//     dev/cuda/two_ranks.sh workshop_nccl_calls     two processes on one card
//     workshop_nccl_calls --ranks 2                 two threads with a card each, or on the emulator
//
// NCCL makes a thread for each group of a non-blocking communicator; the group is in progress until that thread has
// enqueued it. Of one rank it makes none and launches nothing, so it takes two.
//
// enqueued: what gx__nccl_start takes, which is all that the library does for a call: events, NCCL's call, and the wait
// until the communicator takes the next one: the median, and what nine calls of ten do not exceed. The difference
// between the two communicators is what the thread costs.
// done: from the first of 20 calls until all are done, per call. Ranks that share a card wait for it to change from one
// to the other: then this says nothing of ranks with a card each, while the host's time has no part in that.
// in progress: calls whose group NCCL left to a thread.
//
// It ends with 1 and the reason after any error, and after 20 seconds without progress; two_ranks.sh has a limit, too.
#define GALAXY_CUDA_IMPLEMENTATION
#include "galaxy/comm/nccl.cuh"
#include "galaxy/run/launch.h"
#include "galaxy/run/machine.h"
#include "galaxy/run/reporter.h"
#include <algorithm>

enum { AXES = GX_AXIS_DP_SHARD, BATCH = 20, CALLS = 300 }; // until the host waits for all of them; of a size, at most
static const double most_seconds = 6;                      // of a size: no batch begins after that

static const int64_t sizes[] = {4 << 10, 1 << 20, 64 << 20}; // bytes
#ifdef GX_EMU                                                // has no speed to measure
enum { MOST = 2 * BATCH, SIZES = 2 };
#else
enum { MOST = CALLS, SIZES = 3 };
#endif

typedef struct {
    const char *name;
    ncclComm_t comm;
    double enqueued[CALLS], done; // seconds: of each call; of all
    int calls, in_progress;       // groups that NCCL left to a thread
} Kind;

static thread_local int groups_in_progress;
static ncclResult_t group_end(void)
{
    const ncclResult_t r = gx__nccl_calls(NULL)->GroupEnd();
    groups_in_progress += r == ncclInProgress;
    return r;
}

static void run(GxContext *g, const GxCollective *c, Kind *k, int calls)
{
    int64_t last = 0;
    groups_in_progress = 0;
    gx__nccl(g)->group[AXES] = k->comm;
    const double began = gx_seconds();
    for (int i = 0; i < calls && !gx_failed(g); i++) {
        const double start = gx_seconds();
        last = gx__nccl_start(g, c);
        k->enqueued[k->calls + i] = gx_seconds() - start;
    }
    gx__nccl_wait(g, last);
    gx_cuda_wait(g);
    k->done += gx_seconds() - began;
    k->calls += calls;
    k->in_progress += groups_in_progress;
}

static void measure(GxContext *g, int64_t bytes, char *buffer, Kind *kind, int kinds)
{
    GxCollective c = GX_ZERO;
    int32_t is_late = 0;
    c.operation = GX__COMM_ALL_REDUCE, c.axes = AXES, c.detail = GX_SUM, c.dtype = GX_F32, c.out = buffer;
    c.count = bytes / (int64_t)sizeof(float);
    for (int i = 0; i < kinds && !gx_failed(g); i++) {
        run(g, &c, &kind[i], 2); // NCCL connects what it needs for this size
        kind[i].calls = kind[i].in_progress = 0, kind[i].done = 0;
    }
    for (const double began = gx_seconds(); kind[0].calls < MOST && !is_late && !gx_failed(g);) {
        for (int i = 0; i < kinds && !gx_failed(g); i++) run(g, &c, &kind[i], BATCH);
        is_late = gx_seconds() - began > most_seconds;
        gx_broadcast(g, AXES, 0, &is_late, 1, GX_I32); // of the host's memory: all ranks stop together
    }
    for (Kind *k = kind; k < kind + kinds && !gx_failed(g); k++) {
        std::sort(k->enqueued, k->enqueued + k->calls);
        gx_report(g, "%8ld  %-12s  %5d  %11d  %8.1f  %8.1f  %9.1f\n", (long)bytes, k->name, k->calls, k->in_progress,
                  1e6 * k->enqueued[k->calls / 2], 1e6 * k->enqueued[k->calls * 9 / 10], 1e6 * k->done / k->calls);
        k->calls = 0;
    }
}

// A second communicator of the ranks that have the non-blocking one.
static ncclComm_t open_blocking(GxContext *g)
{
    const GxNcclCalls *nccl = gx__nccl(g)->nccl;
    ncclUniqueId id = {};
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm = NULL;
    config.blocking = 1;
    if (g->rank == 0 && !gx__nccl_ok(g, nccl->GetUniqueId(&id), "ncclGetUniqueId")) return NULL;
    gx_broadcast(g, AXES, 0, &id, sizeof id, GX_U8);
    if (!gx_failed(g))
        gx__nccl_ok(g, nccl->CommInitRankConfig(&comm, g->world, id, g->rank, &config), "ncclCommInitRankConfig");
    return comm;
}

static int measure_all(GxContext *g, int, char **)
{
    GxDevice cuda = {};
    GxMesh mesh;
    GxArena memory;
    Kind kind[] = {{"blocking", NULL, {}, 0, 0, 0}, {"non-blocking", NULL, {}, 0, 0, 0}};
    const int dims[GX_MESH_AXES] = {1, 1, -1, 1, 1};
    const int64_t most = sizes[SIZES - 1];
    char *buffer = NULL;
    int version = 0;
    if (g->world < 2) GX_FAIL(&g->error, GX_ERR_ARGUMENT, "it takes two ranks: dev/cuda/two_ranks.sh PROGRAM");
    GX_CHECK(g, gx_status(g));
    cuda.name = "cuda", cuda.computes = 1;
    g->device = &cuda;
    g->mesh = &mesh;
    GX_CHECK(g, gx_mesh_open(&mesh, dims, g->rank, g->world, &g->error));
    GX_CHECK(g, gx_open_comm(g, &memory, 20));
    GX_CHECK(g, gx_cuda_open(g));
    GX_CHECK(g, gx_nccl_open(g));
    GxNccl *n = gx__nccl(g);
    GxNcclCalls counted = *n->nccl;
    counted.GroupEnd = group_end;
    n->nccl = &counted;
    kind[0].comm = open_blocking(g);
    kind[1].comm = n->group[AXES];
    GX_CHECK(g, gx_status(g));
    GX_CHECK(g, gx__cuda_error(g, cudaMalloc((void **)&buffer, (size_t)most), "cudaMalloc"));
    GX_CHECK(g, gx__cuda_error(g, cudaMemset(buffer, 0, (size_t)most), "cudaMemset"));
    GX_CHECK(g, gx__cuda_error(g, cudaDeviceSynchronize(), "cudaDeviceSynchronize")); // streams do not wait for it
    counted.GetVersion(&version);
    gx_report(g, "NCCL %d, %d ranks, all-reduce in fp32, us of rank 0\n", version, g->world);
    gx_report(g, "   bytes  communicator  calls  in progress  enqueued   9 of 10       done\n");
    for (int i = 0; i < SIZES; i++) measure(g, sizes[i], buffer, kind, 2);
    GX_CHECK(g, gx_status(g));
    n->group[AXES] = kind[1].comm;
    gx__nccl_ok(g, counted.CommDestroy(kind[0].comm), "ncclCommDestroy");
    gx_comm_close(g);
    cudaFree(buffer);
    gx_cuda_close(g);
    return gx_failed(g) ? gx_print_error(g) : 0;
}

int main(int argc, char **argv) { return gx_launch(measure_all, argc, argv); }
