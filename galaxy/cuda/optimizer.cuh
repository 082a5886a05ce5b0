// cuda/optimizer.cuh: ops/optimizer.h on the GPU. Kernels read what changes from step to step from g->step.
#ifndef GX_CUDA_OPTIMIZER_CUH
#define GX_CUDA_OPTIMIZER_CUH
#include "../ops/optimizer.h"
#include "kernel.cuh"
GX_BEGIN

void gx_cuda_square_blocks(GxContext *g, double *blocks, const float *x, const GxSumParts *parts);
void gx_cuda_add_blocks(GxContext *g, double *total, const double *blocks, int64_t n, int accumulate);
void gx_cuda_clip(GxContext *g, double max_norm);
void gx_cuda_adamw(GxContext *g, const GxUpdate *u, const GxAdamW *o);
void gx_cuda_sgd(GxContext *g, const GxUpdate *u, const GxSgd *o);

GX_END
#endif

#if defined(GALAXY_CUDA_IMPLEMENTATION) && !defined(GX_CUDA_OPTIMIZER_IMPLEMENTED)
#define GX_CUDA_OPTIMIZER_IMPLEMENTED
#include "elementwise.cuh"

// The part that contains block b of all parts' blocks.
static __device__ const GxSumPart *gx__cuda_part_of(const GxSumPart *part, int64_t parts, int64_t b)
{
    int64_t first = 0, last = parts - 1;
    while (first < last) {
        const int64_t middle = (first + last + 1) / 2;
        if (part[middle].blocks - part[0].blocks <= b) first = middle;
        else last = middle - 1;
    }
    return part + first;
}

// sum[b]: the sum of the squares of block b of the parts, like gx__cuda_sum_blocks
static __global__ void __launch_bounds__(GX_CUDA_BLOCK)
    gx__cuda_squares_of_parts(double *sum, const float *x, const GxSumPart *part, int64_t parts, int64_t blocks)
{
    for (int64_t b = blockIdx.x; b < blocks; b += gridDim.x) {
        const GxSumPart *p = gx__cuda_part_of(part, parts, b);
        const int64_t first = (b - (p->blocks - part[0].blocks)) * GX_SQUARES_BLOCK;
        const double s = gx_block_sum_of<GX_SQUARES_BLOCK, 1>(x + p->begin + first, p->n - first);
        if (threadIdx.x == 0) sum[b] = s;
    }
}

// One launch for all parts together.
void gx_cuda_square_blocks(GxContext *g, double *blocks, const float *x, const GxSumParts *parts)
{
    GX_LAUNCH(gx__cuda_squares_of_parts, gx_cuda_blocks(parts->blocks), GX_CUDA_BLOCK, 0, gx_cuda(g)->stream, blocks, x,
              parts->part, parts->parts, parts->blocks);
    gx_cuda_check(g, "square_blocks");
}

void gx_cuda_add_blocks(GxContext *g, double *total, const double *blocks, int64_t n, int accumulate)
{
    gx__cuda_sum_parts(g, total, blocks, n, accumulate);
    gx_cuda_check(g, "add_blocks");
}

// clip = min(1, max_norm/(norm + 1e-6)), skip = norm is not finite,  norm = sqrt(sum_squares)
static __global__ void gx__cuda_clip_one(GxStep *s, double max_norm)
{
    const double norm = sqrt(s->sum_squares), factor = max_norm / (norm + 1e-6);
    s->skip = !(norm < INFINITY); // also true for NaN
    s->clip = max_norm > 0 && factor < 1 ? (float)factor : 1.0f;
    if (!s->skip) s->applied++;
}

void gx_cuda_clip(GxContext *g, double max_norm)
{
    GX_LAUNCH(gx__cuda_clip_one, 1, 1, 0, gx_cuda(g)->stream, g->step, max_norm);
    gx_cuda_check(g, "clip");
}

// Bit j: 1 if weight decay applies to element i + j; j < 32.
static __device__ __forceinline__ unsigned gx__cuda_decaying(const GxUndecayed &u, int64_t i)
{
    unsigned all = ~0u;
    for (int r = 0; r < u.n; r++) {
        const int64_t begin = max(u.begin[r] - i, (int64_t)0), end = max(u.end[r] - i, (int64_t)0);
        const unsigned before = (1u << min(begin, (int64_t)31)) - 1, up_to = (1u << min(end, (int64_t)31)) - 1;
        all &= before | ~up_to;
    }
    return all;
}

// x = clip*grad; m = b1*m + (1-b1)*x; v = b2*v + (1-b2)*x^2
// w = w*(1 - lr*weight_decay) - lr/(1-b1^t) * m / (sqrt(v/(1-b2^t)) + eps)
// 28 bytes and a copy per element, in accesses of 16 bytes. What depends only on the step is computed once per block
// (fp64 powers are slow). FMAs are written explicitly, so that the compiler does not choose which products to fuse.
template <class T> struct GxAdamWOp : GxEachOp {
    GxUpdate u;
    GxAdamW o;
    const GxStep *step;
    static __device__ float *once() // 1/(1 - b1^t), 1/(1 - b2^t)
    {
        GX_SHARED(float, corrections, [2]);
        return corrections;
    }
    __device__ bool begin() const
    {
        if (step->skip) return false;
        if (threadIdx.x == 0) {
            once()[0] = (float)(1.0 / (1.0 - pow((double)o.beta1, (double)step->applied)));
            once()[1] = (float)(1.0 / (1.0 - pow((double)o.beta2, (double)step->applied)));
        }
        __syncthreads();
        return true;
    }
    template <int N> __device__ void at(int64_t i) const
    {
        const float clip = step->clip, rate = step->lr * once()[0], keep = 1.0f - step->lr * o.weight_decay,
                    c2 = once()[1];
        float x[N], wi[N], mi[N], vi[N];
        gx_load(x, u.grad + i);
        gx_load(wi, u.w + i);
        gx_load(mi, u.m + i);
        gx_load(vi, u.v + i);
        const unsigned decaying = gx__cuda_decaying(u.undecayed, i);
        for (int j = 0; j < N; j++) {
            x[j] *= clip;
            mi[j] = fmaf(1.0f - o.beta1, x[j], o.beta1 * mi[j]);
            vi[j] = fmaf(o.beta2, vi[j], (1.0f - o.beta2) * x[j] * x[j]);
            wi[j] = fmaf(wi[j], decaying >> j & 1 ? keep : 1.0f, -(rate * mi[j] / (sqrtf(vi[j] * c2) + o.eps)));
        }
        gx_store(u.w + i, wi);
        gx_store(u.m + i, mi);
        gx_store(u.v + i, vi);
        if (u.copy) gx_store((T *)u.copy + i, wi);
    }
};
template <class T> static void gx__cuda_adamw(GxContext *g, const GxUpdate *u, const GxAdamW *o)
{
    const GxAdamWOp<T> op = {{}, *u, *o, g->step};
    gx_each<T>(g, "adamw", op, u->n, gx_wide<T>(0, u->w, u->m, u->v, u->copy, u->grad));
}

void gx_cuda_adamw(GxContext *g, const GxUpdate *u, const GxAdamW *o)
{
    GX_CUDA_TYPES(u->dtype, gx__cuda_adamw, g, u, o);
}

// x = clip*grad + weight_decay*w; m = mu*m + x; w -= lr*m (without momentum: lr*x)
template <class T> struct GxSgdOp : GxEachOp {
    GxUpdate u;
    GxSgd o;
    const GxStep *step;
    __device__ bool begin() const { return !step->skip; }
    template <int N> __device__ void at(int64_t i) const
    {
        const float clip = step->clip, lr = step->lr;
        float x[N], wi[N], mi[N];
        gx_load(x, u.grad + i);
        gx_load(wi, u.w + i);
        const unsigned decaying = gx__cuda_decaying(u.undecayed, i);
        for (int j = 0; j < N; j++) x[j] = x[j] * clip + (decaying >> j & 1 ? o.weight_decay : 0.0f) * wi[j];
        if (u.m) {
            gx_load(mi, u.m + i);
            for (int j = 0; j < N; j++) x[j] += o.momentum * mi[j];
            gx_store(u.m + i, x);
        }
        for (int j = 0; j < N; j++) wi[j] -= lr * x[j];
        gx_store(u.w + i, wi);
        if (u.copy) gx_store((T *)u.copy + i, wi);
    }
};
template <class T> static void gx__cuda_sgd(GxContext *g, const GxUpdate *u, const GxSgd *o)
{
    const GxSgdOp<T> op = {{}, *u, *o, g->step};
    gx_each<T>(g, "sgd", op, u->n, gx_wide<T>(0, u->w, u->m, u->copy, u->grad));
}

void gx_cuda_sgd(GxContext *g, const GxUpdate *u, const GxSgd *o) { GX_CUDA_TYPES(u->dtype, gx__cuda_sgd, g, u, o); }
#endif
