// norm.h: RMSNorm (Zhang & Sennrich 2019, arXiv:1910.07467), alone and fused with the residual addition before it, and
// layer norm (Ba et al. 2016, arXiv:1607.06450), which ops/residual.h fuses with what is before it.
#ifndef GX_NORM_H
#define GX_NORM_H
#include "device.h"
GX_BEGIN

// y[r,c] = x[r,c] * rstd[r] * w[c],  rstd[r] = 1/sqrt(mean_c x[r,c]^2 + eps)
// x, y [R,C], w [C], rstd [R] fp32 (kept for the backward). bytes: 2*R*C*size; FLOPs: 4*R*C
void gx_rms_norm_forward(GxContext *g, void *y, float *rstd, const void *x, const void *w, int64_t R, int64_t C,
                         float eps, GxDtype dtype);

// sum = x + a, y = rms_norm(sum). sum may be x or a. bytes: 4*R*C*size; FLOPs: 5*R*C
void gx_add_rms_norm_forward(GxContext *g, void *sum, void *y, float *rstd, const void *x, const void *a, const void *w,
                             int64_t R, int64_t C, float eps, GxDtype dtype);

// dx[r,c] = dresidual[r,c] + rstd[r]*w[c]*dy[r,c] - x[r,c]*rstd[r]^3/C * sum_j dy[r,j]*w[j]*x[r,j]
// dw[c]   = (accumulate ? dw[c] : 0) + sum_r dy[r,c]*x[r,c]*rstd[r]
// dresidual: the gradient that reaches x on the way around the norm; NULL: none; it may be dx. dw NULL: not wanted.
// bytes: 4*R*C*size; FLOPs: 10*R*C
void gx_rms_norm_backward(GxContext *g, void *dx, float *dw, const void *dy, const void *dresidual, const void *x,
                          const float *rstd, const void *w, int64_t R, int64_t C, int accumulate, GxDtype dtype);

// y[r,c] = (x[r,c] - mean[r]) * rstd[r] * w[c] + b[c],  rstd[r] = 1/sqrt(mean_c (x[r,c] - mean[r])^2 + eps)
// x, y [R,C], w, b [C]; mean, rstd [R] fp32 (kept for the backward; NULL: not wanted). y may be x. The variance is that
// of what is left when the mean is subtracted, not the difference of two large sums. bytes: 2*R*C*size; FLOPs: 7*R*C
void gx_layer_norm_forward(GxContext *g, void *y, float *mean, float *rstd, const void *x, const void *w, const void *b,
                           int64_t R, int64_t C, float eps, GxDtype dtype);

// With n[r,c] = (x[r,c] - mean[r]) * rstd[r] and d[r,c] = dy[r,c]*w[c]:
// dx[r,c] = rstd[r] * (d[r,c] - 1/C * sum_j d[r,j] - n[r,c]/C * sum_j d[r,j]*n[r,j])
// dw[c]   = (accumulate ? dw[c] : 0) + sum_r dy[r,c]*n[r,c]
// db[c]   = (accumulate ? db[c] : 0) + sum_r dy[r,c]
// dx may be dy. dx, dw, db NULL: not wanted. bytes: 3*R*C*size; FLOPs: 14*R*C
void gx_layer_norm_backward(GxContext *g, void *dx, float *dw, float *db, const void *dy, const void *x,
                            const float *mean, const float *rstd, const void *w, int64_t R, int64_t C, int accumulate,
                            GxDtype dtype);

// Rows whose share of dw (of db, of a bias's gradient) is summed together; blocks are then summed in order.
enum { GX_NORM_BLOCK = 16 };

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_NORM_IMPLEMENTED)
#define GX_NORM_IMPLEMENTED

void gx_rms_norm_forward(GxContext *g, void *y, float *rstd, const void *x, const void *w, int64_t R, int64_t C,
                         float eps, GxDtype dtype)
{
    if (!gx_op_check(g, "rms_norm_forward", dtype, R, C)) return;
    if (gx_op_begin(g, "rms_norm_forward", gx_dims(R, C, 0, 0), 2 * R * C * gx_dtype_size(dtype), 4.0 * R * C))
        g->device->rms_norm_forward(g, y, rstd, x, w, R, C, eps, dtype);
}

void gx_add_rms_norm_forward(GxContext *g, void *sum, void *y, float *rstd, const void *x, const void *a, const void *w,
                             int64_t R, int64_t C, float eps, GxDtype dtype)
{
    if (!gx_op_check(g, "add_rms_norm_forward", dtype, R, C)) return;
    if (gx_op_begin(g, "add_rms_norm_forward", gx_dims(R, C, 0, 0), 4 * R * C * gx_dtype_size(dtype), 5.0 * R * C))
        g->device->add_rms_norm_forward(g, sum, y, rstd, x, a, w, R, C, eps, dtype);
}

void gx_rms_norm_backward(GxContext *g, void *dx, float *dw, const void *dy, const void *dresidual, const void *x,
                          const float *rstd, const void *w, int64_t R, int64_t C, int accumulate, GxDtype dtype)
{
    if (!gx_op_check(g, "rms_norm_backward", dtype, R, C)) return;
    GxArenaMark mark = gx_arena_mark(g->arena);
    float *scratch = dw ? (float *)gx_scratch(g, GX_MEM_WORKSPACE, gx_ceil_div(R, GX_NORM_BLOCK) * C * 4) : NULL;
    if (gx_op_begin(g, "rms_norm_backward", gx_dims(R, C, 0, 0), 4 * R * C * gx_dtype_size(dtype), 10.0 * R * C))
        g->device->rms_norm_backward(g, dx, dw, dy, dresidual, x, rstd, w, R, C, accumulate, dtype, scratch);
    gx_arena_release(g->arena, mark);
}

void gx_layer_norm_forward(GxContext *g, void *y, float *mean, float *rstd, const void *x, const void *w, const void *b,
                           int64_t R, int64_t C, float eps, GxDtype dtype)
{
    if (!gx_op_check(g, "layer_norm_forward", dtype, R, C)) return;
    if (gx_op_begin(g, "layer_norm_forward", gx_dims(R, C, 0, 0), 2 * R * C * gx_dtype_size(dtype), 7.0 * R * C))
        g->device->layer_norm_forward(g, y, mean, rstd, x, w, b, R, C, eps, dtype);
}

void gx_layer_norm_backward(GxContext *g, void *dx, float *dw, float *db, const void *dy, const void *x,
                            const float *mean, const float *rstd, const void *w, int64_t R, int64_t C, int accumulate,
                            GxDtype dtype)
{
    if (!gx_op_check(g, "layer_norm_backward", dtype, R, C)) return;
    GxArenaMark mark = gx_arena_mark(g->arena);
    const int64_t shares = (dw ? 1 : 0) + (db ? 1 : 0);
    float *scratch =
        shares ? (float *)gx_scratch(g, GX_MEM_WORKSPACE, shares * gx_ceil_div(R, GX_NORM_BLOCK) * C * 4) : NULL;
    if (gx_op_begin(g, "layer_norm_backward", gx_dims(R, C, 0, 0), 3 * R * C * gx_dtype_size(dtype), 14.0 * R * C))
        g->device->layer_norm_backward(g, dx, dw, db, dy, x, mean, rstd, w, R, C, accumulate, dtype, scratch);
    gx_arena_release(g->arena, mark);
}
#endif
