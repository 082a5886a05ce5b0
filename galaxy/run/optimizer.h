// run/optimizer.h: the optimizer's step on a unit of a model.
//
// Master weights, moments and gradients are in the store; frozen tensors have none and are not changed. Consecutive
// tensors are updated in one call, which has room for GX_MOST_UNDECAYED ranges without weight decay. Each rank updates
// its part of a sharded unit.
#ifndef GX_RUN_OPTIMIZER_H
#define GX_RUN_OPTIMIZER_H
#include "../base/store.h"
#include "../ops/optimizer.h"
GX_BEGIN

typedef enum { GX_OPTIMIZER_ADAMW = 0, GX_OPTIMIZER_SGD } GxOptimizerKind;
typedef struct {
    GxOptimizerKind kind;
    GxAdamW adamw; // its weight_decay applies to tensors whose row in the table says so
    GxSgd sgd;
    double max_grad_norm; // <= 0: no clipping
} GxOptimizer;

// How many moments the optimizer keeps for each trained element: AdamW 2, SGD 1, SGD without momentum 0.
static inline int gx_optimizer_moments(const GxOptimizer *o)
{
    return o->kind == GX_OPTIMIZER_ADAMW ? 2 : o->sgd.momentum != 0;
}

// Updates the weights from the gradients, step->lr and step->clip. Nothing changes if step->skip is set.
void gx_optimizer_step(GxContext *g, const GxStore *s, const GxOptimizer *o, int unit);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_RUN_OPTIMIZER_IMPLEMENTED)
#define GX_RUN_OPTIMIZER_IMPLEMENTED

static int gx__optimizer_is_in(const GxStore *s, int row, int unit)
{
    return s->table->row[row].unit == unit && !gx_store_is_alias(s, row) && gx_store_trains(s, row) &&
           gx_range_count(gx_store_my_trained(s, row)) > 0;
}

// 1: the distance from row a to row b is the same in weights, gradients and moments.
static int gx__optimizer_lie_alike(const GxStore *s, int a, int b)
{
    return s->place[b].weight - s->place[a].weight == s->place[b].trainable - s->place[a].trainable;
}

// An update that begins with element i of this row; it has no elements yet.
static GxUpdate gx__optimizer_from(const GxStore *s, int first, int64_t i)
{
    GxUpdate u = GX_ZERO;
    u.w = gx_store_master_at(s, first, i), u.grad = gx_store_my_grad_at(s, first, i);
    u.m = gx_store_moment_at(s, 0, first, i), u.v = gx_store_moment_at(s, 1, first, i);
    u.copy = s->dtype == GX_F32 ? NULL : gx_store_weight_at(s, first, i);
    u.dtype = s->dtype;
    return u;
}

// Adds another row to the update: n elements from `begin` on. 0: there is no room to note that they do not decay.
static int gx__optimizer_follows(GxUpdate *u, const GxTensor *row, int64_t begin, int64_t n)
{
    GxUndecayed *of = &u->undecayed;
    const int64_t end = begin + n;
    const int goes_on = of->n > 0 && of->end[of->n - 1] == u->n; // the previous row does not decay, either
    if (!row->decay && !goes_on && of->n == GX_MOST_UNDECAYED) return 0;
    if (!row->decay && !goes_on) of->begin[of->n++] = begin;
    if (!row->decay) of->end[of->n - 1] = end;
    u->n = end;
    return 1;
}

void gx_optimizer_step(GxContext *g, const GxStore *s, const GxOptimizer *o, int unit)
{
    for (int i = 0; i < s->table->n;) {
        const int first = i;
        if (!gx__optimizer_is_in(s, first, unit)) {
            i++;
            continue;
        }
        const int64_t from = gx_store_my_trained(s, first).begin, start = s->place[first].trainable + from;
        GxUpdate u = gx__optimizer_from(s, first, from);
        for (; i < s->table->n && gx__optimizer_is_in(s, i, unit) && gx__optimizer_lie_alike(s, first, i); i++) {
            const GxRange mine = gx_store_my_trained(s, i);
            if (!gx__optimizer_follows(&u, &s->table->row[i], s->place[i].trainable + mine.begin - start,
                                       gx_range_count(mine)))
                break;
        }
        if (o->kind == GX_OPTIMIZER_ADAMW) gx_adamw(g, &u, &o->adamw);
        else gx_sgd(g, &u, &o->sgd);
    }
}
#endif
