// cpu/rows.h: ops/rows.h on the CPU.
#ifndef GX_CPU_ROWS_H
#define GX_CPU_ROWS_H
#include "../ops/rows.h"
GX_BEGIN

void gx_cpu_pick_rows(GxContext *g, void *y, const void *x, const int32_t *rows, int64_t first, int64_t n, int64_t C,
                      GxDtype dtype);
void gx_cpu_add_rows(GxContext *g, void *y, const void *x, const int32_t *rows, int64_t first, int64_t n, int64_t C,
                     GxDtype dtype);
void gx_cpu_put_pages(GxContext *g, void *y, const void *x, const int32_t *pages, int64_t T, int64_t B, int64_t t_first,
                      int64_t C, GxDtype dtype);
void gx_cpu_mean_rows_forward(GxContext *g, void *y, const void *x, const int32_t *parts, int64_t n, int64_t T,
                              int64_t B, int64_t t_first, int64_t C, GxDtype dtype);
void gx_cpu_mean_rows_backward(GxContext *g, void *dx, const void *dy, const int32_t *parts, int64_t n, int64_t T,
                               int64_t B, int64_t t_first, int64_t C, GxDtype dtype);
void gx_cpu_normalize_rows_forward(GxContext *g, void *y, float *norm, const void *x, int64_t R, int64_t C, float eps,
                                   GxDtype dtype);
void gx_cpu_normalize_rows_backward(GxContext *g, void *dx, const void *dy, const void *y, const float *norm, int64_t R,
                                    int64_t C, GxDtype dtype);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CPU_ROWS_IMPLEMENTED)
#define GX_CPU_ROWS_IMPLEMENTED
#include <math.h>
#include <string.h>
#include "elementwise.h"
#include "vec.h"

// y[i,c] = x[rows[i] - first, c]
void gx_cpu_pick_rows(GxContext *g, void *y, const void *x, const int32_t *rows, int64_t first, int64_t n, int64_t C,
                      GxDtype dtype)
{
    (void)g;
    GX_OMP(parallel for schedule(static) num_threads(gx_threads(g)))
    for (int64_t i = 0; i < n; i++)
        memcpy(gx_cpu_at(y, i * C, dtype), gx_cpu_from(x, (rows[i] - first) * C, dtype),
               (size_t)(C * gx_dtype_size(dtype)));
}

// y[rows[i] - first, c] += x[i,c]
void gx_cpu_add_rows(GxContext *g, void *y, const void *x, const int32_t *rows, int64_t first, int64_t n, int64_t C,
                     GxDtype dtype)
{
    (void)g;
    GX_OMP(parallel for schedule(static) num_threads(gx_threads(g)))
    for (int64_t i = 0; i < n; i++) {
        void *row = gx_cpu_at(y, (rows[i] - first) * C, dtype);
        GX_CPU_TYPES(dtype, gx__cpu_add_range, row, row, gx_cpu_from(x, i * C, dtype), C);
    }
}

// y[row,c] = x[t*B + b, c], if there is a page
void gx_cpu_put_pages(GxContext *g, void *y, const void *x, const int32_t *pages, int64_t T, int64_t B, int64_t t_first,
                      int64_t C, GxDtype dtype)
{
    (void)g;
    GX_OMP(parallel for schedule(static) num_threads(gx_threads(g)))
    for (int64_t i = 0; i < T * B; i++) {
        const int64_t row = gx_page_row(pages, t_first + i / B, B, i % B);
        if (row >= 0)
            memcpy(gx_cpu_at(y, row * C, dtype), gx_cpu_from(x, i * C, dtype), (size_t)(C * gx_dtype_size(dtype)));
    }
}

// A part's column of the batch, and those of its positions that this rank has.
typedef struct {
    int64_t b, begin, end;
    float share; // 1/(end - begin) of the whole part; 0 if it is empty
} GxCpuPart;

static inline GxCpuPart gx__cpu_part(const int32_t *parts, int64_t i, int64_t T, int64_t t_first)
{
    const int64_t begin = parts[3 * i + 1], end = parts[3 * i + 2];
    GxCpuPart p;
    p.b = parts[3 * i];
    p.begin = gx_max(begin, t_first), p.end = gx_min(end, t_first + T);
    p.share = end > begin ? 1.0f / (float)(end - begin) : 0;
    return p;
}

enum { GX__CPU_MEAN_COLS = 256 }; // columns that are summed at once

// y[c] = share * the sum of `rows` rows of x that are `stride` elements apart, for n <= GX__CPU_MEAN_COLS columns
static GX_CPU_INLINE void gx__cpu_mean_cols(void *y, const void *x, int64_t rows, int64_t stride, int64_t n,
                                            float share, GxDtype dtype)
{
    float sum[GX__CPU_MEAN_COLS] = {0};
    for (int64_t r = 0; r < rows; r++) {
        GX_OMP(simd)
        for (int64_t c = 0; c < n; c++) sum[c] += gx_cpu_load(x, r * stride + c, dtype);
    }
    GX_OMP(simd)
    for (int64_t c = 0; c < n; c++) gx_cpu_store(y, c, sum[c] * share, dtype);
}

void gx_cpu_mean_rows_forward(GxContext *g, void *y, const void *x, const int32_t *parts, int64_t n, int64_t T,
                              int64_t B, int64_t t_first, int64_t C, GxDtype dtype)
{
    (void)g;
    const int64_t chunks = gx_ceil_div(C, GX__CPU_MEAN_COLS);
    GX_OMP(parallel for schedule(static) num_threads(gx_threads(g)))
    for (int64_t job = 0; job < n * chunks; job++) {
        const int64_t i = job / chunks, c = job % chunks * GX__CPU_MEAN_COLS;
        const GxCpuPart p = gx__cpu_part(parts, i, T, t_first);
        const int64_t rows = gx_max(0, p.end - p.begin), row = rows ? (p.begin - t_first) * B + p.b : 0;
        GX_CPU_TYPES(dtype, gx__cpu_mean_cols, gx_cpu_at(y, i * C + c, dtype), gx_cpu_from(x, row * C + c, dtype), rows,
                     B * C, gx_min(GX__CPU_MEAN_COLS, C - c), p.share);
    }
}

// dx[c] += dy[c] * share
static GX_CPU_INLINE void gx__cpu_add_share(void *dx, const void *dy, int64_t C, float share, GxDtype dtype)
{
    GX_OMP(simd)
    for (int64_t c = 0; c < C; c++)
        gx_cpu_store(dx, c, gx_cpu_load(dx, c, dtype) + gx_cpu_load(dy, c, dtype) * share, dtype);
}

// No two parts have a row in common, so each row has one writer.
void gx_cpu_mean_rows_backward(GxContext *g, void *dx, const void *dy, const int32_t *parts, int64_t n, int64_t T,
                               int64_t B, int64_t t_first, int64_t C, GxDtype dtype)
{
    (void)g;
    GX_OMP(parallel for schedule(static) num_threads(gx_threads(g)))
    for (int64_t job = 0; job < n * T; job++) {
        const int64_t i = job / T, t = t_first + job % T;
        const GxCpuPart p = gx__cpu_part(parts, i, T, t_first);
        if (t >= p.begin && t < p.end)
            GX_CPU_TYPES(dtype, gx__cpu_add_share, gx_cpu_at(dx, ((t - t_first) * B + p.b) * C, dtype),
                         gx_cpu_from(dy, i * C, dtype), C, p.share);
    }
}

// y[c] = x[c]/norm, norm = max(|x|, eps)
static GX_CPU_INLINE void gx__cpu_normalize_row(void *y, float *norm, const void *x, int64_t C, float eps,
                                                GxDtype dtype)
{
    float squares = 0;
    GX_OMP(simd reduction(+ : squares))
    for (int64_t c = 0; c < C; c++) squares += gx_cpu_load(x, c, dtype) * gx_cpu_load(x, c, dtype);
    const float length = sqrtf(squares), divisor = length < eps ? eps : length; // NaN stays NaN
    GX_OMP(simd)
    for (int64_t c = 0; c < C; c++) gx_cpu_store(y, c, gx_cpu_load(x, c, dtype) / divisor, dtype);
    if (norm) *norm = divisor;
}

void gx_cpu_normalize_rows_forward(GxContext *g, void *y, float *norm, const void *x, int64_t R, int64_t C, float eps,
                                   GxDtype dtype)
{
    (void)g;
    GX_OMP(parallel for schedule(static) num_threads(gx_threads(g)))
    for (int64_t r = 0; r < R; r++)
        GX_CPU_TYPES(dtype, gx__cpu_normalize_row, gx_cpu_at(y, r * C, dtype), norm ? norm + r : NULL,
                     gx_cpu_from(x, r * C, dtype), C, eps);
}

// dx[c] = (dy[c] - y[c]*dot)/norm, dot = sum_j y[j]*dy[j]
static GX_CPU_INLINE void gx__cpu_normalize_backward_row(void *dx, const void *dy, const void *y, float norm, int64_t C,
                                                         GxDtype dtype)
{
    float dot = 0;
    GX_OMP(simd reduction(+ : dot))
    for (int64_t c = 0; c < C; c++) dot += gx_cpu_load(y, c, dtype) * gx_cpu_load(dy, c, dtype);
    GX_OMP(simd)
    for (int64_t c = 0; c < C; c++)
        gx_cpu_store(dx, c, (gx_cpu_load(dy, c, dtype) - gx_cpu_load(y, c, dtype) * dot) / norm, dtype);
}

void gx_cpu_normalize_rows_backward(GxContext *g, void *dx, const void *dy, const void *y, const float *norm, int64_t R,
                                    int64_t C, GxDtype dtype)
{
    (void)g;
    GX_OMP(parallel for schedule(static) num_threads(gx_threads(g)))
    for (int64_t r = 0; r < R; r++)
        GX_CPU_TYPES(dtype, gx__cpu_normalize_backward_row, gx_cpu_at(dx, r * C, dtype), gx_cpu_from(dy, r * C, dtype),
                     gx_cpu_from(y, r * C, dtype), norm[r], C);
}
#endif
