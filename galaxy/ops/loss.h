// loss.h: softmax cross-entropy over the vocabulary, loss and gradient in one pass over the logits.
//
// The caller gives rows in chunks, so that the logits of all rows never exist at once. The loss of a batch is the sum of its rows' losses over the
// number of labels in the whole global batch: `scale` is one over that number, on every rank and in every micro-batch.
#ifndef GX_LOSS_H
#define GX_LOSS_H
#include "device.h"
GX_BEGIN

enum { GX_IGNORE_INDEX = -100 }; // a label that counts for nothing

// losses[r] = log(sum_v exp(logits[r,v])) - logits[r,labels[r]]      (0 where the label is GX_IGNORE_INDEX)
// dlogits[r,v] = scale * (exp(logits[r,v])/sum - [v = labels[r]])    (0 there too); it may be logits; NULL: not wanted
// logits [R,V], labels [R] in [0,V) or ignored: anything else is an error. FLOPs: 6*R*V
void gx_cross_entropy(GxContext *g, float *losses, void *dlogits, const void *logits, const int32_t *labels, int64_t R, int64_t V,
                      float scale, GxDtype dtype);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_LOSS_IMPLEMENTED)
#define GX_LOSS_IMPLEMENTED

void gx_cross_entropy(GxContext *g, float *losses, void *dlogits, const void *logits, const int32_t *labels, int64_t R, int64_t V,
                      float scale, GxDtype dtype)
{
    if (!gx_op_check(g, "cross_entropy", dtype, R, V)) return;
    if (gx_op_begin(g, "cross_entropy", (dlogits ? 2 : 1) * R * V * gx_dtype_size(dtype), 6.0 * R * V))
        g->device->cross_entropy(g, losses, dlogits, logits, labels, R, V, scale, dtype);
}
#endif
