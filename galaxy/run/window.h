// window.h: the two halves of a training step: gradients of one window of micro-batches, and what the optimizer makes
// of them.
//
// A window is what one optimizer step sees: all micro-batches of all ranks. Its loss is the sum of its token losses
// over the number of its labels that count, wherever they are; so that number is agreed on first, and gradients are
// SUMmed over ranks and micro-batches. They are synchronised once, at the window's end; the optimizer can only be
// called on what that left behind.
#ifndef GX_WINDOW_H
#define GX_WINDOW_H
#include "../parallel/grads.h"
#include "../model/model.h"
#include "../ops/optimizer.h"
GX_BEGIN

typedef enum { GX_OPTIMIZER_ADAMW = 0, GX_OPTIMIZER_SGD } GxOptimizerKind;
typedef struct {
    GxOptimizerKind kind;
    GxAdamW adamw; // weight_decay: for tensors whose row in the table says so
    GxSgd sgd;
    double max_grad_norm;   // <= 0: no clipping
    float *weights, *grads; // flat, in the table's order
    void *copy;             // the weights that the model computes with, where its type is not fp32; else NULL
    float *first, *second;  // AdamW: both moments; SGD: the momentum, or NULL
} GxOptimizer;

// Sets scale and accumulate of the n micro-batches, runs them, reduces gradients and loss over the ranks:
// step->loss_sum and step->labels are the window's.
// *labels (NULL: not wanted) is the number of labels that counted. *stop: a flag in that is raised on all ranks where
// it is on one.
void gx_window_gradients(GxContext *g, GxModel *m, GxBatch *batch, int n, const GxOptimizer *o, int64_t *labels,
                         int *stop);

// After weights were drawn or loaded: the model's copy of them.
void gx_window_copy_weights(GxContext *g, const GxModel *m, const GxOptimizer *o);

// Norm, clipping, the optimizer; step->skip: gradients were not finite, nothing has changed. step->lr is the caller's.
void gx_window_update(GxContext *g, GxModel *m, const GxOptimizer *o);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_WINDOW_IMPLEMENTED)
#define GX_WINDOW_IMPLEMENTED
#include "../ops/elementwise.h"
#include "../ops/loss.h"
#include "../ops/memory.h"

static int64_t gx__window_count_labels(const GxBatch *batch, int n)
{
    int64_t count = 0;
    for (int i = 0; i < n; i++)
        for (int64_t r = 0; r < batch[i].T * batch[i].B; r++) count += gx_batch_labels(&batch[i])[r] != GX_IGNORE_INDEX;
    return count;
}

void gx_window_gradients(GxContext *g, GxModel *m, GxBatch *batch, int n, const GxOptimizer *o, int64_t *labels,
                         int *stop)
{
    int64_t agreed[2] = {0, stop ? *stop : 0};
    if (g->device->computes && gx_group_index(g, GX_AXIS_TP) == 0)
        agreed[0] = gx__window_count_labels(batch, n); // tp ranks have the same labels
    gx_at(g, -1, "window");
    gx_all_reduce(g, GX_AXIS_ALL, GX_SUM, agreed, 2, GX_I64);
    if (stop) *stop = agreed[1] > 0;
    if (labels) *labels = agreed[0];
    gx_to_device(g, &g->step->labels, &agreed[0], sizeof agreed[0]);
    gx_zero(g, &g->step->loss_sum, sizeof g->step->loss_sum);
    for (int i = 0; i < n; i++) {
        batch[i].scale = agreed[0] ? 1.0f / (float)agreed[0] : 0.0f;
        batch[i].accumulate = i > 0;
        gx_model_forward_backward(g, m, &batch[i], &g->step->loss_sum);
    }
    gx_grads_reduce(g, &m->table, o->grads);
    gx_at(g, -1, "loss");
    gx_all_reduce(g, GX_AXIS_LOSS, GX_SUM, &g->step->loss_sum, 1, GX_F64);
}

void gx_window_copy_weights(GxContext *g, const GxModel *m, const GxOptimizer *o)
{
    if (o->copy) gx_convert(g, o->copy, m->dtype, o->weights, GX_F32, gx_table_offset(&m->table, m->table.units));
}

static void gx__window_optimizer_range(GxContext *g, const GxOptimizer *o, GxDtype dtype, int64_t begin, int64_t end,
                                       int decay)
{
    float *w = o->weights + begin, *first = o->first ? o->first + begin : NULL;
    void *copy = o->copy ? (char *)o->copy + begin * gx_dtype_size(dtype) : NULL;
    const float *grad = o->grads + begin;
    if (o->kind == GX_OPTIMIZER_ADAMW) {
        GxAdamW a = o->adamw;
        if (!decay) a.weight_decay = 0;
        gx_adamw(g, w, first, o->second + begin, copy, grad, end - begin, &a, dtype);
    } else {
        GxSgd s = o->sgd;
        if (!decay) s.weight_decay = 0;
        gx_sgd(g, w, first, copy, grad, end - begin, &s, dtype);
    }
}

void gx_window_update(GxContext *g, GxModel *m, const GxOptimizer *o)
{
    gx_grads_sum_squares(g, &m->table, o->grads);
    gx_clip(g, o->max_grad_norm);
    for (int i = 0; i < m->table.n;) { // neighbours that are treated alike go in one call
        const GxTensor *t = &m->table.row[i];
        int64_t begin = gx_table_flat(&m->table, i), end = begin + gx_tensor_count(t);
        i++;
        if (t->has_alias || t->frozen) continue;
        for (; i < m->table.n; i++) {
            const GxTensor *next = &m->table.row[i];
            if (next->has_alias || next->frozen || next->decay != t->decay) break;
            end = gx_table_flat(&m->table, i) + gx_tensor_count(next);
        }
        gx__window_optimizer_range(g, o, m->dtype, begin, end, t->decay);
    }
}
#endif
