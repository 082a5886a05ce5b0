// cuda/elementwise.cuh: ops/elementwise.h on the GPU.
#ifndef GX_CUDA_ELEMENTWISE_CUH
#define GX_CUDA_ELEMENTWISE_CUH
#include "../ops/elementwise.h"
#include "kernel.cuh"
GX_BEGIN

void gx_cuda_zero(GxContext *g, void *x, int64_t bytes);
void gx_cuda_copy(GxContext *g, void *y, const void *x, int64_t bytes);
void gx_cuda_convert(GxContext *g, void *y, GxDtype to, const void *x, GxDtype from, int64_t n);
void gx_cuda_add(GxContext *g, void *y, const void *a, const void *b, int64_t n, GxDtype dtype);
void gx_cuda_scale(GxContext *g, void *y, const void *x, int64_t n, float factor, GxDtype dtype);
void gx_cuda_sum(GxContext *g, double *total, const float *x, int64_t n, int accumulate, double *scratch);

// total = (accumulate ? total : 0) + part[0] + part[1] + ... in this order; also for other headers of the device
void gx__cuda_sum_parts(GxContext *g, double *total, const double *part, int64_t parts, int accumulate);

GX_END
#endif

#if defined(GALAXY_CUDA_IMPLEMENTATION) && !defined(GX_CUDA_ELEMENTWISE_IMPLEMENTED)
#define GX_CUDA_ELEMENTWISE_IMPLEMENTED
#include "kernel.cuh"

void gx_cuda_zero(GxContext *g, void *x, int64_t bytes)
{
    cudaMemsetAsync(x, 0, (size_t)bytes, gx_cuda(g)->stream);
    gx_cuda_check(g, "zero");
}

void gx_cuda_copy(GxContext *g, void *y, const void *x, int64_t bytes)
{
    cudaMemcpyAsync(y, x, (size_t)bytes, cudaMemcpyDeviceToDevice, gx_cuda(g)->stream);
    gx_cuda_check(g, "copy");
}

// y[i] = x[i], rounded to nearest, ties to even
template <class To, class From> struct GxConvertOp : GxEachOp {
    To *y;
    const From *x;
    template <int N> __device__ void at(int64_t i) const
    {
        float v[N];
        gx_load(v, x + i);
        gx_store(y + i, v);
    }
};
template <class To, class From> static void gx__cuda_convert(GxContext *g, void *y, const void *x, int64_t n)
{
    const GxConvertOp<To, From> op = {{}, (To *)y, (const From *)x};
    gx_each<__nv_bfloat16>(g, "convert", op, n, gx_aligned(y) && gx_aligned(x)); // 8 at a time: 16 bytes here, 32 there
}

void gx_cuda_convert(GxContext *g, void *y, GxDtype to, const void *x, GxDtype from, int64_t n)
{
    if (to == from) gx_cuda_copy(g, y, x, n * gx_dtype_size(to));
    else if (to == GX_BF16) gx__cuda_convert<__nv_bfloat16, float>(g, y, x, n);
    else gx__cuda_convert<float, __nv_bfloat16>(g, y, x, n);
}

// y[i] = a[i] + b[i]
template <class T> struct GxAddOp : GxEachOp {
    T *y;
    const T *a, *b;
    template <int N> __device__ void at(int64_t i) const
    {
        float l[N], r[N];
        gx_load(l, a + i);
        gx_load(r, b + i);
        for (int j = 0; j < N; j++) l[j] += r[j];
        gx_store(y + i, l);
    }
};
template <class T> static void gx__cuda_add(GxContext *g, void *y, const void *a, const void *b, int64_t n)
{
    const GxAddOp<T> op = {{}, (T *)y, (const T *)a, (const T *)b};
    gx_each<T>(g, "add", op, n, gx_aligned(y) && gx_aligned(a) && gx_aligned(b));
}

void gx_cuda_add(GxContext *g, void *y, const void *a, const void *b, int64_t n, GxDtype dtype)
{
    GX_CUDA_TYPES(dtype, gx__cuda_add, g, y, a, b, n);
}

// y[i] = factor * x[i]
template <class T> struct GxScaleOp : GxEachOp {
    T *y;
    const T *x;
    float factor;
    template <int N> __device__ void at(int64_t i) const
    {
        float v[N];
        gx_load(v, x + i);
        for (int j = 0; j < N; j++) v[j] *= factor;
        gx_store(y + i, v);
    }
};
template <class T> static void gx__cuda_scale(GxContext *g, void *y, const void *x, int64_t n, float factor)
{
    const GxScaleOp<T> op = {{}, (T *)y, (const T *)x, factor};
    gx_each<T>(g, "scale", op, n, gx_aligned(y) && gx_aligned(x));
}

void gx_cuda_scale(GxContext *g, void *y, const void *x, int64_t n, float factor, GxDtype dtype)
{
    GX_CUDA_TYPES(dtype, gx__cuda_scale, g, y, x, n, factor);
}

// part[b]: the sum of block b of GX_SUM_BLOCK elements of x
static __global__ void __launch_bounds__(GX_CUDA_BLOCK)
    gx__cuda_sum_blocks(double *part, const float *x, int64_t n, int64_t blocks)
{
    for (int64_t b = blockIdx.x; b < blocks; b += gridDim.x) {
        const double s = gx_block_sum_of<GX_SUM_BLOCK, 0>(x + b * GX_SUM_BLOCK, n - b * GX_SUM_BLOCK);
        if (threadIdx.x == 0) part[b] = s;
    }
}

// total = (accumulate ? total : 0) + part[0] + part[1] + ... in this order, so that the result does not depend on how
// elements are divided into calls. One block: its threads fetch 256 parts while the first thread adds the previous 256.
// On an H100 an addition seems to take 14 cycles (docs/kernels.md), longer than reading 4096 elements.
static __global__ void __launch_bounds__(GX_CUDA_BLOCK)
    gx__cuda_sum_in_order(double *total, const double *part, int64_t blocks, int accumulate)
{
    GX_SHARED(double, fetched, [GX_CUDA_BLOCK]);
    const int64_t thread = (int64_t)threadIdx.x;
    double s = accumulate ? *total : 0, next = thread < blocks ? part[thread] : 0;
    for (int64_t first = 0; first < blocks; first += GX_CUDA_BLOCK) {
        const int64_t left = blocks - first, mine = first + GX_CUDA_BLOCK + thread;
        const int count = left < GX_CUDA_BLOCK ? (int)left : (int)GX_CUDA_BLOCK;
        fetched[thread] = next;
        __syncthreads();
        if (mine < blocks) next = part[mine];
        for (int i = 0; thread == 0 && i < count; i++) s += fetched[i];
        __syncthreads();
    }
    if (thread == 0) *total = s;
}

void gx__cuda_sum_parts(GxContext *g, double *total, const double *part, int64_t parts, int accumulate)
{
    GX_LAUNCH(gx__cuda_sum_in_order, 1, GX_CUDA_BLOCK, 0, gx_cuda(g)->stream, total, part, parts, accumulate);
}

void gx_cuda_sum(GxContext *g, double *total, const float *x, int64_t n, int accumulate, double *scratch)
{
    const int64_t blocks = gx_ceil_div(n, GX_SUM_BLOCK);
    GX_LAUNCH(gx__cuda_sum_blocks, gx_cuda_blocks(blocks), GX_CUDA_BLOCK, 0, gx_cuda(g)->stream, scratch, x, n, blocks);
    gx__cuda_sum_parts(g, total, scratch, blocks, accumulate);
    gx_cuda_check(g, "sum");
}
#endif
