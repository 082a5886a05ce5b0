// quantize.h: dequantizes parts of a quantized matrix (base/quantized.h) for products.
//
//     gx_dequantize(g, tile, GX_BF16, &w, 128, 64, 0, w.cols);      // rows [128, 192), whole
//
// A quantized matrix is made on the host, once: cpu/quantize.h. It is never trained, so no operation quantizes. After
// it is copied to device memory, it is dequantized there.
#ifndef GX_QUANTIZE_H
#define GX_QUANTIZE_H
#include "../base/quantized.h"
#include "device.h"
GX_BEGIN

// y[r,c] = w[row + r, col + c], y [rows,cols] of type `dtype`, without gaps; the box must be inside the matrix. A
// value is computed in fp32, with every product and sum of quantized.h's table rounded (int8: q a, then times
// GX_INT8_STEP), and then rounded to `dtype`: the same bits as bitsandbytes. bytes: rows*cols*size, the codes, and 4
// for each scale (1 for doubled scales); FLOPs: rows*cols, twice as many for int8
void gx_dequantize(GxContext *g, void *y, GxDtype dtype, const GxQuantized *w, int64_t row, int64_t rows, int64_t col,
                   int64_t cols);

// How many of `count` rows (or columns) of `length` elements a product dequantizes at a time: as many as fit into the
// device's quantized_tile, a multiple of 64 and at least 64, or all.
int64_t gx_quantized_tile(const GxContext *g, int64_t length, int64_t count);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_QUANTIZE_IMPLEMENTED)
#define GX_QUANTIZE_IMPLEMENTED

static int64_t gx__dequantize_bytes(const GxQuantized *w, GxDtype dtype, int64_t rows, int64_t cols)
{
    const int64_t n = rows * cols, y = n * gx_dtype_size(dtype);
    if (w->kind == GX_INT8) return y + n + 4 * rows;
    return y + gx_ceil_div(n, 2) + gx_ceil_div(n, GX_NF4_BLOCK) * (w->kind == GX_NF4_DOUBLED ? 1 : 4);
}

void gx_dequantize(GxContext *g, void *y, GxDtype dtype, const GxQuantized *w, int64_t row, int64_t rows, int64_t col,
                   int64_t cols)
{
    if (!gx_op_check(g, "dequantize", dtype, rows, cols)) return;
    if (row < 0 || col < 0 || row > w->rows - rows || col > w->cols - cols) {
        GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                "dequantize: rows [%ld, %ld) and columns [%ld, %ld) do not lie inside a matrix of %ld x %ld", (long)row,
                (long)(row + rows), (long)col, (long)(col + cols), (long)w->rows, (long)w->cols);
        return;
    }
    if (gx_op_begin(g, "dequantize", gx_dims(rows, cols, 0, 0), gx__dequantize_bytes(w, dtype, rows, cols),
                    (double)rows * (double)cols * (w->kind == GX_INT8 ? 2 : 1)))
        g->device->dequantize(g, y, dtype, w, row, rows, col, cols);
}

int64_t gx_quantized_tile(const GxContext *g, int64_t length, int64_t count)
{
    const int64_t fit = g->device->quantized_tile / gx_max(length, 1);
    return gx_min(count, gx_max(64, fit - fit % 64));
}
#endif
