// cpu/loss.h: ops/loss.h on the CPU: a row of logits stays in the cache for its three passes (maximum, exp and sum, scale).
#ifndef GX_CPU_LOSS_H
#define GX_CPU_LOSS_H
#include "../ops/loss.h"
GX_BEGIN

void gx_cpu_cross_entropy(GxContext *g, float *losses, void *dlogits, const void *logits, const int32_t *labels, int64_t R, int64_t V,
                          float scale, GxDtype dtype);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CPU_LOSS_IMPLEMENTED)
#define GX_CPU_LOSS_IMPLEMENTED
#include <math.h>
#include <string.h>
#include "vec.h"

static float gx__cross_entropy_row(float *dlogits, const float *logits, int32_t label, int64_t V, float scale)
{
    float m = logits[0], sum = 0, target = logits[label];
    GX_OMP(simd reduction(max : m))
    for (int64_t v = 0; v < V; v++) m = logits[v] > m ? logits[v] : m;
    if (dlogits) {
        GX_OMP(simd reduction(+ : sum))
        for (int64_t v = 0; v < V; v++) {
            float e = gx_cpu_exp(logits[v] - m);
            dlogits[v] = e;
            sum += e;
        }
        float k = scale / sum;
        GX_OMP(simd)
        for (int64_t v = 0; v < V; v++) dlogits[v] *= k;
        dlogits[label] -= scale;
    } else {
        GX_OMP(simd reduction(+ : sum))
        for (int64_t v = 0; v < V; v++) sum += gx_cpu_exp(logits[v] - m);
    }
    return logf(sum) + (m - target);
}

void gx_cpu_cross_entropy(GxContext *g, float *losses, void *dlogits, const void *logits, const int32_t *labels, int64_t R, int64_t V,
                          float scale, GxDtype dtype)
{
    (void)dtype;
    GX_OMP(parallel for schedule(static) num_threads(gx_threads(g)))
    for (int64_t r = 0; r < R; r++) {
        float *d = dlogits ? (float *)dlogits + r * V : NULL;
        losses[r] = 0;
        if (labels[r] >= 0 && labels[r] < V) {
            losses[r] = gx__cross_entropy_row(d, (const float *)logits + r * V, labels[r], V, scale);
            continue;
        }
        if (d) memset(d, 0, (size_t)V * 4);
        if (labels[r] != GX_IGNORE_INDEX)
            GX_FAIL(&g->error, GX_ERR_ARGUMENT, "label %d in row %ld; labels are 0 to %ld, or %d for those that do not count",
                    (int)labels[r], (long)r, (long)V - 1, GX_IGNORE_INDEX);
    }
}
#endif
