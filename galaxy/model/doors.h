// model/doors.h: the collectives that modes and cores are written with. Each is given the door of the core at which it
// stands (GxDoor of parallel/layout.h: entry, exit, inside). They do nothing in a group of one rank, or for rows
// without data, which then no rank of the group has.
//
//     GxRows in = gx_core_in(p, k, x), out = gx_core_out(p, k);
//     gx_enter_forward(p, k, gx_own(p, k, in), x);
//     gx_tp_all_gather(p, k, GX_ENTRY, in, gx_own(p, k, in));      // SEQ -> FULL
#ifndef GX_DOORS_H
#define GX_DOORS_H
#include "../comm/comm.h"
#include "pass.h"
GX_BEGIN

void gx_tp_all_reduce(GxPass *p, int k, GxDoor door, GxRows x);                       // PARTIAL -> FULL
void gx_tp_all_gather(GxPass *p, int k, GxDoor door, GxRows whole, GxRows own);       // SEQ -> FULL
void gx_tp_reduce_scatter(GxPass *p, int k, GxDoor door, GxRows own, GxRows partial); // PARTIAL -> SEQ

// For gradients: start them before the weight half, so that both overlap, and call gx_wait after it. Until then neither
// buffer may be read or written.
GxTicket gx_tp_all_reduce_start(GxPass *p, int k, GxDoor door, GxRows x);
GxTicket gx_tp_all_gather_start(GxPass *p, int k, GxDoor door, GxRows whole, GxRows own);
GxTicket gx_tp_reduce_scatter_start(GxPass *p, int k, GxDoor door, GxRows own, GxRows partial);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_DOORS_IMPLEMENTED)
#define GX_DOORS_IMPLEMENTED

static void gx__door_at(GxPass *p, int k, GxDoor door)
{
    gx_at(p->g, p->unit, gx_door_name(gx_pass_kind(p)->spec.pair[k].core.kind, door));
}

GxTicket gx_tp_all_reduce_start(GxPass *p, int k, GxDoor door, GxRows x)
{
    const GxTicket none = GX_ZERO;
    if (!x.data) return none;
    gx__door_at(p, k, door);
    return gx_all_reduce_start(p->g, GX_AXIS_TP, GX_SUM, x.data, x.rows * x.cols, x.dtype);
}

GxTicket gx_tp_all_gather_start(GxPass *p, int k, GxDoor door, GxRows whole, GxRows own)
{
    const GxTicket none = GX_ZERO;
    const GxSplit *rows = gx_pair_rows(p, k);
    if (!whole.data || rows->n == 1) return none;
    gx__door_at(p, k, door);
    return gx_all_gather_start(p->g, GX_AXIS_TP, rows, whole.data, own.data, whole.cols, whole.dtype);
}

GxTicket gx_tp_reduce_scatter_start(GxPass *p, int k, GxDoor door, GxRows own, GxRows partial)
{
    const GxTicket none = GX_ZERO;
    const GxSplit *rows = gx_pair_rows(p, k);
    if (!partial.data || rows->n == 1) return none;
    gx__door_at(p, k, door);
    return gx_reduce_scatter_start(p->g, GX_AXIS_TP, rows, own.data, partial.data, partial.cols, partial.dtype);
}

void gx_tp_all_reduce(GxPass *p, int k, GxDoor door, GxRows x) { gx_wait(p->g, gx_tp_all_reduce_start(p, k, door, x)); }

void gx_tp_all_gather(GxPass *p, int k, GxDoor door, GxRows whole, GxRows own)
{
    const GxSplit *rows = gx_pair_rows(p, k);
    if (!whole.data || rows->n == 1) return;
    gx__door_at(p, k, door);
    gx_all_gather(p->g, GX_AXIS_TP, rows, whole.data, own.data, whole.cols, whole.dtype);
}

void gx_tp_reduce_scatter(GxPass *p, int k, GxDoor door, GxRows own, GxRows partial)
{
    gx_wait(p->g, gx_tp_reduce_scatter_start(p, k, door, own, partial));
}
#endif
