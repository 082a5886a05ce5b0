// cpu/elementwise.h: ops/elementwise.h on the CPU.
#ifndef GX_CPU_ELEMENTWISE_H
#define GX_CPU_ELEMENTWISE_H
#include "../ops/elementwise.h"
GX_BEGIN

void gx_cpu_zero(GxContext *g, void *x, int64_t bytes);
void gx_cpu_copy(GxContext *g, void *y, const void *x, int64_t bytes);
void gx_cpu_convert(GxContext *g, void *y, GxDtype to, const void *x, GxDtype from, int64_t n);
void gx_cpu_add(GxContext *g, void *y, const void *a, const void *b, int64_t n, GxDtype dtype);
void gx_cpu_scale(GxContext *g, void *y, const void *x, int64_t n, float factor, GxDtype dtype);
void gx_cpu_sum(GxContext *g, double *total, const float *x, int64_t n, int accumulate, double *scratch);
void gx_cpu_add_blocks(GxContext *g, double *total, const double *blocks, int64_t n, int accumulate);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CPU_ELEMENTWISE_IMPLEMENTED)
#define GX_CPU_ELEMENTWISE_IMPLEMENTED
#include <string.h>
#include "team.h"
#include "vec.h"

enum { GX__CPU_CHUNK = 1 << 18, GX__CPU_RANGE = 1 << 13 }; // bytes, elements that one thread takes at a time

void gx_cpu_zero(GxContext *g, void *x, int64_t bytes)
{
    (void)g;
    GX_OMP(parallel for schedule(static) num_threads(gx_threads(g)) if (bytes > GX__CPU_CHUNK))
    for (int64_t i = 0; i < bytes; i += GX__CPU_CHUNK)
        memset((char *)x + i, 0, (size_t)gx_min(GX__CPU_CHUNK, bytes - i));
}

void gx_cpu_copy(GxContext *g, void *y, const void *x, int64_t bytes)
{
    (void)g;
    GX_OMP(parallel for schedule(static) num_threads(gx_threads(g)) if (bytes > GX__CPU_CHUNK))
    for (int64_t i = 0; i < bytes; i += GX__CPU_CHUNK)
        memcpy((char *)y + i, (const char *)x + i, (size_t)gx_min(GX__CPU_CHUNK, bytes - i));
}

// y[i] = x[i], rounded to nearest, ties to even
void gx_cpu_convert(GxContext *g, void *y, GxDtype to, const void *x, GxDtype from, int64_t n)
{
    if (to == from) {
        gx_cpu_copy(g, y, x, n * gx_dtype_size(to));
    } else if (to == GX_BF16) {
        GX_OMP(parallel for simd schedule(static) num_threads(gx_cpu_team(g, n)))
        for (int64_t i = 0; i < n; i++) ((uint16_t *)y)[i] = gx_to_bf16(((const float *)x)[i]);
    } else {
        GX_OMP(parallel for simd schedule(static) num_threads(gx_cpu_team(g, n)))
        for (int64_t i = 0; i < n; i++) ((float *)y)[i] = gx_from_bf16(((const uint16_t *)x)[i]);
    }
}

// y[i] = a[i] + b[i]
static GX_CPU_INLINE void gx__cpu_add_range(void *y, const void *a, const void *b, int64_t n, GxDtype dtype)
{
    GX_OMP(simd)
    for (int64_t i = 0; i < n; i++) gx_cpu_store(y, i, gx_cpu_load(a, i, dtype) + gx_cpu_load(b, i, dtype), dtype);
}

void gx_cpu_add(GxContext *g, void *y, const void *a, const void *b, int64_t n, GxDtype dtype)
{
    (void)g;
    GX_OMP(parallel for schedule(static) num_threads(gx_cpu_team(g, n)))
    for (int64_t i = 0; i < n; i += GX__CPU_RANGE)
        GX_CPU_TYPES(dtype, gx__cpu_add_range, gx_cpu_at(y, i, dtype), gx_cpu_from(a, i, dtype),
                     gx_cpu_from(b, i, dtype), gx_min(GX__CPU_RANGE, n - i));
}

// y[i] = factor * x[i]
static GX_CPU_INLINE void gx__cpu_scale_range(void *y, const void *x, int64_t n, float factor, GxDtype dtype)
{
    GX_OMP(simd)
    for (int64_t i = 0; i < n; i++) gx_cpu_store(y, i, factor * gx_cpu_load(x, i, dtype), dtype);
}

void gx_cpu_scale(GxContext *g, void *y, const void *x, int64_t n, float factor, GxDtype dtype)
{
    (void)g;
    GX_OMP(parallel for schedule(static) num_threads(gx_cpu_team(g, n)))
    for (int64_t i = 0; i < n; i += GX__CPU_RANGE)
        GX_CPU_TYPES(dtype, gx__cpu_scale_range, gx_cpu_at(y, i, dtype), gx_cpu_from(x, i, dtype),
                     gx_min(GX__CPU_RANGE, n - i), factor);
}

static double gx__cpu_sum_of(const float *x, int64_t n, int squares)
{
    double s = 0;
    if (squares) {
        GX_OMP(simd reduction(+ : s))
        for (int64_t i = 0; i < n; i++) s += (double)x[i] * (double)x[i];
    } else {
        GX_OMP(simd reduction(+ : s))
        for (int64_t i = 0; i < n; i++) s += (double)x[i];
    }
    return s;
}

// sum[b] = sum of x[i], or x[i]^2, over block b of `block` elements: in parallel, each in pieces of GX_SUM_BLOCK,
// which round less than one long sum.
static void gx__cpu_sum_blocks(GxContext *g, double *sum, const float *x, int64_t n, int64_t block, int squares)
{
    (void)g;
    const int64_t blocks = gx_ceil_div(n, block);
    GX_OMP(parallel for schedule(static) num_threads(gx_cpu_team(g, n)))
    for (int64_t b = 0; b < blocks; b++) {
        const int64_t end = gx_min(n, (b + 1) * block);
        sum[b] = 0;
        for (int64_t i = b * block; i < end; i += GX_SUM_BLOCK)
            sum[b] += gx__cpu_sum_of(x + i, gx_min(GX_SUM_BLOCK, end - i), squares);
    }
}

void gx_cpu_add_blocks(GxContext *g, double *total, const double *blocks, int64_t n, int accumulate)
{
    (void)g;
    double s = accumulate ? *total : 0;
    for (int64_t b = 0; b < n; b++) s += blocks[b];
    *total = s;
}

void gx_cpu_sum(GxContext *g, double *total, const float *x, int64_t n, int accumulate, double *scratch)
{
    gx__cpu_sum_blocks(g, scratch, x, n, GX_SUM_BLOCK, 0);
    gx_cpu_add_blocks(g, total, scratch, gx_ceil_div(n, GX_SUM_BLOCK), accumulate);
}
#endif
