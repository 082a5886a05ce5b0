// linear.h: y = x W^T + b and its gradients. Weights are [Out,In], as in PyTorch and in Hugging Face files.
//
// Rows of x and y may have gaps, so that a linear can read and write columns of a wider buffer (q of packed q|k|v), and
// results may be added to what the output holds:
//     GxLinearShape s = gx_linear_shape(R, In, Out, GX_BF16);
//     gx_linear_forward(g, y, x, w, NULL, &s);                  // y = x W^T
//     s.accumulate = 1, s.y_stride = 3 * Out;
//     gx_linear_forward(g, qkv, x, w, NULL, &s);                // the first third of each row += x W^T
// Numerics: a bf16 result is an fp32 sum, including the bias and what it is added to, rounded once.
#ifndef GX_LINEAR_H
#define GX_LINEAR_H
#include "device.h"
GX_BEGIN

struct GxLinearShape {
    int64_t R, In, Out;         // x is [R,In], w [Out,In] without gaps, y [R,Out]; likewise dx, dw and dy
    int64_t x_stride, y_stride; // elements from one row of x (dx) and of y (dy) to the next; 0: In and Out
    int accumulate;             // 1: results are added to the output; 0: they overwrite it
    GxDtype dtype;              // of x, w, bias, y, dx, dy
    float scale;                // multiplies products, in fp32, but not biases; 0: 1
};
static inline GxLinearShape gx_linear_shape(int64_t R, int64_t In, int64_t Out, GxDtype dtype) // no gaps
{
    GxLinearShape s = {R, In, Out, 0, 0, 0, dtype, 1};
    return s;
}

// y[r,o] = (accumulate ? y[r,o] : 0) + scale * sum_i x[r,i]*w[o,i] + bias[o]. bias [Out] or NULL. FLOPs: 2*R*In*Out
void gx_linear_forward(GxContext *g, void *y, const void *x, const void *w, const void *bias, const GxLinearShape *s);

// dx[r,i] = (accumulate ? dx[r,i] : 0) + scale * sum_o dy[r,o]*w[o,i]. FLOPs: 2*R*In*Out
void gx_linear_backward_input(GxContext *g, void *dx, const void *dy, const void *w, const GxLinearShape *s);

// dw[o,i] = (accumulate ? dw[o,i] : 0) + scale * sum_r dy[r,o]*x[r,i]; dbias[o] = (accumulate ? dbias[o] : 0) + sum_r
// dy[r,o]. fp32, without gaps; NULL: not needed. FLOPs: 2*R*In*Out
void gx_linear_backward_weight(GxContext *g, float *dw, float *dbias, const void *dy, const void *x,
                               const GxLinearShape *s);

enum { GX_LINEAR_BLOCK = 64 }; // rows whose share of dbias is summed together; blocks are then summed in order

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_LINEAR_IMPLEMENTED)
#define GX_LINEAR_IMPLEMENTED

// 1: go on; *full is *s with both strides and the scale.
static int gx__linear_check(GxContext *g, const char *name, const GxLinearShape *s, GxLinearShape *full)
{
    *full = *s;
    if (s->x_stride == 0) full->x_stride = s->In;
    if (s->y_stride == 0) full->y_stride = s->Out;
    if (s->scale == 0) full->scale = 1;
    if (!gx_op_check(g, name, s->dtype, s->R, gx_min(s->In, s->Out))) return 0;
    if (full->x_stride >= s->In && full->y_stride >= s->Out) return 1;
    const int is_x = full->x_stride < s->In;
    GX_FAIL(&g->error, GX_ERR_ARGUMENT,
            "%s: rows of %ld elements have a stride of %ld (%s); it must be at least %ld, or 0: no gaps", name,
            (long)(is_x ? s->In : s->Out), (long)(is_x ? s->x_stride : s->y_stride), is_x ? "x_stride" : "y_stride",
            (long)(is_x ? s->In : s->Out));
    return 0;
}

// added_to: elements of the output that are read because the result is added to them
static int64_t gx__linear_bytes(const GxLinearShape *s, int64_t added_to)
{
    return (s->R * s->In + s->In * s->Out + s->R * s->Out + added_to) * gx_dtype_size(s->dtype);
}
static double gx__linear_flops(const GxLinearShape *s) { return 2.0 * s->R * s->In * s->Out; }

void gx_linear_forward(GxContext *g, void *y, const void *x, const void *w, const void *bias, const GxLinearShape *s)
{
    GxLinearShape full;
    if (!gx__linear_check(g, "linear_forward", s, &full)) return;
    const int64_t block = gx_min(s->R, GX_LINEAR_BLOCK) * s->Out; // sums of y and bias in fp32, or an aligned bias
    GxArenaMark mark = gx_arena_mark(g->arena);
    void *scratch = bias && s->accumulate ? gx_scratch(g, GX_MEM_WORKSPACE, block * 4) : NULL;
    if (gx_op_begin(g, "linear_forward", gx_dims(s->R, s->In, s->Out, 0),
                    gx__linear_bytes(s, s->accumulate ? s->R * s->Out : 0), gx__linear_flops(s)))
        g->device->linear_forward(g, y, x, w, bias, &full, scratch);
    gx_arena_release(g->arena, mark);
}

void gx_linear_backward_input(GxContext *g, void *dx, const void *dy, const void *w, const GxLinearShape *s)
{
    GxLinearShape full;
    if (!gx__linear_check(g, "linear_backward_input", s, &full)) return;
    if (gx_op_begin(g, "linear_backward_input", gx_dims(s->R, s->In, s->Out, 0),
                    gx__linear_bytes(s, s->accumulate ? s->R * s->In : 0), gx__linear_flops(s)))
        g->device->linear_backward_input(g, dx, dy, w, &full);
}

void gx_linear_backward_weight(GxContext *g, float *dw, float *dbias, const void *dy, const void *x,
                               const GxLinearShape *s)
{
    GxLinearShape full;
    if ((!dw && !dbias) || !gx__linear_check(g, "linear_backward_weight", s, &full)) return;
    GxArenaMark mark = gx_arena_mark(g->arena);
    float *scratch =
        dbias ? (float *)gx_scratch(g, GX_MEM_WORKSPACE, gx_ceil_div(s->R, GX_LINEAR_BLOCK) * s->Out * 4) : NULL;
    if (gx_op_begin(g, "linear_backward_weight", gx_dims(s->R, s->In, s->Out, 0), gx__linear_bytes(s, 0),
                    dw ? gx__linear_flops(s) : 0))
        g->device->linear_backward_weight(g, dw, dbias, dy, x, &full, scratch);
    gx_arena_release(g->arena, mark);
}
#endif
