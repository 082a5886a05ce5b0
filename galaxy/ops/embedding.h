// embedding.h: rows of a table, by token.
#ifndef GX_EMBEDDING_H
#define GX_EMBEDDING_H
#include "device.h"
GX_BEGIN

// y[r,:] = w[ids[r] - v_begin, :], zeros where ids[r] is not in [v_begin, v_end): a rank that holds a part of the
// vocabulary gives its share of a sum over ranks. y [R,C], w [v_end - v_begin, C], ids [R]. bytes: 2*R*C*size + 4*R
void gx_embedding_forward(GxContext *g, void *y, const void *w, const int32_t *ids, int64_t R, int64_t C,
                          int64_t v_begin, int64_t v_end, GxDtype dtype);

// dw[v,:] = (accumulate ? dw[v,:] : 0) + sum of dy[r,:] over the r with ids[r] = v, in order of r
void gx_embedding_backward(GxContext *g, float *dw, const void *dy, const int32_t *ids, int64_t R, int64_t C,
                           int64_t v_begin, int64_t v_end, int accumulate, GxDtype dtype);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_EMBEDDING_IMPLEMENTED)
#define GX_EMBEDDING_IMPLEMENTED

void gx_embedding_forward(GxContext *g, void *y, const void *w, const int32_t *ids, int64_t R, int64_t C,
                          int64_t v_begin, int64_t v_end, GxDtype dtype)
{
    if (!gx_op_check(g, "embedding_forward", dtype, R, C)) return;
    if (gx_op_begin(g, "embedding_forward", gx_dims(R, C, v_end - v_begin, 0), 2 * R * C * gx_dtype_size(dtype) + 4 * R,
                    0))
        g->device->embedding_forward(g, y, w, ids, R, C, v_begin, v_end, dtype);
}

void gx_embedding_backward(GxContext *g, float *dw, const void *dy, const int32_t *ids, int64_t R, int64_t C,
                           int64_t v_begin, int64_t v_end, int accumulate, GxDtype dtype)
{
    if (!gx_op_check(g, "embedding_backward", dtype, R, C)) return;
    int64_t bytes = R * C * (gx_dtype_size(dtype) + 8) + (accumulate ? 0 : 4 * (v_end - v_begin) * C);
    if (gx_op_begin(g, "embedding_backward", gx_dims(R, C, v_end - v_begin, 0), bytes, (double)R * C))
        g->device->embedding_backward(g, dw, dy, ids, R, C, v_begin, v_end, accumulate, dtype);
}
#endif
