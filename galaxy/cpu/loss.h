// cpu/loss.h: ops/loss.h on the CPU: a row of logits stays in the cache for its three passes (maximum, exp and sum, scale).
//
// The steps for a part of the vocabulary are made of the same passes, so that one part that is the whole has the bits of the whole at once.
#ifndef GX_CPU_LOSS_H
#define GX_CPU_LOSS_H
#include "../ops/loss.h"
GX_BEGIN

void gx_cpu_cross_entropy(GxContext *g, float *losses, void *dlogits, const void *logits, const int32_t *labels, int64_t R, int64_t V,
                          float scale, GxDtype dtype);
void gx_cpu_cross_entropy_maximum(GxContext *g, float *maximum, const void *logits, int64_t R, int64_t V, GxDtype dtype);
void gx_cpu_cross_entropy_sums(GxContext *g, float *sums, void *exps, const void *logits, const float *maximum, const int32_t *labels,
                               int64_t R, int64_t V, int64_t v_begin, int64_t vocab_size, GxDtype dtype);
void gx_cpu_cross_entropy_finish(GxContext *g, float *losses, void *dlogits, const void *exps, const float *sums, const int32_t *labels,
                                 int64_t R, int64_t V, int64_t v_begin, float scale, GxDtype dtype);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CPU_LOSS_IMPLEMENTED)
#define GX_CPU_LOSS_IMPLEMENTED
#include <math.h>
#include <string.h>
#include "vec.h"

static float gx__row_maximum(const float *x, int64_t n)
{
    float m = x[0];
    GX_OMP(simd reduction(max : m))
    for (int64_t i = 0; i < n; i++) m = x[i] > m ? x[i] : m;
    return m;
}

static float gx__row_exps(float *exps, const float *x, float m, int64_t n) // returns their sum; exps may be x, or NULL
{
    float sum = 0;
    if (exps) {
        GX_OMP(simd reduction(+ : sum))
        for (int64_t i = 0; i < n; i++) {
            float e = gx_cpu_exp(x[i] - m);
            exps[i] = e;
            sum += e;
        }
    } else {
        GX_OMP(simd reduction(+ : sum))
        for (int64_t i = 0; i < n; i++) sum += gx_cpu_exp(x[i] - m);
    }
    return sum;
}

static void gx__row_gradient(float *dx, const float *exps, float sum, int64_t label, float scale, int64_t n) // label: it may be outside
{
    float k = scale / sum;
    GX_OMP(simd)
    for (int64_t i = 0; i < n; i++) dx[i] = exps[i] * k;
    if (label >= 0 && label < n) dx[label] -= scale;
}

// 1: it counts; 0: it is ignored, or wrong and an error.
static int gx__label_counts(GxContext *g, int32_t label, int64_t row, int64_t vocab_size)
{
    if (label >= 0 && label < vocab_size) return 1;
    if (label != GX_IGNORE_INDEX)
        GX_FAIL(&g->error, GX_ERR_ARGUMENT, "label %d in row %ld; labels are 0 to %ld, or %d for those that do not count", (int)label,
                (long)row, (long)vocab_size - 1, GX_IGNORE_INDEX);
    return 0;
}

void gx_cpu_cross_entropy(GxContext *g, float *losses, void *dlogits, const void *logits, const int32_t *labels, int64_t R, int64_t V,
                          float scale, GxDtype dtype)
{
    (void)dtype;
    GX_OMP(parallel for schedule(static) num_threads(gx_threads(g)))
    for (int64_t r = 0; r < R; r++) {
        const float *x = (const float *)logits + r * V;
        float *dx = dlogits ? (float *)dlogits + r * V : NULL;
        losses[r] = 0;
        if (gx__label_counts(g, labels[r], r, V)) {
            float m = gx__row_maximum(x, V), target = x[labels[r]] - m; // read before dx, which may be x, is written
            float sum = gx__row_exps(dx, x, m, V);
            losses[r] = logf(sum) - target;
            if (dx) gx__row_gradient(dx, dx, sum, labels[r], scale, V);
        } else if (dx) {
            memset(dx, 0, (size_t)V * 4);
        }
    }
}

void gx_cpu_cross_entropy_maximum(GxContext *g, float *maximum, const void *logits, int64_t R, int64_t V, GxDtype dtype)
{
    (void)g, (void)dtype;
    GX_OMP(parallel for schedule(static) num_threads(gx_threads(g)))
    for (int64_t r = 0; r < R; r++) maximum[r] = gx__row_maximum((const float *)logits + r * V, V);
}

void gx_cpu_cross_entropy_sums(GxContext *g, float *sums, void *exps, const void *logits, const float *maximum, const int32_t *labels,
                               int64_t R, int64_t V, int64_t v_begin, int64_t vocab_size, GxDtype dtype)
{
    (void)dtype;
    GX_OMP(parallel for schedule(static) num_threads(gx_threads(g)))
    for (int64_t r = 0; r < R; r++) {
        const float *x = (const float *)logits + r * V;
        const int64_t label = gx__label_counts(g, labels[r], r, vocab_size) ? labels[r] - v_begin : -1;
        sums[R + r] = label >= 0 && label < V ? x[label] - maximum[r] : 0; // read before exps, which may be x, are written
        sums[r] = gx__row_exps(exps ? (float *)exps + r * V : NULL, x, maximum[r], V);
    }
}

void gx_cpu_cross_entropy_finish(GxContext *g, float *losses, void *dlogits, const void *exps, const float *sums, const int32_t *labels,
                                 int64_t R, int64_t V, int64_t v_begin, float scale, GxDtype dtype)
{
    (void)g, (void)dtype;
    GX_OMP(parallel for schedule(static) num_threads(gx_threads(g)))
    for (int64_t r = 0; r < R; r++) {
        const int counts = labels[r] != GX_IGNORE_INDEX;
        float *dx = dlogits ? (float *)dlogits + r * V : NULL;
        losses[r] = counts ? logf(sums[r]) - sums[R + r] : 0;
        if (dx && counts) gx__row_gradient(dx, (const float *)exps + r * V, sums[r], labels[r] - v_begin, scale, V);
        else if (dx) memset(dx, 0, (size_t)V * 4);
    }
}
#endif
