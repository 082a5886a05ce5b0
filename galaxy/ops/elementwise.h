// elementwise.h: zero, copy, conversion between types, add, scale, and the sum over all elements.
#ifndef GX_ELEMENTWISE_H
#define GX_ELEMENTWISE_H
#include "device.h"
GX_BEGIN

void gx_zero(GxContext *g, void *x, int64_t bytes);
void gx_copy(GxContext *g, void *y, const void *x, int64_t bytes); // y and x do not overlap, or are the same

// y[i] = x[i], rounded to nearest, ties to even, if `to` is the narrower type; y and x do not overlap. bytes:
// n*(both sizes)
void gx_convert(GxContext *g, void *y, GxDtype to, const void *x, GxDtype from, int64_t n);

// y = a + b; y may be a or b. bytes: 3*n*size
void gx_add(GxContext *g, void *y, const void *a, const void *b, int64_t n, GxDtype dtype);

// y = factor * x; y may be x. bytes: 2*n*size
void gx_scale(GxContext *g, void *y, const void *x, int64_t n, float factor, GxDtype dtype);

// total = (accumulate ? total : 0) + sum of x, in fp64, block by block of GX_SUM_BLOCK in order
void gx_sum(GxContext *g, double *total, const float *x, int64_t n, int accumulate);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_ELEMENTWISE_IMPLEMENTED)
#define GX_ELEMENTWISE_IMPLEMENTED

void gx_zero(GxContext *g, void *x, int64_t bytes)
{
    if (!gx_op_check(g, "zero", GX_F32, bytes, 1)) return;
    if (gx_op_begin(g, "zero", gx_dims(bytes, 0, 0, 0), bytes, 0)) g->device->zero(g, x, bytes);
}

void gx_copy(GxContext *g, void *y, const void *x, int64_t bytes)
{
    if (!gx_op_check(g, "copy", GX_F32, bytes, 1)) return;
    if (y != x && gx_op_begin(g, "copy", gx_dims(bytes, 0, 0, 0), 2 * bytes, 0)) g->device->copy(g, y, x, bytes);
}

void gx_convert(GxContext *g, void *y, GxDtype to, const void *x, GxDtype from, int64_t n)
{
    if (!gx_op_check(g, "convert", to, n, 1) || !gx_op_check(g, "convert", from, n, 1)) return;
    if (gx_op_begin(g, "convert", gx_dims(n, 0, 0, 0), n * (gx_dtype_size(to) + gx_dtype_size(from)), 0))
        g->device->convert(g, y, to, x, from, n);
}

void gx_add(GxContext *g, void *y, const void *a, const void *b, int64_t n, GxDtype dtype)
{
    if (!gx_op_check(g, "add", dtype, n, 1)) return;
    if (gx_op_begin(g, "add", gx_dims(n, 0, 0, 0), 3 * n * gx_dtype_size(dtype), (double)n))
        g->device->add(g, y, a, b, n, dtype);
}

void gx_scale(GxContext *g, void *y, const void *x, int64_t n, float factor, GxDtype dtype)
{
    if (!gx_op_check(g, "scale", dtype, n, 1)) return;
    if (gx_op_begin(g, "scale", gx_dims(n, 0, 0, 0), 2 * n * gx_dtype_size(dtype), (double)n))
        g->device->scale(g, y, x, n, factor, dtype);
}

void gx_sum(GxContext *g, double *total, const float *x, int64_t n, int accumulate)
{
    if (!gx_op_check(g, "sum", GX_F32, n, 1)) return;
    GxArenaMark mark = gx_arena_mark(g->arena);
    double *scratch = (double *)gx_scratch(g, GX_MEM_WORKSPACE, gx_ceil_div(n, GX_SUM_BLOCK) * 8);
    if (gx_op_begin(g, "sum", gx_dims(n, 0, 0, 0), 4 * n, (double)n))
        g->device->sum(g, total, x, n, accumulate, scratch);
    gx_arena_release(g->arena, mark);
}
#endif
