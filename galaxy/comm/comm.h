// comm/comm.h: collectives over the axes of the mesh: the interface for programs, and its guarantees. The layers below:
//
//     engine.h          the interface of an engine (threads.h, tcp.h, mpi.h), which sends and receives messages
//     collective.h      what each collective sends, receives and sums, step by step; the same code for all engines
//     flight.h          how collectives are started, progress and are waited for; their errors
//     device_buffers.h  buffers in a device's memory: by an engine of the device (nccl.h), or by copies
//     captured.h        work of a device that is captured once and launched repeatedly, with collectives in between
//
//     gx_threads_comm(&comm, group, rank);                // an engine, rank and world; or gx_tcp_comm, gx_mpi_comm
//     GX_TRY(gx_mesh_open(&mesh, dims, comm.rank, comm.world, &g->error));
//     g->mesh = &mesh;
//     GX_TRY(gx_comm_open(g, &comm));                     // memory from the host's arena, sets g->comm
//     gx_all_reduce(g, GX_AXIS_LOSS, GX_SUM, &labels, 1, GX_I64);     // also for flags and counts
//     GxTicket t = gx_all_gather_start(g, GX_AXIS_TP, &rows, full, mine, B * C, GX_F32);
//     ...                                                 // `full` and `mine` must not be read or written meanwhile
//     gx_wait(g, t);
//     gx_comm_close(g);
//
// Guarantees of every collective
// - Sums are taken in rank order, x0 + x1 + x2 ..., in the data's type: F32, F64, I32, I64; BF16 is summed in fp32 and
//   rounded once. All ranks get the same bits, and reduce-scatter followed by all-gather gives the bits of all-reduce.
//   MAX propagates NaN. F16 can be moved but not summed (GX_ERR_UNSUPPORTED).
// - Parts are as large as their splits say, empty ones included; nothing is padded.
// - A group of one communicates and records nothing; it copies if the output is not the input.
// - Every message has a header with the call's number in its group, its operation, count and type. If two ranks call
//   different collectives, the error names both ranks and both operations. A rank that waits longer than `timeout` for
//   another one fails with a message that names operation and rank.
// - A failed context does not join a collective: it aborts all ranks, whose errors then name it and quote its message.
//   If a rank has died, left or stalled, all others fail with the same message, which names that rank. So no rank
//   hangs.
// - The recorder gets one event per collective (for a list of transfers, one per transfer) with the bytes that this
//   rank sends, and another one where a started collective is waited for. In a dry run (g->comm is NULL in a world of
//   several ranks, its engine is NULL, or the arena is dry) nothing but this and taking scratch happens.
//
// Buffers may lie in device memory that the host cannot access. NCCL then sums in its own order. Without NCCL, `start`
// runs the blocking form (device_buffers.h).
//
// Memory: everything comes from the host's arena (gx_host_arena), copies of device buffers included: for an all-reduce
// a chunk at a time, for other collectives the whole. A blocking sum takes up to `chunk` bytes (GX_MEM_COMM) and
// releases them; larger sums are done in chunks. A started sum occupies one of two such blocks, which gx_comm_open
// takes. If none is free, or if `slots` operations are in flight, `start` runs the blocking form, which is always
// correct.
//
// Overlap: data are moved and summed while this rank is inside a call of this file, and while it computes by a second
// thread (background.h), for all collectives in flight at once, in whatever order ranks wait for them.
//
// Not supported: more than GX_MAX_PARTS ranks in a group.
#ifndef GX_COMM_H
#define GX_COMM_H
#include "device_buffers.h"
GX_BEGIN

// ---- collectives: `axes` is a mask of GX_AXIS_..., counts are elements, `row_elements` those of one row of a split -

// x[i] = reduction of all ranks' x[i], on all of them.
void gx_all_reduce(GxContext *g, int axes, GxReduce reduce, void *x, int64_t n, GxDtype dtype);

// full[rows.begin[r] ..] = rank r's mine, on all of them. `mine` may be this rank's rows of `full`; otherwise the two
// must not overlap.
void gx_all_gather(GxContext *g, int axes, const GxSplit *rows, void *full, const void *mine, int64_t row_elements,
                   GxDtype dtype);

// mine = sum of all ranks' partial[rows.begin[me] ..]. `mine` may be this rank's rows of `partial`; otherwise the two
// must not overlap.
void gx_reduce_scatter(GxContext *g, int axes, const GxSplit *rows, void *mine, const void *partial,
                       int64_t row_elements, GxDtype dtype);

// Sends part r of `send` to rank r, and receives rank r's part for this rank as part r of `recv`. The buffers must not
// overlap.
void gx_all_to_all(GxContext *g, int axes, const GxSplit *send_rows, const void *send, const GxSplit *recv_rows,
                   void *recv, int64_t row_elements, GxDtype dtype);

void gx_broadcast(GxContext *g, int axes, int root, void *x, int64_t n, GxDtype dtype); // root: its index in the group
void gx_barrier(GxContext *g, int axes);

// Point to point. Peers are indices in the group. Messages between two ranks keep their order within a channel, not
// across channels. All transfers of a call are in flight at once, so two ranks that send to each other do not deadlock.
void gx_transfer(GxContext *g, int axes, const GxTransfer *list, int n);
void gx_send(GxContext *g, int axes, int to, const void *x, int64_t n, GxDtype dtype); // returns when it was taken
void gx_recv(GxContext *g, int axes, int from, void *x, int64_t n, GxDtype dtype);

GxTicket gx_all_reduce_start(GxContext *g, int axes, GxReduce reduce, void *x, int64_t n, GxDtype dtype);
GxTicket gx_all_gather_start(GxContext *g, int axes, const GxSplit *rows, void *full, const void *mine,
                             int64_t row_elements, GxDtype dtype);
GxTicket gx_reduce_scatter_start(GxContext *g, int axes, const GxSplit *rows, void *mine, const void *partial,
                                 int64_t row_elements, GxDtype dtype);
// `list` may be reused after the call, what it points to only after gx_wait.
GxTicket gx_transfer_start(GxContext *g, int axes, const GxTransfer *list, int n);
void gx_wait(GxContext *g, GxTicket ticket); // once per ticket; again does nothing
void gx_progress(GxContext *g);              // advances the started collectives as far as possible without waiting

// ---- the communicator (GxComm: engine.h) ---------------------------------------------------------------------------
// Takes the communicator's memory from the host's arena (a dry one counts it) and sets g->comm, g->rank, g->local_rank,
// g->world. For a plan without an engine, fill in rank and world of a zeroed GxComm.
GxStatus gx_comm_open(GxContext *g, GxComm *comm);
// Goes on with some of the ranks, in a new order: rank r of the smaller world is rank kept[r] of the current one. Sets
// g->rank and g->world; the caller opens a mesh of the new world. All ranks call it, at the same place in their calls of
// collectives. On a rank that is not kept, g->world becomes 0: it closes the communicator, and the others go on.
void gx_comm_keep(GxContext *g, const int16_t *kept, int n);
// Before another mesh on the same ranks: waits for all of them, closes the device's engine, and counts calls anew, since
// ranks of different groups have made different numbers of calls. No collective is in flight; all ranks call it.
void gx_comm_regroup(GxContext *g);
// Finishes the started collectives and leaves; ranks that still wait for this one fail. A failed context aborts them
// instead. g->comm stays set: a later collective is an error, not a dry run.
void gx_comm_close(GxContext *g);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_COMM_IMPLEMENTED)
#define GX_COMM_IMPLEMENTED
#include <string.h>

// ---- the description of each collective ----------------------------------------------------------------------------
// Finds the group. Returns its size; 0: the context has failed.
static int gx__comm_begin(GxContext *g, GxCollective *c, GxOperation operation, int axes, GxDtype dtype)
{
    memset(c, 0, sizeof *c);
    c->operation = operation;
    c->dtype = dtype;
    c->size = gx_dtype_size(dtype);
    c->steps = 1;
    c->n = 1;
    if (gx_failed(g)) {
        gx__comm_give_up(g);
        return 0;
    }
    if (!g->mesh && g->world > 1)
        GX_FAIL(&g->error, GX_ERR_ARGUMENT, "a world of %d ranks has no mesh; set g->mesh", g->world);
    else if (g->mesh) {
        c->axes = gx_mesh_axes(g->mesh, axes);
        c->n = gx_mesh_group(g->mesh, c->axes, c->rank, GX_MAX_PARTS, &c->me);
        for (int i = 0; i < c->n && c->n <= GX_MAX_PARTS && g->comm; i++)
            c->rank[i] = gx_comm_engine_rank(g->comm, c->rank[i]);
    }
    char along[64];
    if (c->n < 1)
        GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                "%s over %s: the stages of this mesh have different numbers of ranks, so there are no such groups",
                gx_operation_name(operation), gx_axes_name(c->axes, along));
    if (c->n > GX_MAX_PARTS)
        GX_FAIL(&g->error, GX_ERR_UNSUPPORTED, "a group of %d ranks; at most %d are possible", c->n, GX_MAX_PARTS);
    if ((operation == GX__COMM_ALL_REDUCE || operation == GX__COMM_REDUCE_SCATTER) && !gx__comm_reduce_function(dtype))
        GX_FAIL(&g->error, GX_ERR_UNSUPPORTED, "%s of %s: sums are taken in F32, BF16, F64, I32 and I64; convert first",
                gx_operation_name(operation), gx_dtype_name(dtype));
    if (!gx_failed(g)) return c->n;
    gx__comm_give_up(g);
    return 0;
}

static int gx__comm_split_fits(GxContext *g, const GxCollective *c, const GxSplit *rows)
{
    if (rows->n == c->n) return 1;
    char axes[64];
    GX_FAIL(&g->error, GX_ERR_ARGUMENT, "%s over %s: a split of %d parts for a group of %d ranks",
            gx_operation_name(c->operation), gx_axes_name(c->axes, axes), rows->n, c->n);
    gx__comm_give_up(g);
    return 0;
}

// 1: `mine` is this rank's rows of `whole`, or does not overlap `whole` at all.
static int gx__comm_overlap_is_sound(GxContext *g, const GxCollective *c, const void *whole, const void *mine)
{
    GxPart own = gx__comm_rows(c, whole, &c->to, c->me),
           all = gx__comm_part(whole, 0, gx_split_total(&c->to) * c->row, c->size);
    uintptr_t a = (uintptr_t)mine, b = (uintptr_t)whole;
    int apart = !own.bytes || a + (uintptr_t)own.bytes <= b || b + (uintptr_t)all.bytes <= a;
    if (apart || (const char *)mine == own.data) return 1;
    GX_FAIL(&g->error, GX_ERR_ARGUMENT, "%s: the rank's own rows lie inside the whole, but not in their place",
            gx_operation_name(c->operation));
    gx__comm_give_up(g);
    return 0;
}

// Copies a rank's own part; both buffers are in the host's memory, or both in the device's.
static void gx__comm_copy(GxContext *g, GxPart to, GxPart from)
{
    if (gx__comm_dry(g) || to.bytes <= 0 || to.data == from.data) return;
    if (gx_on_device(g, to.data)) g->device->copy(g, to.data, from.data, to.bytes);
    else memcpy(to.data, from.data, (size_t)to.bytes);
}

// Each of these describes a collective in *c, and returns 1 if there is something to communicate.
static int gx__comm_all_reduce(GxContext *g, GxCollective *c, int axes, GxReduce reduce, void *x, int64_t n,
                               GxDtype dtype)
{
    if (gx__comm_begin(g, c, GX__COMM_ALL_REDUCE, axes, dtype) <= 1) return 0;
    c->out = (char *)x;
    c->count = n;
    c->detail = reduce;
    gx__comm_cut_all_reduce(g, c);
    return 1;
}

static int gx__comm_all_gather(GxContext *g, GxCollective *c, int axes, const GxSplit *rows, void *full,
                               const void *mine, int64_t row, GxDtype dtype)
{
    if (!gx__comm_begin(g, c, GX__COMM_ALL_GATHER, axes, dtype) || !gx__comm_split_fits(g, c, rows)) return 0;
    c->out = (char *)full;
    c->to = *rows;
    c->row = row;
    c->count = gx_split_total(rows) * row;
    if (!gx__comm_overlap_is_sound(g, c, full, mine)) return 0;
    GxPart own = gx__comm_rows(c, full, rows, c->me), from = own;
    from.data = (char *)mine;
    gx__comm_copy(g, own, from);
    return c->n > 1;
}

static int gx__comm_reduce_scatter(GxContext *g, GxCollective *c, int axes, const GxSplit *rows, void *mine,
                                   const void *partial, int64_t row, GxDtype dtype)
{
    if (!gx__comm_begin(g, c, GX__COMM_REDUCE_SCATTER, axes, dtype) || !gx__comm_split_fits(g, c, rows)) return 0;
    c->in = (const char *)partial;
    c->out = (char *)mine;
    c->to = *rows;
    c->row = row;
    c->count = gx_split_total(rows) * row;
    if (!gx__comm_overlap_is_sound(g, c, partial, mine)) return 0;
    if (c->n == 1) {
        GxPart own = gx__comm_rows(c, partial, rows, 0), to = own;
        to.data = c->out;
        gx__comm_copy(g, to, own);
        return 0;
    }
    int64_t most = 0;
    for (int r = 0; r < c->n; r++) most = gx_max(most, gx_split_part(rows, r) * row);
    gx__comm_cut(g, c, most);
    return 1;
}

void gx_all_reduce(GxContext *g, int axes, GxReduce reduce, void *x, int64_t n, GxDtype dtype)
{
    GxCollective c;
    if (gx__comm_all_reduce(g, &c, axes, reduce, x, n, dtype)) gx__comm_run_where(g, &c);
}

GxTicket gx_all_reduce_start(GxContext *g, int axes, GxReduce reduce, void *x, int64_t n, GxDtype dtype)
{
    GxCollective c;
    GxTicket none = GX_ZERO;
    return gx__comm_all_reduce(g, &c, axes, reduce, x, n, dtype) ? gx__comm_start_where(g, &c) : none;
}

void gx_all_gather(GxContext *g, int axes, const GxSplit *rows, void *full, const void *mine, int64_t row_elements,
                   GxDtype dtype)
{
    GxCollective c;
    if (gx__comm_all_gather(g, &c, axes, rows, full, mine, row_elements, dtype)) gx__comm_run_where(g, &c);
}

GxTicket gx_all_gather_start(GxContext *g, int axes, const GxSplit *rows, void *full, const void *mine,
                             int64_t row_elements, GxDtype dtype)
{
    GxCollective c;
    GxTicket none = GX_ZERO;
    return gx__comm_all_gather(g, &c, axes, rows, full, mine, row_elements, dtype) ? gx__comm_start_where(g, &c) : none;
}

void gx_reduce_scatter(GxContext *g, int axes, const GxSplit *rows, void *mine, const void *partial,
                       int64_t row_elements, GxDtype dtype)
{
    GxCollective c;
    if (gx__comm_reduce_scatter(g, &c, axes, rows, mine, partial, row_elements, dtype)) gx__comm_run_where(g, &c);
}

GxTicket gx_reduce_scatter_start(GxContext *g, int axes, const GxSplit *rows, void *mine, const void *partial,
                                 int64_t row_elements, GxDtype dtype)
{
    GxCollective c;
    GxTicket none = GX_ZERO;
    return gx__comm_reduce_scatter(g, &c, axes, rows, mine, partial, row_elements, dtype) ? gx__comm_start_where(g, &c)
                                                                                          : none;
}

void gx_wait(GxContext *g, GxTicket ticket) { gx__comm_finish_where(g, ticket); }
void gx_progress(GxContext *g) { gx__comm_progress(g); }

void gx_all_to_all(GxContext *g, int axes, const GxSplit *send_rows, const void *send, const GxSplit *recv_rows,
                   void *recv, int64_t row_elements, GxDtype dtype)
{
    GxCollective c;
    if (!gx__comm_begin(g, &c, GX__COMM_ALL_TO_ALL, axes, dtype) || !gx__comm_split_fits(g, &c, send_rows) ||
        !gx__comm_split_fits(g, &c, recv_rows))
        return;
    if (gx_split_part(send_rows, c.me) != gx_split_part(recv_rows, c.me)) {
        GX_FAIL(&g->error, GX_ERR_ARGUMENT, "all_to_all: rank %d keeps %ld rows for itself, but expects %ld", g->rank,
                (long)gx_split_part(send_rows, c.me), (long)gx_split_part(recv_rows, c.me));
        gx__comm_give_up(g);
        return;
    }
    c.in = (const char *)send;
    c.out = (char *)recv;
    c.to = *send_rows;
    c.from = *recv_rows;
    c.row = row_elements;
    gx__comm_copy(g, gx__comm_rows(&c, recv, recv_rows, c.me), gx__comm_rows(&c, send, send_rows, c.me));
    if (c.n > 1) gx__comm_run_where(g, &c); // the header's count stays 0: ranks send and receive different amounts
}

void gx_broadcast(GxContext *g, int axes, int root, void *x, int64_t n, GxDtype dtype)
{
    GxCollective c;
    int members = gx__comm_begin(g, &c, GX__COMM_BROADCAST, axes, dtype);
    if (members && (root < 0 || root >= members)) {
        GX_FAIL(&g->error, GX_ERR_ARGUMENT, "broadcast from member %d of a group of %d", root, members);
        gx__comm_give_up(g);
    }
    if (members <= 1 || gx_failed(g)) return;
    c.out = (char *)x;
    c.count = n;
    c.detail = root;
    gx__comm_run_where(g, &c);
}

void gx_barrier(GxContext *g, int axes)
{
    GxCollective c;
    if (gx__comm_begin(g, &c, GX__COMM_BARRIER, axes, GX_U8) > 1) gx__comm_run(g, &c);
}

static int gx__comm_transfer_is_sound(GxContext *g, const GxCollective *c, const GxTransfer *t)
{
    if (t->peer < 0 || t->peer >= c->n || t->peer == c->me)
        GX_FAIL(&g->error, GX_ERR_ARGUMENT, "a transfer between member %d and member %d of a group of %d", c->me,
                t->peer, c->n);
    if (t->channel < 0 || t->channel >= GX_CHANNELS)
        GX_FAIL(&g->error, GX_ERR_ARGUMENT, "channel %d; there are 0 to %d", t->channel, GX_CHANNELS - 1);
    return !gx_failed(g);
}

// Returns 1 if there is something to transfer.
static int gx__comm_transfers(GxContext *g, GxCollective *c, int axes, const GxTransfer *list, int n)
{
    if (!gx__comm_begin(g, c, GX__COMM_SEND, axes, GX_U8) || n < 1) return 0;
    int sound = 1;
    for (int i = 0; i < n && sound; i++) sound = gx__comm_transfer_is_sound(g, c, &list[i]);
    const int most = g->comm ? 2 * gx_comm_peers(g->comm) : 2 * GX_MAX_PARTS;
    if (sound && n > most)
        GX_FAIL(&g->error, GX_ERR_ARGUMENT, "%d transfers in one call; at most two per rank of the world, %d", n, most);
    if (gx_failed(g)) {
        gx__comm_give_up(g);
        return 0;
    }
    c->list = list;
    c->count = n;
    return 1;
}

void gx_transfer(GxContext *g, int axes, const GxTransfer *list, int n)
{
    GxCollective c;
    if (gx__comm_transfers(g, &c, axes, list, n)) gx__comm_run_where(g, &c);
}

GxTicket gx_transfer_start(GxContext *g, int axes, const GxTransfer *list, int n)
{
    GxCollective c;
    GxTicket none = GX_ZERO;
    return gx__comm_transfers(g, &c, axes, list, n) ? gx__comm_start_where(g, &c) : none;
}

static void gx__comm_transfer_one(GxContext *g, int axes, int peer, int is_send, void *x, int64_t n, GxDtype dtype)
{
    GxTransfer t;
    t.peer = peer;
    t.is_send = is_send;
    t.channel = 0;
    t.data = x;
    t.n = n;
    t.dtype = dtype;
    gx_transfer(g, axes, &t, 1);
}

void gx_send(GxContext *g, int axes, int to, const void *x, int64_t n, GxDtype dtype)
{
    gx__comm_transfer_one(g, axes, to, 1, (void *)x, n, dtype);
}
void gx_recv(GxContext *g, int axes, int from, void *x, int64_t n, GxDtype dtype)
{
    gx__comm_transfer_one(g, axes, from, 0, x, n, dtype);
}

// ---- the communicator ----------------------------------------------------------------------------------------------
GxStatus gx_comm_open(GxContext *g, GxComm *comm)
{
    g->comm = comm;
    g->rank = comm->rank;
    g->local_rank = comm->local_rank;
    g->world = comm->world;
    comm->blocking = NULL, comm->background = NULL;
    comm->is_dead = 0;
    comm->seconds = 0, comm->kept = 0;
    memset(comm->ticket, 0, sizeof comm->ticket);
    memset(comm->pooled, 0, sizeof comm->pooled);
    memset(comm->sequence, 0, sizeof comm->sequence);
    int slots = gx_comm_slots(comm);
    GxArena *a = gx_host_arena(g);
    const int64_t messages = (int64_t)(1 + slots) * 2 * gx_comm_peers(comm);
    comm->message = (GxMessage *)gx_allocate_from(g, a, GX_MEM_COMM, messages * (int64_t)sizeof *comm->message);
    comm->flight = (GxCollective *)gx_allocate_from(g, a, GX_MEM_COMM, slots * (int64_t)sizeof *comm->flight);
    comm->pool = (char *)gx_allocate_from(g, a, GX_MEM_COMM, gx_comm_sums(comm) * gx_comm_chunk(comm));
    if (!gx_failed(g) && !gx__comm_dry(g)) memset(comm->flight, 0, (size_t)slots * sizeof *comm->flight);
    comm->is_open = !gx_failed(g);
    return gx_status(g);
}

void gx_comm_keep(GxContext *g, const int16_t *kept, int n)
{
    GxComm *comm = g->comm;
    int16_t place[GX_MAX_PARTS];
    const int rank = g->rank;
    g->rank = 0, g->world = 0;
    for (int r = 0; r < n; r++) {
        place[r] = (int16_t)(comm ? gx_comm_engine_rank(comm, kept[r]) : kept[r]);
        if (kept[r] == rank) g->rank = r, g->world = n;
    }
    if (!comm) return;
    memcpy(comm->place, place, (size_t)n * sizeof *place);
    comm->kept = n;
}

void gx_comm_regroup(GxContext *g)
{
    GxComm *comm = g->comm;
    gx_barrier(g, GX_AXIS_ALL);
    if (!comm || gx_failed(g)) return;
    if (comm->device_engine && comm->device_state) comm->device_engine->close(g);
    comm->device_engine = NULL;
    memset(comm->sequence, 0, sizeof comm->sequence);
}

void gx_comm_close(GxContext *g)
{
    GxComm *comm = g->comm;
    if (!comm) return;
    gx__background_end(g);
    if (gx_failed(g)) gx__comm_give_up(g); // tells the others the reason before this rank leaves
    if (comm->device_engine && comm->device_state) comm->device_engine->close(g);
    if (comm->engine && comm->state && !gx__comm_dry(g)) {
        for (int i = 0; i < gx_comm_slots(comm) && comm->is_open && !gx_failed(g); i++)
            if (comm->ticket[i]) gx__comm_complete(g, &comm->flight[i]);
        if (gx_failed(g) && comm->is_open) gx__comm_give_up(g);
        else if (gx_failed(g))
            // gx_comm_open has failed, but the other ranks wait for this one nevertheless
            comm->engine->abort(g, comm, g->error.message);
        comm->engine->close(comm);
    }
    comm->is_open = 0;
}
#endif
