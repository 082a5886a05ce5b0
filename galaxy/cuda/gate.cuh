// cuda/gate.cuh: ops/gate.h on the GPU.
#ifndef GX_CUDA_GATE_CUH
#define GX_CUDA_GATE_CUH
#include "../ops/gate.h"
#include "elementwise.cuh"
GX_BEGIN

void gx_cuda_gate_forward(GxContext *g, void *y, const void *a, const void *b, const void *gate, float temperature,
                          int64_t n, GxDtype dtype);
void gx_cuda_gate_backward(GxContext *g, void *da, void *db, float *dgate, const void *dy, const void *a, const void *b,
                           const void *gate, float temperature, int64_t n, int accumulate, GxDtype dtype,
                           double *scratch);

GX_END
#endif

#if defined(GALAXY_CUDA_IMPLEMENTATION) && !defined(GX_CUDA_GATE_IMPLEMENTED)
#define GX_CUDA_GATE_IMPLEMENTED

// The share of a: sigmoid(gate / temperature). The share of b: the rest, computed by itself so that it is exact if
// small.
template <class T>
static __device__ __forceinline__ float gx__cuda_gate_share(const T *gate, float temperature, int of_b)
{
    const float z = gx_to_float(*gate) / temperature;
    return 1 / (1 + expf(of_b ? z : -z));
}

// y[i] = mu a[i] + (1 - mu) b[i]
template <class T> struct GxGateOp : GxEachOp {
    T *y;
    const T *a, *b, *gate;
    float temperature;
    template <int N> __device__ void at(int64_t i) const
    {
        const float mu = gx__cuda_gate_share(gate, temperature, 0), rest = gx__cuda_gate_share(gate, temperature, 1);
        float l[N], r[N];
        gx_load(l, a + i);
        gx_load(r, b + i);
        for (int j = 0; j < N; j++) l[j] = mu * l[j] + rest * r[j];
        gx_store(y + i, l);
    }
};
template <class T>
static void gx__cuda_gate_forward(GxContext *g, void *y, const void *a, const void *b, const void *gate,
                                  float temperature, int64_t n)
{
    const GxGateOp<T> op = {{}, (T *)y, (const T *)a, (const T *)b, (const T *)gate, temperature};
    gx_each<T>(g, "gate_forward", op, n, gx_aligned(y) && gx_aligned(a) && gx_aligned(b));
}

void gx_cuda_gate_forward(GxContext *g, void *y, const void *a, const void *b, const void *gate, float temperature,
                          int64_t n, GxDtype dtype)
{
    GX_CUDA_TYPES(dtype, gx__cuda_gate_forward, g, y, a, b, gate, temperature, n);
}

// part[k]: the sum of dy (a - b) over block k of GX_SUM_BLOCK elements; da = mu dy, db = (1 - mu) dy
template <class T>
static __global__ void __launch_bounds__(GX_CUDA_BLOCK)
    gx__cuda_gate_blocks(double *part, T *da, T *db, const T *dy, const T *a, const T *b, const T *gate,
                         float temperature, int64_t n, int64_t blocks)
{
    const float mu = gx__cuda_gate_share(gate, temperature, 0), rest = gx__cuda_gate_share(gate, temperature, 1);
    for (int64_t k = blockIdx.x; k < blocks; k += gridDim.x) {
        const int64_t first = k * GX_SUM_BLOCK, end = n - first < GX_SUM_BLOCK ? n : first + GX_SUM_BLOCK;
        double s = 0;
        for (int64_t i = first + (int64_t)threadIdx.x; i < end; i += GX_CUDA_BLOCK) {
            const float d = gx_to_float(dy[i]);
            s += (double)(d * (gx_to_float(a[i]) - gx_to_float(b[i])));
            da[i] = gx_from_float<T>(mu * d);
            if (db) db[i] = gx_from_float<T>(rest * d);
        }
        s = gx_block_sum(s);
        if (threadIdx.x == 0) part[k] = s;
    }
}

template <class T>
static __global__ void gx__cuda_gate_finish(float *dgate, const double *sum, const T *gate, float temperature,
                                            int accumulate)
{
    const double mu = (double)gx__cuda_gate_share(gate, temperature, 0),
                 rest = (double)gx__cuda_gate_share(gate, temperature, 1);
    *dgate = (accumulate ? *dgate : 0) + (float)(mu * rest / (double)temperature * *sum);
}

template <class T>
static void gx__cuda_gate_backward(GxContext *g, void *da, void *db, float *dgate, const void *dy, const void *a,
                                   const void *b, const void *gate, float temperature, int64_t n, int accumulate,
                                   double *scratch)
{
    const int64_t blocks = gx_ceil_div(n, GX_SUM_BLOCK);
    GX_LAUNCH((gx__cuda_gate_blocks<T>), gx_cuda_blocks(blocks), GX_CUDA_BLOCK, 0,
              gx_cuda(g)->stream, scratch, (T *)da, (T *)db, (const T *)dy, (const T *)a, (const T *)b,
              (const T *)gate, temperature, n, blocks);
    if (dgate) {
        gx__cuda_sum_parts(g, scratch + blocks, scratch, blocks, 0);
        GX_LAUNCH((gx__cuda_gate_finish<T>), 1, 1, 0, gx_cuda(g)->stream, dgate, scratch + blocks, (const T *)gate,
                  temperature, accumulate);
    }
    gx_cuda_check(g, "gate_backward");
}

void gx_cuda_gate_backward(GxContext *g, void *da, void *db, float *dgate, const void *dy, const void *a, const void *b,
                           const void *gate, float temperature, int64_t n, int accumulate, GxDtype dtype,
                           double *scratch)
{
    GX_CUDA_TYPES(dtype, gx__cuda_gate_backward, g, da, db, dgate, dy, a, b, gate, temperature, n, accumulate, scratch);
}
#endif
