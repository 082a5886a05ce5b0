// cpu/optimizer.h: ops/optimizer.h on the CPU.
#ifndef GX_CPU_OPTIMIZER_H
#define GX_CPU_OPTIMIZER_H
#include "../ops/optimizer.h"
GX_BEGIN

void gx_cpu_square_blocks(GxContext *g, double *blocks, const float *x, const GxSumParts *parts);
void gx_cpu_clip(GxContext *g, double max_norm);
void gx_cpu_adamw(GxContext *g, const GxUpdate *u, const GxAdamW *o);
void gx_cpu_sgd(GxContext *g, const GxUpdate *u, const GxSgd *o);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CPU_OPTIMIZER_IMPLEMENTED)
#define GX_CPU_OPTIMIZER_IMPLEMENTED
#include <math.h>
#include "elementwise.h"
#include "vec.h"

void gx_cpu_square_blocks(GxContext *g, double *blocks, const float *x, const GxSumParts *parts)
{
    for (int64_t i = 0; i < parts->parts; i++) {
        gx__cpu_sum_blocks(g, blocks, x + parts->part[i].begin, parts->part[i].n, GX_SQUARES_BLOCK, 1);
        blocks += gx_ceil_div(parts->part[i].n, GX_SQUARES_BLOCK);
    }
}

// clip = min(1, max_norm/(norm + 1e-6)), skip = norm is not finite,  norm = sqrt(sum_squares)
void gx_cpu_clip(GxContext *g, double max_norm)
{
    GxStep *s = g->step;
    double norm = sqrt(s->sum_squares), factor = max_norm / (norm + 1e-6);
    s->skip = !isfinite(norm);
    s->clip = max_norm > 0 && factor < 1 ? (float)factor : 1.0f;
    if (!s->skip) s->applied++;
}

// Whether weight decay applies to element i, and up to where (`end` at most) the same holds for the following ones.
typedef struct {
    int decays;
    int64_t end;
} GxCpuDecay;
static GxCpuDecay gx__cpu_decay_from(const GxUndecayed *u, int64_t i, int64_t end)
{
    GxCpuDecay d = {1, end};
    for (int r = u->n - 1; r >= 0 && i < u->end[r]; r--) {
        d.decays = i < u->begin[r];
        d.end = gx_min(end, d.decays ? u->begin[r] : u->end[r]);
    }
    return d;
}

typedef struct {
    float clip, b1, b2, eps;
    float c2, rate, keep; // 1/(1-b2^t), lr/(1-b1^t), 1 - lr*weight_decay
} GxAdamWStep;

// x = clip*grad; m = b1*m + (1-b1)*x; v = b2*v + (1-b2)*x^2
// w = w*(1 - lr*weight_decay) - lr/(1-b1^t) * m / (sqrt(v/(1-b2^t)) + eps)
static GX_CPU_INLINE void gx__cpu_adamw_range(const GxUpdate *u, int64_t begin, int64_t end, float keep,
                                              const GxAdamWStep *o, GxDtype dtype)
{
    const float clip = o->clip, b1 = o->b1, b2 = o->b2, eps = o->eps, c2 = o->c2, rate = o->rate;
    float *w = u->w + begin, *m = u->m + begin, *v = u->v + begin;
    const float *grad = u->grad + begin;
    void *copy = gx_cpu_at(u->copy, begin, dtype);
    GX_OMP(simd)
    for (int64_t i = 0; i < end - begin; i++) {
        float x = grad[i] * clip;
        float mi = b1 * m[i] + (1.0f - b1) * x, vi = b2 * v[i] + (1.0f - b2) * x * x;
        m[i] = mi;
        v[i] = vi;
        w[i] = w[i] * keep - rate * mi / (sqrtf(vi * c2) + eps);
        if (copy) gx_cpu_store(copy, i, w[i], dtype);
    }
}

void gx_cpu_adamw(GxContext *g, const GxUpdate *u, const GxAdamW *o)
{
    const GxStep *s = g->step;
    if (s->skip) return;
    const float c1 = (float)(1.0 / (1.0 - pow((double)o->beta1, (double)s->applied))),
                c2 = (float)(1.0 / (1.0 - pow((double)o->beta2, (double)s->applied)));
    const GxAdamWStep step = {s->clip, o->beta1, o->beta2, o->eps, c2, s->lr * c1, 1.0f - s->lr * o->weight_decay};
    GX_OMP(parallel for schedule(static) num_threads(gx_threads(g)))
    for (int64_t i = 0; i < u->n; i += GX__CPU_RANGE)
        for (int64_t at = i, end = gx_min(i + GX__CPU_RANGE, u->n); at < end;) {
            const GxCpuDecay d = gx__cpu_decay_from(&u->undecayed, at, end);
            GX_CPU_TYPES(u->dtype, gx__cpu_adamw_range, u, at, d.end, d.decays ? step.keep : 1.0f, &step);
            at = d.end;
        }
}

// x = clip*grad + weight_decay*w; m = mu*m + x; w -= lr*m (without momentum: lr*x)
static GX_CPU_INLINE void gx__cpu_sgd_range(const GxUpdate *u, int64_t begin, int64_t end, float decay, const GxSgd *o,
                                            const GxStep *s, GxDtype dtype)
{
    const float mu = o->momentum, lr = s->lr, clip = s->clip;
    float *w = u->w + begin, *m = u->m ? u->m + begin : NULL;
    const float *grad = u->grad + begin;
    void *copy = gx_cpu_at(u->copy, begin, dtype);
    GX_OMP(simd)
    for (int64_t i = 0; i < end - begin; i++) {
        float x = grad[i] * clip + decay * w[i];
        if (m) x = m[i] = mu * m[i] + x;
        w[i] -= lr * x;
        if (copy) gx_cpu_store(copy, i, w[i], dtype);
    }
}

void gx_cpu_sgd(GxContext *g, const GxUpdate *u, const GxSgd *o)
{
    if (g->step->skip) return;
    GX_OMP(parallel for schedule(static) num_threads(gx_threads(g)))
    for (int64_t i = 0; i < u->n; i += GX__CPU_RANGE)
        for (int64_t at = i, end = gx_min(i + GX__CPU_RANGE, u->n); at < end;) {
            const GxCpuDecay d = gx__cpu_decay_from(&u->undecayed, at, end);
            GX_CPU_TYPES(u->dtype, gx__cpu_sgd_range, u, at, d.end, d.decays ? o->weight_decay : 0.0f, o, g->step);
            at = d.end;
        }
}
#endif
