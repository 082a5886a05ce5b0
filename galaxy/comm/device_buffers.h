// device_buffers.h: collectives of buffers in the memory of a device that the host cannot touch (gx_on_device).
//
// If the communicator has an engine for such buffers (comm/nccl.h), it moves them, and the host never waits; that
// engine then takes sums in its own order, and a time-out is noticed when the host waits for the device
// (g->while_waiting). Without one, buffers are copied to the host's memory, and the results back; start then runs the
// blocking form. For an all-reduce the copy has one chunk at a time, for other collectives everything; its memory comes
// from the host's arena.
//
// The buffers of one call are all on the device, or all on the host.
#ifndef GX_DEVICE_BUFFERS_H
#define GX_DEVICE_BUFFERS_H
#include "flight.h"
GX_BEGIN

// An engine that moves buffers in order with the device's operations, without the host waiting. It is given only
// collectives of buffers on the device that have something to communicate; in a gather, this rank's own rows are
// already in place.
struct GxDeviceEngine {
    const char *name;
    // Starts a collective after all operations that the device has been given so far. Returns its number, 0 after an
    // error.
    int64_t (*start)(GxContext *g, const GxCollective *c);
    // Operations that the device is given from now on run after collective `number` and all that were started before
    // it; the host does not wait.
    void (*wait)(GxContext *g, int64_t number);
    int64_t (*newest)(const GxContext *g); // number of the collective that was started last; 0: none yet
    void (*close)(GxContext *g);
};

// Run a collective of any buffers by whatever can access them. It must have something to communicate.
void gx__comm_run_where(GxContext *g, GxCollective *c);
GxTicket gx__comm_start_where(GxContext *g, GxCollective *c);
void gx__comm_finish_where(GxContext *g, GxTicket ticket);

// The host waits until the device is idle: all operations and collectives are complete, including those that were
// started and not waited for. On the device cpu it does nothing.
void gx_comm_device_wait(GxContext *g);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_DEVICE_BUFFERS_IMPLEMENTED)
#define GX_DEVICE_BUFFERS_IMPLEMENTED

enum { GX__COMM_DEVICE_SLOT = GX_MAX_SLOTS + 1 }; // the slot of tickets that a device's engine has given

// ---- by the device's engine ----------------------------------------------------------------------------------------
static GxTicket gx__comm_start_on_device(GxContext *g, const GxCollective *c, int is_started)
{
    GxTicket t = GX_ZERO;
    if (!gx__comm_is_ready(g)) return t;
    t.recorded = gx__comm_record(g, c, is_started);
    t.slot = GX__COMM_DEVICE_SLOT;
    if (gx__comm_dry(g)) return t;
    t.number = g->comm->device_engine->start(g, c);
    if (gx_failed(g)) gx__comm_give_up(g);
    return t;
}

// ---- by copies in the host's memory --------------------------------------------------------------------------------
// The copy replaces the buffers in the collective.

// The sum is computed on the copy, chunk by chunk (flight.h). Other ranks see a single call, as from a rank whose
// buffers are on the host.
static void gx__comm_run_staged_sum(GxContext *g, GxCollective *c)
{
    GxArena *a = gx_host_arena(g);
    const GxArenaMark mark = gx_arena_mark(a);
    c->staged = c->out;
    c->out = (char *)gx_allocate_from(g, a, GX_MEM_COMM, gx_min(c->count, c->piece * c->n) * c->size);
    gx__comm_run(g, c);
    gx_arena_release(a, mark);
}

// Gather: this rank's rows are copied to the host, all rows back. Scatter: all rows to the host, this rank's back.
static void gx__comm_run_staged_rows(GxContext *g, GxCollective *c)
{
    GxArena *a = gx_host_arena(g);
    const GxArenaMark mark = gx_arena_mark(a);
    const int gathers = c->operation == GX__COMM_ALL_GATHER;
    char *whole = gathers ? c->out : (char *)c->in, *mine = c->out; // a gather's own rows are already in place
    const int64_t bytes = gx_split_total(&c->to) * c->row * c->size;
    char *copy = (char *)gx_allocate_from(g, a, GX_MEM_COMM, bytes);
    const GxPart own = gx__comm_rows(c, copy, &c->to, c->me), there = gx__comm_rows(c, whole, &c->to, c->me);
    c->in = copy;
    c->out = gathers ? copy : own.data;
    if (gathers) gx_to_host(g, own.data, there.data, own.bytes);
    else gx_to_host(g, copy, whole, bytes);
    gx__comm_run(g, c);
    if (gathers) gx_to_device(g, whole, copy, bytes);
    else gx_to_device(g, mine, own.data, own.bytes);
    if (gx_failed(g)) gx__comm_give_up(g);
    gx_arena_release(a, mark);
}

static void gx__comm_run_staged_exchange(GxContext *g, GxCollective *c)
{
    GxArena *a = gx_host_arena(g);
    const GxArenaMark mark = gx_arena_mark(a);
    const int64_t sent = gx_split_total(&c->to) * c->row * c->size,
                  received = gx_split_total(&c->from) * c->row * c->size;
    char *out = c->out, *copy = (char *)gx_allocate_from(g, a, GX_MEM_COMM, sent),
         *arrived = (char *)gx_allocate_from(g, a, GX_MEM_COMM, received);
    gx_to_host(g, copy, c->in, sent);
    gx_to_host(g, arrived, out, received); // its own rows are already there
    c->in = copy;
    c->out = arrived;
    gx__comm_run(g, c);
    gx_to_device(g, out, arrived, received);
    gx_arena_release(a, mark);
}

static void gx__comm_run_staged_broadcast(GxContext *g, GxCollective *c)
{
    GxArena *a = gx_host_arena(g);
    const GxArenaMark mark = gx_arena_mark(a);
    const int64_t bytes = c->count * c->size;
    char *x = c->out;
    c->out = (char *)gx_allocate_from(g, a, GX_MEM_COMM, bytes);
    if (c->me == c->detail) gx_to_host(g, c->out, x, bytes);
    gx__comm_run(g, c);
    gx_to_device(g, x, c->out, bytes);
    gx_arena_release(a, mark);
}

static void gx__comm_run_staged_transfers(GxContext *g, GxCollective *c)
{
    GxTransfer here[2 * GX_MAX_PARTS];
    const GxTransfer *list = c->list;
    GxArena *a = gx_host_arena(g);
    const GxArenaMark mark = gx_arena_mark(a);
    for (int64_t i = 0; i < c->count; i++) {
        const int64_t bytes = list[i].n * gx_dtype_size(list[i].dtype);
        here[i] = list[i];
        here[i].data = gx_allocate_from(g, a, GX_MEM_COMM, bytes);
        if (list[i].is_send) gx_to_host(g, here[i].data, list[i].data, bytes);
    }
    c->list = here;
    gx__comm_run(g, c);
    for (int64_t i = 0; i < c->count; i++)
        if (!list[i].is_send) gx_to_device(g, list[i].data, here[i].data, list[i].n * gx_dtype_size(list[i].dtype));
    gx_arena_release(a, mark);
}

static void gx__comm_run_staged(GxContext *g, GxCollective *c)
{
    switch (c->operation) {
    case GX__COMM_ALL_REDUCE: gx__comm_run_staged_sum(g, c); break;
    case GX__COMM_ALL_TO_ALL: gx__comm_run_staged_exchange(g, c); break;
    case GX__COMM_BROADCAST: gx__comm_run_staged_broadcast(g, c); break;
    case GX__COMM_SEND: gx__comm_run_staged_transfers(g, c); break;
    default: gx__comm_run_staged_rows(g, c);
    }
}

// ---- by whatever can access them -----------------------------------------------------------------------------------
static int gx__comm_is_on_device(const GxContext *g, const GxCollective *c)
{
    return gx_on_device(g, c->operation == GX__COMM_SEND ? c->list[0].data : c->out);
}

static int gx__comm_has_device_engine(const GxContext *g) { return g->comm && g->comm->device_engine; }

GxTicket gx__comm_start_where(GxContext *g, GxCollective *c)
{
    const GxTicket none = GX_ZERO;
    if (!gx__comm_is_on_device(g, c)) return gx__comm_start(g, c);
    if (gx__comm_has_device_engine(g)) return gx__comm_start_on_device(g, c, 1);
    gx__comm_run_staged(g, c);
    return none;
}

void gx__comm_finish_where(GxContext *g, GxTicket ticket)
{
    if (!g->comm || ticket.slot != GX__COMM_DEVICE_SLOT) {
        gx__comm_finish(g, ticket);
        return;
    }
    if (gx_failed(g)) return;
    if (g->recorder) gx_recorder_wait(g->recorder, ticket.recorded, g->site, g->unit);
    if (!gx__comm_dry(g)) g->comm->device_engine->wait(g, ticket.number);
}

void gx__comm_run_where(GxContext *g, GxCollective *c)
{
    if (!gx__comm_is_on_device(g, c)) gx__comm_run(g, c);
    else if (gx__comm_has_device_engine(g)) gx__comm_finish_where(g, gx__comm_start_on_device(g, c, 0));
    else gx__comm_run_staged(g, c);
}

void gx_comm_device_wait(GxContext *g)
{
    const GxDeviceEngine *engine = g->comm ? g->comm->device_engine : NULL;
    if (!gx_failed(g) && engine && !gx__comm_dry(g)) engine->wait(g, engine->newest(g));
    gx_device_wait(g);
}
#endif
