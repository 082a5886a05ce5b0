// layer.h: what modes of every family are written with: rows of the stream split over the tp group, and the collectives
// that bring rows from one layout into another (parallel/layout.h says which stands where).
//
// A collective is named by the place where it stands: layer (-1: the embedding, `layers`: the head) and site
// ("att_entry", "att_exit", "mlp_entry", "mlp_exit", "embedding_exit", "head_entry", as in layout.h); the recording of
// a step has both. In a group of one, all of them do nothing.
//
//     GxRows own = gx_own_rows(m, s->h1);                             // SEQ: my slice of T, inside the whole
//     gx_llama_norm1_forward(g, l, layer, own, x);
//     gx_tp_all_gather(g, m, layer, "att_entry", s->h1, own);         // FULL
#ifndef GX_LAYER_H
#define GX_LAYER_H
#include "../comm/comm.h"
#include "model.h"
GX_BEGIN

GxRows gx_some_rows(GxRows x, int64_t first, int64_t rows);
GxRows gx_own_rows(const GxModel *m, GxRows full); // this rank's slice of [T*B, C]

void gx_tp_all_reduce(GxContext *g, const GxModel *m, int layer, const char *site, GxRows x); // PARTIAL -> FULL
void gx_tp_all_gather(GxContext *g, const GxModel *m, int layer, const char *site, GxRows full,
                      GxRows own); // SEQ -> FULL
void gx_tp_reduce_scatter(GxContext *g, const GxModel *m, int layer, const char *site, GxRows own,
                          GxRows partial); // PARTIAL -> SEQ

// Of gradients: started before the weight gradients are computed, waited for (gx_wait) behind them. Neither buffer may
// be touched meanwhile.
GxTicket gx_tp_all_reduce_start(GxContext *g, const GxModel *m, int layer, const char *site, GxRows x);
GxTicket gx_tp_reduce_scatter_start(GxContext *g, const GxModel *m, int layer, const char *site, GxRows own,
                                    GxRows partial);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_LAYER_IMPLEMENTED)
#define GX_LAYER_IMPLEMENTED

GxRows gx_some_rows(GxRows x, int64_t first, int64_t rows)
{
    GxRows part = {(char *)x.data + first * x.cols * gx_dtype_size(x.dtype), x.dtype, rows, x.cols};
    return part;
}

GxRows gx_own_rows(const GxModel *m, GxRows full)
{
    return gx_some_rows(full, m->rows.begin[m->member], gx_split_part(&m->rows, m->member));
}

void gx_tp_all_reduce(GxContext *g, const GxModel *m, int layer, const char *site, GxRows x)
{
    gx_wait(g, gx_tp_all_reduce_start(g, m, layer, site, x));
}

GxTicket gx_tp_all_reduce_start(GxContext *g, const GxModel *m, int layer, const char *site, GxRows x)
{
    (void)m;
    gx_at(g, layer + 1, site);
    return gx_all_reduce_start(g, GX_AXIS_TP, GX_SUM, x.data, x.rows * x.cols, x.dtype);
}

void gx_tp_all_gather(GxContext *g, const GxModel *m, int layer, const char *site, GxRows full, GxRows own)
{
    gx_at(g, layer + 1, site);
    gx_all_gather(g, GX_AXIS_TP, &m->rows, full.data, own.data, full.cols, full.dtype);
}

void gx_tp_reduce_scatter(GxContext *g, const GxModel *m, int layer, const char *site, GxRows own, GxRows partial)
{
    gx_wait(g, gx_tp_reduce_scatter_start(g, m, layer, site, own, partial));
}

GxTicket gx_tp_reduce_scatter_start(GxContext *g, const GxModel *m, int layer, const char *site, GxRows own,
                                    GxRows partial)
{
    gx_at(g, layer + 1, site);
    return gx_reduce_scatter_start(g, GX_AXIS_TP, &m->rows, own.data, partial.data, partial.cols, partial.dtype);
}
#endif
