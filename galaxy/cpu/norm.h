// cpu/norm.h: ops/norm.h on the CPU.
#ifndef GX_CPU_NORM_H
#define GX_CPU_NORM_H
#include "../ops/norm.h"
GX_BEGIN

void gx_cpu_rms_norm_forward(GxContext *g, void *y, float *rstd, const void *x, const void *w, int64_t R, int64_t C,
                             float eps, GxDtype dtype);
void gx_cpu_add_rms_norm_forward(GxContext *g, void *sum, void *y, float *rstd, const void *x, const void *a,
                                 const void *w, int64_t R, int64_t C, float eps, GxDtype dtype);
void gx_cpu_rms_norm_backward(GxContext *g, void *dx, float *dw, const void *dy, const void *dresidual, const void *x,
                              const float *rstd, const void *w, int64_t R, int64_t C, int accumulate, GxDtype dtype,
                              float *scratch);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CPU_NORM_IMPLEMENTED)
#define GX_CPU_NORM_IMPLEMENTED
#include <math.h>
#include <string.h>
#include "elementwise.h"
#include "vec.h"

// y[c] = x[c] * rstd * w[c],  rstd = 1/sqrt(mean_c x[c]^2 + eps)
static GX_CPU_INLINE void gx__cpu_rms_norm_row(void *y, float *rstd, const void *x, const void *w, int64_t C, float eps,
                                               GxDtype dtype)
{
    float squares = 0;
    GX_OMP(simd reduction(+ : squares))
    for (int64_t c = 0; c < C; c++) squares += gx_cpu_load(x, c, dtype) * gx_cpu_load(x, c, dtype);
    float r = 1.0f / sqrtf(squares / (float)C + eps);
    GX_OMP(simd)
    for (int64_t c = 0; c < C; c++) gx_cpu_store(y, c, gx_cpu_load(x, c, dtype) * r * gx_cpu_load(w, c, dtype), dtype);
    *rstd = r;
}

void gx_cpu_rms_norm_forward(GxContext *g, void *y, float *rstd, const void *x, const void *w, int64_t R, int64_t C,
                             float eps, GxDtype dtype)
{
    (void)g;
    GX_OMP(parallel for schedule(static) num_threads(gx_threads(g)))
    for (int64_t r = 0; r < R; r++)
        GX_CPU_TYPES(dtype, gx__cpu_rms_norm_row, gx_cpu_at(y, r * C, dtype), rstd + r, gx_cpu_from(x, r * C, dtype), w,
                     C, eps);
}

// sum = x + a, y = rms_norm(sum): the norm is that of the sum as it is stored, which the backward will read.
static GX_CPU_INLINE void gx__cpu_add_rms_norm_row(void *sum, void *y, float *rstd, const void *x, const void *a,
                                                   const void *w, int64_t C, float eps, GxDtype dtype)
{
    gx__cpu_add_range(sum, x, a, C, dtype);
    gx__cpu_rms_norm_row(y, rstd, sum, w, C, eps, dtype);
}

void gx_cpu_add_rms_norm_forward(GxContext *g, void *sum, void *y, float *rstd, const void *x, const void *a,
                                 const void *w, int64_t R, int64_t C, float eps, GxDtype dtype)
{
    (void)g;
    GX_OMP(parallel for schedule(static) num_threads(gx_threads(g)))
    for (int64_t r = 0; r < R; r++)
        GX_CPU_TYPES(dtype, gx__cpu_add_rms_norm_row, gx_cpu_at(sum, r * C, dtype), gx_cpu_at(y, r * C, dtype),
                     rstd + r, gx_cpu_from(x, r * C, dtype), gx_cpu_from(a, r * C, dtype), w, C, eps);
}

// rstd*w*dy less k*x: what the norm's own part of dx is.
static GX_CPU_INLINE float gx__cpu_rms_norm_dx(const void *dy, const void *x, const void *w, int64_t c, float rstd,
                                               float k, GxDtype dtype)
{
    return gx_cpu_load(dy, c, dtype) * gx_cpu_load(w, c, dtype) * rstd - gx_cpu_load(x, c, dtype) * k;
}

// dx[c]  = dresidual[c] + dy[c]*w[c]*rstd - x[c]*k,  k = rstd^3/C * sum_j dy[j]*w[j]*x[j]
// dw[c] += dy[c]*x[c]*rstd
static GX_CPU_INLINE void gx__cpu_rms_norm_backward_row(void *dx, float *dw, const void *dy, const void *dresidual,
                                                        const void *x, float rstd, const void *w, int64_t C,
                                                        GxDtype dtype)
{
    float dot = 0;
    GX_OMP(simd reduction(+ : dot))
    for (int64_t c = 0; c < C; c++)
        dot += gx_cpu_load(dy, c, dtype) * gx_cpu_load(w, c, dtype) * gx_cpu_load(x, c, dtype);
    if (dw) {
        GX_OMP(simd)
        for (int64_t c = 0; c < C; c++) dw[c] += gx_cpu_load(dy, c, dtype) * gx_cpu_load(x, c, dtype) * rstd;
    }
    float k = dot * rstd * rstd * rstd / (float)C;
    if (dresidual) {
        GX_OMP(simd)
        for (int64_t c = 0; c < C; c++)
            gx_cpu_store(dx, c, gx_cpu_load(dresidual, c, dtype) + gx__cpu_rms_norm_dx(dy, x, w, c, rstd, k, dtype),
                         dtype);
    } else {
        GX_OMP(simd)
        for (int64_t c = 0; c < C; c++) gx_cpu_store(dx, c, gx__cpu_rms_norm_dx(dy, x, w, c, rstd, k, dtype), dtype);
    }
}

// The rows of a block give a share of dw each; dw is the shares' sum, in order.
void gx_cpu_rms_norm_backward(GxContext *g, void *dx, float *dw, const void *dy, const void *dresidual, const void *x,
                              const float *rstd, const void *w, int64_t R, int64_t C, int accumulate, GxDtype dtype,
                              float *scratch)
{
    (void)g;
    int64_t blocks = gx_ceil_div(R, GX_NORM_BLOCK);
    GX_OMP(parallel for schedule(static) num_threads(gx_threads(g)))
    for (int64_t b = 0; b < blocks; b++) {
        float *part = dw ? scratch + b * C : NULL;
        if (part) memset(part, 0, (size_t)C * 4);
        for (int64_t r = b * GX_NORM_BLOCK; r < gx_min(R, (b + 1) * GX_NORM_BLOCK); r++)
            GX_CPU_TYPES(dtype, gx__cpu_rms_norm_backward_row, gx_cpu_at(dx, r * C, dtype), part,
                         gx_cpu_from(dy, r * C, dtype), gx_cpu_from(dresidual, r * C, dtype),
                         gx_cpu_from(x, r * C, dtype), rstd[r], w, C);
    }
    if (!dw) return;
    if (!accumulate) memset(dw, 0, (size_t)C * 4);
    for (int64_t b = 0; b < blocks; b++) {
        GX_OMP(simd)
        for (int64_t c = 0; c < C; c++) dw[c] += scratch[b * C + c];
    }
}
#endif
