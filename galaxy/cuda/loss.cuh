// cuda/loss.cuh: ops/loss.h on the GPU.
#ifndef GX_CUDA_LOSS_CUH
#define GX_CUDA_LOSS_CUH
#include "../ops/loss.h"
#include "kernel.cuh"
GX_BEGIN

void gx_cuda_cross_entropy(GxContext *g, float *losses, void *dlogits, const void *logits, const int32_t *labels,
                           int64_t R, int64_t V, const int64_t *count, const float *weights, float smoothing,
                           GxDtype dtype);
void gx_cuda_cross_entropy_maximum(GxContext *g, float *maximum, const void *logits, int64_t R, int64_t V,
                                   GxDtype dtype);
void gx_cuda_cross_entropy_sums(GxContext *g, float *sums, void *exps, const void *logits, const float *maximum,
                                const int32_t *labels, const GxVocabPart *part, GxDtype dtype);
void gx_cuda_cross_entropy_finish(GxContext *g, float *losses, void *dlogits, const void *exps, const float *sums,
                                  const int32_t *labels, const GxVocabPart *part, const int64_t *count,
                                  const float *weights, GxDtype dtype);

void gx_cuda_squared_error(GxContext *g, float *losses, void *dlogits, const void *logits, const float *targets,
                           int64_t R, int64_t V, const int64_t *count, GxDtype dtype);
void gx_cuda_binary_cross_entropy(GxContext *g, float *losses, void *dlogits, const void *logits, const float *targets,
                                  int64_t R, int64_t V, const int64_t *count, GxDtype dtype);

GX_END
#endif

#if defined(GALAXY_CUDA_IMPLEMENTATION) && !defined(GX_CUDA_LOSS_IMPLEMENTED)
#define GX_CUDA_LOSS_IMPLEMENTED
#include "kernel.cuh"
#include <cfloat>

// A block per row, with one thread per pack, at most 512. A row has up to about 100,000 columns (256 KB) and is read
// from memory once; the pass that writes the gradient finds it in the L2 cache.
enum { GX_LOSS_THREADS = 512 };

// exp(x) for x <= 0. Rounding the product causes a relative error of |x|*2^-24, so no term of a softmax is off by more
// than 2^-24 of the largest.
static __device__ __forceinline__ float gx__cuda_exp(float x) { return exp2f(x * 1.44269504f); }

// A thread's running softmax: the maximum so far, and the sum of exp(x - maximum) (Milakov & Gimelshein 2018,
// arXiv:1805.02867, algorithm 3).
struct GxSoftmaxSum {
    float maximum, sum;
};
template <class T, int N> static __device__ GxSoftmaxSum gx__cuda_softmax_sum(const T *x, int64_t V)
{
    GxSoftmaxSum s = {-FLT_MAX, 0}; // finite, because -inf - -inf would be NaN
    float v[N];
    for (int64_t c = (int64_t)threadIdx.x * N; c < V; c += (int64_t)blockDim.x * N) {
        gx_load(v, x + c);
        float top = s.maximum;
        for (int i = 0; i < N; i++) top = fmaxf(top, v[i]);
        s.sum *= gx__cuda_exp(s.maximum - top);
        for (int i = 0; i < N; i++) s.sum += gx__cuda_exp(v[i] - top);
        s.maximum = top;
    }
    return s;
}

// The sum of a row's x - maximum, for smoothed labels; all threads of the block get it.
template <class T, int N> static __device__ float gx__cuda_row_total(const T *x, float maximum, int64_t V)
{
    float total = 0, v[N];
    for (int64_t c = (int64_t)threadIdx.x * N; c < V; c += (int64_t)blockDim.x * N) {
        gx_load(v, x + c);
        for (int i = 0; i < N; i++) total += v[i] - maximum;
    }
    return gx_block_sum(total);
}

// How a label counts: `own` in its own column, `even` in all of them. Without smoothing 1 and 0, which change no bit.
struct GxSmoothing {
    float own, even;
    // the logit that it stands for, from the label's and the sum over all columns, both minus the maximum
    __device__ __forceinline__ float logit(float target, float total) const
    {
        return fmaf(even, total, own * target); // which product is rounded is said, so that all kernels round alike
    }
};
static GxSmoothing gx__cuda_smoothing(float smoothing, int64_t vocab_size)
{
    return {1 - smoothing, smoothing / (float)vocab_size};
}

// 1/count, or 0 if there are no labels; count NULL: 1.
static __device__ __forceinline__ float gx__cuda_loss_scale(const int64_t *count)
{
    if (!count) return 1;
    return *count ? 1.0f / (float)*count : 0;
}

// 1: the label counts; 0: it is ignored or invalid. The first invalid one is recorded as a fault.
static __device__ int gx__cuda_label_counts(GxCudaFault *fault, int label, int64_t row, int64_t vocab_size)
{
    if (label >= 0 && label < vocab_size) return 1;
    if (label == GX_IGNORE_INDEX || threadIdx.x != 0 || atomicCAS(&fault->kind, 0, (int)GX_CUDA_FAULT_LABEL) != 0)
        return 0;
    fault->value = label;
    fault->row = row;
    fault->limit = vocab_size;
    return 0;
}

// scale * (e/sum - own*[hit] - even) with k = scale/sum. e is an exponential rounded to its type, so that the gradient
// has the same bits whether it is computed in steps or at once. The label's is computed from its logit minus the
// maximum, unrounded, because p - 1 may cancel.
static __device__ __forceinline__ float gx__cuda_softmax_gradient(float e, float k, bool hit, float target, float scale,
                                                                  GxSmoothing label)
{
    return hit ? fmaf(gx__cuda_exp(target), k, -scale * (label.own + label.even)) : fmaf(e, k, -scale * label.even);
}

// losses[r] = log(sum_v exp(x[v] - m)) - smoothing.logit(x[label] - m),  m = max_v x[v]; dlogits:
// gx__cuda_softmax_gradient
template <class T, int N>
static __global__ void __launch_bounds__(GX_LOSS_THREADS)
    gx__cuda_cross_entropy_rows(float *losses, T *dlogits, const T *logits, const int32_t *labels, int64_t R, int64_t V,
                                const int64_t *count, const float *weights, GxSmoothing smoothing, GxCudaFault *fault)
{
    const int64_t first = (int64_t)threadIdx.x * N, step = (int64_t)blockDim.x * N;
    for (int64_t r = blockIdx.x; r < R; r += gridDim.x) {
        const T *x = logits + r * V;
        T *dx = dlogits ? dlogits + r * V : NULL;
        const int label = labels[r], counts = gx__cuda_label_counts(fault, label, r, V);
        float loss = 0, maximum = 0, target = 0, k = 0, by = 0, v[N];
        if (counts) {
            target = gx_to_float(x[label]); // read before dx, which may be x, is written: the sums below synchronize
            const GxSoftmaxSum mine = gx__cuda_softmax_sum<T, N>(x, V);
            maximum = gx_block_max(mine.maximum);
            const float sum = gx_block_sum(mine.sum * gx__cuda_exp(mine.maximum - maximum));
            const float total = smoothing.even != 0 ? gx__cuda_row_total<T, N>(x, maximum, V) : 0;
            target -= maximum;
            loss = logf(sum) - smoothing.logit(target, total);
            by = dx ? gx__cuda_loss_scale(count) * (weights ? weights[r] : 1) : 0;
            k = by / sum;
        }
        if (threadIdx.x == 0) losses[r] = loss;
        for (int64_t c = first; dx && c < V; c += step) {
            gx_load(v, x + c);
            for (int i = 0; i < N; i++)
                v[i] = counts ? gx__cuda_softmax_gradient(gx_round<T>(gx__cuda_exp(v[i] - maximum)), k, c + i == label,
                                                          target, by, smoothing)
                              : 0;
            gx_store(dx + c, v);
        }
    }
}

// maximum[r] = max_v logits[r,v]
template <class T, int N>
static __global__ void __launch_bounds__(GX_LOSS_THREADS)
    gx__cuda_maximum_rows(float *maximum, const T *logits, int64_t R, int64_t V)
{
    float v[N];
    for (int64_t r = blockIdx.x; r < R; r += gridDim.x) {
        float top = -INFINITY;
        for (int64_t c = (int64_t)threadIdx.x * N; c < V; c += (int64_t)blockDim.x * N) {
            gx_load(v, logits + r * V + c);
            for (int i = 0; i < N; i++) top = fmaxf(top, v[i]);
        }
        top = gx_block_max(top);
        if (threadIdx.x == 0) maximum[r] = top;
    }
}

// exps[r,v] = exp(logits[r,v] - maximum[r]), sums[r] = sum_v exps[r,v], sums[R + r] = logits[r, label] - maximum[r];
// with smoothed labels sums[2*R + r] = sum_v (logits[r,v] - maximum[r])
// The sum uses each thread's own maximum, as in gx__cuda_cross_entropy_rows, although the row's is known: this way one
// rank with all columns gets the same bits.
template <class T, int N>
static __global__ void __launch_bounds__(GX_LOSS_THREADS)
    gx__cuda_cross_entropy_sums_rows(float *sums, T *exps, const T *logits, const float *maximum, const int32_t *labels,
                                     int64_t R, int64_t V, int64_t v_begin, int64_t vocab_size, bool is_smoothed,
                                     GxCudaFault *fault)
{
    for (int64_t r = blockIdx.x; r < R; r += gridDim.x) {
        const T *x = logits + r * V;
        const float top = maximum[r];
        const int64_t label = gx__cuda_label_counts(fault, labels[r], r, vocab_size) ? labels[r] - v_begin : -1;
        // read before exps, which may be x, is written
        const float target = label >= 0 && label < V ? gx_to_float(x[label]) - top : 0;
        const GxSoftmaxSum mine = gx__cuda_softmax_sum<T, N>(x, V);
        const float sum = gx_block_sum(mine.sum * gx__cuda_exp(mine.maximum - top));
        const float total = is_smoothed ? gx__cuda_row_total<T, N>(x, top, V) : 0;
        if (threadIdx.x == 0) sums[r] = sum, sums[R + r] = target;
        if (threadIdx.x == 0 && is_smoothed) sums[2 * R + r] = total;
        float v[N];
        for (int64_t c = (int64_t)threadIdx.x * N; exps && c < V; c += (int64_t)blockDim.x * N) {
            gx_load(v, x + c);
            for (int i = 0; i < N; i++) v[i] = gx__cuda_exp(v[i] - top);
            gx_store(exps + r * V + c, v);
        }
    }
}

// losses[r] = log(sums[r]) - smoothing.logit(sums[R + r])
struct GxLossOp : GxEachOp {
    float *losses;
    const float *sums; // [2*R], [3*R] with smoothed labels
    const int32_t *labels;
    int64_t R;
    GxSmoothing smoothing;
    template <int N> __device__ void at(int64_t r) const
    {
        for (int i = 0; i < N; i++) {
            const float total = smoothing.even != 0 ? sums[2 * R + r + i] : 0;
            losses[r + i] = labels[r + i] != GX_IGNORE_INDEX
                                ? logf(sums[r + i]) - smoothing.logit(sums[R + r + i], total)
                                : 0;
        }
    }
};

// dlogits[r,v] = scale * weights[r] * (exps[r,v]/sums[r] - (1 - smoothing)*[v_begin + v = labels[r]] -
// smoothing/vocab_size)
template <class T> struct GxLossGradientOp {
    T *dlogits;
    const T *exps;
    const float *sums; // [2*R] and more
    const int32_t *labels;
    int64_t R, V, v_begin;
    GxSmoothing smoothing;
    const int64_t *count; // NULL: 1
    const float *weights; // [R]; NULL: all are 1
    template <int N> __device__ void at(int64_t r, int64_t c) const
    {
        const int counts = labels[r] != GX_IGNORE_INDEX;
        const int64_t hit = labels[r] - v_begin - c;
        const float by = gx__cuda_loss_scale(count) * (weights ? weights[r] : 1), k = by / sums[r],
                    target = sums[R + r];
        float v[N];
        gx_load(v, exps + r * V + c);
        for (int i = 0; i < N; i++) v[i] = counts ? gx__cuda_softmax_gradient(v[i], k, i == hit, target, by, smoothing) : 0;
        gx_store(dlogits + r * V + c, v);
    }
};

// ---- launches: a block per row -------------------------------------------------------------------------------------
#define GX__CUDA_LAUNCH_ROWS(kernel, N, ...)                                                                           \
    GX_LAUNCH((kernel<T, N>), gx_cuda_blocks(R),                                                                       \
              gx_cuda_threads(gx_ceil_div(V, N), GX_LOSS_THREADS), 0, gx_cuda(g)->stream, __VA_ARGS__)

template <class T>
static void gx__cuda_cross_entropy(GxContext *g, float *losses, void *dlogits, const void *logits,
                                   const int32_t *labels, int64_t R, int64_t V, const int64_t *count,
                                   const float *weights, float share)
{
    const GxSmoothing smoothing = gx__cuda_smoothing(share, V);
    T *dx = (T *)dlogits;
    const T *x = (const T *)logits;
    GxCudaFault *fault = gx_cuda(g)->fault;
    if (gx_wide<T>(V, dx, x))
        GX__CUDA_LAUNCH_ROWS(gx__cuda_cross_entropy_rows, GxPack<T>::N, losses, dx, x, labels, R, V, count, weights,
                             smoothing, fault);
    else
        GX__CUDA_LAUNCH_ROWS(gx__cuda_cross_entropy_rows, 1, losses, dx, x, labels, R, V, count, weights, smoothing,
                             fault);
    gx_cuda_check(g, "cross_entropy");
}

void gx_cuda_cross_entropy(GxContext *g, float *losses, void *dlogits, const void *logits, const int32_t *labels,
                           int64_t R, int64_t V, const int64_t *count, const float *weights, float smoothing,
                           GxDtype dtype)
{
    GX_CUDA_TYPES(dtype, gx__cuda_cross_entropy, g, losses, dlogits, logits, labels, R, V, count, weights,
                  smoothing);
}

template <class T>
static void gx__cuda_cross_entropy_maximum(GxContext *g, float *maximum, const void *logits, int64_t R, int64_t V)
{
    const T *x = (const T *)logits;
    if (gx_wide<T>(V, x)) GX__CUDA_LAUNCH_ROWS(gx__cuda_maximum_rows, GxPack<T>::N, maximum, x, R, V);
    else GX__CUDA_LAUNCH_ROWS(gx__cuda_maximum_rows, 1, maximum, x, R, V);
    gx_cuda_check(g, "cross_entropy_maximum");
}

void gx_cuda_cross_entropy_maximum(GxContext *g, float *maximum, const void *logits, int64_t R, int64_t V,
                                   GxDtype dtype)
{
    GX_CUDA_TYPES(dtype, gx__cuda_cross_entropy_maximum, g, maximum, logits, R, V);
}

template <class T>
static void gx__cuda_cross_entropy_sums(GxContext *g, float *sums, void *exps, const void *logits, const float *maximum,
                                        const int32_t *labels, const GxVocabPart *part)
{
    const int64_t R = part->R, V = part->V;
    const bool is_smoothed = part->smoothing != 0;
    T *e = (T *)exps;
    const T *x = (const T *)logits;
    GxCudaFault *fault = gx_cuda(g)->fault;
    if (gx_wide<T>(V, e, x))
        GX__CUDA_LAUNCH_ROWS(gx__cuda_cross_entropy_sums_rows, GxPack<T>::N, sums, e, x, maximum, labels, R, V,
                             part->v_begin, part->vocab_size, is_smoothed, fault);
    else
        GX__CUDA_LAUNCH_ROWS(gx__cuda_cross_entropy_sums_rows, 1, sums, e, x, maximum, labels, R, V, part->v_begin,
                             part->vocab_size, is_smoothed, fault);
    gx_cuda_check(g, "cross_entropy_sums");
}

void gx_cuda_cross_entropy_sums(GxContext *g, float *sums, void *exps, const void *logits, const float *maximum,
                                const int32_t *labels, const GxVocabPart *part, GxDtype dtype)
{
    GX_CUDA_TYPES(dtype, gx__cuda_cross_entropy_sums, g, sums, exps, logits, maximum, labels, part);
}

template <class T>
static void gx__cuda_cross_entropy_finish(GxContext *g, void *dlogits, const void *exps, const float *sums,
                                          const int32_t *labels, const GxVocabPart *part, const int64_t *count,
                                          const float *weights)
{
    const int64_t R = part->R, V = part->V;
    const GxSmoothing smoothing = gx__cuda_smoothing(part->smoothing, part->vocab_size);
    const GxLossGradientOp<T> op = {(T *)dlogits, (const T *)exps, sums,  labels, R, V,
                                    part->v_begin, smoothing,       count, weights};
    gx_each_row<T>(g, "cross_entropy_finish", op, R, V, gx_wide<T>(V, dlogits, exps));
}

void gx_cuda_cross_entropy_finish(GxContext *g, float *losses, void *dlogits, const void *exps, const float *sums,
                                  const int32_t *labels, const GxVocabPart *part, const int64_t *count,
                                  const float *weights, GxDtype dtype)
{
    const GxLossOp op = {
        {}, losses, sums, labels, part->R, gx__cuda_smoothing(part->smoothing, part->vocab_size)};
    gx_each<float>(g, "cross_entropy_finish", op, part->R, false);
    if (dlogits)
        GX_CUDA_TYPES(dtype, gx__cuda_cross_entropy_finish, g, dlogits, exps, sums, labels, part, count, weights);
}
#undef GX__CUDA_LAUNCH_ROWS

// ---- losses with targets -------------------------------------------------------------------------------------------
// Such a loss is a struct with `at`, which returns an element's loss and its gradient. Rows are short: a block per row,
// with one thread per element, at most 256.
struct GxLossOfElement {
    float loss, gradient;
};
// loss = (x - t)^2, gradient = 2*(x - t)
struct GxSquaredError {
    static __device__ GxLossOfElement at(float x, float t) { return {(x - t) * (x - t), 2 * (x - t)}; }
};
// loss = max(x,0) - x*t + log(1 + exp(-|x|)), gradient = 1/(1 + exp(-x)) - t
struct GxBinaryCrossEntropy {
    static __device__ GxLossOfElement at(float x, float t)
    {
        return {fmaxf(x, 0) - x * t + log1pf(expf(-fabsf(x))), 1.0f / (1.0f + expf(-x)) - t};
    }
};

template <class T, class Loss>
static __global__ void __launch_bounds__(GX_CUDA_BLOCK)
    gx__cuda_target_rows(float *losses, T *dlogits, const T *logits, const float *targets, int64_t R, int64_t V,
                         const int64_t *count)
{
    const float scale = dlogits ? gx__cuda_loss_scale(count) : 1;
    for (int64_t r = blockIdx.x; r < R; r += gridDim.x) {
        float sum = 0;
        for (int64_t v = threadIdx.x; v < V; v += blockDim.x) {
            const GxLossOfElement e = Loss::at(gx_to_float(logits[r * V + v]), targets[r * V + v]);
            sum += e.loss;
            if (dlogits) dlogits[r * V + v] = gx_from_float<T>(scale * e.gradient);
        }
        sum = gx_block_sum(sum);
        if (threadIdx.x == 0) losses[r] = sum;
    }
}
template <class T, class Loss>
static void gx__cuda_target_loss(GxContext *g, const char *name, float *losses, void *dlogits, const void *logits,
                                 const float *targets, int64_t R, int64_t V, const int64_t *count)
{
    GX_LAUNCH((gx__cuda_target_rows<T, Loss>), gx_cuda_blocks(R), gx_cuda_threads(V, GX_CUDA_BLOCK), 0,
              gx_cuda(g)->stream, losses, (T *)dlogits, (const T *)logits, targets, R, V, count);
    gx_cuda_check(g, name);
}
template <class T>
static void gx__cuda_squared_error(GxContext *g, float *losses, void *dlogits, const void *logits, const float *targets,
                                   int64_t R, int64_t V, const int64_t *count)
{
    gx__cuda_target_loss<T, GxSquaredError>(g, "squared_error", losses, dlogits, logits, targets, R, V, count);
}
template <class T>
static void gx__cuda_binary_cross_entropy(GxContext *g, float *losses, void *dlogits, const void *logits,
                                          const float *targets, int64_t R, int64_t V, const int64_t *count)
{
    gx__cuda_target_loss<T, GxBinaryCrossEntropy>(g, "binary_cross_entropy", losses, dlogits, logits, targets, R, V,
                                                  count);
}

void gx_cuda_squared_error(GxContext *g, float *losses, void *dlogits, const void *logits, const float *targets,
                           int64_t R, int64_t V, const int64_t *count, GxDtype dtype)
{
    GX_CUDA_TYPES(dtype, gx__cuda_squared_error, g, losses, dlogits, logits, targets, R, V, count);
}

void gx_cuda_binary_cross_entropy(GxContext *g, float *losses, void *dlogits, const void *logits, const float *targets,
                                  int64_t R, int64_t V, const int64_t *count, GxDtype dtype)
{
    GX_CUDA_TYPES(dtype, gx__cuda_binary_cross_entropy, g, losses, dlogits, logits, targets, R, V, count);
}
#endif
