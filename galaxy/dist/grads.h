// grads.h: gradients of a whole model across ranks, by the tensor table: the sums that its rows ask for, and the global norm.
#ifndef GX_GRADS_H
#define GX_GRADS_H
#include "../base/tensors.h"
#include "comm.h"
GX_BEGIN

// grads: the rank's flat buffer of gx_table_offset(table, table->units) elements. Neighbours with the same axes go in one collective.
void gx_grads_reduce(GxContext *g, const GxTable *table, float *grads);

// step->sum_squares of the reduced gradients: tensor by tensor in the table's order, each logical element once (an alias not at all).
void gx_grads_sum_squares(GxContext *g, const GxTable *table, const float *grads);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_GRADS_IMPLEMENTED)
#define GX_GRADS_IMPLEMENTED
#include "../ops/optimizer.h"

void gx_grads_reduce(GxContext *g, const GxTable *table, float *grads)
{
    int64_t begin = 0, end = 0;
    int axes = 0;
    gx_at(g, -1, "grads");
    for (int i = 0; i <= table->n; i++) {
        const GxTensor *t = i < table->n ? &table->row[i] : NULL;
        if (t && t->has_alias) continue;
        const int wanted = t && !t->frozen ? t->reduce_axes : 0; // 0: nobody needs a sum
        if (t && end > begin && wanted == axes) {
            end = gx_table_flat(table, i) + gx_tensor_count(t);
            continue;
        }
        if (end > begin && axes) gx_all_reduce(g, axes, GX_SUM, grads + begin, end - begin, GX_F32);
        if (!t) break;
        begin = gx_table_flat(table, i);
        end = begin + gx_tensor_count(t);
        axes = wanted;
    }
}

void gx_grads_sum_squares(GxContext *g, const GxTable *table, const float *grads)
{
    gx_at(g, -1, "grads");
    for (int i = 0, first = 1; i < table->n; i++) {
        const GxTensor *t = &table->row[i];
        if (t->has_alias || t->frozen) continue;
        if (!gx_tensor_is_whole(t)) {
            GX_FAIL(&g->error, GX_ERR_UNSUPPORTED, "the global norm of a split tensor (%s) is not built", t->name);
            return;
        }
        gx_sum_squares(g, &g->step->sum_squares, grads + gx_table_flat(table, i), gx_tensor_count(t), !first);
        first = 0;
    }
}
#endif
