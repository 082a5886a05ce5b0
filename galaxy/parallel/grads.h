// grads.h: gradients of a whole model across ranks, by the tensor table: the sums that its rows ask for, and the global
// norm.
#ifndef GX_GRADS_H
#define GX_GRADS_H
#include "../base/store.h"
#include "../comm/comm.h"
#include "../ops/optimizer.h"
GX_BEGIN

// Sums the gradients of units [first, first + units): first over the tp group those whose table rows ask for it, then
// all of them over GX_AXIS_LOSS, neighbours in one collective. (A unit of which every trained row is summed over tp has
// one sum, over both.) Where the parts of a cut tensor overlap, the members that share a piece sum it among themselves:
// each sends its own to all the others, and takes scratch for its part once per sharer (GX_MEM_COMM).
void gx_grads_reduce(GxContext *g, GxStore *s, int first, int units);

// The same in two: what was started may be waited for after other work, in which the gradients of these units are not
// touched. Only the last sum is under way then; what comes before it is complete when gx_grads_start returns.
enum { GX_GRADS_TICKETS = 8 }; // collectives of a sum that can be under way; any more run at once
typedef struct {
    GxTicket ticket[GX_GRADS_TICKETS];
    int tickets;
} GxGradsSum;
void gx_grads_start(GxContext *g, GxStore *s, int first, int units, GxGradsSum *sum);
void gx_grads_wait(GxContext *g, GxGradsSum *sum);

// Which elements of the gradients this rank counts in the global norm: of each tensor those that no lower rank counts.
// The list is made once, and lies in the device's memory, so that a unit's gradients, or all, are one operation.
typedef struct {
    GxSumPart *part, *twin; // [rows of the table], unit by unit; the twin in the host's memory
    GxSumParts *unit;       // [units]: which of them are a unit's
    int units;
} GxGradsParts;

GxStatus gx_grads_parts_open(GxGradsParts *p, const GxTable *table, GxError *err);
void gx_grads_parts_take(GxContext *g, GxGradsParts *p, const GxStore *s); // behind gx_store_take, from the same arena
void gx_grads_parts_close(GxGradsParts *p);

// Adds to step->sum_squares those of the gradients of units [first, first + units): tensor by tensor in the table's
// order, each logical element once: an alias not at all, what several ranks hold by the lowest of them. The bits are
// those of one unit after the other. In a pipeline, whose ranks have the units in their order, each continues from the
// sum of the one before, which it takes over first; so the bits are those of one rank. The ranks of a tp group then add
// theirs up, and all ranks have the sum.
void gx_grads_take_over(GxContext *g);
void gx_grads_sum_squares(GxContext *g, GxStore *s, const GxGradsParts *p, int first, int units);
void gx_grads_agree(GxContext *g);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_GRADS_IMPLEMENTED)
#define GX_GRADS_IMPLEMENTED
#include <stdlib.h>
#include <string.h>
#include "../ops/elementwise.h"
#include "../ops/memory.h"

// ---- sums over axes -----------------------------------------------------------------------------------------------

// What no micro-batch has touched in this window has a gradient of 0.
static void gx__grads_zero_unwritten(GxContext *g, GxStore *s, int row)
{
    float *grads = gx_store_grads(s, row);
    if (!grads || s->table->row[row].has_alias || s->place[row].is_written) return;
    gx_zero(g, grads, 4 * gx_tensor_count(&s->table->row[row]));
    s->place[row].is_written = 1;
}

static int gx__grads_is_in(const GxStore *s, int row, int first, int units)
{
    const GxTensor *t = &s->table->row[row];
    return t->unit >= first && t->unit < first + units && !t->has_alias && gx_store_grads(s, row);
}

// Of n neighbours; sum NULL: at once.
static void gx__grads_all_reduce(GxContext *g, int axes, float *grads, int64_t n, GxGradsSum *sum)
{
    if (gx_group_size(g, axes) == 1) return;
    if (sum && sum->tickets < GX_GRADS_TICKETS)
        sum->ticket[sum->tickets++] = gx_all_reduce_start(g, axes, GX_SUM, grads, n, GX_F32);
    else gx_all_reduce(g, axes, GX_SUM, grads, n, GX_F32);
}

// 1: all that is trained in the row's unit, whose rows are neighbours, is summed over tp.
static int gx__grads_is_alike(const GxStore *s, int row)
{
    const GxTensor *t = s->table->row;
    const int unit = t[row].unit;
    while (row > 0 && (t[row - 1].unit == unit || t[row - 1].has_alias)) row--;
    for (; row < s->table->n && (t[row].unit == unit || t[row].has_alias); row++)
        if (!t[row].sums_over_tp && gx__grads_is_in(s, row, unit, 1)) return 0;
    return 1;
}

// The axes of a row's first sum, or of its last one; 0: there is none.
static int gx__grads_axes(const GxStore *s, int row, int is_last)
{
    const int sums = s->table->row[row].sums_over_tp, is_alike = sums && gx__grads_is_alike(s, row);
    if (is_last) return GX_AXIS_LOSS | (is_alike ? GX_AXIS_TP : 0);
    return sums && !is_alike ? GX_AXIS_TP : 0;
}

// Neighbours with the same axes, with the gaps between them, are one collective.
static void gx__grads_sum(GxContext *g, const GxStore *s, int first, int units, int is_last, GxGradsSum *sum)
{
    int64_t begin = 0, end = 0;
    int axes = 0; // of the neighbours [begin, end)
    for (int i = 0; i < s->table->n; i++) {
        if (!gx__grads_is_in(s, i, first, units)) continue;
        const int of_row = gx__grads_axes(s, i, is_last);
        if (of_row != axes && axes) gx__grads_all_reduce(g, axes, s->grads + begin, end - begin, sum);
        if (of_row != axes) begin = s->place[i].trainable;
        axes = of_row, end = s->place[i].trainable + gx_tensor_count(&s->table->row[i]);
    }
    if (axes) gx__grads_all_reduce(g, axes, s->grads + begin, end - begin, sum);
}

// ---- sums over those who share -------------------------------------------------------------------------------------

static GxRange gx__grads_common(GxRange a, GxRange b)
{
    GxRange r = {gx_max(a.begin, b.begin), gx_min(a.end, b.end)};
    return r;
}

// Members first to last share something with member `me`: parts go up, so they are neighbours.
static void gx__grads_sharers(const GxTensor *t, int me, int *first, int *last)
{
    *first = *last = me;
    while (*first > 0 && gx_range_count(gx__grads_common(t->parts[*first - 1], t->parts[me]))) --*first;
    while (*last + 1 < t->n_parts && gx_range_count(gx__grads_common(t->parts[*last + 1], t->parts[me]))) ++*last;
}

// The end of the piece of `mine` from i on that the same members have.
static int64_t gx__grads_piece_end(const GxTensor *t, int first, int last, GxRange mine, int64_t i)
{
    int64_t end = mine.end;
    for (int r = first; r <= last; r++) {
        if (t->parts[r].begin > i) end = gx_min(end, t->parts[r].begin);
        if (t->parts[r].end > i) end = gx_min(end, t->parts[r].end);
    }
    return end;
}

// Sums what lies in `from` [sharers][my part] over the members of each piece, in their order, as an all-reduce would.
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

// A K,V head that several members use: each has the part of its gradient that its own query heads make.
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
        const GxRange both = gx__grads_common(t->parts[r], mine);
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

// sum NULL: all at once.
static void gx__grads_start(GxContext *g, GxStore *s, int first, int units, GxGradsSum *sum)
{
    const int is_last = gx_group_size(g, GX_AXIS_LOSS) == 1; // nothing follows the sums over tp
    for (int i = 0; i < s->table->n; i++)
        if (gx__grads_is_in(s, i, first, units)) gx__grads_zero_unwritten(g, s, i);
    gx_at(g, -1, "shared_grads");
    gx__grads_share(g, s, first, units);
    gx__grads_sum(g, s, first, units, 0, is_last ? sum : NULL);
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

// ---- the global norm -----------------------------------------------------------------------------------------------

// This rank's elements of a tensor that no lower one counts: where in its box they begin, and how many.
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
    memset(p, 0, sizeof *p);
    p->units = table->units;
    p->twin = (GxSumPart *)calloc((size_t)table->n + 1, sizeof *p->twin);
    p->unit = (GxSumParts *)calloc((size_t)table->units + 1, sizeof *p->unit);
    if (!p->twin || !p->unit) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for the list of %d gradients", table->n);
    return GX_OK;
}

void gx_grads_parts_close(GxGradsParts *p)
{
    free(p->twin);
    free(p->unit);
    memset(p, 0, sizeof *p);
}

void gx_grads_parts_take(GxContext *g, GxGradsParts *p, const GxStore *s)
{
    int64_t n = 0, blocks = 0;
    const int64_t bytes = s->table->n * (int64_t)sizeof *p->part;
    gx_at(g, -1, "norm");
    p->part = (GxSumPart *)gx_scratch(g, GX_MEM_WORKSPACE, bytes);
    for (int unit = 0; unit < p->units; unit++) {
        GxSumParts *of = &p->unit[unit];
        of->part = p->part + n, of->parts = of->n = of->blocks = 0;
        for (int i = 0; i < s->table->n; i++) {
            GxSumPart *part = &p->twin[n];
            if (!gx__grads_is_in(s, i, unit, 1)) continue;
            part->n = gx__grads_counted(g, &s->table->row[i], &part->begin);
            if (!part->n) continue;
            part->begin += s->place[i].trainable, part->blocks = blocks;
            of->parts++, of->n += part->n, of->blocks += gx_ceil_div(part->n, GX_SQUARES_BLOCK);
            n++, blocks += gx_ceil_div(part->n, GX_SQUARES_BLOCK);
        }
    }
    if (!gx_failed(g)) gx_to_device(g, p->part, p->twin, n * (int64_t)sizeof *p->part);
}

void gx_grads_sum_squares(GxContext *g, GxStore *s, const GxGradsParts *p, int first, int units)
{
    GxSumParts all = p->unit[first];
    gx_at(g, first, "norm");
    for (int i = 0; i < s->table->n; i++)
        if (gx__grads_is_in(s, i, first, units)) gx__grads_zero_unwritten(g, s, i);
    for (int i = first + 1; i < first + units; i++)
        all.parts += p->unit[i].parts, all.n += p->unit[i].n, all.blocks += p->unit[i].blocks;
    if (all.parts) gx_sum_squares(g, &g->step->sum_squares, s->grads, &all, 1);
}

void gx_grads_take_over(GxContext *g)
{
    const int me = gx_group_index(g, GX_AXIS_PP);
    gx_at(g, -1, "norm");
    if (me > 0) gx_recv(g, GX_AXIS_PP, me - 1, &g->step->sum_squares, 1, GX_F64);
}

void gx_grads_agree(GxContext *g)
{
    const int me = gx_group_index(g, GX_AXIS_PP), last = gx_group_size(g, GX_AXIS_PP) - 1;
    gx_at(g, -1, "norm");
    if (me < last) gx_send(g, GX_AXIS_PP, me + 1, &g->step->sum_squares, 1, GX_F64);
    gx_broadcast(g, GX_AXIS_PP, last, &g->step->sum_squares, 1, GX_F64);
    gx_all_reduce(g, GX_AXIS_TP, GX_SUM, &g->step->sum_squares, 1, GX_F64);
}
#endif
