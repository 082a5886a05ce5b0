// run/optimizer.h: the optimizer's step on a unit of a model.
//
// Master weights, moments and gradients lie in the store; frozen tensors have none and are left alone. Consecutive
// tensors with the same settings are updated in one call.
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
    return s->table->row[row].unit == unit && !s->table->row[row].has_alias && gx_store_trains(s, row);
}

// 1: the distance from row a to row b is the same in weights, gradients and moments.
static int gx__optimizer_lie_alike(const GxStore *s, int a, int b)
{
    return s->place[b].weight - s->place[a].weight == s->place[b].trainable - s->place[a].trainable;
}

static void gx__optimizer_rows(GxContext *g, const GxStore *s, const GxOptimizer *o, int first, int64_t n)
{
    float *w = gx_store_master(s, first), *moment[2];
    void *copy = s->dtype == GX_F32 ? NULL : gx_store_weights_at(s, s->place[first].weight);
    const float *grads = gx_store_grads(s, first);
    const int decays = s->table->row[first].decay;
    GxAdamW adamw = o->adamw;
    GxSgd sgd = o->sgd;
    for (int i = 0; i < 2; i++) moment[i] = gx_store_moment(s, i, first);
    if (!decays) adamw.weight_decay = sgd.weight_decay = 0;
    if (o->kind == GX_OPTIMIZER_ADAMW) gx_adamw(g, w, moment[0], moment[1], copy, grads, n, &adamw, s->dtype);
    else gx_sgd(g, w, moment[0], copy, grads, n, &sgd, s->dtype);
}

void gx_optimizer_step(GxContext *g, const GxStore *s, const GxOptimizer *o, int unit)
{
    for (int i = 0; i < s->table->n;) {
        const int first = i++;
        if (!gx__optimizer_is_in(s, first, unit)) continue;
        int64_t end = s->place[first].trainable + gx_tensor_count(&s->table->row[first]);
        for (; i < s->table->n && gx__optimizer_is_in(s, i, unit); i++) {
            if (s->table->row[i].decay != s->table->row[first].decay || !gx__optimizer_lie_alike(s, first, i)) break;
            end = s->place[i].trainable + gx_tensor_count(&s->table->row[i]);
        }
        gx__optimizer_rows(g, s, o, first, end - s->place[first].trainable);
    }
}
#endif
