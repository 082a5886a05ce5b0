// cuda/activation.cuh: ops/activation.h on the GPU.
#ifndef GX_CUDA_ACTIVATION_CUH
#define GX_CUDA_ACTIVATION_CUH
#include "../ops/activation.h"
#include "kernel.cuh"
GX_BEGIN

void gx_cuda_swiglu_forward(GxContext *g, void *y, const void *gate_up, int64_t R, int64_t F, GxDtype dtype);
void gx_cuda_swiglu_backward(GxContext *g, void *dgate_up, void *y, const void *dy, const void *gate_up, int64_t R,
                             int64_t F, GxDtype dtype);

void gx_cuda_gelu_forward(GxContext *g, void *y, const void *x, const void *bias, int64_t R, int64_t F, int kind,
                          GxDtype dtype);
void gx_cuda_gelu_backward(GxContext *g, void *dx, void *y, const void *dy, const void *x, const void *bias, int64_t R,
                           int64_t F, int kind, GxDtype dtype);
void gx_cuda_tanh_forward(GxContext *g, void *y, const void *x, int64_t n, GxDtype dtype);
void gx_cuda_tanh_backward(GxContext *g, void *dx, const void *dy, const void *y, int64_t n, GxDtype dtype);
void gx_cuda_relu_forward(GxContext *g, void *y, const void *x, int64_t n, GxDtype dtype);
void gx_cuda_relu_backward(GxContext *g, void *dx, const void *dy, const void *y, int64_t n, GxDtype dtype);

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

// With s = 1/(1 + exp(-gate)) and silu = gate*s: dgate = dy*up*s*(1 + gate*(1 - s)), dup = dy*silu, and again y =
// silu*up. A thread reads all that it needs before it writes: dgate_up may be gate_up, y may be dy.
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

// gelu(z) = z*p; its derivative is p + z*p', where p' = dp/dz is the slope
struct GxGeluParts {
    float p, slope;
};
// P(Z > z) * exp(z^2/2) of the normal distribution, for z >= 0: erfc without the exponential, which its derivative also
// needs. A polynomial of t, up to z = 14, where exp(-z^2/2) is negligible; relative error below 1e-6, including that of
// the division. Source: dev/cuda/fit_gelu.py
static __device__ __forceinline__ float gx__cuda_mills(float z)
{
    const float of[] = {0.1196293f,    0.12075396f, 0.099913485f, 0.12856165f,
                        -0.053683672f, 0.20635353f, -0.15720311f, 0.035674777f};
    const float t = __fdividef(1.0f, 1.0f + 0.3f * z);
    float sum = of[7];
#pragma unroll
    for (int i = 6; i >= 0; i--) sum = fmaf(sum, t, of[i]);
    return sum * t;
}
template <int KIND> static __device__ __forceinline__ GxGeluParts gx__cuda_gelu(float z)
{
    if (KIND == GX_GELU_ERF) {
        const float e = expf(-0.5f * z * z), below = e * gx__cuda_mills(fabsf(z));
        return {z < 0 ? below : 1.0f - below, e * 0.39894228f};
    }
    // (1 + tanh(u))/2 = 1/(1 + exp(-2u)), u = sqrt(2/pi) * (z + 0.044715*z^3)
    const float p = 1.0f / (1.0f + expf(-1.59576912f * z * (1.0f + 0.044715f * z * z)));
    return {p, p * (1.0f - p) * 1.59576912f * (1.0f + 0.134145f * z * z)};
}

// x[r,f] + bias[f]; bias NULL: x
template <int N, class T>
static __device__ __forceinline__ void gx__cuda_load_biased(float (&z)[N], const T *x, const T *bias, int64_t f)
{
    float b[N];
    gx_load(z, x + f);
    if (!bias) return;
    gx_load(b, bias + f);
    for (int i = 0; i < N; i++) z[i] += b[i];
}

// y[r,f] = gelu(x[r,f] + bias[f])
template <class T, int KIND> struct GxGeluForwardOp {
    T *y;
    const T *x, *bias;
    int64_t F;
    template <int N> __device__ void at(int64_t r, int64_t f) const
    {
        float z[N];
        gx__cuda_load_biased(z, x + r * F, bias, f);
        for (int i = 0; i < N; i++) z[i] *= gx__cuda_gelu<KIND>(z[i]).p;
        gx_store(y + r * F + f, z);
    }
};
template <class T>
static void gx__cuda_gelu_forward(GxContext *g, void *y, const void *x, const void *bias, int64_t R, int64_t F,
                                  int kind)
{
    const GxGeluForwardOp<T, GX_GELU_ERF> erf = {(T *)y, (const T *)x, (const T *)bias, F};
    const GxGeluForwardOp<T, GX_GELU_TANH> tanh = {(T *)y, (const T *)x, (const T *)bias, F};
    const bool wide = gx_wide<T>(F, y, x, bias);
    if (kind == GX_GELU_ERF) gx_each_row<T>(g, "gelu_forward", erf, R, F, wide);
    else gx_each_row<T>(g, "gelu_forward", tanh, R, F, wide);
}

void gx_cuda_gelu_forward(GxContext *g, void *y, const void *x, const void *bias, int64_t R, int64_t F, int kind,
                          GxDtype dtype)
{
    GX_CUDA_TYPES(dtype, gx__cuda_gelu_forward, g, y, x, bias, R, F, kind);
}

// dx[r,f] = dy[r,f] * (p + z*p'), z = x[r,f] + bias[f]; recomputes y[r,f] = z*p
// A thread reads all that it needs before it writes: dx may be x or dy, y may be dy.
template <class T, int KIND> struct GxGeluBackwardOp {
    T *dx, *y;
    const T *dy, *x, *bias;
    int64_t F;
    template <int N> __device__ void at(int64_t r, int64_t f) const
    {
        float z[N], e[N];
        gx__cuda_load_biased(z, x + r * F, bias, f);
        gx_load(e, dy + r * F + f);
        for (int i = 0; i < N; i++) {
            const GxGeluParts gelu = gx__cuda_gelu<KIND>(z[i]);
            e[i] *= gelu.p + z[i] * gelu.slope;
            z[i] *= gelu.p;
        }
        gx_store(dx + r * F + f, e);
        if (y) gx_store(y + r * F + f, z);
    }
};
template <class T>
static void gx__cuda_gelu_backward(GxContext *g, void *dx, void *y, const void *dy, const void *x, const void *bias,
                                   int64_t R, int64_t F, int kind)
{
    const GxGeluBackwardOp<T, GX_GELU_ERF> erf = {(T *)dx, (T *)y, (const T *)dy, (const T *)x, (const T *)bias, F};
    const GxGeluBackwardOp<T, GX_GELU_TANH> tanh = {(T *)dx, (T *)y, (const T *)dy, (const T *)x, (const T *)bias, F};
    const bool wide = gx_wide<T>(F, dx, y, dy, x, bias);
    if (kind == GX_GELU_ERF) gx_each_row<T>(g, "gelu_backward", erf, R, F, wide);
    else gx_each_row<T>(g, "gelu_backward", tanh, R, F, wide);
}

void gx_cuda_gelu_backward(GxContext *g, void *dx, void *y, const void *dy, const void *x, const void *bias, int64_t R,
                           int64_t F, int kind, GxDtype dtype)
{
    GX_CUDA_TYPES(dtype, gx__cuda_gelu_backward, g, dx, y, dy, x, bias, R, F, kind);
}

// y[i] = tanh(x[i])
template <class T> struct GxTanhForwardOp : GxEachOp {
    T *y;
    const T *x;
    template <int N> __device__ void at(int64_t i) const
    {
        float v[N];
        gx_load(v, x + i);
        for (int j = 0; j < N; j++) v[j] = tanhf(v[j]);
        gx_store(y + i, v);
    }
};
template <class T> static void gx__cuda_tanh_forward(GxContext *g, void *y, const void *x, int64_t n)
{
    const GxTanhForwardOp<T> op = {{}, (T *)y, (const T *)x};
    gx_each<T>(g, "tanh_forward", op, n, gx_aligned(y) && gx_aligned(x));
}

void gx_cuda_tanh_forward(GxContext *g, void *y, const void *x, int64_t n, GxDtype dtype)
{
    GX_CUDA_TYPES(dtype, gx__cuda_tanh_forward, g, y, x, n);
}

// dx[i] = dy[i] * (1 - y[i]^2)
template <class T> struct GxTanhBackwardOp : GxEachOp {
    T *dx;
    const T *dy, *y;
    template <int N> __device__ void at(int64_t i) const
    {
        float d[N], t[N];
        gx_load(d, dy + i);
        gx_load(t, y + i);
        for (int j = 0; j < N; j++) d[j] *= (1.0f - t[j]) * (1.0f + t[j]);
        gx_store(dx + i, d);
    }
};
template <class T> static void gx__cuda_tanh_backward(GxContext *g, void *dx, const void *dy, const void *y, int64_t n)
{
    const GxTanhBackwardOp<T> op = {{}, (T *)dx, (const T *)dy, (const T *)y};
    gx_each<T>(g, "tanh_backward", op, n, gx_aligned(dx) && gx_aligned(dy) && gx_aligned(y));
}

void gx_cuda_tanh_backward(GxContext *g, void *dx, const void *dy, const void *y, int64_t n, GxDtype dtype)
{
    GX_CUDA_TYPES(dtype, gx__cuda_tanh_backward, g, dx, dy, y, n);
}

// y[i] = x[i] > 0 ? x[i] : 0
template <class T> struct GxReluForwardOp : GxEachOp {
    T *y;
    const T *x;
    template <int N> __device__ void at(int64_t i) const
    {
        float v[N];
        gx_load(v, x + i);
        for (int j = 0; j < N; j++) v[j] = v[j] < 0 ? 0 : v[j]; // NaN stays
        gx_store(y + i, v);
    }
};
template <class T> static void gx__cuda_relu_forward(GxContext *g, void *y, const void *x, int64_t n)
{
    const GxReluForwardOp<T> op = {{}, (T *)y, (const T *)x};
    gx_each<T>(g, "relu_forward", op, n, gx_aligned(y) && gx_aligned(x));
}

void gx_cuda_relu_forward(GxContext *g, void *y, const void *x, int64_t n, GxDtype dtype)
{
    GX_CUDA_TYPES(dtype, gx__cuda_relu_forward, g, y, x, n);
}

// dx[i] = y[i] > 0 ? dy[i] : 0
template <class T> struct GxReluBackwardOp : GxEachOp {
    T *dx;
    const T *dy, *y;
    template <int N> __device__ void at(int64_t i) const
    {
        float d[N], t[N];
        gx_load(d, dy + i);
        gx_load(t, y + i);
        for (int j = 0; j < N; j++) d[j] = t[j] > 0 ? d[j] : 0;
        gx_store(dx + i, d);
    }
};
template <class T> static void gx__cuda_relu_backward(GxContext *g, void *dx, const void *dy, const void *y, int64_t n)
{
    const GxReluBackwardOp<T> op = {{}, (T *)dx, (const T *)dy, (const T *)y};
    gx_each<T>(g, "relu_backward", op, n, gx_aligned(dx) && gx_aligned(dy) && gx_aligned(y));
}

void gx_cuda_relu_backward(GxContext *g, void *dx, const void *dy, const void *y, int64_t n, GxDtype dtype)
{
    GX_CUDA_TYPES(dtype, gx__cuda_relu_backward, g, dx, dy, y, n);
}
#endif
