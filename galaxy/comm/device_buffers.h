// device_buffers.h: collectives of buffers in the memory of a device that the host cannot touch (gx_on_device).
//
// Where the communicator has an engine for such (comm/nccl.h), it moves them, and the host never waits; sums are then
// that engine's own, and a time-out is found when the host waits for the device (g->while_waiting). Without one, what
// is moved is a copy in the host's memory, made before and brought back behind it; start then does the blocking form.
// Of a sum over all elements the copy is a chunk at a time, of others the whole; it comes from the host's arena.
//
// The buffers of one call are all on the device, or all on the host.
#ifndef GX_DEVICE_BUFFERS_H
#define GX_DEVICE_BUFFERS_H
#include "flight.h"
GX_BEGIN

// It moves buffers behind the device's operations, without the host waiting. Each collective that it is given is one of
// buffers on the device, with something to say to others; a rank's own rows of a gather are in their place.
struct GxDeviceEngine {
    const char *name;
    // Behind what the device was asked for so far. Returns a number, 0 after an error.
    int64_t (*start)(GxContext *g, const GxCollective *c);
    // What the device is asked for from now on comes behind it; the host goes on. The collectives that were started
    // before it are done by then, too.
    void (*wait)(GxContext *g, int64_t number);
    int64_t (*newest)(const GxContext *g); // number of the collective that was started last; 0: none yet
    void (*close)(GxContext *g);
};

// Of any buffers: by whoever can reach them. Each gets a collective that was found to be something to say to others.
void gx__comm_run_where(GxContext *g, GxCollective *c);
GxTicket gx__comm_start_where(GxContext *g, GxCollective *c);
void gx__comm_finish_where(GxContext *g, GxTicket ticket);

// The host waits until all operations and all collectives that were asked for are done, those that were started but not
// finished too: the device is idle. Nothing on the device cpu.
void gx_comm_device_wait(GxContext *g);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_DEVICE_BUFFERS_IMPLEMENTED)
#define GX_DEVICE_BUFFERS_IMPLEMENTED

enum { GX__COMM_DEVICE_SLOT = GX_MAX_SLOTS + 1 }; // of tickets that a device's engine gave

// ---- by an engine of the device's ----------------------------------------------------------------------------------
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
// The copy takes the place of the buffers in the collective.

// A sum goes over the copy chunk by chunk (flight.h): to the other ranks it is the one call that it is of a rank
// whose buffers are the host's.
static void gx__comm_run_staged_sum(GxContext *g, GxCollective *c)
{
    GxArena *a = gx_host_arena(g);
    const GxArenaMark mark = gx_arena_mark(a);
    c->staged = c->out;
    c->out = (char *)gx_allocate_from(g, a, GX_MEM_COMM, gx_min(c->count, c->piece * c->n) * c->size);
    gx__comm_run(g, c);
    gx_arena_release(a, mark);
}

// Gather: this rank's rows go up from the device, all come down. Scatter: all go up, this rank's come down.
static void gx__comm_run_staged_rows(GxContext *g, GxCollective *c)
{
    GxArena *a = gx_host_arena(g);
    const GxArenaMark mark = gx_arena_mark(a);
    const int gathers = c->operation == GX__COMM_ALL_GATHER;
    char *whole = gathers ? c->out : (char *)c->in, *mine = c->out; // a gather's own rows are in their place already
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
    gx_to_host(g, arrived, out, received); // its own rows are there already
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

// ---- by whoever can reach them -------------------------------------------------------------------------------------
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
