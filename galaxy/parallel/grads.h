// grads.h: the gradients of a whole model across ranks, by the tensor table: the sums that its rows require, and the
// global norm.
#ifndef GX_GRADS_H
#define GX_GRADS_H
#include "../comm/comm.h"
#include "../ops/optimizer.h"
#include "shards.h"
#include "stage_messages.h"
GX_BEGIN

// Sums the gradients of units [first, first + units): first over the tp group those whose table rows require it, then
// all of them over GX_AXIS_LOSS, neighbours in one collective. (A unit that every rank of tp has and sums over tp has
// one sum, over both: gx_shards_is_alike.) Where the parts of a split tensor overlap, the members that share a piece
// sum it among themselves: each sends its own to all the others, and takes scratch for its part once per member that
// shares it (GX_MEM_COMM).
void gx_grads_reduce(GxContext *g, GxStore *s, int first, int units);

// The same in two calls, with other work between them that does not touch the gradients of these units. Only the last
// sum is in flight then; earlier ones are complete when gx_grads_start returns.
enum { GX_GRADS_TICKETS = 8 }; // collectives that can be in flight; further ones are blocking
typedef struct {
    GxTicket ticket[GX_GRADS_TICKETS];
    int tickets;
} GxGradsSum;
void gx_grads_start(GxContext *g, GxStore *s, int first, int units, GxGradsSum *sum);
void gx_grads_wait(GxContext *g, GxGradsSum *sum);

// For a tensor (a row of the table) that the pipeline stage `peer` has, too, one of the two as a copy: both ranks add
// the two gradients, the lower stage's first, so that both get the same bits; or, with `takes`, the upper stage gets
// the lower one's gradient. Called before the tensor's gradient is summed over other ranks; these sums are then the
// same on both stages. (NCCL's sums over three or more ranks may differ between the two in the last bits.) vocab: which
// rows of a tensor that is split by rows each rank of that stage has; of one that is split by columns the two must have
// the same parts. In a ragged mesh a tensor whose gradient is summed over tp is so here, before that, and not again.
void gx_grads_tie(GxContext *g, GxStore *s, int tensor, int peer, int takes, const GxShares *vocab);

// The same sums for a unit whose gradients are sharded: the whole gradients are summed over tp, then each rank that
// shares the unit gets the sum of its part. After the last one of a window, gx_grads_reduce_shard sums over
// dp_replicate. adds: adds to what the shard already has from earlier micro-batches. The whole gradients are invalid
// afterwards, so the next contribution to one is written. The bits are those of gx_grads_reduce if dp_replicate is 1
// and the window is scattered once.
void gx_grads_scatter(GxContext *g, GxStore *s, int unit, int adds);
// The same in two calls, with other work between them. `adds` needs room for the unit's shard (gx_grads_shard_bytes)
// that nothing else uses meanwhile; otherwise it is not read.
int64_t gx_grads_shard_bytes(const GxStore *s, int unit);
GxTicket gx_grads_scatter_start(GxContext *g, GxStore *s, int unit, int adds, float *room);
void gx_grads_scatter_wait(GxContext *g, GxStore *s, int unit, int adds, const float *room, GxTicket ticket);
void gx_grads_reduce_shard(GxContext *g, GxStore *s, int unit);

// Which elements of the gradients this rank counts in the global norm: those of each tensor that no lower rank counts.
// The list is made once, and lies in the device's memory, so that the gradients of a unit, or of all units, take one
// operation.
typedef struct {
    GxSumPart *part, *host_copy; // [rows of the table], unit by unit; the host copy in the host's memory
    GxSumParts *unit;            // [units]: the parts of each unit
    int units;
    // If gradients are sharded: the sums of all blocks, in the order in which they are added. This rank fills in its
    // own. The other two say where those of each unit begin, and where this rank's do.
    double *blocks;
    int64_t n_blocks, *unit_blocks, *my_blocks; // [units + 1], [units]
} GxGradsParts;

GxStatus gx_grads_parts_open(GxGradsParts *p, const GxTable *table, GxError *err);
void gx_grads_parts_allocate(GxContext *g, GxGradsParts *p,
                             const GxStore *s); // after gx_store_allocate, from the same arena
void gx_grads_parts_close(GxGradsParts *p);

// Adds the squares of the gradients of units [first, first + units) to step->sum_squares: tensor by tensor in the
// table's order, each logical element once. Aliases are not counted, and what several ranks hold is counted by the
// lowest of them. The bits are those of one unit after the other. In a pipeline each stage receives the sum of the
// stage before, continues from it and sends it on, so the bits are those of one rank. Ranks that share units combine
// the blocks' sums before they are added, so the bits are those of whole gradients. Then the ranks of a tp group add
// their sums, and all ranks get the result. In a ragged mesh nothing passes from stage to stage, and all ranks add their
// sums.
void gx_grads_begin(GxContext *g, const GxGradsParts *p); // begins a window: step->sum_squares becomes 0
void gx_grads_receive_squares(GxContext *g, int from);    // of the pipeline
void gx_grads_send_squares(GxContext *g, int to);
void gx_grads_sum_squares(GxContext *g, GxStore *s, const GxGradsParts *p, int first, int units);
// For units whose shards have been squared: combines the blocks' sums of all ranks, and adds them.
void gx_grads_add_shards(GxContext *g, const GxStore *s, const GxGradsParts *p, int first, int units);
void gx_grads_agree(GxContext *g, int last); // last: the rank of the pipeline that has the sum over all stages

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_GRADS_IMPLEMENTED)
#define GX_GRADS_IMPLEMENTED
#include <stdlib.h>
#include <string.h>
#include "../ops/elementwise.h"
#include "../ops/memory.h"

// ---- sums over axes -----------------------------------------------------------------------------------------------

// A tensor that no micro-batch has contributed to in this window has a gradient of 0.
static void gx__grads_zero_unwritten(GxContext *g, GxStore *s, int row)
{
    float *grads = gx_store_grads(s, row);
    if (!grads || gx_store_is_alias(s, row) || s->place[row].is_written) return;
    gx_zero(g, grads, 4 * gx_tensor_count(&s->table->row[row]));
    s->place[row].is_written = 1;
}

static int gx__grads_is_in(const GxStore *s, int row, int first, int units)
{
    const GxTensor *t = &s->table->row[row];
    return t->unit >= first && t->unit < first + units && !gx_store_is_alias(s, row) && gx_store_grads(s, row);
}

// Sums n consecutive elements. sum NULL: blocking.
static void gx__grads_all_reduce(GxContext *g, int axes, float *grads, int64_t n, GxGradsSum *sum)
{
    if (gx_group_size(g, axes) == 1) return;
    if (sum && sum->tickets < GX_GRADS_TICKETS)
        sum->ticket[sum->tickets++] = gx_all_reduce_start(g, axes, GX_SUM, grads, n, GX_F32);
    else gx_all_reduce(g, axes, GX_SUM, grads, n, GX_F32);
}

// The axes of a row's first or last sum; 0: there is none. is_alike: gx_shards_is_alike of its unit.
static int gx__grads_axes(const GxStore *s, int row, int is_alike, int is_last)
{
    const int sums = s->table->row[row].sums_over_tp && !s->place[row].is_summed;
    if (is_last) return GX_AXIS_LOSS | (sums && is_alike ? GX_AXIS_TP : 0);
    return sums && !is_alike ? GX_AXIS_TP : 0;
}

// Consecutive rows with the same axes are summed in one collective, including the gaps between them.
static void gx__grads_sum(GxContext *g, const GxStore *s, int first, int units, int is_last, GxGradsSum *sum)
{
    float *of_first = s->unit[first].grads; // if several units are summed, all lie in one buffer
    const int64_t at = s->unit[first].trained.all.begin;
    int64_t begin = 0, end = 0;
    int axes = 0;                // of the consecutive rows in [begin, end)
    int unit = -1, is_alike = 0; // of the row
    for (int i = 0; i < s->table->n; i++) {
        if (!gx__grads_is_in(s, i, first, units)) continue;
        const GxTensor *t = &s->table->row[i];
        if (t->unit != unit) unit = t->unit, is_alike = gx_shards_is_alike(s, unit);
        const int of_row = gx__grads_axes(s, i, is_alike, is_last);
        if (of_row != axes && axes) gx__grads_all_reduce(g, axes, of_first + begin, end - begin, sum);
        if (of_row != axes) begin = s->place[i].trainable - at;
        axes = of_row, end = s->place[i].trainable - at + gx_tensor_count(&s->table->row[i]);
    }
    if (axes) gx__grads_all_reduce(g, axes, of_first + begin, end - begin, sum);
}

// ---- sums over members that share a piece --------------------------------------------------------------------------

// Members `first` to `last` share something with member `me`. Parts ascend, so these members are consecutive.
static void gx__grads_sharers(const GxTensor *t, int me, int *first, int *last)
{
    *first = *last = me;
    while (*first > 0 && gx_range_count(gx_range_common(t->parts[*first - 1], t->parts[me]))) --*first;
    while (*last + 1 < t->n_parts && gx_range_count(gx_range_common(t->parts[*last + 1], t->parts[me]))) ++*last;
}

// The end of the piece of `mine` that begins at i and that the same members share.
static int64_t gx__grads_piece_end(const GxTensor *t, int first, int last, GxRange mine, int64_t i)
{
    int64_t end = mine.end;
    for (int r = first; r <= last; r++) {
        if (t->parts[r].begin > i) end = gx_min(end, t->parts[r].begin);
        if (t->parts[r].end > i) end = gx_min(end, t->parts[r].end);
    }
    return end;
}

// Sums `from`, [members that share][my part], over the members of each piece, in their order, as an all-reduce would.
static void gx__grads_sum_pieces(GxContext *g, const GxTensor *t, int first, int last, GxRange mine, int64_t row,
                                 float *grad, const float *from)
{
    for (int64_t i = mine.begin, end; i < mine.end; i = end) {
        end = gx__grads_piece_end(t, first, last, mine, i);
        const int64_t at = (i - mine.begin) * row, n = (end - i) * row;
        const float *sum = NULL;
        for (int r = first; r <= last; r++) {
            const float *x = from + (r - first) * gx_range_count(mine) * row + at;
            if (i < t->parts[r].begin || i >= t->parts[r].end) continue;
            if (sum) gx_add(g, grad + at, sum, x, n, GX_F32);
            sum = sum ? grad + at : x;
        }
    }
}

// A K,V head that several members use: each has the part of its gradient that comes from its own query heads.
static void gx__grads_reduce_overlaps(GxContext *g, const GxTensor *t, float *grad)
{
    const int me = gx_group_index(g, t->split_axes);
    const GxRange mine = t->parts[me];
    const int64_t count = gx_tensor_count(t), row = count / gx_range_count(mine);
    int first, last, n = 0;
    GxTransfer list[2 * GX_MAX_PARTS] = GX_ZERO;
    gx__grads_sharers(t, me, &first, &last);
    if (first == last) return;
    GxArenaMark mark = gx_arena_mark(g->arena);
    float *from = (float *)gx_scratch(g, GX_MEM_COMM, (last - first + 1) * count * 4);
    for (int r = first; r <= last && from; r++) {
        const GxRange both = gx_range_common(t->parts[r], mine);
        float *own = grad + (both.begin - mine.begin) * row,
              *theirs = from + (r - first) * count + (both.begin - mine.begin) * row;
        GxTransfer send = {r, 1, 0, own, gx_range_count(both) * row, GX_F32},
                   receive = {r, 0, 0, theirs, send.n, GX_F32};
        if (r == me) gx_copy(g, theirs, own, count * 4);
        else list[n++] = send, list[n++] = receive;
    }
    gx_transfer(g, t->split_axes, list, n);
    if (from) gx__grads_sum_pieces(g, t, first, last, mine, row, grad, from);
    gx_arena_release(g->arena, mark);
}

static void gx__grads_share(GxContext *g, GxStore *s, int first, int units)
{
    for (int i = 0; i < s->table->n && !gx_failed(g); i++)
        if (gx__grads_is_in(s, i, first, units) && s->table->row[i].parts)
            gx__grads_reduce_overlaps(g, &s->table->row[i], gx_store_grads(s, i));
}

// The first sums: over tp. sum NULL: all are blocking.
static void gx__grads_start_tp(GxContext *g, GxStore *s, int first, int units, GxGradsSum *sum)
{
    for (int i = 0; i < s->table->n; i++)
        if (gx__grads_is_in(s, i, first, units)) gx__grads_zero_unwritten(g, s, i);
    gx_at(g, -1, "shared_grads");
    gx__grads_share(g, s, first, units);
    gx__grads_sum(g, s, first, units, 0, sum);
}

static void gx__grads_start(GxContext *g, GxStore *s, int first, int units, GxGradsSum *sum)
{
    const int is_last = gx_group_size(g, GX_AXIS_LOSS) == 1; // nothing follows the sums over tp
    gx__grads_start_tp(g, s, first, units, is_last ? sum : NULL);
    gx_at(g, -1, "grads");
    gx__grads_sum(g, s, first, units, 1, sum);
}

void gx_grads_reduce(GxContext *g, GxStore *s, int first, int units) { gx__grads_start(g, s, first, units, NULL); }

void gx_grads_start(GxContext *g, GxStore *s, int first, int units, GxGradsSum *sum)
{
    sum->tickets = 0;
    gx__grads_start(g, s, first, units, sum);
}

void gx_grads_wait(GxContext *g, GxGradsSum *sum)
{
    gx_at(g, -1, "grads");
    for (int i = 0; i < sum->tickets; i++) gx_wait(g, sum->ticket[i]);
}

// ---- sums over two stages ------------------------------------------------------------------------------------------

// The tp groups of a ragged mesh are of different sizes, so their summands cannot be added in pairs.
static void gx__grads_sum_first(GxContext *g, GxStore *s, int row)
{
    if (!gx_is_ragged(g) || !s->table->row[row].sums_over_tp) return;
    gx__grads_all_reduce(g, GX_AXIS_TP, gx_store_grads(s, row), gx_tensor_count(&s->table->row[row]), NULL);
    s->place[row].is_summed = 1;
}

// What this rank's group has of a tensor, in rows of it; *row: elements of each. A part of its columns is one row.
static GxShares gx__grads_shares(const GxContext *g, const GxTensor *t, int64_t *row)
{
    const int n = gx_group_size(g, GX_AXIS_TP), me = gx_group_index(g, GX_AXIS_TP);
    GxShares s = gx_shares_each(t->global_shape[0], n, me);
    *row = gx_tensor_global_count(t) / t->global_shape[0];
    if (!t->parts) return s;
    if (t->split_dim == 0) {
        memcpy(s.part, t->parts, (size_t)n * sizeof *s.part);
        return s;
    }
    for (int r = 0; r < n; r++) s.part[r].begin = r, s.part[r].end = r + 1;
    *row = gx_tensor_count(t);
    return s;
}

void gx_grads_tie(GxContext *g, GxStore *s, int tensor, int peer, int takes, const GxShares *vocab)
{
    const int row = gx_store_holder(s, tensor), is_lower = gx_group_index(g, GX_AXIS_PP) < peer;
    if (row < 0 || !gx_store_trains(s, row)) return;
    const GxTensor *t = &s->table->row[row];
    int64_t n;
    const GxShares mine = gx__grads_shares(g, t, &n);
    GxShares theirs = mine;
    if (t->parts && t->split_dim == 0) theirs = *vocab;
    else if (!t->parts) theirs = gx_shares_each(t->global_shape[0], vocab->n, 0);
    float *grads = gx_store_grads(s, row);
    gx_at(g, t->unit, "tied");
    if (takes) {
        gx_stage_transfer(g, peer, is_lower, 0, grads, n, GX_F32, &mine, &theirs);
        return;
    }
    gx__grads_zero_unwritten(g, s, row);
    gx__grads_sum_first(g, s, row);
    gx_stage_add(g, peer, grads, n, &mine, &theirs);
}

// ---- sums of shards ------------------------------------------------------------------------------------------------

int64_t gx_grads_shard_bytes(const GxStore *s, int unit) { return 4 * gx_range_count(s->unit[unit].trained.mine); }

// The sums over tp, then the unit's sum, into the shard or into `room`.
static GxTicket gx__grads_scatter(GxContext *g, GxStore *s, int unit, float *sum, int is_started)
{
    const GxSplit split = gx_shards_split(s, unit, GX_SHARD_TRAINED);
    const int axes = gx_shards_axes(s, unit);
    const float *whole = s->unit[unit].grads;
    GxTicket ticket = GX_ZERO;
    gx__grads_start_tp(g, s, unit, 1, NULL);
    gx_at(g, unit, "scatter");
    if (sum && is_started) ticket = gx_reduce_scatter_start(g, axes, &split, sum, whole, 1, GX_F32);
    else if (sum) gx_reduce_scatter(g, axes, &split, sum, whole, 1, GX_F32);
    if (s->sharded < GX_SHARDS_GRADS) return ticket;
    s->unit[unit].grads = NULL; // the next contribution has another place
    for (int i = 0; i < s->table->n; i++)
        if (s->table->row[i].unit == unit) s->place[i].is_written = 0;
    return ticket;
}

GxTicket gx_grads_scatter_start(GxContext *g, GxStore *s, int unit, int adds, float *room)
{
    return gx__grads_scatter(g, s, unit, adds ? room : gx_store_my_grads(s, unit), 1);
}

void gx_grads_scatter_wait(GxContext *g, GxStore *s, int unit, int adds, const float *room, GxTicket ticket)
{
    const int64_t n = gx_range_count(s->unit[unit].trained.mine);
    float *mine = gx_store_my_grads(s, unit);
    gx_at(g, unit, "scatter");
    gx_wait(g, ticket);
    if (adds && n && room) gx_add(g, mine, mine, room, n, GX_F32);
}

void gx_grads_scatter(GxContext *g, GxStore *s, int unit, int adds)
{
    const GxTicket none = GX_ZERO;
    const GxArenaMark mark = gx_arena_mark(g->arena);
    float *room = adds ? (float *)gx_scratch(g, GX_MEM_COMM, gx_grads_shard_bytes(s, unit)) : NULL;
    gx__grads_scatter(g, s, unit, adds ? room : gx_store_my_grads(s, unit), 0);
    gx_grads_scatter_wait(g, s, unit, adds, room, none);
    gx_arena_release(g->arena, mark);
}

void gx_grads_reduce_shard(GxContext *g, GxStore *s, int unit)
{
    gx_at(g, unit, "scatter");
    gx__grads_all_reduce(g, GX_AXIS_DP_REPLICATE, gx_store_my_grads(s, unit),
                         gx_range_count(s->unit[unit].trained.mine), NULL);
}

// ---- the global norm -----------------------------------------------------------------------------------------------

// The number of this rank's elements of a tensor that no lower rank counts. *first: where they begin in its box.
static int64_t gx__grads_counted(const GxContext *g, const GxTensor *t, int64_t *first)
{
    *first = 0;
    if (!t->parts) return gx_group_index(g, GX_AXIS_TP) == 0 ? gx_tensor_count(t) : 0;
    const int me = gx_group_index(g, t->split_axes);
    const GxRange mine = t->parts[me], owned = gx_tensor_owned(t, me);
    const int64_t row = gx_tensor_count(t) / gx_range_count(mine);
    if (gx_range_count(owned) == gx_range_count(mine)) return gx_tensor_count(t);
    *first = (owned.begin - mine.begin) * row;
    return gx_range_count(owned) * row;
}

GxStatus gx_grads_parts_open(GxGradsParts *p, const GxTable *table, GxError *err)
{
    const size_t units = (size_t)table->units;
    memset(p, 0, sizeof *p);
    p->units = table->units;
    p->host_copy = (GxSumPart *)calloc((size_t)table->n + 1, sizeof *p->host_copy);
    p->unit = (GxSumParts *)calloc(units + 1, sizeof *p->unit);
    p->unit_blocks = (int64_t *)calloc(2 * units + 1, sizeof *p->unit_blocks);
    if (!p->host_copy || !p->unit || !p->unit_blocks)
        return GX_FAIL(err, GX_ERR_MEMORY, "no memory for the list of %d gradients", table->n);
    p->my_blocks = p->unit_blocks + units + 1;
    return GX_OK;
}

void gx_grads_parts_close(GxGradsParts *p)
{
    free(p->host_copy);
    free(p->unit);
    free(p->unit_blocks);
    memset(p, 0, sizeof *p);
}

// The gradients whose squares this rank sums: whole ones, or its shards.
static float *gx__grads_base(const GxStore *s) { return s->grads ? s->grads : s->my_grads; }

// This rank's part of a tensor's gradient that no lower rank counts, by its place in the buffer of gradients or shards.
// *blocks: how many blocks of the tensor are counted; *front: how many of them precede this rank's, on other ranks of
// the unit.
static GxSumPart gx__grads_part(const GxContext *g, const GxStore *s, int row, int64_t *blocks, int64_t *front)
{
    const GxTensor *t = &s->table->row[row];
    const GxRange mine = gx_store_my_trained(s, row);
    GxSumPart part = {0, 0, 0};
    int64_t first;
    // all ranks of tp fill in the blocks of a unit that they share, and the first one adds them
    const int is_shared = (gx_shards_axes(s, t->unit) & GX_AXIS_TP) != 0;
    const int64_t n = is_shared ? gx_tensor_count(t) : gx__grads_counted(g, t, &first);
    if (is_shared) first = 0;
    const int64_t begin = gx_max(first, mine.begin), end = gx_min(first + n, mine.end);
    *blocks = gx_ceil_div(n, GX_SQUARES_BLOCK);
    *front = gx_min(gx_max(mine.begin - first, 0), n) / GX_SQUARES_BLOCK;
    if (end <= begin) return part;
    part.n = end - begin, part.begin = gx_store_my_grad_at(s, row, begin) - gx__grads_base(s);
    return part;
}

static void gx__grads_list_unit(const GxContext *g, GxGradsParts *p, const GxStore *s, int unit, int64_t *parts,
                                int64_t *in_front)
{
    GxSumParts *of = &p->unit[unit];
    int64_t blocks, front, all = 0;
    of->part = p->part + *parts, of->parts = of->n = of->blocks = 0;
    for (int i = 0; i < s->table->n; i++) {
        if (s->table->row[i].unit != unit || s->table->row[i].has_alias || !gx_store_trains(s, i)) continue;
        GxSumPart part = gx__grads_part(g, s, i, &blocks, &front);
        if (part.n && !of->parts) p->my_blocks[unit] = all + front;
        all += blocks;
        if (!part.n) continue;
        part.blocks = *in_front;
        p->host_copy[(*parts)++] = part;
        of->parts++, of->n += part.n, of->blocks += gx_ceil_div(part.n, GX_SQUARES_BLOCK);
        *in_front += gx_ceil_div(part.n, GX_SQUARES_BLOCK);
    }
    p->unit_blocks[unit + 1] = p->unit_blocks[unit] + all;
}

void gx_grads_parts_allocate(GxContext *g, GxGradsParts *p, const GxStore *s)
{
    int64_t n = 0, blocks = 0;
    gx_at(g, -1, "norm");
    p->part = (GxSumPart *)gx_scratch(g, GX_MEM_WORKSPACE, s->table->n * (int64_t)sizeof *p->part);
    for (int unit = 0; unit < p->units; unit++) gx__grads_list_unit(g, p, s, unit, &n, &blocks);
    p->n_blocks = p->unit_blocks[p->units];
    if (s->sharded) p->blocks = (double *)gx_scratch(g, GX_MEM_WORKSPACE, 8 * p->n_blocks);
    if (!gx_failed(g)) gx_to_device(g, p->part, p->host_copy, n * (int64_t)sizeof *p->part);
}

void gx_grads_begin(GxContext *g, const GxGradsParts *p)
{
    if (p->blocks && p->n_blocks) gx_zero(g, p->blocks, 8 * p->n_blocks);
}

static void gx__grads_square_shards(GxContext *g, const GxStore *s, const GxGradsParts *p, int first, int units)
{
    for (int u = first; u < first + units; u++)
        if (p->unit[u].parts)
            gx_square_blocks(g, p->blocks + p->unit_blocks[u] + p->my_blocks[u], gx__grads_base(s), &p->unit[u]);
}

void gx_grads_sum_squares(GxContext *g, GxStore *s, const GxGradsParts *p, int first, int units)
{
    GxSumParts all = p->unit[first];
    gx_at(g, first, "norm");
    if (s->sharded) {
        gx__grads_square_shards(g, s, p, first, units);
        return;
    }
    for (int i = 0; i < s->table->n; i++)
        if (gx__grads_is_in(s, i, first, units)) gx__grads_zero_unwritten(g, s, i);
    for (int i = first + 1; i < first + units; i++)
        all.parts += p->unit[i].parts, all.n += p->unit[i].n, all.blocks += p->unit[i].blocks;
    if (all.parts) gx_sum_squares(g, &g->step->sum_squares, s->grads, &all, 1);
}

void gx_grads_receive_squares(GxContext *g, int from)
{
    gx_at(g, -1, "norm");
    if (gx_is_ragged(g)) return;
    gx_recv(g, GX_AXIS_PP, from, &g->step->sum_squares, 1, GX_F64);
}

void gx_grads_send_squares(GxContext *g, int to)
{
    gx_at(g, -1, "norm");
    if (gx_is_ragged(g)) return;
    gx_send(g, GX_AXIS_PP, to, &g->step->sum_squares, 1, GX_F64);
}

// The blocks of units that the same ranks share are combined by a sum, since all ranks but one have 0 in each block;
// this rank then adds those that it counts.
void gx_grads_add_shards(GxContext *g, const GxStore *s, const GxGradsParts *p, int first, int units)
{
    gx_at(g, -1, "norm");
    for (int u = first, end; u < first + units; u = end) {
        const int axes = gx_shards_axes(s, u);
        for (end = u + 1; end < first + units && gx_shards_axes(s, end) == axes;) end++;
        const int64_t at = p->unit_blocks[u], n = p->unit_blocks[end] - at;
        if (!n) continue;
        gx_all_reduce(g, axes, GX_SUM, p->blocks + at, n, GX_F64);
        if (!(axes & GX_AXIS_TP) || gx_group_index(g, GX_AXIS_TP) == 0)
            gx_add_blocks(g, &g->step->sum_squares, p->blocks + at, n, 1);
    }
}

void gx_grads_agree(GxContext *g, int last)
{
    gx_at(g, -1, "norm");
    if (gx_is_ragged(g)) {
        gx_all_reduce(g, GX_AXIS_ALL, GX_SUM, &g->step->sum_squares, 1, GX_F64);
        return;
    }
    gx_broadcast(g, GX_AXIS_PP, last, &g->step->sum_squares, 1, GX_F64);
    gx_all_reduce(g, GX_AXIS_TP, GX_SUM, &g->step->sum_squares, 1, GX_F64);
}
#endif
