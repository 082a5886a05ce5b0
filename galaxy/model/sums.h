// sums.h: sums of rows in fp32, in the order of the calls, rounded once to the rows' type.
#ifndef GX_SUMS_H
#define GX_SUMS_H
#include "../base/context.h"
#include "rows.h"
GX_BEGIN

// sum += x; is_first: sum = x. wide: room for x in fp32; not needed for fp32 rows, nor the first time.
void gx_rows_add(GxContext *g, float *sum, GxRows x, float *wide, int is_first);
void gx_rows_round(GxContext *g, GxRows to, const float *sum);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_SUMS_IMPLEMENTED)
#define GX_SUMS_IMPLEMENTED
#include "../ops/elementwise.h"

void gx_rows_add(GxContext *g, float *sum, GxRows x, float *wide, int is_first)
{
    const int64_t n = x.rows * x.cols;
    const float *numbers = x.dtype == GX_F32 ? (const float *)x.data : wide;
    if (x.dtype != GX_F32) gx_convert(g, is_first ? sum : wide, GX_F32, x.data, x.dtype, n);
    else if (is_first) gx_copy(g, sum, x.data, 4 * n);
    if (!is_first) gx_add(g, sum, sum, numbers, n, GX_F32);
}

void gx_rows_round(GxContext *g, GxRows to, const float *sum)
{
    const int64_t n = to.rows * to.cols;
    if (to.dtype == GX_F32) gx_copy(g, to.data, sum, 4 * n);
    else gx_convert(g, to.data, to.dtype, sum, GX_F32, n);
}
#endif
