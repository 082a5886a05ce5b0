// model/linear.h: a linear of a model: the one place where LoRA and quantised weights will hang; cores never mention
// them.
//
// Several tensors that files know apart (q, k, v; gate, up) may be packed behind each other: the linear is then one
// matrix with all their rows, and some of its parts are a linear again. Of packed parts some may be frozen: the others
// have their gradients all the same.
#ifndef GX_MODEL_LINEAR_H
#define GX_MODEL_LINEAR_H
#include "../ops/linear.h"
#include "unit.h"
GX_BEGIN

// y = x W^T + bias, or y += that where `accumulate`; dx alike, without a bias.
void gx_linear_apply(GxPass *p, const GxLinear *l, GxRows y, GxRows x, int accumulate);
void gx_linear_apply_backward_input(GxPass *p, const GxLinear *l, GxRows dx, GxRows dy, int accumulate);
void gx_linear_apply_backward_weight(GxPass *p, const GxLinear *l, GxRows dy, GxRows x); // of what is trained

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_MODEL_LINEAR_IMPLEMENTED)
#define GX_MODEL_LINEAR_IMPLEMENTED
#include "../comm/comm.h"

static GxLinearShape gx__linear_shape_of(const GxLinear *l, GxRows rows, int accumulate)
{
    GxLinearShape s = gx_linear_shape(rows.rows, l->in, l->out, rows.dtype);
    s.accumulate = accumulate;
    return s;
}

void gx_linear_apply(GxPass *p, const GxLinear *l, GxRows y, GxRows x, int accumulate)
{
    const GxLinearShape s = gx__linear_shape_of(l, x, accumulate);
    const void *bias = l->bias.index < 0 ? NULL : gx_store_weight(&p->m->store, l->bias);
    gx_linear_forward(p->g, y.data, x.data, gx_store_weight(&p->m->store, l->first), bias, &s);
}

void gx_linear_apply_backward_input(GxPass *p, const GxLinear *l, GxRows dx, GxRows dy, int accumulate)
{
    const GxLinearShape s = gx__linear_shape_of(l, dy, accumulate);
    if (dx.data) gx_linear_backward_input(p->g, dx.data, dy.data, gx_store_weight(&p->m->store, l->first), &s);
}

// Of the weights, or of the biases, that begin with `first`: trained parts that lie behind each other go in one call;
// between frozen ones each has its columns of dy.
static void gx__linear_backward_parts(GxPass *p, const GxLinear *l, GxTensorId first, int is_bias, GxRows dy, GxRows x)
{
    const GxTensor *t = &p->m->table.row[first.index];
    int64_t column = 0;
    for (int i = 0; i < l->parts;) {
        GxTensorId id = {first.index + i};
        int accumulate = 0;
        float *grad = gx_store_grad(&p->m->store, id, &accumulate);
        GxLinearShape s = gx__linear_shape_of(l, dy, accumulate);
        s.y_stride = l->out;
        s.Out = t[i].end[0] - t[i].begin[0];
        for (i++; i < l->parts; i++) {
            int also = 0;
            GxTensorId next = {first.index + i};
            if (!grad != !gx_store_trains(&p->m->store, next.index)) break;
            if (grad) gx_store_grad(&p->m->store, next, &also);
            s.Out += t[i].end[0] - t[i].begin[0];
        }
        if (grad)
            gx_linear_backward_weight(p->g, is_bias ? NULL : grad, is_bias ? grad : NULL, gx_rows_column(dy, column),
                                      x.data, &s);
        column += s.Out;
    }
}

void gx_linear_apply_backward_weight(GxPass *p, const GxLinear *l, GxRows dy, GxRows x)
{
    gx_progress(p->g); // an input gradient may be on its way meanwhile
    gx__linear_backward_parts(p, l, l->first, 0, dy, x);
    if (l->bias.index >= 0) gx__linear_backward_parts(p, l, l->bias, 1, dy, x);
}
#endif
