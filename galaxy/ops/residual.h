// residual.h: joins a core's result to the stream in one pass: the bias of the core's last linear, dropout, the
// addition, and the layer norm after it (Vaswani et al. 2017, arXiv:1706.03762, section 5.4; Ba et al. 2016).
//
//     GxResidual r = GX_ZERO;
//     r.R = rows, r.C = cols, r.dtype = GX_F32;
//     r.bias = bias, r.w = w, r.b = b, r.eps = 1e-12f, r.dropout = dropout;
//     gx_residual_forward(g, y, sum, mean, rstd, x, out, &r);
//     ...
//     gx_residual_backward(g, dx, dout, dbias, dw, db, dy, sum, mean, rstd, &r, accumulate);
//
// The bias is added here, after the sum over ranks, so that it is added only once if each rank has a part of the
// linear. If rows are split over ranks, each rank passes its own, and r.dropout says which they are.
//
// Memory: the backward needs the sum as it was stored and two numbers per row, but not x, out or the mask.
// Numerics: what is computed in one pass stays in fp32 until it is stored, and each stored value is rounded once. The
// norm is of the stored sum. dout and dbias are computed from the unrounded dx.
#ifndef GX_RESIDUAL_H
#define GX_RESIDUAL_H
#include "dropout.h"
#include "norm.h"
GX_BEGIN

struct GxResidual {
    int64_t R, C;
    const void *bias;  // [C]; NULL: none
    const void *w, *b; // of the layer norm, [C] each; both NULL: no norm, y is the sum
    float eps;         // of the layer norm
    GxDropout dropout;
    GxDtype dtype;
};

// sum = x + dropout(out + bias), y = layer_norm(sum). x, out, sum, y [R,C], mean, rstd [R] fp32.
// sum may be x or out, and y may be x or out. sum NULL: not needed (without a backward); mean, rstd NULL: not needed;
// without a norm they are not written. Without a norm y is the sum; sum may be y or NULL, otherwise it is also written.
// bytes: 3*R*C*size, and R*C*size for a sum that is not y; FLOPs per element: 1, 1 with a bias, 1 with dropout, 7 with
// a norm
void gx_residual_forward(GxContext *g, void *y, void *sum, float *mean, float *rstd, const void *x, const void *out,
                         const GxResidual *r);

// dx = layer_norm'(dy) (without a norm dy), dout = dropout'(dx), dbias = sum_r dout; for dw, db see
// gx_layer_norm_backward. With `accumulate` dbias, dw, db [C] fp32 are added to; dbias sums dout before it is rounded.
// dx may be dy; dout may be dx if there is no dropout (otherwise GX_ERR_ARGUMENT). NULL: not needed. Without a norm
// sum, mean, rstd are not read, and dw, db must be NULL.
// bytes: (dy + dx + dout + sum with a norm)*R*C*size; FLOPs per element: 1 with a bias, 1 with dropout, 14 with a norm
void gx_residual_backward(GxContext *g, void *dx, void *dout, float *dbias, float *dw, float *db, const void *dy,
                          const void *sum, const float *mean, const float *rstd, const GxResidual *r, int accumulate);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_RESIDUAL_IMPLEMENTED)
#define GX_RESIDUAL_IMPLEMENTED

static int gx__residual_check(GxContext *g, const char *name, const GxResidual *r)
{
    if (!gx_op_check(g, name, r->dtype, r->R, r->C) || !gx_dropout_check(g, name, &r->dropout)) return 0;
    if (!r->w == !r->b) return 1;
    GX_FAIL(&g->error, GX_ERR_ARGUMENT,
            "%s: a layer norm with only w or only b; give both, or neither if the sum is not to be normed", name);
    return 0;
}

void gx_residual_forward(GxContext *g, void *y, void *sum, float *mean, float *rstd, const void *x, const void *out,
                         const GxResidual *r)
{
    if (!gx__residual_check(g, "residual_forward", r)) return;
    const int64_t n = r->R * r->C, size = gx_dtype_size(r->dtype);
    const double flops = 1.0 + (r->bias ? 1 : 0) + (r->dropout.p > 0 ? 1 : 0) + (r->w ? 7 : 0);
    if (gx_op_begin(g, "residual_forward", gx_dims(r->R, r->C, 0, 0), (sum && sum != y ? 4 : 3) * n * size,
                    flops * (double)n))
        g->device->residual_forward(g, y, sum, mean, rstd, x, out, r);
}

void gx_residual_backward(GxContext *g, void *dx, void *dout, float *dbias, float *dw, float *db, const void *dy,
                          const void *sum, const float *mean, const float *rstd, const GxResidual *r, int accumulate)
{
    if (!gx__residual_check(g, "residual_backward", r)) return;
    if (dout && dout == dx && r->dropout.p > 0) {
        GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                "residual_backward: dout is dx, but with dropout of p = %g they differ; give each its own buffer",
                (double)r->dropout.p);
        return;
    }
    if (!r->w && (dw || db)) {
        GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                "residual_backward: dw or db is wanted of a layer norm that is not there; give NULL, or w and b");
        return;
    }
    GxArenaMark mark = gx_arena_mark(g->arena);
    const int64_t n = r->R * r->C, shares = (dbias ? 1 : 0) + (dw ? 1 : 0) + (db ? 1 : 0);
    const int64_t buffers = 1 + (dx ? 1 : 0) + (dout && dout != dx ? 1 : 0) + (r->w ? 1 : 0);
    float *scratch =
        shares ? (float *)gx_scratch(g, GX_MEM_WORKSPACE, shares * gx_ceil_div(r->R, GX_NORM_BLOCK) * r->C * 4) : NULL;
    const double flops = (dbias ? 1.0 : 0) + (r->dropout.p > 0 ? 1 : 0) + (r->w ? 14 : 0);
    if (gx_op_begin(g, "residual_backward", gx_dims(r->R, r->C, 0, 0), buffers * n * gx_dtype_size(r->dtype),
                    flops * (double)n))
        g->device->residual_backward(g, dx, dout, dbias, dw, db, dy, sum, mean, rstd, r, accumulate, scratch);
    gx_arena_release(g->arena, mark);
}
#endif
