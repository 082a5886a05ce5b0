// comm/collective.h: a collective as a sequence of steps: what a member sends and receives in each step, and what it
// sums once the pieces have arrived. Nothing is sent here (flight.h does that). Everything is a function of the
// collective's description, so a dry run counts the same bytes as the real run.
//
//   all_reduce      chunks of n pieces, two steps each: member i sums piece i of the chunk, then the sums are gathered
//   reduce_scatter  in each step a piece of every member's rows: member i sums the pieces of its own rows
//   all_gather, all_to_all, broadcast, barrier, transfers: one step without a sum
//
// Sums are taken in rank order, x0 + x1 + x2 ..., so all ranks get the same bits, and reduce-scatter followed by
// all-gather gives those of all-reduce.
#ifndef GX_COLLECTIVE_H
#define GX_COLLECTIVE_H
#include "engine.h"
GX_BEGIN

typedef enum { GX_SUM = 0, GX_MAX } GxReduce;

// An entry of the list of point-to-point messages that gx_transfer is given.
enum { GX_CHANNELS = 128 };
typedef struct {
    int peer, is_send, channel;
    void *data; // read if is_send, otherwise written
    int64_t n;
    GxDtype dtype;
} GxTransfer;

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

const char *gx_operation_name(int operation); // "all_reduce"

// A collective in progress: a few steps, each of which exchanges messages with the other members, and may then sum.
struct GxCollective {
    GxOperation operation; // GX__COMM_SEND: a list of transfers
    int axes, detail;      // mesh axes, without those of one rank; the reduction or the root
    GxDtype dtype;
    int n, me; // the group
    const char *in;
    char *out, *scratch, *staged; // staged: an all-reduce's buffer in device memory; `out` is then a copy of a chunk
    int64_t row, count, size;     // elements of a row; all elements, for the header; bytes of an element
    int64_t piece;                // elements that a member sums in one step
    int64_t scratch_bytes;
    int64_t step, steps;
    int64_t sequence;
    const GxTransfer *list;
    GxMessage *message;
    int messages, running;
    double deadline;
    GxSplit to, from; // rows sent to, and received from, each member
    int rank[GX_MAX_PARTS];
};

// ---- sums ----------------------------------------------------------------------------------------------------------
// out = in[0] + in[1] + ... in this order, or their maximum.
typedef void GxReduceFunction(char *out, const char *const *in, int n, int64_t count, GxReduce reduce);
GxReduceFunction *gx__comm_reduce_function(GxDtype dtype); // NULL: no sums are taken in this type

// Divides a sum into steps: in each step n - 1 pieces arrive, which fit into the communicator's chunk of scratch.
// `most`: the most elements that any member has to sum.
void gx__comm_cut(const GxContext *g, GxCollective *c, int64_t most);
void gx__comm_cut_all_reduce(const GxContext *g, GxCollective *c);

// ---- parts ---------------------------------------------------------------------------------------------------------
typedef struct {
    char *data;
    int64_t bytes; // < 0: there is no message
} GxPart;
GxPart gx__comm_part(const void *base, int64_t first, int64_t elements, int64_t size);
GxPart gx__comm_rows(const GxCollective *c, const void *base, const GxSplit *rows, int i); // member i's of a split

// For step c->step:
GxPart gx__comm_part_to(const GxCollective *c, int i);   // what is sent to member i
GxPart gx__comm_part_from(const GxCollective *c, int i); // where the data from member i are received
void gx__comm_finish_step(const GxCollective *c);        // once all messages have arrived: sums, if the step has a sum
int64_t gx__comm_chunk_begin(const GxCollective *c);     // all-reduce: the first element of the step's chunk,
int64_t gx__comm_chunk_size(const GxCollective *c);      // and its elements
int64_t gx__comm_bytes_sent(const GxCollective *c);      // in all steps

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_COLLECTIVE_IMPLEMENTED)
#define GX_COLLECTIVE_IMPLEMENTED
#include <string.h>

const char *gx_operation_name(int operation)
{
    static const char *const names[] = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all",
                                        "broadcast",  "barrier",    "send",           "recv"};
    return (unsigned)operation <= GX__COMM_RECV ? names[operation] : "an unknown operation";
}

// ---- sums ----------------------------------------------------------------------------------------------------------
// out = in[0] + in[1] + ... in this order. `out` may be one of the inputs: a block is read from all of them before it
// is written. Integers are added as unsigned, so they wrap around.
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

GxReduceFunction *gx__comm_reduce_function(GxDtype dtype)
{
    return dtype == GX_F32    ? gx__comm_reduce_f32
           : dtype == GX_F64  ? gx__comm_reduce_f64
           : dtype == GX_I32  ? gx__comm_reduce_i32
           : dtype == GX_I64  ? gx__comm_reduce_i64
           : dtype == GX_BF16 ? gx__comm_reduce_bf16
                              : NULL;
}

void gx__comm_cut(const GxContext *g, GxCollective *c, int64_t most)
{
    c->piece = gx_max(gx_min(gx_comm_chunk(g->comm) / c->size / c->n, most), 1);
    c->steps = gx_max(gx_ceil_div(most, c->piece), 1);
    c->scratch_bytes = (c->n - 1) * c->piece * c->size;
}

void gx__comm_cut_all_reduce(const GxContext *g, GxCollective *c)
{
    gx__comm_cut(g, c, gx_ceil_div(c->count, c->n));
    c->steps = 2 * gx_max(gx_ceil_div(c->count, c->piece * c->n), 1);
}

// ---- what each operation sends and receives in a step --------------------------------------------------------------
GxPart gx__comm_part(const void *base, int64_t first, int64_t elements, int64_t size)
{
    GxPart p;
    p.data = base ? (char *)base + first * size : NULL;
    p.bytes = elements * size;
    return p;
}

GxPart gx__comm_rows(const GxCollective *c, const void *base, const GxSplit *rows, int i)
{
    return gx__comm_part(base, rows->begin[i] * c->row, gx_split_part(rows, i) * c->row, c->size);
}

int64_t gx__comm_chunk_begin(const GxCollective *c) { return c->step / 2 * c->piece * c->n; }
int64_t gx__comm_chunk_size(const GxCollective *c)
{
    return gx_min(c->piece * c->n, c->count - gx__comm_chunk_begin(c));
}
static GxPart gx__comm_piece(const GxCollective *c, int i)
{
    int64_t begin = c->staged ? 0 : gx__comm_chunk_begin(c), chunk = gx__comm_chunk_size(c);
    int64_t piece = gx_ceil_div(chunk, c->n), first = gx_min(i * piece, chunk), last = gx_min(first + piece, chunk);
    return gx__comm_part(c->out, begin + first, last - first, c->size);
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

GxPart gx__comm_part_to(const GxCollective *c, int i)
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

GxPart gx__comm_part_from(const GxCollective *c, int i)
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

void gx__comm_finish_step(const GxCollective *c)
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

int64_t gx__comm_bytes_sent(const GxCollective *c)
{
    GxCollective walk = *c;
    int64_t bytes = 0;
    for (walk.step = 0; walk.step < walk.steps; walk.step++)
        for (int i = 0; i < walk.n; i++)
            if (i != walk.me) bytes += gx_max(gx__comm_part_to(&walk, i).bytes, 0);
    return bytes;
}
#endif
