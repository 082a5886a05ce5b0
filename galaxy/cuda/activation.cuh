// cuda/activation.cuh: ops/activation.h on the GPU.
#ifndef GX_CUDA_ACTIVATION_CUH
#define GX_CUDA_ACTIVATION_CUH
#include "../ops/activation.h"
#include "kernel.cuh"
GX_BEGIN

void gx_cuda_swiglu_forward(GxContext *g, void *y, const void *gate_up, int64_t R, int64_t F, GxDtype dtype);
void gx_cuda_swiglu_backward(GxContext *g, void *dgate_up, void *y, const void *dy, const void *gate_up, int64_t R,
                             int64_t F, GxDtype dtype);

GX_END
#endif

#if defined(GALAXY_CUDA_IMPLEMENTATION) && !defined(GX_CUDA_ACTIVATION_IMPLEMENTED)
#define GX_CUDA_ACTIVATION_IMPLEMENTED
#include "kernel.cuh"

// y[r,f] = silu(gate[r,f]) * up[r,f],  silu(z) = z/(1 + exp(-z))
template <class T> struct GxSwigluForwardOp {
    T *y;
    const T *gate_up;
    int64_t F;
    template <int N> __device__ void at(int64_t r, int64_t f) const
    {
        float z[N], u[N];
        gx_load(z, gate_up + r * 2 * F + f);
        gx_load(u, gate_up + r * 2 * F + F + f);
        for (int i = 0; i < N; i++) z[i] = z[i] / (1.0f + expf(-z[i])) * u[i];
        gx_store(y + r * F + f, z);
    }
};
template <class T> static void gx__cuda_swiglu_forward(GxContext *g, void *y, const void *gate_up, int64_t R, int64_t F)
{
    const GxSwigluForwardOp<T> op = {(T *)y, (const T *)gate_up, F};
    gx_each_row<T>(g, "swiglu_forward", op, R, F, gx_wide<T>(F, y, gate_up));
}

void gx_cuda_swiglu_forward(GxContext *g, void *y, const void *gate_up, int64_t R, int64_t F, GxDtype dtype)
{
    GX_CUDA_TYPES(dtype, gx__cuda_swiglu_forward, g, y, gate_up, R, F);
}

// With s = 1/(1 + exp(-gate)) and silu = gate*s: dgate = dy*up*s*(1 + gate*(1 - s)), dup = dy*silu; y = silu*up again.
// A thread reads all that it needs before it writes: dgate_up may be gate_up, y may be dy.
template <class T> struct GxSwigluBackwardOp {
    T *dgate_up, *y;
    const T *dy, *gate_up;
    int64_t F;
    template <int N> __device__ void at(int64_t r, int64_t f) const
    {
        const int64_t gate = r * 2 * F + f, up = gate + F;
        float z[N], u[N], e[N], out[N];
        gx_load(z, gate_up + gate);
        gx_load(u, gate_up + up);
        gx_load(e, dy + r * F + f);
        for (int i = 0; i < N; i++) {
            const float s = 1.0f / (1.0f + expf(-z[i])), silu = z[i] * s;
            out[i] = silu * u[i];
            z[i] = e[i] * u[i] * s * (1.0f + z[i] * (1.0f - s));
            u[i] = e[i] * silu;
        }
        gx_store(dgate_up + gate, z);
        gx_store(dgate_up + up, u);
        if (y) gx_store(y + r * F + f, out);
    }
};
template <class T>
static void gx__cuda_swiglu_backward(GxContext *g, void *dgate_up, void *y, const void *dy, const void *gate_up,
                                     int64_t R, int64_t F)
{
    const GxSwigluBackwardOp<T> op = {(T *)dgate_up, (T *)y, (const T *)dy, (const T *)gate_up, F};
    gx_each_row<T>(g, "swiglu_backward", op, R, F, gx_wide<T>(F, dgate_up, y, dy, gate_up));
}

void gx_cuda_swiglu_backward(GxContext *g, void *dgate_up, void *y, const void *dy, const void *gate_up, int64_t R,
                             int64_t F, GxDtype dtype)
{
    GX_CUDA_TYPES(dtype, gx__cuda_swiglu_backward, g, dgate_up, y, dy, gate_up, R, F);
}
#endif
