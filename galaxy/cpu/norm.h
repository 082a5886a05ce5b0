// cpu/norm.h: ops/norm.h on the CPU.
#ifndef GX_CPU_NORM_H
#define GX_CPU_NORM_H
#include "../ops/norm.h"
GX_BEGIN

void gx_cpu_rms_norm_forward(GxContext *g, void *y, float *rstd, const void *x, const void *w, int64_t R, int64_t C, float eps,
                             GxDtype dtype);
void gx_cpu_add_rms_norm_forward(GxContext *g, void *sum, void *y, float *rstd, const void *x, const void *a, const void *w, int64_t R,
                                 int64_t C, float eps, GxDtype dtype);
void gx_cpu_rms_norm_backward(GxContext *g, void *dx, float *dw, const void *dy, const void *dresidual, const void *x, const float *rstd,
                              const void *w, int64_t R, int64_t C, int accumulate, GxDtype dtype, float *scratch);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CPU_NORM_IMPLEMENTED)
#define GX_CPU_NORM_IMPLEMENTED
#include <math.h>
#include <string.h>

static void gx__rms_norm_row(float *y, float *rstd, const float *x, const float *w, int64_t C, float eps)
{
    float squares = 0;
    GX_OMP(simd reduction(+ : squares))
    for (int64_t c = 0; c < C; c++) squares += x[c] * x[c];
    float r = 1.0f / sqrtf(squares / (float)C + eps);
    GX_OMP(simd)
    for (int64_t c = 0; c < C; c++) y[c] = x[c] * r * w[c];
    *rstd = r;
}

void gx_cpu_rms_norm_forward(GxContext *g, void *y, float *rstd, const void *x, const void *w, int64_t R, int64_t C, float eps,
                             GxDtype dtype)
{
    (void)g, (void)dtype;
    GX_OMP(parallel for schedule(static) num_threads(gx_threads(g)))
    for (int64_t r = 0; r < R; r++) gx__rms_norm_row((float *)y + r * C, rstd + r, (const float *)x + r * C, (const float *)w, C, eps);
}

void gx_cpu_add_rms_norm_forward(GxContext *g, void *sum, void *y, float *rstd, const void *x, const void *a, const void *w, int64_t R,
                                 int64_t C, float eps, GxDtype dtype)
{
    (void)g, (void)dtype;
    GX_OMP(parallel for schedule(static) num_threads(gx_threads(g)))
    for (int64_t r = 0; r < R; r++) {
        float *s = (float *)sum + r * C;
        const float *l = (const float *)x + r * C, *m = (const float *)a + r * C;
        GX_OMP(simd)
        for (int64_t c = 0; c < C; c++) s[c] = l[c] + m[c];
        gx__rms_norm_row((float *)y + r * C, rstd + r, s, (const float *)w, C, eps);
    }
}

static void gx__rms_norm_backward_row(float *dx, float *dw, const float *dy, const float *dresidual, const float *x, float rstd,
                                      const float *w, int64_t C)
{
    float dot = 0;
    GX_OMP(simd reduction(+ : dot))
    for (int64_t c = 0; c < C; c++) dot += dy[c] * w[c] * x[c];
    if (dw) {
        GX_OMP(simd)
        for (int64_t c = 0; c < C; c++) dw[c] += dy[c] * x[c] * rstd;
    }
    float k = dot * rstd * rstd * rstd / (float)C;
    if (dresidual) {
        GX_OMP(simd)
        for (int64_t c = 0; c < C; c++) dx[c] = dresidual[c] + (dy[c] * w[c] * rstd - x[c] * k);
    } else {
        GX_OMP(simd)
        for (int64_t c = 0; c < C; c++) dx[c] = dy[c] * w[c] * rstd - x[c] * k;
    }
}

void gx_cpu_rms_norm_backward(GxContext *g, void *dx, float *dw, const void *dy, const void *dresidual, const void *x, const float *rstd,
                              const void *w, int64_t R, int64_t C, int accumulate, GxDtype dtype, float *scratch)
{
    (void)g, (void)dtype;
    int64_t blocks = gx_ceil_div(R, GX_NORM_BLOCK);
    GX_OMP(parallel for schedule(static) num_threads(gx_threads(g)))
    for (int64_t b = 0; b < blocks; b++) {
        float *part = dw ? scratch + b * C : NULL;
        if (part) memset(part, 0, (size_t)C * 4);
        for (int64_t r = b * GX_NORM_BLOCK; r < gx_min(R, (b + 1) * GX_NORM_BLOCK); r++)
            gx__rms_norm_backward_row((float *)dx + r * C, part, (const float *)dy + r * C,
                                      dresidual ? (const float *)dresidual + r * C : NULL, (const float *)x + r * C, rstd[r],
                                      (const float *)w, C);
    }
    if (!dw) return;
    if (!accumulate) memset(dw, 0, (size_t)C * 4);
    for (int64_t b = 0; b < blocks; b++) {
        GX_OMP(simd)
        for (int64_t c = 0; c < C; c++) dw[c] += scratch[b * C + c];
    }
}
#endif
