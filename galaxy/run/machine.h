// machine.h: opens what a rank computes and communicates with: its device, its communicator, and the engine for buffers
// on cards. Every program does this before it makes a plan.
#ifndef GX_MACHINE_H
#define GX_MACHINE_H
#include "../comm/comm.h"
#include "../ops/memory.h"
GX_BEGIN

// "auto", "cpu", or the name of the device that the program was built for.
GxStatus gx_choose_device(GxContext *g, const char *device);
// is_dry: 1: only plan, without a card.
GxStatus gx_open_device(GxContext *g, int is_dry);
// Opens g->comm in a run of several ranks. Its memory comes from `memory`, an arena of its own, because the ranks must
// agree on what to plan before the plan exists; the plan then counts it. timeout: seconds to wait for another rank.
GxStatus gx_open_comm(GxContext *g, GxArena *memory, double timeout);
// Chooses what transfers buffers that are on cards: "auto", "nccl" or "host". The choice is the same on all ranks, even
// if only some of them have a card.
GxStatus gx_open_device_comm(GxContext *g, const char *device_comm);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_MACHINE_IMPLEMENTED)
#define GX_MACHINE_IMPLEMENTED
#include <string.h>
#include "../cpu/cpu.h"
#include "../comm/nccl.h"
#include "launch.h"
#include "plan.h"

GxStatus gx_choose_device(GxContext *g, const char *device)
{
    if (!strcmp(device, "cpu")) g->device = gx_device_cpu();
    if (!strcmp(device, "auto") || !strcmp(device, g->device->name)) return GX_OK;
    return GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                   "--device %s: this program was built for %s; build it again with make DEVICE=%s", device,
                   g->device->name, device);
}

GxStatus gx_open_device(GxContext *g, int is_dry)
{
    const GxError none = GX_ZERO;
    if (gx_device_open(g) == GX_OK || !is_dry || g->error.code != GX_ERR_DEVICE) return gx_status(g);
    g->error = none; // the program's first line says why there is no card
    gx_device_close(g);
    return GX_OK;
}

GxStatus gx_open_comm(GxContext *g, GxArena *memory, double timeout)
{
    GxContext dry = *g;
    GxComm *comm = g->comm, nobody = GX_ZERO;
    GxArena counting;
    if (!comm) return GX_OK;
    comm->timeout = timeout;
    if (comm->is_open) { // by an earlier session
        g->host = memory;
        return GX_OK;
    }
    nobody.rank = g->rank, nobody.world = g->world, nobody.local_ranks = comm->local_ranks;
    gx_arena_open_dry(&counting);
    dry.host = &counting;
    GX_TRY(gx_comm_open(&dry, &nobody));
    GX_TRY(gx_arena_open(memory, counting.peak, &g->error));
    g->host = memory;
    g->comm = NULL;
    return gx_comm_open(g, comm);
}

// 1: each rank has a card that no other rank uses.
static int gx__machine_has_own_cards(GxContext *g)
{
    const uint64_t mine = gx_plan_card(g);
    uint64_t all[GX_MAX_PARTS];
    const GxSplit ranks = gx_split_even(g->world, g->world);
    gx_at(g, -1, "cards");
    gx_all_gather(g, GX_AXIS_ALL, &ranks, all, &mine, 1, GX_I64);
    for (int a = 0; a < g->world && !gx_failed(g); a++)
        for (int b = 0; b <= a; b++)
            if (all[a] == 0 || (b < a && all[a] == all[b])) return 0;
    return !gx_failed(g);
}

// For a dry run without a card, which calls none of these functions.
static const GxDeviceEngine gx__machine_planned_nccl = {"nccl", NULL, NULL, NULL, NULL};

GxStatus gx_open_device_comm(GxContext *g, const char *device_comm)
{
    const int wanted = !strcmp(device_comm, "nccl");
    if (wanted && !g->device->card)
        return GX_FAIL(
            &g->error, GX_ERR_ARGUMENT, "--device_comm nccl moves buffers between cards, but rank %d is on %s%s",
            g->rank, g->device->name,
            gx_default_device()->card ? "" : ", for which it was built; build it again with make DEVICE=cuda");
    if (g->world == 1 || !strcmp(device_comm, "host")) return GX_OK;
    const int own_cards = gx__machine_has_own_cards(g);
    if (gx_failed(g) || !(wanted || own_cards)) return gx_status(g);
    if (!gx_plan_card(g)) g->comm->device_engine = &gx__machine_planned_nccl;
#ifdef GX_WITH_CUDA
    else gx_nccl_open(g);
#endif
    return gx_status(g);
}
#endif
