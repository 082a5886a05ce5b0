// stage_messages.h: what passes between the tp groups of two stages of a pipeline, which may have different sizes, or
// split the same thing differently: rows of the stream, the gradient of a tensor that both have, results.
//
// What a group has of a count (rows, say) is a GxShares with a part for each of its members: slices, or all of it on
// each. Then every member of the receiving group gets what it has, each piece from the one member of the sending group
// that has it; if each of them has all, from the one whose index is the receiver's, modulo their number. So a message
// is the overlap of two parts:
//
//     from 3,5 of 8 rows      to 2,2,4                          0 to 0: 0-2; 0 to 1: 2-3; 1 to 1: 3-4; 1 to 2: 4-8
//     from all on each of 3   to all on each of 2               0 to 0: 0-8; 1 to 1: 0-8
//
// Groups that are alike send one message each, over the axis pp: every rank to the one with its own index in tp. Others
// send over all axes, to ranks (gx_mesh_rank).
#ifndef GX_STAGE_MESSAGES_H
#define GX_STAGE_MESSAGES_H
#include "../base/partition.h"
#include "../comm/comm.h"
GX_BEGIN

GxShares gx_shares_each(int64_t total, int n, int me); // each of n members has all
// What member s of one group sends to member r of the other one; empty: nothing.
GxRange gx_stage_message(const GxShares *from, int s, const GxShares *to, int r);
// 1: both groups have the same parts, so each rank exchanges with the one that has its own index.
int gx_stage_is_alike(const GxContext *g, const GxShares *a, const GxShares *b);

// Sends this rank's part of something to the group with index `pp` in pp, or receives it from there. mine, theirs: the
// parts of this rank's group and of the other one; data: this rank's part, of `row` elements for each that is counted.
// channel: GxTransfer's.
void gx_stage_transfer(GxContext *g, int pp, int is_send, int channel, void *data, int64_t row, GxDtype dtype,
                       const GxShares *mine, const GxShares *theirs);
// The same, started: no other message between the two ranks has the channel meanwhile.
GxTicket gx_stage_transfer_start(GxContext *g, int pp, int is_send, int channel, void *data, int64_t row, GxDtype dtype,
                                 const GxShares *mine, const GxShares *theirs);

// x, in the device's memory, has this rank's part of a gradient: it becomes the sum of both groups', the lower stage's
// first, so that both get the same bits. Takes scratch for a piece of it (GX_MEM_COMM).
void gx_stage_add(GxContext *g, int pp, float *x, int64_t row, const GxShares *mine, const GxShares *theirs);

// Sums what ranks know of a validation's results, in the host's memory: those of the tp group that has the head all
// know the same, of their samples, and the others know nothing (0).
void gx_stage_sum_results(GxContext *g, void *x, int64_t n, GxDtype dtype);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_STAGE_MESSAGES_IMPLEMENTED)
#define GX_STAGE_MESSAGES_IMPLEMENTED
#include <string.h>
#include "../ops/elementwise.h"
#include "../ops/memory.h"

GxShares gx_shares_each(int64_t total, int n, int me)
{
    GxShares s = GX_ZERO;
    s.n = n, s.me = me;
    for (int r = 0; r < n; r++) s.part[r].end = total;
    return s;
}

static int gx__stage_has_all(const GxShares *s) // 1: each member
{
    const GxRange first = s->part[0], last = s->part[s->n - 1];
    return first.begin == last.begin && first.end == last.end;
}

GxRange gx_stage_message(const GxShares *from, int s, const GxShares *to, int r)
{
    GxRange both = gx_range_common(from->part[s], to->part[r]);
    if (gx__stage_has_all(from) && s != r % from->n) both.end = both.begin;
    return both;
}

int gx_stage_is_alike(const GxContext *g, const GxShares *a, const GxShares *b)
{
    return !gx_is_ragged(g) && a->n == b->n && !memcmp(a->part, b->part, (size_t)a->n * sizeof *a->part);
}

// Adds a message to the list, of elements [range) of `row` each; data: where element `at` is.
static void gx__stage_list(const GxContext *g, GxTransfer *list, int *n, int pp, int member, int is_alike, int is_send,
                           void *data, GxRange range, int64_t at, int64_t row, GxDtype dtype)
{
    if (!gx_range_count(range) || !row) return;
    GxTransfer *t = &list[(*n)++];
    memset(t, 0, sizeof *t);
    t->peer = is_alike ? pp : gx_mesh_rank(g->mesh, pp, member);
    t->is_send = is_send;
    t->data = data ? (char *)data + (range.begin - at) * row * gx_dtype_size(dtype) : NULL;
    t->n = gx_range_count(range) * row;
    t->dtype = dtype;
}

// Lists this rank's messages. Returns how many there are.
static int gx__stage_transfers(const GxContext *g, GxTransfer *list, int pp, int is_send, int channel, void *data,
                               int64_t row, GxDtype dtype, const GxShares *mine, const GxShares *theirs)
{
    const int is_alike = gx_stage_is_alike(g, mine, theirs);
    int n = 0;
    for (int r = 0; r < theirs->n; r++) {
        const GxRange range =
            is_send ? gx_stage_message(mine, mine->me, theirs, r) : gx_stage_message(theirs, r, mine, mine->me);
        gx__stage_list(g, list, &n, pp, r, is_alike, is_send, data, range, gx_share_mine(mine).begin, row, dtype);
    }
    for (int i = 0; i < n; i++) list[i].channel = channel;
    return n;
}

void gx_stage_transfer(GxContext *g, int pp, int is_send, int channel, void *data, int64_t row, GxDtype dtype,
                       const GxShares *mine, const GxShares *theirs)
{
    GxTransfer list[GX_MAX_PARTS];
    const int n = gx__stage_transfers(g, list, pp, is_send, channel, data, row, dtype, mine, theirs);
    if (n) gx_transfer(g, gx_stage_is_alike(g, mine, theirs) ? GX_AXIS_PP : GX_AXIS_ALL, list, n);
}

GxTicket gx_stage_transfer_start(GxContext *g, int pp, int is_send, int channel, void *data, int64_t row, GxDtype dtype,
                                 const GxShares *mine, const GxShares *theirs)
{
    GxTransfer list[GX_MAX_PARTS];
    const GxTicket none = GX_ZERO;
    const int n = gx__stage_transfers(g, list, pp, is_send, channel, data, row, dtype, mine, theirs);
    return n ? gx_transfer_start(g, gx_stage_is_alike(g, mine, theirs) ? GX_AXIS_PP : GX_AXIS_ALL, list, n) : none;
}

// Exchanges the elements of this rank's part that are in `piece`, and adds them.
static void gx__stage_add_piece(GxContext *g, int pp, float *x, const GxShares *mine, const GxShares *theirs,
                                GxRange piece)
{
    const int is_alike = gx_stage_is_alike(g, mine, theirs), is_lower = gx_group_index(g, GX_AXIS_PP) < pp;
    const GxArenaMark mark = gx_arena_mark(g->arena);
    const int64_t begin = gx_share_mine(mine).begin, count = gx_range_count(piece);
    float *own = x + (piece.begin - begin), *other = (float *)gx_scratch(g, GX_MEM_COMM, 4 * count);
    GxTransfer list[2 * GX_MAX_PARTS];
    int n = 0;
    for (int r = 0; r < theirs->n; r++) {
        const GxRange out = gx_range_common(piece, gx_stage_message(mine, mine->me, theirs, r)),
                      in = gx_range_common(piece, gx_stage_message(theirs, r, mine, mine->me));
        gx__stage_list(g, list, &n, pp, r, is_alike, 1, x, out, begin, 1, GX_F32);
        gx__stage_list(g, list, &n, pp, r, is_alike, 0, other, in, piece.begin, 1, GX_F32);
    }
    gx_transfer(g, is_alike ? GX_AXIS_PP : GX_AXIS_ALL, list, n);
    if (other) gx_add(g, own, is_lower ? own : other, is_lower ? other : own, count, GX_F32);
    gx_arena_release(g->arena, mark);
}

static GxShares gx__stage_elements(const GxShares *s, int64_t row)
{
    GxShares e = *s;
    for (int r = 0; r < s->n; r++) e.part[r].begin *= row, e.part[r].end *= row;
    return e;
}

// Pieces are cut at the same places of the whole by all ranks, and come in their order, so nobody waits in a circle.
void gx_stage_add(GxContext *g, int pp, float *x, int64_t row, const GxShares *mine, const GxShares *theirs)
{
    const GxShares a = gx__stage_elements(mine, row), b = gx__stage_elements(theirs, row);
    const GxRange own = gx_share_mine(&a);
    const int64_t from = gx_stage_is_alike(g, mine, theirs) ? own.begin : 0;
    for (int64_t first = from; first < own.end && !gx_failed(g); first += GX_STAGE) {
        const GxRange chunk = {first, first + GX_STAGE}, piece = gx_range_common(own, chunk);
        if (gx_range_count(piece)) gx__stage_add_piece(g, pp, x, &a, &b, piece);
    }
}

void gx_stage_sum_results(GxContext *g, void *x, int64_t n, GxDtype dtype)
{
    const int is_ragged = gx_is_ragged(g), is_another = is_ragged && gx_group_index(g, GX_AXIS_TP) > 0;
    if (is_another && g->device->computes && x) memset(x, 0, (size_t)(n * gx_dtype_size(dtype)));
    gx_all_reduce(g, is_ragged ? GX_AXIS_ALL : GX_AXIS_RESULTS, GX_SUM, x, n, dtype);
}
#endif
