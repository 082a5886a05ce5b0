// embedding.h: rows of a table, by token.
//
//     const GxEmbedding e = gx_embedding_shape(rows, cols, vocab_size, GX_F32);
//     gx_embedding_forward(g, y, w, ids, &e);
#ifndef GX_EMBEDDING_H
#define GX_EMBEDDING_H
#include "device.h"
GX_BEGIN

struct GxEmbedding {
    int64_t R, C;           // tokens, columns
    int64_t v_begin, v_end; // the rows of the table on this rank
    int64_t ignored;        // a token whose row gets no gradient; -1: none
    int accumulate;         // the result is added to y (forward) or dw (backward)
    int is_transposed;      // 1: w and dw are [C, v_end - v_begin], and a token's row is a column there
    GxDtype dtype;
};

GxEmbedding gx_embedding_shape(int64_t R, int64_t C, int64_t vocab_size, GxDtype dtype); // the whole table, every token
// Elements of w between two tokens' rows, and between two columns.
static inline int64_t gx_embedding_row_step(const GxEmbedding *e) { return e->is_transposed ? 1 : e->C; }
static inline int64_t gx_embedding_column_step(const GxEmbedding *e)
{
    return e->is_transposed ? e->v_end - e->v_begin : 1;
}

// y[r,:] = (accumulate ? y[r,:] : 0) + w[ids[r] - v_begin, :], without w if ids[r] is not in [v_begin, v_end): a rank
// with a part of the vocabulary computes its summand of a sum over ranks. y [R,C], w [v_end - v_begin, C]
// (is_transposed: w[:, ids[r] - v_begin] of [C, v_end - v_begin]), ids [R]. bytes: 2*R*C*size + 4*R, and R*C*size if it
// accumulates; FLOPs: R*C if it does
void gx_embedding_forward(GxContext *g, void *y, const void *w, const int32_t *ids, const GxEmbedding *e);

// dw[v - v_begin,:] = (accumulate ? dw[v - v_begin,:] : 0) + sum of dy[r,:] over the r with ids[r] = v; v = ignored
// gets no gradient. FLOPs: R*C
void gx_embedding_backward(GxContext *g, float *dw, const void *dy, const int32_t *ids, const GxEmbedding *e);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_EMBEDDING_IMPLEMENTED)
#define GX_EMBEDDING_IMPLEMENTED

GxEmbedding gx_embedding_shape(int64_t R, int64_t C, int64_t vocab_size, GxDtype dtype)
{
    GxEmbedding e = GX_ZERO;
    e.R = R, e.C = C;
    e.v_end = vocab_size;
    e.ignored = -1;
    e.dtype = dtype;
    return e;
}

void gx_embedding_forward(GxContext *g, void *y, const void *w, const int32_t *ids, const GxEmbedding *e)
{
    if (!gx_op_check(g, "embedding_forward", e->dtype, e->R, e->C)) return;
    if (gx_op_begin(g, "embedding_forward", gx_dims(e->R, e->C, e->v_end - e->v_begin, 0),
                    (e->accumulate ? 3 : 2) * e->R * e->C * gx_dtype_size(e->dtype) + 4 * e->R,
                    e->accumulate ? (double)e->R * e->C : 0))
        g->device->embedding_forward(g, y, w, ids, e);
}

void gx_embedding_backward(GxContext *g, float *dw, const void *dy, const int32_t *ids, const GxEmbedding *e)
{
    if (!gx_op_check(g, "embedding_backward", e->dtype, e->R, e->C)) return;
    const int64_t rows = e->v_end - e->v_begin;
    const int64_t bytes = e->R * e->C * (gx_dtype_size(e->dtype) + 8) + (e->accumulate ? 0 : 4 * rows * e->C);
    if (gx_op_begin(g, "embedding_backward", gx_dims(e->R, e->C, rows, 0), bytes, (double)e->R * e->C))
        g->device->embedding_backward(g, dw, dy, ids, e);
}
#endif
