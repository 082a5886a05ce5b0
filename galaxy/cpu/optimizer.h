// cpu/optimizer.h: ops/optimizer.h on the CPU.
#ifndef GX_CPU_OPTIMIZER_H
#define GX_CPU_OPTIMIZER_H
#include "../ops/optimizer.h"
GX_BEGIN

void gx_cpu_sum_squares(GxContext *g, double *total, const float *x, int64_t n, int accumulate, double *scratch);
void gx_cpu_clip(GxContext *g, double max_norm);
void gx_cpu_adamw(GxContext *g, float *w, float *m, float *v, void *copy, const float *grad, int64_t n, const GxAdamW *o, GxDtype dtype);
void gx_cpu_sgd(GxContext *g, float *w, float *momentum, void *copy, const float *grad, int64_t n, const GxSgd *o, GxDtype dtype);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CPU_OPTIMIZER_IMPLEMENTED)
#define GX_CPU_OPTIMIZER_IMPLEMENTED
#include <math.h>
#include "elementwise.h"

void gx_cpu_sum_squares(GxContext *g, double *total, const float *x, int64_t n, int accumulate, double *scratch)
{
    gx__sum_blocks(g, total, x, n, 1, accumulate, scratch);
}

void gx_cpu_clip(GxContext *g, double max_norm)
{
    GxStep *s = g->step;
    double norm = sqrt(s->sum_squares), factor = max_norm / (norm + 1e-6);
    s->skip = !isfinite(norm);
    s->clip = max_norm > 0 && factor < 1 ? (float)factor : 1.0f;
    if (!s->skip) s->applied++;
}

void gx_cpu_adamw(GxContext *g, float *w, float *m, float *v, void *copy, const float *grad, int64_t n, const GxAdamW *o, GxDtype dtype)
{
    const GxStep *s = g->step;
    if (s->skip) return;
    const float b1 = o->beta1, b2 = o->beta2, eps = o->eps, clip = s->clip;
    const float c1 = (float)(1.0 / (1.0 - pow((double)b1, (double)s->applied))),
                c2 = (float)(1.0 / (1.0 - pow((double)b2, (double)s->applied)));
    const float rate = s->lr * c1, keep = 1.0f - s->lr * o->weight_decay;
    GX_OMP(parallel for simd schedule(static) num_threads(gx_threads(g)))
    for (int64_t i = 0; i < n; i++) {
        float x = grad[i] * clip;
        float mi = b1 * m[i] + (1.0f - b1) * x, vi = b2 * v[i] + (1.0f - b2) * x * x;
        m[i] = mi;
        v[i] = vi;
        w[i] = w[i] * keep - rate * mi / (sqrtf(vi * c2) + eps);
    }
    if (copy) gx_cpu_convert(g, copy, dtype, w, GX_F32, n);
}

void gx_cpu_sgd(GxContext *g, float *w, float *momentum, void *copy, const float *grad, int64_t n, const GxSgd *o, GxDtype dtype)
{
    const GxStep *s = g->step;
    if (s->skip) return;
    const float lr = s->lr, clip = s->clip, decay = o->weight_decay, mu = o->momentum;
    GX_OMP(parallel for simd schedule(static) num_threads(gx_threads(g)))
    for (int64_t i = 0; i < n; i++) {
        float x = grad[i] * clip + decay * w[i];
        if (momentum) x = momentum[i] = mu * momentum[i] + x;
        w[i] -= lr * x;
    }
    if (copy) gx_cpu_convert(g, copy, dtype, w, GX_F32, n);
}
#endif
