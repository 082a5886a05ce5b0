// linear.h: y = x W^T + b and its gradients. Weights are [Out,In], as in PyTorch and in Hugging Face files.
#ifndef GX_LINEAR_H
#define GX_LINEAR_H
#include "device.h"
GX_BEGIN

// y[r,o] = sum_i x[r,i]*w[o,i] + bias[o]. x [R,In], w [Out,In], bias [Out] or NULL, y [R,Out]. FLOPs: 2*R*In*Out
void gx_linear_forward(GxContext *g, void *y, const void *x, const void *w, const void *bias, int64_t R, int64_t In,
                       int64_t Out, GxDtype dtype);

// dx[r,i] = sum_o dy[r,o]*w[o,i]. FLOPs: 2*R*In*Out
void gx_linear_backward_input(GxContext *g, void *dx, const void *dy, const void *w, int64_t R, int64_t In, int64_t Out,
                              GxDtype dtype);

// dw[o,i] = (accumulate ? dw : 0) + sum_r dy[r,o]*x[r,i]; dbias[o] = (accumulate ? dbias : 0) + sum_r dy[r,o]. fp32;
// NULL: not wanted. FLOPs: 2*R*In*Out
void gx_linear_backward_weight(GxContext *g, float *dw, float *dbias, const void *dy, const void *x, int64_t R,
                               int64_t In, int64_t Out, int accumulate, GxDtype dtype);

enum { GX_LINEAR_BLOCK = 64 }; // rows whose share of dbias is summed together; blocks are then summed in order

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_LINEAR_IMPLEMENTED)
#define GX_LINEAR_IMPLEMENTED

static int64_t gx__linear_bytes(int64_t R, int64_t In, int64_t Out, GxDtype dtype)
{
    return (R * In + In * Out + R * Out) * gx_dtype_size(dtype);
}

void gx_linear_forward(GxContext *g, void *y, const void *x, const void *w, const void *bias, int64_t R, int64_t In,
                       int64_t Out, GxDtype dtype)
{
    if (!gx_op_check(g, "linear_forward", dtype, R, gx_min(In, Out))) return;
    if (gx_op_begin(g, "linear_forward", gx_dims(R, In, Out, 0), gx__linear_bytes(R, In, Out, dtype),
                    2.0 * R * In * Out))
        g->device->linear_forward(g, y, x, w, bias, R, In, Out, dtype);
}

void gx_linear_backward_input(GxContext *g, void *dx, const void *dy, const void *w, int64_t R, int64_t In, int64_t Out,
                              GxDtype dtype)
{
    if (!gx_op_check(g, "linear_backward_input", dtype, R, gx_min(In, Out))) return;
    if (gx_op_begin(g, "linear_backward_input", gx_dims(R, In, Out, 0), gx__linear_bytes(R, In, Out, dtype),
                    2.0 * R * In * Out))
        g->device->linear_backward_input(g, dx, dy, w, R, In, Out, dtype);
}

void gx_linear_backward_weight(GxContext *g, float *dw, float *dbias, const void *dy, const void *x, int64_t R,
                               int64_t In, int64_t Out, int accumulate, GxDtype dtype)
{
    if ((!dw && !dbias) || !gx_op_check(g, "linear_backward_weight", dtype, R, gx_min(In, Out))) return;
    GxArenaMark mark = gx_arena_mark(g->arena);
    float *scratch = dbias ? (float *)gx_scratch(g, GX_MEM_WORKSPACE, gx_ceil_div(R, GX_LINEAR_BLOCK) * Out * 4) : NULL;
    if (gx_op_begin(g, "linear_backward_weight", gx_dims(R, In, Out, 0), gx__linear_bytes(R, In, Out, dtype),
                    dw ? 2.0 * R * In * Out : 0))
        g->device->linear_backward_weight(g, dw, dbias, dy, x, R, In, Out, accumulate, dtype, scratch);
    gx_arena_release(g->arena, mark);
}
#endif
