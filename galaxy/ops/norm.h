// norm.h: RMSNorm (Zhang & Sennrich 2019, arXiv:1910.07467), by itself, fused with the residual addition before it, and
// of each head of a row; and layer norm (Ba et al. 2016, arXiv:1607.06450), which ops/residual.h fuses with the
// operations before it.
#ifndef GX_NORM_H
#define GX_NORM_H
#include "device.h"
GX_BEGIN

// y[r,c] = x[r,c] * rstd[r] * (w[c] + offset),  rstd[r] = 1/sqrt(mean_c x[r,c]^2 + eps)
// offset: 0, or 1 in Gemma, whose weights are around 0; the sum is not rounded to w's type. In the formulas below w is
// w + offset. x, y [R,C], w [C], rstd [R] fp32 (kept for the backward). bytes: 2*R*C*size; FLOPs: 4*R*C
void gx_rms_norm_forward(GxContext *g, void *y, float *rstd, const void *x, const void *w, float offset, int64_t R,
                         int64_t C, float eps, GxDtype dtype);

// sum = x + a, y = rms_norm(sum). sum may be x or a. bytes: 4*R*C*size; FLOPs: 5*R*C
void gx_add_rms_norm_forward(GxContext *g, void *sum, void *y, float *rstd, const void *x, const void *a, const void *w,
                             float offset, int64_t R, int64_t C, float eps, GxDtype dtype);

// dx[r,c] = dresidual[r,c] + rstd[r]*w[c]*dy[r,c] - x[r,c]*rstd[r]^3/C * sum_j dy[r,j]*w[j]*x[r,j]
// dw[c]   = (accumulate ? dw[c] : 0) + sum_r dy[r,c]*x[r,c]*rstd[r]
// dresidual: the gradient that reaches x through the bypass; NULL: none; it may be dx. dw NULL: not needed.
// bytes: 4*R*C*size; FLOPs: 10*R*C
void gx_rms_norm_backward(GxContext *g, void *dx, float *dw, const void *dy, const void *dresidual, const void *x,
                          const float *rstd, const void *w, float offset, int64_t R, int64_t C, int accumulate,
                          GxDtype dtype);

// Heads side by side in rows that also hold other columns, as attention's q and k do.
typedef struct GxHeadNorm {
    int64_t R, heads, head_dim;
    int64_t stride;      // elements from one row of x to the next; at least heads*head_dim
    int64_t kept_stride; // of kept; likewise
    float eps;
    GxDtype dtype;
    float offset; // as in rms_norm_forward
} GxHeadNorm;

// RMSNorm of each head, in place: kept = x, x[r,k,c] = kept[r,k,c] * rstd[r,k] * w[c],
// rstd[r,k] = 1/sqrt(mean_c kept[r,k,c]^2 + eps). x, kept [R,heads,head_dim] with rows `stride`, `kept_stride` apart;
// w [head_dim]: all heads have the same; rstd [R,heads] fp32. The backward reads kept and rstd: x cannot be recomputed
// from its norm, since w may be 0. bytes: 3*R*heads*head_dim*size; FLOPs: 4*R*heads*head_dim
void gx_head_norm_forward(GxContext *g, void *x, void *kept, float *rstd, const void *w, const GxHeadNorm *s);

// dx, in place: on entry it holds the gradient of the norm's result, dy. With x for kept,
// dx[r,k,c] = rstd[r,k]*w[c]*dy[r,k,c] - x[r,k,c]*rstd[r,k]^3/head_dim * sum_j dy[r,k,j]*w[j]*x[r,k,j]
// dw[c]     = (accumulate ? dw[c] : 0) + sum_r sum_k dy[r,k,c]*x[r,k,c]*rstd[r,k]
// dx's rows are `stride` apart. dw NULL: not needed. bytes: 3*R*heads*head_dim*size; FLOPs: 10*R*heads*head_dim
void gx_head_norm_backward(GxContext *g, void *dx, float *dw, const void *kept, const float *rstd, const void *w,
                           const GxHeadNorm *s, int accumulate);

// y[r,c] = (x[r,c] - mean[r]) * rstd[r] * w[c] + b[c],  rstd[r] = 1/sqrt(mean_c (x[r,c] - mean[r])^2 + eps)
// x, y [R,C], w, b [C]; mean, rstd [R] fp32 (kept for the backward; NULL: not needed). y may be x. The variance is
// computed after the mean is subtracted, not as the difference of two large sums. bytes: 2*R*C*size; FLOPs: 7*R*C
void gx_layer_norm_forward(GxContext *g, void *y, float *mean, float *rstd, const void *x, const void *w, const void *b,
                           int64_t R, int64_t C, float eps, GxDtype dtype);

// With n[r,c] = (x[r,c] - mean[r]) * rstd[r] and d[r,c] = dy[r,c]*w[c]:
// dx[r,c] = rstd[r] * (d[r,c] - 1/C * sum_j d[r,j] - n[r,c]/C * sum_j d[r,j]*n[r,j])
// dw[c]   = (accumulate ? dw[c] : 0) + sum_r dy[r,c]*n[r,c]
// db[c]   = (accumulate ? db[c] : 0) + sum_r dy[r,c]
// dx may be dy. dx, dw, db NULL: not needed. bytes: 3*R*C*size; FLOPs: 14*R*C
void gx_layer_norm_backward(GxContext *g, void *dx, float *dw, float *db, const void *dy, const void *x,
                            const float *mean, const float *rstd, const void *w, int64_t R, int64_t C, int accumulate,
                            GxDtype dtype);

// Rows whose share of dw (of db, of a bias's gradient) is summed together; the blocks' shares are then summed in order.
enum { GX_NORM_BLOCK = 16 };

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_NORM_IMPLEMENTED)
#define GX_NORM_IMPLEMENTED

void gx_rms_norm_forward(GxContext *g, void *y, float *rstd, const void *x, const void *w, float offset, int64_t R,
                         int64_t C, float eps, GxDtype dtype)
{
    if (!gx_op_check(g, "rms_norm_forward", dtype, R, C)) return;
    if (gx_op_begin(g, "rms_norm_forward", gx_dims(R, C, 0, 0), 2 * R * C * gx_dtype_size(dtype), 4.0 * R * C))
        g->device->rms_norm_forward(g, y, rstd, x, w, offset, R, C, eps, dtype);
}

void gx_add_rms_norm_forward(GxContext *g, void *sum, void *y, float *rstd, const void *x, const void *a, const void *w,
                             float offset, int64_t R, int64_t C, float eps, GxDtype dtype)
{
    if (!gx_op_check(g, "add_rms_norm_forward", dtype, R, C)) return;
    if (gx_op_begin(g, "add_rms_norm_forward", gx_dims(R, C, 0, 0), 4 * R * C * gx_dtype_size(dtype), 5.0 * R * C))
        g->device->add_rms_norm_forward(g, sum, y, rstd, x, a, w, offset, R, C, eps, dtype);
}

void gx_rms_norm_backward(GxContext *g, void *dx, float *dw, const void *dy, const void *dresidual, const void *x,
                          const float *rstd, const void *w, float offset, int64_t R, int64_t C, int accumulate,
                          GxDtype dtype)
{
    if (!gx_op_check(g, "rms_norm_backward", dtype, R, C)) return;
    GxArenaMark mark = gx_arena_mark(g->arena);
    float *scratch = dw ? (float *)gx_scratch(g, GX_MEM_WORKSPACE, gx_ceil_div(R, GX_NORM_BLOCK) * C * 4) : NULL;
    if (gx_op_begin(g, "rms_norm_backward", gx_dims(R, C, 0, 0), 4 * R * C * gx_dtype_size(dtype), 10.0 * R * C))
        g->device->rms_norm_backward(g, dx, dw, dy, dresidual, x, rstd, w, offset, R, C, accumulate, dtype, scratch);
    gx_arena_release(g->arena, mark);
}

static int gx__head_norm_check(GxContext *g, const char *name, const GxHeadNorm *s)
{
    const int64_t width = s->heads * s->head_dim;
    if (!gx_op_check(g, name, s->dtype, s->R, s->heads)) return 0;
    if (s->head_dim >= 1 && s->stride >= width && s->kept_stride >= width) return 1;
    GX_FAIL(&g->error, GX_ERR_ARGUMENT,
            "%s: %ld heads of %ld elements, in rows that are %ld apart, kept in rows %ld apart; a head has at least 1 "
            "element, and no row is shorter than its heads",
            name, (long)s->heads, (long)s->head_dim, (long)s->stride, (long)s->kept_stride);
    return 0;
}

void gx_head_norm_forward(GxContext *g, void *x, void *kept, float *rstd, const void *w, const GxHeadNorm *s)
{
    const int64_t n = s->R * s->heads * s->head_dim;
    if (!gx__head_norm_check(g, "head_norm_forward", s)) return;
    if (gx_op_begin(g, "head_norm_forward", gx_dims(s->R, s->heads, s->head_dim, 0), 3 * n * gx_dtype_size(s->dtype),
                    4.0 * (double)n))
        g->device->head_norm_forward(g, x, kept, rstd, w, s);
}

void gx_head_norm_backward(GxContext *g, void *dx, float *dw, const void *kept, const float *rstd, const void *w,
                           const GxHeadNorm *s, int accumulate)
{
    const int64_t n = s->R * s->heads * s->head_dim, blocks = gx_ceil_div(s->R, GX_NORM_BLOCK);
    if (!gx__head_norm_check(g, "head_norm_backward", s)) return;
    GxArenaMark mark = gx_arena_mark(g->arena);
    float *scratch = dw ? (float *)gx_scratch(g, GX_MEM_WORKSPACE, blocks * s->head_dim * 4) : NULL;
    if (gx_op_begin(g, "head_norm_backward", gx_dims(s->R, s->heads, s->head_dim, 0), 3 * n * gx_dtype_size(s->dtype),
                    10.0 * (double)n))
        g->device->head_norm_backward(g, dx, dw, kept, rstd, w, s, accumulate, scratch);
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
