// cpu/linear.h: ops/linear.h on the CPU: three matrix products and a column sum.
#ifndef GX_CPU_LINEAR_H
#define GX_CPU_LINEAR_H
#include "../ops/linear.h"
GX_BEGIN

void gx_cpu_linear_forward(GxContext *g, void *y, const void *x, const void *w, const void *bias, int64_t R, int64_t In,
                           int64_t Out, GxDtype dtype);
void gx_cpu_linear_backward_input(GxContext *g, void *dx, const void *dy, const void *w, int64_t R, int64_t In,
                                  int64_t Out, GxDtype dtype);
void gx_cpu_linear_backward_weight(GxContext *g, float *dw, float *dbias, const void *dy, const void *x, int64_t R,
                                   int64_t In, int64_t Out, int accumulate, GxDtype dtype, float *scratch);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CPU_LINEAR_IMPLEMENTED)
#define GX_CPU_LINEAR_IMPLEMENTED
#include <string.h>
#include "gemm.h"
#include "vec.h"

void gx_cpu_linear_forward(GxContext *g, void *y, const void *x, const void *w, const void *bias, int64_t R, int64_t In,
                           int64_t Out, GxDtype dtype)
{
    if (bias) { // every row begins as the bias, the product is added
        GX_OMP(parallel for schedule(static) num_threads(gx_threads(g)))
        for (int64_t r = 0; r < R; r++)
            memcpy(gx_cpu_at(y, r * Out, dtype), bias, (size_t)(Out * gx_dtype_size(dtype)));
    }
    GxGemm p = {0, 1, R, Out, In, 1, bias ? 1.0f : 0.0f, x, w, In, In, y, Out, dtype, dtype};
    gx_cpu_gemm(&p, gx_threads(g), &g->error);
}

void gx_cpu_linear_backward_input(GxContext *g, void *dx, const void *dy, const void *w, int64_t R, int64_t In,
                                  int64_t Out, GxDtype dtype)
{
    GxGemm p = {0, 0, R, In, Out, 1, 0, dy, w, Out, In, dx, In, dtype, dtype};
    gx_cpu_gemm(&p, gx_threads(g), &g->error);
}

static GX_CPU_INLINE void gx__cpu_column_sum_rows(float *part, const void *x, int64_t rows, int64_t C, GxDtype dtype)
{
    for (int64_t r = 0; r < rows; r++) {
        GX_OMP(simd)
        for (int64_t c = 0; c < C; c++) part[c] += gx_cpu_load(x, r * C + c, dtype);
    }
}

static void gx__cpu_column_sum(GxContext *g, float *sum, const void *x, int64_t R, int64_t C, int accumulate,
                               GxDtype dtype, float *scratch)
{
    (void)g;
    int64_t blocks = gx_ceil_div(R, GX_LINEAR_BLOCK);
    GX_OMP(parallel for schedule(static) num_threads(gx_threads(g)))
    for (int64_t b = 0; b < blocks; b++) {
        const int64_t row = b * GX_LINEAR_BLOCK, rows = gx_min(GX_LINEAR_BLOCK, R - row);
        memset(scratch + b * C, 0, (size_t)C * 4);
        GX_CPU_TYPES(dtype, gx__cpu_column_sum_rows, scratch + b * C, gx_cpu_from(x, row * C, dtype), rows, C);
    }
    if (!accumulate) memset(sum, 0, (size_t)C * 4);
    for (int64_t b = 0; b < blocks; b++) {
        GX_OMP(simd)
        for (int64_t c = 0; c < C; c++) sum[c] += scratch[b * C + c];
    }
}

void gx_cpu_linear_backward_weight(GxContext *g, float *dw, float *dbias, const void *dy, const void *x, int64_t R,
                                   int64_t In, int64_t Out, int accumulate, GxDtype dtype, float *scratch)
{
    if (dbias) gx__cpu_column_sum(g, dbias, dy, R, Out, accumulate, dtype, scratch);
    if (!dw) return;
    GxGemm p = {1, 0, Out, In, R, 1, accumulate ? 1.0f : 0.0f, dy, x, Out, In, dw, In, dtype, GX_F32};
    gx_cpu_gemm(&p, gx_threads(g), &g->error);
}
#endif
