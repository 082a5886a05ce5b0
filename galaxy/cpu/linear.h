// cpu/linear.h: ops/linear.h on the CPU: three matrix products and a column sum.
#ifndef GX_CPU_LINEAR_H
#define GX_CPU_LINEAR_H
#include "../ops/linear.h"
GX_BEGIN

void gx_cpu_linear_forward(GxContext *g, void *y, const void *x, const void *w, const void *bias,
                           const GxLinearShape *s, void *scratch);
void gx_cpu_linear_backward_input(GxContext *g, void *dx, const void *dy, const void *w, const GxLinearShape *s);
void gx_cpu_linear_backward_weight(GxContext *g, float *dw, float *dbias, const void *dy, const void *x,
                                   const GxLinearShape *s, float *scratch);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CPU_LINEAR_IMPLEMENTED)
#define GX_CPU_LINEAR_IMPLEMENTED
#include <string.h>
#include "team.h"
#include "tune.h"
#include "vec.h"

// sum[r,o] = y[r,o] + bias[o], from fp32 or bf16 to fp32
static GX_CPU_INLINE void gx__cpu_bias_sum(float *sum, int64_t sum_stride, const void *y, const void *bias,
                                           int64_t rows, const GxLinearShape *s, GxDtype dtype)
{
    for (int64_t r = 0; r < rows; r++) {
        GX_OMP(simd)
        for (int64_t o = 0; o < s->Out; o++)
            sum[r * sum_stride + o] = gx_cpu_load(y, r * s->y_stride + o, dtype) + gx_cpu_load(bias, o, dtype);
    }
}
static void gx__cpu_round_row(uint16_t *y, const float *sum, int64_t n)
{
    GX_OMP(simd)
    for (int64_t i = 0; i < n; i++) y[i] = gx_to_bf16(sum[i]);
}

// y += x W^T + bias in bf16: some rows at a time in fp32 in `sum`, so that they are rounded only once.
static void gx__cpu_linear_add_rounded(GxContext *g, uint16_t *y, const uint16_t *x, const void *w, const void *bias,
                                       const GxLinearShape *s, float *sum)
{
    for (int64_t first = 0; first < s->R; first += GX_LINEAR_BLOCK) {
        const int64_t rows = gx_min(GX_LINEAR_BLOCK, s->R - first);
        uint16_t *to = y + first * s->y_stride;
        gx__cpu_bias_sum(sum, s->Out, to, bias, rows, s, GX_BF16);
        GxGemm p = {0, 1,           rows,  s->Out, s->In,  s->scale, 1,     x + first * s->x_stride,
                    w, s->x_stride, s->In, sum,    s->Out, GX_BF16,  GX_F32};
        gx_cpu_product(g, &p);
        if (gx_failed(g)) return;
        for (int64_t r = 0; r < rows; r++) gx__cpu_round_row(to + r * s->y_stride, sum + r * s->Out, s->Out);
    }
}

void gx_cpu_linear_forward(GxContext *g, void *y, const void *x, const void *w, const void *bias,
                           const GxLinearShape *s, void *scratch)
{
    if (bias && s->accumulate && s->dtype == GX_BF16) {
        gx__cpu_linear_add_rounded(g, (uint16_t *)y, (const uint16_t *)x, w, bias, s, (float *)scratch);
        return;
    }
    if (bias) { // every row is set to the bias, or the bias is added to it; then the product is added
        GX_OMP(parallel for schedule(static) num_threads(gx_cpu_team(g, s->R * s->Out)))
        for (int64_t r = 0; r < s->R; r++) {
            void *row = gx_cpu_at(y, r * s->y_stride, s->dtype);
            if (s->accumulate) gx__cpu_bias_sum((float *)row, 0, row, bias, 1, s, GX_F32);
            else memcpy(row, bias, (size_t)(s->Out * gx_dtype_size(s->dtype)));
        }
    }
    const float beta = bias || s->accumulate ? 1.0f : 0.0f;
    GxGemm p = {0, 1,           s->R,  s->Out, s->In,       s->scale, beta,    x,
                w, s->x_stride, s->In, y,      s->y_stride, s->dtype, s->dtype};
    gx_cpu_product(g, &p);
}

void gx_cpu_linear_backward_input(GxContext *g, void *dx, const void *dy, const void *w, const GxLinearShape *s)
{
    GxGemm p = {0,           0,     s->R, s->In,       s->Out,   s->scale, s->accumulate ? 1.0f : 0.0f, dy, w,
                s->y_stride, s->In, dx,   s->x_stride, s->dtype, s->dtype};
    gx_cpu_product(g, &p);
}

static GX_CPU_INLINE void gx__cpu_column_sum_rows(float *part, const void *x, int64_t rows, int64_t C, int64_t stride,
                                                  GxDtype dtype)
{
    for (int64_t r = 0; r < rows; r++) {
        GX_OMP(simd)
        for (int64_t c = 0; c < C; c++) part[c] += gx_cpu_load(x, r * stride + c, dtype);
    }
}

// dbias[o] = (accumulate ? dbias[o] : 0) + sum_r dy[r,o]
static void gx__cpu_column_sum(GxContext *g, float *sum, const void *dy, const GxLinearShape *s, float *scratch)
{
    (void)g;
    const int64_t blocks = gx_ceil_div(s->R, GX_LINEAR_BLOCK), C = s->Out;
    GX_OMP(parallel for schedule(static) num_threads(gx_cpu_team(g, s->R * C)))
    for (int64_t b = 0; b < blocks; b++) {
        const int64_t row = b * GX_LINEAR_BLOCK, rows = gx_min(GX_LINEAR_BLOCK, s->R - row);
        memset(scratch + b * C, 0, (size_t)C * 4);
        GX_CPU_TYPES(s->dtype, gx__cpu_column_sum_rows, scratch + b * C, gx_cpu_from(dy, row * s->y_stride, s->dtype),
                     rows, C, s->y_stride);
    }
    if (!s->accumulate) memset(sum, 0, (size_t)C * 4);
    for (int64_t b = 0; b < blocks; b++) {
        GX_OMP(simd)
        for (int64_t c = 0; c < C; c++) sum[c] += scratch[b * C + c];
    }
}

void gx_cpu_linear_backward_weight(GxContext *g, float *dw, float *dbias, const void *dy, const void *x,
                                   const GxLinearShape *s, float *scratch)
{
    if (dbias) gx__cpu_column_sum(g, dbias, dy, s, scratch);
    if (!dw) return;
    GxGemm p = {1,           0,           s->Out, s->In, s->R,     s->scale, s->accumulate ? 1.0f : 0.0f, dy, x,
                s->y_stride, s->x_stride, dw,     s->In, s->dtype, GX_F32};
    gx_cpu_product(g, &p);
}
#endif
