// grads.h: gradients of a whole model across ranks, by the tensor table: the sums that its rows ask for, and the global
// norm.
#ifndef GX_GRADS_H
#define GX_GRADS_H
#include "../base/tensors.h"
#include "../comm/comm.h"
GX_BEGIN

// grads: the rank's flat buffer of gx_table_offset(table, table->units) elements. Neighbours with the same axes go in
// one collective; where the parts of a cut tensor overlap, the members that share a piece sum it among themselves: each
// sends its own to all the others, and takes scratch for its part once per sharer (GX_MEM_COMM).
void gx_grads_reduce(GxContext *g, const GxTable *table, float *grads);

// step->sum_squares of the reduced gradients: tensor by tensor in the table's order, each logical element once: an
// alias not at all, what several ranks hold by the lowest of them.
void gx_grads_sum_squares(GxContext *g, const GxTable *table, const float *grads);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_GRADS_IMPLEMENTED)
#define GX_GRADS_IMPLEMENTED
#include "../ops/elementwise.h"
#include "../ops/optimizer.h"

// ---- sums over whole axes ------------------------------------------------------------------------------------------

static void gx__grads_reduce_axes(GxContext *g, const GxTable *table, float *grads)
{
    int64_t begin = 0, end = 0;
    int axes = 0;
    for (int i = 0; i <= table->n; i++) {
        const GxTensor *t = i < table->n ? &table->row[i] : NULL;
        if (t && t->has_alias) continue;
        const int wanted = t && !t->frozen ? t->reduce_axes : 0; // 0: nobody needs a sum
        if (t && end > begin && wanted == axes) {
            end = gx_table_flat(table, i) + gx_tensor_count(t);
            continue;
        }
        if (end > begin && axes) gx_all_reduce(g, axes, GX_SUM, grads + begin, end - begin, GX_F32);
        if (!t) break;
        begin = gx_table_flat(table, i);
        end = begin + gx_tensor_count(t);
        axes = wanted;
    }
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

void gx_grads_reduce(GxContext *g, const GxTable *table, float *grads)
{
    gx_at(g, -1, "grads");
    gx__grads_reduce_axes(g, table, grads);
    gx_at(g, -1, "shared_grads");
    for (int i = 0; i < table->n && !gx_failed(g); i++)
        if (table->row[i].parts && !table->row[i].has_alias && !table->row[i].frozen)
            gx__grads_reduce_overlaps(g, &table->row[i], grads + gx_table_flat(table, i));
}

// ---- the global norm -----------------------------------------------------------------------------------------------

// This rank's elements of a tensor that no lower one counts: where in its box they begin, and how many.
static int64_t gx__grads_counted(const GxContext *g, const GxTensor *t, int64_t *first)
{
    *first = 0;
    if (t->has_alias || t->frozen) return 0;
    if (!t->parts) return gx_group_index(g, GX_AXIS_TP) == 0 ? gx_tensor_count(t) : 0;
    const int me = gx_group_index(g, t->split_axes);
    const GxRange mine = t->parts[me], owned = gx_tensor_owned(t, me);
    const int64_t row = gx_tensor_count(t) / gx_range_count(mine);
    if (gx_range_count(owned) == gx_range_count(mine)) return gx_tensor_count(t);
    *first = (owned.begin - mine.begin) * row;
    return gx_range_count(owned) * row;
}

void gx_grads_sum_squares(GxContext *g, const GxTable *table, const float *grads)
{
    gx_at(g, -1, "norm");
    int some = 0;
    for (int i = 0; i < table->n; i++) {
        int64_t first, n = gx__grads_counted(g, &table->row[i], &first);
        if (n == 0) continue;
        gx_sum_squares(g, &g->step->sum_squares, grads + gx_table_flat(table, i) + first, n, some);
        some = 1;
    }
    if (!some) gx_zero(g, &g->step->sum_squares, sizeof g->step->sum_squares);
    gx_all_reduce(g, GX_AXIS_TP, GX_SUM, &g->step->sum_squares, 1, GX_F64);
}
#endif
