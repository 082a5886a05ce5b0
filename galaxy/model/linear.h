// model/linear.h: a linear of a model: the one place where LoRA and quantised weights will hang; blocks never mention
// them.
//
// Several tensors that files know apart (q, k, v; gate, up) may be packed behind each other: the linear is then one
// matrix with all their rows.
#ifndef GX_MODEL_LINEAR_H
#define GX_MODEL_LINEAR_H
#include "../comm/comm.h"
#include "../ops/linear.h"
#include "model.h"
GX_BEGIN

typedef struct {
    int unit;
    int64_t weight, bias; // offsets in the unit; bias < 0: none
    int64_t in, out;      // this rank's
    int frozen;
} GxLinear;

// From the first of `parts` packed weights that begin at table row `first`; no bias.
GxLinear gx_linear_from_table(const GxTable *t, GxTensorId first, int parts);

void gx_linear_layer_forward(GxContext *g, const GxModel *m, const GxLinear *l, GxRows y, GxRows x);
void gx_linear_layer_backward_input(GxContext *g, const GxModel *m, const GxLinear *l, GxRows dx, GxRows dy);
void gx_linear_layer_backward_weight(GxContext *g, const GxModel *m, const GxLinear *l, GxRows dy, GxRows x,
                                     int accumulate); // frozen: nothing

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_MODEL_LINEAR_IMPLEMENTED)
#define GX_MODEL_LINEAR_IMPLEMENTED

GxLinear gx_linear_from_table(const GxTable *t, GxTensorId first, int parts)
{
    const GxTensor *w = &t->row[first.index];
    GxLinear l = {w->unit, w->offset, -1, w->end[1] - w->begin[1], 0, w->frozen};
    for (int i = 0; i < parts; i++) l.out += w[i].end[0] - w[i].begin[0];
    return l;
}

void gx_linear_layer_forward(GxContext *g, const GxModel *m, const GxLinear *l, GxRows y, GxRows x)
{
    const void *bias = l->bias < 0 ? NULL : gx_model_weight(m, l->unit, l->bias);
    const GxLinearShape s = gx_linear_shape(x.rows, l->in, l->out, x.dtype);
    gx_linear_forward(g, y.data, x.data, gx_model_weight(m, l->unit, l->weight), bias, &s);
}

void gx_linear_layer_backward_input(GxContext *g, const GxModel *m, const GxLinear *l, GxRows dx, GxRows dy)
{
    const GxLinearShape s = gx_linear_shape(dy.rows, l->in, l->out, dy.dtype);
    gx_linear_backward_input(g, dx.data, dy.data, gx_model_weight(m, l->unit, l->weight), &s);
}

void gx_linear_layer_backward_weight(GxContext *g, const GxModel *m, const GxLinear *l, GxRows dy, GxRows x,
                                     int accumulate)
{
    float *grads = m->unit[l->unit].grads;
    GxLinearShape s = gx_linear_shape(dy.rows, l->in, l->out, dy.dtype);
    s.accumulate = accumulate;
    gx_progress(g); // an input gradient may be on its way meanwhile
    if (l->frozen || !grads) return;
    gx_linear_backward_weight(g, grads + l->weight, l->bias < 0 ? NULL : grads + l->bias, dy.data, x.data, &s);
}
#endif
