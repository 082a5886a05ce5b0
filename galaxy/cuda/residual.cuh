// cuda/residual.cuh: ops/residual.h on the GPU: a Source and a Sink for the kernels of cuda/norm.cuh.
#ifndef GX_CUDA_RESIDUAL_CUH
#define GX_CUDA_RESIDUAL_CUH
#include "../ops/residual.h"
#include "kernel.cuh"
GX_BEGIN

void gx_cuda_residual_forward(GxContext *g, void *y, void *sum, float *mean, float *rstd, const void *x,
                              const void *out, const GxResidual *r);
void gx_cuda_residual_backward(GxContext *g, void *dx, void *dout, float *dbias, float *dw, float *db, const void *dy,
                               const void *sum, const float *mean, const float *rstd, const GxResidual *r,
                               int accumulate, float *scratch);

GX_END
#endif

#if defined(GALAXY_CUDA_IMPLEMENTATION) && !defined(GX_CUDA_RESIDUAL_IMPLEMENTED)
#define GX_CUDA_RESIDUAL_IMPLEMENTED
#include "dropout.cuh"
#include "norm.cuh"

// v = x + dropout(out + bias), rounded as it is stored in `sum` and in `also`; NULL: not stored there.
template <class T> struct GxResidualSource {
    T *sum, *also;
    const T *x, *out, *bias;
    int64_t C;
    GxCudaRandom random;
    __device__ uint64_t begin(int64_t r) const { return random.first(r, C); }
    template <int N> __device__ void at(float (&v)[N], int64_t r, int64_t c, uint64_t drawn) const
    {
        float u[N];
        gx_load(v, out + r * C + c);
        if (bias) {
            gx_load(u, bias + c);
            for (int i = 0; i < N; i++) v[i] += u[i];
        }
        random.drop(v, drawn, c);
        gx_load(u, x + r * C + c);
        for (int i = 0; i < N; i++) v[i] = gx_round<T>(u[i] + v[i]);
        if (sum) gx_store(sum + r * C + c, v);
        if (also) gx_store(also + r * C + c, v);
    }
    __device__ const T *again(int64_t r) const { return sum + r * C; }
};
// Without a norm, this is all that is computed.
template <class T> struct GxResidualSumOp {
    GxResidualSource<T> source;
    template <int N> __device__ void at(int64_t r, int64_t c) const
    {
        float v[N];
        source.at(v, r, c, source.begin(r));
    }
};

template <class T>
static void gx__cuda_residual_forward(GxContext *g, void *y, void *sum, float *mean, float *rstd, const void *x,
                                      const void *out, const GxResidual *r)
{
    GxResidualSource<T> source = {
        (T *)sum, NULL, (const T *)x, (const T *)out, (const T *)r->bias, r->C, gx__cuda_random(g, &r->dropout)};
    const T *w = (const T *)r->w, *b = (const T *)r->b;
    const bool wide = gx_wide<T>(r->C, y, sum, x, out, r->bias, r->w, r->b);
    if (!w) {
        source.also = sum == y ? NULL : (T *)y;
        gx_each_row<T>(g, "residual_forward", GxResidualSumOp<T>{source}, r->R, r->C, wide);
        return;
    }
    if (!sum && !gx__cuda_keeps_row(r->C, sizeof(T))) source.sum = (T *)y; // which the norm then overwrites
    if (wide) gx__cuda_launch_layer_norm<T, GxPack<T>::N>(g, source, (T *)y, mean, rstd, w, b, r->R, r->C, r->eps);
    else gx__cuda_launch_layer_norm<T, 1>(g, source, (T *)y, mean, rstd, w, b, r->R, r->C, r->eps);
    gx_cuda_check(g, "residual_forward");
}

void gx_cuda_residual_forward(GxContext *g, void *y, void *sum, float *mean, float *rstd, const void *x,
                              const void *out, const GxResidual *r)
{
    GX_CUDA_TYPES(r->dtype, gx__cuda_residual_forward, g, y, sum, mean, rstd, x, out, r);
}

// ---- backward ------------------------------------------------------------------------------------------------------
// dx is stored; after dropout it is stored as dout, and v then has what is added to dbias's share. dx, dout NULL: not
// needed. If dout is dx there is no dropout, and the second store writes the same values.
template <class T> struct GxResidualSink : GxStoreSink {
    enum { HAS_MEAN = 1, SUMS = 3 };
    T *dx, *dout;
    int64_t C;
    GxCudaRandom random;
    __device__ uint64_t begin(int64_t r) const { return random.first(r, C); }
    template <int N> __device__ void at(float (&v)[N], int64_t r, int64_t c, uint64_t drawn) const
    {
        if (dx) gx_store(dx + r * C + c, v);
        random.drop(v, drawn, c);
        if (dout && dout != dx) gx_store(dout + r * C + c, v);
    }
};

template <class T>
static void gx__cuda_residual_backward(GxContext *g, void *dx, void *dout, const GxCudaShares *shares, const void *dy,
                                       const void *sum, const float *mean, const float *rstd, const GxResidual *r)
{
    const GxResidualSink<T> sink = {{}, (T *)dx, (T *)dout, r->C, gx__cuda_random(g, &r->dropout)};
    const GxCudaNormed<T> f = {(const T *)dy, (const T *)sum, (const T *)r->w,          mean, rstd,
                               r->R,          r->C,           gx__cuda_norm_rows(r->R), 0};
    gx__cuda_norm_backward(g, sink, *shares, f, gx_wide<T>(r->C, dx, dout));
}

void gx_cuda_residual_backward(GxContext *g, void *dx, void *dout, float *dbias, float *dw, float *db, const void *dy,
                               const void *sum, const float *mean, const float *rstd, const GxResidual *r,
                               int accumulate, float *scratch)
{
    float *const sums[GX_SHARES] = {dw, db, dbias};
    const GxCudaShares shares = gx__cuda_shares(scratch, sums, r->R, r->C);
    GX_CUDA_TYPES(r->dtype, gx__cuda_residual_backward, g, dx, dout, &shares, dy, sum, mean, rstd, r);
    gx__cuda_sum_shares(g, "residual_backward", sums, &shares, r->R, r->C, accumulate);
}
#endif
