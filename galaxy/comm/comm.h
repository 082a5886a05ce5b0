// comm.h: collectives over the axes of the mesh. What they compute is written here once, over one primitive that an
// engine supplies (threads.h, tcp.h, mpi.h): send these messages, receive those. So every engine gives the same bits.
//
//     gx_threads_comm(&comm, group, rank);  // or gx_tcp_comm, gx_mpi_comm: an engine, rank and world
//     GX_TRY(gx_mesh_open(&mesh, dims, comm.rank, comm.world, &g->error));     g->mesh = &mesh;
//     GX_TRY(gx_comm_open(g, &comm));  // memory from the host's arena, sets g->comm
//     gx_all_reduce(g, GX_AXIS_LOSS, GX_SUM, &tokens, 1, GX_I64);  // flags and counts are agreed on like this, too
//     GxTicket t = gx_all_gather_start(g, GX_AXIS_TP, &rows, full, mine, B * C, GX_F32);
//     ...  // neither `full` nor x may be touched meanwhile
//     gx_wait(g, t);
//     gx_comm_close(g);
//
// What every collective promises
// - Sums are taken in rank order, x0 + x1 + x2 ..., in the type of the data: F32, F64, I32, I64; those of BF16 in fp32,
//   rounded once. All ranks get the same bits; reduce-scatter followed by all-gather gives those of all-reduce. MAX
//   hands a NaN on. F16 is moved, not summed (GX_ERR_UNSUPPORTED).
// - Parts are as large as their splits say, empty ones included; nothing is padded.
// - A group of one communicates nothing and records nothing; it copies where the output is not the input.
// - Every message has a header with the call's number in its group, its operation, count and type. Where two ranks do
//   different things, the error names both and both operations. Who waits longer than `timeout` for somebody fails with
//   a message that names operation and rank.
// - A context that has failed does not join: it aborts all ranks, whose errors then name it and give its message. So
//   nobody hangs. (Sent and received by the same make of machine: headers and data cross as they lie in memory.)
// - The recorder gets one event per collective with the bytes that this rank sends. Without an engine (g->comm NULL in
//   a world of several, or its engine NULL, or a dry arena) that, and taking scratch, is all that happens: a dry run.
//
// Buffers may lie in the memory of a device that the host cannot touch (gx_on_device). Where the communicator has an
// engine for such (NCCL), it moves them, and the host never waits; sums are then that engine's own, and a time-out is
// found when the host waits for the device. Without one, what is moved is a copy in the host's memory, made before and
// brought back behind it; start then does the blocking form.
//
// Memory: all comes from the host's arena (gx_host_arena), also the copies of device buffers: of a sum over all
// elements a chunk at a time, of others the whole. A blocking sum takes up to `chunk` bytes (GX_MEM_COMM) and gives
// them back; large sums go in chunks. A started one holds one of `slots` such blocks, taken by gx_comm_open. With no
// slot left, start does the blocking form, which is always sound.
//
// What overlaps: start posts the first messages and returns; data move and sums are taken while this rank is inside a
// call of this file, for all operations in flight at once, in whatever order ranks wait for them. MPI's library and
// network may move messages by themselves meanwhile. Threads copy when the receiver is inside a call. Whoever computes
// between start and wait may call gx_progress there (the weight gradients of a linear do): it moves what has arrived by
// then, and never waits. So start hides waiting for slower ranks and the network; it is no second thread. comm->seconds
// says what was not hidden.
//
// Not here: more than GX_MAX_PARTS ranks in one group.
#ifndef GX_COMM_H
#define GX_COMM_H
#include "../ops/memory.h"
#include "../base/mesh.h"
#include "../base/partition.h"
GX_BEGIN

typedef enum { GX_SUM = 0, GX_MAX } GxReduce;
typedef struct {
    int slot;
    int64_t number;
} GxTicket; // zero: nothing to wait for

// ---- collectives: `axes` is a mask of GX_AXIS_..., counts are elements, `row_elements` those of one row of a split -

// x[i] = reduction of all ranks' x[i], on all of them.
void gx_all_reduce(GxContext *g, int axes, GxReduce reduce, void *x, int64_t n, GxDtype dtype);

// full[rows.begin[r] ..] = rank r's mine, on all of them. `mine` may be the own rows of `full`; elsewhere they must not
// overlap.
void gx_all_gather(GxContext *g, int axes, const GxSplit *rows, void *full, const void *mine, int64_t row_elements,
                   GxDtype dtype);

// mine = sum of all ranks' partial[rows.begin[me] ..]. `mine` may be the own rows of `partial`; elsewhere they must not
// overlap.
void gx_reduce_scatter(GxContext *g, int axes, const GxSplit *rows, void *mine, const void *partial,
                       int64_t row_elements, GxDtype dtype);

// Rank r gets part r of send_rows; what it sends arrives as part r of recv_rows. The buffers must not overlap.
void gx_all_to_all(GxContext *g, int axes, const GxSplit *send_rows, const void *send, const GxSplit *recv_rows,
                   void *recv, int64_t row_elements, GxDtype dtype);

void gx_broadcast(GxContext *g, int axes, int root, void *x, int64_t n, GxDtype dtype); // root: its index in the group
void gx_barrier(GxContext *g, int axes);

// Point to point. Peers are indices in the group; messages between two ranks keep their order within a channel, not
// across channels. All transfers of one call are under way at once, so that neighbours that send to each other do not
// wait for each other.
enum { GX_CHANNELS = 4 };
typedef struct {
    int peer, is_send, channel;
    void *data; // read only where is_send
    int64_t n;
    GxDtype dtype;
} GxTransfer;
void gx_transfer(GxContext *g, int axes, const GxTransfer *list, int n);
void gx_send(GxContext *g, int axes, int to, const void *x, int64_t n, GxDtype dtype); // returns when it was taken
void gx_recv(GxContext *g, int axes, int from, void *x, int64_t n, GxDtype dtype);

GxTicket gx_all_reduce_start(GxContext *g, int axes, GxReduce reduce, void *x, int64_t n, GxDtype dtype);
GxTicket gx_all_gather_start(GxContext *g, int axes, const GxSplit *rows, void *full, const void *mine,
                             int64_t row_elements, GxDtype dtype);
GxTicket gx_reduce_scatter_start(GxContext *g, int axes, const GxSplit *rows, void *mine, const void *partial,
                                 int64_t row_elements, GxDtype dtype);
void gx_wait(GxContext *g, GxTicket ticket); // once per ticket; again does nothing
void gx_progress(GxContext *g);              // takes what was started as far as it goes now

// ---- the communicator ----------------------------------------------------------------------------------------------
enum { GX_MAX_SLOTS = 16, GX__COMM_DEVICE_SLOT }; // the last: of tickets that an engine for device memory gave
typedef struct GxEngine GxEngine;
typedef struct GxDeviceEngine GxDeviceEngine;
typedef struct GxMessage GxMessage;
typedef struct GxCollective GxCollective;

struct GxComm {
    const GxEngine *engine;              // NULL: a dry run
    void *state;                         // the engine's; NULL after its close
    const GxDeviceEngine *device_engine; // for buffers of a device; NULL: copies of them go through the host
    void *device_state;
    int rank, world;
    int local_rank, local_ranks; // among the ranks on this machine
    double timeout;              // seconds without progress; 0: 600
    int64_t chunk;               // bytes of scratch of one sum; 0: 4 MB (a million fp32)
    int slots;                   // operations in flight that start can hold; 0: 2, -1: none, at most GX_MAX_SLOTS
    double seconds; // that this rank spent inside collectives so far: what communication costs beyond what is computed
                    // meanwhile
    // from here on private
    GxCollective *flight;                  // [slots]
    GxCollective *blocking;                // the one that this rank is inside of, or NULL
    GxMessage *message;                    // [1 + slots][2 * peers]: of the blocking one, then of the started ones
    char *pool;                            // [slots][chunk]
    int64_t ticket[GX_MAX_SLOTS], tickets; // number of the ticket that holds a slot, 0: free
    int64_t sequence[GX_AXIS_ALL + 1];     // collectives begun, per group
    int is_open, is_dead;
};

// Takes the communicator's memory from the host's arena (a dry one counts it) and sets g->comm, g->rank, g->local_rank,
// g->world. For a plan without an engine, fill in rank and world of a zeroed GxComm.
GxStatus gx_comm_open(GxContext *g, GxComm *comm);
// Finishes what was started and leaves; ranks that still wait for this one fail. A failed context aborts them instead.
// The context keeps the closed communicator: a collective after it is an error, not a dry run.
void gx_comm_close(GxContext *g);

// ---- engines -------------------------------------------------------------------------------------------------------
// Goes ahead of every message. The receiver has one of its own, with what it expects; where they do not agree, data are
// left alone.
typedef struct {
    int64_t sequence, count, bytes; // the call's number in its group; its elements; bytes of this message
    int32_t operation, dtype, detail, axes, step, rank; // detail: reduction, root or channel; rank: the sender
} GxHeader;

typedef enum { GX_MESSAGE_OPEN = 0, GX_MESSAGE_DONE, GX_MESSAGE_MISMATCH, GX_MESSAGE_LEFT } GxOutcome;

struct GxMessage {
    int peer; // world rank
    int tag;  // 0 to 16383; messages of one tag between two ranks keep their order
    int is_send;
    void *data; // header.bytes of them
    GxHeader header, got;
    GxOutcome outcome; // MISMATCH: `got` is not what was expected; LEFT: the peer closed without it
    int64_t engine[4]; // private
};

struct GxEngine {
    const char *name;
    GxStatus (*post)(GxComm *comm, GxMessage *list, int n,
                     GxError *err); // begins all; the list stays where it is until done
    int (*poll)(GxComm *comm, GxMessage *list, int n,
                GxError *err);                  // moves what can be moved; how many outcomes changed; err: all is lost
    int64_t (*events)(GxComm *comm);            // a number that changes when there may be something to poll for
    void (*idle)(GxComm *comm, int64_t events); // rests until it has changed, a second at most
    void (*cancel)(GxComm *comm, GxMessage *list,
                   int n); // after an abort: nobody touches the list or its data from now on
    void (*abort)(GxContext *g, GxComm *comm, const char *message);
    void (*close)(GxComm *comm);
};

int gx_header_agrees(const GxHeader *expected, const GxHeader *got);

typedef enum {
    GX__COMM_ALL_REDUCE = 0,
    GX__COMM_ALL_GATHER,
    GX__COMM_REDUCE_SCATTER,
    GX__COMM_ALL_TO_ALL,
    GX__COMM_BROADCAST,
    GX__COMM_BARRIER,
    GX__COMM_SEND,
    GX__COMM_RECV
} GxOperation;

// One operation under way: a few steps, each of which is an exchange with the other members, perhaps with a sum after
// it.
struct GxCollective {
    GxOperation operation; // GX__COMM_SEND stands for a list of transfers
    int axes, detail;      // without axes of one rank; reduction or root
    GxDtype dtype;
    int n, me; // the group
    const char *in;
    char *out, *scratch, *staged; // staged: of an all-reduce on the device, where `out` is a copy of one chunk
    int64_t row, count, size;     // elements of a row; elements in all, for the header; bytes of an element
    int64_t piece;                // elements that one member sums in one step
    int64_t scratch_bytes;
    int64_t step, steps;
    int64_t sequence;
    const GxTransfer *list;
    GxMessage *message;
    int messages, running;
    double deadline;
    GxSplit to, from; // rows that leave for and come from each member
    int rank[GX_MAX_PARTS];
};
const char *gx_operation_name(GxOperation operation); // "all_reduce"
double gx_comm_timeout(const GxComm *comm);           // seconds, the default where none is set

// An engine for buffers of a device (comm/nccl.cuh): it moves them behind the device's operations, without the host
// waiting; that ranks still live it sees to in g->while_waiting. Each collective that it is given is one of buffers on
// the device, with something to say to others; a rank's own rows of a gather are in their place.
struct GxDeviceEngine {
    const char *name;
    int64_t (*start)(
        GxContext *g,
        const GxCollective *c); // behind what the device was asked for so far; returns a number, 0 after an error
    void (*wait)(GxContext *g,
                 int64_t number); // what the device is asked for from now on comes behind it; the host goes on
    void (*close)(GxContext *g);
};

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_COMM_IMPLEMENTED)
#define GX_COMM_IMPLEMENTED
#include <stdio.h>
#include <string.h>

static const char *const gx__comm_operation_names[] = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all",
                                                       "broadcast",  "barrier",    "send",           "recv"};

const char *gx_operation_name(GxOperation operation) { return gx__comm_operation_names[operation]; }
double gx_comm_timeout(const GxComm *comm) { return comm->timeout > 0 ? comm->timeout : 600; }
static int64_t gx__comm_chunk(const GxComm *comm)
{
    return comm && comm->chunk > 0 ? gx_round_up(comm->chunk, GX_ALIGN) : (int64_t)1 << 22;
}
static int gx__comm_slots(const GxComm *comm)
{
    return comm->slots < 0 ? 0 : comm->slots == 0 ? 2 : (int)gx_min(comm->slots, GX_MAX_SLOTS);
}
static int gx__comm_peers(const GxComm *comm) { return (int)gx_min(comm->world, GX_MAX_PARTS); }
static int gx__comm_dry(const GxContext *g)
{
    const GxArena *a = gx_host_arena(g);
    return (g->comm ? !g->comm->engine : g->world > 1) || (a && a->dry);
}

// ---- errors --------------------------------------------------------------------------------------------------------
typedef struct {
    char text[160];
} GxCallText;

static GxCallText gx__comm_call_text(int operation, const GxHeader *h)
{
    GxCallText t;
    const char *name =
        (unsigned)operation <= GX__COMM_RECV ? gx__comm_operation_names[operation] : "an unknown operation";
    const char *of_max = operation == GX__COMM_ALL_REDUCE && h->detail == GX_MAX ? " (max)" : "";
    int has_count = operation != GX__COMM_BARRIER && operation != GX__COMM_ALL_TO_ALL;
    if (!has_count) snprintf(t.text, sizeof t.text, "%s", name);
    else if (operation == GX__COMM_BROADCAST)
        snprintf(t.text, sizeof t.text, "broadcast of %ld %s elements from member %d", (long)h->count,
                 gx_dtype_name((GxDtype)h->dtype), h->detail);
    else
        snprintf(t.text, sizeof t.text, "%s%s of %ld %s elements", name, of_max, (long)h->count,
                 gx_dtype_name((GxDtype)h->dtype));
    return t;
}

// Ends this rank's part in the communicator: the others learn why, and nothing of this rank's memory is touched any
// more.
static void gx__comm_give_up(GxContext *g)
{
    GxComm *comm = g->comm;
    if (!comm || comm->is_dead || !comm->is_open || gx__comm_dry(g)) return;
    comm->is_dead = 1;
    comm->engine->abort(g, comm, g->error.message);
    for (int i = 0; i <= gx__comm_slots(comm); i++) {
        GxCollective *c = i < gx__comm_slots(comm) ? &comm->flight[i] : comm->blocking;
        if (c && c->running) comm->engine->cancel(comm, c->message, c->messages);
        if (c) c->running = 0;
    }
    memset(comm->ticket, 0, sizeof comm->ticket);
}

int gx_header_agrees(const GxHeader *a, const GxHeader *b)
{
    return a->sequence == b->sequence && a->count == b->count && a->bytes == b->bytes && a->operation == b->operation &&
           a->dtype == b->dtype && a->detail == b->detail && a->axes == b->axes && a->step == b->step &&
           a->rank == b->rank;
}

static void gx__comm_say_mismatch(GxContext *g, const GxMessage *m)
{
    const GxHeader *mine = &m->header, *got = &m->got;
    char axes[64];
    GxHeader same_bytes = *mine;
    same_bytes.bytes = got->bytes;
    GxCallText theirs = gx__comm_call_text(got->operation, got),
               ours = gx__comm_call_text(mine->operation == GX__COMM_SEND ? GX__COMM_RECV : mine->operation, mine);
    if (gx_header_agrees(&same_bytes, got))
        GX_FAIL(&g->error, GX_ERR_COMM,
                "rank %d sends %ld bytes where rank %d expects %ld, in %s (call %ld over %s): their splits differ",
                m->peer, (long)got->bytes, g->rank, (long)mine->bytes, ours.text, (long)mine->sequence,
                gx_axes_name(mine->axes, axes));
    else
        GX_FAIL(&g->error, GX_ERR_COMM,
                "rank %d is in %s while rank %d is in %s (call %ld over %s): all ranks of a group make the same calls "
                "in the same order",
                m->peer, theirs.text, g->rank, ours.text, (long)mine->sequence, gx_axes_name(mine->axes, axes));
}

static void gx__comm_say_left(GxContext *g, const GxMessage *m)
{
    char axes[64];
    int operation = m->header.operation == GX__COMM_SEND && !m->is_send ? GX__COMM_RECV : m->header.operation;
    GxCallText ours = gx__comm_call_text(operation, &m->header);
    GX_FAIL(&g->error, GX_ERR_COMM, "rank %d left while rank %d waits for it in %s (call %ld over %s)", m->peer,
            g->rank, ours.text, (long)m->header.sequence, gx_axes_name(m->header.axes, axes));
}

static void gx__comm_say_timeout(GxContext *g, const GxCollective *c)
{
    char axes[64], ranks[128] = "";
    const GxMessage *first = NULL;
    for (int i = 0; i < c->messages; i++) {
        const GxMessage *m = &c->message[i];
        int known = m->outcome != GX_MESSAGE_OPEN;
        for (int k = 0; k < i; k++) known |= c->message[k].outcome == GX_MESSAGE_OPEN && c->message[k].peer == m->peer;
        if (known) continue;
        size_t used = strlen(ranks);
        snprintf(ranks + used, sizeof ranks - used, "%s%d", used ? ", " : "", m->peer);
        if (!first) first = m;
    }
    if (!first) return;
    GxCallText ours = gx__comm_call_text(
        c->operation == GX__COMM_SEND && !first->is_send ? GX__COMM_RECV : c->operation, &first->header);
    GX_FAIL(&g->error, GX_ERR_COMM,
            "rank %d waited %g s in %s (call %ld over %s) for rank %s: dead, stalled, or in another group's call",
            g->rank, gx_comm_timeout(g->comm), ours.text, (long)c->sequence, gx_axes_name(c->axes, axes), ranks);
}

// ---- sums ----------------------------------------------------------------------------------------------------------
// out = in[0] + in[1] + ... in this order; `out` may be one of them, since a block is read from all before it is
// written. Integers are added as unsigned: they wrap around.
#define GX__COMM_DEFINE_REDUCE(name, type, adding_type)                                                                \
    static void gx__comm_reduce_##name(char *out, const char *const *in, int n, int64_t count, GxReduce reduce)        \
    {                                                                                                                  \
        enum { BLOCK = 512 };                                                                                          \
        type sum[BLOCK];                                                                                               \
        for (int64_t begin = 0; begin < count; begin += BLOCK) {                                                       \
            int m = (int)gx_min(BLOCK, count - begin);                                                                 \
            memcpy(sum, in[0] + begin * (int64_t)sizeof *sum, (size_t)m * sizeof *sum);                                \
            for (int r = 1; r < n; r++) {                                                                              \
                const type *x = (const type *)in[r] + begin;                                                           \
                if (reduce == GX_MAX)                                                                                  \
                    for (int i = 0; i < m; i++)                                                                        \
                        sum[i] = x[i] <= sum[i] || sum[i] != sum[i] ? sum[i] : x[i]; /* a NaN stays */                 \
                else                                                                                                   \
                    for (int i = 0; i < m; i++) sum[i] = (type)((adding_type)sum[i] + (adding_type)x[i]);              \
            }                                                                                                          \
            memcpy(out + begin * (int64_t)sizeof *sum, sum, (size_t)m * sizeof *sum);                                  \
        }                                                                                                              \
    }
GX__COMM_DEFINE_REDUCE(f32, float, float)
GX__COMM_DEFINE_REDUCE(f64, double, double)
GX__COMM_DEFINE_REDUCE(i32, int32_t, uint32_t)
GX__COMM_DEFINE_REDUCE(i64, int64_t, uint64_t)

static void gx__comm_reduce_bf16(char *out, const char *const *in, int n, int64_t count, GxReduce reduce)
{
    enum { BLOCK = 512 };
    float sum[BLOCK], add[BLOCK];
    const char *const both[2] = {(const char *)sum, (const char *)add};
    for (int64_t begin = 0; begin < count; begin += BLOCK) {
        const int m = (int)gx_min(BLOCK, count - begin);
        for (int r = 0; r < n; r++) {
            const uint16_t *x = (const uint16_t *)in[r] + begin;
            float *wide = r ? add : sum;
            for (int i = 0; i < m; i++) wide[i] = gx_from_bf16(x[i]);
            if (r) gx__comm_reduce_f32((char *)sum, both, 2, m, reduce);
        }
        for (int i = 0; i < m; i++) ((uint16_t *)out)[begin + i] = gx_to_bf16(sum[i]);
    }
}

typedef void GxReduceFunction(char *out, const char *const *in, int n, int64_t count, GxReduce reduce);
static GxReduceFunction *gx__comm_reduce_function(GxDtype dtype)
{
    return dtype == GX_F32    ? gx__comm_reduce_f32
           : dtype == GX_F64  ? gx__comm_reduce_f64
           : dtype == GX_I32  ? gx__comm_reduce_i32
           : dtype == GX_I64  ? gx__comm_reduce_i64
           : dtype == GX_BF16 ? gx__comm_reduce_bf16
                              : NULL;
}

// ---- what each operation sends and receives in a step --------------------------------------------------------------
typedef struct {
    char *data;
    int64_t bytes;
} GxPart; // bytes < 0: no message at all

static GxPart gx__comm_part(const void *base, int64_t first, int64_t elements, int64_t size)
{
    GxPart p;
    p.data = base ? (char *)base + first * size : NULL;
    p.bytes = elements * size;
    return p;
}

static GxPart gx__comm_rows(const GxCollective *c, const void *base, const GxSplit *rows, int i)
{
    return gx__comm_part(base, rows->begin[i] * c->row, gx_split_part(rows, i) * c->row, c->size);
}

// All-reduce goes over chunks of n pieces, two steps each: member i sums piece i of the chunk, then all gather them.
static int64_t gx__comm_chunk_begin(const GxCollective *c) { return c->step / 2 * c->piece * c->n; }
static int64_t gx__comm_chunk_size(const GxCollective *c)
{
    return gx_min(c->piece * c->n, c->count - gx__comm_chunk_begin(c));
}
static GxPart gx__comm_piece(const GxCollective *c, int i)
{
    int64_t begin = c->staged ? 0 : gx__comm_chunk_begin(c), chunk = gx__comm_chunk_size(c);
    int64_t piece = gx_ceil_div(chunk, c->n), first = gx_min(i * piece, chunk), last = gx_min(first + piece, chunk);
    return gx__comm_part(c->out, begin + first, last - first, c->size);
}

// Of a buffer on the device `out` holds one chunk: it comes up before its first step, and goes down after its second.
static void gx__comm_stage(GxContext *g, const GxCollective *c, int after)
{
    if (!c->staged || c->step % 2 != after) return;
    char *there = c->staged + gx__comm_chunk_begin(c) * c->size;
    if (after) gx_to_device(g, there, c->out, gx__comm_chunk_size(c) * c->size);
    else gx_to_host(g, c->out, there, gx__comm_chunk_size(c) * c->size);
}

// Reduce-scatter: the step's piece of member i's rows.
static GxPart gx__comm_rows_piece(const GxCollective *c, const void *base, int64_t first, int i)
{
    int64_t part = gx_split_part(&c->to, i) * c->row, begin = gx_min(c->step * c->piece, part);
    return gx__comm_part(base, first + begin, gx_min(c->piece, part - begin), c->size);
}

static char *gx__comm_scratch_of(const GxCollective *c, int i)
{
    return c->scratch + (i < c->me ? i : i - 1) * c->piece * c->size;
}

static GxPart gx__comm_part_to(const GxCollective *c, int i)
{
    switch (c->operation) {
    case GX__COMM_ALL_REDUCE: return gx__comm_piece(c, c->step % 2 ? c->me : i);
    case GX__COMM_REDUCE_SCATTER: return gx__comm_rows_piece(c, c->in, c->to.begin[i] * c->row, i);
    case GX__COMM_ALL_GATHER: return gx__comm_rows(c, c->out, &c->to, c->me);
    case GX__COMM_ALL_TO_ALL: return gx__comm_rows(c, c->in, &c->to, i);
    case GX__COMM_BROADCAST: return gx__comm_part(c->out, 0, c->me == c->detail ? c->count : -1, c->size);
    default: return gx__comm_part(NULL, 0, 0, c->size);
    }
}

static GxPart gx__comm_part_from(const GxCollective *c, int i)
{
    GxPart p;
    switch (c->operation) {
    case GX__COMM_ALL_REDUCE:
        if (c->step % 2) return gx__comm_piece(c, i);
        p = gx__comm_piece(c, c->me);
        p.data = gx__comm_scratch_of(c, i);
        return p;
    case GX__COMM_REDUCE_SCATTER:
        p = gx__comm_rows_piece(c, NULL, 0, c->me);
        p.data = gx__comm_scratch_of(c, i);
        return p;
    case GX__COMM_ALL_GATHER: return gx__comm_rows(c, c->out, &c->to, i);
    case GX__COMM_ALL_TO_ALL: return gx__comm_rows(c, c->out, &c->from, i);
    case GX__COMM_BROADCAST: return gx__comm_part(c->out, 0, i == c->detail ? c->count : -1, c->size);
    default: return gx__comm_part(NULL, 0, 0, c->size);
    }
}

// The sum that this rank takes when the pieces are here.
static void gx__comm_finish_step(const GxCollective *c)
{
    int sums = (c->operation == GX__COMM_ALL_REDUCE && c->step % 2 == 0) || c->operation == GX__COMM_REDUCE_SCATTER;
    if (!sums) return;
    GxPart own = c->operation == GX__COMM_ALL_REDUCE
                     ? gx__comm_piece(c, c->me)
                     : gx__comm_rows_piece(c, c->in, c->to.begin[c->me] * c->row, c->me);
    GxPart out = c->operation == GX__COMM_ALL_REDUCE ? own : gx__comm_rows_piece(c, c->out, 0, c->me);
    GxReduce reduce = c->operation == GX__COMM_ALL_REDUCE ? (GxReduce)c->detail : GX_SUM;
    const char *in[GX_MAX_PARTS];
    for (int i = 0; i < c->n; i++) in[i] = i == c->me ? own.data : gx__comm_scratch_of(c, i);
    gx__comm_reduce_function(c->dtype)(out.data, in, c->n, own.bytes / c->size, reduce);
}

// ---- how an operation runs -----------------------------------------------------------------------------------------
static void gx__comm_add_message(GxCollective *c, const GxComm *comm, int member, int is_send, GxPart part)
{
    if (part.bytes < 0) return;
    GxMessage *m = &c->message[c->messages++];
    memset(m, 0, sizeof *m);
    m->peer = c->rank[member];
    m->is_send = is_send;
    m->tag = (int)(c->sequence & 255) << 5 | c->axes; // those in flight differ; the header tells the whole number
    m->data = part.data;
    m->header.sequence = c->sequence;
    m->header.count = c->count;
    m->header.bytes = part.bytes;
    m->header.operation = c->operation;
    m->header.dtype = c->dtype;
    m->header.detail = c->detail;
    m->header.axes = c->axes;
    m->header.step = (int32_t)c->step;
    m->header.rank = is_send ? comm->rank : m->peer;
}

// Transfers have no number: their order per pair and channel is all that two ranks share.
static void gx__comm_add_transfer(GxCollective *c, const GxComm *comm, const GxTransfer *t)
{
    gx__comm_add_message(c, comm, t->peer, t->is_send, gx__comm_part(t->data, 0, t->n, gx_dtype_size(t->dtype)));
    GxMessage *m = &c->message[c->messages - 1];
    m->tag = 1 << 13 | t->channel << 5 | c->axes;
    m->header.count = t->n;
    m->header.dtype = t->dtype;
    m->header.detail = t->channel;
}

static void gx__comm_post(GxContext *g, GxCollective *c)
{
    GxComm *comm = g->comm;
    c->messages = 0;
    gx__comm_stage(g, c, 0);
    if (gx_failed(g)) return;
    if (c->operation == GX__COMM_SEND) {
        for (int64_t i = 0; i < c->count; i++) gx__comm_add_transfer(c, comm, &c->list[i]);
    } else {
        for (int k = 1; k < c->n; k++) { // each begins with its neighbour, so that they do not all fall upon rank 0
            int to = (c->me + k) % c->n, from = (c->me + c->n - k) % c->n;
            gx__comm_add_message(c, comm, to, 1, gx__comm_part_to(c, to));
            gx__comm_add_message(c, comm, from, 0, gx__comm_part_from(c, from));
        }
    }
    c->deadline = gx_seconds() + gx_comm_timeout(comm);
    comm->engine->post(comm, c->message, c->messages, &g->error);
}

// Takes an operation further where its messages are through. Returns 1 where something moved.
static int gx__comm_advance(GxContext *g, GxCollective *c)
{
    int moved = g->comm->engine->poll(g->comm, c->message, c->messages, &g->error), open = 0;
    for (int i = 0; i < c->messages; i++) {
        const GxMessage *m = &c->message[i];
        open += m->outcome == GX_MESSAGE_OPEN;
        if (m->outcome == GX_MESSAGE_MISMATCH) gx__comm_say_mismatch(g, m);
        if (m->outcome == GX_MESSAGE_LEFT) gx__comm_say_left(g, m);
    }
    if (gx_failed(g)) return 0;
    if (moved) c->deadline = gx_seconds() + gx_comm_timeout(g->comm);
    if (open) return moved > 0;
    gx__comm_finish_step(c);
    gx__comm_stage(g, c, 1);
    if (++c->step < c->steps) gx__comm_post(g, c);
    else c->running = 0;
    return 1;
}

// All operations in flight, as far as they go now. Returns 1 where something moved.
static int gx__comm_advance_all(GxContext *g)
{
    GxComm *comm = g->comm;
    int moved = 0;
    for (int i = 0; i <= gx__comm_slots(comm) && !gx_failed(g); i++) {
        GxCollective *c = i < gx__comm_slots(comm) ? &comm->flight[i] : comm->blocking;
        if (c && c->running) moved |= gx__comm_advance(g, c);
    }
    return moved;
}

// Waits for one operation and takes all others in flight along: ranks may wait for them in different orders. Time is
// taken here, in gx__comm_launch and in gx_progress: none calls another, so nothing is counted twice.
static void gx__comm_complete(GxContext *g, GxCollective *c)
{
    GxComm *comm = g->comm;
    const double begin = gx_seconds();
    c->deadline = begin + gx_comm_timeout(comm);
    while (c->running && !gx_failed(g)) {
        int64_t events = comm->engine->events(comm);
        const int moved = gx__comm_advance_all(g);
        if (moved || !c->running || gx_failed(g)) continue;
        if (gx_seconds() > c->deadline) gx__comm_say_timeout(g, c);
        else comm->engine->idle(comm, events);
    }
    comm->seconds += gx_seconds() - begin;
    if (gx_failed(g)) gx__comm_give_up(g);
}

static void gx__comm_record(GxContext *g, const GxCollective *c)
{
    if (!g->recorder) return;
    GxEvent e = {GX_EVENT_COLLECTIVE, gx__comm_operation_names[c->operation], g->site, g->unit, c->axes, 0, 0};
    if (c->operation == GX__COMM_SEND) {
        for (int64_t i = 0; i < c->count; i++) {
            const GxTransfer *t = &c->list[i];
            e.name = gx__comm_operation_names[t->is_send ? GX__COMM_SEND : GX__COMM_RECV];
            e.bytes = t->is_send ? t->n * gx_dtype_size(t->dtype) : 0;
            gx_recorder_add(g->recorder, &e);
        }
        return;
    }
    GxCollective walk = *c;
    for (walk.step = 0; walk.step < walk.steps; walk.step++)
        for (int i = 0; i < walk.n; i++)
            if (i != walk.me) e.bytes += gx_max(gx__comm_part_to(&walk, i).bytes, 0);
    gx_recorder_add(g->recorder, &e);
}

static void gx__comm_launch(GxContext *g, GxCollective *c, int slot)
{
    GxComm *comm = g->comm;
    const double begin = gx_seconds();
    c->message = comm->message + (int64_t)slot * 2 * gx__comm_peers(comm);
    if (c->operation != GX__COMM_SEND) c->sequence = ++comm->sequence[c->axes];
    c->running = 1;
    gx__comm_post(g, c);
    comm->seconds += gx_seconds() - begin;
}

static int gx__comm_is_ready(GxContext *g)
{
    if (gx__comm_dry(g) || (g->comm && g->comm->is_open)) return 1;
    GX_FAIL(&g->error, GX_ERR_ARGUMENT,
            "a collective of rank %d without an open communicator; it goes between gx_comm_open and gx_comm_close",
            g->rank);
    return 0;
}

// From here to its end.
static void gx__comm_run(GxContext *g, GxCollective *c)
{
    if (!gx__comm_is_ready(g)) return;
    gx__comm_record(g, c);
    GxArena *a = gx_host_arena(g);
    GxArenaMark mark = gx_arena_mark(a);
    if (c->scratch_bytes > 0 && (a || !gx__comm_dry(g)))
        c->scratch = (char *)gx_take_from(g, a, GX_MEM_COMM, c->scratch_bytes);
    if (gx_failed(g)) gx__comm_give_up(g);
    else if (!gx__comm_dry(g)) {
        g->comm->blocking = c;
        gx__comm_launch(g, c, 0);
        gx__comm_complete(g, c);
        g->comm->blocking = NULL;
    }
    gx_arena_release(a, mark);
}

static GxTicket gx__comm_start(GxContext *g, GxCollective *c)
{
    GxTicket t = GX_ZERO;
    GxComm *comm = g->comm;
    int slot = 0;
    while (comm && comm->is_open && slot < gx__comm_slots(comm) && comm->ticket[slot]) slot++;
    if (!comm || !comm->is_open || slot == gx__comm_slots(comm)) {
        gx__comm_run(g, c);
        return t;
    }
    gx__comm_record(g, c);
    t.slot = slot + 1;
    t.number = comm->ticket[slot] = ++comm->tickets;
    if (gx__comm_dry(g)) return t;
    GxCollective *own = &comm->flight[slot];
    *own = *c;
    own->scratch = comm->pool + slot * gx__comm_chunk(comm);
    gx__comm_launch(g, own, slot + 1);
    if (gx_failed(g)) gx__comm_give_up(g);
    return t;
}

void gx_wait(GxContext *g, GxTicket ticket)
{
    GxComm *comm = g->comm;
    if (comm && ticket.slot == GX__COMM_DEVICE_SLOT) {
        if (!gx_failed(g)) comm->device_engine->wait(g, ticket.number);
        return;
    }
    if (!comm || !ticket.slot || comm->ticket[ticket.slot - 1] != ticket.number) return;
    if (!gx__comm_dry(g)) gx__comm_complete(g, &comm->flight[ticket.slot - 1]);
    comm->ticket[ticket.slot - 1] = 0;
}

void gx_progress(GxContext *g)
{
    GxComm *comm = g->comm;
    if (!comm || !comm->is_open || gx_failed(g) || gx__comm_dry(g)) return;
    const double begin = gx_seconds();
    while (gx__comm_advance_all(g)) {}
    comm->seconds += gx_seconds() - begin;
    if (gx_failed(g)) gx__comm_give_up(g);
}

// ---- what each operation asks for ----------------------------------------------------------------------------------
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
    }
    if (c->n > GX_MAX_PARTS)
        GX_FAIL(&g->error, GX_ERR_UNSUPPORTED, "a group of %d ranks; at most %d are possible", c->n, GX_MAX_PARTS);
    if ((operation == GX__COMM_ALL_REDUCE || operation == GX__COMM_REDUCE_SCATTER) && !gx__comm_reduce_function(dtype))
        GX_FAIL(&g->error, GX_ERR_UNSUPPORTED, "%s of %s: sums are taken in F32, BF16, F64, I32 and I64; convert first",
                gx__comm_operation_names[operation], gx_dtype_name(dtype));
    if (!gx_failed(g)) return c->n;
    gx__comm_give_up(g);
    return 0;
}

static int gx__comm_split_fits(GxContext *g, const GxCollective *c, const GxSplit *rows)
{
    if (rows->n == c->n) return 1;
    char axes[64];
    GX_FAIL(&g->error, GX_ERR_ARGUMENT, "%s over %s: a split of %d parts for a group of %d ranks",
            gx__comm_operation_names[c->operation], gx_axes_name(c->axes, axes), rows->n, c->n);
    gx__comm_give_up(g);
    return 0;
}

// The small buffer of a gather or scatter may be its own rows of the large one, but not lie over others.
static int gx__comm_overlap_is_sound(GxContext *g, const GxCollective *c, const void *whole, const void *mine)
{
    GxPart own = gx__comm_rows(c, whole, &c->to, c->me),
           all = gx__comm_part(whole, 0, gx_split_total(&c->to) * c->row, c->size);
    uintptr_t a = (uintptr_t)mine, b = (uintptr_t)whole;
    int apart = !own.bytes || a + (uintptr_t)own.bytes <= b || b + (uintptr_t)all.bytes <= a;
    if (apart || (const char *)mine == own.data) return 1;
    GX_FAIL(&g->error, GX_ERR_ARGUMENT, "%s: the rank's own rows lie inside the whole, but not in their place",
            gx__comm_operation_names[c->operation]);
    gx__comm_give_up(g);
    return 0;
}

// A rank's own part, within the memory that both ends are in.
static void gx__comm_copy(GxContext *g, GxPart to, GxPart from)
{
    if (gx__comm_dry(g) || to.bytes <= 0 || to.data == from.data) return;
    if (gx_on_device(g, to.data)) g->device->copy(g, to.data, from.data, to.bytes);
    else memcpy(to.data, from.data, (size_t)to.bytes);
}

// Sums go in pieces: n - 1 of them arrive in one step, and fit a chunk of scratch. `most` is the most elements that one
// member has to sum.
static void gx__comm_cut(const GxContext *g, GxCollective *c, int64_t most)
{
    c->piece = gx_max(gx_min(gx__comm_chunk(g->comm) / c->size / c->n, most), 1);
    c->steps = gx_max(gx_ceil_div(most, c->piece), 1);
    c->scratch_bytes = (c->n - 1) * c->piece * c->size;
}

static void gx__comm_cut_all_reduce(const GxContext *g, GxCollective *c)
{
    gx__comm_cut(g, c, gx_ceil_div(c->count, c->n));
    c->steps = 2 * gx_max(gx_ceil_div(c->count, c->piece * c->n), 1);
}

// Each of these returns 1 where there is something to say to others.
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

// ---- buffers of a device: by an engine of their own ----------------------------------------------------------------
static GxTicket gx__comm_start_on_device(GxContext *g, const GxCollective *c)
{
    GxTicket t = GX_ZERO;
    if (!gx__comm_is_ready(g)) return t;
    gx__comm_record(g, c);
    if (gx__comm_dry(g)) return t;
    t.slot = GX__COMM_DEVICE_SLOT;
    t.number = g->comm->device_engine->start(g, c);
    if (gx_failed(g)) gx__comm_give_up(g);
    return t;
}

// ---- buffers of a device: copies in the host's memory --------------------------------------------------------------
// Each of these gets a collective that was found to be something to say to others. The copy takes the place of the
// buffers in it.

// A sum goes over the copy chunk by chunk (gx__comm_stage): to the other ranks it is the one call that it is of a rank
// whose buffers are the host's.
static void gx__comm_run_staged_sum(GxContext *g, GxCollective *c)
{
    GxArena *a = gx_host_arena(g);
    const GxArenaMark mark = gx_arena_mark(a);
    c->staged = c->out;
    c->out = (char *)gx_take_from(g, a, GX_MEM_COMM, gx_min(c->count, c->piece * c->n) * c->size);
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
    char *copy = (char *)gx_take_from(g, a, GX_MEM_COMM, bytes);
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
    char *out = c->out, *copy = (char *)gx_take_from(g, a, GX_MEM_COMM, sent),
         *arrived = (char *)gx_take_from(g, a, GX_MEM_COMM, received);
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
    c->out = (char *)gx_take_from(g, a, GX_MEM_COMM, bytes);
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
        here[i].data = gx_take_from(g, a, GX_MEM_COMM, bytes);
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

// By the engine that can reach the buffers. Those of one call are all on the device, or all on the host.
static int gx__comm_is_on_device(const GxContext *g, const GxCollective *c)
{
    return gx_on_device(g, c->operation == GX__COMM_SEND ? c->list[0].data : c->out);
}
static GxTicket gx__comm_start_where(GxContext *g, GxCollective *c)
{
    const GxTicket none = GX_ZERO;
    if (!gx__comm_is_on_device(g, c)) return gx__comm_start(g, c);
    if (g->comm && g->comm->device_engine) return gx__comm_start_on_device(g, c);
    gx__comm_run_staged(g, c);
    return none;
}
static void gx__comm_run_where(GxContext *g, GxCollective *c)
{
    if (gx__comm_is_on_device(g, c)) gx_wait(g, gx__comm_start_where(g, c));
    else gx__comm_run(g, c);
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

void gx_transfer(GxContext *g, int axes, const GxTransfer *list, int n)
{
    GxCollective c;
    if (!gx__comm_begin(g, &c, GX__COMM_SEND, axes, GX_U8) || n < 1) return;
    int sound = 1;
    for (int i = 0; i < n && sound; i++) sound = gx__comm_transfer_is_sound(g, &c, &list[i]);
    const int most = g->comm ? 2 * gx__comm_peers(g->comm) : 2 * GX_MAX_PARTS;
    if (sound && n > most)
        GX_FAIL(&g->error, GX_ERR_ARGUMENT, "%d transfers in one call; at most two per rank of the world, %d", n, most);
    if (gx_failed(g)) {
        gx__comm_give_up(g);
        return;
    }
    c.list = list;
    c.count = n;
    gx__comm_run_where(g, &c);
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
    comm->blocking = NULL;
    comm->is_dead = 0;
    comm->seconds = 0;
    memset(comm->ticket, 0, sizeof comm->ticket);
    memset(comm->sequence, 0, sizeof comm->sequence);
    int slots = gx__comm_slots(comm);
    GxArena *a = gx_host_arena(g);
    const int64_t messages = (int64_t)(1 + slots) * 2 * gx__comm_peers(comm);
    comm->message = (GxMessage *)gx_take_from(g, a, GX_MEM_COMM, messages * (int64_t)sizeof *comm->message);
    comm->flight = (GxCollective *)gx_take_from(g, a, GX_MEM_COMM, slots * (int64_t)sizeof *comm->flight);
    comm->pool = (char *)gx_take_from(g, a, GX_MEM_COMM, slots * gx__comm_chunk(comm));
    if (!gx_failed(g) && !gx__comm_dry(g)) memset(comm->flight, 0, (size_t)slots * sizeof *comm->flight);
    comm->is_open = !gx_failed(g);
    return gx_status(g);
}

void gx_comm_close(GxContext *g)
{
    GxComm *comm = g->comm;
    if (!comm) return;
    if (gx_failed(g)) gx__comm_give_up(g); // the others hear why before they hear that
    if (comm->device_engine && comm->device_state) comm->device_engine->close(g);
    if (comm->engine && comm->state && !gx__comm_dry(g)) {
        for (int i = 0; i < gx__comm_slots(comm) && comm->is_open && !gx_failed(g); i++)
            if (comm->ticket[i]) gx__comm_complete(g, &comm->flight[i]);
        if (gx_failed(g) && comm->is_open) gx__comm_give_up(g);
        else if (gx_failed(g))
            comm->engine->abort(g, comm,
                                g->error.message); // gx_comm_open did not succeed: the others wait all the same
        comm->engine->close(comm);
    }
    comm->is_open = 0;
}
#endif
