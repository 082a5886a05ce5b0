// quantized_linear.h: y = x W^T + b and the gradient of x, where W is quantized (base/quantized.h) and has no gradient.
// W is one matrix, or several of the same width one below the other.
//
//     GxLinearShape s = gx_linear_shape(R, w.cols, w.rows, GX_BF16);
//     gx_quantized_linear_forward(g, y, x, &w, 1, NULL, &s);
//
// W is never dequantized as a whole: tiles of it, rows in the forward and columns in the backward, are dequantized into
// scratch one after the other, and multiplied from there (ops/linear.h). An element of a result is therefore one sum
// over all of In (backward: of Out), rounded once. The recorder sees these operations, not this function.
//
// Numerics: W is the result of gx_dequantize in the type of x. Results differ from those with W as a whole only by the
// order of sums, which a library may choose by the shape; plain C and a single row keep the order.
//
// Memory: scratch of one tile: gx_quantized_tile() rows of In elements in the forward, columns of Out in the backward.
#ifndef GX_QUANTIZED_LINEAR_H
#define GX_QUANTIZED_LINEAR_H
#include "linear.h"
#include "quantize.h"
GX_BEGIN

// Like gx_linear_forward and gx_linear_backward_input; w [parts]: together they have s->Out rows, each has s->In
// columns.
void gx_quantized_linear_forward(GxContext *g, void *y, const void *x, const GxQuantized *w, int parts,
                                 const void *bias, const GxLinearShape *s);
void gx_quantized_linear_backward_input(GxContext *g, void *dx, const void *dy, const GxQuantized *w, int parts,
                                        const GxLinearShape *s);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_QUANTIZED_LINEAR_IMPLEMENTED)
#define GX_QUANTIZED_LINEAR_IMPLEMENTED

// 1: go on; *tile is *s with both strides
static int gx__quantized_linear_check(GxContext *g, const char *name, const GxQuantized *w, int parts,
                                      const GxLinearShape *s, GxLinearShape *tile)
{
    int64_t rows = 0, cols = s->In;
    if (!gx__linear_check(g, name, s, tile)) return 0;
    for (int i = 0; i < parts; i++) {
        rows += w[i].rows;
        if (w[i].cols != s->In) cols = w[i].cols;
    }
    if (rows == s->Out && cols == s->In) return 1;
    GX_FAIL(&g->error, GX_ERR_ARGUMENT,
            "%s: the quantized matrix is %ld x %ld; the product expects Out x In: %ld x %ld", name, (long)rows,
            (long)cols, (long)s->Out, (long)s->In);
    return 0;
}

// y = rows [row, row + rows) and columns [col, col + cols) of all matrices together.
static void gx__quantized_linear_tile(GxContext *g, void *y, GxDtype dtype, const GxQuantized *w, int parts,
                                      int64_t row, int64_t rows, int64_t col, int64_t cols)
{
    int64_t before = 0; // rows of the previous matrices
    for (int i = 0; i < parts; before += w[i++].rows) {
        const int64_t begin = gx_max(row, before), end = gx_min(row + rows, before + w[i].rows);
        if (begin < end)
            gx_dequantize(g, (char *)y + (begin - row) * cols * gx_dtype_size(dtype), dtype, &w[i], begin - before,
                          end - begin, col, cols);
    }
}

static char *gx__quantized_at(const void *x, int64_t i, GxDtype dtype)
{
    return (char *)(uintptr_t)x + i * gx_dtype_size(dtype);
}

void gx_quantized_linear_forward(GxContext *g, void *y, const void *x, const GxQuantized *w, int parts,
                                 const void *bias, const GxLinearShape *s)
{
    GxLinearShape tile;
    if (!gx__quantized_linear_check(g, "quantized_linear_forward", w, parts, s, &tile)) return;
    const int64_t most = gx_quantized_tile(g, s->In, s->Out);
    const GxArenaMark mark = gx_arena_mark(g->arena);
    void *rows = gx_scratch(g, GX_MEM_WORKSPACE, most * s->In * gx_dtype_size(s->dtype));
    for (int64_t o = 0; o < s->Out; o += most) {
        tile.Out = gx_min(most, s->Out - o);
        gx__quantized_linear_tile(g, rows, s->dtype, w, parts, o, tile.Out, 0, s->In);
        gx_linear_forward(g, gx__quantized_at(y, o, s->dtype), x, rows,
                          bias ? gx__quantized_at(bias, o, s->dtype) : NULL, &tile);
    }
    gx_arena_release(g->arena, mark);
}

void gx_quantized_linear_backward_input(GxContext *g, void *dx, const void *dy, const GxQuantized *w, int parts,
                                        const GxLinearShape *s)
{
    GxLinearShape tile;
    if (!gx__quantized_linear_check(g, "quantized_linear_backward_input", w, parts, s, &tile)) return;
    const int64_t most = gx_quantized_tile(g, s->Out, s->In);
    const GxArenaMark mark = gx_arena_mark(g->arena);
    void *cols = gx_scratch(g, GX_MEM_WORKSPACE, most * s->Out * gx_dtype_size(s->dtype));
    for (int64_t i = 0; i < s->In; i += most) {
        tile.In = gx_min(most, s->In - i);
        gx__quantized_linear_tile(g, cols, s->dtype, w, parts, 0, s->Out, i, tile.In);
        gx_linear_backward_input(g, gx__quantized_at(dx, i, s->dtype), dy, cols, &tile);
    }
    gx_arena_release(g->arena, mark);
}
#endif
